"""Processes that save to a bucket, or copy there, and may be killed."""

from __future__ import annotations

import os

import numpy as np

import penstock as ps


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


def save_there(environment: dict[str, str], path: str, kind: str, value: float) -> None:
    """The same, in a process of its own, with these variables."""
    os.environ.update(environment)
    save(path, kind, value)


def copy_there(environment: dict[str, str], source: str, target: str) -> None:
    """Copies a group, in a process of its own, with these variables."""
    os.environ.update(environment)
    ps.copy(source, target, overwrite=True)
