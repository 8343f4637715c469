//! The operations of the file system that formats, writes and groups use. This layer knows no
//! format.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ops`] | every change to the file system, and a crash between any two |
//! | `files` | files and directories: errors with paths, syncs, locks, JSON, open files kept in hand |
//! | `direct` | files of elements, moved around the page cache where a user chooses so |
//! | `temporary` | the temporary beside a target: its lock, its remains, its renaming |

pub(crate) mod direct;
pub(crate) mod files;
pub mod ops;
pub(crate) mod temporary;
