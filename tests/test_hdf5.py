"""HDF5 and NetCDF-4 files: what Penstock writes others read, and the other way."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import hdf5plugin
import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from helpers import alone, leftovers, ramp, same_bits, values

import penstock as ps

SHAPE = (7, 11, 5)
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
FILTERS = [
    "none",
    "shuffle",
    "deflate:1",
    "fletcher32",
    "shuffle+deflate+fletcher32",
    "zstd",
    "shuffle+bzip2:3",
]
CHUNKS = [None, SHAPE, (3, 4, 2), (1, 1, 1), (10, 20, 30)]


def write(path: Path, array: ps.Array, data: np.ndarray, **how) -> None:
    """Write by three ranks, of which each has a block."""
    memory = ps.Distribution(",".join(["BLOCK"] + ["*"] * (data.ndim - 1)), (3,))
    array = array.with_memory(memory) if data.ndim else array

    def rank(s: ps.Session) -> None:
        if data.ndim == 0:
            s.write(path, array, data, **how)
            return
        s.write(path, array, np.ascontiguousarray(data[array.local_slices(s.rank)]), **how)

    ps.run(rank, 3, servers=2)


def read(path: str | Path, array: ps.Array) -> np.ndarray:
    """Read all by one rank, with three servers."""
    return ps.run(lambda s: s.read(path, array), 1, servers=3)[0]


def of(data: np.ndarray, disk=None, **more) -> ps.Array:
    return ps.Array("u", data.shape, data.dtype, disk=disk, **more)


@pytest.mark.parametrize("dtype", DTYPES)
def test_h5py_reads_every_dtype(dtype, tmp_path):
    data = values(SHAPE, dtype, 1)
    for chunks, filters in ((None, "none"), ((3, 4, 2), "none"), ((3, 4, 2), "shuffle+deflate")):
        write(tmp_path / "x.h5", of(data, ps.HDF5(chunks, filters=filters)), data)
        with h5py.File(tmp_path / "x.h5") as file:
            assert file["u"].dtype == data.dtype and file["u"].chunks == chunks
            assert same_bits(file["u"][...], data)
        assert same_bits(read(tmp_path / "x.h5", of(data)), data)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("chunks", CHUNKS[1:])
def test_h5py_reads_every_filter_and_chunk(chunks, filters, tmp_path):
    data = values(SHAPE, "f8", 2)
    write(tmp_path / "x.h5", of(data, ps.HDF5(chunks, "/a/b/u", filters)), data)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["a/b/u"].chunks == tuple(map(min, chunks, SHAPE))
        assert same_bits(file["a/b/u"][...], data)
    assert same_bits(read(f"{tmp_path}/x.h5:/a/b/u", of(data)), data)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("?", "i1", "u1")])
def test_what_h5py_writes_is_read_in_both_byte_orders(dtype, order, tmp_path):
    data = values(SHAPE, dtype, 3)
    stored = data.astype(data.dtype.newbyteorder(order))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["flat"] = stored
        file.create_dataset("chunked", data=stored, chunks=(3, 4, 2))
        file.create_dataset("packed", data=stored, chunks=(3, 4, 2), compression=4, shuffle=True)
    for name in ("flat", "chunked", "packed"):
        assert same_bits(read(f"{tmp_path}/x.h5:/{name}", of(data)), data), name


FILTERS_OF_H5PY = {
    "shuffle": {"shuffle": True},
    "gzip": {"compression": 9},
    "fletcher32": {"fletcher32": True},
    "all": {"shuffle": True, "compression": 1, "fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd(7)),
    "blosc": dict(hdf5plugin.Blosc("zstd", 3, hdf5plugin.Blosc.BITSHUFFLE)),
    "bzip2": dict(hdf5plugin.BZip2()),
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("filters", FILTERS_OF_H5PY.values(), ids=FILTERS_OF_H5PY)
def test_every_filter_and_chunk_index_of_h5py_is_read(filters, libver, tmp_path):
    data = values(SHAPE, "f4", 4)
    data[0] = 0
    extents = {
        "fixed": SHAPE,
        "one": (None, *SHAPE[1:]),
        "more": (None, *SHAPE[1:-1], None),
        "limited": tuple(2 * n for n in SHAPE),
    }
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        for name, most in extents.items():
            file.create_dataset(name, data=data, chunks=(3, 4, 2), maxshape=most, **filters)
        sparse = file.create_dataset(
            "sparse", SHAPE, "f4", chunks=(3, 4, 2), fillvalue=7, **filters
        )
        sparse[3:6, 4:8, 2:4] = 1
        shrunk = file.create_dataset(
            "shrunk", data=data, chunks=(2, 2, 2), maxshape=SHAPE, **filters
        )
        shrunk.resize((3, 11, 4))
        file.create_dataset("small", data=data, chunks=(20, 30, 9), maxshape=(None,) * 3, **filters)
    for name in [*extents, "small"]:
        assert same_bits(read(f"{tmp_path}/x.h5:/{name}", of(data)), data), name
    wanted = np.full(SHAPE, 7, "f4")
    wanted[3:6, 4:8, 2:4] = 1
    assert same_bits(read(f"{tmp_path}/x.h5:/sparse", of(data)), wanted)
    shrunk = np.ascontiguousarray(data[:3, :, :4])
    assert same_bits(read(f"{tmp_path}/x.h5:/shrunk", of(shrunk)), shrunk)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5,)])
def test_arrays_without_dimensions_and_without_elements(shape, tmp_path):
    data = values(shape, "f8", 5)
    ways = [ps.HDF5(dataset="/plain")]
    if shape:
        ways += [ps.HDF5(2, "/chunked") if len(shape) == 1 else ps.HDF5((2, 2), "/chunked")]
        ways += [ps.HDF5((2,) * len(shape), "/packed", "deflate")]
    for way in ways:
        write(tmp_path / "x.h5", of(data, way), data)
        with h5py.File(tmp_path / "x.h5") as file:
            assert same_bits(np.asarray(file[way.dataset][...]), data)
        assert same_bits(read(f"{tmp_path}/x.h5:{way.dataset}", of(data)), data)


def test_elements_that_nobody_holds_are_the_fill_value(tmp_path):
    wanted = np.full((6, 8), -1.5)
    wanted[2:4, 1:5] = 9
    for chunks, filters in ((None, "none"), ((4, 4), "none"), ((4, 4), "deflate")):
        array = ps.Array("u", (6, 8), "f8", disk=ps.HDF5(chunks, filters=filters), fill_value=-1.5)
        array = array.with_memory(ps.Boxes((2, 1), (2, 4)))
        with ps.Session() as s:
            s.write(tmp_path / "x.h5", array, np.full((2, 4), 9.0))
            with h5py.File(tmp_path / "x.h5") as file:
                assert file["u"].fillvalue == -1.5
                assert same_bits(file["u"][...], wanted)
            assert same_bits(s.read(tmp_path / "x.h5", ps.Array("u", (6, 8), "f8")), wanted)


@pytest.mark.parametrize("strategy", ["disk-directed", "two-phase", "independent", "caching"])
def test_every_strategy_writes_datasets_without_filters(strategy, tmp_path):
    data = values((12, 8), "i4", 6)
    for chunks in (None, (4, 8)):
        write(tmp_path / "x.h5", of(data, ps.HDF5(chunks)), data, strategy=strategy)
        with h5py.File(tmp_path / "x.h5") as file:
            assert same_bits(file["u"][...], data)
        got = ps.run(lambda s: s.read(tmp_path / "x.h5", of(data), strategy=strategy), 1)[0]
        assert same_bits(got, data)


def test_split_collectives_and_direct_io(tmp_path):
    data = values((600, 400), "f8", 7)
    with ps.Session(direct=True, servers=2) as s:
        for chunks, filters in (
            (None, "none"),
            ((100, 100), "none"),
            ((100, 100), "shuffle+zstd:1"),
        ):
            array = of(data, ps.HDF5(chunks, filters=filters))
            s.begin_write(tmp_path / "x.h5", array, data).end()
            with h5py.File(tmp_path / "x.h5") as file:
                assert same_bits(file["u"][...], data)
            assert same_bits(s.read(tmp_path / "x.h5", array), data)


def test_attributes_and_dimensions(tmp_path):
    data = values((3, 4), "f4", 8)
    attrs = {"units": "K", "n": 3, "x": 1.5, "yes": True, "list": [1, 2], "names": ["a", "bc"]}
    attrs |= {"nan": float("nan"), "größe": "µm"}
    array = of(data, ps.HDF5(), dims=("y", "x"), attrs=attrs)
    with ps.Session() as s:
        s.write(tmp_path / "x.h5", array, data)
        with pytest.raises(ps.UnsupportedError, match='"yes"'):
            s.write(tmp_path / "x.nc", array.with_disk(ps.NetCDF()), data)
        del attrs["yes"]
        s.write(tmp_path / "x.nc", of(data, ps.NetCDF(), dims=("y", "x"), attrs=attrs), data)
    with h5py.File(tmp_path / "x.h5") as file:
        there = dict(file["u"].attrs)
        assert [dim.label for dim in file["u"].dims] == ["y", "x"]
        assert there["units"] == "K" and there["größe"] == "µm" and there["n"] == 3
        assert there["yes"] and np.isnan(there["nan"]) and list(there["names"]) == ["a", "bc"]
    for path in ("x.h5", "x.nc"):
        with ps.Session() as s:
            found = s.open(tmp_path / path)
        if path == "x.h5":
            assert found.attrs.pop("yes") is True
        assert found.dims == ("y", "x")
        assert found.attrs["nan"] != found.attrs.pop("nan")
        assert found.attrs == {name: value for name, value in attrs.items() if name != "nan"}


@pytest.mark.parametrize("attrs", [{"a": {}}, {"a": None}, {"a": [1, "x"]}])
def test_attributes_that_hdf5_does_not_have_are_refused(attrs, tmp_path):
    data = np.zeros(3)
    with ps.Session() as s, pytest.raises(ps.UnsupportedError, match='"a"'):
        s.write(tmp_path / "x.h5", of(data, ps.HDF5(), attrs=attrs), data)
    assert not list(tmp_path.iterdir())


def test_netcdf_is_read_by_its_programs(tmp_path):
    data = ramp((3, 4, 5))
    path = tmp_path / "x.nc"
    array = of(data, ps.NetCDF((2, 2, 2), filters="shuffle+deflate"), dims=("t", "y", "x"))
    array = array.with_disk(ps.NetCDF((2, 2, 2), filters="shuffle+deflate"))
    x = ps.Array("x", 5, "f4", disk=ps.NetCDF(), dims=("x",), attrs={"units": "m"})
    flat = ps.Array("v", (4, 5), "i2", disk=ps.NetCDF(), dims=("y", "x"), fill_value=-9)
    with ps.Session() as s:
        s.write(path, array, data)
        s.write(path, x, np.arange(5, dtype="f4"))
        s.write(path, flat, np.ones((4, 5), "i2"))
        s.write(f"{path}:/group/w", flat, np.full((4, 5), 2, "i2"))
        s.write(path, array, data + 1)
        s.write(path, x, np.arange(5, dtype="f4") * 2)
    for engine in ("netcdf4", "h5netcdf"):
        with xarray.open_dataset(path, engine=engine) as opened:
            assert same_bits(opened.u.values, data + 1) and opened.u.dims == ("t", "y", "x")
            assert list(opened.x.values) == [0, 2, 4, 6, 8] and opened.x.attrs["units"] == "m"
            assert (opened.v.values == 1).all() and set(opened.sizes) == {"t", "y", "x"}
    with netCDF4.Dataset(path) as opened:
        assert list(opened.dimensions) == ["t", "y", "x"]
        assert list(opened.variables) == ["v", "u", "x"] or set(opened.variables) == {"u", "v", "x"}
        assert opened["group"]["w"].dimensions == ("y", "x") and (opened["group/w"][...] == 2).all()
    # And what they add is read, and they read what is added to theirs.
    with netCDF4.Dataset(path, "a") as opened:
        opened.createVariable("more", "f4", ("y",))[...] = [1, 2, 3, 4]
    assert list(read(f"{path}:/more", ps.Array("more", 4, "f4"))) == [1, 2, 3, 4]
    with netCDF4.Dataset(tmp_path / "theirs.nc", "w") as made:
        made.createDimension("time")
        made.createDimension("y", 4)
        made.createVariable("a", "f8", ("time", "y"))[...] = np.arange(8.0).reshape(2, 4)
    with ps.Session() as s:
        s.write(
            f"{tmp_path}/theirs.nc:/b",
            ps.Array("b", 4, "f8", disk=ps.NetCDF(), dims=("y",)),
            np.ones(4),
        )
    with xarray.open_dataset(tmp_path / "theirs.nc", engine="netcdf4") as opened:
        assert opened.b.dims == ("y",) and opened.a.shape == (2, 4) and (opened.b == 1).all()


def test_dimensions_of_two_lengths_are_refused(tmp_path):
    with ps.Session() as s:
        array = ps.Array("u", (3, 4), "f8", disk=ps.NetCDF(), dims=("y", "x"))
        s.write(tmp_path / "x.nc", array, np.zeros((3, 4)))
        before = (tmp_path / "x.nc").read_bytes()
        other = ps.Array("v", (3, 5), "f8", disk=ps.NetCDF(), dims=("y", "x"))
        with pytest.raises(ps.SchemaError, match='"x"'):
            s.write(tmp_path / "x.nc", other, np.zeros((3, 5)))
        assert (tmp_path / "x.nc").read_bytes() == before and not leftovers(tmp_path)


def test_a_file_with_datasets_of_others_keeps_them(tmp_path):
    data = ramp((50, 60))
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["theirs"] = data
        file["theirs"].attrs["a"] = "b"
        file["link"] = h5py.SoftLink("/theirs")
    with ps.Session() as s:
        for round in range(5):
            s.write(tmp_path / "x.h5", of(data, ps.HDF5((7, 9), filters="deflate")), data + round)
            s.write(f"{tmp_path}/x.h5:/g/v{round}", of(data, ps.HDF5()), data - round)
    with h5py.File(tmp_path / "x.h5") as file:
        assert same_bits(file["theirs"][...], data) and file["theirs"].attrs["a"] == "b"
        assert same_bits(file["link"][...], data) and same_bits(file["u"][...], data + 4)
        assert all(same_bits(file[f"g/v{n}"][...], data - n) for n in range(5))
    assert not leftovers(tmp_path)


def test_a_file_is_listed_with_its_groups(tmp_path):
    data = np.zeros((2, 3))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b/u"] = data
        file["v"] = data
        file["text"] = "text"
        file["a"].attrs["units"] = "K"
    found = {node.path: node.kind for node in ps.ls(tmp_path / "x.h5")}
    groups = {"": "group", "a": "group", "a/b": "group"}
    assert found == groups | {"a/b/u": "array", "v": "array", "text": "unreadable"}
    assert [node.path for node in ps.ls(f"{tmp_path}/x.h5:/a")] == ["", "b", "b/u"]
    (only,) = ps.ls(f"{tmp_path}/x.h5:/a/b/u")
    assert only.array is not None and only.array.shape == (2, 3)
    about = ps.info(tmp_path / "x.h5")
    assert {"path": "a", "attributes": {"units": "K"}} in about["groups"]
    with pytest.raises(ps.MissingError):
        ps.ls(f"{tmp_path}/x.h5:/nothing")


def test_datasets_are_copied_to_zarr(tmp_path):
    data = values((30, 20), "f4", 12)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("g/u", data=data, chunks=(7, 6), compression=3, shuffle=True)
        file["g/u"].attrs["units"] = "K"
        file["flat"] = data
    ps.copy(f"{tmp_path}/x.h5:/g/u", tmp_path / "a.zarr")
    ps.copy(f"{tmp_path}/x.h5:/flat", tmp_path / "a.zarr", chunks=(30, 5))
    copied = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert same_bits(copied["u"][...], data) and copied["u"].chunks == (7, 6)
    assert copied["u"].attrs["units"] == "K"
    assert same_bits(copied["flat"][...], data) and copied["flat"].chunks == (30, 5)


def test_what_cannot_be_is_refused(tmp_path):
    data = np.zeros((4, 4))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["g/u"] = data
        file["text"] = "text"
        file.create_dataset("lz4", data=data, chunks=(2, 2), **hdf5plugin.LZ4())
        file["odd"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
    (tmp_path / "no.h5").write_bytes(b"\x89HDX" * 1000)
    with ps.Session() as s:

        def refused(kind, words, path, disk, data=data, **more):
            with pytest.raises(kind, match=words):
                s.write(path, of(data, disk, **more), data)

        x = tmp_path / "x.h5"
        refused(ps.SchemaError, "no dataset", f"{x}:/g", ps.HDF5())
        refused(ps.SchemaError, "no HDF5", tmp_path / "no.h5", ps.HDF5())
        refused(ps.SchemaError, "two|and the disk", f"{x}:/a", ps.HDF5(dataset="/b"))
        refused(ps.SchemaError, "chunks", x, ps.HDF5(filters="deflate"))
        refused(ps.SchemaError, "filters", x, ps.HDF5((2, 2), filters="szip"))
        refused(ps.UnsupportedError, "blosc", x, ps.HDF5((2, 2), filters="blosc"))
        refused(ps.MissingError, "parent", tmp_path / "none" / "x.h5", ps.HDF5())
        for name, kind in (("text", "texts"), ("lz4", "filter"), ("odd", "records")):
            with pytest.raises(ps.UnsupportedError, match=kind):
                s.read(f"{x}:/{name}", of(data))
        with pytest.raises(ps.MissingError, match="/g/u"):
            s.read(f"{x}:/v", of(data))
        with h5py.File(x, "a") as file:
            file.create_dataset("void", (4, 4), "f8")
        with pytest.raises(ps.UnsupportedError, match="all of it"):
            s.write(f"{x}:/void", of(data, ps.HDF5()), np.ones((2, 2)), region=np.s_[:2, :2])


def test_a_file_that_others_have_open_is_busy(tmp_path):
    data = np.zeros(3)
    with ps.Session() as s:
        s.write(tmp_path / "x.h5", of(data, ps.HDF5()), data)
        for operation in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with open(tmp_path / "x.h5") as theirs:
                fcntl.flock(theirs, operation)
                with pytest.raises(ps.BusyError, match="open"):
                    s.write(tmp_path / "x.h5", of(data, ps.HDF5(dataset="/v")), data)
        s.write(tmp_path / "x.h5", of(data, ps.HDF5(dataset="/v")), data)


def test_open_arrays_change_datasets_in_place(tmp_path):
    data = values((40, 30), "f8", 11)
    with ps.Session() as s:
        s.write(tmp_path / "x.h5", of(data, ps.HDF5((8, 8))), data)
        with s.open(f"{tmp_path}/x.h5:/u", mode="r+") as opened:
            opened.write(np.s_[3:9, 5:20], np.ones((6, 15)))
            assert (opened.read(np.s_[3:9, 5:20]) == 1).all()
    data[3:9, 5:20] = 1
    with h5py.File(tmp_path / "x.h5") as file:
        assert same_bits(file["u"][...], data)


@pytest.mark.parametrize("fill", [0, 3])
@pytest.mark.parametrize("filters", ["none", "deflate:1"])
def test_what_is_not_stored_reads_as_the_fill_value(filters, fill, tmp_path):
    """Also into memory in which something stands already."""
    array = ps.Array("u", (8, 8), "i4", disk=ps.HDF5((4, 4), filters=filters), fill_value=fill)
    with ps.Session() as s:
        s.write(
            tmp_path / "x.h5", array.with_memory(ps.Boxes((0, 0), (4, 4))), np.ones((4, 4), "i4")
        )
    with h5py.File(tmp_path / "x.h5") as file:
        found = np.full((8, 8), 77, "i4")
        file["u"].read_direct(found)
    assert (found[:4, :4] == 1).all() and (found[4:] == fill).all() and (found[:, 4:] == fill).all()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize(
    "filters",
    [{}, {"compression": 4, "shuffle": True, "fletcher32": True}, dict(hdf5plugin.Zstd())],
)
def test_a_part_of_a_dataset_is_written(filters, libver, tmp_path):
    path, shape = tmp_path / "x.h5", (40, 30, 9)
    ways = {
        "fixed": {},
        "one": {"maxshape": (None, 30, 9)},
        "more": {"maxshape": (None, 30, None)},
        "whole": {"chunks": shape},
        "large": {"maxshape": (None, None, None), "chunks": (50, 40, 10)},
        "sparse": {"fillvalue": -1},
        "big": {"dtype": ">f4"},
        "user": {},
    }
    models = {}
    with h5py.File(path, "w", libver=libver, userblock_size=512) as file:
        for n, (name, how) in enumerate(ways.items()):
            how = {"chunks": (8, 7, 3), "dtype": "f4"} | how | filters
            made = file.create_dataset(name, shape, **how)
            if name == "sparse":
                made[:8, :7, :3] = models[name] = values((8, 7, 3), "f4", n)
                models[name] = made[...]
            else:
                models[name] = made[...] = values(shape, "f4", n)
            made.attrs["n"] = n
        if not filters:
            file["run"] = models["run"] = values(shape, "f4", 99)
    boxes = [np.s_[:, :, :], np.s_[3:17, 5:6, 2:8], np.s_[39:, :, 4:], np.s_[8:16, 7:14, 3:6]]
    boxes += [np.s_[0:1, 0:1, 0:1], np.s_[20:20, :, :], np.s_[2:39, 1:29, 1:8]]
    arrays = {
        name: ps.Array(name, shape, "f4", memory=ps.Distribution("BLOCK,*,*", (2,)), disk=ps.HDF5())
        for name in models
    }
    for turn, box in enumerate(boxes[1:] + boxes):
        starts = [s.indices(n)[0] for s, n in zip(box, shape, strict=True)]
        for model in models.values():
            part = values(model[box].shape, "f4", turn + 100)
            if turn % 3 == 0:
                part[...] = turn  # which is encoded in a few bytes
            model[box] = part

        def rank(s, box=box, starts=starts):
            for name, model in models.items():
                half = (model[box].shape[0] + 1) // 2
                own = slice(0, half) if s.rank == 0 else slice(half, None)
                local = np.ascontiguousarray(model[box][own])
                region = tuple(
                    slice(a + (own.start if d == 0 else 0), a + (own.start if d == 0 else 0) + n)
                    for d, (a, n) in enumerate(zip(starts, local.shape, strict=True))
                )
                s.write(f"{path}:/{name}", arrays[name], local, region=region)

        ps.run(rank, 2, servers=3)
        with h5py.File(path) as file:
            for n, name in enumerate(ways):
                assert same_bits(np.asarray(file[name][...], "f4"), models[name]), (name, turn)
                assert file[name].attrs["n"] == n
    for name, model in models.items():
        assert same_bits(read(f"{path}:/{name}", ps.Array("u", shape, "f4")), model), name
    assert not leftovers(tmp_path)


def test_a_part_is_refused_while_others_have_the_file_open(tmp_path):
    data = values((20, 30), "f8", 1)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(8, 8), compression=1)
    with ps.Session() as s, open(tmp_path / "x.h5") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_SH)
        with pytest.raises(ps.BusyError, match="open"):
            s.write(f"{tmp_path}/x.h5:/u", of(data), np.ones((2, 2)), region=np.s_[:2, :2])
        fcntl.flock(theirs, fcntl.LOCK_UN)
        s.begin_write(f"{tmp_path}/x.h5:/u", of(data), np.ones((2, 2)), region=np.s_[:2, :2]).end()
    data[:2, :2] = 1
    with h5py.File(tmp_path / "x.h5") as file:
        assert same_bits(file["u"][...], data)


WRITER = """
import sys, numpy as np, penstock as ps
path, seed = sys.argv[1], int(sys.argv[2])
data = np.full((64, 64), float(seed))
with ps.Session() as s:
    print("ready", flush=True)
    while True:
        for disk in (ps.HDF5(dataset="/new"), ps.HDF5((16, 16), "/new", "shuffle+deflate:1")):
            s.write(path, ps.Array("new", (64, 64), "f8", disk=disk), data)
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_write_leaves_the_file_readable(seed, tmp_path):
    path = tmp_path / "x.h5"
    old = values((100, 100), "f8", seed)
    with h5py.File(path, "w") as file:
        file["old"] = old
        file["new"] = np.full((64, 64), float(seed))
    job = subprocess.Popen([sys.executable, "-c", WRITER, path, str(seed)], stdout=subprocess.PIPE)
    assert job.stdout.readline() == b"ready\n"
    time.sleep(0.02 + 0.013 * seed)
    job.send_signal(signal.SIGKILL)
    job.wait()
    with ps.Session() as s:
        for name, wanted in (("old", old), ("new", np.full((64, 64), float(seed)))):
            assert same_bits(s.read(f"{path}:/{name}", of(wanted)), wanted), name
        s.write(f"{path}:/after", of(old, ps.HDF5()), old)
    with h5py.File(path) as file:
        assert same_bits(file["old"][...], old) and same_bits(file["after"][...], old)
        assert (file["new"][...] == seed).all()
    assert not leftovers(tmp_path)


def test_h5py_and_penstock_live_in_one_process(tmp_path):
    """Each has a library of its own."""
    said = alone(
        "import sys, numpy as np, penstock as ps, h5py\n"
        "data = np.arange(12.0)\n"
        "for round in range(3):\n"
        "    with ps.Session() as s:\n"
        "        s.write(sys.argv[1], ps.Array('u', 12, 'f8', disk=ps.HDF5(5)), data)\n"
        "    with h5py.File(sys.argv[1], 'a') as file:\n"
        "        assert (file['u'][...] == data).all()\n"
        "        file[f'v{round}'] = data\n"
        "print(sorted(h5py.File(sys.argv[1])))\n",
        tmp_path / "x.h5",
    )
    assert said.strip() == "['u', 'v0', 'v1', 'v2']"
