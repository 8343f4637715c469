"""This module holds the types that several public signatures share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

MaybeNone: TypeAlias = Any
"""`int | MaybeNone` is an int in nearly every program, and None in a case that the documentation
names. A type checker then lets programs use it as an int, and still refuses it as a string."""

MaybeList: TypeAlias = Any
"""`np.ndarray | MaybeList` is one local array, or a list of them where the array's memory schema is
a list of boxes: the type of an `Array` does not say which."""

Path: TypeAlias = str | os.PathLike[str]

Progress: TypeAlias = Callable[[int, int], object]
"""A callable that takes the bytes that are done, and all that there are."""

Attributes: TypeAlias = Mapping[str, object]
"""Attributes by name: their values are what JSON can hold, and NumPy's scalars and arrays."""

Extents: TypeAlias = SupportsIndex | Iterable[SupportsIndex]
"""One extent, or one for each dimension."""

MaybeEdges: TypeAlias = Any
"""`int | MaybeEdges` is an int where all chunks have one extent, and a tuple of ints where each has
its own: a type checker then lets programs use it as an int."""

ChunkEdges: TypeAlias = SupportsIndex | Iterable[SupportsIndex | Iterable[SupportsIndex]]
"""One extent, or for each dimension one extent or the extents of all chunks."""

Halo: TypeAlias = int | Sequence[int | Sequence[int]]
"""A width for all dimensions, or for each dimension a width or (below, above)."""

Strategy: TypeAlias = Literal[
    "disk-directed",
    "two-phase",
    "two-phase:1",
    "two-phase:2",
    "two-phase:3",
    "two-phase:4",
    "two-phase:5",
    "caching",
    "independent",
]
Transport: TypeAlias = Literal["shared", "messages"]
Background: TypeAlias = Literal["all", "disk", "none"]
Operation: TypeAlias = Literal["write", "read"]
How: TypeAlias = Literal["min", "max", "mean", "sum", "count", "histogram"]

Along: TypeAlias = str | SupportsIndex
"""A dimension, by its name or its number."""


class HasArray(Protocol):
    """Objects with this method give NumPy their elements, as an xarray.DataArray does."""

    def __array__(self) -> np.ndarray: ...


class HasArrayInterface(Protocol):
    """Objects with this attribute tell NumPy where their elements are."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class HasBuffer(Protocol):
    """Objects with this method lend their memory, as a memoryview does."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


LocalArray: TypeAlias = np.ndarray | HasArray | HasArrayInterface | HasBuffer
"""A local array, or what `numpy.asarray` makes one of without a copy."""

Local: TypeAlias = LocalArray | Sequence[LocalArray]
"""The local array of a rank, or a list of them where it holds several boxes."""

Dims: TypeAlias = str | Iterable[str]
Coordinate: TypeAlias = (
    npt.ArrayLike | tuple[Dims, npt.ArrayLike] | tuple[Dims, npt.ArrayLike, Attributes]
)
"""Values of a static variable, with its dimensions and attributes if they are not the default."""
