//! The net machine keeps what machines promise: over Unix sockets and shared memory, and over TLS.

#[path = "../../machines/tests/common/mod.rs"]
mod common;
#[path = "../../machines/tests/common/on_threads.rs"]
mod on_threads;

use std::net::TcpListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use common::{Memory, Stores};
use on_threads::CASE_MAX;
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

/// Nodes that are server processes in threads, each connected with all others.
struct OfSockets {
    /// The directory of keys, if the nodes speak TLS.
    keys: Option<tempfile::TempDir>,
}

impl OfSockets {
    fn addresses(&self, nodes: usize, directory: &Path) -> Vec<Vec<Address>> {
        let ports: Vec<_> = (0..nodes)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let address = |node: usize| match self.keys {
            None => Address::Host(directory.join(format!("{node}.sock"))),
            Some(_) => {
                let port = ports[node].local_addr().unwrap().port();
                Address::Remote("127.0.0.1".to_string(), port)
            }
        };
        (0..nodes).map(|node| vec![address(node)]).collect()
    }
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
        vec![1, 2, 5]
    }

    fn run(&self, nodes: usize, case: &Case<Self>) {
        let (stores, directory) = (Arc::new(Stores::default()), tempfile::tempdir().unwrap());
        let addresses = self.addresses(nodes, directory.path());
        let all_there = Arc::new(Barrier::new(nodes));
        let running = Arc::new(AtomicUsize::new(nodes));
        on_threads::run(nodes, case, |me| {
            let keys = self.keys.as_ref().map(|directory| {
                let files = KeyFiles::within(directory.path(), &format!("server-{me}"));
                files.read().unwrap()
            });
            let options = DoorOptions {
                realm: 7,
                process: me,
                addresses: addresses.clone(),
                greeting: Vec::new(),
                keys,
                guests: Guests::All,
                clients_max: 10,
                patience: CASE_MAX,
            };
            let (stores, all_there) = (stores.clone(), all_there.clone());
            let running = running.clone();
            move || {
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

#[test]
fn sockets_of_a_host_conform() {
    assert!(penstock_conformance::run(&OfSockets { keys: None }).is_empty());
}

#[test]
fn tls_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let (place, valid) = (directory.path(), Duration::from_secs(3600));
    keys::make_authority(place, valid).unwrap();
    for server in 0..5 {
        let (name, peer) = (format!("server-{server}"), Peer::Server(server));
        keys::make(place, &name, &peer, &["127.0.0.1".to_string()], valid).unwrap();
    }
    let bench = OfSockets {
        keys: Some(directory),
    };
    assert!(penstock_conformance::run(&bench).is_empty());
}
