"""Every element type, from and into Fortran's kinds, on any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import zarr
from fortran_programs import run

SHAPE = (7, 5)  # in Fortran's order


@dataclass(frozen=True)
class Kind:
    """How a program declares elements of a dtype, and what it makes of the number `n`."""

    declared: str
    value: str
    same: str = "=="


KINDS = {
    "bool": Kind("logical(c_bool)", "logical(mod(n, 3_c_int64_t) == 0, c_bool)", ".eqv."),
    "i1": Kind("integer(c_int8_t)", "int(n - 40, c_int8_t)"),
    "i2": Kind("integer(c_int16_t)", "int(n - 4000, c_int16_t)"),
    "i4": Kind("integer(c_int32_t)", "int(n - 400000, c_int32_t)"),
    "i8": Kind("integer(c_int64_t)", "n - 40000000000_c_int64_t"),
    "u1": Kind("integer(c_int8_t)", "int(n - 70, c_int8_t)"),
    "u2": Kind("integer(c_int16_t)", "int(n - 70, c_int16_t)"),
    "u4": Kind("integer(c_int32_t)", "int(n - 70, c_int32_t)"),
    "u8": Kind("integer(c_int64_t)", "n - 70_c_int64_t"),
    "f2": Kind("integer(c_int16_t)", "int(15360 + n, c_int16_t)"),
    "f4": Kind("real(c_float)", "real(n, c_float) / 4"),
    "f8": Kind("real(c_double)", "real(n, c_double) / 4"),
    "c8": Kind("complex(c_float)", "cmplx(real(n, c_float), -real(n, c_float) / 2, c_float)"),
    "c16": Kind("complex(c_double)", "cmplx(real(n, c_double), -real(n, c_double) / 2, c_double)"),
}

PROGRAM = """
program kinds
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  type(penstock_session) :: session
  character(1000) :: path
  integer :: servers
  character(10) :: word

  call get_command_argument(1, path)
  call get_command_argument(2, word)
  read (word, *) servers
  call MPI_Init()
  call session%open(MPI_COMM_WORLD, servers=servers)
{calls}
  call session%close()
  call MPI_Finalize()
contains
{procedures}
end program
"""

PROCEDURE = """
  subroutine move_{dtype}()
    type(penstock_array) :: u
    {declared}, allocatable :: a(:, :), b(:, :)
    integer(c_int64_t), allocatable :: extents(:), start(:)
    integer(c_int64_t) :: n, i, j, first, block, stride, extent

    call u%create("{dtype}", shape=[{nx}, {ny}], dtype="{dtype}")
    call u%distribute("BLOCK,*", mesh=[session%size()])
    call u%set_chunks([3, 2], codec="zstd:1")
    extents = u%local_shape(session%rank())
    start = u%local_start(session%rank())
    allocate (a(extents(1), extents(2)))
    do j = 1, extents(2)
      do i = 1, extents(1)
        n = start(1) + i - 1 + 10 * (start(2) + j - 1)
        a(i, j) = {value}
      end do
    end do
    call session%write(path, u, a)

    call u%distribute("*,CYCLIC", mesh=[session%size()])
    extents = u%local_shape(session%rank())
    allocate (b(extents(1), extents(2)))
    call session%read(path, u, b)
    call u%local_indices(session%rank(), 2, first, block, stride, extent)
    if (extent /= extents(2)) error stop "{dtype}: the extents differ"
    do j = 1, extents(2)
      do i = 1, extents(1)
        n = i + 10 * (first + (j - 1) / block * stride + mod(j - 1, block))
        if (.not. (b(i, j) {same} {value})) &
            error stop "{dtype}: what was read differs"
      end do
    end do
  end subroutine
"""


def expected(dtype: str) -> np.ndarray:
    """The array as the store has it, the dimensions reversed."""
    i, j = np.meshgrid(np.arange(1, SHAPE[0] + 1), np.arange(1, SHAPE[1] + 1))
    n = i + 10 * j
    match dtype:
        case "bool":
            return n % 3 == 0
        case "i1" | "i2" | "i4" | "i8":
            below = {"i1": 40, "i2": 4000, "i4": 400000, "i8": 40000000000}[dtype]
            return (n - below).astype(dtype)
        case "u1" | "u2" | "u4" | "u8":
            return (n - 70).astype(f"i{dtype[1]}").view(dtype)
        case "f2":
            return (1 + n / 1024).astype("f2")
        case "f4" | "f8":
            return (n / 4).astype(dtype)
        case _:
            return (n - 0.5j * n).astype(dtype)


@pytest.fixture(scope="module")
def program(build):
    procedures = [
        PROCEDURE.format(dtype=dtype, nx=SHAPE[0], ny=SHAPE[1], **vars(kind))
        for dtype, kind in KINDS.items()
    ]
    calls = "\n".join(f"  call move_{dtype}()" for dtype in KINDS)
    return build.text("kinds", PROGRAM.format(calls=calls, procedures="".join(procedures)).lstrip())


@pytest.mark.parametrize(("ranks", "servers"), [(1, 1), (1, 3), (2, 1), (3, 2), (8, 8)])
def test_every_dtype(program, tmp_path, ranks, servers):
    run(program, tmp_path / "kinds.zarr", servers, ranks=ranks)
    group = zarr.open_group(tmp_path / "kinds.zarr", mode="r")
    assert sorted(group) == sorted(KINDS)
    for dtype in KINDS:
        stored = group[dtype]
        assert stored.shape == SHAPE[::-1] and stored.chunks == (2, 3), dtype
        np.testing.assert_array_equal(stored[...], expected(dtype), dtype)
        assert stored.dtype == expected(dtype).dtype
