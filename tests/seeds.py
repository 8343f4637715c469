"""Programs that play the cases of seeds, on threads or under mpiexec."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from helpers import fast_directory

SEED_SECONDS_MAX = 300
"""For one seed, on a machine that is busy: more is a hang."""
RANKS_OF_JOB = os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE")
"""The number of ranks, where `mpiexec` has started this."""


@contextlib.contextmanager
def replayable(program: str, seed: int, launcher: str = "") -> Iterator[None]:
    """Says of a failure, or of a hang, how to see it again."""
    words = f"seed {seed} has failed: {launcher}python tests/{program} --seed {seed}"
    faulthandler.dump_traceback_later(SEED_SECONDS_MAX, exit=True)
    try:
        yield
    except BaseException as error:
        error.add_note(words)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def play(
    description: str,
    seeds: int,
    on_threads: Callable[[int], int],
    under_mpi: Callable[[int, Any, Path], int],
    served: Callable[[int], int] | None = None,
) -> None:
    """Plays the seeds that the command names. The functions play one, and give the number of
    requests; the second does so on the ranks of a job, in a place that all of them see, and the
    third as programs that use standing servers."""
    parser = argparse.ArgumentParser(description=description.partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--seed", type=int, help="this one alone")
    if served is not None:
        parser.add_argument("--serve", action="store_true", help="by standing servers")
    given = parser.parse_args()
    if served is not None and given.serve:
        on_threads = served
    chosen = range(given.seeds) if given.seed is None else (given.seed,)
    begun, requests, is_first = time.monotonic(), 0, True
    if RANKS_OF_JOB is None:
        for seed in chosen:
            requests += on_threads(seed)
    else:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        is_first = comm.rank == 0
        made = tempfile.mkdtemp(dir=fast_directory()) if is_first else None
        place = Path(comm.bcast(made))
        for seed in chosen:
            if is_first:
                (place / str(seed)).mkdir()
            comm.Barrier()
            requests += under_mpi(seed, comm, place / str(seed))
        if is_first:
            shutil.rmtree(place)
    if is_first:
        seconds = round(time.monotonic() - begun)
        print(f"{len(chosen)} seeds, {requests} requests, all right, in {seconds} s")
