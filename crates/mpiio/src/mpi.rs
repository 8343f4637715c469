//! The MPI library of the program: the functions that Penstock calls, by their profiling names.
//!
//! The library is looked for among what the process has loaded, and only when the first call of
//! MPI-IO comes: this library may have been loaded before it, and a Python program loads MPI late.
//! Handles travel as machine words: see `penstock_machines::mpi::api`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use penstock_layout::exact;
use penstock_machines::mpi::abi::{self, Abi, Handle};
use penstock_machines::mpi::api::Api;
use penstock_machines::mpi::loaded::loaded_with;

use crate::abi::Dialect;
use crate::failure::{Class, Failure, Result};

/// A callback of an attribute that copies it, or not.
pub type CopyAttribute =
    unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// Keeps an attribute from a duplicate.
///
/// # Safety
/// MPI calls it, with a place for a flag.
pub unsafe extern "C" fn no_copy(
    _: Handle,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *is_copied = 0 };
    0
}

/// A callback of an attribute that is dropped.
pub type DeleteAttribute = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;
/// A callback of a generalised request that fills a status.
pub type QueryRequest = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// A callback of a generalised request that is freed.
pub type FreeRequest = unsafe extern "C" fn(*mut c_void) -> c_int;
/// A callback of a generalised request that somebody wants to cancel.
pub type CancelRequest = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
/// A callback of MPICH's extended generalised requests that waits for all of an array of requests.
pub type WaitRequests = unsafe extern "C" fn(c_int, *mut *mut c_void, f64, *mut c_void) -> c_int;

type Words = *mut c_int;
type Counts = *mut i64;

macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        $(#[$doc])*
        #[allow(clippy::type_complexity)]
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl $table {
            /// Finds all of the functions, or the name of one that is missing.
            fn find(find: &dyn Fn(&[u8]) -> Option<*mut c_void>) -> std::result::Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let found = find($symbol.as_bytes()).ok_or($symbol)?;
                        // SAFETY: the MPI standard gives this signature, with handles as words.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// The functions that every library of MPI 3 has.
    Functions {
        abort = "PMPI_Abort" (Handle, c_int);
        add_error_code = "PMPI_Add_error_code" (c_int, Words);
        add_error_string = "PMPI_Add_error_string" (c_int, *const c_char);
        comm_compare = "PMPI_Comm_compare" (Handle, Handle, Words);
        comm_create_keyval = "PMPI_Comm_create_keyval" (CopyAttribute, DeleteAttribute, Words, *mut c_void);
        comm_delete_attr = "PMPI_Comm_delete_attr" (Handle, c_int);
        comm_dup = "PMPI_Comm_dup" (Handle, *mut c_void);
        comm_free = "PMPI_Comm_free" (*mut c_void);
        comm_get_attr = "PMPI_Comm_get_attr" (Handle, c_int, *mut c_void, Words);
        comm_group = "PMPI_Comm_group" (Handle, *mut c_void);
        comm_rank = "PMPI_Comm_rank" (Handle, Words);
        comm_set_attr = "PMPI_Comm_set_attr" (Handle, c_int, *mut c_void);
        comm_size = "PMPI_Comm_size" (Handle, Words);
        comm_test_inter = "PMPI_Comm_test_inter" (Handle, Words);
        errhandler_free = "PMPI_Errhandler_free" (*mut c_void);
        error_string = "PMPI_Error_string" (c_int, *mut c_char, Words);
        file_create_errhandler = "PMPI_File_create_errhandler" (*const c_void, *mut c_void);
        file_get_errhandler = "PMPI_File_get_errhandler" (Handle, *mut c_void);
        file_set_errhandler = "PMPI_File_set_errhandler" (Handle, Handle);
        finalized = "PMPI_Finalized" (Words);
        get = "PMPI_Get" (*mut c_void, c_int, Handle, c_int, isize, c_int, Handle, Handle);
        grequest_complete = "PMPI_Grequest_complete" (Handle);
        grequest_start = "PMPI_Grequest_start" (QueryRequest, FreeRequest, CancelRequest, *mut c_void, *mut c_void);
        info_create = "PMPI_Info_create" (*mut c_void);
        info_get_nkeys = "PMPI_Info_get_nkeys" (Handle, Words);
        info_get_nthkey = "PMPI_Info_get_nthkey" (Handle, c_int, *mut c_char);
        info_set = "PMPI_Info_set" (Handle, *const c_char, *const c_char);
        put = "PMPI_Put" (*const c_void, c_int, Handle, c_int, isize, c_int, Handle, Handle);
        query_thread = "PMPI_Query_thread" (Words);
        status_set_cancelled = "PMPI_Status_set_cancelled" (*mut c_void, c_int);
        status_set_elements = "PMPI_Status_set_elements_x" (*mut c_void, Handle, i64);
        type_create_keyval = "PMPI_Type_create_keyval" (CopyAttribute, DeleteAttribute, Words, *mut c_void);
        type_dup = "PMPI_Type_dup" (Handle, *mut c_void);
        type_free = "PMPI_Type_free" (*mut c_void);
        type_get_attr = "PMPI_Type_get_attr" (Handle, c_int, *mut c_void, Words);
        type_get_contents = "PMPI_Type_get_contents" (Handle, c_int, c_int, c_int, Words, *mut isize, *mut c_void);
        type_get_envelope = "PMPI_Type_get_envelope" (Handle, Words, Words, Words, Words);
        type_get_extent = "PMPI_Type_get_extent_x" (Handle, Counts, Counts);
        type_get_name = "PMPI_Type_get_name" (Handle, *mut c_char, Words);
        type_get_true_extent = "PMPI_Type_get_true_extent_x" (Handle, Counts, Counts);
        type_set_attr = "PMPI_Type_set_attr" (Handle, c_int, *mut c_void);
        type_size = "PMPI_Type_size_x" (Handle, Counts);
        win_allocate = "PMPI_Win_allocate" (isize, c_int, Handle, Handle, *mut c_void, *mut c_void);
        win_flush = "PMPI_Win_flush" (c_int, Handle);
        win_free = "PMPI_Win_free" (*mut c_void);
        win_lock = "PMPI_Win_lock" (c_int, c_int, c_int, Handle);
        win_unlock = "PMPI_Win_unlock" (c_int, Handle);
    }
}

functions! {
    /// The functions of large counts, since MPI 4.0.
    LargeFunctions {
        type_get_contents = "PMPI_Type_get_contents_c" (Handle, i64, i64, i64, i64, Words, *mut isize, Counts, *mut c_void);
        type_get_envelope = "PMPI_Type_get_envelope_c" (Handle, Counts, Counts, Counts, Counts, Words);
    }
}

functions! {
    /// Extended generalised requests, which the library polls.
    PolledRequests {
        start = "PMPIX_Grequest_start" (QueryRequest, FreeRequest, CancelRequest, QueryRequest, Option<WaitRequests>, *mut c_void, *mut c_void);
    }
}

functions! {
    /// Values of an info object, by the name that MPI 4.0 deprecates.
    InfoGet {
        get = "PMPI_Info_get" (Handle, *const c_char, c_int, *mut c_char, Words);
    }
}

functions! {
    /// Values of an info object, since MPI 4.0.
    InfoGetString {
        get = "PMPI_Info_get_string" (Handle, *const c_char, Words, *mut c_char, Words);
    }
}

/// The MPI library of this program.
pub struct Mpi {
    /// What differs between ABIs.
    pub dialect: Dialect,
    /// The functions.
    pub call: Functions,
    /// The functions of large counts, where the library has them.
    pub large: Option<LargeFunctions>,
    /// Extended generalised requests, where the library has them.
    pub polled: Option<PolledRequests>,
    info_get: Option<InfoGet>,
    info_get_string: Option<InfoGetString>,
    /// The object in which the functions were found.
    path: PathBuf,
    _library: Library,
}

/// The longest value of a hint in any ABI, with its end.
const VALUE_BYTES_MAX: usize = 1025;

impl Mpi {
    /// The library.
    ///
    /// # Errors
    /// When the process has loaded none, or one that is too old.
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Mpi>> = OnceLock::new();
        LIBRARY
            .get_or_init(Self::find)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn find() -> Result<Self> {
        let none = || {
            let text = "the program has loaded no MPI library that has all functions of MPI 3";
            Failure::new(Class::Other, text)
        };
        let (path, library) = loaded_with(c"PMPI_Comm_rank").ok_or_else(none)?;
        let find = |name: &[u8]| {
            // SAFETY: the symbol's address is taken, and nothing is read there.
            let found = unsafe { library.get::<*mut c_void>(name) };
            found.ok().map(|symbol| symbol.into_raw())
        };
        let missing = |name: &str| {
            let text = format!("{} has no {name}: MPI 3 is needed", path.display());
            Failure::new(Class::Other, text)
        };
        let dialect = Dialect::new(Abi::of(&library), &|name| abi::handle_named(&library, name));
        Ok(Self {
            dialect: dialect.ok_or_else(|| missing("predefined handles"))?,
            call: Functions::find(&find).map_err(missing)?,
            large: LargeFunctions::find(&find).ok(),
            polled: PolledRequests::find(&find).ok(),
            info_get: InfoGet::find(&find).ok(),
            info_get_string: InfoGetString::find(&find).ok(),
            path,
            _library: library,
        })
    }

    /// The functions that the machine of an MPI job calls.
    ///
    /// # Errors
    /// As of [`Api::load`].
    pub fn api(&self) -> Result<Api> {
        Ok(Api::load(&self.path, self.dialect.constants)?)
    }

    /// Takes the answer of a call of MPI for a failure if it is one.
    ///
    /// # Errors
    /// When the code is not that of success.
    pub fn check(&self, doing: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = [0 as c_char; 8192];
        let mut bytes = 0;
        // SAFETY: there is room for the longest text of any ABI.
        let described = unsafe { (self.call.error_string)(code, text.as_mut_ptr(), &mut bytes) };
        // SAFETY: the text is zero behind what the library has written.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        let text = match described {
            0 => format!("{doing}: {text}"),
            _ => format!("{doing}: MPI error code {code}"),
        };
        Err(Failure::new(Class::Other, text))
    }

    /// Whether any thread may call MPI at any time.
    pub fn has_threads(&self) -> bool {
        let mut level = 0;
        // SAFETY: the out-parameter lives across the call.
        let code = unsafe { (self.call.query_thread)(&mut level) };
        code == 0 && level >= self.dialect.abi.thread_multiple()
    }

    /// Whether MPI may still be called.
    pub fn is_usable(&self) -> bool {
        let mut finalized = 0;
        // SAFETY: the out-parameter lives across the call, which is allowed at any time.
        unsafe { (self.call.finalized)(&mut finalized) == 0 && finalized == 0 }
    }

    /// The keys and values of an info object.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn info(&self, info: Handle) -> Result<Vec<(String, String)>> {
        if info == self.dialect.info_null {
            return Ok(Vec::new());
        }
        let mut keys = 0;
        // SAFETY: the out-parameter lives across the call.
        let code = unsafe { (self.call.info_get_nkeys)(info, &mut keys) };
        self.check("reading hints", code)?;
        let mut all = Vec::new();
        for nth in 0..keys {
            let mut key = [0 as c_char; 512];
            // SAFETY: there is room for the longest key of any ABI.
            let code = unsafe { (self.call.info_get_nthkey)(info, nth, key.as_mut_ptr()) };
            self.check("reading a hint", code)?;
            // SAFETY: the key ends with a zero.
            let key = unsafe { CStr::from_ptr(key.as_ptr()) };
            if let Some(value) = self.info_value(info, key)? {
                all.push((key.to_string_lossy().into_owned(), value));
            }
        }
        Ok(all)
    }

    fn info_value(&self, info: Handle, key: &CStr) -> Result<Option<String>> {
        let mut value = [0 as c_char; VALUE_BYTES_MAX];
        let (mut is_set, mut bytes) = (0, exact::<c_int>(VALUE_BYTES_MAX));
        // SAFETY: there is room for the longest value of any ABI, and its end.
        let code = unsafe {
            match (&self.info_get_string, &self.info_get) {
                (Some(new), _) => (new.get)(
                    info,
                    key.as_ptr(),
                    &mut bytes,
                    value.as_mut_ptr(),
                    &mut is_set,
                ),
                (None, Some(old)) => (old.get)(
                    info,
                    key.as_ptr(),
                    bytes - 1,
                    value.as_mut_ptr(),
                    &mut is_set,
                ),
                (None, None) => return Ok(None),
            }
        };
        self.check("reading a hint", code)?;
        // SAFETY: the value is zero behind what the library has written.
        let value = unsafe { CStr::from_ptr(value.as_ptr()) };
        Ok((is_set != 0).then(|| value.to_string_lossy().into_owned()))
    }

    /// Makes an info object of keys and values. Such as no text of C can be are left out.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn make_info(&self, hints: &[(&str, String)]) -> Result<Handle> {
        let mut info: Handle = 0;
        // SAFETY: the out-parameter has room for a handle of any ABI.
        let code = unsafe { (self.call.info_create)((&raw mut info).cast()) };
        self.check("making an info object", code)?;
        for (key, value) in hints {
            let (Ok(key), Ok(value)) = (CString::new(*key), CString::new(value.as_str())) else {
                continue;
            };
            // SAFETY: both texts live across the call.
            let code = unsafe { (self.call.info_set)(info, key.as_ptr(), value.as_ptr()) };
            self.check("setting a hint", code)?;
        }
        Ok(info)
    }
}

/// Memory of rank 0 that all ranks of a communicator get and put.
pub struct Window {
    handle: Handle,
}

impl Window {
    /// Makes a window of so many bytes on this rank, which are zero.
    ///
    /// # Errors
    /// What MPI answers.
    ///
    /// # Collective
    /// Over the communicator.
    pub fn make(mpi: &Mpi, comm: Handle, bytes: usize) -> Result<Self> {
        let (mut base, mut handle): (*mut u8, Handle) = (std::ptr::null_mut(), 0);
        // SAFETY: out-parameters have room for a pointer and for a handle of any ABI.
        let code = unsafe {
            let info = mpi.dialect.info_null;
            let (base, handle) = ((&raw mut base).cast(), (&raw mut handle).cast());
            (mpi.call.win_allocate)(bytes as isize, 1, info, comm, base, handle)
        };
        mpi.check("making memory that ranks of several hosts share", code)?;
        if bytes > 0 {
            let window = Self { handle };
            window.lock_alone(mpi)?;
            let zeroed = window.put(mpi, &vec![0; bytes]);
            window.unlock(mpi)?;
            zeroed?;
        }
        Ok(Self { handle })
    }

    /// Frees the window.
    ///
    /// # Errors
    /// What MPI answers.
    ///
    /// # Collective
    /// Over the communicator.
    pub fn free(&mut self, mpi: &Mpi) -> Result<()> {
        // SAFETY: nobody else has the handle.
        let code = unsafe { (mpi.call.win_free)((&raw mut self.handle).cast()) };
        mpi.check("freeing memory that ranks of several hosts share", code)
    }

    /// Keeps all others away from rank 0's memory.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn lock_alone(&self, mpi: &Mpi) -> Result<()> {
        // SAFETY: no pointers.
        let code = unsafe { (mpi.call.win_lock)(mpi.dialect.lock_exclusive, 0, 0, self.handle) };
        mpi.check("locking memory of rank 0", code)
    }

    /// Lets others to rank 0's memory, once what was put is there.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn unlock(&self, mpi: &Mpi) -> Result<()> {
        // SAFETY: no pointers.
        let code = unsafe { (mpi.call.win_unlock)(0, self.handle) };
        mpi.check("unlocking memory of rank 0", code)
    }

    /// Gets rank 0's memory, which this process has locked.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn get(&self, mpi: &Mpi, bytes: &mut [u8]) -> Result<()> {
        let (count, byte) = (exact::<c_int>(bytes.len()), mpi.dialect.constants.byte);
        // SAFETY: the bytes live until the flush has ended.
        let code = unsafe {
            let place = bytes.as_mut_ptr().cast();
            match (mpi.call.get)(place, count, byte, 0, 0, count, byte, self.handle) {
                0 => (mpi.call.win_flush)(0, self.handle),
                code => code,
            }
        };
        mpi.check("getting memory of rank 0", code)
    }

    /// Puts rank 0's memory, which this process has locked.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn put(&self, mpi: &Mpi, bytes: &[u8]) -> Result<()> {
        let (count, byte) = (exact::<c_int>(bytes.len()), mpi.dialect.constants.byte);
        // SAFETY: the bytes live until the flush has ended.
        let code = unsafe {
            let place = bytes.as_ptr().cast();
            match (mpi.call.put)(place, count, byte, 0, 0, count, byte, self.handle) {
                0 => (mpi.call.win_flush)(0, self.handle),
                code => code,
            }
        };
        mpi.check("putting memory of rank 0", code)
    }
}
