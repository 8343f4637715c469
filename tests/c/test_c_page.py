"""What docs/c-and-fortran.md shows is compiled and run here."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import c_programs
import numpy as np
import pytest
from c_programs import MPI, MPI_COMPILER, ROOT, checked, missing, run, tree

PAGE = (ROOT / "docs/c-and-fortran.md").read_text()
HEADER = (ROOT / "crates/c/include/penstock.h").read_text()
INSTALLED = os.environ.get("PENSTOCK_C_PREFIX")

needs_mpi = pytest.mark.skipif(
    c_programs.missing_mpi() is not None, reason=c_programs.missing_mpi() or ""
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def c_pieces() -> list[str]:
    """What is no whole program, in the order of the page."""
    return [block for block in blocks("c") if "int main" not in block]


PROGRAM_OF_PIECES = """
#include <penstock.h>
#include <stdio.h>

int main(void)
{{
    penstock_session *session;
    if (penstock_session_open(NULL, NULL, &session)) return 1;
{pieces}
    return penstock_session_close(session);
}}
"""


def built(source: str, directory: Path, *, with_mpi: bool) -> Path:
    (directory / "program.c").write_text(source)
    return c_programs.compiled(directory / "program.c", directory / "program", with_mpi=with_mpi)


def check_first_store(path: Path, ranks: int) -> None:
    """The store of both first programs: each rank holds a block of rows."""
    import zarr

    stored = zarr.open_group(str(path))["u"]
    block = -(-100 // ranks)
    expected = np.repeat(np.arange(100) // block, 60).reshape(100, 60)
    assert stored.attrs["units"] == "K" and stored.shape == (100, 60)
    assert np.array_equal(stored[:], expected)


def test_the_page_has_its_programs():
    assert len(blocks("c")) == 4 and len(blocks("fortran")) == 2 and len(blocks("cmake")) == 1


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_first_program(tmp_path: Path, ranks: int):
    (source,) = [block for block in blocks("c") if "int main" in block]
    program = built(source, tmp_path, with_mpi=True)
    said = run(program, ranks=ranks, cwd=tmp_path).fine()
    assert "48000 bytes written by all" in said
    check_first_store(tmp_path / "first.zarr", ranks)


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_first_program_says_what_is_wrong(tmp_path: Path, ranks: int):
    (source,) = [block for block in blocks("c") if "int main" in block]
    program = built(source, tmp_path, with_mpi=True)
    (tmp_path / "first.zarr").write_text("something else")
    ended = run(program, ranks=ranks, cwd=tmp_path)
    assert ended.code != 0 and "first.zarr" in ended.said and "file" in ended.said, ended.said


@needs_mpi
def test_the_first_program_without_mpi(tmp_path: Path):
    """As the page says: NULL in place of a communicator."""
    (source,) = [block for block in blocks("c") if "int main" in block]
    for line in ("#include <mpi.h>", "MPI_Init(&argc, &argv);", "MPI_Finalize();"):
        source = source.replace(line, "")
    source = source.replace("MPI_Comm comm = MPI_COMM_WORLD;", "(void)argc, (void)argv;")
    source = source.replace("&comm", "NULL")
    program = built(source, tmp_path, with_mpi=False)
    assert run(program, cwd=tmp_path).fine() == "48000 bytes written by all\n"
    check_first_store(tmp_path / "first.zarr", 1)


@pytest.mark.skipif(missing("cc") is not None, reason="needs cc")
def test_the_pieces(tmp_path: Path):
    program = built(
        PROGRAM_OF_PIECES.format(pieces="\n".join(c_pieces())), tmp_path, with_mpi=False
    )
    said = run(program, cwd=tmp_path).fine().splitlines()
    assert said[0] == f"Missing at {tmp_path}/nothing.zarr" and "nothing.zarr" in said[1]
    assert said[2:] == ["24 bytes"]
    import zarr

    import penstock as ps

    stored = zarr.open_group(str(tmp_path / "options.zarr"))["v"]
    assert stored.attrs["note"] == "written by C"
    assert np.array_equal(stored[:], [[1, 2, 3], [4, 5, 6]])
    with ps.FileSystem(tmp_path / "scratch.vol") as fs, fs.attach("/mesh") as f:
        assert f.open(ps.View(hn=8), 3).read(100) == b"the bytes of one process"


FORTRAN_PIECE = """
program pieces
  use penstock
  implicit none
  type(penstock_session) :: session
  type(penstock_array) :: missing
  integer :: ierr
  call session%open()
{piece}
  call session%close()
end program
"""


def fortran_flags() -> list[str]:
    libdir = Path(os.environ["PENSTOCK_C_LIBDIR"])
    (modules,) = libdir.glob("fortran/gfortran-mod-*")
    return [f"-I{modules}", f"-L{libdir}", "-lpenstock_fortran", *tree().links]


@pytest.mark.skipif(INSTALLED is None, reason="make test-c installs the module")
@pytest.mark.skipif(missing("gfortran") is not None, reason="needs gfortran")
def test_the_piece_in_fortran(tmp_path: Path):
    (piece,) = [block for block in blocks("fortran") if "program" not in block]
    (tmp_path / "piece.f90").write_text(FORTRAN_PIECE.format(piece=piece))
    checked("gfortran", "piece.f90", "-o", "piece", *fortran_flags(), cwd=tmp_path)
    assert "nothing.zarr" in run(tmp_path / "piece", cwd=tmp_path).fine()


@pytest.mark.skipif(INSTALLED is None, reason="make test-c installs the module")
@pytest.mark.skipif(MPI != "mpich", reason="the module of MPI is Debian's MPICH's")
@pytest.mark.skipif(
    missing("mpifort.mpich", "mpiexec.mpich") is not None, reason="needs Debian's MPICH"
)
def test_the_first_program_in_fortran(tmp_path: Path):
    (source,) = [block for block in blocks("fortran") if "program first" in block]
    (tmp_path / "first.f90").write_text(source)
    checked("mpifort.mpich", "first.f90", "-o", "first", *fortran_flags(), cwd=tmp_path)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "MPI"))}
    said = checked("mpiexec.mpich", "-n", "4", "./first", cwd=tmp_path, env=kept)
    assert said == "48000 bytes written by all\n"
    check_first_store(tmp_path / "first.zarr", 4)


@pytest.mark.skipif(INSTALLED is None, reason="make test-c installs a tree")
@needs_mpi
def test_the_commands_and_cmake(tmp_path: Path):
    """The compiler's command as the page has it, and the CMake project."""
    (source,) = [block for block in blocks("c") if "int main" in block]
    (tmp_path / "first.c").write_text(source)
    libdir = Path(os.environ["PENSTOCK_C_LIBDIR"])
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    (command,) = re.findall(r"^    (mpicc first\.c .*)$", PAGE, re.MULTILINE)
    # A path with a space in it needs what `eval` does.
    command = command.replace("mpicc", MPI_COMPILER, 1)
    if shutil.which("pkg-config"):
        checked("sh", "-c", f'eval "{command}"', cwd=tmp_path, env=environment)
        found = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{libdir}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        }
        said = run(tmp_path / "first", ranks=2, cwd=tmp_path, env=found).fine()
        assert "48000 bytes written by all" in said
    if shutil.which("cmake"):
        (text,) = blocks("cmake")
        head = "cmake_minimum_required(VERSION 3.18)\nproject(first LANGUAGES C)\n"
        # The MPI of the tests has a compiler's command, which is asked in place of FindMPI.
        text = text.replace("MPI::MPI_C", "")
        (tmp_path / "CMakeLists.txt").write_text(head + text)
        checked(
            *("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={INSTALLED}"),
            *(f"-Dpenstock_DIR={libdir}/cmake/penstock", f"-DCMAKE_C_COMPILER={MPI_COMPILER}"),
        )
        checked("cmake", "--build", tmp_path / "b")
        assert "48000 bytes" in run(tmp_path / "b" / "first", ranks=2, cwd=tmp_path).fine()


def test_the_table_names_functions_that_are_there():
    table = PAGE.partition("## What Python calls")[2].partition("## Limits")[0]
    names = set(re.findall(r"`(penstock_\w+)", PAGE)) | set(re.findall(r"(penstock_\w+)\(", PAGE))
    assert len(names) > 30 and "penstock_write" in table
    missing_names = {name for name in names if not re.search(rf"\b{name}\b", HEADER)}
    assert missing_names <= {"penstock_error_text"}  # of the module
