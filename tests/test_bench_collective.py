"""``penstock_bench collective`` measures rivals that are there, and says why others are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock_bench.case import Case, Disk, Distribution
from penstock_bench.rivals import best_hints, has_own_chunks

MPIEXEC = Path(sys.executable).with_name("mpiexec")


pytestmark = pytest.mark.usefixtures("hurry")


def bench(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command on two ranks, with a small array."""
    command = [MPIEXEC, "-n", 2, sys.executable, "-m", "penstock_bench", "collective"]
    command += ["--shape", "12,10,8", "--repeats", 1, "--path", cwd, "--quiet", *words]
    return subprocess.run(
        list(map(str, command)), cwd=cwd, text=True, capture_output=True, timeout=600, check=False
    )


def labels(cwd: Path) -> list[str]:
    """The contenders of a run, each once."""
    report = json.loads((cwd / "figures.json").read_text())
    return list(dict.fromkeys(result["contender"] for result in report["results"]))


def test_mpiio_has_buffers_of_several_sizes(tmp_path):
    words = ["--strategy", "mpiio", "--cb-nodes", 2, "--json", "figures.json"]
    assert bench(*words, cwd=tmp_path).returncode == 0
    assert labels(tmp_path)[1:3] == [f"mpiio, best hints, cb_nodes 2, {mib} MiB" for mib in (1, 4)]
    assert best_hints(2)["cb_buffer_size"] == "1048576"


@pytest.mark.parametrize("disk", ["chunks:3,10,8:zstd:1", "chunks:6,10,8/3,5,4"])
def test_zarr_python(tmp_path, disk):
    words = ["--strategy", "penstock,zarr", "--disk", disk, "--no-sync", "--json", "figures.json"]
    done = bench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert labels(tmp_path)[1].startswith("zarr")


REFUSED = [
    (["zarr", "--disk", "chunks:3,10,8"], "--no-sync"),
    (["zarr", "--disk", "chunks:5,10,8", "--no-sync"], "belong to one rank"),
    (["zarr"], "cannot write --disk row-major"),
    (["pnetcdf"], "needs --pnetcdf"),
    (["pnetcdf", "--pnetcdf", "nowhere.so"], "nowhere.so"),
    (["hdf5"], "is none of penstock, mpiio, mmap, tensorstore, zarr, pnetcdf, limit"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED)
def test_a_rival_that_cannot_take_part_is_refused_in_one_line(tmp_path, words, why):
    done = bench("--strategy", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("penstock-bench: error: ")
    assert why in done.stderr


@pytest.mark.parametrize(
    ("memory", "mesh", "chunk", "expected"),
    [
        ("BLOCK,*", (2,), (3, 4), True),
        ("BLOCK,*", (2,), (4, 4), False),
        ("BLOCK,*", (5,), (1, 10), True),
        ("BLOCK,*", (4,), (3, 10), True),
        ("CYCLIC,*", (2,), (1, 10), False),
        ("CYCLIC(3),*", (4,), (3, 10), True),
        ("*,*", (), (7, 7), True),
    ],
)
def test_chunks_that_belong_to_one_rank_each(tmp_path, memory, mesh, chunk, expected):
    distribution, disk = Distribution.parse(memory, mesh), Disk("chunks", chunk=chunk)
    where = {"directory": tmp_path, "sync": False, "rank": 0, "size": 5}
    case = Case((12, 10), np.dtype("f8"), distribution, disk, **where)
    assert has_own_chunks(case) is expected
