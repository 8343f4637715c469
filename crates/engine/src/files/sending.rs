//! How elements leave, from a client or from a server.

use crate::address::Port;
use crate::error::Result;
use crate::machine::{Machine, NodeId};

/// The most bytes that travel inside a message. More stay in a send buffer, from which the other
/// side takes them: that costs two messages, and saves two copies.
const INSIDE_BYTES_MAX: u64 = 16 << 10;

/// Sends a message with the first `bytes` bytes of a send buffer.
///
/// # Errors
/// When `to` cannot be reached.
pub(super) async fn send_elements<M: Machine>(
    machine: &M,
    (to, port): (NodeId, Port),
    body: Vec<u8>,
    buffer: &M::Buffer,
    bytes: u64,
) -> Result<()> {
    match bytes {
        0..=INSIDE_BYTES_MAX => {
            let parcel = machine.cut(buffer, 0..bytes);
            machine.send(to, port, body, Some(parcel)).await
        }
        _ => machine.transmit(to, port, body, buffer, bytes).await,
    }
}
