"""PnetCDF writes and reads the array as one variable of a netCDF file.

The library is the one that ``--pnetcdf`` names, and must be built with the MPI library that mpi4py
uses. Version 1.15 and newer moves data by GIO, a library of its own, and not by MPI-IO.

The file is in the classic format for large variables (CDF-5), whose numbers are big-endian: PnetCDF
swaps the bytes of what it writes and reads. Nothing is filled beforehand.
"""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock_bench.case import Case, Elements
from penstock_bench.command import FailedError, UsageError
from penstock_bench.rivals import Contender, Options, hint_variants

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

TYPES = {"i1": 1, "i2": 3, "i4": 4, "f4": 5, "f8": 6, "u1": 7, "u2": 8, "u4": 9, "i8": 10, "u8": 11}
"""The numbers that PnetCDF has for types."""
NO_WRITE, WRITE_CDF5 = 0, 0x20
COUNT_IGNORE = -1
"""This count, and no MPI type, say that elements in memory have the variable's type."""


class PnetCdf(Contender):
    """Every rank takes part in collective calls for its block of one variable."""

    name = "pnetcdf"

    @classmethod
    def contenders(cls, case: Case, comm: Intracomm, options: Options) -> list[PnetCdf]:
        """Make a variant for each set of hints: GIO takes the hints of MPI-IO."""
        if options.pnetcdf is None:
            raise UsageError("--strategy pnetcdf needs --pnetcdf PATH/libpnetcdf.so")
        variants = hint_variants(cls.name, case.size, options).items()
        return [cls(options.pnetcdf, case, comm, label, hints) for label, hints in variants]

    def __init__(
        self, path: Path, case: Case, comm: Intracomm, label: str, hints: dict[str, str]
    ) -> None:
        from mpi4py import MPI

        super().__init__(label, case, comm)
        kind = case.dtype.str[1:]
        if kind not in TYPES:
            raise UsageError(f"--strategy pnetcdf has no type for --dtype {case.dtype.name}")
        if not set(case.memory.kinds) <= {"BLOCK", "*"}:
            raise UsageError("--strategy pnetcdf is measured with BLOCK and * distributions")
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise UsageError(f"--pnetcdf {path}: {error}") from error
        self.type = TYPES[kind]
        # MPICH's handles are numbers, those of Open MPI are pointers.
        is_number = MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int)
        self.handle = ctypes.c_int if is_number else ctypes.c_void_p
        dims, local = len(case.shape), case.local_shape()
        offset = ctypes.c_longlong * dims
        self.start = offset(*(int(along[0]) if len(along) else 0 for along in case.local_indices()))
        self.count = offset(*(local if math.prod(local) else [0] * dims))
        self.comm_handle = self.handle(comm.handle)
        info = MPI.Info.Create(hints)
        self.resources.callback(info.Free)
        self.info = self.handle(info.handle)
        self.same_type = self.handle(MPI.DATATYPE_NULL.handle)
        self.offset = 0

    def write(self, target: Path, local: Elements) -> None:
        file, variable = ctypes.c_int(), ctypes.c_int()
        name = str(target).encode()
        self._call("create", self.comm_handle, name, WRITE_CDF5, self.info, ctypes.byref(file))
        dims = (ctypes.c_int * len(self.case.shape))()
        for number, extent in enumerate(self.case.shape):
            dim = ctypes.c_int()
            length = ctypes.c_longlong(extent)
            self._call("def_dim", file, f"d{number}".encode(), length, ctypes.byref(dim))
            dims[number] = dim.value
        name = self.case.name.encode()
        self._call("def_var", file, name, self.type, len(dims), dims, ctypes.byref(variable))
        self._call("enddef", file)
        offset = ctypes.c_longlong()
        self._call("inq_varoffset", file, variable, ctypes.byref(offset))
        self.offset = offset.value
        self._move("put_vara_all", file, variable, local)
        if self.case.sync:
            self._call("sync", file)
        self._call("close", file)

    def read(self, target: Path, out: Elements) -> None:
        file, variable = ctypes.c_int(), ctypes.c_int()
        name = str(target).encode()
        self._call("open", self.comm_handle, name, NO_WRITE, self.info, ctypes.byref(file))
        self._call("inq_varid", file, self.case.name.encode(), ctypes.byref(variable))
        self._move("get_vara_all", file, variable, out)
        self._call("close", file)

    def wrong_on_disk(self, target: Path, salt: int) -> int:
        """Count the wrong elements of the variable, which follows the file's header."""
        case, stored = self.case, self.case.dtype.newbyteorder(">")
        mapped = np.memmap(target, stored, "r", self.offset, case.shape)
        return case.wrong_in_file(mapped.__getitem__, case.everything(), salt)

    def _move(
        self, function: str, file: ctypes.c_int, variable: ctypes.c_int, local: Elements
    ) -> None:
        """Write or read this rank's block."""
        memory = ctypes.c_void_p(local.ctypes.data)
        ignored = ctypes.c_longlong(COUNT_IGNORE)
        self._call(
            function, file, variable, self.start, self.count, memory, ignored, self.same_type
        )

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library, which returns an error code."""
        code = getattr(self.library, f"ncmpi_{function}")(*arguments)
        if code != 0:
            strerror = self.library.ncmpi_strerror
            strerror.restype = ctypes.c_char_p
            raise FailedError(f"ncmpi_{function}: {strerror(code).decode()}")
