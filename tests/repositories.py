"""Icechunk repositories for tests."""

from __future__ import annotations

import os
from pathlib import Path

import penstock as ps
from penstock import _icechunk


def fetched(repo, to: Path) -> Path:
    """A directory with all objects of the last snapshot."""
    store = ps.Icechunk(repo)
    os.fspath(store)  # it looks for the last snapshot
    found = _icechunk.state(store._repository.name)
    for key in found.keys_below(""):
        (to / key).parent.mkdir(parents=True, exist_ok=True)
        (to / key).write_bytes(found.get(key, None))
    return to
