"""Two builds of Penstock, side by side: what a change has cost or gained.

    python tools/compare_builds.py --old OTHER/.venv/bin/python --disk /path/on/a/disk

Each build runs each case in jobs of its own, the two in turn; a case's figure is the median of its
jobs, a job's the median of its repeats. Both builds run this file, which uses only what both have.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

SHAPE = (256, 256, 512)
MESH = (2, 2, 2)
RANKS = 8
REPEATS = 5
CASES = {
    "write": "shm disk",
    "read": "shm disk",
    "write chunks": "shm",
    "read chunks": "shm",
    "write CYCLIC": "shm",
    "read CYCLIC": "shm",
    "timestep": "shm disk",
    "split write": "disk",
    "copy": "shm",
}
"""The cases, and the places in which each is measured."""


def job(case: str, directory: Path) -> None:
    """One job of one case, on all ranks: prints seconds, by rank 0."""
    import numpy as np
    from mpi4py import MPI

    import penstock as ps

    comm = MPI.COMM_WORLD
    dists = "CYCLIC,CYCLIC,*" if "CYCLIC" in case else "BLOCK,BLOCK,BLOCK"
    mesh = (4, 2) if "CYCLIC" in case else MESH
    disk = ps.Chunks((96, 96, 96)) if "chunks" in case else None
    if "CYCLIC" in case:
        disk = ps.Chunks((64, 64, 64))
    given: dict[str, Any] = {} if disk is None else {"disk": disk}
    array = ps.Array("u", SHAPE, "f8", memory=ps.Distribution(dists, mesh=mesh), **given)
    with ps.Session(comm) as s:
        rank = s.rank
        assert rank is not None
        local = np.random.default_rng(rank).random(array.local_shape(rank))
        path = directory / "run.zarr"
        act = actions(s, array, local, path)[case.split()[0]]
        act(0)
        seconds = []
        for repeat in range(1, REPEATS + 1):
            comm.Barrier()
            begun = time.perf_counter()
            act(repeat)
            comm.Barrier()
            seconds.append(time.perf_counter() - begun)
    if comm.rank == 0:
        print(json.dumps(median(seconds)))


def actions(s: Any, array: Any, local: Any, path: Path) -> dict[str, Callable[[int], object]]:
    """What a repeat of each case does."""
    import penstock as ps

    group = ps.Group("g", [array], path=path)

    def split(_: int) -> None:
        s.begin_write(path, array, local).end()

    def read(repeat: int) -> None:
        if repeat == 0:
            s.write(path, array, local)
        s.read(path, array, local)

    return {
        "write": lambda _: s.write(path, array, local),
        "read": read,
        "timestep": lambda repeat: s.timestep(group, {"u": local}, time=float(repeat)),
        "split": split,
    }


def copy_seconds(python: str, directory: Path) -> float:
    """The time of `penstock copy` between chunks that are thin along different dimensions."""
    source, target = directory / "source.zarr", directory / "target.zarr"
    make = (
        "import sys, numpy as np, penstock as ps\n"
        "s = ps.Session()\n"
        "a = ps.Array('u', (256, 256, 512), 'f8', disk=ps.Chunks((4, 256, 512)))\n"
        "s.write(sys.argv[1], a, np.random.default_rng(1).random((256, 256, 512)))\n"
        "s.close()\n"
    )
    run([python, "-c", make, str(source)])
    seconds = []
    for _ in range(REPEATS):
        shutil.rmtree(target, ignore_errors=True)
        begun = time.perf_counter()
        chunks = ["--array", "u", "--chunks", "256,256,8", "--memory", "64MiB", "--no-sync"]
        run([str(Path(python).parent / "penstock"), "copy", str(source), str(target), *chunks])
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def run(command: list[str]) -> str:
    """The output of a command, which must succeed."""
    environment = {**os.environ, "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds_of(case: str, python: str, place: Path) -> float:
    """One job of a case by one build, in an empty directory."""
    directory = Path(tempfile.mkdtemp(dir=place))
    try:
        if case == "copy":
            return copy_seconds(python, directory)
        mpiexec = str(Path(python).parent / "mpiexec")
        command = [mpiexec, "-n", str(RANKS), python, __file__, "--job", case, str(directory)]
        return float(json.loads(run(command).splitlines()[-1]))
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """Runs all cases, and prints a table."""
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--old", required=True, help="the other build's Python")
    parser.add_argument("--new", default=sys.executable)
    parser.add_argument("--shm", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--disk", type=Path, required=True, help="a directory on a disk")
    parser.add_argument("--jobs", type=int, default=7, help="jobs of each case and build")
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    places = {"shm": options.shm, "disk": options.disk}
    print(f"{'ms, medians of ' + str(options.jobs):<28}{'old':>9}{'new':>9}{'new/old':>9}  spread")
    for case in options.cases.split(","):
        for name in CASES[case].split():
            times: dict[str, list[float]] = {"old": [], "new": []}
            for _ in range(options.jobs):
                for build in times:
                    python = getattr(options, build)
                    times[build].append(seconds_of(case, python, places[name]))
            old, new = median(times["old"]), median(times["new"])
            ratios = sorted(n / o for n, o in zip(times["new"], times["old"], strict=True))
            print(
                f"{case + ', ' + name:<28}{old * 1e3:9.1f}{new * 1e3:9.1f}{new / old:9.3f}"
                f"  {ratios[0]:.2f} to {ratios[-1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
