"""An MPI program over two hosts of two ranks each: what ranks share, and what the network carries.

    python tests/hosts/cluster.py 2 2 -- mpiexec -n 4 python tests/hosts/traffic_job.py STORE

Of both the kernel is asked, not Penstock: which memory processes have mapped, and how many bytes
have left this host. Each rank writes and reads one chunk. Once it is a chunk that a server of its
own host keeps, and once one of the other host's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

import penstock as ps

CHUNK = (512, 1024)
CHUNK_BYTES = 8 * CHUNK[0] * CHUNK[1]
SERVERS = 2
"""The first rank of each host: chunk number n is of server n modulo 2."""
OWN, OTHER = (0, 2, 1, 3), (1, 3, 0, 2)
"""The chunk of each rank, of four on two hosts."""
LITTLE = CHUNK_BYTES // 8
"""The most bytes that a call needs without any elements, and what else MPI may send meanwhile."""


def sent_bytes() -> int:
    """What this host has sent to others."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (eth0,) = (line.split(":")[1].split() for line in lines if line.strip().startswith("eth0:"))
    return int(eth0[8])


def shared_files() -> set[str]:
    """The files of Penstock's in memory that this process has mapped, by their numbers."""
    maps = Path("/proc/self/maps").read_text()
    return set(re.findall(r"(\d+) +/memfd:penstock", maps))


def ranks_by_host(comm: MPI.Intracomm) -> list[list[int]]:
    """As the names of the hosts say; MPI must see it so, too."""
    names = comm.allgather(MPI.Get_processor_name())
    hosts = [[rank for rank in range(comm.size) if names[rank] == name] for name in set(names)]
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    assert sorted(host.allgather(comm.rank)) in hosts, "MPI sees other hosts"
    host.Free()
    return sorted(hosts)


def on_network(comm: MPI.Intracomm, call: Callable[[], object]) -> int:
    """The bytes that hosts have sent to each other for a call."""
    comm.Barrier()
    before = sent_bytes()
    comm.Barrier()
    call()
    comm.Barrier()
    sent = comm.allgather(sent_bytes() - before)
    return sum(sent[ranks[0]] for ranks in ranks_by_host(comm))


def check_memory(comm: MPI.Intracomm, transport: str, has_moved: bool) -> None:
    """Ranks have mapped the same memory if they are on one host, and only then."""
    mapped = comm.allgather(shared_files())
    for ranks in ranks_by_host(comm):
        for rank in range(comm.size):
            common = mapped[ranks[0]] & mapped[rank]
            if rank not in ranks or (transport == "messages" and rank != ranks[0]):
                assert not common, f"ranks {ranks[0]} and {rank} share memory"
            else:
                # Their inboxes, and a server's buffer into which the other has copied.
                least = 2 if has_moved else 1
                assert len(common) >= least, f"ranks {ranks[0]} and {rank} share no memory"


def check_traffic(comm: MPI.Intracomm, store: Path, transport: str) -> None:
    """Elements cross the network if, and only if, they go to another host."""
    shape = (comm.size * CHUNK[0], CHUNK[1])
    # Column by column, so that a rank has many stretches: it copies them into the server's buffer.
    local = np.full(CHUNK, comm.rank, "f8", order="F")
    least = comm.size * CHUNK_BYTES
    with ps.Session(comm, transport=transport, servers=SERVERS, sync=False) as s:
        check_memory(comm, transport, has_moved=False)
        for chunks, crosses in [(OWN, False), (OTHER, True)]:
            mine = [ps.Boxes((CHUNK[0] * chunks[s.rank], 0), CHUNK)]
            u = ps.Array(f"u{int(crosses)}", shape, "f8", mine, ps.Chunks(CHUNK))
            found = [np.zeros(CHUNK, order="F")]
            calls: list[Callable[[], object]] = [
                lambda u=u: s.write(store, u, [local]),
                lambda u=u, found=found: s.read(store, u, found),
            ]
            for name, call in zip(("written", "read"), calls, strict=True):
                sent = on_network(comm, call)
                if s.rank == 0:
                    where = "of another host" if crosses else "of its own host"
                    print(f"{transport}: {least} bytes {name} by servers {where}: {sent} sent")
                assert (sent >= least) if crosses else (sent < LITTLE), (transport, crosses, sent)
            assert np.array_equal(found[0], local)
        check_memory(comm, transport, has_moved=True)


def main(store: Path) -> None:
    comm = MPI.COMM_WORLD
    assert ranks_by_host(comm) == [[0, 1], [2, 3]]
    check_traffic(comm, store, "shared")
    # The control: the same ranks by messages share nothing, and MPI keeps to the host, too.
    with ps.Session(comm, transport="messages") as s:
        s.barrier()
        check_memory(comm, "messages", has_moved=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
