"""Benchmarks that measure the figures of a paper anew have this in common.

Each is a `Plan`: it reads options, says which jobs are to be run, and makes a report of what they
have measured. Exit codes: 0; 1 when something failed or a byte was wrong; 2 for bad input. Either
way one line says what is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from penstock_bench.command import (
    FailedError,
    Parser,
    UsageError,
    check_directory,
    check_output,
    complain,
    counts,
)
from penstock_bench.job import Runner, find_mpiexec

IN_MEMORY = Path("/dev/shm")
TOUCHED = 2.2
"""Arrays that must fit: the files, as much free memory touched before them, and a little."""

PlanKind = TypeVar("PlanKind", bound="Plan")
Report = dict[str, Any]
Figure = dict[str, Any]
"""A figure as `penstock plot figure` draws it, with what tables say beside it."""


class Extent(NamedTuple):
    """The extent of a benchmark, unless its options say otherwise."""

    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    """The sizes of arrays in MiB."""
    repeats: int


class Plan(ABC):
    """A plan is what options ask for: figures of a paper, measured on this machine."""

    ranks_run: ClassVar[str]
    """The Python module that each rank runs."""
    numbers: ClassVar[Sequence[int]]
    """The figures that the paper has."""
    full: ClassVar[Extent]
    quick: ClassVar[Extent]
    """The extent with ``--quick``."""
    paths: Sequence[Path]
    """The directories to write in."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        extent = self.quick if options.quick else self.full
        first, last = min(self.numbers), max(self.numbers)
        for word in options.figures:
            if word not in map(str, self.numbers):
                raise UsageError(f"there is no Figure {word!r}: take {first} to {last}")
        self.figures = sorted({int(word) for word in options.figures}) or list(self.numbers)
        self.ranks = counts(options.ranks, "--ranks", extent.ranks)
        self.sizes = counts(options.sizes, "--sizes", extent.sizes)
        if any(size & (size - 1) for size in self.sizes):
            raise UsageError(f"--sizes {options.sizes}: take powers of 2, as the paper did")
        if options.repeats is not None and options.repeats < 1:
            raise UsageError(f"--repeats is {options.repeats}: take at least 1")
        self.repeats: int = extent.repeats if options.repeats is None else options.repeats

    @classmethod
    @abstractmethod
    def parser(cls) -> Parser:
        """Return the command line."""

    @abstractmethod
    def path(self, number: int) -> Path:
        """Return the directory of a figure's files."""

    @abstractmethod
    def array_bytes(self, number: int) -> int:
        """Return the size of a figure's largest array in a file."""

    @abstractmethod
    def measure(self, runner: Runner, directories: list[str]) -> Report:
        """Run the jobs, whose files go to a directory for each of `paths`."""

    @abstractmethod
    def text(self, report: Report) -> str:
        """Return the report for people."""

    @abstractmethod
    def rows(self, report: Report) -> Iterator[list[Any]]:
        """Yield the names of columns, and then a row for each point of each figure."""

    def stem(self, figure: Figure) -> str:
        """Return the name of a figure's picture, without its ending."""
        return f"figure{figure['figure']}"

    def check(self) -> None:
        """Refuse what can be seen to fail before anything is measured."""
        for number in self.figures:
            bytes_ = TOUCHED * self.array_bytes(number)
            check_directory(self.path(number), bytes_, f"Figure {number}")
        for name in (self.options.json, self.options.csv, self.options.plot):
            if name not in (None, "-"):
                check_output(name)
        if self.options.plot and importlib.util.find_spec("matplotlib") is None:
            raise UsageError("matplotlib is needed for plots: pip install matplotlib")


def add_common_options(parser: Parser, figures: str) -> None:
    """Add the options that all these benchmarks have."""
    add = parser.add_argument
    add("figures", nargs="*", metavar="FIGURE", help=f"{figures} (default: all)")
    add("--quick", action="store_true", help="2 ranks and small arrays: to see that it works")
    add("--json", metavar="FILE", help="write JSON to FILE, or with - in place of the text")
    add("--csv", metavar="FILE", help="write the points of all figures to FILE")
    add("--plot", metavar="DIR", help="draw DIR/figureN.png and .svg, with matplotlib")
    add("--quiet", action="store_true", help="no progress bar")


def columns(cells: Sequence[Sequence[str]]) -> list[str]:
    """Align the rows of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in cells
    ]


def wrong_line(figure: Figure) -> list[str]:
    """Return a line that says how many elements of a figure were wrong, if any was."""
    wrong = sum(point["wrong"] for series in figure["series"] for point in series["points"])
    return [f"{wrong} ELEMENTS WRONG"] if wrong else []


@contextlib.contextmanager
def scratch(paths: Sequence[Path]) -> Iterator[list[str]]:
    """Make a directory in each path, and remove them at the end."""
    with contextlib.ExitStack() as stack:
        made = []
        for path in paths:
            made.append(tempfile.mkdtemp(prefix="penstock-bench-", dir=path))
            stack.callback(shutil.rmtree, made[-1], ignore_errors=True)
        yield made


def measure(plan: Plan, runner: Runner) -> Report:
    """Measure all that is planned."""
    try:
        with scratch(plan.paths) as directories:
            return plan.measure(runner, directories)
    finally:
        runner.bar.close()


def draw(figure: Figure, stem: Path) -> None:
    """Draw a figure into STEM.png and STEM.svg."""
    command = [sys.executable, "-m", "penstock", "plot", "figure", str(stem)]
    drawn = subprocess.run(command, input=json.dumps(figure), text=True, capture_output=True)
    if drawn.returncode != 0:
        raise FailedError(drawn.stderr.strip().removeprefix("penstock: error: "))


def publish(plan: Plan, report: Report) -> None:
    """Write text, JSON, CSV and plots to where they are to go."""
    options = plan.options
    whole = json.dumps(report, indent=1)
    try:
        if options.json not in (None, "-"):
            Path(options.json).write_text(whole + "\n")
        if options.csv:
            with open(options.csv, "w", newline="") as file:
                csv.writer(file).writerows(plan.rows(report))
        if options.plot:
            Path(options.plot).mkdir(exist_ok=True)
            for figure in report["figures"]:
                draw(figure, Path(options.plot) / plan.stem(figure))
        print(whole if options.json == "-" else plan.text(report), flush=True)
    except BrokenPipeError:
        # The reader has had enough: no error. Nor is it one when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise FailedError(f"cannot write the results: {error}") from error


def new_plan(kind: type[PlanKind], arguments: list[str]) -> PlanKind:
    """Return the plan that a command line asks for, if it can be carried out."""
    plan = kind(kind.parser().parse_args(arguments))
    plan.check()
    return plan


def run(kind: type[Plan], arguments: list[str]) -> int:
    """Run the benchmark that `kind` plans, and return the exit code."""
    # A benchmark that is ended leaves no ranks and no files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan = new_plan(kind, arguments)
        shown = not plan.options.quiet and sys.stderr.isatty()
        report = measure(plan, Runner(find_mpiexec(), plan.ranks_run, shown))
        publish(plan, report)
    except (UsageError, FailedError) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if any(result["wrong"] for result in report["measurements"]) else 0
