! A group of two arrays and one of particles, through time: timesteps, checkpoints, and a restart on
! any number of ranks. The values of each moment follow from it.
!
!     through_time STORE FIRST LAST KEEPS
!
! Runs the steps FIRST to LAST; where FIRST is greater than 1 it restarts from the newest
! checkpoint, which must be of FIRST - 1. With KEEPS "split" it begins its calls and ends them
! later.
program through_time
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use penstock
  implicit none
  integer, parameter :: int64 = c_int64_t
  integer, parameter :: NX = 6, NY = 4
  type(penstock_session) :: session
  type(penstock_group) :: group
  type(penstock_array) :: u, flags, particles
  type(penstock_locals) :: locals
  character(1000) :: store, word
  real(c_double), allocatable, target, asynchronous :: temperature(:, :), places(:, :)
  logical(c_bool), allocatable, target, asynchronous :: marks(:)
  integer(int64), allocatable :: start(:)
  integer :: first, last, step, rank, ranks
  logical :: splits

  call get_command_argument(1, store)
  call get_command_argument(2, word)
  read (word, *) first
  call get_command_argument(3, word)
  read (word, *) last
  call get_command_argument(4, word)
  splits = word == "split"
  call MPI_Init()
  call session%open(MPI_COMM_WORLD, servers=2)
  rank = session%rank()
  ranks = session%size()
  call set_up()
  if (first > 1) then
    call restart()
  else
    call look_for_none()
  end if
  do step = first, last
    call fill(step)
    call save(step)
  end do
  call session%close()
  call MPI_Finalize()

contains

  subroutine set_up()
    call u%create("u", [NX, NY], "f8")
    call u%distribute("BLOCK,*", mesh=[ranks], halo=[1, 0])
    call u%set_chunks([3, 4])
    call u%set_dimension_names([character(2) :: "x", "y"])
    call u%set_attributes('{"units": "K"}')
    call flags%create("flags", [NY], "bool")
    call flags%set_dimension_names(["y"])
    call particles%create("particles", [3_int64, PENSTOCK_ROWS], "f8")
    call particles%set_chunks([3, 5])
    call group%create("Sim", store)
    call group%add(u)
    call group%add(flags)
    call group%add(particles)
    call group%set_keep(2)
    call group%set_attributes('{"title": "a group from Fortran"}')
    call group%set_time_attributes('{"long_name": "step"}')
    call group%add_coordinate("x", ["x"], [0.5d0, 1.5d0, 2.5d0, 3.5d0, 4.5d0, 5.5d0], &
        attributes='{"units": "m"}')
    call group%add_coordinate("area", ["x", "y"], reshape([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, &
        13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24], [NX, NY]), dtype="u4")
    call group%add_labels("side", ["y"], [character(5) :: "south", "", "mid", "north"])
    start = u%local_start(rank)
    associate (shape => u%local_shape(rank))
      allocate (temperature(shape(1), shape(2)), source=-1d0)
    end associate
    allocate (marks(merge(NY, 0, rank == 0)))
  end subroutine

  ! The particles of all ranks together, at this step.
  integer function particle_count(step)
    integer, intent(in) :: step

    particle_count = 4 + 3 * step
  end function

  subroutine fill(step)
    integer, intent(in) :: step
    integer :: i, j, own, before

    do j = 1, NY
      do i = 2, size(temperature, 1) - 1
        temperature(i, j) = 1000 * step + start(1) + i - 2 + 100 * j
      end do
    end do
    marks = [(mod(step + j, 2) == 0, j=1, size(marks))]
    ! Rank 0 has none of them, unless it is alone; the others have some, the last one the rest.
    before = 0
    own = particle_count(step)
    if (ranks > 1) then
      before = max(0, rank - 1)
      own = 1
      if (rank == 0) own = 0
      if (rank == ranks - 1) own = particle_count(step) - before
    end if
    if (allocated(places)) deallocate (places)
    allocate (places(3, own))
    do j = 1, own
      places(:, j) = [real(c_double) :: step, before + j, 0.5d0 * (before + j)]
    end do
  end subroutine

  subroutine gather()
    call locals%clear()
    call locals%add("particles", places)
    call locals%add("u", temperature)
    call locals%add("flags", marks)
  end subroutine

  subroutine save(step)
    integer, intent(in) :: step
    type(penstock_split) :: one, other
    type(penstock_report) :: report
    integer(int64) :: bytes

    call gather()
    if (splits) then
      call session%begin_timestep(group, locals, one, time=0.25d0 * step, background="disk")
      call one%end(report)
      call session%begin_checkpoint(group, locals, other, step=step, &
          attributes='{"colour": "blue"}')
      do while (.not. other%has_ended())
      end do
      call other%end()
    else
      call session%timestep(group, locals, time=0.25d0 * step, report=report)
      call session%checkpoint(group, locals, step=step, attributes='{"colour": "blue"}')
    end if
    bytes = 8 * NX * NY + NY + 8 * size(places)
    if (report%bytes /= bytes) error stop "the bytes of a timestep"
  end subroutine

  subroutine look_for_none()
    type(penstock_checkpoint_state) :: state

    call session%find_checkpoint(group, state)
    if (state%is_there()) error stop "there is a checkpoint before the first"
  end subroutine

  subroutine restart()
    type(penstock_checkpoint_state) :: state
    type(penstock_array) :: rows
    integer(int64), allocatable :: shape(:)
    real(c_double), allocatable :: was(:, :)
    integer :: j

    call session%find_checkpoint(group, state)
    if (.not. state%is_there()) error stop "there is no checkpoint"
    if (state%step() /= first - 1) error stop "the checkpoint is of another step"
    if (state%timesteps() /= first - 1) error stop "the number of timesteps"
    if (index(state%attributes(), "blue") == 0) error stop "the attributes of a checkpoint"
    if (state%time() /= 0.25d0 * (first - 1)) error stop "the time of the last timestep"
    call session%checkpoint_array(group, state, "particles", rows)
    shape = rows%shape()
    if (any(shape /= [3, particle_count(first - 1)])) error stop "the number of particles"
    shape = rows%local_shape(rank)
    allocate (places(shape(1), shape(2)), source=0d0)
    call gather()
    call session%restart(group, state, locals)
    associate (from => rows%local_start(rank))
      do j = 1, size(places, 2)
        if (any(places(:, j) /= [real(c_double) :: first - 1, from(2) + j - 1, &
            0.5d0 * (from(2) + j - 1)])) error stop "a particle differs"
      end do
    end associate
    was = temperature
    call fill(first - 1)
    if (any(was(2:size(was, 1) - 1, :) /= temperature(2:size(was, 1) - 1, :))) &
        error stop "a value of u differs"
    if (any(was([1, size(was, 1)], :) /= -1)) error stop "the halo was changed"
    do j = 1, size(marks)
      if (marks(j) .neqv. mod(first - 1 + j, 2) == 0) error stop "a flag differs"
    end do
  end subroutine
end program
