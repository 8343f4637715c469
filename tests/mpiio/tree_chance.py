"""Random datatypes: etypes, filetypes that obey the rules of filetypes, and types of memory whose
data match an etype."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import trees
from trees import BASICS, Tree, basic

CONSTRUCTORS = (
    "contiguous", "vector", "hvector", "indexed", "hindexed", "indexed_block", "hindexed_block",
    "struct", "subarray", "darray", "resized", "dup",
)  # fmt: skip
ENTRIES_MAX = 150
EXTENT_MAX = 4000
"""Of one type: a program has many of them, and the model looks at every byte."""
ATTEMPTS = 40


def random_etype(chance: Random) -> Tree:
    """A small type whose data begin at displacement 0, mostly a basic one."""
    first = basic(chance.choice([*BASICS]))
    kind = chance.choice(["basic"] * 5 + ["byte"] * 2 + ["pair", "row", "gap"])
    if kind == "byte":
        return basic("BYTE")
    if kind == "pair":
        second = basic(chance.choice([*BASICS]))
        width = BASICS[first.kind]
        start = width + chance.choice([0, 0, -width % BASICS[second.kind], 5])
        return trees.struct([1, 1], [0, start], [first, second])
    if kind == "row":
        return Tree("contiguous", (chance.randint(1, 3),), (first,))
    if kind == "gap":
        extent = BASICS[first.kind] + chance.choice([0, 1, 3, 8])
        return Tree("resized", (0, extent), (first,))
    return first


# ---------------------------------------------------------------------------------------------
# Filetypes
# ---------------------------------------------------------------------------------------------


def random_filetype(chance: Random, etype: Tree, overlaps: bool = False) -> Tree:
    """A filetype with some data in it; `overlaps` allows overlapping ones, which are to be read."""
    for _ in range(ATTEMPTS):
        tree = etype
        for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3])):
            tree = trees.settled(filetype_over(chance, tree, etype, overlaps))
        if is_small(tree) and tree.map.size and trees.may_be_filetype(tree, etype, overlaps):
            return tree
    return etype


def filetype_over(chance: Random, child: Tree, etype: Tree, overlaps: bool) -> Tree:
    """One constructor around a filetype. The result may break the rules."""
    unit, extent = etype.map.extent, child.map.extent
    kind = chance.choice(CONSTRUCTORS)
    count, length = chance.randint(1, 4), chance.randint(1, 3)
    gaps = [chance.randint(-1 if overlaps else 0, 3) for _ in range(count)]
    lengths = [chance.choice([0, 1, 1, 2, 3]) for _ in range(count)]
    if kind in ("indexed_block", "hindexed_block"):
        lengths = [length] * count
    starts, at = [], 0
    for gap, run in zip(gaps, lengths, strict=True):
        starts.append(max(at + gap, 0))
        at = starts[-1] + run
    in_bytes = tuple(start * max(extent, unit) for start in starts)
    match kind:
        case "vector":
            return Tree("vector", (count, length, length + gaps[0]), (child,))
        case "hvector":
            stride = length * extent + max(gaps[0], 0) * unit
            return Tree("hvector", (count, length, stride), (child,))
        case "struct":
            has_data = child.map.size > 0
            others = [
                child if has_data and chance.random() < 0.5 else trees.settled(etype)
                for _ in lengths
            ]
            width = max(extent, unit)
            return trees.struct(lengths, [start * width for start in starts], others)
        case "resized":
            upper = -(-child.map.upper // unit) + chance.randint(0, 3)
            return Tree("resized", (0, upper * unit), (child,))
        case _:
            blocks = Blocks(count, length, tuple(lengths), tuple(starts), in_bytes)
            return array_or_blocks(chance, kind, child, blocks)


@dataclass(frozen=True)
class Blocks:
    """Arguments of constructors: how many blocks, and where they lie."""

    count: int
    length: int
    """Of each block, where all are as long."""
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    in_bytes: tuple[int, ...]


def array_or_blocks(chance: Random, kind: str, child: Tree, blocks: Blocks) -> Tree:
    """One of the constructors whose arguments mean the same in memory and in a file."""
    match kind:
        case "dup":
            return Tree("dup", (), (child,))
        case "contiguous":
            return Tree("contiguous", (blocks.count,), (child,))
        case "indexed":
            return Tree("indexed", (blocks.lengths, blocks.starts), (child,))
        case "hindexed":
            return Tree("hindexed", (blocks.lengths, blocks.in_bytes), (child,))
        case "indexed_block":
            return Tree("indexed_block", (blocks.length, blocks.starts), (child,))
        case "hindexed_block":
            return Tree("hindexed_block", (blocks.length, blocks.in_bytes), (child,))
        case "subarray":
            return random_subarray(chance, child)
        case _:
            return random_darray(chance, child, chance.randint(1, 6))


def random_subarray(chance: Random, child: Tree) -> Tree:
    sizes = random_shape(chance)
    parts = tuple(chance.randint(1, size) for size in sizes)
    firsts = tuple(chance.randint(0, size - part) for size, part in zip(sizes, parts, strict=True))
    return Tree("subarray", (sizes, parts, firsts, chance.choice("CF")), (child,))


def random_shape(chance: Random) -> tuple[int, ...]:
    sizes = [chance.randint(1, 5) for _ in range(chance.randint(1, 4))]
    while math.prod(sizes) > ENTRIES_MAX // 2:
        sizes[sizes.index(max(sizes))] -= 1
    return tuple(sizes)


def random_darray(chance: Random, child: Tree, processes: int, rank: int | None = None) -> Tree:
    """What one process of a grid has of an array."""
    if rank is None:
        rank = chance.randrange(processes)
    sizes = random_shape(chance)
    mesh = random_mesh(chance, processes, len(sizes))
    kinds, widths = [], []
    for size, parts in zip(sizes, mesh, strict=True):
        kinds.append(chance.choice(["BLOCK", "CYCLIC"] if parts > 1 else ["BLOCK", "NONE"]))
        least = -(-size // parts) if kinds[-1] == "BLOCK" else 1
        is_default = kinds[-1] == "NONE" or chance.random() < 0.5
        widths.append(None if is_default else least + chance.randint(0, 1))
    arguments = (processes, rank, sizes, tuple(kinds), tuple(widths), mesh, chance.choice("CF"))
    return Tree("darray", arguments, (child,))


def random_mesh(chance: Random, processes: int, dims: int) -> tuple[int, ...]:
    """Numbers whose product is the number of processes."""
    mesh, left = [1] * dims, processes
    for divisor in (2, 3, 5, 7):
        while left % divisor == 0:
            mesh[chance.randrange(dims)] *= divisor
            left //= divisor
    assert left == 1, "meshes are of up to ten processes"
    return tuple(mesh)


def dealt_filetypes(chance: Random, etype: Tree, ranks: int) -> list[Tree]:
    """A filetype for each rank, of which no two share a byte: an array dealt out, or etypes dealt
    out at random. Some may be without data."""
    unit = trees.settled(etype)
    if chance.random() < 0.4:
        first = random_darray(chance, unit, ranks, 0)
        arguments = [(ranks, rank, *first.arguments[2:]) for rank in range(ranks)]
        return [Tree("darray", each, (unit,)) for each in arguments]
    slots, most = chance.randint(ranks, 4 * ranks + 4), chance.randint(1, 3)
    owners = [chance.randrange(ranks) for _ in range(slots)]
    dealt = []
    for rank in range(ranks):
        mine = [slot * most for slot in range(slots) if owners[slot] == rank]
        inner = Tree("indexed_block", (most, tuple(mine)), (unit,))
        if not mine:
            inner = Tree("contiguous", (0,), (unit,))
        dealt.append(Tree("resized", (0, slots * most * unit.map.extent), (inner,)))
    return dealt


# ---------------------------------------------------------------------------------------------
# Types of memory
# ---------------------------------------------------------------------------------------------


def random_memory(chance: Random, etype: Tree, overlaps: bool) -> Tree:
    """A type of memory whose data are some etypes; `overlaps` allows overlapping ones, which are
    for writing."""
    for _ in range(ATTEMPTS):
        tree = memory_atom(chance, etype)
        for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
            tree = trees.settled(memory_over(chance, tree, etype))
        fits = is_small(tree) and abs(tree.map.lower) < EXTENT_MAX and tree.map.extent >= 0
        if fits and (overlaps or not trees.has_overlaps(tree.map.places)):
            return tree
    return etype


def memory_atom(chance: Random, etype: Tree) -> Tree:
    """The data of one etype, laid out in some way."""
    if etype.kind == "BYTE":
        return basic(chance.choice([*BASICS]))
    names = etype.map.basics()
    if len(set(names)) == 1 and chance.random() < 0.5:
        first = basic(names[0])
        return first if len(names) == 1 else Tree("contiguous", (len(names),), (first,))
    if chance.random() < 0.4:
        return trees.settled(etype)
    places = chance.sample(range(-3, 6), len(names))
    starts = [9 * place + chance.randint(0, 1) for place in places]
    return trees.struct([1] * len(names), starts, [basic(name) for name in names])


def memory_over(chance: Random, child: Tree, etype: Tree) -> Tree:
    """One constructor around a type of memory, with displacements in any order, also negative."""
    kind = chance.choice(CONSTRUCTORS)
    if not child.map.size and kind in ("subarray", "darray"):
        kind = "dup"  # not every MPI makes arrays of nothing
    count, length, extent = chance.randint(0, 4), chance.randint(1, 3), child.map.extent
    lengths = tuple(chance.choice([0, 1, 1, 2]) for _ in range(count))
    starts = tuple(chance.sample(range(-4, 7), count))
    in_bytes = tuple(2 * start * extent + chance.randint(0, 3) for start in starts)
    match kind:
        case "vector":
            stride = chance.choice([-4, -3, -2, 0, 1, 2, 3, 4, 5])  # -1 byte: Open MPI is wrong
            return Tree("vector", (count, length, stride), (child,))
        case "hvector":
            stride = chance.choice([*range(-50, -1), *range(91)])
            return Tree("hvector", (count, length, stride), (child,))
        case "struct":
            others = [
                each if each.map.size else child
                for each in (memory_atom(chance, etype) for _ in lengths)
            ]
            if not child.map.size:
                others = [child for _ in lengths]
            return trees.struct([*lengths], [*in_bytes], others)
        case "resized":
            lower = child.map.lower - chance.randint(-3, 9)
            return Tree("resized", (lower, max(0, extent + chance.randint(-6, 12))), (child,))
        case _:
            blocks = Blocks(count, length, lengths, starts, in_bytes)
            return array_or_blocks(chance, kind, child, blocks)


def is_small(tree: Tree) -> bool:
    found = tree.map
    reach = max(abs(found.extent), found.true_upper, -found.true_lower)
    return len(found.entries) <= ENTRIES_MAX and reach <= EXTENT_MAX
