"""Ranks that die in the middle of a call of MPI-IO, and the job after that.

    mpiexec -n 3 python -m mpi4py dying.py FILE WAY GENERATION [SECONDS HOW]

Writes and reads the file in one way, again and again; after that many seconds one rank is killed,
or aborts the job. Without SECONDS it does so once, and checks all: each word is of the former
generation or of this one, whatever has happened in between, and after a write of this one.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

WORDS = 20_000
"""Of each rank."""
COMM = MPI.COMM_WORLD


def split(begin: Callable[..., None], end: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: object) -> None:
        begin(*arguments)
        end(arguments[-1])

    return call


def going(begin: Callable[..., MPI.Request]) -> Callable[..., None]:
    def call(*arguments: object) -> None:
        begin(*arguments).Wait()

    return call


def calls(file: MPI.File) -> dict[str, tuple[Callable[..., None], Callable[..., None]]]:
    """The ways to write and to read from the beginning of a view, by name."""
    return {
        "at": (lambda x: file.Write_at(0, x), lambda x: file.Read_at(0, x)),
        "all": (file.Write_all, file.Read_all),
        "at_all": (lambda x: file.Write_at_all(0, x), lambda x: file.Read_at_all(0, x)),
        "split": (
            lambda x: split(file.Write_at_all_begin, file.Write_at_all_end)(0, x),
            lambda x: split(file.Read_at_all_begin, file.Read_at_all_end)(0, x),
        ),
        "iat": (
            lambda x: going(file.Iwrite_at)(0, x),
            lambda x: going(file.Iread_at)(0, x),
        ),
        "iall": (
            lambda x: going(file.Iwrite_at_all)(0, x),
            lambda x: going(file.Iread_at_all)(0, x),
        ),
        "shared": (file.Write_shared, file.Read_shared),
        "ordered": (file.Write_ordered, file.Read_ordered),
    }


def own_words(generation: int) -> np.ndarray:
    """The words of this rank: the generation, and the rank."""
    return np.full(WORDS, generation * 1000 + COMM.rank, "i4")


def has_own_view(way: str) -> bool:
    return way not in ("shared", "ordered")


def use(name: str, way: str, generation: int, rounds: int) -> None:
    """Writes and reads the file that number of times."""
    file = MPI.File.Open(COMM, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    if has_own_view(way):
        mine = MPI.INT.Create_resized(0, 4 * COMM.size).Commit()
        file.Set_view(4 * COMM.rank, MPI.INT, mine)
        mine.Free()
    write, read = calls(file)[way]
    words, found = own_words(generation), np.empty(WORDS, "i4")
    for _ in range(rounds):
        if has_own_view(way):
            file.Seek(0)
        else:
            file.Seek_shared(0)
        write(words)
        if has_own_view(way):
            file.Seek(0)
        else:
            COMM.Barrier()
            file.Seek_shared(0)
        read(found)
    file.Close()


def check_words(name: str, generations: tuple[int, ...]) -> None:
    """All words of the file are of these generations, or zero where there never was one."""
    found = np.fromfile(name, "i4")
    known = {generation * 1000 + rank for generation in generations for rank in range(COMM.size)}
    strange = set(np.unique(found).tolist()) - known - {0}
    assert not strange, f"words that nobody has written: {sorted(strange)[:5]}"


def main(name: str, way: str, generation: int, *death: str) -> None:
    if death:
        seconds, how = float(death[0]), death[1]
        use(name, way, generation, rounds=1)
        if COMM.rank == COMM.size - 1:
            if how == "kill":  # at once, wherever the rank is: the alarm has no handler
                signal.setitimer(signal.ITIMER_REAL, seconds)
            else:
                threading.Timer(seconds, COMM.Abort, [3]).start()
        while True:
            use(name, way, generation, rounds=50)
    if COMM.rank == 0:
        check_words(name, (generation - 2, generation - 1))
    COMM.Barrier()
    begun = time.monotonic()
    use(name, way, generation, rounds=1)
    COMM.Barrier()
    if COMM.rank == 0:
        check_words(name, (generation,))
        counts = np.unique(np.fromfile(name, "i4"), return_counts=True)[1]
        assert counts.tolist() == [WORDS] * COMM.size, counts
        print(f"all right after {time.monotonic() - begun:.3f} s")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
