//! The parts of a server in transactions, and what is left of them after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, FutureExt, join, join_all, select};

use penstock_engine::blocks::{Claim, Intent};
use penstock_engine::encoding::decode;
use penstock_engine::{Error, Kind, Machine, NodeId, Result};
use rustc_hash::FxHashSet;

use super::losses::is_loss;
use super::schedule::Footprint;
use super::state::{Service, Task};
use crate::messages::{Answer, Ask, Errand, Token, refusal};
use crate::names::FilePath;
use crate::object::{
    Attributes, FileShape, Identity, ObjectId, ObjectKind, Permission, at_path, overtaken,
};
use crate::placement::Rings;
use crate::transaction::{FileChange, Step, TransactionId};
use crate::volume::cells::Version;
use crate::volume::moved::MovedPart;
use crate::volume::records::{self, Change, Key, RecordStore, put, remove};
use crate::volume::{BlockName, CellChange};

/// The numbers that a server reserves at a time.
const NUMBERS: u64 = 1 << 12;

/// The time after which a server asks the director of a transaction for the decision: far longer
/// than others take for their parts.
const DOUBT: Duration = Duration::from_secs(1);

/// A change of all cells of a file, as a part of a transaction.
#[derive(Clone, Copy)]
pub(super) struct WholeFile {
    pub(super) file: ObjectId,
    pub(super) owner: u32,
    pub(super) shape: FileShape,
    pub(super) change: FileChange,
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// A number for an object or a transaction that was never used.
    pub(super) async fn number(&self) -> Result<u64> {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        if number >= self.reserved.get() {
            let reserved = number + NUMBERS;
            self.reserved.set(reserved);
            self.volume
                .committer
                .commit([put(&Key::Numbers, &reserved)?])
                .await?;
        }
        Ok(number)
    }

    /// Takes in all records. Gives the parts of transactions that were prepared.
    pub(super) async fn load(&self) -> Result<Vec<(TransactionId, Vec<Step>)>> {
        let mut prepared: Vec<(TransactionId, Vec<Step>)> = Vec::new();
        for (key, value) in self.volume.committer.load().await? {
            let key = records::key(&key)?;
            let is_known = self.namespace.borrow_mut().take_record(&key, &value)?
                || self.volume.take_record(&key, &value)?;
            match key {
                Key::Numbers => self.numbers.set(decode(&value)?),
                Key::Prepared(id) => prepared.push((id, decode(&value)?)),
                Key::Decided(id) => drop(self.decided.borrow_mut().insert(id)),
                Key::Quota(user) => {
                    self.set_limit(user, Some(decode(&value)?))?;
                }
                Key::MovedAway(file) => {
                    let placement = decode(&value)?;
                    self.moved_away.borrow_mut().insert(file, placement);
                }
                Key::Keepers => *self.keepers.borrow_mut() = decode(&value)?,
                Key::Rings => *self.rings.borrow_mut() = Arc::new(decode(&value)?),
                _ if is_known => {}
                _ => {
                    return Err(Error::new(
                        Kind::Damaged,
                        "reading records",
                        "an unknown record",
                    ));
                }
            }
        }
        self.reserved.set(self.numbers.get());
        self.check_servers()?;
        self.volume.mark_places()?;
        for (_, steps) in &prepared {
            if let Some(changed) = changed_cells(steps) {
                self.volume.mark_apart(changed.come)?;
            }
        }
        Ok(prepared)
    }

    /// Refuses to serve when servers are missing that have a part of the volume.
    fn check_servers(&self) -> Result<()> {
        let all = self.caller.servers();
        let kept = self.keepers.borrow();
        let kept = kept.slots().iter().map(|slot| slot.server);
        let last = self.rings().last_server().max(kept.max().unwrap_or(0));
        if last < all {
            return Ok(());
        }
        let cause = format!("it has server {last}, and only {all} servers are there");
        Err(Error::new(Kind::Schema, "opening a volume", cause))
    }

    /// Ends what a crash has left: carries out what was decided, and undoes what was not. Clients
    /// are served before the directors of all transactions have answered: what these are about
    /// is locked until then.
    pub(super) async fn recover(&self, prepared: Vec<(TransactionId, Vec<Step>)>) {
        let (own, others): (Vec<_>, Vec<_>) = prepared
            .into_iter()
            .partition(|(id, _)| id.server == self.server);
        let recovered = async {
            let root = FilePath::root();
            let is_here = self.keeps(&root);
            if is_here && self.namespace.borrow().find(&root).is_err() {
                self.make_root(root).await?;
            }
            for (id, steps) in own {
                let is_decided = self.decided.borrow().contains(&id);
                self.end_part(id, &steps, (is_decided, true)).await?;
            }
            for (_, steps) in &others {
                self.prepare_again(steps).await?;
            }
            // What needs a server that is not there then fails.
            let members = self.members().into_iter();
            let nodes = members.filter_map(|server| self.shape.servers.node(server));
            join_all(nodes.map(|node| self.reach(node))).await;
            Ok::<(), Error>(())
        };
        if let Err(error) = recovered.await {
            *self.failed.borrow_mut() = Some(error);
            return;
        }
        let doubtful = others.into_iter().map(|(id, steps)| {
            let place = match &steps[..] {
                [Step::Cells { file, .. }] => Some(self.schedule(*file).enter(Footprint::All)),
                _ => None,
            };
            // Nobody has a lock yet, and no two of these parts need the same.
            let locks = self.lock(&steps).now_or_never();
            self.awaited.borrow_mut().insert(id, steps.clone());
            async move {
                self.await_decision(id, &steps, true, true).await;
                if let Some(&Step::Cells { file, .. }) = steps.first() {
                    self.volume.unreserve(file, |_, _| true);
                }
                drop((locks, place));
            }
        });
        let doubtful: Vec<_> = doubtful.collect();
        self.is_ready.set(true);
        join(join_all(doubtful), self.forget_decided()).await;
    }

    /// Reserves again what a part of a transaction was promised before a crash: when it is decided,
    /// it can be done.
    async fn prepare_again(&self, steps: &[Step]) -> Result<()> {
        match changed_cells(steps) {
            Some(changed) => self.prepare_tails(changed.file, &changed.ends).await,
            None => Ok(()),
        }
    }

    /// Whether a transaction of this server was decided; nothing as long as it is under way.
    pub(super) fn was_decided(&self, id: TransactionId) -> Option<bool> {
        let is_decided = self.decided.borrow().contains(&id);
        (is_decided || !self.directed.borrow().contains(&id)).then_some(is_decided)
    }

    /// Forgets the decisions of before the start, and of before a server was lost, when all servers
    /// have carried them out.
    pub(super) async fn forget_decided(&self) {
        let ids: Vec<_> = {
            let directed = self.directed.borrow();
            let decided = self.decided.borrow();
            decided.difference(&directed).copied().collect()
        };
        for id in ids {
            let told = self.members().into_iter().map(|server| {
                let decide = Ask::Decide(id, true);
                async move { self.caller.ask(server, &nobody(), decide).await }
            });
            let is_done = join_all(told).await.iter().all(Result::is_ok);
            if is_done
                && self.decided.borrow_mut().remove(&id)
                && let Ok(change) = remove(&Key::Decided(id))
            {
                self.volume.committer.add([change]);
            }
        }
    }

    async fn make_root(&self, root: FilePath) -> Result<()> {
        let settings = (self.shape.owner, 0, 0o755);
        let (id, kind) = (ObjectId::ROOT, ObjectKind::Xref);
        let object = Attributes::new(id, kind, root, settings, (self.clock)());
        let change = self.namespace.borrow_mut().put(object)?;
        self.volume.committer.commit([change]).await
    }

    /// Directs a transaction: steps on servers, and perhaps a change of all cells of a file.
    ///
    /// # Errors
    /// The reason why a server refuses its part, or is lost. Nothing has then been changed, or will
    /// be: a server that is lost after the decision carries it out when it is back.
    pub(super) async fn direct(
        &self,
        who: &Identity,
        steps: BTreeMap<usize, Vec<Step>>,
        whole: Option<WholeFile>,
    ) -> Result<()> {
        let (mut own, mut locks, mut told) = (Vec::new(), Locks::default(), Vec::new());
        let mut voted = Ok(());
        // Servers take their parts in one order, so that no two transactions wait for each other's
        // locks.
        for (server, steps) in steps {
            voted = match server == self.server {
                true => {
                    own = steps;
                    match self.lock(&own).await {
                        Ok(all) => {
                            locks = all;
                            self.check_steps(who, &own)
                        }
                        Err(error) => Err(error),
                    }
                }
                false => self.prepare(server, who, steps, &mut told).await,
            };
            if voted.is_err() {
                break;
            }
        }
        if let Some(whole) = whole.filter(|_| voted.is_ok()) {
            let prepared = self.prepare_whole(whole, &mut told).await;
            voted = match (prepared, whole.change) {
                (Ok(id), FileChange::Move(placement)) => {
                    self.let_take_all(whole, placement, id).await
                }
                (prepared, _) => prepared.map(|_| ()),
            };
        }
        if voted.is_ok() {
            self.decide(&own, &told).await?;
        }
        let is_decided = voted.is_ok();
        for (_, id) in told.iter().filter(|_| !is_decided) {
            self.directed.borrow_mut().remove(id); // who asks now hears that it is undone
        }
        let decide = told.iter().map(|&(server, id)| async move {
            let decide = Ask::Decide(id, is_decided);
            self.caller.ask(server, who, decide).await
        });
        let done = join_all(decide).await;
        drop(locks);
        voted?;
        let is_kept = done.iter().any(Result::is_err);
        let ended = self.end_decided(&told, done);
        if is_kept {
            self.forget_decided().await; // who was lost may be back already
        }
        ended
    }

    /// Forgets transactions that have been carried out. What a server that is lost has not carried
    /// out is kept until it is back.
    fn end_decided(
        &self,
        told: &[(usize, TransactionId)],
        done: Vec<Result<Answer>>,
    ) -> Result<()> {
        let (mut ended, mut kept) = (Ok(()), BTreeSet::new());
        for (done, (_, id)) in done.into_iter().zip(told) {
            if let Err(error) = done {
                kept.insert(*id);
                if !is_loss(&error) {
                    ended = ended.and(Err(error));
                }
            }
        }
        for (_, id) in told {
            self.directed.borrow_mut().remove(id);
            if !kept.contains(id) && self.decided.borrow_mut().remove(id) {
                self.volume.committer.add([remove(&Key::Decided(*id))?]);
            }
        }
        ended
    }

    /// Lets another server prepare its steps.
    async fn prepare(
        &self,
        server: usize,
        who: &Identity,
        steps: Vec<Step>,
        told: &mut Vec<(usize, TransactionId)>,
    ) -> Result<()> {
        let id = self.new_transaction().await?;
        let asked = Ask::Prepare(id, steps);
        match self.caller.ask(server, who, asked).await {
            Ok(_) => told.push((server, id)),
            Err(error) => {
                self.directed.borrow_mut().remove(&id); // if it has prepared after all, it asks
                return Err(error);
            }
        }
        Ok(())
    }

    /// Does this server's own steps, together with the decision that others are to do theirs. If
    /// others wait for it and the records fail, nobody knows what is decided: the server ends.
    async fn decide(&self, own: &[Step], told: &[(usize, TransactionId)]) -> Result<()> {
        let ids: BTreeSet<TransactionId> = told.iter().map(|&(_, id)| id).collect();
        let decided = async {
            let mut changes = self.do_steps(own)?;
            for id in &ids {
                changes.push(put(&Key::Decided(*id), &())?);
            }
            self.volume.committer.commit(changes).await?;
            self.decided.borrow_mut().extend(&ids); // now others may know
            Ok::<(), Error>(())
        };
        decided.await.inspect_err(|error| {
            if !told.is_empty() {
                *self.failed.borrow_mut() = Some(error.clone());
            }
        })
    }

    async fn new_transaction(&self) -> Result<TransactionId> {
        let id = TransactionId {
            server: self.server,
            number: self.number().await?,
        };
        self.directed.borrow_mut().insert(id);
        Ok(id)
    }

    /// Sends a change of a whole file to all of its servers, in the order of its requests, and
    /// waits until each is ready for it. A file that moves has servers that get cells, too.
    async fn prepare_whole(
        &self,
        whole: WholeFile,
        told: &mut Vec<(usize, TransactionId)>,
    ) -> Result<TransactionId> {
        let shape = whole.shape;
        let (turns, servers) = match whole.change {
            FileChange::Move(placement) => self.way_of(&[shape, FileShape { placement, ..shape }]),
            _ => self.way_of(&[shape]),
        }?;
        let id = self.new_transaction().await?;
        told.extend(servers.iter().map(|&server| (server, id)));
        let token = |ticket| Token {
            file: whole.file,
            base: shape.base,
            placement: shape.placement,
            life: 0,
            number: 0,
            turns,
            from: self.machine.me(),
            request: ticket,
            errand: Errand::Change {
                id,
                owner: whole.owner,
                shape,
                change: whole.change,
            },
        };
        let votes = self.ask_by_token(servers, token).await?;
        votes.into_iter().collect::<Result<Vec<_>>>().map(|_| id)
    }

    /// Takes part in a transaction whose steps have come by themselves: prepares them, and waits
    /// for the decision.
    pub(super) async fn take_part(
        &self,
        from: NodeId,
        ticket: u64,
        who: Identity,
        id: TransactionId,
        steps: Vec<Step>,
    ) {
        let who = self.shape.known(who);
        let locks = self.lock(&steps).await;
        let prepared = async {
            locks.as_ref().map_err(Error::clone)?;
            self.check_steps(&who, &steps)?;
            let prepared = put(&Key::Prepared(id), &steps)?;
            self.volume.committer.commit([prepared]).await
        };
        self.vote_and_end((from, ticket), id, &steps, prepared.await)
            .await;
    }

    /// Tells the director whether this server is ready, and if so, does what the director decides.
    async fn vote_and_end(
        &self,
        (director, ticket): (NodeId, u64),
        id: TransactionId,
        steps: &[Step],
        prepared: Result<()>,
    ) {
        let is_prepared = prepared.is_ok();
        // A change of a whole file is decided for all servers at once, whatever each has said.
        let is_whole = matches!(steps, [Step::Cells { .. }]);
        let awaits = is_prepared || is_whole;
        if awaits {
            self.awaited.borrow_mut().insert(id, steps.to_vec());
        }
        let vote = prepared.map(|()| Answer::Done);
        // A director that is lost is asked when it is back.
        self.reach(director).await;
        let _ = self.caller.reply(director, ticket, &vote, None).await;
        if awaits {
            self.await_decision(id, steps, is_prepared, false).await;
        }
    }

    /// Waits for the decision of a transaction, and does what is decided. `is_late` says that the
    /// director may have told of it before.
    async fn await_decision(
        &self,
        id: TransactionId,
        steps_before: &[Step],
        is_prepared: bool,
        is_late: bool,
    ) {
        let Some(is_decided) = self.decision(id, is_late).await else {
            return; // it stays in doubt until the server starts again
        };
        // Cells that come from other servers have been added to the steps since.
        let steps = self.awaited.borrow().get(&id).cloned();
        let steps = steps.as_deref().unwrap_or(steps_before);
        let ended = self.end_part(id, steps, (is_decided, is_prepared)).await;
        self.awaited.borrow_mut().remove(&id);
        let told = self.decisions.borrow_mut().remove(&id);
        self.heard.tell();
        match (told, ended) {
            (Some((_, askers)), ended) => {
                let answer = ended.map(|()| Answer::Done);
                for (from, ticket) in askers {
                    let _ = self.caller.reply(from, ticket, &answer, None).await;
                }
            }
            (None, Err(error)) => *self.failed.borrow_mut() = Some(error), // nobody hears of it
            (None, Ok(())) => {}
        }
    }

    /// The decision of a transaction: the director tells it, or is asked when it has not for a
    /// while, or when a server is back. Nothing if this server is stopped while the director is
    /// lost.
    async fn decision(&self, id: TransactionId, mut is_late: bool) -> Option<bool> {
        if self.undone.borrow_mut().remove(&id) {
            return Some(false);
        }
        loop {
            let joins = self.joins.get();
            let heard = self.heard.until(|| {
                let told = self.decisions.borrow().get(&id).map(|told| told.0);
                let is_over = self.is_stopped.get() && self.missing(id.server).is_some();
                let is_changed = is_over || self.joins.get() != joins;
                told.map(Some).or(is_changed.then_some(None))
            });
            let time = match std::mem::take(&mut is_late) {
                true => Duration::ZERO,
                false => DOUBT,
            };
            let waited = pin!(self.machine.wait(time));
            if let Either::Left((Some(is_decided), _)) = select(pin!(heard), waited).await {
                return Some(is_decided);
            }
            let asked = Ask::WasDecided(id);
            match self.caller.ask(id.server, &nobody(), asked).await {
                Ok(Answer::Decided(Some(is_decided))) => return Some(is_decided),
                _ if self.is_stopped.get() && self.missing(id.server).is_some() => return None,
                _ => {}
            }
        }
    }

    /// Carries out a part of a transaction, or undoes it if it was prepared.
    async fn end_part(
        &self,
        id: TransactionId,
        steps: &[Step],
        (is_decided, is_prepared): (bool, bool),
    ) -> Result<()> {
        match (is_decided, is_prepared) {
            (true, _) => self.carry_out(id, steps).await,
            (false, true) => {
                let undone = remove(&Key::Prepared(id))?;
                self.volume.committer.commit([undone]).await?;
                if let Some(changed) = changed_cells(steps) {
                    self.volume.free_apart(changed.come.places());
                }
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }

    /// Gives the change of a whole file its place in the order of the file's requests.
    pub(super) fn place_change(&self, token: &Token) -> Task<'_> {
        let (file, director) = (token.file, (token.from, token.request));
        let place = self.schedule(file).enter(Footprint::All);
        let errand = token.errand.clone();
        Box::pin(async move {
            let Errand::Change {
                id,
                owner,
                shape,
                change,
            } = errand
            else {
                return;
            };
            let turn = self.turn_of(&place, file).await;
            let rings = self.rings();
            let dealing = shape.dealing(&rings);
            let cells = dealing.map(|dealing| dealing.cells_of(self.server));
            let cells: Vec<u64> = cells.into_iter().flatten().collect();
            let steps = [Step::Cells {
                file,
                owner,
                shape,
                change,
                cells: cells.clone(),
                come: MovedPart::default(),
            }];
            let ends = ends_of(change, &cells, &shape);
            let prepared = async {
                turn?;
                self.save(file).await?;
                self.prepare_tails((file, owner), &ends).await?;
                let prepared = put(&Key::Prepared(id), &steps[..].to_vec())?;
                self.volume.committer.commit([prepared]).await
            };
            self.vote_and_end(director, id, &steps, prepared.await)
                .await;
            // Nobody else uses the file: these are places for a resize that is not done.
            self.volume.unreserve(file, |_, _| true);
        })
    }

    /// Locks the slots and objects that steps are about, in the order of their numbers and paths.
    ///
    /// # Errors
    /// The loss of a director whose transaction must end before.
    async fn lock(&self, steps: &[Step]) -> Result<Locks<'_>> {
        let mut slots: BTreeMap<usize, bool> = BTreeMap::new();
        for step in steps {
            if let Step::Keep { slot, .. } = step {
                slots.insert(*slot, true);
            } else if let Some((path, _)) = step.lock().filter(|_| step.members().is_none()) {
                slots.entry(self.shape.names.slot_of(path)).or_default();
            }
        }
        let mut locks = Locks::default();
        for (slot, is_alone) in slots {
            let intent = match is_alone {
                true => Intent::Change,
                false => Intent::Read,
            };
            locks.slots.push(self.lock_slot(slot, intent).await?);
        }
        let mut wanted: BTreeMap<&FilePath, bool> = BTreeMap::new();
        for (path, is_alone) in steps.iter().filter_map(Step::lock) {
            *wanted.entry(path).or_default() |= is_alone;
        }
        for (path, is_alone) in wanted {
            let intent = match is_alone {
                true => Intent::Change,
                false => Intent::Read,
            };
            locks.paths.push(self.lock_object(path, intent).await?);
        }
        self.await_entries(steps).await?;
        Ok(locks)
    }

    /// Refuses steps that cannot be done. Their objects are locked.
    fn check_steps(&self, who: &Identity, steps: &[Step]) -> Result<()> {
        let namespace = self.namespace.borrow();
        let dropped = steps.iter().filter_map(|step| match step {
            Step::Drop { path, .. } => Some(path),
            _ => None,
        });
        let dropped: FxHashSet<&FilePath> = dropped.collect();
        let unlinked = steps.iter().filter_map(|step| match step {
            Step::Unlink { parent, name, .. } => Some((parent, name)),
            _ => None,
        });
        let unlinked: FxHashSet<(&FilePath, &String)> = unlinked.collect();
        let come = steps.iter().find_map(|step| match step {
            Step::Keep { slot, to, .. } if *to == self.server => Some(*slot),
            _ => None,
        });
        let is_new = |step: &Step| matches!(step, Step::Come { is_new: true, .. });
        let is_new = steps.iter().any(is_new);
        for step in steps {
            if let Some(all) = step.members() {
                if !is_new && self.members() != all.servers {
                    let cause = "servers come or go meanwhile: try again";
                    return Err(Error::new(Kind::Busy, "changing a volume", cause));
                }
            } else if let Some((path, _)) = step.lock()
                && !self.keeps(path)
                && Some(self.shape.names.slot_of(path)) != come
            {
                return Err(overtaken("looking for", path));
            }
            match step {
                Step::Add(object, _) if dropped.contains(&object.path) => {}
                Step::Add(object, _) => namespace.check_free(&object.path)?,
                Step::Change {
                    path,
                    id,
                    placement,
                    settings,
                } => {
                    let object = namespace.find(path)?;
                    check_same(object, *id)?;
                    if object.placement() != *placement {
                        return Err(overtaken("changing", path));
                    }
                    let new = &settings.new;
                    match new.are_the_owners() {
                        true => object.allow_owner(who, "protecting")?,
                        false => object.allow(who, Permission::Write)?,
                    }
                    let refused = |cause| Err(at_path(Kind::ReadOnly, "protecting", path, cause));
                    if who.may_all() {
                        continue;
                    }
                    if new.owner.is_some_and(|owner| owner != object.owner) {
                        return refused("only the owner of the volume may give objects away");
                    }
                    let is_own = |group| who.group == group || who.groups.contains(&group);
                    if new
                        .group
                        .is_some_and(|group| group != object.group && !is_own(group))
                    {
                        return refused("its user is not in that group");
                    }
                }
                Step::Drop {
                    path,
                    id,
                    changed,
                    placement,
                    entries,
                    is_move,
                } => {
                    let found = namespace.find(path);
                    let found = match *is_move {
                        true => found.map_err(out_of_date)?,
                        false => found?,
                    };
                    check_same(found, *id)?;
                    let is_changed = *is_move && found.changed != *changed;
                    if found.placement() != *placement || is_changed {
                        return Err(overtaken("removing", path));
                    }
                    let found = namespace.entries(*id);
                    if found != *entries {
                        let cause = format!("the directory has {} entries", found.len());
                        return Err(match *is_move {
                            true => overtaken("renaming", path),
                            false => at_path(Kind::Exists, "removing", path, cause),
                        });
                    }
                }
                Step::Link { parent, name, .. } => {
                    let xref = namespace.find_xref(parent)?;
                    xref.allow(who, Permission::Write)?;
                    let is_free = unlinked.contains(&(parent, name));
                    if !is_free && namespace.entry(xref.id, name).is_some() {
                        let cause = format!("{name:?} is listed already");
                        return Err(at_path(Kind::Exists, "listing", parent, cause));
                    }
                }
                Step::Unlink {
                    parent,
                    name,
                    id,
                    owner,
                } => {
                    let doing = "removing an entry of";
                    let xref = namespace.find_xref(parent)?;
                    xref.allow_removal(who, *owner)?;
                    match namespace.entry(xref.id, name) {
                        Some(entry) if entry.id == *id => {}
                        Some(_) => return Err(overtaken(doing, parent)),
                        None => {
                            let cause = format!("{name:?} is not listed");
                            return Err(at_path(Kind::Missing, doing, parent, cause));
                        }
                    }
                }
                Step::Cells { .. } => return Err(refusal("cells change by tokens")),
                Step::Place {
                    path, id, former, ..
                } => {
                    let object = namespace.find(path).map_err(out_of_date)?;
                    check_same(object, *id)?;
                    if object.placement() != Some(*former) {
                        return Err(overtaken("moving", path));
                    }
                }
                Step::Keep {
                    slot,
                    from,
                    to,
                    all,
                    ..
                } => {
                    let is_kept =
                        self.keepers.borrow().server(*slot) == *from && all.servers.contains(to);
                    let in_slot = || {
                        let paths = namespace.objects().map(|object| &object.path);
                        paths.filter(|path| self.shape.names.slot_of(path) == *slot)
                    };
                    let goes = |path: &FilePath| dropped.contains(path);
                    if !is_kept || *from == self.server && !in_slot().all(goes) {
                        let cause = "its names change all the time: try again";
                        return Err(Error::new(Kind::Busy, "moving a slot", cause));
                    }
                }
                Step::Ring { .. } | Step::Come { .. } | Step::Retire { .. } => {
                    self.check_rings(who, step, steps)?;
                }
                Step::Limit { .. } if !who.may_all() => {
                    let cause = "only the owner of the volume may set quotas";
                    return Err(Error::new(Kind::ReadOnly, "setting a quota", cause));
                }
                Step::Limit { .. } => {}
            }
        }
        Ok(())
    }

    /// Refuses a step about the rings of the volume that cannot be done.
    fn check_rings(&self, who: &Identity, step: &Step, steps: &[Step]) -> Result<()> {
        let refused = |kind, cause| Err(Error::new(kind, "making a ring of servers", cause));
        if !who.may_all() {
            return refused(Kind::ReadOnly, "only the owner of the volume may");
        }
        match step {
            Step::Ring { ring, .. } => {
                let come = steps.iter().find_map(|step| match step {
                    Step::Come { rings, is_new, .. } if *is_new => Some(rings.newest()),
                    _ => None,
                });
                if *ring != come.unwrap_or_else(|| self.rings().newest()) + 1 {
                    return refused(Kind::Busy, "another one is being made: try again");
                }
            }
            Step::Come {
                rings,
                keepers,
                quotas,
                is_new,
                ..
            } => {
                let is_same = *self.rings() == *rings
                    && *self.keepers.borrow() == *keepers
                    && *self.quotas.borrow() == *quotas;
                if !is_new && !is_same {
                    return refused(Kind::Busy, "slots have moved meanwhile: try again");
                }
            }
            Step::Retire { ring, .. } => {
                let namespace = self.namespace.borrow();
                let mut placements = namespace.objects().filter_map(Attributes::placement);
                if placements.any(|placement| placement.former < *ring) {
                    return refused(Kind::Busy, "a file is in another ring still: try again");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Does steps about names in memory, and gives the changes of records.
    fn do_steps(&self, steps: &[Step]) -> Result<Vec<Change>> {
        let (mut namespace, now) = (self.namespace.borrow_mut(), (self.clock)());
        let mut changes = Vec::new();
        // What goes makes room for what comes.
        let (gone, others): (Vec<_>, Vec<_>) = steps
            .iter()
            .partition(|step| matches!(step, Step::Drop { .. } | Step::Unlink { .. }));
        for step in gone.into_iter().chain(others) {
            match step {
                Step::Add(object, entries) => {
                    for (name, entry) in entries {
                        changes.push(namespace.link(object.id, name, *entry)?);
                    }
                    changes.push(namespace.put(object.clone())?);
                }
                Step::Change { path, settings, .. } => {
                    let mut object = namespace.find(path)?.clone();
                    settings.clone().apply(&mut object);
                    if let Some(meter) = &self.meter {
                        meter.note_owner(object.id, object.owner);
                    }
                    changes.push(namespace.put(object)?);
                }
                Step::Drop { path, .. } => {
                    if let (Some(meter), Ok(object)) = (&self.meter, namespace.find(path)) {
                        meter.forget_path(object.id);
                    }
                    changes.extend(namespace.remove(path)?);
                }
                Step::Link {
                    parent,
                    name,
                    entry,
                } => {
                    let xref = namespace.find_xref(parent)?.id;
                    changes.push(namespace.link(xref, name, *entry)?);
                    changes.push(namespace.touch(parent, now)?);
                }
                Step::Unlink { parent, name, .. } => {
                    let xref = namespace.find_xref(parent)?.id;
                    changes.push(namespace.unlink(xref, name)?);
                    changes.push(namespace.touch(parent, now)?);
                }
                Step::Limit { user, blocks, .. } => changes.push(self.set_limit(*user, *blocks)?),
                Step::Cells { .. } => {}
                Step::Place {
                    path, placement, ..
                } => {
                    let mut object = namespace.find(path)?.clone();
                    self.attachments.borrow_mut().move_to(object.id, *placement);
                    if let ObjectKind::File(shape) = &mut object.kind {
                        shape.placement = *placement;
                    }
                    changes.push(namespace.put(object)?);
                }
                Step::Keep {
                    slot,
                    from,
                    to,
                    attached,
                    ..
                } => {
                    let mut keepers = self.keepers.borrow_mut();
                    keepers.move_to(*slot, *to);
                    changes.push(put(&Key::Keepers, &*keepers)?);
                    let mut attachments = self.attachments.borrow_mut();
                    if *from == self.server {
                        attachments.hand_over(attached);
                    } else if *to == self.server {
                        attachments.take_in(attached);
                    }
                }
                Step::Come { is_new: false, .. } => {}
                Step::Come {
                    rings,
                    keepers,
                    quotas,
                    ..
                } => {
                    changes.push(put(&Key::Keepers, keepers)?);
                    *self.keepers.borrow_mut() = keepers.clone();
                    changes.push(self.set_rings(rings.clone())?);
                    let former: Vec<u32> = self.quotas.borrow().keys().copied().collect();
                    for user in former {
                        changes.push(self.set_limit(user, None)?);
                    }
                    for (&user, &blocks) in quotas {
                        changes.push(self.set_limit(user, Some(blocks))?);
                    }
                }
                Step::Ring { servers, .. } => {
                    let rings = self.rings().with(servers.clone().into());
                    changes.push(self.set_rings(rings)?);
                }
                Step::Retire { ring, .. } => {
                    let mut rings = (*self.rings()).clone();
                    rings.retire_before(*ring);
                    changes.push(self.set_rings(rings)?);
                    for (file, _) in self.moved_away.take() {
                        changes.push(remove(&Key::MovedAway(file))?);
                    }
                }
            }
        }
        Ok(changes)
    }

    /// Notes the rings of the volume in memory, and gives the change of records.
    fn set_rings(&self, rings: Rings) -> Result<Change> {
        let change = put(&Key::Rings, &rings)?;
        *self.rings.borrow_mut() = Arc::new(rings);
        Ok(change)
    }

    /// Carries out a part of a transaction that was decided.
    async fn carry_out(&self, id: TransactionId, steps: &[Step]) -> Result<()> {
        let mut changes = self.do_steps(steps)?;
        changes.push(remove(&Key::Prepared(id))?);
        match changed_cells(steps) {
            Some(changed) => self.change_cells(changed, changes).await,
            None => self.volume.committer.commit(changes).await,
        }
    }

    /// Changes the cells of a file on this server, and commits that together with other changes.
    async fn change_cells(&self, changed: ChangedCells<'_>, mut others: Vec<Change>) -> Result<()> {
        let ChangedCells {
            file,
            shape,
            change,
            ends,
            come,
        } = changed;
        let (id, _) = file;
        if change.is_resize() {
            self.clear_tails(file, &ends).await?;
        }
        let cell_change = match change {
            FileChange::Checkpoint => CellChange::Checkpoint,
            FileChange::RollBack => CellChange::RollBack,
            FileChange::Resize(_) | FileChange::Truncate(_) => CellChange::Resize(ends),
            FileChange::GiveTo(user) => CellChange::GiveTo(user),
            FileChange::Move(placement) => {
                let (stays, change) = self.note_move(id, shape, placement)?;
                others.push(change);
                CellChange::Move {
                    placement,
                    gone: self.leaving_cells(&shape, placement)?,
                    come: come.clone(),
                    stays,
                }
            }
            FileChange::Remove => CellChange::Remove,
        };
        let is_kept = |name: &BlockName| name.version == Version::Checkpoint;
        match change {
            FileChange::Checkpoint => {
                let is_gone = |name: &BlockName| name.file == id && is_kept(name);
                self.blocks.discard_all(is_gone);
            }
            FileChange::RollBack | FileChange::Resize(_) | FileChange::Truncate(_) => {
                let is_gone = |name: &BlockName| name.file == id && !is_kept(name);
                self.blocks.discard_all(is_gone);
            }
            FileChange::Remove => {
                self.removed.borrow_mut().insert(id);
                self.blocks.discard_all(|name| name.file == id);
                if let Some(meter) = &self.meter {
                    meter.forget_file(id);
                }
            }
            FileChange::Move(_) => self.blocks.discard_all(|name| name.file == id),
            FileChange::GiveTo(user) => {
                if let Some(meter) = &self.meter {
                    meter.note_owner(id, user);
                }
            }
        }
        self.volume.apply(file, &cell_change, others).await
    }

    /// The last blocks of cells that are cut off within a block, each with the bytes of it that are
    /// left.
    fn tails(&self, file: ObjectId, ends: &CellEnds) -> Vec<(BlockName, u64)> {
        let block_bytes = self.volume.block_bytes();
        let is_cut = |cell: u64, bytes: u64| {
            let end = self.volume.cell_bytes(file, cell, Version::Active);
            !bytes.is_multiple_of(block_bytes) && end.unwrap_or(0) > bytes
        };
        let cut = ends.iter().filter(|&(&cell, &bytes)| is_cut(cell, bytes));
        let tails = cut.map(|(&cell, &bytes)| {
            let name = BlockName {
                file,
                version: Version::Active,
                cell,
                block: bytes / block_bytes,
            };
            (name, bytes % block_bytes)
        });
        tails
            .filter(|(name, _)| self.volume.is_stored(name))
            .collect()
    }

    /// Brings in the last blocks of cells that are to be cut off within a block, each with a place
    /// for what is left of it: when a resize is decided, it can be done.
    async fn prepare_tails(&self, file: (ObjectId, u32), ends: &CellEnds) -> Result<()> {
        for (name, _) in self.tails(file.0, ends) {
            let (claim, _) = self.bring_in_changed(file, &name, false).await?;
            self.blocks.release(claim);
        }
        Ok(())
    }

    /// Clears what lies behind the new end of cells in their last blocks: if the cells grow again,
    /// that is zero.
    async fn clear_tails(&self, file: (ObjectId, u32), ends: &CellEnds) -> Result<()> {
        let block_bytes = self.volume.block_bytes();
        for (name, within) in self.tails(file.0, ends) {
            let zeros = self.machine.buffer(block_bytes)?;
            self.machine.clear(&zeros, block_bytes, &[]);
            let (claim, cached) = self.bring_in_changed(file, &name, false).await?;
            let tail = self.machine.cut(&zeros, within..block_bytes);
            self.machine.paste(&tail, &cached, within);
            self.blocks.change(&name, block_bytes - within);
            self.blocks.release(claim);
            self.blocks.write_back(&name).await;
        }
        self.volume.check(file.0)
    }
}

/// The bytes up to the end of cells.
type CellEnds = BTreeMap<u64, u64>;

/// The locks of a transaction on a server.
#[derive(Default)]
struct Locks<'a> {
    slots: Vec<Claim<'a, usize>>,
    paths: Vec<Claim<'a, FilePath>>,
}

/// A change of the cells of a file on a server.
struct ChangedCells<'a> {
    /// The file, and its owner.
    file: (ObjectId, u32),
    shape: FileShape,
    change: FileChange,
    /// The new ends of cells.
    ends: CellEnds,
    /// The cells that come from other servers.
    come: &'a MovedPart,
}

/// The change of a whole file, if steps are that.
fn changed_cells(steps: &[Step]) -> Option<ChangedCells<'_>> {
    match steps {
        [
            Step::Cells {
                file,
                owner,
                shape,
                change,
                cells,
                come,
            },
        ] => Some(ChangedCells {
            file: (*file, *owner),
            shape: *shape,
            change: *change,
            ends: ends_of(*change, cells, shape),
            come,
        }),
        _ => None,
    }
}

/// The new ends of cells, if a change gives them any.
fn ends_of(change: FileChange, cells: &[u64], shape: &FileShape) -> CellEnds {
    let ends = cells.iter();
    ends.filter_map(|&cell| Some((cell, change.end_of(cell, shape)?)))
        .collect()
}

/// Refuses an object that has come in the place of another.
fn check_same(object: &Attributes, id: ObjectId) -> Result<()> {
    match object.id == id {
        true => Ok(()),
        false => Err(overtaken("changing", &object.path)),
    }
}

/// An object that is missing when its steps are planned or checked makes them out of date.
pub(super) fn out_of_date(error: Error) -> Error {
    match error.kind {
        Kind::Missing => Error {
            kind: Kind::Busy,
            ..error
        },
        _ => error,
    }
}

/// The identity of the servers themselves.
pub(super) fn nobody() -> Identity {
    Identity::new(0, 0, Vec::new())
}
