"""Errors that Python's side of the face finds for itself."""

from __future__ import annotations

from penstock import _core


def schema_error(cause: str) -> _core.SchemaError:
    """The error of an argument that does not fit."""
    error = _core.SchemaError(cause)
    error.cause = cause
    return error
