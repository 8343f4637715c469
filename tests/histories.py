"""Histories of requests on one array, and whether an array can have them.

A request is a read or a write of some elements, between two moments of a clock that is common to
all who make requests. Every write puts a number of its own into each of its elements, so that a
read tells of each element which write it has seen.

An array is *linearisable* if each request on an element takes effect at one moment between its
begin and its end. Whether that may have been so is decided element by element (Gibbons and Korach
1997). The requests that have seen one number, the write of the number among them, are a cluster.
Let `first` be the moment when the first of the cluster has ended, and `last` when the last one
begins. With `first < last` the element had the number from the one to the other at least: the
cluster is a span. Otherwise there is a moment at which all of the cluster were under way.

```text
write 7    |-----|                      span of 7: from first to last
read 7               |----|
           .     first   last

write 8          |---------|            all under way from last to first
read 8              |----------|
```

The history is possible if no read ends before the write that it has seen begins, no two spans have
a moment in common, and no cluster that was under way all at once was so within a span alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

NEVER = 2**62
"""The end of a request whose end nobody has seen."""
BEFORE = -1
"""When the first contents of an array were written."""


class ImpossibleHistory(AssertionError):
    """No array has this history."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A request on the elements at some places, in row-major order of the array."""

    is_write: bool
    who: str
    begun: int
    ended: int
    places: np.ndarray
    numbers: np.ndarray
    """The number of each element: what was written, or what the read has found."""
    is_alone: bool = True
    """Whether it is a request of one rank; collective ones come block by block from many."""

    def __str__(self) -> str:
        what = "wrote" if self.is_write else "read"
        ended = "never" if self.ended == NEVER else self.ended
        return f"{self.who} {what} {len(self.places)} elements, {self.begun} to {ended}"


def first_contents(numbers: np.ndarray) -> Request:
    """The write of what an array held at the beginning."""
    numbers = numbers.reshape(-1)
    return Request(True, "at first,", BEFORE, BEFORE, np.arange(len(numbers)), numbers)


def requests_on(place: int, requests: Sequence[Request]) -> str:
    """All requests on one element, in the order in which they began, for a person."""
    lines = []
    for request in sorted(requests, key=lambda request: request.begun):
        for number in request.numbers[request.places == place]:
            lines.append(f"  {number}: {request}")
    return f"element {place}:\n" + "\n".join(lines)


def check_elements(requests: Sequence[Request]) -> None:
    """Checks that the history of each element is linearisable.

    A write whose end nobody has seen may have happened, or not.
    """
    requests = [request for request in requests if len(request.places)]
    repeated = [len(request.places) for request in requests]
    place = np.concatenate([request.places for request in requests])
    number = np.concatenate([request.numbers for request in requests])
    begun = np.repeat([request.begun for request in requests], repeated)
    ended = np.repeat([request.ended for request in requests], repeated)
    is_write = np.repeat([request.is_write for request in requests], repeated)

    order = np.lexsort((~is_write, number, place))  # of each cluster, the write first
    place, number, begun, ended, is_write = (
        column[order] for column in (place, number, begun, ended, is_write)
    )
    is_new = (np.diff(place, prepend=-1) != 0) | (np.diff(number, prepend=number[0]) != 0)
    starts = np.flatnonzero(is_new)

    def fail(where: np.ndarray, why: str) -> None:
        if where.any():
            at = int(np.flatnonzero(where)[0])
            words = f"element {place_of[at]} had {number_of[at]}, {why}"
            raise ImpossibleHistory(f"{words}\n{requests_on(int(place_of[at]), requests)}")

    place_of, number_of = place[starts], number[starts]
    fail(~is_write[starts], "which nobody had written")
    begin_of_write = np.repeat(begun[starts], np.diff(starts, append=len(place)))
    early = ~is_write & (ended < begin_of_write)
    fail(np.logical_or.reduceat(early, starts), "which was read before its write began")
    first, last = np.minimum.reduceat(ended, starts), np.maximum.reduceat(begun, starts)
    check_spans(place_of, first, last, fail)


def check_spans(place: np.ndarray, first: np.ndarray, last: np.ndarray, fail) -> None:
    """Checks the clusters of all elements against each other."""
    is_span = first < last
    # In the order in which they begin; at equal moments a span comes after what is no span, for it
    # holds only what comes after its first moment.
    order = np.lexsort((is_span, np.minimum(first, last), place))
    place, first, last, is_span = place[order], first[order], last[order], is_span[order]
    # The newest span before each cluster. Of spans that do not meet, the newest is the last to end.
    spans = np.where(is_span, np.arange(len(place)), -1)
    newest = np.concatenate([[-1], np.maximum.accumulate(spans)[:-1]])
    has_one = (newest >= 0) & (place[newest] == place)
    is_wrong = np.zeros(len(place), bool)
    is_wrong[order] = has_one & (first < last[newest])
    fail(is_wrong, "but another number at a moment at which it had this one")


def check_blocks(requests: Sequence[Request], block: np.ndarray) -> None:
    """Checks that elements of one block come and go at one moment: a read that has seen two writes
    in a block has not seen now the one and now the other where both have written.

    The first of the requests is that of the first contents, and `block` names the block of each
    element. What a number says of a write that is in no history is left to `check_elements`.
    """
    covers = [np.ones(len(block), bool)]
    writes: dict[int, int] = {}
    for request in requests[1:]:
        if request.is_write and len(request.places):
            writes[int(request.numbers[0])] = len(covers)
            covers.append(np.zeros(len(block), bool))
            covers[-1][request.places] = True
    for request in requests:
        if request.is_write or not request.is_alone:
            continue
        seen = np.array([writes.get(number, 0) for number in request.numbers.tolist()], int)
        names = block[request.places]
        for name in np.unique(names):
            places, of_block = request.places[names == name], seen[names == name]
            for one, other in itertools.combinations(np.unique(of_block), 2):
                found = of_block[covers[one][places] & covers[other][places]]
                if (found == one).any() and (found == other).any():
                    numbers = request.numbers[names == name]
                    words = f"{request}, and saw of block {name} a mixture"
                    raise ImpossibleHistory(f"{words}: {dict(zip(places, numbers, strict=True))}")
