"""One case of the benchmark `predict`, measured on threads or as a rank of an MPI job."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

import penstock as ps

Strategy = Literal["disk-directed", "two-phase", "caching", "independent", "auto"]
STRATEGIES: tuple[Strategy, ...] = ("disk-directed", "two-phase", "caching", "independent")
AUTO: Strategy = "auto"
"""The choice of the session, measured beside the strategies and in turn with them."""


@dataclass(frozen=True)
class Call:
    """A call moves an array of float64 between the memories of ranks and the disk."""

    shape: tuple[int, ...]
    memory: str
    mesh: tuple[int, ...]
    chunks: tuple[int, ...] | None
    """Chunks of a Zarr array, or nothing for a flat file."""
    ranks: int
    direct: bool


TIMESTEP = "timestep"
SAID_FIRST, SAID_LAST = "timestep, said of the first", "timestep, said of the last"

Times = dict[str, list[tuple[float, float]]]
"""When calls began and ended, by a clock that all ranks share."""


def measure(session: ps.Session, call: Call, place: Path, rounds: int) -> Times:
    """Write and read by each strategy and by choice in turn, and give the times of this rank.

    A strategy that cannot write the array is left out: independent I/O, where chunks are shared.
    """
    rank = session.rank
    assert rank is not None
    disk = ps.RowMajor("raw") if call.chunks is None else ps.Chunks(call.chunks)
    memory = ps.Distribution(call.memory, mesh=call.mesh)
    array = ps.Array("u", call.shape, "f8", memory=memory, disk=disk)
    values = np.random.default_rng(rank).random(array.local_shape(rank))
    back = np.zeros_like(values)
    times: Times = {}
    for number in range(rounds + 1):  # the first one warms up
        # Each is first as often as the others: what comes later finds other caches.
        rivals = (*STRATEGIES, AUTO)
        first = number % len(rivals)
        for strategy in (*rivals[first:], *rivals[:first]):
            path = place / f"{strategy}-{number}"
            session.barrier()
            begun = time.monotonic()
            try:
                session.write(path, array, values, strategy=strategy)
            except ps.Error:
                continue
            written = begun, time.monotonic()
            session.barrier()
            begun = time.monotonic()
            session.read(path, array, back, strategy=strategy)
            read = begun, time.monotonic()
            if not np.array_equal(back, values):
                raise SystemExit("something else was read than was written")
            session.barrier()
            if rank == 0:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if number > 0:
                times.setdefault(f"{strategy} write", []).append(written)
                times.setdefault(f"{strategy} read", []).append(read)
    return times


def measure_saves(session: ps.Session, call: Call, place: Path, rounds: int) -> Times:
    """Save timesteps of a group of two arrays, and give the times of this rank.

    What the session says of the first and of the last one is in the same dictionary, as if it had
    begun at 0.
    """
    rank = session.rank
    assert rank is not None
    disk = None if call.chunks is None else ps.Chunks(call.chunks)
    memory = ps.Distribution(call.memory, mesh=call.mesh)
    arrays = [ps.Array(name, call.shape, "f8", memory=memory, disk=disk) for name in "uv"]
    group = ps.Group("saves", arrays, path=place / "saves")
    local = np.random.default_rng(rank).random(arrays[0].local_shape(rank))
    took, said = [], []
    for _ in range(rounds + 1):
        session.barrier()
        begun = time.monotonic()
        report = session.timestep(group, {"u": local, "v": local})
        took.append((begun, time.monotonic()))
        if report.predicted is not None:
            said.append((0.0, report.predicted.seconds))
    return {TIMESTEP: took[1:], SAID_FIRST: said[:1], SAID_LAST: said[-1:]}


def seconds_of(of_ranks: list[Times]) -> dict[str, float]:
    """Give the median over the rounds of the seconds from the last rank's beginning to the last's
    end."""

    def of_calls(name: str) -> list[float]:
        rounds = zip(*(times[name] for times in of_ranks), strict=True)
        return [max(end for _, end in each) - max(begun for begun, _ in each) for each in rounds]

    return {name: median(of_calls(name)) for name in of_ranks[0]}


def on_threads(call: Call, place: Path, rounds: int, preset: Path) -> dict[str, float]:
    """Measure with ranks that are threads of this process."""
    direct = True if call.direct else None
    measured = ps.run(
        lambda session: (
            measure(session, call, place, rounds) | measure_saves(session, call, place, rounds)
        ),
        call.ranks,
        sync=False,
        direct=direct,
        machine=preset,
    )
    return seconds_of(measured)


def main() -> None:
    """Measure as a rank of a job; rank 0 prints the seconds as JSON."""
    from mpi4py import MPI

    told, place, rounds, preset = sys.argv[1:]
    fields: dict[str, Any] = json.loads(told)
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    call = Call(**fields | lists)
    comm = MPI.COMM_WORLD
    direct = True if call.direct else None
    with ps.Session(comm, sync=False, direct=direct, machine=preset) as session:
        mine = measure(session, call, Path(place), int(rounds))
        mine |= measure_saves(session, call, Path(place), int(rounds))
    of_ranks = comm.gather(mine)
    if of_ranks is not None:
        print(json.dumps(seconds_of(of_ranks)))


if __name__ == "__main__":
    main()
