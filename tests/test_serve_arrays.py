"""Arrays through servers that stand: the servers direct, and outlive the sessions."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import work
import zarr
from conformance import random_case, round_trip
from serving import SECONDS_MAX, Server, alone, as_user, configure

import penstock as ps

SHAPE = (12, 10, 7)
OTHER_USER = 4321


@pytest.fixture
def place(place: Path) -> Path:
    (place / "arrays").mkdir()
    return place


@contextlib.contextmanager
def served(place: Path, servers: int = 2) -> Iterator[Server]:
    """Servers of the arrays in `arrays`."""
    volume = place / "volume"
    if not volume.exists():
        ps.FileSystem.create(volume, servers=servers, capacity=64 << 20).close()
    with alone(volume, "--arrays", place / "arrays") as server:
        yield server


def values(shape: tuple[int, ...] = SHAPE, add: float = 0) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="f8").reshape(shape) + add


def array(ranks: int, disk: ps.Chunks | ps.RowMajor | ps.Distribution | None = None) -> ps.Array:
    return ps.Array("u", SHAPE, "f8", ps.Distribution("BLOCK,*,*", ranks), disk)


def own(session: ps.Session, of: ps.Array, whole: np.ndarray) -> np.ndarray:
    """This rank's share of an array in blocks of rows."""
    assert session.rank is not None
    rows = -(-SHAPE[0] // session.size)
    local = whole[session.rank * rows : (session.rank + 1) * rows].copy()
    assert local.shape == of.local_shape(session.rank)
    return local


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def remains(at: Path) -> list[str]:
    """What is in a directory, and is no array."""
    return sorted(path.name for path in at.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("servers", [1, 3])
def test_all_forms(place: Path, ranks: int, servers: int) -> None:
    whole = values()
    forms = {
        "natural.zarr": None,
        "chunks.zarr": ps.Chunks((5, 4, 7), codec="zstd"),
        "shards.zarr": ps.Chunks((6, 4, 7), subchunks=(3, 2, 7), codec="zstd+crc32c"),
        "flat.npy": ps.RowMajor("npy"),
        "flat.raw": ps.RowMajor("raw"),
        "parts": ps.Distribution("*,BLOCK,*", 3),
    }

    def main(session: ps.Session) -> None:
        assert session.servers == servers
        for name, disk in forms.items():
            u = array(session.size, disk)
            local = own(session, u, whole)
            assert session.write(name, u, local, {"of": 1} if "npy" not in name else None).bytes
            np.testing.assert_array_equal(session.read(name, u), local)
            found = session.open(name, "u" if name.endswith(".zarr") else None)
            assert found.shape == SHAPE and found.dtype == np.dtype("f8")
        assert "disk-directed" in session.explain("chunks.zarr", u, "read")

    with served(place, servers) as server:
        ps.run(main, ranks, servers=server.url)
    at = place / "arrays"
    for name in ["natural.zarr", "chunks.zarr", "shards.zarr"]:
        np.testing.assert_array_equal(zarr.open_group(at / name, mode="r")["u"][...], whole)
    np.testing.assert_array_equal(np.load(at / "flat.npy"), whole)
    np.testing.assert_array_equal(np.fromfile(at / "flat.raw").reshape(SHAPE), whole)
    assert remains(at) == []


@pytest.mark.parametrize("ranks", [1, 4])
def test_round_trips_of_random_arrays(place: Path, ranks: int) -> None:
    """The conformance body: any array, held and stored in any way."""

    def main(session: ps.Session) -> None:
        chance = random.Random(ranks)
        for turn in range(25):
            case = random_case(chance, session.size, session.size)
            round_trip(session, case, place / "arrays" / f"{turn}")

    with served(place, 3) as server:
        ps.run(main, ranks, servers=server.url, block_bytes=256)
    assert remains(place / "arrays") == []


@pytest.mark.parametrize("ranks", [1, 3])
def test_work_at_servers_that_stand(place: Path, ranks: int) -> None:
    """Selections, reductions and thinning of random arrays; errors are those of all ranks."""

    def main(session: ps.Session) -> None:
        for turn in range(15):
            chance = random.Random(turn)
            case = random_case(chance, session.size, session.size)
            work.round_trip(session, case, place / "arrays" / f"{turn}", turn)
        u = array(session.size)
        session.write("u.zarr", u, own(session, u, values()))
        with pytest.raises(ps.SchemaError, match="column 4"):
            session.select("u.zarr", u, where="u >")
        with pytest.raises(ps.ReadOnlyError):
            session.reduce("../u.zarr", u, how="sum")
        assert session.reduce("u.zarr", u, how="sum") == values().sum()

    with served(place, 2) as server:
        ps.run(main, ranks, servers=server.url, block_bytes=256)


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_elements_are_dealt_out_evenly_that_lie_anywhere(place: Path, ranks: int) -> None:
    """Servers count first: elements that lie together, fewer than ranks, none, and all."""
    whole = values((60, 250))

    def main(session: ps.Session) -> None:
        u = ps.Array("u", whole.shape, "f8", ps.Distribution("BLOCK,*", ranks), ps.Chunks((7, 90)))
        rows, rank = -(-60 // ranks), session.rank or 0
        session.write("u.zarr", u, whole[rank * rows : (rank + 1) * rows].copy())
        flat = np.arange(whole.size).reshape(whole.shape)
        for where, mask in [
            ("i0 == 31 and i1 > 3 and i1 < 100", (flat > 31 * 250 + 3) & (flat < 31 * 250 + 100)),
            ("i0 == 0 and i1 == 0 or i0 == 59 and i1 > 247", (flat == 0) | (flat > 14997)),
            ("i0 < 0", flat < 0),
            ("True", flat >= 0),
            ("i0 % 3 == 0 and i1 % 7 == 0", (flat // 250 % 3 == 0) & (flat % 250 % 7 == 0)),
        ]:
            numbers = np.flatnonzero(mask)
            start, end = (len(numbers) * r // ranks for r in (rank, rank + 1))
            found = session.select("u.zarr", u, where=where, balanced=True)
            expected = np.stack(np.unravel_index(numbers[start:end], whole.shape), axis=-1)
            np.testing.assert_array_equal(found.indices, expected)
            np.testing.assert_array_equal(found.values, whole.flat[numbers[start:end]])
            # Beside its own, a rank gets counts, and the few elements of its first and last part.
            most = 12 * len(numbers) + ranks * (6 * len(numbers) + 100)
            assert 8 * len(numbers) <= found.report.bytes <= most, found.report
            if where == "True":
                assert found.report.disk_bytes >= 2 * whole.nbytes

    with served(place, 3) as server:
        ps.run(main, ranks, servers=server.url, block_bytes=4096)


def test_lists_regions_and_boxes(place: Path) -> None:
    whole = values((8, 9))

    def main(session: ps.Session) -> None:
        rank = session.rank or 0
        mine = [2 * row + rank for row in range(4)]
        runs = ps.Runs([9 * row for row in mine], [9] * 4)
        u = ps.Array("u", (8, 9), "f8", runs, ps.Chunks((3, 5)))
        session.write("lists.zarr", u, whole[mine].reshape(-1))
        np.testing.assert_array_equal(session.read("lists.zarr", u), whole[mine].reshape(-1))
        part = (slice(rank, rank + 1), slice(2, 7))
        session.write("lists.zarr", u, np.full((1, 5), -rank, "f8"), region=part)
        back = session.read("lists.zarr", u, region=(slice(1 - rank, 2 - rank), slice(2, 7)))
        np.testing.assert_array_equal(back, np.full((1, 5), rank - 1, "f8"))

    with served(place) as server:
        ps.run(main, 2, servers=server.url)
    expected = whole.copy()
    expected[0, 2:7], expected[1, 2:7] = 0, -1
    stored = zarr.open_group(place / "arrays" / "lists.zarr", mode="r")["u"][...]
    np.testing.assert_array_equal(stored, expected)


def group(ranks: int) -> ps.Group:
    u = array(ranks, ps.Chunks((4, 10, 7), codec="zstd"))
    rows = ps.Array("p", (None, 2), "i8", disk=ps.Chunks((4, 2)), dims=("particle", "k"))
    return ps.Group("job", [u, rows], "job.zarr", coords={"z": np.arange(7.0)}, keep=2)


def state(session: ps.Session, step: int) -> dict[str, np.ndarray]:
    u = own(session, array(session.size), values(add=1000.0 * step))
    rows = (session.rank or 0) + step
    return {"u": u, "p": np.full((rows, 2), 10 * step + (session.rank or 0))}


def test_timesteps_and_checkpoints(place: Path) -> None:
    def save(session: ps.Session) -> None:
        job = group(session.size)
        for step in range(3):
            session.timestep(job, state(session, step), time=float(step))
        session.checkpoint(job, state(session, 2), step=2, attrs={"seed": 5})
        for step in (3, 4):
            begun = session.begin_timestep(job, state(session, step), time=float(step), copy=True)
            with pytest.raises(ps.BusyError, match="under way"):
                session.timestep(job, state(session, 9))
            begun.end()
        session.begin_checkpoint(job, state(session, 4), step=4, background="disk").end()

    def restart(session: ps.Session) -> None:
        job = group(session.size)
        found = session.restart(job, step=2)
        assert found is not None and found.step == 2 and found.attrs == {"seed": 5}
        expected = own(session, array(session.size), values(add=2000.0))
        np.testing.assert_array_equal(found["u"], expected)
        session.timestep(job, state(session, 7), time=7.0)  # drops what is newer

    with served(place) as server:
        ps.run(save, 3, servers=server.url)
        ps.run(restart, 2, servers=server.url)
    stored = zarr.open_group(place / "arrays" / "job.zarr", mode="r")
    assert stored["time"][...].tolist() == [0.0, 1.0, 2.0, 7.0]
    np.testing.assert_array_equal(stored["u"][3], values(add=7000.0))
    assert ps.verify(place / "arrays" / "job.zarr")


def test_open_arrays(place: Path) -> None:
    whole = values()

    def main(session: ps.Session) -> None:
        rank = session.rank or 0
        u = array(session.size, ps.Chunks((5, 4, 7)))
        session.write("u.zarr", u, own(session, u, whole))
        with session.open("u.zarr", "u", mode="r+") as opened:
            if rank == 0:
                others.submit(refused).result()
            part = np.full((1, 10, 7), -rank, "f8")
            opened.write((slice(rank, rank + 1),), part)
            np.testing.assert_array_equal(opened.read((slice(rank, rank + 1),)), part)
            opened.flush()
            session.barrier()
            other = 1 - rank
            got = opened.read((slice(other, other + 1),))
            np.testing.assert_array_equal(got, np.full((1, 10, 7), -other, "f8"))

    def refused() -> None:
        """Another session does not get to change the array meanwhile."""
        with ps.Session(servers=server.url) as session, pytest.raises(ps.BusyError):
            session.open("u.zarr", "u", mode="r+")

    with served(place) as server, ThreadPoolExecutor() as others:
        ps.run(main, 2, servers=server.url)
        with ps.Session(servers=server.url) as session:
            session.open("u.zarr", "u", mode="r+").close()
    whole[0], whole[1] = 0, -1
    stored = zarr.open_group(place / "arrays" / "u.zarr", mode="r")["u"][...]
    np.testing.assert_array_equal(stored, whole)


def test_what_servers_refuse(place: Path) -> None:
    (place / "secret").mkdir()
    os.symlink(place / "secret", place / "arrays" / "link")
    np.save(place / "secret" / "s.npy", values())
    with served(place) as server:
        with ps.Session(servers=server.url) as session:
            u = array(1, ps.RowMajor("npy"))
            for path in ["../x.npy", str(place / "x.npy"), "link/x.npy", "a/../../x.npy"]:
                with pytest.raises(ps.ReadOnlyError, match="leads out"):
                    session.write(path, u, values())
                with pytest.raises(ps.ReadOnlyError, match="leads out"):
                    session.open(path)
            with pytest.raises(ps.ReadOnlyError, match="leads out"):
                session.read("link/s.npy", u)
            for strategy in ["two-phase", "caching", "independent"]:
                with pytest.raises(ps.UnsupportedError, match="disk-directed"):
                    session.write("x.npy", u, values(), strategy=strategy)
            with pytest.raises(ps.MissingError):
                session.read("nothing.npy", u)
            with pytest.raises(ps.UnsupportedError, match="servers that stand"):
                session.copy(place / "secret" / "s.npy", "copy.npy")
            assert session.write("x.npy", u, values()).bytes == values().nbytes  # it goes on
        with pytest.raises(ps.SchemaError, match="no faults"):
            faults = ps.testing.Faults(bytes_per_second=1e9)
            ps.Session(servers=server.url, faults=faults).write("y.npy", u, values())
    with (
        alone(place / "volume") as plain,
        pytest.raises(ps.UnsupportedError, match="--arrays"),
    ):
        ps.Session(servers=plain.url)
    with pytest.raises(ps.SchemaError, match="no URL"):
        ps.Session(servers="somewhere")
    with pytest.raises(ps.PeerError):
        ps.Session(servers=f"unix://{place}/nobody.sock")
    assert sorted(os.listdir(place / "arrays")) == ["link", "x.npy"]
    assert os.listdir(place / "secret") == ["s.npy"]


def test_ranks_that_differ_hear_in_what(place: Path) -> None:
    def main(session: ps.Session) -> str:
        rows = 4 + (session.rank or 0)
        u = ps.Array("u", (rows, 3), "f8", ps.Distribution("BLOCK,*", 2))
        with pytest.raises(ps.MismatchError) as raised:
            session.write("u.zarr", u, np.zeros(u.local_shape(session.rank)))
        return str(raised.value)

    with served(place) as server:
        first, second = ps.run(main, 2, servers=server.url)
    assert first == second and "shape" in first
    assert os.listdir(place / "arrays") == []


def test_a_rank_that_fails_fails_all(place: Path) -> None:
    def main(session: ps.Session) -> None:
        u = array(session.size)
        if session.rank == 1:
            raise RuntimeError("no more")
        session.write("u.zarr", u, own(session, u, values()))

    with served(place) as server:
        with pytest.raises(RuntimeError, match="no more"):
            ps.run(main, 3, servers=server.url)

        def again(session: ps.Session) -> None:
            u = array(session.size)
            session.write("u.zarr", u, own(session, u, values()))

        ps.run(again, 3, servers=server.url)
    assert os.listdir(place / "arrays") == ["u.zarr"]


JOB = """
import os, signal, sys
import numpy as np
import penstock as ps

url, how, ranks, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def main(session):
    memory, disk = ps.Distribution("BLOCK,*", ranks), ps.Chunks((1, 1 << 16))
    u = ps.Array("u", (rows, 1 << 16), "f8", memory, disk)
    local = np.full(u.local_shape(session.rank), 7.0)
    begun = session.begin_write("u.zarr", u, local, background=how)
    if how == "disk":
        barrier.wait()
    os.kill(os.getpid(), signal.SIGKILL)

import threading
barrier = threading.Barrier(ranks)
ps.run(main, ranks, servers=url)
"""


def killed_job(url: str, how: str, ranks: int, rows: int) -> None:
    job = [sys.executable, "-c", JOB, url, how, str(ranks), str(rows)]
    ended = subprocess.run(job, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_servers_finish_what_was_handed_over(place: Path) -> None:
    """A job that is killed as soon as its elements are taken has its array."""
    with served(place, 3) as server:
        for _ in range(3):
            killed_job(server.url, "disk", ranks=2, rows=64)
            at = place / "arrays" / "u.zarr"
            until(at.exists)
            stored = zarr.open_group(at, mode="r")["u"][...]
            np.testing.assert_array_equal(stored, np.full((64, 1 << 16), 7.0))
            with ps.Session(servers=server.url) as session:
                u = ps.Array("u", (3,), "f8")
                session.write("u.zarr", u, np.zeros(3))  # in its place
            subprocess.run(["rm", "-r", at], check=True)
        assert remains(place / "arrays") == []


def test_a_job_that_dies_leaves_all_or_nothing(place: Path) -> None:
    with served(place, 2) as server:
        for rows in [1, 40, 200]:
            killed_job(server.url, "all", ranks=2, rows=rows)
            # A session that writes there waits for nobody, and removes what was left.
            with ps.Session(servers=server.url) as session:
                u = ps.Array("v", (3,), "f8")

                def written(session: ps.Session = session, u: ps.Array = u) -> bool:
                    try:
                        session.write("u.zarr", u, np.zeros(3))
                    except ps.BusyError:  # the servers have not heard yet
                        return False
                    return True

                until(written)
            until(lambda: remains(place / "arrays") == [])  # no server is at work on it
            stored = zarr.open_group(place / "arrays" / "u.zarr", mode="r")
            if "u" in stored:
                np.testing.assert_array_equal(stored["u"][...], np.full((rows, 1 << 16), 7.0))
            subprocess.run(["rm", "-r", place / "arrays" / "u.zarr"], check=True)


def test_a_server_that_is_killed(place: Path) -> None:
    """Calls fail and say so; when the server is back, a new session goes on with what was saved."""
    whole = values()
    with served(place) as server:
        u = array(1, ps.Chunks((5, 4, 7)))
        session = ps.Session(servers=server.url)
        session.write("u.zarr", u, whole)
        server.kill()
        for end in (lambda: session.write("u.zarr", u, whole + 1), session.close):
            with pytest.raises(ps.PeerError):
                end()
        server.start()
        with ps.Session(servers=server.url) as session:
            np.testing.assert_array_equal(session.read("u.zarr", u), whole)


def test_several_processes(place: Path) -> None:
    """Each process with servers does its part; when one is killed, calls name what is missing."""
    volume, config, ranks = place / "volume", place / "servers.toml", 3
    ps.FileSystem.create(volume, servers=3, capacity=64 << 20).close()
    addresses = [f"unix://{place}/{process}.sock" for process in (0, 1)]
    arrays = place / "arrays"
    configure(config, addresses, [[0, 2], [1]], volume=volume, arrays=arrays, cache="8MiB")
    url = addresses[0]
    spread = ps.Chunks((2, 5, 7), codec="zstd")

    def main(session: ps.Session) -> None:
        assert session.servers == 3
        u = array(session.size, spread)
        local = own(session, u, values())
        session.write("u.zarr", u, local)
        np.testing.assert_array_equal(session.read("u.zarr", u), local)
        session.timestep(group(session.size), state(session, 1))
        with session.open("u.zarr", "u", mode="r+") as opened:
            row = session.rank or 0
            opened.write((slice(row, row + 1),), np.full((1, 10, 7), -row, "f8"))

    def fails(session: ps.Session) -> None:
        u = array(session.size, spread)
        session.barrier()
        if session.rank == 0:
            second.kill()
        for _ in range(1000):
            session.write("v.zarr", u, own(session, u, values()))

    first = Server(url, "--config", config, "--process", 0)
    second = Server(f"unix://{place}/1.sock", "--config", config, "--process", 1)
    first.start(waits=False)  # it waits for the other
    with contextlib.ExitStack() as stack:
        stack.callback(first.stop)
        stack.enter_context(second)
        ps.run(main, ranks, servers=url)
        with pytest.raises(ps.PeerError):
            ps.run(fails, ranks, servers=url)
        second.start()
        ps.run(main, ranks, servers=url)
    expected = values()
    for row in range(ranks):
        expected[row] = -row
    stored = zarr.open_group(place / "arrays" / "u.zarr", mode="r")
    np.testing.assert_array_equal(stored["u"][...], expected)
    assert ps.verify(place / "arrays" / "job.zarr")
    # The second process has gone for good: the other one serves arrays without it.
    config.write_text(config.read_text().replace(f'["{addresses[1]}"]', "[]"))

    def on(session: ps.Session) -> None:
        assert session.servers == 2
        u = array(session.size, spread)
        local = own(session, u, values())
        session.write("w.zarr", u, local)
        np.testing.assert_array_equal(session.read("w.zarr", u), local)

    with first:
        ps.run(on, ranks, servers=url)
    gone = subprocess.run(second.command, capture_output=True, text=True, check=False)
    assert gone.returncode == 2
    assert "it has gone for good" in gone.stderr


def test_two_jobs_at_once(place: Path) -> None:
    """Each has its own; of two that save one group, one is refused."""

    def main(name: str) -> Callable[[ps.Session], list[str]]:
        def job(session: ps.Session) -> list[str]:
            errors = []
            for step in range(10):
                u = array(session.size, ps.Chunks((5, 4, 7)))
                session.write(f"{name}-{step}.zarr", u, own(session, u, values(add=step)))
                try:
                    session.timestep(group(session.size), state(session, step), time=step + 0.5)
                except ps.Error as error:
                    errors.append(error.kind)
            return errors

        return job

    failed: dict[str, list[str]] = {}
    with served(place, 3) as server:

        def run(name: str, ranks: int) -> None:
            failed[name] = ps.run(main(name), ranks, servers=server.url)[0]

        jobs = [threading.Thread(target=run, args=(f"job{n}", n)) for n in (1, 3)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    for name in ("job1", "job3"):
        for step in range(10):
            stored = zarr.open_group(place / "arrays" / f"{name}-{step}.zarr", mode="r")
            np.testing.assert_array_equal(stored["u"][...], values(add=step))
    assert set(failed["job1"] + failed["job3"]) <= {"Busy", "Schema"}
    times = zarr.open_group(place / "arrays" / "job.zarr", mode="r")["time"][...]
    assert len(times) == 20 - len(failed["job1"]) - len(failed["job3"])
    assert ps.verify(place / "arrays" / "job.zarr")


WRITE_AS_USER = """
import sys
try:
    with ps.Session(servers=sys.argv[1]) as session:
        u = ps.Array("u", (4,), "f8", disk=ps.RowMajor("npy"))
        if sys.argv[3] == "write":
            session.write(sys.argv[2], u, numpy.arange(4.0))
        else:
            session.read(sys.argv[2], u)
    print("well")
except ps.Error as error:
    print(error.kind)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root acts for others")
def test_files_are_their_users(place: Path) -> None:
    """The kernel checks what the user of a session may do with the files of the servers."""
    at = place / "arrays"
    for name, mode in [("open", 0o777), ("closed", 0o755), ("hidden", 0o700)]:
        (at / name).mkdir()
        (at / name).chmod(mode)
        np.save(at / name / "there.npy", np.arange(4.0))
    (at / "open" / "there.npy").chmod(0o600)

    def tried(path: str, how: str) -> str:
        ended = as_user(OTHER_USER, WRITE_AS_USER, server.url, path, how)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    with served(place) as server:
        place.chmod(0o755)
        assert tried("open/new.npy", "write") == "well"
        assert tried("open/new.npy", "read") == "well"
        assert tried("open/there.npy", "read") == "ReadOnly"
        assert tried("closed/new.npy", "write") == "ReadOnly"
        assert tried("closed/there.npy", "read") == "well"
        assert tried("hidden/there.npy", "read") == "ReadOnly"
        assert tried("hidden/new.npy", "write") == "ReadOnly"
        with ps.Session(servers=server.url) as session:  # and root is root again
            u = ps.Array("u", (4,), "f8", disk=ps.RowMajor("npy"))
            session.write("hidden/mine.npy", u, np.arange(4.0))
    assert (at / "open" / "new.npy").stat().st_uid == OTHER_USER
    assert (at / "hidden" / "mine.npy").stat().st_uid == 0
    assert sorted(os.listdir(at / "closed")) == ["there.npy"]
