"""What an MPI cannot do without a crash, a hang or lost data, and which steps of programs need it.

`needs` names what a step needs beyond the usual. `known.py` says which MPI is unable to do which of
it, and why; a `Careful` law refuses those steps. Penstock's library is excused from nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import model
import numpy as np
import steps
from memory import Image
from model import World
from rules import Erroneous, Law
from steps import Access, Part, Step
from trees import Tree


class Careful(Law):
    """A law that also refuses what the MPI under test is unable to do."""

    def __init__(self, world: World, unable: frozenset[str]) -> None:
        super().__init__(world)
        self.unable = unable

    def check(self, step: Step) -> None:
        super().check(step)
        for need in needs(self, step):
            if need in self.unable:
                raise Erroneous(need)


def needs(law: Law, step: Step) -> Iterator[str]:
    """The names of what a correct step needs that some MPI may not have."""
    if isinstance(step, Access):
        yield from needs_of_access(law, step)
        for rank, part in enumerate(step.parts):
            if part is not None:
                yield from needs_of_part(law, step, rank, part)
    touches_own = isinstance(step, steps.Seek) or (
        isinstance(step, Access) and step.place == "own"
    ) or (isinstance(step, steps.Ask) and step.what == "position")  # fmt: skip
    if touches_own:
        number: int = step.handle  # type: ignore[attr-defined]
        going = (part for parts in law.going.values() for part in parts)
        if any(part.handle == number and part.is_collective for part in going):
            yield "pointer during iall"
    uses_shared = isinstance(step, steps.SeekShared) or (
        isinstance(step, Access) and step.place in ("shared", "ordered")
    ) or (isinstance(step, steps.Ask) and step.what == "shared position")  # fmt: skip
    if uses_shared:
        names = [handle.name for handle in law.world.handles.values()]
        if names.count(law.world.handles[step.handle].name) > 1:  # type: ignore[attr-defined]
            yield "shared pointers of two handles"
    if isinstance(step, steps.Resize):
        yield "preallocation" if step.only_grows else "set_size"
    if isinstance(step, (steps.Seek, steps.SeekShared)):
        yield from needs_of_seek(law, step)
    if isinstance(step, steps.Finish):
        yield step.how
    if isinstance(step, steps.SetView):
        yield from {f"datarep {view.datarep}" for view in step.views}


def needs_of_seek(law: Law, step: steps.Seek | steps.SeekShared) -> Iterator[str]:
    views, size = law.world.handles[step.handle].views, law.world.disk(step.handle).size
    is_shared = isinstance(step, steps.SeekShared)
    moves = [(step.offset, step.whence)] if is_shared else step.moves
    for move, view in zip(moves, views, strict=False):
        if move is not None and move[1] == "END":
            if view.displacement > size:
                yield "end before the view"
            if view != steps.View():
                yield "end of a view"


def needs_of_access(law: Law, step: Access) -> Iterator[str]:
    yield f"way {step.way}"
    if step.is_clash:
        yield f"clash {step.place} {step.way}"


def needs_of_part(law: Law, step: Access, rank: int, part: Part) -> Iterator[str]:
    handle = law.world.handles[step.handle]
    view = handle.views[rank]
    places = Image(part).places
    is_external = view.datarep == steps.EXTERNAL
    if len(places) and places[0] != 0 and (np.diff(places) == 1).all():
        yield "shifted memory"
    if is_external and (part.from_bottom or has_kind(part.memory, "struct")):
        yield "external32 of structs"
    if is_external and len(places) and (np.diff(places) != 1).any():
        yield "external32 of memory with gaps"
    if not part.memory.map.size or (part.from_bottom and not part.count):
        yield "types without data"
    if not part.memory.map.size and part.memory.map.extent:
        yield "bounds without data"
    if is_external and not part.memory.map.size:
        yield "external32 of nothing"
    if is_external and step.place == "ordered":
        yield "external32 in order"
    if is_external and step.way in ("nonblocking", "iall"):
        yield "external32 that goes on"
    if not step.is_write:
        start = model.starts(law.world, step, range(law.world.ranks))[rank]
        where = model.places(view, start, part.bytes)
        if where.max(initial=-1) >= law.world.disk(step.handle).size:
            yield from short_read(step, is_external)


def short_read(step: Access, is_external: bool) -> Iterator[str]:
    """A read beyond the end of the file."""
    if step.is_pending:
        yield "short read that goes on"
    if is_external and step.way == "blocking":
        yield "short read of external32"


def has_kind(tree: Tree, *kinds: str) -> bool:
    """Whether constructors of these kinds are in a type."""
    return tree.kind in kinds or any(has_kind(child, *kinds) for child in tree.children)
