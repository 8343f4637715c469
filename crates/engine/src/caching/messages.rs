//! The messages between clients and servers of traditional caching.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A client asks a server to move some bytes of a block. Bytes to be written come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    /// The number that the answer repeats.
    pub(super) ticket: u64,
    pub(super) object: u64,
    /// The block's number in the object.
    pub(super) index: u64,
    /// The first byte, counted in the block.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A server answers a client. The bytes read come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) ticket: u64,
    pub(super) error: Option<Error>,
}
