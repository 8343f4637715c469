"""This benchmark measures Figures 3 to 9 of a paper on the machine it runs on.

K. E. Seamons, Y. Chen, P. Jones, J. Jozwiak and M. Winslett, *Server-Directed Collective I/O in
Panda*, SC '95: what part of a file system's throughput, or of the messages', does collective I/O of
an array reach? docs/panda.md says what each figure shows.

This module starts ``mpiexec`` once for every number of clients and every place; the ranks run
:mod:`penstock_bench.panda_job`.

A figure's number is the throughput of the array as a part of the peak, both medians, of the same
run. How far it would be off in other runs of as many repeats is said beside it: between which
percentages it is nine times in ten, when repeats are drawn from those there are.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock_bench.command import MIB, Parser, UsageError, counts, dims_text, listed
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
from penstock_bench.machine import file_system, place
from penstock_bench.panda_job import (
    ARRAY_FILES,
    COPIES,
    MESSAGES,
    NATURAL,
    OPERATIONS,
    REPEATS,
    SERVED,
    SYSTEM_CALLS,
    TRADITIONAL,
    PandaJob,
    mesh_of,
    repeats_of,
    shape_of,
)

SERVERS, QUICK_SERVERS = (2, 4, 8), (1, 2)
AIMS = {NATURAL: 85, TRADITIONAL: 70}
"""Percent of the peak that each schema is to reach."""
QUANTILES = 0.05, 0.95
"""Between these is what a percentage would be in other runs."""
DRAWS = 2000
"""How often repeats are drawn to find out."""


class Shown(NamedTuple):
    """A figure of the paper shows one operation on arrays of one schema."""

    operation: str
    schema: str
    is_null: bool
    clients: int
    paper: str
    """The percent of the peak that the paper's text gives."""

    @property
    def what(self) -> str:
        """What the figure shows, in words."""
        disk = ", infinitely fast disk" if self.is_null else ""
        order = "natural chunking" if self.schema == NATURAL else "traditional order"
        return f"{self.operation}s, {order}{disk}"


FIGURES = {
    3: Shown("read", NATURAL, False, 8, "85-98"),
    4: Shown("write", NATURAL, False, 8, "85-98"),
    5: Shown("read", NATURAL, True, 32, "near 90"),
    6: Shown("write", NATURAL, True, 32, "near 90"),
    7: Shown("read", TRADITIONAL, False, 32, "68-95"),
    8: Shown("write", TRADITIONAL, False, 32, "68-95"),
    9: Shown("write", TRADITIONAL, True, 16, "38-86"),
}


# ---------------------------------------------------------------------------------------------
# The plan
# ---------------------------------------------------------------------------------------------


class Panda(Plan):
    """The plan of what is to be measured of this paper."""

    ranks_run = "penstock_bench.panda_job"
    numbers = tuple(FIGURES)
    full = Extent(ranks=(), sizes=(16, 32, 64, 128, 256, 512), repeats=0)
    """Without ranks each figure has its own, and with 0 repeats `repeats_of` counts them."""
    quick = Extent(ranks=(2,), sizes=(1, 2), repeats=1)

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        servers = QUICK_SERVERS if options.quick else SERVERS
        self.servers = counts(options.servers, "--servers", servers)
        self.clients = {n: self.ranks or [FIGURES[n].clients] for n in self.figures}
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

    @classmethod
    def parser(cls) -> Parser:
        """Return the command line."""
        result = Parser(
            prog="python -m penstock_bench panda",
            description="Figures 3 to 9 of Panda (SC '95): server-directed I/O beside the peak of "
            "the file system, or of messages.",
        )
        add = result.add_argument
        add(
            "--ranks",
            metavar="N,N,...",
            help="numbers of clients, for every figure (default: each figure's: 8, 16 or 32)",
        )
        add(
            "--servers",
            metavar="N,N,...",
            help=f"some of the clients (default: {listed(SERVERS)})",
        )
        add("--sizes", metavar="MIB,...", help=f"powers of 2 (default: {listed(cls.full.sizes)})")
        add(
            "--directory",
            "--path",
            dest="path",
            metavar="DIR",
            help="where to write (default: this directory; /dev/shm for the metadata of figures "
            "whose disk is infinitely fast)",
        )
        add(
            "--cached",
            action="store_true",
            help="move arrays through the page cache, too, and not around it (direct=True): in "
            "memory there is no other way",
        )
        add(
            "--repeats",
            type=int,
            metavar="N",
            help="of every size (default: {} to {}, fewer of larger arrays)".format(*REPEATS),
        )
        add_common_options(result, "3 to 9")
        return result

    def path(self, number: int) -> Path:
        """Return the directory of a figure's files."""
        return self.paths[FIGURES[number].is_null]

    def array_bytes(self, number: int) -> int:
        """Return the size of a figure's largest array in a file."""
        return 0 if FIGURES[number].is_null else max(self.sizes) * MIB

    def is_direct(self, number: int) -> bool:
        """Tell whether a figure's arrays are moved around the page cache."""
        return self.direct and not FIGURES[number].is_null

    def check(self) -> None:
        """Refuse what can be seen to fail before anything is measured."""
        super().check()
        for number in self.figures:
            path = self.path(number)
            if self.is_direct(number) and file_system(path) == "tmpfs":
                raise UsageError(f"{path} is in memory, which cannot be gone around: take --cached")

    def jobs(self, directories: list[str]) -> list[PandaJob]:
        """Return a job for each number of clients, on the disk and without."""
        jobs = []
        for clients in sorted({one for many in self.clients.values() for one in many}):
            for is_null in (False, True):
                cases = [
                    (schema, is_null, size * MIB, operations)
                    for schema in (NATURAL, TRADITIONAL)
                    if (operations := self.operations(schema, is_null, clients))
                    for size in self.sizes
                ]
                job = PandaJob(
                    clients=clients,
                    directory=directories[is_null],
                    cases=cases,
                    server_counts=self.servers,
                    repeats=self.repeats,
                    direct=self.direct,
                )
                jobs.append(job)
        return [job for job in jobs if job.cases]

    def operations(self, schema: str, is_null: bool, clients: int) -> list[str]:
        """Return what the figures ask for of a case."""
        asked = [
            FIGURES[number].operation
            for number in self.figures
            if FIGURES[number][1:3] == (schema, is_null) and clients in self.clients[number]
        ]
        return [operation for operation in OPERATIONS if operation in asked]

    def measure(self, runner: Runner, directories: list[str]) -> Report:
        """Run the jobs, and return everything that was measured."""
        jobs = self.jobs(directories)
        runner.bar.total = sum(job.steps for job in jobs)
        for job in jobs:
            runner.run(job)
        return {
            "machine": runner.machine,
            "load_average_at_end": os.getloadavg()[0],
            "repeats": {f"{size} MiB": repeats_of(size * MIB, self.repeats) for size in self.sizes},
            "figures": [
                drawn(number, clients, self, runner.results)
                for number in self.figures
                for clients in self.clients[number]
            ],
            "measurements": runner.results,
        }

    def text(self, report: Report) -> str:
        """Return the report for people."""
        return text(report)

    def rows(self, report: Report) -> Iterator[list[Any]]:
        """Yield the names of columns, and then a row for each point of each figure."""
        names = ["x", "y", "low", "high", "min", "max", "mb_per_second", "peak_mb_per_second"]
        yield ["figure", "clients", "series", *names]
        for figure in report["figures"]:
            for one in figure["series"]:
                for p in one["points"]:
                    values = (p[name] for name in names)
                    yield [figure["figure"], figure["clients"], one["name"], *values]

    def stem(self, figure: Figure) -> str:
        """Return the name of a figure's picture; the number of clients, if not the paper's."""
        stem, clients = super().stem(figure), figure["clients"]
        is_paper = clients == FIGURES[figure["figure"]].clients
        return stem if is_paper else f"{stem}-{clients}"


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def drawn(number: int, clients: int, plan: Panda, results: list[Result]) -> Figure:
    """Return one figure of these results."""
    figure = FIGURES[number]
    wanted = (figure.operation, figure.schema, figure.is_null, clients)
    mine = {
        (result["contender"], result["bytes"], result["servers"]): result
        for result in results
        if tuple(result[key] for key in ("operation", "schema", "null", "clients")) == wanted
    }
    peak = MESSAGES if figure.is_null else SYSTEM_CALLS
    second = COPIES if figure.is_null else ARRAY_FILES

    def at(size: int, servers: int) -> dict[str, Any]:
        array, beside = (mine[name, size * MIB, servers] for name in (SERVED, peak))
        return {"x": servers} | point(array, beside, mine.get((second, size * MIB, servers)))

    series: list[dict[str, Any]] = [
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
        "trials": plan.repeats or None,
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


def point(served: Result, peak: Result, second: Result | None) -> dict[str, Any]:
    """Return the array's throughput as a part of the peak; the spread is the array's own."""
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
    """Return the percentages of the peak that hold nine of ten runs, drawn from these repeats.

    The times of one turn stay together, as they share the machine's better or worse moments.
    """
    turns = np.random.default_rng(0).integers(len(served), size=(DRAWS, len(served)))
    medians = (np.median(np.array(seconds)[turns], axis=1) for seconds in (peak, served))
    low, high = np.quantile(100 * np.divide(*medians), QUANTILES)
    return float(low), float(high)


def text(report: Report) -> str:
    """Return the report for people."""
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


def table(figure: Figure) -> list[str]:
    """Return one figure in rows and columns."""
    series = figure["series"]
    servers = (f"{p['x']} servers" for p in series[0]["points"])
    heads = [head for many in servers for head in (many, "peak", "%", "+-")]
    cells = [["array", "shape", *heads]]
    cells += [row(one, "peak_mb_per_second", "y") for one in series]
    has_second = any("percent_of_second" in p for p in series[0]["points"])
    if has_second:
        cells += [row(one, "second_mb_per_second", "percent_of_second") for one in series]
    lines = columns(cells)
    if has_second:
        lines.insert(1 + len(series), f"beside {figure['second']}:")
    around = "; arrays are moved around the page cache" if figure["direct"] else ""
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
        *wrong_line(figure),
    ]


def row(series: dict[str, Any], beside: str, percent: str) -> list[str]:
    """Return a row of a table: for each number of servers, throughputs and their percentage.

    A percentage of the peak has the half of its interval beside it.
    """
    shape = dims_text(shape_of(int(series["name"].split()[0]) * MIB))
    cells = []
    for p in series["points"]:
        keys = "mb_per_second", beside, percent
        cells += [f"{p[key]:.0f}" if key in p else "-" for key in keys]
        cells.append(f"{(p['high'] - p['low']) / 2:.0f}" if percent == "y" else "")
    return [series["name"], shape, *cells]


def main(arguments: list[str]) -> int:
    """Run the benchmark, and return the exit code."""
    return run(Panda, arguments)
