"""What docs/xarray.md shows is run here: by one process, and as a job of three ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

import penstock.xarray

PAGE = (Path(__file__).parent.parent / "docs" / "xarray.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
BY_NAME = 'engine="penstock"'


def of_this_class(block: str) -> str:
    """The engine by its class, which is there where the package is not installed, too."""
    return block.replace(BY_NAME, "engine=penstock.xarray.Backend")


def test_the_page_without_mpi(tmp_path, monkeypatch):
    pytest.importorskip("dask")
    monkeypatch.chdir(tmp_path)
    program = [of_this_class(block) for block in BLOCKS if "mpi4py" not in block]
    assert len(program) == 5
    exec(compile("\n".join(program), "docs/xarray.md", "exec"), {"__name__": "page"})


def test_the_job_of_the_page(tmp_path):
    (job,) = (block for block in BLOCKS if "mpi4py" in block)
    (tmp_path / "job.py").write_text(
        f"import numpy as np, xarray as xr, penstock.xarray\n{of_this_class(job)}"
    )
    mpiexec = Path(sys.executable).with_name("mpiexec")
    subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "job.py"], cwd=tmp_path, check=True, timeout=600
    )
    found = xr.open_dataset(tmp_path / "job.zarr", engine=penstock.xarray.Backend)
    assert found.u.mean("x").values.tolist() == [0.0] * 10 + [1.0] * 10 + [2.0] * 10


POOL = """
import numpy as np
import xarray as xr
from mpi4py.futures import MPIPoolExecutor

import penstock.xarray


def task(first):
    part = xr.Dataset({"u": ("x", np.arange(first, first + 7))})
    part.penstock.write("run.zarr", region={"x": slice(first, first + 7)})


if __name__ == "__main__":
    whole = xr.Dataset({"u": ("x", np.full(70, -1))})
    whole.penstock.write("run.zarr", chunks={"x": 20})
    with MPIPoolExecutor() as pool:
        list(pool.map(task, range(0, 70, 7)))
"""


def test_workers_of_mpi4py_futures_write_regions(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", "4", sys.executable, "-m", "mpi4py.futures", "pool.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    found = xr.open_dataset(tmp_path / "run.zarr", engine=penstock.xarray.Backend)
    assert found.u.values.tolist() == list(range(70))
