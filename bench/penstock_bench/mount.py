"""This benchmark writes and reads one file by a mount of a volume, beside the directory it lies on.

The local file system and the mount alternate; a rate is the median of the rounds. A program writes
pieces of 1 MiB and syncs at the end; it reads them in order, first when neither the kernel nor the
servers have any of them, then a second time. On a tmpfs all of it is memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import penstock as ps
from penstock_bench.command import MIB, Parser
from penstock_bench.directories import run_in_each
from penstock_bench.machine import file_system
from penstock_bench.meters import in_turn
from penstock_bench.running import running
from penstock_bench.storage import drop_from_cache

SERVERS = 1
"""A server a disk, and the directory is on one."""

WRITE, READ, AGAIN = "write and sync", "read", "read again"

Rates = dict[str, dict[str, list[float]]]


def timed(call: Callable[[], None], mib: int) -> float:
    """Return MB a second of a call that moves this number of MiB."""
    begun = time.perf_counter()
    call()
    return mib * MIB / 1e6 / (time.perf_counter() - begun)


def write(path: Path, mib: int) -> None:
    """Write a file in pieces, and sync it."""
    piece = os.urandom(MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(piece)
        os.fsync(file.fileno())


def read(path: Path, mib: int) -> None:
    """Read a file in pieces."""
    piece = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        for _ in range(mib):
            count = 0
            while count < MIB:
                count += file.readinto(memoryview(piece)[count:])


@contextmanager
def mounted(volume: Path | str, point: Path) -> Iterator[None]:
    """Mount a volume, or that of servers with a URL."""
    point.mkdir()
    command = [sys.executable, "-m", "penstock", "mount", volume, point]
    with running(*command, is_ready=lambda: os.path.ismount(point)):
        yield


def measure(directory: Path, mib: int, rounds: int) -> Rates:
    """Measure the mount and the directory, in turn."""
    local, volume, point = directory / "local", directory / "volume", directory / "mounted"
    capacity = 4 * mib * MIB
    ps.FileSystem.create(volume, servers=SERVERS, capacity=capacity).close()
    rates: Rates = {}
    with mounted(volume, point):
        contenders = {"the directory": (local, local), "the mount": (point / "file", volume)}
        for _, (name, (path, stored)) in in_turn(list(contenders.items()), range(rounds)):
            of_one = rates.setdefault(name, {WRITE: [], READ: [], AGAIN: []})
            of_one[WRITE].append(timed(lambda path=path: write(path, mib), mib))  # type: ignore[misc]
            for each in {path, stored}:
                drop_from_cache(each)
            for what in (READ, AGAIN):
                of_one[what].append(timed(lambda path=path: read(path, mib), mib))  # type: ignore[misc]
            path.unlink()
    return rates


def table(directory: Path, rates: Rates, mib: int) -> str:
    """Write the rates of one directory as a table."""
    kind = file_system(directory)
    lines = [
        f"{f'{mib} MiB on {kind}, MB/s':<28}" + "".join(f"{w:>16}" for w in (WRITE, READ, AGAIN))
    ]
    medians = {
        name: {what: median(each) for what, each in of_one.items()}
        for name, of_one in rates.items()
    }
    for name, of_one in medians.items():
        lines.append(f"{name:<28}" + "".join(f"{each:>16,.0f}" for each in of_one.values()))
    local, ours = medians["the directory"], medians["the mount"]
    lines.append(
        f"{'the mount / the directory':<28}"
        + "".join(f"{ours[w] / local[w]:>16.2f}" for w in local)
    )
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Run the benchmark, and print a table for each directory."""
    parser = Parser(prog="python -m penstock_bench mount", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="the size of the file")
    parser.add_argument("--rounds", type=int, default=5)

    def measured(directory: Path, options: argparse.Namespace) -> str:
        rates = measure(directory, options.mib, options.rounds)
        return table(directory, rates, options.mib)

    return run_in_each(parser, words, measured, name="mount", counts=("mib", "rounds"))
