"""Lists of elements: what a rank holds of an array where no distribution and no box says it."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock import _core
from penstock._errors import schema_error, shown, type_name

Numbers: TypeAlias = SupportsIndex | Iterable[SupportsIndex] | npt.NDArray[np.integer[Any]]
"""One integer, or many."""


class _List(ABC):
    """What lists have in common: they are values, and have a length."""

    places: Elements | None

    @property
    @abstractmethod
    def _list(self) -> _core.List:
        """The list, as the core has it."""

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """What makes two lists the same."""

    def __eq__(self, other: object) -> bool:
        is_alike = type(other) is type(self)
        return self._key() == other._key() if is_alike else NotImplemented  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._key())

    def __len__(self) -> int:
        """The number of elements."""
        return len(self._list)


class Runs(_List):
    """Runs are a list of elements: `lengths[i]` from `offsets[i]` on, in the order given.

    Parameters
    ----------
    offsets : sequence of int
        The first element of each run. Elements of an array are counted in C order: element
        `(i, j)` of an array of shape `(m, n)` is number `i * n + j`.
    lengths : sequence of int, or int
        The number of elements of each run, or of every run.
    places : Runs or Strided, optional
        Where the elements lie in the local array, counted in its elements in C order. Default: one
        behind the other.

    Attributes
    ----------
    offsets, lengths : numpy.ndarray
        The parameters, as unsigned integers of 64 bits.
    places : Runs, Strided or None
        The parameter.

    Raises
    ------
    SchemaError
        When a parameter is not what it should be. A list that does not fit an array is found when
        the array is made, or is used.

    Notes
    -----
    As the memory schema of an `Array`, each rank gives a list of its own, and a local array of one
    dimension with as many elements; with `places`, of at least as many as they need, and of any
    shape in C order. As a region, the list says which elements are moved. A list may be empty, and
    may name an element twice if it is read. Each rank sends each server only what concerns that
    server's blocks (nested-batched requests: Kotz, TOCS 1997, section 7.2).
    """

    def __init__(self, offsets: Numbers, lengths: Numbers, places: Elements | None = None) -> None:
        self.offsets = _numbers("a run's offsets", offsets)
        given = _numbers("a run's lengths", lengths)
        is_one = isinstance(lengths, SupportsIndex) and not isinstance(lengths, np.ndarray)
        self.lengths = np.repeat(given, len(self.offsets)) if is_one else given
        self.places = _places(places)
        self._list  # noqa: B018 - to find what does not fit now

    @cached_property
    def _list(self) -> _core.List:
        return _core.List.runs(self.offsets, self.lengths)

    def _key(self) -> tuple[Any, ...]:
        return (self.offsets.tobytes(), self.lengths.tobytes(), self.places)

    def __repr__(self) -> str:
        places = "" if self.places is None else f", places={self.places!r}"
        return f"Runs({_words(self.offsets)}, {_words(self.lengths)}{places})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Runs, (self.offsets, self.lengths, self.places)


class Strided(_List):
    """A strided list is one run of elements that is repeated in nested loops.

    Parameters
    ----------
    start : int
        The first element, counted as for `Runs`.
    length : int
        The number of elements of a run.
    loops : sequence of (int, int)
        The count and the stride of each loop, elements, the outermost first; strides may be
        negative. A count of zero makes the list empty.
    places : Runs or Strided, optional
        Where the elements lie in the local array, as for `Runs`.

    Attributes
    ----------
    start, length, loops, places
        The parameters; `loops` is a tuple.

    Raises
    ------
    SchemaError
        As of `Runs`.

    Notes
    -----
    `Strided(c, 1, [(m, n)])` is column `c` of an array of shape `(m, n)`. A vector type of MPI, and
    a simple strided and a nested strided request (Kotz, TOCS 1997, section 7.2), are such lists.
    """

    def __init__(
        self,
        start: SupportsIndex,
        length: SupportsIndex,
        loops: Iterable[Sequence[SupportsIndex]] = (),
        places: Elements | None = None,
    ) -> None:
        try:
            self.start, self.length = operator.index(start), operator.index(length)
            pairs = [tuple(map(operator.index, loop)) for loop in loops]
            self.loops = tuple((count, stride) for count, stride in pairs)
        except (TypeError, ValueError) as error:
            raise schema_error(
                "a strided list has a start, a length, and a count and a stride for each loop: "
                f"{shown((start, length, loops))}"
            ) from error
        counts = (self.start, self.length, *(count for count, _ in self.loops))
        strides = [stride for _, stride in self.loops]
        if any(not 0 <= count < 2**63 for count in counts) or any(
            not -(2**63) < stride < 2**63 for stride in strides
        ):
            raise schema_error(f"a strided list's numbers are too large, or negative: {counts}")
        self.places = _places(places)
        self._list  # noqa: B018 - to find what does not fit now

    @cached_property
    def _list(self) -> _core.List:
        return _core.List.strided(self.start, self.length, list(self.loops))

    def _key(self) -> tuple[Any, ...]:
        return (self.start, self.length, self.loops, self.places)

    def __repr__(self) -> str:
        places = "" if self.places is None else f", places={self.places!r}"
        return f"Strided({self.start}, {self.length}, {list(self.loops)}{places})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Strided, (self.start, self.length, self.loops, self.places)


Elements: TypeAlias = Runs | Strided


def list_argument(elements: Elements) -> _core._ListArgument:
    """A list with its places, as the core takes them."""
    places = None if elements.places is None else elements.places._list
    return (elements._list, places)


def local_elements(elements: Elements) -> int:
    """The elements that a local array needs for a list."""
    return len(elements) if elements.places is None else elements.places._list.extent()


def flat(local: np.ndarray) -> np.ndarray:
    """A local array as one of one dimension, in place.

    Raises
    ------
    SchemaError
        When that takes a copy.
    """
    if local.ndim == 1:
        return local
    if not local.flags.c_contiguous:
        raise schema_error(
            "the local array of a list has one dimension, or lies in C order without gaps: "
            f"this one has shape {local.shape} and strides {local.strides}"
        )
    return local.reshape(-1)


def _numbers(what: str, values: Numbers) -> npt.NDArray[np.uint64]:
    """Integers from 0 on as an array of one dimension that does not change."""
    given = np.atleast_1d(np.asarray(values))
    if given.size == 0:
        given = given.astype(np.uint64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise schema_error(f"{what} are a sequence of integers, not {shown(values)}")
    if given.dtype.kind == "i" and given.size > 0 and given.min() < 0:
        raise schema_error(f"{what} are from 0 on, and one is {given.min()}")
    numbers = np.array(given, np.uint64)
    numbers.flags.writeable = False
    return numbers


def _places(places: object) -> Elements | None:
    if places is None or isinstance(places, Runs | Strided):
        if places is not None and places.places is not None:
            raise schema_error("the places of a list have no places of their own")
        return places
    raise schema_error(f"places are Runs or Strided, not {type_name(places)}")


def _words(numbers: npt.NDArray[np.uint64]) -> str:
    return np.array2string(numbers, separator=", ", threshold=6, edgeitems=2)
