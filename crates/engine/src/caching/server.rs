//! A server of traditional caching: Kotz's `ReadIOP` and its twin (TOCS 1997, Figure 2(a)).
//!
//! Each request is a thread of its own, here a future. A read finds its block in the cache or reads
//! it, answers, and then reads the next block of the same disk ahead if a buffer is free without
//! writing for it. A write finds or makes room, copies its bytes in, answers, and writes the block
//! when as many bytes have come as it has (WriteFull: Kotz and Ellis 1993). A block that must go
//! before it is full is written as it is, and read again when more of it comes.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use futures::future::{join_all, poll_fn};
use futures::stream::{FuturesUnordered, Stream};
use penstock_layout::Block;

use super::cache::{Cache, Name, Room, name};
use super::{Ask, Options, Reply};
use crate::changes::Changes;
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Disk, Machine, Message, NodeId, Step, Tag, Work};
use crate::queue::Queue;
use crate::request::{Moved, Operation, Request};
use crate::tree::{Tree, decode, encode};

/// One server, for the length of a call.
pub(super) struct Server<'a, M: Machine> {
    tree: &'a Tree<'a, M>,
    request: &'a Request,
    options: &'a Options,
    server: usize,
    is_stopped: Cell<bool>,
    stopped: Changes,
}

impl<'a, M: Machine> Server<'a, M> {
    /// Server number `server` of the request, which is on this node.
    pub(super) fn new(
        tree: &'a Tree<'a, M>,
        request: &'a Request,
        options: &'a Options,
        server: usize,
    ) -> Self {
        Self {
            tree,
            request,
            options,
            server,
            is_stopped: Cell::new(false),
            stopped: Changes::default(),
        }
    }

    /// No more requests will come.
    pub(super) fn stop(&self) {
        self.is_stopped.set(true);
        self.stopped.tell();
    }

    /// Answers requests until it is stopped, then writes what is left.
    ///
    /// # Errors
    /// The first that its disk met.
    pub(super) async fn run(&self) -> Result<Moved> {
        let by_me = |error: Error| error.by(Who::Server(self.server));
        match self.tree.machine.open(self.request, self.server).await {
            Ok(disk) => {
                let opened = Opened::new(self, disk);
                opened.answer_all().await.map_err(by_me)?;
                opened.finish().await.map_err(by_me)
            }
            Err(error) => {
                // Clients wait for answers, and get this one.
                let error = by_me(error);
                self.refuse_all(&error).await?;
                Err(error)
            }
        }
    }

    async fn refuse_all(&self, error: &Error) -> Result<()> {
        while let Some(message) = self.next().await? {
            let ask: Ask = decode(&message.body)?;
            self.reply(message.from, ask.ticket, Err(error.clone())).await?;
        }
        Ok(())
    }

    /// The next request, or `None` when it is stopped.
    async fn next(&self) -> Result<Option<Message<M::Parcel>>> {
        let mut message = pin!(self.tree.machine.receive(self.tag(Step::Ask(self.server as u32))));
        let mut stopped = pin!(self.stopped.until(|| self.is_stopped.get().then_some(())));
        poll_fn(|context| match message.as_mut().poll(context) {
            Poll::Ready(message) => Poll::Ready(message.map(Some)),
            Poll::Pending => stopped.as_mut().poll(context).map(|()| Ok(None)),
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
        let tag = self.tag(Step::Reply);
        self.tree.machine.send(to, tag, body, parcel).await
    }

    fn tag(&self, step: Step) -> Tag {
        Tag {
            call: self.tree.call,
            step,
        }
    }
}

/// A server with its disk open.
struct Opened<'a, M: Machine> {
    server: &'a Server<'a, M>,
    machine: &'a M,
    request: &'a Request,
    disk: M::Disk,
    queue: Queue,
    cache: RefCell<Cache<M::Buffer>>,
    changes: Changes,
    /// Blocks that had to go before they were full.
    spilled: RefCell<HashSet<Name>>,
    /// The first error of a write that nobody waited for.
    failed: RefCell<Option<Error>>,
    moved: Cell<Moved>,
}

impl<'a, M: Machine> Opened<'a, M> {
    fn new(server: &'a Server<'a, M>, disk: M::Disk) -> Self {
        let buffers = server.options.buffers_per_client as usize * server.tree.roles.clients.len();
        Self {
            server,
            machine: server.tree.machine,
            request: server.request,
            queue: Queue::new(server.options.queue, disk.queue_depth()),
            disk,
            cache: RefCell::new(Cache::new(buffers)),
            changes: Changes::default(),
            spilled: RefCell::default(),
            failed: RefCell::default(),
            moved: Cell::default(),
        }
    }

    /// Answers requests, side by side, until the server is stopped.
    async fn answer_all(&self) -> Result<()> {
        let mut threads = FuturesUnordered::new();
        loop {
            let mut next = pin!(self.server.next());
            let message = poll_fn(|context| {
                // Threads that have ended are let go of; those that go on will wake this task.
                loop {
                    match pin!(&mut threads).poll_next(context) {
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                        Poll::Ready(Some(Ok(()))) => {}
                        Poll::Ready(None) | Poll::Pending => break,
                    }
                }
                next.as_mut().poll(context)
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
        let ask: Ask = decode(&message.body)?;
        self.machine.work(Work::Thread).await;
        let block = self.request.disk.block_at(ask.object, ask.index);
        let block = block.filter(|block| ask.offset + ask.bytes <= block.bytes);
        let Some(block) = block else {
            let error = Error::new(Kind::Peer, "answering a client", "it asks for no such block");
            return self.server.reply(message.from, ask.ticket, Err(error)).await;
        };
        match (self.request.operation, message.parcel) {
            (Operation::Read, _) => {
                let parcel = self.read(&block, &ask).await.map(Some);
                let was_read = parcel.is_ok();
                self.server.reply(message.from, ask.ticket, parcel).await?;
                if was_read {
                    self.read_ahead(&block).await;
                }
                Ok(())
            }
            (Operation::Write, Some(parcel)) => {
                let put = self.put(&block, &ask, &parcel).await;
                drop(parcel);
                let is_put = put.is_ok();
                self.server.reply(message.from, ask.ticket, put.map(|()| None)).await?;
                if is_put {
                    self.write_if_full(name(&block)).await;
                }
                Ok(())
            }
            (Operation::Write, None) => {
                let error = Error::new(Kind::Peer, "answering a client", "its write has no data");
                self.server.reply(message.from, ask.ticket, Err(error)).await
            }
        }
    }

    async fn read(&self, block: &Block, ask: &Ask) -> Result<M::Parcel> {
        self.machine.work(Work::Lookup).await;
        self.bring_in(block, true).await?;
        let buffer = self.buffer(name(block));
        let parcel = self.machine.cut(&buffer, ask.offset..ask.offset + ask.bytes);
        self.unpin(name(block));
        self.count(|moved| moved.transfers += 1);
        Ok(parcel)
    }

    async fn put(&self, block: &Block, ask: &Ask, parcel: &M::Parcel) -> Result<()> {
        self.machine.work(Work::Lookup).await;
        let was_spilled = self.spilled.borrow_mut().remove(&name(block));
        self.bring_in(block, was_spilled).await?;
        self.machine.work(Work::Copy(ask.bytes)).await;
        // A block that is being written is left alone until it has been.
        let idle = |entry: &mut super::cache::Entry<M::Buffer>| {
            (!entry.is_writing).then(|| {
                entry.dirty += ask.bytes;
                entry.buffer.clone()
            })
        };
        let look = || self.cache.borrow_mut().get(name(block)).and_then(idle);
        let buffer = self.changes.until(look).await;
        self.machine.paste(parcel, &buffer, ask.offset);
        self.unpin(name(block));
        self.count(|moved| moved.transfers += 1);
        Ok(())
    }

    /// Reads the blocks ahead that follow on this disk, as far as buffers are free for them.
    async fn read_ahead(&self, block: &Block) {
        let mut last = block.clone();
        for _ in 0..self.server.options.read_ahead_blocks {
            let Some(next) = self.request.disk.successor(&last, self.request.servers) else {
                return;
            };
            self.machine.work(Work::Lookup).await;
            if self.cache.borrow_mut().get(name(&next)).is_none() {
                let room = self.cache.borrow_mut().room();
                let Some(buffer) = self.take_room(room) else {
                    return;
                };
                self.cache.borrow_mut().insert(next.clone(), buffer, true);
                // An error is met again, and then reported, by whoever asks for the block.
                if self.load(&next).await.is_err() {
                    return;
                }
                self.unpin(name(&next));
            }
            last = next;
        }
    }

    /// A buffer, if there is room without writing.
    fn take_room(&self, room: Room<M::Buffer>) -> Option<Rc<M::Buffer>> {
        match room {
            Room::Old(buffer) => Some(buffer),
            Room::New => self.new_buffer().ok(),
            Room::Dirty(_) | Room::None => None,
        }
    }

    /// Sees to it that the block is in the cache, and pins it: its bytes from the disk if `load`.
    async fn bring_in(&self, block: &Block, load: bool) -> Result<()> {
        let name = name(block);
        loop {
            let pinned = self.cache.borrow_mut().pin(name);
            if let Some(stay) = pinned {
                let look = || match self.cache.borrow_mut().get(name) {
                    Some(entry) if entry.stay == stay => (!entry.is_loading).then_some(true),
                    _ => Some(false),
                };
                if self.changes.until(look).await {
                    return Ok(());
                }
                continue; // whoever was reading it could not: try in their place
            }
            let room = self.cache.borrow_mut().room();
            let buffer = match room {
                Room::Old(buffer) => buffer,
                Room::New => self.new_buffer()?,
                Room::Dirty(other) => {
                    self.spill(other).await;
                    continue;
                }
                Room::None => {
                    let mut tries = 0;
                    let changed = || {
                        tries += 1;
                        (tries > 1).then_some(())
                    };
                    self.changes.until(changed).await;
                    continue;
                }
            };
            self.cache.borrow_mut().insert(block.clone(), buffer, load);
            if load {
                return self.load(block).await;
            }
            self.machine.clear(&self.buffer(name), block.bytes);
            return Ok(());
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
    async fn load(&self, block: &Block) -> Result<()> {
        let buffer = self.buffer(name(block));
        let turn = self.queue.turn(&self.disk, block).await;
        let read = self.disk.read(block, &buffer).await;
        drop(turn);
        match &read {
            Ok(()) => {
                if let Some(entry) = self.cache.borrow_mut().get(name(block)) {
                    entry.is_loading = false;
                }
                self.count_block(block);
            }
            Err(_) => self.cache.borrow_mut().discard(name(block)),
        }
        self.changes.tell();
        read
    }

    /// Writes a block of which as many bytes have come as it has.
    async fn write_if_full(&self, name: Name) {
        let is_full = self.cache.borrow_mut().get(name).is_some_and(|entry| {
            let held = entry.block.region.elements() * self.request.disk.width();
            entry.dirty >= held && !entry.is_writing
        });
        if is_full {
            self.write(name).await;
        }
    }

    /// Writes a block that must make room before it is full.
    async fn spill(&self, name: Name) {
        self.spilled.borrow_mut().insert(name);
        self.write(name).await;
    }

    /// Writes a block of the cache. An error is kept: nobody waits for this write.
    async fn write(&self, name: Name) {
        self.cache.borrow_mut().pin(name);
        let begun = self.cache.borrow_mut().get(name).map(|entry| {
            entry.is_writing = true;
            entry.dirty = 0;
            (entry.block.clone(), entry.buffer.clone())
        });
        let Some((block, buffer)) = begun else {
            return;
        };
        let turn = self.queue.turn(&self.disk, &block).await;
        let written = self.disk.write(&block, &buffer).await;
        drop(turn);
        if let Some(entry) = self.cache.borrow_mut().get(name) {
            entry.is_writing = false;
        }
        match written {
            Ok(()) => self.count_block(&block),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
            }
        }
        self.unpin(name);
    }

    /// Writes what has not been, and waits for the disk.
    async fn finish(&self) -> Result<Moved> {
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

    fn buffer(&self, name: Name) -> Rc<M::Buffer> {
        let mut cache = self.cache.borrow_mut();
        let entry = cache.get(name);
        entry.expect("a pinned block is in the cache").buffer.clone()
    }

    fn unpin(&self, name: Name) {
        self.cache.borrow_mut().unpin(name);
        self.changes.tell();
    }

    fn count_block(&self, block: &Block) {
        self.count(|moved| {
            moved.blocks += 1;
            moved.disk_bytes += block.bytes;
        });
    }

    fn count(&self, change: impl FnOnce(&mut Moved)) {
        let mut moved = self.moved.get();
        change(&mut moved);
        self.moved.set(moved);
    }
}
