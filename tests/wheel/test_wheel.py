"""What a user has of the wheel: without Rust, CMake, and in parts without a C compiler."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import ROOT, Environment

BYTES_MAX = 30_000_000
C_PROGRAM = """
#include <penstock.h>
#include <stdint.h>
#include <stdio.h>

int main(void) {
    penstock_session *session;
    penstock_array *u;
    double local[16];
    for (int i = 0; i < 16; i++) local[i] = i;
    if (penstock_session_open(NULL, NULL, &session) ||
        penstock_array_create("u", 1, (uint64_t[]){16}, "f8", &u) ||
        penstock_write(session, "c.zarr", u, local, NULL) ||
        penstock_session_close(session)) {
        fprintf(stderr, "%s\\n", penstock_last_error());
        return 1;
    }
    return 0;
}
"""
MPI_IO_PROGRAM = """
from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
mine = np.full(1000, comm.rank, "f8")
file = MPI.File.Open(comm, "out.bin", MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Write_at_all(comm.rank * mine.nbytes, mine)
file.Close()
"""


def first_program() -> str:
    """The first program of the README."""
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return block


@pytest.fixture(scope="session")
def place(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the first program has run."""
    place = tmp_path_factory.mktemp("first")
    (place / "first.py").write_text(first_program())
    begun = time.monotonic()
    installed.run(installed.python, "first.py", cwd=place)
    print(f"first program: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return place


def test_it_is_small_and_has_all_parts(wheel: Path) -> None:
    assert wheel.stat().st_size <= BYTES_MAX
    with zipfile.ZipFile(wheel) as parts:
        names = parts.namelist()
    for part in (
        "penstock/_core.abi3.so",
        "scripts/penstock",
        "data/lib/libpenstock.so",
        "data/lib/libpenstock.so.0",
        "data/lib/penstock/libpenstock_mpiio.so",
        "data/lib/cmake/penstock/penstock-config.cmake",
        "data/lib/pkgconfig/penstock.pc",
        "data/include/penstock.h",
        "data/share/man/man3/penstock_write.3",
        "data/share/penstock/licences.txt",
    ):
        assert sum(name.endswith(part) for name in names) == 1, part


def test_the_tag_is_true(wheel: Path) -> None:
    """All programs and libraries in the wheel need no newer C library than its name says."""
    told = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [named] = re.findall(r"manylinux_2_(\d+)_", wheel.name)
    tags = re.findall(r'"manylinux_2_(\d+)_', told)
    assert tags and min(map(int, tags)) <= int(named), told
    with zipfile.ZipFile(wheel) as parts:
        for part in parts.namelist():
            data = parts.read(part)
            if data.startswith(b"\x7fELF"):
                needed = {int(v) for v in re.findall(rb"GLIBC_2\.(\d+)", data)}
                assert max(needed) <= int(named), part


def test_the_first_program(place: Path) -> None:
    stored = zarr.open_group(str(place / "first.zarr"), mode="r")["u"][:]
    for rank, corner in enumerate(np.ndindex(2, 2, 2)):
        assert stored[tuple(99 * c for c in corner)] == rank


def test_the_command(installed: Environment, place: Path) -> None:
    command = installed.bin / "penstock"
    assert installed.run(command, "--version", cwd=place).startswith("penstock ")
    installed.run(command, "copy", "first.zarr", "other.zarr", "--chunks", "50,50,50", cwd=place)
    installed.run(command, "verify", "other.zarr", cwd=place)
    assert "50" in installed.run(installed.python, "-m", "penstock", "ls", "other.zarr", cwd=place)
    one, other = (zarr.open_group(str(place / f"{name}.zarr"))["u"] for name in ("first", "other"))
    assert other.chunks == (50, 50, 50)
    assert np.array_equal(one[:], other[:])


def test_importing_costs_little_more_than_numpy(installed: Environment, place: Path) -> None:
    """Counted, since time is not equal from run to run: no module that is of no use yet."""
    code = (
        "import sys, numpy; had = set(sys.modules); import penstock; print(*set(sys.modules) - had)"
    )
    loaded = installed.run(installed.python, "-c", code, cwd=place).split()
    assert {name.split(".")[0] for name in loaded} == {"penstock"}


def test_the_installation_tests_itself(installed: Environment, place: Path) -> None:
    said = installed.run(installed.bin / "penstock", "selftest", "--json", cwd=place)
    assert "FAILED" not in said
    json.loads(said)


def test_mpi_io_of_a_program_that_knows_nothing(installed: Environment, tmp_path: Path) -> None:
    installed.install("mpich", "mpi4py")
    (tmp_path / "program.py").write_text(MPI_IO_PROGRAM)
    command = [installed.bin / "penstock", "mpiio", "--report", "--"]
    command += [installed.bin / "mpiexec", "-n", "2", installed.python, "program.py"]
    said = installed.run(*command, cwd=tmp_path)
    assert "penstock" in said.lower() and "out.bin" in said
    values = np.fromfile(tmp_path / "out.bin")
    assert values.tolist() == [0.0] * 1000 + [1.0] * 1000


def test_copies_under_mpiexec(installed: Environment, place: Path) -> None:
    """The command finds the job's MPI by itself: it needs no mpi4py."""
    installed.install("mpich")
    mpiexec = [installed.bin / "mpiexec", "-n", "3", installed.bin / "penstock", "copy"]
    installed.run(*mpiexec, "first.zarr", "by-ranks.zarr", "--chunks", "40,40,40", cwd=place)
    one, other = (
        zarr.open_group(str(place / name))["u"] for name in ("first.zarr", "by-ranks.zarr")
    )
    assert other.chunks == (40, 40, 40)
    assert np.array_equal(one[:], other[:])


@pytest.mark.parametrize("by", ["pkg-config", "cmake"])
def test_a_c_program(installed: Environment, tmp_path: Path, by: str) -> None:
    if not all(shutil.which(tool) for tool in (by, "cc")):
        pytest.skip(f"{by} or a C compiler is not here")
    (tmp_path / "program.c").write_text(C_PROGRAM)
    lib = installed.prefix / "lib"
    if by == "cmake":
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(program C)\n"
            "find_package(penstock REQUIRED)\nadd_executable(program program.c)\n"
            "target_link_libraries(program PRIVATE penstock::penstock)\n"
        )
        cmake = shutil.which("cmake")
        installed.run(cmake, ".", f"-DCMAKE_PREFIX_PATH={installed.prefix}", cwd=tmp_path)
        installed.run(cmake, "--build", ".", cwd=tmp_path)
    else:
        paths = {"PKG_CONFIG_PATH": str(lib / "pkgconfig")}
        flags = installed.run("pkg-config", "--cflags", "--libs", "penstock", cwd=tmp_path, **paths)
        words = ["cc", "program.c", "-o", "program", f"-Wl,-rpath,{lib}"]
        installed.run(*words, *flags.split(), cwd=tmp_path)
    installed.run("./program", cwd=tmp_path)
    assert zarr.open_group(str(tmp_path / "c.zarr"))["u"][:].tolist() == list(range(16))
