"""Arrays in buckets: written, replaced and read; looked at with other programs; killed, and under
a service that answers badly."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from pathlib import Path

import bucket_saver
import numpy as np
import pytest
import tensorstore
import zarr
from buckets import (
    BUCKET,
    FORMS,
    SHAPE,
    Careless,
    Gate,
    Service,
    Trouble,
    before,
    gofakes3,
    kill_numbers,
    killed_at,
    reached,
    url,
)
from helpers import DTYPES, penstock, same_bits, values

import penstock as ps


@pytest.fixture(scope="module")
def bucket():
    """The quicker service, where it can be had; `test_bucket_services` has the other."""
    with reached(gofakes3()) as running:
        yield running


def array(disk=None, dtype="f8", shape=SHAPE, ranks=1, name="u") -> ps.Array:
    dims = ",".join(["BLOCK"] + ["*"] * (len(shape) - 1)) if shape else ""
    memory = ps.Distribution(dims, (ranks,)) if shape else None
    return ps.Array(name, shape, dtype, memory=memory, disk=disk)


def part(s, u: ps.Array, whole: np.ndarray) -> np.ndarray:
    """What a rank holds of the whole."""
    share = u.local_shape(s.rank)
    rows = -(-whole.shape[0] // s.size) * s.rank if whole.ndim else 0
    return whole[rows : rows + share[0]] if whole.ndim else whole


def save(path: str, u: ps.Array, whole: np.ndarray, ranks: int = 1, **options) -> None:
    ps.run(lambda s: s.write(path, u, part(s, u, whole)), ranks, **options)


def load(path: str, u: ps.Array | None = None, ranks: int = 1, **options) -> np.ndarray:
    with ps.Session() as s:
        about = s.open(path, "u")
    u = u or array(about.disk, about.dtype, about.shape, ranks)
    parts = ps.run(lambda s: s.read(path, u), ranks, **options)
    return np.concatenate(parts) if u.shape else parts[0]


# ---------------------------------------------------------------------------------------------
# Written by Penstock
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_others_read_it(bucket: Service, form, ranks):
    path = f"read-{form}-{ranks}.zarr"
    whole = values(SHAPE, "f8", 1)
    u = array(FORMS[form], ranks=ranks)
    save(url(path), u, whole, ranks, servers=2)
    assert same_bits(zarr.open_group(bucket.zarr(path), mode="r")["u"][...], whole)
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "s3", "bucket": BUCKET, "path": f"{path}/u/"}
        | {"endpoint": os.environ["AWS_ENDPOINT_URL"], "aws_region": "us-east-1"},
    }
    assert same_bits(tensorstore.open(spec).result().read().result(), whole)
    for readers in (1, 2):
        assert same_bits(load(url(path), ranks=readers), whole)
    assert ".penstock" not in bucket.keys(f"{path}/u/")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type(bucket: Service, dtype):
    whole = values(SHAPE, dtype, 2)
    save(url(f"type-{dtype}.zarr"), array(FORMS["zstd"], dtype), whole)
    assert same_bits(zarr.open_array(bucket.zarr(f"type-{dtype}.zarr/u"))[...], whole)
    assert same_bits(load(url(f"type-{dtype}.zarr")), whole)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2)], ids=str)
def test_unusual_shapes(bucket: Service, shape):
    path = f"shape-{len(shape)}-{sum(shape)}.zarr"
    u = array(ps.Chunks(tuple(max(n, 1) for n in shape)), shape=shape)
    for seed in (1, 2, 3):
        whole = values(shape, "f8", seed)
        save(url(path), u, whole)
        assert same_bits(load(url(path), u), whole)
        assert same_bits(zarr.open_array(bucket.zarr(f"{path}/u"))[...], whole)


def test_what_is_looked_at(bucket: Service):
    with ps.Session() as s:
        for group, name in (("look.zarr", "u"), ("look.zarr", "v"), ("look.zarr/deep", "w")):
            s.write(url(group), array(FORMS["zstd"], name=name), values(SHAPE, "f8", 4))
    found = {node.path for node in ps.ls(url("look.zarr"))}
    assert found == {"", "u", "v", "deep", "deep/w"}
    said = penstock("ls", url("look.zarr"))
    assert "deep/w" in said and "zstd:1" in said
    whole = json.loads(
        bucket.client.get_object(Bucket=BUCKET, Key="look.zarr/zarr.json")["Body"].read()
    )
    assert set(whole["consolidated_metadata"]["metadata"]) == {"u", "v", "deep", "deep/w"}
    opened = zarr.open_group(bucket.zarr("look.zarr"), mode="r", use_consolidated=True)
    assert same_bits(opened["deep/w"][...], values(SHAPE, "f8", 4))


def test_xarray_opens_it(bucket: Service):
    xarray = pytest.importorskip("xarray")
    from penstock.xarray import Backend

    with ps.Session() as s:
        u = ps.Array("u", SHAPE, "f8", dims=("z", "y", "x"), disk=FORMS["shards"])
        s.write(url("xarray.zarr"), u, values(SHAPE, "f8", 4), attrs={"units": "K"})
    opened = xarray.open_dataset(url("xarray.zarr"), engine=Backend)
    theirs = xarray.open_zarr(bucket.zarr("xarray.zarr"))
    xarray.testing.assert_identical(opened.load(), theirs.load())


def test_sums(bucket: Service):
    whole = values(SHAPE, "f8", 4)
    save(url("sums.zarr"), array(ps.Chunks((4, 3, 5), codec="zstd:1+crc32c")), whole)
    assert ps.verify(url("sums.zarr")).compared == 12
    data = bytearray(bucket.read("sums.zarr/u/c/1/0/0"))
    data[-1] ^= 1
    bucket.write("sums.zarr/u/c/1/0/0", bytes(data))
    assert [e.kind for e in ps.verify(url("sums.zarr")).damages] == ["Damaged"]


# ---------------------------------------------------------------------------------------------
# Replaced
# ---------------------------------------------------------------------------------------------


def test_a_new_array_has_other_keys_and_the_old_ones_go(bucket: Service):
    seen = []
    for seed, shape in enumerate([SHAPE, SHAPE, (9, 5, 2), (1, 1, 1), SHAPE]):
        whole = values(shape, "f8", seed)
        save(url("again.zarr"), array(FORMS["plain"], shape=shape), whole)
        assert same_bits(load(url("again.zarr")), whole)
        assert same_bits(zarr.open_group(bucket.zarr("again.zarr"), mode="r")["u"][...], whole)
        keys = set(bucket.keys("again.zarr/u/")) - {"zarr.json"}
        chunks = [-(-n // c) for n, c in zip(shape, (4, 3, 5), strict=True)]
        assert len(keys) == np.prod(chunks)
        seen.append(next(iter(keys))[:2])
    assert set(seen) == {"c/", "c."}


def test_a_write_that_fails_leaves_the_old_array(bucket: Service):
    whole = values(SHAPE, "f8", 1)
    save(url("fails.zarr"), array(FORMS["plain"]), whole)
    before = sorted(bucket.keys("fails.zarr/"))
    faults = ps.testing.Faults(faults=[ps.testing.Fault("write", 5, "EIO")])
    with pytest.raises(ps.Error):
        save(url("fails.zarr"), array(FORMS["plain"]), values(SHAPE, "f8", 2), faults=faults)
    assert same_bits(load(url("fails.zarr")), whole)
    assert sorted(bucket.keys("fails.zarr/")) == before


def test_only_one_job_writes_an_array(bucket: Service):
    u, whole = array(FORMS["plain"]), values(SHAPE, "f8", 1)
    lease = {"id": "0", "host": "elsewhere", "boot": 1, "process": 1, "renewals": 0, "note": None}
    key = {"Bucket": BUCKET, "Key": "leased.zarr/u/.penstock"}
    bucket.client.put_object(**key, Body=json.dumps(lease))
    with pytest.raises(ps.BusyError, match="process 1 on elsewhere"):
        save(url("leased.zarr"), u, whole)
    bucket.client.put_object(**key, Body=b"\x00 no lease")
    with pytest.raises(ps.BusyError):
        save(url("leased.zarr"), u, whole)
    bucket.client.delete_object(**key)
    save(url("leased.zarr"), u, whole)
    assert same_bits(load(url("leased.zarr")), whole)


def test_another_program_that_replaces_the_array_meanwhile_is_noticed(bucket: Service, monkeypatch):
    """The metadata are put only if they are those that were there at the beginning."""
    u, whole = array(FORMS["plain"]), values(SHAPE, "f8", 1)
    save(url("raced.zarr"), u, whole)
    gate = Gate(5)
    with before(bucket.port, gate) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        failed = []
        thread = threading.Thread(target=lambda: failed.append(fails(url("raced.zarr"), u, whole)))
        thread.start()
        assert gate.has_come.wait(120)
        zarr.open_group(bucket.zarr("raced.zarr"))["u"].attrs["units"] = "m"
        gate.is_open.set()
        thread.join()
    assert isinstance(failed[0], ps.BusyError)
    opened = zarr.open_array(bucket.zarr("raced.zarr/u"))
    assert opened.attrs["units"] == "m" and same_bits(opened[...], whole)


def fails(path: str, u: ps.Array, whole: np.ndarray) -> ps.Error | None:
    try:
        save(path, u, whole)
    except ps.Error as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["new", "replaced", "region"])
def test_a_write_that_is_killed_at_any_request(bucket: Service, kind):
    """The old array is there, or the new one, and the next write goes on. Requests are held, so
    each of those that change something is once the last that does."""
    path, u = f"killed-{kind}.zarr", ps.Array("u", (8, 8), "f8", disk=ps.Chunks((4, 4)))
    old, new = np.full((8, 8), 1.0), np.full((8, 8), 2.0)
    if kind == "region":
        new[:, :2] = old[:, :2]
    states = []
    for number in kill_numbers(path):
        bucket.clear(f"{path}/")
        if kind != "new":
            save(url(path), u, old)
        work = (bucket_saver.write, url(path), 2, kind == "region")
        is_done, seen = killed_at(number, bucket.port, *work)
        try:
            found = load(url(path))
        except ps.MissingError:
            assert kind == "new"
            found = None
        assert found is None or same_bits(found, old) or same_bits(found, new), seen
        states.append(found is not None and same_bits(found, new))
        save(url(path), u, 3 * old)
        assert same_bits(load(url(path)), 3 * old)
        assert len(bucket.keys(f"{path}/u/")) == 4 + 1
        if is_done:
            break
    assert is_done and states == sorted(states) and states[-1] and not states[0]


# ---------------------------------------------------------------------------------------------
# Parts, and arrays that stay open
# ---------------------------------------------------------------------------------------------


REGIONS = (
    np.s_[2:5, 1:4, 3:9],
    np.s_[6:7, 0:6, 10:11],
    np.s_[0:7, 0:6, 0:11],
    np.s_[3:3, 0:1, 0:1],
)


@pytest.mark.parametrize("form", FORMS)
def test_parts_are_read(bucket: Service, form):
    whole = values(SHAPE, "f8", 5)
    save(url(f"parts-{form}.zarr"), array(FORMS[form]), whole)
    with ps.Session(servers=2) as s, s.open(url(f"parts-{form}.zarr"), "u", mode="r") as opened:
        for region in REGIONS:
            assert same_bits(opened.read(region), whole[region])
            about = s.open(url(f"parts-{form}.zarr"), "u")
            assert same_bits(s.read(url(f"parts-{form}.zarr"), about, region=region), whole[region])


@pytest.mark.parametrize("form", FORMS)
def test_a_part_is_written_whole_or_not_at_all(bucket: Service, form):
    path, whole = f"part-{form}.zarr", values(SHAPE, "f8", 5)
    save(url(path), array(FORMS[form]), whole)
    with ps.Session(servers=2) as s:
        for region in REGIONS:
            new = -whole[region]
            s.write(url(path), array(FORMS[form]), new, region=region)
            whole[region] = new
            assert same_bits(zarr.open_group(bucket.zarr(path), mode="r")["u"][...], whole)
    assert same_bits(load(url(path)), whole)


@pytest.mark.parametrize("form", FORMS)
def test_an_open_array_is_changed_in_place(bucket: Service, form):
    path = f"open-{form}.zarr"
    whole = values(SHAPE, "f8", 6)
    save(url(path), array(FORMS[form]), whole)

    def change(s):
        with s.open(url(path), "u", mode="r+") as opened:
            rows = np.s_[3 * s.rank : 3 * s.rank + 2, 1:5, 2:10]
            opened.write(rows, -whole[rows])
            opened.flush()
            assert same_bits(opened.read(rows), -whole[rows])

    ps.run(change, 2, servers=2)
    for rows in (np.s_[0:2, 1:5, 2:10], np.s_[3:5, 1:5, 2:10]):
        whole[rows] = -whole[rows]
    assert same_bits(zarr.open_group(bucket.zarr(path), mode="r")["u"][...], whole)
    assert same_bits(load(url(path)), whole)


# ---------------------------------------------------------------------------------------------
# Written by others
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">i2", ">f8", "<c16"])
@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_zarr_python(bucket: Service, version, dtype, order):
    path = f"theirs-{version}-{dtype[0] == '>'}{dtype[1:]}{order}.zarr"
    whole = values(SHAPE, dtype[1:], 7)
    options = {"order": order} if version == 2 else {}
    made = zarr.create_array(
        bucket.zarr(path),
        name="u",
        shape=SHAPE,
        chunks=(3, 4, 5),
        dtype=dtype,
        zarr_format=version,
        **options,
    )
    made[...] = whole
    assert same_bits(load(url(path + "/u")), whole)


def test_shards_of_zarr_python(bucket: Service):
    whole = values(SHAPE, "f4", 8)
    made = zarr.create_array(
        bucket.zarr("theirs-shards.zarr"),
        name="u",
        shape=SHAPE,
        chunks=(2, 3, 4),
        shards=(4, 6, 8),
        dtype="f4",
    )
    made[...] = whole
    assert same_bits(load(url("theirs-shards.zarr/u")), whole)


class Pages(http.server.SimpleHTTPRequestHandler):
    """A web server that gives parts of files."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        asked, path = self.headers.get("Range"), Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            return super().do_GET()
        data = path.read_bytes()
        start, end = (int(n) for n in asked.removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{min(end, len(data) - 1)}/{len(data)}")
        self.send_header("Content-Length", str(len(data[start : end + 1])))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(data[start : end + 1])
        return None


@pytest.mark.parametrize("form", FORMS)
def test_a_web_server_is_read(place: Path, form):
    whole = values(SHAPE, "f8", 9)
    save(str(place / "w.zarr"), array(FORMS[form]), whole)
    handler = functools.partial(Pages, directory=place)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}/w.zarr"
    try:
        with pytest.raises(ps.ReadOnlyError, match="web server"):
            save(at, array(FORMS["plain"]), whole)
        assert same_bits(load(at), whole)
    finally:
        server.shutdown()
        server.server_close()


# ---------------------------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------------------------


def profiles(monkeypatch, place: Path, credentials: str, config: str) -> None:
    """An environment in which these files alone say how to reach the service."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, text in (("SHARED_CREDENTIALS", credentials), ("CONFIG", config)):
        (place / name).write_text(text)
        monkeypatch.setenv(f"AWS_{name}_FILE", str(place / name))


@pytest.mark.parametrize("name", ["default", "lab"])
def test_a_profile_says_how_to_reach_a_service(bucket: Service, monkeypatch, place, name):
    keys = "aws_access_key_id = tests\naws_secret_access_key = tests\n"
    section = "default" if name == "default" else f"profile {name}"
    where = f"region = us-east-1\nendpoint_url = {bucket.url}\n"
    profiles(monkeypatch, place, f"[{name}]\n{keys}", f"[{section}]\n{where}")
    if name != "default":
        with pytest.raises(ps.Error):
            load(url(f"profile-{name}.zarr"))  # the default profile says nothing
        monkeypatch.setenv("AWS_PROFILE", name)
    whole = values(SHAPE, "f8", 1)
    save(url(f"profile-{name}.zarr"), array(FORMS["zstd"]), whole)
    assert same_bits(load(url(f"profile-{name}.zarr")), whole)


def test_a_profile_that_is_not_there_or_not_taken(bucket: Service, monkeypatch, place):
    profiles(monkeypatch, place, "", "[profile single]\nsso_session = lab\nregion = x\n")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ps.SchemaError, match="nobody"):
        load(url("any.zarr"))
    monkeypatch.setenv("AWS_PROFILE", "single")
    with pytest.raises(ps.UnsupportedError, match="sso_session"):
        load(url("any.zarr"))


def test_memory_is_of_one_process():
    whole = values(SHAPE, "f8", 1)
    save("memory://one/m.zarr", array(FORMS["zstd"], ranks=2), whole, 2)
    assert same_bits(load("memory://one/m.zarr"), whole)
    with pytest.raises(ps.MissingError):
        load("memory://two/m.zarr")


# ---------------------------------------------------------------------------------------------
# Trouble
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_service_that_answers_badly(bucket: Service, monkeypatch, seed):
    trouble = Trouble(seed, 0.15)
    whole, u = values(SHAPE, "f8", seed), array(FORMS["plain"], ranks=2)
    with before(bucket.port, trouble) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for again in range(3):
            save(url(f"bad-{seed}.zarr"), u, np.roll(whole, again), 2)
            assert same_bits(load(url(f"bad-{seed}.zarr")), np.roll(whole, again))
    assert trouble.met
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    assert same_bits(load(url(f"bad-{seed}.zarr")), np.roll(whole, 2))
    assert ".penstock" not in bucket.keys(f"bad-{seed}.zarr/u/")


def test_a_service_without_conditions_is_refused(bucket: Service, monkeypatch):
    u, whole = array(FORMS["plain"]), values(SHAPE, "f8", 1)
    save(url("careless.zarr"), u, whole)
    kept = {key: bucket.read(f"careless.zarr/{key}") for key in bucket.keys("careless.zarr/")}
    with before(bucket.port, Careless()) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for _ in range(2):
            with pytest.raises(ps.UnsupportedError, match="conditions of puts"):
                save(url("careless.zarr"), u, -whole)
            with pytest.raises(ps.UnsupportedError, match="conditions of puts"), ps.Session() as s:
                group = ps.Group("g", [u], url("careless-group.zarr"))
                s.timestep(group, {"u": whole})
    assert kept == {k: bucket.read(f"careless.zarr/{k}") for k in bucket.keys("careless.zarr/")}
    assert not bucket.keys("careless-group.zarr/")


def test_what_is_not_there(bucket: Service):
    with ps.Session() as s:
        with pytest.raises(ps.MissingError):
            s.open(url("nothing.zarr"), "u")
        with pytest.raises(ps.MissingError):
            s.open("s3://no-such-bucket/x.zarr", "u")
        with pytest.raises(ps.Error, match="no-such-bucket"):
            s.write("s3://no-such-bucket/x.zarr", array(FORMS["plain"]), values(SHAPE, "f8", 1))


def test_damage_is_found(bucket: Service):
    save(url("damaged.zarr"), array(FORMS["zstd"]), values(SHAPE, "f8", 1))
    key = {"Bucket": BUCKET, "Key": "damaged.zarr/u/c/0/0/0"}
    data = bucket.client.get_object(**key)["Body"].read()
    bucket.client.put_object(**key, Body=data[: len(data) // 2])
    with pytest.raises(ps.DamagedError, match="c/0/0/0"):
        load(url("damaged.zarr"))
    save(url("short.zarr"), array(FORMS["plain"]), values(SHAPE, "f8", 1))
    bucket.client.put_object(Bucket=BUCKET, Key="short.zarr/u/c/0/0/0", Body=b"12345678")
    with pytest.raises(ps.DamagedError, match="c/0/0/0"):
        load(url("short.zarr"))


@pytest.mark.parametrize(
    ("disk", "named"),
    [
        (ps.RowMajor("raw"), "Chunks"),
        (ps.RowMajor("npy"), "Chunks"),
        (ps.Distribution("BLOCK,*,*", (2,)), "Chunks"),
        (ps.HDF5(), "Chunks"),
    ],
    ids=str,
)
def test_what_a_bucket_does_not_hold(bucket: Service, disk, named):
    with pytest.raises(ps.UnsupportedError, match=named):
        save(url("refused.zarr"), array(disk), values(SHAPE, "f8", 1))
    assert not bucket.keys("refused.zarr")


def test_what_is_refused(bucket: Service):
    u, whole = array(FORMS["plain"]), values(SHAPE, "f8", 1)
    save(url("plain.zarr"), u, whole)
    with pytest.raises(ps.SchemaError, match="Zarr array"):
        save(url("plain.zarr/u"), u, whole)
    with pytest.raises(ps.UnsupportedError, match="disk-directed"):
        save(url("plain.zarr"), u, whole, strategy="two-phase")
    with pytest.raises(ps.UnsupportedError, match="direct"):
        save(url("plain.zarr"), u, whole, direct=True)
    assert same_bits(load(url("plain.zarr")), whole)
    assert not Path("s3:").exists()
