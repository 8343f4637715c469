//! The order in which the requests of a device are served.
//!
//! A request with a known position on the device takes part in the sweep (C-SCAN: Seltzer, Chen and
//! Ousterhout 1990; Kotz, TOCS 1997, section 4). The head goes one way, from low positions to high
//! ones, and begins again at the lowest. A request that comes at the head's position or behind it
//! waits for the next sweep:
//!
//! ```text
//! position   0        3        5         8        9
//! waiting             B(2)     head      A(1)     C(1)      (sweep)
//! order      A, C; then, in the second sweep, B
//! ```
//!
//! A request without a known position (an opening, a block that lies nobody knows where)
//! stands in the line, in the order of arrival. While requests wait in both, sweep and line take
//! turns.
//!
//! # Nobody starves
//! A sweep ends: it serves at each position only the requests that waited there when the head came,
//! and the head never goes back. So a request of the sweep waits for less than two sweeps, and a
//! request of the line for those before it. The turns double that at most.
//!
//! # The end of a file's requests
//! A request that ends the others of its file stands in the line, and takes those with it that are
//! in the sweep.
//!
//! Cost: time in the logarithm of the number of requests that wait. [`Queue`] calls nothing and
//! waits for nothing: [`super::device`] does that.

use std::collections::{BTreeMap, VecDeque};

/// The place of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The request joins the sweep at this position on the device, in bytes.
    At(u64),
    /// The request joins the line.
    Line,
    /// The request joins the line, after all requests of its file that wait.
    AfterFile,
}

/// The sort key of a request: its sweep, its position, its number in the order of arrival.
type Key = (u64, u64, u64);

/// The requests that wait for a device.
#[derive(Debug)]
pub struct Queue<T> {
    /// The requests with a position, each with its file.
    sweep: BTreeMap<Key, (u64, T)>,
    line: VecDeque<T>,
    /// The number of the sweep under way, and the position that the head has come to.
    head: (u64, u64),
    arrivals: u64,
    /// Whether the line is served next, if requests wait in both.
    is_turn_of_line: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            sweep: BTreeMap::new(),
            line: VecDeque::new(),
            head: (0, 0),
            arrivals: 0,
            is_turn_of_line: false,
        }
    }
}

impl<T> Queue<T> {
    /// Adds a request of a file.
    pub fn push(&mut self, place: Place, file: u64, request: T) {
        match place {
            Place::At(position) => {
                let (sweep, head) = self.head;
                let sweep = sweep + u64::from(position <= head);
                let key = (sweep, position, self.arrivals);
                self.arrivals += 1;
                self.sweep.insert(key, (file, request));
            }
            Place::Line => self.line.push_back(request),
            Place::AfterFile => {
                let own = self.sweep.extract_if(.., |_, waiting| waiting.0 == file);
                self.line.extend(own.map(|(_, (_, request))| request));
                self.line.push_back(request);
            }
        }
    }

    /// Takes out the request that is to be served next.
    pub fn pop(&mut self) -> Option<T> {
        let takes_line = match (self.sweep.is_empty(), self.line.is_empty()) {
            (false, false) => self.is_turn_of_line,
            (is_without_sweep, _) => is_without_sweep,
        };
        self.is_turn_of_line = !takes_line;
        if takes_line {
            return self.line.pop_front();
        }
        let ((sweep, position, _), (_, request)) = self.sweep.pop_first()?;
        self.head = (sweep, position);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn drained(queue: &mut Queue<u64>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn the_head_goes_one_way_and_begins_again() {
        let mut queue = Queue::default();
        for position in [5, 9, 3] {
            queue.push(Place::At(position), 0, position);
        }
        assert_eq!((queue.pop(), queue.pop()), (Some(3), Some(5)));
        for position in [4, 5, 8, 3, 6] {
            queue.push(Place::At(position), 0, position);
        }
        assert_eq!(drained(&mut queue), [6, 8, 9, 3, 4, 5]);
        queue.push(Place::At(2), 0, 2);
        assert_eq!(drained(&mut queue), [2]);
    }

    #[test]
    fn requests_at_one_position_and_in_the_line_keep_the_order_of_arrival() {
        for place in [Place::At(7), Place::Line, Place::AfterFile] {
            let mut queue = Queue::default();
            (0..9).for_each(|number| queue.push(place, number % 2, number));
            assert_eq!(drained(&mut queue), (0..9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sweep_and_line_take_turns() {
        let mut queue = Queue::default();
        for number in 1..=3 {
            queue.push(Place::At(number), 0, number);
            queue.push(Place::Line, 0, 10 * number);
        }
        assert_eq!(queue.pop(), Some(1));
        queue.push(Place::Line, 0, 40);
        assert_eq!(drained(&mut queue), [10, 2, 20, 3, 30, 40]);
    }

    #[test]
    fn the_end_of_a_file_comes_after_all_of_its_requests_and_waits_for_no_other_file() {
        let mut queue = Queue::default();
        for (position, file) in [(9, 1), (4, 2), (2, 1), (8, 2)] {
            queue.push(Place::At(position), file, position);
        }
        queue.push(Place::AfterFile, 1, 100);
        assert_eq!(drained(&mut queue), [4, 2, 8, 9, 100]);
    }

    /// A naive model: one list of all that wait, which is searched.
    #[derive(Default)]
    struct Model {
        /// Each request's number, file and position.
        ahead: Vec<(u64, u64, u64)>,
        behind: Vec<(u64, u64, u64)>,
        line: Vec<u64>,
        head: u64,
        was_sweep: bool,
    }

    impl Model {
        fn push(&mut self, place: Place, file: u64, number: u64) {
            match place {
                Place::At(position) if position > self.head => {
                    self.ahead.push((number, file, position));
                }
                Place::At(position) => self.behind.push((number, file, position)),
                Place::Line => self.line.push(number),
                Place::AfterFile => {
                    for waiting in [&mut self.ahead, &mut self.behind] {
                        waiting.sort_by_key(|&(number, _, position)| (position, number));
                        let own = waiting.extract_if(.., |&mut (_, of, _)| of == file);
                        self.line.extend(own.map(|(number, ..)| number));
                    }
                    self.line.push(number);
                }
            }
        }

        fn pop(&mut self) -> Option<u64> {
            let sweeps = !self.ahead.is_empty() || !self.behind.is_empty();
            let takes_line = !self.line.is_empty() && (!sweeps || self.was_sweep);
            self.was_sweep = !takes_line;
            if takes_line {
                return Some(self.line.remove(0));
            }
            if self.ahead.is_empty() {
                std::mem::swap(&mut self.ahead, &mut self.behind);
            }
            let nearest =
                |&(_, &(number, _, position)): &(usize, &(u64, u64, u64))| (position, number);
            let (at, _) = self.ahead.iter().enumerate().min_by_key(nearest)?;
            let (number, _, position) = self.ahead.remove(at);
            self.head = position;
            Some(number)
        }
    }

    /// The positions of the properties.
    const POSITIONS: u64 = 6;
    /// The most requests that wait at once in the properties.
    const WAITING_MAX: usize = 5;

    fn places() -> impl Strategy<Value = Place> {
        prop_oneof![
            6 => (0..POSITIONS).prop_map(Place::At),
            3 => Just(Place::Line),
            1 => Just(Place::AfterFile),
        ]
    }

    proptest! {
        /// Requests arrive while others are served.
        #[test]
        fn the_order_is_that_of_the_model_and_nobody_starves(
            steps in proptest::collection::vec((places(), 0..3u64, any::<bool>()), 0..400)
        ) {
            let (mut queue, mut model) = (Queue::default(), Model::default());
            // The number of requests that were served when each of those that wait arrived.
            let mut arrived = BTreeMap::new();
            let (mut served, mut number) = (0, 0);
            for (place, file, serves) in steps {
                if arrived.len() < WAITING_MAX {
                    queue.push(place, file, number);
                    model.push(place, file, number);
                    arrived.insert(number, served);
                    number += 1;
                }
                if serves && !arrived.is_empty() {
                    let next = queue.pop();
                    prop_assert_eq!(next, model.pop());
                    served += 1;
                    let since = next.and_then(|next| arrived.remove(&next));
                    prop_assert!(since.is_some());
                    let waited = served - since.unwrap_or_default();
                    prop_assert!(waited <= 4 * POSITIONS * WAITING_MAX as u64);
                }
            }
            while let Some(next) = queue.pop() {
                prop_assert_eq!(Some(next), model.pop());
                arrived.remove(&next);
            }
            prop_assert!(arrived.is_empty() && model.pop().is_none());
        }
    }

    /// Streams that never end: one that stays at the head's position, one that goes ahead of it,
    /// and one in the line.
    #[test]
    fn a_stream_of_requests_holds_nobody_up_for_long() {
        let ahead = |step: u64| Place::At(1 + step % 8);
        let streams: [&dyn Fn(u64) -> Place; 3] = [&|_| Place::At(4), &ahead, &|_| Place::Line];
        for stream in streams {
            for other in [Place::At(2), Place::At(4), Place::At(9), Place::Line] {
                let mut queue = Queue::default();
                for step in 0..20 {
                    queue.push(stream(step), 0, step);
                    assert!(queue.pop().is_some());
                    queue.push(stream(step), 0, step);
                }
                queue.push(other, 1, 100);
                let waited = (20..500).position(|step| {
                    queue.push(stream(step), 0, step);
                    queue.pop() == Some(100)
                });
                assert!(
                    waited.is_some_and(|waited| waited < 150),
                    "{other:?}: {waited:?}"
                );
            }
        }
    }
}
