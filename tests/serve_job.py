"""A client of standing servers that writes, saves and tells it: see `serve_kills.py`.

    python tests/serve_job.py URL FILE LOG FIRST

Number `n` goes to place `n % PLACES` of the client's own file. When it is saved, the client adds
`saved n` to its log; before it writes, `begun n`. What fails as a server is away is done again.
An operation that takes longer than all before adds `longest` and its milliseconds, and a file that
has no right bytes in a place that was just written adds `wrong` and the number.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import penstock as ps

PLACES = 7
BYTES = 9_000
"""The bytes of a place: parts of several cells on all servers."""
SECONDS_MAX = 60
"""No operation takes longer, whatever is killed, on a machine that is busy."""


def value(number: int) -> int:
    """The byte with which a place is filled."""
    return 1 + number % 251


class Teller:
    """A client's log."""

    def __init__(self, log: str) -> None:
        self.out = open(log, "a", buffering=1)  # noqa: SIM115 - as long as the process
        self.longest = 0.0

    def tell(self, words: str) -> None:
        print(words, file=self.out)

    def until_done(
        self, act: Callable[[], None], excuses: tuple[type[ps.Error], ...] = (ps.PeerError,)
    ) -> None:
        """Does something until it ends well. A server that is away is the only excuse."""
        while True:
            begun = time.monotonic()
            try:
                act()
            except excuses:
                time.sleep(0.01)
            else:
                return
            finally:
                took = time.monotonic() - begun
                if took > self.longest:
                    self.longest = took
                    self.tell(f"longest {int(1000 * took)}")


def main(url: str, path: str, log: str, first: int) -> None:
    teller = Teller(log)
    opened: list[ps.FileSystem] = []
    teller.until_done(lambda: opened.append(ps.FileSystem(url)))
    files: list[ps.File] = []
    teller.until_done(lambda: files.append(opened[0].attach(path, "r+")))
    file = files[0]
    view = file.open()
    number = first
    while True:
        teller.tell(f"begun {number}")
        data, at = bytes([value(number)]) * BYTES, number % PLACES * BYTES

        def write_and_save(data: bytes = data, at: int = at) -> None:
            view.write(data, at=at)
            file.sync()

        def read(data: bytes = data, at: int = at, number: int = number) -> None:
            if bytes(view.read(BYTES, at=at)) != data:
                teller.tell(f"wrong {number}")

        teller.until_done(write_and_save)
        teller.tell(f"saved {number}")
        teller.until_done(read)
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
