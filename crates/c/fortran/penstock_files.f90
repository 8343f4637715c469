!> Parallel files: volumes, files, and subfiles of views. Numbers of cells, servers and subfiles,
!> and offsets, which are bytes, count from 0, as those of MPI-IO.
module penstock_files
  use penstock_sessions, only: communicator
  use penstock_base
  implicit none
  private
  public :: penstock_volume_create, penstock_fs, penstock_file, penstock_subfile, penstock_request

  !> A client of a volume, and in a job its servers. Any number of threads use it.
  type :: penstock_fs
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => fs_open
    procedure :: rank => fs_rank
    procedure :: clients => fs_clients
    procedure :: servers => fs_servers
    procedure :: block_bytes => fs_block_bytes
    procedure :: close => fs_close
    procedure :: leave => fs_leave
    procedure :: create => fs_create
    procedure :: mkdir => fs_mkdir
    procedure :: symlink => fs_symlink
    procedure :: readlink => fs_readlink
    procedure :: remove => fs_remove
    procedure :: rename => fs_rename
    procedure :: resize => fs_resize
    procedure :: resize_cells => fs_resize_cells
    procedure :: chmod => fs_chmod
    procedure :: chown => fs_chown
    procedure :: sync => fs_sync
    procedure :: stat => fs_stat
    procedure :: cell_bytes => fs_cell_bytes
    procedure :: list => fs_list
    procedure :: status => fs_status
    procedure :: usage => fs_usage
    procedure :: set_quota => fs_set_quota
    procedure :: rebalance => fs_rebalance
    procedure :: import => fs_import
    procedure :: export => fs_export
    procedure :: import_all => fs_import_all
    procedure :: export_all => fs_export_all
  end type

  !> A file that is attached.
  type :: penstock_file
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: attach => file_attach
    procedure :: attach_all => file_attach_all
    procedure :: cells => file_cells
    procedure :: bsu_bytes => file_bsu_bytes
    procedure :: base => file_base
    procedure :: checkpoint => file_checkpoint
    procedure :: rollback => file_rollback
    procedure :: sync => file_sync
    procedure :: detach => file_detach
    procedure :: read_all => file_read_all
    procedure :: write_all => file_write_all
  end type

  !> A subfile of a view that is open.
  type :: penstock_subfile
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => subfile_open
    procedure :: free => subfile_free
    procedure :: read => subfile_read
    procedure :: write => subfile_write
    procedure :: seek => subfile_seek
    procedure :: read_at => subfile_read_at
    procedure :: write_at => subfile_write_at
    procedure :: begin_read_at => subfile_begin_read_at
    procedure :: begin_write_at => subfile_begin_write_at
    procedure :: share => subfile_share
    procedure :: explain => subfile_explain
    procedure :: prefetch => subfile_prefetch
    procedure :: flush => subfile_flush
    procedure :: sync => subfile_sync
  end type

  !> A read or write of a subfile that is under way. Its memory must be left alone until `wait`: it
  !> should have the attribute `asynchronous` where it began.
  type :: penstock_request
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: has_ended => request_has_ended
    procedure :: wait => request_wait
  end type

contains

  ! ----------------------------------------------------------------------------------------------
  ! Volumes

  !> Makes a volume at `path`; {server} in it stands for the number of a server. `disks` are
  !> directories or raw devices of each server, with {server}. `capacity` is bytes of each server's
  !> blocks, which are allocated at once; without it they grow.
  subroutine penstock_volume_create(path, servers, block_bytes, capacity, disks, ierr)
    character(*), intent(in) :: path
    integer, intent(in), optional :: servers
    integer(int64), intent(in), optional :: block_bytes, capacity
    character(*), intent(in), optional :: disks(:)
    integer, intent(out), optional :: ierr
    type(c_volume_options) :: options
    type(c_ptr) :: block

    block = c_null_ptr
    options%size = c_sizeof(options)
    if (present(servers)) options%servers = servers
    if (present(block_bytes)) options%block_bytes = block_bytes
    if (present(capacity)) options%capacity = capacity
    if (present(disks)) then
      block = f_words(disks)
      options%disk_count = size(disks, kind=c_size_t)
      options%disks = block
    end if
    call finish(c_volume_create(c_string(path), options), ierr)
    call c_release(block)
  end subroutine

  !> Opens the volume at `path`, or the URL of standing servers. The ranks of `comm` are the
  !> clients; without it, this process alone. `servers` is their number, if it is to be checked.
  !> Collective over the communicator. On a dedicated server it returns when the others have closed
  !> the volume: rank() is -1.
  subroutine fs_open(self, path, comm, servers, dedicated, cache_bytes, direct, keys, ierr)
    class(penstock_fs), intent(inout) :: self
    character(*), intent(in) :: path
    class(*), intent(in), optional :: comm
    integer, intent(in), optional :: servers
    logical, intent(in), optional :: dedicated, direct
    integer(int64), intent(in), optional :: cache_bytes
    character(*), intent(in), optional :: keys
    integer, intent(out), optional :: ierr
    type(c_fs_options) :: options
    type(c_text), target :: text
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
    options%size = c_sizeof(options)
    if (present(servers)) options%servers = servers
    if (present(dedicated)) options%dedicated = merge(PENSTOCK_YES, PENSTOCK_NO, dedicated)
    if (present(cache_bytes)) options%cache_bytes = cache_bytes
    if (present(direct)) options%direct = merge(PENSTOCK_YES, PENSTOCK_NO, direct)
    options%keys = c_held(text, keys)
    if (present(comm)) then
      code = c_fs_open_f(handle, c_string(path), options, made)
    else
      code = c_fs_open(c_null_ptr, c_string(path), options, made)
    end if
    if (code == PENSTOCK_OK) self%handle = made
    call finish(code, ierr)
  end subroutine

  !> This client's rank; -1 on a dedicated server.
  function fs_rank(self) result(rank)
    class(penstock_fs), intent(in) :: self
    integer :: rank

    rank = int(c_fs_rank(self%handle))
  end function

  !> The number of clients.
  function fs_clients(self) result(clients)
    class(penstock_fs), intent(in) :: self
    integer :: clients

    clients = int(c_fs_clients(self%handle))
  end function

  !> The number of servers.
  function fs_servers(self) result(servers)
    class(penstock_fs), intent(in) :: self
    integer :: servers

    servers = int(c_fs_servers(self%handle))
  end function

  !> The bytes of a block.
  function fs_block_bytes(self) result(bytes)
    class(penstock_fs), intent(in) :: self
    integer(int64) :: bytes

    bytes = c_fs_block_bytes(self%handle)
  end function

  !> Saves all, ends the servers, and frees the client, also where it fails. Collective.
  subroutine fs_close(self, ierr)
    class(penstock_fs), intent(inout) :: self
    integer, intent(out), optional :: ierr
    integer(c_int) :: code

    code = c_fs_close(self%handle)
    self%handle = c_null_ptr
    call finish(code, ierr)
  end subroutine

  !> Leaves, for `cause`: the calls of the other clients fail.
  subroutine fs_leave(self, cause)
    class(penstock_fs), intent(inout) :: self
    character(*), intent(in) :: cause

    if (c_associated(self%handle)) call c_fs_leave(self%handle, c_string(cause))
    self%handle = c_null_ptr
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! What is in a volume

  !> Makes a file of `cells` cells and basic striping units of `bsu_bytes` bytes. Cells go
  !> round-robin to the servers, from server `base` on; without it, from one that is chosen. `mode`
  !> is int(o'644') where it is absent.
  subroutine fs_create(self, path, cells, bsu_bytes, base, mode, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(in) :: cells, bsu_bytes
    integer, intent(in), optional :: base, mode
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: first
    integer(c_int32_t) :: bits

    first = -1
    if (present(base)) first = base
    bits = int(o'644', c_int32_t)
    if (present(mode)) bits = mode
    call finish(c_fs_create(self%handle, c_string(path), int(cells, c_int64_t), &
        int(bsu_bytes, c_int64_t), first, bits), ierr)
  end subroutine

  !> Makes a directory. `mode` is int(o'755') where it is absent.
  subroutine fs_mkdir(self, path, mode, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(in), optional :: mode
    integer, intent(out), optional :: ierr
    integer(c_int32_t) :: bits

    bits = int(o'755', c_int32_t)
    if (present(mode)) bits = mode
    call finish(c_fs_mkdir(self%handle, c_string(path), bits), ierr)
  end subroutine

  subroutine fs_symlink(self, target, path, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: target, path
    integer, intent(out), optional :: ierr

    call finish(c_fs_symlink(self%handle, c_string(target), c_string(path)), ierr)
  end subroutine

  !> The target of a symbolic link.
  function fs_readlink(self, path, ierr) result(target)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr
    character(:), allocatable :: target
    type(c_ptr) :: pointer
    integer(c_int) :: code

    target = ""
    code = c_fs_readlink(self%handle, c_string(path), pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, target)
    call finish(code, ierr)
  end function

  subroutine fs_remove(self, path, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr

    call finish(c_fs_remove(self%handle, c_string(path)), ierr)
  end subroutine

  subroutine fs_rename(self, from, to, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: from, to
    integer, intent(out), optional :: ierr

    call finish(c_fs_rename(self%handle, c_string(from), c_string(to)), ierr)
  end subroutine

  !> Makes the file `bytes` long in canonical order.
  subroutine fs_resize(self, path, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer(int64), intent(in) :: bytes
    integer, intent(out), optional :: ierr

    call finish(c_fs_resize(self%handle, c_string(path), bytes), ierr)
  end subroutine

  !> Gives each cell of the file `bytes` bytes.
  subroutine fs_resize_cells(self, path, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer(int64), intent(in) :: bytes
    integer, intent(out), optional :: ierr

    call finish(c_fs_resize_cells(self%handle, c_string(path), bytes), ierr)
  end subroutine

  subroutine fs_chmod(self, path, mode, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(in) :: mode
    integer, intent(out), optional :: ierr

    call finish(c_fs_chmod(self%handle, c_string(path), int(mode, c_int32_t)), ierr)
  end subroutine

  !> Changes owner and group; one that is absent stays as it is.
  subroutine fs_chown(self, path, user, group, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(in), optional :: user, group
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: new_user, new_group

    new_user = -1
    if (present(user)) new_user = user
    new_group = -1
    if (present(group)) new_group = group
    call finish(c_fs_chown(self%handle, c_string(path), new_user, new_group), ierr)
  end subroutine

  !> Saves everything that has been written.
  subroutine fs_sync(self, ierr)
    class(penstock_fs), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_fs_sync(self%handle), ierr)
  end subroutine

  !> The attributes of what is at `path`.
  subroutine fs_stat(self, path, stat, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    type(penstock_stat), intent(out) :: stat
    integer, intent(out), optional :: ierr

    call finish(c_fs_stat(self%handle, c_string(path), stat), ierr)
  end subroutine

  !> The bytes up to the end of each cell of a file.
  function fs_cell_bytes(self, path, ierr) result(bytes)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr
    integer(int64), allocatable :: bytes(:)
    type(penstock_stat) :: stat
    integer(c_int) :: code

    code = c_fs_stat(self%handle, c_string(path), stat)
    allocate (bytes(stat%cells), source=0_int64)
    if (code == PENSTOCK_OK) code = c_fs_cell_bytes(self%handle, c_string(path), stat%cells, bytes)
    call finish(code, ierr)
  end function

  !> The names in a directory, padded with blanks to one length; those of directories end with a
  !> slash.
  subroutine fs_list(self, path, names, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    character(:), allocatable, intent(out) :: names(:)
    integer, intent(out), optional :: ierr
    type(c_ptr) :: pointer
    integer(c_size_t) :: count
    integer(c_int) :: code

    count = 0
    pointer = c_null_ptr
    code = c_fs_list(self%handle, c_string(path), count, pointer)
    call cut(pointer, int(count), names)
    if (code == PENSTOCK_OK) call c_free(pointer)
    call finish(code, ierr)
  end subroutine

  !> Cuts `count` names, each with a zero byte behind it.
  subroutine cut(pointer, count, names)
    type(c_ptr), intent(in) :: pointer
    integer, intent(in) :: count
    character(:), allocatable, intent(out) :: names(:)
    character(kind=c_char), pointer :: chars(:)
    integer :: i, j, first, last, longest

    longest = 0
    last = 0
    do i = 1, count
      first = last + 1
      call c_f_pointer(pointer, chars, [first])
      last = first + int(c_strlen(c_loc(chars(first))))
      longest = max(longest, last - first)
    end do
    allocate (character(longest) :: names(count))
    if (count == 0) return
    call c_f_pointer(pointer, chars, [last])
    first = 1
    do i = 1, count
      names(i) = ""
      j = 1
      do while (chars(first) /= c_null_char)
        names(i)(j:j) = chars(first)
        j = j + 1
        first = first + 1
      end do
      first = first + 1
    end do
  end subroutine

  !> Who has a file attached, as JSON.
  function fs_status(self, path, ierr) result(json)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: ierr
    character(:), allocatable :: json
    type(c_ptr) :: pointer
    integer(c_int) :: code

    json = ""
    code = c_fs_status(self%handle, c_string(path), pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, json)
    call finish(code, ierr)
  end function

  !> The space, and what `user` has of it; without `user`, this program's.
  subroutine fs_usage(self, usage, user, ierr)
    class(penstock_fs), intent(in) :: self
    type(penstock_usage), intent(out) :: usage
    integer, intent(in), optional :: user
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: number

    number = -1
    if (present(user)) number = user
    call finish(c_fs_usage(self%handle, number, usage), ierr)
  end subroutine

  !> What `user` may have on all servers together; -1: as much as there is.
  subroutine fs_set_quota(self, user, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    integer, intent(in) :: user
    integer(int64), intent(in) :: bytes
    integer, intent(out), optional :: ierr

    call finish(c_fs_quota(self%handle, int(user, c_int32_t), bytes), ierr)
  end subroutine

  !> Spreads the volume over `servers`, or over all; the text says what has moved, and what could
  !> not be.
  function fs_rebalance(self, servers, ierr) result(text)
    class(penstock_fs), intent(in) :: self
    integer, intent(in), optional :: servers(:)
    integer, intent(out), optional :: ierr
    character(:), allocatable :: text
    integer(c_int64_t), allocatable :: numbers(:)
    type(c_ptr) :: pointer
    integer(c_int) :: code

    allocate (numbers(0))
    if (present(servers)) then
      deallocate (numbers)
      allocate (numbers, source=int(servers, c_int64_t))
    end if
    text = ""
    code = c_fs_rebalance(self%handle, size(numbers, kind=c_size_t), numbers, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, text)
    call finish(code, ierr)
  end function

  ! ----------------------------------------------------------------------------------------------
  ! Files of this machine, in and out

  !> Moves the file `local` of this machine to `path` in the volume: into a subfile of `view`, or
  !> the whole file. `cells`, `bsu_bytes`, `base` and `mode` are those of a file that is made.
  !> `bytes` says how many have moved.
  subroutine fs_import(self, local, path, view, subfile, order, memory_bytes, cells, bsu_bytes, &
      base, mode, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: local, path
    type(penstock_view), intent(in), target, optional :: view
    integer, intent(in), optional :: subfile, order, cells, bsu_bytes, base, mode
    integer(int64), intent(in), optional :: memory_bytes
    integer(int64), intent(out), optional :: bytes
    integer, intent(out), optional :: ierr
    type(c_transfer_options) :: options
    integer(c_int64_t) :: moved

    call transfer_options(options, view, subfile, order, memory_bytes, cells, bsu_bytes, base, mode)
    moved = 0
    call ended(c_fs_import(self%handle, c_string(local), c_string(path), options, moved), moved, &
        bytes, ierr)
  end subroutine

  !> The same with all clients, each of which moves a part. Collective.
  subroutine fs_import_all(self, local, path, view, subfile, order, memory_bytes, cells, &
      bsu_bytes, base, mode, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: local, path
    type(penstock_view), intent(in), target, optional :: view
    integer, intent(in), optional :: subfile, order, cells, bsu_bytes, base, mode
    integer(int64), intent(in), optional :: memory_bytes
    integer(int64), intent(out), optional :: bytes
    integer, intent(out), optional :: ierr
    type(c_transfer_options) :: options
    integer(c_int64_t) :: moved

    call transfer_options(options, view, subfile, order, memory_bytes, cells, bsu_bytes, base, mode)
    moved = 0
    call ended(c_fs_import_all(self%handle, c_string(local), c_string(path), options, moved), &
        moved, bytes, ierr)
  end subroutine

  !> Moves the file `path` of the volume, or a subfile of it, to the file `local` of this machine.
  !> `of_checkpoint` moves the checkpoint; `overwrite` replaces a file that is there.
  subroutine fs_export(self, path, local, view, subfile, order, memory_bytes, of_checkpoint, &
      overwrite, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path, local
    type(penstock_view), intent(in), target, optional :: view
    integer, intent(in), optional :: subfile, order
    integer(int64), intent(in), optional :: memory_bytes
    logical, intent(in), optional :: of_checkpoint, overwrite
    integer(int64), intent(out), optional :: bytes
    integer, intent(out), optional :: ierr
    type(c_transfer_options) :: options
    integer(c_int64_t) :: moved

    call transfer_options(options, view, subfile, order, memory_bytes, &
        of_checkpoint=of_checkpoint, overwrite=overwrite)
    moved = 0
    call ended(c_fs_export(self%handle, c_string(path), c_string(local), options, moved), moved, &
        bytes, ierr)
  end subroutine

  !> The same with all clients, each of which moves a part. Collective.
  subroutine fs_export_all(self, path, local, view, subfile, order, memory_bytes, of_checkpoint, &
      overwrite, bytes, ierr)
    class(penstock_fs), intent(in) :: self
    character(*), intent(in) :: path, local
    type(penstock_view), intent(in), target, optional :: view
    integer, intent(in), optional :: subfile, order
    integer(int64), intent(in), optional :: memory_bytes
    logical, intent(in), optional :: of_checkpoint, overwrite
    integer(int64), intent(out), optional :: bytes
    integer, intent(out), optional :: ierr
    type(c_transfer_options) :: options
    integer(c_int64_t) :: moved

    call transfer_options(options, view, subfile, order, memory_bytes, &
        of_checkpoint=of_checkpoint, overwrite=overwrite)
    moved = 0
    call ended(c_fs_export_all(self%handle, c_string(path), c_string(local), options, moved), &
        moved, bytes, ierr)
  end subroutine

  subroutine transfer_options(options, view, subfile, order, memory_bytes, cells, bsu_bytes, base, &
      mode, of_checkpoint, overwrite)
    type(c_transfer_options), intent(out) :: options
    type(penstock_view), intent(in), target, optional :: view
    integer, intent(in), optional :: subfile, order, cells, bsu_bytes, base, mode
    integer(int64), intent(in), optional :: memory_bytes
    logical, intent(in), optional :: of_checkpoint, overwrite

    options%size = c_sizeof(options)
    if (present(view)) options%view = c_loc(view)
    if (present(subfile)) options%subfile = subfile
    if (present(order)) options%order = int(order, c_int)
    if (present(memory_bytes)) options%memory_bytes = memory_bytes
    if (present(cells)) options%cells = cells
    if (present(bsu_bytes)) options%bsu_bytes = bsu_bytes
    if (present(base)) options%base = base
    if (present(mode)) options%mode = int(mode, c_int32_t)
    if (present(of_checkpoint)) options%of_checkpoint = merge(1, 0, of_checkpoint)
    if (present(overwrite)) options%overwrite = merge(1, 0, overwrite)
  end subroutine

  !> Ends a call that says how many bytes it has moved.
  subroutine ended(code, moved, bytes, ierr)
    integer(c_int), intent(in) :: code
    integer(c_int64_t), intent(in) :: moved
    integer(int64), intent(out), optional :: bytes
    integer, intent(out), optional :: ierr

    if (present(bytes)) bytes = moved
    call finish(code, ierr)
  end subroutine

  ! ----------------------------------------------------------------------------------------------
  ! Files

  !> Attaches a file. `access` is "r", "w" or "r+"; `is_reckless` gives up the order of accesses.
  !> Not collective.
  subroutine file_attach(self, fs, path, access, is_reckless, ierr)
    class(penstock_file), intent(inout) :: self
    class(penstock_fs), intent(in) :: fs
    character(*), intent(in) :: path, access
    logical, intent(in), optional :: is_reckless
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    call take_file(self, c_file_attach(fs%handle, c_string(path), c_string(access), &
        number_of(is_reckless), made), made, ierr)
  end subroutine

  !> Attaches a file with all clients, for collective calls on it. Collective.
  subroutine file_attach_all(self, fs, path, access, is_reckless, ierr)
    class(penstock_file), intent(inout) :: self
    class(penstock_fs), intent(in) :: fs
    character(*), intent(in) :: path, access
    logical, intent(in), optional :: is_reckless
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made

    call take_file(self, c_file_attach_all(fs%handle, c_string(path), c_string(access), &
        number_of(is_reckless), made), made, ierr)
  end subroutine

  function number_of(choice) result(number)
    logical, intent(in), optional :: choice
    integer(c_int) :: number

    number = 0
    if (present(choice)) number = merge(1, 0, choice)
  end function

  subroutine take_file(self, code, made, ierr)
    class(penstock_file), intent(inout) :: self
    integer(c_int), intent(in) :: code
    type(c_ptr), intent(in) :: made
    integer, intent(out), optional :: ierr

    if (code == PENSTOCK_OK) self%handle = made
    call finish(code, ierr)
  end subroutine

  function file_cells(self) result(cells)
    class(penstock_file), intent(in) :: self
    integer :: cells

    cells = int(c_file_cells(self%handle))
  end function

  function file_bsu_bytes(self) result(bytes)
    class(penstock_file), intent(in) :: self
    integer :: bytes

    bytes = int(c_file_bsu_bytes(self%handle))
  end function

  !> The server of cell 0.
  function file_base(self) result(base)
    class(penstock_file), intent(in) :: self
    integer :: base

    base = int(c_file_base(self%handle))
  end function

  !> Keeps the contents as they are as the checkpoint; `rollback` goes back to it.
  subroutine file_checkpoint(self, ierr)
    class(penstock_file), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_file_checkpoint(self%handle), ierr)
  end subroutine

  subroutine file_rollback(self, ierr)
    class(penstock_file), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_file_rollback(self%handle), ierr)
  end subroutine

  subroutine file_sync(self, ierr)
    class(penstock_file), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_file_sync(self%handle), ierr)
  end subroutine

  !> Detaches the file, also where it fails. Not collective: each client detaches for itself what
  !> all have attached.
  subroutine file_detach(self, ierr)
    class(penstock_file), intent(inout) :: self
    integer, intent(out), optional :: ierr
    integer(c_int) :: code

    code = c_file_detach(self%handle)
    self%handle = c_null_ptr
    call finish(code, ierr)
  end subroutine

  !> Reads a subfile of `view`, or the whole file, from `offset` on into `memory`, with all clients,
  !> disk-directed. A client that moves nothing gives memory of no elements. Collective.
  subroutine file_read_all(self, memory, view, subfile, order, offset, moved, ierr)
    class(penstock_file), intent(in) :: self
    type(*), dimension(..), intent(inout), contiguous :: memory
    type(penstock_view), intent(in), optional :: view
    integer, intent(in), optional :: subfile, order
    integer(int64), intent(in), optional :: offset
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_file_read_all(self%handle, view, number(subfile), int(number(order), c_int), &
        place(offset), local%base, bytes_of(local), bytes), bytes, moved, ierr)
  end subroutine

  !> Writes `memory` to a subfile, from `offset` on, with all clients. Collective.
  subroutine file_write_all(self, memory, view, subfile, order, offset, moved, ierr)
    class(penstock_file), intent(in) :: self
    type(*), dimension(..), intent(in), contiguous :: memory
    type(penstock_view), intent(in), optional :: view
    integer, intent(in), optional :: subfile, order
    integer(int64), intent(in), optional :: offset
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_file_write_all(self%handle, view, number(subfile), int(number(order), c_int), &
        place(offset), local%base, bytes_of(local), bytes), bytes, moved, ierr)
  end subroutine

  function bytes_of(local) result(bytes)
    type(c_local), intent(in) :: local
    integer(c_size_t) :: bytes

    bytes = int(local%elements * local%element_bytes, c_size_t)
  end function

  function number(choice) result(chosen)
    integer, intent(in), optional :: choice
    integer(c_int64_t) :: chosen

    chosen = 0
    if (present(choice)) chosen = choice
  end function

  function place(offset) result(chosen)
    integer(int64), intent(in), optional :: offset
    integer(c_int64_t) :: chosen

    chosen = 0
    if (present(offset)) chosen = offset
  end function

  ! ----------------------------------------------------------------------------------------------
  ! Subfiles

  !> Opens a subfile of `view`, or the whole file. `of_checkpoint` reads the checkpoint. With
  !> `pointer` it moves the pointer that another process has shared.
  subroutine subfile_open(self, file, view, subfile, order, of_checkpoint, pointer, ierr)
    class(penstock_subfile), intent(inout) :: self
    class(penstock_file), intent(in) :: file
    type(penstock_view), intent(in), optional :: view
    integer, intent(in), optional :: subfile, order
    logical, intent(in), optional :: of_checkpoint
    type(penstock_pointer), intent(in), optional :: pointer
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made
    integer(c_int) :: code

    code = c_subfile_open(file%handle, view, number(subfile), int(number(order), c_int), &
        number_of(of_checkpoint), pointer, made)
    if (code == PENSTOCK_OK) then
      call self%free()
      self%handle = made
    end if
    call finish(code, ierr)
  end subroutine

  !> Closes the subfile.
  subroutine subfile_free(self)
    class(penstock_subfile), intent(inout) :: self

    if (c_associated(self%handle)) call c_subfile_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  !> Reads at the pointer, and moves it. `moved` is the number of bytes.
  subroutine subfile_read(self, memory, moved, ierr)
    class(penstock_subfile), intent(in) :: self
    type(*), dimension(..), intent(inout), contiguous :: memory
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_subfile_read(self%handle, local%base, bytes_of(local), bytes), bytes, moved, ierr)
  end subroutine

  !> Writes at the pointer, and moves it.
  subroutine subfile_write(self, memory, moved, ierr)
    class(penstock_subfile), intent(in) :: self
    type(*), dimension(..), intent(in), contiguous :: memory
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_subfile_write(self%handle, local%base, bytes_of(local), bytes), bytes, moved, ierr)
  end subroutine

  !> Moves the pointer to `offset`, or with PENSTOCK_SEEK_CUR as `whence` by it.
  subroutine subfile_seek(self, offset, whence, position, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset
    integer, intent(in), optional :: whence
    integer(int64), intent(out), optional :: position
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: there

    there = 0
    call ended(c_subfile_seek(self%handle, offset, int(number(whence), c_int), there), there, &
        position, ierr)
  end subroutine

  !> Reads at an offset; the pointer stays.
  subroutine subfile_read_at(self, offset, memory, moved, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset
    type(*), dimension(..), intent(inout), contiguous :: memory
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_subfile_read_at(self%handle, offset, local%base, bytes_of(local), bytes), bytes, &
        moved, ierr)
  end subroutine

  !> Writes at an offset; the pointer stays.
  subroutine subfile_write_at(self, offset, memory, moved, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset
    type(*), dimension(..), intent(in), contiguous :: memory
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    type(c_local) :: local
    integer(c_int64_t) :: bytes

    call f_describe(memory, local)
    bytes = 0
    call ended(c_subfile_write_at(self%handle, offset, local%base, bytes_of(local), bytes), bytes, &
        moved, ierr)
  end subroutine

  !> Begins a read at an offset, into contiguous memory.
  subroutine subfile_begin_read_at(self, offset, memory, request, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset
    type(*), dimension(..), intent(inout), asynchronous, target :: memory
    class(penstock_request), intent(inout) :: request
    integer, intent(out), optional :: ierr
    type(c_local) :: local

    call f_describe(memory, local)
    call begin(self, .false., offset, local, request, ierr)
  end subroutine

  !> Begins a write at an offset, from contiguous memory.
  subroutine subfile_begin_write_at(self, offset, memory, request, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset
    type(*), dimension(..), intent(in), asynchronous, target :: memory
    class(penstock_request), intent(inout) :: request
    integer, intent(out), optional :: ierr
    type(c_local) :: local

    call f_describe(memory, local)
    call begin(self, .true., offset, local, request, ierr)
  end subroutine

  subroutine begin(self, is_write, offset, local, request, ierr)
    class(penstock_subfile), intent(in) :: self
    logical, intent(in) :: is_write
    integer(int64), intent(in) :: offset
    type(c_local), intent(in) :: local
    class(penstock_request), intent(inout) :: request
    integer, intent(out), optional :: ierr
    type(c_ptr) :: made
    integer(c_int) :: code

    if (local%is_contiguous == 0) then
      call refuse("the memory of a request must be contiguous", ierr)
      return
    end if
    if (c_associated(request%handle)) then
      call refuse("the access that `request` stands for has not been waited for", ierr)
      return
    end if
    if (is_write) then
      code = c_subfile_begin_write_at(self%handle, offset, local%base, bytes_of(local), made)
    else
      code = c_subfile_begin_read_at(self%handle, offset, local%base, bytes_of(local), made)
    end if
    if (code == PENSTOCK_OK) request%handle = made
    call finish(code, ierr)
  end subroutine

  !> Whether the access has ended. Never waits.
  function request_has_ended(self, ierr) result(has_ended)
    class(penstock_request), intent(in) :: self
    integer, intent(out), optional :: ierr
    logical :: has_ended
    integer(c_int) :: answer

    answer = 0
    call finish(c_request_test(self%handle, answer), ierr)
    has_ended = answer /= 0
  end function

  !> Waits for the end of the access.
  subroutine request_wait(self, moved, ierr)
    class(penstock_request), intent(inout) :: self
    integer(int64), intent(out), optional :: moved
    integer, intent(out), optional :: ierr
    integer(c_int64_t) :: bytes
    integer(c_int) :: code

    bytes = 0
    code = c_request_wait(self%handle, bytes)
    self%handle = c_null_ptr
    call ended(code, bytes, moved, ierr)
  end subroutine

  !> Makes the pointer one that processes share.
  subroutine subfile_share(self, pointer, ierr)
    class(penstock_subfile), intent(in) :: self
    type(penstock_pointer), intent(out) :: pointer
    integer, intent(out), optional :: ierr

    call finish(c_subfile_share(self%handle, pointer), ierr)
  end subroutine

  !> Says what an access would do.
  function subfile_explain(self, is_write, offset, bytes, ierr) result(text)
    class(penstock_subfile), intent(in) :: self
    logical, intent(in) :: is_write
    integer(int64), intent(in) :: offset, bytes
    integer, intent(out), optional :: ierr
    character(:), allocatable :: text
    type(c_ptr) :: pointer
    integer(c_int) :: code

    text = ""
    code = c_subfile_explain(self%handle, number_of(is_write), offset, bytes, pointer)
    if (code == PENSTOCK_OK) call take_text(pointer, text)
    call finish(code, ierr)
  end function

  !> Has the servers read bytes into their caches.
  subroutine subfile_prefetch(self, offset, bytes, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset, bytes
    integer, intent(out), optional :: ierr

    call finish(c_subfile_prefetch(self%handle, offset, bytes), ierr)
  end subroutine

  !> Has the servers write bytes of their caches to disk.
  subroutine subfile_flush(self, offset, bytes, ierr)
    class(penstock_subfile), intent(in) :: self
    integer(int64), intent(in) :: offset, bytes
    integer, intent(out), optional :: ierr

    call finish(c_subfile_flush(self%handle, offset, bytes), ierr)
  end subroutine

  !> Returns when what has been written to the file is on stable storage.
  subroutine subfile_sync(self, ierr)
    class(penstock_subfile), intent(in) :: self
    integer, intent(out), optional :: ierr

    call finish(c_subfile_sync(self%handle), ierr)
  end subroutine
end module
