//! The machine of threads keeps what machines promise.

use crate::on_threads;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Memory, Stores};
use penstock_conformance::{Bench, Case, Form, Need};
use penstock_engine::{Error, Machine};
use penstock_layout::Share;
use penstock_machines::node::runner::{Looking, Runner, Task};
use penstock_machines::{Node, Threads};

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
        on_threads::run(nodes, case, |me| {
            let (machine, stores) = (machine.clone(), stores.clone());
            move || (Rc::new(machine.node(me, stores)), |_: &Node| ())
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
fn threads_conform() {
    assert!(penstock_conformance::run(&OfThreads).is_empty());
}

/// A runner of a node with a thread of its own, and a task.
fn runner(task: impl FnOnce(Rc<Node>) -> Task) -> Runner {
    let node = Threads::new(1).node(0, Arc::new(Stores::default()));
    Runner::new(node, |node| vec![task(node.clone())], Looking::Always, None).unwrap()
}

fn nothing(_: Rc<Node>) -> Task {
    Box::pin(std::future::ready(()))
}

/// The node's own thread ends with its runner, wherever it is then.
#[test]
fn runners_end_at_any_moment() {
    for nth in 0..3000 {
        let runner = runner(nothing);
        for _ in 0..nth % 3 {
            runner.run(|_| async {}).unwrap();
        }
        if nth % 7 == 0 {
            std::thread::sleep(Duration::from_micros(nth % 400));
        }
    }
}

/// A job for which nobody waits goes on, and so do tasks, also right after others have waited.
#[test]
fn what_nobody_waits_for_goes_on() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let counted = ticks.clone();
    let runner = runner(move |node| {
        Box::pin(async move {
            loop {
                node.wait(Duration::from_millis(1)).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for waits in 0..50 {
        for _ in 0..waits {
            runner.run(|_| async {}).unwrap();
        }
        let job = runner.begin(|node| async move { node.wait(Duration::from_micros(10)).await });
        let before = ticks.load(Ordering::Relaxed);
        while !runner.is_done(&job) || ticks.load(Ordering::Relaxed) == before {
            std::thread::sleep(Duration::from_micros(50));
        }
        runner.end(&job).unwrap();
    }
}
