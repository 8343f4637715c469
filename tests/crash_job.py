"""The victim of `crash_kills.py`: an MPI program that saves timesteps and checkpoints.

    mpiexec -n 3 python tests/crash_job.py STORE LOG LIFE STEPS

What it saves is a function of the step and of its life, so that it is known of every element which
save it came from. It restarts at its start, and checks what it has restarted from. Rank 0 writes to
the log what is complete, a line each: `start STEP`, `timestep STEP`, `checkpoint STEP`, `end`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import penstock as ps

SHAPES = {"u": (6, 8), "v": (8, 4)}
CHECKPOINT_STEPS = 3
LIVES_MAX = 1000


def group(store: Path, memory: ps.Distribution) -> ps.Group:
    """One array of plain chunks, one of shards with codecs, one of rows; two timesteps a chunk."""
    shards = ps.Chunks((8, 4), subchunks=(4, 4), codec="zstd:1+crc32c")
    u = ps.Array("u", SHAPES["u"], "f8", memory=memory, disk=ps.Chunks((3, 8)))
    v = ps.Array("v", SHAPES["v"], "i4", memory=memory, disk=shards)
    p = ps.Array(
        "p", (None, 2), "i8", disk=ps.Chunks((4, 2), codec="zstd:1"), dims=("particle", "k")
    )
    return ps.Group("job", [u, v, p], store, coords={"x": np.arange(8.0)}, time_chunk=2)


def values(step: int, life: int) -> dict[str, np.ndarray]:
    """The whole arrays, as they are saved. The first element of `u` is that of step and life."""
    u = np.arange(48.0).reshape(SHAPES["u"]) + 1000.0 * (step * LIVES_MAX + life)
    v = (np.arange(32) + 7919 * step + 104_729 * life).astype("i4").reshape(SHAPES["v"])
    rows = (3 * step + life) % 5
    p = np.arange(2 * rows).reshape(rows, 2) + 1000 * step + 1_000_000 * life
    return {"u": u, "v": v, "p": p}


def saved_by(u: np.ndarray) -> tuple[int, int]:
    """The step and the life in which an array `u` was saved, as its first element says."""
    step, life = divmod(int(u.flat[0]) // 1000, LIVES_MAX)
    return step, life


def main(store: Path, log: Path, life: int, steps: int) -> None:
    from mpi4py import MPI

    with ps.Session(MPI.COMM_WORLD) as s, open(log, "a", buffering=1) as lines:

        def note(line: str) -> None:
            if s.rank == 0:
                lines.write(line + "\n")

        memory = ps.Distribution("BLOCK,*", (s.size,))
        job = group(store, memory)

        def parts(of: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            held = {a.name: of[a.name][a.local_slices(s.rank)] for a in job.arrays if a.name != "p"}
            return {**held, "p": np.array_split(of["p"], s.size)[s.rank]}

        state = s.restart(job)
        first = 0
        if state is not None:
            first = state.step + 1
            lives = MPI.COMM_WORLD.bcast(saved_by(state["u"])[1])
            expected = parts(values(state.step, lives))
            for name in SHAPES:
                assert np.array_equal(state[name], expected[name]), f"{name} is not what was saved"
            rows = np.concatenate(MPI.COMM_WORLD.allgather(state["p"]))
            assert np.array_equal(rows, values(state.step, lives)["p"]), "p is not what was saved"
        note(f"start {first}")
        for step in range(first, first + steps):
            whole = parts(values(step, life))
            s.timestep(job, whole, time=float(step))
            note(f"timestep {step}")
            if step % CHECKPOINT_STEPS == CHECKPOINT_STEPS - 1:
                s.checkpoint(job, whole, step=step)
                note(f"checkpoint {step}")
        note("end")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
