"""``penstock fs``, as the package installs it, beside the Python package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

MPIEXEC = Path(sys.executable).with_name("mpiexec")
MODULE = [sys.executable, "-m", "penstock"]
BLOCK = 4096


def fs(*arguments: object, command: list[str] = MODULE) -> subprocess.CompletedProcess:
    """Runs a command on a volume."""
    arguments = [str(argument) for argument in arguments]
    return subprocess.run(
        [*command, "fs", *arguments], capture_output=True, timeout=600, check=False
    )


def said(*arguments: object) -> str:
    """The output of a good command."""
    ran = fs(*arguments)
    assert (ran.returncode, ran.stderr) == (0, b""), ran
    return ran.stdout.decode()


def refused(*arguments: object, code: int = 1) -> str:
    """The one line of a bad command."""
    ran = fs(*arguments)
    assert (ran.returncode, ran.stdout) == (code, b""), ran
    errors = ran.stderr.decode()
    assert errors.startswith("penstock: error: ")
    assert errors.count("\n") == 1
    return errors


@pytest.fixture
def volume(place: Path) -> Path:
    said("create-volume", place / "v", "--servers", 3, "--block", "4KiB", "--capacity", "1MiB")
    return place / "v"


def test_what_the_command_makes_the_package_opens(volume: Path) -> None:
    said("mkdir", "-p", volume, "/runs/deep")
    said("create", volume, "/runs/mesh", "--cells", 4, "--bsu", 100, "--mode", 640, "--base", 2)
    with ps.FileSystem(volume) as files:
        assert (files.servers, files.block_bytes) == (3, BLOCK)
        found = files.stat("/runs/mesh")
        assert (found.cells, found.bsu, found.base, found.mode) == (4, 100, 2, 0o640)
        assert files.list("/runs") == ["deep/", "mesh"]
        assert "uses it" in refused("ls", volume)
    assert said("ls", volume, "/runs") == "deep/\nmesh\n"
    said("chmod", volume, 600, "/runs/mesh")
    said("chown", volume, ":77", "/runs/mesh")
    said("resize", volume, "/runs/mesh", 10)
    said("mv", volume, "/runs", "/old")
    described = json.loads(said("stat", volume, "/old/mesh", "--json"))
    assert (described["mode"], described["group"], described["bytes"]) == ("600", 77, 40)
    assert said("ls", "-l", volume, "/old").splitlines()[1].startswith("-rw-------")
    assert "entries" in refused("rm", volume, "/old")
    said("rm", "-r", volume, "/old")
    assert said("ls", "-R", volume) == "/:\n"


@pytest.mark.parametrize("order", ["block", "row", "column"])
def test_import_and_export_see_what_the_package_sees(volume: Path, place: Path, order: str) -> None:
    data = np.random.default_rng(1).integers(0, 256, 60_000, np.uint8).tobytes()
    (place / "local").write_bytes(data)
    view = ["--view", "2,1,2,2", "--subfile", 1, "--order", order]
    memory = [] if order == "column" else ["--memory", 4321]
    layout = ["--cells", 4, "--bsu", 50]
    told = said("import", volume, place / "local", "/f", *layout, *view, *memory)
    assert told.startswith("imported 60000 bytes in ")
    with ps.FileSystem(volume) as files, files.attach("/f") as f:
        s = f.open(ps.View(2, 1, 2, 2), 1, order=order)
        assert s.read(len(data)) == data
    assert fs("cat", volume, "/f", *view, *memory).stdout == data
    said("export", volume, "/f", place / "back", *view, *memory)
    assert (place / "back").read_bytes() == data
    assert "--overwrite" in refused("export", volume, "/f", place / "back", *view)
    assert sorted(path.name for path in place.iterdir()) == ["back", "local", "v"]


def test_a_file_with_holes_is_exported_with_holes(volume: Path, place: Path) -> None:
    with ps.FileSystem(volume) as files:
        files.create("/f", cells=1)
        with files.attach("/f", "w") as f:
            f.open().write_at(100 * BLOCK, b"end")
    said("export", volume, "/f", place / "back", "--memory", "4KiB")
    assert (place / "back").read_bytes() == bytes(100 * BLOCK) + b"end"


def test_checkpoint_and_rollback(volume: Path, place: Path) -> None:
    (place / "local").write_bytes(b"old" * 10_000)
    said("import", volume, place / "local", "/f")
    assert "no checkpoint" in refused("rollback", volume, "/f")
    said("checkpoint", volume, "/f")
    (place / "local").write_bytes(b"new" * 10_000)
    said("import", volume, place / "local", "/f")
    assert said("cat", volume, "/f", "--checkpoint") == "old" * 10_000
    assert said("cat", volume, "/f") == "new" * 10_000
    said("rollback", volume, "/f")
    assert said("cat", volume, "/f") == "old" * 10_000


def test_space_and_quotas(volume: Path, place: Path) -> None:
    space = json.loads(said("df", volume, "--json"))
    assert (space["bytes"], space["used_bytes"]) == (3 << 20, 0)
    (place / "local").write_bytes(bytes(8 * BLOCK))
    said("import", volume, place / "local", "/f", "--cells", 1)
    owner = json.loads(said("stat", volume, "/f", "--json"))["owner"]
    assert f"user {owner}: {8 * BLOCK} bytes, no limit" in said("quota", volume, owner)
    said("quota", volume, owner, "16KiB")
    assert json.loads(said("quota", volume, owner, "--json"))["limit_bytes"] == 16384
    assert "blocks" in refused("import", volume, place / "local", "/g", "--cells", 1)
    said("quota", volume, owner, "none")
    said("import", volume, place / "local", "/g", "--cells", 1)
    assert said("df", volume).splitlines()[1].split() == ["used", str(16 * BLOCK)]
    (place / "local").write_bytes(bytes(2 << 20))
    assert "in use" in refused("import", volume, place / "local", "/h", "--cells", 1)


def test_fsck(volume: Path, place: Path) -> None:
    (place / "local").write_bytes(b"\xa5" * 3 * BLOCK)
    said("import", volume, place / "local", "/f", "--cells", 1, "--base", 0)
    assert said("fsck", "--data", volume).endswith("3 read: nothing was found\n")
    with (volume / "server-0" / "blocks-0").open("r+b") as blocks:
        content = blocks.read()
        blocks.seek(content.index(b"\xa5"))
        blocks.write(b"\xa4")
    assert said("fsck", volume).endswith(": nothing was found\n")
    found = fsck(volume, "--data")
    assert len(found["findings"]) == 1
    assert found["findings"][0].startswith("/f: block 0 of cell 0 on server 0, at place ")
    assert fsck(volume, "--data", "--mend")["not_mended"] == found["findings"]
    assert "is damaged" in refused("cat", volume, "/f")
    with ps.FileSystem(volume):
        assert "uses it" in refused("fsck", volume)


def fsck(volume: Path, *options: str) -> dict:
    """What a check finds that does find something."""
    ran = fs("fsck", volume, "--json", *options)
    assert (ran.returncode, ran.stderr) == (1, b"")
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (["ls", "nowhere.vol"], 1, "there is no volume"),
        (["ls", "{v}", "runs"], 2, "a path begins with '/'"),
        (["ls", "{v}", "/none"], 1, "/none: there is nothing"),
        (["create-volume", "{v}"], 1, "there is a volume"),
        (["create", "{v}", "/f", "--cells", "0"], 2, "0 cells"),
        (["create", "{v}", "/f", "--mode", "1000"], 2, "permission bits"),
        (["cat", "{v}", "/f", "--view", "1,1"], 2, "a view is four numbers"),
        (["cat", "{v}", "/"], 2, "it is a directory"),
        (["rm", "{v}"], 2, "required arguments"),
    ],
)
def test_bad_input_is_one_line(volume: Path, arguments: list[str], code: int, cause: str) -> None:
    given = [argument.format(v=volume) for argument in arguments]
    assert cause in refused(*given, code=code)


@pytest.mark.skipif(not MPIEXEC.exists(), reason="needs mpiexec")
@pytest.mark.parametrize("ranks", [1, 3])
def test_import_and_export_under_mpiexec(volume: Path, place: Path, ranks: int) -> None:
    data = np.random.default_rng(2).integers(0, 256, 300_001, np.uint8).tobytes()
    (place / "local").write_bytes(data)
    command = [str(MPIEXEC), "-n", str(ranks), *MODULE]
    ran = fs("import", volume, place / "local", "/f", "--memory", "10KB", command=command)
    assert (ran.returncode, ran.stderr) == (0, b""), ran
    assert ran.stdout.startswith(b"imported 300001 bytes in ") and ran.stdout.count(b"\n") == 1
    ran = fs("export", volume, "/f", place / "back", "--memory", "10KB", command=command)
    assert (ran.returncode, ran.stderr) == (0, b""), ran
    assert (place / "back").read_bytes() == data
    for words in (["export", volume, "/f", place / "back"], ["import", volume, "/none", "/g"]):
        ran = fs(*words, command=command)
        assert ran.returncode != 0
        assert ran.stderr.count(b"penstock: error: ") == 1
    assert said("ls", volume) == "f\n"
