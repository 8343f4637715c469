"""Whether what the ranks of a program have found is what the model says.

Where ranks meet, several orders may be what happened. The judge then follows all worlds that
explain what was found so far; when none is left, the program is refused.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import model
import numpy as np
import steps
from memory import Bytes
from model import SHARED, Content, Expected, Moved, World
from steps import Access, Part, Step

NOT_ASKED = -1
"""In the place of a number that the MPI under test cannot tell without a crash."""


@dataclass
class Found:
    """What a rank has found after a data access."""

    bytes: int
    count: int | None
    """None where MPI says MPI_UNDEFINED."""
    elements: int | None
    raw: Bytes
    """The memory."""


class Wrong(AssertionError):
    """Something else was found than the standard says."""


Results = list[list[Any]]
"""What each rank has found in each step."""


def judge(program: list[Step], results: Results, ranks: int, excused: frozenset[str]) -> None:
    """Raises Wrong if no order of the calls explains the results: `results[rank][step]`."""
    worlds = [World(ranks)]
    for number, step in enumerate(program):
        found = [mine[number] for mine in results]
        left: list[World] = []
        complaints: list[str] = []
        for world in worlds:
            for order in orders(step, ranks):
                after = world.copy() if len(worlds) > 1 or is_clash(step) else world
                try:
                    compare(step, world, found, model.apply(after, step, order), excused)
                except Wrong as wrong:
                    complaints.append(str(wrong))
                else:
                    left.append(after)
        if not left:
            raise Wrong(f"step {number}: {complaints[0]}\n    {shown(step)}")
        worlds = distinct(left)


def is_clash(step: Step) -> bool:
    return isinstance(step, Access) and step.is_clash


def orders(step: Step, ranks: int) -> list[tuple[int, ...]]:
    """The orders in which ranks may have done a step."""
    if isinstance(step, Access) and step.is_clash:
        active = [rank for rank, part in enumerate(step.parts) if part is not None and part.bytes]
        others = [rank for rank in range(ranks) if rank not in active]
        return [(*order, *others) for order in itertools.permutations(active)]
    return [tuple(range(ranks))]


def distinct(worlds: list[World]) -> list[World]:
    """Worlds without those that have the same bytes as another."""
    if len(worlds) == 1:
        return worlds
    kept: dict[Any, World] = {}
    for world in worlds:
        kept.setdefault(tuple((name, disk.digest()) for name, disk in world.files.items()), world)
    return [*kept.values()]


def shown(step: Step) -> str:
    """A step as people can read it, mostly."""
    if isinstance(step, Access):
        parts = ["-" if part is None else shown_part(part) for part in step.parts]
        direction = "write" if step.is_write else "read"
        return f"handle {step.handle}: {direction} {step.place} {step.way}: " + " ".join(parts)
    if isinstance(step, steps.SetView):
        views = [
            f"[{view.displacement}, {view.etype}, {view.filetype}, {view.datarep}]"
            for view in step.views
        ]
        return f"handle {step.handle}: set_view " + " ".join(views)
    return str(step)


def shown_part(part: Part) -> str:
    bottom = ", MPI_BOTTOM" if part.from_bottom else ""
    return f"[{part.count} of {part.memory}, {part.offset}{bottom}]"


# ---------------------------------------------------------------------------------------------
# Comparisons
# ---------------------------------------------------------------------------------------------


def require(fine: bool, words: str) -> None:
    if not fine:
        raise Wrong(words)


def compare(
    step: Step, world: World, found: list[Any], expected: Expected, excused: frozenset[str]
) -> None:
    """Raises Wrong if ranks have found something else than expected."""
    for rank, (is_there, should) in enumerate(zip(found, expected, strict=True)):
        where = f"rank {rank}"
        match should:
            case Moved():
                compare_moved(where, is_there, should, excused)
            case Content():
                compare_content(where, is_there, should, excused)
            case list():
                require(len(is_there) == len(should), f"{where}: results of other requests")
                for one, other in zip(is_there, should, strict=True):
                    if other is not None:
                        compare_moved(where, one, other, excused)
                    else:
                        require(one is None, f"{where}: a request that was not begun")
            case (*start, steps.INTERNAL) if steps.INTERNAL in excused:
                require(is_there[:3] == tuple(start), f"{where}: {is_there!r}, not {should!r}")
            case _ if not is_excused(step, world, rank, excused):
                require(is_there == should, f"{where}: {is_there!r}, not {should!r}")


def is_excused(step: Step, world: World, rank: int, excused: frozenset[str]) -> bool:
    if not isinstance(step, steps.Ask):
        return False
    is_vague = {"position": rank, "shared position": SHARED}.get(step.what)
    return is_vague in world.handles[step.handle].vague and f"vague {step.what}" in excused


def is_status_excused(expected: Moved, excused: frozenset[str]) -> bool:
    if expected.bytes < expected.part.bytes:
        return "status at the end" in excused
    return not expected.bytes and "status of nothing" in excused


def compare_moved(where: str, found: Found, expected: Moved, excused: frozenset[str]) -> None:
    if not is_status_excused(expected, excused):
        require(
            found.bytes == expected.bytes, f"{where}: {found.bytes} bytes, not {expected.bytes}"
        )
        count, elements = counts(expected)
        require(found.count == count, f"{where}: count {found.count}, not {count}")
        is_right = found.elements in (elements, NOT_ASKED)
        require(is_right, f"{where}: {found.elements} elements, not {elements}")
    if expected.is_write:
        return
    assert expected.raw is not None and expected.is_certain is not None
    certain = expected.is_certain
    if "holes" in excused:
        certain = certain & ~expected.is_hole
    compare_bytes(f"{where}: memory", found.raw[certain], expected.raw[certain])


def counts(expected: Moved) -> tuple[int | None, int | None]:
    """What MPI_Get_count and MPI_Get_elements must tell of a status; None for
    MPI_UNDEFINED."""
    tree, moved = expected.part.memory.map, expected.bytes
    if not tree.size:
        return 0, 0
    count = moved // tree.size if moved % tree.size == 0 else None
    ends = np.cumsum(tree.widths)
    rest = moved % tree.size
    within = int((ends <= rest).sum())
    is_whole = rest == (int(ends[within - 1]) if within else 0)
    elements = moved // tree.size * len(ends) + within
    return count, elements if is_whole else None


def compare_content(
    where: str, found: Bytes | None, expected: Content, excused: frozenset[str]
) -> None:
    require(found is not None, f"{where}: no file")
    assert found is not None
    size = len(expected.data)
    require(len(found) == size, f"{where}: a file of {len(found)} bytes, not {size}")
    certain = expected.written if "holes" in excused else np.ones(size, np.bool_)
    right = (found == expected.data) | ~certain
    wrong = np.flatnonzero(~right)
    if len(wrong):
        places = ", ".join(map(str, wrong[:8]))
        raise Wrong(f"{where}: {len(wrong)} bytes of the file are wrong, at {places}")


def compare_bytes(where: str, found: Bytes, expected: Bytes) -> None:
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        places = ", ".join(f"{at}: {found[at]}, not {expected[at]}" for at in wrong[:4])
        raise Wrong(f"{where}: {len(wrong)} bytes of {len(found)} are wrong, at {places}")
