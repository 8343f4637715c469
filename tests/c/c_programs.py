"""C programs of the tests: how they are compiled, for the MPI that TEST_MPI names, and run."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MPI = os.environ.get("TEST_MPI", "mpich")
"""mpich, openmpi, or abi: what is on the path, as in `make test-c`."""
MPI_COMPILER = {"mpich": "mpicc", "openmpi": "mpicc", "abi": "mpicc_abi"}[MPI]
FLAGS = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread")
SECONDS_MAX = 300
"""For one program: only what hangs takes longer."""
ENDING_SECONDS_MAX = 10


@dataclass(frozen=True)
class Tree:
    """Where header and library are."""

    include: Path
    library: Path

    @property
    def links(self) -> list[str]:
        """What is given to the linker, and where programs find the library when they run."""
        return [f"-L{self.library}", "-lpenstock", f"-Wl,-rpath,{self.library}"]


@functools.cache
def tree() -> Tree:
    """What `make test-c` has installed; without it the header and what cargo has built."""
    if prefix := os.environ.get("PENSTOCK_C_PREFIX"):
        return Tree(Path(prefix) / "include", Path(os.environ["PENSTOCK_C_LIBDIR"]))
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target.resolve() / "release" / "libpenstock.so"
    links = Path(tempfile.mkdtemp(prefix="penstock-c-"))
    for name in ("libpenstock.so", "libpenstock.so.0"):
        (links / name).symlink_to(built)
    return Tree(ROOT / "crates/c/include", links)


def missing(*tools: str) -> str | None:
    """Why programs that need these cannot be made here, if so."""
    for tool in tools:
        if shutil.which(tool) is None:
            return f"needs {tool}"
    return None


def missing_mpi() -> str | None:
    """Why no MPI program can be made or started, if so."""
    return missing("cc", MPI_COMPILER, "mpiexec")


def checked(*command: object, **options) -> str:
    """Runs a command that must succeed; what it printed."""
    words = [str(word) for word in command]
    options = {"timeout": SECONDS_MAX, **options}
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compiled(source: Path, target: Path, *, with_mpi: bool = False) -> Path:
    """Compiles a C program against the tree."""
    compiler = MPI_COMPILER if with_mpi else "cc"
    include = f"-I{tree().include}"
    checked(compiler, *FLAGS, include, source, "-o", target, *tree().links, "-lm")
    return target


@dataclass(frozen=True)
class Ended:
    """How a program has ended; a code of -1 where it was stopped because it took too long."""

    code: int
    said: str

    def fine(self) -> str:
        """What it has said; it must have succeeded."""
        assert self.code == 0, self.said
        return self.said


def run(*command: object, ranks: int = 0, **options) -> Ended:
    """Runs a program to its end, on some ranks, or with 0 alone and without mpiexec."""
    words = [str(word) for word in command]
    if ranks:
        words = ["mpiexec", "-n", str(ranks), *words]
    job = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **options
    )
    try:
        said, _ = job.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        said = stopped(job)
        return Ended(-1, said.decode("utf-8", "replace") + f"\nstopped after {SECONDS_MAX} s")
    return Ended(job.returncode, said.decode("utf-8", "replace"))


def stopped(job: subprocess.Popen[bytes]) -> bytes:
    """Ends a program that hangs: mpiexec ends its ranks, if it can."""
    job.terminate()
    try:
        return job.communicate(timeout=ENDING_SECONDS_MAX)[0]
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        return job.communicate()[0]
