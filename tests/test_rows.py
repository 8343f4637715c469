"""Arrays of rows and of several boxes a rank, on threads."""

from __future__ import annotations

import random

import numpy as np
import pytest
from helpers import fails, leftovers, same_bits
from rows import Plan, look, restart, save

import penstock as ps


@pytest.mark.parametrize("seed", range(40))
def test_any_group(place, seed):
    plan, chance = Plan.random(seed), random.Random(seed)
    writers, readers = chance.randint(1, 5), chance.randint(1, 5)
    options = {"servers": chance.choice([None, 1, 3]), "sync": False, "block_bytes": 64}
    ps.run(lambda s: save(s, plan, place / "g"), writers, **options)
    look(plan, place / "g", writers)
    ps.run(lambda s: restart(s, plan, place / "g", writers), readers, **options)
    assert not leftovers(place)


def test_ranks_that_bring_other_numbers_of_rows(place):
    """Of two arrays with one dimension."""
    arrays = [ps.Array(name, (None,), "f8", dims=("particle",)) for name in ("a", "b")]
    group = ps.Group("g", arrays, place / "g")

    def main(s):
        s.timestep(group, {"a": np.zeros(3), "b": np.zeros(3 + s.rank)})

    fails(ps.SchemaError, main, "rank 1", "3 of 'a' and 4 of 'b'".replace("'", '"'), ranks=2)
    assert not (place / "g").exists()


def test_rows_of_another_shape(place):
    group = ps.Group("g", [ps.Array("a", (None, 3), "f8")], place / "g")
    fails(ps.SchemaError, lambda s: s.timestep(group, {"a": np.zeros((2, 4))}), "[2, 4]")


def test_rows_are_of_groups():
    a = ps.Array("a", (None, 3), "f8")
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="group"):
            s.write("nowhere", a, np.zeros((2, 3)))
        with pytest.raises(ps.SchemaError, match="memory schema"):
            a.with_memory(ps.Boxes((0, 0), (1, 3)))
        with pytest.raises(ps.SchemaError, match="brings"):
            a.local_shape(0)


def test_boxes_are_a_list_of_local_arrays(place):
    boxes = [ps.Boxes((0, 0), (2, 3)), ps.Boxes((2, 3), (1, 1))]
    a = ps.Array("a", (4, 6), "f8", boxes)
    assert a.local_shapes(0) == [(2, 3), (1, 1)]
    with pytest.raises(ps.SchemaError, match="list of boxes"):
        a.local_shape(0)
    for wrong, words in [
        (np.zeros((2, 3)), "a list of local arrays"),
        ([np.zeros((2, 3))], "there are 1"),
        ([np.zeros((2, 3)), np.zeros((2, 3))], "[1, 1]"),
    ]:
        fails(ps.SchemaError, lambda s, wrong=wrong: s.write(place / "g", a, wrong), words)
    overlapping = a.with_memory([ps.Boxes((0, 0), (2, 3)), ps.Boxes((1, 2), (2, 2))])
    parts = [np.zeros((2, 3)), np.zeros((2, 2))]
    fails(ps.OverlapError, lambda s: s.write(place / "g", overlapping, parts), "rank 0")
    assert not leftovers(place)


@pytest.mark.parametrize(
    "disk", [ps.Chunks((3, 4), codec="zstd:1"), ps.Chunks((2, 2)), ps.RowMajor()]
)
def test_several_regions(place, disk):
    """A list of regions is written and read in one call; the rest stays."""
    a = ps.Array("a", (8, 6), "i4", disk=disk)
    truth = np.arange(48, dtype="i4").reshape(8, 6)
    with ps.Session() as s:
        s.write(place / "a", a, truth)

    def main(s):
        rows = [2 * s.rank, (2 * s.rank + 1, slice(1, 3))]
        parts = [np.full((1, 6), -s.rank, "i4"), np.full((1, 2), -s.rank - 10, "i4")]
        s.write(place / "a", a, parts, region=rows)
        back = s.read(place / "a", a, region=[*rows, slice(0, 0)])
        assert [part.shape for part in back] == [(1, 6), (1, 2), (0, 6)]
        assert same_bits(back[0], parts[0]) and same_bits(back[1], parts[1])

    ps.run(main, 3)
    for rank in range(3):
        truth[2 * rank] = -rank
        truth[2 * rank + 1, 1:3] = -rank - 10
    with ps.Session() as s:
        assert same_bits(s.read(place / "a", a), truth)
