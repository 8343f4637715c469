"""Records: dtypes with fields, as NumPy has them in memory and as Penstock's core takes them.

The core knows packed records alone: fields one behind the other, as in `np.dtype([("x", "f8"),
("id", "i4")])`. Memory with other dtypes, such as those of `align=True`, goes through a packed
copy.
"""

from __future__ import annotations

import ast
import operator
from typing import Any

import numpy as np


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same fields one behind the other, also those of records within; other dtypes as they
    are."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed(base), shape))
    if dtype.names is None or dtype.fields is None:
        return dtype
    return np.dtype([(name, packed(dtype.fields[name][0])) for name in dtype.names])


def overlaps(dtype: np.dtype[Any]) -> bool:
    """Whether two fields share bytes, also of records within."""
    if dtype.subdtype is not None:
        return overlaps(dtype.subdtype[0])
    if dtype.names is None or dtype.fields is None:
        return False
    fields = [(dtype.fields[name][1], dtype.fields[name][0]) for name in dtype.names]
    fields.sort(key=operator.itemgetter(0))
    ends = [offset + field.itemsize for offset, field in fields]
    is_shared = any(end > start for end, (start, _) in zip(ends, fields[1:], strict=False))
    return is_shared or any(overlaps(field) for _, field in fields)


def word(dtype: np.dtype[Any]) -> str:
    """A dtype as the core takes it, without padding."""
    return dtype.str if dtype.names is None else repr(packed(dtype).descr)


def dtype_of(text: str) -> np.dtype[Any]:
    """The dtype that the core's word says."""
    return np.dtype(ast.literal_eval(text) if text.startswith("[") else text)


def name(dtype: np.dtype[Any]) -> str:
    """A dtype as people read it."""
    return dtype.name if dtype.names is None else str(dtype)


def is_packed(dtype: np.dtype[Any]) -> bool:
    """Whether the core takes memory of this dtype as it is."""
    return dtype.names is None or dtype == packed(dtype)


def as_packed(array: np.ndarray) -> np.ndarray:
    """The array, or a packed copy of it. Who may not write to it may not write to the copy."""
    if is_packed(array.dtype):
        return array
    copy = array.astype(packed(array.dtype))
    copy.flags.writeable = array.flags.writeable
    return copy


def element_bytes(scalar: np.generic) -> bytes:
    """The bytes of one element as the core takes it."""
    if scalar.dtype.names is None:
        return scalar.tobytes()
    native = packed(scalar.dtype).newbyteorder("=")
    return np.asarray(scalar).astype(native).tobytes()
