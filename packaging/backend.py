"""Builds the wheel and the source archive: maturin, with what stands beside the extension module.

maturin builds `penstock._core`. The wheel holds more, which a wheel's data directory brings to its
place below the prefix of an environment:

    bin/penstock                                        the command, a program of its own
    lib/libpenstock.so, lib/libpenstock.so.0            for C programs; the first is a linker script
    lib/penstock/libpenstock_mpiio.so                   what `penstock mpiio` loads first
    include/, lib/cmake/, lib/pkgconfig/, share/man/    headers and pages; files find each other
    share/penstock/fortran/                             the sources of the Fortran module
    share/penstock/licences.txt                         the licences of all that is linked in

The source archive holds the sources of all crates, so that pip needs no network for them.

PENSTOCK_TARGET names another target, for which zig compiles: `aarch64-unknown-linux-gnu.2.17` is
for AArch64 and glibc 2.17.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import licences
import maturin
import vendored
from maturin import (  # what pip calls and this file does not change
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "penstock.data"
"""Where maturin looks for a wheel's data; made for one build."""
TARGET = os.environ.get("PENSTOCK_TARGET")
PROGRAMS = ("penstock", "penstock-mpiio", "penstock-c")

get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel with all of Penstock."""
    with staged():
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel whose Python files are those of the checkout."""
    with staged():
        return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: dict[str, object] | None = None) -> str:
    """Build the source archive: what git tracks, and the sources of all crates."""
    with tempfile.TemporaryDirectory() as made:
        named = prepare_metadata_for_build_wheel(made)
        metadata = Path(made, named, "METADATA").read_bytes()
        name = named.removesuffix(".dist-info")
        vendored.collect(ROOT, Path(made, "vendor"))
        config = f'{vendored.CONFIG}directory = "vendor"\n'
        archive = Path(sdist_directory, f"{name}.tar.gz")
        with (
            gzip.GzipFile(archive, "wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in tracked():
                tar.add(ROOT / path, f"{name}/{path}", recursive=False, filter=plain)
            tar.add(Path(made, "vendor"), f"{name}/vendor", filter=plain)
            for path, text in (("PKG-INFO", metadata), (".cargo/config.toml", config.encode())):
                about = tarfile.TarInfo(f"{name}/{path}")
                about.size, about.mode = len(text), 0o644
                tar.addfile(about, io.BytesIO(text))
    return archive.name


def tracked() -> list[str]:
    """The files of the source archive: those that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return [path for path in listed.stdout.split("\0") if path and (ROOT / path).exists()]


def plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of nobody and of no time: equal sources make equal archives."""
    about.uid = about.gid = about.mtime = 0
    about.uname = about.gname = ""
    return about


@contextmanager
def staged() -> Iterator[None]:
    """Put what belongs to the data directory there while maturin builds."""
    shutil.rmtree(DATA, ignore_errors=True)
    try:
        built = compiled()
        scripts = DATA / "scripts"
        scripts.mkdir(parents=True)
        shutil.copy(built / "penstock", scripts)
        lay_out(built, DATA / "data")
        share = DATA / "data" / "share" / "penstock"
        (share / "licences.txt").write_text(licences.of_all(ROOT, triple()), "utf-8")
        yield
    finally:
        shutil.rmtree(DATA, ignore_errors=True)


def triple() -> str | None:
    """The target without the version of glibc; nothing for this machine's own."""
    return TARGET and TARGET.split(".")[0]


def compiled() -> Path:
    """Compile the programs and libraries, and give the directory that they are in."""
    which = ["cargo", "zigbuild" if TARGET else "build", "--release"]
    which += ["--target", TARGET] if TARGET else []
    which += [word for name in PROGRAMS for word in ("-p", name)]
    environment = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1"}
    subprocess.run(which, cwd=ROOT, check=True, env=environment, stdout=sys.stderr)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return ROOT / target / (triple() or "") / "release"


def lay_out(built: Path, prefix: Path) -> None:
    """Put the libraries, headers and pages below a prefix, as `make install` does."""
    words = [f"PREFIX={prefix}", f"LIBDIR={prefix}/lib", f"C_BUILT={built}", "FC=none"]
    subprocess.run(
        ["make", "--no-print-directory", "install", "LIBRARIES=", *words],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    without_links(prefix)
    described = prefix / "lib" / "pkgconfig" / "penstock.pc"
    text = described.read_text("utf-8").replace(str(prefix), "${pcfiledir}/../..")
    described.write_text(text, "utf-8")


def without_links(prefix: Path) -> None:
    """Replace links, which wheels do not have: a library by a script of the linker's, a page by one
    line that names the other."""
    links = [path for path in prefix.rglob("*") if path.is_symlink()]
    for link in links:
        goal = os.readlink(link)
        if link.suffix == ".so":
            link.unlink()
            link.write_text(f"INPUT({goal})\n")
        elif link.name.startswith("lib"):
            real = link.resolve()
            link.unlink()
            real.rename(link)
        else:
            link.unlink()
            link.write_text(f".so {link.parent.name}/{goal}\n")


if __name__ == "__main__":
    [_, what, directory] = sys.argv
    Path(directory).mkdir(exist_ok=True)
    print({"sdist": build_sdist, "wheel": build_wheel}[what](directory))
