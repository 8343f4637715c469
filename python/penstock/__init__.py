"""Penstock: collective I/O for distributed arrays.

Many processes hold the pieces of one big array; disks are to hold it in another arrangement. The
processes make one collective call; the servers that own the disks work out who holds what, decide
the order, and pull the pieces out of the processes' memories, or push them in.

    import numpy as np, penstock as ps

    with ps.Session() as s:                       # or ps.Session(MPI.COMM_WORLD)
        u = ps.Array("u", shape=(64, 64), dtype="f8",
                     memory=ps.Distribution("BLOCK,*", mesh=(1,)),
                     disk=ps.Chunks((16, 16), codec="zstd:3"))
        local = np.zeros(u.local_shape(s.rank))
        s.write("run.zarr", u, local)
        back = s.read("run.zarr", u)

Every error is an `Error`, of a subclass that says what sort of thing went wrong, and is the same on
all ranks of the call.
"""

# ruff: noqa: F405 - the names come from `_public`

import atexit
from typing import TYPE_CHECKING

from penstock._core import __version__, end_trace

if TYPE_CHECKING:
    from penstock._public import *  # noqa: F403
else:

    def __getattr__(name):
        """Load all public names when the first is wanted: the command `penstock` needs none."""
        if name not in __all__:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        from penstock import _public

        globals().update({public: getattr(_public, public) for public in _public.__all__})
        return globals()[name]


__all__ = [
    "HDF5",
    "Array",
    "Boxes",
    "BusyError",
    "Chunks",
    "CopyReport",
    "DamagedError",
    "Distribution",
    "Error",
    "ExistsError",
    "File",
    "FileStat",
    "FileSystem",
    "FullError",
    "Group",
    "Icechunk",
    "IoError",
    "MismatchError",
    "MissingError",
    "NetCDF",
    "Node",
    "OpenArray",
    "OutOfBoundsError",
    "OverlapError",
    "PeerError",
    "Pointer",
    "ReadOnlyError",
    "Rebalanced",
    "Report",
    "Request",
    "RowMajor",
    "Runs",
    "SchemaError",
    "Selection",
    "Session",
    "SessionOptions",
    "Split",
    "State",
    "Strided",
    "Subfile",
    "UnsupportedError",
    "Usage",
    "Verified",
    "View",
    "__version__",
    "copy",
    "info",
    "ls",
    "rechunk",
    "repair",
    "run",
    "testing",
    "tree",
    "verify",
]


def __dir__() -> list[str]:
    return __all__


atexit.register(end_trace)
del TYPE_CHECKING, atexit, end_trace
