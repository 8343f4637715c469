//! What a server directs for the objects that it keeps: creation, removal, renaming, and changes of
//! whole files.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use penstock_engine::blocks::Intent;
use penstock_engine::{Kind, Machine, Result};

use super::state::Service;
use super::steps::{WholeFile, nobody, out_of_date};
use crate::caller::unexpected;
use crate::messages::{Answer, Ask, NewKind, NewObject};
use crate::names::FilePath;
use crate::object::{
    Attributes, EXTENDED_BYTES_MAX, FileShape, Identity, MODE_BITS, ObjectId, ObjectKind,
    Permission, at_path, overtaken,
};
use crate::placement::Placement;
use crate::transaction::{Entry, FileChange, NewAttributes, NewTime, Replacement, Settings, Step};
use crate::volume::records::RecordStore;

/// The most attempts at a transaction on names that others change meanwhile.
const ATTEMPTS_MAX: u32 = 100;

/// The time after the first attempt. The one after the second is twice as long, and so on.
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(50);

/// The most objects about which servers are asked at once.
const ASKED_MAX: usize = 1 << 10;

/// The steps of a transaction, by server.
#[derive(Default)]
struct Plan(BTreeMap<usize, Vec<Step>>);

impl Plan {
    fn add(&mut self, server: usize, step: Step) {
        self.0.entry(server).or_default().push(step);
    }
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// The server that keeps the object of a path.
    pub(super) fn server_of(&self, path: &FilePath) -> usize {
        let slot = self.shape.names.slot_of(path);
        self.keepers.borrow().server(slot)
    }

    /// Whether this server keeps a path.
    pub(super) fn keeps(&self, path: &FilePath) -> bool {
        self.server_of(path) == self.server
    }

    fn parent_of(&self, path: &FilePath, doing: &str) -> Result<FilePath> {
        let refused = || at_path(Kind::Schema, doing, path, "it is the root of the volume");
        path.parent().ok_or_else(refused)
    }

    /// Makes attempts at a transaction until others do not change its names, or the servers that
    /// keep them, meanwhile; or this server does not keep its object any more.
    pub(super) async fn undisturbed<T>(
        &self,
        kept: Option<&FilePath>,
        attempt: impl AsyncFn() -> Result<T>,
    ) -> Result<T> {
        let mut attempts = 1;
        loop {
            let may_end = |kind| {
                let is_elsewhere = kept.is_some_and(|path| !self.keeps(path));
                kind != Kind::Busy || attempts == ATTEMPTS_MAX || is_elsewhere
            };
            match attempt().await {
                Err(error) if !may_end(error.kind) => {
                    self.machine.wait(BETWEEN_ATTEMPTS * attempts).await;
                    attempts += 1;
                }
                ended => return ended,
            }
        }
    }

    /// The attributes of an object that this server keeps.
    pub(super) async fn stat(&self, path: &FilePath) -> Result<Attributes> {
        let _lock = self.lock_kept(path, Intent::Read).await?;
        self.namespace.borrow().find(path).cloned()
    }

    /// The entries of an Xref that this server keeps.
    pub(super) async fn list(
        &self,
        who: &Identity,
        path: &FilePath,
    ) -> Result<Vec<(String, Entry)>> {
        // Alone: transactions that change entries share the Xref, and those that have begun end
        // first. An object of theirs may be seen elsewhere already.
        let _lock = self.lock_kept(path, Intent::Change).await?;
        let namespace = self.namespace.borrow();
        let xref = namespace.find_xref(path)?;
        xref.allow(who, Permission::Read)?;
        Ok(namespace.entries(xref.id))
    }

    /// Makes an object: a record here, and an entry in the Xref of its parent path, which
    /// must exist.
    pub(super) async fn create(&self, who: &Identity, new: NewObject) -> Result<Attributes> {
        let NewObject { path, mode, kind } = new;
        let parent = match path.parent() {
            Some(parent) => parent,
            None => {
                let cause = "the root of the volume is there";
                return Err(at_path(Kind::Exists, "creating", &path, cause));
            }
        };
        let id = ObjectId::new(self.server, self.number().await?);
        let rings = self.rings();
        let placement = Placement::settled(rings.newest());
        let kind = match kind {
            NewKind::Xref => ObjectKind::Xref,
            NewKind::Symlink(target) => ObjectKind::Symlink(target),
            NewKind::File(cells, bsu_bytes, base) => {
                // A base that nobody has chosen is as good as random.
                let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let servers = rings.servers(placement.ring)?;
                let chosen = || servers[(mixed % servers.len() as u64) as usize];
                let shape = FileShape {
                    cells,
                    bsu_bytes,
                    base: base.unwrap_or_else(chosen),
                    placement,
                };
                ObjectKind::File(shape)
            }
        };
        kind.check(&rings)?;
        let settings = (who.user, who.group, mode);
        let object = Attributes::new(id, kind, path.clone(), settings, (self.clock)());
        self.undisturbed(Some(&path), async || {
            let mut plan = Plan::default();
            plan.add(self.server, Step::Add(object.clone(), Vec::new()));
            plan.add(self.server_of(&parent), link(&object, &path, &parent));
            self.direct(who, plan.0, None).await
        })
        .await?;
        Ok(object)
    }

    /// Removes a file and all of its cells, a symbolic link, or an empty Xref.
    pub(super) async fn remove(&self, who: &Identity, path: &FilePath) -> Result<Answer> {
        let parent = self.parent_of(path, "removing")?;
        self.undisturbed(Some(path), async || {
            let object = self.stat(path).await?;
            let mut plan = Plan::default();
            let whole = self.plan_removal(&object, &parent, &mut plan);
            self.direct(who, plan.0, whole).await
        })
        .await?;
        Ok(Answer::Done)
    }

    /// Plans the removal of an object. Gives the change of a file's cells.
    fn plan_removal(
        &self,
        object: &Attributes,
        parent: &FilePath,
        plan: &mut Plan,
    ) -> Option<WholeFile> {
        let gone = Step::drop_of(object, Vec::new(), false);
        plan.add(self.server_of(&object.path), gone);
        plan.add(self.server_of(parent), unlink(object, parent));
        let shape = object.shape().ok()?;
        Some(WholeFile {
            file: object.id,
            owner: object.owner,
            shape,
            change: FileChange::Remove,
        })
    }

    /// Plans what becomes of an object at whose path `object` is to come. Gives the change of a
    /// file's cells.
    async fn plan_replacement(
        &self,
        (old, object): (Attributes, &Attributes),
        parent: &FilePath,
        replacement: &Replacement,
        plan: &mut Plan,
    ) -> Result<Option<WholeFile>> {
        let path = old.path.clone();
        let refused = |kind, cause| Err(at_path(kind, "replacing", &path, cause));
        let is_xref = |object: &Attributes| object.kind == ObjectKind::Xref;
        match (is_xref(object), is_xref(&old)) {
            _ if *replacement == Replacement::Refused => {
                return refused(Kind::Exists, "there is something already");
            }
            (true, false) => return refused(Kind::Schema, "it is no directory"),
            (false, true) => return refused(Kind::Schema, "it is a directory"),
            _ => {}
        }
        match replacement {
            Replacement::Moved(kept) if !is_xref(&old) => {
                let Some(kept_parent) = kept.parent() else {
                    return refused(Kind::Schema, "it cannot become the root");
                };
                plan.add(self.server_of(parent), unlink(&old, parent));
                plan.add(self.server_of(&kept_parent), link(&old, kept, &kept_parent));
                self.plan_moves(old, (&path, kept), plan).await?;
                Ok(None)
            }
            _ => Ok(self.plan_removal(&old, parent, plan)),
        }
    }

    /// Gives an object another path, and with an Xref all that is below it. Cells stay where they
    /// are.
    pub(super) async fn rename(
        &self,
        who: &Identity,
        (from, to): (&FilePath, &FilePath),
        replacement: &Replacement,
    ) -> Result<Answer> {
        let old_parent = self.parent_of(from, "renaming")?;
        let new_parent = self.parent_of(to, "renaming")?;
        if to.is_below(from) {
            let cause = format!("{to} is below it");
            return Err(at_path(Kind::Schema, "renaming", from, cause));
        }
        if from == to {
            return self.stat(from).await.map(|_| Answer::Done);
        }
        self.undisturbed(Some(from), async || {
            let mut plan = Plan::default();
            let object = self.stat(from).await?;
            let old = match self.object_at(to.clone()).await {
                Err(error) if error.kind == Kind::Missing => None,
                found => Some(found?),
            };
            let (mut whole, is_replaced) = (None, old.is_some());
            if let Some(old) = old {
                let both = (old, &object);
                whole = self
                    .plan_replacement(both, &new_parent, replacement, &mut plan)
                    .await?;
            }
            plan.add(self.server_of(&old_parent), unlink(&object, &old_parent));
            plan.add(self.server_of(&new_parent), link(&object, to, &new_parent));
            self.plan_moves(object, (from, to), &mut plan).await?;
            let done = self.direct(who, plan.0, whole).await;
            // What was there to be replaced may go meanwhile.
            match is_replaced {
                true => done.map_err(out_of_date),
                false => done,
            }
        })
        .await?;
        Ok(Answer::Done)
    }

    /// Plans the moves of an object and of all below it.
    async fn plan_moves(
        &self,
        object: Attributes,
        (from, to): (&FilePath, &FilePath),
        plan: &mut Plan,
    ) -> Result<()> {
        let mut waiting = vec![object];
        while let Some(object) = waiting.pop() {
            let entries = match object.kind {
                ObjectKind::File(_) | ObjectKind::Symlink(_) => Vec::new(),
                ObjectKind::Xref => self.entries_of(&object.path).await?,
            };
            let below = entries.iter().map(|(name, _)| object.path.join(name));
            let below = stream::iter(below.collect::<Result<Vec<_>>>()?);
            let found = below.map(|path| self.object_at(path)).buffered(ASKED_MAX);
            let found: Result<Vec<_>> = found.try_collect().await;
            waiting.extend(found.map_err(out_of_date)?);
            let gone = Step::drop_of(&object, entries.clone(), true);
            plan.add(self.server_of(&object.path), gone);
            let path = object.path.moved(from, to)?;
            let changed = (self.clock)();
            let moved = Attributes {
                path: path.clone(),
                changed,
                ..object
            };
            plan.add(self.server_of(&path), Step::Add(moved, entries));
        }
        Ok(())
    }

    /// The entries of an Xref, wherever it is kept. One that has gone makes a plan out of date.
    async fn entries_of(&self, path: &FilePath) -> Result<Vec<(String, Entry)>> {
        let asked = Ask::List(path.clone());
        let server = self.server_of(path);
        match self.caller.ask(server, &nobody(), asked).await {
            Ok(Answer::Entries(entries)) => Ok(entries),
            Ok(Answer::HasMoved) => Err(overtaken("listing", path)),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(out_of_date(error)),
        }
    }

    async fn object_at(&self, path: FilePath) -> Result<Attributes> {
        let server = self.server_of(&path);
        let asked = Ask::Stat(path.clone());
        match self.caller.ask(server, &nobody(), asked).await {
            Ok(Answer::Found(object, _)) => Ok(object),
            Ok(Answer::HasMoved) => Err(overtaken("looking for", &path)),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(error),
        }
    }

    /// Gives an object other attributes.
    pub(super) async fn set_attributes(
        &self,
        who: &Identity,
        path: &FilePath,
        new: &NewAttributes,
    ) -> Result<Answer> {
        self.undisturbed(Some(path), async || {
            let object = self.stat(path).await?;
            check_extended(&object, new)?;
            let settings = Settings {
                new: NewAttributes {
                    mode: new.mode.map(|mode| mode & MODE_BITS),
                    ..new.clone()
                },
                is_checkpoint: false,
                changed: (self.clock)(),
            };
            let owner = new.owner.filter(|owner| *owner != object.owner);
            let whole = match (object.shape(), owner) {
                (Ok(shape), Some(owner)) => Some((shape, FileChange::GiveTo(owner))),
                _ => None,
            };
            self.set(who, &object, settings, whole).await
        })
        .await?;
        Ok(Answer::Done)
    }

    /// Changes all cells of a file.
    pub(super) async fn change_file(
        &self,
        who: &Identity,
        path: &FilePath,
        change: FileChange,
    ) -> Result<Answer> {
        self.undisturbed(Some(path), async || {
            let object = self.stat(path).await?;
            let shape = object.shape()?;
            check_change(&object, change)?;
            let is_checkpoint = change == FileChange::Checkpoint;
            let settings = Settings {
                new: NewAttributes {
                    modified: (!is_checkpoint).then_some(NewTime::Now),
                    ..NewAttributes::default()
                },
                is_checkpoint,
                changed: (self.clock)(),
            };
            let whole = Some((shape, change));
            self.set(who, &object, settings, whole).await
        })
        .await?;
        Ok(Answer::Done)
    }

    async fn set(
        &self,
        who: &Identity,
        object: &Attributes,
        settings: Settings,
        whole: Option<(FileShape, FileChange)>,
    ) -> Result<()> {
        let mut plan = Plan::default();
        let change = Step::Change {
            path: object.path.clone(),
            id: object.id,
            placement: object.placement(),
            settings,
        };
        plan.add(self.server, change);
        let whole = whole.map(|(shape, change)| WholeFile {
            file: object.id,
            owner: object.owner,
            shape,
            change,
        });
        self.direct(who, plan.0, whole).await
    }
}

/// The step that takes the entry of an object out of an Xref.
fn unlink(object: &Attributes, parent: &FilePath) -> Step {
    Step::Unlink {
        parent: parent.clone(),
        name: object.path.name().to_string(),
        id: object.id,
        owner: object.owner,
    }
}

/// The step that lists an object, which comes to `path`, in an Xref.
fn link(object: &Attributes, path: &FilePath, parent: &FilePath) -> Step {
    Step::Link {
        parent: parent.clone(),
        name: path.name().to_string(),
        entry: Entry::of(object),
    }
}

/// Refuses an extended attribute that makes no sense, or is one too many.
fn check_extended(object: &Attributes, new: &NewAttributes) -> Result<()> {
    let Some((name, value)) = &new.extended else {
        return Ok(());
    };
    let (doing, path) = ("setting an extended attribute of", &object.path);
    let there = object.extended.iter().filter(|(other, _)| *other != name);
    let before: usize = there.map(|(name, value)| name.len() + value.len()).sum();
    match value {
        None if !object.extended.contains_key(name) => {
            Err(at_path(Kind::Missing, doing, path, "it is not set"))
        }
        _ if name.is_empty() || name.len() > 255 || name.contains('\0') => {
            let cause = "a name has 1 to 255 bytes, and no NUL";
            Err(at_path(Kind::Schema, doing, path, cause))
        }
        Some(value) if before + name.len() + value.len() > EXTENDED_BYTES_MAX => {
            let cause = "all of them have more than 65,536 bytes";
            Err(at_path(Kind::Full, doing, path, cause))
        }
        _ => Ok(()),
    }
}

/// Refuses a change of a file that makes no sense.
fn check_change(object: &Attributes, change: FileChange) -> Result<()> {
    let path = &object.path;
    match change {
        FileChange::RollBack if object.checkpoints == 0 => {
            let cause = "there is no checkpoint";
            Err(at_path(Kind::Missing, "rolling back", path, cause))
        }
        FileChange::Resize(bytes) | FileChange::Truncate(bytes)
            if bytes > penstock_layout::view::CELL_BYTES_MAX =>
        {
            let cause = format!("{bytes} bytes: a cell has 2^62 at most, and so has a file");
            Err(at_path(Kind::Schema, "resizing", path, cause))
        }
        FileChange::Remove | FileChange::GiveTo(_) | FileChange::Move(_) => {
            let cause = "there is another request for that";
            Err(at_path(Kind::Schema, "changing a file", path, cause))
        }
        _ => Ok(()),
    }
}
