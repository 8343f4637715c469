"""The calls of a program, as values. Every rank makes every step, with its own part of it.

A handle is a number, a file a name; datatypes are trees. Steps say all that is done, so that a
program can be printed, and a step can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trees import Tree, basic

RDONLY, WRONLY, RDWR = "RDONLY", "WRONLY", "RDWR"
CURRENT = "DISPLACEMENT_CURRENT"
NATIVE, INTERNAL, EXTERNAL = "native", "internal", "external32"


@dataclass(frozen=True)
class View:
    """How a rank sees a file. The displacement is in bytes."""

    displacement: int = 0
    etype: Tree = field(default_factory=lambda: basic("BYTE"))
    filetype: Tree = field(default_factory=lambda: basic("BYTE"))
    datarep: str = NATIVE


@dataclass(frozen=True)
class Part:
    """What one rank moves in a data access."""

    count: int
    memory: Tree
    offset: int = 0
    """In etypes, where the call takes an offset."""
    salt: int = 0
    """Decides the bytes written."""
    from_bottom: bool = False
    """Whether the buffer is MPI_BOTTOM, and the type has addresses in it."""

    @property
    def bytes(self) -> int:
        return self.count * self.memory.map.size


@dataclass(frozen=True)
class Step:
    """A call, or some that belong together."""


@dataclass(frozen=True)
class Open(Step):
    handle: int
    name: str
    modes: tuple[str, ...]
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Close(Step):
    handle: int


@dataclass(frozen=True)
class SetView(Step):
    handle: int
    views: tuple[View, ...]
    """Of each rank."""
    is_current: bool = False
    """Whether the call names MPI_DISPLACEMENT_CURRENT in the place of the displacements."""


@dataclass(frozen=True)
class Seek(Step):
    """Moves the pointers of some ranks."""

    handle: int
    moves: tuple[tuple[int, str] | None, ...]


@dataclass(frozen=True)
class SeekShared(Step):
    handle: int
    offset: int
    whence: str


@dataclass(frozen=True)
class Resize(Step):
    """MPI_File_set_size, or MPI_File_preallocate."""

    handle: int
    bytes: int
    only_grows: bool


@dataclass(frozen=True)
class SetAtomicity(Step):
    handle: int
    is_atomic: bool


@dataclass(frozen=True)
class Barrier(Step):
    """All ranks wait for each other, and nothing else."""


@dataclass(frozen=True)
class Settle(Step):
    """Sync of all handles, barrier, and sync again: what a rank has written is there for others."""


@dataclass(frozen=True)
class Access(Step):
    """A read or a write of some ranks, or of all where it is collective."""

    handle: int
    place: str
    """at: an explicit offset. own: the individual pointer. shared: the shared one. ordered: the
    shared one in the order of ranks."""
    way: str
    """blocking, nonblocking; all, and iall without blocking; split."""
    is_write: bool
    parts: tuple[Part | None, ...]
    tag: int = -1
    """Names the requests of a call that does not block, and a split one."""
    is_clash: bool = False
    """Whether parts of ranks meet, so that their order decides what comes of it."""

    @property
    def is_collective(self) -> bool:
        return self.way in ("all", "iall", "split") or self.place == "ordered"

    @property
    def is_pending(self) -> bool:
        """Whether it goes on after the call."""
        return self.way in ("nonblocking", "iall", "split")


@dataclass(frozen=True)
class Finish(Step):
    """The ranks wait for requests, each for those it has."""

    tags: tuple[int, ...]
    how: str
    """wait, test, waitall, testall, waitany, testany, waitsome, testsome"""


@dataclass(frozen=True)
class End(Step):
    """The end of a split call."""

    handle: int
    tag: int


@dataclass(frozen=True)
class Ask(Step):
    """What the functions tell that change nothing."""

    handle: int
    what: str
    """size, position, shared position, amode, atomicity, view, group, byte offset, extent"""
    offset: int = 0
    memory: Tree = field(default_factory=lambda: basic("BYTE"))


@dataclass(frozen=True)
class Look(Step):
    """Reads a file's bytes without MPI, on one rank."""

    name: str
