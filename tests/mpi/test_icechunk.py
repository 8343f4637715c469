"""Ranks of an MPI job write to Icechunk repositories: each server puts chunks into a fork of its
own."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import saved
import zarr
from buckets import BUCKET, Service, environment, service
from conformance import random_case, read, write
from helpers import same_bits, values
from mpi4py import MPI
from mpihelpers import TRANSPORTS, assert_fails, rest
from repositories import fetched
from rows import Plan, look, restart
from rows import save as save_rows
from test_mpi_conformance import open_session

import penstock as ps

icechunk = pytest.importorskip("icechunk")


COMM = MPI.COMM_WORLD
SHAPE = (13, 6, 5)
EVERYTHING = np.s_[0:13, 0:6, 0:5]
FORMS = {
    "plain": ps.Chunks((4, 4, 2)),
    "zstd": ps.Chunks((5, 6, 3), codec="zstd:1"),
    "shards": ps.Chunks((4, 4, 6), subchunks=(2, 4, 3), codec="zstd:1"),
    "natural": None,
}

icechunk.set_logs_filter("error")


@pytest.fixture
def storage(place: Path):
    return icechunk.local_filesystem_storage(str(place / "repo"))


@pytest.fixture(scope="module")
def bucket():
    """Rank 0 starts a service, and all ranks know how to reach it."""
    with contextlib.ExitStack() as stack:
        hosts = COMM.allgather(socket.gethostname())
        address = "127.0.0.1" if len(set(hosts)) == 1 else socket.gethostbyname(hosts[0])
        running = stack.enter_context(service(address)) if COMM.rank == 0 else None
        rest(COMM)
        port = COMM.bcast(running.port if running else None)
        os.environ.update(environment(port, address))
        yield running or Service(port, address)
        COMM.barrier()


def array(disk=None, name="u", shape=SHAPE) -> ps.Array:
    dists = ",".join(["BLOCK"] + ["*"] * (len(shape) - 1))
    return ps.Array(name, shape, "f8", memory=ps.Distribution(dists, (COMM.size,)), disk=disk)


def part(u: ps.Array, whole: np.ndarray) -> np.ndarray:
    return whole[u.local_slices(COMM.rank)[0]].copy()


def theirs(storage) -> zarr.Group:
    repo = icechunk.Repository.open(storage)
    return zarr.open_group(repo.readonly_session("main").store, mode="r")


def history(storage) -> list[str]:
    repo = icechunk.Repository.open(storage)
    return [each.message for each in repo.ancestry(branch="main")][-2::-1]


@pytest.mark.parametrize("form", FORMS)
def test_every_server_has_a_fork(storage, form):
    store, whole = ps.Icechunk(storage), values(SHAPE, "f8", 1)
    u = array(FORMS[form])
    with ps.Session(COMM, servers=COMM.size) as s:
        for again in (1, 2):
            s.write(store / "fields", u, again * part(u, whole))
            back = s.read(store / "fields", u, region=EVERYTHING)
            assert same_bits(back, again * whole)
            assert same_bits(theirs(storage)["fields/u"][...], again * whole)
            s.barrier()
    assert history(storage) == ["write u to fields"] * 2


@pytest.mark.parametrize("dedicated", [False, True])
def test_replaced_and_changed_in_parts(storage, dedicated):
    if dedicated and COMM.size == 1:
        pytest.skip("needs two ranks")
    store = ps.Icechunk(storage)
    options = {"servers": 1, "dedicated": True} if dedicated else {"servers": COMM.size}
    with ps.Session(COMM, **options) as s:
        if not s.is_client:
            return
        for seed, shape in enumerate([(13, 6, 5), (4, 9), (7,), (20, 3, 2), (20, 3, 2), (2, 2)]):
            whole = values(shape, "f8", seed)
            dists = ",".join(["BLOCK"] + ["*"] * (len(shape) - 1))
            memory = ps.Distribution(dists, (s.size,))
            disk = ps.Chunks((3,) * len(shape), codec="zstd:1")
            u = ps.Array("u", shape, "f8", memory=memory, disk=disk)
            rows = u.local_slices(s.rank)[0]
            s.write(store, u, whole[rows])
            assert same_bits(s.read(store, u), whole[rows])
            half = tuple(slice(0, extent) for extent in shape[1:])
            first = slice(rows.start, min(rows.start + 1, rows.stop))
            s.write(store, u, -whole[first], region=(first, *half))
            for rank in range(s.size):
                start = u.local_slices(rank)[0].start
                whole[start : min(start + 1, u.local_slices(rank)[0].stop)] *= -1
            assert np.array_equal(s.read(store, u), whole[rows], equal_nan=True)
            assert np.array_equal(theirs(storage)["u"][...], whole, equal_nan=True)
            s.barrier()


def test_one_commit_of_several_calls(storage):
    store, whole = ps.Icechunk(storage), values(SHAPE, "f8", 1)
    u, v = array(FORMS["plain"]), array(FORMS["shards"], "v")
    with ps.Session(COMM, servers=COMM.size) as s:
        with s.commit(store, "both"):
            s.write(store / "a", u, part(u, whole))
            s.write(store / "a", v, part(v, whole))
            corner = slice(0, 1) if s.rank == 0 else slice(0, 0)
            s.write(store / "a", u, np.ones((corner.stop, 6, 5)), region=np.s_[corner, 0:6, 0:5])
            s.write(store / "a", v, -part(v, whole))
            assert same_bits(s.read(store / "a", v, region=EVERYTHING), -whole)
            assert history(storage) == []
            s.barrier()
        assert history(storage) == ["both"]
        assert same_bits(s.read(store / "a", v, region=EVERYTHING), -whole)
        whole[0] = 1
        assert same_bits(theirs(storage)["a/u"][...], whole)


def test_errors_are_every_rank_s(storage):
    store = ps.Icechunk(storage)
    u = array(FORMS["plain"])
    local = np.ones(u.local_shape(COMM.rank))
    with ps.Session(COMM, servers=COMM.size) as s:
        s.write(store, u, local)

        def fails_on_one():
            with s.commit(store, "bad"):
                s.write(store, u, 2 * local)
                if s.rank == s.size - 1:
                    raise ZeroDivisionError

        assert_fails(s, fails_on_one, ps.SchemaError, "ZeroDivisionError")
        assert_fails(s, lambda: s.write(store / "u", u, local), ps.SchemaError, "array")

        def comes_late():
            with s.commit(store, "late"):
                s.write(store, u, 2 * local)
                s.barrier()
                if s.rank == 0:
                    session = icechunk.Repository.open(storage).writable_session("main")
                    zarr.create_group(session.store, path="theirs")
                    session.commit("theirs")

        assert_fails(s, comes_late, ps.BusyError, "'main'", "again")
        assert same_bits(s.read(store, u), local)
        assert history(storage) == ["write u", "theirs"]
        s.barrier()
        s.write(store, u, 3 * local)
        assert same_bits(s.read(store, u), 3 * local)


def test_in_a_service(bucket):
    keys = {"access_key_id": "tests", "secret_access_key": "tests", "allow_http": True}
    options = {"endpoint_url": bucket.url, "region": "us-east-1", "force_path_style": True}
    storage = icechunk.s3_storage(bucket=BUCKET, prefix="mpi-repo", **options, **keys)
    whole, u = values(SHAPE, "f8", 3), array(FORMS["zstd"])
    store = ps.Icechunk(storage)
    with ps.Session(COMM, servers=COMM.size) as s:
        s.write(store / "fields", u, part(u, whole))
        assert same_bits(s.read(store / "fields", u, region=EVERYTHING), whole)
        assert same_bits(theirs(storage)["fields/u"][...], whole)
    assert history(storage) == ["write u to fields"]


@pytest.mark.parametrize("dedicated", [False, True])
def test_copies(storage, place: Path, dedicated):
    """Servers of several processes put chunks, also into a store in between, by many calls."""
    if dedicated and COMM.size == 1:
        pytest.skip("needs two ranks")
    store, shape = ps.Icechunk(storage), (256, 256, 8)
    options = {"servers": 1, "dedicated": True} if dedicated else {"servers": COMM.size}
    with ps.Session(COMM, **options) as s:
        if not s.is_client:
            return
        u = ps.Array("u", shape, "f8", disk=ps.Chunks((256, 1, 8), codec="zstd:1"))
        u = u.with_memory(ps.Distribution("BLOCK,*,*", (s.size,)))
        whole = values(shape, "f8", 5)
        s.write(place / "a.zarr", u, whole[u.local_slices(s.rank)[0]].copy())
        memory = (2 + 3 * s.servers) << 20
        for source, target, chunks in (
            (place / "a.zarr", "b", (1, 256, 8)),
            (store / "b", "c", (64, 64, 4)),
            (place / "a.zarr", "b", (1, 128, 8)),
        ):
            how = {"chunks": chunks, "codec": "zstd:1", "memory": memory, "overwrite": True}
            s.copy(source, store / target, **how)
            found = theirs(storage)[target]["u"]
            assert found.chunks == chunks and same_bits(found[...], whole)
            s.barrier()
    words = [f"copy {place / 'a.zarr'} to b", "copy b to c", f"copy {place / 'a.zarr'} to b"]
    assert history(storage) == words


def test_data_sets(storage):
    import xarray as xr

    import penstock.xarray  # noqa: F401

    store, rows = ps.Icechunk(storage), 3
    t = np.arange(COMM.size * rows * 4.0).reshape(-1, 4)
    own = slice(COMM.rank * rows, (COMM.rank + 1) * rows)
    part_of = xr.Dataset({"t": (("y", "x"), t[own])}, {"x": np.arange(4)}, {"title": "of ranks"})
    how = {"comm": COMM, "parts": {"y": own.start}, "chunks": {"y": 2, "x": 3}}
    part_of.penstock.write(store / "a", **how)
    (-part_of).assign_attrs(title="again").penstock.write(store / "a", mode="w", **how)
    found = theirs(storage)["a"]
    assert same_bits(found["t"][...], -t) and found.attrs["title"] == "again"
    assert history(storage) == ["write a data set to a"] * 2
    COMM.barrier()
    if COMM.size > 1:
        other = part_of.assign_attrs(title=f"of {COMM.rank}")
        with pytest.raises(ps.MismatchError):
            other.penstock.write(store / "a", mode="w", **how)
        assert len(history(storage)) == 2


def test_memory_is_of_one_process():
    store = ps.Icechunk(icechunk.in_memory_storage())
    u = array(ps.Chunks((1, 6, 5)))
    local = np.ones(u.local_shape(COMM.rank))
    with ps.Session(COMM, servers=COMM.size) as s:
        if COMM.size == 1:
            s.write(store, u, local)
        else:
            with pytest.raises(ps.UnsupportedError, match="one process"):
                s.write(store, u, local)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seed", range(4))
def test_any_array_of_any_distribution(mpi, storage, transport, seed):
    chance = random.Random(f"{mpi.size} {seed}")
    case = random_case(chance, mpi.size, mpi.size)
    while not (case.disk is None or isinstance(case.disk, ps.Chunks)):
        case = random_case(chance, mpi.size, mpi.size)
    store, servers = ps.Icechunk(storage), chance.choice([None, "one", "all"])
    with open_session(mpi, transport, servers, block_bytes=64) as s:
        write(s, case, store / "a")
        assert same_bits(theirs(storage)["a/u"][...], case.stored(mpi.size))
        read(s, case, store / "a", mpi.size)


@pytest.mark.parametrize("seed", range(4))
def test_any_parts(mpi, storage, seed):
    chance = random.Random(f"{mpi.size} {seed} parts")
    case = saved.random_part_case(chance, mpi.size)
    while not isinstance(case.disk, ps.Chunks):
        case = saved.random_part_case(chance, mpi.size)
    with ps.Session(mpi, servers=mpi.size, block_bytes=chance.choice([16, 4096])) as s:
        saved.change_parts(s, case, random.Random(seed), ps.Icechunk(storage) / "u")


@pytest.mark.parametrize("seed", range(4))
def test_groups_live(mpi, place: Path, storage, seed):
    group = saved.random_saved(random.Random(f"{mpi.size} {seed}"), mpi.size, mpi.size)
    store, looks = ps.Icechunk(storage), iter(range(2))
    local = lambda _: fetched(storage, place / str(next(looks))) / "g"  # noqa: E731
    with ps.Session(mpi, servers=mpi.size) as s:
        saved.live(s, group, store / "g", local)
        if s.rank == 0:
            assert ps.verify(store / "g").is_well
            assert len(history(storage)) == 7
        s.barrier()


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_rows(mpi, place: Path, storage, seed):
    plan, store = Plan.random(seed), ps.Icechunk(storage)
    with ps.Session(mpi, servers=mpi.size) as s:
        with s.commit(store, "all at once"):
            save_rows(s, plan, store / "g")
        if s.rank == 0:
            look(plan, fetched(storage, place / "fetched") / "g", mpi.size)
            assert history(storage) == ["all at once"]
        s.barrier()
        restart(s, plan, store / "g", mpi.size)
