"""`ds.penstock.write`, and `penstock.rechunk`, looked at with xarray's own engines."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import cftime
import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from data_sets import a_bit_of_everything, of_few_types, of_netcdf
from helpers import caught
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
import penstock.xarray
from penstock import _xarray_parts as parts
from penstock import _xarray_region as region
from penstock import _xarray_target
from penstock._xarray_encode import _agreed, _fineness

ENGINE = penstock.xarray.Backend
FORMS = ("zarr", "nc", "h5")

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:Times can't")


def opened(path, **options) -> xr.Dataset:
    return xr.open_dataset(path, engine=ENGINE, **options)


@pytest.fixture
def tmp_path(place):
    """Memory: nothing here asks anything of a disk."""
    return place


def everything(form: str) -> xr.Dataset:
    made = a_bit_of_everything()
    return of_netcdf(made) if form == "nc" else made


def look(path, made: xr.Dataset) -> None:
    """All who can open a store find the data set in it."""
    xr.testing.assert_identical(opened(path).load(), made)
    if path.suffix == ".zarr":
        for consolidated in (True, False):
            with xr.open_zarr(path, consolidated=consolidated) as theirs:
                xr.testing.assert_identical(theirs.load(), made)
    if path.suffix == ".nc":
        for engine in ("netcdf4", "h5netcdf"):
            with xr.open_dataset(path, engine=engine) as theirs:
                xr.testing.assert_identical(theirs.load(), made)
    assert [name for name in os.listdir(path.parent) if name.startswith(".")] == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunks", [None, {"x": 3, "time": 1}, {"u": (2, None, 4)}])
def test_a_data_set_in_memory(tmp_path, form, chunks):
    made = everything(form)
    path = tmp_path / f"run.{form}"
    report = made.penstock.write(path, chunks=chunks)
    assert report.bytes > made.u.nbytes
    look(path, made)
    extents = {None: (4, 5, 7), "x": (1, 5, 3), "u": (2, 5, 4)}[chunks and next(iter(chunks))]
    if chunks or form == "zarr":
        assert tuple(opened(path).u.encoding["preferred_chunks"].values()) == extents
    else:
        assert opened(path).u.encoding["contiguous"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("memory", [64, 1000, 2**20])
def test_a_data_set_of_dask_is_computed_in_pieces(tmp_path, form, memory):
    pytest.importorskip("dask")
    made = everything(form) if memory == 2**20 else of_few_types(everything(form))
    largest = []

    def seen(block):
        largest.append(block.nbytes)
        return block

    lazy = made.chunk({"x": 3, "y": 2, "time": 1})
    lazy["u"] = lazy.u.copy(data=lazy.u.data.map_blocks(seen, dtype="f8"))
    path = tmp_path / f"run.{form}"
    lazy.penstock.write(path, memory=memory, chunks={"y": 2, "x": 3})
    look(path, made)
    assert max(largest) <= 48
    # What another engine has opened, and not read, is taken in pieces, too.
    again = tmp_path / f"again.{form}"
    opened(path).penstock.write(again, memory=memory)
    look(again, made)


def test_no_piece_is_larger_than_the_memory(tmp_path, monkeypatch):
    made = xr.Dataset({"u": (("y", "x"), np.arange(600.0).reshape(20, 30))})
    made.penstock.write(tmp_path / "run.zarr", chunks={"y": 7, "x": 5})
    reads = []
    original = ps.Session.read

    def read(self, path, array, *args, **options):
        reads.append(original(self, path, array, *args, **options))
        return reads[-1]

    monkeypatch.setattr(ps.Session, "read", read)
    opened(tmp_path / "run.zarr").penstock.write(
        tmp_path / "other.zarr", chunks={"y": 4, "x": 30}, memory=1000
    )
    assert len(reads) > 5 and max(each.nbytes for each in reads) <= 1000
    look(tmp_path / "other.zarr", made)


def test_modes(tmp_path):
    path = tmp_path / "run.zarr"
    one = xr.Dataset({"u": ("x", [1, 2])}, attrs={"title": "one"})
    two = xr.Dataset({"v": ("x", [3.0, 4.0])}, attrs={"source": "two"})
    one.penstock.write(path)
    with pytest.raises(ps.ExistsError, match="mode"):
        two.penstock.write(path)
    look(path, one)
    two.penstock.write(path, mode="a")
    look(path, xr.Dataset({**one, **two}, attrs={**one.attrs, **two.attrs}))
    two.penstock.write(path, mode="w")
    look(path, two)
    for form in ("nc", "h5"):
        for made in (one, two):
            made.penstock.write(tmp_path / f"run.{form}", mode="w")
            look(tmp_path / f"run.{form}", made)
        one.penstock.write(tmp_path / f"run.{form}", mode="a")
        look(tmp_path / f"run.{form}", xr.Dataset({**one, **two}, attrs={**one.attrs, **two.attrs}))
    with pytest.raises(ps.SchemaError, match="mode"):
        one.penstock.write(path, mode="r+")


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "run.zarr"
    one = xr.Dataset({"u": ("x", [1, 2])})
    one.penstock.write(path)
    two = xr.Dataset({"u": ("x", [1, 2]), "v": ("y", [1.0, 2.0])})
    with pytest.raises(ps.SchemaError, match="codec"):
        two.penstock.write(path, mode="w", disk={"v": ps.Chunks(1, codec="nonsense")})
    look(path, one)
    with pytest.raises(ps.MissingError):
        one.penstock.write(tmp_path / "nowhere" / "run.zarr")


@pytest.mark.parametrize("can_exchange", [True, False])
def test_stores_of_any_form_are_replaced(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(_xarray_target, "_exchange", lambda one, other: False)
    one, two = xr.Dataset({"u": ("x", [1, 2])}), xr.Dataset({"u": ("x", [3.0])})
    (tmp_path / "run.zarr").write_text("a file")
    (tmp_path / "run.nc").mkdir()
    for path in (tmp_path / "run.zarr", tmp_path / "run.nc"):
        for made in (one, two):
            made.penstock.write(path, mode="w")
            look(path, made)
    (tmp_path / "link.zarr").symlink_to(tmp_path / "run.zarr")
    one.penstock.write(tmp_path / "link.zarr", mode="w")
    look(tmp_path / "run.zarr", one)
    assert (tmp_path / "link.zarr").is_symlink()


def test_a_store_that_cannot_be_put_in_its_place(tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    one, two = xr.Dataset({"u": ("x", [1, 2])}), xr.Dataset({"u": ("x", [3.0])})
    one.penstock.write(path)
    monkeypatch.setattr(_xarray_target, "_exchange", lambda one, other: False)
    original = os.rename

    def rename(source, target):
        if target == str(path) and not source.endswith(".former"):
            raise OSError(5, "no such luck")
        original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ps.IoError, match="no such luck"):
        two.penstock.write(path, mode="w")
    look(path, one)


def test_a_full_disk(tiny):
    path = tiny / "run.zarr"
    small = xr.Dataset({"u": ("x", [1, 2])})
    small.penstock.write(path)
    for form in ("zarr", "nc"):
        large = xr.Dataset({"u": ("x", np.random.default_rng(1).random(2**17))})
        with pytest.raises(ps.FullError):
            large.penstock.write(tiny / f"run.{form}", mode="w")
    look(path, small)


def test_what_is_no_group_of_format_3_is_not_added_to(tmp_path):
    made = xr.Dataset({"u": ("x", [1, 2])})
    made.to_zarr(tmp_path / "two.zarr", zarr_format=2)
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "other.zarr" / "file").write_text("")
    for name in ("two.zarr", "other.zarr"):
        with pytest.raises(ps.SchemaError, match="no group"):
            made.penstock.write(tmp_path / name, mode="a")
        assert not (tmp_path / name / "zarr.json").exists()


@pytest.mark.parametrize("form", FORMS)
def test_disk_schemas(tmp_path, form):
    made = everything(form)
    path = tmp_path / f"run.{form}"
    disk = {"zarr": ps.Chunks((2, 4, 4), subchunks=(1, 2, 2), codec="zstd:3+crc32c")}.get(form)
    disk = disk or (ps.NetCDF if form == "nc" else ps.HDF5)((2, 3, 3), filters="shuffle+deflate")
    made.penstock.write(path, codec={"zarr": "gzip"}.get(form, "deflate"), disk={"u": disk})
    look(path, made)
    with ps.Session() as s:
        assert s.open(path, "u" if form == "zarr" else "/u").disk == (
            disk if form == "zarr" else type(disk)((2, 3, 3), "/u", "shuffle+deflate:4")
        )


@pytest.mark.parametrize("form", ["nc", "h5"])
@pytest.mark.parametrize("codec", ["shuffle+deflate", "zstd", None])
def test_pieces_go_into_datasets_with_filters(tmp_path, form, codec):
    rng = np.random.default_rng(4)
    made = xr.Dataset({"u": (("y", "x"), rng.random((30, 20))), "v": ("x", np.arange(20.0))})
    made.penstock.write(tmp_path / "run.zarr", chunks={"y": 4, "x": 5})
    for chunks, memory in (({"y": 7, "x": 6}, 500), ({"y": 30, "x": 3}, 900), ({"y": 1}, 200)):
        path = tmp_path / f"run.{form}"
        lazy = opened(tmp_path / "run.zarr")
        lazy.penstock.write(path, codec=codec, chunks=chunks, memory=memory, mode="w")
        look(path, made)
        with h5py.File(path) as file:
            assert file["u"].chunks == (chunks["y"], chunks.get("x", 5))
            assert (file["u"].id.get_create_plist().get_nfilters() > 0) == (codec is not None)


@pytest.mark.parametrize("form", ["nc", "h5"])
def test_regions_are_written_to_datasets_of_others_with_filters(tmp_path, form):
    path = tmp_path / f"run.{form}"
    data = np.arange(60.0).reshape(10, 6)
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=data, chunks=(4, 4), compression=1, shuffle=True)
        file.create_dataset("sparse", (10, 6), "f8", chunks=(4, 4))
        for axis, name in enumerate(("y", "x")):
            file[name] = np.arange(data.shape[axis])
            file[name].make_scale(name)
            for each in ("u", "sparse"):
                file[each].dims[axis].attach_scale(file[name])
    part = xr.Dataset(dict.fromkeys(("u", "sparse"), (("y", "x"), -data[2:7])))
    part.penstock.write(path, region={"y": slice(2, 7)}, memory=100)
    wanted, sparse = data.copy(), np.zeros_like(data)
    wanted[2:7] = sparse[2:7] = -data[2:7]
    with h5py.File(path) as file:
        assert (file["u"][...] == wanted).all() and (file["sparse"][...] == sparse).all()
        assert file["u"].compression == "gzip"


def test_times_of_other_calendars(tmp_path):
    dates = [cftime.DatetimeNoLeap(2000, month, 1) for month in (1, 2, 3)]
    made = xr.Dataset({"u": ("time", [1, 2, 3])}, coords={"time": dates})
    made.penstock.write(tmp_path / "run.zarr")
    with xr.open_zarr(tmp_path / "run.zarr") as theirs:
        assert theirs.time.values.tolist() == dates
        assert theirs.time.encoding["calendar"] == "noleap"


def test_attributes_of_hdf5_have_their_types(tmp_path):
    made = xr.Dataset({"u": ("x", np.zeros(2), {"f4": np.float32(0.1), "i2": np.int16([1, 2])})})
    made.attrs = {"title": "types", "count": np.int32(3)}
    made.penstock.write(tmp_path / "run.nc")
    with netCDF4.Dataset(tmp_path / "run.nc") as file:
        assert file["u"].f4 == np.float32(0.1) and file["u"].f4.dtype == "f4"
        assert file["u"].i2.dtype == "i2" and file.count.dtype == "i4" and file.title == "types"
    with h5py.File(tmp_path / "run.nc") as file:
        assert file["u"].attrs["f4"].dtype == "f4"


def test_what_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "run.zarr"
    plain = xr.Dataset({"u": ("x", [1, 2])}, coords={"x": [1, 2]})
    for made, options, kind, words in [
        (plain.assign(name=("x", ["a", "b"])), {}, ps.UnsupportedError, "name.*drop_vars"),
        (plain.rename(u="a/b"), {}, ps.SchemaError, "a/b"),
        (plain.assign_attrs(a=object()), {}, ps.SchemaError, "attributes"),
        (plain, {"chunks": {"z": 1}}, ps.SchemaError, "'z'"),
        (plain, {"chunks": {"u": (1, 1)}}, ps.SchemaError, "2 extents"),
        (plain, {"chunks": {"u": {"y": 1}}}, ps.SchemaError, "'y'"),
        (plain, {"chunks": {"x": 0}}, ps.SchemaError, "x=0"),
        (plain, {"chunks": 3}, ps.SchemaError, "mapping"),
        (plain, {"disk": {"u": 3}}, ps.SchemaError, "disk"),
        (plain, {"memory": 0}, ps.SchemaError, "memory"),
        (plain, {"parts": {"z": 0}}, ps.SchemaError, "'z'"),
        (plain, {"parts": {"x": -1}}, ps.SchemaError, "-1"),
        (plain, {"parts": {"x": 1}}, ps.SchemaError, "leave elements out"),
        (plain, {"parts": {"x": "a"}}, ps.SchemaError, "integer"),
        (plain, {"servers": "unix:///nothing"}, ps.UnsupportedError, "standing"),
        (plain, {"nonsense": 1}, TypeError, "nonsense"),
    ]:
        with pytest.raises(kind, match=words):
            made.penstock.write(path, **options)
        assert not path.exists() and os.listdir(tmp_path) == []


# --- where parts lie ----------------------------------------------------------------------------


def held(**coords) -> parts.Held:
    return parts.held(xr.Dataset(coords={k: (k, np.asarray(v)) for k, v in coords.items()}), None)


@pytest.mark.parametrize(
    ("pieces", "starts"),
    [
        ([[0, 1], [2, 3, 4]], [0, 2]),
        ([[2, 3, 4], [0, 1]], [2, 0]),
        ([[4, 3, 2], [1, 0]], [0, 3]),
        ([[1, 0], [4, 3, 2]], [3, 0]),
        ([[0, 1], [0, 1], [5, 6]], [0, 0, 2]),
        ([[0, 1], [], [5]], [0, 0, 2]),
        ([[5], [4], [3]], [0, 1, 2]),
        ([[3], [4], [5]], [0, 1, 2]),
        ([["a", "b"], ["c"]], [0, 2]),
        ([pd.date_range("2000", periods=2), pd.date_range("2001", periods=1)], [0, 2]),
        ([[7, 8], [7, 8]], [0, 0]),
        ([[], []], [0, 0]),
    ],
)
def test_index_coordinates_say_where_parts_lie(pieces, starts):
    placement = parts.placed([held(x=piece) for piece in pieces])
    assert [start["x"] for start in placement.starts] == starts
    assert placement.whole["x"] == len({v for piece in pieces for v in np.asarray(piece).tolist()})


@pytest.mark.parametrize(
    "pieces",
    [
        [[0, 2], [1, 3]],
        [[0, 1], [1, 2]],
        [[0, 1], [5, 4]],
        [[0, 2, 1], [3, 4, 5]],
        [[0, 0], [1, 1]],
        [[5], [3], [4]],
    ],
)
def test_what_index_coordinates_do_not_say_is_refused(pieces):
    with pytest.raises(ps.SchemaError, match="parts="):
        parts.placed([held(x=piece) for piece in pieces])


def test_dimensions_without_index_are_not_guessed():
    made = xr.Dataset({"u": ("x", [1, 2])})
    with pytest.raises(ps.SchemaError, match="no index coordinate"):
        parts.placed([parts.held(made, None)] * 2)
    placement = parts.placed([parts.held(made, {"x": 2 * rank}) for rank in (1, 0)])
    assert placement.whole == {"x": 4} and placement.writers(("x",)) == [0, 1]
    placement = parts.placed([parts.held(made, {})] * 2)
    assert placement.whole == {"x": 2} and placement.writers(("x",)) == [0, 0]
    longer = xr.Dataset({"u": ("x", [1, 2, 3])})
    with pytest.raises(ps.SchemaError, match="sizes"):
        parts.placed([parts.held(made, {}), parts.held(longer, {})])
    with pytest.raises(ps.MismatchError):
        parts.placed([parts.held(made, {}), parts.held(made, {"x": 0})])
    with pytest.raises(ps.MismatchError):
        parts.placed([parts.held(made, {}), parts.held(made.rename(u="v"), {})])
    for starts, words in (((0, 1), "overlap"), ((0, 3), "leave elements out")):
        placement = parts.placed([parts.held(made, {"x": start}) for start in starts])
        with pytest.raises(ps.SchemaError, match=words):
            placement.writers(("x",))


@given(st.data())
@settings(max_examples=200)
def test_pieces_cover_a_box(data):
    dims = data.draw(st.integers(0, 3))
    each = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12))
    axes = data.draw(st.lists(each, min_size=dims, max_size=dims))
    start, shape, chunk = (tuple(axis[k] for axis in axes) for k in range(3))
    limit = data.draw(st.integers(1, 200))
    seen = np.zeros([a + b for a, b in zip(start, shape, strict=True)], int)
    for first, count in parts.pieces_of((start, shape), chunk, limit):
        assert 0 < np.prod(count) <= limit
        seen[tuple(slice(a, a + b) for a, b in zip(first, count, strict=True))] += 1
        for axis in range(dims):
            end = first[axis] + count[axis]
            is_edge = end % chunk[axis] == 0 or end == start[axis] + shape[axis]
            assert is_edge or limit < np.prod(chunk, dtype=int)
    inside = tuple(slice(a, None) for a in start)
    assert (seen[inside] == 1).all() and seen.sum() == np.prod(shape, dtype=int)


@pytest.mark.parametrize(
    ("moment", "unit"),
    [
        ("2000-01-01", "days"),
        ("2000-01-01 00:00:00", "days"),
        ("2000-01-01 06:00:00", "hours"),
        ("2000-01-01 06:30:00", "minutes"),
        ("2000-01-01 06:30:01", "seconds"),
        ("2000-01-01 06:30:01.500000", "milliseconds"),
        ("2000-01-01 06:30:01.000500", "microseconds"),
        ("2000-01-01 06:30:01.000000500", "nanoseconds"),
    ],
)
def test_how_fine_a_moment_is(moment, unit):
    assert _fineness(moment) == unit


def test_units_that_ranks_agree_on():
    days = {"units": "days since 2000-01-01", "calendar": "standard", "dtype": np.dtype("i8")}
    hours = {**days, "units": "hours since 2000-02-01 00:30:00"}
    assert _agreed([days, None, {}]) == days
    assert _agreed([days, hours])["units"] == "minutes since 2000-01-01"
    assert _agreed([hours, days])["units"] == "minutes since 2000-02-01 00:30:00"
    assert _agreed([days, {**days, "dtype": np.dtype("f8")}])["dtype"] == "f8"
    assert _agreed([None, {}]) is None


# --- regions ------------------------------------------------------------------------------------


def only_along(made: xr.Dataset, *dims: str) -> xr.Dataset:
    """The variables that have one of these dimensions."""
    return made.drop_vars([n for n, v in made.variables.items() if not set(v.dims) & set(dims)])


@pytest.mark.parametrize("form", FORMS)
def test_regions_fill_a_store(tmp_path, form):
    pytest.importorskip("dask")
    made = of_few_types(everything(form))
    path = tmp_path / f"run.{form}"
    made.chunk({"x": 2}).penstock.write(path, chunks={"x": 4, "y": 2}, compute=False)
    assert np.isnan(opened(path).u.values).all()
    for first, end in ((0, 3), (3, 6), (6, 7)):
        part = only_along(made.isel(x=slice(first, end)), "x")
        part.penstock.write(path, region={"x": slice(first, end)})
        part.penstock.write(path, region="auto", memory=50)
    only_along(made, "y").drop_vars(
        only_along(made, "x").variables, errors="ignore"
    ).penstock.write(path, region={"y": slice(None)})
    read = opened(path).load()
    rest = [name for name in made.variables if not {"x", "y"} & set(made[name].dims)]
    xr.testing.assert_identical(read.drop_vars(rest), made.drop_vars(rest))


def test_a_region_is_stored_as_the_store_is(tmp_path):
    path = tmp_path / "run.zarr"
    made = xr.Dataset(
        {"t": ("x", pd.date_range("2000-01-01", periods=4)), "p": ("x", np.arange(4) / 2)},
        coords={"x": np.arange(4)},
    )
    made.t.encoding = {"units": "hours since 1990-01-01", "dtype": "i4"}
    made.p.encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    made.penstock.write(path)
    later = made.copy(deep=True)
    later["t"] = ("x", made.t.values + np.timedelta64(1, "D"))
    later["p"] = ("x", [5.0, np.nan, 6.0, 7.0])
    later.isel(x=slice(1, 3)).penstock.write(path, region={"x": "auto"})
    raw = zarr.open_group(path)
    assert raw["p"].dtype == "i2" and raw["p"][:].tolist() == [0, -1, 12, 3]
    with xr.open_zarr(path) as read:
        for name in ("t", "p"):
            assert read[name][0] == made[name][0] and read[name][3] == made[name][3]
            assert read[name][1:3].equals(later[name][1:3])


def test_regions_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "run.zarr"
    made = xr.Dataset(
        {"u": (("y", "x"), np.zeros((3, 4))), "k": ("x", np.zeros(4, "i2"))},
        coords={"x": np.arange(4.0)},
    )
    made.penstock.write(path)
    part = made.isel(x=slice(1, 3))
    for given_, where, kind, words in [
        (part, {"x": slice(0, 3)}, ps.SchemaError, "has 3 of x"),
        (part, {"x": slice(0, 4, 2)}, ps.SchemaError, "without step"),
        (part, {"x": 1}, ps.SchemaError, "slice"),
        (part, {"z": slice(0, 2)}, ps.SchemaError, "'z'"),
        (part, "all", ps.SchemaError, "auto"),
        (part, 3, ps.SchemaError, "auto"),
        (part, {"y": slice(0, 3)}, ps.SchemaError, "drop_vars"),
        (part.drop_vars(["x", "k"]), {"y": slice(0, 3)}, ps.SchemaError, "must say which"),
        (part.assign_coords(x=[1.5, 2.5]), "auto", ps.SchemaError, "do not follow"),
        (part.isel(x=[1, 0]), "auto", ps.SchemaError, "do not follow"),
        (part.drop_vars("x"), {"x": "auto"}, ps.SchemaError, "no index"),
        (part.rename(u="v"), {"x": slice(1, 3)}, ps.MissingError, "'v'"),
        (part[["u"]].transpose(), {"x": slice(1, 3)}, ps.MismatchError, "over"),
        (part.assign(k=("x", [0.5, 1.5])), {"x": slice(1, 3)}, ps.MismatchError, "'k'"),
    ]:
        with pytest.raises(kind, match=words):
            given_.penstock.write(path, region=where)
    look(path, made)
    with pytest.raises(ps.MissingError):
        made.penstock.write(tmp_path / "other.zarr", region={"x": slice(None)})


@pytest.mark.parametrize(("form", "codec"), [("zarr", None), ("nc", "deflate:1"), ("h5", None)])
def test_tasks_that_share_chunks_lose_nothing(tmp_path, form, codec):
    """Threads of one process and the sessions of others: each region is a third of a chunk."""
    path = tmp_path / f"run.{form}"
    whole = xr.Dataset({"u": ("x", np.arange(60))})
    (whole * 0 - 1).penstock.write(path, chunks={"x": 15}, codec=codec)

    def write(first: int) -> None:
        part = whole.isel(x=slice(first, first + 5))
        part.penstock.write(path, region={"x": slice(first, first + 5)}, sync=False)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 60, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    look(path, whole)


def write_seven(task: tuple[str, int]) -> None:
    """The task of a process of its own, which finds it here."""
    path, first = task
    rows = np.arange(first, first + 7)
    part = xr.Dataset({"u": ("x", rows)}, coords={"x": rows})
    part.penstock.write(path, region="auto", sync=False)


@pytest.fixture(scope="module")
def processes():
    """Three processes, which take long to start."""
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize(
    ("form", "codec"), [*((form, None) for form in FORMS), ("nc", "shuffle+deflate:1")]
)
def test_processes_that_share_chunks_lose_nothing(tmp_path, processes, form, codec):
    path = tmp_path / f"run.{form}"
    whole = xr.Dataset({"u": ("x", np.arange(140))}, coords={"x": np.arange(140)})
    (whole * 0 - 1).penstock.write(path, chunks={"x": 20}, codec=codec)
    list(processes.map(write_seven, [(str(path), first) for first in range(0, 140, 7)]))
    look(path, whole)


def test_a_region_waits_for_another_writer(tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    whole = xr.Dataset({"u": ("x", np.arange(6))})
    whole.penstock.write(path)
    with ps.Session() as s, s.open(path, "u", mode="r+") as other:
        met = caught(lambda: whole.penstock.write(path, region={"x": slice(None)}, wait=0))
        assert isinstance(met, ps.BusyError)
        tries = []

        def close_then_sleep(seconds: float) -> None:
            tries.append(seconds)
            if len(tries) == 3:
                other.close()

        monkeypatch.setattr(region.time, "sleep", close_then_sleep)
        (whole + 1).penstock.write(path, region={"x": slice(None)})
    assert len(tries) == 3 and opened(path).u.values.tolist() == [1, 2, 3, 4, 5, 6]


# --- rechunk ------------------------------------------------------------------------------------


BY_DIMENSION, BY_VARIABLE = {"time": 1, "x": 3}, {"u": {"time": 1, "x": 3, "y": -1}}


@pytest.mark.parametrize(
    ("form", "source", "chunks"),
    [
        ("zarr", "path", BY_DIMENSION),  # the one that is a copy
        ("zarr", "path", BY_VARIABLE),
        ("zarr", "data set", BY_DIMENSION),
        ("zarr", "dask", BY_VARIABLE),
        ("nc", "path", BY_DIMENSION),
        ("nc", "data set", BY_VARIABLE),
        ("nc", "dask", BY_DIMENSION),
        ("h5", "path", BY_VARIABLE),
        ("h5", "data set", BY_DIMENSION),
        ("h5", "dask", BY_VARIABLE),
    ],
)
def test_rechunk(tmp_path, form, source, chunks):
    """Each form from each kind of source, and each of both with chunks of either kind."""
    pytest.importorskip("dask")
    made = everything(form)
    if (form, source, chunks) != ("zarr", "path", BY_DIMENSION):
        made = of_few_types(made)
    made.penstock.write(tmp_path / "run.zarr", chunks={"x": 2, "y": 5})
    given_ = tmp_path / "run.zarr"
    if source != "path":
        given_ = opened(given_, chunks={} if source == "dask" else None)
    memory = 2**23 if source == "path" else 10_000
    read = ps.rechunk(given_, tmp_path / f"other.{form}", chunks=chunks, memory=memory)
    assert read.u.data.chunksize == (1, 5, 3)
    look(tmp_path / f"other.{form}", made)
    with pytest.raises(ps.ExistsError):
        ps.rechunk(given_, tmp_path / f"other.{form}", chunks=chunks)
    ps.rechunk(given_, tmp_path / f"other.{form}", chunks={"u": (2, 2, 2)}, overwrite=True)
    look(tmp_path / f"other.{form}", made)


def test_rechunk_what_others_have_made(tmp_path):
    made = a_bit_of_everything().assign(name=("x", list("abcdefg")))
    made.to_zarr(tmp_path / "two.zarr", zarr_format=2)
    of_netcdf(made).to_netcdf(tmp_path / "run.nc")
    read = ps.rechunk(
        tmp_path / "two.zarr", tmp_path / "three.zarr", chunks={"x": 3}, drop_variables="name"
    )
    xr.testing.assert_identical(read.compute(), made.drop_vars("name"))
    with xr.open_zarr(tmp_path / "three.zarr") as theirs:
        xr.testing.assert_identical(theirs.load(), made)
    read = ps.rechunk(
        tmp_path / "run.nc", tmp_path / "four.zarr", chunks={"x": 3}, drop_variables=["name"]
    )
    xr.testing.assert_identical(read.compute(), of_netcdf(made).drop_vars("name"))
    with pytest.raises(ps.SchemaError):
        ps.rechunk(tmp_path / "run.nc", tmp_path / "five.zarr", chunks=3)
    with pytest.raises(ps.UnsupportedError, match="name"):  # nobody has said that it may be lost
        ps.rechunk(tmp_path / "run.nc", tmp_path / "six.zarr", chunks={"x": 3})
    read = ps.rechunk(
        tmp_path / "run.nc", tmp_path / "six.nc", chunks={"x": 3}, drop_variables="name",
        codec="shuffle+deflate",
    )  # fmt: skip
    xr.testing.assert_identical(read.compute(), of_netcdf(made).drop_vars("name"))
    for engine in ("netcdf4", "h5netcdf"):
        with xr.open_dataset(tmp_path / "six.nc", engine=engine) as theirs:
            xr.testing.assert_identical(theirs.load(), of_netcdf(made))
    with h5py.File(tmp_path / "six.nc") as file:
        assert file["u"].chunks[-1] == 3 and file["u"].compression == "gzip"


@pytest.mark.parametrize("target", ["zarr", "nc", "h5"])
def test_files_of_hdf5_are_rechunked_by_a_copy(tmp_path, target, monkeypatch):
    made = everything("nc" if target == "nc" else "h5")
    source = tmp_path / ("run.nc" if target == "nc" else "run.h5")
    made.penstock.write(source, chunks={"x": 2, "y": 5}, codec="shuffle+deflate")

    def write(*arguments, **options):
        raise AssertionError("a copy does it")

    monkeypatch.setattr(penstock.xarray, "write_whole", write)
    read = ps.rechunk(source, tmp_path / f"other.{target}", chunks={"time": 1, "x": 3})
    assert read.u.encoding["preferred_chunks"]["x"] == 3
    look(tmp_path / f"other.{target}", made)
