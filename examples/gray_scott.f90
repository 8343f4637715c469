! The Gray-Scott model in Fortran: a simulation that saves timesteps and checkpoints, may be stopped
! at any moment, and goes on with any number of ranks.
!
!     mpiexec -n 8 ./gray_scott STORE SIZE EVERY UNTIL
!
! Two chemicals, U and V, diffuse through a periodic cube of SIZE cells along each edge and react.
! The program goes on from the newest checkpoint in STORE, or begins where there is none, and
! computes up to step UNTIL. Every EVERY steps all ranks hand U and V to Penstock in one collective
! call, straight from arrays with ghost cells, and the Zarr store grows by a timestep; with each, a
! checkpoint is saved. Whatever the ranks, and wherever it was stopped, every bit is the same.
!
! gray_scott.py is the same model in Python.
program gray_scott
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use mpi_f08
  use penstock
  implicit none

  ! The model, in units of one cell and one step.
  real(real32), parameter :: DIFFUSION_U = 0.12, DIFFUSION_V = 0.06, FEED = 0.037, KILL = 0.06
  integer, parameter :: CHUNK = 32, BALLS = 6
  real, parameter :: BALL_RADIUS = 4.5

  character(1000) :: store
  integer :: edge, every, until
  integer :: mesh(3), ranks, step
  integer :: first(3), extent(3)                   ! of this rank's block, without ghost cells
  type(MPI_Comm) :: cart
  type(MPI_Datatype) :: faces(4, 3)                ! for each dimension; see make_faces
  type(penstock_session) :: session
  type(penstock_group) :: group
  type(penstock_locals) :: fields
  real(real32), allocatable, target, asynchronous :: u(:, :, :), v(:, :, :)

  call read_options()
  call MPI_Init()
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  ! MPI counts ranks with the last dimension fastest, Penstock for Fortran with the first: the mesh
  ! of MPI has the dimensions the other way round.
  mesh = 0
  call MPI_Dims_create(ranks, 3, mesh)
  call MPI_Cart_create(MPI_COMM_WORLD, 3, [mesh(3), mesh(2), mesh(1)], [.true., .true., .true.], &
      .false., cart)
  call session%open(cart)
  call describe()
  call make_faces()
  call restart_or_seed()
  do while (step < until)
    call advance()
    step = step + 1
    if (mod(step, every) == 0) then
      call session%timestep(group, fields, time=real(step, real64))
      call session%checkpoint(group, fields, step=step)
    end if
  end do
  call report()
  call free_faces()
  call session%close()
  call MPI_Comm_free(cart)
  call MPI_Finalize()

contains

  subroutine read_options()
    if (command_argument_count() /= 4) error stop "usage: gray_scott STORE SIZE EVERY UNTIL"
    call get_command_argument(1, store)
    edge = number(2)
    every = number(3)
    until = number(4)
    if (edge < 1 .or. every < 1) error stop "SIZE and EVERY must be at least 1"
  end subroutine

  integer function number(argument)
    integer, intent(in) :: argument
    character(20) :: word
    integer :: status

    call get_command_argument(argument, word)
    read (word, *, iostat=status) number
    if (status /= 0) error stop "SIZE, EVERY and UNTIL must be numbers"
  end function

  ! What the arrays are, how they lie in memory, and how on disk.
  subroutine describe()
    type(penstock_array) :: array
    character(1), parameter :: names(2) = ["U", "V"], axes(3) = ["x", "y", "z"]
    integer :: i, cell

    call group%create("Gray-Scott", store)
    do i = 1, 2
      call array%create(names(i), shape=[edge, edge, edge], dtype="f4")
      call array%distribute("BLOCK,BLOCK,BLOCK", mesh=mesh, halo=1)
      call array%set_chunks([CHUNK, CHUNK, CHUNK], codec="zstd:1")
      call array%set_dimension_names(axes)
      call array%set_attributes('{"units": "1", "long_name": "concentration of ' // names(i) // &
          '"}')
      call group%add(array)
    end do
    do i = 1, 3
      call group%add_coordinate(axes(i), [axes(i)], [(middle(cell), cell=1, edge)], &
          attributes='{"units": "cell"}')
    end do
    call group%set_attributes('{"title": "Gray-Scott, spots and worms"}')
    call group%set_time_attributes('{"long_name": "step"}')

    first = int(array%local_start(session%rank()))
    extent = int(array%local_shape(session%rank())) - 2
    if (any(extent < 1)) error stop "there are more ranks than the cube has layers for"
    allocate (u(0:extent(1) + 1, 0:extent(2) + 1, 0:extent(3) + 1), source=0.0_real32)
    allocate (v, source=u)
    call fields%add("U", u)
    call fields%add("V", v)
  end subroutine

  ! Where the middle of a cell is.
  real(real64) function middle(cell)
    integer, intent(in) :: cell

    middle = cell - 0.5_real64
  end function

  ! Reads the newest checkpoint, whatever ranks have saved it, or begins: everything is U, but for
  ! little balls of V, at the same places for any number of ranks.
  subroutine restart_or_seed()
    type(penstock_checkpoint_state) :: state
    integer(int64) :: random
    integer :: centre(3), ball, dim, i, j, k

    call session%find_checkpoint(group, state)
    if (state%is_there()) then
      call session%restart(group, state, fields)
      step = state%step()
      return
    end if
    step = 0
    u = 1
    v = 0
    random = 1
    do ball = 1, BALLS
      do dim = 1, 3
        random = mod(random * 48271_int64, 2147483647_int64)
        centre(dim) = 1 + int(mod(random, int(edge, int64)))
      end do
      do k = 1, extent(3)
        do j = 1, extent(2)
          do i = 1, extent(1)
            if (distance([i, j, k], centre) > BALL_RADIUS) cycle
            u(i, j, k) = 0.5
            v(i, j, k) = 0.25
          end do
        end do
      end do
    end do
  end subroutine

  ! From a cell of this rank's block to a cell of the cube, which is periodic.
  real function distance(cell, centre)
    integer, intent(in) :: cell(3), centre(3)
    integer :: apart(3)

    apart = abs(first + cell - 1 - centre)
    apart = min(apart, edge - apart)
    distance = sqrt(real(sum(apart**2)))
  end function

  ! One step. Each cell is the same operations in the same order, whoever computes it.
  subroutine advance()
    real(real32), allocatable :: new_u(:, :, :), new_v(:, :, :)
    real(real32) :: reaction
    integer :: i, j, k

    call exchange()
    allocate (new_u(extent(1), extent(2), extent(3)), new_v(extent(1), extent(2), extent(3)))
    do k = 1, extent(3)
      do j = 1, extent(2)
        do i = 1, extent(1)
          reaction = u(i, j, k) * v(i, j, k) * v(i, j, k)
          new_u(i, j, k) = u(i, j, k) + (DIFFUSION_U * laplacian(u, i, j, k) - reaction &
              + FEED * (1 - u(i, j, k)))
          new_v(i, j, k) = v(i, j, k) + (DIFFUSION_V * laplacian(v, i, j, k) + reaction &
              - (FEED + KILL) * v(i, j, k))
        end do
      end do
    end do
    u(1:extent(1), 1:extent(2), 1:extent(3)) = new_u
    v(1:extent(1), 1:extent(2), 1:extent(3)) = new_v
  end subroutine

  ! The sum of the six neighbours less six times the cell itself.
  pure real(real32) function laplacian(a, i, j, k)
    real(real32), intent(in) :: a(0:, 0:, 0:)
    integer, intent(in) :: i, j, k

    laplacian = a(i - 1, j, k) + a(i + 1, j, k) + a(i, j - 1, k) + a(i, j + 1, k) &
        + a(i, j, k - 1) + a(i, j, k + 1) - 6 * a(i, j, k)
  end function

  ! Datatypes for the layers of a block: that below and that above, which are sent, and the ghost
  ! cells below and above, which are received.
  subroutine make_faces()
    integer :: dim, which, starts(3), extents(3), place(4)

    do dim = 1, 3
      place = [1, extent(dim), 0, extent(dim) + 1]
      do which = 1, 4
        starts = 1
        starts(dim) = place(which)
        extents = extent
        extents(dim) = 1
        call MPI_Type_create_subarray(3, extent + 2, extents, starts, MPI_ORDER_FORTRAN, &
            MPI_REAL4, faces(which, dim))
        call MPI_Type_commit(faces(which, dim))
      end do
    end do
  end subroutine

  subroutine free_faces()
    integer :: dim, which

    do dim = 1, 3
      do which = 1, 4
        call MPI_Type_free(faces(which, dim))
      end do
    end do
  end subroutine

  ! Fills the ghost cells from the six neighbours, all at once.
  subroutine exchange()
    type(MPI_Request) :: requests(24)
    integer :: dim, below, above, at

    at = 0
    do dim = 1, 3
      call MPI_Cart_shift(cart, 3 - dim, 1, below, above)
      call exchange_face(u, dim, below, above, 4 * dim, requests, at)
      call exchange_face(v, dim, below, above, 4 * dim + 2, requests, at)
    end do
    call MPI_Waitall(at, requests, MPI_STATUSES_IGNORE)
  end subroutine

  subroutine exchange_face(field, dim, below, above, tag, requests, at)
    real(real32), intent(inout), asynchronous :: field(0:, 0:, 0:)
    integer, intent(in) :: dim, below, above, tag
    type(MPI_Request), intent(inout) :: requests(:)
    integer, intent(inout) :: at

    call MPI_Irecv(field, 1, faces(3, dim), below, tag, cart, requests(at + 1))
    call MPI_Irecv(field, 1, faces(4, dim), above, tag + 1, cart, requests(at + 2))
    call MPI_Isend(field, 1, faces(2, dim), above, tag, cart, requests(at + 3))
    call MPI_Isend(field, 1, faces(1, dim), below, tag + 1, cart, requests(at + 4))
    at = at + 4
  end subroutine

  ! Prints a sum over all ranks that depends on every bit and its place, not on the ranks.
  subroutine report()
    integer(int64) :: sums(2)

    sums = [checksum(u), checksum(v)]
    call MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INTEGER8, MPI_SUM, cart)
    if (session%rank() /= 0) return
    print "(3(a, i0))", "step ", step, ": U ", sums(1), ", V ", sums(2)
    print "(3(a, i0))", "ranks: ", mesh(1), " x ", mesh(2), " x ", mesh(3)
  end subroutine

  integer(int64) function checksum(field)
    real(real32), intent(in) :: field(0:, 0:, 0:)
    integer(int64), parameter :: PRIME = 2147483647
    integer(int64) :: bits, place
    integer :: i, j, k

    checksum = 0
    do k = 1, extent(3)
      do j = 1, extent(2)
        do i = 1, extent(1)
          place = first(1) + i + int(edge, int64) * (first(2) + j + int(edge, int64) * (first(3) &
              + k))
          bits = iand(int(transfer(field(i, j, k), 1_int32), int64), int(z'FFFFFFFF', int64))
          checksum = checksum + mod(bits * mod(place * 48271, PRIME), PRIME)
        end do
      end do
    end do
  end function
end program
