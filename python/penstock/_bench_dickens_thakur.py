"""``penstock bench dickens-thakur``: Figures 2 to 7 of a paper, for the machine it runs on.

P. M. Dickens and R. Thakur, *Evaluation of Collective I/O Implementations on Parallel
Architectures*: what does each step of tuning gain, and how much of a collective write can be done
in the background of a computation? docs/dickens-thakur.md says what each figure shows.

This module reads options, starts ``mpiexec`` once for every number of ranks (what the ranks do:
:mod:`penstock._bench_split`), and reports. Exit codes: 0; 1 when something failed or a byte was
wrong; 2 for bad input. Either way one line says what is wrong.

The length of the compute phase is found once: that of the write of Figures 5 and 6 in the
foreground by two-phase:5, at the largest number of ranks. For every number of ranks, the
multiplications are counted off anew that take so long when all ranks multiply at once: ranks share
the processors of one machine, where those of the paper had one each.

What was *hidden* is how much shorter an iteration is than in the foreground, in percent of the
shorter of its two parts, computation and write. 100 is the most there can be.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _plots
from penstock._bench_case import UsageError
from penstock._bench_split import COLLECTIVE, FINAL, SERVER_DIRECTED, Job, label
from penstock.bench import Parser, Progress

MIB = 1 << 20
FULL = {
    "ranks": (2, 4, 8, 16),
    "sizes": (4, 16, 64, 256, 1024),
    "repeats": 5,
    "array": 64,
    "section": 4,
}
"""As in the paper, as far as one machine goes. Sizes in MiB."""
QUICK = {"ranks": (2,), "sizes": (1, 4), "repeats": 2, "array": 4, "section": 1}
SIZE_RANKS = 8
"""Figure 3 takes the number of ranks that is nearest to this from below."""
IO_REPEATS = 3
"""For the length of the compute phase."""
SERVERS = 1
"""One host's servers take turns at a flat file: a second one would only wait."""
IN_MEMORY = Path("/dev/shm")
TOUCHED = 2.2
"""Arrays that must fit: the file, as much free memory touched before it, and a little."""


class FailedError(Exception):
    """It could not be measured; the message is one line for the user."""


class Figure(NamedTuple):
    """One figure of the paper: which case it draws, of which contenders."""

    kind: str
    title: str
    labels: tuple[str, ...] | None = None
    """Contenders, if not all of the case."""


FIGURES = {
    2: Figure("bandwidth", "Write bandwidth by number of ranks"),
    3: Figure("bandwidth", "Write bandwidth by size of the array"),
    4: Figure("own", "Compute and write, each rank its own section of the file"),
    5: Figure(
        "collective",
        "Compute and collective write: in the foreground, and all of it in the background",
        tuple(label(strategy, how) for strategy in COLLECTIVE for how in ("none", "all")),
    ),
    6: Figure("collective", "Compute and collective write: none, the disk, or all behind"),
    7: Figure("direct", "Compute and collective write, around the page cache"),
}


# ---------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------


def parser() -> Parser:
    """The command line."""
    result = Parser(
        prog="penstock bench", description="Measure this machine, as papers did theirs."
    )
    every = result.add_subparsers(dest="what", metavar="WHAT", required=True)
    text = "Figures 2 to 7 of Dickens and Thakur: two-phase I/O by steps, split collectives"
    add = every.add_parser("dickens-thakur", help=text, description=text).add_argument
    add("figures", nargs="*", metavar="FIGURE", help="2 to 7 (default: all)")
    add("--ranks", metavar="N,N,...", help=f"numbers of ranks (default: {listed('ranks')})")
    add("--sizes", metavar="MIB,...", help=f"of Figure 3, powers of 2 (default: {listed('sizes')})")
    add(
        "--path",
        metavar="DIR",
        help="directory to write in (default: /dev/shm for Figures 2 and 3, this directory for "
        "4 to 7, where a disk makes sense)",
    )
    add("--repeats", type=int, metavar="N", help=f"(default: {FULL['repeats']})")
    add(
        "--throttle",
        type=float,
        metavar="MB/S",
        help="a disk that is so slow and takes no processor time; without MPI-IO, which has none",
    )
    add("--no-sync", action="store_true", help="do not bring writes to stable storage")
    add("--quick", action="store_true", help="2 ranks and small arrays: to see that it works")
    add("--json", metavar="FILE", help="write JSON to FILE, or with - in place of the text")
    add("--csv", metavar="FILE", help="write the points of all figures to FILE")
    add("--plot", metavar="DIR", help="draw DIR/figureN.png and .svg, with matplotlib")
    add("--quiet", action="store_true", help="no progress bar")
    # It has a command line of its own, to which the command goes by itself.
    every.add_parser("panda", help="Figures 3 to 9 of Panda: server-directed I/O beside the peak")
    return result


def listed(name: str) -> str:
    """The values of an option that come without it."""
    return ",".join(str(value) for value in FULL[name])


class Plan:
    """What is to be measured, as the options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        sizes = QUICK if options.quick else FULL
        self.figures = figures_of(options.figures)
        self.ranks = counts(options.ranks, "--ranks", sizes["ranks"])
        self.sizes = counts(options.sizes, "--sizes", sizes["sizes"])
        self.repeats = sizes["repeats"] if options.repeats is None else options.repeats
        self.array, self.section = sizes["array"] * MIB, sizes["section"] * MIB
        if any(size & (size - 1) for size in self.sizes):
            raise UsageError(f"--sizes {options.sizes}: take powers of 2, as the paper did")
        if self.repeats < 1:
            raise UsageError(f"--repeats is {self.repeats}: take at least 1")
        if options.throttle is not None and not 0 < options.throttle < float("inf"):
            raise UsageError(f"--throttle is {options.throttle:g}: take more than 0")
        self.sync, self.quiet = not options.no_sync, options.quiet
        self.throttle = options.throttle and options.throttle * 1e6
        self.size_ranks = max(
            (count for count in self.ranks if count <= SIZE_RANKS), default=min(self.ranks)
        )
        here = Path.cwd()
        memory = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else here
        self.paths = [Path(options.path)] * 2 if options.path else [memory, here]
        self._check_places()
        check_outputs(options)

    def path(self, number: int) -> Path:
        """Where a figure's files go."""
        return self.paths[number >= 4]

    def _check_places(self) -> None:
        largest = max(self.ranks)
        needs = {
            2: self.array,
            3: max(self.sizes) * MIB,
            4: max(self.section * largest, self.array),
            **dict.fromkeys((5, 6, 7), self.array),
        }
        for number in self.figures:
            path, need = self.path(number), TOUCHED * needs[number]
            if not path.is_dir() or not os.access(path, os.W_OK):
                raise UsageError(f"{path} is not a directory that can be written to")
            free = shutil.disk_usage(path).free
            if free < need:
                raise UsageError(
                    f"{path} has {free / 1e6:.0f} MB free, Figure {number} needs {need / 1e6:.0f}"
                )

    def jobs(self, directories: list[str], seconds: float) -> list[Job]:
        """One for each number of ranks, in memory and on disk."""
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

    def job(self, ranks: int, cases: list[tuple[str, int]], directory: str, **how) -> Job:
        """A job with what all have in common."""
        how = {"repeats": self.repeats, **how}
        return Job(ranks, cases, directory, sync=self.sync, throttle=self.throttle, **how)

    def calibration(self, directory: str) -> Job | None:
        """What finds the length of the compute phase, if a figure has one."""
        if max(self.figures) < 4:
            return None
        return self.job(max(self.ranks), [("io", self.array)], directory, repeats=IO_REPEATS)


def figures_of(words: list[str]) -> list[int]:
    """The figures asked for, in order; all of them if none is."""
    for word in words:
        if word not in map(str, FIGURES):
            raise UsageError(f"there is no Figure {word!r}: take 2 to 7")
    return sorted({int(word) for word in words}) or list(FIGURES)


def counts(text: str | None, option: str, default: tuple[int, ...]) -> list[int]:
    """Reads ``2,4,8``."""
    if text is None:
        return list(default)
    words = text.split(",")
    if not all(word.isdigit() and 0 < int(word) < 2**20 for word in words):
        raise UsageError(f"{option} {text!r}: expected positive integers such as 2,4,8")
    return sorted({int(word) for word in words})


def check_outputs(options: argparse.Namespace) -> None:
    """Whether results can be written where they are to go, as far as can be seen before."""
    for name in (options.json, options.csv, options.plot):
        if name not in (None, "-") and not os.access(Path(name).absolute().parent, os.W_OK):
            raise UsageError(f"cannot write {name}: its directory is none that can be written to")
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("matplotlib is needed for plots: pip install matplotlib")


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def find_mpiexec() -> str:
    """The one beside this Python, or the first on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise UsageError("needs mpiexec, mpi4py and an MPI library: pip install mpi4py mpich")
    return found


class Runner:
    """Starts jobs one after the other, and collects what they say. Ranks run `module`."""

    def __init__(self, mpiexec: str, shown: bool, module: str = "penstock._bench_split") -> None:
        self.mpiexec, self.module = mpiexec, module
        self.progress = Progress(1, shown)
        self.results: list[dict] = []
        self.machine: dict[str, Any] = {}
        self.multiplications: dict[int, int] = {}

    def run(self, job: Any) -> list[dict]:
        """Its results."""
        ranks = job.clients + job.servers
        command = [self.mpiexec, "-n", str(ranks), sys.executable]
        command += ["-m", self.module, job.to_json()]
        before, error = len(self.results), None
        with tempfile.TemporaryFile("w+") as said:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": said}
            try:
                ended = subprocess.Popen(command, text=True, **pipes)
            except OSError as cause:
                raise FailedError(f"cannot run {self.mpiexec}: {cause}") from cause
            with ended:
                try:
                    for line in ended.stdout:
                        error = self._hear(line) or error
                except BaseException:
                    ended.terminate()
                    ended.wait()
                    raise
            if ended.returncode != 0 or error:
                said.seek(0)
                last = [line.strip() for line in said if line.strip()][-1:]
                why = error or " ".join(last) or f"exit code {ended.returncode}"
                raise FailedError(f"{ranks} ranks: {why}")
        return self.results[before:]

    def _hear(self, line: str) -> str | None:
        """What rank 0 says; an error is handed back."""
        try:
            told = json.loads(line)
        except ValueError:
            return None
        if "step" in told:
            self.progress.step(told["step"])
        if "result" in told:
            self.results.append(told["result"])
        if "multiplications" in told:
            self.multiplications[told["ranks"]] = told["multiplications"]
        self.machine = self.machine or told.get("machine", {})
        return told.get("error")


def measure(plan: Plan, runner: Runner) -> dict:
    """Everything that was measured, for programs."""
    directories: list[str] = []
    try:
        for path in plan.paths:
            directories.append(tempfile.mkdtemp(prefix="penstock-bench-", dir=path))
        calibration = plan.calibration(directories[1])
        steps = calibration.steps if calibration else 0
        runner.progress.steps = steps + sum(job.steps for job in plan.jobs(directories, 1.0))
        seconds = 0.0
        if calibration:
            (io,) = runner.run(calibration)
            seconds = statistics.median(io["seconds"])
        for job in plan.jobs(directories, seconds):
            runner.run(job)
    finally:
        runner.progress.close()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    return {
        "machine": runner.machine,
        "sync": plan.sync,
        "repeats": plan.repeats,
        "throttle_bytes_per_second": plan.throttle,
        "compute_seconds": seconds,
        "multiplications_per_rank": runner.multiplications,
        "figures": [drawn(number, plan, runner.results) for number in plan.figures],
        "measurements": runner.results,
    }


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def drawn(number: int, plan: Plan, results: list[dict]) -> dict:
    """One figure, as :mod:`penstock._plots` draws it, with what the tables say beside it."""
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


def what(number: int, plan: Plan) -> str:
    """What was written in a figure."""
    if number == 3:
        return f"{plan.size_ranks} ranks"
    if number == 4:
        return f"{plan.section // MIB} MiB a rank"
    return f"{plan.array // MIB} MiB"


def point(result: dict, others: list[dict]) -> dict:
    """Median and spread of one result; of an iteration, what was gained and hidden."""
    seconds = result["seconds"]
    is_rate = result["kind"] == "bandwidth"
    ys = [result["bytes"] / one / 1e6 if is_rate else 1e3 * one for one in seconds]
    y = statistics.median(ys)
    cv = statistics.stdev(ys) / y if len(ys) > 1 else 0.0
    found = {"y": y, "cv": cv, "min": min(ys), "max": max(ys), "wrong": result["wrong"]}
    return found if is_rate else found | overlap(result, others)


def overlap(result: dict, others: list[dict]) -> dict:
    """An iteration beside the one of the same strategy in the foreground, in percent."""
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


def place(path: Path) -> str:
    """A directory and the kind of its file system."""
    return f"{path} ({file_system(path)})"


def file_system(path: Path) -> str:
    """The kind of file system that a directory is in, as far as the system tells."""
    best, kind = Path(), "unknown file system"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        mounts = []
    for mount in mounts:
        _, point, found, *_ = mount.split(" ")
        above = path.resolve().is_relative_to(point)
        if above and len(Path(point).parts) >= len(best.parts):
            best, kind = Path(point), found
    return kind


def text(report: dict) -> str:
    """The report for people."""
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


def table(figure: dict) -> list[str]:
    """One figure in rows and columns."""
    series = figure["series"]
    xs = [str(p["x"]) for p in series[0]["points"]]
    cells = [[f"{figure['y_label']} by {figure['x_label']}", *xs]]
    cells += [[one["name"], *map(spread, one["points"])] for one in series]
    overlapped = [one for one in series if not one["name"].endswith(", none")]
    if "hidden_percent" in series[0]["points"][0]:
        cells += [["percent saved (hidden)", *xs]]
        cells += [[one["name"], *map(gains, one["points"])] for one in overlapped]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in cells
    ]
    wrong = sum(p["wrong"] for one in series for p in one["points"])
    return [
        f"Figure {figure['figure']}. {figure['title']}",
        f"in {figure['where']}",
        *lines,
        *([f"{wrong} ELEMENTS WRONG"] if wrong else []),
    ]


def spread(p: dict) -> str:
    """``812 (790-830)``."""
    digits = 0 if p["y"] >= 100 else 1
    return f"{p['y']:.{digits}f} ({p['min']:.{digits}f}-{p['max']:.{digits}f})"


def gains(p: dict) -> str:
    """``32 (71)``."""
    return f"{p['gained_percent']:.0f} ({p['hidden_percent']:.0f})"


def write_csv(report: dict, path: str) -> None:
    """A line for each point of each figure."""
    columns = ["x", "y", "min", "max", "gained_percent", "hidden_percent"]
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["figure", "series", *columns])
        for figure in report["figures"]:
            for one in figure["series"]:
                for p in one["points"]:
                    values = [p.get(column, "") for column in columns]
                    lines.writerow([figure["figure"], one["name"], *values])


def publish(report: dict, options: argparse.Namespace) -> None:
    """Text, JSON, CSV and plots, to where they are to go."""
    whole = json.dumps(report, indent=1)
    try:
        if options.json not in (None, "-"):
            Path(options.json).write_text(whole + "\n")
        if options.csv:
            write_csv(report, options.csv)
        if options.plot:
            Path(options.plot).mkdir(exist_ok=True)
            for figure in report["figures"]:
                stem = Path(options.plot) / f"figure{figure['figure']}"
                _plots.draw("figure", str(stem), json.dumps(figure))
        print(whole if options.json == "-" else text(report), flush=True)
    except BrokenPipeError:
        # The reader has had enough: no error. Nor is it one when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise FailedError(f"cannot write the results: {error}") from error


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Runs ``penstock bench`` with what follows these words; the exit code."""
    # Whoever ends it finds no ranks and no files left over.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan = Plan(parser().parse_args(arguments))
        runner = Runner(find_mpiexec(), not plan.quiet and sys.stderr.isatty())
        report = measure(plan, runner)
        publish(report, plan.options)
    except (UsageError, FailedError) as error:
        print(f"penstock: error: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if any(result["wrong"] for result in report["measurements"]) else 0
