"""Copies from and to HDF5 and NetCDF-4 files: what their libraries say of source and target."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from helpers import leftovers, same_bits, values

import penstock as ps


def dataset() -> xarray.Dataset:
    """A data set as xarray's users have them."""
    data = values((5, 6, 7), "f4", 1)
    data[~np.isfinite(data)] = 0
    u = xarray.Variable(("time", "y", "x"), data, {"units": "K", "valid_min": np.float32(0.5)})
    u.encoding = {"chunksizes": (2, 3, 7), "zlib": True, "_FillValue": np.float32(-9)}
    rows = np.arange(42, dtype="i2").reshape(6, 7)
    return xarray.Dataset(
        {"u": u, "rows": (("y", "x"), rows), "one": ((), np.int32(7), {"epsg": 4326})},
        {"x": np.linspace(0, 1, 7), "time": np.arange(5.0), "lat": (("y", "x"), rows / 10)},
        {"title": "größer", "levels": np.arange(3), "version": 2},
    )


def assert_same(path: Path, wanted: xarray.Dataset, engines=("netcdf4", "h5netcdf")) -> None:
    """What xarray finds in a file, by each of its engines."""
    for engine in engines:
        how = {"consolidated": True} if engine == "zarr" else {}
        with xarray.open_dataset(path, engine=engine, **how) as found:
            xarray.testing.assert_identical(found.load(), wanted)


@pytest.fixture
def netcdf(tmp_path: Path) -> tuple[Path, xarray.Dataset]:
    """A file that the library of NetCDF has written, and what is in it."""
    path = tmp_path / "a.nc"
    dataset().to_netcdf(path, engine="netcdf4", unlimited_dims=["time"])
    with netCDF4.Dataset(path, "a") as opened:
        group = opened.createGroup("inner/most")
        group.createVariable("w", "i4", ("y", "time"), chunksizes=(6, 5))[...] = 3
        group.setncattr("note", "inside")
        opened["inner"].createGroup("empty")
        opened.createDimension("spare", 9)
        opened.createDimension("name", 2)
        opened.createVariable("name", str, ("name",))[...] = np.array(["a", "größer"], object)
        flags = opened.createVariable("flags", "S1", ("name", "x"))
        flags[...] = np.full((2, 7), b"y")
        flags.note = "texts of one byte"
    with xarray.open_dataset(path, engine="netcdf4") as opened:
        return path, opened.load()


def test_netcdf_goes_to_zarr_and_back(netcdf, tmp_path):
    path, wanted = netcdf
    report = ps.copy(path, tmp_path / "a.zarr", skip_unsupported=True)
    assert set(report.skipped) == {"name", "flags"}
    wanted = wanted.drop_vars(["name", "flags"])
    assert_same(tmp_path / "a.zarr", wanted, ["zarr"])
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert group["u"].chunks == (2, 3, 7) and (group["inner/most/w"][...] == 3).all()
    assert group["inner/most"].attrs["note"] == "inside" and "empty" in group["inner"]
    ps.copy(tmp_path / "a.zarr", tmp_path / "b.nc")
    assert_same(tmp_path / "b.nc", wanted)
    with netCDF4.Dataset(tmp_path / "b.nc") as opened:
        assert set(opened.dimensions) == {"time", "y", "x"}
        assert opened["u"].chunking() == [2, 3, 7] and opened["u"].filters()["zlib"]
        assert (opened["inner/most/w"][...] == 3).all()
        assert opened["inner/most"].note == "inside" and opened["u"].dtype == "f4"
        assert opened["u"]._FillValue == -9 and opened["u"]._FillValue.dtype == "f4"
    assert not leftovers(tmp_path)


def test_netcdf_is_copied_with_all_that_its_library_knows(netcdf, tmp_path):
    path, wanted = netcdf
    ps.copy(path, tmp_path / "b.nc")
    assert_same(tmp_path / "b.nc", wanted)

    def about(group: netCDF4.Dataset | netCDF4.Group) -> dict:
        def of(v: netCDF4.Variable) -> list:
            stored = [v.dtype, v.dimensions, v.shape, v.chunking(), v.filters(), v.endian()]
            attributes = [(key, v.getncattr(key)) for key in v.ncattrs()]
            return stored + [(key, str(a), np.asarray(a).dtype) for key, a in attributes]

        variables = {name: of(v) for name, v in group.variables.items()}
        dimensions = {name: (len(d), d.isunlimited()) for name, d in group.dimensions.items()}
        attributes = {key: str(group.getncattr(key)) for key in group.ncattrs()}
        inner = {name: about(child) for name, child in group.groups.items()}
        return {"v": variables, "d": list(dimensions.items()), "a": attributes, "g": inner}

    with netCDF4.Dataset(path) as one, netCDF4.Dataset(tmp_path / "b.nc") as other:
        assert about(one) == about(other)
        # In their order, behind those that Penstock does not understand.
        known = [name for name in one.variables if name not in ("name", "flags")]
        assert list(other.variables) == ["name", "flags", *known]
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as opened:  # and it goes on as it did
        opened["time"][5] = 5.0
        assert opened["u"].shape == (6, 6, 7)
    for how in ({"chunks": {"time": 5}}, {"filters": "none"}, {"filters": "zstd+fletcher32"}):
        ps.copy(path, tmp_path / "c.nc", overwrite=True, **how)
        with h5py.File(tmp_path / "c.nc") as opened:
            assert opened["u"].chunks == ((5, 3, 7) if "chunks" in how else (2, 3, 7))
        assert same_bits(
            ps.run(lambda s: s.read(f"{tmp_path}/c.nc:/u", ps.Array("u", (5, 6, 7), "f4")), 1)[0],
            read_h5(path, "u"),
        )


def read_h5(path: Path, name: str) -> np.ndarray:
    with h5py.File(path) as opened:
        return opened[name][...]


def test_hdf5_is_copied_with_scales_labels_types_and_links(tmp_path):
    path, data = tmp_path / "a.h5", values((9, 8), "f8", 3)
    with h5py.File(path, "w", track_order=True) as file:
        file.create_dataset(
            "z/u", data=data, chunks=(4, 3), compression=2, shuffle=True, maxshape=(None, 8)
        )
        file["z"].create_dataset("big", data=data.astype(">f8"))
        file["a"] = np.arange(9.0)
        file["other"] = np.arange(9)
        file["a"].make_scale("the name")
        file["other"].make_scale()
        file["z/u"].dims[0].attach_scale(file["a"])
        file["z/u"].dims[0].attach_scale(file["other"])
        file["z/u"].dims[0].label = "rows"
        file["z/u"].dims[1].label = "columns"
        file["texts"] = ["a", "größer"]
        file["table"] = np.zeros(3, [("a", "i4"), ("b", "S3")])
        file.create_dataset("lzf", data=data, chunks=(3, 3), compression="lzf")
        file.create_dataset("empty", (3, 4), "f4")
        file.create_group("nothing")
        file["soft"] = h5py.SoftLink("/z/u")
        file["far"] = h5py.ExternalLink("other.h5", "/x")
        file["kind"] = np.dtype("i2")
        file["z/u"].attrs["f2"] = np.float16(1.5)
        file["z/u"].attrs["table"] = np.zeros(2, [("a", "i4")])
        file["z/u"].attrs["matrix"] = np.eye(2)
        file["z"].attrs["names"] = ["x", "yz"]
    report = ps.copy(path, tmp_path / "b.h5")
    assert set(report.as_they_are) == {"texts", "table", "lzf", "soft", "far", "kind"}
    with h5py.File(path) as one, h5py.File(tmp_path / "b.h5") as other:
        names = []
        one.visit(names.append)
        there = []
        other.visit(there.append)
        assert sorted(names) == sorted(there)
        for name in names:
            a, b = one[name], other[name]
            assert list(a.attrs) == list(b.attrs) or not isinstance(a, h5py.Dataset), name
            if isinstance(a, h5py.Dataset):
                assert (
                    a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and a.chunks == b.chunks
                ), name
                assert a.maxshape == b.maxshape and a.compression == b.compression, name
                assert [d.label for d in a.dims] == [d.label for d in b.dims]
                assert [[s.name for s in d.values()] for d in a.dims] == [
                    [s.name for s in d.values()] for d in b.dims
                ]
                assert (
                    a[...].tobytes() == b[...].tobytes()
                    or a.dtype.byteorder == ">"
                    or a.dtype == object
                ), name
        u = other["z/u"].attrs
        assert (
            u["f2"].dtype == "f2"
            and u["table"].dtype.names == ("a",)
            and (u["matrix"] == np.eye(2)).all()
        )
        assert other["a"].is_scale and other["z/u"].dims[0].keys() == ["the name", ""]
        assert list(other["texts"].asstr()) == ["a", "größer"]
        assert other.get("soft", getlink=True).path == "/z/u"
        assert other.get("far", getlink=True).filename == "other.h5"
        assert same_bits(other["z/big"][...], data)
    assert not leftovers(tmp_path)


def test_what_a_target_has_no_place_for_is_refused_or_left_out(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["u"] = np.arange(6.0)
        file["texts"] = ["a", "b"]
        file["soft"] = h5py.SoftLink("/u")
        file["u"].attrs["table"] = np.zeros(2, [("a", "i4")])
        file["u"].attrs["ref"] = file["u"].ref
        file["u"].attrs["units"] = "K"
    with pytest.raises(ps.UnsupportedError, match="soft"):
        ps.copy(path, tmp_path / "a.zarr")
    with pytest.raises(ps.UnsupportedError, match=r'"ref"|"table"'):
        ps.copy(path, tmp_path / "a.zarr", skip_unsupported=True)
    with pytest.raises(ps.UnsupportedError, match='"ref"'):
        ps.copy(path, tmp_path / "b.h5")
    report = ps.copy(path, tmp_path / "a.zarr", skip_unsupported=True, drop_attributes=True)
    assert set(report.skipped) == {"texts", "soft"}
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert dict(group["u"].attrs) == {"units": "K"} and list(group) == ["u"]
    made = zarr.create_group(tmp_path / "c.zarr", attributes={"yes": True, "deep": {"a": 1}})
    made.create_array("u", data=np.arange(4.0), attributes={"none": None})
    made.create_array("text", data=np.array(["a", "b"], dtype=np.dtypes.StringDType()))
    with pytest.raises(ps.UnsupportedError, match="text"):
        ps.copy(tmp_path / "c.zarr", tmp_path / "c.h5")
    with pytest.raises(ps.UnsupportedError, match=r'"deep"|"none"'):
        ps.copy(tmp_path / "c.zarr", tmp_path / "c.h5", skip_unsupported=True)
    for name, kept in (("c.h5", {"yes"}), ("c.nc", set())):
        ps.copy(tmp_path / "c.zarr", tmp_path / name, skip_unsupported=True, drop_attributes=True)
        with h5py.File(tmp_path / name) as file:
            assert set(file.attrs) - {"_NCProperties"} == kept and not set(file["u"].attrs) & {
                "none"
            }
    half = zarr.create_group(tmp_path / "d.zarr")
    half.create_array("half", data=np.zeros(3, "f2"))
    with pytest.raises(ps.UnsupportedError, match="half"):
        ps.copy(tmp_path / "d.zarr", tmp_path / "d.nc")
    for how, words in (
        ({"codec": "zstd"}, "filters"),
        ({"subchunks": 2}, "sub-chunks"),
        ({"filters": "szip"}, "filters"),
        ({"filters": "blosc"}, "blosc"),
        ({"row_major": True, "filters": "deflate"}, "row-major"),
    ):
        with pytest.raises(ps.Error, match=words):
            ps.copy(tmp_path / "d.zarr", tmp_path / "d.h5", **how)
    with pytest.raises(ps.SchemaError, match="codec"):
        ps.copy(path, tmp_path / "e.zarr", arrays="u", filters="deflate")
    assert not (tmp_path / "c.nc~").exists() and not (tmp_path / "d.h5").exists()
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_zarr_of_every_kind_goes_to_hdf5(dtype, ranks, tmp_path):
    group = zarr.create_group(tmp_path / "a.zarr")
    wanted = {}
    for name, shape, how in (
        ("plain", (7, 11, 5), {"chunks": (3, 4, 2), "compressors": None}),
        ("packed", (7, 11, 5), {"chunks": (3, 4, 2)}),
        ("deep/shards", (8, 12), {"shards": (4, 6), "chunks": (2, 3)}),
        ("one", (), {}),
        ("none", (0, 3), {"chunks": (2, 2)}),
        ("large", (3, 2), {"chunks": (30, 20)}),
    ):
        wanted[name] = values(shape, dtype, 5)
        group.create_array(name, data=wanted[name], fill_value=np.dtype(dtype).type(1), **how)
    ps.copy(tmp_path / "a.zarr", tmp_path / "b.h5", ranks=ranks)
    with h5py.File(tmp_path / "b.h5") as file:
        for name, data in wanted.items():
            assert same_bits(np.asarray(file[name][()]), data), name
            assert file[name].dtype == data.dtype and file[name].fillvalue == 1, name
        assert file["packed"].compression == "gzip" and file["plain"].compression is None
        assert file["deep/shards"].chunks == (2, 3) and file["large"].chunks == (3, 2)
    ps.copy(tmp_path / "b.h5", tmp_path / "c.zarr", ranks=ranks)
    again = zarr.open_group(tmp_path / "c.zarr", mode="r")
    for name, data in wanted.items():
        assert same_bits(np.asarray(again[name][()]), data), name


def test_one_array_goes_to_a_dataset_of_a_file_that_is_there_or_not(tmp_path):
    data = values((20, 30), "f8", 2)
    np.save(tmp_path / "u.npy", data)
    made = zarr.create_group(tmp_path / "a.zarr")
    made.create_array("g/v", data=data, chunks=(7, 9), attributes={"units": "K"})
    x = tmp_path / "x.h5"
    ps.copy(tmp_path / "u.npy", x)
    ps.copy(tmp_path / "u.npy", f"{x}:/in/w", filters="shuffle+deflate", chunks=(5, 30))
    ps.copy(tmp_path / "a.zarr/g/v", f"{x}:/v")
    ps.copy(tmp_path / "a.zarr", f"{x}:/all")
    ps.copy(tmp_path / "a.zarr", f"{tmp_path}/y.h5:/deep/er", arrays="g/v")
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(tmp_path / "u.npy", f"{x}:/v")
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(tmp_path / "u.npy", x)
    with pytest.raises(ps.UnsupportedError, match="group"):
        ps.copy(tmp_path / "u.npy", f"{x}:/in", overwrite=True)
    ps.copy(tmp_path / "u.npy", f"{x}:/v", overwrite=True)
    with h5py.File(x) as file:
        for name in ("u", "in/w", "v", "all/g/v"):
            assert same_bits(file[name][...], data), name
        assert file["in/w"].chunks == (5, 30) and file["in/w"].shuffle
        assert file["all/g/v"].attrs["units"] == "K"
    assert same_bits(read_h5(tmp_path / "y.h5", "deep/er"), data)
    with pytest.raises(ps.SchemaError, match="within"):
        ps.copy(f"{x}:/u", f"{x}:/again")
    ps.copy(f"{x}:/all", tmp_path / "part.h5")
    assert same_bits(read_h5(tmp_path / "part.h5", "g/v"), data)
    ps.copy(x, tmp_path / "some.zarr", arrays=["in/w", "v"])
    assert {node.path for node in ps.ls(tmp_path / "some.zarr")} == {"", "in", "in/w", "v"}
    ps.copy(x, tmp_path / "w.npy", arrays="in/w")
    assert same_bits(np.load(tmp_path / "w.npy"), data)
    ps.copy(x, tmp_path / "a.zarr", arrays="in/w", name="w2")
    assert same_bits(zarr.open_group(tmp_path / "a.zarr")["w2"][...], data)
    assert not leftovers(tmp_path)


def test_the_memory_of_a_copy_is_bounded(tmp_path):
    data = values((300, 400, 20), "f8", 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(300, 10, 1), compression=1)
    ps.copy(tmp_path / "a.h5", tmp_path / "b.h5", memory=10 << 20, chunks=(10, 400, 20))
    assert same_bits(read_h5(tmp_path / "b.h5", "u"), data)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(300, 400, 1), compression="lzf")
    with pytest.raises(ps.UnsupportedError, match="memory"):
        ps.copy(tmp_path / "c.h5", tmp_path / "d.h5", memory=4 << 20)


def test_a_session_copies_with_all_ranks(tmp_path):
    data = values((40, 50), "i4", 6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(9, 9), compression=1)
        file["v"] = data
    reports = ps.run(lambda s: s.copy(tmp_path / "a.h5", tmp_path / "b.nc"), 3)
    assert reports[0].arrays == ("u", "v")
    assert same_bits(read_h5(tmp_path / "b.nc", "u"), data)
    assert same_bits(read_h5(tmp_path / "b.nc", "v"), data)


COPY = """
import sys, penstock as ps
done = 0
def tell(bytes, all):
    print(bytes, flush=True)
ps.copy(sys.argv[1], sys.argv[2], memory=6 << 20, progress=tell)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_copy_goes_on_and_leaves_nothing(seed, tmp_path):
    data = values((600, 1000), "f8", seed)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, how in (("u", {"compression": 1}), ("v", {}), ("w", {"shuffle": True})):
            file.create_dataset(name, data=data, chunks=(100, 100), **how)
    job = subprocess.Popen(
        [sys.executable, "-c", COPY, tmp_path / "a.h5", tmp_path / "b.h5"],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(2 + seed):
        job.stdout.readline()
    job.send_signal(signal.SIGKILL)
    job.wait()
    report = ps.copy(tmp_path / "a.h5", tmp_path / "b.h5", memory=6 << 20, overwrite=True)
    for name in "uvw":
        assert same_bits(read_h5(tmp_path / "b.h5", name), data), name
    assert report.bytes == 3 * data.nbytes and not leftovers(tmp_path)
