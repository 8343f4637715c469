"""Parallel files that are large in some way: far offsets, many cells, many names, and a checkpoint
that is copied while others write.

`PENSTOCK_NAMES=100000` names the number of entries of `test_a_directory_of_many_names`, which is
20000 in `make file-orders`.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from file_places import places_of
from helpers import penstock

import penstock as ps
from penstock._files import Order

BLOCK = 65536
SERVERS = 3
NAMES = int(os.environ.get("PENSTOCK_NAMES", "3000"))
THREADS = 4
CELL_BYTES_MAX = 2**62
"""The most bytes of a cell, and of a subfile."""


@pytest.fixture
def fs(place: Path) -> Iterator[ps.FileSystem]:
    with ps.FileSystem.create(place / "v", servers=SERVERS, block_bytes=BLOCK) as fs:
        yield fs


def column(f: ps.File, cell: int) -> ps.Subfile:
    """A cell as a subfile."""
    return f.open(ps.View(hn=f.cells), cell)


def used_blocks(fs: ps.FileSystem) -> int:
    fs.sync()
    usage = fs.usage()
    assert usage.used == usage.of_user
    return usage.used // BLOCK


def test_a_file_of_2_to_the_40_bytes(place: Path, fs: ps.FileSystem) -> None:
    cells, of_cell = 4, 2**38
    fs.create("/big", cells=cells, bsu=4096)
    ends = [b"end %d" % cell for cell in range(cells)]
    with fs.attach("/big", "r+") as f:
        for cell, end in enumerate(ends):
            assert column(f, cell).write_at(of_cell - len(end), end) == len(end)
            assert column(f, cell).write_at(of_cell // 2 + 1, b"half") == 4
        assert fs.stat("/big").cell_bytes == dict.fromkeys(range(cells), of_cell)
        assert fs.stat("/big").bytes == 2**40
        assert used_blocks(fs) == 2 * cells, "holes take no space"
        # The last MiB of the file are the last 256 KiB of each cell.
        whole, last = f.open(), np.full(1 << 20, 0xEE, np.uint8)
        assert whole.read_at(2**40 - last.size, last) == last.size
        assert last[last > 0].tobytes() == b"".join(ends)
        for offset in (0, 2**32 - 500, 2**39 - 123_456, 2**40 - 2 * last.size):
            hole = np.full(1000, 0xEE, np.uint8)
            assert whole.read_at(offset, hole) == hole.size
            assert not hole.any()
        assert whole.read(10, at=2**40) == b""
        f.checkpoint()
        fs.resize("/big", of_cell // 2)
        assert fs.stat("/big").bytes == 2**39
        assert used_blocks(fs) == 2 * cells, "the checkpoint has them still"
        fs.resize("/big", of_cell)
        assert column(f, 1).read(9, at=of_cell // 2) == bytes(9), "what was cut off is zero"
        assert column(f, 1).read(9, at=of_cell - 5) == bytes(5)
        f.rollback()
        assert column(f, 1).read(9, at=of_cell // 2) == b"\0half\0\0\0\0"
        assert column(f, 1).read(9, at=of_cell - 5) == b"end 1"
    fs.close()
    with ps.FileSystem(place / "v") as again:
        assert again.stat("/big").bytes == 2**40
        with again.attach("/big", "r") as f:
            assert column(f, 3).read(9, at=of_cell - 5) == b"end 3"
        again.remove("/big")
        assert used_blocks(again) == 0


def test_a_resize_without_a_checkpoint_frees_what_it_cuts_off(fs: ps.FileSystem) -> None:
    fs.create("/big", cells=5, bsu=100)
    with fs.attach("/big", "w") as f:
        for cell in range(5):
            for offset in (0, 2**30, 2**40, 2**50):
                column(f, cell).write_at(offset, b"data")
    assert used_blocks(fs) == 20
    for nbytes, blocks in ((2**50, 15), (2**40 + 1, 15), (2**40, 10), (1, 5), (0, 0)):
        fs.resize("/big", nbytes)
        assert used_blocks(fs) == blocks
        assert fs.stat("/big").bytes == 5 * nbytes


def test_a_quota_counts_what_is_stored(fs: ps.FileSystem) -> None:
    fs.create("/big", cells=2, bsu=BLOCK)
    owner = fs.stat("/big").owner
    fs.quota(owner, 4 * BLOCK)
    with fs.attach("/big", "r+") as f:
        for offset in (0, 2**45):
            for cell in range(2):
                assert column(f, cell).write_at(offset, b"data") == 4
        assert used_blocks(fs) == 4
        with pytest.raises(ps.FullError):
            column(f, 0).write_at(2**20, b"more")
        fs.resize("/big", 2**50)
        assert used_blocks(fs) == 2 * 2, "zeros take no space"
        fs.resize("/big", 2**20)
        assert used_blocks(fs) == 2
        assert column(f, 0).write_at(2**20, b"more") == 4


def test_offsets_up_to_2_to_the_62(fs: ps.FileSystem) -> None:
    fs.create("/far", cells=3, bsu=1 << 20)
    with fs.attach("/far", "r+") as f:
        for s in (column(f, 1), f.open()):
            assert s.write_at(CELL_BYTES_MAX - 4, b"last") == 4
            assert s.read(4, at=CELL_BYTES_MAX - 4) == b"last"
            assert s.read(0, at=CELL_BYTES_MAX) == b""
            s.prefetch(CELL_BYTES_MAX - 4, 4)
            s.flush(CELL_BYTES_MAX - 4, 4)
        assert fs.stat("/far").cell_bytes[1] == CELL_BYTES_MAX
        fs.resize("/far", CELL_BYTES_MAX)
        assert fs.stat("/far").bytes == 3 * CELL_BYTES_MAX
        before = fs.stat("/far").cell_bytes
        subfiles = (f.open(), f.open(order="column"), column(f, 2))
        for error, offsets in (
            (ps.SchemaError, (CELL_BYTES_MAX - 3, CELL_BYTES_MAX, 2**63 - 4, 2**63, 2**64 - 1)),
            (OverflowError, (2**64, -1)),
        ):
            for s, offset in itertools.product(subfiles, offsets):
                for call in accesses(s, offset):
                    with pytest.raises(error):
                        call()
        with pytest.raises(ps.SchemaError, match=r"2\^62"):
            fs.resize("/far", CELL_BYTES_MAX + 1)
        with pytest.raises(ps.SchemaError, match="leaves the subfile"):
            f.open().read(1, by=-1)
        assert fs.stat("/far").cell_bytes == before
        assert f.open().read(4, at=CELL_BYTES_MAX - 4) == b"last"
    assert fs.usage().used <= 2 * BLOCK


def accesses(s: ps.Subfile, offset: int) -> list[Callable[[], object]]:
    """All ways to use 4 bytes at an offset."""
    return [
        lambda: s.write_at(offset, b"data"),
        lambda: s.read_at(offset, bytearray(4)),
        lambda: s.iwrite_at(offset, b"data").wait(),
        lambda: s.iread_at(offset, bytearray(4)).wait(),
        lambda: s.write(b"data", at=offset),
        lambda: s.read(4, at=offset),
        lambda: s.prefetch(offset, 4),
        lambda: s.flush(offset, 4),
    ]


@pytest.mark.parametrize("order", ["block", "row", "column"])
def test_1000_cells(fs: ps.FileSystem, order: Order) -> None:
    cells, bsu = 1000, 7
    fs.create("/f", cells=cells, bsu=bsu)
    view, subfile = ps.View(vbs=3, vn=2, hbs=7, hn=11), 16
    data = np.random.default_rng(0).integers(1, 256, cells * bsu * 20 + 13, np.uint8)
    with fs.attach("/f", "r+") as f:
        assert f.open().write(data) == data.size
        stat = fs.stat("/f")
        assert (stat.bytes, len(stat.cell_bytes)) == (data.size, cells)
        assert f.open().read(data.size) == data.tobytes()
        cell, at = places_of((cells, bsu), (view, subfile, order), 5, 10_000)
        striped = (at // bsu * cells + cell) * bsu + at % bsu
        is_real = (cell < cells) & (striped < data.size)
        out = np.zeros(cell.size, np.uint8)
        assert f.open(view, subfile, order=order).read_at(5, out) == is_real.sum()
        assert (out[is_real] == data[striped[is_real]]).all()
        assert not out[~is_real].any()
        f.checkpoint()
        fs.resize("/f", 50)
        assert fs.stat("/f").cell_bytes == dict.fromkeys(range(cells), 50)
        f.rollback()
        assert f.open().read(data.size) == data.tobytes()
    fs.remove("/f")
    assert fs.usage().used == 0


def test_a_bsu_of_a_byte(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=5, bsu=1)
    data = np.random.default_rng(1).integers(0, 256, (1 << 20) + 3, np.uint8)
    with fs.attach("/f", "r+") as f:
        assert f.open().write(data) == data.size
        for cell in range(5):
            assert column(f, cell).read(data.size) == data[cell::5].tobytes()
        odd = np.zeros(data.size, np.uint8)
        assert f.open().read_at(1, odd) == data.size - 1
        assert (odd[:-1] == data[1:]).all()


def test_a_bsu_of_a_gib(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=3, bsu=1 << 30)
    with fs.attach("/f", "r+") as f:
        assert f.open().write_at((1 << 30) - 5, b"0123456789") == 10
        assert fs.stat("/f").cell_bytes == {0: 1 << 30, 1: 5}
        assert column(f, 0).read(9, at=(1 << 30) - 5) == b"01234"
        assert column(f, 1).read(9) == b"56789"
        # BSU 7 is the third of cell 1.
        assert f.open().write_at((7 << 30) + 3, b"deep") == 4
        assert fs.stat("/f").cell_bytes == {0: 1 << 30, 1: (2 << 30) + 7}
        assert f.open().read(9, at=(7 << 30) - 1) == b"\0\0\0\0deep", "cell 0 ends before that"
    assert used_blocks(fs) == 3


def on_threads(jobs: list[Callable[[], object]]) -> None:
    """Runs functions on threads, and raises what they raise."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


def test_a_directory_of_many_names(
    place: Path, fs: ps.FileSystem, record_property: Callable[[str, object], None]
) -> None:
    """Created and removed by threads at once, listed, and renamed as a whole.

    The times are in the report of `pytest --junit-xml`.
    """
    names = [f"{number:06}" for number in range(NAMES)]
    begun = time.monotonic()

    def lap(name: str) -> None:
        nonlocal begun
        record_property(f"seconds to {name} {NAMES}", round(time.monotonic() - begun, 2))
        begun = time.monotonic()

    def for_each(call: Callable[[str], object]) -> None:
        """Deals the names out to threads."""

        def of_part(first: int) -> None:
            for name in names[first::THREADS]:
                call(name)

        on_threads([functools.partial(of_part, first) for first in range(THREADS)])

    fs.mkdir("/many")
    begun = time.monotonic()
    for_each(lambda name: fs.create(f"/many/{name}", cells=2, bsu=100))
    lap("create")
    assert fs.list("/many") == names
    lap("list")
    with pytest.raises(ps.ExistsError):
        fs.remove("/many")
    with fs.attach(f"/many/{names[-1]}", "w") as f:
        f.open().write(b"data")
    begun = time.monotonic()
    fs.rename("/many", "/moved")
    lap("rename")
    assert fs.list("/") == ["moved/"]
    assert fs.list("/moved") == names
    with pytest.raises(ps.MissingError):
        fs.stat(f"/many/{names[0]}")
    with fs.attach(f"/moved/{names[-1]}") as f:
        assert f.open().read(9) == b"data"
    fs.close()
    begun = time.monotonic()
    assert "nothing was found" in penstock("fs", "fsck", place / "v")
    lap("check")
    with ps.FileSystem(place / "v") as again:
        assert again.list("/moved") == names
        lap("open and list")
        for_each(lambda name: again.remove(f"/moved/{name}"))
        lap("remove")
        again.remove("/moved")
        assert again.list() == []
        assert again.usage().used == 0


def test_threads_create_the_same_names(fs: ps.FileSystem) -> None:
    """Each name is made by one of them, and the others are told so."""
    made: list[str] = []

    def create() -> None:
        for number in range(200):
            try:
                fs.create(f"/{number:03}", cells=1)
                made.append(f"{number:03}")
            except ps.ExistsError:
                pass

    on_threads([create] * THREADS)
    assert sorted(made) == fs.list("/") == [f"{number:03}" for number in range(200)]


class Writers:
    """Threads that overwrite a file until the block ends."""

    def __init__(self, f: ps.File, nbytes: int) -> None:
        self.f, self.nbytes = f, nbytes
        self.has_ended, self.rounds = threading.Event(), 0
        self.threads = [threading.Thread(target=self.write, args=(nth,)) for nth in range(2)]

    def write(self, nth: int) -> None:
        chance, s = np.random.default_rng(nth), self.f.open()
        while not self.has_ended.is_set():
            offset = int(chance.integers(0, self.nbytes))
            s.write_at(offset, np.full(chance.integers(1, self.nbytes // 4), 1 + nth, np.uint8))
            self.rounds += 1

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended.set()
        for thread in self.threads:
            thread.join()


def await_rounds(writers: Writers, rounds: int) -> None:
    """Waits until `rounds` more writes have ended."""
    until, wanted = time.monotonic() + 120, writers.rounds + rounds
    while writers.rounds < wanted:
        assert time.monotonic() < until, "no thread writes"
        time.sleep(0.001)


@pytest.mark.parametrize("cache_bytes", [1, 32 << 20], ids=["no cache", "a cache"])
def test_a_checkpoint_is_copied_while_others_write(place: Path, cache_bytes: int) -> None:
    """S5: the copy is the checkpoint, whether into another file or out of the volume."""
    cells, bsu, nbytes = 5, 1000, 1_000_003
    old = np.random.default_rng(2).integers(3, 256, nbytes, np.uint8)
    ps.FileSystem.create(place / "v", servers=SERVERS, block_bytes=4096).close()
    with ps.FileSystem(place / "v", cache_bytes=cache_bytes) as fs:
        fs.create("/f", cells=cells, bsu=bsu)
        fs.create("/copy", cells=3, bsu=77)
        with fs.attach("/f", "r+") as f, fs.attach("/copy", "r+") as copy:
            f.open().write(old)
            f.checkpoint()
            with Writers(f, nbytes) as writers:
                await_rounds(writers, 20)
                source, target = f.open(version="checkpoint"), copy.open()
                for _ in range(-(-nbytes // 50_000)):
                    target.write(source.read(50_000))
                    await_rounds(writers, 1)
                moved = fs.export_file(
                    "/f", place / "exported", version="checkpoint", memory_bytes=100_000
                )
                await_rounds(writers, 1)
                assert f.open(version="checkpoint").read(nbytes + 1) == old.tobytes()
            assert moved == nbytes
            assert (place / "exported").read_bytes() == old.tobytes()
            assert copy.open().read(nbytes + 1) == old.tobytes()
            assert f.open().read(nbytes) != old.tobytes()
            f.rollback()
            assert f.open().read(nbytes) == old.tobytes()
        assert fs.stat("/copy").bytes == nbytes
    assert "nothing was found" in penstock("fs", "fsck", "--data", place / "v")
