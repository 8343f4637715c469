"""``penstock_bench hard`` checks what each program reads and writes, and prints a table."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from helpers import is_in_memory

from penstock_bench import hard
from penstock_bench.hard_job import OPERATIONS, PROGRAMS, make_case

pytestmark = pytest.mark.usefixtures("hurry")


def test_the_table(tmp_path, capsys):
    words = ["--ranks", "2", "--mib", "4", "--repeats", "1", "--path", str(tmp_path)]
    assert hard.main([*words, "--json", str(tmp_path / "figures.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    programs = [name for name in PROGRAMS if name != hard.DIRECT or not is_in_memory(tmp_path)]
    rows = lines[6:]
    assert [re.split("  +", row)[0] for row in rows] == [
        f"{kind}, {name}" for kind in ("hard", "easy") for name in programs
    ]
    assert all(row.count("(") == len(OPERATIONS) for row in rows)
    report = json.loads((tmp_path / "figures.json").read_text())
    for result in report["measurements"]:
        assert result["wrong"] == 0
        assert list(result["seconds"]) == list(OPERATIONS)
        assert all(seconds > 0 for seconds in result["seconds"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_the_pieces_of_the_cases(tmp_path):
    """Records are dealt out in turn; an easy rank has one part. Every rank has as many pieces."""
    hard_pieces = make_case("hard", 4 << 20, tmp_path, 1, 3).local_indices()[0]
    assert np.array_equal(hard_pieces, np.arange(1, 90, 3))
    assert make_case("hard", 4 << 20, tmp_path, 1, 3).local_shape() == (30, 47_008 // 8)
    easy_pieces = make_case("easy", 8 << 20, tmp_path, 1, 2).local_indices()[0]
    assert np.array_equal(easy_pieces, np.arange(4, 8))


def test_the_first_read_is_compared_with_a_later_one():
    """The fraction is that of the rate at which POSIX reads the easy case in the end."""
    seconds = {"first cold": 4.0, "later cold": 2.0, "warm": 1.0, "write": 8.0}
    result = {"kind": "easy", "program": "POSIX", "bytes": 10**9, "seconds": seconds, "wrong": 0}
    machine = {"cpus": 1, "cpu": "-", "mpi": "-", "load_average_at_start": 0.0}
    report = {"machine": machine, "where": "-", "ranks": 1, "repeats": 1}
    report |= {"limits_bytes_per_second": {}, "measurements": [result]}
    row = hard.table(report).splitlines()[-1]
    cells = ["250 (250-250) 0.50", "500 (500-500) 1.00", "1,000 (1,000-1,000) 1.00"]
    assert re.split("  +", row) == ["easy, POSIX", *cells, "125 (125-125) 1.00"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--ranks", "0"], "--ranks"),
        (["--mib", "0"], "--mib"),
        (["--programs", "POSIX;DAOS"], "'DAOS'"),
        (["--cases", "medium"], "'medium'"),
        (["--path", "/nowhere"], "/nowhere"),
        (["--json", "/nowhere/a.json"], "/nowhere/a.json"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(capsys, words, why):
    assert hard.main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert why in said.err
