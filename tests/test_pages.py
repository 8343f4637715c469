"""What docs/mpi-programs.md and docs/formats.md show is run here, and what they say of files is
compared with the files."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import xarray
import zarr
from helpers import tree

import penstock as ps

DOCS = Path(__file__).parent.parent / "docs"
MPIEXEC = Path(sys.executable).with_name("mpiexec")
MPI_PROGRAMS, FORMATS = "mpi-programs.md", "formats.md"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def is_mpi_program(block: str) -> bool:
    return "from mpi4py" in block


def formats() -> str:
    return (DOCS / FORMATS).read_text()


def snippets(page: str) -> str:
    """The Python of a page that is no program of its own, in order; lines are numbered as there."""
    text = (DOCS / page).read_text()
    lines = [""] * text.count("\n")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if not is_mpi_program(found[1]):
            first = text.count("\n", 0, found.start(1))
            part = found[1].splitlines()
            lines[first : first + len(part)] = part
    return "\n".join(lines)


def run(*command: object, cwd: Path) -> str:
    """What a command prints, run to its end with this interpreter's directory first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---------------------------------------------------------------------------------------------
# docs/mpi-programs.md
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> tuple[Path, list[str]]:
    """The complete program, run on 4 ranks and again on 3: its directory, and what it printed."""
    place = tmp_path_factory.mktemp("job")
    (place / "heat.py").write_text(blocks(MPI_PROGRAMS, "python")[0])
    first = run(MPIEXEC, "-n", 4, "python", "heat.py", cwd=place)
    # As the section on errors says to start it.
    second = run(MPIEXEC, "-n", 3, "python", "-m", "mpi4py", "heat.py", cwd=place)
    return place, [first, second]


def test_the_program_goes_on_from_its_checkpoint(job):
    place, printed = job
    page = (DOCS / MPI_PROGRAMS).read_text()
    for line in printed:
        words = re.sub(r"\d+ servers", "2 servers", line.strip())  # they depend on the processors
        assert f"\n    {words}\n" in page
    assert [line.rsplit("step ")[-1].split()[0] for line in printed] == ["60", "120"]
    checkpoints = zarr.open_group(place / "heat.zarr" / "checkpoints", mode="r")
    assert sorted(checkpoints.group_keys()) == ["100", "120"]


def test_xarray_sees_all_timesteps_of_both_runs(job):
    """And each is what one process computes without stopping: restart has lost nothing."""
    opened = xarray.open_zarr(job[0] / "heat.zarr")
    assert opened["time"].values.tolist() == [4.0, 8.0, 12.0, 16.0, 20.0, 24.0]
    assert opened.attrs["title"] == "heat in a plate"
    u = np.zeros((98, 66))
    y, x = np.ogrid[:96, :64]
    inside = u[1:-1, 1:-1]
    inside[...] = (abs(y - 48) < 16) & (abs(x - 32) < 12)
    for step in range(1, 121):
        change = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        change -= 4 * inside
        inside += 0.2 * change
        if step % 20 == 0:
            at = step // 20 - 1
            assert (opened["u"][at].values == inside).all()
            assert (opened["rate"][at].values == change.astype("f4")).all()


@pytest.fixture(scope="module")
def explored(job) -> Path:
    """The job's directory, after four threads have run the page's pieces in it."""
    place, _ = job
    code = compile(snippets(MPI_PROGRAMS), MPI_PROGRAMS, "exec")

    def main(session):
        exec(code, {"s": session, "np": np, "ps": ps})

    with contextlib.chdir(place):
        ps.run(main, 4)
    return place


def test_the_pieces_of_the_page(explored):
    boxes = zarr.open_group(explored / "boxes.zarr", mode="r")
    assert (boxes["w"][:] == 1).all()
    shards = zarr.open_group(explored / "shards.zarr", mode="r")["u"]
    assert (shards.shards, shards.chunks) == ((96, 64), (16, 16))
    assert not list(explored.glob(".*.penstock"))


@pytest.mark.parametrize("block", [b for b in blocks(MPI_PROGRAMS, "text") if b.startswith("$ ")])
def test_what_commands_print(explored, block):
    printed = ""
    for command in re.findall(r"^\$ (.*)", block, re.MULTILINE):
        printed += f"$ {command}\n" + run(*shlex.split(command), cwd=explored)
    assert printed == block


@pytest.mark.parametrize("number", range(1, 3))
def test_the_other_programs_of_the_page(tmp_path, number):
    programs = [block for block in blocks(MPI_PROGRAMS, "python") if is_mpi_program(block)]
    assert len(programs) == 3
    (tmp_path / "program.py").write_text(programs[number])
    run(MPIEXEC, "-n", 3, "python", "program.py", cwd=tmp_path)


def test_the_errors_are_all_there_are():
    named = set(re.findall(r"`(\w+Error)`", (DOCS / MPI_PROGRAMS).read_text())) - set(dir(builtins))
    assert named == {kind.__name__ for kind in ps.Error.__subclasses__()}


# ---------------------------------------------------------------------------------------------
# docs/formats.md
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """The directory in which the page's code has run."""
    place = tmp_path_factory.mktemp("formats")
    with contextlib.chdir(place):
        exec(compile(snippets(FORMATS), FORMATS, "exec"), {})
    return place


def entries(drawn: str) -> Iterator[str]:
    """The files of a drawn tree: names are indented by their depth, words stand behind them."""
    above: list[str] = []
    for line in drawn.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        above[depth:] = [name]
        if not name.endswith("/"):
            yield "".join(above)


TREES = [list(entries(block)) for block in blocks(FORMATS, "text")]


@pytest.mark.parametrize("drawn", [tree for tree in TREES if not tree[0].startswith(".")])
def test_the_trees_are_what_is_stored(stored, drawn):
    assert len(TREES) == 9
    found: set[str] = set()
    for top in {path.split("/")[0] for path in drawn}:
        at = stored / top
        found |= {f"{top}/{path}" for path in tree(at)} if at.is_dir() else {top}
    assert sorted(map(undrawn, drawn)) == sorted(map(undrawn, found))


def undrawn(path: str) -> str:
    """A path without digits that are random."""
    return re.sub("[0-9a-f]{16}", "#", path)


def test_a_tree_is_read_as_it_is_drawn():
    """The helper itself."""
    assert list(entries("a/\n  b/\n    c   words\n  d/e\nf\n")) == ["a/b/c", "a/d/e", "f"]


def json_examples() -> list[tuple[str, str, str]]:
    text = formats()
    return re.findall(r"^`(\S+)`(?:, its `(\w+)`)?:\n\n```json\n(.*?)^```$", text, re.S | re.M)


@pytest.mark.parametrize("path, member, example", json_examples())
def test_the_json_is_what_is_stored(stored, path, member, example):
    assert len(json_examples()) == len(blocks(FORMATS, "json")) == 6
    there = json.loads((stored / path).read_text())
    if "id" in there:
        assert re.fullmatch("[0-9a-f]{16}", there["id"])
        there["id"] = "0123456789abcdef"
    assert json.loads(example) == (there[member] if member else there)


def test_checksums_are_of_the_decoded_chunk(stored):
    values = zarr.open_group(stored / "flow.zarr" / "checkpoints" / "20", mode="r")["u"][:]
    padded = np.zeros((6, 4), "f4")
    padded[:5] = values
    expected = [2**32 + google_crc32c.value(part.tobytes()) for part in np.split(padded, 2)]
    sums = np.fromfile(stored / "flow.zarr" / "checkpoints" / "20" / "u" / ".sums", "<u8")
    assert sums.tolist() == expected
    sums = np.fromfile(stored / "flow.zarr" / ".penstock" / "record" / "sums" / "u", "<u8")
    assert sums.tolist() == 2 * expected
    # They are not encoded here, so that the files show the padding.
    chunk = stored / "flow.zarr" / "u" / "c" / "1" / "1" / "0"
    assert chunk.read_bytes() == padded[3:].tobytes()


def rows(page: str, first: str) -> list[list[str]]:
    """The rows of the table whose header begins with `first`."""
    text = (DOCS / page).read_text()
    (table,) = re.findall(rf"^\| {re.escape(first)} .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def metadata(place: Path, array: ps.Array) -> dict:
    with ps.Session(sync=False) as s:
        s.write(place / "g", array, np.zeros(array.shape, array.dtype))
    return json.loads((place / "g" / array.name / "zarr.json").read_text())


def test_the_table_of_types(place):
    table = rows(FORMATS, "`dtype`")
    assert len(table) == 14
    for dtype, name, width, fill in table:
        array = ps.Array("u", (2,), dtype.strip("`"))
        there = metadata(place, array)
        assert there["data_type"] == name.strip("`")
        assert json.dumps(there["fill_value"]) == fill.strip("`")
        assert array.dtype.itemsize == int(width)


def test_the_table_of_codecs(place):
    for words, chain, _ in rows(FORMATS, "word"):
        for word in re.findall(r"`(.*?)`", words):
            example = word.replace("CNAME", "lz4").replace("LEVEL", "4")
            codec = example.replace("SHUFFLE", "bitshuffle")
            there = metadata(place, ps.Array("u", (2,), "f8", disk=ps.Chunks((2,), codec=codec)))
            assert [one["name"] for one in there["codecs"]] == re.findall(r"`(.*?)`", chain)


def test_natural_chunking(place):
    for memory, chunk in [
        (lambda rank: ps.Distribution("*,BLOCK", (3,)), (7, 4)),
        (lambda rank: ps.Distribution("CYCLIC(2),CYCLIC", (2, 1)), (4, 10)),
        (lambda rank: ps.Boxes((rank, 0), (1, 3 + rank)), (1, 5)),
    ]:

        def main(session, memory=memory):
            u = ps.Array("u", (7, 10), "i2", memory=memory(session.rank))
            session.write(place / "g", u, np.ones(u.local_shape(session.rank), "i2"))
            return session.open(place / "g").disk

        assert ps.run(main, 3)[0] == ps.Chunks(chunk)
    # Of the boxes only rows 0 to 2 and columns 0 to 4 are there; the other chunks are not stored.
    assert tree(place / "g" / "u").keys() == {"zarr.json", "c.0.0", "c.1.0", "c.2.0"}


def test_the_temporary_while_it_is_there(place):
    (drawn,) = (paths for paths in TREES if paths[0].startswith("."))
    u = ps.Array("u", (4,), "f8", disk=ps.Chunks((4,)))
    with ps.Session() as s:
        s.write(place / "run.zarr", u, np.zeros(4))
    slow = ps.testing.Faults(bytes_per_second=6)  # the write takes five seconds
    with ps.Session(faults=slow) as s:
        written = s.begin_write(place / "run.zarr", u, np.ones(4), background="disk")
        (temporary,) = place.glob(".*")
        there = {f"{temporary.name}/{entry.name}" for entry in temporary.iterdir()}
        owner = json.loads((temporary / "lock").read_text())
        written.end()
    assert set(map(undrawn, drawn)) == set(map(undrawn, there))
    assert owner["process"] == os.getpid() and owner["target"] == str(place / "run.zarr" / "u")
    assert "host" in owner and not list(place.glob(".*"))


def test_a_spread_store_is_gathered(stored):
    spread = zarr.open_array(stored / "disk0" / "run.zarr" / "u")
    assert "penstock_spread" in spread.attrs and not spread[...].any(), "others see fill values"
    whole = run("penstock", "ls", "disk{server}/run.zarr", cwd=stored)
    assert "u  float32" in whole
    for number, command in enumerate(re.findall(r"`(penstock gather .*?)`", formats())):
        words = shlex.split(command)
        words[-1] = f"whole{number}.zarr"
        run(*words, cwd=stored)
        made = zarr.open_array(stored / words[-1] / "u")
        assert "penstock_spread" not in made.attrs
        assert made[...].tobytes() == (stored / "u.raw").read_bytes()


def test_the_lock_of_a_group_is_empty_and_stays(stored):
    lock = stored / "flow.zarr" / ".penstock" / "record" / "lock"
    assert lock.read_bytes() == b""


def test_nobody_is_warned(stored):
    with warnings.catch_warnings(action="error"):
        for name in ("flow.zarr", "cloud.zarr", "run.zarr"):
            xarray.open_zarr(stored / name)
            xarray.open_zarr(stored / name, consolidated=False)
            zarr.open_group(stored / name, use_consolidated=False)


def test_saves_and_writes_that_are_refused(stored, place):
    u = ps.Array("u", (2,), "f8")
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="timestep"):
            s.write(stored / "flow.zarr", ps.Array("u", (2,), "f8"), np.zeros(2))
        for array, kind in [
            (u.with_disk(ps.RowMajor("npy")), ps.UnsupportedError),
            (ps.Array("time", (2,), "f8"), ps.SchemaError),
            (ps.Array("checkpoints", (2,), "f8"), ps.SchemaError),
            (ps.Array(".u", (2,), "f8"), ps.SchemaError),
        ]:
            with pytest.raises(kind):
                group = ps.Group("g", [array], place / "g.zarr")
                s.timestep(group, {array.name: np.zeros(2)})
        with pytest.raises(ps.UnsupportedError):
            s.write(place / "u.npy", u.with_disk(ps.RowMajor("npy")), np.zeros(2), attrs={"a": 1})
    assert not list(place.iterdir())


def test_codecs_of_others_that_are_not_read(place):
    import numcodecs

    codecs = {
        "lz4": {"compressors": numcodecs.LZ4()},
        "lzma": {"compressors": numcodecs.LZMA()},
        "delta": {"filters": [numcodecs.Delta("f8")], "compressors": None},
    }
    sentence = formats().partition("other codecs (")[2].partition(" and others")[0]
    assert re.findall(r"`(\w+)`", sentence) == list(codecs)
    for name, options in codecs.items():
        zarr.create_array(place / name, shape=(4,), dtype="f8", zarr_format=2, **options)
        with ps.Session() as s, pytest.raises(ps.UnsupportedError, match=name):
            s.open(place / name)


def test_what_is_read_of_others_but_not_written(place):
    plain = {"shape": (4,), "chunks": (4,), "dtype": "f8", "compressors": None}
    zarr.create_array(place / "second", zarr_format=2, **plain)
    zarr.create_array(place / "big", serializer=zarr.codecs.BytesCodec(endian="big"), **plain)
    shards = zarr.codecs.ShardingCodec(chunk_shape=(2,), index_location="start")
    zarr.create_array(place / "start", serializer=shards, **plain)
    with ps.Session() as s:
        for name in ("second", "big", "start"):
            u = s.open(place / name)
            assert not s.read(place / name, u).any()
            with pytest.raises(ps.UnsupportedError, match="copy the array"):
                s.write(place / name, u, np.ones(2), region=slice(0, 2))
    run("penstock", "copy", place / "big", place / "new.zarr", "--codec", "none", cwd=place)
    with ps.Session() as s:
        copied = s.open(place / "new.zarr")
        s.write(place / "new.zarr", copied, np.ones(2), region=slice(0, 2))
        assert s.read(place / "new.zarr", copied).tolist() == [1, 1, 0, 0]


def test_files_that_the_architecture_names_are_there():
    page = (DOCS / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:rs|py))`", page))
    assert len(named) > 40
    root = DOCS.parent
    if not (root / "crates").is_dir():
        pytest.skip("the sources are not here")
    files = [str(path) for path in root.glob("crates/**/*.rs")]
    files += [str(path) for path in root.glob("python/penstock/*.py")]
    missing = {name for name in named if not any(file.endswith(f"/{name}") for file in files)}
    assert not missing
