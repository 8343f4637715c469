"""Servers that come to a volume, and go, while it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import penstock
from serving import SECONDS_MAX, Server, as_user, configure

import penstock as ps

BLOCK = 4096
BYTES = 40 * BLOCK


def content(number: int) -> bytes:
    return np.random.default_rng(number).bytes(BYTES + number)


def fill(fs: ps.FileSystem, directory: str, count: int) -> dict[str, bytes]:
    """Makes files of many structures, some with checkpoints."""
    fs.mkdir(directory)
    made = {}
    for number in range(count):
        path = f"{directory}/f{number}"
        fs.create(path, cells=1 + number * 3 % 11, bsu=[1, 100, BLOCK, 3 * BLOCK][number % 4])
        with fs.attach(path, "r+") as file:
            if number % 3 == 0:
                file.open().write(b"x" * BYTES)
                file.checkpoint()
            file.open().write(content(number), at=0)
            file.sync()
        made[path] = content(number)
    return made


def check(fs: ps.FileSystem, made: dict[str, bytes]) -> None:
    for path, expected in made.items():
        with fs.attach(path, "r+") as file:
            assert bytes(file.open().read(len(expected) + 1)) == expected, path
            if int(path.rsplit("f", 1)[1]) % 3 == 0:
                kept = file.open(version="checkpoint").read(BYTES)
                assert bytes(kept) == b"x" * BYTES, path


def used(fs_or_url: str | Path) -> list[int]:
    told = penstock("fs", "df", fs_or_url, "--json")
    return json.loads(told)["used_bytes_of_servers"]


def fsck(volume: Path) -> None:
    penstock("fs", "fsck", volume, "--data")


def test_a_server_is_added_and_another_drained(place: Path) -> None:
    volume = place / "v"
    with ps.FileSystem.create(volume, servers=3, block_bytes=BLOCK) as fs:
        made = fill(fs, "/a", 12)
        assert fs.rebalance() == ps.Rebalanced(0, 0, {})
    penstock("fs", "add-server", volume)
    with ps.FileSystem(volume) as fs:
        assert fs.servers == 4
        check(fs, made)
        made |= fill(fs, "/b", 3)  # the new server has nothing yet
    assert used(volume)[3] == 0 < min(used(volume)[:3])
    penstock("fs", "rebalance", volume)
    assert min(used(volume)) > 0
    with ps.FileSystem(volume) as fs:
        check(fs, made)
        made |= fill(fs, "/c", 3)
    fsck(volume)
    told = json.loads(penstock("fs", "rebalance", volume, "--drain", "1", "--json"))
    assert (told["servers"], told["failures"]) == ([0, 2, 3], {}) and told["files"] > 0
    assert used(volume)[1] == 0 < min(used(volume)[::2])
    with ps.FileSystem(volume) as fs:
        check(fs, made)
        assert fs.rebalance([0, 2, 3]) == ps.Rebalanced(0, 0, {})
        fs.quota(1234, 100 * BLOCK)
        with pytest.raises(ps.SchemaError):
            fs.rebalance([0, 7])
        fs.rebalance([3])
        check(fs, made)
        for path in made:
            fs.remove(path)
    assert used(volume) == [0] * 4
    fsck(volume)
    with ps.FileSystem(volume) as fs:
        fs.rebalance()
        fs.remove("/a")
        made = fill(fs, "/d", 12)
        check(fs, made)
    assert min(used(volume)) > 0
    fsck(volume)


def test_a_file_without_room_stays_where_it_was(place: Path) -> None:
    volume = place / "v"
    with ps.FileSystem.create(volume, servers=1, block_bytes=BLOCK) as fs:
        made = fill(fs, "/a", 3)
    penstock("fs", "add-server", volume, "--capacity", str(8 * BLOCK))
    with ps.FileSystem(volume) as fs:
        done = fs.rebalance([1])
        assert set(done.failures) == set(made)
        assert all(isinstance(error, ps.FullError) for error in done.failures.values())
        check(fs, made)
        assert not fs.rebalance([0]).failures
        check(fs, made)
    assert used(volume)[1] == 0
    fsck(volume)


REBALANCE = """
import sys
fs = ps.FileSystem(sys.argv[1])
try:
    fs.rebalance([0])
except ps.Error as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_only_the_owner_may(place: Path) -> None:
    volume = place / "v"
    ps.FileSystem.create(volume, servers=2, block_bytes=BLOCK).close()
    place.chmod(0o755)
    with served(place, volume, 2) as servers:
        for server in servers:
            server.start(waits=False)
        servers[0].wait()
        refused = as_user(4321, REBALANCE, servers[0].url)
        assert refused.stdout.split() == ["ReadOnlyError"], refused


class served:
    """Server processes of a volume, one a server, which are not started yet."""

    def __init__(self, place: Path, volume: Path, count: int) -> None:
        self.place, self.volume = place, volume
        self.servers = [self.server(process, count) for process in range(count)]

    def server(self, process: int, count: int) -> Server:
        urls = [f"unix://{self.place}/{number}.sock" for number in range(count)]
        config = self.place / "servers.toml"
        configure(config, urls, volume=self.volume, cache="256KiB")
        log = self.place / "log"
        return Server(urls[process], "--config", config, "--process", process, log=log)

    def __enter__(self) -> list[Server]:
        return self.servers

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.kill()


def test_servers_come_and_go_while_clients_write(place: Path) -> None:
    """Two clients write and read all the while, without being started anew."""
    volume = place / "v"
    with ps.FileSystem.create(volume, servers=2, block_bytes=BLOCK) as fs:
        made = fill(fs, "/a", 8)
    group = served(place, volume, 2)
    with group as servers:
        for server in servers:
            server.start(waits=False)
        servers[0].wait()
        url = servers[0].url
        is_over, errors, turns = threading.Event(), [], [0, 0]

        def use(number: int) -> None:
            try:
                with ps.FileSystem(servers[number].url) as fs:
                    use_own(fs, f"/own{number}", number)
            except BaseException as error:  # noqa: BLE001 (the test tells of it)
                errors.append(error)

        def use_own(fs: ps.FileSystem, path: str, number: int) -> None:
            """Writes a file of its own, and looks at what it has written."""
            fs.create(path, cells=5, bsu=1000)
            rng = np.random.default_rng(number)
            with fs.attach(path, "r+") as file:
                view, known = file.open(), bytearray(64 * BLOCK)

                view.write(bytes(known), at=0)
                while not is_over.is_set():
                    at = int(rng.integers(0, 60 * BLOCK))
                    data = rng.bytes(int(rng.integers(1, 4 * BLOCK)))
                    view.write(data, at=at)
                    file.sync()
                    known[at : at + len(data)] = data
                    assert view.read(len(known), at=0) == known
                    turns[number] += 1
            fs.sync()

        clients = [threading.Thread(target=use, args=(number,)) for number in range(2)]
        for client in clients:
            client.start()

        def go_on() -> None:
            """Waits until both clients have done something more."""
            before, until = list(turns), time.monotonic() + SECONDS_MAX
            while any(now == former for now, former in zip(turns, before, strict=True)):
                assert not errors and time.monotonic() < until, errors
                time.sleep(0.01)

        go_on()
        # A third server comes: each process reads the new configuration while it serves.
        penstock("fs", "add-server", volume, "--like", url)
        servers.append(group.server(2, 3))
        for server in servers[:2]:
            server.read_again()
        servers[2].start()
        go_on()
        # The command is killed in the middle, and goes on.
        command = [sys.executable, "-m", "penstock", "fs", "rebalance", url]
        killed = subprocess.Popen(command)
        until = time.monotonic() + SECONDS_MAX
        while used(url)[2] == 0 and killed.poll() is None:
            assert time.monotonic() < until
        killed.kill()
        killed.wait()
        penstock("fs", "rebalance", url)
        go_on()
        assert min(used(url)) > 0
        with ps.FileSystem(url) as fs:
            check(fs, made)
        # A server goes for good.
        url = servers[1].url
        penstock("fs", "rebalance", url, "--drain", "0")
        assert used(url)[0] == 0
        servers[0].stop()
        go_on()
        assert used(url)[0] == 0 and min(used(url)[1:]) > 0
        with ps.FileSystem(url) as fs:
            check(fs, made)
            fs.quota(77, 50 * BLOCK)
            made |= fill(fs, "/more", 4)
            check(fs, made)
            fs.rename("/more", "/renamed")
        is_over.set()
        for client in clients:
            client.join(SECONDS_MAX)
        assert not errors, errors
        for server in servers[1:]:
            server.stop()
    fsck(volume)
