"""Stores looked at, checked, mended and copied, without a session."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

import numpy.typing as npt
from numpy import dtype as np_dtype

from penstock import _core
from penstock._errors import Error, schema_error
from penstock._schema import Array, _extents

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]
Extents = int | Sequence[int | None] | Mapping[str, int | None]


class CopyOptions(TypedDict, total=False):
    """The options of `copy`."""

    arrays: str | Sequence[str] | None
    name: str | None
    chunks: Extents | None
    subchunks: Extents | None
    codec: str | None
    row_major: bool
    shape: int | Sequence[int] | None
    dtype: npt.DTypeLike
    memory: int
    overwrite: bool
    drop_attributes: bool


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """What a copy has done.

    Attributes
    ----------
    bytes : int
        Bytes of the arrays.
    seconds : float
        Wall time.
    read_bytes : int
        Bytes read from the source, and from stores in between, decoded, by this attempt.
    slabs, slabs_found : int
        In how many pieces it was done, and how many of them a former attempt had done.
    arrays : tuple of str
        The arrays that were copied, by their paths in the source.
    as_they_are : tuple of str
        Arrays that Penstock does not understand: their chunk files are as they were.
    """

    bytes: int
    seconds: float
    read_bytes: int
    slabs: int
    slabs_found: int
    arrays: tuple[str, ...]
    as_they_are: tuple[str, ...]

    @classmethod
    def _of(cls, described: dict[str, Any]) -> Self:
        lists = {name: tuple(described[name]) for name in ("arrays", "as_they_are")}
        return cls(**{**described, **lists})


def copy(
    source: Path,
    target: Path,
    *,
    ranks: int = 1,
    sync: bool = True,
    progress: Progress | None = None,
    **options: Unpack[CopyOptions],
) -> CopyReport:
    """Copy an array or a whole data set into another arrangement, out of core.

    Parameters
    ----------
    source : path
        A Zarr array or group (format 2 or 3), a `.npy` file, a raw file, or a directory of parts.
    target : path
        What is made of it. Of a group a group with all that is in it: arrays, groups, attributes,
        checkpoints, in Zarr's format 3. Of a Zarr array that is in no group the same. Of any other
        array one of a Zarr group, which is made if it is not there; or a file.
    arrays : str or sequence of str, optional
        Only these arrays of the source, by their paths in it. One of them goes into a group that
        is there.
    name : str, optional
        What the array is called in the target, where only one is copied.
    chunks : int, sequence or mapping, optional
        Extents of chunks: one a dimension, of arrays that have as many; or by the names of
        dimensions. None or -1 is the whole dimension. What is not said is as in the source.
    subchunks : int, sequence or mapping, optional
        Extents of the sub-chunks of a chunk, which is then a shard.
    codec : str, optional
        As of `Chunks`. Default: that of the source.
    row_major : bool
        One row-major file: `.npy` if its name ends so, otherwise raw with a JSON file beside it.
        It is so, too, where `target` ends in `.npy` and no chunks are said.
    shape, dtype
        What a raw source holds that has no JSON file beside it.
    memory : int
        Bytes that it may take. Default: 256 MiB.
    overwrite : bool
        Whether what is at the target is replaced. It is never one that holds the source, or is
        part of it.
    drop_attributes : bool
        Whether attributes are left out where the target has no place for them.
    ranks : int
        How many threads share the work. Default: 1, with two servers.
    sync : bool
        Whether to wait for stable storage.
    progress : callable, optional
        Is called with the bytes that are done and all there are, now and then. What it raises ends
        the copy.

    Returns
    -------
    CopyReport

    Raises
    ------
    Error
        Of the kind that fits. What stood at `target` is then as it was. What is done is kept: the
        same copy goes on there.

    Notes
    -----
    Chunks that hold nothing but the fill value are not stored. An array of a type or codec that
    Penstock does not understand, such as strings, keeps its chunk files as they are.
    """
    argument = copy_argument(target, options)
    paths = (os.fspath(source), os.fspath(target))
    return CopyReport._of(_core.copy(*paths, argument, ranks, bool(sync), progress))


def copy_argument(target: Path, options: CopyOptions) -> dict[str, Any]:
    """The options of a copy as the Rust side takes them."""
    unknown = set(options) - set(CopyOptions.__annotations__)
    if unknown:
        raise TypeError(f"a copy has no option {sorted(unknown)[0]!r}")
    arrays = options.get("arrays")
    chunks, subchunks = (_text(name, options.get(name)) for name in ("chunks", "subchunks"))
    is_npy = os.fspath(target).endswith(".npy")
    row_major = options.get("row_major", False) or (is_npy and chunks is None)
    codec = options.get("codec")
    if row_major and not (chunks is subchunks is codec is None):
        raise schema_error("a row-major file has neither chunks nor a codec")
    shape, dtype = options.get("shape"), options.get("dtype")
    if (shape is None) != (dtype is None):
        raise schema_error("a raw source has a shape and a dtype: give both or neither")
    raw = None
    if shape is not None:
        raw = (list(_extents("a shape", shape)), np_dtype(dtype).str)
    return {
        "arrays": [arrays] if isinstance(arrays, str) else list(arrays or []),
        "name": options.get("name"),
        "raw": raw,
        "row_major": ("npy" if is_npy else "raw") if row_major else None,
        "chunks": chunks,
        "subchunks": subchunks,
        "codec": codec,
        "memory_bytes": options.get("memory", _core.COPY_MEMORY_BYTES),
        "drop_attributes": bool(options.get("drop_attributes", False)),
        "overwrite": bool(options.get("overwrite", False)),
    }


def _text(what: str, extents: Any) -> str | None:
    """Extents in the words of the command."""
    if extents is None or isinstance(extents, str):
        return extents
    if isinstance(extents, Mapping):
        parts = [f"{name}={_extent(what, extent)}" for name, extent in extents.items()]
    elif isinstance(extents, Sequence):
        parts = [_extent(what, extent) for extent in extents]
    else:
        parts = [_extent(what, extents)]
    return ",".join(parts)


def _extent(what: str, extent: Any) -> str:
    if extent is None or extent == -1:
        return "-1"
    (number,) = _extents(what, extent)
    return str(number)


@dataclasses.dataclass(frozen=True)
class Verified:
    """What `verify` has found.

    Attributes
    ----------
    timesteps, checkpoints : int
        Those of a group that were looked at.
    arrays : int
        Arrays that were read, those of timesteps and checkpoints apart.
    chunks : int
        Chunks that were read, of timesteps those of each.
    compared : int
        Chunks among them that have a checksum, of Penstock's or of their codec.
    absent : int
        Chunks among the others that are not there, and read as the fill value.
    bytes : int
        Their bytes, decoded.
    unread : tuple of (str, Error)
        Arrays that Penstock does not read, and why.
    damages : tuple of Error
        What is wrong.
    verdict : str
        All of it in words.
    """

    timesteps: int
    checkpoints: int
    arrays: int
    chunks: int
    compared: int
    absent: int
    bytes: int
    unread: tuple[tuple[str, Error], ...]
    damages: tuple[Error, ...]
    verdict: str

    @property
    def is_well(self) -> bool:
        """Whether there was something to compare, and nothing is wrong."""
        return self.compared > 0 and not self.damages


def verify(path: Path, *, progress: Progress | None = None) -> Verified:
    """Read everything that is at `path`, and compare what has checksums with them.

    Parameters
    ----------
    path : path
        A group with timesteps and checkpoints, any other Zarr hierarchy, or an array of any form.
    progress : callable, optional
        Is called with the bytes that are done and all there are, now and then.

    Raises
    ------
    MissingError
        When nothing is there. What is wrong with what is there is in what this returns.
    """
    found = _core.verify(os.fspath(path), progress)
    lists = {name: tuple(found[name]) for name in ("unread", "damages")}
    return Verified(**{**found, **lists})


def repair(path: Path) -> list[str]:
    """Find out from what is on disk what a group holds whose metadata another tool has rewritten,
    or to which another program has added timesteps. Returns what was mended, a line each.

    Raises
    ------
    SchemaError, DamagedError, BusyError
        When it is no group that Penstock has saved to, when that cannot be found out, or a job
        writes to it.
    """
    return _core.repair(os.fspath(path))


@dataclasses.dataclass(frozen=True)
class Node:
    """What stands somewhere in a store.

    Attributes
    ----------
    path : str
        Where, from the path that was looked at; empty for what stands there itself.
    kind : {"array", "group", "unreadable"}
        What it is.
    array : Array or None
        The array, as `Session.open` gives it.
    why : str
        Why it cannot be read.
    """

    path: str
    kind: str
    array: Array | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.array is None:
            return f"{self.path}/" if self.kind == "group" else f"{self.path}  {self.why}"
        name = self.path or self.array.name
        return f"{name}  {self.array.dtype.name}  {list(self.array.shape)}  {_form(self.array)}"


def _form(array: Array) -> str:
    """How an array lies on disk, in words."""
    kind, *words = ("natural",) if array.disk is None else array.disk._disk()
    if kind == "chunks":
        chunk, subchunks, codec = words
        if subchunks is None:
            return f"chunks {chunk}, {codec}"
        return f"shards {chunk} of sub-chunks {subchunks}, {codec}"
    return f"parts {words[0]} over {words[1]}" if words else f"row-major, {kind}"


def ls(path: Path) -> list[Node]:
    """All that stands at `path`: an array, or a Zarr group with all that is in it.

    Raises
    ------
    MissingError
        When nothing is there.
    """
    place = os.fspath(path)
    described = info(place)
    nodes = [Node(group["path"], "group") for group in described["groups"]]
    for about in described["unreadable"]:
        nodes.append(Node(about["path"], "unreadable", why=f"{about['kind']}: {about['cause']}"))
    for about in described["arrays"]:
        group, _, name = about["path"].rpartition("/")
        at = os.path.join(place, group) if group else place
        array = Array._of_disk(_core.open_schema(at, name or None))
        nodes.append(Node(about["path"], "array", array))
    return sorted(nodes, key=lambda node: node.path)


def tree(path: Path) -> str:
    """The same as text, a line each, indented by groups."""
    lines = []
    for node in ls(path):
        depth = node.path.count("/") + (1 if node.path else 0)
        name = node.path.rpartition("/")[2] or os.path.basename(os.path.normpath(path))
        text = str(node).removeprefix(node.path) if node.path else str(node)
        is_root = not node.path
        shown_text = f"{name}/" if is_root and node.kind == "group" else name + text
        lines.append("  " * depth + (str(node) if is_root and node.array else shown_text))
    return "\n".join(lines)


def info(path: Path) -> dict[str, Any]:
    """All that is known of what stands at `path`, as `penstock info --json` prints it.

    Raises
    ------
    MissingError
        When nothing is there.
    """
    return json.loads(_core.describe(os.fspath(path)))
