"""A naive model of arrays in the memories of ranks, and scripts for core_player.c."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DTYPES = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
Words = list[str]


def element(word: str) -> np.dtype:
    """The type of NumPy for a word of the header."""
    return np.dtype(word)


def chance_bytes(chance: random.Random, count: int) -> bytes:
    """Bytes of any value."""
    return chance.randbytes(count)


def any_values(chance: random.Random, word: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of elements of any value."""
    dtype = element(word)
    count = int(np.prod(shape, dtype=np.int64))
    values = np.frombuffer(chance_bytes(chance, count * dtype.itemsize), np.uint8)
    if word == "bool":
        values = values % 2
    return values.view(dtype).reshape(shape).copy()


def same(given: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays have the same bytes: one that is no number is then like itself."""
    return given.shape == expected.shape and (
        np.ascontiguousarray(given).tobytes() == np.ascontiguousarray(expected).tobytes()
    )


# --- who holds what ------------------------------------------------------------------------------


def dealt(dist: str, extent: int, places: int, coordinate: int) -> list[int]:
    """The indices that one coordinate of a mesh has of a dimension."""
    if dist == "*":
        return list(range(extent))
    if dist == "BLOCK":
        block = -(-extent // places)
    else:
        block = 1 if dist == "CYCLIC" else int(dist[len("CYCLIC(") : -1])
    return [index for index in range(extent) if index // block % places == coordinate]


@dataclass
class Part:
    """One local array of a rank: the elements of the whole array that it has, as an index of NumPy,
    and its shape without the halo."""

    index: tuple
    shape: tuple[int, ...]


@dataclass
class Schema:
    """How an array lies in the memories of ranks: the words that say so, the same on all ranks or
    for each, and the parts of each rank."""

    words: list[str]
    parts: list[list[Part]]
    halo: list[tuple[int, int]] | None = None
    is_region: bool = False
    places: list[np.ndarray | None] = field(default_factory=list)
    """For lists: where elements lie in the memory."""
    is_list: bool = False


def counted(values: object) -> str:
    """A count, and the numbers."""
    numbers = [str(int(value)) for value in values]  # type: ignore[attr-defined]
    return " ".join([str(len(numbers)), *numbers])


def any_halo(chance: random.Random, dims: int) -> list[tuple[int, int]] | None:
    if chance.random() < 0.5 or dims == 0:
        return None
    return [(chance.randrange(3), chance.randrange(3)) for _ in range(dims)]


def halo_words(halo: list[tuple[int, int]] | None) -> str:
    return counted(itertools.chain.from_iterable(halo or []))


def distribution(chance: random.Random, shape: tuple[int, ...], ranks: int) -> Schema:
    """Any distribution over a mesh of at most that number of ranks."""
    dims = len(shape)
    dists, mesh, left = [], [], ranks
    for _ in range(dims):
        dist = chance.choice(["BLOCK", "CYCLIC", f"CYCLIC({chance.randint(1, 4)})", "*"])
        places = 1
        if dist != "*":
            places = chance.randint(1, left)
            left //= places
            mesh.append(places)
        dists.append((dist, places))
    halo = any_halo(chance, dims)
    parts: list[list[Part]] = []
    for place in itertools.product(*(range(places) for _, places in dists)):
        held = [
            dealt(dist, extent, places, at)
            for (dist, places), extent, at in zip(dists, shape, place, strict=True)
        ]
        parts.append([Part(np.ix_(*map(indices, held)), tuple(map(len, held)))])
    while len(parts) < ranks:
        empty = [[] for _ in shape]
        parts.append([Part(np.ix_(*map(indices, empty)), (0,) * dims)])
    if dims == 0:
        parts = [[Part((), ())]] + [[Part(None, (0,))] for _ in range(ranks - 1)]  # type: ignore[arg-type]
    text = ",".join(dist for dist, _ in dists)
    line = f"distribution {text or ','} {counted(mesh)} {halo_words(halo)}"
    return Schema([line] * ranks, parts, halo)


def indices(held: list[int]) -> np.ndarray:
    return np.array(held, np.intp)


def split_boxes(chance: random.Random, shape: tuple[int, ...], pieces: int) -> list[tuple]:
    """Disjoint boxes (start, shape) that fill the array."""
    boxes = [(tuple(0 for _ in shape), shape)]
    for _ in range(pieces):
        start, extents = boxes.pop(chance.randrange(len(boxes)))
        axis = chance.randrange(len(shape))
        if extents[axis] < 2:
            boxes.append((start, extents))
            continue
        at = chance.randint(1, extents[axis] - 1)
        low = tuple(at if dim == axis else n for dim, n in enumerate(extents))
        high = tuple(n - at if dim == axis else n for dim, n in enumerate(extents))
        high_start = tuple(s + at if dim == axis else s for dim, s in enumerate(start))
        boxes += [(start, low), (high_start, high)]
    return boxes


def boxes(chance: random.Random, shape: tuple[int, ...], ranks: int, *, is_region: bool) -> Schema:
    """Any boxes that do not overlap; some elements may be nobody's."""
    halo = None if is_region else any_halo(chance, len(shape))
    own: list[list[tuple]] = [[] for _ in range(ranks)]
    for box in split_boxes(chance, shape, chance.randint(1, 3 * ranks)):
        if chance.random() < 0.8:
            chance.choice(own).append(box)
    words, parts = [], []
    for held in own:
        starts = counted(itertools.chain.from_iterable(start for start, _ in held))
        shapes = counted(itertools.chain.from_iterable(extents for _, extents in held))
        what = "regions" if is_region else "boxes"
        words.append(f"{what} {len(held)} {starts} {shapes} {halo_words(halo)}")
        parts.append(
            [
                Part(tuple(slice(s, s + n) for s, n in zip(start, extents, strict=True)), extents)
                for start, extents in held
            ]
        )
    return Schema(words, parts, halo, is_region)


def runs_of(chance: random.Random, count: int, most: int) -> list[tuple[int, int]]:
    """Runs (offset, length) that go through that number of elements."""
    runs, at = [], 0
    while at < count:
        length = min(chance.randint(1, most), count - at)
        runs.append((at, length))
        at += length
    return runs


def lists(chance: random.Random, shape: tuple[int, ...], ranks: int, *, is_region: bool) -> Schema:
    """Any lists that do not overlap; some elements may be nobody's."""
    count = int(np.prod(shape, dtype=np.int64))
    own: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for run in runs_of(chance, count, 7):
        if chance.random() < 0.8:
            chance.choice(own).append(run)
    words, parts, places = [], [], []
    for held in own:
        chance.shuffle(held)
        elements = [at + nth for at, length in held for nth in range(length)]
        offsets = counted(at for at, _ in held)
        lengths = counted(length for _, length in held)
        place, place_words = None, "NULL"
        if chance.random() < 0.5:
            gap = chance.randint(1, 3)
            first = chance.randrange(4)
            place = first + gap * np.arange(len(elements))
            # A strided list of runs of one element.
            place_words = f"strided {first} 1 1 {len(elements)} {gap}"
        what = "listregion" if is_region else "list"
        words.append(f"{what} runs {offsets} {lengths} {place_words}")
        index = np.unravel_index(indices(elements), shape)
        parts.append([Part(index, (len(elements),))])
        places.append(place)
    return Schema(words, parts, None, is_region, places, is_list=True)


def any_schema(chance: random.Random, shape: tuple[int, ...], ranks: int) -> Schema:
    """Any memory schema of a whole array."""
    if not shape or chance.random() < 0.5:
        return distribution(chance, shape, ranks)
    if chance.random() < 0.6:
        return boxes(chance, shape, ranks, is_region=False)
    return lists(chance, shape, ranks, is_region=False)


def any_region(chance: random.Random, shape: tuple[int, ...], ranks: int) -> Schema:
    """Any regions of an array."""
    make = chance.choice([boxes, lists])
    return make(chance, shape, ranks, is_region=True)


# --- memories ------------------------------------------------------------------------------------


class Memory:
    """The memory of one rank: local arrays at any places, in any order, with any strides."""

    def __init__(self, chance: random.Random, word: str) -> None:
        self.chance, self.dtype, self.word = chance, element(word), word
        self.words: list[str] = []
        self.pieces: list[bytes] = []
        self.size = 0
        self.views: list[tuple[int, tuple, tuple]] = []
        self.inner: list[tuple[slice, ...] | np.ndarray | None] = []

    def _room(self, count: int) -> tuple[int, np.ndarray]:
        """A place for that number of elements."""
        values = any_values(self.chance, self.word, (count,))
        offset = self.size
        self.pieces.append(values.tobytes())
        self.size += values.nbytes
        return offset, values

    def add(self, schema: Schema, rank: int, nth: int) -> None:
        """Adds the memory of one local array."""
        part = schema.parts[rank][nth]
        if schema.is_list:
            self._add_list(part, schema.places[rank])
            return
        if 0 in part.shape:
            self._add_empty()
            return
        halo = schema.halo or [(0, 0)] * len(part.shape)
        shape = tuple(n + a + b for n, (a, b) in zip(part.shape, halo, strict=True))
        inner = tuple(slice(a, a + n) for n, (a, _) in zip(part.shape, halo, strict=True))
        if self.chance.random() < 0.3:
            offset, _ = self._room(int(np.prod(shape, dtype=np.int64)))
            strides = np.zeros(shape, self.dtype).strides
            self.words.append(f"plain {offset}")
        else:
            offset, strides = self._strided(shape)
            self._say(offset, shape, strides)
        self.views.append((offset, shape, strides))
        self.inner.append(inner)

    def _strided(self, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """A place in a larger array, whose dimensions have another order, gaps and directions."""
        steps = [self.chance.choice([1, 1, 2, -1, -2]) for _ in shape]
        order = list(range(len(shape)))
        self.chance.shuffle(order)
        larger = [shape[dim] * abs(steps[dim]) + self.chance.randrange(2) for dim in order]
        first, values = self._room(int(np.prod(larger, dtype=np.int64)))
        whole = values.reshape(larger).transpose(np.argsort(order))
        cut = (*(slice(None, None, step) for step in steps), ...)
        view = whole[cut][(*(slice(0, n) for n in shape), ...)]
        begin = view.__array_interface__["data"][0] - values.__array_interface__["data"][0]
        return first + begin, view.strides

    def _add_list(self, part: Part, places: np.ndarray | None) -> None:
        count = part.shape[0]
        needed = count if places is None else int(places.max(initial=-1)) + 1
        if needed == 0:
            self._add_empty()
            return
        if places is not None:
            needed += self.chance.randrange(3)
        offset, strides = self._strided((needed,))
        self._say(offset, (needed,), strides)
        self.views.append((offset, (needed,), strides))
        self.inner.append((slice(None),) if places is None else (places,))  # type: ignore[arg-type]

    def _add_empty(self) -> None:
        self.words.append(f"plain {self.size}")
        self.views.append((self.size, (0,), (self.dtype.itemsize,)))
        self.inner.append(None)

    def _say(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        numbers = " ".join(map(str, (*shape, *strides)))
        self.words.append(f"local {offset} {len(shape)} {numbers}")

    def image(self) -> bytearray:
        """All bytes."""
        return bytearray(b"".join(self.pieces))

    def put(self, image: bytearray, nth: int, values: np.ndarray) -> None:
        """Puts the elements of local array `nth` into an image."""
        inner = self.inner[nth]
        if inner is None:
            return
        offset, shape, strides = self.views[nth]
        view = np.ndarray(shape, self.dtype, image, offset, strides)
        view[inner] = values


class Scripts:
    """A script for each rank, with its files in a directory."""

    def __init__(self, directory: Path, ranks: int) -> None:
        self.directory, self.ranks = directory, ranks
        self.lines: list[list[str]] = [[] for _ in range(ranks)]
        self.expected: list[tuple[Path, bytes, str]] = []
        self.names = itertools.count()

    def all(self, *lines: str) -> None:
        for script in self.lines:
            script += lines

    def each(self, lines: list[str]) -> None:
        for script, line in zip(self.lines, lines, strict=True):
            script.append(line)

    def memories(
        self,
        chance: random.Random,
        word: str,
        schema: Schema,
        values: np.ndarray,
        *,
        is_write: bool,
    ) -> list[tuple[int, bytes]]:
        """Gives each rank its local arrays; and each rank's bytes after a call that moves
        `values`."""
        after = []
        for rank in range(self.ranks):
            memory = Memory(chance, word)
            for nth in range(len(schema.parts[rank])):
                memory.add(schema, rank, nth)
            before, later = memory.image(), memory.image()
            for nth, part in enumerate(schema.parts[rank]):
                if part.index is None:
                    continue
                held = values[part.index]
                if is_write:
                    memory.put(before, nth, held)
                memory.put(later, nth, held)
            name = f"memory-{next(self.names)}"
            (self.directory / name).write_bytes(before)
            self.lines[rank] += [f"memory {name}", *memory.words]
            after.append((rank, bytes(later)))
        return after

    def expect(self, after: list[tuple[int, bytes]], about: str) -> None:
        """Has the ranks dump their memories, which must be so."""
        for rank, later in after:
            name = f"dump-{next(self.names)}"
            self.lines[rank].append(f"dump {name}")
            self.expected.append((self.directory / name, later, f"rank {rank}: {about}"))

    def write(self) -> None:
        for rank, lines in enumerate(self.lines):
            text = "\n".join(lines) + "\n"
            (self.directory / f"script.{rank}").write_text(text, "utf-8")

    def logs(self) -> list[list[str]]:
        """What each rank has noted."""
        texts = [(self.directory / f"log.{rank}").read_text() for rank in range(self.ranks)]
        return [text.splitlines() for text in texts]

    def check(self) -> None:
        """All calls have succeeded, and the memories are as they must be."""
        for rank, log in enumerate(self.logs()):
            for line in log:
                code = line.split()[1]
                is_note = line.startswith(("state ", "share "))
                assert is_note or code == "0", f"rank {rank}: {line}"
        for path, later, about in self.expected:
            assert path.read_bytes() == later, about
