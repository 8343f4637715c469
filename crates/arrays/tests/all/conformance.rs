//! One body for every machine: for any schemas, the bytes that all ranks write together are on disk
//! as a naive model says, and any other distribution reads them back.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-arrays --test
//! conformance` runs that one alone.

use std::path::Path;

use crate::cases::*;
use penstock_arrays::ArraySchema;
use penstock_arrays::calls::Session;
use penstock_arrays::calls::array::{ArrayCall, Memory};
use penstock_arrays::calls::settings::SessionOptions;

/// Writes by one schema and reads by another, on this rank of any machine.
fn body(session: &Session, directory: &Path, seed: u64) {
    let chance = &mut Chance(seed);
    let (rank, ranks) = (session.rank().unwrap(), session.clients() as u64);
    let dims = chance.below(4);
    let shape: Vec<u64> = (0..dims)
        .map(|_| chance.one_of(&[1, 2, 3, 5, 7, 11, 13, 0]))
        .collect();
    let element = chance.one_of(&elements());
    let mut schema = ArraySchema::new("u", &shape, element.clone(), disk(chance, &shape));
    schema.fill = fill(chance, &element);
    let target = directory.join(format!("target-{seed}"));
    let call = |memory: Memory| ArrayCall {
        schema: schema.clone(),
        memory,
    };

    let written = call(memory(chance, &shape, rank as u64, ranks));
    let (bytes, locals) = local_arrays(&written, rank, true);
    let before = bytes.clone();
    session
        .write(&target, written.clone(), locals, None)
        .unwrap();
    assert_eq!(bytes, before, "a write changed what it wrote");

    let wanted = call(memory(chance, &shape, rank as u64, ranks));
    let (bytes, locals) = local_arrays(&wanted, rank, false);
    session.read(&target, wanted.clone(), locals, None).unwrap();
    check_locals(&wanted, rank, &bytes, &held(&written, ranks));
}

#[test]
fn threads() {
    for seed in seeds(240) {
        let chance = &mut Chance(!seed);
        let ranks = 1 + chance.below(5) as usize;
        let options = SessionOptions {
            servers: chance.one_of(&[None, Some(1), Some(2), Some(7)]),
            dedicated: chance.below(2) == 0,
            sync: chance.below(2) == 0,
            block_bytes: chance.one_of(&[1, 16, 100, 1 << 20]),
            ..SessionOptions::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let all_well = on_threads(ranks, &options, |session| body(session, path, seed));
        assert!(all_well, "PENSTOCK_SEED={seed}: {ranks} ranks, {options:?}");
    }
}
