"""What the benchmark ``files`` does on one volume: it moves a file, reads at random, makes files.

The clients are threads of this process, with all servers beside them (`Threads`), or ranks of an
MPI job (`Ranks`). All that was read is compared with what was written, outside the time that is
measured; a wrong byte ends the benchmark.
"""

from __future__ import annotations

import functools
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

import penstock as ps
from penstock_bench.command import MIB, FailedError
from penstock_bench.meters import rest, timed, work_up

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Rates = dict[str, float]
"""Rates by what is done: bytes, accesses or files a second."""
View = tuple[int, int, int, int]
"""``vbs``, ``vn``, ``hbs``, ``hn``."""
Mover = Callable[[int, memoryview], object]
"""This moves bytes between an offset and memory."""

FIRST_WRITE, SECOND_WRITE, READ = PARTS = ("1st write", "2nd write", "read")
CREATES, STATS = "creates", "stats"
READS, WRITES = "reads", "writes"

NOTHING = 0xA5
"""Memory is full of this byte before it is read into."""
SMALL = 4096
"""The bytes of an access at random."""
CHECKED_TOGETHER = 256
"""The places to which reads at random go in turn, and which are then compared: L2 holds them."""
DIRECTORIES = 16
"""The directories to which new files are dealt out."""
FILL = 0.95
"""The part of a new volume that is written once. The rest is for what is written meanwhile."""


@dataclass(frozen=True)
class Volume:
    """A volume, and how it is opened."""

    path: str
    servers: int
    cache_bytes: int
    is_direct: bool
    is_cold: bool
    """Whether writes end with a sync, and nothing of the file is in a cache before a read."""

    def open(self, comm: Intracomm | None = None, *, dedicated: bool = False) -> ps.FileSystem:
        """Open the volume: collective over the ranks of `comm`."""
        return ps.FileSystem(
            self.path,
            comm,
            dedicated=dedicated,
            cache_bytes=self.cache_bytes,
            direct=self.is_direct,
        )


def make_volume(path: str, servers: int, block_bytes: int, server_bytes: int) -> None:
    """Make a volume whose disks have all been written to once.

    The first write of an allocated block costs the host's file system more than a later one, and
    in memory it costs a page. fio's file has been written to, too.
    """
    made = ps.FileSystem.create(
        path, servers=servers, block_bytes=block_bytes, capacity=server_bytes
    )
    with made as fs:
        usage = fs.usage()
        fs.create("/fill", cells=servers, bsu=block_bytes, base=0)
        with fs.attach("/fill", "w") as file:
            whole, piece = file.open(), np.zeros(8 * MIB, np.uint8)
            end = int((usage.bytes - usage.used) * FILL) // block_bytes * block_bytes
            for offset in range(0, end, piece.size):
                whole.write_at(offset, piece[: end - offset].data)
        fs.remove("/fill")


@functools.cache
def random_bytes(pieces: int) -> Bytes:
    """Return random bytes in pieces of 16 MiB, always the same."""
    return np.random.default_rng(1).integers(0, 256, pieces * 16 * MIB, np.uint8)


def values(count: int, salt: int, first: int = 0) -> Bytes:
    """Return `count` random bytes; each of 255 salts gives others."""
    pieces = -(-(first + count) // (16 * MIB))
    return np.bitwise_xor(random_bytes(pieces)[first : first + count], np.uint8(salt % 255 + 1))


# ---------------------------------------------------------------------------------------------
# Clients
# ---------------------------------------------------------------------------------------------


def in_threads(count: int, call: Callable[[int], None]) -> None:
    """Call with each number below `count`, in a thread for each."""
    if count == 1:
        call(0)
        return
    with ThreadPoolExecutor(count) as pool:
        for ended in [pool.submit(call, number) for number in range(count)]:
            ended.result()


class Crew(ABC):
    """A crew has all clients of a volume; some of them, or all, are in this process."""

    size: int
    own: Sequence[int]
    """The numbers of the clients in this process."""

    @abstractmethod
    def open(self, volume: Volume) -> ps.FileSystem:
        """Open a volume for all clients."""

    @abstractmethod
    def first(self, call: Callable[[], object]) -> None:
        """Make a call on client 0, and let the others wait for its end."""

    @abstractmethod
    def seconds(self, call: Callable[[int], None], last: Callable[[], object] | None) -> float:
        """Time a call of all clients, each with its number, and then one of client 0."""


class Threads(Crew):
    """Threads of this process. `warms` lets the processors work before each timed call."""

    def __init__(self, size: int = 1, *, warms: bool = True) -> None:
        self.size, self.own, self.warms = size, range(size), warms

    def open(self, volume: Volume) -> ps.FileSystem:
        return volume.open()

    def first(self, call: Callable[[], object]) -> None:
        call()

    def seconds(self, call: Callable[[int], None], last: Callable[[], object] | None) -> float:
        if self.warms:
            work_up()
        begun = time.perf_counter()
        in_threads(self.size, call)
        if last is not None:
            last()
        return time.perf_counter() - begun


class Ranks(Crew):
    """Ranks of an MPI job, a client each."""

    def __init__(self, comm: Intracomm) -> None:
        self.comm, self.size, self.own = comm, comm.size, [comm.rank]

    def open(self, volume: Volume) -> ps.FileSystem:
        return volume.open(self.comm)

    def first(self, call: Callable[[], object]) -> None:
        rest(self.comm)
        if self.comm.rank == 0:
            call()
        rest(self.comm)

    def seconds(self, call: Callable[[int], None], last: Callable[[], object] | None) -> float:
        def all_of_it() -> None:
            call(self.comm.rank)
            if last is not None:
                rest(self.comm)
                if self.comm.rank == 0:
                    last()

        return timed(self.comm, all_of_it)[0]


# ---------------------------------------------------------------------------------------------
# A file, from its first byte to its last
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """A share is a part of a subfile, and the bytes of its client's memory that belong to it."""

    subfile: int
    offset: int
    begin: int
    end: int


@dataclass(frozen=True)
class Case:
    """A case is a file, and the way in which its clients go through it."""

    view: View
    cells: int
    bsu: int
    bytes: int
    access: int
    """The bytes of an access; a collective call moves all of a share."""
    depth: int = 1
    """The accesses of a client that are under way."""
    order: str = "block"
    mode: str = "cautious"
    is_collective: bool = False

    def shares(self, rank: int, size: int) -> list[Share]:
        """Deal out the subfiles in turn, or equal parts of them where there are too few."""
        _, vn, _, hn = self.view
        subfiles = vn * hn
        parts = size // math.gcd(subfiles, size)
        of_subfile, rest_ = divmod(self.bytes, subfiles)
        if rest_ or self.bytes % (self.cells * self.bsu * self.view[0] * vn):
            raise ValueError(f"{self}: its subfiles have different lengths")
        shares, begin = [], 0
        for unit in range(rank, subfiles * parts, size):
            subfile, part = divmod(unit, parts)
            offset, end = (of_subfile * n // parts for n in (part, part + 1))
            shares.append(Share(subfile, offset, begin, begin + end - offset))
            begin += end - offset
        return shares

    def accesses(self, shares: Sequence[Share]) -> Iterator[tuple[Share, int, int]]:
        """Yield the accesses of a client, the shares in turn: each with its bytes of memory."""
        longest = max((share.end - share.begin for share in shares), default=0)
        for first in range(0, longest, self.access):
            for share in shares:
                begin = share.begin + first
                if begin < share.end:
                    yield share, begin, min(begin + self.access, share.end)


class Client:
    """A client of a case has the memory of its shares."""

    def __init__(self, case: Case, rank: int, size: int) -> None:
        self.case, self.shares = case, case.shares(rank, size)
        self.bytes = self.shares[-1].end if self.shares else 0
        self.first = rank * SMALL
        self.memory = np.empty(self.bytes, np.uint8)

    def values(self, salt: int) -> Bytes:
        """Return the bytes that the client writes with a salt."""
        return values(self.bytes, salt, self.first)

    def plan(self, file: ps.File, is_write: bool) -> Callable[[], int]:
        """Prepare all accesses, and return the call that makes them and counts their bytes."""
        case = self.case
        view, order = ps.View(*case.view), cast(Literal["block", "row", "column"], case.order)
        if case.is_collective:
            move_all: Callable[..., int] = file.write_all if is_write else file.read_all
            parts = [(share, self.memory[share.begin : share.end].data) for share in self.shares]
            return lambda: sum(
                move_all(view, share.subfile, part, offset=share.offset, order=order)
                for share, part in parts
            )
        subfiles = {share.subfile for share in self.shares}
        opened = {number: file.open(view, number, order=order) for number in subfiles}
        accesses = []
        for share, begin, end in case.accesses(self.shares):
            subfile = opened[share.subfile]
            offset, memory = share.offset + begin - share.begin, self.memory[begin:end].data
            if case.depth == 1:
                call: Any = subfile.write_at if is_write else subfile.read_at
            else:
                call = subfile.iwrite_at if is_write else subfile.iread_at
            accesses.append((call, offset, memory))
        if case.depth == 1:
            return lambda: sum(call(offset, memory) for call, offset, memory in accesses)
        return lambda: under_way(accesses, case.depth)


class Queue:
    """A queue has the asynchronous accesses that are under way, at most `depth` of them."""

    def __init__(self, depth: int) -> None:
        self.depth, self.moved = depth, 0
        self.begun: deque[ps.Request] = deque()

    def mover(self, begin: Callable[[int, memoryview], ps.Request]) -> Mover:
        """Return the call that begins an access when there is room for it."""

        def move(offset: int, memory: memoryview) -> None:
            if len(self.begun) == self.depth:
                self.moved += self.begun.popleft().wait()
            self.begun.append(begin(offset, memory))

        return move

    def end(self) -> int:
        """Wait for all accesses, and return the bytes that all have moved so far."""
        while self.begun:
            self.moved += self.begun.popleft().wait()
        return self.moved


def under_way(accesses: Sequence[tuple[Any, int, memoryview]], depth: int) -> int:
    """Make asynchronous accesses, `depth` of them at a time, and return the bytes moved."""
    queue = Queue(depth)
    for begin, offset, memory in accesses:
        queue.mover(begin)(offset, memory)
    return queue.end()


def move_file(volume: Volume, case: Case, crew: Crew, salts: Iterator[int]) -> Rates:
    """Write a new file, write it again and read it; return the rates in bytes a second."""
    clients = {rank: Client(case, rank, crew.size) for rank in crew.own}
    rates, salt = {}, 0

    def part(fs: ps.FileSystem, name: str) -> None:
        is_write = name != READ
        with fs.attach("/file", "r+", mode=cast(Any, case.mode)) as file:
            plans = {rank: client.plan(file, is_write) for rank, client in clients.items()}
            moved: dict[int, int] = {}

            def move(rank: int) -> None:
                moved[rank] = plans[rank]()

            last = file.sync if is_write and volume.is_cold else None
            rates[name] = case.bytes / crew.seconds(move, last)
            if is_write and not volume.is_cold:
                crew.first(file.sync)  # the next part finds idle disks
        for rank, client in clients.items():
            if moved[rank] != client.bytes:
                raise FailedError(f"{case}: {name}: {moved[rank]} bytes, not {client.bytes}")

    with crew.open(volume) as fs:
        crew.first(lambda: remake(fs, case.cells, case.bsu))
        for name in (FIRST_WRITE, SECOND_WRITE):
            salt = next(salts)
            for client in clients.values():
                client.memory[:] = client.values(salt)
            part(fs, name)
        if not volume.is_cold:
            read(part, fs, clients, salt)
    if volume.is_cold:
        with crew.open(volume) as fs:
            read(part, fs, clients, salt)
    return rates


def read(
    part: Callable[[ps.FileSystem, str], None],
    fs: ps.FileSystem,
    clients: dict[int, Client],
    salt: int,
) -> None:
    """Measure the read, and compare what it has given."""
    for client in clients.values():
        client.memory[:] = NOTHING
    part(fs, READ)
    for client in clients.values():
        compare(client.memory, client.values(salt), f"{client.case}")


def remake(fs: ps.FileSystem, cells: int, bsu: int) -> None:
    """Make the file anew, with nothing in it."""
    if "file" in fs.list("/"):
        fs.remove("/file")
    fs.create("/file", cells=cells, bsu=bsu, base=0)


def compare(found: Bytes, expected: Bytes, what: str) -> None:
    """Refuse wrong bytes."""
    if not np.array_equal(found, expected):
        wrong = np.flatnonzero(found != expected)
        raise FailedError(f"{what}: {wrong.size} BYTES WRONG, the first at {wrong[0]}")


# ---------------------------------------------------------------------------------------------
# Small accesses at random
# ---------------------------------------------------------------------------------------------


def at_random(move: Mover, end: Callable[[], object], rows: Bytes, offsets: list[int]) -> float:
    """Return the seconds of accesses, whose memory is in turn each of `rows`."""
    pairs = [(offset, row.data) for offset, row in zip(offsets, rows, strict=False)]
    begun = time.perf_counter()
    for offset, row in pairs:
        move(offset, row)
    end()
    return time.perf_counter() - begun


def accesses_at_random(
    reader: Mover, writer: Mover, end: Callable[[], object], content: Bytes, count: int, salt: int
) -> tuple[Rates, Bytes]:
    """Read and write parts at random; return the accesses a second, and the content after that.

    `content` is what the file has now. `end` ends accesses that are under way.
    """
    rng = np.random.default_rng(salt)
    rows, rates = np.empty((CHECKED_TOGETHER, SMALL), np.uint8), {}
    after = content.copy()
    others = values(content.size, salt)
    for name, move in ((READS, reader), (WRITES, writer)):
        parts = rng.integers(0, content.size // SMALL, count)
        seconds = 0.0
        for first in range(0, count, CHECKED_TOGETHER):
            some = parts[first : first + CHECKED_TOGETHER]
            rows[: some.size] = NOTHING if name == READS else by_parts(others)[some]
            seconds += at_random(move, end, rows, (some * SMALL).tolist())
            if name == READS:
                compare(rows[: some.size], by_parts(content)[some], "reads at random")
        rates[name] = count / seconds
        if name == WRITES:
            by_parts(after)[parts] = by_parts(others)[parts]
    return rates, after


def by_parts(memory: Bytes) -> Bytes:
    """Return memory as the parts of a file, which share it."""
    return memory.reshape(-1, SMALL)


def random_rates(
    fs: ps.FileSystem, size: int, count: int, ways: Sequence[tuple[str, int]], salts: Iterator[int]
) -> dict[str, Rates]:
    """Measure accesses at random to a file that the cache holds, for each way.

    A way has a mode, and a number of accesses that are under way. Rates are by `random_name`.
    """
    remake(fs, fs.servers, fs.block_bytes)
    rates = {}
    for mode, depth in ways:
        with fs.attach("/file", "r+", mode=cast(Any, mode)) as file:
            whole, queue = file.open(), Queue(depth)
            content, found = values(size, next(salts)), np.empty(size, np.uint8)
            move_whole(whole.write_at, content)
            file.sync()  # what follows finds idle disks
            reader: Mover = whole.read_at
            writer: Mover = whole.write_at
            if depth > 1:
                reader = queue.mover(whole.iread_at)
                writer = queue.mover(whole.iwrite_at)
            name = random_name(mode, depth)
            rates[name], content = accesses_at_random(
                reader, writer, queue.end, content, count, next(salts)
            )
            move_whole(whole.read_at, found)
            compare(found, content, "writes at random")
    return rates


def random_name(mode: str, depth: int) -> str:
    """Return what a way of random accesses is called."""
    return f"{depth} at a time, {mode}"


def move_whole(move: Mover, memory: Bytes) -> None:
    """Read or write a file from its first byte to its last."""
    for offset in range(0, memory.size, MIB):
        move(offset, memory[offset : offset + MIB].data)


# ---------------------------------------------------------------------------------------------
# Names
# ---------------------------------------------------------------------------------------------


def name_rates(fs: ps.FileSystem, crew: Crew, threads: int, count: int, root: str) -> Rates:
    """Create `count` files, and ask for their attributes, by `threads` threads of each client.

    All is below a new directory `root`; rates are those of all servers together.
    """

    def make_directories() -> None:
        fs.mkdir(root)
        for number in range(DIRECTORIES):
            fs.mkdir(f"{root}/{number}")

    paths = [f"{root}/{n % DIRECTORIES}/{n}" for n in range(count)]
    found: dict[str, ps.FileStat] = {}

    def create(path: str) -> None:
        fs.create(path, cells=2, bsu=SMALL)

    def ask(path: str) -> None:
        found[path] = fs.stat(path)

    def in_parts(act: Callable[[str], None]) -> Callable[[int], None]:
        """Deal the paths out to all threads of all clients."""

        def all_threads(rank: int) -> None:
            step = crew.size * threads
            in_threads(threads, lambda t: each(act, paths[rank * threads + t :: step]))

        return all_threads

    crew.first(make_directories)
    rates = {CREATES: count / crew.seconds(in_parts(create), None)}
    rates[STATS] = count / crew.seconds(in_parts(ask), None)
    names = {name for n in range(DIRECTORIES) for name in fs.list(f"{root}/{n}")}
    if names != {path.rpartition("/")[2] for path in paths}:
        raise FailedError(f"{len(names)} files are there, not {count}")
    if any((stat.path, stat.cells, stat.bsu) != (path, 2, SMALL) for path, stat in found.items()):
        raise FailedError("a file has other attributes than it was created with")
    return rates


def each(act: Callable[[str], object], paths: Sequence[str]) -> None:
    """Act on each path."""
    for path in paths:
        act(path)
