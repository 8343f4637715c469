"""What every rank of ``penstock bench panda`` does: it measures one job, and rank 0 prints lines of
JSON.

    mpiexec -n RANKS python -m penstock._bench_panda_job JOB

The ranks are the clients of Panda's experiments (Seamons et al., SC '95, section 3); some of them
are also servers during a call. A *case* is an array of so many bytes in one disk schema, on a disk
or on an infinitely fast one, written and read by so many servers. Each has a *peak* beside it, of
the same bytes, that is measured in turn with it:

- on a disk, as many ranks as there are servers write and read a file each by plain system calls of
  1 MiB, one after the other: what the file system gives to as many processes at once. Beside that
  they do the same with as many files as the array has, which are put in their place when all are
  there, and moved as the array is moved: what it gives to whom makes the array's promises;
- where the disk is infinitely fast, as many ranks as there are servers receive (a write) or send (a
  read) as much by messages of 1 MiB: what MPI gives. Beside that they copy it, 1 MiB at a time, out
  of the memory of other ranks or into it: what the memory of one host would give.

How time is taken, and what alternates, is what :mod:`penstock.bench` says. Writes end on stable
storage; reads begin with nothing in the page cache. Arrays go around it (``direct=True``), unless
the job says otherwise. Every byte of an array is verified, after each write and each read. An
infinitely fast disk keeps nothing: there is nothing to verify on it.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock._bench_case import Case, Disk, Distribution, give_space_back, touch_free_memory
from penstock._bench_job import main_of_job
from penstock._bench_rivals import Penstock
from penstock.bench import drop_from_cache, machine_facts, rest, timed, waking_seconds

MIB = 1 << 20
NATURAL, TRADITIONAL = "natural", "traditional"
SERVED = "server-directed"
SYSTEM_CALLS, MESSAGES, COPIES = "system calls", "messages", "memory copies"
ARRAY_FILES = "system calls on the array's files"
OPERATIONS = ("write", "read")
MESHES = {8: (2, 2, 2), 16: (4, 2, 2), 24: (6, 2, 2), 32: (4, 4, 2)}
"""The paper's."""
ELEMENT = np.dtype("f8")
REQUEST_BYTES = MIB
"""Of a peak's system calls and messages, as in the paper."""
HUGE_PAGE_BYTES = 2 * MIB
TURN_SECONDS = 0.00005
"""How long those that put files in place sleep between two looks for each other."""
LIBC = ctypes.CDLL(None, use_errno=True)
SYNC_FILE_RANGE_WRITE = 2
WAKING_TIMES = 5
"""How often it is looked at how long it takes to wake all ranks, in each case."""
CONTENDERS = 3
"""For each number of servers: the peak, what stands beside it, and the array."""
REPEATS = 20, 100
"""At least, and at most, unless it is said how many: small arrays take little time, and are nearest
to what is to be reached."""
BYTES_TOGETHER = 1600 * MIB
"""As many repeats as move so much, between these two."""


@dataclass(frozen=True)
class Job:
    """What one start of mpiexec measures."""

    clients: int
    cases: list[tuple[str, bool, int, list[str]]]
    """Schema, whether the disk is infinitely fast, bytes of the array, operations."""
    server_counts: list[int]
    directory: str
    repeats: int | None
    """Of every size; None for as many as :func:`repeats_of` says."""
    direct: bool
    """Whether arrays are moved around the page cache."""
    servers: int = 0
    """Beside the clients: none, since clients serve."""

    def to_json(self) -> str:
        """For the command line of the ranks."""
        return json.dumps(asdict(self))

    @property
    def steps(self) -> int:
        """How many contenders it measures, how often."""
        return sum(
            CONTENDERS * len(self.server_counts) * len(self.turns(size))
            for _schema, _is_null, size, _operations in self.cases
        )

    def chunk_files(self, schema: str, servers: int) -> int:
        """How many files the array is of each server."""
        return -(-self.clients // servers) if schema == NATURAL else 1

    def turns(self, bytes_: int) -> range:
        """The repeats for an array of that size; what is measured in number 0 does not count."""
        return range(repeats_of(bytes_, self.repeats) + 1)


def repeats_of(bytes_: int, said: int | None) -> int:
    """How often an array of that size is measured: as it is said, if it is."""
    least, most = REPEATS
    return said or min(max(BYTES_TOGETHER // bytes_, least), most)


# ---------------------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------------------


def mesh_of(count: int) -> tuple[int, int, int]:
    """The paper's mesh of so many clients; of others, one as near to a cube as can be."""
    if count in MESHES:
        return MESHES[count]
    best = (count, 1, 1)
    for last in range(1, round(count ** (1 / 3)) + 1):
        for middle in range(last, math.isqrt(count // last) + 1):
            if count % (last * middle) == 0:
                best = min(best, (count // (last * middle), middle, last))
    return best


def shape_of(bytes_: int) -> tuple[int, int, int]:
    """Powers of 2 as near to a cube as can be, of an array of a power of 2 bytes."""
    power = (bytes_ // ELEMENT.itemsize).bit_length() - 1
    return 1 << power // 3, 1 << (power + 1) // 3, 1 << (power + 2) // 3


def make_case(job: Job, schema: str, bytes_: int, servers: int, rank: int) -> Case:
    """The array of a case, as `servers` servers have it on disk."""
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
# Contenders: each writes, and reads what it wrote
# ---------------------------------------------------------------------------------------------


class Served:
    """The array itself, by a collective call of Penstock."""

    label = SERVED

    def __init__(
        self, case: Case, comm, servers: int, *, natural: bool, is_null: bool, direct: bool
    ) -> None:
        self.case, self.servers, self.is_null = case, servers, is_null
        memory = ps.Distribution(case.memory.text, mesh=case.memory.mesh)
        disk = None if natural else Penstock.disk(case)
        self.array = ps.Array(
            case.name, shape=case.shape, dtype=case.dtype, memory=memory, disk=disk
        )
        self.session = ps.Session(
            comm,
            servers=servers,
            sync=not is_null,
            direct=direct and not is_null,
            faults=ps.testing.Faults(null=is_null),
        )

    def write(self, target: str, local: np.ndarray) -> None:
        self.session.write(target, self.array, local)

    def read(self, target: str, local: np.ndarray) -> None:
        self.session.read(target, self.array, out=local)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        return 0 if self.is_null else self.case.wrong_on_disk(target, salt)

    def wrong_in_memory(self, local: np.ndarray, salt: int) -> int:
        return 0 if self.is_null else self.case.wrong_in_memory(local, salt)

    def close(self) -> None:
        self.session.close()


class Files:
    """The peak of a disk: each of the first ranks has a file, or several, of whole pages; plain
    system calls. Those that go around the page cache have a huge page for it."""

    def __init__(
        self, label: str, case: Case, comm, servers: int, files: int = 1, *, direct: bool = False
    ) -> None:
        self.label, self.around = label, os.O_DIRECT if direct else 0
        self.rank, self.servers = comm.rank, servers
        pages = -(-case.bytes // servers // mmap.PAGESIZE)
        sizes = [(pages // files + (n < pages % files)) * mmap.PAGESIZE for n in range(files)]
        self.sizes = sizes if comm.rank < servers else []
        self.buffer = huge_page()[:REQUEST_BYTES]
        np.asarray(self.buffer)[...] = comm.rank + 1

    def write(self, target: str, local: np.ndarray) -> None:
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
        """What is done about a request of a write besides."""

    def read(self, target: str, local: np.ndarray) -> None:
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

    def wrong_in_memory(self, local: np.ndarray, salt: int) -> int:
        return int(np.count_nonzero(np.asarray(self.buffer) != self.rank + 1)) if self.sizes else 0

    def _files(self, target: str) -> Iterator[tuple[str, int]]:
        for number, size in enumerate(self.sizes):
            yield f"{target}/{self.rank}.{number}", size


class PlacedFiles(Files):
    """As many files as the array has, and as safe: they are written to another directory, which
    takes the place of the target when all of them, and it, are on stable storage. To be quick, what
    goes through the page cache begins to be written back at once, and only those that write wait
    for each other."""

    def __init__(self, case: Case, comm, servers: int, files: int, *, direct: bool) -> None:
        super().__init__(ARRAY_FILES, case, comm, servers, files, direct=direct)
        self.writers = comm.Split(comm.rank < servers, comm.rank)

    def write(self, target: str, local: np.ndarray) -> None:
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
    """Asks Linux to begin to write so many bytes of a file to its disk, without waiting."""
    offset, count = ctypes.c_int64(offset), ctypes.c_int64(count)
    if LIBC.sync_file_range(file, offset, count, SYNC_FILE_RANGE_WRITE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"beginning to write back: {os.strerror(number)}")


def sync_directory(path: str) -> None:
    """Brings a directory's entries to stable storage."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def huge_page() -> memoryview:
    """So much memory, in one piece if the system has any, which only direct I/O cares for."""
    memory = mmap.mmap(-1, 2 * HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE_BYTES
    return memoryview(memory)[start : start + HUGE_PAGE_BYTES]


def requests(size: int) -> Iterator[tuple[int, int]]:
    """A file's bytes, one request after the other: where each begins, and how long it is."""
    for offset in range(0, size, REQUEST_BYTES):
        yield offset, min(REQUEST_BYTES, size - offset)


class Messages:
    """The peak of messages: as many ranks as there are servers receive from another rank each, for
    a write, or send to it, for a read."""

    label = MESSAGES

    def __init__(self, case: Case, comm, servers: int) -> None:
        self.comm, self.servers, self.bytes = comm, servers, case.bytes // servers
        self.half = comm.size // 2
        self.buffer = np.ones(REQUEST_BYTES, np.uint8)
        self.spare = np.ones(REQUEST_BYTES, np.uint8)

    def write(self, target: str, local: np.ndarray) -> None:
        self._move(local, is_write=True)

    def read(self, target: str, local: np.ndarray) -> None:
        self._move(local, is_write=False)

    def _move(self, local: np.ndarray, *, is_write: bool) -> None:
        """Each server's bytes, between its buffer and its client's share of the array."""
        comm, share = self.comm, local.reshape(-1).view(np.uint8)
        share = self.spare if share.size < REQUEST_BYTES else share
        client = (comm.rank + self.half) % comm.size
        server = (comm.rank - self.half) % comm.size
        at = 0
        for offset in range(0, self.bytes, REQUEST_BYTES):
            count = min(REQUEST_BYTES, self.bytes - offset)
            at = at if at + count <= share.size else 0
            requests = []
            if comm.rank < self.servers:
                move = comm.Irecv if is_write else comm.Isend
                requests.append(move(self.buffer[:count], client))
            if server < self.servers:
                move = comm.Isend if is_write else comm.Irecv
                requests.append(move(share[at : at + count], server))
            for request in requests:
                request.Wait()
            at += count

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        return 0

    def wrong_in_memory(self, local: np.ndarray, salt: int) -> int:
        return 0


class Copies:
    """What one host's memory gives: as many ranks as there are servers copy out of the shares of
    other ranks in turn, for a write, or into them, for a read."""

    label = COPIES

    def __init__(self, case: Case, comm, servers: int, window) -> None:
        self.servers = servers
        self.bytes = case.bytes // servers if comm.rank < servers else 0
        clients = range(comm.rank + comm.size // 2, comm.rank + comm.size // 2 + comm.size, servers)
        shares = [window.Shared_query(client % comm.size)[0] for client in clients]
        self.shares = [np.frombuffer(share, np.uint8) for share in shares]
        for share in self.shares if self.bytes else []:
            share[:: mmap.PAGESIZE] = 1  # so that no page is mapped while time is taken
        self.buffer = np.ones(REQUEST_BYTES, np.uint8)

    def write(self, target: str, local: np.ndarray) -> None:
        for part in self._parts():
            self.buffer[: part.size] = part

    def read(self, target: str, local: np.ndarray) -> None:
        for part in self._parts():
            part[...] = self.buffer[: part.size]

    def _parts(self) -> Iterator[np.ndarray]:
        """Share after share, from the first again if need be, as far as the bytes go."""
        left = self.bytes
        while left:
            for share in self.shares:
                for at in range(0, min(left, share.size), REQUEST_BYTES):
                    yield share[at : at + min(REQUEST_BYTES, left - at, share.size - at)]
                left -= min(left, share.size)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        return 0

    def wrong_in_memory(self, local: np.ndarray, salt: int) -> int:
        return 0


@contextlib.contextmanager
def shared_window(case: Case, comm) -> Iterator[Any]:
    """As much memory as each rank's share of the array, which all ranks see; none if they are on
    several hosts."""
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
        memory, _ = window.Shared_query(comm.rank)
        np.frombuffer(memory, np.uint8)[...] = 1
        rest(comm)
        yield window
    finally:
        window.Free()


@contextlib.contextmanager
def contenders(
    job: Job, schema: str, is_null: bool, bytes_: int, operations: list[str], comm
) -> Iterator[list]:
    """The peaks, and Penstock, for each number of servers."""
    with contextlib.ExitStack() as stack:
        found: list[Any] = []
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
                is_null=is_null,
                direct=job.direct,
            )
            found.append(stack.enter_context(contextlib.closing(served)))
        yield found


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def measure(
    job: Job,
    case: Case,
    comm,
    found: list,
    operations: list[str],
    salts: Iterator[int],
    step: Callable[[str], None],
) -> list[dict]:
    """All contenders, again and again; what the ranks agree on of each operation. Each turn takes
    a salt of its own."""
    local = np.zeros(case.local_shape(), case.dtype)
    results = {
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
    for repeat in job.turns(case.bytes):
        for one in found[::-1] if repeat % 2 else found:
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
    case: Case, comm, one, local: np.ndarray, operations: list[str], salt: int
) -> Iterator[tuple[str, float, int]]:
    """One write and, if it is asked for, one read; seconds and wrong elements of each. It leaves
    empty files, which the command removes at its end."""
    target = case.directory / f"{case.name}-{comm.size}-{salt}"
    place = str(target)  # what is timed should not be how a path becomes a string
    is_array = isinstance(one, Served)
    is_on_disk = isinstance(one, Files) or (is_array and not one.is_null)
    if is_array:
        case.fill(local, salt)
    if comm.rank == 0:
        if isinstance(one, Files):
            target.mkdir()
        if is_on_disk:
            touch_free_memory(case.directory, case.bytes)
    rest(comm)
    seconds, _ = timed(comm, lambda: one.write(place, local))
    yield "write", seconds, comm.allreduce(one.wrong_on_disk(target, salt))
    if "read" in operations:
        if is_on_disk and comm.rank == 0:
            drop_from_cache(target)
        if is_array:
            local.reshape(-1).view(np.uint8)[...] = 0xA5
        rest(comm)
        seconds, _ = timed(comm, lambda: one.read(place, local))
        yield "read", seconds, comm.allreduce(one.wrong_in_memory(local, salt))
    rest(comm)
    if comm.rank == 0:
        give_space_back(target)
    rest(comm)


def run(job: Job, comm, say: Callable[..., None]) -> None:
    """Measures the job; `say` is told of every step and every result."""
    say(machine=machine_facts())
    salts = itertools.count(1)
    for schema, is_null, bytes_, operations in job.cases:
        about = {"schema": schema, "null": is_null, "bytes": bytes_, "clients": job.clients}
        case = make_case(job, schema, bytes_, job.server_counts[0], comm.rank)

        def step(text: str, about: dict = about) -> None:
            disk = ", infinitely fast disk" if about["null"] else ""
            text = f"{about['clients']} clients, {about['bytes'] / MIB:g} MiB{disk}, {text}"
            say(step=text)

        with contenders(job, schema, is_null, bytes_, operations, comm) as found:
            measured = measure(job, case, comm, found, operations, salts, step)
            about["waking_seconds"] = [waking_seconds(comm) for _ in range(WAKING_TIMES)]
            for result in measured:
                say(result=about | result)
    rest(comm)


def main(arguments: list[str]) -> int:
    """Runs the job that the only argument describes; the exit code."""
    return main_of_job(lambda world, say: run(Job(**json.loads(arguments[0])), world, say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
