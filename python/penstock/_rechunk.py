"""Stores with other chunks, for users of xarray."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock._errors import ExistsError, error_of, schema_error, type_name
from penstock._stores import copy
from penstock._types import Path

if TYPE_CHECKING:
    from xarray import Dataset


def rechunk(
    source: Dataset | Path,
    target: Path,
    *,
    chunks: Mapping[str, Any],
    codec: str | None = None,
    memory: int = _core.COPY_MEMORY_BYTES,
    overwrite: bool = False,
    drop_variables: str | Iterable[str] | None = None,
) -> Dataset:
    """Store a data set with other chunks, out of core, and open the result.

    Parameters
    ----------
    source : xarray.Dataset or path
        The data set, or a store as of `xarray.open_dataset(engine="penstock")`.
    target : path
        What is made of it: a Zarr group, or an HDF5 or NetCDF-4 file, by its suffix.
    chunks : mapping
        Extents of chunks by dimension, such as `{"time": 1, "x": 100}`, of all variables, or by
        variable, as a tuple or a mapping by dimension; None or -1 is all of a dimension. What is
        not said is as in the source.
    codec : str, optional
        As of `Chunks`, or the filters of `HDF5`. Default: the source's where that is a path and the
        target a Zarr group; otherwise `zstd` in Zarr, and none in HDF5.
    memory : int
        Bytes that it may take. Default: 256 MiB.
    overwrite : bool
        Whether what is at the target is replaced.
    drop_variables : str or iterable of str, optional
        Variables that are not opened, such as those of strings. Where a data set is written, they
        are not written either.

    Returns
    -------
    xarray.Dataset
        The result, by the engine `penstock`; with dask's arrays, one chunk each, where dask is.

    Raises
    ------
    Error
        Of the kind that fits. What stood at `target` is then as it was.

    Notes
    -----
    Not collective. A Zarr group at a path is copied as `copy` does it, with all that is in it, in
    an order that reads each chunk at most twice. A data set, an HDF5 file, chunks that differ by
    variable, and a target in HDF5 go through `Dataset.penstock.write`: pieces of the target's
    chunks are read, or computed, one after the other.
    """
    import xarray

    from penstock._xarray_store import is_hdf5
    from penstock._xarray_target import form_of, is_there
    from penstock.xarray import Backend

    if not isinstance(chunks, Mapping):
        raise schema_error(f"chunks are a mapping of names, not {type_name(chunks)}")
    dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
    place = os.fspath(target)
    by_dimension = all(isinstance(extent, int | None) for extent in chunks.values())
    is_copied = by_dimension and form_of(place) == "zarr"
    if not isinstance(source, xarray.Dataset) and is_copied and not is_hdf5(os.fspath(source)):
        if not overwrite and is_there(place):
            cause = "something is there: overwrite=True replaces it"
            raise error_of(ExistsError.kind, cause, place)
        extents = {str(name): extent for name, extent in chunks.items()}
        copy(source, place, chunks=extents, codec=codec, memory=memory, overwrite=overwrite)
    else:
        if isinstance(source, xarray.Dataset):
            dataset = source.drop_vars(dropped, errors="ignore")
        else:
            dataset = xarray.open_dataset(source, engine=Backend, drop_variables=dropped)
        mode = "w" if overwrite else "w-"
        dataset.penstock.write(place, mode=mode, chunks=chunks, codec=codec, memory=memory)
    lazily: dict[str, int] | None = {} if importlib.util.find_spec("dask") else None
    return xarray.open_dataset(place, engine=Backend, chunks=lazily, drop_variables=dropped)
