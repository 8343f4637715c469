"""Every rank of the benchmark ``panda`` runs this module, which measures one job.

    mpiexec -n RANKS python -m penstock_bench.panda_job JOB

The ranks are the clients of Panda's experiments (Seamons et al., SC '95, section 3); some of them
are also servers during a call. A *case* is an array of one size in one disk schema, on a disk or
on an infinitely fast one, written and read by a number of servers. Each has a *peak* beside it, of
the same bytes, that is measured in turn with it:

- on a disk, as many ranks as there are servers write and read a file each by plain system calls of
  1 MiB, one after the other: what the file system gives to as many processes at once. Beside that
  they do the same with as many files as the array has, which are put in their place when all are
  there, and moved as the array is moved: what it gives to whom makes the array's promises;
- where the disk is infinitely fast, as many ranks as there are servers receive (a write) or send (a
  read) as much by messages of 1 MiB: what MPI gives. Beside that they copy it, 1 MiB at a time, out
  of the memory of other ranks or into it: what the memory of one host would give.

Time is taken as :mod:`penstock_bench.meters` says. Writes end on stable storage; reads begin with
nothing in the page cache. Arrays go around it (``direct=True``), unless the job says otherwise.
Every byte of an array is verified, after each write and each read. An infinitely fast disk keeps
nothing: there is nothing to verify on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import math
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as ps
from penstock_bench.case import Case, Disk, Distribution, Elements
from penstock_bench.command import MIB
from penstock_bench.job import Job, Result, main_of_rank
from penstock_bench.machine import machine_facts
from penstock_bench.meters import in_turn, rest, timed, waking_seconds
from penstock_bench.rivals import penstock_array, penstock_disk
from penstock_bench.storage import drop_from_cache, give_space_back, touch_free_memory

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Win

NATURAL, TRADITIONAL = "natural", "traditional"
SERVED = "server-directed"
SYSTEM_CALLS, MESSAGES, COPIES = "system calls", "messages", "memory copies"
ARRAY_FILES = "system calls on the array's files"
OPERATIONS = ("write", "read")
MESHES = {8: (2, 2, 2), 16: (4, 2, 2), 24: (6, 2, 2), 32: (4, 4, 2)}
"""The paper has these meshes."""
ELEMENT = np.dtype("f8")
REQUEST_BYTES = MIB
"""A system call or message of a peak moves so much, as in the paper."""
HUGE_PAGE_BYTES = 2 * MIB
TURN_SECONDS = 0.00005
"""Ranks that put files in place sleep so long between two looks for each other."""
LIBC = ctypes.CDLL(None, use_errno=True)
SYNC_FILE_RANGE_WRITE = 2
WAKING_TIMES = 5
"""Each case measures so often how long it takes to wake all ranks."""
CONTENDERS = 3
"""Each number of servers has a peak, what stands beside it, and the array."""
REPEATS = 20, 100
"""The least and the greatest number of repeats, unless options name one.

Small arrays take little time, and are nearest to what is to be reached.
"""
BYTES_TOGETHER = 1600 * MIB
"""Between these two, all repeats together move so much."""


@dataclass(frozen=True, kw_only=True)
class PandaJob(Job):
    """A job measures these cases with one number of clients, and some of these also serve."""

    cases: list[tuple[str, bool, int, list[str]]]
    """Schema, whether the disk is infinitely fast, bytes of the array, operations."""
    server_counts: list[int]
    repeats: int
    """The repeats of every size; 0 for as many as :func:`repeats_of` says."""
    direct: bool
    """Whether arrays are moved around the page cache."""

    @property
    def steps(self) -> int:
        """The number of turns of all contenders."""
        return sum(
            CONTENDERS * len(self.server_counts) * len(self.turns(size))
            for _schema, _is_null, size, _operations in self.cases
        )

    def chunk_files(self, schema: str, servers: int) -> int:
        """Return the number of files that each server has of the array."""
        return -(-self.clients // servers) if schema == NATURAL else 1

    def turns(self, bytes_: int) -> range:
        """Return the repeats for an array of that size; repeat number 0 does not count."""
        return range(repeats_of(bytes_, self.repeats) + 1)


def repeats_of(bytes_: int, said: int) -> int:
    """Return how often an array of that size is measured: as `said`, unless that is 0."""
    least, most = REPEATS
    return said or min(max(BYTES_TOGETHER // bytes_, least), most)


# ---------------------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------------------


def mesh_of(count: int) -> tuple[int, int, int]:
    """Return the paper's mesh for a number of clients; if it has none, one nearest to a cube."""
    if count in MESHES:
        return MESHES[count]
    best = (count, 1, 1)
    for last in range(1, round(count ** (1 / 3)) + 1):
        for middle in range(last, math.isqrt(count // last) + 1):
            if count % (last * middle) == 0:
                best = min(best, (count // (last * middle), middle, last))
    return best


def shape_of(bytes_: int) -> tuple[int, int, int]:
    """Return extents near to a cube, powers of 2, of an array of a power of 2 bytes."""
    power = (bytes_ // ELEMENT.itemsize).bit_length() - 1
    return 1 << power // 3, 1 << (power + 1) // 3, 1 << (power + 2) // 3


def make_case(job: PandaJob, schema: str, bytes_: int, servers: int, rank: int) -> Case:
    """Return the array of a case, as `servers` servers have it on disk."""
    shape, mesh = shape_of(bytes_), mesh_of(job.clients)
    if schema == NATURAL:
        chunk = tuple(-(-n // m) for n, m in zip(shape, mesh, strict=True))
        disk = Disk("chunks", chunk=chunk)
    else:
        disk = Disk("parts", parts=Distribution.parse("BLOCK,*,*", (servers,)))
    return Case(
        shape,
        ELEMENT,
        Distribution.parse("BLOCK,BLOCK,BLOCK", mesh),
        disk,
        Path(job.directory),
        sync=True,
        rank=rank,
        size=job.clients,
    )


# ---------------------------------------------------------------------------------------------
# Contenders
# ---------------------------------------------------------------------------------------------


class Mover:
    """A contender writes, and reads what it wrote."""

    label: str
    servers: int
    is_array = False
    """Whether it moves the array itself."""
    is_on_disk = False
    """Whether anything of it reaches a disk."""

    def write(self, target: str, local: Elements) -> None:
        """Write to `target`."""
        raise NotImplementedError

    def read(self, target: str, local: Elements) -> None:
        """Read from `target`."""
        raise NotImplementedError

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        """Count what is wrong after a write."""
        return 0

    def wrong_in_memory(self, local: Elements, salt: int) -> int:
        """Count what is wrong after a read."""
        return 0

    def close(self) -> None:
        """Give back what the constructor took."""
        return


class Served(Mover):
    """The array itself is moved, by a collective call of Penstock."""

    label = SERVED
    is_array = True

    def __init__(
        self, case: Case, comm: Intracomm, servers: int, *, natural: bool, null: bool, direct: bool
    ) -> None:
        self.case, self.servers, self.is_on_disk = case, servers, not null
        self.array = penstock_array(case, None if natural else penstock_disk(case))
        self.session = ps.Session(
            comm,
            servers=servers,
            sync=not null,
            direct=direct and not null,
            faults=ps.testing.Faults(null=null),
        )

    def write(self, target: str, local: Elements) -> None:
        self.session.write(target, self.array, local)

    def read(self, target: str, local: Elements) -> None:
        self.session.read(target, self.array, out=local)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        return self.case.wrong_on_disk(target, salt) if self.is_on_disk else 0

    def wrong_in_memory(self, local: Elements, salt: int) -> int:
        return self.case.wrong_in_memory(local, salt) if self.is_on_disk else 0

    def close(self) -> None:
        self.session.close()


class Files(Mover):
    """Plain system calls on files are the peak of a disk.

    Each of the first ranks has a file, or several, of whole pages. Calls that go around the page
    cache have a huge page for it.
    """

    is_on_disk = True

    def __init__(
        self,
        label: str,
        case: Case,
        comm: Intracomm,
        servers: int,
        files: int = 1,
        *,
        direct: bool = False,
    ) -> None:
        self.label, self.around = label, os.O_DIRECT if direct else 0
        self.rank, self.servers = comm.rank, servers
        pages = -(-case.bytes // servers // mmap.PAGESIZE)
        sizes = [(pages // files + (n < pages % files)) * mmap.PAGESIZE for n in range(files)]
        self.sizes = sizes if comm.rank < servers else []
        self.buffer = huge_page()[:REQUEST_BYTES]
        np.asarray(self.buffer)[...] = comm.rank + 1

    def write(self, target: str, local: Elements) -> None:
        with contextlib.ExitStack() as stack:
            written = []
            for path, size in self._files(target):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | self.around, 0o644)
                stack.callback(os.close, file)
                written.append(file)
                for offset, count in requests(size):
                    if os.pwrite(file, self.buffer[:count], offset) != count:
                        raise OSError(f"{target}: a write was cut short")
                    self.wrote(file, offset, count)
            for file in written:
                os.fsync(file)

    def wrote(self, file: int, offset: int, count: int) -> None:
        """Take note that a part of a file has been written."""

    def read(self, target: str, local: Elements) -> None:
        for path, size in self._files(target):
            file = os.open(path, os.O_RDONLY | self.around)
            try:
                for offset, count in requests(size):
                    if os.preadv(file, [self.buffer[:count]], offset) != count:
                        raise OSError(f"{target}: a read was cut short")
            finally:
                os.close(file)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        return sum(os.stat(path).st_size != size for path, size in self._files(str(target)))

    def wrong_in_memory(self, local: Elements, salt: int) -> int:
        return int(np.count_nonzero(np.asarray(self.buffer) != self.rank + 1)) if self.sizes else 0

    def _files(self, target: str) -> Iterator[tuple[str, int]]:
        for number, size in enumerate(self.sizes):
            yield f"{target}/{self.rank}.{number}", size


class PlacedFiles(Files):
    """Plain system calls move as many files as the array has, as safely.

    The files are written to another directory, which takes the place of the target when all of
    them, and it, are on stable storage. To be quick, what goes through the page cache begins to be
    written back at once, and only the ranks that write wait for each other.
    """

    def __init__(
        self, case: Case, comm: Intracomm, servers: int, files: int, *, direct: bool
    ) -> None:
        super().__init__(ARRAY_FILES, case, comm, servers, files, direct=direct)
        self.writers = comm.Split(comm.rank < servers, comm.rank)

    def write(self, target: str, local: Elements) -> None:
        if not self.sizes:
            return
        directory, name = os.path.split(target)
        made = f"{directory}/.{name}"
        if self.rank == 0:
            os.mkdir(made)
        rest(self.writers, TURN_SECONDS)
        super().write(made, local)
        rest(self.writers, TURN_SECONDS)
        if self.rank == 0:
            sync_directory(made)
            os.rename(made, target)
            sync_directory(directory)

    def wrote(self, file: int, offset: int, count: int) -> None:
        if not self.around:
            start_writeback(file, offset, count)

    def close(self) -> None:
        self.writers.Free()


def start_writeback(file: int, offset: int, count: int) -> None:
    """Ask Linux to begin to write a part of a file to its disk, without waiting."""
    part = ctypes.c_int64(offset), ctypes.c_int64(count)
    if LIBC.sync_file_range(file, *part, SYNC_FILE_RANGE_WRITE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"beginning to write back: {os.strerror(number)}")


def sync_directory(path: str) -> None:
    """Bring a directory's entries to stable storage."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def huge_page() -> memoryview:
    """Return a piece of memory that is a huge page if the system has any, for direct I/O."""
    memory = mmap.mmap(-1, 2 * HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE_BYTES
    return memoryview(memory)[start : start + HUGE_PAGE_BYTES]


def requests(size: int) -> Iterator[tuple[int, int]]:
    """Yield where each request of a file begins, and how long it is."""
    for offset in range(0, size, REQUEST_BYTES):
        yield offset, min(REQUEST_BYTES, size - offset)


class Messages(Mover):
    """Plain messages are the peak of MPI.

    As many ranks as there are servers receive from another rank each, for a write, or send to it,
    for a read.
    """

    label = MESSAGES

    def __init__(self, case: Case, comm: Intracomm, servers: int) -> None:
        self.comm, self.servers, self.bytes = comm, servers, case.bytes // servers
        self.half = comm.size // 2
        self.buffer = np.ones(REQUEST_BYTES, np.uint8)
        self.spare = np.ones(REQUEST_BYTES, np.uint8)

    def write(self, target: str, local: Elements) -> None:
        self._move(local, is_write=True)

    def read(self, target: str, local: Elements) -> None:
        self._move(local, is_write=False)

    def _move(self, local: Elements, *, is_write: bool) -> None:
        """Move each server's bytes between its buffer and its client's share of the array."""
        comm, share = self.comm, local.reshape(-1).view(np.uint8)
        share = self.spare if share.size < REQUEST_BYTES else share
        client = (comm.rank + self.half) % comm.size
        server = (comm.rank - self.half) % comm.size
        at = 0
        for offset in range(0, self.bytes, REQUEST_BYTES):
            count = min(REQUEST_BYTES, self.bytes - offset)
            at = at if at + count <= share.size else 0
            requests = []
            to_server, to_client = (
                (comm.Irecv, comm.Isend) if is_write else (comm.Isend, comm.Irecv)
            )
            if comm.rank < self.servers:
                requests.append(to_server(self.buffer[:count], client))
            if server < self.servers:
                requests.append(to_client(share[at : at + count], server))
            for request in requests:
                request.Wait()
            at += count


class Copies(Mover):
    """Plain copies are what one host's memory gives.

    As many ranks as there are servers copy out of the shares of other ranks in turn, for a write,
    or into them, for a read.
    """

    label = COPIES

    def __init__(self, case: Case, comm: Intracomm, servers: int, window: Win) -> None:
        self.servers = servers
        self.bytes = case.bytes // servers if comm.rank < servers else 0
        clients = range(comm.rank + comm.size // 2, comm.rank + comm.size // 2 + comm.size, servers)
        self.shares = [shared_bytes(window, client % comm.size) for client in clients]
        for share in self.shares if self.bytes else []:
            share[:: mmap.PAGESIZE] = 1  # so that no page is mapped while time is taken
        self.buffer = np.ones(REQUEST_BYTES, np.uint8)

    def write(self, target: str, local: Elements) -> None:
        for part in self._parts():
            self.buffer[: part.size] = part

    def read(self, target: str, local: Elements) -> None:
        for part in self._parts():
            part[...] = self.buffer[: part.size]

    def _parts(self) -> Iterator[Elements]:
        """Yield parts of share after share, from the first again if need be."""
        left = self.bytes
        while left:
            for share in self.shares:
                for at in range(0, min(left, share.size), REQUEST_BYTES):
                    yield share[at : at + min(REQUEST_BYTES, left - at, share.size - at)]
                left -= min(left, share.size)


def shared_bytes(window: Win, rank: int) -> Elements:
    """Return the memory of a rank in a shared window."""
    memory: Any = window.Shared_query(rank)[0]
    return np.frombuffer(memory, np.uint8)


@contextlib.contextmanager
def shared_window(case: Case, comm: Intracomm) -> Iterator[Win | None]:
    """Make memory as large as each rank's share, which all ranks see, if they have one host."""
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    is_one_host = host.size == comm.size
    host.Free()
    if not is_one_host:
        yield None
        return
    share = math.prod(case.local_shape()) * case.dtype.itemsize
    window = MPI.Win.Allocate_shared(max(share, 1), 1, comm=comm)
    try:
        shared_bytes(window, comm.rank)[...] = 1
        rest(comm)
        yield window
    finally:
        window.Free()


@contextlib.contextmanager
def contenders(
    job: PandaJob, schema: str, is_null: bool, bytes_: int, comm: Intracomm
) -> Iterator[list[Mover]]:
    """Make the peaks, and Penstock, for each number of servers."""
    with contextlib.ExitStack() as stack:
        found: list[Mover] = []
        window = None
        if is_null:
            case = make_case(job, schema, bytes_, job.server_counts[0], comm.rank)
            window = stack.enter_context(shared_window(case, comm))
        for servers in job.server_counts:
            case = make_case(job, schema, bytes_, servers, comm.rank)
            if is_null:
                found.append(Messages(case, comm, servers))
            else:
                found.append(Files(SYSTEM_CALLS, case, comm, servers))
            if window:
                found.append(Copies(case, comm, servers, window))
            if not is_null:
                files = job.chunk_files(schema, servers)
                placed = PlacedFiles(case, comm, servers, files, direct=job.direct)
                found.append(stack.enter_context(contextlib.closing(placed)))
            served = Served(
                case,
                comm,
                servers,
                natural=schema == NATURAL,
                null=is_null,
                direct=job.direct,
            )
            found.append(stack.enter_context(contextlib.closing(served)))
        yield found


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def measure(
    job: PandaJob,
    case: Case,
    comm: Intracomm,
    found: list[Mover],
    operations: list[str],
    salts: Iterator[int],
    step: Callable[[str], None],
) -> list[Result]:
    """Measure all contenders, again and again, and return what the ranks agree on.

    Each turn takes a salt of its own.
    """
    local = np.zeros(case.local_shape(), case.dtype)
    results: dict[tuple[str, int, str], Result] = {
        (one.label, one.servers, operation): {
            "contender": one.label,
            "servers": one.servers,
            "operation": operation,
            "seconds": [],
            "wrong": 0,
        }
        for one in found
        for operation in operations
    }
    for repeat, one in in_turn(found, job.turns(case.bytes)):
        salt = next(salts)
        step(f"{one.servers} servers, {one.label}")
        for operation, seconds, wrong in turn(case, comm, one, local, operations, salt):
            if operation not in operations:
                continue
            result = results[one.label, one.servers, operation]
            result["wrong"] += wrong
            if repeat > 0:
                result["seconds"].append(seconds)
    return list(results.values())


def turn(
    case: Case, comm: Intracomm, one: Mover, local: Elements, operations: list[str], salt: int
) -> Iterator[tuple[str, float, int]]:
    """Write once and, if it is asked for, read once; yield seconds and wrong elements of each.

    It leaves empty files, which the command removes at its end.
    """
    target = case.directory / f"{case.name}-{comm.size}-{salt}"
    place = str(target)  # what is timed should not be how a path becomes a string
    if one.is_array:
        case.fill(local, salt)
    if comm.rank == 0:
        if isinstance(one, Files):
            target.mkdir()
        if one.is_on_disk:
            touch_free_memory(case.directory, case.bytes)
    rest(comm)
    seconds, _ = timed(comm, lambda: one.write(place, local))
    yield "write", seconds, comm.allreduce(one.wrong_on_disk(target, salt))
    if "read" in operations:
        if one.is_on_disk and comm.rank == 0:
            drop_from_cache(target)
        if one.is_array:
            local.reshape(-1).view(np.uint8)[...] = 0xA5
        rest(comm)
        seconds, _ = timed(comm, lambda: one.read(place, local))
        yield "read", seconds, comm.allreduce(one.wrong_in_memory(local, salt))
    rest(comm)
    if comm.rank == 0:
        give_space_back(target)
    rest(comm)


def run(job: PandaJob, comm: Intracomm, say: Callable[..., None]) -> None:
    """Measure the job, and tell `say` of every step and every result."""
    say(machine=machine_facts())
    salts = itertools.count(1)
    for schema, is_null, bytes_, operations in job.cases:
        about: dict[str, Any] = {
            "schema": schema,
            "null": is_null,
            "bytes": bytes_,
            "clients": job.clients,
        }
        case = make_case(job, schema, bytes_, job.server_counts[0], comm.rank)

        def step(text: str, about: dict[str, Any] = about) -> None:
            disk = ", infinitely fast disk" if about["null"] else ""
            text = f"{about['clients']} clients, {about['bytes'] / MIB:g} MiB{disk}, {text}"
            say(step=text)

        with contenders(job, schema, is_null, bytes_, comm) as found:
            measured = measure(job, case, comm, found, operations, salts, step)
            about["waking_seconds"] = [waking_seconds(comm) for _ in range(WAKING_TIMES)]
            for result in measured:
                say(result=about | result)
    rest(comm)


def main(arguments: list[str]) -> int:
    """Run the job that the only argument describes, and return the exit code."""
    job = PandaJob(**json.loads(arguments[0]))
    return main_of_rank(lambda world, say: run(job, world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
