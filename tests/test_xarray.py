"""The engine `penstock` of xarray, beside xarray's own engines on the same stores."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import pickle
import subprocess
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import hypothesis.strategies as st
import numpy as np
import pytest
import xarray as xr
import zarr
from data_sets import a_bit_of_everything, of_few_types, of_netcdf
from helpers import DTYPES
from hypothesis import given, settings

import penstock as ps
import penstock.xarray
from penstock import _xarray_index

ENGINE = penstock.xarray.Backend
"""The class itself is an engine, also where the package is not installed."""

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:.*Zarr V3 spec")


@pytest.fixture
def tmp_path(place):
    """Memory: nothing here asks anything of a disk."""
    return place


def opened(path, **options) -> xr.Dataset:
    return xr.open_dataset(path, engine=ENGINE, **options)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("decode", [True, False])
def test_zarr_of_xarray(tmp_path, zarr_format, decode):
    made = a_bit_of_everything()
    made.to_zarr(tmp_path / "run.zarr", zarr_format=zarr_format)
    made.to_zarr(tmp_path / "run.zarr", group="a/b", zarr_format=zarr_format)
    for group in (None, "a/b", "/a/b/", "a"):
        options = {"group": group, "decode_cf": decode}
        with xr.open_dataset(tmp_path / "run.zarr", engine="zarr", **options) as theirs:
            ours = opened(tmp_path / "run.zarr", **options)
            xr.testing.assert_identical(ours, theirs)
            for name, variable in ours.variables.items():
                assert variable.dtype == theirs[name].dtype
                chunks = theirs[name].encoding.get("preferred_chunks")
                assert variable.encoding.get("preferred_chunks") == chunks


@pytest.mark.parametrize("maker", ["h5netcdf", "netcdf4"])
@pytest.mark.parametrize("decode", [True, False])
def test_netcdf_of_xarray(tmp_path, maker, decode):
    made = of_netcdf(a_bit_of_everything())
    encoding = {"u": {"chunksizes": (1, 3, 4), "zlib": True}}
    made.to_netcdf(tmp_path / "run.nc", engine=maker, encoding=encoding, unlimited_dims=["time"])
    made.to_netcdf(tmp_path / "run.nc", engine=maker, mode="a", group="a/b")
    for group in (None, "a/b"):
        for engine in ("h5netcdf", "netcdf4"):
            options = {"group": group, "decode_cf": decode}
            with xr.open_dataset(tmp_path / "run.nc", engine=engine, **options) as theirs:
                ours = opened(tmp_path / "run.nc", **options)
                xr.testing.assert_identical(ours, theirs)
                assert {n: v.dtype for n, v in ours.variables.items()} == {
                    n: v.dtype for n, v in theirs.variables.items()
                }
    assert opened(tmp_path / "run.nc").u.encoding["preferred_chunks"] == {"time": 1, "y": 3, "x": 4}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [None, 0, 1])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_of_zarr(tmp_path, dtype, fill, zarr_format):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=zarr_format)
    named = {"dimension_names": ["x"]} if zarr_format == 3 else {}
    array = group.create_array(
        "u", shape=5, chunks=2, dtype=dtype, fill_value=0 if fill is None else fill, **named
    )
    array[:3] = np.array([0, 1, 1], dtype)
    if zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    with xr.open_zarr(tmp_path / "g.zarr", consolidated=False) as theirs:
        ours = opened(tmp_path / "g.zarr")
        xr.testing.assert_identical(ours, theirs)
        assert ours.u.dtype == theirs.u.dtype


def test_a_fill_value_that_is_none(tmp_path):
    u = ps.Array("u", (3,), "f4", dims=("x",), attrs={"_FillValue": "no base 64"})
    with ps.Session() as s:
        s.write(tmp_path / "g.zarr", u, np.zeros(3, "f4"))
    with pytest.raises(ps.DamagedError, match="no base 64"):
        opened(tmp_path / "g.zarr")


def test_groups_of_penstock(tmp_path):
    u = ps.Array("u", (6,), "f4", dims=("x",), attrs={"units": "K"}, disk=ps.Chunks(4))
    group = ps.Group(
        "g",
        [u],
        tmp_path / "g.zarr",
        attrs={"title": "g"},
        coords={"x": np.arange(6.0), "name": (("x",), list("abcdef"))},
        time_attrs={"units": "days since 2000-01-01", "calendar": "standard"},
    )
    with ps.Session() as s:
        s.timestep(group, {"u": np.arange(6, dtype="f4")}, time=1.0)
        before = opened(group.path, drop_variables="name")
        s.timestep(group, {"u": np.arange(6, dtype="f4") + 1}, time=2.0)
        s.checkpoint(group, {"u": np.arange(6, dtype="f4")}, step=7)
    with xr.open_zarr(group.path, drop_variables="name") as theirs:
        xr.testing.assert_identical(opened(group.path, drop_variables="name"), theirs)
        assert theirs.time.dtype.kind == "M"
        # What was opened before the array has grown is as it was.
        xr.testing.assert_identical(before.compute(), theirs.isel(time=slice(1)).compute())
        assert (before.u[:, ::-2].values == theirs.u[:1, ::-2].values).all()
    state = opened(group.path, group="checkpoints/7")
    assert state.u.values.tolist() == list(range(6))


def test_a_store_on_the_disks_of_servers(tmp_path):
    for server in range(2):
        (tmp_path / f"disk{server}").mkdir()
    path = tmp_path / "disk{server}" / "run.zarr"
    u = ps.Array("u", (8,), "f4", dims=("x",), disk=ps.Chunks(2))
    with ps.Session(servers=2) as s:
        s.write(path, u, np.arange(8, dtype="f4"))
    assert opened(path).u[::-3].values.tolist() == [7, 4, 1]


@pytest.mark.parametrize(
    "disk",
    [
        None,
        ps.Chunks((4, 4), subchunks=(2, 2), codec="zstd+crc32c"),
        ps.RowMajor("raw"),
        ps.RowMajor("npy"),
        ps.Distribution("BLOCK,*", mesh=(2,)),
        ps.HDF5(),
        ps.HDF5((2, 3), filters="shuffle+deflate"),
        ps.NetCDF((2, 3), filters="zstd"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("lists", [False, True], ids=["boxes", "lists"])
def test_every_form(tmp_path, monkeypatch, disk, lists):
    if lists:
        monkeypatch.setattr(_xarray_index, "HULL_ELEMENTS", 0)
        monkeypatch.setattr(_xarray_index, "HULL_FACTOR", 0)
    values = np.arange(35, dtype="i4").reshape(5, 7)
    u = ps.Array("u", (5, 7), "i4", dims=("y", "x"), disk=disk)
    suffix = {ps.RowMajor: "raw", ps.HDF5: "h5", ps.NetCDF: "nc"}.get(type(disk), "zarr")
    path = tmp_path / ("u.npy" if disk == ps.RowMajor("npy") else f"run.{suffix}")
    with ps.Session() as s:
        s.write(path, u, values)
    (name,) = opened(path).data_vars
    read = opened(path)[name].variable
    assert read.dims == (("u_0", "u_1") if path.suffix == ".npy" else ("y", "x"))
    assert np.array_equal(read[::-2, [6, 0, 3]], values[::-2][:, [6, 0, 3]])
    assert np.array_equal(read[1:4, 2], values[1:4, 2]) and np.array_equal(read, values)


def test_hdf5_of_others(tmp_path):
    with h5py.File(tmp_path / "run.h5", "w", userblock_size=512) as file:
        file["scale"] = np.arange(2.0)
        file["scale"].make_scale("scale")
        file["u"] = np.arange(6).reshape(2, 3)
        file["u"].dims[0].attach_scale(file["scale"])
        file["u"].dims[1].label = "column"
        file["alone"] = np.arange(3)
        file["alone"].attrs["range"] = np.array([0.5, 1.5])
        file["text"] = "some text"
    read = opened(tmp_path / "run.h5", drop_variables="text")
    assert read.alone.dims == ("alone_0",) and read.scale.dims == ("scale",)
    assert read.alone.attrs["range"].tolist() == [0.5, 1.5]
    assert (read.u.values == np.arange(6).reshape(2, 3)).all()


def test_what_cannot_be_read_is_refused_or_left_out(tmp_path):
    made = xr.Dataset({"u": ("x", [1, 2])}, coords={"name": ("x", ["a", "b"])})
    made.to_zarr(tmp_path / "run.zarr")
    made.to_netcdf(tmp_path / "run.nc")
    for path in (tmp_path / "run.zarr", tmp_path / "run.nc"):
        with pytest.raises(ps.UnsupportedError, match="drop_variables='name'"):
            opened(path)
        assert opened(path, drop_variables=["name"]).u.values.tolist() == [1, 2]
        assert "u" not in opened(path, drop_variables=["name", "u"])
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "nothing.zarr")
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "run.zarr", group="nothing")


def test_an_array_that_has_become_another_is_refused(tmp_path):
    def write(shape, dtype):
        u = ps.Array("u", shape, dtype, dims=[f"d{axis}" for axis in range(len(shape))])
        with ps.Session() as s:
            s.write(tmp_path / "g.zarr", u, np.zeros(shape, dtype))

    write((4,), "f4")
    before = opened(tmp_path / "g.zarr")
    for shape, dtype in (((3,), "f4"), ((4,), "f8"), ((4, 1), "f4")):
        write(shape, dtype)
        with pytest.raises(ps.BusyError, match="when it was opened"):
            before.u.values  # noqa: B018 - it is read


def test_decoding_is_xarrays(tmp_path):
    of_few_types(a_bit_of_everything()).to_zarr(tmp_path / "run.zarr")
    for options in (
        {"mask_and_scale": False},
        {"decode_times": False},
        {"decode_timedelta": False},
        {"decode_coords": False},
        {"drop_variables": ["u", "x"]},
        {"decode_times": {"time": False, "when": True}},
    ):
        with xr.open_dataset(tmp_path / "run.zarr", engine="zarr", **options) as theirs:
            xr.testing.assert_identical(opened(tmp_path / "run.zarr", **options), theirs)


def test_trees(tmp_path):
    made = of_netcdf(a_bit_of_everything())
    made.to_zarr(tmp_path / "run.zarr")
    made[["single"]].to_zarr(tmp_path / "run.zarr", group="a/b")
    made.to_netcdf(tmp_path / "run.nc")
    made[["single"]].to_netcdf(tmp_path / "run.nc", group="a/b", mode="a")
    for path, engine in ((tmp_path / "run.zarr", "zarr"), (tmp_path / "run.nc", "h5netcdf")):
        with xr.open_datatree(path, engine=engine) as theirs:
            xr.testing.assert_identical(xr.open_datatree(path, engine=ENGINE), theirs)
        assert list(xr.open_groups(path, engine=ENGINE)) == ["/", "/a", "/a/b"]
        below = xr.open_groups(path, engine=ENGINE, group="a")
        assert list(below) == ["/", "/b"] and below["/b"].single == 3


# --- which elements ---------------------------------------------------------------------------

SHAPE = (5, 7, 6)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same array, read by xarray's engine for Zarr and by ours."""
    path = tmp_path_factory.mktemp("indexing") / "run.zarr"
    values = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
    made = xr.Dataset({"u": (("a", "b", "c"), values)})
    made.to_zarr(path, encoding={"u": {"chunks": (2, 3, 4)}})
    with xr.open_zarr(path, chunks=None) as theirs:
        yield theirs.u, opened(path).u


def slices(extent: int) -> st.SearchStrategy:
    """Slices with any step, but for empty ones that go backwards, which xarray itself refuses."""
    return st.slices(extent).filter(
        lambda part: (part.step or 1) > 0 or len(range(*part.indices(extent))) > 0
    )


def indexers(extent: int) -> st.SearchStrategy:
    numbers = st.integers(-extent, extent - 1)
    return st.one_of(
        numbers,
        slices(extent),
        st.lists(numbers, max_size=6).map(lambda picked: np.array(picked, int)),
        st.lists(st.booleans(), min_size=extent, max_size=extent).map(np.array),
    )


@pytest.mark.parametrize("hull", [(2**20, 8), (0, 2), (0, 0)], ids=["boxes", "both", "lists"])
def test_any_indexing_gives_what_zarr_gives(stores, monkeypatch, hull):
    theirs, ours = stores
    monkeypatch.setattr(_xarray_index, "HULL_ELEMENTS", hull[0])
    monkeypatch.setattr(_xarray_index, "HULL_FACTOR", hull[1])

    @settings(max_examples=120)
    @given(st.tuples(*map(indexers, SHAPE)))
    def outer(key):
        named = dict(zip("abc", key, strict=True))
        wanted = theirs.copy(deep=False).isel(named)
        xr.testing.assert_identical(ours.copy(deep=False).isel(named), wanted)

    @settings(max_examples=120)
    @given(st.data())
    def vectorized(data):
        shape = data.draw(st.sampled_from([(3,), (2, 2), (1,), (0,)]))
        dims = ("p", "q")[: len(shape)]
        named = {}
        for dim, extent in zip("abc", SHAPE, strict=True):
            kind = data.draw(st.sampled_from(["points", "points", "slice", "number", "array"]))
            numbers = st.integers(-extent, extent - 1)
            count = int(np.prod(shape))
            if kind == "points":
                picked = data.draw(st.lists(numbers, min_size=count, max_size=count))
                named[dim] = xr.DataArray(np.array(picked, int).reshape(shape), dims=dims)
            elif kind == "slice":
                named[dim] = data.draw(slices(extent))
            elif kind == "number":
                named[dim] = data.draw(numbers)
            else:
                named[dim] = np.array(data.draw(st.lists(numbers, max_size=4)), int)
        wanted = theirs.copy(deep=False).isel(named)
        xr.testing.assert_identical(ours.copy(deep=False).isel(named), wanted)

    outer()
    vectorized()


def test_indices_out_of_bounds(stores):
    with pytest.raises(IndexError):
        stores[1].isel(a=[0, 5]).values  # noqa: B018 - it is read


def test_indexing_twice_reads_what_is_left(stores):
    theirs, ours = stores
    wanted = theirs[::-2][:, [5, 1]][1:, :, ::3]
    xr.testing.assert_identical(ours[::-2][:, [5, 1]][1:, :, ::3], wanted)


# --- processes, threads, dask -------------------------------------------------------------------


def total(variable: xr.Variable, row: int) -> float:
    """The sum of a row: other processes find it here."""
    return float(variable[row].sum())


def test_other_processes_and_threads_read_it(tmp_path, monkeypatch):
    values = np.arange(60.0).reshape(6, 10)
    xr.Dataset({"u": (("y", "x"), values)}).to_zarr(tmp_path / "run.zarr")
    monkeypatch.chdir(tmp_path)
    variable = opened("run.zarr").u.variable
    monkeypatch.chdir("/")
    copied = pickle.loads(pickle.dumps(variable))
    assert np.array_equal(copied, values)
    sums = values.sum(axis=1).tolist()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(total, [variable] * 6, range(6))) == sums
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        assert list(pool.map(total, [variable] * 6, range(6))) == sums


def test_ranks_on_threads_read_it(tmp_path):
    """A rank reads by a session of its own while that of its program is open."""
    xr.Dataset({"u": ("x", np.arange(6))}).to_zarr(tmp_path / "run.zarr")
    read = opened(tmp_path / "run.zarr")

    def main(s):
        u = ps.Array("u", (6,), "i8", ps.Distribution("BLOCK", (s.size,)))
        local = read.u[u.local_slices(s.rank)].values
        s.write(tmp_path / "copy.zarr", u, local)
        return local.tolist()

    assert [each for part in ps.run(main, 3) for each in part] == list(range(6))
    assert opened(tmp_path / "copy.zarr").u.values.tolist() == list(range(6))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_chunks_of_dask_are_those_that_are_stored(tmp_path, scheduler):
    dask = pytest.importorskip("dask")
    values = np.random.default_rng(1).random((10, 9))
    made = xr.Dataset({"u": (("y", "x"), values)})
    made.to_zarr(tmp_path / "run.zarr", encoding={"u": {"chunks": (4, 5)}})
    read = opened(tmp_path / "run.zarr", chunks={})
    assert read.u.chunks == ((4, 4, 2), (5, 4))
    with dask.config.set(scheduler=scheduler, num_workers=2):
        assert np.allclose(read.u.mean("x").values, values.mean(1))
        xr.testing.assert_identical(read.compute(), made)


# --- the engine ---------------------------------------------------------------------------------


def test_nothing_is_taken_from_other_engines(tmp_path):
    engine = ENGINE()
    xr.Dataset({"u": ("x", [1])}).to_zarr(tmp_path / "run.zarr")
    xr.Dataset({"u": ("x", [1])}).to_netcdf(tmp_path / "run.nc")
    np.save(tmp_path / "u.npy", np.zeros(3))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "schema.json").write_text('{"type": "object"}')
    (tmp_path / "table").write_text("")
    (tmp_path / "table.json").write_text("no JSON")
    for name in ("run.zarr", "run.nc", "u.npy", "other", "table", "nothing"):
        assert not engine.guess_can_open(tmp_path / name)
    assert not engine.guess_can_open(b"CDF") and not engine.guess_can_open(None)
    u = ps.Array("u", (3,), "f4")
    with ps.Session() as s:
        for name, disk in (("u.raw", ps.RowMajor()), ("u.parts", ps.Distribution("BLOCK", (2,)))):
            s.write(tmp_path / name, u.with_disk(disk), np.zeros(3, "f4"))
            assert engine.guess_can_open(tmp_path / name)


def test_xarray_finds_the_engine():
    declared = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    (target,) = declared["project"]["entry-points"]["xarray.backends"].values()
    found = importlib.metadata.EntryPoint("penstock", target, "xarray.backends")
    assert found.load() is ENGINE
    parameters = inspect.signature(ENGINE.open_dataset).parameters
    assert tuple(parameters)[1:] == ENGINE.open_dataset_parameters
    if any(e.name == "penstock" for e in importlib.metadata.entry_points(group="xarray.backends")):
        assert isinstance(xr.backends.list_engines()["penstock"], ENGINE)


def test_penstock_alone_does_not_import_xarray():
    program = "import penstock, sys; assert not {'xarray', 'pandas', 'dask'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ)
