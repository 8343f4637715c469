//! Error handlers of files, and error codes.
//!
//! A file's handler gets Penstock's handle of the file, so handlers that the program makes are kept
//! here as well as in MPI. Each failure becomes an error code whose text says what was wrong:
//! `MPI_Error_string` gives it, and `MPI_Error_class` the class.

use std::ffi::{CString, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use penstock_machines::mpi::abi::{Abi, Handle};
use rustc_hash::FxHashMap;

use crate::failure::{Class, Failure, Result, wrong};
use crate::mpi::Mpi;

/// A function of the program: a place with the file's handle, a place with the error code, and what
/// the library likes.
pub type HandlerFunction = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

/// The error handler of a file.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// The call returns the error code.
    Return,
    /// The program ends.
    Fatal,
    /// The processes of the file's communicator end.
    Abort,
    /// A function of the program is called, then the call returns the error code.
    Function(HandlerFunction, Handle),
}

/// The most error codes with texts of their own. Further failures have the code of their class.
const CODES_MAX: usize = 1000;
/// The longest text of an error code, with its end, in all ABIs.
const TEXT_BYTES_MAX: usize = 256;

/// What is known of error handlers and codes.
struct Known {
    functions: FxHashMap<Handle, HandlerFunction>,
    codes: FxHashMap<Failure, c_int>,
    /// The handler of calls that have no file.
    of_no_file: Handler,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(|| {
    Mutex::new(Known {
        functions: FxHashMap::default(),
        codes: FxHashMap::default(),
        of_no_file: Handler::Return,
    })
});

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handler {
    /// The handler of calls that have no file: of `MPI_FILE_NULL`.
    pub fn of_no_file() -> Self {
        known().of_no_file
    }

    /// Sets the handler of calls that have no file.
    pub fn set_of_no_file(handler: Self) {
        known().of_no_file = handler;
    }

    /// The handler of this MPI handle.
    ///
    /// # Errors
    /// [`Class::Errhandler`] when it is none for files.
    pub fn of(mpi: &Mpi, handle: Handle) -> Result<Self> {
        let dialect = &mpi.dialect;
        if handle == dialect.errors_return {
            return Ok(Self::Return);
        }
        if handle == dialect.errors_are_fatal {
            return Ok(Self::Fatal);
        }
        if Some(handle) == dialect.errors_abort {
            return Ok(Self::Abort);
        }
        let function = known().functions.get(&handle).copied();
        match function {
            Some(function) => Ok(Self::Function(function, handle)),
            None => Err(wrong(
                Class::Errhandler,
                "the error handler was not made for files",
            )),
        }
    }

    /// The MPI handle of the handler, which the program will free: for one that the program has
    /// made, one more reference to it.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn handle(self, mpi: &Mpi) -> Result<Handle> {
        let dialect = &mpi.dialect;
        match self {
            Self::Return => Ok(dialect.errors_return),
            Self::Fatal => Ok(dialect.errors_are_fatal),
            Self::Abort => Ok(dialect.errors_abort.unwrap_or(dialect.errors_are_fatal)),
            Self::Function(_, handle) => another_reference(mpi, handle),
        }
    }

    /// Makes the handler of a function of the program, and gives its MPI handle.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn make(mpi: &Mpi, function: HandlerFunction) -> Result<Handle> {
        let mut handle: Handle = 0;
        // SAFETY: the out-parameter has room for a handle of any ABI. MPI has no file that could
        // have this handler, and never calls it.
        let code = unsafe {
            let place = (&raw mut handle).cast();
            (mpi.call.file_create_errhandler)(function as *const c_void, place)
        };
        mpi.check("making an error handler", code)?;
        known().functions.insert(handle, function);
        Ok(handle)
    }

    /// Handles a failure of a call on a file, and gives the code that the call returns.
    pub fn handle_failure(self, mpi: &Mpi, file: usize, failure: &Failure) -> c_int {
        self.handle_code(mpi, file, code_of(mpi, failure), &failure.text)
    }

    /// Handles an error code, and gives the code that the call returns.
    pub fn handle_code(self, mpi: &Mpi, file: usize, code: c_int, text: &str) -> c_int {
        match self {
            Self::Return => code,
            Self::Fatal | Self::Abort => {
                eprintln!("penstock: a fatal error of MPI-IO: {text}");
                // SAFETY: no pointers. The call does not come back.
                unsafe { (mpi.call.abort)(mpi.dialect.comm_world, code) };
                code
            }
            Self::Function(function, _) => {
                let (mut file, mut told) = (file, code);
                // SAFETY: the program has given a function of this signature; both places live
                // across the call.
                unsafe { function(&mut file, &mut told) };
                match mpi.dialect.abi {
                    Abi::OpenMpi => code,
                    // In MPICH the call returns what the function has made of the code.
                    Abi::Mpich | Abi::Standard => told,
                }
            }
        }
    }
}

/// One more reference to an error handler. MPI gives one only to the handler of a file, and knows
/// no file but `MPI_FILE_NULL`: so that one has the handler for a moment.
fn another_reference(mpi: &Mpi, handle: Handle) -> Result<Handle> {
    let _alone = known();
    let null = mpi.dialect.file_null;
    let (mut before, mut again): (Handle, Handle) = (0, 0);
    // SAFETY: out-parameters have room for handles of any ABI.
    unsafe {
        let code = (mpi.call.file_get_errhandler)(null, (&raw mut before).cast());
        mpi.check("reading an error handler", code)?;
        let set = (mpi.call.file_set_errhandler)(null, handle);
        let got = match set {
            0 => (mpi.call.file_get_errhandler)(null, (&raw mut again).cast()),
            code => code,
        };
        let back = (mpi.call.file_set_errhandler)(null, before);
        let is_predefined = before == mpi.dialect.errors_return
            || before == mpi.dialect.errors_are_fatal
            || Some(before) == mpi.dialect.errors_abort;
        if !is_predefined {
            // There is nobody to tell of a failure.
            let _ = (mpi.call.errhandler_free)((&raw mut before).cast());
        }
        mpi.check("reading an error handler", got)?;
        mpi.check("setting an error handler", back)?;
    }
    Ok(again)
}

/// The error code of a failure.
pub fn code_of(mpi: &Mpi, failure: &Failure) -> c_int {
    let class = mpi.dialect.class(failure.class);
    let mut known = known();
    if let Some(&code) = known.codes.get(failure) {
        return code;
    }
    if known.codes.len() >= CODES_MAX {
        return class;
    }
    let mut text = failure.text.replace('\0', " ");
    let mut end = text.len().min(TEXT_BYTES_MAX - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    let mut code = 0;
    // SAFETY: the out-parameter and the text live across the calls.
    let added = unsafe {
        match (mpi.call.add_error_code)(class, &mut code) {
            0 => {
                let text = CString::new(text).unwrap_or_default();
                (mpi.call.add_error_string)(code, text.as_ptr())
            }
            other => other,
        }
    };
    if added != 0 {
        return class;
    }
    known.codes.insert(failure.clone(), code);
    code
}
