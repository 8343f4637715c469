"""The bounds of chunks that groups keep: what they rule out is not read, and nothing is missed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import work
import xarray as xr
import zarr
from helpers import penstock

import penstock as ps

DTYPES = ("?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8")
Condition = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
CONDITIONS: dict[str, Condition] = {
    "u > 3": lambda u, y, x: u > 3,
    "u == 0 or u >= 100": lambda u, y, x: (u == 0) | (u >= 100),
    "not u < 2": lambda u, y, x: ~(u < 2),
    "abs(u * 2) <= 8 and y > 2": lambda u, y, x: (abs(u * u.dtype.type(2)) <= 8) & (y > 2),
    "between(u, 1, 6)": lambda u, y, x: (u >= 1) & (u <= 6),
    "u in [1, 11]": lambda u, y, x: np.isin(u, [1, 11]),
    "x < 2 and u != 1": lambda u, y, x: (x < 2) & (u != 1),
    "u % 2 == 1": lambda u, y, x: u % u.dtype.type(2) == 1,
    "isnan(u) or y == 0": lambda u, y, x: (u != u) | (y == 0),
}
TRUTHS: dict[str, Condition] = {
    "u": lambda u, y, x: u,
    "not u": lambda u, y, x: ~u,
    "u == (y > 3)": lambda u, y, x: u == (y > 3),
}


def elements(chance: random.Random, dtype: str, shape: tuple[int, int]) -> np.ndarray:
    """Elements that are alike where they are near each other, but for some."""
    rng = np.random.default_rng(chance.randrange(1 << 32))
    smooth = np.add.outer(np.arange(shape[0]) // 3, np.arange(shape[1]) // 4) * 5 - 4
    if dtype == "?":
        return smooth > 5
    whole = (abs(smooth) if dtype[0] == "u" else smooth).astype(dtype)
    odd = rng.random(shape) < chance.choice([0, 0.02])
    if dtype[0] == "f":
        whole[odd] = rng.choice([np.nan, np.inf, -np.inf, 0.5], odd.sum())
    else:
        info = np.iinfo(dtype)
        whole[odd] = rng.choice(np.array([info.min, info.max, 0], dtype), odd.sum())
    return whole


def parts(array: ps.Array, rank: int, whole: np.ndarray) -> np.ndarray:
    """A rank's part of an array."""
    return whole[array.local_slices(rank)]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_missed(place: Path, seed: int) -> None:
    """Any type, chunks, codec, time chunk, ranks and servers; in one place, spread, in a bucket."""
    chance = random.Random(seed)
    ranks, servers = chance.randint(1, 4), chance.randint(1, 3)
    dtype = chance.choice(DTYPES)
    shape = (chance.randint(1, 12), chance.randint(1, 14))
    moments = [elements(chance, dtype, shape) for _ in range(chance.randint(1, 5))]
    chunk = tuple(chance.randint(1, extent) for extent in shape)
    disk = ps.Chunks(chunk, codec=chance.choice(["none", "zstd:1", "crc32c"]))
    path = chance.choice(
        [str(place / "run.zarr"), f"memory://{place.name}/run.zarr", str(place / "{server}.zarr")]
    )
    memory = ps.Distribution(chance.choice(["BLOCK,*", "*,BLOCK"]), ranks)
    u = ps.Array("u", shape, dtype, memory, disk)
    group = ps.Group("g", [u], path, bounds=True, time_chunk=chance.randint(1, 3))
    states = {path: np.stack(moments), f"{path}/checkpoints/7": moments[-1]}

    def main(s: ps.Session) -> None:
        for moment in moments:
            s.timestep(group, {"u": parts(u, s.rank, moment)})
        s.checkpoint(group, {"u": parts(u, s.rank, moments[-1])}, step=7)
        for where, whole in states.items():
            dims = ("t", "y", "x")[-whole.ndim :]
            rows = ps.Distribution(",".join(["BLOCK", *"*" * (whole.ndim - 1)]), s.size)
            array = ps.Array("u", whole.shape, dtype, rows, dims=dims)
            y, x = np.indices(whole.shape)[-2:]
            own = np.zeros(whole.shape, bool)
            own[array.local_slices(s.rank)] = True
            for text, condition in (TRUTHS if dtype == "?" else CONDITIONS).items():
                with np.errstate(all="ignore"):
                    true = condition(whole, y, x)
                work.check(s.select(where, array, where=text), whole, own & true)

    block_bytes = chance.choice([64, 1 << 20])
    ps.run(main, ranks=ranks, servers=servers, block_bytes=block_bytes, sync=False)


def test_what_is_ruled_out_is_not_read(place: Path) -> None:
    """Chunks that are damaged say which are read; other software reads the store as ever."""
    whole = np.arange(48.0).reshape(8, 6)
    path = place / "run.zarr"
    u = ps.Array("u", (8, 6), "f8", disk=ps.Chunks((2, 3), codec="crc32c"), dims=("y", "x"))
    group = ps.Group("g", [u], path, bounds=["u"], keep=1)
    with ps.Session() as s:
        for step in range(2):
            s.timestep(group, {"u": whole + 100 * step})
        s.checkpoint(group, {"u": whole})
        assert (zarr.open_group(path)["u"][1] == whole + 100).all()
        assert (xr.open_zarr(path)["u"].values[0] == whole).all()
        saved = s.open(path, "u")
        left = path / "u/c/0/3/0"
        for chunk in set(path.glob("u/c/*/*/*")) - {left}:
            chunk.write_bytes(b"no such chunk")
        found = s.select(path, saved, where="between(u, 36, 38)")
        assert found.values.tolist() == [36, 37, 38]
        assert s.select(path, saved, where="u < 0 or u > 147").values.size == 0
        with pytest.raises(ps.DamagedError):
            s.select(path, saved, where="between(u, 141, 144)")
        # An index rules out as much, without bounds.
        rows = s.select(path, saved, where="time == 0 and i1 >= 6 and i2 < 3")
        assert rows.values.tolist() == [36, 37, 38, 42, 43, 44]
        for chunk in (path / "checkpoints").glob("*/u/c/*/*"):
            chunk.write_bytes(b"no such chunk")
        checkpoint = next((path / "checkpoints").glob("[0-9]*"))
        state = s.open(checkpoint, "u")
        assert s.select(checkpoint, state, where="u > 47").values.size == 0
        with pytest.raises(ps.DamagedError):
            s.select(checkpoint, state, where="u > 46")


def test_bounds_are_kept_from_when_they_are_asked_for(place: Path) -> None:
    """A group that has some timesteps without; a session that does not ask; a restart; a repair."""
    path = place / "run.zarr"
    u = ps.Array("u", (4,), "i4", disk=ps.Chunks((2,)))
    plain = ps.Group("g", [u], path)
    bounded = ps.Group("g", [u], path, bounds=True)

    def save(group: ps.Group, value: int) -> None:
        with ps.Session() as s:
            s.timestep(group, {"u": np.full(4, value, "i4")})

    def found(where: str) -> list[int]:
        with ps.Session() as s:
            return s.select(path, s.open(path, "u"), where=where).values.tolist()

    for group, value in [(plain, 0), (bounded, 10), (plain, 20)]:
        save(group, value)
    kept = (path / ".penstock/record/bounds/u").read_bytes()
    assert len(kept) == 3 * 2 * 24 and kept[:48] == bytes(48) and kept[48:96] != bytes(48)
    assert found("u == 10") == [10] * 4 and found("u < 5") == [0] * 4

    # What a restart drops is written anew, with its own bounds.
    with ps.Session() as s:
        s.checkpoint(plain, {"u": np.full(4, 20, "i4")})
    save(plain, 30)
    with ps.Session() as s:
        s.restart(plain)
        s.timestep(plain, {"u": np.full(4, -1, "i4")})
    assert found("u < 0") == [-1] * 4 and found("u > 25") == []

    # A repair does not know whose timesteps they are.
    (path / ".penstock/record/group.json").write_text("{")
    ps.repair(path)
    assert not (path / ".penstock/record/bounds").exists()
    assert found("u < 0") == [-1] * 4
    save(bounded, 40)
    assert found("u > 35") == [40] * 4


def test_gathered_groups_have_their_own_bounds(place: Path) -> None:
    """A group of parts on several servers, gathered; a save to one does not change the other's."""
    u = ps.Array("u", (6,), "f4", ps.Distribution("BLOCK", 2), ps.Chunks((2,)))
    spread = ps.Group("g", [u], place / "{server}.zarr", bounds=True)
    whole = np.arange(6, dtype="f4")

    def main(s: ps.Session) -> None:
        s.timestep(spread, {"u": parts(u, s.rank, whole)})

    ps.run(main, ranks=2, servers=2)
    penstock("gather", place / "{server}.zarr", place / "all.zarr")
    kept = place / "all.zarr/.penstock/record/bounds/u"
    before = kept.read_bytes()
    assert len(before) == 3 * 24
    ps.run(main, ranks=2, servers=2)
    assert kept.read_bytes() == before
    with ps.Session() as s:
        saved = s.open(place / "all.zarr", "u")
        assert s.select(place / "all.zarr", saved, where="u > 3.5").values.tolist() == [4, 5]
        assert s.select(place / "all.zarr", saved, where="u > 3.5").report.blocks == 1
    assert ps.verify(place / "all.zarr").damages == ()
    kept.write_bytes(before[:-1] + b"\x00" if before[-1] else before[:-1] + b"\x01")
    assert any("bounds" in str(damage) for damage in ps.verify(place / "all.zarr").damages)


def test_elements_that_nobody_writes_are_within_bounds(place: Path) -> None:
    """A chunk that ranks hold in part has the fill value elsewhere, and so have its bounds."""
    path = place / "run.zarr"
    memory = ps.Boxes((0, 0), (3, 8))
    u = ps.Array("u", (16, 8), "f8", memory, ps.Chunks((8, 8)), fill_value=-7.0)
    group = ps.Group("g", [u], path, bounds=True)
    with ps.Session(block_bytes=64) as s:
        s.timestep(group, {"u": np.full((3, 8), 5.0)})
        saved = s.open(path, "u")
        assert len(s.select(path, saved, where="u == 5").values) == 24
        assert len(s.select(path, saved, where="u < -6").values) == 16 * 8 - 24


def test_rows_have_bounds(place: Path) -> None:
    """Timesteps of other numbers of rows, some of none, that share chunks."""
    path = place / "run.zarr"
    x = ps.Array("x", (None,), "f4", disk=ps.Chunks((5,)), dims=("particle",))
    group = ps.Group("cloud", [x], path, bounds=True)
    chance = np.random.default_rng(2)
    steps = [np.sort(chance.normal(size=n)).astype("f4") + n for n in (3, 0, 12, 1, 7)]

    def main(s: ps.Session) -> None:
        for rows in steps:
            s.timestep(group, {"x": np.array_split(rows, s.size)[s.rank]})
        whole = np.concatenate(steps)
        array = ps.Array("x", whole.shape, "f4", ps.Distribution("BLOCK", s.size))
        own = np.zeros(whole.shape, bool)
        own[array.local_slices(s.rank)] = True
        for limit in range(-2, 16):
            work.check(s.select(path, array, where=f"x > {limit}"), whole, own & (whole > limit))

    ps.run(main, ranks=3, servers=2)


def test_what_is_refused(place: Path) -> None:
    """Names of no array, elements without an order, files; bounds that are damaged."""
    u = ps.Array("u", (4,), "f8", disk=ps.Chunks((2,)))
    c = ps.Array("c", (4,), "c16", disk=ps.Chunks((2,)))
    for bounds in (["v"], "u", 3):
        with pytest.raises(ps.SchemaError):
            ps.Group("g", [u], place / "g.zarr", bounds=bounds)
    values = {"u": np.arange(4.0), "c": np.zeros(4, "c16")}
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="no order"):
            s.timestep(ps.Group("g", [u, c], place / "g.zarr", bounds=["c"]), values)
        mixed = ps.Group("g", [u, c], place / "g.zarr", bounds=True)
        assert mixed.bounds == ("u",)
        s.timestep(mixed, values)
        in_file = ps.Array("u", (4,), "f8", disk=ps.HDF5())
        with pytest.raises(ps.UnsupportedError, match="bounds"):
            s.timestep(ps.Group("g", [in_file], place / "g.h5", bounds=True), {"u": values["u"]})
        saved = s.open(place / "g.zarr", "u")
        kept = place / "g.zarr/.penstock/record/bounds/u"
        for damage in (b"\x01", bytes(47) + b"\x01"):
            kept.write_bytes(damage)
            with pytest.raises(ps.DamagedError, match="bounds"):
                s.select(place / "g.zarr", saved, where="u > 1")
            assert len(s.select(place / "g.zarr", saved, where="i1 > 1").values) == 2
        shutil.rmtree(kept.parent)
        assert s.select(place / "g.zarr", saved, where="u > 1").values.tolist() == [2, 3]


def test_ranks_must_agree(place: Path) -> None:
    """Bounds are part of what all ranks say of a group."""

    def main(s: ps.Session) -> None:
        u = ps.Array("u", (4,), "f8", ps.Distribution("BLOCK", 2), ps.Chunks((2,)))
        group = ps.Group("g", [u], place / "g.zarr", bounds=s.rank == 0)
        with pytest.raises(ps.MismatchError, match="bounds"):
            s.timestep(group, {"u": np.zeros(2)})

    ps.run(main, ranks=2)
