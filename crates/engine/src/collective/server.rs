//! The part of the nodes with servers in the calls of parties.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{Either, LocalBoxFuture, join, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::address::{CALLS_MAX, CallId, PartyId, Port, Step};
use crate::call::Call;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::files::{Files, Order, TransferRequest};
use crate::machine::{Machine, Message, NodeId, Operation};
use crate::outcome::{Outcome, Traffic};
use crate::party::{Attendance, Party};
use crate::request::Request;
use crate::signal::Signal;
use crate::split::Latch;
use crate::trace::Instrument;
use crate::tree::Tree;
use crate::tuning::{DiskDirected, StoreAccess, Strategy};
use crate::{caching, disk_directed};

use super::chair::{self, Office};
use super::command::Command;

/// The most calls and questions of one party that are under way on the node that directs.
const UNDER_WAY_MAX: usize = 1024;

/// An event in the life of a node's servers.
enum Event<P> {
    Command(Message<P>),
    /// A call has ended.
    Ended,
    /// A party cannot make any more calls.
    Lost(PartyId),
}

/// The servers of a node, whatever party calls them.
pub struct Servers<'m, M: Machine> {
    machine: &'m M,
    parties: RefCell<BTreeMap<PartyId, Rc<Attendance>>>,
    /// The parties that have joined and are not watched yet.
    joined: RefCell<Vec<Rc<Attendance>>>,
    files: Files<'m, M>,
    /// The office of servers that stand.
    office: Option<Rc<dyn Office>>,
    /// The party of each call that this node directs, and of each question that it answers.
    directing: RefCell<Vec<PartyId>>,
    /// Tells that one of them has ended.
    directed: Signal,
}

/// A party is watched for departures as long as it has calls.
struct Watched<'m> {
    attendance: Rc<Attendance>,
    /// Ends when the party cannot make any more calls.
    breaking: Option<LocalBoxFuture<'m, ()>>,
    /// Hears of departures, if nobody else does.
    listening: Option<LocalBoxFuture<'m, ()>>,
}

impl<'m> Watched<'m> {
    /// Watches a party to whose attendance somebody else listens.
    fn heard(attendance: Rc<Attendance>) -> Self {
        let breaking = attendance.clone();
        Self {
            attendance,
            breaking: Some(Box::pin(async move { drop(breaking.breaks().await) })),
            listening: None,
        }
    }

    /// Watches a party, and listens to its attendance.
    fn listened<M: Machine>(attendance: Rc<Attendance>, machine: &'m M) -> Self {
        let listening = attendance.clone();
        Self {
            listening: Some(Box::pin(async move { listening.listen(machine).await })),
            ..Self::heard(attendance)
        }
    }

    /// Listens. Whether the party has just become unable to make more calls.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(listening) = &mut self.listening {
            let _ = listening.as_mut().poll(context); // it never ends
        }
        let broken = self.breaking.as_mut();
        let is_broken = broken.is_some_and(|breaking| breaking.as_mut().poll(context).is_ready());
        if is_broken {
            let is_over = !self.attendance.party.stands || self.attendance.has_lost_server();
            let attendance = self.attendance.clone();
            self.breaking = match is_over {
                true => None,
                false => Some(Box::pin(
                    async move { drop(attendance.loses_server().await) },
                )),
            };
        }
        is_broken
    }

    /// Whether a call of the party is under way, or its owner keeps the attendance.
    fn is_needed(&self) -> bool {
        let own = 1 + usize::from(self.breaking.is_some()) + usize::from(self.listening.is_some());
        Rc::strong_count(&self.attendance) > own
    }
}

impl<'m, M: Machine> Servers<'m, M> {
    /// Makes the servers of this node of a party, with a cache of at most `cache_bytes` bytes for
    /// the files that they keep open.
    pub fn new(machine: &'m M, party: Rc<Attendance>, cache_bytes: u64) -> Self {
        let parties = BTreeMap::from([(party.party.id, party)]);
        Self {
            parties: RefCell::new(parties),
            ..Self::of_nobody(machine, cache_bytes)
        }
    }

    fn of_nobody(machine: &'m M, cache_bytes: u64) -> Self {
        Self {
            machine,
            parties: RefCell::default(),
            joined: RefCell::default(),
            files: Files::new(machine, cache_bytes),
            office: None,
            directing: RefCell::default(),
            directed: Signal::default(),
        }
    }

    /// Makes the servers of this node that stand, whatever parties come.
    pub fn standing(machine: &'m M, office: Rc<dyn Office>, cache_bytes: u64) -> Self {
        Self {
            office: Some(office),
            ..Self::of_nobody(machine, cache_bytes)
        }
    }

    /// Whether files are open, so that a client may ask for a part of one at any moment.
    pub fn have_open_files(&self) -> bool {
        self.files.are_open()
    }

    /// Serves the calls of all parties, side by side, until each party has closed, or has lost a
    /// member; for ever, if these servers stand.
    pub async fn run(&self) {
        let mut under_way = FuturesUnordered::new();
        let parties = self.parties.borrow().values().cloned().collect::<Vec<_>>();
        let mut watched: Vec<_> = parties.into_iter().map(Watched::heard).collect();
        while self.office.is_some() || !under_way.is_empty() || !self.parties.borrow().is_empty() {
            let joined = self.joined.take().into_iter();
            watched.extend(joined.map(|party| Watched::listened(party, self.machine)));
            watched.retain(Watched::is_needed);
            let event = {
                let command = pin!(self.machine.receive(Port::SERVERS));
                let (ended, lost) = (pin!(next(&mut under_way)), pin!(next_lost(&mut watched)));
                match select(command, select(ended, lost)).await {
                    Either::Left((message, _)) => Event::Command(message),
                    Either::Right((Either::Left(_), _)) => Event::Ended,
                    Either::Right((Either::Right((party, _)), _)) => Event::Lost(party),
                }
            };
            match event {
                Event::Command(message) => {
                    let Message { from, body, parcel } = message;
                    under_way.extend(self.begin(from, body, parcel));
                }
                Event::Ended => {}
                Event::Lost(party) => under_way.push(Box::pin(self.lose(party))),
            }
        }
        debug_assert!(self.is_idle(), "a claim or room that nobody has");
    }

    /// Whether nobody claims a block of an open file, and no file has any room in the cache.
    pub fn is_idle(&self) -> bool {
        self.files.is_idle()
    }

    /// Begins what a command asks for.
    fn begin(
        &self,
        from: NodeId,
        body: Vec<u8>,
        parcel: Option<M::Parcel>,
    ) -> Option<LocalBoxFuture<'_, ()>> {
        let command = decode(&body).ok()?;
        if !self.may(from, &command) {
            return None;
        }
        match command {
            Command::Serve { call, requests } => Some(Box::pin(self.serve(call, requests, body))),
            Command::Order { call, order } => Some(Box::pin(self.obey(call, order, body))),
            Command::Transfer(request) => {
                let parties = self.parties.borrow();
                let party = parties.get(&request.file.party)?.clone();
                party.party.rank(from)?; // not a client of the party
                let moving = async move { self.move_part(&party, from, request, parcel).await };
                Some(Box::pin(moving))
            }
            Command::Close(party) => Some(Box::pin(self.close(party, body))),
            Command::Join(party) => Some(Box::pin(self.join(from, party))),
            Command::Begin { call, errand } => {
                let (office, party) = (self.office.clone()?, self.party(call.party)?);
                let directing = async move {
                    let call = Call::new(self.machine, &party, call.sequence);
                    let director = office.director(&party.party, errand);
                    chair::direct(call, &*office, director).await;
                    self.end_directing(party.party.id);
                };
                self.directing.borrow_mut().push(call.party);
                Some(Box::pin(directing))
            }
            Command::Answer {
                party,
                number,
                question,
            } => {
                let id = party;
                let (office, party) = (self.office.clone()?, self.party(id)?);
                let answering = async move {
                    let answer = office.answer(&party.party, question).await;
                    if let Ok(body) = encode(&answer) {
                        // A client that has left needs no answer.
                        let told = self.machine.send(from, id.answers(number), body, None);
                        let _ = told.await;
                    }
                    self.end_directing(id);
                };
                self.directing.borrow_mut().push(id);
                Some(Box::pin(answering))
            }
        }
    }

    fn party(&self, id: PartyId) -> Option<Rc<Attendance>> {
        self.parties.borrow().get(&id).cloned()
    }

    /// Whether servers obey such a command from this node. Those of a job are among themselves.
    fn may(&self, from: NodeId, command: &Command) -> bool {
        let Some(office) = &self.office else {
            return true;
        };
        // One that has asked for more than it may at a time gets no answer to the rest.
        let is_of_party = |id: &PartyId, is_right: &dyn Fn(&Attendance) -> bool| {
            let directing = self.directing.borrow();
            let under_way = directing.iter().filter(|of| *of == id).count();
            under_way < UNDER_WAY_MAX && self.party(*id).is_some_and(|of| is_right(&of))
        };
        match command {
            Command::Serve { .. } | Command::Order { .. } | Command::Close(_) => {
                from == self.machine.me() || office.is_server(from)
            }
            Command::Begin { call, .. } => {
                let directs = |of: &Attendance| {
                    let party = &of.party;
                    let is_asked = party.rank(from) == Some(0) && of.broken().is_none();
                    is_asked && party.director() == self.machine.me()
                };
                call.sequence < CALLS_MAX && is_of_party(&call.party, &directs)
            }
            Command::Answer { party, .. } => {
                is_of_party(party, &|of| of.party.rank(from).is_some())
            }
            Command::Transfer(_) | Command::Join(_) => true, // they are checked where they are met
        }
    }

    fn end_directing(&self, party: PartyId) {
        let mut directing = self.directing.borrow_mut();
        let place = directing.iter().position(|of| *of == party);
        place.map(|place| directing.swap_remove(place));
        drop(directing);
        self.directed.tell();
    }

    /// Ends a party that cannot make any more calls. If servers stand and all of them are there,
    /// the node that directs ends it on all of them, behind the last call: until then each must
    /// tell how its part of a call has ended.
    async fn lose(&self, id: PartyId) {
        let Some(party) = self.party(id) else {
            return;
        };
        if !party.party.stands || party.has_lost_server() {
            self.parties.borrow_mut().remove(&id);
            return self.end(id).await;
        }
        if party.party.director() == self.machine.me() {
            let is_over = || (!self.directing.borrow().contains(&id)).then_some(());
            self.directed.until(is_over).await;
            if let Ok(body) = encode(&Command::Close(id)) {
                self.close(id, body).await;
            }
        }
    }

    /// Ends what a party has here, which makes no more calls.
    async fn end(&self, party: PartyId) {
        self.files.close_all(party).await;
        if let Some(office) = &self.office {
            office.close(party);
        }
    }

    /// Takes a party in, and tells its rank 0 so.
    async fn join(&self, from: NodeId, party: Party) {
        let id = party.id;
        let refused = self.take_in(from, party).await.err();
        if let Ok(body) = encode(&refused) {
            // A rank 0 that has left needs no answer.
            let _ = self.machine.send(from, id.joined(), body, None).await;
        }
    }

    async fn take_in(&self, from: NodeId, party: Party) -> Result<()> {
        if let Some(office) = &self.office {
            self.await_clients(&**office, &party).await?;
        }
        let cause = match self.parties.borrow().contains_key(&party.id) {
            true => "a party of this identity is served already",
            false if party.rank(from) != Some(0) => "another node than rank 0's asks",
            false if party.place_serving(self.machine.me()).is_none() => "it has no server here",
            false if party.stands != self.office.is_some() => "other servers are meant",
            false => "",
        };
        if !cause.is_empty() {
            return Err(Error::new(Kind::Peer, "joining servers", cause));
        }
        if let Some(office) = &self.office {
            office.admit(&party);
        }
        let attendance = Rc::new(Attendance::new(Arc::new(party)));
        let id = attendance.party.id;
        self.parties.borrow_mut().insert(id, attendance.clone());
        self.joined.borrow_mut().push(attendance);
        Ok(())
    }

    /// Waits until the machine knows all clients of a party: the office may know a client that has
    /// come a moment before.
    ///
    /// # Errors
    /// The reason why the party may not come.
    async fn await_clients(&self, office: &dyn Office, party: &Party) -> Result<()> {
        loop {
            let next = self.machine.changes();
            office.check(party)?;
            let mut clients = party.clients.iter();
            if clients.all(|&client| self.machine.absence(client).is_none()) {
                return Ok(());
            }
            self.machine.change(next).await;
        }
    }

    /// Moves a client's part of an open file. Once the party cannot make any more calls, its files
    /// are closed, and what requests on them hold is dropped.
    async fn move_part(
        &self,
        party: &Attendance,
        from: NodeId,
        request: TransferRequest,
        parcel: Option<M::Parcel>,
    ) {
        let span = request.span(&party.party, (from, self.machine.me()));
        let moving = self.files.serve(from, request, parcel).instrument(span);
        let _ = party.unless_broken(moving).await; // clients hear by themselves
    }

    /// Tells the node that directs that its party is not known here. This node may have heard that
    /// another server was away, and have ended the party, while that server has come back and
    /// taken the party in: nobody else has heard of a loss then.
    async fn disown(&self, party: PartyId) {
        let office = self.office.as_ref();
        if let Some(director) = office.and_then(|office| office.director_node()) {
            party.disown(self.machine, director).await;
        }
    }

    /// Serves one call. The clients hear by themselves of a member that leaves.
    async fn serve(&self, id: CallId, requests: Vec<Request>, body: Vec<u8>) {
        let Some(party) = self.party(id.party) else {
            return self.disown(id.party).await;
        };
        // Who directs has checked what it sends: only somebody else's command can be refused here.
        let is_named = id.sequence < CALLS_MAX;
        if !is_named || Request::check_all(&requests, &party.party).is_err() {
            return;
        }
        let call = Call::new(self.machine, &party, id.sequence);
        let part = async {
            if let Some(tree) = call.servers() {
                tree.pass_on(Port::SERVERS, &body).await?;
            }
            serve_all(call, &requests, Some(&self.files)).await
        };
        let _ = call.unless_needed(part, || false).await;
    }

    /// Carries out an order. The clients hear by themselves of a member that leaves.
    async fn obey(&self, id: CallId, order: Order, body: Vec<u8>) {
        let Some(party) = self.party(id.party) else {
            return self.disown(id.party).await;
        };
        if id.sequence >= CALLS_MAX {
            return;
        }
        let call = Call::new(self.machine, &party, id.sequence);
        let Some(tree) = call.servers() else {
            return;
        };
        let part = async {
            tree.pass_on(Port::SERVERS, &body).await?;
            let obeyed = self.files.obey(&party.party, &order).await;
            let outcome = Outcome::of(obeyed.map(|()| Traffic::default()));
            tell_of_end(call, tree, outcome).await
        };
        let _ = call.unless_needed(part, || false).await;
    }

    async fn close(&self, id: PartyId, body: Vec<u8>) {
        self.end(id).await;
        let party = self.parties.borrow_mut().remove(&id);
        if let Some(party) = party
            && let Some(tree) = Call::new(self.machine, &party, 0).servers()
        {
            let _ = tree.pass_on(Port::SERVERS, &body).await; // a node that has left needs no end
        }
    }
}

/// Listens to all parties. The next of them that cannot make any more calls.
async fn next_lost(watched: &mut [Watched<'_>]) -> PartyId {
    poll_fn(|context| {
        let lost = watched.iter_mut().find_map(|party| {
            let is_lost = party.poll(context);
            is_lost.then_some(party.attendance.party.id)
        });
        lost.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The next future that ends; never, if there is none.
async fn next<F: Future>(futures: &mut FuturesUnordered<F>) -> F::Output {
    match futures.next().await {
        Some(ended) => ended,
        None => std::future::pending().await,
    }
}

impl Attendance {
    /// Tells all nodes with servers of a new party, whose rank 0 is on this node, and waits until
    /// they know it: from then on they serve its calls beside those of other parties. Something
    /// else must listen to the attendance meanwhile.
    ///
    /// # Errors
    /// When a node cannot be reached, or knows a party of this identity already; the reason of a
    /// member that has left.
    pub async fn join<M: Machine>(&self, machine: &M) -> Result<()> {
        let joining = async {
            let body = encode(&Command::Join(Party::clone(&self.party)))?;
            for &node in self.party.serving() {
                let told = machine.send(node, Port::SERVERS, body.clone(), None);
                told.await?;
            }
            let mut joined = Ok(());
            for _ in self.party.serving() {
                let answer = machine.receive(self.party.id.joined()).await;
                let refused: Option<Error> = decode(&answer.body)?;
                joined = joined.and(refused.map_or(Ok(()), Err));
            }
            joined
        };
        self.unless_broken(joining).await?
    }

    /// Tells all nodes with servers that the party makes no more calls, as its rank 0.
    ///
    /// # Errors
    /// When the first of them cannot be reached.
    pub async fn part<M: Machine>(&self, machine: &M) -> Result<()> {
        let body = encode(&Command::Close(self.party.id))?;
        let first = self.party.serving()[0];
        machine.send(first, Port::SERVERS, body, None).await
    }

    /// Asks servers that stand something, as a client by itself. Each question of a client has a
    /// number of its own.
    ///
    /// # Errors
    /// Their refusal; the reason of a member that has left.
    pub async fn ask<M: Machine>(
        &self,
        machine: &M,
        number: u32,
        question: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let party = self.party.id;
        let command = Command::Answer {
            party,
            number,
            question,
        };
        let asking = async {
            let (to, body) = (self.party.director(), encode(&command)?);
            machine.send(to, Port::SERVERS, body, None).await?;
            decode(&machine.receive(party.answers(number)).await.body)?
        };
        self.unless_broken(asking).await?
    }
}

/// Carries out requests that this node's servers know, and tells the node that directs how they
/// ended.
///
/// # Errors
/// When a message cannot be sent.
///
/// # Collective
/// Over all nodes of the party that have a server.
pub async fn carry_out<M: Machine>(call: Call<'_, M>, requests: &[Request]) -> Result<()> {
    serve_all(call, requests, None).await
}

/// Carries out requests, on the open `files` among others.
async fn serve_all<M: Machine>(
    call: Call<'_, M>,
    requests: &[Request],
    files: Option<&Files<'_, M>>,
) -> Result<()> {
    let ([first, ..], Some(tree)) = (requests, call.servers()) else {
        return Ok(());
    };
    let latch = Latch::default();
    let serving = async {
        match &first.strategy {
            Strategy::DiskDirected(options) => {
                direct(call, (requests, files), options, &latch).await
            }
            Strategy::Caching(options) => caching::serve(call, first, options, tree).await,
            Strategy::TwoPhase(options) => match &options.io {
                StoreAccess::Servers(options) => caching::serve(call, first, options, tree).await,
                StoreAccess::Direct => Outcome::default(),
            },
            Strategy::Independent => Outcome::default(),
        }
    };
    let is_write = first.operation == Operation::Write;
    let is_directed = matches!(first.strategy, Strategy::DiskDirected(_));
    let needs_clients = || !(is_write && is_directed && latch.is_handed_over());
    let serving = call.unless_needed(serving, needs_clients);
    let served = match is_write && is_directed && first.split.is_some() {
        false => serving.await,
        true => {
            let handing_over = call.unless_lost(hand_over(call, tree, &latch));
            // The future that serves is polled first: then all its parts are known.
            let (served, handed_over) = join(serving, handing_over).await;
            match call.party().stands {
                true => served, // clients that have left need not hear it
                false => handed_over?.and(served),
            }
        }
    };
    // Servers that stand tell of all ends: nobody else knows whether the write is whole.
    let outcome = match served {
        Err(loss) if call.party().stands => Outcome::of(Err(loss)),
        served => served?,
    };
    tell_of_end(call, tree, outcome).await
}

/// Tells the node that directs, through server 0, how the parts of this node's servers and of those
/// below have ended.
async fn tell_of_end<M: Machine>(
    call: Call<'_, M>,
    tree: Tree<'_, M>,
    outcome: Outcome,
) -> Result<()> {
    let mine = call.blame(outcome).await;
    let all = tree.gather(Step::ServersEnded, mine, Outcome::merge);
    match all.await? {
        Some(all) => tell_director(call, Step::Served, encode(&all)?).await,
        None => Ok(()),
    }
}

/// Runs the disk-directed part of every server on this node, side by side.
async fn direct<M: Machine>(
    call: Call<'_, M>,
    (requests, files): (&[Request], Option<&Files<'_, M>>),
    options: &DiskDirected,
    latch: &Latch,
) -> Outcome {
    let servers = call.party().servers_on(call.machine.me());
    let parts: Vec<_> = servers
        .map(|server| {
            let place = (server, files);
            let part = disk_directed::serve(call, requests, options, place, latch.hand_over());
            part.instrument(call.part_span(requests[0].operation, server))
        })
        .collect();
    let outcomes = join_all(parts).await.into_iter();
    outcomes.fold(Outcome::default(), Outcome::merge)
}

/// Waits until all servers have handed over, and tells the node that directs: then nobody looks
/// into the clients' memories any more.
async fn hand_over<M: Machine>(call: Call<'_, M>, tree: Tree<'_, M>, latch: &Latch) -> Result<()> {
    latch.all_handed_over().await;
    let all = tree.gather(Step::HandedOver, (), |(), ()| ()).await?;
    match all {
        Some(()) => tell_director(call, Step::Free, encode(&())?).await,
        None => Ok(()),
    }
}

async fn tell_director<M: Machine>(call: Call<'_, M>, step: Step, body: Vec<u8>) -> Result<()> {
    let to = call.party().director();
    call.machine.send(to, call.port(step), body, None).await
}
