"""Kills jobs that use a volume of parallel files, again and again, and looks at what is left.

    python tests/file_kills.py --kills 300 --ranks 3 --seed 1

The jobs (`file_job.py`) are MPI programs, in which some ranks have servers, or are nothing else,
and programs with several threads that have the volume to themselves. At a random moment all of a
job are killed by SIGKILL, or one rank that has a server, or one that has none; or one rank leaves
because it was told to, and the others must hear which; or nobody is killed, and all is closed. Then
`penstock fs fsck --data` may find nothing, and all that is in the volume is compared with what the
jobs have logged: see `file_known.py`. The next job goes on from there.

When a volume has had its kills, bytes of it are changed: see `file_flips.py`. At last all in it is
removed, and no block may be in use.

The moments are chance; which they are, the seed decides only as far as the machine keeps time.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from crash_kills import descendants, mpi_segments, run_command, send_kill
from file_flips import check_flips
from file_job import BSU, CELLS, FILE, ROWS, SHARED, USERS, Plan, below, content, is_own
from file_known import Shared, Tree, Wrong, operations
from file_look import Found, Object, look
from helpers import is_in_memory, penstock
from open_job import Record
from open_kills import SECONDS_MAX, Job

import penstock as ps

JOB, LOOK = (Path(__file__).with_name(name) for name in ("file_job.py", "file_look.py"))
WAYS = (
    "all ranks",
    "a rank with a server",
    "a rank without a server",
    "a program with threads",
    "one leaves",
    "closed",
)
VOLUME_KILLS = len(WAYS)
"""The jobs after which a new volume is begun."""
SERVERS = (2, 1, 4)
BLOCKS = (512, 4096)
CAPACITY = 8 << 20
"""The bytes of all servers' blocks: more than the jobs take."""
CACHES = (0, 16 << 10, 32 << 20)
THREADS = 3
DEDICATED = 0.4
"""The part of the MPI programs in which some ranks are nothing but servers."""
FLIPS = 10
"""The changes of bytes of each volume."""
EARLY = 0.15
"""As a part: kills as a job begins, when it opens the volume and ends what was left."""
EARLY_SECONDS_MAX = 0.05
MOMENT_SECONDS_MAX = 0.4
AIMED = 0.5
"""The part of the kills that wait, for a while, until a worker has begun a transaction."""
AIM_SECONDS_MAX, AIM_SECONDS_LATE_MAX = 2, 0.002
RECORD_BYTES_MAX = 1000
BEGUN = re.compile(rb'"what": "begin", "time": \d+, "op": "(\w+)".*}\n', re.DOTALL)
TRANSACTIONS = ("create", "rename", "remove", "chown", "checkpoint", "rollback", "resize", "quota")
AGAIN = 0.4
"""As a part: the program that opens the volume after a crash is killed in its turn."""
AGAIN_SECONDS_MAX = 0.02
ROUNDS_MAX = 20_000
ROUNDS_CLOSED = 6
"""The rounds of a job that comes to its end."""


class FileJob(Job):
    """A job under way, and its logs."""

    def __init__(self, volume: Path, plan: Plan, ranks: int) -> None:
        self.directory, self.life, self.what = volume.parent, plan.life, "writing"
        self.clients = plan.threads or ranks
        self.output = self.directory / f"output-{self.life}"
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)  # a killed mpiexec leaves files
        given = json.dumps(dataclasses.asdict(plan))
        launcher = [] if plan.threads else ["mpiexec", "-n", str(ranks)]
        with open(self.output, "w") as out:
            self.process = subprocess.Popen(
                [*launcher, sys.executable, str(JOB), str(volume), str(self.directory), given],
                stdout=out,
                stderr=out,
                env={**os.environ, "TMPDIR": str(temporary)},
                start_new_session=True,
            )
        count = plan.threads or ranks
        self.logs = [self.directory / f"log-{self.life}-{number}" for number in range(count)]

    def wait_for_transaction(self) -> bool:
        """Until the last thing that some worker has logged is that it begins one."""
        until = time.monotonic() + AIM_SECONDS_MAX
        with contextlib.ExitStack() as stack:
            logs = [stack.enter_context(log.open("rb")) for log in self.logs if log.exists()]
            while time.monotonic() < until:
                for log in logs:
                    log.seek(max(0, log.seek(0, os.SEEK_END) - RECORD_BYTES_MAX))
                    last = log.read().rpartition(b"\n{")[2]
                    begun = BEGUN.fullmatch(last)
                    if begun is not None and begun[1].decode() in TRANSACTIONS:
                        return True
        return False

    def by_worker(self) -> list[list[Record]]:
        """The logs of the workers, in the order of their numbers."""
        clients = {log[1]["rank"]: log for log in self.records() if is_client(log)}
        return [clients.get(worker, []) for worker in range(max(clients, default=-1) + 1)]


def has_server(process: int) -> bool:
    """Whether a process has the records of a server open."""
    with contextlib.suppress(OSError):
        for opened in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(opened).endswith("/records.redb"):
                    return True
    return False


def fsck(volume: Path) -> dict[str, Any]:
    """What a check says that finds no fault."""
    said = penstock("fs", "fsck", volume, "--data", "--json", code=(0, 1))
    assert said.startswith("{") and "panicked" not in said, said
    told: dict[str, Any] = json.loads(said)
    assert not told["findings"], f"fsck has found {told['findings']}; left: {told['transactions']}"
    return told


class Campaign:
    """Jobs one after the other."""

    def __init__(self, directory: Path, ranks: int, seed: int) -> None:
        self.directory, self.ranks, self.seed = directory, ranks, seed
        self.chance = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.life = 0
        self.jobs: list[FileJob] = []
        self.volume: Path
        self.servers = self.block_bytes = 0
        self.trees: dict[int, Tree]
        self.shared: Shared
        self.found: Found

    def run(self, kills: int) -> collections.Counter[str]:
        self.counts["kills"] = 0
        try:
            for number in range(kills):
                if number % VOLUME_KILLS == 0:
                    self.begin_volume(number // VOLUME_KILLS)
                self.kill_one(WAYS[number % VOLUME_KILLS])
                if number % VOLUME_KILLS == VOLUME_KILLS - 1 or number == kills - 1:
                    self.end_volume()
        except BaseException:
            for job in self.jobs:
                job.end_all()
            raise
        return self.counts

    def begin_volume(self, number: int) -> None:
        place = self.directory / str(number)
        place.mkdir()
        self.volume, self.trees = place / "v", {}
        self.servers = SERVERS[number % len(SERVERS)]
        self.block_bytes = BLOCKS[(self.seed + number) % len(BLOCKS)]
        data = content(1, CELLS * ROWS * BSU)
        with ps.FileSystem.create(
            self.volume,
            servers=self.servers,
            block_bytes=self.block_bytes,
            capacity=CAPACITY // self.servers,
        ) as fs:
            fs.mkdir(SHARED)
            fs.create(FILE, cells=CELLS, bsu=BSU)
            with fs.attach(FILE, "w") as f:
                for cell, part in enumerate(np.split(data, CELLS)):
                    f.open(ps.View(hn=CELLS), cell).write(part)
        self.shared = Shared(data.view(np.uint64))

    def kill_one(self, way: str) -> None:
        self.life += 1
        needs_client = way == "a rank without a server"
        dedicated = self.chance.random() < DEDICATED
        ranks = self.ranks
        if dedicated or needs_client:
            ranks = max(ranks, self.servers + 1)
        plan = Plan(
            self.life,
            self.seed,
            ROUNDS_CLOSED if way == "closed" else ROUNDS_MAX,
            THREADS if way == "a program with threads" else 0,
            dedicated,
            self.chance.choice(CACHES),
            not is_in_memory(self.directory) and self.chance.random() < 0.3,
        )
        job = FileJob(self.volume, plan, ranks)
        self.jobs.append(job)
        try:
            self.end_job(job, way)
            self.look(job, time.monotonic_ns())
        except BaseException:
            print(f"seed {self.seed}, life {self.life}, {way}: {plan}, {ranks} ranks")
            print(job.output.read_text(), file=sys.stderr)
            raise
        self.jobs.remove(job)
        self.counts["kills"] += 1
        self.counts[way] += 1

    def end_job(self, job: FileJob, way: str) -> None:
        """Kills the job, or one of its ranks, or lets it end."""
        is_early = way in ("all ranks", "a program with threads") and self.chance.random() < EARLY
        if way == "closed":
            code = job.wait_for_end((), way)
            assert code == 0, "the job has failed"
            return
        word = b'"process"' if is_early else b'"begin"'
        needed = len(job.logs) if is_early else 1
        job.wait_until(lambda: job.count_with(word) >= needed, "it begins")
        everybody = descendants(job.process.pid)
        segments = [found for process in everybody for found in mpi_segments(process)]
        processes = [log[0]["process"] if log else None for log in job.records()]
        time.sleep(self.chance.random() * (EARLY_SECONDS_MAX if is_early else MOMENT_SECONDS_MAX))
        if not is_early and self.chance.random() < AIMED:
            self.counts["aimed at a transaction"] += job.wait_for_transaction()
            time.sleep(self.chance.random() * AIM_SECONDS_LATE_MAX)
        assert job.process.poll() is None, "the job has ended by itself"
        victim = self.kill(way, everybody, processes, job)
        killed = time.monotonic()
        code = job.wait_for_end(everybody, way)
        name = f"{way}: longest end, ms"
        self.counts[name] = max(self.counts[name], int(1000 * (time.monotonic() - killed)))
        if way == "one leaves":
            check_left(job, victim, code)
        else:
            for left in segments:
                left.unlink(missing_ok=True)
        said = job.output.read_text()
        assert "panicked" not in said, said
        for log in job.records():
            # Who was not killed before it heard of that has ended by a typed error.
            assert not log or log[-1]["what"] != "failure", log[-1]
            self.counts["ranks that have heard of another's end"] += (
                bool(log) and log[-1]["what"] == "peer"
            )
        self.counts["killed as it began"] += is_early

    def kill(self, way: str, everybody: list[int], processes: list[Any], job: FileJob) -> int:
        """Kills, or tells one to leave. Gives its number among the logs."""
        if way in ("all ranks", "a program with threads"):
            self.chance.shuffle(everybody)
            for process in everybody:
                send_kill(process)
            return -1
        ranks = [number for number, process in enumerate(processes) if process is not None]
        if way == "one leaves":
            clients = [at for at, log in enumerate(job.records()) if is_client(log)]
            victim = self.chance.choice(clients)
            os.kill(processes[victim], signal.SIGTERM)
            return victim
        wanted = way == "a rank with a server"
        victim = self.chance.choice([n for n in ranks if has_server(processes[n]) == wanted])
        send_kill(processes[victim])
        return victim

    # ---------------------------------------------------------------------------------------------
    # What is left
    # ---------------------------------------------------------------------------------------------

    def look(self, job: FileJob, died: int) -> None:
        told = fsck(self.volume)
        self.counts["transactions that a crash has left"] += len(set(told["transactions"]))
        while self.chance.random() < AGAIN:
            self.kill_again()
        (found,) = look([self.volume])
        assert isinstance(found, Found), f"the volume is refused: {found}"
        self.compare(job.by_worker(), died, found)
        self.check_space(found)
        self.found = found

    def kill_again(self) -> None:
        """Kills a program that opens the volume, as it ends what a crash has left."""
        command = [sys.executable, str(LOOK), str(self.volume)]
        with open(os.devnull, "w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        until = time.monotonic() + SECONDS_MAX
        while not has_server(process.pid) and process.poll() is None:
            assert time.monotonic() < until, "a look at the volume does not begin"
        time.sleep(self.chance.random() * AGAIN_SECONDS_MAX)
        process.kill()
        self.counts["killed as it recovered"] += process.wait() != 0
        fsck(self.volume)

    def compare(self, logs: list[list[Record]], died: int, found: Found) -> None:
        objects = dict(found.objects)
        assert objects.pop(SHARED).is_directory
        shared = objects.pop(FILE)
        self.counts["writes of the shared file"] += self.shared.settle(logs, died, shared)
        for worker, log in enumerate(logs):
            tree = self.trees.setdefault(worker, Tree(os.getuid()))
            under_way = tree.play(log)
            if log and log[-1]["what"] == "closed":
                tree.end({"op": "sync_all"})
            own = {path: objects.pop(path) for path in list(objects) if is_own(path, worker)}
            try:
                is_done = tree.settle(under_way, own, found.quotas)
            except Wrong as wrong:
                raise Wrong(f"worker {worker}: {wrong}\nits log: {last_of(log)}") from None
            self.counts["operations"] += sum(1 for _ in operations(log))
            if under_way is not None:
                self.counts["under way, and done" if is_done else "under way, and not done"] += (
                    under_way["op"] not in ("write", "sync", "sync_all")
                )
        for worker in self.trees.keys() - set(range(len(logs))):  # of jobs before this one
            own = {path: objects.pop(path) for path in list(objects) if is_own(path, worker)}
            self.trees[worker].settle(None, own, found.quotas)
        assert not objects, f"nobody has made {sorted(objects)}"
        self.counts["bytes compared"] += sum(map(bytes_of, found.objects.values()))

    def check_space(self, found: Found) -> None:
        """The space of all users is that of all blocks."""
        told = fsck(self.volume)
        assert not told["transactions"], told
        in_blocks = told["blocks"] * self.block_bytes
        assert found.used == sum(found.of_users.values()) == in_blocks, (found.of_users, told)
        assert told["files"] + told["directories"] == len(found.objects) + 1, told

    def end_volume(self) -> None:
        check_flips(self.volume, self.block_bytes, self.found, FLIPS, self.chance, self.counts)
        with ps.FileSystem(self.volume) as fs:
            for user in (user for user in self.found.of_users if user >= USERS):
                self.check_quota(fs, user)
            for path in sorted((path for path, _ in below(fs, "/")), reverse=True):
                fs.remove(path)
            assert fs.usage().used == 0, fs.usage()
        told = fsck(self.volume)
        assert (told["directories"], told["files"], told["blocks"]) == (1, 0, 0), told
        self.counts["volumes emptied"] += 1
        shutil.rmtree(self.volume.parent)

    def check_quota(self, fs: ps.FileSystem, user: int) -> None:
        """What a user has is counted as it was before all the kills: a quota leaves the rest."""
        path, rest = f"/of-{user}", 4
        fs.create(path, cells=self.servers, bsu=self.block_bytes)
        fs.chown(path, user)
        fs.quota(user, fs.usage(user).of_user + rest * self.block_bytes)
        with fs.attach(path, "r+") as f:
            written = f.open()
            for _ in range(rest):
                written.write(bytes(self.block_bytes))
            try:
                written.write(b"more")
            except ps.FullError:
                self.counts["quotas used up"] += 1
            else:
                raise AssertionError(f"user {user} has more than the quota: {fs.usage(user)}")


def check_left(job: FileJob, victim: int, code: int) -> None:
    """One rank has left: the other clients have heard of that, and all have come to an end."""
    assert code == 0, job.output.read_text()
    for number, log in enumerate(job.records()):
        wanted = "left" if number == victim else "peer"
        assert not is_client(log) or log[-1]["what"] == wanted, (victim, number, log[-1])


def is_client(log: list[Record]) -> bool:
    return [record["what"] for record in log[1:2]] == ["client"]


def bytes_of(found: Object) -> int:
    """The bytes of both versions of a file."""
    return sum(len(cell.data) for cell in [*found.active, *(found.kept or [])])


def last_of(log: list[Record], count: int = 12) -> str:
    return "".join(f"\n  {record}" for record in log[-count:])


if __name__ == "__main__":
    run_command(__doc__ or "", Campaign, 300)
