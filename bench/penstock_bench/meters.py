"""Meters measure wall time, processor time and memory of collective calls.

- *time* begins at a moment on which all ranks have agreed, and until which they sleep; it ends when
  the last one has finished. A barrier would not do: ranks leave it one after the other, and a
  collective call would wait for the last. A rank that has finished sleeps until all have, so that
  it takes no processor from them.
- *CPU* counts user and system seconds of all ranks, threads included, over the measured call only.
- *memory* is the growth at the rank where it is greatest: private memory (the peak of ``RssAnon``)
  and shared memory (``RssShmem``; a mapped file on a tmpfs counts here, too), sampled every 5 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from penstock_bench.command import UsageError

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

Contender = TypeVar("Contender")

SAMPLE_SECONDS = 0.005
WORK_UP_SECONDS = 0.1
"""All ranks work so long before each timed call, unless the environment says another number, as
tests do, for which measurements need not be good."""
WORK_UP_VARIABLE = "PENSTOCK_BENCH_WORK_UP_SECONDS"
REST_SECONDS = 0.0002
"""A rank sleeps so long between two looks at a barrier: short against what is measured."""
QUIET_SECONDS = 0.01
"""It sleeps so long where others are still being timed: looking takes their processors."""
START_SECONDS = 0.02
"""Ranks agree so long before on when they start: long enough for all to hear of it."""


def in_turn(
    contenders: Sequence[Contender], repeats: Iterable[int]
) -> Iterator[tuple[int, Contender]]:
    """Go through the contenders in every repeat, in turn forwards and backwards."""
    for repeat in repeats:
        for contender in contenders[::-1] if repeat % 2 else contenders:
            yield repeat, contender


def rest(comm: Comm, nap_seconds: float = REST_SECONDS) -> None:
    """Wait for all ranks asleep, so that the late ones have the processor to themselves."""
    sleep_until_done(comm.Ibarrier(), nap_seconds)


def sleep_until_done(request: Request, nap_seconds: float = REST_SECONDS) -> None:
    """Wait for what MPI has begun, without taking the processor from others."""
    while not request.Test():
        time.sleep(nap_seconds)


def agree_on_start(comm: Comm) -> float:
    """Return when all ranks are to start, on this host's clock (``time.perf_counter``).

    Hosts, whose clocks differ, agree by a barrier.
    """
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rest(comm)
    start = np.array([time.perf_counter() + START_SECONDS])
    sleep_until_done(host.Ibcast(start))
    host.Free()
    return float(start[0])


def work_up() -> None:
    """Keep the processors busy for a moment.

    A processor that has idled is slow at first, and a contender after a pause would pay for that.
    """
    source, target = np.ones(1 << 18), np.empty(1 << 18)
    seconds = float(os.environ.get(WORK_UP_VARIABLE, WORK_UP_SECONDS))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        target[...] = source


def cpu_seconds() -> float:
    """Return user and system time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(comm: Comm, call: Callable[[], None]) -> tuple[float, float]:
    """Return wall seconds until the last rank has finished, and CPU seconds of all ranks."""
    from mpi4py import MPI

    work_up()
    start, cpu = agree_on_start(comm), cpu_seconds()
    time.sleep(max(0.0, start - time.perf_counter()))
    call()
    wall = time.perf_counter() - start
    time.sleep(QUIET_SECONDS)  # others may still be at it, and MPI would take their processors
    cpu = cpu_seconds() - cpu
    rest(comm, QUIET_SECONDS)
    return comm.allreduce(wall, MPI.MAX), comm.allreduce(cpu, MPI.SUM)


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """Run all threads that this process has now before all others of the machine.

    It keeps the programs of other users out of a measurement, and takes privileges (`UsageError`).
    """
    try:
        _schedule(os.SCHED_RR, 1)
    except OSError as error:
        raise UsageError(f"real-time priority: {error.strerror}") from error
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


def waking_seconds(comm: Comm) -> float:
    """Return wall seconds until the last rank has begun a timed call, the same on all ranks.

    No collective call can begin before.
    """
    wall, _ = timed(comm, lambda: None)
    return wall


def memory_in_use() -> tuple[int, int]:
    """Return private and shared memory of this process in bytes; zeros where Linux does not say."""
    found = {"RssAnon": 0, "RssShmem": 0}
    try:
        with open("/proc/self/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in found:
                    found[name] = int(value.split()[0]) << 10
    except OSError:
        pass
    return found["RssAnon"], found["RssShmem"]


def memory_peak(comm: Comm, call: Callable[[], None]) -> tuple[int, int]:
    """Return how much private and shared memory grew during a call, where it grew most."""
    from mpi4py import MPI

    give_back_memory()
    before = memory_in_use()
    peak = list(before)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[:] = map(max, peak, memory_in_use())

    sampler = threading.Thread(target=sample, daemon=True)
    rest(comm)
    sampler.start()
    call()
    peak[:] = map(max, peak, memory_in_use())
    done.set()
    sampler.join()
    rest(comm)
    private, shared = (comm.allreduce(p - b, MPI.MAX) for p, b in zip(peak, before, strict=True))
    return private, shared


def give_back_memory() -> None:
    """Return what earlier calls freed to the system, so that it cannot be used unseen."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
