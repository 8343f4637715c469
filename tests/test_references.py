"""References of kerchunk, and of others in its format: read, copied, and refused."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import fsspec
import h5py
import numcodecs
import numpy as np
import pytest
import xarray
import zarr
from buckets import BUCKET, Service, reached
from helpers import penstock, same_bits, values
from kerchunk.combine import MultiZarrToZarr
from kerchunk.df import refs_to_dataframe
from kerchunk.hdf import SingleHdf5ToZarr
from zarr.storage import FsspecStore, MemoryStore

import penstock as ps

ROOT = {".zgroup": '{"zarr_format": 2}'}

FEW_DESCRIPTORS = """
import resource, sys
import penstock as ps
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
with ps.Session() as s:
    print(s.read(sys.argv[1], s.open(sys.argv[1], "u")).sum())
"""

INLINE = [0, 100, 1 << 20]
"""Chunks of fewer bytes are in the references themselves."""


@pytest.fixture(scope="module")
def bucket():
    with reached() as running:
        yield running


def load(path: str | Path, name: str | None = None, region=None, servers: int = 2) -> np.ndarray:
    """Read an array, or a region of it, by one rank."""

    def rank(s: ps.Session) -> np.ndarray:
        return s.read(path, s.open(path, name), region=region)

    return ps.run(rank, 1, servers=servers)[0]


def hdf5_file(path: Path) -> dict[str, np.ndarray]:
    """A file with what HDF5 has of layouts and filters; gives its arrays."""
    arrays = {
        "plain": values((6, 5), "f8", 1),
        "big": values((9,), ">i4", 2),
        "fields/chunked": values((7, 11, 5), "f4", 3),
        "fields/shuffled": values((7, 11), "i2", 4),
        "fields/deep/deflated": values((13, 4), "f8", 5),
        "one": values((), "f8", 6),
        "sparse": np.full((8, 8), -3, "i8"),
    }
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "a file"
        for name in ("plain", "big", "one"):
            file[name] = arrays[name]
        make = file.create_dataset
        make("fields/chunked", data=arrays["fields/chunked"], chunks=(3, 4, 2))
        data = arrays["fields/shuffled"]
        make("fields/shuffled", data=data, chunks=(3, 4), compression="gzip", shuffle=True)
        data = arrays["fields/deep/deflated"]
        make("fields/deep/deflated", data=data, chunks=(5, 4), compression=1)
        sparse = make("sparse", (8, 8), "i8", chunks=(3, 3), fillvalue=-3)
        sparse[3:6, 0:3] = arrays["sparse"][3:6, 0:3] = 9
        file["plain"].attrs["units"] = "K"
        file["plain"].dims[0].label = "y"
    return arrays


def of_kerchunk(path: Path, inline: int) -> dict:
    return SingleHdf5ToZarr(str(path), inline_threshold=inline).translate()


def in_tables(references: dict, path: Path, record_size: int) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas would have another library
        refs_to_dataframe(references, str(path), record_size=record_size)
    return path


def by_fsspec(references: dict | str) -> zarr.Group:
    """What fsspec and zarr-python make of the same references."""
    options = {"remote_options": {"asynchronous": True}, "asynchronous": True}
    system = fsspec.filesystem("reference", fo=references, **options)
    return zarr.open_group(FsspecStore(system), mode="r", zarr_format=2)


# ---------------------------------------------------------------------------------------------
# Made by kerchunk
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", INLINE)
@pytest.mark.parametrize("form", ["1", "0", "tables", "a table"])
def test_references_to_hdf5_are_read(form, inline, tmp_path):
    arrays = hdf5_file(tmp_path / "a.h5")
    references = of_kerchunk(tmp_path / "a.h5", inline)
    path = tmp_path / "any name"
    if "table" in form:
        in_tables(references, path, 5 if form == "tables" else 10_000)
    else:
        path.write_text(json.dumps(references if form == "1" else references["refs"]))
    theirs = by_fsspec(references)
    for name, array in arrays.items():
        group, _, own = name.rpartition("/")
        found = load(path, name)
        assert same_bits(found, array.astype(array.dtype.newbyteorder("=")))
        assert same_bits(found, np.asarray(theirs[name][...]).astype(found.dtype))
        for place in (f"{path}/{name}", f"{path}:/{name}"):
            assert same_bits(load(place), found)
        assert same_bits(load(f"{path}:/{group}", own), found)
    region = (slice(2, 6), slice(3, 9), slice(1, 4))
    part = load(path, "fields/chunked", region)
    assert same_bits(part, arrays["fields/chunked"][region])
    about = {each["path"]: each for each in ps.info(path)["arrays"]}
    assert set(about) == set(arrays)
    assert about["plain"]["attributes"]["units"] == "K"
    listed = penstock("ls", path)
    assert all(name in listed for name in ("fields", "deep", "deflated", "sparse"))


def netcdf_files(place: Path, count: int = 3) -> tuple[list[Path], xarray.Dataset]:
    """Files of one timestep each, and all of them as one data set."""
    whole = xarray.Dataset(
        {
            "t": (("time", "y", "x"), values((count, 6, 8), "f4", 7), {"units": "K"}),
            "s": (("y", "x"), values((6, 8), "f8", 8)),
        },
        {"time": np.arange(count, dtype="f8"), "x": np.arange(8.0)},
        {"title": "steps"},
    )
    encoding = {"t": {"zlib": True, "shuffle": True, "chunksizes": (1, 3, 8)}}
    paths = []
    for step in range(count):
        paths.append(place / f"{step}.nc")
        part = whole.isel(time=[step])
        part.to_netcdf(paths[-1], engine="netcdf4", encoding=encoding)
    return paths, whole


def of_files(paths: list[Path], inline: int) -> dict:
    one = [of_kerchunk(path, inline) for path in paths]
    together = {"concat_dims": ["time"], "identical_dims": ["x", "s"]}
    return MultiZarrToZarr(one, **together, inline_threshold=inline).translate()


@pytest.mark.parametrize("inline", INLINE)
@pytest.mark.parametrize("in_directory", [False, True])
def test_files_that_kerchunk_joins_are_one_data_set(in_directory, inline, tmp_path):
    paths, whole = netcdf_files(tmp_path)
    references = of_files(paths, inline)
    path = tmp_path / "all.json"
    if in_directory:
        path = in_tables(references, tmp_path / "all.parq", 4)
    else:
        path.write_text(json.dumps(references))
    with xarray.open_dataset(path, engine="penstock", chunks={}) as found:
        xarray.testing.assert_equal(found.load(), whole)
        assert found.t.attrs == {"units": "K"} and found.attrs["title"] == "steps"
    penstock("copy", path, tmp_path / "copy.zarr")
    with xarray.open_zarr(tmp_path / "copy.zarr") as copied:
        xarray.testing.assert_equal(copied.load(), whole)
        assert copied.t.attrs["units"] == "K" and copied.attrs["title"] == "steps"
    group = zarr.open_group(tmp_path / "copy.zarr", mode="r")
    assert group["t"].metadata.dimension_names == ("time", "y", "x")


def test_relative_paths_are_relative_to_the_references(tmp_path, monkeypatch):
    arrays = hdf5_file(tmp_path / "a.h5")
    references = of_kerchunk(tmp_path / "a.h5", 0)
    for name in ("a.h5", "data/../a.h5", f"file://{tmp_path}/a.h5", f"local://{tmp_path}/a.h5"):
        text = json.dumps(references).replace(str(tmp_path / "a.h5"), name)
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "refs.json").write_text(text)
        monkeypatch.chdir("/")
        assert same_bits(load(tmp_path / "refs.json", "plain"), arrays["plain"])


def test_copies_to_other_forms(tmp_path):
    arrays = hdf5_file(tmp_path / "a.h5")
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(of_kerchunk(tmp_path / "a.h5", 50)))
    penstock("copy", path, tmp_path / "all.zarr", "--ranks", 2)
    group = zarr.open_group(tmp_path / "all.zarr", mode="r")
    assert group.attrs["title"] == "a file"
    for name, array in arrays.items():
        assert same_bits(group[name][...], array.astype(array.dtype.newbyteorder("=")))
    penstock("copy", f"{path}:/fields/deep", tmp_path / "deep.h5")
    with h5py.File(tmp_path / "deep.h5") as file:
        assert same_bits(file["deflated"][...], arrays["fields/deep/deflated"])
    penstock(
        "copy", f"{path}:/fields/chunked", tmp_path / "one.npy", "--row-major", "--drop-attributes"
    )
    assert same_bits(np.load(tmp_path / "one.npy"), arrays["fields/chunked"])


# ---------------------------------------------------------------------------------------------
# Made by hand, at random
# ---------------------------------------------------------------------------------------------


class Scattered:
    """An array whose encoded chunks lie about in files and in references."""

    def __init__(self, place: Path, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.place = place
        dims = chance.randrange(4)
        self.shape = tuple(chance.randint(1, 9) for _ in range(dims))
        chunk = tuple(chance.randint(1, 5) for _ in self.shape)
        dtype = chance.choice(["<f8", ">f4", "<i2", "|u1", ">i8", "<c16", "|b1"])
        self.files = [bytearray(chance.randbytes(chance.randrange(40))) for _ in range(4)]
        self.refs: dict[str, object] = {".zgroup": '{"zarr_format": 2}'}
        self.truth = values(self.shape, np.dtype(dtype).newbyteorder("="), seed)
        self.is_third = chance.random() < 0.4
        encoded = self._encode(dtype, chunk)
        fill = np.zeros((), self.truth.dtype)
        for key, data in encoded.items():
            if key.rsplit("/", 1)[-1] in ("zarr.json", ".zarray", ".zattrs"):
                self.refs[key] = data.decode() if chance.random() < 0.5 else json.loads(data)
                continue
            if chance.random() < 0.15:
                self._forget(key, fill)
                continue
            self.refs[key] = self._reference(data)
        for number, data in enumerate(self.files):
            (place / f"{number}.bin").write_bytes(data)
        (place / "refs.json").write_text(json.dumps({"version": 1, "refs": self.refs}))

    def _encode(self, dtype: str, chunk: tuple[int, ...]) -> dict[str, bytes]:
        """The keys of a store that zarr-python has written."""
        chance, store = self.chance, MemoryStore()
        group = zarr.open_group(store, mode="w", zarr_format=3 if self.is_third else 2)
        self.extents = chunk
        more: dict = {"fill_value": 0, "dtype": dtype, "chunks": chunk, "shape": self.shape}
        if self.is_third:
            more["compressors"] = chance.choice([None, "auto"])
            if self.shape and chance.random() < 0.4:
                self.extents = more["shards"] = tuple(2 * n for n in chunk)
        else:
            width = np.dtype(dtype).itemsize
            filters = [
                [],
                [numcodecs.Shuffle(width)],
                [numcodecs.Shuffle(width), numcodecs.Zlib(2)],
            ]
            more["filters"] = chance.choice(filters)
            codecs = [None, numcodecs.Zlib(1), numcodecs.Zstd(1), numcodecs.Blosc("lz4")]
            more["compressors"] = chance.choice(codecs)
            more["order"] = chance.choice("CF")
            separator = chance.choice("./")
            more["chunk_key_encoding"] = {"name": "v2", "separator": separator}
        array = group.create_array("u", **more, config={"write_empty_chunks": True})
        array[...] = self.truth
        if self.is_third:
            del self.refs[".zgroup"]
        stored = {key: data.to_bytes() for key, data in store._store_dict.items()}
        return {key: data for key, data in stored.items() if key.startswith("u/") or self.is_third}

    def _forget(self, key: str, fill: np.ndarray) -> None:
        """Leaves a chunk out: it is of the fill value."""
        numbers = key.removeprefix("u/").removeprefix("c").replace("/", ".").strip(".")
        index = [int(n) for n in numbers.split(".")] if self.shape else []
        pairs = zip(index, self.extents, strict=True)
        self.truth[tuple(slice(i * n, (i + 1) * n) for i, n in pairs)] = fill

    def _reference(self, data: bytes) -> object:
        chance = self.chance
        match chance.randrange(5):
            case 0:
                return "base64:" + base64.b64encode(data).decode()
            case 1:
                name = f"whole-{chance.getrandbits(60)}.bin"
                (self.place / name).write_bytes(data)
                return [name]
            case 2 if data.isascii() and not data.startswith(b"base64:"):
                return data.decode()
            case _:
                number = chance.randrange(len(self.files))
                file = self.files[number]
                at = len(file)
                file += data + chance.randbytes(chance.randrange(30))
                name = chance.choice([f"{number}.bin", f"{self.place}/{number}.bin"])
                return [name, at, len(data)]


@pytest.mark.parametrize("seed", range(60))
def test_scattered_chunks_are_read(seed, tmp_path):
    made = Scattered(tmp_path, seed)
    path = tmp_path / "refs.json"
    servers = 1 + seed % 3
    assert same_bits(load(path, "u", servers=servers), made.truth)
    for _ in range(3):
        starts = [made.chance.randrange(n) for n in made.shape]
        region = tuple(
            slice(i, made.chance.randint(i + 1, n)) for i, n in zip(starts, made.shape, strict=True)
        )
        assert same_bits(load(path, "u", region, servers), made.truth[region])


def test_many_files_need_few_descriptors(tmp_path):
    truth, refs = np.arange(300, dtype="<f8"), dict(ROOT)
    for number, value in enumerate(truth):
        (tmp_path / f"{number}").write_bytes(value.tobytes())
        refs[f"u/{number}"] = [str(number)]
    refs["u/.zarray"] = array_of(shape=[300], chunks=[1], dtype="<f8")
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    command = [sys.executable, "-c", FEW_DESCRIPTORS, tmp_path / "refs.json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(said.stdout) == truth.sum()


# ---------------------------------------------------------------------------------------------
# Faults, and what is refused
# ---------------------------------------------------------------------------------------------


def array_of(**more) -> str:
    metadata = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f8", "order": "C"}
    return json.dumps(metadata | {"compressor": None, "filters": None, "fill_value": 7} | more)


def small(place: Path, chunk: object, **more) -> Path:
    """References to an array of two chunks, of which the second is missing."""
    (place / "data.bin").write_bytes(np.array([1.0, 2.0]).tobytes())
    refs = {**ROOT, "u/.zarray": array_of(**more), "u/0": chunk}
    (place / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return place / "refs.json"


def test_a_chunk_without_reference_is_of_the_fill_value(tmp_path):
    path = small(tmp_path, ["data.bin", 0, 16])
    assert load(path, "u").tolist() == [1, 2, 7, 7]


@pytest.mark.parametrize(
    ("chunk", "kind", "said"),
    [
        (["gone.bin", 0, 16], ps.MissingError, "gone.bin"),
        (["gone.bin"], ps.MissingError, "gone.bin"),
        (["data.bin", 8, 16], ps.DamagedError, "data.bin"),
        (["data.bin", 2**64 - 8, 16], ps.DamagedError, "data.bin"),
        (["data.bin", 0, 2**63], ps.DamagedError, "data.bin"),
        (["data.bin", 0, 8], ps.DamagedError, "data.bin"),
        (["."], ps.UnsupportedError, "no file"),
        ("short", ps.DamagedError, "refs.json"),
    ],
)
@pytest.mark.parametrize("compressor", [None, {"id": "zlib", "level": 1}])
def test_a_chunk_that_is_not_there_is_an_error(chunk, kind, said, compressor, tmp_path):
    path = small(tmp_path, chunk, compressor=compressor)
    with pytest.raises(kind) as error:
        load(path, "u")
    assert said in str(error.value)
    if compressor is None or kind is ps.MissingError:
        assert "u/0" in str(error.value)
    with pytest.raises(kind):
        ps.run(
            lambda s: s.read(
                path, ps.Array("u", (4,), "f8", memory=ps.Distribution("BLOCK", (3,)))
            ),
            3,
        )


def test_a_file_that_is_cut_short_is_an_error(tmp_path):
    arrays = hdf5_file(tmp_path / "a.h5")
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(of_kerchunk(tmp_path / "a.h5", 0)))
    size = (tmp_path / "a.h5").stat().st_size
    with open(tmp_path / "a.h5", "r+b") as file:
        file.truncate(size // 3)
    failed = 0
    for name in arrays:
        try:
            assert same_bits(
                load(path, name), arrays[name].astype(arrays[name].dtype.newbyteorder("="))
            )
        except ps.DamagedError as error:
            failed += 1
            assert "a.h5" in str(error)
    assert failed


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"gen": [{"key": "u/{{i}}", "url": "x"}]}, ps.UnsupportedError, "gen"),
        ({"version": 2}, ps.UnsupportedError, "version 2"),
        ({"refs": {**ROOT, "u/.zarray": 5}}, ps.DamagedError, "u/.zarray"),
        ({"refs": {**ROOT, "u/.zarray": array_of(), "u/0": ["x", 1]}}, ps.DamagedError, "u/0"),
        (
            {"refs": {**ROOT, "u/.zarray": array_of(), "u/0": ["x", -1, 3]}},
            ps.DamagedError,
            "references",
        ),
        ({"refs": {**ROOT, "u/.zarray": array_of(), "u/0": "base64:?"}}, ps.DamagedError, "u/0"),
        (
            {"refs": {**ROOT, "u/.zarray": array_of(), "u/0": ["ftp://a/x"]}},
            ps.UnsupportedError,
            "ftp://",
        ),
        (
            {"refs": {**ROOT, "u/.zarray": array_of(), "u/0": ["zip://a::b"]}},
            ps.UnsupportedError,
            "zip",
        ),
        (
            {"templates": {"a": "x"}, "refs": {**ROOT, "u/.zarray": array_of(), "u/0": ["{{b}}y"]}},
            ps.UnsupportedError,
            "template",
        ),
        (
            {"refs": {**ROOT, "u/.zarray": array_of(compressor={"id": "lzma"})}},
            ps.UnsupportedError,
            "lzma",
        ),
    ],
)
def test_what_is_not_read_is_refused_by_name(change, kind, said, tmp_path):
    path = small(tmp_path, ["data.bin"])
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(kind, match=re.escape(said)):
        load(path, "u")


def test_templates_are_filled_in(tmp_path):
    path = small(tmp_path, ["{{a}}.{{ b }}"])
    text = json.loads(path.read_text()) | {"templates": {"a": "data", "b": "bin"}}
    path.write_text(json.dumps(text))
    assert load(path, "u").tolist() == [1, 2, 7, 7]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", '{"refs": {}}', "{", "", '{"version": 1}'])
def test_other_json_is_no_set_of_references(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises((ps.UnsupportedError, ps.DamagedError)):
        load(tmp_path / "x.json", "u")


def test_nothing_is_written_through_references(tmp_path):
    path = small(tmp_path, ["data.bin"])
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    u = ps.Array("u", (4,), "f8")
    data = np.arange(4.0)
    with ps.Session() as s:
        with pytest.raises(ps.UnsupportedError, match="references"):
            s.write(path, ps.Array("u", (4,), "f8"), data[:2], region=(slice(0, 2),))
        with pytest.raises(ps.UnsupportedError, match="references"):
            s.open(path, "u", mode="r+")
        with pytest.raises(ps.Error):
            s.write(path, u, data)
        with pytest.raises(ps.Error):
            s.write(f"{path}/u", u, data)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_references_that_change_are_read_anew(tmp_path):
    path = small(tmp_path, ["data.bin"])
    assert load(path, "u").tolist() == [1, 2, 7, 7]
    small(tmp_path, ["data.bin", 0, 16], fill_value=8)
    assert load(path, "u").tolist() == [1, 2, 8, 8]


# ---------------------------------------------------------------------------------------------
# In buckets
# ---------------------------------------------------------------------------------------------


def put(bucket: Service, place: Path, prefix: str) -> None:
    for file in place.rglob("*"):
        if file.is_file():
            key = f"{prefix}/{file.relative_to(place)}"
            bucket.client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())


@pytest.mark.parametrize("inline", [0, 100])
def test_chunks_and_references_in_buckets(bucket: Service, inline, tmp_path):
    data, local = tmp_path / "data", tmp_path / "local"
    data.mkdir()
    local.mkdir()
    arrays = hdf5_file(data / "a.h5")
    prefix = f"s3://{BUCKET}/refs-{inline}"
    references = of_kerchunk(data / "a.h5", inline)
    references = json.loads(json.dumps(references).replace(str(data / "a.h5"), f"{prefix}/a.h5"))
    (data / "refs.json").write_text(json.dumps(references))
    in_tables(references, data / "tables", 7)
    put(bucket, data, f"refs-{inline}")
    shutil.copy(data / "refs.json", local)
    beside = json.dumps(references).replace(f"{prefix}/a.h5", "a.h5")
    bucket.client.put_object(Bucket=BUCKET, Key=f"refs-{inline}/beside.json", Body=beside.encode())
    places = [local / "refs.json", data / "tables"]
    places += [f"{prefix}/{name}" for name in ("refs.json", "tables", "beside.json")]
    for place in places:
        for name, array in arrays.items():
            assert same_bits(load(str(place), name), array.astype(array.dtype.newbyteorder("=")))
        assert {each["path"] for each in ps.info(str(place))["arrays"]} == set(arrays)
    penstock("copy", f"{prefix}/refs.json", tmp_path / "copy.zarr")
    copied = zarr.open_group(tmp_path / "copy.zarr", mode="r")
    assert same_bits(copied["fields/chunked"][...], arrays["fields/chunked"])


def test_references_in_a_bucket_lead_to_no_local_file(bucket: Service, tmp_path):
    path = small(tmp_path, [f"file://{tmp_path}/data.bin"])
    bucket.client.put_object(Bucket=BUCKET, Key="local.json", Body=path.read_bytes())
    with pytest.raises(ps.UnsupportedError, match="this machine"):
        load(f"s3://{BUCKET}/local.json", "u")


def test_an_object_that_is_gone_or_short_is_an_error(bucket: Service, tmp_path):
    path = small(tmp_path, [f"s3://{BUCKET}/no-such-object", 0, 16])
    with pytest.raises(ps.MissingError, match="no-such-object"):
        load(path, "u")
    bucket.client.put_object(Bucket=BUCKET, Key="short", Body=b"12345678")
    path = small(tmp_path, [f"s3://{BUCKET}/short", 0, 16])
    with pytest.raises(ps.DamagedError, match="short"):
        load(path, "u")
