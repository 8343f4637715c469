"""Plays a program on the real MPI, as one rank, and records what it finds.

Datatypes are made anew for each step and freed right after the call, also where it goes on: MPI
keeps what it needs. So is the list of buffers in MPI_BOTTOM's calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import steps
from judge import NOT_ASKED, Found
from memory import Bytes, Image
from mpi4py import MPI
from steps import Access, Ask, Part, Step
from trees import BASICS, Tree
from trouble import has_kind

ORDERS = {"C": MPI.ORDER_C, "F": MPI.ORDER_FORTRAN}
DISTRIBUTIONS = {
    "BLOCK": MPI.DISTRIBUTE_BLOCK,
    "CYCLIC": MPI.DISTRIBUTE_CYCLIC,
    "NONE": MPI.DISTRIBUTE_NONE,
}
MODES = (
    "RDONLY", "WRONLY", "RDWR", "CREATE", "EXCL", "APPEND", "DELETE_ON_CLOSE", "UNIQUE_OPEN",
    "SEQUENTIAL",
)  # fmt: skip
WHENCES = {"SET": MPI.SEEK_SET, "CUR": MPI.SEEK_CUR, "END": MPI.SEEK_END}
POLL_SECONDS = 0.0002


@dataclass
class Request:
    """A call that goes on."""

    request: MPI.Request
    part: Part
    raw: Bytes
    held: ExitStack
    """The datatype, where it must not be freed before the end."""


# ---------------------------------------------------------------------------------------------
# Datatypes
# ---------------------------------------------------------------------------------------------


def datatype(tree: Tree) -> MPI.Datatype:
    """A new datatype."""
    children = [datatype(child) for child in tree.children]
    made = constructed(tree, children)
    for child in children:
        child.Free()
    return made


def constructed(tree: Tree, children: list[MPI.Datatype]) -> MPI.Datatype:
    given = tree.arguments
    match tree.kind:
        case "contiguous":
            return children[0].Create_contiguous(*given)
        case "vector":
            return children[0].Create_vector(*given)
        case "hvector":
            return children[0].Create_hvector(*given)
        case "indexed":
            return children[0].Create_indexed(*given)
        case "hindexed":
            return children[0].Create_hindexed(*given)
        case "indexed_block":
            return children[0].Create_indexed_block(*given)
        case "hindexed_block":
            return children[0].Create_hindexed_block(*given)
        case "struct":
            return MPI.Datatype.Create_struct(*given, children)
        case "resized":
            return children[0].Create_resized(*given)
        case "subarray":
            return children[0].Create_subarray(*given[:3], ORDERS[given[3]])
        case "darray":
            processes, rank, sizes, kinds, arguments, mesh, order = given
            return children[0].Create_darray(
                processes, rank, sizes, [DISTRIBUTIONS[kind] for kind in kinds],
                [MPI.DISTRIBUTE_DFLT_DARG if each is None else each for each in arguments],
                mesh, ORDERS[order],
            )  # fmt: skip
        case "dup":
            return children[0].Dup()
        case _:
            return getattr(MPI, tree.kind).Dup()


@contextmanager
def committed(tree: Tree) -> Iterator[MPI.Datatype]:
    """A datatype as long as a call needs it; a basic one is not a copy."""
    if tree.kind in BASICS:
        yield getattr(MPI, tree.kind)
        return
    made = datatype(tree).Commit()
    try:
        yield made
    finally:
        made.Free()


def check_datatype(tree: Tree) -> None:
    """The model means the same by a tree as MPI: size, bounds, and the bytes that it sends.

    Not the true extent: MPICH 5.0.2 has a wrong one where a darray is of types with gaps.
    """
    found, memory = tree.map, Image(Part(2, tree, salt=1))
    raw = memory.source()
    with committed(tree) as made:
        assert made.Get_size() == found.size, f"size of {tree}"
        if not found.size:
            return
        assert made.Get_extent() == (found.lower, found.extent), f"extent of {tree}"
        packed = np.zeros(2 * found.size, np.uint8)
        source = MPI.buffer.fromaddress(raw.ctypes.data + memory.origin, 0)
        MPI.COMM_SELF.Sendrecv([source, 2, made], 0, 0, [packed, MPI.PACKED], 0, 0)
        assert np.array_equal(packed, raw[memory.where]), f"bytes of {tree}"


# ---------------------------------------------------------------------------------------------
# Programs
# ---------------------------------------------------------------------------------------------


class Player:
    """One rank of a program, whose files are in a directory."""

    def __init__(self, comm: MPI.Intracomm, directory: Path, unable: frozenset[str]) -> None:
        self.comm, self.directory, self.unable = comm, directory, unable
        self.files: dict[int, MPI.File] = {}
        self.reads_only: set[int] = set()
        self.requests: dict[int, Request | None] = {}
        self.splits: dict[int, tuple[str, Part, Bytes]] = {}

    def play(self, step: Step) -> Any:
        """Does one step, and gives what this rank finds."""
        match step:
            case steps.Open():
                self.open(step)
            case steps.Close():
                self.files.pop(step.handle).Close()
                self.comm.Barrier()
            case steps.SetView():
                self.set_view(step)
            case steps.Seek():
                move = step.moves[self.comm.rank]
                if move is not None:
                    self.files[step.handle].Seek(move[0], WHENCES[move[1]])
            case steps.SeekShared():
                self.files[step.handle].Seek_shared(step.offset, WHENCES[step.whence])
            case steps.Resize():
                file = self.files[step.handle]
                (file.Preallocate if step.only_grows else file.Set_size)(step.bytes)
            case steps.SetAtomicity():
                self.files[step.handle].Set_atomicity(step.is_atomic)
            case steps.Barrier():
                self.comm.Barrier()
            case steps.Settle():
                self.sync()
                self.comm.Barrier()
                self.sync()
            case Access():
                return self.access(step)
            case steps.Finish():
                return self.finish(step)
            case steps.End():
                return self.end(step)
            case Ask():
                return self.ask(step)
            case steps.Look():
                return self.look(step)
            case _:
                raise AssertionError(f"no step {step}")
        return None

    def open(self, step: steps.Open) -> None:
        info = MPI.Info.Create()
        for key, value in step.hints:
            info.Set(key, value)
        modes = 0
        for mode in step.modes:
            modes |= getattr(MPI, f"MODE_{mode}")
        path = self.directory / step.name
        self.files[step.handle] = MPI.File.Open(self.comm, path, modes, info)
        info.Free()
        self.reads_only.discard(step.handle)
        if "RDONLY" in step.modes:
            self.reads_only.add(step.handle)

    def set_view(self, step: steps.SetView) -> None:
        view = step.views[self.comm.rank]
        displacement = MPI.DISPLACEMENT_CURRENT if step.is_current else view.displacement
        with committed(view.etype) as etype, committed(view.filetype) as filetype:
            self.files[step.handle].Set_view(displacement, etype, filetype, view.datarep)

    def sync(self) -> None:
        for number in sorted(self.files):
            if not (number in self.reads_only and "sync read-only" in self.unable):
                self.files[number].Sync()

    def look(self, step: steps.Look) -> Bytes | None:
        path, content = self.directory / step.name, None
        if self.comm.rank == 0 and path.exists():
            content = np.fromfile(path, np.uint8)
        self.comm.Barrier()
        return content

    # --- data -----------------------------------------------------------------------------------

    def access(self, step: Access) -> Found | None:
        part = step.parts[self.comm.rank]
        if part is None:
            if step.is_pending:
                self.requests[step.tag] = None
            return None
        image = Image(part)
        raw = image.source() if step.is_write else image.target()
        name = ("write" if step.is_write else "read") + {
            "at": "_at", "own": "", "shared": "_shared", "ordered": "_ordered"
        }[step.place]  # fmt: skip
        if step.place != "ordered" and step.is_collective:
            name += "_all"
        if step.way in ("nonblocking", "iall"):
            name = f"i{name}"
        if step.way == "split":
            self.splits[step.tag] = (name, part, raw)
            name += "_begin"
        call = getattr(self.files[step.handle], name.capitalize())
        offset = [part.offset] if step.place == "at" else []
        with ExitStack() as stack:
            buffer = stack.enter_context(self.buffer(part, image, raw))
            if step.way == "split":
                call(*offset, buffer)
            elif step.way in ("nonblocking", "iall"):
                begun = call(*offset, buffer)
                held = stack.pop_all() if "types freed early" in self.unable else ExitStack()
                self.requests[step.tag] = Request(begun, part, raw, held)
            else:
                status = unused_status()
                call(*offset, buffer, status)
                return self.found(status, part, raw)
        return None

    @contextmanager
    def buffer(self, part: Part, image: Image, raw: Bytes) -> Iterator[list]:
        """The buffer of a call, as mpi4py wants it."""
        address = raw.ctypes.data + image.origin
        with committed(part.memory) as made:
            if not part.from_bottom:
                yield [MPI.buffer.fromaddress(address, 0), part.count, made]
                return
            placed = MPI.Datatype.Create_struct([part.count], [address], [made]).Commit()
            try:
                yield [MPI.BOTTOM, 1, placed]
            finally:
                placed.Free()

    def end(self, step: steps.End) -> Found:
        name, part, raw = self.splits.pop(step.tag)
        status, image = unused_status(), Image(part)
        call = getattr(self.files[step.handle], f"{name.capitalize()}_end")
        with self.buffer(part, image, raw) as buffer:
            call(buffer, status)
        return self.found(status, part, raw)

    def finish(self, step: steps.Finish) -> list[Found | None]:
        """Waits for requests; what each has brought, in the order of the tags."""
        ours = [self.requests.pop(tag) for tag in step.tags]
        going = [each for each in ours if each is not None]
        statuses = completed([each.request for each in going], step.how)
        ends = iter(zip(going, statuses, strict=True))
        results: list[Found | None] = []
        for each in ours:
            if each is None:
                results.append(None)
                continue
            request, status = next(ends)
            request.held.close()
            results.append(self.found(status, request.part, request.raw))
        return results

    def found(self, status: MPI.Status, part: Part, raw: Bytes) -> Found:
        """What a rank has after a data access."""
        is_hard = has_kind(part.memory, "darray", "struct")
        is_asked = not (is_hard and "elements" in self.unable)
        with committed(part.memory) as made:
            told = [
                status.Get_count(made), status.Get_elements(made) if is_asked else NOT_ASKED
            ]  # fmt: skip
        count, elements = (None if each == MPI.UNDEFINED else each for each in told)
        return Found(status.Get_count(MPI.BYTE), count, elements, raw)

    # --- questions ------------------------------------------------------------------------------

    def ask(self, step: Ask) -> Any:
        file = self.files[step.handle]
        match step.what:
            case "size":
                return file.Get_size()
            case "position":
                return file.Get_position()
            case "shared position":
                return file.Get_position_shared()
            case "amode":
                found = file.Get_amode()
                return tuple(sorted(mode for mode in MODES if found & getattr(MPI, f"MODE_{mode}")))
            case "atomicity":
                return file.Get_atomicity()
            case "group":
                group = file.Get_group()
                size = group.Get_size()
                group.Free()
                return size
            case "view":
                displacement, etype, filetype, datarep = file.Get_view()
                sizes = [(each.Get_size(), each.Get_extent()[1]) for each in (etype, filetype)]
                for each in (etype, filetype):
                    if not each.is_predefined:
                        each.Free()
                return (displacement, *sizes, datarep)
            case "byte offset":
                return file.Get_byte_offset(step.offset)
            case "extent":
                with committed(step.memory) as made:
                    return file.Get_type_extent(made)
            case _:
                raise AssertionError(f"nothing tells {step.what}")


def unused_status() -> MPI.Status:
    """A status that says something else than a call must."""
    status = MPI.Status()
    status.Set_elements(MPI.BYTE, 77777)
    return status


def completed(requests: list[MPI.Request], how: str) -> list[MPI.Status]:
    """Waits for all requests in one of the ways, and gives their statuses."""
    statuses = [MPI.Status() for _ in requests]
    if how == "wait":
        for request, status in zip(requests, statuses, strict=True):
            request.Wait(status)
    elif how == "test":
        for request, status in zip(requests, statuses, strict=True):
            while not request.Test(status):
                time.sleep(POLL_SECONDS)
    elif how == "waitall":
        MPI.Request.Waitall(requests, statuses)
    elif how == "testall":
        while not MPI.Request.Testall(requests, statuses):
            time.sleep(POLL_SECONDS)
    else:
        one_by_one(requests, statuses, how)
    assert all(request == MPI.REQUEST_NULL for request in requests)
    return statuses


def one_by_one(requests: list[MPI.Request], statuses: list[MPI.Status], how: str) -> None:
    """Waits for any of the requests, or for some, until none is left."""
    left = len(requests)
    while left:
        status = MPI.Status()
        if how == "waitany":
            done = [(MPI.Request.Waitany(requests, status), status)]
        elif how == "testany":
            index, is_done = MPI.Request.Testany(requests, status)
            done = [(index, status)] if is_done else []
        else:
            some = [MPI.Status() for _ in requests]
            call = MPI.Request.Waitsome if how == "waitsome" else MPI.Request.Testsome
            indices = call(requests, some) or []
            done = [*zip(indices, some[: len(indices)], strict=True)]
        for index, status in done:
            statuses[index] = status
        left -= len(done)
        if not done:
            time.sleep(POLL_SECONDS)
