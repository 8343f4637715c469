"""Work at the servers: what ranks ask for, and what they get."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator
from types import EllipsisType
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock import _core
from penstock._errors import schema_error, shown
from penstock._records import packed
from penstock._report import Report
from penstock._schema import Array, BoxRegion, Region, bounds_of, halo_of, regions_of
from penstock._types import Along, Extents


@dataclasses.dataclass(frozen=True)
class Selection:
    """A selection is the elements of one rank that satisfy a condition: `Session.select` gives it.

    It unpacks into its first two attributes: `indices, values = s.select(...)`.

    Attributes
    ----------
    indices : numpy.ndarray
        The indices of the elements in the array, int64, of shape (n, dimensions), in row-major
        order.
    values : numpy.ndarray
        The elements, of shape (n,) and the array's dtype; if fields were named, records of them.
    report : Report
        Bytes and seconds, and what the servers moved: `bytes` are those that they sent to all
        ranks, `transfers` the messages.
    splitters : numpy.ndarray, optional
        The splitters by which elements were dealt out, float64, if there were some: those that were
        given, or drawn from a sample.
    """

    indices: np.ndarray
    values: np.ndarray
    report: Report
    splitters: np.ndarray | None = None

    def __iter__(self) -> Iterator[np.ndarray]:
        """Give the indices, and then the values."""
        return iter((self.indices, self.values))


def kept_dims(array: Array, over: Along | Iterable[Along] | None) -> list[int]:
    """The dimensions of `array` that a reduction over `over` keeps.

    Raises
    ------
    SchemaError
        When there is no such dimension.
    """
    dims = len(array.shape)
    if over is None:
        return []
    several = over if isinstance(over, Iterable) and not isinstance(over, str) else [over]
    reduced = {_dim(array, each) for each in several}
    return [dim for dim in range(dims) if dim not in reduced]


def _dim(array: Array, along: object) -> int:
    """The number of a dimension."""
    dims = len(array.shape)
    if isinstance(along, str):
        if array.dims is None or along not in array.dims:
            raise schema_error(
                f"'{array.name}' has no dimension {along!r}: its dims are {array.dims}"
            )
        return array.dims.index(along)
    try:
        number = operator.index(along)  # type: ignore[arg-type]
    except TypeError as error:
        raise schema_error(f"a dimension is a name or a number, not {shown(along)}") from error
    if not -dims <= number < dims:
        raise schema_error(f"'{array.name}' has no dimension {number}: it has {dims}")
    return number % dims


def edges_of(how: str, bins: npt.ArrayLike | None) -> list[float]:
    """The edges of a histogram's bins; none for other reductions.

    Raises
    ------
    SchemaError
        When edges are given for nothing, or missing, or are no sequence of real numbers.
    """
    if bins is None:
        if how == "histogram":
            raise schema_error("a histogram needs bins: the edges, one more than bins")
        return []
    if how != "histogram":
        raise schema_error(f"bins are for a histogram, not for {shown(how)}")
    return _floats("bins are edges,", bins)


def field_names(fields: Iterable[str]) -> list[str]:
    """The names of fields.

    Raises
    ------
    SchemaError
        When they are no sequence of strings.
    """
    names = [fields] if isinstance(fields, str) else list(fields)
    for name in names:
        if not isinstance(name, str):
            raise schema_error(f"fields are names, not {shown(name)}")
    return names


def key_of(
    by: str | None, splitters: npt.ArrayLike | Literal["sampled"] | None
) -> tuple[str, list[float] | Literal["sampled"] | None] | None:
    """What names the rank of an element: an expression and splitters; nothing without `by`.

    Raises
    ------
    SchemaError
        When `by` is no string, or splitters no sequence of real numbers.
    """
    if by is None:
        if splitters is not None:
            raise schema_error("splitters are of `by`, which is not given")
        return None
    if not isinstance(by, str):
        raise schema_error(f"by is an expression, a string, not {shown(by)}")
    if isinstance(splitters, str):
        if splitters != "sampled":
            raise schema_error(f'splitters are numbers or "sampled", not {shown(splitters)}')
        return by, "sampled"
    return by, None if splitters is None else _floats("splitters are", splitters)


def _floats(words: str, numbers: npt.ArrayLike) -> list[float]:
    """A sequence of real numbers."""
    try:
        floats = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise schema_error(f"{words} real numbers: {error}") from error
    if floats.ndim != 1:
        raise schema_error(f"{words} a sequence of real numbers")
    return [float(each) for each in floats]


def box_of(array: Array, region: BoxRegion | None) -> tuple[list[int], list[int]]:
    """The start and the extents of a region of `array`, of all of it without one."""
    start, shape = bounds_of(() if region is None else region, array.shape)
    return list(start), list(shape)


def steps_of(array: Array, every: Extents) -> list[int]:
    """The distance from one element to the next along each dimension of a thinned array.

    Raises
    ------
    SchemaError
        When there are more or fewer than dimensions, or one is not positive.
    """
    dims = len(array.shape)
    try:
        steps = (
            [operator.index(each) for each in every]
            if isinstance(every, Iterable)
            else [operator.index(every)] * dims
        )
    except TypeError as error:
        raise schema_error(f"every is integers, not {shown(every)}") from error
    if len(steps) != dims or any(not 0 < step < 2**63 for step in steps):
        raise schema_error(
            f"every is a positive integer for each dimension of '{array.name}', which has {dims}, "
            f"not {shown(every)}"
        )
    return steps


class ThinnedPart:
    """A rank's part of a thinned array.

    It is read into `flat`, a local array of one dimension with one box behind the other and without
    halos; `fill` copies it to local arrays of `array`, which is the thinned one.
    """

    def __init__(
        self,
        array: Array,
        spec: _core.Spec,
        every: list[int],
        region: Region | None,
        seat: tuple[int | None, int],
    ) -> None:
        rank, size = seat
        if rank is None:
            raise schema_error("this rank is a dedicated server: it makes no calls")
        shape = tuple(-(-extent // step) for extent, step in zip(array.shape, every, strict=True))
        memory = array.memory if region is None else regions_of(region, shape)
        self.array = array._with(shape=shape, memory=memory, disk=None)
        self.spec = spec.thinned(every, self.array._spec, rank, size)
        self.flat = np.empty(self.spec.local_shapes(rank)[0], packed(array.dtype))
        self._shapes = self.array.local_shapes(rank)

    def check(self, parts: list[np.ndarray]) -> None:
        """Check that the part can be copied to these local arrays.

        Raises
        ------
        SchemaError
            When it cannot.
        """
        shapes = [part.shape for part in parts]
        if shapes != self._shapes:
            raise schema_error(f"out has the shapes {shapes}, and this rank holds {self._shapes}")
        for part in parts:
            if part.dtype != self.array.dtype or not part.flags.writeable:
                raise schema_error(
                    f"out is {part.dtype}, writable: {part.flags.writeable}; it must be a writable "
                    f"array of {self.array.dtype}"
                )

    def fill(self, parts: list[np.ndarray]) -> None:
        """Copy the part to local arrays, without their halos."""
        held = [part[self._without_halo(part.shape)] for part in parts]
        if self.flat.size < sum(part.size for part in held):
            return  # an array without dimensions, which another rank holds
        start = 0
        for part in held:
            part[...] = self.flat[start : start + part.size].reshape(part.shape)
            start += part.size

    def _without_halo(self, shape: tuple[int, ...]) -> tuple[slice | EllipsisType, ...]:
        halo = halo_of(self.array)
        if 0 in shape or not halo:
            return (...,)
        pairs = zip(shape, halo, strict=True)
        return tuple(slice(below, extent - above) for extent, (below, above) in pairs)
