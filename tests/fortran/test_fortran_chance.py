"""Arrays of chance: distributions, halos, chunks, strategies, and sections of any strides."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import zarr
from fortran_programs import run

PROGRAM = Path(__file__).parent / "programs/chance.f90"
STRATEGIES = ["disk-directed", "two-phase", "caching", "independent"]


def memory(chance: random.Random, ranks: int, strategies: list[str]) -> str:
    """A distribution over all ranks, a mesh, a halo, steps and a strategy, as the program reads."""
    dims = chance.randint(1, 3)
    spread = sorted(chance.sample(range(3), dims))
    factors = [1] * dims
    rest = ranks
    while rest > 1:
        prime = next(p for p in range(2, rest + 1) if rest % p == 0)
        factors[chance.randrange(dims)] *= prime
        rest //= prime
    dists, halos = [], []
    for dim in range(3):
        kind = chance.choice(["BLOCK", "CYCLIC", "CYCLIC(2)"]) if dim in spread else "*"
        dists.append(kind)
        has_halo = not kind.startswith("CYCLIC") and chance.random() < 0.5
        halos += [chance.randint(0, 2) if has_halo else 0 for _ in range(2)]
    steps = [chance.choice([1, 1, 2, -1, -3]) for _ in range(3)]
    numbers = " ".join(map(str, [*factors, *halos, *steps]))
    return f'"{",".join(dists)}" "{chance.choice(strategies)}" {dims}\n{numbers}\n'


@pytest.mark.parametrize(("ranks", "servers"), [(1, 1), (2, 3), (3, 2), (8, 4)])
def test_arrays_of_chance(build, tmp_path, ranks, servers):
    chance = random.Random(ranks)
    shapes, text = [], ""
    for number in range(24):
        shape = [chance.choice([1, 2, 3, 5, 7, 11, 13]) for _ in range(3)]
        chunk = [chance.randint(1, extent) for extent in shape]
        codec = chance.choice(["none", "zstd:3", "gzip:1+crc32c", "crc32c"])
        shapes.append(shape)
        text += f"u{number}\n{' '.join(map(str, [*shape, *chunk]))} {codec}\n"
        # Ranks that write by themselves cannot share a chunk that is coded.
        text += memory(chance, ranks, STRATEGIES[:-1]) + memory(chance, ranks, STRATEGIES)
    (tmp_path / "cases").write_text(text)
    said = run(
        build.program(PROGRAM), tmp_path / "cases", tmp_path / "u.zarr", servers, ranks=ranks
    )
    assert said == [f"moved {len(shapes)} arrays"]
    group = zarr.open_group(tmp_path / "u.zarr", mode="r")
    for number, shape in enumerate(shapes):
        stored = group[f"u{number}"]
        numbers = np.arange(math.prod(shape)).reshape(shape[::-1])
        np.testing.assert_array_equal(stored[...], numbers, f"u{number}")
        assert stored.metadata.dimension_names == ("z", "y", "x")
