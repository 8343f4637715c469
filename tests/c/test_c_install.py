"""What `make install` makes: programs outside of this repository find header, library and module by
pkg-config and by CMake, also below a path with a space in it; man pages tell of every function."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from c_programs import ROOT, checked, missing

INSTALLED = os.environ.get("PENSTOCK_C_PREFIX")
PAGES = ROOT / "crates/c/man"
HEADER = (ROOT / "crates/c/include/penstock.h").read_text()
BARE_HEADER = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)

needs_tree = pytest.mark.skipif(INSTALLED is None, reason="make test-c installs a tree")


def needs(*tools: str):
    return pytest.mark.skipif(missing(*tools) is not None, reason=missing(*tools) or "")


@pytest.fixture
def prefix() -> Path:
    assert INSTALLED is not None
    return Path(INSTALLED)


@pytest.fixture
def libdir() -> Path:
    return Path(os.environ["PENSTOCK_C_LIBDIR"])


C_PROGRAM = r"""
#include <penstock.h>
#include <stdio.h>

int main(void)
{
    penstock_session *session;
    penstock_array *u;
    double local[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    uint64_t shape[] = {2, 3};
    if (penstock_session_open(NULL, NULL, &session)) return 1;
    if (penstock_array_create("u", 2, shape, "f8", &u)) return 1;
    if (penstock_write(session, "u.zarr", u, local, NULL)) return 1;
    if (penstock_read(session, "u.zarr", u, back, NULL)) return 1;
    printf("%s %g\n", penstock_version(), back[5]);
    penstock_array_free(u);
    return penstock_session_close(session);
}
"""

FORTRAN_PROGRAM = """
program main
  use penstock
  implicit none
  type(penstock_session) :: session
  integer :: ierr
  call session%open(ierr=ierr)
  if (ierr /= penstock_ok) error stop 1
  print '(i0)', session%size()
  call session%close()
end program
"""

CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(outside LANGUAGES {languages})
find_package(penstock 0.1 REQUIRED {components})
add_executable(program {source})
target_link_libraries(program PRIVATE {target})
"""


def test_the_version_is_that_of_the_crates():
    (version,) = re.findall(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    parts = [
        re.search(rf"#define PENSTOCK_VERSION_{part} (\d+)", HEADER)[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert ".".join(parts) == version


# -------------------------------------------------------------------------------------------------
# The installed tree
# -------------------------------------------------------------------------------------------------


@needs_tree
@needs("readelf")
def test_the_library_has_a_soname_and_links(libdir: Path):
    names = sorted(path.name for path in libdir.glob("libpenstock.so*"))
    assert names[:2] == ["libpenstock.so", "libpenstock.so.0"] and len(names) == 3
    assert names[2].startswith("libpenstock.so.0.")
    assert (libdir / "libpenstock.so").resolve().name == names[2]
    said = checked("readelf", "-d", libdir / "libpenstock.so")
    assert re.search(r"SONAME.*\[libpenstock\.so\.0\]", said)
    assert "libmpi" not in said
    assert (libdir / "penstock/libpenstock_mpiio.so").is_file()


def built_by_pkg_config(libdir: Path, tmp_path: Path, compiler: str, package: str, source: str):
    """Compiles as a shell does it with what pkg-config says."""
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    name = "program.f90" if package.endswith("fortran") else "program.c"
    (tmp_path / name).write_text(source)
    flags = checked("pkg-config", "--cflags", "--libs", package, env=environment).strip()
    checked("sh", "-c", f"{compiler} {name} -o program {flags}", cwd=tmp_path)
    return checked("./program", cwd=tmp_path, env={**os.environ, "LD_LIBRARY_PATH": str(libdir)})


@needs_tree
@needs("cc", "pkg-config")
@pytest.mark.parametrize("compiler", ["cc", "c++ -x c++"])
def test_a_c_program_by_pkg_config(libdir: Path, tmp_path: Path, compiler: str):
    if missing(compiler.split()[0]):
        pytest.skip(missing(compiler.split()[0]))
    warnings = "-Wall -Wextra -Werror"
    compiler = compiler.replace("cc", f"cc -std=c11 {warnings}")
    source = C_PROGRAM if "++" not in compiler else C_PROGRAM.replace("<stdio.h>", "<cstdio>")
    # What follows -x would be taken for the language of libraries, too.
    if "++" in compiler:
        (tmp_path / "program.cpp").write_text(source)
        compiler, source = f"c++ {warnings} program.cpp -x none", ""
    assert built_by_pkg_config(libdir, tmp_path, compiler, "penstock", source) == "0.1.0 6\n"


@needs_tree
@needs("gfortran", "pkg-config")
def test_a_fortran_program_by_pkg_config(libdir: Path, tmp_path: Path):
    said = built_by_pkg_config(
        libdir, tmp_path, "gfortran -Wall -Werror", "penstock-fortran", FORTRAN_PROGRAM
    )
    assert said == "1\n"


def configured(prefix: Path, libdir: Path, project: Path, **settings: str):
    """Writes a project that uses Penstock, and has CMake configure it."""
    suffix = {"C": "c", "CXX": "cpp", "C Fortran": "f90"}[settings["languages"]]
    is_fortran = suffix == "f90"
    project.mkdir(parents=True)
    (project / f"main.{suffix}").write_text(FORTRAN_PROGRAM if is_fortran else C_PROGRAM)
    text = CMAKE.format(source=f"main.{suffix}", **{"components": "", **settings})
    (project / "CMakeLists.txt").write_text(text)
    found = f"-Dpenstock_DIR={libdir}/cmake/penstock"
    command = ["cmake", "-S", project, "-B", project / "build", found]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
    )


def built_by_cmake(prefix: Path, libdir: Path, project: Path, **settings: str) -> str:
    done = configured(prefix, libdir, project, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    checked("cmake", "--build", project / "build")
    return checked(project / "build" / "program", cwd=project)


@needs_tree
@needs("cmake", "cc", "c++")
@pytest.mark.parametrize("languages", ["C", "CXX"])
def test_a_cmake_project(prefix: Path, libdir: Path, tmp_path: Path, languages: str):
    said = built_by_cmake(
        prefix, libdir, tmp_path / "a project", languages=languages, target="penstock::penstock"
    )
    assert said == "0.1.0 6\n"


@needs_tree
@needs("cmake", "gfortran", "cc")
def test_a_cmake_project_in_fortran(prefix: Path, libdir: Path, tmp_path: Path):
    said = built_by_cmake(
        *(prefix, libdir, tmp_path / "a project"),
        **{"languages": "C Fortran", "target": "penstock::fortran", "components": "fortran"},
    )
    assert said == "1\n"


@needs_tree
@needs("cmake", "cc")
def test_cmake_finds_a_tree_that_was_moved(prefix: Path, libdir: Path, tmp_path: Path):
    moved = tmp_path / "moved tree"
    shutil.copytree(prefix, moved, symlinks=True)
    said = built_by_cmake(
        *(moved, moved / libdir.relative_to(prefix), tmp_path / "project"),
        **{"languages": "C", "target": "penstock::penstock"},
    )
    assert said == "0.1.0 6\n"


@needs_tree
@needs("cmake", "cc")
def test_cmake_refuses_what_is_not_there(prefix: Path, libdir: Path, tmp_path: Path):
    settings = {"languages": "C", "target": "penstock::penstock"}
    done = configured(prefix, libdir, tmp_path / "a", **settings, components="COMPONENTS fortran")
    assert done.returncode != 0 and "has no fortran" in done.stderr
    text = (tmp_path / "a" / "CMakeLists.txt").read_text()
    for version, is_right in (("0.1.0", True), ("0.2", False), ("1.0", False), ("0.1.9", False)):
        asked = text.replace("penstock 0.1", f"penstock {version}").replace("COMPONENTS", "#")
        (tmp_path / "a" / "CMakeLists.txt").write_text(asked.replace("# fortran)", ")"))
        command = ["cmake", "-S", str(tmp_path / "a"), "-B", str(tmp_path / f"b{version}")]
        done = subprocess.run(
            [*command, f"-Dpenstock_DIR={libdir}/cmake/penstock"],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == is_right, done.stderr


@needs_tree
@needs("make")
def test_uninstall_leaves_nothing(tmp_path: Path):
    """A tree in DESTDIR, as packages are made, names PREFIX alone."""
    where = [
        f"DESTDIR={tmp_path}/stage area",
        "PREFIX=/opt/pen & stock",
        "LIBDIR=/opt/pen & stock/l",
    ]
    built = ["PROFILE=dev", "LIBRARIES="]  # as `make test-c` has it
    checked("make", "-C", ROOT, "install", *built, *where, timeout=1800)
    stage = tmp_path / "stage area"
    found = stage / "opt/pen & stock/l/pkgconfig/penstock.pc"
    assert "libdir=/opt/pen & stock/l\n" in found.read_text()
    assert str(tmp_path) not in found.read_text()
    assert (stage / "opt/pen & stock/include/penstock.h").read_text() == HEADER
    config = (stage / "opt/pen & stock/l/cmake/penstock/penstock-config.cmake").read_text()
    assert "@" not in config and str(tmp_path) not in config
    checked("make", "-C", ROOT, "uninstall", *where)
    assert [path for path in stage.rglob("*") if not path.is_dir()] == []


# -------------------------------------------------------------------------------------------------
# Man pages
# -------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def functions() -> dict[str, str]:
    """The declarations of the header's functions, by name."""
    found = re.finditer(r"^(?:const )?\w[^;{}#]*?\b(penstock_\w+)\([^;{]*?\);", BARE_HEADER, re.M)
    return {one[1]: plain(one[0]) for one in found}


def unescaped(text: str) -> str:
    for escaped, character in (
        ("\\-", "-"),
        ("\\(aq", "'"),
        ("\\(dq", '"'),
        ("\\(ga", "`"),
        ("\\&", ""),
    ):
        text = text.replace(escaped, character)
    return text


def names_of(page: Path) -> list[str]:
    """What a page is about, by its first section."""
    heading = page.read_text().partition(".Sh NAME\n")[2].partition(".Nd")[0]
    return re.findall(r"^\.Nm (\w+)", heading, re.MULTILINE)


def test_the_header_has_functions():
    assert len(functions()) > 150
    assert len(functions()) == len(set(re.findall(r"\b(penstock_\w+)\(", BARE_HEADER)))


def test_every_function_has_one_man_page():
    named = [name for page in PAGES.glob("*.3") for name in names_of(page)]
    assert sorted(named) == sorted(functions())


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.3")), ids=lambda page: page.name)
def test_a_page_declares_and_describes_its_functions(page: Path):
    text = page.read_text()
    synopsis = unescaped(text.partition(".Sh SYNOPSIS\n")[2].partition(".Sh ")[0])
    for name in names_of(page):
        assert functions()[name] in plain(synopsis)
        assert re.search(rf"^\.It .*Fn {name}\b", text, re.MULTILINE), name
    told = unescaped(text.partition(".Sh TYPES\n")[2].partition(".Sh ")[0])
    for structure in re.findall(r"^(typedef .*?;|enum \{.*?\};)\n\.Ed", told, re.M | re.S):
        assert structure in HEADER


def test_every_structure_is_in_a_page():
    pages = "\n".join(unescaped(page.read_text()) for page in PAGES.glob("*.3"))
    structures = re.findall(r"^typedef struct \w+ \{.*?^\} \w+;", HEADER, re.M | re.S)
    assert len(structures) >= 15
    for structure in structures:
        assert structure in pages


@needs("groff")
@pytest.mark.parametrize("page", sorted(PAGES.glob("*.[37]")), ids=lambda page: page.name)
def test_groff_has_nothing_to_say_about_a_page(page: Path):
    command = ["groff", "-mandoc", "-ww", "-Tutf8", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "DESCRIPTION" in re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
    for name, section in re.findall(r"^\.Xr (\w+) (\d)", page.read_text(), re.MULTILINE):
        assert (PAGES / f"{name}.{section}").exists() or name in functions()


@needs_tree
@needs("man", "groff")
def test_man_shows_a_page_for_every_function(prefix: Path):
    environment = {
        **os.environ,
        "MANPATH": str(prefix / "share/man"),
        "MANPAGER": "cat",
        "LC_ALL": "C.UTF-8",
    }
    where = checked("man", "-w", "3", *functions(), env=environment).splitlines()
    assert len(where) == len(functions())
    assert all(path.startswith(str(prefix)) for path in where)
    said = checked("man", "3", "penstock_subfile_read_at", env=environment)
    assert "penstock_subfile_read_at" in said and "SYNOPSIS" in said
    assert "find_package" in checked("man", "7", "penstock", env=environment)
