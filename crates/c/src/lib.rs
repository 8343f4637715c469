//! The C face: `include/penstock.h` in Rust.
//!
//! The header documents every function; the functions here have no comments of their own where it
//! says all. A function checks what C gives, calls a crate below, and turns an error into a code.
//!
//! | module | what it holds |
//! |---|---|
//! | `border` | how a function is entered, errors, what C gives: start here |
//! | `mpi` | the MPI communicator of the program |
//! | `meet` | what all ranks hear of the wrong arguments of one, before they have a session |
//! | `session` | sessions and seats, and how all ranks hear of what is wrong on one |
//! | `list`, `array` | lists of elements; arrays in memory and on disk |
//! | `local` | local arrays, reports |
//! | `call` | writes and reads of one array, at once or split |
//! | `open_array` | arrays that stay open |
//! | `group` | groups, timesteps, checkpoints, restarts |
//! | `store` | copies, checks, descriptions |
//! | `files` | parallel files |
//! | `layout` | for tests: the structures of the header, as Rust and as C has them |

mod array;
mod border;
mod call;
mod files;
mod group;
#[cfg(test)]
mod layout;
mod list;
mod local;
mod meet;
mod mpi;
mod open_array;
mod session;
mod store;
