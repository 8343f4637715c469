//! The nodes that are lost or have left, and the nodes that know it; messages that are late.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::task::Waker;

use penstock_engine::{Error, Kind, NodeId, Port};

use super::faults::{Faults, Loss, Moment};
use crate::random::Random;
use crate::time::{Span, Time};

/// The stream of the random numbers of faults.
const STREAM: u64 = 5 << 32;

/// The state of the faults of nodes and messages.
pub(crate) struct Losses {
    /// Whether anything of this may happen.
    pub(super) is_on: bool,
    notice_max: Span,
    late_max: Span,
    random: RefCell<Random>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    to_come: Vec<Loss>,
    messages: Vec<u64>,
    is_lost: Vec<bool>,
    /// Lost nodes whose code is still to be dropped.
    doomed: Vec<NodeId>,
    /// The notices under way: the node that hears, and the node that has gone.
    notices: Vec<(NodeId, NodeId)>,
    known: Vec<Known>,
    /// The latest arrival of the messages from one node to a port of another.
    latest: HashMap<(NodeId, NodeId, Port), Time>,
}

/// The departures that one node knows, in the order in which it has heard of them.
#[derive(Default)]
struct Known {
    departures: Vec<NodeId>,
    wakers: Vec<Waker>,
}

/// The error of a node that misses a lost node.
fn lost(node: NodeId) -> Error {
    let cause = format!("node {node} is lost");
    Error::new(Kind::Peer, "working with another node", cause)
}

impl Losses {
    pub(super) fn new(faults: &Faults, seed: u64, nodes: usize) -> Self {
        let state = State {
            to_come: faults.losses.clone(),
            messages: vec![0; nodes],
            is_lost: vec![false; nodes],
            known: (0..nodes).map(|_| Known::default()).collect(),
            ..State::default()
        };
        Self {
            is_on: !faults.losses.is_empty() || faults.late_max > Span::ZERO,
            notice_max: faults.notice_max,
            late_max: faults.late_max,
            random: RefCell::new(Random::of(seed, STREAM)),
            state: RefCell::new(state),
        }
    }

    /// The random numbers of faults.
    pub(super) fn random(&self) -> RefMut<'_, Random> {
        self.random.borrow_mut()
    }

    /// Whether a node is lost.
    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.is_on && self.state.borrow().is_lost[node]
    }

    /// The nodes that are lost.
    pub(super) fn all_lost(&self) -> Vec<NodeId> {
        let state = self.state.borrow();
        let nodes = state.is_lost.iter().enumerate();
        nodes
            .filter_map(|(node, lost)| lost.then_some(node))
            .collect()
    }

    /// Counts a message between two nodes. Returns whether it goes out.
    pub(super) fn passes(&self, from: NodeId, to: NodeId) -> bool {
        if !self.is_on {
            return true;
        }
        let mut state = self.state.borrow_mut();
        state.messages[from] += 1;
        if from != to {
            state.messages[to] += 1;
        }
        for node in [from, to] {
            let count = state.messages[node];
            state.lose_if(|loss| loss.node == node && loss.at == Moment::Message(count));
        }
        !state.is_lost[from] && !state.is_lost[to]
    }

    /// Notes that this many events have happened.
    pub(super) fn note_event(&self, events: u64) {
        if self.is_on {
            let mut state = self.state.borrow_mut();
            state.lose_if(|loss| loss.at == Moment::Event(events));
        }
    }

    /// A lost node whose code is to be dropped, if there is one.
    pub(super) fn next_doomed(&self) -> Option<NodeId> {
        if !self.is_on {
            return None;
        }
        self.state.borrow_mut().doomed.pop()
    }

    /// The notices of a loss: the number of each, and its delay.
    pub(super) fn notices(&self, gone: NodeId) -> Vec<(usize, Span)> {
        let mut state = self.state.borrow_mut();
        let others = (0..state.is_lost.len()).filter(|&node| node != gone);
        let others: Vec<_> = others.collect();
        let mut random = self.random.borrow_mut();
        let notice = |node| {
            state.notices.push((node, gone));
            let delay = Span::from_ps(random.below(self.notice_max.as_ps() + 1));
            (state.notices.len() - 1, delay)
        };
        others.into_iter().map(notice).collect()
    }

    /// A node hears of a departure.
    pub(super) fn hear(&self, notice: usize) {
        let mut state = self.state.borrow_mut();
        let (node, gone) = state.notices[notice];
        state.known[node].departures.push(gone);
        let wakers = std::mem::take(&mut state.known[node].wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The reason why `node` is no member of the machine, as node `me` knows.
    pub(super) fn absence(&self, me: NodeId, node: NodeId) -> Option<Error> {
        let known = &self.state.borrow().known[me];
        known.departures.contains(&node).then(|| lost(node))
    }

    /// The number of departures that a node knows.
    pub(super) fn known(&self, me: NodeId) -> u64 {
        self.state.borrow().known[me].departures.len() as u64
    }

    /// Looks for a departure that `node` knows; if there is none, the waker is kept.
    pub(super) fn look(
        &self,
        node: NodeId,
        waker: &Waker,
        find: impl Fn(&[NodeId]) -> Option<NodeId>,
    ) -> Option<(NodeId, Error)> {
        let known = &mut self.state.borrow_mut().known[node];
        let found = find(&known.departures).map(|gone| (gone, lost(gone)));
        if found.is_none() && !known.wakers.iter().any(|other| other.will_wake(waker)) {
            known.wakers.push(waker.clone());
        }
        found
    }

    /// The arrival of a message that would arrive at `at`; `port` is that of its mailbox, if it has
    /// one.
    pub(super) fn late(&self, (from, to): (NodeId, NodeId), port: Option<Port>, at: Time) -> Time {
        if self.late_max == Span::ZERO {
            return at;
        }
        let delay = self.random.borrow_mut().below(self.late_max.as_ps() + 1);
        let late = at + Span::from_ps(delay);
        let Some(port) = port else {
            return late;
        };
        let mut state = self.state.borrow_mut();
        let latest = state.latest.entry((from, to, port)).or_insert(late);
        *latest = late.max(*latest);
        *latest
    }
}

impl State {
    fn lose_if(&mut self, is_due: impl Fn(&Loss) -> bool) {
        let due = self.to_come.extract_if(.., |loss| is_due(loss));
        for Loss { node, .. } in due.collect::<Vec<_>>() {
            if !std::mem::replace(&mut self.is_lost[node], true) {
                self.doomed.push(node);
            }
        }
    }
}
