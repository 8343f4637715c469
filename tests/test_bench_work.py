"""The benchmark ``work``, small: its programs do what they say, and its table has them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock_bench.work_job import PROGRAMS

pytestmark = pytest.mark.usefixtures("hurry")


def bench(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock_bench", "work", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_programs_get_what_they_should(place: Path, ranks: int) -> None:
    done = bench("--ranks", ranks, "--mib", 1, "--repeats", 1, "--path", place, "--quiet")
    assert done.returncode == 0, done.stderr
    for program in PROGRAMS:
        assert program in done.stdout
    assert "times the exchange" in done.stdout
    assert not list(place.iterdir())


def test_bad_options_are_refused(place: Path) -> None:
    for words in (("--ranks", 0), ("--mib", 0), ("--path", place / "missing")):
        done = bench(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
