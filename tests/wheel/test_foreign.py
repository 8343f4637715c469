"""The wheel for another machine, whose processor qemu plays.

`make test-wheels` prepares the system of that machine in the directory that PENSTOCK_SYSROOT names:
a C library and Python of Debian, and numpy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import zarr
from conftest import SECONDS_MAX, wheels
from test_wheel import first_program

MACHINE = "aarch64"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The words that run a program of the other machine, and the unpacked wheel."""
    sysroot, qemu = os.environ.get("PENSTOCK_SYSROOT"), shutil.which(f"qemu-{MACHINE}-static")
    found = wheels(MACHINE)
    if not (sysroot and qemu and found):
        pytest.skip(f"it needs a wheel, qemu-user-static, and the system of {MACHINE}: make wheels")
    place = tmp_path_factory.mktemp(MACHINE)
    with zipfile.ZipFile(found[-1]) as parts:
        parts.extractall(place)
    [program] = place.glob("*.data/scripts/penstock")
    program.chmod(0o755)
    return [qemu, "-L", sysroot], place


def run(words: list[str], *command: object, cwd: Path, **more: str) -> str:
    done = subprocess.run(
        [*words, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_first_program_and_the_command(foreign: tuple[list[str], Path], tmp_path: Path) -> None:
    words, place = foreign
    sysroot = Path(words[2])
    (tmp_path / "first.py").write_text(first_program())
    path = os.pathsep.join(map(str, (place, sysroot / "packages")))
    python = sysroot / "usr/bin/python3.11"
    run(words, python, "first.py", cwd=tmp_path, PYTHONPATH=path, PYTHONHOME=str(sysroot / "usr"))
    [program] = place.glob("*.data/scripts/penstock")
    run(words, program, "copy", "first.zarr", "other.zarr", "--chunks", "50,50,50", cwd=tmp_path)
    run(words, program, "verify", "other.zarr", cwd=tmp_path)
    one, other = (
        zarr.open_group(str(tmp_path / f"{name}.zarr"))["u"] for name in ("first", "other")
    )
    assert (one[:] == other[:]).all()
