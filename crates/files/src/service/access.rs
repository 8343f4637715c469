//! Reading and writing bytes of cells.
//!
//! ```text
//! request | its place in the order | its turn | block after block: claim, bring in, copy | answer
//! ```
//!
//! Data of a few blocks travel inside the request or the answer. Other data go straight between the
//! client's memory and the blocks in memory, a block at a time, when the server has the block.

use std::rc::Rc;

use futures::future::join;
use penstock_engine::blocks::Intent;
use penstock_engine::trace::{Instrument, Span};
use penstock_engine::{
    CopyKind, Elements, Error, Kind, Machine, MemoryId, NodeId, Operation, Result, Window, Work,
};
use penstock_layout::view::CELL_BYTES_MAX;
use penstock_layout::{Block, Holding, List, ListPiece, Piece};

use super::schedule::{Footprint, Place};
use super::state::{Service, Task};
use super::tokens::{self, Passage};
use crate::messages::{Access, Answer, CellPart, Errand, Request, Token, Turn, refusal};
use crate::object::ObjectId;
use crate::placement::Dealing;
use crate::volume::cells::Version;
use crate::volume::records::RecordStore;
use crate::volume::{BlockName, CellBlock};

/// The most bytes of a request whose data travel inside messages, unless a block has more.
pub(crate) const INSIDE_BYTES_MAX: u64 = 1 << 20;

/// What an access has come to: the ends of its cells, the data that were read, and the blocks that
/// are full of changes.
struct Moved<M: Machine> {
    ends: Vec<u64>,
    bytes: u64,
    parcel: Option<M::Parcel>,
    full: Vec<BlockName>,
}

/// The steps of a search for bytes that are in a list twice. Lists of views need few.
const STEPS_MAX: u64 = 1 << 16;

/// A part of an access in one cell.
struct Stretch {
    cell: u64,
    holding: Holding,
}

impl<'m, M: Machine, R: RecordStore> Service<'m, M, R> {
    /// Gives an access its place in the order of its file, or lets it wait for its token.
    pub(super) fn place_access(
        &self,
        from: NodeId,
        access: Access,
        parcel: Option<M::Parcel>,
    ) -> Vec<Task<'_>> {
        if let Err(error) = self.check_access(&access) {
            return vec![self.reply_at_once(from, &access, Err(error))];
        }
        let is_refused =
            access.turn == Turn::Any && !self.reckless.borrow().contains_key(&access.file);
        if is_refused {
            return vec![self.reply_at_once(from, &access, Ok(Answer::BeCautious))];
        }
        if let Some(error) = self.loss_before(from, &access) {
            return vec![self.reply_at_once(from, &access, Err(error))];
        }
        if self.waits_for_token(&access.turn, access.way()) {
            let bucket = tokens::bucket_of(access.file);
            if !self.departed.borrow().contains_key(&from) {
                let (early, wait) = ((from, access.request), self.token_wait(&access));
                self.early
                    .borrow_mut()
                    .insert(early, (access, parcel, wait));
            }
            return self.pass_tokens(bucket);
        }
        let token = match &access.turn {
            Turn::Token(turns) => Some(Token {
                file: access.file,
                base: access.base,
                placement: access.placement,
                life: 0,
                number: 0,
                turns: turns.clone(),
                from,
                request: access.request,
                errand: Errand::Access,
            }),
            Turn::Arrival | Turn::Any => None,
        };
        if let Some(token) = &token {
            self.note_passing(&access.span, token);
        }
        let mut tasks = self.do_access(from, access, parcel);
        tasks.extend(token.into_iter().flat_map(|token| self.pass_on(token)));
        tasks
    }

    /// The error of an access that has failed before it came, or whose token cannot come through.
    fn loss_before(&self, from: NodeId, access: &Access) -> Option<Error> {
        let Turn::Token(turns) = &access.turn else {
            return None;
        };
        let failed = self.failure(from, access.request, access.oldest);
        let order = self.order(access.way()).ok()?;
        let first = order.server(*turns.first()?);
        if first != self.server {
            // Only the first server could tell that the token is lost.
            return failed.or_else(|| {
                let error = self.missing(first)?;
                self.note_failure((from, access.request), first); // its token may come
                Some(error)
            });
        }
        let mut way = (0..order.len()).filter(|&turn| tokens::passes(turns, turn));
        failed.or_else(|| way.find_map(|turn| self.missing(order.server(turn))))
    }

    /// Answers an access that gets no place.
    pub(super) fn reply_at_once(
        &self,
        from: NodeId,
        access: &Access,
        answer: Result<Answer>,
    ) -> Task<'_> {
        self.note_access(from, access, 0, answer.is_err());
        self.reply(from, access.ticket, answer)
    }

    pub(super) fn reply(&self, to: NodeId, ticket: u64, answer: Result<Answer>) -> Task<'_> {
        Box::pin(async move {
            let _ = self.caller.reply(to, ticket, &answer, None).await; // who has left needs none
        })
    }

    /// Refuses an access that no client of ours makes.
    fn check_access(&self, access: &Access) -> Result<()> {
        let rings = self.rings();
        if !rings.have(access.placement) || !rings.have_server(access.base) {
            return Err(refusal("it names servers that there are not"));
        }
        let dealing = Dealing::new((u64::MAX, access.base), access.placement, &rings)?;
        if let Turn::Token(turns) = &access.turn {
            let order = rings.order(access.base, access.placement)?;
            let is_ascending = turns.is_sorted_by(|one, next| one < next);
            let own = order.turn(self.server);
            let is_named = own.is_some_and(|own| turns.contains(&own))
                && turns.iter().all(|&turn| turn < order.len());
            if turns.len() < 2 || !is_ascending || !is_named {
                return Err(refusal("its token has no such way"));
            }
        }
        for part in &access.parts {
            check_part(part)?;
            if dealing.server_of(part.cell) != self.server {
                return Err(refusal("it asks for a cell of another server"));
            }
            let travels = access.memory.is_none();
            let is_matched = part.memory.elements() == part.places.elements();
            if !travels && !is_matched {
                return Err(refusal("its lists do not fit"));
            }
        }
        if access.inside_bytes() > INSIDE_BYTES_MAX.max(self.volume.block_bytes()) {
            return Err(refusal("its data are too long for a message"));
        }
        Ok(())
    }

    /// Takes the place of an access, and does it when it is its turn.
    fn do_access(&self, from: NodeId, access: Access, parcel: Option<M::Parcel>) -> Vec<Task<'_>> {
        let footprint = self.footprint(&access);
        let place = self.schedule(access.file).enter(footprint);
        if let Turn::Token(turns) = &access.turn
            && let Some(&last) = turns.last()
            && let Ok(order) = self.order(access.way())
            && Some(last) != order.turn(self.server)
        {
            let last = order.server(last);
            let passage = Passage {
                base: access.base,
                placement: access.placement,
                turns: turns.clone(),
                is_over: self.missing(last).is_some(), // its word may not come
                place: None,
            };
            let request = (from, access.request);
            self.passages.borrow_mut().insert(request, passage);
        }
        let placed = access
            .wants_word
            .then(|| self.reply(from, access.ticket, Ok(Answer::Placed)));
        let served: Task<'_> = Box::pin(self.serve_access(from, access, parcel, place));
        placed.into_iter().chain([served]).collect()
    }

    /// The bytes of a file that an access needs to itself, as far as it keeps an order.
    fn footprint(&self, access: &Access) -> Footprint {
        if access.turn == Turn::Any || access.version == Version::Checkpoint {
            return Footprint::Any;
        }
        let parts = access.parts.iter();
        let bytes = parts.map(|part| (part.cell, part.places.clone())).collect();
        if access.operation == Operation::Read {
            return Footprint::Read(bytes);
        }
        // Where cells may be cut off before the turn of this write, their ends are not known.
        let is_known = !self.schedule(access.file).will_change();
        let grown = access.parts.iter().filter_map(|part| {
            let end = match is_known {
                true => self
                    .volume
                    .cell_bytes(access.file, part.cell, Version::Active)?,
                false => 0,
            };
            let more = part.places.bounds()?.end.checked_sub(end)?;
            let grown = List::strided(end, more, &[]).ok()?;
            Some((part.cell, grown))
        });
        Footprint::Write {
            grown: grown.collect(),
            bytes,
        }
    }

    async fn serve_access(
        &self,
        from: NodeId,
        mut access: Access,
        parcel: Option<M::Parcel>,
        place: Place,
    ) {
        let span = access.span.clone();
        let answering = self.answer_access(from, &access, parcel, place);
        let full = answering.instrument(span).await;
        access.span = Span::none(); // what follows is nobody's request
        // Neither waits for the other: blocks that would be fetched late are of no use.
        join(self.fetch_ahead(&access), self.write_full(full)).await;
    }

    /// Does an access when it is its turn, and answers it. Gives the blocks that are full of
    /// changes.
    async fn answer_access(
        &self,
        from: NodeId,
        access: &Access,
        parcel: Option<M::Parcel>,
        place: Place,
    ) -> Vec<BlockName> {
        self.machine.work(Work::Thread).await;
        let moved = match self.metered_turn(&place, access.file).await {
            Ok(()) if self.has_moved_since(access.file, access.placement) => Ok(None),
            Ok(()) => self.move_parts(from, access, parcel).await.map(Some),
            Err(error) => Err(error),
        };
        self.end_work((from, access.request), place);
        self.machine.work(Work::Reply(from)).await;
        let (answer, bytes, parcel, full) = match moved {
            Ok(Some(moved)) => (
                Ok(Answer::Moved(moved.ends)),
                moved.bytes,
                moved.parcel,
                moved.full,
            ),
            Ok(None) => (Ok(Answer::HasMoved), 0, None, Vec::new()),
            Err(error) => (Err(error), 0, None, Vec::new()),
        };
        let _ = self
            .caller
            .reply(from, access.ticket, &answer, parcel)
            .await;
        self.note_access(from, access, bytes, answer.is_err());
        full
    }

    /// Moves the bytes of an access whose turn it is.
    async fn move_parts(
        &self,
        from: NodeId,
        access: &Access,
        parcel: Option<M::Parcel>,
    ) -> Result<Moved<M>> {
        self.check_usable(access.file)?;
        match access.operation {
            Operation::Read => self.read(from, access).await,
            Operation::Write => self.write(from, access, parcel).await,
        }
    }

    /// Refuses a file that has been removed, or that has lost a block.
    pub(super) fn check_usable(&self, file: ObjectId) -> Result<()> {
        if self.removed.borrow().contains(&file) {
            let cause = "the file has been removed";
            return Err(Error::new(Kind::Missing, "using a file", cause));
        }
        self.volume.check(file)
    }

    /// The bytes of a part before `end`. Where data travel in messages, they lie there in the order
    /// of the cell.
    fn stretch(&self, access: &Access, part: &CellPart, end: u64) -> Result<Stretch> {
        let holding = match access.memory {
            Some(_) => Holding::new(&part.places, &part.memory),
            None => {
                let packed = List::strided(0, part.places.elements(), &[]);
                packed.and_then(|packed| Holding::new(&part.places, &packed))
            }
        };
        let holding = holding.map_err(|error| refusal(error.to_string()))?;
        Ok(Stretch {
            cell: part.cell,
            holding: holding.before(end),
        })
    }

    /// The blocks of a stretch, each with the piece that the stretch has of it.
    fn pieces<'a>(
        &'a self,
        access: &Access,
        stretch: &'a Stretch,
    ) -> impl Iterator<Item = (BlockName, Block, ListPiece)> + use<'a, 'm, M, R> {
        let (file, version) = (access.file, access.version);
        let pieces = stretch.holding.pieces(&self.cell_blocks);
        pieces.map(move |(block, piece)| {
            let name = BlockName {
                file,
                version,
                cell: stretch.cell,
                block: block.index,
            };
            (name, block, piece)
        })
    }

    pub(super) fn home(&self, name: &BlockName) -> Rc<CellBlock<'m, M, R>> {
        Rc::new(CellBlock {
            volume: self.volume.clone(),
            name: name.clone(),
        })
    }

    async fn read(&self, from: NodeId, access: &Access) -> Result<Moved<M>> {
        let end_of = |cell| self.volume.cell_bytes(access.file, cell, access.version);
        let ends = access
            .parts
            .iter()
            .map(|part| end_of(part.cell).unwrap_or(0));
        let ends: Vec<u64> = ends.collect();
        let stretches = access.parts.iter().zip(&ends);
        let stretches: Vec<_> = stretches
            .map(|(part, &end)| self.stretch(access, part, end))
            .collect::<Result<_>>()?;
        let bytes = stretches.iter().map(|stretch| stretch.holding.elements());
        let send = match access.memory {
            Some(_) => None,
            None => Some(self.machine.buffer(bytes.sum())?),
        };
        let mut at = 0;
        for stretch in &stretches {
            for (name, block, piece) in self.pieces(access, stretch) {
                let home = || self.home(&name);
                let found = self.blocks.bring_in(&name, home, Intent::Read, false).await;
                let (claim, cached) = found?;
                let (bytes, window) = (piece.elements(), [Window::of_block(&block, 1)]);
                let piece = Piece::from(piece);
                match (&send, access.memory) {
                    (Some(send), _) => {
                        self.machine.copy(
                            MemoryId::NONE,
                            1,
                            std::slice::from_ref(&piece),
                            Elements::Staged(&window, &*cached),
                            Elements::Packed(send, at),
                            CopyKind::Kernels,
                        )?;
                        self.machine.work(Work::Copy(bytes)).await;
                    }
                    (None, Some(memory)) => {
                        let put = self
                            .machine
                            .memput(memory, from, &piece, &window[0], &cached);
                        self.in_patience(from, put).await?;
                    }
                    (None, None) => {}
                }
                at += bytes;
                self.blocks.count(&name, bytes);
                self.blocks.release(claim);
            }
        }
        Ok(Moved {
            ends,
            bytes: at,
            parcel: send.map(|send| self.machine.cut(&send, 0..at)),
            full: Vec::new(),
        })
    }

    async fn write(
        &self,
        from: NodeId,
        access: &Access,
        parcel: Option<M::Parcel>,
    ) -> Result<Moved<M>> {
        let (mut at, mut full) = (0, Vec::new());
        for part in &access.parts {
            let stretch = self.stretch(access, part, u64::MAX)?;
            for (name, block, piece) in self.pieces(access, &stretch) {
                let bytes = piece.elements();
                let end = piece.buffer_bounds().unwrap_or_default().end;
                let end = block.offset + end;
                let place = (&parcel, at);
                let piece = Piece::from(piece);
                let is_full = self
                    .write_piece((from, access), &name, (&block, piece), place)
                    .await?;
                if is_full {
                    full.push(name);
                }
                let file = (access.file, access.owner);
                self.volume.grow(file, (part.cell, end), (self.clock)());
                at += bytes;
            }
        }
        let ends = access.parts.iter().map(|_| u64::MAX).collect();
        Ok(Moved {
            ends,
            bytes: at,
            parcel: None,
            full,
        })
    }

    /// Writes a piece of one block, and says whether the block is full of changes.
    async fn write_piece(
        &self,
        (from, access): (NodeId, &Access),
        name: &BlockName,
        (block, piece): (&Block, Piece),
        (parcel, at): (&Option<M::Parcel>, u64),
    ) -> Result<bool> {
        let bytes = piece.elements();
        let is_replaced = bytes == block.bytes;
        let owner = (access.file, access.owner);
        let (claim, cached) = self.bring_in_changed(owner, name, is_replaced).await?;
        let window = [Window::of_block(block, 1)];
        let moved = match (parcel, access.memory) {
            (_, Some(memory)) => {
                let got = self
                    .machine
                    .memget(memory, from, &piece, &window[0], &cached);
                self.in_patience(from, got).await
            }
            (Some(parcel), None) => self.machine.copy(
                MemoryId::NONE,
                1,
                &[piece],
                Elements::Parcel(parcel, at),
                Elements::Staged(&window, &*cached),
                CopyKind::Kernels,
            ),
            (None, None) => Err(refusal("its write has no data")),
        };
        if moved.is_err() && is_replaced && !self.blocks.is_changed(name) {
            self.blocks.discard(name); // nothing was read into its buffer
        }
        let is_full = match &moved {
            Ok(()) => {
                self.blocks.count(name, bytes);
                self.behind.changed.tell();
                self.blocks.change(name, bytes) >= block.bytes
            }
            Err(_) => {
                if !self.blocks.is_changed(name) {
                    let is_own = |cell, block| (cell, block) == (name.cell, name.block);
                    self.volume.unreserve(name.file, is_own);
                }
                false
            }
        };
        if access.memory.is_none() {
            self.machine.work(Work::Copy(bytes)).await;
        }
        self.blocks.release(claim);
        moved.map(|()| is_full)
    }

    /// Brings a block in that is about to be changed, with a place on disk reserved for it. If
    /// places are only waiting for the next save of some file, files are saved.
    pub(super) async fn bring_in_changed(
        &self,
        owner: (ObjectId, u32),
        name: &BlockName,
        is_replaced: bool,
    ) -> Result<(penstock_engine::blocks::Claim<'_, BlockName>, Rc<M::Buffer>)> {
        let mut may_save = true;
        loop {
            let home = || self.home(name);
            let (claim, cached) = self
                .blocks
                .bring_in(name, home, Intent::Change, is_replaced)
                .await?;
            let Err(error) = self.reserve(owner, name).await else {
                return Ok((claim, cached));
            };
            if is_replaced && !self.blocks.is_changed(name) {
                self.blocks.discard(name);
            }
            self.blocks.release(claim); // nobody saves while holding a claim
            if !std::mem::take(&mut may_save) {
                return Err(error);
            }
            self.make_space().await?;
        }
    }

    /// Saves all files that have places which are free after that.
    pub(super) async fn make_space(&self) -> Result<()> {
        for file in self.volume.files() {
            if self.volume.has_unused(file) {
                self.save(file).await?;
            }
        }
        Ok(())
    }

    /// Takes a token in: from the server before this one, or from an asker if it begins here.
    pub(super) fn take_token(&self, token: Token) -> Vec<Task<'_>> {
        let order = self.order(token.way());
        let Some((order, own)) = order.ok().and_then(|order| {
            let own = order.turn(self.server)?;
            let is_possible = token.turns.iter().all(|&turn| turn < order.len());
            is_possible.then_some((order, own))
        }) else {
            return Vec::new(); // it is nobody's
        };
        if token.turns.first() == Some(&own) {
            let placed = match token.errand {
                Errand::Collective(..) => self.place_collective(&token),
                Errand::Change { .. } | Errand::Access => self.place_change(&token),
            };
            return self.pass_on(token).into_iter().chain([placed]).collect();
        }
        let bucket = tokens::bucket_of(token.file);
        self.buckets.borrow_mut().put(order.before(own), token);
        self.pass_tokens(bucket)
    }

    /// Takes the tokens of a bucket whose turn it is, and passes them on.
    pub(super) fn pass_tokens(&self, bucket: usize) -> Vec<Task<'_>> {
        let links = self.buckets.borrow().links();
        let passed = links
            .into_iter()
            .map(|from| self.pass_tokens_of(from, bucket));
        passed.flatten().collect()
    }

    fn pass_tokens_of(&self, from: usize, bucket: usize) -> Vec<Task<'_>> {
        let mut tasks = Vec::new();
        loop {
            let mut buckets = self.buckets.borrow_mut();
            let Some(token) = buckets.first(from, bucket) else {
                return tasks;
            };
            let own = self.turn(token.way());
            let is_here = own.is_some_and(|own| token.turns.contains(&own));
            let is_access = matches!(token.errand, Errand::Access);
            let key = (token.from, token.request);
            let component = match is_here && is_access {
                true => self.early.borrow_mut().remove(&key),
                false => None,
            };
            let is_gone = self.departed.borrow().contains_key(&token.from);
            let is_over = is_gone || self.has_failed(key);
            if is_here && is_access && component.is_none() && !is_over {
                return tasks; // the request itself is still on its way
            }
            let Some(token) = buckets.take(from, bucket) else {
                return tasks;
            };
            drop(buckets);
            if let Some((access, parcel, wait)) = component {
                self.note_token(&access, wait, &token);
                tasks.extend(self.do_access(token.from, access, parcel));
            }
            match token.errand {
                Errand::Change { .. } if is_here => tasks.push(self.place_change(&token)),
                Errand::Collective(..) if is_here => tasks.push(self.place_collective(&token)),
                Errand::Access if token.turns.last().copied() == own => {
                    tasks.extend(self.tell_placed(&token));
                }
                Errand::Change { .. } | Errand::Collective(..) | Errand::Access => {}
            }
            tasks.extend(self.pass_on(token));
        }
    }

    pub(super) fn pass_all_tokens(&self) -> Vec<Task<'_>> {
        let buckets = 0..tokens::BUCKETS;
        buckets
            .flat_map(|bucket| self.pass_tokens(bucket))
            .collect()
    }

    /// Tells the other servers of a token's way that it has come to its end.
    fn tell_placed(&self, token: &Token) -> Vec<Task<'_>> {
        let Ok(order) = self.order(token.way()) else {
            return Vec::new();
        };
        let others = token.turns.iter().map(|&turn| order.server(turn));
        let others = others.filter(|&server| server != self.server);
        let placed = Request::Placed(token.from, token.request);
        others
            .filter_map(|server| self.tell_later(server, placed.clone()))
            .collect()
    }

    /// Sends a token on to the next server, unless this is the last of its way.
    fn pass_on(&self, mut token: Token) -> Vec<Task<'_>> {
        let Ok(order) = self.order(token.way()) else {
            return Vec::new();
        };
        let own = order.turn(self.server);
        let Some(own) = own.filter(|own| token.turns.last().is_some_and(|last| last > own)) else {
            return Vec::new();
        };
        let next = order.after(own);
        if self.missing(next).is_some() {
            return self.give_up(&token, &order, next);
        }
        self.buckets.borrow_mut().number(next, &mut token);
        vec![self.tell(next, Request::Token(token))]
    }
}

/// Refuses the part of a cell in a request that no client of ours makes.
///
/// # Errors
/// [`Kind::Peer`].
pub(super) fn check_part(part: &CellPart) -> Result<()> {
    let inside = part.places.check(CELL_BYTES_MAX);
    inside.map_err(|error| refusal(error.to_string()))?;
    match part.places.is_disjoint_within(STEPS_MAX) {
        Some(true) => Ok(()),
        _ => Err(refusal("its lists do not fit")),
    }
}
