"""For tests and benchmarks: disks that are slow, fail, or keep nothing, and small buffers.

slow = ps.SessionOptions(faults=ps.testing.Faults(bytes_per_second=50e6))
with ps.Session(options=slow) as s: ...
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Fault:
    """One call of a disk that fails.

    Parameters
    ----------
    operation : {"open", "write", "read", "finish"}
        Of what.
    nth : int
        The how manyth call of it, from 1 on, counted by each server in each collective call.
    error : {"ENOSPC", "EIO", "short"}
        How: no space is left, the device says that it failed, or the first half of the data is
        moved before that.
    """

    operation: Literal["open", "write", "read", "finish"]
    nth: int
    error: Literal["ENOSPC", "EIO", "short"]


@dataclasses.dataclass(frozen=True)
class Faults:
    """What is wrong with the disk of each server.

    Parameters
    ----------
    bytes_per_second : float, optional
        The most that goes through it.
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
    """How much memory the rivals of disk-directed I/O take. Results do not depend on it.

    Parameters
    ----------
    blocks_per_client : int
        Blocks of a caching server, for each client.
    staging_bytes : int
        Of a client's buffer in two-phase I/O.
    """

    blocks_per_client: int
    staging_bytes: int
