"""This module runs servers as long as they are needed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from penstock_bench.command import FailedError

START_SECONDS_MAX = 600
END_SECONDS_MAX = 60


@contextlib.contextmanager
def running(
    *command: object, port: int | None = None, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Run a server that listens at a port, or is ready in another way, as long as the block."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
        ends = time.monotonic() + START_SECONDS_MAX
        try:
            while not (is_ready() and (port is None or does_listen(port))):
                if process.poll() is not None or time.monotonic() > ends:
                    said.seek(0)
                    raise FailedError(f"{' '.join(words)} does not start: {said.read().strip()}")
                time.sleep(0.02)
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS_MAX)
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(url: str, *arguments: object) -> Iterator[None]:
    """Run `penstock serve`, until all servers of the URL serve, and as long as the block."""
    penstock = [sys.executable, "-m", "penstock"]

    def is_ready() -> bool:
        looked = subprocess.run([*penstock, "servers", url], capture_output=True, check=False)
        return looked.returncode == 0

    with running(*penstock, "serve", *arguments, is_ready=is_ready):
        yield


_kept_ports: list[socket.socket] = []


def keep_port(address: str = "127.0.0.1") -> int:
    """Return a port of an address at which nobody but the servers of this process will listen.

    A socket that listens at nothing keeps it: the system gives the port to nobody who asks for any.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((address, 0))
    _kept_ports.append(keeper)
    return int(keeper.getsockname()[1])


def does_listen(port: int) -> bool:
    """Tell whether somebody listens at a port of this host."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
