//! Disk-directed I/O: the part of a server in a collective request.
//!
//! Kotz, TOCS 1997, Figure 2(c) and section 4, on blocks; Seamons et al., SC'95, section 2, on the
//! chunks of arrays. The server lists its own blocks, sorts them by where they lie on disk, and
//! runs two buffers over the list. For a write each buffer gets the pieces of the next block from
//! all clients that hold some, and gives the block to the disk; a read does the opposite:
//!
//! ```text
//! buffer 0   memget block 0 | write block 0       | memget block 2 | write block 2 ...
//! buffer 1                  | memget block 1      | write block 1  | memget block 3 ...
//! ```
//!
//! Clients are idle meanwhile, and the server asks no client for elements that it does not hold.
//! The blocks of several arrays make one list, which each disk passes over once.
//!
//! | file | contents |
//! |---|---|
//! | `disk_directed` | the server's part: opens, lists, sorts; how a buffer is filled and drained |
//! | `relay` | the buffers' turns |
//! | `portions` | the blocks of a server, the clients that hold portions of them, and the memgets |
//! | `lists` | what clients hold, where no schema says it |
//! | `sieve`, `deliveries` | another drain: servers deliver what they make of a block's elements |
//!
//! Memory: two buffers of one block (more for a service that takes many calls at once), or as much
//! as a split collective may take. Time to plan: in proportion to this server's blocks and to the
//! clients that touch them.

use penstock_layout::Block;

use crate::address::MemoryId;
use crate::call::Call;
use crate::deliveries::Outlets;
use crate::error::{Result, Who};
use crate::files::{BlockClaim, CallFile, Files};
use crate::lists::{self, Lists};
use crate::machine::{Machine, Operation, Work};
use crate::outcome::{Digest, Outcome, Traffic};
use crate::portion::Portion;
use crate::portions::{Parts, check_apart, move_portions, parts_held};
use crate::relay::{Blocks, Flow, Relay};
use crate::request::{Request, Rest};
use crate::sieve::Sieve;
use crate::span;
use crate::split::{self, HandOver};
use crate::trace::Instrument;
use crate::tuning::DiskDirected;

/// Runs the part of `server` in `requests`, one for each array, to the end or to the first error,
/// which names the server. In a split collective the server hands over when only the disk is left
/// to work.
pub(crate) async fn serve<M: Machine>(
    call: Call<'_, M>,
    requests: &[Request],
    tuning: &DiskDirected,
    (server, files): (usize, Option<&Files<'_, M>>),
    hand_over: HandOver<'_>,
) -> Outcome {
    let mut sifted = requests.iter().filter(|one| one.sifting.is_some());
    let is_sifted = sifted.any(|one| server < one.servers);
    let outlets = is_sifted.then(|| Outlets::new(call, server));
    let mut job = Job {
        server,
        files: Vec::with_capacity(requests.len()),
        lists: Lists::default(),
    };
    let served = async {
        job.hear_of_lists(call, requests).await?;
        job.open(call, requests, files, outlets.as_ref()).await?;
        job.run(call.machine, requests, tuning, hand_over).await
    };
    let served = match &outlets {
        Some(outlets) => outlets.around(served).await,
        None => served.await,
    };
    let mut outcome = Outcome::of(served.map_err(|error| error.by(Who::Server(server))));
    outcome.digests = job.digests();
    outcome.changes = job.changes();
    outcome
}

/// A job is one server's part of one call.
struct Job<'a, M: Machine> {
    server: usize,
    files: Vec<File<'a, M>>,
    /// The pieces of clients' lists.
    lists: Lists,
}

/// A file is one array of a call, on the disk of one server.
struct File<'a, M: Machine> {
    call: Call<'a, M>,
    array: usize,
    /// The name of the first share of each client.
    memory: MemoryId,
    request: &'a Request,
    disk: CallFile<'a, M>,
    /// The sieve of a sifted read, and the outlets for what it lets through.
    sieve: Option<(M::Sieve, &'a Outlets<'a, M>)>,
}

impl<'a, M: Machine> Job<'a, M> {
    /// Receives the clients' lists, if they have some, as far as they are of this server's blocks.
    async fn hear_of_lists(&mut self, call: Call<'_, M>, requests: &[Request]) -> Result<()> {
        let Self { server, lists, .. } = self;
        if lists::are_in(requests) && *server < lists::servers(requests) {
            let is_own = |request: &Request, block: &Block| {
                request.disk.server_of(block, request.servers) == *server
            };
            *lists = Lists::receive(&call, requests, *server, is_own).await?;
        }
        Ok(())
    }

    /// Opens the arrays that have blocks on this server.
    async fn open(
        &mut self,
        call: Call<'a, M>,
        requests: &'a [Request],
        files: Option<&'a Files<'a, M>>,
        outlets: Option<&'a Outlets<'a, M>>,
    ) -> Result<()> {
        for (array, request) in requests.iter().enumerate() {
            if self.server < request.servers {
                let sieve = match (&request.sifting, outlets) {
                    (Some(sifting), Some(outlets)) => {
                        let opening = request.opening(self.server);
                        Some((call.machine.sieve(&sifting.words, &opening)?, outlets))
                    }
                    _ => None,
                };
                self.files.push(File {
                    sieve,
                    call,
                    array,
                    memory: call.id.memory(array),
                    request,
                    disk: CallFile::open(call, request, self.server, files).await?,
                });
            }
        }
        Ok(())
    }

    /// Moves all blocks of this server.
    async fn run(
        &self,
        machine: &M,
        requests: &[Request],
        tuning: &DiskDirected,
        hand_over: HandOver<'_>,
    ) -> Result<Traffic> {
        if self.files.is_empty() {
            return Ok(Traffic::default());
        }
        machine.work(Work::Thread).await;
        let blocks = self.blocks(machine, tuning).await;
        let relay = Relay::new(machine, requests, blocks, tuning.buffers);
        let moved = match requests[0].split {
            None => relay.run(self).await,
            Some(_) => split::run(&relay, self, hand_over).await,
        }?;
        self.deliver_rest().await?;
        Ok(moved)
    }

    /// Delivers what sieves have kept back.
    async fn deliver_rest(&self) -> Result<()> {
        for (sieve, outlets) in self.files.iter().filter_map(|file| file.sieve.as_ref()) {
            while let Some(rest) = sieve.rest()? {
                outlets.deliver(&rest).await?;
            }
        }
        Ok(())
    }

    /// The blocks of all arrays, each with the number of its file, in their order on disk.
    async fn blocks(&self, machine: &M, tuning: &DiskDirected) -> Blocks<'_, (usize, Block)> {
        let all = self.files.iter().enumerate().flat_map(|(number, file)| {
            let blocks = self.parts(file).blocks(self.server);
            blocks.map(move |block| (number, block))
        });
        let is_sorted = self.files.iter().all(|file| file.disk.is_in_schema_order());
        if is_sorted || !tuning.presort {
            return Box::new(all);
        }
        let mut sorted: Vec<_> = all.collect();
        machine.work(Work::List(sorted.len() as u64)).await;
        sorted.sort_by_cached_key(|(file, block)| self.files[*file].disk.position(block));
        Box::new(sorted.into_iter())
    }

    /// What clients hold of a file.
    fn parts(&self, file: &File<'a, M>) -> Parts<'_> {
        Parts {
            request: file.request,
            array: file.array,
            lists: &self.lists,
        }
    }

    /// The digests of the objects that were written.
    fn digests(&self) -> Vec<(usize, Digest)> {
        let of_file = |file: &File<'a, M>| {
            let (array, digests) = (file.array, file.disk.digests());
            digests.into_iter().map(move |digest| (array, digest))
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// What the director must know of the writes before they can be seen.
    fn changes(&self) -> Vec<Vec<u8>> {
        let changes = self.files.iter().map(|file| file.disk.changes());
        changes.filter(|changes| !changes.is_empty()).collect()
    }
}

impl<M: Machine> File<'_, M> {
    /// Gets the portions of a block from their clients. Elements that nobody holds become what
    /// [`Rest`] says.
    async fn gather(&self, block: &Block, portions: &[Portion], buffer: &M::Buffer) -> Result<()> {
        let Self { call, request, .. } = self;
        let held: u64 = portions.iter().map(|held| held.piece.elements()).sum();
        if request.rest == Rest::Keep && held < block.region.elements() {
            self.disk.read(block, buffer).await?;
        } else if request.rest != Rest::Leave && held * request.disk.width() < block.bytes {
            let element = request.rest.element();
            call.machine.clear(buffer, block.bytes, element);
        }
        self.move_portions(block, portions, buffer).await
    }

    /// Gives a block to the disk, or of a block that is not to be written whole the parts that
    /// clients hold.
    async fn write(&self, block: &Block, portions: &[Portion], buffer: &M::Buffer) -> Result<()> {
        let width = self.request.disk.width();
        if self.request.rest == Rest::Leave
            && let Some(parts) = parts_held(block, portions, width)
        {
            return self.disk.write_parts(block, &parts, buffer).await;
        }
        self.disk.write(block, buffer).await
    }

    /// Sifts a block, and delivers what the sieve lets through.
    async fn sift(&self, block: &Block, portions: &[Portion], buffer: &M::Buffer) -> Result<()> {
        let Some((sieve, outlets)) = &self.sieve else {
            return Ok(());
        };
        self.call.machine.work(Work::Sift(block.bytes)).await;
        let Block { object, offset, .. } = block;
        let deliveries = {
            let span = span!("portions", kind = "sift", object, offset);
            span.in_scope(|| sieve.sift(block, portions, buffer))?
        };
        for delivery in &deliveries {
            outlets.deliver(delivery).await?;
        }
        Ok(())
    }

    async fn move_portions(
        &self,
        block: &Block,
        portions: &[Portion],
        buffer: &M::Buffer,
    ) -> Result<()> {
        let Self {
            call,
            memory,
            request,
            ..
        } = self;
        let (from, count) = ((call.party(), *memory), portions.len() as u64);
        let Block { object, offset, .. } = block;
        let moving = move_portions(call.machine, from, request, portions, (block, 0), buffer);
        let span = span!("portions", object, offset, count);
        moving.instrument(span).await
    }
}

/// The load of a buffer: the portions of its block, and the claim on it until it is written.
struct Load<'a> {
    portions: Vec<Portion>,
    _claim: Option<BlockClaim<'a>>,
}

impl<'a, M: Machine> Flow<M> for Job<'a, M> {
    /// The number of the file, and the block.
    type Block = (usize, Block);
    type Load = Load<'a>;

    /// Gets the portions from the clients in a write, and the block from the disk in a read.
    async fn fill(
        &self,
        (file, block): &Self::Block,
        buffer: &M::Buffer,
    ) -> Result<Option<Self::Load>> {
        let file = &self.files[*file];
        let portions = self.parts(file).portions(block)?;
        if portions.is_empty() && !file.request.writes_all() {
            return Ok(None); // what is stored stays, or the store's fill value
        }
        if let Some((sieve, _)) = &file.sieve
            && !sieve.wants(block)
        {
            return Ok(None);
        }
        let operation = file.request.operation;
        let claim = file.disk.claim(block, operation).await;
        let _claim = match operation {
            Operation::Write => {
                if file.request.rest != Rest::Leave {
                    check_apart(block, &portions)?;
                }
                file.gather(block, &portions, buffer).await?;
                claim
            }
            Operation::Read => {
                file.disk.read(block, buffer).await?;
                None
            }
        };
        Ok(Some(Load { portions, _claim }))
    }

    /// Gives the block to the disk in a write, and puts the portions into the clients' memories in
    /// a read.
    async fn drain(
        &self,
        (file, block): &Self::Block,
        buffer: &M::Buffer,
        load: Self::Load,
    ) -> Result<Traffic> {
        let file = &self.files[*file];
        let mut moved = Traffic {
            blocks: 1,
            disk_bytes: block.bytes,
            ..Traffic::default()
        };
        if file.sieve.is_some() {
            file.sift(block, &load.portions, buffer).await?;
            return Ok(moved); // the outlets count what they deliver
        }
        match file.request.operation {
            Operation::Write => file.write(block, &load.portions, buffer).await?,
            Operation::Read => file.move_portions(block, &load.portions, buffer).await?,
        }
        moved.transfers = load.portions.len() as u64;
        Ok(moved)
    }

    async fn finish(&self) -> Result<()> {
        for file in &self.files {
            file.disk.finish().await?;
        }
        Ok(())
    }
}
