"""MPI datatypes as values: trees of constructors, and the typemap that each one means.

A typemap is written out in full, entry by entry, as the standard defines it: a byte displacement
and a basic type each, and the two bounds. Nothing here is clever, and nothing calls MPI:
`player.py` makes real datatypes of the same trees.

Left out is what implementations may decide: the padding at the end of a type whose places are not
multiples of its alignment (`settled` gives such a type bounds of its own), and the bounds of types
without data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

BASICS = {
    "BYTE": 1,
    "CHAR": 1,
    "INT8_T": 1,
    "INT16_T": 2,
    "INT": 4,
    "INT32_T": 4,
    "FLOAT": 4,
    "INT64_T": 8,
    "DOUBLE": 8,
}
"""Basic types by MPI's names, and their bytes: as many in external32 as in memory."""


@dataclass(frozen=True)
class Tree:
    """A datatype: the constructor's name, its arguments in the order of MPI's, and what it is made
    of."""

    kind: str
    arguments: tuple = ()
    children: tuple[Tree, ...] = ()

    @property
    def child(self) -> Tree:
        return self.children[0]

    @cached_property
    def map(self) -> Typemap:
        return typemap(self)

    def __str__(self) -> str:
        words = [str(argument) for argument in self.arguments]
        return f"{self.kind}({', '.join(words + [str(child) for child in self.children])})"


@dataclass(frozen=True)
class Typemap:
    """What a datatype means. Displacements, bounds and sizes are in bytes."""

    entries: tuple[tuple[int, str], ...]
    """A displacement and a basic type, in the order of the data stream."""
    lower: int
    upper: int
    has_bounds: bool = False
    """Whether the bounds were given, so that the entries do not decide them."""
    places: Places = field(init=False, repr=False, compare=False)
    """The displacement of each byte of data, in the order of the data stream."""
    widths: Places = field(init=False, repr=False, compare=False)
    """The bytes of each basic type."""

    def __post_init__(self) -> None:
        starts = np.array([displacement for displacement, _ in self.entries], np.int64)
        widths = np.array([BASICS[name] for _, name in self.entries], np.int64)
        within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "places", np.repeat(starts, widths) + within)

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def extent(self) -> int:
        return self.upper - self.lower

    @property
    def alignment(self) -> int:
        return int(self.widths.max(initial=1))

    @property
    def true_lower(self) -> int:
        return int(self.places.min()) if self.size else 0

    @property
    def true_upper(self) -> int:
        return int(self.places.max()) + 1 if self.size else 0

    def repeated(self, count: int) -> Places:
        """The displacement of each byte of `count` copies one behind the other."""
        starts = np.arange(count, dtype=np.int64) * self.extent
        return (starts[:, None] + self.places[None, :]).reshape(-1)

    def basics(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.entries)


def basic(name: str) -> Tree:
    return Tree(name)


@lru_cache(maxsize=4096)
def typemap(tree: Tree) -> Typemap:
    """The typemap of a datatype, by the standard's definition of its constructor."""
    if tree.kind in BASICS:
        return Typemap(((0, tree.kind),), 0, BASICS[tree.kind])
    if tree.kind == "resized":
        lower, extent = tree.arguments
        return Typemap(tree.child.map.entries, lower, lower + extent, has_bounds=True)
    if tree.kind == "struct":
        lengths, displacements = tree.arguments
        runs = zip(lengths, displacements, tree.children, strict=True)
        return joined([copy for run in runs for copy in block(*run)])
    copies = [(at, tree.child) for at in offsets(tree)]
    if tree.kind in ("subarray", "darray"):
        sizes = tree.arguments[0] if tree.kind == "subarray" else tree.arguments[2]
        upper = math.prod(sizes) * tree.child.map.extent
        return Typemap(joined(copies).entries, 0, upper, has_bounds=True)
    return joined(copies)


def block(length: int, displacement: int, child: Tree) -> list[tuple[int, Tree]]:
    """Copies of a type one behind the other, each with its displacement."""
    return [(displacement + nth * child.map.extent, child) for nth in range(length)]


def joined(copies: list[tuple[int, Tree]]) -> Typemap:
    """The typemap of copies at displacements. All of them have bounds that were given, or none."""
    entries = tuple((at + place, name) for at, child in copies for place, name in child.map.entries)
    marked = {child.map.has_bounds for _, child in copies}
    assert len(marked) < 2, "the bounds of a mixture are those of its marked parts alone"
    lower = min((at + child.map.lower for at, child in copies), default=0)
    upper = max((at + child.map.upper for at, child in copies), default=0)
    return Typemap(entries, lower, upper, has_bounds=marked == {True})


def offsets(tree: Tree) -> list[int]:
    """Where the copies of the one child of a constructor are, in bytes."""
    given, extent = tree.arguments, tree.child.map.extent
    lengths: list[int]
    match tree.kind:
        case "dup":
            return [0]
        case "contiguous":
            lengths, starts = [given[0]], [0]
        case "vector":
            lengths = [given[1]] * given[0]
            starts = [nth * given[2] * extent for nth in range(given[0])]
        case "hvector":
            lengths = [given[1]] * given[0]
            starts = [nth * given[2] for nth in range(given[0])]
        case "indexed":
            lengths, starts = [*given[0]], [each * extent for each in given[1]]
        case "hindexed":
            lengths, starts = [*given[0]], [*given[1]]
        case "indexed_block":
            lengths, starts = [given[0]] * len(given[1]), [each * extent for each in given[1]]
        case "hindexed_block":
            lengths, starts = [given[0]] * len(given[1]), [*given[1]]
        case "subarray":
            sizes, subsizes, firsts, order = given
            indices = [
                range(first, first + part) for first, part in zip(firsts, subsizes, strict=True)
            ]
            return [each * extent for each in element_numbers(sizes, indices, order)]
        case "darray":
            processes, rank, sizes, kinds, arguments, mesh, order = given
            indices = darray_indices(processes, rank, sizes, kinds, arguments, mesh)
            return [each * extent for each in element_numbers(sizes, indices, order)]
        case _:
            raise AssertionError(f"no constructor {tree.kind}")
    runs = zip(lengths, starts, strict=True)
    return [start + nth * extent for length, start in runs for nth in range(length)]


def element_numbers(sizes: tuple[int, ...], indices: list, order: str) -> list[int]:
    """The numbers of the elements of an array that have these indices, in the array's order: the
    last index runs fastest in C, the first one in Fortran."""
    if order == "F":
        sizes, indices = sizes[::-1], indices[::-1]
    numbers = []
    for place in product(*indices):
        number = 0
        for size, index in zip(sizes, place, strict=True):
            number = number * size + index
        numbers.append(number)
    return numbers


def darray_indices(
    processes: int,
    rank: int,
    sizes: tuple[int, ...],
    kinds: tuple[str, ...],
    arguments: tuple[int | None, ...],
    mesh: tuple[int, ...],
) -> list[list[int]]:
    """The indices that a process has along each dimension. Processes are counted in C's order, also
    where the array is Fortran's."""
    assert math.prod(mesh) == processes
    held = []
    coordinates = np.unravel_index(rank, mesh)
    each = zip(sizes, kinds, arguments, mesh, coordinates, strict=True)
    for size, kind, argument, parts, coordinate in each:
        if kind == "NONE":
            held.append(list(range(size)))
            continue
        default = -(-size // parts) if kind == "BLOCK" else 1
        width = default if argument is None else argument
        held.append([i for i in range(size) if i // width % parts == coordinate])
    return held


def settled(tree: Tree) -> Tree:
    """The type, with bounds given to it where implementations may pad its end, some of them also
    that of a struct of types with bounds."""
    found, unit = tree.map, tree.map.alignment
    places = (found.lower, found.upper, *(place for place, _ in found.entries))
    are_aligned = all(place % unit == 0 for place in places)
    if not found.size or tree.kind == "resized" or are_aligned:
        return tree
    return Tree("resized", (found.lower, found.extent), (tree,))


def marked(tree: Tree) -> Tree:
    """The type, with bounds given to it if it has none."""
    if tree.map.has_bounds:
        return tree
    return Tree("resized", (tree.map.lower, tree.map.extent), (tree,))


def struct(lengths: list[int], displacements: list[int], children: list[Tree]) -> Tree:
    """A struct whose bounds are beyond doubt."""
    if len({child.map.has_bounds for child in children}) > 1:
        children = [marked(child) for child in children]
    return settled(Tree("struct", (tuple(lengths), tuple(displacements)), tuple(children)))


def match(memory: Tree, etype: Tree) -> bool:
    """Whether the data of a type are those of some etypes: of one of bytes, all are."""
    names, unit = memory.map.basics(), etype.map.basics()
    return etype.kind == "BYTE" or names == unit * (len(names) // len(unit))


def has_overlaps(places: Places) -> bool:
    return len(np.unique(places)) < len(places)


def may_be_filetype(tree: Tree, etype: Tree, overlaps: bool = False) -> bool:
    """Whether a type obeys the rules of filetypes: made of etypes at multiples of the etype's
    extent, displacements neither negative nor descending, also from one copy to the next; nothing
    overlaps, unless that is allowed."""
    found, unit = tree.map, etype.map
    if not found.size:
        return not found.entries
    count = len(unit.entries)
    starts = np.array([place for place, _ in found.entries[::count]], np.int64)
    firsts = np.array([place for place, _ in found.entries], np.int64)
    whole = [(int(start) + place, name) for start in starts for place, name in unit.entries]
    if whole != list(found.entries):
        return False
    if found.lower < 0 or firsts.min() < 0 or (np.diff(firsts) < 0).any():
        return False
    if (starts % unit.extent).any() or found.extent % unit.extent or found.extent <= 0:
        return False
    if found.extent < found.true_upper - found.true_lower:
        return False
    return overlaps or not has_overlaps(found.places)
