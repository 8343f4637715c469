"""Sessions without MPI: of one process, and of threads. Copies, checks, descriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from fortran_programs import run

PROGRAM = Path(__file__).parent / "programs/embedded.f90"


def test_without_mpi(build, tmp_path):
    run(build.program(PROGRAM, mpi=None), tmp_path / "store")
    group = zarr.open_group(tmp_path / "store", mode="r")
    u = group["u"]
    numbers = np.arange(1, 61, dtype="f4").reshape(5, 4, 3)
    np.testing.assert_array_equal(u[...], numbers)
    assert u.metadata.dimension_names == ("depth", "y", "x")
    assert dict(u.attrs) == {"units": "m", "more": 1} and u.fill_value == 2.5
    np.testing.assert_array_equal(group["one"][...], [8])
    np.testing.assert_array_equal(group["t"][...], np.arange(1, 11))

    copy = zarr.open_group(f"{tmp_path}/store.copy", mode="r")["u"]
    assert copy.chunks == (1, 2, 3)
    np.testing.assert_array_equal(copy[...], numbers)
    named = zarr.open_group(f"{tmp_path}/store.named", mode="r")["u"]
    assert named.chunks == (5, 2, 1)
    np.testing.assert_array_equal(named[...], numbers)
