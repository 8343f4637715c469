"""Jobs that use a volume, and are killed: see `file_kills.py`, which does it hundreds of times. And
lies about what a job has done, which its checks must all find.
"""

from __future__ import annotations

import copy
import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_job import BSU, FILE, USERS, Plan, Worker, home_of
from file_kills import FLIPS, VOLUME_KILLS, WAYS, Campaign
from file_known import Wrong, written
from file_look import Found, look
from histories import ImpossibleHistory
from open_job import Log, Record

import penstock as ps

KILLS = len(WAYS)
"""Each way once: `make crash-files` does it 300 times."""


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="needs mpiexec")
def test_jobs_that_are_killed(place: Path) -> None:
    """All that was saved is there, and nothing is half done; a changed byte is never served."""
    counts = Campaign(place, ranks=3, seed=2).run(KILLS)
    assert sum(counts[way] for way in WAYS) == KILLS and all(counts[way] for way in WAYS)
    assert counts["operations"] and counts["writes of the shared file"]
    volumes = -(-KILLS // VOLUME_KILLS)
    assert counts["volumes emptied"] == volumes
    flips = [count for name, count in counts.items() if name.startswith("changed bytes: ")]
    assert sum(flips) == volumes * FLIPS


@dataclasses.dataclass
class Told:
    """A volume after the work of one worker, and what the worker's log and a look at it say."""

    campaign: Campaign
    log: list[Record]
    found: Found
    path: str
    """A file of the worker, written and checkpointed, and written again."""

    def check(self, *more: Record, other: Sequence[Record] = ()) -> None:
        """Checks what was found against the log and more records, and that of another worker."""
        campaign = copy.copy(self.campaign)
        campaign.trees, campaign.shared = {}, copy.copy(self.campaign.shared)
        campaign.compare(
            [[*self.log, *more], [*other]], time.monotonic_ns(), copy.deepcopy(self.found)
        )


@pytest.fixture(scope="module")
def told_once(tmp_path_factory: pytest.TempPathFactory) -> Told:
    campaign, log = Campaign(tmp_path_factory.mktemp("told"), ranks=1, seed=3), Log()
    campaign.begin_volume(0)
    with ps.FileSystem(campaign.volume) as fs:
        worker = Worker(fs, Plan(1, 3, 0), 0, 1, log)
        worker.mkdir(home_of(0))
        worker.create()
        path = worker.a_file()
        with fs.attach(path, "r+") as f:
            for ranges, step in ([(0, 30_000)], worker.checkpoint), ([(999, 9000)], worker.sync):
                worker.write_pieces(f, path, ps.View(), 0, "block", ranges)
                step()
        worker.write_shared()
        worker.checkpoint_shared()
        worker.mkdir(f"{home_of(0)}/d")
        for last in (worker.write_shared, worker.chmod, worker.quota, worker.sync_all):
            last()
    (found,) = look([campaign.volume])
    assert isinstance(found, Found)
    told = Told(campaign, log.records, found, path)
    told.check()
    return told


@pytest.fixture
def told(told_once: Told) -> Told:
    """What a test may change."""
    return dataclasses.replace(told_once, found=copy.deepcopy(told_once.found))


def began(op: str, **more: Any) -> Record:
    return {"what": "begin", "time": time.monotonic_ns(), "op": op, **more}


def ended() -> Record:
    return {"what": "end", "time": time.monotonic_ns()}


def write(path: str, start: int = 504, count: int = BSU) -> Record:
    pieces = [(start, count, 123_456_789)]
    view = dataclasses.astuple(ps.View())
    return began("write", path=path, view=view, subfile=0, order="block", pieces=pieces)


LIES: dict[str, Callable[[str], list[Record]]] = {
    "a sync": lambda path: [write(path), ended(), began("sync", path=path)],
    "a sync of all": lambda path: [write(path), ended(), began("sync_all")],
    "a sync of the shared file": lambda path: [write(FILE), ended(), began("sync", path=FILE)],
    "a checkpoint": lambda path: [began("checkpoint", path=path)],
    "a checkpoint of the shared file": lambda path: [began("checkpoint", path=FILE)],
    "a rollback": lambda path: [began("rollback", path=path)],
    "a resize": lambda path: [began("resize", path=path, count=7)],
    "another owner": lambda path: [began("chown", path=path, user=1003)],
    "another mode": lambda path: [began("chmod", path=path, mode=0o111)],
    "a quota": lambda path: [began("quota", user=USERS, limit=1 << 50)],
    "a directory": lambda path: [began("mkdir", path="/m0/e")],
    "a file": lambda path: [began("create", path="/m0/f", cells=1, bsu=1)],
    "a removal": lambda path: [began("remove", path=path)],
    "a renaming": lambda path: [began("rename", path="/m0/d", new="/m0/e")],
}
"""What a job says that it has done, and has not."""


@pytest.mark.parametrize("lie", LIES)
def test_what_was_not_done_is_missed(told: Told, lie: str) -> None:
    """But it may have been under way."""
    records = LIES[lie](told.path)
    told.check(*records)
    with pytest.raises((Wrong, ImpossibleHistory)):
        told.check(*records, ended())


def half_renamed(told: Told) -> list[Record]:
    told.found.objects["/m0/e"] = copy.deepcopy(told.found.objects["/m0/d"])
    return [began("rename", path="/m0/d", new="/m0/e")]


def half_removed(told: Told) -> list[Record]:
    del told.found.objects["/m0/d"]
    return [began("rename", path="/m0/d", new="/m0/e")]


def half_kept(told: Told) -> list[Record]:
    found = told.found.objects[told.path]
    assert found.kept is not None
    found.kept[0] = found.active[0]
    found.checkpoints += 1
    return [began("checkpoint", path=told.path)]


def half_rolled_back(told: Told) -> list[Record]:
    found = told.found.objects[told.path]
    assert found.kept is not None
    found.active[0] = found.kept[0]
    return [began("rollback", path=told.path)]


@pytest.mark.parametrize("half", [half_renamed, half_removed, half_kept, half_rolled_back])
def test_what_is_half_done_is_found(told: Told, half: Callable[[Told], list[Record]]) -> None:
    file = told.found.objects[told.path]
    assert file.shape[0] > 1 and file.kept is not None
    assert not np.array_equal(file.kept[0].data, file.active[0].data)
    with pytest.raises(Wrong, match="nothing explains"):
        told.check(*half(told))


def test_a_byte_of_no_write_is_found(told: Told) -> None:
    for path in (told.path, FILE):
        data = told.found.objects[path].active[0].data
        told.found.objects[path].active[0].data = changed = data.copy()
        changed[777] ^= 1
        with pytest.raises(Wrong, match=r"byte 777|words are wrong"):
            told.check()
        told.found.objects[path].active[0].data = data


def test_a_checkpoint_is_of_one_moment(told: Told) -> None:
    """A write that was under way is in it on all cells, or on none."""
    writing, checkpoint = write(FILE, 0, 2 * BSU), began("checkpoint", path=FILE)
    found = told.found.objects[FILE]
    found.checkpoints += 1
    found.kept = copy.deepcopy(found.active)
    told.check(checkpoint, ended(), other=[writing])
    ((cells, at, data),) = written(*found.shape, writing)
    for cell in (0, 1):
        here = cells == cell
        found.kept[cell].data = kept = found.kept[cell].data.copy()
        kept[at[here]] = data[here]
        if cell == 0:
            with pytest.raises(ImpossibleHistory, match="a mixture"):
                told.check(checkpoint, ended(), other=[writing])
    told.check(checkpoint, ended(), other=[writing])
