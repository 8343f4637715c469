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
    pytest.importorskip("netCDF4")
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
        [mpiexec, "-n", "3", sys.executable, "job.py"], cwd=tmp_path, check=True, timeout=120
    )
    found = xr.open_dataset(tmp_path / "job.zarr", engine=penstock.xarray.Backend)
    assert found.u.mean("x").values.tolist() == [0.0] * 10 + [1.0] * 10 + [2.0] * 10
