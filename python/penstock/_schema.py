"""Schemas: what arrays are, and how they lie in memory and on disk."""

from __future__ import annotations

import dataclasses
import json
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from penstock import _core, _records
from penstock._errors import OutOfBoundsError, schema_error, shown, type_name
from penstock._json import attributes
from penstock._lists import Elements, Runs, Strided, list_argument
from penstock._types import Attributes, ChunkEdges, Extents, Halo, MaybeEdges, MaybeNone

T = TypeVar("T")


def _extents(what: str, values: Extents) -> tuple[int, ...]:
    """`values` as a tuple of non-negative integers; a single integer is one extent."""
    try:
        extents = (
            tuple(map(operator.index, values))
            if isinstance(values, Iterable)
            else (operator.index(values),)
        )
    except TypeError as error:
        raise schema_error(f"{what} must be integers, not {shown(values)}") from error
    if any(not 0 <= extent < 2**63 for extent in extents):
        raise schema_error(f"{what} must be from 0 to 2^63 - 1, not {extents}")
    return extents


def _edges(shape: ChunkEdges) -> tuple[int | tuple[int, ...], ...]:
    """For each dimension an extent, or the extents of all chunks."""
    what = "a chunk's extents"
    if not isinstance(shape, Iterable):
        return _extents(what, shape)
    return tuple(
        _extents(what, each) if isinstance(each, Iterable) else _extents(what, each)[0]
        for each in shape
    )


def _halo(halo: Halo, dims: int) -> list[tuple[int, int]]:
    """A halo as (below, above) a dimension; empty where there is none."""
    sides = [halo] * dims if isinstance(halo, int) else halo
    try:
        widths = [_extents("a halo's widths", [w, w] if isinstance(w, int) else w) for w in sides]
        pairs = [(below, above) for below, above in widths]
    except (TypeError, ValueError) as error:
        raise schema_error(
            f"a halo is a width, or for each dimension a width or (below, above): {shown(halo)}"
        ) from error
    if len(pairs) != dims:
        raise schema_error(f"the halo {halo!r} has {len(pairs)} widths for {dims} dimensions")
    return pairs if any(pair != (0, 0) for pair in pairs) else []


def _comb(first: int, block: int, stride: int, extent: int) -> np.ndarray:
    """The indices of blocks of `block`, `stride` apart, `extent` in all."""
    block_number, within = np.divmod(np.arange(extent, dtype=np.intp), block)
    return first + block_number * stride + within


@dataclasses.dataclass(frozen=True, init=False)
class Distribution:
    """A distribution, as of High-Performance Fortran, deals an array out over a mesh of ranks, or
    of part files.

    Parameters
    ----------
    dists : str
        One of `BLOCK`, `CYCLIC`, `CYCLIC(k)` and `*` for each dimension, separated by commas.
    mesh : int or sequence of int, optional
        One extent for each dimension that is not `*`, in order. Ranks count through the mesh in
        row-major order; those beyond it hold an empty share. Default: one piece of all that is
        distributed.
    halo : int or sequence, optional
        Ghost cells on each side of the share in memory, elements: one number for all dimensions,
        or for each dimension a number or a pair (below, above). They are skipped, not copied. An
        empty share has none.

    Raises
    ------
    SchemaError
        When a parameter is not what it should be. A distribution that does not fit an array is
        found when the array is made.

    Notes
    -----
    Any distribution may be a memory schema. A disk schema has only `BLOCK` and `*`: there is one
    file for each place of the mesh. The files of `BLOCK,*,*` concatenate to the row-major file,
    which is Panda's traditional order (Seamons et al., SC'95, section 3).
    """

    dists: str
    mesh: tuple[int, ...]
    halo: Halo

    def __init__(self, dists: str, mesh: Extents | None = None, halo: Halo = 0) -> None:
        if not isinstance(dists, str):
            raise schema_error(f"distributions must be a string, not {type_name(dists)}")
        words = [word.strip() for word in dists.split(",")]
        distributed = sum(word != "*" for word in words) if dists.strip() else 0
        extents = (1,) * distributed if mesh is None else _extents("a mesh's extents", mesh)
        self.__dict__.update(dists=dists, mesh=extents, halo=_hashable(halo))

    def _memory(self, dims: int) -> _core._Memory:
        return (self.dists, list(self.mesh), _halo(self.halo, dims))

    def _disk(self) -> _core._Disk:
        if self.halo != 0:
            raise schema_error("a disk schema has no halo")
        return ("parts", self.dists, list(self.mesh))


@dataclasses.dataclass(frozen=True, init=False)
class Boxes:
    """Boxes are irregular shares: each rank names its own, and boxes must not overlap.

    Parameters
    ----------
    start : int or sequence of int
        First index of this rank's box in each dimension.
    shape : int or sequence of int
        Number of indices in each dimension. A rank that holds nothing names a shape with a zero.
    halo : int or sequence, optional
        Ghost cells, as for `Distribution`.

    Raises
    ------
    SchemaError
        When a parameter is not what it should be. A box that does not fit the array, or overlaps
        another, is found by the call.

    Notes
    -----
    What no rank holds is written as the fill value. A rank that holds several boxes, as of an
    adaptive mesh, gives a list of `Boxes` as its memory schema, and a list of local arrays, one for
    each box; both may be empty.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    halo: Halo

    def __init__(self, start: Extents, shape: Extents, halo: Halo = 0) -> None:
        self.__dict__.update(
            start=_extents("a box's start", start),
            shape=_extents("a box's shape", shape),
            halo=_hashable(halo),
        )


def array_argument(array: object) -> Array:
    """The array that a program gives.

    Raises
    ------
    SchemaError
        When it is none.
    """
    if not isinstance(array, Array):
        raise schema_error(f"an array is a penstock.Array, not {type_name(array)}")
    return array


def halo_of(array: Array) -> list[tuple[int, int]]:
    """The halo of a rank's local arrays, as (below, above) a dimension; empty without one."""
    memory, dims = array.memory, len(array.shape)
    boxes = memory.boxes if isinstance(memory, Regions) else memory
    first = boxes[0] if isinstance(boxes, Sequence) and boxes else boxes
    return _halo(first.halo, dims) if isinstance(first, Distribution | Boxes) else []


def _hashable(halo: Halo) -> Halo:
    """A halo whose sequences are tuples."""
    if isinstance(halo, Sequence):
        return tuple(tuple(w) if isinstance(w, list) else w for w in halo)
    return halo


def _boxes(boxes: Sequence[Boxes], dims: int, is_region: bool) -> _core._Memory:
    """A rank's boxes as a call takes them."""
    halos = {box.halo for box in boxes}
    if len(halos) > 1:
        raise schema_error("the boxes of a rank have one halo, and different ones were given")
    halo = _halo(halos.pop(), dims) if halos else []
    return ([(list(box.start), list(box.shape)) for box in boxes], halo, is_region)


Index: TypeAlias = slice | SupportsIndex | tuple[slice | SupportsIndex, ...]
BoxRegion: TypeAlias = Boxes | Index
OneRegion: TypeAlias = BoxRegion | Elements
Region: TypeAlias = OneRegion | Sequence[BoxRegion]


def regions_of(region: Region, shape: tuple[int, ...]) -> Regions | ListRegion:
    """The boxes, or the list, that a rank names in a call about an array of `shape`.

    Raises
    ------
    SchemaError, OutOfBoundsError
        When it is no region, or none of that array.
    """
    if isinstance(region, Elements):
        return ListRegion(region)
    if isinstance(region, Sequence) and not isinstance(region, tuple):
        return Regions(tuple(region_of(each, shape) for each in region), is_list=True)
    return Regions((region_of(region, shape),), is_list=False)


def region_of(region: BoxRegion, shape: tuple[int, ...]) -> Boxes:
    """The box that `region` says of an array of `shape`; an index is an extent of 1."""
    return region if isinstance(region, Boxes) else Boxes(*bounds_of(region, shape))


def bounds_of(region: BoxRegion, shape: tuple[int, ...]) -> tuple[Sequence[int], Sequence[int]]:
    """The start and the extents of the box that `region` says of an array of `shape`."""
    if isinstance(region, Boxes):
        return region.start, region.shape
    parts = region if isinstance(region, tuple) else (region,)
    if len(parts) > len(shape):
        raise _out_of_bounds(
            f"too many indices for array: array is {len(shape)}-dimensional, but {len(parts)} were "
            "indexed"
        )
    starts: list[int] = []
    extents: list[int] = []
    whole = [slice(None)] * (len(shape) - len(parts))
    for axis, (part, extent) in enumerate(zip((*parts, *whole), shape, strict=True)):
        if isinstance(part, slice):
            try:
                start, stop, step = part.indices(extent)
            except (TypeError, ValueError) as error:
                raise schema_error(f"a region's slice of dimension {axis}: {error}") from error
            if step != 1:
                raise schema_error(f"a region's slices have no steps, and one is of {step}")
        else:
            start = _index(part, axis, extent)
            stop = start + 1
        starts.append(start)
        extents.append(max(stop - start, 0))
    return starts, extents


def _index(index: SupportsIndex, axis: int, extent: int) -> int:
    """An index, counted from the beginning."""
    try:
        number = operator.index(index)
    except TypeError as error:
        raise schema_error(
            f"a region is of slices and integers, or Boxes, Runs or Strided, not of "
            f"{type_name(index)}"
        ) from error
    if not -extent <= number < extent:
        raise _out_of_bounds(f"index {number} is out of bounds for axis {axis} with size {extent}")
    return number % extent


def _out_of_bounds(cause: str) -> OutOfBoundsError:
    error = OutOfBoundsError(cause)
    error.cause = cause
    return error


@dataclasses.dataclass(frozen=True, init=False)
class Chunks:
    """Chunks are those of a Zarr v3 array. The servers take turns: each writes whole chunks.

    Parameters
    ----------
    shape : int, sequence or "shares"
        Extents of a chunk, elements: one for each dimension. The array's need not be multiples of
        it. In the place of an extent may stand a sequence, with the extent of every chunk along
        that dimension, as `dask` has it: `((3, 5, 2), 4)`. `"shares"` is natural chunking: each
        rank's share is a chunk, whatever its extents.
    subchunks : int or sequence of int, optional
        Extents of the sub-chunks of a chunk, which is then a shard (Zarr's `sharding_indexed`).
        They must divide every chunk.
    codec : str
        `none`, `zstd[:LEVEL]`, `gzip[:LEVEL]`, `blosc[:CNAME[:LEVEL[:SHUFFLE]]]`, each with
        `+crc32c` behind it if wanted, or `crc32c`; or a list of codecs as Zarr's metadata have it,
        in JSON. Codecs run on the servers.

    Raises
    ------
    SchemaError
        When a parameter is not what it should be. Chunks that do not fit an array, and unknown
        codecs, are found when the array is used; shares that are no cells of a grid, by the call.

    Notes
    -----
    Chunks with extents of their own are a grid that Zarr calls `rectilinear`. zarr-python reads it
    from 3.2 on, with `zarr.config.set({"array.rectilinear_chunks": True})`. Where chunks are alike
    but for a last one that is smaller, the grid is a regular one, which all readers know.
    """

    shape: tuple[int | MaybeEdges, ...] | MaybeEdges
    subchunks: tuple[int, ...] | None
    codec: str

    def __init__(
        self,
        shape: ChunkEdges | Literal["shares"],
        subchunks: Extents | None = None,
        codec: str | None = "none",
    ) -> None:
        if not isinstance(codec, str | None):
            raise schema_error(f"a codec is a string, not {type_name(codec)}")
        self.__dict__.update(
            shape=shape if isinstance(shape, str) else _edges(shape),
            subchunks=None if subchunks is None else _extents("a sub-chunk's extents", subchunks),
            codec="none" if codec is None else codec,
        )
        if isinstance(shape, str) and shape != "shares":
            raise schema_error(f"chunks are extents, or 'shares', not {shown(shape)}")

    def _disk(self) -> _core._Disk:
        subchunks = None if self.subchunks is None else list(self.subchunks)
        if self.shape == "shares":
            return ("shares", subchunks, self.codec)
        edges = [list(each) if isinstance(each, tuple) else each for each in self.shape]
        return ("chunks", edges, subchunks, self.codec)


@dataclasses.dataclass(frozen=True)
class RowMajor:
    """A row-major file holds the elements of one array, in C order.

    Parameters
    ----------
    format : {"raw", "npy"}
        `raw` is the elements alone, with a JSON file beside it that says what they are; `npy` is
        NumPy's format.

    Raises
    ------
    SchemaError
        When there is no such format.
    """

    format: Literal["raw", "npy"] = "raw"

    def __post_init__(self) -> None:
        if self.format not in ("raw", "npy"):
            raise schema_error(
                f"{shown(self.format)} is no format of a row-major file: use 'raw' or 'npy'"
            )

    def _disk(self) -> _core._Disk:
        return (self.format,)


Memory: TypeAlias = Distribution | Boxes | Sequence[Boxes] | Elements


@dataclasses.dataclass(frozen=True, init=False)
class HDF5:
    """HDF5 is a dataset of an HDF5 file, which others have open with h5py and the like.

    The servers write the elements into the file, side by side, and one process makes the metadata;
    neither needs a parallel HDF5. A file that is there gets one more dataset, or another one in the
    place of a dataset of that path.

    Parameters
    ----------
    chunks : int or sequence of int, optional
        Extents of a chunk, elements; without them the elements are one run, row-major.
    dataset : str, optional
        The path of the dataset in the file, such as `/fields/u`; groups are made where they are
        missing. Without it the path of the call may name it (`run.h5:/fields/u`); otherwise it is
        the array's name, in the root.
    filters : str
        What happens to each chunk, with `+` between, in this order: `shuffle`, `deflate[:LEVEL]`,
        `zstd[:LEVEL]`, `bzip2[:LEVEL]`, `fletcher32`; or `none`. Filters run on the servers. Others
        read `zstd` and `bzip2` with a plug-in of HDF5 (hdf5plugin).

    Raises
    ------
    SchemaError
        When an argument is not of its type. What does not fit the array is refused by `Array`.

    Notes
    -----
    Others may read the file while elements are written; it must not be open for writing anywhere,
    nor for reading for longer than ten seconds when the metadata are made.
    """

    chunks: tuple[int, ...] | None
    dataset: str | None
    filters: str
    _is_netcdf: ClassVar[bool] = False

    def __init__(
        self, chunks: Extents | None = None, dataset: str | None = None, filters: str = "none"
    ) -> None:
        extents = None if chunks is None else _extents("the chunks", chunks)
        if dataset is not None and not isinstance(dataset, str):
            raise schema_error(f"a dataset is a path in a file, not {type_name(dataset)}")
        if not isinstance(filters, str):
            raise schema_error(f"filters are words, not {type_name(filters)}")
        for name, value in (("chunks", extents), ("dataset", dataset), ("filters", filters)):
            object.__setattr__(self, name, value)

    def _disk(self) -> _core._Disk:
        chunks = None if self.chunks is None else list(self.chunks)
        return ("hdf5", self.dataset or "", chunks, self.filters, self._is_netcdf)


class NetCDF(HDF5):
    """NetCDF is a variable of a NetCDF-4 file, which is an HDF5 file with dimensions.

    Variables share the dimensions that have their names (`dims` of `Array`). An array of one
    dimension that has the dimension's name is its coordinate variable.

    Parameters
    ----------
    chunks, dataset, filters
        As of `HDF5`; `dataset` is the path of the variable.

    Raises
    ------
    SchemaError
        As `HDF5` does.

    Notes
    -----
    As of `HDF5`. Variables of dimensions that have other lengths in the file are refused by the
    write.
    """

    _is_netcdf: ClassVar[bool] = True


Disk: TypeAlias = Chunks | RowMajor | Distribution | HDF5


class Array:
    """An array says what it is, how it lies in the memories of the ranks, and how on disk.

    Parameters
    ----------
    name : str
        Its name in the Zarr group; the stem of part files.
    shape : int or sequence of int
        Extents of the whole array, elements. For an array of a `Group` the first may be None:
        then it has another extent at each timestep and checkpoint, the sum of the rows that the
        ranks bring, and the local array of a rank has as many rows as it has then.
    dtype : str, list or numpy.dtype
        Any of bool, i1 to i8, u1 to u8, f2, f4, f8, c8, c16, and records: a numpy.dtype with
        fields of these, of records, or of small arrays of them, or the list that makes one, as
        `[("x", "f8"), ("id", "i4")]`. Memory with padding between fields is copied.
    memory : Distribution, Boxes, list of Boxes, Runs or Strided, optional
        Which rank holds what. Default: rank 0 holds everything. With `Runs` or `Strided` each rank
        gives a list of its own.
    disk : Chunks, RowMajor or Distribution, optional
        How it is stored. Default: natural chunking, that is as in memory, each rank's share one
        chunk of a Zarr array (Seamons et al., SC'95, section 2). `CYCLIC` dimensions have as many
        chunks as if they were `BLOCK`; an array held in boxes has chunks of the largest box's
        extents (`Chunks("shares")`: of each box's own), and one held in lists chunks of whole rows,
        of about 1 MiB.
    dims : sequence of str, optional
        Names of the dimensions. Default, in a Zarr array: made up of the array's name, for xarray
        wants some.
    attrs : mapping, optional
        Attributes: what JSON can hold, and NumPy's scalars. `Session.write` adds to them.
    fill_value : scalar or tuple, optional
        The value of elements that nobody has written; of a record a tuple with a value for each
        field, or 0. Default: zero.

    Attributes
    ----------
    name, shape, dtype, memory, disk, dims, attrs, fill_value
        The parameters, with their defaults filled in: `shape` and `dims` are tuples, `dtype` a
        numpy.dtype, and `fill_value` a scalar of that dtype.

    Raises
    ------
    SchemaError, UnsupportedError
        When the parts do not fit together. A mesh that does not fit the number of ranks, and a
        disk schema that does not fit the array, are found when the array is used.

    Notes
    -----
    An array does not change: `with_memory` and `with_disk` give others.
    """

    name: str
    shape: tuple[int | MaybeNone, ...]
    dtype: np.dtype[Any]
    memory: Memory | None
    disk: Disk | None
    dims: tuple[str, ...] | None
    attrs: Mapping[str, Any]
    fill_value: np.generic | None

    def __init__(
        self,
        name: str,
        shape: SupportsIndex | Iterable[SupportsIndex | None],
        dtype: npt.DTypeLike,
        memory: Memory | None = None,
        disk: Disk | None = None,
        dims: Iterable[str] | None = None,
        attrs: Attributes | None = None,
        fill_value: complex | np.generic | tuple[Any, ...] | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise schema_error(f"an array's name is a string, not {type_name(name)}")
        try:
            element = np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise schema_error(f"the dtype of '{name}': {error}") from error
        if _records.overlaps(element):
            raise schema_error(f"the dtype of '{name}' has fields that overlap")
        extents, is_ragged = _array_shape(shape)
        self.__dict__.update(
            name=name,
            # The None of an array of rows is no integer: shapes of all others are of integers.
            shape=(None, *extents[1:]) if is_ragged else extents,
            dtype=element,
            memory=_memory(memory, extents, is_ragged),
            disk=disk,
            dims=_dims(dims),
            attrs=dict(attrs or {}) if isinstance(attrs, Mapping | None) else attrs,
            fill_value=_fill_value(name, element, fill_value),
        )
        if disk is not None and not isinstance(disk, Disk):
            raise schema_error(
                f"a disk schema is Chunks, RowMajor, HDF5, NetCDF or a Distribution, not "
                f"{type_name(disk)}"
            )
        self._spec  # noqa: B018 - to find what does not fit now

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Array does not change: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an Array does not change: cannot delete {name!r}")

    @property
    def _is_ragged(self) -> bool:
        """Whether the first extent is another at each moment."""
        return bool(self.shape) and self.shape[0] is None

    @property
    def _has_several(self) -> bool:
        """Whether a rank brings a list of local arrays."""
        if isinstance(self.memory, Regions):
            return self.memory.is_list
        return isinstance(self.memory, Sequence)

    @property
    def _is_listed(self) -> bool:
        """Whether ranks hold lists of elements."""
        return isinstance(self.memory, Elements | ListRegion)

    @cached_property
    def _spec(self) -> _core.Spec:
        return self._spec_with({})

    def _spec_with(self, attrs: Attributes) -> _core.Spec:
        dims = len(self.shape)
        memory: _core._Memory | None
        if self._is_ragged:
            memory = None
        elif isinstance(self.memory, Distribution):
            memory = self.memory._memory(dims)
        elif isinstance(self.memory, Regions):
            memory = _boxes(self.memory.boxes, dims, True)
        elif isinstance(self.memory, ListRegion):
            memory = (list_argument(self.memory.elements), True)
        elif isinstance(self.memory, Elements):
            memory = (list_argument(self.memory), False)
        else:
            boxes = [self.memory] if isinstance(self.memory, Boxes) else self.memory
            memory = _boxes(boxes or [], dims, False)
        return _core.Spec(
            self.name,
            [extent or 0 for extent in self.shape],
            _records.word(self.dtype),
            memory,
            ("natural",) if self.disk is None else self.disk._disk(),
            None if self.dims is None else list(self.dims),
            attributes({**self.attrs, **attrs} if attrs else self.attrs),
            self._fill,
        )

    @property
    def _fill(self) -> bytes | None:
        """The bytes of the fill value, where there is one."""
        return None if self.fill_value is None else _records.element_bytes(self.fill_value)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Say the shape of the local array of `rank`.

        Parameters
        ----------
        rank : int
            A rank of the session, from 0 on.

        Returns
        -------
        tuple of int
            One extent for each dimension, elements, with the halo; a rank that holds nothing has a
            0 in it. The local array of a list has one dimension.

        Raises
        ------
        SchemaError
            Where the memory schema is a list of boxes: see `local_shapes`. For an array of rows,
            and a rank holds as many as it brings.

        Notes
        -----
        Not collective.
        """
        return self._only(self.local_shapes(rank))

    def local_shapes(self, rank: int) -> list[tuple[int, ...]]:
        """Say the shapes of the local arrays of `rank`.

        Parameters
        ----------
        rank : int
            A rank of the session, from 0 on.

        Returns
        -------
        list of tuple of int
            One shape as of `local_shape`, or one for each box of a list of boxes.

        Raises
        ------
        SchemaError
            For an array of rows, and a rank holds as many as it brings.

        Notes
        -----
        Not collective.
        """
        if self._is_ragged:
            raise schema_error(f"a rank holds as many rows of '{self.name}' as it brings")
        return [tuple(shape) for shape in self._spec.local_shapes(rank)]

    def local_slices(self, rank: int) -> tuple[slice | np.ndarray, ...]:
        """Say which part of the whole array `rank` holds, without the halo.

        Parameters
        ----------
        rank : int
            A rank of the session, from 0 on.

        Returns
        -------
        tuple of slice or numpy.ndarray
            For each dimension a slice of the whole array, or an array of indices where a slice
            cannot say it (as of CYCLIC(4)). With `numpy.ix_` over `numpy.arange(n)[s]` for each
            dimension, it is the part of the whole array that is local.

        Raises
        ------
        SchemaError
            Where the memory schema is a list of boxes, or Runs or Strided.

        Notes
        -----
        Not collective.
        """
        return tuple(
            slice(*words) if len(words) == 3 else _comb(*words)
            for words in self._only(self._spec.local_slices(rank))
        )

    def _only(self, shares: Sequence[T]) -> T:
        if self._has_several:
            raise schema_error(f"the memory schema of '{self.name}' is a list of boxes")
        return shares[0]

    def with_memory(self, memory: Memory) -> Array:
        """Give the same array on disk, distributed otherwise in memory.

        Parameters
        ----------
        memory : Distribution, Boxes, list of Boxes, Runs or Strided
            Which rank holds what.

        Returns
        -------
        Array
            Another array; this one does not change.

        Raises
        ------
        SchemaError
            When the memory schema does not fit.

        Notes
        -----
        Not collective.
        """
        return self._with(memory=memory)

    def with_disk(self, disk: Disk | None) -> Array:
        """Give the same array in memory, stored otherwise.

        Parameters
        ----------
        disk : Chunks, RowMajor, HDF5, NetCDF, Distribution or None
            How it is stored; None is natural chunking.

        Returns
        -------
        Array
            Another array; this one does not change.

        Raises
        ------
        SchemaError
            When the disk schema does not fit.

        Notes
        -----
        Not collective.
        """
        return self._with(disk=disk)

    def _with(self, **changes: Any) -> Array:
        return type(self)(**{**self._fields(), **changes})

    def _fields(self) -> dict[str, Any]:
        names = ("name", "shape", "dtype", "memory", "disk", "dims", "attrs", "fill_value")
        return {name: getattr(self, name) for name in names}

    def _key(self) -> tuple[Any, ...]:
        """What makes two arrays the same."""
        return (
            self.name,
            self.shape,
            self.dtype.str if self.dtype.names is None else self.dtype,
            self.memory,
            self.disk,
            self.dims,
            attributes(self.attrs),
            self._fill,
        )

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Array) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        words = [repr(self.name), f"shape={self.shape}", f"dtype={_shown_dtype(self.dtype)}"]
        for name in ("memory", "disk", "dims", "attrs", "fill_value"):
            value = getattr(self, name)
            is_default = value is None or (name == "attrs" and not value)
            if not is_default:
                words.append(f"{name}={value!r}")
        return f"Array({', '.join(words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._fields(),)

    @classmethod
    def _of_disk(cls, described: _core._Described) -> Self:
        element = _records.dtype_of(described["dtype"])
        fill = bytes(described["fill"])
        return cls(
            described["name"],
            tuple(described["shape"]),
            element,
            None,
            _disk(described["disk"]),
            described["dims"],
            json.loads(described["attributes"]),
            np.frombuffer(fill, element)[0] if fill else None,
        )


def _shown_dtype(dtype: np.dtype[Any]) -> str:
    """A dtype as a program writes it."""
    return repr(dtype.name) if dtype.names is None else str(dtype)


def _disk(words: _core._Disk) -> Disk | None:
    """A disk schema from its words."""
    if words[0] == "chunks":
        _, chunk, subchunks, codec = words
        return Chunks(chunk, subchunks, codec)
    if words[0] == "shares":
        _, subchunks, codec = words
        return Chunks("shares", subchunks, codec)
    if words[0] == "parts":
        _, dists, mesh = words
        return Distribution(dists, mesh)
    if words[0] == "hdf5":
        _, dataset, chunks, filters, is_netcdf = words
        return (NetCDF if is_netcdf else HDF5)(chunks, dataset, filters)
    return None if words[0] == "natural" else RowMajor(words[0])


def _made(fields: dict[str, Any]) -> Array:
    """An array of these fields: for pickle."""
    return Array(**fields)


@dataclasses.dataclass(frozen=True)
class Regions:
    """Regions are a rank's boxes where a call is about the boxes alone."""

    boxes: tuple[Boxes, ...]
    is_list: bool


@dataclasses.dataclass(frozen=True)
class ListRegion:
    """A list region is a rank's list where a call is about the lists alone."""

    elements: Elements


def _array_shape(shape: Any) -> tuple[tuple[int, ...], bool]:
    """Extents, and whether the first is another at each moment: then it is 0."""
    if isinstance(shape, Iterable) and not isinstance(shape, str):
        shape = tuple(shape)
        if shape and shape[0] is None:
            return (0, *_extents("an array's shape", shape[1:])), True
    return _extents("an array's shape", shape), False


def _memory(
    memory: Memory | Regions | ListRegion | None, shape: tuple[int, ...], is_ragged: bool
) -> Memory | Regions | ListRegion | None:
    """A memory schema, the default where there is none."""
    if is_ragged:
        if memory is not None:
            raise schema_error("an array of rows has no memory schema: each rank brings its rows")
        return None
    if memory is None:
        return Distribution(",".join("*" * len(shape)), ())
    if isinstance(memory, Sequence) and not isinstance(memory, str):
        memory = tuple(memory)
        if all(isinstance(box, Boxes) for box in memory):
            return memory
        raise schema_error("a memory schema that is a list is one of Boxes")
    if not isinstance(memory, Distribution | Boxes | Regions | ListRegion | Runs | Strided):
        raise schema_error(
            "a memory schema is a Distribution, Boxes, a list of Boxes, Runs or Strided, not "
            f"{type_name(memory)}"
        )
    return memory


def _dims(dims: Iterable[str] | None) -> tuple[str, ...] | None:
    if dims is None:
        return None
    if isinstance(dims, str) or not isinstance(dims, Iterable):
        raise schema_error(f"dims is a sequence of names, not {shown(dims)}")
    return tuple(map(str, dims))


def _fill_value(name: str, dtype: np.dtype[Any], value: object) -> np.generic | None:
    """A fill value as a scalar of the array's type."""
    if value is None:
        return None
    if dtype.names is not None:
        made: np.ndarray = np.zeros((), dtype)
        _fill_fields(name, made, value)
        record: np.generic = made.flat[0]
        return record
    wrong = f"the fill value of '{name}' is no {dtype.name}: {shown(value)}"
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            filled = np.asarray(value).astype(dtype, casting="unsafe")
        fits = filled.shape == () and _is_same(filled, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise schema_error(wrong) from error
    if not fits:
        raise schema_error(wrong)
    scalar: np.generic = filled.flat[0]
    return scalar


def _fill_fields(name: str, record: np.ndarray, value: object) -> None:
    """Fills a record with a value: a tuple with one for each field, another record, or 0."""
    dtype = record.dtype
    names: tuple[str, ...] = dtype.names or ()
    fields: Mapping[str, Any] = dtype.fields or {}
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, int | np.integer) and value == 0:
        return
    if isinstance(value, np.void):
        value = tuple(value[field] for field in value.dtype.names or ())
    if not isinstance(value, tuple) or len(value) != len(names):
        raise schema_error(
            f"the fill value of '{name}' is no tuple of {len(names)} values: {shown(value)}"
        )
    for field, part in zip(names, value, strict=True):
        own, label = record[field], f"{name}.{field}"
        kind = fields[field][0]
        if kind.names is not None:
            _fill_fields(label, own, part)
        elif kind.subdtype is None:
            record[field] = _fill_value(label, kind, part)
        else:
            _fill_small_array(label, own, part)


def _fill_small_array(name: str, own: np.ndarray, value: object) -> None:
    """Fills a field that is an array: with one value, or with as many as it has."""
    try:
        parts = np.broadcast_to(np.asarray(value), own.shape)
    except ValueError as error:
        raise schema_error(
            f"the fill value of '{name}' is not of shape {own.shape}: {shown(value)}"
        ) from error
    for index in np.ndindex(own.shape):
        if own.dtype.names is None:
            own[index] = _fill_value(name, own.dtype, parts[index])
        else:
            _fill_fields(name, own[(*index, ...)], parts[index])


def _is_same(filled: np.ndarray, value: object) -> bool:
    """Whether nothing is lost but digits of a number with a point."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    is_complex = isinstance(value, complex | np.complexfloating)
    if filled.dtype.kind == "f":
        return is_number
    if filled.dtype.kind == "c":
        return is_number or is_complex
    return (is_number or isinstance(value, np.bool_)) and bool(filled == value)
