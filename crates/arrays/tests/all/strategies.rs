//! Every strategy stores the same bytes, file by file, and reads the arrays of all others: random
//! schemas on a machine of threads, with caches so small that blocks are written before they are
//! full, read back, and written again.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-arrays --test
//! strategies` runs that one alone.

use crate::common;
use std::collections::HashMap;
use std::path::Path;

use crate::cases::*;
use crate::common::{chunks, flat, parts, place, schema, snapshot};
use penstock_arrays::calls::Session;
use penstock_arrays::calls::array::{ArrayCall, Memory};
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::strategy::{Tuning, WORDS, named};
use penstock_arrays::{ArraySchema, ElementType, Fill, Format, Storage};
use penstock_engine::{Error, Kind, Operation, Result, Strategy};
use penstock_layout::Region;

/// Whether two ranks hold elements of one chunk that must be written whole.
fn is_shared(written: &ArrayCall, ranks: u64) -> bool {
    let is_zarr = matches!(written.schema.disk, Storage::Chunks { .. });
    if !is_zarr || written.schema.disk.writes_parts() {
        return false;
    }
    let disk = written.schema.disk_schema(1).unwrap();
    let mut holders: HashMap<Vec<u64>, u64> = HashMap::new();
    let owners = owners(written, ranks);
    owners.iter().enumerate().any(|(number, owner)| {
        let (mut rest, mut place) = (number as u64, Vec::new());
        for (d, extent) in written.schema.shape.iter().enumerate().rev() {
            place.push(disk.object_span(rest % extent, d).0);
            rest /= extent;
        }
        owner.is_some_and(|owner| *holders.entry(place).or_insert(owner) != owner)
    })
}

fn write(session: &Session, path: &Path, call: &ArrayCall, strategy: Strategy) -> Result<()> {
    let (bytes, locals) = local_arrays(call, session.rank().unwrap(), true);
    let before = bytes.clone();
    let written = session.write(path, call.clone(), locals, Some(strategy));
    assert_eq!(bytes, before, "a write changed what it wrote");
    written.map(|_| ())
}

/// Writes by every strategy, compares, and reads by every strategy.
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
    let tuning = Tuning {
        buffers_per_client: 1,
        staging_bytes: chance.one_of(&[1, 200, 1 << 20]),
    };
    let call = |memory: Memory| ArrayCall {
        schema: schema.clone(),
        memory,
    };
    let written = call(memory(chance, &shape, rank as u64, ranks));
    let wanted = call(memory(chance, &shape, rank as u64, ranks));
    let held = held(&written, ranks);

    for word in WORDS {
        let strategy = named(word, &tuning).unwrap();
        let ended = write(session, &directory.join(word).join("u"), &written, strategy);
        let is_listed = matches!(written.memory, Memory::List { .. });
        let writes_whole = is_listed && !schema.disk.writes_parts();
        if word == "independent" && (writes_whole || is_shared(&written, ranks)) {
            let refusals = match writes_whole {
                true => Kind::Unsupported,
                false => Kind::Schema,
            };
            assert_eq!(ended.unwrap_err().kind, refusals);
            if rank == 0 {
                assert_eq!(
                    snapshot(&directory.join(word)).len(),
                    1,
                    "something is left"
                );
            }
            continue;
        }
        let fills = !schema.fill.is_zero() && !matches!(schema.disk, Storage::Chunks { .. });
        if fills && matches!(word, "independent" | "caching") {
            assert_eq!(ended.unwrap_err().kind, Kind::Unsupported);
            continue;
        }
        ended.unwrap();
        if rank == 0 {
            let [expected, found] = [WORDS[0], word].map(|word| snapshot(&directory.join(word)));
            let names = |all: &[(String, Vec<u8>)]| -> Vec<String> {
                all.iter().map(|(name, _)| name.clone()).collect()
            };
            assert_eq!(names(&found), names(&expected), "{word}: other files");
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{word}: {name} is different");
            }
        }
    }
    session.barrier().unwrap();
    for word in WORDS {
        let strategy = named(word, &tuning).unwrap();
        let (bytes, locals) = local_arrays(&wanted, rank, false);
        let target = directory.join(WORDS[0]).join("u");
        let read = session.read(&target, wanted.clone(), locals, Some(strategy));
        read.unwrap_or_else(|error| panic!("{word}: {error}"));
        check_locals(&wanted, rank, &bytes, &held);
    }
}

#[test]
fn all_store_the_same_bytes() {
    for seed in seeds(300) {
        let chance = &mut Chance(!seed);
        let ranks = 1 + chance.below(8) as usize;
        let options = SessionOptions {
            servers: chance.one_of(&[None, Some(1), Some(2), Some(3), Some(ranks + 2)]),
            dedicated: chance.below(2) == 0,
            sync: chance.below(4) == 0,
            block_bytes: chance.one_of(&[16, 40, 100, 1 << 20]),
            ..SessionOptions::default()
        };
        let directory = place();
        let path = directory.path();
        for word in WORDS {
            std::fs::create_dir(path.join(word)).unwrap();
        }
        let all_well = on_threads(ranks, &options, |session| body(session, path, seed));
        assert!(all_well, "PENSTOCK_SEED={seed}: {ranks} ranks, {options:?}");
    }
}

/// An array whose rows two ranks hold in turn.
fn rows(schema: &ArraySchema) -> ArrayCall {
    ArrayCall {
        schema: schema.clone(),
        memory: Memory::Distribution {
            dists: "CYCLIC,*".parse().unwrap(),
            mesh: vec![2],
            halo: vec![(0, 0); 2],
        },
    }
}

/// The error that all ranks get, with the same text.
fn told(ranks: usize, call: impl Fn(&Session) -> Result<()> + Sync) -> Error {
    let met = std::sync::Mutex::new(Vec::new());
    let all_well = on_threads(ranks, &SessionOptions::default(), |session| {
        let error = call(session).unwrap_err();
        met.lock().unwrap().push(error);
        session.barrier().unwrap();
    });
    assert!(all_well);
    let mut met = met.into_inner().unwrap();
    assert!(met.iter().all(|error| *error == met[0]), "{met:?}");
    met.remove(0)
}

#[test]
fn independent_writers_never_share_what_is_written_whole() {
    let directory = place();
    let path = directory.path().join("u");
    for (disk, is_refused) in [
        (chunks(&[2, 3], None, "zstd"), true),
        (chunks(&[2, 3], None, "crc32c"), true),
        (chunks(&[4, 6], Some(&[1, 3]), "none"), true),
        (chunks(&[1, 6], Some(&[1, 3]), "none"), false),
        (chunks(&[1, 6], None, "zstd"), false),
        (chunks(&[2, 3], None, "none"), false),
        (flat(Format::Raw), false),
        (flat(Format::Npy), false),
        (parts("BLOCK,*", &[3]), false),
    ] {
        let schema = schema(&[8, 6], ElementType::F8, disk);
        let attempt = |session: &Session| {
            let call = rows(&schema);
            write(session, &path, &call, Strategy::Independent)
        };
        if is_refused {
            let error = told(2, attempt);
            assert_eq!(error.kind, Kind::Schema);
            for word in ["ranks 0 and 1", "chunk [0, 0]"] {
                assert!(error.cause.contains(word), "{error}");
            }
            let explained = told(2, |session| {
                let call = rows(&schema);
                let by = Some(Strategy::Independent);
                let explained = session.explain(&path, &call, Operation::Write, by);
                explained.map(|_| ())
            });
            assert_eq!(explained, error);
            assert!(!path.exists());
            continue;
        }
        assert!(on_threads(2, &SessionOptions::default(), |session| {
            attempt(session).unwrap();
        }));
        let _ = std::fs::remove_dir_all(&path);
        let _ = std::fs::remove_file(&path);
    }
}

/// Two ranks make one chunk at the same time, many times: what fills it undoes nothing.
#[test]
fn a_chunk_that_two_ranks_make_keeps_the_elements_of_both() {
    let directory = place();
    let path = directory.path().join("u");
    let mut schema = schema(&[8, 6], ElementType::F8, chunks(&[9, 7], None, "none"));
    schema.fill = Fill::new(&ElementType::F8, &7f64.to_ne_bytes()).unwrap();
    let options = SessionOptions {
        sync: false,
        block_bytes: 48,
        ..SessionOptions::default()
    };
    assert!(on_threads(2, &options, |session| {
        let (call, rank) = (rows(&schema), session.rank().unwrap());
        for round in 0..400 {
            let word = ["independent", "two-phase"][round % 2];
            let by = named(word, &Tuning::default()).unwrap();
            write(session, &path, &call, by).unwrap();
            let (bytes, locals) = local_arrays(&call, rank, false);
            session.read(&path, call.clone(), locals, None).unwrap();
            check_locals(&call, rank, &bytes, &held(&call, 2));
        }
    }));
}

#[test]
fn ranks_that_choose_otherwise_are_told() {
    let directory = place();
    let path = directory.path().join("u");
    let schema = schema(&[8, 6], ElementType::F8, flat(Format::Npy));
    let error = told(2, |session| {
        let rank = session.rank().unwrap();
        let by = named(["two-phase:4", "caching"][rank], &Tuning::default()).unwrap();
        write(session, &path, &rows(&schema), by)
    });
    assert_eq!(error.kind, Kind::Mismatch);
    for word in ["rank 0", "two-phase:4", "rank 1", "caching"] {
        assert!(error.cause.contains(word), "{error}");
    }
}

/// Every strategy finds the same damage, on all ranks, and goes on.
#[test]
fn damage_is_found_by_every_strategy() {
    for (disk, file) in [
        (chunks(&[4, 3], None, "none"), "u/u/c/1/1"),
        (chunks(&[4, 3], None, "zstd"), "u/u/c/1/1"),
        (chunks(&[8, 6], Some(&[4, 3]), "crc32c"), "u/u/c/0/0"),
        (flat(Format::Npy), "u"),
        (parts("BLOCK,*", &[3]), "u/u.0001"),
    ] {
        let directory = place();
        let path = directory.path().join("u");
        let schema = schema(&[8, 6], ElementType::F8, disk);
        assert!(on_threads(2, &SessionOptions::default(), |session| {
            let call = rows(&schema);
            write(session, &path, &call, Strategy::default()).unwrap();
        }));
        let file = directory.path().join(file);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 5]).unwrap();
        for word in WORDS {
            let error = told(2, |session| {
                let rank = session.rank().unwrap();
                let call = rows(&schema);
                let (_bytes, locals) = local_arrays(&call, rank, false);
                let by = named(word, &Tuning::default()).unwrap();
                session.read(&path, call, locals, Some(by)).map(|_| ())
            });
            assert_eq!(error.kind, Kind::Damaged, "{word}: {error}");
            assert_eq!(error.path.as_deref(), file.to_str(), "{word}");
        }
    }
}

/// Elements in the gaps between boxes are zero, and not remains of other blocks.
#[test]
fn gaps_between_boxes_are_zero() {
    let directory = place();
    let disks = [
        flat(Format::Raw),
        chunks(&[3, 4], None, "zstd"),
        chunks(&[3, 4], None, "none"),
    ];
    for (at, disk) in disks.into_iter().enumerate() {
        let schema = schema(&[6, 4], ElementType::I4, disk);
        for word in WORDS {
            let path = directory.path().join(format!("{word}-{at}"));
            assert!(on_threads(2, &SessionOptions::default(), |session| {
                let rank = session.rank().unwrap();
                // Rows 0 and 4; the second chunk belongs to rank 1 alone, the first to rank 0.
                let own = Region::new(&[4 * rank as u64, 0], &[1, 4]);
                let call = ArrayCall {
                    schema: schema.clone(),
                    memory: Memory::Boxes {
                        own: vec![own],
                        halo: vec![(0, 0); 2],
                        is_region: false,
                    },
                };
                let by = named(word, &Tuning::default()).unwrap();
                // Another write comes first, so that buffers are not fresh.
                let other = rows(&schema);
                let other_path = directory.path().join("other");
                write(session, &other_path, &other, Strategy::default()).unwrap();
                write(session, &path, &call, by).unwrap();
            }));
            let values = common::read(&path).unwrap();
            for (row, bytes) in values.chunks(16).enumerate() {
                let is_held = row == 0 || row == 4;
                assert_eq!(
                    bytes.iter().any(|byte| *byte != 0),
                    is_held,
                    "{word}, row {row}"
                );
            }
        }
        let _ = std::fs::remove_dir_all(directory.path().join("other"));
        let _ = std::fs::remove_file(directory.path().join("other"));
    }
}
