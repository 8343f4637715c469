"""Arrays that stay open: any rank reads or writes any part at any time, without the others."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from penstock import _core
from penstock._errors import is_write
from penstock._lists import Elements, flat, list_argument, local_elements
from penstock._local import Room, in_place, parts_of
from penstock._records import as_packed, dtype_of
from penstock._report import Report, report_of
from penstock._schema import Array, OneRegion, Region, bounds_of, regions_of
from penstock._types import Local, Operation

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
        self.dtype: np.dtype[np.generic] = dtype_of(opened.dtype)

    def read(self, region: OneRegion = (), out: np.ndarray | None = None) -> np.ndarray:
        """Read a part of the array.

        Parameters
        ----------
        region : slice, int, tuple of these, Boxes, Runs or Strided, optional
            The part; an index counts as one element. Default: all of it.
        out : numpy.ndarray, optional
            Where to put it, of the region's shape and the array's dtype; the elements of a list in
            one dimension. Default: a new array.

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
        if out is not None:
            local = in_place(out, to_fill=True)
        elif isinstance(region, Elements):
            local = np.zeros(local_elements(region), self.dtype)
        else:
            local = np.empty(bounds_of(region, self.shape)[1], self.dtype)
        room = Room.of([local])
        self._move(False, region, room.parts[0])
        room.settle()
        return local if out is None else out

    def write(self, region: OneRegion, local: np.ndarray) -> None:
        """Write a part of the array.

        Parameters
        ----------
        region : slice, int, tuple of these, Boxes, Runs or Strided
            The part; an index counts as one element.
        local : numpy.ndarray
            The elements, of the region's shape and the array's dtype, in any order and with any
            strides; those of a list in one dimension.

        Raises
        ------
        Error
            Of the kind that fits, on this rank alone. A part of the elements may have been written.

        Notes
        -----
        Not collective. The elements are in the servers' cache when this returns, and on the disks
        after `flush` or `close`. A crash before may lose them, or some of them.
        """
        self._move(True, region, as_packed(in_place(local)))

    def explain(self, operation: Operation = "read", region: OneRegion = ()) -> str:
        """Say what `read` or `write` of a part would do. Nothing is moved.

        Parameters
        ----------
        operation : {"write", "read"}
            Which of the two.
        region : slice, int, tuple of these, Boxes, Runs or Strided, optional
            The part, as of `read`. Default: all of the array.

        Returns
        -------
        str
            Lines of text: the blocks and requests of each server, and all messages.

        Raises
        ------
        Error
            Of the kind that fits, on this rank alone.

        Notes
        -----
        Not collective.
        """
        session = self._session._session
        return session.explain_part(self._opened, is_write(operation), self._part(region))

    def _part(self, region: OneRegion) -> _core._Part:
        """The part, as the core has it."""
        return (
            list_argument(region) if isinstance(region, Elements) else bounds_of(region, self.shape)
        )

    def _move(self, is_write: bool, region: OneRegion, local: np.ndarray) -> None:
        part = self._part(region)
        if isinstance(region, Elements):
            local = flat(local)
        self._session._session.move_part(self._opened, is_write, part, local)

    def read_all(self, region: Region = (), out: Local | None = None) -> Local:
        """Read parts of the array together, each rank its own.

        Parameters
        ----------
        region : slice, int, tuple of these, Boxes, list of such, Runs or Strided, optional
            This rank's part, or parts, as of `Session.read`. Default: all of the array.
        out : numpy.ndarray, optional
            Where to put it, as of `read`; a list where the region is one. Default: new arrays.

        Returns
        -------
        numpy.ndarray or list of numpy.ndarray
            The part, or the parts: `out` where it was given.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `out` may then hold anything.

        Notes
        -----
        Collective, and disk-directed (Kotz, TOCS 1997, section 3): each server passes over its
        blocks once, takes those in its cache from there, and leaves the others out of it.
        """
        with self._session._preparing("reading an open array"):
            array = self._array(region)
            room, filled = self._session._room(array, out)
        self._session._session.move_together(self._opened, False, array._spec, room.parts)
        room.settle()
        return filled

    def write_all(self, region: Region, local: Local) -> Report:
        """Write parts of the array together, each rank its own.

        Parameters
        ----------
        region : slice, int, tuple of these, Boxes, list of such, Runs or Strided
            This rank's part, or parts, as of `Session.write`. They must not overlap.
        local : numpy.ndarray
            The elements, as of `write`; a list where the region is one.

        Returns
        -------
        Report
            Bytes and seconds, and what the servers moved.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. Some of the elements may have been
            written.

        Notes
        -----
        Collective, and disk-directed. The elements are on the disks when this returns.
        """
        with self._session._preparing("writing an open array"):
            array = self._array(region)
            parts = parts_of(array, local)
        moved = self._session._session.move_together(self._opened, True, array._spec, parts)
        return report_of(moved)

    def _array(self, region: Region) -> Array:
        """The array, each rank with its own part."""
        memory = regions_of(region, self.shape)
        return Array(self.name, self.shape, self.dtype)._with(memory=memory)

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
