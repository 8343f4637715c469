"""Work at the servers in an MPI job: through shared memory and by messages."""

from __future__ import annotations

import random

import numpy as np
import pytest
import work
from conformance import random_case

import penstock as ps


@pytest.mark.parametrize("transport", ["shared", "messages"])
@pytest.mark.parametrize("dedicated", [False, True])
def test_random_cases_are_as_in_numpy(mpi, place, transport, dedicated):
    """As on threads; also with servers that are no clients."""
    if dedicated and mpi.size < 2:
        pytest.skip("two ranks are needed")
    chance = random.Random(mpi.size)
    servers = chance.randint(1, max(mpi.size - 1, 1))
    clients = mpi.size - servers if dedicated else mpi.size
    with ps.Session(
        mpi, transport=transport, servers=servers, dedicated=dedicated, block_bytes=900, sync=False
    ) as s:
        if s.is_client:
            for number in range(12):
                case = random_case(chance, clients, clients)
                work.round_trip(s, case, place / f"run{number}", number)


@pytest.mark.parametrize("transport", ["shared", "messages"])
def test_errors_are_those_of_all_ranks(mpi, place, transport):
    """A condition that makes no sense, and one that only the last rank has."""
    array = ps.Array("u", (40, 30), "f8", memory=ps.Distribution("BLOCK,*", mpi.size))
    with ps.Session(mpi, transport=transport) as s:
        whole = np.arange(1200, dtype="f8").reshape(40, 30)
        rows = array.local_slices(s.rank)[0]
        s.write(place / "run.zarr", array, whole[rows])
        with pytest.raises(ps.SchemaError, match="column 4"):
            s.select(place / "run.zarr", array, where="u >")
        if s.size > 1:
            with pytest.raises(ps.MismatchError):
                s.select(place / "run.zarr", array, where=f"u > {s.rank // (s.size - 1)}")
        found = s.select(place / "run.zarr", array, where="u % 7 == 0", balanced=True)
        counts = mpi.allgather(len(found.values))
        assert sum(counts) == 172 and max(counts) - min(counts) <= 1
        assert s.reduce(place / "run.zarr", array, how="sum") == whole.sum()


@pytest.mark.parametrize("transport", ["shared", "messages"])
def test_a_sample_splits_and_bounds_rule_out(mpi, place, transport):
    """Splitters are the same on all ranks; a saved group has bounds from all servers."""
    whole = np.random.default_rng(5).permutation(24_000).reshape(200, 120).astype("f4")
    array = ps.Array("u", whole.shape, "f4", ps.Distribution("BLOCK,*", mpi.size))
    own = array.with_disk(ps.Chunks((20, 30)))
    with ps.Session(mpi, transport=transport, servers=min(mpi.size, 2), sync=False) as s:
        rows = array.local_slices(s.rank)
        s.write(place / "run.zarr", own, whole[rows])
        found = s.read(place / "run.zarr", array, by="u", splitters="sampled")
        ranks = np.searchsorted(found.splitters, whole.astype("f8"), side="right")
        work.check(found, whole, ranks == s.rank)
        assert len({splitters.tobytes() for splitters in mpi.allgather(found.splitters)}) == 1
        smooth = np.arange(whole.size, dtype="f4").reshape(whole.shape)
        group = ps.Group("g", [own], place / "g.zarr", bounds=True)
        s.timestep(group, {"u": smooth[rows]})
        saved = ps.Array("u", (1, *whole.shape), "f4", ps.Distribution("*,BLOCK,*", mpi.size))
        few = s.select(place / "g.zarr", saved, where="u >= 23990")
        mask = np.zeros(saved.shape, bool)
        mask[saved.local_slices(s.rank)] = smooth[rows] >= 23990
        work.check(few, smooth[None], mask)
        assert few.report.blocks == 1
