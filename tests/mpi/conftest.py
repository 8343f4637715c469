"""The suite under mpiexec: every rank runs every test, and a test that fails on one rank fails on
all of them, so that ranks never get out of step.

    mpiexec -n 5 python -m pytest -q tests/mpi

Rank 0 speaks for all. After each phase of a test the ranks tell each other how it ended. A rank
that does not come to that in time waits for ever in a collective call: the job is then aborted, and
what the others met is printed. MPI is initialised with MPI_THREAD_FUNNELED, which must be enough;
on three ranks with MPI_THREAD_MULTIPLE, for what needs it.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import mpi4py
import pytest

RANKS = os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE")
mpi4py.rc.thread_level = "multiple" if RANKS == "3" else "funneled"

from helpers import fast_directory  # noqa: E402
from mpi4py import MPI  # noqa: E402
from mpihelpers import OURS, rest  # noqa: E402

WORLD = MPI.COMM_WORLD
OTHERS_SECONDS_MAX = 300
PHASE_SECONDS_MAX = 600


def name_of_mpi() -> str:
    """The name that `make test-mpi` has for the library that is loaded."""
    if MPI.Get_abi_version()[0] > 0:
        return "abi"
    return {"MPICH": "mpich", "Open MPI": "openmpi"}.get(MPI.get_vendor()[0], "unknown")


@pytest.hookimpl(trylast=True)  # after the reporter is made
def pytest_configure(config):
    wanted = os.environ.get("TEST_MPI")
    if wanted is not None and wanted != name_of_mpi():
        words = f"TEST_MPI is {wanted}, but mpi4py has loaded {MPI.Get_library_version()}"
        raise pytest.UsageError(words)
    if WORLD.rank != 0:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115 - until the end
    for name in ("lfplugin", "nfplugin", "stepwiseplugin"):  # they write files
        plugin = config.pluginmanager.get_plugin(name)
        if plugin is not None:
            config.pluginmanager.unregister(plugin)


def pytest_report_header():
    return f"mpi: {WORLD.size} ranks, {MPI.Get_library_version().splitlines()[0]}"


def watch(config) -> None:
    """Ends the whole job in ten minutes from now, unless called again: also between the tests, and
    while MPI is finalised."""
    faulthandler.dump_traceback_later(PHASE_SECONDS_MAX, exit=True, file=config.penstock_terminal)


@pytest.fixture(autouse=True)
def no_hang():
    """In the place of the fixture of this name for one process."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Makes all ranks agree on how a phase of a test has ended."""
    report = yield
    watch(item.config)
    text = report.longreprtext if report.failed else None
    if not rest(seconds=OTHERS_SECONDS_MAX):
        words = f"rank {WORLD.rank}: other ranks do not come to the end of {item.nodeid}"
        terminal = item.config.penstock_terminal
        print(f"\n{words} ({report.when})\n{text or ''}", file=terminal, flush=True)
        time.sleep(1)  # so that it arrives
        WORLD.Abort(1)
    ends = OURS.allgather((report.outcome, text))
    failed = [rank for rank, (outcome, _) in enumerate(ends) if outcome == "failed"]
    if failed:
        report.outcome = "failed"
        # In full from the first of them; the words of the others.
        words = [f"rank {rank}: {ends[rank][1].strip().splitlines()[-1]}" for rank in failed[1:]]
        report.longrepr = "\n".join([f"rank {failed[0]}:", ends[failed[0]][1], *words])
    return report


@pytest.fixture(scope="session")
def mpi() -> MPI.Intracomm:
    return WORLD


@pytest.fixture
def place():
    """An empty directory that all ranks see."""
    made = None
    if WORLD.rank == 0:
        made = tempfile.mkdtemp(prefix="penstock-mpi-", dir=fast_directory())
    directory = Path(OURS.bcast(made))
    yield directory
    rest()
    if WORLD.rank == 0:
        shutil.rmtree(directory)


@pytest.fixture
def tiny():
    """A file system of 512 KiB that all ranks see."""
    point = None
    if WORLD.rank == 0:
        made = tempfile.mkdtemp(prefix="penstock-mount-")
        mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", made]
        if shutil.which("mount") and subprocess.run(mount, capture_output=True).returncode == 0:
            point = made
        else:
            os.rmdir(made)
    point = OURS.bcast(point)
    if point is None:
        pytest.skip("needs the right to mount a tmpfs")
    yield Path(point)
    rest()
    if WORLD.rank == 0:
        subprocess.run(["umount", "-l", point], check=True)
        os.rmdir(point)
