"""Split collectives on threads: what is begun is ended once, in any order, and nothing is lost."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from helpers import caught, fails, faults, opened_with, ramp, same_bits, some_attempt, tree

import penstock as ps

BACKGROUNDS = ("disk", "all", "none")
RANKS = 3
RAW = ps.Array("u", (12, 8), "f8", memory=ps.Distribution("BLOCK,*", (RANKS,)), disk=ps.RowMajor())


def zarr(name: str, shape=(12, 8)) -> ps.Array:
    memory = ps.Distribution("CYCLIC,*", (RANKS,))
    return ps.Array(name, shape, "f8", memory=memory, disk=ps.Chunks((4, 3), codec="zstd:1"))


def part(array: ps.Array, rank: int, truth: np.ndarray) -> np.ndarray:
    return truth[array.local_slices(rank)].copy()


def run(main, **options):
    return ps.run(main, RANKS, sync=False, block_bytes=128, **options)


@pytest.fixture
def slow(monkeypatch):
    """Each disk moves so many bytes a second."""

    def at(bytes_per_second: float) -> None:
        slow_disk = ps.testing.Faults(bytes_per_second=bytes_per_second)
        opened_with(monkeypatch, faults=slow_disk)

    return at


@pytest.fixture
def failing(monkeypatch):
    """Each disk fails at a call."""

    def at(operation: str, nth: int = 1, error: str = "EIO") -> None:
        opened_with(monkeypatch, faults=faults(operation, nth, error))

    return at


@pytest.mark.parametrize("dedicated", [False, True])
def test_several_at_once_ended_in_any_order(place, dedicated):
    """Of one group and of several files; ranks end them in different orders."""
    arrays = [zarr(f"a{i}") for i in range(3)]
    truths = [ramp((12, 8), start=1000 * i) for i in range(3)]

    def in_order(session, begun):
        turn = session.rank % len(begun)
        return begun[turn:] + begun[:turn]

    def main(session):
        begun = []
        for i, (array, truth) in enumerate(zip(arrays, truths, strict=True)):
            local = part(array, session.rank, truth)
            how = {"background": BACKGROUNDS[i], "copy": i == 1}
            begun.append(session.begin_write(place / "group", array, local, **how))
            if i == 1:
                local[...] = -1.0
        session.write(place / "beside", arrays[0], part(arrays[0], session.rank, truths[0]))
        for split in in_order(session, begun):
            assert split.end().bytes == 768
        begun = [
            (i, session.begin_read(place / "group", array, background=BACKGROUNDS[i]))
            for i, array in enumerate(arrays)
        ]
        for i, split in in_order(session, begun):
            assert same_bits(split.end(), part(arrays[i], session.rank, truths[i]))

    run(main, dedicated=dedicated)
    zarr_python = pytest.importorskip("zarr")
    for array, truth in zip(arrays, truths, strict=True):
        assert same_bits(zarr_python.open_array(place / "group" / array.name)[...], truth)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_testing_comes_to_its_end(place, slow, background):
    """Without `end`, on ranks that do nothing else; and it does not wait."""
    slow(4000)

    def main(session):
        local = part(RAW, session.rank, ramp((12, 8)))
        split = session.begin_write(place / "u", RAW, local, background=background)
        longest, answers = 0.0, []
        while not (answers and answers[-1]):
            before = time.perf_counter()
            answers.append(split.test())
            longest = max(longest, time.perf_counter() - before)
            time.sleep(0.002)
        assert split.end().bytes == 768 and split.test()
        return len(answers), longest

    def in_time():
        counts, longest = zip(*run(main, servers=1), strict=True)
        if background == "none":
            assert set(counts) == {1}
            return max(longest) < 0.1
        return max(longest) < 0.1 and min(counts) > 1  # it may end before the first test

    assert some_attempt(in_time)
    assert same_bits(np.fromfile(place / "u").reshape(12, 8), ramp((12, 8)))


def test_only_disks_work_between_begin_and_end(place, slow):
    """With "disk" all elements have left the ranks' memories when `begin` returns."""
    slow(3000)

    def main(session):
        local = part(RAW, session.rank, ramp((12, 8)))
        split = session.begin_write(place / "u", RAW, local, background="disk")
        local[...] = -1  # not promised to be allowed
        time.sleep(0.4)
        begun = time.perf_counter()
        split.end()
        return time.perf_counter() - begun

    assert some_attempt(lambda: max(run(main, servers=1)) < 0.1)
    assert same_bits(np.fromfile(place / "u").reshape(12, 8), ramp((12, 8)))


def test_less_memory_than_the_array_takes_longer_but_stores_the_same(place, slow):
    slow(1500)

    def main(session):
        local = part(RAW, session.rank, ramp((12, 8)))
        before = time.perf_counter()
        split = session.begin_write(place / "u", RAW, local)
        begun = time.perf_counter() - before
        report = split.end()
        return begun / report.seconds, report.buffer_bytes

    def foreground(buffer_bytes, **memory):
        shares, reported = zip(*run(main, servers=1, **memory), strict=True)
        assert set(reported) == {buffer_bytes}
        return shares

    assert some_attempt(lambda: max(foreground(768)) < 0.5)
    assert some_attempt(lambda: min(foreground(256, background_bytes=256)) > 0.5)
    assert same_bits(np.fromfile(place / "u").reshape(12, 8), ramp((12, 8)))


def test_memory_is_kept_until_the_end(place, slow):
    slow(3000)

    def main(session):
        split = session.begin_write(
            place / "u", RAW, part(RAW, session.rank, ramp((12, 8))), background="all"
        )
        gc.collect()
        rubbish = [np.full(32, -1.0) for _ in range(100)]
        split.end()
        return rubbish

    run(main, servers=1)
    assert same_bits(np.fromfile(place / "u").reshape(12, 8), ramp((12, 8)))


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("strategy", ["disk-directed", "two-phase", "independent"])
@pytest.mark.parametrize("operation", ["open", "write", "finish"])
def test_a_disk_that_fails(place, failing, background, strategy, operation):
    """On all ranks, at `begin` or at `end`; what was there before stays; the session goes on."""

    def put(session, truth, **how):
        local = part(RAW, session.rank, truth)
        return session.begin_write(place / "u", RAW, local, strategy=strategy, **how).end()

    run(lambda s: put(s, ramp((12, 8))))
    before = tree(place)
    failing(operation)

    def main(session):
        error = caught(lambda: put(session, -ramp((12, 8)), background=background))
        session.barrier()
        return error

    errors = run(main)
    assert all(isinstance(error, ps.IoError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1
    assert tree(place) == before


def test_a_read_that_fails(place, failing):
    run(lambda s: s.write(place / "u", RAW, part(RAW, s.rank, ramp((12, 8)))))
    failing("read")
    for background in BACKGROUNDS:
        fails(
            ps.IoError,
            lambda s, background=background: s.begin_read(
                place / "u", RAW, background=background
            ).end(),
            str(place / "u"),
            ranks=RANKS,
        )


def test_ended_twice(place):
    def main(session):
        split = session.begin_write(place / "u", RAW, part(RAW, session.rank, ramp((12, 8))))
        split.end()
        return caught(split.end)

    for error in run(main):
        assert isinstance(error, ps.SchemaError) and "ended already" in str(error)


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("forgetful", [1, RANKS])
def test_forgotten(place, slow, background, forgetful):
    """Closing ends it, says so on all ranks, and the data are there."""
    slow(5000)
    errors = [None] * RANKS

    def main(session):
        local = part(RAW, session.rank, ramp((12, 8)))
        split = session.begin_write(place / "u", RAW, local, background=background)
        if session.rank >= forgetful:
            split.end()
        errors[session.rank] = caught(session.close)
        assert isinstance(caught(session.barrier), ps.SchemaError)

    run(main)
    for error in errors:
        assert isinstance(error, ps.SchemaError)
        assert all(word in str(error) for word in ("rank 0", str(place / "u"), "never ended"))
    assert same_bits(np.fromfile(place / "u").reshape(12, 8), ramp((12, 8)))


@pytest.mark.parametrize("background", ["disk", "all"])
def test_a_rank_that_leaves(place, slow, background):
    """The others are told, and do not wait; the old data stay. Each disk is still at work."""
    u = RAW.with_disk(ps.Distribution("BLOCK,*", (RANKS,)))
    run(lambda s: s.write(place / "u", u, part(u, s.rank, ramp((12, 8)))))
    before = tree(place)
    slow(50)  # each disk is at work for five seconds
    errors = [None] * RANKS

    def main(session):
        local = part(u, session.rank, -ramp((12, 8)))
        begin = lambda: session.begin_write(place / "u", u, local, background=background)  # noqa: E731
        if session.rank == 1:
            begin()
            raise KeyError("lost my way")
        # It may hear of that before it has begun.
        errors[session.rank] = caught(lambda: begin().end())

    with pytest.raises(KeyError):
        run(main, servers=RANKS)
    for rank in (0, 2):
        assert isinstance(errors[rank], ps.PeerError) and "lost my way" in str(errors[rank])
    assert tree(place) == before


def test_one_array_at_a_time(place):
    """A write and another call on one array are refused; two reads, and two arrays, are not."""
    array, other = zarr("a"), zarr("b")

    def main(session):
        local = part(array, session.rank, ramp((12, 8)))
        split = session.begin_write(place / "g", array, local, background="all")
        for call in (
            lambda: session.write(place / "g", array, local),
            lambda: session.begin_read(place / "g", array).end(),
        ):
            error = caught(call)
            assert isinstance(error, ps.BusyError) and "under way" in str(error), error
        session.write(place / "g", other, local)
        split.end()
        reads = [session.begin_read(place / "g", array) for _ in range(2)]
        return [read.end() for read in reads]

    for rank, parts in enumerate(run(main)):
        for found in parts:
            assert same_bits(found, part(array, rank, ramp((12, 8))))


def test_wrong_arguments_on_one_rank(place):
    truth = ramp((12, 8))
    for what, kind, words in (
        ({"background": "some"}, ps.SchemaError, ("rank 1", '"some"', '"disk"')),
        ({"background": 3}, ps.SchemaError, ("rank 1", '"3"')),
        ({"background": "disk", "strategy": "caching"}, ps.UnsupportedError, ("rank 1", "caching")),
        ({"background": "all"}, ps.MismatchError, ("rank 0", "disk", "rank 1", "all")),
        ({"strategy": "two-phase:6"}, ps.SchemaError, ("rank 1", "two-phase:6")),
    ):
        fails(
            kind,
            lambda s, what=what: s.begin_write(
                place / "u",
                RAW,
                part(RAW, s.rank, truth),
                **(what if s.rank == 1 else {"background": "disk"}),
            ).end(),
            *words,
            ranks=RANKS,
        )
    fails(
        ps.SchemaError,
        lambda s: s.begin_write(place / "u", RAW, "nothing", copy=True).end(),
        "rank 0",
        ranks=RANKS,
    )
    assert not list(place.iterdir())


@pytest.mark.parametrize("way", ["disk", "all", "dedicated"])
def test_most_of_the_disks_time_is_hidden(place, slow, way):
    """With a disk that needs no processor: 70% of the shorter of both times at least."""
    u = ps.Array("u", (512, 512), "f8", memory=ps.Distribution("BLOCK,*", (2,)), disk=ps.RowMajor())
    seconds = 0.5
    slow(u.shape[0] * u.shape[1] * 8 / seconds)
    truth = ramp(u.shape)
    dedicated = way == "dedicated"
    job = {"servers": 1, "dedicated": dedicated, "sync": False}

    def main(session):
        begun = time.perf_counter()
        how = {} if dedicated else {"background": way}
        split = session.begin_write(place / "u", u, part(u, session.rank, truth), **how)
        time.sleep(seconds)  # stands for computing: the ranks are threads of one interpreter
        split.end()
        return time.perf_counter() - begun

    assert some_attempt(lambda: 2 * seconds - max(ps.run(main, 2, **job)) > 0.7 * seconds)
