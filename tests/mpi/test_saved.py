"""Groups, parts of arrays and natural chunking on MPI: the body of `saved`."""

from __future__ import annotations

import random

import pytest
import saved
from helpers import leftovers
from mpihelpers import TRANSPORTS
from test_mpi_conformance import open_session

import penstock as ps


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seed", range(3))
def test_groups_live(mpi, place, transport, seed):
    chance = random.Random(f"{mpi.size} {seed}")
    group = saved.random_saved(chance, mpi.size, mpi.size)
    with open_session(mpi, transport, chance.choice([None, "one", "all"])) as session:
        saved.live(session, group, place / "g.zarr")
    assert not leftovers(place)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_groups_live_on_disks_of_servers(mpi, place, transport):
    group = saved.random_saved(random.Random(f"{mpi.size} disks"), mpi.size, mpi.size)
    if mpi.rank == 0:
        for server in range(mpi.size):
            (place / f"disk{server}").mkdir()
    mpi.barrier()
    with open_session(mpi, transport, "all") as session:
        saved.live(session, group, place / "disk{server}" / "g.zarr")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_groups_live_with_dedicated_servers(mpi, place, transport):
    if mpi.size == 1:
        pytest.skip("no clients would be left")
    group = saved.random_saved(random.Random(mpi.size), mpi.size - 1, mpi.size - 1)
    with open_session(mpi, transport, "one", dedicated=True) as session:
        if session.is_client:
            saved.live(session, group, place / "g.zarr")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seed", range(4))
def test_parts_are_changed(mpi, place, transport, seed):
    chance = random.Random(f"{mpi.size} {seed} parts")
    case = saved.random_part_case(chance, mpi.size)
    with open_session(mpi, transport, block_bytes=chance.choice([16, 4096])) as session:
        saved.change_parts(session, case, random.Random(seed), place / "u")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_natural_chunking(mpi, place, transport):
    with open_session(mpi, transport) as session:
        saved.natural(session, random.Random(1), place / "n.zarr")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("file", ["h5", "nc"])
def test_groups_live_in_a_file(mpi, place, transport, file):
    chance = random.Random(f"{mpi.size} {file}")
    disk = {"h5": ps.HDF5, "nc": ps.NetCDF}[file]
    group = saved.random_saved_in_file(chance, mpi.size, mpi.size, disk)
    with open_session(mpi, transport, chance.choice([None, "one", "all"])) as session:
        saved.live(session, group, place / f"g.{file}")
    assert not leftovers(place)
