"""Proxies between the clients and the servers of a test, and between servers: they hold bytes up,
let them go one by one, change one, or cut a connection anywhere.

What happens to a connection follows from a seed and from how many its proxy has had before; when it
happens does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Iterator

PIECE_BYTES = 1 << 16
SMALL_BYTES = 8
PAUSE_SECONDS_MAX = 0.003
REACHES = (2_000, 10_000, 400_000)
"""Where a connection is cut, or a byte of it changed: within the handshake of TLS, soon after that,
or later."""


@dataclasses.dataclass
class Way:
    """What happens to the bytes that go one way."""

    pauses: int = 0
    """How often they are held up."""
    cut_at: int | None = None
    changed_at: int | None = None


def fate(chance: random.Random) -> tuple[Way, Way]:
    """What happens to a connection, there and back."""
    ways = Way(), Way()
    if chance.random() < 0.5:
        for way in ways:
            way.pauses = 30
    what, at = chance.random(), chance.randrange(chance.choice(REACHES))
    if what < 0.4:
        chance.choice(ways).cut_at = at
    elif what < 0.6:
        chance.choice(ways).changed_at = at
    return ways


class Cut(Exception):
    """A connection has been cut."""


class Proxy:
    """A proxy of one server."""

    def __init__(self, target: int, seed: str, is_calm: threading.Event, met: Counter[str]) -> None:
        self.target, self.seed, self.is_calm, self.met = target, seed, is_calm, met
        self.count = 0
        self.port = 0
        self.server: asyncio.Server | None = None
        self.connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def answer(self, caller: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        chance = random.Random(f"{self.seed} {self.count}")
        self.count += 1
        ways = (Way(), Way()) if self.is_calm.is_set() else fate(chance)
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            called, there = await asyncio.open_connection("127.0.0.1", self.target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.carry(caller, there, ways[0], chance))
                group.create_task(self.carry(called, back, ways[1], chance))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass  # a cut, or a server that is away
        finally:
            self.connections.discard(task)
            for writer in filter(None, (there, back)):
                writer.transport.abort()

    async def carry(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        way: Way,
        chance: random.Random,
    ) -> None:
        """Passes bytes on until one of the two ends closes."""
        passed = 0
        with contextlib.suppress(OSError):
            while True:
                is_small = way.pauses > 0 and chance.random() < 0.7
                most = chance.randint(1, SMALL_BYTES) if is_small else PIECE_BYTES
                data = bytearray(await source.read(most))
                if not data:
                    break
                if way.pauses > 0 and chance.random() < 0.5:
                    way.pauses -= 1
                    await asyncio.sleep(chance.random() * PAUSE_SECONDS_MAX)
                if way.changed_at is not None and 0 <= way.changed_at - passed < len(data):
                    data[way.changed_at - passed] ^= 1 << chance.randrange(8)
                    self.met["changed"] += 1
                is_end = way.cut_at is not None and way.cut_at - passed < len(data)
                if way.cut_at is not None and is_end:
                    del data[max(0, way.cut_at - passed) :]
                target.write(data)
                await target.drain()
                passed += len(data)
                if is_end:
                    self.met["cut"] += 1
                    raise Cut
        with contextlib.suppress(OSError):
            target.write_eof()


class Proxies:
    """Proxies of servers at some ports of this host."""

    def __init__(self, targets: list[int], seed: int) -> None:
        self.is_calm = threading.Event()
        """Nothing happens to connections that begin now."""
        self.met: Counter[str] = Counter()
        """How often what has happened."""
        self.all = [
            Proxy(target, f"{seed} {nth}", self.is_calm, self.met)
            for nth, target in enumerate(targets)
        ]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    @property
    def ports(self) -> list[int]:
        return [proxy.port for proxy in self.all]

    @contextlib.contextmanager
    def opened(self) -> Iterator[Proxies]:
        self.thread.start()
        try:
            for proxy in self.all:
                asyncio.run_coroutine_threadsafe(proxy.open(), self.loop).result()
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.close(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()

    async def close(self) -> None:
        tasks = [task for proxy in self.all for task in proxy.connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for proxy in self.all:
            if proxy.server is not None:
                proxy.server.close()

    def cut(self, nth: int) -> None:
        """Cuts all connections that go through a proxy now."""

        def cut() -> None:
            for task in self.all[nth].connections:
                self.met["all cut"] += 1
                task.cancel()

        self.loop.call_soon_threadsafe(cut)
