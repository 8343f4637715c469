"""Rivals move the same distributed array between memory and disk, each in its own way.

A rival is a class with a method ``contenders(case, comm, options)``, which returns the variants to
be measured. Everything that a program would set up once (sessions, MPI datatypes) is set up by the
constructor and is not timed; everything that belongs to one write or read (opening, views, syncing,
closing) is. To add a rival, add its class to ``RIVALS``.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import penstock as ps
from penstock_bench.case import Case, Elements, as_slice, cyclic_width
from penstock_bench.command import UsageError

if TYPE_CHECKING:
    from mpi4py.MPI import Datatype, Intracomm

MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """The command line says this about the rivals."""

    servers: int | None = None
    transport: str = "shared"
    cb_nodes: tuple[int, ...] = (8, 4)
    cb_buffers_mib: tuple[int, ...] = (1, 4)
    by: tuple[str, ...] = ("disk-directed",)
    direct: bool | None = None
    """Penstock: None takes its default."""
    pnetcdf: Path | None = None


class Contender(ABC):
    """A contender writes and reads one distributed array.

    Both calls are collective, and on return the data are where they belong (on stable storage if
    ``case.sync``).
    """

    name: ClassVar[str]
    disks: ClassVar[tuple[str, ...]] = ("row-major",)
    """The disk schemas that it can write."""

    def __init__(self, label: str, case: Case, comm: Intracomm) -> None:
        self.label, self.case, self.comm = label, case, comm
        self.resources = contextlib.ExitStack()

    @classmethod
    @abstractmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> Sequence[Contender]:
        """Make the variants to be measured."""

    @abstractmethod
    def write(self, target: Path, local: Elements) -> None:
        """Write this rank's share."""

    @abstractmethod
    def read(self, target: Path, out: Elements) -> None:
        """Read this rank's share."""

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        """Count the wrong elements in this rank's part of the files."""
        return self.case.wrong_on_disk(target, salt)

    def close(self) -> None:
        """Give back what the constructor took."""
        self.resources.close()


class Penstock(Contender):
    """Penstock takes part with part-time servers, by each of the strategies asked for."""

    name = "penstock"
    disks = ("row-major", "npy", "chunks", "parts")

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[Penstock]:
        """Make one for each strategy. What Penstock refuses is an error of usage."""
        try:
            return [cls(case, comm, options, by) for by in options.by]
        except ps.Error as error:
            raise UsageError(str(error)) from error

    def __init__(self, case: Case, comm: Intracomm, options: Options, by: str) -> None:
        alone = options.by == ("disk-directed",)
        super().__init__(self.name if alone else f"{self.name}, {by}", case, comm)
        how: dict[str, Any] = {"strategy": by, "servers": options.servers, "sync": case.sync}
        how["transport"] = options.transport
        if options.direct is not None:
            how["direct"] = options.direct
        self.session = self.resources.enter_context(ps.Session(comm, **how))
        self.array = penstock_array(case, penstock_disk(case))
        # What does not fit together is said here, before anything is measured.
        self.session.explain(str(case.directory / case.name), self.array)
        if tuple(self.array.local_shape(case.rank)) != case.local_shape():
            raise AssertionError(
                f"rank {case.rank}: the local shape is {self.array.local_shape(case.rank)} to "
                f"Penstock, {case.local_shape()} by the rules of High-Performance Fortran"
            )

    def write(self, target: Path, local: Elements) -> None:
        self.session.write(str(target), self.array, local)

    def read(self, target: Path, out: Elements) -> None:
        self.session.read(str(target), self.array, out=out)


def penstock_array(case: Case, disk: ps.Chunks | ps.Distribution | ps.RowMajor | None) -> ps.Array:
    """Return the array of a case as Penstock describes it."""
    memory = ps.Distribution(case.memory.text, mesh=case.memory.mesh)
    return ps.Array(case.name, shape=case.shape, dtype=case.dtype, memory=memory, disk=disk)


def penstock_disk(case: Case) -> ps.Chunks | ps.Distribution | ps.RowMajor:
    """Return the disk schema of a case as Penstock describes it."""
    disk = case.disk
    if disk.kind == "chunks":
        options = {} if disk.codec is None else {"codec": disk.codec}
        return ps.Chunks(disk.chunk, subchunks=disk.subchunk, **options)
    if disk.parts is not None:
        return ps.Distribution(disk.parts.text, mesh=disk.parts.mesh)
    return ps.RowMajor(format="npy" if disk.kind == "npy" else "raw")


class MpiIo(Contender):
    """MPI-IO takes part through mpi4py, on one flat row-major file.

    It comes collective with default hints; collective with the hints that were found best, one
    contender for each number of aggregators and size of their buffers; and independent, each rank
    on its own with data sieving as the library does it.
    """

    name = "mpiio"

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[MpiIo]:
        """Make one with default hints, those with the best hints, and an independent one."""
        variants = hint_variants(cls.name, case.size, options).items()
        return [
            *(cls(case, comm, label, hints) for label, hints in variants),
            cls(case, comm, "mpiio, independent", {}, collective=False),
        ]

    def __init__(
        self,
        case: Case,
        comm: Intracomm,
        label: str,
        hints: dict[str, str],
        collective: bool = True,
    ) -> None:
        from mpi4py import MPI

        super().__init__(label, case, comm)
        self.collective = collective
        self.info = MPI.Info.Create(hints)
        self.resources.callback(self.info.Free)
        self.element = MPI.BYTE.Create_contiguous(case.dtype.itemsize).Commit()
        self.resources.callback(self.element.Free)
        self.view = mpi_view(case, self.element).Commit()
        self.resources.callback(self.view.Free)
        self.count = math.prod(case.local_shape())

    def write(self, target: Path, local: Elements) -> None:
        from mpi4py import MPI

        # Data sieving reads what it overwrites: the file must be open for reading, too.
        mode = MPI.MODE_CREATE | MPI.MODE_RDWR
        file = MPI.File.Open(self.comm, str(target), mode, self.info)
        file.Set_view(0, self.element, self.view, "native", self.info)
        (file.Write_all if self.collective else file.Write)([local, self.count, self.element])
        if self.case.sync:
            file.Sync()
        file.Close()

    def read(self, target: Path, out: Elements) -> None:
        from mpi4py import MPI

        file = MPI.File.Open(self.comm, str(target), MPI.MODE_RDONLY, self.info)
        file.Set_view(0, self.element, self.view, "native", self.info)
        (file.Read_all if self.collective else file.Read)([out, self.count, self.element])
        file.Close()


def hint_variants(name: str, ranks: int, options: Options) -> dict[str, dict[str, str]]:
    """Return the hints of collective MPI-IO on some ranks to be measured, by their labels.

    There are the default hints, and those that were found best for each number of aggregators and
    size of their buffers.
    """
    nodes = dict.fromkeys(min(nodes, ranks) for nodes in options.cb_nodes)
    best = {
        f"{name}, best hints, cb_nodes {many}, {mib} MiB": best_hints(many, mib)
        for many, mib in itertools.product(nodes, options.cb_buffers_mib)
    }
    return {f"{name}, default hints": {}, **best}


def best_hints(nodes: int, buffer_mib: int = 1) -> dict[str, str]:
    """Return the hints with which ROMIO is fastest on one host: many aggregators, small buffers.

    Buffers of 1 MiB are about twice as fast as 4 MiB on a disk; in memory it is the other way
    round at times.
    """
    return {
        "cb_config_list": "*:*",
        "cb_nodes": str(nodes),
        "cb_buffer_size": str(buffer_mib * MIB),
        "romio_cb_write": "enable",
        "romio_cb_read": "enable",
    }


def mpi_view(case: Case, element: Datatype) -> Datatype:
    """Return this rank's share of the file: a subarray for BLOCK, otherwise a darray."""
    from mpi4py import MPI

    local = case.local_shape()
    if math.prod(local) == 0:
        return element.Create_contiguous(1)
    if all(kind in ("BLOCK", "*") for kind in case.memory.kinds):
        starts = [int(indices[0]) for indices in case.local_indices()]
        return element.Create_subarray(case.shape, local, starts)
    kinds: list[int] = []
    arguments: list[int] = []
    extents: list[int] = []
    for kind, extent, _ in case.memory.per_dimension(case.rank):
        extents.append(extent)
        if kind == "*":
            kinds.append(MPI.DISTRIBUTE_NONE)
            arguments.append(MPI.DISTRIBUTE_DFLT_DARG)
        elif kind == "BLOCK":
            kinds.append(MPI.DISTRIBUTE_BLOCK)
            arguments.append(MPI.DISTRIBUTE_DFLT_DARG)
        else:
            kinds.append(MPI.DISTRIBUTE_CYCLIC)
            arguments.append(cyclic_width(kind) or 1)
    return element.Create_darray(
        case.memory.parts, case.rank, case.shape, kinds, arguments, extents, MPI.ORDER_C
    )


class Mmap(Contender):
    """Every rank maps the flat file and copies with a strided NumPy assignment.

    No parallel program could do this across hosts; it shows what one copy costs.
    """

    name = "mmap"

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[Mmap]:
        """Make the only variant."""
        return [cls("mmap, every rank copies", case, comm)]

    def __init__(self, label: str, case: Case, comm: Intracomm) -> None:
        super().__init__(label, case, comm)
        self.empty = math.prod(case.local_shape()) == 0
        where: tuple[Any, ...] = tuple(map(as_slice, case.local_indices()))
        regular = all(isinstance(along, slice) for along in where)
        self.where = where if regular else np.ix_(*case.local_indices())

    def write(self, target: Path, local: Elements) -> None:
        if self.comm.rank == 0:
            with open(target, "wb") as file:
                file.truncate(self.case.bytes)
        self.comm.Barrier()
        if not self.empty:
            mapped = np.memmap(target, self.case.dtype, "r+", shape=self.case.shape)
            mapped[self.where] = local
            if self.case.sync:
                mapped.flush()
            del mapped
        self.comm.Barrier()

    def read(self, target: Path, out: Elements) -> None:
        if not self.empty:
            mapped = np.memmap(target, self.case.dtype, "r", shape=self.case.shape)
            out[...] = mapped[self.where]
            del mapped


class TensorStore(Contender):
    """Every rank writes its own share into one Zarr store with TensorStore and its file locks."""

    name = "tensorstore"
    disks = ("chunks",)

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[TensorStore]:
        """Make the only variant."""
        return [cls(cls.name, case, comm)]

    def __init__(self, label: str, case: Case, comm: Intracomm) -> None:
        import tensorstore

        super().__init__(label, case, comm)
        if case.disk.subchunk is not None:
            raise UsageError("--strategy tensorstore is measured without sub-chunks")
        self.ts = tensorstore
        self.empty = math.prod(case.local_shape()) == 0
        self.where = tuple(as_slice(indices) for indices in case.local_indices())
        self.codecs = tensorstore_codecs(case.disk.codec)

    def _open(self, target: Path, **how: Any) -> Any:
        """Return the share of this rank, with an origin of zero."""
        store = self.ts.open(
            {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": str(target / self.case.name) + "/"},
                "context": {"file_io_sync": self.case.sync},
            },
            **how,
        ).result()
        return store[self.where][self.ts.d[:].translate_to[0]]

    def write(self, target: Path, local: Elements) -> None:
        schema = {
            "dtype": self.ts.dtype(self.case.dtype),
            "shape": self.case.shape,
            "chunk_layout": self.ts.ChunkLayout(chunk_shape=self.case.disk.chunk),
            "codec": self.ts.CodecSpec({"driver": "zarr3", "codecs": self.codecs}),
        }
        if self.comm.rank == 0:
            self._open(target, create=True, delete_existing=True, **schema)
        self.comm.Barrier()
        if not self.empty:
            self._open(target).write(local).result()

    def read(self, target: Path, out: Elements) -> None:
        if not self.empty:
            out[...] = self._open(target).read().result()


def tensorstore_codecs(codec: str | None) -> list[dict[str, Any]]:
    """Return the Zarr codecs for ``none`` and ``zstd:LEVEL``."""
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    level = zstd_level(codec, "tensorstore")
    return plain if level is None else [*plain, {"name": "zstd", "configuration": {"level": level}}]


def zstd_level(codec: str | None, strategy: str) -> int | None:
    """Read ``zstd:LEVEL``; ``none`` and no codec have no level."""
    if codec in (None, "none"):
        return None
    name, _, level = (codec or "").partition(":")
    if name != "zstd" or not (level or "3").isdigit():
        raise UsageError(f"--strategy {strategy} is measured with none and zstd:N, not {codec!r}")
    return int(level or 3)


class ZarrPython(Contender):
    """Every rank writes its own chunks into one Zarr store with zarr-python.

    zarr-python has no locks: a chunk that several ranks share would lose elements. It cannot bring
    data to stable storage either.
    """

    name = "zarr"
    disks = ("chunks",)

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[ZarrPython]:
        """Make the only variant."""
        return [cls(cls.name, case, comm)]

    def __init__(self, label: str, case: Case, comm: Intracomm) -> None:
        import zarr
        from zarr.codecs import ZstdCodec

        super().__init__(f"{label}, fused codecs" if use_fused_codecs() else label, case, comm)
        if case.sync:
            raise UsageError("--strategy zarr cannot sync: take --no-sync")
        if not has_own_chunks(case):
            raise UsageError("--strategy zarr needs chunks that belong to one rank each")
        self.zarr = zarr
        zarr.config.set({"array.write_empty_chunks": True})  # or it looks for what is empty
        level = zstd_level(case.disk.codec, self.name)
        self.compressors = None if level is None else ZstdCodec(level=level)
        self.empty = math.prod(case.local_shape()) == 0
        self.where: tuple[Any, ...] = tuple(map(as_slice, case.local_indices()))

    def write(self, target: Path, local: Elements) -> None:
        disk = self.case.disk
        if self.comm.rank == 0:
            self.zarr.create_array(
                target / self.case.name,
                shape=self.case.shape,
                dtype=self.case.dtype,
                chunks=disk.subchunk or disk.chunk,
                shards=disk.chunk if disk.subchunk else None,
                compressors=self.compressors,
            )
        self.comm.Barrier()
        if not self.empty:
            self.zarr.open_array(target / self.case.name, mode="r+")[self.where] = local

    def read(self, target: Path, out: Elements) -> None:
        if not self.empty:
            out[...] = self.zarr.open_array(target / self.case.name, mode="r")[self.where]


def use_fused_codecs() -> bool:
    """Turn on zarr-python's fused codec pipeline, if it has one (version 3.3 and newer)."""
    import zarr
    from zarr.core import codec_pipeline

    name = "FusedCodecPipeline"
    if not hasattr(codec_pipeline, name):
        return False
    zarr.config.set({"codec_pipeline.path": f"{codec_pipeline.__name__}.{name}"})
    return True


def has_own_chunks(case: Case) -> bool:
    """Tell whether every chunk belongs to one rank."""
    for part in range(case.memory.parts):
        indices = case.memory.indices(case.shape, part)
        for along, chunk, extent in zip(indices, case.disk.chunk, case.shape, strict=True):
            first, count = int(along[0]) if len(along) else 0, len(along)
            whole = first % chunk == 0 and (count % chunk == 0 or first + count == extent)
            if not whole or (count and int(along[-1]) != first + count - 1):
                return False
    return True


RIVALS: dict[str, type[Contender]] = {
    rival.name: rival for rival in (Penstock, MpiIo, Mmap, TensorStore, ZarrPython)
}


# ---------------------------------------------------------------------------------------------
# Limits
# ---------------------------------------------------------------------------------------------

LIMIT_BYTES = 256 << 20
LIMIT_BLOCK_BYTES = 1 << 20


def limits(directory: Path, clock: Callable[[], float]) -> dict[str, float]:
    """Measure what one core of this machine can do, in bytes a second, the best of three."""
    rates: dict[str, float] = {}
    source, target = np.full(LIMIT_BYTES, 3, np.uint8), np.zeros(LIMIT_BYTES, np.uint8)
    path = directory / "limit"
    for _ in range(3):
        start = clock()
        np.copyto(target, source)
        copied = clock()
        with open(path, "wb", buffering=0) as file:
            for offset in range(0, LIMIT_BYTES, LIMIT_BLOCK_BYTES):
                os.pwrite(file.fileno(), source.data[offset:][:LIMIT_BLOCK_BYTES], offset)
        written = clock()
        with open(path, "rb", buffering=0) as file:
            for offset in range(0, LIMIT_BYTES, LIMIT_BLOCK_BYTES):
                os.preadv(file.fileno(), [target.data[offset:][:LIMIT_BLOCK_BYTES]], offset)
        read = clock()
        path.unlink()
        for name, seconds in (
            ("memcpy", copied - start),
            ("pwrite", written - copied),
            ("pread", read - written),
        ):
            rates[name] = max(rates.get(name, 0.0), LIMIT_BYTES / seconds)
    return rates
