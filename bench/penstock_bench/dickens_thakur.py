"""This benchmark measures Figures 2 to 7 of a paper on the machine it runs on.

P. M. Dickens and R. Thakur, *Evaluation of Collective I/O Implementations on Parallel
Architectures*: what does each step of tuning gain, and how much of a collective write can be done
in the background of a computation? docs/dickens-thakur.md says what each figure shows.

This module starts ``mpiexec`` once for every number of ranks and every place; the ranks run
:mod:`penstock_bench.split`.

The compute phase takes as long as the write of Figures 5 and 6 in the foreground by two-phase:5, at
the largest number of ranks; this time is found once. For every number of ranks, the
multiplications are counted off anew that take so long when all ranks multiply at once: ranks share
the processors of one machine, where each rank of the paper had its own.

What was *hidden* is how much shorter an iteration is than in the foreground, in percent of the
shorter of its two parts, computation and write. 100 is the most there can be.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock_bench.command import MIB, Parser, UsageError, listed
from penstock_bench.figures import (
    IN_MEMORY,
    Extent,
    Figure,
    Plan,
    Report,
    add_common_options,
    columns,
    run,
    wrong_line,
)
from penstock_bench.job import Result, Runner
from penstock_bench.machine import place
from penstock_bench.split import COLLECTIVE, FINAL, SERVER_DIRECTED, SplitJob, label

ARRAY_MIB, SECTION_MIB = 64, 4
QUICK_ARRAY_MIB, QUICK_SECTION_MIB = 4, 1
SIZE_RANKS = 8
"""Figure 3 takes the number of ranks that is nearest to this from below."""
IO_REPEATS = 3
"""The number of runs whose median is the length of the compute phase."""
SERVERS = 1
"""One host's servers take turns at a flat file: a second one would only wait."""


class Shown(NamedTuple):
    """A figure of the paper shows a case, by all or some contenders."""

    kind: str
    title: str
    labels: tuple[str, ...] | None = None
    """The contenders that it shows, if not all of the case."""


FIGURES = {
    2: Shown("bandwidth", "Write bandwidth by number of ranks"),
    3: Shown("bandwidth", "Write bandwidth by size of the array"),
    4: Shown("own", "Compute and write, each rank its own section of the file"),
    5: Shown(
        "collective",
        "Compute and collective write: in the foreground, and all of it in the background",
        tuple(label(strategy, how) for strategy in COLLECTIVE for how in ("none", "all")),
    ),
    6: Shown("collective", "Compute and collective write: none, the disk, or all behind"),
    7: Shown("direct", "Compute and collective write, around the page cache"),
}


# ---------------------------------------------------------------------------------------------
# The plan
# ---------------------------------------------------------------------------------------------


class DickensThakur(Plan):
    """The plan of what is to be measured of this paper."""

    ranks_run = "penstock_bench.split"
    numbers = tuple(FIGURES)
    full = Extent(ranks=(2, 4, 8, 16), sizes=(4, 16, 64, 256, 1024), repeats=5)
    """The paper's extent, as far as one machine goes."""
    quick = Extent(ranks=(2,), sizes=(1, 4), repeats=2)

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.array = MIB * (QUICK_ARRAY_MIB if options.quick else ARRAY_MIB)
        self.section = MIB * (QUICK_SECTION_MIB if options.quick else SECTION_MIB)
        if options.throttle is not None and not 0 < options.throttle < float("inf"):
            raise UsageError(f"--throttle is {options.throttle:g}: take more than 0")
        self.sync = not options.no_sync
        self.throttle: float | None = options.throttle and options.throttle * 1e6
        self.size_ranks = max(
            (count for count in self.ranks if count <= SIZE_RANKS), default=min(self.ranks)
        )
        here = Path.cwd()
        memory = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else here
        self.paths = [Path(options.path)] * 2 if options.path else [memory, here]

    @classmethod
    def parser(cls) -> Parser:
        """Return the command line."""
        result = Parser(
            prog="python -m penstock_bench dickens-thakur",
            description="Figures 2 to 7 of Dickens and Thakur: two-phase I/O by steps, split "
            "collectives.",
        )
        ranks, sizes = listed(cls.full.ranks), listed(cls.full.sizes)
        add = result.add_argument
        add("--ranks", metavar="N,N,...", help=f"numbers of ranks (default: {ranks})")
        add("--sizes", metavar="MIB,...", help=f"of Figure 3, powers of 2 (default: {sizes})")
        add(
            "--path",
            metavar="DIR",
            help="directory to write in (default: /dev/shm for Figures 2 and 3, this directory for "
            "4 to 7, where a disk makes sense)",
        )
        add("--repeats", type=int, metavar="N", help=f"(default: {cls.full.repeats})")
        add(
            "--throttle",
            type=float,
            metavar="MB/S",
            help="a disk that is so slow and takes no processor time; without MPI-IO, which has "
            "none",
        )
        add("--no-sync", action="store_true", help="do not bring writes to stable storage")
        add_common_options(result, "2 to 7")
        return result

    def path(self, number: int) -> Path:
        """Return the directory of a figure's files."""
        return self.paths[number >= 4]

    def array_bytes(self, number: int) -> int:
        """Return the size of a figure's largest array in a file."""
        if number == 3:
            return max(self.sizes) * MIB
        if number == 4:
            return max(self.section * max(self.ranks), self.array)
        return self.array

    def jobs(self, directories: list[str], seconds: float) -> list[SplitJob]:
        """Return a job for each number of ranks, in memory and on disk."""
        jobs = []
        for ranks in self.ranks:
            sizes = {self.array} if 2 in self.figures else set()
            if 3 in self.figures and ranks == self.size_ranks:
                sizes |= {size * MIB for size in self.sizes}
            cases = [("bandwidth", size) for size in sorted(sizes)]
            jobs.append(self.job(ranks, cases, directories[0]))
            kinds = [("own", self.section)] if 4 in self.figures else []
            if {5, 6} & set(self.figures):
                kinds.append(("collective", self.array))
            if 7 in self.figures:
                kinds.append(("direct", self.array))
            servers = SERVERS if set(self.figures) & {5, 6, 7} else 0
            jobs.append(
                self.job(ranks, kinds, directories[1], servers=servers, compute_seconds=seconds)
            )
        return [job for job in jobs if job.cases]

    def job(
        self,
        ranks: int,
        cases: list[tuple[str, int]],
        directory: str,
        *,
        servers: int = 0,
        compute_seconds: float = 0.0,
        repeats: int | None = None,
    ) -> SplitJob:
        """Return a job with what all have in common."""
        return SplitJob(
            clients=ranks,
            servers=servers,
            directory=directory,
            cases=cases,
            repeats=repeats or self.repeats,
            sync=self.sync,
            throttle=self.throttle,
            compute_seconds=compute_seconds,
        )

    def calibration(self, directory: str) -> SplitJob | None:
        """Return the job that finds the length of the compute phase, if a figure has one."""
        if max(self.figures) < 4:
            return None
        return self.job(max(self.ranks), [("io", self.array)], directory, repeats=IO_REPEATS)

    def measure(self, runner: Runner, directories: list[str]) -> Report:
        """Run the jobs, and return everything that was measured."""
        calibration = self.calibration(directories[1])
        steps = calibration.steps if calibration else 0
        runner.bar.total = steps + sum(job.steps for job in self.jobs(directories, 1.0))
        seconds = 0.0
        if calibration:
            (io,) = runner.run(calibration)
            seconds = statistics.median(io["seconds"])
        for job in self.jobs(directories, seconds):
            runner.run(job)
        return {
            "machine": runner.machine,
            "sync": self.sync,
            "repeats": self.repeats,
            "throttle_bytes_per_second": self.throttle,
            "compute_seconds": seconds,
            "multiplications_per_rank": runner.multiplications,
            "figures": [drawn(number, self, runner.results) for number in self.figures],
            "measurements": runner.results,
        }

    def text(self, report: Report) -> str:
        """Return the report for people."""
        return text(report)

    def rows(self, report: Report) -> Iterator[list[Any]]:
        """Yield the names of columns, and then a row for each point of each figure."""
        names = ["x", "y", "min", "max", "gained_percent", "hidden_percent"]
        yield ["figure", "series", *names]
        for figure in report["figures"]:
            for one in figure["series"]:
                for p in one["points"]:
                    yield [figure["figure"], one["name"], *(p.get(name, "") for name in names)]


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def drawn(number: int, plan: DickensThakur, results: list[Result]) -> Figure:
    """Return one figure of these results."""
    figure = FIGURES[number]
    mine = [result for result in results if result["kind"] == figure.kind]
    if number == 2:
        mine = [result for result in mine if result["bytes"] == plan.array]
    if number == 3:
        sizes = [size * MIB for size in plan.sizes]
        right = [result for result in mine if result["ranks"] == plan.size_ranks]
        mine = [result for result in right if result["bytes"] in sizes]
    names = list(dict.fromkeys(result["contender"] for result in mine))
    series = [
        {
            "name": name,
            "points": [
                {"x": result["bytes"] // MIB if number == 3 else result["ranks"]}
                | point(result, mine)
                for result in mine
                if result["contender"] == name
            ],
        }
        for name in figure.labels or names
    ]
    return {
        "figure": number,
        "title": f"{figure.title} ({what(number, plan)})",
        "x_label": "size of the array (MiB)" if number == 3 else "number of ranks",
        "y_label": "MB/s" if figure.kind == "bandwidth" else "ms an iteration",
        "x_scale": "log2",
        "trials": plan.repeats,
        "where": place(plan.path(number)),
        "series": series,
    }


def what(number: int, plan: DickensThakur) -> str:
    """Say what was written in a figure."""
    if number == 3:
        return f"{plan.size_ranks} ranks"
    if number == 4:
        return f"{plan.section // MIB} MiB a rank"
    return f"{plan.array // MIB} MiB"


def point(result: Result, others: list[Result]) -> dict[str, Any]:
    """Return median and spread of a result; of an iteration also what was gained and hidden."""
    seconds = result["seconds"]
    is_rate = result["kind"] == "bandwidth"
    ys = [result["bytes"] / one / 1e6 if is_rate else 1e3 * one for one in seconds]
    y = statistics.median(ys)
    cv = statistics.stdev(ys) / y if len(ys) > 1 else 0.0
    found = {"y": y, "cv": cv, "min": min(ys), "max": max(ys), "wrong": result["wrong"]}
    return found if is_rate else found | overlap(result, others)


def overlap(result: Result, others: list[Result]) -> dict[str, float]:
    """Compare an iteration with the one of its strategy in the foreground, in percent."""
    name = result["contender"]
    strategy = "disk-directed" if name == SERVER_DIRECTED else name.rpartition(",")[0]
    wanted = result["ranks"], label(strategy, "none")
    (beside,) = (other for other in others if (other["ranks"], other["contender"]) == wanted)
    foreground = statistics.median(beside["seconds"])
    write, compute, _ = (statistics.median(part) for part in zip(*beside["parts"], strict=True))
    saved = foreground - statistics.median(result["seconds"])
    return {
        "write_seconds": write,
        "compute_seconds": compute,
        "gained_percent": 100 * saved / foreground,
        "hidden_percent": 100 * saved / min(write, compute),
    }


def text(report: Report) -> str:
    """Return the report for people."""
    machine = report["machine"]
    lines = [
        f"{machine['cpus']} x {machine['cpu']}; {machine['mpi']}; "
        f"load average {machine['load_average_at_start']:.1f} when it began",
        f"medians of {report['repeats']}, of large arrays fewer (least-greatest); writes "
        f"{'with' if report['sync'] else 'without'} sync; 1 MB is 10^6 bytes",
    ]
    if report["throttle_bytes_per_second"]:
        rate = report["throttle_bytes_per_second"] / 1e6
        lines.append(f"the disk: throttled to {rate:g} MB/s, takes no processor time")
    if report["compute_seconds"]:
        lines.append(
            f"compute phase: {report['compute_seconds']:.3f} s of multiplications, as long as a "
            f"write by {FINAL} takes with the most ranks"
        )
    for figure in report["figures"]:
        lines += ["", *table(figure)]
    return "\n".join(lines)


def table(figure: Figure) -> list[str]:
    """Return one figure in rows and columns."""
    series = figure["series"]
    xs = [str(p["x"]) for p in series[0]["points"]]
    cells = [[f"{figure['y_label']} by {figure['x_label']}", *xs]]
    cells += [[one["name"], *map(spread, one["points"])] for one in series]
    overlapped = [one for one in series if not one["name"].endswith(", none")]
    if "hidden_percent" in series[0]["points"][0]:
        cells += [["percent saved (hidden)", *xs]]
        cells += [[one["name"], *map(gains, one["points"])] for one in overlapped]
    return [
        f"Figure {figure['figure']}. {figure['title']}",
        f"in {figure['where']}",
        *columns(cells),
        *wrong_line(figure),
    ]


def spread(p: dict[str, Any]) -> str:
    """Write median, least and greatest as ``812 (790-830)``."""
    digits = 0 if p["y"] >= 100 else 1
    return f"{p['y']:.{digits}f} ({p['min']:.{digits}f}-{p['max']:.{digits}f})"


def gains(p: dict[str, Any]) -> str:
    """Write percent gained and hidden as ``32 (71)``."""
    return f"{p['gained_percent']:.0f} ({p['hidden_percent']:.0f})"


def main(arguments: list[str]) -> int:
    """Run the benchmark, and return the exit code."""
    return run(DickensThakur, arguments)
