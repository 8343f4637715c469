"""The conformance body by strategy, for threads and MPI."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import conformance
from conformance import Case

import penstock as ps

STEPS = tuple(f"two-phase:{step}" for step in range(1, 5))
STRATEGIES = ("disk-directed", "two-phase", *STEPS, "caching", "independent")
SPLIT = (
    *(f"{strategy}+disk" for strategy in STRATEGIES if strategy != "caching"),
    *("disk-directed+all", "two-phase+all", "caching+all", "independent+all"),
    *("disk-directed+none", "two-phase:3+none"),
)
"""Strategies in split collectives, and what of them is in the background."""
SMALL = ps.testing.Buffers(blocks_per_client=1, staging_bytes=200)
"""One block of a cache for each client, and 200 bytes of staging buffer."""


def some_ways(chance: random.Random) -> list[str]:
    """Strategies and split collectives, the first of them disk-directed."""
    return ["disk-directed", *chance.sample(STRATEGIES[1:], 3), *chance.sample(SPLIT, 3)]


class By:
    """A session all of whose calls name a strategy, or are split."""

    def __init__(self, session: ps.Session, way: str) -> None:
        self.session = session
        self.strategy, _, self.background = way.partition("+")

    def __getattr__(self, name: str):
        return getattr(self.session, name)

    def write(self, *arguments, **options):
        options["strategy"] = self.strategy
        if not self.background:
            return self.session.write(*arguments, **options)
        return self.session.begin_write(*arguments, background=self.background, **options).end()

    def read(self, *arguments, **options):
        options["strategy"] = self.strategy
        if not self.background:
            return self.session.read(*arguments, **options)
        return self.session.begin_read(*arguments, background=self.background, **options).end()


def may_be_refused(strategy: str, disk) -> bool:
    """Whether ranks may not write for themselves where they share a chunk."""
    is_plain = not isinstance(disk, ps.Chunks) or (disk.codec == "none" and not disk.subchunks)
    return strategy.startswith("independent") and not is_plain


def write_by(session: ps.Session, case: Case, path: Path, strategy: str) -> bool:
    """False where ranks share what can only be written whole."""
    try:
        conformance.write(By(session, strategy), case, path)
    except ps.SchemaError as error:
        assert may_be_refused(strategy, case.disk) and "both hold elements of chunk" in str(error)
        return False
    return True


def read_by(session: ps.Session, case: Case, path: Path, strategy: str) -> None:
    # Into an array of the caller's: what is left alone is seen.
    conformance.read(By(session, strategy), replace(case, gives_out=True), path, session.size)
