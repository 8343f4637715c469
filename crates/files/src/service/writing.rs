//! Changed blocks on their way to the disks, before anybody waits for that (Corbett and Feitelson,
//! TOCS 1996, section 4.5):
//!
//! - a block that is full of changes, at once (WriteFull);
//! - those that would be replaced first, where hardly any block of the cache is clean: who needs
//!   room finds some;
//! - all, when no request has come for a while.
//!
//! As many are written at a time as keep the disks busy. Nobody claims a block whose turn has
//! not come: it may be changed again meanwhile, and is then written once.

use std::time::Duration;

use futures::future::join_all;
use penstock_engine::Machine;

use super::behind::WriteBehind;
use super::state::Service;
use crate::volume::BlockName;
use crate::volume::records::RecordStore;

/// The time without requests after which a server is idle.
const IDLE: Duration = Duration::from_millis(100);

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Lets blocks that a request has filled be written, in their order, or others if too few are
    /// clean. If the disks have room, this writes them.
    pub(super) async fn write_full(&self, blocks: Vec<BlockName>) {
        let WriteBehind {
            waiting, written, ..
        } = &self.behind;
        waiting.borrow_mut().extend(blocks);
        if waiting.borrow().is_empty() {
            let most = self.blocks.bytes_max() / 8 * 7;
            waiting.borrow_mut().extend(self.blocks.surplus(most));
        }
        let free = self.volume.depth().saturating_sub(written.get());
        let wanted = free.min(waiting.borrow().len());
        written.set(written.get() + wanted);
        let writes = (0..wanted).map(|_| async {
            loop {
                let first = waiting.borrow_mut().pop_front();
                let Some(name) = first else { break };
                self.blocks.write_back(&name).await;
            }
            written.set(written.get() - 1);
        });
        join_all(writes).await;
    }

    /// Writes changed blocks whenever the server is idle, as long as it is polled.
    pub(super) async fn write_when_idle(&self) {
        let WriteBehind {
            requests, changed, ..
        } = &self.behind;
        loop {
            let has_work = || self.blocks.has_changes().then_some(());
            changed.until(has_work).await;
            let before = requests.get();
            self.machine.wait(IDLE).await;
            while requests.get() == before && self.blocks.has_changes() {
                let mut blocks = self.blocks.surplus(0);
                blocks.truncate(self.volume.depth());
                join_all(blocks.iter().map(|name| self.blocks.write_back(name))).await;
            }
        }
    }
}
