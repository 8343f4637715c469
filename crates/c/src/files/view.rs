//! Views, orders, versions and memories, as C gives them.

use std::ffi::{c_int, c_void};

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_files::Version;
use penstock_files::job::Memory;
use penstock_layout::{SubfileOrder, View};

/// `penstock_view`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ViewNumbers {
    pub vbs: u64,
    pub vn: u64,
    pub hbs: u64,
    pub hn: u64,
}

pub(super) fn wrong(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "opening a subfile", cause)
}

/// The view that C gives: NULL is the whole file.
///
/// # Errors
/// [`Kind::Schema`] when a number is 0, or there are too many subfiles.
pub fn view_of(view: Option<&ViewNumbers>) -> Result<View> {
    let numbers = view.map_or([1; 4], |v| [v.vbs, v.vn, v.hbs, v.hn]);
    View::try_from(numbers).map_err(wrong)
}

/// The order that C names.
///
/// # Errors
/// [`Kind::Schema`] for a number that is no order.
pub fn order_of(order: c_int) -> Result<SubfileOrder> {
    match order {
        0 => Ok(SubfileOrder::Block),
        1 => Ok(SubfileOrder::Row),
        2 => Ok(SubfileOrder::Column),
        other => Err(wrong(format!(
            "{other} is no order: use PENSTOCK_BLOCK_ORDER, PENSTOCK_ROW_ORDER or \
             PENSTOCK_COLUMN_ORDER"
        ))),
    }
}

/// The version that C names.
pub fn version_of(is_of_checkpoint: c_int) -> Version {
    match is_of_checkpoint {
        0 => Version::Active,
        _ => Version::Checkpoint,
    }
}

/// What is done with memory.
pub fn operation_of(is_write: c_int) -> Operation {
    match is_write {
        0 => Operation::Read,
        _ => Operation::Write,
    }
}

/// The memory of a read or write. The program leaves it alone until the call has ended, as the
/// header asks.
///
/// # Errors
/// [`Kind::Schema`] when it is NULL, and there are bytes to move, or more than any memory has.
pub fn memory_of(base: *mut c_void, bytes: usize) -> Result<Memory> {
    let is_possible = isize::try_from(bytes).is_ok();
    let base = match (base.is_null(), bytes) {
        (_, _) if !is_possible => {
            return Err(wrong(format!("no memory has {bytes} bytes")));
        }
        (true, 0) => std::ptr::NonNull::<u8>::dangling().as_ptr(),
        (true, _) => {
            return Err(wrong(format!("memory is NULL, and has {bytes} bytes")));
        }
        (false, _) => base.cast(),
    };
    // SAFETY: the program has these bytes there, and leaves them alone meanwhile, as the header
    // says.
    Ok(unsafe { Memory::new(base, bytes as u64, None) })
}
