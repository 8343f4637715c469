"""Parallel files in C: programs that compare all they do with a model, what Python finds of what C
has left, and servers that stand."""

from __future__ import annotations

from pathlib import Path

import c_programs
import numpy as np
import pytest
from c_programs import HERE, compiled, run
from helpers import penstock
from serving import alone

import penstock as ps

needs_mpi = pytest.mark.skipif(
    c_programs.missing_mpi() is not None, reason=c_programs.missing_mpi() or ""
)
needs_cc = pytest.mark.skipif(c_programs.missing("cc") is not None, reason="needs cc")


@pytest.fixture(scope="module")
def alone_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HERE / "files_alone.c", tmp_path_factory.mktemp("files") / "alone")


@pytest.fixture(scope="module")
def ranks_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("files") / "ranks"
    return compiled(HERE / "files_ranks.c", target, with_mpi=True)


@needs_cc
def test_all_functions_in_one_process(place: Path, alone_program: Path) -> None:
    assert run(alone_program, "alone", place).fine() == "all right\n"
    for name, servers in (("v0", 1), ("v1", 3), ("v2", 7)):
        assert "nothing was found" in penstock("fs", "fsck", place / name, "--data")
        with ps.FileSystem(place / name) as fs:
            assert (fs.servers, fs.list()) == (servers, ["c"])
            with fs.attach("/c") as f:
                assert f.open().read(10) == b"kept"


@needs_cc
def test_all_functions_with_servers_that_stand(place: Path, alone_program: Path) -> None:
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    (place / "w").mkdir()
    with alone(place / "v") as server:
        assert run(alone_program, server.url, place / "w").fine() == "all right\n"
        with ps.FileSystem(server.url) as fs:
            assert fs.list() == []


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks(place: Path, ranks_program: Path, ranks: int) -> None:
    said = run(ranks_program, place, ranks=ranks).fine()
    assert f"all right, {ranks} ranks" in said
    with ps.FileSystem(place / "v1") as fs, fs.attach("/left") as f:
        for rank in range(ranks):
            found = f.open(ps.View(hn=ranks), rank).read(6000)
            assert np.array_equal(np.frombuffer(found, np.uint8), np.full(5000, rank + 1))


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_with_servers_that_stand(place: Path, ranks_program: Path, ranks: int) -> None:
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    (place / "w").mkdir()
    with alone(place / "v") as server:
        said = run(ranks_program, place / "w", server.url, ranks=ranks).fine()
        assert f"all right, {ranks} ranks" in said
