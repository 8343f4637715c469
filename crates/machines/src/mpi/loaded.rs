//! Finds the MPI library that the program has loaded.
//!
//! A library is known by a function that it has. The libraries here are opened as they are in
//! memory: none is brought into the process.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

/// A loaded object, and its path.
pub type Loaded = (PathBuf, Library);

/// The object whose function of this name the program itself calls.
pub fn called_by_program(symbol: &CStr) -> Option<Loaded> {
    defined_in(&Library::this(), symbol)
}

/// The first loaded object in which, or in what it depends on, a symbol is found: the object that
/// has the symbol.
pub fn loaded_with(symbol: &CStr) -> Option<Loaded> {
    /// Collects the names of objects.
    unsafe extern "C" fn note(
        object: *mut libc::dl_phdr_info,
        _: usize,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes on what `loaded_with` has given, and a valid object,
        // whose name is a text or null.
        unsafe {
            let names = &mut *names.cast::<Vec<PathBuf>>();
            let name = (*object).dlpi_name;
            if !name.is_null() && *name != 0 {
                let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                names.push(name.into());
            }
        }
        0
    }
    let mut names: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback only uses the names, which live across the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
        .iter()
        .find_map(|name| defined_in(&open_loaded(name)?, symbol))
}

/// The object that has the symbol which `library` finds.
fn defined_in(library: &Library, symbol: &CStr) -> Option<Loaded> {
    // SAFETY: the symbol's address is taken, and nothing is read there.
    let found = unsafe { library.get::<*mut c_void>(symbol.to_bytes()) };
    let path = object_of(found.ok()?.into_raw())?;
    let library = open_loaded(&path)?;
    Some((path, library))
}

/// A loaded object.
fn open_loaded(name: &Path) -> Option<Library> {
    let flags = RTLD_LAZY | RTLD_LOCAL | libc::RTLD_NOLOAD;
    // SAFETY: the object is loaded already, so that no initialiser runs.
    unsafe { Library::open(Some(name), flags) }.ok()
}

/// The object that an address lies in.
fn object_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: a structure of pointers, which may be null.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives across the call.
    let code = unsafe { libc::dladdr(address, &mut found) };
    if code == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a name that `dladdr` gives is a text.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(name.to_string_lossy().into_owned().into())
}
