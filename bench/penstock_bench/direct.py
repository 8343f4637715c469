"""This module measures a disk by direct I/O: the rate beside which other rates are put."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from penstock_bench.command import MIB, FailedError
from penstock_bench.panda_job import huge_page
from penstock_bench.storage import drop_from_cache

FIO_SECONDS_MAX = 300
"""A run of fio that takes longer hangs."""


@functools.cache
def fio_version() -> str | None:
    """Return what fio calls itself; nothing where there is none."""
    found = shutil.which("fio")
    if found is None:
        return None
    return subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()


def fio_rate(path: Path, operation: str, count: int, access: int, depth: int) -> float:
    """Measure a ``read`` or ``write`` of a file from its first byte to its last, in bytes a second.

    Parameters
    ----------
    path : Path
        The file, which fio makes if it is not there.
    operation : {'read', 'write'}
        What is measured; a write with a sync at its end.
    count, access : int
        The bytes of the file, and of an access.
    depth : int
        The accesses under way.
    """
    command = ["fio", "--name=penstock", f"--filename={path}", f"--size={count}"]
    command += [f"--rw={operation}", f"--bs={access}", "--ioengine=libaio", f"--iodepth={depth}"]
    command += ["--direct=1", "--end_fsync=1", "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FIO_SECONDS_MAX)
    try:
        told = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        rate = float(told[operation]["bw_bytes"])
    except (ValueError, LookupError):
        raise FailedError(f"fio: {(done.stderr or done.stdout).strip()}") from None
    if done.returncode != 0 or told["error"] != 0 or rate <= 0:
        raise FailedError(f"fio: {done.stderr.strip() or told['error']}")
    return rate


def direct_rate(path: Path, operation: str) -> float:
    """Measure direct calls of 1 MiB by as many threads as there are processors, in bytes a second.

    The file must be there. A write changes it, and ends with a sync.
    """
    size = path.stat().st_size // MIB * MIB
    threads = min(os.cpu_count() or 1, size // MIB)
    call = os.preadv if operation == "read" else os.pwritev

    def move(file: int, first: int) -> None:
        memory = huge_page()[:MIB]
        for offset in range(first * MIB, size, threads * MIB):
            call(file, [memory], offset)

    drop_from_cache(path)
    file = os.open(path, (os.O_RDONLY if operation == "read" else os.O_WRONLY) | os.O_DIRECT)
    try:
        movers = [threading.Thread(target=move, args=(file, n)) for n in range(threads)]
        begun = time.perf_counter()
        for mover in movers:
            mover.start()
        for mover in movers:
            mover.join()
        if operation == "write":
            os.fsync(file)
        return size / (time.perf_counter() - begun)
    finally:
        os.close(file)
