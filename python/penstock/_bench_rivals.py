"""The rivals of the benchmark: each moves the same distributed array between memory and disk.

A rival is a class with a ``name`` and a class method ``contenders(case, comm, options)``, which
returns the variants to be measured. A contender has

- ``label``: what the table calls it;
- ``write(target, local)`` and ``read(target, out)``: collective, and on return the data are where
  they belong (on stable storage if ``case.sync``);
- ``close()``.

Everything that a program would set up once (sessions, MPI datatypes) is set up by the constructor
and is not timed; everything that belongs to one write or read (opening, views, syncing, closing)
is. To add a rival, add its class to ``RIVALS``.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock._bench_case import Case, UsageError, as_slice, cyclic_width


@dataclass(frozen=True)
class Options:
    """What the command line says about the rivals."""

    servers: int | None = None
    transport: str = "shared"
    cb_nodes: tuple[int, ...] = (8, 4)
    by: tuple[str, ...] = ("disk-directed",)
    direct: bool = False


class Penstock:
    """Penstock itself, with part-time servers, by each of the strategies asked for."""

    name = "penstock"
    disks = ("row-major", "npy", "chunks", "parts")

    @classmethod
    def contenders(cls, case: Case, comm, options: Options) -> list[Penstock]:
        """One a strategy."""
        return [cls(case, comm, options, by) for by in options.by]

    def __init__(self, case: Case, comm, options: Options, by: str = "disk-directed") -> None:
        import penstock as ps

        self.label = self.name if options.by == ("disk-directed",) else f"{self.name}, {by}"
        self.session = ps.Session(
            comm,
            servers=options.servers,
            transport=options.transport,
            sync=case.sync,
            strategy=by,
            direct=options.direct,
        )
        memory = ps.Distribution(case.memory.text, mesh=case.memory.mesh)
        self.array = ps.Array(
            case.name, shape=case.shape, dtype=case.dtype, memory=memory, disk=self.disk(case)
        )
        # What does not fit together is said here, before anything is measured.
        self.session.explain(str(case.directory / case.name), self.array)
        if tuple(self.array.local_shape(case.rank)) != case.local_shape():
            raise AssertionError(
                f"rank {case.rank}: the local shape is {self.array.local_shape(case.rank)} to "
                f"Penstock, {case.local_shape()} by the rules of High-Performance Fortran"
            )

    @staticmethod
    def disk(case: Case):
        """The disk schema as Penstock writes it."""
        import penstock as ps

        disk = case.disk
        if disk.kind == "chunks":
            options = {} if disk.codec is None else {"codec": disk.codec}
            return ps.Chunks(disk.chunk, subchunks=disk.subchunk, **options)
        if disk.kind == "parts":
            return ps.Distribution(disk.parts.text, mesh=disk.parts.mesh)
        return ps.RowMajor(format="npy" if disk.kind == "npy" else "raw")

    def write(self, target: Path, local: np.ndarray) -> None:
        self.session.write(str(target), self.array, local)

    def read(self, target: Path, out: np.ndarray) -> None:
        self.session.read(str(target), self.array, out=out)

    def close(self) -> None:
        self.session.close()


class MpiIo:
    """MPI-IO through mpi4py, on one flat row-major file.

    Three variants: collective with default hints; collective with the hints that were found best
    on this kind of machine, one contender for each ``cb_nodes``; independent, each rank on its own
    with data sieving as the library does it.
    """

    name = "mpiio"
    disks = ("row-major",)

    @classmethod
    def contenders(cls, case: Case, comm, options: Options) -> list[MpiIo]:
        """Default hints, best hints for each number of aggregators, independent."""
        best = [
            cls(case, comm, f"mpiio, best hints, cb_nodes {nodes}", best_hints(nodes))
            for nodes in dict.fromkeys(min(nodes, case.size) for nodes in options.cb_nodes)
        ]
        return [
            cls(case, comm, "mpiio, default hints", {}),
            *best,
            cls(case, comm, "mpiio, independent", {}, collective=False),
        ]

    def __init__(
        self, case: Case, comm, label: str, hints: dict[str, str], collective: bool = True
    ) -> None:
        from mpi4py import MPI

        self.label, self.collective = label, collective
        self.comm, self.sync = comm, case.sync
        self.info = MPI.Info.Create()
        for key, value in hints.items():
            self.info.Set(key, value)
        self.element = MPI.BYTE.Create_contiguous(case.dtype.itemsize).Commit()
        self.view = mpi_view(case, self.element).Commit()
        self.count = math.prod(case.local_shape())

    def write(self, target: Path, local: np.ndarray) -> None:
        from mpi4py import MPI

        # Data sieving reads what it overwrites: the file must be open for reading, too.
        mode = MPI.MODE_CREATE | MPI.MODE_RDWR
        file = MPI.File.Open(self.comm, str(target), mode, self.info)
        file.Set_view(0, self.element, self.view, "native", self.info)
        (file.Write_all if self.collective else file.Write)([local, self.count, self.element])
        if self.sync:
            file.Sync()
        file.Close()

    def read(self, target: Path, out: np.ndarray) -> None:
        from mpi4py import MPI

        file = MPI.File.Open(self.comm, str(target), MPI.MODE_RDONLY, self.info)
        file.Set_view(0, self.element, self.view, "native", self.info)
        (file.Read_all if self.collective else file.Read)([out, self.count, self.element])
        file.Close()

    def close(self) -> None:
        self.view.Free()
        self.element.Free()
        self.info.Free()


def best_hints(nodes: int) -> dict[str, str]:
    """The hints with which ROMIO is fastest here: many aggregators on one host, 4 MiB buffers."""
    return {
        "cb_config_list": "*:*",
        "cb_nodes": str(nodes),
        "cb_buffer_size": str(4 << 20),
        "romio_cb_write": "enable",
        "romio_cb_read": "enable",
    }


def mpi_view(case: Case, element):
    """The rank's share of the file as an MPI datatype: a subarray for BLOCK, otherwise a darray."""
    from mpi4py import MPI

    local = case.local_shape()
    if math.prod(local) == 0:
        return element.Create_contiguous(1)
    if all(kind in ("BLOCK", "*") for kind in case.memory.kinds):
        starts = [int(indices[0]) for indices in case.local_indices()]
        return element.Create_subarray(case.shape, local, starts)
    kinds, arguments, extents = [], [], []
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
            arguments.append(cyclic_width(kind))
    return element.Create_darray(
        case.memory.parts, case.rank, case.shape, kinds, arguments, extents, MPI.ORDER_C
    )


class Mmap:
    """Every rank maps the flat file and copies with a strided NumPy assignment.

    No parallel program could do this across hosts; it shows what one copy costs.
    """

    name = "mmap"
    disks = ("row-major",)

    @classmethod
    def contenders(cls, case: Case, comm, options: Options) -> list[Mmap]:
        """The one way there is."""
        return [cls(case, comm)]

    def __init__(self, case: Case, comm) -> None:
        self.label = "mmap, every rank copies"
        self.case, self.comm = case, comm
        self.empty = math.prod(case.local_shape()) == 0
        where = tuple(as_slice(indices) for indices in case.local_indices())
        regular = all(isinstance(along, slice) for along in where)
        self.where = where if regular else np.ix_(*case.local_indices())

    def write(self, target: Path, local: np.ndarray) -> None:
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

    def read(self, target: Path, out: np.ndarray) -> None:
        if not self.empty:
            mapped = np.memmap(target, self.case.dtype, "r", shape=self.case.shape)
            out[...] = mapped[self.where]
            del mapped

    def close(self) -> None:
        pass


class TensorStore:
    """Every rank writes its own share into one Zarr store with TensorStore and its file locks."""

    name = "tensorstore"
    disks = ("chunks",)

    @classmethod
    def contenders(cls, case: Case, comm, options: Options) -> list[TensorStore]:
        """The one way there is."""
        return [cls(case, comm)]

    def __init__(self, case: Case, comm) -> None:
        try:
            import tensorstore
        except ImportError as error:
            raise UsageError(
                "--strategy tensorstore needs tensorstore: pip install tensorstore"
            ) from error
        if case.disk.subchunk is not None:
            raise UsageError("--strategy tensorstore is measured without sub-chunks")
        self.ts = tensorstore
        self.label = self.name
        self.case, self.comm = case, comm
        self.empty = math.prod(case.local_shape()) == 0
        self.where = tuple(as_slice(indices) for indices in case.local_indices())
        self.codecs = tensorstore_codecs(case.disk.codec)

    def _open(self, target: Path, **how):
        """The share of this rank, with an origin of zero."""
        store = self.ts.open(
            {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": str(target / self.case.name) + "/"},
                "context": {"file_io_sync": self.case.sync},
            },
            **how,
        ).result()
        return store[self.where][self.ts.d[:].translate_to[0]]

    def write(self, target: Path, local: np.ndarray) -> None:
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

    def read(self, target: Path, out: np.ndarray) -> None:
        if not self.empty:
            out[...] = self._open(target).read().result()

    def close(self) -> None:
        pass


def tensorstore_codecs(codec: str | None) -> list[dict]:
    """The Zarr codecs for ``none`` and ``zstd:LEVEL``."""
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec in (None, "none"):
        return plain
    name, _, level = codec.partition(":")
    if name != "zstd" or not (level or "3").isdigit():
        raise UsageError(f"--strategy tensorstore is measured with none and zstd:N, not {codec!r}")
    return [*plain, {"name": "zstd", "configuration": {"level": int(level or 3)}}]


RIVALS = {rival.name: rival for rival in (Penstock, MpiIo, Mmap, TensorStore)}


# ---------------------------------------------------------------------------------------------
# Limits
# ---------------------------------------------------------------------------------------------

LIMIT_BYTES = 256 << 20
LIMIT_BLOCK_BYTES = 1 << 20


def limits(directory: Path, clock) -> dict[str, float]:
    """What one core of this machine can do, in bytes a second, the best of three."""
    rates: dict[str, float] = {}
    source, target = np.full(LIMIT_BYTES // 8, 1.5), np.zeros(LIMIT_BYTES // 8)
    path = directory / "limit"
    for _ in range(3):
        start = clock()
        np.copyto(target, source)
        copied = clock()
        with open(path, "wb", buffering=0) as file:
            for offset in range(0, LIMIT_BYTES, LIMIT_BLOCK_BYTES):
                os.pwrite(
                    file.fileno(), memoryview(source).cast("B")[offset:][:LIMIT_BLOCK_BYTES], offset
                )
        written = clock()
        with open(path, "rb", buffering=0) as file:
            for offset in range(0, LIMIT_BYTES, LIMIT_BLOCK_BYTES):
                into = memoryview(target).cast("B")[offset:][:LIMIT_BLOCK_BYTES]
                os.preadv(file.fileno(), [into], offset)
        read = clock()
        path.unlink()
        for name, seconds in (
            ("memcpy", copied - start),
            ("pwrite", written - copied),
            ("pread", read - written),
        ):
            rates[name] = max(rates.get(name, 0.0), LIMIT_BYTES / seconds)
    return rates
