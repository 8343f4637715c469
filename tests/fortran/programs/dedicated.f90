! Some ranks do nothing but serve: they come back when the others have closed the session.
!
!     dedicated STORE SERVERS
program dedicated
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  type(penstock_session) :: session
  type(penstock_array) :: u
  type(penstock_report) :: report
  character(1000) :: store
  character(10) :: word
  integer(c_int64_t), allocatable :: values(:)
  integer :: servers, clients, one

  call get_command_argument(1, store)
  call get_command_argument(2, word)
  read (word, *) servers
  call MPI_Init()
  call session%open(MPI_COMM_WORLD, servers=servers, dedicated=.true., sync=.false.)
  one = 0
  if (session%is_client()) then
    one = 1
    if (session%rank() < 0) error stop "a client without a rank"
    call u%create("u", [37], "i8")
    call u%distribute("CYCLIC", mesh=[session%size()])
    associate (shape => u%local_shape(session%rank()))
      allocate (values(shape(1)), source=int(session%rank(), c_int64_t))
    end associate
    call session%write(store, u, values, report=report)
    if (report%servers /= servers) error stop "the servers of the report"
  else
    if (session%rank() /= -1) error stop "a dedicated server has a rank"
  end if
  call session%close()
  call MPI_Reduce(one, clients, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  call MPI_Comm_rank(MPI_COMM_WORLD, one)
  if (one == 0) print "(i0)", clients
  call MPI_Finalize()
end program
