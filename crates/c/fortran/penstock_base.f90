!> What all parts of the module `penstock` share: texts, errors, the order of dimensions, and local
!> arrays of any type and rank.
module penstock_base
  use penstock_c
  use, intrinsic :: iso_fortran_env, only: int32, int64
  implicit none
  public

  integer, parameter :: RANK_MAX = 15

  !> Kinds of elements, as penstock_glue.c counts them.
  integer(c_int), parameter :: KIND_OTHER = 0, KIND_INTEGER = 1, KIND_REAL = 2, KIND_COMPLEX = 3, &
      KIND_LOGICAL = 4, KIND_CHARACTER = 5

  !> A local array: shape and strides are in C order, the dimensions reversed.
  type, bind(C) :: c_local
    type(c_ptr) :: base = c_null_ptr
    integer(c_int64_t) :: element_bytes = 0
    integer(c_int64_t) :: elements = 0
    integer(c_int) :: rank = 0
    integer(c_int) :: kind = KIND_OTHER
    integer(c_int) :: is_contiguous = 1
    integer(c_int64_t) :: shape(RANK_MAX) = 0
    integer(c_int64_t) :: strides(RANK_MAX) = 0
  end type

  !> A text that C sees through a pointer, for as long as this variable is there.
  type :: c_text
    character(kind=c_char), allocatable :: chars(:)
  end type

  !> An error says what Penstock could not do, and why.
  type :: penstock_error
    !> The code, as `ierr` has it.
    integer :: code = PENSTOCK_OK
    !> The rank and the server that met it, or -1.
    integer(int64) :: rank = -1
    integer(int64) :: server = -1
    !> What was being done, and to which file or directory.
    character(:), allocatable :: doing
    character(:), allocatable :: path
    !> To which bytes of it: the first, counted from 0, and one past the last; both 0 where it was
    !> not about bytes.
    integer(int64) :: first = 0
    integer(int64) :: end = 0
    !> Why that failed, and all of it in words.
    character(:), allocatable :: cause
    character(:), allocatable :: text
  end type

  interface
    subroutine f_describe(array, description) bind(C, name="penstock_fortran_describe")
      import
      type(*), dimension(..), intent(in), asynchronous :: array
      type(c_local), intent(out) :: description
    end subroutine
    function f_words(words) bind(C, name="penstock_fortran_words") result(pointers)
      import
      character(kind=c_char, len=*), dimension(..), intent(in) :: words
      type(c_ptr) :: pointers
    end function
    function f_handle(communicator) bind(C, name="penstock_fortran_handle") result(handle)
      import
      type(*), intent(in) :: communicator
      integer(c_int32_t) :: handle
    end function
    subroutine f_note(text) bind(C, name="penstock_fortran_note")
      import
      character(kind=c_char), intent(in) :: text(*)
    end subroutine
    function f_noted() bind(C, name="penstock_fortran_noted") result(text)
      import
      type(c_ptr) :: text
    end function
    function c_strlen(text) bind(C, name="strlen") result(bytes)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: bytes
    end function
    subroutine c_release(block) bind(C, name="free")
      import
      type(c_ptr), value :: block
    end subroutine
  end interface

  interface reversed
    procedure reversed_32, reversed_64
  end interface

contains

  ! ----------------------------------------------------------------------------------------------
  ! Texts

  !> A text as C has it, without trailing blanks.
  function c_string(text) result(ended)
    character(*), intent(in) :: text
    character(:), allocatable :: ended

    ended = trim(text) // c_null_char
  end function

  !> The same, where there is a text; otherwise `ended` stays without a value, which is NULL for C.
  subroutine c_maybe(text, ended)
    character(*), intent(in), optional :: text
    character(:), allocatable, intent(inout) :: ended

    if (present(text)) ended = c_string(text)
  end subroutine

  !> Where C finds a text; NULL where there is none. `holder` must be there as long as C needs it.
  function c_held(holder, text) result(pointer)
    type(c_text), intent(inout), target :: holder
    character(*), intent(in), optional :: text
    type(c_ptr) :: pointer
    integer :: i, length

    pointer = c_null_ptr
    if (.not. present(text)) return
    length = len_trim(text)
    if (allocated(holder%chars)) deallocate (holder%chars)
    allocate (holder%chars(length + 1))
    do i = 1, length
      holder%chars(i) = text(i:i)
    end do
    holder%chars(length + 1) = c_null_char
    pointer = c_loc(holder%chars)
  end function

  !> The text at a pointer of C; empty for NULL.
  function f_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: chars(:)
    integer :: i, length

    length = 0
    if (c_associated(pointer)) length = int(c_strlen(pointer))
    allocate (character(length) :: text)
    if (length == 0) return
    call c_f_pointer(pointer, chars, [length])
    do i = 1, length
      text(i:i) = chars(i)
    end do
  end function

  !> A text that the library has made, which is freed.
  subroutine take_text(pointer, text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable, intent(out) :: text

    text = f_text(pointer)
    call c_free(pointer)
  end subroutine

  !> A number in digits.
  function decimal(number) result(text)
    integer(int64), intent(in) :: number
    character(:), allocatable :: text
    character(24) :: buffer

    write (buffer, "(i0)") number
    text = trim(buffer)
  end function

  ! ----------------------------------------------------------------------------------------------
  ! Errors

  !> The last error of this thread in words: what failed, where, and why.
  function penstock_error_text() result(text)
    character(:), allocatable :: text
    type(penstock_error) :: error

    error = penstock_last_error()
    text = error%text
  end function

  !> The last error of this thread; its code is PENSTOCK_OK if there was none.
  function penstock_last_error() result(error)
    type(penstock_error) :: error
    type(c_error), pointer :: found
    type(c_ptr) :: pointer

    error%doing = ""
    error%path = ""
    error%cause = f_text(f_noted())
    error%text = error%cause
    if (len(error%text) > 0) then
      error%code = PENSTOCK_ERR_SCHEMA
      return
    end if
    pointer = c_last_error()
    if (.not. c_associated(pointer)) return
    call c_f_pointer(pointer, found)
    error%code = found%code
    error%rank = found%rank
    error%server = found%server
    error%doing = f_text(found%doing)
    error%path = f_text(found%path)
    error%first = found%first
    error%end = found%end
    error%cause = f_text(found%cause)
    error%text = f_text(found%text)
  end function

  !> A code in words, such as "Schema".
  function penstock_code_name(code) result(name)
    integer, intent(in) :: code
    character(:), allocatable :: name

    name = f_text(c_code_name(int(code, c_int)))
  end function

  !> The version of the library that runs, such as "0.1.0".
  function penstock_version() result(version)
    character(:), allocatable :: version

    version = f_text(c_version())
  end function

  !> Ends a call that C has answered with `code`: hands the code on, or without `ierr` stops the
  !> program where it is an error.
  subroutine finish(code, ierr)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: ierr

    if (code /= PENSTOCK_OK) call f_note(c_null_char)
    if (present(ierr)) then
      ierr = int(code)
    else if (code /= PENSTOCK_OK) then
      error stop penstock_error_text()
    end if
  end subroutine

  !> Ends a call for which the arguments are wrong, on this rank alone.
  subroutine refuse(cause, ierr)
    character(*), intent(in) :: cause
    integer, intent(out), optional :: ierr

    call f_note(c_string(cause))
    if (present(ierr)) then
      ierr = PENSTOCK_ERR_SCHEMA
    else
      error stop cause
    end if
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! The order of dimensions

  !> Numbers of dimensions in the other order.
  pure function reversed_64(numbers) result(turned)
    integer(int64), intent(in) :: numbers(:)
    integer(c_int64_t) :: turned(size(numbers))

    turned = numbers(size(numbers):1:-1)
  end function

  pure function reversed_32(numbers) result(turned)
    integer(int32), intent(in) :: numbers(:)
    integer(c_int64_t) :: turned(size(numbers))

    turned = int(numbers(size(numbers):1:-1), c_int64_t)
  end function

  !> Words with commas between, in the other order: "BLOCK,*" becomes "*,BLOCK".
  function reversed_words(words) result(turned)
    character(*), intent(in) :: words
    character(:), allocatable :: turned
    integer :: first, comma

    turned = ""
    first = 1
    do
      comma = index(words(first:), ",")
      if (comma == 0) exit
      turned = "," // trim(adjustl(words(first:first + comma - 2))) // turned
      first = first + comma
    end do
    turned = trim(adjustl(words(first:))) // turned
  end function

  !> Halos as C wants them, two widths a dimension. `halo` is one width for all sides, one for each
  !> dimension, or halo(2, dims) with the widths below and above. Without `halo` there is no value.
  subroutine c_halo(halo, dims, widths, cause)
    integer, intent(in), optional :: halo(..)
    integer, intent(in) :: dims
    integer(c_int64_t), allocatable, intent(out) :: widths(:)
    character(:), allocatable, intent(out) :: cause
    integer :: sides(2, dims)

    cause = ""
    if (.not. present(halo)) return
    select rank (halo)
    rank (0)
      sides = halo
    rank (1)
      if (size(halo) /= dims) cause = "halo needs a width for each dimension"
      if (cause == "") sides = spread(halo, 1, 2)
    rank (2)
      if (size(halo, 1) /= 2 .or. size(halo, 2) /= dims) cause = "halo must be of shape [2, dims]"
      if (cause == "") sides = halo
    rank default
      cause = "halo must be a width, one for each dimension, or of shape [2, dims]"
    end select
    if (cause /= "") return
    allocate (widths(2 * dims))
    widths = int(reshape(sides(:, dims:1:-1), [2 * dims]), c_int64_t)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Local arrays

  !> What C is to know of local arrays, which must stay where they are as long as C looks.
  subroutine point_at(locals, memories)
    type(c_local), intent(in), target :: locals(:)
    type(c_memory), intent(out) :: memories(:)
    integer :: i

    do i = 1, size(locals)
      memories(i)%base = locals(i)%base
      memories(i)%shape = c_loc(locals(i)%shape)
      memories(i)%strides = c_loc(locals(i)%strides)
    end do
  end subroutine

  !> Why a local array does not fit `dims` dimensions and elements of `dtype`; empty where it does.
  !> Kinds that Fortran has not are held by integers of their size: unsigned numbers, and "f2".
  !> Records fit no local array.
  function unfit(local, dims, dtype, name) result(cause)
    type(c_local), intent(in) :: local
    integer, intent(in) :: dims
    character(*), intent(in) :: dtype, name
    character(:), allocatable :: cause
    integer(int64) :: bytes
    logical :: fits

    cause = ""
    if (local%rank /= dims) then
      cause = "the local array of '" // trim(name) // "' must be of rank " // &
          decimal(int(dims, int64)) // ", and is of rank " // decimal(int(local%rank, int64))
      return
    end if
    if (index(dtype, "[") == 1) then
      cause = "the elements of '" // trim(name) // "' are records, for which Fortran programs have &
          &no local arrays"
      return
    end if
    select case (dtype)
    case ("bool")
      bytes = 1
      fits = local%kind == KIND_LOGICAL .or. local%kind == KIND_INTEGER
    case ("f2")
      bytes = 2
      fits = local%kind == KIND_INTEGER
    case default
      read (dtype(2:), *) bytes
      select case (dtype(1:1))
      case ("i", "u")
        fits = local%kind == KIND_INTEGER
      case ("f")
        fits = local%kind == KIND_REAL
      case default
        fits = local%kind == KIND_COMPLEX
      end select
    end select
    if (fits .and. local%element_bytes == bytes) return
    cause = "the elements of '" // trim(name) // "' are " // dtype // ", and those of its local &
        &array " // kind_text(local)
  end function

  !> The elements of a local array in words.
  function kind_text(local) result(text)
    type(c_local), intent(in) :: local
    character(:), allocatable :: text
    character(9), parameter :: names(0:5) = [character(9) :: &
        "", "integers", "reals", "complex", "logicals", "letters"]

    text = decimal(local%element_bytes) // " bytes"
    if (local%kind /= KIND_OTHER) text = trim(names(local%kind)) // " of " // text
  end function

  !> The element type of a local array, such as "f8"; empty where there is none for it.
  function dtype_of(local) result(dtype)
    type(c_local), intent(in) :: local
    character(:), allocatable :: dtype

    select case (local%kind)
    case (KIND_INTEGER)
      dtype = "i" // decimal(local%element_bytes)
    case (KIND_REAL)
      dtype = "f" // decimal(local%element_bytes)
    case (KIND_COMPLEX)
      dtype = "c" // decimal(local%element_bytes)
    case (KIND_LOGICAL)
      dtype = "bool"
    case default
      dtype = ""
    end select
  end function
end module
