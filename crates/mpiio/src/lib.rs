//! MPI-IO by Penstock: a library in front of `MPI_File_*` and `MPI_Register_datarep`.
//!
//! A program of MPI calls these functions here if the library is preloaded, or linked first. It
//! keeps its MPI library, whose other functions are called from here ([`mpi`]). One library serves
//! all ABIs: what differs is known at run time ([`abi`]).
//!
//! ```text
//! functions        the 92 functions, and the two between Fortran's handles and C's
//!   operations     reading and writing: pointers, agreement, plans, servers
//!     access       one access of one rank: view, memory, runs
//!   administration opening aside, all the rest
//!     file         a file, and the meetings of its ranks
//!       context    the ranks of a communicator as the nodes of a machine
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`contents`], [`types`] | how datatypes were made, and where their bytes lie |
//! | [`tree`], [`flat`], [`dimensions`] | datatypes as nested loops and runs |
//! | [`view`], [`memory`] | the two sides of an access |
//! | [`items`] | the predefined types of which a datatype is made |
//! | [`representation`], [`external32`] | data that are written in another way than memory's |
//! | [`plan`] | who moves what |
//! | [`storage`] | where the bytes of a file are |
//! | [`posix`], [`medium`] | the ways to a file: of a rank alone, and of servers |
//! | [`shared`] | the shared pointer, and the claims of atomic mode |
//! | [`pending`], [`requests`] | accesses under way |
//! | [`report`] | what is told when a file is closed |
//! | [`hints`], [`mode`], [`handlers`], [`failure`] | hints, access modes, error handlers, errors |

pub mod abi;
pub mod access;
pub mod administration;
pub mod ask;
pub mod contents;
pub mod context;
pub mod dimensions;
pub mod external32;
pub mod failure;
pub mod file;
pub mod flat;
pub mod functions;
pub mod handlers;
pub mod hints;
pub mod items;
pub mod medium;
pub mod memory;
pub mod mode;
pub mod mpi;
pub mod operations;
pub mod pending;
pub mod plan;
pub mod posix;
pub mod report;
pub mod representation;
pub mod requests;
pub mod shared;
pub mod storage;
pub mod tree;
pub mod types;
pub mod view;
