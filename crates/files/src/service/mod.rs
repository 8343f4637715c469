//! A server of files: what it does for clients, and for other servers.
//!
//! A server is one task of its node. It takes requests from its mailbox and serves them side by
//! side:
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the mailbox; which request goes where |
//! | `state` | what a server has |
//! | `access` | reading and writing bytes of cells, through the blocks in memory |
//! | `ahead`, `recent` | blocks that are fetched before they are asked for |
//! | `writing`, `behind` | changed blocks that are written before anybody waits for that |
//! | `schedule` | the order of the requests to one file |
//! | `tokens` | the order of the requests to several servers |
//! | `namespace` | objects and Xrefs |
//! | `objects` | creation, removal, renaming: what a server directs |
//! | `moves`, `taken` | files and names that move to other servers |
//! | `steps` | its parts in transactions, and what is left of them after a crash |
//! | `attach`, `attachments` | who uses a file |
//! | `collective`, `gathering` | requests of all clients of a program together |
//! | `meeting` | clients of a program that wait for each other |
//! | `guests`, [`lodge`] | clients whom the server does not trust |
//! | `metering` | what a server notes of what it does |
//! | `losses` | servers that are lost and come back |
//! | `quotas` | the blocks that a user may have on all servers together |
//! | [`pointers`] | shared pointers |

pub(crate) mod access;
mod ahead;
mod attach;
mod attachments;
mod behind;
mod collective;
mod gathering;
mod guests;
pub mod lodge;
pub(crate) mod losses;
mod meeting;
mod metering;
mod moves;
mod namespace;
mod objects;
pub mod pointers;
pub(crate) mod quotas;
mod recent;
mod schedule;
mod state;
mod steps;
mod taken;
mod tokens;
mod writing;

use std::pin::pin;
use std::rc::Rc;

use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use penstock_engine::encoding::decode;
use penstock_engine::trace::Instrument;
use penstock_engine::{Change, Error, Machine, Message, NodeId, Result};

use crate::messages::{Answer, Ask, Request, refusal, requests};
use crate::object::Identity;
use crate::volume::BlockName;
use crate::volume::records::RecordStore;
use lodge::Lodge;
use losses::is_loss;
use metering::Question;
use pointers::PointerId;
use schedule::Footprint;
use state::Task;
pub use state::{Parts, Service, VolumeShape, disk_schema};

/// The tasks that go on as long as the server runs: commits, and writes when it is idle.
const ENDLESS_TASKS: usize = 2;

/// What happens to a server.
enum Event<P> {
    Message(Message<P>),
    Change((u64, NodeId, Change)),
    Ended,
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Serves until a client stops the server.
    ///
    /// # Errors
    /// When the records cannot be read, or make no sense; when all clients with which it ends have
    /// left. Other clients wait until the node leaves the machine.
    pub async fn run(&self) -> Result<()> {
        let prepared = self.load().await?;
        let mut tasks: FuturesUnordered<Task<'_>> = FuturesUnordered::new();
        tasks.push(Box::pin(self.volume.committer.run()));
        tasks.push(Box::pin(self.write_when_idle()));
        tasks.push(Box::pin(self.recover(prepared)));
        tasks.extend(self.stop_when_told());
        let mut endless = ENDLESS_TASKS;
        if let Some(lodge) = &self.lodge {
            tasks.push(Box::pin(self.watch_stalls(lodge)));
            endless += 1;
        }
        let mailbox = requests(self.shape.volume, self.server);
        let mut next = self.machine.changes();
        for &node in self.shape.servers.all().iter() {
            let absence = self.machine.absence(node);
            let absent = absence.map(|error| (node, error));
            self.departed.borrow_mut().extend(absent);
        }
        // Clients may have left before this server has begun to listen.
        for &node in self.clients.iter() {
            if let Some(error) = self.machine.absence(node) {
                tasks.extend(self.forget_node(node, error));
            }
        }
        let mut held = Vec::new();
        self.publish(0, 0);
        while !self.is_stopped.get() || tasks.len() > endless {
            let event = {
                let message = pin!(self.machine.receive(mailbox));
                let change = pin!(self.machine.change(next));
                let ended = pin!(tasks.next());
                // A message from a node that is back is taken after the news of that.
                match select(change, select(message, ended)).await {
                    Either::Left((change, _)) => Event::Change(change),
                    Either::Right((Either::Left((message, _)), _)) => Event::Message(message),
                    Either::Right((Either::Right(_), _)) => Event::Ended,
                }
            };
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            match event {
                Event::Message(message) => held.push(message),
                Event::Change((after, node, change)) => {
                    next = after;
                    tasks.extend(match change {
                        Change::Left(error) => {
                            held.retain(|message| message.from != node);
                            self.forget_node(node, error)
                        }
                        Change::Joined => self.take_back(node),
                    });
                }
                Event::Ended => {}
            }
            for message in std::mem::take(&mut held) {
                match self.begin(message) {
                    Ok(begun) => tasks.extend(begun),
                    Err(message) => held.push(message),
                }
            }
            self.publish(held.len(), tasks.len().saturating_sub(endless));
        }
        Ok(())
    }

    /// Begins what a message asks for, or gives it back if it has to wait until the server is
    /// ready.
    fn begin(
        &self,
        message: Message<M::Parcel>,
    ) -> std::result::Result<Vec<Task<'_>>, Message<M::Parcel>> {
        let Message { from, body, parcel } = message;
        let Ok(mut request) = decode::<Request>(&body) else {
            return Ok(Vec::new()); // it is nobody's request
        };
        if request.is_of_servers() && !self.is_server(from) {
            return Ok(Vec::new()); // it is no server of this volume
        }
        let is_of_recovery = matches!(request, Request::Ask(_, _, Ask::WasDecided(_)));
        if !self.is_ready.get() && !is_of_recovery {
            return Err(Message { from, body, parcel });
        }
        if self.is_stopped.get() {
            return Ok(Vec::new()); // who asks after the end has not agreed with the others
        }
        self.behind.requests.set(self.behind.requests.get() + 1);
        if let Request::Access(access) = &mut request {
            self.begin_access(from, access);
        }
        if let Some(lodge) = self.lodge.as_ref().filter(|_| !self.is_server(from)) {
            return Ok(self.begin_for_guest(lodge, (from, body.len()), request, parcel));
        }
        Ok(self.begin_request(from, request, parcel))
    }

    /// Begins a request of a node that may make it.
    fn begin_request(
        &self,
        from: NodeId,
        request: Request,
        parcel: Option<M::Parcel>,
    ) -> Vec<Task<'_>> {
        match request {
            Request::Access(access) => self.place_access(from, access, parcel),
            Request::Token(token) => self.take_token(token),
            Request::Placed(client, request) => {
                self.end_passage((client, request));
                Vec::new()
            }
            Request::Lost(client, request, server) => {
                match self.is_server(from) || from == client {
                    true => self.fail((client, request), server),
                    false => Vec::new(), // it is another's request
                }
            }
            Request::Gap(before, server) => self.take_gap(from, before, server),
            Request::Ask(ticket, who, ask) => {
                vec![Box::pin(self.answer(from, ticket, who, ask))]
            }
        }
    }

    /// Whether a node has a server of the volume.
    pub(super) fn is_server(&self, node: NodeId) -> bool {
        self.shape.servers.have(node)
    }

    /// Begins what a client asks for whom the server does not trust.
    fn begin_for_guest(
        &self,
        lodge: &Lodge<M::Parcel>,
        (from, bytes): (NodeId, usize),
        request: Request,
        parcel: Option<M::Parcel>,
    ) -> Vec<Task<'_>> {
        let inside = match &request {
            Request::Access(access) => access.inside_bytes(),
            _ => 0,
        };
        let Some(hold) = lodge.hold(from, bytes as u64 + inside) else {
            return Vec::new();
        };
        match request {
            Request::Access(mut access) => {
                access.hold = Some(Rc::new(hold));
                self.place_guest_access(lodge, from, access, parcel)
            }
            Request::Ask(ticket, says, ask) => {
                match lodge.vet(from, says, self.shape.owner, &ask) {
                    Ok(who) => {
                        let answer = self.answer(from, ticket, who, ask);
                        vec![Box::pin(async move {
                            answer.await;
                            drop(hold);
                        })]
                    }
                    Err(error) => {
                        self.end_note(self.begin_note((from, ticket), &ask), true);
                        vec![self.reply(from, ticket, Err(error))]
                    }
                }
            }
            other => self.begin_request(from, other, parcel),
        }
    }

    /// Answers a question.
    async fn answer(&self, from: NodeId, ticket: u64, who: Identity, ask: Ask) {
        let note = self.begin_note((from, ticket), &ask);
        let span = note.span.clone();
        let answering = self.answer_noted(note, (from, ticket), who, ask);
        answering.instrument(span).await;
    }

    /// Answers a question whose note has begun.
    async fn answer_noted(
        &self,
        note: Question,
        (from, ticket): (NodeId, u64),
        who: Identity,
        ask: Ask,
    ) {
        let path = ask.path().cloned();
        if let Some(path) = &path
            && let Some(answer) = self.answer_elsewhere(path).await
        {
            let _ = self.caller.reply(from, ticket, &answer, None).await;
            return self.end_note(note, answer.is_err());
        }
        let answer = match ask {
            Ask::Prepare(id, steps) => return self.take_part(from, ticket, who, id, steps).await,
            Ask::Decide(id, is_decided) if self.awaited.borrow().contains_key(&id) => {
                let mut decisions = self.decisions.borrow_mut();
                let (_, askers) = decisions.entry(id).or_insert((is_decided, Vec::new()));
                askers.push((from, ticket));
                drop(decisions);
                return self.heard.tell();
            }
            Ask::Join {
                program,
                rank,
                request,
                part,
            } => {
                let key = (program, request.file, request.sequence);
                return self.join(key, (from, ticket), rank, request, part).await;
            }
            Ask::Meet {
                program,
                clients,
                purpose,
            } => {
                let purpose = purpose.map(|purpose| (who, purpose));
                self.end_note(note, false);
                return self.meet(program, (from, ticket), clients, purpose).await;
            }
            Ask::Block(file, cell, block, version) => {
                let name = BlockName {
                    file,
                    version,
                    cell,
                    block,
                };
                self.end_note(note, false);
                return self.send_block(from, ticket, &name).await;
            }
            Ask::Decide(id, is_decided) => {
                // It was carried out when this server started, or its part has not come yet.
                if !is_decided {
                    self.undone.borrow_mut().insert(id);
                }
                Ok(Answer::Done)
            }
            ask => self.do_ask(from, &self.shape.known(who), ask).await,
        };
        let answer = match (answer, path) {
            // Its slot has moved while it was under way.
            (Err(error), Some(path)) if !is_loss(&error) && !self.keeps(&path) => {
                Ok(Answer::HasMoved)
            }
            (answer, _) => answer,
        };
        // Who has left needs no answer.
        let _ = self.caller.reply(from, ticket, &answer, None).await;
        self.end_note(note, answer.is_err());
    }

    async fn do_ask(&self, from: NodeId, who: &Identity, ask: Ask) -> Result<Answer> {
        Ok(match ask {
            Ask::Stat(path) => {
                let object = self.stat(&path).await?;
                let links = self.namespace.borrow().links(&object);
                Answer::Found(object, links)
            }
            Ask::Attach {
                path,
                usage,
                program,
                clients,
            } => {
                let clients = (program, clients);
                return self.attach(who, &path, usage, clients).await;
            }
            Ask::Detach(key) => {
                self.attachments.borrow_mut().remove(key, from);
                Answer::Done
            }
            Ask::Create(object) => Answer::Object(self.create(who, object).await?),
            Ask::Remove(path) => self.remove(who, &path).await?,
            Ask::Rename(from, to, old) => self.rename(who, (&from, &to), &old).await?,
            Ask::Set(path, new) => self.set_attributes(who, &path, &new).await?,
            Ask::List(path) => Answer::Entries(self.list(who, &path).await?),
            Ask::Change(path, change) => self.change_file(who, &path, change).await?,
            Ask::CellBytes(file, _, placement) if self.has_moved_since(file, placement) => {
                Answer::HasMoved
            }
            Ask::CellBytes(file, version, _) => {
                let written = self.volume.written(file);
                Answer::CellBytes(self.volume.bytes_of_cells(file, version), written)
            }
            Ask::Status(path) => Answer::Status(self.status(&path)?),
            Ask::Sync(Some(file)) => {
                self.sync(file).await?;
                Answer::Done
            }
            Ask::Sync(None) => {
                self.sync_all().await?;
                Answer::Done
            }
            Ask::Prefetch(file, parts) => {
                self.prefetch(file, &parts).await?;
                Answer::Done
            }
            Ask::Flush(file, parts) => {
                self.flush(file, &parts).await?;
                Answer::Done
            }
            Ask::Space(user) => {
                let usage = self.volume.usage();
                Answer::Space {
                    used: usage.used,
                    blocks: usage.blocks,
                    block_bytes: usage.block_bytes,
                    of_user: self.volume.blocks_of(user),
                    limit: self.quotas.borrow().get(&user).copied(),
                }
            }
            Ask::Quota(user, blocks) => self.limit(who, user, blocks).await?,
            Ask::Allot(user, server) => self.allot(user, server).await?,
            Ask::GiveBack(user) => Answer::Value(self.volume.give_back(user)),
            Ask::Allow(user, blocks) => {
                self.volume.allow(user, blocks);
                Answer::Done
            }
            Ask::NewPointer(value) => {
                let number = self.pointers.borrow_mut().add(value);
                Answer::Pointer(PointerId {
                    server: self.server,
                    number,
                })
            }
            Ask::MovePointer(pointer, how) => {
                let moved = self.pointers.borrow_mut().apply(pointer.number, &how);
                Answer::Value(moved?)
            }
            Ask::BeCautious(file) => {
                self.reckless.borrow_mut().remove(&file);
                // What has begun in no order ends before anything begins in the order of tokens.
                let place = self.schedule(file).enter(Footprint::All);
                self.turn_of(&place, file).await?;
                Answer::Done
            }
            Ask::Right(file, client) => Answer::Right(self.attached_right(file, client)),
            Ask::BeReckless(file) => {
                self.reckless.borrow_mut().insert(file, from);
                Answer::Done
            }
            Ask::WasDecided(id) => Answer::Decided(self.was_decided(id)),
            Ask::Metrics => self.metrics(who)?,
            Ask::Places => {
                let notice = self.lodge.as_ref().map(|lodge| lodge.guests.notice());
                let keepers = self.keepers.borrow().clone();
                Answer::Places((*self.rings()).clone(), keepers, notice)
            }
            Ask::MoveSlot(slot, to) => self.move_slot(who, slot, to).await?,
            Ask::Retire => self.retire(who).await?,
            Ask::AddRing(servers) => self.add_ring(who, servers).await?,
            Ask::MoveOn(path) => self.move_on(who, &path).await?,
            Ask::Take {
                transaction,
                file,
                shape,
                placement,
            } => {
                let taken = self.take(from, transaction, (file, shape, placement));
                Answer::Value(taken.await?)
            }
            Ask::GiveUp(file) => {
                self.give_up_taken(file);
                Answer::Done
            }
            Ask::Cells(file, cells) => self.cells(file, &cells).await?,
            Ask::Leaves(file, cell, first) => self.leaves(file, cell, first),
            Ask::Stop => {
                self.sync_all().await?;
                self.is_stopped.set(true);
                self.heard.tell();
                Answer::Done
            }
            Ask::Prepare(..)
            | Ask::Decide(..)
            | Ask::Join { .. }
            | Ask::Meet { .. }
            | Ask::Block(..) => {
                return Err(refusal("it has been answered"));
            }
        })
    }

    /// Forgets a node that has left: its attachments end, and tokens do not wait for its requests.
    fn forget_node(&self, node: NodeId, error: Error) -> Vec<Task<'_>> {
        self.departed.borrow_mut().insert(node, error.clone());
        self.attachments.borrow_mut().forget(node);
        if let Some(meter) = &self.meter {
            meter.forget_client(node);
        }
        if let Some(lodge) = &self.lodge {
            lodge.forget(node);
        }
        let mut early = self.early.borrow_mut();
        early.retain(|(from, _), _| *from != node);
        drop(early);
        self.failures.borrow_mut().remove(&node);
        self.forget_taken(node);
        let lost = self.servers_on(node);
        let mut tasks: Vec<_> = lost.flat_map(|server| self.forget_server(server)).collect();
        self.heard.tell();
        tasks.extend(self.pass_all_tokens());
        tasks.extend(self.give_up_gatherings());
        tasks.extend(self.give_up_meetings());
        let departed = self.departed.borrow();
        let was_client = self.clients.contains(&node);
        if was_client && self.clients.iter().all(|node| departed.contains_key(node)) {
            tasks.push(Box::pin(self.end_alone(error)));
        }
        tasks
    }
}
