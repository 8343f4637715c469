//! Random programs of several clients, against a naive model.
//!
//! Clients of a simulated job use one small file at once, through random views, with asynchronous
//! requests among others, while it is resized, checkpointed and rolled back, with a cache of a few
//! blocks and with messages that are late. Each request notes when it began and ended, and what it
//! found. In cautious mode every such history must be linearisable: there is an order of the
//! requests, in which none comes before one that had ended when it began, and in which a naive file
//! gives the same answers. In reckless mode the same holds for clients with subfiles of their own.
//!
//! A failure prints its seed: `PENSTOCK_SEED=<seed> cargo test -p penstock-files model::` runs
//! that one alone, and `PENSTOCK_SEEDS=100000` in its place runs that number of seeds.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use futures::future::join;
use penstock_engine::Operation;
use penstock_files::{Attachment, FileChange, Mode};
use penstock_layout::SubfileOrder;
use penstock_sim::Span;
use penstock_sim::machine::Faults;
use penstock_sim::random::Random;

use crate::naive::{Change, File};
use crate::seeds;
use crate::simulated::{BOTH, Program, Volume, open_in, path};

const STEPS: u64 = 6;

/// What a client does.
#[derive(Debug, Clone)]
enum Step {
    Access {
        operation: Operation,
        view: [u64; 4],
        subfile: u64,
        order: SubfileOrder,
        offset: u64,
        bytes: usize,
        /// The byte that a write puts everywhere.
        fill: u8,
    },
    Change(FileChange),
}

/// A step with its time and its result.
#[derive(Debug, Clone)]
struct Event {
    _client: usize,
    step: Step,
    begun: u64,
    ended: u64,
    /// The bytes moved, and what a read found.
    result: (u64, Vec<u8>),
}

/// A case is one job with one file.
#[derive(Debug, Clone)]
struct Case {
    volume: Volume,
    cells: u64,
    bsu_bytes: u64,
    is_reckless: bool,
}

impl Case {
    fn of(seed: u64, is_reckless: bool) -> Self {
        let mut random = Random::new(seed);
        let block_bytes = [4, 16, 64][random.below(3) as usize];
        let faults = Faults {
            late_max: Span::from_us_f64([0.0, 500.0][random.below(2) as usize]),
            ..Faults::default()
        };
        Self {
            volume: Volume {
                seed,
                clients: 1 + random.below(4) as usize,
                servers: 1 + random.below(4) as usize,
                block_bytes,
                blocks: 2000,
                cache_bytes: block_bytes * random.below(6),
                faults,
                ..Volume::default()
            },
            cells: 1 + random.below(6),
            bsu_bytes: 1 + random.below(7),
            is_reckless,
        }
    }

    fn view(&self, random: &mut Random) -> ([u64; 4], u64) {
        let mut below = |bound| 1 + random.below(bound);
        let view = [below(3), below(3), below(3), below(3)];
        (view, random.below(view[1] * view[3]))
    }

    fn step(&self, random: &mut Random, fills: &Cell<u8>) -> Step {
        let change = match random.below(12) {
            0 => Some(FileChange::Checkpoint),
            1 => Some(FileChange::RollBack),
            2 => Some(match random.below(2) {
                0 => FileChange::Resize(random.below(40)),
                _ => FileChange::Truncate(random.below(90)),
            }),
            _ => None,
        };
        if let Some(change) = change {
            return Step::Change(change);
        }
        let (view, subfile) = self.view(random);
        let fill = fills.get() + 1;
        fills.set(fill);
        let orders = [SubfileOrder::Block, SubfileOrder::Row, SubfileOrder::Column];
        Step::Access {
            operation: [Operation::Read, Operation::Write][random.below(2) as usize],
            view,
            subfile,
            order: orders[random.below(3) as usize],
            offset: random.below(40),
            bytes: random.below(30) as usize,
            fill,
        }
    }
}

/// Does a step, and notes it.
async fn run_step(
    me: &Program,
    file: &Attachment,
    step: Step,
    events: &RefCell<Vec<Event>>,
    placed: Option<&dyn Fn()>,
) {
    let begun = me.node.time().as_ps();
    let result = match &step {
        Step::Access {
            operation,
            view,
            subfile,
            order,
            offset,
            bytes,
            fill,
        } => {
            let open = open_in(file, *view, *subfile, *order);
            let content = match operation {
                Operation::Read => 0xee,
                Operation::Write => *fill,
            };
            let memory = Rc::new(RefCell::new(vec![content; *bytes]));
            let moved = me.access(&open, *operation, *offset, &memory, placed).await;
            (moved.unwrap(), memory.take())
        }
        Step::Change(change) => {
            let changed = me.client().change(&file.object.path, *change).await;
            (u64::from(changed.is_ok()), Vec::new())
        }
    };
    let ended = me.node.time().as_ps();
    events.borrow_mut().push(Event {
        _client: me.rank,
        step,
        begun,
        ended,
        result,
    });
}

/// Does a step on the naive file. Gives the bytes moved, and what a read finds.
fn apply(file: &mut File, step: &Step) -> (u64, Vec<u8>) {
    match step {
        Step::Access {
            operation,
            view,
            subfile,
            order,
            offset,
            bytes,
            fill,
        } => {
            let places = file.places(*view, *subfile, *order, *offset as usize, *bytes);
            match operation {
                Operation::Write => (file.write(&places, *fill), vec![*fill; *bytes]),
                Operation::Read => file.read(&places, 0xee),
            }
        }
        Step::Change(change) => {
            let change = match change {
                FileChange::Checkpoint => Change::Checkpoint,
                FileChange::RollBack => Change::RollBack,
                FileChange::Resize(bytes) => Change::Resize(*bytes as usize),
                FileChange::Truncate(bytes) => Change::Truncate(*bytes as usize),
                _ => unreachable!("no step of a case"),
            };
            (u64::from(file.change(change)), Vec::new())
        }
    }
}

/// Whether there is an order of the events that had ended at a time, and of some that had begun, in
/// which a naive file gives the results of those that had ended.
fn is_linearisable(start: &File, events: &[Event], until: u64) -> bool {
    let mut seen: HashSet<(u128, File)> = HashSet::new();
    let has_ended = |nth: &usize| events[*nth].ended <= until;
    let required = (0..events.len()).filter(has_ended);
    let required = required.fold(0u128, |all, nth| all | 1 << nth);
    let mut waiting = vec![(0u128, start.clone())];
    while let Some((done, file)) = waiting.pop() {
        if done & required == required {
            return true;
        }
        let left = (0..events.len()).filter(|nth| done >> nth & 1 == 0);
        let left: Vec<usize> = left.filter(|&nth| events[nth].begun <= until).collect();
        let first_end = left.iter().map(|&nth| events[nth].ended).min().unwrap();
        for nth in left
            .into_iter()
            .filter(|&nth| events[nth].begun <= first_end)
        {
            let mut next = file.clone();
            let result = apply(&mut next, &events[nth].step);
            if result == events[nth].result || !has_ended(&nth) {
                let state = (done | 1 << nth, next);
                if seen.insert(state.clone()) {
                    waiting.push(state);
                }
            }
        }
    }
    false
}

fn run(case: &Case, seed: u64) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let (all, fills) = (events.clone(), Rc::new(Cell::new(0)));
    let (given, clients) = (case.clone(), case.volume.clients);
    case.volume.run(move |me| {
        let (case, events, fills) = (given.clone(), all.clone(), fills.clone());
        async move {
            let mode = Mode {
                is_reckless: case.is_reckless,
                ..BOTH
            };
            let client = me.client();
            if me.rank == 0 {
                let shape = (case.cells, case.bsu_bytes, None);
                client.create(path("/f"), shape, 0o644).await.unwrap();
            }
            me.meet(clients).await;
            let file = client.attach(&path("/f"), mode).await.unwrap();
            let mut random = Random::of(seed, me.rank as u64 + 1);
            let own = [1, 1, 1, clients as u64];
            for _ in 0..STEPS {
                let mut step = case.step(&mut random, &fills);
                if case.is_reckless {
                    match &mut step {
                        Step::Access { view, subfile, .. } => {
                            (*view, *subfile) = (own, me.rank as u64);
                        }
                        Step::Change(_) => continue,
                    }
                }
                match random.below(4) {
                    0 => {
                        // Two requests: the second begins when the first has its place.
                        let placed = Cell::new(false);
                        let tell = || placed.set(true);
                        let first = run_step(&me, &file, step, &events, Some(&tell));
                        let step = case.step(&mut random, &fills);
                        let second = async {
                            let has_place = || placed.get() || case.is_reckless;
                            let mut looks = 0;
                            while !has_place() && looks < 10_000 {
                                me.node.sleep(Span::from_us_f64(10.0)).await;
                                looks += 1;
                            }
                            if let Step::Access { .. } = step
                                && !case.is_reckless
                            {
                                run_step(&me, &file, step, &events, None).await;
                            }
                        };
                        join(first, second).await;
                    }
                    1 => {
                        let open = open_in(&file, own, 0, SubfileOrder::Block);
                        client.prefetch(&open, 0, 100).await.unwrap();
                        client.flush(&open, 0, 50).await.unwrap();
                        run_step(&me, &file, step, &events, None).await;
                    }
                    2 => {
                        client.sync(Some(&file)).await.unwrap();
                        run_step(&me, &file, step, &events, None).await;
                    }
                    _ => run_step(&me, &file, step, &events, None).await,
                }
            }
        }
    });
    let mut events = events.take();
    events.sort_by_key(|event| event.begun);
    let start = File::new(case.cells as usize, case.bsu_bytes as usize);
    if is_linearisable(&start, &events, u64::MAX) {
        return;
    }
    // What came after the first event that nothing explains is of no interest.
    let mut ends: Vec<u64> = events.iter().map(|event| event.ended).collect();
    ends.sort_unstable();
    let is_wrong = |until: &u64| !is_linearisable(&start, &events, *until);
    let until = ends.into_iter().find(is_wrong).unwrap_or(u64::MAX);
    events.retain(|event| event.begun <= until);
    panic!("at {until} no order explains {events:#?} of {case:?}");
}

#[test]
fn cautious_histories_are_linearisable() {
    seeds::for_seeds("cautious_histories_are_linearisable", 150, |seed| {
        run(&Case::of(seed, false), seed);
    });
}

#[test]
fn reckless_histories_of_own_subfiles_are_linearisable() {
    seeds::for_seeds(
        "reckless_histories_of_own_subfiles_are_linearisable",
        60,
        |seed| {
            run(&Case::of(seed, true), seed);
        },
    );
}

/// The checker finds fault with histories that no file has.
#[test]
fn the_checker_refuses_impossible_histories() {
    let access = |operation, offset, bytes, fill| Step::Access {
        operation,
        view: [1, 1, 1, 1],
        subfile: 0,
        order: SubfileOrder::Block,
        offset,
        bytes,
        fill,
    };
    let event = |step, begun, ended, result| Event {
        _client: 0,
        step,
        begun,
        ended,
        result,
    };
    let write = |fill, begun, ended| {
        let step = access(Operation::Write, 0, 2, fill);
        event(step, begun, ended, (2, vec![fill; 2]))
    };
    let read = |found: [u8; 2], begun, ended| {
        event(
            access(Operation::Read, 0, 2, 0),
            begun,
            ended,
            (2, found.to_vec()),
        )
    };
    let start = File::new(2, 1);
    let is_fine = |events: &[Event]| is_linearisable(&start, events, u64::MAX);
    assert!(is_fine(&[
        write(1, 0, 10),
        write(2, 5, 15),
        read([1, 1], 20, 30)
    ]));
    assert!(is_fine(&[
        write(1, 0, 10),
        write(2, 5, 15),
        read([2, 2], 20, 30)
    ]));
    assert!(!is_fine(&[
        write(1, 0, 10),
        write(2, 5, 15),
        read([1, 2], 20, 30)
    ]));
    assert!(!is_fine(&[
        write(1, 0, 10),
        write(2, 11, 15),
        read([1, 1], 20, 30)
    ]));
    let both = [
        write(1, 0, 10),
        write(2, 5, 15),
        read([1, 1], 20, 30),
        read([2, 2], 31, 40),
    ];
    assert!(!is_fine(&both));
}
