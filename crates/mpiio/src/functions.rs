//! The functions of MPI that this library has in the place of the MPI library's.
//!
//! Each stands here under its name and under its profiling name: Fortran bindings call either. A
//! function looks its file up, does what it must, and turns a failure into an error code through
//! the file's error handler. No panic leaves it.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_engine::Operation::{Read, Write};
use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;

use crate::access::Buffer;
use crate::administration as administer;
use crate::context::lock;
use crate::failure::Result;
use crate::file::File;
use crate::handlers::{Handler, HandlerFunction};
use crate::mpi::Mpi;
use crate::operations::{Call, Position};
use crate::pending::failure_of;
use crate::representation::{Conversion, Converter, ExtentOf, LargeConversion, text_of};
use crate::requests::{self, set_status};

/// Does something that needs no file, and answers as the handler of `MPI_FILE_NULL` wants.
fn without_file(act: impl FnOnce(&'static Mpi) -> Result<()>) -> c_int {
    answer(None, || act(Mpi::get()?))
}

/// Does something with the file of a handle, and answers as the file's error handler wants.
fn with_file(handle: usize, act: impl FnOnce(&Arc<File>) -> Result<()>) -> c_int {
    let file = File::of(handle).ok();
    let own = file.clone();
    answer(file.as_deref(), || {
        act(&own.map_or_else(|| File::of(handle), Ok)?)
    })
}

fn answer(file: Option<&File>, act: impl FnOnce() -> Result<()>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(failure_of(&*panic)));
    let Err(failure) = done else {
        return 0;
    };
    let Ok(mpi) = Mpi::get() else {
        eprintln!("penstock: {failure}");
        return 1;
    };
    let (handler, handle) = match file {
        Some(file) => (*lock(&file.handler), file.handle),
        None => (Handler::of_no_file(), mpi.dialect.file_null),
    };
    handler.handle_failure(mpi, handle, &failure)
}

/// A call of the program.
fn call(
    function: &'static str,
    operation: penstock_engine::Operation,
    position: Position,
    (buffer, count, datatype): (*mut c_void, i64, Handle),
) -> Result<Call> {
    Ok(Call {
        function,
        operation,
        position,
        buffer: Buffer {
            address: buffer as usize,
            count,
            datatype: Mpi::get()?.dialect.handle(datatype),
        },
    })
}

/// Reads or writes, and fills a status.
fn blocking(
    handle: usize,
    call: impl FnOnce() -> Result<Call>,
    is_collective: bool,
    status: *mut c_void,
) -> c_int {
    with_file(handle, |file| {
        let call = call()?;
        let bytes = match is_collective {
            true => file.together(&call)?,
            false => file.alone(&call)?,
        };
        // SAFETY: the program gives a place for a status, or says that it wants none.
        unsafe { set_status(file.mpi, status, bytes) };
        Ok(())
    })
}

/// Begins to read or write, and stores a request.
fn non_blocking(
    handle: usize,
    call: impl FnOnce() -> Result<Call>,
    is_collective: bool,
    request: *mut c_void,
) -> c_int {
    with_file(handle, |file| {
        let begun = requests::begin(file, &call()?, is_collective)?;
        // SAFETY: the program has given a place for a request.
        unsafe { file.mpi.dialect.store(request, begun) };
        Ok(())
    })
}

/// Begins a split access.
fn begin(handle: usize, call: impl FnOnce() -> Result<Call>, ends_with: &'static str) -> c_int {
    with_file(handle, |file| file.begin_split(&call()?, ends_with))
}

/// Ends a split access, and fills a status.
fn end(handle: usize, function: &'static str, status: *mut c_void) -> c_int {
    with_file(handle, |file| {
        let bytes = file.end_split(function)?;
        // SAFETY: the program gives a place for a status, or says that it wants none.
        unsafe { set_status(file.mpi, status, bytes) };
        Ok(())
    })
}

/// Declares a function under its name and its profiling name.
macro_rules! function {
    ($(#[$doc:meta])* $name:ident / $profiled:ident ($($argument:ident: $type:ty),* $(,)?) $body:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments must be what the MPI standard wants.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            $body
        }

        #[doc = concat!("As [`", stringify!($name), "`].")]
        ///
        /// # Safety
        /// As of the other.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $name($($argument),*) }
        }
    };
}

/// Declares functions that read or write, each with a count of 32 bits and with a large one. The
/// last word says whether all ranks take part.
macro_rules! blocking {
    ($($name:ident / $profiled:ident, $large:ident / $large_profiled:ident
        ($($offset:ident)?) $operation:ident $position:expr, $is_collective:literal;)*) => {
        $(
            blocking!(@ $name / $profiled, c_int, ($($offset)?) $operation $position, $is_collective);
            blocking!(@ $large / $large_profiled, i64, ($($offset)?) $operation $position, $is_collective);
        )*
    };
    (@ $name:ident / $profiled:ident, $count:ty, ($($offset:ident)?) $operation:ident
        $position:expr, $is_collective:literal) => {
        function! {
            /// Reads or writes, and waits for the end.
            $name / $profiled (
                fh: usize, $($offset: i64,)? buffer: *mut c_void, count: $count,
                datatype: Handle, status: *mut c_void,
            ) {
                let data = (buffer, i64::from(count), datatype);
                let call = || call(stringify!($name), $operation, $position, data);
                blocking(fh, call, $is_collective, status)
            }
        }
    };
}

/// As `blocking`, for functions that give a request.
macro_rules! non_blocking {
    ($($name:ident / $profiled:ident, $large:ident / $large_profiled:ident
        ($($offset:ident)?) $operation:ident $position:expr, $is_collective:literal;)*) => {
        $(
            non_blocking!(@ $name / $profiled, c_int, ($($offset)?) $operation $position, $is_collective);
            non_blocking!(@ $large / $large_profiled, i64, ($($offset)?) $operation $position, $is_collective);
        )*
    };
    (@ $name:ident / $profiled:ident, $count:ty, ($($offset:ident)?) $operation:ident
        $position:expr, $is_collective:literal) => {
        function! {
            /// Begins to read or write.
            $name / $profiled (
                fh: usize, $($offset: i64,)? buffer: *mut c_void, count: $count,
                datatype: Handle, request: *mut c_void,
            ) {
                let data = (buffer, i64::from(count), datatype);
                let call = || call(stringify!($name), $operation, $position, data);
                non_blocking(fh, call, $is_collective, request)
            }
        }
    };
}

/// As `blocking`, for the two halves of split accesses.
macro_rules! split {
    ($($name:ident / $profiled:ident, $large:ident / $large_profiled:ident, $end:ident / $end_profiled:ident
        ($($offset:ident)?) $operation:ident $position:expr;)*) => {
        $(
            split!(@ $name / $profiled, c_int, ($($offset)?) $operation $position, $end);
            split!(@ $large / $large_profiled, i64, ($($offset)?) $operation $position, $end);
            function! {
                /// Ends what was begun, once all ranks have begun it.
                $end / $end_profiled (fh: usize, _buffer: *mut c_void, status: *mut c_void) {
                    end(fh, stringify!($end), status)
                }
            }
        )*
    };
    (@ $name:ident / $profiled:ident, $count:ty, ($($offset:ident)?) $operation:ident
        $position:expr, $end:ident) => {
        function! {
            /// Begins to read or write together with all ranks.
            $name / $profiled (
                fh: usize, $($offset: i64,)? buffer: *mut c_void, count: $count, datatype: Handle,
            ) {
                let data = (buffer, i64::from(count), datatype);
                let call = || call(stringify!($name), $operation, $position, data);
                begin(fh, call, stringify!($end))
            }
        }
    };
}

blocking! {
    MPI_File_read_at / PMPI_File_read_at, MPI_File_read_at_c / PMPI_File_read_at_c (offset) Read Position::Explicit(offset), false;
    MPI_File_read_at_all / PMPI_File_read_at_all, MPI_File_read_at_all_c / PMPI_File_read_at_all_c (offset) Read Position::Explicit(offset), true;
    MPI_File_read / PMPI_File_read, MPI_File_read_c / PMPI_File_read_c () Read Position::Individual, false;
    MPI_File_read_all / PMPI_File_read_all, MPI_File_read_all_c / PMPI_File_read_all_c () Read Position::Individual, true;
    MPI_File_read_shared / PMPI_File_read_shared, MPI_File_read_shared_c / PMPI_File_read_shared_c () Read Position::Shared, false;
    MPI_File_read_ordered / PMPI_File_read_ordered, MPI_File_read_ordered_c / PMPI_File_read_ordered_c () Read Position::Ordered, true;
    MPI_File_write_at / PMPI_File_write_at, MPI_File_write_at_c / PMPI_File_write_at_c (offset) Write Position::Explicit(offset), false;
    MPI_File_write_at_all / PMPI_File_write_at_all, MPI_File_write_at_all_c / PMPI_File_write_at_all_c (offset) Write Position::Explicit(offset), true;
    MPI_File_write / PMPI_File_write, MPI_File_write_c / PMPI_File_write_c () Write Position::Individual, false;
    MPI_File_write_all / PMPI_File_write_all, MPI_File_write_all_c / PMPI_File_write_all_c () Write Position::Individual, true;
    MPI_File_write_shared / PMPI_File_write_shared, MPI_File_write_shared_c / PMPI_File_write_shared_c () Write Position::Shared, false;
    MPI_File_write_ordered / PMPI_File_write_ordered, MPI_File_write_ordered_c / PMPI_File_write_ordered_c () Write Position::Ordered, true;
}

non_blocking! {
    MPI_File_iread_at / PMPI_File_iread_at, MPI_File_iread_at_c / PMPI_File_iread_at_c (offset) Read Position::Explicit(offset), false;
    MPI_File_iread_at_all / PMPI_File_iread_at_all, MPI_File_iread_at_all_c / PMPI_File_iread_at_all_c (offset) Read Position::Explicit(offset), true;
    MPI_File_iread / PMPI_File_iread, MPI_File_iread_c / PMPI_File_iread_c () Read Position::Individual, false;
    MPI_File_iread_all / PMPI_File_iread_all, MPI_File_iread_all_c / PMPI_File_iread_all_c () Read Position::Individual, true;
    MPI_File_iread_shared / PMPI_File_iread_shared, MPI_File_iread_shared_c / PMPI_File_iread_shared_c () Read Position::Shared, false;
    MPI_File_iwrite_at / PMPI_File_iwrite_at, MPI_File_iwrite_at_c / PMPI_File_iwrite_at_c (offset) Write Position::Explicit(offset), false;
    MPI_File_iwrite_at_all / PMPI_File_iwrite_at_all, MPI_File_iwrite_at_all_c / PMPI_File_iwrite_at_all_c (offset) Write Position::Explicit(offset), true;
    MPI_File_iwrite / PMPI_File_iwrite, MPI_File_iwrite_c / PMPI_File_iwrite_c () Write Position::Individual, false;
    MPI_File_iwrite_all / PMPI_File_iwrite_all, MPI_File_iwrite_all_c / PMPI_File_iwrite_all_c () Write Position::Individual, true;
    MPI_File_iwrite_shared / PMPI_File_iwrite_shared, MPI_File_iwrite_shared_c / PMPI_File_iwrite_shared_c () Write Position::Shared, false;
}

split! {
    MPI_File_read_at_all_begin / PMPI_File_read_at_all_begin, MPI_File_read_at_all_begin_c / PMPI_File_read_at_all_begin_c,
        MPI_File_read_at_all_end / PMPI_File_read_at_all_end (offset) Read Position::Explicit(offset);
    MPI_File_read_all_begin / PMPI_File_read_all_begin, MPI_File_read_all_begin_c / PMPI_File_read_all_begin_c,
        MPI_File_read_all_end / PMPI_File_read_all_end () Read Position::Individual;
    MPI_File_read_ordered_begin / PMPI_File_read_ordered_begin, MPI_File_read_ordered_begin_c / PMPI_File_read_ordered_begin_c,
        MPI_File_read_ordered_end / PMPI_File_read_ordered_end () Read Position::Ordered;
    MPI_File_write_at_all_begin / PMPI_File_write_at_all_begin, MPI_File_write_at_all_begin_c / PMPI_File_write_at_all_begin_c,
        MPI_File_write_at_all_end / PMPI_File_write_at_all_end (offset) Write Position::Explicit(offset);
    MPI_File_write_all_begin / PMPI_File_write_all_begin, MPI_File_write_all_begin_c / PMPI_File_write_all_begin_c,
        MPI_File_write_all_end / PMPI_File_write_all_end () Write Position::Individual;
    MPI_File_write_ordered_begin / PMPI_File_write_ordered_begin, MPI_File_write_ordered_begin_c / PMPI_File_write_ordered_begin_c,
        MPI_File_write_ordered_end / PMPI_File_write_ordered_end () Write Position::Ordered;
}

function! {
    /// Opens a file, together with all ranks of a communicator.
    MPI_File_open / PMPI_File_open (
        comm: Handle, name: *const c_char, mode: c_int, info: Handle, fh: *mut usize,
    ) {
        without_file(|mpi| {
            let (comm, info) = (mpi.dialect.handle(comm), mpi.dialect.handle(info));
            // SAFETY: the program gives a text, and a place for a handle.
            unsafe {
                let name = text_of(name, "the file name");
                *fh = mpi.dialect.file_null;
                *fh = File::open(mpi, comm, name, mode, info)?;
            }
            Ok(())
        })
    }
}

function! {
    /// Closes a file, together with all ranks that have opened it.
    MPI_File_close / PMPI_File_close (fh: *mut usize) {
        // SAFETY: the program gives a place with a handle.
        let handle = unsafe { *fh };
        let file = File::of(handle).ok();
        answer(file.as_deref(), || {
            let closed = File::close(handle);
            let is_open = file.is_some();
            if is_open {
                // SAFETY: as above.
                unsafe { *fh = Mpi::get()?.dialect.file_null };
            }
            closed
        })
    }
}

function! {
    /// Deletes a file.
    MPI_File_delete / PMPI_File_delete (name: *const c_char, info: Handle) {
        let _ = info; // no hint concerns it
        // SAFETY: the program gives a text.
        without_file(|_| administer::delete(&unsafe { text_of(name, "the file name") }?))
    }
}

function! {
    /// Sets the bytes of a file, together with all ranks.
    MPI_File_set_size / PMPI_File_set_size (fh: usize, bytes: i64) {
        with_file(fh, |file| administer::set_size(file, bytes))
    }
}

function! {
    /// Reserves space for the bytes of a file, together with all ranks.
    MPI_File_preallocate / PMPI_File_preallocate (fh: usize, bytes: i64) {
        with_file(fh, |file| administer::preallocate(file, bytes))
    }
}

function! {
    /// Tells the bytes of a file.
    MPI_File_get_size / PMPI_File_get_size (fh: usize, bytes: *mut i64) {
        with_file(fh, |file| {
            // SAFETY: the program gives a place for the number.
            unsafe { *bytes = file.size()? as i64 };
            Ok(())
        })
    }
}

function! {
    /// Gives the group of the ranks that have opened a file.
    MPI_File_get_group / PMPI_File_get_group (fh: usize, group: *mut c_void) {
        with_file(fh, |file| {
            // SAFETY: the program gives a place for a handle of its ABI.
            let code = unsafe { (file.mpi.call.comm_group)(file.context.comm, group) };
            file.mpi.check("making the group of a file", code)
        })
    }
}

function! {
    /// Tells the access mode of a file.
    MPI_File_get_amode / PMPI_File_get_amode (fh: usize, mode: *mut c_int) {
        with_file(fh, |file| {
            // SAFETY: the program gives a place for the number.
            unsafe { *mode = file.mode.bits };
            Ok(())
        })
    }
}

function! {
    /// Gives hints, together with all ranks.
    MPI_File_set_info / PMPI_File_set_info (fh: usize, info: Handle) {
        with_file(fh, |file| administer::set_info(file, file.mpi.dialect.handle(info)))
    }
}

function! {
    /// Tells the hints in use.
    MPI_File_get_info / PMPI_File_get_info (fh: usize, info: *mut c_void) {
        with_file(fh, |file| {
            let used = lock(&file.hints).in_use(file.servers());
            let made = file.mpi.make_info(&used)?;
            // SAFETY: the program gives a place for a handle.
            unsafe { file.mpi.dialect.store(info, made) };
            Ok(())
        })
    }
}

function! {
    /// Sets the view of a rank, together with all ranks.
    MPI_File_set_view / PMPI_File_set_view (
        fh: usize, displacement: i64, etype: Handle, filetype: Handle,
        representation: *const c_char, info: Handle,
    ) {
        with_file(fh, |file| {
            let dialect = &file.mpi.dialect;
            let types = (dialect.handle(etype), dialect.handle(filetype));
            // SAFETY: the program gives a text.
            let name = unsafe { text_of(representation, "the data representation") };
            administer::set_view(file, displacement, types, name, dialect.handle(info))
        })
    }
}

function! {
    /// Tells the view of a rank.
    MPI_File_get_view / PMPI_File_get_view (
        fh: usize, displacement: *mut i64, etype: *mut c_void, filetype: *mut c_void,
        representation: *mut c_char,
    ) {
        with_file(fh, |file| {
            let view = lock(&file.cursor).view.clone();
            let types = [view.etype, view.filetype];
            let [one, other] = types.map(|handle| administer::duplicate(file.mpi, handle));
            let name = view.representation.name().as_bytes();
            // SAFETY: the program gives places for a number, for two handles, and for the longest
            // name of a representation.
            unsafe {
                *displacement = view.displacement;
                file.mpi.dialect.store(etype, one?);
                file.mpi.dialect.store(filetype, other?);
                std::ptr::copy_nonoverlapping(name.as_ptr().cast(), representation, name.len());
                *representation.add(name.len()) = 0;
            }
            Ok(())
        })
    }
}

function! {
    /// Moves the pointer of a rank.
    MPI_File_seek / PMPI_File_seek (fh: usize, offset: i64, whence: c_int) {
        with_file(fh, |file| administer::seek(file, offset, whence))
    }
}

function! {
    /// Tells the pointer of a rank.
    MPI_File_get_position / PMPI_File_get_position (fh: usize, offset: *mut i64) {
        with_file(fh, |file| {
            administer::refuse_sequential(file, "MPI_File_get_position")?;
            // SAFETY: the program gives a place for the number.
            unsafe { *offset = lock(&file.cursor).pointer };
            Ok(())
        })
    }
}

function! {
    /// Tells the byte of a file at which an offset begins.
    MPI_File_get_byte_offset / PMPI_File_get_byte_offset (
        fh: usize, offset: i64, place: *mut i64,
    ) {
        with_file(fh, |file| {
            administer::refuse_sequential(file, "MPI_File_get_byte_offset")?;
            let view = lock(&file.cursor).view.clone();
            // SAFETY: the program gives a place for the number.
            unsafe { *place = view.place(view.data_at(offset)?) };
            Ok(())
        })
    }
}

function! {
    /// Moves the shared pointer, together with all ranks.
    MPI_File_seek_shared / PMPI_File_seek_shared (fh: usize, offset: i64, whence: c_int) {
        with_file(fh, |file| administer::seek_shared(file, offset, whence))
    }
}

function! {
    /// Tells the shared pointer.
    MPI_File_get_position_shared / PMPI_File_get_position_shared (fh: usize, offset: *mut i64) {
        with_file(fh, |file| {
            administer::refuse_sequential(file, "MPI_File_get_position_shared")?;
            // SAFETY: the program gives a place for the number.
            unsafe { *offset = file.shared.advance(0)? };
            Ok(())
        })
    }
}

function! {
    /// Tells the extent of a datatype in a file.
    MPI_File_get_type_extent / PMPI_File_get_type_extent (
        fh: usize, datatype: Handle, extent: *mut isize,
    ) {
        with_file(fh, |file| {
            let found = administer::extent(file, datatype)?;
            // SAFETY: the program gives a place for the number.
            unsafe { *extent = exact::<isize>(found) };
            Ok(())
        })
    }
}

function! {
    /// As `MPI_File_get_type_extent`, as a large count.
    MPI_File_get_type_extent_c / PMPI_File_get_type_extent_c (
        fh: usize, datatype: Handle, extent: *mut i64,
    ) {
        with_file(fh, |file| {
            // SAFETY: the program gives a place for the number.
            unsafe { *extent = administer::extent(file, datatype)? };
            Ok(())
        })
    }
}

function! {
    /// Sets atomic mode, together with all ranks.
    MPI_File_set_atomicity / PMPI_File_set_atomicity (fh: usize, flag: c_int) {
        with_file(fh, |file| administer::set_atomicity(file, flag != 0))
    }
}

function! {
    /// Tells whether a file is in atomic mode.
    MPI_File_get_atomicity / PMPI_File_get_atomicity (fh: usize, flag: *mut c_int) {
        with_file(fh, |file| {
            // SAFETY: the program gives a place for the number.
            unsafe { *flag = c_int::from(file.is_atomic()) };
            Ok(())
        })
    }
}

function! {
    /// Puts what was written on stable storage, together with all ranks.
    MPI_File_sync / PMPI_File_sync (fh: usize) {
        with_file(fh, administer::sync)
    }
}

function! {
    /// Makes an error handler of a function.
    MPI_File_create_errhandler / PMPI_File_create_errhandler (
        function: HandlerFunction, handler: *mut c_void,
    ) {
        without_file(|mpi| {
            let made = Handler::make(mpi, function)?;
            // SAFETY: the program gives a place for a handle.
            unsafe { mpi.dialect.store(handler, made) };
            Ok(())
        })
    }
}

function! {
    /// Sets the error handler of a file, or of calls that have none.
    MPI_File_set_errhandler / PMPI_File_set_errhandler (fh: usize, handler: Handle) {
        let set = |mpi: &Mpi, own: &mut dyn FnMut(Handler)| {
            own(Handler::of(mpi, mpi.dialect.handle(handler))?);
            Ok(())
        };
        match Mpi::get() {
            Ok(mpi) if fh == mpi.dialect.file_null => {
                without_file(|mpi| set(mpi, &mut Handler::set_of_no_file))
            }
            _ => with_file(fh, |file| set(file.mpi, &mut |new| *lock(&file.handler) = new)),
        }
    }
}

function! {
    /// Tells the error handler of a file, or of calls that have none.
    MPI_File_get_errhandler / PMPI_File_get_errhandler (fh: usize, handler: *mut c_void) {
        let get = |mpi: &Mpi, own: Handler| {
            // SAFETY: the program gives a place for a handle.
            unsafe { mpi.dialect.store(handler, own.handle(mpi)?) };
            Ok(())
        };
        match Mpi::get() {
            Ok(mpi) if fh == mpi.dialect.file_null => {
                without_file(|mpi| get(mpi, Handler::of_no_file()))
            }
            _ => with_file(fh, |file| get(file.mpi, *lock(&file.handler))),
        }
    }
}

function! {
    /// Calls the error handler of a file, or that of calls that have none.
    MPI_File_call_errhandler / PMPI_File_call_errhandler (fh: usize, code: c_int) {
        let text = "the program has called the error handler";
        let call = |mpi: &Mpi, handler: Handler| {
            handler.handle_code(mpi, fh, code, text);
            Ok(())
        };
        match Mpi::get() {
            Ok(mpi) if fh == mpi.dialect.file_null => {
                without_file(|mpi| call(mpi, Handler::of_no_file()))
            }
            _ => with_file(fh, |file| call(file.mpi, *lock(&file.handler))),
        }
    }
}

function! {
    /// Registers a data representation.
    MPI_Register_datarep / PMPI_Register_datarep (
        name: *const c_char, read: Option<Conversion>, write: Option<Conversion>,
        extent: ExtentOf, state: *mut c_void,
    ) {
        let by = |function: Option<Conversion>| function.map_or(Converter::None, Converter::Small);
        // SAFETY: the program gives a text.
        let name = unsafe { text_of(name, "the name of a data representation") };
        without_file(|_| administer::register(name?, by(read), by(write), (extent, state)))
    }
}

function! {
    /// As `MPI_Register_datarep`, with functions of large counts.
    MPI_Register_datarep_c / PMPI_Register_datarep_c (
        name: *const c_char, read: Option<LargeConversion>, write: Option<LargeConversion>,
        extent: ExtentOf, state: *mut c_void,
    ) {
        let by = |function: Option<LargeConversion>| {
            function.map_or(Converter::None, Converter::Large)
        };
        // SAFETY: the program gives a text.
        let name = unsafe { text_of(name, "the name of a data representation") };
        without_file(|_| administer::register(name?, by(read), by(write), (extent, state)))
    }
}

/// Declares functions between handles and integers: all handles of files are small.
macro_rules! as_integer {
    ($($to:ident / $to_profiled:ident, $from:ident / $from_profiled:ident;)*) => {
        $(
            as_integer!(@to $to);
            as_integer!(@to $to_profiled);
            as_integer!(@from $from);
            as_integer!(@from $from_profiled);
        )*
    };
    (@to $name:ident) => {
        /// The integer of a handle.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(fh: usize) -> c_int {
            administer::integer_of(fh)
        }
    };
    (@from $name:ident) => {
        /// The handle of an integer.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(fh: c_int) -> usize {
            administer::handle_of(fh)
        }
    };
}

as_integer! {
    MPI_File_c2f / PMPI_File_c2f, MPI_File_f2c / PMPI_File_f2c;
    MPI_File_toint / PMPI_File_toint, MPI_File_fromint / PMPI_File_fromint;
}
