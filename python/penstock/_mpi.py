"""Sessions over MPI: how the program's MPI library is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import _core
from penstock._errors import Error, schema_error, type_name
from penstock._options import Options, SessionOptions, session_options

if TYPE_CHECKING:
    from mpi4py import MPI


def join(
    comm: MPI.Comm, options: SessionOptions | None, changes: Options
) -> tuple[_core.PySession, SessionOptions]:
    """Open the session of this rank of an MPI job, and say with which options.

    Raises
    ------
    Error
        The same on all ranks, also when only one rank's options do not fit. On that rank the
        exception that says why is its cause.
    """
    library = library_of(comm)
    try:
        chosen = session_options(options, changes)
    except Exception as wrong:  # the other ranks must hear of it
        kind = wrong.kind if isinstance(wrong, Error) else "Schema"
        try:
            _core.join_mpi(library, "shared", None, (kind, str(wrong)))
        except Error as verdict:
            raise verdict from wrong
        raise  # not reached: an error of any rank is the verdict of all
    argument = chosen._argument(dedicated=False)
    return _core.join_mpi(library, chosen.transport, argument, None), chosen


def library_of(comm: MPI.Comm) -> tuple[str, int, int, int, bool]:
    """How the MPI library behind `comm` is reached; see docs/decisions/002-mpi-at-run-time.md."""
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm):
        raise schema_error(f"a session needs an MPI intracommunicator, not {type_name(comm)}")
    if MPI.Query_thread() < MPI.THREAD_FUNNELED:
        raise schema_error("MPI must be initialised with MPI_THREAD_FUNNELED or more")
    byte, any_thread = MPI._handleof(MPI.BYTE), MPI.Query_thread() == MPI.THREAD_MULTIPLE
    return MPI.__file__, MPI._handleof(comm), byte, MPI.ANY_SOURCE, any_thread
