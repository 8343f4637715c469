"""Arrays, and how they lie in memory and on disk."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from penstock import _core
from penstock._errors import schema_error

Halo = int | Sequence[int | tuple[int, int]]


def _extents(what: str, values: int | Iterable[int]) -> tuple[int, ...]:
    """`values` as a tuple of non-negative integers; a single integer is one extent."""
    try:
        extents = (
            (operator.index(values),)
            if not isinstance(values, Iterable)
            else tuple(map(operator.index, values))
        )
    except TypeError:
        raise schema_error(f"{what} must be integers, not {values!r}") from None
    if any(not 0 <= extent < 2**63 for extent in extents):
        raise schema_error(f"{what} must be from 0 to 2^63 - 1, not {extents}")
    return extents


def _halo(halo: Halo, dims: int) -> list[tuple[int, int]]:
    """A halo as (below, above) a dimension; empty where there is none."""
    sides = [halo] * dims if isinstance(halo, int) else halo
    try:
        widths = [_extents("a halo's widths", [w, w] if isinstance(w, int) else w) for w in sides]
        pairs = [(below, above) for below, above in widths]
    except (TypeError, ValueError):
        raise schema_error(
            f"a halo is a width, or for each dimension a width or (below, above): {halo!r}"
        ) from None
    if len(pairs) != dims:
        raise schema_error(f"the halo {halo!r} has {len(pairs)} widths for {dims} dimensions")
    return pairs if any(pair != (0, 0) for pair in pairs) else []


def _comb(first: int, block: int, stride: int, extent: int) -> np.ndarray:
    """The indices of blocks of `block`, `stride` apart, `extent` in all."""
    block_number, within = np.divmod(np.arange(extent, dtype=np.intp), block)
    return first + block_number * stride + within


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A High-Performance Fortran distribution over a mesh of ranks, or of part files.

    Parameters
    ----------
    dists : str
        One of `BLOCK`, `CYCLIC`, `CYCLIC(k)` and `*` for each dimension, separated by commas.
    mesh : tuple of int
        One extent for each dimension that is not `*`, in order. Ranks count through the mesh in
        row-major order; those beyond it hold an empty share. Default: all that is distributed, in
        one piece.
    halo : int or sequence, optional
        Ghost cells on each side of the share, in memory: one number for all dimensions, or for
        each dimension a number or a pair (below, above). They are skipped, not copied. An empty
        share has none.

    As a memory schema any distribution will do. As a disk schema, `BLOCK` and `*`: one file for
    each place of the mesh; for `BLOCK,*,*` they concatenate to the row-major file, Panda's
    traditional order (Seamons et al., SC'95, section 3).
    """

    dists: str
    mesh: tuple[int, ...] | None = None
    halo: Halo = 0

    def __post_init__(self) -> None:
        if not isinstance(self.dists, str):
            raise schema_error(f"distributions must be a string, not {self.dists!r}")
        words = [word.strip() for word in self.dists.split(",")]
        distributed = sum(word != "*" for word in words) if self.dists.strip() else 0
        mesh = (1,) * distributed if self.mesh is None else _extents("a mesh's extents", self.mesh)
        object.__setattr__(self, "mesh", mesh)

    def _memory(self, dims: int) -> tuple[Any, ...]:
        return (self.dists, list(self.mesh or ()), _halo(self.halo, dims))

    def _disk(self) -> tuple[Any, ...]:
        if self.halo != 0:
            raise schema_error("a disk schema has no halo")
        return ("parts", self.dists, list(self.mesh or ()))


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Irregular shares: each rank names its own box, and boxes must not overlap.

    Parameters
    ----------
    start, shape : tuple of int
        This rank's box: first index and number of indices a dimension. A rank that holds nothing
        names a shape with a zero. What no rank holds is the fill value, 0, when written.
    halo : int or sequence, optional
        As of `Distribution`.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    halo: Halo = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _extents("a box's start", self.start))
        object.__setattr__(self, "shape", _extents("a box's shape", self.shape))

    def _memory(self, dims: int) -> tuple[Any, ...]:
        return (list(self.start), list(self.shape), _halo(self.halo, dims), False)


@dataclasses.dataclass(frozen=True)
class _Region(Boxes):
    """A rank's box where a call is about the boxes alone."""

    def _memory(self, dims: int) -> tuple[Any, ...]:
        return (*super()._memory(dims)[:3], True)


Region = Boxes | slice | int | tuple[slice | int, ...]


def _region(region: Region, shape: tuple[int, ...]) -> _Region:
    """The box that `region` says of an array of `shape`; an index is an extent of 1."""
    if isinstance(region, Boxes):
        return _Region(region.start, region.shape, region.halo)
    parts = region if isinstance(region, tuple) else (region,)
    if len(parts) > len(shape):
        raise schema_error(f"the region {region!r} has {len(parts)} dimensions, not {len(shape)}")
    starts, extents = [], []
    for part, extent in zip(
        (*parts, *[slice(None)] * (len(shape) - len(parts))), shape, strict=True
    ):
        try:
            if not isinstance(part, slice):
                index = operator.index(part)
                part = slice(index, index + 1 or None)
            start, stop, step = part.indices(extent)
        except (TypeError, ValueError):
            raise schema_error(f"a region is of slices, or Boxes: {region!r}") from None
        if step != 1:
            raise schema_error(f"a region's slices have no steps: {region!r}")
        starts.append(start)
        extents.append(max(stop - start, 0))
    return _Region(tuple(starts), tuple(extents))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Chunks of a Zarr v3 array. Each is written by one server, the chunks being dealt out in turn.

    Parameters
    ----------
    shape : tuple of int
        Extents of a chunk, elements. The array's need not be multiples of it.
    subchunks : tuple of int, optional
        Extents of the sub-chunks of a chunk, which is then a shard (Zarr's `sharding_indexed`).
        They must divide the chunk.
    codec : str
        `none`, `zstd[:LEVEL]`, `blosc[:CNAME[:LEVEL[:SHUFFLE]]]`, each with `+crc32c` behind it if
        wanted, or `crc32c`. Codecs run on the servers.
    """

    shape: tuple[int, ...]
    subchunks: tuple[int, ...] | None = None
    codec: str = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _extents("a chunk's extents", self.shape))
        if self.subchunks is not None:
            object.__setattr__(self, "subchunks", _extents("a sub-chunk's extents", self.subchunks))
        if self.codec is None:
            object.__setattr__(self, "codec", "none")

    def _disk(self) -> tuple[Any, ...]:
        subchunks = None if self.subchunks is None else list(self.subchunks)
        return ("chunks", list(self.shape), subchunks, self.codec)


@dataclasses.dataclass(frozen=True)
class RowMajor:
    """One file, row-major.

    Parameters
    ----------
    format : {"raw", "npy"}
        Elements alone, with a JSON file beside it that says what they are; or NumPy's format.
    """

    format: Literal["raw", "npy"] = "raw"

    def __post_init__(self) -> None:
        if self.format not in ("raw", "npy"):
            raise schema_error(
                f"'{self.format}' is no format of a row-major file: use 'raw' or 'npy'"
            )

    def _disk(self) -> tuple[Any, ...]:
        return (self.format,)


Memory = Distribution | Boxes
Disk = Chunks | RowMajor | Distribution


@dataclasses.dataclass(frozen=True)
class Array:
    """An array: what it is, how it lies in the memories of the ranks, and how on disk.

    Parameters
    ----------
    name : str
        Its name in the Zarr group; the stem of part files.
    shape : tuple of int
        Extents of the whole array, elements.
    dtype : str or numpy.dtype
        Any of bool, i1 to i8, u1 to u8, f2, f4, f8, c8, c16.
    memory : Distribution or Boxes, optional
        Which rank holds what. Default: rank 0 holds everything.
    disk : Chunks, RowMajor or Distribution, optional
        How it is stored. Default: natural chunking, that is as in memory, each rank's share one
        chunk of a Zarr array (Seamons et al., SC'95, section 2). Of `CYCLIC` dimensions there are
        as many chunks as if they were `BLOCK`; of boxes, chunks of the largest box's extents.
    dims : sequence of str, optional
        Names of the dimensions.
    attrs : mapping, optional
        Attributes, as JSON can hold them: what `Session.open` found. `Session.write` adds to them.

    Raises
    ------
    SchemaError, UnsupportedError
        When the parts do not fit together. A mesh that does not fit the number of ranks, and a
        disk schema that does not fit the array, are found when the array is used.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Memory | None = None
    disk: Disk | None = None
    dims: tuple[str, ...] | None = None
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if not isinstance(self.name, str):
            raise schema_error(f"an array's name is a string, not {self.name!r}")
        set_field(self, "shape", _extents("an array's shape", self.shape))
        try:
            set_field(self, "dtype", np.dtype(self.dtype))
        except TypeError as error:
            raise schema_error(f"the dtype of '{self.name}': {error}") from None
        if self.memory is None:
            set_field(self, "memory", Distribution(",".join("*" * len(self.shape)), ()))
        if not isinstance(self.memory, Memory):
            raise schema_error(f"a memory schema is a Distribution or Boxes, not {self.memory!r}")
        if self.disk is not None and not isinstance(self.disk, Disk):
            raise schema_error(
                f"a disk schema is Chunks, RowMajor or a Distribution, not {self.disk!r}"
            )
        if self.dims is not None:
            if isinstance(self.dims, str) or not isinstance(self.dims, Iterable):
                raise schema_error(f"dims is a sequence of names, not {self.dims!r}")
            set_field(self, "dims", tuple(map(str, self.dims)))
        self._spec  # noqa: B018 - to find what does not fit now

    @cached_property
    def _spec(self) -> _core.Spec:
        return self._spec_with({})

    def _spec_with(self, attrs: Mapping[str, Any]) -> _core.Spec:
        assert self.memory is not None
        try:
            attributes = json.dumps({**self.attrs, **attrs})
        except (TypeError, ValueError) as error:
            raise schema_error(f"attributes must be what JSON can hold: {error}") from None
        return _core.Spec(
            self.name,
            list(self.shape),
            self.dtype.str,
            self.memory._memory(len(self.shape)),
            ("natural",) if self.disk is None else self.disk._disk(),
            None if self.dims is None else list(self.dims),
            attributes,
        )

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the local array of `rank`, halo included; with a 0 if it holds nothing."""
        return tuple(self._spec.local_shape(rank))

    def local_slices(self, rank: int) -> tuple[slice | np.ndarray, ...]:
        """What `rank` holds, halo apart: for each dimension a slice of the whole array, or an array
        of indices where a slice cannot say it (as of CYCLIC(4)). With `numpy.ix_` over
        `numpy.arange(n)[s]` for each dimension, it is the part of the whole array that is local."""
        return tuple(
            slice(*words) if len(words) == 3 else _comb(*words)
            for words in self._spec.local_slices(rank)
        )

    def with_memory(self, memory: Memory) -> Array:
        """The same array on disk, distributed otherwise in memory."""
        return dataclasses.replace(self, memory=memory)

    def with_disk(self, disk: Disk | None) -> Array:
        """The same array in memory, stored otherwise."""
        return dataclasses.replace(self, disk=disk)

    @classmethod
    def _of_disk(cls, described: dict[str, Any]) -> Array:
        kind, *words = described["disk"]
        disk: Disk
        if kind == "chunks":
            chunk, subchunks, codec = words
            disk = Chunks(tuple(chunk), None if subchunks is None else tuple(subchunks), codec)
        elif kind == "parts":
            disk = Distribution(words[0], tuple(words[1]))
        else:
            disk = RowMajor(kind)
        dims = described["dims"]
        return cls(
            described["name"],
            tuple(described["shape"]),
            np.dtype(described["dtype"]),
            None,
            disk,
            None if dims is None else tuple(dims),
            json.loads(described["attributes"]),
        )
