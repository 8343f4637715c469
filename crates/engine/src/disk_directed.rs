//! Disk-directed I/O: what a server does about a collective request.
//!
//! Kotz, TOCS 1997, Figure 2(c) and section 4, on blocks; Seamons et al., SC'95, section 2, on the
//! chunks of arrays. The server determines the blocks that are its own, sorts them by where they
//! lie, and runs two buffers over the list. Each buffer takes the next block, and for a write gets
//! its pieces from all clients that hold some and gives it to the disk, for a read the reverse:
//!
//! ```text
//! buffer 0   memget block 0 | write block 0       | memget block 2 | write block 2 ...
//! buffer 1                  | memget block 1      | write block 1  | memget block 3 ...
//! ```
//!
//! so that one is filled while the other is drained. Clients are idle meanwhile, and none of them
//! is asked for anything that it does not hold.
//!
//! Memory: two buffers of one block. Time to plan: in proportion to this server's blocks and to the
//! clients that touch them. After an error no new block is begun; those under way are ended, since
//! clients may still be copying into their buffers.

use std::cell::RefCell;

use futures::future::join_all;
use penstock_layout::Block;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Who};
use crate::machine::{Disk, Machine, Window, Work};
use crate::request::{Moved, Operation, Request, Roles};
use crate::tree::Tree;

/// Buffers a disk: one to fill while the other is drained (Kotz, Table I).
pub const BUFFERS_PER_DISK: u64 = 2;

/// The tuning of disk-directed I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether the blocks are sorted by where they lie on disk before any is moved.
    pub presort: bool,
}

impl Default for Options {
    /// Presorted: it costs next to nothing, and seeks are dear.
    fn default() -> Self {
        Self { presort: true }
    }
}

/// Runs `server`'s part of `request`, to the end or to the first error.
///
/// # Errors
/// The first that a disk or a client met, by the name of this server.
pub async fn serve<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
    server: usize,
) -> Result<Moved> {
    if server >= request.servers {
        return Ok(Moved::default());
    }
    let machine = tree.machine;
    let by_me = |error: Error| error.by(Who::Server(server));
    let disk = machine.open(request, server).await.map_err(by_me)?;
    machine.work(Work::Thread).await;
    let mut blocks: Box<dyn Iterator<Item = Block>> =
        Box::new(request.disk.blocks(server, request.servers));
    if options.presort && !disk.is_in_schema_order() {
        let mut sorted: Vec<Block> = blocks.collect();
        machine.work(Work::List(sorted.len() as u64)).await;
        sorted.sort_by_cached_key(|block| disk.position(block));
        blocks = Box::new(sorted.into_iter());
    }
    let job = Job {
        machine,
        call: tree.call,
        request,
        roles: tree.roles,
        disk,
        blocks: RefCell::new(blocks),
        ended: RefCell::new(Ok(Moved::default())),
    };
    join_all((0..BUFFERS_PER_DISK).map(|_| job.run_buffer())).await;
    if request.operation == Operation::Write && job.ended.borrow().is_ok() {
        job.disk.finish().await.map_err(by_me)?;
    }
    job.ended.into_inner().map_err(by_me)
}

/// One server's part of one call, shared by its buffers.
struct Job<'a, M: Machine> {
    machine: &'a M,
    call: u64,
    request: &'a Request,
    roles: &'a Roles,
    disk: M::Disk,
    blocks: RefCell<Box<dyn Iterator<Item = Block> + 'a>>,
    ended: RefCell<Result<Moved>>,
}

impl<M: Machine> Job<'_, M> {
    /// Takes block after block through one buffer until there is none, or an error.
    async fn run_buffer(&self) {
        let Some(mut block) = self.next() else { return };
        let bytes = self.request.disk.block_bytes_max();
        let buffer = match self.machine.buffer(bytes) {
            Ok(buffer) => buffer,
            Err(error) => return self.fail(error),
        };
        self.machine.work(Work::Prepare(bytes)).await;
        self.count(|moved| moved.buffer_bytes += bytes);
        loop {
            let moved = match self.request.operation {
                Operation::Write => self.write(&block, &buffer).await,
                Operation::Read => self.read(&block, &buffer).await,
            };
            if let Err(error) = moved {
                return self.fail(error);
            }
            match self.next() {
                Some(next) => block = next,
                None => return,
            }
        }
    }

    async fn write(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let pieces = self.request.pieces(self.roles, block);
        if pieces.is_empty() {
            return Ok(()); // nobody's elements: the store gives its fill value for them
        }
        let held: u64 = pieces.iter().map(|(_, piece)| piece.elements()).sum();
        if held * self.request.disk.width() < block.bytes {
            self.machine.clear(buffer, block.bytes);
        }
        let window = Window::of_block(block, self.request.disk.width());
        let gets = pieces.iter().map(|(client, piece)| {
            self.machine
                .memget(self.call, *client, piece, &window, buffer)
        });
        join_all(gets).await.into_iter().collect::<Result<()>>()?;
        self.disk.write(block, buffer).await?;
        self.count_block(block, pieces.len());
        Ok(())
    }

    async fn read(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let pieces = self.request.pieces(self.roles, block);
        if pieces.is_empty() {
            return Ok(());
        }
        self.disk.read(block, buffer).await?;
        let window = Window::of_block(block, self.request.disk.width());
        let puts = pieces.iter().map(|(client, piece)| {
            self.machine
                .memput(self.call, *client, piece, &window, buffer)
        });
        join_all(puts).await.into_iter().collect::<Result<()>>()?;
        self.count_block(block, pieces.len());
        Ok(())
    }

    fn next(&self) -> Option<Block> {
        if self.ended.borrow().is_err() {
            return None;
        }
        self.blocks.borrow_mut().next()
    }

    fn count_block(&self, block: &Block, transfers: usize) {
        self.count(|moved| {
            moved.blocks += 1;
            moved.disk_bytes += block.bytes;
            moved.transfers += transfers as u64;
        });
    }

    fn count(&self, change: impl FnOnce(&mut Moved)) {
        if let Ok(moved) = &mut *self.ended.borrow_mut() {
            change(moved);
        }
    }

    /// Keeps the first error.
    fn fail(&self, error: Error) {
        let mut ended = self.ended.borrow_mut();
        if ended.is_ok() {
            *ended = Err(error);
        }
    }
}
