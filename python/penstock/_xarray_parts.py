"""Where the parts of a data set lie that ranks hold.

Each rank has a data set with the same variables. Along some dimensions a rank has a piece of the
whole, along the others all of it:

    ranks of a 2 x 2 mesh             x: 0..3      x: 3..7
    u(y, x), lat(y), lon(x)         +-----------+--------------+
                          y: 0..2   | rank 0    | rank 1       |
                                    +-----------+--------------+
                          y: 2..5   | rank 2    | rank 3       |
                                    +-----------+--------------+

The program says where a piece begins, or the values of a dimension's index coordinate do: pieces in
the order of their values. What these do not tell is refused, not guessed. Of each variable a rank
has a box; here rank 0 and rank 2 have the same box of `lon`, and the lower rank writes it.

All that is here is computed from what each rank has told all others, so that every rank comes to
the same result, or the same error.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from xarray import Dataset

from penstock._errors import (
    Error,
    IoError,
    MismatchError,
    SchemaError,
    error_of,
    schema_error,
    shown,
)

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The start and the shape of a part of a variable."""


class Ranks:
    """Ranks are those of a communicator, or this process alone.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        The communicator.
    """

    def __init__(self, comm: MPI.Intracomm | None) -> None:
        self.comm = comm
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size

    def together(self, doing: str, prepare: Callable[[], T]) -> list[T]:
        """Call `prepare` on all ranks, and give all ranks all results, in the order of the ranks.

        Raises
        ------
        Error
            The same on all ranks: the lowest rank whose `prepare` has failed decides. A process
            alone gets what `prepare` has raised.
        """
        if self.comm is None:
            return [prepare()]
        mine: Exception | None = None
        told: tuple[tuple[str, str] | None, T | None]
        try:
            told = (None, prepare())
        except Exception as error:  # noqa: BLE001 - the other ranks must hear of it
            mine = error
            is_own = isinstance(error, Error)
            of_others = IoError.kind if isinstance(error, OSError) else SchemaError.kind
            kind = error.kind if isinstance(error, Error) else of_others
            told = ((kind, str(error) if is_own else f"{type(error).__name__}: {error}"), None)
        heard = self.comm.allgather(told)
        for rank, (wrong, _) in enumerate(heard):
            if wrong is not None:
                kind, cause = wrong
                verdict = error_of(kind, cause, f"{doing}, rank {rank}")
                verdict.rank, verdict.doing, verdict.path = rank, doing, None
                raise verdict from (mine if rank == self.rank else None)
        return [result for _, result in heard]

    def each(self, doing: str, prepare: Callable[[], T]) -> T:
        """Call `prepare` on all ranks, and give each its own result; errors as of `together`."""
        kept: list[T] = []
        self.together(doing, lambda: kept.append(prepare()))
        return kept[0]

    def once(self, doing: str, act: Callable[[], T]) -> T:
        """Call `act` on rank 0, and give all ranks its result, or its error."""
        return self.together(doing, lambda: act() if self.rank == 0 else None)[0]  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Index:
    """An index says what the index coordinate of a dimension holds on one rank."""

    first: Any
    last: Any
    order: int
    """1 if its values ascend, -1 if they descend, 0 if there is only one."""
    digest: bytes


@dataclasses.dataclass(frozen=True)
class Held:
    """What one rank tells the others of its data set."""

    sizes: dict[Hashable, int]
    indices: dict[Hashable, Index]
    dims: dict[Hashable, tuple[Hashable, ...]]
    """The dimensions of each variable."""
    starts: dict[Hashable, int] | None
    """Where its parts begin, if the program has said so."""


def held(dataset: Dataset, parts: Mapping[Any, int] | None) -> Held:
    """What a rank tells the others.

    Raises
    ------
    SchemaError
        When `parts` are not what they should be.
    """
    starts = None
    if parts is not None:
        starts = {dim: _start(dim, start, dataset) for dim, start in parts.items()}
    return Held(
        sizes=dict(dataset.sizes),
        indices={} if starts is not None else _indices(dataset),
        dims={name: var.dims for name, var in dataset.variables.items()},
        starts=starts,
    )


def _start(dim: Any, start: Any, dataset: Dataset) -> int:
    if dim not in dataset.sizes:
        raise schema_error(f"parts name {shown(dim)}, which is no dimension of the data set")
    try:
        number = operator.index(start)
    except TypeError as error:
        cause = f"the part of {shown(dim)} begins at an integer, not at {shown(start)}"
        raise schema_error(cause) from error
    if number < 0:
        raise schema_error(f"the part of {shown(dim)} begins at {number}: it must be from 0 on")
    return number


def _indices(dataset: Dataset) -> dict[Hashable, Index]:
    """The index coordinates that have an order; no others say where parts lie."""
    found = {}
    for dim in dataset.sizes:
        if dim not in dataset.indexes or dataset.sizes[dim] == 0:
            continue
        index = dataset.indexes[dim]
        ascends = bool(index.is_monotonic_increasing and index.is_unique)
        descends = bool(index.is_monotonic_decreasing and index.is_unique)
        values = np.asarray(dataset[dim].values)
        bytes_ = repr(values.tolist()).encode() if values.dtype.kind == "O" else values.tobytes()
        if ascends or descends:
            order = 0 if len(index) == 1 else (1 if ascends else -1)
            digest = hashlib.sha256(bytes_).digest()
            found[dim] = Index(values[0], values[-1], order, digest)
    return found


@dataclasses.dataclass(frozen=True)
class Placement:
    """A placement says where the part of each rank lies in the whole data set."""

    whole: dict[Hashable, int]
    starts: list[dict[Hashable, int]]
    sizes: list[dict[Hashable, int]]

    def boxes(self, dims: Sequence[Hashable]) -> list[Box]:
        """The box that each rank has of a variable with these dimensions."""
        return [
            (tuple(start.get(dim, 0) for dim in dims), tuple(size[dim] for dim in dims))
            for start, size in zip(self.starts, self.sizes, strict=True)
        ]

    def writers(self, dims: Sequence[Hashable]) -> list[int]:
        """For each rank the lowest rank with the same box of such a variable, which writes it.

        Raises
        ------
        SchemaError
            When the boxes leave something out, or overlap.
        """
        boxes = self.boxes(dims)
        first: dict[Box, int] = {}
        for rank, box in enumerate(boxes):
            first.setdefault(box, rank)
        there = sum(math.prod(shape) for _, shape in first)
        whole = math.prod(self.whole[dim] for dim in dims)
        if there != whole:
            wrong = "leave elements out" if there < whole else "overlap"
            shape = tuple(self.whole[dim] for dim in dims)
            raise schema_error(
                f"the parts of variables over ({', '.join(map(str, dims))}) {wrong}: they have "
                f"{there} elements, and the whole, of shape {shape}, has {whole}"
            )
        return [first[box] for box in boxes]


def placed(ranks: Sequence[Held]) -> Placement:
    """Where the parts of ranks lie.

    Raises
    ------
    MismatchError, SchemaError
        When the data sets do not belong together, or do not tell where their parts lie.
    """
    first = ranks[0]
    for rank, other in enumerate(ranks):
        if other.dims != first.dims:
            raise _mismatch(f"rank {rank} has other variables or dimensions than rank 0")
        if (other.starts is None) != (first.starts is None) or set(other.starts or ()) != set(
            first.starts or ()
        ):
            raise _mismatch(f"rank {rank} names other dimensions in its parts than rank 0")
    starts: list[dict[Hashable, int]] = [{} for _ in ranks]
    whole = {}
    for dim in first.sizes:
        sizes = [rank.sizes[dim] for rank in ranks]
        if first.starts is None:
            begins = _found(dim, ranks) if len(ranks) > 1 else [0]
        elif dim in first.starts:
            begins = [rank.starts[dim] if rank.starts else 0 for rank in ranks]
        else:
            begins = [0] * len(ranks)
            if len(set(sizes)) > 1:
                raise schema_error(
                    f"ranks have {dim} of sizes {sorted(set(sizes))}: if they have parts of it, "
                    f"name it in parts={{...}}"
                )
        for start, begin in zip(starts, begins, strict=True):
            start[dim] = begin
        ends = [b + n for b, n in zip(begins, sizes, strict=True) if n > 0]
        whole[dim] = max(ends, default=0)
    return Placement(whole, starts, [rank.sizes for rank in ranks])


def _found(dim: Hashable, ranks: Sequence[Held]) -> list[int]:
    """Where each rank's piece of a dimension begins, by the values of its index coordinate."""
    having = [rank for rank in ranks if rank.sizes[dim] > 0]
    if not having:
        return [0] * len(ranks)
    if any(dim not in rank.indices for rank in having):
        raise schema_error(
            f"{dim} has no index coordinate, in order, that tells where the parts of ranks lie: "
            "give parts={dimension: start} on each rank, for all dimensions of which ranks have "
            "parts and for no others"
        )
    pieces: dict[bytes, Index] = {}
    lengths: dict[bytes, int] = {}
    for rank in having:
        index = rank.indices[dim]
        pieces.setdefault(index.digest, index)
        lengths[index.digest] = rank.sizes[dim]
    begins, begin = {}, 0
    for piece in _in_order(dim, list(pieces.values())):
        begins[piece.digest] = begin
        begin += lengths[piece.digest]
    return [begins[r.indices[dim].digest] if r.sizes[dim] > 0 else 0 for r in ranks]


def _in_order(dim: Hashable, pieces: list[Index]) -> list[Index]:
    """Pieces of a dimension in the order of their values.

    Raises
    ------
    SchemaError
        When they overlap, or do not say in which order they are.
    """
    orders = {piece.order for piece in pieces} - {0}
    ascending = sorted(pieces, key=lambda piece: min(piece.first, piece.last))
    if not orders and len(pieces) > 1:  # one value each: the order of the ranks must tell
        orders = {1} if pieces == ascending else {-1} if pieces == ascending[::-1] else {1, -1}
    if len(orders) > 1:
        raise schema_error(
            f"the index coordinates of {dim} do not say whether it ascends or descends: give "
            f"parts={{{dim!r}: start}} on each rank"
        )
    for one, next_ in itertools.pairwise(ascending):
        if not max(one.first, one.last) < min(next_.first, next_.last):
            raise schema_error(
                f"the index coordinates of {dim} overlap between ranks and are not the same: "
                f"{one.first} to {one.last}, and {next_.first} to {next_.last}. Give "
                f"parts={{{dim!r}: start}} on each rank"
            )
    return ascending if orders <= {1} else ascending[::-1]


def _mismatch(cause: str) -> MismatchError:
    error = MismatchError(cause)
    error.cause = cause
    return error


def pieces_of(
    box: Box, chunk: Sequence[int], elements_max: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A box in pieces of at most `elements_max` elements, or of one, along the edges of chunks.

    Parameters
    ----------
    box : Box
        Start and shape, in the whole array.
    chunk : sequence of int
        Extents of a chunk. Only a piece that is less than a chunk does not meet its edges.
    elements_max : int
        The most elements of a piece.
    """
    start, shape = box
    extents = list(shape)
    for least in (list(chunk), [1] * len(shape)):
        for axis, floor in enumerate(least):
            rest = math.prod(extents[:axis] + extents[axis + 1 :])
            if rest * extents[axis] > elements_max:
                fitting = elements_max // max(rest, 1) // floor * floor
                extents[axis] = min(extents[axis], max(fitting, floor))
    if math.prod(shape) == 0:
        return []
    cuts = [
        _cuts(first, first + count, extent)
        for first, count, extent in zip(start, shape, extents, strict=True)
    ]
    pieces: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for along in cuts:
        pieces = [((*s, a), (*n, b - a)) for s, n in pieces for a, b in along]
    return pieces


def _cuts(first: int, end: int, extent: int) -> list[tuple[int, int]]:
    """The range from `first` to `end`, cut at multiples of `extent` if it is longer."""
    if end - first <= extent:
        return [(first, end)]
    edges = [first, *range((first // extent + 1) * extent, end, extent), end]
    return list(itertools.pairwise(edges))
