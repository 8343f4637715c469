"""Split collectives under MPI, in shared memory and by messages."""

from __future__ import annotations

import time

import numpy as np
import pytest
from helpers import caught, opened_with, ramp, same_bits, some_attempt, tree
from mpi4py import MPI
from mpihelpers import HOSTS, TRANSPORTS, assert_fails, part, ramp_of, rows, sends_messages

import penstock as ps

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)
HAS_THREADS = MPI.Query_thread() == MPI.THREAD_MULTIPLE


def backgrounds(session: ps.Session, transport: str) -> list[str]:
    """Those that there are: a thread may not use MPI unless it was initialised for that."""
    has_all = HAS_THREADS or not sends_messages(transport)
    return ["disk", "none", "all"] if has_all else ["disk", "none"]


@pytest.fixture
def slow(monkeypatch):
    """Each disk moves so many bytes a second."""

    def at(bytes_per_second: float) -> None:
        slow_disk = ps.testing.Faults(bytes_per_second=bytes_per_second)
        opened_with(monkeypatch, faults=slow_disk)

    return at


@pytest.mark.parametrize("dedicated", [False, True])
def test_several_at_once_ended_in_any_order(mpi, place, transport, dedicated):
    if dedicated and mpi.size == 1:
        pytest.skip("no clients would be left")
    job = {"servers": 1 if dedicated else None, "dedicated": dedicated, "sync": False}
    with ps.Session(mpi, transport=transport, block_bytes=64, **job) as s:
        if s.is_client:
            arrays = [rows(s, 7 + i) for i in range(4)]
            truths = [ramp_of(u, sign=1 - 2 * (i % 2)) for i, u in enumerate(arrays)]
            turn = s.rank % len(arrays)
            hows = backgrounds(s, transport)

            def end_all(begun):
                ended = {i: begun[i].end() for i in (*range(turn, 4), *range(turn))}
                return [ended[i] for i in range(4)]

            begun = []
            for i, (u, truth) in enumerate(zip(arrays, truths, strict=True)):
                local = part(u, s.rank, truth)
                how = {"background": hows[i % len(hows)], "copy": i % 2 == 1}
                begun.append(s.begin_write(place / f"{i}.zarr", u, local, **how))
                if i % 2:
                    local[...] = 0.5
            written = [report.bytes for report in end_all(begun)]
            assert written == [8 * u.shape[0] * u.shape[1] for u in arrays]
            how = {"background": hows[-1]}
            begun = [s.begin_read(place / f"{i}.zarr", u, **how) for i, u in enumerate(arrays)]
            reads = end_all(begun)
            for u, truth, found in zip(arrays, truths, reads, strict=True):
                assert same_bits(found, part(u, s.rank, truth))
    mpi.Barrier()


def test_a_thread_may_need_more_of_mpi(mpi, place, transport):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s)
        local = np.ones(u.local_shape(s.rank))
        if "all" in backgrounds(s, transport):
            s.begin_write(place / "g", u, local, background="all").end()
        else:
            call = lambda: s.begin_write(place / "g", u, local, background="all")  # noqa: E731
            assert_fails(s, call, ps.UnsupportedError, "MPI_THREAD_MULTIPLE", '"disk"')


def test_forgotten_and_ended_twice(mpi, place, transport):
    for background in ("disk", "none"):
        s = ps.Session(mpi, transport=transport, sync=False)
        u = rows(s)
        truth = ramp_of(u)
        split = s.begin_write(place / "g", u, part(u, s.rank, truth), background=background)
        if s.rank != 0:
            split.end()
            assert isinstance(caught(split.end), ps.SchemaError)
        error = caught(s.close)
        assert isinstance(error, ps.SchemaError) and "never ended" in str(error)
        assert len(set(mpi.allgather(str(error)))) == 1
        with ps.Session(mpi, transport=transport) as s:
            assert same_bits(s.read(place / "g", u), part(u, s.rank, truth))


def test_a_rank_that_leaves(mpi, place, transport, slow):
    """The others are told, and what stood there before stays. Each rank's disk is still at work."""
    if mpi.size == 1:
        pytest.skip("nobody would be left")
    slow(200)
    job = {"transport": transport, "servers": mpi.size, "sync": False}
    disk = ps.Distribution("BLOCK,*", (mpi.size,))
    with ps.Session(mpi, **job) as s:
        u = rows(s, disk=disk)
        s.write(place / "g", u, part(u, s.rank, ramp_of(u)))
    before = tree(place)
    mpi.Barrier()
    error = None
    try:
        with ps.Session(mpi, **job) as s:
            begin = lambda: s.begin_write(place / "g", u, part(u, s.rank, -ramp_of(u)))  # noqa: E731
            if s.rank == 1:
                begin()
                raise KeyError("lost my way")
            error = caught(lambda: begin().end())  # it may hear of that before it has begun
            raise KeyError("as the other")
    except KeyError:
        pass
    mpi.Barrier()
    if mpi.rank != 1:
        assert isinstance(error, ps.PeerError) and "lost my way" in str(error)
    assert tree(place) == before


@pytest.mark.parametrize("way", ["disk", "all", "dedicated"])
def test_most_of_the_disks_time_is_hidden(mpi, place, transport, slow, way):
    if way == "dedicated" and mpi.size == 1:
        pytest.skip("no clients would be left")
    slow(2e6)
    job = {"servers": 1, "dedicated": way == "dedicated", "sync": False, "block_bytes": 1 << 16}
    # The last rank of the first host; by messages each rank is a host.
    server = HOSTS.count(HOSTS[0]) - 1 if transport == "shared" else 0
    clients = mpi.Split(way == "dedicated" and mpi.rank == server)
    with ps.Session(mpi, transport=transport, **job) as s:
        threads_needed = way == "all" or (way == "dedicated" and sends_messages(transport))
        if s.is_client and not (threads_needed and "all" not in backgrounds(s, transport)):
            u = rows(s, columns=65536 // s.size, extra=0, disk=ps.RowMajor())
            took = u.shape[0] * u.shape[1] * 8 / 2e6
            how = {} if way == "dedicated" else {"background": way}
            local = part(u, s.rank, ramp(u.shape))

            def in_time():
                s.barrier()
                begun = time.perf_counter()
                split = s.begin_write(place / "u", u, local, **how)
                time.sleep(took)
                split.end()
                hidden = 2 * took - (time.perf_counter() - begun)
                return clients.allreduce(hidden > 0.7 * took, MPI.LAND)

            assert some_attempt(in_time)
    clients.Free()
