"""Disks that fail at chosen points of a save: the same typed error on every rank, what was complete
is there and correct, and the next call works.

The faults are those of `penstock.testing`; the full disk at the end is a real one.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr
from helpers import (
    assert_alike,
    caught,
    fails,
    faults,
    leftovers,
    opened_with,
    penstock,
    same_bits,
    tree,
    values,
)

import penstock as ps

SHAPE = (16, 8)
SERVERS = 2
WRITES = 4
"""Of each server, in each call, an array: its part of 8 blocks."""
CHUNKS = {
    "chunks": ps.Chunks((2, 8)),
    "zstd": ps.Chunks((2, 8), codec="zstd:1"),
    "shards": ps.Chunks((8, 8), subchunks=(2, 8), codec="zstd:1+crc32c"),
}
FLAT = {
    "raw": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", (8,)),
}
KINDS = {"ENOSPC": ps.FullError, "EIO": ps.IoError, "short": ps.FullError}
ENDS = [*itertools.product(["open", "finish"], [1], ["ENOSPC", "EIO"])]
FAULTS = [*itertools.product(["write"], [1, 2, WRITES], ["ENOSPC", "EIO", "short"])]
STEP = int(os.environ.get("PENSTOCK_STEP", "2"))
"""Of faults of writes a test meets every second one, other ranks the others: `make faults` all."""
JOB = {"servers": SERVERS, "block_bytes": 128}


def some_faults(first: int) -> list[tuple[str, int, str]]:
    """Those of ends, and of writes the first, the last, and every `STEP`-th from there on."""
    return [*ENDS, *dict.fromkeys([FAULTS[0], *FAULTS[first % STEP :: STEP], FAULTS[-1]])]


def array(disk, name: str = "u", ranks: int = 1) -> ps.Array:
    return ps.Array(
        name, SHAPE, "f8", memory=ps.Distribution("CYCLIC,*", (ranks,)), disk=disk, dims=("x", "y")
    )


def group(path: Path, form: str, ranks: int = 1) -> ps.Group:
    """Two arrays, of which the second is always of plain chunks."""
    arrays = [array(CHUNKS[form], "u", ranks), array(CHUNKS["chunks"], "v", ranks)]
    return ps.Group("g", arrays, path)


def whole(salt: int) -> dict[str, np.ndarray]:
    return {"u": values(SHAPE, "f8", salt), "v": values(SHAPE, "f8", 1000 + salt)}


def parts(job: ps.Group, session: ps.Session, salt: int) -> dict[str, np.ndarray]:
    return {name: full[session.rank :: session.size] for name, full in whole(salt).items()}


def timestep(session: ps.Session, job: ps.Group, salt: int):
    return session.timestep(job, parts(job, session, salt))


def checkpoint(session: ps.Session, job: ps.Group, salt: int):
    return session.checkpoint(job, parts(job, session, salt), step=salt)


@pytest.fixture
def failing(monkeypatch):
    """Disks of sessions that are opened from now on fail so, or (without a word) no longer."""

    def so(*fault) -> None:
        opened_with(monkeypatch, faults=faults(*fault))

    return so


def check_group(
    path: Path, timesteps: list[int], saved: int | None, private=frozenset({"zarr.json", "record"})
) -> None:
    """The group is of these timesteps, for every sort of reader, and restores that checkpoint."""
    with xarray.open_zarr(path, chunks=None) as data:  # Dask would take most of the time
        assert data.sizes["time"] == len(timesteps)
        for name in ("u", "v"):
            expected = [whole(salt)[name] for salt in timesteps]
            assert same_bits(data[name].values, np.reshape(expected, (len(timesteps), *SHAPE)))
    by_itself = zarr.open_group(path, mode="r", use_consolidated=False)
    assert by_itself["u"].shape[0] == by_itself["v"].shape[0] == len(timesteps)
    check_checkpoint(path, saved, private)


def check_checkpoint(
    path: Path, saved: int | None, private=frozenset({"zarr.json", "record"})
) -> None:
    """The group restores that checkpoint, and nothing else is there."""
    with ps.Session() as s:
        state = s.restart(group(path, form_of(path)))
        assert (state and state.step) == saved
        if state is not None:
            for name, full in whole(saved).items():
                assert same_bits(state[name], full)
    found = {entry.name for entry in (path / ".penstock").iterdir()}
    assert found == private, "something is left over"
    assert not leftovers(path.parent)


def form_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("form", CHUNKS)
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("save", [timestep, checkpoint])
def test_a_save_that_fails(place, failing, form, ranks, save):
    path = place / form
    job = group(path, form, ranks)

    def begin(s):
        timestep(s, job, 1)
        checkpoint(s, job, 2)
        timestep(s, job, 3)

    ps.run(begin, ranks, **JOB)
    timesteps, saved = [1, 3], 2
    met = some_faults(ranks // 4)
    looks = [*met[ranks // 4 :: 3], met[-1]]  # of others, which see all earlier saves
    for salt, fault in enumerate(met, 4):
        before = tree(path)
        failing(*fault)
        fails(KINDS[fault[2]], lambda s, n=salt: save(s, job, n), str(path), ranks=ranks, **JOB)
        assert tree(path) == before, f"{fault}: the group is not as it was"
        failing()
        ps.run(lambda s, n=salt: save(s, job, n), ranks, **JOB)
        if save is timestep:
            timesteps.append(salt)
        else:
            saved = salt
        if fault in looks:
            check_group(path, timesteps, saved)
        else:
            check_checkpoint(path, saved)


@pytest.mark.parametrize("form", CHUNKS)
@pytest.mark.parametrize("save", [timestep, checkpoint])
def test_a_save_that_fails_on_a_disk_of_a_server(place, failing, form, save):
    """What was complete is read in place; what is gathered is as if nothing had failed."""
    for server in range(SERVERS):
        (place / f"disk{server}").mkdir()
    path = place / "disk{server}" / form
    job = group(path, form, 2)
    ps.run(lambda s: (timestep(s, job, 1), checkpoint(s, job, 2)), 2, **JOB)
    timesteps, saved = [1], 2
    for salt, fault in enumerate(some_faults(save is timestep), 3):
        failing(*fault)
        fails(KINDS[fault[2]], lambda s, n=salt: save(s, job, n), form, ranks=2, **JOB)
        failing()
        with ps.Session() as s:
            series = ps.Array("u", (len(timesteps), *SHAPE), "f8")
            expected = np.stack([whole(step)["u"] for step in timesteps])
            assert same_bits(s.read(path, series), expected)
            assert same_bits(s.restart(group(path, form))["v"], whole(saved)["v"])
        ps.run(lambda s, n=salt: save(s, job, n), 2, **JOB)
        if save is timestep:
            timesteps.append(salt)
        else:
            saved = salt
    penstock("gather", path, place / form)
    check_group(place / form, timesteps, saved)


@pytest.mark.parametrize("form", CHUNKS)
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("save", [timestep, checkpoint])
def test_the_first_save_of_a_group_fails(place, failing, form, ranks, save):
    """The group is there, and empty."""
    for number, fault in enumerate(some_faults(ranks // 4)):
        path = place / str(number) / form
        path.parent.mkdir()
        job = group(path, form, ranks)
        failing(*fault)
        fails(KINDS[fault[2]], lambda s, j=job: save(s, j, 1), str(path), ranks=ranks, **JOB)
        failing()
        check_group(path, [], None)
        ps.run(lambda s, j=job: save(s, j, 1), ranks, **JOB)
        check_group(path, *(([1], None) if save is timestep else ([], 1)))


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_same_session_goes_on(place, failing, ranks):
    """After a save that has failed; its disks only fail as they write for the fourth time."""
    path = place / "chunks"
    job, small = group(path, "chunks", ranks), array(CHUNKS["shards"], "w", ranks)
    ps.run(lambda s: checkpoint(s, job, 1), ranks, **JOB)
    failing("write", WRITES, "EIO")

    def main(s):
        met = caught(lambda: timestep(s, job, 2))
        state = s.restart(job)
        again = caught(lambda: timestep(s, job, 3))
        one = small.with_memory(ps.Distribution("*,*", ()))
        region = np.s_[0:4] if s.rank == 0 else np.s_[0:0]
        rows = 4 if s.rank == 0 else 0
        s.write(place / "other", one, np.ones((rows, 8)), region=region)
        return met, again, {name: part.copy() for name, part in state.items()}

    ended = ps.run(main, ranks, **JOB)
    for which in (0, 1):
        assert_alike([met[which] for met in ended], ps.IoError, str(path))
    for rank, (_, _, state) in enumerate(ended):
        assert all(same_bits(state[name], full[rank::ranks]) for name, full in whole(1).items())
    check_group(path, [], 1)


@pytest.mark.parametrize("form", CHUNKS)
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("nth", [1, 2, WRITES])
def test_a_restart_that_cannot_read(place, failing, form, ranks, nth):
    path = place / form
    job = group(path, form, ranks)
    ps.run(lambda s: checkpoint(s, job, 1), ranks, **JOB)
    for operation in ("open", "read"):
        failing(operation, 1 if operation == "open" else nth, "EIO")
        fails(ps.IoError, lambda s: s.restart(job), str(path), ranks=ranks, **JOB)
    failing()
    check_group(path, [], 1)


def region_of(session: ps.Session, rows: tuple[int, int] = (1, 15)):
    """A rank's part of rows 1 to 14: a part of the first and the last block, and all others."""
    first, end = rows
    count = -(-(end - first) // session.size)
    start = min(end, first + session.rank * count)
    return np.s_[start : min(end, start + count), 1:8]


@pytest.mark.parametrize("form", [*CHUNKS, *FLAT])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_part_of_an_array_that_fails(place, failing, form, ranks):
    path, u = place / "s", array({**CHUNKS, **FLAT}[form], ranks=ranks)
    truth = values(SHAPE, "f8", 0)
    ps.run(lambda s: s.write(path, u, truth[s.rank :: ranks]), ranks, **JOB)

    def change(s, salt):
        region = region_of(s)
        return s.write(path, u, values(SHAPE, "f8", salt)[region], region=region)

    for salt, fault in enumerate(some_faults(ranks // 4), 1):
        before = tree(place)
        failing(*fault)
        fails(KINDS[fault[2]], lambda s, n=salt: change(s, n), ranks=ranks, **JOB)
        assert tree(place) == before, f"{fault}: the array is not as it was"
        assert not leftovers(place)
        failing()
        ps.run(lambda s, n=salt: change(s, n), ranks, **JOB)
        truth[1:15, 1:8] = values(SHAPE, "f8", salt)[1:15, 1:8]
        found = ps.run(lambda s: s.read(path, u), ranks, **JOB)
        for rank in range(ranks):
            assert same_bits(found[rank], truth[rank::ranks])
        assert not leftovers(place)


@pytest.mark.parametrize("form", [*CHUNKS, *FLAT])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_whole_array_that_fails(place, failing, form, ranks):
    u = array({**CHUNKS, **FLAT}[form], ranks=ranks)

    def write(s, path, salt):
        return s.write(path, u, values(SHAPE, "f8", salt)[s.rank :: ranks])

    ps.run(lambda s: write(s, place / "old", 0), ranks, **JOB)
    for salt, fault in enumerate(some_faults(ranks // 4), 1):
        before = tree(place)
        failing(*fault)
        for name in ("old", "new"):
            kind = KINDS[fault[2]]
            fails(kind, lambda s, n=name, m=salt: write(s, place / n, m), ranks=ranks, **JOB)
            assert tree(place) == before, f"{fault}: something has changed"
            assert not leftovers(place)
        failing()
        ps.run(lambda s, n=salt: write(s, place / "old", n), ranks, **JOB)
        found = ps.run(lambda s: s.read(place / "old", u), ranks, **JOB)
        for rank in range(ranks):
            assert same_bits(found[rank], values(SHAPE, "f8", salt)[rank::ranks])


# ---------------------------------------------------------------------------------------------
# A disk that is really full
# ---------------------------------------------------------------------------------------------


def fill(place: Path, spare_pages: int) -> None:
    """Leaves so many pages of 4 KiB."""
    filler = place / "filler"
    filler.unlink(missing_ok=True)
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() // 4096 - spare_pages) * 4096)


@pytest.mark.parametrize("save", [timestep, checkpoint])
def test_a_disk_that_becomes_full_at_any_point(tiny, save):
    """A save needs some pages: with none, one, two and so on to spare, until it succeeds."""
    path = tiny / "zstd"
    job = group(path, "zstd", 4)

    def begin(s):
        timestep(s, job, 1)
        checkpoint(s, job, 2)

    ps.run(begin, 4, **JOB)
    failed = 0
    for spare in range(200):
        fill(tiny, spare)
        met = ps.run(lambda s: caught(lambda: save(s, job, 3)), 4, **JOB)
        (tiny / "filler").unlink()
        if not isinstance(met[0], ps.Error):
            break
        failed += 1
        assert_alike(met, ps.FullError, str(path))
        with xarray.open_zarr(path, chunks=None) as data:
            assert data.sizes["time"] == 1, f"{spare} pages: a save that has failed is there"
            assert all(same_bits(data[name].values[0], full) for name, full in whole(1).items())
    assert failed > 8, "the disk has hardly been full"
    check_group(path, *(([1, 3], 2) if save is timestep else ([1], 3)))
