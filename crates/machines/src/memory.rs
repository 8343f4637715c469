//! Memory of real nodes: exposed memory of clients, staging buffers, memory shared by processes of
//! a host.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | a client's memory, and the copies to and from it |
//! | [`exposures`] | the memory that the clients of a process expose for the length of a call |
//! | [`board`] | notices of exposed memory, with which other processes of the host may copy by themselves |
//! | [`buffer`] | staging and send buffers, and mappings of other nodes' buffers |
//! | [`segment`] | memory that processes share, and memory in huge pages |
//! | [`parcel`] | elements that have come with a message |

pub mod board;
pub mod buffer;
pub mod client;
pub mod exposures;
pub mod parcel;
pub mod segment;
