"""One conformance body for every machine: threads, MPI in shared memory, MPI by messages.

A `Case` is an array with everything that may vary: shape, type, distribution in memory for the
write and for the read, disk schema, strides. `write` and `read` are called by every rank of a
session; `check_disk` by one of them, and looks at the files with other people's software.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers import (
    CODECS,
    DTYPES,
    LOCAL_KINDS,
    Dealt,
    Held,
    Placed,
    holds_nothing,
    local_of,
    on_disk,
    part_of,
    same_bits,
    values,
)

import penstock as ps

EXTENTS = (0, 1, 2, 3, 4, 5, 7, 8, 11, 13)
"""Nothing, one, primes and what divides evenly."""
ELEMENTS_MAX = 3000
OBJECTS_MAX = 120
BLOCKS_MAX = 400
RECORDS = (
    np.dtype([("x", "f8"), ("id", "i4")]),
    np.dtype(
        [("a", "u1"), ("p", [("c", "c16"), ("n", "i2")]), ("x", "f8"), ("y", "f8"), ("b", "u2")]
    ),
)
"""Records of 12 and of 37 bytes."""


@dataclass(frozen=True)
class Case:
    """One array, how it is held when written and when read, and how it is stored."""

    shape: tuple[int, ...]
    dtype: str | np.dtype[Any]
    source: Held
    target: Held
    disk: ps.Chunks | ps.RowMajor | ps.Distribution
    kinds: tuple[str, ...] = ("C",)
    """How local arrays lie in memory; ranks take them in turn."""
    dims: tuple[str, ...] | None = None
    attrs: str = ""
    salt: int = 0
    gives_out: bool = True

    def array(self, held: Held, rank: int) -> ps.Array:
        return ps.Array(
            "u", self.shape, self.dtype, memory=held.memory(rank), disk=self.disk, dims=self.dims
        )

    def kind(self, rank: int, turn: int = 0) -> str:
        return self.kinds[(rank + turn) % len(self.kinds)]

    def truth(self) -> np.ndarray:
        return values(self.shape, self.dtype, self.salt)

    def stored(self, ranks: int) -> np.ndarray:
        """What must be on disk: the truth where some rank holds it, zero elsewhere."""
        truth, whole = self.truth(), np.zeros(self.shape, self.dtype)
        for rank in range(ranks):
            indices = self.source.indices(self.shape, rank)
            if not holds_nothing(indices):
                if self.shape:
                    whole[np.ix_(*indices)] = part_of(truth, indices)
                else:
                    whole[...] = truth
        return whole


# ---------------------------------------------------------------------------------------------
# The body
# ---------------------------------------------------------------------------------------------


def write(session: ps.Session, case: Case, path: Path) -> ps.Report:
    """Writes this rank's part; its memory is the same afterwards, padding included."""
    rank = session.rank
    array = case.array(case.source, rank)
    local = local_of(array, case.source, rank, case.kind(rank), case.truth())
    before = local.raw.copy()
    attrs = {"note": case.attrs} if case.attrs else None
    report = session.write(path, array, local.view, attrs=attrs)
    assert np.array_equal(local.raw, before), "a write has changed the local array"
    assert report.bytes == math.prod(case.shape) * np.dtype(case.dtype).itemsize
    assert report.servers == session.servers
    return report


def read(session: ps.Session, case: Case, path: Path, writers: int) -> None:
    """Reads this rank's part of the other distribution, and finds what must be stored there."""
    rank = session.rank
    array = case.array(case.target, rank)
    stored = case.stored(writers)
    kind = case.kind(rank, turn=1) if case.gives_out else "C"
    expected = local_of(array, case.target, rank, kind, stored)
    if case.gives_out:
        local = local_of(array, case.target, rank, kind, None)
        back = session.read(path, array, out=local.view)
        assert back is local.view
        assert np.array_equal(local.raw, expected.raw), "elements, halo or padding are wrong"
        return
    back = session.read(path, array)
    assert back.shape == array.local_shape(rank) and back.dtype == array.dtype
    zeros = local_of(array, case.target, rank, kind, None)
    zeros.raw[...] = 0
    if not holds_nothing(case.target.indices(case.shape, rank)):
        zeros.interior[...] = expected.interior
    assert same_bits(back, zeros.view)


def dims_of(case: Case) -> tuple[str, ...] | None:
    """The names of dimensions that are stored: in Zarr arrays some are made up."""
    if case.dims is None and isinstance(case.disk, ps.Chunks):
        return tuple(f"u_{d}" for d in range(len(case.shape)))
    return case.dims


def check_disk(session: ps.Session, case: Case, path: Path, writers: int) -> None:
    """The files are what other software takes for this array."""
    array = case.array(Dealt(",".join("*" * len(case.shape)), ()), 0)
    assert same_bits(on_disk(path, array), case.stored(writers))
    there = session.open(path)
    assert (there.shape, there.dtype) == (array.shape, array.dtype)
    if isinstance(case.disk, ps.Chunks):
        import zarr

        stored = zarr.open_array(store=path, path="u", mode="r")
        assert stored.attrs.asdict() == ({"note": case.attrs} if case.attrs else {})
        assert stored.metadata.dimension_names == dims_of(case)
        assert there.disk.shape == case.disk.shape
        assert there.disk.subchunks == case.disk.subchunks
    else:
        assert there.disk == case.disk
    if case.disk != ps.RowMajor("npy"):
        assert there.dims == dims_of(case)
        assert dict(there.attrs) == ({"note": case.attrs} if case.attrs else {})


def round_trip(session: ps.Session, case: Case, path: Path) -> None:
    """Write, look, read, by the ranks of one session."""
    write(session, case, path)
    if session.rank == 0:
        check_disk(session, case, path, session.size)
    session.barrier()
    read(session, case, path, session.size)


# ---------------------------------------------------------------------------------------------
# Random cases
# ---------------------------------------------------------------------------------------------


def random_case(chance: random.Random, writers: int, readers: int) -> Case:
    """A case for so many ranks. `chance` may be Hypothesis's, which shrinks what it finds."""
    shape = random_shape(chance)
    disk = random_disk(chance, shape)
    has_attrs = disk != ps.RowMajor("npy") and chance.random() < 0.3
    dims = tuple(f"d{i}" for i in range(len(shape))) if chance.random() < 0.3 else None
    if disk == ps.RowMajor("npy"):
        dims = None
    return Case(
        shape=shape,
        dtype=chance.choice((*DTYPES, *RECORDS)),
        source=random_memory(chance, shape, writers),
        target=random_memory(chance, shape, readers),
        disk=disk,
        kinds=tuple(chance.choice(LOCAL_KINDS) for _ in range(chance.randint(1, 3))),
        dims=dims,
        attrs="kelvin" if has_attrs else "",
        salt=chance.randint(0, 99),
        gives_out=chance.random() < 0.7,
    )


def random_shape(chance: random.Random) -> tuple[int, ...]:
    shape = [chance.choice(EXTENTS) for _ in range(chance.randint(0, 4))]
    while math.prod(shape) > ELEMENTS_MAX:
        largest = max(range(len(shape)), key=shape.__getitem__)
        shape[largest] = max(extent for extent in EXTENTS if extent < shape[largest])
    return tuple(shape)


def random_memory(chance: random.Random, shape: tuple[int, ...], ranks: int) -> Held:
    halo: Any = 0
    if chance.random() < 0.4:
        halo = chance.choice(
            [
                chance.randint(1, 2),
                tuple(chance.randint(0, 2) for _ in shape),
                tuple((chance.randint(0, 2), chance.randint(0, 2)) for _ in shape),
            ]
        )
    if shape and chance.random() < 0.3:  # of no dimensions no box is empty
        return Placed(random_boxes(chance, shape, ranks), halo)
    return random_dealt(chance, shape, ranks, halo)


def random_dealt(chance: random.Random, shape: tuple[int, ...], ranks: int, halo: Any) -> Dealt:
    words, mesh, room = [], [], ranks
    for _ in shape:
        word = chance.choice(["*", "BLOCK", "BLOCK", "CYCLIC", "CYCLIC(2)", "CYCLIC(3)"])
        words.append(word)
        if word != "*":
            mesh.append(chance.randint(1, room))
            room //= mesh[-1]
    return Dealt(",".join(words), tuple(mesh), halo)


def random_boxes(chance: random.Random, shape: tuple[int, ...], ranks: int) -> tuple:
    """Disjoint boxes that cover the array or some of it; some are empty."""
    boxes = [((0,) * len(shape), shape)]
    while len(boxes) < ranks and chance.random() < 0.9:
        start, extents = boxes.pop(chance.randint(0, len(boxes) - 1))
        d = chance.randint(0, len(shape) - 1)
        cut = chance.randint(0, extents[d])
        low = (*extents[:d], cut, *extents[d + 1 :])
        high = (*extents[:d], extents[d] - cut, *extents[d + 1 :])
        boxes += [(start, low), ((*start[:d], start[d] + cut, *start[d + 1 :]), high)]
    boxes = [box for box in boxes if chance.random() < 0.85]
    empty = ((0,) * len(shape), (0,) * len(shape))
    boxes += [empty] * (ranks - len(boxes))
    chance.shuffle(boxes)
    return tuple(boxes)


def random_disk(chance: random.Random, shape: tuple[int, ...]):
    form = chance.choice(["chunks", "chunks", "shards", "raw", "npy", "parts"])
    if form in ("raw", "npy"):
        return ps.RowMajor(form)
    if form == "parts":
        words = [chance.choice(["*", "BLOCK"]) for _ in shape]
        mesh = tuple(chance.randint(1, 4) for word in words if word != "*")
        return ps.Distribution(",".join(words), mesh)
    inner = [chance.randint(1, extent + 2) for extent in shape]
    while objects(shape, inner) > OBJECTS_MAX:
        inner = [2 * extent for extent in inner]
    codec = chance.choice(CODECS)
    if form == "chunks":
        return ps.Chunks(tuple(inner), codec=codec)
    chunk = tuple(extent * chance.randint(1, 3) for extent in inner)
    return ps.Chunks(chunk, subchunks=tuple(inner), codec=codec)


def objects(shape: tuple[int, ...], chunk: list[int]) -> int:
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def random_block_bytes(chance: random.Random, case: Case) -> int:
    """Few or many blocks; never so many that a test takes long."""
    least = math.prod(case.shape) * np.dtype(case.dtype).itemsize // BLOCKS_MAX + 1
    return max(least, chance.choice([1, 7, 64, 1000, 1 << 20]))
