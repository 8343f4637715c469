"""``penstock_bench panda`` draws all figures of what it has measured and verified."""

from __future__ import annotations

import csv
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import draw_here
from helpers import is_in_memory

from penstock_bench import figures as shared
from penstock_bench import panda as command
from penstock_bench.case import Distribution
from penstock_bench.panda_job import (
    NATURAL,
    TRADITIONAL,
    Files,
    PandaJob,
    PlacedFiles,
    make_case,
    mesh_of,
    shape_of,
)
from penstock_bench.storage import give_space_back, touch_free_memory

ROOT = Path(__file__).parent.parent
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("hurry")


class Alone:
    """A communicator of one rank, as far as peaks need one, and what is begun on it."""

    rank = 0

    def Split(self, _color, _key):
        return self

    def Ibarrier(self):
        return self

    def Test(self):
        return True


def make_job(clients: int, directory: str = "/tmp", **how: Any) -> PandaJob:
    """A job without cases."""
    how = {"cases": [], "server_counts": [8], "repeats": 0, "direct": False} | how
    return PandaJob(clients=clients, directory=directory, **how)


@pytest.mark.parametrize(
    ("numbers", "sizes", "words"),
    [
        ([3, 4, 5, 6, 7, 8, 9], [1, 2], []),
        ([3, 4, 7, 8], [1], [*"3478", "--sizes", "1", "--cached"]),
    ],
)
def test_all_figures(quick, tmp_path, monkeypatch, numbers, sizes, words):
    """Every table, plot and line of numbers, of arrays whose bytes were all right; those of files
    also through the page cache."""
    draw = shared.draw

    def draw_most_here(figure, stem):
        """A process draws the first one only."""
        (draw if figure["figure"] == 3 else draw_here)(figure, stem)

    monkeypatch.setattr(shared, "draw", draw_most_here)
    words = words or ["--cached"] * is_in_memory(tmp_path)
    text, report = quick(command.main, "--csv", "points.csv", "--plot", "plots", *words)
    figures = {figure["figure"]: figure for figure in report["figures"]}
    assert list(figures) == numbers
    assert all(f"\nFigure {number}. " in text for number in figures)
    for number, figure in figures.items():
        assert [one["name"] for one in figure["series"]] == [f"{size} MiB" for size in sizes]
        points = [point for one in figure["series"] for point in one["points"]]
        assert [point["x"] for point in points] == [1, 2] * len(sizes)
        assert all(0 < point["y"] < 1e6 for point in points)
        second = "memory copies" if number in (5, 6, 9) else "system calls on the array's files"
        assert figure["second"].startswith(second)
        assert all(0 < point["percent_of_second"] < 1e6 for point in points)
        assert figure["direct"] == (number in (3, 4, 7, 8) and not words)
        assert 0 < figure["waking_seconds"] < 600
        assert figure["aim_percent"] == (70 if number >= 7 else 85)
        assert figure["reached"] == sum(point["y"] >= figure["aim_percent"] for point in points)
        assert figure["reached_surely"] == figure["reached"]  # measured once
    # Two schemas on the disk, written and read; natural chunking without, too, and writes.
    ran = {(one["schema"], one["null"], one["operation"]) for one in report["measurements"]}
    assert len(ran) == len(numbers)
    for result in report["measurements"]:
        assert result["wrong"] == 0
        assert len(result["seconds"]) == report["repeats"][f"{result['bytes'] // MIB} MiB"] == 1
        assert all(0 < seconds < 600 for seconds in result["seconds"])
    drawn = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert drawn == [f"figure{n}-2.{end}" for n in figures for end in ("png", "svg")]
    with open(tmp_path / "points.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(numbers) * len(sizes) * 2
    assert all(float(row["min"]) <= float(row["y"]) <= float(row["max"]) for row in rows)
    assert [path.name for path in tmp_path.glob("penstock-bench-*")] == []


def test_an_array_and_its_peak_are_measured_in_turn(quick, tmp_path):
    words = ["--cached"] * is_in_memory(tmp_path)
    words = ["8", *words, "--repeats", "2", "--sizes", "1", "--directory", "."]
    text, report = quick(command.main, *words)
    (figure,) = report["figures"]
    assert figure["clients"] == 2
    assert ("around the page cache" in text) == ("--cached" not in words)
    in_turn = ["system calls", "system calls on the array's files", "server-directed"]
    assert [(one["contender"], one["servers"]) for one in report["measurements"]] == [
        (contender, servers) for servers in (1, 2) for contender in in_turn
    ]
    assert all(one["operation"] == "write" for one in report["measurements"])


def test_small_arrays_are_measured_more_often():
    often = [command.repeats_of(size * MIB, 0) for size in command.Panda.full.sizes]
    assert often == [100, 50, 25, 20, 20, 20]
    job = make_job(8)
    assert [job.turns(size * MIB) for size in (1, 64, 512)] == [range(101), range(26), range(21)]
    assert make_job(8, repeats=3).turns(MIB) == range(4)


def test_what_a_percentage_is():
    served = {"seconds": [0.02, 0.04, 0.03], "bytes": 6_000_000, "wrong": 0}
    peak = {"seconds": [0.02, 0.024, 0.03], "wrong": 1}
    found = command.point(served, peak, {"seconds": [0.015, 0.001, 0.02]})
    assert math.isclose(found["percent_of_second"], 50)
    assert math.isclose(found["second_mb_per_second"], 400)
    assert math.isclose(found["y"], 80)
    assert 50 <= found["low"] <= 80 <= found["high"] <= 150
    assert math.isclose(found["min"], 60)
    assert math.isclose(found["max"], 120)
    assert math.isclose(found["mb_per_second"], 200)
    assert math.isclose(found["peak_mb_per_second"], 250)
    assert found["wrong"] == 1
    assert "percent_of_second" not in command.point(served, peak, None)


def test_a_percentage_is_as_sure_as_its_repeats_agree():
    assert np.allclose(command.interval([0.02], [0.01]), 50)
    # What is slow at the same time is no doubt.
    slow = [0.01, 0.02, 0.03, 0.04]
    assert np.allclose(command.interval(slow, [0.9 * one for one in slow]), 90)
    chance = np.random.default_rng(1)
    widths = []
    for repeats in (15, 150):
        within = 0
        for _ in range(100):
            served, peak = chance.normal(1, 0.1, (2, repeats))
            low, high = command.interval(list(served), list(peak))
            within += low <= 100 <= high
            widths.append(high - low)
        assert 80 <= within <= 99
    assert sum(widths[100:]) < sum(widths[:100]) / 2.5


@pytest.mark.parametrize(
    ("count", "mesh"),
    [
        (1, (1, 1, 1)),
        (2, (2, 1, 1)),
        (4, (2, 2, 1)),
        (7, (7, 1, 1)),
        (8, (2, 2, 2)),
        (16, (4, 2, 2)),
        (24, (6, 2, 2)),
        (27, (3, 3, 3)),
        (32, (4, 4, 2)),
    ],
)
def test_meshes(count, mesh):
    assert mesh_of(count) == mesh


@pytest.mark.parametrize(
    ("mib", "shape"), [(1, (32, 64, 64)), (16, (128, 128, 128)), (512, (256, 512, 512))]
)
def test_shapes(mib, shape):
    assert shape_of(mib * MIB) == shape


def test_arrays():
    """Chunks are what clients hold; in traditional order each server has one piece."""
    job = make_job(32)
    case = make_case(job, NATURAL, 512 * MIB, 8, rank=31)
    assert case.bytes == 512 * MIB
    assert case.disk.chunk == case.local_shape() == (64, 128, 256)
    case = make_case(job, TRADITIONAL, 512 * MIB, 8, rank=31)
    assert case.disk.parts == Distribution(("BLOCK", "*", "*"), (8,))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_a_peak_that_was_cut_short_is_wrong(tmp_path, count, direct):
    if direct and is_in_memory(tmp_path):
        pytest.skip("the directory for temporary files is in memory")

    job = make_job(1, directory=str(tmp_path), direct=direct)
    case = make_case(job, NATURAL, 4 * MIB, 1, rank=0)
    files = Files("plain", case, Alone(), 1, count, direct=direct)
    local = np.zeros(case.local_shape())
    target = tmp_path / "peak"
    target.mkdir()
    files.write(target, local)
    sizes = [path.stat().st_size for path in target.iterdir()]
    assert (files.wrong_on_disk(target, 0), sum(sizes), len(sizes)) == (0, 4 * MIB, count)
    files.read(target, local)
    assert files.wrong_in_memory(local, 0) == 0
    last = target / f"0.{count - 1}"
    last.write_bytes(bytes(last.stat().st_size))
    files.read(target, local)
    assert files.wrong_in_memory(local, 0) > 0
    last.write_bytes(bytes(last.stat().st_size - 1))
    assert files.wrong_on_disk(target, 0) == 1
    with pytest.raises(OSError, match="cut short"):
        files.read(target, local)


@pytest.mark.parametrize("direct", [False, True])
def test_files_put_in_place_are_there_as_a_whole(tmp_path, monkeypatch, direct):
    """Until the last file is on stable storage, nothing is at the target."""
    if direct and is_in_memory(tmp_path):
        pytest.skip("the directory for temporary files is in memory")

    target = tmp_path / "array"
    seen = []

    def sync(file):
        seen.append(target.exists())
        fsync(file)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", sync)
    job = make_job(1, directory=str(tmp_path))
    case = make_case(job, NATURAL, 4 * MIB, 1, rank=0)
    files = PlacedFiles(case, Alone(), 1, 3, direct=direct)
    files.write(target, np.zeros(case.local_shape()))
    assert seen == [False, False, False, False, True]  # three files, their directory, that above it
    assert files.wrong_on_disk(target, 0) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["array"]


def test_space_is_given_back_and_names_stay(tmp_path):
    (tmp_path / "array/u").mkdir(parents=True)
    for name in ("array/zarr.json", "array/u/c.0", "array/u/c.1"):
        (tmp_path / name).write_bytes(b"measured")
    give_space_back(tmp_path / "array")
    give_space_back(tmp_path / "not there")
    touch_free_memory(tmp_path, 3 << 20)
    files = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*")}
    array = ["array", "array/u", "array/u/c.0", "array/u/c.1", "array/zarr.json"]
    assert sorted(files) == [*array, "touched"]
    assert all(path.stat().st_size == 0 for path in files.values() if path.is_file())


WRONG = [
    (["2"], "there is no Figure '2'"),
    (["--ranks", "2,x"], "--ranks"),
    (["--ranks", "4"], "8 servers among 4 clients"),
    (["--servers", "0"], "--servers"),
    (["--servers", "16"], "16 servers among 8 clients"),
    (["--sizes", "3"], "powers of 2"),
    (["--repeats", "0"], "--repeats"),
    (["--directory", "/nowhere"], "/nowhere"),
    (["--sizes", "524288"], "MB free"),
    (["--json", "/nowhere/a.json"], "/nowhere/a.json"),
    (["--speed"], "--speed"),
]


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_wrong_options_are_one_line_and_exit_code_2(capsys, words, why):
    assert command.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock-bench: error: ")
    assert said.err.count("\n") == 1
    assert why in said.err


def test_memory_cannot_be_gone_around(capsys, place):
    if not is_in_memory(place):
        pytest.skip("there is no file system in memory")
    options = ["--quick", "--directory", str(place)]
    for figure in "34":
        assert command.main([figure, *options]) == 2
        assert "take --cached" in capsys.readouterr().err
    assert not shared.new_plan(command.Panda, ["5", *options]).is_direct(5)


def test_ranks_that_fail(capsys, monkeypatch, tmp_path):
    """One line says why, and nothing is left behind."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text("#!/bin/sh\necho no slots left >&2; exit 3\n")
    mpiexec.chmod(0o755)
    monkeypatch.setattr(shared, "find_mpiexec", lambda: str(mpiexec))
    monkeypatch.chdir(tmp_path)
    assert command.main(["4", "--quick"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "no slots left" in said.err
    assert list(tmp_path.iterdir()) == [mpiexec]


def test_the_commands_of_the_page_are_understood(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/panda.md").read_text()
    lines = re.findall(r"^    python -m penstock_bench panda ?([^#\n]*)", text, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        shared.new_plan(command.Panda, line.split())
