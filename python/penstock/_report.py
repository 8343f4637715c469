"""Reports: what a collective call did."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import _core


@dataclasses.dataclass(frozen=True)
class Report:
    """A report says what a collective call did.

    Attributes
    ----------
    bytes : int
        Bytes of the array, or of all arrays of a group; of regions and rows, those of this rank; of
        a selection, those that servers sent to all ranks.
    seconds : float
        Wall time on this rank, seconds.
    blocks : int
        Blocks that all servers moved.
    disk_bytes : int
        Bytes between buffers and disks, decoded, with padding.
    transfers : int
        Memgets or memputs; of a selection, messages with elements.
    buffer_bytes : int
        Bytes of the staging buffers of all servers.
    servers : int
        Number of servers.
    """

    bytes: int
    seconds: float
    blocks: int
    disk_bytes: int
    transfers: int
    buffer_bytes: int
    servers: int


def report_of(fields: _core._Report) -> Report:
    """The report that the Rust side gives."""
    return Report(*fields)
