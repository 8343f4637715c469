//! Everything that this crate takes from somebody whom it does not know yet, or does not trust:
//! valid words, packets, certificates and handshakes with something changed, in this process.
//!
//! | what | who says it | before it is known who that is |
//! |---|---|---|
//! | hello | a caller to a server | yes |
//! | welcome, greeting | a server to a caller | by TLS alone |
//! | certificate, address | the other end of TLS; a server | signed by the authority |
//! | handshake | a caller to a server, by TLS | yes |
//! | descriptor | a server to a caller, by a Unix socket | yes |
//! | lane | a client to a server, in the memory that both share | no |
//!
//! `PENSTOCK_FUZZ_RUNS` says how many runs there are: `make fuzz-net`. A failure prints its seed.
//! `PENSTOCK_SEED=<seed> cargo test -p penstock-net --lib fuzz` runs that one alone. What a client
//! sends that has been let in is fuzzed in `machines/tests/all/hostile.rs` (packets) and in the
//! crate `files` (requests).

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use penstock_engine::encoding::{decode, encode};
use penstock_engine::version::Version;
use penstock_engine::{Error, Kind, Port, Result};
use penstock_machines::memory::segment::Mapping;
use penstock_machines::node::packet::{Header, Packet};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::address::{Address, of_url};
use crate::connection::{Connection, Limits};
use crate::dial::receive_file;
use crate::hello::{self, Caller, Hello, Secret, Welcome};
use crate::keys;
use crate::lane::{LANE_BYTES, SEGMENT_BYTES, ends};
use crate::peer::{Peer, User};
use crate::stream::{Found, HostStream, Stream};
use crate::tls::{KeyFiles, Keys};
use crate::visit::{Greeting, heard};

/// The runs of `cargo test`.
const RUNS: u64 = 200_000;
/// The bytes of the longest packet of a lane here.
const PACKET_BYTES: usize = 1 << 17;
/// What the two sides of a lane do in a run.
const TURNS: usize = 24;
/// One run of this many covers what costs most: lanes, descriptors, handshakes.
const RARELY: u64 = 32;

/// xorshift64*.
struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// A number that is often wrong: small, near the bounds of types, or anything.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(4) as u64,
            1 => 1 << self.below(64),
            2 => u64::MAX - self.below(3) as u64,
            _ => self.next(),
        }
    }

    /// Changes bytes, and their number, in one to four places. `other` lends what is put in.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..1 + self.below(4) {
            if bytes.is_empty() {
                bytes.push(0);
            }
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => bytes.truncate(at),
                3 => drop(bytes.splice(at..at, [0xff; 9])), // a number that does not end
                4 => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])),
                5 => drop(bytes.remove(at)),
                6 => {
                    let end = (at + 8).min(bytes.len());
                    let number = self.number().to_le_bytes();
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
                _ => {
                    let from = self.below(other.len().max(1)).min(other.len());
                    let to = (from + 1 + self.below(40)).min(other.len());
                    drop(bytes.splice(at..at, other[from..to].iter().copied()));
                }
            }
        }
    }

    /// A text that is an address, or nearly.
    fn text(&mut self) -> String {
        let texts = [
            "unix:///run/penstock.sock",
            "io1:7433",
            "[::1]:9",
            "10.0.0.1",
            "penstock://io1,io2:7433",
            "",
        ];
        let mut bytes = texts[self.below(texts.len())].as_bytes().to_vec();
        if self.below(2) == 0 {
            self.change(&mut bytes, b"[]:/,\xc3\xa9");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What stays the same from run to run.
struct Samples {
    certificates: Vec<Vec<u8>>,
    keys: Keys,
    /// What a caller says first in a handshake.
    begin: Vec<u8>,
    _directory: tempfile::TempDir,
}

impl Samples {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (place, valid) = (directory.path(), Duration::from_secs(24 * 3600));
        keys::make_authority(place, valid).unwrap();
        let user = Peer::Client(User {
            user: 1000,
            group: 100,
            groups: vec![27, 44],
        });
        let host = ["127.0.0.1".to_string()];
        for (name, peer) in [("server-0", Peer::Server(0)), ("user", user)] {
            keys::make(place, name, &peer, &host, valid).unwrap();
        }
        let files = KeyFiles::within(place, "server-0");
        let names = ["authority", "server-0", "user"];
        let der = |name: &str| {
            let path = place.join(format!("{name}.pem"));
            CertificateDer::from_pem_file(path).unwrap().to_vec()
        };
        let keys = files.read().unwrap();
        let mut begin = Vec::new();
        caller(&keys).write_tls(&mut begin).unwrap();
        Self {
            certificates: names.map(der).to_vec(),
            keys,
            begin,
            _directory: directory,
        }
    }
}

fn caller(keys: &Keys) -> rustls::ClientConnection {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    rustls::ClientConnection::new(keys.client.clone(), name).unwrap()
}

/// A word as it goes over a connection.
fn word(bytes: Vec<u8>, is_first: bool, chance: &mut Chance) -> Vec<u8> {
    let mut said = Vec::new();
    if is_first {
        said.extend(b"PENSTOCK");
    }
    let version = match chance.below(8) {
        0 => chance.number(),
        _ => Version::THIS.word(),
    };
    said.extend(version.to_le_bytes());
    let length = match chance.below(8) {
        0 => chance.number() as u32,
        _ => bytes.len() as u32,
    };
    said.extend(length.to_le_bytes());
    said.extend(bytes);
    said
}

fn hello(chance: &mut Chance) {
    let caller = match chance.below(2) {
        0 => Caller::Client(decode::<Secret>(&[chance.next().to_le_bytes(); 2].concat()).unwrap()),
        _ => Caller::Server(chance.number() as usize),
    };
    let realm = (chance.below(2) == 0).then(|| chance.number());
    let mut bytes = encode(&Hello { caller, realm }).unwrap();
    if chance.below(3) > 0 {
        chance.change(&mut bytes, b"\x00\x01\x01\x10");
    }
    let mut said = word(bytes, true, chance);
    if chance.below(2) == 0 {
        chance.change(&mut said, b"PENSTOCK");
    }
    let heard = hello::receive::<Hello>(&mut &said[..], true).now_or_never();
    if let Ok(hello) = heard.expect("nothing is waited for") {
        let again: Hello = decode(&encode(&hello).unwrap()).unwrap();
        assert_eq!(again.realm, hello.realm);
    }
}

fn greeting(chance: &mut Chance) -> Vec<u8> {
    let nodes = |chance: &mut Chance| {
        let nodes = (0..chance.below(4)).map(|_| chance.number() as usize % 5);
        nodes.collect()
    };
    let said = Greeting {
        homes: nodes(chance),
        volume: vec![7; chance.below(60)],
        arrays: nodes(chance),
    };
    let mut bytes = encode(&said).unwrap();
    if chance.below(2) == 0 {
        chance.change(&mut bytes, b"\x02\x00\x01\x00");
    }
    bytes
}

fn welcome(chance: &mut Chance) -> Result<Welcome> {
    if chance.below(6) == 0 {
        return Err(Error::new(Kind::Busy, "connecting", chance.text()));
    }
    let mut addresses = Vec::new();
    for _ in 0..chance.below(4) {
        let of_one = (0..chance.below(3)).map(|_| match chance.below(2) {
            0 => Address::Host(chance.text().into()),
            _ => Address::Remote(chance.text(), chance.next() as u16),
        });
        addresses.push(of_one.collect());
    }
    Ok(Welcome {
        realm: chance.below(3) as u64,
        process: chance.number() as usize,
        addresses,
        node: chance.number() as usize,
        greeting: greeting(chance),
    })
}

/// What a server says: its welcome, or why it refuses.
fn answer(chance: &mut Chance) -> Option<Result<Welcome>> {
    let mut bytes = encode(&welcome(chance)).unwrap();
    if chance.below(2) == 0 {
        let other = encode(&welcome(chance)).unwrap();
        chance.change(&mut bytes, &other);
    }
    let said = word(bytes, false, chance);
    let heard = hello::receive::<Result<Welcome>>(&mut &said[..], false).now_or_never();
    heard.expect("nothing is waited for").ok()
}

/// What a client makes of what several servers say.
fn answers(chance: &mut Chance) {
    let all: Vec<_> = (0..1 + chance.below(3))
        .filter_map(|_| answer(chance))
        .collect();
    if let Ok((greeting, _)) = heard(&all) {
        assert!(!greeting.homes.is_empty());
        let told = all.iter().flatten().map(|one| one.addresses.len());
        let processes = told.max().unwrap_or(0);
        assert!(greeting.homes.iter().all(|&home| home < processes));
    }
}

fn certificate(samples: &Samples, chance: &mut Chance) {
    let all = &samples.certificates;
    let mut der = all[chance.below(all.len())].clone();
    if chance.below(4) == 0 {
        // The name of the holder is what matters.
        let text = b"penstock:";
        let found = der.windows(text.len()).position(|part| part == text);
        if let Some(at) = found {
            let end = (at + 9 + chance.below(20)).min(der.len());
            (at + 9..end).for_each(|at| der[at] = b"0:9,-"[chance.below(5)]);
        }
    } else {
        let other = &all[chance.below(all.len())];
        chance.change(&mut der, other);
    }
    if let Ok(peer) = Peer::of_certificate(&der) {
        let uri = peer.uri();
        assert!(uri.starts_with("penstock:user:") || uri.starts_with("penstock:server:"));
    }
}

fn address(chance: &mut Chance) {
    let text = chance.text();
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
    }
    let _ = of_url(&text); // an error is as good
}

/// A handshake of TLS: its first flight, changed; or a whole one, the second flight changed.
fn handshake(samples: &Samples, chance: &mut Chance) {
    let mut server = rustls::ServerConnection::new(samples.keys.server.clone()).unwrap();
    let take = |server: &mut rustls::ServerConnection, mut said: &[u8]| -> bool {
        while !said.is_empty() {
            let taken = server.read_tls(&mut said);
            if taken.is_err() || server.process_new_packets().is_err() {
                return false;
            }
        }
        true
    };
    let mut flight = samples.begin.clone();
    if chance.below(2) == 0 {
        let other = [22, 3, 3, 0, 5, 21, 3, 3, 0, 2, 2, 40, 20, 3, 3, 0, 1, 1];
        chance.change(&mut flight, &other);
        take(&mut server, &flight);
        assert!(server.is_handshaking(), "nobody has said who they are");
        return;
    }
    let mut client = caller(&samples.keys);
    flight.clear();
    client.write_tls(&mut flight).unwrap();
    assert!(take(&mut server, &flight));
    let mut back = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut back).unwrap();
    }
    let mut back = &back[..];
    while !back.is_empty() {
        client.read_tls(&mut back).unwrap();
        client.process_new_packets().unwrap();
    }
    client.writer().write_all(b"PENSTOCK").unwrap();
    let mut second = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut second).unwrap();
    }
    let proper = second.clone();
    if chance.below(4) > 0 {
        chance.change(&mut second, &proper);
    }
    let is_taken = take(&mut server, &second);
    let mut said = Vec::new();
    let _ = server.reader().read_to_end(&mut said); // what has come so far
    assert!(
        b"PENSTOCK".starts_with(&said),
        "TLS lets through what nobody has said"
    );
    if second == proper {
        assert!(is_taken && !server.is_handshaking() && said == b"PENSTOCK");
    }
}

/// Sends a byte that carries files.
fn send_files(socket: &UnixStream, files: &[OwnedFd]) {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut carried = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        carried.push(SendAncillaryMessage::ScmRights(&files));
    }
    let byte = [std::io::IoSlice::new(&[0])];
    rustix::net::sendmsg(socket, &byte, &mut carried, SendFlags::NOSIGNAL).unwrap();
}

/// A file in memory of this many bytes, sealed or not.
fn file(bytes: u64, is_sealed: bool) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let made = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&made, bytes).unwrap();
    if is_sealed {
        fcntl_add_seals(&made, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    }
    made
}

/// What a server sends where a client expects the memory that both will share.
fn descriptor(chance: &mut Chance) {
    let (one, other) = UnixStream::pair().unwrap();
    let (mut witness, pipe) = std::io::pipe().unwrap();
    let pipe = OwnedFd::from(pipe);
    let right = SEGMENT_BYTES as u64;
    let sent: Vec<(OwnedFd, bool)> = match chance.below(6) {
        0 => Vec::new(),
        1 => vec![(file(right, true), true)],
        2 => vec![(file(right, false), false)],
        3 => vec![(file(right - chance.below(2000) as u64 - 1, true), false)],
        4 => vec![
            (file(right, true), true),
            (pipe.try_clone().unwrap(), false),
        ],
        _ => vec![
            (pipe.try_clone().unwrap(), false),
            (file(right, true), true),
        ],
    };
    drop(pipe);
    let first = sent.first().map(|(_, is_right)| *is_right);
    if sent.is_empty() && chance.below(2) == 0 {
        drop(one);
    } else {
        let files: Vec<_> = sent.into_iter().map(|(file, _)| file).collect();
        send_files(&one, &files);
    }
    let received = receive_file(other.as_fd()).unwrap();
    assert_eq!(received.is_some(), first.is_some());
    let mapped = received.map(|file| Mapping::sent(file, SEGMENT_BYTES).is_ok());
    assert_eq!(mapped, first, "a segment is sealed, and has its length");
    // No descriptor is left: the pipe has no writer any more.
    assert_eq!(witness.read(&mut [0; 1]).unwrap(), 0);
}

/// A packet with its length before it.
fn framed(chance: &mut Chance) -> Vec<u8> {
    let body = [0, 5, 300, 70_000][chance.below(4)];
    let header = Header::Message {
        port: Port::new([1, 2, chance.number()]),
        body,
        has_parcel: chance.below(2) == 0,
    };
    let (packet, _) = Packet::encode(&header, body + chance.below(50)).unwrap();
    let mut bytes = (packet.len() as u32).to_le_bytes().to_vec();
    bytes.extend(packet);
    bytes
}

/// Puts anything into one of the words by which two lanes are kept.
fn spoil_words(segment: &Mapping, chance: &mut Chance) {
    let lane = [0, SEGMENT_BYTES / 2][chance.below(2)];
    let at = lane + 8 * [0, 1, 15, 16, 17, 31][chance.below(6)];
    // SAFETY: within the segment, which is aligned to pages; all use these words as atomics.
    let word = unsafe { &*segment.base().add(at).cast::<AtomicU64>() };
    let seen = word.load(Ordering::SeqCst);
    let number = match chance.below(4) {
        0 => seen.wrapping_add(chance.below(LANE_BYTES + 2) as u64),
        1 => seen.wrapping_sub(chance.below(9) as u64),
        _ => chance.number(),
    };
    word.store(number, Ordering::SeqCst);
}

/// A client that sends packets through a lane, good ones and others, and changes the memory that it
/// shares with the server.
fn lane(chance: &mut Chance) {
    let segment = Mapping::shared(SEGMENT_BYTES).unwrap();
    let shared = || segment.file().unwrap().try_clone_to_owned().unwrap();
    let map = || Mapping::sent(shared(), SEGMENT_BYTES).unwrap();
    let (mut writer, mut reader) = ends(map(), false);
    let words = map();
    let (own, socket) = UnixStream::pair().unwrap();
    for socket in [&own, &socket] {
        socket.set_nonblocking(true).unwrap();
    }
    let (to_client, from_client) = ends(segment, true);
    let stream = Stream::Host(HostStream {
        socket,
        writer: to_client,
        reader: from_client,
    });
    let limits = Limits {
        packet_bytes: PACKET_BYTES,
        kept_bytes: 1 << 20,
        mail_bytes: u64::MAX,
        patience: Duration::from_secs(60),
    };
    let mut server = Connection::new(stream, limits, false);
    let (mut sent, mut came) = (Vec::new(), Vec::new());
    let mut is_honest = true;
    for _ in 0..TURNS {
        match chance.below(12) {
            0..4 => {
                let mut bytes = framed(chance);
                if chance.below(4) == 0 {
                    chance.change(&mut bytes, &[0xff; 40]);
                    is_honest = false;
                }
                match writer.write(&bytes) {
                    Ok(count) if count == bytes.len() => sent.push(bytes),
                    _ => is_honest = false,
                }
            }
            4 if chance.below(3) == 0 => {
                spoil_words(&words, chance);
                is_honest = false;
            }
            5 => {
                let _ = (&own).write(&[0; 300][..chance.below(300)]); // it may be full
            }
            6 if chance.below(4) == 0 => {
                let _ = own.shutdown(std::net::Shutdown::Both); // it may be so already
            }
            7 => {
                let _ = reader.read(&mut Vec::new(), 1 << 16); // it has no more to lose
            }
            8 => {
                if let Err(error) = server.post(vec![1; [10, 100_000][chance.below(2)]]) {
                    return assert_eq!(error.kind, Kind::Peer);
                }
            }
            9 => {
                if let Err(error) = server.move_on() {
                    return assert_eq!(error.kind, Kind::Peer);
                }
            }
            10 => {
                let Stream::Host(host) = &mut server.stream else {
                    return;
                };
                let woken = host.reader.unwatch().and_then(|_| host.hear());
                host.reader.watch();
                if let Err(error) = woken {
                    return assert_eq!(error.kind, Kind::Peer);
                }
            }
            _ => match server.receive(|packet| came.push(packet)) {
                Ok(found) => assert_ne!(found, Found::End, "a lane has no end"),
                Err(error) => {
                    assert!(!is_honest || error.kind == Kind::Peer);
                    break;
                }
            },
        }
    }
    let is_short = |packet: &Vec<u8>| packet.len() <= PACKET_BYTES;
    assert!(came.iter().all(is_short));
    if is_honest {
        let _ = server.receive(|packet| came.push(packet)); // a socket that was shut is an error
        let sent: Vec<_> = sent.iter().map(|bytes| &bytes[4..]).collect();
        assert!(
            came.iter()
                .map(Vec::as_slice)
                .eq(sent.iter().copied().take(came.len()))
        );
    }
    for packet in came {
        if let Ok(Packet { header, payload }) = Packet::decode(packet)
            && let Header::Message { body, .. } = header
        {
            let count = payload.bytes().len();
            assert_eq!(payload.split(body).is_some(), body <= count);
        }
    }
}

/// The kinds of runs, by name.
const KINDS: [&str; 8] = [
    "hello",
    "answer",
    "certificate",
    "address",
    "greeting",
    "handshake",
    "descriptor",
    "lane",
];

/// Runs one seed, and gives the number of its kind.
fn run(samples: &Samples, seed: u64) -> usize {
    let chance = &mut Chance::of(seed);
    let kind = match seed % RARELY {
        0 => 5 + chance.below(3),
        _ => chance.below(5),
    };
    match kind {
        0 => hello(chance),
        1 => answers(chance),
        2 => certificate(samples, chance),
        3 => address(chance),
        4 => {
            if let Ok(greeting) = decode::<Greeting>(&greeting(chance)) {
                assert_eq!(decode(&encode(&greeting).unwrap()), Ok(greeting));
            }
        }
        5 => handshake(samples, chance),
        6 => descriptor(chance),
        _ => lane(chance),
    }
    kind
}

/// Prints how to replay a seed that fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "PENSTOCK_SEED={} cargo test -p penstock-net --lib fuzz",
                self.0
            );
        }
    }
}

#[test]
fn what_comes_from_outside_may_be_anything() {
    let number = |name: &str| {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse::<u64>().unwrap())
    };
    let seeds = match number("PENSTOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PENSTOCK_FUZZ_RUNS").unwrap_or(RUNS),
    };
    let samples = Samples::make();
    let begun = Instant::now();
    let mut runs = [0u64; KINDS.len()];
    for seed in seeds.clone() {
        let replay = Replay(seed);
        runs[run(&samples, seed)] += 1;
        drop(replay);
    }
    let (count, seconds) = (seeds.end - seeds.start, begun.elapsed().as_secs_f64());
    let kinds = KINDS
        .iter()
        .zip(runs)
        .map(|(kind, runs)| format!("{runs} {kind}"));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    println!("{count} runs in {seconds:.0} s: {kinds}");
}
