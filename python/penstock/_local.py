"""Local arrays: the memory that a rank brings to a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._errors import SchemaError, schema_error, type_name
from penstock._lists import flat
from penstock._records import as_packed
from penstock._schema import Array, array_argument


@dataclasses.dataclass(frozen=True)
class Room:
    """A room is memory that a call fills: the program's own, or packed copies of records that have
    padding there."""

    parts: list[np.ndarray]
    own: list[np.ndarray]

    @classmethod
    def of(cls, own: list[np.ndarray]) -> Room:
        """The room of a program's arrays."""
        return cls([as_packed(part) for part in own], own)

    def settle(self) -> None:
        """Bring what the call has filled to the program's arrays."""
        for part, own in zip(self.parts, self.own, strict=True):
            if part is not own:
                own[...] = part


def parts_of(array: Array, local: object) -> list[np.ndarray]:
    """A rank's local arrays as a call takes them, in place where records have no padding.

    Raises
    ------
    SchemaError
        When they are not what they should be.
    """
    return [as_packed(part) for part in own_parts(array, local)]


def stored_as(array: Array, dtype: npt.DTypeLike) -> Array:
    """The array as it is stored with another dtype.

    Raises
    ------
    SchemaError
        When it is no array or no dtype, or another kind that loses by it.
    """
    array = array_argument(array)
    try:
        to = np.dtype(dtype)
        is_fit = np.can_cast(array.dtype, to, "same_kind")
    except (TypeError, ValueError) as error:
        raise schema_error(f"dtype is no dtype: {error}") from error
    if not is_fit:
        raise schema_error(
            f"'{array.name}' is of {array.dtype}, which cannot be stored as {to}: convert it"
        )
    return array if to == array.dtype else array._with(dtype=to)


def converted(
    parts: list[np.ndarray], given: np.dtype[Any], stored: np.dtype[Any]
) -> list[np.ndarray]:
    """A rank's local arrays of dtype `given`, as the dtype `stored`.

    Raises
    ------
    SchemaError
        When they are of another dtype.
    """
    for part in parts:
        if part.dtype != given:
            raise schema_error(f"the local array is of {part.dtype}, and the array of {given}")
    return [part.astype(stored) for part in parts]


def own_parts(array: Array, local: object, *, to_fill: bool = False) -> list[np.ndarray]:
    """A rank's local arrays, in place: one, or one for each of its boxes.

    Raises
    ------
    SchemaError
        When they are not what they should be.
    """
    if array._is_listed:
        return [flat(in_place(local, to_fill=to_fill))]
    if not array._has_several:
        return [in_place(local, to_fill=to_fill)]
    if isinstance(local, np.ndarray) or not isinstance(local, Sequence):
        raise schema_error(
            f"'{array.name}' is held in boxes: give a list of local arrays, not {type_name(local)}"
        )
    return [in_place(part, to_fill=to_fill) for part in local]


def new_parts(array: Array, rank: int | None) -> list[np.ndarray]:
    """New local arrays of zeros for what `rank` holds.

    Raises
    ------
    SchemaError
        When this rank is a dedicated server.
    """
    if rank is None:
        raise schema_error("this rank is a dedicated server: it makes no calls")
    return [np.zeros(shape, array.dtype) for shape in array.local_shapes(rank)]


def in_place(local: object, *, to_fill: bool = False) -> np.ndarray:
    """The memory of a local array as one of NumPy's."""
    if isinstance(local, np.ma.MaskedArray):
        raise schema_error("a masked array cannot be moved: give its filled() or its data")
    if isinstance(local, np.ndarray):
        return local
    try:
        array = np.asarray(local, copy=False)
        is_own = array.size == 0 or np.shares_memory(array, np.asarray(local, copy=False))
    except Exception as error:  # the type of `local` may raise anything
        raise _not_in_place(local, to_fill) from error
    if not is_own:
        raise _not_in_place(local, to_fill)
    return array


def _not_in_place(local: object, to_fill: bool) -> SchemaError:
    purpose = "read into" if to_fill else "written"
    return schema_error(
        "a local array is one of NumPy's, or what numpy.asarray takes without a copy: a "
        f"{type_name(local)} cannot be {purpose} in place"
    )
