"""Two sessions of one process at one array: one has it open to be changed, the other reads it.

`open_kills.py` does the same with two MPI jobs. Here a session ends when one of its ranks leaves.
"""

from __future__ import annotations

import itertools
import random
import threading
import time

import numpy as np
import pytest
from histories import check_blocks, check_elements, first_contents
from open_job import FORMS, OPTIONS, Left, Log, Member
from open_kills import Store, take_in

import penstock as ps

LIVES = 4
REQUESTS_MAX = 40
"""After how many requests at most a writer leaves."""


class Lead:
    """Says to the readers what to do, and to all of their ranks the same."""

    def __init__(self) -> None:
        self.word, self.writers_live = "read", False
        self.said: object = None

    def to_all(self, session, question):
        if session.rank == 0:
            self.said = question()
        session.barrier()
        said = self.said
        session.barrier()
        return said


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_readers_go_on_when_writers_leave_and_take_over(place, form, dedicated):
    store = Store(place / ("u.npy" if form == "npy" else "u"), form)
    with ps.Session(sync=False) as s:
        s.write(store.path, store.array, store.now)
    chance, lead = random.Random(f"{form} {dedicated}"), Lead()
    options = {**OPTIONS, "servers": 2, "dedicated": dedicated}
    logs_of_readers = [Log(), Log()]

    def read(session):
        member = Member(session, store.path, logs_of_readers[session.rank], "readers")
        member.read_until_end(
            lambda: lead.to_all(session, lambda: lead.word),
            lambda: lead.to_all(session, lambda: lead.writers_live),
        )

    readers = Background(lambda: ps.run(read, 2, **options))
    for life in range(1, 2 * LIVES, 2):
        write(store, chance, lead, life, options)
        word = lead.word = f"take over {life + 1}"
        while not all(word in (r.get("word") for r in log.records) for log in logs_of_readers):
            assert readers.is_alive(), readers.failure
            time.sleep(0.001)
        store.now = store.look()
    lead.word = "end"
    readers.join()
    assert readers.failure is None, readers.failure
    take_in(store, [log.records for log in logs_of_readers], time.monotonic_ns(), "readers")
    store.check()
    done = {record["what"] for record in logs_of_readers[0].records}
    assert done >= {"read", "taken", "flushed"}


class Background(threading.Thread):
    """A thread that keeps what it has raised."""

    def __init__(self, main) -> None:
        super().__init__(daemon=True)
        self.main, self.failure = main, None
        self.start()

    def run(self) -> None:
        try:
            self.main()
        except BaseException as error:  # noqa: BLE001 - told by the one who joins
            self.failure = error


def write(store, chance, lead, life, options) -> None:
    """A session writes until one of its ranks leaves; its others hear which."""
    leaver, requests = chance.randrange(3), chance.randint(1, REQUESTS_MAX)
    logs, heard = [Log() for _ in range(3)], []

    def main(session):
        made = itertools.count()

        def before():
            """The array is open by now; and a rank that leaves says so before."""
            if session.rank == leaver:
                lead.writers_live = next(made) < requests
                if not lead.writers_live:
                    raise Left("told to leave")

        member = Member(session, store.path, logs[session.rank], f"{life}")
        try:
            member.write_for(life, 1_000_000, before)
        except ps.PeerError as error:
            heard.append((error.rank, "told to leave" in str(error)))
            raise

    with pytest.raises(Left):
        ps.run(main, 3, **options)
    assert heard == [(leaver, True)] * 2
    requests_made = take_in(
        store, [log.records for log in logs], time.monotonic_ns(), f"writers {life}"
    )
    check_elements([first_contents(store.now), *requests_made])
    check_blocks([first_contents(store.now), *requests_made], store.blocks)
    store.now = store.look()


def test_a_second_writer_is_refused_on_all_ranks(place):
    """At the same time, by another session, in both ways to write."""
    array = ps.Array("u", (8,), "i8", ps.Distribution("BLOCK", (2,)), ps.Chunks((4,)))
    with ps.Session() as s:
        s.write(place / "u", array.with_memory(ps.Distribution("BLOCK", (1,))), np.zeros(8, "i8"))
        with s.open(place / "u", mode="r+") as a:

            def main(other):
                met = []
                for call in (
                    lambda: other.open(place / "u", mode="r+"),
                    lambda: other.write(place / "u", array, np.ones(4, "i8")),
                ):
                    with pytest.raises(ps.BusyError) as error:
                        call()
                    met.append(str(error.value))
                return met

            first, second = ps.run(main, 2)
            assert first == second
            assert not a.read().any()
