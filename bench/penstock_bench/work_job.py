"""Every rank of the benchmark ``work`` runs this module: it selects, or deals out by value."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as ps
from penstock_bench.job import Job, main_of_rank
from penstock_bench.machine import machine_facts
from penstock_bench.meters import rest, timed
from penstock_bench.storage import bring_into_cache, drop_from_cache

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PARTICLE = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("id", "i8")])
"""A record of 32 bytes."""
SELECT, READ_ALL = "select 1%", "read, look"
DEAL, EXCHANGE = "select by value", "read, mpi4py exchange"
GROUP, BOUNDED = "select 1% of a group", "select 1%, bounds kept"
PROGRAMS = (SELECT, READ_ALL, DEAL, EXCHANGE, GROUP, BOUNDED)
CHUNK_BYTES = 1 << 20

Elements = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class WorkJob(Job):
    """A job has one program."""

    program: str
    elements: int
    """Of the array that the program reads: doubles, or particles."""
    source: str
    """The file of the array; a group is made beside it."""
    is_cold: bool


def array(job: WorkJob, ranks: int) -> ps.Array:
    """Give the array that all ranks read, in parts."""
    dtype = np.dtype("f8") if job.program in (SELECT, READ_ALL) else PARTICLE
    memory = ps.Distribution("BLOCK", ranks)
    return ps.Array("u", (job.elements,), dtype, memory, ps.RowMajor("npy"))


def exchange(comm: Intracomm, own: Elements) -> Elements:
    """Send each particle to the rank of its slab of x, as a program with mpi4py does it."""
    ranks = (own["x"] * comm.size).astype(np.intp)
    order = np.argsort(ranks, kind="stable")
    sent = own[order]
    counts = np.bincount(ranks, minlength=comm.size)
    coming = np.empty_like(counts)
    comm.Alltoall(counts, coming)
    got = np.empty(int(coming.sum()), PARTICLE)
    bytes_of = PARTICLE.itemsize

    def spread(numbers: Elements) -> tuple[Elements, Elements]:
        return numbers * bytes_of, (np.cumsum(numbers) - numbers) * bytes_of

    comm.Alltoallv([sent.view(np.uint8), spread(counts)], [got.view(np.uint8), spread(coming)])
    return got


def run_group(job: WorkJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Save ascending doubles as a timestep, select the lowest, and tell `say` both times."""
    path = Path(job.source).with_name("group.zarr")
    memory = ps.Distribution("BLOCK", comm.size)
    disk = ps.Chunks((CHUNK_BYTES // 8,))
    u = ps.Array("u", (job.elements,), "f8", memory, disk)
    group = ps.Group("g", [u], path, bounds=job.program == BOUNDED)
    own = np.arange(job.elements, dtype="f8")[u.local_slices(comm.rank)] / job.elements
    with ps.Session(comm) as session:

        def save() -> None:
            session.timestep(group, {"u": own})

        saved = timed(comm, save)[0]
        if comm.rank == 0:
            drop_from_cache(path)
        rest(comm)
        in_time = ps.Array("u", (1, job.elements), "f8", ps.Distribution("*,BLOCK", comm.size))
        got: list[Elements] = []

        def select() -> None:
            got.append(session.select(path, in_time, where="u < 0.01").values)

        seconds = timed(comm, select)[0]
    total = comm.allreduce(len(got[0]))
    wrong = int(total != -(-job.elements // 100) or not (got[0] < 0.01).all())
    wrong = comm.allreduce(wrong)
    if comm.rank == 0:
        shutil.rmtree(path)
    say(result={"program": job.program, "seconds": seconds, "saved": saved, "wrong": wrong})


def run(job: WorkJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Run the program once, check what each rank has got, and tell `say` the seconds."""
    say(machine=machine_facts())
    if job.program in (GROUP, BOUNDED):
        run_group(job, comm, say)
        return
    source = Path(job.source)
    with ps.Session(comm) as session:
        u = array(job, comm.size)
        splitters = [rank / comm.size for rank in range(1, comm.size)]
        got: list[Elements] = []

        def select() -> None:
            got.append(session.select(source, u, where="u < 0.01").values)

        def read_all() -> None:
            own = np.asarray(session.read(source, u))
            got.append(own[own < 0.01])

        def deal() -> None:
            got.append(session.select(source, u, by="x", splitters=splitters).values)

        def read_and_exchange() -> None:
            got.append(exchange(comm, np.asarray(session.read(source, u))))

        programs = {SELECT: select, READ_ALL: read_all, DEAL: deal, EXCHANGE: read_and_exchange}
        if comm.rank == 0:
            drop_from_cache(source) if job.is_cold else bring_into_cache(source)
        rest(comm)
        seconds = timed(comm, programs[job.program])[0]
    [found] = got
    if job.program in (SELECT, READ_ALL):
        is_right, of_all = bool((found < 0.01).all()), 0.01
    else:
        ranks = (found["x"] * comm.size).astype(int)
        is_right, of_all = bool((ranks == comm.rank).all()), 1.0
    total = comm.allreduce(len(found))
    is_right &= abs(total - of_all * job.elements) <= (1 - of_all) * 0.1 * of_all * job.elements
    if job.program in (DEAL, EXCHANGE):
        is_right &= comm.allreduce(int(found["id"].sum())) == job.elements * (job.elements - 1) // 2
    wrong = comm.allreduce(int(not is_right))
    say(result={"program": job.program, "seconds": seconds, "wrong": wrong})


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = WorkJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
