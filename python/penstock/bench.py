"""Measures writing and reading one distributed array, with Penstock and with its rivals.

    mpiexec -n 8 python -m penstock.bench --strategy penstock,mpiio --repeats 5

What is measured, and how:

- *time*: from a moment on which all ranks have agreed, and until which they sleep, to when the last
  one has finished. A barrier would not do: ranks leave it one after the other, and what is
  collective would wait for the last. A rank that has finished sleeps until all have, so as not to
  take the processor from them.
- *CPU*: user and system seconds of all ranks, threads included, over the measured call only.
- *memory*: how much the rank that needs most grew during the call: private memory (the peak of
  ``RssAnon``) and shared memory (``RssShmem``; a mapped file on a tmpfs counts here, too).
  Sampled every 5 ms in one extra, untimed repeat, which also warms everything up.
- *rivals alternate* within each repeat, in turn forwards and backwards; figures are medians.
- *every byte is verified* in every repeat: after a write the files are read back with NumPy or
  zarr-python, after a read the arrays are compared.

1 MB is 10^6 bytes. Writes include bringing the data to stable storage unless ``--no-sync``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import resource
import shutil
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock._bench_case import (
    Case,
    Disk,
    Distribution,
    UsageError,
    dims_text,
    give_space_back,
    parse_dims,
    touch_free_memory,
)
from penstock._bench_rivals import RIVALS, Options, limits

SAMPLE_SECONDS = 0.005
WORK_UP_SECONDS = 0.1
"""How long all ranks work before each timed call."""
REST_SECONDS = 0.0002
"""How long a rank sleeps between two looks at a barrier: short against what is measured."""
QUIET_SECONDS = 0.01
"""The same where others are still being timed: looking takes their processors from them."""
START_SECONDS = 0.02
"""How long before they start ranks agree on when: long enough for all to hear of it."""
PAGE_ORDER_MAX = 10
"""Linux has no free memory in pieces larger than 2^10 pages."""


# ---------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Reports a bad option as one line, to be printed by one rank only."""

    def error(self, message: str):
        raise UsageError(message)


def parser() -> Parser:
    """The command line."""
    result = Parser(
        prog="python -m penstock.bench",
        usage="mpiexec -n RANKS python -m penstock.bench [options]",
        description="Measure writing and reading one distributed array.",
        epilog="Strategies: "
        + ", ".join(RIVALS)
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
    add("--cb-nodes", default="8,4", help="mpiio: numbers of aggregators (default: %(default)s)")
    add("--no-sync", action="store_true", help="do not bring writes to stable storage")
    add("--cold", action="store_true", help="drop the file from the page cache before each read")
    add("--quiet", action="store_true", help="no progress bar")
    return result


def distribution(options, shape: tuple[int, ...], size: int) -> Distribution:
    """``--dist`` over ``--mesh``, with their defaults."""
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


def make_case(options, rank: int, size: int) -> Case:
    """The case that the options describe."""
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
    if options.json and not os.access(Path(options.json).absolute().parent, os.W_OK):
        raise UsageError(f"--json {options.json}: its directory cannot be written to")
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
    check_place(case, Path(options.path))
    return case


def check_place(case: Case, path: Path) -> None:
    """Refuses a directory that is missing, not writable or too small."""
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise UsageError(f"--path {path} is not a directory that can be written to")
    free = shutil.disk_usage(path).free
    if free < 1.1 * case.bytes:
        raise UsageError(
            f"--path {path} has {free / 1e6:.0f} MB free, the array takes {case.bytes / 1e6:.0f} MB"
        )


def strategies(options, case: Case) -> list[str]:
    """The strategies asked for; each must be known and able to write this disk schema."""
    names = [name.strip() for name in options.strategy.split(",")]
    for name in names:
        if name == "limit":
            continue
        if name not in RIVALS:
            raise UsageError(f"--strategy {name!r} is none of {', '.join(RIVALS)}, limit")
        if case.disk.kind not in RIVALS[name].disks:
            raise UsageError(
                f"--strategy {name} cannot write --disk {options.disk}, "
                f"only {', '.join(RIVALS[name].disks)}"
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


def rest(comm, nap_seconds: float = REST_SECONDS) -> None:
    """A barrier in which ranks sleep, so that the late ones have the processor to themselves."""
    sleep_until_done(comm.Ibarrier(), nap_seconds)


def sleep_until_done(request, nap_seconds: float = REST_SECONDS) -> None:
    """Waits for what MPI has begun, without taking the processor from others."""
    while not request.Test():
        time.sleep(nap_seconds)


def agree_on_start(comm) -> float:
    """The moment at which all ranks are to start, on this host's clock (``time.perf_counter``).
    Hosts, whose clocks differ, agree by a barrier."""
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rest(comm)
    start = np.array([time.perf_counter() + START_SECONDS])
    sleep_until_done(host.Ibcast(start))
    host.Free()
    return float(start[0])


def work_up() -> None:
    """Keeps the processors busy for a moment: one that has idled is slow at first, and who was
    measured after a pause would pay for that."""
    source, target = np.ones(1 << 18), np.empty(1 << 18)
    until = time.perf_counter() + WORK_UP_SECONDS
    while time.perf_counter() < until:
        target[...] = source


def cpu_seconds() -> float:
    """User and system time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(comm, call: Callable[[], None]) -> tuple[float, float]:
    """Wall seconds until the last rank has finished, and CPU seconds of all ranks, for a
    collective call."""
    from mpi4py import MPI

    work_up()
    start, cpu = agree_on_start(comm), cpu_seconds()
    time.sleep(max(0.0, start - time.perf_counter()))
    call()
    wall = time.perf_counter() - start
    time.sleep(QUIET_SECONDS)  # others may still be at it, and MPI would take their processors
    cpu = cpu_seconds() - cpu
    rest(comm, QUIET_SECONDS)
    return comm.allreduce(wall, MPI.MAX), comm.allreduce(cpu, MPI.SUM)


def waking_seconds(comm) -> float:
    """Wall seconds until the last rank has begun a timed call, the same on all: what is collective
    cannot begin before."""
    wall, _ = timed(comm, lambda: None)
    return wall


def memory_in_use() -> tuple[int, int]:
    """Private and shared memory of this process in bytes; zeros where Linux does not say."""
    found = {"RssAnon": 0, "RssShmem": 0}
    try:
        with open("/proc/self/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in found:
                    found[name] = int(value.split()[0]) << 10
    except OSError:
        pass
    return found["RssAnon"], found["RssShmem"]


def memory_peak(comm, call: Callable[[], None]) -> tuple[int, int]:
    """How much private and shared memory grew during a call, at the rank where it grew most."""
    from mpi4py import MPI

    give_back_memory()
    before = memory_in_use()
    peak = list(before)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[:] = map(max, peak, memory_in_use())

    sampler = threading.Thread(target=sample, daemon=True)
    rest(comm)
    sampler.start()
    call()
    peak[:] = map(max, peak, memory_in_use())
    done.set()
    sampler.join()
    rest(comm)
    private, shared = (comm.allreduce(p - b, MPI.MAX) for p, b in zip(peak, before, strict=True))
    return private, shared


def give_back_memory() -> None:
    """Returns what earlier calls freed to the system, so that it cannot be used unseen."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def drop_from_cache(target: Path) -> None:
    """Makes the next read come from the device (on a tmpfs there is none: no effect)."""
    files = [path for path in target.rglob("*") if path.is_file()] if target.is_dir() else [target]
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class Progress:
    """A bar on rank 0's standard error."""

    WIDTH = 24

    def __init__(self, steps: int, shown: bool) -> None:
        self.steps, self.done, self.shown = steps, 0, shown

    def step(self, text: str) -> None:
        """Shows what is about to happen."""
        if self.shown:
            filled = self.WIDTH * self.done // self.steps
            bar = "#" * filled + "." * (self.WIDTH - filled)
            line = f"[{bar}] {self.done}/{self.steps} {text}"
            sys.stderr.write(f"\r{line[:99]:<99}")
            sys.stderr.flush()
        self.done += 1

    def close(self) -> None:
        """Wipes the bar."""
        if self.shown:
            sys.stderr.write(f"\r{'':<99}\r")
            sys.stderr.flush()


class Bench:
    """Measures the contenders in turn, again and again."""

    def __init__(self, case: Case, comm, contenders: list, cold: bool, progress: Progress) -> None:
        self.case, self.comm, self.contenders = case, comm, contenders
        self.cold, self.progress = cold, progress
        self.local = np.zeros(case.local_shape(), case.dtype)
        self.out = np.zeros(case.local_shape(), case.dtype)
        self.figures = {
            (contender.label, operation): Figures()
            for contender in contenders
            for operation in ("write", "read")
        }

    def run(self, repeats: int) -> None:
        """One untimed repeat, in which memory is sampled, and then the timed ones."""
        salt = 0
        for repeat in range(repeats + 1):
            order = self.contenders[::-1] if repeat % 2 else self.contenders
            for contender in order:
                salt += 1
                self._measure(contender, repeat, salt)

    def _measure(self, contender, repeat: int, salt: int) -> None:
        """Writes and reads once, and verifies both."""
        case, comm = self.case, self.comm
        what = f"{contender.label}: " + (f"repeat {repeat}" if repeat else "warm-up, memory")
        target = case.directory / f"{case.name}-{salt}"
        case.fill(self.local, salt)
        self.out.reshape(-1).view(np.uint8)[...] = 0xA5

        self.progress.step(f"{what}: write")
        if comm.rank == 0:
            touch_free_memory(case.directory, 3 * case.bytes)
        rest(comm)
        self._call("write", contender, repeat, lambda: contender.write(target, self.local))
        self._wrong("write", contender, case.wrong_on_disk(target, salt))
        if self.cold and comm.rank == 0:
            drop_from_cache(target)
        rest(comm)

        self.progress.step(f"{what}: read")
        self._call("read", contender, repeat, lambda: contender.read(target, self.out))
        self._wrong("read", contender, case.wrong_in_memory(self.out, salt))
        if comm.rank == 0:
            give_space_back(target)
        rest(comm)

    def _call(self, operation: str, contender, repeat: int, call: Callable[[], None]) -> None:
        figures = self.figures[contender.label, operation]
        if repeat == 0:
            private, shared = memory_peak(self.comm, call)
            figures.private_bytes_peak, figures.shared_bytes_peak = private, shared
        else:
            seconds, cpu = timed(self.comm, call)
            figures.seconds.append(seconds)
            figures.cpu_seconds.append(cpu)

    def _wrong(self, operation: str, contender, wrong: int) -> None:
        self.figures[contender.label, operation].wrong_elements += self.comm.allreduce(wrong)


# ---------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------


def machine_facts() -> dict:
    """What the figures depend on."""
    from mpi4py import MPI

    return {
        "cpus": os.cpu_count(),
        "cpu": cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].split()),
        "load_average_at_start": os.getloadavg()[0],
        "free_page_reporting": has_free_page_reporting(),
    }


def has_free_page_reporting() -> bool:
    """Whether this is a virtual machine whose host takes back memory as soon as it is free."""
    try:
        order = Path("/sys/module/page_reporting/parameters/page_reporting_order").read_text()
    except OSError:
        return False
    return 0 <= int(order) <= PAGE_ORDER_MAX


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def as_json(case: Case, options, facts: dict, rates: dict, figures: dict) -> dict:
    """Everything that was measured, for programs."""
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


def table(report: dict) -> str:
    """The report for people."""
    case, machine = report["case"], report["machine"]
    by_label: dict[str, dict[str, dict]] = {}
    for result in report["results"]:
        by_label.setdefault(result["contender"], {})[result["operation"]] = result
    width = max([len(label) for label in by_label] + [len("strategy")])
    head = "  MB/s (slowest-fastest)  CPU s  private MiB  shared MiB"
    lines = [
        f"{dims_text(case['shape'])} {np.dtype(case['dtype']).name}, {case['bytes'] / 1e6:.1f} MB, "
        f"{case['dist']} on {dims_text(case['mesh']) or 'no mesh'} of {case['ranks']} ranks, "
        f"{case['disk']} in {case['path']}",
        f"medians of {case['repeats']}, write {'with' if case['sync'] else 'without'} sync; "
        f"memory: what the neediest rank used beyond its arrays",
        f"{machine['cpus']} x {machine['cpu']}; {machine['mpi']}; "
        f"load average {machine['load_average_at_start']:.1f} when it began",
        "",
    ]
    if by_label:
        lines.append(f"{'strategy':<{width}}  op   {head}")
    for label, results in by_label.items():
        for operation, result in results.items():
            rates = [case["bytes"] / seconds / 1e6 for seconds in result["all_seconds"]]
            spread = f"({min(rates):.0f}-{max(rates):.0f})"
            wrong = result["wrong_elements"]
            lines.append(
                f"{label if operation == 'write' else '':<{width}}  {operation:<5}"
                f"  {result['megabytes_per_second']:>6.0f} {spread:<17}"
                f"  {result['cpu_seconds']:>4.2f}  {result['private_bytes_peak'] / 2**20:>11.1f}"
                f"  {result['shared_bytes_peak'] / 2**20:>10.1f}"
                + (f"  {wrong} ELEMENTS WRONG" if wrong else "")
            )
    rates = report["limits_bytes_per_second"]
    if rates:
        text = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in rates.items())
        lines += ["", f"one core alone: {text}"]
    return "\n".join([*lines, *comparison(report["results"])])


def comparison(results: list[dict]) -> list[str]:
    """Penstock against the fastest variant of MPI-IO, for each operation."""
    lines = []
    for operation in ("write", "read"):
        measured = [result for result in results if result["operation"] == operation]
        ours = [result for result in measured if result["contender"].startswith("penstock")]
        theirs = [result for result in measured if result["contender"].startswith("mpiio")]
        if ours and theirs:
            ours, theirs = (min(group, key=lambda r: r["seconds"]) for group in (ours, theirs))
            faster = theirs["seconds"] / ours["seconds"]
            share = 100 * ours["cpu_seconds"] / max(theirs["cpu_seconds"], 1e-9)
            lines.append(
                f"{operation}: {ours['contender']} is {faster:.2f} times as fast as "
                f"{theirs['contender']}, in {share:.0f}% of its CPU seconds"
            )
    return ["", *lines] if lines else []


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


def set_up(arguments: list[str], comm) -> tuple[argparse.Namespace, Case, list[str], list]:
    """Options, case, strategies and contenders; an error of usage is the same on every rank."""
    options = parser().parse_args(arguments)
    options.run = comm.bcast(os.getpid())
    case = make_case(options, comm.rank, comm.size)
    names = strategies(options, case)
    nodes = parse_dims(options.cb_nodes, "--cb-nodes")
    by = tuple(word.strip() for word in options.by.split(","))
    rivals = Options(options.servers, options.transport, nodes, by, options.direct)
    contenders = []
    for name in names:
        if name in RIVALS:
            contenders += contenders_of(name, case, comm, rivals)
    return options, case, names, contenders


def contenders_of(name: str, case: Case, comm, rivals: Options) -> list:
    """The variants of one strategy. What Penstock itself refuses is an error of usage, too."""
    from penstock import Error

    try:
        return RIVALS[name].contenders(case, comm, rivals)
    except Error as error:
        raise UsageError(str(error)) from error


def measure(arguments: list[str], comm) -> int:
    """Runs the benchmark; the exit code."""
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
        progress = Progress(steps, first and not options.quiet and steps > 0)
        bench = Bench(case, comm, contenders, options.cold, progress)
        if contenders:
            bench.run(options.repeats)
        progress.close()
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


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        from mpi4py import MPI
    except ImportError:
        print(
            "penstock.bench: needs mpi4py and an MPI library: pip install mpi4py", file=sys.stderr
        )
        return 2
    comm = MPI.COMM_WORLD
    if {"-h", "--help"} & set(arguments):
        if comm.rank == 0:
            parser().print_help()
        return 0
    try:
        return measure(arguments, comm)
    except UsageError as error:
        if comm.rank == 0:
            print(f"penstock.bench: {error}", file=sys.stderr, flush=True)
        return 2
    except Exception:  # noqa: BLE001 - reported, and ends all ranks
        # The other ranks may be waiting for this one: only an abort ends them all.
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
        return 1


if __name__ == "__main__":
    sys.exit(main())
