"""Every rank of the benchmark ``hard`` runs this module: one program, one case, a new process.

The first read of the job is the first that its processes make. The file is there before: the
command that starts the job has made it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock_bench.case import Case, Disk, Distribution, Elements
from penstock_bench.command import MIB
from penstock_bench.job import Job, main_of_rank
from penstock_bench.machine import machine_facts
from penstock_bench.meters import real_time, rest, timed
from penstock_bench.rivals import Contender, MpiIo, Options, Penstock, best_hints
from penstock_bench.storage import (
    bring_into_cache,
    drop_from_cache,
    give_space_back,
    touch_free_memory,
)

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

ELEMENT = np.dtype("f8")
PIECE_BYTES = {"hard": 47_008, "easy": MIB}
"""The contiguous bytes of one piece: a record, or what an easy rank moves at once."""
AGGREGATORS_MAX = 8
DEALT = {"hard": "CYCLIC,*", "easy": "BLOCK,*"}

COLD_FIRST, COLD_LATER, WARM, WRITE = OPERATIONS = ("first cold", "later cold", "warm", "write")


@dataclass(frozen=True, kw_only=True)
class HardJob(Job):
    """A job has one program and one case."""

    kind: str
    """``hard`` or ``easy``."""
    program: str
    mib: int
    """The size of the file, about."""
    source: str
    """The file that is read."""
    salts: tuple[int, int]
    """Those of the values that are read, and of those that are written."""
    cb_buffer_mib: int
    real_time: bool


def make_case(kind: str, bytes_: int, directory: Path, rank: int, ranks: int) -> Case:
    """Return the case with as many pieces for each rank, in all about `bytes_` bytes."""
    piece = PIECE_BYTES[kind]
    pieces = max(1, round(bytes_ / piece / ranks)) * ranks
    shape = (pieces, piece // ELEMENT.itemsize)
    dealt = Distribution.parse(DEALT[kind], (ranks,))
    return Case(shape, ELEMENT, dealt, Disk("row-major"), directory, True, rank, ranks)


class Posix(Contender):
    """Every rank moves its own pieces by ``pread`` and ``pwrite``, one after the other."""

    name = "posix"

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> Sequence[Posix]:
        """Make the only variant."""
        return [cls(cls.name, case, comm)]

    def write(self, target: Path, local: Elements) -> None:
        self._move(target, local, os.O_WRONLY | os.O_CREAT, os.pwritev)

    def read(self, target: Path, out: Elements) -> None:
        self._move(target, out, os.O_RDONLY, os.preadv)

    def _move(self, target: Path, local: Elements, flags: int, call: Callable[..., int]) -> None:
        pieces = self.case.local_indices()[0].tolist()
        file = os.open(target, flags, 0o644)
        try:
            for piece, elements in zip(pieces, local, strict=True):
                memory = memoryview(elements).cast("B")
                if call(file, [memory], piece * memory.nbytes) != memory.nbytes:
                    raise OSError(f"{target}: a call was cut short")
            if flags != os.O_RDONLY:
                os.fsync(file)
        finally:
            os.close(file)


def penstock(case: Case, comm: Intracomm, direct: bool | None = None) -> Penstock:
    """Make Penstock with this value of ``direct``, or with its default."""
    return Penstock(case, comm, Options(direct=direct), "disk-directed")


PROGRAMS: dict[str, Callable[[Case, Intracomm, int], Contender]] = {
    "Penstock": lambda case, comm, _: penstock(case, comm),
    "Penstock, direct=False": lambda case, comm, _: penstock(case, comm, direct=False),
    "Penstock, direct=True": lambda case, comm, _: penstock(case, comm, direct=True),
    "POSIX": lambda case, comm, _: Posix(Posix.name, case, comm),
    "MPI-IO": lambda case, comm, mib: MpiIo(
        case, comm, MpiIo.name, best_hints(min(AGGREGATORS_MAX, comm.size), mib)
    ),
}


def run(job: HardJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Read three times, write once, check everything, and tell `say` the seconds of each."""
    say(machine=machine_facts())
    case = make_case(job.kind, job.mib * MIB, Path(job.directory), comm.rank, comm.size)
    source, target = Path(job.source), case.directory / "written"
    local = np.zeros(case.local_shape(), case.dtype)
    out = np.zeros(case.local_shape(), case.dtype)
    case.fill(local, job.salts[0])
    program = PROGRAMS[job.program](case, comm, job.cb_buffer_mib)
    seconds: dict[str, float] = {}
    wrong = 0

    def seconds_of(move: Callable[[Path, Elements], None], path: Path, memory: Elements) -> float:
        def call() -> None:
            with real_time() if job.real_time else contextlib.nullcontext():
                move(path, memory)

        return timed(comm, call)[0]

    for operation in (COLD_FIRST, COLD_LATER, WARM):
        out.reshape(-1).view(np.uint8)[...] = 0xA5
        if comm.rank == 0:
            drop_from_cache(source)
            if operation == WARM:
                bring_into_cache(source)
        rest(comm)
        seconds[operation] = seconds_of(program.read, source, out)
        wrong += int(np.count_nonzero(out != local))
    case.fill(local, job.salts[1])
    if comm.rank == 0:
        touch_free_memory(case.directory, case.bytes)
    rest(comm)
    seconds[WRITE] = seconds_of(program.write, target, local)
    wrong += program.wrong_on_disk(target, job.salts[1])
    rest(comm)
    if comm.rank == 0:
        give_space_back(target)
        target.unlink()
    program.close()
    about = {"kind": job.kind, "program": job.program, "bytes": math.prod(case.shape) * 8}
    say(result=about | {"seconds": seconds, "wrong": comm.allreduce(wrong)})


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = HardJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
