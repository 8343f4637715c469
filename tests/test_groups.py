"""Groups and attributes; and that a data set is replaced at once, by something whole."""

from __future__ import annotations

import json
import threading
import time
import warnings

import numpy as np
import pytest
import zarr
from helpers import leftovers, ramp, same_bits, tree

import penstock as ps

CHUNKS = ps.Chunks((4, 4))


def make(name="u", shape=(7, 5), disk=CHUNKS, **more) -> ps.Array:
    return ps.Array(name, shape, "f8", disk=disk, **more)


def test_two_arrays_in_one_group(place):
    u, v = make("u"), make("v", shape=(3,), disk=ps.Chunks((2,), codec="zstd"))
    with ps.Session() as s:
        s.write(place / "g", u, ramp((7, 5)), attrs={"of": "u"})
        s.write(place / "g", v, ramp((3,)), attrs={"of": "v"})
        before = tree(place / "g" / "v")
        s.write(place / "g", u, -ramp((7, 5)))
        assert tree(place / "g" / "v") == before, "writing u again has touched v"
        assert same_bits(s.read(place / "g", u), -ramp((7, 5)))
        assert same_bits(s.read(place / "g", v), ramp((3,)))
    group = zarr.open_group(place / "g", mode="r")
    assert sorted(group.array_keys()) == ["u", "v"]
    assert group["v"].attrs.asdict() == {"of": "v"} and group["u"].attrs.asdict() == {}
    assert not leftovers(place)


def test_attributes_of_the_group_stay(place):
    zarr.create_group(place / "g", attributes={"title": "run 1"})
    with ps.Session() as s:
        for _ in range(2):
            s.write(place / "g", make(), ramp((7, 5)))
    assert zarr.open_group(place / "g", mode="r").attrs.asdict() == {"title": "run 1"}


def test_consolidated_metadata_that_would_lie_go(place):
    """They would hide the new array, or describe the old one."""
    group = zarr.create_group(place / "g", attributes={"title": "run 1"})
    group.create_array("u", data=np.zeros(3))
    with warnings.catch_warnings(action="ignore"):  # that format 3 does not know of them yet
        zarr.consolidate_metadata(place / "g")
    with ps.Session() as s:
        s.write(place / "g", make("u"), ramp((7, 5)))
        s.write(place / "g", make("v"), ramp((7, 5)))
    group = zarr.open_group(place / "g", mode="r")
    assert group["u"].shape == (7, 5) and sorted(group.array_keys()) == ["u", "v"]
    assert group.attrs.asdict() == {"title": "run 1"}


@pytest.mark.parametrize("where", ["u", "checkpoints", "checkpoints/0", "time"])
def test_nothing_is_written_into_a_group_with_timesteps(place, where):
    """Where its own arrays and checkpoints are."""
    group = ps.Group("g", [make()], place / "g")
    with ps.Session() as s:
        s.timestep(group, {"u": ramp((7, 5))})
        s.checkpoint(group, {"u": ramp((7, 5))})
        before = tree(place)
        (place / "g" / where).parent.mkdir(parents=True, exist_ok=True)
        with pytest.raises(ps.SchemaError):
            s.write(place / "g" / where, make("w"), ramp((7, 5)))
        assert tree(place) == before
        s.timestep(group, {"u": ramp((7, 5))})


@pytest.mark.parametrize("disk", [CHUNKS, ps.RowMajor(), ps.Distribution("BLOCK,*", (2,))])
def test_attributes_of_any_sort(place, disk):
    attrs = {
        "text": 'Grüße, "quotes"\n',
        "nothing": None,
        "yes": True,
        "deep": {"list": [1, 2.5, [], {}], "": "empty key"},
        "large": 2**53 - 1,
        "negative": -(2**63),
        "huge": 2**64 - 1,
        "tiny": 5e-324,
        "tenth": 0.1,
    }
    with ps.Session() as s:
        s.write(place / "u", make(disk=disk), ramp((7, 5)), attrs=attrs)
        assert dict(s.open(place / "u").attrs) == attrs
    if disk == CHUNKS:
        assert zarr.open_group(place / "u", mode="r")["u"].attrs.asdict() == attrs


def test_attributes_of_the_array_and_of_the_call(place):
    """The array's own go with every write; the call's are added, and win."""
    u = make(attrs={"units": "K", "step": 0})
    with ps.Session() as s:
        s.write(place / "g", u, ramp((7, 5)), attrs={"step": 1})
        assert dict(s.open(place / "g").attrs) == {"units": "K", "step": 1}
        s.write(place / "g", u, ramp((7, 5)))
        assert dict(s.open(place / "g").attrs) == {"units": "K", "step": 0}


def test_dimension_names(place):
    for disk in (CHUNKS, ps.RowMajor(), ps.Distribution("*,BLOCK", (2,))):
        with ps.Session() as s:
            path = place / type(disk).__name__
            s.write(path, make(disk=disk, dims=("lat", "lon")), ramp((7, 5)))
            assert s.open(path).dims == ("lat", "lon")
    meta = json.loads((place / "Chunks" / "u" / "zarr.json").read_text())
    assert meta["dimension_names"] == ["lat", "lon"]


def test_what_is_opened_can_be_written_again(place):
    """The schema that comes from disk is the schema that went there."""
    for number, disk in enumerate(
        [
            ps.Chunks((4, 3), codec="zstd:5"),
            ps.Chunks((4, 4), subchunks=(2, 4), codec="blosc:lz4:3:bitshuffle+crc32c"),
            ps.RowMajor(),
            ps.RowMajor("npy"),
            ps.Distribution("BLOCK,BLOCK", (2, 3)),
        ]
    ):
        with ps.Session() as s:
            first, second = place / f"a{number}", place / f"b{number}"
            first.mkdir()
            second.mkdir()
            s.write(first / "u", make(disk=disk), ramp((7, 5)))
            opened = s.open(first / "u")
            assert opened.disk == disk
            s.write(second / "u", opened, ramp((7, 5)))
        assert tree(first) == tree(second)


def test_an_array_of_another_form_and_size_takes_the_place(place):
    """Nothing of the old one is left: no chunk, no part, no schema beside it."""
    with ps.Session() as s:
        s.write(place / "g", make(shape=(40, 40)), ramp((40, 40)))
        s.write(place / "g", make(shape=(3,), disk=ps.Chunks((2,))), ramp((3,)))
        assert sorted(tree(place / "g" / "u")) == ["c/0", "c/1", "zarr.json"]
        s.write(place / "d", make(disk=ps.Distribution("BLOCK,*", (7,))), ramp((7, 5)))
        s.write(place / "d", make(disk=ps.Distribution("BLOCK,*", (2,))), ramp((7, 5)))
        assert sorted(tree(place / "d")) == ["schema.json", "u.0000", "u.0001"]
        s.write(place / "f", make(disk=ps.RowMajor()), ramp((7, 5)))
        s.write(place / "f", make(disk=ps.RowMajor("npy")), ramp((7, 5)))
        assert same_bits(np.load(place / "f"), ramp((7, 5)))
        assert sorted(entry.name for entry in place.iterdir()) == ["d", "f", "g"]


def test_an_empty_directory_becomes_a_group(place):
    (place / "g").mkdir()
    with ps.Session() as s:
        s.write(place / "g", make(), ramp((7, 5)))
        assert same_bits(s.read(place / "g", make()), ramp((7, 5)))


def test_a_link_is_followed_and_stays(place):
    (place / "real").mkdir()
    (place / "link").symlink_to(place / "real" / "f")
    with ps.Session() as s:
        for sign in (1, -1):
            s.write(place / "real" / "f", make(disk=ps.RowMajor()), ramp((7, 5)))
            s.write(place / "link", make(disk=ps.RowMajor()), sign * ramp((7, 5)))
            assert (place / "link").is_symlink()
            assert same_bits(np.fromfile(place / "real" / "f"), sign * ramp((7, 5)).ravel())


def test_relative_paths_and_strings(place, monkeypatch):
    monkeypatch.chdir(place)
    with ps.Session() as s:
        for path in ("g", "./h", str(place / "i")):
            s.write(path, make(), ramp((7, 5)))
            assert same_bits(s.read(path, make()), ramp((7, 5)))
        assert (place / "g" / "u" / "zarr.json").exists()


# ---------------------------------------------------------------------------------------------
# Replaced at once
# ---------------------------------------------------------------------------------------------


def poll(look, main) -> None:
    """Calls `look` again and again while `main` runs; what it raises is raised here."""
    done, failures = threading.Event(), []

    def looking():
        while not done.is_set():
            try:
                look()
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)
                return

    thread = threading.Thread(target=looking)
    thread.start()
    try:
        main()
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("format", ["raw", "npy"])
def test_a_reader_of_a_file_sees_the_old_or_the_new(place, format):
    u = make(shape=(64, 64), disk=ps.RowMajor(format))
    path = place / "u"
    seen = set()

    def look():
        data = np.load(path) if format == "npy" else np.fromfile(path).reshape(64, 64)
        assert data.shape == (64, 64) and (data == data[0, 0]).all(), "half of it"
        seen.add(data[0, 0])

    with ps.Session(block_bytes=512, sync=False) as s:
        s.write(path, u, np.full((64, 64), 0.0))

        def main():
            until, step = time.monotonic() + 20, 0
            while step < 40 or (len(seen) < 5 and time.monotonic() < until):
                step += 1
                s.write(path, u, np.full((64, 64), float(step)))

        poll(look, main)
    assert len(seen) >= 5, "the reader has looked too seldom for this test to say anything"


def test_a_reader_of_zarr_sees_valid_metadata(place):
    """Metadata are replaced together with the array, never before or after it."""
    path = place / "g"
    arrays = [
        make(shape=(8, 8), disk=ps.Chunks((4, 4))),
        make(shape=(5,), disk=ps.Chunks((2,), codec="zstd")),
    ]
    looks = [0]
    with ps.Session(sync=False) as s:
        s.write(path, arrays[0], ramp((8, 8)), attrs={"dims": 2})

        def look():
            meta = json.loads((path / "u" / "zarr.json").read_text())
            assert len(meta["shape"]) == meta["attributes"]["dims"]
            assert zarr.open_array(store=path, path="u", mode="r").shape in ((8, 8), (5,))
            assert s.open(path, "u").shape in ((8, 8), (5,))
            looks[0] += 1

        def main():
            until, step = time.monotonic() + 20, 0
            with ps.Session(sync=False) as writer:
                while step < 40 or (looks[0] < 10 and time.monotonic() < until):
                    step += 1
                    array = arrays[step % 2]
                    attrs = {"dims": len(array.shape)}
                    writer.write(path, array, ramp(array.shape), attrs=attrs)

        poll(look, main)
    assert looks[0] >= 10


def test_an_open_reader_keeps_the_old(place):
    """Who has the old file open goes on with the old file."""
    u = make(disk=ps.RowMajor("npy"))
    with ps.Session() as s:
        s.write(place / "u.npy", u, ramp((7, 5)))
        mapped = np.load(place / "u.npy", mmap_mode="r")
        s.write(place / "u.npy", u, -ramp((7, 5)))
    assert same_bits(mapped, ramp((7, 5)))


def test_two_jobs_that_write_the_same_target(place):
    """One of them is told, or they come one after the other; never a mixture."""
    u = make(shape=(64, 64), disk=ps.Chunks((8, 8)))
    outcomes: list = []

    def job(value: float) -> None:
        for _ in range(10):
            try:
                with ps.Session(sync=False) as s:
                    s.write(place / "g", u, np.full((64, 64), value))
                outcomes.append(value)
            except ps.BusyError as error:
                assert "writing" in str(error)
                outcomes.append("busy")

    jobs = [threading.Thread(target=job, args=(value,)) for value in (1.0, 2.0)]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert len(outcomes) == 20 and {1.0, 2.0} & set(outcomes)
    data = zarr.open_group(place / "g", mode="r")["u"][...]
    assert (data == data[0, 0]).all()
    assert not leftovers(place)


@pytest.mark.parametrize(
    "disk",
    [
        ps.Chunks((8, 8)),
        ps.Chunks((16, 16), codec="zstd:1"),
        ps.Chunks((32, 32), subchunks=(8, 8)),
        ps.RowMajor(),
        ps.RowMajor("npy"),
        ps.Distribution("BLOCK,BLOCK", (4, 4)),
    ],
)
def test_a_read_that_is_overtaken_by_a_replacement(place, disk):
    """It gives the old, or the new, or is told that it was overtaken; never a mixture."""
    u = make(shape=(64, 64), disk=disk)
    path, seen = place / "u", {"whole": 0, "overtaken": 0}
    with ps.Session(sync=False) as writer, ps.Session(servers=3, block_bytes=512) as reader:
        writer.write(path, u, np.full((64, 64), 0.0))

        def look():
            try:
                data = reader.read(path, u)
            except ps.BusyError:
                seen["overtaken"] += 1
                return
            assert (data == data[0, 0]).all(), "a mixture"
            seen["whole"] += 1

        def main():
            for step in range(1, 101):
                writer.write(path, u, np.full((64, 64), float(step)))
                time.sleep(0.001 * (step % 3))
                if step % 25 == 0:  # a slow reader is overtaken for ever: let it have one whole
                    before, until = seen["whole"], time.monotonic() + 60
                    while seen["whole"] == before and time.monotonic() < until:
                        time.sleep(0.001)

        poll(look, main)
    assert seen["whole"] >= 3
