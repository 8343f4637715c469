"""Arrays that stay open: any rank reads or writes any part at any time, without the others."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from penstock import _core
from penstock._local import in_place
from penstock._schema import OneRegion, bounds_of

if TYPE_CHECKING:
    from penstock._session import Session


class OpenArray:
    """An open array is one that `Session.open` has opened with a mode.

    Servers keep its files open, and serve each rank's requests through their cache. A rank sees its
    own writes at once, and those of others as soon as their `write` has returned. Elements of one
    block (a chunk, or a piece of one) are read and written at one moment; a request of several
    blocks is not: another's may come between.

    Attributes
    ----------
    name : str
        The name of the array.
    shape : tuple of int
        Its extents.
    dtype : numpy.dtype
        Its type, in the machine's byte order.
    """

    def __init__(self, session: Session, opened: _core.PyOpenArray) -> None:
        self._session, self._opened = session, opened
        self.name: str = opened.name
        self.shape: tuple[int, ...] = tuple(opened.shape)
        self.dtype: np.dtype[np.generic] = np.dtype(opened.dtype)

    def read(self, region: OneRegion = (), out: np.ndarray | None = None) -> np.ndarray:
        """Read a part of the array.

        Parameters
        ----------
        region : slice, int, tuple of these, or Boxes, optional
            The part; an index counts as one element. Default: all of it.
        out : numpy.ndarray, optional
            Where to put it, of the region's shape and the array's dtype. Default: a new array.

        Returns
        -------
        numpy.ndarray
            The part, of the region's shape: `out` where it was given.

        Raises
        ------
        Error
            Of the kind that fits, on this rank alone. `out` may then hold anything.

        Notes
        -----
        Not collective.
        """
        start, extents = bounds_of(region, self.shape)
        local = np.empty(extents, self.dtype) if out is None else in_place(out, to_fill=True)
        self._session._session.move_part(self._opened, False, start, extents, local)
        return local if out is None else out

    def write(self, region: OneRegion, local: np.ndarray) -> None:
        """Write a part of the array.

        Parameters
        ----------
        region : slice, int, tuple of these, or Boxes
            The part; an index counts as one element.
        local : numpy.ndarray
            The elements, of the region's shape and the array's dtype, in any order and with any
            strides.

        Raises
        ------
        Error
            Of the kind that fits, on this rank alone. A part of the elements may have been written.

        Notes
        -----
        Not collective. The elements are in the servers' cache when this returns, and on the disks
        after `flush` or `close`. A crash before may lose them, or some of them.
        """
        start, extents = bounds_of(region, self.shape)
        self._session._session.move_part(self._opened, True, start, extents, in_place(local))

    def flush(self) -> None:
        """Bring all that ranks have written to the disks, and, in a session that syncs, to stable
        storage.

        Raises
        ------
        Error
            The first error of a server since the array was opened; the same on all ranks.

        Notes
        -----
        Collective.
        """
        self._session._session.flush_array(self._opened)

    def close(self) -> None:
        """Flush and close the array. Closing again does nothing.

        Raises
        ------
        Error
            As of `flush`. The array is closed all the same.

        Notes
        -----
        Collective.
        """
        self._session._session.close_array(self._opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()

    def __repr__(self) -> str:
        return f"<penstock.OpenArray {self.name!r} {self.shape} {self.dtype}>"
