"""``python -m penstock_bench`` runs one of the benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from penstock_bench import (
    buckets,
    collective,
    copy,
    dickens_thakur,
    files,
    hard,
    hdf5,
    mount,
    panda,
    parts,
    predict,
    served,
    shares,
    standing,
    unchanged,
    work,
)
from penstock_bench.command import complain

BENCHMARKS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "buckets": (buckets.main, "an array in a bucket, beside the crate object_store alone"),
    "collective": (collective.main, "one collective write and read, beside other libraries"),
    "copy": (copy.main, "an array rearranged on disk, beside rechunker and TensorStore"),
    "files": (files.main, "parallel files: Figures 10 to 16 of Vesta beside fio and a copy"),
    "hard": (hard.main, "records dealt out in turn, and large parts, in one shared file"),
    "hdf5": (hdf5.main, "an array in HDF5, beside a flat file, zlib and parallel HDF5"),
    "mount": (mount.main, "a file by a mount of a volume, beside the directory it lies on"),
    "parts": (parts.main, "small parts read at random, beside zarr-python and a system call"),
    "predict": (predict.main, "what a call is said to take on this machine, and what it takes"),
    "served": (served.main, "files of standing servers, beside JuiceFS, NFS-Ganesha, GlusterFS"),
    "shares": (shares.main, "shares of unequal extents as chunks, beside equal ones"),
    "standing": (standing.main, "timesteps handed to standing servers, beside those waited for"),
    "unchanged": (unchanged.main, "a C program of MPI-IO on Penstock's library, ROMIO and OMPIO"),
    "work": (work.main, "elements selected and dealt out by servers, beside reads and mpi4py"),
    "panda": (panda.main, "Figures 3 to 9 of Panda: server-directed I/O beside the peak"),
    "dickens-thakur": (
        dickens_thakur.main,
        "Figures 2 to 7 of Dickens and Thakur: two-phase I/O by steps, split collectives",
    ),
}


def usage() -> str:
    """Return the list of benchmarks."""
    lines = [f"  {name:<16}{what}" for name, (_, what) in BENCHMARKS.items()]
    return "\n".join(
        [
            "usage: python -m penstock_bench BENCHMARK [options]",
            "",
            *lines,
            "",
            "BENCHMARK --help explains the options. `collective` runs under mpiexec.",
        ]
    )


def main() -> int:
    """Run the benchmark that the program's arguments name, and return its exit code."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0
    if words[0] not in BENCHMARKS:
        complain(f"there is no benchmark {words[0]!r}: take one of {', '.join(BENCHMARKS)}")
        return 2
    run, _ = BENCHMARKS[words[0]]
    return run(words[1:])


if __name__ == "__main__":
    sys.exit(main())
