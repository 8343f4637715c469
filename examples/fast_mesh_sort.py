"""FastMeshSort: 2^n processes sort a parallel file of records, through two views of it in turn.

    mpiexec -n 8 python examples/fast_mesh_sort.py       (or: --threads 8, in one process)

The program is Figure 5 of "The Vesta Parallel File System" (Corbett and Feitelson, TOCS 1996). The
file has a cell for each process. A process sorts subfiles of two views, and never computes where
their records lie. At the end the cells, one after the other, are sorted. Of four, process 2 sorts

    its cell           rows, each by itself: two cells wide for i = 0, four for i = 1
    View(1, 1, 1, 4)   View(1, 2, 2, 2)   View(1, 4, 4, 1)
       . . # .            . . . .            . . . .
       . . # .            # # . .            . . . .
       . . # .            . . . .            # # # #
       . . # .            # # . .            . . . .

Window_Sort, which the paper leaves out, is an external merge sort here: a process holds at most
`BLOCKS_HELD` blocks in memory. By default the file is 8 times as large as the servers' caches.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import Any

import numpy as np

import penstock as ps

Blocks = Iterator[np.ndarray]
RECORD, WIDTH = np.dtype("<u8"), 8
NONE, END = np.empty(0, RECORD), sys.maxsize
BLOCKS_HELD = 12
# What records are XORed with when they are read and written: DOWN moves the largest to the end.
DOWN, UP = RECORD.type(0), RECORD.type(2**64 - 1)


def fast_mesh_sort(team: Any, file: ps.File, window_sort: WindowSort) -> None:
    """Sort as one process of a team, such as an mpi4py communicator: Figure 5, line by line."""
    tnum, n = team.rank, team.size.bit_length() - 1
    sfd_col = file.open(ps.View(vbs=1, vn=1, hbs=1, hn=2**n), tnum)
    for i in range(n):
        window_sort(sfd_col, DOWN if tnum & 2**i == 0 else UP)
        team.barrier()
        view = ps.View(vbs=1, vn=2 ** (i + 1), hbs=2 ** (i + 1), hn=2 ** (n - 1 - i))
        sfd_span = file.open(view, tnum)
        window_sort(sfd_span, DOWN, 2 ** (i + 1))
        team.barrier()
    window_sort(sfd_col, DOWN)


class WindowSort:
    """Window_Sort of one process, which waits for each block that it reads or writes."""

    def __init__(self, scratch: ps.Subfile, records: int, block: int) -> None:
        self.scratch, self.records, self.block = scratch, records, block
        self.direction, self.passes = DOWN, 0

    def __call__(self, subfile: ps.Subfile, direction: np.uint64, window: int = 0) -> None:
        """Sort each window of `window` records in place; without a window, sort a whole cell."""
        self.direction, self.passes = direction, self.passes + 1
        if window:
            blocks = self.read(subfile, max(1, self.block // window) * window)
            self.write(subfile, (np.sort(one.reshape(-1, window)).ravel() for one in blocks))
            return
        # Sorted runs of a block are merged two by two, from one subfile to another and back.
        merges = (-(-self.records // self.block) - 1).bit_length()
        source, target = (self.scratch, subfile) if merges % 2 else (subfile, self.scratch)
        self.write(source, map(np.sort, self.read(subfile, self.block)))
        for run in (self.block << nth for nth in range(merges)):
            for start in range(0, self.records, 2 * run):
                ends = [min(start + count * run, self.records) for count in range(3)]
                two = (self.read(source, self.block, *run) for run in itertools.pairwise(ends))
                self.write(target, merged(*two), start)
            source, target = target, source
        self.passes += merges

    def read(self, subfile: ps.Subfile, block: int, start: int = 0, end: int = END) -> Blocks:
        """Read from record `start` to `end`, or to the end of the subfile, block by block."""
        for at in range(start, end, block):
            records = np.empty(min(block, end - at), RECORD)
            if (count := subfile.read_at(at * WIDTH, records) // WIDTH) == 0:
                break
            yield records[:count] ^ self.direction

    def write(self, subfile: ps.Subfile, blocks: Blocks, start: int = 0) -> None:
        """Write blocks one after the other, from record `start` on."""
        for records in blocks:
            records ^= self.direction
            subfile.write_at(start * WIDTH, records)
            start += records.size


class AsynchronousWindowSort(WindowSort):
    """The same, but the next block is read while one is sorted and the one before is written."""

    def read(self, subfile: ps.Subfile, block: int, start: int = 0, end: int = END) -> Blocks:
        def begin(at: int) -> tuple[np.ndarray, ps.Request]:
            records = np.empty(max(0, min(block, end - at)), RECORD)
            return records, subfile.iread_at(at * WIDTH, records)

        records, request = begin(start)
        while count := request.wait() // WIDTH:
            ahead = begin(start := start + block)
            yield records[:count] ^ self.direction
            records, request = ahead

    def write(self, subfile: ps.Subfile, blocks: Blocks, start: int = 0) -> None:
        behind: ps.Request | None = None
        for records in blocks:
            records ^= self.direction
            if behind:
                behind.wait()
            behind = subfile.iwrite_at(start * WIDTH, records)
            start += records.size
        if behind:
            behind.wait()


def merged(run: Blocks, other: Blocks) -> Blocks:
    """Merge two sorted runs, given block by block."""
    a, b = next(run, NONE), next(other, NONE)
    while a.size and b.size:
        last = min(a[-1], b[-1])  # of the records up to this one, none is in a later block
        here, there = a.searchsorted(last, "right"), b.searchsorted(last, "right")
        both = np.concatenate([a[:here], b[:there]])
        both.sort(kind="stable")  # finds the two sorted sequences, and merges them
        yield both
        a = a[here:] if here < a.size else next(run, NONE)
        b = b[there:] if there < b.size else next(other, NONE)
    yield from itertools.chain([a] if a.size else [b], run, other)


def made(rank: int, options: argparse.Namespace) -> Blocks:
    """Make the random records of a process, block by block."""
    random = np.random.default_rng([options.seed, rank])
    for start in range(0, options.records, options.block):
        yield random.integers(0, 2**64, min(options.block, options.records - start), RECORD)


def content(records: np.ndarray) -> np.ndarray:
    """Count records, and sum them and their hashes up (modulo 2^64): no order changes these."""
    hashes = (records ^ records >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
    return np.array([records.size, records.sum(), hashes.sum()], np.uint64)


def fault(fs: ps.FileSystem, cells: int, options: argparse.Namespace) -> str | None:
    """Return what is wrong, unless the cells one after the other are the records in order."""
    before, missing = RECORD.type(0), content(NONE)
    with fs.attach("/datafile") as file:
        for number in range(cells):
            missing += sum(map(content, made(number, options)))
            cell = file.open(ps.View(hn=cells), number)
            while data := cell.read(options.block * WIDTH):
                records = np.frombuffer(data, RECORD)
                if before > records[0] or (records[:-1] > records[1:]).any():
                    return f"error: cell {number} is not sorted, or does not follow on the last"
                before, missing = records[-1], missing - content(records)
    if missing.any():
        return "error: the records are not those that were made"
    print("sorted: each cell, and the cells one after the other")
    return None


def work(team: Any, fs: ps.FileSystem, options: argparse.Namespace) -> None:
    """Fill a cell, and sort with the others."""
    with fs.attach("/datafile", "r+") as file, fs.attach("/scratch", "r+") as second:
        cell, scratch = (one.open(ps.View(hn=team.size), team.rank) for one in (file, second))
        for records in made(team.rank, options):
            cell.write(records)
        file.sync()
        version = AsynchronousWindowSort if options.asynchronous else WindowSort
        window_sort = version(scratch, options.records, options.block)
        team.barrier()
        began = time.perf_counter()
        fast_mesh_sort(team, file, window_sort)
        file.sync()
        team.barrier()
        seconds = time.perf_counter() - began
    if team.rank == 0:
        rate, passes = team.size * options.records / seconds, window_sort.passes
        print(f"{version.__name__}: {seconds:.2f} s, {rate:,.0f} records/s; all was read", end=" ")
        print(f"and written {passes} times, {2 * passes * rate * WIDTH / 1e6:.1f} MB/s", flush=True)


def on_threads(size: int, fs: ps.FileSystem, options: argparse.Namespace) -> None:
    """Work on threads. All of them end when one fails."""
    meeting = threading.Barrier(size)
    teams = [SimpleNamespace(rank=rank, size=size, barrier=meeting.wait) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        jobs = [pool.submit(work, team, fs, options) for team in teams]
        done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        meeting.abort()
        for job in done:
            job.result()


def main(arguments: list[str] | None = None) -> None:
    """Read the options, and sort. Where a rank fails, none waits for it: the job is ended."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--records", type=int, default=1 << 18, help="records of a cell (default: %(default)s)")
    add("--block", type=int, default=8192, help="records of a block (default: %(default)s)")
    add("--asynchronous", action="store_true", help="read ahead and write behind")
    add("--servers", type=int, default=2, help="servers of the volume (default: %(default)s)")
    add("--cache", type=int, help="bytes that each server caches (default: 1/8 of the file in all)")
    add("--seed", type=int, default=0, help="of the records (default: %(default)s)")
    add("--threads", type=int, help="sort with threads of this process, without MPI")
    add("volume", nargs="?", help="volume to make and to keep (default: a temporary one)")
    options = parser.parse_args(arguments)
    if min(options.records, options.block, options.servers) < 1:
        parser.error("--records, --block and --servers must be at least 1")
    comm: Any = None
    if options.threads is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD

        def end_job(*error: Any) -> None:
            sys.__excepthook__(*error)
            time.sleep(1)  # so that mpiexec passes the words on before it ends
            comm.Abort(1)

        sys.excepthook = end_job
    size, rank = (comm.size, comm.rank) if comm else (options.threads, 0)
    if size < 1 or size & (size - 1):
        sys.exit(f"error: {size} processes: their number must be a power of two")
    total = size * options.records * WIDTH
    cache = options.cache or max(1, total // 8 // options.servers)
    with tempfile.TemporaryDirectory() if rank == 0 else contextlib.nullcontext() as directory:
        volume = options.volume or f"{directory}/volume"
        if rank == 0:
            print(f"{size} cells of {options.records:,} records: {total / 1e6:.1f} MB,", end=" ")
            print(f"{total / (options.servers * cache):.1f} times the servers' caches;", end=" ")
            print(f"a process holds up to {BLOCKS_HELD * max(options.block, size) * WIDTH:,} bytes")
            with ps.FileSystem.create(volume, servers=options.servers) as fs:
                for path in ("/datafile", "/scratch"):
                    fs.create(path, cells=size, bsu=WIDTH)
        volume = comm.bcast(volume) if comm else volume
        with ps.FileSystem(volume, comm, cache_bytes=cache) as fs:
            work(comm, fs, options) if comm else on_threads(size, fs, options)
            wrong = fault(fs, size, options) if rank == 0 else None
    sys.exit(wrong)


if __name__ == "__main__":
    main()
