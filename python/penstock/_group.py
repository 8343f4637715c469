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
from penstock._errors import schema_error
from penstock._schema import Array, Memory


@dataclasses.dataclass(frozen=True)
class Group:
    """Arrays that are saved together, through time: Panda's array group (Seamons et al., SC'95,
    Figure 2). `Session.timestep`, `Session.checkpoint` and `Session.restart` take it.

    Parameters
    ----------
    name : str
        Its name.
    arrays : sequence of Array
        Of any shapes, types and schemas, with different names; `time` and `checkpoints` are taken.
        In the store, which is one of Zarr, `RowMajor("raw")` is one chunk, and the parts of a
        `Distribution` are chunks; `disk=None` is natural chunking, and in a store that is there
        already its chunks.
    path : path
        The store: a Zarr group, made by the first save.
    keep : int
        How many checkpoints are kept: the newest.
    attrs : mapping, optional
        Attributes of the group, as JSON can hold them. They are stored when the group is made.

    Raises
    ------
    SchemaError
        When these are not what they should be. `RowMajor("npy")` is refused by the first save.
    """

    name: str
    arrays: Sequence[Array]
    path: str | os.PathLike[str]
    keep: int = 2
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = tuple(self.arrays)
        if not all(isinstance(array, Array) for array in arrays):
            raise schema_error(f"a group is of Arrays, not {self.arrays!r}")
        names = [array.name for array in arrays]
        for name in names:
            if name in ("time", "checkpoints") or name.startswith(".") or names.count(name) > 1:
                raise schema_error(
                    f"an array of a group cannot be named {name!r}: taken, hidden or there twice"
                )
        if not arrays:
            raise schema_error(f"the group {self.name!r} has no array")
        if not isinstance(self.keep, int) or self.keep < 1:
            raise schema_error(f"keep must be an integer of at least 1, not {self.keep!r}")
        object.__setattr__(self, "arrays", arrays)
        self._spec  # noqa: B018 - to find what does not fit now

    def __getitem__(self, name: str) -> Array:
        for array in self.arrays:
            if array.name == name:
                return array
        raise KeyError(name)

    def with_memory(self, memory: Memory | Mapping[str, Memory]) -> Group:
        """The same group, distributed otherwise in memory: all arrays alike, or each by name."""
        new = memory if isinstance(memory, Mapping) else {a.name: memory for a in self.arrays}
        arrays = [a.with_memory(new[a.name]) if a.name in new else a for a in self.arrays]
        return dataclasses.replace(self, arrays=arrays)

    @cached_property
    def _spec(self) -> _core.PyGroup:
        return self._spec_at(os.fspath(self.path))

    def _spec_at(self, path: str) -> _core.PyGroup:
        """As a call takes it that puts the group's path below another."""
        try:
            attributes = json.dumps(dict(self.attrs))
        except (TypeError, ValueError) as error:
            raise schema_error(f"attributes must be what JSON can hold: {error}") from None
        specs = [array._spec for array in self.arrays]
        return _core.PyGroup(str(self.name), path, specs, attributes, self.keep)

    def _locals(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The local parts, in the order of the arrays."""
        names = [array.name for array in self.arrays]
        if not isinstance(values, Mapping) or set(values) != set(names):
            given = list(values) if isinstance(values, Mapping) else values
            raise schema_error(f"the group {self.name!r} is of {names}, and was given {given}")
        return [values[name] for name in names]


class State(Mapping[str, np.ndarray]):
    """What a program restarts from: the local part of each array by its name.

    Attributes
    ----------
    step : int
        The step of the checkpoint.
    time : float or None
        Its time.
    timesteps : int
        How many timesteps the group had.
    """

    def __init__(self, values: dict[str, np.ndarray], found: _core.PyCheckpoint) -> None:
        self._values = values
        self.step: int = found.step
        self.time: float | None = found.time
        self.timesteps: int = found.timesteps

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State(step={self.step}, time={self.time}, arrays={list(self._values)})"
