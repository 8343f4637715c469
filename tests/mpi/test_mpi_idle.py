"""Ranks that wait sleep: on a host of few processors the one that works must have them."""

from __future__ import annotations

import resource
import threading
import time

import pytest
from mpihelpers import TRANSPORTS, part, ramp_of, rows, sends_messages

import penstock as ps

LATE_SECONDS = 1.5
SHARED_SECONDS_MAX, MESSAGES_SECONDS_MAX = 0.2, 0.6
"""The most CPU time of a rank that waits: for messages of other hosts it must look."""

GIL_SECONDS_MAX = 60
"""Threads that have not ticked a few times by then are not let go on."""


def cpu_seconds_max(transport: str) -> float:
    return MESSAGES_SECONDS_MAX if sends_messages(transport) else SHARED_SECONDS_MAX


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("what", ["barrier", "write"])
@pytest.mark.parametrize("late", ["first", "last"])
def test_waiting_ranks_sleep(mpi, place, transport, what, late):
    if mpi.size == 1:
        pytest.skip("nobody to wait for")
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s)
        local = part(u, s.rank, ramp_of(u))
        s.barrier()
        s.write(place / "warm", u, local)
        s.barrier()
        begun = cpu_seconds()
        if s.rank == (0 if late == "first" else s.size - 1):
            time.sleep(LATE_SECONDS)
        s.barrier() if what == "barrier" else s.write(place / "g", u, local)
        used = cpu_seconds() - begun
    assert used < cpu_seconds_max(transport), f"{used:.2f} s of CPU to wait {LATE_SECONDS} s"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_dedicated_servers_sleep(mpi, transport):
    if mpi.size == 1:
        pytest.skip("no rank is left to serve")

    def used(idle_seconds):
        begun = cpu_seconds()
        with ps.Session(mpi, transport=transport, servers=1, dedicated=True) as s:
            if s.is_client:
                s.barrier()
                time.sleep(idle_seconds)
                s.barrier()
        return s.is_client, cpu_seconds() - begun

    # Ranks that open and close a session do not sleep.
    (_, busy), (is_client, whole) = used(0), used(LATE_SECONDS)
    assert is_client or whole - busy < cpu_seconds_max(transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_gil_is_released(mpi, place, transport):
    """Threads of the program go on while its main thread waits for rank 0, which waits for them."""
    have_ticked = [place / str(rank) for rank in range(mpi.size)]

    def tick():
        for _ in range(5):
            time.sleep(0.02)
        have_ticked[mpi.rank].touch()

    thread = threading.Thread(target=tick)
    with ps.Session(mpi, transport=transport) as s:
        s.barrier()
        thread.start()
        until = time.monotonic() + GIL_SECONDS_MAX
        while s.rank == 0 and time.monotonic() < until and not all(f.exists() for f in have_ticked):
            time.sleep(0.02)
        went_on = all(f.exists() for f in have_ticked)
        s.barrier()
    thread.join()
    assert s.rank > 0 or went_on
