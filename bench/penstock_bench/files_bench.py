"""The benchmark ``files`` has volumes in a directory, and contenders that use them.

Contenders of a table alternate, in turn forwards and backwards; each measures once a round. Files
are measured in two states:

- *disk*: servers go around the page cache; writes end with a sync, and reads begin with a new open
  of the volume. The limit is fio with direct I/O and as many accesses under way.
- *cache*: all of the file is in the servers' caches. The limit is a copy in memory by one thread.
- *memory*, in the place of *disk*: the same on a tmpfs, without direct I/O. The limit is a copy.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock_bench.command import MIB, show_step
from penstock_bench.direct import direct_rate, fio_rate, fio_version
from penstock_bench.files_case import PARTS, READ, Rates, Threads, Volume, make_volume, values
from penstock_bench.files_job import FilesJob
from penstock_bench.job import Runner
from penstock_bench.machine import file_system
from penstock_bench.meters import in_turn

Rows = dict[str, Rates]
Contender = Callable[[], Rows]

DISK, CACHE, MEMORY = "disk", "cache", "memory"
COPY = "a copy in memory"
SERVER_CACHE_BYTES = 32 * MIB
"""The cache of a server in the states *disk* and *memory*: the paper's, and the default."""
SPARE_BYTES = 16 * MIB
FILES_KEPT = 3
"""The versions of the largest file that a volume has room for."""
SALTS_OF_JOB = 1 << 10
"""The salts that a job has to itself."""


@dataclass(frozen=True)
class Extent:
    """The extent of a run."""

    mib: int
    """The size of the files of `sequential`."""
    small_mib: int
    """The size of files that a cache holds, and of those of the figures."""
    rounds: int
    accesses: tuple[int, ...]
    """The bytes of an access in the figures."""
    servers: tuple[int, ...]
    """The numbers of servers of Figure 12."""
    random: int
    """The accesses at random of a round."""
    names: int
    """The files created in a round."""
    creators: tuple[int, ...]
    """The threads that create files at once."""


FULL = Extent(
    mib=128,
    small_mib=64,
    rounds=3,
    accesses=(4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB),
    servers=(1, 2, 4, 8),
    random=20_000,
    names=4_000,
    creators=(1, 16, 64),
)
QUICK = Extent(
    mib=2,
    small_mib=2,
    rounds=1,
    accesses=(16 << 10, 64 << 10),
    servers=(1, 2),
    random=300,
    names=48,
    creators=(1, 4),
)


@dataclass(frozen=True)
class How:
    """How the benchmark was asked to measure."""

    directory: Path
    extent: Extent
    block: int
    access: int
    depth: int
    servers: int
    ranks: int
    mode: str
    warms: bool


@dataclass
class Table:
    """A table has the rates of all rounds, by row and column.

    A column has a name in two parts, with ``|`` between them, if it belongs to a group.
    """

    part: str
    title: str
    rows: dict[str, dict[str, list[float]]]
    scale: float = 1.0
    """What rates are divided by when they are shown."""
    beside: str | None = None
    """The row beside which others are put."""
    aims: dict[str, float] = field(default_factory=dict)
    """The least fraction of the row beside, or rate where there is none, by row."""
    aims_at: tuple[str, ...] = ()
    """The columns that the aims are for, if they are not for all."""
    quotients: list[Quotient] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    """Groups of columns that are not shown."""


@dataclass(frozen=True)
class Quotient:
    """One more column of a table: a column beside another."""

    name: str
    over: str
    under: str
    distance_max: float | None = None
    """The greatest distance from 1, if that is an aim."""


class Bench:
    """The benchmark has volumes in a directory, and contenders that use them."""

    def __init__(self, how: How, runner: Runner) -> None:
        self.how, self.runner, directory = how, runner, how.directory
        self.salts = itertools.count(1)
        self.is_in_memory = file_system(directory) == "tmpfs"
        self.states = (MEMORY, CACHE) if self.is_in_memory else (DISK, CACHE)

    def alternate(
        self, contenders: dict[str, Contender], what: str
    ) -> dict[str, dict[str, list[float]]]:
        """Let all contenders measure in each round, and return the rates by row and column."""
        rows: dict[str, dict[str, list[float]]] = {}
        for repeat, (name, measure) in in_turn(
            list(contenders.items()), range(self.how.extent.rounds)
        ):
            show_step(self.runner.bar, f"{what}, round {repeat + 1}: {name}")
            for row, rates in measure().items():
                of_row = rows.setdefault(row, {})
                for column, rate in rates.items():
                    of_row.setdefault(column, []).append(rate)
        return rows

    @contextmanager
    def volume(self, servers: int, largest: int) -> Iterator[Callable[..., Volume]]:
        """Make a volume for files of some length; give what says how it is opened in a state."""
        path = self.how.directory / f"volume-{servers}"
        show_step(self.runner.bar, f"a volume of {servers} servers")
        each = FILES_KEPT * largest // servers + SPARE_BYTES
        make_volume(str(path), servers, self.how.block, each)

        def in_state(state: str, bytes_: int) -> Volume:
            is_cache = state == CACHE
            cache = max(2 * bytes_, SERVER_CACHE_BYTES) if is_cache else SERVER_CACHE_BYTES
            is_direct = state == DISK
            return Volume(str(path), servers, cache, is_direct, not is_cache)

        yield in_state
        shutil.rmtree(path)

    def threads(self, size: int = 1) -> Threads:
        """Return clients of this process."""
        return Threads(size, warms=self.how.warms)

    def job(self, volume: Volume, **what: Any) -> Rows:
        """Run an MPI job, and return its rates by row."""
        ranks = 2 if "random" in what else self.how.ranks
        salt = next(self.salts) * SALTS_OF_JOB
        job = FilesJob(
            clients=ranks,
            directory=str(self.how.directory),
            volume=asdict(volume),
            salt=salt,
            **what,
        )
        return {result["row"]: result["rates"] for result in self.runner.run(job)}

    # --- limits ------------------------------------------------------------------------------

    def limit(self, state: str, bytes_: int, access: int, depth: int) -> tuple[str, Contender]:
        """Return the limit of a state, by its name: fio, or a copy in memory."""
        if state == DISK:
            version = fio_version()
            name = f"{version}, direct I/O" if version else "direct calls (no fio)"
            return name, lambda: {name: self.of_disk(bytes_, access, depth)}
        return COPY, lambda: {COPY: copy_rates(bytes_, access)}

    def of_disk(self, bytes_: int, access: int, depth: int) -> Rates:
        """Measure the disk by direct I/O, in a file that has been written before."""
        path = self.how.directory / "direct"
        if not path.exists():
            path.write_bytes(values(bytes_, 0).tobytes())
        rates = {}
        for operation in ("write", "read"):
            if fio_version():
                rate = fio_rate(path, operation, bytes_, access, depth)
            else:
                rate = direct_rate(path, operation)
            rates.update(dict.fromkeys(PARTS[:2] if operation == "write" else [READ], rate))
        return rates


def copy_rates(bytes_: int, access: int) -> Rates:
    """Measure a copy in memory, piece by piece, by one thread."""
    source, target = values(bytes_, 0), np.full(bytes_, 1, np.uint8)  # touched
    pieces = [slice(first, first + access) for first in range(0, bytes_, access)]
    begun = time.perf_counter()
    for piece in pieces:
        target[piece] = source[piece]
    return dict.fromkeys(PARTS, bytes_ / (time.perf_counter() - begun))


def size_text(bytes_: int) -> str:
    """Write a size as the tables do."""
    return f"{bytes_ >> 20} MiB" if bytes_ >= MIB else f"{bytes_ >> 10} KiB"
