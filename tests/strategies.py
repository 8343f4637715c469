"""The conformance body by strategy, for threads and MPI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import conformance
from conformance import Case

import penstock as ps

STRATEGIES = ("disk-directed", "two-phase", "caching", "independent")
SMALL = (1, 200)
"""One block of a cache for each client, and 200 bytes of staging buffer."""


class By:
    """A session all of whose calls name a strategy."""

    def __init__(self, session: ps.Session, strategy: str) -> None:
        self.session, self.strategy = session, strategy

    def __getattr__(self, name: str):
        return getattr(self.session, name)

    def write(self, *arguments, **options):
        return self.session.write(*arguments, strategy=self.strategy, **options)

    def read(self, *arguments, **options):
        return self.session.read(*arguments, strategy=self.strategy, **options)


def may_be_refused(strategy: str, disk) -> bool:
    """Whether ranks may not write for themselves where they share a chunk."""
    is_plain = not isinstance(disk, ps.Chunks) or (disk.codec == "none" and not disk.subchunks)
    return strategy == "independent" and not is_plain


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
