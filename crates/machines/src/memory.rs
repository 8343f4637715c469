//! Memory of real nodes: what clients expose, staging buffers, and what processes of a host share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | a client's memory, and the copies to and from it |
//! | [`exposures`] | what the clients of a process expose for the length of a call |
//! | [`board`] | the same for other processes of the host, which copy by themselves where the kernel lets them |
//! | [`buffer`] | staging and send buffers, and mappings of other nodes' buffers |
//! | [`segment`] | memory that processes share, and memory in huge pages |
//! | [`parcel`] | elements that have come with a message |

pub mod board;
pub mod buffer;
pub mod client;
pub mod exposures;
pub mod parcel;
pub mod segment;
