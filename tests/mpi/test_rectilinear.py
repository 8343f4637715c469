"""Shares of different extents as chunks, under MPI."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import leftovers, same_bits, values
from mpihelpers import TRANSPORTS, assert_fails, has_servers

import penstock as ps

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
COLUMNS = 5


def extents(ranks: int) -> list[int]:
    """The rows of each rank: different ones, and one rank has none."""
    rows = [1 + (3 * rank) % 7 for rank in range(ranks)]
    if ranks > 2:
        rows[1] = 0
    return rows


@pytest.mark.parametrize("codec, subchunks", [("none", None), ("zstd:1", None), ("crc32c", (1, 2))])
@pytest.mark.parametrize("strategy", ["disk-directed", "two-phase", "independent"])
def test_each_share_is_a_chunk(mpi, place, transport, codec, subchunks, strategy):
    rows = extents(mpi.size)
    columns = 4 if subchunks else COLUMNS
    shape = (sum(rows), columns)
    truth = values(shape, "f8", 3)
    start, count = sum(rows[: mpi.rank]), rows[mpi.rank]
    disk = ps.Chunks("shares", subchunks=subchunks, codec=codec)
    array = ps.Array("u", shape, "f8", ps.Boxes((start, 0), (count, columns)), disk)
    with ps.Session(mpi, transport=transport, sync=False, block_bytes=64) as s:
        s.write(place / "g", array, truth[start : start + count], strategy=strategy)
        held = [row for row in rows if row]
        if s.rank == 0:
            grid = json.loads((place / "g" / "u" / "zarr.json").read_text())["chunk_grid"]
            is_regular = grid["name"] == "regular"
            assert is_regular == (len(set(held[:-1])) <= 1 and held[-1] <= held[0])
            files = [entry for entry in (place / "g" / "u").iterdir() if entry.name[:2] == "c."]
            assert len(files) == len(held)
        whole = s.read(place / "g", ps.Array("u", shape, "f8"), strategy=strategy)
        # The whole array is on rank 0, or on all ranks: each looks at what it has.
        if whole.size:
            assert same_bits(whole, truth)
        changed = np.full((min(count, 1), columns), s.rank + 1.0)
        if has_servers(mpi, transport, dedicated=False):
            with s.open(place / "g", mode="r+") as opened:
                if count:
                    opened.write(np.s_[start, :], changed)
        else:
            s.write(place / "g", array, changed, region=np.s_[start : start + min(count, 1), :])
        back = s.read(place / "g", array)
        assert not count or (back[0] == s.rank + 1).all()
        assert same_bits(back[1:], truth[start + 1 : start + max(count, 1)])
    mpi.Barrier()
    assert not leftovers(place)


def test_boxes_that_form_no_grid(mpi, place, transport):
    half = mpi.size // 2
    shape = (2, 4 * mpi.size)
    width = [3, 5] if mpi.size > 1 else [4, 4]
    # Every rank has its columns in the first row; in the second one, others.
    top = ps.Boxes((0, 4 * mpi.rank), (1, 4))
    low = ps.Boxes((1, 4 * mpi.rank), (1, 4))
    if mpi.size > 1 and mpi.rank in (half - 1, half):
        is_left = mpi.rank == half - 1
        low = ps.Boxes((1, 4 * mpi.rank - (0 if is_left else 1)), (1, width[0 if is_left else 1]))
    array = ps.Array("u", shape, "f4", [top, low], ps.Chunks("shares"))
    locals_ = [np.zeros(box.shape, "f4") for box in (top, low)]
    with ps.Session(mpi, transport=transport, sync=False) as s:
        if mpi.size > 1:
            assert_fails(s, lambda: s.write(place / "g", array, locals_), ps.SchemaError, "no grid")
        else:
            s.write(place / "g", array, locals_)
        assert (place / "g").exists() == (mpi.size == 1)
