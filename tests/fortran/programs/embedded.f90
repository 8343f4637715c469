! A session of this process alone, without MPI, and one whose ranks are threads; copies and checks.
!
!     embedded STORE
! Who is told of the progress of copies.
module listeners
  use, intrinsic :: iso_c_binding, only: int64 => c_int64_t
  implicit none
  integer :: told = 0

contains

  logical function tell(done, all)
    integer(int64), intent(in) :: done, all

    if (done > all) error stop "more is done than there is"
    told = told + 1
    tell = .false.
  end function

  logical function stop_it(done, all)
    integer(int64), intent(in) :: done, all

    stop_it = done <= all
  end function
end module

program embedded
  use, intrinsic :: iso_c_binding
  use listeners
  use penstock
  implicit none
  character(1000) :: store

  call get_command_argument(1, store)
  if (penstock_version() == "") error stop "there is no version"
  call alone()
  call look()
  call threads()

contains

  subroutine alone()
    type(penstock_session) :: session
    type(penstock_array) :: u, other
    type(penstock_report) :: report
    real(c_float) :: values(3, 4, 5), got(3, 4, 5), scalar
    character(:), allocatable :: text
    integer :: i

    call session%open(servers=3, sync=.false., strategy="two-phase", block_bytes=4096_int64)
    if (session%rank() /= 0) error stop "the only rank"
    if (session%size() /= 1) error stop "the number of ranks"
    if (session%servers() /= 3) error stop "the number of servers"
    if (.not. session%is_client()) error stop "the only rank is no client"
    call u%create("u", shape=[3, 4, 5], dtype="f4")
    call u%set_chunks([2, 2, 2])
    call u%set_dimension_names([character(5) :: "x", "y", "depth"])
    call u%set_attributes('{"units": "m"}')
    call u%set_fill(2.5)
    if (u%name() /= "u") error stop "the name"
    if (u%dtype() /= "f4") error stop "the dtype"
    if (u%element_bytes() /= 4) error stop "the bytes of an element"
    if (any(u%shape() /= [3, 4, 5])) error stop "the shape"
    if (index(u%attributes(), "units") == 0) error stop "the attributes"
    if (index(u%disk(), "2, 2, 2") == 0) error stop "the disk schema"
    other = u
    call other%set_chunks([3, 4, 5])
    if (index(u%disk(), "2, 2, 2") == 0) error stop "a copy has changed the array"
    if (index(other%disk(), "5, 4, 3") == 0) error stop "a copy has not been changed"
    values = reshape([(real(i), i=1, 60)], [3, 4, 5])
    text = session%explain(store, u)
    if (index(text, "two-phase write of 240 bytes") == 0) error stop text
    text = session%explain(store, u, is_write=.false., strategy="disk-directed", ierr=i)
    if (i /= PENSTOCK_ERR_MISSING) error stop "what is not there yet was explained"
    call session%write(store, u, values, attributes='{"more": 1}', report=report)
    if (report%bytes /= 240) error stop "the bytes of the report"
    if (report%servers /= 3) error stop "the servers of the report"
    call session%find(store, other, name="u")
    if (any(other%shape() /= [3, 4, 5])) error stop "the shape that was found"
    call session%read(store, other, got(3:1:-1, :, :), strategy="disk-directed")
    if (any(got(3:1:-1, :, :) /= values)) error stop "what was read differs"
    ! An array of one element, and one of none.
    call u%create("one", [1], "f4")
    scalar = 8
    call session%write(store, u, [scalar])
    call session%barrier()
    call session%close()
    call session%close()
  end subroutine

  subroutine look()
    integer(int64) :: damages
    character(:), allocatable :: text
    type(penstock_copy_report) :: report
    integer :: code

    call penstock_verify(store, damages, text)
    if (damages /= 0 .or. text == "") error stop "the store is damaged"
    if (index(penstock_describe(store), '"one"') == 0) error stop "the description"
    call penstock_copy(store, trim(store) // ".copy", arrays="u", chunks="3,2,1", codec="zstd:1", &
        ranks=2, progress=tell, report=report)
    if (report%bytes /= 240) error stop "the bytes of the copy"
    if (told == 0) error stop "nobody was told of the progress"
    call penstock_copy(store, trim(store) // ".named", arrays="u", chunks="x=1,depth=5")
    call penstock_copy(store, trim(store) // ".copy", arrays="u", ierr=code)
    if (code /= PENSTOCK_ERR_SCHEMA) error stop "a copy has replaced another"
    call penstock_copy(store, trim(store) // ".copy", arrays="u", chunks="3,2,1", overwrite=.true.)
    call penstock_copy(store, trim(store) // ".ended", arrays="u", progress=stop_it, ierr=code)
    if (code == PENSTOCK_OK) error stop "a copy was not ended"
    text = penstock_repair(trim(store) // ".not", ierr=code)
    if (code == PENSTOCK_OK) error stop "what is not there was mended"
    call penstock_verify(trim(store) // ".not", damages, ierr=code)
    if (code /= PENSTOCK_ERR_MISSING) error stop "what is not there was verified"
  end subroutine

  ! Four threads share servers.
  subroutine threads()
    integer, parameter :: RANKS = 4
    type(penstock_seat) :: seats(RANKS)
    integer :: i

    call penstock_seats_create(seats, servers=2)
    !$omp parallel do num_threads(RANKS) schedule(static, 1)
    do i = 1, RANKS
      call one_thread(seats(i))
    end do
    !$omp end parallel do
  end subroutine

  subroutine one_thread(seat)
    type(penstock_seat), intent(inout) :: seat
    type(penstock_session) :: session
    type(penstock_array) :: t
    integer(int64), allocatable :: values(:)
    integer :: i, code

    call seat%open(session)
    call t%create("t", [10], "i8")
    call t%distribute("BLOCK", mesh=[session%size()])
    associate (shape => t%local_shape(session%rank()), start => t%local_start(session%rank()))
      values = [(start(1) + i - 1, i=1, int(shape(1)))]
    end associate
    call session%write(store, t, values)
    ! One rank of an error on all.
    if (session%rank() == 2) then
      call session%write(store, t, [1.5], ierr=code)
    else
      call session%write(store, t, values, ierr=code)
    end if
    if (code /= PENSTOCK_ERR_SCHEMA) error stop "an error of a thread"
    if (index(penstock_error_text(), "i8") == 0) error stop "the text of an error of a thread"
    call session%close()
  end subroutine
end program
