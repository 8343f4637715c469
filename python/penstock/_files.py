"""Parallel files: `FileSystem`, and what it opens.

After Vesta (Corbett and Feitelson, ACM TOCS 14(3), 1996).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from penstock import _core
from penstock._errors import Error, is_write, schema_error
from penstock._mpi import library_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from mpi4py import MPI

    # NumPy's own hints make an array a buffer from Python 3.12 on.
    ReadableMemory = ReadableBuffer | np.ndarray[Any, Any]
    WriteableMemory = WriteableBuffer | np.ndarray[Any, Any]

Order = Literal["block", "row", "column"]
Version = Literal["active", "checkpoint"]

CACHE_BYTES = 32 << 20
"""The cache of a server, unless another is asked for."""


@dataclass(frozen=True)
class View:
    """A view deals the BSUs of a file out to disjoint subfiles.

    `View()` has one subfile: the whole file, striped over its cells by one BSU. `View(hn=cells)`
    has a subfile for each cell.

    Parameters
    ----------
    vbs : int, default 1
        The BSUs down a cell that make a block.
    vn : int, default 1
        The blocks down, which are of different subfiles.
    hbs : int, default 1
        The cells across that make a block.
    hn : int, default 1
        The blocks across, which are of different subfiles.

    Raises
    ------
    SchemaError
        When a subfile of it is opened, if a number is below 1.

    Notes
    -----
    There are `vn * hn` subfiles (Corbett and Feitelson, TOCS 1996, section 3.2).
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
    """A pointer into a subfile that processes share: a token to hand to others.

    Parameters
    ----------
    server : int
        The server that keeps the pointer.
    number : int
        The number of the pointer on that server.

    Raises
    ------
    MissingError
        When it is used, if there is no such pointer.

    Notes
    -----
    `Subfile.share` makes one (section 4.3).
    """

    server: int
    number: int


@dataclass(frozen=True)
class FileStat:
    """The attributes of a file, a directory or a symbolic link.

    Attributes
    ----------
    path : str
        The path in the volume.
    kind : {'file', 'directory', 'symlink'}
        What it is. Directories and symbolic links have no cells.
    owner, group : int
        The numbers of the user and of the group.
    mode : int
        The permission bits.
    times : tuple of int
        The times of creation, last access and last change, in nanoseconds since 1970.
    modified : int
        The time of the last change of the contents.
    size : int
        The bytes of a file in canonical order, as a mount shows it; of a symbolic link's target.
    cells, bsu, base : int
        The cells, the bytes of a BSU, and the server of cell 0.
    checkpoints : int
        The number of checkpoints so far.
    cell_bytes : dict
        The bytes up to the end of each cell that has any.
    attached : list of dict
        Who has the file attached, and how.
    """

    path: str
    kind: Literal["file", "directory", "symlink"]
    owner: int
    group: int
    mode: int
    times: tuple[int, int, int]
    modified: int
    size: int
    cells: int
    bsu: int
    base: int
    checkpoints: int
    cell_bytes: dict[int, int]
    attached: list[dict[str, object]]

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"

    @property
    def bytes(self) -> int:
        """The bytes up to the ends of all cells together."""
        return sum(self.cell_bytes.values())


@dataclass(frozen=True)
class Rebalanced:
    """What spreading a volume over servers has come to.

    Attributes
    ----------
    slots, files : int
        The slots of names, and the files, that have moved.
    failures : dict of str to Exception
        The files that could not be moved, by path, with the reasons. They are whole, and where they
        were.
    """

    slots: int
    files: int
    failures: dict[str, BaseException]


@dataclass(frozen=True)
class Usage:
    """The space of a volume, in bytes.

    Attributes
    ----------
    bytes, used : int
        The bytes of all blocks, and of those in use.
    of_user : int
        The bytes of blocks that one user's files have.
    quota : int or None
        The bytes that the user may have on all servers together.
    """

    bytes: int
    used: int
    of_user: int
    quota: int | None


def _numbers_of(view: View | None) -> tuple[int, int, int, int]:
    """The numbers of a view; without one, of the whole file, striped."""
    v = view or View()
    return v.vbs, v.vn, v.hbs, v.hn


def _bytes_of(data: Any) -> np.ndarray:
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
        cache_bytes: int = CACHE_BYTES,
        direct: bool = False,
    ) -> FileSystem:
        """Makes a volume, and opens it.

        Args:
            path: The path of the volume; `{server}` in it stands for the number of a server.
            servers: The number of servers, which stays.
            block_bytes: The bytes of a block.
            capacity: The bytes of each server's blocks, which are allocated. By default block files
                grow, up to the space that their file systems have free now.
            disks: The disks of each server: directories, or raw devices, with `{server}` for its
                number. By default one block file stands in the server's directory.
            cache_bytes: The cache of each server, while the volume is open.
            direct: Whether block files are read and written around the page cache meanwhile.

        Errors:
            `ExistsError` when something is there; `FullError`; `SchemaError` for options that do
            not fit.
        """
        places = [os.fspath(disk) for disk in disks]
        _core.create_volume(os.fspath(path), servers, block_bytes, capacity, places)
        return FileSystem(path, cache_bytes=cache_bytes, direct=direct)


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
    def __get__(self, fs: None, owner: type[FileSystem]) -> _CreateVolume: ...
    @overload
    def __get__(self, fs: FileSystem, owner: type[FileSystem]) -> _CreateFile: ...
    def __get__(
        self, fs: FileSystem | None, owner: type[FileSystem]
    ) -> _CreateVolume | _CreateFile:
        return _CreateVolume() if fs is None else _CreateFile(fs._fs)


class FileSystem:
    """A volume of parallel files: its servers are in this process, in the ranks of a job, or stand.

    `FileSystem.create(path, servers=4)` makes a volume, and `fs.create(path, cells=8, bsu=4096)` a
    file in one. Any number of threads may use a file system. It is a context manager: the end of
    the block closes it, or in a job tells the other ranks of the exception.

    Parameters
    ----------
    path : str or os.PathLike
        The path of the volume; `{server}` in it stands for the number of a server. Or the URL of
        servers that stand: `penstock://host:7433,host2:7433`, `unix:///run/penstock.sock`.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks that are clients. Servers are dealt out over hosts, and on each over its ranks.
        Default: this process alone.
    servers : int, optional
        The number of servers, if it is to be checked.
    dedicated : bool, default False
        Whether ranks with servers do nothing else. There `rank` is `None` when the others have
        closed the file system, which is then closed here, too.
    cache_bytes : int, default 32 MiB
        The cache of each server.
    direct : bool, default False
        Whether block files are read and written around the page cache.
    keys : str or os.PathLike, optional
        The keys for servers of other hosts, as `penstock keys` makes them: a directory and the name
        of their holder in it. Default: what the environment variable `PENSTOCK_KEYS` names.

    Raises
    ------
    MissingError
        When there is no such volume.
    PeerError
        When no server can be reached.
    BusyError
        When another process has it open.
    DamagedError
        When its description or its records make no sense.
    SchemaError, MismatchError
        When arguments do not fit, or differ between ranks.

    Notes
    -----
    Collective over `comm`, where it is given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        comm: MPI.Comm | None = None,
        *,
        servers: int | None = None,
        dedicated: bool = False,
        cache_bytes: int = CACHE_BYTES,
        direct: bool = False,
        keys: str | os.PathLike[str] | None = None,
    ) -> None:
        place, key_path = os.fspath(path), None if keys is None else os.fspath(keys)
        self._open: _core.PyFileSystem | None
        self._rank: int | None = 0
        self._ranks = 1 if comm is None else comm.size
        if comm is None:
            self._open = _core.open_volume(place, key_path, servers, cache_bytes, direct)
        else:
            library = library_of(comm)
            options = (cache_bytes, direct)
            self._open = _core.join_volume(
                library, place, key_path, servers, dedicated, options, None
            )
            self._rank = None if self._open is None else self._open.rank

    @property
    def _fs(self) -> _core.PyFileSystem:
        """The client in Rust."""
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
        elif self._ranks > 1:
            if self._open is not None:
                self._open.leave(f"{type(value).__name__}: {value}")
        else:  # nobody else hears of the exception, and what was written is to stay
            try:
                self.close()
            except Error as error:
                value.add_note(f"Closing the file system has failed, too: {error}")

    def close(self) -> None:
        """Save all, and end the servers. A second close does nothing.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Collective over all clients.
        """
        if self._open is not None:
            self._open.close()

    @property
    def clients(self) -> int:
        """The number of clients, which make collective calls together."""
        return self._fs.clients

    @property
    def servers(self) -> int:
        """The number of servers."""
        return self._fs.servers

    @property
    def block_bytes(self) -> int:
        """The bytes of a block."""
        return self._fs.block_bytes

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Make a directory (a cross-reference list: section 4.1), whose parent must exist.

        Parameters
        ----------
        path : str
            The path in the volume.
        mode : int, default 0o755
            The permission bits.

        Raises
        ------
        ExistsError, MissingError, ReadOnlyError
            When something is there, there is no parent, or the user may not change it.

        Notes
        -----
        Not collective.
        """
        self._fs.make_directory(path, mode)

    def attach(
        self,
        path: str,
        access: Literal["r", "w", "r+"] = "r",
        *,
        mode: Literal["cautious", "reckless"] = "cautious",
    ) -> File:
        """Attach a file: read its attributes, once for any number of opens (section 4.1).

        Parameters
        ----------
        path : str
            The path in the volume.
        access : {'r', 'w', 'r+'}, default 'r'
            Whether the file is read, written, or both.
        mode : {'cautious', 'reckless'}, default 'cautious'
            In cautious mode requests to overlapping bytes have one order on all servers. In
            reckless mode they have none, which saves messages; where another program uses the file
            and one of the two writes, they are cautious all the same (section 4.3).

        Returns
        -------
        File
            The attached file, a context manager.

        Raises
        ------
        MissingError, SchemaError, ReadOnlyError
            When there is nothing, or a directory, or no permission.

        Notes
        -----
        Not collective.
        """
        return File(self, path, self._fs.attach(path, access, mode, False))

    def attach_all(
        self,
        path: str,
        access: Literal["r", "w", "r+"] = "r",
        *,
        mode: Literal["cautious", "reckless"] = "cautious",
    ) -> File:
        """Attach a file for all clients together: one of the servers is asked once (section 3.1).

        Parameters
        ----------
        path : str
            The path in the volume.
        access : {'r', 'w', 'r+'}, default 'r'
            Whether the file is read, written, or both.
        mode : {'cautious', 'reckless'}, default 'cautious'
            As in `attach`.

        Returns
        -------
        File
            The attached file. Each client detaches it for itself.

        Raises
        ------
        MissingError, SchemaError, ReadOnlyError, MismatchError
            The same on all clients: those of `attach`, and when arguments differ.

        Notes
        -----
        Collective over all clients.
        """
        return File(self, path, self._fs.attach(path, access, mode, True))

    def _shown(
        self,
        view: View | None,
        subfile: int,
        order: str,
        version: str,
        memory_bytes: int,
        comm: MPI.Comm | None,
    ) -> tuple[tuple[int, int, int, int], int, str, str, int, bool]:
        """The part of a file that an import or export moves, and whether all clients take part."""
        if comm is not None and comm.size not in (self._fs.clients, self._ranks):
            raise schema_error(
                f"comm has {comm.size} ranks, and the file system {self._fs.clients} clients: give "
                "the communicator of its clients"
            )
        return _numbers_of(view), subfile, order, version, memory_bytes, comm is not None

    def import_file(
        self,
        local: str | os.PathLike[str],
        path: str,
        *,
        view: View | None = None,
        subfile: int = 0,
        order: Order = "block",
        comm: MPI.Comm | None = None,
        cells: int | None = None,
        bsu: int | None = None,
        base: int | None = None,
        mode: int = 0o644,
        memory_bytes: int = 16 << 20,
    ) -> int:
        """Move the bytes of a local file into a file of the volume, and save it (section 4.6).

        Byte `n` of the local file becomes byte `n` of the subfile. A file that is not there is
        made.

        Parameters
        ----------
        local : str or os.PathLike
            The local file, which all clients that take part must see.
        path : str
            The path in the volume.
        view : View, optional
            The view. Default: the whole file, striped.
        subfile : int, default 0
            The number of the subfile.
        order : {'block', 'row', 'column'}, default 'block'
            The order of its bytes. "column" is an order within one access: one client moves all,
            in memory for all of the file.
        comm : mpi4py.MPI.Intracomm, optional
            The communicator of the clients: each of them moves a part. Default: this client moves
            all bytes, without the others.
        cells, bsu, base : int, optional
            The structure of a new file. Default: a cell a server, BSUs as large as a block, and a
            base that the volume chooses.
        mode : int, default 0o644
            The permission bits of a new file.
        memory_bytes : int, default 16 MiB
            The memory that each client may take.

        Returns
        -------
        int
            The number of bytes that are the file's; others belong to ghost cells.

        Raises
        ------
        MissingError, ReadOnlyError, FullError, SchemaError, Error
            On all clients that take part, if one of them fails.

        Notes
        -----
        Collective over all clients, if `comm` is given.
        """
        shown = self._shown(view, subfile, order, "active", memory_bytes, comm)
        structure = (cells, bsu, base, mode)
        return self._fs.import_file(os.fspath(local), path, shown, structure)[1]

    def export_file(
        self,
        path: str,
        local: str | os.PathLike[str],
        *,
        view: View | None = None,
        subfile: int = 0,
        order: Order = "block",
        version: Version = "active",
        comm: MPI.Comm | None = None,
        overwrite: bool = False,
        memory_bytes: int = 16 << 20,
    ) -> int:
        """Move the bytes of a file of the volume into a local file (section 4.6).

        The local file is there when all of it has been written. Bytes of ghost cells, and beyond
        the ends of cells, are zero.

        Parameters
        ----------
        path : str
            The path in the volume.
        local : str or os.PathLike
            The local file, which all clients that take part must see.
        view : View, optional
            The view. Default: the whole file, striped.
        subfile : int, default 0
            The number of the subfile.
        order : {'block', 'row', 'column'}, default 'block'
            The order of its bytes, as in `import_file`.
        version : {'active', 'checkpoint'}, default 'active'
            Whether the file is moved as it was at its last checkpoint, which may go on while others
            write.
        comm : mpi4py.MPI.Intracomm, optional
            As in `import_file`.
        overwrite : bool, default False
            Whether a local file is replaced.
        memory_bytes : int, default 16 MiB
            The memory that each client may take.

        Returns
        -------
        int
            The number of bytes that are the file's.

        Raises
        ------
        MissingError, ReadOnlyError, ExistsError, SchemaError, Error
            On all clients that take part, if one of them fails.

        Notes
        -----
        Collective over all clients, if `comm` is given.
        """
        shown = self._shown(view, subfile, order, version, memory_bytes, comm)
        return self._fs.export_file(path, os.fspath(local), shown, overwrite)[1]

    def stat(self, path: str) -> FileStat:
        """Tell the attributes of a file, a directory or a symbolic link, which is not followed.

        Parameters
        ----------
        path : str
            The path in the volume.

        Returns
        -------
        FileStat
            The attributes, and the ends of the cells.

        Raises
        ------
        MissingError
            When there is nothing.

        Notes
        -----
        Not collective.
        """
        fields, cells, (modified, size, _) = self._fs.stat(path)
        _, kind, path, owner, group, mode, times, (count, bsu, base), checkpoints = fields
        programs = self._fs.status(path) if kind == "file" else []
        attached: list[dict[str, object]] = [
            {"program": program, "reads": reads, "writes": writes, "reckless": reckless}
            for program, reads, writes, reckless in programs
        ]
        return FileStat(
            path,
            kind,
            owner,
            group,
            mode,
            times,
            modified,
            size,
            count,
            bsu,
            base,
            checkpoints,
            dict(cells),
            attached,
        )

    def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link, which only a mount follows.

        Parameters
        ----------
        target : str
            Any text of 1 to 4095 bytes.
        path : str
            The path of the link in the volume.

        Raises
        ------
        ExistsError, MissingError, ReadOnlyError, SchemaError
            When there is something, no directory, no permission, or the target is impossible.

        Notes
        -----
        Not collective.
        """
        self._fs.symlink(target, path)

    def readlink(self, path: str) -> str:
        """Tell the target of a symbolic link.

        Parameters
        ----------
        path : str
            The path of the link in the volume.

        Returns
        -------
        str
            The target.

        Raises
        ------
        MissingError, SchemaError
            When there is nothing, or no symbolic link.

        Notes
        -----
        Not collective.
        """
        target = self._fs.stat(path)[2][2]
        if target is None:
            raise schema_error(f"{path} is no symbolic link")
        return target

    def list(self, path: str = "/") -> list[str]:
        """List a directory.

        Parameters
        ----------
        path : str, default '/'
            The path in the volume.

        Returns
        -------
        list of str
            The names, sorted; those of directories end with a slash.

        Raises
        ------
        MissingError, SchemaError, ReadOnlyError
            When there is nothing, or a file, or no permission.

        Notes
        -----
        Not collective.
        """
        return [f"{name}/" if is_directory else name for name, is_directory in self._fs.list(path)]

    def remove(self, path: str) -> None:
        """Remove a file, or an empty directory.

        Parameters
        ----------
        path : str
            The path in the volume.

        Raises
        ------
        MissingError, ExistsError, ReadOnlyError
            When there is nothing, the directory has entries, or the user may not.

        Notes
        -----
        Not collective.
        """
        self._fs.remove(path)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory, and all below it, another path. No data move.

        Parameters
        ----------
        old : str
            The path in the volume.
        new : str
            The new path, at which there is nothing.

        Raises
        ------
        MissingError, ExistsError, ReadOnlyError
            When there is nothing at the old path, something at the new one, or no permission.
        BusyError
            When names below the old path come and go all the time: nothing is renamed.

        Notes
        -----
        Not collective.
        """
        self._fs.rename(old, new)

    def resize(self, path: str, bytes: int) -> None:
        """Give each cell of a file this number of bytes: what is new is zero.

        Parameters
        ----------
        path : str
            The path in the volume.
        bytes : int
            The bytes of each cell.

        Raises
        ------
        MissingError, SchemaError, ReadOnlyError
            When there is no file, the number is too large, or the user may not.

        Notes
        -----
        Not collective.
        """
        self._fs.resize(path, bytes)

    def chmod(self, path: str, mode: int) -> None:
        """Change the permission bits of a file or directory, which the user must own.

        Parameters
        ----------
        path : str
            The path in the volume.
        mode : int
            The permission bits.

        Raises
        ------
        MissingError, ReadOnlyError
            When there is nothing, or it is another user's.

        Notes
        -----
        Not collective.
        """
        self._fs.protect(path, mode, None, None)

    def chown(self, path: str, user: int | None = None, group: int | None = None) -> None:
        """Change the owner or the group. Only the owner of the volume gives objects away.

        Parameters
        ----------
        path : str
            The path in the volume.
        user : int, optional
            The number of the new owner.
        group : int, optional
            The number of the new group.

        Raises
        ------
        MissingError, ReadOnlyError
            When there is nothing, or the user may not.

        Notes
        -----
        Not collective.
        """
        self._fs.protect(path, None, user, group)

    def usage(self, user: int | None = None) -> Usage:
        """Tell the space of the volume, and that of a user.

        Parameters
        ----------
        user : int, optional
            The number of the user. Default: this one.

        Returns
        -------
        Usage
            Bytes in all, in use, of the user, and the quota.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        return Usage(*self._fs.space(user))

    def rebalance(self, servers: Sequence[int] | None = None) -> Rebalanced:
        """Spread the volume over its servers, or over some of them, while others use it.

        New files are dealt to these servers from then on, and names and files move to them. Who
        stops in the middle begins again, and goes on with what is left.

        Parameters
        ----------
        servers : sequence of int, optional
            The servers that are to have the volume; the others have nothing at the end. Default:
            all.

        Returns
        -------
        Rebalanced
            What has moved, and the files that could not.

        Raises
        ------
        ReadOnlyError
            For others than the owner of the volume.
        SchemaError
            When there are no such servers.
        PeerError
            When a server is lost: all must be there.
        BusyError
            When another program does the same, or files are renamed all the time.

        Notes
        -----
        Not collective.
        """
        slots, files, failures = self._fs.rebalance(None if servers is None else list(servers))
        return Rebalanced(slots, files, dict(failures))

    def quota(self, user: int, bytes: int | None) -> None:
        """Limit the bytes of blocks that a user's files may have on all servers together.

        What the user has already stays.

        Parameters
        ----------
        user : int
            The number of the user.
        bytes : int or None
            The limit; `None` lifts it.

        Raises
        ------
        ReadOnlyError
            For others than the owner of the volume.

        Notes
        -----
        Not collective.
        """
        self._fs.limit(user, bytes)

    def sync(self) -> None:
        """Put all data of the volume on stable storage.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
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
    ) -> Subfile:
        """Open a subfile of a view, without any message.

        Views of one file may be opened side by side, and may overlap.

        Parameters
        ----------
        view : View, optional
            The view. Default: the whole file, striped.
        subfile : int, default 0
            The number of the subfile.
        order : {'block', 'row', 'column'}, default 'block'
            The order of its bytes: down the cells within a block, row by row, or cell by cell
            within each access.
        version : {'active', 'checkpoint'}, default 'active'
            Whether the file is read as it was at its last checkpoint.
        pointer : Pointer, optional
            A pointer that others share, in the place of one's own.

        Returns
        -------
        Subfile
            The open subfile, with its pointer at 0.

        Raises
        ------
        SchemaError
            When the view has no such subfile.

        Notes
        -----
        Not collective.
        """
        token = None if pointer is None else (pointer.server, pointer.number)
        opened = self._file.open(_numbers_of(view), subfile, order, version, token)
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
            array = _bytes_of(memory)
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
        data: ReadableMemory,
        *,
        offset: int = 0,
        order: Order = "block",
    ) -> int:
        """Write together with all other ranks, each all of its own buffer.

        The servers direct the flow (Kotz, TOCS 1997).

        Parameters
        ----------
        view : View or None
            The view of this rank; `None` for the whole file, striped.
        subfile : int
            The number of the subfile.
        data : bytes-like
            What is written.
        offset : int, default 0
            Where it goes in the subfile.
        order : {'block', 'row', 'column'}, default 'block'
            The order of the subfile's bytes.

        Returns
        -------
        int
            The number of this rank's real bytes.

        Raises
        ------
        OverlapError, MismatchError, Error
            The same on all ranks: when two write the same bytes, when they make different calls, or
            the first error of a rank or server.

        Notes
        -----
        Collective over all clients.
        """
        return self._move_all(True, view, subfile, data, offset, order)

    def read_all(
        self,
        view: View | None,
        subfile: int,
        out: WriteableMemory,
        *,
        offset: int = 0,
        order: Order = "block",
    ) -> int:
        """Read together with all other ranks, each into its own buffer.

        Parameters
        ----------
        view : View or None
            The view of this rank; `None` for the whole file, striped.
        subfile : int
            The number of the subfile.
        out : writable bytes-like
            Where the bytes go. Those that are not real are left as they were.
        offset : int, default 0
            Where the read begins in the subfile.
        order : {'block', 'row', 'column'}, default 'block'
            The order of the subfile's bytes.

        Returns
        -------
        int
            The number of this rank's real bytes.

        Raises
        ------
        MismatchError, Error
            The same on all ranks: when they make different calls, or the first error of a rank or
            server.

        Notes
        -----
        Collective over all clients.
        """
        return self._move_all(False, view, subfile, out, offset, order)

    def checkpoint(self) -> None:
        """Keep the file as it is now.

        No data are copied, and later writes go elsewhere (section 4.6). All cells are of one point
        of the order of requests.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._fs._fs.checkpoint(self._path)

    def rollback(self) -> None:
        """Make the file what it was at its last checkpoint.

        Raises
        ------
        MissingError
            When there was none.

        Notes
        -----
        Not collective.
        """
        self._fs._fs.roll_back(self._path)

    def sync(self) -> None:
        """Put the file's data on stable storage.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._file.sync()

    def detach(self) -> None:
        """End the use of the file. Subfiles that are open must not be used any more.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._file.detach()


class Subfile:
    """An open subfile: a sequence of bytes, and a pointer into it.

    Bytes of ghost cells, and in a read bytes beyond the end of their cell, are not moved and not
    counted; what was never written before the end of a cell reads as zeros (section 3.2).
    """

    def __init__(self, file: File, view: _core.PyView) -> None:
        self._file, self._view = file, view

    def read(self, nbytes: int, *, at: int | None = None, by: int | None = None) -> bytes:
        """Read where the pointer is, or elsewhere, and move the pointer.

        A read of no bytes only moves the pointer.

        Parameters
        ----------
        nbytes : int
            The bytes to read, by which the pointer advances.
        at : int, optional
            The offset at which the access begins.
        by : int, optional
            The distance from the pointer at which it begins. Default: where the pointer is.

        Returns
        -------
        bytes
            The bytes up to the last real one; others before that are zero.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        offset = self._view.advance(at, by, nbytes)
        data = np.zeros(nbytes, np.uint8)
        _, reach = self._view.read(offset, data)
        return data[:reach].tobytes()

    def write(self, data: ReadableMemory, *, at: int | None = None, by: int | None = None) -> int:
        """Write all of a buffer where the pointer is, or elsewhere, and move the pointer.

        Parameters
        ----------
        data : bytes-like
            What is written.
        at : int, optional
            The offset at which the access begins.
        by : int, optional
            The distance from the pointer at which it begins. Default: where the pointer is.

        Returns
        -------
        int
            The number of real bytes.

        Raises
        ------
        FullError
            When there is no space, or the user may have no more.
        ReadOnlyError
            When the file was attached to be read.

        Notes
        -----
        Not collective.
        """
        memory = _bytes_of(data)
        offset = self._view.advance(at, by, memory.size)
        return self._view.write(offset, memory)[0]

    def read_at(self, offset: int, out: WriteableMemory) -> int:
        """Read into a buffer, and leave the pointer alone.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        out : writable bytes-like
            Where the bytes go. Those that are not real are left as they were.

        Returns
        -------
        int
            The number of real bytes.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        return self._view.read(offset, _bytes_of(out))[0]

    def write_at(self, offset: int, data: ReadableMemory) -> int:
        """Write all of a buffer, and leave the pointer alone.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        data : bytes-like
            What is written.

        Returns
        -------
        int
            The number of real bytes.

        Raises
        ------
        FullError, ReadOnlyError
            As `write`.

        Notes
        -----
        Not collective.
        """
        return self._view.write(offset, _bytes_of(data))[0]

    def iread_at(self, offset: int, out: WriteableMemory) -> Request:
        """Begin to read into a buffer.

        In cautious mode, writes of these bytes that anybody begins after this returns come after
        the read, and so do resizing, checkpoints and removal.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        out : writable bytes-like
            Where the bytes go; leave it alone until the request has ended.

        Returns
        -------
        Request
            The read under way.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        return Request(self._view.begin_read(offset, _bytes_of(out)))

    def iwrite_at(self, offset: int, data: ReadableMemory) -> Request:
        """Begin to write a buffer.

        In cautious mode, reads and writes of these bytes that anybody begins after this returns
        come after the write, and so do resizing, checkpoints and removal.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        data : bytes-like
            What is written; leave it alone until the request has ended.

        Returns
        -------
        Request
            The write under way.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        return Request(self._view.begin_write(offset, _bytes_of(data)))

    def share(self) -> Pointer:
        """Let a server keep the pointer, so that others can use it: see `File.open`.

        Returns
        -------
        Pointer
            The token to hand to others.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        return Pointer(*self._view.share())

    def explain(
        self,
        nbytes: int,
        *,
        at: int = 0,
        operation: Literal["read", "write"] = "read",
    ) -> str:
        """Say what a read or write would do. Nothing is moved.

        Parameters
        ----------
        nbytes : int
            The bytes of the access.
        at : int, default 0
            The offset at which it begins.
        operation : {'read', 'write'}, default 'read'
            Which of the two.

        Returns
        -------
        str
            Lines of text: the bytes of each server, the way that they take, and all messages.

        Raises
        ------
        ReadOnlyError, SchemaError
            As the access itself.

        Notes
        -----
        Not collective.
        """
        return self._view.explain(is_write(operation), at, nbytes)

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Let the servers bring a part of the subfile into memory.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        nbytes : int
            The bytes.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._view.prefetch(offset, nbytes)

    def flush(self, offset: int, nbytes: int) -> None:
        """Let the servers write a part of the subfile to their disks, and drop it first.

        Parameters
        ----------
        offset : int
            The first byte in the subfile.
        nbytes : int
            The bytes.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._view.flush(offset, nbytes)

    def sync(self) -> None:
        """Put the file's data on stable storage.

        Raises
        ------
        Error
            Of the kind that fits.

        Notes
        -----
        Not collective.
        """
        self._view.sync()


class Request:
    """A read or write under way."""

    def __init__(self, moving: _core.PyMoving) -> None:
        self._moving, self._has_ended = moving, False

    def test(self) -> bool:
        """Tell whether it has ended, without waiting.

        Returns
        -------
        bool
            Whether it has.

        Raises
        ------
        Error
            Never.

        Notes
        -----
        Not collective.
        """
        return self._has_ended or self._moving.has_ended()

    def wait(self) -> int:
        """Wait for the end, once.

        Returns
        -------
        int
            The number of real bytes.

        Raises
        ------
        Error
            Those of `Subfile.read_at` and `Subfile.write_at`; `SchemaError` when it was waited for
            before.

        Notes
        -----
        Not collective.
        """
        if self._has_ended:
            raise schema_error("the request was waited for before")
        moved = self._moving.end()
        self._has_ended = True
        return moved
