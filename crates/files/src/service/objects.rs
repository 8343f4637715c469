//! What a server directs for the objects that it keeps: creation, removal, renaming, and changes of
//! whole files.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use penstock_engine::blocks::Intent;
use penstock_engine::{Kind, Machine, Result};

use super::state::Service;
use super::steps::{WholeFile, nobody, out_of_date};
use crate::caller::unexpected;
use crate::messages::{Answer, Ask, NewObject};
use crate::names::FilePath;
use crate::object::{
    Attributes, FileShape, Identity, MODE_BITS, ObjectId, ObjectKind, Permission, at_path,
};
use crate::transaction::{Entry, FileChange, Settings, Step};
use crate::volume::records::RecordStore;

/// The most attempts at a transaction on names that others change meanwhile.
const ATTEMPTS_MAX: usize = 100;

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
    fn server_of(&self, path: &FilePath) -> usize {
        self.shape.names.server_of(path)
    }

    fn parent_of(&self, path: &FilePath, doing: &str) -> Result<FilePath> {
        let refused = || at_path(Kind::Schema, doing, path, "it is the root of the volume");
        path.parent().ok_or_else(refused)
    }

    /// The attributes of an object that this server keeps.
    pub(super) async fn stat(&self, path: &FilePath) -> Result<Attributes> {
        let _lock = self.lock_object(path, Intent::Read).await?;
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
        let _lock = self.lock_object(path, Intent::Change).await?;
        let namespace = self.namespace.borrow();
        let xref = namespace.find_xref(path)?;
        xref.allow(who, Permission::Read)?;
        Ok(namespace.entries(xref.id))
    }

    /// Makes a file or an Xref: an object here, and an entry in the Xref of its parent path, which
    /// must exist.
    pub(super) async fn create(&self, who: &Identity, new: NewObject) -> Result<Attributes> {
        let NewObject { path, mode, file } = new;
        let parent = match path.parent() {
            Some(parent) => parent,
            None => {
                let cause = "the root of the volume is there";
                return Err(at_path(Kind::Exists, "creating", &path, cause));
            }
        };
        let id = ObjectId::new(self.server, self.number().await?);
        let servers = self.caller.servers();
        let kind = match file {
            None => ObjectKind::Xref,
            Some((cells, bsu_bytes, base)) => {
                // A base that nobody has chosen is as good as random.
                let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let base = base.unwrap_or((mixed % servers as u64) as usize);
                let shape = FileShape {
                    cells,
                    bsu_bytes,
                    base,
                };
                shape.check(servers)?;
                ObjectKind::File(shape)
            }
        };
        let now = (self.clock)();
        let object = Attributes {
            id,
            kind,
            path: path.clone(),
            owner: who.user,
            group: who.group,
            mode: mode & MODE_BITS,
            created: now,
            accessed: now,
            changed: now,
            checkpoints: 0,
        };
        let mut plan = Plan::default();
        let entry = Entry {
            id,
            is_xref: kind == ObjectKind::Xref,
        };
        let name = path.name().to_string();
        plan.add(self.server, Step::Add(object.clone(), Vec::new()));
        let link = Step::Link {
            parent: parent.clone(),
            name,
            entry,
        };
        plan.add(self.server_of(&parent), link);
        self.direct(who, plan.0, None).await?;
        Ok(object)
    }

    /// Removes a file and all of its cells, or an empty Xref.
    pub(super) async fn remove(&self, who: &Identity, path: &FilePath) -> Result<Answer> {
        let parent = self.parent_of(path, "removing")?;
        undisturbed(async || {
            let object = self.stat(path).await?;
            let mut plan = Plan::default();
            let gone = Step::Drop {
                path: path.clone(),
                id: object.id,
                entries: Vec::new(),
                is_move: false,
            };
            plan.add(self.server, gone);
            let unlink = Step::Unlink {
                parent: parent.clone(),
                name: path.name().to_string(),
                id: object.id,
            };
            plan.add(self.server_of(&parent), unlink);
            let whole = match object.kind {
                ObjectKind::File(shape) => Some(WholeFile {
                    file: object.id,
                    owner: object.owner,
                    shape,
                    change: FileChange::Remove,
                }),
                ObjectKind::Xref => None,
            };
            self.direct(who, plan.0, whole).await
        })
        .await?;
        Ok(Answer::Done)
    }

    /// Gives an object another path, and with an Xref all that is below it. Cells stay where they
    /// are.
    pub(super) async fn rename(
        &self,
        who: &Identity,
        from: &FilePath,
        to: &FilePath,
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
        undisturbed(async || {
            let mut plan = Plan::default();
            let object = self.stat(from).await?;
            let entry = Entry {
                id: object.id,
                is_xref: object.kind == ObjectKind::Xref,
            };
            let unlink = Step::Unlink {
                parent: old_parent.clone(),
                name: from.name().to_string(),
                id: object.id,
            };
            plan.add(self.server_of(&old_parent), unlink);
            let link = Step::Link {
                parent: new_parent.clone(),
                name: to.name().to_string(),
                entry,
            };
            plan.add(self.server_of(&new_parent), link);
            self.plan_moves(object, (from, to), &mut plan).await?;
            self.direct(who, plan.0, None).await
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
                ObjectKind::File(_) => Vec::new(),
                ObjectKind::Xref => self.entries_of(&object.path).await?,
            };
            let below = entries.iter().map(|(name, _)| object.path.join(name));
            let below = stream::iter(below.collect::<Result<Vec<_>>>()?);
            let found = below.map(|path| self.object_at(path)).buffered(ASKED_MAX);
            waiting.extend(found.try_collect::<Vec<_>>().await?);
            let gone = Step::Drop {
                path: object.path.clone(),
                id: object.id,
                entries: entries.clone(),
                is_move: true,
            };
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
            Ok(_) => Err(unexpected()),
            Err(error) => Err(out_of_date(error)),
        }
    }

    async fn object_at(&self, path: FilePath) -> Result<Attributes> {
        let server = self.server_of(&path);
        let asked = Ask::Stat(path);
        match self.caller.ask(server, &nobody(), asked).await {
            Ok(Answer::Object(object)) => Ok(object),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(out_of_date(error)),
        }
    }

    /// Changes the mode, the owner or the group of an object.
    pub(super) async fn protect(
        &self,
        who: &Identity,
        path: &FilePath,
        (mode, owner, group): (Option<u16>, Option<u32>, Option<u32>),
    ) -> Result<Answer> {
        undisturbed(async || {
            let object = self.stat(path).await?;
            let settings = Settings {
                mode: mode.map(|mode| mode & MODE_BITS),
                owner,
                group,
                is_checkpoint: false,
                changed: (self.clock)(),
            };
            let whole = match (object.kind, owner) {
                (ObjectKind::File(shape), Some(owner)) => Some((shape, FileChange::GiveTo(owner))),
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
        undisturbed(async || {
            let object = self.stat(path).await?;
            let shape = object.shape()?;
            check_change(&object, change)?;
            let settings = Settings {
                is_checkpoint: change == FileChange::Checkpoint,
                changed: (self.clock)(),
                ..Settings::default()
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

/// Refuses a change of a file that makes no sense.
fn check_change(object: &Attributes, change: FileChange) -> Result<()> {
    let path = &object.path;
    match change {
        FileChange::RollBack if object.checkpoints == 0 => {
            let cause = "there is no checkpoint";
            Err(at_path(Kind::Missing, "rolling back", path, cause))
        }
        FileChange::Resize(bytes) if bytes > penstock_layout::view::CELL_BYTES_MAX => {
            let cause = format!("{bytes} bytes: a cell has 2^62 at most");
            Err(at_path(Kind::Schema, "resizing", path, cause))
        }
        FileChange::Remove | FileChange::GiveTo(_) => {
            let cause = "there is another request for that";
            Err(at_path(Kind::Schema, "changing a file", path, cause))
        }
        _ => Ok(()),
    }
}

/// Makes attempts at a transaction until others do not change its names meanwhile.
async fn undisturbed(attempt: impl AsyncFn() -> Result<()>) -> Result<()> {
    let mut attempts = 1;
    loop {
        match attempt().await {
            Err(error) if error.kind == Kind::Busy && attempts < ATTEMPTS_MAX => attempts += 1,
            ended => return ended,
        }
    }
}
