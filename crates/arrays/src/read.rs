//! Opens stored arrays to be read.
//!
//! | module | what it holds |
//! |---|---|
//! | [`stored`](StoredArray) | recognises a stored array, describes it and opens it to be read |
//! | [`witness`](Witness) | notices that an array was replaced while it was read |

mod stored;
mod witness;

pub use stored::StoredArray;
pub use witness::Witness;
