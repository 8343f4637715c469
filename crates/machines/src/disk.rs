//! Disks of real nodes.
//!
//! | module | contents |
//! |---|---|
//! | [`medium`] | the trait that stores implement to read and write a disk's blocks |
//! | [`real`] | a disk: a medium, and the thread that waits for it |

pub mod medium;
pub mod real;
