"""The command ``penstock``."""

from __future__ import annotations

import os
import signal
import sys

from penstock import _core

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""One of them is set in a process that mpiexec has started."""


def main() -> int:
    """Runs the command that the program's arguments say, and returns its exit code."""
    arguments = sys.argv[1:]
    if any(name in os.environ for name in RANK_VARIABLES):
        if arguments[:1] == ["copy"]:
            return copy_under_mpi(arguments)
        if arguments[:1] == ["fs"] and arguments[1:2] in (["import"], ["export"]):
            return transfer_under_mpi(arguments)
    # It runs outside of Python, which would notice Ctrl-C only at its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["penstock", *arguments], sys.executable or "python3")


def copy_under_mpi(arguments: list[str]) -> int:
    """Runs `penstock copy` as one rank of the job."""
    from mpi4py import MPI

    from penstock._session import Session

    with Session(MPI.COMM_WORLD, sync="--no-sync" not in arguments) as session:
        return session._session.run_copy(["penstock", *arguments])


def transfer_under_mpi(arguments: list[str]) -> int:
    """Runs `penstock fs import` or `export` as one rank of the job."""
    from mpi4py import MPI

    from penstock._mpi import library_of

    comm = MPI.COMM_WORLD
    return _core.run_files_command(library_of(comm), ["penstock", *arguments], comm.rank == 0)
