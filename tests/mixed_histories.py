"""Two MPI jobs, a mount and a plain program use one file at once, by standing servers, and each
answer is checked against the history of all.

    python tests/mixed_histories.py --seeds 20
    python tests/mixed_histories.py --seed 17

Each seed is a volume with servers of its own, one file and one log; all clients work on it as those
of `file_histories.py` do, in cautious mode, without changes of the whole file. The client at the
mount reads and writes by system calls. Others have the file open to write when it opens the file,
so that the kernel caches nothing of it. All bytes that it uses have been written before: where a
cell ends it would find zeros, and the program another thing.

The times of all histories are those of the host's monotonic clock. The seed decides who asks for
what in which order, but not who is faster: the error tells the whole history.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import seeds
from file_case import Case
from file_histories import check, create, look_again
from file_orders import ABSENT
from file_player import READY_SECONDS_MAX, History, Opened, Player
from helpers import fast_directory
from serving import alone
from test_mount import mounted

import penstock as ps

JOBS = (2, 2)
"""The ranks of the MPI jobs."""
PROGRAM, MOUNT = sum(JOBS), sum(JOBS) + 1
"""The numbers of the program and of the mount among the clients."""
CLIENTS = sum(JOBS) + 2
REACH = 3_000
"""All bytes of the file before this one have been written when all begin."""


def case_of(seed: int) -> Case:
    """What follows from a seed."""
    case = Case.of(seed)
    return dataclasses.replace(
        case,
        clients=CLIENTS,
        steps=12,
        bsu=min(case.bsu, 1000),
        span=min(case.span, 2_000),
        focus="bytes",
        is_reckless=False,
        has_changes=False,
        has_removal=False,
        block_bytes=min(case.block_bytes, 4096),
    )


class AtProgram(Player):
    """A client in a program or a job."""

    def make_file(self) -> None:
        """All bytes are written before the others begin."""
        super().make_file()
        with self.fs.attach("/f", "r+") as file:
            whole = Opened(ps.View(), 0, "block", "active", file.open())
            target = (whole, 0, REACH)
            number, memory = self.data(target)
            begun = time.monotonic_ns()
            moved = whole.subfile.write_at(0, memory)
            self.note_write((begun, time.monotonic_ns()), target, number, moved)


class AtMount(Player):
    """A client that reads and writes a mounted file by system calls."""

    def __init__(self, point: Path, case: Case) -> None:
        self.case, self.me, self.clients = case, MOUNT, CLIENTS
        self.point, self.who = point, f"client {MOUNT}, at the mount,"
        self.history, self.writes = History(), 0
        self.chance = random.Random(f"client {case.seed} {MOUNT}")

    def play(self) -> History:
        self.await_entries("client ", CLIENTS - 1)  # these have the file open to write
        handle = os.open(self.point / "f", os.O_RDWR)
        try:
            (self.point / f"client {MOUNT}").mkdir()
            for _ in range(2 * self.case.steps):
                self.access(handle)
        finally:
            os.close(handle)
        return self.history

    def await_entries(self, start: str, count: int) -> None:
        until = time.monotonic() + READY_SECONDS_MAX
        while sum(name.startswith(start) for name in os.listdir(self.point)) < count:
            assert time.monotonic() < until, f"there are not {count} {start}"
            time.sleep(0.005)

    def access(self, handle: int) -> None:
        """One read or write, within what has been written before."""
        offset = self.chance.randrange(REACH - 1)
        count = min(self.chance.randint(1, self.case.span), REACH - offset)
        opened = Opened(ps.View(), 0, "block", "active", None)  # type: ignore[arg-type]
        target = (opened, offset, count)
        if self.chance.random() < 0.5:
            number, memory = self.data(target)
            begun = time.monotonic_ns()
            moved = os.pwrite(handle, memory.tobytes(), offset)
            self.note_write((begun, time.monotonic_ns()), target, number, moved)
        else:
            begun = time.monotonic_ns()
            data = os.pread(handle, count, offset)
            times = (begun, time.monotonic_ns())
            memory = np.full(count, ABSENT, np.uint8)
            memory[: len(data)] = np.frombuffer(data, np.uint8)
            self.note_read(times, target, memory, len(data))


def play_client(url: str, seed: int, first: int, out: Path) -> None:
    """Plays a client, or one on each rank of a job, and leaves its history in a file."""
    comm = None
    if seeds.RANKS_OF_JOB is not None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    me = first + (comm.rank if comm is not None else 0)
    with ps.FileSystem(url, comm) if comm is not None else ps.FileSystem(url) as fs:
        history = AtProgram(fs, case_of(seed), me, CLIENTS).play()
    (out / str(me)).write_bytes(pickle.dumps(history))


def play(seed: int) -> tuple[int, int]:
    """Plays the case of a seed and checks it: the number of requests, and of parts of the check
    that take too long to decide."""
    case = case_of(seed)
    with (
        seeds.replayable("mixed_histories.py", seed),
        tempfile.TemporaryDirectory(dir=fast_directory()) as directory,
    ):
        place = Path(directory)
        volume, out = place / "v", place / "out"
        out.mkdir()
        create(case, volume)
        cache = ("--cache", case.cache_bytes)
        with alone(volume, *cache, log=place / "log") as server, mounted(server.url, place / "m"):
            played = play_all(server.url, case, place / "m", out)
        others = [pickle.loads(path.read_bytes()) for path in sorted(out.iterdir())]
        assert len(others) == CLIENTS - 1
        history = look_again(case, volume, History.of([played, *others]))
        undecided = check(history)
    return history.count, undecided


def play_all(url: str, case: Case, point: Path, out: Path) -> History:
    """Plays all clients at once, and gives the history of the one at the mount."""
    client = [sys.executable, __file__, "--client", url, str(case.seed), str(out)]
    firsts = [sum(JOBS[:nth]) for nth in range(len(JOBS))]
    commands = [
        ["mpiexec", "-n", str(ranks), *client, str(first)]
        for ranks, first in zip(JOBS, firsts, strict=True)
    ]
    commands.append([*client, str(PROGRAM)])
    running = [subprocess.Popen(command) for command in commands]
    try:
        history = AtMount(point, case).play()
        ended = [process.wait(READY_SECONDS_MAX) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert ended == [0] * len(running), "a client has failed"
    return history


def main() -> None:
    """See the head of this file. `--client` is for its own use."""
    if sys.argv[1:2] == ["--client"]:
        url, seed, out, first = sys.argv[2:]
        return play_client(url, int(seed), int(first), Path(out))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="this one alone")
    given = parser.parse_args()
    chosen = range(given.seeds) if given.seed is None else (given.seed,)
    begun = time.monotonic()
    played = [play(seed) for seed in chosen]
    requests, undecided = map(sum, zip(*played, strict=True))
    seconds = round(time.monotonic() - begun)
    words = f"all right, {undecided} parts undecided, in {seconds} s"
    print(f"{len(chosen)} seeds, {requests} requests, {words}")


if __name__ == "__main__":
    main()
