"""Errors: one class for each kind, each of them also the built-in one that programs catch."""

from __future__ import annotations

import errno
from typing import ClassVar


class Error(Exception):
    """An error says what Penstock could not do, and why. Each kind of error is a subclass.

    Attributes
    ----------
    kind : str
        What sort of thing went wrong: the class's name without `Error`.
    rank, server : int or None
        The rank or the server that met it.
    doing : str or None
        What was being done.
    path : str or None
        To which file or directory.
    bytes : tuple of int or None
        To which bytes of it, first and end.
    cause : str
        Why that failed.
    """

    kind: ClassVar[str] = ""
    rank: int | None = None
    server: int | None = None
    doing: str | None = None
    path: str | None = None
    bytes: tuple[int, int] | None = None
    cause: str = ""


class SchemaError(Error, ValueError):
    """A schema, shape, type, mesh or option does not fit."""

    kind = "Schema"


class OutOfBoundsError(SchemaError, IndexError):
    """An array does not have an index that was asked for."""


class MismatchError(Error, ValueError):
    """The ranks of a collective call ask for different things."""

    kind = "Mismatch"


class OverlapError(Error, ValueError):
    """Boxes that must be disjoint overlap."""

    kind = "Overlap"


class MissingError(Error, FileNotFoundError):
    """A store, array or file is not there."""

    kind = "Missing"
    errno = errno.ENOENT


class DamagedError(Error, OSError):
    """A store is there and cannot be understood."""

    kind = "Damaged"


class ReadOnlyError(Error, PermissionError):
    """The program has no permission to write or read there."""

    kind = "ReadOnly"
    errno = errno.EACCES


class FullError(Error, OSError):
    """No space is left."""

    kind = "Full"
    errno = errno.ENOSPC


class BusyError(Error, OSError):
    """Another job is writing the same target."""

    kind = "Busy"
    errno = errno.EBUSY


class PeerError(Error, ConnectionError):
    """Another rank left the session, or cannot be reached."""

    kind = "Peer"


class UnsupportedError(Error, NotImplementedError):
    """Penstock does not do what was asked for."""

    kind = "Unsupported"


class ExistsError(Error, FileExistsError):
    """Something is there already, or a directory is not empty."""

    kind = "Exists"
    errno = errno.EEXIST


class IoError(Error, OSError):
    """A disk or the operating system failed in another way."""

    kind = "Io"


def schema_error(cause: str) -> SchemaError:
    """The error of an argument that does not fit."""
    error = SchemaError(cause)
    error.cause = cause
    return error


def error_of(kind: str, cause: str, path: str) -> Error:
    """The error of a kind by its name, about what stands at a path."""
    (class_,) = (each for each in Error.__subclasses__() if each.kind == kind)
    error = class_(f"{path}: {cause}")
    error.cause, error.path = cause, path
    return error


def type_name(value: object) -> str:
    """How messages name a value that does not fit: by its type, for it may be long."""
    return type(value).__qualname__


def shown(value: object) -> str:
    """A small value as it is, any other by its type."""
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None), tuple)) else ""
    return text if 0 < len(text) <= 80 else type_name(value)


def is_write(operation: str) -> bool:
    """Whether an operation is a write and not a read.

    Raises
    ------
    SchemaError
        When it is neither.
    """
    if operation not in ("write", "read"):
        raise schema_error(f"{shown(operation)} is no operation: use 'write' or 'read'")
    return operation == "write"
