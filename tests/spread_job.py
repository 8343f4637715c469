"""An MPI program of which each rank reaches one disk only, as on nodes with disks of their own.

    mpiexec -n N unshare --mount python tests/spread_job.py PLACE

Rank n hides from itself all of `PLACE/disk0`, `PLACE/disk1`, ... but its own, under empty mounts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import penstock as ps

SHAPE = (10, 6)


def whole(step: int) -> np.ndarray:
    return np.arange(60.0).reshape(SHAPE) + 100 * step


def main(place: Path) -> None:
    from mpi4py import MPI

    rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    for other in range(ranks):
        if other != rank:
            disk = str(place / f"disk{other}")
            subprocess.run(["mount", "-t", "tmpfs", "hidden", disk], check=True)
    root = place / "disk{server}" / "out"
    with ps.Session(MPI.COMM_WORLD, root=root, servers=ranks) as s:
        (place / f"disk{rank}" / "out").mkdir()
        s.barrier()
        rows = ps.Distribution("BLOCK,*", (ranks,))
        u = ps.Array("u", SHAPE, "f8", memory=rows, disk=ps.Chunks((2, 4), codec="zstd:1"))
        mine = u.local_slices(rank)

        for path, disk in (("u.zarr", u.disk), ("u.parts", ps.Distribution("*,BLOCK", (4,)))):
            array = u.with_disk(disk)
            expected = whole(1)
            s.write(path, array, expected[mine])
            expected[4:7] = -1.0
            part = slice(4, 7) if rank == 0 else slice(0, 0)
            s.write(path, array, expected[part], region=part)
            assert np.array_equal(s.read(path, array), expected[mine]), path

        group = ps.Group("job", [u], "job.zarr")
        assert s.restart(group) is None
        for step in range(4):
            s.timestep(group, {"u": whole(step)[mine]})
            s.checkpoint(group, {"u": whole(step)[mine]}, step=step)
        assert np.array_equal(s.restart(group)["u"], whole(3)[mine])
        assert np.array_equal(s.restart(group, step=2)["u"], whole(2)[mine])
        s.timestep(group, {"u": whole(9)[mine]})
        columns = ps.Distribution("*,*,BLOCK", (ranks,))
        series = ps.Array("u", (4, *SHAPE), "f8", memory=columns, disk=ps.Chunks((1, 2, 4)))
        found = s.read("job.zarr", series)
        expected = np.stack([whole(step) for step in (0, 1, 2, 9)])
        assert np.array_equal(found, expected[series.local_slices(rank)])
        for other in range(ranks):
            there = (place / f"disk{other}" / "out").exists()
            assert there == (other == rank), "the disks of others were not hidden"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
