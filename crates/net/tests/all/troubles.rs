//! Connections that are cut, or in which a byte is changed or no more come, anywhere: in the
//! handshake of TLS, in a hello, in a packet.
//!
//! A client works with a server through a proxy, and exchanges messages, parcels and pieces of its
//! memory. Each operation ends well, with the right bytes on both sides, or by an error of a peer;
//! the client then comes in again, without the proxy, and goes on. Another client works with the
//! same server all the time, and notices nothing.
//!
//! A failure prints its seed. `PENSTOCK_SEED=<seed> cargo test -p penstock-net --test all troubles`
//! runs that one alone, and `PENSTOCK_SEEDS` runs more of them.

use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{Memory, Stores};
use crate::ports::Ports;
use crate::proxy::{Chance, Plan, Proxies, Way};
use futures::future::{Either, FutureExt, pending, select};
use futures::stream::{FuturesUnordered, StreamExt};
use penstock_conformance::seat::{memory, port};
use penstock_conformance::truth::noise;
use penstock_conformance::{Bench, Case, Form, Held, Need, Seat};
use penstock_engine::{Change, Error, Kind, Machine, Message, Result, Window};
use penstock_layout::{Piece, Region, Share};
use penstock_machines::Node;
use penstock_machines::links::Process;
use penstock_net::address::Address;
use penstock_net::door::{DoorOptions, Guests};
use penstock_net::peer::{Peer, User};
use penstock_net::tls::{KeyFiles, Keys};
use penstock_net::{Standing, join, keys, stand};

/// Only what hangs takes longer.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long the server may be silent before a client gives it up that can come again. A changed
/// byte may keep TLS waiting for more.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the server looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);
/// The operations of a client.
const OPERATIONS: u64 = 6;
/// The bytes that an operation moves in each of its ways.
const SIZES: [usize; 4] = [3, 500, 20_000, 70_000];
/// Where clients ask, and where they are answered.
const ASKS: u64 = 1;
const ANSWERS: u64 = 2;
/// The node of the server.
const SERVER: usize = 0;

/// Nodes of the net machine, for what a [`Seat`] does with them.
struct OfNet;

impl Bench for OfNet {
    type Machine = Node;
    type Held = Memory;

    fn lacks(_need: Need) -> Option<&'static str> {
        None
    }

    fn sizes(&self) -> Vec<usize> {
        Vec::new()
    }

    fn run(&self, _nodes: usize, _case: &Case<Self>) {
        unreachable!("no case is run");
    }

    fn hold(share: &Share, width: usize, values: &[u8], form: Form) -> Memory {
        Memory::new(share, width, values, form)
    }

    fn leave(machine: &Node, error: &Error) {
        machine.leave(error);
    }

    fn servers(_machine: &Node, _nodes: usize) -> (Vec<usize>, usize) {
        (Vec::new(), 0)
    }
}

/// What an operation moves: the message's parcel, the memory before and after, the answer's parcel.
#[derive(Debug, Clone, Copy)]
enum Part {
    Parcel,
    Before,
    After,
    Answer,
}

/// An operation: whose, which, and how many bytes.
type Operation = (u64, u32, usize);

fn bytes((client, nth, length): Operation, part: Part) -> Vec<u8> {
    noise(&[client, u64::from(nth), part as u64], length)
}

fn line(length: usize) -> (Share, Piece, Window) {
    let region = Region::whole(&[length as u64]);
    let share = Share::of_box(&region);
    let piece = share.intersect(&region).unwrap().into();
    let window = Window {
        width: 1,
        offset: 0,
        strides: vec![1],
    };
    (share, piece, window)
}

/// What a message says of an operation.
fn told((client, nth, length): Operation) -> Vec<u8> {
    let words = [client, u64::from(nth), length as u64];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn heard(body: &[u8]) -> Operation {
    let words: Vec<u64> = body
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    (words[0], words[1] as u32, words[2] as usize)
}

/// Does an operation's part on the server. An error says that the client is lost.
async fn answer(seat: &Seat<OfNet>, message: Message<<Node as Machine>::Parcel>) -> Result<()> {
    let operation = heard(&message.body);
    let (_, nth, length) = operation;
    let parcel = message.parcel.unwrap();
    let is_right = seat.is_parcel(&parcel, &bytes(operation, Part::Parcel));
    assert!(is_right, "{operation:?}: a wrong parcel has come");
    let (_, piece, window) = line(length);
    let name = memory(nth.into());
    let buffer = seat.machine.buffer(length as u64)?;
    let get = seat
        .machine
        .memget(name, message.from, &piece, &window, &buffer);
    get.await?;
    let is_right = seat.bytes(&buffer, 0..length) == bytes(operation, Part::Before);
    assert!(is_right, "{operation:?}: something else was got");
    seat.fill(&buffer, 0, &bytes(operation, Part::After));
    let put = seat
        .machine
        .memput(name, message.from, &piece, &window, &buffer);
    put.await?;
    let parcel = Some(seat.parcel(&bytes(operation, Part::Answer)));
    let (to, at) = (message.from, port(ANSWERS, nth));
    seat.machine.send(to, at, message.body, parcel).await
}

/// What happens to the server.
enum Event {
    Asked(Message<<Node as Machine>::Parcel>),
    Ended,
    Nothing,
}

/// Answers clients until it is to stop.
fn serve(standing: Standing, is_over: &AtomicBool) {
    let Standing { links, door, .. } = standing;
    let node = Node::new(
        SERVER,
        links,
        Process::default(),
        Arc::new(Stores::default()),
    );
    let seat = Seat::<OfNet>::new(Rc::new(node), 1);
    seat.machine.clone().block_on(async {
        let mut answers = FuturesUnordered::new();
        answers.push(pending().boxed_local()); // it never ends, and so the others never have all
        while !is_over.load(Ordering::SeqCst) {
            let event = {
                let next = pin!(seat.receive(port(ASKS, 0)));
                let ended = pin!(answers.select_next_some());
                let wait = pin!(seat.machine.wait(LOOK));
                match select(next, select(ended, wait)).await {
                    Either::Left((message, _)) => Event::Asked(message),
                    Either::Right((Either::Left(_), _)) => Event::Ended,
                    Either::Right((Either::Right(_), _)) => Event::Nothing,
                }
            };
            match event {
                Event::Asked(message) => answers.push(answer(&seat, message).boxed_local()),
                // A client that is lost has given up what it asked for, when it comes again, too.
                Event::Ended | Event::Nothing => {}
            }
        }
    });
    drop(door);
}

/// An error is that of a peer, and nothing else.
fn check(error: &Error) {
    assert_eq!(error.kind, Kind::Peer, "{error}");
}

/// A client that has come in.
struct Client {
    seat: Seat<OfNet>,
    /// The number of changes of who is there that it has heard of.
    changes: u64,
    me: u64,
    next: u32,
    _calling: penstock_net::Calling,
}

impl Client {
    fn join(address: &Address, keys: &Keys, me: u64, patience: Duration) -> Result<Self> {
        let joined = join(
            std::slice::from_ref(address),
            Some(keys),
            patience,
            Arc::new(|_| {}),
        )?;
        let stores = Arc::new(Stores::default());
        let node = Node::new(joined.node, joined.links, Process::default(), stores);
        Ok(Self {
            seat: Seat::new(Rc::new(node), 1),
            changes: 0,
            me,
            next: 0,
            _calling: joined.calling,
        })
    }

    /// Waits until the server is there.
    async fn meet(&mut self) {
        while self.seat.machine.absence(SERVER).is_some() {
            let (after, ..) = self.seat.machine.change(self.changes).await;
            self.changes = after;
        }
        self.changes = self.seat.machine.changes();
    }

    /// Waits until the server has been lost.
    async fn loss(&self) -> Error {
        let mut next = self.changes;
        loop {
            let (after, _, change) = self.seat.machine.change(next).await;
            next = after;
            if let Change::Left(error) = change {
                return error;
            }
        }
    }

    /// Does one operation.
    async fn act(&mut self, length: usize) -> Result<()> {
        self.meet().await;
        let operation = (self.me, self.next, length);
        self.next += 1;
        let (seat, (share, ..)) = (&self.seat, line(length));
        let held = OfNet::hold(&share, 1, &bytes(operation, Part::Before), Form::Dense);
        let exposure = seat
            .machine
            .expose(memory(operation.1.into()), held.memory());
        let parcel = Some(seat.parcel(&bytes(operation, Part::Parcel)));
        let ask = seat
            .machine
            .send(SERVER, port(ASKS, 0), told(operation), parcel);
        ask.await?;
        let answered = pin!(seat.receive(port(ANSWERS, operation.1)));
        let lost = pin!(self.loss());
        let message = match select(answered, lost).await {
            Either::Left((message, _)) => message,
            Either::Right((error, _)) => return Err(error),
        };
        drop(exposure);
        assert_eq!(heard(&message.body), operation);
        let is_right = seat.is_parcel(&message.parcel.unwrap(), &bytes(operation, Part::Answer));
        assert!(is_right, "{operation:?}: a wrong answer");
        let is_right = held.values() == bytes(operation, Part::After);
        assert!(is_right, "{operation:?}: something else was put");
        Ok(())
    }

    fn run(&mut self, length: usize) -> Result<()> {
        let node = self.seat.machine.clone();
        node.block_on(self.act(length))
    }
}

/// A server, and keys for all.
struct Setting {
    directory: tempfile::TempDir,
    address: Address,
    _ports: Ports,
}

impl Setting {
    fn keys(&self, holder: &str) -> Keys {
        KeyFiles::within(self.directory.path(), holder)
            .read()
            .unwrap()
    }

    /// Makes keys, and starts a server that goes on until it is over.
    fn start(is_over: &Arc<AtomicBool>) -> (Self, std::thread::JoinHandle<()>) {
        let directory = tempfile::tempdir().unwrap();
        let (place, valid) = (directory.path(), Duration::from_secs(3600));
        keys::make_authority(place, valid).unwrap();
        let host = ["127.0.0.1".to_string()];
        keys::make(place, "server-0", &Peer::Server(0), &host, valid).unwrap();
        let user = Peer::Client(User {
            user: 1000,
            group: 100,
            groups: Vec::new(),
        });
        keys::make(place, "user", &user, &[], valid).unwrap();
        let ports = Ports::keep(1);
        let address = Address::Remote("127.0.0.1".to_string(), ports.number(0));
        let setting = Self {
            directory,
            address,
            _ports: ports,
        };
        let options = DoorOptions {
            realm: 7,
            process: 0,
            addresses: vec![vec![setting.address.clone()]],
            greeting: Vec::new(),
            keys: Some(setting.keys("server-0")),
            guests: Guests::All,
            clients_max: 100,
            patience: WAIT_MAX,
        };
        let (is_over, (ready, is_ready)) = (is_over.clone(), mpsc::channel());
        let server = std::thread::spawn(move || {
            let standing = stand(options).unwrap();
            ready.send(()).unwrap();
            serve(standing, &is_over);
        });
        is_ready.recv_timeout(WAIT_MAX).unwrap();
        (setting, server)
    }
}

/// What happens to the one connection that goes through the proxy.
fn plan_of(seed: u64) -> Plan {
    let mut chance = Chance::of(seed);
    let reach = [1500, 6000, 300_000][chance.below(3) as usize];
    let at = Some(1 + chance.below(reach));
    let is_still = seed % 10 == 4;
    let way = Way {
        pauses: [0, 0, 10][chance.below(3) as usize],
        cut_at: at.filter(|_| seed.is_multiple_of(2) && !is_still),
        changed_at: at.filter(|_| !seed.is_multiple_of(2)),
        still_at: at.filter(|_| is_still),
    };
    let other = Way {
        pauses: way.pauses,
        ..Way::default()
    };
    let (there, back) = match chance.below(2) {
        0 => (way, other),
        _ => (other, way),
    };
    Plan { seed, there, back }
}

/// What was met by the clients of a run.
#[derive(Debug, Default)]
struct Met {
    refusals: AtomicU64,
    losses: AtomicU64,
}

/// Plays one seed.
fn play(setting: &Setting, seed: u64, met: &Met) {
    let plan = plan_of(seed);
    let target = vec![setting.address.to_string()];
    let proxies = Proxies::start("127.0.0.1", target, move |_, _| plan);
    let through = Address::Remote("127.0.0.1".to_string(), proxies.ports[0]);
    let keys = setting.keys("user");
    let client = Client::join(&through, &keys, seed, PATIENCE).or_else(|error| {
        check(&error);
        met.refusals.fetch_add(1, Ordering::Relaxed);
        Client::join(&setting.address, &keys, seed, PATIENCE)
    });
    let mut client = client.unwrap();
    let mut chance = Chance::of(!seed);
    for _ in 0..OPERATIONS {
        let length = SIZES[chance.below(SIZES.len() as u64) as usize];
        while let Err(error) = client.run(length) {
            check(&error);
            met.losses.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Plays seeds, one after the other, beside a client that nothing happens to.
fn play_all(seeds: std::ops::Range<u64>) -> Met {
    let [is_over, is_closing] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let met = Arc::new(Met::default());
    let (setting, server) = Setting::start(&is_closing);
    let setting = Arc::new(setting);
    let (begun, is_over_of_other) = (setting.clone(), is_over.clone());
    let other = std::thread::spawn(move || {
        let keys = begun.keys("user");
        let mut client = Client::join(&begun.address, &keys, u64::MAX, WAIT_MAX).unwrap();
        let mut nth = 0;
        while !is_over_of_other.load(Ordering::SeqCst) {
            client.run(SIZES[nth % SIZES.len()]).unwrap();
            nth += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        nth
    });
    for seed in seeds {
        let (ended, end) = mpsc::channel();
        let (setting, of_seed) = (setting.clone(), met.clone());
        let one = std::thread::spawn(move || {
            play(&setting, seed, &of_seed);
            ended.send(()).unwrap();
        });
        let has_ended = end.recv_timeout(WAIT_MAX).is_ok();
        let is_well = has_ended && !server.is_finished() && !other.is_finished();
        assert!(is_well, "PENSTOCK_SEED={seed}: {:?}", plan_of(seed));
        one.join().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(other.join().unwrap() > 0);
    is_closing.store(true, Ordering::SeqCst);
    server.join().unwrap();
    Arc::into_inner(met).unwrap()
}

#[test]
fn connections_that_are_cut_or_changed_harm_nobody() {
    let number = |name| std::env::var(name).ok().map(|n: String| n.parse().unwrap());
    let seeds = match number("PENSTOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PENSTOCK_SEEDS").unwrap_or(5),
    };
    let count = seeds.end - seeds.start;
    let met = play_all(seeds);
    println!("{count} seeds: {met:?}");
    if count >= 20 {
        let met = [met.refusals, met.losses].map(AtomicU64::into_inner);
        assert!(met.iter().all(|&count| count > 0), "{met:?}");
    }
}
