//! Data representations: how the items of a file are written (MPI 5.0, section 14.5).
//!
//! | name | items in a file |
//! |---|---|
//! | `native`, `internal` | as in memory |
//! | `external32` | big-endian, of fixed sizes |
//! | a name given to `MPI_Register_datarep` | as the program's functions make them |
//!
//! Data in another representation than memory's go through a buffer: an access converts some
//! instances of its datatype at a time, packed, and moves them as bytes.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;

use crate::external32::{self, Way};
use crate::failure::{Class, Failure, Result, wrong};
use crate::flat::Type;
use crate::mpi::Mpi;
use crate::tree::walk_turns;

/// A function of the program that converts items: the memory, its datatype, the number of items,
/// the packed items, the item at which the memory begins, and the state.
pub type Conversion =
    unsafe extern "C" fn(*mut c_void, Handle, c_int, *mut c_void, i64, *mut c_void) -> c_int;
/// As [`Conversion`], with a large count.
pub type LargeConversion =
    unsafe extern "C" fn(*mut c_void, Handle, i64, *mut c_void, i64, *mut c_void) -> c_int;
/// A function of the program that tells the extent of a predefined type in a file.
pub type ExtentOf = unsafe extern "C" fn(Handle, *mut isize, *mut c_void) -> c_int;

/// A conversion of either form, if there is one: without one, items are as in memory.
#[derive(Debug, Clone, Copy)]
pub enum Converter {
    None,
    Small(Conversion),
    Large(LargeConversion),
}

/// A representation that the program has registered.
#[derive(Debug)]
pub struct Registered {
    pub name: String,
    pub read: Converter,
    pub write: Converter,
    pub extent: ExtentOf,
    pub state: usize,
}

/// A representation says how the items of a file are written.
#[derive(Debug, Clone)]
pub enum Representation {
    /// As in memory.
    Native,
    /// As in memory, under the name "internal".
    Internal,
    /// Big-endian.
    External32,
    /// As the program's functions make them.
    Registered(Arc<Registered>),
}

/// The representations that the program has registered.
static REGISTERED: Mutex<Vec<Arc<Registered>>> = Mutex::new(Vec::new());

/// The longest name of a representation, with its end, in all ABIs.
pub const NAME_BYTES_MAX: usize = 128;

impl Representation {
    /// The representation of a name.
    ///
    /// # Errors
    /// [`Class::UnsupportedDatarep`] when nobody has registered one.
    pub fn named(name: &str) -> Result<Self> {
        let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            "native" => Ok(Self::Native),
            "internal" => Ok(Self::Internal),
            "external32" => Ok(Self::External32),
            _ => match registered.iter().find(|known| known.name == name) {
                Some(known) => Ok(Self::Registered(known.clone())),
                None => Err(wrong(
                    Class::UnsupportedDatarep,
                    format_args!(
                        "setting a view: nobody has registered a data representation \"{name}\""
                    ),
                )),
            },
        }
    }

    /// Registers a representation.
    ///
    /// # Errors
    /// [`Class::DupDatarep`] when there is one of that name; [`Class::Arg`] when the name is too
    /// long.
    pub fn register(new: Registered) -> Result<()> {
        let registering = "registering a data representation";
        if new.name.len() >= NAME_BYTES_MAX {
            let cause = format!("{registering}: its name has {NAME_BYTES_MAX} bytes or more");
            return Err(wrong(Class::Arg, cause));
        }
        if Self::named(&new.name).is_ok() {
            let cause = format!("{registering}: there is a \"{}\" already", new.name);
            return Err(wrong(Class::DupDatarep, cause));
        }
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        registered.push(Arc::new(new));
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
            Self::Registered(known) => &known.name,
        }
    }

    /// Whether items of a file are as in memory.
    pub fn is_native(&self) -> bool {
        matches!(self, Self::Native | Self::Internal)
    }

    /// The bytes of a predefined type in a file; nothing if they are those of memory, with its
    /// gaps.
    ///
    /// # Errors
    /// What MPI or the program's function answers.
    pub fn bytes(&self, mpi: &Mpi, predefined: Handle) -> Result<Option<u64>> {
        let mut bytes = 0;
        let code = match self {
            Self::Native | Self::Internal => return Ok(None),
            Self::External32 => return external32::bytes(mpi, predefined).map(Some),
            // SAFETY: the program has given a function of this signature.
            Self::Registered(known) => unsafe {
                (known.extent)(predefined, &mut bytes, known.state as *mut c_void)
            },
        };
        match u64::try_from(bytes) {
            Ok(bytes) if code == 0 => Ok(Some(bytes)),
            _ => Err(self.failed("telling the extent of a datatype", code)),
        }
    }

    fn failed(&self, doing: &str, code: c_int) -> Failure {
        let text = format!("{doing} in \"{}\": it answers {code}", self.name());
        Failure::new(Class::Conversion, text)
    }

    /// Converts whole instances of a datatype between memory and packed items.
    ///
    /// # Errors
    /// Those of external32; what the program's function answers.
    ///
    /// # Safety
    /// `memory` must hold the instances, and `packed` must have the bytes of these instances in
    /// this representation.
    pub unsafe fn convert(
        &self,
        mpi: &Mpi,
        way: Way,
        memory: *mut u8,
        (handle, datatype, instances): (Handle, &Type, u64),
        packed: &mut [u8],
    ) -> Result<()> {
        let known = match self {
            Self::Native | Self::Internal => return Ok(()),
            // SAFETY: the caller's promise.
            Self::External32 => unsafe {
                return external32::convert(mpi, way, memory, (datatype, instances), packed);
            },
            Self::Registered(known) => known,
        };
        let (by, doing) = match way {
            Way::ToFile => (known.write, "converting to the file's representation"),
            Way::FromFile => (known.read, "converting from the file's representation"),
        };
        // SAFETY: the caller's promise.
        let code = unsafe {
            match by {
                Converter::None => copy(way, memory, (datatype, instances), packed),
                by => {
                    let items = datatype.items.count() * instances;
                    let room = packed.as_mut_ptr().cast();
                    call(by, (memory.cast(), handle, items), room, known.state)?
                }
            }
        };
        match code {
            0 => Ok(()),
            code => Err(self.failed(doing, code)),
        }
    }
}

/// A number of instances as MPI takes it.
fn small(instances: u64) -> Result<c_int> {
    c_int::try_from(instances).map_err(|_| {
        let text = format!("{instances} instances of a datatype cannot be converted at once");
        Failure::new(Class::Count, text)
    })
}

/// Copies items that are in a file as in memory.
///
/// # Safety
/// As [`Representation::convert`].
unsafe fn copy(
    way: Way,
    memory: *mut u8,
    (datatype, instances): (&Type, u64),
    packed: &mut [u8],
) -> c_int {
    let (mut rest, data) = (packed, 0..datatype.size() * instances);
    walk_turns(&datatype.tree, (0, datatype.extent), data, &mut |series| {
        series.runs(&mut |place, length| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(exact::<usize>(length));
            let (memory, packed) = (
                memory.wrapping_offset(exact::<isize>(place)),
                own.as_mut_ptr(),
            );
            let (source, target) = match way {
                Way::ToFile => (memory, packed),
                Way::FromFile => (packed, memory),
            };
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(source, target, exact::<usize>(length)) };
            rest = others;
        });
    });
    0
}

/// Calls a function of the program.
///
/// # Safety
/// Memory and packed items must be what the function expects.
unsafe fn call(
    by: Converter,
    (memory, handle, items): (*mut c_void, Handle, u64),
    packed: *mut c_void,
    state: usize,
) -> Result<c_int> {
    let state = state as *mut c_void;
    // SAFETY: the caller's promise.
    unsafe {
        match by {
            Converter::None => Ok(0), // nothing is converted
            Converter::Small(by) => Ok(by(memory, handle, small(items)?, packed, 0, state)),
            Converter::Large(by) => Ok(by(memory, handle, items as i64, packed, 0, state)),
        }
    }
}

/// Text of C for a name.
///
/// # Errors
/// [`Class::Arg`] when there is no text.
///
/// # Safety
/// `text` must be a text of C or null.
pub unsafe fn text_of(text: *const c_char, what: &str) -> Result<String> {
    if text.is_null() {
        return Err(wrong(Class::Arg, format_args!("{what} is no text")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}
