"""Seats: what sessions without MPI are opened on, one for each thread that is a rank."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from penstock import _core
from penstock._options import SessionOptions


class _Thread(threading.local):
    """A thread knows the seat that `run` has given it, so that it is that rank of the machine."""

    seat: _core.PySeat | None = None


_thread = _Thread()


def seats(ranks: int, options: SessionOptions) -> list[_core.PySeat]:
    """Make a machine of `ranks` threads. Its servers are among the ranks by default."""
    return _core.seats(ranks, options._argument(dedicated=False))


@contextlib.contextmanager
def seated(seat: _core.PySeat) -> Iterator[None]:
    """Give this thread a seat while the block runs."""
    _thread.seat = seat
    try:
        yield
    finally:
        _thread.seat = None


def open_seat(options: SessionOptions) -> _core.PySession:
    """Open the session on this thread's seat. A thread without one becomes the only rank of a
    machine of its own, with servers beside it by default."""
    seat = _thread.seat
    if seat is None:
        (seat,) = _core.seats(1, options._argument(dedicated=True))
    return seat.open()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let sessions that this thread opens in the block be machines of their own, also where the
    thread is a rank that `run` has started."""
    seat, _thread.seat = _thread.seat, None
    try:
        yield
    finally:
        _thread.seat = seat
