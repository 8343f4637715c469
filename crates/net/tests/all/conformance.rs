//! The net machine keeps what machines promise: over Unix sockets and shared memory, over TLS,
//! through proxies that hold bytes up, and between hosts.
//!
//! `PENSTOCK_SEEDS` says how many seeds of proxies there are. Tests of hosts are run on those of
//! `tests/hosts/cluster.py`: `make test-hosts`.

use crate::on_threads;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::common::{Memory, Stores};
use crate::on_threads::CASE_MAX;
use crate::ports::Ports;
use crate::proxy::{Plan, Proxies};
use penstock_conformance::{Bench, Case, Form, Need};
use penstock_engine::{Error, Machine};
use penstock_layout::Share;
use penstock_machines::Node;
use penstock_machines::links::Process;
use penstock_machines::node::pause::Pause;
use penstock_net::address::Address;
use penstock_net::door::{DoorOptions, Guests};
use penstock_net::peer::Peer;
use penstock_net::tls::KeyFiles;
use penstock_net::{Standing, keys, stand};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The host on which the test runs, and on which proxies listen.
const THIS_HOST: &str = "127.0.0.1";
/// The name of that host where there are others.
const LOGIN: &str = "login";
/// The most nodes.
const NODES_MAX: usize = 5;
/// How often a proxy holds up each way of a connection.
const PAUSES: u32 = 20;
/// The ports of the nodes on hosts, a new one for each case.
static PORT: AtomicU16 = AtomicU16::new(20_000);

/// Nodes that are server processes in threads, each connected with all others.
#[derive(Default)]
struct OfSockets {
    /// The directory of keys, if the nodes speak TLS.
    keys: Option<tempfile::TempDir>,
    /// The seed of proxies between the nodes, if there are any.
    proxies: Option<u64>,
    /// The directory in which `cluster.py` says where hosts are, if each node has its own.
    hosts: Option<PathBuf>,
}

/// The name of a node's host.
fn host(node: usize) -> String {
    format!("h{}", node + 1)
}

impl OfSockets {
    /// Nodes that speak TLS.
    fn with_keys() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (place, valid) = (directory.path(), Duration::from_secs(3600));
        keys::make_authority(place, valid).unwrap();
        for server in 0..NODES_MAX {
            let (name, peer) = (format!("server-{server}"), Peer::Server(server));
            // Who calls it through a proxy calls it by the name of the proxy's host.
            let names = [THIS_HOST.to_string(), LOGIN.to_string(), host(server)];
            keys::make(place, &name, &peer, &names, valid).unwrap();
        }
        Self {
            keys: Some(directory),
            ..Self::default()
        }
    }

    /// Where the nodes listen.
    fn addresses(&self, ports: &Ports, nodes: usize, directory: &Path) -> Vec<Address> {
        let on_hosts = PORT.fetch_add(1, Ordering::Relaxed);
        let address = |node: usize| match (&self.keys, &self.hosts) {
            (None, _) => Address::Host(directory.join(format!("{node}.sock"))),
            (Some(_), None) => Address::Remote(THIS_HOST.to_string(), ports.number(node)),
            (Some(_), Some(_)) => Address::Remote(host(node), on_hosts),
        };
        (0..nodes).map(address).collect()
    }

    /// Where the others call the nodes, and the proxies there.
    fn called(&self, addresses: &[Address]) -> (Vec<Address>, Option<Proxies>) {
        let Some(seed) = self.proxies else {
            return (addresses.to_vec(), None);
        };
        let (here, name) = match self.hosts {
            None => (THIS_HOST, THIS_HOST),
            Some(_) => ("0.0.0.0", LOGIN),
        };
        let targets = addresses.iter().map(ToString::to_string).collect();
        let plan = move |server: usize, connection: u64| {
            Plan::slow(seed << 16 | (server as u64) << 8 | connection, PAUSES)
        };
        let proxies = Proxies::start(here, targets, plan);
        let ports = proxies.ports.iter();
        let called = ports.map(|&port| Address::Remote(name.to_string(), port));
        (called.collect(), Some(proxies))
    }
}

/// Lets this thread, and those that it starts, have the network of a node's host.
fn enter(hosts: &Path, node: usize) {
    let said = std::fs::read_to_string(hosts.join(host(node))).unwrap();
    let process = said.split(' ').next().unwrap();
    let network = std::fs::File::open(format!("/proc/{process}/ns/net")).unwrap();
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
}

/// Waits until a node is connected with all others.
fn meet(node: &Node, nodes: usize) {
    let until = Instant::now() + CASE_MAX;
    let others = (0..nodes).filter(|&other| other != node.me());
    for other in others {
        while node.absence(other).is_some() {
            assert!(Instant::now() < until, "node {other} does not come");
            node.block_on(node.wait(Duration::from_millis(1)));
        }
    }
}

impl Bench for OfSockets {
    type Machine = Node;
    type Held = Memory;

    fn lacks(_need: Need) -> Option<&'static str> {
        None
    }

    fn sizes(&self) -> Vec<usize> {
        vec![1, 2, NODES_MAX]
    }

    fn run(&self, nodes: usize, case: &Case<Self>) {
        let (stores, directory) = (Arc::new(Stores::default()), tempfile::tempdir().unwrap());
        let ports = Ports::keep(nodes);
        let addresses = self.addresses(&ports, nodes, directory.path());
        let (called, proxies) = self.called(&addresses);
        let all_there = Arc::new(Barrier::new(nodes));
        let running = Arc::new(AtomicUsize::new(nodes));
        on_threads::run(nodes, case, |me| {
            let keys = self.keys.as_ref().map(|directory| {
                let files = KeyFiles::within(directory.path(), &format!("server-{me}"));
                files.read().unwrap()
            });
            let mut known = called.clone();
            known[me] = addresses[me].clone();
            let options = DoorOptions {
                realm: 7,
                process: me,
                addresses: known.into_iter().map(|address| vec![address]).collect(),
                greeting: Vec::new(),
                keys,
                guests: Guests::All,
                clients_max: 10,
                patience: CASE_MAX,
            };
            let (stores, all_there) = (stores.clone(), all_there.clone());
            let running = running.clone();
            let hosts = self.hosts.clone();
            move || {
                if let Some(hosts) = hosts {
                    enter(&hosts, me);
                }
                let Standing { links, door, .. } = stand(options).unwrap();
                let node = Rc::new(Node::new(me, links, Process::default(), stores));
                meet(&node, nodes);
                all_there.wait();
                // A process that ends leaves, which is no part of the case.
                let end = move |node: &Node| {
                    running.fetch_sub(1, Ordering::SeqCst);
                    let (until, mut pause) = (Instant::now() + CASE_MAX, Pause::default());
                    while running.load(Ordering::SeqCst) > 0 && Instant::now() < until {
                        node.look(&mut pause, |_| ());
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    drop(door);
                };
                (node, end)
            }
        });
        drop(proxies);
    }

    fn hold(share: &Share, width: usize, values: &[u8], form: Form) -> Memory {
        Memory::new(share, width, values, form)
    }

    fn leave(machine: &Node, error: &Error) {
        machine.leave(error);
    }

    fn servers(machine: &Node, nodes: usize) -> (Vec<usize>, usize) {
        (vec![machine.me()], nodes)
    }
}

/// Runs all cases.
fn check(bench: &OfSockets) {
    assert!(penstock_conformance::run(bench).is_empty());
}

/// The seeds of proxies.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|n: String| n.parse().unwrap());
    match number("PENSTOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PENSTOCK_SEEDS").unwrap_or(1),
    }
}

/// Runs all cases through proxies.
fn check_through_proxies(mut bench: OfSockets) {
    for seed in seeds() {
        println!("PENSTOCK_SEED={seed}");
        bench.proxies = Some(seed);
        check(&bench);
    }
}

/// Nodes on hosts.
fn on_hosts() -> OfSockets {
    let hosts = std::env::var_os("PENSTOCK_HOSTS").expect("cluster.py says where hosts are");
    OfSockets {
        hosts: Some(hosts.into()),
        ..OfSockets::with_keys()
    }
}

#[test]
fn sockets_of_a_host_conform() {
    check(&OfSockets::default());
}

#[test]
fn tls_conforms() {
    check(&OfSockets::with_keys());
}

#[test]
fn tls_conforms_though_bytes_come_late_and_in_pieces() {
    check_through_proxies(OfSockets::with_keys());
}

#[test]
#[ignore = "it needs hosts: make test-hosts"]
fn hosts_conform() {
    check(&on_hosts());
}

#[test]
#[ignore = "it needs hosts: make test-hosts"]
fn hosts_conform_though_bytes_come_late_and_in_pieces() {
    check_through_proxies(on_hosts());
}
