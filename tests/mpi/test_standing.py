"""Arrays through servers that stand, in MPI jobs: each rank is a client of them."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
import zarr
from conformance import random_case, round_trip
from mpihelpers import HOSTS, rest
from serving import alone

import penstock as ps

SHAPE = (13, 8)

pytestmark = pytest.mark.skipif(len(set(HOSTS)) > 1, reason="a Unix socket is of one host")


@pytest.fixture
def server(mpi, place):
    """The URL of servers of the arrays in `arrays`, which rank 0 starts."""
    url = None
    with contextlib.ExitStack() as stack:
        if mpi.rank == 0:
            (place / "arrays").mkdir()
            ps.FileSystem.create(place / "volume", servers=2, capacity=16 << 20).close()
            options = ("--arrays", place / "arrays")
            url = stack.enter_context(alone(place / "volume", *options)).url
        rest(mpi)
        yield mpi.bcast(url)
        mpi.Barrier()


def test_round_trips(mpi, place, server):
    chance = random.Random(mpi.size)
    with ps.Session(mpi, servers=server, block_bytes=512) as session:
        assert (session.rank, session.size, session.servers) == (mpi.rank, mpi.size, 2)
        for turn in range(10):
            case = random_case(chance, session.size, session.size)
            round_trip(session, case, place / "arrays" / f"{turn}")


def test_timesteps_while_ranks_compute(mpi, place, server):
    memory = ps.Distribution("BLOCK,*", mpi.size)
    u = ps.Array("u", SHAPE, "f8", memory, ps.Chunks((5, 3), codec="zstd"))
    group = ps.Group("job", [u], "job.zarr")
    whole = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    rows = -(-SHAPE[0] // mpi.size)
    own = whole[mpi.rank * rows : (mpi.rank + 1) * rows]
    with ps.Session(mpi, servers=server) as session:
        for step in range(4):
            begun = session.begin_timestep(group, {"u": own + step}, copy=True)
            assert float(np.sum(whole @ whole.T)) > 0  # they compute
            begun.end()
        session.checkpoint(group, {"u": own - 1})
    with ps.Session(mpi, servers=server) as session:
        state = session.restart(group)
        assert state is not None
        np.testing.assert_array_equal(state["u"], own - 1)
    mpi.Barrier()
    if mpi.rank == 0:
        stored = zarr.open_group(place / "arrays" / "job.zarr", mode="r")["u"][...]
        np.testing.assert_array_equal(stored, [whole + step for step in range(4)])


def test_errors_are_those_of_all_ranks(mpi, place, server):
    if mpi.size == 1:
        pytest.skip("there is nobody else")
    with pytest.raises(ps.MismatchError, match="different options"):
        ps.Session(mpi, servers=server if mpi.rank == 0 else 1)
    with pytest.raises(ps.MismatchError, match="different options"):
        ps.Session(mpi, servers=server, block_bytes=512 if mpi.rank == 0 else 1024)
    with pytest.raises(ps.PeerError) as raised:
        ps.Session(mpi, servers=server if mpi.rank != 1 else f"unix://{place}/nobody.sock")
    assert raised.value.rank == 1
    with ps.Session(mpi, servers=server) as session:
        u = ps.Array("u", SHAPE, "f8", ps.Distribution("BLOCK,*", mpi.size))
        with pytest.raises(ps.SchemaError) as raised:
            local = np.zeros(u.local_shape(mpi.rank) if mpi.rank == 0 else (1, 1))
            session.write("u.zarr", u, local)
        assert raised.value.rank == 1
        session.write("u.zarr", u, np.zeros(u.local_shape(mpi.rank)))
