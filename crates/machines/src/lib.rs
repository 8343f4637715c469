//! Real machines for Penstock's engine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`node`] | one node: runs the engine, answers other nodes, sleeps when idle |
//! | [`threads`] | the machine whose nodes are threads of one process |
//! | [`mpi`] | the machine whose nodes are the ranks of an MPI job |
//! | [`medium`] | what a disk's blocks are made of: implemented by the stores |
//! | [`disk`] | a disk: a medium and the thread that waits for it |
//! | [`memory`], [`board`] | what clients expose, and the copies to and from it |
//! | [`buffer`], [`segment`], [`inbox`], [`bell`] | staging buffers, shared memory, queues, sleep |
//! | [`wire`] | what nodes send one another |

pub mod bell;
pub mod board;
pub mod buffer;
pub mod disk;
pub mod inbox;
pub mod medium;
pub mod memory;
pub mod mpi;
pub mod node;
mod parcel;
pub mod segment;
pub mod threads;
pub mod wire;

pub use disk::Opener;
pub use medium::Medium;
pub use memory::ClientMemory;
pub use node::Node;
pub use threads::Threads;
