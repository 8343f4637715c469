"""Sets of references that VirtualiZarr makes, and its virtual chunks in Icechunk repositories."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import same_bits

import penstock as ps
from penstock.xarray import Backend

pytest.importorskip("virtualizarr")
icechunk = pytest.importorskip("icechunk")

from obspec_utils.registry import ObjectStoreRegistry  # noqa: E402
from obstore.store import LocalStore  # noqa: E402
from virtualizarr import open_virtual_dataset  # noqa: E402
from virtualizarr.parsers import HDFParser  # noqa: E402

icechunk.set_logs_filter("error")


def piece(number: int) -> xr.Dataset:
    """The data set of one file."""
    shape = (2, 6, 5)
    u = np.arange(60.0).reshape(shape) + 60 * number
    coordinates = {"time": np.arange(2) + 2 * number, "y": np.arange(6)}
    variables = {"u": (("time", "y", "x"), u), "v": (("time", "x"), -u[:, 0].astype("f4"))}
    return xr.Dataset(variables, coordinates, {"title": "virtual"})


@pytest.fixture
def virtual(tmp_path: Path) -> xr.Dataset:
    """Three files as one data set, which has no elements of its own but coordinates."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr-python warns of codecs that are not in the standard
        for number in range(3):
            path = tmp_path / f"piece-{number}.nc"
            encoding = {"u": {"chunksizes": (1, 4, 3), "zlib": True, "shuffle": True}}
            piece(number).to_netcdf(path, engine="h5netcdf", encoding=encoding)
            url = f"file://{path}"
            parts.append(
                open_virtual_dataset(url, registry, HDFParser(), loadable_variables=["time", "y"])
            )
        return xr.concat(parts, dim="time", coords="minimal", compat="override")


def whole() -> xr.Dataset:
    return xr.concat([piece(number) for number in range(3)], dim="time")


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_references(virtual: xr.Dataset, form: str, tmp_path: Path):
    path = tmp_path / f"references.{form}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        virtual.vz.to_kerchunk(str(path), format=form)
    assert ps.verify(path).damages == ()
    opened = xr.open_dataset(path, engine=Backend).load()
    for name in ("u", "v", "time", "y"):
        assert same_bits(opened[name].values, whole()[name].values), name
    ps.copy(path, tmp_path / "copy.zarr", chunks={"time": 6, "y": 2, "x": 5})
    found = zarr.open_group(tmp_path / "copy.zarr", mode="r")
    assert same_bits(found["u"][...], whole().u.values)
    assert found["u"].chunks == (6, 2, 5)


def test_virtual_chunks_of_a_repository(virtual: xr.Dataset, tmp_path: Path):
    """Icechunk fetches them, and Penstock reads them as any others."""
    files = icechunk.VirtualChunkContainer(
        f"file://{tmp_path}/", icechunk.local_filesystem_store(str(tmp_path))
    )
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(files)
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    allowed = icechunk.containers_credentials({f"file://{tmp_path}/": None})
    repo = icechunk.Repository.create(
        storage, config=config, authorize_virtual_chunk_access=allowed
    )
    session = repo.writable_session("main")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        virtual.vz.to_icechunk(session.store, group="a")
    session.commit("references")
    store = ps.Icechunk(repo)
    for servers in (1, 2):
        with ps.Session(servers=servers) as s:
            u = s.open(store / "a", "u")
            assert same_bits(s.read(store / "a", u), whole().u.values)
            assert same_bits(
                s.read(store / "a", u, region=np.s_[1:5, 2:4, 1:3]), whole().u.values[1:5, 2:4, 1:3]
            )
    ps.copy(store / "a", tmp_path / "copy.zarr", chunks={"time": 6, "y": 2, "x": 5})
    found = zarr.open_group(tmp_path / "copy.zarr", mode="r")
    assert same_bits(found["u"][...], whole().u.values)
    ps.copy(store / "a", store / "real", arrays=["u"])
    now = zarr.open_group(repo.readonly_session("main").store, mode="r")
    assert same_bits(now["real/u"][...], whole().u.values)
