"""Disks that fail, ranks that die, and programs with threads, children and hundreds of files."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from pathlib import Path

import jobs
import pytest
from crash_kills import wait_for_end

WHY_NOT = jobs.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
DYING = Path(__file__).with_name("dying.py")
WAYS = ("at", "all", "at_all", "split", "iat", "iall", "shared", "ordered")
EXIT_SKIPPED = 77
SECONDS_MAX = 0.3
"""A rank dies before that: some hundreds of calls."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("faults")
    return {name: jobs.build(name, directory) for name in ("faults", "surroundings")}


@pytest.mark.parametrize("ranks", [1, 3])
def test_disks_that_fail(ranks: int, built: dict[str, Path], place: Path) -> None:
    ended = jobs.run("penstock", ranks, built["faults"], place)
    if ended.code == EXIT_SKIPPED:
        pytest.skip("the kernel refuses to refuse system calls")
    assert ended.is_fine and f"all right, {ranks} ranks" in ended.said, ended.said


@pytest.mark.parametrize("ranks", [1, 3])
def test_surroundings(ranks: int, built: dict[str, Path], place: Path) -> None:
    ended = jobs.run("penstock", ranks, built["surroundings"], place)
    assert ended.is_fine and f"all right, {ranks} ranks" in ended.said, ended.said


def ranks_with(file: Path) -> list[int]:
    """The processes that have been started with a file."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(file) in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def shared_segments() -> set[Path]:
    """What Penstock has in shared memory under a name. Directories are of other tests."""
    return {each for each in Path("/dev/shm").glob("*penstock*") if each.is_file()}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_die(way: str, place: Path) -> None:
    """The job of a rank that is killed, or aborts, ends; and the next one finds no trace of it."""
    chance, before = random.Random(way), shared_segments()
    job = ["penstock", 3, sys.executable, "-m", "mpi4py", DYING, place / "file", way]
    for generation, how in enumerate(("kill", "abort"), 1):
        died = jobs.run(*job, 2 * generation, chance.uniform(0.01, SECONDS_MAX), how)
        assert died.code not in (0, -1), died.said
        # Open MPI's mpiexec may end before all ranks have.
        wait_for_end(ranks_with(place / "file"), jobs.SECONDS_MAX, f"a rank died ({how})")
        after = jobs.run(*job, 2 * generation + 1)
        assert after.is_fine and "all right" in after.said, after.said
    assert os.listdir(place) == ["file"]
    assert not shared_segments() - before
