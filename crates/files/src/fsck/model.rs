//! The records of all servers as maps, and the end of transactions in them.

use std::collections::{BTreeMap, BTreeSet};

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::view::CELL_BYTES_MAX;

use super::finding::{Finding, LeftTransaction};
use super::{Layout, ServerRecords};
use crate::names::{FilePath, Keepers, Names};
use crate::object::{Attributes, FileShape, ObjectId, ObjectKind};
use crate::placement::{Placement, Rings};
use crate::service::quotas::keeper;
use crate::transaction::{Entry, FileChange, Step, TransactionId};
use crate::volume::cells::{Cell, LEAF_BLOCKS, Leaf};
use crate::volume::moved::MovedPart;
use crate::volume::records::{self, Change, Key};
use crate::volume::{CellRecord, FileRecord};

/// A cell, and whether it has a record of its own beside its leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CellPart {
    pub(super) is_listed: bool,
    pub(super) cell: Cell,
}

/// The part of a file on a server.
#[derive(Debug, Clone, Default)]
pub(super) struct FilePart {
    pub(super) record: Option<FileRecord>,
    pub(super) cells: BTreeMap<u64, CellPart>,
}

/// The records of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerModel {
    pub(super) numbers: Option<u64>,
    pub(super) objects: BTreeMap<(u64, u16), Attributes>,
    pub(super) entries: BTreeMap<(ObjectId, String), Entry>,
    pub(super) files: BTreeMap<ObjectId, FilePart>,
    pub(super) quotas: BTreeMap<u32, u64>,
    pub(super) rings: Option<Rings>,
    pub(super) keepers: Option<Keepers>,
    moved_away: BTreeMap<ObjectId, Placement>,
    prepared: BTreeMap<TransactionId, Vec<Step>>,
    decided: BTreeSet<TransactionId>,
}

/// The records of all servers, after the end of transactions, and what was found on the way.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) servers: Vec<ServerModel>,
    pub(super) rings: Rings,
    pub(super) keepers: Keepers,
    pub(super) transactions: Vec<LeftTransaction>,
    pub(super) unreadable: Vec<Finding>,
}

impl Model {
    /// Reads the records of all servers, and ends what a crash has left, as servers would.
    pub(super) fn read(layout: &Layout, records: &[ServerRecords]) -> Self {
        let mut model = Self {
            servers: Vec::new(),
            rings: first_rings(layout.names),
            keepers: layout.names.keepers(),
            transactions: Vec::new(),
            unreadable: Vec::new(),
        };
        for (server, records) in records.iter().enumerate() {
            let mut read = ServerModel::default();
            for (key, value) in records {
                if let Err(error) = read.take(layout.block_bytes, key, value) {
                    model.unreadable.push(Finding::UnreadableRecord {
                        server,
                        key: key.clone(),
                        cause: error.cause,
                    });
                }
            }
            model.servers.push(read);
        }
        model.end_transactions(layout.names);
        model.rings = model.newest_rings(layout.names);
        for heard in model
            .servers
            .iter()
            .filter_map(|model| model.keepers.as_ref())
        {
            model.keepers.hear(heard);
        }
        model
    }

    /// The rings of the server that has heard last.
    fn newest_rings(&self, names: Names) -> Rings {
        let known = self.servers.iter().map(|model| model.known_rings(names));
        let newest = known.max_by_key(Rings::newest);
        newest.unwrap_or_else(|| first_rings(names))
    }

    /// Ends transactions. Only cells that get another size stay as they are, since their last
    /// blocks are changed, too: that is left to the server.
    fn end_transactions(&mut self, names: Names) {
        let directing = self.servers.iter().enumerate();
        let decided: BTreeSet<TransactionId> = directing
            .flat_map(|(server, model)| {
                let own = move |id: &&TransactionId| id.server == server;
                model.decided.iter().filter(own).copied()
            })
            .collect();
        let rings = self.newest_rings(names);
        let mut remaining = BTreeSet::new();
        for (server, model) in self.servers.iter_mut().enumerate() {
            for (id, steps) in std::mem::take(&mut model.prepared) {
                let is_decided = decided.contains(&id);
                self.transactions.push(LeftTransaction {
                    id,
                    server,
                    is_decided,
                });
                let is_resize = steps.iter().any(is_resize);
                if is_decided && is_resize {
                    remaining.insert(id);
                    model.prepared.insert(id, steps);
                } else if is_decided {
                    model.carry_out((server, &rings), names, steps);
                }
            }
        }
        let parts = self.transactions.iter().map(|left| (left.id, left.server));
        let parts: BTreeSet<_> = parts.collect();
        for (server, model) in self.servers.iter_mut().enumerate() {
            // The director of a transaction that has no part in it, or has done its own.
            let directed = model.decided.iter();
            for id in directed.filter(|id| !parts.contains(&(**id, server))) {
                self.transactions.push(LeftTransaction {
                    id: *id,
                    server,
                    is_decided: true,
                });
            }
            model.decided.retain(|id| remaining.contains(id));
        }
    }

    /// The servers that have a part of the volume, as far as their records are there.
    pub(super) fn members(&self) -> impl Iterator<Item = (usize, &ServerModel)> {
        let members = self.rings.members(&self.keepers).into_iter();
        members.filter_map(|server| Some((server, self.servers.get(server)?)))
    }

    /// The server that keeps the object of a path.
    pub(super) fn keeper_of(&self, names: Names, path: &FilePath) -> usize {
        self.keepers.server(names.slot_of(path))
    }

    /// The quotas of users: as the keeper of each has it, or another server if the keeper has none.
    pub(super) fn quotas(&self, names: Names) -> BTreeMap<u32, u64> {
        let mut quotas = BTreeMap::new();
        let members = self.rings.members(&self.keepers);
        for (server, model) in self.servers.iter().enumerate() {
            for (&user, &blocks) in &model.quotas {
                let is_keeper = keeper(user, names, &members) == server;
                let quota = quotas.entry(user).or_insert(blocks);
                if is_keeper {
                    *quota = blocks;
                }
            }
        }
        quotas
    }

    /// The changes that make records those of the model.
    ///
    /// # Errors
    /// When a record cannot be encoded.
    pub(super) fn changes(&self, records: &[ServerRecords]) -> Result<Vec<Vec<Change>>> {
        let servers = self.servers.iter().zip(records);
        let changes = servers.map(|(model, records)| {
            let mut wanted = model.records()?;
            let mut changes = Vec::new();
            for (key, value) in records {
                match wanted.remove(key) {
                    Some(wanted) if wanted == *value => {}
                    other => changes.push((key.clone(), other)),
                }
            }
            changes.extend(wanted.into_iter().map(|(key, value)| (key, Some(value))));
            Ok(changes)
        });
        changes.collect()
    }
}

fn is_resize(step: &Step) -> bool {
    let Step::Cells { change, .. } = step else {
        return false;
    };
    change.is_resize()
}

/// The rings of a volume which has not been changed.
pub(super) fn first_rings(names: Names) -> Rings {
    Rings::new(names.servers)
}

impl ServerModel {
    /// The rings that the server knows.
    pub(super) fn known_rings(&self, names: Names) -> Rings {
        let known = self.rings.clone();
        known.unwrap_or_else(|| first_rings(names))
    }

    /// Takes in a record.
    fn take(&mut self, block_bytes: u64, key: &[u8], value: &[u8]) -> Result<()> {
        match records::key(key)? {
            Key::Numbers => self.numbers = Some(decode(value)?),
            Key::Object(hash, uniquifier) => {
                self.objects.insert((hash, uniquifier), decode(value)?);
            }
            Key::Entry(xref, name) => {
                self.entries.insert((xref, name), decode(value)?);
            }
            Key::File(id) => {
                let record = decode(value)?;
                self.files.entry(id).or_default().record = Some(record);
            }
            Key::Cell(id, number) => {
                let CellRecord { bytes, kept_bytes } = decode(value)?;
                let part = self.cell(id, number);
                part.is_listed = true;
                (part.cell.bytes, part.cell.kept_bytes) = (bytes, kept_bytes);
            }
            Key::Leaf(id, number, leaf) => {
                if leaf >= CELL_BYTES_MAX / (LEAF_BLOCKS * block_bytes) {
                    let cause = "no cell is so long";
                    return Err(Error::new(Kind::Damaged, "reading records", cause));
                }
                let content: Leaf = decode(value)?;
                self.cell(id, number).cell.add_leaf(leaf, content);
            }
            Key::Prepared(id) => {
                self.prepared.insert(id, decode(value)?);
            }
            Key::Decided(id) => {
                decode::<()>(value)?;
                self.decided.insert(id);
            }
            Key::Quota(user) => {
                self.quotas.insert(user, decode(value)?);
            }
            Key::Rings => self.rings = Some(decode(value)?),
            Key::Keepers => self.keepers = Some(decode(value)?),
            Key::MovedAway(file) => {
                self.moved_away.insert(file, decode(value)?);
            }
        }
        Ok(())
    }

    fn cell(&mut self, id: ObjectId, number: u64) -> &mut CellPart {
        let file = self.files.entry(id).or_default();
        file.cells.entry(number).or_default()
    }

    /// The records that the model stands for.
    fn records(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut all = BTreeMap::new();
        let mut put = |key: Key, value: Result<Vec<u8>>| {
            all.insert(encode(&key)?, value?);
            Ok::<(), Error>(())
        };
        if let Some(numbers) = &self.numbers {
            put(Key::Numbers, encode(numbers))?;
        }
        for (&(hash, uniquifier), object) in &self.objects {
            put(Key::Object(hash, uniquifier), encode(object))?;
        }
        for ((xref, name), entry) in &self.entries {
            put(Key::Entry(*xref, name.clone()), encode(entry))?;
        }
        for (&id, file) in &self.files {
            if let Some(record) = &file.record {
                put(Key::File(id), encode(record))?;
            }
            for (&number, CellPart { is_listed, cell }) in &file.cells {
                let (bytes, kept_bytes) = (cell.bytes, cell.kept_bytes);
                if *is_listed {
                    let record = CellRecord { bytes, kept_bytes };
                    put(Key::Cell(id, number), encode(&record))?;
                }
                for leaf in cell.leaves() {
                    if let Some(content) = cell.leaf(leaf) {
                        put(Key::Leaf(id, number, leaf), encode(content))?;
                    }
                }
            }
        }
        for (&id, steps) in &self.prepared {
            put(Key::Prepared(id), encode(steps))?;
        }
        for &id in &self.decided {
            put(Key::Decided(id), encode(&()))?;
        }
        for (&user, limit) in &self.quotas {
            put(Key::Quota(user), encode(limit))?;
        }
        if let Some(rings) = &self.rings {
            put(Key::Rings, encode(rings))?;
        }
        if let Some(keepers) = &self.keepers {
            put(Key::Keepers, encode(keepers))?;
        }
        for (&file, placement) in &self.moved_away {
            put(Key::MovedAway(file), encode(placement))?;
        }
        Ok(all)
    }

    /// The key and the attributes of the object at a path, where the hash of the path leads.
    pub(super) fn find(&self, names: Names, path: &FilePath) -> Option<((u64, u16), &Attributes)> {
        let hash = names.hash(path);
        let of_hash = self.objects.range((hash, 0)..=(hash, u16::MAX));
        let mut of_hash = of_hash.filter(|(_, object)| object.path == *path);
        of_hash.next().map(|(&key, object)| (key, object))
    }

    /// Puts an object where the hash of its path leads. Gives false if there is no room.
    pub(super) fn put_object(&mut self, names: Names, object: Attributes) -> bool {
        let hash = names.hash(&object.path);
        let there = self.find(names, &object.path).map(|(key, _)| key);
        let mut keys = (0..=u16::MAX).map(|uniquifier| (hash, uniquifier));
        let free = || keys.find(|key| !self.objects.contains_key(key));
        let Some(key) = there.or_else(free) else {
            return false;
        };
        self.objects.insert(key, object);
        true
    }

    /// Carries out the steps of a transaction that was decided.
    fn carry_out(&mut self, (server, rings): (usize, &Rings), names: Names, steps: Vec<Step>) {
        let (gone, others): (Vec<_>, Vec<_>) = steps
            .into_iter()
            .partition(|step| matches!(step, Step::Drop { .. } | Step::Unlink { .. }));
        for step in gone.into_iter().chain(others) {
            match step {
                Step::Add(object, entries) => {
                    let listed = entries.into_iter();
                    self.entries
                        .extend(listed.map(|(name, entry)| ((object.id, name), entry)));
                    self.put_object(names, object);
                }
                Step::Change { path, settings, .. } => {
                    let key = self.find(names, &path).map(|(key, _)| key);
                    if let Some(object) = key.and_then(|key| self.objects.get_mut(&key)) {
                        settings.apply(object);
                    }
                }
                Step::Drop { path, id, .. } => {
                    if let Some((key, _)) = self.find(names, &path) {
                        self.objects.remove(&key);
                        let below = self.entries.range((id, String::new())..);
                        let keys = below.map(|(key, _)| key.clone());
                        let keys: Vec<_> = keys.take_while(|(xref, _)| *xref == id).collect();
                        for key in keys {
                            self.entries.remove(&key);
                        }
                    }
                }
                Step::Link {
                    parent,
                    name,
                    entry,
                } => {
                    if let Some((_, xref)) = self.find(names, &parent) {
                        self.entries.insert((xref.id, name), entry);
                    }
                }
                Step::Unlink { parent, name, .. } => {
                    if let Some((_, xref)) = self.find(names, &parent) {
                        self.entries.remove(&(xref.id, name));
                    }
                }
                Step::Cells {
                    file,
                    owner,
                    shape,
                    change,
                    come,
                    ..
                } => match change {
                    FileChange::Move(placement) => {
                        self.move_cells((server, rings), (file, owner), (shape, placement), come);
                    }
                    _ => self.change_cells((file, owner), change),
                },
                Step::Place {
                    path, placement, ..
                } => {
                    let key = self.find(names, &path).map(|(key, _)| key);
                    let object = key.and_then(|key| self.objects.get_mut(&key));
                    if let Some(ObjectKind::File(shape)) = object.map(|object| &mut object.kind) {
                        shape.placement = placement;
                    }
                }
                Step::Keep { slot, to, .. } => {
                    let keepers = self.keepers.get_or_insert_with(|| names.keepers());
                    keepers.move_to(slot, to);
                }
                Step::Come { is_new: false, .. } => {}
                Step::Come {
                    rings,
                    keepers,
                    quotas,
                    ..
                } => {
                    self.rings = Some(rings);
                    self.keepers = Some(keepers);
                    self.quotas = quotas;
                }
                Step::Ring { ring, servers, .. } => {
                    let known = self.known_rings(names);
                    if known.newest() < ring {
                        self.rings = Some(known.with(servers.into()));
                    }
                }
                Step::Retire { ring, .. } => {
                    let known = self.rings.get_or_insert_with(|| first_rings(names));
                    known.retire_before(ring);
                    self.moved_away.clear();
                }
                Step::Limit { user, blocks, .. } => match blocks {
                    Some(blocks) => drop(self.quotas.insert(user, blocks)),
                    None => drop(self.quotas.remove(&user)),
                },
            }
        }
    }

    /// Lets cells of a file go to other servers, and takes in those that come from others.
    fn move_cells(
        &mut self,
        (server, rings): (usize, &Rings),
        (file, owner): (ObjectId, u32),
        (shape, placement): (FileShape, Placement),
        come: MovedPart,
    ) {
        let moved = FileShape { placement, ..shape };
        let Ok(dealing) = moved.dealing(rings) else {
            return;
        };
        if !dealing.servers().contains(&server) {
            self.files.remove(&file);
            self.moved_away.insert(file, placement);
            return;
        }
        self.moved_away.remove(&file);
        let part = self.files.entry(file).or_default();
        part.cells
            .retain(|&cell, _| dealing.server_of(cell) == server);
        let former = part.record;
        part.record = Some(FileRecord {
            owner: former.map_or(owner, |record| record.owner),
            has_checkpoint: former.is_some_and(|record| record.has_checkpoint)
                || come.has_checkpoint,
            written: former.map_or(0, |record| record.written).max(come.written),
            placement,
        });
        for moved in come.cells {
            let mut cell = Cell::new(moved.kept_bytes);
            cell.bytes = moved.bytes;
            for (number, leaf) in moved.leaves {
                cell.add_leaf(number, leaf);
            }
            let is_listed = true;
            part.cells.insert(moved.cell, CellPart { is_listed, cell });
        }
    }

    fn change_cells(&mut self, (file, owner): (ObjectId, u32), change: FileChange) {
        if change == FileChange::Remove {
            self.files.remove(&file);
            return;
        }
        if change == FileChange::Checkpoint {
            let part = self.files.entry(file).or_default();
            let has_checkpoint = true;
            let new = FileRecord {
                owner,
                has_checkpoint,
                written: 0,
                placement: Placement::default(),
            };
            let former = part.record.unwrap_or(new);
            part.record = Some(FileRecord {
                has_checkpoint,
                ..former
            });
        }
        let Some(part) = self.files.get_mut(&file) else {
            return;
        };
        if let (FileChange::GiveTo(user), Some(record)) = (change, &mut part.record) {
            record.owner = user;
        }
        for CellPart { cell, .. } in part.cells.values_mut() {
            match change {
                FileChange::Checkpoint => drop(cell.checkpoint()),
                FileChange::RollBack => drop(cell.roll_back()),
                FileChange::Resize(_)
                | FileChange::Truncate(_)
                | FileChange::GiveTo(_)
                | FileChange::Move(_)
                | FileChange::Remove => {}
            }
        }
    }
}
