"""Local arrays of unusual forms, dedicated servers, and the MPI module of another MPI."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from fortran_programs import COMPILERS, run

PROGRAMS = Path(__file__).parent / "programs"
MPIS = ["mpich", "openmpi"]


def known(mpi: str) -> str:
    """An MPI that has a compiler here, or the test is skipped."""
    if mpi != "mpich" and shutil.which(COMPILERS[mpi]) is None:
        pytest.skip(f"there is no {COMPILERS[mpi]}")
    return mpi


@pytest.mark.parametrize("mpi", MPIS)
def test_unusual_memory(build, tmp_path, mpi):
    run(
        build.program(PROGRAMS / "shapes_of_memory.f90", known(mpi)),
        tmp_path / "s",
        ranks=1,
        mpi=mpi,
    )
    group = zarr.open_group(tmp_path / "s", mode="r")
    values = np.arange(1, 13).reshape(3, 4) * 1.5
    for name in ("mass", "real", "vectors", "bounds", "unknown"):
        np.testing.assert_array_equal(group[name][...], values, name)
    np.testing.assert_array_equal(group["imaginary"][...], -values)
    np.testing.assert_array_equal(group["expression"][...], 2 * values)
    np.testing.assert_array_equal(group["pointer"][...], values[::-1, ::-1])


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(("ranks", "servers"), [(2, 1), (5, 2)])
def test_dedicated_servers(build, tmp_path, ranks, servers, mpi):
    program = build.program(PROGRAMS / "dedicated.f90", known(mpi))
    said = run(program, tmp_path / "s", servers, ranks=ranks, mpi=mpi)
    clients = ranks - servers
    assert said == [str(clients)]
    stored = zarr.open_group(tmp_path / "s", mode="r")["u"][...]
    np.testing.assert_array_equal(stored, np.arange(37) % clients)
