//! The machine of threads keeps what machines promise.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Memory, Stores};
use penstock_conformance::{Bench, Case, Form, Need, Seat};
use penstock_engine::{Error, Kind, Machine};
use penstock_layout::Share;
use penstock_machines::{Node, Threads};

/// Only what hangs takes longer.
const CASE_MAX: Duration = Duration::from_secs(120);

struct OfThreads;

impl Bench for OfThreads {
    type Machine = Node;
    type Held = Memory;

    fn lacks(_need: Need) -> Option<&'static str> {
        None
    }

    fn sizes(&self) -> Vec<usize> {
        vec![1, 2, 5]
    }

    fn run(&self, nodes: usize, case: &Case<Self>) {
        let (machine, stores) = (Threads::new(nodes), Arc::new(Stores::default()));
        let (sender, ends) = mpsc::channel();
        for me in 0..nodes {
            let (machine, stores, sender) = (machine.clone(), stores.clone(), sender.clone());
            let program = case.program;
            std::thread::spawn(move || {
                let node = Rc::new(machine.node(me, stores));
                let run = || node.block_on(program(Seat::new(node.clone(), nodes)));
                let ended = catch_unwind(AssertUnwindSafe(run));
                if ended.is_err() {
                    let error = Error::new(Kind::Peer, "running a case", "it has failed");
                    OfThreads::leave(&node, &error);
                }
                let _ = sender.send(ended.is_ok());
            });
        }
        let ends = (0..nodes).map(|_| ends.recv_timeout(CASE_MAX));
        let ends: Vec<_> = ends.collect();
        let all_ended = ends.iter().all(Result::is_ok);
        assert!(all_ended, "\"{}\" hangs on {nodes} nodes", case.name);
        let all_passed = ends.into_iter().all(|end| end == Ok(true));
        assert!(all_passed, "\"{}\" failed on {nodes} nodes", case.name);
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
fn threads_conform() {
    assert!(penstock_conformance::run(&OfThreads).is_empty());
}
