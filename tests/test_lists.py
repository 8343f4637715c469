"""Lists of elements as memory schemas and regions, against NumPy: on threads, by every strategy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import zarr

import penstock as ps

STRATEGIES = ["disk-directed", "two-phase", "two-phase:1", "two-phase:4", "caching", "independent"]
SHAPE = (12, 35)
DISKS = {
    "npy": ps.RowMajor("npy"),
    "chunks": ps.Chunks((5, 8)),
    "zstd": ps.Chunks((5, 8), codec="zstd:1"),
    "shards": ps.Chunks((10, 16), subchunks=(5, 8)),
    "parts": ps.Distribution("BLOCK,*", 3),
    "natural": None,
}


def share(rng: np.random.Generator, ranks: int, *, holes: bool) -> list[np.ndarray]:
    """Elements of an array for each rank, in an order of no meaning, some perhaps nobody's."""
    owner = rng.integers(0, ranks + holes, np.prod(SHAPE))
    return [rng.permutation(np.flatnonzero(owner == rank)) for rank in range(ranks)]


def whole(path: str, disk: object) -> np.ndarray:
    """The array on disk, by other software where there is some."""
    if isinstance(disk, ps.RowMajor):
        return np.load(path)
    if isinstance(disk, ps.Distribution):
        with ps.Session() as s:
            return s.read(path, s.open(path))
    return zarr.open_group(path, mode="r")["u"][:]


@pytest.mark.parametrize("name", DISKS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lists_are_written_and_read(tmp_path, name, strategy):
    """Each element of a list goes to its place, and comes from it, whatever the order."""
    disk, ranks, path = DISKS[name], 3, str(tmp_path / "u.npy")
    rng = np.random.default_rng(7)
    mine, wanted = share(rng, ranks, holes=True), share(rng, ranks, holes=False)
    values = rng.integers(1, 2**31, np.prod(SHAPE))
    expected = np.zeros(np.prod(SHAPE), "i8")
    for numbers in mine:
        expected[numbers] = values[numbers]
    is_refused = strategy == "independent" and name in ("zstd", "shards")

    def job(s):
        runs = ps.Runs(mine[s.rank], 1)
        array = ps.Array("u", SHAPE, "i8", memory=runs, disk=disk)
        assert array.local_shape(s.rank) == (len(runs),)
        local = values[mine[s.rank]]
        if is_refused:
            with pytest.raises(ps.UnsupportedError, match="only be written whole"):
                s.write(path, array, local, strategy=strategy)
            s.write(path, array, local)
        else:
            s.write(path, array, local, strategy=strategy)
        back = s.read(path, array.with_memory(ps.Runs(wanted[s.rank], 1)), strategy=strategy)
        np.testing.assert_array_equal(back, expected[wanted[s.rank]])

    ps.run(job, ranks=ranks, servers=2, block_bytes=200)
    np.testing.assert_array_equal(whole(path, disk).ravel(), expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_places_in_memory(tmp_path, strategy):
    """Places say where elements lie in a local array, which keeps its others."""
    path = str(tmp_path / "u.npy")

    def job(s):
        # Columns 2 r and 2 r + 1 of the array, as two rows of the local array, with a margin.
        columns = ps.Strided(
            2 * s.rank, 1, [(2, 1), (12, 35)], places=ps.Strided(14 + 1, 12, [(2, 14)])
        )
        array = ps.Array("u", SHAPE, "f4", memory=columns, disk=ps.RowMajor("npy"), fill_value=0)
        local = np.full((4, 14), -1, "f4")
        local[1:3, 1:13] = 100 * s.rank + np.arange(24).reshape(2, 12)
        s.write(path, array, local, strategy=strategy)
        back = np.full((4, 14), -1, "f4")
        assert s.read(path, array, back, strategy=strategy) is back
        np.testing.assert_array_equal(back, local)
        new = s.read(path, array, strategy=strategy)
        assert new.shape == (14 * 2 + 13,)
        np.testing.assert_array_equal(new[15:27], local[1, 1:13])

    ps.run(job, ranks=2, block_bytes=100)
    there = np.load(path)
    for rank in range(2):
        block = 100 * rank + np.arange(24).reshape(2, 12)
        np.testing.assert_array_equal(there[:, 2 * rank : 2 * rank + 2], block.T)
    assert not there[:, 4:].any()


def test_bytes_of_a_flat_file(tmp_path):
    """A flat file is an array of bytes: records of no regular size, dealt to ranks."""
    path, ranks = str(tmp_path / "f"), 4
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 50, 400)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    content = rng.integers(0, 256, lengths.sum(), dtype="u1")

    def job(s):
        own = slice(s.rank, None, ranks)
        runs = ps.Runs(offsets[own], lengths[own])
        array = ps.Array("f", content.size, "u1", memory=runs, disk=ps.RowMajor())
        pairs = zip(offsets[own], lengths[own], strict=True)
        local = np.concatenate([content[start : start + count] for start, count in pairs])
        for strategy in STRATEGIES:
            s.write(path, array, local, strategy=strategy)
            np.testing.assert_array_equal(s.read(path, array, strategy=strategy), local)

    ps.run(job, ranks=ranks, block_bytes=1000)
    np.testing.assert_array_equal(np.fromfile(path, "u1"), content)


def test_regions_keep_the_rest(tmp_path):
    """A region that is a list changes its elements, and no other."""
    path = str(tmp_path / "g.zarr")
    array = ps.Array("u", SHAPE, "i4", disk=ps.Chunks((5, 8), codec="zstd"))
    before = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)

    def job(s):
        s.write(path, array, before if s.rank == 0 else np.empty((0, 0), "i4"))
        diagonal = ps.Strided(35 * 6 * s.rank + 6 * s.rank, 1, [(6, 36)])
        s.write(path, array, np.full(6, -1 - s.rank, "i4"), region=diagonal)
        np.testing.assert_array_equal(s.read(path, array, region=diagonal), -1 - s.rank)
        twice = ps.Runs([3, 0, 3], 2)
        np.testing.assert_array_equal(s.read(path, array, region=twice), [3, 4, -1, 1, 3, 4])

    ps.run(job, ranks=2)
    after = before.copy()
    for i in range(12):
        after[i, i] = -1 - i // 6
    np.testing.assert_array_equal(zarr.open_group(path, mode="r")["u"][:], after)


@pytest.mark.parametrize("name", ["npy", "chunks", "zstd", "shards", "parts"])
@pytest.mark.parametrize("dedicated", [False, True])
def test_lists_of_an_open_array(tmp_path, name, dedicated):
    """One rank alone reads and writes lists of an array that stays open."""
    path, ranks = str(tmp_path / "u.npy"), 2
    values = np.arange(np.prod(SHAPE), dtype="f8")

    def job(s):
        rows = ps.Array(
            "u", SHAPE, "f8", memory=ps.Distribution("BLOCK,*", ranks), disk=DISKS[name]
        )
        s.write(path, rows, values.reshape(SHAPE)[rows.local_slices(s.rank)])
        own = np.random.default_rng(s.rank).permutation(np.arange(s.rank, values.size, 2))
        with s.open(path, mode="r+") as a:
            np.testing.assert_array_equal(a.read(ps.Runs(own[:50], 1)), values[own[:50]])
            a.write(ps.Runs(own, 1), -values[own])
            np.testing.assert_array_equal(a.read(ps.Runs(own, 1)), -values[own])
            apart = ps.Runs(own[:3], 1, places=ps.Strided(5, 1, [(3, -2)]))
            out = np.full(7, 0.5)
            a.read(apart, out)
            np.testing.assert_array_equal(out[[5, 3, 1]], -values[own[:3]])
            np.testing.assert_array_equal(out[[0, 2, 4, 6]], 0.5)
            assert a.read(ps.Runs([], [])).shape == (0,)
            with pytest.raises(ps.OverlapError, match="writes an element twice"):
                a.write(ps.Runs([1, 2], 2), np.zeros(4))
            with pytest.raises(ps.SchemaError, match="one dimension"):
                a.write(ps.Runs([1], 2), np.zeros(3))
            with pytest.raises(ps.SchemaError, match="420"):
                a.read(ps.Runs([419], 2))
        return None

    ps.run(job, ranks=ranks, dedicated=dedicated, servers=2, block_bytes=300, cache_bytes=900)
    np.testing.assert_array_equal(whole(path, DISKS[name]).ravel(), -values)


def test_groups_hold_lists(tmp_path):
    """Timesteps and checkpoints take lists, and a restart brings them back."""
    path = str(tmp_path / "g.zarr")

    def job(s):
        own = np.flatnonzero(np.arange(np.prod(SHAPE)) % 3 == s.rank)[::-1]
        u = ps.Array("u", SHAPE, "f8", memory=ps.Runs(own, 1), disk=ps.Chunks((5, 8)))
        group = ps.Group("g", [u], path=path)
        for step in range(3):
            s.timestep(group, {"u": own + 1000.0 * step})
        s.checkpoint(group, {"u": own + 0.5}, step=3)
        state = s.restart(group)
        np.testing.assert_array_equal(state["u"], own + 0.5)

    ps.run(job, ranks=3)
    there = zarr.open_group(path, mode="r")["u"]
    assert there.shape == (3, *SHAPE)
    np.testing.assert_array_equal(there[2].ravel(), np.arange(np.prod(SHAPE)) + 2000.0)


def test_split_collectives(tmp_path):
    """The elements of a list may be changed once a split write has returned."""
    path = str(tmp_path / "u.npy")

    def job(s):
        own = np.arange(s.rank, 420, 2)[::-1].copy()
        array = ps.Array("u", SHAPE, "i8", memory=ps.Runs(own, 1), disk=ps.RowMajor("npy"))
        for strategy in ["disk-directed", "two-phase", "independent"]:
            local = own.copy()
            call = s.begin_write(path, array, local, strategy=strategy, background="disk")
            local[:] = -1
            call.end()
            begun = s.begin_read(path, array, strategy=strategy, background="disk")
            np.testing.assert_array_equal(begun.end(), own)

    ps.run(job, ranks=2, block_bytes=400)


def test_overlaps_are_errors_on_all_ranks(tmp_path):
    """Two ranks that write one element are named, and nothing is left."""
    path = tmp_path / "u.npy"

    def job(s):
        own = ps.Runs([10 * s.rank], 11 if s.rank == 0 else 10)
        array = ps.Array("u", SHAPE, "f8", memory=own, disk=ps.RowMajor("npy"))
        for strategy in ["disk-directed", "two-phase", "two-phase:1"]:
            with pytest.raises(ps.OverlapError, match="ranks 0 and 1 both write") as raised:
                s.write(path, array, np.zeros(len(own)), strategy=strategy)
            s.barrier()
            assert raised.value.cause
            assert not path.exists()
        own = ps.Runs([3, 4], 2) if s.rank == 2 else ps.Runs([], [])
        with pytest.raises(ps.OverlapError, match="writes an element twice"):
            s.write(path, array.with_memory(own), np.zeros(len(own)))

    ps.run(job, ranks=3, block_bytes=400)


def test_what_does_not_fit_is_refused(tmp_path):
    """Wrong parameters say what is wrong, on all ranks."""
    for make, words in [
        (lambda: ps.Runs([1, 2], [1]), "2 offsets.*1 length"),
        (lambda: ps.Runs([-1], [1]), "from 0 on"),
        (lambda: ps.Runs([1.5], [1]), "integers"),
        (lambda: ps.Runs([[1]], [1]), "sequence of integers"),
        (lambda: ps.Strided(0, 1, [(2, 3, 4)]), "count and a stride"),
        (lambda: ps.Strided(0, 1, [(3, -2)]), "beyond|below"),
        (lambda: ps.Runs([1], [1], places="here"), "places are Runs"),
        (lambda: ps.Array("u", 9, "f8", memory=ps.Runs([8], 2)), "10"),
        (
            lambda: ps.Array("u", 9, "f8", memory=ps.Runs([1], 2, places=ps.Runs([0], 3))),
            "2 .*3|3 .*2",
        ),
        (lambda: ps.Array("u", 9, "f8", memory=ps.Runs([1], 2)).local_slices(0), "list"),
    ]:
        with pytest.raises(ps.SchemaError, match=words):
            make()
    array = ps.Array("u", (4, 4), "f8", memory=ps.Runs([1], 4))
    with ps.Session() as s:
        for local in [np.zeros(5), np.zeros((2, 4))[:, ::2].T]:
            with pytest.raises(ps.SchemaError):
                s.write(tmp_path / "u", array, local)
        s.write(tmp_path / "u", array, np.ones((2, 2)))
        assert ", 2 for lists)" in s.explain(tmp_path / "u", array)


def test_lists_are_values():
    """Lists compare, hash, pickle and print."""
    for one in [ps.Runs([3, 1], [2, 1]), ps.Strided(2, 1, [(3, 4)], places=ps.Runs([0], 3))]:
        other = pickle.loads(pickle.dumps(one))
        assert other == one
        assert hash(other) == hash(one)
        assert repr(other) == repr(one)
        assert len(one) == 3
    assert ps.Runs([3, 1], [2, 1]) != ps.Runs([3, 1], [1, 2])
    assert ps.Array("u", 9, "f8", memory=ps.Runs([3], 1)) == ps.Array(
        "u", 9, "f8", memory=ps.Runs([3], [1])
    )
    assert repr(ps.Runs(np.arange(9), 1)) == "Runs([0, 1, ..., 7, 8], [1, 1, ..., 1, 1])"


def test_a_million_runs(tmp_path):
    """A long list takes a few messages, and a server memory for what concerns it."""
    count, path = 1_000_000, str(tmp_path / "u.npy")
    rng = np.random.default_rng(3)
    gaps = rng.integers(0, 2, count)
    offsets = np.arange(count) + np.cumsum(gaps)

    def job(s):
        half = slice(s.rank * count // 2, (s.rank + 1) * count // 2)
        runs = ps.Runs(offsets[half], 1)
        array = ps.Array("u", 2 * count, "u2", memory=runs, disk=ps.RowMajor("npy"))
        report = s.write(path, array, (offsets[half] % 60_000).astype("u2"))
        assert report.transfers < 20
        assert ", 4 for lists)" in s.explain(path, array)

    ps.run(job, ranks=2, servers=2)
    there = np.load(path)
    np.testing.assert_array_equal(there[offsets], (offsets % 60_000).astype("u2"))
    assert not there[offsets[-1] + 1 :].any()
