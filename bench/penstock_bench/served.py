"""This benchmark uses files that servers of this host serve, beside other file systems.

One program uses Penstock by the library, over a Unix socket and over TCP with certificates, and by
a mount; the directory that all of them lie on, by system calls; and JuiceFS, NFS-Ganesha and
GlusterFS (:mod:`penstock_bench.peers`), if they are installed. They take turns. For each it

- reads 4 KiB at random places of a file of 8 MiB that its server has in memory, and its client does
  not: files of mounts are open for direct I/O. The first column is the median, the second one read
  in a hundred takes longer than that;
- writes a file in pieces of 1 MiB and syncs it, and reads it in pieces of 1 MiB when its directory
  has been dropped from the page cache;
- makes empty files, and asks for their attributes, one after the other.

Then 8 ranks, clients of the same server, write and read a file of records of 47,008 bytes that are
dealt in turn (hard), and one of large parts, moved in pieces of 1 MiB (easy): by collective calls,
and each rank by itself (:mod:`penstock_bench.served_job`). These files fit into the server's cache.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import penstock as ps
from penstock_bench.command import MIB, FailedError, Parser
from penstock_bench.directories import run_in_each
from penstock_bench.figures import columns
from penstock_bench.job import Runner, find_mpiexec
from penstock_bench.machine import file_system
from penstock_bench.meters import in_turn
from penstock_bench.mount import mounted
from penstock_bench.peers import PEERS, Directory, Files
from penstock_bench.running import keep_port, serving
from penstock_bench.served_job import MODES, ServedJob
from penstock_bench.storage import drop_from_cache

SMALL_FILE_BYTES = 8 * MIB
SMALL_BYTES = 4096
BSU = 1 << 16
LIBRARY, TCP, MOUNT = "Penstock", "Penstock by TCP", "Penstock, a mount"
DIRECTORY = "the directory, system calls"

Figures = dict[str, dict[str, list[float]]]
"""What was measured of each file system, in each round."""

MEDIAN, SLOW = "4 KiB read, us", "99 of 100, us"
WRITE, READ = "write and sync, MB/s", "read, MB/s"
CREATES, STATS = "creates a second", "stats a second"
HIGH_IS_GOOD = (WRITE, READ, CREATES, STATS)


class LibraryFile:
    """A file that the library has attached."""

    def __init__(self, file: ps.File) -> None:
        self._file, self._view = file, file.open()

    def read(self, memory: memoryview, offset: int) -> None:
        self._view.read_at(offset, memory)

    def write(self, memory: memoryview, offset: int) -> None:
        self._view.write_at(offset, memory)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.detach()


class Library:
    """A volume by the library."""

    def __init__(self, fs: ps.FileSystem) -> None:
        self._fs = fs

    def create(self, name: str) -> None:
        self._fs.create(f"/{name}", cells=self._fs.servers, bsu=BSU)

    def stat(self, name: str) -> None:
        self._fs.stat(f"/{name}")

    def remove(self, name: str) -> None:
        self._fs.remove(f"/{name}")

    def open(self, name: str, *, cached: bool = True) -> LibraryFile:
        return LibraryFile(self._fs.attach(f"/{name}", "r+"))


@contextlib.contextmanager
def both_ways(place: Path, mib: int, block_bytes: int) -> Iterator[tuple[str, str]]:
    """Serve a volume at a Unix socket and a port of TCP: the two URLs."""
    volume, keys, port = place / "volume", place / "keys", keep_port()
    capacity = 4 * mib * MIB
    ps.FileSystem.create(volume, servers=1, capacity=capacity, block_bytes=block_bytes).close()
    here = ["--uid", os.getuid(), "--gid", os.getgid()]
    for words in (
        ["authority", keys],
        ["server", keys, 0, "--host", "127.0.0.1"],
        ["user", keys, "bench", *here],
    ):
        run_penstock("keys", *words)
    socket, remote = f"unix://{volume}/penstock.sock", f"127.0.0.1:{port}"
    listen = ["--listen", socket, "--listen", remote, "--keys", keys / "server-0"]
    with serving(socket, volume, *listen):
        yield socket, f"penstock://{remote}"


def run_penstock(*words: object) -> None:
    """Run a command."""
    command = [sys.executable, "-m", "penstock", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise FailedError(f"penstock {words[0]}: {ran.stderr.strip()}")


def note(figures: dict[str, list[float]], what: str, value: float) -> None:
    """Note a figure of a round."""
    figures.setdefault(what, []).append(value)


def seconds(call: Callable[[], None]) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def read_small(files: Files, figures: dict[str, list[float]], reads: int) -> None:
    """Measure reads of 4 KiB at random places."""
    memory = memoryview(mmap.mmap(-1, SMALL_FILE_BYTES))
    files.create("small")
    with contextlib.closing(files.open("small")) as file:
        file.write(memory, 0)
        file.sync()
    with contextlib.closing(files.open("small", cached=False)) as file:
        for offset in range(0, SMALL_FILE_BYTES, MIB):
            file.read(memory[:MIB], offset)
        piece, chance, times = memory[:SMALL_BYTES], random.Random(1), []
        for _ in range(reads):
            offset = chance.randrange(SMALL_FILE_BYTES // SMALL_BYTES) * SMALL_BYTES
            begun = time.perf_counter_ns()
            file.read(piece, offset)
            times.append((time.perf_counter_ns() - begun) / 1e3)
    files.remove("small")
    times.sort()
    note(figures, MEDIAN, times[len(times) // 2])
    note(figures, SLOW, times[len(times) * 99 // 100])


def move_large(files: Files, place: Path, figures: dict[str, list[float]], mib: int) -> None:
    """Measure a file that is written and read in order."""
    memory = memoryview(mmap.mmap(-1, MIB))
    memory[:] = os.urandom(MIB)
    files.create("large")
    with contextlib.closing(files.open("large")) as file:

        def write() -> None:
            for nth in range(mib):
                file.write(memory, nth * MIB)
            file.sync()

        note(figures, WRITE, mib * MIB / 1e6 / seconds(write))
    drop_from_cache(place)
    with contextlib.closing(files.open("large")) as file:

        def read() -> None:
            for nth in range(mib):
                file.read(memory, nth * MIB)

        note(figures, READ, mib * MIB / 1e6 / seconds(read))
    files.remove("large")


def name_files(files: Files, figures: dict[str, list[float]], count: int) -> None:
    """Measure the making of files, and questions for their attributes."""
    names = [f"name-{nth}" for nth in range(count)]
    for what, call in ((CREATES, files.create), (STATS, files.stat)):

        def each(call: Callable[[str], None] = call) -> None:
            for name in names:
                call(name)

        note(figures, what, count / seconds(each))
    for name in names:
        files.remove(name)


def measure(directory: Path, options: argparse.Namespace) -> str:
    """Measure all file systems in a directory, and return the tables."""
    figures: Figures = {}
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        places = {name: directory / f"{nth}" for nth, name in enumerate((DIRECTORY, LIBRARY))}
        for place in places.values():
            place.mkdir()
        url, remote = stack.enter_context(
            both_ways(places[LIBRARY], options.mib, options.block_kib << 10)
        )
        local = stack.enter_context(ps.FileSystem(url))
        keys = places[LIBRARY] / "keys" / "bench"
        by_tcp = stack.enter_context(ps.FileSystem(remote, keys=keys))
        point = directory / "point"
        stack.enter_context(mounted(url, point))
        volume = places[LIBRARY]
        contenders: list[tuple[str, Files, Path]] = [
            (DIRECTORY, Directory(places[DIRECTORY]), places[DIRECTORY]),
            (LIBRARY, Library(local), volume),
            (TCP, Library(by_tcp), volume),
            (MOUNT, Directory(point), volume),
        ]
        for nth, (name, start) in enumerate(PEERS.items() if options.peers else ()):
            place = directory / f"peer{nth}"
            place.mkdir()
            try:
                contenders.append((name, stack.enter_context(start(place)), place))
            except FailedError as reason:
                missing.append(f"{name}: {reason}")
        for _, (name, files, place) in in_turn(contenders, range(options.rounds)):
            of_one = figures.setdefault(name, {})
            read_small(files, of_one, options.reads)
            move_large(files, place, of_one, options.mib)
            name_files(files, of_one, options.names)
        shared = shared_files(url, options)
    return "\n".join([*table(directory, figures, options), *missing, "", *shared])


def table(directory: Path, figures: Figures, options: argparse.Namespace) -> list[str]:
    """Return the figures of one program as a table, and what they come to."""
    kind = file_system(directory)
    whats = [MEDIAN, SLOW, *HIGH_IS_GOOD]
    medians = {
        name: {what: median(values) for what, values in of_one.items()}
        for name, of_one in figures.items()
    }
    cells = [[f"{options.mib} MiB on {kind}", *whats]]
    for name, of_one in medians.items():
        small = [f"{of_one[what]:,.1f}" for what in whats[:2]]
        cells.append([name, *small, *(f"{of_one[what]:,.0f}" for what in whats[2:])])
    lines = [*columns(cells), ""]
    peers = [name for name in PEERS if name in medians]
    for ours in (LIBRARY, MOUNT):
        for rival in (DIRECTORY, *peers):
            beside = [
                f"{what} {medians[ours][what] / medians[rival][what]:.2f}" for what in HIGH_IS_GOOD
            ]
            faster = medians[rival][MEDIAN] / medians[ours][MEDIAN]
            lines.append(f"{ours} / {rival}: 4 KiB {faster:.2f} times, {', '.join(beside)}")
    return lines


def shared_files(url: str, options: argparse.Namespace) -> list[str]:
    """Measure files that 8 ranks share, and return a table."""
    runner = Runner(find_mpiexec(), "penstock_bench.served_job", shown=False)
    cases = list(itertools.product(("hard", "easy"), MODES))
    for _, (kind, mode) in in_turn(cases, range(options.rounds)):
        runner.run(
            ServedJob(
                clients=options.ranks, directory=url, kind=kind, mode=mode, mib=options.shared_mib
            )
        )
    runner.bar.close()
    rates: dict[tuple[str, str, str], list[float]] = {}
    for result in runner.results:
        for operation in ("write", "read"):
            key = (result["kind"], result["mode"], operation)
            rates.setdefault(key, []).append(result["bytes"] / 1e6 / result[operation])
    cells = [[f"{options.ranks} ranks, MB/s", "hard", "easy", "hard / easy"]]
    for mode, operation in itertools.product(MODES, ("write", "read")):
        hard, easy = (median(rates[kind, mode, operation]) for kind in ("hard", "easy"))
        cells.append([f"{operation}, {mode}", f"{hard:,.0f}", f"{easy:,.0f}", f"{hard / easy:.2f}"])
    return columns(cells)


def main(words: list[str]) -> int:
    """Run the benchmark, and print the tables of each directory."""
    parser = Parser(prog="python -m penstock_bench served", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="the size of a large file")
    parser.add_argument("--reads", type=int, default=3000, help="of 4 KiB, in a round")
    parser.add_argument("--names", type=int, default=500, help="files that are made in a round")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-kib", type=int, default=1024, help="the volume's blocks")
    parser.add_argument("--shared-mib", type=int, default=128, help="the size of a shared file")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Penstock alone")
    counts = ("mib", "reads", "names", "ranks", "rounds", "block_kib", "shared_mib")
    return run_in_each(parser, words, measure, name="served", counts=counts)
