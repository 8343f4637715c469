"""A job that is killed, again and again: see `crash_kills.py`, which does it hundreds of times."""

from __future__ import annotations

import shutil

import pytest
from crash_kills import Campaign

KILLS = 8


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
def test_a_job_that_is_killed(place):
    """Only whole timesteps are there, all that were complete; the newest checkpoint restores."""
    counts = Campaign(place, ranks=3, seed=2).run(KILLS)
    assert counts["kills"] == KILLS and counts["all ranks"] and counts["one rank"]
    assert counts["looks of the reader"] > 0 and counts["timesteps looked at"] > KILLS
