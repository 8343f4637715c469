//! The volume of a server: the cells that it stores, on its disks and in its records.
//!
//! Data lie in blocks of one size on block files, which are laid out once and striped block by
//! block. A block that committed records name is never overwritten: a changed block goes to a new
//! place, and its file's lists are committed when the file is saved. So a crash loses nothing that
//! was saved, and tears nothing.
//!
//! ```text
//! store block     new place p | write p | list in memory names p
//! save file       finish the disks | commit the leaves that changed | former places are free
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `mod` | files and their cells; blocks on disk |
//! | [`records`] | what must be known after a crash, and the commits of it |
//! | `cells` | the block lists of a cell, active and checkpoint |
//! | `moved` | cells that come from other servers |
//! | `space` | free places |

pub(crate) mod cells;
pub(crate) mod moved;
pub mod records;
mod space;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use futures::lock::Mutex;
use penstock_engine::blocks::Home;
use penstock_engine::encoding::decode;
use penstock_engine::trace::Instrument;
use penstock_engine::{BlockFile, Error, Kind, Machine, Result, Who, span};
use penstock_layout::{Block, Region, exact};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::metrics::{DiskKind, Meter};
use crate::object::ObjectId;
use crate::placement::Placement;
use cells::{Cell, Leaf, Stored, Version};
use moved::{Leaves, MovedCell, MovedPart};
use records::{Change, Committer, Key, RecordStore, put, remove};
use space::Space;

/// The name of a block of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockName {
    pub(crate) file: ObjectId,
    pub(crate) version: Version,
    pub(crate) cell: u64,
    pub(crate) block: u64,
}

/// The record of a file on a server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) owner: u32,
    pub(crate) has_checkpoint: bool,
    /// The time of the last write, or 0.
    pub(crate) written: u64,
    /// The last placement of the file in which the server has had a part, or the first that there
    /// is.
    pub(crate) placement: Placement,
}

/// The record of a cell.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CellRecord {
    pub(crate) bytes: u64,
    pub(crate) kept_bytes: Option<u64>,
}

/// The part of a file that a server stores.
struct StoredFile {
    owner: u32,
    /// Whether there was a checkpoint of the file.
    has_checkpoint: bool,
    /// The time of the last write here, or 0.
    written: u64,
    placement: Placement,
    cells: BTreeMap<u64, Cell>,
    /// Whether the record store has the file's record.
    is_recorded: bool,
    /// The cells and the leaves whose records are to be committed.
    changed_cells: BTreeSet<u64>,
    changed_leaves: BTreeSet<(u64, u64)>,
    /// Places taken since the last save, which no committed record can name.
    fresh: FxHashSet<u64>,
    /// Places that are free when the next save has been committed.
    unused: Vec<u64>,
    /// Changed blocks in memory, for each of which a place is reserved; whether the file will have
    /// a place more.
    reserved: FxHashMap<(u64, u64), bool>,
    /// The number of places that the file has.
    places: u64,
    /// The place behind the one taken last.
    next_place: u64,
    /// The error of a store that nobody waited for.
    failed: Option<Error>,
    saving: Rc<Mutex<()>>,
}

impl StoredFile {
    fn new(owner: u32, next_place: u64) -> Self {
        Self {
            owner,
            has_checkpoint: false,
            written: 0,
            placement: Placement::default(),
            cells: BTreeMap::new(),
            is_recorded: false,
            changed_cells: BTreeSet::new(),
            changed_leaves: BTreeSet::new(),
            fresh: FxHashSet::default(),
            unused: Vec::new(),
            reserved: FxHashMap::default(),
            places: 0,
            next_place,
            failed: None,
            saving: Rc::default(),
        }
    }

    /// The cell with this number, which is made if it is not there.
    fn cell(&mut self, number: u64) -> &mut Cell {
        let kept_bytes = self.has_checkpoint.then_some(0);
        let cell = self.cells.entry(number);
        cell.or_insert_with(|| Cell::new(kept_bytes))
    }
}

/// Numbers of a volume's part on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks in use.
    pub used: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// The bytes of a block.
    pub block_bytes: u64,
}

/// What a limited user may still take of a server.
#[derive(Debug, Default)]
struct Allowance {
    /// The blocks that anybody may take for the user.
    blocks: u64,
    /// The blocks that are kept for those who have asked for them.
    promised: u64,
}

/// What a server stores.
pub(crate) struct Volume<'m, M: Machine, R> {
    machine: &'m M,
    server: usize,
    disks: Vec<M::File>,
    block_bytes: u64,
    space: RefCell<Space>,
    files: RefCell<BTreeMap<ObjectId, StoredFile>>,
    /// What each limited user may still take here.
    allowances: RefCell<FxHashMap<u32, Allowance>>,
    pub(crate) committer: Committer<R>,
    meter: Option<Arc<Meter>>,
    disk_requests: std::cell::Cell<usize>,
}

impl<'m, M: Machine, R: RecordStore> Volume<'m, M, R> {
    /// Makes the volume of a server with nothing in it, on these disks of `blocks` blocks each.
    pub(crate) fn new(
        machine: &'m M,
        server: usize,
        (disks, blocks, block_bytes): (Vec<M::File>, u64, u64),
        store: R,
        meter: Option<Arc<Meter>>,
    ) -> Self {
        let places = blocks * disks.len() as u64;
        Self {
            machine,
            server,
            disks,
            block_bytes,
            space: RefCell::new(Space::new(places)),
            files: RefCell::default(),
            allowances: RefCell::default(),
            committer: Committer::new(store),
            meter,
            disk_requests: std::cell::Cell::default(),
        }
    }

    /// The number of disk operations that wait or are under way.
    pub(crate) fn disk_requests(&self) -> usize {
        self.disk_requests.get()
    }

    /// Runs a disk operation that moves this number of bytes, and notes it.
    async fn metered<T>(
        &self,
        (kind, bytes): (DiskKind, u64),
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let span = span!(
            "disk",
            kind = kind.name(),
            server = self.server as u64,
            bytes
        );
        let operation = operation.instrument(span);
        let Some(meter) = &self.meter else {
            return operation.await;
        };
        let since = self.machine.now();
        self.disk_requests.set(self.disk_requests.get() + 1);
        let done = operation.await;
        self.disk_requests.set(self.disk_requests.get() - 1);
        let time = self.machine.now().saturating_sub(since);
        let moved = match done {
            Ok(_) => bytes,
            Err(_) => 0,
        };
        meter.note_disk(kind, moved, time, done.is_err());
        done
    }

    /// The bytes of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The number of blocks that keep the disks busy: what they work at, and one more each.
    pub(crate) fn depth(&self) -> usize {
        let depths = self
            .disks
            .iter()
            .map(|disk| disk.queue_depth() as usize + 1);
        depths.sum()
    }

    /// How full the volume is.
    pub(crate) fn usage(&self) -> Usage {
        let space = self.space.borrow();
        Usage {
            used: space.places() - space.unreserved(),
            blocks: space.places(),
            block_bytes: self.block_bytes,
        }
    }

    /// The blocks that a user's files have here.
    pub(crate) fn blocks_of(&self, user: u32) -> u64 {
        let files = self.files.borrow();
        let own = files.values().filter(|file| file.owner == user);
        own.map(|file| {
            let more = file.reserved.values().filter(|is_more| **is_more);
            file.places + more.count() as u64
        })
        .sum()
    }

    /// Limits the blocks of a user, or lets the user have any number. A limited user may take none
    /// before one is allowed.
    pub(crate) fn limit(&self, user: u32, is_limited: bool) {
        let mut allowances = self.allowances.borrow_mut();
        match is_limited {
            true => allowances.entry(user).or_default().blocks = 0,
            false => drop(allowances.remove(&user)),
        }
    }

    /// Gives up what a user may still take here, but for what is promised. Gives the number of
    /// blocks that the user has or was promised.
    pub(crate) fn give_back(&self, user: u32) -> u64 {
        let mut allowances = self.allowances.borrow_mut();
        let promised = allowances.get_mut(&user).map_or(0, |allowance| {
            allowance.blocks = 0;
            allowance.promised
        });
        self.blocks_of(user) + promised
    }

    /// Lets a limited user take blocks. One of them is promised to a request that waits.
    pub(crate) fn allow(&self, user: u32, blocks: u64) {
        if let Some(allowance) = self.allowances.borrow_mut().get_mut(&user)
            && let Some(more) = blocks.checked_sub(1)
        {
            allowance.blocks += more;
            allowance.promised += 1;
        }
    }

    /// Ends a promise of a block, if there is one, and gives whether there was.
    pub(crate) fn end_promise(&self, user: u32) -> bool {
        let mut allowances = self.allowances.borrow_mut();
        let promised = allowances
            .get_mut(&user)
            .map(|allowance| &mut allowance.promised);
        match promised {
            Some(promised) if *promised > 0 => {
                *promised -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes in a record of a cell, when the server starts. Gives whether the volume has such
    /// records.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the record makes no sense.
    pub(crate) fn take_record(&self, key: &Key, value: &[u8]) -> Result<bool> {
        let (Key::File(id) | Key::Cell(id, _) | Key::Leaf(id, ..)) = key else {
            return Ok(false);
        };
        let mut files = self.files.borrow_mut();
        let file = files.entry(*id);
        let file = file.or_insert_with(|| StoredFile::new(0, 0));
        match key {
            Key::File(_) => {
                let record: FileRecord = decode(value)?;
                (file.owner, file.is_recorded) = (record.owner, true);
                file.has_checkpoint = record.has_checkpoint;
                (file.written, file.placement) = (record.written, record.placement);
            }
            Key::Cell(_, cell) => {
                let record: CellRecord = decode(value)?;
                let cell = file.cells.entry(*cell).or_default();
                (cell.bytes, cell.kept_bytes) = (record.bytes, record.kept_bytes);
            }
            Key::Leaf(_, cell, number) => {
                let leaf: Leaf = decode(value)?;
                let cell = file.cells.entry(*cell).or_default();
                cell.add_leaf(*number, leaf);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a block is on a disk.
    pub(crate) fn is_stored(&self, name: &BlockName) -> bool {
        self.stored(name).is_some()
    }

    /// The place of a block on its disk, and the disk: the order in which blocks lie. Blocks that
    /// are nowhere come first.
    pub(crate) fn place_of(&self, name: &BlockName) -> Option<(u64, u64)> {
        let disks = self.disks.len() as u64;
        let stored = self.stored(name)?;
        Some((stored.place / disks, stored.place % disks))
    }

    /// The place of a block on the disks.
    fn stored(&self, name: &BlockName) -> Option<Stored> {
        let files = self.files.borrow();
        let cell = files.get(&name.file)?.cells.get(&name.cell)?;
        cell.stored(name.block, name.version)
    }

    /// Marks the places of all cells, after all records have been taken in.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when two blocks have one place, or one a place that is not there.
    pub(crate) fn mark_places(&self) -> Result<()> {
        let mut space = self.space.borrow_mut();
        for (id, file) in self.files.borrow_mut().iter_mut() {
            for (number, cell) in &file.cells {
                for place in cell.places() {
                    if !space.mark(place) {
                        let cause = format!(
                            "cell {number} of object {} has a block at place {place}, which is not \
                             there or another block's",
                            id.0
                        );
                        return Err(Error::new(Kind::Damaged, "reading block lists", cause));
                    }
                    file.places += 1;
                    file.next_place = file.next_place.max(place + 1);
                }
            }
        }
        Ok(())
    }

    /// The identities of the files that have anything here.
    pub(crate) fn files(&self) -> Vec<ObjectId> {
        self.files.borrow().keys().copied().collect()
    }

    /// The bytes up to the end of a cell; nothing for a checkpoint that there is not.
    pub(crate) fn cell_bytes(&self, file: ObjectId, cell: u64, version: Version) -> Option<u64> {
        let files = self.files.borrow();
        let cell = files.get(&file).and_then(|file| file.cells.get(&cell));
        match cell {
            Some(cell) => cell.bytes_of(version),
            None => (version == Version::Active).then_some(0),
        }
    }

    /// The bytes of all cells of a file here.
    pub(crate) fn bytes_of_cells(&self, file: ObjectId, version: Version) -> Vec<(u64, u64)> {
        let files = self.files.borrow();
        let cells = files.get(&file).into_iter().flat_map(|file| &file.cells);
        let ends = cells.map(|(&number, cell)| (number, cell.bytes_of(version).unwrap_or(0)));
        ends.collect()
    }

    /// The time of the last write to a file here, or 0.
    pub(crate) fn written(&self, file: ObjectId) -> u64 {
        let files = self.files.borrow();
        files.get(&file).map_or(0, |file| file.written)
    }

    /// The last placement of a file in which this server has had a part.
    pub(crate) fn placement(&self, file: ObjectId) -> Placement {
        let files = self.files.borrow();
        files
            .get(&file)
            .map_or(Placement::default(), |file| file.placement)
    }

    /// The part of a file here, without the blocks of its cells.
    pub(crate) fn part(&self, file: ObjectId, cells: &[u64]) -> MovedPart {
        let files = self.files.borrow();
        let Some(file) = files.get(&file) else {
            return MovedPart::default();
        };
        let moved = cells.iter().filter_map(|&number| {
            let cell = file.cells.get(&number)?;
            Some(MovedCell {
                cell: number,
                bytes: cell.bytes,
                kept_bytes: cell.kept_bytes,
                leaves: Vec::new(),
            })
        });
        MovedPart {
            has_checkpoint: file.has_checkpoint,
            written: file.written,
            cells: moved.collect(),
        }
    }

    /// At most `most` leaves of a cell, from one on.
    pub(crate) fn leaves(&self, file: ObjectId, cell: u64, from: u64, most: usize) -> Leaves {
        let files = self.files.borrow();
        let cell = files.get(&file).and_then(|file| file.cells.get(&cell));
        let leaves = cell.into_iter().flat_map(|cell| {
            let numbers = cell.leaves().filter(|&number| number >= from);
            numbers.filter_map(|number| Some((number, cell.leaf(number)?.clone())))
        });
        leaves.take(most).collect()
    }

    /// Stores a block that is no cell's yet.
    ///
    /// # Errors
    /// [`Kind::Full`]; those of disks.
    pub(crate) async fn store_apart(&self, buffer: &M::Buffer, near: u64) -> Result<Stored> {
        let place = {
            let mut space = self.space.borrow_mut();
            if !space.reserve() {
                let cause = format!("all {} blocks are in use", space.places());
                return Err(Error::new(Kind::Full, "taking a block over", cause));
            }
            space.take(near)
        };
        let sum = self.machine.crc32c(buffer, 0..self.block_bytes);
        let (disk, block) = self.on_disk(place);
        let about = (DiskKind::Write, block.bytes);
        let written = self.metered(about, disk.write(&block, buffer, 0)).await;
        if written.is_err() {
            self.space.borrow_mut().free(place);
        }
        written.map(|()| Stored { place, sum })
    }

    /// Gives up blocks that are no cell's.
    pub(crate) fn free_apart(&self, places: impl IntoIterator<Item = u64>) {
        self.free(places.into_iter().collect());
    }

    /// Marks the places of blocks that are no cell's yet, and have been prepared before a crash.
    ///
    /// # Errors
    /// As [`Volume::mark_places`].
    pub(crate) fn mark_apart(&self, part: &MovedPart) -> Result<()> {
        let mut space = self.space.borrow_mut();
        match part.places().all(|place| space.mark(place)) {
            true => Ok(()),
            false => {
                let cause = "a block that is to be taken over has another's place";
                Err(Error::new(Kind::Damaged, "reading block lists", cause))
            }
        }
    }

    /// Waits until all that was written to the disks is there.
    ///
    /// # Errors
    /// Those of disks.
    pub(crate) async fn finish_disks(&self) -> Result<()> {
        self.finish().await
    }

    /// Fails if a block of the file could not be stored.
    pub(crate) fn check(&self, file: ObjectId) -> Result<()> {
        let files = self.files.borrow();
        let failed = files.get(&file).and_then(|file| file.failed.clone());
        failed.map_or(Ok(()), Err)
    }

    /// Notes that a cell was written up to byte `end`, which it reaches to at least.
    pub(crate) fn grow(&self, (file, owner): (ObjectId, u32), (cell, end): (u64, u64), now: u64) {
        let mut files = self.files.borrow_mut();
        let file = self.entry(&mut files, (file, owner));
        (file.written, file.is_recorded) = (now, false);
        let bytes = &mut file.cell(cell).bytes;
        if end > *bytes {
            *bytes = end;
            file.changed_cells.insert(cell);
        }
    }

    /// Where the first block of a new file is looked for: files begin far from one another, so that
    /// each can lie in order.
    fn first_place(&self, file: ObjectId) -> u64 {
        let places = self.space.borrow().places();
        file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % places.max(1)
    }

    /// The owner of a file; `owner` if it has nothing here.
    pub(crate) fn owner(&self, (file, owner): (ObjectId, u32)) -> u32 {
        let files = self.files.borrow();
        files.get(&file).map_or(owner, |file| file.owner)
    }

    /// Reserves a place for a block that is about to be changed in memory, unless it has one
    /// reserved. Gives false, and reserves none, if the owner may take no more here, and this block
    /// was not promised.
    ///
    /// # Errors
    /// [`Kind::Full`] when there is no space.
    pub(crate) fn reserve(
        &self,
        (file, owner): (ObjectId, u32),
        name: &BlockName,
        is_promised: bool,
    ) -> Result<bool> {
        let BlockName { cell, block, .. } = *name;
        let is_more = {
            let files = self.files.borrow();
            let file = files.get(&file);
            if file.is_some_and(|file| file.reserved.contains_key(&(cell, block))) {
                return Ok(true);
            }
            let cell = file.and_then(|file| file.cells.get(&cell));
            let stored = cell.and_then(|cell| cell.stored(block, Version::Active));
            let kept = cell
                .filter(|cell| cell.kept_bytes.is_some())
                .and_then(|cell| cell.stored(block, Version::Checkpoint));
            stored.is_none() || stored == kept
        };
        let user = self.owner((file, owner));
        let mut allowances = self.allowances.borrow_mut();
        if is_more
            && !is_promised
            && let Some(allowance) = allowances.get_mut(&user)
        {
            match allowance.blocks.checked_sub(1) {
                Some(left) => allowance.blocks = left,
                None => return Ok(false),
            }
        }
        if !self.space.borrow_mut().reserve() {
            let doing = format!("writing block {block} of cell {cell}");
            let cause = format!("all {} blocks are in use", self.space.borrow().places());
            return Err(Error::new(Kind::Full, doing, cause));
        }
        let mut files = self.files.borrow_mut();
        let file = self.entry(&mut files, (file, owner));
        file.reserved.insert((cell, block), is_more);
        Ok(true)
    }

    /// Whether a save of a file would free places.
    pub(crate) fn has_unused(&self, file: ObjectId) -> bool {
        let files = self.files.borrow();
        files.get(&file).is_some_and(|file| !file.unused.is_empty())
    }

    /// The number of free places that nobody has reserved.
    pub(crate) fn unreserved(&self) -> u64 {
        self.space.borrow().unreserved()
    }

    /// Gives back what was reserved for changed blocks of a file that have been dropped.
    pub(crate) fn unreserve(&self, id: ObjectId, is_dropped: impl Fn(u64, u64) -> bool) {
        if let Some(file) = self.files.borrow_mut().get_mut(&id) {
            let mut space = self.space.borrow_mut();
            file.reserved.retain(|&(cell, block), _| {
                let is_dropped = is_dropped(cell, block);
                if is_dropped {
                    space.unreserve();
                }
                !is_dropped
            });
        }
    }

    /// Takes the place that was reserved for a block.
    fn take(&self, name: &BlockName) -> Option<u64> {
        let mut files = self.files.borrow_mut();
        let file = files.get_mut(&name.file)?;
        file.reserved.remove(&(name.cell, name.block))?;
        let place = self.space.borrow_mut().take(file.next_place);
        file.next_place = place + 1;
        file.fresh.insert(place);
        file.places += 1;
        Some(place)
    }

    /// Notes whether a block is stored at the place that was taken for it.
    fn put(&self, name: &BlockName, stored: Stored, is_stored: bool) {
        let mut files = self.files.borrow_mut();
        let place = stored.place;
        let Some(file) = files.get_mut(&name.file) else {
            self.space.borrow_mut().free(place); // the file has been removed meanwhile
            return;
        };
        let unused = match is_stored {
            true => {
                let leaf = cells::split(name.block).0;
                file.changed_leaves.insert((name.cell, leaf));
                file.cell(name.cell).replace(name.block, Some(stored))
            }
            false => Some(place),
        };
        self.give_up(file, unused);
    }

    /// Gives up places of a file: at once if no committed record can name them.
    fn give_up(&self, file: &mut StoredFile, unused: impl IntoIterator<Item = u64>) {
        for place in unused {
            file.places -= 1;
            match file.fresh.remove(&place) {
                true => self.space.borrow_mut().free(place),
                false => file.unused.push(place),
            }
        }
    }

    /// The block of a disk at a place.
    fn on_disk(&self, place: u64) -> (&M::File, Block) {
        let disks = self.disks.len() as u64;
        let (disk, index) = (place % disks, place / disks);
        let (offset, bytes) = (index * self.block_bytes, self.block_bytes);
        let block = Block {
            object: 0,
            index,
            offset,
            bytes,
            region: Region::new(&[offset], &[bytes]),
            extents: vec![bytes],
            strides: vec![1],
        };
        (&self.disks[exact::<usize>(disk)], block)
    }

    /// Saves a file: all that was stored of it is on stable storage when this ends.
    ///
    /// # Errors
    /// Those of disks and of the record store, and of a block that could not be stored.
    pub(crate) async fn save(&self, id: ObjectId) -> Result<()> {
        let saving = self.files.borrow().get(&id).map(|file| file.saving.clone());
        let Some(saving) = saving else {
            return Ok(());
        };
        let _alone = saving.lock().await;
        self.check(id)?;
        let (changes, unused) = self.unsaved(id)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.finish().await?;
        self.committer.commit(changes).await?;
        self.free(unused);
        Ok(())
    }

    /// Ends the writes on all disks.
    async fn finish(&self) -> Result<()> {
        for disk in &self.disks {
            self.metered((DiskKind::Sync, 0), disk.finish()).await?;
        }
        Ok(())
    }

    /// Frees places that no record names any more.
    fn free(&self, unused: Vec<u64>) {
        let mut space = self.space.borrow_mut();
        unused.into_iter().for_each(|place| space.free(place));
    }

    /// The changes of a file's records since the last save, which count as saved from now on, and
    /// the places that they free.
    fn unsaved(&self, id: ObjectId) -> Result<(Vec<Change>, Vec<u64>)> {
        let mut files = self.files.borrow_mut();
        let Some(file) = files.get_mut(&id) else {
            return Ok(Default::default());
        };
        let mut changes = Vec::new();
        let (cells, leaves) = (
            std::mem::take(&mut file.changed_cells),
            std::mem::take(&mut file.changed_leaves),
        );
        let has_more = !(cells.is_empty() && leaves.is_empty())
            || file.has_checkpoint
            || file.placement != Placement::default();
        if !file.is_recorded && has_more {
            let record = FileRecord {
                owner: file.owner,
                has_checkpoint: file.has_checkpoint,
                written: file.written,
                placement: file.placement,
            };
            changes.push(put(&Key::File(id), &record)?);
            file.is_recorded = true;
        }
        for number in cells {
            let Some(cell) = file.cells.get(&number) else {
                changes.push(remove(&Key::Cell(id, number))?);
                continue;
            };
            let record = CellRecord {
                bytes: cell.bytes,
                kept_bytes: cell.kept_bytes,
            };
            changes.push(put(&Key::Cell(id, number), &record)?);
        }
        for (cell, number) in leaves {
            let key = Key::Leaf(id, cell, number);
            let cell = file.cells.get(&cell);
            changes.push(match cell.and_then(|cell| cell.leaf(number)) {
                Some(leaf) => put(&key, leaf)?,
                None => remove(&key)?,
            });
        }
        file.fresh.clear();
        Ok((changes, std::mem::take(&mut file.unused)))
    }

    /// Changes the cells of a file on this server, and commits that together with `others`. Nobody
    /// else uses the file meanwhile, and no block of it is changed in memory.
    ///
    /// # Errors
    /// As [`Volume::save`].
    pub(crate) async fn apply(
        &self,
        file: (ObjectId, u32),
        change: &CellChange,
        others: Vec<Change>,
    ) -> Result<()> {
        let (id, _) = file;
        let saving = self.files.borrow().get(&id).map(|file| file.saving.clone());
        let saving = saving.unwrap_or_default();
        let _alone = saving.lock().await;
        let (mut changes, unused) = match change {
            CellChange::Remove | CellChange::Move { stays: false, .. } => self.forget(id)?,
            _ => {
                self.change_cells(file, change);
                self.unsaved(id)?
            }
        };
        changes.extend(others);
        self.finish().await?;
        self.committer.commit(changes).await?;
        self.free(unused);
        Ok(())
    }

    fn change_cells(&self, (id, owner): (ObjectId, u32), change: &CellChange) {
        let mut files = self.files.borrow_mut();
        let file = self.entry(&mut files, (id, owner));
        match change {
            CellChange::Resize(ends) => {
                for &cell in ends.keys() {
                    file.cell(cell);
                }
            }
            CellChange::Checkpoint => {
                file.has_checkpoint = true;
                file.is_recorded = false;
            }
            CellChange::GiveTo(user) => {
                file.owner = *user;
                file.is_recorded = false;
            }
            CellChange::Move {
                placement,
                gone,
                come,
                stays: _,
            } => {
                file.placement = *placement;
                file.is_recorded = false;
                return self.move_cells(file, gone, come);
            }
            CellChange::RollBack | CellChange::Remove => {}
        }
        let mut unused = Vec::new();
        for (&number, cell) in &mut file.cells {
            let (leaves, gone) = match change {
                CellChange::Checkpoint => cell.checkpoint(),
                CellChange::RollBack => cell.roll_back(),
                CellChange::Resize(ends) => match ends.get(&number) {
                    Some(&bytes) => cell.resize(bytes, self.block_bytes),
                    None => continue,
                },
                CellChange::GiveTo(_) | CellChange::Remove | CellChange::Move { .. } => {
                    Default::default()
                }
            };
            file.changed_cells.insert(number);
            let leaves = leaves.into_iter().map(|leaf| (number, leaf));
            file.changed_leaves.extend(leaves);
            unused.extend(gone);
        }
        self.give_up(file, unused);
    }

    /// Lets cells of a file go to other servers, and takes in those that come from others.
    fn move_cells(&self, file: &mut StoredFile, gone: &[u64], come: &MovedPart) {
        for &number in gone {
            let Some(cell) = file.cells.remove(&number) else {
                continue;
            };
            file.changed_cells.insert(number);
            let leaves = cell.leaves().map(|leaf| (number, leaf));
            file.changed_leaves.extend(leaves);
            let places: Vec<u64> = cell.places().collect();
            self.give_up(file, places);
        }
        file.has_checkpoint |= come.has_checkpoint;
        file.written = file.written.max(come.written);
        for moved in &come.cells {
            let mut cell = Cell::new(moved.kept_bytes);
            cell.bytes = moved.bytes;
            for (number, leaf) in &moved.leaves {
                cell.add_leaf(*number, leaf.clone());
                file.changed_leaves.insert((moved.cell, *number));
            }
            file.places += cell.places().count() as u64;
            file.changed_cells.insert(moved.cell);
            file.cells.insert(moved.cell, cell);
        }
    }

    /// Forgets a file. Gives the changes of records, and the places that are free after them.
    fn forget(&self, id: ObjectId) -> Result<(Vec<Change>, Vec<u64>)> {
        let Some(file) = self.files.borrow_mut().remove(&id) else {
            return Ok(Default::default());
        };
        let mut space = self.space.borrow_mut();
        (0..file.reserved.len()).for_each(|_| space.unreserve());
        let mut changes = vec![remove(&Key::File(id))?];
        for (&number, cell) in &file.cells {
            changes.push(remove(&Key::Cell(id, number))?);
            for leaf in cell.leaves() {
                changes.push(remove(&Key::Leaf(id, number, leaf))?);
            }
        }
        let places = file.cells.values().flat_map(Cell::places);
        Ok((changes, places.chain(file.unused).collect()))
    }

    fn entry<'a>(
        &self,
        files: &'a mut BTreeMap<ObjectId, StoredFile>,
        (id, owner): (ObjectId, u32),
    ) -> &'a mut StoredFile {
        let file = files.entry(id);
        file.or_insert_with(|| StoredFile::new(owner, self.first_place(id)))
    }
}

/// A change of all cells of a file on a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CellChange {
    /// The active version becomes the checkpoint.
    Checkpoint,
    /// The checkpoint becomes the active version.
    RollBack,
    /// These cells get these numbers of bytes.
    Resize(BTreeMap<u64, u64>),
    /// The file is another user's.
    GiveTo(u32),
    /// Cells go to other servers, and others come from there.
    Move {
        placement: Placement,
        gone: Vec<u64>,
        come: MovedPart,
        /// Whether any of the file's cells are here then.
        stays: bool,
    },
    /// The file goes.
    Remove,
}

/// A block of a cell, as the blocks in memory know it.
pub(crate) struct CellBlock<'m, M: Machine, R> {
    pub(crate) volume: Rc<Volume<'m, M, R>>,
    pub(crate) name: BlockName,
}

impl<M: Machine, R: RecordStore> CellBlock<'_, M, R> {
    fn about(&self, error: Error) -> Error {
        error.by(Who::Server(self.volume.server))
    }

    fn doing(&self, verb: &str) -> String {
        let BlockName {
            file, cell, block, ..
        } = self.name;
        format!("{verb} block {block} of cell {cell} of object {}", file.0)
    }
}

impl<M: Machine, R: RecordStore> Home<M> for CellBlock<'_, M, R> {
    fn bytes(&self) -> u64 {
        self.volume.block_bytes
    }

    async fn load(&self, buffer: &M::Buffer) -> Result<()> {
        let Self { volume, name } = self;
        let Some(Stored { place, sum }) = volume.stored(name) else {
            volume.machine.clear(buffer, volume.block_bytes, &[]);
            return Ok(());
        };
        let (disk, block) = volume.on_disk(place);
        let about = (DiskKind::Read, block.bytes);
        let read = volume.metered(about, disk.read(&block, buffer, 0)).await;
        read.map_err(|error| self.about(error))?;
        let found = volume.machine.crc32c(buffer, 0..volume.block_bytes);
        match found == sum {
            true => Ok(()),
            false => {
                let cause = format!(
                    "the checksum of place {place} is {found:08x}, and should be {sum:08x}: the \
                     block is damaged, and is not served"
                );
                let error = Error::new(Kind::Damaged, self.doing("reading"), cause);
                Err(self.about(error))
            }
        }
    }

    async fn store(&self, buffer: &M::Buffer) -> Result<()> {
        let Self { volume, name } = self;
        let sum = volume.machine.crc32c(buffer, 0..volume.block_bytes);
        let Some(place) = volume.take(name) else {
            return Ok(()); // the file has been removed meanwhile
        };
        let (disk, block) = volume.on_disk(place);
        let about = (DiskKind::Write, block.bytes);
        let written = volume.metered(about, disk.write(&block, buffer, 0)).await;
        volume.put(name, Stored { place, sum }, written.is_ok());
        written.map_err(|error| self.about(error))
    }

    fn fail(&self, error: Error) {
        if let Some(file) = self.volume.files.borrow_mut().get_mut(&self.name.file) {
            file.failed.get_or_insert(error);
        }
    }
}
