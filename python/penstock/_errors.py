"""Errors: one class for each kind, each of them also the built-in one that programs catch."""

from __future__ import annotations

import errno
from typing import ClassVar


class Error(Exception):
    """What Penstock could not do, and why.

    Attributes
    ----------
    kind : str
        What sort of thing went wrong: the class's name without `Error`.
    rank, server : int or None
        Who met it.
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
    """A schema, shape, type, mesh or option that does not fit."""

    kind = "Schema"


class OutOfBoundsError(SchemaError, IndexError):
    """An index that an array does not have."""


class MismatchError(Error, ValueError):
    """The ranks of a collective call ask for different things."""

    kind = "Mismatch"


class OverlapError(Error, ValueError):
    """Boxes that must be disjoint overlap."""

    kind = "Overlap"


class MissingError(Error, FileNotFoundError):
    """A store, array or file that is not there."""

    kind = "Missing"
    errno = errno.ENOENT


class DamagedError(Error, OSError):
    """A store that is there and cannot be understood."""

    kind = "Damaged"


class ReadOnlyError(Error, PermissionError):
    """No permission to write or read there."""

    kind = "ReadOnly"
    errno = errno.EACCES


class FullError(Error, OSError):
    """No space left."""

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
    """Something that Penstock does not do."""

    kind = "Unsupported"


class IoError(Error, OSError):
    """Any other failure of a disk or of the operating system."""

    kind = "Io"


def schema_error(cause: str) -> SchemaError:
    """The error of an argument that does not fit."""
    error = SchemaError(cause)
    error.cause = cause
    return error


def type_name(value: object) -> str:
    """How messages name a value that does not fit: by its type, for it may be long."""
    return type(value).__qualname__


def shown(value: object) -> str:
    """A small value as it is, any other by its type."""
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None), tuple)) else ""
    return text if 0 < len(text) <= 80 else type_name(value)
