"""What stands at a path, as xarray's variables: the reading half of the engine `penstock`.

A stored array keeps nothing open. Each read opens a session of its own, describes the array anew,
and reads its region in one call, so that threads and processes need no lock between them, and a
pickle holds nothing but a path and a name.
"""

from __future__ import annotations

import asyncio
import os
import struct
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from xarray import Variable
from xarray.backends import AbstractDataStore, BackendArray
from xarray.core import indexing

from penstock._errors import BusyError, DamagedError, error_of
from penstock._records import dtype_of
from penstock._seats import alone
from penstock._session import Session
from penstock._stores import info
from penstock._xarray_index import Region, outer, vectorized

FILL = "_FillValue"
Described = Mapping[str, Any]


class StoredArray(BackendArray):
    """A stored array is read when it is indexed.

    Parameters
    ----------
    path, name : str and str or None
        The array, as `Session.open` finds it.
    shape : tuple of int
        Its extents. It may grow later, as an array of a group does with each timestep.
    dtype : numpy.dtype
        Its type.
    """

    __slots__ = ("_name", "_path", "dtype", "shape")

    def __init__(
        self, path: str, name: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._path, self._name = path, name
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        pick = vectorized if isinstance(key, indexing.VectorizedIndexer) else outer
        with alone(), Session() as session:
            array = session.open(self._path, self._name)
            self._check(array.shape, array.dtype)

            def read(region: Region) -> np.ndarray:
                return session.read(self._path, array, region=region)

            return pick(key.tuple, self.shape, array.shape, read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return await asyncio.to_thread(self.__getitem__, key)

    def _check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Refuse an array that is no longer what was opened, but for having grown."""
        is_alike = dtype == self.dtype and len(shape) == len(self.shape)
        if not is_alike or any(now < then for now, then in zip(shape, self.shape, strict=True)):
            cause = (
                f"the array was of shape {list(self.shape)} and type {self.dtype} when it was "
                f"opened, and is of shape {list(shape)} and type {dtype} now"
            )
            raise error_of(BusyError.kind, cause, os.path.join(self._path, self._name or ""))


class Store(AbstractDataStore):
    """A store is a group with its arrays, or an array alone, as xarray's variables.

    Parameters
    ----------
    path : path
        As of `ls`.
    group : str, optional
        The path of a group in it.
    dropped : collection of str
        Names of variables that nobody wants.
    wanted : collection of str, optional
        Names of variables that must be readable. Default: all.

    Raises
    ------
    MissingError
        When nothing is there.
    Error
        Of the kind that fits, when a variable that is not dropped cannot be read.
    """

    __slots__ = ("_attrs", "_variables")

    def __init__(
        self,
        path: str,
        group: str | None = None,
        dropped: Collection[str] = (),
        wanted: Collection[str] | None = None,
    ) -> None:
        place, file = _place(path, group)
        described = info(place)
        for about in described["unreadable"]:
            name = about["path"]
            is_wanted = name not in dropped and (wanted is None or name in wanted)
            if "/" not in name and is_wanted:
                cause = f"{about['cause']}: drop_variables={name!r} leaves it out"
                raise error_of(about["kind"], cause, os.path.join(place, name))
        here = [about for about in described["arrays"] if "/" not in about["path"]]
        scales = {name for about in here for name in about["dimension_names"] or ()}
        self._variables = {
            about["name"]: _variable(place, file, about, scales)
            for about in here
            if about["name"] not in dropped
        }
        roots = [about["attributes"] for about in described["groups"] if about["path"] == ""]
        attrs = roots[0] if roots else {}
        self._attrs = _hdf5_attributes(attrs) if file is not None else dict(attrs)

    def get_variables(self) -> Mapping[str, Variable]:
        return self._variables

    def get_attrs(self) -> Mapping[str, Any]:
        return self._attrs

    def get_dimensions(self) -> dict[str, int]:
        return {str(d): n for var in self._variables.values() for d, n in var.sizes.items()}


def groups_of(path: str, group: str | None) -> list[str]:
    """The paths of a group and of all groups in it, but for those that Penstock needs itself."""
    described = info(_place(path, group)[0])
    paths = [about["path"] for about in described["groups"]]
    return sorted(each for each in paths if not each.startswith("."))


def _place(path: str, group: str | None) -> tuple[str, str | None]:
    """Where a group is, and the HDF5 file in which it is, if any."""
    within = (group or "").strip("/")
    file, _colon, inner = (path, "", "") if os.path.exists(path) else path.rpartition(":")
    if not is_hdf5(file):
        return os.path.join(path, within) if within else path, None
    inside = "/".join(filter(None, (inner.strip("/"), within)))
    return (f"{file}:/{inside}" if inside else file), file


def is_hdf5(file: str) -> bool:
    """Whether a path is an HDF5 file: its signature is at byte 0, 512, 1024 and so on."""
    if not os.path.isfile(file):
        return False
    with open(file, "rb") as opened:
        size, at = os.fstat(opened.fileno()).st_size, 0
        while at < size:
            opened.seek(at)
            if opened.read(8) == b"\x89HDF\r\n\x1a\n":
                return True
            at = max(512, 2 * at)
    return False


def _variable(place: str, file: str | None, about: Described, scales: Collection[str]) -> Variable:
    """A variable, still encoded, of an array as `info` describes it."""
    shape, dtype = tuple(about["shape"]), dtype_of(about["element"])
    dims = _dims(about, scales)
    stored = about["disk"].get("hdf5")
    if stored is not None:
        array = StoredArray(f"{file}:{stored['dataset']}", None, shape, dtype)
        attrs = _hdf5_attributes(about["attributes"])
        chunk = stored["chunk"]
        encoding = {"chunksizes": chunk and tuple(chunk), "contiguous": chunk is None}
    else:
        array = StoredArray(place, about["name"] if about["path"] else None, shape, dtype)
        attrs = _zarr_attributes(place, about)
        chunks = about["disk"].get("chunks")
        chunk = None if chunks is None else chunks["subchunks"] or chunks["chunk"]
        encoding = {} if chunk is None else {"chunks": tuple(chunk)}
        if chunks is not None and chunks["subchunks"] is not None:
            encoding["shards"] = tuple(chunks["chunk"])
    if chunk is not None:
        encoding["preferred_chunks"] = dict(zip(dims, chunk, strict=True))
    return Variable(dims, indexing.LazilyIndexedArray(array), attrs, encoding)


def _dims(about: Described, scales: Collection[str]) -> list[str]:
    """The names of an array's dimensions, made up where it has none.

    A dataset of one dimension in an HDF5 file that is the scale of a dimension has no scale of its
    own, and is called as the dimension.
    """
    rank, name, names = len(about["shape"]), about["name"], about["dimension_names"]
    stored = about["disk"].get("hdf5")
    if names is None and rank == 1 and stored and (stored["is_netcdf"] or name in scales):
        return [name]
    given: Sequence[str | None] = names or [None] * rank
    return [each or f"{name}_{axis}" for axis, each in enumerate(given)]


def _zarr_attributes(place: str, about: Described) -> dict[str, Any]:
    """Attributes of a Zarr array: xarray stores a `_FillValue` in base 64."""
    attrs = dict(about["attributes"])
    if FILL in attrs:
        dtype = dtype_of(about["element"])
        try:
            attrs[FILL] = _fill_value(attrs[FILL], dtype)
        except (TypeError, ValueError, struct.error) as error:
            cause = f"the _FillValue {attrs[FILL]!r} is no {dtype}"
            at = os.path.join(place, about["path"])
            raise error_of(DamagedError.kind, cause, at) from error
    return attrs


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "c" and isinstance(value, list):
        real, imaginary = (_fill_value(part, np.dtype("f8")) for part in value)
        return dtype.type(complex(real, imaginary))
    if dtype.kind == "f" and isinstance(value, str):
        (value,) = struct.unpack("<d", b64decode(value, validate=True))
    return dtype.type(value)


def _hdf5_attributes(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as NetCDF's programs give them: a list of one is its element."""

    def plain(value: Any) -> Any:
        if not isinstance(value, list) or any(isinstance(each, str) for each in value):
            return value[0] if isinstance(value, list) and len(value) == 1 else value
        return value[0] if len(value) == 1 else np.array(value)

    return {name: plain(value) for name, value in stored.items()}
