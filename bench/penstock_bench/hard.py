"""This benchmark reads and writes one shared file in a hard case and in an easy one.

- *hard*: records of 47,008 bytes, dealt in turn to the ranks;
- *easy*: one large contiguous part for each rank, moved in pieces of 1 MiB.

Both are written and read by Penstock, by ``pread`` and ``pwrite`` of every rank (POSIX), and by
MPI-IO with the hints that were found best. Programs alternate, and a job of its own runs each
(:mod:`penstock_bench.hard_job`), so that each has a first read, as after a restart. A job makes, in
this order:

- *first cold*: the first read of new processes; the page cache has nothing of the file;
- *later cold*: the same read once more, with the file dropped from the page cache;
- *warm*: the same read of a file that the page cache has;
- *write*: a write of a new file with sync.

All programs read the same file. Before the write, free memory is touched, as
:mod:`penstock_bench.storage` says; before the first read, as after a restart, it is not. A fraction
is that of POSIX's rate in the easy case: of its writes, its warm reads, or its later cold reads.
Every read and every written file is checked.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from penstock_bench.case import Case, slabs, values
from penstock_bench.command import (
    MIB,
    FailedError,
    Parser,
    UsageError,
    check_directory,
    check_output,
    complain,
    show_step,
)
from penstock_bench.direct import direct_rate
from penstock_bench.figures import columns, scratch
from penstock_bench.hard_job import (
    COLD_FIRST,
    COLD_LATER,
    OPERATIONS,
    PIECE_BYTES,
    PROGRAMS,
    HardJob,
    make_case,
)
from penstock_bench.job import Result, Runner, find_mpiexec
from penstock_bench.machine import file_system, place
from penstock_bench.meters import in_turn
from penstock_bench.rivals import limits

Report = dict[str, Any]

REFERENCE = "easy", "POSIX"
"""Rates are compared with those of this case and program."""
DIRECT = "Penstock, direct=True"
"""File systems in memory refuse this program."""
POLLING = "MPI-IO"
"""Ranks of this program wait awake."""


def parser() -> Parser:
    """Return the command line."""
    result = Parser(
        prog="python -m penstock_bench hard",
        description="Records dealt out in turn, and large parts, in one shared file.",
        epilog="Programs: " + "; ".join(PROGRAMS) + ". Exit codes: 0 done, 1 wrong data, 2 bad "
        "options.",
    )
    add = result.add_argument
    add("--ranks", type=int, default=8, help="(default: %(default)s)")
    add("--mib", type=int, default=512, help="the size of a file, about (default: %(default)s)")
    add("--repeats", type=int, default=5, help="jobs of a program (default: %(default)s)")
    add("--path", default=".", help="directory to write in (default: this one)")
    add("--programs", default=";".join(PROGRAMS), help="separated by ; (default: all)")
    add("--cases", default="hard,easy", help="(default: %(default)s)")
    add("--cb-buffer", type=int, default=1, help="MPI-IO: buffers in MiB (default: %(default)s)")
    add(
        "--real-time",
        action="store_true",
        help="timed calls run before the programs of others, on a busy machine, with privileges; "
        "without MPI-IO, whose ranks poll and would keep each other from running",
    )
    add("--json", metavar="FILE", help="write all figures to FILE as JSON")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line, and refuse what makes no sense."""
    options = parser().parse_args(words)
    for name in ("ranks", "mib", "repeats", "cb_buffer"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is at least 1")
    for option, known in (("programs", PROGRAMS), ("cases", PIECE_BYTES)):
        separator = ";" if option == "programs" else ","
        wanted = [word.strip() for word in getattr(options, option).split(separator)]
        for word in wanted:
            if word not in known:
                raise UsageError(f"--{option} {word!r} is none of {', '.join(known)}")
        setattr(options, option, wanted)
    check_directory(Path(options.path), 4 * options.mib * MIB, "the benchmark")
    if file_system(Path(options.path)) == "tmpfs":
        options.programs = [name for name in options.programs if name != DIRECT]
    if options.real_time:
        options.programs = [name for name in options.programs if name != POLLING]
    if options.json:
        check_output(options.json)
    return options


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def make_source(path: Path, case: Case, salt: int) -> None:
    """Write the file of a case, which all programs read, and sync it."""
    with open(path, "wb") as file:
        for _, indices in slabs(case.everything()):
            file.write(values(case.shape, case.dtype, indices, salt).data)
        file.flush()
        os.fsync(file.fileno())


def disk_rate(path: Path) -> float:
    """Return what the disk can do, in bytes a second: the best of three direct reads."""
    return max(direct_rate(path, "read") for _ in range(3))


def measure(options: argparse.Namespace, runner: Runner, directory: Path) -> Report:
    """Run all jobs, in turn, and return everything that was measured."""
    salts = itertools.count(1)
    sources: dict[str, tuple[Path, int]] = {}
    for kind in options.cases:
        sources[kind] = directory / f"source-{kind}", next(salts)
        case = make_case(kind, options.mib * MIB, directory, 0, options.ranks)
        make_source(sources[kind][0], case, sources[kind][1])
    rates = limits(directory, time.perf_counter)
    if file_system(directory) != "tmpfs" and os.path.getsize(sources[options.cases[0]][0]) >= MIB:
        with contextlib.suppress(OSError):  # some file systems have no direct I/O
            rates["direct reads of the disk"] = disk_rate(sources[options.cases[0]][0])
    contenders = list(itertools.product(options.cases, options.programs))
    runner.bar.total = options.repeats * len(contenders)
    for repeat, (kind, program) in in_turn(contenders, range(options.repeats)):
        show_step(runner.bar, f"{kind}, {program}, repeat {repeat + 1}")
        runner.run(
            HardJob(
                clients=options.ranks,
                directory=str(directory),
                kind=kind,
                program=program,
                mib=options.mib,
                source=str(sources[kind][0]),
                salts=(sources[kind][1], next(salts)),
                cb_buffer_mib=options.cb_buffer,
                real_time=options.real_time,
            )
        )
    return {
        "machine": runner.machine,
        "where": place(directory.parent),
        "ranks": options.ranks,
        "repeats": options.repeats,
        "limits_bytes_per_second": rates,
        "measurements": runner.results,
    }


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def rates_of(results: list[Result], kind: str, program: str, operation: str) -> list[float]:
    """Return all rates of an operation in MB/s."""
    return [
        result["bytes"] / result["seconds"][operation] / 1e6
        for result in results
        if (result["kind"], result["program"]) == (kind, program)
    ]


def table(report: Report) -> str:
    """Return the report for people."""
    machine, results = report["machine"], report["measurements"]
    sizes = {result["kind"]: result["bytes"] / 1e6 for result in results}
    limits_ = report["limits_bytes_per_second"].items()
    lines = [
        f"{report['ranks']} ranks, one file of "
        + ", ".join(f"{size:.0f} MB ({kind})" for kind, size in sizes.items())
        + f", in {report['where']}",
        f"medians of {report['repeats']} in MB/s (least-greatest), and the fraction of POSIX's "
        f"rate in the easy case",
        f"{machine['cpus']} x {machine['cpu']}; {machine['mpi']}; "
        f"load average {machine['load_average_at_start']:.1f} when it began",
        "limits: " + ", ".join(f"{name} {rate / 1e6:,.0f} MB/s" for name, rate in limits_),
        "",
    ]
    cells = [["case, program", *OPERATIONS]]
    for kind, program in dict.fromkeys((one["kind"], one["program"]) for one in results):
        row = [f"{kind}, {program}"]
        for operation in OPERATIONS:
            found = rates_of(results, kind, program, operation)
            beside = rates_of(results, *REFERENCE, reference(operation))
            fraction = f" {median(found) / median(beside):.2f}" if beside else ""
            row.append(f"{median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f}){fraction}")
        cells.append(row)
    wrong = sum(result["wrong"] for result in results)
    return "\n".join([*lines, *columns(cells), *([f"{wrong} ELEMENTS WRONG"] if wrong else [])])


def reference(operation: str) -> str:
    """Return the operation of POSIX with which an operation is compared."""
    return COLD_LATER if operation == COLD_FIRST else operation


def main(words: list[str]) -> int:
    """Run the benchmark, print its table, and return the exit code."""
    # A benchmark that is ended leaves no ranks and no files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = parse(words)
        shown = not options.quiet and sys.stderr.isatty()
        runner = Runner(find_mpiexec(), "penstock_bench.hard_job", shown)
        try:
            with scratch([Path(options.path)]) as (directory,):
                report = measure(options, runner, Path(directory))
        finally:
            runner.bar.close()
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
        print(table(report), flush=True)
    except (UsageError, FailedError) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if any(result["wrong"] for result in report["measurements"]) else 0
