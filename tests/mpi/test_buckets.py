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
