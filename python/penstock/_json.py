"""Attributes: what JSON can hold, and NumPy's scalars and arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock._errors import schema_error, type_name
from penstock._types import Attributes


def _plain(value: Any) -> Any:
    """What JSON holds in the place of a value that is NumPy's."""
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"{type_name(value)} is nothing that attributes hold")


def attributes(values: Attributes) -> str:
    """Attributes as JSON, not-a-number and infinities as Python writes them.

    Raises
    ------
    SchemaError
        When they are not what attributes can be.
    """
    if not isinstance(values, Mapping):
        raise schema_error(f"attributes are a mapping of names, not {type_name(values)}")
    named = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise schema_error(f"an attribute's name is a string, not {type_name(name)}")
        named[str(name)] = value
    try:
        return json.dumps(named, default=_plain)
    except (TypeError, ValueError) as error:
        raise schema_error(f"attributes: {error}") from error
