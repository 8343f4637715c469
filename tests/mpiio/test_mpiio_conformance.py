"""MPI-IO as programs see it: the MPI's own, and Penstock's in front of it.

The MPI is the one that TEST_MPI names. Each test runs with Penstock's library preloaded; and, with
all but Open MPI, with the MPI's own MPI-IO, which tells whether the suite itself is right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import invent
import jobs
import judge
import model
import numpy as np
import pytest
import steps
from judge import Found
from model import Content, Moved, World

WHY_NOT = jobs.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
HISTORIES = Path(__file__).with_name("mpiio_histories.py")
SEEDS = {1: 60, 2: 40, 3: 15, 4: 10}
"""Random programs, by the number of ranks: `make mpiio` plays thousands."""
NATIVE = 3
"""Of so many programs one is enough for the MPI's own library: it is the suite that it tests."""


@pytest.fixture(params=jobs.LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The C programs."""
    directory = tmp_path_factory.mktemp("mpiio")
    return {name: jobs.build(name, directory) for name in jobs.PROGRAMS}


def fine(ended: jobs.Ended) -> str:
    assert ended.is_fine, ended.said
    return ended.said


@pytest.mark.parametrize("ranks", SEEDS)
def test_random_programs(library: str, ranks: int) -> None:
    seeds = SEEDS[ranks] if library == "penstock" else SEEDS[ranks] // NATIVE
    said = fine(jobs.run(library, ranks, sys.executable, HISTORIES, "--seeds", seeds))
    assert f"{seeds} programs, " in said
    assert said.rstrip().endswith("libpenstock_mpiio" if library == "penstock" else "own")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_function(library: str, ranks: int, built: dict[str, Path], place: Path) -> None:
    said = fine(jobs.run(library, ranks, built["functions"], place))
    assert f"all right, {ranks} ranks" in said


@pytest.mark.parametrize("ranks", [1, 3])
def test_requests(library: str, ranks: int, built: dict[str, Path], place: Path) -> None:
    said = fine(jobs.run(library, ranks, built["requests"], place))
    assert f"all right, {ranks} ranks" in said


# -------------------------------------------------------------------------------------------------
# The judge
# -------------------------------------------------------------------------------------------------


def as_the_model_says(program: list[steps.Step], ranks: int) -> list[list[object]]:
    """What ranks find if all goes as in the model: `found[rank][step]`."""
    world, found = World(ranks), [[] for _ in range(ranks)]
    for step in program:
        for rank, expected in enumerate(model.apply(world, step)):
            found[rank].append(as_found(expected))
    return found


def as_found(expected: object) -> object:
    match expected:
        case Moved():
            raw = np.zeros(0, np.uint8) if expected.raw is None else expected.raw.copy()
            return Found(expected.bytes, *judge.counts(expected), raw)
        case Content():
            return expected.data.copy()
        case list():
            return [as_found(each) for each in expected]
    return expected


def changes(expected: object, found: object) -> Iterator[object]:
    """Wrong things that a rank might find instead."""
    match expected:
        case Moved():
            assert isinstance(found, Found)
            yield Found(found.bytes + 1, found.count, found.elements, found.raw)
            yield Found(found.bytes, 77, found.elements, found.raw)
            yield Found(found.bytes, found.count, 77, found.raw)
            if expected.is_certain is not None:
                for at in np.flatnonzero(expected.is_certain)[[0, -1]]:
                    raw = found.raw.copy()
                    raw[at] ^= 1
                    yield Found(found.bytes, found.count, found.elements, raw)
        case Content():
            assert isinstance(found, np.ndarray)
            yield found[:-1] if len(found) else np.zeros(1, np.uint8)
            for at in range(0, len(found), 1 + len(found) // 3):
                other = found.copy()
                other[at] ^= 1
                yield other
        case int():
            yield expected + 1


@pytest.mark.parametrize("seed", range(6))
def test_the_judge_refuses_what_is_wrong(seed: int) -> None:
    """Every result of a program, changed a little, is refused; unchanged, it passes."""
    ranks, refused = 3, 0
    program = invent.program(seed, ranks)
    found = as_the_model_says(program, ranks)
    judge.judge(program, found, ranks, frozenset())
    world = World(ranks)
    for number, step in enumerate(program):
        before = world.copy()
        expected = model.apply(world, step)
        if judge.is_clash(step):
            continue
        for rank in range(ranks):
            for wrong in changes(expected[rank], found[rank][number]):
                told = [mine[number] for mine in found]
                told[rank] = wrong
                with pytest.raises(judge.Wrong):
                    judge.compare(step, before, told, expected, frozenset())
                refused += 1
    assert refused > 10


def test_programs_are_those_of_their_seeds() -> None:
    assert invent.program(3, 2) == invent.program(3, 2) != invent.program(4, 2)


def test_what_is_left_of_a_program_is_correct() -> None:
    """Any steps may be left out of a program; those that need them go, too."""
    for seed in range(6):
        program = invent.program(seed, 2)
        assert invent.legal(program, 2, frozenset())[: len(program)] == program
        for gap in (2, 3, 5):
            invent.legal(program[::gap], 2, frozenset())
