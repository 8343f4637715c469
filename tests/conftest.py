"""Fixtures, and protection against hangs: a test that takes too long ends the run with a traceback
of every thread, so that a collective call that waits for ever is seen as what it is."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# Before netCDF4, which on its import leads every HDF5 library of the process to plug-ins that are
# linked with its own library: h5py would take them for Blosc, and fail.
import hdf5plugin  # noqa: F401
import hypothesis
import pytest
import zarr.codecs.sharding
from helpers import fast_directory, mounted_tmpfs

from penstock_bench.meters import WORK_UP_VARIABLE

# zarr-python looks up shards by their fill value, too, and that of a record has no hash.
zarr.codecs.sharding.lru_cache = lambda: lambda function: function

TEST_SECONDS_MAX = 900

hypothesis.settings.register_profile(
    "penstock",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("penstock")


def pytest_configure(config):
    # What goes to the descriptor that pytest captures during tests would be lost; now it does not.
    config.penstock_terminal = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")
    # What a shell starts in the background ignores Ctrl-C; the programs that tests start must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_hang(pytestconfig):
    """Ends the process when a test does not end."""
    terminal = pytestconfig.penstock_terminal
    faulthandler.dump_traceback_later(TEST_SECONDS_MAX, exit=True, file=terminal)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def hurry(monkeypatch):
    """Ranks of benchmarks do not work before they are timed, for tests that ask for no times."""
    monkeypatch.setenv(WORK_UP_VARIABLE, "0")


@pytest.fixture
def quick(tmp_path, monkeypatch, capsys):
    """Runs a benchmark of figures at its smallest in an empty directory; its text and its JSON."""

    def run(main, *words: str) -> tuple[str, dict]:
        monkeypatch.chdir(tmp_path)
        code = main(["--quick", *words, "--json", "figures.json"])
        said = capsys.readouterr()
        assert (code, said.err) == (0, ""), said.out
        return said.out, json.loads((tmp_path / "figures.json").read_text())

    return run


@pytest.fixture
def place():
    """An empty directory, in memory where there is one."""
    directory = tempfile.mkdtemp(prefix="penstock-test-", dir=fast_directory())
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
def tiny():
    """A file system of 512 KiB."""
    with mounted_tmpfs("size=512k") as mounted:
        if mounted is None:
            pytest.skip("needs the right to mount a tmpfs")
        yield mounted


@pytest.fixture
def chance(request):
    """Random numbers, the same ones in every run of a test."""
    return random.Random(request.node.nodeid)
