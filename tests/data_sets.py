"""Data sets for the tests of xarray."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from helpers import DTYPES


def a_bit_of_everything() -> xr.Dataset:
    """All element types, and all that xarray decodes."""
    rng = np.random.default_rng(3)
    data = {
        f"of_{dtype.strip('?') or 'bool'}": (("y", "x"), rng.integers(0, 2, (5, 7)).astype(dtype))
        for dtype in DTYPES
    }
    whole = xr.Dataset(
        {
            **data,
            "u": (("time", "y", "x"), rng.random((4, 5, 7)), {"units": "K", "levels": [1, 2]}),
            "packed": ("x", np.array([1, np.nan, 3, 4, 5, 6, 7])),
            "late": ("x", np.arange(7) * np.timedelta64(90, "s")),
            "when": ("x", np.array(["2001-01-01", "NaT"] * 3 + ["1999-05-05T12:00"], "M8[ns]")),
            "single": ((), 3),
            "nothing": ("none", np.zeros(0, "f4")),
        },
        coords={
            "time": pd.date_range("2000-01-01", periods=4),
            "y": np.arange(5.0)[::-1],
            "x": np.arange(7) * 10,
            "label": ("y", np.arange(5) * 2),
            "height": ((), 2.5),
        },
        attrs={"title": "a bit of everything", "versions": [1, 2]},
    )
    whole.packed.encoding = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1, "_FillValue": -9}
    return whole


SPARED = ("of_i2", "of_i4", "of_i8", "of_u1", "of_u2", "of_u4", "of_f2", "of_f8", "of_c8")


def of_few_types(dataset: xr.Dataset) -> xr.Dataset:
    """The same without element types that are much like others: for tests that ask more of shapes
    and pieces than of types, since every variable takes its time."""
    return dataset.drop_vars(SPARED, errors="ignore")


def of_netcdf(dataset: xr.Dataset) -> xr.Dataset:
    """What a NetCDF-4 file has types for."""
    return dataset.drop_vars(["of_f2", "of_c8", "of_c16"])
