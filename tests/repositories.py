"""Icechunk repositories for tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import _icechunk


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a job, which may import this module, to its end."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


def kill_at(count: int) -> None:
    """Kill this process at a put, merge or commit, after `count` others."""
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


def fetched(repo, to: Path) -> Path:
    """A directory with all objects of the last snapshot."""
    store = ps.Icechunk(repo)
    os.fspath(store)  # it looks for the last snapshot
    found = _icechunk.state(store._repository.name)
    for key in found.keys_below(""):
        (to / key).parent.mkdir(parents=True, exist_ok=True)
        (to / key).write_bytes(found.get(key, None))
    return to
