"""Arrays in a bucket, written and read by the ranks of a job."""

from __future__ import annotations

import contextlib
import os
import socket

import numpy as np
import pytest
import zarr
from buckets import BUCKET, Service, environment, service
from helpers import same_bits, values
from mpi4py import MPI
from mpihelpers import rest

import penstock as ps

COMM = MPI.COMM_WORLD
SHAPE = (13, 6, 5)


@pytest.fixture(scope="module")
def bucket():
    """Rank 0 starts a service, and all ranks know how to reach it."""
    with contextlib.ExitStack() as stack:
        hosts = COMM.allgather(socket.gethostname())
        is_one = len(set(hosts)) == 1
        address = "127.0.0.1" if is_one else socket.gethostbyname(hosts[0])
        running = stack.enter_context(service(address)) if COMM.rank == 0 else None
        rest(COMM)
        port = COMM.bcast(running.port if running else None)
        os.environ.update(environment(port, address))
        yield running or Service(port, address)
        COMM.barrier()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_ranks_write_and_read(bucket: Service, codec):
    path, whole = f"mpi-{codec}.zarr", values(SHAPE, "f8", 1)
    memory = ps.Distribution("BLOCK,*,*", (COMM.size,))
    u = ps.Array("u", SHAPE, "f8", memory=memory, disk=ps.Chunks((4, 4, 2), codec=codec))
    rows = -(-SHAPE[0] // COMM.size) * COMM.rank
    with ps.Session(COMM) as s:
        for again in (1, 2):
            local = again * whole[rows : rows + u.local_shape(s.rank)[0]]
            s.write(f"s3://{BUCKET}/{path}", u, local)
            back = s.read(f"s3://{BUCKET}/{path}", u, region=np.s_[0:13, 0:6, 0:5])
            assert same_bits(back, again * whole)
            if s.rank == 0:
                found = zarr.open_group(bucket.zarr(path), mode="r")["u"][...]
                assert same_bits(found, again * whole)
            s.barrier()


def test_ranks_save_a_group(bucket: Service):
    path = f"s3://{BUCKET}/mpi-group.zarr"
    memory = ps.Distribution("BLOCK,*,*", (COMM.size,))
    u = ps.Array("u", SHAPE, "f8", memory=memory, disk=ps.Chunks((4, 4, 2), codec="zstd:1"))
    p = ps.Array("p", (None,), "i8", dims=("particle",))
    group = ps.Group("g", [u, p], path, time_chunk=2)

    def parts(step: int) -> dict[str, np.ndarray]:
        rows = -(-SHAPE[0] // COMM.size) * COMM.rank
        local = values(SHAPE, "f8", step)[rows : rows + u.local_shape(COMM.rank)[0]]
        return {"u": local, "p": np.full(COMM.rank + step, COMM.rank)}

    with ps.Session(COMM) as s:
        for step in range(3):
            s.timestep(group, parts(step))
            s.checkpoint(group, parts(step + 10), step=step)
        state = s.restart(group, step=1)
        assert same_bits(state["u"], parts(11)["u"])
        s.timestep(group, parts(7))
        if s.rank == 0:
            found = zarr.open_group(bucket.zarr("mpi-group.zarr"), mode="r", use_consolidated=True)
            for index, step in enumerate((0, 1, 7)):
                assert same_bits(found["u"][index], values(SHAPE, "f8", step))
            rows = [r for step in (0, 1, 7) for r in range(COMM.size) for _ in range(r + step)]
            assert found["p"][...].tolist() == rows
            assert sorted(found["checkpoints"].group_keys()) == ["1"]
            assert ps.verify(path).is_well
        s.barrier()


def test_an_error_of_the_service_is_every_rank_s(bucket: Service):
    memory = ps.Distribution("BLOCK,*,*", (COMM.size,))
    u = ps.Array("u", SHAPE, "f8", memory=memory, disk=ps.Chunks((4, 4, 2)))
    with ps.Session(COMM) as s, pytest.raises(ps.Error, match="no-such-bucket"):
        s.write("s3://no-such-bucket/x.zarr", u, np.zeros(u.local_shape(s.rank)))


def test_memory_is_of_one_process():
    memory = ps.Distribution("BLOCK,*,*", (COMM.size,))
    u = ps.Array("u", SHAPE, "f8", memory=memory, disk=ps.Chunks((1, 6, 5)))
    local = np.ones(u.local_shape(COMM.rank))
    with ps.Session(COMM, servers=COMM.size) as s:
        if COMM.size == 1:
            s.write("memory://mpi/x.zarr", u, local)
        else:
            with pytest.raises(ps.UnsupportedError, match="one process"):
                s.write("memory://mpi/x.zarr", u, local)
