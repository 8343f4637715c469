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
//! is asked for anything that it does not hold. Where a call is about several arrays, their blocks make one
//! list, which each disk passes over once.
//!
//! The buffers are those of a `relay`; here is what fills and drains them.
//!
//! In a split collective a server has a buffer for every block, as far as they go: it gets all pieces
//! while the clients wait, and its disk is left to write while they compute. A read begins with the
//! disk, and ends with the memputs.
//!
//! Where a write leaves what nobody holds as it is stored, a block of which some is nobody's is read before
//! its pieces are put in.
//!
//! Memory: two buffers of one block, or what a split collective may take. Time to plan: in proportion
//! to this server's blocks and to the clients that touch them.

use penstock_layout::Block;

use crate::error::{Result, Who};
use crate::machine::{Disk, Machine, Operation, Work};
use crate::numbers::memory_after;
use crate::outcome::{Moved, Outcome, Sum};
use crate::relay::{Blocks, Flow, Relay, move_portions};
use crate::request::{Portion, Request, Rest};
use crate::split::Part;
use crate::tree::Tree;
use crate::tuning::DiskDirected;

/// Buffers a disk: one to fill while the other is drained (Kotz, Table I).
pub const BUFFERS_PER_DISK: u64 = 2;

/// Runs `server`'s part of `requests`, one an array, to the end or to the first error, which is by the name
/// of this server. In a split collective `part` is given up when all that is left to do is the disk's.
pub(crate) async fn serve<M: Machine>(
    tree: &Tree<'_, M>,
    requests: &[Request],
    options: &DiskDirected,
    server: usize,
    part: Part<'_>,
) -> Outcome {
    let mut job = Job {
        server,
        files: Vec::with_capacity(requests.len()),
    };
    let served = async {
        for (array, request) in requests.iter().enumerate() {
            if server < request.servers {
                let tree = Tree {
                    call: memory_after(tree.call, array),
                    ..*tree
                };
                let disk = tree.machine.open(request.opening(server)).await?;
                job.files.push(File {
                    tree,
                    array,
                    request,
                    disk,
                });
            }
        }
        serve_files(&job, tree.machine, requests, options, part).await
    };
    let mut outcome = Outcome::of(served.await.map_err(|error| error.by(Who::Server(server))));
    outcome.sums = job.sums();
    outcome
}

async fn serve_files<M: Machine>(
    job: &Job<'_, M>,
    machine: &M,
    requests: &[Request],
    options: &DiskDirected,
    part: Part<'_>,
) -> Result<Moved> {
    if job.files.is_empty() {
        return Ok(Moved::default());
    }
    machine.work(Work::Thread).await;
    let all = job.files.iter().enumerate().flat_map(|(file, opened)| {
        let blocks = opened.request.blocks(job.server);
        blocks.map(move |block| (file, block))
    });
    let mut blocks: Blocks<'_, (usize, Block)> = Box::new(all);
    let is_sorted = job.files.iter().all(|file| file.disk.is_in_schema_order());
    if options.presort && !is_sorted {
        let mut sorted: Vec<_> = blocks.collect();
        machine.work(Work::List(sorted.len() as u64)).await;
        sorted.sort_by_cached_key(|(file, block)| job.files[*file].disk.position(block));
        blocks = Box::new(sorted.into_iter());
    }
    let relay = Relay::new(machine, requests, blocks, BUFFERS_PER_DISK);
    relay.run(job, part).await
}

/// One array of a call, on the disk of one server.
struct File<'a, M: Machine> {
    tree: Tree<'a, M>,
    array: usize,
    request: &'a Request,
    disk: M::Disk,
}

impl<M: Machine> File<'_, M> {
    /// Gets what clients have of a block, and puts them on top of what they are to be put on.
    async fn gather(&self, block: &Block, portions: &[Portion], buffer: &M::Buffer) -> Result<()> {
        let Self { tree, request, .. } = self;
        let held: u64 = portions.iter().map(|held| held.piece.elements()).sum();
        if request.rest == Rest::Keep && held < block.region.elements() {
            self.disk.read(block, buffer, 0).await?;
        } else if held * request.disk.width() < block.bytes {
            let element = request.rest.element();
            tree.machine.clear(buffer, block.bytes, element);
        }
        move_portions(tree, request, portions, (block, 0), buffer).await
    }
}

/// One server's part of one call.
struct Job<'a, M: Machine> {
    server: usize,
    files: Vec<File<'a, M>>,
}

impl<M: Machine> Job<'_, M> {
    /// The checksums of what was written.
    fn sums(&self) -> Vec<Sum> {
        let of_file = |file: &File<'_, M>| {
            let array = file.array;
            let sums = file.disk.sums().into_iter();
            let sums = sums.map(move |(object, crc32c)| Sum {
                array,
                object,
                crc32c,
            });
            sums.collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of_file).collect()
    }
}

impl<M: Machine> Flow<M> for Job<'_, M> {
    /// Of which of the files, and what of it.
    type Block = (usize, Block);
    /// Who holds what of the block.
    type Load = Vec<Portion>;

    /// A write gets the pieces from the clients, a read the block from the disk.
    async fn fill(
        &self,
        (file, block): &Self::Block,
        buffer: &M::Buffer,
    ) -> Result<Option<Self::Load>> {
        let file = &self.files[*file];
        let portions = file.request.portions(file.tree.roles, block);
        if portions.is_empty() && !file.request.writes_all() {
            return Ok(None); // nobody's elements: what is stored stays, or the store's fill value
        }
        match file.request.operation {
            Operation::Write => file.gather(block, &portions, buffer).await?,
            Operation::Read => file.disk.read(block, buffer, 0).await?,
        }
        Ok(Some(portions))
    }

    /// A write gives the block to the disk, a read puts the pieces into the clients' memories.
    async fn drain(
        &self,
        (file, block): &Self::Block,
        buffer: &M::Buffer,
        portions: Self::Load,
    ) -> Result<Moved> {
        let file = &self.files[*file];
        match file.request.operation {
            Operation::Write => file.disk.write(block, buffer, 0).await?,
            Operation::Read => {
                move_portions(&file.tree, file.request, &portions, (block, 0), buffer).await?;
            }
        }
        Ok(Moved {
            blocks: 1,
            disk_bytes: block.bytes,
            transfers: portions.len() as u64,
            buffer_bytes: 0,
        })
    }

    async fn finish(&self) -> Result<()> {
        for file in &self.files {
            file.disk.finish().await?;
        }
        Ok(())
    }
}
