"""Kills a job that writes, again and again, and looks at what is left.

    python tests/crash_kills.py --kills 300 --ranks 3 --seed 1

The victim (`crash_job.py`) is started under mpiexec and killed by SIGKILL at a random moment: all
of it at once, or one rank only, and then the others must end by themselves. What is on disk is then
looked at with xarray, with zarr-python and with Penstock, and the next victim goes on from there.
All the time a reader of the store looks at the last timestep.

The moments are chance; which they are, the seed decides only as far as the machine keeps time.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
import zarr
from crash_job import group, saved_by, values
from helpers import NOTHING_TO_COMPARE, fast_directory

import penstock as ps

VICTIM = Path(__file__).with_name("crash_job.py")
STORE_KILLS = 6
"""A new store is begun after so many kills: what is to be looked at stays small."""
STEPS_MAX = 200
START_SECONDS_MAX = 90
END_SECONDS_MAX = 600
"""If other ranks have not ended by then after one was killed, they hang; the time is counted."""
EARLY = 0.15
"""As a part: kills before the first save, as a life begins."""
EARLY_SECONDS_MAX = 0.01
MOMENT_SECONDS_MAX = 0.1
AIMED = 0.5
"""As a part: kills as soon as something has been seen to change, to hit the time of a commit."""
AIMS = (
    "zarr.json",
    "u/zarr.json",
    "time/zarr.json",
    "v/.penstock-new-0",
    "particle_count/c/0",
    ".penstock/record/group.json",
    ".penstock/record/sums/u",
    ".penstock/record/new-group",
    ".penstock/record/new-own-1",
    ".penstock/record/new",
    ".penstock/record/new/zarr.json",
    ".penstock/record/old",
    "checkpoints",
)
AIM_SECONDS_MAX = 2


@dataclasses.dataclass
class Known:
    """What is known of a store by the logs of its victims: what must be there."""

    timesteps: list[int] = dataclasses.field(default_factory=list)
    """The life of each."""
    checkpoint: int | None = None
    """The step of the newest that is complete."""


class Reader(threading.Thread):
    """Looks at the last timestep all the time, as a program that plots would."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.store: Path | None = None
        self.life = -1
        self.has_saved = False
        self.done = threading.Event()
        self.looks = self.overtaken = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self.done.wait(0.05):
            store = self.store
            if store is None or not store.exists():
                continue
            # The first save of a life drops what came after its checkpoint: who opened before that
            # and reads after it is overtaken. Later no timestep changes.
            before = (self.store, self.life, self.has_saved)
            try:
                look_at_last(store)
                self.looks += 1
            except BaseException as error:  # noqa: BLE001 - told at the end
                if before == (self.store, self.life, self.has_saved) and self.has_saved:
                    self.failure = error
                    return
                self.overtaken += 1


def look_at_last(store: Path) -> None:
    with xarray.open_zarr(store) as data:
        if data.sizes["time"]:
            last = data.isel(time=-1).load()
            rows = rows_of(data, -1)
            check(int(last.time), last.u.values, last.v.values, rows)


def rows_of(data: xarray.Dataset, index: int) -> np.ndarray:
    """The rows of a timestep."""
    start, count = int(data.particle_start[index]), int(data.particle_count[index])
    return data.p.values[start : start + count]


def check(step: int, u: np.ndarray, v: np.ndarray, p: np.ndarray) -> int:
    """One timestep or checkpoint is whole: gives its life."""
    found, life = saved_by(u)
    expected = values(step, life)
    assert found == step, f"step {step} holds values of step {found}"
    assert np.array_equal(u, expected["u"]), f"step {step}: u is of several saves"
    assert np.array_equal(v, expected["v"]), f"step {step}: v is not what was saved with u"
    assert np.array_equal(p, expected["p"]), f"step {step}: p is not what was saved with u"
    return life


def life_of_v(step: int, v: np.ndarray) -> int:
    """The life in which an array `v` was saved."""
    return (int(v.flat[0]) - 7919 * step) // 104_729


def wait_for_change(path: Path) -> None:
    """Until a file or directory has come, gone, or been replaced."""

    def seen() -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            found = path.stat()
            return found.st_ino, found.st_mtime_ns
        return None

    first, until = seen(), time.monotonic() + AIM_SECONDS_MAX
    while seen() == first and time.monotonic() < until:
        pass


def descendants(root: int) -> list[int]:
    """A process and all below it."""
    children = collections.defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children[int(parent)].append(int(entry.name))
    found, below = [], [root]
    while below:
        at = below.pop()
        found.append(at)
        below += children[at]
    return found


def is_rank(process: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return b"python" in words[0] and words[1:2] == [str(VICTIM).encode()]
    return False


def mpi_segments(process: int) -> list[Path]:
    """Shared memory of MPICH or Open MPI, which nobody removes when its processes are killed."""
    names = "/dev/shm/mpich_shm_", "/dev/shm/sm_segment."
    with contextlib.suppress(OSError):
        mapped = Path(f"/proc/{process}/maps").read_text().split()
        return [Path(word) for word in mapped if word.startswith(names)]
    return []


def is_alive(process: int) -> bool:
    """Whether a thread of a process lives: one that a disk keeps busy outlives its process, with a
    lock."""
    with contextlib.suppress(OSError):
        return any(map(runs, Path(f"/proc/{process}/task").iterdir()))
    return False


def runs(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for_end(processes: Sequence[int], seconds: float, words: str) -> None:
    """Until all of them have ended; `words` say what happened before, if they hang."""
    until = time.monotonic() + seconds
    while any(map(is_alive, processes)):
        assert time.monotonic() < until, f"{words}: the others hang"
        time.sleep(0.002)


def send_kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


class Campaign:
    """Victims one after the other."""

    def __init__(self, directory: Path, ranks: int, seed: int) -> None:
        self.directory, self.ranks = directory, ranks
        self.chance = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.reader = Reader()
        self.life = 0
        self.known = Known()
        self.store = directory / "none"

    def run(self, kills: int) -> collections.Counter[str]:
        self.reader.start()
        try:
            for kill in range(kills):
                if kill % STORE_KILLS == 0:
                    self.begin_store(kill)
                self.kill_one()
                if self.reader.failure is not None:
                    raise AssertionError("the reader") from self.reader.failure
        finally:
            self.reader.done.set()
            self.reader.join()
        self.counts["looks of the reader"] = self.reader.looks
        self.counts["looks that a restart has overtaken"] = self.reader.overtaken
        return self.counts

    def begin_store(self, kill: int) -> None:
        self.reader.store = None
        if self.store.exists():
            shutil.rmtree(self.store.parent)
        place = self.directory / str(kill)
        place.mkdir()
        self.store, self.known = place / "job.zarr", Known()
        self.reader.store = self.store

    def kill_one(self) -> None:
        self.life += 1
        log = self.store.parent / f"log-{self.life}"
        log.touch()
        self.reader.has_saved, self.reader.life = False, self.life
        arguments = map(str, (self.store, log, self.life, STEPS_MAX))
        command = ["mpiexec", "-n", str(self.ranks), sys.executable, VICTIM, *arguments]
        output, temporary = self.store.parent / "output", self.store.parent / "tmp"
        temporary.mkdir(exist_ok=True)  # a killed mpiexec leaves files
        environment = {**os.environ, "TMPDIR": str(temporary)}
        with open(output, "w") as out:
            job = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        try:
            is_early = self.wait_for_start(job, log)
            way = self.kill(job, is_early)
        except BaseException:
            for process in descendants(job.pid):
                send_kill(process)
            print(output.read_text(), file=sys.stderr)
            raise
        self.reader.has_saved = False
        logged = log.read_text()
        self.look(logged.splitlines())
        log.unlink()
        self.counts["before a life's first save was logged"] += "timestep" not in logged
        self.counts["kills"] += 1
        self.counts[way] += 1

    def wait_for_start(self, job: subprocess.Popen, log: Path) -> bool:
        """Mostly until the life has saved something: whether not."""
        is_early = self.chance.random() < EARLY
        until = time.monotonic() + START_SECONDS_MAX
        word = "start" if is_early else "timestep"
        while word not in (text := log.read_text()):
            assert job.poll() is None, f"the victim has failed: {text}"
            assert time.monotonic() < until, "the victim does not begin"
            time.sleep(0.002)
        self.reader.has_saved = not is_early
        return is_early

    def kill(self, job: subprocess.Popen, is_early: bool) -> str:
        """At a random moment. Who is to be killed is looked up before, since that takes time."""
        everybody = descendants(job.pid)
        ranks = [process for process in everybody if is_rank(process)]
        segments = [found for process in ranks for found in mpi_segments(process)]
        way = self.chance.choice(["all ranks", "one rank"])
        self.chance.shuffle(everybody)
        targets = everybody if way == "all ranks" else [self.chance.choice(ranks or [job.pid])]
        if is_early:
            time.sleep(self.chance.random() * EARLY_SECONDS_MAX)
        elif self.chance.random() < AIMED:
            wait_for_change(self.store / self.chance.choice(AIMS))
            time.sleep(self.chance.random() * 0.0005)
            self.counts["aimed at a change"] += 1
        else:
            time.sleep(self.chance.random() * MOMENT_SECONDS_MAX)
        if job.poll() is not None:
            assert job.returncode == 0, "the victim has failed by itself"
            return "had ended before"
        for process in targets:
            send_kill(process)
        self.wait_for_end(job, everybody, way)
        for left in segments:
            left.unlink(missing_ok=True)
        return way

    def wait_for_end(self, job: subprocess.Popen, everybody: list[int], way: str) -> None:
        """A rank that is left alone may not hang."""
        begun = time.monotonic()
        wait_for_end(everybody, END_SECONDS_MAX, f"{way} killed")
        job.wait()
        if way == "one rank":
            name = "longest end of the others, ms"
            self.counts[name] = max(self.counts[name], int(1000 * (time.monotonic() - begun)))

    # ---------------------------------------------------------------------------------------------
    # What is left
    # ---------------------------------------------------------------------------------------------

    def look(self, lines: list[str]) -> None:
        logged = [line.split() for line in lines]
        saved = [
            (word, int(rest[0])) for word, *rest in logged if word in ("timestep", "checkpoint")
        ]
        if not self.store.exists():
            assert not saved and not self.known.timesteps, "the store is gone"
            self.counts["no store yet"] += 1
            return
        self.check_logged(saved)
        lives = self.look_with_xarray()
        self.check_lives(lives, saved)
        self.look_with_zarr()
        self.look_with_penstock()

    def check_logged(self, saved: list[tuple[str, int]]) -> None:
        """Takes what the log says into what is known. The first save drops what came after the
        checkpoint."""
        known = self.known
        for at, (word, step) in enumerate(saved):
            if word == "checkpoint":
                known.checkpoint = step
                continue
            if at == 0:
                del known.timesteps[step:]
            assert len(known.timesteps) == step, "the log leaves a step out"
            known.timesteps.append(self.life)

    def look_with_xarray(self) -> list[int]:
        """The lives of all timesteps, each of which is whole."""
        with xarray.open_zarr(self.store) as opened:
            data = opened.load()
        assert data.time.values.tolist() == list(range(data.sizes["time"]))
        steps = zip(data.u.values, data.v.values, strict=True)
        self.counts["timesteps looked at"] += data.sizes["time"]
        return [check(step, u, v, rows_of(data, step)) for step, (u, v) in enumerate(steps)]

    def check_lives(self, lives: list[int], saved: list[tuple[str, int]]) -> None:
        known = self.known
        first = 0 if known.checkpoint is None else known.checkpoint + 1
        if saved:
            # What was complete, and at most the one in progress.
            assert lives[: len(known.timesteps)] == known.timesteps, (lives, known)
            assert lives[len(known.timesteps) :] in ([], [self.life]), (lives, known)
        else:
            # Perhaps the first save has dropped what came after the checkpoint, or was complete.
            kept = [known.timesteps, known.timesteps[:first], [*known.timesteps[:first], self.life]]
            assert lives in kept, (lives, known)
        self.counts["in progress, and whole"] += len(lives) > len(known.timesteps)
        known.timesteps = lives

    def look_with_zarr(self) -> None:
        """Each array by its own metadata, which may lag behind, or be ahead where timesteps were
        dropped."""
        with warnings.catch_warnings(action="ignore"):
            opened = zarr.open_group(self.store, mode="r", use_consolidated=False)
            u, v = opened["u"][...], opened["v"][...]
        count = len(self.known.timesteps)
        self.counts["arrays by themselves apart"] += not len(u) == len(v) == count
        for step in range(max(len(u), len(v))):
            # One of the two alone must be whole, too.
            own_u = u[step] if step < len(u) else None
            life = saved_by(own_u)[1] if own_u is not None else life_of_v(step, v[step])
            expected = values(step, life)
            assert own_u is None or np.array_equal(own_u, expected["u"]), f"u by itself, {step}"
            assert step >= len(v) or np.array_equal(v[step], expected["v"]), f"v by itself, {step}"

    def look_with_penstock(self) -> None:
        """The newest checkpoint restores; what is not there yet is made by nobody's reading."""
        whole = ps.Distribution("*,*", ())
        with ps.Session() as s:
            state = s.restart(group(self.store, whole))
            if state is None:
                assert self.known.checkpoint is None, "the checkpoint is gone"
            else:
                least = -1 if self.known.checkpoint is None else self.known.checkpoint
                assert state.step >= least, f"checkpoint {state.step}, and {least} was complete"
                check(state.step, state["u"], state["v"], state["p"])
                self.counts["checkpoints restored"] += 1
                self.known.checkpoint = state.step
        if has_verify():
            done = subprocess.run(
                ["penstock", "verify", str(self.store)], capture_output=True, text=True, check=False
            )
            is_well = done.returncode in (0, NOTHING_TO_COMPARE)
            assert is_well, f"penstock verify: {done.stdout}{done.stderr}"
            self.counts["verified"] += 1


_has_verify: bool | None = None


def has_verify() -> bool:
    """Whether `penstock verify PATH` is there to be asked."""
    global _has_verify
    if _has_verify is None:
        asked = shutil.which("penstock") and subprocess.run(
            ["penstock", "verify", "--help"], capture_output=True, check=False
        )
        _has_verify = bool(asked) and asked.returncode == 0
    return _has_verify


@contextlib.contextmanager
def scratch(directory: Path | None) -> Iterator[Path]:
    made = tempfile.mkdtemp(prefix="penstock-kills-", dir=directory or fast_directory())
    yield Path(made)
    shutil.rmtree(made)  # what has failed stays, to be looked at


def run_command(description: str, campaign_of: Callable[[Path, int, int], Any], kills: int) -> None:
    """Run a campaign of kills as the command line says, and print its counts."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="for the stores (default: memory)")
    given = parser.parse_args()
    begun = time.monotonic()
    with scratch(given.directory) as directory:
        print(f"in {directory}", flush=True)
        campaign = campaign_of(directory, given.ranks, given.seed)
        try:
            counts = campaign.run(given.kills)
        except BaseException:
            print(f"--seed {given.seed}, kill {campaign.counts['kills']}: see {directory}")
            raise
    print(json.dumps({**counts, "seconds": round(time.monotonic() - begun)}, indent=1))


if __name__ == "__main__":
    run_command(__doc__, Campaign, 300)
