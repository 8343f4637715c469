"""Which programs are correct: what a program must not do that wants to know what comes of it.

A `Law` follows a program step by step, with the model beside it. `check` refuses a step that the
standard calls erroneous, and one whose result would depend on who is faster:

- Two ranks touch a byte, one of them writing, and nothing is between them: a `Settle` (sync,
  barrier, sync), or a `Barrier` where the file is open once and in atomic mode.
- The same for the end of the file, which a write moves and a read beyond it looks at.
- A call that goes on touches what another one touches.
- Ranks use a shared pointer one after the other without a barrier.

Clashes are the exception: there, ranks of an atomic file meet, or ranks use the shared pointer at
once, and what they do must be one of the orders of ranks. They may not move the end of the file.

A pointer is *vague* after a short read, until it is set: programs use none such. The standard says
where it is, but not all MPIs obey; `Ask` alone looks at it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import model
import numpy as np
import steps
import trees
from model import CAPACITY, SHARED, World
from numpy.typing import NDArray
from steps import Access, Step
from trees import Places

NOBODY, SEVERAL = -1, -2
RANKS_MAX = 100


class Erroneous(Exception):
    """A step that a program must not do."""


def require(fine: bool, words: str) -> None:
    if not fine:
        raise Erroneous(words)


def nobody() -> NDArray[np.int32]:
    return np.full(CAPACITY, NOBODY, np.int32)


@dataclass
class Marks:
    """Who has touched what of a file since all agreed on it. A rank with a handle has a number."""

    writers: NDArray[np.int32] = field(default_factory=nobody)
    readers: NDArray[np.int32] = field(default_factory=nobody)
    growers: set[int] = field(default_factory=set)
    """Who has moved the end of the file."""
    measurers: set[int] = field(default_factory=set)
    """Who has looked where it is."""
    settled: int = 0
    """Where it was when all agreed on it."""

    def are_clean(self) -> bool:
        touched = (self.writers != NOBODY).any() or (self.readers != NOBODY).any()
        return not (touched or self.growers or self.measurers)


@dataclass(frozen=True)
class Going:
    """A part of a call that goes on."""

    handle: int
    name: str
    is_write: bool
    where: Places
    is_collective: bool
    is_split: bool


@dataclass
class Law:
    """A world, and who has touched what in it."""

    world: World
    marks: dict[str, Marks] = field(default_factory=dict)
    going: dict[int, list[Going]] = field(default_factory=dict)
    """By tags."""
    touched: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Who has used the shared pointer of a handle since the last barrier."""

    ORDERED = RANKS_MAX
    """Stands in `touched` for calls in the order of ranks."""
    ASKED = RANKS_MAX + 1

    def do(self, step: Step) -> None:
        """Does a step, or raises Erroneous and does nothing."""
        self.check(step)
        before = {number: handle.name for number, handle in self.world.handles.items()}
        if isinstance(step, Access):
            self.note_access(step)
        model.apply(self.world, step)
        self.note(step, before)

    # --- what is asked before -------------------------------------------------------------------

    def check(self, step: Step) -> None:
        if isinstance(step, steps.Open):
            require(step.handle not in self.world.handles, "the handle is in use")
            self.check_open(step)
            return
        if isinstance(step, steps.Look):
            marks = self.marks.get(step.name)
            require(marks is None or marks.are_clean(), "not all agree on the file")
            return
        if isinstance(step, steps.Finish):
            require(all(tag in self.going for tag in step.tags), "no such request")
            return
        if isinstance(step, steps.Settle):
            require(not self.going, "a call goes on")
            return
        if isinstance(step, steps.Barrier):
            return
        number: int = step.handle  # type: ignore[attr-defined]
        require(number in self.world.handles, "the handle is closed")
        if isinstance(step, steps.End):
            found = self.going.get(step.tag, [])
            require(any(each.is_split and each.handle == number for each in found), "not begun")
            return
        self.check_handle(step, number)

    def check_open(self, step: steps.Open) -> None:
        exists = step.name in self.world.files
        require(exists or "CREATE" in step.modes, "no such file")
        require(not (exists and "EXCL" in step.modes), "the file is there")
        others = [each for each in self.world.handles.values() if each.name == step.name]
        alone = {"DELETE_ON_CLOSE", "UNIQUE_OPEN", "SEQUENTIAL"}
        has_lonely = any(alone & {*each.modes} for each in others) or alone & {*step.modes}
        require(not (others and has_lonely), "the file may be open once")
        if step.name in self.marks:
            require(self.marks[step.name].are_clean(), "not all agree on the file")

    def goes_on(self, number: int, split_only: bool = False) -> bool:
        mine = [part for part in self.all_going() if part.handle == number]
        return any(part.is_split or not split_only for part in mine)

    def all_going(self) -> Iterator[Going]:
        for parts in self.going.values():
            yield from parts

    def check_handle(self, step: Step, number: int) -> None:
        handle = self.world.handles[number]
        modes = {*handle.modes}
        match step:
            case Access():
                self.check_access(step)
                return
            case steps.Ask():
                self.check_question(step)
                return
            case steps.Seek():
                self.check_seek(step)
                return
        require(not self.goes_on(number), "a call goes on")
        match step:
            case steps.SeekShared():
                require(not self.touched[number], "the shared pointer is in use")
                require("SEQUENTIAL" not in modes and self.are_uniform(number), "no seek")
                self.check_move(number, 0, (step.offset, step.whence), handle.shared, SHARED)
            case steps.Close():
                others = [each for each in self.world.handles.values() if each.name == handle.name]
                is_clean = self.marks[handle.name].are_clean()
                require(len(others) == 1 or is_clean, "not all agree on the file")
                require(not self.touched[number], "the shared pointer is in use")
            case steps.SetAtomicity():
                require(self.marks[handle.name].are_clean(), "not all agree on the file")
            case steps.Resize():
                require("RDONLY" not in modes, "read-only")
                require("SEQUENTIAL" not in modes, "sequential")
                require(self.marks[handle.name].are_clean(), "not all agree on the file")
                require(0 <= step.bytes < CAPACITY, "too large")
            case steps.SetView():
                require(step.is_current == ("SEQUENTIAL" in modes), "no displacement")
                require(not self.touched[number], "the shared pointer is in use")
                is_vague = SHARED in handle.vague
                require(not (step.is_current and is_vague), "a vague pointer")

    def are_uniform(self, number: int) -> bool:
        """Whether all ranks have the same view, without which there is no shared pointer."""
        return len({*self.world.handles[number].views}) == 1

    def check_move(
        self, number: int, rank: int, move: tuple[int, str], now: int, whose: int
    ) -> None:
        offset, whence = move
        handle = self.world.handles[number]
        if whence == "CUR":
            require(whose not in handle.vague, "a vague pointer")
        if whence == "END":
            require(handle.views[rank].filetype.map.size > 0, "a view without data")
            self.check_measure(handle.name, self.number(number, rank))
        goal = model.target(self.world, number, rank, (offset, whence), now)
        require(0 <= goal < CAPACITY, "a pointer before the file, or too far")

    def check_seek(self, step: steps.Seek) -> None:
        handle = self.world.handles[step.handle]
        require("SEQUENTIAL" not in handle.modes, "sequential")
        for rank, move in enumerate(step.moves):
            if move is not None:
                self.check_move(step.handle, rank, move, handle.own[rank], rank)

    def check_question(self, step: steps.Ask) -> None:
        handle = self.world.handles[step.handle]
        if step.what in ("position", "shared position", "byte offset"):
            require("SEQUENTIAL" not in handle.modes, "sequential")
        if step.what == "size":
            for rank in range(self.world.ranks):
                self.check_measure(handle.name, self.number(step.handle, rank))
        if step.what == "shared position":
            require(self.are_uniform(step.handle), "views differ")
            require(self.touched[step.handle] <= {self.ASKED}, "the shared pointer is in use")
        if step.what == "byte offset":
            has_data = all(view.filetype.map.size for view in handle.views)
            require(has_data and 0 <= step.offset < CAPACITY, "no such etype")

    # --- data accesses --------------------------------------------------------------------------

    @staticmethod
    def number(handle: int, rank: int) -> int:
        return handle * RANKS_MAX + rank

    def check_measure(self, name: str, who: int) -> None:
        """Refuses a look at the end of the file that others are moving."""
        marks = self.marks[name]
        require(marks.growers <= {who}, "others move the end of the file")
        grows = self.goes_on_at_end(name, is_write=True)
        require(not grows, "a call that goes on moves the end of the file")

    def goes_on_at_end(self, name: str, is_write: bool) -> bool:
        """Whether a write, or a read, goes on that reaches beyond the end on which all agree."""
        settled = self.marks[name].settled
        return any(
            part.name == name
            and part.is_write == is_write
            and part.where.max(initial=-1) >= settled
            for part in self.all_going()
        )

    def check_access(self, step: Access) -> None:
        handle = self.world.handles[step.handle]
        modes = {*handle.modes}
        require(("RDONLY" if step.is_write else "WRONLY") not in modes, "the wrong mode")
        is_shared = step.place in ("shared", "ordered")
        require(is_shared or "SEQUENTIAL" not in modes, "sequential")
        if step.is_collective:
            require(all(part is not None for part in step.parts), "a rank is missing")
            require(not self.goes_on(step.handle, split_only=True), "a split call goes on")
            if step.way == "split":
                parts = self.all_going()
                others = any(part.handle == step.handle and part.is_collective for part in parts)
                require(not others, "a collective call goes on")
        if is_shared:
            self.check_shared(step)
        for rank, part in enumerate(step.parts):
            if part is None:
                continue
            view = handle.views[rank]
            require(trees.match(part.memory, view.etype), "other types than the etype's")
            require(not part.bytes or view.filetype.map.size > 0, "a view without data")
            if step.place == "own":
                require(rank not in handle.vague, "a vague pointer")
        self.check_bytes(step)

    def check_shared(self, step: Access) -> None:
        require(self.are_uniform(step.handle), "views differ")
        require(SHARED not in self.world.handles[step.handle].vague, "a vague pointer")
        users = {rank for rank, part in enumerate(step.parts) if part is not None}
        if step.place == "ordered":
            require(self.touched[step.handle] <= {self.ORDERED}, "the shared pointer is in use")
        elif step.is_clash:
            require(not self.touched[step.handle], "the shared pointer is in use")
        else:
            require(len(users) == 1, "an order by chance")
            require(self.touched[step.handle] <= users, "the shared pointer is in use")

    def parts_of(self, step: Access) -> list[tuple[int, Places]]:
        """The number of each rank, and the bytes of the file that it touches."""
        views = self.world.handles[step.handle].views
        found = []
        for rank, start in model.starts(self.world, step, range(self.world.ranks)).items():
            part = step.parts[rank]
            assert part is not None
            where = model.places(views[rank], start, part.bytes)
            require(where.max(initial=0) < CAPACITY, "beyond the capacity")
            found.append((self.number(step.handle, rank), where))
        return found

    def check_bytes(self, step: Access) -> None:
        handle = self.world.handles[step.handle]
        marks, size = self.marks[handle.name], self.world.disk(step.handle).size
        before = np.zeros(CAPACITY, np.bool_)
        for who, where in self.parts_of(step):
            self.check_others(marks, handle.name, step.is_write, who, where)
            end = int(where.max(initial=-1)) + 1
            if step.is_write:
                is_inside = end <= min(size, marks.settled)
                require(is_inside or marks.measurers <= {who}, "others look at the end")
                looks = self.goes_on_at_end(handle.name, is_write=False)
                require(is_inside or not looks, "a call that goes on looks at the end")
            elif end > marks.settled:
                self.check_measure(handle.name, who)
            if step.is_clash:
                at_ends = end > size and (step.place == "at" or not step.is_write)
                require(not at_ends, "a clash at the end of the file")
                require(handle.is_atomic or step.place == "shared", "a clash that is not atomic")
            elif step.is_write:
                require(not before[where].any(), "ranks write the same bytes")
            before[where] = True

    def check_others(
        self, marks: Marks, name: str, is_write: bool, who: int, where: Places
    ) -> None:
        """Refuses bytes that others have touched, or that a call touches which goes on."""
        writers, readers = marks.writers[where], marks.readers[where]
        require(((writers == NOBODY) | (writers == who)).all(), "bytes that others have written")
        if is_write:
            require(((readers == NOBODY) | (readers == who)).all(), "bytes that others have read")
        for part in self.all_going():
            if part.name == name and (is_write or part.is_write):
                apart = not np.isin(where, part.where).any()
                require(apart, "bytes of a call that goes on")

    # --- what is remembered after ---------------------------------------------------------------

    def note_access(self, step: Access) -> None:
        """Remembers who touches what. Before the model does it."""
        handle, disk = self.world.handles[step.handle], self.world.disk(step.handle)
        marks = self.marks[handle.name]
        going, sizes = [], disk.size
        for who, where in self.parts_of(step):
            table = marks.writers if step.is_write else marks.readers
            mine = SEVERAL if step.is_clash else who
            table[where] = np.where(np.isin(table[where], (NOBODY, mine)), mine, SEVERAL)
            end = int(where.max(initial=-1)) + 1
            if step.is_write and end > sizes:
                marks.growers.add(who)
            if not step.is_write and end > marks.settled:
                marks.measurers.add(who)
            going.append(
                Going(
                    step.handle, handle.name, step.is_write, where,
                    step.is_collective, step.way == "split",
                )
            )  # fmt: skip
        if step.is_pending:
            self.going[step.tag] = going
        if step.place == "ordered":
            self.touched[step.handle].add(self.ORDERED)
        elif step.place == "shared":
            users = {rank for rank, part in enumerate(step.parts) if part is not None}
            self.touched[step.handle] |= {SEVERAL} if step.is_clash else users

    def note(self, step: Step, before: dict[int, str]) -> None:
        """Remembers what a step has done. After the model has done it."""
        match step:
            case steps.Open():
                self.marks.setdefault(step.name, Marks(settled=self.world.disk(step.handle).size))
                self.touched[step.handle] = set()
            case steps.Close():
                self.agree(before[step.handle])
            case steps.Settle():
                for name in [*self.marks]:
                    self.agree(name)
                self.touched.clear()
            case steps.Barrier():
                self.touched.clear()
                self.note_barrier()
            case steps.Resize():
                name = before[step.handle]
                self.marks[name].growers |= {SEVERAL}
                self.marks[name].measurers |= {SEVERAL}
            case steps.Seek():
                for rank, move in enumerate(step.moves):
                    if move is not None and move[1] == "END":
                        who = self.number(step.handle, rank)
                        self.marks[before[step.handle]].measurers.add(who)
            case steps.SeekShared():
                self.touched[step.handle] = {SEVERAL}
                if step.whence == "END":
                    numbers = {self.number(step.handle, rank) for rank in range(self.world.ranks)}
                    self.marks[before[step.handle]].measurers |= numbers
            case steps.Finish():
                for tag in step.tags:
                    del self.going[tag]
            case steps.End():
                del self.going[step.tag]
            case steps.Ask() if step.what == "size":
                numbers = {self.number(step.handle, rank) for rank in range(self.world.ranks)}
                self.marks[before[step.handle]].measurers |= numbers
            case steps.Ask() if step.what == "shared position":
                self.touched[step.handle] = {self.ASKED}

    def note_barrier(self) -> None:
        """A barrier is enough for a file that is open once and in atomic mode."""
        for name in self.marks:
            handles = [each for each in self.world.handles.values() if each.name == name]
            parts = self.all_going()
            is_quiet = not any(part.name == name for part in parts)
            if len(handles) == 1 and handles[0].is_atomic and is_quiet:
                self.agree(name)

    def agree(self, name: str) -> None:
        disk = self.world.files.get(name)
        if disk is None:
            del self.marks[name]
        else:
            self.marks[name] = Marks(settled=disk.size)
