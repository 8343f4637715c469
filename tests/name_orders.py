"""Histories of requests on names, and whether a volume can have them.

The state has each path with what is there: whether it is a directory, a number that tells objects
apart, and the permission bits. A request that has failed must have had a reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orders import Operation, check_order

State = frozenset[tuple[str, tuple[bool, int, int]]]
"""Each path, with whether it is a directory, its number, and its permission bits."""

ROOT = "/names"
"""The directory of all these names, which stays."""


@dataclasses.dataclass(frozen=True)
class NameRequest:
    """A request on names, and what came of it: what it has found, or the kind of its error."""

    what: str
    """`create`, `mkdir`, `remove`, `rename`, `chmod`, `stat` or `list`."""
    who: str
    begun: int
    ended: int
    path: str
    new: str = ""
    """The new path."""
    number: int = 0
    """Of what is made."""
    mode: int = 0
    found: object = None
    """What `stat` or `list` has found."""
    error: str = ""
    """The kind of the error."""

    def __str__(self) -> str:
        words = [self.what, self.path, self.new, self.number or "", oct(self.mode)]
        end = f": {self.error or self.found}"
        return f"{self.who}: {' '.join(str(word) for word in words if word)}{end}"

    def precedes(self, other: Operation) -> bool:
        return False

    @property
    def is_change(self) -> bool:
        return not self.error and self.what not in ("stat", "list")

    def apply(self, state: State) -> State | None:
        objects = dict(state)
        reasons = self.reasons(objects)
        if self.error:
            return state if self.error in reasons else None
        if reasons:
            return None
        if self.what == "stat":
            return state if objects[self.path] == self.found else None
        if self.what == "list":
            return state if entries_of(objects, self.path) == self.found else None
        if self.what in ("create", "mkdir"):
            objects[self.path] = (self.what == "mkdir", self.number, self.mode)
        elif self.what == "remove":
            del objects[self.path]
        elif self.what == "chmod":
            objects[self.path] = (*objects[self.path][:2], self.mode)
        else:
            moved = [p for p in objects if p == self.path or p.startswith(f"{self.path}/")]
            with_them = {self.new + p[len(self.path) :]: objects.pop(p) for p in moved}
            objects.update(with_them)
        return frozenset(objects.items())

    def reasons(self, objects: dict[str, tuple[bool, int, int]]) -> set[str]:
        """The kinds of error that the request may end with."""
        if self.what in ("create", "mkdir"):
            return reasons_against(objects, self.path)
        if self.what == "rename" and self.new.startswith(f"{self.path}/"):
            return {"Schema"}
        if self.path not in objects:
            return {"Missing"}
        is_directory = objects[self.path][0]
        if self.what == "remove" and is_directory and entries_of(objects, self.path):
            return {"Exists"}
        if self.what == "list" and not is_directory:
            return {"Schema"}
        if self.what == "rename" and self.new != self.path:
            return reasons_against(objects, self.new)
        return set()


def reasons_against(objects: dict[str, tuple[bool, int, int]], path: str) -> set[str]:
    """The kinds of error of a request that puts something at a path."""
    parent = objects.get(path.rpartition("/")[0])
    if parent is None:
        return {"Missing"}
    if not parent[0]:
        return {"Schema"}
    return {"Exists"} if path in objects else set()


def entries_of(objects: dict[str, tuple[bool, int, int]], path: str) -> list[str]:
    """The names in a directory; those of directories end with a slash."""
    below = [p for p in objects if p.rpartition("/")[0] == path]
    names = sorted(below)
    return [f"{p.rpartition('/')[2]}{'/' if objects[p][0] else ''}" for p in names]


def check_names(requests: Sequence[NameRequest]) -> None:
    """Checks that the history of the names in a directory, empty at first, is linearisable."""
    check_order(frozenset({(ROOT, (True, 0, 0))}), requests)
