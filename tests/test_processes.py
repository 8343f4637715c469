"""What needs a process of its own: writes that are killed, and how much memory a call takes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import alone, leftovers

import penstock as ps

WRITE_FOR_EVER = """
import sys, numpy as np, penstock as ps
path, form = sys.argv[1:]
disk = {
    "zstd": ps.Chunks((64, 64), codec="zstd:12"),
    "shards": ps.Chunks((256, 256), subchunks=(64, 64), codec="zstd:9"),
    "raw": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", (16,)),
}[form]
u = ps.Array("u", (512, 512), "i4", disk=disk)
noise = np.random.default_rng(0).integers(0, 1 << 20, (512, 512)).astype("i4")
with ps.Session(block_bytes=16384) as s:
    step = 0
    while True:
        s.write(path, u, noise + step)
        if step == 0:
            print("ready", flush=True)
        step += 1
"""


def stored(path, form) -> np.ndarray:
    """What other software finds."""
    if form in ("zstd", "shards"):
        import zarr

        return zarr.open_group(path, mode="r")["u"][...]
    if form == "npy":
        return np.load(path)
    files = [path] if form == "raw" else sorted(path.glob("u.*"))
    return np.concatenate([np.fromfile(file, "i4") for file in files]).reshape(512, 512)


@pytest.mark.parametrize("form", ["zstd", "shards", "raw", "npy", "parts"])
def test_a_killed_write(place, form):
    """At whatever moment: what is there is whole, and the next write cleans up."""
    chance = random.Random(form)
    noise = np.random.default_rng(0).integers(0, 1 << 20, (512, 512)).astype("i4")
    path = place / "target"
    remains = 0
    for attempt in range(4):
        job = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, path, form], stdout=subprocess.PIPE, text=True
        )
        assert job.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.15))
        job.send_signal(signal.SIGKILL)
        job.wait()
        job.stdout.close()

        difference = stored(path, form) - noise
        assert (difference == difference[0, 0]).all(), f"attempt {attempt}: a mixture"
        assert difference[0, 0] >= 0
        with ps.Session() as s:
            array = s.open(path)
            assert np.array_equal(s.read(path, array), noise + difference[0, 0])
            remains += len(leftovers(place))
            # Attributes of .npy are not supported; the others take them.
            attrs = None if form == "npy" else {"attempt": attempt}
            s.write(path, array, noise, attrs=attrs)
            assert np.array_equal(s.read(path, array), noise)
        assert not leftovers(place), "the next write has left the remains of the killed one"
    if form in ("zstd", "shards"):
        assert remains, "no write was killed while it wrote: this test has tested nothing"


ALTERNATE = """
import sys, numpy as np, penstock as ps
sides = [8, 16]
with ps.Session(sync=False) as s:
    step = 0
    while True:
        n = sides[step % 2]
        u, local = ps.Array("u", (n, n), "f8"), np.full((n, n), float(n))
        s.write(sys.argv[1], u, local, attrs={"side": n})
        if step == 0:
            print("ready", flush=True)
        step += 1
"""


def test_a_killed_write_of_a_raw_file_of_another_shape(place):
    """The file and the schema beside it: what is read back is one of the two, whole."""
    chance = random.Random(0)
    for attempt in range(6):
        job = subprocess.Popen(
            [sys.executable, "-c", ALTERNATE, place / "u"], stdout=subprocess.PIPE, text=True
        )
        assert job.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.05))
        job.send_signal(signal.SIGKILL)
        job.wait()
        job.stdout.close()
        with ps.Session() as s:
            array = s.open(place / "u")
            side = array.attrs["side"]
            assert array.shape == (side, side), f"attempt {attempt}"
            assert (s.read(place / "u", array) == side).all()


def test_a_killed_first_write_leaves_nothing_that_looks_like_data(place):
    """Before it is whole it is not there at all."""
    # The disk is slow, so that the write is met in the middle however busy the machine is.
    program = WRITE_FOR_EVER.replace(
        "with ps.Session(",
        "print('ready', flush=True)\n"
        "slow = ps.testing.Faults(bytes_per_second=1e5)\n"
        "with ps.Session(faults=slow, ",
    )
    job = subprocess.Popen(
        [sys.executable, "-c", program, place / "g", "zstd"], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout.readline() == "ready\n"
    until = time.monotonic() + 60
    while not any("/c" in folder for folder, _, _ in os.walk(place)) and time.monotonic() < until:
        time.sleep(0.005)
    job.send_signal(signal.SIGSTOP)  # so that it is looked at while it writes
    found = [entry.name for entry in place.iterdir()]
    assert found and all(name.startswith(".") for name in found), found
    with ps.Session() as s:
        u = ps.Array("u", (512, 512), "i4", disk=ps.Chunks((64, 64)))
        with pytest.raises(ps.BusyError) as met:
            s.write(place / "g", u, np.zeros((512, 512), "i4"))
        assert str(job.pid) in str(met.value), "it does not say who is writing"
        job.send_signal(signal.SIGKILL)
        job.wait()
        job.stdout.close()
        s.write(place / "g", u, np.zeros((512, 512), "i4"))
    assert [entry.name for entry in place.iterdir()] == ["g"]


MEASURED = """
import sys, threading, time, ctypes, numpy as np, penstock as ps
path, form, dists = sys.argv[1:]
RANKS, SERVERS, SIDE = 4, 2, 4096
disk = {
    "raw": ps.RowMajor(),
    "chunks": ps.Chunks((256, 256)),
    "zstd": ps.Chunks((256, 256), codec="zstd:1"),
}[form]
u = ps.Array("u", (SIDE, SIDE), "f8", memory=ps.Distribution(dists, (2, 2)), disk=disk)

def in_use():
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return sum(int(found[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))

locals_ = [np.ones(u.local_shape(rank)) for rank in range(RANKS)]
ready, done, peak = threading.Barrier(RANKS + 1), threading.Event(), [0]

def sample():
    while not done.wait(0.001):
        peak[0] = max(peak[0], in_use())

def main(session):
    local = locals_[session.rank]
    session.barrier()
    ready.wait()
    ready.wait()
    report = session.write(path, u, local)
    session.read(path, u, out=local)
    return report

def measure():
    ready.wait()
    peak[0] = before[0] = in_use()
    sampler.start()
    ready.wait()

before = [0]
sampler = threading.Thread(target=sample)
measurer = threading.Thread(target=measure)
measurer.start()
reports = ps.run(main, RANKS, servers=SERVERS)
done.set()
sampler.join()
print(peak[0] - before[0], RANKS * (8 << 20) + SERVERS * 2 * (1 << 20), reports[0].buffer_bytes)
"""


@pytest.mark.parametrize(
    "form, dists",
    [("raw", "CYCLIC,CYCLIC"), ("chunks", "CYCLIC,CYCLIC"), ("zstd", "BLOCK,CYCLIC(3)")],
)
def test_memory_beyond_the_arrays(place, form, dists):
    """At most 8 MiB a rank and two buffers a server, for 128 MiB dealt out by single elements."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    taken, allowed, buffers = map(int, alone(MEASURED, place / "u", form, dists).split())
    assert buffers <= 2 * 2 * (1 << 20)
    assert taken <= allowed, f"{taken / 2**20:.1f} MiB were taken beyond the arrays"


IDLE = """
import sys, time, resource, threading, penstock as ps
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
def main(session):
    session.barrier()
    if session.rank == 0:
        begun = cpu()
        time.sleep(1)
        used.append(cpu() - begun)
    session.barrier()
used = []
ps.run(main, 6, servers=3, dedicated=sys.argv[1] == "dedicated")
print(used[0])
"""


@pytest.mark.parametrize("servers", ["dedicated", "part-time"])
def test_idle_ranks_sleep(servers):
    """Five ranks and the servers that wait a second for the sixth take no processor."""
    assert float(alone(IDLE, servers)) < 0.15
