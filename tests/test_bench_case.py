"""How the benchmarks check what they move: all of it, each element once, however it is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from penstock_bench.case import Case, Disk, Distribution, values

SHAPE = (7, 5, 6)
SALT = 3


def store(disk: Disk, elements: np.ndarray, target: Path) -> None:
    """The array as the disk schema has it, by other software."""
    if disk.kind == "row-major":
        elements.tofile(target)
    elif disk.kind == "npy":
        with open(target, "wb") as file:
            np.save(file, elements)
    elif disk.kind == "chunks":
        group = zarr.create_group(target, overwrite=True)
        shards = disk.chunk if disk.subchunk else None
        array = group.create_array(
            "u",
            shape=elements.shape,
            dtype=elements.dtype,
            chunks=disk.subchunk or disk.chunk,
            shards=shards,
        )
        array[...] = elements
    else:
        target.mkdir(exist_ok=True)
        for part in range(disk.parts.parts):
            indices = disk.parts.indices(SHAPE, part)
            elements[np.ix_(*indices)].tofile(target / f"u.{part}")


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i2", "u1", "?"])
@pytest.mark.parametrize(
    "disk", ["row-major", "npy", "chunks:3,5,4", "chunks:6,4,4/3,2,2", "parts:*,BLOCK,BLOCK:2x3"]
)
@pytest.mark.parametrize("ranks", [1, 3, 16])
def test_every_wrong_element_is_counted_once(tmp_path, monkeypatch, ranks, disk, dtype):
    monkeypatch.setattr("penstock_bench.case.SLAB_ELEMENTS", 61)
    cases = [
        Case(
            SHAPE,
            np.dtype(dtype),
            Distribution.parse("BLOCK,*,CYCLIC(2)", (3, 2)),
            Disk.parse(disk),
            tmp_path,
            sync=False,
            rank=rank,
            size=ranks,
        )
        for rank in range(ranks)
    ]
    whole = [np.arange(extent) for extent in SHAPE]
    elements = values(SHAPE, np.dtype(dtype), whole, SALT)
    target = tmp_path / "target"

    def wrong_on_disk() -> int:
        return sum(case.wrong_on_disk(target, SALT) for case in cases)

    store(cases[0].disk, elements, target)
    assert wrong_on_disk() == 0
    spoilt = [(0, 0, 0), (2, 4, 1), (6, 4, 5)]
    for index in spoilt:
        elements[index] = not elements[index]
    store(cases[0].disk, elements, target)
    assert wrong_on_disk() == len(spoilt)


def test_every_wrong_element_of_a_share_is_counted(tmp_path):
    memory = Distribution.parse("CYCLIC,BLOCK,*", (2, 2))
    for rank in range(5):
        disk = Disk.parse("npy")
        dtype = np.dtype("f8")
        case = Case(SHAPE, dtype, memory, disk, tmp_path, sync=False, rank=rank, size=5)
        local = np.full(case.local_shape(), -1.0)
        assert case.wrong_in_memory(local, SALT) == local.size
        case.fill(local, SALT)
        assert case.wrong_in_memory(local, SALT) == 0
        assert case.wrong_in_memory(local, SALT + 1) == local.size
        local[:1] = -1
        assert case.wrong_in_memory(local, SALT) == local[:1].size
