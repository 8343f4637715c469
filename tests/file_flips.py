"""Changes bytes of a volume that nobody has open, and checks that no wrong byte is ever served.

Each change is made in a copy. One of a block file is found and named by `penstock fs fsck --data`,
and a read of the block raises `DamagedError`, while all else is as it was; or the block was free,
and nothing is found. With one of a store of records the volume is refused with a typed error, or is
as it was in all.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from file_known import of_length
from file_look import Cell, Found, Object, Refused, look

BYTES_MAX = 4
"""The most bytes of a change, which lie beside each other."""
OF_RECORDS = 0.5
"""As a part: changes in stores of records, not in block files."""
IN_USE = 0.8
"""As a part: changes of blocks that were in use at some time, and of records that are not zero."""
SECTOR = 512
"""A change is of one sector, and so of one block."""
DAMAGED = re.compile(
    r"(?P<path>/.*): block (?P<block>\d+) of cell (?P<cell>\d+)(?P<kept> of the checkpoint)?"
    r" on server (?P<server>\d+), at place (?P<place>\d+), is damaged: .*"
)

Place = tuple[Path, int]


@dataclasses.dataclass
class Flip:
    """A change of bytes of a file in a copy of a volume."""

    volume: Path
    file: str
    start: int
    change: bytes

    def __str__(self) -> str:
        return f"{self.file}, bytes {self.start} to {self.start + len(self.change)}"

    @property
    def is_of_records(self) -> bool:
        return self.file.endswith("records.redb")

    def make(self) -> None:
        with (self.volume / self.file).open("r+b") as opened:
            opened.seek(self.start)
            former = opened.read(len(self.change))
            opened.seek(self.start)
            opened.write(bytes(a ^ b for a, b in zip(former, self.change, strict=True)))


def random_place(volume: Path, block_bytes: int, whole: Found, chance: random.Random) -> Place:
    """A file of a volume, and a byte of it that is to be changed."""
    name = "records.redb" if chance.random() < OF_RECORDS else "blocks-0"
    path = chance.choice(sorted(volume.glob(f"server-*/{name}")))
    if chance.random() < IN_USE:
        if name == "blocks-0":
            used = blocks_in_use(volume, block_bytes, whole, chance)
            if used:
                path, block = chance.choice(used)
                return path, block * block_bytes + chance.randrange(block_bytes)
        else:
            return path, chance.choice(np.flatnonzero(np.fromfile(path, np.uint8)).tolist())
    return path, chance.randrange(path.stat().st_size)


def blocks_in_use(
    volume: Path, block_bytes: int, whole: Found, chance: random.Random
) -> list[Place]:
    """The blocks that hold what some block of a file does: one is the file's, unless it is a hole,
    and others were it before they were free."""
    cells = [cell.data for *_, cell in cells_in(whole) if len(cell.data)]
    data = chance.choice(cells)
    start = chance.randrange(len(data)) // block_bytes * block_bytes
    block = of_length(data[start : start + block_bytes], block_bytes)
    found: list[Place] = []
    for path in sorted(volume.glob("server-*/blocks-0")):
        blocks = np.fromfile(path, np.uint8).reshape(-1, block_bytes)
        found += [(path, int(at)) for at in np.flatnonzero((blocks == block).all(axis=1))]
    return found if block.any() else []


def random_flip(volume: Path, copy: Path, place: Place, chance: random.Random) -> Flip:
    path, start = place
    count = min(chance.randint(1, BYTES_MAX), SECTOR - start % SECTOR, path.stat().st_size - start)
    change = bytes(chance.randrange(1, 256) for _ in range(count))
    return Flip(copy, str(path.relative_to(volume)), start, change)


def check_flips(
    volume: Path,
    block_bytes: int,
    whole: Found,
    count: int,
    chance: random.Random,
    counts: collections.Counter[str],
) -> None:
    """Makes changes in copies of a volume, in which all is known, and adds to the counts."""
    flips = []
    for number in range(count):
        copy = volume.with_name(f"copy-{number}")
        shutil.copytree(volume, copy)
        place = random_place(volume, block_bytes, whole, chance)
        flips.append(random_flip(volume, copy, place, chance))
        flips[-1].make()
    found = look([flip.volume for flip in flips])
    for flip, seen in zip(flips, found, strict=True):
        try:
            if flip.is_of_records:
                verdict = check_records(whole, seen)
            else:
                verdict = check_block(flip, block_bytes, whole, seen)
        except AssertionError as wrong:
            raise AssertionError(f"{flip}, changed by {flip.change.hex()}: {wrong}") from None
        counts[f"changed bytes: {verdict}"] += 1
        shutil.rmtree(flip.volume)


def check_records(whole: Found, seen: Found | Refused) -> str:
    if isinstance(seen, Refused):
        return f"records refused, {seen.kind}"
    compare(whole, seen)
    return "records, all as it was"


def check_block(flip: Flip, block_bytes: int, whole: Found, seen: Found | Refused) -> str:
    assert isinstance(seen, Found), f"the volume is refused: {seen}"
    findings = fsck_findings(flip.volume)
    bad = {(path, kept, cell, at) for path, kept, cell, _, at in damaged_in(seen)}
    if not findings:
        assert not bad, f"fsck has found nothing, and these are not served: {bad}"
        compare(whole, seen)
        return "a free block, nothing found"
    assert len(findings) == 1, findings
    named = DAMAGED.fullmatch(findings[0])
    assert named is not None, findings
    server, place = f"server-{named['server']}/blocks-0", flip.start // block_bytes
    assert (server, int(named["place"])) == (flip.file, place), findings
    block = (named["path"], int(named["cell"]), int(named["block"]) * block_bytes)
    assert (block[0], bool(named["kept"]), *block[1:]) in bad, f"{findings}, served all the same"
    # A block may be of both versions, and is named once.
    assert {(path, cell, at) for path, _, cell, at in bad} == {block}, (findings, bad)
    compare(whole, seen, block_bytes)
    return "a block found, and not served"


def fsck_findings(volume: Path) -> list[str]:
    command = [sys.executable, "-m", "penstock", "fs", "fsck", str(volume), "--data", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1) and not done.stderr, done
    findings: list[str] = json.loads(done.stdout)["findings"]
    assert bool(findings) == done.returncode, done
    return findings


def cells_in(found: Found) -> Iterator[tuple[str, bool, int, Cell]]:
    """All cells: the path, whether it is one of the checkpoint, and its number."""
    for path, each in found.objects.items():
        for cell, data in enumerate(each.active):
            yield path, False, cell, data
        for cell, data in enumerate(each.kept or []):
            yield path, True, cell, data


def damaged_in(found: Found) -> Iterator[tuple[str, bool, int, Cell, int]]:
    for path, kept, cell, data in cells_in(found):
        for at in data.damaged:
            yield path, kept, cell, data, at


def plain(found: Found) -> dict[str, Object]:
    """All objects without their data."""
    objects = found.objects.items()
    return {path: dataclasses.replace(each, active=[], kept=None) for path, each in objects}


def space(found: Found) -> object:
    return found.used, found.of_users, found.quotas


def compare(whole: Found, seen: Found, block_bytes: int = 0) -> None:
    """All is as it was, but what is known to be damaged."""
    assert plain(whole) == plain(seen), "names or attributes have changed"
    assert space(whole) == space(seen), f"the space was {space(whole)}, and is {space(seen)}"
    for (path, kept, cell, known), (*_, data) in zip(cells_in(whole), cells_in(seen), strict=True):
        is_same = np.zeros(len(known.data), bool)
        end = min(len(known.data), len(data.data))
        is_same[:end] = known.data[:end] == data.data[:end]
        for at in data.damaged:
            is_same[at : at + block_bytes] = True
        version = " of the checkpoint" if kept else ""
        assert is_same.all() and len(data.data) <= len(known.data), (
            f"{path}: cell {cell}{version} has changed at byte {np.flatnonzero(~is_same)[:1]}"
        )
