//! Files move to other servers, a few cells at a time, while they are used.
//!
//! The server that keeps a file's object directs. First the servers to which cells go take over
//! what there is, and everybody uses the file meanwhile. Then, in one transaction in the order of
//! the file's requests, they take over what has changed since then, and from its end on the cells
//! are theirs:
//!
//! ```text
//! keeper   Take ->           token: nobody else uses the file | Take ->        | decided
//! from     blocks ->                                          | blocks ->      | cells go
//! to       stored apart                                       | prepared       | cells come
//! ```
//!
//! A block is taken over again if its place or its checksum has changed. What was stored apart and
//! not prepared is nobody's after a crash. Clients that have not heard of the move are told when
//! they ask a server that has had a part in it. A server without cells of the file remembers that
//! until no file is in an older ring.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use penstock_engine::blocks::{Home, Intent};
use penstock_engine::{Error, Kind, Machine, NodeId, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::namespace::Namespace;
use super::state::Service;
use super::steps::{WholeFile, nobody};
use super::taken::Taken;
use crate::caller::unexpected;
use crate::messages::{Answer, Ask, refusal};
use crate::names::FilePath;
use crate::object::{Attributes, FileShape, Identity, ObjectId, at_path};
use crate::placement::{Placement, dealt};
use crate::transaction::{FileChange, Members, Step, TransactionId};
use crate::volume::BlockName;
use crate::volume::cells::{LEAF_BLOCKS, Leaf, Stored};
use crate::volume::moved::{Leaves, MovedCell, MovedPart};
use crate::volume::records::{Change, Key, RecordStore, put, remove};

/// The most cells that go to other servers at a time, and the most that a file's placement passes.
const CELLS_MAX: u64 = 64;
const PASSED_MAX: u64 = 1 << 16;

/// The number of times that servers take over what there is before they do so alone. Each time
/// less has changed.
const ROUNDS: usize = 3;

/// The leaves that are asked for at once, and the blocks.
const LEAVES: usize = 16;
const BLOCKS: usize = 8;

/// A file gets another placement.
#[derive(Clone, Copy)]
struct FileMove {
    file: ObjectId,
    shape: FileShape,
    placement: Placement,
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Gives the volume a ring.
    pub(super) async fn add_ring(&self, who: &Identity, mut servers: Vec<usize>) -> Result<Answer> {
        servers.sort_unstable();
        servers.dedup();
        let all = self.caller.servers();
        if servers.is_empty() || servers.iter().any(|&server| server >= all) {
            let cause = format!("of {all} servers some must be in it, and no others");
            return Err(Error::new(Kind::Schema, "making a ring of servers", cause));
        }
        self.undisturbed(None, async || {
            let (ring, steps) = self.plan_ring(&servers);
            self.direct(who, steps, None).await?;
            Ok(Answer::Value(u64::from(ring)))
        })
        .await
    }

    /// The steps by which the volume gets a ring.
    fn plan_ring(&self, servers: &[usize]) -> (u32, BTreeMap<usize, Vec<Step>>) {
        let (rings, all) = (self.rings(), self.all());
        let ring = rings.newest() + 1;
        let keepers = self.keepers.borrow().clone();
        let come = |is_new| Step::Come {
            all: all.clone(),
            rings: (*rings).clone(),
            keepers: keepers.clone(),
            quotas: self.quotas.borrow().clone(),
            is_new,
        };
        let add = || Step::Ring {
            all: all.clone(),
            ring,
            servers: servers.to_vec(),
        };
        // Servers that have no part yet hear of all that others know.
        let new = servers
            .iter()
            .filter(|server| !all.servers.contains(server));
        let new = new.map(|&server| (server, vec![come(true), add()]));
        let old = all
            .servers
            .iter()
            .map(|&server| match server == self.server {
                true => (server, vec![come(false), add()]),
                false => (server, vec![add()]),
            });
        (ring, old.chain(new).collect())
    }

    /// Lets servers go that have nothing: no file is in a ring before the newest.
    pub(super) async fn retire(&self, who: &Identity) -> Result<Answer> {
        let (rings, all) = (self.rings(), self.all());
        let ring = rings.newest();
        if rings.first() < ring {
            let steps = all.servers.iter().map(|&server| {
                let all = all.clone();
                (server, vec![Step::Retire { ring, all }])
            });
            self.direct(who, steps.collect(), None).await?;
        }
        Ok(Answer::Done)
    }

    /// The members for which a step is planned.
    pub(super) fn all(&self) -> Members {
        Members {
            servers: self.members(),
            root: FilePath::root(),
        }
    }

    /// The servers that have a part of the volume.
    pub(super) fn members(&self) -> Vec<usize> {
        self.rings().members(&self.keepers.borrow())
    }

    /// Lets another server keep a slot of this server, with all objects in it.
    pub(super) async fn move_slot(&self, who: &Identity, slot: usize, to: usize) -> Result<Answer> {
        if !who.may_all() {
            let cause = "only the owner of the volume may move names";
            return Err(Error::new(Kind::ReadOnly, "moving a slot", cause));
        }
        if slot >= self.shape.names.slots() || !self.members().contains(&to) {
            let cause = "there is no such slot, or the server has no part of the volume";
            return Err(Error::new(Kind::Schema, "moving a slot", cause));
        }
        self.undisturbed(None, async || {
            let from = self.keepers.borrow().server(slot);
            if from == to {
                return Ok(Answer::Done);
            }
            if from != self.server {
                return Ok(Answer::HasMoved);
            }
            self.calm(slot).await?;
            let steps = self.plan_slot(slot, to);
            self.direct(&nobody(), steps, None).await?;
            Ok(Answer::Done)
        })
        .await
    }

    /// Lets programs be cautious that use files of a slot in any order: the server to which it goes
    /// allows that no more.
    async fn calm(&self, slot: usize) -> Result<()> {
        let reckless: Vec<(ObjectId, FileShape)> = {
            let (namespace, attachments) = (self.namespace.borrow(), self.attachments.borrow());
            let objects = self.objects_in(&namespace, slot);
            let files = objects.filter_map(|object| Some((object.id, object.shape().ok()?)));
            let is_reckless = |file| attachments.of(file).any(|one| one.is_reckless);
            files.filter(|(file, _)| is_reckless(*file)).collect()
        };
        for (file, shape) in reckless {
            self.tell_mode(&nobody(), shape, &Ask::BeCautious(file))
                .await?;
        }
        Ok(())
    }

    fn objects_in<'a>(
        &self,
        namespace: &'a Namespace,
        slot: usize,
    ) -> impl Iterator<Item = &'a Attributes> + use<'a, M, R> {
        let names = self.shape.names;
        let objects = namespace.objects();
        objects.filter(move |object| names.slot_of(&object.path) == slot)
    }

    /// The steps by which another server gets a slot.
    fn plan_slot(&self, slot: usize, to: usize) -> BTreeMap<usize, Vec<Step>> {
        let (namespace, attachments) = (self.namespace.borrow(), self.attachments.borrow());
        let mut ids = FxHashSet::default();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for object in self.objects_in(&namespace, slot) {
            ids.insert(object.id);
            let entries = namespace.entries(object.id);
            gone.push(Step::drop_of(object, entries.clone(), true));
            come.push(Step::Add(object.clone(), entries));
        }
        let all = self.all();
        let keep = Step::Keep {
            slot,
            from: self.server,
            to,
            attached: attachments.of_files(|file| ids.contains(&file)),
            all: all.clone(),
        };
        let steps = all.servers.into_iter().map(|server| {
            let of_server = match server {
                server if server == self.server => std::mem::take(&mut gone),
                server if server == to => std::mem::take(&mut come),
                _ => Vec::new(),
            };
            (server, [vec![keep.clone()], of_server].concat())
        });
        steps.collect()
    }

    /// Lets some cells of a file move on to the newest ring. Gives 0 if all are there, and how much
    /// is left otherwise.
    pub(super) async fn move_on(&self, who: &Identity, path: &FilePath) -> Result<Answer> {
        if !who.may_all() {
            let cause = "only the owner of the volume may move files";
            return Err(at_path(Kind::ReadOnly, "moving", path, cause));
        }
        self.undisturbed(Some(path), async || self.move_some(path).await)
            .await
    }

    async fn move_some(&self, path: &FilePath) -> Result<Answer> {
        let object = self.stat(path).await?;
        let shape = object.shape()?;
        let Some(placement) = self.next_placement(&shape)? else {
            return Ok(Answer::Value(0));
        };
        let to_do = FileMove {
            file: object.id,
            shape,
            placement,
        };
        let moved = self.move_cells(path, &object, to_do).await;
        if moved.as_ref().is_err_and(|error| error.kind != Kind::Busy) {
            self.give_up_taking(&to_do).await;
        }
        moved?;
        Ok(Answer::Value(shape.cells.abs_diff(placement.moved) + 1))
    }

    async fn move_cells(
        &self,
        path: &FilePath,
        object: &Attributes,
        to_do: FileMove,
    ) -> Result<()> {
        let FileMove {
            file,
            shape,
            placement,
        } = to_do;
        for round in 0..ROUNDS {
            let blocks = self.let_take(&to_do, None).await?;
            if blocks < BLOCKS as u64 * (round as u64 + 1) {
                break;
            }
        }
        let placed = Step::Place {
            path: path.clone(),
            id: file,
            former: shape.placement,
            placement,
        };
        let whole = WholeFile {
            file,
            owner: object.owner,
            shape,
            change: FileChange::Move(placement),
        };
        let steps = BTreeMap::from([(self.server, vec![placed])]);
        self.direct(&nobody(), steps, Some(whole)).await
    }

    /// Lets servers give up what they have taken over of a file that does not move after all.
    async fn give_up_taking(&self, to_do: &FileMove) {
        let to = self.takers(to_do).unwrap_or_default();
        let told = to.into_iter().map(|server| async move {
            let ask = Ask::GiveUp(to_do.file);
            self.caller.ask(server, &nobody(), ask).await
        });
        join_all(told).await; // one that is lost has nothing any more
    }

    /// Gives up what this server has taken over of a file.
    pub(super) fn give_up_taken(&self, file: ObjectId) {
        let taken = self.taken.borrow_mut().remove(&file);
        taken.into_iter().for_each(|taken| self.drop_taken(taken));
    }

    /// The placement that a file is to have next, if it is to move.
    fn next_placement(&self, shape: &FileShape) -> Result<Option<Placement>> {
        let (rings, now) = (self.rings(), shape.placement);
        let former = rings.servers(now.former)?;
        let later = rings.servers(now.ring)?;
        let goes = |cell| {
            let (from, to) = (
                dealt(former, shape.base, cell),
                dealt(later, shape.base, cell),
            );
            from != to
        };
        let next = now.next(rings.newest(), shape.cells, |left| {
            // The cells that are left to move lie before or behind those that have moved.
            let is_back = left.end == now.moved && left.start == 0;
            let (mut passed, mut cells) = (0, 0);
            let most = (left.end - left.start).min(PASSED_MAX);
            while passed < most {
                let cell = match is_back {
                    true => left.end - 1 - passed,
                    false => left.start + passed,
                };
                let goes = goes(cell);
                if goes && cells == CELLS_MAX {
                    break;
                }
                cells += u64::from(goes);
                passed += 1;
            }
            match is_back {
                true => left.end - passed,
                false => left.start + passed,
            }
        });
        Ok(next)
    }

    /// Lets servers take over the cells that come to them. Gives the number of blocks.
    pub(super) async fn let_take_all(
        &self,
        whole: WholeFile,
        placement: Placement,
        id: TransactionId,
    ) -> Result<()> {
        let to_do = FileMove {
            file: whole.file,
            shape: whole.shape,
            placement,
        };
        self.let_take(&to_do, Some(id)).await.map(|_| ())
    }

    async fn let_take(&self, to_do: &FileMove, transaction: Option<TransactionId>) -> Result<u64> {
        let asked = self.takers(to_do)?.into_iter().map(|server| {
            let ask = Ask::Take {
                transaction,
                file: to_do.file,
                shape: to_do.shape,
                placement: to_do.placement,
            };
            async move { self.caller.ask(server, &nobody(), ask).await }
        });
        let mut blocks = 0;
        for answer in join_all(asked).await {
            match answer? {
                Answer::Value(taken) => blocks += taken,
                _ => return Err(unexpected()),
            }
        }
        Ok(blocks)
    }

    /// The servers that get cells of the file.
    fn takers(&self, to_do: &FileMove) -> Result<BTreeSet<usize>> {
        let moving = self.moving_cells(&to_do.shape, to_do.placement)?;
        Ok(moving.into_iter().map(|(_, _, to)| to).collect())
    }

    /// The cells that go to another server when a file gets another placement, each with the server
    /// that has it and the other one.
    fn moving_cells(
        &self,
        shape: &FileShape,
        placement: Placement,
    ) -> Result<Vec<(u64, usize, usize)>> {
        let (rings, moved) = (
            self.rings(),
            FileShape {
                placement,
                ..*shape
            },
        );
        let (former, later) = (shape.dealing(&rings)?, moved.dealing(&rings)?);
        let (before, after) = (shape.placement.moved, placement.moved);
        let is_step = !shape.placement.is_settled() && !placement.is_settled();
        let cells = before.min(after)..before.max(after);
        let cells = cells.filter(|_| is_step); // nothing goes when a file sets out, or arrives
        let cells = cells.map(|cell| (cell, former.server_of(cell), later.server_of(cell)));
        Ok(cells.filter(|(_, from, to)| from != to).collect())
    }

    /// The cells of a file that leave this server when it gets another placement.
    pub(super) fn leaving_cells(
        &self,
        shape: &FileShape,
        placement: Placement,
    ) -> Result<Vec<u64>> {
        let cells = self.moving_cells(shape, placement)?.into_iter();
        let leaving = cells.filter(|&(_, from, _)| from == self.server);
        Ok(leaving.map(|(cell, ..)| cell).collect())
    }

    /// Notes that a file gets another placement. Says whether this server has cells of it, and the
    /// change of records: if it has none any more, it remembers that.
    pub(super) fn note_move(
        &self,
        file: ObjectId,
        shape: FileShape,
        placement: Placement,
    ) -> Result<(bool, Change)> {
        let moved = FileShape { placement, ..shape };
        let stays = moved
            .dealing(&self.rings())?
            .servers()
            .contains(&self.server);
        let mut moved_away = self.moved_away.borrow_mut();
        let key = Key::MovedAway(file);
        let change = match stays {
            true => {
                moved_away.remove(&file);
                remove(&key)?
            }
            false => {
                moved_away.insert(file, placement);
                put(&key, &placement)?
            }
        };
        if let Some(lodge) = &self.lodge {
            lodge
                .rights
                .borrow_mut()
                .retain(|(_, other), _| *other != file);
        }
        Ok((stays, change))
    }

    /// Takes over the cells of a file that come to this server. Gives the number of blocks that
    /// were moved.
    pub(super) async fn take(
        &self,
        from: NodeId,
        transaction: Option<TransactionId>,
        (file, shape, placement): (ObjectId, FileShape, Placement),
    ) -> Result<u64> {
        let mut by_server: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (cell, from, to) in self.moving_cells(&shape, placement)? {
            if to == self.server {
                by_server.entry(from).or_default().push(cell);
            }
        }
        let taken = self.taken.borrow_mut().remove(&file);
        let mut taken = match taken {
            Some(taken) if taken.director == from => taken,
            other => {
                other.into_iter().for_each(|taken| self.drop_taken(taken));
                Taken {
                    director: from,
                    blocks: FxHashMap::default(),
                }
            }
        };
        let moved = async {
            let (mut part, mut blocks) = (MovedPart::default(), 0);
            for (server, cells) in by_server {
                let (some, moved) = self.take_from(server, file, cells, &mut taken).await?;
                part.has_checkpoint |= some.has_checkpoint;
                part.written = part.written.max(some.written);
                part.cells.extend(some.cells);
                blocks += moved;
            }
            Ok::<_, Error>((part, blocks))
        };
        let moved = moved.await;
        let Some(id) = transaction else {
            self.taken.borrow_mut().insert(file, taken);
            return Ok(moved?.1);
        };
        let relocated = moved.and_then(|(part, blocks)| Ok((relocate(part, &taken)?, blocks)));
        let (part, blocks) = match relocated {
            Ok(relocated) => relocated,
            Err(error) => {
                self.drop_taken(taken);
                return Err(error);
            }
        };
        // What has been written again since it was taken over is of no use.
        let kept: FxHashSet<u64> = part.places().collect();
        let unused = taken.blocks.into_values().map(|stored| stored.place);
        self.volume
            .free_apart(unused.filter(|place| !kept.contains(place)));
        self.prepare_part(id, part).await?;
        Ok(blocks)
    }

    /// Makes what was taken over a part of a transaction.
    async fn prepare_part(&self, id: TransactionId, part: MovedPart) -> Result<()> {
        let steps = {
            let mut awaited = self.awaited.borrow_mut();
            let steps = awaited.get_mut(&id);
            let come = steps.and_then(|steps| match &mut steps[..] {
                [Step::Cells { come, .. }] => Some(come),
                _ => None,
            });
            let Some(come) = come else {
                self.volume.free_apart(part.places());
                return Err(refusal("it takes over cells in no transaction"));
            };
            *come = part;
            awaited.get(&id).cloned().unwrap_or_default()
        };
        self.volume.finish_disks().await?;
        let prepared = put(&Key::Prepared(id), &steps)?;
        self.volume.committer.commit([prepared]).await
    }

    /// Gives up what was taken over for a director that is lost.
    pub(super) fn forget_taken(&self, director: NodeId) {
        let mut taken = self.taken.borrow_mut();
        let lost = taken.extract_if(|_, taken| taken.director == director);
        let lost: Vec<Taken> = lost.map(|(_, taken)| taken).collect();
        drop(taken);
        lost.into_iter().for_each(|taken| self.drop_taken(taken));
    }

    fn drop_taken(&self, taken: Taken) {
        let places = taken.blocks.into_values().map(|stored| stored.place);
        self.volume.free_apart(places);
    }

    /// Takes over cells of one server. Gives them as they are there, and the number of blocks.
    async fn take_from(
        &self,
        server: usize,
        file: ObjectId,
        cells: Vec<u64>,
        taken: &mut Taken,
    ) -> Result<(MovedPart, u64)> {
        let asked = Ask::Cells(file, cells);
        let Answer::Cells(mut part) = self.caller.ask(server, &nobody(), asked).await? else {
            return Err(unexpected());
        };
        let mut blocks = 0;
        for moved in &mut part.cells {
            let mut next = 0;
            loop {
                let asked = Ask::Leaves(file, moved.cell, next);
                let Answer::Leaves(leaves) = self.caller.ask(server, &nobody(), asked).await?
                else {
                    return Err(unexpected());
                };
                let Some((last, _)) = leaves.last() else {
                    break;
                };
                next = last + 1;
                blocks += self
                    .take_blocks(server, (file, moved.cell), &leaves, taken)
                    .await?;
                moved.leaves.extend(leaves);
            }
        }
        Ok((part, blocks))
    }

    /// Takes over the blocks of leaves that were not taken over as they are.
    async fn take_blocks(
        &self,
        server: usize,
        (file, cell): (ObjectId, u64),
        leaves: &Leaves,
        taken: &mut Taken,
    ) -> Result<u64> {
        let blocks = leaves.iter().flat_map(|(number, leaf)| {
            let blocks = leaf.blocks();
            blocks.map(move |(within, version, stored)| {
                let block = number * LEAF_BLOCKS + u64::from(within);
                let name = BlockName {
                    file,
                    version,
                    cell,
                    block,
                };
                (name, stored)
            })
        });
        let is_new = |(_, stored): &(_, Stored)| {
            !taken.blocks.contains_key(&(cell, stored.place, stored.sum))
        };
        let wanted: Vec<(BlockName, Stored)> = blocks.filter(is_new).collect();
        let moved = stream::iter(wanted).map(|(name, there)| async move {
            let here = self.take_block(server, &name).await?;
            Ok::<_, Error>((there, here))
        });
        let mut moved = moved.buffer_unordered(BLOCKS);
        let mut count = 0;
        while let Some((there, here)) = moved.try_next().await? {
            count += 1;
            // A block that has been changed meanwhile is taken over again later.
            match there.sum == here.sum {
                true => drop(taken.blocks.insert((cell, there.place, there.sum), here)),
                false => self.volume.free_apart([here.place]),
            }
        }
        Ok(count)
    }

    async fn take_block(&self, server: usize, name: &BlockName) -> Result<Stored> {
        let ask = Ask::Block(name.file, name.cell, name.block, name.version);
        let (answer, parcel) = self.caller.ask_for_data(server, &nobody(), ask).await?;
        let (Answer::Done, Some(parcel)) = (answer, parcel) else {
            return Err(unexpected());
        };
        let buffer = self.machine.buffer(self.volume.block_bytes())?;
        self.machine.paste(&parcel, &buffer, 0);
        self.volume.store_apart(&buffer, name.block).await
    }

    /// What there is of cells of a file, when all that was written to it has been stored.
    pub(super) async fn cells(&self, file: ObjectId, cells: &[u64]) -> Result<Answer> {
        self.save(file).await?;
        Ok(Answer::Cells(self.volume.part(file, cells)))
    }

    /// Leaves of a cell, from one on.
    pub(super) fn leaves(&self, file: ObjectId, cell: u64, from: u64) -> Answer {
        Answer::Leaves(self.volume.leaves(file, cell, from, LEAVES))
    }

    /// Sends the bytes of a block.
    pub(super) async fn send_block(&self, to: NodeId, ticket: u64, name: &BlockName) {
        let read = async {
            let claim = self.blocks.claim(name, Intent::Read).await;
            let bytes = self.volume.block_bytes();
            let parcel = match self.blocks.cached(name) {
                Some(cached) => Ok(self.machine.cut(&cached, 0..bytes)),
                None => match self.machine.buffer(bytes) {
                    Ok(buffer) => {
                        let loaded = self.home(name).load(&buffer).await;
                        loaded.map(|()| self.machine.cut(&buffer, 0..bytes))
                    }
                    Err(error) => Err(error),
                },
            };
            self.blocks.release(claim);
            parcel
        };
        let (answer, parcel) = match read.await {
            Ok(parcel) => (Ok(Answer::Done), Some(parcel)),
            Err(error) => (Err(error), None),
        };
        let _ = self.caller.reply(to, ticket, &answer, parcel).await; // who has left needs none
    }
}

/// Cells with the blocks at their places here.
fn relocate(part: MovedPart, taken: &Taken) -> Result<MovedPart> {
    let cells = part.cells.into_iter().map(|moved| {
        let place = |there: Stored| {
            let key = (moved.cell, there.place, there.sum);
            taken.blocks.get(&key).copied()
        };
        let leaves = moved
            .leaves
            .iter()
            .map(|(number, leaf): &(u64, Leaf)| Some((*number, leaf.relocated(place)?)));
        let leaves: Option<Leaves> = leaves.collect();
        let leaves = leaves.ok_or_else(|| {
            let cause = "a block has changed though nobody else uses the file";
            Error::new(Kind::Busy, "taking cells over", cause)
        })?;
        Ok(MovedCell { leaves, ..moved })
    });
    let cells: Result<Vec<MovedCell>> = cells.collect();
    Ok(MovedPart {
        cells: cells?,
        ..part
    })
}
