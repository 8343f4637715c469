//! A server of files: what it has, and the little that all of its requests need.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::future::LocalBoxFuture;
use penstock_engine::blocks::{Blocks, Claims};
use penstock_engine::signal::Signal;
use penstock_engine::trace::Span;
use penstock_engine::{Error, Kind, Machine, NodeId, Result};
use penstock_layout::{DiskSchema, Split, exact};
use rustc_hash::{FxHashMap, FxHashSet};

use super::attachments::Attachments;
use super::behind::WriteBehind;
use super::gathering::{Departed, Gathering, GatheringKey, Meeting};
use super::lodge::{Guests, Lodge};
use super::namespace::Namespace;
use super::pointers::Pointers;
use super::recent::RecentBlocks;
use super::schedule::{Footprint, Schedule};
use super::taken::Taken;
use super::tokens::{Buckets, Failures, Passage};
use crate::caller::{Caller, Homes, unexpected};
use crate::messages::{Access, Request, Turn};
use crate::metrics::Meter;
use crate::names::{FilePath, Keepers, Names};
use crate::object::{FileShape, Identity, ObjectId};
use crate::placement::{Order, Placement, Rings};
use crate::transaction::{Step, TransactionId};
use crate::volume::records::RecordStore;
use crate::volume::{BlockName, CellBlock, Volume};

/// The structure of a volume, the same on all of its servers and clients.
#[derive(Debug, Clone)]
pub struct VolumeShape {
    /// A number that no other volume or party of the machine has.
    pub volume: u64,
    /// The node of each server.
    pub servers: Homes,
    /// The hashes of paths.
    pub names: Names,
    /// The bytes of a block.
    pub block_bytes: u64,
    /// The number of the user who owns the volume, and may do everything.
    pub owner: u32,
}

impl VolumeShape {
    /// The user as servers take it: who owns the volume may do everything.
    pub(super) fn known(&self, mut who: Identity) -> Identity {
        who.may_all = who.user == self.owner;
        who
    }
}

/// What a server is made of.
pub struct Parts<F, R> {
    /// The server's disks, each a block file of `blocks` blocks.
    pub disks: Vec<F>,
    /// The blocks of each disk.
    pub blocks: u64,
    /// The store of its records.
    pub records: R,
    /// The bytes of its cache.
    pub cache_bytes: u64,
    /// The time in nanoseconds since 1970.
    pub clock: Rc<dyn Fn() -> u64>,
    /// A number below 2^63 whose upper 32 bits no other life of this server has: none takes what
    /// belongs to another. It is no time: clocks may go back.
    pub life: u64,
    /// The nodes of all clients, if the server ends with the last of them; or none.
    pub clients: Arc<[NodeId]>,
    /// What the machine knows of clients, if the server does not trust them.
    pub guests: Option<Rc<dyn Guests>>,
    /// Ends when the server is to save all, and end.
    pub stopping: Option<LocalBoxFuture<'static, ()>>,
    /// Counts what the server does, if anybody is to know that.
    pub meter: Option<Arc<Meter>>,
}

/// A server of files.
pub struct Service<'m, M: Machine, R: RecordStore> {
    pub(super) machine: &'m M,
    pub(super) server: usize,
    pub(super) shape: VolumeShape,
    /// The rings of the volume.
    pub(super) rings: RefCell<Arc<Rings>>,
    /// The servers that keep the slots of the volume.
    pub(super) keepers: RefCell<Keepers>,
    pub(super) clock: Rc<dyn Fn() -> u64>,
    pub(super) volume: Rc<Volume<'m, M, R>>,
    /// The blocks of a cell.
    pub(super) cell_blocks: DiskSchema,
    pub(super) blocks: Blocks<'m, M, BlockName, CellBlock<'m, M, R>>,
    pub(super) caller: Caller<'m, M>,
    pub(super) schedules: RefCell<FxHashMap<ObjectId, Rc<Schedule>>>,
    pub(super) buckets: RefCell<Buckets>,
    /// Accesses whose tokens have not come.
    pub(super) early: RefCell<Early<M::Parcel>>,
    /// The requests whose tokens have passed here and have not come to their ends.
    pub(super) passages: RefCell<BTreeMap<(NodeId, u64), Passage>>,
    /// The requests of each client that have failed here.
    pub(super) failures: RefCell<FxHashMap<NodeId, Failures>>,
    /// What servers that are lost are to hear when they are back.
    pub(super) owed: RefCell<BTreeMap<usize, Vec<Request>>>,
    /// The servers that each token of this server asks, by the ticket of their answers.
    pub(super) asked: RefCell<BTreeMap<u64, Vec<usize>>>,
    /// The nodes that have left, and why.
    pub(super) departed: RefCell<Departed>,
    /// The clients of the server's program, if it ends with them.
    pub(super) clients: Arc<[NodeId]>,
    /// The clients, if the server does not trust them.
    pub(super) lodge: Option<Lodge<M::Parcel>>,
    stopping: RefCell<Option<LocalBoxFuture<'static, ()>>>,
    pub(super) meter: Option<Arc<Meter>>,
    /// The accesses that wait for others of the same file.
    pub(super) turns_waiting: Cell<usize>,
    pub(super) namespace: RefCell<Namespace>,
    pub(super) locks: Claims<FilePath>,
    /// The slots: alone for those that move.
    pub(super) slots: Claims<usize>,
    pub(super) attachments: RefCell<Attachments>,
    pub(super) pointers: RefCell<Pointers>,
    pub(super) recent: RefCell<RecentBlocks>,
    /// The collective requests that wait for some of their clients.
    pub(super) gatherings: RefCell<BTreeMap<GatheringKey, Gathering>>,
    /// The clients of programs that wait for each other.
    pub(super) meetings: RefCell<BTreeMap<u64, Meeting>>,
    pub(super) behind: WriteBehind,
    /// What this server has taken over of files that are to move here.
    pub(super) taken: RefCell<FxHashMap<ObjectId, Taken>>,
    /// The files whose last cells have gone from here to other servers, with their placements then.
    pub(super) moved_away: RefCell<FxHashMap<ObjectId, Placement>>,
    /// The files that were removed.
    pub(super) removed: RefCell<FxHashSet<ObjectId>>,
    /// The files whose requests may come in any order, each with the server that allows it.
    pub(super) reckless: RefCell<FxHashMap<ObjectId, NodeId>>,
    /// The blocks that limited users may have on all servers, the most that each can have on each
    /// server since the last division, and the divisions under way of what is left.
    pub(super) quotas: RefCell<BTreeMap<u32, u64>>,
    pub(super) bounds: RefCell<BTreeMap<(u32, usize), u64>>,
    pub(super) divisions: Claims<u32>,
    /// The decisions of directors that this server has heard of and not yet carried out: what, and
    /// whom to tell of the end.
    pub(super) decisions: RefCell<FxHashMap<TransactionId, Decision>>,
    /// The transactions that were given up before their parts here were ready.
    pub(super) undone: RefCell<BTreeSet<TransactionId>>,
    /// The signal that a decision has come, or that a server has left or joined.
    pub(super) heard: Signal,
    /// The number of times that a server has joined.
    pub(super) joins: Cell<u64>,
    /// The transactions whose decisions this server waits for, each with its steps here.
    pub(super) awaited: RefCell<FxHashMap<TransactionId, Vec<Step>>>,
    /// The transactions of this server that are under way.
    pub(super) directed: RefCell<BTreeSet<TransactionId>>,
    /// The transactions that this server has decided to carry out, until all have done so.
    pub(super) decided: RefCell<BTreeSet<TransactionId>>,
    /// The number of the next object or transaction.
    pub(super) numbers: Cell<u64>,
    /// The error that keeps the server from serving.
    pub(super) failed: RefCell<Option<Error>>,
    /// The number from which on numbers are not reserved yet.
    pub(super) reserved: Cell<u64>,
    /// Whether nothing is left of a crash, so that clients are served.
    pub(super) is_ready: Cell<bool>,
    pub(super) is_stopped: Cell<bool>,
    /// Whether the server saves all, and then ends.
    pub(super) is_ending: Cell<bool>,
}

/// A decision, and whom to tell of the end.
type Decision = (bool, Vec<(NodeId, u64)>);

/// Accesses with their data and their waits, by the clients and the numbers of their requests.
type Early<P> = BTreeMap<(NodeId, u64), (Access, Option<P>, Span)>;

/// A task of a server.
pub(super) type Task<'a> = LocalBoxFuture<'a, ()>;

impl<'m, M: Machine, R: RecordStore> Service<'m, M, R> {
    /// Makes server number `server` of a volume.
    ///
    /// # Errors
    /// When blocks have an impossible size.
    pub fn new(
        machine: &'m M,
        server: usize,
        shape: VolumeShape,
        parts: Parts<M::File, R>,
    ) -> Result<Self> {
        let Parts {
            disks,
            blocks,
            records,
            cache_bytes,
            clock,
            life,
            clients,
            guests,
            stopping,
            meter,
        } = parts;
        let block_bytes = shape.block_bytes;
        let disks = (disks, blocks, block_bytes);
        let cell = DiskSchema::chunked(&[CELL_ELEMENTS], 1, &[CELL_ELEMENTS]);
        let cell = cell.and_then(|cell| cell.split(Split::Contiguous(block_bytes)));
        let cell_blocks = cell.map_err(|error| Error::new(Kind::Schema, "serving files", error))?;
        let place = (shape.volume, shape.servers.clone());
        let rings = Arc::new(Rings::new(shape.names.servers));
        Ok(Self {
            machine,
            server,
            clock,
            volume: Rc::new(Volume::new(machine, server, disks, records, meter.clone())),
            cell_blocks,
            blocks: Blocks::new(machine, cache_bytes),
            // Clients have the lower half of the numbers.
            caller: Caller::new(
                machine,
                place,
                1 << 21 | exact::<u32>(server),
                Arc::new(AtomicU64::new(life >> 10)),
            ),
            schedules: RefCell::default(),
            buckets: RefCell::new(Buckets::new(life)),
            early: RefCell::default(),
            passages: RefCell::default(),
            failures: RefCell::default(),
            owed: RefCell::default(),
            asked: RefCell::default(),
            departed: RefCell::default(),
            clients,
            lodge: guests.map(Lodge::new),
            stopping: RefCell::new(stopping),
            meter,
            turns_waiting: Cell::default(),
            namespace: RefCell::new(Namespace::new(shape.names)),
            locks: Claims::default(),
            slots: Claims::default(),
            attachments: RefCell::new(Attachments::new(life)),
            pointers: RefCell::new(Pointers::new(server, life)),
            recent: RefCell::default(),
            gatherings: RefCell::default(),
            meetings: RefCell::default(),
            behind: WriteBehind::default(),
            taken: RefCell::default(),
            moved_away: RefCell::default(),
            removed: RefCell::default(),
            reckless: RefCell::default(),
            quotas: RefCell::default(),
            bounds: RefCell::default(),
            divisions: Claims::default(),
            decisions: RefCell::default(),
            undone: RefCell::default(),
            heard: Signal::default(),
            joins: Cell::new(0),
            awaited: RefCell::default(),
            directed: RefCell::default(),
            decided: RefCell::default(),
            numbers: Cell::new(1),
            failed: RefCell::default(),
            reserved: Cell::new(1),
            is_ready: Cell::new(false),
            is_stopped: Cell::new(false),
            is_ending: Cell::new(false),
            rings: RefCell::new(rings),
            keepers: RefCell::new(shape.names.keepers()),
            shape,
        })
    }

    /// The order of requests to a file.
    pub(super) fn schedule(&self, file: ObjectId) -> Rc<Schedule> {
        let mut schedules = self.schedules.borrow_mut();
        schedules.retain(|id, schedule| *id == file || !schedule.is_empty());
        schedules.entry(file).or_default().clone()
    }

    /// Stores all changed blocks of a file, and saves it.
    pub(super) async fn sync(&self, file: ObjectId) -> Result<()> {
        let place = self.schedule(file).enter(Footprint::Any);
        self.turn_of(&place, file).await?;
        self.save(file).await
    }

    /// Stores and saves a file. The caller has a place in its order.
    pub(super) async fn save(&self, file: ObjectId) -> Result<()> {
        self.blocks.write_back_all(|name| name.file == file).await;
        self.volume.save(file).await
    }

    /// Saves all, and ends the server by an error, because no client is left.
    pub(super) async fn end_alone(&self, last: Error) {
        let cause = format!("all clients have left, the last by this: {last}");
        let left = Error::new(Kind::Peer, "serving files", cause);
        let saved = self.sync_all().await;
        *self.failed.borrow_mut() = Some(saved.err().unwrap_or(left));
    }

    /// Waits until the server is to end, and saves all.
    pub(super) fn stop_when_told(&self) -> Option<Task<'_>> {
        let stopping = self.stopping.take()?;
        Some(Box::pin(async move {
            stopping.await;
            self.is_ending.set(true);
            if let Some(meter) = &self.meter {
                meter.note_end();
            }
            if let Err(error) = self.sync_all().await {
                *self.failed.borrow_mut() = Some(error);
            }
            self.is_stopped.set(true);
        }))
    }

    pub(super) async fn sync_all(&self) -> Result<()> {
        for file in self.volume.files() {
            self.sync(file).await?;
        }
        self.volume.committer.commit(None).await
    }
}

/// The bytes that a cell may have, as the extent of an array.
const CELL_ELEMENTS: u64 = penstock_layout::view::CELL_BYTES_MAX;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// The rings of the volume.
    pub(super) fn rings(&self) -> Arc<Rings> {
        self.rings.borrow().clone()
    }

    /// The servers of a file in the order in which tokens pass them.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the file is in a ring that there is not.
    pub(super) fn order(&self, (base, placement): (usize, Placement)) -> Result<Order> {
        self.rings.borrow().order(base, placement)
    }

    /// The turn of this server among those of a file, if it is one of them.
    pub(super) fn turn(&self, file: (usize, Placement)) -> Option<usize> {
        self.order(file).ok()?.turn(self.server)
    }

    /// The servers with cells of a file in one of these forms, in the order of the first, and
    /// their turns.
    ///
    /// # Errors
    /// As [`Service::order`].
    pub(super) fn way_of(&self, shapes: &[FileShape]) -> Result<(Vec<usize>, Vec<usize>)> {
        let rings = self.rings();
        let mut turns = BTreeMap::new();
        if let Some(first) = shapes.first() {
            let order = first.order(&rings)?;
            for shape in shapes {
                for server in shape.dealing(&rings)?.servers() {
                    turns.insert(order.turn(server).ok_or_else(unexpected)?, server);
                }
            }
        }
        Ok(turns.into_iter().unzip())
    }

    /// Whether a file has moved since somebody has heard of this placement, as far as this server
    /// has had a part in that.
    pub(super) fn has_moved_since(&self, file: ObjectId, placement: Placement) -> bool {
        let known = self.moved_away.borrow().get(&file).copied();
        placement < known.unwrap_or_else(|| self.volume.placement(file))
            || placement.former < self.rings.borrow().first()
    }

    /// Whether a request is done in the order of tokens, and this server is not the first.
    pub(super) fn waits_for_token(&self, turn: &Turn, file: (usize, Placement)) -> bool {
        match turn {
            Turn::Token(turns) => turns.first().copied() != self.turn(file),
            Turn::Any | Turn::Arrival => false,
        }
    }
}

/// The block file of a disk of a server must hold blocks of this schema.
///
/// # Errors
/// When there are too many blocks.
pub fn disk_schema(blocks: u64, block_bytes: u64) -> Result<DiskSchema> {
    let wrong = |cause: String| Error::new(Kind::Schema, "laying out a disk", cause);
    let bytes = blocks.checked_mul(block_bytes);
    let bytes = bytes.ok_or_else(|| wrong(format!("{blocks} blocks of {block_bytes} bytes")))?;
    let disk = DiskSchema::chunked(&[bytes], 1, &[bytes]);
    let disk = disk.and_then(|disk| disk.split(Split::Contiguous(block_bytes)));
    disk.map_err(|error| wrong(error.to_string()))
}
