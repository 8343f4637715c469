"""Sessions: the ranks of a program, ready for collective calls."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from penstock import _core, _icechunk
from penstock._errors import Error, is_write, schema_error, shown, type_name
from penstock._group import Group, State
from penstock._icechunk import Icechunk, IcechunkPath
from penstock._json import attributes
from penstock._local import Room, converted, new_parts, own_parts, parts_of, stored_as
from penstock._mpi import join
from penstock._open import OpenArray
from penstock._options import Options, SessionOptions, session_options
from penstock._records import dtype_of
from penstock._report import Report, report_of
from penstock._schema import Array, BoxRegion, OneRegion, Region, array_argument, regions_of
from penstock._seats import open_seat
from penstock._select import (
    Selection,
    ThinnedPart,
    box_of,
    edges_of,
    field_names,
    kept_dims,
    key_of,
    steps_of,
)
from penstock._split import Split
from penstock._stores import CopyOptions, CopyReport, copy_argument
from penstock._types import (
    Along,
    Attributes,
    Background,
    Extents,
    How,
    Local,
    MaybeList,
    MaybeNone,
    Operation,
    Path,
    Progress,
    Strategy,
)

if TYPE_CHECKING:
    from mpi4py import MPI

Out = TypeVar("Out", bound=Local)


class Session:
    """A session joins the ranks of a program and the servers among or beside them.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        The ranks. Without it the session is embedded: this process is the only rank, or this thread
        is one of those that `run` has started. Penstock duplicates the communicator, so that its
        messages never meet the program's.
    options : SessionOptions, optional
        How it is set up.
    **changes
        Fields of `SessionOptions` that differ from `options`: `servers=2, sync=False`.

    Attributes
    ----------
    rank : int or None
        This client; None on a dedicated server.
    size : int
        Number of clients.
    servers : int
        Number of servers.
    is_client : bool
        Whether this rank may make calls.
    options : SessionOptions
        How it is set up.

    Raises
    ------
    SchemaError, MismatchError, PeerError
        When the options do not fit, when ranks give different ones, or when ranks of one host
        cannot share memory. On all ranks.

    Notes
    -----
    Collective over `comm`. Only the thread that opened the session may use it when it runs over
    MPI; MPI_THREAD_FUNNELED is enough, but for `begin_write` with `background="all"` where ranks
    exchange MPI messages.

    A session is a context manager: at the end of a `with` block it is closed. If the block ends
    with an exception, the calls of all other ranks fail with `PeerError`, instead of waiting.
    Ctrl-C ends a call on this rank: `KeyboardInterrupt` is raised, and the session is over.
    """

    rank: int | MaybeNone
    size: int
    servers: int
    is_client: bool
    options: SessionOptions

    def __init__(
        self,
        comm: MPI.Comm | None = None,
        *,
        options: SessionOptions | None = None,
        **changes: Unpack[Options],
    ) -> None:
        self._is_over = True
        if comm is None:
            self.options = session_options(options, changes)
            self._session = open_seat(self.options)
        else:
            self._session, self.options = join(comm, options, changes)
        self._is_over = False
        self.rank = self._session.rank
        self.size = self._session.size
        self.servers = self._session.servers
        self.is_client = self.rank is not None

    def write(
        self,
        path: Path,
        array: Array,
        local: Local,
        attrs: Attributes | None = None,
        *,
        region: Region | None = None,
        dtype: npt.DTypeLike | None = None,
        strategy: Strategy | None = None,
    ) -> Report:
        """Write `array`, each rank its `local` part.

        Parameters
        ----------
        path : path
            For `Chunks` and natural chunking, a Zarr group, made if it is not there: the array is
            stored in it under its name. For `RowMajor`, the file; for a `Distribution`, the
            directory of the part files.
        array : Array
            The same on all ranks, boxes and lists apart.
        local : numpy.ndarray
            Of shape `array.local_shape(rank)` and the array's dtype, in any order and with any
            strides, or what `numpy.asarray` takes without a copy, an xarray.DataArray too. It is
            read in place. A list of them where the memory schema is a list of boxes; in one
            dimension where it is `Runs` or `Strided`.
        attrs : mapping, optional
            Attributes of the array: what JSON can hold, and NumPy's scalars. Not for `npy`.
        region : slice, int, tuple of these, Boxes, list of such, Runs or Strided, optional
            This rank's part of the array, in place of the memory schema: `local` has the region's
            shape, an index counting as one element, and what no rank's region holds stays as it is
            stored. A rank without a part gives an empty slice. Several regions are a list, as is
            `local` then. If one rank gives `Runs` or `Strided`, all do. Regions that overlap are
            refused. If the array is not there it is made, of the fill value. The store has its own
            disk schema. Disk-directed only.
        dtype : dtype, optional
            The dtype of the stored array, if it is not that of `array`: a double may be stored as a
            single, an int32 as an int64 or a double, but nothing as another kind that loses by it
            (`numpy.can_cast` with "same_kind"). Each rank converts its part, which takes memory for
            it, and no more than what is stored crosses the network. The same on all ranks.
        strategy : str, optional
            The strategy of this call, the same on all ranks. Default: the session's.

        Returns
        -------
        Report
            Bytes and seconds, and what the servers moved.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. What stood at `path` is then as it was.

        Notes
        -----
        Collective. Disk-directed (Kotz, TOCS 1997, section 3), unless another strategy is named:
        servers pull the pieces of one block after the other out of the ranks' memories. One rename
        replaces the old array: a reader that opens it finds the old one or the new, whole. One that
        had opened the old one may meet files of the new: `Session.read` then fails with
        `BusyError`, zarr-python does not notice.
        """
        with self._preparing("writing an array"):
            stored = array if dtype is None else stored_as(array, dtype)
            call = self._call(path, stored, region, attrs, strategy)
            parts = parts_of(call.array, local)
            if stored is not array:
                parts = converted(parts, array.dtype, stored.dtype)
        return report_of(self._session.write(call.path, call.spec, parts, call.strategy))

    @overload
    def read(
        self,
        path: Path,
        array: Array,
        out: Out,
        *,
        region: Region | None = None,
        every: Extents | None = None,
        strategy: Strategy | None = None,
    ) -> Out: ...
    @overload
    def read(
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: None = None,
        every: Extents | None = None,
        strategy: Strategy | None = None,
    ) -> np.ndarray | MaybeList: ...
    @overload
    def read(  # type: ignore[overload-overlap]  # a tuple is one region, not several
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: OneRegion,
        every: Extents | None = None,
        strategy: Strategy | None = None,
    ) -> np.ndarray: ...
    @overload
    def read(
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: Sequence[BoxRegion],
        every: Extents | None = None,
        strategy: Strategy | None = None,
    ) -> list[np.ndarray]: ...
    @overload
    def read(
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: Region | None = None,
        by: str,
        splitters: npt.ArrayLike | Literal["sampled"] | None = None,
    ) -> Selection: ...

    def read(
        self,
        path: Path,
        array: Array,
        out: Local | None = None,
        *,
        region: Region | None = None,
        every: Extents | None = None,
        by: str | None = None,
        splitters: npt.ArrayLike | Literal["sampled"] | None = None,
        strategy: Strategy | None = None,
    ) -> Local | Selection:
        """Read `array`, each rank the part that its memory schema gives it.

        With `by` the elements go to ranks by a value of theirs: as `select` of all elements.

        Parameters
        ----------
        path : path
            As of `write`, or any Zarr array (v3 or v2), `.npy` file or directory of parts, also of
            other makers.
        array : Array
            Name, shape, dtype and memory schema count. The store has its own disk schema, except
            that a raw file is what `array` says.
        out : numpy.ndarray, optional
            Where to put it, as `local` of `write`; halo cells are left alone. Default: a new array,
            with halo cells of 0, or a list of them.
        region : slice, int, tuple of these, Boxes, list of such, Runs or Strided, optional
            This rank's part of the array, in place of the memory schema, as of `write`. Regions may
            overlap.
        every : int or sequence of int, optional
            Thins the array where the data are: every n-th element along each dimension, from
            the first on, the same on all ranks. The memory schema and `region` are then of the
            thinned array, of shape `ceil(n / every)`: a Distribution, or boxes. Blocks without such
            elements are not read.
        by, splitters : optional
            What names the rank of an element, as of `select`. Nobody knows before how many come to
            a rank: `out`, `every` and `strategy` are not for such a read.
        strategy : str, optional
            The strategy of this call, the same on all ranks. Default: the session's.

        Returns
        -------
        numpy.ndarray
            The local part, of shape `array.local_shape(rank)` or of the region's: `out` where it
            was given. A list of them where the memory schema or the region is a list. With `by` a
            Selection.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `out` may then hold anything.

        Notes
        -----
        Collective.
        """
        if by is not None or splitters is not None:
            with self._preparing("reading an array"):
                for what, given in [("out", out), ("every", every), ("strategy", strategy)]:
                    if given is not None:
                        raise schema_error(f"{what} is not for a read by a value")
            return self.select(path, array, by=by, splitters=splitters, region=region)
        if every is not None:
            return self._read_thinned(path, array, out, region, every, strategy)
        with self._preparing("reading an array"):
            call = self._call(path, array, region, None, strategy)
            room, filled = self._room(call.array, out)
        self._session.read(call.path, call.spec, room.parts, call.strategy)
        room.settle()
        return filled

    def _read_thinned(
        self,
        path: Path,
        array: Array,
        out: Local | None,
        region: Region | None,
        every: Extents,
        strategy: Strategy | None,
    ) -> Local:
        with self._preparing("reading an array"):
            call = self._call(path, array, None, None, strategy)
            steps = steps_of(array, every)
            thinned = ThinnedPart(array, call.spec, steps, region, (self.rank, self.size))
            room, filled = self._room(thinned.array, out)
            thinned.check(room.own)
        self._session.read(call.path, thinned.spec, [thinned.flat], call.strategy)
        thinned.fill(room.own)
        return filled

    def select(
        self,
        path: Path,
        array: Array,
        *,
        where: str = "True",
        fields: Iterable[str] | None = None,
        by: str | None = None,
        splitters: npt.ArrayLike | Literal["sampled"] | None = None,
        balanced: bool = False,
        region: Region | None = None,
    ) -> Selection:
        """Select the elements of `array` that satisfy a condition, each rank those that it holds.

        With `by` each element goes to the rank that a value of it names: particles by their cell,
        for example. With `balanced` they go to all ranks evenly.

        Parameters
        ----------
        path, array
            As of `read`.
        where : str
            The condition, in a small language: the element is `value` or the array's name, a field
            of a record its name, the indices are `i0`, `i1` and so on, or the names in `dims`.
            There are comparisons, arithmetic (`+ - * / // % **`), `and`, `or`, `not`, `x in [..]`,
            `isnan(x)`, `abs(x)`, `between(x, a, b)`, `hash(x)`, `real(x)`, `imag(x)`, `inf` and
            `nan`, with the types and results of NumPy. See docs/select.md. The same on all ranks.
            Default: all elements.
        fields : sequence of str, optional
            The fields of records that are wanted, in this order; no others cross the network. The
            same on all ranks. Default: all.
        by : str, optional
            An expression in the same language: the rank to whom an element goes is its value, an
            integer or a truth, modulo the number of ranks. Each element goes to one rank. The same
            on all ranks.
        splitters : sequence of float, or "sampled", optional
            With them, `by` is any real number, and rank r gets the elements where it is at least
            `splitters[r - 1]` and less than `splitters[r]`; NaN goes where infinity goes. In
            ascending order, at most one fewer than ranks. The same on all ranks. "sampled" draws
            them, so that ranks get about equally many: from up to 128 runs of up to 512 elements,
            evenly spread over the array, which are read first; `by` then has the names of
            dimensions that `array` says.
        balanced : bool
            Whether the elements are dealt out evenly over the ranks, in row-major order, and not to
            their holders: the numbers of any two ranks differ by one at most. The same on all
            ranks. Servers that stand read twice for it.
        region : slice, int, tuple of these, Boxes, list of such, Runs or Strided, optional
            This rank's part of the array, in place of the memory schema, as of `read`. Of several
            ranks' regions an element that is dealt out is in one.

        Returns
        -------
        Selection
            `indices` and `values`, and a report.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `SchemaError` for a condition that makes
            no sense: it names the column; for splitters and fields that make none. `BusyError`
            when servers that stand deal out evenly, and elements came or went meanwhile.

        Notes
        -----
        Collective; disk-directed, whatever the session's strategy. Servers look at the elements,
        and deal them out by value (Kotz, TOCS 1997, section 8): those that are not selected never
        leave them, and the others cross the network once.
        """
        with self._preparing("selecting elements"):
            call = self._call(path, array, region, None, None)
            if not isinstance(where, str):
                raise schema_error(f"a condition is a string, not {type_name(where)}")
            wanted = None if fields is None else field_names(fields)
            key = key_of(by, splitters)
            is_balanced = bool(balanced)
            if is_balanced and key is not None:
                raise schema_error("elements are dealt out evenly, or by a value: not both")
        used, rule = None, None
        if key is not None:
            used = key[1]
            if used == "sampled":
                used = self._session.sampled_splitters(call.path, call.spec, where, key[0])
            rule = (key[0], used)
        found = self._session.select(call.path, call.spec, where, wanted, is_balanced, rule)
        indices, values, dtype, report = found
        elements = values.view(dtype_of(dtype))
        if wanted is None:
            elements = elements.astype(array.dtype, copy=False)
        shape = (len(elements), len(array.shape))
        limits = None if used is None else np.array(used, dtype=np.float64)
        return Selection(indices.reshape(shape), elements, report_of(report), limits)

    def reduce(
        self,
        path: Path,
        array: Array,
        *,
        how: How,
        over: Along | Iterable[Along] | None = None,
        field: str | None = None,
        region: BoxRegion | None = None,
        bins: npt.ArrayLike | None = None,
    ) -> np.ndarray:
        """Reduce `array` where the data are; all ranks get the result.

        Parameters
        ----------
        path, array
            As of `read`; the memory schema does not matter.
        how : {"min", "max", "mean", "sum", "count", "histogram"}
            What becomes of the elements: as NumPy's functions of these names do it. `count` is the
            number of elements that are not NaN.
        over : str, int or sequence of these, optional
            The dimensions that go away, by name or number. Default: all.
        field : str, optional
            Of records: the field that is reduced; "f.g" is the field g of the record in f. The same
            on all ranks.
        region : slice, int, tuple of these or Boxes, optional
            The part of the array that is reduced; an index counts as one element. The same on all
            ranks. Default: all of it.
        bins : sequence of float, optional
            Of a histogram: the edges of its bins, ascending, as of `numpy.histogram`. The same on
            all ranks.

        Returns
        -------
        numpy.ndarray
            Of the dimensions that stay, and, of a histogram, one of its bins behind them; the dtype
            is that of NumPy's function, int64 for `count`.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `UnsupportedError` for min, max and
            histogram of complex numbers.

        Notes
        -----
        Collective; disk-directed, whatever the session's strategy. The result is the same, to the
        last bit, for any number of ranks and servers and any disk schema: sums of floats are exact
        and are rounded once, to float64 and then to the dtype. Sums of integers wrap around.
        """
        with self._preparing("reducing an array"):
            call = self._call(path, array, None, None, None)
            kept = kept_dims(array, over)
            word, edges, box = str(how), edges_of(how, bins), box_of(array, region)
            if field is not None and not isinstance(field, str):
                raise schema_error(f"a field is a name, not {shown(field)}")
        reduced = self._session.reduce(call.path, call.spec, word, edges, box, kept, field)
        values, shape, dtype, _ = reduced
        return values.view(dtype).reshape(shape)

    def begin_write(
        self,
        path: Path,
        array: Array,
        local: Local,
        attrs: Attributes | None = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
        copy: bool = False,
    ) -> Split[Report]:
        """Begin to write `array`: compute, then `end` what this returns.

        Parameters
        ----------
        path, array, local, attrs, region, strategy
            As of `write`. `local` must be left alone until `end`, unless it is copied.
        background : {"disk", "all", "none"}, optional
            What is done while the ranks compute (Dickens and Thakur, section 5.1). The same on all
            ranks.

            - `disk`: elements go from memory to memory before this returns, and only the disks work
              after it. Needs memory for what is to be written, up to the session's
              `background_bytes`; what is more is written before this returns. Not with `caching`.
            - `all`: a thread takes this rank's part in the whole call.
            - `none`: this returns when all is done.

            Default: `disk`; with dedicated servers, which pull while the ranks compute, and with
            `caching`, `all`.
        copy : bool
            Whether to copy `local`, which may then be changed at once.

        Returns
        -------
        Split
            The call, to be ended before the session is closed.

        Raises
        ------
        Error
            As of `write`, where it is known before this returns; otherwise `end` raises it. The
            same on all ranks. `BusyError` when the array is being moved by a call that was begun
            before.

        Notes
        -----
        Collective, in the same order on all ranks. Several may be under way.
        """
        with self._preparing("writing an array"):
            call = self._call(path, array, region, attrs, strategy)
            parts = parts_of(call.array, local)
            if copy:
                parts = [np.array(part, copy=True) for part in parts]
            on = None if background is None else str(background)
        begun = self._session.begin(call.path, call.spec, parts, True, call.strategy, on)
        about = f"a write of '{array.name}' to {call.path}"
        return Split(self, begun, about, lambda report: report)

    @overload
    def begin_read(
        self,
        path: Path,
        array: Array,
        out: Out,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split[Out]: ...
    @overload
    def begin_read(
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split[np.ndarray | MaybeList]: ...
    @overload
    def begin_read(  # type: ignore[overload-overlap]  # a tuple is one region, not several
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: OneRegion,
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split[np.ndarray]: ...
    @overload
    def begin_read(
        self,
        path: Path,
        array: Array,
        out: None = None,
        *,
        region: Sequence[BoxRegion],
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split[list[np.ndarray]]: ...

    def begin_read(
        self,
        path: Path,
        array: Array,
        out: Local | None = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split[Local]:
        """Begin to read `array`: compute, then `end` what this returns, which gives the local part.

        Parameters
        ----------
        path, array, out, region, strategy
            As of `read`. `out` must be left alone until `end`.
        background : {"disk", "all", "none"}, optional
            What is done while the ranks compute, as of `begin_write`. With `disk` the disks read
            meanwhile, and elements go to their ranks in `end`. The same on all ranks.

        Returns
        -------
        Split
            The call, to be ended before the session is closed.

        Raises
        ------
        Error
            As of `read`, where it is known before this returns; otherwise `end` raises it. The
            same on all ranks.

        Notes
        -----
        Collective, in the same order on all ranks. Several may be under way.
        """
        with self._preparing("reading an array"):
            call = self._call(path, array, region, None, strategy)
            room, filled = self._room(call.array, out)
            on = None if background is None else str(background)
        begun = self._session.begin(call.path, call.spec, room.parts, False, call.strategy, on)
        about = f"a read of '{array.name}' from {call.path}"

        def end(report: Report) -> Local:
            room.settle()
            return filled

        return Split(self, begun, about, end)

    @overload
    def open(self, path: Path, name: str | None = None, mode: None = None) -> Array: ...
    @overload
    def open(
        self, path: Path, name: str | None = None, *, mode: Literal["r", "r+"]
    ) -> OpenArray: ...

    def open(
        self, path: Path, name: str | None = None, mode: Literal["r", "r+"] | None = None
    ) -> Array | OpenArray:
        """Describe the array that is stored at `path`, or keep it open.

        Parameters
        ----------
        path : path
            A Zarr array or group, a `.npy` file, a raw file or a directory of parts.
        name : str, optional
            Which array, where `path` is a group of several.
        mode : {"r", "r+"}, optional
            Keep the array open, to be read, or to be read and changed in place: any rank then reads
            or writes any part of it, without the others. While it is open with "r+", nobody else
            writes it.

        Returns
        -------
        Array or OpenArray
            Without mode an Array as it is stored, with its attributes in `attrs`. In memory, rank 0
            holds all of it, until `with_memory` says otherwise.

        Raises
        ------
        MissingError, DamagedError, UnsupportedError
            When it is not there, or cannot be understood. With a mode also when it cannot be
            changed in place, as arrays that are saved with their group, and where servers exist
            only inside calls: under MPI without dedicated servers and without
            MPI_THREAD_MULTIPLE.
        BusyError
            When another job writes the array, or has it open to be changed.

        Notes
        -----
        Not collective without mode; collective with one.
        """
        if mode is None:
            at = self._path(path)
            if isinstance(self.options.servers, str):  # they see the files, and this may not
                return Array._of_disk(self._session.describe(at, name))
            return Array._of_disk(_core.open_schema(at, name))
        with self._preparing("opening an array"):
            if mode not in ("r", "r+"):
                raise schema_error(f'{shown(mode)} is no mode: use "r" or "r+"')
            at = self._path(path)
        return OpenArray(self, self._session.open_array(at, name, mode == "r+"))

    def explain(
        self,
        path: Path,
        array: Array,
        operation: Operation = "write",
        *,
        strategy: Strategy | None = None,
    ) -> str:
        """Say what a write (or read) would do. Nothing is written.

        Parameters
        ----------
        path, array
            As of `write`.
        operation : {"write", "read"}
            Which call.
        strategy : str, optional
            By which strategy. Default: the session's.

        Returns
        -------
        str
            Lines of text: servers, blocks, bytes, messages, memory, order.

        Raises
        ------
        Error
            Of the kind that fits, as `write` raises it.

        Notes
        -----
        Not collective.
        """
        writes = is_write(operation)
        call = self._call(path, array, None, None, strategy)
        return self._session.explain(call.path, call.spec, writes, call.strategy)

    def timestep(
        self, group: Group, values: Mapping[str, Local], *, time: float | None = None
    ) -> Report:
        """Append a timestep of all arrays of `group`, in one collective request.

        Parameters
        ----------
        group : Group
            The same on all ranks, boxes and lists apart.
        values : mapping of str to numpy.ndarray
            This rank's part of each array, by name: as `local` of `write`. Of an array of rows, as
            many as it has this time: arrays with the same first dimension have as many.
        time : float, optional
            After the last timestep's time. Default: the timestep's number. The same on all ranks.

        Returns
        -------
        Report
            One for all arrays together.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. The group is then as it was. `BusyError`
            when another job writes to it; `SchemaError` when the store holds something else, or
            `time` is not after the last.

        Notes
        -----
        Collective; disk-directed, whatever the session's strategy. A program that neither restarts
        nor starts anew appends to what is there. See docs/reliability.md for what is promised.

        In the store each array has a leading dimension `time`, and there is an array `time` of its
        coordinates. Arrays of rows have none: the rows of all timesteps follow each other, and for
        their dimension, say `particle`, `particle_start` and `particle_count` tell which are of
        which timestep (CF's contiguous ragged array). Readers see the timestep whole or not at
        all, at any moment and after a crash.
        """
        with self._preparing("writing a timestep"):
            spec, parts = self._saved(group, values)
            at = None if time is None else float(time)
        return report_of(self._session.timestep(spec, parts, at))

    def begin_timestep(
        self,
        group: Group,
        values: Mapping[str, Local],
        *,
        time: float | None = None,
        background: Background | None = None,
        copy: bool = False,
    ) -> Split[Report]:
        """Begin to append a timestep: compute, then `end` what this returns.

        Parameters
        ----------
        group, values, time
            As of `timestep`. The values must be left alone until `end`, unless they are copied.
        background, copy
            As of `begin_write`.

        Returns
        -------
        Split
            The call, to be ended before the session is closed.

        Raises
        ------
        Error
            As of `timestep`, where it is known before this returns; otherwise `end` raises it.

        Notes
        -----
        Collective, in the same order on all ranks. One save of a group is under way at a time.
        """
        with self._preparing("writing a timestep"):
            spec, parts = self._saved(group, values, copy=copy)
            at = None if time is None else float(time)
            on = None if background is None else str(background)
        begun = self._session.begin_timestep(spec, parts, at, on)
        return Split(self, begun, f"a timestep of '{group.name}'", lambda report: report)

    def checkpoint(
        self,
        group: Group,
        values: Mapping[str, Local],
        *,
        step: int | None = None,
        time: float | None = None,
        attrs: Attributes | None = None,
    ) -> Report:
        """Save what is needed to `restart`; of older checkpoints, `group.keep - 1` are left.

        Parameters
        ----------
        group, values
            As of `timestep`. Not all of what is checkpointed must be of interest as a timestep: a
            group with more arrays, at another path, does for that.
        step, time : int and float, optional
            The program's step and time. Default: number and time of the last timestep (0 and None
            where there is none). The same on all ranks.
        attrs : mapping, optional
            What else the program wants to know when it restarts: `State.attrs`. The same on all
            ranks.

        Returns
        -------
        Report
            One for all arrays together.

        Raises
        ------
        Error
            As of `timestep`; former checkpoints are then as they were.

        Notes
        -----
        Collective; disk-directed. A crash at any moment leaves at least one complete checkpoint, if
        there was one.
        """
        with self._preparing("writing a checkpoint"):
            spec, parts = self._saved(group, values)
            number, at, about = _moment(step, time, attrs)
        return report_of(self._session.checkpoint(spec, parts, number, at, about))

    def begin_checkpoint(
        self,
        group: Group,
        values: Mapping[str, Local],
        *,
        step: int | None = None,
        time: float | None = None,
        attrs: Attributes | None = None,
        background: Background | None = None,
        copy: bool = False,
    ) -> Split[Report]:
        """Begin to save a checkpoint: compute, then `end` what this returns.

        Parameters
        ----------
        group, values, step, time, attrs
            As of `checkpoint`. The values must be left alone until `end`, unless they are copied.
        background, copy
            As of `begin_write`.

        Returns
        -------
        Split
            The call, to be ended before the session is closed.

        Raises
        ------
        Error
            As of `checkpoint`, where it is known before this returns; otherwise `end` raises it.

        Notes
        -----
        Collective, in the same order on all ranks. One save of a group is under way at a time.
        """
        with self._preparing("writing a checkpoint"):
            spec, parts = self._saved(group, values, copy=copy)
            number, at, about = _moment(step, time, attrs)
            on = None if background is None else str(background)
        begun = self._session.begin_checkpoint(spec, parts, number, at, about, on)
        return Split(self, begun, f"a checkpoint of '{group.name}'", lambda report: report)

    def restart(self, group: Group, *, step: int | None = None) -> State | None:
        """Read the newest complete checkpoint of `group`, or that of `step`.

        Parameters
        ----------
        group : Group
            The same on all ranks, boxes and lists apart. The number of ranks and the memory schemas
            may be others than when it was saved.
        step : int, optional
            Of which step. The same on all ranks.

        Returns
        -------
        State or None
            `state[name]` is this rank's part of an array, of one of rows an even share of them;
            `state.step`, `state.time`, `state.attrs`. None where there is no checkpoint.

        Raises
        ------
        Error
            The same on all ranks. `DamagedError` when a checksum does not fit: an older checkpoint
            may still be whole, and `step` names it. `MissingError` when there is none of `step`.

        Notes
        -----
        Collective; disk-directed. The session's next save goes on from here: it drops timesteps
        and checkpoints that came after this one.
        """
        with self._preparing("restarting"):
            path = self._path(_group(group).path)
            number = None if step is None else operator.index(step)
        found = self._session.find_checkpoint(path, number)
        if found is None:
            return None
        with self._preparing("restarting"):
            arrays = group._restarted(found, self.size)
            spec = group._spec_at(path, arrays)
            rooms = [Room.of(new_parts(array, self.rank)) for array in arrays]
        self._session.restart(found, spec, [room.parts for room in rooms])
        for room in rooms:
            room.settle()
        filled = zip(arrays, rooms, strict=True)
        return State({array.name: _as_held(array, room.own) for array, room in filled}, found)

    def copy(
        self,
        source: Path,
        target: Path,
        *,
        progress: Progress | None = None,
        **options: Unpack[CopyOptions],
    ) -> CopyReport:
        """Copy an array or a whole data set into another arrangement, with all ranks.

        Parameters
        ----------
        source, target : path
            As of `penstock.copy`.
        progress : callable, optional
            As of `penstock.copy`. What it raises ends the copy on this rank, and the session with
            it.
        **options
            The options of `penstock.copy` from `arrays` to `drop_attributes`. The same on all
            ranks.

        Returns
        -------
        CopyReport
            Bytes and seconds, and which arrays were copied.

        Raises
        ------
        Error
            As of `penstock.copy`; the same on all ranks.

        Notes
        -----
        Collective; disk-directed.
        """
        with self._preparing("copying"):
            argument = copy_argument(target, options)
            paths = (self._path(source), self._path(target))
        return CopyReport._of(self._session.copy(*paths, argument, progress))

    @contextlib.contextmanager
    def commit(self, store: Icechunk, message: str) -> Iterator[None]:
        """Make one commit of all that calls write to an Icechunk repository in a `with` block.

        Parameters
        ----------
        store : Icechunk
            The repository. The same on all ranks, as `message` is.
        message : str
            What the commit says.

        Returns
        -------
        context manager
            Of the block.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `BusyError` when another program has
            committed meanwhile. Nothing of what the block has written is there then; nor if a call
            of it, or its program on any rank, has failed.

        Notes
        -----
        Collective at its end. Collective reads in the block see what it has written.
        """
        with contextlib.ExitStack() as held:
            with self._preparing("beginning a commit"):
                if not isinstance(store, Icechunk):
                    raise schema_error(f"a store is a penstock.Icechunk, not {type_name(store)}")
                block = held.enter_context(_icechunk.block(store, str(message), self.rank == 0))
            with self._preparing("writing for one commit"):
                yield
                block.is_ending = True
            self._session.commit(store.url)

    def barrier(self) -> None:
        """Wait until all clients are here.

        Raises
        ------
        PeerError, MismatchError
            When another rank has left the session, or makes another call.

        Notes
        -----
        Collective.
        """
        self._session.barrier()

    def close(self) -> None:
        """End the session. Closing again does nothing.

        Raises
        ------
        PeerError, MismatchError
            When another rank has left the session, or makes another call.

        Notes
        -----
        Collective.
        """
        self._is_over = True
        self._session.close()

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
        else:
            self._is_over = True
            self._session.leave(f"its program ended with {type(error).__name__}: {error}")

    @contextlib.contextmanager
    def _preparing(self, doing: str) -> Iterator[None]:
        """Prepare what this rank brings to a collective call. Where it cannot, all ranks hear why.

        The exception on this rank keeps its type where it is an `Error`; any other is the cause of
        the `Error` that all ranks raise.
        """
        try:
            yield
        except Exception as error:
            verdict = self._refused(doing, error)
            if verdict is error:
                raise
            raise verdict from error

    def _refused(self, doing: str, error: Exception) -> Exception:
        """Take part in the call that this rank cannot make, and give the error that it comes to on
        all ranks: `error` itself, or that of a lower rank."""
        kind, cause = "Schema", f"{type(error).__name__}: {error}"
        if isinstance(error, Error):
            kind, doing, cause = error.kind, error.doing or doing, error.cause
        verdict = self._session.refuse(kind, doing, cause)
        if not isinstance(error, Error) or (verdict.rank, verdict.cause) != (self.rank, cause):
            return verdict
        # It may be of a narrower class.
        error.args, error.rank, error.doing = verdict.args, verdict.rank, verdict.doing
        return error

    def _call(
        self,
        path: Path,
        array: Array,
        region: Region | None,
        attrs: Attributes | None,
        strategy: Strategy | None,
    ) -> _Call:
        """What ranks agree on in a call about one array."""
        array = array_argument(array)
        if array._is_ragged:
            raise schema_error(f"'{array.name}' is of rows: it is saved with a group")
        if region is not None:
            array = array._with(memory=regions_of(region, array.shape))
        spec = array._spec_with(attrs) if attrs else array._spec
        return _Call(self._path(path), array, spec, None if strategy is None else str(strategy))

    def _room(self, array: Array, out: Local | None) -> tuple[Room, Local]:
        """Memory to read into, and what the caller gets: `out`, or new arrays."""
        if out is not None:
            return Room.of(own_parts(array, out, to_fill=True)), out
        parts = new_parts(array, self.rank)
        return Room.of(parts), _as_held(array, parts)

    def _saved(
        self, group: Group, values: Mapping[str, Local], *, copy: bool = False
    ) -> tuple[_core.PyGroup, list[list[np.ndarray]]]:
        """A group and this rank's parts as a call takes them."""
        given = _group(group)._parts(values)
        parts = [parts_of(array, part) for array, part in zip(group.arrays, given, strict=True)]
        if copy:
            parts = [[np.array(part, copy=True) for part in of_array] for of_array in parts]
        if self.options.root is None:
            return group._spec, parts
        return group._spec_at(self._path(group.path), group.arrays), parts

    def _path(self, path: Path) -> str:
        if isinstance(path, Icechunk | IcechunkPath) and isinstance(self.options.servers, str):
            raise schema_error("servers that stand have no Icechunk repositories")
        path, root = os.fspath(path), self.options.root
        return path if root is None else os.path.join(root, path)


@dataclasses.dataclass(frozen=True)
class _Call:
    """What ranks agree on in a call about one array."""

    path: str
    array: Array
    spec: _core.Spec
    strategy: str | None


def _moment(
    step: int | None, time: float | None, attrs: Attributes | None
) -> tuple[int | None, float | None, str]:
    """Step, time and attributes of a checkpoint as a call takes them."""
    number = None if step is None else operator.index(step)
    return number, None if time is None else float(time), attributes(attrs or {})


def _group(group: object) -> Group:
    if not isinstance(group, Group):
        raise schema_error(f"a group is a penstock.Group, not {type_name(group)}")
    return group


def _as_held(array: Array, parts: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """A rank's local arrays as a program gets them: one, or a list."""
    return parts if array._has_several else parts[0]
