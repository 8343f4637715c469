"""This benchmark compares shares of unequal extents as chunks with natural chunks of equal shares.

The ranks are threads, with two servers. Each has rows of one array: as many as the others, or one
half fewer or more. The stores take turns; a rate is the median of the rounds, of a write that is
not synced and of a read that the page cache answers. Natural chunks of unequal shares have the
largest share's extents, so that ranks meet in them. Chunks are dealt out to the servers in turn,
whatever their extents: where every second share is a large one, one server has all large chunks.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import penstock as ps
from penstock_bench.command import MIB, Parser, UsageError, complain

COLUMNS = 1024
ROW_BYTES = COLUMNS * 8

EQUAL = "equal shares, natural chunks"
SHARES = "unequal shares, each a chunk"
LARGEST = "unequal shares, chunks of the largest"
UNEVEN = "all large chunks on one server"
STORES = (EQUAL, SHARES, LARGEST, UNEVEN)


def rows_of(store: str, rank: int, ranks: int, rows: int) -> int:
    """Give the rows of a rank, of ``rows`` in the mean. What is over four ranks has the mean."""
    if store == EQUAL or rank >= ranks // 4 * 4:
        return rows
    is_small = rank % 2 == 0 if store == UNEVEN else rank % 4 in (0, 3)
    return rows // 2 if is_small else rows + rows // 2


def array_of(store: str, rank: int, ranks: int, rows: int) -> ps.Array:
    """Make the array of a store as a rank holds it."""
    counts = [rows_of(store, each, ranks, rows) for each in range(ranks)]
    return ps.Array(
        "u",
        (sum(counts), COLUMNS),
        "f8",
        memory=ps.Boxes((sum(counts[:rank]), 0), (counts[rank], COLUMNS)),
        disk=ps.Chunks("shares") if store in (SHARES, UNEVEN) else None,
    )


def measure(place: Path, ranks: int, mebibytes: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Give the MiB a second of writes and reads of each store: medians of the rounds."""
    rows = max(mebibytes * MIB // ROW_BYTES // ranks // 2 * 2, 2)

    def main(session: ps.Session) -> dict[str, tuple[list[float], list[float]]]:
        rank = session.rank
        assert rank is not None
        arrays = {store: array_of(store, rank, ranks, rows) for store in STORES}
        values = {
            store: np.random.default_rng(rank).random(array.local_shape(rank))
            for store, array in arrays.items()
        }
        back = {store: np.zeros_like(each) for store, each in values.items()}
        seconds: dict[str, tuple[list[float], list[float]]] = {s: ([], []) for s in STORES}
        for number in range(rounds + 1):  # the first one warms up
            for store in STORES[number % len(STORES) :] + STORES[: number % len(STORES)]:
                array = arrays[store]
                path = place / f"{STORES.index(store)}-{number}"
                session.barrier()
                begun = time.perf_counter()
                session.write(path, array, values[store])
                written = time.perf_counter()
                session.read(path, array, back[store])
                read = time.perf_counter()
                if not np.array_equal(back[store], values[store]):
                    raise SystemExit("something else was read than was written")
                session.barrier()
                if rank == 0:
                    shutil.rmtree(path)
                if number > 0:
                    seconds[store][0].append(written - begun)
                    seconds[store][1].append(read - written)
        return seconds

    measured = ps.run(main, ranks, sync=False, servers=2)[0]
    moved = rows * ranks * ROW_BYTES / MIB
    return {
        store: (moved / median(writes), moved / median(reads))
        for store, (writes, reads) in measured.items()
    }


def main(words: list[str]) -> int:
    """Run the benchmark, and print its table."""
    parser = Parser(prog="python -m penstock_bench shares", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mebibytes", type=int, default=512, help="of the array")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    try:
        options = parser.parse_args(words)
        if min(options.ranks, options.mebibytes, options.rounds) < 1:
            raise UsageError("--ranks, --mebibytes and --rounds are at least 1")
    except UsageError as error:
        complain(error)
        return 2
    place = Path(tempfile.mkdtemp(prefix="penstock-shares-", dir=options.directory))
    try:
        rates = measure(place, options.ranks, options.mebibytes, options.rounds)
    finally:
        shutil.rmtree(place)
    print(f"{'MiB a second (of equal shares)':<40}{'write':>16}{'read':>16}")
    for store, (write, read) in rates.items():
        shown = [
            f"{rate:,.0f} ({rate / equal:.2f})"
            for rate, equal in zip((write, read), rates[EQUAL], strict=True)
        ]
        print(f"{store:<40}{shown[0]:>16}{shown[1]:>16}")
    return 0
