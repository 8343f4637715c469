"""Parallel files from Fortran, and what Python finds in the volume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fortran_programs import run

import penstock as ps

PROGRAM = Path(__file__).parent / "programs/parallel_files.f90"
RECORDS = 12


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_parallel_files(build, tmp_path, ranks):
    said = run(build.program(PROGRAM), tmp_path, ranks=ranks)
    assert len(said) == ranks and len(set(said)) == 1, said
    columns = np.arange(ranks)[:, None] * 1000 + np.arange(RECORDS)
    with ps.FileSystem(tmp_path / "volume") as fs:
        with fs.attach("/some/file") as file:
            assert (file.cells, file.bsu) == (ranks, 8)
            for rank in range(ranks):
                cell = file.open(ps.View(hn=ranks), rank)
                np.testing.assert_array_equal(np.frombuffer(cell.read(1000), "<i8"), columns[rank])
        assert fs.stat("/some/file").mode & 0o777 == 0o640
        with fs.attach("/imported") as file:
            assert (file.cells, file.bsu) == (3, 16)
    in_order = columns.T.ravel()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "all", "<i8"), in_order)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "last", "<i8"), columns[-1])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "again", "<i8"), columns[-1])
