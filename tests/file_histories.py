"""Random programs of several clients on parallel files, each answer checked against the history of
all.

    python tests/file_histories.py --seeds 2000
    mpiexec -n 3 python tests/file_histories.py --seeds 500
    python tests/file_histories.py --serve --seeds 500
    python tests/file_histories.py --seed 17

Clients (threads, or threads of the ranks of an MPI job, or programs whose servers stand) use one
file at once, through views that overlap, with requests under way among others, while it is resized,
checkpointed, rolled back and perhaps removed. The cache holds a few blocks, or none, or all. Beside
that they append to a log through a shared pointer, and make, move and remove names. In reckless
mode each has a subfile of its own. What they have found is compared with all that was done: see
`file_orders.py`, `name_orders.py` and `check_log`. At the end the volume is opened again, and some
are checked by `penstock fs fsck`.

The seed decides who asks for what in which order, but not who is faster: a seed that has failed may
pass when it is run again. The error tells the whole history.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import seeds
from file_case import Case
from file_log import Record, check_log
from file_orders import CELL_BITS, NUMBERS, check_file
from file_player import History, Player
from helpers import fast_directory, penstock
from name_orders import check_names
from orders import Undecided
from serving import alone

import penstock as ps

SWITCH_SECONDS = 1e-5
"""How long one thread of Python goes on while others wait: short, so that requests meet."""
FSCK_EVERY = 10
"""The seeds among which the volume of one is checked."""


def check(history: History) -> int:
    """Checks all, and gives the number of parts that take too long to decide: 0, mostly."""
    check_log(history.records)
    kinds: list[Callable[[], None]] = [
        lambda: check_names(history.names),
        lambda: check_file(history.accesses, history.changes),
    ]
    undecided = 0
    for kind in kinds:
        try:
            kind()
        except Undecided:
            undecided += 1
    return undecided


def look(fs: ps.FileSystem, case: Case, reach: int) -> History:
    """What a volume has in it when nobody else uses it. `reach` is behind all bytes of a cell."""
    player = Player(fs, dataclasses.replace(case, has_removal=False, is_reckless=False), 0, 1)
    history, begun = player.history, time.monotonic_ns()
    if "f" in fs.list("/"):
        ends = fs.stat("/f").cell_bytes
        with fs.attach("/f") as player.file:
            for cell in range(case.cells):
                moved = [
                    player.read_cell(cell, reach, version) for version in ("active", "checkpoint")
                ]
                assert moved[0] == ends.get(cell, 0), f"cell {cell} ends elsewhere: {ends}"
    else:
        player.note_change("removed", begun, time.monotonic_ns())
    _, _, view, order = case.log
    with fs.attach("/log") as log:
        data = log.open(view, order=order).read((NUMBERS + 1) * case.record)
    for at in range(0, len(data), case.record):
        record = data[at : at + case.record]
        history.records.append(Record("found", "log", at, at, record[0], record))
    return history


def play_clients(fs: ps.FileSystem, case: Case, first: int, count: int, clients: int) -> History:
    """Plays some of the clients of a case on threads."""
    with ThreadPoolExecutor(count) as pool:
        players = [Player(fs, case, first + nth, clients) for nth in range(count)]
        played = [pool.submit(player.play) for player in players]
        return History.of([each.result() for each in played])


def create(case: Case, path: Path) -> None:
    ps.FileSystem.create(path, servers=case.servers, block_bytes=case.block_bytes).close()


def look_again(case: Case, path: Path, history: History) -> History:
    """Opens a volume again after all, and takes in what is found. Of one process."""
    offsets = [int((each.places % (1 << CELL_BITS)).max(initial=0)) for each in history.accesses]
    reach = 10 + max([0, *offsets, *(each.bytes for each in history.changes)])
    with ps.FileSystem(path) as fs:
        found = look(fs, case, reach)
    if case.seed % FSCK_EVERY == 0:
        penstock("fs", "fsck", "--data", path)
    return History.of([history, found])


def on_threads(case: Case, path: Path) -> History:
    """Plays a case on threads, and gives all that was done."""
    create(case, path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with ps.FileSystem(path, cache_bytes=case.cache_bytes) as fs:
            history = play_clients(fs, case, 0, case.clients, case.clients)
    finally:
        sys.setswitchinterval(interval)
    return look_again(case, path, history)


def under_mpi(case: Case, path: Path, comm: Any) -> History:
    """Plays a case on the ranks of an MPI job, and gives all of them all that was done."""
    error, mine = None, History()
    dedicated = case.dedicated and case.servers < comm.size
    threads = 1 + case.seed % 2
    ranks = comm.size - case.servers if dedicated else comm.size
    try:
        if comm.rank == 0:
            create(case, path)
        comm.Barrier()
        with ps.FileSystem(path, comm, cache_bytes=case.cache_bytes, dedicated=dedicated) as fs:
            if fs.rank is not None:
                mine = play_clients(fs, case, fs.rank * threads, threads, ranks * threads)
    except Exception:  # noqa: BLE001 - told on all ranks
        error = f"rank {comm.rank}: {traceback.format_exc()}"
    errors = [each for each in comm.allgather(error) if each is not None]
    assert not errors, "\n".join(errors)
    history = History.of(comm.allgather(mine))
    looked: History = comm.bcast(look_again(case, path, history) if comm.rank == 0 else None)
    return looked


def served(case: Case, path: Path) -> History:
    """Plays a case by clients of standing servers, and gives all that was done. Every client is a
    program of its own for them, but some that share one."""
    create(case, path)
    shared = 1 + case.seed % 2
    with alone(path, "--cache", case.cache_bytes, log=path.with_suffix(".log")) as server:

        def play(first: int) -> History:
            count = min(shared, case.clients - first)
            with ps.FileSystem(server.url) as fs:
                return play_clients(fs, case, first, count, case.clients)

        with ThreadPoolExecutor(case.clients) as pool:
            history = History.of(list(pool.map(play, range(0, case.clients, shared))))
    return look_again(case, path, history)


def play_served(seed: int) -> int:
    """The same by standing servers."""
    with (
        seeds.replayable("file_histories.py --serve", seed),
        tempfile.TemporaryDirectory(dir=fast_directory()) as directory,
    ):
        history = served(Case.of(seed), Path(directory) / "v")
        check(history)
    return history.count


def play_on_threads(seed: int) -> int:
    """Plays the case of a seed on threads and checks it: the number of requests."""
    program = "file_histories.py"
    with (
        seeds.replayable(program, seed),
        tempfile.TemporaryDirectory(dir=fast_directory()) as directory,
    ):
        history = on_threads(Case.of(seed), Path(directory) / "v")
        check(history)
    return history.count


def play_under_mpi(seed: int, comm: Any, place: Path) -> int:
    """The same on the ranks of an MPI job, in a place that all of them see."""
    with seeds.replayable("file_histories.py", seed, f"mpiexec -n {comm.size} "):
        history = under_mpi(Case.of(seed), place / "v", comm)
        if comm.rank == 0:
            check(history)
    return history.count


if __name__ == "__main__":
    seeds.play(__doc__, 2000, play_on_threads, play_under_mpi, play_served)
