"""``penstock_bench dickens-thakur`` draws all figures of what it has measured and verified."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from drawing import draw_here
from helpers import some_attempt

from penstock_bench import dickens_thakur as command
from penstock_bench import figures as shared
from penstock_bench.split import SplitJob, make_case, square

ROOT = Path(__file__).parent.parent
BENCH = [sys.executable, "-m", "penstock_bench"]


def points_of(figure: dict) -> dict[str, dict]:
    """The last point of each series."""
    return {one["name"]: one["points"][-1] for one in figure["series"]}


def test_all_figures(quick, hurry, tmp_path, monkeypatch):
    """Every table, plot and line of numbers, of arrays whose bytes were all right."""
    monkeypatch.setattr(shared, "draw", draw_here)  # in place of a process for each figure
    text, report = quick(command.main, "--repeats", "1", "--csv", "points.csv", "--plot", "plots")
    figures = {figure["figure"]: figure for figure in report["figures"]}
    assert list(figures) == [2, 3, 4, 5, 6, 7]
    assert all(f"\nFigure {number}. " in text for number in figures)
    assert len(figures[2]["series"]) == 6
    assert [point["x"] for point in figures[3]["series"][0]["points"]] == [1, 4]
    assert len(figures[5]["series"]) == 4
    assert list(points_of(figures[6])) == list(points_of(figures[7]))
    assert len(figures[6]["series"]) == 7
    for result in report["measurements"]:
        assert result["wrong"] == 0
        assert all(0 < seconds < 600 for seconds in result["seconds"])
    drawn = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert drawn == [f"figure{n}.{end}" for n in figures for end in ("png", "svg")]
    with open(tmp_path / "points.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(one["points"]) for f in figures.values() for one in f["series"])
    assert all(float(row["min"]) <= float(row["y"]) <= float(row["max"]) for row in rows)
    assert [path.name for path in tmp_path.glob("penstock-bench-*")] == []


def test_computation_is_as_long_as_the_write_and_hides_it(quick):
    """With a disk that takes no processor time, so that there is something to hide."""

    def is_hidden() -> bool:
        _, report = quick(command.main, "6", "--path", ".", "--throttle", "40")
        assert report["compute_seconds"] > 0.09
        assert all(count > 0 for count in report["multiplications_per_rank"].values())
        (figure,) = report["figures"]
        points = points_of(figure)
        wanted, took = report["compute_seconds"], points["two-phase:5, none"]["compute_seconds"]
        most = max(point["hidden_percent"] for point in points.values())
        return wanted / 10 < took < 10 * wanted and most > 5

    assert some_attempt(is_hidden)


def test_what_is_hidden():
    """30 ms of writing behind 40 ms of computation: of 70 ms, 45 are left."""

    def result(name: str, seconds: float) -> dict:
        parts = [[0.03, 0.04, 0.0]]
        return {"contender": name, "ranks": 4, "seconds": [seconds], "parts": parts}

    results = [result("two-phase:5, none", 0.07), result("two-phase:5, disk", 0.045)]
    found = command.overlap(results[1], results)
    assert math.isclose(found["gained_percent"], 100 * 25 / 70)
    assert math.isclose(found["hidden_percent"], 100 * 25 / 30)
    assert command.overlap(results[0], results)["hidden_percent"] == 0


@pytest.mark.parametrize(
    ("count", "factors"), [(1, (1, 1)), (2, (1, 2)), (8, (2, 4)), (12, (3, 4)), (13, (1, 13))]
)
def test_meshes(count, factors):
    assert square(count) == factors


def test_arrays():
    """Square and by blocks; or, for ranks that do not exchange, one section of rows each."""
    job = SplitJob(clients=8, cases=[], directory="/tmp", repeats=1, sync=True)
    case = make_case(job, "collective", 64 << 20, rank=0)
    assert (case.shape, case.memory.text, case.memory.mesh) == ((4096, 4096), "BLOCK,BLOCK", (2, 4))
    case = make_case(job, "own", 4 << 20, rank=7)
    assert (case.bytes, case.local_shape()) == (32 << 20, (1024, 1024))


WRONG = [
    (["8"], "there is no Figure '8'"),
    (["--ranks", "2,x"], "--ranks"),
    (["--ranks", "0"], "--ranks"),
    (["--sizes", "3"], "powers of 2"),
    (["--repeats", "0"], "--repeats"),
    (["--throttle", "-1"], "--throttle"),
    (["--path", "/nowhere"], "/nowhere"),
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


def test_the_benchmarks_are_listed():
    for words in ([], ["--help"]):
        done = subprocess.run([*BENCH, *words], text=True, capture_output=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        for name in ("collective", "copy", "hard", "panda", "dickens-thakur"):
            assert f"\n  {name} " in done.stdout
    done = subprocess.run([*BENCH, "kotz"], text=True, capture_output=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "kotz" in done.stderr


def test_without_mpiexec(capsys, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert command.main(["--quick"]) == 2
    assert "mpiexec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no slots left >&2; exit 3", "no slots left"),
        ("exit 3", "exit code 3"),
        ("""echo '{"error": "FullError: no space"}'; exit 1""", "FullError: no space"),
    ],
)
def test_ranks_that_fail(capsys, monkeypatch, tmp_path, script, why):
    """One line says why, and nothing is left behind."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f"#!/bin/sh\n{script}\n")
    mpiexec.chmod(0o755)
    monkeypatch.setattr(shared, "find_mpiexec", lambda: str(mpiexec))
    monkeypatch.chdir(tmp_path)
    assert command.main(["4", "--quick"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert why in said.err
    assert list(tmp_path.iterdir()) == [mpiexec]


def commands_of_the_page() -> list[str]:
    text = (ROOT / "docs/dickens-thakur.md").read_text()
    lines = re.findall(
        r"^    python -m penstock_bench dickens-thakur ?([^#\n]*)", text, re.MULTILINE
    )
    return sorted({line.strip() for line in lines})


def test_the_commands_of_the_page_are_understood(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    commands = commands_of_the_page()
    assert len(commands) >= 2
    for line in commands:
        shared.new_plan(command.DickensThakur, line.split())
