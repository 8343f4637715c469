"""What Penstock writes, other people's software reads as it stands: zarr-python, TensorStore,
xarray, NumPy, and `cat`."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
import tensorstore
import xarray
import zarr
from helpers import CODECS, DTYPES, Dealt, local_of, same_bits, values

import penstock as ps

SHAPE = (9, 7, 5)
HELD = Dealt("BLOCK,CYCLIC,*", (2, 2))


def store(path, dtype, disk, attrs=None, dims=None) -> np.ndarray:
    """Writes random values from four ranks; gives the whole array."""
    truth = values(SHAPE, dtype)

    def main(session):
        array = ps.Array("u", SHAPE, dtype, memory=HELD.memory(0), disk=disk, dims=dims)
        local = local_of(array, HELD, session.rank, "C", truth)
        session.write(path, array, local.view, attrs=attrs)

    ps.run(main, 4, sync=False)
    return truth


def open_tensorstore(path) -> np.ndarray:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    return tensorstore.open(spec, open=True, read=True).result().read().result()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("subchunks", [None, (2, 4, 1)])
def test_zarr_python_and_tensorstore(place, codec, subchunks):
    truth = store(place / "g", "f4", ps.Chunks((4, 4, 2), subchunks=subchunks, codec=codec))
    assert same_bits(zarr.open_group(place / "g", mode="r")["u"][...], truth)
    assert same_bits(open_tensorstore(place / "g" / "u"), truth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(place, dtype):
    truth = store(place / "g", dtype, ps.Chunks((4, 4, 2), codec="zstd:1"))
    assert same_bits(zarr.open_group(place / "g", mode="r")["u"][...], truth)
    assert same_bits(open_tensorstore(place / "g" / "u"), truth)
    truth = store(place / "u.npy", dtype, ps.RowMajor("npy"))
    assert same_bits(np.load(place / "u.npy"), truth)


def test_xarray(place):
    disk = ps.Chunks((4, 4, 5), codec="zstd:3")
    truth = store(place / "g", "f8", disk, attrs={"units": "K", "n": 3}, dims=("z", "y", "x"))
    opened = xarray.open_zarr(place / "g", consolidated=False, chunks=None, mask_and_scale=False)
    assert opened["u"].dims == ("z", "y", "x")
    assert opened["u"].attrs == {"units": "K", "n": 3}
    assert same_bits(opened["u"].values, truth)


@pytest.mark.parametrize(
    "codec, names",
    [
        ("none", ["bytes"]),
        ("crc32c", ["bytes", "crc32c"]),
        ("zstd:7", ["bytes", "zstd"]),
        ("blosc:lz4:4:bitshuffle+crc32c", ["bytes", "blosc", "crc32c"]),
    ],
)
def test_the_metadata_say_what_was_asked_for(place, codec, names):
    store(place / "g", "f8", ps.Chunks((4, 4, 2), codec=codec), attrs={"a": [1, None]})
    group = json.loads((place / "g" / "zarr.json").read_text())
    assert (group["zarr_format"], group["node_type"]) == (3, "group")
    meta = json.loads((place / "g" / "u" / "zarr.json").read_text())
    assert (meta["zarr_format"], meta["node_type"]) == (3, "array")
    assert meta["shape"] == list(SHAPE) and meta["data_type"] == "float64"
    assert meta["chunk_grid"]["configuration"]["chunk_shape"] == [4, 4, 2]
    assert meta["attributes"] == {"a": [1, None]} and meta["fill_value"] == 0
    chain = meta["codecs"]
    assert [entry["name"] for entry in chain] == names
    settings = {entry["name"]: entry.get("configuration", {}) for entry in chain}
    if "zstd" in settings:
        assert settings["zstd"]["level"] == 7
    if "blosc" in settings:
        assert settings["blosc"]["cname"] == "lz4" and settings["blosc"]["clevel"] == 4
        assert settings["blosc"]["shuffle"] == "bitshuffle"
        assert settings["blosc"]["typesize"] == 8


def test_subchunks_are_the_sharding_codec(place):
    store(place / "g", "f8", ps.Chunks((4, 4, 4), subchunks=(2, 4, 1), codec="zstd:1"))
    array = zarr.open_group(place / "g", mode="r")["u"]
    assert array.shards == (4, 4, 4) and array.chunks == (2, 4, 1)


def test_numpy_maps_an_npy_file(place):
    truth = store(place / "u.npy", "f8", ps.RowMajor("npy"))
    mapped = np.load(place / "u.npy", mmap_mode="r")
    assert same_bits(mapped, truth) and mapped.flags.c_contiguous
    assert mapped.offset % 64 == 0


def test_a_raw_file_is_the_elements_and_nothing_else(place):
    truth = store(place / "u.raw", "i4", ps.RowMajor(), attrs={"units": "K"})
    assert (place / "u.raw").read_bytes() == truth.tobytes()
    beside = json.loads((place / "u.raw.json").read_text())
    assert beside["array"]["shape"] == list(SHAPE)
    assert beside["array"]["attributes"] == {"units": "K"}


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9, 11])
def test_traditional_order(place, parts):
    """For BLOCK,*,* the part files concatenate to the row-major file, with `cat`."""
    truth = store(place / "d", "f8", ps.Distribution("BLOCK,*,*", (parts,)))
    files = sorted(file for file in (place / "d").iterdir() if file.name.startswith("u."))
    assert len(files) == parts
    concatenated = subprocess.run(["cat", *files], capture_output=True, check=True).stdout
    store(place / "u.raw", "f8", ps.RowMajor())
    assert concatenated == truth.tobytes() == (place / "u.raw").read_bytes()


def test_more_than_ten_thousand_parts_still_sort(place):
    """Numbers have as many digits as sort them."""
    u = ps.Array("u", (10_010,), "u1", disk=ps.Distribution("BLOCK", (10_001,)))
    truth = values((10_010,), "u1")
    with ps.Session(sync=False) as s:
        s.write(place / "d", u, truth)
        files = sorted(file for file in (place / "d").iterdir() if file.name.startswith("u."))
        assert b"".join(file.read_bytes() for file in files) == truth.tobytes()
        assert same_bits(s.read(place / "d", u), truth)


def test_the_store_can_be_appended_to_by_zarr_python(place):
    """Others may go on with what Penstock has made, and Penstock with what they did."""
    truth = store(place / "g", "f8", ps.Chunks((4, 4, 2), codec="zstd:1"))
    group = zarr.open_group(place / "g", mode="r+")
    group["u"][0, 0, :] = -1.0
    group.create_array("w", data=np.arange(3))
    group.attrs["title"] = "run 1"
    truth[0, 0, :] = -1.0
    with ps.Session() as s:
        assert same_bits(s.read(place / "g", s.open(place / "g", "u")), truth)
        assert s.read(place / "g", s.open(place / "g", "w")).tolist() == [0, 1, 2]
