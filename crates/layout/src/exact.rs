//! Conversion of numbers to other types, without the loss of a bit.

use std::any::type_name;
use std::fmt::Display;

/// Converts a number to another type, as `n as T` does if nothing is lost.
///
/// ```
/// assert_eq!(penstock_layout::exact::<u32>(7_u64), 7);
/// ```
///
/// # Panics
/// When the number does not fit: the program is wrong then.
#[must_use]
#[inline]
pub fn exact<T>(number: impl TryInto<T> + Copy + Display) -> T {
    match number.try_into() {
        Ok(same) => same,
        Err(_) => unreachable!("{number} is no {}", type_name::<T>()),
    }
}
