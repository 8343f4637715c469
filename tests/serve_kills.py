"""Kills standing servers and their clients, again and again, and looks at what is left.

    python tests/serve_kills.py --kills 300 --seed 1
    python tests/serve_kills.py --arrays --kills 100

Two server processes serve a volume to three clients (`serve_job.py`), which write to files of their
own, save, and read what they have written; with `--arrays` also a directory of arrays to a fourth,
which saves timesteps (`serve_array_job.py`). At random moments a server or a client is killed by
SIGKILL, and started again a while later, until as many of each kind have been killed as were asked
for. Now and then all is stopped, and compared with what the clients have logged: all that was saved
is there, all else is what somebody has begun to write, timesteps are whole, no operation took
longer than `serve_job.SECONDS_MAX`, and `penstock fs fsck --data` finds nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr
from helpers import fast_directory, penstock
from serve_job import BYTES, PLACES, value
from serve_job import SECONDS_MAX as OPERATION_SECONDS_MAX
from serving import SECONDS_MAX, Server, configure

import penstock as ps

HERE = Path(__file__).parent
FILE_JOB, ARRAY_JOB = HERE / "serve_job.py", HERE / "serve_array_job.py"
CLIENTS = 3
"""Those of files."""
SERVERS = 2
BETWEEN = 15
"""The kills between two looks at what is left."""


@dataclasses.dataclass
class Outcome:
    """What a campaign has done and seen."""

    disturbed: dict[str, int]
    saved: int = 0
    timesteps: int = 0
    longest: float = 0.0
    """Seconds of the longest operation."""

    def __str__(self) -> str:
        steps = f", {self.timesteps} timesteps" if self.timesteps else ""
        return (
            f"{self.disturbed}; {self.saved} saves of clients{steps}, all there; the longest "
            f"operation took {self.longest:.1f} s of {OPERATION_SECONDS_MAX} s"
        )


class Campaign:
    """Servers, clients, and what they have logged."""

    is_array: tuple[bool, ...] = (False,) * CLIENTS
    """Of each client, whether it saves timesteps."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place, self.volume, self.arrays = place, place / "v", place / "arrays"
        self.arrays.mkdir()
        self.clients: list[subprocess.Popen[bytes] | None] = [None] * len(self.is_array)
        self.outcome = Outcome({})
        self.round = 0
        self.servers: list[Server] = []

    def make(self) -> None:
        """Makes the volume, and says what the servers are."""
        ps.FileSystem.create(self.volume, servers=SERVERS, block_bytes=4096).close()
        urls = [f"unix://{self.place}/{process}.sock" for process in range(SERVERS)]
        config, log = self.place / "servers.toml", self.place / "log"
        configure(config, urls, volume=self.volume, arrays=self.arrays, cache="64KiB")
        for process, url in enumerate(urls):
            arguments = ("--config", config, "--process", process)
            self.servers.append(Server(url, *arguments, log=log))

    def url(self) -> str:
        """Where a client calls the servers."""
        return self.random.choice(self.servers).url

    def log(self, client: int) -> Path:
        of_round = f"-{self.round}" if self.is_array[client] else ""
        return self.place / f"client-{client}{of_round}.log"

    @property
    def store(self) -> str:
        """The timesteps between two looks."""
        return f"run-{self.round}.zarr"

    def logged(self, client: int) -> list[tuple[str, int]]:
        """What a client has told. Its last line may be cut off."""
        if not self.log(client).exists():
            return []
        lines = self.log(client).read_text().split("\n")[:-1]
        return [(word, int(number)) for word, number in map(str.split, lines)]

    def start_servers(self) -> None:
        for server in self.servers:
            server.start(waits=False)
        for server in self.servers:
            server.wait()

    def start_client(self, client: int) -> None:
        told = self.logged(client)
        first = 1 + max((number for word, number in told if word == "begun"), default=-1)
        is_array = self.is_array[client]
        program, what = (ARRAY_JOB, self.store) if is_array else (FILE_JOB, f"/{client}")
        command = [sys.executable, program, self.url(), what, self.log(client), str(first)]
        self.clients[client] = subprocess.Popen([str(word) for word in command])

    def stop_clients(self) -> None:
        for client in self.clients:
            if client is not None:
                assert client.poll() is None, "a client has failed"
                client.kill()
                client.wait(SECONDS_MAX)

    def note(self, what: str) -> None:
        self.outcome.disturbed[what] = self.outcome.disturbed.get(what, 0) + 1

    def disturb(self, most: int) -> int:
        """Kills some servers and clients, at most `most`, and starts them again: how many."""
        for _ in range(min(most, BETWEEN)):
            time.sleep(self.random.random() * 0.3)
            # Half of all kills are those of servers, and the last kill leaves as many of each.
            of_servers = self.outcome.disturbed.get("servers", 0)
            left = [self.kills - of_servers, self.kills - self.outcome.disturbed.get("clients", 0)]
            [kill] = self.random.choices([self.kill_server, self.kill_client], left)
            kill()
        return min(most, BETWEEN)

    def kill_server(self) -> None:
        server = self.random.choice(self.servers)
        server.kill()
        time.sleep(self.random.choice([0, 0.1, 0.4]))
        server.start(waits=self.random.random() < 0.5)
        self.note("servers")

    def kill_client(self) -> None:
        nth = self.random.randrange(len(self.clients))
        client = self.clients[nth]
        assert client is not None
        assert client.poll() is None, "a client has failed"
        client.kill()
        client.wait(SECONDS_MAX)
        self.start_client(nth)
        self.note("clients")

    def await_saves(self) -> None:
        """Waits until each client has saved something more: none hangs."""
        clients = range(len(self.clients))
        before = [len(self.logged(client)) for client in clients]
        until = time.monotonic() + SECONDS_MAX
        while True:
            new = [self.logged(client)[count:] for client, count in enumerate(before)]
            if all(any(word == "saved" for word, _ in told) for told in new):
                return
            assert time.monotonic() < until, f"a client hangs: {[each[-3:] for each in new]}"
            time.sleep(0.02)

    def check(self, client: int) -> None:
        """Compares what is there with a client's log."""
        told = self.logged(client)
        longest = max((number for word, number in told if word == "longest"), default=0) / 1000
        self.outcome.longest = max(self.outcome.longest, longest)
        assert longest <= OPERATION_SECONDS_MAX, f"an operation took {longest} s"
        assert not [one for one in told if one[0] == "wrong"], "a client read something else"
        if self.is_array[client]:
            self.check_timesteps(told)
        else:
            self.check_file(client, told)

    def check_file(self, client: int, told: list[tuple[str, int]]) -> None:
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

    def check_timesteps(self, told: list[tuple[str, int]]) -> None:
        saved = [number for word, number in told if word == "saved"]
        begun = {number for word, number in told if word == "begun"}
        stored = zarr.open_group(self.arrays / self.store, mode="r")
        times = [int(time) for time in stored["time"][...]]
        assert set(saved) <= set(times) <= begun, "timesteps are lost, or made up"
        assert times == sorted(times)
        for time_, u in zip(times, stored["u"][...], strict=True):
            assert (u == time_).all(), f"timestep {time_} is not whole"
        assert ps.verify(self.arrays / self.store)
        self.outcome.timesteps += len(times)
        shutil.rmtree(self.arrays / self.store)

    def run(self, kills: int) -> Outcome:
        """Disturbs servers and clients so often, of each kind."""
        self.kills = kills
        self.make()
        self.start_servers()
        with ps.FileSystem(self.servers[0].url) as fs:
            for client in range(CLIENTS):
                fs.create(f"/{client}", cells=4, bsu=1000)
        left = self.count(kills)
        while left > 0:
            self.round += 1
            for client in range(len(self.clients)):
                self.start_client(client)
            left -= self.disturb(left)
            for server in self.servers:
                server.wait()
            self.await_saves()
            self.stop_clients()
            for server in self.servers:
                server.stop()
            penstock("fs", "fsck", "--data", self.volume)
            for client in range(len(self.clients)):
                self.check(client)
            self.start_servers()
        for server in self.servers:
            server.stop()
        told = [self.logged(client) for client in range(CLIENTS)]
        self.outcome.saved = sum(word == "saved" for each in told for word, _ in each)
        return self.outcome

    def count(self, kills: int) -> int:
        """The number of disturbances in all."""
        return 2 * kills

    def end(self) -> None:
        """Ends what is left of a campaign that has failed."""
        for process in [*self.clients, *(server.process for server in self.servers)]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(SECONDS_MAX)


class ArrayCampaign(Campaign):
    """With a client that saves timesteps."""

    is_array = (*Campaign.is_array, True)


def play(kills: int, seed: int, kind: type[Campaign] = Campaign) -> Outcome:
    """A campaign with this number of kills of each kind."""
    with tempfile.TemporaryDirectory(dir=fast_directory()) as directory:
        campaign = kind(Path(directory), seed)
        try:
            return campaign.run(kills)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            campaign.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="of servers, and of clients")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrays", action="store_true", help="a client saves timesteps, too")
    given = parser.parse_args()
    begun = time.monotonic()
    outcome = play(given.kills, given.seed, ArrayCampaign if given.arrays else Campaign)
    print(f"killed: {outcome}, in {time.monotonic() - begun:.0f} s")
