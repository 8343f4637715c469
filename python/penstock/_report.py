"""Reports: what a collective call did, and what it was predicted to take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import _core


@dataclasses.dataclass(frozen=True)
class Forecast:
    """A forecast says what a collective call was predicted to take, by the way that was chosen.

    Attributes
    ----------
    strategy : str
        The strategy.
    servers : int
        Number of servers that take part.
    block_bytes : int
        The most bytes of a block.
    seconds : float
        Seconds, corrected by what earlier calls of the session with the same shape took.
    low : float
        The seconds with every number of the machine at the fast end of its spread.
    high : float
        The seconds with every number at the slow end.
    bytes : int
        Bytes of the array.
    disk_bytes : int
        Bytes between buffers and disks, with padding.
    messages : int
        Messages between ranks and servers.
    memory_bytes : int
        Bytes of staging, send and cache buffers of all nodes.
    bottleneck : str
        The part of the machine that works longest: `disk`, `network`, `copying`, `CPU` or
        `metadata`.
    by : str
        How it was found: `closed form` or `simulation`.
    remark : str
        What the prediction leaves out, as codecs; empty if that is nothing that is known.
    """

    strategy: str
    servers: int
    block_bytes: int
    seconds: float
    low: float
    high: float
    bytes: int
    disk_bytes: int
    messages: int
    memory_bytes: int
    bottleneck: str
    by: str
    remark: str


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
    predicted : Forecast, optional
        What the write, read or save was predicted to take, if the session has the description of
        its machine (`machine`) and the model knows calls of this kind.
    """

    bytes: int
    seconds: float
    blocks: int
    disk_bytes: int
    transfers: int
    buffer_bytes: int
    servers: int
    predicted: Forecast | None = None


def report_of(fields: _core._Report) -> Report:
    """The report that the Rust side gives."""
    predicted = fields[7]
    if predicted is None:
        return Report(*fields[:7])
    way, seconds, amounts, words = predicted
    return Report(*fields[:7], Forecast(*way, *seconds, *amounts, *words))
