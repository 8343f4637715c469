"""This benchmark measures writing and reading one distributed array, beside other libraries.

    mpiexec -n 8 python -m penstock_bench collective --strategy penstock,mpiio --repeats 5

How time, processor time and memory are measured, :mod:`penstock_bench.meters` says. Memory is
measured in one extra repeat, which also warms everything up.

- *Rivals alternate* within each repeat, in turn forwards and backwards; figures are medians.
- *Every byte is verified* in every repeat: after a write the files are read back with NumPy or
  zarr-python, after a read the arrays are compared.

1 MB is 10^6 bytes. Writes include bringing the data to stable storage unless ``--no-sync``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock_bench.case import Case, Disk, Distribution
from penstock_bench.command import (
    Parser,
    UsageError,
    check_directory,
    check_output,
    complain,
    dims_text,
    parse_dims,
    progress_bar,
    show_step,
)
from penstock_bench.machine import machine_facts
from penstock_bench.meters import in_turn, memory_peak, rest, timed
from penstock_bench.pnetcdf import PnetCdf
from penstock_bench.rivals import RIVALS, Contender, MpiIo, Options, Penstock, limits
from penstock_bench.storage import drop_from_cache, give_space_back, touch_free_memory

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm
    from tqdm import tqdm

STRATEGIES: dict[str, type[Contender]] = {**RIVALS, PnetCdf.name: PnetCdf}

# ---------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------


def parser() -> Parser:
    """Return the command line."""
    result = Parser(
        prog="python -m penstock_bench collective",
        usage="mpiexec -n RANKS python -m penstock_bench collective [options]",
        description="Measure writing and reading one distributed array.",
        epilog="Strategies: "
        + ", ".join(STRATEGIES)
        + ", limit (what one core can do). Exit codes: 0 done, 1 wrong data, 2 bad options.",
    )
    add = result.add_argument
    add("--shape", default="512x512x256", help="global extents (default: %(default)s)")
    add("--dtype", default="f8", help="NumPy element type (default: %(default)s)")
    add("--dist", help="BLOCK, CYCLIC, CYCLIC(k) or * a dimension (default: BLOCK everywhere)")
    add("--mesh", help="extents of the mesh of ranks, 2x2x2 (default: as even as possible)")
    add(
        "--disk",
        default="row-major",
        help="row-major, npy, chunks:64,64,64[/32,32,32][:codec] or parts:BLOCK,*,*:2 "
        "(default: %(default)s)",
    )
    add("--path", default="/dev/shm", help="directory to write in (default: %(default)s)")
    add("--strategy", default="penstock", help="comma-separated (default: %(default)s)")
    add("--repeats", type=int, default=5, help="timed repeats (default: %(default)s)")
    add("--json", metavar="FILE", help="write all figures to FILE as JSON")
    add("--servers", type=int, help="Penstock: I/O servers (default: its own choice)")
    add("--by", default="disk-directed", help="Penstock: strategies, as of Session (%(default)s)")
    add("--direct", action="store_true", help="Penstock: around the page cache")
    add("--transport", choices=("shared", "messages"), default="shared", help="Penstock: memget by")
    add("--cb-nodes", default="8,4", help="mpiio, pnetcdf: aggregators (default: %(default)s)")
    add("--cb-buffers", default="1,4", help="mpiio, pnetcdf: their buffers in MiB (%(default)s)")
    add("--pnetcdf", type=Path, metavar="FILE", help="pnetcdf: the library, libpnetcdf.so")
    add("--no-sync", action="store_true", help="do not bring writes to stable storage")
    add("--cold", action="store_true", help="drop the file from the page cache before each read")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def distribution(options: argparse.Namespace, shape: Sequence[int], size: int) -> Distribution:
    """Return ``--dist`` over ``--mesh``, with their defaults."""
    text = options.dist or ",".join(["BLOCK"] * len(shape))
    kinds = text.split(",")
    if len(kinds) != len(shape):
        raise UsageError(f"--dist {text!r} has {len(kinds)} dimensions, the array {len(shape)}")
    distributed = sum(kind.strip() != "*" for kind in kinds)
    if options.mesh:
        mesh = parse_dims(options.mesh, "--mesh")
    else:
        from mpi4py import MPI

        mesh = tuple(MPI.Compute_dims(size, distributed)) if distributed else ()
    result = Distribution.parse(text, mesh)
    if result.parts > size:
        raise UsageError(
            f"the mesh {dims_text(mesh)} needs {result.parts} ranks, this run has {size}: "
            f"start it with mpiexec -n {result.parts}"
        )
    return result


def make_case(options: argparse.Namespace, rank: int, size: int) -> Case:
    """Return the case that the options describe."""
    shape = parse_dims(options.shape, "--shape")
    try:
        dtype = np.dtype(options.dtype)
    except TypeError as error:
        raise UsageError(f"--dtype {options.dtype!r} is no NumPy element type") from error
    if dtype.kind not in "biufc":
        raise UsageError(f"--dtype {options.dtype!r}: expected booleans, integers or floats")
    disk = Disk.parse(options.disk)
    disk_dims = len(disk.chunk) or (len(disk.parts.kinds) if disk.parts else len(shape))
    if disk_dims != len(shape):
        raise UsageError(f"--disk {options.disk}: {disk_dims} dimensions, the array {len(shape)}")
    if options.repeats < 1:
        raise UsageError("--repeats must be at least 1")
    if options.json:
        check_output(options.json)
    case = Case(
        shape,
        dtype,
        distribution(options, shape, size),
        disk,
        Path(options.path) / f"penstock-bench-{options.run}",
        not options.no_sync,
        rank,
        size,
    )
    check_directory(Path(options.path), 1.1 * case.bytes, "the array")
    return case


def strategies(options: argparse.Namespace, case: Case) -> list[str]:
    """Return the strategies asked for, if each is known and can write this disk schema."""
    names = [name.strip() for name in options.strategy.split(",")]
    for name in names:
        if name == "limit":
            continue
        if name not in STRATEGIES:
            raise UsageError(f"--strategy {name!r} is none of {', '.join(STRATEGIES)}, limit")
        if case.disk.kind not in STRATEGIES[name].disks:
            raise UsageError(
                f"--strategy {name} cannot write --disk {options.disk}, "
                f"only {', '.join(STRATEGIES[name].disks)}"
            )
    return names


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """All that was measured of one operation of one contender."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    wrong_elements: int = 0
    private_bytes_peak: int = 0
    shared_bytes_peak: int = 0


class Bench:
    """A bench measures the contenders in turn, again and again."""

    def __init__(
        self, case: Case, comm: Intracomm, contenders: Sequence[Contender], cold: bool, bar: tqdm
    ) -> None:
        self.case, self.comm, self.contenders = case, comm, contenders
        self.cold, self.bar = cold, bar
        self.local = np.zeros(case.local_shape(), case.dtype)
        self.out = np.zeros(case.local_shape(), case.dtype)
        self.figures = {
            (contender.label, operation): Figures()
            for contender in contenders
            for operation in ("write", "read")
        }

    def run(self, repeats: int) -> None:
        """Make one untimed repeat, in which memory is sampled, and then the timed ones."""
        turns = in_turn(self.contenders, range(repeats + 1))
        for salt, (repeat, contender) in enumerate(turns, 1):
            self._measure(contender, repeat, salt)

    def _measure(self, contender: Contender, repeat: int, salt: int) -> None:
        """Write and read once, and verify both."""
        case, comm = self.case, self.comm
        what = f"{contender.label}: " + (f"repeat {repeat}" if repeat else "warm-up, memory")
        target = case.directory / f"{case.name}-{salt}"
        case.fill(self.local, salt)
        self.out.reshape(-1).view(np.uint8)[...] = 0xA5

        show_step(self.bar, f"{what}: write")
        if comm.rank == 0:
            touch_free_memory(case.directory, 3 * case.bytes)
        rest(comm)
        self._call("write", contender, repeat, lambda: contender.write(target, self.local))
        self._wrong("write", contender, contender.wrong_on_disk(target, salt))
        if self.cold and comm.rank == 0:
            drop_from_cache(target)
        rest(comm)

        show_step(self.bar, f"{what}: read")
        self._call("read", contender, repeat, lambda: contender.read(target, self.out))
        self._wrong("read", contender, case.wrong_in_memory(self.out, salt))
        if comm.rank == 0:
            give_space_back(target)
        rest(comm)

    def _call(
        self, operation: str, contender: Contender, repeat: int, call: Callable[[], None]
    ) -> None:
        figures = self.figures[contender.label, operation]
        if repeat == 0:
            private, shared = memory_peak(self.comm, call)
            figures.private_bytes_peak, figures.shared_bytes_peak = private, shared
        else:
            seconds, cpu = timed(self.comm, call)
            figures.seconds.append(seconds)
            figures.cpu_seconds.append(cpu)

    def _wrong(self, operation: str, contender: Contender, wrong: int) -> None:
        self.figures[contender.label, operation].wrong_elements += self.comm.allreduce(wrong)


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def as_json(
    case: Case,
    options: argparse.Namespace,
    facts: dict[str, Any],
    rates: dict[str, float],
    figures: dict[tuple[str, str], Figures],
) -> dict[str, Any]:
    """Return everything that was measured, for programs."""
    results = []
    for (label, operation), measured in figures.items():
        seconds = statistics.median(measured.seconds)
        results.append(
            {
                "contender": label,
                "operation": operation,
                "seconds": seconds,
                "megabytes_per_second": case.bytes / seconds / 1e6,
                "cpu_seconds": statistics.median(measured.cpu_seconds),
                "private_bytes_peak": measured.private_bytes_peak,
                "shared_bytes_peak": measured.shared_bytes_peak,
                "wrong_elements": measured.wrong_elements,
                "all_seconds": measured.seconds,
                "all_cpu_seconds": measured.cpu_seconds,
            }
        )
    return {
        "case": {
            "shape": case.shape,
            "dtype": case.dtype.str,
            "dist": case.memory.text,
            "mesh": case.memory.mesh,
            "disk": options.disk,
            "bytes": case.bytes,
            "ranks": case.size,
            "path": options.path,
            "sync": case.sync,
            "cold": options.cold,
            "repeats": options.repeats,
        },
        "machine": facts,
        "limits_bytes_per_second": rates,
        "results": results,
    }


def table(report: dict[str, Any]) -> str:
    """Return the report for people."""
    case, machine = report["case"], report["machine"]
    lines = [
        f"{dims_text(case['shape'])} {np.dtype(case['dtype']).name}, {case['bytes'] / 1e6:.1f} MB, "
        f"{case['dist']} on {dims_text(case['mesh']) or 'no mesh'} of {case['ranks']} ranks, "
        f"{case['disk']} in {case['path']}",
        f"medians of {case['repeats']}, write {'with' if case['sync'] else 'without'} sync; "
        f"memory: what the neediest rank used beyond its arrays",
        f"{machine['cpus']} x {machine['cpu']}; {machine['mpi']}; "
        f"load average {machine['load_average_at_start']:.1f} when it began",
        "",
        *result_lines(report["results"], case["bytes"]),
    ]
    rates = report["limits_bytes_per_second"]
    if rates:
        text = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in rates.items())
        lines += ["", f"one core alone: {text}"]
    return "\n".join([*lines, *comparison(report["results"])])


def result_lines(results: list[dict[str, Any]], bytes_: int) -> list[str]:
    """Return a line for each operation of each contender, below a head."""
    if not results:
        return []
    width = max(len(result["contender"]) for result in results)
    width = max(width, len("strategy"))
    head = "  MB/s (slowest-fastest)  CPU s  private MiB  shared MiB"
    lines = [f"{'strategy':<{width}}  op   {head}"]
    for result in results:
        operation, wrong = result["operation"], result["wrong_elements"]
        rates = [bytes_ / seconds / 1e6 for seconds in result["all_seconds"]]
        spread = f"({min(rates):.0f}-{max(rates):.0f})"
        lines.append(
            f"{result['contender'] if operation == 'write' else '':<{width}}  {operation:<5}"
            f"  {result['megabytes_per_second']:>6.0f} {spread:<17}"
            f"  {result['cpu_seconds']:>4.2f}  {result['private_bytes_peak'] / 2**20:>11.1f}"
            f"  {result['shared_bytes_peak'] / 2**20:>10.1f}"
            + (f"  {wrong} ELEMENTS WRONG" if wrong else "")
        )
    return lines


def comparison(results: list[dict[str, Any]]) -> list[str]:
    """Compare Penstock with the fastest variant of each other library, for each operation."""
    lines = []
    for operation in ("write", "read"):
        measured = [result for result in results if result["operation"] == operation]
        ours = fastest(measured, Penstock.name)
        for rival in (MpiIo.name, PnetCdf.name):
            theirs = fastest(measured, rival)
            if ours and theirs:
                faster = theirs["seconds"] / ours["seconds"]
                share = 100 * ours["cpu_seconds"] / max(theirs["cpu_seconds"], 1e-9)
                lines.append(
                    f"{operation}: {ours['contender']} is {faster:.2f} times as fast as "
                    f"{theirs['contender']}, in {share:.0f}% of its CPU seconds"
                )
    return ["", *lines] if lines else []


def fastest(results: list[dict[str, Any]], strategy: str) -> dict[str, Any] | None:
    """Return the fastest result of a strategy, if it was measured."""
    mine = [result for result in results if result["contender"].split(",")[0] == strategy]
    return min(mine, key=lambda result: float(result["seconds"]), default=None)


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


def set_up(
    arguments: list[str], comm: Intracomm
) -> tuple[argparse.Namespace, Case, list[str], list[Contender]]:
    """Return options, case, strategies and contenders.

    An error of usage is the same on every rank.
    """
    options = parser().parse_args(arguments)
    options.run = comm.bcast(os.getpid())
    case = make_case(options, comm.rank, comm.size)
    names = strategies(options, case)
    rivals = Options(
        servers=options.servers,
        transport=options.transport,
        cb_nodes=parse_dims(options.cb_nodes, "--cb-nodes"),
        cb_buffers_mib=parse_dims(options.cb_buffers, "--cb-buffers"),
        by=tuple(word.strip() for word in options.by.split(",")),
        direct=options.direct or None,
        pnetcdf=options.pnetcdf,
    )
    contenders: list[Contender] = []
    for name in names:
        if name in STRATEGIES:
            contenders += STRATEGIES[name].contenders(case, comm, rivals)
    return options, case, names, contenders


def measure(arguments: list[str], comm: Intracomm) -> int:
    """Run the benchmark, and return the exit code."""
    first = comm.rank == 0
    options, case, names, contenders = set_up(arguments, comm)
    facts = machine_facts()
    if first:
        case.directory.mkdir()
    comm.Barrier()
    try:
        rates = limits(case.directory, time.perf_counter) if first and "limit" in names else {}
        rest(comm)
        steps = 2 * len(contenders) * (options.repeats + 1)
        bar = progress_bar(steps, first and not options.quiet and steps > 0)
        bench = Bench(case, comm, contenders, options.cold, bar)
        bench.run(options.repeats)
        bar.close()
        for contender in contenders:
            contender.close()
    finally:
        if first:
            shutil.rmtree(case.directory, ignore_errors=True)
    if first:
        report = as_json(case, options, facts, rates, bench.figures)
        print(table(report), flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(figures.wrong_elements for figures in bench.figures.values()) else 0


def main(arguments: list[str]) -> int:
    """Run the command, and return the exit code."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if {"-h", "--help"} & set(arguments):
        if comm.rank == 0:
            parser().print_help()
        return 0
    try:
        return measure(arguments, comm)
    except UsageError as error:
        if comm.rank == 0:
            complain(error)
        return 2
    except Exception:  # noqa: BLE001 - reported, and ends all ranks
        # The other ranks may be waiting for this one: only an abort ends them all.
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
        return 1
