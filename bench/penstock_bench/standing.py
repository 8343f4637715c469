"""This benchmark hands timesteps to standing servers, and says when the job has its time back.

The ranks are threads of one program, clients of one server process on this host. In turn they save
a timestep of equal bytes by servers of their own; by the standing servers, waiting for its end; and
by `begin_timestep` with `background="disk"`, which returns when the servers have the elements. A
time is the median of the rounds. Beside it: one file of as many bytes, written and synced.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

import penstock as ps
from penstock_bench.command import MIB, FailedError, Parser
from penstock_bench.directories import run_in_each
from penstock_bench.machine import file_system
from penstock_bench.running import serving

FILE = "one file, written and synced"
OWN = "a timestep by the job's own servers"
WAITED = "by standing servers, waited for"
HANDED, ENDED = "by standing servers, handed over", "  and ended"

Times = dict[str, list[float]]


@contextmanager
def standing(directory: Path, servers: int) -> Iterator[str]:
    """Servers of the arrays in `directory`, by their URL."""
    volume = directory / "volume"
    ps.FileSystem.create(volume, servers=servers, capacity=64 * MIB).close()
    url = f"unix://{volume}/penstock.sock"
    with serving(url, volume, "--arrays", directory):
        yield url


def group(session: ps.Session, path: Path | str, mib: int) -> tuple[ps.Group, np.ndarray]:
    """A group of one array of `mib` MiB, and this rank's part."""
    shape = (mib, MIB // 8)
    memory = ps.Distribution("BLOCK,*", session.size)
    u = ps.Array("u", shape, "f8", memory, ps.Chunks((1, MIB // 8)))
    return ps.Group("run", [u], path), np.random.default_rng(1).random(u.local_shape(session.rank))


def timed(session: ps.Session, times: Times, name: str, call: Callable[[], object]) -> None:
    """Note the time of a call of all ranks, on rank 0."""
    session.barrier()
    begun = time.perf_counter()
    call()
    session.barrier()
    if session.rank == 0:
        times.setdefault(name, []).append(time.perf_counter() - begun)


def by_standing(session: ps.Session, times: Times, mib: int) -> None:
    """Save two timesteps by standing servers, and check the last."""
    run, local = group(session, "standing.zarr", mib)
    timed(session, times, WAITED, lambda: session.timestep(run, {"u": local}))
    begun: list[ps.Split[ps.Report]] = []

    def hand_over() -> None:
        begun.append(session.begin_timestep(run, {"u": local}, background="disk"))

    start = time.perf_counter()
    timed(session, times, HANDED, hand_over)
    begun[0].end()
    if session.rank == 0:
        times.setdefault(ENDED, []).append(time.perf_counter() - start)


def write_file(path: Path, mib: int) -> float:
    """Seconds that one file takes."""
    piece = os.urandom(MIB)
    begun = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(piece)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begun
    path.unlink()
    return seconds


def measure(directory: Path, ranks: int, servers: int, mib: int, rounds: int) -> Times:
    """Measure all, in turn."""
    times: Times = {}
    own, arrays = directory / "own.zarr", directory / "standing.zarr"

    def by_own(session: ps.Session) -> None:
        run, local = group(session, own, mib)
        timed(session, times, OWN, lambda: session.timestep(run, {"u": local}))

    with standing(directory, servers) as url:
        for _ in range(rounds):
            times.setdefault(FILE, []).append(write_file(directory / "file", mib))
            ps.run(by_own, ranks, servers=servers)
            ps.run(lambda session: by_standing(session, times, mib), ranks, servers=url)
            for store in (own, arrays):
                if not ps.verify(store):
                    raise FailedError(f"{store} is damaged")
                subprocess.run(["rm", "-r", str(store)], check=True)
    return times


def table(directory: Path, times: Times, mib: int) -> str:
    """Write the times of one directory as a table."""
    kind = file_system(directory)
    medians = {name: median(each) for name, each in times.items()}
    lines = [f"{f'{mib} MiB on {kind}':<40}{'ms':>10}{'of waited':>12}"]
    for name, each in medians.items():
        lines.append(f"{name:<40}{1e3 * each:>10.1f}{each / medians[WAITED]:>12.2f}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Run the benchmark, and print a table for each directory."""
    parser = Parser(prog="python -m penstock_bench standing", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="the size of a timestep")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)

    def measured(directory: Path, options: argparse.Namespace) -> str:
        numbers = (options.ranks, options.servers, options.mib, options.rounds)
        return table(directory, measure(directory, *numbers), options.mib)

    counts = ("mib", "ranks", "servers", "rounds")
    return run_in_each(parser, words, measured, name="standing", counts=counts)
