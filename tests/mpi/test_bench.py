"""How the benchmarks take time."""

from __future__ import annotations

import time

from mpi4py import MPI

from penstock_bench import meters
from penstock_bench.meters import agree_on_start, timed, waking_seconds


def test_ranks_agree_on_when_they_start(mpi):
    """At one moment by their host's clock, which comes after its last rank has come."""
    if mpi.rank == mpi.size - 1:
        time.sleep(0.1)
    came = time.perf_counter()
    start = agree_on_start(mpi)
    host = mpi.Split_type(MPI.COMM_TYPE_SHARED)
    assert set(host.allgather(start)) == {start}
    assert max(host.allgather(came)) < start
    host.Free()


def test_no_rank_starts_before(mpi, monkeypatch):
    """What is timed begins after that moment on all of them, and once."""
    start, started = agree_on_start(mpi) + 0.1, []
    monkeypatch.setattr(meters, "agree_on_start", lambda _: start)
    timed(mpi, lambda: started.append(time.perf_counter()))
    assert len(started) == 1
    assert start <= started[0]


def test_time_ends_with_the_last_rank(mpi):
    """It begins with the start, not when the first rank comes, and is the same on all."""
    if mpi.rank == 0:
        time.sleep(10)
    seconds, _ = timed(mpi, lambda: time.sleep(0.2 if mpi.rank == mpi.size - 1 else 0))
    assert set(mpi.allgather(seconds)) == {seconds}
    assert 0.2 <= seconds < 10


def test_the_last_rank_to_wake_counts(mpi, monkeypatch):
    """All are told how long it took."""
    if mpi.rank == mpi.size - 1:
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds + 0.05))
    seconds = waking_seconds(mpi)
    assert set(mpi.allgather(seconds)) == {seconds}
    assert seconds >= 0.05
