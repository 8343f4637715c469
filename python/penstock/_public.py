"""All that users import from `penstock`."""

from penstock import testing
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
from penstock._select import Selection
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
