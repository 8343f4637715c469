"""The Rust side of the package. Programs use the names of `penstock` instead.

The types whose names begin with an underscore are there for type checkers only: dictionaries and
tuples that the two sides hand to each other.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict, final

import numpy as np
import numpy.typing as npt

from penstock._errors import Error

__all__ = [
    "BACKGROUND_BYTES",
    "BLOCK_BYTES",
    "CACHE_BYTES",
    "COPY_MEMORY_BYTES",
    "List",
    "PyCheckpoint",
    "PyFile",
    "PyFileSystem",
    "PyGroup",
    "PyMoving",
    "PyOpenArray",
    "PyOutstanding",
    "PySeat",
    "PySession",
    "PyView",
    "Spec",
    "__version__",
    "copy",
    "create_volume",
    "describe",
    "end_trace",
    "install_tree",
    "join_mpi",
    "join_volume",
    "make_group",
    "open_schema",
    "open_volume",
    "put_group",
    "remove_tree",
    "repair",
    "seats",
    "verify",
]

BLOCK_BYTES: int
BACKGROUND_BYTES: int
CACHE_BYTES: int
COPY_MEMORY_BYTES: int
__version__: str

_Path: TypeAlias = str | PathLike[str]
_Locals: TypeAlias = list[np.ndarray]
_Report: TypeAlias = tuple[int, float, int, int, int, int, int]
_Listener: TypeAlias = Callable[[int, int], object] | None

_HaloPairs: TypeAlias = list[tuple[int, int]]
_Boxes: TypeAlias = list[tuple[list[int], list[int]]]
_ListArgument: TypeAlias = tuple[List, List | None]
_Part: TypeAlias = tuple[Sequence[int], Sequence[int]] | _ListArgument
_Memory: TypeAlias = (
    tuple[str, list[int], _HaloPairs] | tuple[_Boxes, _HaloPairs, bool] | tuple[_ListArgument, bool]
)
_Disk: TypeAlias = (
    tuple[Literal["natural"]]
    | tuple[Literal["raw", "npy"]]
    | tuple[Literal["chunks"], list[int | list[int]], list[int] | None, str]
    | tuple[Literal["shares"], list[int] | None, str]
    | tuple[Literal["parts"], str, list[int]]
    | tuple[Literal["hdf5"], str, list[int] | None, str, bool]
)
_Share: TypeAlias = list[tuple[int, int, int] | tuple[int, int, int, int]]

class _SessionArgument(TypedDict):
    servers: int | None
    standing: tuple[str, str | None] | None
    dedicated: bool
    sync: bool
    block_bytes: int
    background_bytes: int
    cache_bytes: int
    direct: bool | None
    strategy: str | None
    buffers: tuple[int, int] | None
    faults: str | None

class _CoordinateArgument(TypedDict):
    name: str
    dims: list[str]
    shape: list[int]
    dtype: str
    bytes: bytes
    strings: list[str]
    attributes: str

class _GroupArgument(TypedDict):
    name: str
    path: str
    coordinates: list[_CoordinateArgument]
    attributes: str
    time_attributes: str
    time_chunk: int | None
    keep: int
    bounds: list[str]

class _CopyArgument(TypedDict):
    arrays: list[str]
    name: str | None
    raw: tuple[list[int], str] | None
    row_major: Literal["raw", "npy"] | None
    chunks: str | None
    subchunks: str | None
    codec: str | None
    filters: str | None
    memory_bytes: int
    drop_attributes: bool
    overwrite: bool
    skip_unsupported: bool

class _Copied(TypedDict):
    bytes: int
    seconds: float
    read_bytes: int
    slabs: int
    slabs_found: int
    arrays: list[str]
    as_they_are: list[str]
    skipped: list[str]

class _Verified(TypedDict):
    timesteps: int
    checkpoints: int
    arrays: int
    chunks: int
    compared: int
    absent: int
    bytes: int
    unread: list[tuple[str, Error]]
    damages: list[Error]
    verdict: str

class _Described(TypedDict):
    name: str
    shape: list[int]
    dtype: str
    dims: list[str] | None
    fill: bytes
    attributes: str
    disk: _Disk

@final
class Spec:
    def __new__(
        cls,
        name: str,
        shape: list[int],
        dtype: str,
        memory: _Memory | None,
        disk: _Disk,
        dims: list[str] | None,
        attributes: str,
        fill: bytes | None,
    ) -> Spec: ...
    def local_shapes(self, rank: int) -> list[list[int]]: ...
    def local_slices(self, rank: int) -> list[_Share]: ...
    def thinned(self, every: list[int], thinned: Spec, rank: int, clients: int) -> Spec: ...
    def check(self, clients: int) -> None: ...

@final
class List:
    @staticmethod
    def runs(offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]) -> List: ...
    @staticmethod
    def strided(start: int, length: int, loops: Sequence[tuple[int, int]]) -> List: ...
    def extent(self) -> int: ...
    def __len__(self) -> int: ...

@final
class PyCheckpoint:
    @property
    def step(self) -> int: ...
    @property
    def time(self) -> float | None: ...
    @property
    def timesteps(self) -> int: ...
    @property
    def attributes(self) -> str: ...
    @property
    def shapes(self) -> list[tuple[str, list[int]]]: ...

@final
class PyGroup:
    def __new__(cls, arrays: list[Spec], described: _GroupArgument) -> PyGroup: ...

@final
class PySeat:
    def open(self) -> PySession: ...
    def interrupt(self) -> None: ...

@final
class PySession:
    @property
    def rank(self) -> int | None: ...
    @property
    def size(self) -> int: ...
    @property
    def servers(self) -> int: ...
    def refuse(self, kind: str, doing: str, cause: str) -> Error: ...
    def write(self, path: _Path, array: Spec, locals: _Locals, strategy: str | None) -> _Report: ...
    def read(self, path: _Path, array: Spec, locals: _Locals, strategy: str | None) -> _Report: ...
    def select(
        self,
        path: _Path,
        array: Spec,
        condition: str,
        fields: list[str] | None,
        is_balanced: bool,
        by: tuple[str, list[float] | None] | None,
    ) -> tuple[np.ndarray, np.ndarray, str, _Report]: ...
    def sampled_splitters(
        self, path: _Path, array: Spec, condition: str, expression: str
    ) -> list[float]: ...
    def reduce(
        self,
        path: _Path,
        array: Spec,
        how: str,
        bins: list[float],
        region: tuple[list[int], list[int]],
        kept: list[int],
        field: str | None,
    ) -> tuple[np.ndarray, list[int], str, _Report]: ...
    def begin(
        self,
        path: _Path,
        array: Spec,
        locals: _Locals,
        is_write: bool,
        strategy: str | None,
        background: str | None,
    ) -> PyOutstanding: ...
    def explain(self, path: _Path, array: Spec, is_write: bool, strategy: str | None) -> str: ...
    def describe(self, path: _Path, name: str | None) -> _Described: ...
    def timestep(self, group: PyGroup, locals: list[_Locals], time: float | None) -> _Report: ...
    def checkpoint(
        self,
        group: PyGroup,
        locals: list[_Locals],
        step: int | None,
        time: float | None,
        attributes: str,
    ) -> _Report: ...
    def begin_timestep(
        self, group: PyGroup, locals: list[_Locals], time: float | None, background: str | None
    ) -> PyOutstanding: ...
    def begin_checkpoint(
        self,
        group: PyGroup,
        locals: list[_Locals],
        step: int | None,
        time: float | None,
        attributes: str,
        background: str | None,
    ) -> PyOutstanding: ...
    def find_checkpoint(self, path: _Path, step: int | None) -> PyCheckpoint | None: ...
    def restart(
        self, checkpoint: PyCheckpoint, group: PyGroup, locals: list[_Locals]
    ) -> _Report: ...
    def copy(
        self, source: _Path, target: _Path, argument: _CopyArgument, listener: _Listener
    ) -> _Copied: ...
    def open_array(self, path: _Path, name: str | None, is_writable: bool) -> PyOpenArray: ...
    def move_part(
        self,
        array: PyOpenArray,
        is_write: bool,
        part: _Part,
        local: np.ndarray,
    ) -> None: ...
    def explain_part(self, array: PyOpenArray, is_write: bool, part: _Part) -> str: ...
    def move_together(
        self, open: PyOpenArray, is_write: bool, array: Spec, locals: _Locals
    ) -> _Report: ...
    def flush_array(self, array: PyOpenArray) -> None: ...
    def close_array(self, array: PyOpenArray) -> None: ...
    def commit(self, path: str) -> None: ...
    def barrier(self) -> None: ...
    def close(self) -> None: ...
    def leave(self, cause: str) -> None: ...

@final
class PyOpenArray:
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...

@final
class PyOutstanding:
    def has_ended(self, session: PySession) -> bool: ...
    def end(self, session: PySession) -> _Report: ...
    def abandon(self, session: PySession) -> None: ...

def seats(ranks: int, options: _SessionArgument) -> list[PySeat]: ...
def join_mpi(
    mpi: tuple[str, int, int, int, bool],
    transport: str,
    options: _SessionArgument | None,
    wrong: tuple[str, str] | None,
) -> PySession: ...
def open_schema(path: _Path, name: str | None) -> _Described: ...
def describe(path: _Path) -> str: ...
def verify(path: _Path, listener: _Listener) -> _Verified: ...
def repair(path: _Path) -> list[str]: ...
def make_group(url: _Path, attributes: str) -> None: ...
def put_group(url: _Path, attributes: str, only: list[str] | None) -> None: ...
def install_tree(source: _Path, target: _Path, replaces: bool) -> None: ...
def remove_tree(url: _Path) -> None: ...
def copy(
    source: _Path,
    target: _Path,
    argument: _CopyArgument,
    ranks: int,
    sync: bool,
    listener: _Listener,
) -> _Copied: ...
def end_trace() -> None: ...

_Attributes: TypeAlias = tuple[
    int,
    Literal["file", "directory", "symlink"],
    str,
    int,
    int,
    int,
    tuple[int, int, int],
    tuple[int, int, int],
    int,
]

def create_volume(
    template: str, servers: int, block_bytes: int, capacity: int | None, disks: Sequence[str]
) -> None: ...
def open_volume(
    template: str, keys: str | None, servers: int | None, cache_bytes: int, direct: bool
) -> PyFileSystem: ...
def join_volume(
    mpi: tuple[str, int, int, int, bool],
    template: str,
    keys: str | None,
    servers: int | None,
    dedicated: bool,
    options: tuple[int, bool],
    wrong: tuple[str, str] | None,
) -> PyFileSystem | None: ...

@final
class PyFileSystem:
    @property
    def rank(self) -> int | None: ...
    @property
    def clients(self) -> int: ...
    @property
    def servers(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def make_directory(self, path: str, mode: int) -> None: ...
    def create(
        self, path: str, cells: int, bsu_bytes: int, base: int | None, mode: int
    ) -> None: ...
    def stat(
        self, path: str
    ) -> tuple[_Attributes, list[tuple[int, int]], tuple[int, int, str | None]]: ...
    def symlink(self, target: str, path: str) -> None: ...
    def status(self, path: str) -> list[tuple[int, bool, bool, bool]]: ...
    def list(self, path: str) -> list[tuple[str, bool]]: ...
    def remove(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def protect(
        self, path: str, mode: int | None, owner: int | None, group: int | None
    ) -> None: ...
    def checkpoint(self, path: str) -> None: ...
    def roll_back(self, path: str) -> None: ...
    def resize(self, path: str, bytes: int) -> None: ...
    def sync(self) -> None: ...
    def space(self, user: int | None) -> tuple[int, int, int, int | None]: ...
    def rebalance(
        self, servers: Sequence[int] | None
    ) -> tuple[int, int, Sequence[tuple[str, BaseException]]]: ...
    def limit(self, user: int, bytes: int | None) -> None: ...
    def attach(self, path: str, access: str, mode: str, is_collective: bool) -> PyFile: ...
    def import_file(
        self,
        local: str,
        path: str,
        shown: tuple[tuple[int, int, int, int], int, str, str, int, bool],
        structure: tuple[int | None, int | None, int | None, int],
    ) -> tuple[int, int]: ...
    def export_file(
        self,
        path: str,
        local: str,
        shown: tuple[tuple[int, int, int, int], int, str, str, int, bool],
        replaces: bool,
    ) -> tuple[int, int]: ...
    def leave(self, cause: str) -> None: ...
    def close(self) -> None: ...

@final
class PyFile:
    def attributes(self) -> _Attributes: ...
    def open(
        self,
        view: tuple[int, int, int, int],
        subfile: int,
        order: str,
        version: str,
        pointer: tuple[int, int] | None,
    ) -> PyView: ...
    def move_all(
        self,
        is_write: bool,
        view: PyView | None,
        offset: int,
        array: np.ndarray | None,
        wrong: tuple[str, str] | None,
    ) -> int: ...
    def sync(self) -> None: ...
    def detach(self) -> None: ...

@final
class PyView:
    def advance(self, at: int | None, by: int | None, bytes: int) -> int: ...
    def share(self) -> tuple[int, int]: ...
    def read(self, offset: int, array: np.ndarray) -> tuple[int, int]: ...
    def write(self, offset: int, array: np.ndarray) -> tuple[int, int]: ...
    def begin_read(self, offset: int, array: np.ndarray) -> PyMoving: ...
    def begin_write(self, offset: int, array: np.ndarray) -> PyMoving: ...
    def explain(self, is_write: bool, offset: int, bytes: int) -> str: ...
    def prefetch(self, offset: int, bytes: int) -> None: ...
    def flush(self, offset: int, bytes: int) -> None: ...
    def sync(self) -> None: ...

@final
class PyMoving:
    def has_ended(self) -> bool: ...
    def end(self) -> int: ...
