"""Wheels, as `make wheels` has built them, in environments where there is no compiler of Rust."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = Path(os.environ.get("PENSTOCK_WHEELS", ROOT / "dist"))
SECONDS_MAX = 900
"""Only what hangs takes longer."""


def wheels(machine: str, tag: str = "abi3") -> list[Path]:
    """The wheels for a machine and an interface of Python."""
    return sorted(WHEELS.glob(f"penstock-*-{tag}-*_{machine}.whl"))


class Environment:
    """A virtual environment of its own, whose programs find nothing of this one and no Rust."""

    def __init__(self, place: Path) -> None:
        venv.create(place, with_pip=True)
        self.bin = place / "bin"
        self.prefix = place
        self.python = self.bin / "python"

    def variables(self, **more: str) -> dict[str, str]:
        own = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = os.pathsep.join([str(self.bin), "/usr/bin", "/bin"])
        return {**own, **pip, "PATH": path, **more}

    def run(self, *command: object, cwd: Path, **more: str) -> str:
        """Runs a command to its end, and gives what it has said."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=cwd,
            env=self.variables(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{words} gave {done.returncode}:\n{done.stdout}"
        return done.stdout

    def install(self, *what: object) -> None:
        self.run(self.python, "-m", "pip", "install", "--quiet", *what, cwd=self.prefix)


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel for this machine."""
    found = wheels(platform.machine())
    if not found:
        pytest.skip(f"no wheel is in {WHEELS}: make wheels")
    return found[-1]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what it asks for."""
    environment = Environment(tmp_path_factory.mktemp("wheel") / "venv")
    begun = time.monotonic()
    environment.install(wheel)
    print(f"pip install: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return environment
