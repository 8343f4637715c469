"""The parts of the benchmark ``files``: what each measures, and beside what.

Views and files are those of Corbett and Feitelson, TOCS 1996: Figures 10, 12, 14 and 16, and one
view of blocks in two dimensions. Its numbers are in `docs/simulation-vesta.md`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock_bench.command import MIB, UsageError
from penstock_bench.files_bench import (
    CACHE,
    COPY,
    Bench,
    Contender,
    How,
    Quotient,
    Rows,
    Table,
    size_text,
)
from penstock_bench.files_case import (
    CREATES,
    DIRECTORIES,
    PARTS,
    STATS,
    Case,
    Rates,
    View,
    Volume,
    accesses_at_random,
    compare,
    each,
    in_threads,
    move_file,
    name_rates,
    random_rates,
    values,
)

AIM_OF_DISK, AIM_OF_COPY = 0.85, 0.6
AIM_EMBEDDED, AIM_RANK = 100_000, 40_000
"""Accesses of 4 KiB a second."""
AIM_CREATES = 10_000
"""Files created a second by a server."""
DISTANCE_MAX = 0.1
"""Figure 16: striped subfiles and a subfile a cell are to be so near one another."""

SERVERS = 4
"""The servers of Figures 14 and 16, and the clients of Figure 16."""
ACCESSES_MAX = 2048
"""A figure's file has no more accesses than this: small accesses have a smaller file."""
QUEUE = 2
"""Figure 12: the accesses to each server that are under way."""
RANDOM_WAYS = (("cautious", 1), ("reckless", 1), ("cautious", 8))
THREADS_OF_RANK = 16
"""The threads by which each rank creates files."""
MEGA = 1e6
LIMIT = "the limit"

VolumeIn = Callable[[str, int], Volume]
"""This opens a volume in a state, for a file of a number of bytes."""


# ---------------------------------------------------------------------------------------------
# Large accesses
# ---------------------------------------------------------------------------------------------


def sequential_cases(how: How, bytes_: int) -> dict[str, Case]:
    """Return the ways through a file, by their names."""
    cells = -(-how.servers // 4) * 4
    if bytes_ % (cells * how.block * 8):
        unit = size_text(cells * how.block * 8)
        raise UsageError(f"a file of {size_text(bytes_)}: take a multiple of {unit}")
    whole = Case((1, 1, 1, 1), cells, how.block, bytes_, how.access, how.depth, mode=how.mode)
    blocks = (4, 2, 2, cells // 2)
    return {
        "one striped subfile": whole,
        "a subfile a cell": replace(whole, view=(1, 1, 1, cells)),
        "blocks of 4 x 2 BSUs": replace(whole, view=blocks),
        "blocks of 4 x 2, by rows": replace(whole, view=blocks, order="row"),
    }


def sequential(bench: Bench) -> list[Table]:
    """Move large files through several views: asynchronous accesses, and collective calls."""
    how, extent = bench.how, bench.how.extent
    tables = []
    with bench.volume(how.servers, extent.mib * MIB) as volume_in:
        for state in bench.states:
            bytes_ = (extent.small_mib if state == CACHE else extent.mib) * MIB
            volume, cases = volume_in(state, bytes_), sequential_cases(how, bytes_)
            beside, limit = bench.limit(state, bytes_, how.access, how.depth)
            contenders: dict[str, Contender] = {beside: limit}
            of_ranks = {}
            for is_collective, suffix in ((False, ""), (True, ", together")):
                for name, case in cases.items():
                    case = replace(case, is_collective=is_collective)
                    row = f"1 client{suffix}: {name}"
                    contenders[row] = mover(bench, volume, case, row)
                    of_ranks[f"{how.ranks} ranks{suffix}: {name}"] = asdict(case)
            if how.ranks > 1:
                contenders["MPI"] = partial(bench.job, volume, cases=of_ranks)
            rows = bench.alternate(contenders, f"sequential, {state}")
            title = f"{state}: a file of {size_text(bytes_)}, {how.servers} servers, "
            title += f"accesses of {size_text(how.access)}, {how.depth} under way; MB/s"
            aim = AIM_OF_COPY if beside == COPY else AIM_OF_DISK
            aims = {row: aim for row in rows if row != beside}
            tables.append(Table("sequential", title, rows, MEGA, beside, aims))
    return tables


def mover(
    bench: Bench, volume: Volume, case: Case, row: str, group: str = "", clients: int = 1
) -> Contender:
    """Return the contender that moves a file by clients of this process."""

    def measure() -> Rows:
        rates = move_file(volume, case, bench.threads(clients), bench.salts)
        return {row: in_group(rates, group)}

    return measure


def in_group(rates: Rates, group: str) -> Rates:
    """Put columns into a group, if it has a name."""
    return {f"{group}|{column}" if group else column: rate for column, rate in rates.items()}


# ---------------------------------------------------------------------------------------------
# Figures
# ---------------------------------------------------------------------------------------------


def case_of_figure(bench: Bench, view: View, cells: int, bsu: int, access: int) -> Case:
    """Return the case of a figure: one access at a time."""
    bytes_ = min(bench.how.extent.small_mib * MIB, ACCESSES_MAX * access)
    return Case(view, cells, bsu, bytes_, access, mode=bench.how.mode)


def sizes(bench: Bench) -> list[Table]:
    """Measure Figure 10, the rate by the size of accesses, and Figure 12, by the servers."""
    extent = bench.how.extent
    largest = extent.small_mib * MIB
    with bench.volume(1, largest) as volume_in:
        tables = [figure_10(bench, volume_in)]
    # Volumes of all numbers of servers are there at once: they alternate.
    with ExitStack() as stack:
        volumes = {n: stack.enter_context(bench.volume(n, largest)) for n in extent.servers}
        tables.append(figure_12(bench, volumes))
    return tables


def figure_10(bench: Bench, volume_in: VolumeIn) -> Table:
    """Let one client use one server, by accesses of all sizes."""
    extent, contenders = bench.how.extent, limits(bench)
    for state in bench.states:
        for access in extent.accesses:
            case = case_of_figure(bench, (1, 1, 1, 1), 1, access, access)
            volume, row = volume_in(state, case.bytes), size_text(access)
            contenders[f"{state}, {row}"] = mover(bench, volume, case, row, state)
    rows = bench.alternate(contenders, "Figure 10")
    title = "Figure 10: one client, one server, one access at a time; MB/s"
    return Table("sizes", title, rows, MEGA)


def figure_12(bench: Bench, volumes: dict[int, VolumeIn]) -> Table:
    """Let one client use all servers at once."""
    access, contenders = min(64 << 10, bench.how.access), limits(bench)
    for state in bench.states:
        for servers, volume_in in volumes.items():
            case = case_of_figure(bench, (1, 1, 1, servers), servers, access, access)
            case = replace(case, depth=QUEUE * servers)
            volume, row = volume_in(state, case.bytes), servers_text(servers)
            contenders[f"{state}, {row}"] = mover(bench, volume, case, row, state)
    rows = bench.alternate(contenders, "Figure 12")
    title = f"Figure 12: one client, {QUEUE} accesses of {size_text(access)} to each server; MB/s"
    return Table("sizes", title, rows, MEGA)


def servers_text(servers: int) -> str:
    """Write a number of servers."""
    return f"{servers} server{'s' * (servers > 1)}"


def limits(bench: Bench) -> dict[str, Contender]:
    """Return the limit of each state, in the state's columns of one row."""

    def measure(state: str) -> Rows:
        how = bench.how
        _, limit = bench.limit(state, how.extent.small_mib * MIB, how.access, how.depth)
        [rates] = limit().values()
        return {LIMIT: in_group(rates, state)}

    return {f"the limit of {state}": partial(measure, state) for state in bench.states}


def views(bench: Bench) -> list[Table]:
    """Measure Figures 14 and 16: several ways through a file of as many cells as servers."""
    tables = []
    with bench.volume(SERVERS, bench.how.extent.small_mib * MIB) as volume_in:
        for figure in (figure_14, figure_16):
            tables += [figure(bench, volume_in, state) for state in bench.states]
    return tables


def figure_14(bench: Bench, volume_in: VolumeIn, state: str) -> Table:
    """Let one client go through all cells: one after the other, in turn, or all at once."""
    contenders: dict[str, Contender] = {}
    for access in bench.how.extent.accesses:
        bsu = access // SERVERS
        whole = case_of_figure(bench, (1, 1, 1, 1), SERVERS, bsu, access)
        rows_of_cell = whole.bytes // SERVERS // bsu
        ways: dict[str, View] = {
            "cell after cell": (rows_of_cell, 1, 1, 1),
            "cyclic": (SERVERS, 1, 1, 1),
            "striped": (1, 1, 1, 1),
        }
        volume, row = volume_in(state, whole.bytes), size_text(access)
        for group, view in ways.items():
            case = replace(whole, view=view)
            contenders[f"{row}, {group}"] = mover(bench, volume, case, row, group)
    rows = bench.alternate(contenders, f"Figure 14, {state}")
    title = (
        f"Figure 14, {state}: one client, {SERVERS} servers, BSUs of a fourth of an access; MB/s"
    )
    return Table("views", title, rows, MEGA)


def figure_16(bench: Bench, volume_in: VolumeIn, state: str) -> Table:
    """Give each client a cell, or a subfile that is striped over all cells."""
    contenders: dict[str, Contender] = {}
    for access in bench.how.extent.accesses:
        bsu = access // SERVERS
        cell = case_of_figure(bench, (1, 1, 1, SERVERS), SERVERS, bsu, access)
        volume, row = volume_in(state, cell.bytes), size_text(access)
        ways = {
            "cells": cell,
            "striped": replace(cell, view=(1, SERVERS, 1, 1)),
            "half": replace(cell, access=access // 2),
        }
        for group, case in ways.items():
            one = mover(bench, volume, case, row, group, clients=SERVERS)
            contenders[f"{row}, {group}"] = one
    rows = bench.alternate(contenders, f"Figure 16, {state}")
    quotients = [
        Quotient(f"{group}|{part}", f"striped|{part}", f"{under}|{part}", distance_max)
        for group, under, distance_max in (
            ("of cells", "cells", DISTANCE_MAX),
            ("of cells at b/2", "half", None),
        )
        for part in PARTS
    ]
    title = f"Figure 16, {state}: {SERVERS} clients, {SERVERS} servers, BSUs of a fourth of an "
    title += f"access; MB/s; striped is to be within {DISTANCE_MAX:.0%} of cells"
    return Table("views", title, rows, MEGA, quotients=quotients, hidden=("half",))


# ---------------------------------------------------------------------------------------------
# Small accesses and names
# ---------------------------------------------------------------------------------------------


def random(bench: Bench) -> list[Table]:
    """Read and write 4 KiB at random, in a file that the cache has."""
    extent = bench.how.extent
    bytes_ = extent.small_mib * MIB
    asked: dict[str, Any] = {"size": bytes_, "count": extent.random, "ways": RANDOM_WAYS}

    def embedded() -> Rows:
        with volume.open() as fs:
            rates = random_rates(fs, salts=bench.salts, **asked)
        return {f"1 thread, a server beside it: {way}": one for way, one in rates.items()}

    def rank() -> Rows:
        rates = bench.job(volume, random=asked)
        return {f"1 rank, a server in another: {way}": one for way, one in rates.items()}

    contenders: dict[str, Contender] = {
        "system calls": partial(calls_at_random, bench, bytes_),
        "embedded": embedded,
    }
    if bench.how.ranks > 1:
        contenders["rank"] = rank
    with bench.volume(1, bytes_) as volume_in:
        volume = volume_in(CACHE, bytes_)
        rows = bench.alternate(contenders, "random")
    aims: dict[str, float] = {}
    for row in rows:
        if ": 1 at a time" in row:
            aims[row] = AIM_EMBEDDED if row.startswith("1 thread") else AIM_RANK
    title = f"accesses of 4 KiB at random to {size_text(bytes_)} that a cache has; a second"
    return [Table("random", title, rows, aims=aims)]


def calls_at_random(bench: Bench, bytes_: int) -> Rows:
    """Make the same accesses by a system call each, out of the page cache."""
    path = bench.how.directory / "random"
    content = values(bytes_, next(bench.salts))
    content.tofile(path)
    file = os.open(path, os.O_RDWR)
    try:
        rates, content = accesses_at_random(
            lambda offset, row: os.preadv(file, [row], offset),
            lambda offset, row: os.pwritev(file, [row], offset),
            lambda: None,
            content,
            bench.how.extent.random,
            next(bench.salts),
        )
    finally:
        os.close(file)
    compare(np.fromfile(path, np.uint8), content, "system calls")
    return {"a system call, page cache": rates}


def creates(bench: Bench) -> list[Table]:
    """Create files, and ask for their attributes, by few and by many clients at once."""
    how, extent, number = bench.how, bench.how.extent, itertools.count()
    most = max(extent.creators)

    def here(volume: Volume, threads: int, row: str) -> Rows:
        with volume.open() as fs:
            rates = name_rates(fs, bench.threads(), threads, extent.names, f"/{next(number)}")
        return {row: of_server(rates, volume)}

    def in_job(volume: Volume, threads: int, row: str) -> Rows:
        asked = {"threads": threads, "count": extent.names, "root": f"/{next(number)}"}
        [rates] = bench.job(volume, names=asked).values()
        return {row: of_server(rates, volume)}

    def of_host() -> Rows:
        rates = host_rates(bench, most, extent.names, bench.how.directory / f"names-{next(number)}")
        return {f"the file system, with syncs: {most} threads": rates}

    contenders: dict[str, Contender] = {"the file system": of_host}
    with ExitStack() as stack:
        for servers in sorted({1, how.servers}):
            volume = stack.enter_context(bench.volume(servers, MIB))(CACHE, MIB)
            beside = servers_text(servers)
            for threads in extent.creators:
                row = f"{beside}: {threads} thread{'s' * (threads > 1)}"
                contenders[row] = partial(here, volume, threads, row)
            if how.ranks > 1:
                threads = -(-most // how.ranks)
                row = f"{beside}: {how.ranks} ranks of {threads} threads"
                contenders[row] = partial(in_job, volume, threads, row)
        rows = bench.alternate(contenders, "creates")
    many = [row for row in rows if f"{most} threads" in row or "ranks" in row]
    aims: dict[str, float] = {
        row: AIM_CREATES for row in many if not row.startswith("the file system")
    }
    title = f"files created, and asked for, a second and server: {extent.names} a round"
    return [Table("creates", title, rows, aims=aims, aims_at=(CREATES,))]


def of_server(rates: Rates, volume: Volume) -> Rates:
    """Return the rates of one of the servers."""
    return {name: rate / volume.servers for name, rate in rates.items()}


def host_rates(bench: Bench, threads: int, count: int, root: Path) -> Rates:
    """Create files in the host's file system, with a sync of each, and ask for their attributes."""
    for number in range(DIRECTORIES):
        (root / str(number)).mkdir(parents=True)
    paths = [f"{root}/{n % DIRECTORIES}/{n}" for n in range(count)]

    def create(path: str) -> None:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.fsync(file)
        os.close(file)

    rates, crew = {}, bench.threads()
    for name, act in ((CREATES, create), (STATS, os.stat)):

        def all_threads(_: int, act: Callable[[str], object] = act) -> None:
            in_threads(threads, lambda t: each(act, paths[t::threads]))

        rates[name] = count / crew.seconds(all_threads, None)
    return rates


BENCHMARK: dict[str, Callable[[Bench], list[Table]]] = {
    "sequential": sequential,
    "sizes": sizes,
    "views": views,
    "random": random,
    "creates": creates,
}
"""The parts, by their names."""
