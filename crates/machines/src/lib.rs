//! Real machines for Penstock's engine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`node`] | one node: runs the engine, answers other nodes, sleeps when idle |
//! | [`links`] | the way that packets travel between nodes: where a new machine begins |
//! | [`threads`] | the machine whose nodes are threads of one process |
//! | [`mpi`] | the machine whose nodes are the ranks of an MPI job |
//! | [`disk`] | disks: a medium and the thread that waits for it |
//! | [`memory`] | what clients expose, staging buffers, memory that processes share |
//! | [`bell`] | how a node sleeps, and is woken |

pub mod bell;
pub mod disk;
pub mod links;
pub mod memory;
pub mod mpi;
pub mod node;
pub mod threads;

pub use disk::medium::Medium;
pub use disk::real::Opener;
pub use memory::client::ClientMemory;
pub use node::Node;
pub use threads::Threads;
