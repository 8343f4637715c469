"""Groups, parts of arrays and natural chunking, on threads; what they refuse."""

from __future__ import annotations

import random

import numpy as np
import pytest
import saved
import zarr
from helpers import assert_alike, caught, fails, leftovers, ramp, same_bits, tree

import penstock as ps


@pytest.mark.parametrize("seed", range(40))
def test_groups_live(place, seed):
    chance = random.Random(seed)
    ranks = chance.choice([1, 2, 3, 5, 8])
    group = saved.random_saved(chance, ranks, ranks)
    options = {"servers": chance.choice([None, 1, 2, ranks + 1]), "sync": chance.random() < 0.2}
    options["block_bytes"] = chance.choice([64, 1000, 1 << 20])
    ps.run(lambda s: saved.live(s, group, place / "g.zarr"), ranks, **options)
    assert not leftovers(place)


@pytest.mark.parametrize("seed", range(20))
def test_a_group_restarts_on_other_ranks(place, seed):
    chance = random.Random(1000 + seed)
    writers, readers = chance.choice([1, 2, 4, 6]), chance.choice([1, 3, 5])
    group = saved.random_saved(chance, writers, readers)
    path = place / "g.zarr"

    def save(s):
        s.checkpoint(group.group(path, s.rank), group.parts(3, s.rank), step=3, time=0.5)

    ps.run(save, writers)
    ps.run(lambda s: saved.check_restart(s, group, path, 3, writers), readers)


@pytest.mark.parametrize("seed", range(60))
def test_parts_are_changed(place, seed):
    chance = random.Random(2000 + seed)
    ranks = chance.choice([1, 2, 3, 5])
    case = saved.random_part_case(chance, ranks)
    draws = [random.Random(seed) for _ in range(ranks)]
    body = lambda s: saved.change_parts(s, case, draws[s.rank], place / "u")  # noqa: E731
    ps.run(body, ranks, block_bytes=chance.choice([16, 200, 1 << 20]))
    assert not leftovers(place)


@pytest.mark.parametrize("seed", range(10))
def test_natural_chunking(place, seed):
    chance = random.Random(3000 + seed)
    ranks = chance.choice([1, 2, 3, 6])
    draws = [random.Random(seed) for _ in range(ranks)]
    ps.run(lambda s: saved.natural(s, draws[s.rank], place / "n.zarr"), ranks)


def test_natural_chunks_of_boxes_are_the_largest(place):
    def main(s):
        box = [ps.Boxes((0, 0), (3, 4)), ps.Boxes((3, 0), (2, 6)), ps.Boxes((5, 0), (0, 0))][s.rank]
        u = ps.Array("u", (7, 6), "i4", memory=box)
        s.write(place / "b.zarr", u, np.full(u.local_shape(s.rank), s.rank + 1, "i4"))

    ps.run(main, 3)
    stored = zarr.open_array(place / "b.zarr" / "u")
    assert stored.chunks == (3, 6)
    expected = np.zeros((7, 6), "i4")
    expected[:3, :4], expected[3:5] = 1, 2
    assert same_bits(stored[...], expected)


def rows(name="u", shape=(8, 6), ranks=2, **more) -> ps.Array:
    return ps.Array(name, shape, "f8", memory=ps.Distribution("BLOCK,*", (ranks,)), **more)


def test_overlapping_parts_are_refused_with_their_ranks(place):
    def main(s):
        u = rows(ranks=3)
        s.write(place / "u.zarr", u, np.zeros(u.local_shape(s.rank)))
        before = tree(place / "u.zarr")
        with pytest.raises(ps.OverlapError, match="ranks 1 and 2") as error:
            start = [0, 3, 4][s.rank]
            s.write(place / "u.zarr", u, np.ones((2, 6)), region=slice(start, start + 2))
        s.barrier()
        assert tree(place / "u.zarr") == before
        return error.value

    assert_alike(ps.run(main, 3), ps.OverlapError)
    assert not leftovers(place)


@pytest.mark.parametrize("strategy", ["two-phase", "caching", "independent"])
def test_parts_are_disk_directed(place, strategy):
    def main(s):
        u = rows()
        s.write(place / "u", u, np.zeros(u.local_shape(s.rank)))
        own = slice(4 * s.rank, 4 * s.rank + 1)
        s.write(place / "u", u, np.ones((1, 6)), region=own, strategy=strategy)

    fails(ps.UnsupportedError, main, "disk-directed", ranks=2)


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (slice(0, 4, 2), "steps"),
        ((8, 0), "index 8 is out of bounds for axis 0 with size 8"),
        ((0, 0, 0), "too many indices"),
        ("all", "slices"),
        (ps.Boxes((7, 0), (2, 6)), "\\[8, 6\\]"),
    ],
)
def test_regions_that_are_none(place, region, words):
    def main(s):
        u = rows()
        s.write(place / "u", u, np.zeros(u.local_shape(s.rank)))
        mine = region if s.rank == 1 else slice(0, 1)
        s.read(place / "u", u, region=mine)

    fails(ps.SchemaError, main, words.replace("\\", ""), ranks=2)


def test_a_part_with_a_halo(place):
    u = ps.Array("u", (6, 6), "i4", disk=ps.Chunks((4, 4)))
    with ps.Session() as s:
        s.write(place / "u", u, ramp((6, 6), "i4"))
        box = ps.Boxes((1, 2), (3, 3), halo=1)
        found = s.read(place / "u", u, region=box)
        assert found.shape == (5, 5)
        assert same_bits(found[1:-1, 1:-1], ramp((6, 6), "i4")[1:4, 2:5])
        assert not found[0].any() and not found[:, -1].any()
        s.write(place / "u", u, -found, region=box)
    expected = ramp((6, 6), "i4")
    expected[1:4, 2:5] *= -1
    assert same_bits(zarr.open_array(place / "u" / "u")[...], expected)


def test_parts_of_what_others_made(place):
    """A fill value, a codec of theirs, chunks that are not there; and what cannot be written."""
    theirs = zarr.create_array(
        place / "t.zarr" / "u", shape=(7, 9), chunks=(4, 4), dtype="f4", fill_value=2.5
    )
    theirs[0:4, 4:8] = 1
    u = ps.Array("u", (7, 9), "f4")
    with ps.Session() as s:
        s.write(place / "t.zarr" / "u", u, np.zeros((2, 2), "f4"), region=np.s_[3:5, 3:5])
        expected = np.full((7, 9), 2.5, "f4")
        expected[0:4, 4:8] = 1
        expected[3:5, 3:5] = 0
        assert same_bits(zarr.open_array(place / "t.zarr" / "u")[...], expected)
        old = zarr.create_array(
            place / "old.zarr", shape=(4,), chunks=(2,), dtype="f4", zarr_format=2
        )
        old[...] = 3
        with pytest.raises(ps.UnsupportedError, match="format 2"):
            s.write(place / "old.zarr", ps.Array("old.zarr", (4,), "f4"), old[:1], region=0)
        big = np.arange(4, dtype=">f8")
        np.save(place / "big.npy", big)
        with pytest.raises(ps.UnsupportedError, match="byte order"):
            s.write(place / "big.npy", ps.Array("big", (4,), "f8"), np.zeros(1), region=0)
        fortran = np.asfortranarray(ramp((3, 5)))
        np.save(place / "f.npy", fortran)
        s.write(place / "f.npy", ps.Array("f", (3, 5), "f8"), np.zeros((1, 5)), region=1)
    fortran[1] = 0
    assert same_bits(np.load(place / "f.npy"), fortran)
    assert np.isfortran(np.load(place / "f.npy"))
    assert not leftovers(place)


def test_a_part_of_nothing_makes_the_array(place):
    with ps.Session() as s:
        s.write(place / "u", rows(ranks=1), np.ones((2, 6)), region=np.s_[3:5])
        assert s.read(place / "u", rows(ranks=1)).sum() == 12
        with pytest.raises(ps.SchemaError, match="attributes"):
            s.write(place / "u", rows(ranks=1), np.ones((1, 6)), {"a": 1}, region=0)


# ---------------------------------------------------------------------------------------------
# What groups refuse
# ---------------------------------------------------------------------------------------------


def group_of(place, *arrays, **more) -> ps.Group:
    return ps.Group("g", arrays or (rows(ranks=1),), place / "g.zarr", **more)


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [rows("time")],
        [rows("checkpoints")],
        [rows("u"), rows("u")],
        [rows("u", disk=ps.RowMajor("npy"))],
    ],
)
def test_groups_that_are_none(place, arrays):
    arrays = [array.with_memory(None) for array in arrays]
    parts = {array.name: np.zeros((8, 6)) for array in arrays}
    with ps.Session() as s, pytest.raises((ps.SchemaError, ps.UnsupportedError)):
        s.timestep(ps.Group("g", arrays, place / "g.zarr"), parts)
    assert not (place / "g.zarr").exists() and not leftovers(place)


def test_time_goes_on(place):
    group, part = group_of(place), {"u": np.zeros((8, 6))}
    with ps.Session() as s:
        s.timestep(group, part, time=1.5)
        for time in (1.5, 0.0, float("nan"), float("inf")):
            with pytest.raises(ps.SchemaError, match="time"):
                s.timestep(group, part, time=time)
        s.timestep(group, part, time=2)
        assert s.restart(group) is None
        s.timestep(group, part, time=0.0)
    assert zarr.open_group(group.path)["time"][:].tolist() == [0.0]


def test_other_groups_and_arrays_are_left_alone(place):
    part = {"u": np.zeros((8, 6))}
    with ps.Session() as s:
        s.timestep(group_of(place), part)
        before = tree(place)
        for other in (
            [rows(ranks=1, shape=(8, 7))],
            [rows(ranks=1, disk=ps.Chunks((2, 6)))],
            [rows("v", ranks=1)],
        ):
            values = {a.name: np.zeros(a.shape) for a in other}
            with pytest.raises(ps.SchemaError):
                s.timestep(group_of(place, *other), values)
        with pytest.raises(ps.SchemaError, match="timestep"):
            s.write(place / "g.zarr", rows(ranks=1), np.zeros((8, 6)))
        with pytest.raises(ps.SchemaError, match="timestep"):
            series = s.open(place / "g.zarr", "u")
            s.write(place / "g.zarr", series, np.zeros((1, 1, 6)), region=(0, 0))
        with pytest.raises(ps.SchemaError):
            s.timestep(group_of(place), {"v": np.zeros((8, 6))})
        assert tree(place) == before
        theirs = zarr.create_group(place / "theirs.zarr", attributes={"of": "them"})
        theirs.create_array("u", data=np.ones(3))
        theirs.create_array("more", data=np.ones(3))
        with pytest.raises(ps.SchemaError, match="another path"):
            s.timestep(ps.Group("g", [rows(ranks=1)], place / "theirs.zarr"), part)
        s.timestep(ps.Group("g", [rows("v", ranks=1)], place / "theirs.zarr"), {"v": part["u"]})
        group = zarr.open_group(place / "theirs.zarr", mode="r")
        assert group["v"].shape == (1, 8, 6) and group["more"][:].tolist() == [1, 1, 1]
        assert group.attrs["of"] == "them"


def test_a_damaged_checkpoint_is_not_restarted_from(place):
    u = ps.Array("u", (8, 6), "f8", disk=ps.Chunks((4, 6)))
    group = ps.Group("g", [u], place / "g.zarr")
    with ps.Session() as s:
        for step in (1, 2):
            s.checkpoint(group, {"u": np.full((8, 6), float(step))}, step=step)
        chunk = place / "g.zarr" / "checkpoints" / "2" / "u" / "c" / "1" / "0"
        bytes_ = bytearray(chunk.read_bytes())
        bytes_[77] ^= 1
        chunk.write_bytes(bytes_)
        with pytest.raises(ps.DamagedError, match="checksum") as error:
            s.restart(group)
        assert error.value.path == str(chunk)
        assert (s.restart(group, step=1)["u"] == 1).all()
        with pytest.raises(ps.MissingError, match="step 5"):
            s.restart(group, step=5)


def test_ranks_that_save_different_things(place):
    def main(s):
        group = group_of(place, rows())
        time = float(s.rank)
        return caught(lambda: s.timestep(group, {"u": np.zeros((4, 6))}, time=time))

    assert_alike(ps.run(main, 2), ps.MismatchError)


def test_another_job_is_noticed(place):
    group, part = group_of(place), {"u": np.zeros((8, 6))}
    with ps.Session() as one, ps.Session() as other:
        one.timestep(group, part)
        other.timestep(group, part)
        with pytest.raises(ps.BusyError, match="another job"):
            one.timestep(group, part)
