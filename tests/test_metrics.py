"""What standing servers say of what they do: to Prometheus, and to `penstock top`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import penstock
from serving import COLLECTIVE_JOB, SECONDS_MAX, Server, alone, as_user

import penstock as ps
from penstock_bench.running import keep_port

IS_ROOT = os.getuid() == 0

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
ENDINGS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def parse(text: str) -> Samples:
    """The samples of a text in Prometheus's format 0.0.4, by name and labels.

    It refuses what the format does not allow, or what a scraper would take for something else.
    """
    assert text.endswith("\n")
    samples: Samples = {}
    types: dict[str, str] = {}
    helps: set[str] = set()
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, help_ = line[len("# HELP ") :].split(" ", 1)
            assert name not in helps, line
            assert help_, line
            helps.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line[len("# TYPE ") :].split(" ")
            assert name in helps, line
            assert name not in types, line
            assert kind in ENDINGS, line
            assert kind != "counter" or name.endswith("_total"), line
            types[name], family = kind, name
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, inside, value = found.groups()
            assert name in [family + ending for ending in ENDINGS[types[family]]], line
            pairs = LABEL.findall(inside or "")
            whole = ",".join(f'{key}="{text}"' for key, text in pairs)
            assert whole == (inside or ""), line
            key = (name, frozenset(pairs))
            assert len(key[1]) == len(pairs), line
            assert key not in samples, line
            samples[key] = float(value)
    for (name, labels), value in samples.items():
        if name.endswith("_bucket") and ("le", "+Inf") in labels:
            rest = labels - {("le", "+Inf")}
            assert samples[(name.removesuffix("_bucket") + "_count", rest)] == value
    return samples


class Endpoint:
    """The endpoint of a server process."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=SECONDS_MAX) as answer:
                if path == "/metrics":
                    said = answer.headers["Content-Type"]
                    assert said.startswith("text/plain; version=0.0.4"), said
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def samples(self) -> Samples:
        status, text = self.get("/metrics")
        assert status == 200
        return parse(text)


def sums(samples: Samples, name: str, **labels: str) -> float:
    """The sum of all samples of a name that have these labels."""
    wanted = set(labels.items())
    return sum(value for (one, own), value in samples.items() if one == name and wanted <= own)


def until(holds: Callable[[], Any]) -> Any:
    """Waits until something is true: numbers are noted just after an answer has gone."""
    end = time.monotonic() + SECONDS_MAX
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def top(url: str, code: int = 0) -> dict[str, Any]:
    """What `penstock top` says of servers since they began."""
    told = penstock("top", url, "--once", "--json", code=code)
    shown: dict[str, Any] = json.loads(told.splitlines()[0])
    return shown


@pytest.fixture
def volume(place: Path) -> Path:
    ps.FileSystem.create(place / "v", servers=2, block_bytes=4096).close()
    return place / "v"


@contextlib.contextmanager
def served(volume: Path, *arguments: object) -> Iterator[tuple[Server, Endpoint]]:
    port = keep_port()
    with alone(volume, "--metrics", f"127.0.0.1:{port}", *arguments) as server:
        yield server, Endpoint(port)


def test_counters_are_what_was_done(volume: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8)
    with served(volume) as (server, endpoint), ps.FileSystem(server.url) as fs:
        assert endpoint.get("/healthz")[0] == endpoint.get("/readyz")[0] == 200
        assert endpoint.get("/nothing")[0] == 404
        fs.create("/f", cells=2, bsu=4096)
        with fs.attach("/f", "r+") as f:
            view = f.open()
            view.write_at(0, data)
            for at in range(0, 40_000, 4096):
                assert view.read(4096, at=at) == bytes(data[at : at + 4096])
            assert view.read(50_000, at=90_000) == bytes(data[90_000:])
            with pytest.raises(ps.Error):
                fs.attach("/none")
            f.sync()
            reads = [("read", 10 * 4096 + 10_000), ("write", 100_000)]
            samples = until(
                lambda: (
                    (now := endpoint.samples())
                    and all(sums(now, "penstock_moved_bytes_total", kind=k) == b for k, b in reads)
                    and now
                )
            )
            # 4 KiB are in one cell, each on one server; more are asked of both.
            assert sums(samples, "penstock_requests_total", kind="write") == 2
            assert sums(samples, "penstock_requests_total", kind="read") == 12
            assert sums(samples, "penstock_request_seconds_count", kind="read") == 12
            assert sums(samples, "penstock_request_seconds_sum", kind="read") > 0
            assert sums(samples, "penstock_requests_total", kind="create") == 1
            assert sums(samples, "penstock_requests_total", kind="attach") == 2
            assert sums(samples, "penstock_requests_failed_total") == 1
            assert sums(samples, "penstock_requests_failed_total", kind="attach") == 1
            assert sums(samples, "penstock_ready") == 2
            # The last of the 25 blocks was brought in to be changed, the others were put in whole;
            # all were read in memory.
            assert sums(samples, "penstock_cache_hits_total") == 10 + 4
            assert sums(samples, "penstock_cache_misses_total") == 1
            assert sums(samples, "penstock_cache_bytes") == 25 * 4096
            until(lambda: sums(endpoint.samples(), "penstock_cache_changed_bytes") == 0)
            samples = endpoint.samples()
            assert sums(samples, "penstock_disk_bytes_total", kind="write") >= 25 * 4096
            assert sums(samples, "penstock_disk_operations_total", kind="sync") > 0
            assert sums(samples, "penstock_disk_failed_total") == 0
            until(lambda: sums(endpoint.samples(), "penstock_clients") == 1)
            samples = endpoint.samples()
            # This client, and this file.
            rows = {labels for name, labels in samples if name == "penstock_client_requests_total"}
            users = {dict(row)["user"] for row in rows}
            assert users == {str(os.getuid()), "other"}
            assert sums(samples, "penstock_client_read_bytes_total") == reads[0][1]
            assert sums(samples, "penstock_file_written_bytes_total", file="other") == 0
            assert sums(samples, "penstock_file_written_bytes_total") == 100_000

            seen = top(server.url)
            assert (seen["servers"], seen["ready"], seen["missing"]) == (2, 2, [])
            assert (seen["read_bytes"], seen["written_bytes"]) == (reads[0][1], 100_000)
            assert seen["kinds"]["read"]["requests"] == 12
            assert seen["kinds"]["read"]["bytes"] == reads[0][1]
            assert 0 < seen["kinds"]["read"]["median_us"] <= seen["kinds"]["read"]["p99_us"]
            assert seen["kinds"]["attach"]["failed"] == seen["failed"] == 1
            assert seen["cache"]["bytes"] == 25 * 4096
            assert seen["cache"]["hit_rate"] == 14 / 15
            assert seen["has_all_rows"]
            (file,) = seen["files"]
            assert (file["path"], file["owner"]) == ("/f", os.getuid())
            assert (file["read_bytes"], file["written_bytes"]) == (reads[0][1], 100_000)
            own = [row for row in seen["clients"] if row["written_bytes"]]
            assert [(row["user"], row["written_bytes"]) for row in own] == [(os.getuid(), 100_000)]
            text = penstock("top", server.url, "--once")
            assert "2 of 2 servers serve" in text
            assert "/f" in text
    assert "nothing was found" in penstock("fs", "fsck", volume, "--data")


def test_rows_of_clients_and_files_that_have_gone_are_dropped(volume: Path) -> None:
    with served(volume) as (server, endpoint), ps.FileSystem(server.url) as fs:
        fs.create("/gone", cells=2, bsu=4096)
        with ps.FileSystem(server.url) as other, other.attach("/gone", "r+") as f:
            f.open().write(bytes(8192))
        samples = until(
            lambda: (
                (now := endpoint.samples())
                and sums(now, "penstock_moved_bytes_total", kind="write") == 8192
                and sums(now, "penstock_client_written_bytes_total") == 0
                and now
            )
        )
        assert sums(samples, "penstock_file_written_bytes_total") == 8192
        fs.remove("/gone")
        until(lambda: sums(endpoint.samples(), "penstock_file_written_bytes_total") == 0)


def test_collective_requests_are_counted_with_their_bytes(volume: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(COLLECTIVE_JOB)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    with served(volume) as (server, endpoint):
        command = [str(mpiexec), "-n", "2", sys.executable, str(tmp_path / "job.py"), server.url]
        subprocess.run(command, check=True, timeout=SECONDS_MAX)
        samples = until(
            lambda: (
                (now := endpoint.samples())
                and sums(now, "penstock_requests_total", kind="read_all") == 2
                and now
            )
        )
        assert sums(samples, "penstock_requests_total", kind="write_all") == 2
        for kind in ("read_all", "write_all"):
            assert sums(samples, "penstock_moved_bytes_total", kind=kind) == 12_000
        assert sums(samples, "penstock_file_read_bytes_total") == 12_000


@pytest.mark.skipif(not IS_ROOT, reason="only root becomes another user")
def test_users_see_sums_and_the_rows_of_their_own(volume: Path) -> None:
    code = """
import subprocess, sys
url = sys.argv[1]
with ps.FileSystem(url) as fs:
    fs.create("/open/own", cells=1, bsu=4096)
    with fs.attach("/open/own", "r+") as f:
        f.open().write(bytes(5000))
        command = [f"/proc/self/fd/{program}", "top", url, "--once", "--json"]
        subprocess.run(command, check=True, pass_fds=[program])
"""
    with served(volume) as (server, _), ps.FileSystem(server.url) as fs:
        volume.parent.chmod(0o755)
        volume.chmod(0o755)
        fs.mkdir("/open", mode=0o777)
        fs.create("/open/secret", cells=2, bsu=64, mode=0o600)
        with fs.attach("/open/secret", "r+") as f:
            f.open().write(bytes(3000))
            ran = as_user(1000, code, server.url)
            assert ran.returncode == 0, ran.stderr
            assert "secret" not in ran.stdout
            seen = json.loads(ran.stdout)
            assert seen["written_bytes"] == 8000
            assert not seen["has_all_rows"]
            assert [row["path"] for row in seen["files"]] == ["/open/own"]
            assert {row["user"] for row in seen["clients"]} == {1000}
            assert (seen["other_clients"], seen["other_files"]) == (None, None)
            everything = top(server.url)
            paths = {row["path"] for row in everything["files"]}
            assert {"/open/own", "/open/secret"} <= paths


def test_the_endpoint_answers_while_a_client_hammers_the_server(volume: Path) -> None:
    with served(volume) as (server, endpoint), ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=2, bsu=4096)
        with fs.attach("/f", "r+") as f:
            view = f.open()
            view.write_at(0, bytes(1 << 20))
            is_over, done = threading.Event(), [0, 0]

            def hammer(nth: int) -> None:
                own = f.open()
                while not is_over.is_set():
                    own.read(4096, at=done[nth] * 4096 % (1 << 20))
                    done[nth] += 1

            threads = [threading.Thread(target=hammer, args=[nth]) for nth in range(2)]
            for thread in threads:
                thread.start()
            try:
                seen = [0.0]
                while len(seen) < 20:
                    now = sums(endpoint.samples(), "penstock_requests_total", kind="read")
                    assert now >= seen[-1]
                    seen.append(now)
                    assert endpoint.get("/readyz")[0] == 200
                until(lambda: min(done) > 1000)
            finally:
                is_over.set()
                for thread in threads:
                    thread.join(SECONDS_MAX)
            until(
                lambda: (
                    sums(endpoint.samples(), "penstock_requests_total", kind="read") == sum(done)
                )
            )
            samples = endpoint.samples()
            assert sums(samples, "penstock_moved_bytes_total", kind="read") == 4096 * sum(done)


def test_top_goes_on_and_sees_a_server_go_and_come_back(volume: Path) -> None:
    with served(volume) as (server, _):
        command = [sys.executable, "-m", "penstock", "top", server.url, "--json"]
        command += ["--interval", "0.05"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
            assert shown.stdout is not None
            lines = iter(shown.stdout.readline, "")

            def next_with(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
                return next(one for one in map(json.loads, lines) if holds(one))

            try:
                assert next_with(lambda one: bool(one["ready"] == 2))["missing"] == []
                with ps.FileSystem(server.url) as fs:
                    fs.mkdir("/a")
                    assert next_with(lambda one: "create" in one["kinds"])["connected"] == 2
                server.kill()
                gone = next_with(lambda one: len(one["missing"]) == 2)
                assert gone["ready"] == gone["requests_per_second"] == 0
                server.start()
                back = next_with(lambda one: bool(one["ready"] == 2))
                assert back["missing"] == []
                assert "create" not in back["kinds"]  # it counts from its start
            finally:
                shown.kill()


def test_refused_callers_are_counted_by_reason(volume: Path) -> None:
    import socket

    with served(volume) as (server, endpoint):
        before = sums(endpoint.samples(), "penstock_refused_total", reason="unrecognised")
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(volume / "penstock.sock"))
            caller.sendall(b"who is there? " * 1000)
            with contextlib.suppress(ConnectionError):
                while caller.recv(100):
                    pass
        until(
            lambda: (
                sums(endpoint.samples(), "penstock_refused_total", reason="unrecognised") > before
            )
        )
        assert sums(endpoint.samples(), "penstock_cut_off_total") == 0
        assert top(server.url)["refused"]["unrecognised"] > before


def test_a_process_is_ready_when_its_servers_are(volume: Path, tmp_path: Path) -> None:
    """Each process of a configuration has an endpoint of its own."""
    ports = [keep_port(), keep_port()]
    config = tmp_path / "servers.toml"
    processes = "".join(
        f'[[process]]\nlisten = ["unix://{volume}/{number}.sock"]\nservers = [{number}]\n'
        f'metrics = "127.0.0.1:{port}"\n'
        for number, port in enumerate(ports)
    )
    config.write_text(f'volume = "{volume}"\ncache = "8MiB"\n{processes}')
    url = f"unix://{volume}/0.sock"
    first = Server(url, "--config", config, "--process", 0)
    second = Server(url, "--config", config, "--process", 1)
    endpoints = [Endpoint(port) for port in ports]
    with contextlib.ExitStack() as stack:
        first.start(waits=False)
        stack.callback(first.stop)

        def is_there() -> bool:
            with contextlib.suppress(urllib.error.URLError):
                return endpoints[0].get("/healthz")[0] == 200
            return False

        until(is_there)
        # It waits for the other process for a while, and then is ready, or is ready at once.
        assert endpoints[0].get("/readyz")[0] in (200, 503)
        stack.enter_context(second)
        for number, endpoint in enumerate(endpoints):
            until(lambda: endpoint.get("/readyz")[0] == 200)  # noqa: B023
            samples = endpoint.samples()
            assert sums(samples, "penstock_ready", server=str(number)) == 1
            assert sums(samples, "penstock_ready") == 1
        with ps.FileSystem(url) as fs:
            fs.create("/f", cells=2, bsu=4096)
            with fs.attach("/f", "r+") as f:
                f.open().write(bytes(8192))
        for endpoint in endpoints:
            until(
                lambda: (
                    sums(endpoint.samples(), "penstock_moved_bytes_total", kind="write")  # noqa: B023
                    == 4096
                )
            )
        assert top(url)["written_bytes"] == 8192
        second.stop()
        seen = top(url, code=1)
        assert [one["server"] for one in seen["missing"]] == [1]


def test_bad_addresses_are_refused(volume: Path) -> None:
    for address in ("nothing", "127.0.0.1:99999"):
        command = [sys.executable, "-m", "penstock", "serve", str(volume), "--metrics", address]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert ran.returncode == 2, ran.stderr
        assert "HOST:PORT" in ran.stderr


CALLS = """
import sys, numpy as np, penstock as ps
def main(s):
    u = ps.Array("u", (64, 64), "f8", ps.Distribution("BLOCK,*", s.size), ps.Chunks((16, 64)))
    group, local = ps.Group("run", [u], "run.zarr"), np.ones(u.local_shape(s.rank))
    for _ in range(3):
        s.timestep(group, {"u": local})
    s.checkpoint(group, {"u": local})
    s.write("one.zarr", u, local)
    s.read("one.zarr", u)
    try:
        s.read("none.zarr", u)
    except ps.MissingError:
        pass
ps.run(main, ranks=2, servers=sys.argv[1])
"""


def test_calls_on_arrays_are_counted(volume: Path) -> None:
    (volume.parent / "arrays").mkdir()
    with served(volume, "--arrays", volume.parent / "arrays") as (server, endpoint):
        assert top(server.url)["calls"] == {"kinds": {}, "open": 0, "handed_over": 0, "left": 0}
        command = [sys.executable, "-c", CALLS, server.url]
        subprocess.run(command, check=True, timeout=SECONDS_MAX)
        samples = until(
            lambda: (
                (now := endpoint.samples())
                and sums(now, "penstock_calls_total", kind="close") == 1
                and now
            )
        )
        counted = {"timestep": 3, "checkpoint": 1, "write": 1, "read": 2}
        for kind, count in counted.items():
            assert sums(samples, "penstock_calls_total", kind=kind) == count
            assert sums(samples, "penstock_call_seconds_total", kind=kind) > 0
            moved = (count - (kind == "read")) * 64 * 64 * 8
            assert sums(samples, "penstock_call_moved_bytes_total", kind=kind) == moved
        assert sums(samples, "penstock_calls_failed_total") == 1
        assert sums(samples, "penstock_calls_failed_total", kind="read") == 1
        for state in ("open", "handed_over", "left"):
            key = ("penstock_calls_under_way", frozenset([("state", state)]))
            assert samples[key] == 0
        calls = top(server.url)["calls"]
        assert {kind: calls["kinds"][kind]["calls"] for kind in counted} == counted
        assert calls["kinds"]["write"]["bytes"] == 64 * 64 * 8
        assert "call on arrays" in penstock("top", server.url, "--once")


def test_without_arrays_no_calls_are_shown(volume: Path) -> None:
    with served(volume) as (server, endpoint):
        assert top(server.url)["calls"] is None
        assert not any(name.startswith("penstock_call") for name, _ in endpoint.samples())


def test_calls_under_way_are_seen(volume: Path) -> None:
    """A call waits for a rank that does not come to it."""
    (volume.parent / "arrays").mkdir()
    with served(volume, "--arrays", volume.parent / "arrays") as (server, endpoint):
        may_go_on = threading.Event()

        def main(session: ps.Session) -> None:
            u = ps.Array("u", (8, 8), "f8", ps.Distribution("BLOCK,*", session.size))
            local = np.ones(u.local_shape(session.rank))
            if session.rank == 1:
                assert may_go_on.wait(SECONDS_MAX)
            session.write("u.zarr", u, local)

        ranks = threading.Thread(target=ps.run, args=[main, 2], kwargs={"servers": server.url})
        ranks.start()
        try:
            until(lambda: sums(endpoint.samples(), "penstock_calls_under_way", state="open") == 1)
            assert top(server.url)["calls"]["open"] == 1
        finally:
            may_go_on.set()
            ranks.join(SECONDS_MAX)
        until(lambda: sums(endpoint.samples(), "penstock_calls_under_way") == 0)
        assert sums(endpoint.samples(), "penstock_calls_total", kind="write") == 1
