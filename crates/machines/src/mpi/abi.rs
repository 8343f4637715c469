//! The ABIs of MPI libraries that Penstock can call.
//!
//! An ABI says how wide a handle is, how long an `MPI_Status` is, and which value a constant has.
//! Every ABI has an `MPI_BYTE` of its own, so the caller's `MPI_BYTE` shows which ABI the caller
//! was compiled for, and the library shows whether it has the same.

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;
use penstock_engine::{Error, Kind, Result};

/// An MPI handle as a machine word.
pub type Handle = usize;

/// An ABI of MPI libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// The ABI that MPICH, Intel MPI, MVAPICH and Cray MPICH share.
    Mpich,
    /// The ABI of Open MPI.
    OpenMpi,
    /// The standard ABI, since MPI 5.0.
    Standard,
}

impl Abi {
    /// The ABI of a loaded library: MPICH's, unless its symbols or its answers show another.
    pub fn of(library: &Library) -> Self {
        let marks = Marks::of(library);
        match marks.open_mpi_byte {
            Some(_) => Self::OpenMpi,
            None if marks.is_standard => Self::Standard,
            None => Self::Mpich,
        }
    }

    /// The constants of a library of this ABI, in which `find` finds handles by name. Nothing if
    /// one is missing.
    pub fn constants(self, find: &dyn Fn(&[u8]) -> Option<Handle>) -> Option<Constants> {
        Some(match self {
            Self::Mpich => Constants {
                byte: MPICH_BYTE,
                any_source: -2,
            },
            Self::OpenMpi => Constants {
                byte: find(b"ompi_mpi_byte")?,
                any_source: -1,
            },
            Self::Standard => Constants {
                byte: STANDARD_BYTE,
                any_source: -1,
            },
        })
    }

    /// `MPI_COMM_NULL` of such a library.
    pub fn comm_null(self, find: &dyn Fn(&[u8]) -> Option<Handle>) -> Option<Handle> {
        match self {
            Self::Mpich => Some(0x0400_0000),
            Self::OpenMpi => find(b"ompi_mpi_comm_null"),
            Self::Standard => Some(0x100),
        }
    }

    /// `MPI_COMM_WORLD` of such a library.
    pub fn comm_world(self, find: &dyn Fn(&[u8]) -> Option<Handle>) -> Option<Handle> {
        match self {
            Self::Mpich => Some(0x4400_0000),
            Self::OpenMpi => find(b"ompi_mpi_comm_world"),
            Self::Standard => Some(0x101),
        }
    }

    /// `MPI_ERRORS_RETURN` of such a library.
    pub fn errors_return(self, find: &dyn Fn(&[u8]) -> Option<Handle>) -> Option<Handle> {
        match self {
            Self::Mpich => Some(0x5400_0001),
            Self::OpenMpi => find(b"ompi_mpi_errors_return"),
            Self::Standard => Some(0x143),
        }
    }

    /// `MPI_THREAD_FUNNELED`.
    pub fn thread_funneled(self) -> c_int {
        match self {
            Self::Mpich | Self::OpenMpi => 1,
            Self::Standard => 1024,
        }
    }

    /// `MPI_THREAD_MULTIPLE`.
    pub fn thread_multiple(self) -> c_int {
        match self {
            Self::Mpich | Self::OpenMpi => 3,
            Self::Standard => 4096,
        }
    }

    /// Reads handle `nth` of an array of handles.
    ///
    /// # Safety
    /// `place` must have more than `nth` handles of this ABI.
    pub unsafe fn load(self, place: *const c_void, nth: usize) -> Handle {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Mpich => place.cast::<u32>().add(nth).read() as Handle,
                Self::OpenMpi | Self::Standard => place.cast::<Handle>().add(nth).read(),
            }
        }
    }
}

/// What a caller knows of its MPI library beside its functions.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    /// `MPI_BYTE`.
    pub byte: Handle,
    /// `MPI_ANY_SOURCE`.
    pub any_source: c_int,
}

/// What was being done when a library is refused.
pub const FINDING: &str = "finding the program's MPI library";
/// `MPI_BYTE` in the ABI that MPICH, Intel MPI, MVAPICH and Cray MPICH share.
const MPICH_BYTE: Handle = 0x4c00_010d;
/// `MPI_BYTE` in the standard ABI, since MPI 5.0.
const STANDARD_BYTE: Handle = 0x247;
/// The longest text of `MPI_Get_library_version` (8192 in MPICH, 256 in Open MPI).
const VERSION_BYTES_MAX: usize = 8192;

/// The handle of Open MPI that is the address of an object of the library.
///
/// The linker may have moved the object to the program, which the library then uses, too; so the
/// program is asked first.
pub fn handle_named(library: &Library, name: &[u8]) -> Option<Handle> {
    // SAFETY: the symbol's address is taken, and nothing is read there.
    let in_library = unsafe { library.get::<*mut u8>(name) }.ok()?;
    // SAFETY: as above.
    let in_program = unsafe { Library::this().get::<*mut u8>(name) };
    let found = in_program.map_or(in_library.into_raw(), |symbol| symbol.into_raw());
    Some(found as Handle)
}

/// The marks by which the ABI of a library is known.
struct Marks {
    /// The address of Open MPI's `MPI_BYTE`.
    open_mpi_byte: Option<Handle>,
    /// Whether the library says that it has the standard ABI.
    is_standard: bool,
}

impl Marks {
    fn of(library: &Library) -> Self {
        // SAFETY: the MPI standard gives this signature.
        let version = unsafe {
            library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(
                b"MPI_Abi_get_version",
            )
        };
        let (mut major, mut minor) = (-1, -1);
        // SAFETY: out-parameters live across the call, which is allowed at any time.
        let code = version.map_or(-1, |ask| unsafe { ask(&mut major, &mut minor) });
        Self {
            open_mpi_byte: handle_named(library, b"ompi_mpi_byte"),
            is_standard: code == 0 && major >= 1,
        }
    }

    /// Whether `byte` is the `MPI_BYTE` of an ABI that Penstock knows, and of this library.
    fn fit(&self, byte: Handle) -> bool {
        let is_mpich = byte == MPICH_BYTE && !self.is_standard && self.open_mpi_byte.is_none();
        let is_standard = byte == STANDARD_BYTE && self.is_standard;
        is_mpich || is_standard || self.open_mpi_byte == Some(byte)
    }
}

/// Checks that the library has an ABI that Penstock knows, and that the caller's constants are of
/// the same.
///
/// # Errors
/// When that is not so. The error has the library's name and version in its own words.
pub fn check(library: &Library, constants: Constants) -> Result<()> {
    if Marks::of(library).fit(constants.byte) {
        return Ok(());
    }
    let cause = format!(
        "{} and its caller agree on none of the ABIs that Penstock knows: MPICH's, Open MPI's, and \
         the standard ABI of MPI 5",
        version(library)
    );
    Err(Error::new(Kind::Unsupported, FINDING, cause))
}

/// The first line of what the library says of itself.
fn version(library: &Library) -> String {
    let nameless = || "a library without a name".to_owned();
    // SAFETY: the MPI standard gives this signature.
    let ask = unsafe {
        library.get::<unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(
            b"MPI_Get_library_version",
        )
    };
    let Ok(ask) = ask else {
        return nameless();
    };
    let (mut text, mut bytes) = (vec![0u8; VERSION_BYTES_MAX], 0);
    // SAFETY: the text has room for the longest; the call is allowed at any time.
    let code = unsafe { ask(text.as_mut_ptr().cast(), &mut bytes) };
    let end = usize::try_from(bytes).map_or(0, |bytes| bytes.min(text.len()));
    let text = String::from_utf8_lossy(&text[..end]);
    match text.lines().next() {
        Some(line) if code == 0 => line.trim_end_matches(['\0', ' ']).to_owned(),
        _ => nameless(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI_BYTE: Handle = 0x7f00_1234_5680;

    fn marks(open_mpi_byte: Option<Handle>, is_standard: bool) -> Marks {
        Marks {
            open_mpi_byte,
            is_standard,
        }
    }

    #[test]
    fn known_abis_fit() {
        assert!(marks(None, false).fit(MPICH_BYTE));
        assert!(marks(None, true).fit(STANDARD_BYTE));
        assert!(marks(Some(OPEN_MPI_BYTE), false).fit(OPEN_MPI_BYTE));
    }

    #[test]
    fn a_caller_of_another_abi_does_not_fit() {
        let libraries = [
            (marks(None, false), MPICH_BYTE),
            (marks(None, true), STANDARD_BYTE),
            (marks(Some(OPEN_MPI_BYTE), false), OPEN_MPI_BYTE),
        ];
        for (library, own) in libraries {
            for byte in [MPICH_BYTE, STANDARD_BYTE, OPEN_MPI_BYTE, 1] {
                assert_eq!(library.fit(byte), byte == own, "{byte:x}");
            }
        }
    }

    #[test]
    fn a_library_without_mpi_is_refused_by_name() {
        let constants = Constants {
            byte: MPICH_BYTE + 1,
            any_source: -2,
        };
        let error = check(&Library::this(), constants).unwrap_err();
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.to_string().contains("a library without a name"));
    }
}
