"""What follows from a seed of `file_histories.py`."""

from __future__ import annotations

import dataclasses
import random
from typing import Literal

import penstock as ps
from penstock._files import Order

ORDERS: tuple[Order, ...] = ("block", "row", "column")
LARGE = 0.01
"""As a part: cases whose requests have more bytes than travel in messages."""
MESSAGE_BYTES = 1 << 20
"""So many bytes of a request to a server travel in messages."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What follows from a seed: a volume, a file in it, and what clients may do."""

    seed: int
    servers: int
    block_bytes: int
    cache_bytes: int
    clients: int
    cells: int
    bsu: int
    span: int
    """Requests begin below this offset, and have fewer bytes."""
    steps: int
    focus: str
    """What clients do most: `bytes`, `changes`, `log` or `names`."""
    is_reckless: bool
    has_changes: bool
    has_removal: bool
    dedicated: bool
    """Under MPI."""
    record: int
    """The bytes of a record of the log."""

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(f"case {seed}")
        is_large = chance.random() < LARGE
        bsu = chance.choice((1, 2, 3, 5, 8, 13, 100, 512, 1000, 4096))
        span = chance.choice((40, 4 * bsu, 12 * bsu, 300))
        block_bytes = chance.choice((3, 16, 64, 100, 1000, 4096))
        if is_large:
            bsu, span, block_bytes = chance.choice((1000, 400_000)), 5 * MESSAGE_BYTES // 4, 65536
        has_changes = chance.random() < 0.5
        return cls(
            seed,
            servers=chance.randint(1, 2 if is_large else 4),
            block_bytes=block_bytes,
            cache_bytes=max(1, chance.choice((0, 1, 2, 5, 1000)) * block_bytes),
            clients=chance.randint(2, 3 if is_large else 5),
            cells=chance.choice((1, 2, 3) if is_large else (1, 2, 3, 4, 5, 7, 9)),
            bsu=bsu,
            span=max(8, min(span, 20_000) if not is_large else span),
            steps=chance.choice((6, 12, 20, 30)) if not is_large else 3,
            focus=chance.choice(("bytes", "bytes", "bytes", "changes", "log", "names")),
            is_reckless=chance.random() < 0.15,
            has_changes=has_changes,
            has_removal=has_changes and chance.random() < 0.3,
            dedicated=chance.random() < 0.3,
            record=chance.choice((1, 7, 64, 300)),
        )

    def view(self, chance: random.Random) -> tuple[ps.View, int]:
        """A view, and one of its subfiles."""
        view = ps.View(*(chance.randint(1, 3) for _ in range(4)))
        way = chance.random()
        if way < 0.3:
            view = ps.View()
        elif way < 0.5:
            view = ps.View(hn=self.cells)
        return view, chance.randrange(view.subfiles)

    @property
    def mode(self) -> Literal["cautious", "reckless"]:
        return "reckless" if self.is_reckless else "cautious"

    @property
    def log(self) -> tuple[int, int, ps.View, Order]:
        """The cells and the BSU of the log, and the view and the order of its one subfile, which
        has no ghost cells."""
        chance = random.Random(f"log {self.seed}")
        cells = chance.randint(1, 6)
        view = ps.View(vbs=chance.randint(1, 3), hbs=chance.choice((1, cells)))
        return cells, chance.randint(1, 40), view, chance.choice(ORDERS[:2])
