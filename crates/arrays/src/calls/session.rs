//! A session: the ranks of a program, and the servers among or beside them, ready for collective
//! calls on arrays.
//!
//! This file is the frame of all calls. A call checks this rank's arguments, exposes its memory,
//! and hands the engine a proposal; the rank that directs turns the agreed proposal into a request
//! on a store. A rank without proper arguments [refuses](Session::refuse), so that all ranks end
//! alike.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{
    Catch, Error, FileId, Kind, Operation, Party, Proposal, Result, Verdict, Who,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::array::{ArrayCall, LocalPart};
use super::ask::Ask;
use super::desk::Desk;
use super::drafted;
use super::driver::{CallStart, Direct, Driver};
use super::errand::{AnyErrand, Close, Direction, Meet, Saying};
use super::settings::{Outstanding, Report, Settings, Subject};

/// The most characters of a leaving rank's reason that other ranks are told.
const LEAVING_CAUSE_CHARS: usize = 2000;

/// A session, as one rank has it.
pub struct Session {
    driver: Driver,
    party: Arc<Party>,
    rank: Option<usize>,
    desk: Arc<Desk>,
    /// The split collectives that have not been ended, by their numbers.
    outstanding: RefCell<BTreeMap<u64, Subject>>,
    /// The split collectives that nobody will end any more.
    abandoned: RefCell<Vec<Outstanding>>,
    /// The number of arrays that the ranks have opened.
    files: Cell<u64>,
    /// The arrays that are open, and whether they may be changed.
    open_arrays: RefCell<BTreeMap<FileId, bool>>,
    is_closed: Cell<bool>,
    dedicated: Vec<JoinHandle<()>>,
    /// The connection with servers that stand.
    connection: Option<Box<dyn Any + Send>>,
}

impl Session {
    pub(super) fn new(
        driver: Driver,
        party: Arc<Party>,
        rank: Option<usize>,
        settings: Settings,
        dedicated: Vec<JoinHandle<()>>,
    ) -> Self {
        Self {
            driver,
            party,
            rank,
            desk: Arc::new(Desk::new(settings)),
            outstanding: RefCell::default(),
            abandoned: RefCell::default(),
            files: Cell::new(0),
            open_arrays: RefCell::default(),
            is_closed: Cell::new(rank.is_none()),
            dedicated,
            connection: None,
        }
    }

    /// Keeps the connection with servers that stand as long as the session.
    pub(super) fn over(mut self, connection: Box<dyn Any + Send>) -> Self {
        self.connection = Some(connection);
        self
    }

    /// The rank of this client; `None` on a dedicated server.
    pub fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.party.clients.len()
    }

    /// The number of servers.
    pub fn servers(&self) -> usize {
        self.party.servers.len()
    }

    /// Takes part in the call that the other ranks make, with the complaint that this rank has no
    /// proper arguments. Gives the error of the lowest rank that refuses, the same on all ranks.
    ///
    /// # Collective
    /// Over all clients.
    pub fn refuse(&self, error: Error) -> Error {
        let refused = self.start(CallStart {
            proposal: Err(error.clone()),
            memories: Vec::new(),
            lists: Vec::new(),
            catch: None,
            direct: Direction::of(Meet),
            in_background: false,
            keeps: None,
        });
        match refused.and_then(|id| self.finish(id)) {
            Err(verdict) => verdict,
            Ok(_) => error, // not where a rank has refused
        }
    }

    /// Whether a call has ended, so that [`Session::end`] need not wait. Polls the calls once, and
    /// never waits. A call may need such a poll on all ranks to go on.
    pub fn has_ended(&self, call: &Outstanding) -> bool {
        self.driver.has_ended(call.id)
    }

    /// Waits for the end of a call. The report's seconds count from the beginning of the call.
    ///
    /// # Errors
    /// As [`Session::write`] and [`Session::read`]; [`Kind::Schema`], on this rank alone, when the
    /// call has been ended already.
    ///
    /// # Collective
    /// Over all clients, in any order.
    pub fn end(&self, call: &Outstanding) -> Result<Report> {
        self.outstanding.borrow_mut().remove(&call.id);
        let verdict = self.finish(call.id)?;
        Ok(Report {
            bytes: call.bytes,
            seconds: (self.driver.now() - call.begun).as_secs_f64(),
            moved: verdict.moved,
            servers: self.servers(),
        })
    }

    /// Abandons a call: nobody will end it. The call goes on, and the session ends it at the latest
    /// when it closes.
    pub fn abandon(&self, call: Outstanding) {
        if self.outstanding.borrow_mut().remove(&call.id).is_some() {
            self.abandoned.borrow_mut().push(call);
        }
    }

    /// Waits until all clients have called this.
    ///
    /// # Errors
    /// When a rank has left, or makes another call.
    ///
    /// # Collective
    /// Over all clients.
    pub fn barrier(&self) -> Result<()> {
        let verdict = self.call(Ask::Barrier, None, Direction::of(Meet))?;
        decode(&verdict.answer)
    }

    /// Ends the session and its dedicated servers. Outstanding calls are ended first. A second
    /// close does nothing.
    ///
    /// # Errors
    /// As [`Session::barrier`]; on all ranks when one has begun a call and not ended it. The
    /// session is closed all the same, and the forgotten call is complete, unless it failed.
    ///
    /// # Collective
    /// Over all clients.
    pub fn close(&mut self) -> Result<()> {
        if self.is_closed.get() {
            return Ok(());
        }
        for call in self.abandoned.take() {
            let _ = self.finish(call.id); // its `Split` has gone, and nobody waits
        }
        let complaint = self.end_forgotten();
        let complaint = complaint.or(self.close_forgotten().err());
        let closed = self
            .call(Ask::EndOfSession, complaint, Direction::of(Close))
            .and_then(|verdict| verdict.complaint.map_or(Ok(()), Err));
        self.is_closed.set(true);
        for server in self.dedicated.drain(..) {
            // A server's panic has already failed a call.
            let _ = server.join();
        }
        closed
    }

    /// Ends all calls that nobody has ended, and gives a complaint about the first.
    fn end_forgotten(&self) -> Option<Error> {
        let mut forgotten = None;
        for (id, subject) in self.outstanding.take() {
            let cause = match self.finish(id) {
                Ok(_) => format!("{subject} was begun and never ended; it has ended well"),
                Err(error) => format!("{subject} was begun and never ended; it failed: {error}"),
            };
            forgotten.get_or_insert(Error::new(Kind::Schema, "closing a session", cause));
        }
        forgotten
    }

    /// Leaves without closing: the calls of all other ranks fail and name `cause`, instead of
    /// waiting for this rank.
    pub fn leave(&mut self, cause: &str) {
        if self.is_closed.replace(true) {
            return;
        }
        // A rank that leaves because another has left passes on that rank's reason.
        let error = self.driver.broken().unwrap_or_else(|| {
            let cause: String = cause.chars().take(LEAVING_CAUSE_CHARS).collect();
            let error = Error::new(Kind::Peer, "leaving the session", cause);
            match self.rank {
                Some(rank) => error.by(Who::Rank(rank)),
                None => error,
            }
        });
        self.driver.leave(&error);
        for server in self.dedicated.drain(..) {
            let _ = server.join();
        }
        self.open_arrays.borrow_mut().clear();
        self.desk.open().clear();
    }

    /// The session's options, and the numbers that follow from them.
    pub(crate) fn settings(&self) -> &Settings {
        &self.desk.settings
    }

    /// The clients and servers of the session.
    pub(super) fn party(&self) -> &Party {
        &self.party
    }

    /// Whether servers answer while their ranks make no calls.
    pub(super) fn serves_alone(&self) -> bool {
        let ranks = &self.party.clients;
        self.settings().has_threads || self.party.servers.iter().all(|node| !ranks.contains(node))
    }

    /// The arrays that are open.
    pub(super) fn open_arrays(&self) -> &RefCell<BTreeMap<FileId, bool>> {
        &self.open_arrays
    }

    /// The name of the next array that all ranks open.
    pub(super) fn next_file(&self) -> FileId {
        let number = self.files.get();
        self.files.set(number + 1);
        FileId {
            party: self.party.id,
            number,
        }
    }

    /// What the directors of the session share, where this rank directs.
    pub(super) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// The driver of this rank's calls.
    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The time since some moment before the first call.
    pub(crate) fn now(&self) -> Duration {
        self.driver.now()
    }

    pub(super) fn my_rank(&self) -> Result<usize> {
        let on_server = || {
            let cause = "this rank is a dedicated server";
            Error::new(Kind::Schema, "a collective call", cause)
        };
        self.rank.ok_or_else(on_server)
    }

    /// Begins the call of a rank. An error in the rank's parts becomes its proposal.
    pub(super) fn begin(
        &self,
        operation: Operation,
        mut asked: CallArguments,
        in_background: bool,
        keeps: Option<Box<dyn Any + Send>>,
    ) -> Result<Outstanding> {
        self.sweep();
        let (begun, bytes) = (self.driver.now(), asked.bytes);
        let ranks = (self.my_rank()?, self.clients());
        let mut given = asked.given.iter_mut();
        let checked = given
            .try_for_each(|(array, locals)| LocalPart::check_all(locals, operation, array, ranks));
        let boxes = asked.given.iter().map(|(array, _)| array.own_boxes());
        let own_boxes = boxes.collect();
        let lists = asked.given.iter().map(|(array, _)| array.own_list());
        let lists = lists.map(|list| list.map_or_else(Arc::default, |list| list.holding().clone()));
        let lists = lists.collect();
        let (proposal, memories) = match checked {
            Ok(()) => {
                let proposal = Proposal {
                    ask: asked.ask,
                    own_boxes,
                    own: Vec::new(),
                    complaint: None,
                };
                let memories = asked.given.into_iter().map(|(array, locals)| {
                    // Rows follow the rows of former timesteps, in the dimension that they have.
                    let is_shaped = !array.is_ragged() && array.own_list().is_none();
                    let in_time = asked.in_time && is_shaped;
                    let locals = locals.into_iter().map(|local| match in_time {
                        true => local.in_time(),
                        false => local,
                    });
                    locals.map(|local| local.memory).collect()
                });
                (Ok(proposal), memories.collect())
            }
            Err(error) => (Err(error), Vec::new()),
        };
        let id = self.start(CallStart {
            proposal,
            memories,
            lists,
            catch: None,
            direct: asked.direction,
            in_background,
            keeps,
        })?;
        Ok(Outstanding { id, bytes, begun })
    }

    /// Runs a call that moves arrays, from its beginning to its end.
    pub(super) fn transfer(&self, operation: Operation, asked: CallArguments) -> Result<Report> {
        let call = self.begin(operation, asked, false, None)?;
        self.end(&call)
    }

    /// Remembers a split collective until it is ended.
    pub(super) fn remember(&self, call: &Outstanding, subject: Subject) {
        self.outstanding.borrow_mut().insert(call.id, subject);
    }

    /// Ends the abandoned calls that no longer run.
    fn sweep(&self) {
        let mut abandoned = self.abandoned.borrow_mut();
        let ended: Vec<u64> = abandoned
            .extract_if(.., |call| self.driver.has_ended(call.id))
            .map(|call| call.id)
            .collect();
        drop(abandoned);
        for id in ended {
            let _ = self.finish(id); // its `Split` has gone, and nobody waits
        }
    }

    /// Refuses a call that would interfere with a call that is under way.
    pub(super) fn check_outstanding(
        &self,
        operation: Operation,
        path: &Path,
        array: &ArrayCall,
    ) -> Result<()> {
        let outstanding = self.outstanding.borrow();
        let interferes = |subject: &&Subject| {
            let both_read = (operation, subject.operation) == (Operation::Read, Operation::Read);
            // Two arrays of one group have different names; otherwise the path is the array.
            let is_in_group = array.schema.disk.is_zarr();
            let of_this = subject
                .name
                .as_ref()
                .is_none_or(|name| *name == array.schema.name);
            let is_other = is_in_group && !of_this;
            subject.path == path && !is_other && !both_read
        };
        match outstanding.values().find(interferes) {
            None => Ok(()),
            Some(subject) => {
                let cause = format!("{subject} is under way: end it first");
                Err(Error::new(Kind::Busy, "beginning a call", cause).at(path))
            }
        }
    }

    /// Runs a sifted read of an array to its end: `catch` takes what servers deliver to this rank.
    ///
    /// # Errors
    /// The same on all ranks.
    pub(super) fn sift(
        &self,
        ask: Ask,
        array: &ArrayCall,
        direction: Direction,
        catch: Arc<dyn Catch>,
    ) -> Result<Report> {
        self.sweep();
        let begun = self.driver.now();
        let list = array.own_list().map(|list| list.holding().clone());
        let proposal = array.check_held(self.clients()).map(|()| Proposal {
            ask,
            own_boxes: vec![array.own_boxes()],
            own: Vec::new(),
            complaint: None,
        });
        let id = self.start(CallStart {
            proposal,
            memories: Vec::new(),
            lists: vec![list.unwrap_or_default()],
            catch: Some(catch),
            direct: direction,
            in_background: false,
            keeps: None,
        })?;
        let verdict = self.finish(id)?;
        Ok(Report {
            bytes: verdict.moved.delivered_bytes,
            seconds: (self.driver.now() - begun).as_secs_f64(),
            moved: verdict.moved,
            servers: self.servers(),
        })
    }

    /// Runs a call in which no elements move: the rank that directs decides something, and tells
    /// all ranks.
    ///
    /// # Errors
    /// The same on all ranks: the error of `decide`, or of a rank.
    pub(crate) fn decide<T: Serialize + DeserializeOwned>(
        &self,
        ask: Ask,
        decide: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let verdict = self.call(ask, None, Direction::Here(Box::new(Saying::new(decide))))?;
        decode(&verdict.answer)
    }

    pub(super) fn call(
        &self,
        ask: Ask,
        complaint: Option<Error>,
        direction: Direction,
    ) -> Result<Verdict> {
        let proposal = Proposal {
            ask,
            own_boxes: Vec::new(),
            own: Vec::new(),
            complaint,
        };
        let id = self.start(CallStart {
            proposal: Ok(proposal),
            memories: Vec::new(),
            lists: Vec::new(),
            catch: None,
            direct: direction,
            in_background: false,
            keeps: None,
        })?;
        self.finish(id)
    }

    /// Waits for the verdict on a call. A rank that is interrupted meanwhile has left the session.
    pub(super) fn finish(&self, id: u64) -> Result<Verdict> {
        let verdict = self.driver.end(id);
        if self.driver.has_left() {
            self.is_closed.set(true);
        }
        verdict
    }

    /// Begins a call. Rank 0 alone knows who directs it.
    fn start(&self, start: CallStart<Direction>) -> Result<u64> {
        if self.is_closed.get() {
            let cause = "the session is closed";
            return Err(Error::new(Kind::Schema, "a collective call", cause));
        }
        let (rank, mut proposal) = (self.my_rank()?, start.proposal);
        let direct = match start.direct {
            _ if rank != 0 => Direct::Other,
            direction if self.party.stands => {
                let told = match direction {
                    Direction::Errand(errand) => self.told(&*errand),
                    Direction::Here(_) => {
                        let cause = "servers that stand cannot do it";
                        Err(Error::new(Kind::Unsupported, "a collective call", cause))
                    }
                };
                Direct::Servers(match told {
                    Ok(told) => told,
                    Err(error) => {
                        proposal = Err(error);
                        self.told(&Meet)?
                    }
                })
            }
            Direction::Here(director) => Direct::Here(director),
            Direction::Errand(errand) => Direct::Here(drafted::director(errand, &self.desk)),
        };
        let start = CallStart {
            proposal,
            memories: start.memories,
            lists: start.lists,
            catch: start.catch,
            direct,
            in_background: start.in_background,
            keeps: start.keeps,
        };
        Ok(self.driver.begin(rank, start))
    }

    /// An errand as servers that stand hear it, with the options of the session.
    fn told(&self, errand: &dyn AnyErrand) -> Result<Vec<u8>> {
        encode(&(&self.settings().options, errand.told()?))
    }
}

/// The arguments of a rank in a call that moves arrays.
pub(super) struct CallArguments {
    pub(super) ask: Ask,
    /// The bytes of the arrays.
    pub(super) bytes: u64,
    /// Each array with this rank's parts.
    pub(super) given: Vec<(ArrayCall, Vec<LocalPart>)>,
    /// Whether servers see the arrays with a dimension of one timestep before their own.
    pub(super) in_time: bool,
    /// Who directs the call.
    pub(super) direction: Direction,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave("it dropped its session without closing it");
    }
}
