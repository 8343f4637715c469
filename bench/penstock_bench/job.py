"""A job is one start of mpiexec: a program starts it, and its ranks measure and tell.

Rank 0 prints lines of JSON, which the program that has started the job reads.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock_bench.command import FailedError, UsageError, progress_bar, show_step

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """All jobs have these parameters in common."""

    clients: int
    """The first ranks, which hold the arrays."""
    servers: int = 0
    """The ranks after them, which do nothing but serve."""
    directory: str

    def to_json(self) -> str:
        """Write the job for the command line of its ranks."""
        return json.dumps(asdict(self))


def main_of_rank(run: Callable[[Intracomm, Callable[..., None]], None]) -> int:
    """Run `run(world, say)` on this rank of an MPI job, and return the exit code.

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


def find_mpiexec() -> str:
    """Return the mpiexec beside this Python, or the first on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise UsageError("needs mpiexec, mpi4py and an MPI library: pip install mpi4py mpich")
    return found


class Runner:
    """A runner starts jobs one after the other, and collects what they say.

    Parameters
    ----------
    mpiexec : str
        The program that starts the ranks.
    module : str
        The Python module that each rank runs.
    shown : bool
        Whether there is a progress bar.
    """

    def __init__(self, mpiexec: str, module: str, shown: bool) -> None:
        self.mpiexec, self.module = mpiexec, module
        self.bar = progress_bar(1, shown)
        self.results: list[Result] = []
        self.machine: dict[str, Any] = {}
        self.multiplications: dict[int, int] = {}

    def run(self, job: Job) -> list[Result]:
        """Run a job, and return its results."""
        ranks = job.clients + job.servers
        command = [self.mpiexec, "-n", str(ranks), sys.executable]
        command += ["-m", self.module, job.to_json()]
        before, error = len(self.results), None
        with tempfile.TemporaryFile("w+") as said:
            try:
                ended = subprocess.Popen(
                    command,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
            except OSError as cause:
                raise FailedError(f"cannot run {self.mpiexec}: {cause}") from cause
            with ended:
                try:
                    error = self._listen(ended.stdout or ())
                except BaseException:
                    ended.terminate()
                    ended.wait()
                    raise
            if ended.returncode != 0 or error:
                said.seek(0)
                last = [line.strip() for line in said if line.strip()][-1:]
                why = error or " ".join(last) or f"exit code {ended.returncode}"
                raise FailedError(f"{ranks} ranks: {why}")
        return self.results[before:]

    def _listen(self, lines: Iterable[str]) -> str | None:
        """Hear what rank 0 says to its end, and return the last error."""
        error = None
        for line in lines:
            error = self._hear(line) or error
        return error

    def _hear(self, line: str) -> str | None:
        """Keep what one line tells, and return an error that it reports."""
        try:
            told = json.loads(line)
        except ValueError:
            return None
        if "step" in told:
            show_step(self.bar, told["step"])
        if "result" in told:
            self.results.append(told["result"])
        if "multiplications" in told:
            self.multiplications[told["ranks"]] = told["multiplications"]
        self.machine = self.machine or told.get("machine", {})
        error: str | None = told.get("error")
        return error
