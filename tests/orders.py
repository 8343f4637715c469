"""Whether some order explains what several clients have seen.

An operation is something that a client has done between two moments of a clock that is common to
all. It says what it makes of a state, or that its result does not fit there. A history is
*linearisable* if there is an order of all operations in which none comes before one that had ended
when it began, and in which every result fits (Herlihy and Wing 1990).

The search goes from the first state on, operation by operation, and forgets no state that it has
seen (Lowe 2017). What changes nothing is taken as soon as it fits: to take it earlier harms
nobody. So only changes that were under way at the same time give a choice:

```text
A writes 1  |---------|              A, B: then C fits at once, and D does not: back to the choice
B writes 2      |---------|          B, A: C does not fit
C reads 2             |----|
D reads 1                     |---|  so this history is impossible
```
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol

from histories import NEVER, ImpossibleHistory

STATES_MAX = 50_000
"""The states after which the search gives up: seconds."""


class Undecided(Exception):
    """The search has taken too long."""


class Operation(Protocol):
    """What a client has done: its text says who, and what came of it."""

    @property
    def begun(self) -> int:
        """When the client asked for it."""

    @property
    def ended(self) -> int:
        """When the client heard of its end."""

    @property
    def is_change(self) -> bool:
        """Whether the state may be another one after it."""

    def precedes(self, other: Operation) -> bool:
        """Whether it comes before another one although it had not ended when that began."""

    def apply(self, state: Any) -> Any:
        """The state after it; `None` if it cannot have happened there with its result."""


Outlook = Callable[[int, Any], bool]
"""Whether a state has no future after some operations: it only saves time."""


class Search:
    """Operations in the order in which they began, and which of them have been taken.

    Where `until` is a moment, what had not ended then may have happened or not, and what had not
    begun then has not.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        until: int,
        outlook: Callable[[Sequence[Operation], int], Outlook] | None,
    ) -> None:
        begun = [operation for operation in operations if operation.begun <= until]
        self.operations = sorted(begun, key=lambda operation: operation.begun)
        ended = (nth for nth, each in enumerate(self.operations) if each.ended <= until)
        self.required = sum(1 << nth for nth in ended)
        self.before = [self.those_before(nth) for nth in range(len(self.operations))]
        self.until = until
        self.is_hopeless = outlook(self.operations, until) if outlook else lambda done, state: False

    def those_before(self, nth: int) -> int:
        """The operations under way that come before one."""
        one = self.operations[nth]
        others = enumerate(self.operations[:nth])
        return sum(
            1 << place
            for place, other in others
            if other.ended >= one.begun and other.precedes(one)
        )

    def next(self, done: int) -> Iterator[int]:
        """Those that no other must come before."""
        first_end = NEVER
        nth = (~done & (done + 1)).bit_length() - 1  # the first that is left
        for place in range(nth, len(self.operations)):
            if done >> place & 1:
                continue
            operation = self.operations[place]
            if operation.begun > first_end:
                return
            first_end = min(first_end, operation.ended)
            if not self.before[place] & ~done:
                yield place

    def take_what_fits(self, done: int, state: Hashable) -> int:
        """Takes all that changes nothing, and fits."""
        before = -1
        while before != done:
            before = done
            for nth in self.next(done):
                operation = self.operations[nth]
                if operation.is_change or done >> nth & 1:
                    continue
                if operation.ended > self.until or operation.apply(state) is not None:
                    done |= 1 << nth
        return done

    def has_order(self, start: Hashable) -> bool:
        waiting, seen = [(0, start)], set()
        while waiting:
            done, state = waiting.pop()
            done = self.take_what_fits(done, state)
            if done & self.required == self.required:
                return True
            # Those that ended first are tried first: they are the last to be pushed.
            for nth in sorted(self.next(done), key=lambda nth: -self.operations[nth].ended):
                operation = self.operations[nth]
                state_after = operation.apply(state) if operation.is_change else None
                after = (done | 1 << nth, state_after)
                if state_after is not None and after not in seen:
                    seen.add(after)
                    if not self.is_hopeless(*after):
                        waiting.append(after)
            if len(seen) > STATES_MAX:
                raise Undecided(f"{len(seen)} states")
        return False


def check_order(
    start: Hashable,
    operations: Sequence[Operation],
    outlook: Callable[[Sequence[Operation], int], Outlook] | None = None,
) -> None:
    """Checks that a history is linearisable. If not, the error tells of all that had begun when the
    first operation ended that no order explains.

    `outlook` makes of the operations, and of the moment after which nothing is known, what tells
    that a state has no future.
    """

    def has_order(until: int) -> bool:
        return Search(operations, until, outlook).has_order(start)

    if has_order(NEVER):
        return
    ends = sorted({operation.ended for operation in operations})
    low, high = 0, len(ends) - 1  # a history that is possible stays so when its end is cut off
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if has_order(ends[middle]) else (low, middle)
    begun = [operation for operation in operations if operation.begun <= ends[low]]
    told = sorted(begun, key=lambda operation: operation.begun)
    first = told[0].begun
    lines = [f"  {each.begun - first} to {each.ended - first}: {each}" for each in told]
    words = f"no order explains what had ended at {ends[low] - first}"
    raise ImpossibleHistory(f"{words}:\n" + "\n".join(lines))
