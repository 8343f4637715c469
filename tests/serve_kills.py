"""Kills standing servers and their clients, again and again, and looks at what is left.

    python tests/serve_kills.py --kills 300 --seed 1

Two server processes serve a volume to three clients (`serve_job.py`), which write to files of their
own and save. At random moments a server or a client is killed by SIGKILL, and started again
a while later. Now and then all is stopped, and compared with what the clients have logged: all that
was saved is there, all else is what somebody has begun to write, no operation took too long, and
`penstock fs fsck --data` finds nothing.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from helpers import fast_directory, penstock
from serve_job import BYTES, PLACES, value
from serving import SECONDS_MAX, Server

import penstock as ps

JOB = Path(__file__).with_name("serve_job.py")
CLIENTS = 3
SERVERS = 2
KILLS_BETWEEN = 15
"""Between two looks at what is left."""


class Campaign:
    """Servers, clients, and what they have logged."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place, self.volume = place, place / "v"
        ps.FileSystem.create(self.volume, servers=SERVERS, block_bytes=4096).close()
        sockets = [place / f"{process}.sock" for process in range(SERVERS)]
        config = place / "servers.toml"
        config.write_text(
            f'volume = "{self.volume}"\ncache = "64KiB"\n'
            + "".join(
                f'[[process]]\nlisten = ["unix://{socket}"]\nservers = [{process}]\n'
                for process, socket in enumerate(sockets)
            )
        )
        self.servers = [
            Server(f"unix://{socket}", "--config", config, "--process", process, log=place / "log")
            for process, socket in enumerate(sockets)
        ]
        self.clients: list[subprocess.Popen[bytes] | None] = [None] * CLIENTS
        self.kills = {"server": 0, "client": 0}

    def log(self, client: int) -> Path:
        return self.place / f"client-{client}.log"

    def logged(self, client: int) -> list[tuple[str, int]]:
        """What a client has told. Its last line may be cut off."""
        if not self.log(client).exists():
            return []
        lines = self.log(client).read_text().split("\n")[:-1]
        return [(word, int(float(number))) for word, number in map(str.split, lines)]

    def start_servers(self) -> None:
        for server in self.servers:
            server.start(waits=False)
        for server in self.servers:
            server.wait()

    def start_client(self, client: int) -> None:
        told = self.logged(client)
        first = 1 + max((number for word, number in told if word == "begun"), default=-1)
        url = self.random.choice(self.servers).url
        command = [sys.executable, str(JOB), url, f"/{client}", str(self.log(client)), str(first)]
        self.clients[client] = subprocess.Popen(command)

    def stop_clients(self) -> None:
        for client in self.clients:
            if client is not None:
                assert client.poll() is None, "a client has failed"
                client.kill()
                client.wait(SECONDS_MAX)

    def kill_one(self) -> None:
        """Kills a server or a client, and starts it again."""
        time.sleep(self.random.random() * 0.3)
        if self.random.random() < 0.5:
            server = self.random.choice(self.servers)
            server.kill()
            time.sleep(self.random.choice([0, 0.1, 0.4]))
            server.start(waits=self.random.random() < 0.5)
            self.kills["server"] += 1
        else:
            nth = self.random.randrange(CLIENTS)
            client = self.clients[nth]
            assert client is not None
            assert client.poll() is None, "a client has failed"
            client.kill()
            client.wait(SECONDS_MAX)
            self.start_client(nth)
            self.kills["client"] += 1

    def await_saves(self) -> None:
        """Waits until each client has saved something more: none hangs."""
        before = [len(self.logged(client)) for client in range(CLIENTS)]
        until = time.monotonic() + SECONDS_MAX
        while True:
            new = [self.logged(client)[count:] for client, count in enumerate(before)]
            if all(any(word == "saved" for word, _ in told) for told in new):
                return
            assert time.monotonic() < until, f"a client hangs: {new}"
            time.sleep(0.02)

    def check(self, client: int) -> None:
        """Compares a client's file with its log."""
        told = self.logged(client)
        assert not [one for one in told if one[0] == "slow"], "an operation took too long"
        with ps.FileSystem(self.volume) as fs, fs.attach(f"/{client}") as file:
            found = np.frombuffer(file.open().read(PLACES * BYTES), np.uint8)
        for place in range(PLACES):
            here = [one for one in told if one[1] % PLACES == place]
            saved = max((number for word, number in here if word == "saved"), default=None)
            begun = {number for word, number in here if word == "begun"}
            may_be = {value(number) for number in begun if saved is None or number >= saved}
            if saved is None:
                may_be.add(0)
            seen = set(found[place * BYTES : (place + 1) * BYTES].tolist())
            assert seen <= may_be, f"client {client}, place {place}: {seen}, not {may_be}"
            assert saved is None or len(found) >= (place + 1) * BYTES, "bytes are lost"

    def run(self, kills: int) -> None:
        self.start_servers()
        with ps.FileSystem(self.servers[0].url) as fs:
            for client in range(CLIENTS):
                fs.create(f"/{client}", cells=4, bsu=1000)
        while kills > 0:
            for client in range(CLIENTS):
                self.start_client(client)
            for _ in range(min(kills, KILLS_BETWEEN)):
                self.kill_one()
            kills -= KILLS_BETWEEN
            for server in self.servers:
                server.wait()
            self.await_saves()
            self.stop_clients()
            for server in self.servers:
                server.stop()
            penstock("fs", "fsck", "--data", self.volume)
            for client in range(CLIENTS):
                self.check(client)
            self.start_servers()
        for server in self.servers:
            server.stop()


def play(kills: int, seed: int) -> dict[str, int]:
    """A campaign: how many of each kind were killed."""
    with tempfile.TemporaryDirectory(dir=fast_directory()) as directory:
        campaign = Campaign(Path(directory), seed)
        try:
            campaign.run(kills)
        finally:
            for process in [*campaign.clients, *(server.process for server in campaign.servers)]:
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait(SECONDS_MAX)
        return campaign.kills


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    killed = play(given.kills, given.seed)
    print(f"killed: {killed}, all right, in {time.monotonic() - begun:.0f} s")
