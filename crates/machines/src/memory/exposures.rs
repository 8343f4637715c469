//! Exposures: the memory that the clients of a process expose for the length of a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{Error, Kind, NodeId, Result};

use super::board::Posting;
use super::client::ClientMemory;

/// The exposed memory of this process's clients, by call and node.
#[derive(Debug, Default)]
pub struct Exposures(Mutex<HashMap<(u64, NodeId), Arc<ClientMemory>>>);

impl Exposures {
    /// Exposes `memory` until the exposure is dropped: servers may copy to and from it, and servers
    /// of other processes too if it is `posted`.
    pub fn expose(
        self: &Arc<Self>,
        call: u64,
        node: NodeId,
        memory: ClientMemory,
        posted: Option<Posting>,
    ) -> Exposure {
        self.lock().insert((call, node), Arc::new(memory));
        Exposure {
            exposures: self.clone(),
            key: (call, node),
            _posted: posted,
        }
    }

    /// The memory that `node` exposes for `call`.
    ///
    /// # Errors
    /// When the node exposes nothing: a server asked outside of a call.
    pub fn of(&self, call: u64, node: NodeId) -> Result<Arc<ClientMemory>> {
        self.lock().get(&(call, node)).cloned().ok_or_else(|| {
            let cause = format!("node {node} exposes nothing for call {call}");
            Error::new(Kind::Peer, "copying from a client's memory", cause)
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, NodeId), Arc<ClientMemory>>> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exposure takes the memory back when dropped.
pub struct Exposure {
    exposures: Arc<Exposures>,
    key: (u64, NodeId),
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
