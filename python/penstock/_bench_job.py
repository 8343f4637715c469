"""The ranks of a measurement: what they say, and that none is left waiting."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def main_of_job(run: Callable[[Any, Callable[..., None]], None]) -> int:
    """Runs `run(world, say)` on this rank of an MPI job; the exit code.

    What rank 0 says goes to the standard output, a line of JSON each.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def say(**what: Any) -> None:
        if world.rank == 0:
            print(json.dumps(what), flush=True)

    try:
        run(world, say)
    except Exception as error:  # noqa: BLE001 - reported, and ends all ranks
        traceback.print_exc()
        sys.stderr.flush()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        # The other ranks may be waiting for this one: only an abort ends them all.
        world.Abort(1)
    return 0
