"""What is known of the files of a volume by the logs of the jobs that use it, and whether what is
found after a crash can be.

`Tree` knows the files of one worker, whose operations come one after the other: it has been done or
not been done what was under way, all of it or nothing. A byte of a file is the one that was saved,
or one that somebody began to write after that. A checkpoint is known exactly.

`Shared` knows the file that all write. There a byte may be of each write that no saved one has come
after, and a checkpoint is a read of the whole file at one moment: the history must be linearisable,
see `histories.py`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from file_job import BSU, CELLS, FILE, ROWS, WORD, content, moved_path, numbers_in
from file_look import Bytes, Cell, Object
from file_places import places_of
from histories import (
    BEFORE,
    Request,
    check_blocks,
    check_elements,
    first_contents,
    requests_on,
)
from open_job import Record

import penstock as ps

Places = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Bytes]
"""The cells, the places in them, and the bytes of a write."""
DIRECTORY_MODE, FILE_MODE = 0o755, 0o644


def written(cells: int, bsu: int, record: Record) -> Iterator[Places]:
    """Where the pieces of a write go, and what they write. Ghost cells are left out."""
    opened = (ps.View(*record["view"]), record["subfile"], record["order"])
    for offset, count, number in record["pieces"]:
        cell, at = places_of((cells, bsu), opened, offset, count)
        is_real = cell < cells
        yield cell[is_real], at[is_real], content(number, count)[is_real]


def of_length(data: Bytes, count: int) -> Bytes:
    """A cell that is cut, or grows by zeros."""
    return np.concatenate([data[:count], np.zeros(max(0, count - len(data)), np.uint8)])


class Wrong(AssertionError):
    """What is found cannot be."""


@dataclasses.dataclass
class File:
    """A file of one worker."""

    cells: int
    bsu: int
    owner: int
    safe: list[Bytes] = dataclasses.field(default_factory=list)
    """The cells as they were saved last."""
    now: list[Bytes] = dataclasses.field(default_factory=list)
    since: list[Places] = dataclasses.field(default_factory=list)
    """What was written, or was being written, since then."""
    kept: list[Bytes] | None = None
    checkpoints: int = 0
    mode: int = FILE_MODE

    def __post_init__(self) -> None:
        self.now = self.now or [np.zeros(0, np.uint8)] * self.cells
        self.save()

    def save(self) -> None:
        self.safe, self.since = [cell.copy() for cell in self.now], []

    def write(self, record: Record, has_ended: bool) -> None:
        for places in written(self.cells, self.bsu, record):
            self.since.append(places)
            cells, at, data = places
            for cell in np.unique(cells) if has_ended else ():
                here = cells == cell
                end = max(len(self.now[cell]), int(at[here].max()) + 1)
                self.now[cell] = of_length(self.now[cell], end)
                self.now[cell][at[here]] = data[here]

    def check(self, found: Object) -> None:
        """Raises if the file cannot be as it was found."""
        told = (found.is_directory, found.shape, found.owner, found.mode, found.checkpoints)
        known = (False, (self.cells, self.bsu), self.owner, self.mode, self.checkpoints)
        if told != known:
            raise Wrong(f"its attributes are {told}, and should be {known}")
        for cell, (kept, cell_found) in enumerate(
            zip(self.kept or [], found.kept or [], strict=True)
        ):
            if not np.array_equal(kept, cell_found.data):
                words = first_difference(kept, cell_found.data)
                raise Wrong(f"cell {cell} of the checkpoint: {words}")
        for cell, (safe, cell_found) in enumerate(zip(self.safe, found.active, strict=True)):
            self.check_cell(cell, safe, cell_found.data)

    def check_cell(self, cell: int, safe: Bytes, data: Bytes) -> None:
        here = [(at[cells == cell], bytes_[cells == cell]) for cells, at, bytes_ in self.since]
        longest = max([len(safe), *(int(at.max()) + 1 for at, _ in here if len(at))])
        if not len(safe) <= len(data) <= longest:
            raise Wrong(f"cell {cell} has {len(data)} bytes, not {len(safe)} to {longest}")
        saved = of_length(safe, len(data))
        may_be = data == saved
        for at, bytes_ in here:
            at, bytes_ = at[at < len(data)], bytes_[at < len(data)]
            may_be[at] |= data[at] == bytes_
        if not may_be.all():
            at_first = int(np.flatnonzero(~may_be)[0])
            later = [int(byte) for at, bytes_ in here for byte in bytes_[at == at_first]]
            raise Wrong(
                f"cell {cell}: {(~may_be).sum()} bytes of {len(data)} are of no write; byte "
                f"{at_first} is {data[at_first]}, {saved[at_first]} was saved, and since then "
                f"{later} was written"
            )

    def adopt(self, found: Object) -> None:
        """From now on the file is as it was found."""
        self.now = [cell.data for cell in found.active]
        self.save()


def first_difference(known: Bytes, found: Bytes) -> str:
    if len(known) != len(found):
        return f"{len(found)} bytes, not {len(known)}"
    at = int(np.flatnonzero(known != found)[0])
    return f"byte {at} is {found[at]}, not {known[at]}; {(known != found).sum()} bytes differ"


@dataclasses.dataclass
class Tree:
    """The objects of one worker by their paths; of a directory only its mode is kept."""

    user: int
    objects: dict[str, File | int] = dataclasses.field(default_factory=dict)
    quotas: dict[int, int | None] = dataclasses.field(default_factory=dict)

    def file(self, record: Record) -> File:
        found = self.objects[record["path"]]
        assert isinstance(found, File)
        return found

    def begin(self, record: Record) -> None:
        """Notes what is under way, and may leave something of it behind."""
        if record["op"] == "write":
            self.file(record).write(record, has_ended=False)

    def end(self, record: Record) -> None:
        """Does an operation."""
        op, path = record["op"], record.get("path")
        if op == "mkdir":
            self.objects[str(path)] = DIRECTORY_MODE
        elif op == "create":
            self.objects[str(path)] = File(record["cells"], record["bsu"], self.user)
        elif op == "remove":
            del self.objects[str(path)]
        elif op == "rename":
            new = record["new"]
            self.objects = {moved_path(p, str(path), new): o for p, o in self.objects.items()}
        elif op == "chmod":
            found = self.objects[str(path)]
            if isinstance(found, File):
                found.mode = record["mode"]
            else:
                self.objects[str(path)] = record["mode"]
        elif op == "quota":
            self.quotas[record["user"]] = record["limit"]
        elif op == "sync_all":
            for each in self.objects.values():
                if isinstance(each, File):
                    each.save()
        else:
            self.change(op, self.file(record), record)

    def change(self, op: str, file: File, record: Record) -> None:
        if op == "write":
            return file.write(record, has_ended=True)
        if op == "chown":
            file.owner = record["user"]
            return None
        if op == "checkpoint":
            file.kept, file.checkpoints = [cell.copy() for cell in file.now], file.checkpoints + 1
        elif op == "rollback":
            assert file.kept is not None
            file.now = [cell.copy() for cell in file.kept]
        elif op == "resize":
            file.now = [of_length(cell, record["count"]) for cell in file.now]
        else:
            assert op == "sync", op
        return file.save()

    def play(self, records: Sequence[Record]) -> Record | None:
        """Does all that a log says has ended. Gives the operation that has not."""
        under_way = None
        for record, ended in operations(records):
            if not is_shared(record):
                if ended is None:
                    under_way = record
                else:
                    self.end(record)
        return under_way

    def settle(self, under_way: Record | None, found: dict[str, Object], quotas: Any) -> bool:
        """Checks what was found, and takes it for what is known from now on. Gives whether the
        operation under way has been done."""
        before, reasons = self, []
        possible = [(False, before)]
        if under_way is not None:
            after = copy.deepcopy(self)
            before.begin(under_way)
            if under_way["op"] not in ("write", "sync", "sync_all"):
                after.end(under_way)
                possible.append((True, after))
        for is_done, tree in possible:
            try:
                tree.check(found, quotas)
            except Wrong as wrong:
                reasons.append(f"\n  if it was {'' if is_done else 'not '}done: {wrong}")
                continue
            self.objects, self.quotas = tree.objects, tree.quotas
            for path, known in self.objects.items():
                if isinstance(known, File):
                    known.adopt(found[path])
            return is_done
        raise Wrong(f"nothing explains what is there; under way: {under_way}{''.join(reasons)}")

    def check(self, found: dict[str, Object], quotas: dict[int, int | None]) -> None:
        if found.keys() != self.objects.keys():
            raise Wrong(
                f"missing {sorted(self.objects.keys() - found.keys())}, and there are "
                f"{sorted(found.keys() - self.objects.keys())}"
            )
        for path, known in self.objects.items():
            try:
                if isinstance(known, File):
                    known.check(found[path])
                elif (found[path].is_directory, found[path].mode) != (True, known):
                    raise Wrong(f"it is no directory of mode {known:o}: {found[path]}")
            except Wrong as wrong:
                raise Wrong(f"{path}: {wrong}") from None
        for user, limit in self.quotas.items():
            if quotas[user] != limit:
                raise Wrong(f"user {user} may have {quotas[user]} bytes, not {limit}")


def is_shared(record: Record) -> bool:
    return record.get("path") == FILE


CELL_WORDS = ROWS * BSU // WORD
ALL_WORDS = np.arange(CELLS * CELL_WORDS)


def operations(log: Sequence[Record]) -> Iterator[tuple[Record, int | None]]:
    """The operations of a worker, and when each has ended, if it has."""
    begun = None
    for record in log:
        if record["what"] == "begin":
            begun = record
        elif record["what"] == "end" and begun is not None:
            yield begun, record["time"]
            begun = None
    if begun is not None:
        yield begun, None


@dataclasses.dataclass
class Write:
    """A write of words of the shared file."""

    request: Request
    has_ended: bool
    words: np.ndarray[Any, np.dtype[np.uint64]]


def writes_of(log: Sequence[Record], who: str, died: int) -> Iterator[Write]:
    for record, ended in operations(log):
        if not is_shared(record) or record["op"] != "write":
            continue
        for cells, at, data in written(CELLS, BSU, record):
            places = (cells * CELL_WORDS + at // WORD)[::WORD]
            words = data.view(np.uint64)
            when = (record["time"], died if ended is None else ended)
            request = Request(True, who, *when, places, numbers_in(words))
            yield Write(request, ended is not None, words)


def words_of(cells: Sequence[Cell]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.concatenate([cell.data for cell in cells]).view(np.uint64)


@dataclasses.dataclass
class Shared:
    """The file that all workers write: its words, cell after cell."""

    words: np.ndarray[Any, np.dtype[np.uint64]]
    kept: np.ndarray[Any, np.dtype[np.uint64]] | None = None
    checkpoints: int = 0

    def settle(self, logs: Sequence[Sequence[Record]], died: int, found: Object) -> int:
        """Checks what was found after a job that has ended by a certain moment, and takes it for
        what is known from now on. Gives the number of writes."""
        writes = [
            write
            for worker, log in enumerate(logs)
            for write in writes_of(log, f"worker {worker}", died)
        ]
        saved = [BEFORE]
        checkpoints = []
        for log in logs:
            for record, ended in operations(log):
                is_checkpoint = is_shared(record) and record["op"] == "checkpoint"
                is_sync = is_shared(record) and record["op"] == "sync"
                if is_checkpoint:
                    checkpoints.append((record["time"], ended))
                if ended and (is_checkpoint or is_sync or record["op"] == "sync_all"):
                    saved.append(record["time"])
            if log and log[-1]["what"] == "closed":
                saved.append(log[-1]["time"])
        words = words_of(found.active)
        self.check_active(words, writes, max(saved))
        kept = None if found.kept is None else words_of(found.kept)
        new = found.checkpoints - self.checkpoints
        ended = sum(end is not None for _, end in checkpoints)
        if not ended <= new <= len(checkpoints):
            raise Wrong(f"{FILE}: {new} new checkpoints, of {len(checkpoints)} {ended} had ended")
        if new == 0:
            is_same = kept is None if self.kept is None else np.array_equal(self.kept, kept)  # type: ignore[arg-type]
            if not is_same:
                raise Wrong(f"{FILE}: the checkpoint has changed, and none was made")
        else:
            assert kept is not None
            begun, end = checkpoints[new - 1]
            self.check_kept(kept, writes, begun, died if end is None else end)
        self.words, self.kept, self.checkpoints = words, kept, found.checkpoints
        return len(writes)

    def check_active(self, words: np.ndarray[Any, Any], writes: list[Write], saved: int) -> None:
        """`saved` is when the last save began that has ended. No word is of a write that one has
        come after which had ended before that."""
        if len(words) != len(ALL_WORDS):
            raise Wrong(f"{FILE}: it has {len(words)} words, not {len(ALL_WORDS)}")
        newest = np.full(len(words), BEFORE)
        for write in writes:
            if write.has_ended and write.request.ended < saved:
                places = write.request.places
                newest[places] = np.maximum(newest[places], write.request.begun)
        may_be = (words == self.words) & (newest == BEFORE)
        for write in writes:
            places = write.request.places
            is_last = write.request.ended >= newest[places]
            may_be[places] |= is_last & (words[places] == write.words)
        self.refuse(~may_be, words, writes, f"the last save began at {saved}")

    def check_kept(
        self, words: np.ndarray[Any, Any], writes: list[Write], begun: int, ended: int
    ) -> None:
        """A checkpoint that was made between two moments is the file at one of them."""
        may_be = words == self.words
        for write in writes:
            may_be[write.request.places] |= words[write.request.places] == write.words
        self.refuse(~may_be, words, writes, "in the checkpoint")
        first = first_contents(numbers_in(self.words))
        read = Request(False, "the checkpoint", begun, ended, ALL_WORDS, numbers_in(words))
        requests = [first, *(write.request for write in writes), read]
        check_elements(requests)
        check_blocks(requests, np.zeros(len(words), np.int64))

    def refuse(
        self,
        is_wrong: np.ndarray[Any, Any],
        words: np.ndarray[Any, Any],
        writes: list[Write],
        why: str,
    ) -> None:
        if is_wrong.any():
            place = int(np.flatnonzero(is_wrong)[0])
            number = int(numbers_in(words[place : place + 1])[0])
            history = requests_on(place, [write.request for write in writes])
            raise Wrong(
                f"{FILE}: {is_wrong.sum()} words are wrong, {why}. The first is of write {number}."
                f"\n{history}"
            )
