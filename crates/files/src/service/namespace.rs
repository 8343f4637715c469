//! The objects that a server keeps, in memory and as records.

use std::collections::BTreeMap;

use penstock_engine::encoding::decode;
use penstock_engine::{Kind, Result};
use rustc_hash::FxHashMap;

use crate::names::{FilePath, Names};
use crate::object::{Attributes, ObjectId, ObjectKind, at_path};
use crate::transaction::Entry;
use crate::volume::records::{Change, Key, put, remove};

/// The objects of a server, found by the hash of their paths, and the entries of its Xrefs.
pub(crate) struct Namespace {
    names: Names,
    /// The objects of each hash, told apart by their uniquifiers.
    objects: FxHashMap<u64, BTreeMap<u16, Attributes>>,
    xrefs: FxHashMap<ObjectId, Xref>,
}

/// The entries of an Xref, and how many of them are Xrefs.
#[derive(Default)]
struct Xref {
    entries: BTreeMap<String, Entry>,
    xrefs: u32,
}

impl Xref {
    fn insert(&mut self, name: String, entry: Entry) {
        self.xrefs += u32::from(entry.is_xref());
        let former = self.entries.insert(name, entry);
        self.xrefs -= former.map_or(0, |former| u32::from(former.is_xref()));
    }

    fn remove(&mut self, name: &str) {
        let former = self.entries.remove(name);
        self.xrefs -= former.map_or(0, |former| u32::from(former.is_xref()));
    }
}

impl Namespace {
    pub(crate) fn new(names: Names) -> Self {
        Self {
            names,
            objects: FxHashMap::default(),
            xrefs: FxHashMap::default(),
        }
    }

    /// All objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Attributes> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    /// Takes in a record, when the server starts. Gives whether the namespace has such records.
    ///
    /// # Errors
    /// When the value makes no sense.
    pub(crate) fn take_record(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        match key {
            Key::Object(hash, uniquifier) => {
                let object = decode(value)?;
                let of_hash = self.objects.entry(*hash).or_default();
                of_hash.insert(*uniquifier, object);
            }
            Key::Entry(xref, name) => {
                let of_xref = self.xrefs.entry(*xref).or_default();
                of_xref.insert(name.clone(), decode(value)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The uniquifier and the attributes of the object at a path.
    fn search(&self, path: &FilePath) -> Option<(u16, &Attributes)> {
        let of_hash = self.objects.get(&self.names.hash(path))?;
        let found = of_hash.iter().find(|(_, object)| object.path == *path);
        found.map(|(&uniquifier, object)| (uniquifier, object))
    }

    /// The object at a path.
    ///
    /// # Errors
    /// [`Kind::Missing`] when there is none.
    pub(crate) fn find(&self, path: &FilePath) -> Result<&Attributes> {
        let found = self.search(path).map(|(_, object)| object);
        found.ok_or_else(|| at_path(Kind::Missing, "looking for", path, "there is nothing"))
    }

    /// The Xref at a path.
    ///
    /// # Errors
    /// [`Kind::Missing`] when there is nothing; [`Kind::Schema`] for anything else.
    pub(crate) fn find_xref(&self, path: &FilePath) -> Result<&Attributes> {
        let object = self.find(path)?;
        let cause = match object.kind {
            ObjectKind::Xref => return Ok(object),
            ObjectKind::File(_) => "it is a file",
            ObjectKind::Symlink(_) => "it is a symbolic link, which only a mount follows",
        };
        let doing = "looking for a directory";
        Err(at_path(Kind::Schema, doing, path, cause))
    }

    /// The number of names that lead to an object of this server.
    pub(crate) fn links(&self, object: &Attributes) -> u32 {
        match object.kind {
            ObjectKind::Xref => 2 + self.xrefs.get(&object.id).map_or(0, |xref| xref.xrefs),
            ObjectKind::File(_) | ObjectKind::Symlink(_) => 1,
        }
    }

    /// Notes that the entries of an Xref change, and gives the change of its record.
    ///
    /// # Errors
    /// As [`Namespace::find_xref`].
    pub(crate) fn touch(&mut self, xref: &FilePath, now: u64) -> Result<Change> {
        let mut object = self.find_xref(xref)?.clone();
        (object.modified, object.settled, object.changed) = (now, now, now);
        self.put(object)
    }

    /// The entries of an Xref.
    pub(crate) fn entries(&self, xref: ObjectId) -> Vec<(String, Entry)> {
        let xref = self.xrefs.get(&xref).into_iter();
        let entries = xref.flat_map(|xref| &xref.entries);
        entries
            .map(|(name, &entry)| (name.clone(), entry))
            .collect()
    }

    /// The entry of this name of an Xref.
    pub(crate) fn entry(&self, xref: ObjectId, name: &str) -> Option<Entry> {
        self.xrefs.get(&xref)?.entries.get(name).copied()
    }

    /// Refuses a path at which nothing new can come.
    ///
    /// # Errors
    /// [`Kind::Exists`] when there is something; [`Kind::Full`] when too many paths have its hash.
    pub(crate) fn check_free(&self, path: &FilePath) -> Result<()> {
        if self.search(path).is_some() {
            let cause = "there is something already";
            return Err(at_path(Kind::Exists, "making something new", path, cause));
        }
        self.free_uniquifier(path).map(|_| ())
    }

    fn free_uniquifier(&self, path: &FilePath) -> Result<u16> {
        let of_hash = self.objects.get(&self.names.hash(path));
        let is_free = |uniquifier: &u16| of_hash.is_none_or(|some| !some.contains_key(uniquifier));
        let free = (0..=u16::MAX).find(is_free);
        free.ok_or_else(|| {
            let cause = "65,536 other paths have the same hash";
            at_path(Kind::Full, "making something new", path, cause)
        })
    }

    /// Puts an object to its path, or gives it other attributes, and gives the change of its
    /// record.
    ///
    /// # Errors
    /// [`Kind::Full`] as [`Namespace::check_free`].
    pub(crate) fn put(&mut self, object: Attributes) -> Result<Change> {
        let uniquifier = match self.search(&object.path) {
            Some((uniquifier, _)) => uniquifier,
            None => self.free_uniquifier(&object.path)?,
        };
        let hash = self.names.hash(&object.path);
        let change = put(&Key::Object(hash, uniquifier), &object)?;
        let of_hash = self.objects.entry(hash).or_default();
        of_hash.insert(uniquifier, object);
        Ok(change)
    }

    /// Takes an object from its path, with its entries, and gives the changes of records.
    ///
    /// # Errors
    /// When a key cannot be encoded.
    pub(crate) fn remove(&mut self, path: &FilePath) -> Result<Vec<Change>> {
        let hash = self.names.hash(path);
        let Some((uniquifier, object)) = self.search(path) else {
            return Ok(Vec::new());
        };
        let id = object.id;
        let mut changes = vec![remove(&Key::Object(hash, uniquifier))?];
        for (name, _) in self.entries(id) {
            changes.push(remove(&Key::Entry(id, name))?);
        }
        self.xrefs.remove(&id);
        if let Some(of_hash) = self.objects.get_mut(&hash) {
            of_hash.remove(&uniquifier);
            if of_hash.is_empty() {
                self.objects.remove(&hash);
            }
        }
        Ok(changes)
    }

    /// Puts an entry into an Xref.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub(crate) fn link(&mut self, xref: ObjectId, name: &str, entry: Entry) -> Result<Change> {
        let of_xref = self.xrefs.entry(xref).or_default();
        of_xref.insert(name.to_string(), entry);
        put(&Key::Entry(xref, name.to_string()), &entry)
    }

    /// Takes an entry out of an Xref.
    ///
    /// # Errors
    /// When its key cannot be encoded.
    pub(crate) fn unlink(&mut self, xref: ObjectId, name: &str) -> Result<Change> {
        if let Some(of_xref) = self.xrefs.get_mut(&xref) {
            of_xref.remove(name);
        }
        remove(&Key::Entry(xref, name.to_string()))
    }
}
