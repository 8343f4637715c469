"""Variables of a data set as they are stored: by xarray's own encoders of the CF conventions.

Ranks encode their parts each by itself, and the result must be of one type, with one set of
attributes. Times are the only values that xarray stores in units which it finds by looking at them:
there the ranks agree on units first. A variable that is not in memory is encoded piece by piece, in
units that do not depend on its values.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import re
import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from xarray import Dataset, Variable
from xarray.conventions import encode_cf_variable, encode_dataset_coordinates

from penstock._errors import MismatchError, UnsupportedError, error_of, schema_error, shown
from penstock._group import _UNITS
from penstock._json import attributes
from penstock._xarray_parts import Ranks
from penstock._xarray_store import FILL

Form: TypeAlias = Literal["zarr", "hdf5", "netcdf"]
"""What sort of store is written."""

UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
"""Units of times, from the coarsest to the finest."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """Stored is what a variable is in the store, the same on all ranks."""

    dims: tuple[str, ...]
    dtype: str
    attrs: str
    """Attributes as JSON, but for those that only HDF5 has a type for."""
    fill_value: bytes | None
    """The fill value as one element."""


class Encoder:
    """An encoder makes pieces of one variable, as this rank has it, into what is stored.

    Parameters
    ----------
    name : hashable
        The variable's name.
    variable : xarray.Variable
        The variable with its encoding. Each time is in units that are named there, or is in memory
        and the only part that there is.
    form : {"zarr", "hdf5", "netcdf"}
        What it is stored in.
    """

    def __init__(self, name: Hashable, variable: Variable, form: Form) -> None:
        self.name, self.variable, self.form = name, variable, form
        self.is_lazy = is_lazy(variable)
        if self.is_lazy:
            sample = variable[(slice(0, 0),) * variable.ndim]
            self._whole: Variable | None = None
            encoded = _encoded(name, sample, form)
        else:
            encoded = self._whole = _encoded(name, variable, form)
        self.dtype = encoded.dtype
        self.itemsize: int = max(encoded.dtype.itemsize, variable.dtype.itemsize)
        self.attrs = encoded.attrs
        self.stored = _stored(name, encoded, form)

    def piece(self, region: tuple[slice, ...]) -> np.ndarray:
        """The elements of a part of what this rank has.

        Raises
        ------
        MismatchError
            When it comes out otherwise than the rest.
        """
        if self._whole is not None:
            encoded = self._whole[region]
        else:
            encoded = _encoded(self.name, self.variable[region], self.form)
            if _stored(self.name, encoded, self.form) != self.stored:
                cause = (
                    f"'{self.name}' has values that would be stored otherwise than the rest: as "
                    f"{encoded.dtype} with {encoded.attrs}, and not {self.dtype} with {self.attrs}"
                )
                raise error_of(MismatchError.kind, cause, "encoding")
        values: np.ndarray = encoded.values
        return values


def is_lazy(variable: Variable) -> bool:
    """Whether a variable's values are not in memory yet, and are worth taking piece by piece."""
    return bool(not variable._in_memory and variable.ndim > 0 and variable.dtype.kind in "biufcmM")


def _encoded(name: Hashable, variable: Variable, form: Form) -> Variable:
    """A variable in memory, of numbers, with the attributes by which xarray decodes it."""
    variable = variable.load() if is_lazy(variable) else variable
    encoded = encode_cf_variable(variable.copy(deep=False), name=name)
    if encoded.dtype.kind not in "biufc":
        cause = (
            f"'{name}' is of {variable.dtype}, and Penstock writes numbers, truth values and times "
            f"alone: leave it out by drop_vars({name!r}), or add it with xarray afterwards"
        )
        raise error_of(UnsupportedError.kind, cause, "encoding")
    if form != "netcdf" and variable.dtype.kind == "b" and encoded.attrs.get("dtype") == "bool":
        del encoded.attrs["dtype"]  # Zarr and HDF5 have truth values of their own
        encoded = encoded.astype(bool)
    return encoded.astype(encoded.dtype.newbyteorder("="), copy=False)


def _stored(name: Hashable, encoded: Variable, form: Form) -> Stored:
    attrs = dict(encoded.attrs)
    fill = attrs.get(FILL)
    element = None if fill is None else np.asarray(fill).astype(encoded.dtype).reshape(-1)[:1]
    if element is not None and form == "zarr":
        attrs[FILL] = _zarr_fill(element[0])
    elif element is not None:
        attrs[FILL] = element[0].item()
    for dim in encoded.dims:
        if not isinstance(dim, str):
            raise schema_error(f"dimension {shown(dim)} of {shown(name)} is no string")
    dims = tuple(map(str, encoded.dims))
    bytes_ = None if element is None else element.tobytes()
    return Stored(dims, encoded.dtype.str, attributes(attrs), bytes_)


def _zarr_fill(value: np.generic) -> Any:
    """A `_FillValue` as xarray stores it in Zarr."""
    if value.dtype.kind == "c":
        number = complex(value.item())
        return [_zarr_fill(np.float64(number.real)), _zarr_fill(np.float64(number.imag))]
    if value.dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value.item()))).decode()
    return value.item()


def variables_of(dataset: Dataset) -> tuple[dict[str, Variable], dict[str, Any]]:
    """The variables and attributes of a data set, with CF's attributes that name coordinates.

    Raises
    ------
    SchemaError
        When a name is no string, or none that a store can have.
    """
    variables, attrs = encode_dataset_coordinates(dataset)
    for name in variables:
        if not isinstance(name, str) or not name or "/" in name:
            raise schema_error(f"{shown(name)} cannot be the name of a variable in a store")
    attributes(attrs)
    return {str(name): variable for name, variable in variables.items()}, dict(attrs)


def with_units(ranks: Ranks, variables: Mapping[str, Variable]) -> dict[str, Variable]:
    """Variables whose times are in units that all ranks agree on.

    Notes
    -----
    Collective.
    """
    found = ranks.together(
        "encoding times", lambda: {name: _units(name, var) for name, var in variables.items()}
    )
    chosen = {}
    for name, variable in variables.items():
        encoding = _agreed([each[name] for each in found])
        chosen[name] = variable
        if encoding and (ranks.size > 1 or is_lazy(variable)):
            chosen[name] = variable.copy(deep=False)
            chosen[name].encoding = {**variable.encoding, **encoding}
    return chosen


Units: TypeAlias = dict[str, Any]


def _units(name: str, variable: Variable) -> Units | None:
    """The encoding of a variable of times without units; None where there is nothing to agree on,
    and an empty one where this rank has no values to find it by."""
    if "units" in variable.encoding or "units" in variable.attrs:
        return None
    if is_lazy(variable):
        if variable.dtype.kind not in "mM":
            return None
        unit = _UNITS.get(np.datetime_data(variable.dtype)[0], "seconds")
        since = " since 1970-01-01" if variable.dtype.kind == "M" else ""
        calendar = {"calendar": "proleptic_gregorian"} if since else {}
        return {"units": unit + since, "dtype": np.dtype("i8"), **calendar}
    if not _has_times(variable):
        return {} if variable.dtype.kind == "O" and variable.size == 0 else None
    if variable.size == 0:
        return {}
    encoded = encode_cf_variable(variable.copy(deep=False), name=name)
    found = {key: encoded.attrs[key] for key in ("units", "calendar") if key in encoded.attrs}
    return {**found, "dtype": encoded.dtype}


def _has_times(variable: Variable) -> bool:
    """Whether a variable in memory holds moments or durations, cftime's among them."""
    if variable.dtype.kind in "mM":
        return True
    if variable.dtype.kind != "O" or variable.size == 0:
        return False
    first = variable.values.ravel()[0]
    return hasattr(first, "calendar") or isinstance(first, datetime.date | datetime.timedelta)


def _agreed(found: Sequence[Units | None]) -> Units | None:
    """One encoding for the times of all ranks: the finest units, since the lowest rank's moment."""
    having = [each for each in found if each]
    if not having or all(each == having[0] for each in having):
        return having[0] if having else None
    unit, _, since = having[0]["units"].partition(" since ")
    words = [each["units"].partition(" since ") for each in having]
    unit = max((word for each in words for word in (each[0], _fineness(each[2]))), key=_rank_of)
    dtypes = [each["dtype"] for each in having]
    chosen = {**having[0], "units": f"{unit} since {since}" if since else unit}
    return {**chosen, "dtype": np.result_type(*dtypes)}


def _rank_of(unit: str) -> int:
    return UNITS.index(unit) if unit in UNITS else 0


def _fineness(moment: str) -> str:
    """The unit in which a moment, as units name it, is a whole number since midnight."""
    clock = re.search(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?", moment)
    if clock is None:
        return "days"
    hours, minutes, seconds, rest = clock.groups()
    digits = len((rest or "").rstrip("0"))
    if digits:
        return UNITS[3 + -(-digits // 3)] if digits <= 9 else "nanoseconds"
    for unit, number in (("seconds", seconds), ("minutes", minutes), ("hours", hours)):
        if int(number):
            return unit
    return "days"


def same_on_all(told: Mapping[str, Sequence[Stored]]) -> dict[str, Stored]:
    """What each variable is in the store, as all ranks with a part of it say.

    Raises
    ------
    MismatchError
        When they do not say the same.
    """
    for name, (first, *others) in told.items():
        for other in others:
            if other != first:
                cause = (
                    f"'{name}' comes out as {other.dtype} over {other.dims} with {other.attrs} on "
                    f"one rank, and as {first.dtype} over {first.dims} with {first.attrs} on "
                    "another"
                )
                raise error_of(MismatchError.kind, cause, "encoding")
    return {name: each[0] for name, each in told.items()}
