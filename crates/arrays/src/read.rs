//! What stands on disk, opened to be read.
//!
//! | module | what it holds |
//! |---|---|
//! | [`stored`](Stored) | an array: recognised, described, and ready to be read |
//! | [`witness`](Witness) | notices that what is read was replaced meanwhile |

mod stored;
mod witness;

pub use stored::StoredArray;
pub use witness::Witness;
