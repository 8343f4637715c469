"""What happens when the blocks of a parallel program and the chunks of a store do not meet.

    python examples/unaligned.py

Eight processes hold a 512x512x256 array in 2x2x2 blocks and write it to one Zarr store: first in
chunks of 128^3, whose edges meet those of the blocks, and then in chunks of 96^3, whose edges do
not, so that many chunks belong to two, four or eight processes at once.

- *zarr-python*: every process writes its own region. A shared chunk is read, changed and written
  back by several processes at the same time, and what one of them wrote is lost.
- *TensorStore*: the same, but it locks the files. Nothing is lost; the processes wait for each
  other and write shared chunks again and again.
- *Penstock*: one collective call. Each chunk is put together by one server and written once.

Nobody syncs, since zarr-python cannot.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MESH = (2, 2, 2)
DTYPE = np.dtype("f8")


class ZarrPython:
    """Every process writes its own region, as if it were alone."""

    name = "zarr-python, each its region"

    def __init__(self, comm, shape: tuple[int, ...], where: tuple[slice, ...]) -> None:
        import zarr

        use_fused_codecs()
        self.zarr = zarr
        self.comm, self.shape, self.where = comm, shape, where

    def create(self, target: Path, chunk: tuple[int, ...]) -> None:
        self.zarr.create_array(
            target / "u", shape=self.shape, dtype=DTYPE, chunks=chunk, compressors=None
        )

    def write(self, target: Path, chunk: tuple[int, ...], local: np.ndarray) -> None:
        if self.comm.rank == 0:
            self.create(target, chunk)
        self.comm.Barrier()
        self.zarr.open_array(target / "u", mode="r+")[self.where] = local

    def close(self) -> None:
        pass


def use_fused_codecs() -> None:
    """Turn on the fused codec pipeline, which is faster, if zarr-python has one (from 3.3 on)."""
    import zarr
    from zarr.core import codec_pipeline

    if hasattr(codec_pipeline, "FusedCodecPipeline"):
        zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"})


class TensorStore(ZarrPython):
    """The same with TensorStore, which locks the file of a chunk while it changes it."""

    name = "TensorStore, with its locks"

    def __init__(self, comm, shape: tuple[int, ...], where: tuple[slice, ...]) -> None:
        import tensorstore

        self.tensorstore = tensorstore
        super().__init__(comm, shape, where)

    def write(self, target: Path, chunk: tuple[int, ...], local: np.ndarray) -> None:
        if self.comm.rank == 0:
            self.create(target, chunk)
        self.comm.Barrier()
        store = self.tensorstore.open(
            {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": f"{target}/u/"},
                "context": {"file_io_locking": {"mode": "os"}, "file_io_sync": False},
            }
        ).result()
        store[self.where].write(local).result()


class Penstock:
    """One collective call."""

    name = "Penstock"

    def __init__(self, comm, shape: tuple[int, ...], where: tuple[slice, ...]) -> None:
        import penstock as ps

        self.ps = ps
        self.session, self.shape = ps.Session(comm, sync=False), shape
        self.memory = ps.Distribution("BLOCK,BLOCK,BLOCK", mesh=MESH)

    def write(self, target: Path, chunk: tuple[int, ...], local: np.ndarray) -> None:
        disk = self.ps.Chunks(chunk, codec="none")
        array = self.ps.Array("u", self.shape, DTYPE, memory=self.memory, disk=disk)
        self.session.write(target, array, local)

    def close(self) -> None:
        self.session.close()


def global_index(shape: tuple[int, ...], where: tuple[slice, ...]) -> np.ndarray:
    """Each element's own number, from one: what the array holds."""
    z, y, x = (np.arange(along.start, along.stop, dtype=DTYPE) for along in where)
    return ((z[:, None, None] * shape[1] + y[:, None]) * shape[2] + x) + 1


def elements_lost(comm, target: Path, local: np.ndarray, where: tuple[slice, ...]) -> int:
    """How many elements of all ranks are not in the store."""
    import zarr

    stored = zarr.open_array(target / "u", mode="r")[where]
    return comm.allreduce(int(np.count_nonzero(stored != local)))


def measure(comm, way, chunk: tuple[int, ...], local, where, options) -> tuple[float, int]:
    """The median time of the slowest rank, and the most elements lost in any repeat."""
    from mpi4py import MPI

    seconds, lost = [], []
    for _ in range(options.repeats):
        target = options.path / "unaligned.zarr"
        if comm.rank == 0:
            shutil.rmtree(target, ignore_errors=True)
        comm.Barrier()
        start = time.perf_counter()
        way.write(target, chunk, local)
        seconds.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
        comm.Barrier()
        lost.append(elements_lost(comm, target, local, where))
    return statistics.median(seconds), max(lost)


def work(options) -> None:
    """What every rank does; rank 0 prints the table."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    shape = tuple(options.shape)
    block = [extent // parts for extent, parts in zip(shape, MESH, strict=True)]
    place = np.unravel_index(comm.rank, MESH)
    where = tuple(slice(int(p) * n, (int(p) + 1) * n) for p, n in zip(place, block, strict=True))
    local = global_index(shape, where)
    ways = [way(comm, shape, where) for way in (ZarrPython, TensorStore, Penstock)]
    chunks = [(edge,) * 3 for edge in (options.aligned, options.unaligned)]
    rows = []
    for way in ways:
        if comm.rank == 0:
            print(f"writing with {way.name} ...", file=sys.stderr, flush=True)
        rows.append((way.name, [measure(comm, way, c, local, where, options) for c in chunks]))
        way.close()
    if comm.rank == 0:
        print_table(rows, shape, options)


def print_table(rows: list, shape: tuple[int, ...], options) -> None:
    """A table that Markdown understands, too."""
    total = math.prod(shape)
    extents = "x".join(str(extent) for extent in shape)
    print(f"\n8 processes, {extents} {DTYPE.name} ({total * DTYPE.itemsize / 1e6:.0f} MB)\n")
    heads = ["written with", f"chunks {options.aligned}^3", f"chunks {options.unaligned}^3"]
    heads += ["times as long", "elements lost"]
    widths = [30, 13, 13, 13, 20]
    lines = [heads, ["-" * width for width in widths]]
    for name, ((aligned, lost_aligned), (unaligned, lost)) in rows:
        lost = max(lost, lost_aligned)
        share = f"{lost} ({100 * lost / total:.0f}%)" if lost else "0"
        lines.append([name, f"{aligned:.2f} s", f"{unaligned:.2f} s"])
        lines[-1] += [f"{unaligned / aligned:.1f}", share]
    for line in lines:
        print("| " + " | ".join(f"{w:<{n}}" for w, n in zip(line, widths, strict=True)) + " |")
    sys.stdout.flush()


def launch(arguments: list[str], path: Path) -> int:
    """Runs this file on 8 ranks under the mpiexec that belongs to this Python."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec beside this Python or on the path: pip install mpich mpi4py")
    # Run as a module, mpi4py ends all ranks when one of them raises.
    command = [mpiexec, "-n", str(math.prod(MESH)), sys.executable, "-m", "mpi4py", __file__]
    return subprocess.run([*command, *arguments, "--path", str(path), "--worker"]).returncode


def main() -> None:
    """Reads the options."""
    shared = Path("/dev/shm")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shape", type=int, nargs=3, default=[512, 512, 256], help="extents, all even")
    add("--aligned", type=int, default=128, help="edge of the chunks that meet the blocks")
    add("--unaligned", type=int, default=96, help="edge of the chunks that do not")
    add("--repeats", type=int, default=3, help="times to write, each way (default: %(default)s)")
    add("--path", type=Path, default=shared if shared.is_dir() else None, help="where to write")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if any(extent % parts for extent, parts in zip(options.shape, MESH, strict=True)):
        parser.error("--shape: the extents must be even")
    if options.worker:
        work(options)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-unaligned-", dir=options.path) as directory:
        code = launch(sys.argv[1:], Path(directory))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
