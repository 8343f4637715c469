"""Servers that stand, for tests: they are started, stopped, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import penstock as ps

SECONDS_MAX = 120
"""Only what hangs takes longer."""


COLLECTIVE_JOB = """
import sys, numpy as np, penstock as ps
from mpi4py import MPI
comm = MPI.COMM_WORLD
with ps.FileSystem(sys.argv[1], comm) as fs:
    if comm.rank == 0:
        fs.create("/all", cells=4, bsu=512)
    comm.Barrier()
    with fs.attach_all("/all", "r+") as f:
        view, mine = ps.View(hn=2), np.full(6000, comm.rank, np.uint8)
        f.write_all(view, comm.rank, mine)
        f.read_all(view, comm.rank, np.empty_like(mine))
"""
"""A program of ranks that write and read a file together."""


def serve_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "penstock", "serve", *map(str, arguments)]


def configure(
    config: Path,
    addresses: Sequence[str],
    servers: Sequence[Sequence[int]] | None = None,
    **settings: str | int | Path,
) -> None:
    """Writes a configuration of server processes at these addresses.

    Each process has one server, unless `servers` says which ones.
    """
    if servers is None:
        servers = [[process] for process in range(len(addresses))]
    lines = [
        f"{name} = {json.dumps(str(value) if isinstance(value, Path) else value)}"
        for name, value in settings.items()
    ]
    for address, own in zip(addresses, servers, strict=True):
        lines += ["[[process]]", f"listen = {json.dumps([address])}", f"servers = {[*own]}"]
    config.write_text("\n".join(lines))


class Server:
    """One server process, which serves as long as the block is open."""

    def __init__(
        self,
        url: str,
        *arguments: object,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url, self.arguments, self.log = url, arguments, log
        self.environment = environment or {}
        """Variables that the process has beside those of this one."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        return serve_command(*self.arguments)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()

    def start(self, *, waits: bool = True) -> None:
        """Starts the process, and waits until it serves."""
        log = None if self.log is None else self.log.open("ab")
        self.process = subprocess.Popen(
            self.command, stderr=log, env={**os.environ, **self.environment}
        )
        if log is not None:
            log.close()
        if waits:
            self.wait()

    def wait(self) -> None:
        """Waits until all servers of the URL serve."""
        assert self.process is not None
        until = time.monotonic() + SECONDS_MAX
        command = [sys.executable, "-m", "penstock", "servers", self.url]
        while True:
            looked = subprocess.run(command, capture_output=True, text=True, check=False)
            if looked.returncode == 0:
                return
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < until, looked
            time.sleep(0.05)

    def read_again(self) -> None:
        """Lets the process read its configuration once more."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stops the process, which saves all."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS_MAX) == 0

    def kill(self) -> None:
        """Kills the process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(SECONDS_MAX)


def alone(
    directory: Path,
    *arguments: object,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """A server process for a volume, at the socket in its directory."""
    url = f"unix://{directory}/penstock.sock"
    return Server(url, directory, *arguments, log=log, environment=environment)


def patient(act):
    """Does something again and again until the servers are there."""
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return act()
        except ps.PeerError:
            assert time.monotonic() < until
            time.sleep(0.02)


def as_user(user: int, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code as another user, who need not be able to read the interpreter or the program
    `penstock`: the code has its descriptor as `program`."""
    become = "import os, numpy, penstock as ps; ps.Session; from penstock import _cli\n"
    become += "program = os.open(_cli.program(), os.O_RDONLY); os.setgroups([])\n"
    become += f"os.setgid({user}); os.setuid({user})\n"
    return subprocess.run(
        [sys.executable, "-c", become + code, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
