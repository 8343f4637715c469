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
    """Something that an MPI does wrong."""

    name: str
    mpis: tuple[str, ...]
    reason: str
    is_unable: bool = True
    """Whether programs do without it (`trouble.py`); the judge does not look at the others."""
    is_of_io: bool = True
    """Whether it is in what Penstock's library replaces."""


ALL = ("mpich", "openmpi", "abi")
ROMIO = ("mpich", "abi")
OMPIO = ("openmpi",)
FLAWS = (
    # All of them
    Flaw("sync read-only", ALL, "MPI_File_sync refuses files that are open for reading"),
    # MPICH, its library of the standard ABI, and ROMIO in it
    Flaw(
        "elements", ROMIO, "MPI_Get_elements aborts where a type has a darray or a struct in it",
        is_of_io=False,
    ),
    Flaw("types freed early", ROMIO, "iwrite_all uses a datatype after MPI_Type_free: crash"),
    Flaw("testall", ROMIO, "an error that is none, or a crash, while some requests go on"),
    Flaw("shifted memory", ROMIO, "data without gaps that begin beside the buffer's address are "
         "taken from the address"),
    Flaw("pointer during iall", ROMIO, "the end of iwrite_at_all sets the individual pointer to "
         "what it was at the beginning"),
    Flaw("external32 of structs", ROMIO, "MPI_Pack_external_size crashes"),
    Flaw("external32 of memory with gaps", ROMIO, "wrong bytes, mostly"),
    Flaw("end before the view", ROMIO, "MPI_SEEK_END points before the view where the file ends "
         "before its displacement"),
    Flaw("shared pointers of two handles", ROMIO, "a file that is open twice has one pointer"),
    Flaw("bounds without data", ROMIO, "crash, for some darrays"),
    Flaw("external32 in order", ROMIO, "MPI_File_read_ordered does not turn the bytes"),
    Flaw("external32 of nothing", ROMIO, "MPI_Pack_external_size crashes"),
    Flaw("external32 that goes on", ROMIO, "the turned bytes are freed before they are written"),
    Flaw("holes", ROMIO, "what stands in memory is written to holes behind the end of the file",
         is_unable=False),
    Flaw("vague position", ROMIO, "a short read moves the individual pointer by what was read",
         is_unable=False),
    Flaw("status at the end", ALL, "a read beyond the end of the file claims all bytes where a "
         "view or memory has gaps", is_unable=False),
    Flaw("status of nothing", ROMIO, "a status is left as it was where there are no data",
         is_unable=False),
    Flaw("internal", ROMIO, "MPI_File_get_view says native where internal was set",
         is_unable=False),
    # Open MPI, and OMPIO in it
    Flaw("datarep internal", OMPIO, "MPI_ERR_UNSUPPORTED_DATAREP"),
    Flaw("types without data", OMPIO, "division by zero"),
    Flaw("preallocation", OMPIO, "makes files longer that are long enough, writes something into "
         "others, and is refused where a file is write-only"),
    Flaw("end of a view", OMPIO, "MPI_SEEK_END counts bytes, from the beginning of the file"),
    Flaw("short read that goes on", OMPIO, "hang"),
    Flaw("short read of external32", OMPIO, "hang"),
)  # fmt: skip


def is_penstock() -> bool:
    """Whether Penstock's library is loaded into this process."""
    return LIBRARY in Path("/proc/self/maps").read_text("utf-8")


def flaws(mpi: str, unable: bool) -> frozenset[str]:
    """The names of what is excused in the library that is loaded."""
    return frozenset(
        flaw.name
        for flaw in FLAWS
        if mpi in flaw.mpis and flaw.is_unable == unable and not (flaw.is_of_io and is_penstock())
    )
