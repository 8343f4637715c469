"""A naive model of MPI-IO: what each call does to files, pointers and memory.

`apply` is all of it: it changes a world by one step, and says what every rank must find. Bytes are
looked at one by one; a file is an array of a fixed capacity, each byte with a mark that says
whether it has ever been written. Calls of different ranks in one step happen in the order that is
given, which matters only where a program lets them meet.

What the model does not do: it does not ask whether a program is correct (`rules.py` does), and
knows no errors (`programs/functions.c` does).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import steps
from memory import Bytes, Image
from numpy.typing import NDArray
from steps import Access, Ask, Part, Step, View
from trees import Places

SHARED = -1
CAPACITY = 1 << 17
"""The bytes that a file of a program may have at most."""


@dataclass
class Disk:
    """The bytes of a file."""

    data: Bytes = field(default_factory=lambda: np.zeros(CAPACITY, np.uint8))
    written: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(CAPACITY, np.bool_))
    """Which bytes have been written since they are in the file; the others are holes."""
    size: int = 0

    def resize(self, size: int) -> None:
        self.data[size:] = 0
        self.written[size:] = False
        self.size = size

    def copy(self) -> Disk:
        return Disk(self.data.copy(), self.written.copy(), self.size)

    def digest(self) -> tuple[int, bytes]:
        """The same of two files if they have the same bytes, and holes in the same places. Beyond
        its size a file has neither data nor marks."""
        digest = hashlib.blake2b(self.data[: self.size])
        digest.update(self.written[: self.size])
        return self.size, digest.digest()


@dataclass
class Handle:
    """An open file: what its ranks share, and what each of them has."""

    name: str
    modes: tuple[str, ...]
    views: list[View]
    own: list[int]
    """The individual pointers, in etypes."""
    shared: int
    is_atomic: bool = False
    vague: set[int] = field(default_factory=set)
    """The ranks whose individual pointers are vague: a short read has moved them, and nothing has
    set them since. SHARED for the shared pointer."""

    def copy(self) -> Handle:
        own = {"views": [*self.views], "own": [*self.own], "vague": {*self.vague}}
        return dataclasses.replace(self, **own)

    def width(self, rank: int) -> int:
        """The bytes of data of an etype."""
        return self.views[rank].etype.map.size


@dataclass(frozen=True)
class Moved:
    """What a rank must find after a data access."""

    part: Part
    is_write: bool
    bytes: int
    """How many have been moved: fewer than asked for at the end of the file."""
    raw: Bytes | None = None
    """The memory after a read."""
    is_certain: NDArray[np.bool_] | None = None
    """Of each byte of it, whether the standard says what it is: not what stands where the file has
    a hole, nor where a short read has brought nothing."""
    is_hole: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Content:
    """What a file must have in it."""

    data: Bytes
    written: NDArray[np.bool_]


Expected = list[Any]
"""What each rank must find; None where it finds nothing."""


@dataclass
class World:
    """All files and handles at one moment."""

    ranks: int
    files: dict[str, Disk] = field(default_factory=dict)
    handles: dict[int, Handle] = field(default_factory=dict)
    pending: dict[int, Expected] = field(default_factory=dict)
    """What the ends of calls that have begun will find, by their tags."""

    def copy(self) -> World:
        """Another world that is the same; they share what never changes."""
        files = {name: disk.copy() for name, disk in self.files.items()}
        handles = {number: handle.copy() for number, handle in self.handles.items()}
        return World(self.ranks, files, handles, {**self.pending})

    def disk(self, handle: int) -> Disk:
        return self.files[self.handles[handle].name]


def places(view: View, start: int, count: int) -> Places:
    """Where in the file `count` bytes of a view's data stream are, from an etype on."""
    tile = view.filetype.map
    number = np.arange(count, dtype=np.int64) + start * view.etype.map.size
    if not count:
        return number
    return view.displacement + number // tile.size * tile.extent + tile.places[number % tile.size]


def byte_offset(view: View, start: int) -> int:
    """Where in the file an etype begins."""
    return int(places(view, start, 1)[0])


def etypes_before(view: View, size: int) -> int:
    """How many etypes of a view begin before the end of a file: where MPI_SEEK_END points to."""
    tile, width = view.filetype.map, view.etype.map.size
    tiles = max(0, size - view.displacement) // tile.extent + 1
    starts = places(view, 0, tiles * tile.size)[::width]
    return int((starts < size).sum())


def apply(world: World, step: Step, order: Sequence[int] | None = None) -> Expected:
    """Changes a world by a step, and gives what each rank must find. `order` is the one in which
    the ranks' parts of an access happen: theirs, if it is not given."""
    nothing: Expected = [None] * world.ranks
    match step:
        case steps.Open():
            open_file(world, step)
        case steps.Close():
            closed = world.handles.pop(step.handle)
            if "DELETE_ON_CLOSE" in closed.modes:
                del world.files[closed.name]
        case steps.SetView():
            set_view(world, step)
        case steps.Seek():
            for rank, move in enumerate(step.moves):
                if move is not None:
                    handle = world.handles[step.handle]
                    handle.own[rank] = target(world, step.handle, rank, move, handle.own[rank])
                    handle.vague.discard(rank)
        case steps.SeekShared():
            handle = world.handles[step.handle]
            move = (step.offset, step.whence)
            handle.shared = target(world, step.handle, 0, move, handle.shared)
            handle.vague.discard(SHARED)
        case steps.Resize():
            disk = world.disk(step.handle)
            if not (step.only_grows and disk.size >= step.bytes):
                disk.resize(step.bytes)
        case steps.SetAtomicity():
            world.handles[step.handle].is_atomic = step.is_atomic
        case Access():
            found = access(world, step, order or range(world.ranks))
            if not step.is_pending:
                return found
            world.pending[step.tag] = found
        case steps.Finish():
            ended = [world.pending.pop(tag) for tag in step.tags]
            return [[found[rank] for found in ended] for rank in range(world.ranks)]
        case steps.End():
            return world.pending.pop(step.tag)
        case Ask():
            return [answer(world, step, rank) for rank in range(world.ranks)]
        case steps.Look():
            disk = world.files.get(step.name)
            if disk is not None:
                size = disk.size
                nothing[0] = Content(disk.data[:size].copy(), disk.written[:size].copy())
        case steps.Barrier() | steps.Settle():
            pass
        case _:
            raise AssertionError(f"no step {step}")
    return nothing


def open_file(world: World, step: steps.Open) -> None:
    disk = world.files.setdefault(step.name, Disk())
    start = disk.size if "APPEND" in step.modes else 0
    views, own = [View()] * world.ranks, [start] * world.ranks
    world.handles[step.handle] = Handle(step.name, step.modes, views, own, start)


def set_view(world: World, step: steps.SetView) -> None:
    handle = world.handles[step.handle]
    views = step.views
    if step.is_current:
        at = byte_offset(handle.views[0], handle.shared)
        views = tuple(View(at, view.etype, view.filetype, view.datarep) for view in views)
    handle.views, handle.vague = [*views], set()
    handle.own, handle.shared = [0] * world.ranks, 0


def target(world: World, number: int, rank: int, move: tuple[int, str], now: int) -> int:
    """Where a pointer is after a seek."""
    offset, whence = move
    if whence == "SET":
        return offset
    if whence == "CUR":
        return now + offset
    return etypes_before(world.handles[number].views[rank], world.disk(number).size) + offset


def starts(world: World, step: Access, order: Sequence[int]) -> dict[int, int]:
    """The etype at which the part of each rank begins, for parts that happen in an order."""
    handle, begun = world.handles[step.handle], {}
    shared = handle.shared
    for rank in order:
        part = step.parts[rank]
        if part is None:
            continue
        if step.place == "at":
            begun[rank] = part.offset
        elif step.place == "own":
            begun[rank] = handle.own[rank]
        else:
            begun[rank] = shared
            shared += part.bytes // handle.width(rank)
    return begun


def access(world: World, step: Access, order: Sequence[int]) -> Expected:
    """Moves the data of the ranks' parts, one after the other, and the pointers."""
    handle, disk = world.handles[step.handle], world.disk(step.handle)
    found: Expected = [None] * world.ranks
    for rank, start in starts(world, step, order).items():
        part, view = step.parts[rank], handle.views[rank]
        assert part is not None
        where = places(view, start, part.bytes)
        move = write if step.is_write else read
        found[rank] = move(disk, part, where, view.datarep)
        end = start + part.bytes // handle.width(rank)
        is_short = found[rank].bytes < part.bytes
        if step.place == "own":
            handle.own[rank] = end
            handle.vague |= {rank} if is_short else set()
        elif step.place != "at":
            handle.shared = end
            handle.vague |= {SHARED} if is_short else set()
    return found


def write(disk: Disk, part: Part, where: Places, datarep: str) -> Moved:
    image = Image(part)
    disk.data[where] = image.source()[image.in_file(datarep)]
    disk.written[where] = True
    disk.size = max(disk.size, int(where.max(initial=-1)) + 1)
    return Moved(part, True, part.bytes)


def read(disk: Disk, part: Part, where: Places, datarep: str) -> Moved:
    """What comes of a read: the bytes before the end of the file, which is met once."""
    image = Image(part)
    beyond = np.flatnonzero(where >= disk.size)
    moved = int(beyond[0]) if len(beyond) else len(where)
    raw = image.target()
    is_certain, is_hole = np.ones(len(raw), np.bool_), np.zeros(len(raw), np.bool_)
    target = image.in_file(datarep)
    raw[target[:moved]] = disk.data[where[:moved]]
    is_hole[target[:moved]] = ~disk.written[where[:moved]]
    is_certain[target[moved - torn(part, moved, datarep) :]] = False
    return Moved(part, False, moved, raw, is_certain, is_hole)


def torn(part: Part, moved: int, datarep: str) -> int:
    """The bytes of a value of which a short read has brought only some, where they are turned."""
    ends = np.cumsum(np.tile(part.memory.map.widths, part.count))
    whole = ends[ends <= moved].max(initial=0)
    return moved - int(whole) if datarep == steps.EXTERNAL else 0


def answer(world: World, step: Ask, rank: int) -> Any:
    """What a rank is told by a function that changes nothing."""
    handle = world.handles[step.handle]
    view = handle.views[rank]
    match step.what:
        case "size":
            return world.disk(step.handle).size
        case "position":
            return handle.own[rank]
        case "shared position":
            return handle.shared
        case "amode":
            return tuple(sorted(handle.modes))
        case "atomicity":
            return handle.is_atomic
        case "group":
            return world.ranks
        case "view":
            types = [(each.map.size, each.map.extent) for each in (view.etype, view.filetype)]
            return (view.displacement, *types, view.datarep)
        case "byte offset":
            return byte_offset(view, step.offset)
        case "extent":
            return step.memory.map.extent
        case _:
            raise AssertionError(f"nothing tells {step.what}")
