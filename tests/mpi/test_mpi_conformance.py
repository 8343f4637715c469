"""The conformance body on MPI: in shared memory and by messages, servers part-time or dedicated."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from conformance import Case, check_disk, random_block_bytes, random_case, read, round_trip, write
from helpers import Dealt, Placed, leftovers, values
from mpi4py import MPI
from mpihelpers import HOSTS, TRANSPORTS, part, ramp_of, rows

import penstock as ps

SEEDS = 8


def open_session(mpi, transport, servers=None, dedicated=False, **tuning):
    """Servers by a word: `none` leaves the choice to Penstock."""
    count = {None: None, "one": 1, "two": 2, "all": mpi.size, "more": mpi.size + 2}[servers]
    if dedicated:
        count = min(count or 1, mpi.size - 1)
    tuning.setdefault("sync", False)
    return ps.Session(mpi, transport=transport, servers=count, dedicated=dedicated, **tuning)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("servers", [None, "one", "two", "all", "more"])
@pytest.mark.parametrize("dedicated", [False, True])
def test_round_trips(mpi, place, transport, servers, dedicated):
    if dedicated and (mpi.size == 1 or servers in (None, "more")):
        pytest.skip("no clients would be left, or as with a number of servers")
    chance = random.Random(f"{mpi.size} {servers} {dedicated}")
    block_bytes = chance.choice([256, 4096])
    session = open_session(mpi, transport, servers, dedicated, block_bytes=block_bytes)
    with session:
        if not session.is_client:
            assert session.rank is None
            return
        for turn in range(SEEDS):
            case = random_case(chance, session.size, session.size)
            round_trip(session, case, place / f"{turn}")
        assert not leftovers(place)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tiny_blocks(mpi, place, transport):
    """Many more blocks than servers, each of a few elements."""
    ranks = mpi.size
    memory = Dealt("CYCLIC(2),BLOCK", (ranks, 1), 1), Dealt("*,CYCLIC", (ranks,))
    for disk in (ps.RowMajor("npy"), ps.Chunks((5, 3)), ps.Distribution("BLOCK,BLOCK", (3, 2))):
        case = Case((23, 11), "c16", *memory, disk, kinds=("F", "negative"))
        block_bytes = random_block_bytes(random.Random(1), case)
        with open_session(mpi, transport, block_bytes=block_bytes) as session:
            round_trip(session, case, place / type(disk).__name__)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_larger_than_any_message(mpi, place, transport):
    """Blocks of a megabyte, shares of several, and what is not a multiple of anything."""
    ranks = mpi.size
    with open_session(mpi, transport) as session:
        for disk in (ps.RowMajor(), ps.Chunks((500, 300), codec="zstd:1")):
            memory = ps.Distribution("CYCLIC(7),*", (ranks,))
            u = ps.Array("u", (1201, 701), "f8", memory=memory, disk=disk)
            truth = values((1201, 701), "f8", 3)
            local = part(u, session.rank, truth)
            session.write(place / "u", u, local)
            other = u.with_memory(ps.Distribution("*,BLOCK", (ranks,), halo=((2, 1), (0, 3))))
            back = session.read(place / "u", other)
            if back.size:
                inner = back[2:-1, :-3]
                columns = other.local_slices(session.rank)[1]
                assert inner.tobytes() == truth[:, columns].tobytes()
            session.barrier()
            if session.rank == 0:
                import shutil

                path = place / "u"
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            session.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_large_lists_of_boxes(mpi, place, transport):
    """Boxes of eight dimensions, so that they alone fill more than one packet."""
    ranks, dims = mpi.size, 8
    shape = (ranks * 3,) + (2,) * (dims - 1)
    empty = ((0,) * dims, (0,) * dims)
    boxes = [((3 * rank,) + (0,) * (dims - 1), (3,) + (2,) * (dims - 1)) for rank in range(ranks)]
    boxes[ranks // 2] = empty if ranks > 1 else boxes[0]
    case = Case(
        shape, "i8", Placed(tuple(boxes), 1), Dealt(",".join(["BLOCK"] + ["*"] * (dims - 1)),
        (ranks,)), ps.Chunks((4,) + (2,) * (dims - 1)),
    )  # fmt: skip
    with open_session(mpi, transport) as session:
        round_trip(session, case, place / "u")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_request_of_many_packets(mpi, place, transport):
    """Attributes of 100 kB go from every rank to the root."""
    with open_session(mpi, transport) as session:
        u = rows(session)
        truth = ramp_of(u)
        attrs = {"text": "x" * 100_000, "numbers": list(range(1000))}
        session.write(place / "g", u, part(u, session.rank, truth), attrs=attrs)
        assert dict(session.open(place / "g").attrs) == attrs
        assert np.array_equal(session.read(place / "g", u), part(u, session.rank, truth))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("form", ["chunks", "raw", "parts", "npy"])
def test_read_on_another_number_of_ranks(mpi, place, transport, form):
    """Written by all; read by some of them, in another distribution; and the other way round."""
    chance = random.Random(f"{mpi.size} {form}")
    few = max(1, mpi.size // 2)
    case = random_case(chance, mpi.size, few)
    while {"chunks": ps.Chunks, "parts": ps.Distribution}.get(form, ps.RowMajor) is not type(
        case.disk
    ) or (form in ("raw", "npy") and case.disk.format != form):
        case = random_case(chance, mpi.size, few)
    with open_session(mpi, transport) as session:
        write(session, case, place / "u")
    sub = mpi.Split(0 if mpi.rank < few else MPI.UNDEFINED, mpi.rank)
    if sub != MPI.COMM_NULL:
        with open_session(sub, transport) as session:
            assert session.size == few
            if session.rank == 0:
                check_disk(session, case, place / "u", mpi.size)
            session.barrier()
            read(session, case, place / "u", mpi.size)
        sub.Free()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sessions_on_parts_of_the_job(mpi, place, transport):
    """Two halves work side by side, and do not know of each other."""
    sub = mpi.Split(mpi.rank % 2, -mpi.rank)  # ranks in reverse order
    path = place / f"half{mpi.rank % 2}"
    with open_session(sub, transport) as session:
        assert (session.rank, session.size) == (sub.rank, sub.size)
        u = rows(session)
        truth = ramp_of(u) * (1 + mpi.rank % 2)
        for _ in range(3):
            session.write(path, u, part(u, session.rank, truth))
            assert np.array_equal(session.read(path, u), part(u, session.rank, truth))
    sub.Free()


def test_two_sessions_at_once(mpi, place):
    """Of different transports and servers, used in turn."""
    with (
        open_session(mpi, "shared", "one") as a,
        open_session(mpi, "messages", "all") as b,
        open_session(mpi, "shared", "more") as c,
    ):
        u = rows(a)
        for turn in range(3):
            truth = ramp_of(u) + turn
            a.write(place / "a", u, part(u, a.rank, truth))
            b.write(place / "b", u, part(u, b.rank, -truth))
            c.barrier()
            assert np.array_equal(b.read(place / "a", u), part(u, b.rank, truth))
            assert np.array_equal(c.read(place / "b", u), part(u, c.rank, -truth))


@pytest.mark.parametrize("bound", ["all", "first"])
def test_ranks_bound_to_processors(mpi, place, bound):
    """Each rank to one of its own, as Open MPI does it, or only the first: all count the same
    servers."""
    allowed = os.sched_getaffinity(0)
    mine = sorted(allowed)[mpi.rank % len(allowed)]
    if bound == "all" or mpi.rank == 0:
        os.sched_setaffinity(0, {mine})
    try:
        with ps.Session(mpi, sync=False) as session:
            u = rows(session)
            truth = ramp_of(u)
            session.write(place / "g", u, part(u, session.rank, truth))
            assert np.array_equal(session.read(place / "g", u), part(u, session.rank, truth))
            servers = mpi.allgather(session.servers)
    finally:
        os.sched_setaffinity(0, allowed)
    if bound == "all":
        used = set(zip(HOSTS, mpi.allgather(mine), strict=True))
        assert servers == [len(used)] * mpi.size
    assert len(set(servers)) == 1


def test_many_sessions_one_after_the_other(mpi, place):
    """They leave nothing behind that runs out: communicators, segments, descriptors."""

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    counts = []
    for turn in range(12):
        with open_session(mpi, TRANSPORTS[turn % 2]) as session:
            session.barrier()
        counts.append(descriptors())
    assert counts[-1] <= counts[1] + 1, counts


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_communicator_stays_the_callers(mpi, place, transport):
    """Messages of the program and of Penstock do not meet."""
    with open_session(mpi, transport) as session:
        u = rows(session)
        right, left = (mpi.rank + 1) % mpi.size, (mpi.rank - 1) % mpi.size
        request = mpi.isend(mpi.rank, dest=right, tag=1)
        session.write(place / "g", u, part(u, session.rank, ramp_of(u)))
        assert mpi.recv(source=left, tag=1) == left
        request.wait()
        assert mpi.allreduce(1) == mpi.size


def test_the_main_example_of_the_issue(mpi, place):
    """With as many of its eight places as there are ranks."""
    mesh = {8: (2, 2, 2), 5: (5, 1, 1), 3: (1, 3, 1), 2: (1, 1, 2)}.get(mpi.size, (mpi.size, 1, 1))
    with ps.Session(mpi) as s:
        u = ps.Array("u", shape=(48, 48, 24), dtype="f8",
                     memory=ps.Distribution("BLOCK,BLOCK,BLOCK", mesh=mesh, halo=0),
                     disk=ps.Chunks((16, 16, 16), subchunks=None, codec="zstd:3"))  # fmt: skip
        local = np.full(u.local_shape(s.rank), s.rank + 1.0)
        s.write(place / "run.zarr", u, local, attrs={"units": "K"})
        back = s.read(place / "run.zarr", u)
        assert np.array_equal(back, local)
        text = s.explain(place / "run.zarr", u)
        assert f"{mpi.size} clients" in text
        whole = u.with_memory(ps.Distribution("*,*,BLOCK", (mpi.size,)))
        assert s.read(place / "run.zarr", whole).all()
        assert dict(s.open(place / "run.zarr").attrs) == {"units": "K"}
    if mpi.rank == 0:
        import zarr

        stored = zarr.open_group(place / "run.zarr", mode="r")["u"]
        assert stored.attrs["units"] == "K"
        places = [u.local_slices(rank) for rank in range(mpi.size)]
        assert all((stored[where] == rank + 1).all() for rank, where in enumerate(places))
