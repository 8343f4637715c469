"""`penstock copy`: from any form to any, in little memory, again after a kill, and under MPI."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import NOTHING_TO_COMPARE, leftovers, penstock, same_bits, values
from zarr.codecs import GzipCodec

import penstock as ps

MPIEXEC = Path(sys.executable).with_name("mpiexec")
SHAPE = (37, 29, 23)


def truth(dtype="f8") -> np.ndarray:
    return values(SHAPE, dtype, 5)


def by_penstock(path: Path, disk, dtype: str) -> list:
    array = ps.Array("u", SHAPE, dtype, disk=disk, dims=("z", "y", "x"))
    attrs = None if disk == ps.RowMajor("npy") else {"units": "K"}
    with ps.Session() as s:
        s.write(path, array, truth(dtype), attrs=attrs)
    return [path]


def by_zarr(path: Path, dtype: str, **more) -> list:
    array = zarr.create_array(path, shape=SHAPE, dtype=dtype, **more)
    array[...] = truth(np.dtype(dtype).newbyteorder("="))
    return [path]


def by_numpy(path: Path, array: np.ndarray) -> list:
    np.save(path, array)
    return [path]


def flat(path: Path) -> list:
    truth("i2").tofile(path)
    return [path, "--shape", ",".join(map(str, SHAPE)), "--dtype", "i2"]


SOURCES = {
    "plain": lambda p: by_penstock(p / "s.zarr", ps.Chunks((16, 29, 5)), "f8"),
    "thin": lambda p: by_penstock(p / "s.zarr", ps.Chunks((37, 29, 1)), "c16"),
    "zstd": lambda p: by_penstock(p / "s.zarr", ps.Chunks((8, 8, 8), codec="zstd:1+crc32c"), "f4"),
    "shards": lambda p: by_penstock(p / "s.zarr", ps.Chunks((20, 20, 20), (10, 5, 4)), "u1"),
    "npy": lambda p: by_penstock(p / "s.npy", ps.RowMajor("npy"), "?"),
    "raw": lambda p: by_penstock(p / "s.raw", ps.RowMajor("raw"), "f2"),
    "parts": lambda p: by_penstock(p / "s", ps.Distribution("BLOCK,*,BLOCK", (3, 2)), "i8"),
    "flat": lambda p: flat(p / "s.bin"),
    "fortran npy": lambda p: by_numpy(p / "s.npy", np.asfortranarray(truth("f4"))),
    "big npy": lambda p: by_numpy(p / "s.npy", truth("f8").astype(">f8")),
    "v2": lambda p: by_zarr(p / "s.zarr", "f8", zarr_format=2, chunks=(10, 10, 10)),
    "v2 F": lambda p: by_zarr(p / "s.zarr", "i4", zarr_format=2, chunks=(9, 29, 7), order="F"),
    "v2 big": lambda p: by_zarr(
        p / "s.zarr", ">f4", zarr_format=2, chunks=(37, 5, 5), compressors=None
    ),
    "gzip": lambda p: by_zarr(p / "s.zarr", "f8", chunks=(10, 29, 3), compressors=GzipCodec()),
}
TARGETS = {
    "thin": ["t.zarr", "--chunks", "1,29,23", "--codec", "none"],
    "zstd": ["t.zarr", "--chunks", "10,7,23", "--codec", "zstd:3+crc32c"],
    "shards": ["t.zarr", "--chunks", "24,24,24", "--subchunks", "8,8,4", "--codec", "blosc:lz4"],
    "npy": ["t.npy", "--drop-attributes"],
    "raw": ["t.raw", "--row-major"],
}


def found_at(place: Path, target: str) -> np.ndarray:
    if target == "npy":
        return np.load(place / "t.npy")
    if target == "raw":
        with ps.Session() as s:
            array = s.open(place / "t.raw")
            return s.read(place / "t.raw", array)
    if (place / "t.zarr" / "c").exists():  # of an array that is in no group
        return zarr.open_array(place / "t.zarr", mode="r")[...]
    (name,) = [p.parent.name for p in (place / "t.zarr").glob("*/zarr.json")]
    return zarr.open_array(place / "t.zarr" / name, mode="r")[...]


PAIRS = [
    (source, target)
    for number, source in enumerate(SOURCES)
    for target in (list(TARGETS)[number % 5], list(TARGETS)[(number + 2) % 5])
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_any_to_any(place, source, target):
    where, *what = SOURCES[source](place)
    to, *how = TARGETS[target]
    memory = {"flat": "64MiB", "zstd": "9MiB"}.get(source, "8500K")
    ranks = ["--ranks", "3"] if source in ("thin", "gzip", "raw") else []
    said = penstock(
        *("copy", where, place / to, *what, *how, *ranks, "--memory", memory, "--no-sync")
    )
    read = float(re.search(r"read ([\d.]+) times", said).group(1))
    assert read <= 2.6 if "shards" in (source, target) else read <= 2.1, said
    found = found_at(place, target)
    with ps.Session() as s:
        expected = truth("i2") if source == "flat" else s.read(where, s.open(where))
    assert same_bits(found, expected)
    assert same_bits(found, truth(found.dtype))
    assert not leftovers(place)


def test_names_and_attributes_go_with_it(place):
    by_penstock(place / "s.zarr", ps.Chunks((10, 10, 10)), "f8")
    penstock("copy", place / "s.zarr", place / "t.zarr", "--chunks", "37,29,1")
    made = zarr.open_group(place / "t.zarr")["u"]
    assert made.metadata.dimension_names == ("z", "y", "x")
    assert made.attrs.asdict() == {"units": "K"} and made.chunks == (37, 29, 1)
    said = penstock("copy", place / "s.zarr", place / "t.npy", code=2)
    assert "--drop-attributes" in said and not (place / "t.npy").exists()


def big(place: Path) -> Path:
    """An array of 32 MB, encoded in chunks that fit the target's badly."""
    array = ps.Array("u", (160, 160, 160), "f8", disk=ps.Chunks((160, 160, 4), codec="zstd:1"))
    with ps.Session(sync=False) as s:
        s.write(place / "s.zarr", array, values(array.shape, "f8", 1))
    return place / "s.zarr"


def test_through_a_store_in_between(place):
    source = big(place)
    chunks = ("--chunks", "4,160,160", "--codec", "zstd:1")
    said = penstock("copy", source, place / "t.zarr", *chunks, "--memory", "20MiB")
    assert "in between" in said
    # The source once, and the store in between a little more than once.
    assert float(re.search(r"read ([\d.]+) times", said).group(1)) <= 2.5
    assert same_bits(zarr.open_array(place / "t.zarr" / "u")[...], values((160,) * 3, "f8", 1))
    assert not leftovers(place)


def test_memory_is_what_it_is_given(place):
    source = big(place)
    program = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
    )

    def peak(*arguments) -> int:
        command = [sys.executable, "-c", program, sys.executable, "-m", "penstock", *arguments]
        done = subprocess.run([str(w) for w in command], capture_output=True, text=True)
        return int(done.stdout)

    # What the program takes without much to copy.
    small = place / "small.zarr"
    array = ps.Array("u", (8, 8, 8), "f8", disk=ps.Chunks((8, 8, 4), codec="zstd:1"))
    with ps.Session() as s:
        s.write(small, array, values(array.shape, "f8", 1))
    bare = peak("copy", small, place / "t.zarr", "--chunks", "4,8,8", "--memory", "20MiB")
    for memory in (20, 40):
        target = place / f"{memory}.zarr"
        options = ("--chunks", "4,160,160", "--memory", f"{memory}MiB")
        assert peak("copy", source, target, *options) - bare <= 1.2 * memory * 2**20
    said = penstock("copy", source, place / "x", "--chunks", "4,160,160", "--memory", "1M", code=2)
    assert "would do" in said


def test_a_killed_copy_goes_on(place):
    """Killed again and again, it comes to its end, and says that it has found what was done."""
    source = big(place)
    options = ["--chunks", "4,160,160", "--codec", "zstd:9", "--memory", "20MiB"]
    command = [sys.executable, "-m", "penstock", "copy", source, place / "t.zarr", *options]
    kills = done = 0
    while kills < 4:
        process = subprocess.Popen([str(w) for w in command], stdout=subprocess.DEVNULL)
        lines = 0
        while process.poll() is None and lines <= done:
            time.sleep(0.002)
            with contextlib.suppress(FileNotFoundError):
                notes = place.glob(".t.zarr~*/done")
                lines = sum(note.read_text().count("\n") for note in notes)
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        if (place / "t.zarr").exists():  # it was done before it was killed
            shutil.rmtree(place / "t.zarr")
            done = 0
        else:
            kills, done = kills + 1, lines
    said = penstock(*command[3:])
    assert "had been done before" in said
    assert same_bits(zarr.open_array(place / "t.zarr" / "u")[...], values((160,) * 3, "f8", 1))
    assert not leftovers(place)


def test_another_copy_does_not_take_over(place):
    """What was begun with other options, or from what has changed since, begins anew."""
    by_penstock(place / "s.zarr", ps.Chunks((10, 10, 10)), "f8")
    left = place / ".t.zarr~.penstock"
    left.mkdir()
    (left / "lock").write_text("{}")
    (left / "journal.json").write_text("of another copy")
    said = penstock("copy", place / "s.zarr", place / "t.zarr", "--chunks", "37,29,1")
    assert "before" not in said
    assert same_bits(zarr.open_array(place / "t.zarr" / "u")[...], truth())
    assert not leftovers(place)


@pytest.mark.parametrize("ranks", [1, 4])
def test_under_mpiexec(place, ranks):
    by_penstock(place / "s.zarr", ps.Chunks((37, 29, 1)), "f8")
    launcher = [MPIEXEC, "-n", ranks]
    options = ["--chunks", "1,29,23", "--memory", "20MiB"]
    said = penstock("copy", place / "s.zarr", place / "t.zarr", *options, launcher=launcher)
    assert said.count("copied") == 1
    assert same_bits(zarr.open_array(place / "t.zarr" / "u")[...], truth())
    said = penstock("copy", place / "no.zarr", place / "t", *options, launcher=launcher, code=1)
    assert said.count("no.zarr") == 1, said


def test_what_cannot_be_copied(place):
    by_penstock(place / "s.raw", ps.RowMajor("raw"), "f8")
    assert "--chunks" in penstock("copy", place / "s.raw", place / "t.zarr", code=2)
    assert "256MiB" in penstock("copy", place / "s.raw", place / "t.npy", "--memory", "x", code=2)
    assert "at least 1" in penstock("copy", place / "s.raw", place / "t.npy", "--ranks", 0, code=2)
    by_zarr(place / "g.zarr", "f8", chunks=(10, 29, 3), compressors=GzipCodec())
    penstock("copy", place / "g.zarr", place / "t.zarr", "--codec", "none")
    assert zarr.open_array(place / "t.zarr").chunks == (10, 29, 3)
    assert not os.path.exists(place / "t.npy")
    said = penstock("copy", place / "g.zarr", place / "t.npy", "--codec", "zstd", code=2)
    assert "no codec" in said and not os.path.exists(place / "t.npy")
    by_numpy(place / "text.npy", np.array(["ab"]))
    said = penstock("copy", place / "text.npy", place / "t.npy", code=1)
    assert "'<U2'" in said and "there are bool, int8" in said


def test_a_single_number_has_one_chunk(place):
    by_numpy(place / "s.npy", np.array(2.5))
    penstock("copy", place / "s.npy", place / "t.zarr")
    assert zarr.open_array(place / "t.zarr" / "s")[()] == 2.5
    penstock("copy", place / "t.zarr", place / "back.npy")
    assert np.load(place / "back.npy") == np.array(2.5)


# ---------------------------------------------------------------------------------------------
# ls, info, verify
# ---------------------------------------------------------------------------------------------


def test_a_store_is_looked_at(place):
    by_penstock(place / "s.zarr", ps.Chunks((10, 10, 10), codec="zstd:3"), "f8")
    by_penstock(place / "s.npy", ps.RowMajor("npy"), "f4")
    group = ps.Group(
        "Sim2", [ps.Array("t", (5, 4), "f8", dims=("y", "x"))], place / "g.zarr", attrs={"k": 3}
    )
    with ps.Session() as s:
        for step in range(3):
            s.timestep(group, {"t": np.full((5, 4), float(step))}, time=step / 2)
        s.checkpoint(group, {"t": np.zeros((5, 4))})
    listed = penstock("ls", place)
    assert re.search(r"s.zarr/u\s+float64\s+\[37, 29, 23\]\s+chunks \[10, 10, 10\], zstd:3", listed)
    assert re.search(r"g.zarr/t .*3 timesteps", listed) and "s.npy/s" in listed
    assert "checkpoints/2  step 2, time 1" in penstock("ls", place / "g.zarr")
    told = penstock("info", place / "g.zarr")
    assert "Sim2" in told and "timesteps  3" in told and "dims     y, x" in told
    assert "  k = 3\n" in told
    assert '"timesteps": 3' in penstock("info", place / "g.zarr", "--json")
    said = penstock("verify", place / "g.zarr")
    assert "3 timesteps and 1 checkpoint, 7 chunks" in said and "all is well" in said
    for path in (place / "g.zarr" / "checkpoints" / "2", place / "s.zarr"):
        said = penstock("verify", path, code=NOTHING_TO_COMPARE)
        assert "there was nothing to compare with" in said and "without a checksum" in said
    assert "no.zarr" in penstock("verify", place / "no.zarr", code=1)
    assert penstock("ls", place / "nothing", code=1)


@pytest.mark.parametrize("where", ["a/c/1/0/0", "checkpoints/1/b/c/0", ".penstock/record/sums/a"])
def test_every_flipped_byte_is_found(place, where):
    arrays = [
        ps.Array("a", (4, 4), "f8", disk=ps.Chunks((4, 4), codec="zstd:1")),
        ps.Array("b", (5,), "i4"),
    ]
    group = ps.Group("g", arrays, place / "g.zarr")
    with ps.Session() as s:
        for step in range(2):
            parts = {"a": values((4, 4), "f8", step), "b": values((5,), "i4", step)}
            s.timestep(group, parts)
        s.checkpoint(group, parts)
    penstock("verify", place / "g.zarr")
    file = place / "g.zarr" / where
    good = file.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 8)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        said = penstock("verify", place / "g.zarr", code=1)
        assert "damaged" in said and where.split("/")[-4 if "c" in where.split("/") else -1] in said
    file.write_bytes(good[:-1])
    penstock("verify", place / "g.zarr", code=1)
    file.write_bytes(good)
    penstock("verify", place / "g.zarr")
