"""Work at the servers against NumPy: one body for threads and MPI.

Every function is called by all ranks of a session, with the whole array as it must be stored.
"""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
from conformance import Case, write
from helpers import Dealt, holds_nothing

import penstock as ps
from penstock._schema import halo_of

HOWS = ("min", "max", "mean", "sum", "count", "histogram")


def numbers_of(dtype: np.dtype, mine: str, theirs: str) -> list[tuple[str, str, np.dtype]]:
    """The numbers of an element, in Penstock's words and in NumPy's: it, or those in its fields."""
    if dtype.names is None:
        return [(mine, theirs, dtype)] if dtype.subdtype is None else []
    fields = [(name, dtype.fields[name][0]) for name in dtype.names]
    every = [numbers_of(of, f"{mine}.{name}", f"{theirs}[{name!r}]") for name, of in fields]
    return list(itertools.chain.from_iterable(every))


def condition(chance: random.Random, dtype: np.dtype, dims: int) -> tuple[str, str]:
    """A condition in Penstock's words, and in NumPy's: `u` is the array, `i0` and so on indices."""
    options = [("True", "np.ones(u.shape, bool)"), ("False", "np.zeros(u.shape, bool)")]
    real = theirs = "1"
    if numbers := numbers_of(dtype, "u", "u"):
        u, n, of = chance.choice(numbers)
        real = f"real({u})" if of.kind == "c" else u
        theirs = f"{n}.real" if of.kind == "c" else n
        if of.kind == "b" and chance.random() < 0.5:
            real, theirs = f"({u} + 0)", f"({n} + 0)"
        bound = chance.choice(["0", "1", "3", "100", "2.5", "0.1"])
        options += [
            (f"{real} > {bound}", f"{theirs} > {bound}"),
            (f"not {real} <= {bound}", f"~({theirs} <= {bound})"),
            (f"{u} in [1, {bound}, 7]", f"({n} == 1) | ({n} == {bound}) | ({n} == 7)"),
            (f"between({real}, 1, 90)", f"({theirs} >= 1) & ({theirs} <= 90)"),
            (f"isnan({u}) or {u} == {u}", f"np.isnan({n}) | ({n} == {n})"),
            (f"abs({u}) * 2 >= {bound}", f"np.abs({n}) * 2 >= {bound}"),
        ]
        if of.kind in "iu":
            options += [
                (f"{u} // 3 % 2 == 1", f"{n} // 3 % 2 == 1"),
                (f"{u} ** 2 < 50", f"{n} ** 2 < 50"),
                (f"{u} / 7 > 3", f"{n} / 7 > 3"),
            ]
    if dims:
        dim = chance.randrange(dims)
        options += [
            (f"i{dim} % 2 == 1", f"i{dim} % 2 == 1"),
            (f"{real} + i{dim} > 20", f"{theirs} + i{dim} > 20"),
        ]
    ours, numpys = chance.choice(options)
    if chance.random() < 0.3:
        more, also = chance.choice(options)
        word, sign = chance.choice([("and", "&"), ("or", "|")])
        return f"({ours}) {word} ({more})", f"({numpys}) {sign} ({also})"
    return ours, numpys


def key(
    chance: random.Random, dtype: np.dtype, dims: int, ranks: int
) -> tuple[str, str, list[float] | None] | None:
    """An expression that names ranks, in both words, and splitters; `None` where there is none."""
    options: list[tuple[str, str, list[float] | None]] = []
    splitters = sorted(chance.choice([-3, 0, 1, 2.5, 7, 20, 100]) for _ in range(ranks - 1))
    splitters = splitters[: chance.randint(0, ranks - 1)]
    for mine, theirs, of in numbers_of(dtype, "value", "u"):
        if of.kind in "iu":
            options += [(mine, theirs, None), (f"{mine} // 3", f"{theirs} // 3", splitters)]
        if of.kind == "f":
            options += [(mine, theirs, splitters), (f"{mine} > 2", f"{theirs} > 2", None)]
        if of.kind == "c":
            options.append((f"abs({mine})", f"np.abs({theirs})", splitters))
    if dims:
        of_all = " + ".join(f"{3 + d} * i{d}" for d in range(dims))
        options.append((f"{of_all} - 7", f"{of_all} - 7", None))
    return chance.choice(options) if options else None


def named_ranks(
    theirs: str, whole: np.ndarray, splitters: list[float] | None, ranks: int
) -> np.ndarray:
    """The rank of each element, by NumPy."""
    values = np.asarray(holds(theirs, whole))
    if splitters is None:
        return np.vectorize(lambda value: int(value) % ranks, otypes=[int])(values)
    return np.searchsorted(np.array(splitters, "f8"), values.astype("f8"), side="right")


def holds(theirs: str, whole: np.ndarray) -> np.ndarray:
    """The elements that satisfy a condition, by NumPy."""
    indices = {f"i{d}": index for d, index in enumerate(np.indices(whole.shape, sparse=True))}
    with np.errstate(all="ignore"):
        # It is made of a fixed list above, nothing from outside.
        found = eval(theirs, {"np": np, "u": whole, **indices})
    return np.broadcast_to(found, whole.shape)


def held(case: Case, rank: int) -> np.ndarray:
    """Which elements a rank holds for reading."""
    mask = np.zeros(case.shape, bool)
    indices = case.target.indices(case.shape, rank)
    if not holds_nothing(indices):
        if case.shape:
            mask[np.ix_(*indices)] = True
        else:
            mask[...] = True
    return mask


def check(found: ps.Selection, whole: np.ndarray, mask: np.ndarray) -> None:
    """Exactly the elements of the mask have come, in order."""
    expected = np.argwhere(mask)
    assert found.indices.dtype == np.int64 and found.indices.shape == expected.shape
    np.testing.assert_array_equal(found.indices, expected)
    assert found.values.dtype == whole.dtype
    assert found.values.tobytes() == whole[mask].tobytes()


def select(s: ps.Session, case: Case, path: Path, whole: np.ndarray, chance: random.Random) -> None:
    """Elements that satisfy a random condition come to who holds them, or are dealt out."""
    array = case.array(case.target, s.rank)
    mine, theirs = condition(chance, whole.dtype, whole.ndim)
    true = holds(theirs, whole)
    found = s.select(path, array, where=mine)
    check(found, whole, true & held(case, s.rank))
    indices, values = found
    assert indices is found.indices and values is found.values
    everywhere = np.zeros(case.shape, bool)
    for rank in range(s.size):
        everywhere |= held(case, rank)
    deal_by_value(s, path, array, whole, (mine, true & everywhere), chance)
    dealt = s.select(path, array, where=mine, balanced=True)
    numbers = np.flatnonzero(true & everywhere)
    start, end = (len(numbers) * r // s.size for r in (s.rank, s.rank + 1))
    own = np.zeros(case.shape, bool)
    own.flat[numbers[start:end]] = True
    check(dealt, whole, own)


def deal_by_value(
    s: ps.Session,
    path: Path,
    array: ps.Array,
    whole: np.ndarray,
    selected: tuple[str, np.ndarray],
    chance: random.Random,
) -> None:
    """Elements, or some fields of them, come to the ranks that a value names."""
    where, mask = selected
    named = key(chance, whole.dtype, whole.ndim, s.size)
    fields = None
    if whole.dtype.names is not None:
        names = list(whole.dtype.names)
        fields = chance.sample(names, chance.randint(1, len(names)))
        parts = np.empty(whole.shape, np.dtype([(n, whole.dtype.fields[n][0]) for n in fields]))
        for name in fields:
            parts[name] = whole[name]
        whole_parts, whole = whole, parts
    else:
        whole_parts = whole
    if named is None:
        return
    mine, theirs, splitters = named
    found = s.select(path, array, where=where, by=mine, splitters=splitters, fields=fields)
    check(found, whole, mask & (named_ranks(theirs, whole_parts, splitters, s.size) == s.rank))


def random_box(chance: random.Random, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """A random box, perhaps with nothing in it."""
    box = []
    for extent in shape:
        start = chance.randint(0, extent)
        box.append(slice(start, chance.randint(start, extent)))
    return tuple(box)


def expected_reduction(
    how: str, part: np.ndarray, over: tuple[int, ...], bins: list[float]
) -> np.ndarray:
    """What NumPy makes of it; sums of floats by `math.fsum`, which is exact."""
    kept = [d for d in range(part.ndim) if d not in over]
    shape = tuple(part.shape[d] for d in kept)
    cells = np.moveaxis(part, kept, range(len(kept))).reshape(*shape, -1) if part.size else None
    if how == "count":
        nans = np.isnan(part) if part.dtype.kind in "fc" else np.zeros(part.shape, bool)
        return (~nans).sum(axis=over, dtype=np.int64)
    if how == "histogram":
        result = np.zeros((*shape, len(bins) - 1), np.int64)
        if cells is not None:
            for cell in itertools.product(*map(range, shape)):
                values = cells[cell].astype("u1") if part.dtype.kind == "b" else cells[cell]
                numbers = values.astype("f8")
                result[cell] = np.histogram(numbers[~np.isnan(numbers)], bins)[0]
        return result
    with np.errstate(all="ignore"):
        result = np.asarray(getattr(np, how)(part, axis=over))
    is_exact = how == "mean" or (how == "sum" and part.dtype.kind in "fc")
    if not is_exact or cells is None:
        return result
    for cell in itertools.product(*map(range, shape)):
        result[cell] = exact(cells[cell], how == "mean")
    return result


def exact(values: np.ndarray, is_mean: bool) -> Any:
    if values.dtype.kind == "c":
        return complex(exact(values.real, is_mean), exact(values.imag, is_mean))
    if values.dtype.kind in "biu":
        return float(sum(map(int, values))) / len(values)
    numbers = values.astype("f8")
    total = math.fsum(numbers) if np.isfinite(numbers).all() else float(np.sum(numbers))
    return total / len(numbers) if is_mean else total


def reduce(s: ps.Session, case: Case, path: Path, whole: np.ndarray, chance: random.Random) -> None:
    """A random part is reduced over random dimensions, in every way."""
    array = case.array(case.target, s.rank)
    field = None
    if whole.dtype.names is not None:
        error = raises(ps.SchemaError, lambda: s.reduce(path, array, how="count"))
        assert "records" in str(error)
        fields = numbers_of(whole.dtype, "", "")
        if not fields:
            return
        field = chance.choice(fields)[0].removeprefix(".")
        for name in field.split("."):
            whole = whole[name]
    box = random_box(chance, case.shape) if chance.random() < 0.5 else None
    part = whole if box is None else whole[box]
    over = tuple(d for d in range(whole.ndim) if chance.random() < 0.6)
    bins = sorted(chance.choice([0, 1, 3, 20, 50.5, 100, -3]) for _ in range(chance.randint(2, 6)))
    for how in HOWS:
        edges = bins if how == "histogram" else None

        def call(how: str = how, edges: list[float] | None = edges) -> np.ndarray:
            return s.reduce(path, array, how=how, over=over, field=field, region=box, bins=edges)

        kept = [part.shape[d] for d in range(part.ndim) if d not in over]
        if whole.dtype.kind == "c" and how in ("min", "max", "histogram"):
            raises(ps.UnsupportedError, call)
            continue
        if how in ("min", "max") and part.size == 0 and math.prod(kept) > 0:
            raises(ps.SchemaError, call)
            continue
        found = call()
        if how in ("min", "max") and part.size == 0:
            assert found.shape == tuple(kept) and found.dtype == whole.dtype
            continue
        expected = expected_reduction(how, part, over, bins)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (how, over, box)
        np.testing.assert_array_equal(found, expected, err_msg=f"{how} over {over} of {box}")


def thin(s: ps.Session, case: Case, path: Path, whole: np.ndarray, chance: random.Random) -> None:
    """Every n-th element comes to the rank that holds it in the thinned array."""
    every = tuple(chance.choice([1, 1, 2, 3, 5, 20]) for _ in case.shape)
    thinned = whole[tuple(slice(None, None, step) for step in every)]
    array = case.array(case.target, s.rank)
    if not isinstance(case.target, Dealt):
        box = random_box(chance, thinned.shape)
        back = s.read(path, array, region=box, every=every)
        assert back.shape == thinned[box].shape and back.tobytes() == thinned[box].tobytes()
        return
    whole_of = ps.Array("u", thinned.shape, case.dtype, array.memory)
    back = s.read(path, array, every=every)
    assert back.shape == whole_of.local_shape(s.rank) and back.dtype == whole.dtype
    expected = np.zeros(back.shape, whole.dtype)
    indices = case.target.indices(thinned.shape, s.rank)
    if not holds_nothing(indices):
        halo = halo_pairs(whole_of, back.ndim)
        inner = tuple(slice(b, n - a) for n, (b, a) in zip(back.shape, halo, strict=True))
        expected[inner] = thinned[np.ix_(*indices)] if thinned.shape else thinned
    assert back.tobytes() == expected.tobytes()
    out = np.full(back.shape, 1, whole.dtype, order="F")
    assert s.read(path, array, out, every=every) is out
    if not holds_nothing(indices):
        expected_out = np.full(back.shape, 1, whole.dtype)
        expected_out[inner] = expected[inner]
        assert np.ascontiguousarray(out).tobytes() == expected_out.tobytes()


def halo_pairs(array: ps.Array, dims: int) -> list[tuple[int, int]]:
    """The halo of an array as pairs."""
    return halo_of(array) or [(0, 0)] * dims


def raises(kind: type[ps.Error], call: Any) -> ps.Error:
    """The error of a call, of this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def round_trip(s: ps.Session, case: Case, path: Path, seed: int) -> None:
    """Writes, and then works on what is stored; all ranks choose alike."""
    write(s, case, path)
    whole = case.stored(s.size)
    select(s, case, path, whole, random.Random(seed))
    reduce(s, case, path, whole, random.Random(seed))
    thin(s, case, path, whole, random.Random(seed))
