"""What the package stands on: the Rust side. Use the names of `penstock` instead."""

from os import PathLike
from typing import Any

import numpy as np

from penstock._schema import Array

BLOCK_BYTES: int
BACKGROUND_BYTES: int
__version__: str

class Error(Exception):
    """What Penstock could not do, and why."""

    kind: str
    rank: int | None
    server: int | None
    doing: str
    path: str | None
    bytes: tuple[int, int] | None
    cause: str

class SchemaError(Error): ...
class MismatchError(Error): ...
class OverlapError(Error): ...
class MissingError(Error): ...
class DamagedError(Error): ...
class ReadOnlyError(Error): ...
class FullError(Error): ...
class BusyError(Error): ...
class PeerError(Error): ...
class UnsupportedError(Error): ...
class IoError(Error): ...

class Spec:
    def __init__(
        self,
        name: str,
        shape: list[int],
        dtype: str,
        memory: tuple[Any, ...],
        disk: tuple[Any, ...],
        dims: list[str] | None,
        attributes: str,
    ) -> None: ...
    def local_shape(self, rank: int) -> list[int]: ...
    def local_slices(self, rank: int) -> list[tuple[int, int, int] | tuple[int, int, int, int]]: ...
    def check(self, clients: int) -> None: ...

class PyReport:
    """What a collective call has done."""

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
    @property
    def seconds(self) -> float:
        """Wall time on this rank."""
    @property
    def blocks(self) -> int:
        """Blocks moved by all servers."""
    @property
    def disk_bytes(self) -> int:
        """Bytes between buffers and disks, decoded, padding included."""
    @property
    def transfers(self) -> int:
        """Memgets or memputs."""
    @property
    def buffer_bytes(self) -> int:
        """Bytes of staging buffers of all servers."""
    @property
    def servers(self) -> int:
        """Number of servers."""

class PyCheckpoint:
    """A complete checkpoint."""

    @property
    def step(self) -> int:
        """The program's step."""
    @property
    def time(self) -> float | None:
        """The program's time."""
    @property
    def timesteps(self) -> int:
        """How many timesteps the group had."""
    @property
    def path(self) -> str:
        """Its directory."""

class PyGroup:
    def __init__(
        self, name: str, path: str | PathLike[str], arrays: list[Spec], attributes: str, keep: int
    ) -> None: ...

class PySeat:
    def open(self) -> PySession: ...

class PySession:
    @property
    def rank(self) -> int | None: ...
    @property
    def size(self) -> int: ...
    @property
    def servers(self) -> int: ...
    def write(
        self,
        path: str | PathLike[str],
        array: Array | Spec | str,
        local: np.ndarray | str,
        strategy: str | None,
    ) -> PyReport: ...
    def read(
        self,
        path: str | PathLike[str],
        array: Array | Spec | str,
        local: np.ndarray | str,
        strategy: str | None,
    ) -> PyReport: ...
    def begin(
        self,
        path: str | PathLike[str],
        array: Array | Spec | str,
        local: np.ndarray | str,
        is_write: bool,
        strategy: str | None,
        background: str | None,
    ) -> PyOutstanding: ...
    def explain(
        self, path: str | PathLike[str], array: Spec, is_write: bool, strategy: str | None
    ) -> str: ...
    def timestep(
        self, group: PyGroup, locals: list[np.ndarray], time: float | None
    ) -> PyReport: ...
    def checkpoint(
        self, group: PyGroup, locals: list[np.ndarray], step: int | None, time: float | None
    ) -> PyReport: ...
    def find_checkpoint(
        self, path: str | PathLike[str], step: int | None
    ) -> PyCheckpoint | None: ...
    def restart(
        self, checkpoint: PyCheckpoint, group: PyGroup, locals: list[np.ndarray]
    ) -> PyReport: ...
    def run_copy(self, argv: list[str]) -> int: ...
    def barrier(self) -> None: ...
    def close(self) -> None: ...
    def leave(self, cause: str) -> None: ...

class PyOutstanding:
    def has_ended(self, session: PySession) -> bool: ...
    def end(self, session: PySession) -> PyReport: ...

def seats(ranks: int, setup: dict[str, Any]) -> list[PySeat]: ...
def join_mpi(
    mpi: tuple[str, int, int, int, bool],
    transport: str,
    setup: dict[str, Any],
    wrong: str | None,
) -> PySession: ...
def open_schema(path: str | PathLike[str], name: str | None) -> dict[str, Any]: ...
def run_command(argv: list[str], python: str) -> int:
    """Runs the command `penstock`; `argv[0]` is its name. The exit code."""
