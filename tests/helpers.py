"""What the tests share: a naive model of distributions, local arrays of every kind, and ways to
look at what is on disk without Penstock.

The model is written from the definition in High-Performance Fortran, index by index, so that an
error in Penstock's arithmetic cannot hide itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock._options import session_options

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
"""All element types that NumPy and Zarr share."""

CODECS = (
    "none",
    "crc32c",
    "none+crc32c",
    "zstd",
    "zstd:1",
    "zstd:9+crc32c",
    "blosc",
    "blosc:lz4",
    "blosc:zstd:3:bitshuffle",
    "blosc:blosclz:5:noshuffle+crc32c",
    "blosc:zlib:1:shuffle",
)

LOCAL_KINDS = ("C", "F", "strided", "negative", "transposed", "unaligned")
"""How a local array may lie in memory."""

PADDING = 0xA5
"""What stands in memory where Penstock has no business."""


# ---------------------------------------------------------------------------------------------
# Distributions, naively
# ---------------------------------------------------------------------------------------------


def owned(extent: int, kind: str, parts: int, part: int) -> list[int]:
    """The indices of one dimension that mesh coordinate `part` of `parts` holds."""
    if kind == "*":
        return list(range(extent))
    if kind == "BLOCK":
        block = -(-extent // parts)
        return [i for i in range(extent) if i // max(block, 1) == part]
    width = 1 if kind == "CYCLIC" else int(kind.removeprefix("CYCLIC(").removesuffix(")"))
    return [i for i in range(extent) if (i // width) % parts == part]


@dataclass(frozen=True)
class Dealt:
    """Memory by a distribution; the same on all ranks."""

    dists: str
    mesh: tuple[int, ...]
    halo: Any = 0

    def memory(self, rank: int) -> ps.Distribution:
        return ps.Distribution(self.dists, self.mesh, self.halo)

    def indices(self, shape: tuple[int, ...], rank: int) -> list[np.ndarray]:
        """The global indices that `rank` holds, an array for each dimension."""
        if rank >= math.prod(self.mesh):
            return [np.arange(0) for _ in shape] if shape else [np.arange(0)]
        kinds = [kind.strip() for kind in self.dists.split(",")] if self.dists else []
        places = iter(np.unravel_index(rank, self.mesh) if self.mesh else ())
        parts = iter(self.mesh)
        held = []
        for extent, kind in zip(shape, kinds, strict=True):
            place = (1, 0) if kind == "*" else (next(parts), int(next(places)))
            held.append(np.array(owned(extent, kind, *place), np.intp))
        return held


@dataclass(frozen=True)
class Placed:
    """Memory by boxes: `(start, shape)` for each rank."""

    boxes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    halo: Any = 0

    def memory(self, rank: int) -> ps.Boxes:
        return ps.Boxes(*self.boxes[rank], halo=self.halo)

    def indices(self, shape: tuple[int, ...], rank: int) -> list[np.ndarray]:
        start, extents = self.boxes[rank]
        held = zip(start, extents, strict=True)
        return [np.arange(first, first + count) for first, count in held]


Held = Dealt | Placed


def holds_nothing(indices: list[np.ndarray]) -> bool:
    return any(len(along) == 0 for along in indices)


def halo_widths(halo: Any, dims: int) -> list[tuple[int, int]]:
    if isinstance(halo, int):
        return [(halo, halo)] * dims
    return [(width, width) if isinstance(width, int) else tuple(width) for width in halo]


def part_of(truth: np.ndarray, indices: list[np.ndarray]) -> np.ndarray:
    """The part of the whole array at `indices`, their outer product."""
    return truth[np.ix_(*indices)] if indices and truth.ndim else truth


# ---------------------------------------------------------------------------------------------
# Local arrays
# ---------------------------------------------------------------------------------------------


@dataclass
class Local:
    """A view of some kind, and all the memory in which it lies."""

    view: np.ndarray
    raw: np.ndarray
    interior: np.ndarray
    """The view without its halo."""

    @classmethod
    def make(cls, shape: tuple[int, ...], dtype: np.dtype, kind: str, halo: Any = 0) -> Local:
        """Memory full of `PADDING`, and a view of `shape` into it."""
        dims, gap = len(shape), np.dtype(dtype).itemsize
        spread = tuple(2 * extent + 1 for extent in shape) if kind == "strided" else shape
        if kind == "transposed":
            spread = shape[1:] + shape[:1]
        raw = np.full(math.prod(spread) * gap + 2 * gap + 1, PADDING, np.uint8)
        # Where a type of several bytes begins at an odd address, NumPy calls the array unaligned.
        offset = gap + 1 if kind == "unaligned" else gap
        order = "F" if kind == "F" else "C"
        base = np.ndarray(spread, dtype, buffer=raw, offset=offset, order=order)
        if kind == "strided":
            view = base[(..., *[slice(1, None, 2)] * dims)]
        elif kind == "negative":
            view = base[(..., *[slice(None, None, -1)] * dims)]
        elif kind == "transposed" and dims:
            view = np.moveaxis(base, -1, 0)
        else:
            view = base
        assert view.shape == shape
        interior = view
        if math.prod(shape):
            cuts = zip(halo_widths(halo, dims), shape, strict=True)
            interior = view[(..., *(slice(low, n - high) for (low, high), n in cuts))]
        return cls(view, raw, interior)


def local_of(array: ps.Array, held: Held, rank: int, kind: str, truth: np.ndarray | None) -> Local:
    """The local array of `rank`, with its part of `truth` in it if there is one."""
    local = Local.make(array.local_shape(rank), array.dtype, kind, held.halo)
    indices = held.indices(array.shape, rank)
    # Of no dimensions an array has one element on every rank; only rank 0's is held.
    if truth is not None and not holds_nothing(indices):
        local.interior[...] = part_of(truth, indices)
    return local


def values(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Random bits: NaNs, infinities and denormals among them."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, math.prod(shape) * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(shape)


def ramp(shape: tuple[int, ...], dtype: Any = "f8", start: int = 0) -> np.ndarray:
    """1, 2, 3, ...: no element is zero, and all of them differ."""
    return np.arange(start + 1, start + 1 + math.prod(shape)).astype(dtype).reshape(shape)


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether shape, type and every bit agree."""
    found, expected = np.asarray(found), np.asarray(expected)
    agree = found.shape == expected.shape and found.dtype == expected.dtype
    return agree and found.tobytes() == expected.tobytes()


# ---------------------------------------------------------------------------------------------
# What is on disk, without Penstock
# ---------------------------------------------------------------------------------------------


def on_disk(path: Path, array: ps.Array) -> np.ndarray:
    """The whole array as other software reads it."""
    if isinstance(array.disk, ps.Chunks):
        import zarr

        return np.asarray(zarr.open_array(store=path, path=array.name, mode="r")[...])
    if isinstance(array.disk, ps.RowMajor):
        if array.disk.format == "npy":
            return np.load(path, allow_pickle=False)
        return np.fromfile(path, array.dtype).reshape(array.shape)
    return assemble_parts(path, array)


def assemble_parts(path: Path, array: ps.Array) -> np.ndarray:
    """Puts part files together; there is one for each place of the mesh, and nothing else."""
    assert isinstance(array.disk, ps.Distribution)
    held = Dealt(array.disk.dists, array.disk.mesh)
    count = math.prod(held.mesh)
    names = {f"{array.name}.{number:04}" for number in range(count)}
    assert {entry.name for entry in path.iterdir()} == names | {"schema.json"}
    whole = np.zeros(array.shape, array.dtype)
    for number in range(count):
        part = np.fromfile(path / f"{array.name}.{number:04}", array.dtype)
        indices = held.indices(array.shape, number)
        if indices and array.shape:
            whole[np.ix_(*indices)] = part.reshape([len(along) for along in indices])
        else:
            whole[...] = part.reshape(())
    return whole


NOTHING_TO_COMPARE = 3
"""The exit code of a verification that found no checksum."""


def penstock(*arguments, launcher=(), code=0) -> str:
    """Runs the command, which ends with a code, or one of several; what it prints."""
    command = [*launcher, sys.executable, "-m", "penstock", *arguments]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=600
    )
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout + done.stderr


def leftovers(directory: Path) -> list[Path]:
    """Temporaries that a write should have removed."""
    return [entry for entry in directory.iterdir() if entry.name.endswith(".penstock")]


def tree(path: Path) -> dict[str, bytes]:
    """Every file below `path` (or the file itself) and what is in it."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    files = [entry for entry in path.rglob("*") if entry.is_file()]
    return {str(entry.relative_to(path)): entry.read_bytes() for entry in files}


def fast_directory() -> str | None:
    """Where to put temporary files: memory, since most tests ask nothing of a disk. On several
    hosts, what they share."""
    shared = os.environ.get("PENSTOCK_TEST_DIRECTORY")
    if shared is not None:
        return shared
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def mounted_tmpfs(options: str) -> Iterator[Path | None]:
    """A small file system of its own; `None` where we may not mount."""
    with tempfile.TemporaryDirectory(prefix="penstock-mount-") as point:
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", point]
        try:
            done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            done = False
        try:
            yield Path(point) if done else None
        finally:
            if done:
                subprocess.run(["umount", "-l", point], check=True)


# ---------------------------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------------------------


def caught(call: Callable[[], Any]) -> Any:
    """The `penstock.Error` that `call` raises, or what it returns."""
    try:
        return call()
    except ps.Error as error:
        return error


def some_attempt(in_time: Callable[[], bool], attempts: int = 8) -> bool:
    """Whether it is in time once: a machine busy with others may be late, but not always."""
    return any(in_time() for _ in range(attempts))


def assert_alike(errors: list[Any], kind: type[ps.Error], *words: str) -> ps.Error:
    """Every rank has met the same error, of this kind, and its text says all of `words`."""
    for error in errors:
        assert isinstance(error, kind), f"{kind.__name__} expected, not {error!r}"
    texts = {str(error) for error in errors}
    assert len(texts) == 1, f"ranks were told different things: {texts}"
    (text,) = texts
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    first = errors[0]
    for name in ("kind", "rank", "server", "doing", "path", "bytes", "cause"):
        assert len({repr(getattr(error, name)) for error in errors}) == 1, name
    assert first.kind == kind.__name__.removesuffix("Error")
    assert first.cause and first.cause in text
    return first


def fails(kind: type[ps.Error], main: Callable[[ps.Session], Any], *words: str, **run: Any):
    """Runs `main` on threads: it must fail alike on all ranks, which must be able to go on."""
    run.setdefault("ranks", 3)

    def wrapped(session: ps.Session) -> Any:
        met = caught(lambda: main(session))
        session.barrier()
        return met

    return assert_alike(ps.run(wrapped, **run), kind, *words)


def alone(program: str, *arguments: Any, seconds: float = 60) -> str:
    """Runs a program in a process of its own, which may not crash; gives what it prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    return done.stdout


def is_in_memory(directory: Path) -> bool:
    """Whether there is no going around the page cache."""
    said = subprocess.run(
        ["stat", "--file-system", "--format=%T", directory], capture_output=True, text=True
    )
    return said.stdout.strip() == "tmpfs"


def opened_with(monkeypatch, **extra) -> None:
    """Sessions that are opened from now on have these options, where they say no others."""

    def options(given, changes):
        return session_options(given, {**extra, **changes})

    for module in ("_session", "_mpi", "_run"):
        monkeypatch.setattr(f"penstock.{module}.session_options", options)


def faults(*fault) -> ps.testing.Faults | None:
    """A disk on which one call fails: operation, number and error; none without a word."""
    return ps.testing.Faults(faults=[ps.testing.Fault(*fault)]) if fault else None
