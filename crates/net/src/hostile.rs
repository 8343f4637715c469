//! Callers and clients that are not what they should be, at a door with sockets. `fuzz` tries out
//! what they may say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use penstock_engine::version::Version;
use penstock_engine::{Error, Kind, Machine, Opening, Port, Result};
use penstock_machines::links::Process;
use penstock_machines::node::packet::{Header, Packet};
use penstock_machines::node::pause::Pause;
use penstock_machines::{BlockSieve, DeviceId, Medium, Node, Opener, no_sieve};
use rustls::pki_types::ServerName;
use tokio::runtime::Runtime;

use crate::address::Address;
use crate::dismissals::Dismissal;
use crate::door::{DoorOptions, Guests};
use crate::hello::{self, Caller, Hello, Secret, Welcome};
use crate::peer::{Peer, User};
use crate::stream::{Found, Stream};
use crate::tls::{KeyFiles, Keys};
use crate::{dial, join, keys, links::Roster, stand};

/// Only what hangs takes longer.
const WAIT_MAX: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

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

/// A server that listens at a socket and a port, with an authority of its own.
struct Bench {
    directory: tempfile::TempDir,
    node: Node,
    roster: Roster,
    port: u16,
    _door: crate::door::Door,
}

fn user(number: u32) -> Peer {
    Peer::Client(User {
        user: number,
        group: 100,
        groups: vec![7],
    })
}

/// Makes an authority and keys of server 0, server 1 and a user.
fn make_keys(directory: &Path) {
    keys::make_authority(directory, DAY).unwrap();
    let host = ["localhost".to_string(), "127.0.0.1".to_string()];
    for server in [0, 1] {
        let (name, peer) = (format!("server-{server}"), Peer::Server(server));
        keys::make(directory, &name, &peer, &host, DAY).unwrap();
    }
    keys::make(directory, "user", &user(1000), &[], DAY).unwrap();
}

fn read_keys(directory: &Path, holder: &str) -> Keys {
    KeyFiles::within(directory, holder).read().unwrap()
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

impl Bench {
    fn new(guests: Guests, patience: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        make_keys(directory.path());
        let addresses = vec![
            Address::Host(directory.path().join("socket")),
            Address::Remote("127.0.0.1".to_string(), 0), // any port
        ];
        // The second server is never there.
        let other = vec![Address::Host(directory.path().join("other"))];
        let standing = stand(DoorOptions {
            realm: 5,
            process: 0,
            addresses: vec![addresses, other],
            greeting: b"secret".to_vec(),
            keys: Some(read_keys(directory.path(), "server-0")),
            guests,
            clients_max: 2000,
            patience,
        })
        .unwrap();
        let process = Process::default();
        Self {
            directory,
            node: Node::new(0, standing.links, process, Arc::new(NoStores)),
            roster: standing.roster,
            port: standing.door.ports()[0],
            _door: standing.door,
        }
    }

    fn open() -> Self {
        Self::new(Guests::All, WAIT_MAX)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn remote(&self) -> Address {
        Address::Remote("127.0.0.1".to_string(), self.port)
    }

    /// Lets the node look until something is true.
    fn until(&self, mut is_true: impl FnMut(&Self) -> bool) {
        let (until, mut pause) = (Instant::now() + WAIT_MAX, Pause::default());
        while !is_true(self) {
            assert!(Instant::now() < until, "it does not come true");
            self.node.look(&mut pause, |_| ());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Dials as a caller with these keys.
    fn dial(&self, address: &Address, hello: &Hello, keys: Option<&Keys>) -> Result<Welcome> {
        let dialled = runtime().block_on(dial::dial(address, hello, keys));
        dialled.map(|(welcome, _stream)| welcome)
    }

    /// The ways to call: by the socket, and from another host.
    fn ways(&self) -> [(Address, Option<Keys>); 2] {
        let keys = read_keys(self.directory.path(), "user");
        let host = Address::Host(self.socket());
        [(host, None), (self.remote(), Some(keys))]
    }

    /// Comes in as a client.
    fn come(&self, (address, keys): &(Address, Option<Keys>)) -> (usize, Stream) {
        let called = runtime().block_on(dial::dial(address, &client_hello(), keys.as_ref()));
        let (welcome, stream) = called.unwrap();
        self.until(|bench| is_member(&bench.node, welcome.node));
        (welcome.node, stream)
    }

    /// An honest client is let in, and heard.
    fn check_honest(&self) {
        let addresses = [Address::Host(self.socket())];
        let joined = join(&addresses, None, WAIT_MAX, Arc::new(|_| {})).unwrap();
        assert_eq!(joined.welcomes[0].as_ref().unwrap().greeting, b"secret");
        assert!(joined.welcomes[1].is_err());
        let node = joined.node;
        self.until(|bench| bench.roster.peer(node).is_some() && is_member(&bench.node, node));
        drop(joined);
        self.until(|bench| bench.roster.peer(node).is_none());
    }
}

fn is_member(node: &Node, other: usize) -> bool {
    Machine::absence(node, other).is_none()
}

fn client_hello() -> Hello {
    Hello {
        caller: Caller::Client(Secret::new().unwrap()),
        realm: None,
    }
}

/// A hello as it goes over a Unix socket.
fn spoken(hello: &Hello) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sent = hello::send(&mut bytes, hello, true);
    sent.now_or_never().unwrap().unwrap();
    bytes
}

/// What comes back until the other end closes; nothing else may be said.
fn answer(mut stream: impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said); // a reset is an end, too
    said
}

#[test]
fn who_does_not_speak_properly_hears_nothing() {
    let bench = Bench::open();
    let hello = spoken(&client_hello());
    let mut wrong_length = hello.clone();
    wrong_length[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut wrong_word = hello.clone();
    let end = wrong_word.len();
    wrong_word[20..end].fill(0xff);
    let mut other_version = hello.clone();
    let version = Version {
        major: 99,
        minor: 0,
    };
    other_version[8..16].copy_from_slice(&version.word().to_le_bytes());
    for said in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        hello[..hello.len() - 1].to_vec(),
        hello[..5].to_vec(),
        Vec::new(),
        wrong_length,
        wrong_word,
        other_version,
    ] {
        let mut host = UnixStream::connect(bench.socket()).unwrap();
        host.write_all(&said).unwrap();
        host.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(answer(host), b"", "over the socket: {said:?}");
        let mut remote = TcpStream::connect(("127.0.0.1", bench.port)).unwrap();
        let _ = remote.write_all(&said);
        let _ = remote.shutdown(std::net::Shutdown::Write);
        let answer = answer(remote);
        assert!(answer.len() <= 7, "an alert of TLS at most: {answer:?}");
    }
    bench.check_honest();
}

#[test]
fn who_is_silent_keeps_nobody_waiting() {
    let bench = Bench::open();
    let silent: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(bench.socket()).unwrap())
        .collect();
    let slow: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(("127.0.0.1", bench.port)).unwrap())
        .collect();
    bench.check_honest();
    drop((silent, slow));
}

#[test]
fn certificates_decide_who_is_there() {
    let bench = Bench::open();
    let place = bench.directory.path();
    let is_in = |keys: &Keys, hello: &Hello| bench.dial(&bench.remote(), hello, Some(keys));
    let welcome = is_in(&read_keys(place, "user"), &client_hello()).unwrap();
    assert_eq!((welcome.realm, welcome.process), (5, 0));
    bench.until(|bench| bench.roster.peer(welcome.node).is_none());
    // Those of another authority are nobody's.
    let other = tempfile::tempdir().unwrap();
    make_keys(other.path());
    let files = KeyFiles {
        authority: place.join("authority.pem"),
        ..KeyFiles::within(other.path(), "user")
    };
    assert!(is_in(&files.read().unwrap(), &client_hello()).is_err());
    assert!(is_in(&read_keys(other.path(), "user"), &client_hello()).is_err());
    // An expired one, and one that names nobody.
    keys::make(place, "late", &user(1), &[], Duration::ZERO).unwrap();
    std::thread::sleep(Duration::from_millis(1100)); // certificates count seconds
    assert!(is_in(&read_keys(place, "late"), &client_hello()).is_err());
    // A user is no server, a server no user, and one server not another.
    let server = |number| Hello {
        caller: Caller::Server(number),
        realm: Some(5),
    };
    assert!(is_in(&read_keys(place, "user"), &server(1)).is_err());
    assert!(is_in(&read_keys(place, "server-1"), &client_hello()).is_err());
    assert!(is_in(&read_keys(place, "server-1"), &server(0)).is_err());
    assert!(is_in(&read_keys(place, "server-1"), &server(1)).is_ok());
    // Other servers than those that are meant.
    let mut hello = client_hello();
    hello.realm = Some(6);
    let refused = is_in(&read_keys(place, "user"), &hello).unwrap_err();
    assert_eq!(refused.kind, Kind::Mismatch);
    // Without keys nothing is said over the network.
    assert!(bench.dial(&bench.remote(), &client_hello(), None).is_err());
    bench.check_honest();
}

/// A client refuses a server that shows the keys of a user, and a name that is not the server's.
#[test]
fn clients_look_who_answers() {
    let bench = Bench::open();
    let place = bench.directory.path();
    let keys = read_keys(place, "user");
    let address = Address::Remote("localhost".to_string(), bench.port);
    assert!(bench.dial(&address, &client_hello(), Some(&keys)).is_ok());
    let name = ServerName::try_from("example.org").unwrap();
    let mut tls = rustls::ClientConnection::new(keys.client.clone(), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", bench.port)).unwrap();
    assert!(
        tls.complete_io(&mut socket).is_err(),
        "it is not example.org"
    );
    let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = impostor.local_addr().unwrap().port();
    let config = keys.server.clone();
    let accepted = std::thread::spawn(move || {
        let (mut socket, _) = impostor.accept().unwrap();
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        let _ = tls.complete_io(&mut socket);
    });
    let address = Address::Remote("127.0.0.1".to_string(), port);
    assert!(bench.dial(&address, &client_hello(), Some(&keys)).is_err());
    accepted.join().unwrap();
}

/// What was recorded of a connection opens no second one.
#[test]
fn what_is_said_again_is_refused() {
    let bench = Bench::open();
    let hello = client_hello();
    let host = Address::Host(bench.socket());
    let runtime = runtime();
    let (welcome, stream) = runtime.block_on(dial::dial(&host, &hello, None)).unwrap();
    bench.until(|bench| is_member(&bench.node, welcome.node));
    let again = bench.dial(&host, &hello, None).unwrap_err();
    assert_eq!(again.kind, Kind::Exists, "{again}");
    drop(stream);
    bench.until(|bench| bench.roster.clients() == 0);
    // A recorded connection of TLS.
    let keys = read_keys(bench.directory.path(), "user");
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut tls = rustls::ClientConnection::new(keys.client, name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", bench.port)).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut recorded = Recorded {
        socket: &mut socket,
        sent: Vec::new(),
    };
    while tls.is_handshaking() {
        tls.complete_io(&mut recorded).unwrap();
    }
    tls.writer().write_all(&spoken(&client_hello())).unwrap();
    tls.complete_io(&mut recorded).unwrap();
    let sent = recorded.sent;
    bench.until(|bench| bench.roster.clients() == 1);
    let mut replay = TcpStream::connect(("127.0.0.1", bench.port)).unwrap();
    let _ = replay.write_all(&sent);
    let _ = replay.shutdown(std::net::Shutdown::Write);
    answer(replay);
    assert_eq!(bench.roster.clients(), 1, "the replay is nobody");
    bench.check_honest();
}

struct Recorded<'a> {
    socket: &'a mut TcpStream,
    sent: Vec<u8>,
}

impl Read for Recorded<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.socket.read(into)
    }
}

impl Write for Recorded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.socket.write(bytes)?;
        self.sent.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn only_some_may_come() {
    let own = rustix::process::getuid().as_raw();
    let none = Guests::Only {
        users: Vec::new(),
        groups: Vec::new(),
    };
    let bench = Bench::new(none, WAIT_MAX);
    // The user of the server may always come.
    bench.check_honest();
    let keys = read_keys(bench.directory.path(), "user");
    assert_ne!(own, 1000);
    assert!(
        bench
            .dial(&bench.remote(), &client_hello(), Some(&keys))
            .is_err()
    );
    bench.until(|bench| {
        let mut all = bench.roster.dismissals();
        all.any(|counted| counted == (Dismissal::NotAdmitted, 1))
    });
    let some = Guests::Only {
        users: Vec::new(),
        groups: vec![7],
    };
    let bench = Bench::new(some, WAIT_MAX);
    let keys = read_keys(bench.directory.path(), "user");
    assert!(
        bench
            .dial(&bench.remote(), &client_hello(), Some(&keys))
            .is_ok()
    );
}

/// A client that goes as soon as it has said who it is keeps no place.
#[test]
fn clients_that_do_not_wait_for_an_answer_leave_no_trace() {
    let bench = Bench::open();
    for _ in 0..100 {
        let mut socket = UnixStream::connect(bench.socket()).unwrap();
        socket.write_all(&spoken(&client_hello())).unwrap();
    }
    bench.check_honest(); // the last of them has been heard
    bench.until(|bench| bench.roster.clients() == 0);
}

#[test]
fn a_thousand_clients_come_at_once() {
    let bench = Bench::open();
    let socket = bench.socket();
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let socket = socket.clone();
            std::thread::spawn(move || {
                let runtime = runtime();
                let address = Address::Host(socket);
                let calls = (0..100).map(|_| {
                    let address = address.clone();
                    async move {
                        let begun = Instant::now();
                        loop {
                            match dial::dial(&address, &client_hello(), None).await {
                                // On a machine that is busy the last of them may not be heard in
                                // time, and call again.
                                Err(error)
                                    if error.cause.contains("no answer")
                                        && begun.elapsed() < WAIT_MAX => {}
                                called => break called.unwrap(),
                            }
                        }
                    }
                });
                runtime.block_on(futures::future::join_all(calls))
            })
        })
        .collect();
    bench.until(|_| threads.iter().all(std::thread::JoinHandle::is_finished));
    let joined: Vec<_> = threads
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    bench.until(|bench| {
        let nodes = joined.iter().map(|(welcome, _)| welcome.node);
        nodes.into_iter().all(|node| is_member(&bench.node, node))
    });
    bench.until(|bench| bench.roster.clients() == 1000);
    drop(joined);
    bench.until(|bench| bench.roster.clients() == 0);
    bench.check_honest();
}

/// A client that takes nothing is cut off after a while, and so is one that sends what is no
/// packet, or too much.
#[test]
fn clients_that_misbehave_are_cut_off() {
    let bench = Bench::new(Guests::All, Duration::from_millis(300));
    for way in bench.ways() {
        let is_gone = |node: usize| bench.until(|bench| bench.roster.peer(node).is_none());
        let port = Port::new([1, 2, 3]);
        let (deaf, _stream) = bench.come(&way);
        while is_member(&bench.node, deaf) {
            let body = vec![0; 1 << 20];
            let sent = bench.node.send(deaf, port, body, None);
            let _ = bench.node.block_on(sent);
            std::thread::sleep(Duration::from_millis(1));
        }
        is_gone(deaf);
        for said in [vec![0xff; 4], [vec![9, 0, 0, 0], vec![0xff; 9]].concat()] {
            let (node, mut stream) = bench.come(&way);
            assert_eq!(stream.write(&said).unwrap(), said.len());
            stream.flush().unwrap();
            is_gone(node);
        }
    }
    bench.check_honest();
    let [deaf, overlong, nonsense] = [
        &[Dismissal::Stuck, Dismissal::Backlog][..],
        &[Dismissal::Overlong],
        &[Dismissal::Nonsense],
    ]
    .map(|reasons| {
        let all = bench.roster.dismissals();
        let all = all.filter(|(reason, _)| reasons.contains(reason));
        all.map(|(_, count)| count).sum::<u64>()
    });
    assert_eq!((deaf, overlong, nonsense), (2, 2, 2));
}

/// What has come while others had their turn is taken, though no socket tells of it any more.
#[test]
fn all_of_a_flood_arrives() {
    const PACKETS: usize = 60;
    let bench = Bench::open();
    for way in bench.ways() {
        let (node, mut stream) = bench.come(&way);
        let port = Port::new([1, 2, 3]);
        let flood = packet(port, 100_000).repeat(PACKETS);
        let mut sent = 0;
        let (mut received, mut pause) = (0, Pause::default());
        let until = Instant::now() + WAIT_MAX;
        while received < PACKETS {
            assert!(
                Instant::now() < until,
                "{received} of {PACKETS} packets came"
            );
            if sent < flood.len() {
                sent += stream.write(&flood[sent..]).unwrap();
            }
            stream.flush().unwrap();
            let take = async {
                while bench.node.receive(port).now_or_never().is_some() {
                    received += 1;
                }
            };
            bench.node.look(&mut pause, |_| ());
            take.now_or_never().unwrap();
        }
        drop(stream);
        bench.until(|bench| bench.roster.peer(node).is_none());
    }
}

/// A packet as it goes over a stream, with its length before it.
fn packet(port: Port, body: usize) -> Vec<u8> {
    let header = Header::Message {
        port,
        body,
        has_parcel: false,
    };
    let (packet, _) = Packet::encode(&header, body).unwrap();
    let mut bytes = (packet.len() as u32).to_le_bytes().to_vec();
    bytes.extend(packet);
    bytes
}

/// A certificate counts when a connection begins. One that expires later ends none.
#[test]
fn a_certificate_that_expires_ends_no_connection() {
    let bench = Bench::open();
    let runtime = runtime();
    let dial = |keys: &Keys| {
        let (address, hello) = (bench.remote(), client_hello());
        runtime.block_on(dial::dial(&address, &hello, Some(keys)))
    };
    // On a machine that is busy it may take a while to come in.
    let come = |seconds: u64| {
        let (place, name) = (bench.directory.path(), format!("brief-{seconds}"));
        keys::make(place, &name, &user(1), &[], Duration::from_secs(seconds)).unwrap();
        let keys = read_keys(place, &name);
        dial(&keys).ok().map(|called| (keys, called))
    };
    let (keys, (welcome, mut stream)) = [2, 8, 32].into_iter().find_map(come).unwrap();
    bench.until(|bench| is_member(&bench.node, welcome.node));
    bench.until(|_| dial(&keys).is_err());
    let port = Port::new([1, 2, 3]);
    let said = packet(port, 10);
    assert_eq!(stream.write(&said).unwrap(), said.len());
    stream.flush().unwrap();
    bench.until(|bench| bench.node.receive(port).now_or_never().is_some());
    let sent = bench.node.send(welcome.node, port, vec![5; 10], None);
    bench.node.block_on(sent).unwrap();
    let mut back = Vec::new();
    bench.until(|_| {
        stream.read(&mut back, said.len()).unwrap();
        back.len() == said.len()
    });
    assert_eq!(back[back.len() - 10..], [5; 10]);
}

/// A client that takes what is for it bit by bit is not cut off, however long that lasts.
#[test]
fn clients_may_be_slow() {
    const BYTES: usize = 6 << 20;
    const STEP: usize = 128 << 10;
    let patience = Duration::from_secs(10);
    let bench = Bench::new(Guests::All, patience);
    let mut clients: Vec<_> = bench
        .ways()
        .iter()
        .map(|way| {
            let (node, stream) = bench.come(way);
            let sent = bench
                .node
                .send(node, Port::new([1, 2, 3]), vec![7; BYTES], None);
            sent.now_or_never().unwrap().unwrap(); // what does not go at once is kept
            (node, stream, Vec::new())
        })
        .collect();
    let (begun, mut steps) = (Instant::now(), 0);
    while clients.iter().any(|(_, _, came)| came.len() < BYTES) {
        assert!(begun.elapsed() < WAIT_MAX, "it does not come");
        let step = Instant::now();
        steps += 1;
        for (_, stream, came) in &mut clients {
            while came.len() < (steps * STEP).min(BYTES)
                && stream.read(came, STEP).unwrap() == Found::Bytes
            {}
        }
        // Longer than the patience in all, and never as long between two steps.
        while step.elapsed() < Duration::from_millis(250) {
            let mut pause = Pause::default();
            bench.node.look(&mut pause, |_| ());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(begun.elapsed() > patience);
    for (node, _, came) in clients {
        assert!(is_member(&bench.node, node));
        assert!(came[100..].iter().all(|&byte| byte == 7));
    }
}

/// A client waits for a server that has nothing to say, but not for one that has stopped.
#[test]
fn a_server_without_a_sign_of_life_is_given_up() {
    let patience = Duration::from_secs(2);
    let bench = Bench::open();
    for (address, keys) in bench.ways() {
        let joined = join(&[address], keys.as_ref(), patience, Arc::new(|_| {})).unwrap();
        let (links, process) = (joined.links, Process::default());
        let node = Node::new(joined.node, links, process, Arc::new(NoStores));
        let (begun, mut pause) = (Instant::now(), Pause::default());
        while begun.elapsed() < 2 * patience {
            bench.node.look(&mut pause, |_| ());
            node.look(&mut pause, |_| ());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Machine::absence(&node, 0), None);
        let until = Instant::now() + WAIT_MAX;
        let error = loop {
            assert!(Instant::now() < until, "the server is not given up");
            node.look(&mut pause, |_| ());
            if let Some(error) = Machine::absence(&node, 0) {
                break error;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(error.cause.contains("no sign of life"), "{error}");
    }
}
