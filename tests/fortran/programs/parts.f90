! Boxes, regions and lists of one array of 12 by 10 numbers, each its number in array element order,
! counted from 1, and arrays that stay open.
!
!     parts STORE
program parts
  use, intrinsic :: iso_c_binding
  use mpi
  use penstock
  implicit none
  integer, parameter :: int64 = c_int64_t
  integer, parameter :: NX = 12, NY = 10
  type(penstock_session) :: session
  character(1000) :: store
  integer :: rank, ranks, code

  call get_command_argument(1, store)
  call MPI_Init(code)
  call session%open(MPI_COMM_WORLD)
  rank = session%rank()
  ranks = session%size()
  call boxes()
  call changed_boxes()
  call lists()
  call changed_list()
  call open_array()
  call row_major_and_parts()
  call copy()
  call session%close()
  call MPI_Finalize(code)

contains

  ! Each rank holds the columns rank + 1, rank + 1 + ranks, ... as boxes with a halo of one above.
  ! A rank beyond the columns holds none.
  subroutine boxes()
    type(penstock_array) :: u
    type(penstock_locals) :: locals, back
    integer, allocatable :: starts(:, :), shapes(:, :)
    integer(int64), allocatable, target :: memory(:, :, :), got(:, :, :)
    integer :: count, box, i

    call u%create("u", [NX, NY], "i8")
    call u%set_chunks([5, 4])
    count = max(0, (NY - rank - 1) / ranks + 1)
    if (rank >= NY) count = 0
    allocate (starts(2, count), shapes(2, count))
    allocate (memory(NX, 2, count), source=-7_int64)
    allocate (got(NX, 2, count), source=-7_int64)
    do box = 1, count
      starts(:, box) = [1, column(box)]
      shapes(:, box) = [NX, 1]
      memory(:, 1, box) = [(number(i, column(box)), i=1, NX)]
      call locals%add(memory(:, :, box))
      call back%add(got(:, :, box))
    end do
    call u%set_boxes(starts, shapes, halo=reshape([0, 0, 0, 1], [2, 2]))
    if (u%local_count(rank) /= count) error stop "the number of boxes"
    if (count > 0) then
      if (any(u%local_shape(rank, count) /= [NX, 2])) error stop "the shape of a box"
      if (any(u%local_start(rank, count) /= [1, column(count)])) error stop "the start of a box"
    end if
    if (u%local_bytes(rank) /= 8 * NX * 2 * count) error stop "the bytes of boxes"
    call session%write_parts(store, u, locals)
    call session%read_parts(store, u, back)
    if (any(got /= memory)) error stop "boxes that were read differ"
    call u%set_shares(subchunks=[4, 1], codec="zstd:1")
    got = -7
    call session%write_parts(trim(store) // "-shares", u, locals)
    call session%read_parts(trim(store) // "-shares", u, back)
    if (any(got /= memory)) error stop "boxes that are chunks differ"
  end subroutine

  ! Rank 0 changes the middle of the array, and all ranks read overlapping boxes of it.
  subroutine changed_boxes()
    type(penstock_array) :: u
    integer(int64), allocatable :: middle(:, :)
    integer :: i, j, count

    call session%find(store, u)
    count = merge(1, 0, rank == 0)
    call u%set_region_boxes(reshape([3, 4], [2, 1]), reshape([4 * count, 3], [2, 1]))
    allocate (middle(4 * count, 3))
    do j = 1, 3
      do i = 1, 4 * count
        middle(i, j) = 1000 + number(i + 2, j + 3)
      end do
    end do
    call session%write(store, u, middle)
    deallocate (middle)
    allocate (middle(6, 2))
    call u%set_region_boxes(reshape([1, 6], [2, 1]), reshape([6, 2], [2, 1]))
    call session%read(store, u, middle(6:1:-1, :))
    middle = middle(6:1:-1, :)
    do j = 1, 2
      do i = 1, 6
        if (middle(i, j) /= number(i, j + 5) + merge(1000, 0, j == 1 .and. i > 2)) &
            error stop "an overlapping box differs"
      end do
    end do
  end subroutine

  ! Each rank holds every `ranks`-th element, at places of its memory that go backwards.
  subroutine lists()
    type(penstock_array) :: v
    type(penstock_list) :: elements, places
    integer(int64), allocatable :: memory(:), got(:), run_starts(:), run_lengths(:)
    integer :: i, count

    count = (NX * NY - rank - 1) / ranks + 1
    allocate (memory(2 * count + 1), source=-1_int64)
    allocate (got(2 * count + 1), source=-1_int64)
    call elements%strided(rank + 1, 1, [count], [ranks])
    if (elements%elements() /= count) error stop "the elements of a list"
    run_starts = [(int(2 * (count - i) + 2, int64), i=1, count)]
    run_lengths = [(1_int64, i=1, count)]
    call places%runs(run_starts, run_lengths)
    do i = 1, count
      memory(run_starts(i)) = rank + 1 + int(i - 1, int64) * ranks
    end do
    call v%create("v", [NX, NY], "i8")
    call v%set_chunks([4, 3], subchunks=[2, 3], codec="zstd:1")
    call v%set_list(elements, places)
    call session%write(store, v, memory)
    call session%read(store, v, got)
    if (any(got /= memory)) error stop "a list that was read differs"
  end subroutine

  ! The last rank changes the diagonal from (1, 1) on; the others hold nothing.
  subroutine changed_list()
    type(penstock_array) :: v
    type(penstock_list) :: diagonal
    integer :: i, count

    call session%find(store, v, name="v")
    count = merge(NY, 0, rank == ranks - 1)
    call diagonal%strided(1_int64, 1_int64, [int(count, int64)], [NX + 1_int64])
    call v%set_region_list(diagonal)
    call session%write(store, v, [(-int(i, int64), i=1, count)])
  end subroutine

  ! Ranks read and write boxes and lists by themselves, then all together.
  subroutine open_array()
    type(penstock_open_array) :: w
    type(penstock_array) :: schema
    type(penstock_list) :: some
    type(penstock_locals) :: none
    integer(int64), allocatable, target :: column(:, :), whole(:, :), picked(:)
    integer :: j, code

    call schema%create("w", [NX, NY], "i8")
    call schema%set_chunks([5, 5])
    call schema%set_fill(-5_int64)
    call schema%distribute("*,BLOCK", mesh=[ranks])
    allocate (whole(NX, NY))
    associate (shape => schema%local_shape(rank))
      allocate (column(shape(1), shape(2)), source=0_int64)
    end associate
    call session%write(store, schema, column)
    call w%open(session, store, name="w", is_writable=.true.)
    if (w%name() /= "w") error stop "the name of the open array"
    if (w%dtype() /= "i8") error stop "the dtype of the open array"
    if (w%dims() /= 2) error stop "the dimensions of the open array"
    if (any(w%shape() /= [NX, NY])) error stop "the shape of the open array"
    do j = rank + 1, NY, ranks
      call w%write([1, j], reshape([(number(code, j), code=1, NX)], [NX, 1]))
    end do
    call w%flush()
    call session%barrier()
    call w%read([1_int64, 1_int64], whole(:, NY:1:-1))
    do j = 1, NY
      if (any(whole(:, NY + 1 - j) /= [(number(code, j), code=1, NX)])) error stop "a whole read"
    end do
    call session%barrier()
    call some%runs([rank + 1], [1])
    call w%write_list(some, [2000_int64 + rank])
    allocate (picked(2))
    call session%barrier()
    call some%runs([1, NX * NY], [1, 1])
    call w%read_list(some, picked)
    if (any(picked /= [2000, NX * NY])) error stop "a list of an open array"
    call w%read([1, NY + 1], picked, ierr=code)
    if (code /= PENSTOCK_ERR_SCHEMA) error stop "a read of another rank"
    call w%schema(schema)
    call schema%set_region_boxes(reshape([1, 2], [2, 1]), reshape([NX, 1], [2, 1]))
    deallocate (column)
    allocate (column(NX, 1))
    call w%read_all(schema, column)
    if (any(column(:, 1) /= [(number(code, 2), code=1, NX)])) error stop "a region of all ranks"
    if (rank == ranks - 1) then
      column = 3000 + column
      call w%write_all(schema, column)
    else
      call schema%set_region_boxes(reshape([integer ::], [2, 0]), reshape([integer ::], [2, 0]))
      call w%write_all_parts(schema, none)
    end if
    call w%close()
  end subroutine

  ! One file in Fortran's order, and files for the places of a mesh.
  subroutine row_major_and_parts()
    type(penstock_array) :: r
    integer(int64), allocatable :: memory(:, :), got(:, :)
    integer(int64), allocatable :: shape(:), start(:)
    integer :: i, j

    call r%create("r", [NX, NY], "i8")
    call r%distribute("BLOCK,*", mesh=[ranks])
    shape = r%local_shape(rank)
    start = r%local_start(rank)
    allocate (memory(shape(1), shape(2)), got(shape(1), shape(2)))
    do j = 1, size(memory, 2)
      do i = 1, size(memory, 1)
        memory(i, j) = number(i + int(start(1)) - 1, j)
      end do
    end do
    call r%set_row_major("npy")
    call session%write(trim(store) // ".npy", r, memory)
    call r%set_dataset("netcdf", chunk=[4, 3], filters="shuffle+deflate:1")
    call session%write(trim(store) // ".nc", r, memory)
    call r%set_dataset("hdf5", dataset="/of/fortran")
    call session%write(trim(store) // ".h5", r, memory)
    call r%set_row_major("raw")
    call session%write(trim(store) // ".raw", r, memory)
    call r%set_parts("*,BLOCK", [3])
    call session%write(trim(store) // ".parts", r, memory)
    got = 0
    call session%read(trim(store) // ".parts", r, got)
    if (any(got /= memory)) error stop "parts that were read differ"
  end subroutine

  ! All ranks copy one array of the store into other chunks.
  subroutine copy()
    type(penstock_copy_report) :: report

    call penstock_session_copy(session, store, trim(store) // ".copied", arrays="v", name="other", &
        chunks="6,5", subchunks="3,5", codec="gzip:1", drop_attributes=.true., report=report)
    if (report%bytes /= 8 * NX * NY) error stop "the bytes of a copy"
  end subroutine

  integer function column(box)
    integer, intent(in) :: box

    column = rank + 1 + (box - 1) * ranks
  end function

  integer(int64) function number(i, j)
    integer, intent(in) :: i, j

    number = i + (j - 1) * NX
  end function
end program
