"""One body for groups, parts of arrays, natural chunking and copies, for threads and MPI.

What is saved at a step is a function of the step, so that each timestep and checkpoint on disk can
be compared with what it must be, by other people's software.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import xarray
import zarr
from conformance import Case, random_case
from helpers import Dealt, holds_nothing, local_of, penstock, same_bits, values

import penstock as ps


@dataclass(frozen=True)
class Saved:
    """A group of arrays, and how they are held when saved and when restarted."""

    cases: tuple[Case, ...]
    time_chunk: int | None = None

    def group(self, path: Path, rank: int, restarted: bool = False, **more) -> ps.Group:
        arrays = []
        more.setdefault("time_chunk", self.time_chunk)
        for number, case in enumerate(self.cases):
            held = case.target if restarted else case.source
            arrays.append(case.array(held, rank)._with(name=f"a{number}"))
        return ps.Group("saved", arrays, path, **more)

    def at(self, step: int) -> tuple[Case, ...]:
        """The same with the values of a step."""
        return tuple(replace(case, salt=case.salt + 1000 * step) for case in self.cases)

    def parts(self, step: int, rank: int) -> dict[str, np.ndarray]:
        """What a rank brings of each array at a step."""
        return {
            f"a{number}": local_of(
                case.array(case.source, rank), case.source, rank, case.kind(rank), case.truth()
            ).view
            for number, case in enumerate(self.at(step))
        }


def random_saved(chance: random.Random, writers: int, readers: int) -> Saved:
    """Of one to four arrays of any form that a group takes."""
    cases = []
    while len(cases) < chance.randint(1, 4):
        case = random_case(chance, writers, readers)
        if case.disk == ps.RowMajor("npy"):
            continue
        disk = None if chance.random() < 0.3 else case.disk
        cases.append(replace(case, disk=disk, attrs="", dims=None))
    return Saved(tuple(cases))


FILTERS = ["none", "shuffle+deflate:1", "zstd", "shuffle+deflate+fletcher32"]


def random_saved_in_file(chance: random.Random, writers: int, readers: int, disk: type) -> Saved:
    """As `random_saved`, of arrays that go to one file, as HDF5 or NetCDF says."""
    cases: list[Case] = []
    while len(cases) < chance.randint(1, 4):
        case = random_case(chance, writers, readers)
        dtype = np.dtype(case.dtype)
        is_of_netcdf = dtype.kind in "iuf" and dtype != "f2"
        if dtype.kind == "V" or (disk is ps.NetCDF and not is_of_netcdf):
            continue
        own = None
        if not cases or chance.random() < 0.7:
            chunks = tuple(chance.randint(1, n + 2) for n in case.shape)
            own = disk(chance.choice([None, chunks or None]), filters="none")
            if chunks:
                own = disk(own.chunks, f"/fields/x{len(cases)}", chance.choice(FILTERS))
            if own.chunks is None:
                own = disk(None, own.dataset)
        cases.append(replace(case, disk=own, attrs="", dims=None))
    return Saved(tuple(cases), chance.choice([None, 1, 2, 3]))


def check_restart(session: ps.Session, saved: Saved, path: Path, step: int, writers: int) -> None:
    """Restarts in the other distribution, and finds the values of that step."""
    rank = session.rank
    state = session.restart(saved.group(path, rank, restarted=True))
    assert state.step == step and len(state) == len(saved.cases)
    for number, case in enumerate(saved.at(step)):
        array = case.array(case.target, rank)
        expected = local_of(array, case.target, rank, "C", None)
        expected.raw[...] = 0
        if not holds_nothing(case.target.indices(case.shape, rank)):
            found = local_of(array, case.target, rank, "C", case.stored(writers))
            expected.interior[...] = found.interior
        assert same_bits(state[f"a{number}"], expected.view)


def first_of(path: Path) -> Path:
    """Where the metadata are of what is at `path`, which may be one a server."""
    return Path(str(path).replace("{server}", "0"))


def check_timesteps(saved: Saved, path: Path, steps: list[int], writers: int) -> None:
    """zarr-python and xarray find these steps, and no others; of what servers have, gathered."""
    if path.suffix != ".zarr" and path.is_file():
        check_timesteps_in_file(saved, path, steps, writers)
        return
    if "{server}" in str(path):
        whole = first_of(path).with_name(f"whole-{steps[-1]}")
        penstock("gather", path, whole)
        path = whole
    group = zarr.open_group(path, mode="r")
    assert group["time"][:].tolist() == [step / 4 for step in steps]
    for number in range(len(saved.cases)):
        stored = group[f"a{number}"]
        assert stored.shape[0] == len(steps)
        own = zarr.open_array(path / f"a{number}", mode="r")
        assert own.shape == stored.shape
        for index, step in enumerate(steps):
            expected = saved.at(step)[number].stored(writers)
            assert same_bits(np.asarray(stored[index]), expected), (number, step)
    data = xarray.open_zarr(path)
    assert data.sizes["time"] == len(steps)
    assert set(data.data_vars) == {f"a{n}" for n in range(len(saved.cases))}


def check_timesteps_in_file(saved: Saved, path: Path, steps: list[int], writers: int) -> None:
    """h5py finds these steps, and no others; of NetCDF-4 netCDF4 and xarray, too."""
    with h5py.File(path) as file:
        assert file["time"][:].tolist() == [step / 4 for step in steps]
        for number, case in enumerate(saved.cases):
            stored = file[(case.disk and case.disk.dataset) or f"a{number}"]
            assert stored.shape == (len(steps), *case.shape) and stored.maxshape[0] is None
            for index, step in enumerate(steps):
                expected = saved.at(step)[number].stored(writers)
                assert same_bits(np.asarray(stored[index]), expected), (number, step)
    if path.suffix == ".nc":
        with netCDF4.Dataset(path) as data:
            assert data.dimensions["time"].isunlimited()
            assert len(data.dimensions["time"]) == len(steps)
        for group in ["/", "/fields"]:
            with contextlib.suppress(OSError), xarray.open_dataset(path, group=group) as data:
                assert group != "/" or data.sizes["time"] == len(steps)
                for name, found in data.data_vars.items():
                    number = int(name[1:])
                    expected = np.stack([saved.at(step)[number].stored(writers) for step in steps])
                    assert np.array_equal(found.values, expected, equal_nan=True), name
    assert not ps.verify(path).damages


def kept_checkpoints(path: Path) -> list[str]:
    """The names of the checkpoints of the group at `path`."""
    if path.is_file():
        directory = path.with_name(f"{path.name}.checkpoints")
        return sorted(p.stem for p in directory.iterdir())
    return sorted(p.name for p in (first_of(path) / "checkpoints").iterdir() if p.is_dir())


def live(
    session: ps.Session, saved: Saved, path: Path, local: Callable[[Path], Path] = lambda p: p
) -> None:
    """Timesteps and checkpoints, a look at them, a restart, and other timesteps from there. `local`
    gives a directory with what is at `path`."""
    rank = session.rank
    group = saved.group(path, rank)
    for step in range(3):
        report = session.timestep(group, saved.parts(step, rank), time=step / 4)
        total = sum(math.prod(c.shape) * np.dtype(c.dtype).itemsize for c in saved.cases)
        assert report.bytes == total
        if step == 1:
            session.checkpoint(group, saved.parts(step, rank))
    if rank == 0:
        check_timesteps(saved, local(path), [0, 1, 2], session.size)
    session.barrier()
    check_restart(session, saved, path, 1, session.size)
    session.timestep(group, saved.parts(7, rank), time=7 / 4)
    session.checkpoint(group, saved.parts(7, rank), step=7)
    session.checkpoint(group, saved.parts(8, rank), step=8)
    if rank == 0:
        there = local(path)
        check_timesteps(saved, there, [0, 1, 7], session.size)
        assert kept_checkpoints(there) == ["7", "8"]
    session.barrier()
    check_restart(session, saved, path, 8, session.size)


def change_parts(session: ps.Session, case: Case, chance: random.Random, path: Path) -> None:
    """Writes boxes into an array that is there; what lies outside stays. Reads any boxes."""
    rank, ranks = session.rank, session.size
    array = case.array(case.source, rank)
    local = local_of(array, case.source, rank, case.kind(rank), case.truth())
    session.write(path, array, local.view)
    expected = case.stored(ranks)
    for turn in range(3):
        along = chance.randrange(len(case.shape))
        bounds = sorted(chance.randint(0, case.shape[along]) for _ in range(ranks + 1))
        box = [sorted(chance.randint(0, n) for _ in range(2)) for n in case.shape]
        new = values(case.shape, case.dtype, 500 + turn)
        mine: tuple[slice, ...] = ()
        for other in range(ranks):
            part = [slice(*pair) for pair in box]
            part[along] = slice(bounds[other], bounds[other + 1])
            expected[tuple(part)] = new[tuple(part)]
            if other == rank:
                mine = tuple(part)
        session.write(path, array, np.ascontiguousarray(new[mine]), region=mine)
        wanted = tuple(slice(*sorted(chance.randint(0, n) for _ in range(2))) for n in case.shape)
        assert same_bits(session.read(path, array, region=wanted), expected[wanted])
        session.barrier()
    whole = tuple(slice(None) for _ in case.shape)
    assert same_bits(session.read(path, array, region=whole), expected)


def random_part_case(chance: random.Random, ranks: int) -> Case:
    """A case of an array that has parts."""
    while True:
        case = random_case(chance, ranks, ranks)
        if case.shape:
            return replace(case, attrs="")


def natural(session: ps.Session, chance: random.Random, path: Path) -> None:
    """Without a disk schema the chunks are the shares."""
    ranks = session.size
    mesh = (ranks, 1) if chance.random() < 0.5 else (1, ranks)
    shape = (chance.randint(1, 20), chance.randint(1, 20))
    held = Dealt("BLOCK,BLOCK", mesh)
    case = Case(shape, "f4", held, held, None)
    array = case.array(held, session.rank)
    session.write(path, array, local_of(array, held, session.rank, "F", case.truth()).view)
    if session.rank == 0:
        stored = zarr.open_array(path / "u", mode="r")
        assert stored.chunks == tuple(-(-n // p) for n, p in zip(shape, mesh, strict=True))
        assert same_bits(stored[...], case.truth())
        files = {entry.name for entry in (path / "u").iterdir()}
        assert files - {"zarr.json"} == {f"c.{i}.{j}" for i, j in np.ndindex(stored.cdata_shape)}
    session.barrier()
