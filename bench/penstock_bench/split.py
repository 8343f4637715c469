"""Every rank of the benchmark ``dickens-thakur`` runs this module, which measures one job.

    mpiexec -n RANKS python -m penstock_bench.split JOB

The clients of a job are its first ranks. The others are servers that do nothing else: they sleep
while what needs none is measured.

Time is taken as :mod:`penstock_bench.meters` says. The contenders alternate within each repeat, in
turn forwards and backwards, and every byte is verified each time. One repeat before them is thrown
away. Arrays of a gigabyte are written half as often, and without that.

A *case* is an array of one size and what is done with it:

- ``bandwidth``: one write, by each strategy and by MPI-IO;
- ``io``: one write by the strategy that the paper found best, for the length of the compute phase;
- ``own``: compute and write, each rank one section of the file that is its own (Figure 4);
- ``collective``: compute and write, distributed by blocks (Figures 5 and 6);
- ``direct``: the same around the page cache (Figure 7).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

import penstock as ps
from penstock_bench.case import Case, Disk, Distribution, Elements
from penstock_bench.job import Job, Result, main_of_rank
from penstock_bench.machine import machine_facts
from penstock_bench.meters import in_turn, rest, timed
from penstock_bench.rivals import MpiIo, best_hints, penstock_array, penstock_disk
from penstock_bench.storage import give_space_back, touch_free_memory

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

STRATEGIES = ("independent", "two-phase:1", "two-phase:2", "two-phase:5", "disk-directed")
MPIIO = "MPI-IO"
MPIIO_AGGREGATORS_MAX = 8
"""More were not faster: see docs/performance.md."""
FINAL = "two-phase:5"
"""The paper's best implementation is this: its Figures 4 to 7 use it."""
COLLECTIVE = (FINAL, "disk-directed")
BACKGROUNDS = ("none", "disk", "all")
"""The computation has nothing beside it, the disk alone, or everything."""
SERVER_DIRECTED = "server-directed"

ELEMENT_BYTES = 4
LARGE_BYTES = 512 << 20
"""Arrays from this size on are slow to fill and to verify, and need no warm-up."""
PRODUCTS = 8192
"""So many numbers are multiplied over and over: 64 KiB, which stay in the cache."""
FACTORS = 1.0 + 2**-20, 1.0 / (1.0 + 2**-20)
"""Factors take turns, so that the products stay near 1."""
RATE_SECONDS = 0.2
"""Ranks multiply so long to find how fast they are: many turns of the scheduler."""


@dataclass(frozen=True, kw_only=True)
class SplitJob(Job):
    """A job measures these cases with one number of ranks."""

    cases: list[tuple[str, int]]
    """The kind of each case, and the bytes of its array."""
    repeats: int
    sync: bool
    throttle: float | None = None
    """Bytes a second of a disk that takes no processor time, in place of the one there is."""
    compute_seconds: float = 0.0

    @property
    def steps(self) -> int:
        """The number of calls that it measures."""
        return sum(len(self.labels(kind)) * len(self.turns(size)) for kind, size in self.cases)

    def turns(self, bytes_: int) -> range:
        """Return the repeats for an array of that size; repeat number 0 does not count."""
        return range(self.repeats + 1) if bytes_ < LARGE_BYTES else range(1, self.repeats // 2 + 2)

    def labels(self, kind: str) -> list[str]:
        """Return the contenders of a case. MPI-IO has no disk that is throttled."""
        if kind == "bandwidth":
            return [*STRATEGIES, *([] if self.throttle else [MPIIO])]
        if kind == "io":
            return [FINAL]
        if kind == "own":
            return [label("independent", background) for background in BACKGROUNDS]
        every = [label(strategy, how) for strategy in COLLECTIVE for how in BACKGROUNDS]
        return [*every, SERVER_DIRECTED]


def label(strategy: str, background: str) -> str:
    """Return what tables call a strategy with part of it in the background."""
    return f"{strategy}, {background}"


# ---------------------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------------------


def square(count: int) -> tuple[int, int]:
    """Return two factors of ``count``, as equal as can be, the larger one last.

    As a mesh of 2 or 8 ranks it cuts rows, not only columns: so elements must be exchanged.
    """
    small = next(n for n in range(math.isqrt(count), 0, -1) if count % n == 0)
    return small, count // small


def make_case(job: SplitJob, kind: str, bytes_: int, rank: int) -> Case:
    """Return the array of a case: by blocks on a square mesh, or of whole rows."""
    shape, memory = square(bytes_ // ELEMENT_BYTES), "BLOCK,BLOCK"
    mesh: tuple[int, ...] = square(job.clients)
    if kind == "own":
        shape, memory, mesh = (shape[0] * job.clients, shape[1]), "BLOCK,*", (job.clients,)
    return Case(
        shape,
        np.dtype("i4"),
        Distribution.parse(memory, mesh),
        Disk("row-major"),
        Path(job.directory),
        job.sync,
        rank,
        job.clients,
    )


# ---------------------------------------------------------------------------------------------
# The compute phase
# ---------------------------------------------------------------------------------------------


class Compute:
    """The compute phase multiplies numbers in place, for a given time when all ranks do.

    It is work, not a pause: what takes the processor meanwhile delays it.
    """

    def __init__(self, comm: Intracomm, seconds: float) -> None:
        self.numbers = np.ones(PRODUCTS)
        self.turns = 1
        while (taken := self._seconds(comm)) < RATE_SECONDS:
            self.turns = math.ceil(self.turns * min(8.0, 1.5 * RATE_SECONDS / taken))
        rates = sorted(self.turns / self._seconds(comm) for _ in range(3))
        self.turns = max(1, round(rates[1] * seconds))

    def __call__(self) -> None:
        for turn in range(self.turns):
            np.multiply(self.numbers, FACTORS[turn % 2], out=self.numbers)

    @property
    def multiplications(self) -> int:
        """The number of multiplications on each rank."""
        return self.turns * PRODUCTS

    def _seconds(self, comm: Intracomm) -> float:
        return timed(comm, self)[0]


# ---------------------------------------------------------------------------------------------
# Contenders
# ---------------------------------------------------------------------------------------------


class Way(Protocol):
    """A way to write an array, with a computation or without."""

    label: str

    def write(self, target: Path, local: Elements) -> None:
        """Write this rank's share."""


class Write:
    """One write by a strategy of Penstock."""

    def __init__(self, label: str, session: ps.Session, array: ps.Array) -> None:
        self.label, self.session, self.array = label, session, array

    def write(self, target: Path, local: Elements) -> None:
        by: Any = self.label
        self.session.write(str(target), self.array, local, strategy=by)


class Iteration:
    """One iteration: a write that begins, computation, and the end of the write."""

    def __init__(
        self, label: str, session: ps.Session, array: ps.Array, compute: Compute, **how: Any
    ) -> None:
        self.label, self.session, self.array = label, session, array
        self.compute, self.how = compute, how
        self.parts: Sequence[float] = (0.0, 0.0, 0.0)

    def write(self, target: Path, local: Elements) -> None:
        times = [time.perf_counter()]
        split = self.session.begin_write(str(target), self.array, local, **self.how)
        times.append(time.perf_counter())
        self.compute()
        times.append(time.perf_counter())
        split.end()
        times.append(time.perf_counter())
        self.parts = [float(part) for part in np.diff(times)]


@contextlib.contextmanager
def contenders(
    job: SplitJob, kind: str, case: Case, comm: Intracomm, world: Intracomm, compute: Compute | None
) -> Iterator[list[Way]]:
    """Make the contenders of a case, with their sessions and the servers of the case."""
    array, labels = penstock_array(case, penstock_disk(case)), job.labels(kind)
    with contextlib.ExitStack() as stack:
        by_ranks = stack.enter_context(session(job, kind, comm, writers=job.clients))
        by_servers = stack.enter_context(session(job, kind, comm, writers=1))
        found: list[Way] = []
        for name in STRATEGIES:
            mine = by_servers if name == "disk-directed" else by_ranks
            if name in labels:
                found.append(Write(name, mine, array))
            for how in BACKGROUNDS:
                if compute and (title := label(name, how)) in labels:
                    by = {"strategy": name, "background": how}
                    found.append(Iteration(title, mine, array, compute, **by))
        if MPIIO in labels:
            hints = best_hints(min(MPIIO_AGGREGATORS_MAX, case.size))
            found.append(stack.enter_context(contextlib.closing(MpiIo(case, comm, MPIIO, hints))))
        if compute and SERVER_DIRECTED in labels:
            served = stack.enter_context(serving(job, kind, world))
            by = {"strategy": "disk-directed"}
            found.append(Iteration(SERVER_DIRECTED, served, array, compute, **by))
        yield found


def session(job: SplitJob, kind: str, comm: Intracomm, *, writers: int, **how: Any) -> ps.Session:
    """Open a session for a number of writing ranks: they share what a throttled disk gives."""
    if job.throttle:
        how["faults"] = ps.testing.Faults(bytes_per_second=job.throttle / writers)
    if kind == "direct":
        how["direct"] = True
    return ps.Session(comm, sync=job.sync, **how)


def serving(job: SplitJob, kind: str, world: Intracomm) -> ps.Session:
    """Open a session with servers that do nothing else, until the clients close it."""
    rest(world)
    return session(job, kind, world, writers=1, servers=job.servers, dedicated=True)


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def measure(
    case: Case,
    comm: Intracomm,
    found: list[Way],
    turns: range,
    salts: Iterator[int],
    step: Callable[[str], None],
) -> list[Result]:
    """Measure all contenders, again and again, and return what the ranks agree on of each.

    Each call takes a salt of its own, and leaves empty files, which the command removes at its end.
    """
    from mpi4py import MPI

    local = np.zeros(case.local_shape(), case.dtype)
    results: dict[str, Result] = {
        way.label: {"contender": way.label, "seconds": [], "parts": [], "wrong": 0} for way in found
    }
    for repeat, way in in_turn(found, turns):
        salt = next(salts)
        target = case.directory / f"{case.name}-{salt}"
        case.fill(local, salt)
        step(way.label)
        if comm.rank == 0:
            touch_free_memory(case.directory, case.bytes)
        rest(comm)
        seconds, _ = timed(comm, lambda: way.write(target, local))  # noqa: B023
        result = results[way.label]
        result["wrong"] += comm.allreduce(case.wrong_on_disk(target, salt))
        if repeat > 0:
            result["seconds"].append(seconds)
        if repeat > 0 and isinstance(way, Iteration):
            result["parts"].append([comm.allreduce(part, MPI.MAX) for part in way.parts])
        if comm.rank == 0:
            give_space_back(target)
        rest(comm)
    return list(results.values())


def run(job: SplitJob, world: Intracomm, say: Callable[..., None]) -> None:
    """Measure the job, and tell `say` of every step and every result."""
    is_client = world.rank < job.clients
    comm = cast("Intracomm", world.Split(0 if is_client else 1))
    if not is_client:
        for kind, _ in job.cases:
            if SERVER_DIRECTED in job.labels(kind):
                serving(job, kind, world)
        rest(world)
        return
    say(machine=machine_facts())
    compute = None
    if job.compute_seconds > 0:
        compute = Compute(comm, job.compute_seconds)
        say(ranks=job.clients, multiplications=compute.multiplications)
    # Others of the command have written to the same directory.
    place = tempfile.mkdtemp(dir=job.directory) if comm.rank == 0 else ""
    job = replace(job, directory=comm.bcast(place))
    salts = itertools.count(1)
    for kind, bytes_ in job.cases:
        case = make_case(job, kind, bytes_, comm.rank)
        about = {"kind": kind, "array_bytes": bytes_, "bytes": case.bytes, "ranks": job.clients}

        def step(text: str, about: dict[str, Any] = about) -> None:
            say(step=f"{about['ranks']} ranks, {about['bytes'] >> 20} MiB: {text}")

        with contenders(job, kind, case, comm, world, compute) as found:
            for result in measure(case, comm, found, job.turns(bytes_), salts, step):
                say(result=about | result)
    rest(world)


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = SplitJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
