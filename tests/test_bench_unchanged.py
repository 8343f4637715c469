"""``penstock_bench unchanged`` runs a C program on libraries of MPI-IO, and compares them."""

from __future__ import annotations

import json
import re

import pytest

from penstock_bench import unchanged
from penstock_bench.meters import WORK_UP_VARIABLE
from penstock_bench.unchanged import CASES, MIB, OPERATIONS, OURS


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Ranks do not work before they are timed: nothing here asks how long anything takes."""
    monkeypatch.setitem(unchanged.ENVIRONMENT, WORK_UP_VARIABLE, "0")


def test_the_table(monkeypatch, tmp_path, capsys):
    """Each case by Penstock, and by one of the others in turn: another test takes all for one."""
    measure = unchanged.measure

    def measure_two(options, case, contenders, *about):
        assert contenders[0].name == OURS and len(contenders) == 5
        others = contenders[1:]
        return measure(options, case, [contenders[0], others[CASES.index(case) % 4]], *about)

    monkeypatch.setattr(unchanged, "measure", measure_two)
    words = ["--ranks", "3", "--mib", "1", "--repeats", "1", "--path", str(tmp_path)]
    words += ["--cb-nodes", "2", "--json", str(tmp_path / "figures.json")]
    assert unchanged.main(words) == 0
    rows = capsys.readouterr().out.splitlines()[5:]
    first = [re.split("  +", row)[0] for row in rows]
    assert list(dict.fromkeys(first)) == [
        f"{case}, {operation}" for case in CASES for operation in OPERATIONS
    ]
    measured = json.loads((tmp_path / "figures.json").read_text())["measurements"]
    assert len(measured) == len(CASES) * len(OPERATIONS) * 2
    assert len({one["program"] for one in measured}) == 5
    for one in measured:
        assert one["wrong"] == 0 and one["seconds"] > 0
        assert 0.8 * MIB < one["bytes"] < 1.2 * MIB, one
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_the_best_hints_are_compared():
    def result(program: str, seconds: float) -> dict[str, object]:
        about = {"case": "block", "program": program, "bytes": 4e6, "wrong": 0}
        about |= {"private_bytes": MIB, "shared_bytes": 2 * MIB}
        return about | {"seconds": seconds, "cpu_seconds": 4 * seconds}

    measured = [
        result(OURS, 1.0),
        result("ROMIO, default hints", 9.0),
        result("ROMIO, independent", 3.0),
        result("ROMIO, cb_nodes 2, 1 MiB", 2.5),
        result("OMPIO", 8.0),
    ]
    both = [one | {"operation": operation} for one in measured for operation in OPERATIONS]
    rows = unchanged.rows("block", both, ["ROMIO, slow"], 7).splitlines()
    assert rows.pop() == "block: ROMIO, slow took more than 7 s"
    assert [re.split("  +", row.strip())[2:] for row in rows[: len(rows) // 2]] == [
        [OURS, "1.000", "4", "4.00", "1.0", "2.0", "2.50", "0.40"],
        ["ROMIO, default hints", "9.000", "0", "36.00", "1.0", "2.0"],
        ["ROMIO, cb_nodes 2, 1 MiB", "2.500", "2", "10.00", "1.0", "2.0"],
        ["OMPIO", "8.000", "0", "32.00", "1.0", "2.0"],
    ]


def test_a_rival_that_is_too_slow_is_left_out(monkeypatch, tmp_path, capsys):
    run = unchanged.run

    def slow(program, *about):
        return None if program.name == "ROMIO, independent" else run(program, *about)

    monkeypatch.setattr(unchanged, "run", slow)
    words = ["--ranks", "1", "--mib", "1", "--repeats", "2", "--path", str(tmp_path)]
    words += ["--cases", "small", "--cb-nodes", "1", "--patience", "300"]
    assert unchanged.main(words) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1] == "small: ROMIO, independent took more than 300 s"
    assert not any("independent" in row for row in rows[:-1])


def test_a_job_that_outlasts_the_patience_is_killed(tmp_path):
    sleeping = tmp_path / "mpiexec"
    sleeping.write_text("#!/bin/sh\nsleep 1000\n")
    sleeping.chmod(0o755)
    program = unchanged.Program("ROMIO", str(sleeping), "program", {})
    assert unchanged.run(program, 1, "small", tmp_path / "file", MIB, 1) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--ranks", "0"], "--ranks"),
        (["--patience", "0"], "--patience"),
        (["--cases", "block,round"], "'round'"),
        (["--cb-nodes", "none"], "--cb-nodes"),
        (["--path", "/nowhere"], "/nowhere"),
        (["--openmpi", "/nowhere", "--cases", "small"], "/nowhere"),
    ],
)
def test_options_that_make_no_sense(words, why, capsys):
    assert unchanged.main(words) == 2
    assert why in capsys.readouterr().err
