"""Chunks with extents of their own: shares as chunks, and lists of extents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from helpers import CODECS, DTYPES, assert_alike, caught, leftovers, penstock, same_bits, values

import penstock as ps

SHAPE = (10, 7)
ROWS, COLUMNS = (3, 5, 2), (1, 4, 2)
LISTED = (ROWS, COLUMNS)
HAS_RECTILINEAR = tuple(map(int, zarr.__version__.split(".")[:2])) >= (3, 2)
needs_rectilinear = pytest.mark.skipif(
    not HAS_RECTILINEAR, reason="zarr-python reads rectilinear grids from 3.2 on"
)


@contextmanager
def zarr_python() -> Iterator[None]:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def starts(extents: tuple[int, ...]) -> list[int]:
    return [sum(extents[:i]) for i in range(len(extents))]


def cells(rows=ROWS, columns=COLUMNS) -> list[ps.Boxes]:
    """The cells of a grid."""
    pairs = [zip(starts(extents), extents, strict=True) for extents in (rows, columns)]
    rows_and_columns = [list(pair) for pair in pairs]
    return [
        ps.Boxes((row, column), (height, width))
        for row, height in rows_and_columns[0]
        for column, width in rows_and_columns[1]
    ]


def part(truth: np.ndarray, box: ps.Boxes) -> np.ndarray:
    bounds = zip(box.start, box.shape, strict=True)
    return np.ascontiguousarray(truth[tuple(slice(s, s + n) for s, n in bounds)])


def write_boxes(
    place: Path, truth: np.ndarray, boxes: list[ps.Boxes], disk: ps.Chunks, ranks: int, **more: Any
) -> list[Any]:
    """Writes from `ranks` ranks, which hold the boxes in turn; gives what each has met."""

    def main(session):
        own = boxes[session.rank :: session.size]
        array = ps.Array("u", truth.shape, truth.dtype, memory=own, disk=disk)
        return caught(
            lambda: session.write(place, array, [part(truth, box) for box in own], **more)
        )

    return ps.run(main, ranks, sync=False)


def read(place: Path, shape: tuple[int, ...], dtype: Any, ranks: int = 2) -> np.ndarray:
    def main(session):
        array = ps.Array("u", shape, dtype)
        return session.read(place, array)

    return ps.run(main, ranks)[0]


def metadata(place: Path) -> dict[str, Any]:
    return json.loads((place / "u" / "zarr.json").read_text())


def chunk_files(place: Path) -> dict[str, int]:
    files = (path for path in (place / "u").rglob("*") if path.is_file())
    return {
        str(path.relative_to(place / "u")): path.stat().st_size
        for path in files
        if path.name != "zarr.json"
    }


def check(place: Path, truth: np.ndarray) -> None:
    """What Penstock reads there, and zarr-python if it can."""
    assert same_bits(read(place, truth.shape, truth.dtype), truth)
    if HAS_RECTILINEAR:
        with zarr_python():
            assert same_bits(zarr.open_group(place, mode="r")["u"][...], truth)
    assert not leftovers(place.parent)


@pytest.mark.parametrize("ranks", [1, 2, 5, 9, 11])
def test_each_share_is_a_chunk(place, ranks):
    truth = values(SHAPE, "f4")
    write_boxes(place / "g", truth, cells(), ps.Chunks("shares"), ranks)
    assert metadata(place / "g")["chunk_grid"] == {
        "name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [[3, 5, 2], [1, 4, 2]]},
    }
    sizes = {
        f"c.{i}.{j}": rows * columns * 4
        for i, rows in enumerate(ROWS)
        for j, columns in enumerate(COLUMNS)
    }
    assert chunk_files(place / "g") == sizes
    check(place / "g", truth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(place, dtype):
    truth = values(SHAPE, dtype)
    write_boxes(place / "g", truth, cells(), ps.Chunks("shares", codec="zstd:1"), 3)
    check(place / "g", truth)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("subchunks", [None, (2, 3)])
@pytest.mark.parametrize("strategy", ["disk-directed", "two-phase", "caching", "independent"])
def test_codecs_and_shards(place, codec, subchunks, strategy):
    boxes = cells((2, 6, 2), (3, 3))
    truth = values((10, 6), "f8")
    disk = ps.Chunks("shares", subchunks=subchunks, codec=codec)
    met = write_boxes(place / "g", truth, boxes, disk, 6, strategy=strategy)
    if strategy == "independent":  # nobody meets another's chunk, so it is allowed
        assert not any(isinstance(each, ps.Error) for each in met)
    check(place / "g", truth)


def test_chunks_as_they_are_listed(place):
    for at, (shape, chunks, grid) in enumerate(
        [
            (SHAPE, LISTED, [[3, 5, 2], [1, 4, 2]]),
            (SHAPE, (ROWS, 4), [[3, 5, 2], 4]),
            (SHAPE, ((2, 2, 2, 1, 1, 1, 1), (7,)), [[[2, 3], [1, 4]], 7]),
            ((9, 5), LISTED, [[3, 5, 2], [1, 4]]),  # the last rows reach beyond
            ((5,), ((1, 4),), [[1, 4]]),
            ((5, 2, 3), (2, (2,), (1, 2)), [2, 2, [1, 2]]),
        ]
    ):
        if shape == (9, 5):
            chunks = (ROWS, (1, 4))
        truth = values(shape, "i2")
        path = place / str(at)
        memory = ps.Distribution("BLOCK" + ",*" * (len(shape) - 1), (3,))
        array = ps.Array("u", shape, "i2", memory=memory, disk=ps.Chunks(chunks, codec="crc32c"))

        def main(session, array=array, path=path, truth=truth):
            local = np.ascontiguousarray(truth[array.local_slices(session.rank)])
            session.write(path, array, local)

        ps.run(main, 3, sync=False)
        configuration = metadata(path)["chunk_grid"]["configuration"]
        assert configuration == {"kind": "inline", "chunk_shapes": grid}
        check(path, truth)


@pytest.mark.parametrize(
    "shape, chunks, regular",
    [
        ((10, 7), ((4, 4, 2), (7,)), [4, 7]),
        ((10, 7), ((5, 5), (3, 3, 1)), [5, 3]),
        ((), (), []),
        ((0, 4), (1, 2), [1, 2]),
    ],
)
def test_what_can_be_regular_is(place, shape, chunks, regular):
    array = ps.Array("u", shape, "f4", disk=ps.Chunks(chunks))
    truth = values(shape, "f4")
    with ps.Session() as s:
        s.write(place / "g", array, truth)
    assert metadata(place / "g")["chunk_grid"] == {
        "name": "regular",
        "configuration": {"chunk_shape": regular},
    }
    check(place / "g", truth)


@pytest.mark.parametrize(
    "dists, mesh, chunk",
    [
        ("BLOCK,*", (4,), [3, 7]),
        ("BLOCK,BLOCK", (2, 2), [5, 4]),
        ("BLOCK,*", (20,), [1, 7]),
        ("CYCLIC(3),*", (4,), [3, 7]),
        ("*,*", (), [10, 7]),
    ],
)
def test_shares_of_distributions_are_regular_chunks(place, dists, mesh, chunk):
    array = ps.Array("u", SHAPE, "f8", ps.Distribution(dists, mesh), ps.Chunks("shares"))
    truth = values(SHAPE, "f8")

    def main(session):
        slices = array.local_slices(session.rank)
        session.write(place / "g", array, np.ascontiguousarray(truth[slices]))

    ps.run(main, 20, sync=False, servers=2)
    assert metadata(place / "g")["chunk_grid"]["configuration"] == {"chunk_shape": chunk}
    check(place / "g", truth)


def test_empty_shares_and_holes(place):
    truth = values(SHAPE, "f8")
    boxes = [*cells()[:4], ps.Boxes((2, 2), (0, 3)), ps.Boxes((0, 0), (0, 0))]
    write_boxes(place / "g", truth, boxes, ps.Chunks("shares"), 6)
    held = np.zeros(SHAPE)
    for box in boxes[:4]:
        (i, j), (height, width) = box.start, box.shape
        held[i : i + height, j : j + width] = truth[i : i + height, j : j + width]
    # Row 8 and what is behind are cut by nobody: they are one chunk, of the fill value.
    grid = metadata(place / "g")["chunk_grid"]["configuration"]["chunk_shapes"]
    assert grid == [[3, 5, 2], [1, 4, 2]]
    assert len(chunk_files(place / "g")) == 4
    check(place / "g", held)


def test_rows_of_ranks_are_chunks(place):
    truth = values((13, 3), "f4")
    counts = (4, 0, 1, 6, 2)
    boxes = [ps.Boxes((sum(counts[:i]), 0), (count, 3)) for i, count in enumerate(counts)]
    write_boxes(place / "g", truth, boxes, ps.Chunks("shares"), 5)
    grid = metadata(place / "g")["chunk_grid"]["configuration"]["chunk_shapes"]
    assert grid == [[4, 1, 6, 2], 3]
    check(place / "g", truth)


def test_shares_that_are_no_chunks_are_refused(place):
    truth = values(SHAPE, "f8")
    disk = ps.Chunks("shares")
    no_grid = [ps.Boxes((0, 0), (5, 3)), ps.Boxes((0, 3), (5, 4)), ps.Boxes((5, 0), (5, 7))]
    met = write_boxes(place / "g", truth, no_grid, disk, 3)
    error = assert_alike(met, ps.SchemaError, "no grid", "dimension 1 at 3", "start [5, 0]")
    assert error.doing == "making chunks of the shares of 'u'"

    def write(array, local):
        return ps.run(lambda s: caught(lambda: s.write(place / "g", array, local(s))), 2)

    cyclic = ps.Array("u", SHAPE, "f8", ps.Distribution("CYCLIC(2),*", (2,)), disk)
    met = write(cyclic, lambda s: np.zeros(cyclic.local_shape(s.rank)))
    assert_alike(met, ps.SchemaError, "CYCLIC(2)", "several runs in dimension 0")
    runs = ps.Array("u", SHAPE, "f8", ps.Runs([0], [0]), disk)
    met = write(runs, lambda s: np.zeros(0))
    assert_alike(met, ps.SchemaError, "a list of elements is no chunk")
    halves = cells((4, 6), (7,))
    met = write_boxes(place / "g", truth, halves, ps.Chunks("shares", subchunks=(3, 7)), 2)
    assert_alike(met, ps.SchemaError, "sub-chunks [3, 7]", "[[4, 6], 7]")
    assert not (place / "g").exists()


@pytest.mark.parametrize(
    "chunks, words",
    [
        (((3, 5), 7), "2 chunks are listed for dimension 0, of 8 elements together"),
        (((3, 5, 2, 1), 7), "of 11 elements together, and the array has 10"),
        (((3, 0, 7), 7), "each chunk must have one of them"),
        (((), 7), "0 chunks are listed"),
        (((3, 7),), "dimensions"),
        ("halves", "chunks are extents, or 'shares'"),
        (((3, "x"), 7), "integers"),
        (((3, (5,)), 7), "integers"),
        (((3, -5), 7), "from 0"),
    ],
)
def test_lists_that_do_not_fit_are_refused(place, chunks, words):
    def main(session):
        array = ps.Array("u", SHAPE, "f8", disk=ps.Chunks(chunks))
        session.write(place / "g", array, np.zeros(SHAPE))

    with pytest.raises(ps.SchemaError, match=words.replace("(", r"\(")):
        ps.run(main, 1)
    assert not (place / "g").exists()


@pytest.mark.parametrize("codec, subchunks", [("none", None), ("zstd", None), ("zstd", (1, 1))])
def test_parts_are_read_and_changed(place, codec, subchunks):
    truth = values(SHAPE, "f8")
    disk = ps.Chunks(LISTED, subchunks=subchunks, codec=codec)
    array = ps.Array("u", SHAPE, "f8", disk=disk)
    with ps.Session() as s:
        s.write(place / "g", array, truth)
        s.write(place / "g", array, np.full((4, 3), 7.5), region=np.s_[2:6, 3:6])
        truth[2:6, 3:6] = 7.5
        found = s.read(place / "g", array, region=np.s_[1:9, 4:7])
        assert same_bits(found, truth[1:9, 4:7])
        some = ps.Runs([3, 20, 69], [2, 30, 1])
        found = s.read(place / "g", array, region=some)
        assert same_bits(found, np.concatenate([truth.flat[3:5], truth.flat[20:50], [truth[9, 6]]]))
        with s.open(place / "g", mode="r+") as opened:
            opened.write(np.s_[7:, :2], np.full((3, 2), -1.0))
            truth[7:, :2] = -1.0
            assert same_bits(opened.read(np.s_[6:9, 0:4]), truth[6:9, 0:4])
    check(place / "g", truth)
    verified = ps.verify(place / "g")
    assert not verified.damages and verified.chunks >= 9


def test_what_is_there_is_told(place):
    array = ps.Array("u", SHAPE, "f8", disk=ps.Chunks((ROWS, 4), codec="zstd:3"), dims=("y", "x"))
    with ps.Session() as s:
        s.write(place / "g", array, np.zeros(SHAPE))
        assert s.open(place / "g").disk == ps.Chunks((ROWS, 4), codec="zstd:3")
    (group, node) = ps.ls(place / "g")
    assert group.kind == "group" and node.array is not None
    assert node.array.disk == ps.Chunks((ROWS, 4), codec="zstd:3")
    assert eval(repr(node.array.disk), {"Chunks": ps.Chunks}) == node.array.disk
    line = "u  float64  [10, 7]  chunks [[3, 5, 2], 4], zstd:3"
    assert str(node) == line
    assert "chunks [[3, 5, 2], 4], zstd:3" in penstock("ls", place / "g")
    assert "chunks [[3, 5, 2], 4], zstd:3" in penstock("info", place / "g" / "u")
    many = tuple(1 + i % 2 for i in range(1000))
    array = ps.Array("v", (1500,), "u1", disk=ps.Chunks((many,)))
    with ps.Session() as s:
        s.write(place / "g", array, np.zeros(1500, "u1"))
    words = "chunks [[1, 2, 1, 2, 1, 2, 1, 2, ... 2 (1000 chunks)]], none"
    assert str(ps.ls(place / "g")[2]).endswith(words)
    assert words in penstock("ls", place / "g")


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("memory", [2 << 20, 1 << 28])
def test_copies(place, codec, memory):
    rows = tuple(20 + 7 * (i % 5) for i in range(40))
    shape = (sum(rows), 90)
    truth = values(shape, "f8")
    disk = ps.Chunks((rows, (30, 50, 10)), codec=codec)
    with ps.Session() as s:
        s.write(place / "s", ps.Array("u", shape, "f8", disk=disk), truth)

    def copied(source: str, target: str, **more: Any) -> Any:
        ps.copy(place / source, place / target, memory=max(memory, 16 << 20), ranks=2, **more)
        check(place / target, truth)
        (_, node) = ps.ls(place / target)
        return node.array.disk.shape

    assert copied("s", "same") == disk.shape
    assert copied("s", "regular", chunks=(64, 64)) == (64, 64)
    assert copied("s", "named", chunks={"u_1": 45}) == (rows, 45)
    assert copied("same", "again", codec="gzip") == disk.shape
    ps.copy(place / "s", place / "u.npy", arrays="u", ranks=2)
    assert same_bits(np.load(place / "u.npy"), truth)


def test_groups_have_chunks_of_timesteps(place):
    boxes = cells()
    moments = [values(SHAPE, "f4", seed) for seed in range(3)]

    def main(session):
        own = boxes[session.rank :: session.size]
        u = ps.Array("u", SHAPE, "f4", memory=own, disk=ps.Chunks("shares", codec="zstd"))
        v = ps.Array("v", SHAPE, "f4", memory=own, disk=ps.Chunks(LISTED))
        group = ps.Group("flow", [u, v], place / "flow", time_chunk=2)
        for step, truth in enumerate(moments):
            parts = [part(truth, box) for box in own]
            session.timestep(group, {"u": parts, "v": parts}, time=float(step))
        session.checkpoint(group, {"u": parts, "v": parts}, step=3)

    ps.run(main, 4, sync=False)
    for name in ("u", "v"):
        grid = json.loads((place / "flow" / name / "zarr.json").read_text())["chunk_grid"]
        assert grid["configuration"]["chunk_shapes"] == [2, [3, 5, 2], [1, 4, 2]]
        found = read_moments(place / "flow", name)
        assert same_bits(found, np.stack(moments))
    verified = ps.verify(place / "flow")
    assert verified.is_well and verified.timesteps == 3


def test_a_group_keeps_its_chunks_and_its_codec(place):
    u = ps.Array("u", SHAPE, "f4", memory=cells(), disk=ps.Chunks("shares", codec="zstd:1"))
    truth = values(SHAPE, "f4")
    with ps.Session() as s:
        group = ps.Group("flow", [u], place / "flow")
        s.timestep(group, {"u": [part(truth, box) for box in cells()]}, time=0.0)
        other = [ps.Boxes((0, 0), (4, 7)), ps.Boxes((4, 0), (6, 7))]
        moved = ps.Group("flow", [u.with_memory(other)], place / "flow")
        s.timestep(moved, {"u": [part(truth, box) for box in other]}, time=1.0)
        without = u.with_disk(ps.Chunks("shares"))
        wrong = ps.Group("flow", [without], place / "flow")
        with pytest.raises(ps.SchemaError, match="zstd:1, and the call says"):
            s.timestep(wrong, {"u": [part(truth, box) for box in cells()]}, time=2.0)
        array = ps.Array("u", (2, *SHAPE), "f4")
        assert same_bits(s.read(place / "flow", array), np.stack([truth, truth]))
    grid = json.loads((place / "flow" / "u" / "zarr.json").read_text())["chunk_grid"]
    assert grid["configuration"]["chunk_shapes"] == [1, [3, 5, 2], [1, 4, 2]]


def read_moments(path: Path, name: str) -> np.ndarray:
    if HAS_RECTILINEAR:
        with zarr_python():
            by_zarr = zarr.open_group(path, mode="r")[name][...]
    array = ps.Array(name, (3, *SHAPE), "f4")
    with ps.Session() as s:
        found = s.read(path, array)
    assert not HAS_RECTILINEAR or same_bits(found, by_zarr)
    return found


def test_rows_of_timesteps_have_chunks_of_one_extent(place):
    for disk in (ps.Chunks("shares"), ps.Chunks(((1, 2), 3))):
        array = ps.Array("p", (None, 3), "f4", disk=disk)
        group = ps.Group("cloud", [array], place / "cloud")
        with ps.Session() as s, pytest.raises(ps.UnsupportedError, match="one number of rows"):
            s.timestep(group, {"p": np.zeros((3, 3), "f4")}, time=0.0)
    assert not (place / "cloud").exists()


def by_hand(path: Path, truth: np.ndarray, shapes: list[Any], rows: list[int]) -> None:
    """A store of another program: chunks of all columns, without codec."""
    (path / "u" / "c").mkdir(parents=True)
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    (path / "zarr.json").write_text(json.dumps(group))
    array = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": truth.shape,
        "data_type": "float64",
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": shapes},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }
    (path / "u" / "zarr.json").write_text(json.dumps(array))
    for number, (start, extent) in enumerate(zip(starts(tuple(rows)), rows, strict=True)):
        chunk = np.full((extent, truth.shape[1]), np.nan)
        held = truth[start : start + extent]
        chunk[: len(held)] = held
        (path / "u" / "c" / str(number)).mkdir()
        (path / "u" / "c" / str(number) / "0").write_bytes(chunk.tobytes())


@pytest.mark.parametrize(
    "shapes, rows",
    [
        ([[3, 5, 2], 7], [3, 5, 2]),
        ([[[2, 2], 5, 1], [7]], [2, 2, 5, 1]),
        ([[3, [4, 2], [9, 5]], [[7, 1]]], [3, 4, 4]),
        ([4, 7], [4, 4, 4]),
        ([[[5, 2]], 7], [5, 5]),
    ],
)
def test_what_others_may_write(place, shapes, rows):
    truth = values(SHAPE, "f8")
    by_hand(place / "g", truth, shapes, rows)
    check(place / "g", truth)


@pytest.mark.parametrize(
    "shapes, kind",
    [
        ([[3, 5], 7], ps.DamagedError),
        ([[3, 0, 7], 7], ps.DamagedError),
        ([[3, [7, 0]], 7], ps.DamagedError),
        ([[10]], ps.DamagedError),
        ([[3, "7"], 7], ps.DamagedError),
        ("all", ps.DamagedError),
    ],
)
def test_wrong_grids_are_refused(place, shapes, kind):
    by_hand(place / "g", values(SHAPE, "f8"), shapes, [10])
    with pytest.raises(kind):
        read(place / "g", SHAPE, "f8", ranks=1)


@needs_rectilinear
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "more",
    [
        {"chunks": [list(ROWS), list(COLUMNS)], "compressors": None},
        {"chunks": [list(ROWS), list(COLUMNS)]},
        {"chunks": (1, 1), "shards": [list(ROWS), list(COLUMNS)]},
    ],
)
def test_what_zarr_python_writes(place, dtype, more):
    truth = values(SHAPE, dtype)
    with zarr_python():
        group = zarr.open_group(place / "g", mode="w")
        group.create_array("u", shape=SHAPE, dtype=dtype, **more)[...] = truth
        assert same_bits(read(place / "g", SHAPE, dtype), truth)
        # A part is changed by Penstock, and read by zarr-python.
        with ps.Session() as s:
            array = ps.Array("u", SHAPE, dtype)
            s.write(place / "g", array, truth[5:8, 2:5].copy(), region=np.s_[2:5, 1:4])
        truth[2:5, 1:4] = truth[5:8, 2:5].copy()
        assert same_bits(zarr.open_group(place / "g", mode="r")["u"][...], truth)


@needs_rectilinear
def test_other_arrays_of_the_group_without_the_setting(place):
    truth = values(SHAPE, "f4")
    with ps.Session() as s:
        for name, chunks in (("u", LISTED), ("v", (3, 4))):
            s.write(place / "g", ps.Array(name, SHAPE, "f4", disk=ps.Chunks(chunks)), truth)
    with pytest.raises(ValueError, match="rectilinear_chunks"):
        zarr.open_group(place / "g", mode="r")
    group = zarr.open_group(place / "g", mode="r", use_consolidated=False)
    assert same_bits(group["v"][...], truth)
    with pytest.raises(ValueError, match="rectilinear_chunks"):
        group["u"]
    with zarr_python(), xarray.open_zarr(place / "g", chunks=None) as opened:
        assert same_bits(opened["u"].values, truth)


@needs_rectilinear
def test_an_array_that_zarr_python_has_made_smaller(place):
    truth = values(SHAPE, "f8")
    with zarr_python():
        group = zarr.open_group(place / "g", mode="w")
        array = group.create_array("u", shape=SHAPE, dtype="f8", chunks=[list(ROWS), list(COLUMNS)])
        array[...] = truth
        array.resize((7, 4))
    check(place / "g", truth[:7, :4])
