"""``penstock_bench predict`` puts predictions beside measurements."""

from __future__ import annotations

import random
import re
import subprocess
import sys

from penstock_bench import predict
from penstock_bench.predict_job import Call, seconds_of


def test_the_table(tmp_path, capsys):
    preset = tmp_path / "this.toml"
    command = [sys.executable, "-m", "penstock", "calibrate", "--path", str(tmp_path)]
    subprocess.run([*command, "--output", str(preset), "--seconds", "1"], check=True)
    words = ["--preset", str(preset), "--directory", str(tmp_path), "--cases", "2"]
    words += ["--rounds", "1", "--ranks", "2,4", "--mebibytes", "1"]
    assert predict.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines[1:] if re.search(r"simulation|closed-form", line)]
    assert len(table) >= 12
    of_auto = [line for line in lines if re.search(r"[\d.]+ of the best, [\d.]+ times", line)]
    assert len(of_auto) == 4, "two cases, written and read"
    assert "within 15%" in lines[-5] and "called best" in lines[-4]
    assert re.search(r"0.9 of the best strategy in \d of 4 calls", lines[-3])
    assert re.search(r"1.3 times the default in \d of 4 calls", lines[-2])
    assert len([line for line in lines if "after earlier ones" in line]) == 2
    assert re.match(r"timesteps: the first median .* in \d of 2; the last median", lines[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["this.toml"]


def test_options_that_make_no_sense(tmp_path, capsys):
    assert predict.main(["--preset", str(tmp_path / "none.toml")]) == 2
    assert "penstock calibrate writes one" in capsys.readouterr().err
    assert predict.main([]) == 2


def test_the_summary_counts():
    call = Call((8, 128, 128), "BLOCK,*,*", (2,), None, 2, False)

    def pair(case, strategy, predicted, measured):
        return predict.Pair(case, call, "write", strategy, predicted, measured, "simulation")

    pairs = [pair(0, "a", 1.0, 1.1), pair(0, "b", 2.0, 1.0), pair(1, "a", 1.3, 1.0)]
    fixed = {"disk-directed": 2.0, "two-phase": 1.0}
    chosen = [predict.Choice(call, "write", auto, fixed) for auto in (1.0, 1.1, 1.6)]
    text = predict.summary(pairs, chosen)
    assert "within 15%: 1 of 3 (33%); within 35%: 2 of 3 (67%)" in text
    assert "called best is within 10% of the best in 2 of 2 calls (100%)" in text
    assert "0.9 of the best strategy in 2 of 3 calls (67%), 0.8 in 2 of 3 calls (67%)" in text
    assert "worst 0.62, median 0.91" in text
    assert "1.3 times the default in 2 of 3 calls (67%)" in text
    assert predict.summary([], []) == "nothing was measured"


def test_a_call_lasts_from_the_last_beginning_to_the_last_end():
    first = {"x": [(0.0, 3.0), (10.0, 15.0), (20.0, 21.0)]}
    other = {"x": [(1.0, 2.0), (12.0, 14.0), (19.0, 22.0)]}
    assert seconds_of([first, other]) == {"x": 2.0}


def test_cases_are_the_same_for_a_seed():
    def drawn():
        chance = random.Random(3)
        return [predict.draw(chance, [2, 3, 8], [1, 4], [False, True]) for _ in range(20)]

    assert drawn() == drawn() and len(set(drawn())) > 10
