"""This module brings storage to the same state before each measurement."""

from __future__ import annotations

import os
from pathlib import Path


def drop_from_cache(target: Path) -> None:
    """Make the next read come from the device; on a tmpfs, which has none, it has no effect."""
    files = [path for path in target.rglob("*") if path.is_file()] if target.is_dir() else [target]
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # a file of another program that has gone meanwhile
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def bring_into_cache(path: Path) -> None:
    """Make the next read of a file come out of the page cache."""
    piece = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def give_space_back(target: Path) -> None:
    """Empty a file, or the files of a directory, and leave their names.

    ext4 without a journal gives the inode of a removed file to no other file for one to six
    minutes, and whatever makes a file looks at all inodes that became free meanwhile. Removing
    files between two measurements would soon be what is measured.
    """
    for path in [target, *target.rglob("*")]:
        if path.is_file():
            os.truncate(path, 0)


def touch_free_memory(directory: Path, count: int) -> None:
    """Write a file of `count` bytes, and give its space back.

    A virtual machine gives the memory of removed files back to its host after a while, and getting
    it again takes longer than any contender does: chance would choose the one that waits for it.
    After this call, none has to wait.
    """
    piece = bytes(1 << 20)
    scratch = directory / "touched"
    with open(scratch, "wb") as file:
        for _ in range(-(-count // len(piece))):
            file.write(piece)
        file.truncate(0)
