"""Arrays that are stored with another dtype than memory has."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import Dealt, caught, local_of, ramp

import penstock as ps

PAIRS = [
    (np.dtype(given), np.dtype(stored))
    for given, stored in itertools.product(
        ["b1", "i4", "u8", "f2", "f4", "f8", "c8", "c16"], repeat=2
    )
]


@pytest.mark.parametrize(("given", "stored"), PAIRS, ids=str)
def test_what_numpy_casts_is_stored(place: Path, given: np.dtype, stored: np.dtype) -> None:
    held = Dealt("BLOCK,CYCLIC", (2, 2))
    whole = (ramp((7, 9)) * 3).astype(given)
    is_fit = np.can_cast(given, stored, "same_kind")

    def main(s: ps.Session) -> object:
        u = ps.Array("u", whole.shape, given, held.memory(s.rank), ps.Chunks((4, 4)))
        local = local_of(u, held, s.rank, "F", whole)
        before = local.view.copy()

        def call() -> ps.Report:
            return s.write(place / "u", u, local.view, dtype=stored)

        if not is_fit:
            return caught(call)
        report = call()
        assert np.array_equal(local.view, before)
        return report.bytes

    said = ps.run(main, 4, sync=False)
    if not is_fit:
        for error in said:
            assert isinstance(error, ps.SchemaError) and "cannot be stored as" in str(error)
        assert not list(place.iterdir())
        return
    assert set(said) == {whole.size * stored.itemsize}
    there = zarr.open_group(place / "u", mode="r")["u"]
    assert there.dtype == stored
    np.testing.assert_array_equal(there[...], whole.astype(stored))


def test_regions_attributes_and_fill_values(place: Path) -> None:
    whole = ramp((12,))
    with ps.Session(sync=False) as s:
        u = ps.Array("u", (12,), "f8", fill_value=-1)
        s.write(place / "u", u, whole[3:6], {"units": "m"}, region=slice(3, 6), dtype="f4")
        there = zarr.open_group(place / "u", mode="r")["u"]
        expected = np.full(12, -1, "f4")
        expected[3:6] = whole[3:6]
        np.testing.assert_array_equal(there[...], expected)
        assert there.attrs["units"] == "m" and there.dtype == "f4"
        s.write(place / "f", ps.Array("f", (12,), "f8", disk=ps.RowMajor("npy")), whole, dtype="f2")
    np.testing.assert_array_equal(np.load(place / "f"), whole.astype("f2"))


def test_what_is_no_dtype_or_no_part_is_refused(place: Path) -> None:
    with ps.Session() as s:
        u = ps.Array("u", (3,), "f8")
        for dtype, local, cause in (
            ("x9", np.zeros(3), "is no dtype"),
            ("f4", np.zeros(3, "f4"), "is of float32"),
            ("i4", np.zeros(3), "cannot be stored as int32"),
            ([("a", "f8")], np.zeros(3), "cannot be stored as"),
        ):
            error = caught(lambda d=dtype, part=local: s.write(place / "u", u, part, dtype=d))
            assert isinstance(error, ps.SchemaError) and cause in str(error), error
    assert not list(place.iterdir())
