"""Ranks of an MPI job read and write parts of an array that stays open, and see what they may see:
`claims.py` under mpiexec."""

from __future__ import annotations

import pytest
from claims import Case, check, replayable, under_mpi
from mpihelpers import TRANSPORTS, has_servers

SEEDS = 6


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_ranks_see_what_they_may_see(mpi, place, transport, dedicated):
    if not has_servers(mpi, transport, dedicated):
        pytest.skip("no server answers while its rank computes")
    for seed in range(2_000, 2_000 + SEEDS):
        case = Case.of(seed)
        case.options["dedicated"] = dedicated
        directory = place / str(seed)
        if mpi.rank == 0:
            directory.mkdir()
        with replayable(seed, f"mpiexec -n {mpi.size} "):
            check(case, under_mpi(case, directory, mpi, transport))
