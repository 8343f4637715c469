"""The command ``penstock``, as the package installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import penstock as ps

SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "penstock")]
MODULE = [sys.executable, "-m", "penstock"]

SMALL = ["sim", "run", "--preset", "tr94", "--pattern", "rcb", "--trials", "2", "--file-mb", "1"]


def penstock(*arguments: str, command: list[str] = MODULE, **how) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=600, check=False, **how
    )


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_runs(command: list[str]) -> None:
    version = penstock("--version", command=command)
    assert (version.returncode, version.stdout) == (0, f"penstock {ps.__version__}\n")
    ran = penstock(*SMALL, "--json", "-", command=command)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert found["trials"] == 2
    assert found["throughput_mb_s"] > 0
    assert found["seconds"] > 0
    assert found["events"] > 0
    assert len(bytes.fromhex(found["trace_hash"])) == 8


def test_benchmarks_are_those_of_the_package(tmp_path: Path) -> None:
    listed = penstock("bench")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "files" in listed.stdout
    told = penstock("bench", "files", "--help")
    assert told.returncode == 0
    assert "--block-kib" in told.stdout
    refused = penstock("bench", "files", "--part", "none")
    assert (refused.returncode, refused.stdout) == (2, "")
    measured = penstock(
        *("bench", "files", "--quick", "--quiet", "--part", "random", "--ranks", "1"),
        *("--directory", str(tmp_path)),
    )
    assert measured.returncode == 0, measured.stderr
    assert "accesses of 4 KiB" in measured.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["sim", "run", "--preset", "tr95"],
        ["sim", "run", "--pattern", "wa"],
        ["sim", "run", "--record", "7"],
        ["sim", "table", "5"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    refused = penstock(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("penstock: error: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("arguments", [[], ["sim"]])
def test_a_command_alone_is_its_help(arguments: list[str], command: list[str]) -> None:
    alone = penstock(*arguments, command=command)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == penstock(*arguments, "--help", command=command).stdout
    assert f"Usage: {' '.join(['penstock', *arguments])}" in alone.stdout


def test_plots(tmp_path: Path) -> None:
    """By the interpreter that runs the command, not the first one on the path."""
    pytest.importorskip("matplotlib")
    ran = penstock(*SMALL, "--plot", str(tmp_path / "run"), env=os.environ | {"PATH": "/nowhere"})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.png", "run.svg"]


@pytest.mark.parametrize("name", ["run.png", "run.svg", "run.pdf"])
def test_a_plot_of_one_file(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    ran = penstock(*SMALL, "--clients", "4", "--no-title", "--plot", str(tmp_path / name))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    made = ran.stdout.splitlines()[-1]
    assert made == (
        f"penstock {ps.__version__}; 2 trials, seed 0; preset tr94 with "
        "file.bytes 1048576 (preset: 10485760), nodes.clients 4 (preset: 16)"
    )
    if name == "run.svg":
        assert made in (tmp_path / name).read_text()


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    result = tmp_path / "run.json"
    plot = str(tmp_path / "run.jpg")
    refused = penstock(*SMALL, "--json", str(result), "--plot", plot)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert ".png, .svg or .pdf" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(tmp_path: Path) -> None:
    """One line says so, after the results have been written."""
    (tmp_path / "matplotlib.py").write_text("raise ImportError('hidden')\n")
    hidden = os.environ | {"PYTHONPATH": str(tmp_path)}
    result = tmp_path / "run.json"
    ran = penstock(*SMALL, "--json", str(result), "--plot", str(tmp_path / "run"), env=hidden)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "matplotlib" in ran.stderr
    assert json.loads(result.read_text())["trials"] == 2
