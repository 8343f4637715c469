"""MPI-IO in front of an MPI library: the command, the page, and files of standing servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

DOCS = Path(__file__).parent.parent / "docs"
BIN = Path(sys.executable).parent
LIMIT = 300
"""Seconds after which a run hangs."""

JOB = """
import sys
import numpy as np
from mpi4py import MPI

comm, name = MPI.COMM_WORLD, sys.argv[1]
rank, size, status = comm.rank, comm.size, MPI.Status()
file = MPI.File.Open(comm, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Set_size(0)
mine = MPI.INT.Create_vector(1000, 1, size).Create_resized(0, 4000 * size).Commit()
data = np.arange(3000, dtype="i4") * size + rank
file.Set_view(4 * rank, MPI.INT, mine)
file.Write_all(data)  # servers gather it
file.Set_view(0, MPI.INT)
found = np.full(3000 * size + 5, -1, "i4")
file.Read_all(found, status)
assert status.Get_count(MPI.INT) == 3000 * size
assert (found[:-5] == np.arange(3000 * size)).all() and (found[-5:] == -1).all()
found[:] = -1
file.Read_at(2990 * size, found[: 10 * size + 1], status)  # alone, beyond the end
assert status.Get_count(MPI.INT) == 10 * size and found[10 * size] == -1
comm.Barrier()
file.Iwrite_at_all(1000 * rank, data[:1000]).Wait()
file.Write_at_all_begin(1000 * rank, data[1000:2000])
file.Write_at_all_end(data[1000:2000])
file.Seek_shared(0)
file.Write_ordered(np.full(rank + 1, rank, "i4"))
assert file.Get_position_shared() == size * (size + 1) // 2
file.Sync()
comm.Barrier()
file.Set_size(file.Get_size() + 400)  # a hole
hole = np.full(100, -1, "i4")
file.Read_at_all(3000 * size, hole, status)
assert status.Get_count(MPI.INT) == 100 and not hole.any()
file.Close()
file = MPI.File.Open(comm, name, MPI.MODE_RDONLY)
backwards = MPI.INT.Create_indexed([1, 2], [3, 0]).Commit()
file.Set_view(0, MPI.INT, backwards)
some = np.full(6, -1, "i4")
file.Read_at_all(0, some)
file.Set_view(0, MPI.INT)
first = np.full(8, -1, "i4")
file.Read_at_all(0, first)
assert (some == first[[3, 0, 1, 7, 4, 5]]).all()
file.Close()
if rank == 0:
    print("done")
"""


MANY_COMMUNICATORS = """
import sys
import numpy as np
from mpi4py import MPI

world, name = MPI.COMM_WORLD, sys.argv[1]

def use(comm, name):
    file = MPI.File.Open(comm, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    step = MPI.INT.Create_vector(100, 1, comm.size).Create_resized(0, 400 * comm.size).Commit()
    file.Set_view(4 * comm.rank, MPI.INT, step)
    data = np.arange(100, dtype="i4") * comm.size + comm.rank
    file.Write_all(data)
    file.Seek(0)
    found = np.full(100, -1, "i4")
    file.Read_all(found)
    assert (found == data).all()
    return file

for turn in range(12):
    one = world.Dup()
    part = world.Split(world.rank % (1 + turn % 3), -world.rank)
    files = [use(one, name), use(part, f"{name}-{turn % 3}-{world.rank % (1 + turn % 3)}")]
    if turn % 2:
        one.Free()  # before its file is closed
        part.Free()
    for file in files:
        file.Close()
    if turn % 2 == 0:
        part.Free()
        one.Free()
world.Barrier()
if world.rank == 0:
    print("done")
"""


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of this environment to its end."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def under(*command: object, cwd: Path, report: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a command under `penstock mpiio`, which must succeed."""
    options = ["--report"] if report else []
    done = run(BIN / "penstock", "mpiio", *options, "--", *command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_file_of_the_operating_system(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "job.py").write_text(JOB)
    job = ["mpiexec", "-n", ranks, sys.executable, "job.py", "data.bin"]
    assert under(*job, cwd=tmp_path).stdout == "done\n"
    assert os.listdir(tmp_path) and not [name for name in os.listdir(tmp_path) if "shfp" in name]


@pytest.mark.parametrize("ranks", [1, 4])
def test_communicators_that_come_and_go(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "job.py").write_text(MANY_COMMUNICATORS)
    job = ["mpiexec", "-n", ranks, sys.executable, "job.py", "data.bin"]
    assert under(*job, cwd=tmp_path).stdout == "done\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_file_of_standing_servers(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "penstock", "serve", "s.vol"]
    server = subprocess.Popen(command, cwd=tmp_path)
    try:
        socket, begun = tmp_path / "s.vol/penstock.sock", time.monotonic()
        while not socket.exists():
            assert server.poll() is None and time.monotonic() < begun + LIMIT
            time.sleep(0.01)
        name = f"unix://{socket}:/data"
        job = ["mpiexec", "-n", ranks, sys.executable, "job.py", name]
        assert under(*job, cwd=tmp_path).stdout == "done\n"
        with ps.FileSystem(f"unix://{socket}") as fs:
            assert fs.stat("/data").size == 12000 * ranks + 400
    finally:
        server.terminate()
        server.wait(timeout=LIMIT)


def test_the_page(tmp_path: Path) -> None:
    """The program of the page runs as the page says, and is reported as the page shows."""
    page = (DOCS / "mpi-io.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "program.py").write_text(program)
    done = under("mpiexec", "-n", 4, sys.executable, "program.py", cwd=tmp_path, report=True)
    found = np.fromfile(tmp_path / "mesh.bin", "f8").reshape(64, 64)
    assert (found == np.kron([[0, 1], [2, 3]], np.ones((32, 32)))).all()
    [shown] = re.findall(r"^```text\n(penstock: .*?)^```$", page, re.DOTALL | re.MULTILINE)

    def without_times(text: str) -> str:
        return re.sub(r"\d+\.\d{3} s|\d+ MiB/s|rank is \d+|fastest \d+", "", text)

    assert without_times(done.stderr) == without_times(shown)


def test_the_path_of_the_library(tmp_path: Path) -> None:
    printed = run(BIN / "penstock", "mpiio", cwd=tmp_path)
    assert Path(printed.stdout.strip()).name == "libpenstock_mpiio.so"
    refused = run(BIN / "penstock", "mpiio", "--", "no-such-program", cwd=tmp_path)
    assert refused.returncode == 1 and "no-such-program" in refused.stderr
