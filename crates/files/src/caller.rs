//! The way of a question to a server, and of the answer back.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::{Either, FutureExt, select};
use penstock_engine::encoding::{decode, encode};
use penstock_engine::trace::{Empty, Instrument, Span, arrow};
use penstock_engine::{Change, Error, Kind, Machine, Message, NodeId, Result, Who, Work, span};

use crate::messages::{Answer, Ask, Request, answers, requests};
use crate::metrics::RequestKind;
use crate::object::Identity;

/// The bits of a ticket that count the requests of one asker.
const TICKET_BITS: u32 = 40;

/// The longest time to wait for a server: far longer than two that are there need to make a link.
pub(crate) const GREETING: Duration = Duration::from_secs(1);

/// A question to servers waits for their answers.
pub(crate) struct Question {
    pub(crate) ticket: u64,
    /// The servers that are to answer.
    servers: Vec<usize>,
    /// The number of changes of the membership before it was sent.
    since: u64,
}

/// The node of each server of a volume. More may come.
#[derive(Debug, Clone)]
pub struct Homes(Arc<RwLock<Arc<[NodeId]>>>);

impl Homes {
    /// The nodes of the servers that there are.
    pub fn new(nodes: impl Into<Arc<[NodeId]>>) -> Self {
        Self(Arc::new(RwLock::new(nodes.into())))
    }

    /// All of them.
    pub fn all(&self) -> Arc<[NodeId]> {
        let nodes = self.0.read();
        nodes.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node of a server, if there is such a server.
    pub fn node(&self, server: usize) -> Option<NodeId> {
        let nodes = self.0.read();
        let nodes = nodes.unwrap_or_else(PoisonError::into_inner);
        nodes.get(server).copied()
    }

    /// Whether a node has a server.
    pub fn have(&self, node: NodeId) -> bool {
        let nodes = self.0.read();
        nodes
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&node)
    }

    /// The number of servers that there are.
    pub fn count(&self) -> usize {
        let nodes = self.0.read();
        nodes.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Notes that servers have come behind those that are known.
    pub fn extend(&self, all: &[NodeId]) {
        let nodes = self.0.write();
        let mut nodes = nodes.unwrap_or_else(PoisonError::into_inner);
        if all.starts_with(&nodes) {
            *nodes = all.into();
        }
    }
}

/// An asker sends requests to the servers of a volume.
pub(crate) struct Caller<'m, M: Machine> {
    pub(crate) machine: &'m M,
    volume: u64,
    servers: Homes,
    /// The number of this asker among those of its node.
    asker: u64,
    next: Arc<AtomicU64>,
}

impl<'m, M: Machine> Caller<'m, M> {
    /// Makes an asker with a number that no other asker of the node has. `next` counts its
    /// requests.
    pub(crate) fn new(
        machine: &'m M,
        (volume, servers): (u64, Homes),
        asker: u32,
        next: Arc<AtomicU64>,
    ) -> Self {
        Self {
            machine,
            volume,
            servers,
            asker: u64::from(asker),
            next,
        }
    }

    /// A new question to servers, before it is sent.
    ///
    /// # Errors
    /// The reason why one of them is absent.
    pub(crate) fn question(&self, servers: impl IntoIterator<Item = usize>) -> Result<Question> {
        let question = Question {
            ticket: self.ticket(),
            servers: servers.into_iter().collect(),
            since: self.machine.changes(),
        };
        let mut absent = question.servers.iter();
        let absent = absent.find_map(|&server| self.absence(server));
        absent.map_or(Ok(question), Err)
    }

    /// The reason why a server is absent, if it is.
    pub(crate) fn absence(&self, server: usize) -> Option<Error> {
        match self.node(server) {
            Ok(node) => {
                let absence = self.machine.absence(node);
                absence.map(|error| error.by(Who::Server(server)))
            }
            Err(unknown) => Some(unknown),
        }
    }

    /// The node of a server.
    ///
    /// # Errors
    /// [`Kind::Peer`] when it is not known.
    pub(crate) fn node(&self, server: usize) -> Result<NodeId> {
        self.servers.node(server).ok_or_else(|| {
            let cause = "nobody has told where it is";
            Error::new(Kind::Peer, "using files", cause).by(Who::Server(server))
        })
    }

    /// Waits for a server, though not long, if it is not there.
    pub(crate) async fn meet(&self, server: usize) {
        let here = async {
            let mut next = self.machine.changes();
            while self.absence(server).is_some() {
                (next, ..) = self.machine.change(next).await;
            }
        };
        let (here, late) = (pin!(here), pin!(self.machine.wait(GREETING)));
        select(here, late).await;
    }

    /// The ticket of a new request.
    pub(crate) fn ticket(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Numbers come again after 2^40 requests, when the first have long been answered.
        (self.asker & 0x3f_ffff) << TICKET_BITS | number & ((1 << TICKET_BITS) - 1)
    }

    /// The number of servers.
    pub(crate) fn servers(&self) -> usize {
        self.servers.count()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(crate) async fn send(
        &self,
        server: usize,
        request: &Request,
        parcel: Option<M::Parcel>,
    ) -> Result<()> {
        let (node, port) = (self.node(server)?, requests(self.volume, server));
        let sent = self.machine.send(node, port, encode(request)?, parcel);
        sent.await.map_err(|error| error.by(Who::Server(server)))
    }

    /// Waits for the next answer to a question.
    ///
    /// # Errors
    /// The server's error; the reason why a server that was asked has left since then, though it
    /// may be back. Where a request needs other servers, those that were asked tell of their loss.
    pub(crate) async fn answer(&self, question: &Question) -> Result<(Answer, Option<M::Parcel>)> {
        let answered = pin!(self.machine.receive(answers(self.volume, question.ticket)));
        let left = pin!(self.loss(&question.servers, question.since));
        let Message { body, parcel, .. } = match select(answered, left).await {
            Either::Left((message, _)) => message,
            Either::Right((error, _)) => return Err(error),
        };
        self.note_arrow("in_answer", (self.machine.me(), question.ticket));
        self.machine.work(Work::Answer).await;
        let answer: Result<Answer> = decode(&body)?;
        Ok((answer?, parcel))
    }

    /// Waits until the node of a server that was asked has left the machine, since there were this
    /// number of changes.
    async fn loss(&self, asked: &[usize], since: u64) -> Error {
        let (mut next, servers) = (since, self.servers.all());
        loop {
            let (after, changed, change) = self.machine.change(next).await;
            let mut asked = asked.iter().copied();
            let server = asked.find(|&server| servers.get(server) == Some(&changed));
            if let (Some(server), Change::Left(error)) = (server, change) {
                return error.by(Who::Server(server));
            }
            next = after;
        }
    }

    /// The reason why one of some servers has left since there were this number of changes, though
    /// it may be back.
    pub(crate) fn loss_since(&self, servers: &[usize], since: u64) -> Option<Error> {
        self.loss(servers, since).now_or_never()
    }

    /// Asks a server, and waits for its answer.
    ///
    /// # Errors
    /// As [`Caller::answer`].
    pub(crate) async fn ask(&self, server: usize, who: &Identity, ask: Ask) -> Result<Answer> {
        Ok(self.ask_for_data(server, who, ask).await?.0)
    }

    /// Asks a server, and waits for its answer, and the data that come with it.
    ///
    /// # Errors
    /// As [`Caller::answer`].
    pub(crate) async fn ask_for_data(
        &self,
        server: usize,
        who: &Identity,
        ask: Ask,
    ) -> Result<(Answer, Option<M::Parcel>)> {
        let question = self.question([server])?;
        let span = self.question_span(ask.kind(), question.ticket, server);
        let asking = async {
            let to = self.node(server)?;
            self.machine.work(Work::Request(to, 0)).await;
            let request = Request::Ask(question.ticket, who.clone(), ask);
            self.send(server, &request, None).await?;
            self.answer(&question).await
        };
        asking.instrument(span).await
    }

    /// The span of a question to a server, from here to the answer.
    pub(crate) fn question_span(&self, kind: RequestKind, ticket: u64, server: usize) -> Span {
        let me = self.machine.me();
        span!(
            "question",
            kind = kind.name(),
            to = server as u64,
            client = me as u64,
            ticket,
            out_question = arrow(("question", self.volume, me, ticket)),
            in_answer = Empty,
        )
    }

    /// Notes in the span of now that an answer goes, or has come.
    fn note_arrow(&self, name: &str, (asker, ticket): (NodeId, u64)) {
        let span = Span::current();
        if !span.is_none() {
            span.record(name, arrow(("answer", self.volume, asker, ticket)));
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub(crate) async fn reply(
        &self,
        to: NodeId,
        ticket: u64,
        answer: &Result<Answer>,
        parcel: Option<M::Parcel>,
    ) -> Result<()> {
        let port = answers(self.volume, ticket);
        let body = encode(answer)?;
        self.note_arrow("out_answer", (to, ticket));
        self.machine.send(to, port, body, parcel).await
    }
}

/// The error of a request that a loss of this server has ended.
pub(crate) fn loss_of(server: usize) -> Error {
    let cause = "it was lost while it had a part in the request";
    Error::new(Kind::Peer, "using files", cause).by(Who::Server(server))
}

/// The error for an answer of another kind than the question has.
pub(crate) fn unexpected() -> Error {
    let cause = "the answer is of another kind";
    Error::new(Kind::Peer, "asking a server of files", cause)
}
