"""``penstock bench panda``: Figures 3 to 9 of a paper, for the machine it runs on.

K. E. Seamons, Y. Chen, P. Jones, J. Jozwiak and M. Winslett, *Server-Directed Collective I/O in
Panda*, SC '95: what part of a file system's throughput, or of the messages', does collective I/O of
an array reach? docs/panda.md says what each figure shows.

This module reads options, starts ``mpiexec`` once for every number of clients and every place (what
the ranks do: :mod:`penstock._bench_panda_job`), and reports. Exit codes: 0; 1 when something failed
or a byte was wrong; 2 for bad input. Either way one line says what is wrong.

A figure's number is the throughput of the array as a part of the peak, both medians, of the same
run. How far it would be off in other runs of as many repeats is said beside it: between which
percentages it is nine times in ten, when repeats are drawn from those there are.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock import _plots
from penstock._bench_case import UsageError, dims_text
from penstock._bench_dickens_thakur import (
    IN_MEMORY,
    FailedError,
    Runner,
    check_outputs,
    counts,
    file_system,
    find_mpiexec,
    place,
)
from penstock._bench_panda_job import (
    ARRAY_FILES,
    COPIES,
    MESSAGES,
    MIB,
    NATURAL,
    OPERATIONS,
    REPEATS,
    SERVED,
    SYSTEM_CALLS,
    TRADITIONAL,
    Job,
    mesh_of,
    repeats_of,
    shape_of,
)
from penstock.bench import Parser

SIZES = (16, 32, 64, 128, 256, 512)
SERVERS = (2, 4, 8)
QUICK = {"ranks": (2,), "sizes": (1, 2), "servers": (1, 2), "repeats": 1}
AIMS = {NATURAL: 85, TRADITIONAL: 70}
"""Percent of the peak that each schema is to reach."""
QUANTILES = 0.05, 0.95
"""Between these is what a percentage would be in other runs."""
DRAWS = 2000
"""How often repeats are drawn to find out."""
TOUCHED = 2.2
"""Arrays that must fit: the files, as much free memory touched before them, and a little."""


class Figure(NamedTuple):
    """One figure of the paper."""

    operation: str
    schema: str
    is_null: bool
    clients: int
    paper: str
    """What the text says of it, percent of the peak."""

    @property
    def what(self) -> str:
        """What it shows."""
        disk = ", infinitely fast disk" if self.is_null else ""
        order = "natural chunking" if self.schema == NATURAL else "traditional order"
        return f"{self.operation}s, {order}{disk}"


FIGURES = {
    3: Figure("read", NATURAL, False, 8, "85-98"),
    4: Figure("write", NATURAL, False, 8, "85-98"),
    5: Figure("read", NATURAL, True, 32, "near 90"),
    6: Figure("write", NATURAL, True, 32, "near 90"),
    7: Figure("read", TRADITIONAL, False, 32, "68-95"),
    8: Figure("write", TRADITIONAL, False, 32, "68-95"),
    9: Figure("write", TRADITIONAL, True, 16, "38-86"),
}


# ---------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------


def parser() -> Parser:
    """The command line."""
    result = Parser(
        prog="penstock bench panda",
        description="Figures 3 to 9 of Panda (SC '95): server-directed I/O beside the peak of the "
        "file system, or of messages.",
    )
    add = result.add_argument
    add("figures", nargs="*", metavar="FIGURE", help="3 to 9 (default: all)")
    add(
        "--ranks",
        metavar="N,N,...",
        help="numbers of clients, for every figure (default: each figure's: 8, 16 or 32)",
    )
    add("--servers", metavar="N,N,...", help=f"some of the clients (default: {listed(SERVERS)})")
    add("--sizes", metavar="MIB,...", help=f"powers of 2 (default: {listed(SIZES)})")
    add(
        "--directory",
        "--path",
        dest="path",
        metavar="DIR",
        help="where to write (default: this directory; /dev/shm for the metadata of figures whose "
        "disk is infinitely fast)",
    )
    add(
        "--cached",
        action="store_true",
        help="move arrays through the page cache, too, and not around it (direct=True): in memory "
        "there is no other way",
    )
    add(
        "--repeats",
        type=int,
        metavar="N",
        help="of every size (default: {} to {}, fewer of larger arrays)".format(*REPEATS),
    )
    add("--quick", action="store_true", help="2 ranks and small arrays: to see that it works")
    add("--json", metavar="FILE", help="write JSON to FILE, or with - in place of the text")
    add("--csv", metavar="FILE", help="write the points of all figures to FILE")
    add("--plot", metavar="DIR", help="draw DIR/figureN.png and .svg, with matplotlib")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def listed(values: tuple[int, ...]) -> str:
    """As an option has them."""
    return ",".join(map(str, values))


class Plan:
    """What is to be measured, as the options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.quiet = options, options.quiet
        is_quick = options.quick
        for word in options.figures:
            if word not in map(str, FIGURES):
                raise UsageError(f"there is no Figure {word!r}: take 3 to 9")
        self.figures = sorted({int(word) for word in options.figures}) or list(FIGURES)
        self.sizes = counts(options.sizes, "--sizes", QUICK["sizes"] if is_quick else SIZES)
        servers = QUICK["servers"] if is_quick else SERVERS
        self.servers = counts(options.servers, "--servers", servers)
        asked = counts(options.ranks, "--ranks", QUICK["ranks"] if is_quick else ())
        self.clients = {n: asked or [FIGURES[n].clients] for n in self.figures}
        default = QUICK["repeats"] if is_quick else None
        self.repeats = default if options.repeats is None else options.repeats
        if any(size & (size - 1) for size in self.sizes):
            raise UsageError(f"--sizes {options.sizes}: take powers of 2, as the paper did")
        if self.repeats is not None and self.repeats < 1:
            raise UsageError(f"--repeats is {self.repeats}: take at least 1")
        least = min(min(clients) for clients in self.clients.values())
        if max(self.servers) > least:
            raise UsageError(
                f"{max(self.servers)} servers among {least} clients: take fewer --servers, or more "
                "--ranks"
            )
        here = Path(options.path or Path.cwd())
        is_writable = os.access(IN_MEMORY, os.W_OK)
        self.paths = [here, here if options.path or not is_writable else IN_MEMORY]
        self.direct = not options.cached
        self._check_places()
        check_outputs(options)

    def path(self, number: int) -> Path:
        """Where a figure's files go."""
        return self.paths[FIGURES[number].is_null]

    def is_direct(self, number: int) -> bool:
        """Whether a figure's arrays are moved around the page cache."""
        return self.direct and not FIGURES[number].is_null

    def _check_places(self) -> None:
        for number in self.figures:
            path = self.path(number)
            if not path.is_dir() or not os.access(path, os.W_OK):
                raise UsageError(f"{path} is not a directory that can be written to")
            need = 0 if FIGURES[number].is_null else TOUCHED * max(self.sizes) * MIB
            if self.is_direct(number) and file_system(path) == "tmpfs":
                raise UsageError(f"{path} is in memory, which cannot be gone around: take --cached")
            free = shutil.disk_usage(path).free
            if free < need:
                raise UsageError(
                    f"{path} has {free / 1e6:.0f} MB free, Figure {number} needs {need / 1e6:.0f}"
                )

    def jobs(self, directories: list[str]) -> list[Job]:
        """One for each number of clients, on the disk and without."""
        jobs = []
        for clients in sorted({one for many in self.clients.values() for one in many}):
            for is_null in (False, True):
                cases = [
                    (schema, is_null, size * MIB, operations)
                    for schema in (NATURAL, TRADITIONAL)
                    if (operations := self.operations(schema, is_null, clients))
                    for size in self.sizes
                ]
                directory = directories[is_null]
                jobs.append(Job(clients, cases, self.servers, directory, self.repeats, self.direct))
        return [job for job in jobs if job.cases]

    def operations(self, schema: str, is_null: bool, clients: int) -> list[str]:
        """What the figures ask for of a case."""
        asked = [
            FIGURES[number].operation
            for number in self.figures
            if FIGURES[number][1:3] == (schema, is_null) and clients in self.clients[number]
        ]
        return [operation for operation in OPERATIONS if operation in asked]


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def measure(plan: Plan, runner: Runner) -> dict:
    """Everything that was measured, for programs."""
    directories: list[str] = []
    try:
        for path in plan.paths:
            directories.append(tempfile.mkdtemp(prefix="penstock-bench-", dir=path))
        jobs = plan.jobs(directories)
        runner.progress.steps = sum(job.steps for job in jobs)
        for job in jobs:
            runner.run(job)
    finally:
        runner.progress.close()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    return {
        "machine": runner.machine,
        "load_average_at_end": os.getloadavg()[0],
        "repeats": {f"{size} MiB": repeats_of(size * MIB, plan.repeats) for size in plan.sizes},
        "figures": [
            drawn(number, clients, plan, runner.results)
            for number in plan.figures
            for clients in plan.clients[number]
        ],
        "measurements": runner.results,
    }


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def drawn(number: int, clients: int, plan: Plan, results: list[dict]) -> dict:
    """One figure, as :mod:`penstock._plots` draws it, with what the tables say beside it."""
    figure = FIGURES[number]
    wanted = (figure.operation, figure.schema, figure.is_null, clients)
    mine = {
        (result["contender"], result["bytes"], result["servers"]): result
        for result in results
        if tuple(result[key] for key in ("operation", "schema", "null", "clients")) == wanted
    }
    peak = MESSAGES if figure.is_null else SYSTEM_CALLS
    second = COPIES if figure.is_null else ARRAY_FILES

    def at(size: int, servers: int) -> dict:
        measured = (
            mine.get((contender, size * MIB, servers)) for contender in (SERVED, peak, second)
        )
        return {"x": servers} | point(*measured)

    series = [
        {"name": f"{size} MiB", "points": [at(size, servers) for servers in plan.servers]}
        for size in plan.sizes
    ]
    is_direct = plan.is_direct(number)
    around = ", around the page cache" if is_direct else ""
    aim = AIMS[figure.schema]
    points = [one for line in series for one in line["points"]]
    waking = [seconds for one in mine.values() for seconds in one["waking_seconds"]]
    return {
        "figure": number,
        "title": f"{figure.what}, {clients} clients ({dims_text(mesh_of(clients))})",
        "x_label": "servers",
        "y_label": "percent of the peak",
        "x_scale": "log2",
        "trials": plan.repeats,
        "clients": clients,
        "where": place(plan.path(number)),
        "peak": f"{peak} of 1 MiB",
        "waking_seconds": statistics.median(waking),
        "direct": is_direct,
        "second": second + around,
        "paper_percent": figure.paper,
        "aim_percent": aim,
        "reached": sum(one["y"] >= aim for one in points),
        "reached_surely": sum(one["low"] >= aim for one in points),
        "points": len(points),
        "series": series,
    }


def point(served: dict, peak: dict, second: dict | None) -> dict:
    """The array's throughput as a part of the peak; the spread is that of the array's own."""
    median, beside = (statistics.median(one["seconds"]) for one in (served, peak))
    parts = [100 * beside / one for one in served["seconds"]]
    y = 100 * beside / median
    low, high = interval(served["seconds"], peak["seconds"])
    rate = served["bytes"] / 1e6
    found = {
        "y": y,
        "low": low,
        "high": high,
        "cv": statistics.stdev(parts) / y if len(parts) > 1 else 0.0,
        "min": min(parts),
        "max": max(parts),
        "mb_per_second": rate / median,
        "peak_mb_per_second": rate / beside,
        "wrong": served["wrong"] + peak["wrong"],
    }
    if second:
        beside = statistics.median(second["seconds"])
        found["second_mb_per_second"] = rate / beside
        found["percent_of_second"] = 100 * beside / median
    return found


def interval(served: list[float], peak: list[float]) -> tuple[float, float]:
    """Between which percentages of the peak the array is nine times in ten, of repeats that are
    drawn from these. What was measured in one turn stays together, as it shares the machine's
    better or worse moments."""
    turns = np.random.default_rng(0).integers(len(served), size=(DRAWS, len(served)))
    medians = (np.median(np.array(seconds)[turns], axis=1) for seconds in (peak, served))
    low, high = np.quantile(100 * np.divide(*medians), QUANTILES)
    return float(low), float(high)


def text(report: dict) -> str:
    """The report for people."""
    machine = report["machine"]
    fewest, most = min(report["repeats"].values()), max(report["repeats"].values())
    many = f"{fewest}" if fewest == most else f"{most} (of the smallest) to {fewest}"
    lines = [
        f"{machine['cpus']} x {machine['cpu']}; {machine['mpi']}; load average "
        f"{machine['load_average_at_start']:.1f} when it began, "
        f"{report['load_average_at_end']:.1f} at the end",
        f"medians of {many}: MB/s of all servers together (10^6 bytes), and the "
        "percent of the peak, +- half of its 90% interval",
    ]
    if machine["free_page_reporting"]:
        lines.append(
            "the host takes back memory that is free (free page reporting): what fills the page "
            "cache may wait for it"
        )
    for figure in report["figures"]:
        lines += ["", *table(figure)]
    return "\n".join(lines)


def table(figure: dict) -> list[str]:
    """One figure in rows and columns."""
    series = figure["series"]
    servers = (f"{p['x']} servers" for p in series[0]["points"])
    heads = [head for many in servers for head in (many, "peak", "%", "+-")]
    cells = [["array", "shape", *heads]]
    cells += [row(one, "peak_mb_per_second", "y") for one in series]
    has_second = any("percent_of_second" in p for p in series[0]["points"])
    if has_second:
        cells += [row(one, "second_mb_per_second", "percent_of_second") for one in series]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in cells
    ]
    if has_second:
        lines.insert(1 + len(series), f"beside {figure['second']}:")
    around = "; arrays are moved around the page cache" if figure["direct"] else ""
    wrong = sum(p["wrong"] for one in series for p in one["points"])
    ys = [p["y"] for one in series for p in one["points"]]
    return [
        f"Figure {figure['figure']}. {figure['title']}",
        f"in {figure['where']}{around}; the peak: {figure['peak']}",
        f"the last of {figure['clients']} ranks begins {1e3 * figure['waking_seconds']:.1f} ms "
        "after the moment agreed on",
        *lines,
        f"percent: {min(ys):.0f}-{max(ys):.0f}, in the paper {figure['paper_percent']}; at least "
        f"{figure['aim_percent']}: {figure['reached']} of {figure['points']}, "
        f"{figure['reached_surely']} with all of the interval",
        *([f"{wrong} ELEMENTS WRONG"] if wrong else []),
    ]


def row(series: dict, beside: str, percent: str) -> list[str]:
    """Of each number of servers, the array's throughput and another, and the percentage; how sure
    that is, if it is the peak's."""
    shape = dims_text(shape_of(int(series["name"].split()[0]) * MIB))
    cells = []
    for p in series["points"]:
        keys = "mb_per_second", beside, percent
        cells += [f"{p[key]:.0f}" if key in p else "-" for key in keys]
        cells.append(f"{(p['high'] - p['low']) / 2:.0f}" if percent == "y" else "")
    return [series["name"], shape, *cells]


def write_csv(report: dict, path: str) -> None:
    """A line for each point of each figure."""
    columns = ["x", "y", "low", "high", "min", "max", "mb_per_second", "peak_mb_per_second"]
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["figure", "clients", "series", *columns])
        for figure in report["figures"]:
            for one in figure["series"]:
                for p in one["points"]:
                    values: list[Any] = [p[column] for column in columns]
                    lines.writerow([figure["figure"], figure["clients"], one["name"], *values])


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
                name = f"figure{figure['figure']}"
                is_only = figure["clients"] == FIGURES[figure["figure"]].clients
                stem = name if is_only else f"{name}-{figure['clients']}"
                _plots.draw("figure", str(Path(options.plot) / stem), json.dumps(figure))
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
    """Runs ``penstock bench`` with what follows these words, `panda` first; the exit code."""
    # Whoever ends it finds no ranks and no files left over.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan = Plan(parser().parse_args(arguments[1:]))
        is_shown = not plan.quiet and sys.stderr.isatty()
        runner = Runner(find_mpiexec(), is_shown, "penstock._bench_panda_job")
        report = measure(plan, runner)
        publish(report, plan.options)
    except (UsageError, FailedError) as error:
        print(f"penstock: error: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if any(result["wrong"] for result in report["measurements"]) else 0
