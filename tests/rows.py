"""One body for every machine: groups with arrays of rows and of several boxes a rank, saved by some
ranks, read by xarray, restarted by others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from helpers import same_bits

import penstock as ps

SHAPE = (12, 8)


@dataclass(frozen=True)
class Plan:
    """What is saved, known to all ranks."""

    seed: int
    time_chunk: int
    codec: str
    dtype: str
    width: int
    steps: int
    fill: float | None
    is_file: bool
    """Whether the group is a file of NetCDF-4, or otherwise a Zarr store."""

    @classmethod
    def random(cls, seed: int, is_file: bool = False) -> Plan:
        chance = random.Random(seed)
        return cls(
            seed,
            chance.choice([1, 2, 5]),
            chance.choice(["none", "zstd:1", "fletcher32" if is_file else "crc32c"]),
            chance.choice(["f8", "i4", "u1", "f4" if is_file else "c8"]),
            chance.choice([0, 1, 3]),
            chance.randint(1, 4),
            chance.choice([None, 7.0]),
            is_file,
        )

    def disk(self, chunks: tuple[int, ...], codec: str = "none") -> ps.Chunks | ps.NetCDF:
        if self.is_file:
            return ps.NetCDF(chunks, filters=codec)
        return ps.Chunks(chunks, codec=codec)

    def count(self, step: int, rank: int) -> int:
        """How many rows a rank brings to a step."""
        return random.Random(f"{self.seed} {step} {rank}").choice([0, 0, 1, 2, 5, 9])

    def rows(self, step: int, size: int) -> np.ndarray:
        """All rows of a step."""
        count = sum(self.count(step, rank) for rank in range(size))
        number = np.arange(count * max(self.width, 1)) + 100 * step
        shape = (count, self.width) if self.width else (count,)
        return number.astype(self.dtype).reshape(shape)

    def own_rows(self, step: int, rank: int, size: int) -> np.ndarray:
        first = sum(self.count(step, before) for before in range(rank))
        return self.rows(step, size)[first : first + self.count(step, rank)]

    def boxes(self, rank: int, size: int) -> list[ps.Boxes]:
        """Of each rank's rows of blocks of 2 x 2 some, perhaps none."""
        chance = random.Random(f"{self.seed} boxes {rank} {size}")
        places = [(y, x) for y in range(0, SHAPE[0], 2) for x in range(0, SHAPE[1], 2)]
        mine = [place for number, place in enumerate(places) if number % size == rank]
        return [ps.Boxes(place, (2, 2)) for place in mine if chance.random() < 0.6]

    def mesh(self, step: int, size: int) -> np.ndarray:
        """The whole of what is held in boxes."""
        whole = np.full(SHAPE, self.fill or 0, self.dtype)
        for rank in range(size):
            for box, part in zip(self.boxes(rank, size), self.parts(step, rank, size), strict=True):
                whole[slices(box)] = part
        return whole

    def parts(self, step: int, rank: int, size: int) -> list[np.ndarray]:
        boxes = self.boxes(rank, size)
        return [np.full((2, 2), 1 + step + rank + n, self.dtype) for n in range(len(boxes))]

    def group(self, path: Path, rank: int, size: int) -> ps.Group:
        disk = self.disk((4, self.width) if self.width else (4,), self.codec)
        shape = (None, self.width) if self.width else (None,)
        dims = ("particle", "axis")[: len(shape)]
        p = ps.Array("p", shape, self.dtype, disk=disk if self.seed % 2 else None, dims=dims)
        mass = ps.Array("mass", (None,), "f4", disk=self.disk((7,)), dims=("particle",))
        mesh = ps.Array(
            "mesh", SHAPE, self.dtype, self.boxes(rank, size), self.disk((4, 4), self.codec),
            fill_value=self.fill,
        )  # fmt: skip
        coords = {"y": np.arange(3.0), "name": ["a", "b"]}
        return ps.Group("g", [p, mass, mesh], path, coords=coords, time_chunk=self.time_chunk)

    def values(self, step: int, rank: int, size: int) -> dict:
        own = self.own_rows(step, rank, size)
        mass = np.full(len(own), step, "f4")
        return {"p": own, "mass": mass, "mesh": self.parts(step, rank, size)}


def slices(box: ps.Boxes) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(box.start, box.shape, strict=True))


def save(session: ps.Session, plan: Plan, path: Path) -> None:
    """Timesteps, and a checkpoint of a step that is none of them."""
    rank, size = session.rank, session.size
    group = plan.group(path, rank, size)
    mesh_bytes = plan.mesh(0, size).nbytes
    for step in range(plan.steps):
        values = plan.values(step, rank, size)
        report = session.timestep(group, values)
        assert report.bytes == mesh_bytes + values["p"].nbytes + values["mass"].nbytes
    session.checkpoint(group, plan.values(99, rank, size), step=99)


def look(plan: Plan, path: Path, size: int) -> None:
    """What others read is what `size` ranks have saved."""
    with xr.open_dataset(path) if plan.is_file else xr.open_zarr(path) as found:
        assert found.sizes["time"] == plan.steps
        counts = [len(plan.rows(step, size)) for step in range(plan.steps)]
        assert found.particle_count.values.tolist() == counts
        assert found.particle_start.values.tolist() == np.cumsum([0, *counts])[:-1].tolist()
        for step, (start, count) in enumerate(
            zip(found.particle_start.values, found.particle_count.values, strict=True)
        ):
            assert same_bits(found.p.values[start : start + count], plan.rows(step, size))
            assert (found.mass.values[start : start + count] == step).all()
            assert same_bits(found.mesh.values[step], plan.mesh(step, size))
        assert found.name.values.tolist() == ["a", "b"]
    verified = ps.verify(path)
    assert verified.is_well or (plan.is_file and not verified.damages)


def restart(session: ps.Session, plan: Plan, path: Path, writers: int) -> None:
    """On any number of ranks: each has an even share of the rows, and the boxes that it names."""
    rank, size = session.rank, session.size
    group = plan.group(path, rank, size)
    state = session.restart(group)
    rows = plan.rows(99, writers)
    each = -(-len(rows) // size)
    assert same_bits(state["p"], rows[each * rank : each * (rank + 1)])
    assert state["mass"].shape == state["p"].shape[:1]
    mesh = plan.mesh(99, writers)
    for box, part in zip(plan.boxes(rank, size), state["mesh"], strict=True):
        assert same_bits(part, mesh[slices(box)])
