"""Sessions: the ranks of a program, ready for collective calls."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from penstock import _core
from penstock._errors import schema_error
from penstock._group import Group, State
from penstock._schema import Array, Region, _region

if TYPE_CHECKING:
    from mpi4py import MPI

Report = _core.PyReport
Path = str | os.PathLike[str]
Strategy = Literal[
    "disk-directed",
    "two-phase",
    "two-phase:1",
    "two-phase:2",
    "two-phase:3",
    "two-phase:4",
    "two-phase:5",
    "caching",
    "independent",
]
Background = Literal["all", "disk", "none"]
T = TypeVar("T")

_seats = threading.local()
_small: tuple[int, int] | None = None
"""For tests: blocks of a cache for each client, and bytes of a client's staging buffer."""
_trial: dict[str, Any] | None = None
"""For tests and benchmarks: `bytes_per_second` of each disk, `faults`, and whether it is `null`."""


class Session:
    """The ranks of a program and the servers among or beside them.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        The ranks. Without it the session is embedded: this process is the only rank, or this thread
        one of those that `run` has started. Communication is Penstock's own: the communicator is
        duplicated.
    servers : int, optional
        Number of I/O servers. Default: one for each processor of a host, but not more than it has
        ranks (embedded: at most two for a single rank).
    dedicated : bool, optional
        Whether servers do nothing else. By default some ranks also serve during each call; in an
        embedded session of a single rank, threads beside it serve. Under MPI a dedicated server's
        constructor returns only when the clients have closed the session: `is_client` is then
        False, and there is nothing left to do for that rank.
    transport : {"shared", "messages"}
        How ranks of one host reach each other: by shared memory, or by MPI messages as ranks of
        different hosts do.
    sync : bool
        Whether a write returns only when the data are on stable storage.
    block_bytes : int
        The most bytes that a server moves at once where the store leaves it a choice. It has two
        buffers of that size.
    strategy : {"disk-directed", "two-phase", "caching", "independent"}
        How calls are met; each call may name another. All store the same bytes.

        - `disk-directed`: servers pull and push the pieces of one block after the other (Kotz).
        - `two-phase`: ranks exchange elements by messages, and move large parts of the file
          themselves (del Rosario, Bordawekar and Choudhary). A rank needs up to 16 MiB, or one
          block, and send buffers. `two-phase:1` to `two-phase:5` are the steps of Dickens and
          Thakur (section 3.3): 1 one message after the other, copied byte for byte; 2 the same,
          copied fast; 3 all at once, sends first; 4 receives first; 5, the default, receives first,
          and one send at a time.
        - `caching`: ranks ask for one contiguous chunk after the other, servers cache: up to eight
          blocks for each rank.
        - `independent`: every rank moves its own contiguous runs, without servers. It cannot write
          where several ranks hold elements of one chunk that has a codec or sub-chunks.

    background_bytes : int
        The most memory that a server, or a rank that moves blocks itself, fills while disks work in
        the background: see `begin_write`. It is reserved until the session ends.
    direct : bool
        Whether the elements of flat files, and of chunks without codec, go around the page cache
        (O_DIRECT): for large blocks on a fast disk, whose data are not soon read again, as in a
        restart. Blocks of 512 KiB and more lie in huge pages for it. `UnsupportedError` where the
        file system has no direct I/O.
    root : path, optional
        The directory in which relative paths are. With `{server}` in it, such as
        `/nvme{server}/out`, each server has one of its own, with the number in its place, and
        keeps the chunks or parts that it writes there; the metadata are server 0's. `read` and
        `restart` find them where they are; `penstock gather` makes one store of them. Not for
        row-major files.

    A session is a context manager: at the end of a `with` block it is closed; if the block ends
    with an exception, the calls of all other ranks fail with `PeerError`, instead of waiting.

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
        servers: int | None = None,
        dedicated: bool | None = None,
        transport: Literal["shared", "messages"] = "shared",
        sync: bool = True,
        block_bytes: int = _core.BLOCK_BYTES,
        strategy: Strategy = "disk-directed",
        background_bytes: int = _core.BACKGROUND_BYTES,
        direct: bool = False,
        root: Path | None = None,
    ) -> None:
        self._root = None if root is None else os.fspath(root)
        wrong = _wrong_count(
            servers=servers, block_bytes=block_bytes, background_bytes=background_bytes
        )
        if comm is None and wrong:
            raise schema_error(f"opening a session: {wrong}")
        if wrong:  # the other ranks must hear of it
            servers, block_bytes = None, _core.BLOCK_BYTES
            background_bytes = _core.BACKGROUND_BYTES
        seat = getattr(_seats, "seat", None)
        if comm is not None:
            setup = _setup(
                servers, dedicated, sync, block_bytes, background_bytes, direct, strategy
            )
            self._session = _core.join_mpi(_mpi(comm), str(transport), setup, wrong)
        elif seat is not None:
            self._session = seat.open()
        else:
            aside = True if dedicated is None else dedicated
            setup = _setup(servers, aside, sync, block_bytes, background_bytes, direct, strategy)
            (seat,) = _core.seats(1, setup)
            self._session = seat.open()
        self.rank: int | None = self._session.rank
        self.size: int = self._session.size
        self.servers: int = self._session.servers
        self.is_client: bool = self.rank is not None

    def write(
        self,
        path: Path,
        array: Array,
        local: np.ndarray,
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
            strides. It is read in place.
        attrs : mapping, optional
            Attributes of the array, as JSON can hold them. Not for `npy`.
        region : slice, int, tuple of these, or Boxes, optional
            This rank's part of the array, in place of the memory schema: `local` has the region's
            shape, an index counting as one element, and what no rank's region holds stays as it is
            stored. A rank without a part gives an empty slice. Regions that overlap are refused. If
            the array is not there it is made, of zeros. The disk schema is that of the store.
            Disk-directed only.
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
            On success it is replaced at once: a reader never sees half of it.

        Notes
        -----
        Collective. Disk-directed (Kotz, TOCS 1997, section 3), unless another strategy is named:
        servers pull the pieces of one block after the other out of the ranks' memories.
        """
        described = _described(array, region, attrs)
        return self._session.write(self._path(path), described, local, strategy)

    def read(
        self,
        path: Path,
        array: Array,
        out: np.ndarray | None = None,
        *,
        region: Region | None = None,
        strategy: Strategy | None = None,
    ) -> np.ndarray:
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
            Where to put it, of shape `array.local_shape(rank)`; halo cells are left alone. Default:
            a new array, with halo cells of 0.
        region : slice, int, tuple of these, or Boxes, optional
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
        described = _described(array, region)
        local = self._local(described, out)
        self._session.read(self._path(path), described, local, strategy)
        return local

    def begin_write(
        self,
        path: Path,
        array: Array,
        local: np.ndarray,
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
        described = _described(array, region, attrs)
        if copy:
            local = _given(lambda: np.array(local, copy=True, subok=False))
        begun = self._session.begin(self._path(path), described, local, True, strategy, background)
        return Split(self, begun, None)

    def begin_read(
        self,
        path: Path,
        array: Array,
        out: np.ndarray | None = None,
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
        described = _described(array, region)
        local = self._local(described, out)
        begun = self._session.begin(self._path(path), described, local, False, strategy, background)
        return Split(self, begun, local)

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
        by = None if strategy is None else str(strategy)
        return self._session.explain(self._path(path), array._spec, operation == "write", by)

    def timestep(
        self, group: Group, values: Mapping[str, np.ndarray], *, time: float | None = None
    ) -> Report:
        """Append a timestep of all arrays of `group`: one collective request.

        In the store each array has a leading dimension `time`, and there is an array `time` of its
        coordinates. Readers see the timestep whole or not at all, at any moment and after a crash.

        Parameters
        ----------
        group : Group
            The same on all ranks, boxes apart.
        values : mapping of str to numpy.ndarray
            This rank's part of each array, by name: as `local` of `write`.
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
        spec, locals_ = self._saved(group, values)
        return self._session.timestep(spec, locals_, time)

    def checkpoint(
        self,
        group: Group,
        values: Mapping[str, np.ndarray],
        *,
        step: int | None = None,
        time: float | None = None,
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
        spec, locals_ = self._saved(group, values)
        return self._session.checkpoint(spec, locals_, step, time)

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
            `state[name]` is this rank's part of an array; `state.step`, `state.time`.

        Raises
        ------
        Error
            The same on all ranks. `DamagedError` when a checksum does not fit: an older checkpoint
            may still be whole, and `step` names it. `MissingError` when there is none of `step`.

        Notes
        -----
        Collective; disk-directed.
        """
        found = self._session.find_checkpoint(self._path(group.path), step)
        if found is None:
            return None
        values = _given(lambda: [self._local(array, None) for array in group.arrays])
        self._session.restart(found, group._spec_at(self._path(group.path)), values)
        return State({a.name: v for a, v in zip(group.arrays, values, strict=True)}, found)

    def barrier(self) -> None:
        """Wait until all clients are here. Collective."""
        self._session.barrier()

    def close(self) -> None:
        """End the session. Collective. Closing again does nothing."""
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
            self._session.leave(f"its program ended with {type(error).__name__}: {error}")

    def _local(self, array: Array, out: np.ndarray | None) -> Any:
        if out is not None:
            return out
        return _given(lambda: np.zeros(array.local_shape(self._rank()), array.dtype))

    def _saved(self, group: Group, values: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        """A group and this rank's parts as a call takes them, or the words of why it cannot."""
        spec = _given(lambda: group._spec_at(self._path(group.path)))
        return spec, _given(lambda: group._locals(values))

    def _path(self, path: Path) -> Path:
        return path if self._root is None else os.path.join(self._root, path)

    def _rank(self) -> int:
        if self.rank is None:
            raise schema_error("this rank is a dedicated server: it makes no calls")
        return self.rank


class Split:
    """A write or read that has been begun by `Session.begin_write` or `Session.begin_read`."""

    def __init__(self, session: Session, begun: _core.PyOutstanding, local: Any) -> None:
        self._session, self._begun, self._local = session, begun, local

    def test(self) -> bool:
        """Whether `end` need not wait. Does not wait itself.

        What has been begun with `background="disk"` or "none" goes on a little with each call, and
        may need that of all ranks. Not collective.
        """
        return self._begun.has_ended(self._session._session)

    def end(self) -> Report | np.ndarray:
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
        report = self._begun.end(self._session._session)
        return report if self._local is None else self._local


def run(
    main: Callable[[Session], T],
    ranks: int = 1,
    *,
    servers: int | None = None,
    dedicated: bool = False,
    sync: bool = True,
    block_bytes: int = _core.BLOCK_BYTES,
    strategy: Strategy = "disk-directed",
    background_bytes: int = _core.BACKGROUND_BYTES,
    direct: bool = False,
) -> list[T]:
    """Run `main(session)` on `ranks` threads, as an SPMD program: for tests and notebooks.

    Returns what the ranks returned, by rank. A rank's exception is raised here, after all have
    ended: the others' calls fail with `PeerError` instead of waiting for it.
    """
    counts = {"servers": servers, "block_bytes": block_bytes, "background_bytes": background_bytes}
    if wrong := _wrong_count(ranks=ranks, **counts):
        raise schema_error(f"running on threads: {wrong}")
    setup = _setup(servers, dedicated, sync, block_bytes, background_bytes, direct, strategy)
    seats = _core.seats(ranks, setup)
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
    for thread in threads:
        thread.join()
    # What a rank did wrong tells more than that the others lost it.
    raised = [error for error in errors if error is not None]
    for error in raised:
        if not isinstance(error, _core.PeerError):
            raise error
    if raised:
        raise raised[0]
    return results


def _setup(
    servers: int | None,
    dedicated: bool | None,
    sync: bool,
    block_bytes: int,
    background_bytes: int,
    direct: bool,
    strategy: str,
) -> dict[str, Any]:
    """How a session is set up, as the Rust side takes it."""
    return {
        "servers": servers,
        "dedicated": bool(dedicated),
        "sync": bool(sync),
        "block_bytes": block_bytes,
        "background_bytes": background_bytes,
        "direct": bool(direct),
        "strategy": str(strategy),
        "small": _small,
        "trial": None if _trial is None else json.dumps(_trial),
    }


def _wrong_count(**counts: Any) -> str | None:
    """What is wrong with options that must be positive integers (or servers None, its default)."""
    for name, count in counts.items():
        is_default = name == "servers" and count is None
        if not is_default and not (isinstance(count, int) and 0 < count < 2**48):
            return f"{name} must be an integer of at least 1, not {count!r}"
    return None


def _described(array: Array, region: Region | None, attrs: Mapping[str, Any] | None = None) -> Any:
    """`array` as a call takes it, or the words of why it cannot."""
    if region is None and not attrs:
        return array

    def make() -> Any:
        described = array
        if region is not None:
            described = array.with_memory(_region(region, array.shape))
        return described._spec_with(attrs) if attrs else described

    return _given(make)


def _given(make: Callable[[], Any]) -> Any:
    """What `make` makes, or the words of why it cannot: the call then fails on all ranks alike."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - becomes the call's verdict
        return f"{type(error).__name__}: {error}"


def _mpi(comm: MPI.Comm) -> tuple[str, int, int, int, bool]:
    """How the MPI library behind `comm` is reached; see docs/decisions/002-mpi-at-run-time.md."""
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm):
        raise schema_error(f"a session needs an MPI intracommunicator, not {comm!r}")
    if MPI.Query_thread() < MPI.THREAD_FUNNELED:
        raise schema_error("MPI must be initialised with MPI_THREAD_FUNNELED or more")
    byte, any_thread = MPI._handleof(MPI.BYTE), MPI.Query_thread() == MPI.THREAD_MULTIPLE
    return MPI.__file__, MPI._handleof(comm), byte, MPI.ANY_SOURCE, any_thread
