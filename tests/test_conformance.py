"""What is written is what was held, and what is read is what was written: any shape, type,
distribution, disk schema and number of ranks and servers, against NumPy and zarr-python."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from conformance import Case, check_disk, random_block_bytes, random_case, read, round_trip, write
from helpers import CODECS, DTYPES, LOCAL_KINDS, Dealt, Placed, fast_directory

import penstock as ps


@dataclass(frozen=True)
class Job:
    """A case, and who writes and reads it."""

    case: Case
    writers: int = 4
    readers: int = 4
    write_servers: int | None = None
    read_servers: int | None = None
    write_dedicated: bool = False
    read_dedicated: bool = False
    block_bytes: int = 64


@st.composite
def jobs(draw) -> Job:
    chance = draw(st.randoms(use_true_random=False))
    writers, readers = chance.randint(1, 6), chance.randint(1, 6)
    case = random_case(chance, writers, readers)
    return Job(
        case,
        writers,
        readers,
        write_servers=chance.choice([None, 1, 2, 3, 4, writers + 2]),
        read_servers=chance.choice([None, 1, 2, 3, 4, readers + 2]),
        write_dedicated=chance.random() < 0.3,
        read_dedicated=chance.random() < 0.3,
        block_bytes=random_block_bytes(chance, case),
    )


def perform(job: Job) -> None:
    """One machine writes, another reads."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=fast_directory()))
    path = directory / "stored"

    def write_main(session: ps.Session) -> None:
        write(session, job.case, path)
        if session.rank == 0:
            check_disk(session, job.case, path, job.writers)

    try:
        tuning = {"sync": False, "block_bytes": job.block_bytes}
        ps.run(
            write_main,
            job.writers,
            servers=job.write_servers,
            dedicated=job.write_dedicated,
            **tuning,
        )
        ps.run(
            lambda session: read(session, job.case, path, job.writers),
            job.readers,
            servers=job.read_servers,
            dedicated=job.read_dedicated,
            **tuning,
        )
    finally:
        shutil.rmtree(directory)


@hypothesis.settings(max_examples=250)
@hypothesis.given(jobs())
# An empty share, more servers than ranks, one rank.
@hypothesis.example(
    Job(Case((0, 3), "f8", Dealt("BLOCK,*", (1,), 1), Dealt("*,*", ()), ps.RowMajor()), 1, 1, 7, 7)
)
# Nothing but a scalar.
@hypothesis.example(Job(Case((), "c16", Dealt("", ()), Dealt("", ()), ps.Chunks(())), 3, 2))
# A mesh larger than the extents, with a halo for those who hold something.
@hypothesis.example(
    Job(
        Case((3, 2), "i2", Dealt("BLOCK,CYCLIC", (2, 3), 2), Dealt("CYCLIC,BLOCK", (4, 1)),
             ps.Chunks((2, 1))),
        6,
        5,
    )
)  # fmt: skip
# Nobody holds anything.
@hypothesis.example(
    Job(
        Case((5,), "u1", Placed((((0,), (0,)), ((0,), (0,)))), Dealt("BLOCK", (2,)),
             ps.Chunks((4,), subchunks=(2,), codec="zstd:1+crc32c")),
        2,
        2,
    )
)  # fmt: skip
def test_round_trip(job):
    perform(job)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["chunks", "shards", "raw", "npy", "parts"])
def test_every_type_in_every_form(place, dtype, form):
    disk = {
        "chunks": ps.Chunks((3, 4), codec="zstd:1"),
        "shards": ps.Chunks((4, 4), subchunks=(2, 4), codec="crc32c"),
        "raw": ps.RowMajor(),
        "npy": ps.RowMajor("npy"),
        "parts": ps.Distribution("BLOCK,BLOCK", (2, 3)),
    }[form]
    memory = Dealt("BLOCK,CYCLIC", (2, 2)), Dealt("CYCLIC(2),BLOCK", (2, 2), 1)
    case = Case((7, 5), dtype, *memory, disk, kinds=("C", "F"))
    ps.run(lambda s: round_trip(s, case, place / "u"), 4, sync=False, block_bytes=16)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("subchunks", [None, (2, 3)])
def test_every_codec(place, codec, subchunks):
    disk = ps.Chunks((4, 3), subchunks=subchunks, codec=codec)
    case = Case((9, 7), "f4", Dealt("BLOCK,*", (3,)), Dealt("*,CYCLIC", (3,)), disk)
    ps.run(lambda s: round_trip(s, case, place / "u"), 3, sync=False)


@pytest.mark.parametrize("kind", LOCAL_KINDS)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_every_kind_of_local_array(place, kind, dtype):
    halo = ((1, 0), 2, (0, 3))
    case = Case(
        (5, 7, 6), dtype, Dealt("BLOCK,CYCLIC(2),*", (2, 2), halo),
        Dealt("*,BLOCK,CYCLIC", (2, 2), halo), ps.Chunks((3, 3, 3)), kinds=(kind,),
    )  # fmt: skip
    ps.run(lambda s: round_trip(s, case, place / "u"), 4, sync=False, block_bytes=50)


@pytest.mark.parametrize("ranks", range(1, 7))
@pytest.mark.parametrize("servers", [1, 2, 9])
@pytest.mark.parametrize("dedicated", [False, True])
def test_any_number_of_ranks_and_servers(place, ranks, servers, dedicated):
    memory = Dealt("CYCLIC(2),*", (ranks,)), Dealt("*,BLOCK", (ranks,))
    case = Case((13, 5), "f8", *memory, ps.Chunks((2, 3)))
    tuning = {"servers": servers, "dedicated": dedicated, "sync": False}
    ps.run(lambda s: round_trip(s, case, place / "u"), ranks, **tuning)


def test_a_write_from_a_broadcast_array(place):
    """Strides of zero are strides."""
    import numpy as np

    u = ps.Array("u", (4, 6), "f8", disk=ps.Chunks((3, 4)))
    with ps.Session() as s:
        s.write(place / "u", u, np.broadcast_to(np.arange(6.0), (4, 6)))
        assert np.array_equal(s.read(place / "u", u), np.tile(np.arange(6.0), (4, 1)))


def test_synced_writes_and_large_blocks_too(place):
    case = Case((11, 13), "f8", Dealt("BLOCK,BLOCK", (2, 2)), Dealt("*,CYCLIC", (3,)),
                ps.Chunks((4, 4), codec="blosc"))  # fmt: skip
    ps.run(lambda s: round_trip(s, case, place / "u"), 4, sync=True)
