//! The disks of the simulated machine: their queues, their costs, and their contents.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use penstock_engine::queue::Queue;
use penstock_engine::signal::Signal;
use penstock_engine::tuning::QueueOrder;
use penstock_engine::{Access, BlockFile, Digest, NodeId, Opening, Operation, Result};
use penstock_layout::{Assignment, Block, DiskSchema, exact};

use super::contents::{BlockName, Contents};
use super::data::{Buffer, Parcel};
use super::faults::DiskFaults;
use super::hosts::Hosts;
use super::turns::{Turn, Turns, turn_of};
use super::world::World;
use crate::disk::{Bus, Device, Phases};
use crate::preset;
use crate::time::{Interval, Span, Time};
use crate::trace::Part;

/// The places of the blocks of a disk: the first sector of each slot.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// Slots lie one after the other.
    Contiguous,
    /// Slots lie as listed.
    Listed(Vec<u64>),
}

/// A station is one disk and its bus, with their settings and counts.
pub(crate) struct Station {
    pub(crate) node: NodeId,
    pub(crate) server: usize,
    /// The device, which stations of one host share if nodes share hosts.
    pub(crate) device: Rc<RefCell<Device>>,
    pub(crate) bus: Rc<RefCell<Bus>>,
    pub(crate) places: Places,
    pub(crate) slot_sectors: u64,
    /// The time to hand a request to the disk, and to take in its end.
    pub(crate) request: Span,
    /// The queue hands the disk only as many requests as it works at.
    pub(crate) queue: Queue,
    /// The slots of a file. The blocks of the second file lie behind the slots of the first, and so
    /// on; where the disk ends, they lie where other blocks do, but have their own contents.
    pub(crate) slots: u64,
    /// The target of each file, in the order in which they were opened first.
    pub(crate) files: RefCell<Vec<Vec<u8>>>,
    /// The contents, if the bytes are real.
    pub(crate) contents: RefCell<Contents>,
    /// Blocks read and written.
    pub(crate) blocks: Cell<u64>,
    /// Writes that the file system has reported before the disk has.
    pub(crate) behind: WriteBehind,
    /// The times that the file system adds to the disk's.
    pub(crate) file_system: FileSystem,
    /// The turns of each node, if servers do one thing at a time.
    pub(super) turns: Option<Rc<[Turns]>>,
    /// The processors of hosts, if nodes share them.
    pub(super) hosts: Option<Rc<Hosts>>,
    /// The turns of the worker of each node that has opened this disk, if nodes share hosts: a
    /// node's worker makes one blocking call at a time.
    pub(super) workers: RefCell<HashMap<NodeId, Rc<Turns>>>,
    /// The turns of those who force bytes out to this device.
    pub(super) flushes: Rc<Turns>,
    /// The turns of writes to one file, of all stations of a host, if such writes take turns.
    pub(super) writes: Rc<Turns>,
    /// Whether none of this takes any time.
    pub(crate) is_free: bool,
    pub(super) faults: DiskFaults,
}

impl Station {
    /// The number of the file with this target.
    pub(crate) fn file(&self, target: &[u8]) -> usize {
        let mut files = self.files.borrow_mut();
        let known = files.iter().position(|file| file == target);
        known.unwrap_or_else(|| {
            files.push(target.to_vec());
            files.len() - 1
        })
    }

    /// Spends the file system's own time, of the disk's worker or of a processor of its host.
    pub(super) async fn in_file_system(&self, world: &Rc<World>, node: NodeId, span: Span) {
        if span == Span::ZERO {
            return;
        }
        let hosts = self.hosts.as_ref();
        let Some(hosts) = hosts.filter(|_| self.file_system.takes_processor) else {
            return world.sleep_until(world.now() + span).await;
        };
        let processor = hosts.processor_of_worker(node, self.server).await;
        let span = processor.slowed(span);
        world.sleep_until(world.now() + span).await;
    }

    /// The first sector of a slot of a file.
    fn lba(&self, file: usize, slot: u64) -> u64 {
        let slot = file as u64 * self.slots + slot;
        match &self.places {
            Places::Listed(places) if file > 0 => {
                places[exact::<usize>(slot) % places.len().max(1)]
            }
            Places::Listed(places) => places[exact::<usize>(slot)],
            Places::Contiguous => {
                let slots_max = self.device.borrow().sectors() / self.slot_sectors;
                let slot = if file > 0 {
                    slot % slots_max.max(1)
                } else {
                    slot
                };
                slot * self.slot_sectors
            }
        }
    }
}

/// [`preset::FileSystem`] as spans, all zero if there is no file system.
#[derive(Default)]
pub(crate) struct FileSystem {
    /// The order of the disk's queue, if not that of arrival.
    queue: Option<QueueOrder>,
    open: Span,
    sync: Span,
    /// The bytes of a read command; 0 makes each request one command.
    read_cluster_bytes: u64,
    read_ns_per_byte: f64,
    write_ns_per_byte: f64,
    request: Span,
    object_create: Span,
    object_open: Span,
    object_sync: Span,
    sync_ns_per_byte: f64,
    takes_processor: bool,
    writes_take_turns: bool,
}

impl FileSystem {
    pub(crate) fn new(file_system: Option<&preset::FileSystem>) -> Self {
        file_system.map_or_else(Self::default, |given| Self {
            queue: Some(given.queue),
            open: Span::from_us_f64(given.open_us),
            sync: Span::from_us_f64(given.sync_us),
            read_cluster_bytes: given.read_cluster_bytes,
            read_ns_per_byte: given.read_ns_per_byte,
            write_ns_per_byte: given.write_ns_per_byte,
            request: Span::from_us_f64(given.request_us),
            object_create: Span::from_us_f64(given.object_create_us),
            object_open: Span::from_us_f64(given.object_open_us),
            object_sync: Span::from_us_f64(given.object_sync_us),
            sync_ns_per_byte: given.sync_ns_per_byte,
            takes_processor: given.takes_processor,
            writes_take_turns: given.writes_take_turns,
        })
    }

    /// The time to open the file of a call, and to make it if it is to be safe.
    pub(crate) fn opening(&self, opening: &Opening) -> Span {
        match opening.access {
            Access::Write if opening.sync => self.open + self.sync,
            Access::Write | Access::Read | Access::Update => self.open,
        }
    }

    fn reading(&self, bytes: u64) -> Span {
        self.request + Span::from_ns_f64(self.read_ns_per_byte * bytes as f64)
    }

    /// The time to force out bytes that were written.
    fn flushing(&self, bytes: u64) -> Span {
        Span::from_ns_f64(self.sync_ns_per_byte * bytes as f64)
    }

    /// Cuts a stretch of bytes into the commands that read it.
    fn commands(&self, bytes: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start, end } = *bytes;
        let cluster_bytes = match self.read_cluster_bytes {
            0 => (end - start).max(1),
            cluster_bytes => cluster_bytes,
        };
        let first = (start..end.max(start + 1)).step_by(exact::<usize>(cluster_bytes));
        first.map(move |first| first..(first + cluster_bytes).min(end))
    }

    fn writing(&self, bytes: u64) -> Span {
        self.request + Span::from_ns_f64(self.write_ns_per_byte * bytes as f64)
    }
}

/// Write-behind is the buffer of a file system that reports writes before they are on the disk.
#[derive(Default)]
pub(crate) struct WriteBehind {
    bytes_max: u64,
    /// The time when each write will be on the media, and its bytes; oldest first.
    pending: RefCell<VecDeque<(Time, u64)>>,
}

impl WriteBehind {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// The time when a write may be reported that will be on the media at `on_media_at`: then no
    /// more bytes than the buffer holds are not on the media.
    fn reported_at(&self, now: Time, on_media_at: Time, bytes: u64) -> Time {
        if self.bytes_max == 0 {
            return on_media_at;
        }
        let mut pending = self.pending.borrow_mut();
        while pending.front().is_some_and(|&(at, _)| at <= now) {
            pending.pop_front();
        }
        pending.push_back((on_media_at, bytes));
        let mut left: u64 = pending.iter().map(|(_, bytes)| bytes).sum();
        let mut at = now;
        for &(done, bytes) in pending.iter() {
            if left <= self.bytes_max {
                break;
            }
            (at, left) = (done, left - bytes);
        }
        at
    }
}

/// Makes the queue of a station. Unless its file system sorts, requests that are to wait have been
/// put in order before.
pub(crate) fn station_queue(device: &Device, file_system: &FileSystem) -> Queue {
    let order = file_system.queue.unwrap_or(QueueOrder::Fcfs);
    Queue::new(order, device.queue_depth())
}

/// A simulated disk is a station opened for one call.
pub struct SimDisk {
    pub(crate) world: Rc<World>,
    /// The node that has opened it.
    pub(crate) opened_by: NodeId,
    pub(crate) station: Rc<Station>,
    /// The number of its file on the disk.
    pub(crate) file: usize,
    pub(crate) schema: DiskSchema,
    pub(crate) servers: usize,
    pub(crate) waits_for_media: bool,
    /// The number of writes under way, and the signal that one has ended.
    pub(crate) writing: Cell<u32>,
    pub(crate) written: Signal,
    /// The objects that were read or written.
    pub(crate) objects: RefCell<HashSet<u64>>,
    /// The bytes written since the last finish.
    pub(crate) unsynced_bytes: Cell<u64>,
}

impl SimDisk {
    fn slot(&self, block: &Block) -> u64 {
        self.schema.slot(block, self.servers)
    }

    fn name(&self, block: &Block) -> BlockName {
        (self.file, block.object, block.index)
    }

    fn contents(&self) -> RefMut<'_, Contents> {
        self.station.contents.borrow_mut()
    }

    fn lba(&self, slot: u64) -> u64 {
        self.station.lba(self.file, slot)
    }

    /// The first sector of these bytes of a block, and the number of sectors.
    fn sectors(&self, slot: u64, bytes: &Range<u64>) -> (u64, u64) {
        let sector_bytes = self.station.device.borrow().sector_bytes();
        let first = bytes.start / sector_bytes;
        let count = bytes.end.div_ceil(sector_bytes).saturating_sub(first);
        (self.lba(slot) + first, count.max(1))
    }

    /// Records what the mechanism does for a block.
    fn record(&self, what: &'static str, phases: &Phases, block: u64) {
        let part = Part::Disk(self.station.server);
        let Phases {
            overhead,
            seek,
            rotate,
            media,
            cylinder,
        } = *phases;
        let at = Some(cylinder);
        for (what, interval, at) in [
            ("overhead", overhead, None),
            ("seek", seek, at),
            ("rotate", rotate, None),
            (what, media, at),
        ] {
            let node = self.station.node;
            self.world
                .record(node, part, what, interval, at, Some(block));
        }
    }

    /// Records what was done with a buffer since its last record.
    fn record_buffer(&self, what: &'static str, buffer: &Buffer, block: &Block) {
        if !self.world.is_traced() {
            return; // the slot takes time to find
        }
        let interval = Interval::new(buffer.since.replace(self.world.now()), self.world.now());
        let part = Part::Buffer(buffer.number);
        let slot = Some(self.slot(block));
        self.world
            .record(self.station.node, part, what, interval, None, slot);
    }

    async fn over_bus(&self, bytes: u64) {
        let taken = self
            .station
            .bus
            .borrow_mut()
            .transfer(self.world.now(), bytes);
        self.world
            .record(self.station.node, Part::Bus, "transfer", taken, None, None);
        self.world.sleep_until(taken.end).await;
    }
}

impl BlockFile for SimDisk {
    type Buffer = Buffer;

    fn position(&self, block: &Block) -> (u64, u64) {
        (self.lba(self.slot(block)), 0)
    }

    fn is_in_schema_order(&self) -> bool {
        matches!(self.station.places, Places::Contiguous)
    }

    fn queue_depth(&self) -> u32 {
        self.station.device.borrow().queue_depth()
    }

    async fn write(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.record_buffer("filled by clients", buffer, block);
        self.write_bytes(block, 0..block.bytes).await?;
        let (data, name) = (buffer.cut(at..at + block.bytes).data, self.name(block));
        self.contents().put(name, 0, data.as_deref(), block.bytes);
        self.record_buffer("to disk", buffer, block);
        Ok(())
    }

    async fn read(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.record_buffer("emptied to clients", buffer, block);
        self.read_bytes(block, 0..block.bytes).await?;
        self.record_buffer("from disk", buffer, block);
        buffer.clear(at..at + block.bytes, &[]); // what was never written is zero
        if let Some(stored) = self.contents().get(self.name(block)) {
            buffer.fill(at, stored);
        }
        Ok(())
    }

    async fn moves_parts(&self) -> Result<bool> {
        Ok(true)
    }

    async fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Buffer,
    ) -> Result<()> {
        for part in parts {
            self.write_bytes(block, part.clone()).await?;
            let (data, name) = (buffer.cut(part.clone()).data, self.name(block));
            self.contents()
                .put(name, part.start, data.as_deref(), block.bytes);
        }
        Ok(())
    }

    /// Nobody asks a simulated disk for checksums.
    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }

    async fn read_parts(&self, block: &Block, parts: &[Range<u64>], buffer: &Buffer) -> Result<()> {
        for part in parts {
            self.read_bytes(block, part.clone()).await?;
            let data = match self.contents().get(self.name(block)) {
                Some(stored) => {
                    stored[exact::<usize>(part.start)..exact::<usize>(part.end)].to_vec()
                }
                None => vec![0; exact::<usize>(part.end - part.start)],
            };
            let parcel = Parcel {
                bytes: part.end - part.start,
                data: Some(data),
            };
            buffer.paste(&parcel, part.start);
        }
        Ok(())
    }

    async fn finish(&self) -> Result<()> {
        let none_writes = || (self.writing.get() == 0).then_some(());
        self.written.until(none_writes).await;
        if self.waits_for_media && !self.station.is_free {
            let idle_at = self.station.device.borrow().media_idle_at();
            if idle_at > self.world.now() {
                self.world.sleep_until(idle_at).await;
            }
        }
        if self.waits_for_media {
            let objects = self.objects.borrow().len() as u64;
            let bytes = self.unsynced_bytes.replace(0);
            if bytes > 0 && !self.station.is_free {
                self.force_out(objects, bytes).await;
            }
            self.contents().sync(self.file);
        }
        Ok(())
    }
}

/// The work of the file system and the hardware.
impl SimDisk {
    fn count_block(&self) {
        self.station.blocks.set(self.station.blocks.get() + 1);
    }

    /// Keeps the disk for the file system's own part of a request.
    async fn in_file_system(&self, span: Span) {
        let station = &self.station;
        station
            .in_file_system(&self.world, self.opened_by, span)
            .await;
    }

    /// The worker that makes this node's calls, if it has one that makes one after the other.
    fn worker(&self) -> Option<Rc<Turns>> {
        self.station.hosts.as_ref()?;
        let mut workers = self.station.workers.borrow_mut();
        Some(workers.entry(self.opened_by).or_default().clone())
    }

    /// Forces out what this file has written: its objects, and then its bytes, in turn with others
    /// that write to the device.
    async fn force_out(&self, objects: u64, bytes: u64) {
        let file_system = &self.station.file_system;
        for time in [
            file_system.object_sync * objects,
            file_system.flushing(bytes),
        ] {
            if time > Span::ZERO {
                let _turn = self.station.flushes.turn().await;
                self.world.sleep_until(self.world.now() + time).await;
            }
        }
    }

    /// The time to make or open the object of a block, if this file has not yet.
    fn first_of(&self, block: &Block, time: Span) -> Span {
        match self.objects.borrow_mut().insert(block.object) {
            true => time,
            false => Span::ZERO,
        }
    }

    /// Writes the sectors with these bytes of a block.
    async fn write_bytes(&self, block: &Block, bytes: Range<u64>) -> Result<()> {
        self.station.faults.request(Operation::Write, block)?;
        if self.station.is_free {
            self.count_block();
            return Ok(());
        }
        let writing = Writing::new(self);
        let worker = self.worker();
        let working = next_turn(worker.as_deref()).await;
        let Station {
            device,
            queue,
            file_system,
            turns,
            ..
        } = &*self.station;
        let slot = self.slot(block);
        let (lba, sectors) = self.sectors(slot, &bytes);
        let turn = queue.turn(self, block, std::future::ready(())).await;
        let call = turn_of(turns.as_deref(), self.station.node).await;
        let began = self.world.now();
        let making = self.first_of(block, file_system.object_create);
        self.in_file_system(making).await;
        self.world
            .interrupt(self.station.node, self.station.request, "disk")
            .await;
        let ready = device
            .borrow_mut()
            .begin_write(self.world.now(), lba, sectors);
        let wanted_at = match self.station.behind.bytes_max {
            0 => ready.wants_data_at,
            _ => ready.overhead.end,
        };
        self.world.sleep_until(wanted_at).await;
        self.over_bus(bytes.end - bytes.start).await;
        let reported = device
            .borrow_mut()
            .data_received(self.world.now(), lba, sectors);
        self.record("write", &reported.phases, slot);
        let behind = &self.station.behind;
        let by_system = behind.reported_at(
            self.world.now(),
            reported.on_media_at,
            bytes.end - bytes.start,
        );
        self.world
            .sleep_until(reported.reported_at.min(by_system))
            .await;
        let is_shared = self.schema.assignment() == Assignment::Blocks && self.servers > 1;
        let alone = match file_system.writes_take_turns && is_shared {
            true => Some(self.station.writes.turn().await),
            false => None,
        };
        self.in_file_system(file_system.writing(bytes.end - bytes.start))
            .await;
        drop(alone);
        let unsynced = self.unsynced_bytes.get();
        self.unsynced_bytes
            .set(unsynced + (bytes.end - bytes.start));
        self.in_file_system(self.station.faults.slowness(self.world.now() - began))
            .await;
        drop((call, turn, working));
        self.count_block();
        drop(writing);
        Ok(())
    }

    /// Reads the sectors with these bytes of a block, command by command.
    async fn read_bytes(&self, block: &Block, bytes: Range<u64>) -> Result<()> {
        self.station.faults.request(Operation::Read, block)?;
        if self.station.is_free {
            self.count_block();
            return Ok(());
        }
        let Station {
            device,
            queue,
            file_system,
            turns,
            ..
        } = &*self.station;
        let worker = self.worker();
        let working = next_turn(worker.as_deref()).await;
        let slot = self.slot(block);
        let turn = queue.turn(self, block, std::future::ready(())).await;
        let call = turn_of(turns.as_deref(), self.station.node).await;
        let began = self.world.now();
        let opening = self.first_of(block, file_system.object_open);
        self.in_file_system(opening).await;
        for command in file_system.commands(&bytes) {
            let (lba, sectors) = self.sectors(slot, &command);
            self.world
                .interrupt(self.station.node, self.station.request, "disk")
                .await;
            let ready = device
                .borrow_mut()
                .begin_read(self.world.now(), lba, sectors);
            self.record(if ready.hit { "hit" } else { "read" }, &ready.phases, slot);
            self.world.sleep_until(ready.in_buffer_at).await;
            self.over_bus(command.end - command.start).await;
        }
        self.in_file_system(file_system.reading(bytes.end - bytes.start))
            .await;
        self.in_file_system(self.station.faults.slowness(self.world.now() - began))
            .await;
        drop((call, turn, working));
        self.count_block();
        Ok(())
    }
}

/// Waits for the next turn, held until dropped, if there are turns.
async fn next_turn(turns: Option<&Turns>) -> Option<Turn<'_>> {
    match turns {
        Some(turns) => Some(turns.turn().await),
        None => None,
    }
}

/// A write under way, which a file's finish waits for; a write that is dropped is over.
struct Writing<'a>(&'a SimDisk);

impl<'a> Writing<'a> {
    fn new(disk: &'a SimDisk) -> Self {
        disk.writing.set(disk.writing.get() + 1);
        Self(disk)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.set(self.0.writing.get() - 1);
        self.0.written.tell();
    }
}
