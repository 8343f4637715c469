"""A client that plays a case of `file_histories.py`, and notes what it has done and found."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from file_case import ORDERS, Case
from file_log import Record, record_bytes
from file_orders import (
    ABSENT,
    EITHER,
    HOLE,
    NUMBERS,
    Access,
    Change,
    numbers_of,
    place_of,
    stamps,
)
from file_places import places_of
from histories import NEVER
from name_orders import ROOT, NameRequest

import penstock as ps
from penstock._files import Order, Version

READY_SECONDS_MAX = 120
"""How long clients wait for the first one: more is a hang."""
NAMES = tuple(f"{ROOT}/{name}" for name in ("a", "b", "d", "d/x", "d/y", "e", "e/x", "e/d"))


@dataclasses.dataclass
class History:
    """What clients have done, and found."""

    accesses: list[Access] = dataclasses.field(default_factory=list)
    changes: list[Change] = dataclasses.field(default_factory=list)
    names: list[NameRequest] = dataclasses.field(default_factory=list)
    records: list[Record] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, parts: Sequence[History]) -> History:
        fields = [field.name for field in dataclasses.fields(cls)]
        joined = ([*itertools.chain(*(getattr(part, name) for part in parts))] for name in fields)
        return cls(*joined)

    @property
    def count(self) -> int:
        return sum(len(part) for part in vars(self).values())


@dataclasses.dataclass
class Opened:
    """An open subfile, and where its pointer is."""

    view: ps.View
    number: int
    order: Order
    version: Version
    subfile: ps.Subfile
    pointer: int = 0

    def __str__(self) -> str:
        v = self.view
        numbers = f"{v.vbs},{v.vn},{v.hbs},{v.hn}"
        return f"view {numbers}, subfile {self.number}, by {self.order}"


Target = tuple[Opened, int, int]
"""An open subfile, the offset of a request in it, and the number of bytes."""
Times = tuple[int, int]
"""When a request was made, and when it had ended."""


@dataclasses.dataclass
class UnderWay:
    """A request that has begun."""

    is_write: bool
    request: ps.Request
    begun: int
    placed: int
    """When it had its place in the order of requests for its bytes."""
    target: Target
    memory: np.ndarray
    number: int


class Player:
    """One client of a case, and what it has done."""

    def __init__(self, fs: ps.FileSystem, case: Case, me: int, clients: int) -> None:
        self.fs, self.case, self.me, self.clients = fs, case, me, clients
        self.who = f"client {me}"
        self.chance = random.Random(f"client {case.seed} {me}")
        self.history = History()
        self.writes = self.made = 0
        self.under_way: list[UnderWay] = []
        self.opened: list[Opened] = []

    def play(self) -> History:
        log, tail = self.meet()
        *_, view, order = self.case.log
        with (
            self.fs.attach("/f", "r+", mode=self.case.mode) as self.file,
            self.fs.attach("/log", "r+") as log_file,
        ):
            self.log = log_file.open(view, order=order, pointer=log)
            self.tail = log_file.open(view, order=order, pointer=tail)
            self.fs.mkdir(f"/client {self.me}")
            self.await_names("client ", self.clients)
            for step in range(self.case.steps):
                self.step()()
                is_last = step == self.case.steps - 1
                if self.case.has_removal and self.me == 0 and is_last:
                    self.change("remove", lambda: self.fs.remove("/f"))
            while self.under_way:
                self.end()
        return self.history

    def meet(self) -> tuple[ps.Pointer, ps.Pointer]:
        """The first client makes the files, and shares the pointers of the log: the name of a
        directory tells the others of them."""
        if self.me == 0:
            self.fs.mkdir(ROOT)
            self.make_file()
            cells, bsu, view, order = self.case.log
            self.fs.create("/log", cells=cells, bsu=bsu)
            with self.fs.attach("/log", "r+") as log:
                shared = [log.open(view, order=order).share() for _ in range(2)]
            self.fs.mkdir("/ready " + " ".join(f"{p.server} {p.number}" for p in shared))
        [ready] = self.await_names("ready ", 1)
        a, b, c, d = map(int, ready.rstrip("/").split(" ")[1:])
        return ps.Pointer(a, b), ps.Pointer(c, d)

    def make_file(self) -> None:
        """Makes the file that all use."""
        self.fs.create("/f", cells=self.case.cells, bsu=self.case.bsu)

    def await_names(self, start: str, count: int) -> list[str]:
        """Waits until there is a number of names that begin with some letters."""
        until = time.monotonic() + READY_SECONDS_MAX
        names: list[str] = []
        while len(names) < count:
            assert time.monotonic() < until, f"{names} are there, and not {count}"
            names = [name for name in self.fs.list("/") if name.startswith(start)]
        return names

    def step(self) -> Callable[[], None]:
        """What to do next: mostly something of what the case is about."""
        access = [self.read, self.write, self.read_later, self.write_later]
        if self.under_way:
            access += [self.end, self.end]
        ways = {
            "bytes": [*access, *access, self.read_on, self.write_on, self.hint],
            "log": [self.append, self.follow],
            "names": [self.use_name],
            "changes": access,
        }
        if self.case.has_changes and not self.case.is_reckless:
            changes = [self.resize, self.checkpoint, self.roll_back]
            ways["changes"] = [*changes, *changes, *access, self.read_all, self.read_all]
        weights = [6 if way == self.case.focus else 1 for way in ways]
        [way] = self.chance.choices([*ways], weights)
        return self.chance.choice(ways[way])

    # ---------------------------------------------------------------------------------------------
    # Reads and writes
    # ---------------------------------------------------------------------------------------------

    def target(self, is_write: bool) -> Target:
        """An open subfile, an offset and a number of bytes."""
        chance = self.chance
        if len(self.opened) < 2 or chance.random() < 0.5:
            self.opened = [*self.opened[-2:], self.open()]
        for opened in chance.sample(self.opened, len(self.opened)):
            if opened.version == "active" or not is_write:
                break
        else:
            opened = self.open(may_be_of_checkpoint=False)
        offset, count = chance.randrange(self.case.span), chance.randint(0, self.case.span)
        if chance.random() < 0.3:
            count = min(count, chance.randint(1, 20))
        return opened, offset, count

    def open(self, may_be_of_checkpoint: bool = True) -> Opened:
        view, number = self.case.view(self.chance)
        order = self.chance.choice(ORDERS)
        is_of_checkpoint = may_be_of_checkpoint and self.chance.random() < 0.25
        version: Version = "checkpoint" if is_of_checkpoint else "active"
        if self.case.is_reckless:
            is_across = self.case.seed % 2
            view = ps.View(hn=self.clients) if is_across else ps.View(vn=self.clients)
            number, version = self.me, "active"
        return Opened(
            view, number, order, version, self.file.open(view, number, order=order, version=version)
        )

    def real_places(self, target: Target) -> tuple[np.ndarray, np.ndarray]:
        """Which bytes of a request are real, and the places of those."""
        opened, offset, count = target
        how = (opened.view, opened.number, opened.order)
        cell, at = places_of((self.case.cells, self.case.bsu), how, offset, count)
        is_real = cell < self.case.cells
        return is_real, place_of(cell[is_real], at[is_real])

    def data(self, target: Target) -> tuple[int, np.ndarray]:
        """A new number, and a buffer full of its stamps."""
        self.writes += 1
        share = NUMBERS // self.clients
        assert self.writes <= share, "more writes than numbers"
        number = self.me * share + self.writes
        is_real, places = self.real_places(target)
        memory = np.full(target[2], EITHER, np.uint8)
        memory[is_real] = stamps(number, places)
        return number, memory

    def note_write(
        self, times: Times, target: Target, number: int, moved: int, placed: int = NEVER
    ) -> None:
        is_real, places = self.real_places(target)
        assert moved == is_real.sum(), f"{moved} bytes were written, of {is_real.sum()}"
        self.note(True, times, target, (places, np.full(len(places), number)), placed)

    def note_read(
        self, times: Times, target: Target, memory: np.ndarray, moved: int, placed: int = NEVER
    ) -> None:
        is_real, places = self.real_places(target)
        assert (memory[~is_real] == ABSENT).all(), "a ghost cell was read"
        numbers = numbers_of(memory[is_real], places)
        found = int((numbers != ABSENT).sum())
        assert moved == found, f"{moved} bytes were read, and {found} found"
        self.note(False, times, target, (places, numbers), placed)

    def note(
        self,
        is_write: bool,
        times: Times,
        target: Target,
        found: tuple[np.ndarray, np.ndarray],
        placed: int = NEVER,
    ) -> None:
        opened, offset, count = target
        places, numbers = found
        if not len(places):
            return  # no server was asked
        if self.case.is_reckless and not is_write:  # ends of cells are in no order
            numbers[(numbers == HOLE) | (numbers == ABSENT)] = EITHER
        self.history.accesses.append(
            Access(
                is_write,
                self.who,
                *times,
                places,
                numbers,
                opened=f"{offset}..{offset + count} of {opened}",
                is_of_checkpoint=opened.version == "checkpoint",
                placed=placed,
            )
        )

    def tried(self, call: Callable[[], Any], begun: int) -> Any:
        """What a call gives, or `None` where it has found that the file has been removed."""
        try:
            return call()
        except ps.MissingError:
            if not self.case.has_removal:
                raise
            self.note_change("removed", begun, time.monotonic_ns())
            return None

    def write(self) -> None:
        target = self.target(is_write=True)
        number, memory = self.data(target)
        opened, offset, _ = target
        begun = time.monotonic_ns()
        moved = self.tried(lambda: opened.subfile.write_at(offset, memory), begun)
        if moved is not None:
            self.note_write((begun, time.monotonic_ns()), target, number, moved)

    def read(self) -> None:
        self.read_at(*self.target(is_write=False))

    def read_at(self, opened: Opened, offset: int, count: int) -> None:
        target = (opened, offset, count)
        memory = np.full(count, ABSENT, np.uint8)
        begun = time.monotonic_ns()
        moved = self.tried(lambda: opened.subfile.read_at(offset, memory), begun)
        if moved is not None:
            self.note_read((begun, time.monotonic_ns()), target, memory, moved)

    def read_all(self) -> None:
        """Reads all cells, up to where most requests end: a history with few reads has too many
        explanations."""
        version: Version = "checkpoint" if self.chance.random() < 0.4 else "active"
        opened = Opened(ps.View(), 0, "block", version, self.file.open(version=version))
        self.read_at(opened, 0, self.case.cells * (self.case.span + self.case.bsu))

    def seek(self, target: Target) -> tuple[Target, dict[str, int]]:
        """Says in one of three ways where an access by the pointer begins, and notes its move."""
        opened, offset, count = target
        how = {"at": offset} if self.chance.random() < 0.5 else {"by": offset - opened.pointer}
        if self.chance.random() < 0.4 and opened.pointer < 2 * self.case.span:
            offset, how = opened.pointer, {}
        opened.pointer = offset + count
        return (opened, offset, count), how

    def write_on(self) -> None:
        target, how = self.seek(self.target(is_write=True))
        number, memory = self.data(target)
        begun = time.monotonic_ns()
        moved = self.tried(lambda: target[0].subfile.write(memory, **how), begun)
        if moved is not None:
            self.note_write((begun, time.monotonic_ns()), target, number, moved)

    def read_on(self) -> None:
        target, how = self.seek(self.target(is_write=False))
        opened, _, count = target
        begun = time.monotonic_ns()
        data = self.tried(lambda: opened.subfile.read(count, **how), begun)
        if data is None:
            return
        times = (begun, time.monotonic_ns())
        is_real, places = self.real_places(target)
        memory = np.full(count, ABSENT, np.uint8)
        memory[: len(data)] = np.frombuffer(data, np.uint8)
        is_last = np.arange(count) == len(data) - 1
        assert not (is_last & ~is_real).any(), "a read ends with a ghost"
        assert not memory[~is_real & (np.arange(count) < len(data))].any(), "a ghost is not zero"
        numbers = numbers_of(memory[is_real], places)
        numbers[(memory == HOLE)[is_real] & ~is_last[is_real]] = EITHER
        self.note(False, times, target, (places, numbers))

    def write_later(self) -> None:
        target = self.target(is_write=True)
        number, memory = self.data(target)
        begun = time.monotonic_ns()
        request = target[0].subfile.iwrite_at(target[1], memory)
        self.begin(UnderWay(True, request, begun, time.monotonic_ns(), target, memory, number))

    def read_later(self) -> None:
        target = self.target(is_write=False)
        memory = np.full(target[2], ABSENT, np.uint8)
        begun = time.monotonic_ns()
        request = target[0].subfile.iread_at(target[1], memory)
        self.begin(UnderWay(False, request, begun, time.monotonic_ns(), target, memory, 0))

    def begin(self, moving: UnderWay) -> None:
        self.under_way.append(moving)
        if self.case.is_reckless:  # they have no order
            self.end()

    def end(self) -> None:
        """Waits for one of the requests under way."""
        moving = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        moved = self.tried(moving.request.wait, moving.begun)
        if moved is None:
            return
        times = (moving.begun, time.monotonic_ns())
        if moving.is_write:
            self.note_write(times, moving.target, moving.number, moved, moving.placed)
        else:
            self.note_read(times, moving.target, moving.memory, moved, moving.placed)

    def read_cell(self, cell: int, count: int, version: Version) -> int:
        """Reads all of a cell: the bytes that it has."""
        view = ps.View(hn=self.case.cells)
        subfile = self.file.open(view, cell, version=version)
        target = (Opened(view, cell, "block", version, subfile), 0, count)
        memory = np.full(count, ABSENT, np.uint8)
        begun = time.monotonic_ns()
        moved = subfile.read_at(0, memory)
        self.note_read((begun, time.monotonic_ns()), target, memory, moved)
        return moved

    # ---------------------------------------------------------------------------------------------
    # Changes of the whole file, and what changes nothing
    # ---------------------------------------------------------------------------------------------

    def hint(self) -> None:
        opened, offset, count = self.target(is_write=False)
        s = opened.subfile
        calls = [lambda: s.prefetch(offset, count), lambda: s.flush(offset, count)]
        calls += [s.sync, self.file.sync, self.fs.sync]
        self.tried(self.chance.choice(calls), time.monotonic_ns())

    def note_change(self, what: str, begun: int, ended: int, nbytes: int = 0) -> None:
        self.history.changes.append(Change(what, self.who, begun, ended, nbytes))

    def change(self, what: str, call: Callable[[], None], nbytes: int = 0) -> None:
        begun = time.monotonic_ns()
        try:
            call()
        except ps.MissingError as error:
            if "no checkpoint" in str(error):
                what = "no checkpoint"
            elif self.case.has_removal:
                what = "removed"
            else:
                raise
        self.note_change(what, begun, time.monotonic_ns(), nbytes)

    def resize(self) -> None:
        nbytes = self.chance.randint(0, self.case.span)
        self.change("resize", lambda: self.fs.resize("/f", nbytes), nbytes)

    def checkpoint(self) -> None:
        self.change("checkpoint", self.file.checkpoint)

    def roll_back(self) -> None:
        self.change("rollback", self.file.rollback)

    # ---------------------------------------------------------------------------------------------
    # The log, and names
    # ---------------------------------------------------------------------------------------------

    def append(self) -> None:
        self.writes += 1
        number = self.me * (NUMBERS // self.clients) + self.writes
        data = record_bytes(number, self.case.record)
        begun = time.monotonic_ns()
        assert self.log.write(data) == len(data)
        times = (begun, time.monotonic_ns())
        self.history.records.append(Record("appended", self.who, *times, number, data))

    def follow(self) -> None:
        begun = time.monotonic_ns()
        data = self.tail.read(self.case.record)
        times = (begun, time.monotonic_ns())
        number = data[0] if data else 0
        self.history.records.append(Record("read", self.who, *times, number, data))

    def use_name(self) -> None:
        fs, chance = self.fs, self.chance
        path, new = chance.sample(NAMES, 2)
        self.made += 1
        number, mode = 100 * (self.me + 1) + self.made, 0o600 + (16 * self.me + self.made) % 64
        what = chance.choice(
            ("create", "mkdir", "remove", "rename", "rename", "chmod", "stat", "list")
        )
        if what == "list":
            path = chance.choice((ROOT, *NAMES))
        given: dict[str, Any] = {"path": path}
        given |= {"new": new} if what == "rename" else {}
        given |= {"mode": mode} if what in ("create", "mkdir", "chmod") else {}
        given |= {"number": number} if what == "create" else {}
        calls: dict[str, Callable[[], Any]] = {
            "create": lambda: fs.create(path, cells=1, bsu=number, mode=mode),
            "mkdir": lambda: fs.mkdir(path, mode),
            "remove": lambda: fs.remove(path),
            "rename": lambda: fs.rename(path, new),
            "chmod": lambda: fs.chmod(path, mode),
            "stat": lambda: described(fs.stat(path)),
            "list": lambda: fs.list(path),
        }
        begun = time.monotonic_ns()
        try:
            found, error = calls[what](), ""
        except ps.Error as raised:
            found, error = None, raised.kind
        times = (begun, time.monotonic_ns())
        self.history.names.append(
            NameRequest(what, self.who, *times, **given, found=found, error=error)
        )


def described(stat: ps.FileStat) -> tuple[bool, int, int]:
    return stat.is_directory, 0 if stat.is_directory else stat.bsu, stat.mode
