//! Collective requests on files, on a simulated machine, against a naive file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Operation, Who};
use penstock_files::{FileChange, Selection};
use penstock_layout::{List, SubfileOrder};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Loss, Moment};
use penstock_sim::random::Random;

use crate::naive::File;
use crate::seeds;
use crate::simulated::{BOTH, Program, Volume, open, open_in, path};

fn volume_of(seed: u64) -> Volume {
    let mut random = Random::new(seed);
    let block_bytes = [8, 32, 64][random.below(3) as usize];
    Volume {
        seed,
        clients: 1 + random.below(5) as usize,
        servers: 1 + random.below(4) as usize,
        block_bytes,
        cache_bytes: block_bytes * random.below(6),
        ..Volume::default()
    }
}

/// Each client of a random view with as many subfiles as there are clients has one; all of them
/// write together, alone in between, and read together through another view.
#[test]
fn clients_write_and_read_together() {
    seeds::for_seeds("clients_write_and_read_together", 100, |seed| {
        let volume = volume_of(seed);
        let mut random = Random::of(seed, 7);
        let clients = volume.clients as u64;
        let (cells, bsu_bytes) = (1 + random.below(6), 1 + random.below(9));
        let model = Rc::new(RefCell::new(File::new(cells as usize, bsu_bytes as usize)));
        let orders = [SubfileOrder::Block, SubfileOrder::Row, SubfileOrder::Column];
        volume.run(move |me: Program| {
            let model = model.clone();
            async move {
                let client = me.client();
                if me.rank == 0 {
                    let shape = (cells, bsu_bytes, None);
                    client.create(path("/f"), shape, 0o644).await.unwrap();
                }
                me.meet(clients as usize).await;
                let file = client.attach(&path("/f"), BOTH).await.unwrap();
                let mut own = Random::of(seed, 100 + me.rank as u64);
                let mut shared = Random::of(seed, 99);
                for turn in 1..=6u64 {
                    // All clients draw the same views.
                    let mut below = |bound| 1 + shared.below(bound);
                    let view = match below(2) {
                        1 => [below(3), clients, below(3), 1],
                        _ => [below(3), 1, below(3), clients],
                    };
                    let order = orders[shared.below(3) as usize];
                    let open = open_in(&file, view, me.rank as u64, order);
                    let (offset, bytes) = (own.below(40), own.below(60) as usize);
                    let number = me.rank as u64;
                    let places = model
                        .borrow()
                        .places(view, number, order, offset as usize, bytes);
                    let fill = (turn * 16 + me.rank as u64) as u8;
                    let (operation, expected) = match shared.below(3) {
                        0 => {
                            let expected = model.borrow().read(&places, 0xee);
                            (Operation::Read, expected)
                        }
                        _ => {
                            let moved = model.borrow_mut().write(&places, fill);
                            (Operation::Write, (moved, vec![fill; bytes]))
                        }
                    };
                    let content = match operation {
                        Operation::Read => 0xee,
                        Operation::Write => fill,
                    };
                    let memory = Rc::new(RefCell::new(vec![content; bytes]));
                    let moved = me
                        .access_all(Ok(&open), &file, operation, offset, &memory)
                        .await;
                    assert_eq!(
                        (moved.unwrap(), memory.take()),
                        expected,
                        "{view:?} {order:?}"
                    );
                    me.meet(clients as usize * (2 * turn as usize)).await;
                    if me.rank == 0 {
                        // Independent requests see what was written together, and the other way.
                        let all = open_in(&file, [1, 1, 1, 1], 0, SubfileOrder::Row);
                        let places =
                            model
                                .borrow()
                                .places([1, 1, 1, 1], 0, SubfileOrder::Row, 0, 300);
                        let found = me.read(&all, 0, 300).await.unwrap();
                        assert_eq!(found, model.borrow().read(&places, 0xee));
                        let places =
                            model
                                .borrow()
                                .places([1, 1, 1, 1], 0, SubfileOrder::Row, 5, 20);
                        model.borrow_mut().write(&places, 255);
                        me.write(&all, 5, &[255; 20]).await.unwrap();
                        client
                            .change(&path("/f"), FileChange::Checkpoint)
                            .await
                            .unwrap();
                    }
                    me.meet(clients as usize * (2 * turn as usize + 1)).await;
                }
            }
        });
    });
}

/// Bytes of a subfile in ascending order, each with a place in a memory, in any order.
fn draw_lists(random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let places: Vec<u64> = (0..60).filter(|_| random.below(3) == 0).collect();
    let mut memory: Vec<u64> = (0..places.len() as u64).collect();
    for last in (1..memory.len()).rev() {
        memory.swap(last, random.below(last as u64 + 1) as usize);
    }
    (places, memory)
}

fn list_of(numbers: &[u64]) -> Arc<List> {
    Arc::new(List::runs(numbers, &vec![1; numbers.len()]).unwrap())
}

/// Each client has a subfile, and moves some of its bytes, together with the others and alone,
/// between the file and bytes of its memory that lie in any order.
#[test]
fn clients_move_lists() {
    seeds::for_seeds("clients_move_lists", 100, |seed| {
        let volume = volume_of(seed);
        let mut random = Random::of(seed, 8);
        let clients = volume.clients as u64;
        let (cells, bsu_bytes) = (1 + random.below(6), 1 + random.below(9));
        let model = Rc::new(RefCell::new(File::new(cells as usize, bsu_bytes as usize)));
        volume.run(move |me: Program| {
            let model = model.clone();
            async move {
                let client = me.client();
                if me.rank == 0 {
                    let shape = (cells, bsu_bytes, None);
                    client.create(path("/f"), shape, 0o644).await.unwrap();
                }
                me.meet(clients as usize).await;
                let file = client.attach(&path("/f"), BOTH).await.unwrap();
                let mut own = Random::of(seed, 100 + me.rank as u64);
                let mut shared = Random::of(seed, 99);
                for turn in 1..=6usize {
                    let (view, number) = ([1, clients, 1, 1], me.rank as u64);
                    let order = [SubfileOrder::Block, SubfileOrder::Row][shared.below(2) as usize];
                    let open = open_in(&file, view, number, order);
                    let (places, memory) = draw_lists(&mut own);
                    let in_cells: Vec<_> = places
                        .iter()
                        .map(|&place| {
                            let model = model.borrow();
                            model.places(view, number, order, place as usize, 1)[0]
                        })
                        .collect();
                    let operation = match shared.below(2) {
                        0 => Operation::Read,
                        _ => Operation::Write,
                    };
                    let mut content: Vec<u8> = match operation {
                        Operation::Read => vec![0xee; memory.len()],
                        Operation::Write => memory.iter().map(|_| own.below(256) as u8).collect(),
                    };
                    let held = Rc::new(RefCell::new(content.clone()));
                    let mut moved = 0;
                    for (place, &at) in in_cells.iter().zip(&memory) {
                        match operation {
                            Operation::Write => {
                                let byte = content[at as usize];
                                moved += model.borrow_mut().write(&[*place], byte);
                            }
                            Operation::Read => {
                                let (one, byte) = model.borrow().read(&[*place], 0xee);
                                moved += one;
                                content[at as usize] = byte[0];
                            }
                        }
                    }
                    let wanted = Selection::Lists {
                        places: list_of(&places),
                        memory: list_of(&memory),
                    };
                    let is_together = shared.below(2) == 0;
                    let told = match is_together {
                        true => {
                            let all = me.select_all(Ok(&open), &file, operation, wanted, &held);
                            all.await
                        }
                        false => me.select(&open, operation, wanted, &held).await,
                    };
                    assert_eq!(
                        told.unwrap(),
                        moved,
                        "{operation:?}, together: {is_together}"
                    );
                    assert_eq!(
                        held.take(),
                        content,
                        "{operation:?}, together: {is_together}"
                    );
                    me.meet(clients as usize * (turn + 1)).await;
                }
            }
        });
    });
}

/// What the errors of all clients are when one of them is wrong.
fn errors(
    clients: usize,
    faults: Faults,
    wrong: impl Fn(&Program) -> Option<Error> + Clone + 'static,
    view: [u64; 4],
) -> Vec<Option<Error>> {
    let volume = Volume {
        clients,
        faults,
        ..Volume::default()
    };
    let found = Rc::new(RefCell::new(vec![None; clients]));
    let all = found.clone();
    let made = Rc::new(Cell::new(false));
    volume.run(move |me: Program| {
        let (found, wrong, made) = (all.clone(), wrong.clone(), made.clone());
        async move {
            if me.rank == 0 {
                me.create("/f", 4, 8).await.unwrap();
                made.set(true);
            }
            while !made.get() {
                me.node.sleep(Span::from_us_f64(50.0)).await;
            }
            let file = me.client().attach(&path("/f"), BOTH).await.unwrap();
            let subfile = open(&file, view, me.rank as u64 % (view[1] * view[3]));
            let part = wrong(&me).map_or(Ok(&subfile), Err);
            let memory = Rc::new(RefCell::new(vec![me.rank as u8; 500]));
            let moved = me
                .access_all(part, &file, Operation::Write, 0, &memory)
                .await;
            found.borrow_mut()[me.rank] = moved.err();
        }
    });
    found.take()
}

#[test]
fn an_error_of_one_client_is_the_error_of_all() {
    let refuse = |me: &Program| {
        let error = Error::new(Kind::Schema, "reading arguments", "there are none");
        (me.rank == 2).then_some(error)
    };
    let found = errors(4, Faults::default(), refuse, [1, 1, 1, 4]);
    let first = found[0].clone().unwrap();
    assert_eq!((first.kind, first.who), (Kind::Schema, Some(Who::Rank(2))));
    assert!(found.iter().all(|error| error.as_ref() == Some(&first)));
}

#[test]
fn clients_that_write_the_same_bytes_are_told() {
    let found = errors(3, Faults::default(), |_| None, [1, 1, 1, 1]);
    let first = found[0].clone().unwrap();
    assert!(first.kind == Kind::Overlap && first.cause.contains("the ranks"));
    assert!(found.iter().all(|error| error.as_ref() == Some(&first)));
}

/// A client that is lost at any message lets no other wait for ever.
#[test]
fn a_client_that_is_lost_ends_the_request() {
    seeds::for_seeds("a_client_that_is_lost_ends_the_request", 40, |seed| {
        let faults = Faults {
            losses: vec![Loss {
                node: 1,
                at: Moment::Message(1 + seed),
            }],
            notice_max: Span::from_us_f64([0.0, 2000.0][seed as usize % 2]),
            ..Faults::default()
        };
        let found = errors(3, faults, |_| None, [1, 1, 1, 3]);
        assert_eq!(found[0].is_some(), found[2].is_some(), "{found:?}");
        if let Some(error) = &found[0] {
            assert_eq!(error.kind, Kind::Peer, "{error}");
        }
    });
}
