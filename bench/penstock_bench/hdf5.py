"""This benchmark writes one array to HDF5, beside a flat file and beside parallel HDF5.

The array is a cube of doubles, BLOCK over three dimensions of 8 ranks, which are threads with two
servers. The stores take turns; a figure is the median of the rounds, of a write that is not synced:

- a flat file (``RowMajor("raw")``);
- a dataset of HDF5 as one run of elements, and one with a chunk for each rank;
- such a dataset with ``deflate:1``, beside zlib alone, which compresses the same chunks in memory
  with two threads: no faster way goes through that library on two cores.

With ``--h5pcc``, or if ``h5pcc.mpich`` or ``h5pcc`` is there, a program of parallel HDF5 writes the
same collectively, with 8 processes of the MPI that it was built for, in turn with the others.

The values are a smooth field with noise in the lower half of each number: they compress to about
two thirds.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np

import penstock as ps
from penstock_bench.command import MIB, FailedError, Parser, UsageError, complain

SOURCE = Path(__file__).with_name("parallel_hdf5.c")
RANKS = 8
MESH = (2, 2, 2)
SECONDS_MAX = 900

FLAT = "flat file"
RUN = "HDF5, one run"
CHUNKS = "HDF5, chunks"
DEFLATE = "HDF5, chunks, deflate:1"
ZLIB = "zlib alone, two threads"
PARALLEL = "parallel HDF5, one run"
PARALLEL_CHUNKS = "parallel HDF5, chunks"
PEER = {RUN: PARALLEL, CHUNKS: PARALLEL_CHUNKS}


def values(rank: int, extent: int) -> np.ndarray:
    """Make a rank's part: a field that is smooth, with noise."""
    half = extent // 2
    along = np.linspace(rank, rank + 1, half)
    field = np.sin(along)[:, None, None] * np.cos(along)[None, :, None] + along[None, None, :]
    noise = np.random.default_rng(rank).integers(0, 1 << 32, field.shape, dtype="u8")
    return ((field.view("u8") & ~np.uint64((1 << 32) - 1)) | noise).view("f8")


def array_of(store: str, extent: int) -> ps.Array:
    """Make the array as a store has it."""
    half = (extent // 2,) * 3
    disks: dict[str, ps.RowMajor | ps.HDF5] = {
        FLAT: ps.RowMajor("raw"),
        RUN: ps.HDF5(),
        CHUNKS: ps.HDF5(half),
        DEFLATE: ps.HDF5(half, filters="deflate:1"),
    }
    memory = ps.Distribution("BLOCK,BLOCK,BLOCK", MESH)
    return ps.Array("u", (extent,) * 3, "f8", memory=memory, disk=disks[store])


def compress(parts: list[np.ndarray]) -> float:
    """Give the seconds in which zlib compresses all parts with two threads."""
    with ThreadPoolExecutor(2) as pool:
        begun = time.perf_counter()
        list(pool.map(lambda part: len(zlib.compress(part, 1)), parts))
        return time.perf_counter() - begun


def compiled(compiler: str, directory: Path) -> Path:
    """Compile the program of parallel HDF5."""
    target = directory / "parallel_hdf5"
    command = [compiler, "-O2", "-o", str(target), str(SOURCE)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"{compiler} cannot compile the program: {done.stderr.strip()}")
    return target


def run_parallel(program: Path, mpiexec: str, file: Path, extent: int, is_chunked: bool) -> float:
    """Give the seconds of a write by parallel HDF5, in a job of its own; the first warms up."""
    command = [mpiexec, "-n", str(RANKS), program, file, extent, int(is_chunked), 2]
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"parallel HDF5 took more than {SECONDS_MAX} s") from error
    if done.returncode != 0:
        raise FailedError(f"parallel HDF5: {done.stderr.strip()}")
    file.unlink()
    return float(done.stdout.split()[-1])


def measure(
    place: Path, extent: int, rounds: int, compiler: str | None, mpiexec: str
) -> dict[str, float]:
    """Give the median seconds of each store."""
    stores = [FLAT, RUN, CHUNKS, DEFLATE, ZLIB]
    program = None
    if compiler is not None:
        program = compiled(compiler, place)
        stores += [PARALLEL, PARALLEL_CHUNKS]
    parts = [values(rank, extent) for rank in range(RANKS)]
    seconds: dict[str, list[float]] = {store: [] for store in stores}

    def write(session: ps.Session) -> float:
        assert session.rank is not None
        part = parts[session.rank]
        session.barrier()
        begun = time.perf_counter()
        session.write(path, array, part)
        session.barrier()
        return time.perf_counter() - begun

    for number in range(rounds + 1):  # the first one warms up
        for store in stores[number % len(stores) :] + stores[: number % len(stores)]:
            path = place / "u"
            if store == ZLIB:
                took = compress(parts)
            elif store in PEER.values():
                assert program is not None
                took = run_parallel(program, mpiexec, path, extent, store == PARALLEL_CHUNKS)
            else:
                array = array_of(store, extent)
                took = max(ps.run(write, RANKS, sync=False, servers=2))
                check(path, array, parts)
                path.unlink()
            if number > 0:
                seconds[store].append(took)
    return {store: median(each) for store, each in seconds.items()}


def check(path: Path, array: ps.Array, parts: list[np.ndarray]) -> None:
    """Compare what was written with what the ranks had."""

    def read(session: ps.Session) -> bool:
        assert session.rank is not None
        return np.array_equal(session.read(path, array), parts[session.rank])

    if not all(ps.run(read, RANKS, servers=2)):
        raise FailedError("something else was read than was written")


def main(words: list[str]) -> int:
    """Run the benchmark, and print its table."""
    parser = Parser(prog="python -m penstock_bench hdf5", description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=512, help="of the array")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--h5pcc", help="compiler of parallel HDF5; 'none' leaves it out")
    parser.add_argument("--mpiexec", help="starts what it compiles (default: as h5pcc is called)")
    try:
        options = parser.parse_args(words)
        if min(options.mebibytes, options.rounds) < 1:
            raise UsageError("--mebibytes and --rounds are at least 1")
        compiler = options.h5pcc or shutil.which("h5pcc.mpich") or shutil.which("h5pcc")
        if compiler == "none":
            compiler = None
        suffix = Path(compiler or "").suffix
        mpiexec = options.mpiexec or shutil.which(f"mpiexec{suffix}")
        if compiler is not None and mpiexec is None:
            raise UsageError("--mpiexec: there is none beside h5pcc")
    except UsageError as error:
        complain(error)
        return 2
    extent = max(2, round((options.mebibytes * MIB / 8) ** (1 / 3)) // 2 * 2)
    place = Path(tempfile.mkdtemp(prefix="penstock-hdf5-", dir=options.directory))
    try:
        found = measure(place, extent, options.rounds, compiler, mpiexec or "")
    except (UsageError, FailedError) as error:
        complain(error)
        return 2
    finally:
        shutil.rmtree(place)
    show(found, extent)
    return 0


def show(found: dict[str, float], extent: int) -> None:
    """Print the table."""
    moved = extent**3 * 8 / MIB
    print(f"{extent} x {extent} x {extent} doubles, {moved:.0f} MiB, of {RANKS} ranks")
    print(f"{'store':<28}{'MiB/s':>8}{'of flat':>10}{'of zlib':>10}{'of parallel HDF5':>18}")
    for store, seconds in found.items():
        flat = f"{found[FLAT] / seconds:.2f}" if store in (RUN, CHUNKS) else ""
        alone = f"{found[ZLIB] / seconds:.2f}" if store == DEFLATE else ""
        peer = PEER.get(store)
        beside = f"{found[peer] / seconds:.1f}" if peer in found else ""
        print(f"{store:<28}{moved / seconds:>8,.0f}{flat:>10}{alone:>10}{beside:>18}")
