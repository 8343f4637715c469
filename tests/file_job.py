"""The jobs of `file_kills.py`: programs that use a volume of parallel files until they are killed.

    mpiexec -n 3 python tests/file_job.py VOLUME DIRECTORY PLAN
    python tests/file_job.py VOLUME DIRECTORY PLAN

`PLAN` is JSON: see `Plan`. Workers are the ranks that are clients, or the threads of a program that
has the volume to itself. Each has a directory of its own, and names of its own in one that all
share; there it makes, writes, saves, checkpoints, renames and removes what it likes. All of them
write one shared file. What a worker does it writes to a log outside of the volume, before it begins
and when it has ended: what a killed process has written there stays.

A log has the records `begin` with an operation and its arguments, and `end` or `refused`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from open_job import NUMBERS_OF_RANK, RANKS_MAX, Left, Log, leave

import penstock as ps

SHARED = "/shared"
FILE = f"{SHARED}/file"
"""The file that all workers write. It is made with the volume, and keeps its size."""
CELLS, BSU, ROWS = 4, 520, 12
"""The shape of the shared file. A BSU is no number of blocks, but a number of words."""
WORD = 8
VIEWS = (
    ps.View(),
    ps.View(hn=4),
    ps.View(vn=3),
    ps.View(vbs=2, vn=2, hbs=2, hn=2),
    ps.View(vbs=3, hbs=2, hn=2),
)
"""Views that deal out the shared file's rows without a rest."""
BSUS = (7, 100, 512, 1000, 4096)
REACH = 12_000
"""The bytes of a long access, and how far from the beginning it begins."""
FAR = 140_000
"""Now and then a cell is written just before this byte, behind a hole."""
FILES_MAX, OBJECTS_MAX = 5, 9
USERS = 2000
"""Worker `w` gives files to the user `USERS + w`, whose quota it changes."""
QUOTA_MIN, QUOTA_MAX = 1 << 15, 1 << 20
"""In blocks: more than a volume has."""

ODD = 0x9E37_79B9_7F4A_7C15
INVERSE = pow(ODD, -1, 1 << 64)


def content(number: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes that a write of this number writes: words that tell the number and their place.

    All bits of a word depend on both.
    """
    words = np.arange(-(-count // WORD), dtype=np.uint64) + np.uint64(number << 20)
    words *= np.uint64(ODD)
    words ^= words >> np.uint64(32)
    return words.view(np.uint8)[:count]


def numbers_in(data: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of the writes that have written these bytes, whole words."""
    words = data.view(np.uint64)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(INVERSE)
    return (words >> np.uint64(20)).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a job is to do."""

    life: int
    seed: int
    rounds: int
    """After which it ends."""
    threads: int = 0
    """The workers of one process, or none: then ranks are the workers."""
    dedicated: bool = False
    cache_bytes: int = 32 << 20
    direct: bool = False

    def numbers(self, worker: int) -> Iterator[int]:
        """The numbers of a worker's writes."""
        first = (self.life * RANKS_MAX + worker) * NUMBERS_OF_RANK
        yield from range(first + 1, first + NUMBERS_OF_RANK)


def home_of(worker: int) -> str:
    """The directory of a worker."""
    return f"/m{worker}"


def is_own(path: str, worker: int) -> bool:
    """Whether an object is a worker's."""
    home = home_of(worker)
    return path == home or path.startswith((f"{home}/", f"{SHARED}/w{worker}-"))


def below(fs: ps.FileSystem, path: str, worker: int | None = None) -> Iterator[tuple[str, bool]]:
    """All objects below a directory, or those of a worker, and whether they are directories."""
    for name in fs.list(path):
        found = f"{path.rstrip('/')}/{name.rstrip('/')}"
        is_wanted = worker is None or is_own(found, worker)
        if is_wanted:
            yield found, name.endswith("/")
        if name.endswith("/") and (is_wanted or found == SHARED):
            yield from below(fs, found, worker)


class Worker:
    """A rank or thread that uses the volume."""

    def __init__(self, fs: ps.FileSystem, plan: Plan, worker: int, clients: int, log: Log) -> None:
        self.fs, self.plan, self.worker, self.clients, self.log = fs, plan, worker, clients, log
        self.common = random.Random(f"common {plan.seed} {plan.life}")
        self.own = random.Random(f"worker {plan.seed} {plan.life} {worker}")
        self.numbers = plan.numbers(worker)
        self.names = (f"w{worker}-{plan.life}-{count}" for count in range(NUMBERS_OF_RANK))
        found = list(below(fs, "/", worker))
        self.directories = [path for path, is_directory in found if is_directory]
        self.files = {path: fs.stat(path) for path, is_directory in found if not is_directory}
        self.kept = {path for path, stat in self.files.items() if stat.checkpoints}
        self.shared = fs.attach(FILE, "r+")

    def run(self) -> None:
        if home_of(self.worker) not in self.directories:
            self.mkdir(home_of(self.worker))
        weights = STEPS if self.common.random() < SAVES_ALL else {**STEPS, "sync_all": 0}
        for _ in range(self.plan.rounds):
            for step in self.own.choices([*weights], [*weights.values()], k=self.own.randrange(9)):
                getattr(self, step)()
            if self.common.random() < 0.3 and (self.worker == 0 or not self.plan.threads):
                self.write_together()
        self.shared.detach()

    def do(self, op: str, call: Callable[[], object], **more: Any) -> None:
        self.log.add("begin", op=op, **more)
        call()
        self.log.add("end")

    # ---------------------------------------------------------------------------------------------
    # Names
    # ---------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        parent = self.own.choice([SHARED, *self.directories])
        return f"{parent}/{next(self.names)}"

    def mkdir(self, path: str | None = None) -> None:
        if len(self.directories) + len(self.files) >= OBJECTS_MAX:
            return self.remove()
        path = path or self.fresh()
        self.do("mkdir", lambda: self.fs.mkdir(path), path=path)
        self.directories.append(path)

    def create(self) -> None:
        if len(self.files) >= FILES_MAX:
            return self.remove()
        path, cells, bsu = self.fresh(), self.own.randint(1, 5), self.own.choice(BSUS)
        call = lambda: self.fs.create(path, cells=cells, bsu=bsu)  # noqa: E731
        self.do("create", call, path=path, cells=cells, bsu=bsu)
        self.files[path] = self.fs.stat(path)

    def rename(self) -> None:
        old, new = self.own.choice([*self.files, *self.directories]), self.fresh()
        if new.startswith(f"{old}/") or old == home_of(self.worker):
            return
        self.do("rename", lambda: self.fs.rename(old, new), path=old, new=new)
        self.directories = [moved_path(path, old, new) for path in self.directories]
        self.files = {moved_path(path, old, new): stat for path, stat in self.files.items()}
        self.kept = {moved_path(path, old, new) for path in self.kept}

    def remove(self) -> None:
        paths = [*self.files, *self.directories[1:]]
        empty = [p for p in paths if not any(q.startswith(f"{p}/") for q in paths)]
        if not empty:
            return
        path = self.own.choice(empty)
        self.do("remove", lambda: self.fs.remove(path), path=path)
        self.files.pop(path, None)
        self.kept.discard(path)
        self.directories = [other for other in self.directories if other != path]

    def chmod(self) -> None:
        path = self.own.choice([*self.files, *self.directories])
        mode = self.own.randrange(0o1000)
        self.do("chmod", lambda: self.fs.chmod(path, mode), path=path, mode=mode)

    def quota(self) -> None:
        user = USERS + self.worker
        blocks = self.own.choice([None, self.own.randint(QUOTA_MIN, QUOTA_MAX)])
        limit = None if blocks is None else blocks * self.fs.block_bytes
        self.do("quota", lambda: self.fs.quota(user, limit), user=user, limit=limit)

    # ---------------------------------------------------------------------------------------------
    # Files of one's own
    # ---------------------------------------------------------------------------------------------

    def a_file(self) -> str:
        if not self.files:
            self.create()
        return self.own.choice(list(self.files))

    def change(self, op: str, call: Callable[[ps.File], None]) -> None:
        path = self.a_file()
        with self.fs.attach(path, "r+") as f:
            self.do(op, lambda: call(f), path=path)

    def sync(self) -> None:
        self.change("sync", lambda f: f.sync())

    def sync_all(self) -> None:
        self.do("sync_all", self.fs.sync)

    def checkpoint(self) -> None:
        path = self.a_file()
        with self.fs.attach(path, "r+") as f:
            self.do("checkpoint", f.checkpoint, path=path)
        self.kept.add(path)

    def rollback(self) -> None:
        if self.kept:
            path = self.own.choice(sorted(self.kept))
            with self.fs.attach(path, "r+") as f:
                self.do("rollback", f.rollback, path=path)

    def resize(self) -> None:
        path, count = self.a_file(), self.own.choice([0, self.own.randrange(2 * REACH)])
        self.do("resize", lambda: self.fs.resize(path, count), path=path, count=count)

    def chown(self) -> None:
        path, user = self.a_file(), self.own.choice([os.getuid(), USERS + self.worker])
        self.do("chown", lambda: self.fs.chown(path, user), path=path, user=user)

    def near(self) -> int:
        return self.own.randrange(self.own.choice([500, REACH]))

    def write(self) -> None:
        path = self.a_file()
        is_reckless = self.own.random() < 0.2
        mode = "reckless" if is_reckless else "cautious"
        with self.fs.attach(path, "r+", mode=mode) as f:  # type: ignore[arg-type]
            pieces = self.own.randint(1, 1 if is_reckless else 3)
            if self.own.random() < 0.05:
                view, subfile = ps.View(hn=f.cells), self.own.randrange(f.cells)
                ranges = [(FAR - self.own.randrange(1, 9000), self.own.randrange(1000))]
            else:
                view = ps.View(*(self.own.randint(1, 3) for _ in range(4)))
                subfile = self.own.randrange(view.subfiles)
                ranges = [(self.near(), self.near()) for _ in range(pieces)]
            order = self.own.choice(["block", "row", "column"])
            self.write_pieces(f, path, view, subfile, order, ranges)

    def write_pieces(
        self,
        f: ps.File,
        path: str,
        view: ps.View,
        subfile: int,
        order: Any,
        ranges: list[tuple[int, int]],
    ) -> None:
        """Writes parts of a subfile, each with a number of its own, at once."""
        opened = f.open(view, subfile, order=order)
        pieces = [(offset, count, next(self.numbers)) for offset, count in ranges]

        def call() -> None:
            data = [content(number, count) for _, count, number in pieces]
            begun = [
                opened.iwrite_at(offset, part.data)
                for (offset, *_), part in zip(pieces, data, strict=True)
            ]
            for request in begun:
                request.wait()

        numbers = dataclasses.astuple(view)
        self.do("write", call, path=path, view=numbers, subfile=subfile, order=order, pieces=pieces)

    # ---------------------------------------------------------------------------------------------
    # The shared file
    # ---------------------------------------------------------------------------------------------

    def part(self, bytes_max: int) -> tuple[int, int]:
        """Whole words of a subfile, perhaps none."""
        start, end = sorted(self.own.randint(0, bytes_max // WORD) for _ in range(2))
        return start * WORD, (end - start) * WORD

    def write_shared(self) -> None:
        view = self.own.choice(VIEWS)
        subfile, bytes_max = self.own.randrange(view.subfiles), BSU * CELLS * ROWS // view.subfiles
        ranges = [self.part(bytes_max) for _ in range(self.own.randint(1, 2))]
        self.write_pieces(self.shared, FILE, view, subfile, "block", ranges)

    def write_together(self) -> None:
        """A collective write of rows that are dealt out to all clients."""
        view, number = ps.View(vn=self.clients), next(self.numbers)
        subfile = 0 if self.clients == 1 else self.worker
        offset, count = self.part(ROWS // self.clients * CELLS * BSU)
        data = content(number, count).data
        self.do(
            "write",
            lambda: self.shared.write_all(view, subfile, data, offset=offset),
            path=FILE,
            view=dataclasses.astuple(view),
            subfile=subfile,
            order="block",
            pieces=[(offset, count, number)],
        )

    def sync_shared(self) -> None:
        self.do("sync", self.shared.sync, path=FILE)

    def checkpoint_shared(self) -> None:
        """One worker makes all checkpoints, so that it is known which is the last."""
        if self.worker == 0:
            self.do("checkpoint", self.shared.checkpoint, path=FILE)


STEPS = {
    "mkdir": 2,
    "create": 4,
    "rename": 6,
    "remove": 3,
    "chmod": 1,
    "quota": 1,
    "chown": 2,
    "sync": 6,
    "sync_all": 1,
    "checkpoint": 4,
    "rollback": 3,
    "resize": 3,
    "write": 16,
    "write_shared": 8,
    "sync_shared": 2,
    "checkpoint_shared": 4,
}
"""How often each step is chosen."""
SAVES_ALL = 0.3
"""As a part: lives in which all files are saved at once, which would hide that one was not."""


def moved_path(path: str, old: str, new: str) -> str:
    """The path of an object after a rename of it, or of a directory above it."""
    is_moved = path == old or path.startswith(f"{old}/")
    return new + path[len(old) :] if is_moved else path


@contextlib.contextmanager
def told(log: Log) -> Iterator[None]:
    """Writes how it ended to the log. An error that is not to be is raised on."""
    try:
        yield
    except Left:
        log.add("left")
    except ps.PeerError as error:
        log.add("peer", rank=error.rank, text=str(error))
    except BaseException as error:
        log.add("failure", text=f"{type(error).__name__}: {error}")
        raise
    else:
        log.add("closed")


def run_threads(fs: ps.FileSystem, plan: Plan, logs: list[Log]) -> None:
    """Runs workers on threads. An error of one is raised when all have ended."""
    raised: list[BaseException] = []

    def work(number: int, log: Log) -> None:
        try:
            Worker(fs, plan, number, 1, log).run()
        except BaseException as error:  # noqa: BLE001 - raised below
            log.add("failure", text=f"{type(error).__name__}: {error}")
            raised.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def main(volume: Path, directory: Path, plan: Plan) -> None:
    path = directory / f"log-{plan.life}"
    options: Any = {"cache_bytes": plan.cache_bytes, "direct": plan.direct}
    if plan.threads:
        logs = [Log(Path(f"{path}-{worker}")) for worker in range(plan.threads)]
        for log in logs:
            log.add("process", process=os.getpid())
        with told(logs[0]), ps.FileSystem(volume, **options) as fs:
            for worker, log in enumerate(logs):
                log.add("client", rank=worker)
            run_threads(fs, plan, logs)
        return
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    log = Log(Path(f"{path}-{comm.rank}"))
    log.add("process", process=os.getpid())
    signal.signal(signal.SIGTERM, leave)
    with told(log), ps.FileSystem(volume, comm, dedicated=plan.dedicated, **options) as fs:
        if fs.rank is not None:
            log.add("client", rank=fs.rank)
            clients = comm.size - fs.servers if plan.dedicated else comm.size
            Worker(fs, plan, fs.rank, clients, log).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Plan(**json.loads(sys.argv[3])))
