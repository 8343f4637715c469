"""Every pair of a program that writes arrays and one that reads them, and what goes from one to the
other: the writers, the readers and the cases of `test_pairs.py` and of the table in
`docs/formats.md`, which `tools/pairs.py` writes.

A writer or a reader is one row of `WRITERS` or `READERS`, and a case one of `CASES`. What a
writer does not have, or a reader does not read, stands in the row with its reason, by words of the
cases' names. The tests look at both: what is not excused must come back bit for bit, and a reader
must fail at what is.
"""

from __future__ import annotations

import functools
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import icechunk
import netCDF4
import numcodecs
import numpy as np
import tensorstore
import xarray
import zarr
from helpers import values
from zarr import codecs

import penstock as ps

NAME = "u"
"""The name of each array, which is the only one of its store."""


# --- the cases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An array, and how it is to be stored."""

    dtype: str
    """The element type, with its byte order in the store."""
    shape: tuple[int, ...] = (7, 6)
    chunks: tuple[int, ...] | None = (3, 4)
    """The extents of a chunk, or of a sub-chunk; None for one run of elements, or one chunk."""
    order: str = "C"
    codec: str = "none"

    @property
    def name(self) -> str:
        """What tells it from the others, in words: a word of it may stand in an excuse."""
        dtype = np.dtype(self.dtype)
        words = [dtype.newbyteorder("=").str.lstrip("<>|=")]
        words += ["big-endian"] if dtype.str[0] == ">" else []
        words += [f"{len(self.shape)}-d"] if len(self.shape) != 2 else []
        words += ["scalar"] if not self.shape else []
        words += ["empty"] if 0 in self.shape else []
        words += ["one-run"] if self.chunks is None and self.shape else []
        words += ["F-order"] if self.order == "F" else []
        words += [self.codec] if self.codec != "none" else []
        return " ".join(words)

    @property
    def native(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("=")

    @property
    def data(self) -> np.ndarray:
        """The elements: any bits, not-a-number of all sorts among them, or some that compress."""
        data = values(self.shape, self.native, len(self.name))
        if self.codec != "none" and data.size > 1:
            data[...] = np.arange(data.size).reshape(self.shape) % 7
        return data

    @property
    def stored(self) -> np.ndarray:
        """The elements in the byte order of the store."""
        return self.data.astype(self.dtype)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of a chunk, whatever is asked for."""
        return self.chunks or tuple(max(n, 1) for n in self.shape)


DTYPES = ["b1", "i1", "u1"]
DTYPES += [f"{o}{t}" for o in "<>" for t in ("i2", "i4", "i8", "u2", "u4", "u8")]
DTYPES += [f"{o}{t}" for o in "<>" for t in ("f2", "f4", "f8", "c8", "c16")]
CODECS = [
    "gzip", "zstd", "blosc", "shuffle", "fletcher32", "crc32c", "sharding", "lzf", "scale-offset",
]  # fmt: skip
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...] | None]] = [
    ((), None), ((7, 6), None), ((11,), (4,)), ((5, 4, 3), (2, 2, 2)), ((3, 4, 5, 2), (2, 3, 2, 2)),
    ((0,), (2,)), ((0, 4), (1, 2)), ((3, 0, 2), (2, 1, 2)), ((1, 1), (1, 1)), ((2, 3), (2, 3)),
]  # fmt: skip
"""Arrays and their chunks: most have ragged edges."""


def _cases() -> Iterator[Case]:
    yield from (Case(dtype) for dtype in DTYPES)
    yield from (Case("<f4", shape, chunks) for shape, chunks in SHAPES)
    yield from (Case("<f8", shape, shape or None, codec="gzip") for shape in [(), (1, 1)])
    yield Case("<f8", (0, 4), (1, 2), codec="gzip")
    large, cubes = ((30, 22), (12, 16)), ((10, 9, 8), (4, 4, 4))
    yield from (Case("<f8", *large, codec=codec) for codec in CODECS if codec != "scale-offset")
    yield from (Case("<i4", *cubes, codec=codec) for codec in CODECS)
    yield Case("<f4", order="F")
    yield Case("<i8", *cubes, "F", "zstd")
    yield from (Case(dtype, *large, codec="gzip") for dtype in ("b1", ">i2", ">f4", ">c16", "<f2"))


CASES = list({case.name: case for case in _cases()}.values())
assert len({case.name for case in CASES}) == len(CASES)


# --- writers and readers --------------------------------------------------------------------------

Excuses = Mapping[str, str]
"""Reasons by words: those of a case's name, all of which it has."""


def excuse(excuses: Excuses, case: Case) -> str | None:
    """The reason for which a case is left out, if there is one."""
    words = set(case.name.split())
    return next((why for key, why in excuses.items() if words >= set(key.split())), None)


@dataclass(frozen=True)
class Writer:
    """A writer stores a case in a directory, and says where."""

    name: str
    form: str
    write: Callable[[Path, Case], Path]
    lacks: Excuses = field(default_factory=dict)
    """What it does not have."""

    def cases(self) -> list[Case]:
        return [case for case in CASES if excuse(self.lacks, case) is None]


@dataclass(frozen=True)
class Reader:
    """A reader gives the array of a store of some form."""

    name: str
    forms: tuple[str, ...]
    read: Callable[[Path, str], np.ndarray]
    fails: Mapping[str, Excuses] = field(default_factory=dict)
    """What it does not read, by form."""
    crashes: Mapping[str, Excuses] = field(default_factory=dict)
    """What ends its process, by form: this cannot be tried here."""

    def may_crash(self, form: str, case: Case) -> bool:
        return excuse(self.crashes.get(form, {}), case) is not None

    def excuse(self, form: str, case: Case) -> str | None:
        return excuse({**self.fails.get(form, {}), **self.crashes.get(form, {})}, case)


ZARR3, ZARR2, HDF5, NETCDF = "Zarr 3", "Zarr 2", "HDF5", "NetCDF-4"
ICECHUNK = "Icechunk"
"""Zarr 3 in a repository."""

ONLY_READ = "Penstock reads it, and does not write it"
MACHINE_ORDER = "Penstock writes the byte order of the machine"
OF_NUMCODECS = "TensorStore has no codecs of numcodecs"
NO_FLETCHER = "its package for Python has no such codec"
IN_ZARR3: Excuses = {"lzf": "a filter of HDF5", "scale-offset": "a filter of HDF5"}
IN_ZARR2: Excuses = IN_ZARR3 | {"sharding": "of Zarr 3 only", "crc32c": "of Zarr 3 only"}
IN_HDF5: Excuses = {
    "crc32c": "a codec of Zarr",
    "sharding": "a codec of Zarr",
    "F-order": "HDF5 has row-major order only",
    "scalar gzip": "what has no dimensions has no chunks to filter",
}
IN_NETCDF: Excuses = IN_HDF5 | {
    "b1": "NetCDF has no truth values",
    "f2": "NetCDF has no floating-point numbers of two bytes",
    "lzf": "the library of NetCDF has no such filter",
    "scale-offset": "the library of NetCDF has no such filter",
}
BY_PENSTOCK: Excuses = {
    "big-endian": MACHINE_ORDER,
    "blosc": ONLY_READ,
    "lzf": ONLY_READ,
    "scale-offset": ONLY_READ,
}


# --- Penstock


def _penstock(place: Path, case: Case, disk: ps.Chunks | ps.HDF5, form: str = "") -> Path:
    """Written by two ranks, of which each has rows."""
    path = place / {ps.Chunks: "g", ps.HDF5: "u.h5", ps.NetCDF: "u.nc"}[type(disk)]
    if form == ICECHUNK:
        _repository(path)
    whole = ps.Array(NAME, case.shape, case.native, disk=disk)
    dists = ",".join(["BLOCK"] + ["*"] * (len(case.shape) - 1))
    array = whole.with_memory(ps.Distribution(dists, (2,))) if case.shape else whole

    def rank(session: ps.Session) -> None:
        part = case.data[array.local_slices(session.rank)] if case.shape else case.data
        target = ps.Icechunk(_repository(path)) if form == ICECHUNK else path
        session.write(target, array, np.ascontiguousarray(part) if case.shape else part)

    ps.run(rank, 2, servers=2, sync=False)
    return path


def _codecs_of(case: Case) -> list[dict[str, Any]]:
    """The codecs of a chunk in Zarr's words."""
    swapped = np.dtype(case.dtype).str[0] == ">"
    chain: list[dict[str, Any]] = [
        {"name": "bytes", "configuration": {"endian": "big" if swapped else "little"}}
    ]
    if case.order == "F":
        order = list(range(len(case.shape)))[::-1]
        chain.insert(0, {"name": "transpose", "configuration": {"order": order}})
    width = np.dtype(case.dtype).itemsize
    blosc = {"cname": "zstd", "clevel": 3, "shuffle": "shuffle", "typesize": width, "blocksize": 0}
    shuffled = {"name": "numcodecs.shuffle", "configuration": {"elementsize": width}}
    more: dict[str, list[dict[str, Any]]] = {
        "gzip": [{"name": "gzip", "configuration": {"level": 1}}],
        "zstd": [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
        "blosc": [{"name": "blosc", "configuration": blosc}],
        "shuffle": [shuffled, {"name": "gzip", "configuration": {"level": 1}}],
        "fletcher32": [{"name": "numcodecs.fletcher32", "configuration": {}}],
        "crc32c": [{"name": "crc32c"}],
    }
    return chain + more.get(case.codec, [])


def _shard(case: Case) -> tuple[int, ...]:
    return tuple(2 * extent for extent in case.extents)


def _chunks(case: Case) -> ps.Chunks:
    if case.codec == "sharding":
        return ps.Chunks(_shard(case), subchunks=case.extents)
    return ps.Chunks(case.extents, codec=json.dumps(_codecs_of(case)))


def penstock_zarr(place: Path, case: Case) -> Path:
    return _penstock(place, case, _chunks(case)) / NAME


def penstock_icechunk(place: Path, case: Case) -> Path:
    return _penstock(place, case, _chunks(case), ICECHUNK)


FILTERS = {
    "none": "none", "gzip": "deflate:1", "zstd": "zstd:1", "shuffle": "shuffle+deflate:1",
    "fletcher32": "fletcher32",
}  # fmt: skip


def penstock_hdf5(place: Path, case: Case) -> Path:
    return _penstock(place, case, ps.HDF5(case.chunks, filters=FILTERS[case.codec]))


def penstock_netcdf(place: Path, case: Case) -> Path:
    return _penstock(place, case, ps.NetCDF(case.chunks, filters=FILTERS[case.codec]))


def read_by_penstock(path: Path, form: str) -> np.ndarray:
    source = ps.Icechunk(_repository(path)) / NAME if form == ICECHUNK else path
    with ps.Session(servers=2, block_bytes=64) as session:
        array = session.open(source)
        return np.asarray(session.read(source, array))


# --- zarr-python, and zarrs in the place of its codecs


def _zarr(place: Path, case: Case, zarr_format: int, inner: Mapping[str, Any]) -> Path:
    _zarr_in(place / "g", case, zarr_format, inner)
    return place / "g" / NAME


def _zarr_in(store: Any, case: Case, zarr_format: int, inner: Mapping[str, Any]) -> None:
    named: dict[str, Any] = {"dimension_names": _dims(case)}
    if zarr_format == 2:
        named = {"attributes": {"_ARRAY_DIMENSIONS": _dims(case)}}
    array = zarr.create_group(store, zarr_format=zarr_format).create_array(
        NAME,
        shape=case.shape,
        dtype=case.dtype if zarr_format == 2 else case.native,
        fill_value=0,
        **named,
        **inner,
    )
    array[...] = case.data


def _dims(case: Case) -> list[str]:
    return [f"d{axis}" for axis in range(len(case.shape))]


def _options3(case: Case) -> dict[str, Any]:
    """How zarr-python is told what a case is."""
    width, order = np.dtype(case.dtype).itemsize, tuple(range(len(case.shape)))[::-1]
    swapped = np.dtype(case.dtype).str[0] == ">"
    compressors: dict[str, Any] = {
        "gzip": [codecs.GzipCodec(level=1)],
        "zstd": [codecs.ZstdCodec(level=1)],
        "blosc": [codecs.BloscCodec(cname="zstd", shuffle="shuffle", typesize=width)],
        "shuffle": [codecs.numcodecs.Shuffle(elementsize=width), codecs.GzipCodec(level=1)],
        "fletcher32": [codecs.numcodecs.Fletcher32()],
        "crc32c": [codecs.Crc32cCodec()],
    }
    return {
        "chunks": case.extents,
        "shards": _shard(case) if case.codec == "sharding" else None,
        "compressors": compressors.get(case.codec),
        "filters": [codecs.TransposeCodec(order=order)] if case.order == "F" else None,
        "serializer": codecs.BytesCodec(endian="big") if swapped else "auto",
    }


def zarr3(place: Path, case: Case) -> Path:
    return _zarr(place, case, 3, _options3(case))


def zarr2(place: Path, case: Case) -> Path:
    width = np.dtype(case.dtype).itemsize
    filters = {
        "shuffle": [numcodecs.Shuffle(width)],
        "fletcher32": [numcodecs.Fletcher32()],
    }.get(case.codec)
    compressor = {
        "gzip": numcodecs.GZip(1),
        "zstd": numcodecs.Zstd(1),
        "blosc": numcodecs.Blosc("zstd", 3, 1),
        "shuffle": numcodecs.Zlib(1),
    }.get(case.codec)
    how = {"order": case.order, "filters": filters, "compressors": compressor}
    return _zarr(place, case, 2, {"chunks": case.extents, **how})


def read_by_zarr(path: Path, form: str) -> np.ndarray:
    return np.asarray(zarr.open_array(path, mode="r")[...])


def by_zarrs(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call of zarr-python in which zarrs makes and reads all chunks, or fails."""

    @functools.wraps(call)
    def called(*arguments: Any) -> Any:
        pipeline = {"path": "zarrs.ZarrsCodecPipeline", "strict": True}
        with zarr.config.set({"codec_pipeline": {**zarr.config.get("codec_pipeline"), **pipeline}}):
            return call(*arguments)

    return called


# --- Icechunk, through zarr-python


def _repository(path: Path) -> icechunk.Repository:
    icechunk.set_logs_filter("error")  # it warns of repositories in directories
    return icechunk.Repository.open_or_create(icechunk.local_filesystem_storage(str(path)))


def _committed(path: Path) -> Any:
    return _repository(path).readonly_session("main").store


def icechunk_(place: Path, case: Case) -> Path:
    session = _repository(place / "g").writable_session("main")
    _zarr_in(session.store, case, 3, _options3(case))
    session.commit("an array")
    return place / "g"


def read_by_icechunk(path: Path, form: str) -> np.ndarray:
    return np.asarray(zarr.open_array(_committed(path), path=NAME, mode="r")[...])


def metadata_of(path: Path, form: str) -> dict[str, Any]:
    """The metadata of an array of Zarr."""
    if form == ICECHUNK:
        array = zarr.open_array(_committed(path), path=NAME, mode="r")
        return json.loads(json.dumps(array.metadata.to_dict(), default=str))
    return json.loads((path / {ZARR3: "zarr.json", ZARR2: ".zarray"}[form]).read_text())


# --- TensorStore


def _tensorstore(place: Path, case: Case, spec: Mapping[str, Any]) -> Path:
    zarr.create_group(place / "g", zarr_format=2 if spec["driver"] == "zarr" else 3)
    path = place / "g" / NAME
    kvstore = {"driver": "file", "path": f"{path}/"}
    opened = tensorstore.open({"kvstore": kvstore, **spec}, create=True).result()
    opened.write(case.data).result()
    return path


def tensorstore3(place: Path, case: Case) -> Path:
    chain, chunk = _codecs_of(case), case.extents
    if case.codec == "sharding":
        chunk = _shard(case)
        parts = {"chunk_shape": case.extents, "codecs": chain}
        index = {"index_codecs": [_codecs_of(Case("<u8"))[0], {"name": "crc32c"}]}
        chain = [{"name": "sharding_indexed", "configuration": parts | index}]
    metadata = {
        "shape": case.shape,
        "data_type": case.native.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "codecs": chain,
        "dimension_names": _dims(case),
    }
    return _tensorstore(place, case, {"driver": "zarr3", "metadata": metadata})


def tensorstore2(place: Path, case: Case) -> Path:
    compressor = {
        "gzip": {"id": "gzip", "level": 1},
        "zstd": {"id": "zstd", "level": 1},
        "blosc": {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1},
    }.get(case.codec)
    fill: Any = case.native.type(0).item()
    if case.native.kind == "c":
        fill = b64encode(bytes(case.native.itemsize)).decode()
    metadata = {
        "shape": case.shape,
        "chunks": case.extents,
        "dtype": np.dtype(case.dtype).str,
        "order": case.order,
        "compressor": compressor,
        "fill_value": fill,
    }
    path = _tensorstore(place, case, {"driver": "zarr", "metadata": metadata})
    # TensorStore has no attributes of this format.
    zarr.open_array(path).update_attributes({"_ARRAY_DIMENSIONS": _dims(case)})
    return path


def read_by_tensorstore(path: Path, form: str) -> np.ndarray:
    driver = {ZARR3: "zarr3", ZARR2: "zarr"}[form]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
    return np.asarray(tensorstore.open(spec, open=True, read=True).result().read().result())


# --- h5py and netCDF4


def h5py_(place: Path, case: Case) -> Path:
    how: dict[str, Any] = {
        "gzip": {"compression": "gzip", "compression_opts": 1},
        "lzf": {"compression": "lzf"},
        "zstd": dict(hdf5plugin.Zstd(1)),
        "blosc": dict(hdf5plugin.Blosc("zstd", 3, hdf5plugin.Blosc.SHUFFLE)),
        "shuffle": {"compression": "gzip", "shuffle": True},
        "fletcher32": {"fletcher32": True},
        "scale-offset": {"scaleoffset": 0},
    }.get(case.codec, {})
    how |= {"chunks": case.chunks, "maxshape": (None,) * len(case.shape)} if case.chunks else {}
    with h5py.File(place / "u.h5", "w") as file:
        file.create_dataset(NAME, data=case.stored, **how)
    return place / "u.h5"


def read_by_h5py(path: Path, form: str) -> np.ndarray:
    with h5py.File(path) as file:
        return np.asarray(file[NAME][()])


def netcdf4(place: Path, case: Case) -> Path:
    how: dict[str, Any] = {
        "gzip": {"compression": "zlib", "complevel": 1, "shuffle": False},
        "zstd": {"compression": "zstd", "complevel": 1, "shuffle": False},
        "blosc": {"compression": "blosc_zstd", "complevel": 3, "blosc_shuffle": 1},
        "shuffle": {"compression": "zlib", "shuffle": True},
        "fletcher32": {"fletcher32": True},
    }.get(case.codec, {})
    how |= {"chunksizes": case.chunks} if case.chunks and 0 not in case.shape else {}
    swapped = np.dtype(case.dtype).str[0] == ">"
    dims = _dims(case)
    with netCDF4.Dataset(place / "u.nc", "w", auto_complex=case.native.kind == "c") as file:
        for dim, extent in zip(dims, case.shape, strict=True):
            file.createDimension(dim, extent)
        endian = "big" if swapped else "native"
        made = file.createVariable(NAME, case.native, dims, endian=endian, **how)
        made.set_auto_maskandscale(False)
        made[...] = case.data
    return place / "u.nc"


def read_by_netcdf4(path: Path, form: str) -> np.ndarray:
    with netCDF4.Dataset(path, auto_complex=True) as file:
        file[NAME].set_auto_maskandscale(False)
        return np.asarray(file[NAME][...])


# --- xarray


def _dataset(case: Case, data: np.ndarray) -> xarray.Dataset:
    return xarray.Dataset({NAME: xarray.Variable(_dims(case), data)})


def xarray_zarr(place: Path, case: Case) -> Path:
    how = {key: value for key, value in _options3(case).items() if value not in (None, "auto")}
    how.setdefault("compressors", None)
    dataset = _dataset(case, case.data)
    dataset.to_zarr(place / "g", encoding={NAME: how}, zarr_format=3, consolidated=False)
    return place / "g" / NAME


def xarray_netcdf(place: Path, case: Case) -> Path:
    how: dict[str, Any] = {
        "gzip": {"zlib": True, "complevel": 1, "shuffle": False},
        "zstd": {"compression": "zstd", "complevel": 1, "shuffle": False},
        "blosc": {"compression": "blosc_zstd", "complevel": 3},
        "shuffle": {"zlib": True, "shuffle": True},
        "fletcher32": {"fletcher32": True},
    }.get(case.codec, {})
    how |= {"chunksizes": case.chunks} if case.chunks and 0 not in case.shape else {}
    how |= {"_FillValue": None}
    dataset = _dataset(case, case.data)
    dataset.to_netcdf(
        place / "u.nc", engine="netcdf4", encoding={NAME: how}, auto_complex=case.native.kind == "c"
    )
    return place / "u.nc"


def read_by_xarray(path: Path, form: str) -> np.ndarray:
    how: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
    where: Any
    if form == ICECHUNK:
        where, how = _committed(path), {**how, "engine": "zarr", "consolidated": False}
    elif form in (ZARR3, ZARR2):
        where, how = path.parent, {**how, "engine": "zarr", "consolidated": False}
    elif form == NETCDF:
        where, how = path, {**how, "engine": "netcdf4", "auto_complex": True}
    else:
        where, how = path, {**how, "engine": "h5netcdf", "phony_dims": "sort"}
    with xarray.open_dataset(where, **how) as opened:
        return np.asarray(opened[NAME].values)


# --- all of them

BY_NUMCODECS: Excuses = {"shuffle": OF_NUMCODECS, "fletcher32": OF_NUMCODECS}

WRITERS = [
    Writer("Penstock", ZARR3, penstock_zarr, IN_ZARR3),
    Writer("Penstock", HDF5, penstock_hdf5, IN_HDF5 | BY_PENSTOCK),
    Writer("Penstock", NETCDF, penstock_netcdf, IN_NETCDF | BY_PENSTOCK),
    Writer("Penstock", ICECHUNK, penstock_icechunk, IN_ZARR3),
    Writer("zarr-python", ZARR3, zarr3, IN_ZARR3),
    Writer("zarr-python", ZARR2, zarr2, IN_ZARR2),
    Writer("TensorStore", ZARR3, tensorstore3, IN_ZARR3 | BY_NUMCODECS),
    Writer("TensorStore", ZARR2, tensorstore2, IN_ZARR2 | BY_NUMCODECS),
    Writer("zarrs", ZARR3, by_zarrs(zarr3), IN_ZARR3 | {"fletcher32": NO_FLETCHER}),
    Writer("Icechunk", ICECHUNK, icechunk_, IN_ZARR3),
    Writer("h5py", HDF5, h5py_, IN_HDF5),
    Writer(
        "netCDF4",
        NETCDF,
        netcdf4,
        IN_NETCDF
        | {
            f"{dtype} big-endian": "netCDF4 has complex numbers in the machine's byte order only"
            for dtype in ("c8", "c16")
        },
    ),
    Writer("xarray", ZARR3, xarray_zarr, IN_ZARR3),
    Writer(
        "xarray",
        NETCDF,
        xarray_netcdf,
        IN_NETCDF | {"big-endian": "xarray writes NetCDF in the byte order of the machine"},
    ),
]

READERS = [
    Reader("Penstock", (ZARR3, ZARR2, HDF5, NETCDF, ICECHUNK), read_by_penstock),
    Reader("zarr-python", (ZARR3, ZARR2), read_by_zarr),
    Reader(
        "TensorStore",
        (ZARR3, ZARR2),
        read_by_tensorstore,
        {ZARR3: BY_NUMCODECS, ZARR2: BY_NUMCODECS},
    ),
    Reader(
        "zarrs",
        (ZARR3, ZARR2),
        by_zarrs(read_by_zarr),
        {
            ZARR3: {
                "fletcher32": NO_FLETCHER,
                "c8 big-endian": "it swaps the bytes of chunks at ragged edges wrongly",
                "c16 big-endian": "it swaps the bytes of chunks at ragged edges wrongly",
            },
            ZARR2: {
                "fletcher32": NO_FLETCHER,
                "big-endian": "its package for Python reads the byte order of the machine",
                "F-order": "its package for Python reads row-major order",
            },
        },
    ),
    Reader("Icechunk", (ICECHUNK,), read_by_icechunk),
    Reader("h5py", (HDF5, NETCDF), read_by_h5py),
    Reader(
        "netCDF4",
        (HDF5, NETCDF),
        read_by_netcdf4,
        {
            HDF5: {
                "b1": "it gives the numbers of an enumeration",
                "lzf": "its library has no such filter",
            }
        },
        {HDF5: {"f2": "it has no floating-point numbers of two bytes: the process ends"}},
    ),
    Reader("xarray", (ZARR3, ZARR2, HDF5, NETCDF, ICECHUNK), read_by_xarray),
]


# --- the table ------------------------------------------------------------------------------------

BEGIN, END = "<!-- python tools/pairs.py -->\n", "<!-- end of pairs -->\n"
"""What the table stands between in the documentation."""


def table() -> str:
    """The table of all pairs, and what is left out of it with the reasons."""
    heads = ["writer, format", "cases", *(reader.name for reader in READERS)]
    lines = [_row(heads), _row(["---", *["--:"] * (len(heads) - 1)])]
    for writer in WRITERS:
        cases = writer.cases()
        counts = [
            str(sum(reader.excuse(writer.form, case) is None for case in cases))
            if writer.form in reader.forms
            else ""
            for reader in READERS
        ]
        lines.append(_row([f"{writer.name}, {writer.form}", str(len(cases)), *counts]))
    lines += ["", _row(["not there", "at", "reason"]), _row(["---"] * 3)]
    for (why, names), words in _reasons().items():
        lines.append(_row([", ".join(f"`{word}`" for word in words), "; ".join(names), why]))
    lines += ["", f"The cases: {', '.join(f'`{case.name}`' for case in CASES)}."]
    return "\n".join(lines) + "\n"


def _reasons() -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """The words of each excuse, by its reason and by who has it."""
    excused: dict[tuple[str, str], list[str]] = {}
    for writer in WRITERS:
        for words, why in writer.lacks.items():
            excused.setdefault((words, why), []).append(f"{writer.name} to {writer.form}")
    for reader in READERS:
        for form in reader.forms:
            excuses = {**reader.fails.get(form, {}), **reader.crashes.get(form, {})}
            for words, why in excuses.items():
                excused.setdefault((words, why), []).append(f"{reader.name} from {form}")
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (words, why), names in excused.items():
        reasons.setdefault((why, tuple(names)), []).append(words)
    return reasons


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def documented(page: str) -> str:
    """A page with the table as it is now."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"
