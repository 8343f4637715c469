"""Volumes whose servers stand: jobs, programs, threads and commands use one at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers import penstock
from serve_kills import play
from serving import (
    SECONDS_MAX,
    Server,
    alone,
    as_user,
    configure,
    patient,
    serve_command,
)

import penstock as ps
from penstock_bench.running import keep_port

MPIEXEC = Path(sys.executable).with_name("mpiexec")
IS_ROOT = os.getuid() == 0


@pytest.fixture
def volume(place: Path) -> Path:
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    return place / "v"


def content(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def test_a_volume_is_made_served_and_stopped(place: Path) -> None:
    with alone(place / "new") as server:
        with ps.FileSystem(server.url) as fs:
            assert (fs.servers, fs.list("/")) == (1, [])
            fs.mkdir("/a")
            fs.create("/a/f", cells=3, bsu=100)
            with fs.attach("/a/f", "r+") as f:
                data = content(1, 100_000)
                f.open().write(data)
                f.checkpoint()
                f.open().write(b"other", at=5)
                assert bytes(f.open().read(9, at=2)) == bytes(data[2:5]) + b"other" + bytes(
                    data[10:11]
                )
                f.rollback()
                assert f.open().read(100_000, at=0) == bytes(data)
        # Another program sees it, and so does the command.
        assert penstock("fs", "ls", server.url, "/a") == "f\n"
        with ps.FileSystem(server.url) as fs, fs.attach("/a/f") as f:
            assert f.open().read(100_000) == bytes(data)
        server.stop()
        server.start()
        with ps.FileSystem(server.url) as fs, fs.attach("/a/f") as f:
            assert f.open().read(100_000) == bytes(data)
    assert "nothing was found" in penstock("fs", "fsck", place / "new", "--data")


def test_the_command_shows_the_servers(volume: Path) -> None:
    with alone(volume) as server:
        shown = json.loads(penstock("servers", server.url, "--json"))
        assert [(row["servers"], row["is_there"]) for row in shown] == [([0, 1], True)]
    command = [sys.executable, "-m", "penstock", "servers", server.url]
    looked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert looked.returncode == 1
    assert looked.stderr.startswith("penstock: error: ")


JOB = """
import sys, numpy as np, penstock as ps
from mpi4py import MPI
url, life = sys.argv[1], int(sys.argv[2])
comm = MPI.COMM_WORLD
with ps.FileSystem(url, comm) as fs:
    assert fs.rank == comm.rank
    if comm.rank == 0:
        fs.create(f"/job{life}", cells=4, bsu=512)
    comm.Barrier()
    with fs.attach_all(f"/job{life}", "r+") as f:
        view = ps.View(hn=2)
        mine = np.full(6000, 10 * life + comm.rank, np.uint8)
        f.write_all(view, comm.rank % 2, mine, offset=6000 * (comm.rank // 2))
        back = np.empty_like(mine)
        f.read_all(view, comm.rank % 2, back, offset=6000 * (comm.rank // 2))
        assert np.array_equal(back, mine)
        f.open(view, comm.rank % 2).write(b"end", at=20000 + 3 * comm.rank)
"""


def test_jobs_programs_and_threads_at_once(volume: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        fs.create("/shared", cells=4, bsu=4096)
        jobs = [
            subprocess.Popen(
                [
                    MPIEXEC,
                    "-n",
                    str(ranks),
                    sys.executable,
                    tmp_path / "job.py",
                    server.url,
                    str(life),
                ]
            )
            for life, ranks in ((1, 2), (2, 3))
        ]

        def work(nth: int) -> None:
            with ps.FileSystem(server.url) as own, own.attach("/shared", "r+") as f:
                view, place = f.open(), 300_000 * nth
                for round_ in range(5):
                    data = content(100 * nth + round_, 50_000 + nth)
                    view.write(data, at=place)
                    assert view.read(len(data), at=place) == bytes(data)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        assert [job.wait(SECONDS_MAX) for job in jobs] == [0, 0]
        assert fs.list("/") == ["job1", "job2", "shared"]
        with fs.attach("/job1") as f:
            assert set(f.open(ps.View(hn=2), 1).read(6000)) == {11}
    assert "nothing was found" in penstock("fs", "fsck", volume, "--data")


@pytest.mark.skipif(not IS_ROOT, reason="only root becomes another user")
def test_owners_and_modes_are_those_of_the_kernel(volume: Path) -> None:
    code = """
import sys
url, act = sys.argv[1:]
with ps.FileSystem(url) as fs:
    exec(act)
"""
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        volume.parent.chmod(0o755)
        volume.chmod(0o755)
        fs.mkdir("/open", mode=0o777)
        fs.create("/open/secret", cells=2, bsu=64, mode=0o600)

        def act(user: int, words: str) -> str:
            ran = as_user(user, code, server.url, words)
            return "" if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1]

        assert act(1000, "fs.create('/open/own', cells=1, bsu=1)") == ""
        assert (fs.stat("/open/own").owner, fs.stat("/open/own").group) == (1000, 1000)
        for words in (
            "fs.attach('/open/secret')",
            "fs.create('/own', cells=1, bsu=1)",
            "fs.chmod('/open/secret', 0o666)",
            "fs.quota(1000, 5)",
        ):
            assert "ReadOnlyError" in act(1000, words), words
        assert "ReadOnlyError" in act(1001, "fs.attach('/open/own', 'r+')")
        assert act(1001, "fs.attach('/open/own').detach()") == ""
        fs.quota(1000, 8192)
        full = "f = fs.attach('/open/own', 'r+'); f.open().write(bytes(50000)); f.sync()"
        assert "FullError" in act(1000, full)


NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]


def test_a_client_of_another_process_namespace_is_let_in(volume: Path) -> None:
    """The kernel has no number of the client's process for the server, as between containers."""
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --pid is not allowed here")
    server = subprocess.Popen([*NAMESPACE, *serve_command(volume)])
    try:
        url = f"unix://{volume}/penstock.sock"
        with patient(lambda: ps.FileSystem(url)) as fs:
            fs.create("/f", cells=1, bsu=64)
            assert fs.stat("/f").owner == os.getuid()
    finally:
        server.kill()
        server.wait(SECONDS_MAX)


def test_a_killed_server_comes_back_with_what_was_synced(volume: Path) -> None:
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=3, bsu=1000)
        f = fs.attach("/f", "r+")
        data = content(3, 70_000)
        f.open().write(data)
        f.sync()
        f.open().write(b"x" * 500, at=70_000)
        server.kill()
        with pytest.raises(ps.PeerError):
            fs.stat("/f")
        server.start()
        assert patient(lambda: fs.stat("/f")).cells == 3
        with pytest.raises(ps.PeerError, match="not saved may be lost"):
            fs.sync()  # once: the last write is lost
        fs.sync()
        with pytest.raises(ps.PeerError, match="not saved may be lost"):
            f.sync()
        assert f.open().read(70_000) == bytes(data)  # it is attached again by itself
        with fs.attach("/f", "r+") as again:
            assert again.open().read(70_000) == bytes(data)
    assert "nothing was found" in penstock("fs", "fsck", volume, "--data")


def test_killed_clients_harm_nobody(volume: Path) -> None:
    code = """
import sys, penstock as ps
fs = ps.FileSystem(sys.argv[1])
f = fs.attach("/f", "r+")
print("ready", flush=True)
while True:
    f.open().write(bytes([int(sys.argv[2])]) * 30_000)
"""
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=2, bsu=4096)
        for nth in range(8):
            command = [sys.executable, "-c", code, server.url, str(nth)]
            client = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert client.stdout is not None
            assert client.stdout.readline() == b"ready\n"
            with fs.attach("/f", "r+") as f:
                f.open().write(b"own", at=100_000 + nth)
                client.send_signal(signal.SIGSTOP if nth % 3 == 0 else 0)
                client.kill()
                client.wait(SECONDS_MAX)
                client.stdout.close()
                seen = set(f.open().read(30_000))
                assert seen <= set(range(nth + 1))
        assert len(fs.stat("/f").attached) <= 1
    assert "nothing was found" in penstock("fs", "fsck", volume, "--data")


def test_two_processes_and_keys(volume: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    penstock("keys", "authority", keys)
    for process in (0, 1):
        penstock("keys", "server", keys, process, "--host", "127.0.0.1")
    penstock("keys", "user", keys, "ann", "--uid", 1000, "--gid", 100, "--groups", "27,44")
    config = tmp_path / "servers.toml"
    ports = [keep_port(), keep_port()]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    configure(config, addresses, volume=volume, keys=keys, cache="8MiB")
    url = f"penstock://{','.join(addresses)}"
    os.environ["PENSTOCK_KEYS"] = str(keys / "ann")
    try:
        first = Server(url, "--config", config, "--process", 0)
        second = Server(url, "--config", config, "--process", 1)
        first.start(waits=False)  # it waits for the other
        with contextlib.ExitStack() as stack:
            stack.callback(first.stop)
            stack.enter_context(second)
            with ps.FileSystem(url) as fs:
                assert fs.servers == 2
                with pytest.raises(ps.ReadOnlyError):
                    fs.create("/f", cells=4, bsu=128)  # the root belongs to who made the volume
            with pytest.raises(ps.PeerError):
                ps.FileSystem(url, keys="")
    finally:
        del os.environ["PENSTOCK_KEYS"]


def test_threads_of_one_program_share_a_client(volume: Path) -> None:
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=5, bsu=333)
        failures = []

        def work(nth: int) -> None:
            try:
                with fs.attach("/f", "r+") as f:
                    for round_ in range(20):
                        data = content(round_, 5000)
                        f.open().write(data, at=nth * 10_000)
                        assert f.open().read(5000, at=nth * 10_000) == bytes(data)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=[nth]) for nth in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
        assert failures == []


def test_many_begun_writes_are_paced(volume: Path) -> None:
    """More than a server lets a client have under way: the client waits by itself."""
    with alone(volume) as server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=2, bsu=4096)
        with fs.attach("/f", "r+") as f:
            view, data = f.open(), content(5, 4 << 20)
            moving = [
                view.iwrite_at(at, data[at : at + 997]) for at in range(0, len(data) - 997, 997)
            ]
            moving += [view.iwrite_at((8 + nth) << 20, data[: 1 << 20]) for nth in range(80)]
            for one in moving:
                one.wait()
            assert view.read(997 * 4000, at=0) == bytes(data[: 997 * 4000])


def test_servers_and_clients_are_killed() -> None:
    """A few of the kills of `serve_kills.py`."""
    assert play(4, seed=5).disturbed == {"servers": 4, "clients": 4}
