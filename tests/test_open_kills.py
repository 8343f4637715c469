"""Jobs that keep an array open, and are killed: see `open_kills.py`, which does it many times."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from open_kills import SECONDS_MAX, WAYS, Campaign

import penstock as ps

KILLS = len(WAYS)

pytestmark = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")


@pytest.mark.parametrize("has_readers", [True, False])
def test_writers_that_are_killed(place, has_readers):
    """In each way once, with another job that reads beside them, or without."""
    campaign = Campaign(place, ranks=3, seed=2 + has_readers, has_readers=has_readers)
    counts = campaign.run(KILLS)
    assert [counts[way] for way in WAYS] == [1, 1, 1]
    assert counts["requests of writers"]
    assert bool(counts["readers: read"]) == has_readers
    assert counts["taken over"] == has_readers * KILLS


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np, penstock as ps
from mpi4py import MPI
def leave(*_):
    raise InterruptedError
def say(line):  # at one go: the lines of ranks must not mix
    os.write(1, f"{line}\\n".encode())
signal.signal(signal.SIGTERM, leave)
try:
    with ps.Session(MPI.COMM_WORLD) as s, s.open(sys.argv[1], mode="r+") as a:
        if s.rank == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
            s.barrier()
        while True:
            a.write(slice(s.rank, s.rank + 1), np.ones(1))
            a.read()
except InterruptedError:
    say("interrupted")
except ps.PeerError as error:
    say(f"heard of rank {error.rank}: {error}")
"""


def test_a_rank_that_is_interrupted_while_it_waits_is_named(place):
    """The others are at work on an open array when it is."""
    with ps.Session() as s:
        s.write(place / "u", ps.Array("u", (6,), "f8", disk=ps.Chunks((4,))), np.zeros(6))
    command = ["mpiexec", "-n", "3", sys.executable, "-c", INTERRUPTED, str(place / "u")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert done.stdout.count("interrupted\n") == 3, done.stdout
    assert done.stdout.count("heard of rank 1: rank 1") == 2, done.stdout
