"""Work at the servers: selections, reductions and thinning, against NumPy."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import work
import zarr
from conformance import random_case

import penstock as ps

SHAPE = (20, 30)
SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cases_are_as_in_numpy(place: Path, seed: int) -> None:
    """Any type, shape, distribution and disk schema, any number of ranks and servers."""
    chance = random.Random(seed)
    ranks, servers = chance.randint(1, 5), chance.randint(1, 4)
    case = random_case(chance, ranks, ranks)

    def main(s: ps.Session) -> None:
        work.round_trip(s, case, place / "run", seed)

    block_bytes = chance.choice([64, 1000, 1 << 20])
    ps.run(main, ranks=ranks, servers=servers, block_bytes=block_bytes, sync=False)


def values(dtype: str = "f8") -> np.ndarray:
    return np.random.default_rng(3).normal(size=SHAPE).astype(dtype)


def stored(place: Path, whole: np.ndarray, **options: object) -> Path:
    """The array `u` in a Zarr group, by other people's software."""
    group = zarr.open_group(place / "run.zarr", mode="w")
    array = group.create_array("u", shape=whole.shape, dtype=whole.dtype, **options)
    array[...] = whole
    return place / "run.zarr"


def of(whole: np.ndarray, ranks: int, disk: object = None) -> ps.Array:
    memory = ps.Distribution("BLOCK,*", ranks)
    return ps.Array("u", whole.shape, whole.dtype, memory, disk, dims=("y", "x"))


def test_conditions_of_every_type_are_numpys(place: Path) -> None:
    """Random expressions of all real types, also such as overflow, divide by zero, mix signs."""
    rng = np.random.default_rng(1)
    mine = [
        "u + {a} > {b}",
        "u - i0 * 3 <= {b}",
        "u * u < {b}",
        "u * i1 >= u",
        "-u < {b}",
        "u // {c} == {b}",
        "u % {c} >= 1",
        "u / {c} < {b}",
        "(u + i0) // (i1 - 5) > 2",
        "(u - i0) % (i1 - 5) < 0",
        "abs(u) == {b}",
        "u == i1",
        "u < i0",
        "u != {f}",
        "u > {f}",
        "u * {f} > i0",
        "u ** 2 > {b}",
        "u / i0 > 1",
        "i0 / i1 < 1",
        "u in [{b}, {a}, i0]",
    ]
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"):
        kind = np.dtype(dtype)
        if kind.kind == "f":
            whole = (rng.normal(size=SHAPE) * 10).astype(dtype)
            whole[rng.random(SHAPE) < 0.2] = 0
            whole.flat[:4] = (np.nan, np.inf, -np.inf, -0.0)
        else:
            info = np.iinfo(dtype)
            whole = rng.integers(info.min, info.max, SHAPE, dtype, endpoint=True)
            small = rng.random(SHAPE) < 0.6
            whole[small] = rng.integers(0, 20, SHAPE).astype(dtype)[small]
            whole.flat[:2] = (info.min, info.max)
        path = stored(place, whole, chunks=(7, 11))
        with ps.Session(servers=2) as s:
            for text in mine:
                numbers = {
                    "a": int(rng.integers(0, 100)),
                    "b": int(rng.integers(0, 30)),
                    "c": int(rng.integers(1, 9)),
                    "f": round(float(rng.normal() * 9), 3),
                }
                text = text.format(**numbers)
                theirs = text
                if " in " in text:
                    theirs = "(u == {b}) | (u == {a}) | (u == i0)".format(**numbers)
                found = s.select(path, of(whole, 1), where=text)
                work.check(found, whole, work.holds(theirs, whole))


def test_what_numpy_refuses_is_refused(place: Path) -> None:
    """Integers that a type has not, and negative powers of integers."""
    whole = np.arange(600, dtype="u1").reshape(SHAPE)
    path = stored(place, whole)
    i0, i1 = np.indices(SHAPE)
    with ps.Session() as s:
        for text, cause in (
            ("u + 256 > 0", "column 3: 256 is no uint8"),
            ("u ** -1 > 0", "column 3"),
            ("i0 ** (i1 - 5) > 0", "negative power"),
        ):
            with pytest.raises((ValueError, OverflowError)):
                eval(text, {"u": whole, "i0": i0, "i1": i1})
            with pytest.raises(ps.SchemaError, match=cause.replace("(", "\\(")):
                s.select(path, of(whole, 1), where=text)


def test_undesired_elements_never_leave_the_servers(place: Path) -> None:
    """The bytes of the report are those of the elements, and of their places."""
    whole = np.zeros((1000, 1000))
    whole[::100, ::10] = 1
    path = stored(place, whole, chunks=(100, 100))

    def main(s: ps.Session) -> ps.Report:
        return s.select(path, of(whole, s.size), where="u > 0").report

    for report in ps.run(main, ranks=3, servers=2):
        assert report.disk_bytes == whole.nbytes and report.blocks == 100
        assert 1000 * 8 < report.bytes < 1000 * 12
    nothing = ps.run(lambda s: s.select(path, of(whole, s.size), where="u > 1").report, ranks=2)
    assert [report.bytes for report in nothing] == [0, 0]


def test_regions_and_lists(place: Path) -> None:
    """Regions of several ranks overlap, lists have elements twice; each element comes once."""
    whole = values()
    path = stored(place, whole, chunks=(6, 7))
    rows = [slice(0, 12), slice(5, 20), slice(3, 3)]

    def main(s: ps.Session) -> None:
        true = whole > 0
        mask = np.zeros(SHAPE, bool)
        mask[rows[s.rank], 2:9] = True
        region = (rows[s.rank], slice(2, 9))
        work.check(s.select(path, of(whole, 1), where="u > 0", region=region), whole, true & mask)
        several = [region, (slice(4, 8), slice(0, 4))]
        mask[4:8, 0:4] = True
        work.check(s.select(path, of(whole, 1), where="u > 0", region=several), whole, true & mask)
        mask[...] = False
        mask[:, 2:9] = True
        numbers = np.flatnonzero(true & mask)
        found = s.select(path, of(whole, 1), where="u > 0", region=region, balanced=True)
        cuts = [len(numbers) * r // s.size for r in range(s.size + 1)]
        expected = np.unravel_index(numbers[cuts[s.rank] : cuts[s.rank + 1]], SHAPE)
        np.testing.assert_array_equal(found.indices, np.transpose(expected))
        own = np.random.default_rng(s.rank).integers(0, whole.size, 300)
        mask[...] = False
        mask.flat[own] = True
        found = s.select(path, of(whole, 1), where="u > 0", region=ps.Runs(own, 1))
        work.check(found, whole, true & mask)

    ps.run(main, ranks=3, servers=2)


@pytest.mark.parametrize(
    "name", ["npy", "fortran", "raw", "parts", "hdf5", "netcdf", "shards", "v2"]
)
def test_every_format(place: Path, name: str) -> None:
    """What Session.read reads."""
    whole = values()
    path = place / "u"
    array = of(whole, 1)
    if name in ("npy", "fortran"):
        np.save(place / "u.npy", np.asfortranarray(whole) if name == "fortran" else whole)
        path = place / "u.npy"
    elif name == "raw":
        whole.tofile(path)
        array = of(whole, 1, ps.RowMajor("raw"))
    elif name == "v2":
        zarr.save_array(str(place / "u"), whole, zarr_format=2)
    else:
        disk = {
            "parts": ps.Distribution("BLOCK,BLOCK", (2, 3)),
            "hdf5": ps.HDF5((6, 7), filters="shuffle+deflate:1"),
            "netcdf": ps.NetCDF((6, 7)),
            "shards": ps.Chunks((12, 14), subchunks=(6, 7), codec="zstd:1"),
        }[name]
        path = place / {"hdf5": "u.h5", "netcdf": "u.nc"}.get(name, "u")
        with ps.Session() as s:
            s.write(path, of(whole, 1, disk), whole)

    def main(s: ps.Session) -> None:
        own = array.with_memory(ps.Distribution("BLOCK,*", s.size))
        rows = -(-SHAPE[0] // s.size)
        mask = np.zeros(SHAPE, bool)
        mask[s.rank * rows : (s.rank + 1) * rows] = True
        work.check(s.select(path, own, where="y > 3 and u < 0.3 or x == 5"), whole, mask & true)
        total = s.reduce(path, own, how="max", over="x")
        np.testing.assert_array_equal(total, whole.max(axis=1))
        thin = s.read(path, own, every=(3, 4), region=np.s_[:])
        np.testing.assert_array_equal(thin, whole[::3, ::4])

    y, x = np.indices(SHAPE)
    true = (y > 3) & (whole < 0.3) | (x == 5)
    ps.run(main, ranks=2, servers=3, block_bytes=400)


def test_buckets_and_groups(place: Path) -> None:
    """Objects in a bucket; timesteps; a checkpoint."""
    whole = values()
    url = f"memory://{place.name}/run.zarr"
    with ps.Session() as s:
        s.write(url, of(whole, 1, ps.Chunks((6, 7))), whole)
        work.check(s.select(url, of(whole, 1), where="u > 1"), whole, whole > 1)
        np.testing.assert_array_equal(s.reduce(url, of(whole, 1), how="min"), whole.min())
        group = ps.Group("g", [of(whole, 1)], path=place / "g.zarr")
        for step in range(3):
            s.timestep(group, {"u": whole + step}, time=step)
        in_time = s.open(place / "g.zarr", "u")
        times = np.stack([whole + step for step in range(3)])
        work.check(
            s.select(place / "g.zarr", in_time, where="time == 2 and u > 3"),
            times,
            (times > 3) & (np.arange(3) == 2)[:, None, None],
        )
        mean = s.reduce(place / "g.zarr", in_time, how="max", over="time")
        np.testing.assert_array_equal(mean, times.max(axis=0))


def test_sums_are_the_same_for_all_ranks_servers_and_chunks(place: Path) -> None:
    """To the last bit, of numbers whose sum depends on their order."""
    rng = np.random.default_rng(8)
    whole = rng.normal(size=SHAPE) * 10.0 ** rng.integers(-200, 200, SHAPE)
    found = set()
    for number, chunks in enumerate([(20, 30), (3, 4), (7, 30), (1, 1)]):
        path = stored(place, whole, chunks=chunks)
        for ranks, servers in ((1, 1), (3, 1), (2, 4), (4, 3)):

            def main(s: ps.Session, path: Path = path) -> bytes:
                array = of(whole, s.size)
                sums = s.reduce(path, array, how="sum", over=0).tobytes()
                return sums + s.reduce(path, array, how="mean").tobytes()

            found |= set(ps.run(main, ranks=ranks, servers=servers))
        assert len(found) == 1, number
    expected = [work.exact(column, False) for column in whole.T]
    assert found == {np.array([*expected, work.exact(whole.ravel(), True)]).tobytes()}


@pytest.mark.parametrize("order", ["random", "ascending", "equal", "nan"])
def test_sampled_splitters_deal_out_evenly(place: Path, order: str) -> None:
    """Each element goes where its value sends it, and no rank gets much more than its part."""
    whole = np.random.default_rng(4).normal(size=(300, 1000)).astype("f4")
    if order == "ascending":
        whole = np.sort(whole, axis=None).reshape(whole.shape)
    elif order == "equal":
        whole[...] = 2
    elif order == "nan":
        whole[::2] = np.nan
    path = stored(place, whole, chunks=(7, 400))

    def main(s: ps.Session) -> ps.Selection:
        array = of(whole, s.size)
        mine = s.read(path, array, by="u", splitters="sampled")
        few = s.select(path, array, where="x < 100", by="y * 2", splitters="sampled")
        assert abs(len(few.values) - 30_000 / s.size) < 0.2 * 30_000 / s.size
        return mine

    got = ps.run(main, ranks=4, servers=2)
    for rank, found in enumerate(got):
        assert (found.splitters == got[0].splitters).all() and len(found.splitters) == 3
        ranks = np.searchsorted(found.splitters, whole.astype("f8"), side="right")
        work.check(found, whole, ranks == rank)
    if order in ("random", "ascending"):
        assert max(len(found.values) for found in got) < 1.15 * whole.size / 4
    elif order == "nan":
        assert len(got[0].values) == pytest.approx(whole.size / 4, rel=0.15)


def test_sampled_splitters_of_few_elements(place: Path) -> None:
    """Fewer elements than runs, one, none; one rank; what has no splitters."""
    for shape in [(3, 5), (1, 1), (0, 4)]:
        whole = np.arange(np.prod(shape), dtype="i8").reshape(shape)
        path = stored(place, whole)

        def main(s: ps.Session, whole: np.ndarray = whole, path: Path = path) -> int:
            array = of(whole, s.size)
            found = s.read(path, array, by="u", splitters="sampled")
            with pytest.raises(ps.SchemaError, match="no splitters"):
                s.read(path, array, by="u > 1", splitters="sampled")
            with pytest.raises(ps.SchemaError, match="column 1"):
                s.read(path, array, by="w", splitters="sampled")
            return len(found.values)

        for ranks in (1, 3):
            assert sum(ps.run(main, ranks=ranks)) == whole.size
        if whole.size == 15:
            assert ps.run(main, ranks=3) == [5, 5, 5]


def test_a_read_by_a_value_has_no_place_of_its_own(place: Path) -> None:
    """What is not for such a read is refused by name."""
    whole = values()
    path = stored(place, whole)
    array = of(whole, 1)
    with ps.Session() as s:
        found = s.read(path, array, by="y")
        work.check(found, whole, np.ones(SHAPE, bool))
        assert found.splitters is None
        for options in ({"out": whole}, {"every": 2}, {"strategy": "two-phase"}):
            with pytest.raises(ps.SchemaError, match=next(iter(options))):
                s.read(path, array, by="y", **options)
        with pytest.raises(ps.SchemaError, match="not given"):
            s.read(path, array, splitters="sampled")
        with pytest.raises(ps.SchemaError, match="sampled"):
            s.read(path, array, by="y", splitters="some")


def test_indices_rule_out_blocks(place: Path) -> None:
    """Blocks that cannot have an element at such indices are not read."""
    whole = values()
    path = stored(place, whole, chunks=(2, 10))

    def main(s: ps.Session) -> None:
        array = of(whole, s.size)
        for where, blocks in [
            ("y < 4", 6),
            ("x == 29 and y >= 18", 1),
            ("y > 3 and y < 3", 0),
            ("y + x < 2 or u > 100", 30),
        ]:
            found = s.select(path, array, where=where)
            assert found.report.blocks == blocks, where
            y, x = np.indices(SHAPE)
            own = np.zeros(SHAPE, bool)
            own[array.local_slices(s.rank)[0]] = True
            theirs = where.replace(" and ", ") & (").replace(" or ", ") | (")
            true = eval(f"({theirs})", {"y": y, "x": x, "u": whole})
            work.check(found, whole, own & true)

    ps.run(main, ranks=2, servers=2)


def test_thinning_reads_only_blocks_with_elements(place: Path) -> None:
    """Every fourth row of chunks of one row."""
    whole = values()
    path = stored(place, whole, chunks=(1, 30))
    (place / "run.zarr" / "u" / "c" / "1" / "0").write_bytes(b"damaged")

    def main(s: ps.Session) -> np.ndarray:
        return s.read(path, of(whole, s.size), every=(4, 1))

    parts = ps.run(main, ranks=2, servers=2)
    np.testing.assert_array_equal(np.concatenate(parts), whole[::4])
    with ps.Session() as s, pytest.raises(ps.DamagedError):
        s.read(path, of(whole, 1), every=(1, 4))


def test_one_rank_that_asks_for_something_else_is_a_mismatch(place: Path) -> None:
    """The error is the same on all ranks, and the session goes on."""
    whole = values()
    path = stored(place, whole)

    def errors(s: ps.Session, call: object) -> tuple[type, str]:
        with pytest.raises(ps.Error) as caught:
            call(s.rank)  # type: ignore[operator]
        return type(caught.value), str(caught.value)

    def main(s: ps.Session) -> list[tuple[type, str]]:
        array = of(whole, s.size)
        last = s.size - 1
        found = [
            errors(s, lambda r: s.select(path, array, where="u > 0" if r < last else "u >")),
            errors(s, lambda r: s.select(path, array, where="u > 0", balanced=r == 0)),
            errors(s, lambda r: s.reduce(path, array, how="sum", over=0 if r else 1)),
            errors(s, lambda r: s.reduce(path, array, how="sum" if r else "max")),
            errors(s, lambda r: s.reduce(path, array, how="histogram", bins=[0, r + 1])),
            errors(s, lambda r: s.read(path, array, every=(2, 1 + r))),
            errors(s, lambda r: s.select(path, array, where="u >")),
            errors(s, lambda r: s.select(path, array, where=3 if r == last else "u > 0")),
            errors(s, lambda r: s.select(place / "none", array, where="u > 0")),
            errors(s, lambda r: s.reduce(path, array, how="median")),
            errors(s, lambda r: s.reduce(path, array, how="sum", over="z")),
            errors(s, lambda r: s.reduce(path, array, how="sum", over=2)),
            errors(s, lambda r: s.reduce(path, array, how="histogram")),
            errors(s, lambda r: s.reduce(path, array, how="histogram", bins=[1, 0])),
            errors(s, lambda r: s.reduce(path, array, how="max", region=np.s_[3:3])),
            errors(s, lambda r: s.read(path, array, every=(2, 0))),
            errors(s, lambda r: s.read(path, array, every=(2, 1, 1))),
            errors(s, lambda r: s.read(path, array, every=2, region=ps.Runs([0], 1))),
        ]
        assert s.reduce(path, array, how="count") == whole.size
        return found

    all_found = ps.run(main, ranks=3, servers=2)
    assert all_found[0] == all_found[1] == all_found[2]
    kinds = [kind for kind, _ in all_found[0]]
    assert kinds[:6] == [ps.MismatchError] * 6
    assert kinds[6:8] == [ps.SchemaError] * 2 and "column 4" in all_found[0][6][1]
    assert kinds[8] is ps.MissingError
    assert kinds[9:17] == [ps.SchemaError] * 8 and issubclass(kinds[17], ps.Error)
    assert "column" not in all_found[0][0][1] or "u >" in all_found[0][0][1]


def test_damage_is_found_by_all_ranks(place: Path) -> None:
    """A chunk that cannot be decoded, in the middle of a call, with much to deliver."""
    whole = values()
    path = stored(place, whole, chunks=(2, 30))
    (place / "run.zarr" / "u" / "c" / "5" / "0").write_bytes(b"nothing that zstd knows")

    def main(s: ps.Session) -> list[str]:
        array = of(whole, s.size)
        found = []
        for call in (
            lambda: s.select(path, array, where="True"),
            lambda: s.select(path, array, where="True", balanced=True),
            lambda: s.reduce(path, array, how="sum"),
        ):
            with pytest.raises(ps.DamagedError) as caught:
                call()
            found.append(str(caught.value))
        rest = s.select(path, array, where="u > 0", region=np.s_[0:10])
        work.check(rest, whole, (whole > 0) & (np.arange(20) < 10)[:, None])
        return found

    for ranks, servers in ((1, 1), (4, 1), (2, 3)):
        found = ps.run(main, ranks=ranks, servers=servers)
        assert all(each == found[0] for each in found)


def test_much_is_delivered_to_a_rank_that_is_slow(place: Path) -> None:
    """All of 16 MiB go to one rank, more than may be under way at once, in one block or many."""
    whole = np.random.default_rng(0).random((1 << 10, 1 << 11))
    np.save(place / "u.npy", whole)

    def main(s: ps.Session) -> int:
        array = ps.Array("u", whole.shape, "f8")
        found = s.select(place / "u.npy", array, where="u >= 0")
        if s.rank == 0:
            assert found.values.tobytes() == whole.tobytes()
        dealt = s.select(place / "u.npy", array, where="u >= 0", balanced=True)
        return len(found.values) * 10 + len(dealt.values) % 10

    for block_bytes in (1 << 16, 1 << 24):
        found = ps.run(main, ranks=3, servers=2, block_bytes=block_bytes)
        assert found[0] // 10 == whole.size and found[1] // 10 == found[2] // 10 == 0


def test_many_cells_are_delivered_before_the_end(place: Path) -> None:
    """More folds than a server keeps: a bin for each of many cells."""
    rng = np.random.default_rng(5)
    cells, bins = 2_400, 4_000  # of 8 bytes: 1.1 times what a server keeps
    whole = rng.integers(0, 50, (4, cells), dtype="u1")
    path = stored(place, whole, chunks=(1, 600))
    edges = np.arange(0, bins + 1, dtype="f8")

    def main(s: ps.Session) -> None:
        found = s.reduce(path, of(whole, s.size), how="histogram", over=0, bins=edges)
        assert found.shape == (cells, bins) and found.sum() == whole.size
        cell = rng.integers(0, cells, 50)
        for at in cell:
            np.testing.assert_array_equal(found[at], np.histogram(whole[:, at], edges)[0])

    ps.run(main, ranks=2, servers=1)


def test_arrays_of_no_dimensions_and_of_no_elements(place: Path) -> None:
    """One element, and none."""
    for shape in ((), (0,), (3, 0), (1,)):
        whole = np.full(shape, 7.5)
        np.save(place / "u.npy", whole)

        def main(s: ps.Session, whole: np.ndarray = whole) -> None:
            array = ps.Array("u", whole.shape, "f8")
            found = s.select(place / "u.npy", array, where="u == 7.5")
            mask = np.full(whole.shape, s.rank == 0)
            work.check(found, whole, mask)
            assert s.reduce(place / "u.npy", array, how="sum") == whole.sum()
            assert s.reduce(place / "u.npy", array, how="count") == whole.size

        ps.run(main, ranks=2, servers=3)


def test_other_strategies_thin_too(place: Path) -> None:
    """Lists go by every strategy."""
    whole = values()
    path = stored(place, whole, chunks=(6, 7))

    def main(s: ps.Session) -> None:
        for strategy in ("disk-directed", "two-phase", "caching", "independent"):
            array = of(whole, s.size).with_memory(ps.Distribution("CYCLIC(2),BLOCK", (2, 1)))
            part = s.read(path, array, every=(2, 3), strategy=strategy)
            thinned = whole[::2, ::3]
            rows = [r for r in range(10) if r // 2 % 2 == s.rank]
            np.testing.assert_array_equal(part, thinned[rows])
            two = [ps.Boxes((0, 0), (2, 3)), ps.Boxes((5, 1), (1, 4))]
            parts = s.read(
                path, array.with_memory(two if s.rank == 0 else []), every=(2, 3), strategy=strategy
            )
            if s.rank == 0:
                np.testing.assert_array_equal(parts[0], thinned[0:2, 0:3])
                np.testing.assert_array_equal(parts[1], thinned[5:6, 1:5])
            else:
                assert parts == []

    ps.run(main, ranks=2, servers=2)


def test_extremes_are_the_same_for_all_ranks_servers_and_chunks(place: Path) -> None:
    """Zeros of both signs, and several kinds of NaN: to the last bit."""
    whole = np.zeros(SHAPE)
    whole[::2] = -0.0
    whole[:, 3] = np.array([0x7FF8000000000001, 0xFFF8000000000000] * 10, "u8").view("f8")
    found = set()
    for chunks in [(20, 30), (3, 4), (1, 1)]:
        path = stored(place, whole, chunks=chunks)

        def main(s: ps.Session, path: Path = path) -> bytes:
            each = [s.reduce(path, of(whole, s.size), how=how, over=0) for how in work.HOWS[:4]]
            return b"".join(result.tobytes() for result in each)

        for ranks, servers in ((1, 1), (2, 4), (4, 3)):
            found |= set(ps.run(main, ranks=ranks, servers=servers))
    least, greatest, means, sums = np.split(np.frombuffer(found.pop(), "f8"), 4)
    assert not found
    assert np.isnan([least[3], greatest[3], means[3], sums[3]]).all()
    assert np.signbit(np.delete(least, 3)).all() and not np.signbit(np.delete(greatest, 3)).any()


def test_the_page(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/select.md shows."""
    page = (Path(__file__).parent.parent / "docs" / "select.md").read_text()
    program, of_records, of_bounds = re.findall(
        r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    monkeypatch.chdir(place)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "docs/select.md", "exec"), names)
    field = names["field"]
    hot = (field > 2.5) & (names["x"] < 400)
    indices = np.concatenate([result[0] for result in names["results"]])
    np.testing.assert_array_equal(indices, np.argwhere(hot))
    counts = [result[2] for result in names["results"]]
    assert sum(counts) == (field > 2.5).sum() and max(counts) - min(counts) <= 1
    for _, elements, _, mean, small in names["results"]:
        assert (elements > 2.5).all()
        np.testing.assert_allclose(mean, field.mean(axis=0), rtol=1e-4, atol=1e-5)
        assert small.shape == (15, 80)
    exec(compile(of_records, "docs/select.md", "exec"), names)
    cloud, particles = names["cloud"], names["particles"]
    few = np.concatenate([result[0] for result in particles])
    np.testing.assert_array_equal(few["id"], cloud["id"][cloud["x"] < 0.01])
    ranks = np.searchsorted([25, 50, 75], cloud["x"] // 0.1 + 10 * (cloud["y"] // 0.1), "right")
    for rank, (_, mine, some) in enumerate(particles):
        np.testing.assert_array_equal(mine, cloud[ranks == rank])
        assert some.dtype.names == ("id", "mass") and 4000 < len(some) < 6000
    hashed = np.concatenate([result[2]["id"] for result in particles])
    np.testing.assert_array_equal(np.sort(hashed), cloud["id"])
    exec(compile(of_bounds, "docs/select.md", "exec"), names)
    found = names["selections"]
    assert sum(len(each.values) for each in found) == 3 * (names["t"] > 39).sum()
    assert found[0].report.blocks == 3


def test_what_names_no_rank_or_field_is_refused(place: Path) -> None:
    """By all ranks, whatever is wrong with it."""
    record = np.zeros(60, [("x", "f8"), ("n", "i4"), ("v", "f4", (2,))])
    with ps.Session() as s:
        p = ps.Array("p", record.shape, record.dtype, disk=ps.RowMajor("npy"))
        s.write(place / "p", p, record)
        for given, cause in (
            ({"by": "x"}, "no integer"),
            ({"by": "n", "splitters": [1]}, "at most one for each rank but the first"),
            ({"by": "x", "splitters": [[1]]}, "a sequence of real numbers"),
            ({"by": "x", "splitters": ["a"]}, "real numbers"),
            ({"splitters": [1]}, "which is not given"),
            ({"by": 3}, "a string"),
            ({"by": "3"}, "the same for all elements"),
            ({"by": "n", "balanced": True}, "not both"),
            ({"fields": ["y"]}, "there is no 'y': there are 'x', 'n', 'v'"),
            ({"fields": ["x", "x"]}, "two fields have the name"),
            ({"fields": []}, "without fields"),
            ({"fields": [1]}, "fields are names"),
            ({"where": "v == 1"}, "an array of shape"),
            ({"where": "value == 1"}, "it is a record"),
        ):
            error = work.raises(
                ps.SchemaError, lambda given=given: s.select(place / "p", p, **given)
            )
            assert cause in str(error), (given, error)
        number = ps.Array("u", (3,), "f8")
        s.write(place / "u", number, np.zeros(3))
        error = work.raises(ps.SchemaError, lambda: s.select(place / "u", number, fields=["x"]))
        assert "elements are float64, which has none" in str(error)
