"""Starts MPI jobs, of the MPI that TEST_MPI names, with its own MPI-IO or Penstock's; builds the C
programs for it."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NAME = os.environ.get("TEST_MPI", "mpich")
"""mpich, openmpi, or abi: what is on the path, as in `make test-mpi`."""
COMPILERS = {"mpich": "mpicc", "openmpi": "mpicc", "abi": "mpicc_abi"}
LIBRARIES = ("penstock",) if NAME == "openmpi" else ("native", "penstock")
"""Whose MPI-IO is tested. Open MPI's own hangs now and then, where others' do not."""
SECONDS_MAX = 600
"""For one job: only what hangs takes longer."""
ENDING_SECONDS_MAX = 10

SOURCES = Path(__file__).parent / "programs"
PROGRAMS = {
    "functions": (
        "functions.c", "suite.c", "files.c", "views.c", "data.c", "errors.c", "handlers.c",
        "datareps.c", "large.c",
    ),
    "requests": ("requests.c", "suite.c"),
    "faults": ("faults.c", "suite.c"),
    "surroundings": ("surroundings.c", "suite.c"),
}  # fmt: skip
FLAGS = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread")
FEATURES = {
    "HAVE_LARGE_COUNTS": "MPI_File_write_at_c",
    "HAVE_FORTRAN_HANDLES": "MPI_File_c2f",
    "HAVE_INTEGER_HANDLES": "MPI_File_toint",
}
"""What an MPI may lack, and a function of each."""


def why_not() -> str | None:
    """Why no job can be started, if so."""
    for program in ("mpiexec", COMPILERS[NAME], "cc"):
        if shutil.which(program) is None:
            return f"needs {program}"
    return None


@functools.cache
def library_of_penstock() -> str:
    """The path of Penstock's library."""
    given = os.environ.get("PENSTOCK_MPIIO_LIBRARY")
    if given is not None:
        return given
    command = [sys.executable, "-m", "penstock", "mpiio"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.strip()


@dataclass(frozen=True)
class Ended:
    """How a job has ended."""

    code: int
    said: str

    @property
    def is_fine(self) -> bool:
        return self.code == 0


def command_of(library: str, ranks: int, *command: object) -> list[str]:
    """What starts a job; `library` is one of LIBRARIES."""
    preload = []
    if library == "penstock":
        preload = ["env", f"LD_PRELOAD={library_of_penstock()}"]
    return ["mpiexec", "-n", str(ranks), *preload, *map(str, command)]


def run(library: str, ranks: int, *command: object, seconds: int = SECONDS_MAX) -> Ended:
    """Runs a job to its end; one that does not end in time is stopped, and has failed."""
    job = subprocess.Popen(
        command_of(library, ranks, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        said = stop(job)
        return Ended(-1, f"{text(said)}\nit hangs: stopped after {seconds} s")
    return Ended(job.returncode, text(said))


def stop(job: subprocess.Popen[bytes]) -> bytes:
    """Ends a job that hangs: mpiexec ends its ranks, if it can."""
    job.terminate()
    try:
        return job.communicate(timeout=ENDING_SECONDS_MAX)[0]
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        return job.communicate()[0]


def text(said: bytes) -> str:
    return said.decode("utf-8", "replace")


def build(name: str, directory: Path) -> Path:
    """Compiles a program for the MPI under test."""
    compiler = COMPILERS[NAME]
    defines = [
        f"-D{define}=1"
        for define, function in FEATURES.items()
        if has_function(compiler, function, directory)
    ]
    target = directory / name
    sources = [str(SOURCES / source) for source in PROGRAMS[name]]
    command = [compiler, *FLAGS, *defines, "-o", str(target), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def has_function(compiler: str, function: str, directory: Path) -> bool:
    """Whether a program that uses a function can be linked."""
    source = directory / f"{function}.c"
    source.write_text(f"#include <mpi.h>\nint main(void) {{ return {function} == 0; }}\n")
    command = [compiler, "-w", "-o", str(source.with_suffix("")), str(source)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
