//! The nodes that are lost or have left, and the nodes that know it; messages that are late.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::task::Waker;

use penstock_engine::{Change, Error, Kind, NodeId, Port};

use super::faults::{Faults, Loss, Moment, Outage, Scope};
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
    losses: Vec<Loss>,
    outages: Vec<Outage>,
    messages: Vec<u64>,
    is_lost: Vec<bool>,
    /// Lost nodes whose code is still to be dropped.
    doomed: Vec<NodeId>,
    /// Outages that have begun, and whose ends are still to be set.
    begun: Vec<Outage>,
    /// The number of outages that are to come or under way.
    left: usize,
    /// How often each link was cut, by its lower and its higher node.
    cuts: HashMap<(NodeId, NodeId), u64>,
    notices: Vec<Notice>,
    known: Vec<Known>,
    /// The latest arrival of the messages from one node to a port of another.
    latest: HashMap<(NodeId, NodeId, Port), Time>,
}

/// A notice tells a node that another has gone, or is back.
struct Notice {
    to: NodeId,
    about: NodeId,
    /// The cuts of their link, if the other is back.
    cuts: Option<u64>,
    is_heard: bool,
}

/// The changes that one node knows, in the order in which it has heard of them.
#[derive(Default)]
struct Known {
    changes: Vec<(NodeId, Change)>,
    absent: HashSet<NodeId>,
    /// The cuts of the links to others, as this node knows.
    cuts: HashMap<NodeId, u64>,
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
            losses: faults.losses.clone(),
            outages: faults.outages.clone(),
            left: faults.outages.len(),
            messages: vec![0; nodes],
            is_lost: vec![false; nodes],
            known: (0..nodes).map(|_| Known::default()).collect(),
            ..State::default()
        };
        let has_losses = !faults.losses.is_empty() || !faults.outages.is_empty();
        Self {
            is_on: has_losses || faults.late_max > Span::ZERO,
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
        self.state.borrow().lost()
    }

    /// The cuts of the link from one node to another as the first knows them, for a message that
    /// it sends now; nothing if it knows that the other is absent.
    pub(super) fn link(&self, from: NodeId, to: NodeId) -> Option<u64> {
        if !self.is_on {
            return Some(0);
        }
        let known = &self.state.borrow().known[from];
        let cuts = known.cuts.get(&to).copied().unwrap_or(0);
        (!known.absent.contains(&to)).then_some(cuts)
    }

    /// Whether a message arrives that was sent over a link after this number of cuts. A node hears
    /// by it that the other is back.
    pub(super) fn arrives(&self, (from, to): (NodeId, NodeId), cuts: Option<u64>) -> bool {
        if !self.is_on {
            return true;
        }
        let mut state = self.state.borrow_mut();
        if state.is_lost[to] || cuts != Some(state.cuts_between(from, to)) {
            return false;
        }
        let pending = |notice: &Notice| (notice.to, notice.about) == (to, from);
        let last = state.notices.iter().rposition(pending);
        let wakers = last.map(|last| state.hear(last)).unwrap_or_default();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
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
            state.fail_if(|other, at| other == node && at == Moment::Message(count));
        }
        !state.is_lost[from] && !state.is_lost[to]
    }

    /// Notes that this many events have happened.
    pub(super) fn note_event(&self, events: u64) {
        if self.is_on {
            let mut state = self.state.borrow_mut();
            state.fail_if(|_, at| at == Moment::Event(events));
        }
    }

    /// A lost node whose code is to be dropped, if there is one.
    pub(super) fn next_doomed(&self) -> Option<NodeId> {
        if !self.is_on {
            return None;
        }
        self.state.borrow_mut().doomed.pop()
    }

    /// An outage that has begun, if there is one.
    pub(super) fn next_outage(&self) -> Option<Outage> {
        if !self.is_on {
            return None;
        }
        self.state.borrow_mut().begun.pop()
    }

    /// Notes that an outage has ended.
    pub(super) fn end_outage(&self) {
        self.state.borrow_mut().left -= 1;
    }

    /// Whether an outage is to come or under way.
    pub(super) fn has_outages(&self) -> bool {
        self.state.borrow().left > 0
    }

    /// The notices that a node has gone: the number of each, and its delay.
    pub(super) fn notices(&self, about: NodeId) -> Vec<(usize, Span)> {
        let nodes = self.state.borrow().is_lost.len();
        let others = (0..nodes).filter(|&node| node != about);
        others.map(|to| self.notice(to, about, false)).collect()
    }

    /// The notices to a node and to all others that are there that their links are back.
    pub(super) fn greetings(&self, node: NodeId) -> Vec<(usize, Span)> {
        let is_lost = self.state.borrow().is_lost.clone();
        let others = (0..is_lost.len()).filter(|&other| other != node && !is_lost[other]);
        let both = others.flat_map(|other| [(node, other), (other, node)]);
        both.map(|(to, about)| self.notice(to, about, true))
            .collect()
    }

    /// The number of a notice that a node has gone or is back, and its delay.
    pub(super) fn notice(&self, to: NodeId, about: NodeId, is_back: bool) -> (usize, Span) {
        let mut state = self.state.borrow_mut();
        let cuts = is_back.then(|| state.cuts_between(to, about));
        state.notices.push(Notice {
            to,
            about,
            cuts,
            is_heard: false,
        });
        let mut random = self.random.borrow_mut();
        let delay = random.below(self.notice_max.as_ps() + 1);
        (state.notices.len() - 1, Span::from_ps(delay))
    }

    /// A node hears of a change, and of those before it.
    pub(super) fn hear(&self, notice: usize) {
        let wakers = self.state.borrow_mut().hear(notice);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A node that was lost is back, and knows nobody yet but itself.
    pub(super) fn revive(&self, node: NodeId) {
        let mut state = self.state.borrow_mut();
        state.is_lost[node] = false;
        let own = (node, state.cuts_between(node, node));
        let others = (0..state.is_lost.len()).filter(|&other| other != node);
        state.known[node] = Known {
            cuts: HashMap::from([own]),
            absent: others.collect(),
            ..Known::default()
        };
        let own = state.notices.iter_mut().filter(|notice| notice.to == node);
        own.for_each(|notice| notice.is_heard = true);
    }

    /// The reason why `node` is no member of the machine, as node `me` knows.
    pub(super) fn absence(&self, me: NodeId, node: NodeId) -> Option<Error> {
        let known = &self.state.borrow().known[me];
        known.absent.contains(&node).then(|| lost(node))
    }

    /// The number of changes that a node knows.
    pub(super) fn known(&self, me: NodeId) -> u64 {
        self.state.borrow().known[me].changes.len() as u64
    }

    /// The change with this number that node `me` knows; if there is none, the waker is kept.
    pub(super) fn look(&self, me: NodeId, nth: usize, waker: &Waker) -> Option<(NodeId, Change)> {
        let known = &mut self.state.borrow_mut().known[me];
        let found = known.changes.get(nth).cloned();
        if found.is_none() {
            known.keep(waker);
        }
        found
    }

    /// The absence of a node as node `me` knows; if it is not absent, the waker is kept.
    pub(super) fn look_for(&self, me: NodeId, node: NodeId, waker: &Waker) -> Option<Error> {
        let known = &mut self.state.borrow_mut().known[me];
        let is_absent = known.absent.contains(&node);
        if !is_absent {
            known.keep(waker);
        }
        is_absent.then(|| lost(node))
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

impl Known {
    fn keep(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|other| other.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}

impl State {
    fn lost(&self) -> Vec<NodeId> {
        let nodes = self.is_lost.iter().enumerate();
        nodes
            .filter_map(|(node, lost)| lost.then_some(node))
            .collect()
    }

    fn cuts_between(&self, one: NodeId, other: NodeId) -> u64 {
        let link = (one.min(other), one.max(other));
        self.cuts.get(&link).copied().unwrap_or(0)
    }

    fn cut(&mut self, one: NodeId, other: NodeId) {
        let link = (one.min(other), one.max(other));
        *self.cuts.entry(link).or_default() += 1;
    }

    /// Begins the losses and outages of nodes that are due at a moment.
    fn fail_if(&mut self, is_due: impl Fn(NodeId, Moment) -> bool) {
        let due = self
            .losses
            .extract_if(.., |loss| is_due(loss.node, loss.at));
        for Loss { node, .. } in due.collect::<Vec<_>>() {
            self.lose(node);
        }
        let due = self.outages.extract_if(.., |outage| {
            let (Scope::Node(node) | Scope::Link(node, _)) = outage.scope;
            is_due(node, outage.at)
        });
        for outage in due.collect::<Vec<_>>() {
            let (Scope::Node(one) | Scope::Link(one, _)) = outage.scope;
            let (Scope::Node(other) | Scope::Link(_, other)) = outage.scope;
            if self.is_lost[one] || self.is_lost[other] {
                self.left -= 1; // nothing is there that could fail
                continue;
            }
            match outage.scope {
                Scope::Link(one, other) => self.cut(one, other),
                Scope::Node(node) => {
                    (0..self.is_lost.len()).for_each(|other| self.cut(node, other));
                    self.lose(node);
                }
            }
            self.begun.push(outage);
        }
    }

    fn lose(&mut self, node: NodeId) {
        if !std::mem::replace(&mut self.is_lost[node], true) {
            self.doomed.push(node);
        }
    }

    /// Has a node hear of a change, and of those before it. Returns whom to wake.
    fn hear(&mut self, last: usize) -> Vec<Waker> {
        let (to, about) = (self.notices[last].to, self.notices[last].about);
        let known = &mut self.known[to];
        let before = self.notices[..=last].iter_mut();
        let (mut has_news, mut is_back) = (false, false);
        for notice in before.filter(|notice| (notice.to, notice.about) == (to, about)) {
            if std::mem::replace(&mut notice.is_heard, true) {
                continue;
            }
            let change = match notice.cuts {
                Some(cuts) => {
                    is_back = true;
                    known.cuts.insert(about, cuts);
                    known.absent.remove(&about);
                    Change::Joined
                }
                None => {
                    known.absent.insert(about);
                    Change::Left(lost(about))
                }
            };
            known.changes.push((about, change));
            has_news = true;
        }
        let mut wakers = match has_news {
            true => std::mem::take(&mut known.wakers),
            false => Vec::new(),
        };
        // The two make a new link together: the other knows that the former has gone.
        let is_other = |notice: &Notice| (notice.to, notice.about) == (about, to);
        let mut left = self.notices[..last].iter();
        let left = left.rposition(|notice| is_other(notice) && notice.cuts.is_none());
        if let Some(left) = left.filter(|_| is_back) {
            wakers.extend(self.hear(left));
        }
        wakers
    }
}
