//! The mending of names: each object gets one path, and one entry in the Xref of its parent path.
//!
//! All objects are taken from their servers, get their paths from the root downwards, and are put
//! back, each with its entry. What has no place below the root comes to `/lost+found`, and with an
//! Xref all that is below it.

use std::collections::{BTreeMap, BTreeSet};

use super::Layout;
use super::model::Model;
use crate::names::FilePath;
use crate::object::{Attributes, ObjectId, ObjectKind};
use crate::transaction::Entry;

/// The directory of what has lost its place.
const LOST: &str = "lost+found";

/// The objects of a volume without their places.
pub(super) struct Naming<'l> {
    layout: &'l Layout,
    /// The time of new objects.
    pub(super) now: u64,
    pub(super) objects: Vec<Attributes>,
    /// Objects that come to the directory of the lost.
    lost: Vec<Attributes>,
    /// The paths at which directories list objects.
    listed: BTreeSet<(FilePath, ObjectId)>,
    /// Where each object was: its server and the key of its record.
    former: BTreeMap<(ObjectId, FilePath), (usize, (u64, u16))>,
}

impl<'l> Naming<'l> {
    /// Takes all objects and entries from their servers. Files whose structure is impossible are
    /// left out: their cells have lost their file. So are impossible symbolic links.
    pub(super) fn take(layout: &'l Layout, model: &mut Model, now: u64) -> Self {
        let mut naming = Self {
            layout,
            now,
            objects: Vec::new(),
            lost: Vec::new(),
            listed: listed(model),
            former: BTreeMap::new(),
        };
        let mut by_id: BTreeMap<ObjectId, Vec<Attributes>> = BTreeMap::new();
        let Model { servers, rings, .. } = &mut *model;
        for (server, model) in servers.iter_mut().enumerate() {
            model.entries.clear();
            for (key, object) in std::mem::take(&mut model.objects) {
                let former = (object.id, object.path.clone());
                naming.former.insert(former, (server, key));
                if object.kind.check(rings).is_ok() {
                    by_id.entry(object.id).or_default().push(object);
                }
            }
        }
        for same in by_id.into_values() {
            // Where a crash of long ago has left an object twice, it is at the path of its entry.
            let is_listed =
                |object: &Attributes| naming.listed.contains(&(object.path.clone(), object.id));
            let best = same
                .into_iter()
                .max_by_key(|object| (is_listed(object), object.changed));
            naming.objects.extend(best);
        }
        naming.name_root(model);
        naming
    }

    /// Makes sure of the root.
    fn name_root(&mut self, model: &mut Model) {
        let root = FilePath::root();
        let (at_root, mut others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.objects)
            .into_iter()
            .partition(|object| object.path == root);
        let (xrefs, files): (Vec<_>, Vec<_>) = at_root
            .into_iter()
            .partition(|object| object.kind == ObjectKind::Xref);
        self.lost.extend(files);
        for object in others
            .iter_mut()
            .filter(|object| object.id == ObjectId::ROOT)
        {
            object.id = self.new_id(model, model.keeper_of(self.layout.names, &object.path));
        }
        let found = xrefs.into_iter().next();
        let found = found.unwrap_or_else(|| self.directory(root, ObjectId::ROOT, 0o755));
        self.objects = others;
        self.objects.push(Attributes {
            id: ObjectId::ROOT,
            ..found
        });
    }

    fn directory(&self, path: FilePath, id: ObjectId, mode: u16) -> Attributes {
        let settings = (self.layout.owner, 0, mode);
        Attributes::new(id, ObjectKind::Xref, path, settings, self.now)
    }

    /// An identity that no object has had.
    pub(super) fn new_id(&self, model: &mut Model, server: usize) -> ObjectId {
        let numbers = &mut model.servers[server].numbers;
        let number = numbers.unwrap_or(1);
        *numbers = Some(number + 1);
        ObjectId::new(server, number)
    }

    /// Adds an object that comes to the directory of the lost.
    pub(super) fn lose(&mut self, object: Attributes) {
        self.lost.push(object);
    }

    /// The path of the directory of the lost: one at which there is nothing, or a directory.
    fn lost_path(&self) -> FilePath {
        let free = |path: &FilePath| {
            let mut there = self.objects.iter().filter(|object| object.path == *path);
            there.all(|object| object.kind == ObjectKind::Xref)
        };
        named(&FilePath::root(), LOST, free)
    }

    /// Gives all objects their paths, and puts them back to servers.
    pub(super) fn put(mut self, model: &mut Model) {
        let directory = self.lost_path();
        let lost = std::mem::take(&mut self.lost);
        let mut objects = std::mem::take(&mut self.objects);
        // An object that its directory lists comes before another one at the same path.
        objects.sort_by_cached_key(|object| {
            let place = (object.path.clone(), object.id);
            let is_listed = self.listed.contains(&place);
            (place.0, !is_listed, place.1)
        });
        let known: BTreeSet<FilePath> = objects.iter().map(|object| object.path.clone()).collect();
        let mut placed: BTreeMap<FilePath, Attributes> = BTreeMap::new();
        let mut moved: BTreeMap<FilePath, FilePath> = BTreeMap::new();
        let mut has_lost = false;
        let objects = objects.into_iter().map(|object| (object, false));
        for (object, is_lost) in objects.chain(lost.into_iter().map(|object| (object, true))) {
            let former = object.path.clone();
            let parent = former.parent();
            let path = match parent {
                _ if is_lost => None,
                None => (!placed.contains_key(&former)).then(|| former.clone()),
                Some(parent) => {
                    let parent = moved.get(&parent);
                    let path = parent.and_then(|parent| parent.join(former.name()).ok());
                    path.filter(|path| !placed.contains_key(path))
                }
            };
            let path = path.unwrap_or_else(|| {
                has_lost = true;
                let is_free = |path: &FilePath| !placed.contains_key(path) && !known.contains(path);
                named(&directory, &format!("object-{:x}", object.id.0), is_free)
            });
            if object.kind == ObjectKind::Xref && !is_lost {
                moved.entry(former).or_insert_with(|| path.clone());
            }
            placed.insert(path.clone(), Attributes { path, ..object });
        }
        if has_lost && !placed.contains_key(&directory) {
            let id = self.new_id(model, model.keeper_of(self.layout.names, &directory));
            let made = self.directory(directory.clone(), id, 0o700);
            placed.insert(directory, made);
        }
        self.put_back(model, &placed);
    }

    fn put_back(&self, model: &mut Model, placed: &BTreeMap<FilePath, Attributes>) {
        let names = self.layout.names;
        let mut others = Vec::new();
        // What was found where it is to be keeps its record.
        for (path, object) in placed {
            let former = self.former.get(&(object.id, path.clone()));
            let is_there = |&&(server, (hash, _)): &&(usize, (u64, u16))| {
                server == model.keeper_of(names, path) && hash == names.hash(path)
            };
            match former.filter(is_there) {
                Some(&(server, key)) => {
                    model.servers[server].objects.insert(key, object.clone());
                }
                None => others.push(object.clone()),
            }
        }
        for object in others {
            let keeper = model.keeper_of(names, &object.path);
            model.servers[keeper].put_object(names, object);
        }
        for (path, object) in placed {
            let Some(parent) = path.parent() else {
                continue;
            };
            if let Some(xref) = placed.get(&parent) {
                let entry = Entry::of(object);
                let keeper = model.keeper_of(names, &parent);
                let entries = &mut model.servers[keeper].entries;
                entries.insert((xref.id, path.name().to_string()), entry);
            }
        }
    }
}

/// The first path of this name, with a number if need be, that is free.
fn named(directory: &FilePath, name: &str, is_free: impl Fn(&FilePath) -> bool) -> FilePath {
    let numbered = (1u64..).map(|number| format!("{name}-{number}"));
    let names = std::iter::once(name.to_string()).chain(numbered);
    let mut paths = names.filter_map(|name| directory.join(&name).ok());
    paths.find(is_free).unwrap_or_else(|| directory.clone())
}

/// The paths at which directories list objects.
fn listed(model: &Model) -> BTreeSet<(FilePath, ObjectId)> {
    let objects = model
        .servers
        .iter()
        .flat_map(|server| server.objects.values());
    let mut paths: BTreeMap<ObjectId, Vec<&FilePath>> = BTreeMap::new();
    for object in objects {
        paths.entry(object.id).or_default().push(&object.path);
    }
    let entries = model.servers.iter().flat_map(|server| &server.entries);
    let listed = entries.flat_map(|((xref, name), entry)| {
        let parents = paths.get(xref).into_iter().flatten();
        parents.filter_map(|parent| Some((parent.join(name).ok()?, entry.id)))
    });
    listed.collect()
}
