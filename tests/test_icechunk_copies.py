"""Copies to Icechunk repositories and out of them, and data sets of xarray written there: one
commit, or nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import repositories
import xarray as xr
import zarr
from buckets import code_of, gofakes3, reached, url
from helpers import same_bits, values
from test_bucket_copies import SHAPE, check, make
from test_icechunk import history, in_directory, load, repo, theirs  # noqa: F401

import penstock as ps
from penstock.xarray import Backend

icechunk = pytest.importorskip("icechunk")


@pytest.fixture(scope="module")
def bucket():
    with reached(gofakes3()) as running:
        yield running


def made(place: Path) -> Path:
    make(place / "a.zarr")
    return place / "a.zarr"


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("chunks", [None, (7, 2, 11)])
def test_a_tree_goes_there_and_back(repo, place: Path, chunks, servers):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    options = {"chunks": chunks} if chunks else {}
    with ps.Session(servers=servers) as s:
        s.copy(source, store / "b", **options)
    check(theirs(repo)["b"])
    ps.copy(store / "b", store / "deeper" / "c")
    check(theirs(repo)["deeper/c"])
    ps.copy(store / "deeper" / "c", place / "d.zarr")
    check(zarr.open_group(place / "d.zarr", mode="r"))
    assert history(repo) == [f"copy {source} to b", "copy b to deeper/c"]
    assert ps.verify(store / "b").absent == 0


def test_a_tree_becomes_the_root(repo, place: Path):  # noqa: F811
    source = made(place)
    ps.copy(source, ps.Icechunk(repo), overwrite=True)
    check(theirs(repo))
    assert history(repo) == [f"copy {source} to /"]


def test_from_elsewhere(repo, bucket, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    other = in_directory(place / "other")
    for number, path in enumerate(
        (place / "a.h5", place / "a.nc", url(f"ice/{place.name}/a.zarr"))
    ):
        ps.copy(source, path)
        ps.copy(path, store / f"from-{number}")
        check(theirs(repo)[f"from-{number}"])
    ps.copy(store / "from-0", ps.Icechunk(other) / "x")
    check(theirs(other)["x"])
    np.save(place / "u.npy", values(SHAPE, "f8", 7))
    ps.copy(place / "u.npy", store / "npy", chunks=(3, 3, 3))
    assert same_bits(theirs(repo)["npy/u"][...], values(SHAPE, "f8", 7))
    for target in ("x.h5", "x.nc"):
        with pytest.raises(ps.UnsupportedError, match="HDF5"):
            ps.copy(source, store / target)
    with pytest.raises(ps.UnsupportedError, match="Chunks"):
        ps.copy(source, store / "u.npy", arrays=["u"], row_major=True)


def test_one_array(repo, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    ps.copy(source, store / "a", arrays=["u"], chunks=(3, 3, 3), codec="zstd:1")
    ps.copy(source, store / "a", arrays=["deep/w"], name="x")
    found = theirs(repo)["a"]
    assert found["u"].chunks == (3, 3, 3)
    assert same_bits(found["u"][...], values(SHAPE, "f8", 0))
    assert same_bits(found["x"][...], values(SHAPE, "f8", 2))
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(source, store / "a", arrays=["u"])
    ps.copy(source, store / "a", arrays=["v"], name="u", overwrite=True)
    assert same_bits(theirs(repo)["a/u"][...], values(SHAPE, "f8", 1))
    ps.copy(source / "v", store / "alone", chunks=(2, 6, 4))
    assert same_bits(theirs(repo)["alone/v"][...], values(SHAPE, "f8", 1))


def test_a_tree_replaces_another(repo, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    make(store / "again", -1, ("u", "old", "deep/w", "deep/older/y", "v"))
    with pytest.raises(ps.SchemaError, match="overwrite"):
        ps.copy(source, store / "again")
    for _ in range(2):
        with ps.Session(servers=2) as s:
            s.copy(source, store / "again", overwrite=True)
        check(theirs(repo)["again"])
    with pytest.raises(ps.SchemaError, match="within"):
        ps.copy(store / "again", store / "again" / "deep" / "x")
    make(store / "kinds", 1, ("u/v",))
    before = repo.lookup_branch("main")
    with pytest.raises(ps.SchemaError, match="not a Zarr array"):
        ps.copy(source, store / "kinds", overwrite=True)
    assert repo.lookup_branch("main") == before


def test_through_a_store_in_between(repo, place: Path):  # noqa: F811
    """It is in a draft that nobody commits."""
    store, shape = ps.Icechunk(repo), (256, 256, 8)
    whole = values(shape, "f8", 5)
    with ps.Session(servers=1) as s:
        u = ps.Array("u", shape, "f8", disk=ps.Chunks((256, 1, 8), codec="zstd:1"))
        s.write(place / "a.zarr", u, whole)
        for source, target, chunks in (
            (place / "a.zarr", "b", (1, 256, 8)),
            (store / "b", "c", (256, 1, 8)),
        ):
            report = s.copy(source, store / target, chunks=chunks, codec="zstd:1", memory=5 << 20)
            assert report.read_bytes > 1.5 * report.bytes
            assert same_bits(theirs(repo)[target]["u"][...], whole)
    assert sorted(name for name, _ in theirs(repo).members()) == ["b", "c"]


def test_what_is_not_understood_stays_as_it_is(repo, place: Path):  # noqa: F811
    """Chunks under other names than a repository has get its names."""
    root = zarr.open_group(place / "a.zarr", mode="w")
    text = np.array([["a", "bcd"], ["ef", ""], ["x", "yz"]])
    for name, separator in (("t", "."), ("s", "/")):
        encoding = {"name": "v2" if separator == "." else "default", "separator": separator}
        array = root.create_array(
            name, shape=(3, 2), chunks=(2, 1), dtype="U3", chunk_key_encoding=encoding
        )
        array[...] = text
    store = ps.Icechunk(repo)
    report = ps.copy(place / "a.zarr", store / "a")
    assert sorted(report.as_they_are) == ["s", "t"]
    for name in ("s", "t"):
        assert (theirs(repo)["a"][name][...] == text).all()


def test_a_copy_is_part_of_a_block(repo, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    with ps.Session() as s:
        with s.commit(store, "copied, and more"):
            s.copy(source, store / "a")
            u = ps.Array("more", (3,), "f8", disk=ps.Chunks((2,)))
            s.write(store / "a", u, np.arange(3.0))
            assert history(repo) == []
        assert history(repo) == ["copied, and more"]
        check(theirs(repo)["a"], names=("u", "v", "deep/w"), more=("more",))


def test_a_copy_into_a_group_that_is_saved(repo, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)
    group = ps.Group("run", [ps.Array("u", (4,), "f8", disk=ps.Chunks((2,)))], store / "run")
    with ps.Session() as s:
        s.timestep(group, {"u": np.arange(4.0)}, time=0.5)
    before = repo.lookup_branch("main")
    for options in ({"overwrite": True}, {"arrays": ["u"], "overwrite": True}):
        with pytest.raises(ps.SchemaError, match="timestep"):
            ps.copy(source, store / "run", **options)
    assert repo.lookup_branch("main") == before


def test_another_program_commits_meanwhile(repo, place: Path):  # noqa: F811
    source, store = made(place), ps.Icechunk(repo)

    def commits(*progress) -> None:
        session = repo.writable_session("main")
        zarr.create_group(session.store, path="theirs", overwrite=True)
        session.commit("theirs")

    with ps.Session() as s, pytest.raises(ps.BusyError, match="main"):
        s.copy(source, store / "a", progress=commits)
    assert "a" not in theirs(repo)
    ps.copy(source, store / "a")
    check(theirs(repo)["a"])


def test_a_copy_that_is_killed_at_any_put(place: Path):
    source = made(place)
    whole, repo = in_directory(place / "whole"), in_directory(place)  # noqa: F811
    for each in (whole, repo):
        make(ps.Icechunk(each) / "a", -1)
    assert code_of(repositories.copy, source, place / "whole", repositories.ALL_PUTS) == 0
    check(theirs(whole)["a"])
    puts = repositories.puts_of(place / "whole")
    assert puts > 4
    for count in range(puts):
        before = repo.lookup_branch("main")
        assert code_of(repositories.copy, source, place, count) == -signal.SIGKILL
        assert repo.lookup_branch("main") == before
        check(theirs(repo)["a"], -1)


# ---------------------------------------------------------------------------------------------
# Data sets of xarray
# ---------------------------------------------------------------------------------------------


def dataset(sign: int = 1, names=("t", "p")) -> xr.Dataset:
    shape = (4, 6, 5)
    return xr.Dataset(
        {
            name: (("time", "y", "x"), sign * np.arange(120.0).reshape(shape) + number)
            for number, name in enumerate(names)
        },
        {"y": np.arange(6) * 10, "time": np.array(["2020-01-01"] * 4, "M8[ns]")},
        {"title": f"of {sign}"},
    )


def found(repo, group: str) -> xr.Dataset:  # noqa: F811
    """The data set, as xarray's own engine has it."""
    session = repo.readonly_session("main")
    return xr.open_zarr(session.store, group=group, consolidated=False).load()


def test_a_data_set_is_one_commit(repo):  # noqa: F811
    store = ps.Icechunk(repo)
    dataset().penstock.write(store / "runs" / "a", chunks={"time": 1, "x": 2})
    assert history(repo) == ["write a data set to runs/a"]
    xr.testing.assert_identical(found(repo, "runs/a"), dataset())
    opened = xr.open_dataset(store / "runs" / "a", engine=Backend).load()
    xr.testing.assert_identical(opened, dataset())
    assert found(repo, "runs/a").t.encoding["chunks"] == (1, 6, 2)
    with pytest.raises(ps.ExistsError):
        dataset().penstock.write(store / "runs" / "a")
    with pytest.raises(ps.UnsupportedError, match="HDF5"):
        dataset().penstock.write(store / "runs" / "a.nc")
    dataset(-1).penstock.write(store, mode="w")
    assert history(repo)[1:] == ["write a data set"]
    xr.testing.assert_identical(found(repo, ""), dataset(-1))
    assert "runs" not in theirs(repo)


def test_a_data_set_replaces_another_and_is_added_to(repo):  # noqa: F811
    store = ps.Icechunk(repo)
    dataset(-1, ("t", "old")).penstock.write(store / "a")
    dataset(1).penstock.write(store / "a", mode="w", chunks={"time": 2})
    xr.testing.assert_identical(found(repo, "a"), dataset(1))
    more = dataset(3, ("q",)).assign_attrs(history="made")
    more.penstock.write(store / "a", mode="a")
    merged = dataset(1).assign(q=more.q).assign_attrs(title="of 3", history="made")
    xr.testing.assert_identical(found(repo, "a"), merged)
    part = dataset(9).isel(time=slice(1, 3), drop=True).drop_vars(["y", "time"])
    part.penstock.write(store / "a", region={"time": slice(1, 3)})
    changed = merged.copy(deep=True)
    for name in ("t", "p"):
        changed[name][1:3] = part[name]
    xr.testing.assert_identical(found(repo, "a"), changed)


def test_a_data_set_that_fails_is_not_there(repo):  # noqa: F811
    store = ps.Icechunk(repo)
    dataset(-1).penstock.write(store / "a")
    bad = dataset().assign(word=("y", np.array(["one"] * 6, "O")))
    with pytest.raises(ps.Error):
        bad.penstock.write(store / "a", mode="w")
    array = ps.Array("inner", (3,), "f8", disk=ps.Chunks((2,)))
    with ps.Session() as s:
        s.write(store / "a" / "p2", array, np.ones(3))
    group = dataset().rename(p="p2")
    with pytest.raises(ps.SchemaError, match="not a Zarr array"):
        group.penstock.write(store / "a", mode="w")
    xr.testing.assert_identical(found(repo, "a"), dataset(-1))


def test_rechunk_to_a_repository(repo, place: Path):  # noqa: F811
    store = ps.Icechunk(repo)
    dataset().penstock.write(place / "a.zarr", chunks={"time": 1})
    opened = ps.rechunk(place / "a.zarr", store / "b", chunks={"time": 4, "y": 2, "x": 2})
    xr.testing.assert_identical(opened.load(), dataset())
    assert found(repo, "b").t.encoding["chunks"] == (4, 2, 2)


def test_the_process_reads_what_it_wrote(repo):  # noqa: F811
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 2)
    u = ps.Array("u", SHAPE, "f8", disk=ps.Chunks((3, 3, 3)))
    with ps.Session() as s:
        s.write(store / "a", u, whole)
    ps.copy(store / "a", store / "b", chunks=(7, 1, 2))
    assert same_bits(load(store / "b", u), whole)
    assert os.fspath(store).startswith("icechunk://")
