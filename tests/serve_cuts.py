"""Cuts the connections of standing servers, again and again, and looks at what is left.

    python tests/serve_cuts.py --cuts 100 --seed 1

Three server processes and three clients, all with keys, reach each other through proxies
(`proxies.py`), which hold bytes up, change them, and cut connections in handshakes, hellos and
packets. Now and then all connections of one server are cut at once. Clients work as in
`serve_kills.py`, and all is compared in the same way: what was saved is there, nothing else than
what somebody wrote is, no operation fails but by a `PeerError`, and none takes too long.

A client calls each server through its proxy. Server 0 tells clients where the others are called,
and of itself the address at which it listens: what calls it again goes there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path

from helpers import penstock
from proxies import Proxies
from serve_kills import Campaign, Outcome, play
from serving import Server, configure

import penstock as ps
from penstock_bench.running import keep_port

SERVERS = 3


class CutCampaign(Campaign):
    """Servers and clients whose connections are cut; none is killed."""

    def __init__(self, place: Path, seed: int) -> None:
        super().__init__(place, seed)
        self.ports = [keep_port() for _ in range(SERVERS)]
        self.proxies = Proxies(self.ports, seed)
        self.stack = contextlib.ExitStack()

    def make(self) -> None:
        ps.FileSystem.create(self.volume, servers=SERVERS, block_bytes=4096).close()
        self.stack.enter_context(self.proxies.opened())
        self.proxies.is_calm.set()
        keys = self.place / "keys"
        penstock("keys", "authority", keys)
        for process in range(SERVERS):
            penstock("keys", "server", keys, process, "--host", "127.0.0.1")
        penstock("keys", "user", keys, "user", "--uid", os.getuid(), "--gid", os.getgid())
        self.stack.enter_context(named_keys(keys / "user"))
        for process, own in enumerate(self.ports):
            called = [*self.proxies.ports]
            called[process] = own
            config = self.place / f"{process}.toml"
            addresses = [f"127.0.0.1:{port}" for port in called]
            configure(config, addresses, volume=self.volume, keys=keys, cache="64KiB")
            arguments = ("--config", config, "--process", process)
            url = f"penstock://127.0.0.1:{own}"
            self.servers.append(Server(url, *arguments, log=self.place / "log"))

    def url(self) -> str:
        return f"penstock://127.0.0.1:{self.random.choice(self.proxies.ports)}"

    def disturb(self, most: int) -> int:
        """Lets connections have their fates for a while, and cuts those of some servers."""
        self.proxies.is_calm.clear()
        for nth in range(SERVERS):  # none is left of those to which nothing happens
            self.proxies.cut(nth)
        count = min(most, 10)
        for _ in range(count):
            time.sleep(self.random.random() * 0.4)
            self.proxies.cut(self.random.randrange(SERVERS))
            self.note("all of a server")
        self.proxies.is_calm.set()
        for nth in range(SERVERS):
            self.proxies.cut(nth)
        return count

    def count(self, kills: int) -> int:
        return kills

    def run(self, kills: int) -> Outcome:
        with self.stack:
            outcome = super().run(kills)
        outcome.disturbed |= dict(self.proxies.met)
        return outcome


@contextlib.contextmanager
def named_keys(keys: Path):
    """This process, and those that it starts, have these keys."""
    os.environ["PENSTOCK_KEYS"] = str(keys)
    try:
        yield
    finally:
        del os.environ["PENSTOCK_KEYS"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--cuts", type=int, default=100, help="of all connections of a server")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    outcome = play(given.cuts, given.seed, CutCampaign)
    print(f"cut: {outcome}, in {time.monotonic() - begun:.0f} s")
