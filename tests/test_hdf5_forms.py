"""Datasets of HDF5 files whose elements only the library finds, decodes or understands: these are
read through it, by any number of servers. What nobody reads is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import hdf5plugin
import hypothesis
import hypothesis.strategies as st
import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from helpers import caught, fast_directory, leftovers, same_bits, values

import penstock as ps

SHAPE = (13, 9)


def make(
    path: Path,
    name: str,
    data: np.ndarray,
    change: Callable[[h5py.h5p.PropDCID], None] = lambda _: None,
    element: h5py.h5t.TypeID | None = None,
) -> None:
    """Makes a dataset as only the lower half of h5py can, and fills it."""
    with h5py.File(path, "a") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        change(how)
        one = h5py.h5s.create(h5py.h5s.SCALAR)
        space = h5py.h5s.create_simple(data.shape) if data.shape else one
        made = h5py.h5d.create(
            file.id, name.encode(), element or h5py.h5t.py_create(data.dtype), space, dcpl=how
        )
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))


def compact(how: h5py.h5p.PropDCID) -> None:
    how.set_layout(h5py.h5d.COMPACT)


NBIT, DEFLATE = h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_DEFLATE


def filtered(chunk: tuple[int, ...], *numbers: int) -> Callable[[h5py.h5p.PropDCID], None]:
    def change(how: h5py.h5p.PropDCID) -> None:
        how.set_chunk(chunk)
        for number in numbers:
            how.set_filter(number, h5py.h5z.FLAG_MANDATORY, (1,) if number == DEFLATE else ())

    return change


def read(path: str | Path, servers: int = 3) -> np.ndarray:
    """All of an array, by several servers."""
    with ps.Session(servers=servers, block_bytes=64) as session:
        return np.asarray(session.read(path, session.open(path)))


def stored(path: Path, name: str) -> np.ndarray:
    """What h5py reads, in the byte order of the machine."""
    with h5py.File(path) as file:
        data = np.asarray(file[name][()])
    return data.astype(data.dtype.newbyteorder("="))


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "<u2", ">i4", "<i8", ">f2", "<f4", ">f8", "<c8", ">c16"]
)
def test_compact_datasets_are_read(place, dtype):
    for number, shape in enumerate([(), (5,), SHAPE, (3, 4, 5), (1, 2, 3, 4)]):
        data = values(shape, dtype, number)
        make(place / "x.h5", f"u{number}", data, compact)
        found = read(f"{place}/x.h5:/u{number}", servers=1 + number)
        assert same_bits(found, data.astype(data.dtype.newbyteorder("=")))


@st.composite
def datasets(draw) -> tuple[np.ndarray, tuple[int, ...], str, dict[str, object], bool]:
    """Elements, chunks, the filter, what else h5py does, and whether most of it is not stored."""
    shape = tuple(draw(st.lists(st.integers(1, 17), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    chunks = tuple(min(chunk, n) for chunk, n in zip(chunks, shape, strict=True))
    word = draw(st.sampled_from(["lzf", "scaleoffset"]))
    kinds = "iu" if word == "scaleoffset" else "iufc?"
    dtypes = [
        d
        for d in ("?", "i1", "<i2", ">u4", "<i8", "<f4", ">f8", "<c16")
        if np.dtype(d).kind in kinds
    ]
    dtype = draw(st.sampled_from(dtypes))
    data = values(shape, dtype, draw(st.integers(0, 99)))
    if draw(st.booleans()):  # otherwise it does not compress, and is stored as it is
        data[...] = np.arange(data.size).reshape(shape) % 5
    how = {"lzf": {"compression": "lzf"}, "scaleoffset": {"scaleoffset": 0}}[word]
    if word == "lzf":
        how |= {"shuffle": draw(st.booleans()), "fletcher32": draw(st.booleans())}
    if draw(st.booleans()):
        how |= {"maxshape": (None,) * len(shape)}
    if np.dtype(dtype).kind != "c":
        how |= {"fillvalue": 1}
    return data, chunks, word, how, draw(st.booleans())


@hypothesis.settings(max_examples=60)
@hypothesis.given(datasets(), st.integers(1, 4), st.sampled_from(["earliest", "latest"]))
def test_filters_of_the_library_are_read(made, servers, libver):
    data, chunks, word, how, is_sparse = made
    with TemporaryDirectory(dir=fast_directory()) as directory:
        path = Path(directory) / "x.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("u", data.shape, data.dtype, chunks=chunks, **how)
            if is_sparse:
                file["u"][: data.shape[0] // 2] = data[: data.shape[0] // 2]
            else:
                file["u"][...] = data
        assert same_bits(read(path, servers=servers), stored(path, "u"))
        with ps.Session() as s:
            assert word in s.open(path).disk.filters


def few_bits(base: h5py.h5t.TypeID) -> h5py.h5t.TypeID:
    """Integers of 13 bits, which are not the lowest ones of their 32."""
    element = base.copy()
    element.set_precision(13)
    element.set_offset(4)
    return element


def test_numbers_of_few_bits_are_read_with_and_without_nbit(place):
    path = place / "x.h5"
    for sign, base in (("i", h5py.h5t.STD_I32LE), ("u", h5py.h5t.STD_U32BE)):
        element = few_bits(base)
        low = -(2**12) if sign == "i" else 0
        data = np.arange(low, low + 117 * 60, 60).reshape(SHAPE).astype(f"{sign}2")
        for name, how in (
            ("run", lambda _: None),
            ("chunks", filtered((4, 5))),
            ("nbit", filtered((4, 5), NBIT)),
            ("packed", filtered((4, 5), NBIT, DEFLATE)),
            ("compact", compact),
        ):
            name = f"{name}-{sign}"
            make(path, name, data, how, element)
            found = read(f"{path}:/{name}")
            assert found.dtype == f"{sign}2" and (found == data).all(), name
            assert (stored(path, name) == data).all(), name


def brain_float() -> h5py.h5t.TypeID:
    """Numbers of 16 bits with the range of those of 32."""
    element = h5py.h5t.IEEE_F32LE.copy()
    element.set_fields(15, 7, 8, 0, 7)
    element.set_precision(16)
    element.set_size(2)
    element.set_ebias(127)
    return element


def three_bytes() -> h5py.h5t.TypeID:
    element = h5py.h5t.STD_I32BE.copy()
    element.set_precision(24)
    element.set_size(3)
    return element


@pytest.mark.parametrize(
    ("element", "dtype"),
    [(brain_float(), "f4"), (three_bytes(), "i4")],
    ids=["bfloat16", "24 bits"],
)
def test_numbers_of_other_widths_get_a_type_that_has_them_all(place, element, dtype):
    data = (np.arange(117).reshape(SHAPE) - 50).astype(dtype)
    make(place / "x.h5", "run", data, element=element)
    make(place / "x.h5", "chunks", data, filtered((4, 5), DEFLATE), element=element)
    for name in ("run", "chunks"):
        # h5py writes in NumPy's type, and the library makes the stored one of it.
        found = read(f"{place}/x.h5:/{name}")
        assert found.dtype == dtype and (found == data).all(), name


def test_chunks_that_are_not_stored_are_zeros_where_the_file_says_nothing(place):
    """h5py leaves them as the memory was, if the file has no fill value."""
    with h5py.File(place / "x.h5", "w") as file:
        how = {"compression": "lzf", "fill_time": "never"}
        file.create_dataset("u", SHAPE, "i4", chunks=(4, 5), **how)[:4] = 1
    for _ in range(3):
        found = read(place / "x.h5")
        assert (found[:4] == 1).all() and (found[4:] == 0).all()


def test_parts_are_read(place):
    data = np.arange(117, dtype="i4").reshape(SHAPE)
    with h5py.File(place / "x.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(4, 5), compression="lzf")
    make(place / "x.h5", "c", data, compact)
    for name in "uc":
        with ps.Session(servers=2) as s, s.open(f"{place}/x.h5:/{name}", mode="r") as opened:
            for box in (np.s_[3:11, 2:9], np.s_[0:1, :], np.s_[12:, 8:], np.s_[5:5, :]):
                assert (opened.read(box) == data[box]).all()


def test_they_are_not_written_in_part(place):
    data = np.arange(117, dtype="i4").reshape(SHAPE)
    with h5py.File(place / "x.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(4, 5), compression="lzf")
    make(place / "x.h5", "c", data, compact)
    before = (place / "x.h5").read_bytes()
    for name in "uc":
        path = f"{place}/x.h5:/{name}"
        with ps.Session() as s:
            array = s.open(path)
            with pytest.raises(ps.UnsupportedError, match="through the HDF5 library"):
                s.write(path, array, np.ones((2, 2), "i4"), region=np.s_[:2, :2])
            with pytest.raises(ps.UnsupportedError, match="through the HDF5 library"):
                s.open(path, mode="r+")
    assert (place / "x.h5").read_bytes() == before and not leftovers(place)
    with ps.Session() as s:  # the whole is
        s.write(f"{place}/x.h5:/u", ps.Array("u", SHAPE, "i4", disk=ps.HDF5((4, 5))), data + 1)
    assert (stored(place / "x.h5", "u") == data + 1).all()


def refusals(path: Path) -> dict[str, str]:
    """Datasets of a file, and what the refusal of each says."""
    said = {
        "text": "texts", "texts": "texts", "fixed": "texts", "record": "records of a, b",
        "colour": "enumeration", "list": "lists", "reference": "references", "array": "arrays",
        "opaque": "opaque", "long": "16 bytes", "void": "no elements", "LZ4": "LZ4",
        "Bitshuffle": "bitshuffle", "Zfp": "ZFP", "outside": "a.raw.*h5repack",
    }  # fmt: skip
    colours = h5py.enum_dtype({"red": 1, "green": 2})
    with h5py.File(path, "w") as file:
        file["text"] = "text"
        file["texts"] = ["a", "b"]
        file["fixed"] = np.array([b"a", b"bc"])
        file["record"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        file.create_dataset("colour", (3,), colours)[...] = 1
        file.create_dataset("list", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("reference", (1,), h5py.ref_dtype)[0] = file["text"].ref
        file.create_dataset("array", (2,), np.dtype(("i4", (3,))))
        file["opaque"] = np.zeros(2, "V5")
        file["long"] = np.zeros(3, np.longdouble)
        file["void"] = h5py.Empty("f4")
        for plugin in (hdf5plugin.LZ4(), hdf5plugin.Bitshuffle(), hdf5plugin.Zfp()):
            file.create_dataset(
                type(plugin).__name__, data=np.ones((9, 9)), chunks=(4, 4), **plugin
            )
        (path.parent / "a.raw").write_bytes(bytes(80))
        file.create_dataset("outside", (10,), "f8", external=[("a.raw", 0, 80)])
    return said


def test_what_is_not_read_is_refused_by_its_name(place):
    said = refusals(place / "x.h5")
    with ps.Session() as s:
        for name, words in said.items():
            with pytest.raises(ps.UnsupportedError, match=words) as met:
                s.open(f"{place}/x.h5:/{name}")
            assert f"/{name}" in str(met.value) and "x.h5" in met.value.path
    found = {node.path: node.kind for node in ps.ls(place / "x.h5")}
    assert {found[name] for name in said} == {"unreadable"}


@pytest.mark.parametrize("word", ["lzf", "scaleoffset", "nbit", "blosc", "shuffle+lzf"])
def test_filters_that_are_only_read_are_refused_for_writing(place, word):
    array = ps.Array("u", SHAPE, "i4", disk=ps.HDF5((4, 5), filters=word))
    name = word.removeprefix("shuffle+")
    met = ps.run(lambda s: caught(lambda: s.write(place / "x.h5", array, np.ones(SHAPE, "i4"))), 1)
    assert isinstance(met[0], ps.UnsupportedError)
    assert f'filtering by "{name}"' in str(met[0]) and "shuffle+deflate" in str(met[0])
    assert not list(place.iterdir())


@pytest.mark.parametrize("word", ["szip", "lz4", "gzip", "lzf:3"])
def test_filters_without_a_word_are_refused(place, word):
    array = ps.Array("u", SHAPE, "i4", disk=ps.HDF5((4, 5), filters=word))
    with ps.Session() as s, pytest.raises(ps.SchemaError, match='"shuffle", "deflate"'):
        s.write(place / "x.h5", array, np.ones(SHAPE, "i4"))


def test_copies_keep_them_or_make_others_of_them(place):
    data = values((30, 20), "i4", 3)
    data[5:] = np.arange(20)
    with h5py.File(place / "x.h5", "w") as file:
        file.create_dataset("lzf", data=data, chunks=(7, 6), compression="lzf", shuffle=True)
        file.create_dataset("scaled", data=data // 1000, chunks=(7, 6), scaleoffset=0)
        file.create_dataset("blosc", data=data, chunks=(7, 6), **hdf5plugin.Blosc())
        file["plain"] = data
        file["lzf"].attrs["units"] = "K"
        file["x"] = np.arange(20.0)
        file["x"].make_scale()
        file["lzf"].dims[1].attach_scale(file["x"])
    make(place / "x.h5", "compact", data, compact)
    few = few_bits(h5py.h5t.STD_I32LE)
    make(place / "x.h5", "few", data // 2**20, filtered((7, 6), NBIT), element=few)
    names = ["lzf", "scaled", "blosc", "compact", "few"]
    report = ps.copy(place / "x.h5", place / "kept.h5")
    assert set(report.as_they_are) == set(names) and set(report.arrays) == {"plain", "x"}
    with h5py.File(place / "x.h5") as one, h5py.File(place / "kept.h5") as other:
        for name in (*names, "plain"):
            a, b = one[name].id.get_create_plist(), other[name].id.get_create_plist()
            assert a.get_layout() == b.get_layout() and a.get_nfilters() == b.get_nfilters(), name
            assert [a.get_filter(n)[0] for n in range(a.get_nfilters())] == [
                b.get_filter(n)[0] for n in range(b.get_nfilters())
            ]
            assert (one[name][...] == other[name][...]).all(), name
        assert other["lzf"].attrs["units"] == "K" and "x" in other["lzf"].dims[1][0].name
    report = ps.copy(place / "x.h5", place / "new.h5", filters="shuffle+deflate:1")
    assert not report.as_they_are
    ps.copy(place / "x.h5", place / "new.zarr")
    group = zarr.open_group(place / "new.zarr", mode="r")
    with h5py.File(place / "new.h5") as file:
        for name in names:
            assert file[name].compression == "gzip", name
            wanted = stored(place / "x.h5", name)
            assert (file[name][...] == wanted).all() and (group[name][...] == wanted).all(), name
    with pytest.raises(ps.UnsupportedError, match='filtering by "lzf"'):
        ps.copy(f"{place}/x.h5:/lzf", f"{place}/one.h5:/u")
    ps.copy(f"{place}/x.h5:/lzf", f"{place}/one.h5:/u", filters="deflate")
    assert (stored(place / "one.h5", "u") == data).all() and not leftovers(place)


def test_netcdf_keeps_variables_and_coordinates_of_such_filters(place):
    blosc = {"compression": "blosc_zstd", "complevel": 3}
    with netCDF4.Dataset(place / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 200)
        file.createVariable("x", "f8", ("x",), **blosc)[...] = np.arange(200.0)
        file.createVariable("t", "f8", ("t",), chunksizes=(64,), **blosc)[:64] = np.arange(64.0)
        rows = np.arange(64 * 200).reshape(64, 200) % 17
        file.createVariable("u", "f4", ("t", "x"), **blosc)[...] = rows
        file["u"].units = "K"
        file.createVariable("v", "f4", ("t", "x"), compression="zlib")[...] = 1
    report = ps.copy(place / "a.nc", place / "b.nc")
    assert set(report.as_they_are) == {"x", "t", "u"} and report.arrays == ("v",)
    for engine in ("netcdf4", "h5netcdf"):
        with (
            xarray.open_dataset(place / "a.nc", engine=engine) as one,
            xarray.open_dataset(place / "b.nc", engine=engine) as other,
        ):
            xarray.testing.assert_identical(one.load(), other.load())
    with netCDF4.Dataset(place / "b.nc", "a") as file:  # and it goes on as it did
        assert file["u"].filters()["blosc"]
        file["t"][64] = 64.0
        assert file["u"].shape == (65, 200)


def test_xarray_opens_them(place):
    data = np.arange(117.0).reshape(SHAPE)
    with h5py.File(place / "x.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(4, 5), compression="lzf")
    make(place / "x.h5", "c", data, compact)
    with xarray.open_dataset(place / "x.h5", engine="penstock") as opened:
        assert (opened.u.values == data).all() and (opened.c[3:7].values == data[3:7]).all()


def test_a_file_that_is_cut_short_is_refused(place):
    data = values((40, 30), "i4", 1)
    with h5py.File(place / "x.h5", "w") as file:
        file.create_dataset("u", data=data, chunks=(40, 30), compression="lzf")
        file.create_dataset("v", data=data // 1000, chunks=(8, 8), scaleoffset=0)
    whole = (place / "x.h5").read_bytes()
    for name in "uv":
        for bytes in (len(whole) - 1, len(whole) // 2):
            (place / "x.h5").write_bytes(whole[:bytes])
            with ps.Session() as s, pytest.raises(ps.DamagedError):
                s.read(f"{place}/x.h5:/{name}", ps.Array("u", (40, 30), "i4"))


def virtual(path, layout, **more):
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("u", layout, **more)


def test_virtual_datasets_are_read(tmp_path):
    """From other files, in pieces of any form; what is missing is the fill value."""
    parts = [values((4, 6), "f8", n) for n in range(3)]
    for number, part in enumerate(parts):
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            how = {"chunks": (2, 3), "compression": 1} if number else {}
            file.create_dataset("a/x", data=part, **how)
    layout = h5py.VirtualLayout((4, 4, 6), "f8")
    for number in range(4):  # there is no fourth
        layout[number] = h5py.VirtualSource(f"part{number}.h5", "a/x", (4, 6))
    virtual(tmp_path / "stack.h5", layout, fillvalue=7.0)
    strided = h5py.VirtualLayout((12, 3), "f8")
    for number in range(3):
        source = h5py.VirtualSource(tmp_path / f"part{number}.h5", "a/x", (4, 6))
        strided[number::3, ::2] = source[:, 1:3]
        strided[number::3, 1] = source[:, 5]
    virtual(tmp_path / "strided.h5", strided)
    for name in ("stack.h5", "strided.h5"):
        with h5py.File(tmp_path / name) as file:
            expected = file["u"][()]
        for ranks in (1, 3):
            array = ps.Array("u", expected.shape, "f8")
            rows = array.with_memory(
                ps.Distribution("BLOCK" + ",*" * (expected.ndim - 1), (ranks,))
            )

            def part(session, rows=rows, name=name):
                return session.read(tmp_path / name, rows)

            found = ps.run(part, ranks, block_bytes=64, servers=2)
            assert same_bits(np.concatenate(found), expected), name
        ps.copy(tmp_path / name, tmp_path / f"{name}.zarr", overwrite=True)
        assert same_bits(zarr.open_group(tmp_path / f"{name}.zarr")["u"][...], expected)
    with ps.Session() as s, pytest.raises(ps.UnsupportedError, match="library"):
        s.write(
            f"{tmp_path}/stack.h5:/u",
            s.open(f"{tmp_path}/stack.h5:/u"),
            1.0 + np.zeros((1, 4, 6)),
            region=0,
        )


def test_a_virtual_dataset_that_grows_with_its_sources(tmp_path):
    data = values((5, 4), "i4", 1)
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file.create_dataset("x", data=data, maxshape=(None, 4), chunks=(2, 4))
        source = h5py.VirtualSource(file["x"])
        layout = h5py.VirtualLayout((5, 4), "i4", maxshape=(None, 4))
        layout[: h5py.h5s.UNLIMITED, :] = source[: h5py.h5s.UNLIMITED, :]
    virtual(tmp_path / "all.h5", layout)
    with h5py.File(tmp_path / "part.h5", "a") as file:
        file["x"].resize(7, axis=0)
        file["x"][5:] = 9
    with ps.Session() as s:
        found = s.read(tmp_path / "all.h5", s.open(tmp_path / "all.h5"))
    assert found.shape == (7, 4) and same_bits(found[:5], data) and (found[5:] == 9).all()
