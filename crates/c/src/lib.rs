//! The C face: `include/penstock.h` in Rust.
//!
//! The header documents every function; the functions here have no comments of their own where it
//! says all. A function checks what C gives, calls a crate below, and turns an error into a code.
//!
//! | module | what it holds |
//! |---|---|
//! | `border` | how a function is entered, errors, what C gives: start here |
//! | `mpi` | the MPI communicator of the program |

mod border;
mod files;
mod mpi;
