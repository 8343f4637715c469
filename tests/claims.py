"""Random requests of several ranks on one array that stays open, each checked against the history
of all.

    python tests/claims.py --seeds 500
    mpiexec -n 3 python tests/claims.py --seeds 100
    python tests/claims.py --seed 17

The ranks (threads, or those of the MPI job) read and write random parts of an array, which overlap.
Now and then all of them read it together, bring it to the disk, where NumPy or zarr-python looks at
it, try in vain to write it anew, or close it and open it again. The cache holds a few blocks, or
none, or all. What each read has found is then compared with all that was written: see
`histories.py`.

The seed decides who asks for what in which order, but not who is faster: a seed that has failed may
pass when it is run again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import random
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import seeds
from helpers import LOCAL_KINDS, Dealt, Local, fast_directory, on_disk
from histories import Request, check_blocks, check_elements, first_contents

import penstock as ps

STEPS = 10
ALONE_MAX = 8
"""The most requests that a rank makes alone in a step."""
NUMBERS_OF_RANK = 1000
"""The numbers of a rank's writes are these times its number, and more: all types hold them."""
FORMS = ("npy", "raw", "parts", "chunks", "pieces", "codec", "shards", "bare shards")
WHOLE_UNITS = ("chunks", "codec", "shards", "bare shards")
"""Forms whose chunks, or sub-chunks, are one block each; in the others they are several."""
LARGE = 0.1
"""As a part: arrays whose parts do not fit into a message."""
SLOW = 0.4
"""As a part: disks that are so slow that ranks meet at a block while it is read or written."""
SLOW_BLOCK_SECONDS = 0.001


@dataclasses.dataclass(frozen=True)
class Case:
    """What follows from a seed: an array, and a session."""

    seed: int
    form: str
    shape: tuple[int, ...]
    unit: tuple[int, ...]
    """The extents of a chunk, or of a sub-chunk of a shard."""
    dtype: np.dtype
    options: dict[str, Any]

    @classmethod
    def of(cls, seed: int, form: str | None = None) -> Case:
        """The case of a seed; in a certain form, where one is given."""
        chance = random.Random(f"case {seed}")
        dims = chance.choice((1, 2, 2, 2, 3))
        longest = {1: 40, 2: 12, 3: 6}[dims]
        if chance.random() < LARGE:
            longest = {1: 9000, 2: 96, 3: 20}[dims]
        shape = tuple(chance.randint(1, longest) for _ in range(dims))
        unit = tuple(chance.randint(1, max(1, extent // 2)) for extent in shape)
        form = chance.choice(FORMS) if form is None else form
        dtype = np.dtype(chance.choice(("i2", "i4", "f8", "c16")))
        elements = math.prod(unit)
        if form not in WHOLE_UNITS:
            elements = max(1, elements // chance.randint(1, 4))
        block_bytes = elements * dtype.itemsize
        options = {
            "block_bytes": block_bytes,
            "cache_bytes": max(1, chance.choice((0, 1, 2, 3, 1000)) * block_bytes),
            "sync": chance.random() < 0.1,
            "servers": chance.randint(1, 3),
            "dedicated": chance.random() < 0.5,
        }
        if chance.random() < SLOW:
            speed = block_bytes / SLOW_BLOCK_SECONDS
            options["faults"] = ps.testing.Faults(bytes_per_second=speed)
        return cls(seed, form, shape, unit, dtype, options)

    @property
    def blocks(self) -> np.ndarray | None:
        """The block of each element, where a chunk or a sub-chunk is one."""
        if self.form not in WHOLE_UNITS:
            return None
        counts = [-(-n // extent) for n, extent in zip(self.shape, self.unit, strict=True)]
        indices = [np.arange(n) // extent for n, extent in zip(self.shape, self.unit, strict=True)]
        numbers = np.arange(math.prod(counts)).reshape(counts)
        return numbers[np.ix_(*indices)].reshape(-1)

    def array(self) -> ps.Array:
        shard = tuple(2 * extent for extent in self.unit)
        dists = ",".join(["BLOCK", *["*"] * (len(self.shape) - 1)])
        disk = {
            "npy": ps.RowMajor("npy"),
            "raw": ps.RowMajor(),
            "parts": ps.Distribution(dists, (2,)),
            "chunks": ps.Chunks(self.unit),
            "pieces": ps.Chunks(self.unit),
            "codec": ps.Chunks(self.unit, codec="zstd:1"),
            "shards": ps.Chunks(shard, self.unit, codec="zstd:1+crc32c"),
            "bare shards": ps.Chunks(shard, self.unit),
        }[self.form]
        return ps.Array("u", self.shape, self.dtype, disk=disk)


class Player:
    """One rank of a case, and the requests that it has made."""

    def __init__(self, session: ps.Session, case: Case, path: Path) -> None:
        self.session, self.case, self.path = session, case, path
        self.requests: list[Request] = []
        self.places = np.arange(math.prod(case.shape)).reshape(case.shape)
        self.common = random.Random(f"common {case.seed}")
        self.own = random.Random(f"rank {case.seed} {session.rank}")
        self.writes = 0
        self.array = session.open(path)

    def play(self) -> list[Request]:
        self.opened = self.session.open(self.path, mode="r+")
        for _ in range(STEPS):
            self.common.choice(
                [self.read_together, self.flush_and_look, self.fail_to_write, self.reopen]
                + 4 * [lambda: None]
            )()
            for _ in range(self.own.randint(0, ALONE_MAX)):
                self.own.choice([self.read_alone, self.write_alone])()
        self.opened.close()
        self.look()
        with self.session.open(self.path, mode="r") as self.opened:
            self.read_alone()
        return self.requests

    def note(self, is_write: bool, begun: int, ended: int, where, found, is_alone=True) -> None:
        places = self.places[where].reshape(-1)
        numbers = np.real(np.asarray(found)).astype(np.int64).reshape(-1)
        who = f"rank {self.session.rank}{'' if is_alone else ', with all,'}"
        self.requests.append(Request(is_write, who, begun, ended, places, numbers, is_alone))

    def part(self) -> tuple[slice, ...]:
        """A random part, often all of one chunk or of all chunks of a row, or nothing."""
        way = self.own.random()
        parts = []
        for extent, unit in zip(self.case.shape, self.case.unit, strict=True):
            start = self.own.randrange(extent)
            if way < 0.3:
                start -= start % unit
                end = min(extent, start + unit)
            else:
                end = self.own.randint(start, extent) if way < 0.4 else extent
                end = end if way > 0.6 else self.own.randint(start + 1, extent)
            parts.append(slice(start, end))
        return tuple(parts)

    def local(self, part: tuple[slice, ...]) -> np.ndarray:
        """Memory of some kind for a part."""
        shape = self.places[part].shape
        return Local.make(shape, self.case.dtype, self.own.choice(LOCAL_KINDS)).view

    def write_alone(self) -> None:
        self.writes += 1
        part = self.part()
        local = self.local(part)
        local[...] = NUMBERS_OF_RANK * self.session.rank + self.writes
        begun = time.monotonic_ns()
        self.opened.write(part, local)
        self.note(True, begun, time.monotonic_ns(), part, local)

    def read_alone(self) -> None:
        part = self.part()
        local = self.local(part)
        begun = time.monotonic_ns()
        self.opened.read(part, out=local)
        self.note(False, begun, time.monotonic_ns(), part, local)

    def read_together(self) -> None:
        """A collective read, in which ranks that the mesh leaves out have no part."""
        ranks = self.common.randint(1, self.session.size)
        kind = self.common.choice(("BLOCK", "CYCLIC", "CYCLIC(2)"))
        dists = ",".join([kind, *["*"] * (len(self.case.shape) - 1)])
        held = Dealt(dists, (ranks,))
        array = self.array.with_memory(held.memory(self.session.rank))
        begun = time.monotonic_ns()
        local = self.session.read(self.path, array)
        where = np.ix_(*held.indices(self.case.shape, self.session.rank))
        self.note(False, begun, time.monotonic_ns(), where, local, is_alone=False)

    def flush_and_look(self) -> None:
        self.opened.flush()
        self.look()

    def look(self) -> None:
        """Other software finds on the disk what all have written. The others wait meanwhile."""
        self.session.barrier()
        if self.session.rank == 0:
            begun = time.monotonic_ns()
            found = on_disk(self.path, self.array)
            self.note(False, begun, time.monotonic_ns(), (...,), found, is_alone=False)
        self.session.barrier()

    def fail_to_write(self) -> None:
        """Nobody writes anew what is open to be changed."""
        rows = ",".join(["BLOCK", *["*"] * (len(self.case.shape) - 1)])
        array = self.array.with_memory(ps.Distribution(rows, (self.session.size,)))
        local = np.full(array.local_shape(self.session.rank), -7, self.case.dtype)
        try:
            self.session.write(self.path, array, local)
        except ps.BusyError:
            return
        raise AssertionError("an array that is open to be changed was written anew")

    def reopen(self) -> None:
        self.opened.close()
        self.opened = self.session.open(self.path, mode="r+")


def stored(case: Case, directory: Path) -> Path:
    """Stores the array of a case, all zero. Of one process."""
    array = case.array()
    path = directory / {"npy": "u.npy", "raw": "u.raw"}.get(case.form, "u")
    with ps.Session(sync=False) as alone:
        alone.write(path, array, np.zeros(case.shape, case.dtype))
    return path


def check(case: Case, requests: list[Request]) -> None:
    """Checks the requests of all ranks."""
    first = first_contents(np.zeros(math.prod(case.shape), np.int64))
    check_elements([first, *requests])
    if case.blocks is not None:
        check_blocks([first, *requests], case.blocks)


def on_threads(case: Case, directory: Path) -> list[Request]:
    """Plays a case on threads, and gives the requests of all."""
    path = stored(case, directory)
    ranks = random.Random(f"ranks {case.seed}").randint(1, 4)
    played = ps.run(lambda s: Player(s, case, path).play(), ranks, **case.options)
    return list(itertools.chain(*played))


def under_mpi(case: Case, directory: Path, comm: Any, transport: str) -> list[Request]:
    """Plays a case on the ranks of an MPI job, and gives rank 0 the requests of all."""
    path = stored(case, directory) if comm.rank == 0 else None
    path = comm.bcast(path)
    options = dict(case.options, transport=transport)
    options["dedicated"] &= comm.size > 1
    options["servers"] = min(options["servers"], max(1, comm.size - options["dedicated"]))
    mine: list[Request] = []
    error = None
    try:
        with ps.Session(comm, **options) as s:
            if s.is_client:
                mine = Player(s, case, path).play()
    except Exception:  # noqa: BLE001 - told on all ranks
        error = f"rank {comm.rank}: {traceback.format_exc()}"
    errors = [each for each in comm.allgather(error) if each is not None]
    assert not errors, "\n".join(errors)
    return list(itertools.chain(*comm.allgather(mine)))


def replayable(seed: int, launcher: str = "") -> contextlib.AbstractContextManager[None]:
    """Says of a failure, or of a hang, how to see it again."""
    return seeds.replayable("claims.py", seed, launcher)


def play_on_threads(seed: int) -> int:
    """Plays the case of a seed on threads and checks it: the number of requests."""
    case = Case.of(seed)
    with replayable(seed), tempfile.TemporaryDirectory(dir=fast_directory()) as directory:
        requests = on_threads(case, Path(directory))
        check(case, requests)
    return len(requests)


def play_under_mpi(seed: int, comm: Any, place: Path) -> int:
    """The same on the ranks of an MPI job, in a place that all of them see."""
    case = Case.of(seed)
    with replayable(seed, f"mpiexec -n {comm.size} "):
        requests = under_mpi(case, place, comm, ("shared", "messages")[seed % 2])
        check(case, requests)
    return len(requests)


if __name__ == "__main__":
    seeds.play(__doc__, 500, play_on_threads, play_under_mpi)
