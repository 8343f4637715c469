"""Stores: functions that look at, check, mend and copy them without a session."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack

import numpy.typing as npt
from numpy import dtype as np_dtype

from penstock import _core, _records
from penstock._errors import Error, error_of, schema_error
from penstock._schema import Array, _extents
from penstock._types import Extents, Path, Progress

LISTED_SHOWN_MAX = 16
"""The most chunks of a dimension that are listed in words."""

ChunkExtents: TypeAlias = int | Sequence[int | None] | Mapping[str, int | None]


class CopyOptions(TypedDict, total=False):
    """The options of `copy`."""

    arrays: str | Sequence[str] | None
    name: str | None
    chunks: ChunkExtents | None
    subchunks: ChunkExtents | None
    codec: str | None
    filters: str | None
    row_major: bool
    shape: Extents | None
    dtype: npt.DTypeLike | None
    memory: int
    overwrite: bool
    drop_attributes: bool
    skip_unsupported: bool


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """A copy report says what a copy did.

    Attributes
    ----------
    bytes : int
        Bytes of the arrays.
    seconds : float
        Wall time, seconds.
    read_bytes : int
        Bytes read from the source, and from stores in between, decoded, by this attempt.
    slabs, slabs_found : int
        In how many pieces it was done, and how many of them a former attempt had done.
    arrays : tuple of str
        The arrays that were copied, by their paths in the source.
    as_they_are : tuple of str
        What Penstock does not understand, and is as it was: arrays with their chunk files, objects
        of HDF5.
    skipped : tuple of str
        What was left out, as `skip_unsupported` allows.
    """

    bytes: int
    seconds: float
    read_bytes: int
    slabs: int
    slabs_found: int
    arrays: tuple[str, ...]
    as_they_are: tuple[str, ...]
    skipped: tuple[str, ...]

    @classmethod
    def _of(cls, copied: _core._Copied) -> Self:
        return cls(
            bytes=copied["bytes"],
            seconds=copied["seconds"],
            read_bytes=copied["read_bytes"],
            slabs=copied["slabs"],
            slabs_found=copied["slabs_found"],
            arrays=tuple(copied["arrays"]),
            as_they_are=tuple(copied["as_they_are"]),
            skipped=tuple(copied["skipped"]),
        )


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
        A Zarr array or group (format 2 or 3), an HDF5 or NetCDF-4 file, or a group or dataset of
        one (`run.h5:/fields/u`), references of kerchunk (`refs.json`), a `.npy` file, a raw file,
        or a directory of parts.
    target : path
        What is made of it. Of a group a group with all that is in it: arrays, groups, attributes,
        checkpoints, in Zarr's format 3. Of a Zarr array that is in no group the same. Of any other
        array one of a Zarr group, which is made if it is not there; or a file. What ends in `.h5`,
        `.hdf5` or `.he5` is an HDF5 file with all of it, what ends in `.nc` or `.nc4` one of
        NetCDF-4; `out.h5:/fields/u` is a dataset of one, or a group.
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
        As of `Chunks`. Default: the source's.
    filters : str, optional
        As of `HDF5`, in a file of HDF5. Default: the source's, or "shuffle+deflate" for what Zarr
        compresses.
    row_major : bool
        One row-major file: `.npy` if its name ends so, otherwise raw with a JSON file beside it.
        It is so, too, where `target` ends in `.npy` and no chunks are said.
    shape, dtype
        What a raw source holds that has no JSON file beside it.
    memory : int
        Bytes that it may take. Default: 256 MiB.
    overwrite : bool
        Whether what is at the target is replaced. A target never holds the source, or a part.
    drop_attributes : bool
        Whether attributes are left out where the target has no place for them.
    skip_unsupported : bool
        Whether arrays and links are left out for which the target has no place.
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
        Bytes and seconds, and which arrays were copied.

    Raises
    ------
    Error
        Of the kind that fits. What stood at `target` is then as it was. What is done is kept: the
        same copy goes on there.

    Notes
    -----
    Not collective: one process calls it; `Session.copy` is for all ranks. Chunks that hold nothing
    but the fill value are not stored. An array of a type or codec that Penstock does not
    understand, such as strings, keeps its chunk files as they are, or as a dataset goes from one
    file of HDF5 to another through the library's memory.
    """
    argument = copy_argument(target, options)
    paths = (os.fspath(source), os.fspath(target))
    return CopyReport._of(_core.copy(*paths, argument, ranks, bool(sync), progress))


def copy_argument(target: Path, options: CopyOptions) -> _core._CopyArgument:
    """The options of a copy as the Rust side takes them.

    Raises
    ------
    SchemaError, TypeError
        When they do not fit together, or when there is no such option.
    """
    unknown = set(options) - set(CopyOptions.__annotations__)
    if unknown:
        raise TypeError(f"a copy has no option {sorted(unknown)[0]!r}")
    arrays = options.get("arrays")
    chunks = _text("chunks", options.get("chunks"))
    subchunks = _text("subchunks", options.get("subchunks"))
    is_npy = os.fspath(target).endswith(".npy")
    row_major = options.get("row_major", False) or (is_npy and chunks is None)
    codec = options.get("codec")
    filters = options.get("filters")
    if row_major and not (chunks is subchunks is codec is filters is None):
        raise schema_error("a row-major file has neither chunks nor a codec")
    shape, dtype = options.get("shape"), options.get("dtype")
    if (shape is None) != (dtype is None):
        raise schema_error("a raw source has a shape and a dtype: give both or neither")
    raw = None
    if shape is not None:
        raw = (list(_extents("a shape", shape)), _records.word(np_dtype(dtype)))
    return {
        "arrays": [arrays] if isinstance(arrays, str) else list(arrays or []),
        "name": options.get("name"),
        "raw": raw,
        "row_major": ("npy" if is_npy else "raw") if row_major else None,
        "chunks": chunks,
        "subchunks": subchunks,
        "codec": codec,
        "filters": filters,
        "memory_bytes": options.get("memory", _core.COPY_MEMORY_BYTES),
        "drop_attributes": bool(options.get("drop_attributes", False)),
        "overwrite": bool(options.get("overwrite", False)),
        "skip_unsupported": bool(options.get("skip_unsupported", False)),
    }


def _text(what: str, extents: ChunkExtents | None) -> str | None:
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


def _extent(what: str, extent: int | None) -> str:
    if extent is None or extent == -1:
        return "-1"
    (number,) = _extents(what, extent)
    return str(number)


@dataclasses.dataclass(frozen=True)
class Verified:
    """A verdict of `verify` on a store.

    Attributes
    ----------
    timesteps, checkpoints : int
        Timesteps and checkpoints of a group that were read.
    arrays : int
        Arrays that were read, apart from those of timesteps and checkpoints.
    chunks : int
        Chunks that were read; a timestep has its own.
    compared : int
        Chunks among them that have a checksum, of Penstock's or of their codec.
    absent : int
        Chunks among the others that are not there, and read as the fill value.
    bytes : int
        Bytes of the chunks, decoded.
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
        """True when there was something to compare, and nothing is wrong."""
        return self.compared > 0 and not self.damages

    @classmethod
    def _of(cls, found: _core._Verified) -> Self:
        return cls(
            timesteps=found["timesteps"],
            checkpoints=found["checkpoints"],
            arrays=found["arrays"],
            chunks=found["chunks"],
            compared=found["compared"],
            absent=found["absent"],
            bytes=found["bytes"],
            unread=tuple(found["unread"]),
            damages=tuple(found["damages"]),
            verdict=found["verdict"],
        )


def verify(path: Path, *, progress: Progress | None = None) -> Verified:
    """Read everything that is at `path`, and compare what has checksums with them.

    Parameters
    ----------
    path : path
        A group with timesteps and checkpoints, any other Zarr hierarchy, or an array of any form.
    progress : callable, optional
        Is called with the bytes that are done and all there are, now and then. What it raises ends
        the reading.

    Returns
    -------
    Verified
        What was read, and all that is wrong with it.

    Raises
    ------
    MissingError
        When nothing is there. What is wrong with what is there is in what this returns.

    Notes
    -----
    Not collective.
    """
    return Verified._of(_core.verify(os.fspath(path), progress))


def repair(path: Path) -> list[str]:
    """Mend a group whose metadata another tool has rewritten, or to which another program has
    added timesteps.

    Parameters
    ----------
    path : path
        The group.

    Returns
    -------
    list of str
        What was mended, a line each.

    Raises
    ------
    SchemaError, DamagedError, BusyError
        When it is no group that Penstock has saved to, when the chunks on disk do not say what the
        group holds, or when a job writes to it.

    Notes
    -----
    Not collective.
    """
    return _core.repair(os.fspath(path))


@dataclasses.dataclass(frozen=True)
class Node:
    """A node is an array or a group in a store.

    Attributes
    ----------
    path : str
        Where, from the path that was looked at; empty for what stands there itself.
    kind : {"array", "group", "unreadable"}
        What it is.
    array : Array or None
        The array, as `Session.open` gives it.
    error : Error or None
        Why it cannot be read.
    """

    path: str
    kind: Literal["array", "group", "unreadable"]
    array: Array | None = None
    error: Error | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.path}  {self.error.kind}: {self.error.cause}"
        if self.array is None:
            return f"{self.path}/"
        name = self.path or self.array.name
        dtype = _records.name(self.array.dtype)
        return f"{name}  {dtype}  {list(self.array.shape)}  {_form(self.array)}"


def _form(array: Array) -> str:
    """How an array lies on disk, in words."""
    words: _core._Disk = ("natural",) if array.disk is None else array.disk._disk()
    if words[0] == "chunks":
        _, chunk, subchunks, codec = words
        if subchunks is None:
            return f"chunks {_grid(chunk)}, {codec}"
        return f"shards {_grid(chunk)} of sub-chunks {subchunks}, {codec}"
    if words[0] == "parts":
        _, dists, mesh = words
        return f"parts {dists} over {mesh}"
    if words[0] == "hdf5":
        _, dataset, chunks, filters, is_netcdf = words
        form = "NetCDF-4" if is_netcdf else "HDF5"
        words_of_chunks = "" if chunks is None else f", chunks {chunks}, {filters}"
        return " ".join(filter(None, (form, dataset))) + words_of_chunks
    return f"row-major, {words[0]}"


def _grid(chunk: Sequence[int | Sequence[int]]) -> str:
    """The extents of chunks in words: of a long list no more than the beginning and the end."""

    def words(edges: int | Sequence[int]) -> str:
        if isinstance(edges, int) or len(edges) <= LISTED_SHOWN_MAX:
            return str(edges)
        begin = ", ".join(map(str, edges[: LISTED_SHOWN_MAX // 2]))
        return f"[{begin}, ... {edges[-1]} ({len(edges)} chunks)]"

    return f"[{', '.join(map(words, chunk))}]"


def ls(path: Path) -> list[Node]:
    """List all that stands at `path`.

    Parameters
    ----------
    path : path
        An array of any form, a Zarr group, an HDF5 file or group of one, or references of
        kerchunk.

    Returns
    -------
    list of Node
        The array, or the group with all that is in it, sorted by path.

    Raises
    ------
    MissingError
        When nothing is there.

    Notes
    -----
    Not collective.
    """
    place = os.fspath(path)
    described = info(place)
    nodes = [Node(group["path"], "group") for group in described["groups"]]
    for about in described["unreadable"]:
        why = error_of(about["kind"], about["cause"], os.path.join(place, about["path"]))
        nodes.append(Node(about["path"], "unreadable", error=why))
    for about in described["arrays"]:
        # No path of the file system leads into an HDF5 file: there all of the path is a name.
        in_file = "hdf5" in about["disk"]
        group, _, name = ("", "", about["path"]) if in_file else about["path"].rpartition("/")
        at = os.path.join(place, group) if group else place
        array = Array._of_disk(_core.open_schema(at, name or None))
        nodes.append(Node(about["path"], "array", array))
    return sorted(nodes, key=lambda node: node.path)


def tree(path: Path) -> str:
    """Draw all that stands at `path` as text.

    Parameters
    ----------
    path : path
        As of `ls`.

    Returns
    -------
    str
        A line for each node of `ls`, indented by groups.

    Raises
    ------
    MissingError
        When nothing is there.

    Notes
    -----
    Not collective.
    """
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
    """Describe what stands at `path` as `penstock info --json` prints it.

    Parameters
    ----------
    path : path
        As of `ls`.

    Returns
    -------
    dict
        JSON's values: lists of `arrays`, `groups` and what is `unreadable`, and what is known of
        each.

    Raises
    ------
    MissingError
        When nothing is there.

    Notes
    -----
    Not collective.
    """
    described: dict[str, Any] = json.loads(_core.describe(os.fspath(path)))
    return described
