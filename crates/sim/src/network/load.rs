//! The recent load of a link, for the torus's stochastic mode (see [`super::torus`]).
//!
//! Time is cut into windows. A load knows the current window and the one before, and takes from the
//! earlier one the part that the current one lacks of a whole window.

use crate::random::Random;
use crate::time::{Span, Time};

pub(super) const LINKS_PER_NODE: u32 = 6;

/// The greatest chance of a head to wait.
const UTILISATION_MAX: f64 = 0.95;

/// A load is the worms of a link in this window and the one before, by the kind of link before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    window: u64,
    /// The last worm, and the last worm of another origin: origin and target.
    recent: [Option<(u32, u32)>; 2],
    all: [Carried; 2],
    by_origin: [[Carried; 2]; LINKS_PER_NODE as usize],
}

/// The sums of the service times of worms, and of their squares.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    busy_us: f64,
    squares_us: f64,
}

impl Load {
    /// Adds a worm from `origin`, which keeps the link for `span`, to this window.
    pub(super) fn add(&mut self, origin: u32, target: u32, span: Span) {
        if self.recent[0].is_some_and(|recent| recent.0 != origin) {
            self.recent[1] = self.recent[0];
        }
        self.recent[0] = Some((origin, target));
        let us = span.as_ps() as f64 / 1e6;
        for carried in [&mut self.all[0], &mut self.by_origin[origin as usize][0]] {
            carried.busy_us += us;
            carried.squares_us += us * us;
        }
    }

    /// Begins the window of `now`, unless it has begun.
    pub(super) fn slide(&mut self, now: Time, window: Span) {
        let current = now.as_ps() / window.as_ps();
        if current != self.window {
            let kept = |[this, _]: [Carried; 2]| {
                let follows = current == self.window + 1;
                [
                    Carried::default(),
                    if follows { this } else { Carried::default() },
                ]
            };
            (self.all, self.by_origin) = (kept(self.all), self.by_origin.map(kept));
            self.window = current;
        }
    }

    /// The target of the last worm that did not come from `origin`.
    pub(super) fn holder(&self, origin: u32) -> Option<u32> {
        let mut others = self
            .recent
            .iter()
            .flatten()
            .filter(|recent| recent.0 != origin);
        others.next().map(|&(_, target)| target)
    }

    /// The time that a head from `origin` waits at `now`, drawn from `random`.
    pub(super) fn wait(&self, origin: u32, now: Time, window: Span, random: &mut Random) -> Span {
        let [this, before] = self.by_origin[origin as usize];
        if self.all[0].busy_us == this.busy_us && self.all[1].busy_us == before.busy_us {
            return Span::ZERO;
        }
        // The others' worms count: this window so far, and the part of the one before that makes it
        // whole.
        let window_us = window.as_ps() as f64 / 1e6;
        let rest = 1.0 - (now.as_ps() % window.as_ps()) as f64 / window.as_ps() as f64;
        let busy_us =
            self.all[0].busy_us - this.busy_us + (self.all[1].busy_us - before.busy_us) * rest;
        let squares_us = self.all[0].squares_us - this.squares_us
            + (self.all[1].squares_us - before.squares_us) * rest;
        let busy = (busy_us / window_us).min(UTILISATION_MAX);
        let draw = random.unit();
        if draw >= busy {
            return Span::ZERO;
        }
        // If the head waits, `draw / busy` is uniform from 0 to 1.
        Span::from_us_f64(draw / busy * squares_us.max(0.0) / busy_us)
    }
}
