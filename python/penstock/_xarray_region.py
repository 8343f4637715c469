"""Parts of a data set written into a store that is there, by ranks together or by tasks alone.

Tasks are workers of dask, or of any other pool, that know nothing of each other: where the parts of
two tasks meet in a chunk, each must find in it what the other has written. Penstock lets one writer
into an array at a time; a task that finds another there waits and tries again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from xarray import Dataset, Variable, decode_cf

from penstock._errors import BusyError, MismatchError, MissingError, error_of, schema_error, shown
from penstock._report import Report
from penstock._schema import HDF5, Array, Boxes, NetCDF
from penstock._seats import alone
from penstock._session import Session
from penstock._xarray_encode import Encoder, Form
from penstock._xarray_parts import Box, Ranks
from penstock._xarray_store import FILL, Store
from penstock._xarray_write import Item, Settings, opened, same_settings, taken, total

T = TypeVar("T")

RegionOf: TypeAlias = Mapping[Any, Any] | str
"""A slice, or "auto", for each dimension; or "auto" for all."""

PAUSE_SECONDS = (0.002, 0.05)
"""How long a task sleeps, at least and at most, before it tries again."""

CF = ("units", "calendar", "scale_factor", "add_offset", FILL, "missing_value")
"""The attributes by which xarray decodes values."""


def write_region(
    dataset: Dataset, path: str, ranks: Ranks, region: RegionOf, wait: float, settings: Settings
) -> Report:
    """Write a part of the variables of a store, each rank its own. Collective."""
    began = time.monotonic()
    prepared = ranks.each("looking at the region", lambda: _prepared(dataset, path, region))
    same_settings(ranks, path, (settings, wait))
    told = ranks.together(
        "comparing variables",
        lambda: {
            name: (box, encoder.is_lazy, encoder.itemsize)
            for name, (_, box, encoder) in prepared.items()
        },
    )
    if any(set(each) != set(told[0]) for each in told):
        cause = "ranks write different variables"
        raise error_of(MismatchError.kind, cause, path)
    reports = []
    with _alone_in_process(path, ranks), opened(ranks, settings.session) as session:
        for name in told[0]:
            array, _, encoder = prepared[name]
            item = _item(array, encoder, [each[name] for each in told])
            where = (path, wait, settings.memory)
            reports.append(_update(session, ranks, array, item, where))
        return total(reports, time.monotonic() - began, session.servers)


Prepared: TypeAlias = dict[str, tuple[Array, Box, Encoder]]


def _prepared(dataset: Dataset, path: str, region: RegionOf) -> Prepared:
    """For each variable the array that is there, where this part lies in it, and its encoder."""
    there = Store(path, wanted={str(name) for name in dataset.variables})
    raw = there.get_variables()
    decoded = decode_cf(there)
    slices, found = _slices(dataset, decoded, region)
    outside = [
        name
        for name, var in dataset.variables.items()
        if name not in found and not set(var.dims) & set(slices)
    ]
    if outside:
        raise schema_error(
            f"{shown(outside[0])} has no dimension of the region: leave it out, by "
            f"drop_vars({outside})"
        )
    prepared = {}
    with alone(), Session() as session:
        for name, variable in dataset.variables.items():
            if name in found:
                continue
            if name not in raw:
                cause = f"there is no variable {shown(name)}: write it with mode='a' first"
                raise error_of(MissingError.kind, cause, path)
            array = session.open(path, f"/{name}" if os.path.isfile(path) else str(name))
            stored = raw[str(name)]
            encoder = _encoder(variable, stored, decoded[name].variable, array)
            prepared[str(name)] = (array, _box(variable, stored, slices), encoder)
    return prepared


def _slices(
    dataset: Dataset, there: Dataset, region: RegionOf
) -> tuple[dict[Any, slice], set[Any]]:
    """The region's slice of each dimension, and the index coordinates by which it was found."""
    if isinstance(region, str):
        if region != "auto":
            raise schema_error(f'a region is a mapping or "auto", not {shown(region)}')
        both = [dim for dim in dataset.dims if dim in dataset.indexes and dim in there.indexes]
        named: dict[Any, Any] = dict.fromkeys(both, "auto")
    elif isinstance(region, Mapping):
        named = dict(region)
    else:
        raise schema_error(f'a region is a mapping or "auto", not {shown(region)}')
    slices, found = {}, set()
    for dim, part in named.items():
        if dim not in dataset.sizes or dim not in there.sizes:
            raise schema_error(f"the region names {shown(dim)}, which is no dimension of both")
        if isinstance(part, str) and part == "auto":
            slices[dim] = _auto(dim, dataset, there)
            found.add(dim)
            continue
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise schema_error(f"the region's part of {dim} is a slice without step, or 'auto'")
        first, end, _ = part.indices(there.sizes[dim])
        if end - first != dataset.sizes[dim]:
            raise schema_error(
                f"the region has {end - first} of {dim}, and the data set {dataset.sizes[dim]}"
            )
        slices[dim] = slice(first, end)
    return slices, found


def _auto(dim: Any, dataset: Dataset, there: Dataset) -> slice:
    """Where the values of an index coordinate are among those that are stored."""
    if dim not in dataset.indexes or dim not in there.indexes:
        raise schema_error(f"{dim} has no index coordinate, here and in the store, to find it by")
    places = there.indexes[dim].get_indexer(dataset.indexes[dim])
    if len(places) == 0:
        return slice(0, 0)
    if (places < 0).any() or (np.diff(places) != 1).any():
        raise schema_error(f"the values of {dim} do not follow each other in the store")
    return slice(int(places[0]), int(places[-1]) + 1)


def _box(variable: Variable, raw: Variable, slices: Mapping[Any, slice]) -> Box:
    if variable.dims != raw.dims:
        cause = f"a variable is over {variable.dims}, and over {raw.dims} in the store"
        raise error_of(MismatchError.kind, cause, "writing a region")
    for dim in variable.dims:
        if dim not in slices and variable.sizes[dim] != raw.sizes[dim]:
            raise schema_error(
                f"the store has {raw.sizes[dim]} of {dim}, and the data set {variable.sizes[dim]}: "
                "the region must say which"
            )
    starts = tuple(slices[dim].start if dim in slices else 0 for dim in variable.dims)
    return starts, variable.shape


def _encoder(variable: Variable, raw: Variable, there: Variable, array: Array) -> Encoder:
    """An encoder that stores a variable as it is stored already."""
    are_integers = variable.dtype.kind in "iu" and there.dtype.kind in "iu"
    cast: Literal["safe", "same_kind"] = "safe" if are_integers else "same_kind"
    if not np.can_cast(variable.dtype, there.dtype, cast):
        cause = f"'{array.name}' is of {variable.dtype}, and of {there.dtype} in the store"
        raise error_of(MismatchError.kind, cause, "writing a region")
    variable = variable.copy(deep=False)
    variable.attrs = dict(there.attrs)
    keys = (*CF, "dtype")
    variable.encoding = {key: there.encoding[key] for key in keys if key in there.encoding}
    variable.encoding.setdefault(FILL, None)
    form: Form = "zarr"
    if isinstance(array.disk, HDF5):
        form = "netcdf" if isinstance(array.disk, NetCDF) else "hdf5"
    encoder = Encoder(array.name, variable, form)
    is_alike = all(_same(encoder.attrs.get(key), raw.attrs.get(key)) for key in CF)
    if not is_alike or encoder.dtype != raw.dtype:
        cause = (
            f"'{array.name}' would be stored as {encoder.dtype} with {_cf(encoder.attrs)}, and is "
            f"there as {raw.dtype} with {_cf(raw.attrs)}"
        )
        raise error_of(MismatchError.kind, cause, "writing a region")
    return encoder


def _cf(attrs: Mapping[Any, Any]) -> str:
    return json.dumps({key: str(attrs[key]) for key in CF if key in attrs})


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return bool(np.array_equal(one, other, equal_nan=True))


def _item(array: Array, encoder: Encoder, told: list[tuple[Box, bool, int]]) -> Item:
    boxes = [box for box, _, _ in told]
    first: dict[Box, int] = {}
    for rank, box in enumerate(boxes):
        first.setdefault(box, rank)
    chunks = getattr(array.disk, "chunks", None) or getattr(array.disk, "shape", None)
    return Item(
        name=array.name,
        stored=encoder.stored,
        encoder=encoder,
        is_lazy=any(is_lazy for _, is_lazy, _ in told),
        itemsize=max(itemsize for _, _, itemsize in told),
        whole=array.shape,
        boxes=boxes,
        writers=[first[box] for box in boxes],
        disk=array.disk,
        chunk=tuple(chunks) if chunks else (1,) * len(array.shape),
    )


class _Tries:
    """Tries are calls that wait until no other writer has the array."""

    def __init__(self, ranks: Ranks, until: float) -> None:
        self._ranks, self._until = ranks, until

    def call(self, act: Callable[[], T]) -> T:
        """Call `act` until nobody else is in its way, or until it has taken too long.

        Raises
        ------
        BusyError
            When another writer stays.
        """
        while True:
            try:
                return act()
            except BusyError:
                # The ranks go on, or end, together: their clocks differ.
                if not self._ranks.once("waiting", lambda: time.monotonic() < self._until):
                    raise
            time.sleep(random.uniform(*PAUSE_SECONDS))


def _update(
    session: Session, ranks: Ranks, array: Array, item: Item, where: tuple[str, float, int]
) -> list[Report]:
    """Write this rank's part of an array that is there, in pieces that fit the memory."""
    path, wait, memory = where
    tries = _Tries(ranks, time.monotonic() + wait)
    reports = []
    for each in item.rounds(ranks.rank, memory):
        boxes, local = taken(ranks, item, each)

        def write(boxes: list[Boxes] = boxes, local: list[np.ndarray] = local) -> Report:
            return session.write(path, array, local, region=boxes)

        reports.append(tries.call(write))
    return reports


class _Lock:
    """A lock of the threads that write one store: they wait in turn, instead of trying."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()
_locks_lock = threading.Lock()


@contextlib.contextmanager
def _alone_in_process(path: str, ranks: Ranks) -> Iterator[None]:
    """Let one thread of this process at a time write regions of a store, where it writes alone."""
    if ranks.comm is not None:
        yield
        return
    with _locks_lock:
        own = _locks.setdefault(os.path.realpath(path), _Lock())
    with own.lock:
        yield
