"""``penstock_bench copy`` checks what each program has made, and prints a table."""

from __future__ import annotations

import pytest

from penstock_bench import copy

SMALL = ["--shape", "16,16,16", "--from", "16,16,1", "--to", "1,16,16", "--repeats", "1"]


def test_the_table(tmp_path, capsys):
    assert copy.main([*SMALL, "--memory", "8MiB", "--directory", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line[:22].strip() for line in lines[2:]]
    assert names == ["penstock, 8MiB", "TensorStore", "a copy of the files"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        (["--shape", "16,x"], "--shape", 2),
        (["--to", "1,16"], "as many dimensions", 2),
        (["--memory", "1KiB"], "penstock, 1KiB: ", 1),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, capsys, words, why, code):
    assert copy.main([*SMALL, "--directory", str(tmp_path), *words]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("penstock-bench: error: ") and why in said.err
