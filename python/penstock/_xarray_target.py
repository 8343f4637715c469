"""The store that a data set is written to: made aside, and put in its place when it is complete.

What is new is written in a hidden directory beside the target, and comes to its place by a rename.
A job that is killed leaves the directory, and the target as it was. A file system that cannot
exchange two names has, for a moment, neither the former store nor the new one in its place.

A bucket has no renames: there the service copies what is new to its place, where one put under a
condition makes it the store, whole. In a repository, one commit does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from penstock import _core
from penstock._errors import (
    DamagedError,
    Error,
    ExistsError,
    FullError,
    IoError,
    MissingError,
    ReadOnlyError,
    UnsupportedError,
    error_of,
    schema_error,
    shown,
)
from penstock._icechunk import SCHEME, store_at
from penstock._json import attributes
from penstock._schema import HDF5, Chunks, Disk, NetCDF
from penstock._session import Session
from penstock._xarray_encode import Form

Mode: TypeAlias = Literal["w-", "w", "a"]

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h

SUFFIXES: dict[str, Form] = {
    **dict.fromkeys((".h5", ".hdf5", ".he5"), "hdf5"),
    **dict.fromkeys((".nc", ".nc4", ".cdf"), "netcdf"),
}


def form_of(path: str) -> Form:
    """What sort of store a path names: by its suffix, a Zarr group if it has no other."""
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "zarr")


def is_url(path: str) -> bool:
    """Whether a path is the URL of a place in a bucket."""
    return "://" in path


def is_there(path: str) -> bool:
    """Whether something is at a path, or a URL."""
    if not is_url(path):
        return os.path.lexists(path)
    with contextlib.suppress(MissingError):
        _core.describe(path)
        return True
    return False


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
    SchemaError, ExistsError, UnsupportedError
        When there is no such mode, or when something is there and must not be.
    """

    def __init__(self, path: str, mode: Mode, sync: bool) -> None:
        if mode not in ("w-", "w", "a"):
            raise schema_error(f'{shown(mode)} is no mode: use "w-", "w" or "a"')
        self.path, self.mode, self.form = path.rstrip("/"), mode, form_of(path.rstrip("/"))
        if not is_url(path):
            self.path = os.path.realpath(path)
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
        with _errors_of(self.path):
            if self.mode == "a" and os.path.exists(self.path):
                at = self.path
            else:
                self._aside = tempfile.mkdtemp(prefix=f".{name}.new~", dir=parent)
                at = os.path.join(self._aside, name)
            if self.form == "zarr":
                _make_group(at, attrs)
        if self.form != "zarr" and attrs:
            _h5py(self.path)
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
            with _errors_of(self.path):
                _add_hdf5_attributes(at, {"/": attrs, **typed})
        if self._aside is None:
            return
        if self.mode == "w-":
            self._check_nothing_is_there()
        with _errors_of(self.path):
            if not os.path.lexists(self.path):
                os.rename(at, self.path)
            elif not _exchange(at, self.path):
                self._replace(at)
            if self._sync:
                _sync(os.path.dirname(self.path))

    def _replace(self, at: str) -> None:
        """Put the store in the place of another by two renames, where one cannot exchange them."""
        aside, self._aside = self._aside, None  # what was there is kept until it is replaced
        former = f"{at}.former"
        os.rename(self.path, former)
        try:
            os.rename(at, self.path)
        except OSError:
            os.rename(former, self.path)
            raise
        finally:
            self._aside = aside if os.path.lexists(self.path) else None

    def writing(self, session: Session) -> contextlib.AbstractContextManager[None]:
        """What the store is written in, from `make` to `finish`. Collective at its end."""
        return contextlib.nullcontext()

    def clear(self) -> None:
        """Remove what is left aside."""
        if self._aside is not None:
            shutil.rmtree(self._aside, ignore_errors=True)

    def _check_nothing_is_there(self) -> None:
        if is_there(self.path):
            cause = 'something is there: mode="w" replaces it, mode="a" adds to it'
            raise error_of(ExistsError.kind, cause, self.path)


class BucketTarget(Target):
    """A bucket target is a `Target` in a bucket: a Zarr group.

    Parameters
    ----------
    path, mode, sync
        As of `Target`; what is in a bucket is on stable storage at once.

    Raises
    ------
    SchemaError, ExistsError, UnsupportedError
        As of `Target`; for a file of HDF5.
    """

    def __init__(self, path: str, mode: Mode, sync: bool) -> None:
        super().__init__(path, mode, sync)
        if self.form != "zarr":
            cause = (
                "an HDF5 file is written to a file system: write a Zarr group, or to a directory"
            )
            raise error_of(UnsupportedError.kind, cause, path)

    def make(self, attrs: Mapping[str, Any]) -> str:
        """As of `Target`."""
        at = self.path
        if self.mode != "a" or not is_there(self.path):
            parent, name = os.path.split(self.path)
            self._aside = f"{parent}/.{name}.new~{secrets.token_hex(8)}"
            at = f"{self._aside}/{name}"
        _core.make_group(at, attributes(attrs))
        return at

    def finish(self, at: str, attrs: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
        """As of `Target`."""
        if self._aside is not None:
            _core.install_tree(at, self.path, self.mode == "w")

    def clear(self) -> None:
        """As of `Target`."""
        if self._aside is not None:
            with contextlib.suppress(Error):  # what is left aside does no harm
                _core.remove_tree(self._aside)


class RepositoryTarget(BucketTarget):
    """A repository target is a `Target` in a repository of Icechunk: a Zarr group, by one commit.

    Parameters
    ----------
    path, mode, sync
        As of `BucketTarget`.

    Raises
    ------
    SchemaError, ExistsError, UnsupportedError
        As of `BucketTarget`.
    """

    def writing(self, session: Session) -> contextlib.AbstractContextManager[None]:
        """As of `Target`."""
        key = self.path.removeprefix(SCHEME).partition("/")[2]
        return session.commit(
            store_at(self.path), f"write a data set to {key}".removesuffix(" to ")
        )

    def make(self, attrs: Mapping[str, Any]) -> str:
        """As of `Target`."""
        return self.path

    def finish(self, at: str, attrs: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
        """As of `Target`."""
        names = [name.strip("/") for name in typed] if self.mode == "w" else None
        _core.put_group(at, attributes(attrs), names)


def target_at(path: str, mode: Mode, sync: bool) -> Target:
    """The target at a path, or a URL.

    Parameters
    ----------
    path, mode, sync
        As of `Target`.

    Raises
    ------
    Error
        As of `Target`, `BucketTarget` and `RepositoryTarget`.
    """
    if path.startswith(SCHEME):
        return RepositoryTarget(path, mode, sync)
    return (BucketTarget if is_url(path) else Target)(path, mode, sync)


def _make_group(at: str, attrs: Mapping[str, Any]) -> None:
    """Make a Zarr group, or give one that is there more attributes."""
    metadata = os.path.join(at, "zarr.json")
    os.makedirs(at, exist_ok=True)
    if os.listdir(at) and not os.path.exists(metadata):
        raise schema_error(f"{at} is there, and no group of Zarr's format 3, to add to")
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


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """What the operating system refuses is one of Penstock's errors."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        kinds = {errno.ENOSPC: FullError, errno.EDQUOT: FullError, errno.ENOENT: MissingError}
        kind = kinds.get(error.errno or 0, IoError)
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            kind = ReadOnlyError
        raise error_of(kind.kind, error.strerror or str(error), path) from error


def _exchange(one: str, other: str) -> bool:
    """Exchange two paths at one moment; False where the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = [ctypes.c_char_p(os.fsencode(path)) for path in (one, other)]
    if rename(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), other)


def _sync(directory: str) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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
    with _h5py(path).File(path, "r+") as file:
        for name, values in wanted.items():
            for key, value in values.items():
                file[name].attrs[key] = value


def _h5py(path: str) -> Any:
    """The package that adds attributes which Penstock itself cannot write."""
    try:
        import h5py
    except ImportError as error:
        cause = "attributes of the file, and of types that JSON has not, need h5py: install it"
        raise error_of(UnsupportedError.kind, cause, path) from error
    return h5py
