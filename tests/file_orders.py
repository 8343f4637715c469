"""Histories of requests on one parallel file, and whether a file can have them.

Each write has a number, and puts into each byte a stamp of the number and of the byte's place in
the file, so that a read tells of each byte which write it has seen, or that it is a hole, or lies
beyond the end of its cell. Bytes that no request tells apart are one *atom*; the state of a file
is a number for each of its atoms, and the same for its checkpoint.

A request to several servers is one operation of the history: so a read that sees of two writes the
one on this server and the other on that one is found as well as what comes late.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from histories import NEVER, Request, check_elements, first_contents
from orders import Operation, check_order

HOLE = 0
"""Zeros before the end of a cell."""
ABSENT = 255
"""What is beyond the end of its cell: a read leaves it alone."""
EITHER = 254
"""One of these two: the read does not tell which."""
WORDS = {HOLE: "hole", ABSENT: "nothing", EITHER: "hole or nothing"}
NUMBERS = 253
"""Writes of one history have the numbers from 1 to this."""
CELL_BITS = 40
"""A place is the number of a cell above this number of bits for the offset in it."""

BYTES_MAX = 1_000_000
"""The most bytes of requests that are also checked one by one."""

State = tuple[bytes | None, bytes | None]
"""The numbers of the atoms: of the file until it is removed, and of its checkpoint if there is
one."""


def place_of(cell: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.asarray(cell << CELL_BITS | at)


def turned(places: np.ndarray) -> np.ndarray:
    """How far the stamps of each place are turned: bytes that come to a wrong place show it."""
    return np.asarray(places * 17 + (places >> 7) * 29 + (places >> CELL_BITS) * 59)


def stamps(number: int, places: np.ndarray) -> np.ndarray:
    """What a write puts into the bytes at some places: neither 0 nor `ABSENT`."""
    return (1 + (number - 1 + turned(places)) % NUMBERS).astype(np.uint8)


def numbers_of(found: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The number of the write that each byte is of."""
    assert not (found == EITHER).any(), "no write puts such a byte anywhere"
    numbers: np.ndarray = 1 + (found.astype(np.int64) - 1 - turned(places)) % NUMBERS
    numbers[found == HOLE] = HOLE
    numbers[found == ABSENT] = ABSENT
    return numbers


def all_places(requests: Sequence[Request]) -> np.ndarray:
    """The places of some requests, sorted, each once."""
    none = np.zeros(0, np.int64)
    places = np.sort(np.concatenate([none, *(each.places for each in requests)]))
    is_new = np.diff(places, prepend=-1) != 0
    return np.asarray(places[is_new])  # np.unique hashes, badly for such numbers


@dataclasses.dataclass(frozen=True)
class Access(Request):
    """A read or a write of a subfile. Its places are those of its real bytes."""

    opened: str = ""
    """What it was opened with, in words."""
    is_of_checkpoint: bool = False
    placed: int = NEVER
    """When the client was told that the request, which goes on, has its place before all later ones
    that are about the same bytes."""

    def __str__(self) -> str:
        edges = (np.diff(self.places) != 1) | (np.diff(self.numbers) != 0)
        starts = np.concatenate([[0], np.flatnonzero(edges) + 1, [len(self.places)]])
        pieces = []
        for start, end in itertools.pairwise(starts):
            cell, at = divmod(int(self.places[start]), 1 << CELL_BITS)
            number = int(self.numbers[start])
            pieces.append(f"cell {cell} {at}..{at + end - start}: {WORDS.get(number, number)}")
        what = "wrote" if self.is_write else "read"
        version = " of the checkpoint" if self.is_of_checkpoint else ""
        later = "" if self.placed == NEVER else f" (placed after {self.placed - self.begun})"
        return f"{self.who} {what}{version}{later} {self.opened}: {', '.join(pieces)}"


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of a whole file, or any request that has found that the file has been removed."""

    what: str
    who: str
    begun: int
    ended: int
    bytes: int = 0
    """The new bytes of each cell, if it is resized."""

    def __str__(self) -> str:
        return f"{self.who}: {self.what}{f' to {self.bytes}' if self.what == 'resize' else ''}"


CHANGES = ("checkpoint", "rollback", "resize", "remove")
REFUSALS = ("no checkpoint", "removed")


class Atoms:
    """The bytes of a file, put together where no request tells them apart.

    Each request, and each number that a read has found, turns the bits of its bytes by a random
    word of its own: bytes of the same bits are of the same requests.
    """

    def __init__(self, accesses: Sequence[Access], changes: Sequence[Change]) -> None:
        chance = np.random.default_rng(0)
        self.places = all_places(accesses)
        cells, self.cell_of = np.unique(self.places >> CELL_BITS, return_inverse=True)
        words = chance.integers(0, 1 << 63, len(cells))[self.cell_of]
        for access in accesses:
            by_number = chance.integers(0, 1 << 63, 256)
            words[np.searchsorted(self.places, access.places)] ^= by_number[access.numbers]
            if access.is_write:
                words[self.below(self.ends(access))] ^= chance.integers(0, 1 << 63)
        for change in changes:
            if change.what == "resize":
                words[self.below(change.bytes)] ^= chance.integers(0, 1 << 63)
        _, self.firsts, self.atom_of = np.unique(words, return_index=True, return_inverse=True)

    def ends(self, access: Access) -> np.ndarray:
        """The byte of its cell, of each byte of the file, that a write reaches up to."""
        ends = np.zeros(1 + self.cell_of.max(initial=0), np.int64)
        at = np.searchsorted(self.places, access.places)
        offsets = (access.places & ((1 << CELL_BITS) - 1)) + 1
        np.maximum.at(ends, self.cell_of[at], offsets)
        return np.asarray(ends[self.cell_of])

    def below(self, ends: np.ndarray | int) -> np.ndarray:
        """Whether each byte is before an end in its cell."""
        return np.asarray((self.places & ((1 << CELL_BITS) - 1)) < ends)

    def of(self, access: Access) -> tuple[np.ndarray, np.ndarray]:
        """The atoms of an access, and their numbers."""
        at = np.searchsorted(self.places, access.places)
        atoms, firsts = np.unique(self.atom_of[at], return_index=True)
        return atoms, access.numbers[firsts].astype(np.uint8)

    def those(self, is_one: np.ndarray) -> np.ndarray:
        """The atoms whose bytes are all such, or none of them."""
        return np.flatnonzero(is_one[self.firsts])

    def operation(self, request: Access | Change) -> Operation:
        if isinstance(request, Change):
            return Changed(request, self.those(self.below(request.bytes)))
        atoms, numbers = self.of(request)
        if request.is_write:
            return Written(request, atoms, numbers, self.those(self.below(self.ends(request))))
        return Read(request, atoms, numbers)


@dataclasses.dataclass
class Told:
    """What an operation has of its request."""

    request: Any
    """An `Access` or a `Change`."""
    atoms: np.ndarray
    """The atoms of its bytes; those before the new ends of cells, if it is a resize."""

    @property
    def begun(self) -> int:
        return int(self.request.begun)

    @property
    def ended(self) -> int:
        return int(self.request.ended)

    def precedes(self, other: Operation) -> bool:
        """Whether it had its place when the other, about the same bytes, was asked for."""
        assert isinstance(other, Told)
        mine, others = self.request, other.request
        if isinstance(mine, Change) or mine.placed >= other.begun:
            return False
        if isinstance(others, Change):
            return others.what in CHANGES
        if mine.is_of_checkpoint or others.is_of_checkpoint:
            return False
        is_write = mine.is_write or others.is_write
        return is_write and bool(np.isin(self.atoms, other.atoms).any())

    def __str__(self) -> str:
        return str(self.request)


def array_of(state: bytes) -> np.ndarray:
    return np.frombuffer(state, np.uint8)


def filled(state: bytes, below: np.ndarray) -> np.ndarray:
    """A file whose cells have grown up to an end, and have these atoms before it: those that are
    new are zero."""
    numbers = array_of(state).copy()
    numbers[below[numbers[below] == ABSENT]] = HOLE
    return numbers


@dataclasses.dataclass
class Written(Told):
    numbers: np.ndarray
    below: np.ndarray
    """The atoms before the end of the write in its cells."""
    is_change = True

    def apply(self, state: State) -> State | None:
        active, kept = state
        if active is None:
            return None
        numbers = filled(active, self.below)
        numbers[self.atoms] = self.numbers
        return numbers.tobytes(), kept


@dataclasses.dataclass
class Read(Told):
    numbers: np.ndarray
    is_change = False

    def __post_init__(self) -> None:
        self.is_loose = bool((self.numbers == EITHER).any())

    def apply(self, state: State) -> State | None:
        active, kept = state
        if active is None:
            return None
        version = kept if self.request.is_of_checkpoint else active
        seen = np.full(len(self.atoms), ABSENT, np.uint8)
        if version is not None:
            seen = array_of(version)[self.atoms]
        fits = seen == self.numbers
        if self.is_loose:
            fits |= (self.numbers == EITHER) & ((seen == HOLE) | (seen == ABSENT))
        return state if fits.all() else None


@dataclasses.dataclass
class Changed(Told):
    @property
    def is_change(self) -> bool:
        return self.request.what in CHANGES

    def apply(self, state: State) -> State | None:
        active, kept = state
        what = self.request.what
        if what == "removed":
            return state if active is None else None
        if what == "no checkpoint":
            return state if active is not None and kept is None else None
        if active is None or (what == "rollback" and kept is None):
            return None
        if what == "resize":
            grown = filled(active, self.atoms)
            numbers = np.full(len(active), ABSENT, np.uint8)
            numbers[self.atoms] = grown[self.atoms]
            return numbers.tobytes(), kept
        return {"checkpoint": (active, active), "rollback": (kept, kept), "remove": (None, kept)}[
            what
        ]


class Needs:
    """What reads are yet to find: a state that has lost some of it for good has no future.

    The number of a write that has been done is lost where neither the file has it nor, as long as
    rollbacks are to come, the checkpoint; holes are lost in the same way when no resize is to come.
    So of two writes that have no other order the one that is read later comes last.
    """

    def __init__(self, operations: Sequence[Operation], until: int) -> None:
        writer_of = np.full(256, -1)  # nobody's
        reads: list[tuple[int, Read]] = []
        for nth, operation in enumerate(operations):
            if isinstance(operation, Written) and len(operation.numbers):
                writer_of[operation.numbers[0]] = nth
            elif isinstance(operation, Read) and operation.ended <= until:
                reads.append((nth, operation))
        none, counts = np.zeros(0, np.int64), [len(read.atoms) for _, read in reads]
        self.atoms = np.concatenate([none, *(read.atoms for _, read in reads)])
        self.numbers = np.concatenate([none, *(read.numbers for _, read in reads)])
        self.reader = np.repeat(np.array([nth for nth, _ in reads], np.int64), counts)
        of_checkpoint = [read.request.is_of_checkpoint for _, read in reads]
        self.is_of_checkpoint = np.repeat(np.array(of_checkpoint, bool), counts)
        self.is_blank = is_blank(self.numbers)
        self.writer = writer_of[self.numbers]
        self.count = len(operations)
        self.changes = dict.fromkeys(CHANGES, 0)
        for nth, operation in enumerate(operations):
            if isinstance(operation, Changed) and operation.is_change:
                self.changes[operation.request.what] |= 1 << nth

    def __call__(self, done: int, state: State) -> bool:
        active, kept = state
        if active is None:
            return False
        comes = {what: bool(of_kind & ~done) for what, of_kind in self.changes.items()}
        bits = np.frombuffer(done.to_bytes(self.count // 8 + 1, "little"), np.uint8)
        is_done = np.unpackbits(bits, bitorder="little").astype(bool)
        has, kept_has = self.found(active), self.found(kept or bytes([ABSENT]) * len(active))
        both = has | kept_has
        if comes["rollback"]:
            has = both
        if comes["checkpoint"]:
            kept_has = both
        has = np.where(self.is_of_checkpoint, kept_has, has)
        is_known = np.where(self.is_blank, not comes["resize"], is_done[self.writer])
        is_known &= self.is_blank | (self.writer >= 0)
        return bool((is_known & ~is_done[self.reader] & ~has).any())

    def found(self, version: bytes) -> np.ndarray:
        """Whether each read would find what it needs: holes may yet come where there is nothing."""
        numbers = array_of(version)[self.atoms]
        return np.asarray((numbers == self.numbers) | (self.is_blank & is_blank(numbers)))


def is_blank(numbers: np.ndarray) -> np.ndarray:
    return np.asarray((numbers == HOLE) | (numbers >= EITHER))


def check_bytes(accesses: Sequence[Access]) -> None:
    """Checks each byte by itself, where the file was only read and written. Errors are short."""
    if not accesses:
        return
    places = all_places(accesses)
    first = first_contents(np.zeros(len(places), np.int64))
    requests: list[Request] = [dataclasses.replace(first, places=places)]
    for access in accesses:
        numbers = np.where(access.numbers >= EITHER, HOLE, access.numbers)
        requests.append(dataclasses.replace(access, numbers=numbers))
    check_elements(requests)


def check_file(accesses: Sequence[Access], changes: Sequence[Change]) -> None:
    """Checks that the history of a file, which was empty at first, is linearisable."""
    is_plain = not changes and not any(each.is_of_checkpoint for each in accesses)
    if is_plain and sum(len(each.places) for each in accesses) <= BYTES_MAX:
        check_bytes(accesses)
    atoms = Atoms(accesses, changes)
    start: State = (bytes([ABSENT]) * len(atoms.firsts), None)
    requests: list[Access | Change] = [*accesses, *changes]
    check_order(start, [atoms.operation(each) for each in requests], Needs)
