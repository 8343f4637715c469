"""Standing servers in trouble: full disks, clocks that jump, certificates that expire, clients that
take nothing, connections that are cut."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers import mounted_tmpfs, penstock
from serve_cuts import CutCampaign, named_keys
from serve_kills import CLIENTS, play
from serving import SECONDS_MAX, Server, alone, configure, patient

import penstock as ps
from penstock_bench.running import keep_port

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
needs_clock = pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime (Debian: faketime)")


@pytest.fixture
def volume(place: Path) -> Path:
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    return place / "v"


def content(seed: int, count: int) -> bytes:
    return np.random.default_rng(seed).bytes(count)


def until(holds: Callable[[], object]) -> None:
    """Waits for something that is bound to come."""
    limit = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def sync(file: ps.File | ps.FileSystem) -> None:
    """Saves a file, or all. The first sync after a loss says that there was one."""
    try:
        file.sync()
    except ps.PeerError:
        patient(file.sync)


def is_clean(volume: Path) -> bool:
    return "nothing was found" in penstock("fs", "fsck", volume, "--data")


# Full disks

PIECE = 16 << 10


def fill(file: ps.File, seed: int) -> int:
    """Writes pieces until there is no more room: how many were saved."""
    view, saved = file.open(), 0
    try:
        while True:
            view.write(content(seed + saved, PIECE), at=saved * PIECE)
            file.sync()
            saved += 1
    except ps.FullError:
        return saved


@contextlib.contextmanager
def busy_reader(url: str, path: str, data: bytes) -> Iterator[None]:
    """Reads a file all the time, which must go well and have these bytes."""
    is_over, reads = threading.Event(), [0]

    def read() -> None:
        with ps.FileSystem(url) as fs, fs.attach(path) as file:
            view = file.open()
            while not is_over.is_set():
                assert view.read(len(data), at=0) == data
                reads[0] += 1

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        until(lambda: reads[0] or reading.done())
        try:
            yield
        finally:
            is_over.set()
        before = reads[0]
        reading.result(SECONDS_MAX)
        assert reads[0] >= before > 0


def test_a_full_volume_refuses_what_has_no_room_and_serves_the_rest(place: Path) -> None:
    volume, kept = place / "small", content(1, 30_000)
    ps.FileSystem.create(volume, servers=2, block_bytes=4096, capacity=512 << 10).close()
    with alone(volume, "--cache", "64KiB") as server, ps.FileSystem(server.url) as fs:
        fs.create("/kept", cells=2, bsu=4096)
        with fs.attach("/kept", "r+") as f:
            f.open().write(kept)

        def work(nth: int) -> int:
            with ps.FileSystem(server.url) as own:
                own.create(f"/{nth}", cells=2, bsu=4096)
                with own.attach(f"/{nth}", "r+") as f:
                    return fill(f, 1000 * nth)

        with busy_reader(server.url, "/kept", kept):
            with ThreadPoolExecutor(CLIENTS) as threads:
                saved = list(threads.map(work, range(CLIENTS)))
            assert sum(saved) > 0
            for nth, count in enumerate(saved):
                with fs.attach(f"/{nth}") as f:
                    for at in range(count):
                        found = f.open().read(PIECE, at=at * PIECE)
                        assert found == content(1000 * nth + at, PIECE), (nth, at)
            # What is removed makes room again, for those who were refused, too.
            fs.remove("/0")
            with fs.attach("/1", "r+") as f:
                f.open().write(kept, at=0)
                f.sync()
                assert f.open().read(len(kept), at=0) == kept
    assert is_clean(volume)


def test_a_disk_that_others_fill(place: Path) -> None:
    """The file system is full, though the volume is not: what was saved stays, and when there is
    room again the servers go on, after a restart at most."""
    with mounted_tmpfs("size=24m") as disk:
        if disk is None:
            pytest.skip("needs the right to mount a tmpfs")
        volume, kept = disk / "v", content(1, 30_000)
        ps.FileSystem.create(volume, servers=2, block_bytes=4096).close()
        saved = 0
        with alone(volume, "--cache", "64KiB", log=place / "log") as server:
            # The end of the block tells once more of what could not be saved.
            with contextlib.suppress(ps.FullError), ps.FileSystem(server.url) as fs:
                for path in ("/kept", "/grows"):
                    fs.create(path, cells=2, bsu=4096)
                with fs.attach("/kept", "r+") as f:
                    f.open().write(kept)
                with busy_reader(server.url, "/kept", kept):
                    with (disk / "filler").open("wb", buffering=0) as filler:
                        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
                        filler.write(bytes(free - (256 << 10)))
                    saved = fill(fs.attach("/grows", "r+"), 2)
                    os.unlink(disk / "filler")
                    # Another file is not concerned.
                    with ps.FileSystem(server.url) as other:
                        other.create("/other", cells=2, bsu=4096)
                        with other.attach("/other", "r+") as g:
                            g.open().write(kept)
                            g.sync()
            server.kill()
            server.start()
            with ps.FileSystem(server.url) as fs:
                for path in ("/kept", "/other"):
                    with fs.attach(path) as f:
                        assert f.open().read(len(kept)) == kept
                with fs.attach("/grows", "r+") as f:
                    for at in range(saved):
                        assert f.open().read(PIECE, at=at * PIECE) == content(2 + at, PIECE), at
                    f.open().write(kept, at=0)
                    f.sync()
                    assert f.open().read(len(kept), at=0) == kept
        assert is_clean(volume)


# Clocks


class Clock:
    """The wall clock of some processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set("+0")
        assert FAKETIME is not None
        self.environment = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, words: str) -> None:
        """Lets the clock jump by so much, or to a time, at which it stands still."""
        new = self.path.with_suffix(".new")
        new.write_text(words + "\n")
        new.replace(self.path)


STILL = "2020-01-01 00:00:00"


@needs_clock
def test_a_wall_clock_that_jumps_in_a_life_and_between_two(volume: Path, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    lives = [("+0", "-400d"), ("-400d", "+400d"), (STILL, STILL), (STILL, "+0"), ("-9000d", "+0")]
    server = alone(volume, "--cache", "64KiB", environment=clock.environment)
    limit = 400 << 10
    with server, ps.FileSystem(server.url) as fs, ps.FileSystem(server.url) as other:
        fs.create("/f", cells=3, bsu=1000)
        fs.quota(os.getuid(), limit)
        f, g = fs.attach("/f", "r+"), other.attach("/f", "r+")
        for life, (first, then) in enumerate(lives):
            server.kill()
            clock.set(first)
            server.start()
            own = f"/life{life}"
            patient(lambda: fs.create(own, cells=3, bsu=1000))  # noqa: B023
            for nth, file in enumerate((f, g)):
                data = content(10 * life + nth, 5000)
                patient(lambda: file.open().write(data, at=6000 * nth))  # noqa: B023
            clock.set(then)
            fs.rename(own, f"{own}-named")
            with other.attach(f"{own}-named", "r+") as mine:
                mine.open().write(content(100 + life, 20_000))
                mine.checkpoint()
                mine.open().write(b"other")
                mine.rollback()
                mine.sync()
            for nth, file in enumerate((g, f)):  # each reads what the other has written
                assert file.open().read(5000, at=6000 * nth) == content(10 * life + nth, 5000)
                sync(file)
            with pytest.raises(ps.FullError):
                for at in range(0, 2 * limit, 50_000):
                    g.open().write(bytes(50_000), at=20_000 + at)
                    g.sync()
            fs.resize("/f", 4000)  # of each cell
        for life in range(len(lives)):
            with fs.attach(f"/life{life}-named") as mine:
                assert mine.open().read(20_000) == content(100 + life, 20_000)
        assert len(fs.list("/")) == len(lives) + 1
        sync(fs)
        sync(other)
    assert is_clean(volume)


@needs_clock
def test_a_clock_that_stands_still_lends_no_life_the_numbers_of_another(
    volume: Path, tmp_path: Path
) -> None:
    """A shared pointer of a server's former life is lost, and moves nobody else's."""
    clock = Clock(tmp_path / "clock")
    clock.set(STILL)
    with (
        alone(volume, environment=clock.environment) as server,
        ps.FileSystem(server.url) as fs,
        ps.FileSystem(server.url) as other,
    ):
        fs.create("/f", cells=2, bsu=100)
        with fs.attach("/f", "r+") as f:
            f.open().write(bytes(range(100)))
            f.sync()
        f = fs.attach("/f")
        old = f.open(pointer=f.open().share())
        assert old.read(3) == bytes(range(3))
        server.kill()
        server.start()
        g = patient(lambda: other.attach("/f"))
        shared = [g.open().share() for _ in range(3)]
        new = [g.open(pointer=pointer) for pointer in shared]
        with pytest.raises(ps.PeerError):
            patient_of_loss(lambda: old.read(5))
        for pointer in new:
            assert pointer.read(4) == bytes(range(4))
        sync(fs)
        sync(other)


def patient_of_loss(act: Callable[[], object]) -> object:
    """Does something again as long as the server is not there."""
    while True:
        try:
            return act()
        except ps.PeerError as error:
            if "pointer" in str(error):
                raise
            time.sleep(0.02)


@needs_clock
def test_certificates_count_when_a_connection_begins(volume: Path, tmp_path: Path) -> None:
    """Who is connected stays so when a certificate expires; nobody comes in with it any more."""
    clock, keys = Clock(tmp_path / "clock"), tmp_path / "keys"
    penstock("keys", "authority", keys)
    penstock("keys", "server", keys, 0, "--host", "127.0.0.1", "--days", 3000)
    penstock("keys", "user", keys, "ann", "--uid", os.getuid(), "--gid", os.getgid())
    port = keep_port()
    url, config = f"penstock://127.0.0.1:{port}", tmp_path / "servers.toml"
    configure(config, [f"127.0.0.1:{port}"], [[0, 1]], volume=volume, keys=keys)
    arguments = ("--config", config, "--process", 0)
    with (
        named_keys(keys / "ann"),
        Server(url, *arguments, environment=clock.environment),
        ps.FileSystem(url) as fs,
    ):
        fs.create("/f", cells=2, bsu=4096)
        f = fs.attach("/f", "r+")
        f.open().write(b"before")
        for jump in ("+400d", "-400d"):  # expired; not valid yet
            clock.set(jump)
            with pytest.raises(ps.PeerError):
                ps.FileSystem(url)
            f.open().write(jump.encode())
            f.sync()
            assert f.open().read(5) == jump.encode()
        clock.set("+0")
        with ps.FileSystem(url) as again, again.attach("/f") as g:
            assert g.open().read(5) == b"-400d"


# Clients that take nothing

READER = """
import sys, penstock as ps
fs = ps.FileSystem(sys.argv[1])
with fs.attach("/big") as f:
    view, parts = f.open(), [bytearray(1 << 20) for _ in range(16)]
    while True:
        try:
            moving = [view.iread_at(nth << 20, part) for nth, part in enumerate(parts)]
            for one in moving:
                one.wait()
            word = "right" if all(part == bytes([7]) * (1 << 20) for part in parts) else "wrong"
        except ps.PeerError:
            word = "cut off"
        print(word, flush=True)
"""


def test_a_client_that_takes_nothing_is_cut_off_alone(volume: Path, tmp_path: Path) -> None:
    config, url = tmp_path / "servers.toml", f"unix://{volume}/penstock.sock"
    configure(config, [url], [[0, 1]], volume=volume, patience=1)
    kept = content(1, 30_000)

    def cut_off() -> int:
        shown = json.loads(penstock("top", url, "--once", "--json").splitlines()[0])
        return sum(shown["cut_off"].values())

    with Server(url, "--config", config, "--process", 0), ps.FileSystem(url) as fs:
        for path, data in (("/kept", kept), ("/big", bytes([7]) * (16 << 20))):
            fs.create(path, cells=2, bsu=65536)
            with fs.attach(path, "r+") as f:
                f.open().write(data)
        command = [sys.executable, "-c", READER, url]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader,
            busy_reader(url, "/kept", kept),
        ):
            assert reader.stdout is not None
            words = map(str.strip, reader.stdout)
            seen: list[str] = []

            def hear() -> str:
                seen.append(next(words))
                return seen[-1]

            try:
                for attempt in range(20):  # it may be stopped between two reads
                    while hear() == "cut off":
                        pass
                    time.sleep(0.013 * attempt)
                    reader.send_signal(signal.SIGSTOP)
                    limit = time.monotonic() + 4
                    while not (count := cut_off()) and time.monotonic() < limit:
                        time.sleep(0.1)
                    reader.send_signal(signal.SIGCONT)
                    if count:
                        break
                assert count, "it was never cut off"
                # It hears that, comes in again, and goes on.
                while "cut off" not in seen or seen[-1] != "right":
                    hear()
                assert set(seen) <= {"right", "cut off"}
            finally:
                reader.kill()
    assert is_clean(volume)


LARGE = """
import sys, penstock as ps
fs = ps.FileSystem(sys.argv[1])
with fs.attach("/big") as f:
    view = f.open()
    while True:
        try:
            view.read(16 << 20, at=0)
        except ps.PeerError:
            pass
        print("read", flush=True)
"""


def test_a_client_that_stops_in_a_large_read_keeps_writers_waiting_no_longer_than_the_patience(
    volume: Path, tmp_path: Path
) -> None:
    """Bytes of a large read go straight into the client's memory, and a write waits for it."""
    config, url = tmp_path / "servers.toml", f"unix://{volume}/penstock.sock"
    configure(config, [url], [[0, 1]], volume=volume, patience=1)
    with Server(url, "--config", config, "--process", 0), ps.FileSystem(url) as fs:
        fs.create("/big", cells=2, bsu=65536)
        with (
            fs.attach("/big", "r+") as f,
            subprocess.Popen(
                [sys.executable, "-c", LARGE, url], stdout=subprocess.PIPE, text=True
            ) as reader,
        ):
            f.open().write(bytes(16 << 20))
            assert reader.stdout is not None
            try:
                for attempt in range(5):  # some of them stop it between two reads
                    assert reader.stdout.readline() == "read\n"
                    time.sleep(0.003 * attempt)
                    reader.send_signal(signal.SIGSTOP)
                    f.open().write(bytes([attempt]) * (16 << 20))  # it would hang
                    reader.send_signal(signal.SIGCONT)
            finally:
                reader.kill()
            assert f.open().read(16 << 20) == bytes([4]) * (16 << 20)
    assert is_clean(volume)


# Connections that are cut


def test_connections_are_cut() -> None:
    """A few of the cuts of `serve_cuts.py`."""
    outcome = play(12, seed=3, kind=CutCampaign)
    assert outcome.disturbed["all of a server"] == 12
    assert outcome.saved > 0
