//! The changes that make the records of a volume fit together.

use std::collections::{BTreeMap, BTreeSet};

use penstock_engine::Result;
use penstock_layout::exact;
use penstock_layout::view::CELL_BYTES_MAX;
use rustc_hash::FxHashSet;

use super::check::examine;
use super::finding::Finding;
use super::model::{CellPart, FilePart, Model, first_rings};
use super::names::Naming;
use super::{Layout, ServerRecords};
use crate::names::FilePath;
use crate::object::{Attributes, CELLS_MAX, FileShape, ObjectId, ObjectKind};
use crate::placement::Placement;
use crate::volume::FileRecord;
use crate::volume::cells::{Cell, Version};
use crate::volume::records::Change;

/// The copy of a block to a place that is free, which must be safe before records change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// The server.
    pub server: usize,
    /// The place that another block has, too.
    pub from: u64,
    /// The new place.
    pub to: u64,
}

/// The changes that mend a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mending {
    /// The copies that come first.
    pub copies: Vec<BlockCopy>,
    /// The changes of records of each server.
    pub changes: Vec<Vec<Change>>,
    /// What a check will still find.
    pub left: Vec<Finding>,
}

/// Finds the changes after which the records of all servers fit together. New objects get the time
/// `now`, in nanoseconds since 1970.
///
/// # Errors
/// When a record cannot be encoded.
pub fn mend(layout: &Layout, records: &[ServerRecords], now: u64) -> Result<Mending> {
    let mut model = Model::read(layout, records);
    model.unreadable.clear(); // these records go
    let mut copies = Vec::new();
    if !model.is_new() {
        for (server, number) in model.used_numbers() {
            if let Some(model) = model.servers.get_mut(server) {
                model.numbers = Some(model.numbers.unwrap_or(1).max(number + 1));
            }
        }
        let quotas = model.quotas(layout.names);
        let is_changed =
            model.rings != first_rings(layout.names) || model.keepers != layout.names.keepers();
        for server in model.rings.members(&model.keepers) {
            let Some(one) = model.servers.get_mut(server) else {
                continue;
            };
            one.quotas.clone_from(&quotas);
            if is_changed {
                one.rings = Some(model.rings.clone());
                one.keepers = Some(model.keepers.clone());
            }
        }
        let mut naming = Naming::take(layout, &mut model, now);
        mend_cells(layout, &mut model, &mut naming);
        naming.put(&mut model);
        copies = mend_places(layout, &mut model);
    }
    Ok(Mending {
        copies,
        changes: model.changes(records)?,
        left: examine(layout, &model).findings,
    })
}

/// Makes cells fit their files, and finds files for cells that have none.
fn mend_cells(layout: &Layout, model: &mut Model, naming: &mut Naming) {
    let servers = model.servers.iter();
    let ids: BTreeSet<ObjectId> = servers
        .flat_map(|server| server.files.keys().copied())
        .collect();
    let with_checkpoints: Vec<ObjectId> = naming
        .objects
        .iter()
        .filter(|object| object.checkpoints > 0 && object.shape().is_ok())
        .map(|object| object.id)
        .collect();
    for id in ids.into_iter().chain(with_checkpoints) {
        let parts = model.servers.iter_mut();
        let parts: Vec<FilePart> = parts
            .map(|server| server.files.remove(&id).unwrap_or_default())
            .collect();
        CellMender {
            layout,
            model,
            naming,
        }
        .mend(id, parts);
    }
}

/// What mending the cells of a file needs.
struct CellMender<'a, 'l> {
    layout: &'a Layout,
    model: &'a mut Model,
    naming: &'a mut Naming<'l>,
}

fn has_data(cell: &Cell) -> bool {
    let has_blocks = |version| cell.blocks(version).next().is_some();
    cell.bytes > 0
        || cell.kept_bytes.is_some_and(|bytes| bytes > 0)
        || has_blocks(Version::Active)
        || has_blocks(Version::Checkpoint)
}

fn has_checkpoint(parts: &[FilePart]) -> bool {
    parts.iter().any(|part| {
        let mut cells = part.cells.values();
        part.record.is_some_and(|record| record.has_checkpoint)
            || cells.any(|part| part.cell.kept_bytes.is_some() || part.cell.has_split_leaves())
    })
}

impl CellMender<'_, '_> {
    fn mend(mut self, id: ObjectId, mut parts: Vec<FilePart>) {
        let kept = has_checkpoint(&parts);
        let recorded = parts.iter().find_map(|part| part.record);
        let owner = recorded.map_or(self.layout.owner, |record| record.owner);
        let object = self
            .naming
            .objects
            .iter_mut()
            .find(|object| object.id == id);
        let known = match object {
            Some(object) => match object.kind {
                ObjectKind::File(shape) => {
                    object.checkpoints = object.checkpoints.max(u64::from(kept));
                    Some((shape, object.owner, object.checkpoints > 0))
                }
                ObjectKind::Xref | ObjectKind::Symlink(_) => None,
            },
            None if id == ObjectId::ROOT => None,
            None => self.describe(&parts).map(|shape| {
                let lost = self.lost_file(id, shape, owner, kept);
                self.naming.lose(lost);
                (shape, owner, kept)
            }),
        };
        let rings = self.model.rings.clone();
        let dealing =
            known.and_then(|(shape, ..)| Some((shape.cells, shape.dealing(&rings).ok()?)));
        for (server, part) in parts.iter_mut().enumerate() {
            let is_stray = |number: &u64| match dealing {
                Some((cells, dealing)) => *number >= cells || dealing.server_of(*number) != server,
                None => true,
            };
            let cells = std::mem::take(&mut part.cells).into_iter();
            let (stray, own): (Vec<_>, Vec<_>) = cells.partition(|(number, _)| is_stray(number));
            let stray = stray.into_iter().map(|(_, part)| part.cell);
            let stray: Vec<Cell> = stray.filter(has_data).collect();
            // A file has a limited number of cells.
            let most = (CELLS_MAX - 1) / self.model.servers.len() as u64 + 1;
            for some in stray.chunks(exact::<usize>(most)) {
                self.set_aside(server, some, (owner, kept));
            }
            if let Some((shape, owner, kept)) = known {
                part.cells = own.into_iter().collect();
                self.keep(id, server, part, (shape, owner, kept));
            }
        }
    }

    /// Puts the part of a file back to its server.
    fn keep(
        &mut self,
        id: ObjectId,
        server: usize,
        part: &mut FilePart,
        (shape, owner, has_checkpoint): (FileShape, u32, bool),
    ) {
        let dealing = shape.dealing(&self.model.rings);
        let is_here = dealing.is_ok_and(|dealing| dealing.servers().contains(&server));
        let is_needed = has_checkpoint || part.record.is_some() || !part.cells.is_empty();
        if !is_here || !is_needed {
            return;
        }
        part.record = Some(FileRecord {
            owner,
            has_checkpoint,
            written: part.record.map_or(0, |record| record.written),
            placement: part
                .record
                .map_or(shape.placement, |record| record.placement),
        });
        for cell in part.cells.values_mut() {
            cell.is_listed = true;
            self.fit(&mut cell.cell, has_checkpoint);
        }
        self.model.servers[server]
            .files
            .insert(id, std::mem::take(part));
    }

    /// Makes the ends of a cell fit its blocks.
    fn fit(&self, cell: &mut Cell, has_checkpoint: bool) {
        let block_bytes = self.layout.block_bytes;
        let end_of = |version, bytes: u64| {
            let last = cell.blocks(version).last();
            let end = last.map_or(0, |(block, _)| (block + 1) * block_bytes);
            match bytes > CELL_BYTES_MAX || end >= bytes.saturating_add(block_bytes) {
                true => end,
                false => bytes,
            }
        };
        let bytes = end_of(Version::Active, cell.bytes);
        let kept_bytes = cell.kept_bytes.unwrap_or(match cell.has_split_leaves() {
            true => 0,
            false => bytes,
        });
        let kept_bytes = end_of(Version::Checkpoint, kept_bytes);
        cell.bytes = bytes;
        cell.kept_bytes = has_checkpoint.then_some(kept_bytes);
    }

    /// Finds the structure of a file whose object is gone: that which most of its cells agree
    /// with. Gives nothing if no cell has data.
    fn describe(&self, parts: &[FilePart]) -> Option<FileShape> {
        let cells = parts.iter().enumerate().flat_map(|(server, part)| {
            let cells = part.cells.iter();
            let cells = cells.filter(|(number, part)| **number < CELLS_MAX && has_data(&part.cell));
            cells.map(move |(&number, _)| (server, number))
        });
        let cells: Vec<(usize, u64)> = cells.collect();
        let rings = &self.model.rings;
        let base_of = |ring: u32, server: usize, number: u64| {
            let ring = rings.servers(ring).ok()?;
            let place = ring.iter().position(|&other| other == server)?;
            let turn = exact::<usize>(number % ring.len() as u64);
            Some(ring[(place + ring.len() - turn) % ring.len()])
        };
        let mut votes: BTreeMap<(u32, usize), usize> = BTreeMap::new();
        for ring in 0..=rings.newest() {
            for &(server, number) in &cells {
                let base = base_of(ring, server, number);
                if let Some(base) = base {
                    *votes.entry((ring, base)).or_default() += 1;
                }
            }
        }
        let ((ring, base), _) = votes.into_iter().max_by_key(|(_, votes)| *votes)?;
        let of_file = cells
            .iter()
            .filter(|(server, number)| base_of(ring, *server, *number) == Some(base));
        let last = of_file.map(|(_, number)| *number).max()?;
        Some(FileShape {
            cells: last + 1,
            bsu_bytes: self.layout.block_bytes,
            base,
            placement: Placement::settled(ring),
        })
    }

    fn lost_file(
        &self,
        id: ObjectId,
        shape: FileShape,
        owner: u32,
        has_checkpoint: bool,
    ) -> Attributes {
        let path = FilePath::root(); // until it gets one
        let settings = (owner, 0, 0o600);
        Attributes {
            checkpoints: u64::from(has_checkpoint),
            ..Attributes::new(id, ObjectKind::File(shape), path, settings, self.naming.now)
        }
    }

    /// Makes a file of cells that are no file's, all on one server: they become every cell whose
    /// turn it is there.
    fn set_aside(&mut self, server: usize, cells: &[Cell], (owner, has_checkpoint): (u32, bool)) {
        let rings = self.model.rings.clone();
        let of_server = |ring: &u32| {
            let servers = rings.servers(*ring);
            servers.is_ok_and(|servers| servers.contains(&server))
        };
        let ring = (0..=rings.newest()).rev().find(of_server).unwrap_or(0);
        let servers = rings.servers(ring).map_or(1, |servers| servers.len()) as u64;
        let shape = FileShape {
            cells: (cells.len() as u64 - 1) * servers + 1,
            bsu_bytes: self.layout.block_bytes,
            base: server,
            placement: Placement::settled(ring),
        };
        let id = self.naming.new_id(self.model, server);
        let lost = self.lost_file(id, shape, owner, has_checkpoint);
        self.naming.lose(lost);
        let numbers = (0..).map(|nth: u64| nth * servers);
        let listed = cells.iter().map(|cell| CellPart {
            is_listed: true,
            cell: cell.clone(),
        });
        let mut part = FilePart {
            record: None,
            cells: numbers.zip(listed).collect(),
        };
        self.keep(id, server, &mut part, (shape, owner, has_checkpoint));
        if has_checkpoint {
            // The checkpoint is on all servers, also on those without cells.
            let record = Some(FileRecord {
                owner,
                has_checkpoint,
                written: 0,
                placement: shape.placement,
            });
            let dealing = shape.dealing(&rings);
            for server in dealing.map_or_else(|_| Vec::new(), |dealing| dealing.servers()) {
                let files = &mut self.model.servers[server].files;
                files.entry(id).or_default().record = record;
            }
        }
    }
}

/// Gives a new place to each block whose place is not there, or another block's.
fn mend_places(layout: &Layout, model: &mut Model) -> Vec<BlockCopy> {
    let mut copies = Vec::new();
    for server in 0..model.servers.len() {
        let places = layout.places[server];
        let mut used = FxHashSet::default();
        let mut homeless = Vec::new();
        for (key, stored) in model.blocks(server) {
            let is_there = stored.place < places;
            if !is_there || !used.insert(stored.place) {
                homeless.push((key, is_there.then_some(stored.place)));
            }
        }
        let mut free = (0..places).filter(|place| !used.contains(place));
        for ((id, number, block, version), from) in homeless {
            let Some(to) = free.next() else {
                break; // a check still finds the others
            };
            let file = model.servers[server].files.get_mut(&id);
            if let Some(part) = file.and_then(|file| file.cells.get_mut(&number)) {
                part.cell.relocate(block, version, to);
            }
            copies.extend(from.map(|from| BlockCopy { server, from, to }));
        }
    }
    copies
}
