//! A k x k torus has wormhole routing, first along the row and then along the column, each the
//! shorter way round (Kotz, TR94-226 and TOCS 1997, section 4.1: 6 x 6, 200e6 bytes/s, 20 ns a
//! router).
//!
//! A message is a worm. Its head takes one link after another, a router's latency apart, and waits
//! where a link is taken; its body lies in the links behind, and keeps them until its tail has
//! passed. A router holds as much of the worm as a link carries in a router's latency (a flit: 4
//! bytes at 200e6 bytes/s and 20 ns), so a long worm keeps its whole path, and a short one its last
//! few links.
//!
//! ```text
//! node 7 to node 9        injection   link 7>8   link 8>9   ejection
//! 8 KB, nothing in the way   0 ns       20 ns      40 ns      60 ns    head
//!                       40,960 ns   40,980 ns  41,000 ns  41,020 ns    tail: the arrival
//! ```
//!
//! [`Contention::Exact`] reserves every link of the path. Messages take links in the order in which
//! they are handed over, except that a message may use the last idle gap of a link when the whole
//! worm passes within it. So only the order of two heads that meet is approximate: a link always
//! carries one worm at a time. Deadlock, and the virtual channels that prevent it, are not
//! modelled.
//!
//! [`Contention::Stochastic`] estimates contention, as Proteus's "modeled" network does. Injection
//! and ejection are reserved. At each link between routers the head waits
//! - with a probability that is the link's utilisation in the last window by worms that came to it
//!   another way (those that came the same way are in a row already), counting the time for which
//!   they kept it, blocked or not;
//! - for what is left of the worm in its way, uniformly drawn: a mean of `sum of squared times / (2
//!   * sum of times)`;
//! - but not when the last of those worms went to the same node: the ejection holds that worm,
//!   and this head waits for the ejection at the end anyhow.
//!
//! Of several heads that wait for one link the estimate sees one, so on links that are near
//! saturation it is up to a tenth too quick; `tests/network_contention.rs` measures the difference.
//!
//! A message costs time in proportion to its path, and allocates nothing. Floating point is used
//! only for sums, products and quotients, so runs agree on every machine.

use serde::{Deserialize, Serialize};

use super::Delivery;
use super::load::{LINKS_PER_NODE, Load};
use crate::error::{Check, ParameterError};
use crate::random::Random;
use crate::time::{Interval, Span, Time};

/// The parameters of a torus, in a preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorusParameters {
    /// The number of nodes on a side.
    pub side: u32,
    /// The rate of a link, in each direction.
    pub bytes_per_second: u64,
    /// The latency from one link to the next.
    pub router_latency_ns: f64,
    /// The model of contention.
    pub contention: Contention,
    /// The window over which the stochastic mode looks back.
    pub window_us: f64,
}

/// The model of contention for links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contention {
    /// Each link of the path is reserved.
    Exact,
    /// Heads wait by chance, by the recent utilisation of links.
    Stochastic,
}

#[derive(Clone, Debug)]
pub struct Torus {
    side: u32,
    bytes_per_second: u64,
    router_latency: Span,
    contention: Contention,
    window: Span,
    random: Random,
    /// The links of each node: injection, ejection, then the ways out: +x, -x, +y, -y.
    links: Vec<Link>,
    /// The links of one path, and the time when the head takes each: scratch space.
    path: Vec<u32>,
    heads: Vec<Time>,
}

const INJECTION: u32 = 0;
const EJECTION: u32 = 1;
const WAYS: [[u32; 2]; 2] = [[2, 3], [4, 5]]; // x and y; forwards and backwards

/// A link is one direction between two routers, or between a node and its router.
#[derive(Clone, Debug, Default)]
struct Link {
    free_at: Time,
    /// The last known idle time before `free_at`.
    gap: Interval,
    load: Load,
}

impl Torus {
    /// Makes an idle network. Only the stochastic mode uses `random`.
    ///
    /// # Errors
    /// When a count or rate is 0, or a latency is no length of time.
    pub fn new(parameters: &TorusParameters, random: Random) -> Result<Torus, ParameterError> {
        let check = Check { part: "torus" };
        check.positive("side", parameters.side.into())?;
        check.that(parameters.side <= 1024, || {
            format!("side is {}", parameters.side)
        })?;
        check.positive("bytes_per_second", parameters.bytes_per_second)?;
        for (what, length) in [
            ("router_latency_ns", parameters.router_latency_ns),
            ("window_us", parameters.window_us),
        ] {
            check.duration(what, length)?;
            check.that(length >= 0.001, || format!("{what} is {length}"))?;
        }
        let links = parameters.side * parameters.side * LINKS_PER_NODE;
        let path_max = parameters.side as usize + 2;
        Ok(Torus {
            side: parameters.side,
            bytes_per_second: parameters.bytes_per_second,
            router_latency: Span::from_ns_f64(parameters.router_latency_ns),
            contention: parameters.contention,
            window: Span::from_us_f64(parameters.window_us),
            random,
            links: vec![Link::default(); links as usize],
            path: Vec::with_capacity(path_max),
            heads: Vec::with_capacity(path_max),
        })
    }

    pub fn nodes(&self) -> u32 {
        self.side * self.side
    }

    /// The time when the port of `node` can send again.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn sender_free_at(&self, node: u32) -> Time {
        self.links[(node * LINKS_PER_NODE + INJECTION) as usize].free_at
    }

    /// The number of links between routers that a message passes.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let along = |from: u32, to: u32| from.abs_diff(to).min(self.side - from.abs_diff(to));
        along(from % self.side, to % self.side) + along(from / self.side, to / self.side)
    }

    /// Sends `bytes` from `from` to `to`, which may be the sender itself, at `now`.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn deliver(&mut self, now: Time, from: u32, to: u32, bytes: u64) -> Delivery {
        assert!(
            from.max(to) < self.nodes(),
            "node {} of {}",
            from.max(to),
            self.nodes()
        );
        let span = Span::of_bytes(bytes, self.bytes_per_second);
        self.find_path(from, to);
        match self.contention {
            Contention::Exact => self.reserve(now, span),
            Contention::Stochastic => self.estimate(now, span),
        }
        let last = self.path.len() - 1;
        let sender = Interval {
            start: self.heads[0],
            end: self.tail(0, span),
        };
        let receiver = Interval::starting(self.heads[last], span);
        Delivery {
            arrival: receiver.end,
            sender,
            receiver,
        }
    }

    /// Puts the links from `from` to `to` into `path`. Halfway round, nodes at even places go
    /// forwards and nodes at odd places backwards, so that both ways are used.
    fn find_path(&mut self, from: u32, to: u32) {
        let side = self.side;
        let mut at = [from % side, from / side];
        let target = [to % side, to / side];
        let link = |at: [u32; 2], kind: u32| (at[1] * side + at[0]) * LINKS_PER_NODE + kind;
        self.path.clear();
        self.path.push(link(at, INJECTION));
        for axis in 0..2 {
            let forwards = (target[axis] + side - at[axis]) % side;
            let goes_forwards = match (2 * forwards).cmp(&side) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => at[axis].is_multiple_of(2),
                std::cmp::Ordering::Greater => false,
            };
            let (hops, step) = if goes_forwards {
                (forwards, 1)
            } else {
                (side - forwards, side - 1)
            };
            for _ in 0..hops {
                self.path
                    .push(link(at, WAYS[axis][usize::from(!goes_forwards)]));
                at[axis] = (at[axis] + step) % side;
            }
        }
        self.path.push(link(at, EJECTION));
    }

    /// The time when the tail has passed the link at `index` of the path: when the head has gone on
    /// by the worm's length or, if the rest of the path is shorter, when the body runs out at its
    /// end.
    fn tail(&self, index: usize, span: Span) -> Time {
        let last = self.path.len() - 1;
        let flits = span.as_ps().div_ceil(self.router_latency.as_ps());
        match usize::try_from(flits)
            .ok()
            .and_then(|flits| index.checked_add(flits))
        {
            Some(ahead) if ahead <= last => self.heads[ahead],
            _ => {
                self.heads[last] + span.saturating_sub(self.router_latency * (last - index) as u64)
            }
        }
    }

    /// Sends the head along the path, and keeps each link until the tail has passed (exact mode).
    fn reserve(&mut self, now: Time, span: Span) {
        // The head first uses idle gaps; if the worm then stays too long in one, the head goes
        // without.
        self.send_head(now, span, true);
        let fits = (0..self.path.len()).all(|index| {
            let link = &self.links[self.path[index] as usize];
            self.heads[index] >= link.free_at || self.tail(index, span) <= link.gap.end
        });
        if !fits {
            self.send_head(now, span, false);
        }
        for index in 0..self.path.len() {
            let taken = Interval {
                start: self.heads[index],
                end: self.tail(index, span),
            };
            self.links[self.path[index] as usize].take(taken, now);
        }
    }

    fn send_head(&mut self, now: Time, span: Span, use_gaps: bool) {
        self.heads.clear();
        let mut head = now;
        for (index, &link) in self.path.iter().enumerate() {
            let link = &self.links[link as usize];
            let ready = if index == 0 {
                now
            } else {
                head + self.router_latency
            };
            head = link.next_free(ready, span, use_gaps);
            self.heads.push(head);
        }
    }

    /// Reserves both ends like [`reserve`](Self::reserve), and waits by chance between (stochastic
    /// mode).
    fn estimate(&mut self, now: Time, span: Span) {
        let (first, last) = (self.path[0] as usize, self.path.len() - 1);
        let (ejection, target) = (self.path[last] as usize, self.path[last] / LINKS_PER_NODE);
        self.heads.clear();
        let mut head = now.max(self.links[first].free_at);
        self.heads.push(head);
        for pair in self.path[..last].windows(2) {
            let origin = pair[0] % LINKS_PER_NODE;
            let load = &mut self.links[pair[1] as usize].load;
            load.slide(now, self.window);
            head += self.router_latency;
            if load.holder(origin).is_some_and(|holder| holder != target) {
                head += load.wait(origin, now, self.window, &mut self.random);
            }
            self.heads.push(head);
        }
        head = self.links[ejection].next_free(head + self.router_latency, span, true);
        self.heads.push(head);
        self.links[ejection].take(Interval::starting(head, span), now);
        self.links[first].free_at = self.tail(0, span);
        // A link is busy for as long as the worm lies in it, blocked or not.
        for index in 1..last {
            let origin = self.path[index - 1] % LINKS_PER_NODE;
            let kept = self.tail(index, span).saturating_since(self.heads[index]);
            self.links[self.path[index] as usize]
                .load
                .add(origin, target, kept);
        }
    }
}

impl Link {
    /// The first moment from `ready` on when the link is free for `span`, also in its gap if
    /// `use_gap`.
    fn next_free(&self, ready: Time, span: Span, use_gap: bool) -> Time {
        let in_gap = ready.max(self.gap.start);
        match use_gap && in_gap + span <= self.gap.end {
            true => in_gap,
            false => ready.max(self.free_at),
        }
    }

    /// Marks the link as taken, after all other worms or within the gap. Of two gaps the longer one
    /// is kept, unless it is over.
    fn take(&mut self, taken: Interval, now: Time) {
        let longer = |a: Interval, b: Interval| if b.span() > a.span() { b } else { a };
        if taken.start >= self.free_at {
            let behind = Interval {
                start: self.free_at.max(now).min(taken.start),
                end: taken.start,
            };
            let gap = if self.gap.end > now {
                self.gap
            } else {
                Interval::empty(now)
            };
            self.gap = longer(gap, behind);
            self.free_at = taken.end;
        } else {
            let before = Interval {
                start: self.gap.start,
                end: taken.start,
            };
            let after = Interval {
                start: taken.end,
                end: self.gap.end,
            };
            self.gap = longer(before, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts;
    use super::*;

    fn torus(contention: Contention) -> Torus {
        let parameters = TorusParameters {
            contention,
            ..parts::kotz_torus()
        };
        Torus::new(&parameters, Random::new(1)).unwrap()
    }

    fn ns(count: u64) -> Time {
        Time::ZERO + Span::from_ns(count)
    }

    #[test]
    fn distances_go_the_shorter_way_round() {
        let torus = torus(Contention::Exact);
        #[rustfmt::skip]
        let table = [(0, 0, 0), (0, 1, 1), (0, 5, 1), (0, 3, 3), (0, 6, 1), (0, 30, 1), (0, 21, 6), (7, 28, 6), (14, 35, 6)];
        for (from, to, hops) in table {
            assert_eq!(torus.distance(from, to), hops, "{from} to {to}");
        }
        let mean = (0..36).map(|to| torus.distance(0, to)).sum::<u32>() as f64 / 36.0;
        assert_eq!(mean, 3.0, "mean distance");
    }

    #[test]
    fn without_contention_latency_is_length_and_routers() {
        for contention in [Contention::Exact, Contention::Stochastic] {
            for (from, to) in [(0, 0), (0, 1), (7, 9), (0, 21), (35, 0)] {
                for (bytes, serialised) in [(0, 0), (8, 40), (8192, 40_960)] {
                    let mut torus = torus(contention);
                    let routers = u64::from(torus.distance(from, to)) + 1;
                    let delivery = torus.deliver(ns(100), from, to, bytes);
                    assert_eq!(delivery.arrival, ns(100 + 20 * routers + serialised));
                    assert_eq!(
                        delivery.sender,
                        Interval::new(ns(100), ns(100 + serialised))
                    );
                    assert_eq!(delivery.receiver.start, ns(100 + 20 * routers));
                    assert_eq!(torus.sender_free_at(from), ns(100 + serialised));
                }
            }
        }
    }

    #[test]
    fn a_port_sends_and_receives_at_the_link_rate() {
        for contention in [Contention::Exact, Contention::Stochastic] {
            let mut sending = torus(contention);
            let last = (0..100)
                .map(|_| sending.deliver(Time::ZERO, 0, 1, 8192))
                .last()
                .unwrap();
            assert_eq!(
                last.arrival,
                ns(40 + 100 * 40_960),
                "{contention:?}: one way"
            );
            let mut receiving = torus(contention);
            let arrivals = (1..36).map(|from| receiving.deliver(Time::ZERO, from, 0, 8192).arrival);
            let last = arrivals.max().unwrap();
            assert!(last >= ns(35 * 40_960), "{contention:?}: all to one");
        }
    }

    #[test]
    fn two_worms_on_one_link_follow_each_other() {
        // Both worms pass the link from 1 to 2 in the first row, to different nodes.
        let mut torus = torus(Contention::Exact);
        let first = torus.deliver(Time::ZERO, 0, 2, 8192);
        let second = torus.deliver(Time::ZERO, 1, 3, 8192);
        assert_eq!(first.arrival, ns(60 + 40_960));
        // The second head takes the link when the first tail has left it, 20 ns before the first
        // worm arrives; its sender's port is kept meanwhile.
        assert_eq!(second.receiver.start, ns(40 + 40_960 + 40));
        assert_eq!(second.sender.end + Span::from_ns(60), second.arrival);
        // The other direction, and another row, are free.
        assert_eq!(
            torus.deliver(Time::ZERO, 2, 0, 8192).arrival,
            ns(60 + 40_960)
        );
        assert_eq!(
            torus.deliver(Time::ZERO, 6, 8, 8192).arrival,
            ns(60 + 40_960)
        );
    }

    #[test]
    fn a_blocked_worm_keeps_the_links_behind_it() {
        let mut torus = torus(Contention::Exact);
        torus.deliver(Time::ZERO, 8, 2, 8192); // keeps the ejection at 2
        let blocked = torus.deliver(Time::ZERO, 0, 2, 8192); // waits for it, lying in 0>1 and 1>2
        assert!(blocked.receiver.start >= ns(40_960));
        let behind = torus.deliver(ns(100), 1, 3, 8192); // needs 1>2
        assert!(
            behind.receiver.start >= ns(2 * 40_960),
            "{:?}",
            behind.receiver
        );
        // A worm of two flits lies in two links only: its tail soon leaves its sender.
        let mut torus = self::torus(Contention::Exact);
        torus.deliver(Time::ZERO, 8, 2, 8192);
        let short = torus.deliver(Time::ZERO, 35, 2, 8);
        assert!(short.receiver.start >= ns(40_960));
        assert_eq!(short.sender.end, ns(40));
    }

    #[test]
    fn a_link_before_a_blocked_one_is_not_lost() {
        let mut torus = torus(Contention::Exact);
        for _ in 0..10 {
            torus.deliver(Time::ZERO, 0, 1, 8192);
        }
        // This worm is handed over early, and leaves node 0 only after the ten. 1>2 is idle until
        // then.
        torus.deliver(Time::ZERO, 0, 2, 8192);
        let through = torus.deliver(ns(100), 1, 2, 8192);
        assert_eq!(through.arrival, ns(100 + 40 + 40_960));
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let mut torus = Torus::new(&parts::kotz_torus(), Random::new(seed)).unwrap();
            let mut random = Random::new(9);
            let arrivals = (0..2000u64).map(|step| {
                let (from, to) = (random.below(36) as u32, random.below(36) as u32);
                torus.deliver(ns(step * 1500), from, to, 8192).arrival
            });
            arrivals.collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn nonsense_is_refused() {
        for parameters in [
            TorusParameters {
                side: 0,
                ..parts::kotz_torus()
            },
            TorusParameters {
                window_us: 0.0,
                ..parts::kotz_torus()
            },
            TorusParameters {
                router_latency_ns: f64::NAN,
                ..parts::kotz_torus()
            },
        ] {
            assert!(Torus::new(&parameters, Random::new(1)).is_err());
        }
    }
}
