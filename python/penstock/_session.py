"""Sessions: the ranks of a program, ready for collective calls."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

import numpy as np

from penstock import _core
from penstock._errors import Error, PeerError, schema_error, type_name
from penstock._group import Group, State
from penstock._json import attributes
from penstock._options import Options, SessionOptions, Strategy, check_count, session_options
from penstock._schema import Array, Region, _region, _Regions
from penstock._stores import CopyOptions, CopyReport, copy_argument

if TYPE_CHECKING:
    from mpi4py import MPI

Path = str | os.PathLike[str]
Background = Literal["all", "disk", "none"]
T = TypeVar("T")

_seats = threading.local()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a collective call has done.

    Attributes
    ----------
    bytes : int
        Bytes of the array.
    seconds : float
        Wall time on this rank.
    blocks : int
        Blocks moved by all servers.
    disk_bytes : int
        Bytes between buffers and disks, decoded, padding included.
    transfers : int
        Memgets or memputs.
    buffer_bytes : int
        Bytes of staging buffers of all servers.
    servers : int
        Number of servers.
    """

    bytes: int
    seconds: float
    blocks: int
    disk_bytes: int
    transfers: int
    buffer_bytes: int
    servers: int


class Session:
    """The ranks of a program and the servers among or beside them.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        The ranks. Without it the session is embedded: this process is the only rank, or this thread
        one of those that `run` has started. Communication is Penstock's own: the communicator is
        duplicated.
    transport : {"shared", "messages"}
        How ranks of one host reach each other: by shared memory, or by MPI messages as ranks of
        different hosts do.
    root : path, optional
        The directory in which relative paths are. With `{server}` in it, such as
        `/nvme{server}/out`, each server has one of its own, with the number in its place, and
        keeps the chunks or parts that it writes there; the metadata are server 0's. `read` and
        `restart` find them where they are; `penstock gather` makes one store of them. Not for
        row-major files.
    options : SessionOptions, optional
        How it is set up.
    **changes
        Fields of `SessionOptions` that differ from `options`: `servers=2, sync=False`.

    A session is a context manager: at the end of a `with` block it is closed; if the block ends
    with an exception, the calls of all other ranks fail with `PeerError`, instead of waiting.
    Ctrl-C ends a call on this rank: `KeyboardInterrupt` is raised, and the session is over.

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
    """

    def __init__(
        self,
        comm: MPI.Comm | None = None,
        *,
        transport: Literal["shared", "messages"] = "shared",
        root: Path | None = None,
        options: SessionOptions | None = None,
        **changes: Unpack[Options],
    ) -> None:
        self._root = None if root is None else os.fspath(root)
        self._is_over = True
        seat = getattr(_seats, "seat", None)
        if comm is not None:
            self._session = _join(comm, transport, options, changes)
        elif seat is not None:
            self._session = seat.open()
        else:
            chosen = session_options(options, changes)
            (seat,) = _core.seats(1, chosen._argument(dedicated=True))
            self._session = seat.open()
        self._is_over = False
        self.rank: int | None = self._session.rank
        self.size: int = self._session.size
        self.servers: int = self._session.servers
        self.is_client: bool = self.rank is not None

    def write(
        self,
        path: Path,
        array: Array,
        local: Any,
        attrs: Mapping[str, Any] | None = None,
        *,
        region: Region | None = None,
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
            The same on all ranks, boxes apart.
        local : numpy.ndarray
            Of shape `array.local_shape(rank)` and the array's dtype, in any order and with any
            strides, or what `numpy.asarray` takes without a copy, an xarray.DataArray too. It is
            read in place. A list of them where the memory schema is a list of boxes.
        attrs : mapping, optional
            Attributes of the array: what JSON can hold, and NumPy's scalars. Not for `npy`.
        region : slice, int, tuple of these, Boxes, or list of such, optional
            This rank's part of the array, in place of the memory schema: `local` has the region's
            shape, an index counting as one element, and what no rank's region holds stays as it is
            stored. A rank without a part gives an empty slice. Several regions are a list, as is
            `local` then. Regions that overlap are refused. If the array is not there it is made, of
            the fill value. The disk schema is that of the store. Disk-directed only.
        strategy : str, optional
            How: as the session's. Default: the session's. The same on all ranks.

        Returns
        -------
        Report
            Bytes and seconds, and what the servers moved.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. What stood at `path` is then as it was.
            On success it is replaced by one rename: whoever opens the array finds the old one or
            the new, whole. A reader that opened the old one before and reads on may meet files of
            the new: `Session.read` notices that and fails with `BusyError`, zarr-python does not.

        Notes
        -----
        Collective. Disk-directed (Kotz, TOCS 1997, section 3), unless another strategy is named:
        servers pull the pieces of one block after the other out of the ranks' memories.
        """
        with self._preparing("writing an array"):
            call = self._call(path, array, region, attrs, strategy)
            parts = _parts(call.array, local)
        return Report(*self._session.write(call.path, call.spec, parts, call.strategy))

    def read(
        self,
        path: Path,
        array: Array,
        out: Any = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
    ) -> Any:
        """Read `array`, each rank the part that its memory schema gives it.

        Parameters
        ----------
        path : path
            As of `write`, or any Zarr array (v3 or v2), `.npy` file or directory of parts, also of
            other makers.
        array : Array
            Name, shape, dtype and memory schema count. The disk schema is that of the store, except
            that a raw file is what `array` says.
        out : numpy.ndarray, optional
            Where to put it, as `local` of `write`; halo cells are left alone. Default: a new array,
            with halo cells of 0, or a list of them.
        region : slice, int, tuple of these, Boxes, or list of such, optional
            This rank's part of the array, in place of the memory schema, as of `write`. Regions may
            overlap.
        strategy : str, optional
            How: as the session's. Default: the session's. The same on all ranks.

        Returns
        -------
        numpy.ndarray
            The local part: `out` where it was given.

        Raises
        ------
        Error
            Of the kind that fits; the same on all ranks. `out` may then hold anything.

        Notes
        -----
        Collective.
        """
        with self._preparing("reading an array"):
            call = self._call(path, array, region, None, strategy)
            parts, out = self._parts_to_fill(call.array, out)
        self._session.read(call.path, call.spec, parts, call.strategy)
        return out

    def begin_write(
        self,
        path: Path,
        array: Array,
        local: Any,
        attrs: Mapping[str, Any] | None = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
        copy: bool = False,
    ) -> Split:
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
            To be ended, also before the session is closed.

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
            parts = _parts(call.array, local)
            if copy:
                parts = [np.array(part, copy=True) for part in parts]
            on = None if background is None else str(background)
        begun = self._session.begin(call.path, call.spec, parts, True, call.strategy, on)
        return Split(self, begun, f"a write of '{array.name}' to {call.path}", None)

    def begin_read(
        self,
        path: Path,
        array: Array,
        out: Any = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
        background: Background | None = None,
    ) -> Split:
        """Begin to read `array`: compute, then `end` what this returns, which gives the local part.

        Parameters and errors are those of `read` and `begin_write`. With `background="disk"` the
        disks read while the ranks compute, and elements go to their ranks in `end`. `out` must be
        left alone until then.

        Notes
        -----
        Collective, in the same order on all ranks. Several may be under way.
        """
        with self._preparing("reading an array"):
            call = self._call(path, array, region, None, strategy)
            parts, out = self._parts_to_fill(call.array, out)
            on = None if background is None else str(background)
        begun = self._session.begin(call.path, call.spec, parts, False, call.strategy, on)
        return Split(self, begun, f"a read of '{array.name}' from {call.path}", out)

    def open(self, path: Path, name: str | None = None) -> Array:
        """The array at `path` as it is stored, with its attributes in `attrs`. In memory, rank 0
        holds all of it, until `with_memory` says otherwise.

        `name` says which, where `path` is a group of several. Not collective.

        Raises
        ------
        MissingError, DamagedError, UnsupportedError
            When it is not there, or cannot be understood.
        """
        return Array._of_disk(_core.open_schema(self._path(path), name))

    def explain(
        self,
        path: Path,
        array: Array,
        operation: Literal["write", "read"] = "write",
        *,
        strategy: Strategy | None = None,
    ) -> str:
        """What a write (or read) would do: servers, blocks, bytes, messages, memory, order; by the
        session's strategy if none is named.

        Nothing is written. Not collective.
        """
        if operation not in ("write", "read"):
            raise schema_error(f"'{operation}' is no operation: use 'write' or 'read'")
        call = self._call(path, array, None, None, strategy)
        return self._session.explain(call.path, call.spec, operation == "write", call.strategy)

    def timestep(
        self, group: Group, values: Mapping[str, Any], *, time: float | None = None
    ) -> Report:
        """Append a timestep of all arrays of `group`: one collective request.

        In the store each array has a leading dimension `time`, and there is an array `time` of its
        coordinates. Arrays of rows have none: the rows of all timesteps follow each other, and for
        their dimension, say `particle`, `particle_start` and `particle_count` tell which are of
        which timestep (CF's contiguous ragged array). Readers see the timestep whole or not at
        all, at any moment and after a crash.

        Parameters
        ----------
        group : Group
            The same on all ranks, boxes apart.
        values : mapping of str to numpy.ndarray
            This rank's part of each array, by name: as `local` of `write`. Of an array of rows, as
            many as it has this time: arrays with the same first dimension have as many.
        time : float, optional
            After that of the last timestep. Default: the timestep's number. The same on all ranks.

        Returns
        -------
        Report
            Of all arrays together.

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
        """
        with self._preparing("writing a timestep"):
            spec, parts = self._saved(group, values)
            at = None if time is None else float(time)
        return Report(*self._session.timestep(spec, parts, at))

    def checkpoint(
        self,
        group: Group,
        values: Mapping[str, Any],
        *,
        step: int | None = None,
        time: float | None = None,
        attrs: Mapping[str, Any] | None = None,
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
            Of all arrays together.

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
            number = None if step is None else operator.index(step)
            at = None if time is None else float(time)
            about = attributes(attrs or {})
        return Report(*self._session.checkpoint(spec, parts, number, at, about))

    def restart(self, group: Group, *, step: int | None = None) -> State | None:
        """The newest complete checkpoint of `group`, or that of `step`; None where there is none.

        The number of ranks and the memory schemas may be others than when it was saved. The
        session's next save goes on from here: it drops timesteps and checkpoints that came after
        this one.

        Parameters
        ----------
        group : Group
            The same on all ranks, boxes apart.
        step : int, optional
            Of which step. The same on all ranks.

        Returns
        -------
        State or None
            `state[name]` is this rank's part of an array, of one of rows an even share of them;
            `state.step`, `state.time`, `state.attrs`.

        Raises
        ------
        Error
            The same on all ranks. `DamagedError` when a checksum does not fit: an older checkpoint
            may still be whole, and `step` names it. `MissingError` when there is none of `step`.

        Notes
        -----
        Collective; disk-directed.
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
            filled = [self._parts_to_fill(array, None) for array in arrays]
        self._session.restart(found, spec, [parts for parts, _ in filled])
        values = {a.name: out for a, (_, out) in zip(arrays, filled, strict=True)}
        return State(values, found)

    def copy(
        self,
        source: Path,
        target: Path,
        *,
        progress: Callable[[int, int], object] | None = None,
        **options: Unpack[CopyOptions],
    ) -> CopyReport:
        """Copy what is at `source` to `target`, with all ranks: as `penstock.copy`, whose options
        these are. What `progress` raises ends the copy on this rank, and the session with it.

        Notes
        -----
        Collective; disk-directed.
        """
        with self._preparing("copying"):
            argument = copy_argument(target, options)
            paths = (self._path(source), self._path(target))
        return CopyReport._of(self._session.copy(*paths, argument, progress))

    def barrier(self) -> None:
        """Wait until all clients are here. Collective."""
        self._session.barrier()

    def close(self) -> None:
        """End the session. Collective. Closing again does nothing."""
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
        """What this rank brings to a collective call. Where it cannot, all ranks hear why."""
        try:
            yield
        except Exception as error:
            verdict = self._refused(doing, error)
            if verdict is error:
                raise
            raise verdict from error

    def _refused(self, doing: str, error: Exception) -> Exception:
        """What the call comes to on all ranks that this one has no part of: `error` itself, or that
        of a lower rank."""
        kind, cause = "Schema", f"{type(error).__name__}: {error}"
        if isinstance(error, Error):
            kind, doing, cause = error.kind, error.doing or doing, error.cause
        verdict: Error = self._session.refuse(kind, doing, cause)
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
        attrs: Mapping[str, Any] | None,
        strategy: Strategy | None,
    ) -> _Call:
        """What ranks agree on in a call about one array."""
        if not isinstance(array, Array):
            raise schema_error(f"an array is a penstock.Array, not {type_name(array)}")
        if array._is_ragged:
            raise schema_error(f"'{array.name}' is of rows: it is saved with a group")
        if region is not None:
            is_list = isinstance(region, Sequence) and not isinstance(region, tuple)
            regions = region if is_list else [region]
            boxes = tuple(_region(each, array.shape) for each in regions)
            array = array._with(memory=_Regions(boxes, is_list))
        spec = array._spec_with(attrs) if attrs else array._spec
        return _Call(self._path(path), array, spec, None if strategy is None else str(strategy))

    def _parts_to_fill(self, array: Array, out: Any) -> tuple[list[np.ndarray], Any]:
        """Arrays to read into, and what the caller gets: `out`, or new ones."""
        if out is not None:
            return _parts(array, out, to_fill=True), out
        if self.rank is None:
            raise schema_error("this rank is a dedicated server: it makes no calls")
        parts = [np.zeros(shape, array.dtype) for shape in array.local_shapes(self.rank)]
        return parts, parts if array._has_several else parts[0]

    def _saved(
        self, group: Group, values: Mapping[str, Any]
    ) -> tuple[_core.PyGroup, list[list[np.ndarray]]]:
        """A group and this rank's parts as a call takes them."""
        given = _group(group)._parts(values)
        parts = [_parts(array, part) for array, part in zip(group.arrays, given, strict=True)]
        if self._root is None:
            return group._spec, parts
        return group._spec_at(self._path(group.path), group.arrays), parts

    def _path(self, path: Path) -> str:
        path = os.fspath(path)
        return path if self._root is None else os.path.join(self._root, path)


@dataclasses.dataclass(frozen=True)
class _Call:
    """What ranks agree on in a call about one array."""

    path: str
    array: Array
    spec: _core.Spec
    strategy: str | None


class Split:
    """A write or read that has been begun by `Session.begin_write` or `Session.begin_read`.

    It is to be ended. One that nobody can end any more, because it is gone, is ended by the session
    with a `ResourceWarning`.
    """

    def __init__(
        self, session: Session, begun: _core.PyOutstanding, about: str, local: Any
    ) -> None:
        self._session, self._begun, self._about, self._local = session, begun, about, local
        self._is_over = False

    def test(self) -> bool:
        """Whether `end` need not wait. Does not wait itself.

        What has been begun with `background="disk"` or "none" goes on a little with each call, and
        may need that of all ranks. Not collective.
        """
        return self._begun.has_ended(self._session._session)

    def end(self) -> Any:
        """Wait for the end.

        Returns
        -------
        Report or numpy.ndarray
            Of a write what it has done, its seconds from the beginning; of a read the local part.

        Raises
        ------
        Error
            As of `Session.write`; the same on all ranks. `SchemaError` when it has been ended
            before.

        Notes
        -----
        Collective, in any order.
        """
        self._is_over = True
        report = Report(*self._begun.end(self._session._session))
        return report if self._local is None else self._local

    def __repr__(self) -> str:
        return f"<Split: {self._about}>"

    def __del__(self) -> None:
        if getattr(self, "_is_over", True) or self._session._is_over:
            return
        about = f"{self._about} was begun and never ended"
        warnings.warn(about, ResourceWarning, stacklevel=2, source=self)
        with contextlib.suppress(Error):  # the session ends it when it is closed
            self._begun.abandon(self._session._session)


def run(
    main: Callable[[Session], T],
    ranks: int = 1,
    *,
    options: SessionOptions | None = None,
    **changes: Unpack[Options],
) -> list[T]:
    """Run `main(session)` on `ranks` threads, as an SPMD program: for tests and notebooks.

    Returns what the ranks returned, by rank. A rank's exception is raised here, after all have
    ended: the others' calls fail with `PeerError` instead of waiting for it. `options` and
    `changes` are those of `Session`.
    """
    check_count("ranks", ranks)
    seats = _core.seats(ranks, session_options(options, changes)._argument())
    results: list[Any] = [None] * ranks
    errors: list[BaseException | None] = [None] * ranks

    def rank_main(rank: int) -> None:
        _seats.seat = seats[rank]
        try:
            with Session() as session:
                results[rank] = main(session)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            errors[rank] = error

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank-{rank}")
        for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        seats[0].interrupt()
        for thread in threads:
            thread.join()
        raise
    # What a rank did wrong tells more than that the others lost it.
    raised = [error for error in errors if error is not None]
    for error in raised:
        if not isinstance(error, PeerError):
            raise error
    if raised:
        raise raised[0]
    return results


def _group(group: Any) -> Group:
    if not isinstance(group, Group):
        raise schema_error(f"a group is a penstock.Group, not {type_name(group)}")
    return group


def _parts(array: Array, local: Any, *, to_fill: bool = False) -> list[np.ndarray]:
    """A rank's local arrays, in place: one, or one for each of its boxes."""
    if not array._has_several:
        return [_in_place(local, to_fill)]
    if isinstance(local, np.ndarray) or not isinstance(local, Sequence):
        raise schema_error(
            f"'{array.name}' is held in boxes: give a list of local arrays, not {type_name(local)}"
        )
    return [_in_place(part, to_fill) for part in local]


def _in_place(local: Any, to_fill: bool) -> np.ndarray:
    """The memory of a local array as one of NumPy's."""
    if isinstance(local, np.ma.MaskedArray):
        raise schema_error("a masked array cannot be moved: give its filled() or its data")
    if isinstance(local, np.ndarray):
        return local
    try:
        array = np.asarray(local, copy=False)
        is_own = array.size == 0 or np.shares_memory(array, np.asarray(local, copy=False))
    except Exception:  # noqa: BLE001 - whatever a type says that has no memory to offer
        is_own = False
    if not is_own:
        purpose = "read into" if to_fill else "written"
        raise schema_error(
            "a local array is one of NumPy's, or what numpy.asarray takes without a copy: a "
            f"{type_name(local)} cannot be {purpose} in place"
        )
    return array


def _join(
    comm: MPI.Comm,
    transport: str,
    options: SessionOptions | None,
    changes: Options,
) -> _core.PySession:
    """The session of this rank of an MPI job."""
    argument, wrong = None, None
    try:
        argument = session_options(options, changes)._argument()
    except Exception as error:  # noqa: BLE001 - the other ranks must hear of it
        wrong = error
    told = None
    if wrong is not None:
        kind = wrong.kind if isinstance(wrong, Error) else "Schema"
        told = (kind, str(wrong))
    try:
        return _core.join_mpi(_mpi(comm), str(transport), argument, told)
    except Error as verdict:
        raise verdict from wrong


def _mpi(comm: MPI.Comm) -> tuple[str, int, int, int, bool]:
    """How the MPI library behind `comm` is reached; see docs/decisions/002-mpi-at-run-time.md."""
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm):
        raise schema_error(f"a session needs an MPI intracommunicator, not {type_name(comm)}")
    if MPI.Query_thread() < MPI.THREAD_FUNNELED:
        raise schema_error("MPI must be initialised with MPI_THREAD_FUNNELED or more")
    byte, any_thread = MPI._handleof(MPI.BYTE), MPI.Query_thread() == MPI.THREAD_MULTIPLE
    return MPI.__file__, MPI._handleof(comm), byte, MPI.ANY_SOURCE, any_thread
