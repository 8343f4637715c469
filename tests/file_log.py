"""A log that several clients append to, and follow, through shared pointers.

Each append takes the next place, and each read by the other pointer, too. So at the end every
record is there once, whole, and none comes before one that was appended before it began.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Record:
    """A record that was appended, read by one who follows, or found at the end."""

    what: str
    """`appended`, `read` or `found`."""
    who: str
    begun: int
    ended: int
    number: int
    """0 for a read that came before the record."""
    data: bytes


def record_bytes(number: int, count: int) -> bytes:
    """The bytes of a record: the first is its number, and none is 0."""
    return bytes(1 + (number - 1 + 7 * nth) % 255 for nth in range(count))


def check_log(records: Sequence[Record]) -> None:
    """Checks what was appended, read and found."""
    appended = {each.number: each for each in records if each.what == "appended"}
    found = [each for each in records if each.what == "found"]
    read = [each for each in records if each.what == "read"]
    for each in [*found, *read]:
        if any(each.data):
            whole = record_bytes(each.number, len(each.data))
            assert each.data == whole, f"{each} is torn"
            assert each.number in appended, f"nobody has appended {each}"
    numbers = [each.number for each in found]
    assert sorted(numbers) == sorted(appended), "each record is in the log once"
    check_times([appended[number] for number in numbers])
    seen = [each for each in read if any(each.data)]
    assert len({each.number for each in seen}) == len(seen), "a record was read twice"
    for each in seen:
        assert each.ended >= appended[each.number].begun, f"{each} came before its append"
    check_times(sorted(seen, key=lambda each: numbers.index(each.number)))


def check_times(records: Sequence[Record]) -> None:
    """Checks that no record has a place before one that had ended when it began."""
    latest = 0
    for each in records:
        assert each.ended >= latest, f"{each} has a place behind one that came later"
        latest = max(latest, each.begun)
