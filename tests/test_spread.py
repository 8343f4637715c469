"""Stores of which each server has a part: `root="/disk{server}/out"`, and `penstock gather`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from conformance import random_case, read, write
from helpers import fails, leftovers, ramp, same_bits
from test_copy import penstock

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
    while True:
        case = random_case(chance, 3, 3)
        if isinstance(case.disk, ps.Chunks):
            break
    servers = chance.choice([1, 2, 4])
    path = roots(place, servers) / "a.zarr"

    def main(s):
        write(s, case, path)
        s.barrier()
        read(s, case, path, 3)

    ps.run(main, 3, servers=servers, block_bytes=chance.choice([64, 4096]))
    penstock("gather", path, place / "whole.zarr")
    assert same_bits(zarr.open_array(place / "whole.zarr" / "u")[...], case.stored(3))
    assert not leftovers(place)


def test_gathered_from_directories(place):
    """As they come from several machines, to be opened by others; and looked at as they are."""
    root = roots(place, 3)
    whole = save(root)
    parts = [place / f"disk{server}" / "s.zarr" for server in range(3)]
    assert "gathered 1" in penstock("gather", *parts, place / "g.zarr")
    made = zarr.open_array(place / "g.zarr" / "u")
    assert same_bits(made[...], whole) and made.attrs.asdict() == {"units": "K"}
    assert "2 parts" in penstock("gather", *parts[:2], place / "x.zarr", code=2)
    assert "not spread" in penstock("gather", place / "g.zarr", place / "x.zarr", code=2)
    assert "15 chunks" in penstock("verify", root / "s.zarr")
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


def test_the_root_of_a_session(place):
    roots(place, 2)
    u = planes(1)
    with ps.Session(root=place / "disk{server}", servers=2) as s:
        s.write("s.zarr", u, ramp(u.shape))
        assert same_bits(s.read("s.zarr", u), ramp(u.shape))
        assert s.open("s.zarr").name == "u"
        with pytest.raises(ps.UnsupportedError, match="one place"):
            s.timestep(ps.Group("g", [u], "g.zarr"), {"u": ramp(u.shape)})
        with pytest.raises(ps.UnsupportedError, match="Chunks"):
            s.write("s.npy", u.with_disk(ps.RowMajor("npy")), ramp(u.shape))
        with pytest.raises(ps.UnsupportedError, match="spread"):
            s.write("s.zarr", u, np.zeros((1, 7, 5)), region=0)
        with pytest.raises(ps.UnsupportedError, match="disk-directed"):
            s.write("s.zarr", u, ramp(u.shape), strategy="two-phase")
    with ps.Session(root=place) as s:
        group = ps.Group("g", [u], "g.zarr")
        s.checkpoint(group, {"u": ramp(u.shape)}, step=3)
        assert s.restart(group).step == 3
    assert (place / "g.zarr" / "checkpoints" / "3").is_dir()
