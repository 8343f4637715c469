"""`penstock calibrate` and `penstock predict`: the file, its numbers, and the directory."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest

PENSTOCK = [sys.executable, "-m", "penstock"]
CALL = """
operation = "write"
ranks = 8
[[arrays]]
shape = [128, 64, 64]
dtype = "f8"
memory = "BLOCK,BLOCK,*"
mesh = [4, 2]
chunks = [32, 64, 64]
"""


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*PENSTOCK, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def contents(place) -> dict[str, bytes]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    place = tmp_path_factory.mktemp("calibrated")
    (place / "kept").mkdir()
    (place / "kept" / "file").write_bytes(b"mine")
    before = contents(place)
    output = tmp_path_factory.mktemp("preset") / "this.toml"
    done = run("calibrate", "--path", place, "--output", output, "--seconds", 2)
    assert done.returncode == 0, done.stderr
    assert "numbers with their spread" in done.stdout
    assert contents(place) == before and sorted(os.listdir(place)) == ["kept"]
    return output


def numbers(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def test_the_file_parses_and_its_numbers_are_positive_and_finite(preset):
    machine = tomllib.loads(preset.read_text())
    assert all(math.isfinite(number) and number >= 0 for number in numbers(machine))
    assert len(machine["spread"]) > 20
    for key, spread in machine["spread"].items():
        assert 0 < spread["low"] <= spread["high"], key
    for part in ("copies", "files", "metadata"):
        for rate in machine["measured"][part]:
            median = rate.get("bytes_per_second") or rate["us"]
            assert 0 < median["low"] <= median["median"] <= median["high"]
    has_direct = any(rate["way"] == "direct" for rate in machine["measured"]["files"])
    says_no = any("no direct I/O" in remark for remark in machine["measured"]["remarks"])
    assert has_direct != says_no and has_direct == ("around" in machine)


def test_the_simulator_runs_on_it(preset):
    options = ["--preset", preset, "--pattern", "rbb", "--record", "8192", "--file-mb", "4"]
    done = run("sim", "run", *options, "--trials", 1, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] > 0


def test_predictions_of_every_strategy(preset, tmp_path):
    (tmp_path / "call.toml").write_text(CALL)
    by_file = run("predict", tmp_path / "call.toml", "--preset", preset, "--json", "-")
    assert by_file.returncode == 0, by_file.stderr
    answer = json.loads(by_file.stdout)
    options = ["--shape", "128,64,64", "--memory", "BLOCK,BLOCK,*", "--mesh", "4,2"]
    options += ["--chunks", "32,64,64", "--ranks", "8"]
    by_options = run("predict", "--preset", preset, *options, "--json", "-")
    assert json.loads(by_options.stdout) == answer
    names = [prediction["strategy"] for prediction in answer["predictions"]]
    assert names == ["disk-directed", "two-phase", "caching", "independent"]
    assert answer["best"] in names
    for prediction in answer["predictions"]:
        assert 0 < prediction["low"] <= prediction["seconds"] <= prediction["high"]
        assert prediction["bytes"] == prediction["disk_bytes"] == 128 * 64 * 64 * 8
        assert prediction["by"] in ("simulation", "closed-form")
        assert prediction["bottleneck"] in ("disk", "network", "copying", "cpu", "metadata")
    text = run("predict", "--preset", preset, *options)
    assert "fastest:" in text.stdout and "bottleneck" in text.stdout


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "--memory is missing"),
        (["--memory", "BLOCK", "--shape", "8"], "--ranks is missing"),
        (["--memory", "BLOCK,BLOCK", "--shape", "8,8", "--ranks", "4"], "--mesh is missing"),
        (["--memory", "BLOCK", "--shape", "8", "--ranks", "4", "--mesh", "8"], "8 places"),
        (["--memory", "BLOCK", "--shape", "8", "--ranks", "0"], "one rank at least"),
        (["--memory", "BLOCK", "--shape", "8", "--ranks", "2", "--hosts", "3"], "for each host"),
        (
            ["--memory", "BLOCK", "--shape", "8", "--ranks", "2", "--strategy", "best"],
            "no strategy",
        ),
        (["--memory", "BLOCK", "--shape", "8", "--ranks", "2", "--dtype", "q"], "no dtype"),
        (["--memory", "BLOCK", "--shape", "8", "--ranks", "2", "--chunks", "0"], ""),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(options, what):
    done = run("predict", "--preset", "nvme-server", *options)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert what in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_calibration_that_is_stopped_leaves_nothing_behind(tmp_path, number):
    command = [*PENSTOCK, "calibrate", "--path", str(tmp_path), "--seconds", "10"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not os.listdir(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert os.listdir(tmp_path), "it has not begun"
    running.send_signal(number)
    assert running.wait(timeout=60) == 130
    assert not os.listdir(tmp_path)


def test_a_directory_that_cannot_be_used_is_told(tmp_path):
    missing = run("calibrate", "--path", tmp_path / "none", "--seconds", 1)
    assert missing.returncode != 0 and "it is no directory" in missing.stderr
    done = run("calibrate", "--path", "/proc", "--seconds", 1)
    assert done.returncode == 0, done.stderr
    remarks = tomllib.loads(done.stdout)["measured"]["remarks"]
    assert any("/proc cannot be written to" in remark for remark in remarks)
    assert run("calibrate", "--seconds", 0).returncode == 2
