"""Arrays in C: random arrays, memories, stores and calls beside a naive model; others read what C
programs write."""

from __future__ import annotations

import random
from pathlib import Path

import c_programs as programs
import numpy as np
import pytest
import zarr
from core_model import (
    DTYPES,
    Schema,
    Scripts,
    any_region,
    any_schema,
    any_values,
    counted,
    distribution,
    element,
    same,
)

HERE = Path(__file__).parent
SEEDS = range(42)
"""Each type of elements three times."""


def build(directory: Path, name: str, *flags: str, with_mpi: bool = False) -> Path:
    """Compiles a program of this directory."""
    tree = programs.tree()
    compiler = programs.MPI_COMPILER if with_mpi else "cc"
    flags = (*flags, "-DWITH_MPI") if with_mpi else flags
    target = directory / f"{name}{'-mpi' if with_mpi else ''}"
    source = HERE / f"{name}.c"
    words = [compiler, *programs.FLAGS, *flags, f"-I{tree.include}", source, "-o", target]
    programs.checked(*words, *tree.links, "-lm")
    return target


@pytest.fixture(scope="session")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := programs.missing("cc"):
        pytest.skip(why)
    return build(tmp_path_factory.mktemp("core"), "core_player")


@pytest.fixture(scope="session")
def mpi_player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := programs.missing_mpi():
        pytest.skip(why)
    return build(tmp_path_factory.mktemp("core-mpi"), "core_player", with_mpi=True)


def play(program: Path, scripts: Scripts, *options: str, mode: str | None = None) -> None:
    """Plays scripts on threads, or on ranks of an MPI job, and checks what comes of it."""
    scripts.write()
    mode = mode or f"threads={scripts.ranks}"
    ranks = scripts.ranks if mode == "mpi" else 0
    programs.run(program, mode, *options, "--", scripts.directory, ranks=ranks).fine()
    scripts.check()


def any_shape(chance: random.Random) -> tuple[int, ...]:
    dims = chance.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
    return tuple(
        chance.choice([1, 2, 3, 5, 7, 8, 11, 13][: 8 if dims < 4 else 4]) for _ in range(dims)
    )


def any_disk(chance: random.Random, shape: tuple[int, ...]) -> tuple[str, str]:
    """A disk schema in the words of the player, and its kind."""
    kind = chance.choice(["natural", "chunks", "chunks", "chunks", "raw", "npy", "parts"])
    if kind == "chunks":
        sub = [chance.randint(1, max(1, n)) for n in shape]
        factors = [chance.randint(1, 3) for _ in shape]
        is_sharded = chance.random() < 0.4 and len(shape) > 0
        chunk = [s * f for s, f in zip(sub, factors, strict=True)] if is_sharded else sub
        codec = chance.choice(["none", "zstd:3", "gzip:1", "blosc:lz4", "crc32c", "zstd+crc32c"])
        return f"chunks {counted(chunk)} {counted(sub if is_sharded else [])} {codec}", kind
    if kind == "parts":
        if not shape:
            return "rowmajor raw", "raw"
        mesh = [chance.randint(1, 3) for _ in shape]
        return f"parts {','.join(['BLOCK'] * len(shape))} {counted(mesh)}", kind
    return ("" if kind == "natural" else f"rowmajor {kind}"), kind


def stored(path: Path, kind: str, word: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """What other programs read there; nothing where only Penstock reads it."""
    if kind in ("natural", "chunks"):
        values = zarr.open_group(path, mode="r")["u"][...]
    elif kind == "npy":
        values = np.load(path)
    elif kind == "raw":
        values = np.fromfile(path, element(word)).reshape(shape)
    else:
        return None
    return np.asarray(values)


def held(schema: Schema, values: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The array that a write makes: of the elements that no rank holds as `rest` has them."""
    made = rest.copy()
    for parts in schema.parts:
        for part in parts:
            if part.index is not None:
                made[part.index] = values[part.index]
    return made


def any_strategy(chance: random.Random) -> str:
    return chance.choice(["NULL", "disk-directed", "two-phase", "two-phase:2", "caching"])


def random_script(chance: random.Random, directory: Path, word: str, ranks: int) -> tuple:
    """Writes and reads of one array; the scripts, the path, the kind of store, and what is there."""
    scripts = Scripts(directory, ranks)
    shape = any_shape(chance)
    disk, kind = any_disk(chance, shape)
    name = "u.npy" if kind == "npy" else "store"
    declared = f"array u {word} {counted(shape)}"
    values = any_values(chance, word, shape)
    schema = any_schema(chance, shape, ranks)
    scripts.all(declared, *([disk] if disk else []))
    scripts.each(schema.words)
    after = scripts.memories(chance, word, schema, values, is_write=True)
    if chance.random() < 0.5:
        scripts.all(f"write {name} {any_strategy(chance)} NULL NULL nan -1")
    else:
        background = chance.choice(["NULL", "disk", "all", "none"])
        scripts.all(f"beginwrite 0 {name} NULL {background} NULL nan -1", "barrier", "end 0")
    scripts.expect(after, "a write changes nothing")
    there = held(schema, values, np.zeros(shape, element(word)))
    if shape and chance.random() < 0.6:  # a part of it
        region = any_region(chance, shape, ranks)
        values = any_values(chance, word, shape)
        scripts.all(declared, *([disk] if disk else []))
        scripts.each(region.words)
        after = scripts.memories(chance, word, region, values, is_write=True)
        scripts.all(f"write {name} NULL NULL NULL nan -1")
        scripts.expect(after, "a write of a region changes nothing")
        there = held(region, values, there)
    for _ in range(2):
        is_region = bool(shape) and chance.random() < 0.4
        schema = (any_region if is_region else any_schema)(chance, shape, ranks)
        scripts.all(declared, "rowmajor raw" if kind == "raw" else "")
        scripts.each(schema.words)
        after = scripts.memories(chance, word, schema, there, is_write=False)
        if chance.random() < 0.5:
            scripts.all(f"read {name} {any_strategy(chance)} NULL NULL nan -1")
        else:
            scripts.all(f"beginread 1 {name} NULL NULL NULL nan -1", "end 1")
        scripts.expect(after, f"a read by {schema.words}")
    return scripts, directory / name, kind, there


@pytest.mark.parametrize("seed", SEEDS)
def test_any_array_on_threads(seed: int, tmp_path: Path, player: Path) -> None:
    chance = random.Random(seed)
    word = DTYPES[seed % len(DTYPES)]
    ranks = chance.choice([1, 2, 3, 5])
    scripts, path, kind, there = random_script(chance, tmp_path, word, ranks)
    servers = chance.choice([1, 2, ranks + 3])
    dedicated = chance.choice(["-1", "1"])
    play(player, scripts, f"servers={servers}", f"dedicated={dedicated}", "sync=0")
    others = stored(path, kind, word, there.shape)
    assert others is None or same(others.astype(element(word)), there)


@pytest.mark.parametrize("seed", range(100, 114))
def test_any_array_over_mpi(seed: int, tmp_path: Path, mpi_player: Path) -> None:
    chance = random.Random(seed)
    word = DTYPES[seed % len(DTYPES)]
    ranks = chance.choice([1, 2, 3])
    scripts, path, kind, there = random_script(chance, tmp_path, word, ranks)
    options = [f"servers={chance.choice([1, 2, ranks + 3])}", "sync=0"]
    if chance.random() < 0.5:
        options.append("transport=messages")
    play(mpi_player, scripts, *options, mode="mpi")
    others = stored(path, kind, word, there.shape)
    assert others is None or same(others.astype(element(word)), there)


def test_dedicated_servers_over_mpi(tmp_path: Path, mpi_player: Path) -> None:
    """Of four ranks two serve: the other two are the clients."""
    chance = random.Random(7)
    scripts, path, kind, there = random_script(chance, tmp_path, "f4", 2)
    scripts.write()
    options = ("servers=2", "dedicated=1")
    programs.run(mpi_player, "mpi", *options, "--", tmp_path, ranks=4).fine()
    scripts.check()
    others = stored(path, kind, "f4", there.shape)
    assert others is None or same(others, there)


def test_an_embedded_session(tmp_path: Path, player: Path) -> None:
    chance = random.Random(8)
    scripts, path, kind, there = random_script(chance, tmp_path, "c8", 1)
    play(player, scripts, mode="alone")
    others = stored(path, kind, "c8", there.shape)
    assert others is None or same(others, there)


def test_every_type_and_an_empty_array(tmp_path: Path, player: Path) -> None:
    """Arrays without elements, of every type, are stored, and read by others."""
    for word in DTYPES:
        directory = tmp_path / word
        directory.mkdir()
        scripts = Scripts(directory, 3)
        chance = random.Random(word)
        shape = (0, 5)
        schema = distribution(chance, shape, 3)
        scripts.all(f"array u {word} {counted(shape)}", "chunks 2 2 2 0 none")
        scripts.each(schema.words)
        values = any_values(chance, word, shape)
        scripts.memories(chance, word, schema, values, is_write=True)
        scripts.all("write store NULL NULL NULL nan -1")
        play(player, scripts)
        there = zarr.open_group(directory / "store", mode="r")["u"]
        assert (there.shape, there.dtype) == (shape, element(word))


def test_attributes_names_and_fill(tmp_path: Path, player: Path) -> None:
    scripts = Scripts(tmp_path, 2)
    (tmp_path / "nine").write_bytes(np.float64(9).tobytes() + np.arange(6.0).tobytes())
    scripts.all("array u f8 2 4 3", "chunks 2 2 2 0 zstd", "memory nine", "fill 0", "names y x")
    scripts.all('attributes {"units":"m","n":1}')
    scripts.each(["boxes 1 2 1 0 2 2 3 0", "boxes 0 0 0 0"])
    scripts.lines[0].append("plain 8")
    scripts.all('write store NULL NULL {"n":2,"more":[1,null]} nan -1')
    play(player, scripts)
    array = zarr.open_group(tmp_path / "store", mode="r")["u"]
    assert dict(array.attrs) == {"units": "m", "n": 2, "more": [1, None]}
    assert array.metadata.dimension_names == ("y", "x")
    expected = np.full((4, 3), 9.0)
    expected[1:3] = np.arange(6.0).reshape(2, 3)
    assert array.fill_value == 9
    assert same(array[...], expected)
