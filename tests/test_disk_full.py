"""A full disk: `FullError` on every rank, the old data set as it was, no remains, and what fits is
written afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import alone, fails, leftovers, same_bits, tree, values

import penstock as ps

SMALL, LARGE = (32, 64), (512, 256)  # 16 KiB and 1 MiB of float64
DISKS = {
    "chunks": lambda n: ps.Chunks((n // 4, 16)),
    "zstd": lambda n: ps.Chunks((n // 4, 16), codec="zstd:1"),
    "shards": lambda n: ps.Chunks((n // 2, 64), subchunks=(n // 4, 16), codec="crc32c"),
    "raw": lambda n: ps.RowMajor(),
    "npy": lambda n: ps.RowMajor("npy"),
    "parts": lambda n: ps.Distribution("BLOCK,*", (4,)),
}
HELD = ps.Distribution("*,BLOCK", (4,))


def array(form: str, shape) -> ps.Array:
    return ps.Array("u", shape, "f8", memory=HELD, disk=DISKS[form](shape[0]))


def write(session, path, form, shape, salt=0):
    u = array(form, shape)
    local = values(shape, "f8", salt)[:, u.local_slices(session.rank)[1]]
    return session.write(path, u, local)


@pytest.mark.parametrize("form", DISKS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_a_full_disk(tiny, form, dedicated):
    job = {"servers": 3, "dedicated": dedicated, "block_bytes": 16384}
    ps.run(lambda s: write(s, tiny / "u", form, SMALL), 4, **job)
    before = tree(tiny)

    error = fails(
        ps.FullError, lambda s: write(s, tiny / "u", form, LARGE, 1), str(tiny), ranks=4, **job
    )
    assert error.path.startswith(str(tiny)) and error.cause
    assert tree(tiny) == before, "the old data set is not as it was, or something is left over"
    assert not leftovers(tiny)

    ps.run(lambda s: write(s, tiny / "u", form, SMALL, 2), 4, **job)
    parts = ps.run(lambda s: s.read(tiny / "u", array(form, SMALL)), 4, **job)
    assert same_bits(np.concatenate(parts, axis=1), values(SMALL, "f8", 2))
    assert not leftovers(tiny)


@pytest.mark.parametrize("form", DISKS)
def test_not_even_room_for_the_temporary(tiny, form):
    """No space at all, not for a directory or a file of metadata."""
    with open(tiny / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    fails(ps.FullError, lambda s: write(s, tiny / "u", form, SMALL), str(tiny), ranks=4)
    assert [entry.name for entry in tiny.iterdir()] == ["filler"]


LIMITED = """
import resource, signal, sys, numpy as np, penstock as ps
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
disk = {"raw": ps.RowMajor(), "zarr": ps.Chunks((512, 256))}[sys.argv[2]]
u = ps.Array("u", (512, 256), "f8", disk=disk)
with ps.Session(block_bytes=4096) as s:
    try:
        s.write(sys.argv[1], u, np.random.rand(512, 256))
    except ps.FullError as error:
        print("full")
"""


@pytest.mark.parametrize("form", ["raw", "zarr"])
def test_a_file_that_may_not_grow(place, form):
    """A quota or limit is like a full disk."""
    assert alone(LIMITED, place / "u", form) == "full\n"
    assert not list(place.iterdir())
