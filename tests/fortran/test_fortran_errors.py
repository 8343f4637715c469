"""Errors of one rank are those of all: with `ierr` codes, without it the end of the program."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from fortran_programs import run, start

PROGRAM = Path(__file__).parent / "programs/errors.f90"
# What each case must come to, and a word of its text.
CASES = {
    "dtype": ("Schema", "f8"),
    "rank": ("Schema", "rank"),
    "shape": ("Schema", "shape"),
    "boxes": ("Overlap", "overlap"),
    "records": ("Schema", "are records"),
    "mesh": ("Schema", "mesh"),
    "strategy": ("Schema", "guessing"),
    "missing": ("Missing", "is-not-there"),
    "no-array": ("Schema", "array"),
    "begin": ("Schema", "f8"),
    "timestep": ("Schema", "f8"),
    "name": ("Schema", "name"),
    "restart": ("Schema", "NULL"),  # that of rank 0, which asks for no checkpoint
    "read-all": ("Schema", "f8"),
    "codec": ("Schema", "squeeze"),
    "attributes": ("Schema", "reading attributes"),
}
ALONE_IS_RIGHT = {"boxes"}  # one rank cannot overlap with another


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_errors_with_ierr(build, tmp_path, ranks):
    said = defaultdict(list)
    for line in run(build.program(PROGRAM), tmp_path / "store", ranks=ranks):
        case, _, rest = line.partition(" ")
        said[case].append(rest)
    assert len(said.pop("good")) == ranks
    assert sorted(said) == sorted(CASES)
    for case, (name, word) in CASES.items():
        if ranks == 1 and case in ALONE_IS_RIGHT:
            assert said[case][0].startswith("0 Ok"), case
            continue
        assert len(said[case]) == ranks and len(set(said[case])) == 1, (case, said[case])
        number, code, text = said[case][0].split(" ", 2)
        assert code == name and int(number) != 0, (case, said[case])
        if case == "restart" and ranks == 1:
            word = "f8"
        assert word in text, (case, text)


@pytest.mark.parametrize("case", ["dtype", "missing", "timestep"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_an_error_without_ierr_stops_the_program(build, tmp_path, ranks, case):
    done = start(build.program(PROGRAM), tmp_path / "store", case, ranks=ranks)
    assert done.returncode != 0
    assert "ERROR STOP" in done.stderr and CASES[case][1] in done.stderr
    assert "the program went on" not in done.stdout
