"""This benchmark has servers select elements and deal them out, and does the same without them.

- *select 1%*: ``Session.select`` of one double in a hundred, from a file that the page cache does
  not have, beside direct reads of the file, which are the limit, and beside a read of everything
  by Penstock whose ranks then look with NumPy;
- *deal out*: particles of 32 bytes to the rank of their slab, by ``Session.select(by=...)``,
  beside a read by Penstock and an exchange by mpi4py (``argsort`` and ``Alltoallv``); the page
  cache has the file, so that the disk is not what is measured;
- *of a group*: the lowest hundredth of ascending doubles from a timestep of a group, cold, without
  and with the bounds of chunks, and what the save of the timestep takes without and with them.

Programs alternate, each a job of its own; medians are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.lib import format as npy

from penstock_bench.command import (
    MIB,
    FailedError,
    Parser,
    UsageError,
    check_directory,
    complain,
    show_step,
)
from penstock_bench.direct import direct_rate
from penstock_bench.figures import columns, scratch
from penstock_bench.job import Runner, find_mpiexec
from penstock_bench.machine import file_system, place
from penstock_bench.meters import in_turn
from penstock_bench.work_job import (
    BOUNDED,
    DEAL,
    EXCHANGE,
    GROUP,
    PARTICLE,
    PROGRAMS,
    READ_ALL,
    SELECT,
    WorkJob,
)

CHUNK_ELEMENTS = 1 << 20


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line, and refuse what makes no sense."""
    parser = Parser(prog="python -m penstock_bench work", description=__doc__)
    add = parser.add_argument
    add("--ranks", type=int, default=4, help="(default: %(default)s)")
    add("--mib", type=int, default=1024, help="the size of each file (default: %(default)s)")
    add("--repeats", type=int, default=5, help="jobs of a program (default: %(default)s)")
    add("--path", default=".", help="directory to write in (default: this one)")
    add("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(words)
    for name in ("ranks", "mib", "repeats"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} is at least 1")
    check_directory(Path(options.path), 2 * options.mib * MIB, "the benchmark")
    return options


def make_sources(directory: Path, bytes_: int) -> tuple[Path, Path]:
    """Write a file of doubles and one of particles, both uniform in 0 to 1."""
    random = np.random.default_rng(7)
    doubles, particles = directory / "doubles.npy", directory / "particles.npy"
    for path, dtype in ((doubles, np.dtype("f8")), (particles, PARTICLE)):
        count = bytes_ // dtype.itemsize
        with path.open("wb") as file:
            head = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
            npy.write_array_header_1_0(file, head)
            for start in range(0, count, CHUNK_ELEMENTS):
                part: np.ndarray[Any, Any] = np.zeros(min(CHUNK_ELEMENTS, count - start), dtype)
                if dtype.names is None:
                    part[...] = random.random(len(part))
                else:
                    for name in "xyz":
                        part[name] = random.random(len(part))
                    part["id"] = np.arange(start, start + len(part))
                file.write(part.data)
            file.flush()
            os.fsync(file.fileno())
    return doubles, particles


def measure(options: argparse.Namespace, runner: Runner, directory: Path) -> dict[str, Any]:
    """Run all jobs, in turn, and return the seconds of each."""
    bytes_ = options.mib * MIB
    sources = dict(zip(("f8", "records"), make_sources(directory, bytes_), strict=True))
    rates: list[float] = []
    runner.bar.total = options.repeats * len(PROGRAMS)
    for repeat, program in in_turn(PROGRAMS, range(options.repeats)):
        show_step(runner.bar, f"{program}, repeat {repeat + 1}")
        is_cold = program not in (DEAL, EXCHANGE)
        source = sources["f8" if is_cold else "records"]
        if program == SELECT and file_system(directory) != "tmpfs":
            rates.append(direct_rate(source, "read"))
        runner.run(
            WorkJob(
                clients=options.ranks,
                directory=str(directory),
                program=program,
                elements=bytes_ // (8 if is_cold else PARTICLE.itemsize),
                source=str(source),
                is_cold=is_cold,
            )
        )
    seconds: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    saves: dict[str, list[float]] = {GROUP: [], BOUNDED: []}
    for result in runner.results:
        if result["wrong"]:
            raise FailedError(f"{result['program']}: wrong elements on {result['wrong']} ranks")
        seconds[result["program"]].append(result["seconds"])
        if "saved" in result:
            saves[result["program"]].append(result["saved"])
    return {"seconds": seconds, "saves": saves, "disk": rates, "bytes": bytes_}


def table(report: dict[str, Any], where: str, ranks: int) -> str:
    """Return the report for people."""
    seconds = {program: median(all_) for program, all_ in report["seconds"].items()}
    rate = {program: report["bytes"] / took / 1e6 for program, took in seconds.items()}
    disk = median(report["disk"]) / 1e6 if report["disk"] else None

    def of_disk(program: str) -> str:
        return "" if disk is None else f"{rate[program] / disk:.2f} of the disk"

    rows = [["", "s", "MB/s", ""]]
    if disk is not None:
        rows.append(["direct reads of the file", "", f"{disk:.0f}", "the limit"])
    for program, note in (
        (SELECT, of_disk(SELECT)),
        (READ_ALL, of_disk(READ_ALL)),
        (DEAL, f"{seconds[EXCHANGE] / seconds[DEAL]:.2f} times the exchange"),
        (EXCHANGE, ""),
        (GROUP, ""),
        (BOUNDED, f"{seconds[GROUP] / seconds[BOUNDED]:.1f} times as fast"),
    ):
        rows.append([program, f"{seconds[program]:.3f}", f"{rate[program]:.0f}", note])
    plain, bounded = (median(report["saves"][program]) for program in (GROUP, BOUNDED))
    rate_of = report["bytes"] / 1e6
    rows.append(["save of the group", f"{plain:.3f}", f"{rate_of / plain:.0f}", ""])
    note = f"{plain / bounded:.2f} of its speed"
    rows.append(["save, bounds kept", f"{bounded:.3f}", f"{rate_of / bounded:.0f}", note])
    mib = report["bytes"] // MIB
    return "\n".join([f"{ranks} ranks, {mib} MiB each, {where}", "", *columns(rows)])


def main(words: list[str]) -> int:
    """Run the benchmark, and print its table."""
    try:
        options = parse(words)
        runner = Runner(find_mpiexec(), "penstock_bench.work_job", not options.quiet)
    except UsageError as error:
        complain(error)
        return 2
    with scratch([Path(options.path)]) as [directory]:
        try:
            report = measure(options, runner, Path(directory))
        except FailedError as error:
            complain(error)
            return 1
    runner.bar.close()
    print(table(report, place(Path(options.path)), options.ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
