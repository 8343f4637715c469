"""Every strategy on threads: the same files, the same errors, any strategy reads what any has
written; caches are so small that blocks are written before they are full, and read again."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from conformance import check_disk, random_block_bytes, random_case, read, write
from helpers import alone, caught, fails, leftovers, opened_with, ramp, same_bits, tree, values
from strategies import SMALL, STRATEGIES, may_be_refused, read_by, some_ways, write_by

import penstock as ps

ROWS = ps.Distribution("CYCLIC,*", (3,))
DISKS = {
    "chunks": ps.Chunks((4, 3)),
    "zstd": ps.Chunks((4, 3), codec="zstd:1"),
    "shards": ps.Chunks((4, 6), subchunks=(2, 3), codec="crc32c"),
    "raw": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", (3,)),
}


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    opened_with(monkeypatch, buffers=SMALL)


def cyclic(disk) -> ps.Array:
    """Three ranks hold every third row."""
    return ps.Array("u", (13, 7), "f8", memory=ROWS, disk=disk)


@pytest.mark.parametrize("seed", range(60))
def test_all_write_the_same_files_and_read_them(place, seed):
    chance = random.Random(seed)
    ranks = chance.randint(1, 6)
    case = random_case(chance, ranks, ranks)
    servers = chance.choice([None, 1, 2, 3, ranks + 2])
    ways = some_ways(chance)

    def main(session):
        for strategy in ways:
            write_by(session, case, place / strategy / "u", strategy)
        if session.rank == 0:
            check_disk(session, case, place / "disk-directed" / "u", session.size)
            expected = tree(place / "disk-directed")
            for strategy in ways:
                if (place / strategy / "u").exists() or not may_be_refused(strategy, case.disk):
                    assert tree(place / strategy) == expected, strategy
        session.barrier()
        for strategy in ways:
            read_by(session, case, place / "disk-directed" / "u", strategy)

    for strategy in ways:
        (place / strategy).mkdir()
    ps.run(
        main,
        ranks,
        servers=servers,
        dedicated=chance.random() < 0.3,
        block_bytes=random_block_bytes(chance, case),
        background_bytes=chance.choice([1, 500, 1 << 20]),
        sync=False,
    )
    assert not any(leftovers(place / strategy) for strategy in ways)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_the_session(place, strategy):
    """Named once, for all calls; a call may name another."""
    case = replace(random_case(random.Random(strategy), 3, 3), disk=ps.RowMajor())

    def main(session):
        write(session, case, place / "u")
        read(session, case, place / "u", session.size)
        texts = session.explain(place / "u", case.array(case.source, session.rank))
        other = session.explain(
            place / "u", case.array(case.source, session.rank), strategy="disk-directed"
        )
        return texts, other

    job = {"block_bytes": random_block_bytes(random.Random(1), case), "sync": False}
    for text, other in ps.run(main, 3, strategy=strategy, **job):
        assert text.startswith(f"{strategy} write") and other.startswith("disk-directed write")


def test_a_single_rank_with_servers_beside_it(place):
    u = ps.Array("u", (16, 16), "f8", disk=ps.Chunks((8, 8), codec="zstd:1"))
    truth = ramp((16, 16))
    for strategy in STRATEGIES:
        with ps.Session(strategy=strategy) as s:
            report = s.write(place / strategy, u, truth)
            assert report.bytes == 2048 and report.blocks >= 4
            assert same_bits(s.read(place / strategy, u), truth)


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explain(place, strategy, disk):
    """It says by what, how, and how much; or the error that a write would meet."""
    u = cyclic(DISKS[disk])

    def main(session):
        text = caught(lambda: session.explain(place / "u", u, strategy=strategy))
        local = np.ones(u.local_shape(session.rank))
        return text, caught(lambda: session.write(place / "u", u, local, strategy=strategy))

    for text, report in ps.run(main, 3, block_bytes=64, sync=False):
        if isinstance(report, ps.Error):
            assert strategy == "independent" and disk in ("zstd", "shards")
            assert isinstance(text, ps.SchemaError) and str(text) == str(report)
            continue
        lines = {line.split()[0]: line for line in text.splitlines()}
        assert text.startswith(f"{strategy} write of 728 bytes from 3 clients")
        assert {"disk", "order", "clients", "messages", "memory"} <= lines.keys()
        assert ("server" in lines) == (strategy in ("disk-directed", "caching"))


def test_independent_refuses_chunks_that_ranks_share(place):
    for name in ("zstd", "shards"):
        u = cyclic(DISKS[name])
        fails(
            ps.SchemaError,
            lambda s, u=u: s.write(
                place / "u", u, np.ones(u.local_shape(s.rank)), strategy="independent"
            ),
            "ranks 0 and 1",
            "chunk [0, 0]",
            "another strategy",
        )
        assert not list(place.iterdir())


@pytest.mark.parametrize("word", ["", "two_phase", "Caching", 3, "two-phase:9"])
def test_a_word_that_is_none(place, word):
    u = cyclic(ps.RowMajor())
    words = "disk-directed", "two-phase", "caching", "independent"
    # On one rank alone: all are told.
    for call in ("write", "read"):
        fails(
            ps.SchemaError,
            lambda s, call=call: getattr(s, call)(
                place / "u",
                u,
                np.ones(u.local_shape(s.rank)),
                strategy=word if s.rank == 1 else None,
            ),
            "rank 1",
            str(word),
            *words,
        )
    fails(ps.SchemaError, lambda s: s.explain(place / "u", u, strategy=word), *words)
    for make in (lambda: ps.Session(strategy=word), lambda: ps.run(print, 2, strategy=word)):
        error = caught(make)
        assert isinstance(error, ps.SchemaError) and all(w in str(error) for w in words)


def test_ranks_that_name_different_ones(place):
    u = cyclic(ps.RowMajor())

    def main(session, call):
        local = np.ones(u.local_shape(session.rank))
        strategy = "caching" if session.rank == 2 else "two-phase"
        return getattr(session, call)(place / "u", u, local, strategy=strategy)

    for call in ("write", "read"):
        words = "rank 0", "two-phase", "rank 2", "caching"
        fails(ps.MismatchError, lambda s, call=call: main(s, call), *words)


SMALL_SHAPE, LARGE_SHAPE = (32, 64), (512, 256)  # 16 KiB and 1 MiB of float64


@pytest.mark.parametrize("form", ["chunks", "shards", "raw", "parts"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_full_disk(tiny, monkeypatch, strategy, form):
    opened_with(monkeypatch, buffers=ps.testing.Buffers(1, 40_000))

    def array(shape):
        rows = shape[0] // 4
        disk = {
            "chunks": ps.Chunks((rows, 16)),
            "shards": ps.Chunks((rows, shape[1]), subchunks=(rows // 4, 16), codec="crc32c"),
            "raw": ps.RowMajor(),
            "parts": ps.Distribution("BLOCK,*", (4,)),
        }[form]
        memory = ps.Distribution("BLOCK,*" if form == "shards" else "*,BLOCK", (4,))
        return ps.Array("u", shape, "f8", memory=memory, disk=disk)

    def put(session, shape, salt=0):
        u = array(shape)
        local = values(shape, "f8", salt)[u.local_slices(session.rank)]
        return session.write(tiny / "u", u, local, strategy=strategy)

    job = {"ranks": 4, "servers": 3, "block_bytes": 16384}
    ps.run(lambda s: put(s, SMALL_SHAPE), **job)
    before = tree(tiny)
    fails(ps.FullError, lambda s: put(s, LARGE_SHAPE, 1), str(tiny), **job)
    assert tree(tiny) == before, "the old data set is not as it was, or something is left over"
    ps.run(lambda s: put(s, SMALL_SHAPE, 2), **job)
    u = array(SMALL_SHAPE)
    parts = ps.run(lambda s: s.read(tiny / "u", u, strategy=strategy), **job)
    expected = values(SMALL_SHAPE, "f8", 2)
    for rank, part in enumerate(parts):
        assert same_bits(part, np.ascontiguousarray(expected[u.local_slices(rank)]))


READ_ONLY = """
import os, sys, numpy as np, penstock as ps
ps.Session  # the package is loaded while it can be read
os.setegid(65534); os.seteuid(65534)
u = ps.Array("u", (8, 8), "f8", memory=ps.Distribution("BLOCK,*", (2,)), disk=ps.Chunks((4, 4)))
def main(s):
    try:
        s.write(sys.argv[1], u, np.ones(u.local_shape(s.rank)), strategy=sys.argv[2])
    except ps.ReadOnlyError as error:
        return str(error)
told = ps.run(main, 2)
print(len(set(told)), told[0] is not None)
"""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_place_that_may_not_be_written(place, strategy):
    import os

    if os.geteuid() != 0:
        pytest.skip("needs to become somebody else")
    place.chmod(0o755)
    assert alone(READ_ONLY, place / "g", strategy) == "1 True\n"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_damage_and_what_is_not_there(place, strategy):
    u = cyclic(ps.Chunks((4, 3), codec="zstd:1"))
    out = lambda s: np.ones(u.local_shape(s.rank))  # noqa: E731
    fails(ps.MissingError, lambda s: s.read(place / "u", u, strategy=strategy), str(place / "u"))
    ps.run(lambda s: s.write(place / "u", u, out(s)), 3)
    chunk = place / "u" / "u" / "c" / "1" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    fails(ps.DamagedError, lambda s: s.read(place / "u", u, strategy=strategy), str(chunk))
