"""This benchmark runs the experiments of Vesta's paper on parallel files, on the machine at hand.

The parts, and what is beside what: :mod:`penstock_bench.files_parts`; the states in which files are
measured: :mod:`penstock_bench.files_bench`. All that is read is compared with what was written, and
wrong bytes end the benchmark. The messages of an access are not counted: servers do not tell them.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from penstock_bench.command import (
    MIB,
    FailedError,
    Parser,
    UsageError,
    check_directory,
    check_output,
    complain,
)
from penstock_bench.figures import columns, scratch
from penstock_bench.files_bench import (
    FILES_KEPT,
    FULL,
    QUICK,
    Bench,
    How,
    Quotient,
    Table,
    size_text,
)
from penstock_bench.files_parts import BENCHMARK, sequential_cases
from penstock_bench.job import Runner, find_mpiexec
from penstock_bench.machine import host_facts, place

Report = dict[str, Any]

SHORT = "*"
"""The mark of what does not reach its aim."""
VOLUMES = 4
"""The most volumes at a time."""


def parser() -> Parser:
    """Return the command line."""
    result = Parser(
        prog="python -m penstock_bench files",
        description="Parallel files: sequential and small accesses, views, names.",
        epilog=f"Parts: {', '.join(BENCHMARK)}. fio is used if it is installed. Exit codes: 0 "
        "done, 1 wrong data, 2 bad options.",
    )
    add = result.add_argument
    add("--directory", type=Path, default=Path(), help="directory to write in (default: this one)")
    add("--part", default=",".join(BENCHMARK), help="separated by commas (default: all)")
    add("--rounds", type=int, help=f"(default: {FULL.rounds})")
    add("--mib", type=int, help=f"the size of large files (default: {FULL.mib})")
    add("--small-mib", type=int, help=f"that of files of a cache (default: {FULL.small_mib})")
    add("--block-kib", type=int, default=64, help="blocks of volumes (default: %(default)s)")
    add("--access-kib", type=int, default=1024, help="a large access (default: %(default)s)")
    add("--depth", type=int, default=8, help="large accesses under way (default: %(default)s)")
    add("--servers", type=int, default=4, help="(default: %(default)s)")
    add("--ranks", type=int, default=2, help="of MPI jobs; 1: no jobs (default: %(default)s)")
    add("--mode", choices=("cautious", "reckless"), default="cautious")
    add("--quick", action="store_true", help="small files and one round: to see that it works")
    add("--json", metavar="FILE", help="write the rates of all rounds to FILE as JSON")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line, and refuse what makes no sense."""
    options = parser().parse_args(words)
    options.extent = QUICK if options.quick else FULL
    for name in ("rounds", "mib", "small_mib"):
        if getattr(options, name) is not None:
            options.extent = replace(options.extent, **{name: getattr(options, name)})
    of_extent = {name: getattr(options.extent, name) for name in ("rounds", "mib", "small_mib")}
    for name, value in (vars(options) | of_extent).items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} is at least 1")
    for name in ("block_kib", "access_kib"):
        if getattr(options, name) & (getattr(options, name) - 1):
            raise UsageError(f"--{name.replace('_', '-')} is a power of 2")
    options.part = [word.strip() for word in options.part.split(",")]
    for word in options.part:
        if word not in BENCHMARK:
            raise UsageError(f"--part {word!r} is none of {', '.join(BENCHMARK)}")
    bytes_ = VOLUMES * FILES_KEPT * options.extent.mib * MIB
    check_directory(options.directory, bytes_, "the benchmark")
    for mib in (options.extent.mib, options.extent.small_mib):
        sequential_cases(how_of(options), mib * MIB)
    if options.json:
        check_output(options.json)
    return options


def how_of(options: argparse.Namespace, directory: Path | None = None) -> How:
    """Return how the options want to measure, in this directory or in theirs."""
    return How(
        directory=directory or options.directory,
        extent=options.extent,
        block=options.block_kib << 10,
        access=options.access_kib << 10,
        depth=options.depth,
        servers=options.servers,
        ranks=options.ranks,
        mode=options.mode,
        warms=not options.quick,
    )


def measure(options: argparse.Namespace, runner: Runner, directory: Path) -> Report:
    """Measure all parts, and return everything."""
    how = how_of(options, directory)
    facts, where = host_facts(), place(directory.parent)
    bench = Bench(how, runner)
    tables = [table for part in options.part for table in BENCHMARK[part](bench)]
    return {
        "machine": facts
        | runner.machine
        | {"load_average_at_start": facts["load_average_at_start"]},
        "where": where,
        "options": asdict(how.extent)
        | {name: getattr(how, name) for name in ("block", "access", "depth", "servers", "ranks")}
        | {"mode": how.mode},
        "tables": tables,
    }


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def split(column: str) -> tuple[str, str]:
    """Return the group of a column, if it has one, and its name in it."""
    group, _, name = column.rpartition("|")
    return group, name


def table_text(table: Table) -> str:
    """Return a table for people: medians, fractions of the row beside, and aims."""
    names = dict.fromkeys(column for row in table.rows.values() for column in row)
    shown = [name for name in names if split(name)[0] not in table.hidden]
    heads = [("", "")]
    for name in shown:
        heads += [split(name), ("", "of it")] if table.beside else [split(name)]
    heads += [split(quotient.name) for quotient in table.quotients]
    heads += [("", "aim")] if table.aims else []
    cells = [[name for _, name in heads]]
    if any(group for group, _ in heads):
        before = [("", ""), *heads]
        cells.insert(
            0,
            [
                group if group != last else ""
                for (group, _), (last, _) in zip(heads, before, strict=False)
            ],
        )
    for row in table.rows:
        cells.append([row, *row_text(table, row, shown)])
    return "\n".join([f"{table.part}, {table.title}", "", *columns(cells)])


def row_text(table: Table, row: str, shown: Sequence[str]) -> Iterator[str]:
    """Yield the cells of a row behind its name."""
    aim = table.aims.get(row)
    for column in shown:
        rate = median_of(table, row, column)
        of_beside = rate / median_of(table, table.beside, column) if table.beside else rate
        is_aimed_at = aim is not None and (not table.aims_at or column in table.aims_at)
        mark = SHORT if is_aimed_at and of_beside < (aim or 0) else ""
        text = f"{rate / table.scale:,.0f}" if rate == rate else "-"
        yield text if table.beside else text + mark
        if table.beside:
            yield f"{of_beside:.2f}{mark}"
    for quotient in table.quotients:
        value = quotient_of(table, row, quotient)
        is_far = quotient.distance_max is not None and abs(value - 1) > quotient.distance_max
        yield f"{value:.2f}{SHORT if is_far else ''}"
    if table.aims:
        yield "" if aim is None else f"{aim:.2f}" if table.beside else f"{aim:,.0f}"


def median_of(table: Table, row: str | None, column: str) -> float:
    """Return the rate of a row and column; no number where there is none."""
    found = table.rows.get(row or "", {}).get(column)
    return median(found) if found else math.nan


def quotient_of(table: Table, row: str, quotient: Quotient) -> float:
    """Return the value of a column that is a quotient."""
    return median_of(table, row, quotient.over) / median_of(table, row, quotient.under)


def text(report: Report) -> str:
    """Return the report for people."""
    machine, options = report["machine"], report["options"]
    mpi = f"; {machine['mpi']}" if "mpi" in machine else ""
    lines = [
        f"parallel files in {report['where']}; blocks of {size_text(options['block'])}, "
        f"{options['mode']} mode; medians of {options['rounds']} rounds",
        f"{machine['cpus']} x {machine['cpu']}{mpi}; load average "
        f"{machine['load_average_at_start']:.1f} when it began",
        f"{SHORT}: short of its aim; MB: 10^6 bytes; disk: direct I/O, writes with a sync, reads "
        "of what no cache has; cache: all in the servers' caches",
    ]
    return "\n\n".join(["\n".join(lines), *map(table_text, report["tables"])])


def main(words: list[str]) -> int:
    """Run the benchmark, print its tables, and return the exit code."""
    # A benchmark that is ended leaves no ranks and no files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = parse(words)
        shown = not options.quiet and sys.stderr.isatty()
        mpiexec = find_mpiexec() if options.ranks > 1 else ""
        runner = Runner(mpiexec, "penstock_bench.files_job", shown)
        try:
            with scratch([options.directory]) as (directory,):
                report = measure(options, runner, Path(directory))
        finally:
            runner.bar.close()
        if options.json:
            tables = [asdict(table) for table in report["tables"]]
            Path(options.json).write_text(json.dumps(report | {"tables": tables}, indent=1) + "\n")
        print(text(report), flush=True)
    except (UsageError, FailedError) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0
