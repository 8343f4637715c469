! Local arrays of unusual forms: components of structures, parts of complex numbers, sections by
! vectors, pointers, assumed-size dummies, arrays with other lower bounds, constants.
!
!     shapes_of_memory STORE
program shapes_of_memory
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  type :: cell
    real(c_double) :: mass = -1
    integer(c_int) :: kind = -1
    real(c_double) :: speed(3) = -1
  end type
  type(penstock_session) :: session
  character(1000) :: store
  type(cell), allocatable :: cells(:, :)
  complex(c_double) :: waves(4, 3)
  real(c_double) :: values(4, 3), got(4, 3), many(8, 6), flat(12)
  real(c_double), pointer :: view(:, :)
  real(c_double), allocatable, target :: shifted(:, :)
  integer :: i

  call get_command_argument(1, store)
  call MPI_Init()
  call session%open(MPI_COMM_WORLD)
  values = reshape([(1.5d0 * i, i=1, 12)], [4, 3])

  allocate (cells(4, 3))
  cells%mass = values
  call put("mass", cells%mass)
  call take("mass", cells%speed(2))
  if (any(cells%speed(2) /= values)) error stop "components"
  if (any(cells%speed(1) /= -1) .or. any(cells%kind /= -1)) error stop "other components"

  waves = cmplx(values, -values, c_double)
  call put("real", waves%re)
  call put("imaginary", waves%im)

  many = 0
  many(2:8:2, 1:6:2) = values
  call put("vectors", many([2, 4, 6, 8], [1, 3, 5]))
  call put("expression", 2 * values)

  allocate (shifted(-1:2, 5:7))
  shifted = values
  call put("bounds", shifted)
  view => shifted(2:-1:-1, 7:5:-1)
  call put("pointer", view)
  call take("pointer", view(4:1:-1, 3:1:-1))
  if (any(shifted /= values(4:1:-1, 3:1:-1))) error stop "a pointer"

  flat = reshape(values, [12])
  call size_unknown(flat)
  got = 0
  call take("unknown", got)
  if (any(got /= values)) error stop "an array of assumed size"
  call session%close()
  call MPI_Finalize()

contains

  subroutine put(name, local)
    character(*), intent(in) :: name
    real(c_double), intent(in) :: local(:, :)
    type(penstock_array) :: u

    call u%create(name, [4, 3], "f8")
    call session%write(store, u, local)
  end subroutine

  subroutine take(name, local)
    character(*), intent(in) :: name
    real(c_double), intent(inout) :: local(:, :)
    type(penstock_array) :: u

    call session%find(store, u, name=name)
    call session%read(store, u, local)
  end subroutine

  subroutine size_unknown(array)
    real(c_double), intent(in) :: array(4, *)
    type(penstock_array) :: u

    call u%create("unknown", [4, 3], "f8")
    call session%write(store, u, array(:, :3))
  end subroutine
end program
