"""Traces: what clients, servers and disks do for a request, as files that Perfetto opens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers import penstock
from serving import COLLECTIVE_JOB, SECONDS_MAX, Server, alone, configure, patient

import penstock as ps

SLACK_US = 5.0
"""By this much an arrow may go back in time: clocks are read one after the other."""


@dataclass
class Slice:
    """What a process has done from one time to another."""

    category: str
    name: str
    track: tuple[int, int]
    begin: float
    end: float
    args: dict[str, Any]
    parents: list[Slice] = field(default_factory=list)
    """The slice around it, and that from which an arrow leads into it, if that is elsewhere."""

    def within(self, other: Slice) -> bool:
        """Whether another slice is around this one, or around one that is."""
        return any(parent is other or parent.within(other) for parent in self.parents)


@dataclass
class Trace:
    """A trace that has been read, and found to be one."""

    slices: list[Slice]
    arrows: list[tuple[str, Slice, Slice]]
    """The name of each, and what it leads from and to."""
    tracks: dict[tuple[int, int], str]
    ends: list[dict[str, int]]

    def all(self, category: str, name: str | None = None, **args: object) -> list[Slice]:
        return [
            one
            for one in self.slices
            if one.category == category
            and name in (None, one.name)
            and all(one.args.get(key) == value for key, value in args.items())
        ]

    def led(self, name: str, begin: Slice) -> list[Slice]:
        """What the arrows of a name lead to from a slice."""
        return [to for one, of, to in self.arrows if one == name and of is begin]


def nested(slices: list[Slice]) -> None:
    """Finds the slice around each. No two of a track cross."""
    by_track = defaultdict(list)
    for one in slices:
        by_track[one.track].append(one)
    for track in by_track.values():
        around: list[Slice] = []
        for one in sorted(track, key=lambda one: (one.begin, -one.end)):
            while around and around[-1].end <= one.begin:
                around.pop()
            if around:
                assert around[-1].begin < one.begin, (around[-1], one)
                assert one.end <= around[-1].end, (around[-1], one)
                one.parents.append(around[-1])
            around.append(one)


def at(slices: list[Slice], track: tuple[int, int], when: float) -> Slice:
    """The innermost slice of a track at a time, as a viewer finds it."""
    found = [one for one in slices if one.track == track and one.begin <= when < one.end]
    assert found, (track, when)
    return max(found, key=lambda one: one.begin)


def read(text: str, *, is_whole: bool = True) -> Trace:
    """Reads a trace, and checks that it is one.

    A whole one has both ends of each arrow, but for those of clients that are not traced: of the
    commands that look whether servers serve.
    """
    events = json.loads(text)
    slices: list[Slice] = []
    tracks: dict[tuple[int, int], str] = {}
    ends: dict[str, dict[tuple[str, int], list[tuple[tuple[int, int], float]]]]
    ends = {"s": defaultdict(list), "f": defaultdict(list)}
    last = []
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys(), event
        track = (event["pid"], event["tid"])
        if event["ph"] == "X":
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert 0 <= begin < end, event
            args = event["args"]
            slices.append(Slice(event["cat"], event["name"], track, begin, end, args))
        elif event["ph"] in ends:
            assert event["ph"] == "s" or event["bp"] == "e"
            ends[event["ph"]][event["name"], event["id"]].append((track, event["ts"]))
        elif event["name"] == "thread_name":
            assert track not in tracks, event
            tracks[track] = event["args"]["name"]
        elif event["name"] == "penstock_trace_end":
            last.append(event["args"])
        else:
            assert event["name"] in ("penstock_trace", "process_name", "dropped"), event
    assert {one.track for one in slices} == tracks.keys()
    nested(slices)
    arrows = []
    traced = {one.args.get("client") for one in slices if one.category == "question"}

    def is_traced(end: tuple[tuple[int, int], float]) -> bool:
        client = at(slices, *end).args.get("client")
        return client is None or client in traced

    for (name, id_), begins in ends["s"].items():
        into = ends["f"].get((name, id_), [])
        assert into or not is_whole or not is_traced(begins[0]), (name, id_)
        for track, when in into:
            start, target = at(slices, *begins[0]), at(slices, track, when)
            assert begins[0][1] <= when + SLACK_US, (name, start, target)
            arrows.append((name, start, target))
            if name == "within":
                target.parents.append(start)
    for arrow in ends["f"].keys() - ends["s"].keys():
        assert not is_whole or not any(map(is_traced, ends["f"][arrow])), arrow
    return Trace(slices, arrows, tracks, last)


def joined(output: Path, *traces: Path) -> Trace:
    penstock("trace", "join", *traces, "-o", output)
    return read(output.read_text())


def job(code: str, *arguments: object, trace: Path | None, size: str = "1GiB") -> str:
    """Runs a program, traced if there is a file for that."""
    environment = dict(os.environ)
    if trace is not None:
        environment |= {"PENSTOCK_TRACE": str(trace), "PENSTOCK_TRACE_BYTES": size}
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


@pytest.fixture
def volume(place: Path) -> Path:
    ps.FileSystem.create(place / "v{server}", servers=4, block_bytes=4096).close()
    return place / "v{server}"


@contextlib.contextmanager
def served(place: Path, volume: Path) -> Iterator[str]:
    """Two server processes, of two servers each, which write traces; at the end these are whole."""
    config, urls = place / "servers.toml", [f"unix://{place}/{nth}" for nth in range(2)]
    configure(config, urls, [[0, 2], [1, 3]], volume=volume, cache="64KiB")
    url, traces = urls[0], [place / f"server{nth}.json" for nth in range(2)]
    with config.open("a") as more:  # of the second process; the first one is told by an option
        more.write(f'\ntrace = "{traces[1]}"\n')
    with contextlib.ExitStack() as stack:
        both = [
            Server(url, "--config", config, "--process", 0, "--trace", traces[0]),
            Server(url, "--config", config, "--process", 1),
        ]
        for server in both:
            server.start(waits=False)
            stack.callback(server.stop)
        both[0].wait()
        yield url


ACCESSES = """
import sys, penstock as ps
with ps.FileSystem(sys.argv[1]) as fs:
    fs.create("/secret-name", cells=4, bsu=4096)
    with fs.attach("/secret-name", "r+") as f:
        view = f.open()
        view.write_at(0, b"secret-words" * 80_000)
        f.sync()
        assert view.read(80_000, at=4096)[8:20] == b"secret-words"
        try:
            fs.attach("/missing")
        except ps.MissingError:
            pass
"""


def test_a_request_is_seen_on_its_way_through_servers_and_disks(place: Path, volume: Path) -> None:
    client = place / "client.json"
    with served(place, volume) as url:
        job(ACCESSES, url, trace=client)
    files = [client, place / "server0.json", place / "server1.json"]
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        for secret in ("secret", "missing", str(place)):
            assert secret not in text
        (end,) = read(text, is_whole=False).ends
        assert end["dropped"] == 0
    trace = joined(place / "all.json", *files)
    assert [end["dropped"] for end in trace.ends] == [0, 0, 0]

    # The write has a part on each server, and a token passes from one to the next.
    (write,) = trace.all("access", "write")
    assert write.args["bytes"] == 960_000
    questions = [one for one in trace.all("question", "write") if one.within(write)]
    requests = [one for question in questions for one in trace.led("question", question)]
    assert sorted(one.args["server"] for one in requests) == [0, 1, 2, 3]
    assert sum(one.args["bytes"] for one in requests) == 960_000
    assert {trace.tracks[one.track].split(",")[0] for one in requests} == {
        f"server {server}" for server in range(4)
    }
    waits = [one for one in trace.all("wait", "token") if any(map(one.within, requests))]
    assert len(waits) == 3
    for wait in waits:
        (start,) = [begin for name, begin, end in trace.arrows if name == "token" and end is wait]
        assert start in requests
    for question in questions:
        (request,) = trace.led("question", question)
        assert request.args["file"] == write.args["file"]
        assert trace.led("answer", request) == [question]
        assert question.begin <= request.begin + SLACK_US

    # The sync finishes the disks of all servers, and commits.
    syncs = [
        one for question in trace.all("question", "sync") for one in trace.led("question", question)
    ]
    assert {one.args["server"] for one in syncs} == {0, 1, 2, 3}
    for server in range(4):
        within = [
            one
            for one in trace.all("disk")
            if any(one.within(sync) for sync in syncs if sync.args["server"] == server)
        ]
        assert {"sync", "commit"} <= {one.name for one in within}

    # Each operation waits in the queue of its device, whose worker does one after the other.
    disks = [one for one in trace.all("disk") if one.name != "commit"]
    assert {one.name for one in disks} == {"read", "write", "sync"}
    queues, workers = trace.all("wait", "queue"), trace.all("worker")
    for disk in disks:
        (queue,) = [one for one in queues if one.parents == [disk]]
        (worker,) = [one for one in workers if disk in one.parents]
        assert disk.begin < queue.begin < queue.end <= worker.end <= disk.end
        assert trace.tracks[worker.track].startswith("disk-")
        if disk.name != "sync":
            assert disk.args["bytes"] == 4096
    reads = [one for one in trace.all("request", "read") if one.args["bytes"]]
    assert sum(one.args["bytes"] for one in reads) == 80_000
    assert any(one.name == "read" and any(map(one.within, reads)) for one in disks)

    (failed,) = trace.all("request", failed=True)
    assert failed.name == "attach"


def traced_arrays(place: Path, code: str) -> Trace:
    """The trace of a program that uses arrays of two servers, and of these."""
    (place / "arrays").mkdir()
    ps.FileSystem.create(place / "v", servers=2).close()
    ranks, servers = place / "ranks.json", place / "servers.json"
    with alone(place / "v", "--arrays", place / "arrays", "--trace", servers) as server:
        job(code, server.url, trace=ranks)
    return joined(place / "all.json", ranks, servers)


CALLS = """
import sys, numpy as np, penstock as ps
def main(s):
    u = ps.Array("secret-name", (64, 64), "f8", ps.Distribution("BLOCK,*", s.size),
                 ps.Chunks((16, 64)))
    group = ps.Group("secret-group", [u], "secret.zarr")
    local = np.full(u.local_shape(s.rank), 1.5)
    step = s.begin_timestep(group, {"secret-name": local}, background="disk")
    step.end()
    s.checkpoint(group, {"secret-name": local})
    assert s.restart(group) is not None
    s.write("one.zarr", u, local)
    assert s.read("one.zarr", u).sum() == local.sum()
ps.run(main, ranks=3, servers=sys.argv[1])
"""


def test_calls_on_arrays_are_seen_on_their_way_through_servers_and_disks(place: Path) -> None:
    trace = traced_arrays(place, CALLS)
    for path in (place / "ranks.json", place / "servers.json"):
        assert "secret" not in path.read_text()
    for kind in ("timestep", "checkpoint", "restart", "write", "read"):
        of_ranks = [one for one in trace.all("call", kind) if "rank" in one.args]
        assert sorted(one.args["rank"] for one in of_ranks) == [0, 1, 2]
        (directed,) = {
            id(one): one for call in of_ranks for one in trace.led("call", call)
        }.values()
        assert (directed.name, directed.args["server"]) == (kind, 0)
        parts = trace.led("part", directed)
        assert sorted(part.args["server"] for part in parts) == [0, 1]
        for name in ("clients",):
            assert [one for one in trace.all("wait", name) if one.within(directed)]
        assert [one.name for one in trace.all("director") if one.within(directed)] == [
            "prepare",
            "conclude",
        ]
        operation = "write" if kind in ("timestep", "checkpoint", "write") else "read"
        portions = [one for one in trace.all("portions") if any(map(one.within, parts))]
        disks = [one for one in trace.all("disk", operation) if any(map(one.within, parts))]
        assert len(portions) == len(disks) == 4
        assert sum(one.args["bytes"] for one in disks) == 64 * 64 * 8
        for disk in disks:
            (worker,) = [one for one in trace.all("worker") if disk in one.parents]
            assert disk.begin < worker.begin < worker.end <= disk.end
            (buffer,) = disk.parents
            assert buffer.category == "buffer"
    handed_over = trace.all("wait", "hand-over")
    assert len(handed_over) == 3


OPEN = """
import sys, numpy as np, penstock as ps
def main(s):
    u = ps.Array("u", (64, 64), "f8", ps.Distribution("BLOCK,*", s.size), ps.Chunks((16, 64)))
    s.write("one.zarr", u, np.ones(u.local_shape(s.rank)))
    with s.open("one.zarr", "u", mode="r+") as a:
        if s.rank == 1:
            a.write(np.s_[10:20, :], np.zeros((10, 64)))
            assert a.read(np.s_[:, 3:5]).sum() == 108
ps.run(main, ranks=2, servers=sys.argv[1])
"""


def test_requests_on_open_arrays_are_seen(place: Path) -> None:
    trace = traced_arrays(place, OPEN)
    for kind in ("write", "read"):
        (access,) = trace.all("access", kind)
        questions = [one for one in trace.all("question", kind) if one.within(access)]
        requests = [one for question in questions for one in trace.led("question", question)]
        assert sorted(one.args["to"] for one in questions) == [0, 1]
        assert len(requests) == 2
        within = [one for one in trace.all("disk", "read") if any(map(one.within, requests))]
        assert within or kind == "read"


def test_collective_requests_are_seen_in_a_trace_of_each_rank(place: Path) -> None:
    ps.FileSystem.create(place / "v", servers=3, block_bytes=4096).close()
    program, traces = place / "job.py", place / "traces"
    program.write_text(COLLECTIVE_JOB)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    with alone(place / "v", "--trace", f"{traces}/") as server:
        command = [str(mpiexec), "-n", "2", sys.executable, str(program), server.url]
        environment = os.environ | {"PENSTOCK_TRACE": str(traces)}
        subprocess.run(command, check=True, timeout=SECONDS_MAX, env=environment)
    found = sorted(traces.iterdir())
    assert len(found) == 3
    trace = joined(place / "all.json", *found)
    for kind in ("write_all", "read_all"):
        questions = trace.all("question", kind)
        requests = [one for question in questions for one in trace.led("question", question)]
        assert len(questions) == len(requests) == 2
        waits = [one for one in trace.all("wait", "clients") if any(map(one.within, requests))]
        assert len(waits) == 2
        parts = [one for request in requests for one in trace.led("token", request)]
        assert sorted(part.args["server"] for part in parts) == [0, 1, 2]
        for part in parts:
            (turn,) = [one for one in trace.all("wait", "turn") if one.within(part)]
            assert turn.parents == [part]
            assert [one for one in trace.all("portions") if one.within(part)]


def closed(text: str) -> str:
    """A trace whose writer was killed, with the bracket at its end."""
    whole = text[: text.rindex("\n")]
    return whole.rstrip(",\n") + "]"


def test_a_trace_of_a_killed_server_lacks_its_end_alone(place: Path) -> None:
    trace = place / "t.json"
    server = alone(place / "v", "--trace", trace)
    with server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=1, bsu=4096)
        with fs.attach("/f", "r+") as f:
            view = f.open()
            view.write_at(0, bytes(100_000))
            until = time.monotonic() + SECONDS_MAX
            while '"cat":"request"' not in trace.read_text():
                assert time.monotonic() < until
                view.read(4096, at=0)
        server.kill()
        found = read(closed(trace.read_text()), is_whole=False)
        assert found.all("request") and not found.ends
        said = penstock("trace", "join", trace, "-o", place / "all.json")
        assert "it has no end" in said
        read((place / "all.json").read_text(), is_whole=False)
        server.start()
        patient(lambda: fs.stat("/f"))
        with contextlib.suppress(ps.PeerError):  # it tells that the server was lost
            fs.sync()
    # The one that came after it has a trace from its beginning to its end.
    (end,) = read(trace.read_text(), is_whole=False).ends
    assert end["dropped"] == 0


def test_a_trace_is_no_longer_than_it_may_be(place: Path) -> None:
    trace = place / "t.json"
    server = alone(place / "v", "--trace", trace, "--trace-bytes", "20KiB")
    with server, ps.FileSystem(server.url) as fs:
        fs.create("/f", cells=1, bsu=4096)
        with fs.attach("/f", "r+") as f:
            view = f.open()
            for nth in range(500):
                view.write_at(4096 * nth, bytes(10))
            assert view.read(10, at=0) == bytes(10)
    assert trace.stat().st_size <= 20 << 10
    found = read(trace.read_text(), is_whole=False)
    (end,) = found.ends
    assert end["slices"] == len(found.slices) > 0
    assert end["dropped"] > 400
    told = [event for event in json.loads(trace.read_text()) if event["name"] == "dropped"]
    assert sum(event["args"]["slices"] for event in told) == end["dropped"]


def test_a_client_has_a_bound_too_and_no_two_processes_one_file(place: Path) -> None:
    trace = place / "t.json"
    with alone(place / "v", "--trace", trace) as server:
        said = job(
            "import sys, penstock as ps; ps.FileSystem(sys.argv[1]).close()",
            server.url,
            trace=trace,
        )
        assert "another process writes it" in said
        command = [sys.executable, "-m", "penstock", "fs", "ls", server.url]
        refused = subprocess.run(
            command,
            env=os.environ | {"PENSTOCK_TRACE": str(trace)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 1
        assert "another process writes it" in refused.stderr
        own = place / "own.json"
        code = """
import sys, penstock as ps
with ps.FileSystem(sys.argv[1]) as fs:
    for nth in range(200):
        fs.list("/")
"""
        job(code, server.url, trace=own, size="8KiB")
        (end,) = read(own.read_text(), is_whole=False).ends
        assert end["dropped"] > 100
        assert own.stat().st_size <= 8 << 10
    assert read(trace.read_text(), is_whole=False).all("request")


def test_without_being_asked_for_there_is_no_trace(place: Path) -> None:
    with alone(place / "v") as server:
        job(
            "import sys, penstock as ps; ps.FileSystem(sys.argv[1]).close()", server.url, trace=None
        )
    assert not list(place.glob("*.json"))


def test_a_forked_child_and_a_signal_leave_the_trace_whole(place: Path) -> None:
    trace = place / "t.json"
    code = """
import os, sys, penstock as ps
with ps.FileSystem.create(sys.argv[1]) as fs:
    fs.create("/f", cells=1, bsu=64)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    job(code, place / "v", trace=trace)
    found = read(trace.read_text())
    assert found.all("question", "create")
    [question] = found.all("question", "create")
    assert found.led("question", question) == found.all("request", "create")
    again = place / "again.json"
    with alone(place / "v", "--trace", again) as server:
        assert server.process is not None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(SECONDS_MAX) == 0
    assert read(again.read_text()).ends
