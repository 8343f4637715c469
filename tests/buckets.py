"""Services of buckets for tests, which speak Amazon's protocol: moto's server, and gofakes3 in Go;
and a proxy before them that answers badly on purpose."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import http.client
import http.server
import itertools
import multiprocessing
import multiprocessing.context
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path

import boto3
import bucket_saver
import pytest
import zarr
from obstore.store import S3Store

import penstock as ps
from penstock_bench.running import keep_port

BUCKET = "data"
START_SECONDS_MAX = 500
GOFAKES3 = "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"
BUILD_SECONDS_MAX = 300
ANSWERS_SECONDS_MAX = 120


def environment(port: int, address: str = "127.0.0.1") -> dict[str, str]:
    """The variables by which programs reach the service."""
    return {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{address}:{port}",
    }


class Service:
    """A running service with one bucket."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.port = port
        self.url = url = f"http://{address}:{port}"
        keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
        self.client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)

    def keys(self, prefix: str = "") -> list[str]:
        """All keys that begin so, without the beginning."""
        pages = self.client.get_paginator("list_objects_v2")
        pages = pages.paginate(Bucket=BUCKET, Prefix=prefix)
        found = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return [key.removeprefix(prefix) for key in found]

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def clear(self, prefix: str) -> None:
        """Removes all objects whose keys begin so."""
        for key in self.keys(prefix):
            self.client.delete_object(Bucket=BUCKET, Key=prefix + key)

    def zarr(self, path: str) -> zarr.storage.ObjectStore:
        """A store of zarr-python at a key."""
        options = {"endpoint": self.url, "region": "us-east-1"}
        keys = {"access_key_id": "tests", "secret_access_key": "tests"}
        options |= dict(prefix=path, client_options={"allow_http": True}, **keys)
        return zarr.storage.ObjectStore(S3Store(BUCKET, **options))


MOTO = """
import sys
from moto.server import main
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.disable_nagle_algorithm = True
main(sys.argv[1:])
"""
"""Moto's server, whose headers and bodies do not wait for each other."""


@functools.cache
def gofakes3() -> str | None:
    """The program gofakes3, which is built if Go is there; None where it cannot be had."""
    beside = Path(sys.executable).parent
    path = f"{beside}{os.pathsep}{os.environ['PATH']}"
    if (found := shutil.which("gofakes3", path=path)) or shutil.which("go") is None:
        return found
    # Of the processes of a run one builds it, and the others wait.
    with open(Path(tempfile.gettempdir()) / "penstock-gofakes3.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := shutil.which("gofakes3", path=path):
            return found
        into = {**os.environ, "GOBIN": str(beside)}
        with contextlib.suppress(subprocess.SubprocessError):
            command = ["go", "install", GOFAKES3]
            subprocess.run(
                command, env=into, check=True, capture_output=True, timeout=BUILD_SECONDS_MAX
            )
            return str(beside / "gofakes3")
    return None


@contextlib.contextmanager
def service(address: str = "127.0.0.1", of: str | None = None) -> Iterator[Service]:
    """Starts a service at an address of this host: moto's server, or the program `of` gofakes3."""
    port = keep_port(address)
    command = [sys.executable, "-c", MOTO, "-H", address, "-p", str(port)]
    if of is not None:
        command = [of, "-backend", "memory", "-host", f"{address}:{port}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env={**os.environ, **environment(port)}, **quiet)
    try:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection((address, port)).close()
                break
            except OSError:
                assert process.poll() is None, "the service has ended"
                assert time.monotonic() < until, "the service does not start"
                time.sleep(0.05)
        made = Service(port, address)
        made.client.create_bucket(Bucket=BUCKET)
        yield made
    finally:
        process.kill()
        process.wait()


class Proxy:
    """What happens to requests on their way to the service: here, nothing."""

    def fate(self, method: str, path: str) -> str | None:
        """One of `FATES`, or None for a request that passes; may wait."""
        return None

    def headers(self, given: dict[str, str]) -> dict[str, str]:
        """The headers with which a request goes on."""
        return given


class Careless(Proxy):
    """A service that does not keep to the conditions of puts."""

    def headers(self, given: dict[str, str]) -> dict[str, str]:
        return {k: v for k, v in given.items() if k.lower() not in ("if-match", "if-none-match")}


FATES = ("busy", "slow", "lost request", "lost answer", "half an answer")


class Trouble(Proxy):
    """Each fate comes to some of the requests, by a seed."""

    def __init__(self, seed: int, share: float) -> None:
        self.chance = random.Random(seed)
        self.share = share
        self.met: Counter[str] = Counter()
        self.lock = threading.Lock()

    def fate(self, method: str, path: str) -> str | None:
        with self.lock:
            if self.chance.random() >= self.share:
                return None
            kind = self.chance.choice(FATES)
            self.met[kind] += 1
            return kind


class Gate(Proxy):
    """Holds the request of a number among those that change something, until it is opened; the
    requests after it, too."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []
        self.has_come = threading.Event()
        self.is_open = threading.Event()
        self.is_dropped = False
        self.lock = threading.Lock()

    def drop(self) -> None:
        """Opens it for nothing: all requests that have not gone on are lost, of a process that has
        been killed."""
        self.is_dropped = True
        self.is_open.set()

    def fate(self, method: str, path: str) -> str | None:
        if method in ("GET", "HEAD"):
            return None
        with self.lock:
            self.seen.append(f"{method} {path}")
            is_held = len(self.seen) > self.number
        if is_held:
            self.has_come.set()
            self.is_open.wait()
        return "lost request" if self.is_dropped else None


class _Server(http.server.ThreadingHTTPServer):
    """Knows how many requests it has not yet answered."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.requests, self.change = 0, threading.Condition()

    def count(self, more: int) -> None:
        with self.change:
            self.requests += more
            self.change.notify_all()

    def wait_for_requests(self) -> None:
        with self.change:
            done = self.change.wait_for(lambda: self.requests == 0, ANSWERS_SECONDS_MAX)
        assert done, "requests are not answered"


def _handler(target: int, proxy: Proxy) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server: _Server
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and bodies do not wait for each other

        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            self.server.count(1)
            try:
                with contextlib.suppress(ConnectionError):
                    self.pass_on()
            finally:
                self.server.count(-1)

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fate = proxy.fate(self.command, self.path)
            if fate == "busy":
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fate == "slow":
                time.sleep(0.05)
            if fate == "lost request":
                return self.cut()
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", target)) as onward:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                onward.request(self.command, self.path, body, proxy.headers(headers))
                answer = onward.getresponse()
                data = answer.read()
            if fate == "lost answer":
                return self.cut()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            said = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", said or str(len(data)))
            self.end_headers()
            if fate == "half an answer" and data:
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                return self.cut()
            self.wfile.write(data)

        def cut(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):  # the other end may have gone
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    return Handler


FORMS = {
    "natural": None,
    "plain": ps.Chunks((4, 3, 5)),
    "zstd": ps.Chunks((4, 3, 5), codec="zstd:1"),
    "crc32c": ps.Chunks((7, 2, 3), codec="crc32c"),
    "shards": ps.Chunks((4, 4, 6), subchunks=(2, 4, 3), codec="zstd:1"),
}
"""Arrays of `SHAPE` as they are stored where chunks are objects."""
SHAPE = (7, 6, 11)


@contextlib.contextmanager
def reached(of: str | None = None) -> Iterator[Service]:
    """Starts a service as `service` does; the environment says how to reach it."""
    with service(of=of) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(running.port).items():
            patch.setenv(name, value)
        yield running


def url(path: str) -> str:
    """The URL of a place in the bucket."""
    return f"s3://{BUCKET}/{path}"


KILL_STEP = int(os.environ.get("PENSTOCK_KILL_STEP", "12"))
"""The number of requests from one kill to the next: 1 in `make crash`."""
KILLS_MAX = 400


def kill_numbers(of: str = "") -> Iterator[int]:
    """The numbers of the requests at which a job is killed, 0 and every `KILL_STEP`-th from one
    that depends on the name of the test; it ends before the last of them."""
    first = 1 + zlib.crc32(of.encode()) % KILL_STEP
    return itertools.chain((0,), range(first, KILLS_MAX, KILL_STEP))


@functools.cache
def forks() -> multiprocessing.context.BaseContext:
    """Starts processes that have imported all they need: that takes a new one most of its time."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["bucket_saver", "repositories"])
    with pytest.MonkeyPatch.context() as patch:
        # Without this the server does not find them, and says nothing about it.
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()
    return made


def code_of(work: Callable[..., None], *given: object) -> int:
    """Does work in a process of its own, and says how that has ended."""
    process = forks().Process(target=work, args=given)
    process.start()
    process.join()
    return process.exitcode


def killed_at(
    number: int, port: int, work: Callable[..., None], *given: object
) -> tuple[bool, list[str]]:
    """Does work in a process that is killed as it makes the request of that number. Says whether
    it has come to its end before, and which requests it has made."""
    gate = Gate(number)
    with before(port, gate) as own:
        arguments = (environment(own), work, *given)
        process = forks().Process(target=bucket_saver.with_variables, args=arguments)
        process.start()
        while not gate.has_come.wait(0.01) and process.is_alive():
            pass
        is_done = process.exitcode is not None
        assert process.exitcode in (None, 0)
        process.kill()
        process.join()
        gate.drop()
    return is_done, gate.seen


def are_in_order(states: Sequence[object], expected: Sequence[object]) -> bool:
    """Whether kills, one later than the other, have left the first of the expected states, others
    in their order, and the last; all of them if no request was left out."""
    left = list(dict.fromkeys(states))
    ends = left[:1] == expected[:1] and left[-1:] == expected[-1:]
    rest = iter(expected)
    in_order = all(any(state == other for other in rest) for state in left)
    changes = sum(one != other for one, other in itertools.pairwise(states))
    is_whole = KILL_STEP > 1 or left == list(expected)
    return ends and in_order and changes == len(left) - 1 and is_whole


@contextlib.contextmanager
def before(target: int, proxy: Proxy) -> Iterator[int]:
    """Starts a proxy before the service; gives its port. At the end no request is under way."""
    server = _Server(_handler(target, proxy))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.wait_for_requests()
        server.server_close()
        thread.join()
