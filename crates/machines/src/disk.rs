//! Disks of real nodes.
//!
//! | module | contents |
//! |---|---|
//! | [`medium`] | the trait that stores implement to read and write a disk's blocks |
//! | [`real`] | a block file: a medium, whose calls wait in the queue of a device |
//! | [`sieve`] | what a store does to the bytes of blocks in a sifted read |
//! | [`device`] | a device of a server: its queue, and its worker |
//! | [`queue`] | the order in which a device serves requests |
//! | [`extents`] | where the bytes of a file lie on its device |
//! | [`direct`] | a second descriptor of a file, around the page cache |

pub mod device;
pub mod direct;
pub mod extents;
pub mod medium;
pub mod queue;
pub mod real;
pub mod sieve;
