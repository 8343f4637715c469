//! A server of traditional caching: Kotz's `ReadIOP` and its twin (TOCS 1997, Figure 2(a)).
//!
//! Each request is a thread of its own, here a future. A read finds its block in the cache or reads
//! it, answers, and then reads the next block of the same disk ahead if a buffer is free without
//! writing for it. A write finds or makes room, copies its bytes in, answers, and writes the block
//! when all its bytes have come (WriteFull: Kotz and Ellis 1993). A block that must go before it is
//! full is written as it is, and read again when more of its bytes come.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use futures::future::{join_all, poll_fn};
use futures::stream::{FuturesUnordered, Stream};
use penstock_layout::{Block, ListPiece, exact};

use super::cache::{Cache, Name, Room, name};
use super::messages::{Ask, AskedPart, Reply, refusal};
use crate::address::{MemoryId, Step};
use crate::call::Call;
use crate::encoding::{decode, encode};
use crate::error::{Error, Result, Who};
use crate::machine::{
    BlockFile, CopyKind, Elements, Machine, Message, NodeId, Operation, Window, Work,
};
use crate::outcome::Traffic;
use crate::queue::Queue;
use crate::request::Request;
use crate::signal::Signal;
use crate::tuning::Caching;

/// A server answers the clients of one call.
pub(super) struct Server<'a, M: Machine> {
    call: Call<'a, M>,
    request: &'a Request,
    options: &'a Caching,
    server: usize,
    is_stopped: Cell<bool>,
    stopped: Signal,
}

impl<'a, M: Machine> Server<'a, M> {
    /// Makes server number `server` of the request, which is on this node.
    pub(super) fn new(
        call: Call<'a, M>,
        request: &'a Request,
        options: &'a Caching,
        server: usize,
    ) -> Self {
        Self {
            call,
            request,
            options,
            server,
            is_stopped: Cell::new(false),
            stopped: Signal::default(),
        }
    }

    /// Tells the server that no more requests will come.
    pub(super) fn stop(&self) {
        self.is_stopped.set(true);
        self.stopped.tell();
    }

    /// Answers requests until the server is stopped, then writes all blocks that are left.
    ///
    /// # Errors
    /// The first error of the server's disk.
    pub(super) async fn run(&self) -> Result<Traffic> {
        let by_me = |error: Error| error.by(Who::Server(self.server));
        match self
            .call
            .machine
            .open(self.request.opening(self.server))
            .await
        {
            Ok(disk) => {
                let opened = OpenServer::new(self, disk);
                opened.answer_all().await.map_err(by_me)?;
                opened.finish().await.map_err(by_me)
            }
            Err(error) => {
                // Clients wait for answers, and get this error.
                let error = by_me(error);
                self.refuse_all(&error).await?;
                Err(error)
            }
        }
    }

    async fn refuse_all(&self, error: &Error) -> Result<()> {
        while let Some(message) = self.next().await {
            let ask: Ask = decode(&message.body)?;
            self.reply(message.from, ask.ticket, Err(error.clone()))
                .await?;
        }
        Ok(())
    }

    /// Waits for the next request, or returns `None` when the server is stopped.
    async fn next(&self) -> Option<Message<M::Parcel>> {
        let mut message = pin!(
            self.call
                .machine
                .receive(self.call.port(Step::Ask(exact::<u32>(self.server))))
        );
        let mut stopped = pin!(self.stopped.until(|| self.is_stopped.get().then_some(())));
        poll_fn(|context| match message.as_mut().poll(context) {
            Poll::Ready(message) => Poll::Ready(Some(message)),
            Poll::Pending => stopped.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    async fn reply(
        &self,
        to: NodeId,
        ticket: u64,
        result: Result<Option<M::Parcel>>,
    ) -> Result<()> {
        let (error, parcel) = match result {
            Ok(parcel) => (None, parcel),
            Err(error) => (Some(error.by(Who::Server(self.server))), None),
        };
        let body = encode(&Reply { ticket, error })?;
        let machine = self.call.machine;
        machine.work(Work::Reply(to)).await;
        machine
            .send(to, self.call.port(Step::Reply), body, parcel)
            .await
    }
}

/// An open server is a server with its disk open.
struct OpenServer<'a, M: Machine> {
    server: &'a Server<'a, M>,
    machine: &'a M,
    request: &'a Request,
    disk: M::File,
    queue: Queue,
    cache: RefCell<Cache<M::Buffer>>,
    /// The signal for futures that wait for a buffer.
    signal: Signal,
    /// Blocks that have bytes on the disk: a block may have to go before it is full.
    written: RefCell<HashSet<Name>>,
    /// The first error of a write that nobody waited for.
    failed: RefCell<Option<Error>>,
    moved: Cell<Traffic>,
}

impl<'a, M: Machine> OpenServer<'a, M> {
    fn new(server: &'a Server<'a, M>, disk: M::File) -> Self {
        let wanted = server.options.buffers_per_client as usize * server.call.party().clients.len();
        let blocks = server
            .request
            .disk
            .conforming_blocks_max(server.request.servers);
        let buffers = wanted.min(exact::<usize>(blocks));
        Self {
            server,
            machine: server.call.machine,
            request: server.request,
            queue: Queue::new(server.options.queue, disk.queue_depth()),
            disk,
            cache: RefCell::new(Cache::new(buffers)),
            signal: Signal::default(),
            written: RefCell::default(),
            failed: RefCell::default(),
            moved: Cell::default(),
        }
    }

    /// Answers requests, side by side, until the server is stopped.
    async fn answer_all(&self) -> Result<()> {
        let bytes = self.cache.borrow().capacity() as u64 * self.request.disk.block_bytes_max();
        self.machine.work(Work::Prepare(bytes)).await;
        let mut threads = FuturesUnordered::new();
        loop {
            let mut next = pin!(self.server.next());
            let message = poll_fn(|context| {
                // Futures that have ended are dropped; the others will wake this task.
                loop {
                    match pin!(&mut threads).poll_next(context) {
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                        Poll::Ready(Some(Ok(()))) => {}
                        Poll::Ready(None) | Poll::Pending => break,
                    }
                }
                next.as_mut().poll(context).map(Ok)
            });
            match message.await? {
                Some(message) => threads.push(self.answer(message)),
                None => break,
            }
        }
        while let Some(ended) = futures::stream::StreamExt::next(&mut threads).await {
            ended?;
        }
        Ok(())
    }

    async fn answer(&self, message: Message<M::Parcel>) -> Result<()> {
        let Message { from, body, parcel } = message;
        let ask: Ask = decode(&body)?;
        self.machine.work(Work::Thread).await;
        let name = (ask.object, ask.index);
        match self.request.operation {
            Operation::Read => {
                let read = self.read(name, &ask).await.map(Some);
                let was_read = read.is_ok();
                self.server.reply(from, ask.ticket, read).await?;
                if was_read {
                    self.read_ahead(name).await;
                }
            }
            Operation::Write => {
                let put = self.put(name, &ask, parcel).await.map(|()| None);
                let is_put = put.is_ok();
                self.server.reply(from, ask.ticket, put).await?;
                if is_put {
                    // The block stays pinned until then, so that it need not make room.
                    self.write_if_full(name).await;
                    self.unpin(name);
                }
            }
        }
        Ok(())
    }

    async fn read(&self, name: Name, ask: &Ask) -> Result<M::Parcel> {
        self.machine.work(Work::Lookup).await;
        self.bring_in(name).await?;
        let parcel = self.take(name, &ask.part);
        self.unpin(name);
        self.count(|moved| moved.transfers += 1);
        parcel
    }

    /// Puts a client's bytes into the block, which is left pinned.
    async fn put(&self, name: Name, ask: &Ask, parcel: Option<M::Parcel>) -> Result<()> {
        let Some(parcel) = parcel else {
            return Err(refusal("its write has no data"));
        };
        self.machine.work(Work::Lookup).await;
        self.bring_in(name).await?;
        let bytes = ask.part.bytes(self.request.disk.width());
        self.machine.work(Work::Copy(bytes)).await;
        // A block that is being written is left alone until the write ends.
        let idle = || {
            let mut cache = self.cache.borrow_mut();
            cache
                .get(name)
                .is_none_or(|entry| !entry.is_writing)
                .then_some(())
        };
        let changed = self.pinned(name).changed;
        changed.until(idle).await;
        let put = self.fill(name, &ask.part, &parcel);
        match put {
            Err(_) => self.unpin(name),
            Ok(()) => {
                if let Some(entry) = self.cache.borrow_mut().get(name) {
                    entry.dirty += bytes;
                }
            }
        }
        self.count(|moved| moved.transfers += 1);
        put
    }

    /// Makes a parcel of the part of a pinned block that a client asks for.
    fn take(&self, name: Name, part: &AskedPart) -> Result<M::Parcel> {
        let PinnedBlock { block, buffer, .. } = self.pinned(name);
        let width = self.request.disk.width();
        part.check(&block, width)?;
        match part {
            AskedPart::Run { offset, bytes } => {
                Ok(self.machine.cut(&buffer, *offset..offset + bytes))
            }
            AskedPart::List(piece) => {
                let bytes = piece.bytes(width);
                let send = self.machine.buffer(bytes)?;
                let windows = [Window::of_block(&block, width)];
                let from = Elements::Staged(&windows, &*buffer);
                self.copy(&windows, piece, from, Elements::Packed(&send, 0))?;
                Ok(self.machine.cut(&send, 0..bytes))
            }
        }
    }

    /// Puts a parcel into the part of a pinned block that a client asks for.
    fn fill(&self, name: Name, part: &AskedPart, parcel: &M::Parcel) -> Result<()> {
        let PinnedBlock { block, buffer, .. } = self.pinned(name);
        let width = self.request.disk.width();
        part.check(&block, width)?;
        match part {
            AskedPart::Run { offset, .. } => {
                self.machine.paste(parcel, &buffer, *offset);
                Ok(())
            }
            AskedPart::List(piece) => {
                let windows = [Window::of_block(&block, width)];
                let to = Elements::Staged(&windows, &*buffer);
                self.copy(&windows, piece, Elements::Parcel(parcel, 0), to)
            }
        }
    }

    fn copy(
        &self,
        windows: &[Window; 1],
        piece: &ListPiece,
        from: Elements<'_, M>,
        to: Elements<'_, M>,
    ) -> Result<()> {
        let (width, pieces) = (windows[0].width, [piece.clone().into()]);
        let by = CopyKind::Kernels;
        self.machine
            .copy(MemoryId::NONE, width, &pieces, from, to, by)
    }

    /// Reads the next blocks of this disk ahead, as far as buffers are free for them.
    async fn read_ahead(&self, name: Name) {
        let mut last = name;
        for _ in 0..self.server.options.read_ahead_blocks {
            self.machine.work(Work::Lookup).await;
            let Some(next) = self.next_on_disk(last) else {
                return;
            };
            last = next;
            if self.cache.borrow_mut().get(next).is_some() {
                continue;
            }
            let room = self.cache.borrow_mut().room();
            let buffer = self.take_room(room);
            let (Some(buffer), Some(block)) = (buffer, self.request.disk.block_at(next.0, next.1))
            else {
                return;
            };
            self.cache.borrow_mut().insert(Rc::new(block), buffer, true);
            // The client that asks for the block meets the error again, and reports it.
            if self.load(next).await.is_err() {
                return;
            }
            self.unpin(next);
        }
    }

    /// The block that follows on this disk.
    fn next_on_disk(&self, last: Name) -> Option<Name> {
        let after = |block: &Block| {
            let next = self.request.disk.successor(block, self.request.servers);
            next.as_ref().map(name)
        };
        match self.cache.borrow_mut().get(last) {
            Some(entry) => *entry.next.get_or_insert_with(|| after(&entry.block)),
            None => after(&self.request.disk.block_at(last.0, last.1)?),
        }
    }

    /// Takes a buffer, if there is room without writing.
    fn take_room(&self, room: Room<M::Buffer>) -> Option<Rc<M::Buffer>> {
        match room {
            Room::Old(buffer) => Some(buffer),
            Room::New => self.new_buffer().ok(),
            Room::Dirty(_) | Room::None => None,
        }
    }

    /// Brings the block into the cache and pins it. The block is read from the disk, unless it is
    /// being written and the disk has none of its bytes.
    async fn bring_in(&self, name: Name) -> Result<()> {
        loop {
            let pinned = self.cache.borrow_mut().pin(name);
            if let Some((stay, changed)) = pinned {
                let look = || match self.cache.borrow_mut().get(name) {
                    Some(entry) if entry.stay == stay => (!entry.is_loading).then_some(true),
                    _ => Some(false),
                };
                if changed.until(look).await {
                    return Ok(());
                }
                continue; // the other request could not read it: this one tries
            }
            let Some(block) = self.request.disk.block_at(name.0, name.1) else {
                return Err(refusal("it asks for a block that there is not"));
            };
            let room = self.cache.borrow_mut().room();
            let buffer = match room {
                Room::Old(buffer) => buffer,
                Room::New => self.new_buffer()?,
                Room::Dirty(other) => {
                    self.write(other).await;
                    continue;
                }
                Room::None => {
                    let mut tries = 0;
                    let changed = || {
                        tries += 1;
                        (tries > 1).then_some(())
                    };
                    self.signal.until(changed).await;
                    continue;
                }
            };
            let element = self.request.rest.element();
            self.machine.clear(&buffer, block.bytes, element);
            // What is written is looked at only now: others may have put bytes in, and written
            // them.
            let load =
                self.request.operation == Operation::Read || self.written.borrow().contains(&name);
            self.cache.borrow_mut().insert(Rc::new(block), buffer, load);
            return match load {
                true => self.load(name).await,
                false => Ok(()),
            };
        }
    }

    fn new_buffer(&self) -> Result<Rc<M::Buffer>> {
        let bytes = self.request.disk.block_bytes_max();
        match self.machine.buffer(bytes) {
            Ok(buffer) => {
                self.count(|moved| moved.buffer_bytes += bytes);
                Ok(Rc::new(buffer))
            }
            Err(error) => {
                self.cache.borrow_mut().give_up_room();
                Err(error)
            }
        }
    }

    /// Reads a block that is in the cache and pinned.
    async fn load(&self, name: Name) -> Result<()> {
        let PinnedBlock {
            block,
            buffer,
            changed,
        } = self.pinned(name);
        let wake = self.machine.work(Work::Wake);
        let turn = self.queue.turn(&self.disk, &block, wake).await;
        let read = self.disk.read(&block, &buffer, 0).await;
        drop(turn);
        match &read {
            Ok(()) => {
                if let Some(entry) = self.cache.borrow_mut().get(name) {
                    entry.is_loading = false;
                }
                self.count_block(&block);
            }
            Err(_) => {
                self.cache.borrow_mut().discard(name);
                self.signal.tell();
            }
        }
        changed.tell();
        read
    }

    /// Writes a block when all its bytes have come.
    async fn write_if_full(&self, name: Name) {
        let is_full = self.cache.borrow_mut().get(name).is_some_and(|entry| {
            let held = entry.block.region.elements() * self.request.disk.width();
            entry.dirty >= held && !entry.is_writing
        });
        if is_full {
            self.write(name).await;
        }
    }

    /// Writes a block of the cache. An error is kept: nobody waits for this write.
    async fn write(&self, name: Name) {
        self.written.borrow_mut().insert(name);
        self.cache.borrow_mut().pin(name);
        let PinnedBlock {
            block,
            buffer,
            changed,
        } = self.pinned(name);
        if let Some(entry) = self.cache.borrow_mut().get(name) {
            entry.is_writing = true;
            entry.dirty = 0;
        }
        let wake = self.machine.work(Work::Wake);
        let turn = self.queue.turn(&self.disk, &block, wake).await;
        let written = self.disk.write(&block, &buffer, 0).await;
        drop(turn);
        if let Some(entry) = self.cache.borrow_mut().get(name) {
            entry.is_writing = false;
        }
        changed.tell();
        match written {
            Ok(()) => self.count_block(&block),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
            }
        }
        self.unpin(name);
    }

    /// Writes the blocks that are left, and waits for the disk.
    async fn finish(&self) -> Result<Traffic> {
        if self.request.operation == Operation::Write {
            let unwritten = self.cache.borrow().unwritten();
            join_all(unwritten.into_iter().map(|name| self.write(name))).await;
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.disk.finish().await?;
        }
        Ok(self.moved.get())
    }

    fn pinned(&self, name: Name) -> PinnedBlock<M::Buffer> {
        let mut cache = self.cache.borrow_mut();
        let Some(entry) = cache.get(name) else {
            unreachable!("a pinned block is in the cache");
        };
        PinnedBlock {
            block: entry.block.clone(),
            buffer: entry.buffer.clone(),
            changed: entry.changed.clone(),
        }
    }

    fn unpin(&self, name: Name) {
        self.cache.borrow_mut().unpin(name);
        self.signal.tell();
    }

    fn count_block(&self, block: &Block) {
        self.count(|moved| {
            moved.blocks += 1;
            moved.disk_bytes += block.bytes;
        });
    }

    fn count(&self, change: impl FnOnce(&mut Traffic)) {
        let mut moved = self.moved.get();
        change(&mut moved);
        self.moved.set(moved);
    }
}

/// A pinned block, with its buffer.
struct PinnedBlock<B> {
    block: Rc<Block>,
    buffer: Rc<B>,
    /// The signal for the end of loading and of writing.
    changed: Rc<Signal>,
}
