"""Records: arrays with named fields, against NumPy and zarr-python, on threads."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*Zarr V3 spec")

PAIR = [("x", "f8"), ("id", "i4")]
WIDE = [("a", "u1"), ("p", [("c", "c16"), ("n", "i2")]), ("x", "f8"), ("y", "f8"), ("b", "?", (2,))]
"""37 bytes, with a record and an array as fields."""
FLAT = [("a", "u1"), ("p", [("c", "c16"), ("n", "i2")]), ("x", "f8"), ("y", "f8"), ("b", "u2")]
"""37 bytes that Zarr has a word for."""
DISKS = {
    "natural": None,
    "chunks": ps.Chunks((4, 3)),
    "sums": ps.Chunks((4, 3), codec="crc32c"),
    "zstd": ps.Chunks((4, 3), codec="zstd:1+crc32c"),
    "blosc": ps.Chunks((4, 3), codec="blosc:lz4"),
    "shards": ps.Chunks((4, 6), subchunks=(2, 3)),
    "small": ps.Chunks((4, 6), subchunks=(2, 3), codec="gzip"),
    "shares": ps.Chunks("shares"),
    "npy": ps.RowMajor("npy"),
    "raw": ps.RowMajor("raw"),
    "parts": ps.Distribution("BLOCK,*", 3),
}


def records(dtype, shape, seed=1) -> np.ndarray:
    """Records of any bits, but booleans that are some."""
    dtype = np.dtype(dtype)
    made = np.zeros(shape, dtype)
    fill(made, np.random.default_rng(seed))
    return made


def fill(array: np.ndarray, rng: np.random.Generator) -> None:
    """Gives each number a value that none of its neighbours has."""
    if array.dtype.names:
        for name in array.dtype.names:
            fill(array[name], rng)
    else:
        array[...] = rng.integers(0, 100, array.shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all fields are the same."""
    if a.dtype.names != b.dtype.names or a.shape != b.shape:
        return False
    if a.dtype.names:
        return all(same(a[name], b[name]) for name in a.dtype.names)
    return a.dtype == b.dtype and np.array_equal(a, b)


def on_disk(path, disk) -> np.ndarray:
    """The array, by other software where there is some."""
    if isinstance(disk, ps.RowMajor) and disk.format == "npy":
        return np.load(path)
    if isinstance(disk, ps.RowMajor | ps.Distribution) or disk == ps.Chunks("shares"):
        with ps.Session() as s:
            return s.read(path, s.open(path))
    return zarr.open_group(path, mode="r")["u"][:]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("name", DISKS)
def test_records_are_written_and_read(tmp_path, name, align):
    """By every rank of three, from and to any distribution, with padding and without."""
    disk, path = DISKS[name], str(tmp_path / "u.npy")
    is_zarr = disk is None or isinstance(disk, ps.Chunks)
    for number, fields in enumerate([PAIR, FLAT if is_zarr else WIDE]):
        truth = records(np.dtype(fields, align=align), (9, 7), number)
        ps.run(partial(write_and_read, path, disk, truth), 3)
        assert same(on_disk(path, disk), truth.astype(fields))


def write_and_read(path, disk, truth, s):
    """One rank's part of a write and of reads in other distributions."""
    dtype = truth.dtype
    u = ps.Array("u", (9, 7), dtype, ps.Distribution("BLOCK,BLOCK", (3, 1), halo=1), disk)
    local = np.zeros(u.local_shape(s.rank), dtype)
    rows = u.local_slices(s.rank)
    local[1:-1, 1:-1] = truth[rows]
    before = local.copy()
    s.write(path, u, local)
    assert same(local, before)
    stored = s.open(path)
    assert stored.dtype.names == dtype.names
    assert stored.dtype.itemsize in (12, 37)
    dealt = ps.Distribution("*,CYCLIC", 3)
    for kind in (dtype, stored.dtype):
        v = ps.Array("u", (9, 7), kind, dealt)
        back = s.read(path, v)
        assert back.dtype == kind
        assert same(back, truth.astype(kind)[v.local_slices(s.rank)])
        assert same(s.begin_read(path, v).end(), back)
    # A halo stays as it is.
    out = records(dtype, local.shape, 7)
    kept = out.copy()
    kept[1:-1, 1:-1] = truth[rows]
    assert s.read(path, u, out) is out
    assert same(out, kept)


@pytest.mark.parametrize("strategy", ["disk-directed", "two-phase", "caching", "independent"])
def test_every_strategy_and_lists(tmp_path, strategy):
    """Elements of 37 bytes go to their places, whoever moves them."""
    path, order = str(tmp_path / "u.npy"), np.random.default_rng(3).permutation(63)
    truth = records(WIDE, 63)

    def job(s):
        mine = order[s.rank :: 3]
        u = ps.Array("u", 63, WIDE, ps.Runs(mine, 1), ps.RowMajor("npy"))
        s.write(path, u, truth[mine], strategy=strategy)
        back = s.read(path, u, strategy=strategy)
        assert same(back, truth[mine])

    ps.run(job, 3)
    assert same(np.load(path), truth)


def test_regions_open_arrays_and_updates(tmp_path):
    """Parts are read and changed, in one call and in open arrays."""
    for name in ("chunks", "zstd", "shards", "npy", "raw", "parts"):
        path, dtype = str(tmp_path / name), np.dtype(PAIR, align=True)
        truth, other = records(dtype, (9, 7)), records(dtype, (9, 7), 5)
        with ps.Session() as s:
            u = ps.Array("u", (9, 7), dtype, disk=DISKS[name])
            s.write(path, u, truth)
            s.write(path, u, other[2:5, 1:4], region=np.s_[2:5, 1:4])
            truth[2:5, 1:4] = other[2:5, 1:4]
            assert same(s.read(path, u), truth)
            with s.open(path, mode="r+") as opened:
                assert opened.dtype == np.dtype(PAIR)
                opened.write(np.s_[0:3], other[0:3])
                truth[0:3] = other[0:3]
                assert same(opened.read(np.s_[0:9, 3]), truth[:, 3:4].astype(PAIR))
                out = np.zeros((9, 7), dtype)
                assert opened.read(out=out) is out
                assert same(out, truth)
                opened.write_all(np.s_[7:9], other[7:9])
                truth[7:9] = other[7:9]
                assert same(opened.read_all(np.s_[5:9]), truth[5:9].astype(PAIR))
            assert same(s.read(path, u), truth)


def test_timesteps_checkpoints_and_verify(tmp_path):
    """A group of records grows, is checked, and is read by zarr-python."""
    path, dtype = str(tmp_path / "g.zarr"), np.dtype(PAIR, align=True)
    moments = [records(dtype, 8, number) for number in range(3)]
    particles = [records(FLAT, 5 + number, number) for number in range(3)]

    def job(s):
        u = ps.Array("u", 8, dtype, ps.Distribution("BLOCK", 2))
        p = ps.Array("p", (None,), FLAT)
        g = ps.Group("G", [u, p], path=path)
        for moment, rows in zip(moments, particles, strict=True):
            own = {"u": moment[u.local_slices(s.rank)], "p": rows if s.rank == 0 else rows[:0]}
            s.timestep(g, own)
        s.checkpoint(g, own)
        state = s.restart(g)
        assert same(state["u"], own["u"])

    ps.run(job, 2)
    stored = zarr.open_group(path, mode="r")
    assert same(stored["u"][:], np.stack(moments).astype(PAIR))
    assert not ps.verify(path).damages
    ps.copy(path, tmp_path / "h.zarr", chunks={"u_0": 2})
    assert same(zarr.open_group(tmp_path / "h.zarr", mode="r")["u"][:], stored["u"][:])


def test_fill_values(tmp_path):
    """A tuple, a record or 0; zarr-python and Penstock read the same."""
    dtype, mine = np.dtype(FLAT), (1, (2 - 1j, -3), float("inf"), 4.5, 7)
    for number, value in enumerate([mine, np.array(mine, dtype)[()], 0, None]):
        path = tmp_path / str(number)
        with ps.Session() as s:
            u = ps.Array("u", 6, dtype, disk=ps.Chunks((4,)), fill_value=value)
            held = u.with_memory(ps.Runs([1], 1))
            s.write(path, held, records(dtype, 1))
            expected = np.full(6, 0 if not value else np.array(mine, dtype), dtype)
            expected[1] = records(dtype, 1)[0]
            assert s.read(path, u).tobytes() == expected.tobytes()
            stored = s.open(path)
            assert stored.fill_value is None if not value else stored.fill_value == expected[0]
        assert zarr.open_group(path, mode="r")["u"][:].tobytes() == expected.tobytes()
    small = ps.Array("u", 1, [("v", "i2", (2,)), ("x", "f4")], fill_value=((3, 4), 1))
    assert small.fill_value["v"].tolist() == [3, 4]
    nested = ps.Array("u", 1, [("p", PAIR, (2,))], fill_value=(0,))
    assert nested.fill_value["p"].tolist() == [(0.0, 0)] * 2
    for wrong in [(1,), (1, 2, 3), 5, "x", (1.0, 2.5), ("x", 1), (None, 1j)]:
        with pytest.raises(ps.SchemaError, match="fill value of 'u"):
            ps.Array("u", 1, PAIR, fill_value=wrong)


@pytest.mark.parametrize("codec", ["none", "zstd", "blosc"])
def test_zarr_python_writes_them(tmp_path, codec):
    """Zarr v3 and v2, with chunks that are missing, and shards."""
    compressors = {
        "none": (None, None),
        "zstd": (zarr.codecs.ZstdCodec(), zarr.codecs.ZstdCodec()),
        "blosc": (zarr.codecs.BloscCodec(typesize=37), None),
    }[codec][0]
    truth = records(FLAT, (9, 7))
    group = zarr.open_group(tmp_path / "z", mode="w")
    for name, shards in {"u": None, "s": (6, 4)}.items():
        array = group.create_array(
            name,
            shape=(9, 7),
            chunks=(3, 2),
            dtype=truth.dtype,
            fill_value=truth[0, 0],
            compressors=compressors,
            shards=shards,
        )
        array[3:] = truth[3:]
    expected = truth.copy()
    expected[:3] = truth[0, 0]
    with ps.Session() as s:
        for name in ("u", "s"):
            stored = s.open(tmp_path / "z", name)
            assert same(s.read(tmp_path / "z", stored), expected)
            assert stored.fill_value.tobytes() == truth[0, 0].tobytes()
    ps.copy(tmp_path / "z", tmp_path / "copy")
    assert same(zarr.open_group(tmp_path / "copy", mode="r")["s"][:], expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True])
def test_the_second_format(tmp_path, compressed, order):
    """Lists of fields, each with a byte order of its own."""
    import numcodecs

    mixed = np.dtype([("a", "u1"), ("p", [("c", ">c16"), ("n", "<i2")]), ("x", ">f8")])
    truth = records(mixed, (9, 7))
    compressor = numcodecs.Zlib(1) if compressed else None
    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=2)
    array = group.create_array(
        "u", shape=(9, 7), chunks=(4, 3), dtype=mixed, compressors=compressor, order=order,
        fill_value=truth[1, 1],
    )  # fmt: skip
    array[4:] = truth[4:]
    expected = truth.copy()
    expected[:4] = truth[1, 1]
    with ps.Session() as s:
        stored = s.open(tmp_path / "z", "u")
        native = mixed.newbyteorder("=")
        assert stored.dtype == native
        assert same(s.read(tmp_path / "z", stored), expected.astype(native))
    ps.copy(tmp_path / "z", tmp_path / "copy")
    assert same(zarr.open_group(tmp_path / "copy", mode="r")["u"][:], expected.astype(native))


def test_other_forms_of_the_third_format(tmp_path):
    """`struct` of Zarr's registry, with an object as fill value, in both byte orders."""
    import json

    truth = records(PAIR, 5)
    with ps.Session() as s:
        s.write(tmp_path / "z", ps.Array("u", 5, PAIR, disk=ps.Chunks((5,))), truth)
    path = tmp_path / "z" / "u"
    metadata = json.loads((path / "zarr.json").read_text())
    assert metadata["data_type"] == {
        "name": "structured",
        "configuration": {"fields": [["x", "float64"], ["id", "int32"]]},
    }
    assert metadata["codecs"][0]["configuration"] == {"endian": sys.byteorder}
    spec = {"driver": "zarr3", "kvstore": f"file://{path}", "field": "id"}
    assert np.array_equal(tensorstore.open(spec, open=True).result().read().result(), truth["id"])
    fields = [{"name": "x", "data_type": "float64"}, {"name": "id", "data_type": {"name": "int32"}}]

    def change(data_type, fill, endian, shape=5):
        changed = {**metadata, "data_type": data_type, "fill_value": fill, "shape": [shape]}
        configuration = {} if endian is None else {"configuration": {"endian": endian}}
        changed["codecs"] = [{"name": "bytes", **configuration}]
        (path / "zarr.json").write_text(json.dumps(changed))
        (tmp_path / "z" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')

    struct = {"name": "struct", "configuration": {"fields": fields}}
    with ps.Session() as s:
        for endian, stored in [
            ("little", np.dtype(PAIR).newbyteorder("<")),
            ("big", np.dtype(PAIR).newbyteorder(">")),
            (None, np.dtype(PAIR).newbyteorder("<")),
        ]:
            change(struct, {"x": "NaN", "id": -4}, endian, 7)
            truth.astype(stored).tofile(path / "c" / "0")
            u = s.open(tmp_path / "z", "u")
            assert np.isnan(u.fill_value["x"])
            assert u.fill_value["id"] == -4
            back = s.read(tmp_path / "z", u)
            assert same(back[:5], truth)
            assert np.isnan(back["x"][5:]).all()
        for wrong_fields, fill in [
            (fields, {"x": 0.0, "id": 1.5}),
            (fields, {"x": 0.0, "id": 1, "z": 2}),
            (fields, "AAAA"),
            (fields, "??"),
            (fields, 0),
            (fields, None),
            ([*fields, fields[0]], "A" * 16),
            ([], {}),
            ([["x", "string"]], {}),
            ([["x"]], {}),
            ([["", "int8"]], "AA=="),
            ([[1, "int8"]], "AA=="),
            ({}, {}),
        ]:
            change({**struct, "configuration": {"fields": wrong_fields}}, fill, "little")
            with pytest.raises((ps.DamagedError, ps.UnsupportedError)):
                s.open(tmp_path / "z", "u")


NUMBERS = st.sampled_from(["u1", "<i2", ">i2", "<f4", ">f8", "<c8", ">c16", "?", ">u8", "<f2"])


def dtypes() -> st.SearchStrategy[np.dtype]:
    """Structured dtypes: nested, with small arrays, of both byte orders, with padding."""
    shapes = st.sampled_from([(), (), (2,), (2, 1)])
    of = st.recursive(
        NUMBERS.map(np.dtype),
        lambda inner: st.lists(st.tuples(inner, shapes), min_size=1, max_size=4).map(
            lambda fields: np.dtype([(f"f{n}", *field) for n, field in enumerate(fields)])
        ),
        max_leaves=9,
    ).filter(lambda dtype: dtype.names is not None)
    return st.tuples(of, st.booleans()).map(
        lambda pair: np.dtype(pair[0].descr, align=True) if pair[1] else pair[0]
    )


@settings(max_examples=60)
@given(dtypes(), st.booleans())
def test_any_file_of_numpy_is_read(dtype, fortran):
    """What `numpy.save` writes, with padding and mixed byte orders."""
    import tempfile

    truth = np.asarray(records(dtype, (3, 4)), order="F" if fortran else "C")
    with tempfile.TemporaryDirectory() as place, ps.Session() as s:
        path = f"{place}/a.npy"
        np.save(path, truth)
        stored = s.open(path)
        back = s.read(path, stored)
        native = truth.astype(back.dtype)
        assert back.dtype.names == dtype.names
        assert same(back, native)
        with s.open(path, mode="r+") as opened:
            opened.write(np.s_[1:2], back[0:1])
        truth[1] = truth[0]
        assert same(np.load(path).astype(back.dtype), truth.astype(back.dtype))
        s.write(f"{place}/b.npy", stored.with_disk(ps.RowMajor("npy")), back)
        assert same(np.load(f"{place}/b.npy"), native)


def test_fields_are_reduced(tmp_path):
    truth = records(WIDE, (9, 6))
    path = tmp_path / "r.npy"

    def job(s):
        array = ps.Array("r", truth.shape, truth.dtype, ps.Distribution("BLOCK,*", s.size))
        own = array.with_disk(ps.RowMajor("npy"))
        s.write(path, own, truth[array.local_slices(s.rank)[0]])
        for name, field in [("a", truth["a"]), ("p.n", truth["p"]["n"]), ("y", truth["y"])]:
            largest = s.reduce(path, array, how="max", over=0, field=name)
            assert same(largest, field.max(axis=0)) and largest.dtype == field.dtype
        total = s.reduce(path, array, how="sum", field="p.c")
        assert total == pytest.approx(truth["p"]["c"].sum())
        region = np.s_[2:5, 1:]
        count = s.reduce(path, array, how="count", field="p.n", region=region)
        assert count == 15
        for field, words in [
            (None, "name a field"),
            ("p", "name a field"),
            ("q", "no field 'q'"),
            ("p.q", "no field 'q'"),
            ("a.b", "no field 'b'"),
            ("b", "array of shape"),
        ]:
            with pytest.raises(ps.SchemaError, match=words):
                s.reduce(path, array, how="sum", field=field)
        with pytest.raises(ps.UnsupportedError, match="order"):
            s.reduce(path, array, how="max", field="p.c")

    ps.run(job, ranks=3, servers=2)
    plain = ps.Array("u", (4,), "f8")
    with ps.Session() as s:
        s.write(tmp_path / "u.zarr", plain, np.arange(4.0))
        with pytest.raises(ps.SchemaError, match="no field"):
            s.reduce(tmp_path / "u.zarr", plain, how="sum", field="x")


def test_what_is_refused(tmp_path):
    """By name, on every rank."""
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})
    for dtype, error, words in [
        ([("a", "U3")], ps.SchemaError, 'the field "a": no such element type'),
        ([("a", "M8[s]")], ps.SchemaError, "no such element type"),
        ([("a", "f8"), ("a", "f8")], ps.SchemaError, "dtype of 'u'"),
        ([("a", "f8", (0,))], ps.SchemaError, "no bytes"),
        ([], ps.SchemaError, "without fields|no such element type"),
        (overlapping, ps.SchemaError, "overlap"),
        ([("p", overlapping)], ps.SchemaError, "overlap"),
    ]:
        with pytest.raises(error, match=words):
            ps.Array("u", 3, dtype)

    def job(s):
        for disk, error, words in [
            (ps.Chunks((3,)), ps.UnsupportedError, "an array of shape"),
            (ps.HDF5(), ps.UnsupportedError, "records are not written"),
            (ps.NetCDF(), ps.UnsupportedError, "records are not written"),
        ]:
            u = ps.Array("u", 3, [("v", "f8", (2,))], disk=disk)
            with pytest.raises(error, match=words):
                s.write(tmp_path / "x", u, np.zeros(3 if s.rank == 0 else 0, u.dtype))
        u = ps.Array("u", 3, PAIR)
        for other in [[("x", "f8"), ("no", "i4")], ">f8", [("x", ">f8"), ("id", ">i4")], "V12"]:
            with pytest.raises(ps.SchemaError):
                s.write(tmp_path / "x", u, np.zeros(3 if s.rank == 0 else 0, other))
        read_only = np.zeros(3 if s.rank == 0 else 0, np.dtype(PAIR, align=True))
        s.write(tmp_path / "x", u, read_only)
        read_only.flags.writeable = False
        with pytest.raises(ps.SchemaError, match="read-only"):
            s.read(tmp_path / "x", u, read_only)

    ps.run(job, 2)


def test_arrays_are_values(tmp_path):
    """They are compared, hashed, pickled, and shown."""
    u = ps.Array("u", 3, PAIR, fill_value=(1.0, 2))
    assert pickle.loads(pickle.dumps(u)) == u
    assert hash(u) == hash(u.with_disk(None))
    assert u != ps.Array("u", 3, [("y", "f8"), ("id", "i4")], fill_value=(1.0, 2))
    assert "dtype=[('x', '<f8'), ('id', '<i4')]" in repr(u)


def test_info_and_the_command(tmp_path):
    """`penstock ls`, `info`, `verify` and `copy` take records."""
    truth = records(PAIR, (6, 4))
    np.save(tmp_path / "a.npy", truth.astype(np.dtype(PAIR, align=True)))

    def penstock(*words):
        command = [sys.executable, "-m", "penstock", *map(str, words)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    codec = ("--codec", "zstd+crc32c")
    penstock("copy", tmp_path / "a.npy", tmp_path / "z", "--chunks", "3,2", *codec)
    assert same(zarr.open_group(tmp_path / "z", mode="r")["a"][:], truth)
    assert "[('x', 'f8'), ('id', 'i4')]" in penstock("ls", tmp_path / "z")
    assert "[('x', 'f8'), ('id', 'i4')]" in penstock("info", tmp_path / "z" / "a")
    penstock("verify", tmp_path / "z")
    penstock("copy", tmp_path / "z", tmp_path / "b.npy")
    assert same(np.load(tmp_path / "b.npy"), truth)
    truth.tofile(tmp_path / "raw")
    described = "[('x', 'f8'), ('id', 'i4')]"
    raw = ("--shape", "6,4", "--dtype", described, "--chunks", "3,2")
    penstock("copy", tmp_path / "raw", tmp_path / "r", *raw)
    assert same(zarr.open_group(tmp_path / "r", mode="r")["raw"][:], truth)
    ps.copy(tmp_path / "raw", tmp_path / "r2", shape=(6, 4), dtype=PAIR, chunks=(3, 2))
    assert any("('x', '<f8')" in str(node) for node in ps.ls(tmp_path / "z"))
    assert ps.info(tmp_path / "a.npy")["arrays"][0]["element"] == described
