"""Whatever stands in the files: a `DamagedError` with the file's path, on every rank."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from helpers import alone, assert_alike, caught, fails, ramp, same_bits, values

import penstock as ps

SHAPE = (12, 8)
DISKS = {
    "plain": ps.Chunks((4, 4)),
    "zstd": ps.Chunks((4, 4), codec="zstd:1"),
    "blosc": ps.Chunks((4, 4), codec="blosc:lz4"),
    "crc32c": ps.Chunks((4, 4), codec="crc32c"),
    "shards": ps.Chunks((8, 8), subchunks=(4, 4), codec="zstd:1"),
    "plain shards": ps.Chunks((8, 8), subchunks=(4, 4)),
    "raw": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", (3,)),
}


def array(form: str) -> ps.Array:
    memory = ps.Distribution("*,BLOCK", (3,))
    return ps.Array("u", SHAPE, "f8", memory=memory, disk=DISKS[form])


def store(path: Path, form: str) -> ps.Array:
    u = array(form).with_memory(ps.Distribution("*,*", ()))
    with ps.Session(sync=False) as s:
        s.write(path, u, values(SHAPE, "f8"))
    return array(form)


def data_files(path: Path, form: str) -> list[Path]:
    """The files with elements in them."""
    if form in ("raw", "npy"):
        return [path]
    pattern = "u.0*" if form == "parts" else "u/c/*/*"
    return sorted(path.glob(pattern))


def read_fails(path, u, kind=ps.DamagedError, *words):
    return fails(kind, lambda s: s.read(path, u), *words)


@pytest.mark.parametrize("form", DISKS)
@pytest.mark.parametrize("keep", [0, 1, 0.5, -1])
def test_cut_short(place, form, keep):
    u = store(place / "s", form)
    file = data_files(place / "s", form)[-1]
    data = file.read_bytes()
    rest = data[: int(len(data) * keep)] if isinstance(keep, float) else data[:keep]
    file.write_bytes(rest)
    if form == "npy" and keep in (0, 1):
        met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
        assert isinstance(met[0], ps.DamagedError | ps.UnsupportedError)
        assert_alike(met, type(met[0]), str(file))
        return
    error = read_fails(place / "s", u, ps.DamagedError, str(file))
    assert error.path == str(file)


@pytest.mark.parametrize("form", DISKS)
def test_too_long(place, form):
    """What follows a .npy array is no business of ours, as it is none of NumPy's."""
    u = store(place / "s", form)
    file = data_files(place / "s", form)[0]
    file.write_bytes(file.read_bytes() + b"more")
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    if form in ("npy", "zstd", "blosc", "shards", "plain shards") and not isinstance(
        met[0], ps.Error
    ):
        whole = np.concatenate(met, axis=1)
        assert same_bits(whole, values(SHAPE, "f8")), "wrong data in silence"
        return
    assert_alike(met, ps.DamagedError, str(file))


@pytest.mark.parametrize("form", ["crc32c", "zstd+crc32c", "shards+crc32c"])
def test_any_flipped_byte_is_seen_with_crc32c(place, form):
    disk = {
        "crc32c": ps.Chunks(SHAPE, codec="crc32c"),
        "zstd+crc32c": ps.Chunks(SHAPE, codec="zstd:1+crc32c"),
        "shards+crc32c": ps.Chunks(SHAPE, subchunks=(6, 4), codec="crc32c"),
    }[form]
    u = ps.Array("u", SHAPE, "u1", disk=disk)
    with ps.Session(sync=False) as s:
        s.write(place / "s", u, values(SHAPE, "u1"))
        (file,) = (place / "s").glob("u/c/*/*")
        data = bytearray(file.read_bytes())
        for at in range(len(data)):
            data[at] ^= 0x10
            file.write_bytes(data)
            with pytest.raises(ps.DamagedError) as met:
                s.read(place / "s", u)
            assert met.value.path == str(file)
            data[at] ^= 0x10
        file.write_bytes(data)
        assert same_bits(s.read(place / "s", u), values(SHAPE, "u1"))


@pytest.mark.parametrize("form", ["zstd", "blosc", "shards", "plain shards"])
@pytest.mark.parametrize("seed", range(4))
def test_garbage_never_crashes(place, form, seed):
    """Without a checksum wrong bytes may decode to wrong elements; nothing worse."""
    chance = random.Random(seed)
    u = store(place / "s", form)
    for file in data_files(place / "s", form):
        data = bytearray(file.read_bytes())
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file.write_bytes(data)
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    if any(isinstance(one, ps.Error) for one in met):
        assert_alike(met, ps.DamagedError, str(place / "s"))


@pytest.mark.parametrize("form", ["raw", "npy", "parts", "plain"])
def test_files_that_are_gone(place, form):
    u = store(place / "s", form)
    data_files(place / "s", form)[0].unlink()
    if form == "plain":  # a chunk that is not there is the fill value
        ps.run(lambda s: s.read(place / "s", u), 3)
        return
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    assert_alike(met, ps.DamagedError if form == "parts" else ps.MissingError, str(place / "s"))


GARBAGE = {
    "empty": b"",
    "text": b"hello",
    "half": b'{"zarr_format": 3, "node_type": "arr',
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "binary": bytes(range(256)),
    "an empty object": b"{}",
    "deep": b"[" * 100_000,
    "only a format": b'{"zarr_format": 3}',
    "another format": b'{"zarr_format": 4, "node_type": "array"}',
    "another node": b'{"zarr_format": 3, "node_type": "shrub"}',
    "no more than a node": b'{"zarr_format": 3, "node_type": "array"}',
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("file", ["u/zarr.json", "zarr.json"])
def test_garbage_for_zarr_json(place, garbage, file):
    u = store(place / "s", "plain")
    (place / "s" / file).write_bytes(GARBAGE[garbage])
    if (garbage, file) == ("no more than a node", "zarr.json"):
        # The group says that it is an array: one of another name than the one asked for.
        read_fails(place / "s", u, ps.MissingError)
        return
    read_fails(place / "s", u, ps.DamagedError, "zarr.json")
    with ps.Session() as s, pytest.raises(ps.DamagedError):
        s.open(place / "s" / file.removesuffix("zarr.json"))


ENTRIES = {
    "shape of text": {"shape": "12"},
    "negative shape": {"shape": [-12, 8]},
    "shape of another rank": {"shape": [12, 8, 1]},
    "huge shape": {"shape": [2**63, 2**63]},
    "chunks of zero": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}},
    "chunks of another rank": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}
    },
    "huge chunks": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**40, 2**40]}}
    },
    "no codecs": {"codecs": []},
    "codecs that are no list": {"codecs": "bytes"},
    "a codec without a name": {"codecs": [{}]},
    "a fill value of another type": {"fill_value": "zero"},
    "attributes that are no object": {"attributes": 3},
    "names of another number": {"dimension_names": ["x"]},
    "subchunks that do not divide": {
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [3, 4],
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                },
            }
        ]
    },
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_metadata_that_do_not_fit_together(place, entry):
    u = store(place / "s", "plain")
    file = place / "s" / "u" / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **ENTRIES[entry]}))
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    assert isinstance(met[0], ps.DamagedError | ps.SchemaError | ps.UnsupportedError), met[0]
    assert_alike(met, type(met[0]), str(place / "s"))


@pytest.mark.parametrize("missing", ["shape", "data_type", "chunk_grid", "codecs", "fill_value"])
def test_metadata_that_lack_something(place, missing):
    u = store(place / "s", "plain")
    file = place / "s" / "u" / "zarr.json"
    meta = json.loads(file.read_text())
    del meta[missing]
    file.write_text(json.dumps(meta))
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    assert isinstance(met[0], ps.DamagedError | ps.UnsupportedError)
    assert_alike(met, type(met[0]), "zarr.json")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_for_the_schema_of_parts(place, garbage):
    u = store(place / "s", "parts")
    (place / "s" / "schema.json").write_bytes(GARBAGE[garbage])
    met = ps.run(lambda s: caught(lambda: s.read(place / "s", u)), 3)
    assert isinstance(met[0], ps.DamagedError | ps.UnsupportedError)
    assert_alike(met, type(met[0]), str(place / "s"))


READS = """
import resource, sys, penstock as ps
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
u = ps.Array("u", (12, 8), "f8", disk=ps.Chunks((4, 4)))
with ps.Session() as s:
    try:
        s.read(sys.argv[1], u)
    except ps.Error as error:
        print(error.kind)
"""


@pytest.mark.parametrize("places", [10**12, 10**9])
def test_a_schema_of_parts_with_a_mesh_beyond_all_bounds(place, places):
    """No time and no memory is spent on what cannot be."""
    store(place / "s", "parts")
    file = place / "s" / "schema.json"
    schema = json.loads(file.read_text())
    schema["array"]["disk"]["parts"][1] = [places]
    file.write_text(json.dumps(schema))
    assert alone(READS, place / "s") == "Damaged\n"


@pytest.mark.parametrize("codec", ["plain", "zstd", "shards"])
def test_chunks_beyond_all_memory(place, codec):
    """A small array may be stored in chunks of any size; not every one can be read."""
    store(place / "s", codec)
    file = place / "s" / "u" / "zarr.json"
    meta = json.loads(file.read_text())
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [2**38, 8]
    file.write_text(json.dumps(meta))
    assert alone(READS, place / "s") in ("Damaged\n", "Unsupported\n", "Io\n", "Full\n")


@pytest.mark.parametrize("seed", range(30))
def test_npy_headers_with_garbage(place, seed):
    """Any byte of a header changed: an error of ours, or what NumPy reads, too."""
    chance = random.Random(seed)
    truth = ramp(SHAPE)
    np.save(place / "u.npy", truth)
    data = bytearray((place / "u.npy").read_bytes())
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(80)] = chance.randrange(256)
    (place / "u.npy").write_bytes(data)
    with ps.Session() as s:
        found = caught(lambda: s.read(place / "u.npy", s.open(place / "u.npy")))
    if isinstance(found, ps.Error):
        assert isinstance(found, ps.DamagedError | ps.UnsupportedError | ps.SchemaError)
        return
    assert same_bits(found, np.load(place / "u.npy").astype(found.dtype))


@pytest.mark.parametrize("form", ["plain", "npy", "parts"])
def test_a_damaged_store_can_be_written_anew(place, form):
    """Or the write says why not; in any case nothing is left over."""
    u = store(place / "s", form)
    data_files(place / "s", form)[0].write_bytes(b"")
    store(place / "s", form)
    parts = ps.run(lambda s: s.read(place / "s", u), 3)
    assert same_bits(np.concatenate(parts, axis=1), values(SHAPE, "f8"))
    assert [entry.name for entry in place.iterdir()] == ["s"]
