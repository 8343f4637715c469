"""Kills jobs that keep an array open, again and again, and looks at what is left.

    python tests/open_kills.py --kills 60 --ranks 3 --seed 1

The writers (`open_job.py`) read and write an array that all of them have open. At a random moment
all of them are killed by SIGKILL, or one, or one leaves because it was told to; then the others
must end, and those that are not killed hear which rank has left. NumPy or zarr-python reads what is
left, and the next writers open the array at once.

With every other store another job reads the array all the time, and tries in vain to open it to be
changed. It goes on when the writers are killed, and writes for a while in their place before the
next ones begin.

The writers' reads must be linearisable: see `histories.py`. Readers of another job, and who looks
at the disk, may find of each element what somebody began to write before the read has ended, unless
something newer had been brought to the disk before the reader opened the array.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from crash_kills import descendants, mpi_segments, run_command, send_kill, wait_for_end
from helpers import on_disk
from histories import (
    NEVER,
    ImpossibleHistory,
    Request,
    check_blocks,
    check_elements,
    first_contents,
    requests_on,
)
from open_job import (
    FORMS,
    NUMBERS_OF_RANK,
    OPTIONS,
    RANKS_MAX,
    SHAPE,
    UNIT,
    WHOLE_BLOCKS,
    Record,
    clients_of,
    records_in,
)

import penstock as ps

JOB = Path(__file__).with_name("open_job.py")
STORE_KILLS = 4
"""A new store, of another form, is begun after this number of kills."""
SECONDS_MAX = 120
"""For whatever is waited for, on a machine that is busy: more is a hang."""
MOMENT_SECONDS_MAX = 0.3
PLACES = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
WAYS = ("one rank", "all ranks", "leave")


@dataclasses.dataclass
class Store:
    """What is known of one array: all requests on it, of all jobs."""

    path: Path
    form: str
    requests: list[Request] = dataclasses.field(default_factory=list)
    since: list[int] = dataclasses.field(default_factory=list)
    """For each request that reads, the moment since when the array was open for it."""
    flushed: list[tuple[int, Request]] = dataclasses.field(default_factory=list)
    """The writes that are on the disk for certain, and since when."""

    def __post_init__(self) -> None:
        self.now = np.zeros(SHAPE, np.int64)
        self.add(first_contents(self.now), 0)
        self.flushed.append((0, self.requests[0]))

    def add(self, request: Request, since: int) -> None:
        self.requests.append(request)
        self.since.append(since)

    @property
    def array(self) -> ps.Array:
        return ps.Array("u", SHAPE, "i8", disk=FORMS[self.form])

    @property
    def blocks(self) -> np.ndarray:
        """The block of each element; of a flat file each element by itself."""
        if self.form == "npy":
            return PLACES.ravel()
        rows, columns = (np.arange(n) // extent for n, extent in zip(SHAPE, UNIT, strict=True))
        return (1000 * rows[:, None] + columns).reshape(-1)

    def look(self) -> np.ndarray:
        """What other software finds on the disk."""
        begun = time.monotonic_ns()
        found = np.asarray(on_disk(self.path, self.array))
        read = Request(
            False, "a look at the disk", begun, time.monotonic_ns(), PLACES.ravel(), found.ravel()
        )
        self.add(read, begun)
        return found

    def check(self) -> None:
        """Checks all reads of those who are not the writers, and what has been on the disk."""
        begun: dict[int, int] = {}
        ended: dict[int, int] = {}
        for request in self.requests:
            if request.is_write:
                number = int(request.numbers[0])
                begun[number], ended[number] = request.begun, request.ended
        newest = np.full(PLACES.size, -NEVER)
        flushed = sorted(self.flushed, key=lambda pair: pair[0])
        reads, at = zip(self.since, self.requests, strict=True), 0
        for since, read in sorted(reads, key=lambda pair: pair[0]):
            while at < len(flushed) and flushed[at][0] < since:
                where = flushed[at][1].places
                newest[where] = np.maximum(newest[where], flushed[at][1].begun)
                at += 1
            if read.is_write:
                continue
            numbers = read.numbers.tolist()
            assert begun.keys() >= set(numbers), f"nobody wrote {set(numbers) - begun.keys()}"
            late = np.array([begun[number] for number in numbers]) > read.ended
            past = np.array([ended[number] for number in numbers]) < newest[read.places]
            for wrong, why in ((late, "was yet to be written"), (past, "was no more")):
                if wrong.any():
                    place = int(read.places[wrong][0])
                    words = f"{read.numbers[wrong][0]} {why}: {read}, open since {since}"
                    raise ImpossibleHistory(f"{words}\n{requests_on(place, self.requests)}")
        if self.form in WHOLE_BLOCKS:
            check_blocks(self.requests, self.blocks)


def take_in(store: Store, of_ranks: Sequence[list[Record]], died: int, who: str) -> list[Request]:
    """Takes the logs of one job's ranks into what is known, and gives their requests.

    A write whose end nobody has seen has ended when all of the job have.
    """
    requests: list[Request] = []
    flushes: list[list[int]] = []
    unflushed: list[tuple[int, Request]] = []
    for rank, records in enumerate(of_ranks):
        flushes.append([record["time"] for record in records if record["what"] == "flushed"])
        begun_flushes, writing = 0, None
        for record in records:
            if record["what"] == "flush":
                begun_flushes += 1
            elif record["what"] == "write":
                writing = record
            elif record["what"] == "wrote":
                request = request_of(writing, f"{who}, rank {rank}", record["time"])
                unflushed.append((begun_flushes, request))
                requests.append(request)
                store.add(request, 0)
                writing = None
            elif record["what"] == "read":
                request = request_of(record, f"{who}, rank {rank}", record["time"])
                requests.append(request)
                store.add(request, record["since"])
        if writing is not None:
            request = request_of(writing, f"{who}, rank {rank}", died)
            requests.append(request)
            store.add(request, 0)
    for before, request in unflushed:
        times = [times[before] for times in flushes if len(times) > before]
        if times:
            store.flushed.append((min(times), request))
    return requests


def request_of(record: Record, who: str, ended: int) -> Request:
    (top, bottom), (left, right) = record["part"]
    places = PLACES[top:bottom, left:right].ravel()
    is_write = record["what"] == "write"
    numbers = np.full(places.shape, record["number"]) if is_write else np.array(record["numbers"])
    begun = record["time"] if is_write else record["begun"]
    return Request(is_write, who, begun, ended, places, numbers.astype(np.int64))


class Job:
    """An MPI job under way, and its logs."""

    def __init__(self, what: str, store: Path, life: int, ranks: int) -> None:
        self.directory, self.life, self.what = store.parent, life, what
        self.clients = clients_of(life, ranks)
        self.output = self.directory / f"output-{life}"
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)  # a killed mpiexec leaves files
        command = ["mpiexec", "-n", ranks, sys.executable, JOB, what, store, self.directory, life]
        with open(self.output, "w") as out:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdout=out,
                stderr=out,
                env={**os.environ, "TMPDIR": str(temporary)},
                start_new_session=True,
            )
        self.logs = [self.directory / f"log-{life}-{rank}" for rank in range(ranks)]

    def records(self) -> list[list[Record]]:
        return [records_in(log) if log.exists() else [] for log in self.logs]

    def wait_until(self, has_come: Callable[[], object], words: str) -> None:
        until = time.monotonic() + SECONDS_MAX
        while not has_come():
            assert self.process.poll() is None, f"the job has ended: {self.output.read_text()}"
            assert time.monotonic() < until, f"the {self.what} job hangs: {words}"
            time.sleep(0.005)

    def wait_for_start(self) -> None:
        """Until all clients have opened the array, and done something."""
        word = b'"read"' if self.what == "read" else b'"wrote"'
        self.wait_until(lambda: self.count_with(word) == self.clients, "it begins")

    def count_with(self, word: bytes) -> int:
        """The number of ranks whose logs have a word."""
        return sum(log.exists() and word in log.read_bytes() for log in self.logs)

    def wait_for_end(self, everybody: Iterable[int], words: str) -> int:
        wait_for_end([self.process.pid, *everybody], SECONDS_MAX, words)
        return self.process.wait()

    def end_all(self) -> None:
        """Leaves nothing of a job behind when a test has failed."""
        for process in descendants(self.process.pid) if self.process.poll() is None else ():
            send_kill(process)


def ranks_of(of_logs: list[list[Record]]) -> dict[int, int]:
    """The rank of each client, by the number of its log."""
    clients = ((at, records[1:2]) for at, records in enumerate(of_logs))
    return {at: r["rank"] for at, second in clients for r in second if r["what"] == "client"}


def check_left(of_logs: list[list[Record]], at: int, code: int, output: Path) -> None:
    """One rank has left: the other clients have heard which one, and all have come to an end."""
    assert code == 0, output.read_text()
    ranks = ranks_of(of_logs)
    left = ranks.pop(at)
    assert of_logs[at][-1]["what"] == "left", of_logs[at][-1]
    for other in ranks:
        last = of_logs[other][-1]
        assert last["what"] == "peer" and last["rank"] == left, (left, last)
        assert f"rank {left}: " in last["text"], last
        # The rank has left between two requests, or while it waited for one.
        assert any(why in last["text"] for why in ("told to leave", "it was interrupted")), last


class Campaign:
    """Writers one after the other, with readers beside them, or without, or both by turns."""

    def __init__(
        self, directory: Path, ranks: int, seed: int, has_readers: bool | None = None
    ) -> None:
        self.directory, self.ranks, self.seed = directory, ranks, seed
        self.has_readers = has_readers
        self.chance = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.life = 0
        self.jobs: list[Job] = []
        self.store: Store
        self.readers: Job | None = None

    def run(self, kills: int) -> collections.Counter[str]:
        try:
            for kill in range(kills):
                if kill % STORE_KILLS == 0:
                    self.begin_store(kill)
                self.kill_one(WAYS[kill % len(WAYS)])
                if kill % STORE_KILLS == STORE_KILLS - 1 or kill == kills - 1:
                    self.end_store()
        except BaseException:
            for job in self.jobs:
                job.end_all()
            raise
        return self.counts

    def next_life(self) -> int:
        self.life += 1
        return self.life

    def begin(self, what: str) -> Job:
        self.jobs.append(Job(what, self.store.path, self.next_life(), self.ranks))
        return self.jobs[-1]

    def begin_store(self, kill: int) -> None:
        number = kill // STORE_KILLS
        form = list(FORMS)[(self.seed + number) % len(FORMS)]
        place = self.directory / str(number)
        place.mkdir()
        self.store = Store(place / ("u.npy" if form == "npy" else "u"), form)
        with ps.Session(sync=False) as s:
            s.write(self.store.path, self.store.array, self.store.now)
        if number % 2 == 0 if self.has_readers is None else self.has_readers:
            self.lead("read")
            self.readers = self.begin("read")
            self.readers.wait_for_start()

    def lead(self, word: str) -> None:
        """Tells the readers what to do."""
        new = self.store.path.parent / "new-command"
        new.write_text(word)
        new.replace(new.with_name("command"))

    def end_store(self) -> None:
        if self.readers is not None:
            self.lead("end")
            code = self.readers.wait_for_end((), "told to end")
            assert code == 0, self.readers.output.read_text()
            records = self.readers.records()
            take_in(self.store, records, time.monotonic_ns(), f"readers {self.readers.life}")
            for word in ("read", "busy", "was free"):
                found = sum(r["what"] == word for records in records for r in records)
                self.counts[f"readers: {word}"] += found
            self.readers = None
        self.store.check()
        shutil.rmtree(self.store.path.parent, ignore_errors=True)

    def kill_one(self, way: str) -> None:
        writers = self.begin("write")
        alive = self.store.path.with_name("alive")
        writers.wait_for_start()
        alive.touch()
        everybody = descendants(writers.process.pid)
        segments = [found for process in everybody for found in mpi_segments(process)]
        processes = [records[0]["process"] for records in writers.records()]
        time.sleep(self.chance.random() * MOMENT_SECONDS_MAX)
        assert writers.process.poll() is None, writers.output.read_text()
        alive.unlink()
        if way == "all ranks":
            self.chance.shuffle(everybody)
            for process in everybody:
                send_kill(process)
        elif way == "one rank":  # perhaps a dedicated server
            send_kill(self.chance.choice(processes))
        else:
            at = self.chance.choice(list(ranks_of(writers.records())))
            os.kill(processes[at], signal.SIGTERM)
        killed = time.monotonic()
        code = writers.wait_for_end(everybody, way)
        for left in segments if way != "leave" else ():
            left.unlink(missing_ok=True)
        died = time.monotonic_ns()
        milliseconds = int(1000 * (time.monotonic() - killed))
        name = f"{way}: longest end, ms"
        self.counts[name] = max(self.counts[name], milliseconds)
        records = writers.records()
        if way == "leave":
            check_left(records, at, code, writers.output)
        self.counts["kills"] += 1
        self.counts[way] += 1
        self.look(records, died)

    def look(self, records: list[list[Record]], died: int) -> None:
        """Checks what the writers have seen, and what they have left."""
        store, life = self.store, self.life
        requests = take_in(store, records, died, f"writers {life}")
        first = first_contents(store.now)
        check_elements([first, *requests])
        check_blocks([first, *requests], store.blocks)
        self.counts["requests of writers"] += len(requests)
        store.now = store.look()
        of_life = store.now // (RANKS_MAX * NUMBERS_OF_RANK) == life
        self.counts["elements that the last writers have left"] += int(of_life.sum())
        if self.readers is not None:
            self.take_over(self.readers)
            store.now = store.look()
        else:
            with ps.Session(**OPTIONS) as s, s.open(store.path, mode="r+") as free:
                assert np.array_equal(free.read(), store.now)

    def take_over(self, readers: Job) -> None:
        """The readers write in the place of those who were killed, and go on reading."""
        word = f"take over {self.next_life()}"
        self.lead(word)
        taken = f'"{word}"'.encode()
        readers.wait_until(lambda: readers.count_with(taken) == readers.clients, word)
        self.lead("read")
        self.counts["taken over"] += 1


if __name__ == "__main__":
    run_command(__doc__, Campaign, 60)
