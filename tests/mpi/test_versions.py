"""Ranks of builds that do not understand each other say so."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import caught
from mpi4py import MPI

import penstock as ps

OTHER = (7, 3)
"""The major and minor version of a build that there will not be for long."""


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_rank_of_another_version_is_named(mpi, which):
    """One rank says the hello of another build, as `calls/hello.rs` has it in all versions."""
    if mpi.size < 2:
        pytest.skip("needs 2 ranks")
    other = 0 if which == "first" else mpi.size - 1
    ours = [int(word) for word in ps.__version__.split(".")[:2]]
    if mpi.rank == other:
        hello = np.array([OTHER[0] << 32 | OTHER[1], 1, 0], "u8")
        heard = np.empty((mpi.size, 3), "u8")
        mpi.Allgather([hello, 24, MPI.BYTE], [heard, 24, MPI.BYTE])
        assert heard[(other + 1) % mpi.size, 0] == ours[0] << 32 | ours[1]
        met = None
    else:
        met = caught(lambda: ps.Session(mpi))
        assert isinstance(met, ps.MismatchError), met
        for words in (f"rank {other} has version 7.3", f"version {ours[0]}.{ours[1]}"):
            assert words in str(met), met
    told = {text for text in mpi.allgather(str(met)) if text != "None"}
    assert len(told) == 1, told
    # The ranks understand each other as before.
    with ps.Session(mpi) as s:
        s.barrier()
