"""Data sets whose parts are on ranks, written as one store: the writing half of `penstock.xarray`.

    held       each rank: sizes, index coordinates, parts        told to all     placed()
    encoders   each rank: its part of each variable, as stored   compared        same_on_all()
    target     rank 0: a group, or nothing yet, aside
    variables  one collective write each, or several of pieces that fit the memory
    target     rank 0: attributes of HDF5 files, one rename

A variable that several ranks hold alike is written by the lowest of them, and must be the same
bytes on the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from xarray import Dataset, Variable

from penstock import _core
from penstock._errors import (
    MismatchError,
    UnsupportedError,
    error_of,
    schema_error,
    shown,
)
from penstock._json import attributes
from penstock._options import Options, check_count, session_options
from penstock._report import Report
from penstock._schema import Array, Boxes, Chunks, Disk
from penstock._seats import alone
from penstock._session import Session
from penstock._xarray_encode import Encoder, Stored, same_on_all, variables_of, with_units
from penstock._xarray_parts import Box, Placement, Ranks, held, pieces_of, placed
from penstock._xarray_target import Target, disk_of, typed_attributes

CHUNK_BYTES = 64 << 20
"""The most bytes of a chunk that nobody has asked for."""

ChunkChoice: TypeAlias = Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings say how a data set is written, the same on all ranks."""

    chunks: ChunkChoice = None
    codec: str | None = None
    disk: Mapping[Any, Disk] = dataclasses.field(default_factory=dict)
    memory: int = _core.COPY_MEMORY_BYTES
    compute: bool = True
    session: Options = dataclasses.field(default_factory=lambda: Options())

    def check(self, dataset: Dataset) -> None:
        """Refuse what does not fit the data set."""
        check_count("memory", self.memory)
        if not isinstance(self.chunks, Mapping | None):
            raise schema_error(f"chunks are a mapping of names, not {shown(self.chunks)}")
        if not isinstance(self.disk, Mapping) or any(
            not isinstance(each, Disk) for each in self.disk.values()
        ):
            raise schema_error("disk is a mapping of variables' names to disk schemas")
        for what, names in (("chunks", self.chunks or {}), ("disk", self.disk)):
            known = {*dataset.variables, *(dataset.sizes if what == "chunks" else ())}
            unknown = [name for name in names if name not in known]
            if unknown:
                raise schema_error(f"{what} names {shown(unknown[0])}, which is not there")


@contextlib.contextmanager
def opened(ranks: Ranks, options: Options) -> Iterator[Session]:
    """A session of the ranks.

    Raises
    ------
    SchemaError, UnsupportedError
        When a data set cannot be written with these options.
    """

    def check() -> None:
        chosen = session_options(None, options)
        if isinstance(chosen.servers, str):
            cause = "data sets are written by servers of the job itself, not by standing ones"
            raise error_of(UnsupportedError.kind, cause, "opening a session")
        if ranks.comm is not None and chosen.dedicated:
            raise schema_error("each rank holds a part of the data set: no server is dedicated")

    ranks.each("opening a session", check)
    with alone(), Session(ranks.comm, **options) as session:
        yield session


@dataclasses.dataclass
class Item:
    """An item is one variable on its way to the store."""

    name: str
    stored: Stored
    encoder: Encoder | None
    """None on a rank that has nothing of it."""
    is_lazy: bool
    """Whether it is not in memory on some rank."""
    itemsize: int
    """Bytes of an element, stored or not, whichever is more."""
    whole: tuple[int, ...]
    boxes: list[Box]
    writers: list[int]
    disk: Disk | None = None
    chunk: tuple[int, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.stored.dtype)

    def array(self) -> Array:
        """The array that no rank holds anything of."""
        fill = self.stored.fill_value
        return Array(
            self.name,
            self.whole,
            self.dtype,
            memory=[],
            disk=self.disk,
            dims=self.stored.dims,
            attrs=json.loads(self.stored.attrs),
            fill_value=None if fill is None else np.frombuffer(fill, self.dtype)[0],
        )

    def rounds(self, rank: int, memory: int) -> list[Box | None]:
        """The pieces of a rank, one a round, and None for rounds that other ranks alone have."""
        limit = max(memory // self.itemsize, 1)
        if not self.is_lazy:
            limit = max(math.prod(self.whole), 1)
        count = max(len(pieces_of(box, self.chunk, limit)) for box in set(self.boxes))
        own = pieces_of(self.boxes[rank], self.chunk, limit)
        return [*own, *[None] * (count - len(own))]


def write_whole(
    dataset: Dataset,
    target: Target,
    ranks: Ranks,
    parts: Mapping[Any, int] | None,
    settings: Settings,
) -> Report:
    """Write all parts as one store. Collective."""
    began = time.monotonic()
    items, attrs, typed = _planned(dataset, ranks, parts, target, settings)
    with opened(ranks, settings.session) as session:
        try:
            with target.writing(session):
                at = ranks.once("making a store", lambda: target.make(attrs))
                moved = [_write(session, ranks, at, item, settings) for item in items]
                ranks.once("putting a store in its place", lambda: target.finish(at, attrs, typed))
        finally:
            target.clear()
        return total(moved, time.monotonic() - began, session.servers)


Planned: TypeAlias = tuple[list[Item], dict[str, Any], dict[str, dict[str, Any]]]


def _planned(
    dataset: Dataset,
    ranks: Ranks,
    parts: Mapping[Any, int] | None,
    target: Target,
    settings: Settings,
) -> Planned:
    """All variables, the attributes of the group, and attributes that HDF5 has types for."""
    everyone = ranks.together("looking at the parts", lambda: held(dataset, parts))
    placement = placed(everyone)
    variables, attrs = ranks.each("encoding coordinates", lambda: variables_of(dataset))
    variables = with_units(ranks, variables)
    encoders = ranks.each(
        "encoding",
        lambda: {
            name: Encoder(name, variable, target.form)
            for name, variable in variables.items()
            if _has_part(placement, variable.dims, ranks.rank)
        },
    )
    same_settings(ranks, target.path, (settings, attributes(attrs)))
    told = ranks.together(
        "comparing variables",
        lambda: {name: _told(variables[name], each) for name, each in encoders.items()},
    )
    names = [str(name) for name in everyone[0].dims]
    having = {name: [each[name] for each in told if name in each] for name in names}
    agreed = same_on_all({name: [each.stored for each in having[name]] for name in names})
    items = []
    for name in names:
        stored, encoder = agreed[name], encoders.get(name)
        item = _item(name, stored, placement, encoder, having[name])
        hint = next((each.chunk for each in having[name] if each.chunk is not None), None)
        items.append(_arranged(item, hint, target, settings))
    typed = {f"/{name}": having[name][0].typed for name in names}
    return items, attrs, typed


def same_settings(ranks: Ranks, path: str, settings: object) -> None:
    """Refuse ranks whose settings are not the same. Collective.

    Raises
    ------
    MismatchError
        When they are not.
    """
    if len(set(ranks.together("comparing options", lambda: repr(settings)))) > 1:
        cause = "ranks have different attributes of the data set, or write with other options"
        raise error_of(MismatchError.kind, cause, path)


def _has_part(placement: Placement, dims: Sequence[Any], rank: int) -> bool:
    """Whether a rank has any elements of a variable, or all ranks have none."""
    has = [math.prod(shape) > 0 for _, shape in placement.boxes(dims)]
    return has[rank] or not any(has)


@dataclasses.dataclass(frozen=True)
class Told:
    """Told is what a rank with a part of a variable tells the others of it."""

    stored: Stored
    chunk: tuple[int, ...] | None
    """The chunks that its encoding, or dask, has."""
    is_lazy: bool
    itemsize: int
    typed: dict[str, Any]


def _told(variable: Variable, encoder: Encoder) -> Told:
    wanted = variable.encoding.get("chunks") or variable.encoding.get("chunksizes")
    if wanted is None and variable.chunks is not None:
        wanted = tuple(max(sizes, default=1) for sizes in variable.chunks)
    hint = None
    if isinstance(wanted, Sequence) and len(wanted) == variable.ndim:
        hint = tuple(map(int, wanted)) if all(map(_is_extent, wanted)) else None
    typed = typed_attributes(encoder.attrs)
    return Told(encoder.stored, hint, encoder.is_lazy, encoder.itemsize, typed)


def _is_extent(extent: object) -> bool:
    return isinstance(extent, int | np.integer) and bool(extent > 0)


def _item(
    name: str,
    stored: Stored,
    placement: Placement,
    encoder: Encoder | None,
    told: Sequence[Told],
) -> Item:
    whole = tuple(placement.whole[dim] for dim in stored.dims)
    boxes, writers = placement.boxes(stored.dims), placement.writers(stored.dims)
    is_lazy, itemsize = any(each.is_lazy for each in told), max(each.itemsize for each in told)
    return Item(name, stored, encoder, is_lazy, itemsize, whole, boxes, writers)


def _arranged(item: Item, hint: tuple[int, ...] | None, target: Target, settings: Settings) -> Item:
    """An item with its chunks and its disk schema."""
    asked = _asked(item, settings.chunks)
    base = hint or _whole_chunk(item)
    extents = tuple(
        max(min(base[axis] if extent is None else extent, item.whole[axis]), 1)
        for axis, extent in enumerate(asked or (None,) * len(item.whole))
    )
    nobody_asks = asked is None and hint is None and settings.codec is None
    is_run = target.form != "zarr" and (nobody_asks or math.prod(item.whole) == 0 or not extents)
    chunk, codec = (None, None) if is_run else (extents, settings.codec)
    item.disk = settings.disk.get(item.name) or disk_of(target.form, chunk, codec)
    shape = item.disk.shape if isinstance(item.disk, Chunks) else ()
    item.chunk = shape if len(shape) == len(extents) and all(shape) else extents
    return item


def _asked(item: Item, chunks: ChunkChoice) -> tuple[int | None, ...] | None:
    """The extents of chunks that the program has asked for, None where it says nothing."""
    dims = item.stored.dims
    of_all = {dim: chunks[dim] for dim in dims if chunks and dim in chunks}
    own = chunks.get(item.name) if chunks and item.name not in of_all else None
    if own is not None and not isinstance(own, Mapping):
        own = (own,) * len(dims) if isinstance(own, int) else tuple(own)
        if len(own) != len(dims):
            raise schema_error(f"chunks of '{item.name}' have {len(own)} extents, not {len(dims)}")
        own = dict(zip(dims, own, strict=True))
    named: dict[str, Any] = {**of_all, **(own or {})}
    if not named:
        return None
    unknown = set(named) - set(dims)
    if unknown:
        raise schema_error(f"'{item.name}' has no dimension {shown(min(map(str, unknown)))}")
    whole = dict(zip(dims, item.whole, strict=True))
    for dim, extent in named.items():
        if extent is None or (isinstance(extent, int) and extent == -1):
            named[dim] = max(whole[dim], 1)
        elif not _is_extent(extent):
            raise schema_error(f"a chunk of '{item.name}' is of {dim}={shown(extent)}")
    return tuple(named.get(dim) for dim in dims)


def _whole_chunk(item: Item) -> tuple[int, ...]:
    """Chunks as large as the largest part, or as is good for a chunk."""
    extents = [
        max((shape[axis] for _, shape in item.boxes), default=1) or 1
        for axis in range(len(item.whole))
    ]
    while math.prod(extents) * item.dtype.itemsize > CHUNK_BYTES:
        axis = extents.index(max(extents))
        extents[axis] = -(-extents[axis] // 2)
    return tuple(extents)


def _write(session: Session, ranks: Ranks, at: str, item: Item, settings: Settings) -> list[Report]:
    """Make the array of a variable, and write it."""
    array, rounds = item.array(), item.rounds(ranks.rank, settings.memory)
    if item.is_lazy and not settings.compute:
        return [session.write(at, array, [])]
    if len(rounds) <= 1:
        boxes, local = taken(ranks, item, rounds[0] if rounds else None)
        return [session.write(at, array.with_memory(boxes), local)]
    return [session.write(at, array, []), *_pieces(session, ranks, at, item, rounds)]


def _pieces(
    session: Session, ranks: Ranks, at: str, item: Item, rounds: Sequence[Box | None]
) -> list[Report]:
    """Write pieces of an array that is there, one of each rank at a time."""
    reports = []
    for each in rounds:
        boxes, local = taken(ranks, item, each)
        reports.append(session.write(at, item.array(), local, region=boxes))
    return reports


def taken(ranks: Ranks, item: Item, mine: Box | None) -> tuple[list[Boxes], list[np.ndarray]]:
    """A box of this rank and its elements, in lists, which are empty where another rank writes
    them. Collective.

    Raises
    ------
    MismatchError
        When ranks hold different elements of one box.
    """
    own = item.boxes[ranks.rank]
    kept: list[np.ndarray] = []

    def take() -> bytes | None:
        if mine is None or item.encoder is None:
            return None
        region = tuple(
            slice(start - first, start - first + count)
            for start, count, first in zip(*mine, own[0], strict=True)
        )
        kept.append(item.encoder.piece(region))
        is_shared = item.writers.count(item.writers[ranks.rank]) > 1
        return _digest(kept[0]) if is_shared else None

    digests = ranks.together(f"computing '{item.name}'", take)
    for rank, writer in enumerate(item.writers):
        if digests[rank] != digests[writer]:
            cause = f"rank {rank} and rank {writer} hold different values of the same part"
            raise error_of(MismatchError.kind, cause, item.name)
    if mine is None or item.writers[ranks.rank] != ranks.rank:
        return [], []
    return [Boxes(*mine)], kept


def _digest(values: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data).digest()


def total(moved: Sequence[Sequence[Report]], seconds: float, servers: int) -> Report:
    """One report for all calls."""
    reports = [report for each in moved for report in each]
    return Report(
        bytes=sum(report.bytes for report in reports),
        seconds=seconds,
        blocks=sum(report.blocks for report in reports),
        disk_bytes=sum(report.disk_bytes for report in reports),
        transfers=sum(report.transfers for report in reports),
        buffer_bytes=max((report.buffer_bytes for report in reports), default=0),
        servers=servers,
    )
