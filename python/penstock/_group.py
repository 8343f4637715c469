"""Groups: arrays that are saved together."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from penstock import _core
from penstock._errors import schema_error, shown, type_name
from penstock._json import attributes
from penstock._schema import Array, Distribution, Memory
from penstock._types import Coordinate, Local, MaybeList, Path


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """A group is several arrays that are saved together, through time.

    It is Panda's array group (Seamons et al., SC'95, Figure 2). `Session.timestep`,
    `Session.checkpoint` and `Session.restart` take it.

    Parameters
    ----------
    name : str
        Its name.
    arrays : sequence of Array
        Of any shapes, types and schemas, with different names; `time` and `checkpoints` are taken.
        In a store of Zarr, `RowMajor("raw")` is one chunk, and the parts of a `Distribution` are
        chunks; `disk=None` is natural chunking, and in a store that is there already its chunks.
        If arrays say `HDF5` or `NetCDF`, the group is one file. An array that the store has not yet
        is added; of earlier timesteps it has the fill value.
    path : path
        The store, a Zarr group, or the file; made by the first save.
    keep : int
        How many checkpoints are kept: the newest.
    attrs : mapping, optional
        Attributes of the group, such as its `title`: what JSON can hold, and NumPy's scalars. A
        save sets them; others that are there stay.
    coords : mapping, optional
        Static variables by name, the same on all ranks, without a dimension of time: latitudes,
        names of stations. Each is a one-dimensional array, whose dimension has its name; or
        `(dims, values)` or `(dims, values, attrs)`, as xarray has them; or an xarray variable.
        Values are numbers, strings, or NumPy's moments and durations, which are stored as CF has
        them. They are written once; a store that has others under the name is refused.
    time_attrs : mapping, optional
        Attributes of `time`, such as `units` and `calendar`.
    time_chunk : int, optional
        How many timesteps are in a chunk: more make fewer files, and a write of a chunk that is
        compressed writes all of it again. Default: 1, or as in the store.
    bounds : bool or sequence of str, default False
        The arrays for which saves keep the least and the greatest element of each chunk beside its
        checksum; True is all whose elements have an order. Then `Session.select` does not read
        chunks in which its condition holds nowhere. A store that keeps them goes on with that,
        whatever later groups say; of timesteps before that no bounds are known. Stores of Zarr
        only.

    Raises
    ------
    SchemaError
        When these are not what they should be. `RowMajor("npy")` is refused by the first save.

    Notes
    -----
    `group["u"]` is an array; iterating gives the names.
    """

    name: str
    arrays: Sequence[Array]
    path: Path
    keep: int = 2
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    coords: Mapping[str, Coordinate] = dataclasses.field(default_factory=dict)
    time_attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    time_chunk: int | None = None
    bounds: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        arrays = tuple(self.arrays) if isinstance(self.arrays, Sequence) else (self.arrays,)
        wrong = [array for array in arrays if not isinstance(array, Array)]
        if wrong:
            raise schema_error(f"a group is of Arrays, not of {type_name(wrong[0])}")
        names = [array.name for array in arrays]
        for name in names:
            if name in ("time", "checkpoints") or name.startswith(".") or names.count(name) > 1:
                raise schema_error(
                    f"an array of a group cannot be named {name!r}: taken, hidden or there twice"
                )
        if not arrays:
            raise schema_error(f"the group {self.name!r} has no array")
        for what, count in [("keep", self.keep), ("time_chunk", self.time_chunk)]:
            is_default = what == "time_chunk" and count is None
            if not is_default and (not isinstance(count, int) or count < 1):
                raise schema_error(f"{what} must be an integer of at least 1, not {shown(count)}")
        object.__setattr__(self, "arrays", arrays)
        object.__setattr__(self, "bounds", self._bounded())
        self._spec  # noqa: B018 - to find what does not fit now

    def _bounded(self) -> tuple[str, ...]:
        """The names of the arrays with bounds."""
        if isinstance(self.bounds, bool):
            ordered = (array.name for array in self.arrays if array.dtype.kind in "biuf")
            return tuple(ordered) if self.bounds else ()
        if isinstance(self.bounds, str) or not isinstance(self.bounds, Sequence):
            raise schema_error(
                f"bounds are True, False or names of arrays, not {type_name(self.bounds)}"
            )
        for name in self.bounds:
            if name not in (array.name for array in self.arrays):
                raise schema_error(f"bounds of {shown(name)}: the group has no such array")
        return tuple(self.bounds)

    def __getitem__(self, name: str) -> Array:
        for array in self.arrays:
            if array.name == name:
                return array
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (array.name for array in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __contains__(self, name: object) -> bool:
        return any(array.name == name for array in self.arrays)

    def _key(self) -> tuple[Any, ...]:
        """What makes two groups the same."""
        described = self._described(os.fspath(self.path))
        return (tuple(self.arrays), json.dumps(described, default=list, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Group) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_spec", None)  # made again where it is needed
        return state

    def with_memory(self, memory: Memory | Mapping[str, Memory]) -> Group:
        """Give the same group, distributed otherwise in memory.

        Parameters
        ----------
        memory : Distribution, Boxes, list of Boxes, or mapping of str to such
            Which rank holds what: of all arrays alike, or of each that is named. Arrays of rows,
            which have no memory schema, stay as they are.

        Returns
        -------
        Group
            Another group; this one does not change.

        Raises
        ------
        SchemaError
            When a memory schema does not fit its array.

        Notes
        -----
        Not collective.
        """
        if isinstance(memory, Mapping):
            new = memory
        else:
            new = {a.name: memory for a in self.arrays if not a._is_ragged}
        arrays = [a.with_memory(new[a.name]) if a.name in new else a for a in self.arrays]
        return dataclasses.replace(self, arrays=arrays)

    @cached_property
    def _spec(self) -> _core.PyGroup:
        return self._spec_at(os.fspath(self.path), self.arrays)

    def _spec_at(self, path: Path, arrays: Sequence[Array]) -> _core.PyGroup:
        """As a call takes it that puts the group's path below another, or has other arrays."""
        return _core.PyGroup([array._spec for array in arrays], self._described(os.fspath(path)))

    def _described(self, path: str) -> _core._GroupArgument:
        if not isinstance(self.coords, Mapping):
            raise schema_error(f"coords are a mapping of names, not {type_name(self.coords)}")
        return {
            "name": str(self.name),
            "path": path,
            "coordinates": [_coordinate(name, value) for name, value in self.coords.items()],
            "attributes": attributes(self.attrs),
            "time_attributes": attributes(self.time_attrs),
            "time_chunk": self.time_chunk,
            "keep": self.keep,
            "bounds": list(self._bounded()),
        }

    def _parts(self, values: Mapping[str, Local]) -> list[Local]:
        """The parts in `values`, in the order of the arrays."""
        names = list(self)
        if not isinstance(values, Mapping):
            raise schema_error(f"values are a mapping of names, not {type_name(values)}")
        if set(values) != set(names):
            given = ", ".join(map(shown, values)) or "nothing"
            own = ", ".join(map(repr, names))
            raise schema_error(f"the group {self.name!r} is of {own}, and was given {given}")
        return [values[name] for name in names]

    def _restarted(self, found: _core.PyCheckpoint, size: int) -> list[Array]:
        """The arrays as a checkpoint has them, of rows an even share for each of `size` ranks."""
        shapes = dict(found.shapes)

        def restarted(array: Array) -> Array:
            if not array._is_ragged or array.name not in shapes:
                return array
            dists = ",".join(["BLOCK"] + ["*"] * (len(array.shape) - 1))
            memory = Distribution(dists, (size,))
            return array._with(shape=tuple(shapes[array.name]), memory=memory)

        return [restarted(array) for array in self.arrays]


def _coordinate(name: str, value: Any) -> _core._CoordinateArgument:
    """A static variable as a call takes it."""
    attrs: Mapping[str, Any] = {}
    dims: Any = (name,)
    if isinstance(value, tuple) and 2 <= len(value) <= 3:
        dims, value, *more = value
        attrs = more[0] if more else {}
    elif hasattr(value, "dims") and hasattr(value, "attrs"):  # xarray's
        dims, attrs, value = value.dims, dict(value.attrs), value.values
    dims = (dims,) if isinstance(dims, str) else tuple(map(str, dims))
    values, more_attrs = _stored(name, np.asarray(value))
    if values.ndim != len(dims):
        raise schema_error(
            f"the coordinate {name!r} has {values.ndim} dimensions, and {len(dims)} are named: "
            "give it as (dims, values)"
        )
    is_text = values.dtype.kind in "UO"
    return {
        "name": str(name),
        "dims": list(dims),
        "shape": list(values.shape),
        "dtype": "str" if is_text else values.dtype.str,
        "bytes": b"" if is_text else values.tobytes(),
        "strings": [str(text) for text in values.ravel()] if is_text else [],
        "attributes": attributes({**attrs, **more_attrs}),
    }


_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _stored(name: str, values: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Values as they are stored, and the attributes by which CF tells moments and durations."""
    if values.dtype.kind in "mM":
        unit, count = np.datetime_data(values.dtype)
        if unit not in _UNITS or count != 1:
            values = values.astype(f"{values.dtype.kind}8[s]")
            unit = "s"
        numbers = values.astype("i8")
        attrs: dict[str, Any] = {"units": _UNITS[unit]}
        if values.dtype.kind == "M":
            attrs["units"] += " since 1970-01-01 00:00:00"
            attrs["calendar"] = "proleptic_gregorian"
        else:
            attrs["dtype"] = f"timedelta64[{unit}]"
        if np.isnat(values).any():
            attrs["_FillValue"] = int(np.iinfo("i8").min)
        return numbers, attrs
    if values.dtype.kind in "UO":
        if not all(isinstance(text, str) for text in values.ravel()):
            raise schema_error(f"the coordinate {name!r} is of objects that are no strings")
        return values, {}
    native = values.dtype.newbyteorder("=")
    return np.ascontiguousarray(values, native).reshape(values.shape), {}


class State(Mapping[str, "np.ndarray | MaybeList"]):
    """A state is what a program restarts from: the local part of each array by its name.

    It is a list of local parts where the array's memory schema is a list of boxes. Shapes are
    those of `Array.local_shape`; halo cells are 0.

    Attributes
    ----------
    step : int
        The step of the checkpoint.
    time : float or None
        Its time, in the program's unit.
    timesteps : int
        How many timesteps the group had.
    attrs : dict
        The attributes that `Session.checkpoint` was given.
    """

    step: int
    time: float | None
    timesteps: int
    attrs: dict[str, Any]

    def __init__(
        self, values: Mapping[str, np.ndarray | MaybeList], found: _core.PyCheckpoint
    ) -> None:
        self._values = values
        self.step = found.step
        self.time = found.time
        self.timesteps = found.timesteps
        self.attrs = json.loads(found.attributes)

    def __getitem__(self, name: str) -> np.ndarray | MaybeList:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State(step={self.step}, time={self.time}, arrays={list(self._values)})"
