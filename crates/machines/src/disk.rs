//! Disks of real nodes.
//!
//! | module | what it holds |
//! |---|---|
//! | [`medium`] | what a disk's blocks are made of: stores implement it |
//! | [`real`] | a disk: a medium, and the thread that waits for it |

pub mod medium;
pub mod real;
