"""Timesteps and checkpoints in a file of HDF5 or NetCDF-4."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import h5py
import netCDF4
import numpy as np
import pytest
import rows
import saved
import xarray
from helpers import caught, leftovers, penstock, ramp, same_bits, tree

import penstock as ps

FILES = {"h5": ps.HDF5, "nc": ps.NetCDF}
SHAPE = (7, 5)


def make(name="u", disk=None, **more) -> ps.Array:
    return ps.Array(name, SHAPE, "f8", disk=disk or ps.HDF5((4, 4)), **more)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("file", FILES)
def test_groups_live(place, file, seed):
    chance = random.Random(f"{file} {seed}")
    ranks = chance.choice([1, 2, 3, 5, 8])
    group = saved.random_saved_in_file(chance, ranks, ranks, FILES[file])
    options = {"servers": chance.choice([None, 1, 2, ranks + 1]), "sync": chance.random() < 0.2}
    options["block_bytes"] = chance.choice([64, 1000, 1 << 20])
    ps.run(lambda s: saved.live(s, group, place / f"g.{file}"), ranks, **options)
    assert not leftovers(place)


@pytest.mark.parametrize("seed", range(15))
def test_a_group_restarts_on_other_ranks(place, seed):
    chance = random.Random(1000 + seed)
    writers, readers = chance.choice([1, 2, 4, 6]), chance.choice([1, 3, 5])
    file = chance.choice(list(FILES))
    group = saved.random_saved_in_file(chance, writers, readers, FILES[file])
    path = place / f"g.{file}"

    def save(s):
        s.checkpoint(group.group(path, s.rank), group.parts(3, s.rank), step=3, time=0.5)

    ps.run(save, writers)
    ps.run(lambda s: saved.check_restart(s, group, path, 3, writers), readers)


@pytest.mark.parametrize("seed", range(25))
def test_groups_of_rows(place, seed):
    plan, chance = rows.Plan.random(seed, is_file=True), random.Random(seed)
    writers, readers = chance.randint(1, 5), chance.randint(1, 5)
    options = {"servers": chance.choice([None, 1, 3]), "sync": False, "block_bytes": 64}
    path = place / "g.nc"
    ps.run(lambda s: rows.save(s, plan, path), writers, **options)
    rows.look(plan, path, writers)
    with netCDF4.Dataset(path) as data:
        assert data.dimensions["particle"].isunlimited()
        assert len(data.dimensions["particle"]) == data["p"].shape[0]
    ps.run(lambda s: rows.restart(s, plan, path, writers), readers, **options)
    assert not leftovers(place)


def test_a_data_set_of_xarray(place):
    """With times, coordinates and attributes as CF has them."""
    lat, names = np.linspace(-90, 90, SHAPE[0]), ["a", "bb", "", "é", "z"]
    array = make(
        disk=ps.NetCDF((4, 4), filters="shuffle+deflate"), dims=("lat", "station"),
        attrs={"units": "K", "valid": [1, 2]},
    )  # fmt: skip
    group = ps.Group(
        "run", [array], place / "run.nc", attrs={"title": "of a test"},
        coords={"lat": lat, "station": names}, time_attrs={"units": "days since 2000-01-01"},
    )  # fmt: skip
    with ps.Session() as s:
        for step in range(3):
            s.timestep(group, {"u": ramp(SHAPE) + step}, time=step)
        changed = make(disk=array.disk, dims=("lat", "station"), attrs={"units": "C"})
        renamed = ps.Group("run", [changed], group.path, attrs={"title": "other", "n": 3})
        s.timestep(renamed, {"u": ramp(SHAPE) + 3}, time=3)
    for engine in ("netcdf4", "h5netcdf", "penstock"):
        without = ["station"] if engine == "penstock" else []  # it has no texts
        with xarray.open_dataset(group.path, engine=engine, drop_variables=without) as found:
            assert found.u.dims == ("time", "lat", "station"), engine
            assert same_bits(found.u.values, np.stack([ramp(SHAPE) + step for step in range(4)]))
            assert found.time.values[3] == np.datetime64("2000-01-04")
            assert found.lat.values.tolist() == lat.tolist()
            assert found.u.attrs["units"] == "C" and list(found.u.attrs["valid"]) == [1, 2]
            assert found.attrs["title"] == "other" and found.attrs["n"] == 3
            if engine != "penstock":
                assert found.station.values.tolist() == names


def test_arrays_join_a_group_and_a_file(place):
    """A file that others have made stays; of earlier timesteps new arrays have the fill value."""
    path = place / "x.h5"
    with h5py.File(path, "w") as file:
        file["mesh"] = np.arange(5.0)
        file.attrs["of"] = "others"
    u, v = make("u"), make("v", ps.HDF5((3, 3), "/more/v", "zstd"), fill_value=7.0)
    with ps.Session() as s:
        for step in range(2):
            s.timestep(ps.Group("g", [u], path), {"u": ramp(SHAPE) + step})
        s.timestep(ps.Group("g", [u, v], path), {"u": ramp(SHAPE), "v": -ramp(SHAPE)})
        with pytest.raises(ps.SchemaError, match='"u"'):
            s.timestep(ps.Group("g", [v], path), {"v": ramp(SHAPE)})
        assert same_bits(
            s.read(f"{path}:/more/v", ps.Array("v", (3, *SHAPE), "f8"))[2], -ramp(SHAPE)
        )
    with h5py.File(path) as file:
        assert file["mesh"][:].tolist() == [0, 1, 2, 3, 4] and file.attrs["of"] == "others"
        assert (file["more/v"][:2] == 7).all() and same_bits(file["more/v"][2], -ramp(SHAPE))
        assert file["time"][:].tolist() == [0, 1, 2]
    assert "3 timesteps" in penstock("ls", path)


def test_a_group_that_is_there_gives_natural_arrays_their_chunks(place):
    path = place / "x.nc"
    with ps.Session() as s:
        first = make(disk=ps.NetCDF((3, 2), "/fields/u", "shuffle+deflate"))
        s.timestep(ps.Group("g", [first], path), {"u": ramp(SHAPE)})
        s.timestep(ps.Group("g", [ps.Array("u", SHAPE, "f8")], path), {"u": -ramp(SHAPE)})
    with netCDF4.Dataset(path) as data:
        assert data["fields/u"].chunking() == [1, 3, 2]
        assert same_bits(np.asarray(data["fields/u"][1]), -ramp(SHAPE))


@pytest.mark.parametrize(
    "arrays",
    [
        [make(disk=ps.HDF5((4, 4))), make("v", ps.NetCDF((4, 4)))],
        [make(disk=ps.HDF5((4, 4))), make("v", ps.Chunks((4, 4)))],
        [make(disk=ps.HDF5((4, 4), "/x")), make("v", ps.HDF5((4, 4), "x"))],
        [make(disk=ps.HDF5((4, 4), "/time"))],
        [make(disk=ps.HDF5((4, 4), filters="lzf"))],
    ],
    ids=["both forms", "a store", "one dataset", "time", "a filter"],
)
def test_groups_that_are_none(place, arrays):
    values = {array.name: ramp(SHAPE) for array in arrays}
    with ps.Session() as s:
        error = caught(lambda: s.timestep(ps.Group("g", arrays, place / "x.h5"), values))
    assert isinstance(error, (ps.SchemaError, ps.UnsupportedError)), error
    assert not os.listdir(place)


def test_what_is_there_is_not_written_over(place):
    path, part = place / "x.h5", {"u": ramp(SHAPE)}
    group = ps.Group("g", [make()], path)
    with ps.Session() as s:
        s.timestep(group, part)
        s.checkpoint(group, part, step=4)
        before = tree(place)
        checkpoint = place / "x.h5.checkpoints" / "4.h5"
        for other in (
            [make(disk=ps.HDF5((2, 2)))],
            [make(disk=ps.HDF5((4, 4), "/other"))],
            [make(disk=ps.HDF5((4, 4), filters="shuffle+deflate"))],
            [make(disk=ps.NetCDF((4, 4)))],
            [make("v")],
            [ps.Array("u", (7, 6), "f8", disk=ps.HDF5((4, 4)))],
            [ps.Array("u", SHAPE, "f4", disk=ps.HDF5((4, 4)))],
        ):
            values = {a.name: np.zeros(a.shape, a.dtype) for a in other}
            with pytest.raises(ps.SchemaError):
                s.timestep(ps.Group("g", other, path), values)
        for where in (path, checkpoint, place / "x.h5.checkpoints" / "new.h5"):
            with pytest.raises(ps.SchemaError):
                s.write(where, make(), ramp(SHAPE))
        series = s.open(f"{path}:/u")
        with pytest.raises(ps.SchemaError, match="timestep"):
            s.write(f"{path}:/u", series, np.zeros((1, 1, 5)), region=(0, 0))
        assert tree(place) == before
        s.write(f"{path}:/beside", make("beside"), ramp(SHAPE))
        s.timestep(group, part)
    with h5py.File(path) as file:
        assert file["u"].shape == (2, *SHAPE) and same_bits(file["beside"][:], ramp(SHAPE))


def test_another_program_is_noticed(place):
    path, part = place / "x.h5", {"u": ramp(SHAPE)}
    group = ps.Group("g", [make()], path)
    with ps.Session() as s:
        s.timestep(group, part)
        with h5py.File(path, "a"), pytest.raises(ps.BusyError):
            s.timestep(group, part)
        with ps.Session() as other:
            other.timestep(group, part)
        with pytest.raises(ps.BusyError, match="another job"):
            s.timestep(group, part)
        with h5py.File(path, "a") as file:
            file["u"].resize(5, axis=0)
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="another program"):
        s.timestep(group, part)


def test_a_restart_drops_what_is_newer(place):
    """Also in the middle of a chunk of several timesteps, and what h5py then adds is clean."""
    arrays = [make(), make("v", ps.HDF5((4, 4), filters="shuffle+deflate"))]
    group = ps.Group("g", arrays, place / "x.h5", time_chunk=4, keep=3)
    part = lambda step: {"u": ramp(SHAPE) + step, "v": -ramp(SHAPE) - step}  # noqa: E731
    with ps.Session() as s:
        for step in range(6):
            s.timestep(group, part(step))
            s.checkpoint(group, part(step))
        assert saved.kept_checkpoints(group.path) == ["3", "4", "5"]
        state = s.restart(group, step=4)
        assert same_bits(state["v"], part(4)["v"]) and state.timesteps == 5
        s.checkpoint(group, part(40), step=40)
        assert saved.kept_checkpoints(group.path) == ["3", "4", "40"]
        s.timestep(group, part(50), time=50)
    with h5py.File(group.path) as file:
        assert file["time"][:].tolist() == [0, 1, 2, 3, 4, 50]
        for index, step in enumerate([0, 1, 2, 3, 4, 50]):
            assert same_bits(file["u"][index], part(step)["u"])
            assert same_bits(file["v"][index], part(step)["v"])
    verified = ps.verify(group.path)
    assert (verified.timesteps, verified.checkpoints) == (6, 3) and not verified.damages


VICTIM = """
import sys, numpy as np, penstock as ps
u = ps.Array("u", (300, 300), "f8", disk=ps.NetCDF((100, 100)))
v = ps.Array("v", (300, 300), "f8", disk=ps.NetCDF((150, 300), filters="shuffle+deflate:1"))
group = ps.Group("g", [u, v], sys.argv[1], time_chunk=3)
with ps.Session(sync=False) as s:
    state = s.restart(group)
    step = 0 if state is None else state.timesteps
    print("ready", flush=True)
    while True:
        part = np.full((300, 300), float(step))
        s.timestep(group, {"u": part, "v": -part})
        s.checkpoint(group, {"u": part, "v": -part}, step=step)
        step += 1
"""


@pytest.mark.parametrize("seed", range(6))
def test_killed_saves_leave_whole_moments(place, seed):
    """Kills follow each other: what a kill leaves, the next life goes on with."""
    chance, path = random.Random(seed), place / "x.nc"
    for _ in range(3):
        victim = [sys.executable, "-c", VICTIM, str(path)]
        job = subprocess.Popen(victim, stdout=subprocess.PIPE)
        assert job.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.01, 0.4))
        job.send_signal(signal.SIGKILL)
        job.communicate()
        if not path.exists():
            continue
        with ps.Session() as s:
            for name, sign in (("u", 1), ("v", -1)):
                series = s.open(f"{path}:/{name}")
                found = s.read(f"{path}:/{name}", series)
                for step, part in enumerate(found):
                    assert (part == sign * step).all(), (name, step)
    with ps.Session() as s:
        u = ps.Array("u", (300, 300), "f8", disk=ps.NetCDF((100, 100)))
        v = ps.Array("v", (300, 300), "f8", disk=ps.NetCDF((150, 300), filters="shuffle+deflate:1"))
        group = ps.Group("g", [u, v], path, time_chunk=3)
        s.restart(group)
        s.timestep(group, {"u": np.zeros((300, 300)), "v": np.zeros((300, 300))}, time=1e6)
    with netCDF4.Dataset(path) as data:
        steps = len(data.dimensions["time"])
        assert data["u"].shape[0] == data["v"].shape[0] == steps
        for step in range(steps - 1):
            assert (data["u"][step] == step).all() and (data["v"][step] == -step).all()
    assert not leftovers(place)
