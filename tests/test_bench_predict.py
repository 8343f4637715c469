"""``penstock_bench predict`` puts predictions beside measurements."""

from __future__ import annotations

import random
import re
import subprocess
import sys

from penstock_bench import predict
from penstock_bench.predict_job import Call, seconds_of


def test_the_table(tmp_path, capsys):
    """With a preset that there is: test_calibrate.py predicts with one of this machine."""
    preset = tmp_path / "this.toml"
    command = [sys.executable, "-m", "penstock", "sim", "preset", "nvme-server"]
    preset.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    words = ["--preset", str(preset), "--directory", str(tmp_path), "--cases", "2"]
    words += ["--rounds", "1", "--ranks", "2,4", "--mebibytes", "1"]
    assert predict.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines[1:] if re.search(r"simulation|closed-form", line)]
    assert len(table) >= 12
    assert "within 15%" in lines[-2]
    assert re.search(r"called best is within 10% of the best in \d of 4 calls", lines[-1])
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
    text = predict.summary(pairs)
    assert "within 15%: 1 of 3 (33%); within 35%: 2 of 3 (67%)" in text
    assert "called best is within 10% of the best in 2 of 2 calls (100%)" in text
    assert predict.summary([]) == "nothing was measured"


def test_a_call_lasts_from_the_last_beginning_to_the_last_end():
    first = {"x": [(0.0, 3.0), (10.0, 15.0), (20.0, 21.0)]}
    other = {"x": [(1.0, 2.0), (12.0, 14.0), (19.0, 22.0)]}
    assert seconds_of([first, other]) == {"x": 2.0}


def test_cases_are_the_same_for_a_seed():
    def drawn():
        chance = random.Random(3)
        return [predict.draw(chance, [2, 3, 8], [1, 4], [False, True]) for _ in range(20)]

    assert drawn() == drawn() and len(set(drawn())) > 10
