"""The sort of `examples/fast_mesh_sort.py`: both versions, on threads and on ranks; its check."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tracemalloc
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

PROGRAM = Path(__file__).parent.parent / "examples" / "fast_mesh_sort.py"
VERSIONS = pytest.mark.parametrize("version", [[], ["--asynchronous"]], ids=["sync", "async"])
NEEDS_MPIEXEC = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
WRONG_RECORDS = "not those that were made"


@pytest.fixture
def example() -> Any:
    """The example as a module, which a test may change."""
    spec = importlib.util.spec_from_file_location("fast_mesh_sort", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdict(example: Any, *arguments: object) -> object:
    """Runs the example in this process; with what it exits."""
    with pytest.raises(SystemExit) as ended:
        example.main([str(argument) for argument in arguments])
    return ended.value.code


def job(ranks: int, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs Python on the ranks of an MPI job, to its end."""
    words = ["mpiexec", "-n", ranks, sys.executable, *command]
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=600, check=False
    )


def assert_sorted(volume: Path, given: np.ndarray, cells: int) -> None:
    """The cells of the volume's file, one after the other, are the given records in order."""
    with ps.FileSystem(volume) as fs, fs.attach("/datafile") as file:
        subfiles = [file.open(ps.View(hn=cells), cell) for cell in range(cells)]
        found = [np.frombuffer(subfile.read(given.nbytes), "<u8") for subfile in subfiles]
    assert [cell.size for cell in found] == [given.size // cells] * cells
    assert (np.concatenate(found) == np.sort(given)).all()


def all_made(example: Any, cells: int, records: int, block: int, seed: int) -> np.ndarray:
    options = Namespace(records=records, block=block, seed=seed)
    return np.concatenate([part for rank in range(cells) for part in example.made(rank, options)])


SIZES = [(1, 1), (2, 7), (17, 5), (63, 16), (257, 32), (1000, 1001)]


@pytest.mark.parametrize(
    "n, records, block, version",
    [
        # The versions take turns: each meets every number of threads, and every size.
        (n, *sizes, ["--asynchronous"] * ((n + number) % 2))
        for n in range(4)
        for number, sizes in enumerate(SIZES)
    ],
)
def test_on_threads(
    example: Any,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    n: int,
    records: int,
    block: int,
    version: list[str],
) -> None:
    """Runs of any number and length, windows larger and smaller than blocks, short last blocks."""
    sizes = ["--threads", 2**n, "--records", records, "--block", block, "--servers", 3, "--seed", 5]
    assert verdict(example, *sizes, *version, place / "v") is None
    said = capsys.readouterr().out
    assert f"{2**n} cells of {records:,} records" in said
    assert "records/s" in said and "MB/s" in said and "sorted" in said
    assert_sorted(place / "v", all_made(example, 2**n, records, block, 5), 2**n)


def test_a_volume_without_a_name_is_removed(
    example: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    assert verdict(example, "--threads", 2, "--records", 100) is None
    assert not list(place.iterdir())


@VERSIONS
def test_equal_records_and_the_smallest_and_largest(
    example: Any, place: Path, version: list[str]
) -> None:
    def made(rank: int, options: Namespace) -> Iterator[np.ndarray]:
        chance = np.random.default_rng(rank)
        for start in range(0, options.records, options.block):
            few = np.array([0, 1, 2**63, 2**64 - 1], "<u8")
            yield chance.choice(few, min(options.block, options.records - start))

    example.made = made
    sizes = ["--threads", 4, "--records", 301, "--block", 20]
    assert verdict(example, *sizes, *version, place / "v") is None
    assert_sorted(place / "v", all_made(example, 4, 301, 20, 0), 4)


@pytest.mark.parametrize("version", ["WindowSort", "AsynchronousWindowSort"])
def test_a_process_holds_some_blocks_of_its_cell(example: Any, place: Path, version: str) -> None:
    block = 4096
    records = 40 * block + 1
    options = Namespace(records=records, block=block, seed=0)
    with ps.FileSystem.create(place / "v") as fs:
        for path in ("/datafile", "/scratch"):
            fs.create(path, cells=1, bsu=8)
        with fs.attach("/datafile", "r+") as file, fs.attach("/scratch", "r+") as second:
            cell = file.open()
            for part in example.made(0, options):
                cell.write(part)
            sort = getattr(example, version)(second.open(), records, block)
            tracemalloc.start()
            try:
                for direction in (example.DOWN, example.UP):
                    sort(cell, direction)
                sort(cell, example.DOWN, 1)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert peak <= example.BLOCKS_HELD * block * 8 < records * 8 / 3


def test_the_file_is_larger_than_the_caches(
    example: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(example, "--threads", 2, "--records", 4096, place / "v") is None
    assert " 8.0 times the servers' caches" in capsys.readouterr().out
    sizes = ["--threads", 2, "--records", 4096, "--cache", 4096, "--servers", 4]
    assert verdict(example, *sizes, place / "w") is None
    assert " 4.0 times the servers' caches" in capsys.readouterr().out


def nothing(cells: list[np.ndarray]) -> None:
    """Leaves the records as they are."""


def larger(cells: list[np.ndarray]) -> None:
    cells[3][-1] = 2**64 - 1


def doubled(cells: list[np.ndarray]) -> None:
    cells[1][7] = cells[1][8]


def swapped(cells: list[np.ndarray]) -> None:
    cells[2][[10, 11]] = cells[2][[11, 10]]


def swapped_between_blocks(cells: list[np.ndarray]) -> None:
    cells[2][[29, 30]] = cells[2][[30, 29]]


def swapped_cells(cells: list[np.ndarray]) -> None:
    cells[0][:], cells[1][:] = cells[1].copy(), cells[0].copy()


@pytest.mark.parametrize(
    "damage, wrong",
    [
        (nothing, None),
        (larger, WRONG_RECORDS),
        (doubled, WRONG_RECORDS),
        (swapped, "cell 2 is not sorted"),
        (swapped_between_blocks, "cell 2 is not sorted"),
        (swapped_cells, "cell 1 is not sorted, or does not follow"),
    ],
)
def test_the_check_finds_what_is_wrong(
    example: Any, place: Path, damage: Callable[[list[np.ndarray]], None], wrong: str | None
) -> None:
    sort = example.fast_mesh_sort

    def sort_and_damage(team: Any, file: ps.File, window_sort: Any) -> None:
        sort(team, file, window_sort)
        team.barrier()
        if team.rank == 0:
            subfiles = [file.open(ps.View(hn=4), cell) for cell in range(4)]
            cells = [np.frombuffer(bytearray(one.read(51 * 8)), "<u8") for one in subfiles]
            damage(cells)
            for subfile, cell in zip(subfiles, cells, strict=True):
                subfile.write_at(0, cell)

    example.fast_mesh_sort = sort_and_damage
    code = verdict(example, "--threads", 4, "--records", 51, "--block", 10, place / "v")
    assert code is None if wrong is None else wrong in str(code)


def test_the_check_finds_that_nothing_was_sorted(example: Any, place: Path) -> None:
    example.fast_mesh_sort = lambda *arguments: None
    code = verdict(example, "--threads", 2, "--records", 20, place / "v")
    assert "cell 0 is not sorted" in str(code)


def test_a_thread_that_fails_ends_all(example: Any, place: Path) -> None:
    sort = example.fast_mesh_sort

    def fails(team: Any, *arguments: Any) -> None:
        if team.rank == 2:
            raise ValueError("number 2")
        sort(team, *arguments)

    example.fast_mesh_sort = fails
    with pytest.raises(ValueError, match="number 2"):
        example.main(["--threads", "4", "--records", "50", str(place / "v")])


@pytest.mark.parametrize("threads", [0, 3, 6])
def test_a_number_of_threads_that_is_no_power_of_two(example: Any, threads: int) -> None:
    assert "power of two" in str(verdict(example, "--threads", threads))


@pytest.mark.parametrize("option", ["--records", "--block", "--servers"])
def test_options_that_make_no_sense(example: Any, option: str) -> None:
    assert verdict(example, "--threads", 1, option, 0) == 2


@NEEDS_MPIEXEC
@pytest.mark.parametrize("servers, version", [(1, []), (3, ["--asynchronous"])])
def test_on_ranks(example: Any, place: Path, servers: int, version: list[str]) -> None:
    sizes = ["--records", 2047, "--block", 100, "--servers", servers]
    done = job(4, PROGRAM, *sizes, *version, place / "v")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sorted: ") == 1
    assert_sorted(place / "v", all_made(example, 4, 2047, 100, 0), 4)


@NEEDS_MPIEXEC
def test_a_number_of_ranks_that_is_no_power_of_two(place: Path) -> None:
    done = job(3, PROGRAM, place / "v")
    assert done.returncode != 0
    assert done.stderr.count("power of two") == 3, "all ranks say so"
    assert not (place / "v").exists()


CHANGED = """
import runpy, sys
from mpi4py import MPI
example = runpy.run_path({program!r})
def changed(team, file, window_sort):
    {change}
example["main"].__globals__["fast_mesh_sort"] = changed
example["main"](sys.argv[1:])
"""


@NEEDS_MPIEXEC
@pytest.mark.parametrize(
    "change, said",
    [
        ("pass", "cell 0 is not sorted"),
        # MPI may end the job before the words of rank 1 are out.
        ("assert team.rank != 1, 'rank 1 fails'; team.barrier()", ""),
    ],
)
def test_a_job_that_goes_wrong_ends(place: Path, change: str, said: str) -> None:
    program = CHANGED.format(program=str(PROGRAM), change=change)
    done = job(4, "-c", program, "--records", 50, place / "v")
    assert done.returncode != 0
    assert said in done.stderr
