"""Icechunk repositories: arrays, parts of them and groups, one commit a call; looked at with other
programs; killed, and in conflict."""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import repositories
import saved
import xarray as xr
import zarr
from buckets import BUCKET, FORMS, SHAPE, code_of, gofakes3, reached
from conformance import random_block_bytes, random_case, read, write
from helpers import DTYPES, fails, same_bits, tree, values
from repositories import fetched, run
from rows import Plan, look, restart
from rows import save as save_rows

import penstock as ps
import penstock.xarray

icechunk = pytest.importorskip("icechunk")

from penstock import _icechunk  # noqa: E402

MPIEXEC = Path(sys.executable).with_name("mpiexec")

icechunk.set_logs_filter("error")  # it warns of repositories in directories


@pytest.fixture(scope="module", params=["moto", "gofakes3"])
def bucket(request):
    program = gofakes3() if request.param == "gofakes3" else None
    if request.param == "gofakes3" and program is None:
        pytest.skip("needs gofakes3, or Go to build it")
    with reached(program) as running:
        yield running


@pytest.fixture(params=["memory", "directory"])
def repo(request, place: Path):
    if request.param == "memory":
        return icechunk.Repository.create(icechunk.in_memory_storage())
    return in_directory(place)


@pytest.fixture
def either(request, place: Path):
    """In memory for even seeds, in a directory for odd ones."""
    if request.getfixturevalue("seed") % 2 == 0:
        return icechunk.Repository.create(icechunk.in_memory_storage())
    return in_directory(place)


def in_directory(place: Path) -> icechunk.Repository:
    return icechunk.Repository.open_or_create(
        icechunk.local_filesystem_storage(str(place / "repo"))
    )


def array(disk=None, dtype="f8", shape=SHAPE, ranks=1, name="u", dists=None) -> ps.Array:
    dims = dists or ",".join(["BLOCK"] + ["*"] * (len(shape) - 1))
    memory = ps.Distribution(dims, (ranks,)) if shape else None
    return ps.Array(name, shape, dtype, memory=memory, disk=disk)


def part(s, u: ps.Array, whole: np.ndarray) -> np.ndarray:
    """What a rank holds of the whole."""
    return np.ascontiguousarray(whole[u.local_slices(s.rank)]) if u.shape else whole


def save(path, u: ps.Array, whole: np.ndarray, ranks: int = 1, **options) -> None:
    ps.run(lambda s: s.write(path, u, part(s, u, whole)), ranks, **options)


def load(path, u: ps.Array, ranks: int = 1) -> np.ndarray:
    everything = tuple(slice(0, extent) for extent in u.shape)
    found = ps.run(lambda s: s.read(path, u, region=everything), ranks)
    assert all(same_bits(each, found[0]) for each in found)
    return found[0]


def theirs(repo, **version) -> zarr.Group:
    """The root group, as zarr-python sees it."""
    return zarr.open_group(repo.readonly_session(**version or {"branch": "main"}).store, mode="r")


def history(repo) -> list[str]:
    """The messages of the commits, the first one first; without that of the repository itself."""
    return [each.message for each in repo.ancestry(branch="main")][-2::-1]


# ---------------------------------------------------------------------------------------------
# Written and read
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_others_read_it(repo, form, ranks):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 1)
    u = array(FORMS[form], ranks=ranks)
    save(store / "fields", u, whole, ranks, servers=2)
    assert same_bits(theirs(repo)["fields/u"][...], whole)
    for readers in (1, 2):
        assert same_bits(load(store / "fields", array(ranks=readers), readers), whole)
    assert history(repo) == ["write u to fields"]


@pytest.mark.parametrize("seed", range(40))
def test_any_array_of_any_distribution(either, seed):
    """Blocks that do not meet chunk edges, halos, boxes, empty shares; read by other ranks."""
    chance = random.Random(seed)
    writers, readers = chance.randint(1, 5), chance.randint(1, 5)
    case = random_case(chance, writers, readers)
    while not (case.disk is None or isinstance(case.disk, ps.Chunks)):
        case = random_case(chance, writers, readers)
    store = ps.Icechunk(either)
    options = {"block_bytes": random_block_bytes(chance, case), "servers": chance.randint(1, 4)}
    ps.run(lambda s: write(s, case, store / "a"), writers, **options)
    assert same_bits(theirs(either)["a/u"][...], case.stored(writers))
    ps.run(lambda s: read(s, case, store / "a", writers), readers, **options)
    assert history(either) == ["write u to a"]


@pytest.mark.parametrize("seed", range(10))
def test_any_parts(either, seed):
    chance = random.Random(2000 + seed)
    ranks = chance.choice([1, 2, 3, 5])
    case = saved.random_part_case(chance, ranks)
    while not isinstance(case.disk, ps.Chunks):
        case = saved.random_part_case(chance, ranks)
    draws = [random.Random(seed) for _ in range(ranks)]
    store = ps.Icechunk(either)
    body = lambda s: saved.change_parts(s, case, draws[s.rank], store / "u")  # noqa: E731
    ps.run(body, ranks, block_bytes=chance.choice([16, 200, 1 << 20]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type(repo, dtype):
    store, whole = ps.Icechunk(repo), values(SHAPE, dtype, 2)
    save(store, array(FORMS["zstd"], dtype), whole)
    assert same_bits(theirs(repo)["u"][...], whole)
    assert same_bits(load(store, array(dtype=dtype)), whole)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2), (13, 1)], ids=str)
def test_unusual_shapes(repo, shape):
    store = ps.Icechunk(repo)
    u = array(ps.Chunks(tuple(max(n, 1) for n in shape)), shape=shape, ranks=2 if shape else 1)
    for seed in (1, 2, 3):
        whole = values(shape, "f8", seed)
        save(store, u, whole, 2 if shape else 1)
        assert same_bits(load(store, u, 2 if shape else 1), whole)
        assert same_bits(theirs(repo)["u"][...], whole)


def test_an_array_that_replaces_another_has_nothing_of_it(repo, chance):
    """Of any shape, and with parts that nobody writes: these are of the fill value."""
    store = ps.Icechunk(repo)
    with ps.Session(servers=2) as s:
        for seed in range(12):
            shape = tuple(chance.randint(1, 7) for _ in range(chance.randint(1, 3)))
            whole, held = np.zeros(shape), values(shape, "f8", seed)
            extents = tuple(slice(0, chance.randint(0, n)) for n in shape)
            boxes = ps.Boxes((0,) * len(shape), tuple(e.stop for e in extents))
            chunks = ps.Chunks(tuple(chance.randint(1, 4) for _ in shape))
            u = ps.Array("u", shape, "f8", memory=boxes, disk=chunks)
            s.write(store / "deep/er", u, held[extents])
            whole[extents] = held[extents]
            assert same_bits(theirs(repo)["deep/er/u"][...], whole)
            assert same_bits(load(store / "deep/er", array(shape=shape)), whole)
    assert len(history(repo)) == 12


@pytest.mark.parametrize("form", FORMS)
def test_parts(repo, form):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 5)
    u = array(FORMS[form])
    save(store / "fields", u, whole)
    cuts = [(0, 3), (3, 3), (3, 7)]

    def change(s):
        first, end = cuts[s.rank]
        region = np.s_[first:end, 1:5, 2:10]
        s.write(store / "fields", u, -whole[region], region=region)
        back = s.read(store / "fields", u, region=np.s_[0:7, 0:6, 0:11])
        return back

    found = ps.run(change, 3, servers=2)
    whole[:, 1:5, 2:10] = -whole[:, 1:5, 2:10]
    assert all(same_bits(each, whole) for each in found)
    assert same_bits(theirs(repo)["fields/u"][...], whole)
    assert history(repo) == ["write u to fields", "write a part of u to fields"]


def test_a_part_of_an_array_of_zarr_python(repo):
    whole, session = values(SHAPE, "f4", 6), repo.writable_session("main")
    group = zarr.open_group(session.store, mode="w")
    made = group.create_array("u", shape=SHAPE, chunks=(3, 4, 5), dtype="f4")
    made[...] = whole
    session.commit("theirs")
    store = ps.Icechunk(repo)
    with ps.Session() as s:
        u = s.open(store / "u")
        s.write(store, u, np.ones((2, 2, 2), "f4"), region=np.s_[2:4, 3:5, 4:6])
    whole[2:4, 3:5, 4:6] = 1
    assert same_bits(theirs(repo)["u"][...], whole)
    assert same_bits(load(store, u), whole)


def test_split_calls(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 7)
    with ps.Session() as s:
        for background in ("disk", "all", "none"):
            call = s.begin_write(store, array(FORMS["plain"]), whole, background=background)
            call.end()
            read = s.begin_read(store, array(), background=background)
            assert same_bits(read.end(), whole)
            whole = -whole
    assert len(history(repo)) == 3


def test_a_split_call_sees_one_snapshot(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 7)
    with ps.Session() as s:
        s.write(store, array(FORMS["plain"]), whole)
        call = s.begin_write(store, array(FORMS["plain"]), -whole)
        assert same_bits(theirs(repo)["u"][...], whole)
        call.end()
        call = s.begin_read(store, array())
        session = repo.writable_session("main")
        zarr.open_group(session.store, mode="r+")["u"][...] = whole
        session.commit("theirs")
        assert same_bits(call.end(), -whole)
        assert same_bits(s.read(store, array()), whole)


def test_what_is_looked_at(repo, place: Path):
    store = ps.Icechunk(repo)
    with ps.Session() as s:
        for group, name in ((store / "a", "u"), (store / "a", "v"), (store / "a" / "deep", "w")):
            s.write(group, array(FORMS["zstd"], name=name), values(SHAPE, "f8", 4))
        assert s.open(store / "a" / "v").shape == SHAPE
        assert s.open(store / "a", "v").shape == SHAPE
        with s.open(store / "a", "u", mode="r") as opened:
            part = np.s_[1:3, 2:4, 5:9]
            assert same_bits(opened.read(part), values(SHAPE, "f8", 4)[part])
        with pytest.raises(ps.UnsupportedError, match=r"Session\.write"):
            s.open(store / "a", "u", mode="r+")
    found = {node.path for node in ps.ls(store)}
    assert found == {"", "a", "a/u", "a/v", "a/deep", "a/deep/w"}
    assert ps.verify(store / "a").chunks == 3 * 12
    ps.copy(store / "a", place / "c.zarr", chunks=(7, 2, 11))
    assert same_bits(zarr.open_group(place / "c.zarr")["deep/w"][...], values(SHAPE, "f8", 4))
    ps.copy(store / "a" / "u", place / "u.npy")
    assert same_bits(np.load(place / "u.npy"), values(SHAPE, "f8", 4))


def test_xarray(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 4)
    with ps.Session() as s:
        u = ps.Array("u", SHAPE, "f8", dims=("z", "y", "x"), disk=FORMS["shards"])
        s.write(store / "data", u, whole, attrs={"units": "K"})
    options = {"consolidated": False, "group": "data"}
    other = xr.open_zarr(repo.readonly_session("main").store, **options)
    assert other.u.attrs["units"] == "K" and same_bits(other.u.values, whole)
    opened = xr.open_dataset(store / "data", engine=penstock.xarray.Backend)
    xr.testing.assert_identical(opened.load(), other.load())


def test_in_a_service(bucket):
    storage = icechunk.s3_storage(
        bucket=BUCKET,
        prefix="repo",
        endpoint_url=bucket.url,
        region="us-east-1",
        allow_http=True,
        force_path_style=True,
        access_key_id="tests",
        secret_access_key="tests",
    )
    whole = values(SHAPE, "f8", 3)
    for form in ("zstd", "shards"):
        save(ps.Icechunk(storage) / form, array(FORMS[form], ranks=3), whole, 3)
    repo = icechunk.Repository.open(storage)
    assert same_bits(theirs(repo)["zstd/u"][...], whole)
    assert same_bits(theirs(repo)["shards/u"][...], whole)
    assert same_bits(load(ps.Icechunk(repo) / "zstd", array(ranks=2), 2), whole)
    assert history(repo) == ["write u to zstd", "write u to shards"]


# ---------------------------------------------------------------------------------------------
# Commits
# ---------------------------------------------------------------------------------------------


def test_versions(repo):
    store = ps.Icechunk(repo)
    with ps.Session() as s:
        for seed in (1, 2, 3):
            s.write(store, array(FORMS["plain"]), values(SHAPE, "f8", seed))
    last, second, first, _ = [each.id for each in repo.ancestry(branch="main")]
    repo.create_tag("second", second)
    repo.create_branch("other", first)
    assert same_bits(load(ps.Icechunk(repo, tag="second"), array()), values(SHAPE, "f8", 2))
    old = ps.Icechunk(repo, snapshot=first)
    assert same_bits(load(old, array()), values(SHAPE, "f8", 1))
    other = ps.Icechunk(repo, branch="other")
    save(other / "new", array(FORMS["plain"]), values(SHAPE, "f8", 9))
    assert same_bits(load(other, array()), values(SHAPE, "f8", 1))
    assert repo.lookup_branch("main") == last
    for fixed in (old, ps.Icechunk(repo, tag="second")):
        fails(ps.ReadOnlyError, lambda s, at=fixed: s.write(at, *alone_on(s)), "branch")
    for missing in ({"branch": "no"}, {"tag": "no"}, {"snapshot": "no"}):
        with pytest.raises(ps.MissingError, match="'no'"):
            ps.Icechunk(repo, **missing)


def alone_on(s) -> tuple[ps.Array, np.ndarray]:
    """An array that is all on rank 0."""
    u = ps.Array("u", (4,), "f8", disk=ps.Chunks((2,)))
    return u, np.ones(u.local_shape(s.rank))


def test_several_calls_are_one_commit(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 1)
    u, v = array(FORMS["plain"], ranks=2), array(FORMS["zstd"], ranks=2, name="v")

    def main(s):
        with s.commit(store, "both"):
            s.write(store / "a", u, part(s, u, whole))
            s.write(store / "a", v, part(s, v, -whole))
            corner = np.s_[s.rank : s.rank + 1, 0:1, 0:1]
            s.write(store / "a", u, np.ones((1, 1, 1)), region=corner)
            with pytest.raises(ps.SchemaError, match="already"), s.commit(store, "inner"):
                pass
            mine = s.read(store / "a", v)
            assert history(repo) == []
        return mine

    found = ps.run(main, 2)
    assert same_bits(np.concatenate(found), -whole)
    assert history(repo) == ["both"]
    whole[0:2, 0, 0] = 1
    assert same_bits(theirs(repo)["a/u"][...], whole)


def test_a_block_that_fails_commits_nothing(repo):
    store = ps.Icechunk(repo)

    def bad(s):
        with s.commit(store, "bad"):
            s.write(store, *alone_on(s))
            if s.rank == 1:
                raise ZeroDivisionError("of rank 1")

    fails(ps.SchemaError, bad, "rank 1", "ZeroDivisionError")

    def swallowed(s):
        with s.commit(store, "bad"):
            s.write(store, *alone_on(s))
            with pytest.raises(ps.SchemaError):
                s.write(store / "u", *alone_on(s))  # an array is there

    fails(ps.SchemaError, swallowed, "former call")
    assert history(repo) == []
    ps.run(lambda s: s.write(store, *alone_on(s)), 2)
    assert history(repo) == ["write u"]


def test_a_call_that_fails_leaves_no_trace(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 1)
    save(store / "a", array(FORMS["plain"]), whole)
    row = ps.Array("u", SHAPE, "f8", disk=ps.RowMajor("raw"))
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="array"):
            s.write(store / "a" / "u", array(FORMS["plain"]), whole)
        with pytest.raises(ps.SchemaError, match="not a Zarr array"):
            s.write(store, array(FORMS["plain"], name="a"), whole)
        with pytest.raises(ps.UnsupportedError):
            s.write(store / "row", row, whole)
        for strategy in ("caching", "two-phase", "independent"):
            with pytest.raises(ps.UnsupportedError, match="disk-directed"):
                s.write(store / "a", array(FORMS["plain"]), -whole, strategy=strategy)
        with pytest.raises(ps.MissingError):
            s.read(store / "nothing", array())
    assert history(repo) == ["write u to a"]
    assert same_bits(load(store / "a", array()), whole)


def test_another_program_has_committed_meanwhile(repo):
    store, whole = ps.Icechunk(repo), values(SHAPE, "f8", 1)
    save(store, array(FORMS["plain"]), whole)

    def late(s):
        with s.commit(store, "late"):
            s.write(store / "mine", *alone_on(s))
            s.barrier()
            if s.rank == 0:
                session = repo.writable_session("main")
                zarr.create_group(session.store, path="theirs")
                session.commit("theirs")

    fails(ps.BusyError, late, "'main'", "again")
    assert history(repo) == ["write u", "theirs"]
    assert same_bits(load(store, array()), whole)
    ps.run(lambda s: s.write(store / "mine", *alone_on(s)), 2)
    assert history(repo) == ["write u", "theirs", "write u to mine"]
    assert "theirs" in theirs(repo)


def test_a_repository_is_looked_at_anew(place: Path):
    """Another process writes: each call finds the last snapshot."""
    one, other = ps.Icechunk(in_directory(place)), in_directory(place)
    whole = values(SHAPE, "f8", 1)
    with ps.Session() as s:
        s.write(one, array(FORMS["plain"]), whole)
        session = other.writable_session("main")
        zarr.open_group(session.store, mode="r+")["u"][...] = -whole
        session.commit("theirs")
        assert same_bits(s.read(one, array()), -whole)


def test_arguments(place: Path):
    with pytest.raises(ps.SchemaError, match="Repository"):
        ps.Icechunk(str(place))
    repo = in_directory(place)
    with pytest.raises(ps.SchemaError, match="one of them"):
        ps.Icechunk(repo, tag="a", snapshot="b")
    store = ps.Icechunk(repo)
    gone = str(store / "x")
    del store
    with ps.Session() as s:
        with pytest.raises(ps.MissingError, match="keep"):
            s.write(gone, *alone_on(s))
        with pytest.raises(ps.SchemaError, match="Icechunk"), s.commit(gone, "x"):
            pass


# ---------------------------------------------------------------------------------------------
# Groups
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_groups_live(either, place: Path, seed):
    chance = random.Random(seed)
    ranks = chance.choice([1, 2, 3, 5])
    group, store = saved.random_saved(chance, ranks, ranks), ps.Icechunk(either)
    looks = iter(range(2))
    local = lambda _: fetched(either, place / str(next(looks))) / "g"  # noqa: E731
    options = {"servers": chance.choice([None, 2]), "block_bytes": chance.choice([64, 1 << 20])}
    ps.run(lambda s: saved.live(s, group, store / "g", local), ranks, **options)
    assert ps.verify(store / "g").is_well
    steps = ["timestep of saved to g"]
    saves = [*steps * 2, "checkpoint of saved to g", *steps * 2]
    assert history(either) == [*saves, "checkpoint 7 of saved to g", "checkpoint 8 of saved to g"]


@pytest.mark.parametrize("seed", range(6))
def test_it_holds_what_a_directory_holds(either, place: Path, seed):
    """The same arrays, chunk by chunk, and the same metadata; and it is restarted from, on other
    ranks."""
    plan, chance, store = Plan.random(seed), random.Random(seed), ps.Icechunk(either)
    writers, readers = chance.randint(1, 4), chance.randint(1, 4)
    for there in (store / "g", place / "g"):
        ps.run(lambda s, there=there: save_rows(s, plan, there), writers, sync=False)
    local = fetched(either, place / "fetched") / "g"
    look(plan, local, writers)
    assert nodes(local) == nodes(place / "g")
    ps.run(lambda s: restart(s, plan, store / "g", writers), readers)
    said = ps.verify(store / "g")
    assert said.is_well and said.compared == said.chunks
    assert (said.timesteps, said.checkpoints) == (plan.steps, 1)
    options = {"group": "g", "consolidated": False, "drop_variables": "name"}
    session = either.readonly_session("main")
    with xr.open_zarr(place / "g", drop_variables="name") as expected:
        xr.testing.assert_identical(xr.open_zarr(session.store, **options).load(), expected.load())
    assert len(history(either)) == plan.steps + 1


def nodes(path: Path) -> dict[str, object]:
    """What other programs see, the metadata as values."""
    files = {name: data for name, data in tree(path).items() if ".penstock" not in name}
    files = {name: data for name, data in files.items() if not name.endswith(".sums")}
    return {n: json.loads(d) if n.endswith(".json") else d for n, d in files.items()}


def group_at(path) -> ps.Group:
    memory = ps.Distribution("BLOCK,*", (2,))
    u = ps.Array("u", (8, 6), "f8", memory=memory, disk=ps.Chunks((3, 4)))
    return ps.Group("g", [u], path)


def full(value: float) -> dict[str, np.ndarray]:
    return {"u": np.full((4, 6), float(value))}


def times(repo) -> list[float]:
    found = theirs(repo)["g/u"][:, :, :]
    assert (found == found[:, :1, :1]).all()
    return found[:, 0, 0].tolist()


def test_a_save_whose_commit_fails_is_made_again(repo):
    """The session knows where it is: after a conflict, after a block that fails, and where it has
    restarted before."""
    store = ps.Icechunk(repo)
    group = group_at(store / "g")

    def meet(s) -> None:
        """Another program commits."""
        s.barrier()
        if s.rank == 0:
            session = repo.writable_session("main")
            name = f"other-{len(history(repo))}"
            zarr.create_group(session.store, path=name)
            session.commit(name)
        s.barrier()

    def main(s):
        for step in (0, 1):
            s.timestep(group, full(step))
            s.checkpoint(group, full(step), step=step)
        with pytest.raises(ps.BusyError), s.commit(store, "late"):
            s.timestep(group, full(8))
            meet(s)
        s.timestep(group, full(2))
        with pytest.raises(ps.SchemaError, match="ZeroDivisionError"), s.commit(store, "bad"):
            s.timestep(group, full(8))
            s.timestep(group, full(9))
            raise ZeroDivisionError
        s.timestep(group, full(3))
        assert s.restart(group, step=0).timesteps == 1
        with pytest.raises(ps.BusyError), s.commit(store, "late"):
            s.timestep(group, full(8))
            meet(s)
        assert s.restart(group, step=0).step == 0
        with s.commit(store, "two at once"):
            s.timestep(group, full(5))
            s.checkpoint(group, full(5), step=5)
            s.timestep(group, full(6))
        assert s.restart(group)["u"].tolist() == full(5)["u"].tolist()

    ps.run(main, 2)
    assert times(repo) == [0, 5, 6]
    assert history(repo)[-1] == "two at once"
    assert ps.verify(store / "g").is_well
    assert sorted(theirs(repo)["g/checkpoints"]) == ["0", "5"]


def test_a_restart_whose_save_fails_drops_later_steps_again(repo):
    store = ps.Icechunk(repo)
    group = group_at(store / "g")

    def main(s):
        s.timestep(group, full(0))
        s.checkpoint(group, full(0), step=0)
        for step in (1, 2):
            s.timestep(group, full(step))
        assert s.restart(group).timesteps == 1
        with pytest.raises(ps.SchemaError, match="ZeroDivisionError"), s.commit(store, "bad"):
            s.timestep(group, full(8))
            raise ZeroDivisionError
        s.timestep(group, full(5))

    ps.run(main, 2)
    assert times(repo) == [0, 5]


def test_arrays_of_a_group_are_saved_with_it(repo):
    store = ps.Icechunk(repo)
    group = group_at(store / "g")

    def main(s):
        s.timestep(group, full(0))
        s.checkpoint(group, full(0), step=5)
        u = ps.Array("u", (4,), "f8", disk=ps.Chunks((2,)))
        local = np.zeros(u.local_shape(s.rank))
        for path in (store / "g", store / "g" / "checkpoints", store / "g" / "checkpoints" / "5"):
            with pytest.raises(ps.SchemaError):
                s.write(path, u, local)
        stored, row = s.open(store / "g" / "u"), np.s_[0:1, s.rank : s.rank + 1, 0:6]
        with pytest.raises(ps.SchemaError, match="saved with its group"):
            s.write(store / "g", stored, np.zeros((1, 1, 6)), region=row)

    ps.run(main, 2)
    assert len(history(repo)) == 2


# ---------------------------------------------------------------------------------------------
# Killed
# ---------------------------------------------------------------------------------------------

JOB = """
import pathlib, sys, repositories
from mpi4py import MPI
place, rank, count = sys.argv[1:]
repositories.write(pathlib.Path(place), int(rank), int(count), MPI.COMM_WORLD)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_write_that_is_killed_at_any_put(place: Path, ranks):
    """Whatever process is killed, and when: the old array is there, and the next write goes on."""
    repo, u = in_directory(place), array(ps.Chunks((4, 4)), shape=(13, 8))
    store, old = ps.Icechunk(repo), np.full((13, 8), 1.0)

    def code(*killed: int) -> int:
        if ranks == 1:
            return code_of(repositories.write, place, *killed)
        return run(MPIEXEC, "-n", ranks, sys.executable, "-c", JOB, place, *killed).returncode

    save(store / "a", u, old)
    assert code(0, repositories.ALL_PUTS) == 0
    assert same_bits(load(store / "a", u), 2 * old)
    save(store / "a", u, old)
    puts = [repositories.puts_of(place, rank) for rank in range(ranks)]
    assert all(puts)
    kills = [(rank, count) for rank in range(ranks) for count in range(puts[rank])]
    for rank, count in kills if ranks == 1 else repositories.some(kills):
        before = repo.lookup_branch("main")
        how = code(rank, count)
        assert how == -signal.SIGKILL if ranks == 1 else how != 0
        assert repo.lookup_branch("main") == before
        assert same_bits(theirs(repo)["a/u"][...], old)
        if count % 2:
            save(store / "a", u, old)
    save(store / "a", u, 3 * old)
    assert same_bits(load(store / "a", u), 3 * old)


# ---------------------------------------------------------------------------------------------
# Drafts and forks by themselves
# ---------------------------------------------------------------------------------------------


def metadata(shape: tuple[int, ...]) -> bytes:
    array = zarr.create_array({}, shape=shape, chunks=(2,) * len(shape), dtype="f8")
    return json.dumps(array.metadata.to_dict()).encode()


def chunks(name: str, shape: tuple[int, ...]) -> list[str]:
    numbers = itertools.product(*[range(-(-extent // 2)) for extent in shape])
    return [f"{name}/c" + "".join(f"/{n}" for n in number) for number in numbers]


@pytest.mark.parametrize("seed", range(30))
def test_forks_of_drafts_against_a_model(place: Path, seed):
    """Arrays are made, replaced and changed, by forks whose changes come in any order."""
    chance = random.Random(seed)
    store = ps.Icechunk(in_directory(place))
    name = store._repository.name
    model: dict[str, bytes] = {}
    shapes: dict[str, tuple[int, ...]] = {}

    def call() -> None:
        draft = _icechunk.begin(name, False)
        whole, own = _icechunk.state(draft), chance.choice(["u", "v"])
        if own not in shapes or chance.random() < 0.6:
            shape = tuple(chance.randint(1, 6) for _ in range(chance.randint(0, 3)))
            if own in shapes:
                whole.remove_below(f"{own}/c")
            whole.put(f"{own}/zarr.json", metadata(shape))
            shapes[own] = shape
            for key in [key for key in model if key.startswith(f"{own}/")]:
                del model[key]
        elif shapes[own] and chance.random() < 0.4:
            first, *others = shapes[own]
            for extent in sorted({chance.randint(1, first), chance.randint(1, 7)}):
                shapes[own] = (extent, *others)
                whole.put(f"{own}/zarr.json", metadata(shapes[own]))
                there = chunks(own, shapes[own])
                for key in [k for k in model if k.startswith(f"{own}/") and k not in there]:
                    del model[key]
        keys = chunks(own, shapes[own])
        keys = chance.sample(keys, chance.randint(0, len(keys)))
        forks = chance.randint(1, 3)
        lent, changes, put = whole.copied(), [], {}
        for number in range(forks):
            fork = _icechunk.fork(lent)
            for key in keys[number::forks]:
                assert fork.get(key, None) == model.get(key)
                put[key] = chance.randbytes(chance.choice([3, 2000]))
                fork.put(key, put[key])
                assert fork.get(key, (1, 3)) == put[key][1:3]
            changes.append(fork.copied())
        chance.shuffle(changes)
        _icechunk.merge(draft, changes)
        model.update(put)
        _icechunk.commit(draft, "a call")

    def check() -> None:
        found = _icechunk.state(name)
        for own, shape in shapes.items():
            for key in chunks(own, shape):
                assert found.get(key, None) == model.get(key), key
                assert found.length(key) == (len(model[key]) if key in model else None)

    for step in range(8):
        if chance.random() < 0.3:
            with _icechunk.block(store, f"step {step}", True) as block:
                for _ in range(chance.randint(1, 3)):
                    call()
                    check()
                block.is_ending = True
                _icechunk.commit(_icechunk.begin(name, False), "the end")
        else:
            call()
        check()


def test_bytes_that_are_no_session_are_refused():
    import pickle

    for data in (b"", b"x", pickle.dumps(print), pickle.dumps({"a": 1}), pickle.dumps((1, 2))):
        with pytest.raises(ps.Error, match="no state"):
            _icechunk.fork(data)
