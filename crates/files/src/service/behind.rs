//! Blocks that are full of changes, on their way to the disks.
//!
//! A full block is written at once (WriteFull: Corbett and Feitelson, TOCS 1996, section 4.5), but
//! only as many at a time as keep the disks busy. Nobody claims a block whose turn has not come: it
//! may be changed again meanwhile, and is then written once.

use futures::future::join_all;
use penstock_engine::Machine;

use super::full::FullBlocks;
use super::state::Service;
use crate::volume::BlockName;
use crate::volume::records::RecordStore;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Lets full blocks be written, in their order. If the disks have room, this writes them.
    pub(super) async fn write_full(&self, blocks: Vec<BlockName>) {
        let FullBlocks { waiting, written } = &self.full;
        waiting.borrow_mut().extend(blocks);
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
}
