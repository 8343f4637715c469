//! Servers that are lost and come back: what ends with them, and what goes on.
//!
//! A server that is lost takes with it the tokens that it had, and those on their ways to it. A
//! request *needs* the servers from the first of its token's way to the last: it ends by an error
//! that names the lost one. Who tells whom:
//!
//! ```text
//! server before the lost one    Gap ->  all servers: tokens that I passed on may be lost
//! first server of a request     Lost -> the other servers of the request
//! client, of a part that fails  Lost -> the other servers of the request
//! ```
//!
//! A part that has failed is remembered until its client has ended the request: its token may come
//! after all, and does not wait for it then. Transactions under way are undone by their directors;
//! what is prepared here for a director that is lost stays, and what needs it is refused.

use std::pin::pin;

use futures::future::{Either, select};
use penstock_engine::blocks::{Claim, Intent};
use penstock_engine::{Error, Kind, Machine, NodeId, Result, Who};

use super::schedule::Place;
use super::state::{Service, Task};
use super::tokens::{self, Passage};
use crate::caller::{GREETING, loss_of};
use crate::messages::{Answer, Errand, Request, Token, Turn};
use crate::names::FilePath;
use crate::object::{ObjectId, overtaken};
use crate::placement::Order;
use crate::transaction::Step;
use crate::volume::records::RecordStore;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// The servers on a node.
    pub(super) fn servers_on(&self, node: NodeId) -> impl Iterator<Item = usize> + use<M, R> {
        let servers = self.shape.servers.all();
        (0..servers.len()).filter(move |&server| servers[server] == node)
    }

    /// The error of a server that is absent, as far as this one has dealt with that.
    pub(super) fn missing(&self, server: usize) -> Option<Error> {
        let node = self.shape.servers.node(server)?;
        let error = self.departed.borrow().get(&node).cloned();
        error.map(|error| error.by(Who::Server(server)))
    }

    /// Waits for another server, though not long, if that is not there: of two that make a new link
    /// one knows it first, and the other may hear from third ones what the first has done then.
    pub(super) async fn reach(&self, node: NodeId) {
        let is_here = || !self.departed.borrow().contains_key(&node);
        if is_here() {
            return;
        }
        let here = pin!(self.heard.until(|| is_here().then_some(())));
        let late = pin!(self.machine.wait(GREETING));
        select(here, late).await;
    }

    /// A server is lost, or the link to it was cut.
    pub(super) fn forget_server(&self, server: usize) -> Vec<Task<'_>> {
        let mut tasks = self.lose(server, None);
        let has_passed = self.buckets.borrow_mut().cut_out(server);
        if has_passed {
            let others = 0..self.caller.servers();
            let others = others.filter(|&other| other != self.server && other != server);
            let gap = Request::Gap(self.server, server);
            tasks.extend(others.map(|other| self.tell(other, gap.clone())));
        }
        self.buckets.borrow_mut().cut_in(server);
        self.undone.borrow_mut().retain(|id| id.server != server);
        let node = self.shape.servers.node(server);
        self.reckless
            .borrow_mut()
            .retain(|_, keeper| Some(*keeper) != node);
        tasks
    }

    /// A node is back.
    pub(super) fn take_back(&self, node: NodeId) -> Vec<Task<'_>> {
        self.departed.borrow_mut().remove(&node);
        if self.servers_on(node).next().is_none() {
            return Vec::new();
        }
        self.joins.set(self.joins.get() + 1);
        self.heard.tell();
        let mut tasks: Vec<Task<'_>> = vec![Box::pin(self.forget_decided())];
        for server in self.servers_on(node) {
            let owed = self.owed.borrow_mut().remove(&server).unwrap_or_default();
            tasks.extend(owed.into_iter().map(|word| self.tell(server, word)));
        }
        tasks
    }

    /// Sends a word to a server.
    pub(super) fn tell(&self, server: usize, word: Request) -> Task<'_> {
        Box::pin(async move {
            let _ = self.caller.send(server, &word, None).await; // it is lost: `forget_server`
        })
    }

    /// Sends a word to a server, when that is there: the link to it may have been cut though both
    /// live, or it may know already that this server is there.
    pub(super) fn tell_later(&self, server: usize, word: Request) -> Option<Task<'_>> {
        if self.missing(server).is_none() {
            return Some(self.tell(server, word));
        }
        let mut owed = self.owed.borrow_mut();
        owed.entry(server).or_default().push(word);
        None
    }

    /// A server says that tokens that it has passed on to another may be lost.
    pub(super) fn take_gap(&self, from: NodeId, before: usize, server: usize) -> Vec<Task<'_>> {
        if server >= self.caller.servers() || self.shape.servers.node(before) != Some(from) {
            return Vec::new();
        }
        let asked = self.asked.borrow();
        let is_on = |way: &[usize]| way.windows(2).any(|link| link == [before, server]);
        let asked = asked.iter().filter(|(_, asked)| is_on(asked));
        let told = asked.map(|(&ticket, _)| -> Task<'_> {
            let answer = Ok(Answer::Gap(server));
            let me = self.machine.me();
            Box::pin(async move {
                let _ = self.caller.reply(me, ticket, &answer, None).await; // it has ended
            })
        });
        let told: Vec<_> = told.collect();
        let lost = match server == self.server {
            true => Vec::new(), // what has come here is not lost
            false => self.lose(server, Some(before)),
        };
        lost.into_iter().chain(told).collect()
    }

    /// Ends the requests whose tokens may be lost with a server, or only on the way to it from
    /// another one.
    fn lose(&self, server: usize, over: Option<usize>) -> Vec<Task<'_>> {
        let is_lost = |file, turns: &[usize]| {
            let order = self.order(file);
            order.is_ok_and(|order| tokens::are_lost(&order, turns, server, over))
        };
        let is_before = |file| {
            let order = self.order(file);
            order.is_ok_and(|order| order.turn(server) < order.turn(self.server))
        };
        let mut tasks = Vec::new();
        let early = self.early.borrow();
        let lost = early.iter().filter(|(_, (access, ..))| match &access.turn {
            Turn::Token(turns) => is_before(access.way()) && is_lost(access.way(), turns),
            Turn::Any | Turn::Arrival => false,
        });
        let lost: Vec<_> = lost.map(|(&key, _)| key).collect();
        drop(early);
        for key in lost {
            tasks.extend(self.fail(key, server));
        }
        let passages = self.passages.borrow();
        let over = passages
            .iter()
            .filter(|(_, one)| is_lost((one.base, one.placement), &one.turns));
        let over: Vec<_> = over.map(|(&request, _)| request).collect();
        drop(passages);
        for request in over {
            tasks.extend(self.lose_token(request, server));
        }
        tasks
    }

    /// Ends a request whose token has passed here, and may be lost with a server. The first server
    /// of the request tells the others: that one, too, which may not know the part that its former
    /// life had.
    fn lose_token(&self, request: (NodeId, u64), server: usize) -> Vec<Task<'_>> {
        let mut tasks = Vec::new();
        if let Some(passage) = self.passages.borrow().get(&request)
            && let Passage { base, turns, .. } = passage
            && let Ok(order) = self.order((*base, passage.placement))
            && turns.first().copied() == order.turn(self.server)
        {
            let lost = Request::Lost(request.0, request.1, server);
            for &turn in turns.iter().skip(1) {
                let other = order.server(turn);
                tasks.extend(self.tell_later(other, lost.clone()));
                if other == server && self.missing(other).is_none() {
                    // If it is lost, and that is not known here, the word goes there, too.
                    let mut owed = self.owed.borrow_mut();
                    owed.entry(other).or_default().push(lost.clone());
                }
            }
        }
        self.end_passage(request);
        tasks
    }

    /// Ends a request: another part of it, or its token, is lost with a server.
    pub(super) fn fail(&self, request: (NodeId, u64), server: usize) -> Vec<Task<'_>> {
        let (from, _) = request;
        if server >= self.caller.servers() || self.departed.borrow().contains_key(&from) {
            return Vec::new();
        }
        if self.passages.borrow().contains_key(&request) {
            return self.lose_token(request, server);
        }
        self.note_failure(request, server);
        let part = self.early.borrow_mut().remove(&request);
        let answered = part.map(|(access, ..)| {
            let error = self.missing(server).unwrap_or_else(|| loss_of(server));
            self.reply(from, access.ticket, Err(error))
        });
        let mut tasks = self.pass_all_tokens(); // its token may have waited for it
        tasks.extend(answered);
        tasks
    }

    /// Notes that a request has failed here.
    pub(super) fn note_failure(&self, (from, request): (NodeId, u64), server: usize) {
        let mut failures = self.failures.borrow_mut();
        failures.entry(from).or_default().note(request, server);
    }

    /// The error of a part of a request that has come, if the request has failed here.
    pub(super) fn failure(&self, from: NodeId, request: u64, oldest: u64) -> Option<Error> {
        let mut failures = self.failures.borrow_mut();
        let server = failures.get_mut(&from)?.find(request, oldest)?;
        Some(self.missing(server).unwrap_or_else(|| loss_of(server)))
    }

    /// Whether a request has failed here, so that no part of it comes.
    pub(super) fn has_failed(&self, (from, request): (NodeId, u64)) -> bool {
        let failures = self.failures.borrow();
        failures.get(&from).is_some_and(|one| one.has(request))
    }

    /// Notes that a request has been done here. Its place is kept until its token has come to its
    /// end.
    pub(super) fn end_work(&self, request: (NodeId, u64), place: Place) {
        let mut passages = self.passages.borrow_mut();
        match passages.get_mut(&request) {
            Some(passage) if !passage.is_over => passage.place = Some(place),
            _ => {
                passages.remove(&request);
                drop(passages);
                drop(place);
            }
        }
    }

    /// Notes that a request has its places on all servers, or that its token is lost.
    pub(super) fn end_passage(&self, request: (NodeId, u64)) {
        let mut passages = self.passages.borrow_mut();
        let Some(passage) = passages.get_mut(&request) else {
            return;
        };
        passage.is_over = true;
        let over = match passage.place {
            Some(_) => passages.remove(&request),
            None => None,
        };
        drop(passages);
        drop(over);
    }

    /// Tells the director of a token that it goes no further, as the next server is lost.
    pub(super) fn give_up(&self, token: &Token, order: &Order, next: usize) -> Vec<Task<'_>> {
        let lost = Request::Gap(self.server, next);
        let directors: Vec<usize> = match (&token.errand, token.turns.first()) {
            (Errand::Access, Some(&first)) => vec![order.server(first)],
            _ => self.servers_on(token.from).collect(),
        };
        let told = directors
            .into_iter()
            .filter_map(|server| self.tell_later(server, lost.clone()));
        told.collect()
    }

    /// The error for a request that must wait until a transaction has ended whose director is lost,
    /// if one of the steps here is such a step.
    fn doubt(&self, is_meant: impl Fn(&Step) -> bool) -> Option<Error> {
        let awaited = self.awaited.borrow();
        awaited.iter().find_map(|(id, steps)| {
            let error = self.missing(id.server)?;
            steps.iter().any(&is_meant).then_some(error)
        })
    }

    /// The error for a request about an object that must wait for a lost director.
    fn doubt_about(&self, path: &FilePath) -> Option<Error> {
        self.doubt(|step| step.lock().is_some_and(|(locked, _)| locked == path))
    }

    /// The error for a request to a file that must wait for a lost director.
    fn doubt_in(&self, file: ObjectId) -> Option<Error> {
        self.doubt(|step| matches!(step, Step::Cells { file: changed, .. } if *changed == file))
    }

    /// Waits for the turn of a place in the order of a file.
    ///
    /// # Errors
    /// The loss of a director whose transaction must end before.
    pub(super) async fn turn_of(&self, place: &Place, file: ObjectId) -> Result<()> {
        let turn = pin!(place.turn());
        let doubt = pin!(self.heard.until(|| self.doubt_in(file)));
        match select(turn, doubt).await {
            Either::Left(((), _)) => Ok(()),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Waits for the lock of an object.
    ///
    /// # Errors
    /// The loss of a director whose transaction must end before.
    pub(super) async fn lock_object(
        &self,
        path: &FilePath,
        intent: Intent,
    ) -> Result<Claim<'_, FilePath>> {
        let lock = pin!(self.locks.claim(path, intent));
        let doubt = pin!(self.heard.until(|| self.doubt_about(path)));
        match select(lock, doubt).await {
            Either::Left((lock, _)) => Ok(lock),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Waits for the lock of an object that this server keeps.
    ///
    /// # Errors
    /// As [`Service::lock_object`]; [`Kind::Busy`] when another server keeps it meanwhile.
    pub(super) async fn lock_kept(
        &self,
        path: &FilePath,
        intent: Intent,
    ) -> Result<Claim<'_, FilePath>> {
        let lock = self.lock_object(path, intent).await?;
        match self.keeps(path) {
            true => Ok(lock),
            false => Err(overtaken("looking for", path)),
        }
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// The loss of a director whose transaction must end before.
    pub(super) async fn lock_slot(&self, slot: usize, intent: Intent) -> Result<Claim<'_, usize>> {
        let lock = pin!(self.slots.claim(&slot, intent));
        let is_moved =
            |step: &Step| matches!(step, Step::Keep { slot: moved, .. } if *moved == slot);
        let names = self.shape.names;
        let is_in = |step: &Step| {
            let locked = step.lock();
            is_moved(step) || locked.is_some_and(|(path, _)| names.slot_of(path) == slot)
        };
        let doubt = pin!(self.heard.until(|| match intent {
            Intent::Change => self.doubt(is_in),
            Intent::Read => self.doubt(is_moved),
        }));
        match select(lock, doubt).await {
            Either::Left((lock, _)) => Ok(lock),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// The answer about a path that another server keeps, after the moves of its slot.
    pub(super) async fn answer_elsewhere(&self, path: &FilePath) -> Option<Result<Answer>> {
        match self
            .lock_slot(self.shape.names.slot_of(path), Intent::Read)
            .await
        {
            Ok(_) if self.keeps(path) => None,
            Ok(_) => Some(Ok(Answer::HasMoved)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits for transactions that are decided and not carried out here yet, and are about the same
    /// entries: they share the locks of Xrefs.
    ///
    /// # Errors
    /// The loss of a director whose transaction must end before.
    pub(super) async fn await_entries(&self, steps: &[Step]) -> Result<()> {
        let is_same = |other: &Step| {
            let entry = other.entry();
            entry.is_some() && steps.iter().any(|step| step.entry() == entry)
        };
        let is_free = || !self.awaited.borrow().values().flatten().any(is_same);
        let free = self.heard.until(|| is_free().then_some(()));
        let doubt = self.heard.until(|| self.doubt(is_same));
        match select(pin!(free), pin!(doubt)).await {
            Either::Left(((), _)) => Ok(()),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Asks all servers of a file by a token. Gives their answers, up to the loss of one of them.
    ///
    /// # Errors
    /// The reason why one of them is absent.
    pub(super) async fn ask_by_token(
        &self,
        servers: Vec<usize>,
        token: impl FnOnce(u64) -> Token,
    ) -> Result<Vec<Result<Answer>>> {
        let question = self.caller.question(servers.iter().copied())?;
        let ticket = question.ticket;
        let (first, count) = (servers.first().copied().unwrap_or(0), servers.len());
        let token = token(ticket);
        let order = self.order((token.base, token.placement))?;
        let between = token.turns.first().zip(token.turns.last());
        let way = between.map_or(0..0, |(&first, &last)| first..last + 1);
        let way = way.map(|turn| order.server(turn)).collect();
        self.asked.borrow_mut().insert(ticket, way);
        let asked = async {
            let request = Request::Token(token);
            self.caller.send(first, &request, None).await?;
            let mut answers = Vec::with_capacity(count);
            while answers.len() < count {
                let answer = match self.caller.answer(&question).await {
                    Ok((Answer::Gap(server), _)) => Err(loss_of(server)),
                    answer => answer.map(|(answer, _)| answer),
                };
                let is_over = matches!(&answer, Err(error) if is_loss(error));
                answers.push(answer);
                if is_over {
                    break;
                }
            }
            Ok(answers)
        };
        let ended = asked.await;
        self.asked.borrow_mut().remove(&ticket);
        ended
    }
}

/// Whether an error is that of a server that is lost.
pub(crate) fn is_loss(error: &Error) -> bool {
    error.kind == Kind::Peer && matches!(error.who, Some(Who::Server(_)))
}
