"""Where the bytes of an access to a parallel file are, by the naive model of views."""

from __future__ import annotations

import numpy as np
from test_files import Model

import penstock as ps
from penstock._files import Order


def places_of(
    shape: tuple[int, int], opened: tuple[ps.View, int, Order], offset: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The cell of each byte of an access, which may be a ghost, and the byte's place in the cell.

    The file has `shape`, cells and bytes of a BSU. A subfile of it is seen through a view, in an
    order. All BSUs of some rows are gone through, as `Model.places` does one by one.
    """
    (cells, bsu), (view, subfile, order) = shape, opened
    groups, height = -(-cells // (view.hbs * view.hn)), view.vbs * view.vn
    in_band = groups * view.vbs * view.hbs  # the BSUs that the subfile has in `height` rows
    bands = (offset + count) // (bsu * in_band) + 1
    i, j = np.mgrid[: groups * view.hbs * view.hn, : bands * height].reshape(2, -1)
    numbered = Model(cells, bsu).numbers(view, order, i, j)  # type: ignore[arg-type]
    owner, number = map(np.asarray, numbered)
    is_own = owner == subfile
    place_of = np.empty((2, bands * in_band), np.int64)
    place_of[:, number[is_own]] = i[is_own], j[is_own]
    units, within = np.divmod(np.arange(offset, offset + count), bsu)
    cell, row = place_of[:, units]
    at = row * bsu + within
    by_cell = np.lexsort((at, cell)) if order == "column" else slice(None)
    return cell[by_cell], at[by_cell]
