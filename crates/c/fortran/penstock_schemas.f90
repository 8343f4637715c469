!> Lists of elements, and arrays: what they are, how they lie in the memories of the ranks, and how
!> on disk.
module penstock_schemas
  use penstock_base
  implicit none
  private
  public :: penstock_list, penstock_array, penstock_locals, known_array
  public :: local_of, known_of, c_maybe_list

  !> A list of elements of an array, in array element order, or of places in a memory, in the same
  !> order. They count from 1. An assignment does not copy a list: it stops the program.
  type :: penstock_list
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure, private :: list_runs_32, list_runs_64, list_strided_32, list_strided_64
    procedure, private :: list_assign
    !> call list%runs(offsets, lengths): lengths(i) elements from offsets(i) on.
    generic :: runs => list_runs_32, list_runs_64
    !> call list%strided(start, length, counts, strides): a run of `length` elements from `start`
    !> on, repeated in loops, the innermost first: each has a count and a stride, elements.
    generic :: strided => list_strided_32, list_strided_64
    procedure :: elements => list_elements
    procedure :: free => list_free
    generic :: assignment(=) => list_assign
    final :: list_final
  end type

  !> An array. Dimensions, in all that it is told and tells, are in Fortran's order: the first
  !> varies fastest. The store has them the other way round, as files of HDF5 and NetCDF that
  !> Fortran programs write. An assignment makes a copy, which is changed by itself.
  type :: penstock_array
    type(c_ptr) :: handle = c_null_ptr
    logical :: by_list = .false.
  contains
    procedure, private :: array_create_32, array_create_64, array_assign
    procedure, private :: array_set_boxes_32, array_set_boxes_64
    procedure, private :: array_set_region_boxes_32, array_set_region_boxes_64
    procedure, private :: array_set_chunks_32, array_set_chunks_64
    procedure, private :: array_set_dataset_32, array_set_dataset_64
    !> call array%create(name, shape, dtype): `dtype` is one of "bool", "i1" to "i8", "u1" to "u8",
    !> "f2", "f4", "f8", "c8", "c16". Rank 0 holds all of it, and its chunks are as it lies in
    !> memory, until a procedure below says otherwise.
    generic :: create => array_create_32, array_create_64
    procedure :: distribute => array_distribute
    !> call array%set_boxes(starts, shapes): this rank holds boxes, which overlap no other. Each
    !> column is one box: where it starts, counted from 1, and its shape. There may be none.
    generic :: set_boxes => array_set_boxes_32, array_set_boxes_64
    procedure :: set_list => array_set_list
    !> As set_boxes, but a write leaves as it is stored what no rank's box holds, and boxes of reads
    !> may overlap.
    generic :: set_region_boxes => array_set_region_boxes_32, array_set_region_boxes_64
    procedure :: set_region_list => array_set_region_list
    !> call array%set_chunks(chunk, subchunks=, codec=): on disk, chunks of a Zarr v3 array.
    !> `subchunks` divides the chunk, which is then a shard. `codec` is "none", "zstd[:LEVEL]",
    !> "gzip[:LEVEL]", "blosc[:CNAME[:LEVEL[:SHUFFLE]]]", each with "+crc32c" behind it if wanted,
    !> "crc32c", or the codecs of Zarr's metadata, in JSON.
    generic :: set_chunks => array_set_chunks_32, array_set_chunks_64
    procedure :: set_row_major => array_set_row_major
    !> call array%set_dataset(format, dataset=, chunk=, filters=): on disk, a dataset of an HDF5 or
    !> NetCDF-4 file, "hdf5" or "netcdf". `dataset` is its path in the file; without it the path of
    !> the call names it ("run.h5:/fields/u"), or it has the array's name. Without `chunk` it is one
    !> run of elements. `filters` are words with "+" between, in this order: "shuffle",
    !> "deflate[:LEVEL]", "zstd[:LEVEL]", "bzip2[:LEVEL]", "fletcher32".
    generic :: set_dataset => array_set_dataset_32, array_set_dataset_64
    procedure :: set_parts => array_set_parts
    procedure :: set_natural => array_set_natural
    !> call array%set_shares(subchunks=, codec=): on disk, each rank's share, or each of its boxes,
    !> is a chunk of a Zarr v3 array, whatever its extents; boxes must form a grid. `subchunks` and
    !> `codec` are as of set_chunks.
    procedure :: set_shares => array_set_shares
    procedure :: set_dimension_names => array_set_dimension_names
    procedure :: set_attributes => array_set_attributes
    procedure :: set_fill => array_set_fill
    procedure :: name => array_name
    procedure :: dims => array_dims
    procedure :: shape => array_shape
    procedure :: dtype => array_dtype
    procedure :: element_bytes => array_element_bytes
    procedure :: attributes => array_attributes
    procedure :: disk => array_disk
    procedure :: local_count => array_local_count
    procedure :: local_shape => array_local_shape
    procedure :: local_start => array_local_start
    procedure :: local_bytes => array_local_bytes
    procedure :: local_indices => array_local_indices
    procedure :: free => array_free
    generic :: assignment(=) => array_assign
    final :: array_final
  end type

  type :: name_word
    character(:), allocatable :: text
  end type

  !> The local arrays of one call that moves several: each with the name of its array where the call
  !> is one of a group. They must be variables with the target attribute, and stay where they are
  !> until the call has ended.
  type :: penstock_locals
    type(c_local), allocatable :: memories(:)
    type(name_word), allocatable :: names(:)
  contains
    procedure, private :: locals_add, locals_add_named
    !> call locals%add(local), or call locals%add(name, local) for a group.
    generic :: add => locals_add, locals_add_named
    procedure :: count => locals_count
    procedure :: clear => locals_clear
  end type

  !> What the module must know of an array to tell whether a local array fits.
  type :: known_array
    character(:), allocatable :: name
    character(:), allocatable :: dtype
    integer :: local_dims = 0
  end type

contains

  ! ----------------------------------------------------------------------------------------------
  ! Lists

  subroutine list_runs_64(self, offsets, lengths, ierr)
    class(penstock_list), intent(inout) :: self
    integer(int64), intent(in) :: offsets(:), lengths(:)
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    if (size(offsets) /= size(lengths)) then
      call refuse("a list of runs needs as many lengths as offsets", ierr)
      return
    end if
    call list_take(self, c_list_runs(size(offsets, kind=c_size_t), offsets - 1, &
        [lengths], made), made, ierr)
  end subroutine

  subroutine list_runs_32(self, offsets, lengths, ierr)
    class(penstock_list), intent(inout) :: self
    integer(int32), intent(in) :: offsets(:), lengths(:)
    integer, intent(out), optional :: ierr

    call self%runs(int(offsets, int64), int(lengths, int64), ierr)
  end subroutine

  subroutine list_strided_64(self, start, length, counts, strides, ierr)
    class(penstock_list), intent(inout) :: self
    integer(int64), intent(in) :: start, length, counts(:), strides(:)
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    if (size(counts) /= size(strides)) then
      call refuse("a list of loops needs as many strides as counts", ierr)
      return
    end if
    call list_take(self, c_list_strided(start - 1, length, size(counts, kind=c_size_t), &
        reversed(counts), reversed(strides), made), made, ierr)
  end subroutine

  subroutine list_strided_32(self, start, length, counts, strides, ierr)
    class(penstock_list), intent(inout) :: self
    integer(int32), intent(in) :: start, length, counts(:), strides(:)
    integer, intent(out), optional :: ierr

    call self%strided(int(start, int64), int(length, int64), int(counts, int64), &
        int(strides, int64), ierr)
  end subroutine

  !> Puts the list that C has made in place of the one before.
  subroutine list_take(self, code, made, ierr)
    class(penstock_list), intent(inout) :: self
    integer(c_int), intent(in) :: code
    type(c_ptr), intent(in) :: made
    integer, intent(out), optional :: ierr

    if (code == PENSTOCK_OK) then
      call self%free()
      self%handle = made
    end if
    call finish(code, ierr)
  end subroutine

  !> The number of elements.
  function list_elements(self) result(elements)
    class(penstock_list), intent(in) :: self
    integer(int64) :: elements

    elements = c_list_elements(self%handle)
  end function

  subroutine list_free(self)
    class(penstock_list), intent(inout) :: self

    if (c_associated(self%handle)) call c_list_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  impure elemental subroutine list_final(self)
    type(penstock_list), intent(inout) :: self

    call self%free()
  end subroutine

  subroutine list_assign(self, other)
    class(penstock_list), intent(inout) :: self
    class(penstock_list), intent(in) :: other

    if (c_associated(self%handle, other%handle)) return
    error stop "a penstock_list cannot be assigned: make another one"
  end subroutine

  !> The handle of a list, or NULL where there is none.
  function c_maybe_list(list) result(handle)
    class(penstock_list), intent(in), optional :: list
    type(c_ptr) :: handle

    handle = c_null_ptr
    if (present(list)) handle = list%handle
  end function

  ! ----------------------------------------------------------------------------------------------
  ! Arrays: in memory

  subroutine array_create_64(self, name, shape, dtype, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: name, dtype
    integer(int64), intent(in) :: shape(:)
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made
    integer(c_int) :: code

    code = c_array_create(c_string(name), size(shape, kind=c_size_t), reversed(shape), &
        c_string(dtype), made)
    if (code == PENSTOCK_OK) then
      call self%free()
      self%handle = made
    end if
    call finish(code, ierr)
  end subroutine

  subroutine array_create_32(self, name, shape, dtype, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: name, dtype
    integer(int32), intent(in) :: shape(:)
    integer, intent(out), optional :: ierr

    call self%create(name, int(shape, int64), dtype, ierr)
  end subroutine

  !> Deals the array out over a mesh of ranks, as in High-Performance Fortran. `dists` has one of
  !> "BLOCK", "CYCLIC", "CYCLIC(k)" and "*" for each dimension, with commas between. The mesh has an
  !> extent for each dimension that is not "*"; ranks count through it with the first extent
  !> fastest. `halo` is the width of the ghost cells of the local array, which are left alone: one
  !> for all sides, one for each dimension, or halo(2, dims) with the widths below and above.
  subroutine array_distribute(self, dists, mesh, halo, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: dists
    integer, intent(in) :: mesh(:)
    integer, intent(in), optional :: halo(..)
    integer, intent(out), optional :: ierr
    integer(c_int64_t), allocatable :: widths(:)
    character(:), allocatable :: cause

    call c_halo(halo, self%dims(), widths, cause)
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    call array_held(self, .false., c_array_set_distribution(self%handle, &
        c_string(reversed_words(dists)), size(mesh, kind=c_size_t), reversed(mesh), widths), ierr)
  end subroutine

  subroutine array_set_boxes_64(self, starts, shapes, halo, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int64), intent(in) :: starts(:, :), shapes(:, :)
    integer, intent(in), optional :: halo(..)
    integer, intent(out), optional :: ierr
    integer(c_int64_t), allocatable :: widths(:)
    character(:), allocatable :: cause

    call c_halo(halo, self%dims(), widths, cause)
    if (cause == "") cause = box_fault(self, starts, shapes)
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    call array_held(self, .false., c_array_set_boxes(self%handle, size(starts, 2, c_size_t), &
        columns(starts - 1), columns(shapes), widths), ierr)
  end subroutine

  subroutine array_set_boxes_32(self, starts, shapes, halo, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int32), intent(in) :: starts(:, :), shapes(:, :)
    integer, intent(in), optional :: halo(..)
    integer, intent(out), optional :: ierr

    call array_set_boxes_64(self, int(starts, int64), int(shapes, int64), halo, ierr)
  end subroutine

  subroutine array_set_region_boxes_64(self, starts, shapes, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int64), intent(in) :: starts(:, :), shapes(:, :)
    integer, intent(out), optional :: ierr
    character(:), allocatable :: cause

    cause = box_fault(self, starts, shapes)
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    call array_held(self, .false., c_array_set_region_boxes(self%handle, &
        size(starts, 2, c_size_t), columns(starts - 1), columns(shapes)), ierr)
  end subroutine

  subroutine array_set_region_boxes_32(self, starts, shapes, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int32), intent(in) :: starts(:, :), shapes(:, :)
    integer, intent(out), optional :: ierr

    call array_set_region_boxes_64(self, int(starts, int64), int(shapes, int64), ierr)
  end subroutine

  !> What is wrong with boxes; empty if nothing is.
  function box_fault(self, starts, shapes) result(cause)
    class(penstock_array), intent(in) :: self
    integer(int64), intent(in) :: starts(:, :), shapes(:, :)
    character(:), allocatable :: cause
    integer :: dims

    cause = ""
    dims = self%dims()
    if (size(starts, 1) /= dims .or. size(shapes, 1) /= dims .or. &
        size(starts, 2) /= size(shapes, 2)) then
      cause = "starts and shapes of boxes must be of shape [dims, boxes]"
    else if (any(starts < 1)) then
      cause = "starts of boxes count from 1"
    end if
  end function

  !> The columns one after the other, each in the other order.
  function columns(numbers) result(turned)
    integer(int64), intent(in) :: numbers(:, :)
    integer(c_int64_t) :: turned(size(numbers))

    turned = reshape(numbers(size(numbers, 1):1:-1, :), [size(numbers)])
  end function

  !> This rank holds the elements of `list`, in their order, in a local array of rank 1, or at
  !> `places` of its memory. If one rank gives a list, all do.
  subroutine array_set_list(self, list, places, ierr)
    class(penstock_array), intent(inout) :: self
    class(penstock_list), intent(in) :: list
    class(penstock_list), intent(in), optional :: places
    integer, intent(out), optional :: ierr

    call array_held(self, .true., &
        c_array_set_list(self%handle, list%handle, c_maybe_list(places)), ierr)
  end subroutine

  !> As set_list, but a write leaves as it is stored what no rank's list holds.
  subroutine array_set_region_list(self, list, places, ierr)
    class(penstock_array), intent(inout) :: self
    class(penstock_list), intent(in) :: list
    class(penstock_list), intent(in), optional :: places
    integer, intent(out), optional :: ierr

    call array_held(self, .true., &
        c_array_set_region_list(self%handle, list%handle, c_maybe_list(places)), ierr)
  end subroutine

  !> Notes how a rank holds its share, where C has taken it.
  subroutine array_held(self, by_list, code, ierr)
    class(penstock_array), intent(inout) :: self
    logical, intent(in) :: by_list
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: ierr

    if (code == PENSTOCK_OK) self%by_list = by_list
    call finish(code, ierr)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Arrays: on disk

  subroutine array_set_chunks_64(self, chunk, subchunks, codec, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int64), intent(in) :: chunk(:)
    integer(int64), intent(in), optional :: subchunks(:)
    character(*), intent(in), optional :: codec
    integer, intent(out), optional :: ierr
    integer(c_int64_t), allocatable :: inner(:)
    character(:), allocatable :: c_codec
    logical :: fits
    integer :: dims

    dims = self%dims()
    fits = size(chunk) == dims
    if (present(subchunks)) then
      fits = fits .and. size(subchunks) == dims
      allocate (inner, source=reversed(subchunks))
    end if
    if (.not. fits) then
      call refuse("a chunk needs an extent for each dimension", ierr)
      return
    end if
    call c_maybe(codec, c_codec)
    call finish(c_array_set_chunks(self%handle, reversed(chunk), inner, c_codec), ierr)
  end subroutine

  subroutine array_set_chunks_32(self, chunk, subchunks, codec, ierr)
    class(penstock_array), intent(inout) :: self
    integer(int32), intent(in) :: chunk(:)
    integer(int32), intent(in), optional :: subchunks(:)
    character(*), intent(in), optional :: codec
    integer, intent(out), optional :: ierr
    integer(int64), allocatable :: inner(:)

    if (present(subchunks)) allocate (inner, source=int(subchunks, int64))
    call array_set_chunks_64(self, int(chunk, int64), inner, codec, ierr)
  end subroutine

  !> On disk: one file, "raw" or "npy", in which the first dimension of Fortran varies fastest.
  subroutine array_set_row_major(self, format, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: format
    integer, intent(out), optional :: ierr

    call finish(c_array_set_row_major(self%handle, c_string(format)), ierr)
  end subroutine

  subroutine array_set_dataset_64(self, format, dataset, chunk, filters, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: format
    character(*), intent(in), optional :: dataset, filters
    integer(int64), intent(in), optional :: chunk(:)
    integer, intent(out), optional :: ierr
    integer(c_int64_t), allocatable :: extents(:)
    character(:), allocatable :: c_dataset, c_filters

    if (present(chunk)) then
      if (size(chunk) /= self%dims()) then
        call refuse("a chunk needs an extent for each dimension", ierr)
        return
      end if
      allocate (extents, source=reversed(chunk))
    end if
    call c_maybe(dataset, c_dataset)
    call c_maybe(filters, c_filters)
    call finish(c_array_set_dataset(self%handle, c_string(format), c_dataset, extents, c_filters), &
        ierr)
  end subroutine

  subroutine array_set_dataset_32(self, format, dataset, chunk, filters, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: format
    character(*), intent(in), optional :: dataset, filters
    integer(int32), intent(in) :: chunk(:)
    integer, intent(out), optional :: ierr

    call array_set_dataset_64(self, format, dataset, int(chunk, int64), filters, ierr)
  end subroutine

  !> On disk: a file for each place of a mesh; only "BLOCK" and "*".
  subroutine array_set_parts(self, dists, mesh, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: dists
    integer, intent(in) :: mesh(:)
    integer, intent(out), optional :: ierr

    call finish(c_array_set_parts(self%handle, c_string(reversed_words(dists)), &
        size(mesh, kind=c_size_t), reversed(mesh)), ierr)
  end subroutine

  !> On disk: natural chunking, each rank's share one chunk. It is the default.
  subroutine array_set_natural(self, ierr)
    class(penstock_array), intent(inout) :: self
    integer, intent(out), optional :: ierr

    call finish(c_array_set_natural(self%handle), ierr)
  end subroutine

  subroutine array_set_shares(self, subchunks, codec, ierr)
    class(penstock_array), intent(inout) :: self
    integer, intent(in), optional :: subchunks(:)
    character(*), intent(in), optional :: codec
    integer, intent(out), optional :: ierr
    integer(c_int64_t), allocatable :: inner(:)
    character(:), allocatable :: c_codec

    if (present(subchunks)) then
      if (size(subchunks) /= self%dims()) then
        call refuse("a sub-chunk needs an extent for each dimension", ierr)
        return
      end if
      allocate (inner, source=reversed(int(subchunks, int64)))
    end if
    call c_maybe(codec, c_codec)
    call finish(c_array_set_shares(self%handle, inner, c_codec), ierr)
  end subroutine

  !> The names of the dimensions, in Fortran's order: ["x", "y", "z"].
  subroutine array_set_dimension_names(self, names, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: names(:)
    integer, intent(out), optional :: ierr
    type(c_ptr) :: block
    type(c_ptr), pointer :: words(:)

    if (size(names) /= self%dims()) then
      call refuse("an array needs a name for each dimension", ierr)
      return
    end if
    block = f_words(names(size(names):1:-1))
    call c_f_pointer(block, words, [size(names)])
    call finish(c_array_set_dimension_names(self%handle, words), ierr)
    call c_release(block)
  end subroutine

  !> Attributes, an object of JSON, in place of what was there.
  subroutine array_set_attributes(self, json, ierr)
    class(penstock_array), intent(inout) :: self
    character(*), intent(in) :: json
    integer, intent(out), optional :: ierr

    call finish(c_array_set_attributes(self%handle, c_string(json)), ierr)
  end subroutine

  !> The value of elements that nobody has written, a scalar of the array's type. Default: zero.
  subroutine array_set_fill(self, value, ierr)
    class(penstock_array), intent(inout) :: self
    type(*), dimension(..), intent(in) :: value
    integer, intent(out), optional :: ierr
    type(c_local) :: scalar
    character(:), allocatable :: cause

    call f_describe(value, scalar)
    cause = "the array has not been made"
    if (c_associated(self%handle)) cause = unfit(scalar, 0, self%dtype(), self%name())
    if (cause /= "") then
      call refuse(cause, ierr)
      return
    end if
    call finish(c_array_set_fill(self%handle, scalar%base), ierr)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Arrays: what they are

  function array_name(self) result(name)
    class(penstock_array), intent(in) :: self
    character(:), allocatable :: name

    name = f_text(c_array_name(self%handle))
  end function

  !> The number of dimensions.
  function array_dims(self) result(dims)
    class(penstock_array), intent(in) :: self
    integer :: dims

    dims = int(c_array_dims(self%handle))
  end function

  !> The extents.
  function array_shape(self) result(shape)
    class(penstock_array), intent(in) :: self
    integer(int64), allocatable :: shape(:)
    integer(c_int64_t), pointer :: extents(:)

    allocate (shape(self%dims()))
    if (size(shape) == 0) return
    call c_f_pointer(c_array_shape(self%handle), extents, [size(shape)])
    shape = reversed(extents)
  end function

  !> The element type, such as "f8".
  function array_dtype(self) result(dtype)
    class(penstock_array), intent(in) :: self
    character(:), allocatable :: dtype

    dtype = f_text(c_array_dtype(self%handle))
  end function

  !> The bytes of an element.
  function array_element_bytes(self) result(bytes)
    class(penstock_array), intent(in) :: self
    integer :: bytes

    bytes = int(c_array_element_bytes(self%handle))
  end function

  !> The attributes as JSON.
  function array_attributes(self, ierr) result(json)
    class(penstock_array), intent(in) :: self
    integer, intent(out), optional :: ierr
    character(:), allocatable :: json
    type(c_ptr) :: pointer
    integer(c_int) :: code

    json = ""
    code = c_array_attributes(self%handle, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, json)
    call finish(code, ierr)
  end function

  !> The disk schema in words; the dimensions are in the order of the store.
  function array_disk(self, ierr) result(text)
    class(penstock_array), intent(in) :: self
    integer, intent(out), optional :: ierr
    character(:), allocatable :: text
    type(c_ptr) :: pointer
    integer(c_int) :: code

    text = ""
    code = c_array_disk(self%handle, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, text)
    call finish(code, ierr)
  end function

  !> The number of local arrays of `rank`: 1, or that of its boxes.
  function array_local_count(self, rank, ierr) result(count)
    class(penstock_array), intent(in) :: self
    integer, intent(in) :: rank
    integer, intent(out), optional :: ierr
    integer :: count
    integer(c_size_t) :: found

    found = 0
    call finish(c_array_local_count(self%handle, int(rank, c_int64_t), found), ierr)
    count = int(found)
  end function

  !> The extents of a local array of `rank`, halo included: of its box `part`, counted from 1. Of
  !> one dimension where the rank holds a list.
  function array_local_shape(self, rank, part, ierr) result(shape)
    class(penstock_array), intent(in) :: self
    integer, intent(in) :: rank
    integer, intent(in), optional :: part
    integer, intent(out), optional :: ierr
    integer(int64), allocatable :: shape(:)

    allocate (shape(merge(1, self%dims(), self%by_list)), source=0_int64)
    call finish(c_array_local_shape(self%handle, int(rank, c_int64_t), part_of(part), shape), ierr)
    shape = shape(size(shape):1:-1)
  end function

  !> Where a local array of `rank` begins in the array, counted from 1, the halo left out.
  function array_local_start(self, rank, part, ierr) result(start)
    class(penstock_array), intent(in) :: self
    integer, intent(in) :: rank
    integer, intent(in), optional :: part
    integer, intent(out), optional :: ierr
    integer(int64), allocatable :: start(:)
    integer(int64) :: block, stride, extent
    integer :: dim, code

    allocate (start(self%dims()), source=0_int64)
    code = PENSTOCK_OK
    do dim = 1, size(start)
      call self%local_indices(rank, dim, start(dim), block, stride, extent, part, code)
      if (code /= PENSTOCK_OK) exit
    end do
    if (present(ierr)) then
      ierr = code
    else if (code /= PENSTOCK_OK) then
      error stop penstock_error_text()
    end if
  end function

  !> The bytes of all local arrays of `rank`.
  function array_local_bytes(self, rank, ierr) result(bytes)
    class(penstock_array), intent(in) :: self
    integer, intent(in) :: rank
    integer, intent(out), optional :: ierr
    integer(int64) :: bytes

    bytes = 0
    call finish(c_array_local_bytes(self%handle, int(rank, c_int64_t), bytes), ierr)
  end function

  !> The elements that `rank` holds in dimension `dim` of a local array: blocks of `block` indices,
  !> `stride` apart, from `first` on, `extent` indices in all. Indices and dimensions count from 1.
  subroutine array_local_indices(self, rank, dim, first, block, stride, extent, part, ierr)
    class(penstock_array), intent(in) :: self
    integer, intent(in) :: rank, dim
    integer(int64), intent(out) :: first, block, stride, extent
    integer, intent(in), optional :: part
    integer, intent(out), optional :: ierr
    integer(c_int) :: code
    integer :: dims

    first = 0; block = 0; stride = 0; extent = 0
    dims = self%dims()
    if (dim < 1 .or. dim > dims) then
      call refuse("there is no such dimension", ierr)
      return
    end if
    code = c_array_local_indices(self%handle, int(rank, c_int64_t), part_of(part), &
        int(dims - dim, c_size_t), first, block, stride, extent)
    first = first + 1
    call finish(code, ierr)
  end subroutine

  !> The number of a local array, as C counts it.
  function part_of(part) result(number)
    integer, intent(in), optional :: part
    integer(c_size_t) :: number

    number = 0
    if (present(part)) number = int(part - 1, c_size_t)
  end function

  subroutine array_free(self)
    class(penstock_array), intent(inout) :: self

    if (c_associated(self%handle)) call c_array_free(self%handle)
    self%handle = c_null_ptr
    self%by_list = .false.
  end subroutine

  impure elemental subroutine array_final(self)
    type(penstock_array), intent(inout) :: self

    call self%free()
  end subroutine

  impure elemental subroutine array_assign(self, other)
    class(penstock_array), intent(inout) :: self
    class(penstock_array), intent(in) :: other
    type(c_ptr) :: made

    if (c_associated(self%handle, other%handle)) return
    made = c_null_ptr
    if (c_associated(other%handle)) call finish(c_array_copy(other%handle, made))
    call self%free()
    self%handle = made
    self%by_list = other%by_list
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Local arrays

  subroutine locals_add(self, local)
    class(penstock_locals), intent(inout) :: self
    type(*), dimension(..), intent(in), asynchronous, target :: local

    call self%add("", local)
  end subroutine

  subroutine locals_add_named(self, name, local)
    class(penstock_locals), intent(inout) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), intent(in), asynchronous, target :: local
    type(c_local), allocatable :: memories(:)
    type(name_word), allocatable :: names(:)
    integer :: count

    count = self%count()
    allocate (memories(count + 1), names(count + 1))
    if (count > 0) then
      memories(:count) = self%memories
      names(:count) = self%names
    end if
    call f_describe(local, memories(count + 1))
    names(count + 1)%text = trim(name)
    call move_alloc(memories, self%memories)
    call move_alloc(names, self%names)
  end subroutine

  function locals_count(self) result(count)
    class(penstock_locals), intent(in) :: self
    integer :: count

    count = 0
    if (allocated(self%memories)) count = size(self%memories)
  end function

  subroutine locals_clear(self)
    class(penstock_locals), intent(inout) :: self

    if (allocated(self%memories)) deallocate (self%memories, self%names)
  end subroutine

  !> The one local array of a call.
  subroutine local_of(local, locals)
    type(*), dimension(..), intent(in), asynchronous :: local
    type(c_local), allocatable, intent(out) :: locals(:)

    allocate (locals(1))
    call f_describe(local, locals(1))
  end subroutine

  !> What the module must know of an array.
  function known_of(array) result(known)
    class(penstock_array), intent(in) :: array
    type(known_array) :: known

    known%name = array%name()
    known%dtype = array%dtype()
    known%local_dims = merge(1, array%dims(), array%by_list)
  end function
end module
