"""A client of standing servers that saves timesteps, and tells it: see `serve_kills.py`.

    python tests/serve_array_job.py URL STORE LOG FIRST

Timestep `n` has the number `n` in each element, and is at the time `n`. Before it is saved, the
client adds `begun n` to its log, and then `saved n`. What fails as a server is away is done again
in a new session. It may have been done all the same: then the timestep is there, and no second one
of its time can be written.
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np
from serve_job import Teller

import penstock as ps

SHAPE = (20, 100)


def main(url: str, store: str, log: str, first: int) -> None:
    teller = Teller(log)
    u = ps.Array("u", SHAPE, "f8", disk=ps.Chunks((8, 64)))
    run = ps.Group("run", [u], path=store)
    session: ps.Session | None = None
    number = first

    def save() -> None:
        nonlocal session
        try:
            if session is None:
                session = ps.Session(servers=url)
            session.timestep(run, {"u": np.full(SHAPE, float(number))}, time=float(number))
        except ps.SchemaError as error:
            if f"is not after {number}, " not in str(error):
                raise
        except ps.Error:
            if session is not None:
                with contextlib.suppress(ps.PeerError):
                    session.close()
                session = None
            raise

    while True:
        teller.tell(f"begun {number}")
        # The servers may not have heard yet that the session before has ended.
        teller.until_done(save, excuses=(ps.PeerError, ps.BusyError))
        teller.tell(f"saved {number}")
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
