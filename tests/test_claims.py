"""Ranks read and write parts of an array that stays open, and see what they may see.

`claims.py` plays hundreds of cases: `make claims`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from claims import FORMS, Case, check, on_threads, play_on_threads, replayable
from histories import ImpossibleHistory, Request, check_blocks, check_elements, first_contents

SEEDS = 60


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_ranks_see_what_they_may_see(first):
    """Random requests of ranks on threads, alone and together, with a cache of a few blocks."""
    for seed in range(first, first + 10):
        play_on_threads(seed)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_each_stored_form(place, form, dedicated):
    for seed in (1_000, 1_001):
        case = Case.of(seed, form)
        case.options["dedicated"] = dedicated
        (place / str(seed)).mkdir()
        with replayable(seed):
            check(case, on_threads(case, place / str(seed)))


# -------------------------------------------------------------------------------------------------
# Whether an impossible history would be seen
# -------------------------------------------------------------------------------------------------


def write(number, begun, ended, *places):
    return made(True, number, begun, ended, places)


def read(number, begun, ended, *places):
    return made(False, number, begun, ended, places)


def made(is_write, number, begun, ended, places):
    where = np.array(places or (0,))
    numbers = np.broadcast_to(number, where.shape).astype(np.int64)
    return Request(is_write, "somebody", begun, ended, where, numbers)


POSSIBLE = {
    "the first contents": [read(0, 5, 6)],
    "during the write": [write(1, 3, 9), read(1, 4, 5), read(1, 6, 7)],
    "the old one during the write": [write(1, 3, 9), read(0, 4, 8)],
    "either of two at once": [write(1, 1, 5), write(2, 1, 5), read(1, 6, 7)],
    "a write whose end nobody has seen": [write(1, 1, 2**62), read(0, 5, 6), read(1, 7, 8)],
    "a write that was lost": [write(1, 1, 2**62), read(0, 5, 6), read(0, 7, 8)],
}
IMPOSSIBLE = {
    "what nobody wrote": [read(3, 5, 6)],
    "what is yet to be written": [write(1, 7, 8), read(1, 5, 6)],
    "the first contents after a write": [write(1, 1, 2), read(0, 5, 6)],
    "an old write after a newer one": [write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)],
    "new, then old": [write(1, 1, 9), read(1, 2, 3), read(0, 4, 5)],
    "now one and now the other": [write(1, 1, 9), write(2, 1, 9), read(1, 10, 11), read(2, 12, 13)],
    "back again": [
        write(1, 1, 9), write(2, 1, 9), read(1, 2, 3), read(2, 4, 5), read(1, 6, 7)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_possible_history_passes(name):
    check_elements([first_contents(np.zeros(2, np.int64)), *POSSIBLE[name]])


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_history_is_refused(name):
    with pytest.raises(ImpossibleHistory):
        check_elements([first_contents(np.zeros(2, np.int64)), *IMPOSSIBLE[name]])


def has_an_order(requests):
    """Whether some order of all requests on one element explains them, by trial."""
    for order in itertools.permutations(requests):
        pairs = itertools.combinations(order, 2)
        now, is_well = 0, not any(later.ended < earlier.begun for earlier, later in pairs)
        for request in order if is_well else ():
            number = int(request.numbers[0])
            now = number if request.is_write else now
            is_well &= number == now
        if is_well:
            return True
    return False


def test_histories_are_judged_as_by_trying_all_orders():
    chance = np.random.default_rng(3)
    judged = {True: 0, False: 0}
    for _ in range(600):
        requests = []
        for at in range(1, 6):
            begun, length = int(chance.integers(1, 12)), int(chance.integers(0, 8))
            number = at if at < 3 else int(chance.integers(0, 3))
            requests.append(made(at < 3, number, begun, begun + length, ()))
        is_possible = has_an_order(requests)
        judged[is_possible] += 1
        try:
            check_elements([first_contents(np.zeros(1, np.int64)), *requests])
            assert is_possible, requests
        except ImpossibleHistory:
            assert not is_possible, requests
    assert min(judged.values()) > 50, judged


def test_a_block_that_is_seen_half_written_is_refused():
    history = [first_contents(np.zeros(4, np.int64)), write(1, 1, 9, 0, 1), write(2, 1, 9, 1, 2, 3)]
    block = np.array([0, 0, 0, 1])
    for numbers in ([1, 2, 2, 0], [1, 1, 2, 2], [0, 2, 2, 0], [0, 0, 0, 2]):
        check_blocks([*history, read(numbers, 2, 8, 0, 1, 2, 3)], block)
    for numbers in ([1, 0, 0, 0][:2], [0, 2, 0], [1, 0, 2]):
        with pytest.raises(ImpossibleHistory, match="a mixture"):
            check_blocks([*history, read(numbers, 2, 8, *range(len(numbers)))], block)
