"""This benchmark reads small parts of an array at random, one rank without the others.

The array fits the caches of all programs. Each reads parts of 4 KiB, in turn; a rate is the median
of the rounds. The limit is a copy out of the page cache by one system call. Under ``mpiexec -n 2``
the servers are of an MPI job: rank 0 reads.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import penstock as ps
from penstock_bench.command import Parser, UsageError, complain

ROWS, COLUMNS = 4096, 512
"""A row is a part: 512 elements of 8 bytes."""

CHUNK = (256, COLUMNS)

Reader = Callable[[int, np.ndarray], object]


@contextmanager
def by_penstock(path: Path, comm: Any, *, dedicated: bool) -> Iterator[Reader | None]:
    """Give a reader through one server; None on a rank that only serves or waits."""
    options: dict[str, Any] = {"servers": 1, "dedicated": dedicated}
    with ps.Session(comm, **options) as session:
        if not session.is_client:
            yield None
            return
        with session.open(path, mode="r") as array:
            yield (lambda row, out: array.read(row, out)) if session.rank == 0 else None


@contextmanager
def by_zarr(path: Path) -> Iterator[Reader]:
    """Give a reader through zarr-python."""
    import zarr

    array = zarr.open_array(path / "u", mode="r")

    def read(row: int, out: np.ndarray) -> None:
        out[0] = array[row]

    yield read


@contextmanager
def by_system(path: Path) -> Iterator[Reader]:
    """Give a reader by one system call out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    yield lambda row, out: os.preadv(file, [out.data], row * out.nbytes)
    os.close(file)


def rate(reader: Reader, rows: np.ndarray, values: np.ndarray) -> float:
    """Reads a second; the last one is checked."""
    out = np.empty((1, COLUMNS))
    wanted = rows.tolist()
    begun = time.perf_counter()
    for row in wanted:
        reader(row, out)
    seconds = time.perf_counter() - begun
    if not np.array_equal(out[0], values[wanted[-1]]):
        raise SystemExit("a program has read something else")
    return len(wanted) / seconds


def measure(directory: Path, comm: Any, reads: int, rounds: int) -> dict[str, float]:
    """Measure all programs, in turn; on ranks other than 0 the rates mean nothing."""
    values = np.random.default_rng(1).random((ROWS, COLUMNS))
    store, flat = directory / "parts.zarr", directory / "parts.bin"
    rank = comm.rank if comm is not None else 0
    if rank == 0:
        with ps.Session() as session:
            session.write(store, ps.Array("u", values.shape, "f8", disk=ps.Chunks(CHUNK)), values)
        values.tofile(flat)
    if comm is not None:
        comm.Barrier()
    ours = {"Penstock, a server of its own": True}
    if comm is None:
        ours["Penstock, a server beside the rank"] = False
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        readers: dict[str, Reader | None] = {}
        if rank == 0:
            readers["a system call, page cache"] = stack.enter_context(by_system(flat))
            readers["zarr-python"] = stack.enter_context(by_zarr(store))
        for name, dedicated in ours.items():
            opened = by_penstock(store, comm, dedicated=dedicated)
            readers[name] = stack.enter_context(opened)
        for number in range(rounds if rank == 0 else 0):
            rows = np.random.default_rng(number).integers(0, ROWS, reads)
            for name, reader in readers.items():
                if reader is not None:
                    few = rows[: max(len(rows) // 20, 1)] if name == "zarr-python" else rows
                    rates.setdefault(name, []).append(rate(reader, few, values))
    return {name: median(each) for name, each in rates.items()}


def main(words: list[str]) -> int:
    """Run the benchmark, and print its table on rank 0."""
    parser = Parser(prog="python -m penstock_bench parts", description=__doc__)
    parser.add_argument("--reads", type=int, default=20_000, help="reads of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    try:
        options = parser.parse_args(words)
        if options.reads < 1 or options.rounds < 1:
            raise UsageError("--reads and --rounds are at least 1")
    except UsageError as error:
        complain(error)
        return 2
    comm = communicator()
    directory = shared_directory(options.directory, comm)
    try:
        rates = measure(directory, comm, options.reads, options.rounds)
    finally:
        if comm is not None:
            comm.Barrier()
        if comm is None or comm.rank == 0:
            shutil.rmtree(directory)
    if rates:
        print(f"{'reads of 4 KiB that a cache has':<38}{'a second':>12}{'us':>8}")
        for name, each in rates.items():
            print(f"{name:<38}{each:>12,.0f}{1e6 / each:>8.1f}")
    return 0


def communicator() -> Any:
    """The ranks of the MPI job that this process was started in, if it was."""
    if not any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")):
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None


def shared_directory(place: Path, comm: Any) -> Path:
    """Make a directory that all ranks use."""
    made = ""
    if comm is None or comm.rank == 0:
        made = tempfile.mkdtemp(prefix="penstock-parts-", dir=place)
    return Path(made if comm is None else str(comm.bcast(made)))
