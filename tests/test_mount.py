"""``penstock mount``: ordinary programs on a volume of parallel files."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from serving import alone

import penstock as ps

COMMAND = [sys.executable, "-m", "penstock"]
# The longest that anything here may take: it only catches what hangs.
SECONDS = 300
OTHER_USER = 12345

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "Nobody" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "nobody@example.org" for who in ("AUTHOR", "COMMITTER")},
}


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """What a program says that must end well."""
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, (ran.args, ran.stdout, ran.stderr)
    return ran.stdout


def until(has_come: Callable[[], bool], what: str) -> None:
    """Waits for something that is bound to come."""
    ends = time.monotonic() + SECONDS
    while not has_come():
        assert time.monotonic() < ends, f"{what} has not come"
        time.sleep(0.02)


def is_mounted(point: Path) -> bool:
    return any(line.split()[1] == str(point) for line in Path("/proc/mounts").open())


def why_not() -> str | None:
    """Why nothing can be mounted here, if so."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    if os.geteuid() != 0:
        return "needs the right to mount"
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else "needs the right to mount"


pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


@contextlib.contextmanager
def mounted(volume: Path | str, *points: Path, options: tuple[str, ...] = ()) -> Iterator[None]:
    """A volume that is mounted. At the end it is unmounted, and the command ends well."""
    for point in points:
        point.mkdir(exist_ok=True)
    command = [*COMMAND, "mount", str(volume), *map(str, points), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(
            lambda: process.poll() is not None or all(map(is_mounted, points)),
            "the mount",
        )
        assert process.poll() is None, process.communicate()
        yield
    finally:
        for point in points:
            subprocess.run(["umount", "-l", str(point)], capture_output=True, check=False)
        try:
            said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (process.returncode, said[1]) == (0, ""), said


@pytest.fixture
def volume(place: Path) -> Path:
    made = place / "v"
    ps.FileSystem.create(made, servers=3, block_bytes=4096, capacity=256 << 20).close()
    return made


@pytest.fixture
def point(volume: Path) -> Iterator[Path]:
    """The root of a volume that is mounted for all users."""
    at = volume.with_name("mounted")
    volume.parent.chmod(0o755)
    with mounted(volume, at, options=("--allow-other",)):
        yield at
    checked = run(*COMMAND, "fs", "fsck", volume, "--data")
    assert "nothing was found" in checked, checked


def fill(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(count)


# What programs see


def test_a_file_is_one_sequence_of_bytes(point: Path, volume: Path) -> None:
    data = fill(1, 300_001)
    (point / "f").write_bytes(data)
    assert (point / "f").read_bytes() == data
    found = (point / "f").stat()
    assert (found.st_size, found.st_nlink) == (len(data), 1)
    with (point / "f").open("r+b") as f:
        f.seek(100_000)
        f.write(b"new")
        f.seek(0, os.SEEK_END)
        f.write(b"end")
        f.truncate(300_002)
    expected = data[:100_000] + b"new" + data[100_003:] + b"e"
    assert (point / "f").read_bytes() == expected
    os.truncate(point / "f", 10)
    os.truncate(point / "f", 20_000)
    assert (point / "f").read_bytes() == expected[:10].ljust(20_000, b"\0")
    with (point / "f").open("ab") as f:
        f.write(b"more")
    assert (point / "f").stat().st_size == 20_004


def test_the_package_sees_the_same_bytes(volume: Path, place: Path) -> None:
    data = fill(2, 100_000)
    at = place / "mounted"
    with mounted(volume, at):
        (at / "runs").mkdir()
        (at / "runs" / "f").write_bytes(data)
        (at / "link").symlink_to("runs/f")
    with ps.FileSystem(volume) as fs:
        with fs.attach("/runs/f", "r") as f:
            assert f.open().read(len(data)) == data
        found = fs.stat("/runs/f")
        assert (found.kind, found.size, found.bytes) == ("file", len(data), len(data))
        assert abs(found.modified / 1e9 - time.time()) < SECONDS
        assert (fs.readlink("/link"), fs.stat("/link").kind) == ("runs/f", "symlink")
        assert fs.list("/") == ["link", "runs/"]
        fs.symlink("/nowhere", "/runs/other")
        fs.create("/runs/cells", cells=4, bsu=100)
        with fs.attach("/runs/cells", "r+") as f:
            f.open(ps.View(hn=4), subfile=3).write(b"x" * 150)
        with pytest.raises(ps.SchemaError):
            fs.readlink("/runs/f")
    with mounted(volume, at):
        assert os.readlink(at / "runs" / "other") == "/nowhere"
        # Only the last cell has bytes: those before them in canonical order are zero.
        expected = bytearray(750)
        expected[300:400] = expected[700:750] = b"x" * 100
        expected[700:] = b"x" * 50
        assert (at / "runs" / "cells").read_bytes() == bytes(expected)


def test_a_name_opens_a_view(point: Path) -> None:
    data = fill(3, 40 * 4096)
    os.setxattr(point, "user.penstock.cells", b"4")
    os.setxattr(point, "user.penstock.bsu", b"4096")
    (point / "mesh").write_bytes(data)
    bsus = np.frombuffer(data, np.uint8).reshape(10, 4, 4096)
    for cell in range(4):
        column = point / f"mesh@1,1,1,4:{cell}"
        assert column.read_bytes() == bsus[:, cell].tobytes()
        assert column.stat().st_size == 10 * 4096
    with (point / "mesh@1,1,1,4:2").open("r+b") as f:
        f.seek(4096)
        f.write(b"y" * 4096)
    assert (point / "mesh").read_bytes()[6 * 4096 : 7 * 4096] == b"y" * 4096
    rows = (point / "mesh@1,2,4,1:1").read_bytes()
    assert len(rows) == 20 * 4096
    assert os.listdir(point) == ["mesh"]
    for wrong in ("mesh@1,1,1,4:4", "mesh@0,1,1,1:0", "none@1,1,1,1:0"):
        assert not (point / wrong).exists()
    with pytest.raises(OSError, match="Invalid argument"):
        (point / "new@1,1,1,1:0").write_bytes(b"")
    with pytest.raises(PermissionError):
        (point / "mesh@1,1,1,4:0").unlink()


def test_extended_attributes(point: Path) -> None:
    (point / "d").mkdir()
    for name, value in [("cells", b"7"), ("bsu", b"512"), ("base", b"1")]:
        os.setxattr(point / "d", f"user.penstock.{name}", value)
    (point / "d" / "below").mkdir()
    for directory in (point / "d", point / "d" / "below"):
        (directory / "f").write_bytes(b"x")
        found = {name: os.getxattr(directory / "f", name) for name in os.listxattr(directory / "f")}
        assert found == {
            "user.penstock.cells": b"7",
            "user.penstock.bsu": b"512",
            "user.penstock.base": b"1",
        }
    f = point / "d" / "f"
    os.setxattr(f, "user.note", b"seven", os.XATTR_CREATE)
    assert os.getxattr(f, "user.note") == b"seven"
    for call, number in [
        (lambda: os.setxattr(f, "user.note", b"", os.XATTR_CREATE), errno.EEXIST),
        (lambda: os.setxattr(f, "user.other", b"", os.XATTR_REPLACE), errno.ENODATA),
        (lambda: os.setxattr(f, "user.penstock.cells", b"8"), errno.EPERM),
        (lambda: os.setxattr(point / "d", "user.penstock.cells", b"many"), errno.EINVAL),
        (lambda: os.setxattr(point / "d", "user.penstock.base", b"3"), errno.EINVAL),
        (lambda: os.setxattr(f, "trusted.x", b""), errno.EOPNOTSUPP),
        (lambda: os.setxattr(f, "user.big", bytes(65536)), errno.ENOSPC),
        (lambda: os.removexattr(f, "user.other"), errno.ENODATA),
    ]:
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == number
    os.removexattr(f, "user.note")
    assert "user.note" not in os.listxattr(f)


def test_names(point: Path) -> None:
    """Renaming over what is there, open or not; what was removed while it was open; directories."""
    (point / "d").mkdir()
    assert (point.stat().st_nlink, (point / "d").stat().st_nlink) == (3, 2)
    for name in "abc":
        (point / name).write_text(name)
    with (point / "b").open("r+") as b, (point / "c").open() as c:
        (point / "a").rename(point / "b")
        (point / "c").unlink()
        assert (point / "b").read_text() == "a"
        assert (b.read(), c.read()) == ("b", "c")
        b.write("more")
        b.flush()
        os.ftruncate(b.fileno(), 3)
        assert (os.fstat(b.fileno()).st_size, os.fstat(b.fileno()).st_nlink) == (3, 0)
        assert sorted(os.listdir(point)) == ["b", "d"]
    # A directory can go while something is open that was removed from it.
    (point / "gone").mkdir()
    with (point / "gone" / "f").open("w+") as f:
        (point / "gone" / "f").unlink()
        (point / "gone").rmdir()
        f.write("still there")
        f.seek(0)
        assert f.read() == "still there"
    assert not (point / ".penstock-removed").exists()
    (point / "b").rename(point / "d" / "b")
    assert (point / "d" / "b").read_text() == "a"
    (point / "e").mkdir()
    (point / "d").rename(point / "e")
    assert (point / "e" / "b").read_text() == "a"
    (point / "f").mkdir()
    before = (point / "e").stat().st_mtime_ns
    (point / "e" / "c").write_text("")
    assert (point / "e").stat().st_mtime_ns > before
    for call, number in [
        (lambda: (point / "e").rmdir(), errno.ENOTEMPTY),
        (lambda: (point / "e").unlink(), errno.EISDIR),
        (lambda: (point / "e" / "b").rmdir(), errno.ENOTDIR),
        (lambda: (point / "e").rename(point / "e" / "below"), errno.EINVAL),
        (lambda: (point / "e" / "b").rename(point / "f"), errno.EISDIR),
        (lambda: (point / "f").rename(point / "e" / "b"), errno.ENOTDIR),
        (lambda: (point / ("n" * 256)).write_text(""), errno.ENAMETOOLONG),
        (lambda: os.link(point / "e" / "b", point / "x"), errno.EPERM),
        (lambda: os.mkfifo(point / "pipe"), errno.EPERM),
        (lambda: (point / "none" / "x").write_text(""), errno.ENOENT),
        (lambda: (point / "e" / "b" / "x").write_text(""), errno.ENOTDIR),
        (lambda: os.open(point / "e" / "b", os.O_CREAT | os.O_EXCL), errno.EEXIST),
    ]:
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == number, raised.value
    shutil.rmtree(point / "e")
    assert os.listdir(point) == ["f"]


def test_symbolic_links(point: Path) -> None:
    (point / "d").mkdir()
    (point / "d" / "f").write_text("found")
    (point / "l").symlink_to("d/f")
    (point / "dl").symlink_to(point / "d")
    (point / "broken").symlink_to("nowhere")
    assert (point / "l").read_text() == (point / "dl" / "f").read_text() == "found"
    assert os.lstat(point / "l").st_size == 3
    assert not (point / "broken").exists()
    (point / "broken").write_text("made")
    assert (point / "nowhere").read_text() == "made"
    assert {entry.name: entry.is_symlink() for entry in os.scandir(point)} == {
        "d": False,
        "l": True,
        "dl": True,
        "broken": True,
        "nowhere": False,
    }


def test_times(point: Path) -> None:
    f = point / "f"
    f.write_bytes(b"1")
    os.utime(f, ns=(1_000_000_000_123_456_789, 2_000_000_000_987_654_321))
    found = f.stat()
    assert found.st_atime_ns == 1_000_000_000_123_456_789
    assert found.st_mtime_ns == 2_000_000_000_987_654_321
    with f.open("r+b") as opened:
        opened.write(b"2")
    assert abs(f.stat().st_mtime - time.time()) < SECONDS
    before = f.stat()
    f.chmod(0o600)
    assert f.stat().st_mtime_ns == before.st_mtime_ns
    assert f.stat().st_ctime_ns > before.st_ctime_ns


def test_space(point: Path) -> None:
    before = os.statvfs(point)
    assert before.f_blocks * before.f_frsize == 3 * (256 << 20)
    with (point / "f").open("wb") as f:
        f.write(bytes(1 << 20))
        os.fsync(f.fileno())
    after = os.statvfs(point)
    assert (before.f_bfree - after.f_bfree) * before.f_frsize >= 1 << 20
    assert "penstock" not in run("df", "-h", point).splitlines()[0]


def test_a_full_volume(place: Path) -> None:
    volume, at = place / "small", place / "mounted"
    ps.FileSystem.create(volume, servers=2, block_bytes=4096, capacity=128 << 10).close()
    with mounted(volume, at):
        with pytest.raises(OSError) as raised:
            (at / "f").write_bytes(bytes(1 << 20))
        assert raised.value.errno == errno.ENOSPC
        os.unlink(at / "f")
        (at / "g").write_bytes(bytes(32 << 10))
        with pytest.raises(OSError), (at / "h").open("wb", buffering=0) as h:
            while h.write(bytes(4096)):
                pass
        # The space comes back when the file is closed, a moment after the next write has begun.
        h = (at / "h").open("rb")
        os.unlink(at / "h")
        closing = threading.Timer(0.2, h.close)
        closing.start()
        (at / "i").write_bytes(bytes(32 << 10))
        closing.join()


def test_removed_files_leave_no_space_behind(place: Path) -> None:
    volume, at = place / "small", place / "mounted"
    ps.FileSystem.create(volume, servers=2, block_bytes=4096, capacity=128 << 10).close()
    with mounted(volume, at):
        for _ in range(60):  # there is no room for two of them
            (at / "f").write_bytes(bytes(160 << 10))
            os.unlink(at / "f")


# Users


def as_other(program: str, *arguments: object) -> str:
    """Runs Python as another user, and gives what it says."""
    whole = (
        f"import os, sys\nos.setgroups([777])\nos.setgid({OTHER_USER})\nos.setuid({OTHER_USER})\n"
    )
    return run(sys.executable, "-I", "-c", whole + program, *arguments).strip()


TRIED = """
import errno
def tried(call, *arguments):
    try:
        call(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
root = sys.argv[1]
"""


def test_permissions_are_those_of_the_caller(point: Path) -> None:
    (point / "open").mkdir(mode=0o777)
    (point / "open").chmod(0o777)
    (point / "sticky").mkdir()
    (point / "sticky").chmod(0o1777)
    (point / "closed").mkdir(mode=0o700)
    (point / "closed" / "f").write_text("secret")
    (point / "closed" / "f").chmod(0o666)
    (point / "group").mkdir()
    os.chown(point / "group", 0, 777)
    (point / "group").chmod(0o2775)
    for name in ("open/f", "sticky/f"):
        (point / name).write_text("ours")
    program = """
print(tried(open, root + "/closed/f"))
print(tried(open, root + "/open/f"))
print(tried(open, root + "/open/f", "r+"))
print(tried(open, root + "/top", "w"))
print(tried(os.unlink, root + "/sticky/f"))
print(tried(os.chmod, root + "/open/f", 0o777))
print(tried(os.utime, root + "/open/f"))
print(tried(os.truncate, root + "/open/f", 0))
print(tried(os.unlink, root + "/open/f"))
fd = os.open(root + "/open/mine", os.O_RDWR | os.O_CREAT, 0o444)
os.write(fd, b"mine")
os.ftruncate(fd, 2)
print(tried(open, root + "/open/mine", "r+"))
print(tried(os.chown, root + "/open/mine", 0, -1), tried(os.chown, root + "/open/mine", -1, 777))
print(tried(os.chown, root + "/open/mine", -1, 778))
open(root + "/sticky/mine", "w").close()
os.unlink(root + "/sticky/mine")
open(root + "/group/new", "w").close()
os.mkdir(root + "/group/below")
print(os.stat(root + "/group/new").st_gid, oct(os.stat(root + "/group/below").st_mode & 0o7777))
"""
    said = as_other(TRIED + program, point).splitlines()
    assert said == [
        "EACCES",
        "done",
        "EACCES",
        "EACCES",
        "EPERM",
        "EPERM",
        "EACCES",
        "EACCES",
        "done",
        "EACCES",
        "EPERM done",
        "EPERM",
        "777 0o2755",
    ]
    found = (point / "open" / "mine").stat()
    assert (found.st_uid, found.st_gid, found.st_size) == (OTHER_USER, 777, 2)


def test_privileges_go_when_others_write(point: Path) -> None:
    f = point / "f"
    f.write_text("x")
    f.chmod(0o6777)
    assert stat.S_IMODE(f.stat().st_mode) == 0o6777
    as_other('open(sys.argv[1], "r+").write("y")', f)
    until(lambda: stat.S_IMODE(f.stat().st_mode) == 0o777, "the new mode")
    f.chmod(0o6777)
    os.chown(f, OTHER_USER, OTHER_USER)
    assert stat.S_IMODE(f.stat().st_mode) == 0o777


def test_other_users_have_nothing_without_the_option(volume: Path, place: Path) -> None:
    place.chmod(0o755)
    at = place / "mounted"
    with mounted(volume, at):
        assert as_other(TRIED + "print(tried(os.listdir, root))", at) == "EACCES"


def test_a_mount_to_read_only(volume: Path, place: Path) -> None:
    at = place / "mounted"
    with mounted(volume, at):
        (at / "f").write_text("kept")
    with mounted(volume, at, options=("--read-only",)):
        assert (at / "f").read_text() == "kept"
        with pytest.raises(OSError) as raised:
            (at / "g").write_text("")
        assert raised.value.errno == errno.EROFS


# Programs


def test_cp_and_tar(point: Path, place: Path) -> None:
    source = place / "source"
    (source / "deep" / "er").mkdir(parents=True)
    for nth in range(20):
        (source / "deep" / f"f{nth}").write_bytes(fill(nth, nth * 5000))
    (source / "deep" / "er" / "link").symlink_to("../f3")
    (source / "deep" / "f4").chmod(0o751)
    run("cp", "-a", source, point / "copied")
    run("diff", "-r", source, point / "copied")
    assert (point / "copied/deep/f4").stat().st_mode == (source / "deep/f4").stat().st_mode
    assert (point / "copied/deep/f4").stat().st_mtime == (source / "deep/f4").stat().st_mtime
    run("tar", "-C", point, "-cf", point / "all.tar", "copied")
    (point / "out").mkdir()
    run("tar", "-C", point / "out", "-xf", point / "all.tar")
    run("diff", "-r", source, point / "out" / "copied")
    run("rm", "-r", point / "copied", point / "out")


def test_git(point: Path) -> None:
    """A repository is made, and cloned twice at once."""
    repository = point / "repository"
    run("git", "init", "-q", repository, **GIT)
    for nth in range(10):
        (repository / f"f{nth}").write_bytes(fill(nth, 3000))
    run("git", "add", ".", cwd=repository, **GIT)
    run("git", "commit", "-qm", "one", cwd=repository, **GIT)
    (repository / "f3").write_text("changed")
    assert run("git", "status", "--short", cwd=repository, **GIT) == " M f3\n"
    run("git", "commit", "-qam", "two", cwd=repository, **GIT)
    clone = ["git", "clone", "-q", "--no-hardlinks", str(repository)]
    clones = [
        subprocess.Popen([*clone, str(point / name)], env={**os.environ, **GIT}) for name in "ab"
    ]
    assert [one.wait(SECONDS) for one in clones] == [0, 0]
    for name in "ab":
        assert (point / name / "f3").read_text() == "changed"
        assert run("git", "status", "--short", cwd=point / name, **GIT) == ""
        run("git", "fsck", "--strict", cwd=point / name, **GIT)
        assert run("git", "log", "--format=%s", cwd=point / name, **GIT) == "two\none\n"


def test_make(point: Path) -> None:
    (point / "main.c").write_text('#include "part.h"\nint main(void) { return part() - 7; }\n')
    (point / "part.h").write_text("int part(void);\n")
    (point / "part.c").write_text("int part(void) { return 7; }\n")
    (point / "Makefile").write_text(
        "main: main.o part.o\n\t$(CC) -o $@ $^\nmain.o part.o: part.h\n"
    )
    if not shutil.which("cc") or not shutil.which("make"):
        pytest.skip("needs cc and make")
    run("make", "-j2", cwd=point)
    run(point / "main")
    assert "up to date" in run("make", cwd=point)
    (point / "part.c").write_text("int part(void) { return 8; }\n")
    assert "part.o" in run("make", cwd=point)
    assert subprocess.run([point / "main"], check=False).returncode == 1


def test_sqlite(point: Path) -> None:
    """A data base without a log of its own (journal_mode=DELETE), written by two processes."""
    place = point / "data.sqlite"
    with contextlib.closing(sqlite3.connect(place, timeout=SECONDS)) as base:
        assert base.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
        base.execute("CREATE TABLE t (who INTEGER, n INTEGER)")
        base.commit()
    program = f"""
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout={SECONDS})
for n in range(10):
    with base:
        base.execute("INSERT INTO t VALUES (?, ?)", (int(sys.argv[2]), n))
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(place), str(who)]) for who in range(2)
    ]
    assert [writer.wait(SECONDS) for writer in writers] == [0, 0]
    with contextlib.closing(sqlite3.connect(place)) as base:
        assert base.execute("SELECT who, count(*) FROM t GROUP BY who").fetchall() == [
            (0, 10),
            (1, 10),
        ]
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with base:
            base.execute("DELETE FROM t WHERE who = 1")
        base.execute("VACUUM")
        assert base.execute("SELECT count(*) FROM t").fetchone() == (10,)


def test_h5py(point: Path) -> None:
    h5py = pytest.importorskip("h5py")
    data = np.random.default_rng(1).random((100, 300))
    with h5py.File(point / "f.h5", "w") as f:
        f.create_dataset("a/b", data=data, chunks=(10, 50), compression="gzip")
        f["a"].attrs["x"] = 7
    with h5py.File(point / "f.h5", "r+") as f:
        f["a/b"][3:5] = 0
    data[3:5] = 0
    with h5py.File(point / "f.h5") as f:
        assert (f["a/b"][:] == data).all()
        assert f["a"].attrs["x"] == 7


def test_xarray_and_zarr(point: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    data = np.random.default_rng(2).random((4, 30, 20))
    made = xarray.Dataset({"u": (("t", "y", "x"), data)}, coords={"t": np.arange(4)})
    made.to_zarr(point / "run.zarr", encoding={"u": {"chunks": (1, 10, 20)}})
    with xarray.open_zarr(point / "run.zarr") as found:
        assert (found["u"].values == data).all()
    made.assign_coords(t=np.arange(4, 8)).to_zarr(point / "run.zarr", append_dim="t")
    with xarray.open_zarr(point / "run.zarr") as found:
        assert found.sizes["t"] == 8
        assert (found["u"].values[4:] == data).all()


def test_penstock_itself(point: Path) -> None:
    """An array of Penstock's own lies on the mount."""
    data = np.arange(10_000.0).reshape(100, 100)
    with ps.Session() as s:
        u = ps.Array("u", data.shape, "f8", disk=ps.Chunks((10, 100)))
        s.write(point / "u.zarr", u, data)
        with s.open(point / "u.zarr", mode="r") as array:
            found = np.empty((20, 100))
            array.read(slice(30, 50), found)
    assert (found == data[30:50]).all()


def test_a_program_lies_on_the_mount(point: Path) -> None:
    shutil.copy(shutil.which("true") or "/bin/true", point / "true")
    (point / "true").chmod(0o111)
    run(point / "true")
    as_other("os.execv(sys.argv[1], sys.argv[1:])", point / "true")


# Coherence


def test_maps(point: Path) -> None:
    data = bytearray(fill(5, 50_000))
    (point / "f").write_bytes(data)
    with (point / "f").open("r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        assert mapped[:] == data
        mapped[10_000:10_003] = data[10_000:10_003] = b"new"
        mapped.flush()
        with (point / "f").open("rb") as other:
            assert other.read() == data
        os.pwrite(f.fileno(), b"again", 20_000)
        data[20_000:20_005] = b"again"
        assert mapped[:] == data
    assert (point / "f").read_bytes() == data


def test_two_mounts_of_a_volume(volume: Path, place: Path) -> None:
    """Who opens a file finds what was written to it by way of the other mount before that."""
    one, two = place / "one", place / "two"
    with mounted(volume, one, two):
        for nth in range(30):
            data = fill(nth, 1 + nth * 3000)
            here, there = (one, two) if nth % 2 else (two, one)
            (here / "f").write_bytes(data)
            until(lambda at=there: (at / "f").exists(), "the name")
            assert (there / "f").read_bytes() == data
        with (two / "f").open("rb") as f:
            before = f.read()
            with (one / "f").open("r+b") as other:
                other.write(b"changed")
            expected = b"changed" + before[7:]
            until(lambda: os.pread(f.fileno(), len(before), 0) == expected, "the change")
        (one / "f").rename(one / "g")
        until(lambda: not (two / "f").exists() and (two / "g").exists(), "the other name")
        (two / "g").unlink()
        until(lambda: os.listdir(one) == [] and not (one / "g").exists(), "the removal")


def test_threads_of_many_files(point: Path) -> None:
    """Directories and files are made, renamed and removed by several processes at once."""
    program = """
import os, random, sys
root, seed = sys.argv[1], int(sys.argv[2])
dice = random.Random(seed)
own = f"{root}/d{seed}"
os.mkdir(own)
names = {}
for step in range(60):
    what = dice.randrange(4)
    if what < 2 or not names:
        name = f"{own}/n{step}"
        data = dice.randbytes(dice.randrange(9000))
        with open(name, "wb") as f:
            f.write(data)
        names[name] = data
    elif what == 2:
        old, new = dice.choice(list(names)), f"{root}/shared-{seed}-{step}"
        os.rename(old, new)
        names[new] = names.pop(old)
    else:
        name = dice.choice(list(names))
        os.unlink(name)
        del names[name]
for name, data in names.items():
    assert open(name, "rb").read() == data, name
"""
    players = [
        subprocess.Popen([sys.executable, "-c", program, str(point), str(seed)])
        for seed in range(4)
    ]
    assert [player.wait(SECONDS) for player in players] == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_random_accesses(point: Path, seed: int) -> None:
    """As fsx does: reads, writes, maps, truncations, appends and reopening, beside an array of
    bytes."""
    dice = random.Random(seed)
    if seed % 2:
        os.setxattr(point, "user.penstock.cells", str(dice.randrange(1, 9)).encode())
        os.setxattr(point, "user.penstock.bsu", str(dice.randrange(1, 9000)).encode())
    path, longest = point / "f", 60_000
    model = bytearray()
    f = path.open("w+b", buffering=0)
    for step in range(250):
        at = dice.randrange(longest)
        count = dice.randrange(1, 20_000)
        match dice.randrange(8):
            case 0 | 1:
                data = dice.randbytes(count)
                if at > len(model):
                    model.extend(bytes(at - len(model)))
                model[at : at + count] = data
                assert os.pwrite(f.fileno(), data, at) == count
            case 2 | 3:
                found = os.pread(f.fileno(), count, at)
                assert found == model[at : at + count], (seed, step, at, count)
            case 4:
                size = dice.choice([at, len(model), max(len(model) - 5, 0)])
                model = model[:size] + bytes(max(size - len(model), 0))
                os.ftruncate(f.fileno(), size)
            case 5 if model:
                with mmap.mmap(f.fileno(), len(model)) as mapped:
                    at %= len(model)
                    assert mapped[at : at + count] == model[at : at + count], (seed, step)
                    if dice.random() < 0.7:
                        data = dice.randbytes(min(count, len(model) - at))
                        mapped[at : at + len(data)] = model[at : at + len(data)] = data
            case 6:
                f.close()
                if dice.random() < 0.3:
                    path.rename(point / "other")
                    (point / "other").rename(path)
                f = path.open("r+b", buffering=0)
            case _:
                assert os.fstat(f.fileno()).st_size == len(model), (seed, step)
                if dice.random() < 0.3:
                    os.fsync(f.fileno())
    f.close()
    assert path.read_bytes() == model


# The end of a mount


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unmounts(volume: Path, place: Path, number: signal.Signals) -> None:
    at = place / "mounted"
    at.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "mount", str(volume), str(at)], stdout=subprocess.PIPE, text=True
    )
    until(lambda: is_mounted(at), "the mount")
    (at / "f").write_text("kept")
    process.send_signal(number)
    said = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0
    assert said == f"{volume} is mounted at {at}\n"
    assert not is_mounted(at)
    assert os.listdir(at) == []
    with ps.FileSystem(volume) as fs:
        assert fs.stat("/f").size == 4


def test_a_busy_mount_ends_with_its_last_user(volume: Path, place: Path) -> None:
    at = place / "mounted"
    at.mkdir()
    process = subprocess.Popen([*COMMAND, "mount", str(volume), str(at)], stdout=subprocess.PIPE)
    until(lambda: is_mounted(at), "the mount")
    with (at / "f").open("w") as f:
        process.terminate()
        until(lambda: not is_mounted(at), "the unmount")
        f.write("late")
        f.flush()
        assert process.poll() is None
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    with ps.FileSystem(volume) as fs:
        assert fs.stat("/f").size == 4


def test_what_cannot_be_mounted_is_told(volume: Path, place: Path) -> None:
    def refused(*words: object) -> str:
        command = [*COMMAND, "mount", *map(str, words)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert ran.returncode != 0
        assert ran.stderr.startswith("penstock: error: ") and ran.stderr.count("\n") == 1
        return ran.stderr

    at = place / "mounted"
    assert "mounting" in refused(volume, place / "none")
    assert "volume" in refused(place / "none", place)
    with mounted(volume, at):
        assert "uses it" in refused(volume, place)


# docs/mount.md

ATTRIBUTES = {
    "setfattr": "import os, sys; os.setxattr(sys.argv[5], sys.argv[2], sys.argv[4].encode())",
    "getfattr": "import os, sys; sys.stdout.buffer.write(os.getxattr(sys.argv[4], sys.argv[2]))",
}


def test_the_example_of_the_page(place: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "mount.md").read_text()
    lines = page.split("```console\n")[1].split("```")[0].splitlines()
    said = [line for line in lines if not line.startswith("$ ")]
    script = [f'penstock() {{ "{sys.executable}" -m penstock "$@"; }}', "set -e"]
    for name, program in ATTRIBUTES.items():
        if not shutil.which(name):
            script.append(f'{name}() {{ "{sys.executable}" -c \'{program}\' "$@"; }}')
    for line in lines:
        if line.startswith("$ "):
            script.append(line[2:])
            if line.endswith("&"):
                script.append("until mountpoint -q mnt; do sleep 0.05; done")
    found = run("bash", "-c", "\n".join([*script, "wait"]), cwd=place)
    found = found.replace("8hello", "8\nhello").replace("80\n", "8\n0\n")
    assert sorted(found.splitlines()) == sorted(said), found


def test_the_benchmark(place: Path) -> None:
    bench = [sys.executable, "-m", "penstock_bench", "mount", "--mib", "3", "--rounds", "1"]
    said = run(*bench, "--directory", place, cwd=place).splitlines()
    assert [line.split("  ")[0] for line in said[1:]] == [
        "the directory",
        "the mount",
        "the mount / the directory",
    ]
    assert os.listdir(place) == []


# Volumes whose servers stand


def test_two_mounts_and_a_program_on_standing_servers(volume: Path) -> None:
    """Each mount is a process of its own, and so are the servers."""
    volume.parent.chmod(0o755)
    one, other = volume.with_name("one"), volume.with_name("other")
    with (
        alone(volume, log=volume.with_name("log")) as server,
        mounted(server.url, one),
        mounted(server.url, other),
        ps.FileSystem(server.url) as fs,
    ):
        data = fill(5, 200_000)
        (one / "f").write_bytes(data)
        assert (other / "f").read_bytes() == data
        with (one / "f").open("r+b", buffering=0) as f, (other / "f").open("rb", buffering=0) as g:
            for nth in range(20):
                f.seek(1000 * nth)
                f.write(bytes([nth]) * 700)
                g.seek(1000 * nth)
                assert g.read(700) == bytes([nth]) * 700  # it was written before it was read
        with fs.attach("/f") as file:
            assert file.open().read(700, at=19_000) == bytes([19]) * 700
        fs.create("/g", cells=3, bsu=4096)
        with fs.attach("/g", "r+") as file:
            file.open().write(b"from a program")
        assert (other / "g").read_bytes() == b"from a program"
        (one / "d").mkdir()
        (one / "f").rename(one / "d" / "f")
        until(lambda: (other / "d" / "f").exists(), "the new name")
        (other / "own").write_bytes(b"x")
        os.chown(other / "own", OTHER_USER, OTHER_USER)
        assert fs.stat("/own").owner == OTHER_USER
        run("git", "init", "-q", one / "r", **GIT)
        (one / "r" / "a").write_text("text")
        run("git", "-C", one / "r", "add", "a", **GIT)
        run("git", "-C", one / "r", "commit", "-qm", "first", **GIT)
        run("git", "clone", "-q", one / "r", other / "clone", **GIT)
        assert (one / "clone" / "a").read_text() == "text"
    checked = run(*COMMAND, "fs", "fsck", volume, "--data")
    assert "nothing was found" in checked, checked
