"""Icechunk repositories for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import penstock as ps
from penstock import _icechunk

with contextlib.suppress(ImportError):
    import icechunk

KILL_STEP = int(os.environ.get("PENSTOCK_KILL_STEP", "3"))
"""The number of puts from one kill of an MPI job to the next: 1 in `make crash`."""
ALL_PUTS = 1 << 30
"""For `kill_at`: no kill at all."""

T = TypeVar("T")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a job, which may import this module, to its end."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


def kill_at(count: int) -> Callable[[], int]:
    """Kill this process at a put, merge or commit, after `count` others. What is returned says how
    many there have been."""
    left = count

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*args)

        return call

    _icechunk._Objects.put = counted(_icechunk._Objects.put)
    _icechunk._Draft.merge = counted(_icechunk._Draft.merge)
    _icechunk._Draft.commit = counted(_icechunk._Draft.commit)
    return lambda: count - left


def some(kills: Sequence[T]) -> Sequence[T]:
    """Of kills those that are tried: every `KILL_STEP`-th, and the last."""
    return [*kills[:-1:KILL_STEP], *kills[-1:]]


def write(place: Path, rank: int, count: int, comm: Any = None) -> None:
    """A job that writes an array, and of which one rank is killed. Of each rank that comes to its
    end a file says how many puts it has made."""
    icechunk.set_logs_filter("error")
    store = ps.Icechunk(icechunk.local_filesystem_storage(str(place / "repo")))
    own = comm.rank if comm else 0
    puts = kill_at(count if rank == own else ALL_PUTS)
    with ps.Session(comm, servers=comm.size if comm else 1) as s:
        memory = ps.Distribution("BLOCK,*", (s.size,))
        u = ps.Array("u", (13, 8), "f8", memory=memory, disk=ps.Chunks((4, 4)))
        s.write(store / "a", u, np.full(u.local_shape(s.rank), 2.0))
    (place / f"puts-{own}").write_text(str(puts()))


def copy(source: Path, place: Path, count: int) -> None:
    """The same for a job that copies a tree."""
    icechunk.set_logs_filter("error")
    store = ps.Icechunk(icechunk.local_filesystem_storage(str(place / "repo")))
    puts = kill_at(count)
    ps.copy(source, store / "a", overwrite=True, chunks=(7, 6, 11))
    (place / "puts-0").write_text(str(puts()))


def puts_of(place: Path, rank: int = 0) -> int:
    """The number of puts that a rank has made."""
    return int((place / f"puts-{rank}").read_text())


def fetched(repo, to: Path) -> Path:
    """A directory with all objects of the last snapshot."""
    store = ps.Icechunk(repo)
    os.fspath(store)  # it looks for the last snapshot
    found = _icechunk.state(store._repository.name)
    for key in found.keys_below(""):
        (to / key).parent.mkdir(parents=True, exist_ok=True)
        (to / key).write_bytes(found.get(key, None))
    return to
