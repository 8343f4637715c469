"""Arrays in C: random arrays, memories, stores and calls beside a naive model; others read what C
programs write."""

from __future__ import annotations

import random
import re
from pathlib import Path

import c_programs as programs
import numpy as np
import pytest
import zarr
from core_model import (
    DTYPES,
    Memory,
    Part,
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
from serving import alone

import penstock as ps

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
    """Writes and reads of one array: the scripts, path and kind of the store, and what is there."""
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


def test_each_server_has_a_directory_of_its_own(tmp_path: Path, player: Path) -> None:
    chance = random.Random(9)
    scripts = Scripts(tmp_path, 2)
    values = any_values(chance, "i4", (8, 6))
    schema = distribution(chance, values.shape, 2)
    scripts.all(f"array u i4 {counted(values.shape)}", "chunks 2 2 2 0 none")
    scripts.each(schema.words)
    scripts.memories(chance, "i4", schema, values, is_write=True)
    scripts.all("write @store NULL NULL NULL nan -1")
    after = scripts.memories(chance, "i4", schema, values, is_write=False)
    scripts.all("read @store NULL NULL NULL nan -1")
    scripts.expect(after, "a read")
    for server in range(3):
        (tmp_path / f"disk{server}").mkdir()
    play(player, scripts, "servers=3", f"root={tmp_path}/disk{{server}}")
    for server in range(3):
        files = (tmp_path / f"disk{server}").rglob("*")
        chunks = [path for path in files if path.is_file() and path.stat().st_size == 16]
        assert len(chunks) == 4, server


# --- through time --------------------------------------------------------------------------------


def saved_script(chance: random.Random, directory: Path, ranks: int, steps: int) -> tuple:
    """Timesteps and checkpoints of two arrays and one of rows; and what they are at each step."""
    scripts = Scripts(directory, ranks)
    shape, word = (7, 5), chance.choice(DTYPES)
    schema = any_schema(chance, shape, ranks)
    flat = distribution(chance, (4,), ranks)
    scripts.all("group g group")
    scripts.all(f"array u {word} {counted(shape)}", f"chunks {counted((3, 4))} 0 zstd:1")
    scripts.each(schema.words)
    scripts.all("add", "array v f4 1 4")
    scripts.each(flat.words)
    scripts.all("add", f"array r i8 2 {2**64 - 1} 3", "names particle axis", "add", "keep 3")
    history = []
    for step in range(steps):
        values = (any_values(chance, word, shape), any_values(chance, "f4", (4,)))
        counts = [chance.randrange(4) for _ in range(ranks)]
        rows = any_values(chance, "i8", (sum(counts), 3))
        for rank in range(ranks):
            lines, image = [], b""
            for array, of_array, of_word in (
                (values[0], schema, word),
                (values[1], flat, "f4"),
            ):
                memory = Memory(chance, of_word)
                parts = of_array.parts[rank]
                for nth in range(len(parts)):
                    memory.add(of_array, rank, nth)
                own = memory.image()
                for nth, part in enumerate(parts):
                    if part.index is not None:
                        memory.put(own, nth, array[part.index])
                lines += shifted(memory.words, len(image))
                lines.append(f"locals {len(parts)}")
                image += bytes(own)
            first = sum(counts[:rank])
            image += b"\0" * (-len(image) % 8)
            lines.append(f"local {len(image)} 2 {counts[rank]} 3 24 8")
            lines.append("locals 1")
            image += rows[first : first + counts[rank]].tobytes()
            name = f"step-{step}.{rank}"
            (directory / name).write_bytes(image + b"\0")
            scripts.lines[rank] += [f"memory {name}", *lines]
        time = 0.5 * step + 1
        if chance.random() < 0.5:
            scripts.all(f"timestep NULL NULL NULL {time} -1")
        else:
            scripts.all(f"begintimestep 0 NULL NULL NULL {time} -1", "barrier", "end 0")
        if step % 2 == 1:
            scripts.all(f'checkpoint NULL NULL {{"step":{step}}} nan {100 + step}')
        zeros = (np.zeros(shape, element(word)), np.zeros(4, np.float32))
        history.append((held(schema, values[0], zeros[0]), values[1], rows, counts))
    return scripts, word, history


def shifted(lines: list[str], by: int) -> list[str]:
    """Local arrays of a memory that lies further back."""
    moved = []
    for line in lines:
        name, offset, *rest = line.split()
        moved.append(" ".join([name, str(int(offset) + by), *rest]))
    return moved


@pytest.mark.parametrize("seed", range(200, 208))
def test_timesteps_checkpoints_and_restarts(seed: int, tmp_path: Path, player: Path) -> None:
    """What is saved on some ranks is restarted on others, in another arrangement."""
    chance = random.Random(seed)
    scripts, word, history = saved_script(chance, tmp_path, chance.choice([1, 2, 3]), 4)
    play(player, scripts, "sync=0", f"servers={chance.choice([1, 2, 7])}")
    group = zarr.open_group(tmp_path / "group", mode="r")
    assert same(group["time"][...], np.array([1, 1.5, 2, 2.5]))
    first = 0
    for step, (u, v, rows, _) in enumerate(history):
        assert same(np.asarray(group["u"][step]), u)
        assert same(np.asarray(group["v"][step]), v)
        assert same(np.asarray(group["r"][first : first + len(rows)]), rows)
        first += len(rows)
    restarted(chance, tmp_path, player, word, history[3])


def restarted(chance: random.Random, store: Path, player: Path, word: str, last: tuple) -> None:
    """Restarts from the last checkpoint, which was saved after the last timestep."""
    ranks = chance.choice([1, 2, 3, 4])
    directory = store / "restart"
    directory.mkdir()
    (directory / "group").symlink_to(store / "group")
    scripts = Scripts(directory, ranks)
    u, v, rows, _ = last
    schema, flat = any_schema(chance, u.shape, ranks), distribution(chance, (4,), ranks)
    scripts.all("group g group")
    scripts.all(f"array u {word} {counted(u.shape)}", f"chunks {counted((3, 4))} 0 zstd:1")
    scripts.each(schema.words)
    scripts.all("add", "array v f4 1 4")
    scripts.each(flat.words)
    scripts.all("add", f"array r i8 2 {2**64 - 1} 3", "names particle axis", "add")
    scripts.all("find -1", "shares r")
    block = -(-len(rows) // ranks)
    for rank in range(ranks):
        lines, before, after = [], b"", b""
        for array, of_array, of_word in ((u, schema, word), (v, flat, "f4")):
            memory = Memory(chance, of_word)
            parts = of_array.parts[rank]
            for nth in range(len(parts)):
                memory.add(of_array, rank, nth)
            own = memory.image()
            for nth, part in enumerate(parts):
                if part.index is not None:
                    memory.put(own, nth, array[part.index])
            lines += shifted(memory.words, len(before))
            lines.append(f"locals {len(parts)}")
            before += bytes(memory.image())
            after += bytes(own)
        padding = b"\0" * (-len(before) % 8)
        before, after = before + padding, after + padding
        share = rows[rank * block : (rank + 1) * block]
        lines += [f"plain {len(before)}", "locals 1"]
        before += bytes(share.nbytes + 8)
        after += share.tobytes() + bytes(8)
        (directory / f"memory.{rank}").write_bytes(before)
        scripts.lines[rank] += [f"memory memory.{rank}", *lines]
        scripts.expected.append((directory / f"dump.{rank}", after, f"rank {rank}: a restart"))
    scripts.all("restart")
    for rank in range(ranks):
        scripts.lines[rank].append(f"dump dump.{rank}")
    play(player, scripts, "sync=0")
    for rank, log in enumerate(scripts.logs()):
        share = rows[rank * block : (rank + 1) * block]
        assert 'state 103 time 2.5 4 {"step":3}' in log
        assert f"share r {len(share)} {share.nbytes}" in log


def test_no_checkpoint_is_no_error(tmp_path: Path, player: Path) -> None:
    scripts = Scripts(tmp_path, 2)
    scripts.all("group g group", "array u f8 1 4", "add", "find -1", "find 5")
    scripts.write()
    programs.run(player, "threads=2", "--", tmp_path).fine()
    for log in scripts.logs():
        assert log[0].split()[:2] == ["find", "0"]
        assert log[1].split()[:2] == ["find", "4"]  # PENSTOCK_ERR_MISSING
        assert len(log) == 2


# --- arrays that stay open -----------------------------------------------------------------------


def open_script(chance: random.Random, directory: Path, ranks: int) -> tuple:
    """Ranks write and read parts of an open array, one after the other and all together."""
    scripts = Scripts(directory, ranks)
    shape, word = (9, 7), chance.choice(DTYPES)
    there = any_values(chance, word, shape)
    declared = [f"array u {word} {counted(shape)}", f"chunks {counted((4, 3))} 0 zstd:1"]
    schema = distribution(chance, shape, ranks)
    scripts.all(*declared)
    scripts.each(schema.words)
    scripts.memories(chance, word, schema, there, is_write=True)
    scripts.all("write store NULL NULL NULL nan -1", "open store 1")
    for _ in range(3):
        for who in range(ranks):
            start = [chance.randrange(n) for n in shape]
            extents = [chance.randint(0, n - s) for n, s in zip(shape, start, strict=True)]
            one = boxes_of_one(who, ranks, start, extents)
            new = any_values(chance, word, shape)
            after = scripts.memories(chance, word, one, new, is_write=True)
            box = f"{counted(start)} {counted(extents)}"
            scripts.lines[who].append(f"putbox {box}")
            scripts.expect(after, "a write changes nothing")
            there = held(one, new, there)
            scripts.all("barrier")
        region = any_region(chance, shape, ranks)
        new = any_values(chance, word, shape)
        scripts.all(*declared)
        scripts.each(region.words)
        after = scripts.memories(chance, word, region, new, is_write=True)
        scripts.all("putall")
        scripts.expect(after, "a write changes nothing")
        there = held(region, new, there)
        region = any_region(chance, shape, ranks)
        scripts.all(*declared)
        scripts.each(region.words)
        after = scripts.memories(chance, word, region, there, is_write=False)
        scripts.all("getall")
        scripts.expect(after, "a read of all ranks")
        whole = boxes_of_one(chance.randrange(ranks), ranks, [0, 0], list(shape))
        who = next(rank for rank, parts in enumerate(whole.parts) if parts)
        after = scripts.memories(chance, word, whole, there, is_write=False)
        scripts.lines[who].append(f"getbox 2 0 0 {counted(shape)}")
        scripts.expect(after, "a read of one rank")
        scripts.all("flush")
    scripts.all("close")
    return scripts, there


def boxes_of_one(who: int, ranks: int, start: list[int], extents: list[int]) -> Schema:
    """A box that one rank alone has."""
    index = tuple(slice(s, s + n) for s, n in zip(start, extents, strict=True))
    part = Part(index, tuple(extents))
    return Schema([], [[part] if rank == who else [] for rank in range(ranks)], is_region=True)


@pytest.mark.parametrize("seed", range(300, 308))
def test_open_arrays(seed: int, tmp_path: Path, player: Path) -> None:
    chance = random.Random(seed)
    ranks = chance.choice([1, 2, 3])
    scripts, there = open_script(chance, tmp_path, ranks)
    play(player, scripts, "sync=0", f"servers={chance.choice([1, 2, 5])}")
    assert same(np.asarray(zarr.open_group(tmp_path / "store", mode="r")["u"][...]), there)


def test_lists_of_open_arrays(tmp_path: Path, player: Path) -> None:
    """Elements of a list go to places of a local array, and to its elements in order."""
    scripts = Scripts(tmp_path, 1)
    there = np.arange(24.0)
    (tmp_path / "all").write_bytes(there.tobytes())
    (tmp_path / "room").write_bytes(np.full(8, -1.0).tobytes())
    scripts.all("array u f8 2 4 6", "memory all", "plain 0", "write store NULL NULL NULL nan -1")
    scripts.all("open store 1", "memory room", "plain 0")
    scripts.all("getlist runs 2 5 20 2 2 2 strided 1 1 1 4 2", "dump placed")
    scripts.all("memory room", "local 0 1 4 8", "getlist runs 2 5 20 2 2 2 NULL", "dump dense")
    scripts.all("putlist strided 3 1 1 4 6 NULL", "close")
    play(player, scripts)
    assert np.fromfile(tmp_path / "placed").tolist() == [-1, 5, -1, 6, -1, 20, -1, 21]
    assert np.fromfile(tmp_path / "dense").tolist() == [5, 6, 20, 21, -1, -1, -1, -1]
    there.reshape(4, 6)[:, 3] = [5, 6, 20, 21]
    assert same(zarr.open_group(tmp_path / "store", mode="r")["u"][...], there.reshape(4, 6))


# --- servers that stand --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["alone", "threads", "mpi"])
def test_servers_that_stand(mode: str, place: Path, player: Path, mpi_player: Path) -> None:
    chance = random.Random(mode)
    ranks = 1 if mode == "alone" else 3
    (place / "scripts").mkdir()
    (place / "arrays").mkdir()
    scripts = Scripts(place / "scripts", ranks)
    values = any_values(chance, "f4", (9, 4))
    schema = distribution(chance, (9, 4), ranks)
    scripts.all(f"array u f4 {counted(values.shape)}", "chunks 2 2 3 0 zstd")
    scripts.each(schema.words)
    after = scripts.memories(chance, "f4", schema, values, is_write=True)
    scripts.all("write @store NULL NULL NULL nan -1")
    scripts.expect(after, "a write changes nothing")
    after = scripts.memories(chance, "f4", schema, values, is_write=False)
    scripts.all("read @store NULL NULL NULL nan -1")
    scripts.expect(after, "a read")
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    with alone(place / "v", "--arrays", place / "arrays") as server:
        program = mpi_player if mode == "mpi" else player
        play(program, scripts, f"url={server.url}", mode=None if mode == "threads" else mode)
    assert same(zarr.open_group(place / "arrays/store", mode="r")["u"][...], values)


# --- errors --------------------------------------------------------------------------------------


def check_errors(directory: Path, ranks: int) -> None:
    """All ranks have the same errors; of a call that is well they have none."""
    logs = [(directory / f"errors.{rank}").read_text().splitlines() for rank in range(ranks)]
    assert len(logs[0]) > 100 * ranks
    for line in zip(*logs, strict=True):
        assert len(set(line)) == 1, line
        name, what, code = line[0].split(": ", 2)
        if what == "well":
            assert code.split()[0] == "0", line[0]
            continue
        expected = "10" if name == "refuse" else "1"
        rank = what.rpartition(" ")[2]
        assert code.startswith(f"{expected} rank {rank}: "), line[0]


def test_errors_of_one_thread(tmp_path: Path) -> None:
    program = build(tmp_path, "core_errors")
    programs.run(program, "threads=3", "sync=0", "--", tmp_path).fine()
    check_errors(tmp_path, 3)


@pytest.mark.parametrize(
    "options", [("sync=0",), ("transport=messages", "dedicated=1", "servers=1")]
)
def test_errors_of_one_rank_over_mpi(options: tuple[str, ...], tmp_path: Path) -> None:
    if why := programs.missing_mpi():
        pytest.skip(why)
    program = build(tmp_path, "core_errors", with_mpi=True)
    clients = 2
    ranks = clients + ("dedicated=1" in options)
    programs.run(program, "mpi", *options, "--", tmp_path, ranks=ranks).fine()
    check_errors(tmp_path, clients)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_sessions_over_mpi(ranks: int, tmp_path: Path) -> None:
    if why := programs.missing_mpi():
        pytest.skip(why)
    program = build(tmp_path, "core_mpi", with_mpi=True)
    programs.run(program, tmp_path, ranks=ranks).fine()


def test_one_process(tmp_path: Path) -> None:
    program = build(tmp_path, "core_alone")
    programs.run(program, tmp_path).fine()
    group = zarr.open_group(tmp_path / "group", mode="r")
    assert group.attrs["title"] == "a test"
    assert group["lat"][...].tolist() == [-0.5, 0.5]
    assert list(group["place"][...]) == ["here", "there"]
    assert group["u"].metadata.dimension_names == ("time", "lat", "lon")
    assert group["time"].attrs["units"] == "s"
    assert group["time"][...].tolist() == [0, 2.5]
    assert group["u"].chunks[0] == 4
    assert same(np.load(tmp_path / "u.npy"), np.arange(48, dtype="i4").reshape(8, 6) ** 2 - 7)
    with ps.Session() as session:
        array = session.open(tmp_path / "copy")
        assert (array.name, array.attrs) == ("v", {"units": "m"})


# --- the library and its header ------------------------------------------------------------------


def functions() -> set[str]:
    """The functions that the header declares."""
    text = (programs.tree().include / "penstock.h").read_text("utf-8")
    text = re.sub(r"/\*.*?\*/|^#.*?[^\\]$", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\b(penstock_\w+)\(", text))


def test_the_library_has_the_functions_of_the_header_and_no_other_symbol() -> None:
    if why := programs.missing("nm"):
        pytest.skip(why)
    library = programs.tree().library / "libpenstock.so"
    said = programs.checked("nm", "-D", "--defined-only", library)
    symbols = {line.split()[-1].split("@")[0] for line in said.splitlines()}
    assert len(functions()) > 100
    assert symbols == functions()


@pytest.mark.parametrize(
    ("compiler", "language"),
    [("cc", "-std=c99"), ("cc", "-std=c11"), ("c++", "-std=c++11"), ("c++", "-std=c++20")],
)
def test_compilers_take_the_header(compiler: str, language: str, tmp_path: Path) -> None:
    """With all warnings, in C and C++; and a C++ program calls the library."""
    if why := programs.missing(compiler):
        pytest.skip(why)
    source = tmp_path / ("a.c" if compiler == "cc" else "a.cpp")
    source.write_text(
        "#include <penstock.h>\n"
        "int main(void) {\n"
        "    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;\n"
        "    penstock_call_options call = PENSTOCK_CALL_OPTIONS_INIT;\n"
        "    penstock_copy_options copy = PENSTOCK_COPY_OPTIONS_INIT;\n"
        "    penstock_session *session;\n"
        "    (void)call, (void)copy;\n"
        "    if (penstock_session_open(NULL, &options, &session) != PENSTOCK_OK) return 1;\n"
        "    return penstock_session_close(session);\n"
        "}\n"
    )
    tree, target = programs.tree(), tmp_path / "a"
    warnings = ("-Wall", "-Wextra", "-pedantic", "-Werror")
    programs.checked(
        compiler, language, *warnings, f"-I{tree.include}", source, "-o", target, *tree.links
    )
    programs.run(target).fine()
