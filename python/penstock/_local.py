"""Local arrays: the memory that a rank brings to a call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock._errors import SchemaError, schema_error, type_name
from penstock._lists import flat
from penstock._schema import Array


def parts_of(array: Array, local: object, *, to_fill: bool = False) -> list[np.ndarray]:
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
