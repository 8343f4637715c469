//! Exposures: the memory that the clients of a process expose for the length of a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{Error, Kind, MemoryId, NodeId, Result};

use super::board::Posting;
use super::client::ClientMemory;

/// The exposed memory of this process's clients, by name and node.
#[derive(Debug, Default)]
pub struct Exposures(Mutex<HashMap<(MemoryId, NodeId), Arc<ClientMemory>>>);

impl Exposures {
    /// Exposes `memory` until the exposure is dropped: servers may copy to and from it, and servers
    /// of other processes too if it is `posted`.
    pub fn expose(
        self: &Arc<Self>,
        id: MemoryId,
        node: NodeId,
        memory: ClientMemory,
        posted: Option<Posting>,
    ) -> Exposure {
        self.lock().insert((id, node), Arc::new(memory));
        Exposure {
            exposures: self.clone(),
            key: (id, node),
            _posted: posted,
        }
    }

    /// The memory that `node` exposes under this name.
    ///
    /// # Errors
    /// When the node exposes nothing: a server asked outside of a call.
    pub fn of(&self, id: MemoryId, node: NodeId) -> Result<Arc<ClientMemory>> {
        self.lock().get(&(id, node)).cloned().ok_or_else(|| {
            let cause = format!("node {node} exposes no memory for it");
            Error::new(Kind::Peer, "copying from a client's memory", cause)
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(MemoryId, NodeId), Arc<ClientMemory>>> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exposure takes the memory back when dropped.
pub struct Exposure {
    exposures: Arc<Exposures>,
    key: (MemoryId, NodeId),
    _posted: Option<Posting>,
}

impl Drop for Exposure {
    /// Waits for a copy that is under way: after an error another thread may still be at one.
    fn drop(&mut self) {
        let memory = self.exposures.lock().remove(&self.key);
        if let Some(memory) = memory {
            while Arc::strong_count(&memory) > 1 {
                std::thread::yield_now();
            }
        }
    }
}
