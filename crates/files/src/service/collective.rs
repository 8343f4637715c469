//! Collective requests: all clients of a program move parts of one file together.
//!
//! The clients tell the server of the file's first cell what each of them has. When all have come,
//! a token with all parts passes the servers of the file, and each of them directs the flow of its
//! own cells (Kotz, TOCS 1997; the authors of Vesta ask for such operations in section 6.1):
//!
//! ```text
//! clients   join ->  first server: token ->  all servers: two buffers over their blocks
//!                                                         memget from clients | write block
//!           <- moved                      <- done
//! ```
//!
//! Blocks go around the cache: a write drops a cached block, a read takes it out of the cache.
//! Memory: two buffers of a block, and the list of this server's blocks.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures::future::{join, join_all};
use penstock_engine::blocks::{Home, Intent};
use penstock_engine::trace::{Instrument, Span};
use penstock_engine::{Error, Kind, Machine, NodeId, Operation, Result, Who, Window, Work, span};
use penstock_layout::{Block, Holding, LayoutError, ListPiece, Piece, Subfile};

use super::access::check_part;
use super::gathering::{Gathering, GatheringKey};
use super::schedule::Footprint;
use super::state::{Service, Task};
use crate::messages::{Answer, ClientPart, Collective, Errand, Moved, PartBytes, Token, refusal};
use crate::volume::BlockName;
use crate::volume::records::RecordStore;

/// The span of the portions that clients have of a block.
fn portions(name: &BlockName, count: usize) -> Span {
    span!(
        "portions",
        cell = name.cell,
        block = name.block,
        count = count as u64
    )
}

/// The blocks of a server that a request touches, each with the pieces of clients.
type Job = (BlockName, Block, Vec<(usize, ListPiece)>);

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Takes in a client of a collective request. With the last of them the request begins.
    pub(super) async fn join(
        &self,
        key: GatheringKey,
        answer: (NodeId, u64),
        rank: usize,
        request: Collective,
        part: Result<ClientPart>,
    ) {
        let allowed = self.allow_collective(answer.0, &request).await;
        let part = allowed
            .and(part)
            .and_then(|part| match part.node == answer.0 {
                true => Ok(part),
                false => Err(refusal("it offers the memory of another")),
            });
        let complete = {
            let mut gatherings = self.gatherings.borrow_mut();
            let gathering = gatherings
                .entry(key)
                .or_insert_with(|| Gathering::new(request.clone()));
            gathering.add(rank, answer, &request, part);
            match gathering.is_complete() || gathering.left(&self.departed.borrow()).is_some() {
                true => gatherings.remove(&key),
                false => None,
            }
        };
        if let Some(gathering) = complete {
            self.run_collective(gathering, None).await;
        }
        join_all(self.end_overtaken(key.0)).await;
    }

    /// Ends the requests of a program to which a client will not come: it has heard of an error of
    /// a lost server, and has gone on to a later one.
    fn end_overtaken(&self, program: u64) -> Vec<Task<'_>> {
        let mut gatherings = self.gatherings.borrow_mut();
        let ahead = |key: &GatheringKey| {
            let own = gatherings.get(key)?;
            let mut later = gatherings
                .iter()
                .filter(|(other, _)| other.0 == program && other.2 > key.2);
            later.find_map(|(_, other)| other.ahead_of(own))
        };
        let keys = gatherings.keys().filter(|key| key.0 == program);
        let overtaken: Vec<_> = keys.filter_map(|key| Some((*key, ahead(key)?))).collect();
        let ended = overtaken.into_iter().filter_map(|(key, rank)| {
            let cause = "it has gone on to a later collective call";
            let error = Error::new(Kind::Peer, "a collective call on a file", cause);
            let left = Some(error.by(Who::Rank(rank)));
            let gathering = gatherings.remove(&key)?;
            Some(Box::pin(self.run_collective(gathering, left)) as Task<'_>)
        });
        ended.collect()
    }

    /// Gives up the requests that wait for nodes that have left.
    pub(super) fn give_up_gatherings(&self) -> Vec<Task<'_>> {
        let (mut gatherings, departed) = (self.gatherings.borrow_mut(), self.departed.borrow());
        let has_lost = |gathering: &Gathering| gathering.left(&departed).is_some();
        let given_up = gatherings.extract_if(.., |_, gathering| has_lost(gathering));
        let given_up: Vec<_> = given_up.collect();
        given_up
            .into_iter()
            .map(|(_, gathering)| -> Task<'_> { Box::pin(self.run_collective(gathering, None)) })
            .collect()
    }

    /// Does a collective request, and answers all of its clients.
    async fn run_collective(&self, gathering: Gathering, left: Option<Error>) {
        let left = match gathering.is_complete() {
            true => None,
            false => left.or_else(|| gathering.left(&self.departed.borrow())),
        };
        let came = self.metered_now();
        let is_scattered = gathering.is_scattered();
        let (answers, request, parts) = gathering.end();
        let counted = self.meter.is_some().then(|| request.clone());
        let answer = match (parts, left) {
            (Ok(_), Some(left)) => Err(left),
            (Ok(_), None) if is_scattered => Ok(Answer::HasMoved),
            (Ok(parts), None) => self.direct_collective(request, parts).await,
            (Err(error), _) => Err(error),
        };
        let told = answers.iter().map(|&(node, ticket)| {
            let answer = &answer;
            async move { self.caller.reply(node, ticket, answer, None).await }
        });
        join_all(told).await; // who has left needs no answer
        if let Some(request) = counted {
            let clients = answers.iter().map(|(node, _)| *node);
            self.note_collective(&request, clients, answer.is_err(), came);
        }
    }

    /// Sends a request to all servers of its file, and waits until they have served it.
    async fn direct_collective(
        &self,
        request: Collective,
        parts: Vec<ClientPart>,
    ) -> Result<Answer> {
        let shape = request.shape;
        shape.check(&self.rings())?;
        let (turns, asked) = self.way_of(&[shape])?;
        let mut moved = vec![Moved::default(); parts.len()];
        let token = |ticket| {
            let token = Token {
                file: request.file,
                base: shape.base,
                placement: shape.placement,
                life: 0,
                number: 0,
                turns,
                from: self.machine.me(),
                request: ticket,
                errand: Errand::Collective(request, parts),
            };
            self.note_parts(&token);
            token
        };
        let (mut ended, mut has_moved) = (Ok(()), false);
        for answer in self.ask_by_token(asked, token).await? {
            match answer {
                Ok(Answer::HasMoved) => has_moved = true,
                Ok(Answer::Collected(part)) if part.len() == moved.len() => {
                    for (all, part) in moved.iter_mut().zip(part) {
                        *all = all.and(part);
                    }
                }
                Ok(_) => ended = ended.and(Err(refusal("a server has served another request"))),
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        ended.map(|()| match has_moved {
            true => Answer::HasMoved,
            false => Answer::Collected(moved),
        })
    }

    /// Gives a collective request its place in the order of its file.
    pub(super) fn place_collective(&self, token: &Token) -> Task<'_> {
        let (director, errand) = ((token.from, token.request), token.errand.clone());
        let place = self.schedule(token.file).enter(Footprint::All);
        let part = self.part_span(token);
        let serving = async move {
            let Errand::Collective(request, parts) = errand else {
                return;
            };
            let answer = match self.turn_in_part(&place, request.file).await {
                Ok(()) if self.has_moved_since(request.file, request.shape.placement) => {
                    Ok(Answer::HasMoved)
                }
                Ok(()) => {
                    self.machine.work(Work::Thread).await;
                    let moved = self.serve_collective(&request, &parts).await;
                    moved.map(Answer::Collected)
                }
                Err(error) => Err(error),
            };
            drop(place);
            if let Ok(Answer::Collected(moved)) = &answer {
                self.note_moved(&request, &parts, moved);
            }
            let (node, ticket) = director;
            self.reach(node).await;
            let _ = self.caller.reply(node, ticket, &answer, None).await;
        };
        Box::pin(serving.instrument(part))
    }

    /// Moves the blocks of this server in a collective request.
    async fn serve_collective(
        &self,
        request: &Collective,
        parts: &[ClientPart],
    ) -> Result<Vec<Moved>> {
        self.check_usable(request.file)?;
        let (jobs, moved) = self.plan(request, parts)?;
        self.machine.work(Work::List(jobs.len() as u64)).await;
        if request.operation == Operation::Write && self.volume.unreserved() < jobs.len() as u64 {
            self.make_space().await?;
        }
        let jobs = RefCell::new(jobs.into_iter());
        let ended = RefCell::new(Ok(()));
        // Each of two buffers is filled and emptied in turn: one is the clients', one the disk's.
        let run_buffer = || async {
            let buffer = match self.machine.buffer(self.volume.block_bytes()) {
                Ok(buffer) => buffer,
                Err(error) => return *ended.borrow_mut() = Err(error),
            };
            loop {
                let next = match ended.borrow().is_ok() {
                    true => jobs.borrow_mut().next(),
                    false => None,
                };
                let Some((name, block, pieces)) = next else {
                    return;
                };
                let done = match request.operation {
                    Operation::Write => {
                        self.write_block(request, parts, (&name, &block), &pieces, &buffer)
                            .await
                    }
                    Operation::Read => {
                        self.read_block(parts, (&name, &block), &pieces, &buffer)
                            .await
                    }
                };
                if let Err(error) = done {
                    let mut ended = ended.borrow_mut();
                    if ended.is_ok() {
                        *ended = Err(error);
                    }
                }
            }
        };
        join(
            run_buffer().instrument(span!("buffer")),
            run_buffer().instrument(span!("buffer")),
        )
        .await;
        ended.into_inner()?;
        if request.operation == Operation::Write {
            for (cell, end) in self.ends(request, parts)? {
                let file = (request.file, request.owner);
                self.volume.grow(file, (cell, end), (self.clock)());
            }
        }
        Ok(moved)
    }

    /// This server's cells of a file.
    fn own_cells(&self, request: &Collective) -> Result<impl Iterator<Item = u64> + use<M, R>> {
        Ok(request.shape.dealing(&self.rings())?.cells_of(self.server))
    }

    /// The bytes that a client has of a cell.
    fn holding(&self, request: &Collective, part: &ClientPart, cell: u64) -> Result<Holding> {
        let refused = |error: LayoutError| refusal(error.to_string());
        match &part.bytes {
            PartBytes::Subfile {
                view,
                number,
                order,
                offset,
                bytes,
            } => {
                let shape = (request.shape.cells, request.shape.bsu_bytes);
                let subfile = Subfile::new(*view, *number, *order, shape).map_err(refused)?;
                match subfile.in_cell(cell, *offset, *bytes).map_err(refused)? {
                    None => Ok(Holding::default()),
                    Some(own) => Holding::new(&own.places, &own.memory).map_err(refused),
                }
            }
            PartBytes::Cells(cells) => match cells.iter().find(|part| part.cell == cell) {
                None => Ok(Holding::default()),
                Some(own) => {
                    check_part(own)?;
                    Holding::new(&own.places, &own.memory).map_err(refused)
                }
            },
        }
    }

    /// The ends of the cells that are written.
    fn ends(&self, request: &Collective, parts: &[ClientPart]) -> Result<Vec<(u64, u64)>> {
        let mut ends = Vec::new();
        for cell in self.own_cells(request)? {
            for part in parts {
                let bounds = self.holding(request, part, cell)?.file_bounds();
                ends.extend(bounds.map(|bounds| (cell, bounds.end)));
            }
        }
        Ok(ends)
    }

    /// The blocks that a request touches, in the order in which this server passes over them; and
    /// what it will move for each client.
    fn plan(&self, request: &Collective, parts: &[ClientPart]) -> Result<(Vec<Job>, Vec<Moved>)> {
        let mut jobs = Vec::new();
        let mut moved = vec![Moved::default(); parts.len()];
        for cell in self.own_cells(request)? {
            let end = match request.operation {
                Operation::Write => u64::MAX,
                Operation::Read => self
                    .volume
                    .cell_bytes(request.file, cell, request.version)
                    .unwrap_or(0),
            };
            let mut blocks: BTreeMap<u64, (Block, Vec<(usize, ListPiece)>)> = BTreeMap::new();
            for (rank, part) in parts.iter().enumerate() {
                let holding = self.holding(request, part, cell)?.before(end);
                moved[rank] = moved[rank].and(Moved {
                    bytes: holding.elements(),
                    reach: holding.memory_bounds().unwrap_or_default().end,
                });
                for (block, piece) in holding.pieces(&self.cell_blocks) {
                    let (_, pieces) = blocks
                        .entry(block.index)
                        .or_insert_with(|| (block, Vec::new()));
                    pieces.push((rank, piece));
                }
            }
            jobs.extend(blocks.into_iter().map(|(block, (layout, pieces))| {
                let name = BlockName {
                    file: request.file,
                    version: request.version,
                    cell,
                    block,
                };
                (name, layout, pieces)
            }));
        }
        if request.operation == Operation::Read {
            jobs.sort_by_cached_key(|(name, ..)| self.volume.place_of(name));
        }
        Ok((jobs, moved))
    }

    async fn write_block(
        &self,
        request: &Collective,
        parts: &[ClientPart],
        (name, block): (&BlockName, &Block),
        pieces: &[(usize, ListPiece)],
        buffer: &M::Buffer,
    ) -> Result<()> {
        if !ListPiece::are_disjoint(pieces.iter().map(|(_, piece)| piece)) {
            let ranks: Vec<_> = pieces.iter().map(|(rank, _)| rank).collect();
            let doing = format!("writing block {} of cell {}", name.block, name.cell);
            let cause = format!("two of the ranks {ranks:?} write the same bytes of it");
            return Err(Error::new(Kind::Overlap, doing, cause));
        }
        let written: u64 = pieces.iter().map(|(_, piece)| piece.elements()).sum();
        let claim = self.blocks.claim(name, Intent::Change).await;
        let home = self.home(name);
        let is_whole = written >= block.bytes;
        if !is_whole && !self.blocks.copy_cached(name, block.bytes, buffer) {
            home.load(buffer).await?;
        }
        let window = Window::of_block(block, 1);
        let got = pieces.iter().map(|(rank, piece)| {
            let (part, window) = (&parts[*rank], &window);
            let piece = Piece::from(piece.clone());
            async move {
                let (memory, from) = (part.memory, part.node);
                let got = self.machine.memget(memory, from, &piece, window, buffer);
                self.in_patience(from, got).await
            }
        });
        for got in join_all(got).instrument(portions(name, pieces.len())).await {
            got?;
        }
        let owner = (request.file, request.owner);
        self.reserve(owner, name).await?;
        self.blocks.discard(name);
        self.machine.work(Work::Wake).await;
        let stored = home.store(buffer).await;
        self.blocks.release(claim);
        stored
    }

    async fn read_block(
        &self,
        parts: &[ClientPart],
        (name, block): (&BlockName, &Block),
        pieces: &[(usize, ListPiece)],
        buffer: &M::Buffer,
    ) -> Result<()> {
        let claim = self.blocks.claim(name, Intent::Read).await;
        let cached = self.blocks.cached(name);
        let found = match &cached {
            Some(cached) => &**cached,
            None => {
                self.machine.work(Work::Wake).await;
                self.home(name).load(buffer).await?;
                buffer
            }
        };
        let window = Window::of_block(block, 1);
        let put = pieces.iter().map(|(rank, piece)| {
            let (part, window) = (&parts[*rank], &window);
            let piece = Piece::from(piece.clone());
            async move {
                let (memory, to) = (part.memory, part.node);
                let put = self.machine.memput(memory, to, &piece, window, found);
                self.in_patience(to, put).await
            }
        });
        let put = join_all(put).instrument(portions(name, pieces.len())).await;
        let put: Result<()> = put.into_iter().collect();
        self.blocks.release(claim);
        put
    }
}
