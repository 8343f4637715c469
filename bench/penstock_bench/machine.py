"""This module tells on which machine figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

PAGE_ORDER_MAX = 10
"""Linux has no free memory in pieces larger than 2^10 pages."""


def machine_facts() -> dict[str, Any]:
    """Return what figures of MPI jobs depend on."""
    from mpi4py import MPI

    return host_facts() | {"mpi": " ".join(MPI.Get_library_version().split("\n")[0].split())}


def host_facts() -> dict[str, Any]:
    """Return what all figures depend on."""
    return {
        "cpus": os.cpu_count(),
        "cpu": cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_average_at_start": os.getloadavg()[0],
        "free_page_reporting": has_free_page_reporting(),
    }


def has_free_page_reporting() -> bool:
    """Tell whether this is a virtual machine whose host takes back free memory at once."""
    try:
        order = Path("/sys/module/page_reporting/parameters/page_reporting_order").read_text()
    except OSError:
        return False
    return 0 <= int(order) <= PAGE_ORDER_MAX


def cpu_model() -> str:
    """Return the processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def place(path: Path) -> str:
    """Return a directory with the kind of its file system."""
    return f"{path} ({file_system(path)})"


def file_system(path: Path) -> str:
    """Return the kind of file system of a directory, as far as the system tells."""
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
