"""Indexers of xarray as what is read of a stored array: one box, or a list of elements.

An indexer names a number for each dimension, or a slice with any step, or an array of indices. What
it picks lies in a *hull*, the smallest box with all of it:

    array of shape (6, 10), rows [1, 4], columns 2:9:3

        . . . . . . . . . .
        . . x h h x h h x .      x  picked, 6 elements
        . . h h h h h h h .      h  in the hull, too, which has 4 * 7
        . . h h h h h h h .
        . . x h h x h h x .
        . . . . . . . . . .

A hull that is small, or not much larger than what is picked, is read as a box, and NumPy picks from
it. Of any other hull the elements alone are read, as a list (Kotz, TOCS 1997, section 7.2): that
takes 16 bytes of memory for each run of elements, and never more than what is picked needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock._lists import Runs

HULL_ELEMENTS = 2**20
"""A hull with no more elements is always read as a box: a list would not be faster."""
HULL_FACTOR = 8
"""A larger hull is read as a box if it has no more than this multiple of the picked elements."""

Key: TypeAlias = tuple[Any, ...]
Region: TypeAlias = tuple[slice, ...] | Runs
Reader: TypeAlias = Callable[[Region], np.ndarray]
Places: TypeAlias = npt.NDArray[np.intp]


def outer(key: Key, shape: Sequence[int], stored: Sequence[int], read: Reader) -> np.ndarray:
    """The elements at the outer product of the indices of each dimension.

    Parameters
    ----------
    key : tuple
        For each dimension an integer, which the result has no dimension for, a slice, or an array
        of integers of one dimension.
    shape : sequence of int
        Extents of the array, which the key is about.
    stored : sequence of int
        Extents of the array as it is stored, which may be larger: an array may have grown.
    read : callable
        Gives the elements of a region: of a box in its shape, of a list in one dimension.
    """
    axes = [_indices(part, extent) for part, extent in zip(key, shape, strict=True)]
    kept = tuple(
        len(axis) for axis, part in zip(axes, key, strict=True) if not isinstance(part, _INTEGERS)
    )
    if any(len(axis) == 0 for axis in axes):
        return _empty(kept, read, len(shape))
    if all(map(_is_range, axes)):
        return read(_hull(axes)[0]).reshape(kept)
    if _reads_hull(axes, math.prod(map(len, axes))):
        box, rest = _hull(axes)
        return read(box)[np.ix_(*rest)].reshape(kept)
    return read(_product(axes, stored)).reshape(kept)


def vectorized(key: Key, shape: Sequence[int], stored: Sequence[int], read: Reader) -> np.ndarray:
    """The elements at points, by the rules that NumPy once proposed as `vindex`.

    Parameters
    ----------
    key : tuple
        For each dimension an array of integers, all of them of shapes that broadcast, or a slice.
        The result has the dimensions of the arrays first, and then one for each slice.
    shape, stored, read
        As of `outer`.
    """
    points: list[Places] = []
    slices: list[Places] = []
    for part, extent in zip(key, shape, strict=True):
        (slices if isinstance(part, slice) else points).append(_indices(part, extent))
    common = np.broadcast_shapes(*(point.shape for point in points))
    axes, sliced = [], 0
    for part, extent in zip(key, shape, strict=True):
        indices = _indices(part, extent)
        if isinstance(part, slice):
            place = [1] * (len(common) + len(slices))
            place[len(common) + sliced] = len(indices)
            axes.append(indices.reshape(place))
            sliced += 1
        else:
            axes.append(indices.reshape(indices.shape + (1,) * len(slices)))
    picked = np.broadcast_shapes(*(axis.shape for axis in axes))
    if math.prod(picked) == 0:
        return _empty(picked, read, len(shape))
    if _reads_hull(axes, math.prod(picked)):
        box, rest = _hull(axes)
        return read(box)[tuple(rest)]
    offsets = _offsets(axes, stored).reshape(-1)
    return read(Runs(offsets, 1)).reshape(picked)


_INTEGERS = (int, np.integer)


def _indices(part: Any, extent: int) -> Places:
    """What one part of a key says, as indices from 0 on."""
    if isinstance(part, slice):
        return np.arange(*part.indices(extent), dtype=np.intp)
    indices = np.atleast_1d(np.asarray(part)).astype(np.intp)
    wrong = indices[(indices < -extent) | (indices >= extent)]
    if wrong.size:
        raise IndexError(f"index {wrong[0]} is out of bounds for a dimension of {extent}")
    return np.where(indices < 0, indices + extent, indices)


def _empty(shape: tuple[int, ...], read: Reader, dims: int) -> np.ndarray:
    """No elements, of the array's type."""
    return read((slice(0, 0),) * dims).reshape(-1)[:0].reshape(shape)


def _is_range(axis: Places) -> bool:
    """Whether each index is the one before and 1."""
    return bool((np.diff(axis) == 1).all())


def _reads_hull(axes: Sequence[Places], picked: int) -> bool:
    elements = math.prod(int(axis.max()) - int(axis.min()) + 1 for axis in axes)
    return elements <= max(HULL_ELEMENTS, HULL_FACTOR * picked)


def _hull(axes: Sequence[Places]) -> tuple[tuple[slice, ...], list[Places]]:
    """The smallest box with all indices, and the indices from its start."""
    starts = [int(axis.min()) for axis in axes]
    box = tuple(slice(start, int(axis.max()) + 1) for axis, start in zip(axes, starts, strict=True))
    return box, [axis - start for axis, start in zip(axes, starts, strict=True)]


def _product(axes: Sequence[Places], shape: Sequence[int]) -> Runs:
    """The outer product of indices as runs of one length, as long as the last dimensions allow."""
    length, first = 1, len(axes)
    while first > 0 and _is_range(axes[first - 1]):
        first -= 1
        length *= len(axes[first])
        if len(axes[first]) < shape[first]:
            break
    starts = [*axes[:first], *(axis[:1] for axis in axes[first:])]
    return Runs(_offsets(np.ix_(*starts), shape).reshape(-1), length)


def _offsets(axes: Sequence[Places], shape: Sequence[int]) -> npt.NDArray[np.uint64]:
    """The numbers of elements in C order, of indices that broadcast."""
    total: npt.NDArray[np.uint64] = np.zeros((), np.uint64)
    stride = math.prod(shape)
    for axis, extent in zip(axes, shape, strict=True):
        stride //= extent
        total = total + axis.astype(np.uint64) * np.uint64(stride)
    return total
