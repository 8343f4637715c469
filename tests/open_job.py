"""The jobs of `open_kills.py`: MPI programs that keep one array open.

    mpiexec -n 3 python tests/open_job.py write STORE DIRECTORY LIFE
    mpiexec -n 3 python tests/open_job.py read STORE DIRECTORY LIFE

The writers read and write random parts until they are killed, or told to leave. The readers read
the same array, with arrays of their own that they open to be read, and try in vain to open it to be
changed. What a rank does it writes to a log of its own in the directory, before and after: what a
killed process has written there stays.

Who leads the jobs speaks through files in the directory: `alive` is there while the writers live,
and `command` holds what the readers are to do. `take over LIFE` means to write a little in that
life, `end` to come to the end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

SHAPE = (24, 18)
UNIT = (7, 5)
FORMS = {
    "npy": ps.RowMajor("npy"),
    "chunks": ps.Chunks(UNIT),
    "codec": ps.Chunks(UNIT, codec="zstd:1"),
    "shards": ps.Chunks((14, 10), UNIT, codec="zstd:1+crc32c"),
    "bare shards": ps.Chunks((14, 10), UNIT),
}
WHOLE_BLOCKS = ("codec", "shards", "bare shards")
"""Forms whose blocks every reader, at any moment, finds old or new as a whole."""
OPTIONS: dict[str, Any] = {"block_bytes": 600, "cache_bytes": 1500, "sync": False}
NUMBERS_OF_RANK = 1_000_000
RANKS_MAX = 100
ROUNDS_MAX = 20_000
"""Writers that nobody kills come to an end: many times what they do before they are killed."""
TAKEN_ROUNDS = 3
"""How much is written by readers that take over."""
ROUND_SECONDS = 0.005
"""The pause of readers between their rounds: their logs are to stay small."""

Record = dict[str, Any]


class Left(Exception):
    """A rank leaves because it was told to."""


class Log:
    """What a rank does, one record after the other: in memory, or in a file that stays."""

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[Record] = []
        self.file = None
        if path is not None:
            self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, what: str, **more: Any) -> None:
        record = {"what": what, "time": time.monotonic_ns(), **more}
        if self.file is None:
            self.records.append(record)
        else:
            os.write(self.file, json.dumps(record).encode() + b"\n")


def records_in(path: Path) -> list[Record]:
    """The records of a log file. The last line may be one that was not written to its end."""
    records = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    return records


def options_of(life: int, ranks: int) -> dict[str, Any]:
    """The options of the session of a life."""
    chance = random.Random(f"options {life}")
    transport = chance.choice(("shared", "messages"))
    options = {**OPTIONS, "transport": transport, "dedicated": ranks > 1 and chance.random() < 0.5}
    return {**options, "servers": 1} if options["dedicated"] else options


def clients_of(life: int, ranks: int) -> int:
    """The number of ranks that are clients."""
    return ranks - int(options_of(life, ranks)["dedicated"])


def random_part(chance: random.Random) -> tuple[slice, ...]:
    """Often a part that has all of a chunk, so that nobody needs to read it before."""
    parts = []
    for extent, unit in zip(SHAPE, UNIT, strict=True):
        start = chance.randrange(extent)
        end = chance.randint(start + 1, extent)
        if chance.random() < 0.3:
            start -= start % unit
            end = min(extent, start + unit)
        parts.append(slice(start, end))
    return tuple(parts)


class Member:
    """One rank of writers or readers."""

    def __init__(self, session: ps.Session, store: Path, log: Log, seed: str) -> None:
        self.session, self.store, self.log = session, store, log
        self.common = random.Random(f"common {seed}")
        self.own = random.Random(f"rank {seed} {session.rank}")

    def read(self, opened: ps.OpenArray, since: int) -> None:
        """Reads a part of an array that has been open since a certain moment."""
        part = random_part(self.own)
        begun = time.monotonic_ns()
        found = opened.read(part)
        self.note_read(begun, since, part, found)

    def note_read(self, begun: int, since: int, part, found: np.ndarray) -> None:
        bounds = [[along.start, along.stop] for along in part]
        self.log.add("read", begun=begun, since=since, part=bounds, numbers=found.ravel().tolist())

    def read_together(self) -> None:
        rows = ps.Distribution("BLOCK,*", (self.session.size,))
        array = self.session.open(self.store).with_memory(rows)
        part = array.local_slices(self.session.rank)
        begun = time.monotonic_ns()
        self.note_read(begun, begun, part, self.session.read(self.store, array))

    def write_for(self, life: int, rounds: int, before: Callable[[], None] = lambda: None) -> None:
        """Reads and writes through an array that is open to be changed."""
        opened, numbers = self.session.open(self.store, mode="r+"), itertools.count(1)
        since = time.monotonic_ns()
        first = (life * RANKS_MAX + self.session.rank) * NUMBERS_OF_RANK
        for _ in range(rounds):
            for _ in range(4):
                before()
                if self.own.random() < 0.3:
                    self.read(opened, since)
                else:
                    self.write(opened, first + next(numbers))
            way = self.common.random()
            if way < 0.3:
                self.log.add("flush")
                opened.flush()
                self.log.add("flushed")
            elif way < 0.4:
                self.read_together()
        self.log.add("flush")
        opened.close()
        self.log.add("flushed")

    def write(self, opened: ps.OpenArray, number: int) -> None:
        part = random_part(self.own)
        bounds = [[along.start, along.stop] for along in part]
        local = np.full([end - start for start, end in bounds], number)
        self.log.add("write", number=number, part=bounds)
        opened.write(part, local)
        self.log.add("wrote")

    def read_until_end(self, lead: Callable[[], str], is_alive: Callable[[], bool]) -> None:
        """Reads as long as who leads says nothing else, which all ranks hear alike."""
        kept, since, taken = self.session.open(self.store, mode="r"), time.monotonic_ns(), set()
        for turn in itertools.count():
            word = lead()
            if word == "end":
                break
            if word.startswith("take over") and word not in taken:
                taken.add(word)
                self.write_for(int(word.split()[-1]), TAKEN_ROUNDS)
                self.log.add("taken", word=word)
            self.read(kept, since)
            way = self.common.random()
            if way < 0.2:
                self.read_together()
            elif way < 0.4:
                begun = time.monotonic_ns()
                with self.session.open(self.store, mode="r") as fresh:
                    self.read(fresh, begun)
            elif way < 0.6:
                kept.close()
                since = time.monotonic_ns()
                kept = self.session.open(self.store, mode="r")
            elif way < 0.8 and is_alive():
                self.try_to_change(is_alive)
            self.log.add("round", turn=turn)
            time.sleep(ROUND_SECONDS)
        kept.close()

    def try_to_change(self, is_alive: Callable[[], bool]) -> None:
        """As long as the writers live nobody else opens the array to be changed."""
        try:
            self.session.open(self.store, mode="r+").close()
        except ps.BusyError:
            self.log.add("busy")
        else:
            assert not is_alive(), "an array was opened to be changed by two jobs"
            self.log.add("was free")


class Lead:
    """What who leads the jobs says, to all ranks of the readers the same."""

    def __init__(self, session: ps.Session, directory: Path) -> None:
        self.session, self.directory = session, directory
        self.questions = itertools.count()

    def word(self) -> str:
        return self.to_all((self.directory / "command").read_text)

    def writers_live(self) -> bool:
        return self.to_all(lambda: str((self.directory / "alive").exists())) == "True"

    def to_all(self, question: Callable[[], str]) -> str:
        """The answer of rank 0."""
        said = self.directory / f"said-{next(self.questions)}"
        if self.session.rank == 0:
            said.write_text(question())
        self.session.barrier()
        answer = said.read_text()
        self.session.barrier()
        if self.session.rank == 0:
            said.unlink()
        return answer


def leave(*_: object) -> None:
    raise Left("told to leave")


def main(what: str, store: Path, directory: Path, life: int) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    log = Log(directory / f"log-{life}-{comm.rank}")
    log.add("process", process=os.getpid())
    signal.signal(signal.SIGTERM, leave)
    try:
        with ps.Session(comm, **options_of(life, comm.size)) as s:
            if s.is_client:
                log.add("client", rank=s.rank)
                member, lead = Member(s, store, log, f"{life}"), Lead(s, directory)
                if what == "write":
                    member.write_for(life, ROUNDS_MAX)
                else:
                    member.read_until_end(lead.word, lead.writers_live)
    except Left:
        log.add("left")
    except ps.PeerError as error:
        log.add("peer", rank=error.rank, text=str(error))
    else:
        log.add("end")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
