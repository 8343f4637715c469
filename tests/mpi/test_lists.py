"""Lists of elements in an MPI job: by every strategy, through shared memory and by messages."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps

SHAPE = (40, 33)
STRATEGIES = ["disk-directed", "two-phase", "two-phase:2", "two-phase:5", "caching", "independent"]


@pytest.mark.parametrize("transport", ["shared", "messages"])
@pytest.mark.parametrize("disk", [ps.RowMajor("npy"), ps.Chunks((7, 8))])
def test_lists_are_written_and_read(mpi, place, transport, disk):
    """Each element comes to its place, and back to another rank in another order."""
    count = int(np.prod(SHAPE))
    rng = np.random.default_rng(5)  # the same on all ranks
    owner, reader = rng.integers(0, mpi.size, (2, count))
    values = rng.integers(1, 1 << 40, count)
    mine = rng.permutation(count)
    mine = mine[owner[mine] == mpi.rank]
    wanted = np.flatnonzero(reader == mpi.rank)[::-1]
    with ps.Session(mpi, transport=transport, block_bytes=500) as s:
        for strategy in STRATEGIES:
            path = place / f"{strategy}.npy"
            array = ps.Array("u", SHAPE, "i8", memory=ps.Runs(mine, 1), disk=disk)
            s.write(path, array, values[mine], strategy=strategy)
            other = array.with_memory(ps.Runs(wanted, 1))
            for by in STRATEGIES:
                np.testing.assert_array_equal(s.read(path, other, strategy=by), values[wanted])
            # Places: every second element of a local array, from the end.
            places = ps.Strided(2 * len(wanted), 1, [(len(wanted), -2)])
            apart = array.with_memory(ps.Runs(wanted, 1, places=places))
            out = np.full(2 * len(wanted) + 3, -5)
            s.read(path, apart, out, strategy=strategy)
            np.testing.assert_array_equal(out[2::2][: len(wanted)][::-1], values[wanted])
            assert (out[1::2] == -5).all()


@pytest.mark.parametrize("transport", ["shared", "messages"])
def test_runs_that_reach_far(mpi, place, transport):
    """Many runs in one block, more than the kernel copies at once between two processes."""
    count = 200_000
    own = ps.Runs(np.arange(mpi.rank, count, mpi.size), 1)
    local = np.arange(mpi.rank, count, mpi.size, dtype="i4")
    array = ps.Array("u", count, "i4", memory=own, disk=ps.RowMajor("npy"))
    irregular = np.flatnonzero(np.arange(count) ** 2 % 7 == mpi.rank % 7)
    with ps.Session(mpi, transport=transport) as s:
        s.write(place / "u.npy", array, local)
        back = s.read(place / "u.npy", array.with_memory(ps.Runs(irregular, 1)))
        np.testing.assert_array_equal(back, irregular)


def test_overlaps_are_errors_on_all_ranks(mpi, place):
    """The two ranks are named on every rank."""
    if mpi.size < 2:
        pytest.skip("two ranks are needed")
    own = ps.Runs([50 * mpi.rank], 51 if mpi.rank == 0 else 50)
    array = ps.Array("u", 50 * mpi.size + 1, "f8", memory=own, disk=ps.RowMajor("npy"))
    with ps.Session(mpi) as s:
        for strategy in ["disk-directed", "two-phase", "two-phase:4"]:
            with pytest.raises(ps.OverlapError, match="ranks 0 and 1 both write"):
                s.write(place / "u.npy", array, np.zeros(len(own)), strategy=strategy)
        s.barrier()
        assert not (place / "u.npy").exists()
