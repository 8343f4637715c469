"""The memory of one data access: the bytes before a write, and where the data of a read go."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from steps import EXTERNAL, Part

Bytes = NDArray[np.uint8]

MARGIN = 16
"""Bytes on both sides that nobody may touch."""
PADDING = 0xA5
"""What stands in memory before a read."""


class Image:
    """All bytes that a part's datatype spans, with a margin around them."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.places = part.memory.map.repeated(part.count)
        """The displacement of each byte of data from the buffer's address."""
        low = min(0, int(self.places.min(initial=0)))
        high = max(0, int(self.places.max(initial=-1)) + 1)
        self.origin = MARGIN - low
        """Where the buffer's address is in `raw`."""
        self.bytes = high - low + 2 * MARGIN

    def source(self) -> Bytes:
        """The memory of a write: random bytes that the salt decides."""
        return np.random.default_rng(self.part.salt).integers(0, 256, self.bytes, np.uint8)

    def target(self) -> Bytes:
        """The memory of a read, before it."""
        return np.full(self.bytes, PADDING, np.uint8)

    @cached_property
    def where(self) -> NDArray[np.int64]:
        """The number of each byte of data in `raw`, in the order of the data stream."""
        return self.places + self.origin

    def in_file(self, datarep: str) -> NDArray[np.int64]:
        """The same in the order in which the bytes lie in a file of this representation: in
        external32 the most significant byte of each value comes first."""
        if datarep != EXTERNAL:
            return self.where
        widths = np.tile(self.part.memory.map.widths, self.part.count)
        ends = np.cumsum(widths)
        within = np.arange(len(self.where)) - np.repeat(ends - widths, widths)
        return self.where[np.repeat(ends, widths) - 1 - within]
