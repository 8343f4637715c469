"""Stores of which each server has a part: `root="/disk{server}/out"`, and `penstock gather`."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import saved
import zarr
from conformance import Case, random_case, read, write
from helpers import (
    NOTHING_TO_COMPARE,
    Dealt,
    fails,
    leftovers,
    on_disk,
    penstock,
    ramp,
    same_bits,
    tree,
)

import penstock as ps


def roots(place: Path, servers: int) -> Path:
    """A directory for each server, and the path of all."""
    for server in range(servers):
        (place / f"disk{server}").mkdir(exist_ok=True)
    return place / "disk{server}"


def planes(ranks: int, shape=(9, 7, 5), chunk=(2, 7, 2), codec="none") -> ps.Array:
    memory = ps.Distribution("BLOCK,*,*", (ranks,))
    return ps.Array("u", shape, "f8", memory=memory, disk=ps.Chunks(chunk, codec=codec))


def save(root: Path, ranks=2, servers=3, scale=1.0, **more) -> np.ndarray:
    """Writes an array by so many servers; what is stored."""
    u = planes(ranks, **more)
    whole = ramp(u.shape) * scale

    def main(s):
        s.write(root / "s.zarr", u, whole[u.local_slices(s.rank)], {"units": "K"})

    ps.run(main, ranks, servers=servers)
    return whole


@pytest.mark.parametrize("readers", [1, 2, 3, 5])
@pytest.mark.parametrize("codec", ["none", "zstd:1"])
def test_read_in_place(place, readers, codec):
    root = roots(place, 3)
    whole = save(root, codec=codec)
    for server in range(3):
        parts = list((place / f"disk{server}").rglob("c/*/*/*"))
        assert len(parts) == 5, "each server has its share of 15 chunks"
    u = planes(2).with_memory(ps.Distribution("*,CYCLIC,*", (2,)))

    def main(s):
        found = s.read(root / "s.zarr", u)
        assert same_bits(found, np.ascontiguousarray(whole[u.local_slices(s.rank)]))
        there = s.open(root / "s.zarr")
        assert there.attrs == {"units": "K"} and there.shape == u.shape

    ps.run(main, 2, servers=readers)


@pytest.mark.parametrize("seed", range(25))
def test_any_array(place, seed):
    chance = random.Random(seed)
    case = spread_case(chance, 3)
    servers = chance.choice([1, 2, 4])
    path = roots(place, servers) / "a.zarr"

    def main(s):
        write(s, case, path)
        s.barrier()
        read(s, case, path, 3)

    ps.run(main, 3, servers=servers, block_bytes=chance.choice([64, 4096]))
    check_gathered(path, place / "whole", case.array(case.source, 0), case.stored(3))
    assert not leftovers(place)


def spread_case(chance: random.Random, ranks: int) -> Case:
    """Of chunks or parts: one file cannot be spread."""
    while True:
        case = random_case(chance, ranks, ranks)
        if not isinstance(case.disk, ps.RowMajor):
            return case


def check_gathered(path: Path, whole: Path, array: ps.Array, expected: np.ndarray) -> None:
    """Other software finds this in what is gathered, and Penstock nothing wrong with it."""
    penstock("gather", path, whole)
    assert same_bits(on_disk(whole, array), expected)
    penstock("verify", whole, code=(0, NOTHING_TO_COMPARE))


@pytest.mark.parametrize("seed", range(25))
def test_parts_are_changed(place, seed):
    """Each server gives the new version what the old one has and nobody writes."""
    chance = random.Random(7000 + seed)
    ranks = chance.choice([1, 2, 3])
    case = spread_case(chance, ranks)
    while not case.shape:
        case = spread_case(chance, ranks)
    case = replace(case, attrs="")
    servers = chance.choice([1, 2, 3])
    draws = [random.Random(seed) for _ in range(ranks)]
    path = roots(place, servers) / "u"
    body = lambda s: saved.change_parts(s, case, draws[s.rank], path)  # noqa: E731
    ps.run(body, ranks, servers=servers, block_bytes=chance.choice([16, 200, 1 << 20]))
    alone = case.array(Dealt(",".join("*" * len(case.shape)), ()), 0)
    with ps.Session() as s:
        found = s.read(path, alone)
    check_gathered(path, place / "whole", alone, found)
    assert not leftovers(place)


@pytest.mark.parametrize("seed", range(20))
def test_groups_live(place, seed):
    """As in one place: `saved.live` looks at what is gathered, with other people's software."""
    chance = random.Random(8000 + seed)
    ranks, servers = chance.choice([1, 2, 3, 5]), chance.choice([1, 2, 3])
    group = saved.random_saved(chance, ranks, ranks)
    path = roots(place, servers) / "g.zarr"
    ps.run(lambda s: saved.live(s, group, path), ranks, servers=servers)
    assert not leftovers(place)
    assert "all is well" in penstock("verify", path)
    assert "3 timesteps" in penstock("info", path)


def heat(path) -> ps.Group:
    u = ps.Array("u", (6, 4), "f8", disk=ps.Chunks((2, 4)))
    return ps.Group("heat", [u, ps.Array("n", (), "i4", disk=ps.Chunks(()))], path)


def at(step: int) -> dict[str, np.ndarray]:
    return {"u": ramp((6, 4)) + step, "n": np.array(step, "i4")}


def begun(place: Path, timesteps: int = 1) -> Path:
    """A group on two disks, with so many timesteps and a checkpoint of the last."""
    path = roots(place, 2) / "g.zarr"
    with ps.Session(servers=2) as s:
        for step in range(timesteps):
            s.timestep(heat(path), at(step))
        s.checkpoint(heat(path), at(timesteps - 1))
    return path


def test_timesteps_go_round_the_servers(place):
    """One chunk a timestep: each disk has every second, not one disk all."""
    path = begun(place, timesteps=4)
    for server, has in enumerate([{"0", "2"}, {"1", "3"}]):
        # Of a checkpoint, which has no time, `c` is the chunk.
        found = (place / f"disk{server}" / "g.zarr.parts" / "n").glob("*/c")
        (chunks,) = (directory for directory in found if directory.is_dir())
        assert {chunk.name for chunk in chunks.iterdir()} == has
    series = ps.Array("u", (4, 6, 4), "f8", disk=ps.Chunks((1, 2, 4)))
    for servers in (1, 2, 3):
        with ps.Session(servers=servers) as s:
            found = s.read(path, series)
            assert same_bits(found, np.stack([at(step)["u"] for step in range(4)]))


def test_a_checkpoint_out_of_reach_is_missed(place):
    path = begun(place)
    (place / "disk1").rename(place / "away")
    with ps.Session(servers=1) as s, pytest.raises(ps.MissingError, match=r"disk1.*servers=2"):
        s.restart(heat(path))


def test_a_group_needs_the_servers_that_it_is_on(place):
    """Fewer could not reach all disks; more leave the group on those that it is on."""
    path = roots(place, 3) / "g.zarr"
    with ps.Session(servers=2) as s:
        s.timestep(heat(path), at(0))
    with ps.Session(servers=1) as s:
        assert s.restart(heat(path)) is None
        with pytest.raises(ps.SchemaError, match="servers=2"):
            s.timestep(heat(path), at(1), time=1.0)
    assert "1 timestep and" in penstock("verify", path), "what a restart drops is dropped by a save"
    with ps.Session(servers=3) as s:
        s.timestep(heat(path), at(1), time=1.0)
        s.checkpoint(heat(path), at(1))
        assert same_bits(s.restart(heat(path))["u"], at(1)["u"])
    assert not list((place / "disk2").glob("g.zarr.parts/u/*/c/0"))
    assert "all is well" in penstock("verify", path)
    with ps.Session() as s:
        s.timestep(heat(place / "whole.zarr"), at(0))
    shutil.copytree(place / "whole.zarr", place / "disk0" / "w.zarr")
    with ps.Session(servers=2) as s, pytest.raises(ps.SchemaError, match=r"without \{server\}"):
        s.timestep(heat(place / "disk{server}" / "w.zarr"), at(1), time=1.0)


def test_old_checkpoints_leave_the_disks(place):
    """With the save that follows: nobody can remove on all disks at once."""
    path = roots(place, 2) / "g.zarr"
    with ps.Session(servers=2) as s:
        s.timestep(heat(path), at(0))
        for step in range(5):
            s.checkpoint(heat(path), at(step), step=step)
        s.timestep(heat(path), at(1))
    for server in range(2):
        versions = list((place / f"disk{server}" / "g.zarr.parts" / "u").iterdir())
        assert len(versions) == 3, "the timesteps and two checkpoints"


def test_a_gathered_group_goes_on(place):
    """It is a group like any other, and what is saved to it does not reach the source."""
    path = begun(place, timesteps=2)
    with ps.Session(servers=2) as s:
        before = {disk: tree(place / disk) for disk in ("disk0", "disk1")}
        whole = heat(place / "whole.zarr")
        assert "gathered 2" in penstock("gather", path, whole.path)
        assert "is a directory" in penstock("gather", path, whole.path, code=2)
        assert "not spread" in penstock("gather", whole.path, place / "x", code=2)
        with open(place / "disk0" / "g.zarr" / ".penstock" / "record" / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "another job" in penstock("gather", path, place / "x", code=1)
        assert same_bits(s.restart(whole)["u"], at(1)["u"])
        s.timestep(whole, at(2))
        s.checkpoint(whole, at(2))
        s.restart(whole, step=1)
        s.timestep(whole, at(3))
    assert {disk: tree(place / disk) for disk in ("disk0", "disk1")} == before
    assert zarr.open_group(whole.path)["u"][:, 0, 0].tolist() == [1, 2, 4]
    penstock("gather", place / "disk0/g.zarr", place / "disk1/g.zarr", place / "listed.zarr")
    assert zarr.open_group(place / "listed.zarr")["u"][:, 0, 0].tolist() == [1, 2]
    disks = [place / "disk0/g.zarr", place / "disk1/g.zarr"]
    assert "1 parts are given" in penstock("gather", disks[0], place / "x", code=2)
    assert "3 parts are given" in penstock("gather", *disks, disks[0], place / "x", code=2)
    shutil.rmtree(place / "disk1" / "g.zarr.parts" / "n")
    assert "disk1" in penstock("gather", path, place / "y", code=1)
    assert not leftovers(place)


def test_a_group_that_was_moved(place):
    begun(place)
    for server in range(2):
        (place / f"disk{server}").rename(place / f"nvme{server}")
    moved = place / "nvme{server}" / "g.zarr"
    assert "all is well" in penstock("verify", moved)
    with ps.Session(servers=2) as s:
        assert same_bits(s.restart(heat(moved))["u"], at(0)["u"])
        s.timestep(heat(moved), at(1))
        s.checkpoint(heat(moved), at(1))
        assert same_bits(s.restart(heat(moved))["u"], at(1)["u"])
    assert not (place / "disk0").exists()


def test_a_failed_timestep_leaves_the_group(place):
    path = begun(place)
    group = heat(path)
    with ps.Session(servers=2) as s:
        (place / "disk1").rename(place / "away")
        for save in (s.timestep, s.checkpoint):
            with pytest.raises(ps.MissingError, match="server 1"):
                save(group, at(1))
        (place / "away").rename(place / "disk1")
        assert "all is well" in penstock("verify", path)
        s.timestep(group, at(1))
        assert same_bits(s.restart(group)["u"], at(0)["u"])


def test_a_damaged_chunk_is_found(place):
    path = begun(place)
    with ps.Session(servers=2) as s:
        for chunk in (place / "disk1" / "g.zarr.parts" / "u").rglob("c/*/0"):
            chunk.write_bytes(bytes(64))
        assert "disk1" in penstock("verify", path, code=1)
        with pytest.raises(ps.DamagedError, match="disk1"):
            s.restart(heat(path))


def test_gathered_from_directories(place):
    """As they come from several machines, to be opened by others; and looked at as they are."""
    root = roots(place, 3)
    whole = save(root)
    parts = [place / f"disk{server}" / "s.zarr" for server in range(3)]
    assert "gathered 1" in penstock("gather", *parts, place / "g.zarr")
    made = zarr.open_array(place / "g.zarr" / "u")
    assert same_bits(made[...], whole) and made.attrs.asdict() == {"units": "K"}
    assert "2 parts" in penstock("gather", *parts[:2], place / "x.zarr", code=2)
    assert "4 parts" in penstock("gather", *parts, parts[0], place / "x.zarr", code=2)
    assert "not spread" in penstock("gather", place / "g.zarr", place / "x.zarr", code=2)
    said = penstock("verify", root / "s.zarr", code=NOTHING_TO_COMPARE)
    assert "15 chunks" in said
    assert "u  float64" in penstock("ls", root / "s.zarr")
    shutil.rmtree(place / "disk1" / "s.zarr.parts")
    assert "disk1" in penstock("gather", *parts, place / "x.zarr", code=1)
    assert not leftovers(place)


def test_a_new_version_replaces_the_old(place):
    root = roots(place, 2)
    for scale in (1.0, 2.0, 3.0):
        whole = save(root, servers=2, scale=scale)
        with ps.Session() as s:
            assert same_bits(s.read(root / "s.zarr", planes(1)), whole)
    versions = list((place / "disk1" / "s.zarr.parts" / "u").iterdir())
    assert len(versions) == 2, "the last two: nobody reads those before"


def test_a_failed_write_leaves_the_old(place):
    root = roots(place, 2)
    whole = save(root, servers=2)
    (place / "disk1").rename(place / "away")

    def main(s):
        u = planes(2)
        s.write(root / "s.zarr", u, np.zeros(u.local_shape(s.rank)))

    fails(ps.MissingError, main, "server 1", "disk1", ranks=2, servers=2)
    (place / "away").rename(place / "disk1")
    with ps.Session() as s:
        assert same_bits(s.read(root / "s.zarr", planes(1)), whole)


def test_a_part_out_of_reach_is_missed(place):
    root = roots(place, 3)
    save(root)
    (place / "disk2").rename(place / "away")

    def main(s):
        s.read(root / "s.zarr", planes(2))

    fails(ps.MissingError, main, "disk2", "servers=3", ranks=2, servers=1)
    fails(ps.MissingError, main, "disk2", ranks=2, servers=3)


def test_copies_are_in_one_place(place):
    path = roots(place, 2) / "s.zarr"
    save(roots(place, 2), servers=2)
    for command in ("copy", "gather"):
        said = penstock(command, path, place / "disk{server}" / "t.zarr", code=1)
        assert "without {server}" in said
    penstock("copy", path, place / "u.npy", "--row-major", "--drop-attributes")
    assert same_bits(np.load(place / "u.npy"), ramp((9, 7, 5)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may hide a disk")
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
@pytest.mark.parametrize("ranks", [1, 3])
def test_disks_that_only_their_servers_reach(place, ranks):
    """Arrays, parts, regions, timesteps, checkpoints: `spread_job.py`, each rank with one disk."""
    roots(place, ranks)
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("a process cannot have mounts of its own here")
    job = Path(__file__).with_name("spread_job.py")
    command = ["mpiexec", "-n", ranks, "unshare", "--mount", sys.executable, job, place]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    path = place / "disk{server}" / "out" / "job.zarr"
    penstock("gather", path, place / "whole.zarr")
    assert zarr.open_group(place / "whole.zarr")["u"][:, 0, 0].tolist() == [0, 100, 200, 900]


def test_the_root_of_a_session(place):
    roots(place, 2)
    u = planes(1)
    with ps.Session(root=place / "disk{server}", servers=2) as s:
        s.write("s.zarr", u, ramp(u.shape))
        assert same_bits(s.read("s.zarr", u), ramp(u.shape))
        assert s.open("s.zarr").name == "u"
        s.timestep(ps.Group("g", [u], "g.zarr"), {"u": ramp(u.shape)})
        with pytest.raises(ps.UnsupportedError, match="Chunks"):
            s.write("s.npy", u.with_disk(ps.RowMajor("npy")), ramp(u.shape))
        with pytest.raises(ps.UnsupportedError, match="disk-directed"):
            s.write("s.zarr", u, ramp(u.shape), strategy="two-phase")
    with ps.Session(root=place) as s:
        group = ps.Group("g", [u], "g.zarr")
        s.checkpoint(group, {"u": ramp(u.shape)}, step=3)
        assert s.restart(group).step == 3
    assert (place / "g.zarr" / "checkpoints" / "3").is_dir()
