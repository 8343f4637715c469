//! A client of traditional caching: Kotz's `ReadCP` and its twin (TOCS 1997, Figure 2(a)).

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use penstock_layout::{Block, Holding, ListPiece, Share, Stretch, exact};
use rustc_hash::FxHashMap;

use super::messages::{Ask, AskedPart, Reply};
use crate::address::{MemoryId, Step};
use crate::call::Call;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::machine::{CopyKind, Elements, Machine, NodeId, Operation, Window, Work};
use crate::own::OwnPart;
use crate::request::Request;
use crate::tuning::Caching;

/// Moves all that `rank` holds: one call of the file system for each contiguous chunk of its
/// shares, or one for all of its `list`, with a request for each block (Kotz, TOCS 1997, section
/// 7.2).
///
/// # Errors
/// The first error of a server.
pub(super) async fn transfer_own<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    options: &Caching,
    (rank, list): (usize, &Holding),
) -> Result<()> {
    let memory = call.id.memory(0);
    let shares = match OwnPart::new(request, rank, list) {
        OwnPart::List(list) => {
            let mut client = Client::new(call, request, options, Local::List(memory));
            let asked = client.ask_for_list(list).await;
            let ended = client.end_call().await;
            return asked.and(ended);
        }
        OwnPart::Shares(shares) => shares,
    };
    for (part, share) in &shares {
        let local = Local::Memory(share, memory.share(*part as u64));
        let mut client = Client::new(call, request, options, local);
        let asked = client.ask_for_share(share).await;
        // Answers to requests under way are waited for, so that none comes to a later call.
        let ended = client.end_call().await;
        asked.and(ended)?;
    }
    Ok(())
}

/// The start and end of a stretch in the file: the object, and a byte in the object.
struct File {
    start: (u64, u64),
    end: (u64, u64),
}

impl File {
    fn bytes(&self) -> u64 {
        self.end.1 - self.start.1
    }

    fn at(block: &Block, stretch: &Stretch, width: u64) -> Self {
        let start = block.offset + stretch.offset * width;
        let end = start + stretch.region.elements() * width;
        Self {
            start: (block.object, start),
            end: (block.object, end),
        }
    }
}

/// The place of a client's elements on its own node.
pub(crate) enum Local<'a, M: Machine> {
    /// A share, in the memory that the client exposes under this name.
    Memory(&'a Share, MemoryId),
    /// The memory of the client's list: all that it asks for are pieces.
    List(MemoryId),
    /// A staging buffer, in which the next block begins at this byte.
    Staging(&'a M::Buffer, u64),
}

/// An inquiry is a request under way at a server.
struct Inquiry {
    server: usize,
    elements: AskedElements,
    window: Rc<Window>,
    /// The first byte in the staging buffer.
    staged: u64,
}

/// The elements of a block that a request is about.
enum AskedElements {
    Stretch(Stretch),
    /// The piece that the client's list has of the block.
    Piece(ListPiece),
}

/// A request for a part of a block, not yet sent.
struct PartRequest {
    block: Rc<Block>,
    elements: AskedElements,
    /// The first byte in the staging buffer.
    staged: u64,
}

/// The most parts of blocks that a client keeps for later.
const LATER_MAX: usize = 4096;

/// A client asks servers for parts of blocks, and keeps account of requests under way.
pub(crate) struct Client<'a, M: Machine> {
    call: Call<'a, M>,
    request: &'a Request,
    options: &'a Caching,
    local: Local<'a, M>,
    /// The number of requests under way at each server that has any.
    outstanding: FxHashMap<usize, u32>,
    wanted: FxHashMap<u64, Inquiry>,
    /// Parts to ask for when a server has answered.
    later: FxHashMap<usize, VecDeque<PartRequest>>,
    later_count: usize,
    /// The window of the last block.
    window: Option<(u64, u64, Rc<Window>)>,
    tickets: u64,
    error: Option<Error>,
}

impl<'a, M: Machine> Client<'a, M> {
    /// Makes a client with nothing under way.
    pub(crate) fn new(
        call: &Call<'a, M>,
        request: &'a Request,
        options: &'a Caching,
        local: Local<'a, M>,
    ) -> Self {
        Self {
            call: *call,
            request,
            options,
            local,
            outstanding: FxHashMap::default(),
            wanted: FxHashMap::default(),
            later: FxHashMap::default(),
            later_count: 0,
            window: None,
            tickets: 0,
            error: None,
        }
    }

    async fn ask_for_share(&mut self, share: &Share) -> Result<()> {
        let Some(bounds) = share.bounds() else {
            return Ok(());
        };
        let mut end = None;
        let mut call_bytes = 0;
        for block in self.request.disk.blocks_in(&bounds) {
            let block = Rc::new(block);
            for stretch in share.stretches(&block) {
                let here = File::at(&block, &stretch, self.request.disk.width());
                let goes_on = end.replace(here.end) == Some(here.start);
                if !goes_on || call_bytes + here.bytes() > self.options.call_bytes_max {
                    self.end_call().await?;
                    call_bytes = 0;
                }
                call_bytes += here.bytes();
                self.ask(&block, stretch).await?;
            }
        }
        Ok(())
    }

    async fn ask_for_list(&mut self, list: &Holding) -> Result<()> {
        let request = self.request;
        for (block, piece) in list.pieces(&request.disk) {
            self.enqueue(PartRequest {
                block: Rc::new(block),
                elements: AskedElements::Piece(piece),
                staged: 0,
            })
            .await?;
        }
        Ok(())
    }

    /// Asks for a stretch of a block, as soon as few enough requests are under way at its disk.
    /// With [`Caching::looks_ahead`] the request may go out later.
    ///
    /// # Errors
    /// The error of an earlier request: then the client asks for nothing more.
    pub(crate) async fn ask(&mut self, block: &Rc<Block>, stretch: Stretch) -> Result<()> {
        let staged = match self.local {
            Local::Memory(..) | Local::List(_) => 0,
            Local::Staging(_, base) => base + stretch.offset * self.request.disk.width(),
        };
        self.enqueue(PartRequest {
            block: block.clone(),
            elements: AskedElements::Stretch(stretch),
            staged,
        })
        .await
    }

    /// Sends a request, now or later.
    async fn enqueue(&mut self, part: PartRequest) -> Result<()> {
        let server = self
            .request
            .disk
            .server_of(&part.block, self.request.servers);
        if self.options.looks_ahead && self.is_busy(server) {
            self.later.entry(server).or_default().push_back(part);
            self.later_count += 1;
            while self.later_count > LATER_MAX {
                self.take_reply().await?;
            }
            return Ok(());
        }
        while self.is_busy(server) {
            self.take_reply().await?;
        }
        self.send(server, part).await
    }

    fn is_busy(&self, server: usize) -> bool {
        let under_way = self.outstanding.get(&server).copied().unwrap_or(0);
        under_way >= self.options.outstanding_max.max(1)
    }

    async fn send(&mut self, server: usize, part: PartRequest) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let machine = self.call.machine;
        let width = self.request.disk.width();
        let PartRequest {
            block,
            elements,
            staged,
        } = part;
        let (bytes, part) = match &elements {
            AskedElements::Stretch(stretch) => {
                let (offset, bytes) = (stretch.offset * width, stretch.region.elements() * width);
                (bytes, AskedPart::Run { offset, bytes })
            }
            AskedElements::Piece(piece) => (piece.bytes(width), AskedPart::List(piece.clone())),
        };
        let window = self.window(&block);
        let to = self.call.party().servers[server];
        let carried = match self.request.operation {
            Operation::Read => 0,
            Operation::Write => bytes,
        };
        machine.work(Work::Request(to, carried)).await;
        let parcel = match self.request.operation {
            Operation::Read => None,
            Operation::Write => Some(self.pack(&elements, &window, staged..staged + bytes)?),
        };
        let ask = Ask {
            ticket: self.tickets,
            object: block.object,
            index: block.index,
            part,
        };
        let port = self.call.port(Step::Ask(exact::<u32>(server)));
        machine.send(to, port, encode(&ask)?, parcel).await?;
        *self.outstanding.entry(server).or_default() += 1;
        let wanted = Inquiry {
            server,
            elements,
            window,
            staged,
        };
        self.wanted.insert(self.tickets, wanted);
        self.tickets += 1;
        Ok(())
    }

    /// Makes the parcel of elements to be written; a staging buffer has them in these bytes.
    fn pack(
        &self,
        elements: &AskedElements,
        window: &Window,
        staged: Range<u64>,
    ) -> Result<M::Parcel> {
        let machine = self.call.machine;
        match (&self.local, elements) {
            (Local::Memory(share, memory), AskedElements::Stretch(stretch)) => {
                machine.pack(*memory, share, &stretch.region, window)
            }
            (Local::List(memory), AskedElements::Piece(piece)) => {
                let bytes = staged.end - staged.start;
                let send = machine.buffer(bytes)?;
                let (from, to) = (Elements::Exposed, Elements::Packed(&send, 0));
                let pieces = [piece.clone().into()];
                machine.copy(*memory, window.width, &pieces, from, to, CopyKind::Kernels)?;
                Ok(machine.cut(&send, 0..bytes))
            }
            (Local::Staging(buffer, _), _) => Ok(machine.cut(buffer, staged)),
            _ => unreachable!("a list is asked for in pieces, and a share in stretches"),
        }
    }

    /// Takes the elements that a parcel has brought.
    fn unpack(&self, wanted: &Inquiry, parcel: &M::Parcel) -> Result<()> {
        let machine = self.call.machine;
        let window = &wanted.window;
        match (&self.local, &wanted.elements) {
            (Local::Memory(share, memory), AskedElements::Stretch(stretch)) => {
                machine.unpack(*memory, parcel, share, &stretch.region, window)
            }
            (Local::List(memory), AskedElements::Piece(piece)) => {
                let (from, to) = (Elements::Parcel(parcel, 0), Elements::Exposed);
                let pieces = [piece.clone().into()];
                machine.copy(*memory, window.width, &pieces, from, to, CopyKind::Kernels)
            }
            (Local::Staging(buffer, _), _) => {
                machine.paste(parcel, buffer, wanted.staged);
                Ok(())
            }
            _ => unreachable!("a list is asked for in pieces, and a share in stretches"),
        }
    }

    /// Asks for all elements of a block, which begins at byte `base` of the staging buffer.
    ///
    /// # Errors
    /// Like [`Client::ask`].
    pub(crate) async fn ask_whole(&mut self, block: &Rc<Block>, base: u64) -> Result<()> {
        if let Local::Staging(_, at) = &mut self.local {
            *at = base;
        }
        let whole = Share::of_box(&block.region);
        for stretch in whole.stretches(block) {
            self.ask(block, stretch).await?;
        }
        Ok(())
    }

    /// Waits for all answers.
    ///
    /// # Errors
    /// The first error of a request.
    pub(crate) async fn end_call(&mut self) -> Result<()> {
        while !self.wanted.is_empty() {
            self.take_reply().await?;
        }
        debug_assert!(self.later_count == 0 || self.error.is_some());
        self.error.clone().map_or(Ok(()), Err)
    }

    async fn take_reply(&mut self) -> Result<()> {
        let machine = self.call.machine;
        let message = machine.receive(self.call.port(Step::Reply)).await;
        machine.work(Work::Answer).await;
        let reply: Reply = decode(&message.body)?;
        let Some(wanted) = self.wanted.remove(&reply.ticket) else {
            return Err(protocol(message.from, "an answer that nobody waits for"));
        };
        if let Some(count) = self.outstanding.get_mut(&wanted.server) {
            *count -= 1;
        }
        let placed = match (reply.error, self.request.operation, message.parcel) {
            (Some(error), ..) => Err(error),
            (None, Operation::Write, _) => Ok(()),
            (None, Operation::Read, Some(parcel)) => self.unpack(&wanted, &parcel),
            (None, Operation::Read, None) => Err(protocol(message.from, "an answer without data")),
        };
        if let Err(error) = placed {
            self.error.get_or_insert(error);
        }
        match self
            .later
            .get_mut(&wanted.server)
            .and_then(VecDeque::pop_front)
        {
            Some(next) if self.error.is_none() => {
                self.later_count -= 1;
                self.send(wanted.server, next).await
            }
            _ => Ok(()),
        }
    }

    /// The window of a block in a parcel: the block's own strides.
    fn window(&mut self, block: &Block) -> Rc<Window> {
        match &self.window {
            Some((object, index, window)) if (*object, *index) == (block.object, block.index) => {
                window.clone()
            }
            _ => {
                let window = Rc::new(Window::of_block(block, self.request.disk.width()));
                self.window = Some((block.object, block.index, window.clone()));
                window
            }
        }
    }
}

fn protocol(from: NodeId, what: &str) -> Error {
    let cause = format!("node {from} sent {what}");
    Error::new(Kind::Peer, "waiting for a server's answer", cause)
}
