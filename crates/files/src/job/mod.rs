//! A volume in a program: its servers and its clients in one process, or in the ranks of an MPI
//! job.
//!
//! ```text
//! FileSystem   one client of a volume, for any number of threads; the servers of this node
//! OpenFile     an attached file
//! OpenView     an open subfile, with its pointer
//! Moving       a read or write under way
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `core` | what all that a program has open shares |
//! | `file_system` | names, attributes, space |
//! | `nodes` | the nodes of a program, and the servers on them |
//! | [`mpi`] | the ranks of an MPI job |
//! | `view` | open files and views: reading, writing, pointers |

mod core;
mod file_system;
pub mod mpi;
mod nodes;
mod view;

pub use file_system::FileSystem;
pub use nodes::{JobOptions, Seat, embedded};
pub use penstock_machines::node::runner::Interrupt;
pub use view::{Memory, Moving, OpenFile, OpenView};
