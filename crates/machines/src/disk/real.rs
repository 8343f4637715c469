//! The disk of a real server: a medium, and the thread that waits for it.

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc};

use futures::channel::oneshot;
use penstock_engine::{BlockFile, Error, Kind, NodeId, Opening, Result};
use penstock_layout::{Block, exact};

use super::medium::Medium;
use crate::memory::buffer::Buffer;

/// An opener opens the target of a request on a server.
pub trait Opener: Send + Sync {
    /// Opens the target on the disk of one server. Called on the disk's thread, and may block.
    ///
    /// # Errors
    /// When the target is not there or does not allow the request's operation.
    fn open(&self, opening: &Opening) -> Result<Arc<dyn Medium>>;
}

type Work = Box<dyn FnOnce() + Send>;

/// A disk thread makes one disk's blocking calls, one after the other.
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

    /// Lets the thread do `work`, after all work that it was given before.
    fn give(&self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let work = Box::new(|| {
            // The future that waits for the result learns that there is none.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        });
        let given = self.work.as_ref().and_then(|to| to.send(work).ok());
        given.ok_or_else(died)
    }

    /// Runs `work` on the thread.
    ///
    /// # Errors
    /// When the work panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (sender, done) = oneshot::channel();
        self.give(move || {
            // Nobody waits any more if the call was given up.
            let _ = sender.send(work());
        })?;
        // This thread may have much to copy for the next block: the disk should begin before that.
        std::thread::yield_now();
        done.await.map_err(|_| died())
    }
}

/// The error of a disk's thread that gives no answer.
fn died() -> Error {
    Error::new(Kind::Io, "waiting for a disk", "its thread has ended")
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.work = None; // ends the thread's loop
        if let Some(thread) = self.thread.take() {
            // The thread catches panics of its work, so that joining it gives nothing to report.
            let _ = thread.join();
        }
    }
}

/// The medium, or the error of opening it, once the disk's thread has tried.
type OpenedMedium = OnceLock<Result<Arc<dyn Medium>>>;

/// A real disk is a disk opened for one call.
pub struct RealDisk {
    medium: Arc<OpenedMedium>,
    thread: Rc<DiskThread>,
    is_synced: bool,
}

impl RealDisk {
    /// Makes a disk that `thread` opens and serves; `is_synced` if writes must reach stable
    /// storage. An error of opening is the answer to all later calls.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn open(
        thread: Rc<DiskThread>,
        is_synced: bool,
        open: impl FnOnce() -> Result<Arc<dyn Medium>> + Send + 'static,
    ) -> Result<Self> {
        let medium = Arc::new(OpenedMedium::new());
        let opened = medium.clone();
        thread.give(move || {
            let _ = opened.set(open()); // nobody else sets it
        })?;
        Ok(Self {
            medium,
            thread,
            is_synced,
        })
    }

    /// Runs `act` on the disk's thread.
    async fn with_medium<T: Send + 'static>(
        &self,
        act: impl FnOnce(&dyn Medium) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let medium = self.medium.clone();
        let act = move || match medium.get() {
            Some(Ok(medium)) => act(&**medium),
            Some(Err(error)) => Err(error.clone()),
            None => Err(died()), // opening panicked
        };
        self.thread.run(act).await?
    }

    /// Runs `act` on the disk's thread, with the block's bytes in the buffer, from `at` on.
    async fn with_data(
        &self,
        block: &Block,
        buffer: &Buffer,
        at: u64,
        act: impl FnOnce(&dyn Medium, &Block, &mut [u8]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (block, staging) = (block.clone(), buffer.staging().clone());
        let (at, bytes) = (exact::<usize>(at), exact::<usize>(block.bytes));
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= staging.bytes()),
            "a block beyond its buffer"
        );
        self.with_medium(move |medium| {
            // SAFETY: in bounds; the engine leaves the buffer alone until the disk has ended, and
            // the memory itself is kept by `staging`.
            let data = unsafe { std::slice::from_raw_parts_mut(staging.base().add(at), bytes) };
            act(medium, &block, data)
        })
        .await
    }
}

impl BlockFile for RealDisk {
    type Buffer = Buffer;

    /// The position in the schema: a flat file's bytes, a directory's chunks.
    fn position(&self, block: &Block) -> (u64, u64) {
        (block.object, block.offset)
    }

    fn is_in_schema_order(&self) -> bool {
        true
    }

    fn queue_depth(&self) -> u32 {
        1 // its thread makes one call at a time
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

    async fn moves_parts(&self) -> Result<bool> {
        match self.medium.get() {
            Some(Ok(medium)) => Ok(medium.moves_parts()),
            _ => self.with_medium(|medium| Ok(medium.moves_parts())).await,
        }
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
                medium.write_part(
                    block,
                    start,
                    &data[exact::<usize>(start)..exact::<usize>(end)],
                )
            })
        })
        .await
    }

    async fn read_parts(&self, block: &Block, parts: &[Range<u64>], buffer: &Buffer) -> Result<()> {
        let parts = parts.to_vec();
        self.with_data(block, buffer, 0, move |medium, block, data| {
            parts.into_iter().try_for_each(|Range { start, end }| {
                medium.read_part(
                    block,
                    start,
                    &mut data[exact::<usize>(start)..exact::<usize>(end)],
                )
            })
        })
        .await
    }

    async fn finish(&self) -> Result<()> {
        let is_synced = self.is_synced;
        self.with_medium(move |medium| medium.finish(is_synced))
            .await
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        let medium = self.medium.get().and_then(|opened| opened.as_ref().ok());
        medium.map(|medium| medium.sums()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn end<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            match future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn why_a_disk_cannot_be_opened_is_said_by_all_that_is_asked_of_it() {
        let thread = Rc::new(DiskThread::start(0).unwrap());
        let error = Error::new(Kind::Missing, "opening", "it is not there");
        let answer = error.clone();
        let disk = RealDisk::open(thread.clone(), true, || Err(answer)).unwrap();
        for _ in 0..2 {
            assert_eq!(end(disk.moves_parts()), Err(error.clone()));
            assert_eq!(end(disk.finish()), Err(error.clone()));
        }
        assert!(disk.sums().is_empty());
        let disk = RealDisk::open(thread.clone(), true, || panic!("of the disk")).unwrap();
        assert_eq!(end(disk.finish()).unwrap_err().kind, Kind::Io);
        assert_eq!(end(thread.run(|| 2)), Ok(2));
    }
}
