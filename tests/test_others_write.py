"""What others write, Penstock reads: zarr-python (both formats), TensorStore, NumPy. And what it
does not read it says, instead of reading it wrongly."""

from __future__ import annotations

import json

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from helpers import DTYPES, Dealt, local_of, part_of, same_bits, values
from zarr import codecs

import penstock as ps

SHAPE = (9, 7, 5)
FILL = 42


def read_back(path, array, servers=2) -> np.ndarray:
    """Reads with three ranks and puts the whole together."""
    held = {
        0: Dealt("", ()),
        1: Dealt("CYCLIC(2)", (3,)),
        2: Dealt("*,CYCLIC", (3,)),
        3: Dealt("*,CYCLIC(2),*", (3,)),
    }[len(array.shape)]

    def main(session):
        mine = array.with_memory(held.memory(0))
        local = local_of(mine, held, session.rank, "F", None)
        session.read(path, mine, out=local.view)
        return local.interior

    parts = ps.run(main, 3, servers=servers, block_bytes=64)
    whole = np.zeros(array.shape, array.dtype)
    for rank, part in enumerate(parts):
        indices = held.indices(array.shape, rank)
        if not array.shape:
            whole[...] = parts[0]
        elif 0 not in part.shape:
            whole[np.ix_(*indices)] = part
    return whole


def assert_reads(path, truth, name=None) -> ps.Array:
    """Opened by its schema, read by other ranks, it is the truth in native byte order."""
    with ps.Session() as session:
        array = session.open(path, name)
        assert array.shape == truth.shape and array.dtype == truth.dtype.newbyteorder("=")
        assert same_bits(session.read(path, array), truth.astype(array.dtype))
    assert same_bits(read_back(path, array), truth.astype(array.dtype))
    return array


# ---------------------------------------------------------------------------------------------
# Zarr, format 3
# ---------------------------------------------------------------------------------------------

ZARR3 = {
    "defaults": {},
    "sharded": {"shards": (4, 4, 4), "chunks": (2, 4, 1)},
    "sharded, no compressor": {"shards": (4, 4, 4), "chunks": (2, 4, 1), "compressors": None},
    "plain": {"compressors": None},
    "big endian": {"compressors": None, "serializer": codecs.BytesCodec(endian="big")},
    "big endian, zstd": {"serializer": codecs.BytesCodec(endian="big")},
    "transposed": {"filters": [codecs.TransposeCodec(order=(2, 1, 0))]},
    "rotated, plain": {"filters": [codecs.TransposeCodec(order=(1, 2, 0))], "compressors": None},
    "gzip": {"compressors": codecs.GzipCodec(level=1)},
    "blosc": {"compressors": codecs.BloscCodec(cname="lz4", shuffle="shuffle")},
    "blosc, bits": {"compressors": codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")},
    "two compressors": {"compressors": [codecs.GzipCodec(level=1), codecs.ZstdCodec(level=1)]},
    "checksum": {"compressors": [codecs.ZstdCodec(level=1, checksum=True), codecs.Crc32cCodec()]},
    "dots in keys": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "keys as in format 2": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}


@pytest.mark.parametrize("how", ZARR3)
@pytest.mark.parametrize("dtype", ["f8", "i2"])
def test_zarr3_of_zarr_python(place, how, dtype):
    truth = values(SHAPE, dtype, 1)
    options = {"chunks": (4, 3, 2), **ZARR3[how]}
    group = zarr.create_group(place / "g", zarr_format=3)
    array = group.create_array("u", shape=SHAPE, dtype=dtype, **options)
    array[...] = truth
    assert_reads(place / "g", truth)
    assert_reads(place / "g" / "u", truth)


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("index", [[codecs.BytesCodec()], [codecs.BytesCodec(endian="big")]])
def test_shards_with_their_index_anywhere(place, location, index):
    truth = values(SHAPE, "f4")
    shards = codecs.ShardingCodec(
        chunk_shape=(2, 2, 5),
        codecs=[codecs.BytesCodec(endian="big"), codecs.ZstdCodec(level=1)],
        index_codecs=index,
        index_location=location,
    )
    array = zarr.create_array(
        place / "u", shape=SHAPE, dtype="f4", chunks=(4, 4, 5), serializer=shards, compressors=None
    )
    array[...] = truth
    assert_reads(place / "u", truth)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_zarr3_in_both_byte_orders(place, dtype, endian):
    truth = values(SHAPE, dtype)
    serializer = "auto" if np.dtype(dtype).itemsize == 1 else codecs.BytesCodec(endian=endian)
    array = zarr.create_array(
        place / "u", shape=SHAPE, dtype=dtype, chunks=(4, 3, 2), serializer=serializer
    )
    array[...] = truth
    assert_reads(place / "u", truth)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("compressors", [None, "auto"])
@pytest.mark.parametrize("dtype, fill", [("i4", FILL), ("f8", np.nan), ("?", True), ("c8", 1 + 2j)])
def test_missing_chunks_are_the_fill_value(place, zarr_format, compressors, dtype, fill):
    array = zarr.create_array(
        place / "u", shape=SHAPE, dtype=dtype, chunks=(4, 3, 2), fill_value=fill,
        compressors=compressors, zarr_format=zarr_format,
    )  # fmt: skip
    array[0:4, 0:3, 0:2] = 0
    truth = np.full(SHAPE, fill, dtype)
    truth[0:4, 0:3, 0:2] = 0
    assert_reads(place / "u", truth)


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_missing_subchunks_are_the_fill_value(place, compressors):
    array = zarr.create_array(
        place / "u", shape=SHAPE, dtype="i4", shards=(4, 4, 4), chunks=(2, 2, 2),
        fill_value=FILL, compressors=compressors,
    )  # fmt: skip
    array[2:5, 1:3, 0:3] = 7
    truth = np.full(SHAPE, FILL, "i4")
    truth[2:5, 1:3, 0:3] = 7
    assert_reads(place / "u", truth)


def test_names_and_attributes_of_others(place):
    group = zarr.create_group(place / "g", attributes={"title": "run"})
    group.create_array(
        "u", data=np.ones((2, 3)), dimension_names=("y", None), attributes={"units": "K"}
    )
    with ps.Session() as session:
        array = session.open(place / "g")
    assert array.name == "u" and array.attrs["units"] == "K"
    assert array.dims in (("y", ""), ("y", None))


def test_tensorstore(place):
    truth = values(SHAPE, "f4")
    for number, chain in enumerate(
        [
            [{"name": "bytes", "configuration": {"endian": "big"}}],
            [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, {"name": "bytes"},
             {"name": "gzip", "configuration": {"level": 1}}],
            [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [2, 3, 5], "codecs": [{"name": "bytes"}, {"name": "crc32c"}],
                "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}}],
        ]
    ):  # fmt: skip
        path = place / f"t{number}"
        grid = {"name": "regular", "configuration": {"chunk_shape": [4, 6, 5]}}
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(path)},
            "metadata": {
                "shape": SHAPE, "data_type": "float32", "chunk_grid": grid, "codecs": chain
            },
        }  # fmt: skip
        tensorstore.open(spec, create=True).result().write(truth).result()
        assert_reads(path, truth)


# ---------------------------------------------------------------------------------------------
# Zarr, format 2
# ---------------------------------------------------------------------------------------------


def make_zarr2(place, truth, **options):
    group = zarr.create_group(place / "g", zarr_format=2)
    array = group.create_array(
        "u", shape=truth.shape, dtype=truth.dtype, chunks=(4, 3, 2), **options
    )
    array[...] = truth
    return place / "g"


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<i2", ">u4", "|b1", ">c16", "<f2", "|u1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_zarr2(place, dtype, order, compressors):
    truth = values(SHAPE, dtype)
    path = make_zarr2(place, truth, order=order, compressors=compressors)
    assert_reads(path, truth, "u")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", "<c8", "<M8[s]"])
def test_zarr2_without_dimensions(place, order, dtype):
    """zarrs takes it for granted that an array in Fortran's order has dimensions."""
    group = zarr.create_group(place / "g", zarr_format=2)
    group.create_array("u", shape=(), dtype=dtype, order=order)[...] = np.ones((), dtype)
    assert ps.ls(place / "g")
    ps.copy(place / "g", place / "copied")
    assert zarr.open_group(place / "copied", mode="r")["u"][...] == np.ones((), dtype)


@pytest.mark.parametrize("codec", ["blosc", "gzip", "zlib", "lz4"])
def test_zarr2_compressors(place, codec):
    """What can be read is read; what cannot is refused by name."""
    import numcodecs

    compressor = {
        "blosc": numcodecs.Blosc(cname="lz4", shuffle=1),
        "gzip": numcodecs.GZip(1),
        "zlib": numcodecs.Zlib(1),
        "lz4": numcodecs.LZ4(),
    }[codec]
    truth = values(SHAPE, "f8")
    path = make_zarr2(place, truth, compressors=compressor)
    try:
        assert_reads(path, truth)
    except ps.UnsupportedError as error:
        assert codec in ("zlib", "lz4") and codec in str(error)


def test_zarr2_attributes_and_nested_keys(place):
    truth = values(SHAPE, "f4")
    path = make_zarr2(
        place, truth, chunk_key_encoding={"name": "v2", "separator": "/"},
        attributes={"units": "K", "_ARRAY_DIMENSIONS": ["z", "y", "x"]},
    )  # fmt: skip
    array = assert_reads(path, truth)
    assert array.dims == ("z", "y", "x") and array.attrs["units"] == "K"


# ---------------------------------------------------------------------------------------------
# NumPy
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f8", ">f8", ">c16", "<c8", ">i2", "|b1", "|u1", ">f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [SHAPE, (13,), (0, 4), ()])
def test_npy(place, dtype, order, shape):
    truth = np.asarray(values(shape, dtype), order=order)
    np.save(place / "u.npy", truth)
    array = assert_reads(place / "u.npy", truth)
    assert array.name == "u" and array.disk == ps.RowMajor("npy")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(place, version):
    truth = values(SHAPE, "f8")
    with open(place / "u.npy", "wb") as file:
        np.lib.format.write_array(file, truth, version=version)
    assert_reads(place / "u.npy", truth)


@pytest.mark.parametrize(
    "dtype", [[("a", "f8"), ("b", "U4")], "U3", "S4", "M8[s]", "m8[ns]", "O", "f16"]
)
def test_npy_of_other_types_is_refused(place, dtype):
    np.save(place / "u.npy", np.zeros(3, dtype), allow_pickle=True)
    with ps.Session() as session, pytest.raises((ps.UnsupportedError, ps.SchemaError)) as met:
        session.open(place / "u.npy")
    assert "u.npy" in str(met.value)


def test_raw_needs_only_shape_and_type(place):
    """A raw file of others has no schema beside it; the reader says what it holds."""
    truth = values(SHAPE, "f4")
    truth.tofile(place / "u.raw")
    array = ps.Array("u", SHAPE, "f4", disk=ps.RowMajor())
    assert same_bits(read_back(place / "u.raw", array), truth)
    with ps.Session() as session, pytest.raises(ps.Error, match=r"shape and dtype"):
        session.open(place / "u.raw")


# ---------------------------------------------------------------------------------------------
# What is read whatever the reader's schema says of the disk
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disk", [None, ps.Chunks((2, 2, 2)), ps.RowMajor("npy")])
@pytest.mark.parametrize("form", ["zarr", "npy", "parts"])
def test_the_disk_schema_is_that_of_the_store(place, disk, form):
    """`Session.read`: name, shape, dtype and memory schema count."""
    truth = values(SHAPE, "f4")
    path = place / "u"
    if form == "zarr":
        zarr.create_group(path).create_array("u", data=truth, chunks=(4, 3, 2))
    elif form == "npy":
        with open(path, "wb") as file:
            np.save(file, truth)
    else:
        with ps.Session() as session:
            parts = ps.Distribution("BLOCK,*,*", (2,))
            session.write(path, ps.Array("u", SHAPE, "f4", disk=parts), truth)
    array = ps.Array("u", SHAPE, "f4", disk=disk)
    assert same_bits(read_back(path, array), truth)


# ---------------------------------------------------------------------------------------------
# What is refused
# ---------------------------------------------------------------------------------------------


def change(path, **entries) -> None:
    meta = json.loads(path.read_text())
    meta.update(entries)
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "entries, word",
    [
        ({"data_type": "string"}, "string"),
        ({"data_type": "bfloat16"}, "bfloat16"),
        ({"codecs": [{"name": "bytes"}, {"name": "pied_piper"}]}, "pied_piper"),
        ({"chunk_grid": {"name": "wavy", "configuration": {}}}, "wavy"),
        ({"storage_transformers": [{"name": "mirror"}]}, "transformer"),
    ],
)
def test_zarr3_that_is_not_read(place, entries, word):
    zarr.create_array(place / "u", shape=SHAPE, dtype="f4", chunks=(4, 3, 2))[...] = 1
    change(place / "u" / "zarr.json", **entries)
    with ps.Session() as session, pytest.raises(ps.UnsupportedError, match=word) as met:
        session.open(place / "u")
    assert str(place) in str(met.value)
    assert "zarr.json" in met.value.path


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("shards", [None, (8, 4, 4)], ids=["chunks", "shards"])
def test_a_checksum_of_any_number_of_bytes(place, zarr_format, shards):
    """Compressed chunks have odd numbers of bytes, too."""
    if zarr_format == 2 and shards:
        pytest.skip("the second format has no shards")
    data = values(SHAPE, "u1", 6) % 5
    filters = numcodecs if zarr_format == 2 else codecs.numcodecs
    compressors = [filters.Zlib(level=1), filters.Fletcher32()]
    if zarr_format == 2:  # it has one compressor
        how = {"filters": compressors, "compressors": None}
    else:
        how = {"compressors": compressors, "shards": shards}
    array = zarr.create_array(
        place / "u", shape=SHAPE, dtype="u1", chunks=(4, 2, 4), zarr_format=zarr_format, **how
    )
    array[...] = data
    assert same_bits(read_back(place / "u", ps.Array("u", SHAPE, "u1")), data)


def test_part_of_is_part_of():
    """The helper itself."""
    truth = np.arange(6).reshape(2, 3)
    assert part_of(truth, [np.array([1]), np.array([0, 2])]).tolist() == [[3, 5]]
