//! A faulty medium is as slow as its options say, and fails at the named calls, with the errors of
//! a failing device.

use crate::cases;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::testing::Faults;
use penstock_arrays::{ElementType, Format, Keys, Pending, Storage, StoredArray};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde_json::{Value, json};

fn faults(json: Value) -> Faults {
    serde_json::from_value(json).unwrap()
}

/// A write of an array of 8 blocks of 10,000 bytes, with a faulty medium.
struct Case {
    place: tempfile::TempDir,
    pending: Pending,
    disk: DiskSchema,
    blocks: Vec<Block>,
}

impl Case {
    fn new(disk: Storage) -> Self {
        let place = place();
        let schema = schema(&[80, 125], ElementType::F8, disk);
        let pending = Pending::create(&place.path().join("u"), &schema, Keys::Nested).unwrap();
        let disk = schema.disk_schema(10_000).unwrap();
        let blocks: Vec<Block> = disk.blocks(0, 1).collect();
        assert_eq!(blocks.len(), 8);
        Self {
            place,
            pending,
            disk,
            blocks,
        }
    }

    fn medium(&self, json: Value) -> Result<Arc<dyn Medium>> {
        let target = self.pending.target();
        let medium = target.open_write(&self.disk).unwrap();
        faults(json).around(medium, target, &self.disk)
    }
}

fn forms() -> Vec<Storage> {
    vec![
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[8]),
        chunks(&[10, 125], None, "none"),
        chunks(&[10, 125], None, "zstd:1"),
        chunks(&[20, 125], Some(&[10, 125]), "none"),
    ]
}

/// The seconds that `act` takes.
fn seconds(act: impl FnOnce()) -> f64 {
    let start = Instant::now();
    act();
    start.elapsed().as_secs_f64()
}

/// The most attempts before a late medium counts as slow: the machine may be busy.
const ATTEMPTS: usize = 8;

/// Checks that an attempt never takes less than `expected` and, once in several attempts, a quarter
/// more at most.
fn takes_about(expected: f64, mut attempt: impl FnMut() -> f64) {
    let mut all = Vec::new();
    while all.iter().all(|passed| *passed > expected * 1.25) {
        assert!(all.len() < ATTEMPTS, "{all:?} s instead of {expected}");
        let passed = attempt();
        assert!(
            passed > expected * 0.999,
            "{passed} s instead of {expected}"
        );
        all.push(passed);
    }
}

#[test]
fn the_rate_is_kept_by_calls_of_any_size() {
    let case = Case::new(flat(Format::Raw));
    let mut data = vec![1; 10_000];
    takes_about(1.0, || {
        let medium = case.medium(json!({"bytes_per_second": 320_000.0})).unwrap();
        let cpu = cpu_seconds(libc::CLOCK_THREAD_CPUTIME_ID);
        // 160 kB go in blocks and 160 kB in parts of 100 bytes, and each sleeps too long.
        let passed = seconds(|| {
            for block in &case.blocks {
                medium.write(block, &data).unwrap();
                medium.read(block, &mut data).unwrap();
            }
            for block in &case.blocks {
                for part in 0..100 {
                    let part = part as usize * 100..(part as usize + 1) * 100;
                    medium
                        .write_part(block, part.start as u64, &data[part.clone()])
                        .unwrap();
                    medium
                        .read_part(block, part.start as u64, &mut data[part])
                        .unwrap();
                }
            }
            medium.finish(true).unwrap();
        });
        assert!(cpu_seconds(libc::CLOCK_THREAD_CPUTIME_ID) - cpu < 0.5);
        passed
    });
}

#[test]
fn two_threads_share_a_medium_and_two_media_do_not() {
    for (media, expected) in [(1, 1.0), (2, 0.5)] {
        takes_about(expected, || {
            let case = Case::new(flat(Format::Raw));
            let rate = json!({"bytes_per_second": 160_000.0});
            let first = case.medium(rate.clone()).unwrap();
            let second = match media {
                1 => first.clone(),
                _ => case.medium(rate).unwrap(),
            };
            seconds(|| {
                std::thread::scope(|scope| {
                    for medium in [&first, &second] {
                        let blocks = &case.blocks;
                        scope.spawn(move || {
                            for block in blocks {
                                medium.write(block, &vec![1; 10_000]).unwrap();
                            }
                        });
                    }
                });
            })
        });
    }
}

#[test]
fn idle_time_is_not_saved_and_finish_waits() {
    let case = Case::new(flat(Format::Raw));
    let block = &case.blocks[0];
    let rate = json!({"bytes_per_second": 50_000});
    takes_about(0.2, || {
        let medium = case.medium(rate.clone()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        seconds(|| medium.write(block, &[1; 10_000]).unwrap())
    });
    // Another thread's write is under way: the finish waits for it.
    takes_about(0.2, || {
        let medium = case.medium(rate.clone()).unwrap();
        seconds(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| medium.write(block, &[1; 10_000]).unwrap());
                std::thread::sleep(Duration::from_millis(50));
                medium.finish(true).unwrap();
            });
        })
    });
}

/// Writes and reads all blocks and finishes, and gives the result of each call.
fn answers(case: &Case, medium: &dyn Medium) -> Vec<Result<()>> {
    let data = vec![1; 10_000];
    let mut back = vec![0; 10_000];
    let mut answers = Vec::new();
    answers.extend(case.blocks.iter().map(|block| medium.write(block, &data)));
    answers.extend(
        case.blocks
            .iter()
            .map(|block| medium.read(block, &mut back)),
    );
    answers.push(medium.finish(true));
    answers
}

/// The only error, and the number of its call, from 1: 8 writes, 8 reads, finish.
fn only_error(answers: Vec<Result<()>>) -> (usize, Error) {
    let numbered = answers.into_iter().enumerate();
    let mut errors: Vec<_> = numbered
        .filter_map(|(at, answer)| Some((at + 1, answer.err()?)))
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn a_fault_meets_the_call_it_names_and_no_other() {
    for disk in forms() {
        for (operation, nth, error, call, kind) in [
            ("write", 1, "EIO", 1, Kind::Io),
            ("write", 3, "ENOSPC", 3, Kind::Full),
            ("write", 8, "short", 8, Kind::Full),
            ("read", 1, "EIO", 9, Kind::Io),
            ("read", 8, "short", 16, Kind::Damaged),
            ("finish", 1, "EIO", 17, Kind::Io),
            ("finish", 1, "ENOSPC", 17, Kind::Full),
        ] {
            let case = Case::new(disk.clone());
            let faults = json!({"faults": [{"operation": operation, "nth": nth, "error": error}]});
            let medium = case.medium(faults).unwrap();
            let (at, error) = only_error(answers(&case, &*medium));
            assert_eq!((at, error.kind), (call, kind), "{disk:?}: {error}");
            let path = error.path.as_ref().unwrap();
            assert!(std::path::Path::new(path).exists() || at < 9, "{error}");
            let as_it_is = !matches!(&disk, Storage::Chunks { subchunks, codec, .. }
                if subchunks.is_some() || codec != "none");
            assert_eq!(error.bytes.is_some(), as_it_is && call < 17, "{error}");
        }
    }
}

/// The error has the path and bytes that the medium below would name.
#[test]
fn the_error_is_that_of_the_medium_below() {
    for disk in forms().into_iter().take(4) {
        let case = Case::new(disk.clone());
        let faults = json!({"faults": [{"operation": "read", "nth": 6, "error": "short"}]});
        let medium = case.medium(faults).unwrap();
        let data = vec![1; 10_000];
        case.blocks
            .iter()
            .for_each(|block| medium.write(block, &data).unwrap());
        let mut back = vec![0; 10_000];
        let mut reads = case
            .blocks
            .iter()
            .map(|block| medium.read(block, &mut back));
        let error = reads.find_map(Result::err).unwrap();
        drop(reads);
        let path = error.path.clone().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(error.bytes.clone().unwrap().start + 1)
            .unwrap();
        let real = medium.read(&case.blocks[5], &mut back).unwrap_err();
        let cause = format!("the file is cut short: it has {bytes} bytes");
        assert_eq!(error, Error { cause, ..real }, "{disk:?}");
    }
}

#[test]
fn parts_count_as_calls_and_name_their_bytes() {
    let case = Case::new(flat(Format::Npy));
    let faults = json!({"faults": [
        {"operation": "write", "nth": 2, "error": "ENOSPC"},
        {"operation": "read", "nth": 2, "error": "EIO"},
    ]});
    let medium = case.medium(faults).unwrap();
    let (block, mut data) = (&case.blocks[1], vec![1; 80]);
    medium.write_part(block, 0, &data).unwrap();
    let full = medium.write_part(block, 160, &data).unwrap_err();
    medium.write_part(block, 160, &data).unwrap();
    medium.read(&case.blocks[0], &mut vec![0; 10_000]).unwrap();
    let io = medium.read_part(block, 160, &mut data).unwrap_err();
    let bytes = 128 + 10_000 + 160;
    assert_eq!(
        (full.kind, full.bytes),
        (Kind::Full, Some(bytes..bytes + 80))
    );
    assert_eq!((io.kind, io.bytes), (Kind::Io, Some(bytes..bytes + 80)));
    let real = std::io::Error::from_raw_os_error(libc::ENOSPC);
    assert_eq!(full.cause, real.to_string());
    assert_eq!(full.doing, "writing");
}

#[test]
fn of_a_short_write_half_arrives() {
    for disk in forms() {
        let case = Case::new(disk);
        let faults = json!({"faults": [{"operation": "write", "nth": 1, "error": "short"}]});
        let medium = case.medium(faults).unwrap();
        let block = &case.blocks[0];
        medium.write(block, &[1; 10_000]).unwrap_err();
        let mut back = vec![9; 10_000];
        medium.read(block, &mut back).unwrap();
        let arrived = if medium.moves_parts() { 4992 } else { 0 };
        assert!(back[..arrived].iter().all(|byte| *byte == 1));
        assert!(back[arrived..].iter().all(|byte| *byte == 0));
        // A full or broken device has taken nothing, and later calls are unharmed.
        medium.write(block, &[2; 10_000]).unwrap();
        medium.read(block, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 2));
    }
}

#[test]
fn opening_fails_too() {
    let case = Case::new(flat(Format::Raw));
    let faults = json!({"faults": [{"operation": "open", "nth": 1, "error": "EIO"}]});
    let error = case.medium(faults).err().unwrap();
    assert_eq!((error.kind, error.doing.as_str()), (Kind::Io, "opening"));
    assert!(error.path.is_some());
}

#[test]
fn no_fault_changes_nothing() {
    for disk in forms() {
        let place = place();
        let schema = schema(&[80, 125], ElementType::F8, disk);
        let values = values(&schema, 1);
        let (path, plain) = (place.path().join("u"), place.path().join("plain"));
        let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
        let blocks = schema.disk_schema(10_000).unwrap();
        let below = pending.target().open_write(&blocks).unwrap();
        let medium = faults(json!({}))
            .around(below.clone(), pending.target(), &blocks)
            .unwrap();
        assert_eq!(medium.moves_parts(), below.moves_parts());
        for block in blocks.blocks(0, 1) {
            let data = gather(&block, &values, &schema.shape, 8);
            medium.write(&block, &data).unwrap();
        }
        medium.finish(true).unwrap();
        pending.commit(true).unwrap();
        write(&plain, &schema, &values).unwrap();
        assert_eq!(read(&path).unwrap(), values);
        assert!(StoredArray::open(&plain, None).is_ok());
    }
}

/// What stands in the files of checksums: 8 bytes a chunk.
fn sums_in(path: &Path) -> Vec<(String, Vec<u8>)> {
    let is_of_sums = |name: &str| name.ends_with("/sums/u") || name.ends_with("/u/.sums");
    let all = snapshot(path).into_iter();
    all.filter(|(name, _)| is_of_sums(name)).collect()
}

/// The wrapper passes on what the one below has made.
#[test]
fn a_group_saved_under_faults_has_its_checksums() {
    let place = place();
    for (name, faults) in [
        ("none", None),
        ("slow", Some(faults(json!({"bytes_per_second": 1e9})))),
        ("later", {
            let late = json!({"operation": "write", "nth": 1000, "error": "EIO"});
            Some(faults(json!({"faults": [late]})))
        }),
    ] {
        let path = place.path().join(name);
        let options = SessionOptions {
            faults,
            ..SessionOptions::default()
        };
        let disk = chunks(&[2, 3], None, "zstd:1");
        let array = schema(&[4, 3], ElementType::F8, disk);
        let bytes = cases::save_group(&path, &array, &options);
        let sums = bytes.chunks(2 * 3 * 8).map(crc32c::crc32c);
        let expected: Vec<u8> = sums
            .flat_map(|sum| ((1_u64 << 32) + u64::from(sum)).to_le_bytes())
            .collect();
        let found = sums_in(&path);
        assert_eq!(found.len(), 2, "of timesteps and of the checkpoint: {name}");
        for (file, sums) in found {
            assert_eq!(sums, expected, "{name}: {file}");
        }
    }
}

#[test]
fn a_null_medium_keeps_nothing() {
    for form in forms() {
        let case = Case::new(form.clone());
        let medium = case.medium(json!({"null": true})).unwrap();
        for block in &case.blocks {
            medium.write(block, &vec![7; block.bytes as usize]).unwrap();
            let mut read = vec![5; block.bytes as usize];
            medium.read(block, &mut read).unwrap();
            assert!(read.iter().all(|&byte| byte == 5), "{form:?}");
            if medium.moves_parts() {
                medium.write_part(block, 16, &[7; 32]).unwrap();
                let mut part = [5; 32];
                medium.read_part(block, 16, &mut part).unwrap();
                assert_eq!(part, [5; 32], "{form:?}");
            }
        }
        medium.finish(true).unwrap();
        let path = case.place.path().join("u");
        case.pending.commit(true).unwrap();
        // The array exists, but is all zeros: nothing has reached its files.
        let values = read(&path).unwrap();
        assert!(values.iter().all(|&byte| byte == 0), "{form:?}");
    }
}

/// A null medium is as slow as its options say, and fails at the named calls.
#[test]
fn a_null_medium_fails_all_the_same() {
    let case = Case::new(flat(Format::Raw));
    let slow = case.medium(json!({"null": true, "bytes_per_second": 400_000}));
    let slow = slow.unwrap();
    let data = vec![1; 10_000];
    let took = seconds(|| {
        for block in &case.blocks {
            slow.write(block, &data).unwrap();
        }
    });
    assert!(took >= 0.2 * 0.999, "{took} s");
    let fault = json!({"operation": "write", "nth": 2, "error": "ENOSPC"});
    let failing = case
        .medium(json!({"null": true, "faults": [fault]}))
        .unwrap();
    failing.write(&case.blocks[0], &data).unwrap();
    let error = failing.write(&case.blocks[1], &data).unwrap_err();
    assert_eq!(error.kind, Kind::Full);
    failing.write(&case.blocks[2], &data).unwrap();
}

#[test]
fn what_means_nothing_is_refused() {
    for json in [
        json!({"bytes_per_second": 0}),
        json!({"bytes_per_second": -1.0}),
        json!({"faults": [{"operation": "write", "nth": 0, "error": "EIO"}]}),
        json!({"faults": [{"operation": "finish", "nth": 1, "error": "short"}]}),
    ] {
        let error = Case::new(flat(Format::Raw)).medium(json).err().unwrap();
        assert_eq!(error.kind, Kind::Schema);
    }
    for json in [
        json!({"bytes_a_second": 1}),
        json!({"faults": [{"operation": "write", "nth": 1, "error": "EPERM"}]}),
        json!({"faults": [{"operation": "write", "error": "EIO"}]}),
    ] {
        assert!(serde_json::from_value::<Faults>(json).is_err());
    }
}
