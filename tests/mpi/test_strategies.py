"""Every strategy on MPI, in shared memory and by messages: the same files, read by any strategy."""

from __future__ import annotations

import random

import numpy as np
import pytest
from conformance import check_disk, random_block_bytes, random_case
from helpers import leftovers, opened_with, tree
from mpi4py import MPI
from mpihelpers import TRANSPORTS, assert_fails, rows, sends_messages
from strategies import SMALL, STRATEGIES, may_be_refused, read_by, some_ways, write_by

import penstock as ps

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
SEEDS = 6


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    opened_with(monkeypatch, buffers=SMALL)


@pytest.mark.parametrize("dedicated", [False, True])
def test_all_write_the_same_files_and_read_them(mpi, place, transport, dedicated):
    if dedicated and mpi.size == 1:
        pytest.skip("no clients would be left")
    chance = random.Random(f"{mpi.size} {dedicated}")
    for turn in range(SEEDS):
        clients = mpi.size
        servers = chance.choice([None, 1, 2, mpi.size + 2])
        if dedicated:
            servers = min(servers or 1, mpi.size - 1)
            clients -= servers
        case = random_case(chance, clients, clients)
        tuning = {"block_bytes": random_block_bytes(chance, case)}
        session = ps.Session(
            mpi, transport=transport, servers=servers, dedicated=dedicated, sync=False, **tuning
        )
        with session:
            if session.is_client:
                is_multiple = MPI.Query_thread() == MPI.THREAD_MULTIPLE
                has_threads = is_multiple or not sends_messages(transport)
                one_case(session, case, place, turn, has_threads)
        mpi.Barrier()


def one_case(session, case, place, turn, has_threads):
    ways = some_ways(random.Random(turn))
    if not has_threads:
        ways = [way for way in ways if not way.endswith("+all")]
    at = {strategy: place / f"{turn}-{strategy}" for strategy in ways}
    if session.rank == 0:
        for directory in at.values():
            directory.mkdir()
    session.barrier()
    for strategy in ways:
        write_by(session, case, at[strategy] / "u", strategy)
    if session.rank == 0:
        check_disk(session, case, at["disk-directed"] / "u", session.size)
        expected = tree(at["disk-directed"])
        for strategy in ways:
            if (at[strategy] / "u").exists() or not may_be_refused(strategy, case.disk):
                assert tree(at[strategy]) == expected, strategy
            assert not leftovers(at[strategy])
    session.barrier()
    for strategy in ways:
        read_by(session, case, at["disk-directed"] / "u", strategy)


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_errors_alike_on_all_ranks(mpi, place, transport, strategy):
    with ps.Session(mpi, transport=transport, sync=False, strategy=strategy) as s:
        u = rows(s)
        local = np.ones(u.local_shape(s.rank))
        words = "rank 0", "two_phase"
        wrong = "two_phase" if s.rank == 0 else None
        call = lambda: s.write(place / "g", u, local, strategy=wrong)  # noqa: E731
        assert_fails(s, call, ps.SchemaError, *words)
        if s.size > 1:
            mine = "disk-directed" if s.rank == s.size - 1 else strategy
            call = lambda: s.write(place / "g", u, local, strategy=mine)  # noqa: E731
            words = "rank 0", strategy, f"rank {s.size - 1}", "disk-directed"
            assert_fails(s, call, ps.MismatchError, *words)
            shared = u.with_disk(ps.Chunks((8, 2), codec="zstd"))
            if strategy == "independent":
                call = lambda: s.write(place / "g", shared, local)  # noqa: E731
                assert_fails(s, call, ps.SchemaError, "ranks 0 and 1", "chunk [0, 0]")
        assert_fails(s, lambda: s.read(place / "g", u), ps.MissingError, str(place / "g"))
        s.write(place / "g", u, local)
        assert np.array_equal(s.read(place / "g", u), local)


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_a_full_disk(mpi, tiny, monkeypatch, transport, strategy):
    opened_with(monkeypatch, buffers=ps.testing.Buffers(1, 40_000))
    with ps.Session(mpi, transport=transport, strategy=strategy, block_bytes=16384) as s:
        shape = (1024, 256)
        memory = ps.Distribution("CYCLIC(3),*", (s.size,))
        u = ps.Array("u", shape, "f8", memory=memory, disk=ps.Chunks((64, 64)))
        local = np.random.default_rng(s.rank).random(u.local_shape(s.rank))
        call = lambda: s.write(tiny / "g", u, local)  # noqa: E731
        assert_fails(s, call, ps.FullError, str(tiny))
        assert not list(tiny.iterdir())


def test_ranks_that_open_with_different_ones(mpi, place, transport):
    if mpi.size == 1:
        pytest.skip("needs several ranks")
    strategy = "caching" if mpi.rank == 1 else "two-phase"
    with pytest.raises(ps.MismatchError, match="different options"):
        ps.Session(mpi, transport=transport, strategy=strategy)
    wrong = "faster" if mpi.rank == 1 else "two-phase"
    with pytest.raises(ps.SchemaError):
        ps.Session(mpi, transport=transport, strategy=wrong)
