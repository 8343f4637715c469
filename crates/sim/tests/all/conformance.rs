//! The simulated machine keeps what machines promise, but for what it does not have.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_conformance::{Bench, Case, Form, Held, Need, Seat};
use penstock_engine::{Error, Machine};
use penstock_layout::Share;
use penstock_sim::machine::Layout;
use penstock_sim::machine::{Memory, Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;

/// A client's share, dense and row-major.
struct Line {
    share: Share,
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl Held for Line {
    type Memory = (Share, Memory);

    fn memory(&self) -> (Share, Memory) {
        (self.share.clone(), Some(self.bytes.clone()))
    }

    fn values(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }
}

/// The machine of a preset, with as many clients as I/O nodes or one fewer.
struct Simulated {
    preset: &'static str,
}

fn io_nodes(nodes: usize) -> usize {
    nodes.div_ceil(2)
}

impl Bench for Simulated {
    type Machine = SimNode;
    type Held = Line;

    fn lacks(need: Need) -> Option<&'static str> {
        match need {
            Need::Strides => Some("its memories are dense and row-major"),
            Need::Leaving => Some("its nodes do not leave"),
            Need::WholeBlocks => Some("its disks move parts of blocks"),
            Need::Sums => Some("nobody asks a simulated disk for checksums"),
            Need::BadTargets => Some("its disks can always be opened"),
        }
    }

    fn sizes(&self) -> Vec<usize> {
        vec![1, 2, 6]
    }

    fn run(&self, nodes: usize, case: &Case<Self>) {
        let mut preset = Preset::find(self.preset).unwrap();
        preset.nodes.io_nodes = io_nodes(nodes);
        preset.nodes.clients = nodes - preset.nodes.io_nodes;
        preset.nodes.disks = 2 * preset.nodes.io_nodes;
        let setup = Setup {
            layout: Layout::RandomBlocks,
            slots: 1000,
            slot_bytes: 1000,
            is_disk_free: false,
            seed: nodes as u64,
            is_real: true,
            is_traced: false,
        };
        let simulation = Simulation::new(&preset, &setup).unwrap();
        let ended = simulation.run(|node| (case.program)(Seat::new(Rc::new(node), nodes)));
        assert_eq!(
            ended,
            Ok(()),
            "\"{}\" on {nodes} nodes of {}",
            case.name,
            self.preset
        );
    }

    fn hold(share: &Share, _width: usize, values: &[u8], _form: Form) -> Line {
        Line {
            share: share.clone(),
            bytes: Rc::new(RefCell::new(values.to_vec())),
        }
    }

    fn leave(_machine: &SimNode, _error: &Error) {
        unreachable!("cases in which a node leaves are left out");
    }

    /// Servers are on the I/O nodes, two on each.
    fn servers(machine: &SimNode, nodes: usize) -> (Vec<usize>, usize) {
        let (io_nodes, servers) = (io_nodes(nodes), 2 * io_nodes(nodes));
        let on = |server: &usize| nodes - io_nodes + server % io_nodes == machine.me();
        ((0..servers).filter(on).collect(), servers)
    }
}

/// What the simulated machine does not show.
const LEFT_OUT: [&str; 13] = [
    "who receives from a node that leaves gets an error",
    "what came before a node left is received",
    "other calls go on when a node leaves",
    "who sends to a node that leaves does not hang",
    "who transmits to a node that leaves gets an error",
    "who transmits what a node holds when it leaves gets an error",
    "who gets from a node that leaves gets an error",
    "who puts to a node that leaves gets an error",
    "a node that is gone at once is missed by all",
    "memories lie in any way",
    "disks that move blocks whole say so",
    "disks give the checksums that are asked for",
    "a target that cannot be opened is told of",
];

fn conforms(preset: &'static str) {
    let left_out = penstock_conformance::run(&Simulated { preset });
    let names: Vec<_> = left_out.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, LEFT_OUT);
}

#[test]
fn the_machine_of_kotz_conforms() {
    conforms("tocs97");
}

/// Its system sorts the requests that wait for a disk.
#[test]
fn the_machine_of_vesta_conforms() {
    conforms("sp1-vesta");
}

/// Its calls block: each node moves one message at a time.
#[test]
fn the_machine_of_panda_conforms() {
    conforms("sp2-nas");
}
