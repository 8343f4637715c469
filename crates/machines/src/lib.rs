//! Real machines for Penstock's engine.
//!
//! | module | contents |
//! |---|---|
//! | [`calls`] | the border to products: collective calls, servers, requests |
//! | [`node`] | a node: runs the engine, answers other nodes, sleeps when idle |
//! | [`links`] | the way that packets travel between nodes: a new machine begins here |
//! | [`threads`] | the machine whose nodes are threads of one process |
//! | [`mpi`] | the machine whose nodes are the ranks of an MPI job |
//! | [`disk`] | disks: media, and the devices whose workers wait for them |
//! | [`memory`] | exposed memory of clients, staging buffers, memory that processes share |
//! | [`bell`] | the sleep and waking of a node |

pub mod bell;
pub mod calls;
pub mod disk;
pub mod links;
pub mod memory;
pub mod mpi;
pub mod node;
pub mod threads;

pub use disk::device::DeviceId;
pub use disk::medium::Medium;
pub use disk::real::Opener;
pub use disk::sieve::{BlockSieve, no_sieve};
pub use memory::client::ClientMemory;
pub use node::Node;
pub use threads::Threads;
