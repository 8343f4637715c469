"""What MPIs' own MPI-IO is known to do wrong, or cannot do, found by the programs of this folder.

A flaw is excused in one library alone, and never while Penstock's library is loaded. `unable` ones
are left out of programs; the results of the others are not looked at, where they matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIBRARY = "libpenstock_mpiio"


@dataclass(frozen=True)
class Flaw:
    """Something that an MPI's own MPI-IO does wrong."""

    name: str
    mpis: tuple[str, ...]
    is_unable: bool
    reason: str


ALL = ("mpich", "openmpi", "abi")
ROMIO = ("mpich", "abi")
# fmt: off
FLAWS = (
    Flaw("sync read-only", ALL, True, "MPI_File_sync refuses files that are open for reading"),
    Flaw(
        "types freed early", ROMIO, True,
        "a collective call that does not block uses its datatype after MPI_Type_free, and crashes",
    ),
    Flaw(
        "status at the end", ROMIO, False,
        "a read beyond the end of the file claims all bytes where a view or memory has gaps",
    ),
    Flaw("status of nothing", ROMIO, False, "a status is left as it was where there are no data"),
    Flaw("internal", ROMIO, False, "MPI_File_get_view says native where internal was set"),
)


def is_penstock() -> bool:
    """Whether Penstock's library is loaded into this process."""
    return LIBRARY in Path("/proc/self/maps").read_text("utf-8")


def flaws(mpi: str, unable: bool) -> frozenset[str]:
    """The names of what is excused in the library that is loaded."""
    if is_penstock():
        return frozenset()
    return frozenset(
        flaw.name for flaw in FLAWS if mpi in flaw.mpis and flaw.is_unable == unable
    )
