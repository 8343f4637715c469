"""Groups in buckets: timesteps and checkpoints, saved and read as in directories; looked at with
other programs; killed, and under a service that answers badly."""

from __future__ import annotations

import json
import random
from pathlib import Path

import bucket_saver
import numpy as np
import pytest
import saved
import xarray as xr
import zarr
from buckets import (
    BUCKET,
    Service,
    Trouble,
    are_in_order,
    before,
    gofakes3,
    kill_numbers,
    killed_at,
    reached,
    url,
)
from helpers import penstock, same_bits, tree
from rows import Plan, look, restart, save

import penstock as ps


@pytest.fixture(scope="module")
def bucket():
    """The quicker service, where it can be had: a save makes many requests."""
    with reached(gofakes3()) as running:
        yield running


def fetched(bucket: Service, path: str, to: Path) -> Path:
    """A directory with all objects below a key."""
    for key in bucket.keys(f"{path}/"):
        file = to / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bucket.read(f"{path}/{key}"))
    return to


# ---------------------------------------------------------------------------------------------
# As in a directory
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_groups_live(bucket: Service, place, seed):
    chance = random.Random(seed)
    ranks = chance.choice([1, 2, 3, 5])
    group, path = saved.random_saved(chance, ranks, ranks), f"live-{seed}.zarr"
    looks = iter(range(2))
    local = lambda _: fetched(bucket, path, place / str(next(looks)))  # noqa: E731
    options = {"servers": chance.choice([None, 2]), "block_bytes": chance.choice([64, 1 << 20])}
    ps.run(lambda s: saved.live(s, group, url(path), local), ranks, **options)
    assert ps.verify(url(path)).is_well
    assert not [key for key in bucket.keys(f"{path}/") if key.endswith("/.penstock")]


@pytest.mark.parametrize("seed", range(6))
def test_it_holds_what_a_directory_holds(bucket: Service, place, seed):
    """The same arrays, chunk by chunk, and the same metadata; and it is restarted from, on other
    ranks."""
    plan, chance, path = Plan.random(seed), random.Random(seed), f"rows-{seed}.zarr"
    writers, readers = chance.randint(1, 4), chance.randint(1, 4)
    for there in (url(path), str(place / "g")):
        ps.run(lambda s, there=there: save(s, plan, there), writers, sync=False)
    local = fetched(bucket, path, place / "fetched")
    look(plan, local, writers)
    assert nodes(local) == nodes(place / "g")
    ps.run(lambda s: restart(s, plan, url(path), writers), readers)
    said = ps.verify(url(path))
    assert said.is_well and said.compared == said.chunks
    assert (said.timesteps, said.checkpoints) == (plan.steps, 1)
    texts = {"drop_variables": "name"}
    with xr.open_dataset(url(path), engine="penstock", **texts) as found:
        xr.testing.assert_identical(found.load(), xr.open_zarr(place / "g", **texts).load())


def nodes(path: Path) -> dict[str, object]:
    """What other programs see, the metadata as values."""
    files = {name: data for name, data in tree(path).items() if ".penstock" not in name}
    files = {name: data for name, data in files.items() if not name.endswith(".sums")}
    return {n: json.loads(d) if n.endswith(".json") else d for n, d in files.items()}


def rows(name="u", shape=(8, 6), ranks=1, **more) -> ps.Array:
    memory = ps.Distribution("BLOCK,*", (ranks,)) if ranks > 1 else None
    return ps.Array(name, shape, "f8", memory=memory, **more)


def group_of(path: str, *arrays: ps.Array, **more) -> ps.Group:
    return ps.Group("g", arrays or [rows()], url(path), **more)


def full(value: float) -> dict[str, np.ndarray]:
    return {"u": np.full((8, 6), float(value))}


def test_other_groups_and_arrays_are_left_alone(bucket: Service):
    with ps.Session() as s:
        s.timestep(group_of("alone.zarr"), full(0))
        s.checkpoint(group_of("alone.zarr"), full(0), step=5)
        there = {key: bucket.read(f"alone.zarr/{key}") for key in bucket.keys("alone.zarr/")}
        for other in (
            rows(shape=(8, 7)),
            rows(disk=ps.Chunks((2, 6))),
            rows("v"),
        ):
            with pytest.raises(ps.SchemaError):
                s.timestep(group_of("alone.zarr", other), {other.name: np.zeros(other.shape)})
        for path, name in (
            ("alone.zarr", "u"),
            ("alone.zarr", "time"),
            ("alone.zarr/checkpoints", "w"),
            ("alone.zarr/checkpoints/5", "u"),
        ):
            with pytest.raises(ps.SchemaError):
                s.write(url(path), rows(name), np.zeros((8, 6)))
        assert there == {k: bucket.read(f"alone.zarr/{k}") for k in bucket.keys("alone.zarr/")}
        s.write(url("alone.zarr"), rows("v"), np.ones((8, 6)))
        s.timestep(group_of("alone.zarr"), full(1))
    found = zarr.open_group(bucket.zarr("alone.zarr"), mode="r")
    assert found["u"][:, 0, 0].tolist() == [0, 1] and (found["v"][...] == 1).all()


def test_a_group_of_another_program_becomes_one(bucket: Service):
    theirs = zarr.create_group(bucket.zarr("theirs.zarr"), attributes={"of": "them"})
    theirs.create_array("u", data=np.ones(3))
    theirs.create_array("more", data=np.ones(3))
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="another path"):
            s.timestep(group_of("theirs.zarr"), full(0))
        s.timestep(group_of("theirs.zarr", rows("v")), {"v": full(2)["u"]})
        group = zarr.open_group(bucket.zarr("theirs.zarr"), mode="r")
        assert group["v"].shape == (1, 8, 6) and group["more"][:].tolist() == [1, 1, 1]
        assert group.attrs["of"] == "them"
        zarr.open_group(bucket.zarr("theirs.zarr"))["more"].attrs["units"] = "m"
        zarr.open_group(bucket.zarr("theirs.zarr")).create_array("later", data=np.ones(2))
        s.timestep(group_of("theirs.zarr", rows("v"), rows()), {"v": full(3)["u"], **full(4)})
    group = zarr.open_group(bucket.zarr("theirs.zarr"), mode="r", use_consolidated=True)
    assert group["more"].attrs["units"] == "m" and group["later"].shape == (2,)


def test_arrays_and_attributes_come_later(bucket: Service):
    coords = {"x": np.arange(6.0), "station": ["Zürich", "Bern"]}
    with ps.Session() as s:
        s.timestep(group_of("later.zarr", time_chunk=3), full(0))
        two = [rows(), rows("v", disk=ps.Chunks((4, 6), codec="zstd:1"))]
        group = group_of("later.zarr", *two, coords=coords, attrs={"title": "run"})
        for step in (1, 2, 3):
            s.timestep(group, {**full(step), "v": full(step)["u"]})
        other = group_of("later.zarr", *two, coords={"x": np.zeros(6)})
        with ps.Session() as new, pytest.raises(ps.SchemaError, match="values"):
            new.timestep(other, {**full(4), "v": full(4)["u"]})
    with xr.open_zarr(bucket.zarr("later.zarr")) as found:
        assert found.attrs["title"] == "run" and found.station.values.tolist() == ["Zürich", "Bern"]
        assert found.u[:, 0, 0].values.tolist() == [0, 1, 2, 3]
        assert found.v[1:, 0, 0].values.tolist() == [1, 2, 3]
    assert ps.verify(url("later.zarr")).is_well


def test_moments_after_a_restart_are_dropped(bucket: Service):
    group = group_of("dropped.zarr", time_chunk=2, keep=9)
    with ps.Session() as s:
        for step in range(7):
            s.timestep(group, full(step))
            s.checkpoint(group, full(step), step=step)
        assert (s.restart(group, step=2)["u"] == 2).all()
        s.timestep(group, full(30))
        names = {key.split("/")[0] for key in bucket.keys("dropped.zarr/checkpoints/")}
        assert names == {"zarr.json", "0", "1", "2"}
        assert s.restart(group).step == 2
    found = zarr.open_group(bucket.zarr("dropped.zarr"), mode="r", use_consolidated=True)
    assert found["u"][:, 0, 0].tolist() == [0, 1, 2, 30]
    assert set(bucket.keys("dropped.zarr/u/c/")) == {"0/0/0", "1/0/0"}
    assert ps.verify(url("dropped.zarr")).is_well


def test_large_chunks(bucket: Service):
    """They go by several requests, and two timesteps share one."""
    whole = np.arange(3.0 * (1 << 19)).reshape(3, 1 << 19)  # 12 MiB
    u = ps.Array("u", whole.shape, "f8", disk=ps.Chunks(whole.shape))
    group = group_of("large.zarr", u, time_chunk=2)
    with ps.Session() as s:
        for step in range(3):
            s.timestep(group, {"u": whole + step})
    found = zarr.open_group(bucket.zarr("large.zarr"), mode="r")["u"]
    assert all(same_bits(found[step], whole + step) for step in range(3))
    assert ps.verify(url("large.zarr")).is_well


def test_split_saves(bucket: Service):
    group = group_of("split.zarr")
    with ps.Session() as s:
        for step in range(3):
            s.begin_timestep(group, full(step)).end()
        s.begin_checkpoint(group, full(9), step=9).end()
        assert (s.restart(group)["u"] == 9).all()
    assert zarr.open_group(bucket.zarr("split.zarr"))["u"][:, 0, 0].tolist() == [0, 1, 2]


def test_what_is_looked_at(bucket: Service):
    with ps.Session() as s:
        s.timestep(group_of("look.zarr"), full(1))
        s.checkpoint(group_of("look.zarr"), full(2), step=7)
    assert "1 timestep" in penstock("info", url("look.zarr"))
    said = penstock("ls", url("look.zarr"))
    assert "checkpoints/7" in said and ".penstock" not in said
    assert "all is well" in penstock("verify", url("look.zarr"))
    found = {node.path for node in ps.ls(url("look.zarr"))}
    assert found == {"", "u", "time", "checkpoints", "checkpoints/7", "checkpoints/7/u"}


def test_damage_is_found(bucket: Service):
    u = rows(disk=ps.Chunks((4, 6)))
    group = group_of("damaged.zarr", u)
    with ps.Session() as s:
        s.timestep(group, full(1))
        for step in (1, 2):
            s.checkpoint(group, full(step), step=step)
        for place in ("u/c/0/1/0", "checkpoints/2/u/c/1/0"):
            data = bytearray(bucket.read(f"damaged.zarr/{place}"))
            data[77] ^= 1
            bucket.write(f"damaged.zarr/{place}", bytes(data))
        with pytest.raises(ps.DamagedError, match="checksum") as error:
            s.restart(group)
        assert error.value.path == url("damaged.zarr/checkpoints/2/u/c/1/0")
        assert (s.restart(group, step=1)["u"] == 1).all()
    assert [e.kind for e in ps.verify(url("damaged.zarr")).damages] == ["Damaged"] * 2


def test_the_record_is_an_array_of_zarr(bucket: Service):
    """Stores that take Zarr's keys alone have it, too."""
    with ps.Session() as s:
        for step in range(2):
            s.timestep(group_of("record.zarr"), full(step))
        s.checkpoint(group_of("record.zarr"), full(2))
    for key in bucket.keys("record.zarr/"):
        assert key.endswith("zarr.json") or "/c/" in key, key
    known = zarr.open_array(bucket.zarr("record.zarr/.penstock/record"), mode="r")
    assert known.shape == (2,) and known.attrs["penstock"]["timesteps"] == 2
    assert [len(json.loads(text)["u"]) for text in known[:]] == [8, 8]


# ---------------------------------------------------------------------------------------------
# Trouble
# ---------------------------------------------------------------------------------------------


def test_a_group_is_saved_to_by_one(bucket: Service):
    group, key = group_of("leased.zarr"), "leased.zarr/.penstock/record/.penstock"
    lease = {"id": "0", "host": "elsewhere", "boot": 1, "process": 1, "renewals": 0, "note": None}
    with ps.Session() as s, ps.Session() as other:
        s.timestep(group, full(0))
        bucket.write(key, json.dumps(lease).encode())
        with pytest.raises(ps.BusyError, match="process 1 on elsewhere"):
            s.timestep(group, full(1))
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
        other.timestep(group, full(1))
        with pytest.raises(ps.BusyError, match="another job"):
            s.timestep(group, full(2))


BEFORE = ((0.0, 1.0, 2.0), (1,))
# What a kill may leave of each kind of save.
EXPECTED = {
    "new": [None, ((), ()), ((9.0,), ())],
    "timestep": [BEFORE, ((0.0, 1.0, 2.0, 9.0), (1,))],
    "checkpoint": [BEFORE, ((0.0, 1.0, 2.0), (1, 9)), ((0.0, 1.0, 2.0), (9,))],
    "restarted": [BEFORE, ((0.0,), (1,)), ((0.0, 9.0), (1,))],
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_save_that_is_killed_at_any_request(bucket: Service, place, kind):
    """The group is the old or the new one, for Penstock and for others, and the next save goes on.
    Requests are held, so each of those that change something is once the last that does."""
    path = f"killed-{kind}.zarr"
    if kind != "new":
        for what, value in (("timestep", 0), ("checkpoint", 1), ("timestep", 1), ("timestep", 2)):
            bucket_saver.save(url(path), what, value)
    start = {key: bucket.read(f"{path}/{key}") for key in bucket.keys(f"{path}/")}
    states: list[State | None] = []
    theirs: list[State | None] = []
    for number in kill_numbers(path):
        bucket.clear(f"{path}/")
        for key, data in start.items():
            bucket.write(f"{path}/{key}", data)
        is_done, seen = killed_at(number, bucket.port, bucket_saver.save, url(path), kind, 9)
        states.append(state_of(path))
        theirs.append(state_for_others(bucket, path))
        bucket_saver.save(url(path), "timestep", 50)
        times, steps = states[-1] or ((), ())
        assert state_of(path) == state_for_others(bucket, path) == ((*times, 50.0), steps), seen
        said = ps.verify(url(path))
        assert said.is_well and said.compared == said.chunks, said
        if is_done:
            break
    assert is_done
    expected = EXPECTED[kind]
    assert are_in_order(states, expected) and set(theirs) <= set(expected)


State = tuple[tuple[float, ...], tuple[int, ...]]


def state_of(path: str) -> State | None:
    """The value of each timestep, and the steps of checkpoints, as Penstock sees them."""
    try:
        with ps.Session() as s:
            series = s.open(url(path), "u")
            found, rows = s.read(url(path), series), s.read(url(path), s.open(url(path), "p"))
    except ps.MissingError:
        return None
    values = tuple(found[:, 0, 0].tolist())
    assert (found == np.array(values).reshape(-1, 1, 1)).all()
    assert rows.tolist() == [value for value in values for _ in range(5)]
    steps = [int(n.path.split("/")[1]) for n in ps.ls(url(path)) if n.path.count("/") == 1]
    with ps.Session() as s:
        for step in steps:
            there = url(f"{path}/checkpoints/{step}")
            assert (s.read(there, s.open(there, "u")) == step).all()
    return values, tuple(sorted(steps))


def state_for_others(bucket: Service, path: str) -> State | None:
    """The same, as zarr-python sees it."""
    try:
        group = zarr.open_group(bucket.zarr(path), mode="r", use_consolidated=True)
    except (FileNotFoundError, ValueError):
        return None
    values = tuple(group["u"][:, 0, 0].tolist())
    assert (group["u"][...] == np.array(values).reshape(-1, 1, 1)).all()
    assert group["p"][...].tolist() == [value for value in values for _ in range(5)]
    steps = tuple(sorted(int(name) for name in group["checkpoints"].group_keys()))
    for step in steps:
        assert (group[f"checkpoints/{step}/u"][...] == step).all()
    return values, steps


@pytest.mark.parametrize("seed", range(3))
def test_a_service_that_answers_badly(bucket: Service, monkeypatch, seed):
    trouble, path = Trouble(seed, 0.1), f"bad-{seed}.zarr"
    group = group_of(path, rows(ranks=2, disk=ps.Chunks((3, 6))), time_chunk=2)

    def main(s):
        for step in range(3):
            part = {"u": np.full((4, 6), float(step))}
            s.timestep(group, part)
            s.checkpoint(group, part, step=step)
        return s.restart(group)["u"]

    with before(bucket.port, trouble) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for part in ps.run(main, 2):
            assert same_bits(part, np.full((4, 6), 2.0))
    assert trouble.met
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    found = zarr.open_group(bucket.zarr(path), mode="r", use_consolidated=True)
    assert found["u"][:, 0, 0].tolist() == [0, 1, 2]
    assert sorted(found["checkpoints"].group_keys()) == ["1", "2"]
    assert ps.verify(url(path)).is_well
