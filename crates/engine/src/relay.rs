//! A relay passes blocks, one after the other, through a few buffers. Each buffer is filled, then
//! drained, then takes the next block:
//!
//! ```text
//! buffer 0   fill block 0 | drain block 0       | fill block 2  | drain block 2 ...
//! buffer 1                | fill block 1        | drain block 1 | fill block 3 ...
//! ```
//!
//! One of the two steps is the disk's and the other the clients', so that both are busy with two
//! buffers. A split collective takes as many buffers as it may have: see [`crate::split`].
//!
//! After an error no new block is begun. The blocks under way are ended, since others may still
//! copy into their buffers.

use std::cell::{Cell, RefCell};
use std::iter::Peekable;

use futures::future::join_all;

use crate::error::Result;
use crate::machine::{Machine, Operation, Work};
use crate::outcome::Traffic;
use crate::request::Request;
use crate::signal::Signal;
use crate::span;
use crate::trace::Instrument;

/// A flow has the two steps of a block.
pub(crate) trait Flow<M: Machine> {
    /// The block, with its array.
    type Block;
    /// The result of filling that draining needs.
    type Load;

    /// Fills the buffer with a block, or returns `None` if nothing of the block is to be moved.
    async fn fill(&self, block: &Self::Block, buffer: &M::Buffer) -> Result<Option<Self::Load>>;

    /// Drains the buffer, and returns the traffic.
    async fn drain(
        &self,
        block: &Self::Block,
        buffer: &M::Buffer,
        load: Self::Load,
    ) -> Result<Traffic>;

    /// Ends a write on the disk.
    async fn finish(&self) -> Result<()>;
}

/// The blocks that a relay is to take.
pub(crate) type Blocks<'a, B> = Box<dyn Iterator<Item = B> + 'a>;

/// The buffers of a relay, and the blocks for them.
pub(crate) struct Relay<'a, M: Machine, B> {
    machine: &'a M,
    pub(crate) operation: Operation,
    buffer_bytes: u64,
    buffers: u64,
    blocks: RefCell<Peekable<Blocks<'a, B>>>,
    /// The number of buffers that are being filled.
    filling: Cell<u64>,
    filled: Signal,
    ended: RefCell<Result<Traffic>>,
}

impl<'a, M: Machine, B> Relay<'a, M, B> {
    /// Makes a relay for the `blocks` of `requests` (one at least), with `buffers_min` buffers or
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
            buffer_bytes,
            buffers: buffers.max(buffers_min),
            blocks: RefCell::new(blocks.peekable()),
            filling: Cell::new(0),
            filled: Signal::default(),
            ended: RefCell::new(Ok(Traffic::default())),
        }
    }

    /// Moves all blocks, and ends the writes.
    ///
    /// # Errors
    /// The first error of filling, draining or finishing.
    pub(crate) async fn run(&self, flow: &impl Flow<M, Block = B>) -> Result<Traffic> {
        let moved = self.move_all(flow).await?;
        if self.operation == Operation::Write {
            flow.finish().await?;
        }
        Ok(moved)
    }

    /// Moves all blocks through all buffers.
    ///
    /// # Errors
    /// The first error of filling or draining.
    pub(crate) async fn move_all(&self, flow: &impl Flow<M, Block = B>) -> Result<Traffic> {
        join_all((0..self.buffers).map(|_| self.run_buffer(flow))).await;
        self.ended.borrow().clone()
    }

    /// Waits until nothing more will be filled. Draining may go on, but has begun.
    pub(crate) async fn all_filled(&self) {
        let is_filled = || self.filling.get() == 0 && !self.has_next();
        self.filled.until(|| is_filled().then_some(())).await;
    }

    /// Takes blocks through one buffer, if there is one left for it.
    async fn run_buffer(&self, flow: &impl Flow<M, Block = B>) {
        if let Some(first) = self.next() {
            let passing = self.move_blocks(first, flow);
            passing.instrument(span!("buffer")).await;
        }
    }

    /// Takes block after block through one buffer until there is no block left, or an error.
    async fn move_blocks(&self, first: B, flow: &impl Flow<M, Block = B>) {
        let buffer = match self.machine.buffer(self.buffer_bytes) {
            Ok(buffer) => buffer,
            Err(error) => return self.note(Err(error)),
        };
        self.machine.work(Work::Prepare(self.buffer_bytes)).await;
        self.note(Ok(Traffic {
            buffer_bytes: self.buffer_bytes,
            ..Traffic::default()
        }));
        let mut next = Some(first);
        while let Some(block) = next {
            let moved = self.move_block(flow, &block, &buffer).await;
            self.note(moved);
            next = self.next();
        }
    }

    async fn move_block(
        &self,
        flow: &impl Flow<M, Block = B>,
        block: &B,
        buffer: &M::Buffer,
    ) -> Result<Traffic> {
        self.filling.set(self.filling.get() + 1);
        let filled = flow.fill(block, buffer).await;
        self.filling.set(self.filling.get() - 1);
        self.filled.tell();
        match filled? {
            Some(load) => flow.drain(block, buffer, load).await,
            None => Ok(Traffic::default()),
        }
    }

    /// Adds the traffic of a step, or keeps the first error.
    fn note(&self, step: Result<Traffic>) {
        let has_failed = step.is_err();
        let so_far = self.ended.replace(Ok(Traffic::default()));
        *self.ended.borrow_mut() = so_far.and_then(|moved| Ok(moved.and(&step?)));
        if has_failed {
            self.filled.tell();
        }
    }

    /// Whether another block is to be taken.
    fn has_next(&self) -> bool {
        self.ended.borrow().is_ok() && self.blocks.borrow_mut().peek().is_some()
    }

    fn next(&self) -> Option<B> {
        self.has_next()
            .then(|| self.blocks.borrow_mut().next())
            .flatten()
    }
}
