"""The store that a data set is written to: made aside, and put in its place when it is complete.

What is new is written in a hidden directory beside the target, and comes to its place by a rename.
A job that is killed leaves the directory, and the target as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from penstock._errors import (
    DamagedError,
    ExistsError,
    MissingError,
    UnsupportedError,
    error_of,
    schema_error,
    shown,
)
from penstock._json import attributes
from penstock._schema import HDF5, Chunks, Disk, NetCDF
from penstock._xarray_encode import Form

Mode: TypeAlias = Literal["w-", "w", "a"]

SUFFIXES: dict[str, Form] = {
    **dict.fromkeys((".h5", ".hdf5", ".he5"), "hdf5"),
    **dict.fromkeys((".nc", ".nc4", ".cdf"), "netcdf"),
}


def form_of(path: str) -> Form:
    """What sort of store a path names: by its suffix, a Zarr group if it has no other."""
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "zarr")


def disk_of(form: Form, chunk: tuple[int, ...] | None, codec: str | None) -> Disk:
    """The disk schema of a variable; `chunk` is None for one run of an HDF5 file."""
    if form == "zarr":
        return Chunks(chunk or (), codec="zstd" if codec is None else codec)
    schema = NetCDF if form == "netcdf" else HDF5
    return schema(chunk, filters="none" if codec is None else codec)


class Target:
    """A target is where one process puts the store that all ranks write.

    Parameters
    ----------
    path : str
        The store.
    mode : {"w-", "w", "a"}
        Whether nothing may be there, or what is there is replaced, or added to.
    sync : bool
        Whether renames wait for stable storage.

    Raises
    ------
    SchemaError, ExistsError
        When there is no such mode, or when something is there and must not be.
    """

    def __init__(self, path: str, mode: Mode, sync: bool) -> None:
        if mode not in ("w-", "w", "a"):
            raise schema_error(f'{shown(mode)} is no mode: use "w-", "w" or "a"')
        self.path, self.mode, self.form = path.rstrip("/"), mode, form_of(path.rstrip("/"))
        self._sync = sync
        self._aside: str | None = None
        if mode == "w-":
            self._check_nothing_is_there()

    def make(self, attrs: Mapping[str, Any]) -> str:
        """Begin the store, with the attributes of the group, and say where variables are written
        meanwhile."""
        parent, name = os.path.split(self.path)
        if not os.path.isdir(parent):
            raise error_of(MissingError.kind, "there is no such directory", parent)
        if self.mode == "a" and os.path.exists(self.path):
            at = self.path
        else:
            self._aside = tempfile.mkdtemp(prefix=f".{name}.new~", dir=parent)
            at = os.path.join(self._aside, name)
        if self.form == "zarr":
            _make_group(at, attrs)
        return at

    def finish(self, at: str, attrs: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
        """Put the store in its place.

        Parameters
        ----------
        at : str
            What `make` said.
        attrs : mapping
            Attributes of the group.
        typed : mapping of str to mapping
            Attributes of variables that JSON has no type for.
        """
        if self.form != "zarr":
            _add_hdf5_attributes(at, {"/": attrs, **typed})
        if self._aside is None:
            return
        if self.mode == "w-":
            self._check_nothing_is_there()
        if os.path.isdir(self.path) and not os.path.islink(self.path):
            former = os.path.join(self._aside, "former")
            os.rename(self.path, former)
            try:
                os.rename(at, self.path)
            except OSError:
                os.rename(former, self.path)
                raise
        else:
            os.replace(at, self.path)
        if self._sync:
            directory = os.open(os.path.dirname(self.path), os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def clear(self) -> None:
        """Remove what is left aside."""
        if self._aside is not None:
            shutil.rmtree(self._aside, ignore_errors=True)

    def _check_nothing_is_there(self) -> None:
        if os.path.lexists(self.path):
            cause = 'something is there: mode="w" replaces it, mode="a" adds to it'
            raise error_of(ExistsError.kind, cause, self.path)


def _make_group(at: str, attrs: Mapping[str, Any]) -> None:
    """Make a Zarr group, or give one that is there more attributes."""
    os.makedirs(at, exist_ok=True)
    metadata = os.path.join(at, "zarr.json")
    directory = os.open(at, os.O_RDONLY)
    try:
        # Writers of arrays change the metadata, too. A file system may have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_EX)
        described: dict[str, Any] = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {},
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {}},
        }
        with contextlib.suppress(FileNotFoundError), open(metadata, encoding="utf-8") as opened:
            described = json.load(opened)
        if not isinstance(described, dict) or described.get("node_type") != "group":
            raise error_of(DamagedError.kind, "it describes no group of Zarr's format 3", metadata)
        plain = json.loads(attributes(attrs))
        described["attributes"] = {**(described.get("attributes") or {}), **plain}
        new = os.path.join(at, ".zarr.json.new")
        with open(new, "w", encoding="utf-8") as opened:
            json.dump(described, opened, indent=2)
        os.replace(new, metadata)
    finally:
        os.close(directory)


def typed_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that HDF5 has types for, and JSON has not."""
    return {name: value for name, value in attrs.items() if _is_typed(value)}


def _is_typed(value: Any) -> bool:
    if not isinstance(value, np.generic | np.ndarray) or value.dtype.kind not in "iuf":
        return False
    return value.dtype not in (np.dtype("i8"), np.dtype("f8"))


def _add_hdf5_attributes(path: str, attrs: Mapping[str, Mapping[str, Any]]) -> None:
    """Give objects of an HDF5 file attributes, by their paths in it."""
    wanted = {name: each for name, each in attrs.items() if each}
    if not wanted:
        return
    try:
        import h5py
    except ImportError as error:
        cause = f"attributes of {', '.join(wanted)} in an HDF5 file need h5py, which is not there"
        raise error_of(UnsupportedError.kind, cause, path) from error
    with h5py.File(path, "r+") as file:
        for name, values in wanted.items():
            for key, value in values.items():
                file[name].attrs[key] = value
