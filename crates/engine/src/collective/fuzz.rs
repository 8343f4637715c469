//! Messages of a call that are not what they should be: each is decoded and checked as a node does
//! it, and what passes is used.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-engine --lib fuzz` runs
//! that one alone. `PENSTOCK_FUZZ_SECONDS` runs seeds for as long: `make fuzz`.

use std::time::{Duration, Instant};

use penstock_layout::{
    Boxes, DiskSchema, Distribution, Holding, List, MemorySchema, Order, Piece, Region, Split,
};

use super::Verdict;
use super::agreement::{Proposal, Proposals, difference};
use super::command::Command;
use crate::address::{CallId, PartyId};
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind};
use crate::holders::Holders;
use crate::lists::{Lists, messages};
use crate::machine::{Operation, Window};
use crate::outcome::{Outcome, Traffic};
use crate::party::Party;
use crate::portions::Parts;
use crate::request::{Request, Rest};
use crate::tuning::Strategy;

const CLIENTS: usize = 4;
/// The most blocks and portions of a request that are looked at.
const LOOKS_MAX: usize = 8;

/// xorshift64*.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

fn party() -> Party {
    Party::new(PartyId(0), (0..CLIENTS).collect(), vec![0, 2])
}

fn requests() -> Vec<Request> {
    let shape = [12, 10];
    let chunked = DiskSchema::chunked(&shape, 8, &[5, 4]).unwrap();
    let shards = chunked.clone().split(Split::Inner(vec![5, 2])).unwrap();
    let flat = DiskSchema::flat(&shape, 8, Order::ColumnMajor, 100).unwrap();
    let window = DiskSchema::chunked(&[40, 10], 8, &[5, 4]).unwrap();
    let dists = "CYCLIC(2),BLOCK".parse().unwrap();
    let distribution = Distribution::new(&shape, &dists, &[2, 2]).unwrap();
    let halves = [0, 6].map(|row| vec![Region::new(&[row, 0], &[6, 10])]);
    let boxes = Boxes::of_lists(&shape, halves.to_vec(), false).unwrap();
    let memories = [MemorySchema::from(distribution), boxes.into()];
    let disks = [chunked, shards, flat, window.window(3..15)];
    let pairs = disks
        .iter()
        .flat_map(|disk| memories.iter().map(move |memory| (disk, memory)));
    let requests = pairs.map(|(disk, memory)| Request {
        operation: Operation::Write,
        strategy: Strategy::default(),
        holders: memory.clone().into(),
        disk: disk.clone(),
        target: vec![1; 9],
        servers: 2,
        sync: true,
        split: None,
        file: None,
        rest: Rest::Fill(vec![1; 8]),
        sifting: None,
    });
    requests.collect()
}

/// Bodies as they should be.
fn proper(chance: &mut Chance) -> Vec<u8> {
    let own = vec![Some(vec![Region::new(&[1, 2], &[3, 4])]), None];
    let proposal = Proposal {
        ask: Vec::new(),
        own_boxes: own,
        own: vec![6; 9],
        complaint: Some(Error::new(Kind::Io, "a", "b")),
    };
    let all = requests();
    let call = CallId {
        party: PartyId(0),
        sequence: 3,
    };
    match chance.below(7) {
        0 => encode(&Proposals::of_rank(1, Ok(proposal))),
        1 => encode(&Verdict::of(Traffic::default())),
        2 => encode(&Outcome::default()),
        3 => encode(&Command::Join(Party::of_standing(
            PartyId(5),
            vec![7, 8, 9],
            vec![0, 1],
        ))),
        4 => encode(&Command::Begin {
            call,
            errand: vec![4; 9],
        }),
        5 => encode(&Command::Answer {
            party: PartyId(5),
            number: 3,
            question: vec![5; 9],
        }),
        _ => encode(&Command::Serve {
            call,
            requests: vec![all[chance.below(all.len())].clone()],
        }),
    }
    .unwrap()
}

/// Makes something else of a body.
fn spoiled(mut body: Vec<u8>, other: &[u8], chance: &mut Chance) -> Vec<u8> {
    for _ in 0..1 + chance.below(3) {
        if body.is_empty() {
            return body;
        }
        let at = chance.below(body.len());
        match chance.below(6) {
            0 => body[at] ^= 1 << chance.below(8),
            1 => body[at] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5)],
            2 => body.truncate(at),
            3 => drop(body.splice(at..at, [0xff; 9])),
            4 => drop(body.splice(at.., other[at.min(other.len())..].iter().copied())),
            _ => drop(body.remove(at)),
        }
    }
    body
}

/// Does with a body what nodes do.
fn hear(body: &[u8], party: &Party) {
    let mine = Proposal {
        ask: Vec::new(),
        own_boxes: Vec::new(),
        own: Vec::new(),
        complaint: None,
    };
    if let Ok(proposals) = decode::<Proposals>(body) {
        let merged = Proposals::of_rank(0, Ok(mine)).merge(proposals);
        let _ = merged.agreed(CLIENTS, difference::<()>);
    }
    let _ = decode::<Verdict>(body);
    if let Ok(outcome) = decode::<Outcome>(body) {
        let full = Traffic {
            blocks: u64::MAX,
            ..Traffic::default()
        };
        let _ = Outcome::of(Ok(full)).merge(outcome);
    }
    let Ok(Command::Serve { requests, .. }) = decode(body) else {
        return;
    };
    if Request::check_all(&requests, party).is_err() {
        return;
    }
    for request in &requests {
        look(request, &Lists::default());
    }
}

/// Hears of a rank's lists, and looks at what they are said to be.
fn hear_of_lists(body: &[u8], requests: &[Request]) {
    let mut lists = Lists::default();
    if lists.take(1, requests, body, |_, _| true).is_ok() {
        look(&requests[0], &lists);
    }
}

fn look(request: &Request, lists: &Lists) {
    let parts = Parts {
        request,
        array: 0,
        lists,
    };
    for block in parts.blocks(0).take(LOOKS_MAX) {
        let Ok(portions) = parts.portions(&block) else {
            continue;
        };
        for portion in portions.iter().take(LOOKS_MAX) {
            assert!(portion.rank < CLIENTS);
            let window = Window::of_block(&block, request.disk.width());
            if matches!(portion.piece, Piece::List(_)) {
                assert!(window.holds(&portion.piece, block.bytes as usize));
            }
        }
    }
}

/// A request of lists, and the message of a rank about its own.
fn lists() -> (Vec<Request>, Vec<u8>) {
    let mut requests = requests();
    requests.truncate(1);
    requests[0].holders = Holders::Lists {
        shape: vec![12, 10],
        ranks: CLIENTS,
    };
    let file = List::concat([
        List::strided(3, 2, &[(9, 11)]).unwrap(),
        List::runs(&[5, 40, 41], &[1, 1, 7]).unwrap(),
    ]);
    let file = file.unwrap();
    let memory = List::runs(&[0], &[file.elements()]).unwrap();
    let own = Holding::new(&file, &memory).unwrap();
    let all = messages(&requests, &[&own], 1, |_, _| 0).unwrap();
    (requests, all.concat())
}

#[test]
fn messages_are_understood_or_refused() {
    let number = |name: &str| {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse::<u64>().unwrap())
    };
    let one = number("PENSTOCK_SEED");
    let until = Instant::now() + Duration::from_secs(number("PENSTOCK_FUZZ_SECONDS").unwrap_or(0));
    let party = party();
    for request in requests() {
        request.check(&party).unwrap();
    }
    let (listed, message) = lists();
    let mut whole = Lists::default();
    whole.take(1, &listed, &message, |_, _| true).unwrap();
    assert!(whole.blocks(0, &listed[0].disk).count() > 3);
    for seed in one.unwrap_or(0).. {
        let ran = std::panic::catch_unwind(|| {
            let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let (body, other) = (proper(chance), proper(chance));
            hear(&spoiled(body, &other, chance), &party);
            hear_of_lists(&spoiled(message.clone(), &other, chance), &listed);
        });
        assert!(ran.is_ok(), "PENSTOCK_SEED={seed}");
        if one.is_some() || (seed >= 20_000 && Instant::now() > until) {
            return;
        }
    }
}
