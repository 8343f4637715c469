"""Disks that fail under MPI: one verdict on every rank, and what was complete is there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import faults, leftovers, opened_with, same_bits, tree
from mpihelpers import TRANSPORTS, assert_fails, part, ramp_of, rows

import penstock as ps

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
KINDS = {"ENOSPC": ps.FullError, "EIO": ps.IoError, "short": ps.FullError}
FAULTS = [
    *itertools.product(["open", "finish"], [1], ["ENOSPC", "EIO"]),
    *itertools.product(["write"], [1, 2], ["ENOSPC", "EIO", "short"]),
]
JOB = {"servers": 1}
"""One server, so that it has a second block to write."""
DISKS = {
    "chunks": ps.Chunks((2, 2)),
    "shards": ps.Chunks((4, 4), subchunks=(2, 2), codec="zstd:1+crc32c"),
}


def job(session, path, disk) -> ps.Group:
    u = rows(session, disk=DISKS[disk])
    return ps.Group("g", [u, ps.Array("v", u.shape, "f8", memory=u.memory)], path)


def parts(session, group, sign):
    return {a.name: part(a, session.rank, ramp_of(a, sign)) for a in group.arrays}


def check(mpi, session, group, signs, saved) -> None:
    """Every rank sees these timesteps, and restores that checkpoint."""
    for a in group.arrays:
        through_time = session.open(group.path, a.name)
        assert through_time.shape == (len(signs), *a.shape)
        memory = ps.Distribution("*,*,*", ())
        found = session.read(group.path, through_time.with_memory(memory))
        if session.rank == 0:
            assert same_bits(found, np.stack([ramp_of(a, sign) for sign in signs]))
    state = session.restart(group)
    assert state is not None and state.step == saved
    for name, expected in parts(session, group, saved).items():
        assert same_bits(state[name], expected)
    session.barrier()
    assert {entry.name for entry in (group.path / ".penstock").iterdir()} == {"zarr.json", "record"}
    assert not leftovers(group.path.parent)
    mpi.Barrier()


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("what", ["timestep", "checkpoint"])
def test_a_save_that_fails(mpi, place, transport, monkeypatch, disk, what):
    path = place / "g"

    def save(session, sign):
        group = job(session, path, disk)
        more = {"step": sign} if what == "checkpoint" else {}
        return getattr(session, what)(group, parts(session, group, sign), **more)

    signs, saved = [2], 1
    with ps.Session(mpi, transport=transport, **JOB) as s:
        group = job(s, path, disk)
        s.timestep(group, parts(s, group, 2))
        s.checkpoint(group, parts(s, group, 1), step=1)
    mpi.Barrier()
    for sign, fault in enumerate(FAULTS, 3):
        before = tree(path)
        mpi.Barrier()
        opened_with(monkeypatch, faults=faults(*fault))
        with ps.Session(mpi, transport=transport, **JOB) as s:
            assert_fails(s, lambda s=s, n=sign: save(s, n), KINDS[fault[2]], str(path))
        assert tree(path) == before, f"{fault}: the group is not as it was"
        mpi.Barrier()
        opened_with(monkeypatch)
        with ps.Session(mpi, transport=transport, **JOB) as s:
            save(s, sign)
            if what == "timestep":
                signs.append(sign)
            else:
                saved = sign
            check(mpi, s, job(s, path, disk), signs, saved)


@pytest.mark.parametrize("disk", [*DISKS, "npy", "parts"])
def test_a_part_of_an_array_that_fails(mpi, place, transport, monkeypatch, disk):
    path = place / "u"
    others = {"npy": ps.RowMajor("npy"), "parts": ps.Distribution("BLOCK,*", (2,))}
    job = {**JOB, "block_bytes": 32}

    def change(s, sign):
        u = rows(s, disk={**DISKS, **others}[disk])
        region = (*u.local_slices(s.rank)[:1], slice(1, 4))
        return s.write(path, u, ramp_of(u, sign)[region], region=region)

    with ps.Session(mpi, transport=transport, **job) as s:
        u = rows(s, disk={**DISKS, **others}[disk])
        s.write(path, u, part(u, s.rank, ramp_of(u)))
    truth = ramp_of(u)
    for sign, fault in enumerate(FAULTS, 3):
        mpi.Barrier()
        before = tree(place)
        mpi.Barrier()
        opened_with(monkeypatch, faults=faults(*fault))
        with ps.Session(mpi, transport=transport, **job) as s:
            assert_fails(s, lambda s=s, n=sign: change(s, n), KINDS[fault[2]])
        assert tree(place) == before, f"{fault}: the array is not as it was"
        mpi.Barrier()
        opened_with(monkeypatch)
        with ps.Session(mpi, transport=transport, **job) as s:
            change(s, sign)
            truth[:, 1:4] = ramp_of(u, sign)[:, 1:4]
            assert same_bits(s.read(path, u), part(u, s.rank, truth))
            mpi.Barrier()
            assert not leftovers(place)
