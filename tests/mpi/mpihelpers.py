"""What the tests under MPI share."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from helpers import assert_alike, caught
from mpi4py import MPI

import penstock as ps

OURS = MPI.COMM_WORLD.Dup()
"""For the suite's own messages."""
TRANSPORTS = ("shared", "messages")
HOSTS = MPI.COMM_WORLD.allgather(MPI.Get_processor_name())
"""The host of each rank: mostly one."""


def rest(comm=OURS, seconds: float | None = None) -> bool:
    """A barrier in which ranks sleep; False if some rank has not come in time."""
    until = None if seconds is None else time.monotonic() + seconds
    request = comm.Ibarrier()
    while not request.Test():
        if until is not None and time.monotonic() > until:
            return False
        time.sleep(0.0005)
    return True


def sends_messages(transport: str) -> bool:
    """Whether any ranks reach each other by MPI messages."""
    return len(HOSTS) > 1 and (transport == "messages" or len(set(HOSTS)) > 1)


def has_servers(mpi: MPI.Intracomm, transport: str, dedicated: bool) -> bool:
    """Whether servers answer while their ranks compute, and there is a client beside them."""
    if dedicated:
        return mpi.size > 1
    return mpi.size == 1 or transport == "shared" or MPI.Query_thread() == MPI.THREAD_MULTIPLE


def rows(session: ps.Session, columns: int = 5, extra: int = 3, **more: Any) -> ps.Array:
    """An array of two rows for each rank and some more, dealt out in blocks of rows."""
    memory = ps.Distribution("BLOCK,*", (session.size,))
    more.setdefault("disk", ps.Chunks((3, 2)))
    return ps.Array("u", (2 * session.size + extra, columns), "f8", memory=memory, **more)


def part(array: ps.Array, rank: int, truth: np.ndarray) -> np.ndarray:
    """What `rank` holds of `truth`, of whole rows."""
    return truth[array.local_slices(rank)[0]].copy()


def ramp_of(array: ps.Array, sign: int = 1) -> np.ndarray:
    count = int(np.prod(array.shape))
    return sign * np.arange(1.0, count + 1).reshape(array.shape)


def assert_fails(session: ps.Session, call, kind: type[ps.Error], *words: str) -> ps.Error:
    """`call` fails alike on all clients, and the session goes on. Collective over them."""
    met = caught(call)
    session.barrier()
    everywhere = MPI.COMM_WORLD.allgather((type(met).__name__, str(met)))
    assert isinstance(met, kind), f"{kind.__name__} expected, not {met!r}"
    assert len(set(everywhere)) == 1, f"ranks were told different things: {set(everywhere)}"
    return assert_alike([met], kind, *words)
