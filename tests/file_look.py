"""Looks at all that is in volumes, each in turn: the attributes and the bytes of everything.

    python tests/file_look.py VOLUME...

It is a process of its own, so that it is seen if one of them brings it down. For each volume it
pickles to the standard output a `Found`, or a `Refused` if the volume could not be opened.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from file_job import FAR, USERS, below

import penstock as ps

READ_BYTES = FAR + 10_000
"""More than any cell has."""
WORKERS_MAX = 8
SECONDS_MAX = 120

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclasses.dataclass
class Cell:
    """The bytes of a cell, and what its damaged blocks say, by the first byte of each."""

    data: Bytes
    damaged: dict[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Object:
    """A file or directory."""

    is_directory: bool
    owner: int
    mode: int
    shape: tuple[int, int]
    """The cells, and the bytes of a BSU."""
    checkpoints: int
    active: list[Cell]
    kept: list[Cell] | None


@dataclasses.dataclass
class Found:
    """What is in a volume."""

    objects: dict[str, Object]
    used: int
    of_users: dict[int, int]
    """The bytes of each owner's blocks."""
    quotas: dict[int, int | None]


@dataclasses.dataclass
class Refused:
    """The typed error with which a volume, or something in it, was refused."""

    kind: str
    text: str


def cell_of(f: ps.File, cell: int, version: Any, block_bytes: int) -> Cell:
    opened = f.open(ps.View(hn=f.cells), cell, version=version)
    try:
        return Cell(np.frombuffer(opened.read(READ_BYTES, at=0), np.uint8))
    except ps.DamagedError:
        pass
    damaged, data = {}, np.zeros(READ_BYTES, np.uint8)
    end = 0
    for at in range(0, READ_BYTES, block_bytes):
        try:
            piece = opened.read(block_bytes, at=at)
        except ps.DamagedError as error:
            damaged[at] = str(error)
            continue
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        end = at + len(piece) if piece else end
    return Cell(data[:end], damaged)


def object_at(fs: ps.FileSystem, path: str) -> Object:
    stat = fs.stat(path)
    active, kept = [], None
    if not stat.is_directory:
        with fs.attach(path) as f:
            cells = range(f.cells)
            active = [cell_of(f, cell, "active", fs.block_bytes) for cell in cells]
            if stat.checkpoints:
                kept = [cell_of(f, cell, "checkpoint", fs.block_bytes) for cell in cells]
        for cell, found in enumerate(active):
            end = stat.cell_bytes.get(cell, 0)
            assert found.damaged or len(found.data) == end, f"{path}: cell {cell} ends at {end}"
    shape = (stat.cells, stat.bsu)
    return Object(stat.is_directory, stat.owner, stat.mode, shape, stat.checkpoints, active, kept)


def look_at(volume: Path) -> Found | Refused:
    """All that a program finds in a volume that nobody else has open."""
    try:
        with ps.FileSystem(volume) as fs:
            objects = {path: object_at(fs, path) for path, _ in below(fs, "/")}
            owners = {found.owner for found in objects.values()}
            users = range(USERS, USERS + WORKERS_MAX)
            return Found(
                objects,
                fs.usage().used,
                {owner: fs.usage(owner).of_user for owner in owners},
                {user: fs.usage(user).quota for user in users},
            )
    except ps.Error as error:
        return Refused(error.kind, str(error))


def look(volumes: Sequence[Path]) -> list[Found | Refused]:
    """What is in volumes, as another process finds it, which may not end in a crash."""
    command = [sys.executable, __file__, *map(str, volumes)]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, f"{volumes}: a look has ended with {done.returncode}: {said}"
    out = io.BytesIO(done.stdout)
    found = [pickle.load(out) for _ in volumes]
    assert not said, f"{volumes}: a look has said: {said}"
    return found


if __name__ == "__main__":
    import file_look  # by that name others know the classes

    with os.fdopen(1, "wb") as out:
        for name in sys.argv[1:]:
            pickle.dump(file_look.look_at(Path(name)), out)
            out.flush()
