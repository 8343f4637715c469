"""Parallel files: `FileSystem`, and what it opens.

After Vesta (Corbett and Feitelson, ACM TOCS 14(3), 1996).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, overload

import numpy as np

from penstock import _core
from penstock._errors import Error, schema_error
from penstock._mpi import library_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from mpi4py import MPI

Order = Literal["block", "row", "column"]
Version = Literal["active", "checkpoint"]


@dataclass(frozen=True)
class View:
    """A view deals the BSUs of a file out to `vn * hn` disjoint subfiles (section 3.2).

    `vbs` BSUs down a cell and `hbs` cells across make a block; `vn` blocks down and `hn` across are
    of different subfiles. `View()` has one subfile: the whole file, striped over its cells by one
    BSU. `View(hn=cells)` has a subfile for each cell.
    """

    vbs: int = 1
    vn: int = 1
    hbs: int = 1
    hn: int = 1

    @property
    def subfiles(self) -> int:
        """The number of subfiles."""
        return self.vn * self.hn


@dataclass(frozen=True)
class Pointer:
    """A pointer into a subfile that processes share: a token to hand to others."""

    server: int
    number: int


@dataclass(frozen=True)
class FileStat:
    """The attributes of a file or directory.

    `times` are of creation, last access and last change, in nanoseconds since 1970. `cell_bytes`
    has the bytes up to the end of each cell that has any; their sum, `bytes`, is an upper bound of
    what a subfile has. A directory has no cells.
    """

    path: str
    is_directory: bool
    owner: int
    group: int
    mode: int
    times: tuple[int, int, int]
    cells: int
    bsu: int
    base: int
    checkpoints: int
    cell_bytes: dict[int, int]
    attached: list[dict[str, object]]

    @property
    def bytes(self) -> int:
        """The bytes up to the ends of all cells together."""
        return sum(self.cell_bytes.values())


@dataclass(frozen=True)
class Usage:
    """The space of a volume in bytes: in all, in use, of one user, and that user's quota."""

    bytes: int
    used: int
    of_user: int
    quota: int | None


def _bytes_of(data: "ReadableBuffer") -> np.ndarray:
    """The memory of a buffer as an array of bytes, which shares it."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise schema_error("the memory is not contiguous: give a copy")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


class _CreateVolume:
    """Makes volumes: `FileSystem.create`."""

    def __call__(
        self,
        path: str | os.PathLike[str],
        *,
        servers: int = 1,
        block_bytes: int = 65536,
        capacity: int | None = None,
        disks: Sequence[str | os.PathLike[str]] = (),
    ) -> "FileSystem":
        """Makes a volume, and opens it.

        Args:
            path: The path of the volume; `{server}` in it stands for the number of a server.
            servers: The number of servers, which stays.
            block_bytes: The bytes of a block.
            capacity: The bytes of each server's blocks, which are allocated. By default block files
                grow, up to the space that their file systems have free now.
            disks: The disks of each server: directories, or raw devices, with `{server}` for its
                number. By default one block file stands in the server's directory.

        Errors:
            `ExistsError` when something is there; `FullError`; `SchemaError` for options that do
            not fit.
        """
        places = [os.fspath(disk) for disk in disks]
        _core.create_volume(os.fspath(path), servers, block_bytes, capacity, places)
        return FileSystem(path)


class _CreateFile:
    """Makes files in a volume: `fs.create`."""

    def __init__(self, fs: _core.PyFileSystem) -> None:
        self._fs = fs

    def __call__(
        self,
        path: str,
        *,
        cells: int,
        bsu: int = 1,
        base: int | None = None,
        mode: int = 0o644,
    ) -> None:
        """Makes a file of `cells` cells and basic striping units of `bsu` bytes, which stay.

        Cells go round-robin to the servers, from server `base` on, or from one that is chosen.

        Errors:
            `ExistsError`, `MissingError` without the parent directory, `ReadOnlyError`;
            `SchemaError` for an impossible structure.
        """
        self._fs.create(path, cells, bsu, base, mode)


class _Create:
    """Makes volumes on the class, and files on one of its instances."""

    @overload
    def __get__(self, fs: None, owner: type["FileSystem"]) -> _CreateVolume: ...
    @overload
    def __get__(self, fs: "FileSystem", owner: type["FileSystem"]) -> _CreateFile: ...
    def __get__(
        self, fs: "FileSystem | None", owner: type["FileSystem"]
    ) -> _CreateVolume | _CreateFile:
        return _CreateVolume() if fs is None else _CreateFile(fs._fs)


class FileSystem:
    """A volume of parallel files, with its servers in this process or in the ranks of an MPI job.

    Args:
        path: The path of the volume; `{server}` in it stands for the number of a server.
        comm: An MPI communicator, whose ranks are the clients: opening and closing are collective
            over it. Servers are dealt out over hosts, and on each over its ranks.
        servers: The number of servers, if it is to be checked.
        dedicated: Whether ranks with servers do nothing else: there `rank` is `None` when the
            others have closed the file system, which is closed here, too.
        cache_bytes: The cache of each server.
        direct: Whether block files are read and written around the page cache.

    `FileSystem.create(path, servers=4)` makes a volume, and `fs.create(path, cells=8, bsu=4096)` a
    file in one.

    Any number of threads may use a file system. It is a context manager, which closes it.

    Errors:
        `MissingError` when there is no such volume; `BusyError` when another process has it open;
        `DamagedError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        comm: "MPI.Comm | None" = None,
        *,
        servers: int | None = None,
        dedicated: bool = False,
        cache_bytes: int = 32 << 20,
        direct: bool = False,
    ) -> None:
        place = os.fspath(path)
        self._open: _core.PyFileSystem | None
        self._rank: int | None = 0
        if comm is None:
            self._open = _core.open_volume(place, servers, cache_bytes, direct)
        else:
            library = library_of(comm)
            options = (cache_bytes, direct)
            self._open = _core.join_volume(library, place, servers, dedicated, options, None)
            self._rank = None if self._open is None else self._open.rank

    @property
    def _fs(self) -> _core.PyFileSystem:
        if self._open is None:
            raise schema_error("this rank has served alone, and the file system is closed")
        return self._open

    @property
    def rank(self) -> int | None:
        """The rank of this client; `None` where there were servers alone."""
        return self._rank

    create = _Create()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if value is None:
            self.close()
        elif self._open is not None:
            self._open.leave(f"{type(value).__name__}: {value}")

    def close(self) -> None:
        """Saves all, and ends the servers. A second close does nothing. Collective."""
        if self._open is not None:
            self._open.close()

    @property
    def servers(self) -> int:
        """The number of servers."""
        return self._fs.servers

    @property
    def block_bytes(self) -> int:
        """The bytes of a block."""
        return self._fs.block_bytes

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Makes a directory (a cross-reference list: section 4.1). Its parent must exist.

        Errors:
            `ExistsError`, `MissingError`, `ReadOnlyError`.
        """
        self._fs.make_directory(path, mode)

    def attach(
        self,
        path: str,
        mode: Literal["r", "w", "r+"] = "r",
        *,
        order: Literal["cautious", "reckless"] = "cautious",
    ) -> "File":
        """Attaches a file: reads its attributes, once for any number of opens (section 4.1).

        Args:
            path: The file.
            mode: Whether the file is read, written, or both.
            order: In cautious mode requests to overlapping bytes have one order on all servers. In
                reckless mode they have none, which saves messages; where another program uses the
                file and one of the two writes, they are cautious all the same (section 4.3).

        Errors:
            `MissingError`; `SchemaError` for a directory; `ReadOnlyError`.
        """
        if mode not in ("r", "w", "r+"):
            raise schema_error(f"{mode!r} is no mode: use 'r', 'w' or 'r+'")
        if order not in ("cautious", "reckless"):
            raise schema_error(f"{order!r} is no order: use 'cautious' or 'reckless'")
        attached = self._fs.attach(path, mode != "w", mode != "r", order == "reckless")
        return File(self, path, attached)

    def stat(self, path: str) -> FileStat:
        """The attributes of a file or directory.

        Errors:
            `MissingError`.
        """
        fields, cells = self._fs.stat(path)
        _, is_directory, path, owner, group, mode, times, (count, bsu, base), checkpoints = fields
        programs = [] if is_directory else self._fs.status(path)
        attached: list[dict[str, object]] = [
            {"program": program, "reads": reads, "writes": writes, "reckless": reckless}
            for program, reads, writes, reckless in programs
        ]
        return FileStat(
            path,
            is_directory,
            owner,
            group,
            mode,
            times,
            count,
            bsu,
            base,
            checkpoints,
            dict(cells),
            attached,
        )

    def list(self, path: str = "/") -> list[str]:
        """The names in a directory, sorted; those of directories end with a slash.

        Errors:
            `MissingError`; `SchemaError` for a file; `ReadOnlyError`.
        """
        return [f"{name}/" if is_directory else name for name, is_directory in self._fs.list(path)]

    def remove(self, path: str) -> None:
        """Removes a file, or an empty directory.

        Errors:
            `MissingError`; `ExistsError` for a directory with entries; `ReadOnlyError`.
        """
        self._fs.remove(path)

    def rename(self, old: str, new: str) -> None:
        """Gives a file or directory, and all below it, another path at which there is nothing.

        Errors:
            `MissingError`, `ExistsError`, `ReadOnlyError`.
        """
        self._fs.rename(old, new)

    def resize(self, path: str, bytes: int) -> None:
        """Gives each cell of a file this number of bytes: what is cut off is lost, what is new is
        zero.

        Errors:
            `MissingError`, `ReadOnlyError`, `SchemaError`.
        """
        self._fs.resize(path, bytes)

    def chmod(self, path: str, mode: int) -> None:
        """Changes the permission bits of a file or directory, which the user must own.

        Errors:
            `MissingError`, `ReadOnlyError`.
        """
        self._fs.protect(path, mode, None, None)

    def chown(self, path: str, user: int | None = None, group: int | None = None) -> None:
        """Changes the owner or the group. Only the owner of the volume may give objects away.

        Errors:
            `MissingError`, `ReadOnlyError`.
        """
        self._fs.protect(path, None, user, group)

    def usage(self, user: int | None = None) -> Usage:
        """The space of the volume, and that of a user: by default of this one."""
        return Usage(*self._fs.space(user))

    def quota(self, user: int, bytes: int | None) -> None:
        """Limits the bytes of blocks that a user may have on each server; `None` lifts the limit.

        Errors:
            `ReadOnlyError` for others than the owner of the volume.
        """
        self._fs.limit(user, bytes)

    def sync(self) -> None:
        """Puts all data on stable storage."""
        self._fs.sync()


class File:
    """An attached file: see `FileSystem.attach`. It is a context manager, which detaches it."""

    def __init__(self, fs: FileSystem, path: str, attached: _core.PyFile) -> None:
        self._fs, self._path, self._file = fs, path, attached
        fields = attached.attributes()
        self._cells, self._bsu, self._base = fields[7]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()

    @property
    def path(self) -> str:
        """The path at which the file was attached."""
        return self._path

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self._cells

    @property
    def bsu(self) -> int:
        """The bytes of a basic striping unit."""
        return self._bsu

    @property
    def base(self) -> int:
        """The server of cell 0."""
        return self._base

    def open(
        self,
        view: View | None = None,
        subfile: int = 0,
        *,
        order: Order = "block",
        version: Version = "active",
        pointer: Pointer | None = None,
    ) -> "Subfile":
        """Opens a subfile of a view, without any message. Views of one file may be opened side by
        side, and may overlap.

        Args:
            view: The view; by default the whole file, striped.
            subfile: The number of the subfile.
            order: The order of its bytes: down the cells within a block ("block"), row by row, or
                cell by cell within each access ("column").
            version: Whether the file is read as it was at its last checkpoint.
            pointer: A pointer that others share, in the place of one's own.

        Errors:
            `SchemaError` when the view has no such subfile.
        """
        if version not in ("active", "checkpoint"):
            raise schema_error(f"{version!r} is no version: use 'active' or 'checkpoint'")
        v = view or View()
        numbers = (v.vbs, v.vn, v.hbs, v.hn)
        token = None if pointer is None else (pointer.server, pointer.number)
        opened = self._file.open(numbers, subfile, order, version == "checkpoint", token)
        return Subfile(self, opened)

    def _move_all(
        self,
        is_write: bool,
        view: View | None,
        subfile: int,
        memory: object,
        offset: int,
        order: Order,
    ) -> int:
        try:
            part = self.open(view, subfile, order=order)._view
            array = _bytes_of(memory)  # type: ignore[arg-type]
        except Exception as wrong:  # the other ranks must hear of it
            kind = wrong.kind if isinstance(wrong, Error) else "Schema"
            try:
                self._file.move_all(is_write, None, 0, None, (kind, str(wrong)))
            except Error as verdict:
                raise verdict from wrong
            raise  # not reached: an error of any rank is the error of all
        return self._file.move_all(is_write, part, offset, array, None)

    def write_all(
        self,
        view: View | None,
        subfile: int,
        data: "ReadableBuffer",
        *,
        offset: int = 0,
        order: Order = "block",
    ) -> int:
        """Writes together with all other ranks: each all of its own buffer into its own subfile,
        from `offset` on. The servers direct the flow (Kotz, TOCS 1997). Gives the number of this
        rank's real bytes. Collective over all clients.

        Errors:
            The same on all ranks: the first error of a rank or server; `OverlapError` when two
            ranks write the same bytes; `MismatchError` when ranks make different calls.
        """
        return self._move_all(True, view, subfile, data, offset, order)

    def read_all(
        self,
        view: View | None,
        subfile: int,
        out: "WriteableBuffer",
        *,
        offset: int = 0,
        order: Order = "block",
    ) -> int:
        """Reads together with all other ranks: see `write_all`. Bytes that are not real are as they
        were.
        """
        return self._move_all(False, view, subfile, out, offset, order)

    def checkpoint(self) -> None:
        """Keeps the file as it is now: no data are copied, and later writes go elsewhere
        (section 4.6). All cells are of one point of the order of requests.
        """
        self._fs._fs.checkpoint(self._path)

    def rollback(self) -> None:
        """Makes the file what it was at its last checkpoint.

        Errors:
            `MissingError` when there is none.
        """
        self._fs._fs.roll_back(self._path)

    def sync(self) -> None:
        """Puts the file's data on stable storage."""
        self._file.sync()

    def detach(self) -> None:
        """Ends the use of the file. Subfiles that are open must not be used any more."""
        self._file.detach()


class Subfile:
    """An open subfile: a sequence of bytes, and a pointer into it.

    Bytes of ghost cells, and in a read bytes beyond the end of their cell, are not moved and not
    counted; what was never written before the end of a cell reads as zeros (section 3.2).
    """

    def __init__(self, file: File, view: _core.PyView) -> None:
        self._file, self._view = file, view

    def read(self, nbytes: int, *, at: int | None = None, by: int | None = None) -> bytes:
        """Reads up to `nbytes` bytes where the pointer is, at an offset, or `by` bytes from the
        pointer; and moves the pointer by `nbytes`. Gives the bytes up to the last real one; others
        before that are zero. A read of no bytes only moves the pointer.
        """
        offset = self._view.advance(at, by, nbytes)
        data = np.zeros(nbytes, np.uint8)
        _, reach = self._view.read(offset, data)
        return data[:reach].tobytes()

    def write(self, data: "ReadableBuffer", *, at: int | None = None, by: int | None = None) -> int:
        """Writes all of a buffer where the pointer is, at an offset, or `by` bytes from the
        pointer; and moves the pointer. Gives the number of real bytes.

        Errors:
            `FullError`, also beyond a quota; `ReadOnlyError` when the file was attached to be read.
        """
        memory = _bytes_of(data)
        offset = self._view.advance(at, by, memory.size)
        return self._view.write(offset, memory)[0]

    def read_at(self, offset: int, out: "WriteableBuffer") -> int:
        """Reads into a buffer, and leaves the pointer alone. Gives the number of real bytes: others
        are as they were.
        """
        return self._view.read(offset, _bytes_of(out))[0]

    def write_at(self, offset: int, data: "ReadableBuffer") -> int:
        """Writes all of a buffer, and leaves the pointer alone. Gives the number of real bytes.

        Errors:
            As `write`.
        """
        return self._view.write(offset, _bytes_of(data))[0]

    def iread_at(self, offset: int, out: "WriteableBuffer") -> "Request":
        """Begins to read into a buffer, which must be left alone until the request has ended."""
        return Request(self._view.begin_read(offset, _bytes_of(out)))

    def iwrite_at(self, offset: int, data: "ReadableBuffer") -> "Request":
        """Begins to write a buffer, which must be left alone until the request has ended. In
        cautious mode the request comes before all that is asked for later.
        """
        return Request(self._view.begin_write(offset, _bytes_of(data)))

    def share(self) -> Pointer:
        """Lets a server keep the pointer, so that others can use it: see `File.open`."""
        return Pointer(*self._view.share())

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Lets the servers bring a part of the subfile into memory."""
        self._view.prefetch(offset, nbytes)

    def flush(self, offset: int, nbytes: int) -> None:
        """Lets the servers write a part of the subfile to their disks, and drop it first."""
        self._view.flush(offset, nbytes)

    def sync(self) -> None:
        """Puts the file's data on stable storage."""
        self._view.sync()


class Request:
    """A read or write under way."""

    def __init__(self, moving: _core.PyMoving) -> None:
        self._moving = moving

    def test(self) -> bool:
        """Whether it has ended. Never waits."""
        return self._moving.has_ended()

    def wait(self) -> int:
        """Waits for the end, once. Gives the number of real bytes.

        Errors:
            Those of `Subfile.read_at` and `Subfile.write_at`.
        """
        return self._moving.end()
