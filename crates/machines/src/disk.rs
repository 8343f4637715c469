//! A server's disk: a medium, and the thread that waits for it.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;

use futures::channel::oneshot;
use penstock_engine::{Disk, Error, Kind, NodeId, Request, Result};
use penstock_layout::Block;

use crate::buffer::Buffer;
use crate::medium::Medium;

/// Opens what a request is about, on a server.
pub trait Opener: Send + Sync {
    /// Called on a disk's thread, and may block. The disk is that of `server`.
    ///
    /// # Errors
    /// When the target is not there or does not allow the request's operation.
    fn open(&self, request: &Request, server: usize) -> Result<Arc<dyn Medium>>;
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread that does one disk's blocking calls, one after the other.
pub struct DiskThread {
    work: Option<mpsc::Sender<Work>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl DiskThread {
    /// Starts a thread for a disk of `node`.
    ///
    /// # Errors
    /// When the system allows no more threads.
    pub fn start(node: NodeId) -> Result<Self> {
        let (work, todo) = mpsc::channel::<Work>();
        let run = move || todo.into_iter().for_each(|work| work());
        let thread = std::thread::Builder::new()
            .name(format!("disk-{node}"))
            .spawn(run);
        let thread = thread.map_err(|e| Error::new(Kind::Io, "starting a disk's thread", e))?;
        Ok(Self {
            work: Some(work),
            thread: Some(thread),
        })
    }

    /// Runs `work` on the thread.
    ///
    /// # Errors
    /// When the work panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let died = || Error::new(Kind::Io, "waiting for a disk", "its thread has ended");
        let (sender, done) = oneshot::channel();
        let work = Box::new(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            if let Ok(result) = result {
                // Nobody waits any more where the call was given up.
                let _ = sender.send(result);
            }
        });
        self.work
            .as_ref()
            .ok_or_else(died)?
            .send(work)
            .map_err(|_| died())?;
        // This thread may have much to copy for the next block: the disk should begin before that.
        std::thread::yield_now();
        done.await.map_err(|_| died())
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.work = None; // ends the thread's loop
        if let Some(thread) = self.thread.take() {
            // It catches panics of its work, so that joining it gives nothing to report.
            let _ = thread.join();
        }
    }
}

/// One disk, opened for one call.
pub struct RealDisk {
    medium: Arc<dyn Medium>,
    thread: Rc<DiskThread>,
    is_synced: bool,
}

impl RealDisk {
    /// A disk of `medium`, served by `thread`; `is_synced` if writes must reach stable storage.
    pub fn new(medium: Arc<dyn Medium>, thread: Rc<DiskThread>, is_synced: bool) -> Self {
        Self {
            medium,
            thread,
            is_synced,
        }
    }

    /// Runs `act` on the disk's thread, with the bytes of the buffer that the block has, from `at` on.
    async fn with_data(
        &self,
        block: &Block,
        buffer: &Buffer,
        at: u64,
        act: impl FnOnce(&dyn Medium, &Block, &mut [u8]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (medium, block, staging) =
            (self.medium.clone(), block.clone(), buffer.staging().clone());
        let (at, bytes) = (at as usize, block.bytes as usize);
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= staging.bytes()),
            "a block beyond its buffer"
        );
        let act = move || {
            // SAFETY: in bounds; the engine leaves the buffer alone until the disk has ended, and
            // the memory itself is kept by `staging`.
            let data = unsafe { std::slice::from_raw_parts_mut(staging.base().add(at), bytes) };
            act(&*medium, &block, data)
        };
        self.thread.run(act).await?
    }
}

impl Disk for RealDisk {
    type Buffer = Buffer;

    fn position(&self, block: &Block) -> (u64, u64) {
        self.medium.position(block)
    }

    fn is_in_schema_order(&self) -> bool {
        self.medium.is_in_schema_order()
    }

    fn queue_depth(&self) -> u32 {
        1 // its thread makes one call at a time
    }

    fn makes_first(&self) -> bool {
        self.medium.makes_first()
    }

    async fn make(&self, objects: &[u64]) -> Result<()> {
        let (medium, objects) = (self.medium.clone(), objects.to_vec());
        self.thread.run(move || medium.make(&objects)).await?
    }

    async fn write(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.with_data(block, buffer, at, |medium, block, data| {
            medium.write(block, data)
        })
        .await
    }

    async fn read(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.with_data(block, buffer, at, |medium, block, data| {
            medium.read(block, data)
        })
        .await
    }

    fn moves_parts(&self) -> bool {
        self.medium.moves_parts()
    }

    async fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Buffer,
    ) -> Result<()> {
        let parts = parts.to_vec();
        self.with_data(block, buffer, 0, move |medium, block, data| {
            parts.into_iter().try_for_each(|Range { start, end }| {
                medium.write_part(block, start, &data[start as usize..end as usize])
            })
        })
        .await
    }

    async fn read_parts(&self, block: &Block, parts: &[Range<u64>], buffer: &Buffer) -> Result<()> {
        let parts = parts.to_vec();
        self.with_data(block, buffer, 0, move |medium, block, data| {
            parts.into_iter().try_for_each(|Range { start, end }| {
                medium.read_part(block, start, &mut data[start as usize..end as usize])
            })
        })
        .await
    }

    async fn finish(&self) -> Result<()> {
        let (medium, is_synced) = (self.medium.clone(), self.is_synced);
        self.thread.run(move || medium.finish(is_synced)).await?
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        self.medium.sums()
    }
}
