"""Clients of parallel files see what they may see, whatever the others do meanwhile.

`file_histories.py` plays thousands of cases. Most of this page asks whether an impossible history
would be refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_case import Case
from file_histories import check, on_threads, play_on_threads, play_served
from file_log import Record, check_log, record_bytes
from file_orders import ABSENT, EITHER, HOLE, Access, Change, check_file, place_of
from file_player import History
from histories import NEVER, ImpossibleHistory
from mixed_histories import play as play_mixed
from name_orders import ROOT, NameRequest, check_names
from seeds import SEED_SECONDS_MAX
from test_mount import why_not as why_no_mount

SEEDS = 40
SEEDS_OF_JOB = 5
SEEDS_SERVED = 8
SEEDS_MIXED = (1, 2)
PROGRAM = Path(__file__).parent / "file_histories.py"


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_clients_see_what_they_may_see(first: int) -> None:
    """Random programs of clients on threads, on one file, one log, and some names."""
    for seed in range(first, first + 10):
        play_on_threads(seed)


def test_programs_of_standing_servers_see_what_they_may_see() -> None:
    """The same by programs that use one volume at once."""
    for seed in range(SEEDS_SERVED):
        play_served(seed)


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
def test_clients_on_ranks_see_what_they_may_see() -> None:
    """The same on ranks, whose servers run side by side."""
    command = ["mpiexec", "-n", "3", sys.executable, str(PROGRAM), "--seeds", str(SEEDS_OF_JOB)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SEED_SECONDS_MAX)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{SEEDS_OF_JOB} seeds, " in ran.stdout


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
@pytest.mark.skipif(why_no_mount() is not None, reason=why_no_mount() or "")
def test_jobs_a_mount_and_a_program_at_once_see_what_they_may_see() -> None:
    """Two MPI jobs, a mount and a program use one file, one log, and some names."""
    played = [play_mixed(seed) for seed in SEEDS_MIXED]
    assert all(undecided <= 1 for _, undecided in played)


# -------------------------------------------------------------------------------------------------
# Bytes of files
# -------------------------------------------------------------------------------------------------

Numbers = dict[tuple[int, int], int]
"""Of some bytes, each a cell and a place in it, the numbers."""


def write(
    number: int, begun: int, ended: int, *places: tuple[int, int], placed: int = NEVER
) -> Access:
    return made(True, begun, ended, dict.fromkeys(places, number), placed=placed)


def read(begun: int, ended: int, found: Numbers, is_of_checkpoint: bool = False) -> Access:
    return made(False, begun, ended, found, is_of_checkpoint=is_of_checkpoint)


def made(is_write: bool, begun: int, ended: int, numbers: Numbers, **more: Any) -> Access:
    cells, ats = np.array([*numbers], np.int64).reshape(-1, 2).T
    found = np.array([*numbers.values()], np.int64)
    return Access(is_write, "somebody", begun, ended, place_of(cells, ats), found, **more)


def change(what: str, begun: int, ended: int, nbytes: int = 0) -> Change:
    return Change(what, "somebody", begun, ended, nbytes)


A, B = (0, 0), (1, 0)
"""The first bytes of two cells, which are on two servers."""
BOTH = [write(1, 1, 2, A, B), write(2, 3, 9, A, B)]

POSSIBLE: dict[str, list[Access | Change]] = {
    "nothing": [],
    "an empty file": [read(1, 2, {A: ABSENT, B: ABSENT})],
    "all of a write": [*BOTH, read(4, 5, {A: 2, B: 2})],
    "nothing of a write": [*BOTH, read(4, 5, {A: 1, B: 1})],
    "either of two at once": [
        write(1, 1, 9, A, B), write(2, 1, 9, A, B), read(10, 11, {A: 1, B: 1})
    ],
    "a hole before what was written": [write(1, 1, 2, (0, 5)), read(3, 4, {(0, 2): HOLE})],
    "hole or nothing": [read(1, 2, {A: EITHER}), write(1, 3, 4, (0, 5)), read(5, 6, {A: EITHER})],
    "after a resize": [
        write(1, 1, 2, A, (0, 3)), change("resize", 3, 4, 2),
        read(5, 6, {A: 1, (0, 1): HOLE, (0, 3): ABSENT}),
    ],
    "a resize brings zeros": [change("resize", 1, 2, 1), read(3, 4, {A: HOLE, (0, 1): ABSENT})],
    "a checkpoint and a rollback": [
        write(1, 1, 2, A), change("checkpoint", 3, 4), write(2, 5, 6, A),
        read(7, 8, {A: 1}, True), change("rollback", 9, 10), read(11, 12, {A: 1}),
    ],
    "a rollback without a checkpoint": [change("no checkpoint", 1, 2), read(3, 4, {A: ABSENT})],
    "during the removal": [write(1, 1, 2, A), change("remove", 3, 9), read(4, 5, {A: 1})],
    "removed": [write(1, 1, 2, A), change("remove", 3, 9), change("removed", 4, 5)],
    "a write under way that others overtake": [
        write(1, 1, 9, A, placed=3), read(2, 8, {A: ABSENT, B: 2}), write(2, 4, 5, B)
    ],
}  # fmt: skip
IMPOSSIBLE: dict[str, list[Access | Change]] = {
    "half of a write": [*BOTH, read(4, 5, {A: 2, B: 1})],
    "the other half": [*BOTH, read(4, 5, {A: 1, B: 2})],
    "two writes in different orders": [
        write(1, 1, 9, A, B), write(2, 1, 9, A, B), read(10, 11, {A: 1, B: 2})
    ],
    "two writes in different orders, in two reads": [
        write(1, 1, 9, A), write(2, 1, 9, B),
        read(2, 8, {A: 1, B: ABSENT}), read(2, 8, {A: ABSENT, B: 2}),
    ],
    "new, then old": [*BOTH, read(4, 5, {A: 2}), read(6, 7, {B: 1})],
    "lost": [*BOTH, read(10, 11, {A: 1})],
    "before it was written": [read(1, 2, {A: 1}), write(1, 3, 4, A)],
    "what nobody has written": [read(1, 2, {A: 7})],
    "nothing instead of a hole": [write(1, 1, 2, (0, 5)), read(3, 4, {(0, 2): ABSENT})],
    "a hole instead of nothing": [write(1, 1, 2, (0, 5)), read(3, 4, {(0, 6): HOLE})],
    "a hole where there are data": [write(1, 1, 2, (0, 5)), read(3, 4, {(0, 5): EITHER})],
    "cut off and back again": [
        write(1, 1, 2, (0, 3)), change("resize", 3, 4, 2), change("resize", 5, 6, 4),
        read(7, 8, {(0, 3): 1}),
    ],
    "a resize of one of two cells": [
        write(1, 1, 2, A, B), change("resize", 3, 9, 0), read(4, 5, {A: 1, B: ABSENT})
    ],
    "a checkpoint of two moments": [
        write(1, 1, 2, A, B), change("checkpoint", 3, 9), write(2, 4, 5, A), write(3, 6, 7, B),
        read(10, 11, {A: 1, B: 3}, True),
    ],
    "two checkpoints in one read": [
        write(1, 1, 2, A, B), change("checkpoint", 3, 4), write(2, 5, 6, A, B),
        change("checkpoint", 7, 20), read(8, 9, {A: 2, B: 1}, True),
    ],
    "a rollback that is not seen": [
        write(1, 1, 2, A), change("checkpoint", 3, 4), write(2, 5, 6, A),
        change("rollback", 7, 8), read(9, 10, {A: 2}),
    ],
    "a checkpoint that is there": [change("checkpoint", 1, 2), change("no checkpoint", 3, 4)],
    "read after the removal": [write(1, 1, 2, A), change("remove", 3, 4), read(5, 6, {A: 1})],
    "removed by nobody": [change("removed", 1, 2)],
    "an earlier write of the same client after a later one": [
        write(1, 1, 9, A, placed=2), write(2, 3, 4, A), read(10, 11, {A: 1})
    ],
}  # fmt: skip


def check_requests(requests: list[Access | Change]) -> None:
    accesses = [each for each in requests if isinstance(each, Access)]
    check_file(accesses, [each for each in requests if isinstance(each, Change)])


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_possible_history_passes(name: str) -> None:
    check_requests(POSSIBLE[name])


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_history_is_refused(name: str) -> None:
    with pytest.raises(ImpossibleHistory):
        check_requests(IMPOSSIBLE[name])


def fits(order: tuple[Access | Change, ...]) -> bool:
    """Whether a file has the history in this order: cells are lists, and all is done to them."""
    cells: dict[int, list[int]] = {0: [], 1: []}
    kept = None
    for request in order:
        if isinstance(request, Change):
            if request.what == "checkpoint":
                kept = {cell: [*content] for cell, content in cells.items()}
            elif request.what == "rollback":
                if kept is None:
                    return False
                cells = {cell: [*content] for cell, content in kept.items()}
            else:
                for content in cells.values():
                    content[:] = (content + request.bytes * [HOLE])[: request.bytes]
            continue
        for place, number in zip(request.places.tolist(), request.numbers.tolist(), strict=True):
            content, at = cells[place >> 40], place % (1 << 40)
            if request.is_write:
                content.extend((at + 1 - len(content)) * [HOLE])
                content[at] = number
            elif number != (content[at] if at < len(content) else ABSENT):
                return False
    return True


def has_an_order(requests: list[Access | Change]) -> bool:
    """Whether some order of all requests explains them, by trial."""
    for order in itertools.permutations(requests):
        pairs = itertools.combinations(order, 2)
        if fits(order) and not any(later.ended < earlier.begun for earlier, later in pairs):
            return True
    return False


def some_request(chance: random.Random, nth: int) -> Access | Change:
    begun = chance.randint(1, 12)
    ended = begun + chance.randint(0, 8)
    what = chance.choice(("write", "read", "read", "checkpoint", "rollback", "resize"))
    places = chance.sample([(0, 0), (0, 1), (1, 0), (1, 1)], chance.randint(1, 3))
    if what == "write":
        return write(nth, begun, ended, *places)
    if what == "read":
        numbers = (HOLE, ABSENT, chance.randint(1, nth + 2), chance.randint(1, nth + 2))
        return read(begun, ended, {place: chance.choice(numbers) for place in places})
    return change(what, begun, ended, chance.randint(0, 2))


def test_histories_are_judged_as_by_trying_all_orders(chance: random.Random) -> None:
    judged = {True: 0, False: 0}
    while min(judged.values()) < 150:
        requests = [some_request(chance, nth) for nth in range(1, 6)]
        is_possible = has_an_order(requests)
        judged[is_possible] += 1
        try:
            check_requests(requests)
            assert is_possible, requests
        except ImpossibleHistory:
            assert not is_possible, requests


# -------------------------------------------------------------------------------------------------
# Names, and the log
# -------------------------------------------------------------------------------------------------


def named(
    what: str, begun: int, ended: int, path: str = "a", new: str = "", **more: Any
) -> NameRequest:
    new = f"{ROOT}/{new}" if new else ""
    return NameRequest(what, "somebody", begun, ended, f"{ROOT}/{path}", new, **more)


FILE: dict[str, Any] = {"number": 5, "mode": 0o600}
FOUND: dict[str, Any] = {"found": (False, 5, 0o600)}
MISSING: dict[str, Any] = {"error": "Missing"}

POSSIBLE_NAMES = {
    "there": [named("create", 1, 2, **FILE), named("stat", 3, 4, **FOUND)],
    "not yet": [named("create", 1, 9, **FILE), named("stat", 3, 4, **MISSING)],
    "moved": [
        named("create", 1, 2, **FILE), named("rename", 3, 9, new="b"),
        named("stat", 4, 5, **MISSING), named("stat", 6, 7, "b", **FOUND),
    ],
    "moved with its directory": [
        named("mkdir", 1, 2, mode=0o700), named("create", 3, 4, "a/x", **FILE),
        named("rename", 5, 6, new="b"), named("stat", 7, 8, "b/x", **FOUND),
        named("list", 7, 8, "b", found=["x"]),
    ],
    "twice": [named("create", 1, 2, **FILE), named("create", 1, 2, error="Exists")],
    "one of two removals": [
        named("create", 1, 2, **FILE), named("remove", 3, 9), named("remove", 3, 9, **MISSING)
    ],
}  # fmt: skip
IMPOSSIBLE_NAMES = {
    "gone without a reason": [named("create", 1, 2, **FILE), named("stat", 3, 4, **MISSING)],
    "in both places": [
        named("create", 1, 2, **FILE), named("rename", 3, 9, new="b"),
        named("stat", 4, 5, "b", **FOUND), named("stat", 6, 7, **FOUND),
    ],
    "in no place": [
        named("create", 1, 2, **FILE), named("rename", 3, 4, new="b"),
        named("stat", 5, 6, "b", **MISSING),
    ],
    "left behind by its directory": [
        named("mkdir", 1, 2, mode=0o700), named("create", 3, 4, "a/x", **FILE),
        named("rename", 5, 6, new="b"), named("stat", 7, 8, "b/x", **MISSING),
    ],
    "made twice": [named("create", 1, 2, **FILE), named("create", 1, 2, **FILE)],
    "listed too late": [
        named("mkdir", 1, 2, mode=0o700), named("create", 3, 4, "a/x", **FILE),
        named("list", 5, 6, found=[]),
    ],
    "an old mode": [
        named("create", 1, 2, **FILE), named("chmod", 3, 4, mode=0o644),
        named("stat", 5, 6, **FOUND),
    ],
    "an error without a reason": [named("mkdir", 1, 2, mode=0o700, error="Exists")],
}  # fmt: skip


@pytest.mark.parametrize("name", POSSIBLE_NAMES)
def test_a_possible_history_of_names_passes(name: str) -> None:
    check_names(POSSIBLE_NAMES[name])


@pytest.mark.parametrize("name", IMPOSSIBLE_NAMES)
def test_an_impossible_history_of_names_is_refused(name: str) -> None:
    with pytest.raises(ImpossibleHistory):
        check_names(IMPOSSIBLE_NAMES[name])


def record(what: str, begun: int, ended: int, number: int, data: bytes | None = None) -> Record:
    data = record_bytes(number, 3) if data is None else data
    return Record(what, "somebody", begun, ended, number, data)


APPENDED = [record("appended", 1, 2, 1), record("appended", 3, 4, 2)]
IN_ORDER = [record("found", 9, 9, 1), record("found", 9, 9, 2)]
WRONG_LOGS = {
    "lost": [*APPENDED, IN_ORDER[0]],
    "twice": [*APPENDED, *IN_ORDER, IN_ORDER[1]],
    "the later one first": [*APPENDED, *IN_ORDER[::-1]],
    "torn": [*APPENDED, *IN_ORDER, record("read", 5, 6, 1, record_bytes(1, 2) + b"\0")],
    "read twice": [*APPENDED, *IN_ORDER, record("read", 5, 6, 1), record("read", 5, 6, 1)],
    "read too early": [*APPENDED, *IN_ORDER, record("read", 1, 2, 2)],
    "read backwards": [*APPENDED, *IN_ORDER, record("read", 5, 6, 2), record("read", 7, 8, 1)],
    "appended by nobody": [*APPENDED, *IN_ORDER, record("read", 5, 6, 3)],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_LOGS)
def test_a_wrong_log_is_refused(name: str) -> None:
    check_log([*APPENDED, *IN_ORDER, record("read", 3, 4, 1), record("read", 5, 6, 0, b"")])
    with pytest.raises(AssertionError):
        check_log(WRONG_LOGS[name])


# -------------------------------------------------------------------------------------------------
# Histories that were recorded, and then changed
# -------------------------------------------------------------------------------------------------


def recorded(place: Path, seed: int) -> History:
    history = on_threads(Case.of(seed), place / str(seed))
    assert check(history) == 0
    return history


def reads_of_writes(history: History) -> list[tuple[int, int]]:
    """The reads that have found a write, by their numbers in the history, and the number of a byte
    in each."""
    found = []
    for nth, access in enumerate(history.accesses):
        written = np.flatnonzero((access.numbers > HOLE) & (access.numbers < EITHER))
        if not access.is_write and len(written):
            found.append((nth, int(written[0])))
    return found


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 8))
def test_a_read_that_was_changed_is_refused(place: Path, seed: int, chance: random.Random) -> None:
    """A byte of one read gets the number of a write that began when the read had ended, or of one
    that has written other bytes; or a write that was read is left out."""
    history = recorded(place, seed)
    reads = reads_of_writes(history)
    writes = [access for access in history.accesses if access.is_write]
    for nth, byte in chance.sample(reads, min(6, len(reads))):
        victim = history.accesses[nth]
        number, target = victim.numbers[byte], victim.places[byte]
        wrong = [
            write.numbers[0]
            for write in writes
            if write.begun > victim.ended or target not in write.places
        ]
        if wrong:
            numbers = victim.numbers.copy()
            numbers[byte] = chance.choice(wrong)
            changed = dataclasses.replace(history, accesses=[*history.accesses])
            changed.accesses[nth] = dataclasses.replace(victim, numbers=numbers)
            with pytest.raises(ImpossibleHistory):
                check(changed)
        left = [each for each in history.accesses if not each.is_write or each.numbers[0] != number]
        with pytest.raises(ImpossibleHistory):
            check(dataclasses.replace(history, accesses=left))
