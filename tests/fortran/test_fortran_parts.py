"""Boxes, regions, lists, arrays that stay open, and files of other formats."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from fortran_programs import COMPILERS, run

PROGRAM = Path(__file__).parent / "programs/parts.f90"
NUMBERS = np.arange(1, 121).reshape(10, 12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 12])
def test_parts_of_arrays(build, tmp_path, ranks):
    check(build, tmp_path, ranks, "mpich")


@pytest.mark.parametrize("ranks", [1, 3])
def test_parts_of_arrays_with_open_mpi(build, tmp_path, ranks):
    if shutil.which(COMPILERS["openmpi"]) is None:
        pytest.skip("there is no Open MPI for Fortran")
    check(build, tmp_path, ranks, "openmpi")


def check(build, tmp_path, ranks, mpi):
    """Runs the program, and reads what it has written."""
    run(build.program(PROGRAM, mpi), tmp_path / "store", ranks=ranks, mpi=mpi)
    group = zarr.open_group(tmp_path / "store", mode="r")

    u = NUMBERS.copy()
    u[3:6, 2:6] += 1000
    np.testing.assert_array_equal(group["u"][...], u)
    v = NUMBERS.copy()
    v[range(10), range(10)] = -np.arange(1, 11)
    np.testing.assert_array_equal(group["v"][...], v)
    assert group["v"].shards == (3, 4) and group["v"].chunks == (3, 2)
    w = NUMBERS.copy()
    w[1] += 3000
    w.ravel()[:ranks] = 2000 + np.arange(ranks)
    np.testing.assert_array_equal(group["w"][...], w)
    assert group["w"].fill_value == -5

    copied = zarr.open_group(f"{tmp_path}/store.copied", mode="r")["other"]
    np.testing.assert_array_equal(copied[...], v)
    assert copied.shards == (5, 6) and copied.chunks == (5, 3)

    np.testing.assert_array_equal(np.load(f"{tmp_path}/store.npy"), NUMBERS)
    np.testing.assert_array_equal(np.fromfile(f"{tmp_path}/store.raw", "<i8"), NUMBERS.ravel())
    with h5py.File(f"{tmp_path}/store.h5") as file:
        np.testing.assert_array_equal(file["of/fortran"][...], NUMBERS)
    with netCDF4.Dataset(f"{tmp_path}/store.nc") as file:
        np.testing.assert_array_equal(file["r"][...], NUMBERS)
        assert file["r"].chunking() == [3, 4] and file["r"].filters()["shuffle"]
    parts = Path(f"{tmp_path}/store.parts").iterdir()
    files = sorted(path for path in parts if path.suffix != ".json")
    assert len(files) == 3
    together = b"".join(path.read_bytes() for path in files)
    assert together == NUMBERS.astype("<i8").tobytes()
