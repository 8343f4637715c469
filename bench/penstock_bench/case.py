"""A case is one distributed array: where it lies in memory and on disk, and how it is checked.

Nothing here uses Penstock. The distributions are computed from their definition in High-Performance
Fortran, and files are read back with NumPy and zarr-python, so that an error in Penstock cannot
hide itself.

Every element has a value that depends on its global index and on a salt, which changes from one
measurement to the next: neither an element out of place nor a stale file passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock_bench.command import UsageError, dims_text, parse_dims

Elements = NDArray[Any]
Indices = NDArray[np.int64]
Reader = Callable[[slice], Elements]
"""A reader returns the elements of a slab of an array on disk."""

SLAB_ELEMENTS = 1 << 18
"""Elements that are made or compared at once: 2 MiB of float64, which stays in the cache."""


# ---------------------------------------------------------------------------------------------
# Distributions
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distribution:
    """A distribution is BLOCK, CYCLIC, CYCLIC(k) or ``*`` for each dimension, over a mesh.

    The mesh has one extent for each distributed dimension, in order; ``*`` takes none.
    """

    kinds: tuple[str, ...]
    mesh: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, mesh: tuple[int, ...]) -> Distribution:
        """Read ``"BLOCK,*,CYCLIC(4)"``."""
        kinds = tuple(kind.strip().upper() for kind in text.split(","))
        for kind in kinds:
            if kind not in ("BLOCK", "CYCLIC", "*") and cyclic_width(kind) is None:
                raise UsageError(f"distribution {text!r}: {kind!r} is none of BLOCK, CYCLIC, *")
        distributed = sum(kind != "*" for kind in kinds)
        if distributed != len(mesh):
            raise UsageError(
                f"distribution {text!r} has {distributed} distributed dimensions, "
                f"but its mesh {dims_text(mesh)} has {len(mesh)} extents"
            )
        return cls(kinds, mesh)

    @property
    def text(self) -> str:
        """The distribution as the user wrote it: ``"BLOCK,*,CYCLIC(4)"``."""
        return ",".join(self.kinds)

    @property
    def parts(self) -> int:
        """The number of ranks that hold a share; ranks beyond them hold nothing."""
        return math.prod(self.mesh)

    def per_dimension(self, part: int) -> list[tuple[str, int, int]]:
        """Return for each dimension its kind, the mesh extent and the coordinate of ``part``."""
        coordinates = iter(np.unravel_index(part, self.mesh)) if self.mesh else iter(())
        extents = iter(self.mesh)
        return [
            (kind, 1, 0) if kind == "*" else (kind, next(extents), int(next(coordinates)))
            for kind in self.kinds
        ]

    def indices(self, shape: tuple[int, ...], part: int) -> list[Indices]:
        """Return the global indices that ``part`` holds, an ascending array a dimension."""
        if part >= self.parts:
            return [np.arange(0) for _ in shape]
        per_dimension = zip(shape, self.per_dimension(part), strict=True)
        return [owned(extent, *how) for extent, how in per_dimension]


def cyclic_width(kind: str) -> int | None:
    """Return the k of ``CYCLIC(k)``, 1 for plain ``CYCLIC``, ``None`` for anything else."""
    if kind == "CYCLIC":
        return 1
    inner = kind.removeprefix("CYCLIC(").removesuffix(")")
    if kind != f"CYCLIC({inner})" or not inner.isdigit() or int(inner) == 0:
        return None
    return int(inner)


def owned(extent: int, kind: str, parts: int, part: int) -> Indices:
    """Return the indices of one dimension that coordinate ``part`` of ``parts`` holds."""
    index: Indices = np.arange(extent)
    if kind == "*":
        return index
    if kind == "BLOCK":
        block = -(-extent // parts)
        return index[part * block : (part + 1) * block]
    width = cyclic_width(kind)
    assert width is not None  # `Distribution.parse` knows no other kinds
    return np.flatnonzero((index // width) % parts == part)


def as_slice(indices: Indices) -> slice | Indices:
    """Return a slice that selects ``indices`` if there is one, otherwise ``indices``."""
    if len(indices) == 0:
        return slice(0, 0)
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    if np.array_equal(indices, indices[0] + step * np.arange(len(indices))):
        return slice(int(indices[0]), int(indices[-1]) + 1, step)
    return indices


# ---------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------


def values(
    shape: tuple[int, ...], dtype: np.dtype[Any], indices: list[Indices], salt: int
) -> Elements:
    """Make the elements at ``indices`` (an outer product) from global index and ``salt``."""
    linear = np.full((1,) * len(shape), salt, np.int64)
    stride = 1
    for dimension in reversed(range(len(shape))):
        along = [1] * len(shape)
        along[dimension] = -1
        linear = linear + (indices[dimension] * stride).reshape(along)
        stride *= shape[dimension]
    if dtype.kind in "fc":
        exact = 1 << (np.finfo(dtype).nmant + 1)
        linear &= exact - 1
        if dtype.kind == "f":
            return linear.astype(dtype)
        result = np.empty(linear.shape, dtype)
        result.real, result.imag = linear, (linear * 5 + 1) % exact
        return result
    mixed = (linear.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(8)
    return mixed.astype(np.uint8) % 2 == 1 if dtype.kind == "b" else mixed.astype(dtype)


def slabs(indices: list[Indices]) -> Iterator[tuple[slice, list[Indices]]]:
    """Cut the first dimension into slabs of about ``SLAB_ELEMENTS`` elements, with their indices.

    An array without elements has no slabs.
    """
    first, *others = indices
    row = math.prod(len(along) for along in others)
    rows = max(1, SLAB_ELEMENTS // max(1, row))
    for start in range(0, len(first) if row else 0, rows):
        slab = slice(start, min(start + rows, len(first)))
        yield slab, [first[slab], *others]


# ---------------------------------------------------------------------------------------------
# Disk schemas
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """The disk schema of an array: ``--disk`` taken apart."""

    kind: str
    """``row-major``, ``npy``, ``chunks`` or ``parts``."""
    chunk: tuple[int, ...] = ()
    subchunk: tuple[int, ...] | None = None
    codec: str | None = None
    parts: Distribution | None = None

    @classmethod
    def parse(cls, text: str) -> Disk:
        """Read ``row-major``, ``npy``, ``chunks:64,64[/32,32][:codec]`` or ``parts:*,BLOCK:2``."""
        kind, _, rest = text.partition(":")
        if kind in ("row-major", "npy") and not rest:
            return cls(kind)
        if kind == "chunks" and rest:
            extents, _, codec = rest.partition(":")
            chunk, _, subchunk = extents.partition("/")
            inner = parse_dims(subchunk, "--disk sub-chunk") if subchunk else None
            return cls(kind, parse_dims(chunk, "--disk chunk"), inner, codec or None)
        if kind == "parts" and rest.count(":") == 1:
            distribution, mesh = rest.split(":")
            if "CYCLIC" in distribution.upper():
                raise UsageError(f"--disk {text}: parts of a disk are BLOCK or *")
            return cls(
                kind, parts=Distribution.parse(distribution, parse_dims(mesh, "--disk mesh"))
            )
        raise UsageError(
            f"--disk {text}: expected row-major, npy, chunks:64,64,64[/32,32,32][:codec] "
            "or parts:BLOCK,*,*:2"
        )


# ---------------------------------------------------------------------------------------------
# The case
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One array has a distribution in memory and a schema on disk, the same on every rank."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Distribution
    disk: Disk
    directory: Path
    sync: bool
    rank: int
    size: int
    name: str = "u"

    @property
    def bytes(self) -> int:
        """The bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def local_indices(self) -> list[Indices]:
        """Return the global indices that this rank holds, one array for each dimension."""
        return self.memory.indices(self.shape, self.rank)

    def local_shape(self) -> tuple[int, ...]:
        """Return the shape of this rank's share."""
        return tuple(len(indices) for indices in self.local_indices())

    def fill(self, local: Elements, salt: int) -> None:
        """Give every element of this rank's share its value."""
        for slab, truth in self._truth(self.local_indices(), salt):
            local[slab] = truth

    def wrong_in_memory(self, local: Elements, salt: int) -> int:
        """Count the elements of this rank's share that do not have their value."""
        truths = self._truth(self.local_indices(), salt)
        return sum(int(np.count_nonzero(local[slab] != truth)) for slab, truth in truths)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        """Count the wrong elements in this rank's part of the files; the ranks' parts cover all.

        The files are dealt out to the ranks only to save time: no rank looks at its own share in
        particular.
        """
        if self.disk.kind == "chunks":
            return self._count_wrong(self._chunks(target), salt)
        return sum(self.wrong_in_file(*file, salt) for file in self._files(target))

    def wrong_in_file(self, read: Reader, indices: list[Indices], salt: int) -> int:
        """Count the wrong elements in this rank's slabs of a file that has these indices."""
        mine = (
            (read(slab), along)
            for turn, (slab, along) in enumerate(slabs(indices))
            if turn % self.size == self.rank
        )
        return self._count_wrong(mine, salt)

    def everything(self) -> list[Indices]:
        """Return all indices of the array, one array for each dimension."""
        return [np.arange(extent) for extent in self.shape]

    def _count_wrong(self, found: Iterator[tuple[Elements, list[Indices]]], salt: int) -> int:
        return sum(
            int(np.count_nonzero(elements != values(self.shape, self.dtype, indices, salt)))
            for elements, indices in found
        )

    def _truth(self, indices: list[Indices], salt: int) -> Iterator[tuple[slice, Elements]]:
        for slab, along in slabs(indices):
            yield slab, values(self.shape, self.dtype, along, salt)

    def _chunks(self, target: Path) -> Iterator[tuple[Elements, list[Indices]]]:
        """Read the chunks that are this rank's to check, and each once.

        zarr-python reads all of a chunk, even for a part of it.
        """
        import zarr

        stored = zarr.open_array(target / self.name, mode="r")
        if stored.shape != self.shape or stored.dtype != self.dtype:
            raise ValueError(f"{target} holds {stored.dtype} {stored.shape}")
        starts = [range(0, n, c) for n, c in zip(self.shape, self.disk.chunk, strict=True)]
        for turn, start in enumerate(itertools.product(*starts)):
            # In natural chunking a rank's share is the chunk of its number.
            if (turn + 1) % self.size == self.rank:
                ends = map(min, map(add, start, self.disk.chunk), self.shape)
                box = tuple(map(slice, start, ends))
                chunk = np.asarray(stored[box])
                indices = [np.arange(along.start, along.stop) for along in box]
                for slab, along in slabs(indices):
                    yield chunk[slab], along

    def _files(self, target: Path) -> Iterator[tuple[Reader, list[Indices]]]:
        """Yield a reader for each file to be checked, and the indices of its elements."""
        if self.disk.kind == "row-major":
            yield flat_reader(target, self.dtype, self.shape), self.everything()
        elif self.disk.kind == "npy":
            mapped = np.load(target, mmap_mode="r")
            if mapped.shape != self.shape or mapped.dtype != self.dtype:
                raise ValueError(f"{target} holds {mapped.dtype} {mapped.shape}")
            yield mapped.__getitem__, self.everything()
        else:
            yield from self._parts(target)

    def _parts(self, target: Path) -> Iterator[tuple[Reader, list[Indices]]]:
        """Yield the part files in the order of their numbers, which follow the disk mesh."""
        parts = self.disk.parts
        assert parts is not None
        files = sorted(
            (path for path in target.iterdir() if path.suffix not in (".json", ".toml")),
            key=lambda path: [int(word) for word in digits(path.name)],
        )
        wanted = {}
        for part in range(parts.parts):
            indices = parts.indices(self.shape, part)
            if math.prod(len(along) for along in indices):
                wanted[part] = indices
        files = [path for path in files if path.stat().st_size > 0]
        if len(files) != len(wanted):
            raise ValueError(f"{target} holds {len(files)} parts, not {len(wanted)}")
        for path, indices in zip(files, wanted.values(), strict=True):
            extents = tuple(len(along) for along in indices)
            yield flat_reader(path, self.dtype, extents), indices


def digits(name: str) -> list[str]:
    """Return the runs of digits in a file name."""
    return "".join(letter if letter.isdigit() else " " for letter in name).split()


def flat_reader(path: Path, dtype: np.dtype[Any], shape: Sequence[int]) -> Reader:
    """Return a reader of a flat row-major file, which must have exactly the array's size."""
    row = math.prod(shape[1:])
    if path.stat().st_size != shape[0] * row * dtype.itemsize:
        raise ValueError(f"{path} has {path.stat().st_size} bytes")

    def read(slab: slice) -> Elements:
        rows = slab.stop - slab.start
        offset = slab.start * row * dtype.itemsize
        return np.fromfile(path, dtype, rows * row, offset=offset).reshape((rows, *shape[1:]))

    return read
