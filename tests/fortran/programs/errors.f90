! Errors: for each case the last rank, or all, do something wrong, and all ranks must get the same
! error from the same call and be able to go on. Each rank prints "case code text" for each case.
!
!     errors STORE          all cases, with ierr
!     errors STORE CASE     one case, without ierr, which stops the program
program errors
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  character(12), parameter :: NAMES(16) = [character(12) :: "dtype", "rank", "shape", "boxes", &
      "records", "mesh", "strategy", "missing", "no-array", "begin", "timestep", "name", "restart", &
      "read-all", "codec", "attributes"]
  type(penstock_session) :: session
  character(1000) :: store
  character(12) :: only
  integer :: i, rank, ranks
  logical :: odd

  call get_command_argument(1, store)
  call get_command_argument(2, only)
  call MPI_Init()
  call session%open(MPI_COMM_WORLD)
  rank = session%rank()
  ranks = session%size()
  odd = rank == ranks - 1
  do i = 1, size(NAMES)
    if (only /= "" .and. only /= NAMES(i)) cycle
    if (only /= "") then
      call try(NAMES(i))
      print "(a)", "the program went on"
    else
      call tried(NAMES(i))
    end if
  end do
  call local_errors()
  call good()
  call session%close()
  call MPI_Finalize()

contains

  subroutine tried(name)
    character(*), intent(in) :: name
    type(penstock_error) :: error
    integer :: code

    code = -1
    call try(name, code)
    if (code == PENSTOCK_OK) then
      print "(2a)", trim(name), " 0 Ok"
      return
    end if
    error = penstock_last_error()
    if (error%code /= code) error stop "the code of the last error is another one"
    if (error%text /= penstock_error_text()) error stop "the texts of the last error differ"
    print "(a, 1x, i0, 1x, a, 1x, a)", trim(name), code, penstock_code_name(code), error%text
  end subroutine

  ! An array that all have right, but for what a case makes wrong on the odd rank.
  subroutine make(u)
    type(penstock_array), intent(inout) :: u

    call u%create("u", [4 * ranks, 3], "f8")
    call u%distribute("BLOCK,*", mesh=[ranks])
  end subroutine

  subroutine try(name, ierr)
    character(*), intent(in) :: name
    integer, intent(out), optional :: ierr
    type(penstock_array) :: u, nothing
    type(penstock_group) :: group
    type(penstock_locals) :: locals
    type(penstock_split) :: split
    type(penstock_open_array) :: open
    type(penstock_checkpoint_state) :: state
    real(c_double), target, asynchronous :: right(4, 3), short(4, 2)
    real(c_float), target, asynchronous :: wrong(4, 3)
    integer :: code

    right = 1
    short = 1
    wrong = 1
    call make(u)
    select case (name)
    case ("dtype")
      if (odd) then
        call session%write(store, u, wrong, ierr=ierr)
      else
        call session%write(store, u, right, ierr=ierr)
      end if
    case ("rank")
      if (odd) then
        call session%write(store, u, right(:, 1), ierr=ierr)
      else
        call session%write(store, u, right, ierr=ierr)
      end if
    case ("shape")
      if (odd) then
        call session%read(store, u, short, ierr=ierr)
      else
        call session%read(store, u, right, ierr=ierr)
      end if
    case ("records")
      call u%create("u", [4 * ranks, 3], "[('x', 'f4'), ('y', 'f4')]")
      call u%distribute("BLOCK,*", mesh=[ranks])
      call session%write(store, u, right, ierr=ierr)
    case ("boxes")
      call u%set_boxes(reshape([1, 1], [2, 1]), reshape([4, 3], [2, 1]))
      call session%write(store, u, right, ierr=ierr)
    case ("mesh")
      call u%distribute("BLOCK,*", mesh=[ranks + 1])
      call session%write(store, u, right, ierr=ierr)
    case ("strategy")
      call session%write(store, u, right, strategy=trim(merge("guessing     ", "disk-directed", &
          odd)), ierr=ierr)
    case ("missing")
      call session%read(trim(store) // ".is-not-there", u, right, ierr=ierr)
    case ("no-array")
      if (odd) then
        call session%write(store, nothing, right, ierr=ierr)
      else
        call session%write(store, u, right, ierr=ierr)
      end if
    case ("begin")
      if (odd) then
        call session%begin_write(store, u, wrong, split, ierr=code)
      else
        call session%begin_write(store, u, right, split, ierr=code)
      end if
      ! Where it has begun on this rank, its end tells.
      if (code == PENSTOCK_OK) then
        call split%end(ierr=ierr)
      else if (present(ierr)) then
        ierr = code
      else
        error stop penstock_error_text()
      end if
    case ("timestep", "name", "restart")
      call group%create("G", trim(store) // ".group")
      call group%add(u)
      if (name == "name") then
        call locals%add(merge("v", "u", odd), right)
      else if (odd) then
        call locals%add("u", wrong)
      else
        call locals%add("u", right)
      end if
      if (name == "restart") then
        call session%restart(group, state, locals, ierr=ierr)
      else
        call session%timestep(group, locals, ierr=ierr)
      end if
    case ("read-all")
      call session%write(trim(store) // ".open", u, right)
      call open%open(session, trim(store) // ".open")
      if (odd) then
        call open%read_all(u, wrong, ierr=code)
      else
        call open%read_all(u, right, ierr=code)
      end if
      if (.not. present(ierr)) error stop penstock_error_text()
      ierr = code
      ! Closing it must not hide the error.
      call open%close()
    case ("codec")
      call u%set_chunks([2, 2], codec="squeeze")
      call session%write(store, u, right, ierr=ierr)
    case ("attributes")
      call session%write(store, u, right, attributes=trim(merge("no JSON", '{"a":1}', odd)), &
          ierr=ierr)
    case default
      error stop "there is no such case"
    end select
  end subroutine

  ! What one rank does wrong in calls that it makes alone.
  subroutine local_errors()
    type(penstock_array) :: u
    type(penstock_list) :: list
    type(penstock_session) :: no_session
    integer :: code

    call u%create("u", [4, 3], "f7", ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a dtype")
    call u%create("u", [4, 3], "f8")
    call u%distribute("BLOCK,*", mesh=[1], halo=[1, 2, 3], ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a halo")
    call u%set_chunks([2], ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a chunk")
    call u%set_dimension_names(["x"], ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "names")
    call u%set_attributes("{", ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "JSON")
    call u%set_fill(1, ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a fill value")
    call list%runs([1, 2], [1], ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a list")
    call no_session%open("no communicator", ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a communicator")
    call no_session%barrier(ierr=code)
    call expect(code, PENSTOCK_ERR_SCHEMA, "a session that is not open")
    if (no_session%rank() >= 0) error stop "a session that is not open has a rank"
    call no_session%close(ierr=code)
    call expect(code, PENSTOCK_OK, "closing what is not open")
  end subroutine

  subroutine expect(code, wanted, what)
    integer, intent(in) :: code, wanted
    character(*), intent(in) :: what

    if (code == wanted) return
    print "(3a, i0, 1x, a)", "the code of ", what, " is ", code, penstock_error_text()
    error stop "another error than there should be"
  end subroutine

  ! The session is as good as new.
  subroutine good()
    type(penstock_array) :: u
    real(c_double) :: right(4, 3)

    call make(u)
    right = rank
    call session%write(store, u, right)
    right = -1
    call session%read(store, u, right)
    if (any(right /= rank)) error stop "a good call goes wrong"
    print "(a)", "good"
  end subroutine
end program
