"""Fortran and C programs of the tests: how they are compiled and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Programs compare reals to the bit. gfortran warns of arrays that an assignment allocates.
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-compare-reals", "-Wno-uninitialized",
            "-Wno-maybe-uninitialized"]  # fmt: skip
SECONDS_MAX = 300
# What starts the ranks of a program, by the MPI that it was compiled with.
COMPILERS = {"mpich": "mpifort.mpich", "openmpi": "mpifort.openmpi"}
STARTERS = {"mpich": "mpiexec.mpich", "openmpi": "mpiexec.openmpi"}
TOLERANT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    # Where the kernel forbids reading other processes' memory, Open MPI says so on every start.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


@dataclass(frozen=True)
class Tree:
    """Where header, library and module are."""

    include: Path
    modules: Path
    library: Path
    fortran_library: Path

    @property
    def links(self) -> list[str]:
        """What is given to the linker, and where programs find the library when they run."""
        return [
            f"-L{self.fortran_library}", f"-L{self.library}", "-lpenstock_fortran", "-lpenstock",
            f"-Wl,-rpath,{self.library}",
        ]  # fmt: skip


def installed() -> Tree | None:
    """The tree that `make test-c` has installed, if it runs."""
    if not (prefix := os.environ.get("PENSTOCK_C_PREFIX")):
        return None
    library = Path(os.environ["PENSTOCK_C_LIBDIR"])
    (modules,) = library.glob("fortran/gfortran-mod-*")
    return Tree(Path(prefix) / "include", modules, library, library)


def library_directory() -> Path:
    """Where cargo puts the library."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    return Path(os.environ.get("PENSTOCK_C_LIBDIR", target))


def built(directory: Path) -> Tree:
    """A module that is compiled here, for the library that cargo has built."""
    library = library_directory()
    include = ROOT / "crates/c/include"
    checked(
        ["make", "-C", str(ROOT / "crates/c/fortran"), f"OUT={directory}", "FFLAGS=-O1 -Werror"]
    )
    if not (library / "libpenstock.so.0").exists():
        links = directory / "library"
        links.mkdir()
        for name in ("libpenstock.so", "libpenstock.so.0"):
            (links / name).symlink_to(library / "libpenstock.so")
        library = links
    return Tree(include, directory, library, directory)


def missing() -> str | None:
    """What these tests lack on this machine."""
    for tool in ("gfortran", "gcc", COMPILERS["mpich"], STARTERS["mpich"]):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    if not (library_directory() / "libpenstock.so").exists():
        return "libpenstock has not been built"
    return None


def checked(command: list[str], **options) -> str:
    """Runs a command that must succeed; what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class Builder:
    """Compiles programs, each once."""

    tree: Tree
    directory: Path
    done: dict[tuple[str, str], Path] = field(default_factory=dict)

    def program(self, source: Path, mpi: str | None = "mpich") -> Path:
        """Compiles a program in standard Fortran, with an MPI or without."""
        key = (str(source), str(mpi))
        if key not in self.done:
            # The modules of each compiled program stand apart, since names may meet.
            directory = Path(tempfile.mkdtemp(prefix=source.stem, dir=self.directory))
            target = directory / source.stem
            compiler = COMPILERS[mpi] if mpi else "gfortran"
            checks = ["-g", "-fcheck=bounds,do,mem,pointer", "-fopenmp"]
            places = [f"-J{directory}", f"-I{self.tree.modules}", str(source), "-o", str(target)]
            checked([compiler, "-std=f2018", *WARNINGS, *checks, *places, *self.tree.links])
            self.done[key] = target
        return self.done[key]

    def text(self, name: str, source: str, mpi: str | None = "mpich") -> Path:
        """Compiles a program that a test has written."""
        path = self.directory / f"{name}.f90"
        path.write_text(source)
        return self.program(path, mpi)


def environment() -> dict[str, str]:
    """The environment of a program: no variables of another MPI's starter."""
    foreign = ("PMI", "OMPI_", "PMIX", "PRTE", "HYDRA", "MPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | TOLERANT


def start(program: Path, *arguments: object, ranks: int = 0, mpi: str = "mpich"):
    """Runs a program on some ranks, or with 0 alone and without a starter; what has come of it."""
    command = [str(program), *map(str, arguments)]
    if ranks:
        command = [STARTERS[mpi], "-n", str(ranks), *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, env=environment()
    )


def run(program: Path, *arguments: object, ranks: int = 0, mpi: str = "mpich") -> list[str]:
    """Runs a program that must succeed; the lines that it printed."""
    done = start(program, *arguments, ranks=ranks, mpi=mpi)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()
