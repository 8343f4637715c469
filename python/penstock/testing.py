"""Disks that are slow, fail, or keep nothing, and small buffers, for tests and benchmarks.

A session takes them as options:
`ps.Session(faults=ps.testing.Faults(bytes_per_second=50e6))`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal

__all__ = ["Buffers", "Fault", "Faults"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault is one call of a disk that fails.

    Parameters
    ----------
    operation : {"open", "write", "read", "finish"}
        The operation that fails.
    nth : int
        Which call of it fails, from 1 on, as each server counts them in each collective call.
    error : {"ENOSPC", "EIO", "short"}
        How: no space is left, the device says that it failed, or the first half of the data is
        moved before that.
    """

    operation: Literal["open", "write", "read", "finish"]
    nth: int
    error: Literal["ENOSPC", "EIO", "short"]


@dataclasses.dataclass(frozen=True)
class Faults:
    """Faults say what is wrong with the disk of each server.

    Parameters
    ----------
    bytes_per_second : float, optional
        The most that goes through it, bytes per second. Default: as fast as it is.
    faults : sequence of Fault
        The calls that fail.
    null : bool
        Whether nothing reaches the disk and nothing comes from it: what is left of a call is its
        messages (Seamons et al., SC'95, section 3).
    """

    bytes_per_second: float | None = None
    faults: Sequence[Fault] = ()
    null: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(self.faults))

    def _json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Buffers:
    """Buffers are the memory that the rivals of disk-directed I/O take. Results do not depend on
    it.

    Parameters
    ----------
    blocks_per_client : int
        Blocks that a caching server has for each client.
    staging_bytes : int
        Bytes of a client's buffer in two-phase I/O.
    """

    blocks_per_client: int
    staging_bytes: int
