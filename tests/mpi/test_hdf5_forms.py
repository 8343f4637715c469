"""Datasets that only the HDF5 library reads, each server in a process of its own."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from helpers import values

import penstock as ps

SHAPE = (30, 17)


@pytest.mark.parametrize("form", ["lzf", "compact", "scaleoffset"])
@pytest.mark.parametrize("dists", ["BLOCK,*", "*,CYCLIC(2)"])
def test_ranks_read_through_the_library(mpi, place, form, dists):
    path, truth = place / "x.h5", values(SHAPE, "i4", 3) // 1000
    if mpi.rank == 0:
        how = {
            "lzf": {"chunks": (4, 5), "compression": "lzf", "shuffle": True},
            "scaleoffset": {"chunks": (4, 5), "scaleoffset": 0},
        }
        with h5py.File(path, "w") as file:
            if form == "compact":
                layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                layout.set_layout(h5py.h5d.COMPACT)
                space, kind = h5py.h5s.create_simple(SHAPE), h5py.h5t.py_create(truth.dtype)
                h5py.h5d.create(file.id, b"u", kind, space, dcpl=layout)
                file["u"][...] = truth
            else:
                file.create_dataset("u", data=truth, **how[form])
    mpi.Barrier()
    with ps.Session(mpi) as session:
        array = session.open(path).with_memory(ps.Distribution(dists, (mpi.size,)))
        mine = session.read(path, array)
    along = [np.arange(n) for n in SHAPE]
    axis, width = (0, -(-SHAPE[0] // mpi.size)) if dists[0] == "B" else (1, 2)
    along[axis] = along[axis][(along[axis] // width) % mpi.size == mpi.rank]
    assert (mine == truth[np.ix_(*along)]).all()
