"""A client of standing servers that writes, saves and tells it: see `serve_kills.py`.

    python tests/serve_job.py URL FILE LOG FIRST

Number `n` goes to place `n % PLACES` of the client's own file. When it is saved, the client adds
`saved n` to its log; before it writes, `begun n`. What fails as a server is away is done again.
"""

from __future__ import annotations

import sys
import time

import penstock as ps

PLACES = 7
BYTES = 9_000
"""The bytes of a place: parts of several cells on all servers."""
SECONDS_MAX = 60
"""No operation takes longer, whatever is killed."""


def value(number: int) -> int:
    """The byte with which a place is filled."""
    return 1 + number % 251


def until_done(act, told) -> None:
    """Does something until it ends well. A server that is away is the only excuse."""
    while True:
        begun = time.monotonic()
        try:
            act()
        except ps.PeerError:
            time.sleep(0.01)
        else:
            return
        finally:
            took = time.monotonic() - begun
            if took > SECONDS_MAX:
                told(f"slow {took}")


def main(url: str, path: str, log: str, first: int) -> None:
    with open(log, "a", buffering=1) as out:

        def told(words: str) -> None:
            print(words, file=out)

        fs = None
        while fs is None:
            try:
                fs = ps.FileSystem(url)
            except ps.PeerError:
                time.sleep(0.01)
        files: list[ps.File] = []
        until_done(lambda: files.append(fs.attach(path, "r+")), told)
        file = files[0]
        view = file.open()
        number = first
        while True:
            told(f"begun {number}")
            data = bytes([value(number)]) * BYTES

            def write_and_save(data: bytes = data, at: int = number % PLACES * BYTES) -> None:
                view.write(data, at=at)
                file.sync()

            until_done(write_and_save, told)
            told(f"saved {number}")
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
