//! Blocks, one after the other, through a few buffers: each buffer is filled, then drained, then takes
//! the next block.
//!
//! ```text
//! buffer 0   fill block 0 | drain block 0       | fill block 2  | drain block 2 ...
//! buffer 1                | fill block 1        | drain block 1 | fill block 3 ...
//! ```
//!
//! Of the two, one is the disk's and one the clients', so that both are busy. Two buffers do for that.
//! A split collective takes more: as many as it may have, so that all blocks are filled while the
//! clients wait, and drained while they compute.
//!
//! After an error no new block is begun; those under way are ended, since others may still be copying
//! into their buffers.

use std::cell::{Cell, RefCell};
use std::iter::Peekable;

use futures::future::{join, join_all};
use penstock_layout::Block;

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::machine::{Machine, Operation, Window, Work};
use crate::outcome::Moved;
use crate::request::{Portion, Request};
use crate::split::{Part, started};
use crate::tree::Tree;

/// Moves what shares have of a block between their clients' memories and a buffer, in which the block begins
/// at a byte: a write gets them (memget), a read puts them (memput), all at once.
///
/// # Errors
/// The first that a client met; all have ended then.
pub(crate) async fn move_portions<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    portions: &[Portion],
    (block, at): (&Block, u64),
    buffer: &M::Buffer,
) -> Result<()> {
    let Tree { machine, call, .. } = *tree;
    let window = Window::at(block, request.disk.width(), at);
    let moves = portions.iter().map(|portion| {
        let window = &window;
        let (memory, client, piece) = (call + portion.part, portion.client, &portion.piece);
        async move {
            match request.operation {
                Operation::Write => machine.memget(memory, client, piece, window, buffer).await,
                Operation::Read => machine.memput(memory, client, piece, window, buffer).await,
            }
        }
    });
    join_all(moves).await.into_iter().collect()
}

/// What becomes of a block.
pub(crate) trait Flow<M: Machine> {
    /// A block, and of what.
    type Block;
    /// What filling finds out that draining needs.
    type Load;

    /// Fills the buffer with a block. `None` if there is nothing to move of it.
    async fn fill(&self, block: &Self::Block, buffer: &M::Buffer) -> Result<Option<Self::Load>>;

    /// Drains the buffer, and says what was moved.
    async fn drain(
        &self,
        block: &Self::Block,
        buffer: &M::Buffer,
        load: Self::Load,
    ) -> Result<Moved>;

    /// Ends a write on the disk.
    async fn finish(&self) -> Result<()>;
}

/// The blocks that a relay is to take.
pub(crate) type Blocks<'a, B> = Box<dyn Iterator<Item = B> + 'a>;

/// The buffers, and the blocks that they are to take.
pub(crate) struct Relay<'a, M: Machine, B> {
    machine: &'a M,
    operation: Operation,
    is_split: bool,
    buffer_bytes: u64,
    buffers: u64,
    blocks: RefCell<Peekable<Blocks<'a, B>>>,
    /// Buffers that are being filled.
    filling: Cell<u64>,
    filled: Changes,
    ended: RefCell<Result<Moved>>,
}

impl<'a, M: Machine, B> Relay<'a, M, B> {
    /// Of the `blocks` of `requests`, of which there is one at least, through `buffers_min` buffers, or
    /// as many as a split collective may have.
    pub(crate) fn new(
        machine: &'a M,
        requests: &[Request],
        blocks: Blocks<'a, B>,
        buffers_min: u64,
    ) -> Self {
        let bytes = requests
            .iter()
            .map(|request| request.disk.block_bytes_max());
        let (buffer_bytes, request) = (bytes.max().unwrap_or(0), &requests[0]);
        let buffers = request.split.map_or(0, |split| split.buffers(buffer_bytes));
        Self {
            machine,
            operation: request.operation,
            is_split: request.split.is_some(),
            buffer_bytes,
            buffers: buffers.max(buffers_min),
            blocks: RefCell::new(blocks.peekable()),
            filling: Cell::new(0),
            filled: Changes::default(),
            ended: RefCell::new(Ok(Moved::default())),
        }
    }

    /// Moves all blocks, and finishes what was written. In a split collective `part` is given up when only the disk is
    /// left to work.
    ///
    /// # Errors
    /// The first that filling, draining or finishing met.
    pub(crate) async fn run(
        &self,
        flow: &impl Flow<M, Block = B>,
        part: Part<'_>,
    ) -> Result<Moved> {
        match (self.operation, self.is_split) {
            (Operation::Read, false) => self.all(flow).await,
            (Operation::Read, true) => {
                let moving = started(self.all(flow)).await;
                drop(part);
                moving.ended().await
            }
            (Operation::Write, false) => {
                let moved = self.all(flow).await?;
                flow.finish().await?;
                Ok(moved)
            }
            (Operation::Write, true) => self.write_split(flow, part).await,
        }
    }

    /// All blocks, through all buffers.
    async fn all(&self, flow: &impl Flow<M, Block = B>) -> Result<Moved> {
        join_all((0..self.buffers).map(|_| self.run_buffer(flow))).await;
        self.ended.borrow().clone()
    }

    /// The disk is told of the end as soon as it has been told of the last block, so that nothing need be done when it
    /// has come to that.
    async fn write_split(&self, flow: &impl Flow<M, Block = B>, part: Part<'_>) -> Result<Moved> {
        let finishing = async {
            self.all_filled().await;
            let finishing = started(flow.finish()).await;
            drop(part);
            finishing.ended().await
        };
        let (moved, finished) = join(self.all(flow), finishing).await;
        moved.and_then(|moved| finished.map(|()| moved))
    }

    /// Waits until nothing more will be filled. Draining may go on, but has begun.
    async fn all_filled(&self) {
        let is_filled = || self.filling.get() == 0 && !self.has_next();
        self.filled.until(|| is_filled().then_some(())).await;
    }

    /// Takes block after block through one buffer until there is none, or an error.
    async fn run_buffer(&self, flow: &impl Flow<M, Block = B>) {
        let Some(mut block) = self.next() else { return };
        let bytes = self.buffer_bytes;
        let buffer = match self.machine.buffer(bytes) {
            Ok(buffer) => buffer,
            Err(error) => return self.fail(error),
        };
        self.machine.work(Work::Prepare(bytes)).await;
        self.count(&Moved {
            buffer_bytes: bytes,
            ..Moved::default()
        });
        loop {
            self.filling.set(self.filling.get() + 1);
            let filled = flow.fill(&block, &buffer).await;
            self.filling.set(self.filling.get() - 1);
            self.filled.tell();
            let drained = match filled {
                Ok(Some(load)) => flow.drain(&block, &buffer, load).await,
                Ok(None) => Ok(Moved::default()),
                Err(error) => Err(error),
            };
            match drained {
                Ok(moved) => self.count(&moved),
                Err(error) => return self.fail(error),
            }
            match self.next() {
                Some(next) => block = next,
                None => return,
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.ended.borrow().is_err()
    }

    fn has_next(&self) -> bool {
        !self.has_failed() && self.blocks.borrow_mut().peek().is_some()
    }

    fn next(&self) -> Option<B> {
        match self.has_failed() {
            true => None,
            false => self.blocks.borrow_mut().next(),
        }
    }

    fn count(&self, more: &Moved) {
        if let Ok(moved) = &mut *self.ended.borrow_mut() {
            moved.add(more);
        }
    }

    /// Keeps the first error.
    fn fail(&self, error: Error) {
        let mut ended = self.ended.borrow_mut();
        if ended.is_ok() {
            *ended = Err(error);
        }
        drop(ended);
        self.filled.tell();
    }
}
