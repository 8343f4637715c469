!> Sessions and their collective calls, split calls, arrays that stay open, and groups.
module penstock_sessions
  use penstock_schemas
  use penstock_base
  implicit none
  private
  public :: penstock_session, penstock_seat, penstock_seats_create, penstock_split
  public :: penstock_open_array, penstock_group, penstock_checkpoint_state
  public :: communicator

  !> Some ranks and the servers that they share. Ranks count from 0, as in MPI. A session is used by
  !> the thread that opened it, and closed by a call: no finalizer does it, for all ranks must.
  type :: penstock_session
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => session_open
    procedure :: rank => session_rank
    procedure :: size => session_size
    procedure :: servers => session_servers
    procedure :: is_client => session_is_client
    procedure :: barrier => session_barrier
    procedure :: close => session_close
    procedure :: leave => session_leave
    procedure :: find => session_find
    procedure :: write => session_write
    procedure :: read => session_read
    procedure :: write_parts => session_write_parts
    procedure :: read_parts => session_read_parts
    procedure :: begin_write => session_begin_write
    procedure :: begin_read => session_begin_read
    procedure :: begin_write_parts => session_begin_write_parts
    procedure :: begin_read_parts => session_begin_read_parts
    procedure :: explain => session_explain
    procedure :: timestep => session_timestep
    procedure :: begin_timestep => session_begin_timestep
    procedure :: checkpoint => session_checkpoint
    procedure :: begin_checkpoint => session_begin_checkpoint
    procedure :: find_checkpoint => session_find_checkpoint
    procedure :: restart => session_restart
    procedure :: checkpoint_array => session_checkpoint_array
  end type

  !> A rank's place in a session whose ranks are threads of this process.
  type :: penstock_seat
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => seat_open
    procedure :: free => seat_free
  end type

  !> A call that has begun, and must be ended before its session is closed. Until then its local
  !> arrays must be left alone: they should have the attribute `asynchronous` where it began.
  type :: penstock_split
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: has_ended => split_has_ended
    procedure :: end => split_end
  end type

  !> An array that stays open: any rank reads or writes any part, without the others.
  type :: penstock_open_array
    type(c_ptr) :: handle = c_null_ptr
    type(c_ptr) :: session = c_null_ptr
  contains
    procedure, private :: open_array_read_32, open_array_read_64
    procedure, private :: open_array_write_32, open_array_write_64
    procedure :: open => open_array_open
    procedure :: name => open_array_name
    procedure :: dims => open_array_dims
    procedure :: shape => open_array_shape
    procedure :: dtype => open_array_dtype
    !> call open%read(start, local): reads the box that starts at `start`, counted from 1, and has
    !> the shape of `local`. Not collective.
    generic :: read => open_array_read_32, open_array_read_64
    !> call open%write(start, local): writes that box. Not collective.
    generic :: write => open_array_write_32, open_array_write_64
    procedure :: read_list => open_array_read_list
    procedure :: write_list => open_array_write_list
    procedure :: read_all => open_array_read_all
    procedure :: write_all => open_array_write_all
    procedure :: read_all_parts => open_array_read_all_parts
    procedure :: write_all_parts => open_array_write_all_parts
    procedure :: schema => open_array_schema
    procedure :: flush => open_array_flush
    procedure :: close => open_array_close
  end type

  !> Several arrays that are saved together, through time. An assignment does not copy a group: it
  !> stops the program.
  type :: penstock_group
    type(c_ptr) :: handle = c_null_ptr
    type(known_array), allocatable :: arrays(:)
  contains
    procedure, private :: group_assign
    procedure :: create => group_create
    procedure :: add => group_add
    procedure :: replace => group_replace
    procedure :: set_keep => group_set_keep
    procedure :: set_attributes => group_set_attributes
    procedure :: set_time_attributes => group_set_time_attributes
    procedure :: set_time_chunk => group_set_time_chunk
    procedure :: add_coordinate => group_add_coordinate
    procedure :: add_labels => group_add_labels
    procedure :: free => group_free
    generic :: assignment(=) => group_assign
    final :: group_final
  end type

  !> A complete checkpoint that has been found. An assignment stops the program.
  type :: penstock_checkpoint_state
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure, private :: state_assign
    procedure :: is_there => state_is_there
    procedure :: step => state_step
    procedure :: time => state_time
    procedure :: timesteps => state_timesteps
    procedure :: attributes => state_attributes
    procedure :: free => state_free
    generic :: assignment(=) => state_assign
    final :: state_final
  end type

  !> The texts of options, for as long as C looks at them.
  type :: option_texts
    type(c_text) :: texts(6)
  end type

contains

  ! ----------------------------------------------------------------------------------------------
  ! Opening and closing

  !> Opens a session over a communicator: of `mpi_f08`, a type(MPI_Comm), or of `mpi`, an integer.
  !> Without `comm` the session is embedded: this process is the only rank. What the options mean,
  !> penstock.h says; those that are absent have its defaults. `dedicated` and `direct` are left to
  !> Penstock where they are absent.
  !>
  !> Collective over the communicator, which Penstock duplicates. On a dedicated server it returns
  !> when the clients have closed the session; is_client() is then false, and only close is left.
  subroutine session_open(self, comm, transport, root, servers, url, keys, dedicated, sync, &
      direct, block_bytes, background_bytes, cache_bytes, strategy, ierr)
    class(penstock_session), intent(inout) :: self
    class(*), intent(in), optional :: comm
    character(*), intent(in), optional :: transport, root, url, keys, strategy
    integer, intent(in), optional :: servers
    logical, intent(in), optional :: dedicated, sync, direct
    integer(int64), intent(in), optional :: block_bytes, background_bytes, cache_bytes
    integer, intent(out), optional :: ierr
    type(c_session_options) :: options
    type(option_texts), target :: texts
    type(c_ptr) :: made
    integer(c_int) :: handle, code
    logical :: is_one

    if (present(comm)) then
      call communicator(comm, handle, is_one)
      if (.not. is_one) then
        call refuse("comm must be a communicator: type(MPI_Comm), or an integer", ierr)
        return
      end if
    end if
    call set_up(options, texts, transport, root, servers, url, keys, dedicated, sync, direct, &
        block_bytes, background_bytes, cache_bytes, strategy)
    made = c_null_ptr
    if (present(comm)) then
      code = c_session_open_f(handle, options, made)
    else
      code = c_session_open(c_null_ptr, options, made)
    end if
    if (code == PENSTOCK_OK) self%handle = made
    call finish(code, ierr)
  end subroutine

  !> The integer of a communicator. A type(MPI_Comm) has nothing but this integer in it.
  subroutine communicator(comm, handle, is_one)
    class(*), intent(in) :: comm
    integer(c_int), intent(out) :: handle
    logical, intent(out) :: is_one

    handle = 0
    is_one = .true.
    select type (comm)
    type is (integer(c_int32_t))
      handle = comm
    type is (integer(c_int64_t))
      handle = int(comm, c_int)
    type is (real(c_float))
      is_one = .false.
    type is (character(*))
      is_one = .false.
    type is (logical)
      is_one = .false.
    class default
      is_one = storage_size(comm) == storage_size(handle)
      if (is_one) handle = f_handle(comm)
    end select
  end subroutine

  !> The options of a session, for C.
  subroutine set_up(options, texts, transport, root, servers, url, keys, dedicated, sync, direct, &
      block_bytes, background_bytes, cache_bytes, strategy)
    type(c_session_options), intent(out) :: options
    type(option_texts), intent(inout), target :: texts
    character(*), intent(in), optional :: transport, root, url, keys, strategy
    integer, intent(in), optional :: servers
    logical, intent(in), optional :: dedicated, sync, direct
    integer(int64), intent(in), optional :: block_bytes, background_bytes, cache_bytes

    options%size = c_sizeof(options)
    options%transport = c_held(texts%texts(1), transport)
    options%root = c_held(texts%texts(2), root)
    options%url = c_held(texts%texts(3), url)
    options%keys = c_held(texts%texts(4), keys)
    options%strategy = c_held(texts%texts(5), strategy)
    if (present(servers)) options%servers = servers
    if (present(dedicated)) options%dedicated = merge(PENSTOCK_YES, PENSTOCK_NO, dedicated)
    if (present(sync)) options%sync = merge(PENSTOCK_YES, PENSTOCK_NO, sync)
    if (present(direct)) options%direct = merge(PENSTOCK_YES, PENSTOCK_NO, direct)
    if (present(block_bytes)) options%block_bytes = block_bytes
    if (present(background_bytes)) options%background_bytes = background_bytes
    if (present(cache_bytes)) options%cache_bytes = cache_bytes
  end subroutine

  !> Makes seats for as many threads of this process as `seats` has elements, such as those of a
  !> parallel region of OpenMP. Each thread opens its own. The options are those of a session.
  subroutine penstock_seats_create(seats, root, servers, dedicated, sync, direct, block_bytes, &
      background_bytes, cache_bytes, strategy, ierr)
    type(penstock_seat), intent(out) :: seats(:)
    character(*), intent(in), optional :: root, strategy
    integer, intent(in), optional :: servers
    logical, intent(in), optional :: dedicated, sync, direct
    integer(int64), intent(in), optional :: block_bytes, background_bytes, cache_bytes
    integer, intent(out), optional :: ierr
    type(c_session_options) :: options
    type(option_texts), target :: texts
    type(c_ptr) :: made(size(seats))
    integer(c_int) :: code

    call set_up(options, texts, root=root, servers=servers, dedicated=dedicated, sync=sync, &
        direct=direct, block_bytes=block_bytes, background_bytes=background_bytes, &
        cache_bytes=cache_bytes, strategy=strategy)
    code = c_seats_create(size(seats, kind=c_size_t), options, made)
    if (code == PENSTOCK_OK) seats%handle = made
    call finish(code, ierr)
  end subroutine

  !> Opens the session of a seat, and frees the seat. Collective.
  subroutine seat_open(self, session, ierr)
    class(penstock_seat), intent(inout) :: self
    class(penstock_session), intent(inout) :: session
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made
    integer(c_int) :: code

    code = c_seat_open(self%handle, made)
    self%handle = c_null_ptr
    if (code == PENSTOCK_OK) session%handle = made
    call finish(code, ierr)
  end subroutine

  !> Frees a seat that nobody has opened; the sessions of the others then fail.
  subroutine seat_free(self)
    class(penstock_seat), intent(inout) :: self

    if (c_associated(self%handle)) call c_seat_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  !> This client's rank; -1 on a dedicated server.
  function session_rank(self) result(rank)
    class(penstock_session), intent(in) :: self
    integer :: rank

    rank = int(c_session_rank(self%handle))
  end function

  !> The number of clients.
  function session_size(self) result(size)
    class(penstock_session), intent(in) :: self
    integer :: size

    size = int(c_session_size(self%handle))
  end function

  !> The number of servers.
  function session_servers(self) result(servers)
    class(penstock_session), intent(in) :: self
    integer :: servers

    servers = int(c_session_servers(self%handle))
  end function

  !> Whether this rank may make calls.
  function session_is_client(self) result(is_client)
    class(penstock_session), intent(in) :: self
    logical :: is_client

    is_client = c_session_is_client(self%handle) /= 0
  end function

  !> Waits until all clients are here. Collective.
  subroutine session_barrier(self, ierr)
    class(penstock_session), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_session_barrier(self%handle), ierr)
  end subroutine

  !> Ends a session, also where it fails. Collective. One that is not open is left alone.
  subroutine session_close(self, ierr)
    class(penstock_session), intent(inout) :: self
    integer, intent(out), optional :: ierr
    integer(c_int) :: code

    code = c_session_close(self%handle)
    self%handle = c_null_ptr
    call finish(code, ierr)
  end subroutine

  !> Leaves a session, for `cause`: the calls of all other ranks fail with PENSTOCK_ERR_PEER, in
  !> place of waiting. Not collective.
  subroutine session_leave(self, cause)
    class(penstock_session), intent(inout) :: self
    character(*), intent(in) :: cause

    if (c_associated(self%handle)) call c_session_leave(self%handle, c_string(cause))
    self%handle = c_null_ptr
  end subroutine

  !> Looks up the array at `path`; `name` says which one where it is a group of several. Rank 0
  !> holds all of it. Not collective.
  subroutine session_find(self, path, array, name, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(inout) :: array
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: ierr
    character(:), allocatable :: which
    type(c_ptr) :: made

    call c_maybe(name, which)
    call take_array(array, c_array_open(self%handle, c_string(path), which, made), made, ierr)
  end subroutine

  !> Puts the array that C has made in place of the one before.
  subroutine take_array(array, code, made, ierr)
    class(penstock_array), intent(inout) :: array
    integer(c_int), intent(in) :: code
    type(c_ptr), intent(in) :: made
    integer, intent(out), optional :: ierr

    if (code == PENSTOCK_OK) then
      call array%free()
      array%handle = made
    end if
    call finish(code, ierr)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Calls about one array

  !> Writes an array, each rank its `local` array: of the array's type, any strides, and the shape
  !> that local_shape() says. `path` is a Zarr group for chunks and natural chunking, the file for a
  !> row-major one, the directory for parts. `attributes` is JSON that is added to the array's.
  !> Collective. One rename replaces what stood there: readers see the old array or the new one, and
  !> after an error or a crash the old one.
  subroutine session_write(self, path, array, local, strategy, attributes, report, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(in) :: local
    character(*), intent(in), optional :: strategy, attributes
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_now(self, .true., path, array, locals, strategy, attributes, report, ierr)
  end subroutine

  !> Reads an array, each rank its part, into `local`. Name, shape, dtype and memory schema of
  !> `array` count; the store has its own disk schema. Collective.
  subroutine session_read(self, path, array, local, strategy, report, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(inout), asynchronous :: local
    character(*), intent(in), optional :: strategy
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_now(self, .false., path, array, locals, strategy, report=report, ierr=ierr)
  end subroutine

  !> As write, of several local arrays or none.
  subroutine session_write_parts(self, path, array, locals, strategy, attributes, report, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    character(*), intent(in), optional :: strategy, attributes
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr

    call move_now(self, .true., path, array, memories_of(locals), strategy, attributes, report, &
        ierr)
  end subroutine

  !> As read, into several local arrays or none.
  subroutine session_read_parts(self, path, array, locals, strategy, report, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    character(*), intent(in), optional :: strategy
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr

    call move_now(self, .false., path, array, memories_of(locals), strategy, report=report, &
        ierr=ierr)
  end subroutine

  function memories_of(locals) result(memories)
    class(penstock_locals), intent(in) :: locals
    type(c_local), allocatable :: memories(:)

    allocate (memories(locals%count()))
    if (size(memories) > 0) memories = locals%memories
  end function

  !> Why local arrays do not fit an array; empty if they do.
  function array_fault(array, locals) result(cause)
    class(penstock_array), intent(in) :: array
    type(c_local), intent(in) :: locals(:)
    character(:), allocatable :: cause
    type(known_array) :: known
    integer :: i

    cause = ""
    if (.not. c_associated(array%handle)) return
    known = known_of(array)
    do i = 1, size(locals)
      if (cause == "") cause = unfit(locals(i), known%local_dims, known%dtype, known%name)
    end do
  end function

  !> Makes a call about one array, or refuses it on all ranks.
  subroutine move_now(self, is_write, path, array, locals, strategy, attributes, report, ierr)
    class(penstock_session), intent(in) :: self
    logical, intent(in) :: is_write
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(c_local), intent(in), target :: locals(:)
    character(*), intent(in), optional :: strategy, attributes
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_memory) :: memories(size(locals))
    type(c_call_options) :: options
    type(option_texts), target :: texts
    character(:), allocatable :: cause
    integer(c_int) :: code

    cause = array_fault(array, locals)
    call point_at(locals, memories)
    call call_options(options, texts, strategy=strategy, attributes=attributes)
    if (cause /= "") then
      code = c_session_refuse(self%handle, PENSTOCK_ERR_SCHEMA, c_string(doing(is_write)), &
          c_string(cause))
    else if (is_write) then
      code = c_write_parts(self%handle, c_string(path), array%handle, size(locals, kind=c_size_t), &
          memories, options, report)
    else
      code = c_read_parts(self%handle, c_string(path), array%handle, size(locals, kind=c_size_t), &
          memories, options, report)
    end if
    call finish(code, ierr)
  end subroutine

  function doing(is_write) result(text)
    logical, intent(in) :: is_write
    character(:), allocatable :: text

    text = trim(merge("writing an array", "reading an array", is_write))
  end function

  !> The options of a call, for C.
  subroutine call_options(options, texts, strategy, background, attributes, time, step)
    type(c_call_options), intent(out) :: options
    type(option_texts), intent(inout), target :: texts
    character(*), intent(in), optional :: strategy, background, attributes
    real(c_double), intent(in), optional :: time
    integer(int64), intent(in), optional :: step

    options%size = c_sizeof(options)
    options%strategy = c_held(texts%texts(1), strategy)
    options%background = c_held(texts%texts(2), background)
    options%attributes = c_held(texts%texts(3), attributes)
    options%time = ieee_nan()
    if (present(time)) options%time = time
    if (present(step)) options%step = step
  end subroutine

  !> Not a number, for times that are left to Penstock.
  function ieee_nan() result(nan)
    use, intrinsic :: ieee_arithmetic, only: ieee_value, ieee_quiet_nan
    real(c_double) :: nan

    nan = ieee_value(nan, ieee_quiet_nan)
  end function

  !> Begins a write, which `split` ends; `local` must be left alone until then. `background` says
  !> what is done while the ranks compute: "disk", "all" or "none". Collective, in the same order on
  !> all ranks. Several may be under way.
  subroutine session_begin_write(self, path, array, local, split, strategy, background, &
      attributes, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(in), asynchronous, target :: local
    class(penstock_split), intent(inout) :: split
    character(*), intent(in), optional :: strategy, background, attributes
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call begin(self, .true., path, array, locals, split, strategy, background, attributes, ierr)
  end subroutine

  !> Begins a read, which `split` ends; `local` must be left alone until then. Collective.
  subroutine session_begin_read(self, path, array, local, split, strategy, background, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(inout), asynchronous, target :: local
    class(penstock_split), intent(inout) :: split
    character(*), intent(in), optional :: strategy, background
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call begin(self, .false., path, array, locals, split, strategy, background, ierr=ierr)
  end subroutine

  !> As begin_write, of several local arrays or none.
  subroutine session_begin_write_parts(self, path, array, locals, split, strategy, background, &
      attributes, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    class(penstock_split), intent(inout) :: split
    character(*), intent(in), optional :: strategy, background, attributes
    integer, intent(out), optional :: ierr

    call begin(self, .true., path, array, memories_of(locals), split, strategy, background, &
        attributes, ierr)
  end subroutine

  !> As begin_read, into several local arrays or none.
  subroutine session_begin_read_parts(self, path, array, locals, split, strategy, background, ierr)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    class(penstock_split), intent(inout) :: split
    character(*), intent(in), optional :: strategy, background
    integer, intent(out), optional :: ierr

    call begin(self, .false., path, array, memories_of(locals), split, strategy, background, &
        ierr=ierr)
  end subroutine

  !> Begins a call about one array, or refuses it on all ranks.
  subroutine begin(self, is_write, path, array, locals, split, strategy, background, attributes, &
      ierr)
    class(penstock_session), intent(in) :: self
    logical, intent(in) :: is_write
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    type(c_local), intent(in), target :: locals(:)
    class(penstock_split), intent(inout) :: split
    character(*), intent(in), optional :: strategy, background, attributes
    integer, intent(out), optional :: ierr
    type(c_memory) :: memories(size(locals))
    type(c_call_options) :: options
    type(option_texts), target :: texts
    character(:), allocatable :: cause
    type(c_ptr) :: made
    integer(c_int) :: code

    cause = array_fault(array, locals)
    if (cause == "") cause = split_fault(split)
    call point_at(locals, memories)
    call call_options(options, texts, strategy, background, attributes)
    if (cause /= "") then
      code = c_session_refuse(self%handle, PENSTOCK_ERR_SCHEMA, c_string(doing(is_write)), &
          c_string(cause))
    else if (is_write) then
      code = c_begin_write(self%handle, c_string(path), array%handle, &
          size(locals, kind=c_size_t), memories, options, made)
    else
      code = c_begin_read(self%handle, c_string(path), array%handle, &
          size(locals, kind=c_size_t), memories, options, made)
    end if
    if (code == PENSTOCK_OK) split%handle = made
    call finish(code, ierr)
  end subroutine

  function split_fault(split) result(cause)
    class(penstock_split), intent(in) :: split
    character(:), allocatable :: cause

    cause = ""
    if (c_associated(split%handle)) cause = "the call that `split` stands for has not been ended"
  end function

  !> Whether `end` would return at once. Never waits; not collective.
  function split_has_ended(self, ierr) result(has_ended)
    class(penstock_split), intent(in) :: self
    integer, intent(out), optional :: ierr
    logical :: has_ended
    integer(c_int) :: answer

    answer = 0
    call finish(c_split_test(self%handle, answer), ierr)
    has_ended = answer /= 0
  end function

  !> Waits until the call has ended. Collective; calls may be ended in another order than they were
  !> begun.
  subroutine split_end(self, report, ierr)
    class(penstock_split), intent(inout) :: self
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    integer(c_int) :: code

    code = c_split_end(self%handle, report)
    self%handle = c_null_ptr
    call finish(code, ierr)
  end subroutine

  !> Says what a write, or a read, would do: servers, blocks, bytes, messages, memory, order. Not
  !> collective.
  function session_explain(self, path, array, is_write, strategy, ierr) result(text)
    class(penstock_session), intent(in) :: self
    character(*), intent(in) :: path
    class(penstock_array), intent(in) :: array
    logical, intent(in), optional :: is_write
    character(*), intent(in), optional :: strategy
    integer, intent(out), optional :: ierr
    character(:), allocatable :: text, how
    integer(c_int) :: writes, code
    type(c_ptr) :: pointer

    writes = 1
    if (present(is_write)) writes = merge(1, 0, is_write)
    call c_maybe(strategy, how)
    text = ""
    code = c_explain(self%handle, c_string(path), array%handle, writes, how, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, text)
    call finish(code, ierr)
  end function

  ! ----------------------------------------------------------------------------------------------
  ! Arrays that stay open

  !> Opens the array at `path` to be read, or to be changed in place, too. Collective.
  subroutine open_array_open(self, session, path, name, is_writable, ierr)
    class(penstock_open_array), intent(inout) :: self
    class(penstock_session), intent(in) :: session
    character(*), intent(in) :: path
    character(*), intent(in), optional :: name
    logical, intent(in), optional :: is_writable
    integer, intent(out), optional :: ierr
    character(:), allocatable :: which
    type(c_ptr) :: made
    integer(c_int) :: code, writes

    writes = 0
    if (present(is_writable)) writes = merge(1, 0, is_writable)
    call c_maybe(name, which)
    code = c_open_array_open(session%handle, c_string(path), which, writes, made)
    if (code == PENSTOCK_OK) then
      self%handle = made
      self%session = session%handle
    end if
    call finish(code, ierr)
  end subroutine

  function open_array_name(self) result(name)
    class(penstock_open_array), intent(in) :: self
    character(:), allocatable :: name

    name = f_text(c_open_array_name(self%handle))
  end function

  !> The number of dimensions.
  function open_array_dims(self) result(dims)
    class(penstock_open_array), intent(in) :: self
    integer :: dims

    dims = int(c_open_array_dims(self%handle))
  end function

  !> The extents.
  function open_array_shape(self) result(shape)
    class(penstock_open_array), intent(in) :: self
    integer(int64), allocatable :: shape(:)
    integer(c_int64_t), pointer :: extents(:)

    allocate (shape(self%dims()))
    if (size(shape) == 0) return
    call c_f_pointer(c_open_array_shape(self%handle), extents, [size(shape)])
    shape = reversed(extents)
  end function

  !> The element type, such as "f8".
  function open_array_dtype(self) result(dtype)
    class(penstock_open_array), intent(in) :: self
    character(:), allocatable :: dtype

    dtype = f_text(c_open_array_dtype(self%handle))
  end function

  subroutine open_array_read_64(self, start, local, ierr)
    class(penstock_open_array), intent(in) :: self
    integer(int64), intent(in) :: start(:)
    type(*), dimension(..), intent(inout), asynchronous :: local
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_box(self, .false., start, locals, ierr)
  end subroutine

  subroutine open_array_read_32(self, start, local, ierr)
    class(penstock_open_array), intent(in) :: self
    integer(int32), intent(in) :: start(:)
    type(*), dimension(..), intent(inout), asynchronous :: local
    integer, intent(out), optional :: ierr

    call open_array_read_64(self, int(start, int64), local, ierr)
  end subroutine

  subroutine open_array_write_64(self, start, local, ierr)
    class(penstock_open_array), intent(in) :: self
    integer(int64), intent(in) :: start(:)
    type(*), dimension(..), intent(in) :: local
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_box(self, .true., start, locals, ierr)
  end subroutine

  subroutine open_array_write_32(self, start, local, ierr)
    class(penstock_open_array), intent(in) :: self
    integer(int32), intent(in) :: start(:)
    type(*), dimension(..), intent(in) :: local
    integer, intent(out), optional :: ierr

    call open_array_write_64(self, int(start, int64), local, ierr)
  end subroutine

  !> Moves a box, on this rank alone.
  subroutine move_box(self, is_write, start, locals, ierr)
    class(penstock_open_array), intent(in) :: self
    logical, intent(in) :: is_write
    integer(int64), intent(in) :: start(:)
    type(c_local), intent(in), target :: locals(1)
    integer, intent(out), optional :: ierr
    type(c_memory) :: memories(1)
    character(:), allocatable :: cause
    integer(c_int64_t) :: from(size(start))
    integer(c_int) :: code

    cause = ""
    if (c_associated(self%handle)) then
      cause = unfit(locals(1), self%dims(), self%dtype(), self%name())
      if (size(start) /= self%dims()) cause = "start needs an index for each dimension"
      if (any(start < 1)) cause = "the indices of start count from 1"
    end if
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    from = reversed(start - 1)
    call point_at(locals, memories)
    if (is_write) then
      code = c_open_array_write(self%handle, from, locals(1)%shape, memories(1))
    else
      code = c_open_array_read(self%handle, from, locals(1)%shape, memories(1))
    end if
    call finish(code, ierr)
  end subroutine

  !> Reads the elements of `list` to `places` of `local`, which is of rank 1, or to its elements in
  !> order. Not collective.
  subroutine open_array_read_list(self, list, local, places, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_list), intent(in) :: list
    type(*), dimension(..), intent(inout), asynchronous :: local
    class(penstock_list), intent(in), optional :: places
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_list(self, .false., list, locals, c_maybe_list(places), ierr)
  end subroutine

  !> Writes the elements of `list` from there. Not collective.
  subroutine open_array_write_list(self, list, local, places, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_list), intent(in) :: list
    type(*), dimension(..), intent(in) :: local
    class(penstock_list), intent(in), optional :: places
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_list(self, .true., list, locals, c_maybe_list(places), ierr)
  end subroutine

  !> Moves the elements of a list, on this rank alone.
  subroutine move_list(self, is_write, list, locals, places, ierr)
    class(penstock_open_array), intent(in) :: self
    logical, intent(in) :: is_write
    class(penstock_list), intent(in) :: list
    type(c_local), intent(in), target :: locals(1)
    type(c_ptr), intent(in) :: places
    integer, intent(out), optional :: ierr
    type(c_memory) :: memories(1)
    character(:), allocatable :: cause
    integer(c_int) :: code

    cause = ""
    if (c_associated(self%handle)) cause = unfit(locals(1), 1, self%dtype(), self%name())
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    call point_at(locals, memories)
    if (is_write) then
      code = c_open_array_write_list(self%handle, list%handle, places, memories(1))
    else
      code = c_open_array_read_list(self%handle, list%handle, places, memories(1))
    end if
    call finish(code, ierr)
  end subroutine

  !> Reads this rank's region or share, as `array` has it, with all ranks. Collective. `array` is
  !> what schema() gives, with a memory schema or a region.
  subroutine open_array_read_all(self, array, local, report, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(inout), asynchronous :: local
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_all(self, .false., array, locals, report, ierr)
  end subroutine

  !> Writes this rank's region, as `array` has it, with all ranks. Collective.
  subroutine open_array_write_all(self, array, local, report, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_array), intent(in) :: array
    type(*), dimension(..), intent(in) :: local
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable :: locals(:)

    call local_of(local, locals)
    call move_all(self, .true., array, locals, report, ierr)
  end subroutine

  !> As read_all, into several local arrays or none.
  subroutine open_array_read_all_parts(self, array, locals, report, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr

    call move_all(self, .false., array, memories_of(locals), report, ierr)
  end subroutine

  !> As write_all, of several local arrays or none.
  subroutine open_array_write_all_parts(self, array, locals, report, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_array), intent(in) :: array
    class(penstock_locals), intent(in) :: locals
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr

    call move_all(self, .true., array, memories_of(locals), report, ierr)
  end subroutine

  !> Moves the regions of all ranks, or refuses on all ranks.
  subroutine move_all(self, is_write, array, locals, report, ierr)
    class(penstock_open_array), intent(in) :: self
    logical, intent(in) :: is_write
    class(penstock_array), intent(in) :: array
    type(c_local), intent(in), target :: locals(:)
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_memory) :: memories(size(locals))
    character(:), allocatable :: cause
    integer(c_int) :: code

    cause = array_fault(array, locals)
    call point_at(locals, memories)
    if (cause /= "") then
      code = c_session_refuse(self%session, PENSTOCK_ERR_SCHEMA, c_string(doing(is_write)), &
          c_string(cause))
    else if (is_write) then
      code = c_open_array_write_all(self%handle, array%handle, size(locals, kind=c_size_t), &
          memories, report)
    else
      code = c_open_array_read_all(self%handle, array%handle, size(locals, kind=c_size_t), &
          memories, report)
    end if
    call finish(code, ierr)
  end subroutine

  !> What the array is, to be given a memory schema or a region.
  subroutine open_array_schema(self, array, ierr)
    class(penstock_open_array), intent(in) :: self
    class(penstock_array), intent(inout) :: array
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    call take_array(array, c_open_array_schema(self%handle, made), made, ierr)
  end subroutine

  !> Brings what all ranks have written to the disks and, in a session that syncs, to stable
  !> storage. Collective.
  subroutine open_array_flush(self, ierr)
    class(penstock_open_array), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_open_array_flush(self%handle), ierr)
  end subroutine

  !> Closes the array, also where it fails. Collective.
  subroutine open_array_close(self, ierr)
    class(penstock_open_array), intent(inout) :: self
    integer, intent(out), optional :: ierr
    integer(c_int) :: code

    code = c_open_array_close(self%handle)
    self%handle = c_null_ptr
    call finish(code, ierr)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Groups

  !> Makes a group whose store is the Zarr group at `path`.
  subroutine group_create(self, name, path, ierr)
    class(penstock_group), intent(inout) :: self
    character(*), intent(in) :: name, path
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made
    integer(c_int) :: code

    code = c_group_create(c_string(name), c_string(path), made)
    if (code == PENSTOCK_OK) then
      call self%free()
      self%handle = made
      allocate (self%arrays(0))
    end if
    call finish(code, ierr)
  end subroutine

  !> Adds a copy of an array.
  subroutine group_add(self, array, ierr)
    class(penstock_group), intent(inout) :: self
    class(penstock_array), intent(in) :: array
    integer, intent(out), optional :: ierr
    type(known_array), allocatable :: arrays(:)
    integer(c_int) :: code
    integer :: count

    code = c_group_add(self%handle, array%handle)
    if (code == PENSTOCK_OK) then
      count = size(self%arrays)
      allocate (arrays(count + 1))
      arrays(:count) = self%arrays
      arrays(count + 1) = known_of(array)
      call move_alloc(arrays, self%arrays)
    end if
    call finish(code, ierr)
  end subroutine

  !> Puts a copy of `array`, which has another memory schema, in place of the array of its name.
  subroutine group_replace(self, array, ierr)
    class(penstock_group), intent(inout) :: self
    class(penstock_array), intent(in) :: array
    integer, intent(out), optional :: ierr
    integer(c_int) :: code
    integer :: i

    code = c_group_replace(self%handle, array%handle)
    if (code == PENSTOCK_OK) then
      do i = 1, size(self%arrays)
        if (self%arrays(i)%name == array%name()) self%arrays(i) = known_of(array)
      end do
    end if
    call finish(code, ierr)
  end subroutine

  !> How many checkpoints are kept: the newest. Default: 2.
  subroutine group_set_keep(self, keep, ierr)
    class(penstock_group), intent(in) :: self
    integer, intent(in) :: keep
    integer, intent(out), optional :: ierr

    call finish(c_group_set_keep(self%handle, int(keep, c_int64_t)), ierr)
  end subroutine

  !> Attributes of the group, an object of JSON.
  subroutine group_set_attributes(self, json, ierr)
    class(penstock_group), intent(in) :: self
    character(*), intent(in) :: json
    integer, intent(out), optional :: ierr

    call finish(c_group_set_attributes(self%handle, c_string(json)), ierr)
  end subroutine

  !> Attributes of `time`, such as its units.
  subroutine group_set_time_attributes(self, json, ierr)
    class(penstock_group), intent(in) :: self
    character(*), intent(in) :: json
    integer, intent(out), optional :: ierr

    call finish(c_group_set_time_attributes(self%handle, c_string(json)), ierr)
  end subroutine

  !> How many timesteps are in a chunk. Default: 1, or as in the store.
  subroutine group_set_time_chunk(self, timesteps, ierr)
    class(penstock_group), intent(in) :: self
    integer, intent(in) :: timesteps
    integer, intent(out), optional :: ierr

    call finish(c_group_set_time_chunk(self%handle, int(timesteps, c_int64_t)), ierr)
  end subroutine

  !> Adds a static variable of named dimensions, the same on all ranks. `values` has a dimension for
  !> each name. Its element type is that of `values`, or `dtype`, such as "u8" for integers.
  subroutine group_add_coordinate(self, name, dimension_names, values, dtype, attributes, ierr)
    class(penstock_group), intent(in) :: self
    character(*), intent(in) :: name, dimension_names(:)
    type(*), dimension(..), intent(in), contiguous :: values
    character(*), intent(in), optional :: dtype, attributes
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    character(:), allocatable :: kind, cause, json
    type(c_ptr) :: block
    type(c_ptr), pointer :: words(:)
    integer :: dims

    call f_describe(values, local)
    kind = dtype_of(local)
    if (present(dtype)) kind = trim(dtype)
    dims = size(dimension_names)
    if (kind == "") then
      cause = "a coordinate cannot have elements of " // kind_text(local)
    else
      cause = unfit(local, dims, kind, name)
    end if
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    block = f_words(dimension_names(dims:1:-1))
    call c_f_pointer(block, words, [dims])
    call c_maybe(attributes, json)
    call finish(c_group_add_coordinate(self%handle, c_string(name), int(dims, c_size_t), words, &
        local%shape, c_string(kind), local%base, json), ierr)
    call c_release(block)
  end subroutine

  !> Adds a static variable of texts, without their trailing blanks.
  subroutine group_add_labels(self, name, dimension_names, values, attributes, ierr)
    class(penstock_group), intent(in) :: self
    character(*), intent(in) :: name, dimension_names(:)
    character(*), intent(in) :: values(..)
    character(*), intent(in), optional :: attributes
    integer, intent(out), optional :: ierr
    character(:), allocatable :: json
    type(c_ptr) :: block, texts
    type(c_ptr), pointer :: words(:), labels(:)
    integer :: dims

    dims = size(dimension_names)
    if (rank(values) /= dims) then
      call refuse("labels need a name for each dimension", ierr)
      return
    end if
    block = f_words(dimension_names(dims:1:-1))
    call c_f_pointer(block, words, [dims])
    texts = f_words(values)
    call c_f_pointer(texts, labels, [size(values)])
    call c_maybe(attributes, json)
    call finish(c_group_add_labels(self%handle, c_string(name), int(dims, c_size_t), words, &
        reversed(shape(values)), labels, json), ierr)
    call c_release(block)
    call c_release(texts)
  end subroutine

  subroutine group_free(self)
    class(penstock_group), intent(inout) :: self

    if (c_associated(self%handle)) call c_group_free(self%handle)
    self%handle = c_null_ptr
    if (allocated(self%arrays)) deallocate (self%arrays)
  end subroutine

  impure elemental subroutine group_final(self)
    type(penstock_group), intent(inout) :: self

    call self%free()
  end subroutine

  subroutine group_assign(self, other)
    class(penstock_group), intent(inout) :: self
    class(penstock_group), intent(in) :: other

    if (c_associated(self%handle, other%handle)) return
    error stop "a penstock_group cannot be assigned: make another one"
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Timesteps and checkpoints

  !> Appends a timestep of all arrays of a group, in one collective request. `locals` has them by
  !> name; of an array of rows, the extents of the local array say how many there are. Readers see
  !> the timestep whole or not at all, at any moment and after a crash. Collective.
  subroutine session_timestep(self, group, locals, time, strategy, report, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    real(c_double), intent(in), optional :: time
    character(*), intent(in), optional :: strategy
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_call_options) :: options
    type(option_texts), target :: texts

    call call_options(options, texts, strategy=strategy, time=time)
    call save_now(self, .true., group, locals, options, report, ierr)
  end subroutine

  !> Saves what a restart needs. `step` and `time` are the program's, `attributes` JSON that it is
  !> to find again. A crash at any moment leaves at least one complete checkpoint, if there was one.
  !> Collective.
  subroutine session_checkpoint(self, group, locals, step, time, attributes, strategy, report, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    integer, intent(in), optional :: step
    real(c_double), intent(in), optional :: time
    character(*), intent(in), optional :: attributes, strategy
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_call_options) :: options
    type(option_texts), target :: texts

    call call_options(options, texts, strategy=strategy, attributes=attributes, time=time)
    if (present(step)) options%step = step
    call save_now(self, .false., group, locals, options, report, ierr)
  end subroutine

  !> Begins a timestep, which `split` ends; the local arrays must be left alone until then.
  !> Collective.
  subroutine session_begin_timestep(self, group, locals, split, time, strategy, background, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    class(penstock_split), intent(inout) :: split
    real(c_double), intent(in), optional :: time
    character(*), intent(in), optional :: strategy, background
    integer, intent(out), optional :: ierr
    type(c_call_options) :: options
    type(option_texts), target :: texts

    call call_options(options, texts, strategy=strategy, background=background, time=time)
    call begin_save(self, .true., group, locals, split, options, ierr)
  end subroutine

  !> Begins a checkpoint, which `split` ends; the local arrays must be left alone until then.
  !> Collective.
  subroutine session_begin_checkpoint(self, group, locals, split, step, time, attributes, &
      strategy, background, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    class(penstock_split), intent(inout) :: split
    integer, intent(in), optional :: step
    real(c_double), intent(in), optional :: time
    character(*), intent(in), optional :: attributes, strategy, background
    integer, intent(out), optional :: ierr
    type(c_call_options) :: options
    type(option_texts), target :: texts

    call call_options(options, texts, strategy, background, attributes, time)
    if (present(step)) options%step = step
    call begin_save(self, .false., group, locals, split, options, ierr)
  end subroutine

  subroutine save_now(self, is_timestep, group, locals, options, report, ierr)
    class(penstock_session), intent(in) :: self
    logical, intent(in) :: is_timestep
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    type(c_call_options), intent(in) :: options
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable, target :: ordered(:)
    type(c_memory), allocatable, target :: memories(:)
    type(c_locals), allocatable :: entries(:)
    character(:), allocatable :: cause
    integer(c_int) :: code

    call in_order(group, locals, ordered, memories, entries, cause)
    if (cause /= "") then
      code = c_session_refuse(self%handle, PENSTOCK_ERR_SCHEMA, c_string("saving a group"), &
          c_string(cause))
    else if (is_timestep) then
      code = c_timestep(self%handle, group%handle, entries, options, report)
    else
      code = c_checkpoint(self%handle, group%handle, entries, options, report)
    end if
    call finish(code, ierr)
  end subroutine

  subroutine begin_save(self, is_timestep, group, locals, split, options, ierr)
    class(penstock_session), intent(in) :: self
    logical, intent(in) :: is_timestep
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    class(penstock_split), intent(inout) :: split
    type(c_call_options), intent(in) :: options
    integer, intent(out), optional :: ierr
    type(c_local), allocatable, target :: ordered(:)
    type(c_memory), allocatable, target :: memories(:)
    type(c_locals), allocatable :: entries(:)
    character(:), allocatable :: cause
    type(c_ptr) :: made
    integer(c_int) :: code

    call in_order(group, locals, ordered, memories, entries, cause)
    if (cause == "") cause = split_fault(split)
    if (cause /= "") then
      code = c_session_refuse(self%handle, PENSTOCK_ERR_SCHEMA, c_string("saving a group"), &
          c_string(cause))
    else if (is_timestep) then
      code = c_begin_timestep(self%handle, group%handle, entries, options, made)
    else
      code = c_begin_checkpoint(self%handle, group%handle, entries, options, made)
    end if
    if (code == PENSTOCK_OK) split%handle = made
    call finish(code, ierr)
  end subroutine

  !> The local arrays in the order of the arrays of a group, as C wants them, or why they do not
  !> fit.
  subroutine in_order(group, locals, ordered, memories, entries, cause)
    class(penstock_group), intent(in) :: group
    class(penstock_locals), intent(in) :: locals
    type(c_local), allocatable, intent(out), target :: ordered(:)
    type(c_memory), allocatable, intent(out), target :: memories(:)
    type(c_locals), allocatable, intent(out) :: entries(:)
    character(:), allocatable, intent(out) :: cause
    integer :: i, j, arrays, first, next

    cause = ""
    arrays = 0
    if (allocated(group%arrays)) arrays = size(group%arrays)
    allocate (ordered(locals%count()), memories(locals%count()), entries(arrays))
    next = 1
    do i = 1, arrays
      first = next
      do j = 1, locals%count()
        if (locals%names(j)%text /= group%arrays(i)%name) cycle
        ordered(next) = locals%memories(j)
        associate (known => group%arrays(i))
          if (cause == "") cause = unfit(ordered(next), known%local_dims, known%dtype, known%name)
        end associate
        next = next + 1
      end do
      entries(i)%count = int(next - first, c_size_t)
      if (next > first) entries(i)%memories = c_loc(memories(first))
    end do
    call point_at(ordered, memories)
    if (next <= locals%count() .and. cause == "") &
        cause = "a local array has a name that no array of the group has"
  end subroutine

  !> Finds the newest complete checkpoint of a group, or that of `step`. state%is_there() says
  !> whether there is one. Collective.
  subroutine session_find_checkpoint(self, group, state, step, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_checkpoint_state), intent(inout) :: state
    integer, intent(in), optional :: step
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: wanted
    type(c_ptr) :: found
    integer(c_int) :: code

    wanted = -1
    if (present(step)) wanted = step
    found = c_null_ptr
    code = c_find_checkpoint(self%handle, group%handle, wanted, found)
    call state%free()
    if (code == PENSTOCK_OK) state%handle = found
    call finish(code, ierr)
  end subroutine

  !> Reads a checkpoint that was found into `locals`. The number of ranks and the memory schemas may
  !> be others than when it was saved; of an array of rows each rank has an even share, as
  !> checkpoint_array() says. The session's next save goes on from here. Collective.
  subroutine session_restart(self, group, state, locals, report, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_checkpoint_state), intent(in) :: state
    class(penstock_locals), intent(in) :: locals
    type(penstock_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_local), allocatable, target :: ordered(:)
    type(c_memory), allocatable, target :: memories(:)
    type(c_locals), allocatable :: entries(:)
    character(:), allocatable :: cause
    integer(c_int) :: code

    call in_order(group, locals, ordered, memories, entries, cause)
    if (cause /= "") then
      code = c_session_refuse(self%handle, PENSTOCK_ERR_SCHEMA, c_string("restarting"), &
          c_string(cause))
    else
      code = c_restart(self%handle, group%handle, state%handle, entries, report)
    end if
    call finish(code, ierr)
  end subroutine

  !> The array of a group with this name as it is restarted: one of rows has its extent, and is
  !> dealt out evenly. Not collective.
  subroutine session_checkpoint_array(self, group, state, name, array, ierr)
    class(penstock_session), intent(in) :: self
    class(penstock_group), intent(in) :: group
    class(penstock_checkpoint_state), intent(in) :: state
    character(*), intent(in) :: name
    class(penstock_array), intent(inout) :: array
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    call take_array(array, c_checkpoint_array(self%handle, group%handle, state%handle, &
        c_string(name), made), made, ierr)
  end subroutine

  !> Whether a checkpoint was found.
  function state_is_there(self) result(is_there)
    class(penstock_checkpoint_state), intent(in) :: self
    logical :: is_there

    is_there = c_associated(self%handle)
  end function

  !> The program's step.
  function state_step(self) result(step)
    class(penstock_checkpoint_state), intent(in) :: self
    integer :: step

    step = int(c_checkpoint_step(self%handle))
  end function

  !> The program's time, or NaN.
  function state_time(self) result(time)
    class(penstock_checkpoint_state), intent(in) :: self
    real(c_double) :: time

    time = c_checkpoint_time(self%handle)
  end function

  !> The number of timesteps that the group had.
  function state_timesteps(self) result(timesteps)
    class(penstock_checkpoint_state), intent(in) :: self
    integer(int64) :: timesteps

    timesteps = c_checkpoint_timesteps(self%handle)
  end function

  !> The attributes as JSON.
  function state_attributes(self, ierr) result(json)
    class(penstock_checkpoint_state), intent(in) :: self
    integer, intent(out), optional :: ierr
    character(:), allocatable :: json
    type(c_ptr) :: pointer
    integer(c_int) :: code

    json = ""
    code = c_checkpoint_attributes(self%handle, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, json)
    call finish(code, ierr)
  end function

  subroutine state_free(self)
    class(penstock_checkpoint_state), intent(inout) :: self

    if (c_associated(self%handle)) call c_checkpoint_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  impure elemental subroutine state_final(self)
    type(penstock_checkpoint_state), intent(inout) :: self

    call self%free()
  end subroutine

  subroutine state_assign(self, other)
    class(penstock_checkpoint_state), intent(inout) :: self
    class(penstock_checkpoint_state), intent(in) :: other

    if (c_associated(self%handle, other%handle)) return
    error stop "a penstock_checkpoint_state cannot be assigned: find it again"
  end subroutine
end module
