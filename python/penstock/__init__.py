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

import atexit

from penstock import testing
from penstock._core import __version__, end_trace
from penstock._errors import (
    BusyError,
    DamagedError,
    Error,
    ExistsError,
    FullError,
    IoError,
    MismatchError,
    MissingError,
    OutOfBoundsError,
    OverlapError,
    PeerError,
    ReadOnlyError,
    SchemaError,
    UnsupportedError,
)
from penstock._files import (
    File,
    FileStat,
    FileSystem,
    Pointer,
    Rebalanced,
    Request,
    Subfile,
    Usage,
    View,
)
from penstock._group import Group, State
from penstock._icechunk import Icechunk
from penstock._lists import Runs, Strided
from penstock._open import OpenArray
from penstock._options import SessionOptions
from penstock._rechunk import rechunk
from penstock._report import Report
from penstock._run import run
from penstock._schema import HDF5, Array, Boxes, Chunks, Distribution, NetCDF, RowMajor
from penstock._session import Session
from penstock._split import Split
from penstock._stores import (
    CopyReport,
    Node,
    Verified,
    copy,
    info,
    ls,
    repair,
    tree,
    verify,
)

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

# They are known by the names that users have for them.
for _name in __all__:
    _public = globals()[_name]
    if hasattr(_public, "__module__"):
        _public.__module__ = "penstock"
del _name, _public

atexit.register(end_trace)
del atexit, end_trace
