"""This benchmark rearranges an array on disk, beside rechunker and TensorStore.

One array in chunks that are thin along one dimension is copied to chunks that are thin along
another, so that every chunk of the one has elements of every chunk of the other. Each program
copies the same source (Zarr format 2, which all read, without codec) in a process of its own, in
turn; time counts from after its imports, and memory is the most that the process had resident
beyond what it had then.

rechunker needs an older zarr than Penstock's tests do: it runs by an interpreter of its own
(``make bench-copy`` makes one).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from penstock_bench.command import FailedError, Parser, UsageError, complain, parse_dims

TIMED = """
import json, resource, sys, time
def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
source, target, scratch = sys.argv[1:4]
chunks = tuple(json.loads(sys.argv[4]))
memory = int(sys.argv[5])
{imports}
before, start = resident(), time.perf_counter()
{copy}
seconds = time.perf_counter() - start
print(json.dumps([seconds, resident() - before]))
"""

TENSORSTORE = {
    "imports": "import tensorstore as ts",
    "copy": """
store = {"kvstore": {"driver": "file", "path": source}, "driver": "zarr"}
old = ts.open(store).result()
new = ts.open({
    "driver": "zarr3", "kvstore": {"driver": "file", "path": target}, "create": True,
    "metadata": {
        "shape": list(old.shape), "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    },
}).result()
new.write(old).result()
""",
}

RECHUNKER = {
    "imports": "import dask, zarr\nfrom rechunker import rechunk",
    "copy": """
old = zarr.open_array(source, mode="r")
plan = rechunk(old, chunks, memory, target, temp_store=scratch)
with dask.config.set(scheduler="threads"):
    plan.execute()
""",
}


def make_source(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """Make an array of random numbers, in chunks without codec."""
    import zarr

    array = zarr.create_array(
        path, shape=shape, chunks=chunks, dtype="f8", compressors=None, zarr_format=2
    )
    random = np.random.default_rng(1)
    # Whole chunks at a time: along the dimension in which they are thin.
    thin = min(range(len(shape)), key=lambda d: chunks[d] / shape[d])
    step = chunks[thin] * max(1, 16 // chunks[thin])
    for start in range(0, shape[thin], step):
        part = [slice(None)] * len(shape)
        part[thin] = slice(start, min(start + step, shape[thin]))
        extents = [len(range(*p.indices(n))) for p, n in zip(part, shape, strict=True)]
        array[tuple(part)] = random.random(extents)


def is_same(source: Path, target: Path) -> bool:
    """Tell whether zarr-python finds the same values in both."""
    import zarr

    old, new = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r")
    rows = (slice(start, start + 64) for start in range(0, old.shape[0], 64))
    same = (np.array_equal(np.asarray(old[r]), np.asarray(new[r])) for r in rows)
    return old.shape == new.shape and all(same)


class Rivals:
    """The rivals are programs that copy."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        self.options, self.place = options, place
        self.source, self.scratch = place / "source.zarr", place / "scratch"

    def names(self) -> list[str]:
        """Return the names of the rivals in the order of the table."""
        penstock = [f"penstock, {memory}" for memory in self.options.memory]
        rechunker = ["rechunker"] if self.options.rechunker else []
        return [*penstock, "TensorStore", *rechunker, "a copy of the files"]

    def run(self, name: str, target: Path) -> tuple[float, int]:
        """Return seconds, and bytes of memory beyond what the process had before."""
        if name.startswith("penstock"):
            return self.penstock(target, name.split(", ")[1])
        if name == "a copy of the files":
            return self.plain(target)
        program = TIMED.format(**(TENSORSTORE if name == "TensorStore" else RECHUNKER))
        python = self.options.rechunker if name == "rechunker" else sys.executable
        return timed([python, "-c", program, *self.arguments(target)])

    def arguments(self, target: Path) -> list[str]:
        """Return what a program is told."""
        chunks, limit = json.dumps(self.options.to), str(self.options.rechunker_memory)
        return [str(self.source), str(target), str(self.scratch), chunks, limit]

    def penstock(self, target: Path, memory: str) -> tuple[float, int]:
        """Run the command as a user does. All its memory counts, and its time from its start."""
        chunks = ",".join(map(str, self.options.to))
        program = (
            "import json, os, resource, subprocess, sys, time\n"
            "start = time.perf_counter()\n"
            "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
            "seconds = time.perf_counter() - start\n"
            "used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024\n"
            "print(json.dumps([seconds, used]))\n"
            "sys.exit(done.returncode)\n"
        )
        command = [sys.executable, "-m", "penstock", "copy", str(self.source), str(target)]
        command += ["--chunks", chunks, "--memory", memory, "--no-sync"]
        return timed([sys.executable, "-c", program, *command])

    def plain(self, target: Path) -> tuple[float, int]:
        """Copy the same bytes in the same files: the most that the machine can do."""
        program = TIMED.format(imports="import shutil", copy="shutil.copytree(source, target)")
        return timed([sys.executable, "-c", program, *self.arguments(target)])


def timed(command: list[str]) -> tuple[float, int]:
    """Return the seconds and bytes that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise FailedError(lines[-1].removeprefix("penstock: error: "))
    seconds, used = json.loads(done.stdout.splitlines()[-1])
    return seconds, used


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the options."""
    parser = Parser(
        prog="python -m penstock_bench copy",
        description="Rearrange an array, beside what others take.",
    )
    add = parser.add_argument
    add("--shape", default="512,512,512", metavar="N,N,...", help="(default: %(default)s)")
    add("--from", dest="source", default="512,512,1", metavar="N,N,...", help="chunks before")
    add("--to", default="1,512,512", metavar="N,N,...", help="chunks after")
    add("--memory", action="append", help="for penstock; several times for several [256MiB, 64MiB]")
    add("--repeats", type=int, default=5, help="(default: %(default)s)")
    add("--directory", type=Path, default=None, help="where to do it [/dev/shm if it is there]")
    add("--rechunker", metavar="PYTHON", help="an interpreter that has rechunker and dask")
    add("--rechunker-memory", type=int, default=256 << 20, metavar="BYTES", help="its max_mem")
    options = parser.parse_args(arguments)
    options.memory = options.memory or ["256MiB", "64MiB"]
    for name, option in (("shape", "--shape"), ("source", "--from"), ("to", "--to")):
        setattr(options, name, parse_dims(getattr(options, name), option))
    if not len(options.shape) == len(options.source) == len(options.to):
        raise UsageError("--shape, --from and --to must have as many dimensions each")
    return options


def main(arguments: list[str]) -> int:
    """Run the benchmark, and return the exit code."""
    try:
        options = parse(arguments)
        found = measure(options)
    except (UsageError, FailedError) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    print_table(options, 8 * int(np.prod(options.shape)), found)
    return 0


def measure(options: argparse.Namespace) -> dict[str, list[tuple[float, int]]]:
    """Let the rivals copy in turn, and check what they made."""
    directory = options.directory or (Path("/dev/shm") if os.path.isdir("/dev/shm") else None)
    found: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory(dir=directory) as place:
        rivals = Rivals(options, Path(place))
        make_source(rivals.source, options.shape, options.source)
        for turn in range(options.repeats):
            for name in rivals.names():
                target = Path(place) / "target.zarr"
                try:
                    found.setdefault(name, []).append(rivals.run(name, target))
                except FailedError as error:
                    raise FailedError(f"{name}: {error}") from error
                if turn == 0 and not is_same(rivals.source, target):
                    raise FailedError(f"{name}: what it made is not what there was")
                shutil.rmtree(target)
                shutil.rmtree(rivals.scratch, ignore_errors=True)
    return found


def print_table(
    options: argparse.Namespace, size: int, found: dict[str, list[tuple[float, int]]]
) -> None:
    """Print medians, and the range of the seconds."""
    shape, old, new = map(list, (options.shape, options.source, options.to))
    print(f"{shape} float64, {size / 1e6:.0f} MB, chunks {old} to {new}, {options.repeats} runs")
    print(f"{'':<22}{'MB/s':>8}{'seconds (range)':>24}{'memory, MiB':>14}")
    for name, runs in found.items():
        seconds = sorted(run[0] for run in runs)
        rate = size / median(seconds) / 1e6
        spread = f"{median(seconds):.2f} ({seconds[0]:.2f}-{seconds[-1]:.2f})"
        used = median(run[1] for run in runs) / 2**20
        print(f"{name:<22}{rate:>8.0f}{spread:>24}{used:>14.0f}")
