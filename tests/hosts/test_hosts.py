"""Penstock on several hosts, which are made of namespaces by `cluster.py`.

    make test-hosts

which is skipped where namespaces are not allowed. What is run on the hosts are the tests and the
programs of one host, as they are: `mpiexec` takes the hosts from its environment.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import xarray
import zarr
from cluster import CHECKOUT, command_on_hosts, why_not
from crash_kills import VICTIM, check, descendants, is_alive, is_rank, rows_of, send_kill
from helpers import fast_directory

TESTS = CHECKOUT / "tests"
KILLS = int(os.environ.get("HOST_KILLS", "10"))
SECONDS_MAX = 900
"""For one test, on a machine that is busy."""
BEGIN_SECONDS_MAX = 300
END_SECONDS_MAX = 60
"""How long ranks may take to end when one on another host has been killed."""
LOG_CHARACTERS_MAX = 10_000
RANK = 'if [ "$PMI_RANK" = 0 ]; then exec "$@"; else exec "$@" >"$LOGS/$PMI_RANK" 2>&1; fi'
"""Rank 0 speaks, the others write logs."""
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")

pytestmark = pytest.mark.skipif((REASON := why_not()) is not None, reason=REASON or "")


@pytest.fixture(autouse=True)
def no_hang(pytestconfig):
    """In the place of the fixture of this name, which allows less time."""
    terminal = pytestconfig.penstock_terminal
    faulthandler.dump_traceback_later(SECONDS_MAX + 60, exit=True, file=terminal)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def directory() -> Iterator[Path]:
    """For one cluster; what the hosts share is in its directory `shared`."""
    made = tempfile.mkdtemp(prefix="penstock-hosts-", dir=fast_directory())
    (Path(made) / "shared" / "logs").mkdir(parents=True)
    yield Path(made)
    shutil.rmtree(made)


def on_hosts(slots: list[int], directory: Path, *command: str | Path) -> str:
    """Runs a command on `login`, which must succeed: what it prints."""
    logs, words = directory / "shared" / "logs", [str(word) for word in command]
    with open(logs / "output", "w") as out:
        done = subprocess.run(
            command_on_hosts(slots, directory, words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=CHECKOUT,
            env={**os.environ, "LOGS": str(logs)},
            timeout=SECONDS_MAX,
            check=False,
        )
    said = {log.name: log.read_text() for log in sorted(logs.iterdir())}
    if done.returncode != 0:
        ends = [f"== {name}\n{text[-LOG_CHARACTERS_MAX:]}" for name, text in said.items()]
        pytest.fail("\n".join(ends), pytrace=False)
    return said["output"]


def mpiexec(slots: list[int], *command: str | Path) -> tuple[str | Path, ...]:
    return ("mpiexec", "-n", str(sum(slots)), *command)


def wait_until(condition: Callable[[], object], seconds: float, words: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, words
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("slots", "files"),
    [
        pytest.param([2, 1], ["."], id="two hosts"),
        pytest.param([2, 2, 1], ["test_mpi_conformance.py", "test_mpi_errors.py"], id="three"),
    ],
)
def test_what_holds_on_one_host(directory, slots, files):
    """The tests under MPI: conformance, faults, errors, groups, split collectives."""
    paths = [TESTS / "mpi" / name for name in files]
    ran = ("sh", "-c", RANK, "sh", sys.executable, *PYTEST, *paths)
    said = on_hosts(slots, directory, *mpiexec(slots, *ran))
    assert " passed" in said, said


def test_machines_of_standing_servers_conform(directory):
    """The conformance of the net machine with a node a host, by TLS: by the names of hosts, and
    through proxies on `login` that hold bytes up."""
    # As all Rust tests are built: cargo compiles nothing anew with other features.
    command = "cargo test --workspace --no-run"
    built = subprocess.run(
        [*command.split(), "--message-format=json"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = map(json.loads, built.stdout.splitlines())
    source = str(CHECKOUT / "crates/net/tests/all/main.rs")
    of_net = (one for one in told if one.get("target", {}).get("src_path") == source)
    [program] = [one["executable"] for one in of_net if one.get("executable")]
    said = on_hosts([1] * 5, directory, program, "conformance::", "--ignored", "--nocapture")
    assert "2 passed" in said, said


def test_memory_within_a_host_and_messages_between(directory):
    slots, job = [2, 2], TESTS / "hosts" / "traffic_job.py"
    store = directory / "shared" / "traffic.zarr"
    print(on_hosts(slots, directory, *mpiexec(slots, sys.executable, job, store)))
    with_zarr = zarr.open_group(store, mode="r")
    held = {name: with_zarr[name][::512, 0].tolist() for name in ("u0", "u1")}
    assert held == {"u0": [0, 2, 1, 3], "u1": [2, 0, 3, 1]}


def test_a_rank_that_is_killed_on_another_host(directory):
    """All ranks on all hosts end, and the next job goes on with what was saved."""
    slots, shared = [2, 1], directory / "shared"
    log, code, store = shared / "log", shared / "code", shared / "job.zarr"
    job = mpiexec(slots, sys.executable, VICTIM, store, log)
    # The hosts stay when the job has ended: it is not their end that ends ranks.
    words = f'"$@"; echo $? >{code}.new; mv {code}.new {code}; read -r _'
    waiting = ["sh", "-c", words, "sh", *map(str, job), "1", "1000000"]
    hosts = subprocess.Popen(
        command_on_hosts(slots, directory, waiting), stdin=subprocess.PIPE, cwd=CHECKOUT
    )
    try:
        saves = lambda: log.exists() and "timestep" in log.read_text()  # noqa: E731
        wait_until(lambda: saves() or hosts.poll() is not None, BEGIN_SECONDS_MAX, "it hangs")
        assert hosts.poll() is None, "the job has failed"
        by_host = collections.defaultdict(list)
        for process in filter(is_rank, descendants(hosts.pid)):
            by_host[os.readlink(f"/proc/{process}/ns/uts")].append(process)
        few, many = sorted(by_host.values(), key=len)
        assert (len(few), len(many)) == (1, 2), by_host
        send_kill(few[0])
        gone = lambda: not any(is_alive(process) for process in many)  # noqa: E731
        wait_until(gone, END_SECONDS_MAX, "the ranks of the other host go on")
        wait_until(code.exists, END_SECONDS_MAX, "mpiexec does not end")
        assert code.read_text().strip() != "0"
        hosts.communicate(timeout=END_SECONDS_MAX)
    finally:
        hosts.kill()
        hosts.wait()
    steps = check_steps(store)
    on_hosts(slots, directory, *job, "2", "5")
    assert 5 <= check_steps(store) <= steps + 5


def check_steps(store: Path) -> int:
    """Every timestep is whole, as xarray and zarr-python read it: how many there are."""
    with xarray.open_zarr(store) as opened:
        data = opened.load()
    values = zip(data.u.values, data.v.values, strict=True)
    lives = [check(step, u, v, rows_of(data, step)) for step, (u, v) in enumerate(values)]
    assert zarr.open_group(store, mode="r")["u"].shape[0] == len(lives)
    return len(lives)


def test_a_job_that_is_killed_again_and_again(directory):
    """`crash_kills.py` as it is: all ranks of the job are killed at once, or one rank."""
    kills = ("--kills", str(KILLS), "--ranks", "3", "--seed", "3")
    said = on_hosts([2, 1], directory, sys.executable, TESTS / "crash_kills.py", *kills)
    assert f'"kills": {KILLS}' in said and '"all ranks"' in said, said
    print(said)
