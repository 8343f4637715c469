"""`local_shape` and `local_slices` against the definition of each distribution, index by index."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import Dealt, Placed, halo_widths

import penstock as ps

WORDS = ("*", "BLOCK", "CYCLIC", "CYCLIC(1)", "CYCLIC(2)", "CYCLIC(3)", "CYCLIC(100)")


def held_by(array: ps.Array, rank: int) -> list[np.ndarray]:
    """What `local_slices` says, as indices."""
    slices = array.local_slices(rank)
    assert isinstance(slices, tuple) and len(slices) == len(array.shape)
    assert all(isinstance(along, slice | np.ndarray) for along in slices)
    pairs = zip(array.shape, slices, strict=True)
    return [np.arange(extent)[along] for extent, along in pairs]


def assert_as_model(array: ps.Array, held: Dealt | Placed, ranks: int) -> None:
    times_held = np.zeros(array.shape, int)
    for rank in range(ranks):
        expected = held.indices(array.shape, rank)
        counts = tuple(len(along) for along in expected)
        shape = array.local_shape(rank)
        assert isinstance(shape, tuple) and len(shape) == len(array.shape)
        found = held_by(array, rank)
        if 0 in counts:
            assert 0 in shape, f"rank {rank} holds nothing, and its shape is {shape}"
            assert 0 in [len(along) for along in found]
            continue
        for along, truth in zip(found, expected, strict=True):
            assert np.array_equal(along, truth)
        widths = halo_widths(held.halo, len(array.shape))
        assert shape == tuple(n + sum(width) for n, width in zip(counts, widths, strict=True))
        times_held[np.ix_(*found)] += 1
    if isinstance(held, Dealt):
        assert (times_held == 1).all(), "every element has one holder"
    assert (times_held <= 1).all()


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("halo", [0, 2, ((1, 0),)])
def test_one_dimension(word, halo):
    for extent, parts in itertools.product(range(14), range(1, 7)):
        held = Dealt(word, () if word == "*" else (parts,), halo)
        assert_as_model(ps.Array("u", (extent,), "f8", memory=held.memory(0)), held, parts + 2)


@pytest.mark.parametrize("words", list(itertools.product(WORDS[:5], repeat=2)))
def test_two_dimensions(words):
    distributed = sum(word != "*" for word in words)
    for shape in [(0, 5), (1, 1), (5, 7), (8, 4)]:
        for mesh in itertools.product((1, 2, 3, 9), repeat=distributed):
            held = Dealt(",".join(words), mesh, (1, (0, 2)))
            array = ps.Array("u", shape, "f8", memory=held.memory(0))
            assert_as_model(array, held, int(np.prod(mesh)) + 1)


def test_four_dimensions():
    held = Dealt("BLOCK,*,CYCLIC(2),CYCLIC", (2, 3, 2))
    assert_as_model(ps.Array("u", (5, 3, 7, 4), "f8", memory=held.memory(0)), held, 13)


def test_boxes():
    held = Placed((((0, 0), (2, 5)), ((2, 1), (3, 4)), ((0, 0), (0, 0)), ((2, 0), (1, 1))), 1)
    for rank in range(4):
        array = ps.Array("u", (5, 5), "f8", memory=held.memory(rank))
        expected = [len(along) for along in held.indices((5, 5), rank)]
        if 0 not in expected:
            assert array.local_shape(rank) == tuple(n + 2 for n in expected)
            for found, truth in zip(held_by(array, rank), held.indices((5, 5), rank), strict=True):
                assert np.array_equal(found, truth)
        else:
            assert 0 in array.local_shape(rank)


def test_no_dimensions():
    array = ps.Array("u", (), "f8")
    assert array.local_shape(0) == () and array.local_slices(0) == ()


def test_by_default_rank_0_holds_everything():
    array = ps.Array("u", (4, 6), "f8")
    assert array.local_shape(0) == (4, 6)
    assert array.local_slices(0) == (slice(0, 4, 1), slice(0, 6, 1))
    assert 0 in array.local_shape(1)


def test_the_mesh_counts_as_in_panda():
    """One extent for each distributed dimension in order; the last coordinate is the fastest."""
    memory = ps.Distribution("BLOCK,*,BLOCK", (2, 3))
    array = ps.Array("u", (4, 5, 6), "f8", memory=memory)
    starts = [tuple(int(along[0]) for along in held_by(array, rank)) for rank in range(6)]
    assert starts == [(0, 0, 0), (0, 0, 2), (0, 0, 4), (2, 0, 0), (2, 0, 2), (2, 0, 4)]


def test_slices_where_a_slice_can_say_it():
    """CYCLIC is a slice with a step; CYCLIC(2) needs indices."""
    memory = ps.Distribution("CYCLIC,CYCLIC(2)", (2, 2))
    array = ps.Array("u", (9, 9), "f8", memory=memory)
    first, second = array.local_slices(0)
    assert isinstance(first, slice) and first.step == 2
    assert isinstance(second, np.ndarray) and second.tolist() == [0, 1, 4, 5, 8]


def test_extents_beyond_32_bits():
    """Nothing is allocated: the numbers alone must be right."""
    memory = ps.Distribution("BLOCK,CYCLIC", (4, 2))
    array = ps.Array("u", (2**40 + 1, 2**33), "f8", memory=memory)
    block = 2**38 + 1
    assert array.local_shape(0)[0] == block
    assert array.local_shape(7)[0] == 2**40 + 1 - 3 * block
    assert array.local_slices(3) == (slice(block, 2 * block, 1), slice(1, 2**33, 2))


def test_words_are_forgiving_of_case_and_spaces():
    spaced = ps.Array("u", (9, 9), "f8", memory=ps.Distribution(" block , Cyclic( 2 )", (3, 2)))
    plain = ps.Array("u", (9, 9), "f8", memory=ps.Distribution("BLOCK,CYCLIC(2)", (3, 2)))
    for rank in range(6):
        for a, b in zip(held_by(spaced, rank), held_by(plain, rank), strict=True):
            assert np.array_equal(a, b)


def test_an_array_is_a_value():
    def make() -> ps.Array:
        memory = ps.Distribution("BLOCK,*", (2,), halo=1)
        return ps.Array("u", (4, 6), "f8", memory=memory, disk=ps.Chunks((2, 2)), dims=("y", "x"))

    assert make() == make()
    other = make().with_memory(ps.Distribution("*,BLOCK", (3,)))
    assert other.local_shape(0) == (4, 2) and other.disk == make().disk
    stored = make().with_disk(ps.RowMajor("npy"))
    assert stored.disk == ps.RowMajor("npy") and stored.memory == make().memory
