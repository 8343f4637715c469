//! The exchange of two-phase I/O by messages, in the five ways of Dickens and Thakur (section 3.3).
//! They differ in how elements are copied, and when messages are sent and waited for.
//!
//! Between any two clients there is one message a round at most (one for each share, should a
//! client have several): all elements that one client holds and that belong to blocks of the other.
//! They are packed into a send buffer, and unpacked into their place.
//!
//! | step | copies | sends | receives | send buffers |
//! |---|---|---|---|---|
//! | 1 | byte for byte | one, and its end is waited for | one rank's is waited for | one |
//! | 2 | by kernels | as in step 1 | as in step 1 | one |
//! | 3 | by kernels | all are begun | then all are begun; taken as they come | one a message |
//! | 4 | by kernels | all are begun, after the receives | posted first; taken as they come | one a message |
//! | 5 | by kernels | one after the other | posted first; taken as they come | one |
//!
//! A message for which no receive has been posted is kept by the receiver's system, which copies it
//! once more. Elements that a client has itself are copied once, and sent to nobody.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::future::{join, join_all, join3};
use penstock_layout::{Block, Piece, exact};

use crate::address::{MemoryId, Port, Step};
use crate::call::Call;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Elements, Machine, Operation, Window, Work};
use crate::own::{OwnBlock, OwnPart};
use crate::portion::Portion;
use crate::portions::Parts;
use crate::request::Request;
use crate::signal::{Signal, yield_now};
use crate::tuning::{Exchange, TwoPhase};

/// A bundle is the elements of this client for another, or of another for this client, in the order
/// of the blocks.
struct Bundle {
    /// The rank of the other client.
    with: usize,
    /// The name of the memory of the holder's share.
    memory: MemoryId,
    pieces: Vec<Piece>,
    /// The windows of the pieces in this client's staging buffer, if they are in this client's
    /// blocks.
    windows: Vec<Window>,
    stretches: u64,
}

/// The bundles of one round, by the rank of the other client and by the holder's share. Each
/// message is about one share.
type Bundles = BTreeMap<(usize, usize), Bundle>;

/// The messages of one client in one call.
pub(super) struct Messages<'a, M: Machine> {
    call: &'a Call<'a, M>,
    request: &'a Request,
    exchange: Exchange,
    clients: usize,
    me: usize,
    parts: Parts<'a>,
    /// The pieces that this rank holds, by round.
    held: BTreeMap<u64, RoundPieces>,
}

/// The pieces of one round, by the rank of the conforming part and the number of this rank's share.
type RoundPieces = BTreeMap<(usize, usize), Vec<(Block, Piece)>>;

impl<'a, M: Machine> Messages<'a, M> {
    /// Makes the messages of the client of rank `me`; `None` if the exchange is
    /// [`Exchange::Remote`].
    pub(super) fn new(
        (call, me): (&'a Call<'a, M>, usize),
        parts: Parts<'a>,
        own: &OwnPart<'_>,
        options: &TwoPhase,
    ) -> Option<Self> {
        if options.exchange == Exchange::Remote {
            return None;
        }
        let (request, clients) = (parts.request, call.party().clients.len());
        let blocks_staged = options.blocks_staged(request.split, request.disk.block_bytes_max());
        let mut held: BTreeMap<u64, RoundPieces> = BTreeMap::new();
        for OwnBlock { block, pieces } in own.blocks(&request.disk) {
            let (owner, place) = request.disk.conforming_place(&block, clients);
            let round = held.entry(place / blocks_staged).or_default();
            for (part, piece) in pieces {
                let of_owner = round.entry((owner, part)).or_default();
                of_owner.push((block.clone(), piece));
            }
        }
        Some(Self {
            call,
            request,
            exchange: options.exchange,
            clients,
            me,
            parts,
            held,
        })
    }

    /// Exchanges the elements of one round with all clients, and returns the number of messages
    /// that came. `staged` names this client's blocks, and their places in its staging buffer.
    /// Without a buffer the client tells others the error, takes the elements that they send, and
    /// keeps nothing.
    ///
    /// # Errors
    /// The first error of this client, or of another that sends to it.
    pub(super) async fn exchange(
        &self,
        round: u64,
        staged: &[(Rc<Block>, u64)],
        staging: std::result::Result<&M::Buffer, &Error>,
    ) -> Result<u64> {
        let mut of_blocks = self.of_blocks(staged)?;
        let mut of_own = self.of_own(round);
        let own = of_blocks.extract_if((self.me, 0)..(self.me + 1, 0), |_, _| true);
        let own = own.map(|(_, bundle)| bundle).collect();
        of_own.retain(|(with, _), _| *with != self.me);
        let (out, into) = match self.request.operation {
            Operation::Write => (of_own, of_blocks),
            Operation::Read => (of_blocks, of_own),
        };
        let count = into.len() as u64;
        let round = Round {
            messages: self,
            staging,
            own,
        };
        let done = match self.exchange {
            Exchange::Remote | Exchange::Step1 | Exchange::Step2 => round.in_turn(out, into).await,
            Exchange::Step3 => round.at_once(out, into, false).await,
            Exchange::Step4 => round.at_once(out, into, true).await,
            Exchange::Step5 => round.one_send_at_a_time(out, into).await,
        };
        done.map(|()| count)
    }

    /// The name of the memory of a holder's share.
    fn memory(&self, part: usize) -> MemoryId {
        self.call.id.memory(0).share(part as u64)
    }

    /// The bundles of this client's blocks, by the rank that holds the elements.
    fn of_blocks(&self, staged: &[(Rc<Block>, u64)]) -> Result<Bundles> {
        let mut bundles = Bundles::new();
        for (block, base) in staged {
            let window = Window::at(block, self.request.disk.width(), *base);
            for portion in self.parts.portions(block)? {
                let Portion { rank, part, piece } = portion;
                let bundle = bundles.entry((rank, part));
                let bundle = bundle.or_insert_with(|| Bundle::new(rank, self.memory(part)));
                bundle.add(block, piece);
                bundle.windows.push(window.clone());
            }
        }
        Ok(bundles)
    }

    /// The bundles of this client's elements in others' blocks in a round, by rank.
    fn of_own(&self, round: u64) -> Bundles {
        let mut bundles = Bundles::new();
        for (&(owner, part), held) in self.held.get(&round).into_iter().flatten() {
            let bundle = bundles.entry((owner, part));
            let bundle = bundle.or_insert_with(|| Bundle::new(owner, self.memory(part)));
            for (block, piece) in held {
                bundle.add(block, piece.clone());
            }
        }
        bundles
    }
}

impl Bundle {
    fn new(with: usize, memory: MemoryId) -> Self {
        Self {
            with,
            memory,
            pieces: Vec::new(),
            windows: Vec::new(),
            stretches: 0,
        }
    }

    fn add(&mut self, block: &Block, piece: Piece) {
        self.stretches += piece.stretches(&block.extents);
        self.pieces.push(piece);
    }

    /// The port to which the client of rank `from` sends the bundle.
    fn port(&self, from: usize) -> Port {
        self.memory.port(Step::Exchange(exact::<u32>(from)))
    }

    fn elements(&self) -> u64 {
        self.pieces.iter().map(Piece::elements).sum()
    }
}

/// A round is one exchange.
struct Round<'a, M: Machine> {
    messages: &'a Messages<'a, M>,
    staging: std::result::Result<&'a M::Buffer, &'a Error>,
    /// The bundles that this client has for itself.
    own: Vec<Bundle>,
}

impl<M: Machine> Round<'_, M> {
    /// Exchanges by step 1 or 2.
    async fn in_turn(&self, mut out: Bundles, mut into: Bundles) -> Result<()> {
        let Messages { clients, me, .. } = *self.messages;
        let mut done = Ok(());
        for distance in 1..clients {
            let (to, from) = (
                (me + distance) % clients,
                (me + clients - distance) % clients,
            );
            for (_, bundle) in out.extract_if((to, 0)..(to + 1, 0), |_, _| true) {
                done = done.and(self.send(bundle).await);
            }
            for (_, bundle) in into.extract_if((from, 0)..(from + 1, 0), |_, _| true) {
                done = done.and(self.receive(bundle).await);
            }
        }
        done.and(self.copy_own().await)
    }

    /// Exchanges by step 3 or 4: all sends at once, and all receives, posted before or after.
    async fn at_once(&self, out: Bundles, into: Bundles, receives_first: bool) -> Result<()> {
        let (count, begun) = (out.len(), Cell::new(0));
        let signal = Signal::default();
        let all_begun = || signal.until(|| (begun.get() == count).then_some(()));
        let sends = self.in_order(out).enumerate().map(|(nth, bundle)| {
            let (signal, begun) = (&signal, &begun);
            async move {
                signal.until(|| (begun.get() == nth).then_some(())).await;
                let packed = self.pack(&bundle).await;
                let next = async {
                    yield_now().await;
                    begun.set(nth + 1);
                    signal.tell();
                };
                let (sent, ()) = join(self.transmit(&bundle, packed), next).await;
                sent
            }
        });
        let receives = async {
            if !receives_first {
                all_begun().await;
            }
            all(join_all(self.in_order(into).map(|bundle| self.receive(bundle))).await)
        };
        let own = async {
            all_begun().await;
            self.copy_own().await
        };
        // The first future is polled first: receives that are to be posted first are.
        let (received, sent, copied) = join3(receives, join_all(sends), own).await;
        received.and(all(sent)).and(copied)
    }

    /// Exchanges by step 5.
    async fn one_send_at_a_time(&self, out: Bundles, into: Bundles) -> Result<()> {
        let receives = join_all(self.in_order(into).map(|bundle| self.receive(bundle)));
        let sends = async {
            let mut sent = Ok(());
            for bundle in self.in_order(out) {
                sent = sent.and(self.send(bundle).await);
            }
            sent.and(self.copy_own().await)
        };
        let (received, sent) = join(receives, sends).await;
        all(received).and(sent)
    }

    /// Takes the bundles beginning with the next rank, so that not all clients begin with one rank.
    fn in_order(&self, mut bundles: Bundles) -> impl Iterator<Item = Bundle> {
        let after = bundles.split_off(&(self.messages.me, 0));
        after.into_values().chain(bundles.into_values())
    }

    async fn send(&self, bundle: Bundle) -> Result<()> {
        let packed = self.pack(&bundle).await;
        self.transmit(&bundle, packed).await
    }

    /// Sends a packed bundle, or the error in its place: somebody waits for it.
    async fn transmit(&self, bundle: &Bundle, packed: Result<M::Buffer>) -> Result<()> {
        let machine = self.messages.call.machine;
        let to = self.messages.call.party().clients[bundle.with];
        let port = bundle.port(self.messages.me);
        match packed {
            Ok(buffer) => {
                let bytes = self.bytes(bundle);
                machine.transmit(to, port, Vec::new(), &buffer, bytes).await
            }
            Err(error) => {
                let error = error.by(Who::Rank(self.messages.me));
                machine.send(to, port, encode(&error)?, None).await?;
                Err(error)
            }
        }
    }

    async fn receive(&self, bundle: Bundle) -> Result<()> {
        let machine = self.messages.call.machine;
        let message = machine.receive(bundle.port(bundle.with)).await;
        if !message.body.is_empty() {
            return Err(decode::<Error>(&message.body)?);
        }
        let Some(parcel) = message.parcel else {
            let cause = format!("node {} sent a message without elements", message.from);
            return Err(Error::new(Kind::Peer, "exchanging elements", cause));
        };
        let is_write = self.messages.request.operation == Operation::Write;
        match (is_write, self.staging) {
            (false, _) => {
                self.copy(&bundle, Elements::Parcel(&parcel, 0), Elements::Exposed)
                    .await
            }
            (true, Err(_)) => Ok(()),
            (true, Ok(staging)) => {
                let to = Elements::Staged(&bundle.windows, staging);
                self.copy(&bundle, Elements::Parcel(&parcel, 0), to).await
            }
        }
    }

    async fn pack(&self, bundle: &Bundle) -> Result<M::Buffer> {
        let is_write = self.messages.request.operation == Operation::Write;
        let from = match (is_write, self.staging) {
            (true, _) => Elements::Exposed,
            (false, Ok(staging)) => Elements::Staged(&bundle.windows, staging),
            (false, Err(error)) => return Err(error.clone()),
        };
        let buffer = self.messages.call.machine.buffer(self.bytes(bundle))?;
        self.copy(bundle, from, Elements::Packed(&buffer, 0))
            .await?;
        Ok(buffer)
    }

    async fn copy_own(&self) -> Result<()> {
        let Ok(staging) = self.staging else {
            return Ok(());
        };
        for own in &self.own {
            let staged = Elements::Staged(&own.windows, staging);
            match self.messages.request.operation {
                Operation::Write => self.copy(own, Elements::Exposed, staged).await?,
                Operation::Read => self.copy(own, staged, Elements::Exposed).await?,
            }
        }
        Ok(())
    }

    async fn copy(
        &self,
        bundle: &Bundle,
        from: Elements<'_, M>,
        to: Elements<'_, M>,
    ) -> Result<()> {
        let Messages { call, request, .. } = *self.messages;
        let by = self.messages.exchange.copies_by();
        let pack = Work::Pack {
            bytes: self.bytes(bundle),
            stretches: bundle.stretches,
            by,
        };
        call.machine.work(pack).await;
        let width = exact::<usize>(request.disk.width());
        call.machine
            .copy(bundle.memory, width, &bundle.pieces, from, to, by)
    }

    fn bytes(&self, bundle: &Bundle) -> u64 {
        bundle.elements() * self.messages.request.disk.width()
    }
}

fn all(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().collect()
}
