"""What processes do with a bucket that may be killed. Tests start them by `buckets.forks`."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

import penstock as ps

# Those that are forked have what is only imported when it is wanted first, too.
_ = ps.Session, np.ma.MaskedArray


def save(path: str, kind: str, value: float) -> None:
    """Saves one timestep, or one checkpoint; of kind "restarted" a timestep after a restart."""
    u = ps.Array("u", (4, 4), "f8", disk=ps.Chunks((2, 4)))
    p = ps.Array("p", (None,), "f8", disk=ps.Chunks((2,)), dims=("particle",))
    coords = {"x": np.arange(4.0)}
    group = ps.Group("g", [u, p], path, time_chunk=2, coords=coords, keep=1)
    parts = {"u": np.full((4, 4), float(value)), "p": np.full(5, float(value))}
    with ps.Session() as s:
        if kind == "restarted":
            s.restart(group, step=1)
        if kind == "checkpoint":
            s.checkpoint(group, parts, step=int(value))
        else:
            s.timestep(group, parts)


def write(path: str, value: float, is_part: bool) -> None:
    """Writes an array, or a part of it."""
    u = ps.Array("u", (8, 8), "f8", disk=ps.Chunks((4, 4), codec="zstd:1"))
    whole = np.full((8, 8), float(value))
    with ps.Session() as s:
        if is_part:
            s.write(path, u, whole[:8, 2:8], region=np.s_[0:8, 2:8])
        else:
            s.write(path, u, whole)


def copy(source: str, target: str) -> None:
    """Copies a group."""
    ps.copy(source, target, overwrite=True)


def with_variables(environment: dict[str, str], work: Callable[..., None], *given: object) -> None:
    """One of these, in a process of its own, with these variables."""
    os.environ.update(environment)
    work(*given)
