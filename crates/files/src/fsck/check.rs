//! The comparison of all records of a volume.

use std::collections::{BTreeMap, BTreeSet};

use penstock_layout::view::CELL_BYTES_MAX;
use rustc_hash::FxHashMap;

use super::finding::{BlockPosition, Finding, Numbers, Report};
use super::model::{CellPart, FilePart, Model};
use super::{Layout, ServerRecords};
use crate::names::FilePath;
use crate::object::{Attributes, ObjectId, ObjectKind};
use crate::transaction::Entry;
use crate::volume::cells::{Cell, Stored, Version};

/// Checks the records of all servers of a volume, in the order of the servers.
pub fn check(layout: &Layout, records: &[ServerRecords]) -> Report {
    examine(layout, &Model::read(layout, records))
}

/// Checks a model.
pub(super) fn examine(layout: &Layout, model: &Model) -> Report {
    let mut check = Check {
        layout,
        model,
        by_path: BTreeMap::new(),
        by_id: FxHashMap::default(),
        report: Report {
            findings: model.unreadable.clone(),
            transactions: model.transactions.clone(),
            numbers: Numbers::default(),
        },
    };
    check.index();
    check.check_numbers();
    check.check_quotas();
    check.check_rings();
    check.check_objects();
    check.check_entries();
    check.check_files();
    check.check_places();
    check.report
}

/// Where a block is, without its server.
pub(super) type BlockKey = (ObjectId, u64, u64, Version);

/// A check under way.
struct Check<'a> {
    layout: &'a Layout,
    model: &'a Model,
    /// The first object of each path and of each identity, and the server that has it.
    by_path: BTreeMap<&'a FilePath, (usize, &'a Attributes)>,
    by_id: FxHashMap<ObjectId, (usize, &'a Attributes)>,
    report: Report,
}

impl<'a> Check<'a> {
    fn find(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    /// Notes all objects, and finds those that are where they cannot be found, or are there twice.
    fn index(&mut self) {
        let names = self.layout.names;
        for (server, model) in self.model.servers.iter().enumerate() {
            for (&(hash, _), object) in &model.objects {
                let path = object.path.clone();
                if hash != names.hash(&path) || server != self.model.keeper_of(names, &path) {
                    self.find(Finding::MisplacedObject { server, path });
                }
            }
        }
        // Those that can be found come first.
        for is_placed in [true, false] {
            for (server, model) in self.model.servers.iter().enumerate() {
                for (&(hash, _), object) in &model.objects {
                    let path = &object.path;
                    let leads_there =
                        hash == names.hash(path) && server == self.model.keeper_of(names, path);
                    if leads_there != is_placed {
                        continue;
                    }
                    let place = (server, object);
                    let (_, first) = *self.by_path.entry(path).or_insert(place);
                    if !std::ptr::eq(first, object) {
                        self.find(Finding::DoublePath { path: path.clone() });
                    }
                    let (_, first) = *self.by_id.entry(object.id).or_insert(place);
                    if !std::ptr::eq(first, object) {
                        let (id, path) = (object.id, path.clone());
                        self.find(Finding::DoubleIdentity { id, path });
                    }
                }
            }
        }
    }

    /// Finds numbers of objects that a server would use again.
    fn check_numbers(&mut self) {
        let used = self.model.used_numbers();
        for (server, model) in self.model.servers.iter().enumerate() {
            let next = model.numbers.unwrap_or(1);
            if let Some(&number) = used.get(&server).filter(|&&number| number >= next) {
                self.find(Finding::UsedNumber { server, number });
            }
        }
    }

    /// Finds quotas that are not the same on all servers.
    fn check_quotas(&mut self) {
        let quotas = self.model.quotas(self.layout.names);
        let model = self.model;
        for (server, model) in model.members() {
            for (&user, blocks) in &quotas {
                if model.quotas.get(&user) != Some(blocks) {
                    self.find(Finding::UnevenQuota { server, user });
                }
            }
        }
    }

    /// Finds servers that know other rings, or other keepers of slots, than the others.
    fn check_rings(&mut self) {
        let (model, names) = (self.model, self.layout.names);
        for (server, one) in model.members() {
            let rings = one.known_rings(names);
            let keepers = one.keepers.clone().unwrap_or_else(|| names.keepers());
            if rings != model.rings || keepers != model.keepers {
                self.find(Finding::UnevenRings { server });
            }
        }
    }

    fn check_objects(&mut self) {
        let root = FilePath::root();
        let is_new = self.model.is_new();
        let found = self.by_path.get(&root);
        let is_root =
            |object: &Attributes| object.kind == ObjectKind::Xref && object.id == ObjectId::ROOT;
        if !is_new && !found.is_some_and(|(_, object)| is_root(object)) {
            self.find(Finding::MissingRoot);
        }
        let objects: Vec<&Attributes> = self.by_id.values().map(|(_, object)| *object).collect();
        for object in objects {
            match object.kind {
                ObjectKind::Xref => self.report.numbers.directories += 1,
                ObjectKind::File(_) => self.report.numbers.files += 1,
                ObjectKind::Symlink(_) => self.report.numbers.symlinks += 1,
            }
            if let Err(error) = object.kind.check(&self.model.rings) {
                let (path, cause) = (object.path.clone(), error.cause);
                self.find(Finding::ImpossibleShape { path, cause });
            }
            let Some(parent) = object.path.parent() else {
                continue;
            };
            let path = object.path.clone();
            match self.by_path.get(&parent).copied() {
                Some((server, parent)) if parent.kind == ObjectKind::Xref => {
                    let key = (parent.id, path.name().to_string());
                    if !self.model.servers[server].entries.contains_key(&key) {
                        self.find(Finding::MissingEntry { path });
                    }
                }
                _ => self.find(Finding::MissingParent { path }),
            }
        }
    }

    fn check_entries(&mut self) {
        let model = self.model;
        for (server, model) in model.servers.iter().enumerate() {
            for ((directory, name), entry) in &model.entries {
                if let Some(finding) = self.check_entry(server, (*directory, name), entry) {
                    self.find(finding);
                }
            }
        }
    }

    fn check_entry(
        &self,
        server: usize,
        (directory, name): (ObjectId, &str),
        entry: &Entry,
    ) -> Option<Finding> {
        let xref = self.by_id.get(&directory).copied();
        let is_xref =
            |(at, object): &(usize, &Attributes)| *at == server && object.kind == ObjectKind::Xref;
        let Some((_, xref)) = xref.filter(is_xref) else {
            return Some(Finding::StrayEntry {
                server,
                directory,
                name: name.to_string(),
            });
        };
        let path = xref.path.join(name).ok();
        let object = path.as_ref().and_then(|path| self.by_path.get(path));
        match object {
            None => Some(Finding::MissingObject {
                path: format!("{}/{name}", xref.path.as_str().trim_end_matches('/')),
            }),
            Some((_, object)) => {
                let is_same = object.id == entry.id;
                let is_alike = object.kind.entry() == entry.kind;
                let path = object.path.clone();
                (!is_same || !is_alike).then_some(Finding::WrongEntry { path })
            }
        }
    }

    fn check_files(&mut self) {
        let model = self.model;
        for (server, model) in model.servers.iter().enumerate() {
            for (&id, part) in &model.files {
                match self.by_id.get(&id).copied() {
                    Some((_, object)) if object.shape().is_ok() => {
                        self.check_part(server, object, part);
                    }
                    _ => self.find(Finding::OrphanCells { server, id }),
                }
                for (&number, part) in &part.cells {
                    self.check_cell(server, (id, number), &part.cell);
                }
            }
        }
        // A checkpoint is on all servers of its file.
        let files: Vec<&Attributes> = self.by_id.values().map(|(_, object)| *object).collect();
        for object in files.into_iter().filter(|object| object.checkpoints > 0) {
            let rings = &self.model.rings;
            let shape = object.shape().ok();
            let shape = shape.filter(|shape| shape.check(rings).is_ok());
            let dealing = shape.and_then(|shape| shape.dealing(rings).ok());
            for server in dealing.map_or_else(Vec::new, |dealing| dealing.servers()) {
                if !self.model.servers[server].files.contains_key(&object.id) {
                    let path = object.path.clone();
                    self.find(Finding::UnevenCheckpoint {
                        server,
                        path,
                        cell: None,
                    });
                }
            }
        }
    }

    /// Checks the part of a file on a server.
    fn check_part(&mut self, server: usize, object: &Attributes, part: &FilePart) {
        let path = || object.path.clone();
        let (ObjectKind::File(shape), rings) = (&object.kind, &self.model.rings) else {
            return;
        };
        let (Ok(()), Ok(dealing)) = (shape.check(rings), shape.dealing(rings)) else {
            return; // that has been found
        };
        if !dealing.servers().contains(&server) {
            self.find(Finding::StrayCells {
                server,
                path: path(),
                cell: None,
            });
        }
        let has_checkpoint = object.checkpoints > 0;
        match &part.record {
            None => self.find(Finding::UnlistedPart {
                server,
                file: path().to_string(),
                cell: None,
            }),
            Some(record) => {
                if record.owner != object.owner {
                    self.find(Finding::WrongOwner {
                        server,
                        path: path(),
                        found: record.owner,
                        owner: object.owner,
                    });
                }
                if record.has_checkpoint != has_checkpoint {
                    self.find(Finding::UnevenCheckpoint {
                        server,
                        path: path(),
                        cell: None,
                    });
                }
            }
        }
        for (&number, CellPart { is_listed, cell }) in &part.cells {
            let (path, cell_number) = (path(), Some(number));
            if number >= shape.cells || dealing.server_of(number) != server {
                self.find(Finding::StrayCells {
                    server,
                    path: path.clone(),
                    cell: cell_number,
                });
            }
            if !is_listed {
                self.find(Finding::UnlistedPart {
                    server,
                    file: path.to_string(),
                    cell: cell_number,
                });
            } else if cell.kept_bytes.is_some() != has_checkpoint {
                self.find(Finding::UnevenCheckpoint {
                    server,
                    path,
                    cell: cell_number,
                });
            }
        }
    }

    /// Finds blocks that lie behind the end of a cell.
    fn check_cell(&mut self, server: usize, (id, number): (ObjectId, u64), cell: &Cell) {
        self.report.numbers.cells += u64::from(cell.bytes > 0);
        for version in [Version::Active, Version::Checkpoint] {
            let bytes = cell.bytes_of(version);
            if let Some(bytes) = bytes.filter(|&bytes| bytes > CELL_BYTES_MAX) {
                self.find(Finding::LongCell {
                    server,
                    file: self.name_of(id),
                    cell: number,
                    bytes,
                });
            }
            let has_own = version == Version::Active || bytes.is_some() || cell.has_split_leaves();
            let end = bytes.unwrap_or(0).div_ceil(self.layout.block_bytes);
            let behind = cell.blocks(version).filter(|(block, _)| *block >= end);
            for (block, _) in behind.filter(|_| has_own) {
                let key = (id, number, block, version);
                self.find(Finding::BlockBehindEnd(self.position(server, key)));
            }
        }
    }

    /// Finds places that are not there, or have two blocks, and counts those in use.
    fn check_places(&mut self) {
        for server in 0..self.model.servers.len() {
            let places = self.layout.places[server];
            let mut used: FxHashMap<u64, BlockKey> = FxHashMap::default();
            for (key, Stored { place, .. }) in self.model.blocks(server) {
                if place >= places {
                    let block = self.position(server, key);
                    self.find(Finding::PlaceOutside { block, place });
                } else if let Some(&other) = used.get(&place) {
                    let (block, other) = (self.position(server, key), self.position(server, other));
                    self.find(Finding::SharedPlace {
                        block,
                        place,
                        other: Box::new(other),
                    });
                } else {
                    used.insert(place, key);
                }
            }
            self.report.numbers.blocks += used.len() as u64;
            self.report.numbers.free += places - used.len() as u64;
        }
    }

    fn name_of(&self, id: ObjectId) -> String {
        let object = self.by_id.get(&id);
        object.map_or_else(
            || format!("object {}", id.0),
            |(_, object)| object.path.to_string(),
        )
    }

    fn position(&self, server: usize, (id, cell, block, version): BlockKey) -> BlockPosition {
        BlockPosition {
            server,
            file: self.name_of(id),
            cell,
            block,
            version,
        }
    }
}

/// The place of a block in a volume.
pub(super) fn position(model: &Model, server: usize, key: BlockKey) -> BlockPosition {
    let (id, cell, block, version) = key;
    let mut objects = model
        .servers
        .iter()
        .flat_map(|server| server.objects.values());
    let object = objects.find(|object| object.id == id);
    let file = object.map_or_else(
        || format!("object {}", id.0),
        |object| object.path.to_string(),
    );
    BlockPosition {
        server,
        file,
        cell,
        block,
        version,
    }
}

impl Model {
    /// Whether nobody has made anything, not even the root.
    pub(super) fn is_new(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.all(|model| {
            model.objects.is_empty() && model.entries.is_empty() && model.files.is_empty()
        })
    }

    /// The highest number that each server has given to an object.
    pub(super) fn used_numbers(&self) -> BTreeMap<usize, u64> {
        let mut used = BTreeMap::new();
        for model in &self.servers {
            let objects = model.objects.values().map(|object| object.id);
            let ids: BTreeSet<ObjectId> = objects.chain(model.files.keys().copied()).collect();
            for (server, number) in ids.iter().filter_map(|id| id.maker()) {
                let highest = used.entry(server).or_insert(number);
                *highest = number.max(*highest);
            }
        }
        used
    }

    /// The blocks of a server, each place of a block once.
    pub(super) fn blocks(&self, server: usize) -> impl Iterator<Item = (BlockKey, Stored)> {
        let files = self.servers[server].files.iter();
        let cells = files.flat_map(|(&id, part)| part.cells.iter().map(move |cell| (id, cell)));
        cells.flat_map(|(id, (&number, part))| {
            let cell = &part.cell;
            let blocks = |version| {
                let blocks = cell.blocks(version);
                blocks.map(move |(block, stored)| ((id, number, block, version), stored))
            };
            let is_own = |((.., block, _), stored): &(BlockKey, Stored)| {
                let active = cell.stored(*block, Version::Active);
                active.is_none_or(|active| active.place != stored.place)
            };
            blocks(Version::Active).chain(blocks(Version::Checkpoint).filter(is_own))
        })
    }
}
