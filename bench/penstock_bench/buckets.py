"""This benchmark writes and reads an array in a bucket, beside the crate object_store alone.

The service is moto's server on this host, or the bucket of a URL that the environment leads to. In
turn each rival writes the same chunks, and reads them again: Penstock, whose ranks are threads of
one program; obstore, which is the crate object_store with a face of Python, with as many requests
at once, and nothing to rearrange; zarr-python upon obstore. A time is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import http.client
import os
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TypeVar

import numpy as np
import obstore
import zarr
from obstore.store import ObjectStore, from_url

import penstock as ps
from penstock_bench.command import MIB, FailedError, Parser, UsageError, complain
from penstock_bench.running import keep_port, running

PENSTOCK, CRATE, ZARR = "Penstock", "object_store alone", "zarr-python"
REQUESTS = 16
"""The requests that a server of Penstock, and each rival, has under way."""

T = TypeVar("T")
Times = dict[tuple[str, str], list[float]]


@contextlib.contextmanager
def local_service() -> Iterator[str]:
    """A service on this host with an empty bucket, as a URL; the environment leads to it."""
    port = keep_port()
    variables = {
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    former = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with running(sys.executable, "-m", "moto.server", "-p", port, port=port):
            make_bucket(port)
            yield "s3://data/benchmark"
    finally:
        for name, value in former.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def make_bucket(port: int) -> None:
    """Make the bucket of a local service."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("PUT", "/data")
        if connection.getresponse().status != 200:
            raise FailedError("the local service makes no bucket")


def by_crate(store: ObjectStore, chunks: list[bytes], is_write: bool) -> None:
    """Put or get all chunks, some at once."""

    async def move() -> None:
        turns = asyncio.Semaphore(REQUESTS)

        async def one(number: int, chunk: bytes) -> None:
            async with turns:
                if is_write:
                    await obstore.put_async(store, f"crate/{number}", chunk)
                else:
                    answer = await obstore.get_async(store, f"crate/{number}")
                    if len(await answer.bytes_async()) != len(chunk):
                        raise FailedError("an object has another length")

        await asyncio.gather(*(one(number, chunk) for number, chunk in enumerate(chunks)))

    asyncio.run(move())


def by_zarr(store: ObjectStore, values: np.ndarray, rows: int, is_write: bool) -> np.ndarray:
    """Write or read the array with zarr-python."""
    place = zarr.storage.ObjectStore(store)
    with zarr.config.set({"async.concurrency": REQUESTS}):
        if not is_write:
            return np.asarray(zarr.open_array(place, path="zarr")[...])
        shape, chunks = values.shape, (rows, values.shape[1])
        made = zarr.create_array(
            place, name="zarr", shape=shape, chunks=chunks, dtype="f8", compressors=None
        )
        made[...] = values
        return values


def by_penstock(
    url: str, values: np.ndarray, rows: int, ranks: int, is_write: bool
) -> list[np.ndarray]:
    """Write or read the array; each rank holds some of its columns."""
    memory = ps.Distribution("*,BLOCK", ranks)
    u = ps.Array("u", values.shape, "f8", memory, ps.Chunks((rows, values.shape[1])))

    def move(session: ps.Session) -> np.ndarray:
        columns = -(-values.shape[1] // ranks)
        own = values[:, columns * session.rank : columns * (session.rank + 1)]
        if is_write:
            session.write(url, u, own)
            return own
        return session.read(url, u)

    return ps.run(move, ranks, servers=1)


def measure(url: str, mib: int, chunk_mib: int, ranks: int, rounds: int) -> Times:
    """Measure all, in turn, and compare what was read with what was written."""
    store = from_url(url, client_options={"allow_http": True})
    values = np.random.default_rng(1).random((mib, MIB // 8))
    chunks = [values[at : at + chunk_mib].tobytes() for at in range(0, mib, chunk_mib)]
    times: Times = {}

    def timed(name: str, way: str, call: Callable[[bool], T]) -> T:
        begun = time.perf_counter()
        moved = call(way == "write")
        times.setdefault((name, way), []).append(time.perf_counter() - begun)
        return moved

    for number in range(rounds):
        at = f"{url}/{number}.zarr"
        own = from_url(at, client_options={"allow_http": True})
        for way in ("write", "read"):
            timed(CRATE, way, functools.partial(by_crate, store, chunks))
            moved = timed(
                PENSTOCK, way, functools.partial(by_penstock, at, values, chunk_mib, ranks)
            )
            theirs = timed(ZARR, way, functools.partial(by_zarr, own, values, chunk_mib))
            for found in (np.hstack(moved), theirs):
                if not np.array_equal(found, values):
                    raise FailedError("what was read is not what was written")
        for listed in obstore.list(store, f"{number}.zarr"):
            obstore.delete(store, [each["path"] for each in listed])
    return times


def table(times: Times, mib: int, chunk_mib: int) -> str:
    """Write the rates as a table."""
    lines = [
        f"{f'{mib} MiB in chunks of {chunk_mib} MiB':<32}{'write MB/s':>12}{'':>7}{'read MB/s':>12}"
    ]
    medians = {key: median(each) for key, each in times.items()}
    for name in (CRATE, PENSTOCK, ZARR):
        line = f"{name:<32}"
        for way in ("write", "read"):
            rate = mib * MIB / 1e6 / medians[name, way]
            line += f"{rate:>12.0f}{medians[CRATE, way] / medians[name, way]:>7.2f}"
        lines.append(line)
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Run the benchmark, and print a table."""
    parser = Parser(prog="python -m penstock_bench buckets", description=__doc__)
    parser.add_argument("--url", help="a place in a bucket; default: a service on this host")
    parser.add_argument("--mib", type=int, default=256, help="the size of the array")
    parser.add_argument("--chunk-mib", type=int, default=8, help="the size of a chunk")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    try:
        options: argparse.Namespace = parser.parse_args(words)
        sizes = (options.mib, options.chunk_mib, options.ranks, options.rounds)
        if min(sizes) < 1:
            raise UsageError("sizes, ranks and rounds are at least 1")
        service = contextlib.nullcontext(options.url) if options.url else local_service()
        with service as url:
            print(table(measure(url, *sizes), options.mib, options.chunk_mib))
    except (UsageError, FailedError, ps.Error) as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    return 0
