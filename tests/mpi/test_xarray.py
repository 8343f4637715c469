"""Data sets whose parts are on ranks, written as one store."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import xarray as xr
from data_sets import a_bit_of_everything, of_netcdf
from helpers import caught
from mpihelpers import TRANSPORTS

import penstock as ps
import penstock.xarray

ENGINE = penstock.xarray.Backend


@pytest.fixture(autouse=True)
def quiet():
    """xarray warns of times that it stores as numbers with a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def cut(extent: int, pieces: int, piece: int) -> slice:
    return slice(extent * piece // pieces, extent * (piece + 1) // pieces)


def whole(form: str) -> xr.Dataset:
    made = a_bit_of_everything()
    made["moment"] = ("x", made.time.values[0] + np.arange(7) ** 3 * np.timedelta64(3601, "s"))
    return of_netcdf(made) if form == "nc" else made


def region_of(mpi, made: xr.Dataset, rows: int) -> dict[str, slice]:
    """This rank's part, on a mesh with that number of rows; some parts may be empty."""
    columns = mpi.size // rows
    row, column = divmod(mpi.rank, columns)
    if row >= rows:
        row, column = rows - 1, columns  # beyond the mesh: nothing
    along = {"y": cut(made.sizes["y"], rows, row), "x": cut(made.sizes["x"], columns, column)}
    return along if column < columns else {"y": slice(0, 0), "x": slice(0, 0)}


def look(mpi, path, made: xr.Dataset) -> None:
    """All who can open a store find the data set in it."""
    mpi.Barrier()
    if mpi.rank == 0:
        xr.testing.assert_identical(xr.open_dataset(path, engine=ENGINE).load(), made)
        engines = {".zarr": ["zarr"], ".nc": ["netcdf4", "h5netcdf"]}.get(path.suffix, [])
        for engine in engines:
            with xr.open_dataset(path, engine=engine) as theirs:
                xr.testing.assert_identical(theirs.load(), made)
        assert [name for name in os.listdir(path.parent) if name.startswith(".")] == []
    mpi.Barrier()


@pytest.mark.parametrize("form", ["zarr", "nc", "h5"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("is_told", [False, True], ids=["found", "told"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_parts_of_ranks(mpi, place, form, rows, is_told, transport):
    made = whole(form)
    part = region_of(mpi, made, min(rows, mpi.size))
    starts = {dim: each.start for dim, each in part.items()} if is_told else None
    made.isel(part).penstock.write(
        place / f"run.{form}",
        comm=mpi,
        parts=starts,
        chunks={"x": 3, "y": 2},
        sync=False,
        transport=transport,
    )
    look(mpi, place / f"run.{form}", made)


@pytest.mark.parametrize(("form", "codec"), [("zarr", None), ("nc", None), ("nc", "deflate:1")])
def test_pieces_and_regions(mpi, place, form, codec):
    """What is not in memory is read by each rank in pieces; then ranks change regions."""
    made = whole(form)
    if mpi.rank == 0:
        made.penstock.write(place / "made.zarr", chunks={"x": 2})
    mpi.Barrier()
    read = xr.open_dataset(place / "made.zarr", engine=ENGINE)
    part = region_of(mpi, made, 1)
    path = place / f"run.{form}"
    read.isel(part).penstock.write(
        path, comm=mpi, memory=100, chunks={"x": 3}, codec=codec, mode="w"
    )
    look(mpi, path, made)
    for where in ("auto", {"x": part["x"], "y": slice(None)}):
        change = (made[["u"]] + 1).isel(part).drop_vars(["label", "height", "time", "y"])
        change = change if where == "auto" else change.drop_vars("x")
        change.penstock.write(path, comm=mpi, region=where, memory=200)
        changed = made.assign(u=made.u + 1).u.values
        mpi.Barrier()
        opened = xr.open_dataset(path, engine=ENGINE)
        assert (opened.u.values == changed).all()
        mpi.Barrier()
        made.isel(part).drop_vars([n for n in made.variables if n != "u"]).penstock.write(
            path, comm=mpi, region={"x": part["x"]}
        )


def test_all_ranks_hear_what_is_wrong(mpi, place):
    made = whole("zarr")
    part = made.isel(region_of(mpi, made, 1))
    is_last = mpi.rank == mpi.size - 1
    alone = mpi.size == 1
    wrong = [
        (part.drop_vars("x"), {}, ps.SchemaError, "no index coordinate", not alone),
        (part.assign(single=mpi.rank), {}, ps.MismatchError, "different values", not alone),
        (part.drop_vars("u") if is_last else part, {}, ps.MismatchError, "other var", not alone),
        (part.assign_attrs(title=mpi.rank), {}, ps.MismatchError, "attributes", not alone),
        (part, {"memory": 1000 + mpi.rank}, ps.MismatchError, "other options", not alone),
        # Parts of one extent that all begin at 0 are taken for replicas.
        (part, {"parts": {"x": 0}}, ps.Error, "overlap|leave|different values", not alone),
        (part, {"parts": {"z": 0}} if is_last else {}, ps.SchemaError, "'z'", True),
        (part, {"mode": "x"} if is_last else {}, ps.SchemaError, "mode", True),
        (part, {"codec": "nonsense"}, ps.SchemaError, "codec", True),
        (part, {"dedicated": True}, ps.SchemaError, "dedicated", True),
        (part.assign(s="text") if is_last else part.assign(s=1), {}, ps.Error, "", True),
    ]
    for dataset, options, kind, words, fails in wrong:
        if not fails:
            continue
        met = caught(
            lambda d=dataset, o=options: d.penstock.write(place / "run.zarr", comm=mpi, **o)
        )
        everywhere = mpi.allgather((type(met).__name__, str(met)))
        assert isinstance(met, kind) and len(set(everywhere)) == 1, everywhere
        assert not words or any(word in str(met) for word in words.split("|")), met
        assert os.listdir(place) == []
        mpi.Barrier()
    part.penstock.write(place / "run.zarr", comm=mpi)
    met = caught(lambda: part.penstock.write(place / "run.zarr", comm=mpi))
    assert isinstance(met, ps.ExistsError)
    look(mpi, place / "run.zarr", made)
