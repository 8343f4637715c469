//! The pairing of two lists: the i-th element of one with the i-th of the other, as strands.
//!
//! Runs of one list end where runs of the other go on. After as many elements as both lists repeat,
//! the same pattern begins again, and a loop goes around it:
//!
//! ```text
//! runs of 3, 10 apart      0 1 2 | 10 11 | 12 | 20 21 22 | 30 | 31 32 | 40 41 42 || 50 ..
//! runs of 5, 8 apart       0 1 2 |  3  4 |  8 |  9 10 11 | 12 | 16 17 | 18 19 20 || 24 ..
//! 7 strands of 15 elements; a loop around each has stride 50 in the file, 24 in memory
//! ```
//!
//! Costs: at most a strand for each run of both lists. Where the number of elements inside the
//! outermost loop of one list divides that of the other there are as many strands as series.

use super::divisor::greatest_divisor;
use super::series::{Loop, Loops, Pair, Place, Series, Strand, append};

/// The strands of two lists with the same number of elements.
pub(super) fn pair(file: &[Series<i64>], memory: &[Series<i64>]) -> Vec<Strand> {
    let mut pairing = Pairing {
        around: Loops::new(),
        strands: Vec::new(),
    };
    pairing.pair(&mut Queue::of(file), &mut Queue::of(memory));
    pairing.strands
}

/// The series of a list that are not yet paired.
struct Queue<'a> {
    /// What is first, the first at the end.
    begun: Vec<Series<i64>>,
    behind: std::slice::Iter<'a, Series<i64>>,
}

impl<'a> Queue<'a> {
    fn of(series: &'a [Series<i64>]) -> Self {
        Self {
            begun: Vec::new(),
            behind: series.iter(),
        }
    }

    fn pop(&mut self) -> Option<Series<i64>> {
        self.begun.pop().or_else(|| self.behind.next().cloned())
    }

    /// Puts back what is behind the first `turns` turns of a series' outermost loop, if anything.
    fn put_back(&mut self, series: &Series<i64>, turns: i64) {
        let count = series.loops[0].count;
        if turns < count {
            let mut rest = series.part(0, turns, count);
            rest.merge();
            self.begun.push(rest);
        }
    }
}

/// The series as a loop: a single run is a loop of single elements.
fn as_loop(series: Series<i64>) -> Series<i64> {
    let mut series = series;
    if series.loops.is_empty() {
        series.repeat(series.length, 1);
        series.length = 1;
    }
    series
}

struct Pairing {
    /// The loops around what is being paired, the first outermost.
    around: Loops<Pair>,
    strands: Vec<Strand>,
}

impl Pairing {
    /// Pairs the elements of both queues, as long as both have any.
    fn pair<'a>(&mut self, file: &mut Queue<'a>, memory: &mut Queue<'a>) {
        while let Some(stored) = file.pop() {
            let Some(held) = memory.pop() else { return };
            if stored.loops.is_empty() && held.loops.is_empty() {
                self.pair_runs((stored, file), (held, memory));
            } else if !self.pair_loops((&stored, file), (&held, memory)) {
                unroll((stored, file), (held, memory));
            }
        }
    }

    fn pair_runs<'a>(
        &mut self,
        (stored, file): (Series<i64>, &mut Queue<'a>),
        (held, memory): (Series<i64>, &mut Queue<'a>),
    ) {
        let length = stored.length.min(held.length);
        let start = Pair {
            stored: stored.start,
            memory: held.start,
        };
        let strand = Strand {
            start,
            length,
            loops: self.around.clone(),
        };
        append(&mut self.strands, strand);
        for (run, queue) in [(stored, file), (held, memory)] {
            let (_, rest) = run.cut_run(length);
            if rest.length > 0 {
                queue.begun.push(rest);
            }
        }
    }

    /// Pairs whole turns of both series that have the same number of elements, if there are two
    /// such at least. Gives whether there are.
    fn pair_loops<'a>(
        &mut self,
        (stored, file): (&Series<i64>, &mut Queue<'a>),
        (held, memory): (&Series<i64>, &mut Queue<'a>),
    ) -> bool {
        let elements = stored.elements().min(held.elements());
        let (stored, held) = (as_loop(stored.clone()), as_loop(held.clone()));
        let (Some(&stored_loop), Some(&held_loop)) = (stored.loops.first(), held.loops.first())
        else {
            return false; // a single element
        };
        let inner = |series: &Series<i64>, outer: Loop<i64>| series.elements() / outer.count;
        let (a, b) = (inner(&stored, stored_loop), inner(&held, held_loop));
        let divisor = greatest_divisor(a, b);
        // Both begin a turn again after this number of turns of theirs.
        let (stored_turns, held_turns) = (b / divisor, a / divisor);
        let turns = elements.checked_div(a.saturating_mul(stored_turns));
        let Some(turns) = turns.filter(|&turns| turns > 1) else {
            return false;
        };
        let stride = Pair {
            stored: 0.on(stored_loop.stride, stored_turns),
            memory: 0.on(held_loop.stride, held_turns),
        };
        self.around.push(Loop {
            count: turns,
            stride,
        });
        let first = |series: &Series<i64>, turns: i64| {
            let mut first = series.part(0, 0, turns);
            first.merge();
            [first]
        };
        self.pair(
            &mut Queue::of(&first(&stored, stored_turns)),
            &mut Queue::of(&first(&held, held_turns)),
        );
        self.around.pop();
        file.put_back(&stored, turns * stored_turns);
        memory.put_back(&held, turns * held_turns);
        true
    }
}

/// Takes the first turn out of the outermost loop of the series that has more elements inside it,
/// and puts all back.
fn unroll<'a>(
    (stored, file): (Series<i64>, &mut Queue<'a>),
    (held, memory): (Series<i64>, &mut Queue<'a>),
) {
    // A single run has no loop, and needs none.
    let inner = |series: &Series<i64>| {
        let outer = series.loops.first();
        outer.map_or(0, |outer| series.elements() / outer.count)
    };
    let stored_is_wider = inner(&stored) >= inner(&held);
    for (series, queue, is_wider) in [
        (stored, file, stored_is_wider),
        (held, memory, !stored_is_wider),
    ] {
        if is_wider {
            queue.put_back(&series, 1);
            queue.begun.push(series.part(0, 0, 1));
        } else {
            queue.begun.push(series);
        }
    }
}
