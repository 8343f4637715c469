//! What clients and servers of traditional caching tell each other.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// From a client to a server: move these bytes of a block. Those to be written come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    /// To be given back with the answer.
    pub(super) ticket: u64,
    /// The block.
    pub(super) object: u64,
    /// Its number in the object.
    pub(super) index: u64,
    /// The first byte, counted in the block.
    pub(super) offset: u64,
    /// How many.
    pub(super) bytes: u64,
}

/// From a server to a client: the bytes read come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) ticket: u64,
    pub(super) error: Option<Error>,
}
