//! Collective calls on arrays and groups.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`](Session) | the frame of all calls: start here |
//! | `open` | opens a session: on threads, or over MPI |
//! | `opener` | opens the targets of arrays on servers |
//! | `standing` | opens a session whose servers stand |
//! | [`settings`] | the options of a session, how its calls are met, and their reports |
//! | [`array`] | the ask of one rank: the array, how it lies in memory, this rank's parts |
//! | [`list`] | the list of one rank, where that is no share |
//! | [`ask`] | what a rank asks for, as a value, and in what two asks differ |
//! | `errand`, `desk` | what the node that directs is to do, and what it works with |
//! | `driver` | polls the calls of one rank that are under way |
//! | `write`, `read` | one array, at once or split |
//! | [`select`], [`reduce`], `sifted` | work at the servers: what every rank does, and the director |
//! | [`save`] | timesteps and checkpoints of groups |
//! | `restart` | finds a checkpoint and reads it |
//! | `drafted` | makes a draft and a commit of each call that writes to a repository |
//! | `commit` | makes one commit of several calls |
//! | [`office`] | the calls that servers that stand direct |
//! | [`meter`] | what counts these calls |
//! | `hello` | the first words that ranks of an MPI job exchange |
//! | [`OpenArray`] | an array that stays open: any rank moves any part of it alone |
//! | `explain` | says in words what a write or read would do |
//! | [`copy`] | copies arrays and whole data sets into another arrangement, out of core |
//! | [`strategy`] | the strategies by name |
//!
//! A call has two halves, and both are in one file: the methods of [`Session`], which every rank
//! calls, and a director ([`penstock_engine::Director`]), which the node that directs the call
//! makes of the errand that rank 0 brings.

pub mod array;
pub mod ask;
mod commit;
pub mod copy;
mod cursor;
mod desk;
mod drafted;
mod driver;
mod errand;
mod explain;
mod hello;
pub mod list;
pub mod meter;
pub mod office;
mod open;
mod open_array;
mod opener;
mod read;
pub mod reduce;
mod restart;
pub mod save;
pub mod select;
mod session;
pub mod settings;
mod sifted;
mod standing;
pub mod strategy;
mod write;

pub use driver::Interrupt;
pub use open::{Seat, call_of, on_threads};
pub use open_array::{ArrayPart, OpenArray};
pub use restart::FoundCheckpoint;
pub use session::Session;
