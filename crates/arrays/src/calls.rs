//! Collective calls on arrays and groups: what every rank does, and what the rank that directs a
//! call does besides.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`](Session) | the frame of all calls: start here |
//! | `open` | how a session comes to be: on threads, or over MPI |
//! | [`settings`] | how a session is set up, how its calls are met, what they report |
//! | [`array`] | what one rank brings to a call: the array, how it lies in memory, this rank's parts |
//! | `driver` | the calls of one rank that are under way, and what makes them go on |
//! | `write`, `read` | an array, at once or split |
//! | [`save`] | timesteps and checkpoints of groups |
//! | `restart` | a checkpoint found, and read |
//! | `explain` | what a write or read would do |
//! | [`copy`] | arrays and whole data sets into another arrangement, out of core |
//! | [`strategy`] | the strategies by name |
//!
//! A call has two halves, and both stand in one file: the methods of [`Session`], which every rank
//! calls, and a director ([`penstock_engine::Director`]), which only the rank that directs the call
//! keeps.

pub mod array;
pub mod copy;
mod cursor;
mod driver;
mod explain;
mod open;
mod read;
mod restart;
pub mod save;
mod session;
pub mod settings;
pub mod strategy;
mod write;

pub use driver::Interrupt;
pub use open::{Seat, on_threads};
pub use restart::FoundCheckpoint;
pub use session::Session;
