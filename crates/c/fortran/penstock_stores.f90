!> Copies of stores, checks of them, and descriptions.
module penstock_stores
  use penstock_sessions
  use penstock_base
  implicit none
  private
  public :: penstock_progress, penstock_copy, penstock_session_copy
  public :: penstock_verify, penstock_repair, penstock_describe

  abstract interface
    !> Told now and then how many bytes are done, of all there are, by one thread at a time, which
    !> penstock_copy() may have started. .true. ends the copy, and that of all ranks with its
    !> session.
    function penstock_progress(done, all) result(ends)
      import :: int64
      integer(int64), intent(in) :: done, all
      logical :: ends
    end function
  end interface

  !> What C hands back to told().
  type :: listener
    procedure(penstock_progress), pointer, nopass :: progress => null()
  end type

  type :: copy_texts
    type(c_text) :: texts(7)
    integer(c_int64_t), allocatable :: raw_shape(:)
  end type

contains

  !> Copies an array or a whole data set into another arrangement, out of core. Not collective.
  !>
  !> `arrays` names some of them, with commas between; `name` is what an array is called in the
  !> target. `chunks` and `subchunks` are extents in Fortran's order, as "64,32,1", or by dimension
  !> names, as "x=64,y=32". `row_major` is "raw" or "npy". `raw_shape` and `raw_dtype` describe a
  !> raw source without a JSON file beside it. `ranks` threads share the work.
  subroutine penstock_copy(source, target, arrays, name, chunks, subchunks, codec, row_major, &
      raw_shape, raw_dtype, memory_bytes, overwrite, drop_attributes, ranks, sync, progress, &
      report, ierr)
    character(*), intent(in) :: source, target
    character(*), intent(in), optional :: arrays, name, chunks, subchunks, codec, row_major, &
        raw_dtype
    integer(int64), intent(in), optional :: raw_shape(:), memory_bytes
    logical, intent(in), optional :: overwrite, drop_attributes, sync
    integer, intent(in), optional :: ranks
    procedure(penstock_progress), optional :: progress
    type(penstock_copy_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_copy_options) :: options
    type(copy_texts), target :: texts
    type(listener), target :: told_one

    call set_up(options, texts, arrays, name, chunks, subchunks, codec, row_major, raw_shape, &
        raw_dtype, memory_bytes, overwrite, drop_attributes)
    if (present(ranks)) options%ranks = ranks
    if (present(sync)) options%sync = merge(PENSTOCK_YES, PENSTOCK_NO, sync)
    if (present(progress)) then
      told_one%progress => progress
      options%progress = c_funloc(told)
      options%context = c_loc(told_one)
    end if
    call finish(c_copy(c_string(source), c_string(target), options, report), ierr)
  end subroutine

  !> The same with all ranks of a session. Collective.
  subroutine penstock_session_copy(session, source, target, arrays, name, chunks, subchunks, &
      codec, row_major, raw_shape, raw_dtype, memory_bytes, overwrite, drop_attributes, &
      progress, report, ierr)
    class(penstock_session), intent(in) :: session
    character(*), intent(in) :: source, target
    character(*), intent(in), optional :: arrays, name, chunks, subchunks, codec, row_major, &
        raw_dtype
    integer(int64), intent(in), optional :: raw_shape(:), memory_bytes
    logical, intent(in), optional :: overwrite, drop_attributes
    procedure(penstock_progress), optional :: progress
    type(penstock_copy_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    type(c_copy_options) :: options
    type(copy_texts), target :: texts
    type(listener), target :: told_one

    call set_up(options, texts, arrays, name, chunks, subchunks, codec, row_major, raw_shape, &
        raw_dtype, memory_bytes, overwrite, drop_attributes)
    if (present(progress)) then
      told_one%progress => progress
      options%progress = c_funloc(told)
      options%context = c_loc(told_one)
    end if
    call finish(c_session_copy(session%handle, c_string(source), c_string(target), options, &
        report), ierr)
  end subroutine

  subroutine set_up(options, texts, arrays, name, chunks, subchunks, codec, row_major, raw_shape, &
      raw_dtype, memory_bytes, overwrite, drop_attributes)
    type(c_copy_options), intent(out) :: options
    type(copy_texts), intent(inout), target :: texts
    character(*), intent(in), optional :: arrays, name, chunks, subchunks, codec, row_major, &
        raw_dtype
    integer(int64), intent(in), optional :: raw_shape(:), memory_bytes
    logical, intent(in), optional :: overwrite, drop_attributes

    options%size = c_sizeof(options)
    options%arrays = c_held(texts%texts(1), arrays)
    options%name = c_held(texts%texts(2), name)
    if (present(chunks)) options%chunks = c_held(texts%texts(3), reversed_words(trim(chunks)))
    if (present(subchunks)) options%subchunks = c_held(texts%texts(4), &
        reversed_words(trim(subchunks)))
    options%codec = c_held(texts%texts(5), codec)
    options%row_major = c_held(texts%texts(6), row_major)
    options%raw_dtype = c_held(texts%texts(7), raw_dtype)
    if (present(raw_shape)) then
      allocate (texts%raw_shape, source=reversed(raw_shape))
      options%raw_dims = size(raw_shape, kind=c_size_t)
      options%raw_shape = c_loc(texts%raw_shape)
    end if
    if (present(memory_bytes)) options%memory_bytes = memory_bytes
    if (present(overwrite)) options%overwrite = merge(1, 0, overwrite)
    if (present(drop_attributes)) options%drop_attributes = merge(1, 0, drop_attributes)
  end subroutine

  !> What C calls, with a listener as its context.
  function told(done, all, context) bind(C) result(ends)
    integer(c_int64_t), value :: done, all
    type(c_ptr), value :: context
    integer(c_int) :: ends
    type(listener), pointer :: one

    call c_f_pointer(context, one)
    ends = merge(1, 0, one%progress(done, all))
  end function

  !> Reads all that is at `path` and compares what has checksums; `text` is the verdict in words,
  !> and `damages` how many things are wrong. Not collective.
  subroutine penstock_verify(path, damages, text, ierr)
    character(*), intent(in) :: path
    integer(int64), intent(out) :: damages
    character(:), allocatable, intent(out), optional :: text
    integer, intent(out), optional :: ierr
    type(c_ptr) :: pointer
    integer(c_int) :: code
    character(:), allocatable :: verdict

    damages = 0
    code = c_verify(c_string(path), damages, pointer)
    verdict = ""
    if (code == PENSTOCK_OK) call take_text(pointer, verdict)
    if (present(text)) text = verdict
    call finish(code, ierr)
  end subroutine

  !> Mends a group whose metadata another tool has rewritten; the text says what, a line each.
  function penstock_repair(path, ierr) result(text)
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr
    character(:), allocatable :: text
    type(c_ptr) :: pointer
    integer(c_int) :: code

    text = ""
    code = c_repair(c_string(path), pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, text)
    call finish(code, ierr)
  end function

  !> Describes what stands at `path`, in JSON, as the store has it.
  function penstock_describe(path, ierr) result(json)
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr
    character(:), allocatable :: json
    type(c_ptr) :: pointer
    integer(c_int) :: code

    json = ""
    code = c_describe(c_string(path), pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, json)
    call finish(code, ierr)
  end function
end module
