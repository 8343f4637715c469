!> The functions and structures of penstock.h, one by one, as Fortran calls C.
!>
!> Programs use the module `penstock`. What stands here keeps the order and the names of the header,
!> which says what each function does: `penstock_write()` is `c_write`, and the structure
!> `penstock_memory` the type `c_memory`. Types with names of the header are those that programs
!> see. Dimensions are in C order here. An optional argument that is absent is NULL.
module penstock_c
  use, intrinsic :: iso_c_binding
  implicit none
  public

  enum, bind(C)
    enumerator :: PENSTOCK_OK = 0
    !> A schema, shape, type, mesh or option does not fit.
    enumerator :: PENSTOCK_ERR_SCHEMA = 1
    !> The ranks of a collective call ask for different things.
    enumerator :: PENSTOCK_ERR_MISMATCH = 2
    !> Boxes that must be disjoint overlap.
    enumerator :: PENSTOCK_ERR_OVERLAP = 3
    !> A store, array or file is not there.
    enumerator :: PENSTOCK_ERR_MISSING = 4
    !> A store is there and cannot be understood.
    enumerator :: PENSTOCK_ERR_DAMAGED = 5
    !> No permission to write or read there.
    enumerator :: PENSTOCK_ERR_READ_ONLY = 6
    !> No space is left.
    enumerator :: PENSTOCK_ERR_FULL = 7
    !> Another job is writing the same target.
    enumerator :: PENSTOCK_ERR_BUSY = 8
    !> Another rank left, or cannot be reached.
    enumerator :: PENSTOCK_ERR_PEER = 9
    !> Penstock does not do what was asked for.
    enumerator :: PENSTOCK_ERR_UNSUPPORTED = 10
    !> A disk or the operating system failed in another way.
    enumerator :: PENSTOCK_ERR_IO = 11
    !> Something is there already, or a directory is not empty.
    enumerator :: PENSTOCK_ERR_EXISTS = 12
  end enum

  enum, bind(C)
    enumerator :: PENSTOCK_AUTO = -1, PENSTOCK_NO = 0, PENSTOCK_YES = 1
  end enum

  !> Kinds of what a path of a volume names.
  enum, bind(C)
    enumerator :: PENSTOCK_FILE_KIND = 0, PENSTOCK_DIRECTORY_KIND = 1, PENSTOCK_SYMLINK_KIND = 2
  end enum

  !> Orders of a subfile: blocks, rows of BSUs, or columns.
  enum, bind(C)
    enumerator :: PENSTOCK_BLOCK_ORDER = 0, PENSTOCK_ROW_ORDER = 1, PENSTOCK_COLUMN_ORDER = 2
  end enum

  enum, bind(C)
    enumerator :: PENSTOCK_SEEK_SET = 0, PENSTOCK_SEEK_CUR = 1
  end enum

  !> The last extent of an array of rows: in a group, such an array has another extent at each
  !> timestep and checkpoint, the sum of the rows that the ranks bring.
  integer(c_int64_t), parameter :: PENSTOCK_ROWS = -1_c_int64_t

  type, bind(C) :: c_error
    integer(c_int) :: code
    integer(c_int64_t) :: rank
    integer(c_int64_t) :: server
    type(c_ptr) :: doing
    type(c_ptr) :: path
    integer(c_int64_t) :: first
    integer(c_int64_t) :: end
    type(c_ptr) :: cause
    type(c_ptr) :: text
  end type

  type, bind(C) :: c_session_options
    integer(c_size_t) :: size = 0
    type(c_ptr) :: transport = c_null_ptr
    type(c_ptr) :: root = c_null_ptr
    integer(c_int64_t) :: servers = 0
    type(c_ptr) :: url = c_null_ptr
    type(c_ptr) :: keys = c_null_ptr
    integer(c_int) :: dedicated = PENSTOCK_AUTO
    integer(c_int) :: sync = PENSTOCK_YES
    integer(c_int) :: direct = PENSTOCK_AUTO
    integer(c_int64_t) :: block_bytes = 0
    integer(c_int64_t) :: background_bytes = 0
    integer(c_int64_t) :: cache_bytes = 0
    type(c_ptr) :: strategy = c_null_ptr
  end type

  type, bind(C) :: c_memory
    type(c_ptr) :: base = c_null_ptr
    type(c_ptr) :: shape = c_null_ptr
    type(c_ptr) :: strides = c_null_ptr
  end type

  !> What a collective call did.
  type, bind(C) :: penstock_report
    !> Bytes of the array, or of all arrays of a group.
    integer(c_int64_t) :: bytes = 0
    !> Wall time on this rank.
    real(c_double) :: seconds = 0
    !> Blocks that all servers moved.
    integer(c_int64_t) :: blocks = 0
    !> Bytes between buffers and disks, decoded, with padding.
    integer(c_int64_t) :: disk_bytes = 0
    !> Memgets or memputs.
    integer(c_int64_t) :: transfers = 0
    !> Bytes of the staging buffers of all servers.
    integer(c_int64_t) :: buffer_bytes = 0
    !> Number of servers.
    integer(c_int64_t) :: servers = 0
  end type

  type, bind(C) :: c_call_options
    integer(c_size_t) :: size = 0
    type(c_ptr) :: strategy = c_null_ptr
    type(c_ptr) :: background = c_null_ptr
    type(c_ptr) :: attributes = c_null_ptr
    real(c_double) :: time = 0
    integer(c_int64_t) :: step = -1
  end type

  type, bind(C) :: c_locals
    integer(c_size_t) :: count = 0
    type(c_ptr) :: memories = c_null_ptr
  end type

  type, bind(C) :: c_copy_options
    integer(c_size_t) :: size = 0
    type(c_ptr) :: arrays = c_null_ptr
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: chunks = c_null_ptr
    type(c_ptr) :: subchunks = c_null_ptr
    type(c_ptr) :: codec = c_null_ptr
    type(c_ptr) :: row_major = c_null_ptr
    integer(c_size_t) :: raw_dims = 0
    type(c_ptr) :: raw_shape = c_null_ptr
    type(c_ptr) :: raw_dtype = c_null_ptr
    integer(c_int64_t) :: memory_bytes = 0
    integer(c_int) :: overwrite = 0
    integer(c_int) :: drop_attributes = 0
    integer(c_int64_t) :: ranks = 0
    integer(c_int) :: sync = PENSTOCK_YES
    type(c_funptr) :: progress = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
  end type

  !> What a copy has done.
  type, bind(C) :: penstock_copy_report
    !> Bytes of the arrays, and bytes that were read for them.
    integer(c_int64_t) :: bytes = 0
    integer(c_int64_t) :: read_bytes = 0
    real(c_double) :: seconds = 0
    !> Slabs that were copied, and those that an earlier, unfinished copy had left.
    integer(c_int64_t) :: slabs = 0
    integer(c_int64_t) :: slabs_found = 0
  end type

  type, bind(C) :: c_volume_options
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: servers = 0
    integer(c_int64_t) :: block_bytes = 0
    integer(c_int64_t) :: capacity = 0
    integer(c_size_t) :: disk_count = 0
    type(c_ptr) :: disks = c_null_ptr
  end type

  type, bind(C) :: c_fs_options
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: servers = 0
    integer(c_int) :: dedicated = PENSTOCK_NO
    integer(c_int64_t) :: cache_bytes = 0
    integer(c_int) :: direct = PENSTOCK_NO
    type(c_ptr) :: keys = c_null_ptr
  end type

  !> The attributes of a file, a directory or a symbolic link. Times are nanoseconds since 1970.
  type, bind(C) :: penstock_stat
    integer(c_int) :: kind = PENSTOCK_FILE_KIND
    integer(c_int32_t) :: owner = 0
    integer(c_int32_t) :: group = 0
    integer(c_int32_t) :: mode = 0
    integer(c_int64_t) :: created = 0
    integer(c_int64_t) :: accessed = 0
    integer(c_int64_t) :: changed = 0
    !> The last change of the contents.
    integer(c_int64_t) :: modified = 0
    !> The size in canonical order, or of a link's target.
    integer(c_int64_t) :: bytes = 0
    !> Cells, bytes of a BSU, and server of cell 0, of a file.
    integer(c_int64_t) :: cells = 0
    integer(c_int64_t) :: bsu_bytes = 0
    integer(c_int64_t) :: base = 0
    !> The number of checkpoints so far.
    integer(c_int64_t) :: checkpoints = 0
  end type

  !> The space of a volume, in bytes.
  type, bind(C) :: penstock_usage
    !> Of all blocks, of those in use, and of those that the user's files have.
    integer(c_int64_t) :: bytes = 0
    integer(c_int64_t) :: used = 0
    integer(c_int64_t) :: of_user = 0
    !> What the user may have, or -1.
    integer(c_int64_t) :: quota = 0
  end type

  !> A view deals the BSUs of a file out to disjoint subfiles. As it is, it makes one subfile: the
  !> whole file, striped over its cells by one BSU.
  type, bind(C) :: penstock_view
    !> BSUs down a cell that make a block.
    integer(c_int64_t) :: vbs = 1
    !> Blocks down, of different subfiles.
    integer(c_int64_t) :: vn = 1
    !> Cells across that make a block.
    integer(c_int64_t) :: hbs = 1
    !> Blocks across, of different subfiles.
    integer(c_int64_t) :: hn = 1
  end type

  type, bind(C) :: c_transfer_options
    integer(c_size_t) :: size = 0
    type(c_ptr) :: view = c_null_ptr
    integer(c_int64_t) :: subfile = 0
    integer(c_int) :: order = PENSTOCK_BLOCK_ORDER
    integer(c_int) :: of_checkpoint = 0
    integer(c_int64_t) :: memory_bytes = 0
    integer(c_int64_t) :: cells = 0
    integer(c_int64_t) :: bsu_bytes = 0
    integer(c_int64_t) :: base = -1
    integer(c_int32_t) :: mode = int(o'644', c_int32_t)
    integer(c_int) :: overwrite = 0
  end type

  !> A pointer into a subfile that processes share: a token to hand to others.
  type, bind(C) :: penstock_pointer
    integer(c_int64_t) :: server = 0
    integer(c_int64_t) :: number = 0
  end type

  interface
    function c_version() bind(C, name="penstock_version") result(value)
      import
      type(c_ptr) :: value
    end function
    function c_last_error() bind(C, name="penstock_last_error") result(value)
      import
      type(c_ptr) :: value
    end function
    function c_code_name(code) bind(C, name="penstock_code_name") result(value)
      import
      integer(c_int), value :: code
      type(c_ptr) :: value
    end function
    subroutine c_free(text) bind(C, name="penstock_free")
      import
      type(c_ptr), value :: text
    end subroutine
    function c_session_open(comm, options, session) bind(C, name="penstock_session_open") &
        result(code)
      import
      type(c_ptr), value :: comm
      type(c_session_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: session
      integer(c_int) :: code
    end function
    function c_session_open_f(comm, options, session) bind(C, name="penstock_session_open_f") &
        result(code)
      import
      integer(c_int), value :: comm
      type(c_session_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: session
      integer(c_int) :: code
    end function
    function c_seats_create(ranks, options, seats) bind(C, name="penstock_seats_create") &
        result(code)
      import
      integer(c_size_t), value :: ranks
      type(c_session_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: seats(*)
      integer(c_int) :: code
    end function
    function c_seat_open(seat, session) bind(C, name="penstock_seat_open") result(code)
      import
      type(c_ptr), value :: seat
      type(c_ptr), intent(out) :: session
      integer(c_int) :: code
    end function
    subroutine c_seat_free(seat) bind(C, name="penstock_seat_free")
      import
      type(c_ptr), value :: seat
    end subroutine
    function c_session_rank(session) bind(C, name="penstock_session_rank") result(value)
      import
      type(c_ptr), value :: session
      integer(c_int64_t) :: value
    end function
    function c_session_size(session) bind(C, name="penstock_session_size") result(value)
      import
      type(c_ptr), value :: session
      integer(c_int64_t) :: value
    end function
    function c_session_servers(session) bind(C, name="penstock_session_servers") result(value)
      import
      type(c_ptr), value :: session
      integer(c_int64_t) :: value
    end function
    function c_session_is_client(session) bind(C, name="penstock_session_is_client") &
        result(code)
      import
      type(c_ptr), value :: session
      integer(c_int) :: code
    end function
    function c_session_barrier(session) bind(C, name="penstock_session_barrier") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int) :: code
    end function
    function c_session_refuse(session, error, doing, cause) &
        bind(C, name="penstock_session_refuse") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int), value :: error
      character(kind=c_char), intent(in), optional :: doing(*), cause(*)
      integer(c_int) :: code
    end function
    function c_session_close(session) bind(C, name="penstock_session_close") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int) :: code
    end function
    subroutine c_session_leave(session, cause) bind(C, name="penstock_session_leave")
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: cause(*)
    end subroutine
    function c_list_runs(count, offsets, lengths, list) bind(C, name="penstock_list_runs") &
        result(code)
      import
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(in), optional :: offsets(*), lengths(*)
      type(c_ptr), intent(out) :: list
      integer(c_int) :: code
    end function
    function c_list_strided(start, length, loops, counts, strides, list) bind(C, &
        name="penstock_list_strided") result(code)
      import
      integer(c_int64_t), value :: start, length
      integer(c_size_t), value :: loops
      integer(c_int64_t), intent(in), optional :: counts(*), strides(*)
      type(c_ptr), intent(out) :: list
      integer(c_int) :: code
    end function
    function c_list_elements(list) bind(C, name="penstock_list_elements") result(value)
      import
      type(c_ptr), value :: list
      integer(c_int64_t) :: value
    end function
    subroutine c_list_free(list) bind(C, name="penstock_list_free")
      import
      type(c_ptr), value :: list
    end subroutine
    function c_array_create(name, dims, shape, dtype, array) bind(C, &
        name="penstock_array_create") result(code)
      import
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_size_t), value :: dims
      integer(c_int64_t), intent(in), optional :: shape(*)
      character(kind=c_char), intent(in), optional :: dtype(*)
      type(c_ptr), intent(out) :: array
      integer(c_int) :: code
    end function
    function c_array_copy(array, copy) bind(C, name="penstock_array_copy") result(code)
      import
      type(c_ptr), value :: array
      type(c_ptr), intent(out) :: copy
      integer(c_int) :: code
    end function
    subroutine c_array_free(array) bind(C, name="penstock_array_free")
      import
      type(c_ptr), value :: array
    end subroutine
    function c_array_set_distribution(array, dists, mesh_dims, mesh, halo) bind(C, &
        name="penstock_array_set_distribution") result(code)
      import
      type(c_ptr), value :: array
      character(kind=c_char), intent(in), optional :: dists(*)
      integer(c_size_t), value :: mesh_dims
      integer(c_int64_t), intent(in), optional :: mesh(*), halo(*)
      integer(c_int) :: code
    end function
    function c_array_set_boxes(array, count, starts, shapes, halo) bind(C, &
        name="penstock_array_set_boxes") result(code)
      import
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(in), optional :: starts(*), shapes(*), halo(*)
      integer(c_int) :: code
    end function
    function c_array_set_list(array, list, places) bind(C, name="penstock_array_set_list") &
        result(code)
      import
      type(c_ptr), value :: array, list, places
      integer(c_int) :: code
    end function
    function c_array_set_region_boxes(array, count, starts, shapes) bind(C, &
        name="penstock_array_set_region_boxes") result(code)
      import
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(in), optional :: starts(*), shapes(*)
      integer(c_int) :: code
    end function
    function c_array_set_region_list(array, list, places) bind(C, &
        name="penstock_array_set_region_list") result(code)
      import
      type(c_ptr), value :: array, list, places
      integer(c_int) :: code
    end function
    function c_array_set_chunks(array, chunk, subchunks, codec) bind(C, &
        name="penstock_array_set_chunks") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), intent(in), optional :: chunk(*), subchunks(*)
      character(kind=c_char), intent(in), optional :: codec(*)
      integer(c_int) :: code
    end function
    function c_array_set_dataset(array, format, dataset, chunk, filters) bind(C, &
        name="penstock_array_set_dataset") result(code)
      import
      type(c_ptr), value :: array
      character(kind=c_char), intent(in), optional :: format(*), dataset(*), filters(*)
      integer(c_int64_t), intent(in), optional :: chunk(*)
      integer(c_int) :: code
    end function
    function c_array_set_row_major(array, format) bind(C, &
        name="penstock_array_set_row_major") result(code)
      import
      type(c_ptr), value :: array
      character(kind=c_char), intent(in), optional :: format(*)
      integer(c_int) :: code
    end function
    function c_array_set_parts(array, dists, mesh_dims, mesh) bind(C, &
        name="penstock_array_set_parts") result(code)
      import
      type(c_ptr), value :: array
      character(kind=c_char), intent(in), optional :: dists(*)
      integer(c_size_t), value :: mesh_dims
      integer(c_int64_t), intent(in), optional :: mesh(*)
      integer(c_int) :: code
    end function
    function c_array_set_shares(array, subchunks, codec) bind(C, &
        name="penstock_array_set_shares") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), intent(in), optional :: subchunks(*)
      character(kind=c_char), intent(in), optional :: codec(*)
      integer(c_int) :: code
    end function
    function c_array_set_natural(array) bind(C, name="penstock_array_set_natural") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int) :: code
    end function
    function c_array_set_dimension_names(array, names) bind(C, &
        name="penstock_array_set_dimension_names") result(code)
      import
      type(c_ptr), value :: array
      type(c_ptr), intent(in), optional :: names(*)
      integer(c_int) :: code
    end function
    function c_array_set_attributes(array, json) bind(C, &
        name="penstock_array_set_attributes") result(code)
      import
      type(c_ptr), value :: array
      character(kind=c_char), intent(in), optional :: json(*)
      integer(c_int) :: code
    end function
    function c_array_set_fill(array, value) bind(C, name="penstock_array_set_fill") result(code)
      import
      type(c_ptr), value :: array, value
      integer(c_int) :: code
    end function
    function c_array_name(array) bind(C, name="penstock_array_name") result(value)
      import
      type(c_ptr), value :: array
      type(c_ptr) :: value
    end function
    function c_array_dims(array) bind(C, name="penstock_array_dims") result(value)
      import
      type(c_ptr), value :: array
      integer(c_size_t) :: value
    end function
    function c_array_shape(array) bind(C, name="penstock_array_shape") result(value)
      import
      type(c_ptr), value :: array
      type(c_ptr) :: value
    end function
    function c_array_dtype(array) bind(C, name="penstock_array_dtype") result(value)
      import
      type(c_ptr), value :: array
      type(c_ptr) :: value
    end function
    function c_array_element_bytes(array) bind(C, name="penstock_array_element_bytes") &
        result(value)
      import
      type(c_ptr), value :: array
      integer(c_size_t) :: value
    end function
    function c_array_attributes(array, json) bind(C, name="penstock_array_attributes") &
        result(code)
      import
      type(c_ptr), value :: array
      type(c_ptr), intent(out) :: json
      integer(c_int) :: code
    end function
    function c_array_disk(array, text) bind(C, name="penstock_array_disk") result(code)
      import
      type(c_ptr), value :: array
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_array_local_count(array, rank, count) bind(C, &
        name="penstock_array_local_count") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), value :: rank
      integer(c_size_t), intent(out) :: count
      integer(c_int) :: code
    end function
    function c_array_local_shape(array, rank, part, shape) bind(C, &
        name="penstock_array_local_shape") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), value :: rank
      integer(c_size_t), value :: part
      integer(c_int64_t), intent(out) :: shape(*)
      integer(c_int) :: code
    end function
    function c_array_local_bytes(array, rank, bytes) bind(C, &
        name="penstock_array_local_bytes") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), value :: rank
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: code
    end function
    function c_array_local_indices(array, rank, part, dim, first, block, stride, extent) &
        bind(C, name="penstock_array_local_indices") result(code)
      import
      type(c_ptr), value :: array
      integer(c_int64_t), value :: rank
      integer(c_size_t), value :: part, dim
      integer(c_int64_t), intent(out) :: first, block, stride, extent
      integer(c_int) :: code
    end function
    function c_write(session, path, array, local, report) bind(C, name="penstock_write") &
        result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array, local
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_read(session, path, array, local, report) bind(C, name="penstock_read") &
        result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array, local
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_write_parts(session, path, array, count, locals, options, report) bind(C, &
        name="penstock_write_parts") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_read_parts(session, path, array, count, locals, options, report) bind(C, &
        name="penstock_read_parts") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_begin_write(session, path, array, count, locals, options, split) bind(C, &
        name="penstock_begin_write") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: split
      integer(c_int) :: code
    end function
    function c_begin_read(session, path, array, count, locals, options, split) bind(C, &
        name="penstock_begin_read") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: split
      integer(c_int) :: code
    end function
    function c_split_test(split, has_ended) bind(C, name="penstock_split_test") result(code)
      import
      type(c_ptr), value :: split
      integer(c_int), intent(out) :: has_ended
      integer(c_int) :: code
    end function
    function c_split_end(split, report) bind(C, name="penstock_split_end") result(code)
      import
      type(c_ptr), value :: split
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_explain(session, path, array, is_write, strategy, text) bind(C, &
        name="penstock_explain") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), value :: array
      integer(c_int), value :: is_write
      character(kind=c_char), intent(in), optional :: strategy(*)
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_array_open(session, path, name, array) bind(C, name="penstock_array_open") &
        result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*), name(*)
      type(c_ptr), intent(out) :: array
      integer(c_int) :: code
    end function
    function c_open_array_open(session, path, name, is_writable, open) bind(C, &
        name="penstock_open_array_open") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: path(*), name(*)
      integer(c_int), value :: is_writable
      type(c_ptr), intent(out) :: open
      integer(c_int) :: code
    end function
    function c_open_array_name(open) bind(C, name="penstock_open_array_name") result(value)
      import
      type(c_ptr), value :: open
      type(c_ptr) :: value
    end function
    function c_open_array_dims(open) bind(C, name="penstock_open_array_dims") result(value)
      import
      type(c_ptr), value :: open
      integer(c_size_t) :: value
    end function
    function c_open_array_shape(open) bind(C, name="penstock_open_array_shape") result(value)
      import
      type(c_ptr), value :: open
      type(c_ptr) :: value
    end function
    function c_open_array_dtype(open) bind(C, name="penstock_open_array_dtype") result(value)
      import
      type(c_ptr), value :: open
      type(c_ptr) :: value
    end function
    function c_open_array_read(open, start, shape, local) bind(C, &
        name="penstock_open_array_read") result(code)
      import
      type(c_ptr), value :: open
      integer(c_int64_t), intent(in), optional :: start(*), shape(*)
      type(c_memory), intent(in), optional :: local
      integer(c_int) :: code
    end function
    function c_open_array_write(open, start, shape, local) bind(C, &
        name="penstock_open_array_write") result(code)
      import
      type(c_ptr), value :: open
      integer(c_int64_t), intent(in), optional :: start(*), shape(*)
      type(c_memory), intent(in), optional :: local
      integer(c_int) :: code
    end function
    function c_open_array_read_list(open, list, places, local) bind(C, &
        name="penstock_open_array_read_list") result(code)
      import
      type(c_ptr), value :: open, list, places
      type(c_memory), intent(in), optional :: local
      integer(c_int) :: code
    end function
    function c_open_array_write_list(open, list, places, local) bind(C, &
        name="penstock_open_array_write_list") result(code)
      import
      type(c_ptr), value :: open, list, places
      type(c_memory), intent(in), optional :: local
      integer(c_int) :: code
    end function
    function c_open_array_read_all(open, array, count, locals, report) bind(C, &
        name="penstock_open_array_read_all") result(code)
      import
      type(c_ptr), value :: open, array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_open_array_write_all(open, array, count, locals, report) bind(C, &
        name="penstock_open_array_write_all") result(code)
      import
      type(c_ptr), value :: open, array
      integer(c_size_t), value :: count
      type(c_memory), intent(in) :: locals(*)
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_open_array_schema(open, array) bind(C, name="penstock_open_array_schema") &
        result(code)
      import
      type(c_ptr), value :: open
      type(c_ptr), intent(out) :: array
      integer(c_int) :: code
    end function
    function c_open_array_flush(open) bind(C, name="penstock_open_array_flush") result(code)
      import
      type(c_ptr), value :: open
      integer(c_int) :: code
    end function
    function c_open_array_close(open) bind(C, name="penstock_open_array_close") result(code)
      import
      type(c_ptr), value :: open
      integer(c_int) :: code
    end function
    function c_group_create(name, path, group) bind(C, name="penstock_group_create") &
        result(code)
      import
      character(kind=c_char), intent(in), optional :: name(*), path(*)
      type(c_ptr), intent(out) :: group
      integer(c_int) :: code
    end function
    subroutine c_group_free(group) bind(C, name="penstock_group_free")
      import
      type(c_ptr), value :: group
    end subroutine
    function c_group_add(group, array) bind(C, name="penstock_group_add") result(code)
      import
      type(c_ptr), value :: group, array
      integer(c_int) :: code
    end function
    function c_group_replace(group, array) bind(C, name="penstock_group_replace") result(code)
      import
      type(c_ptr), value :: group, array
      integer(c_int) :: code
    end function
    function c_group_set_keep(group, keep) bind(C, name="penstock_group_set_keep") result(code)
      import
      type(c_ptr), value :: group
      integer(c_int64_t), value :: keep
      integer(c_int) :: code
    end function
    function c_group_set_attributes(group, json) bind(C, &
        name="penstock_group_set_attributes") result(code)
      import
      type(c_ptr), value :: group
      character(kind=c_char), intent(in), optional :: json(*)
      integer(c_int) :: code
    end function
    function c_group_set_time_attributes(group, json) bind(C, &
        name="penstock_group_set_time_attributes") result(code)
      import
      type(c_ptr), value :: group
      character(kind=c_char), intent(in), optional :: json(*)
      integer(c_int) :: code
    end function
    function c_group_set_time_chunk(group, timesteps) bind(C, &
        name="penstock_group_set_time_chunk") result(code)
      import
      type(c_ptr), value :: group
      integer(c_int64_t), value :: timesteps
      integer(c_int) :: code
    end function
    function c_group_add_coordinate(group, name, dims, dimension_names, shape, dtype, values, &
        attributes) bind(C, name="penstock_group_add_coordinate") result(code)
      import
      type(c_ptr), value :: group
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_size_t), value :: dims
      type(c_ptr), intent(in), optional :: dimension_names(*)
      integer(c_int64_t), intent(in), optional :: shape(*)
      character(kind=c_char), intent(in), optional :: dtype(*)
      type(c_ptr), value :: values
      character(kind=c_char), intent(in), optional :: attributes(*)
      integer(c_int) :: code
    end function
    function c_group_add_labels(group, name, dims, dimension_names, shape, values, &
        attributes) bind(C, name="penstock_group_add_labels") result(code)
      import
      type(c_ptr), value :: group
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_size_t), value :: dims
      type(c_ptr), intent(in), optional :: dimension_names(*)
      integer(c_int64_t), intent(in), optional :: shape(*)
      type(c_ptr), intent(in), optional :: values(*)
      character(kind=c_char), intent(in), optional :: attributes(*)
      integer(c_int) :: code
    end function
    function c_timestep(session, group, locals, options, report) bind(C, &
        name="penstock_timestep") result(code)
      import
      type(c_ptr), value :: session, group
      type(c_locals), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_begin_timestep(session, group, locals, options, split) bind(C, &
        name="penstock_begin_timestep") result(code)
      import
      type(c_ptr), value :: session, group
      type(c_locals), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: split
      integer(c_int) :: code
    end function
    function c_checkpoint(session, group, locals, options, report) bind(C, &
        name="penstock_checkpoint") result(code)
      import
      type(c_ptr), value :: session, group
      type(c_locals), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_begin_checkpoint(session, group, locals, options, split) bind(C, &
        name="penstock_begin_checkpoint") result(code)
      import
      type(c_ptr), value :: session, group
      type(c_locals), intent(in) :: locals(*)
      type(c_call_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: split
      integer(c_int) :: code
    end function
    function c_find_checkpoint(session, group, step, state) bind(C, &
        name="penstock_find_checkpoint") result(code)
      import
      type(c_ptr), value :: session, group
      integer(c_int64_t), value :: step
      type(c_ptr), intent(out) :: state
      integer(c_int) :: code
    end function
    function c_restart(session, group, state, locals, report) bind(C, &
        name="penstock_restart") result(code)
      import
      type(c_ptr), value :: session, group, state
      type(c_locals), intent(in) :: locals(*)
      type(penstock_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_checkpoint_step(state) bind(C, name="penstock_checkpoint_step") result(value)
      import
      type(c_ptr), value :: state
      integer(c_int64_t) :: value
    end function
    function c_checkpoint_time(state) bind(C, name="penstock_checkpoint_time") result(value)
      import
      type(c_ptr), value :: state
      real(c_double) :: value
    end function
    function c_checkpoint_timesteps(state) bind(C, name="penstock_checkpoint_timesteps") &
        result(value)
      import
      type(c_ptr), value :: state
      integer(c_int64_t) :: value
    end function
    function c_checkpoint_attributes(state, json) bind(C, &
        name="penstock_checkpoint_attributes") result(code)
      import
      type(c_ptr), value :: state
      type(c_ptr), intent(out) :: json
      integer(c_int) :: code
    end function
    function c_checkpoint_array(session, group, state, name, array) bind(C, &
        name="penstock_checkpoint_array") result(code)
      import
      type(c_ptr), value :: session, group, state
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), intent(out) :: array
      integer(c_int) :: code
    end function
    subroutine c_checkpoint_free(state) bind(C, name="penstock_checkpoint_free")
      import
      type(c_ptr), value :: state
    end subroutine
    function c_copy(source, target, options, report) bind(C, name="penstock_copy") result(code)
      import
      character(kind=c_char), intent(in), optional :: source(*), target(*)
      type(c_copy_options), intent(in), optional :: options
      type(penstock_copy_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_session_copy(session, source, target, options, report) bind(C, &
        name="penstock_session_copy") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in), optional :: source(*), target(*)
      type(c_copy_options), intent(in), optional :: options
      type(penstock_copy_report), intent(out), optional :: report
      integer(c_int) :: code
    end function
    function c_verify(path, damages, text) bind(C, name="penstock_verify") result(code)
      import
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), intent(out) :: damages
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_repair(path, text) bind(C, name="penstock_repair") result(code)
      import
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_describe(path, json) bind(C, name="penstock_describe") result(code)
      import
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(out) :: json
      integer(c_int) :: code
    end function
    function c_volume_create(path, options) bind(C, name="penstock_volume_create") result(code)
      import
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_volume_options), intent(in), optional :: options
      integer(c_int) :: code
    end function
    function c_fs_open(comm, path, options, fs) bind(C, name="penstock_fs_open") result(code)
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_fs_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: fs
      integer(c_int) :: code
    end function
    function c_fs_open_f(comm, path, options, fs) bind(C, name="penstock_fs_open_f") &
        result(code)
      import
      integer(c_int), value :: comm
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_fs_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: fs
      integer(c_int) :: code
    end function
    function c_fs_rank(fs) bind(C, name="penstock_fs_rank") result(value)
      import
      type(c_ptr), value :: fs
      integer(c_int64_t) :: value
    end function
    function c_fs_clients(fs) bind(C, name="penstock_fs_clients") result(value)
      import
      type(c_ptr), value :: fs
      integer(c_int64_t) :: value
    end function
    function c_fs_servers(fs) bind(C, name="penstock_fs_servers") result(value)
      import
      type(c_ptr), value :: fs
      integer(c_int64_t) :: value
    end function
    function c_fs_block_bytes(fs) bind(C, name="penstock_fs_block_bytes") result(value)
      import
      type(c_ptr), value :: fs
      integer(c_int64_t) :: value
    end function
    function c_fs_close(fs) bind(C, name="penstock_fs_close") result(code)
      import
      type(c_ptr), value :: fs
      integer(c_int) :: code
    end function
    subroutine c_fs_leave(fs, cause) bind(C, name="penstock_fs_leave")
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: cause(*)
    end subroutine
    function c_fs_create(fs, path, cells, bsu_bytes, base, mode) bind(C, &
        name="penstock_fs_create") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), value :: cells, bsu_bytes, base
      integer(c_int32_t), value :: mode
      integer(c_int) :: code
    end function
    function c_fs_mkdir(fs, path, mode) bind(C, name="penstock_fs_mkdir") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int32_t), value :: mode
      integer(c_int) :: code
    end function
    function c_fs_symlink(fs, target, path) bind(C, name="penstock_fs_symlink") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: target(*), path(*)
      integer(c_int) :: code
    end function
    function c_fs_readlink(fs, path, target) bind(C, name="penstock_fs_readlink") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(out) :: target
      integer(c_int) :: code
    end function
    function c_fs_remove(fs, path) bind(C, name="penstock_fs_remove") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int) :: code
    end function
    function c_fs_rename(fs, from, to) bind(C, name="penstock_fs_rename") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: from(*), to(*)
      integer(c_int) :: code
    end function
    function c_fs_resize(fs, path, bytes) bind(C, name="penstock_fs_resize") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), value :: bytes
      integer(c_int) :: code
    end function
    function c_fs_resize_cells(fs, path, bytes) bind(C, name="penstock_fs_resize_cells") &
        result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), value :: bytes
      integer(c_int) :: code
    end function
    function c_fs_chmod(fs, path, mode) bind(C, name="penstock_fs_chmod") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int32_t), value :: mode
      integer(c_int) :: code
    end function
    function c_fs_chown(fs, path, user, group) bind(C, name="penstock_fs_chown") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), value :: user, group
      integer(c_int) :: code
    end function
    function c_fs_sync(fs) bind(C, name="penstock_fs_sync") result(code)
      import
      type(c_ptr), value :: fs
      integer(c_int) :: code
    end function
    function c_fs_stat(fs, path, stat) bind(C, name="penstock_fs_stat") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      type(penstock_stat), intent(out) :: stat
      integer(c_int) :: code
    end function
    function c_fs_cell_bytes(fs, path, cells, bytes) bind(C, name="penstock_fs_cell_bytes") &
        result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int64_t), value :: cells
      integer(c_int64_t), intent(out) :: bytes(*)
      integer(c_int) :: code
    end function
    function c_fs_list(fs, path, count, names) bind(C, name="penstock_fs_list") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_size_t), intent(out) :: count
      type(c_ptr), intent(out) :: names
      integer(c_int) :: code
    end function
    function c_fs_status(fs, path, json) bind(C, name="penstock_fs_status") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(out) :: json
      integer(c_int) :: code
    end function
    function c_fs_usage(fs, user, usage) bind(C, name="penstock_fs_usage") result(code)
      import
      type(c_ptr), value :: fs
      integer(c_int64_t), value :: user
      type(penstock_usage), intent(out) :: usage
      integer(c_int) :: code
    end function
    function c_fs_quota(fs, user, bytes) bind(C, name="penstock_fs_quota") result(code)
      import
      type(c_ptr), value :: fs
      integer(c_int32_t), value :: user
      integer(c_int64_t), value :: bytes
      integer(c_int) :: code
    end function
    function c_fs_rebalance(fs, count, servers, text) bind(C, name="penstock_fs_rebalance") &
        result(code)
      import
      type(c_ptr), value :: fs
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(in), optional :: servers(*)
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_fs_import(fs, local, path, options, bytes) bind(C, name="penstock_fs_import") &
        result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: local(*), path(*)
      type(c_transfer_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: code
    end function
    function c_fs_import_all(fs, local, path, options, bytes) bind(C, &
        name="penstock_fs_import_all") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: local(*), path(*)
      type(c_transfer_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: code
    end function
    function c_fs_export(fs, path, local, options, bytes) bind(C, name="penstock_fs_export") &
        result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*), local(*)
      type(c_transfer_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: code
    end function
    function c_fs_export_all(fs, path, local, options, bytes) bind(C, &
        name="penstock_fs_export_all") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*), local(*)
      type(c_transfer_options), intent(in), optional :: options
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: code
    end function
    function c_file_attach(fs, path, access, is_reckless, file) bind(C, &
        name="penstock_file_attach") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*), access(*)
      integer(c_int), value :: is_reckless
      type(c_ptr), intent(out) :: file
      integer(c_int) :: code
    end function
    function c_file_attach_all(fs, path, access, is_reckless, file) bind(C, &
        name="penstock_file_attach_all") result(code)
      import
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in), optional :: path(*), access(*)
      integer(c_int), value :: is_reckless
      type(c_ptr), intent(out) :: file
      integer(c_int) :: code
    end function
    function c_file_cells(file) bind(C, name="penstock_file_cells") result(value)
      import
      type(c_ptr), value :: file
      integer(c_int64_t) :: value
    end function
    function c_file_bsu_bytes(file) bind(C, name="penstock_file_bsu_bytes") result(value)
      import
      type(c_ptr), value :: file
      integer(c_int64_t) :: value
    end function
    function c_file_base(file) bind(C, name="penstock_file_base") result(value)
      import
      type(c_ptr), value :: file
      integer(c_int64_t) :: value
    end function
    function c_file_checkpoint(file) bind(C, name="penstock_file_checkpoint") result(code)
      import
      type(c_ptr), value :: file
      integer(c_int) :: code
    end function
    function c_file_rollback(file) bind(C, name="penstock_file_rollback") result(code)
      import
      type(c_ptr), value :: file
      integer(c_int) :: code
    end function
    function c_file_sync(file) bind(C, name="penstock_file_sync") result(code)
      import
      type(c_ptr), value :: file
      integer(c_int) :: code
    end function
    function c_file_detach(file) bind(C, name="penstock_file_detach") result(code)
      import
      type(c_ptr), value :: file
      integer(c_int) :: code
    end function
    function c_file_read_all(file, view, subfile, order, offset, memory, bytes, moved) &
        bind(C, name="penstock_file_read_all") result(code)
      import
      type(c_ptr), value :: file
      type(penstock_view), intent(in), optional :: view
      integer(c_int64_t), value :: subfile
      integer(c_int), value :: order
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_file_write_all(file, view, subfile, order, offset, memory, bytes, moved) &
        bind(C, name="penstock_file_write_all") result(code)
      import
      type(c_ptr), value :: file
      type(penstock_view), intent(in), optional :: view
      integer(c_int64_t), value :: subfile
      integer(c_int), value :: order
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_open(file, view, subfile, order, of_checkpoint, pointer, open) bind(C, &
        name="penstock_subfile_open") result(code)
      import
      type(c_ptr), value :: file
      type(penstock_view), intent(in), optional :: view
      integer(c_int64_t), value :: subfile
      integer(c_int), value :: order, of_checkpoint
      type(penstock_pointer), intent(in), optional :: pointer
      type(c_ptr), intent(out) :: open
      integer(c_int) :: code
    end function
    subroutine c_subfile_free(subfile) bind(C, name="penstock_subfile_free")
      import
      type(c_ptr), value :: subfile
    end subroutine
    function c_subfile_read(subfile, memory, bytes, moved) bind(C, &
        name="penstock_subfile_read") result(code)
      import
      type(c_ptr), value :: subfile, memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_write(subfile, memory, bytes, moved) bind(C, &
        name="penstock_subfile_write") result(code)
      import
      type(c_ptr), value :: subfile, memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_seek(subfile, offset, whence, position) bind(C, &
        name="penstock_subfile_seek") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset
      integer(c_int), value :: whence
      integer(c_int64_t), intent(out), optional :: position
      integer(c_int) :: code
    end function
    function c_subfile_read_at(subfile, offset, memory, bytes, moved) bind(C, &
        name="penstock_subfile_read_at") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_write_at(subfile, offset, memory, bytes, moved) bind(C, &
        name="penstock_subfile_write_at") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_begin_read_at(subfile, offset, memory, bytes, request) bind(C, &
        name="penstock_subfile_begin_read_at") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: request
      integer(c_int) :: code
    end function
    function c_subfile_begin_write_at(subfile, offset, memory, bytes, request) bind(C, &
        name="penstock_subfile_begin_write_at") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: request
      integer(c_int) :: code
    end function
    function c_request_test(request, has_ended) bind(C, name="penstock_request_test") &
        result(code)
      import
      type(c_ptr), value :: request
      integer(c_int), intent(out) :: has_ended
      integer(c_int) :: code
    end function
    function c_request_wait(request, moved) bind(C, name="penstock_request_wait") result(code)
      import
      type(c_ptr), value :: request
      integer(c_int64_t), intent(out), optional :: moved
      integer(c_int) :: code
    end function
    function c_subfile_share(subfile, pointer) bind(C, name="penstock_subfile_share") &
        result(code)
      import
      type(c_ptr), value :: subfile
      type(penstock_pointer), intent(out) :: pointer
      integer(c_int) :: code
    end function
    function c_subfile_explain(subfile, is_write, offset, bytes, text) bind(C, &
        name="penstock_subfile_explain") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int), value :: is_write
      integer(c_int64_t), value :: offset, bytes
      type(c_ptr), intent(out) :: text
      integer(c_int) :: code
    end function
    function c_subfile_prefetch(subfile, offset, bytes) bind(C, &
        name="penstock_subfile_prefetch") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset, bytes
      integer(c_int) :: code
    end function
    function c_subfile_flush(subfile, offset, bytes) bind(C, name="penstock_subfile_flush") &
        result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int64_t), value :: offset, bytes
      integer(c_int) :: code
    end function
    function c_subfile_sync(subfile) bind(C, name="penstock_subfile_sync") result(code)
      import
      type(c_ptr), value :: subfile
      integer(c_int) :: code
    end function
  end interface
end module
