"""The program by which `make lint` checks types works over MPI, too."""

from __future__ import annotations

import runpy
from pathlib import Path

import penstock as ps

USER_PROGRAM = Path(__file__).parent.parent / "typing" / "user_program.py"


def test_the_user_program_runs_over_mpi(mpi, place):
    program = runpy.run_path(str(USER_PROGRAM))
    with ps.Session(mpi, sync=False) as s:
        assert program["main"](s, place) == mpi.rank
    program["files"](place, mpi)
