"""Random MPI-IO programs, each call compared with a naive model.

    mpiexec -n 4 python tests/mpiio/mpiio_histories.py --seeds 100 --first 0
    mpiexec -n 4 python tests/mpiio/mpiio_histories.py --seed 17
    python tests/mpiio/mpiio_histories.py --shrink --seed 17 --ranks 4

A program is a sequence of calls of all ranks on one or two files (`steps.py`); its seed and the
number of ranks decide it (`invent.py`), and only correct ones are made (`rules.py`). Ranks play it
(`player.py`), and rank 0 compares bytes of files and memory, statuses, pointers and sizes with the
model (`model.py`, `judge.py`). The library under test is the MPI's own, or Penstock's where it is
preloaded; the MPI's own known flaws are excused (`known.py`).

A failure prints the one command that replays it. `--shrink` leaves out steps of a program as long
as it fails, also where it hangs or crashes, and prints what remains.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import invent
import judge
import known
import tree_chance
from steps import Step

SECONDS_MAX = 120
"""For one program, on a machine that is busy: more is a hang."""
TYPES = 5
"""Datatypes of each seed that are compared byte by byte before."""


def directory_of_files() -> str | None:
    """Where the files are: in memory, where there is some."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def name_of_mpi() -> str:
    """The name that the tests have for the MPI that is loaded."""
    from mpi4py import MPI

    if MPI.Get_abi_version()[0] > 0:
        return "abi"
    return {"MPICH": "mpich", "Open MPI": "openmpi"}[MPI.get_vendor()[0]]


def program_of(given: argparse.Namespace, seed: int, ranks: int, mpi: str) -> list[Step]:
    """The program of a seed, or what is left of it."""
    unable = known.flaws(mpi, unable=True)
    steps = invent.program(seed, ranks, unable)
    if given.only is None:
        return steps
    chosen = [int(number) for number in given.only.split(",") if number]
    return invent.legal([steps[number] for number in chosen], ranks, unable)


def check_types(seed: int) -> None:
    """The model and MPI mean the same by some random datatypes."""
    from player import check_datatype

    chance = random.Random(f"types {seed}")
    for _ in range(TYPES):
        etype = tree_chance.random_etype(chance)
        check_datatype(tree_chance.random_filetype(chance, etype, overlaps=True))
        check_datatype(tree_chance.random_memory(chance, etype, overlaps=True))


def play(given: argparse.Namespace, seed: int, comm: Any, directory: Path, mpi: str) -> int:
    """Plays one program, and gives the number of its steps. Any failure ends the whole job."""
    from player import Player

    words = f"seed {seed} on {comm.size} ranks"
    step: Step | None = None
    try:
        program = program_of(given, seed, comm.size, mpi)
        check_types(seed)
        player = Player(comm, directory, known.flaws(mpi, unable=True))
        found = []
        for number, step in enumerate(program):
            if given.verbose:
                print(f"{comm.rank}: {number}: {judge.shown(step)}", file=sys.stderr, flush=True)
            found.append(player.play(step))
        results = comm.gather(found)
        if comm.rank == 0:
            step = None
            judge.judge(program, results, comm.size, known.flaws(mpi, unable=False))
    except Exception:  # noqa: BLE001 - the other ranks may wait for this one
        at = "" if step is None else f"\nin {judge.shown(step)}"
        print(f"{words} has failed on rank {comm.rank}: {traceback.format_exc()}{at}\n"
              f"again: mpiexec -n {comm.size} python tests/mpiio/mpiio_histories.py --seed {seed}",
              file=sys.stderr, flush=True)  # fmt: skip
        comm.Abort(1)
    comm.Barrier()
    return len(program)


def run(given: argparse.Namespace) -> None:
    """Plays the programs of all seeds, on the ranks of this job."""
    from mpi4py import MPI

    comm, mpi = MPI.COMM_WORLD, name_of_mpi()
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    made = tempfile.mkdtemp(dir=directory_of_files()) if comm.rank == 0 else None
    place, begun, count = Path(comm.bcast(made)), time.monotonic(), 0
    for seed in seeds:
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        directory = place / str(seed)
        if comm.rank == 0:
            print(seed, end=" ", flush=True)  # a crash does not tell
            directory.mkdir()
        comm.Barrier()
        count += play(given, seed, comm, directory, mpi)
        if comm.rank == 0:
            left = [entry.name for entry in directory.iterdir() if entry.name not in invent.NAMES]
            assert not left, f"seed {seed}: files are left behind: {left}"
            shutil.rmtree(directory)
    faulthandler.cancel_dump_traceback_later()
    if comm.rank == 0:
        place.rmdir()
        library = known.LIBRARY if known.is_penstock() else f"{mpi}'s own"
        seconds = round(time.monotonic() - begun)
        print(f"\n{len(seeds)} programs, {count} steps, all right, in {seconds} s: {library}")


# ---------------------------------------------------------------------------------------------
# Shrinking
# ---------------------------------------------------------------------------------------------


def fails(given: argparse.Namespace, chosen: list[int]) -> str | None:
    """What a job prints that plays these steps of a program, if it fails."""
    words = ",".join(map(str, chosen))
    command = [
        *given.mpiexec.split(), "-n", str(given.ranks), sys.executable, __file__,
        "--seed", str(given.seed), "--only", words,
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr if ran.returncode else None


def shrink(given: argparse.Namespace) -> None:
    """Leaves out steps, in ever smaller groups, while the program still fails."""
    mpi = os.environ.get("TEST_MPI", "mpich")
    steps = invent.program(given.seed, given.ranks, known.flaws(mpi, unable=True))
    chosen = [*range(len(steps))]
    said = fails(given, chosen)
    if said is None:
        print("it does not fail")
        return
    group = max(1, len(chosen) // 2)
    while True:
        at = 0
        while at < len(chosen):
            tried = chosen[:at] + chosen[at + group :]
            says = fails(given, tried)
            if says is None:
                at += group
            else:
                chosen, said = tried, says
        if group == 1:
            break
        group = max(1, group // 2)
    words = ",".join(map(str, chosen))
    again = f"{given.mpiexec} -n {given.ranks} python tests/mpiio/mpiio_histories.py"
    print(f"{said}\nthe fewest steps: {again} --seed {given.seed} --only {words} --verbose")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--only", help="these steps of it alone, by their numbers")
    parser.add_argument("--verbose", action="store_true", help="print each step before it is done")
    parser.add_argument("--shrink", action="store_true", help="find the fewest steps that fail")
    parser.add_argument("--ranks", type=int, default=4, help="of the job that --shrink starts")
    parser.add_argument("--mpiexec", default="mpiexec", help="what starts it")
    given = parser.parse_args()
    if given.shrink:
        shrink(given)
    else:
        run(given)


if __name__ == "__main__":
    main()
