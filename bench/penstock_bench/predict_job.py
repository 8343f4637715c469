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

Strategy = Literal["disk-directed", "two-phase", "caching", "independent"]
STRATEGIES: tuple[Strategy, ...] = ("disk-directed", "two-phase", "caching", "independent")


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


Times = dict[str, list[tuple[float, float]]]
"""When calls began and ended, by a clock that all ranks share."""


def measure(session: ps.Session, call: Call, place: Path, rounds: int) -> Times:
    """Write and read by each strategy in turn, and give the times of this rank.

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
        first = number % len(STRATEGIES)
        for strategy in (*STRATEGIES[first:], *STRATEGIES[:first]):
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


def seconds_of(of_ranks: list[Times]) -> dict[str, float]:
    """Give the median over the rounds of the seconds from the last rank's beginning to the last's
    end."""

    def of_calls(name: str) -> list[float]:
        rounds = zip(*(times[name] for times in of_ranks), strict=True)
        return [max(end for _, end in each) - max(begun for begun, _ in each) for each in rounds]

    return {name: median(of_calls(name)) for name in of_ranks[0]}


def on_threads(call: Call, place: Path, rounds: int) -> dict[str, float]:
    """Measure with ranks that are threads of this process."""
    direct = True if call.direct else None
    measured = ps.run(
        lambda session: measure(session, call, place, rounds),
        call.ranks,
        sync=False,
        direct=direct,
    )
    return seconds_of(measured)


def main() -> None:
    """Measure as a rank of a job; rank 0 prints the seconds as JSON."""
    from mpi4py import MPI

    told, place, rounds = sys.argv[1:]
    fields: dict[str, Any] = json.loads(told)
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    call = Call(**fields | lists)
    comm = MPI.COMM_WORLD
    direct = True if call.direct else None
    with ps.Session(comm, sync=False, direct=direct) as session:
        mine = measure(session, call, Path(place), int(rounds))
    of_ranks = comm.gather(mine)
    if of_ranks is not None:
        print(json.dumps(seconds_of(of_ranks)))


if __name__ == "__main__":
    main()
