//! Collective calls on arrays and groups.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`](Session) | the frame of all calls: start here |
//! | `open` | opens a session: on threads, or over MPI |
//! | [`settings`] | the options of a session, how its calls are met, and their reports |
//! | [`array`] | the ask of one rank: the array, how it lies in memory, this rank's parts |
//! | [`list`] | the list of one rank, where that is no share |
//! | [`ask`] | what a rank asks for, as a value, and in what two asks differ |
//! | `driver` | polls the calls of one rank that are under way |
//! | `write`, `read` | one array, at once or split |
//! | [`save`] | timesteps and checkpoints of groups |
//! | `restart` | finds a checkpoint and reads it |
//! | `hello` | the first words that ranks of an MPI job exchange |
//! | [`OpenArray`] | an array that stays open: any rank moves any part of it alone |
//! | `explain` | says in words what a write or read would do |
//! | [`copy`] | copies arrays and whole data sets into another arrangement, out of core |
//! | [`strategy`] | the strategies by name |
//!
//! A call has two halves, and both are in one file: the methods of [`Session`], which every rank
//! calls, and a director ([`penstock_engine::Director`]), which only the rank that directs the call
//! keeps.

pub mod array;
pub mod ask;
pub mod copy;
mod cursor;
mod driver;
mod explain;
mod hello;
pub mod list;
mod open;
mod open_array;
mod read;
mod restart;
pub mod save;
mod session;
pub mod settings;
pub mod strategy;
mod write;

pub use driver::Interrupt;
pub use open::{Seat, on_threads};
pub use open_array::{ArrayPart, OpenArray};
pub use restart::FoundCheckpoint;
pub use session::Session;
