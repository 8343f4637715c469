"""Errors under MPI: what one rank does wrong all are told, in the same words; nobody hangs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from helpers import caught, leftovers, tree
from mpi4py import MPI
from mpihelpers import TRANSPORTS, assert_fails, part, ramp_of, rows

import penstock as ps
from penstock import _mpi

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)


def needs(mpi, ranks: int) -> None:
    if mpi.size < ranks:
        pytest.skip(f"needs {ranks} ranks")


def zeros(u, session) -> np.ndarray:
    return np.zeros(u.local_shape(session.rank), u.dtype)


WRONG = {
    "shape": lambda good: np.zeros((1, 1)),
    "type": lambda good: good.astype("f4"),
    "byte order": lambda good: good.astype(">f8"),
    "list": lambda good: good.tolist(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_local_array_on_one_rank(mpi, place, transport, wrong):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s)
        for rank in {0, s.size - 1, s.size // 2}:
            local = WRONG[wrong](zeros(u, s)) if s.rank == rank else zeros(u, s)
            error = assert_fails(
                s,
                lambda given=local: s.write(place / "g", u, given),
                ps.SchemaError,
                f"rank {rank}",
            )
            assert error.rank == rank
        s.write(place / "g", u, zeros(u, s))


def test_a_read_only_array_on_one_rank(mpi, place, transport):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s)
        s.write(place / "g", u, zeros(u, s))
        out = zeros(u, s)
        out.flags.writeable = s.rank != s.size - 1
        words = f"rank {s.size - 1}", "read-only"
        assert_fails(s, lambda: s.read(place / "g", u, out=out), ps.SchemaError, *words)


def test_overlapping_boxes(mpi, place, transport):
    needs(mpi, 2)
    with ps.Session(mpi, transport=transport, sync=False) as s:
        # Each rank has two rows of its own, but the last reaches one row too far back.
        start = 2 * s.rank - (s.rank == s.size - 1)
        memory = ps.Boxes((start, 0), (2, 4))
        u = ps.Array("u", (2 * s.size, 4), "f8", memory=memory, disk=ps.Chunks((3, 3)))
        words = str(s.size - 2), str(s.size - 1)
        assert_fails(s, lambda: s.write(place / "g", u, zeros(u, s)), ps.OverlapError, *words)
        s.barrier()
        assert not list(place.iterdir())


def test_a_box_out_of_bounds(mpi, place, transport):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        start = 2 * s.rank + (s.rank == s.size - 1)
        memory = ps.Boxes((start, 0), (2, 4))
        u = ps.Array("u", (2 * s.size, 4), "f8", memory=memory)
        word = f"rank {s.size - 1}"
        assert_fails(s, lambda: s.write(place / "g", u, zeros(u, s)), ps.SchemaError, word)


def test_a_mesh_of_more_places_than_ranks(mpi, place, transport):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s).with_memory(ps.Distribution("BLOCK,BLOCK", (s.size, 2)))
        word = f"{2 * s.size} places"
        assert_fails(s, lambda: s.write(place / "g", u, zeros(u, s)), ps.SchemaError, word)


def test_ranks_that_ask_for_different_things(mpi, place, transport):
    needs(mpi, 2)
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u, last = rows(s), s.rank == s.size - 1
        other = u.with_disk(ps.RowMajor()) if last else u
        path = place / ("h" if last else "g")
        assert_fails(s, lambda: s.write(place / "g", other, zeros(u, s)), ps.MismatchError)
        assert_fails(s, lambda: s.write(path, u, zeros(u, s)), ps.MismatchError, "/h", "/g")
        calls = [lambda: s.write(place / "g", u, zeros(u, s)), s.barrier]
        assert_fails(s, calls[last], ps.MismatchError, "barrier", "write")
        attrs = {"rank": s.rank}
        assert_fails(s, lambda: s.write(place / "g", u, zeros(u, s), attrs), ps.MismatchError)
        s.barrier()
        assert not list(place.iterdir())


def test_what_is_not_there(mpi, place, transport):
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u, path = rows(s), place / "no"
        error = assert_fails(s, lambda: s.read(path, u), ps.MissingError, str(path))
        assert error.path == str(path)
        local = zeros(u, s)
        assert_fails(s, lambda: s.write(path / "g", u, local), ps.MissingError, "parent")


def test_damage(mpi, place, transport):
    """A chunk cut short, met by one server."""
    with ps.Session(mpi, transport=transport, sync=False) as s:
        u = rows(s)
        s.write(place / "g", u, part(u, s.rank, ramp_of(u)))
        chunk = place / "g" / "u" / "c" / "0" / "1"
        if s.rank == 0:
            chunk.write_bytes(chunk.read_bytes()[:-3])
        s.barrier()
        error = assert_fails(s, lambda: s.read(place / "g", u), ps.DamagedError, str(chunk))
        assert error.server is not None and error.path == str(chunk)


@pytest.mark.parametrize("form", ["zstd", "shards", "raw", "npy", "parts"])
def test_a_full_disk(mpi, tiny, transport, form):
    disk = {
        "zstd": ps.Chunks((16, 512), codec="zstd:1"),
        "shards": ps.Chunks((64, 512), subchunks=(16, 512)),
        "raw": ps.RowMajor(),
        "npy": ps.RowMajor("npy"),
        "parts": ps.Distribution("BLOCK,*", (3,)),
    }[form]
    with ps.Session(mpi, transport=transport, block_bytes=32768) as s:
        memory = ps.Distribution("*,CYCLIC", (s.size,))
        small = ps.Array("u", (16, 512), "f8", memory=memory, disk=disk)
        large = ps.Array("u", (256, 512), "f8", memory=memory, disk=disk)
        noise = np.random.default_rng(s.rank)
        s.write(tiny / "u", small, np.ones(small.local_shape(s.rank)))
        before = tree(tiny) if s.rank == 0 else None
        s.barrier()
        local = noise.random(large.local_shape(s.rank))
        write = lambda: s.write(tiny / "u", large, local)  # noqa: E731
        error = assert_fails(s, write, ps.FullError, str(tiny))
        assert error.path.startswith(str(tiny))
        if s.rank == 0:
            assert tree(tiny) == before and not leftovers(tiny)
        s.barrier()
        s.write(tiny / "u", small, np.zeros(small.local_shape(s.rank)))
        assert not s.read(tiny / "u", small).any()


class Own(Exception):
    """Of no kind that Penstock knows."""


@pytest.mark.parametrize("dedicated", [False, True])
@pytest.mark.parametrize("which", ["first", "last"])
def test_a_rank_that_raises_inside_with(mpi, place, transport, dedicated, which):
    """The others get PeerError with its words; a new session works."""
    needs(mpi, 2 + dedicated)
    servers = 1 if dedicated else None
    clients = mpi.size - dedicated
    raiser = 0 if which == "first" else clients - 1
    met = None
    try:
        with ps.Session(mpi, transport=transport, servers=servers, dedicated=dedicated) as s:
            if s.is_client:
                u = rows(s)
                if s.rank == raiser:
                    raise Own("of my own")
                met = caught(lambda: s.write(place / "g", u, zeros(u, s)))
                again = caught(s.barrier)
                assert isinstance(met, ps.PeerError), met
                assert f"rank {raiser}" in str(met) and "Own: of my own" in str(met)
                assert met.rank == raiser and isinstance(again, ps.PeerError)
                raise met
    except (Own, ps.PeerError):
        pass
    with ps.Session(mpi, transport=transport) as s:
        u = rows(s)
        s.write(place / "g", u, zeros(u, s))
        assert not s.read(place / "g", u).any()


def test_a_rank_that_raises_with_very_many_words(mpi, place, transport):
    """More of them than fit into any packet; the others must not wait for the rest for ever."""
    needs(mpi, 2)
    met = None
    with contextlib.suppress(Own), ps.Session(mpi, transport=transport) as s:
        if s.rank == s.size - 1:
            raise Own("word " * 200_000)
        met = caught(s.barrier)
        assert isinstance(met, ps.PeerError)
        assert f"rank {s.size - 1}" in str(met) and "Own: word word" in str(met)
        raise Own
    with ps.Session(mpi, transport=transport) as s:
        s.barrier()


def test_a_rank_that_leaves_early(mpi, place, transport):
    """It closes while the others go on: they are told, and do not wait."""
    needs(mpi, 2)
    session = ps.Session(mpi, transport=transport)
    met = caught(session.close if session.rank == session.size - 1 else session.barrier)
    assert isinstance(met, ps.MismatchError | ps.PeerError), met
    everywhere = mpi.allgather(str(met))
    assert len(set(everywhere)) == 1
    session._session.leave("the test is over")


def test_options_that_differ(mpi, transport):
    needs(mpi, 2)
    last = mpi.rank == mpi.size - 1
    met = caught(lambda: ps.Session(mpi, transport=transport, servers=1 + last))
    assert isinstance(met, ps.MismatchError) and "options" in str(met)
    other = "messages" if transport == "shared" else "shared"
    met = caught(lambda: ps.Session(mpi, transport=other if last else transport))
    assert isinstance(met, ps.MismatchError)
    assert len(set(mpi.allgather(str(met)))) == 1
    with ps.Session(mpi, transport=transport) as s:
        s.barrier()


def test_options_that_do_not_fit(mpi, transport):
    calls = [
        lambda: ps.Session(mpi, transport=transport, servers=0),
        lambda: ps.Session(mpi, transport=transport, servers=mpi.size, dedicated=True),
        lambda: ps.Session(mpi, transport="pigeon"),
        lambda: ps.Session(mpi, transport=transport, block_bytes=0),
    ]
    for call in calls:
        met = caught(call)
        assert isinstance(met, ps.SchemaError), met
        assert len(set(mpi.allgather(str(met)))) == 1


def test_a_library_of_an_unknown_abi(mpi, transport, monkeypatch):
    """It is refused by name: its handles and structures may have any form."""
    library, comm, byte, *more = _mpi.library_of(mpi)
    monkeypatch.setattr(_mpi, "library_of", lambda _: (library, comm, byte + 1, *more))
    met = caught(lambda: ps.Session(mpi, transport=transport))
    assert isinstance(met, ps.UnsupportedError), met
    assert "ABI" in str(met) and MPI.Get_library_version().split()[0] in str(met)


def test_a_dedicated_server_makes_no_calls(mpi, place, transport):
    needs(mpi, 2)
    with ps.Session(mpi, transport=transport, servers=1, dedicated=True) as s:
        assert s.size == mpi.size - 1 and s.servers == 1
        if not s.is_client:
            assert s.rank is None
            with pytest.raises(ps.SchemaError, match=r"server|closed"):
                s.read(place / "g", ps.Array("u", (3,), "f8"))
            for call in (s.barrier, lambda: s.explain(place / "g", ps.Array("u", (3,), "f8"))):
                with pytest.raises(ps.SchemaError):
                    call()
        else:
            s.barrier()
