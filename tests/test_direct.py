"""Writes around the page cache: files and contents are those of any other write."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from helpers import is_in_memory, ramp

import penstock as ps

SHAPE = (96, 130)
ROWS = ps.Distribution("BLOCK,*", (3,))
DISKS = {
    "natural": None,
    "chunks": ps.Chunks((32, 65)),
    "many chunks": ps.Chunks((8, 26)),
    "a codec": ps.Chunks((32, 65), codec="zstd"),
    "shards": ps.Chunks((48, 65), subchunks=(24, 13)),
    "parts": ps.Distribution("BLOCK,*", (5,)),
    "a file": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
}


@pytest.fixture
def disk_place(tmp_path):
    if is_in_memory(tmp_path):
        pytest.skip("the directory for temporary files is in memory")
    return tmp_path


def contents(path):
    """All files below a path, and what is in them."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(f.relative_to(path)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize(("servers", "block"), [(1, 1 << 20), (3, 1 << 20), (2, 4160), (3, 16640)])
def test_files_are_the_same(disk_place, disk, servers, block):
    """Of whole objects in a block, and of several blocks in an object; a few and many of them."""
    whole = ramp(SHAPE)
    u = ps.Array("u", SHAPE, "f8", memory=ROWS, disk=DISKS[disk])
    changed = whole.copy()
    changed[5:91, 7:100] += 1000

    for direct in (False, True):
        path = disk_place / f"direct-{direct}"

        def main(session, path=path):
            rows = slice(32 * session.rank, 32 * session.rank + 32)
            session.write(path, u, whole[rows])

        ps.run(main, 3, servers=servers, block_bytes=block, direct=direct)
    assert contents(disk_place / "direct-True") == contents(disk_place / "direct-False")

    def change(session):
        rows = slice(max(5, 32 * session.rank), min(91, 32 * session.rank + 32))
        part = (rows, slice(7, 100))
        session.write(disk_place / "direct-True", u, changed[part], region=part)

    if not isinstance(DISKS[disk], ps.Distribution):
        ps.run(change, 3, servers=servers, block_bytes=block, direct=True)
        with ps.Session() as session:
            array = ps.Array("u", SHAPE, "f8", disk=DISKS[disk])
            assert np.array_equal(session.read(disk_place / "direct-True", array), changed)


def test_chunks_of_which_nobody_holds_anything_are_not_made(disk_place):
    """They read as the fill value, as a file of zeros would not."""
    parts = [(slice(0, 32), slice(0, 130)), (slice(64, 96), slice(0, 130))]
    u = ps.Array("u", SHAPE, "f8", disk=ps.Chunks((32, 65)))
    for direct in (False, True):
        path = disk_place / f"direct-{direct}"

        def main(session, path=path):
            session.write(path, u, np.ones((32, 130)), region=parts[session.rank])

        ps.run(main, 2, servers=2, block_bytes=4160, direct=direct)
    assert contents(disk_place / "direct-True") == contents(disk_place / "direct-False")
    assert len(list((disk_place / "direct-True" / "u" / "c").rglob("*/*"))) == 4
