"""Arrays that stay open, in an MPI job: any rank reads and writes any part, without the others."""

from __future__ import annotations

import numpy as np
import pytest
from mpihelpers import has_servers

import penstock as ps

SHAPE = (29, 40)
ROUNDS = 30


@pytest.mark.parametrize("transport", ["shared", "messages"])
@pytest.mark.parametrize("dedicated", [False, True])
@pytest.mark.parametrize("codec", ["none", "zstd:1"])
def test_ranks_move_parts_at_their_own_pace(mpi, place, transport, dedicated, codec):
    if dedicated and mpi.size == 1:
        pytest.skip("no client would be left")
    path = place / "u.zarr"
    model = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    array = ps.Array("u", SHAPE, "f8", disk=ps.Chunks((8, 9), codec=codec))
    if mpi.rank == 0:
        with ps.Session() as alone:
            alone.write(path, array, model)
    mpi.Barrier()
    options = {"transport": transport, "dedicated": dedicated, "cache_bytes": 2000}
    with ps.Session(mpi, servers=1 if dedicated else None, **options) as s:
        if not s.is_client:
            return
        if not has_servers(mpi, transport, dedicated):
            with pytest.raises(ps.UnsupportedError, match="dedicated=True"):
                s.open(path, "u", mode="r+")
            return
        with s.open(path, "u", mode="r+") as a:
            rng = np.random.default_rng(s.rank)
            rows = list(range(s.rank, SHAPE[0], s.size))
            for _ in range(ROUNDS * (1 + s.rank % 3)):
                row, begin = int(rng.choice(rows or [0])), int(rng.integers(0, SHAPE[1]))
                if rows:
                    values = rng.random((1, SHAPE[1] - begin))
                    model[row, begin:] = values
                    a.write((row, slice(begin, None)), values)
                    other = int(rng.choice(rows))
                    assert (a.read(other) == model[other]).all()
            s.barrier()
            whole = a.read()
            for row in rows:
                assert (whole[row] == model[row]).all()
            a.flush()
            # A collective read sees what independent writes have left.
            planes = s.open(path, "u").with_memory(ps.Distribution("BLOCK,*", mesh=(s.size,)))
            part = s.read(path, planes)
            assert (part == whole[planes.local_slices(s.rank)]).all()


def test_a_large_part_takes_many_requests(mpi, place):
    """Elements that do not fit into a message leave in send buffers."""
    if not has_servers(mpi, "shared", dedicated=False):
        pytest.skip("no server answers while its rank computes")
    path = place / "u.npy"
    model = np.random.default_rng(5).random((600, 1000))
    if mpi.rank == 0:
        np.save(path, np.zeros_like(model))
    mpi.Barrier()
    with ps.Session(mpi, block_bytes=300_000) as s, s.open(path, mode="r+") as a:
        rows = slice(s.rank * 600 // s.size, (s.rank + 1) * 600 // s.size)
        a.write(rows, model[rows])
        s.barrier()
        assert (a.read() == model).all()
        out = np.zeros((1000, 600)).T
        a.read((), out=out)
        assert (out == model).all()
    assert (np.load(path) == model).all()
