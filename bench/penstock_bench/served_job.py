"""Every rank of the shared files of the benchmark ``served`` runs this module.

Each rank is a client of servers that stand. It writes its part of a file, syncs, and reads the part
of the next rank; all is checked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import penstock as ps
from penstock_bench.command import MIB, FailedError
from penstock_bench.hard_job import PIECE_BYTES
from penstock_bench.job import Job, main_of_rank
from penstock_bench.meters import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py.MPI import Intracomm

COLLECTIVE, INDEPENDENT = MODES = ("collective", "each by itself")


@dataclass(frozen=True, kw_only=True)
class ServedJob(Job):
    """A job has one case and one mode. Its directory is the URL of the servers."""

    kind: str
    """``hard`` or ``easy``."""
    mode: str
    mib: int
    """The size of the file, about."""


def run(job: ServedJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Write and read once, check, and tell `say` the seconds of each."""
    piece = PIECE_BYTES[job.kind]
    pieces = max(1, round(job.mib * MIB / piece / comm.size))
    # A subfile for each rank: pieces in turn, or all of its pieces one after the other.
    view = ps.View(vbs=1 if job.kind == "hard" else pieces, vn=comm.size)
    path, next_rank = f"/shared-{job.kind}", (comm.rank + 1) % comm.size
    mine = part_of(comm.rank, pieces * piece)
    out = np.zeros_like(mine)
    with ps.FileSystem(job.directory, comm) as fs:
        if comm.rank == 0:
            fs.create(path, cells=1, bsu=piece)
        comm.Barrier()
        with fs.attach_all(path, "r+") as file:

            def write() -> None:
                if job.mode == COLLECTIVE:
                    file.write_all(view, comm.rank, mine)
                else:
                    own = file.open(view, comm.rank)
                    for at in range(0, mine.size, piece):
                        own.write_at(at, mine[at : at + piece])
                file.sync()

            def read() -> None:
                if job.mode == COLLECTIVE:
                    file.read_all(view, next_rank, out)
                else:
                    theirs = file.open(view, next_rank)
                    for at in range(0, out.size, piece):
                        theirs.read_at(at, out[at : at + piece])

            seconds = {"write": timed(comm, write)[0], "read": timed(comm, read)[0]}
        if not np.array_equal(out, part_of(next_rank, out.size)):
            raise FailedError(f"rank {comm.rank} has read something else")
        comm.Barrier()
        if comm.rank == 0:
            fs.remove(path)
    about = {"kind": job.kind, "mode": job.mode, "bytes": comm.size * mine.size}
    say(result=about | seconds)


def part_of(rank: int, count: int) -> np.ndarray:
    """Return the bytes that a rank writes."""
    return np.random.default_rng(rank).integers(0, 256, count, np.uint8)


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = ServedJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
