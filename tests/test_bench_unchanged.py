"""``penstock_bench unchanged`` runs a C program on libraries of MPI-IO, and compares them."""

from __future__ import annotations

import json
import re

import pytest

from penstock_bench import unchanged
from penstock_bench.unchanged import CASES, MIB, OPERATIONS, OURS


def test_the_table(tmp_path, capsys):
    words = ["--ranks", "3", "--mib", "1", "--repeats", "1", "--path", str(tmp_path)]
    words += ["--cb-nodes", "2", "--json", str(tmp_path / "figures.json")]
    assert unchanged.main(words) == 0
    rows = capsys.readouterr().out.splitlines()[5:]
    first = [re.split("  +", row)[0] for row in rows]
    assert list(dict.fromkeys(first)) == [
        f"{case}, {operation}" for case in CASES for operation in OPERATIONS
    ]
    measured = json.loads((tmp_path / "figures.json").read_text())["measurements"]
    assert len(measured) == len(CASES) * len(OPERATIONS) * 5
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
    machine = {"cpus": 1, "cpu": "-", "load_average_at_start": 0.0}
    report = {"machine": machine, "where": "-", "ranks": 1, "repeats": 1}
    both = [one | {"operation": operation} for one in measured for operation in OPERATIONS]
    rows = unchanged.table(report | {"measurements": both}).splitlines()[5:]
    assert [re.split("  +", row.strip())[2:] for row in rows[: len(rows) // 2]] == [
        [OURS, "1.000", "4", "4.00", "1.0", "2.0", "2.50", "0.40"],
        ["ROMIO, default hints", "9.000", "0", "36.00", "1.0", "2.0"],
        ["ROMIO, cb_nodes 2, 1 MiB", "2.500", "2", "10.00", "1.0", "2.0"],
        ["OMPIO", "8.000", "0", "32.00", "1.0", "2.0"],
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--ranks", "0"], "--ranks"),
        (["--cases", "block,round"], "'round'"),
        (["--cb-nodes", "none"], "--cb-nodes"),
        (["--path", "/nowhere"], "/nowhere"),
        (["--openmpi", "/nowhere", "--cases", "small"], "/nowhere"),
    ],
)
def test_options_that_make_no_sense(words, why, capsys):
    assert unchanged.main(words) == 2
    assert why in capsys.readouterr().err
