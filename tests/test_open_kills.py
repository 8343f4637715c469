"""Jobs that keep an array open, and are killed: see `open_kills.py`, which does it many times."""

from __future__ import annotations

import shutil

import pytest
from open_kills import WAYS, Campaign

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
