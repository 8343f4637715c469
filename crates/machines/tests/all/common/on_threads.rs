//! Runs a case on nodes that are threads of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use penstock_conformance::{Bench, Case, Seat};
use penstock_engine::{Error, Kind};
use penstock_machines::Node;

/// Only what hangs takes longer.
pub const CASE_MAX: Duration = Duration::from_secs(120);

/// Runs a case on as many nodes. `of` gives what a thread does to make the node of its number, and
/// then what the node does when its program has ended.
pub fn run<B, S, E>(nodes: usize, case: &Case<B>, of: impl Fn(usize) -> S)
where
    B: Bench<Machine = Node>,
    S: FnOnce() -> (Rc<Node>, E) + Send + 'static,
    E: FnOnce(&Node),
{
    let (sender, ends) = mpsc::channel();
    for me in 0..nodes {
        let (start, sender, program) = (of(me), sender.clone(), case.program);
        std::thread::spawn(move || {
            let (node, end) = start();
            let run = || node.block_on(program(Seat::new(node.clone(), nodes)));
            let ended = catch_unwind(AssertUnwindSafe(run));
            if ended.is_err() {
                let error = Error::new(Kind::Peer, "running a case", "it has failed");
                B::leave(&node, &error);
            }
            end(&node);
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
