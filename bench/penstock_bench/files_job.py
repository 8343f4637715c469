"""Every rank of an MPI job of the benchmark ``files`` runs this module."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_bench.files_case import (
    Case,
    Ranks,
    Volume,
    move_file,
    name_rates,
    random_rates,
)
from penstock_bench.job import Job, main_of_rank
from penstock_bench.machine import machine_facts

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


@dataclass(frozen=True, kw_only=True)
class FilesJob(Job):
    """A job measures one part on one volume, once. It says a result for each row of a table."""

    volume: dict[str, Any]
    """The fields of a `Volume`."""
    salt: int
    """The salt of the first values that are written; others count up from it."""
    cases: dict[str, dict[str, Any]] | None = None
    """The fields of each `Case`, by the name of its row: for files moved by all ranks."""
    random: dict[str, Any] | None = None
    """The bytes of a file, the accesses, and the ways: rank 0 is a client of a server beside it."""
    names: dict[str, Any] | None = None
    """The threads of each rank, the files that are created, and the directory."""


def run(job: FilesJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Measure what the job has, and tell `say` the rates of each row."""
    say(machine=machine_facts())
    volume, salts = Volume(**job.volume), itertools.count(job.salt)
    for row, fields in (job.cases or {}).items():
        case = Case(**{**fields, "view": tuple(fields["view"])})
        say(result={"row": row, "rates": move_file(volume, case, Ranks(comm), salts)})
    if job.random is not None:
        with volume.open(comm, dedicated=True) as fs:
            if fs.rank is not None:
                of_way = random_rates(fs, salts=salts, **job.random)
                for row, rates in of_way.items():
                    say(result={"row": row, "rates": rates})
    if job.names is not None:
        with volume.open(comm) as fs:
            rates = name_rates(fs, Ranks(comm), **job.names)
        say(result={"row": "", "rates": rates})


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = FilesJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
