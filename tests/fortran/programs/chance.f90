! Moves arrays of chance: reads cases from a file, and for each writes an array in one distribution
! and reads it in another, from and into sections of any strides, with halos. The value of an
! element is its number in array element order, from 0. The last line that rank 0 prints is "done".
!
!     chance CASES STORE SERVERS
program chance
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  integer, parameter :: int64 = c_int64_t
  integer(int64), parameter :: UNTOUCHED = -1
  type(penstock_session) :: session
  character(1000) :: cases, store, word
  integer :: unit, status, servers, number

  call get_command_argument(1, cases)
  call get_command_argument(2, store)
  call get_command_argument(3, word)
  read (word, *) servers
  call MPI_Init()
  call session%open(MPI_COMM_WORLD, servers=servers)
  open (newunit=unit, file=trim(cases), action="read", status="old")
  number = 0
  do
    read (unit, *, iostat=status) word
    if (status /= 0) exit
    call one_case(trim(word), number)
    number = number + 1
  end do
  close (unit)
  if (session%rank() == 0) print "(a, i0, a)", "moved ", number, " arrays"
  call session%close()
  call MPI_Finalize()

contains

  ! A case is six lines behind its name: shape, chunk, codec; then for the write and the read each
  ! a distribution, a mesh, a halo, steps of the section, and a strategy.
  subroutine one_case(name, number)
    character(*), intent(in) :: name
    integer, intent(in) :: number
    type(penstock_array) :: u
    character(40) :: codec
    integer :: shape(3), chunk(3)

    read (unit, *) shape, chunk, codec
    call u%create(name, shape, "i8")
    call u%set_dimension_names(["x", "y", "z"])
    if (mod(number, 4) == 1) then
      call u%set_natural()
    else
      call u%set_chunks(chunk, codec=codec)
    end if
    call move(u, shape, .true.)
    call move(u, shape, .false.)
  end subroutine

  subroutine move(u, shape, is_write)
    type(penstock_array), intent(inout) :: u
    integer, intent(in) :: shape(3)
    logical, intent(in) :: is_write
    character(40) :: dists, strategy
    integer :: dims, halo(2, 3), steps(3)
    integer, allocatable :: mesh(:)
    integer(int64) :: first(3), last(3), room(3)
    integer(int64), allocatable :: extents(:)
    integer(int64), allocatable, target :: parent(:, :, :)
    integer(int64), pointer :: local(:, :, :)
    type(penstock_report) :: report

    read (unit, *) dists, strategy, dims
    allocate (mesh(dims))
    read (unit, *) mesh, halo, steps
    call u%distribute(dists, mesh, halo=halo)
    extents = u%local_shape(session%rank())
    first = 1
    last = 1 + (extents - 1) * abs(steps)
    where (steps < 0)
      first = last
      last = 1
    end where
    room = extents * abs(steps) + 1
    allocate (parent(room(1), room(2), room(3)), source=UNTOUCHED)
    local => parent(first(1):last(1):steps(1), first(2):last(2):steps(2), first(3):last(3):steps(3))
    if (any(ubound(local) /= extents)) error stop "the section is not what it should be"
    if (is_write) then
      call visit(u, shape, halo, local, .true.)
      call session%write(store, u, local, strategy=strategy, report=report)
    else
      call session%read(store, u, local, strategy=strategy, report=report)
      call visit(u, shape, halo, local, .false.)
      if (any(parent /= UNTOUCHED)) error stop "a read has changed what is not its own"
    end if
    if (report%bytes /= 8 * product(int(shape, int64))) error stop "the report is wrong"
  end subroutine

  ! Fills the elements that this rank holds, or checks them and sets them back.
  subroutine visit(u, shape, halo, local, fills)
    type(penstock_array), intent(in) :: u
    integer, intent(in) :: shape(3), halo(2, 3)
    integer(int64), intent(inout) :: local(:, :, :)
    logical, intent(in) :: fills
    integer(int64) :: begin(3), block(3), stride(3), extent(3), value, where_(3), i, j, k
    integer :: dim

    do dim = 1, 3
      call u%local_indices(session%rank(), dim, begin(dim), block(dim), stride(dim), extent(dim))
    end do
    do k = 1, extent(3)
      do j = 1, extent(2)
        do i = 1, extent(1)
          where_ = [i, j, k] - 1
          where_ = begin - 1 + where_ / block * stride + mod(where_, block)
          value = where_(1) + shape(1) * (where_(2) + shape(2) * where_(3))
          associate (cell => local(i + halo(1, 1), j + halo(1, 2), k + halo(1, 3)))
            if (fills) then
              cell = value
            else
              if (cell /= value) error stop "what was read differs"
              cell = UNTOUCHED
            end if
          end associate
        end do
      end do
    end do
  end subroutine
end program
