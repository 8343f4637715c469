"""Copies to buckets and out of them, and data sets of xarray written there: whole or not at all."""

from __future__ import annotations

import itertools

import bucket_saver
import numpy as np
import pytest
import xarray as xr
import zarr
from buckets import (
    Service,
    are_in_order,
    gofakes3,
    kill_numbers,
    killed_at,
    reached,
    url,
)
from helpers import penstock, same_bits, values

import penstock as ps
from penstock.xarray import Backend

SHAPE = (7, 6, 11)


@pytest.fixture(scope="module")
def bucket():
    with reached(gofakes3()) as running:
        yield running


def signed(sign: int, seed: int) -> np.ndarray:
    return values(SHAPE, "f8", seed) if sign > 0 else -values(SHAPE, "f8", seed)


def make(path, sign: int = 1, names=("u", "v", "deep/w")) -> None:
    """A group with arrays of several forms, some in a group of it."""
    disks = itertools.cycle([ps.Chunks((4, 3, 5)), ps.Chunks((4, 4, 6), subchunks=(2, 4, 3))])
    with ps.Session() as s:
        for seed, (name, disk) in enumerate(zip(names, disks, strict=False)):
            above, _, own = f"/{name}".rpartition("/")
            whole = signed(sign, seed)
            s.write(f"{path}{above}", ps.Array(own, SHAPE, "f8", disk=disk), whole)


def check(found: zarr.Group, sign: int = 1, names=("u", "v", "deep/w"), more=()) -> None:
    for seed, name in enumerate(names):
        assert same_bits(found[name][...], signed(sign, seed)), name
    listed = {name for name, _ in found.members(max_depth=None)}
    assert listed == {*names, *(name.split("/")[0] for name in names), *more}


def opened(bucket: Service, path: str, **options) -> zarr.Group:
    return zarr.open_group(bucket.zarr(path), mode="r", **options)


@pytest.mark.parametrize("chunks", [None, (7, 2, 11)])
def test_a_tree_goes_there_and_back(bucket: Service, place, chunks):
    make(place / "a.zarr")
    path = f"tree-{chunks is None}"
    options = {"chunks": chunks} if chunks else {}
    ps.copy(place / "a.zarr", url(f"{path}/b.zarr"), **options)
    for consolidated in (True, False):
        check(opened(bucket, f"{path}/b.zarr", use_consolidated=consolidated))
    ps.copy(url(f"{path}/b.zarr"), url(f"{path}/c.zarr"))
    check(opened(bucket, f"{path}/c.zarr"))
    ps.copy(url(f"{path}/c.zarr"), place / "d.zarr")
    check(zarr.open_group(place / "d.zarr", mode="r"))
    keys = bucket.keys(f"{path}/")
    assert all(key.endswith("zarr.json") or "/c/" in key for key in keys), keys
    assert ps.verify(url(f"{path}/c.zarr")).absent == 0


def test_hdf5_goes_there_and_back(bucket: Service, place):
    make(place / "a.zarr")
    ps.copy(place / "a.zarr", place / "a.h5")
    penstock("copy", place / "a.h5", url("of-hdf5.zarr"))
    check(opened(bucket, "of-hdf5.zarr"))
    penstock("copy", url("of-hdf5.zarr"), place / "b.h5")
    with ps.Session() as s:
        about = s.open(place / "b.h5", "/deep/w")
        assert same_bits(s.read(place / "b.h5", about), values(SHAPE, "f8", 2))
    for target in ("x.h5", "x.nc", "x.h5:/u"):
        with pytest.raises(ps.UnsupportedError, match="HDF5"):
            ps.copy(place / "a.zarr", url(target))
    assert not bucket.keys("x.")


def test_one_array(bucket: Service, place):
    make(place / "a.zarr")
    zarr.create_group(bucket.zarr("one.zarr"), attributes={"title": "there"})
    ps.copy(place / "a.zarr", url("one.zarr"), arrays=["u"], chunks=(3, 3, 3), codec="zstd:1")
    ps.copy(place / "a.zarr", url("one.zarr"), arrays=["deep/w"], name="x")
    found = opened(bucket, "one.zarr")
    assert found.attrs["title"] == "there" and found["u"].chunks == (3, 3, 3)
    assert same_bits(found["u"][...], values(SHAPE, "f8", 0))
    assert same_bits(found["x"][...], values(SHAPE, "f8", 2))
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(place / "a.zarr", url("one.zarr"), arrays=["u"])
    ps.copy(place / "a.zarr", url("one.zarr"), arrays=["v"], name="u", overwrite=True)
    assert same_bits(opened(bucket, "one.zarr")["u"][...], values(SHAPE, "f8", 1))
    with pytest.raises(ps.UnsupportedError, match="Chunks"):
        ps.copy(place / "a.zarr", url("u.npy"), arrays=["u"], row_major=True)


def test_a_tree_replaces_another(bucket: Service, place):
    make(url("again.zarr"), -1, ("u", "old", "deep/w", "v"))
    make(place / "a.zarr")
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(place / "a.zarr", url("again.zarr"))
    for _ in range(3):
        ps.copy(place / "a.zarr", url("again.zarr"), overwrite=True)
        check(opened(bucket, "again.zarr", use_consolidated=True))
        check(opened(bucket, "again.zarr", use_consolidated=False))
    chunks = [key for key in bucket.keys("again.zarr/u/") if key != "zarr.json"]
    assert len(chunks) == 2 * 2 * 3
    with pytest.raises(ps.SchemaError, match="within"):
        ps.copy(url("again.zarr"), url("again.zarr/deep/x"))


def test_what_is_not_replaced(bucket: Service, place):
    make(place / "a.zarr")
    bucket_saver.save(url("saved.zarr"), "timestep", 1)
    bucket.write("other/notes.txt", b"mine")
    kept = {key: bucket.read(key) for key in bucket.keys("")}
    with pytest.raises(ps.SchemaError, match="timesteps"):
        ps.copy(place / "a.zarr", url("saved.zarr"), overwrite=True)
    with pytest.raises(ps.SchemaError, match="objects are below"):
        ps.copy(place / "a.zarr", url("other"), overwrite=True)
    assert kept == {key: bucket.read(key) for key in bucket.keys("")}


def test_a_saved_group_is_copied(bucket: Service, place):
    """Its checkpoints become groups; the record stays behind."""
    for step in (0, 1):
        bucket_saver.save(url("steps.zarr"), "timestep", step)
    bucket_saver.save(url("steps.zarr"), "checkpoint", 5)
    ps.copy(url("steps.zarr"), url("copied.zarr"))
    found = opened(bucket, "copied.zarr", use_consolidated=True)
    assert found["u"][:, 0, 0].tolist() == [0, 1] and (found["checkpoints/5/u"][...] == 5).all()
    assert not [key for key in bucket.keys("copied.zarr/") if ".penstock" in key]


def test_a_copy_in_little_memory(bucket: Service, place):
    """It goes through a store in between, in the bucket."""
    whole = np.arange(256.0 * 256 * 8).reshape(256, 256, 8)
    with ps.Session() as s:
        u = ps.Array("u", whole.shape, "f8", disk=ps.Chunks((256, 1, 8)))
        s.write(place / "a.zarr", u, whole)
    options = {"chunks": (1, 256, 8), "memory": 5 << 20}
    report = ps.copy(place / "a.zarr", url("between.zarr"), **options)
    assert same_bits(opened(bucket, "between.zarr")["u"][...], whole)
    assert report.slabs > 1
    assert not [key for key in bucket.keys("between.zarr/") if "between" in key]


@pytest.mark.parametrize("kind", ["new", "replaced"])
def test_a_copy_that_is_killed_at_any_request(bucket: Service, place, kind):
    """The former tree is there, or the new one, and the next copy goes on."""
    path, names = f"killed-{kind}.zarr", ("u", "v")
    make(place / "a.zarr", 1, names)
    states = []
    for nth, number in enumerate(kill_numbers(path)):
        bucket.clear(f"{path}/")
        if kind == "replaced":
            make(url(path), -1, names)
        given = (str(place / "a.zarr"), url(path))
        is_done, _ = killed_at(number, bucket.port, bucket_saver.copy, *given)
        states.append(signs(bucket, path))
        if nth % 5 == 0 or is_done:
            ps.copy(place / "a.zarr", url(path), overwrite=True)
            check(opened(bucket, path, use_consolidated=True), 1, names)
            check(opened(bucket, path, use_consolidated=False), 1, names)
            left = [key for key in bucket.keys(f"{path}/") if key.endswith(".penstock")]
            assert not left and len(bucket.keys(f"{path}/u/")) == 1 + 2 * 2 * 3
        if is_done:
            break
    expected = [None, 1.0] if kind == "new" else [-1.0, 1.0]
    assert is_done and are_in_order(states, expected), states


def signs(bucket: Service, path: str) -> float | None:
    """Which tree is there, for readers of consolidated metadata."""
    try:
        found = opened(bucket, path, use_consolidated=True)
    except (FileNotFoundError, ValueError):
        return None
    of = {float(np.sign(found[n][0, 0, 0] / values(SHAPE, "f8", k)[0, 0, 0])) for k, n in
          enumerate(("u", "v"))}  # fmt: skip
    assert len(of) == 1
    sign = of.pop()
    check(found, int(sign), ("u", "v"))
    return sign


# ---------------------------------------------------------------------------------------------
# xarray
# ---------------------------------------------------------------------------------------------


def data_set(seed: int) -> xr.Dataset:
    coords = {"t": np.arange(4) + seed, "x": np.arange(6.0)}
    fields = {
        "u": (("t", "x"), values((4, 6), "f8", seed), {"units": "m"}),
        "n": (("x",), values((6,), "i4", seed)),
        "time": (("t",), np.datetime64("2026-11-27", "ns") + np.arange(4) * np.timedelta64(1, "D")),
    }
    return xr.Dataset(fields, coords, {"title": f"run {seed}"})


def test_a_data_set_is_written_there(bucket: Service):
    for turn, mode in enumerate(("w-", "w", "w")):
        data_set(turn).penstock.write(url("set/a.zarr"), mode=mode, chunks={"t": 2})
        theirs = xr.open_zarr(bucket.zarr("set/a.zarr"))
        xr.testing.assert_identical(theirs.load(), data_set(turn))
        mine = xr.open_dataset(url("set/a.zarr"), engine=Backend)
        xr.testing.assert_identical(mine.load(), data_set(turn))
    with pytest.raises(ps.ExistsError):
        data_set(0).penstock.write(url("set/a.zarr"), mode="w-")
    more = data_set(2)[["n"]].rename(n="m")
    more.penstock.write(url("set/a.zarr"), mode="a")
    part = -data_set(2)[["u"]].isel(t=slice(1, 3)).drop_vars("x")
    part.penstock.write(url("set/a.zarr"), region={"t": slice(1, 3)})
    found = xr.open_zarr(bucket.zarr("set/a.zarr")).load()
    assert same_bits(found.m.values, data_set(2).n.values)
    assert same_bits(found.u.values[1:3], -data_set(2).u.values[1:3])
    assert {key.split("/")[0] for key in bucket.keys("set/")} == {"a.zarr"}
    with pytest.raises(ps.UnsupportedError, match="HDF5"):
        data_set(0).penstock.write(url("set/a.nc"))


def test_rechunked_there(bucket: Service, place):
    data_set(1).penstock.write(place / "a.zarr", chunks={"t": 4, "x": 1})
    for source in (str(place / "a.zarr"), data_set(1)):
        result = ps.rechunk(source, url("rechunked.zarr"), chunks={"t": 1, "x": 6}, overwrite=True)
        xr.testing.assert_identical(result.load(), data_set(1))
        assert opened(bucket, "rechunked.zarr")["u"].chunks == (1, 6)
    with pytest.raises(ps.ExistsError):
        ps.rechunk(str(place / "a.zarr"), url("rechunked.zarr"), chunks={"t": 1})
