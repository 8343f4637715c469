! Parallel files: a volume, names, views, collective and independent accesses, requests, shared
! pointers, checkpoints of files, import and export. Each rank fills and reads a column of a file;
! a number of the file tells the rank and its place.
!
!     parallel_files DIRECTORY
program parallel_files
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  integer, parameter :: int64 = c_int64_t
  integer, parameter :: RECORDS = 12
  type(penstock_fs) :: fs
  type(penstock_file) :: file
  type(penstock_view) :: column
  character(1000) :: directory, volume
  integer :: rank, ranks, code

  call get_command_argument(1, directory)
  volume = trim(directory) // "/volume"
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  if (rank == 0) call penstock_volume_create(volume, servers=2, block_bytes=4096_int64)
  call MPI_Barrier(MPI_COMM_WORLD)
  call fs%open(volume, MPI_COMM_WORLD, servers=2, cache_bytes=1048576_int64)
  if (fs%rank() /= rank) error stop "the rank"
  if (fs%clients() /= ranks) error stop "the clients"
  if (fs%servers() /= 2) error stop "the servers"
  if (fs%block_bytes() /= 4096) error stop "the bytes of a block"
  column%hn = ranks
  if (rank == 0) call names()
  call MPI_Barrier(MPI_COMM_WORLD)
  call collective()
  call alone()
  call shared_pointer()
  call transfers()
  call wrong()
  call fs%close()
  call MPI_Finalize()

contains

  subroutine names()
    type(penstock_stat) :: stat
    type(penstock_usage) :: usage
    character(:), allocatable :: found(:)

    call fs%mkdir("/some")
    call fs%create("/some/file", cells=ranks, bsu_bytes=8, mode=int(o'600'))
    call fs%symlink("file", "/some/link")
    if (fs%readlink("/some/link") /= "file") error stop "the target of a link"
    call fs%stat("/some/file", stat)
    if (stat%kind /= PENSTOCK_FILE_KIND) error stop "the kind of a file"
    if (stat%cells /= ranks .or. stat%bsu_bytes /= 8) error stop "the cells of a file"
    if (stat%mode /= int(o'600')) error stop "the mode of a file"
    call fs%chmod("/some/file", int(o'640'))
    call fs%chown("/some/file")
    call fs%list("/some", found)
    if (size(found) /= 2) error stop "the names in a directory"
    if (.not. (any(found == "file") .and. any(found == "link"))) error stop "a name is missing"
    call fs%list("/", found)
    if (.not. any(found == "some/")) error stop "the name of a directory"
    call fs%rename("/some/link", "/some/other")
    call fs%remove("/some/other")
    call fs%list("/some", found)
    if (any(found /= "file")) error stop "a name is there that was removed"
    call fs%usage(usage)
    if (usage%used > usage%bytes) error stop "more is used than there is"
    call fs%create("/resized", cells=2, bsu_bytes=16)
    call fs%resize("/resized", 100_int64)
    call fs%stat("/resized", stat)
    if (stat%bytes /= 100) error stop "the size in canonical order"
    call fs%resize_cells("/resized", 64_int64)
    if (any(fs%cell_bytes("/resized") /= [64, 64])) error stop "the bytes of the cells"
    call fs%stat("/not", stat, ierr=code)
    if (code /= PENSTOCK_ERR_MISSING) error stop "what is not there has attributes"
    call fs%create("/some/file", cells=1, bsu_bytes=8, ierr=code)
    if (code /= PENSTOCK_ERR_EXISTS) error stop "a file was made twice"
    call fs%sync()
  end subroutine

  ! Each rank writes its column with all others, from a section of its memory.
  subroutine collective()
    integer(int64) :: memory(2 * RECORDS), got(RECORDS), none(0), moved

    memory = -1
    memory(2::2) = numbers()
    call file%attach_all(fs, "/some/file", "r+")
    if (file%cells() /= ranks) error stop "the cells of an attached file"
    if (file%bsu_bytes() /= 8) error stop "the BSU of an attached file"
    if (all(file%base() /= [0, 1])) error stop "the base of an attached file"
    call file%write_all(memory(2::2), view=column, subfile=rank, moved=moved)
    if (moved /= 8 * RECORDS) error stop "the bytes of a collective write"
    got = 0
    call file%read_all(got(RECORDS:1:-1), view=column, subfile=rank)
    if (any(got(RECORDS:1:-1) /= numbers())) error stop "what all have read differs"
    if (rank == 0) then
      call file%read_all(got, view=column, subfile=ranks - 1, offset=16_int64, moved=moved)
      if (moved /= 8 * (RECORDS - 2)) error stop "the bytes of a short read"
      if (any(got(:RECORDS - 2) /= (ranks - 1) * 1000 + [(code, code=2, RECORDS - 1)])) &
          error stop "what was read from an offset differs"
    else
      call file%read_all(none)
    end if
    call file%sync()
    call file%detach()
  end subroutine

  function numbers()
    integer(int64) :: numbers(RECORDS)
    integer :: i

    numbers = rank * 1000_int64 + [(i, i=0, RECORDS - 1)]
  end function

  ! Each rank by itself: the pointer, offsets, requests, orders, a checkpoint and the way back.
  subroutine alone()
    type(penstock_subfile) :: mine, whole, before
    type(penstock_request) :: request, second
    integer(int64) :: moved, position
    integer(int64), asynchronous :: got(RECORDS), changed(2)

    call file%attach(fs, "/some/file", "r+")
    call mine%open(file, view=column, subfile=rank)
    call mine%read(got(:4), moved)
    if (moved /= 32 .or. any(got(:4) /= rank * 1000 + [0, 1, 2, 3])) error stop "the first four"
    call mine%seek(8_int64, PENSTOCK_SEEK_CUR, position)
    if (position /= 40) error stop "the pointer"
    call mine%read(got)
    if (any(got(:7) /= rank * 1000 + [5, 6, 7, 8, 9, 10, 11])) error stop "behind the pointer"
    call mine%read_at(8_int64, got(1:9:4))
    if (any(got(1:9:4) /= rank * 1000 + [1, 2, 3])) error stop "at an offset"
    call mine%begin_read_at(0_int64, got, request)
    call request%wait(moved)
    if (moved /= 8 * RECORDS .or. any(got /= numbers())) error stop "a request"
    call mine%begin_read_at(0_int64, got(::2), second, ierr=code)
    if (code /= PENSTOCK_ERR_SCHEMA) error stop "a request to a section that is not contiguous"
    call MPI_Barrier(MPI_COMM_WORLD)
    if (rank == 0) call file%checkpoint()
    call MPI_Barrier(MPI_COMM_WORLD)
    changed = -rank
    call mine%begin_write_at(8_int64, changed, request)
    do while (.not. request%has_ended())
    end do
    call request%wait()
    call mine%write_at(8_int64 * RECORDS, changed(:1))
    call mine%sync()
    call mine%read_at(0_int64, got(:3))
    if (any(got(:3) /= [1000 * rank, -rank, -rank])) error stop "what was changed"
    call before%open(file, view=column, subfile=rank, of_checkpoint=.true.)
    call before%read(got)
    if (any(got /= numbers())) error stop "the checkpoint has changed"
    call before%free()
    call MPI_Barrier(MPI_COMM_WORLD)
    if (rank == 0) call file%rollback()
    call MPI_Barrier(MPI_COMM_WORLD)
    call mine%read_at(0_int64, got)
    if (any(got /= numbers())) error stop "the way back"
    ! The whole file, its columns one after the other.
    call whole%open(file, view=penstock_view(RECORDS, 1, ranks, 1), order=PENSTOCK_COLUMN_ORDER)
    call whole%prefetch(0_int64, 8_int64 * RECORDS)
    call whole%read_at(8_int64 * RECORDS * rank, got)
    if (any(got /= numbers())) error stop "column order"
    call whole%free()
    if (index(mine%explain(.false., 0_int64, 8_int64 * RECORDS), "server") == 0) &
        error stop "the explanation"
    call mine%flush(0_int64, 8_int64 * RECORDS)
    call mine%free()
    call file%detach()
  end subroutine

  ! All ranks move one pointer: each record is read once.
  subroutine shared_pointer()
    type(penstock_subfile) :: shared
    type(penstock_pointer) :: pointer
    integer(int64) :: record, moved, sum, total

    call file%attach(fs, "/some/file", "r")
    if (rank == 0) then
      call shared%open(file)
      call shared%share(pointer)
    end if
    call MPI_Bcast(pointer%server, 1, MPI_INTEGER8, 0, MPI_COMM_WORLD)
    call MPI_Bcast(pointer%number, 1, MPI_INTEGER8, 0, MPI_COMM_WORLD)
    if (rank /= 0) call shared%open(file, pointer=pointer)
    sum = 0
    do
      call shared%read(record, moved)
      if (moved == 0) exit
      sum = sum + record
    end do
    call MPI_Allreduce(sum, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD)
    if (total /= ranks * RECORDS * (RECORDS - 1) / 2 + 1000 * RECORDS * ranks * (ranks - 1) / 2) &
        error stop "the records that all have read"
    call MPI_Barrier(MPI_COMM_WORLD)
    call shared%free()
    call file%detach()
  end subroutine

  subroutine transfers()
    integer(int64) :: bytes

    call fs%export_all("/some/file", trim(directory) // "/all", bytes=bytes)
    if (rank == 0 .and. bytes <= 0) error stop "the bytes of an export"
    if (rank == 0) then
      call fs%export("/some/file", trim(directory) // "/last", view=column, subfile=ranks - 1)
      call fs%import(trim(directory) // "/last", "/imported", cells=3, bsu_bytes=16, bytes=bytes)
      if (bytes /= 8 * RECORDS) error stop "the bytes of an import"
      call fs%export("/imported", trim(directory) // "/again", overwrite=.true.)
    end if
    call fs%import_all(trim(directory) // "/all", "/imported-all", cells=2, bsu_bytes=8)
    if (index(fs%status("/some/file"), "[") == 0) error stop "the status of a file"
  end subroutine

  ! The last rank does something wrong in calls that all make.
  subroutine wrong()
    integer(int64) :: memory(2)
    integer :: number

    call file%attach_all(fs, trim(merge("/not      ", "/some/file", rank == ranks - 1)), "r+", &
        ierr=code)
    if (code == PENSTOCK_OK) error stop "one rank has attached what is not there"
    call file%attach_all(fs, "/some/file", "r+")
    number = merge(ranks + 5, rank, rank == ranks - 1)
    call file%read_all(memory, view=column, subfile=number, ierr=code)
    if (code /= PENSTOCK_ERR_SCHEMA) error stop "a subfile that is not there was read"
    print "(2a)", "wrong ", penstock_error_text()
    call file%read_all(memory, view=column, subfile=rank)
    if (any(memory /= rank * 1000 + [0, 1])) error stop "a good call goes wrong"
    call file%detach()
  end subroutine
end program
