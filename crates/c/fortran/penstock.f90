!> Penstock for Fortran: collective I/O for distributed arrays, and parallel files.
!>
!>     use mpi_f08
!>     use penstock
!>     type(penstock_session) :: session
!>     type(penstock_array) :: u
!>     real(8), allocatable :: local(:, :)
!>
!>     call session%open(MPI_COMM_WORLD)
!>     call u%create("u", shape=[64, 48], dtype="f8")
!>     call u%distribute("*,BLOCK", mesh=[session%size()])
!>     call u%set_chunks([16, 16], codec="zstd:3")
!>     call session%write("run.zarr", u, local)
!>     call session%close()
!>
!> Dimensions are in Fortran's order wherever they stand: the first varies fastest. Shapes, starts,
!> chunks, halos, distributions, meshes and names of dimensions are given so, and indices count from
!> 1. In the store the dimensions are the other way round, as in files of HDF5 and NetCDF that
!> Fortran programs write: Python finds the array above with the shape (48, 64). Texts of errors and
!> explanations come from the library and have the store's order, too, and indices from 0.
!>
!> Local arrays are of any rank and kind that fits the array's dtype, and of any strides: a section
!> such as u(2:n-1, ::2) is moved in place. "bool" is logical(c_bool). Unsigned numbers, and "f2",
!> are held by integers of their size.
!>
!> Errors. Every call that can fail has an optional argument `ierr`, the last one. It is PENSTOCK_OK
!> or the code of an error, about which penstock_error_text() and penstock_last_error() tell more;
!> without it, an error stops the program with that text. An error in a collective call is the error
!> of all ranks.
!>
!> Trailing blanks of paths, names and other texts do not count.
!>
!> The variable that a call still reads or fills after it has returned (begin_write, begin_read,
!> begin_timestep, begin_checkpoint, begin_read_at, begin_write_at) should be asynchronous or a
!> target where it is declared.
!>
!> What lists, arrays, groups and checkpoints hold is freed at the end of the variable's life.
!> Sessions, split calls, open arrays, files and requests are ended by a call, for that may be
!> collective or wait.
!>
!> The module takes communicators of `mpi_f08` and of `mpi`, and uses neither module itself.
module penstock
  use penstock_c, only: penstock_report, penstock_copy_report, penstock_stat, penstock_usage, &
      penstock_view, penstock_pointer, PENSTOCK_ROWS, PENSTOCK_OK, PENSTOCK_ERR_SCHEMA, &
      PENSTOCK_ERR_MISMATCH, PENSTOCK_ERR_OVERLAP, PENSTOCK_ERR_MISSING, PENSTOCK_ERR_DAMAGED, &
      PENSTOCK_ERR_READ_ONLY, PENSTOCK_ERR_FULL, PENSTOCK_ERR_BUSY, PENSTOCK_ERR_PEER, &
      PENSTOCK_ERR_UNSUPPORTED, PENSTOCK_ERR_IO, PENSTOCK_ERR_EXISTS, PENSTOCK_FILE_KIND, &
      PENSTOCK_DIRECTORY_KIND, PENSTOCK_SYMLINK_KIND, PENSTOCK_BLOCK_ORDER, PENSTOCK_ROW_ORDER, &
      PENSTOCK_COLUMN_ORDER, PENSTOCK_SEEK_SET, PENSTOCK_SEEK_CUR
  use penstock_base, only: penstock_error, penstock_last_error, penstock_error_text, &
      penstock_code_name, penstock_version
  use penstock_schemas, only: penstock_list, penstock_array, penstock_locals
  use penstock_sessions, only: penstock_session, penstock_seat, penstock_seats_create, &
      penstock_split, penstock_open_array, penstock_group, penstock_checkpoint_state
  use penstock_stores, only: penstock_progress, penstock_copy, penstock_session_copy, &
      penstock_verify, penstock_repair, penstock_describe
  use penstock_files, only: penstock_volume_create, penstock_fs, penstock_file, penstock_subfile, &
      penstock_request
  implicit none
  public
end module
