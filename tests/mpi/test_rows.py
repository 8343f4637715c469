"""Arrays of rows and of several boxes a rank, under MPI."""

from __future__ import annotations

import pytest
from helpers import leftovers
from mpihelpers import TRANSPORTS
from rows import Plan, look, restart, save

import penstock as ps

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.mark.parametrize("seed", range(8))
def test_any_group(mpi, place, transport, seed):
    plan = Plan.random(100 + seed)
    with ps.Session(mpi, transport=transport, sync=False, block_bytes=64) as s:
        save(s, plan, place / "g")
        s.barrier()
        if s.rank == 0:
            look(plan, place / "g", s.size)
        restart(s, plan, place / "g", s.size)
    readers = mpi.Split(mpi.rank < max(mpi.size - 1, 1), mpi.rank)
    with ps.Session(readers, transport=transport) as s:
        if mpi.rank < max(mpi.size - 1, 1):
            restart(s, plan, place / "g", mpi.size)
    readers.Free()
    mpi.Barrier()
    assert not leftovers(place)
