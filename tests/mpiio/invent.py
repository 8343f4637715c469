"""Random programs: the seed and the number of ranks decide all of it.

An inventor proposes steps, and keeps those that `rules.Law` finds correct. Where one is refused
because something is not finished, or not agreed upon, it mostly finishes or settles that and tries
again. What the MPI under test cannot do at all (`known.py`) is not proposed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

import model
import steps
import tree_chance
import trees
from memory import Image
from model import Handle
from rules import Erroneous
from steps import Access, Part, Step, View
from trees import basic
from trouble import Careful

NAMES = ("a", "b")
HANDLES = 2
BYTES_MAX = 1500
"""That one rank moves in one call, mostly."""
BYTES_MORE_MAX = 9000
OFFSETS_MAX = 6000
"""Bytes of data before an offset that is chosen freely."""
PENDING_MAX = 6
ATTEMPTS = 8
HINTS = (
    ("cb_buffer_size", "512"),
    ("cb_buffer_size", "65536"),
    ("cb_nodes", "1"),
    ("cb_nodes", "2"),
    ("romio_cb_write", "enable"),
    ("romio_cb_write", "disable"),
    ("romio_cb_read", "enable"),
    ("romio_cb_read", "disable"),
    ("romio_ds_write", "disable"),
    ("ind_rd_buffer_size", "256"),
    ("ind_wr_buffer_size", "256"),
    ("striping_unit", "4096"),
    ("an_unknown_hint", "of some value"),
)
FINISHES = ("wait", "test", "waitall", "testall", "waitany", "testany", "waitsome", "testsome")


class Inventor:
    """Makes one program."""

    def __init__(self, chance: Random, ranks: int, unable: frozenset[str]) -> None:
        self.chance, self.ranks = chance, ranks
        self.law = Careful(model.World(ranks), unable)
        self.steps: list[Step] = []
        self.tags = 0

    def invent(self, length: int) -> list[Step]:
        """A program of about so many steps."""
        while len(self.steps) < length:
            self.try_some(self.some_kind())
        self.finish_all()
        self.keep(steps.Settle())
        for name in self.law.world.files:
            self.keep(steps.Look(name))
        for handle in [*self.law.world.handles]:
            self.keep(steps.Close(handle))
        for name in NAMES:
            self.keep(steps.Look(name))
        return self.steps

    def some_kind(self) -> Callable[[], Step | None]:
        opened = len(self.law.world.handles)
        if not opened:
            return self.open
        kinds = [
            (50, self.access), (9, self.set_view), (6, self.seek), (3, self.seek_shared),
            (3, self.resize), (3, self.set_atomicity), (10, self.ask), (4, self.clash),
            (2, self.close), (2, lambda: steps.Barrier()), (3, lambda: steps.Settle()),
            (3, self.look), (6 if opened < HANDLES else 0, self.open),
            (15 if self.law.going else 0, self.finish),
        ]  # fmt: skip
        weights, makers = zip(*kinds, strict=True)
        return self.chance.choices(makers, weights)[0]

    def keep(self, step: Step) -> None:
        self.law.do(step)
        self.steps.append(step)

    def try_some(self, make: Callable[[], Step | None]) -> None:
        """Keeps a step of a kind, if a correct one is found."""
        for _ in range(ATTEMPTS):
            step = make()
            if step is None:
                return
            try:
                self.keep(step)
            except Erroneous:
                self.repair()
            else:
                return

    def repair(self) -> None:
        """Does what may make a step possible."""
        if self.law.going and self.chance.random() < 0.6:
            self.finish_all()
        elif not self.law.going and self.chance.random() < 0.7:
            self.keep(self.chance.choice([steps.Settle(), steps.Settle(), steps.Barrier()]))

    def finish_all(self) -> None:
        while self.law.going:
            step = self.finish()
            assert step is not None
            self.keep(step)

    # --- files ----------------------------------------------------------------------------------

    def some_handle(self) -> int:
        return self.chance.choice([*self.law.world.handles])

    def open(self) -> Step:
        chance = self.chance
        world = self.law.world
        number = next(each for each in range(HANDLES) if each not in world.handles)
        name = chance.choice(NAMES)
        exists = name in world.files
        modes = [chance.choice(["RDWR"] * 6 + ["WRONLY"] + (["RDONLY"] * 2 if exists else []))]
        if not exists or (modes[0] != "RDONLY" and chance.random() < 0.3):
            modes.append("CREATE")
        if not exists and chance.random() < 0.3:
            modes.append("EXCL")
        for mode in ("APPEND", "DELETE_ON_CLOSE", "UNIQUE_OPEN"):
            if chance.random() < 0.07:
                modes.append(mode)
        if modes[0] != "RDWR" and chance.random() < 0.25:
            modes.append("SEQUENTIAL")
        hints = dict(chance.sample(HINTS, chance.choice([0, 0, 1, 2, 3])))
        return steps.Open(number, name, tuple(modes), tuple(hints.items()))

    def close(self) -> Step:
        return steps.Close(self.some_handle())

    def look(self) -> Step:
        return steps.Look(self.chance.choice(NAMES))

    def set_atomicity(self) -> Step:
        return steps.SetAtomicity(self.some_handle(), self.chance.random() < 0.6)

    def resize(self) -> Step:
        chance, number = self.chance, self.some_handle()
        size = self.law.world.disk(number).size
        wanted = chance.choice([0, size, size // 2, size + chance.randint(1, 600)])
        return steps.Resize(number, wanted, only_grows=chance.random() < 0.4)

    def set_view(self) -> Step:
        chance, number = self.chance, self.some_handle()
        handle = self.law.world.handles[number]
        datarep = chance.choice([steps.NATIVE] * 4 + [steps.INTERNAL, steps.EXTERNAL])
        etype = tree_chance.random_etype(chance)
        while datarep == steps.EXTERNAL and etype.kind == "BYTE":
            etype = tree_chance.random_etype(chance)
        displacement = chance.choice([0, 0, chance.randint(1, 300)])
        is_current = "SEQUENTIAL" in handle.modes
        reads_only = "RDONLY" in handle.modes
        way = chance.choice(["alike", "alike", "dealt", "dealt", "random"])
        if is_current:
            way, displacement = "alike", 0
        if way == "dealt":
            types = tree_chance.dealt_filetypes(chance, etype, self.ranks)
            views = [View(displacement, etype, each, datarep) for each in types]
        elif way == "alike":
            filetype = tree_chance.random_filetype(chance, etype, reads_only)
            views = [View(displacement, etype, filetype, datarep)] * self.ranks
        else:
            views = [
                View(
                    chance.randint(0, 300), etype,
                    tree_chance.random_filetype(chance, etype, reads_only), datarep,
                )
                for _ in range(self.ranks)
            ]  # fmt: skip
        return steps.SetView(number, tuple(views), is_current)

    # --- pointers and questions -----------------------------------------------------------------

    def some_offset(self, handle: Handle, rank: int) -> int:
        """An offset in etypes: at the beginning, somewhere, or near the end of the file."""
        view = handle.views[rank]
        if not view.filetype.map.size:
            return 0
        size = self.law.world.files[handle.name].size
        end = model.etypes_before(view, size)
        furthest = OFFSETS_MAX // max(1, view.filetype.map.extent) * view.filetype.map.size
        somewhere = self.chance.randint(0, max(end, furthest // handle.width(rank), 4))
        near = max(0, end + self.chance.randint(-6, 3))
        return self.chance.choice([0, somewhere, somewhere, near, self.chance.randint(0, 20)])

    def some_move(self, handle: Handle, rank: int, now: int) -> tuple[int, str]:
        whence = self.chance.choice(["SET", "SET", "CUR", "END"])
        if whence == "SET":
            return self.some_offset(handle, rank), whence
        if whence == "CUR":
            return self.some_offset(handle, rank) - now, whence
        return self.chance.randint(-5, 5), whence

    def seek(self) -> Step:
        number = self.some_handle()
        handle = self.law.world.handles[number]
        moves = tuple(
            self.some_move(handle, rank, handle.own[rank]) if self.chance.random() < 0.7 else None
            for rank in range(self.ranks)
        )
        return steps.Seek(number, moves)

    def seek_shared(self) -> Step:
        number = self.some_handle()
        handle = self.law.world.handles[number]
        offset, whence = self.some_move(handle, 0, handle.shared)
        return steps.SeekShared(number, offset, whence)

    def ask(self) -> Step:
        chance, number = self.chance, self.some_handle()
        questions = ["size", "position", "position", "shared position", "amode", "atomicity"]
        what = chance.choice([*questions, "view", "group", "byte offset", "extent"])
        handle = self.law.world.handles[number]
        memory = tree_chance.random_memory(chance, basic("BYTE"), True)
        if not memory.map.size:
            memory = basic("BYTE")  # the extents of others are not certain
        return steps.Ask(number, what, self.some_offset(handle, 0), memory)

    # --- data -----------------------------------------------------------------------------------

    def some_part(self, handle: Handle, rank: int, is_write: bool, is_empty: bool = False) -> Part:
        chance, view = self.chance, handle.views[rank]
        memory = tree_chance.random_memory(chance, view.etype, overlaps=is_write)
        count, most = 0, BYTES_MAX if chance.random() < 0.93 else BYTES_MORE_MAX
        if not is_empty and chance.random() < 0.92:
            top = most // memory.map.size if memory.map.size else 3
            count = chance.choice([1, chance.randint(1, 4), chance.randint(1, max(1, top))])
        if not view.filetype.map.size and memory.map.size:
            count = 0
        part = Part(
            count, memory, self.some_offset(handle, rank), chance.getrandbits(31),
            chance.random() < 0.06,
        )  # fmt: skip
        if not is_write and trees.has_overlaps(Image(part).places):
            part = dataclasses.replace(part, count=min(count, 1))
        return part

    def access(self) -> Step | None:
        """An access of some kind, of which parts that meet others' are left out."""
        chance, number = self.chance, self.some_handle()
        handle = self.law.world.handles[number]
        is_write = self.some_direction(handle)
        place = chance.choice(["at", "at", "own", "own", "shared", "ordered"])
        if "SEQUENTIAL" in handle.modes:
            place = chance.choice(["shared", "ordered"])
        ways = ["blocking", "nonblocking", "all", "all", "iall", "split"]
        if place == "shared":
            ways = ["blocking", "nonblocking"]
        elif place == "ordered":
            ways = ["all", "split"]
        way = chance.choice(ways)
        if len(self.law.going) >= PENDING_MAX and way in ("nonblocking", "iall", "split"):
            return self.finish()
        self.tags += 1
        step = Access(number, place, way, is_write, (None,) * self.ranks, self.tags)
        return self.filled(step, handle)

    def some_direction(self, handle: Handle) -> bool:
        if "RDONLY" in handle.modes:
            return False
        return "WRONLY" in handle.modes or self.chance.random() < 0.55

    def filled(self, step: Access, handle: Handle) -> Access:
        """The access with parts for all ranks that may have one."""
        chance = self.chance
        empty: list[Part | None] = [
            self.some_part(handle, rank, step.is_write, True) if step.is_collective else None
            for rank in range(self.ranks)
        ]
        chosen = {rank for rank in range(self.ranks) if step.is_collective or chance.random() < 0.7}
        if step.place == "shared":
            chosen = {chance.randrange(self.ranks)}
        parts, follows = [*empty], chance.random() < 0.4
        base = self.some_offset(handle, 0)
        for rank in sorted(chosen):
            part = self.some_part(handle, rank, step.is_write)
            if follows:  # one rank's part behind the other's
                part = dataclasses.replace(part, offset=base)
            tried = dataclasses.replace(step, parts=(*parts[:rank], part, *parts[rank + 1 :]))
            try:
                self.law.check(tried)
            except Erroneous:
                continue
            parts[rank] = part
            base += part.bytes // handle.width(rank)
        return dataclasses.replace(step, parts=tuple(parts))

    def clash(self) -> Step | None:
        """Ranks that meet: writes of an atomic file, or uses of the shared pointer."""
        chance, number = self.chance, self.some_handle()
        handle = self.law.world.handles[number]
        is_write = self.some_direction(handle)
        place = "at" if handle.is_atomic and chance.random() < 0.8 else "shared"
        way = chance.choice(["blocking", "all"]) if place == "at" else "blocking"
        few = {*chance.sample(range(self.ranks), min(self.ranks, chance.randint(2, 4)))}
        base = self.some_offset(handle, 0)
        parts: list[Part | None] = []
        for rank in range(self.ranks):
            part = self.some_part(handle, rank, is_write, is_empty=rank not in few)
            offset = max(0, base + chance.randint(-4, 4))
            part = dataclasses.replace(part, offset=offset)
            parts.append(part if rank in few or way == "all" else None)
        self.tags += 1
        return Access(number, place, way, is_write, tuple(parts), self.tags, is_clash=True)

    def finish(self) -> Step | None:
        """The end of some calls that go on."""
        if not self.law.going:
            return None
        tag = self.chance.choice([*self.law.going])
        parts = self.law.going[tag]
        if parts and parts[0].is_split:
            return steps.End(parts[0].handle, tag)
        how = self.chance.choice([each for each in FINISHES if each not in self.law.unable])
        tags = [
            each
            for each, parts in self.law.going.items()
            if each == tag or (self.chance.random() < 0.6 and not any(p.is_split for p in parts))
        ]
        self.chance.shuffle(tags)
        return steps.Finish(tuple(tags), how)


def program(seed: int, ranks: int, unable: frozenset[str] = frozenset()) -> list[Step]:
    """The program of a seed for so many ranks."""
    chance = Random(f"{seed}/{ranks}")
    return Inventor(chance, ranks, unable).invent(chance.randint(6, 45))


def legal(program: list[Step], ranks: int, unable: frozenset[str]) -> list[Step]:
    """What remains of a program whose steps were left out: without those that need them."""
    law, kept = Careful(model.World(ranks), unable), []
    for step in program:
        try:
            law.do(step)
        except Erroneous:
            continue
        kept.append(step)
    ends: list[Step] = []
    for tag, parts in law.going.items():
        is_split = bool(parts) and parts[0].is_split
        ends.append(steps.End(parts[0].handle, tag) if is_split else steps.Finish((tag,), "wait"))
    for step in [*ends, steps.Settle(), *(steps.Close(each) for each in law.world.handles)]:
        law.do(step)
        kept.append(step)
    return kept
