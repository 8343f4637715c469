//! The operations of the file system that formats, writes and groups use. This layer knows no
//! format.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ops`] | every change to the file system, and a crash between any two |
//! | `files` | files and directories: errors with paths, syncs, locks, JSON, open files kept in hand |
//! | `cold` | what the page cache has of a file |
//! | `direct` | files of elements, moved around the page cache where a user chooses so, or where reads are cold |
//! | [`user`] | acting for the user whose call it is |
//! | `temporary` | the temporary beside a target: its lock, its remains, its renaming |

mod cold;
pub(crate) mod direct;
pub(crate) mod files;
pub mod ops;
pub(crate) mod temporary;
pub mod user;
