"""Whole data sets: what others have made is copied without loss, and what they do to stores of
Penstock's is lived with."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import NOTHING_TO_COMPARE, leftovers, penstock, same_bits, tree

import penstock as ps

FORMER = Path(__file__).parent / "data" / "group-of-version-1.zarr"


DIMS = {"time": 3, "lat": 4, "lon": 5}


def data_set() -> xr.Dataset:
    """A bit of everything that xarray stores."""
    times = np.array(["2001-01-01", "2001-02-01", "2001-03-01"], "M8[ns]")
    air = np.arange(3 * 4 * 5, dtype="f8").reshape(3, 4, 5)
    air[1, 2, 3] = np.nan
    packed = xr.DataArray(np.array([1.0, np.nan, 3.0]), dims="time")
    packed.encoding.update(dtype="i2", _FillValue=-9999, scale_factor=0.5)
    return xr.Dataset(
        {
            "air": (("time", "lat", "lon"), air, {"units": "K", "valid": [0.0, float("inf")]}),
            "packed": packed,
            "flag": ("lat", np.array([True, False, True, True])),
            "wave": ("lon", np.array([1 + 2j, 3, 0, 4j, 5])),
            "name": ("lat", np.array(["a", "", "bcd", "é"], object)),
            "code": ("lat", np.array(["ab", "c", "", "def"])),
            "raw": ("lat", np.array([b"ab", b"c", b"", b"def"])),
            "span": ("time", np.array([1, 2, 3], "m8[s]").astype("m8[ns]")),
            "scalar": ((), np.float32(2.5)),
        },
        coords={"time": times, "lat": np.linspace(-60, 60, 4), "station": ("lon", list("vwxyz"))},
        attrs={"title": "a bit of everything", "missing": float("nan")},
    )


@pytest.fixture(params=[2, 3])
def stored(place, request) -> Path:
    """It, as xarray stores it."""
    path = place / "source.zarr"
    with warnings.catch_warnings(action="ignore"):
        data_set().to_zarr(path, zarr_format=request.param, consolidated=True)
    return path


def opened(path: Path) -> xr.Dataset:
    with warnings.catch_warnings(action="error"), xr.open_zarr(path) as found:
        return found.load()


@pytest.mark.parametrize("chunks", [None, {"time": 1, "lat": 3}, {"lon": -1}, (1, 2, 5)])
def test_a_copy_is_identical(place, stored, chunks):
    report = ps.copy(stored, place / "copy.zarr", chunks=chunks, sync=False)
    xr.testing.assert_identical(opened(place / "copy.zarr"), opened(stored))
    assert {"name", "code", "raw", "station"} == set(report.as_they_are)
    air = zarr.open_group(place / "copy.zarr", mode="r")["air"]
    said = chunks if isinstance(chunks, dict) else dict(zip(DIMS, chunks or (), strict=False))
    assert air.chunks == tuple(n if said.get(d, -1) < 0 else said[d] for d, n in DIMS.items())
    assert not leftovers(place)


def test_a_copy_keeps_what_missing_means(place):
    """v2 keeps xarray's `_FillValue` in `fill_value`."""
    values = xr.DataArray(np.array([1.0, np.nan, 3.0]), dims="x")
    values.encoding.update(dtype="i2", _FillValue=-9999)
    source = place / "s.zarr"
    values.to_dataset(name="v").to_zarr(source, zarr_format=2, consolidated=False)
    penstock("copy", source, place / "t.zarr")
    assert np.array_equal(opened(place / "t.zarr").v, [1, np.nan, 3], equal_nan=True)
    assert zarr.open_group(place / "t.zarr")["v"].fill_value == -9999


@pytest.mark.parametrize("fill", [7, -1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("codec", ["none", "zstd:1"])
def test_fill_values_stay(place, fill, codec):
    """In a copy, in a part, and in an array from `open` that is written elsewhere."""
    source = zarr.create_array(
        place / "s.zarr", shape=(6, 6), chunks=(2, 3), dtype="f8", fill_value=fill
    )
    source[:2, :3] = 1
    expected = source[...]
    chunks = {"chunks": (2, 2), "codec": codec}
    ps.copy(place / "s.zarr", place / "copy.zarr", **chunks)
    copied = zarr.open_array(place / "copy.zarr", mode="r")
    assert same_bits(copied[...], expected) and same_bits(copied.fill_value, np.float64(fill))
    with ps.Session() as s:
        u = s.open(place / "s.zarr")
        s.write(
            place / "g.zarr",
            u.with_disk(ps.Chunks((4, 4), codec=codec)),
            s.read(place / "s.zarr", u),
        )
        again = zarr.open_group(place / "g.zarr")["s.zarr"]
        assert same_bits(again.fill_value, np.float64(fill)) and same_bits(again[...], expected)
        new = ps.Array("new", (6, 6), "f8", disk=ps.Chunks((4, 4), codec=codec), fill_value=fill)
        s.write(place / "g.zarr", new, np.ones((2, 2)), region=(slice(1, 3), slice(1, 3)))
        expected = np.full((6, 6), fill, "f8")
        expected[1:3, 1:3] = 1
        assert same_bits(zarr.open_group(place / "g.zarr")["new"][...], expected)
        s.write(place / "raw", new.with_disk(ps.RowMajor()), np.ones((1, 6)), region=2)
        expected = np.full((6, 6), fill, "f8")
        expected[2] = 1
        assert same_bits(np.fromfile(place / "raw").reshape(6, 6), expected)


def test_a_wrong_fill_value_is_refused():
    for dtype, value in [
        ("u1", -1),
        ("i4", 1.5),
        ("f4", "x"),
        ("f8", 1j),
        ("?", 2),
        ("i2", np.nan),
    ]:
        with pytest.raises(ps.SchemaError, match="fill value"):
            ps.Array("u", (2,), dtype, fill_value=value)


@pytest.mark.parametrize(
    "how", [{}, {"chunks": (7, 100)}, {"codec": "none"}, {"subchunks": (5, 5)}]
)
def test_what_is_absent_stays_absent(place, how):
    """104 KB became 126 MB."""
    shape = (200, 4000)
    source = zarr.create_array(
        place / "s.zarr", shape=shape, chunks=(20, 40), dtype="f8", fill_value=3.0
    )
    source[:20, 80:120] = np.random.default_rng(1).random((20, 40))
    ps.copy(place / "s.zarr", place / "t.zarr", **how)
    copied = zarr.open_array(place / "t.zarr", mode="r")
    assert np.array_equal(copied[...], source[...])
    files = [path for path in (place / "t.zarr" / "c").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 100_000
    chunk = copied.shards or copied.chunks
    touched = -(-20 // chunk[0]) * (119 // chunk[1] - 80 // chunk[1] + 1)
    assert len(files) == touched


CODECS_2 = {
    "blosc": (None, numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE), "blosc"),
    "zstd": (None, numcodecs.Zstd(5), "zstd"),
    "zlib": (None, numcodecs.Zlib(3), "numcodecs.zlib"),
    "gzip": (None, numcodecs.GZip(3), "gzip"),
    "bz2": (None, numcodecs.BZ2(1), "numcodecs.bz2"),
    "shuffle": ([numcodecs.Shuffle(8)], numcodecs.Zlib(3), "numcodecs.shuffle"),
    "lz4": (None, numcodecs.LZ4(), "numcodecs.lz4"),
    "delta": ([numcodecs.Delta("f8")], numcodecs.LZMA(), "numcodecs.delta"),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", CODECS_2)
def test_compression_of_the_second_format_is_kept(place, name, order):
    filters, compressor, stays = CODECS_2[name]
    group = zarr.create_group(place / "s.zarr", zarr_format=2)
    values = np.arange(600, dtype="f8").reshape(20, 30)
    array = group.create_array(
        "u", shape=(20, 30), chunks=(10, 10), dtype="f8", order=order,
        filters=filters, compressors=compressor, attributes={"_ARRAY_DIMENSIONS": ["y", "x"]},
    )  # fmt: skip
    array[...] = values
    ps.copy(place / "s.zarr", place / "t.zarr")
    copied = zarr.open_group(place / "t.zarr", mode="r")["u"]
    assert np.array_equal(copied[...], values)
    metadata = json.loads((place / "t.zarr" / "u" / "zarr.json").read_text())
    codecs = [codec["name"] for codec in metadata["codecs"]]
    assert stays in codecs and (("transpose" in codecs) == (order == "F"))


@pytest.mark.parametrize("codec", ["gzip", "zstd with checksum", "transpose", "crc32c", "blosc"])
def test_compression_of_the_third_format_is_kept(place, codec):
    chain: dict = {
        "gzip": {"compressors": zarr.codecs.GzipCodec(level=3)},
        "zstd with checksum": {"compressors": zarr.codecs.ZstdCodec(level=2, checksum=True)},
        "transpose": {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
        "crc32c": {"compressors": zarr.codecs.Crc32cCodec()},
        "blosc": {"compressors": zarr.codecs.BloscCodec(cname="zlib", clevel=4)},
    }[codec]
    values = np.arange(600, dtype="i4").reshape(20, 30)
    source = zarr.create_array(
        place / "s.zarr", shape=(20, 30), chunks=(10, 10), dtype="i4", **chain
    )
    source[...] = values
    ps.copy(place / "s.zarr", place / "t.zarr", chunks=(20, 7))
    copied = zarr.open_array(place / "t.zarr", mode="r")
    assert np.array_equal(copied[...], values)
    before, after = (
        json.loads((place / n / "zarr.json").read_text()) for n in ("s.zarr", "t.zarr")
    )
    assert after["codecs"] == before["codecs"]


def test_groups_of_groups_are_copied(place):
    root = zarr.create_group(place / "s.zarr", attributes={"title": "root"})
    for path in ("u", "sub/v", "sub/deeper/w"):
        array = root.create_array(
            path, data=np.arange(12.0).reshape(3, 4), dimension_names=["y", "x"]
        )
        array.attrs["at"] = path
    root["sub"].attrs["note"] = "below"
    root.create_group("empty")
    report = ps.copy(place / "s.zarr", place / "t.zarr", chunks={"x": 2})
    assert report.arrays == ("sub/deeper/w", "sub/v", "u")
    copied = zarr.open_group(place / "t.zarr", mode="r")
    assert copied.attrs["title"] == "root" and copied["sub"].attrs["note"] == "below"
    assert "empty" in copied and copied["sub/deeper/w"].chunks == (3, 2)
    assert copied["sub/v"].attrs["at"] == "sub/v"
    some = ps.copy(place / "s.zarr", place / "some.zarr", arrays=["u", "sub/deeper/w"])
    assert some.arrays == ("sub/deeper/w", "u")
    found = zarr.open_group(place / "some.zarr", mode="r")
    assert sorted(found.array_keys()) == ["u"] and sorted(found["sub"].group_keys()) == ["deeper"]
    assert sorted(found["sub"].array_keys()) == []
    said = penstock("copy", place / "s.zarr", place / "x", "--array", "nope", code=1)
    assert "sub/deeper/w" in said and not (place / "x").exists()
    said = penstock("copy", place / "s.zarr", place / "x", "--chunks", "depth=1", code=2)
    assert '"depth"' in said and "x, y" in said
    said = penstock("copy", place / "s.zarr", place / "x", "--chunks", "1,2,3", code=2)
    assert "3 extents" in said and "2 dimensions" in said


def test_one_array_goes_where_it_belongs(place):
    root = zarr.create_group(place / "s.zarr", attributes={"title": "root"})
    root.create_array("u", data=np.arange(12.0))
    alone = zarr.create_array(place / "alone.zarr", shape=(3,), dtype="i4")
    alone[:] = [1, 2, 3]
    penstock("copy", place / "alone.zarr", place / "a.zarr")
    assert zarr.open_array(place / "a.zarr", mode="r")[:].tolist() == [1, 2, 3]
    penstock("copy", place / "alone.zarr", place / "b.zarr", "--name", "v")
    penstock("copy", place / "s.zarr", place / "b.zarr", "--array", "u")
    penstock("copy", place / "s.zarr", place / "b.zarr", "--array", "u", "--name", "w")
    penstock("copy", place / "alone.zarr", place / "b.zarr")
    both = zarr.open_group(place / "b.zarr", mode="r")
    assert sorted(both.array_keys()) == ["alone", "u", "v", "w"]
    penstock("copy", place / "s.zarr", place / "c.zarr", "--array", "u", "--name", "z")
    named = zarr.open_group(place / "c.zarr", mode="r")
    assert sorted(named.array_keys()) == ["z"] and named.attrs["title"] == "root"
    penstock("copy", place / "s.zarr" / "u", place / "u.npy")
    assert np.load(place / "u.npy").tolist() == list(range(12))
    said = penstock("copy", place / "s.zarr", place / "d.zarr", "--name", "q", code=2)
    assert "one array" in said


def test_a_target_is_not_replaced_unasked(place):
    """A Python source became raw numbers; a store copied onto itself was rechunked in place."""
    root = zarr.create_group(place / "s.zarr")
    root.create_array("u", data=np.arange(12.0))
    (place / "program.py").write_text("print()")
    zarr.create_array(place / "one.zarr", shape=(3,), dtype="i2")
    before = tree(place)
    for source, target, *more in [
        ("one.zarr", "program.py", "--row-major"),
        ("s.zarr", "s.zarr", "--chunks", "3"),
        ("s.zarr", "s.zarr", "--chunks", "3", "--overwrite"),
        ("s.zarr", "s.zarr/u/below", "--overwrite"),
        ("s.zarr", "s.zarr/copy"),
        ("s.zarr/u", "s.zarr", "--overwrite", "--name", "u"),
        ("s.zarr", "one.zarr"),
        ("one.zarr", "s.zarr", "--name", "u"),
    ]:
        said = penstock("copy", place / source, place / target, *more, code=2)
        assert "within" in said or "--overwrite" in said, said
        assert tree(place) == before, (source, target)
    penstock("copy", place / "s.zarr", place / "one.zarr", "--overwrite")
    assert zarr.open_group(place / "one.zarr", mode="r")["u"][:].tolist() == list(range(12))
    penstock("copy", place / "s.zarr", place / "program.py", "--row-major", "--overwrite")
    assert np.fromfile(place / "program.py").tolist() == list(range(12))
    with pytest.raises(ValueError, match="overwrite"):
        ps.copy(place / "s.zarr", place / "one.zarr")
    ps.copy(place / "s.zarr", place / "one.zarr", overwrite=True, chunks=5)
    assert zarr.open_group(place / "one.zarr", mode="r")["u"].chunks == (5,)


def saved(path: Path, **more) -> ps.Group:
    u = ps.Array("u", (4, 6), "f8", disk=ps.Chunks((2, 6), codec="zstd:1"), dims=("y", "x"))
    return ps.Group("sim", [u, ps.Array("n", (3,), "i4")], path, **more)


def values(step: int) -> dict[str, np.ndarray]:
    return {"u": np.full((4, 6), step + 0.5), "n": np.arange(3, dtype="i4") + step}


@pytest.fixture
def group(place) -> ps.Group:
    made = saved(place / "g.zarr", coords={"x": np.arange(6.0)}, attrs={"title": "run 1"})
    with ps.Session() as s:
        for step in range(3):
            s.timestep(made, values(step))
        s.checkpoint(made, values(2), step=2)
    return made


def goes_on(group: ps.Group, timesteps: int = 3) -> None:
    """It is what it was, and can be saved to, restarted from, and verified."""
    with ps.Session() as s:
        state = s.restart(group)
        assert state.step == 2 and same_bits(state["u"], values(2)["u"])
        s.timestep(group, values(timesteps))
        s.checkpoint(group, values(timesteps), step=timesteps)
        assert s.restart(group).step == timesteps
    found = opened(Path(group.path))
    assert found.u.values[:, 0, 0].tolist() == [step + 0.5 for step in range(timesteps + 1)]
    assert ps.verify(group.path).is_well
    names = zarr.open_group(group.path, mode="r").metadata.consolidated_metadata.metadata
    assert {"u", "n", "time", "x"} <= set(names)


def test_consolidated_anew_by_zarr(group):
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata(group.path)
    goes_on(group)


def test_a_coordinate_added_by_xarray(group):
    added = xr.Dataset({"mask": ("y", [1, 0, 1, 1])}, attrs={"by": "somebody"})
    with warnings.catch_warnings(action="ignore"):
        added.to_zarr(group.path, mode="a")
    goes_on(group)
    found = opened(Path(group.path))
    assert found.mask.values.tolist() == [1, 0, 1, 1] and found.attrs["by"] == "somebody"


def test_metadata_that_are_gone(group):
    path = Path(group.path)
    for name in ("zarr.json", "u/zarr.json"):
        there = json.loads((path / name).read_text())
        there.pop("consolidated_metadata", None)
        there["attributes"] = {}
        (path / name).write_text(json.dumps(there))
    goes_on(group)


def test_a_record_that_is_lost_is_found_again(group):
    path = Path(group.path)
    (path / ".penstock" / "record" / "group.json").unlink()
    with ps.Session() as s, pytest.raises(ps.Error):
        s.timestep(group, values(3))
    assert "3 timesteps of n, u" in penstock("repair", path)
    assert "nothing was to be mended" in penstock("repair", path)
    assert ps.repair(path) == []
    goes_on(group)


def test_timesteps_that_xarray_has_added(group):
    path = Path(group.path)
    with xr.open_zarr(path) as there:
        more = there[["u", "n"]].isel(time=[0]).load() * 0 + 9
    more = more.assign(n=more.n.astype("i4")).assign_coords(time=[3.0])
    for name in more.variables:
        more[name].encoding.clear()
    with warnings.catch_warnings(action="ignore"):
        more.to_zarr(path, append_dim="time", consolidated=False)
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="penstock repair"):
        s.timestep(group, values(4), time=4.0)
    assert "4 timesteps" in penstock("repair", path)
    with ps.Session() as s:
        s.timestep(group, values(4), time=4.0)
    assert opened(path).u.values[:, 0, 0].tolist() == [0.5, 1.5, 2.5, 9.0, 4.5]
    said = penstock("verify", path)
    assert "5 timesteps" in said and "chunks without a checksum" in said


@pytest.mark.parametrize("repairs", [False, True])
def test_a_group_of_the_first_version(place, repairs):
    path = place / "g.zarr"
    shutil.copytree(FORMER, path)
    assert ps.verify(path).is_well and ps.info(path)["group"]["timesteps"] == 3
    if repairs:
        with warnings.catch_warnings(action="ignore"):
            zarr.consolidate_metadata(path)
        with ps.Session() as s, pytest.raises(ps.DamagedError, match="penstock repair"):
            s.restart(former(path))
        assert "3 timesteps of u, v" in penstock("repair", path)
    with ps.Session() as s:
        state = s.restart(former(path))
        assert state.step == 1 and state["u"][0, 0] == 100
        s.timestep(former(path), {"u": np.zeros((4, 3)), "v": np.zeros((6, 4), "i4")}, time=9.0)
    found = opened(path)
    assert found.time.values.tolist() == [0, 0.5, 9] and found.u.values[:, 0, 0].tolist() == [
        0,
        100,
        0,
    ]
    assert ps.verify(path).is_well and "checksum" not in ps.verify(path).verdict


def former(path: Path) -> ps.Group:
    u = ps.Array("u", (4, 3), "f8", disk=ps.Chunks((2, 3)))
    v = ps.Array("v", (6, 4), "i4", disk=ps.Chunks((4, 4), codec="zstd:1+crc32c"))
    return ps.Group("sim", [u, v], path)


def test_what_is_no_group_is_not_repaired(place):
    zarr.create_group(place / "theirs.zarr")
    before = tree(place)
    assert "no timesteps" in penstock("repair", place / "theirs.zarr", code=2)
    assert penstock("repair", place / "nothing", code=2) and tree(place) == before


def test_a_group_is_copied_as_a_plain_hierarchy(group, place):
    path = place / "copy.zarr"
    ps.copy(group.path, path, chunks={"time": 2})
    xr.testing.assert_identical(opened(path), opened(Path(group.path)))
    copied = zarr.open_group(path, mode="r")
    assert copied["u"].chunks == (2, 2, 6) and copied["checkpoints/2/u"][0, 0] == 2.5
    assert "penstock" not in copied["checkpoints/2"].attrs and not (path / ".penstock").exists()
    with ps.Session() as s, pytest.raises(ps.SchemaError):
        s.restart(saved(path))


def test_verify_says_what_it_could_not_compare(place):
    root = zarr.create_group(place / "g.zarr")
    root.create_array("plain", data=np.arange(10.0), chunks=(5,))
    root.create_array("sub/summed", data=np.arange(10.0), compressors=zarr.codecs.Crc32cCodec())
    root.create_array("words", shape=(2,), dtype=str)
    absent = root.create_array("holes", shape=(4,), chunks=(2,), dtype="i4")
    absent[:2] = 1
    said = penstock("verify", place / "g.zarr").splitlines()[-1]
    for words in (
        "what was compared is well",
        "3 chunks without",
        "1 chunk that is not there",
        "1 array that is not",
    ):
        assert words in said
    chunk = place / "g.zarr" / "sub" / "summed" / "c" / "0"
    damaged = bytearray(chunk.read_bytes())
    damaged[3] ^= 1
    chunk.write_bytes(damaged)
    assert "1 is damaged" in penstock("verify", place / "g.zarr", code=1)
    for name in ("plain", "holes"):
        said = penstock("verify", place / "g.zarr" / name, code=NOTHING_TO_COMPARE)
        assert "nothing to compare with" in said
    found = ps.verify(place / "g.zarr")
    assert not found.is_well and len(found.damages) == 1 and found.unread[0][0] == "words"
    assert isinstance(found.damages[0], ps.DamagedError)


def test_a_chunk_that_is_gone_is_missed(group):
    """Of a store of its own."""
    path = Path(group.path)
    for chunk in (path / "u" / "c" / "1" / "0" / "0", path / "checkpoints" / "2" / "n" / "c" / "0"):
        kept = chunk.read_bytes()
        chunk.unlink()
        said = penstock("verify", path, code=1)
        assert "the chunk is missing" in said and str(chunk) in said
        chunk.write_bytes(kept)
    assert ps.verify(path).is_well


def test_everything_is_listed(place):
    root = zarr.create_group(place / "g.zarr", attributes={"title": "all"})
    root.create_array("u", data=np.arange(4.0))
    root.create_array("words", shape=(2,), dtype=str)
    root.create_array("sub/v", data=np.arange(4))
    (place / "g.zarr" / "broken").mkdir()
    (place / "g.zarr" / "broken" / "zarr.json").write_text("{")
    listed = penstock("ls", place / "g.zarr")
    for line in (
        "u  float64  [4]",
        "sub/v  int64  [4]",
        "words  not supported:",
        "broken  cannot be read:",
    ):
        assert line in listed
    told = penstock("info", place / "g.zarr")
    assert "title" in told and "sub/v" in told and "not supported" in told
    described = ps.info(place / "g.zarr")
    assert described == json.loads(penstock("info", place / "g.zarr", "--json"))
    assert [about["path"] for about in described["arrays"]] == ["sub/v", "u"]
    nodes = {node.path: node for node in ps.ls(place / "g.zarr")}
    assert set(nodes) == {"", "broken", "sub", "sub/v", "u", "words"}
    assert nodes["sub/v"].array == ps.Session().open(place / "g.zarr" / "sub", "v")
    words = nodes["words"]
    assert words.kind == "unreadable" and isinstance(words.error, ps.UnsupportedError)
    assert words.error.path == str(place / "g.zarr" / "words") and words.error.cause in str(words)
    drawn = ps.tree(place / "g.zarr").splitlines()
    assert drawn[0] == "g.zarr/" and "    v  int64  [4]  chunks [4], zstd:0" in drawn


def test_progress_is_told(place):
    zarr.create_array(place / "s.zarr", data=np.arange(100_000.0), chunks=(1000,))
    for call in (
        lambda tell: ps.copy(place / "s.zarr", place / "t.zarr", chunks=777, progress=tell),
        lambda tell: ps.verify(place / "s.zarr", progress=tell),
    ):
        heard: list[tuple[int, int]] = []

        def hear(done, all_, heard=heard):
            heard.append((done, all_))

        call(hear)
        assert heard[-1] == (800_000, 800_000) and heard == sorted(heard)

        def enough(done, all_):
            raise RuntimeError("that is enough")

        shutil.rmtree(place / "t.zarr", ignore_errors=True)
        with pytest.raises(RuntimeError, match="enough"):
            call(enough)
        assert not (place / "t.zarr").exists()


def test_a_copy_with_all_ranks(place, group):
    def main(s):
        report = s.copy(group.path, place / "copy.zarr", chunks={"time": 3}, codec="gzip:1")
        assert report.bytes > 0
        with pytest.raises(ps.SchemaError, match="overwrite"):
            s.copy(group.path, place / "copy.zarr")
        with pytest.raises(ps.MismatchError, match="codec"):
            s.copy(group.path, place / "x.zarr", codec=f"zstd:{s.rank + 1}")
        s.barrier()

    ps.run(main, ranks=3)
    xr.testing.assert_identical(opened(place / "copy.zarr"), opened(Path(group.path)))
