"""Groups from Fortran: timesteps, checkpoints, restarts on other ranks, particles, coordinates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from fortran_programs import run

PROGRAM = Path(__file__).parent / "programs/through_time.f90"


@pytest.mark.parametrize("way", ["whole", "split"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (3, 1), (8, 2)])
def test_a_group_through_time(build, tmp_path, before, after, way):
    program, store = build.program(PROGRAM), tmp_path / "sim.zarr"
    run(program, store, 1, 2, way, ranks=before)
    run(program, store, 3, 4, way, ranks=after)
    group = zarr.open_group(store, mode="r")
    assert group.attrs["title"] == "a group from Fortran"
    np.testing.assert_array_equal(group["time"][...], [0.25, 0.5, 0.75, 1.0])
    assert group["time"].attrs["long_name"] == "step"
    j, i = np.mgrid[1:5, 1:7]
    steps = np.arange(1, 5)
    u = 1000 * steps[:, None, None] + i + 100 * j
    np.testing.assert_array_equal(group["u"][...], u)
    assert group["u"].metadata.dimension_names == ("time", "y", "x")
    assert group["u"].attrs["units"] == "K" and group["u"].chunks == (1, 4, 3)
    flags = (steps[:, None] + np.arange(1, 5)) % 2 == 0
    np.testing.assert_array_equal(group["flags"][...], flags)
    np.testing.assert_array_equal(group["x"][...], np.arange(6) + 0.5)
    assert group["x"].attrs["units"] == "m"
    np.testing.assert_array_equal(group["area"][...], np.arange(1, 25, dtype="u4").reshape(4, 6))
    assert group["area"].dtype == np.uint32
    assert group["area"].metadata.dimension_names == ("y", "x")
    assert list(group["side"][...]) == ["south", "", "mid", "north"]
    counts = [4 + 3 * step for step in steps]
    rows = np.concatenate(
        [
            np.column_stack(
                [np.full(count, step), np.arange(count) + 1, (np.arange(count) + 1) / 2]
            )
            for step, count in zip(steps, counts, strict=True)
        ]
    )
    np.testing.assert_array_equal(group["particles"][...], rows)
