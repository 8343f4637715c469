//! Packets that are not what they should be: cut, spliced, with other bits, from nobody. A node
//! survives all of them, touches no memory that it does not expose, and goes on to answer others.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-machines --test all
//! hostile` runs that one alone. `PENSTOCK_FUZZ_SECONDS` runs seeds for as long, and
//! `PENSTOCK_FUZZ_RUNS` as many packets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Machine, MemoryId, Opening, Port, Result, Window};
use penstock_layout::{Direction, Distribution, Dists, Piece, Region, Share};
use penstock_machines::bell::{Bell, HasBell};
use penstock_machines::links::{Arrival, Distance, Links, Process};
use penstock_machines::memory::board::HasBoard;
use penstock_machines::memory::buffer::BufferPool;
use penstock_machines::node::packet::{Header, Packet, ParcelPlace};
use penstock_machines::node::pause::Pause;
use penstock_machines::{BlockSieve, ClientMemory, DeviceId, Medium, Node, Opener, no_sieve};

const ME: usize = 0;
/// A node that sends what it should.
const HONEST: usize = 1;
/// A node that does not.
const HOSTILE: usize = 2;

/// Packets, each with its sender.
type Packets = Rc<RefCell<VecDeque<(usize, Vec<u8>)>>>;
/// Packets, each with its receiver.
type Sent = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

/// Links whose other end is the test.
#[derive(Clone, Default)]
struct Wire {
    arrived: Packets,
    sent: Sent,
    bell: Arc<Bell>,
}

impl Links for Wire {
    fn distance(&self, node: usize) -> Distance {
        match node {
            HOSTILE => Distance::Host,
            _ => Distance::Network,
        }
    }

    fn post(&self, to: usize, packet: Vec<u8>) -> Result<()> {
        self.sent.borrow_mut().push((to, packet));
        Ok(())
    }

    fn poll(&self) -> Result<Option<Arrival>> {
        let next = self.arrived.borrow_mut().pop_front();
        Ok(next.map(|(from, packet)| Arrival::Packet(from, packet)))
    }

    fn others(&self) -> Vec<usize> {
        vec![HONEST, HOSTILE]
    }

    fn is_member(&self, node: usize) -> bool {
        node <= HOSTILE
    }

    fn cut(&self, _node: usize) {}

    fn keeps_any(&self) -> bool {
        false
    }

    fn mail_bytes_max(&self, _node: usize) -> u64 {
        MAIL_BYTES_MAX
    }

    fn bell(&self) -> Arc<dyn HasBell> {
        self.bell.clone()
    }

    fn board(&self, _node: usize) -> Option<Arc<dyn HasBoard>> {
        None
    }

    fn nap_max(&self, _idle: u32) -> Option<Duration> {
        None
    }

    fn needs_mpi(&self) -> bool {
        false
    }
}

/// The packets of a seed.
const PACKETS: u64 = 40;

/// More than the other test sends.
const MAIL_BYTES_MAX: u64 = 1 << 20;

struct NoStores;

impl Opener for NoStores {
    fn device(&self, _opening: &Opening) -> Result<DeviceId> {
        Err(Error::new(Kind::Missing, "opening", "there is nothing"))
    }

    fn open(&self, _opening: &Opening, _tells_positions: bool) -> Result<Arc<dyn Medium>> {
        Err(Error::new(Kind::Missing, "opening", "there is nothing"))
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

/// xorshift64*.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

const NAME: MemoryId = MemoryId::new([3, 4]);
const WIDTH: usize = 4;
/// Elements around the exposed memory that nobody may touch.
const GUARD: usize = 4096;

fn share() -> Share {
    let dists: Dists = "CYCLIC(2),BLOCK".parse().unwrap();
    let distribution = Distribution::new(&[24, 20], &dists, &[2, 2]).unwrap();
    distribution.share(1)
}

/// Packets as they should be, of every kind, with a buffer that the test shares.
fn proper(pool: &Rc<BufferPool>) -> Vec<(Header, Vec<u8>)> {
    let region = Region::new(&[3, 5], &[16, 11]);
    let piece = Piece::from(share().intersect(&region).unwrap());
    let window = Window {
        width: WIDTH,
        offset: 64,
        strides: vec![11 * WIDTH as isize, WIDTH as isize],
    };
    let buffer = pool.take(4096).unwrap();
    let name = buffer.name().unwrap();
    let packed = vec![7; piece.elements() as usize * WIDTH];
    let port = Port::new([1, 2, 3]);
    let (ticket, memory) = (5, NAME);
    let copy = |direction| Header::Copy {
        ticket,
        memory,
        direction,
        piece: piece.clone(),
        window: window.clone(),
        buffer: name,
    };
    let loan = |lies, bytes| Header::Loan {
        ticket,
        port,
        body: 3,
        bytes,
        lies,
    };
    let message = Header::Message {
        port,
        body: 9,
        has_parcel: true,
    };
    let fetch = Header::Fetch {
        ticket,
        memory,
        width: WIDTH,
        piece: piece.clone(),
    };
    let deliver = Header::Deliver {
        ticket,
        memory,
        width: WIDTH,
        piece: piece.clone(),
    };
    let done = Header::Done {
        ticket: 0,
        result: Ok(()),
    };
    vec![
        (copy(Direction::Gather), Vec::new()),
        (copy(Direction::Scatter), Vec::new()),
        (loan(ParcelPlace::InPacket, 40), vec![1; 43]),
        (loan(ParcelPlace::OnHost(name), 200), vec![1; 3]),
        (loan(ParcelPlace::InProcess, 200), vec![1; 3]),
        (message, vec![2; 90]),
        (fetch, Vec::new()),
        (deliver, packed),
        (done, vec![3; 10]),
    ]
}

fn encoded(header: &Header, payload: &[u8]) -> Vec<u8> {
    let (mut packet, start) = Packet::encode(header, payload.len()).unwrap();
    packet[start..].copy_from_slice(payload);
    packet
}

/// Makes something else of a packet.
fn spoiled(mut packet: Vec<u8>, other: &[u8], chance: &mut Chance) -> Vec<u8> {
    for _ in 0..1 + chance.below(3) {
        let at = chance.below(packet.len());
        match chance.below(6) {
            0 => packet[at] ^= 1 << chance.below(8),
            1 => packet[at] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5)],
            2 => packet.truncate(at.max(1)),
            3 => {
                packet.splice(at..at, [0xff; 9]);
            }
            4 => {
                let from = chance.below(other.len());
                packet.splice(at.., other[from..].iter().copied());
            }
            _ => {
                packet.remove(at);
            }
        }
        if packet.is_empty() {
            packet.push(0);
        }
    }
    packet
}

fn run(seed: u64) {
    let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let wire = Wire::default();
    let (links, opener) = (Box::new(wire.clone()), Arc::new(NoStores));
    let node = Node::new(ME, links, Process::default(), opener);
    let share = share();
    let extents = share.extents();
    let held = share.elements() as usize * WIDTH;
    let mut bytes = vec![9u8; held + 2 * GUARD];
    let memory = ClientMemory {
        // SAFETY: within the vector.
        base: unsafe { bytes.as_mut_ptr().add(GUARD) },
        strides: vec![(extents[1] as usize * WIDTH) as isize, WIDTH as isize],
        extents,
        width: WIDTH,
    };
    let exposure = node.expose(NAME, memory);
    let pool = Rc::new(BufferPool::new(true));
    let proper = proper(&pool);
    let any = |chance: &mut Chance| {
        let (header, payload) = &proper[chance.below(proper.len())];
        encoded(header, payload)
    };
    let mut pause = Pause::default();
    for _ in 0..PACKETS {
        let (packet, other) = (any(chance), any(chance));
        let packet = match chance.below(8) {
            0 => packet,
            _ => spoiled(packet, &other, chance),
        };
        wire.arrived.borrow_mut().push_back((HOSTILE, packet));
        node.look(&mut pause, |_| ());
    }
    // The others are answered as before.
    wire.sent.borrow_mut().clear();
    let (header, payload) = &proper[6];
    let honest = encoded(header, payload);
    wire.arrived.borrow_mut().push_back((HONEST, honest));
    node.look(&mut pause, |_| ());
    let sent = wire.sent.borrow();
    let answer = sent.iter().find(|(to, _)| *to == HONEST);
    let answer = Packet::decode(answer.unwrap().1.clone()).unwrap();
    assert!(matches!(
        answer.header,
        Header::Done {
            ticket: 5,
            result: Ok(())
        }
    ));
    drop(exposure);
    let (before, rest) = bytes.split_at(GUARD);
    let after = &rest[held..];
    assert!(
        before.iter().chain(after).all(|&byte| byte == 9),
        "memory that is not exposed"
    );
}

#[test]
fn who_sends_what_nobody_waits_for_is_cut_off() {
    let wire = Wire::default();
    let (links, opener) = (Box::new(wire.clone()), Arc::new(NoStores));
    let node = Node::new(ME, links, Process::default(), opener);
    let mut pause = Pause::default();
    let message = |number| {
        let header = Header::Message {
            port: Port::new([7, 7, number]),
            body: 50_000,
            has_parcel: true,
        };
        encoded(&header, &[1; 100_000])
    };
    // One whose messages are taken may send as many as it likes.
    for number in 0..30 {
        let sent = (HONEST, message(number));
        wire.arrived.borrow_mut().push_back(sent);
        let taken = node.block_on(node.receive(Port::new([7, 7, number])));
        assert_eq!((taken.from, taken.body.len()), (HONEST, 50_000));
    }
    for number in 0..30 {
        assert!(number < 11 || Machine::absence(&node, HOSTILE).is_some());
        wire.arrived
            .borrow_mut()
            .push_back((HOSTILE, message(number)));
        node.look(&mut pause, |_| ());
        assert!(number >= 10 || Machine::absence(&node, HOSTILE).is_none());
    }
    let reason = Machine::absence(&node, HOSTILE).unwrap();
    assert!(reason.cause.contains("nobody waits for"), "{reason}");
    assert_eq!(Machine::absence(&node, HONEST), None);
}

#[test]
fn a_node_survives_what_others_send() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().unwrap())
    };
    let one = number("PENSTOCK_SEED");
    let seeds = number("PENSTOCK_FUZZ_RUNS").map_or(2000, |runs| runs.div_ceil(PACKETS));
    let begun = Instant::now();
    let until = begun + Duration::from_secs(number("PENSTOCK_FUZZ_SECONDS").unwrap_or(0));
    for seed in one.unwrap_or(0).. {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "PENSTOCK_SEED={seed}");
        if one.is_some() || (seed + 1 >= seeds && Instant::now() > until) {
            let packets = (seed + 1 - one.unwrap_or(0)) * PACKETS;
            println!("{packets} packets in {} s", begun.elapsed().as_secs());
            return;
        }
    }
}
