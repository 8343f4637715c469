//! The numbers of memories. A client exposes each of its shares under a number of its own, which is
//! made of the call, the array and the share:
//!
//! ```text
//! number = (call * ARRAYS_MAX + array) * SHARES_MAX + share
//! ```
//!
//! The messages of a call carry the number of its first array's first share.

/// The most arrays of a call.
const ARRAYS_MAX: u64 = 1 << 16;

/// The most shares of one array that a client may have.
pub const SHARES_MAX: u64 = 1 << 16;

/// The number of a client's first share of an array of a call. The client's other shares of the
/// array follow.
///
/// # Panics
/// For more arrays than a call may have.
pub fn memory_number(call: u64, array: usize) -> u64 {
    memory_after(call * ARRAYS_MAX * SHARES_MAX, array)
}

/// The number of a client's first share of an array, where the call's first array has the number
/// `first`.
pub(crate) fn memory_after(first: u64, array: usize) -> u64 {
    assert!((array as u64) < ARRAYS_MAX, "a call about {array} arrays");
    first + array as u64 * SHARES_MAX
}
