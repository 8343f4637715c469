//! Checks and mendings of volumes: each record of a healthy volume is damaged in each way, which is
//! found, and mended without the loss of data.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures::executor::block_on;
use penstock_engine::encoding::{decode, encode};
use penstock_files::fsck::{Finding, Layout, ServerRecords, check, mend};
use penstock_files::placement::Placement;
use penstock_files::{FileChange, ObjectKind, RecordStore};

use crate::simulated::{self, Left, Program, Volume, open, path};

const DATA: [&str; 3] = ["/runs/mesh", "/runs/deep/grid", "/top"];

/// Makes a volume with directories, files, a checkpoint and a quota.
fn healthy(servers: usize) -> Left {
    let volume = Volume {
        servers,
        ..Volume::default()
    };
    volume.run(|me: Program| async move {
        let client = me.client();
        for directory in ["/runs", "/runs/deep", "/runs/deep/empty"] {
            client.make_directory(path(directory), 0o755).await.unwrap();
        }
        for (nth, name) in DATA.into_iter().enumerate() {
            let file = me.create(name, 5, 16).await.unwrap();
            let all = open(&file, [1, 1, 1, 1], 0);
            me.write(&all, 0, &content(nth)).await.unwrap();
            if nth == 1 {
                let client = me.client();
                client
                    .change(&path(name), FileChange::Checkpoint)
                    .await
                    .unwrap();
                me.write(&all, 100, &[9; 300]).await.unwrap();
            }
            me.client().sync(Some(&file)).await.unwrap();
            me.client().detach(&file).await.unwrap();
        }
        client.limit(7, Some(1 << 20)).await.unwrap();
    })
}

fn content(nth: usize) -> Vec<u8> {
    (0..2000 + nth).map(|n| (n * 7 % 251) as u8).collect()
}

fn findings(layout: &Layout, records: &[ServerRecords]) -> Vec<Finding> {
    check(layout, records).findings
}

fn mended(layout: &Layout, records: &[ServerRecords]) -> Vec<ServerRecords> {
    let mending = mend(layout, records, 1).unwrap();
    assert_eq!(
        mending.left,
        [],
        "what is left of {:?}",
        findings(layout, records)
    );
    let mut mended = Vec::new();
    for (records, changes) in records.iter().zip(mending.changes) {
        let mut map: BTreeMap<_, _> = records.iter().cloned().collect();
        for (key, value) in changes {
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => assert!(map.remove(&key).is_some(), "nothing to remove"),
            }
        }
        mended.push(map.into_iter().collect::<Vec<_>>());
    }
    assert_eq!(findings(layout, &mended), []);
    let again = mend(layout, &mended, 2).unwrap();
    assert!(again.changes.iter().all(Vec::is_empty), "a second mending");
    mended
}

/// The bytes of all blocks that records name: places and checksums, over all servers.
fn blocks(records: &[ServerRecords]) -> BTreeSet<(usize, u64, u32)> {
    let leaves = records.iter().enumerate().flat_map(|(server, records)| {
        let leaves = records.iter().filter(|(key, _)| key[0] == LEAF);
        leaves.map(move |(_, value)| (server, value))
    });
    let mut all = BTreeSet::new();
    for (server, value) in leaves {
        let (active, kept): LeafRecord = decode(value).unwrap();
        for entries in [Some(active), kept].into_iter().flatten() {
            all.extend(entries.values().map(|&(place, sum)| (server, place, sum)));
        }
    }
    all
}

/// A leaf as it is stored: the entries of the active version, and those of the checkpoint where
/// they are others; each has a place and a checksum.
type LeafRecord = (Entries, Option<Entries>);
type Entries = BTreeMap<u8, (u64, u32)>;

/// The first bytes of the keys of records.
const NUMBERS: u8 = 0;
const OBJECT: u8 = 1;
const ENTRY: u8 = 2;
const FILE: u8 = 3;
const CELL: u8 = 4;
const LEAF: u8 = 5;

fn volumes() -> impl Iterator<Item = (Layout, Vec<ServerRecords>)> {
    [1, 3].into_iter().map(|servers| {
        let left = healthy(servers);
        (left.layout().clone(), left.all_records())
    })
}

#[test]
fn a_healthy_volume_has_no_findings_and_right_numbers() {
    for (layout, records) in volumes() {
        let report = check(&layout, &records);
        assert_eq!(report.findings, []);
        assert_eq!(report.transactions, []);
        let numbers = report.numbers;
        assert_eq!((numbers.directories, numbers.files), (4, 3));
        assert_eq!(numbers.blocks, blocks(&records).len() as u64);
        let places: u64 = layout.places.iter().sum();
        assert_eq!(numbers.blocks + numbers.free, places);
        let mending = mend(&layout, &records, 1).unwrap();
        assert!(mending.changes.iter().all(Vec::is_empty));
    }
    let new = vec![Vec::new(); 3];
    let (layout, _) = volumes().last().unwrap();
    assert_eq!(findings(&layout, &new), []);
}

/// Each record alone is lost: that is found, but for records that say nothing, and mended, and all
/// blocks are still there.
#[test]
fn a_lost_record_is_found_and_mended() {
    for (layout, records) in volumes() {
        for server in 0..records.len() {
            for nth in 0..records[server].len() {
                let mut damaged = records.clone();
                let (key, value) = damaged[server].remove(nth);
                let found = findings(&layout, &damaged);
                let is_needed = match key[0] {
                    LEAF => false, // what was never written reads as zeros
                    NUMBERS..=CELL => true,
                    _ => records.len() > 1, // a quota, which all servers have
                };
                if key[0] == FILE || key[0] == CELL || is_needed && key[0] != NUMBERS {
                    assert!(!found.is_empty(), "{key:?} {value:?}");
                }
                let after = mended(&layout, &damaged);
                assert_eq!(blocks(&after), blocks(&damaged), "{key:?}: {found:?}");
            }
        }
    }
}

/// Each record alone is another server's, or its key or its value is no record: that is found and
/// mended.
#[test]
fn a_record_that_is_elsewhere_or_unreadable_is_found_and_mended() {
    for (layout, records) in volumes() {
        for server in 0..records.len() {
            for nth in 0..records[server].len() {
                let mut damaged = records.clone();
                damaged[server][nth].1.push(0);
                let found = findings(&layout, &damaged);
                let is_unreadable = |f: &Finding| matches!(f, Finding::UnreadableRecord { .. });
                assert!(found.iter().any(is_unreadable), "{found:?}");
                mended(&layout, &damaged);

                let mut damaged = records.clone();
                damaged[server][nth].0[0] = 77;
                assert!(findings(&layout, &damaged).iter().any(is_unreadable));
                mended(&layout, &damaged);

                let other = (server + 1) % records.len();
                let mut damaged = records.clone();
                let record = damaged[server].remove(nth);
                let is_moved = other != server && (OBJECT..=CELL).contains(&record.0[0]);
                if is_moved && damaged[other].iter().all(|(key, _)| *key != record.0) {
                    damaged[other].push(record.clone());
                    assert_ne!(findings(&layout, &damaged), [], "{record:?}");
                    let after = mended(&layout, &damaged);
                    assert_eq!(blocks(&after), blocks(&damaged));
                }
            }
        }
    }
}

/// Changes records of one kind, one after the other; each change is found and mended.
fn change_each(kind: u8, change: impl Fn(&mut Vec<u8>, &mut Vec<u8>) -> bool) -> Vec<Finding> {
    let mut all = Vec::new();
    for (layout, records) in volumes() {
        for server in 0..records.len() {
            for nth in 0..records[server].len() {
                let mut damaged = records.clone();
                let (key, value) = &mut damaged[server][nth];
                if key[0] != kind || !change(key, value) {
                    continue;
                }
                let found = findings(&layout, &damaged);
                assert_ne!(found, [], "{kind}: {:?}", damaged[server][nth]);
                for finding in &found {
                    assert!(!finding.to_string().is_empty());
                }
                let known: Vec<_> = records.iter().map(Vec::len).collect();
                let after = mended(&layout, &damaged);
                assert!(!after.is_empty(), "{known:?}");
                all.extend(found);
            }
        }
    }
    assert_ne!(all, [], "nothing was changed");
    all
}

/// The record of a file on a server: owner, whether there is a checkpoint, the time of the last
/// write, and the placement.
type FileRecord = (u32, bool, u64, Placement);

#[test]
fn a_file_that_is_another_users_on_a_server_is_found() {
    let found = change_each(FILE, |_, value| {
        let (owner, kept, written, placement): FileRecord = decode(value).unwrap();
        *value = encode(&(owner + 1, kept, written, placement)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::WrongOwner { .. }))
    );
}

#[test]
fn a_checkpoint_on_some_cells_is_found() {
    let is_uneven = |f: &Finding| matches!(f, Finding::UnevenCheckpoint { .. });
    let found = change_each(FILE, |_, value| {
        let (owner, kept, written, placement): FileRecord = decode(value).unwrap();
        *value = encode(&(owner, !kept, written, placement)).unwrap();
        true
    });
    assert!(found.iter().all(is_uneven));
    let found = change_each(CELL, |_, value| {
        let (bytes, kept): (u64, Option<u64>) = decode(value).unwrap();
        let kept = kept.is_none().then_some(bytes);
        *value = encode(&(bytes, kept)).unwrap();
        true
    });
    assert!(found.iter().any(is_uneven));
}

#[test]
fn blocks_behind_the_end_and_cells_too_long_are_found() {
    let found = change_each(CELL, |_, value| {
        let (bytes, kept): (u64, Option<u64>) = decode(value).unwrap();
        *value = encode(&(bytes - bytes % 64 - 64, kept)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::BlockBehindEnd(_)))
    );
    let found = change_each(CELL, |_, value| {
        let (_, kept): (u64, Option<u64>) = decode(value).unwrap();
        *value = encode(&(u64::MAX, kept)).unwrap();
        true
    });
    assert!(found.iter().all(|f| matches!(f, Finding::LongCell { .. })));
}

#[test]
fn cells_that_their_file_does_not_have_are_kept_aside() {
    let found = change_each(CELL, |key, _| {
        let (kind, id, _): (u8, u64, u64) = decode(key).unwrap();
        *key = encode(&(kind, id, 999u64)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .any(|f| matches!(f, Finding::StrayCells { .. }))
    );
}

#[test]
fn places_that_are_not_there_or_shared_are_found() {
    let found = change_each(LEAF, |_, value| {
        let (mut active, kept): LeafRecord = decode(value).unwrap();
        active.values_mut().next().unwrap().0 = 1 << 40;
        *value = encode(&(active, kept)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::PlaceOutside { .. }))
    );
    let found = change_each(LEAF, |_, value| {
        let (mut active, kept): LeafRecord = decode(value).unwrap();
        let first = active.values().next().unwrap().0;
        let mut others = active.values_mut().skip(1);
        let Some(other) = others.next() else {
            return false;
        };
        other.0 = first;
        *value = encode(&(active, kept)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::SharedPlace { .. }))
    );
}

/// A shared place is copied, so that both blocks have their bytes if both had the same.
#[test]
fn a_shared_place_is_copied_to_a_free_one() {
    let (layout, mut records) = volumes().next().unwrap();
    let leaf = records[0]
        .iter_mut()
        .find(|(key, _)| key[0] == LEAF)
        .unwrap();
    let (mut active, kept): LeafRecord = decode(&leaf.1).unwrap();
    let first = active[&0];
    *active.get_mut(&1).unwrap() = first;
    leaf.1 = encode(&(active, kept)).unwrap();
    let mending = mend(&layout, &records, 1).unwrap();
    let [copy] = mending.copies[..] else {
        panic!("{:?}", mending.copies);
    };
    assert_eq!((copy.server, copy.from), (0, first.0));
    let used = blocks(&records);
    assert!(used.iter().all(|(_, place, _)| *place != copy.to));
}

#[test]
fn entries_that_lead_elsewhere_are_found() {
    let found = change_each(ENTRY, |_, value| {
        let (id, is_xref): (u64, bool) = decode(value).unwrap();
        *value = encode(&(id + 1, is_xref)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::WrongEntry { .. }))
    );
    change_each(ENTRY, |_, value| {
        let (id, is_xref): (u64, bool) = decode(value).unwrap();
        *value = encode(&(id, !is_xref)).unwrap();
        true
    });
    let found = change_each(ENTRY, |key, _| {
        let (kind, id, name): (u8, u64, String) = decode(key).unwrap();
        *key = encode(&(kind, id, format!("{name}~"))).unwrap();
        true
    });
    let are_found = |f: &Finding| matches!(f, Finding::MissingObject { .. });
    assert!(found.iter().any(are_found));
    let found = change_each(ENTRY, |key, _| {
        let (kind, _, name): (u8, u64, String) = decode(key).unwrap();
        *key = encode(&(kind, 12345u64, name)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .any(|f| matches!(f, Finding::StrayEntry { .. }))
    );
}

#[test]
fn objects_where_their_hash_does_not_lead_are_found() {
    let found = change_each(OBJECT, |key, _| {
        let (kind, hash, uniquifier): (u8, u64, u16) = decode(key).unwrap();
        *key = encode(&(kind, hash ^ 1, uniquifier)).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::MisplacedObject { .. }))
    );
}

#[test]
fn numbers_that_a_server_would_use_again_are_found() {
    let found = change_each(NUMBERS, |_, value| {
        *value = encode(&1u64).unwrap();
        true
    });
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Finding::UsedNumber { .. }))
    );
}

/// Records go in great numbers: whatever is left, it is mended, and no block is lost.
#[test]
fn whatever_is_left_is_mended() {
    for (layout, records) in volumes() {
        for seed in 0..200u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut chance = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % 100
            };
            let share = [3, 20, 60][seed as usize % 3];
            let damaged: Vec<ServerRecords> = records
                .iter()
                .map(|records| {
                    let mut left = records.clone();
                    left.retain(|_| chance() >= share);
                    left
                })
                .collect();
            let after = mended(&layout, &damaged);
            assert_eq!(blocks(&after), blocks(&damaged), "seed {seed}");
        }
    }
}

/// Files by their paths, each with its bytes.
type Contents = Vec<(String, Vec<u8>)>;

/// A mended volume serves: files whose directories are gone are read where they have come to.
#[test]
fn a_mended_volume_serves() {
    let left = healthy(3);
    let layout = left.layout().clone();
    let records = left.all_records();
    let is_runs = |(key, value): &(Vec<u8>, Vec<u8>)| {
        key[0] == OBJECT && value.windows(6).any(|w| w == b"\x05/runs")
    };
    let mut damaged = records.clone();
    for records in &mut damaged {
        records.retain(|record| !is_runs(record));
    }
    assert_ne!(damaged, records);
    let found = findings(&layout, &damaged);
    assert!(
        found
            .iter()
            .any(|f| matches!(f, Finding::MissingParent { .. })),
        "{found:?}"
    );
    let after = mended(&layout, &damaged);
    left.put_records(after);
    let volume = Volume::default();
    let seen: Rc<RefCell<Contents>> = Rc::default();
    let all = seen.clone();
    volume.run_again(left, move |me| {
        let seen = all.clone();
        async move {
            let client = me.client();
            let mut waiting = vec![path("/")];
            while let Some(directory) = waiting.pop() {
                for (name, _) in client.list(&directory).await.unwrap() {
                    let object = client.stat(&directory.join(&name).unwrap()).await.unwrap();
                    if object.kind == ObjectKind::Xref {
                        waiting.push(object.path);
                        continue;
                    }
                    let name = object.path.to_string();
                    let file = client.attach(&object.path, simulated::BOTH).await.unwrap();
                    let all = open(&file, [1, 1, 1, 1], 0);
                    let (moved, mut data) = me.read(&all, 0, 3000).await.unwrap();
                    data.truncate(moved as usize);
                    seen.borrow_mut().push((name, data));
                }
            }
        }
    });
    let seen = seen.borrow();
    let names: Vec<&str> = seen.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        names
            .iter()
            .any(|name| name.ends_with("/grid") && name.starts_with("/lost+found/"))
    );
    let data: BTreeSet<&Vec<u8>> = seen.iter().map(|(_, data)| data).collect();
    assert!(data.contains(&content(0)) && data.contains(&content(2)));
}

/// On real disks: a damaged block is found by its checksum, and records are mended in place.
#[test]
fn a_volume_on_disk_is_checked_and_mended() {
    use penstock_files::disk::{CreateOptions, create, open as open_disk};
    use penstock_files::fsck::{FsckOptions, fsck_volume};
    use penstock_files::job::{JobOptions, Memory, embedded};
    use penstock_files::{Mode, Version};
    use penstock_layout::{SubfileOrder, View};

    let directory = tempfile::tempdir().unwrap();
    let template = directory.path().join("v").display().to_string();
    let options = CreateOptions {
        block_bytes: 4096,
        capacity: Some(1 << 20),
        ..CreateOptions::new(2)
    };
    create(&template, &options).unwrap();
    let fsck = |reads_data, mends| {
        let options = FsckOptions { reads_data, mends };
        fsck_volume(&template, &options, &mut |_, _| Ok(()))
    };
    assert_eq!(fsck(true, false).unwrap().report.findings, []);
    let fs = embedded(&template, None, &JobOptions::default(), None).unwrap();
    fs.create(path("/f"), (2, 4096, Some(0)), 0o644).unwrap();
    let mode = Mode {
        reads: true,
        writes: true,
        is_reckless: false,
    };
    let file = fs.attach(path("/f"), mode).unwrap();
    let all = (View::striped(), 0, SubfileOrder::Block, Version::Active);
    let view = file.open(all.0, all.1, all.2, all.3, None).unwrap();
    let data = vec![5u8; 40960];
    // SAFETY: the data outlive the call, and a write only reads them.
    let memory = unsafe { Memory::new(data.as_ptr().cast_mut(), data.len() as u64, None) };
    view.access(penstock_engine::Operation::Write, 0, memory)
        .unwrap();
    assert_eq!(
        fsck(false, false).unwrap_err().kind,
        penstock_engine::Kind::Busy
    );
    fs.close().unwrap();
    drop((view, file, fs));
    let report = fsck(true, false).unwrap().report;
    assert_eq!((report.findings.len(), report.numbers.read), (0, 10));
    // A bit flips.
    let blocks = std::path::Path::new(&template).join("server-1/blocks-0");
    let mut bytes = std::fs::read(&blocks).unwrap();
    let at = bytes.iter().position(|&byte| byte == 5).unwrap();
    bytes[at] = 4;
    std::fs::write(&blocks, bytes).unwrap();
    assert_eq!(fsck(false, false).unwrap().report.findings, []);
    let found = fsck(true, false).unwrap().report.findings;
    let [Finding::DamagedBlock { block, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&block.file[..], block.cell, block.server), ("/f", 1, 1));
    // The object of the file goes.
    for server in 0..2 {
        let disk = open_disk(&template, server).unwrap();
        let records = block_on(disk.records.load()).unwrap();
        let is_file = |value: &[u8]| value.windows(2).any(|w| w == b"/f");
        let mut gone = records.into_iter();
        let gone = gone.find(|(key, value)| key[0] == OBJECT && is_file(value));
        if let Some((key, _)) = gone {
            block_on(disk.records.commit(vec![(key, None)])).unwrap();
        }
    }
    let checked = fsck(false, true).unwrap();
    assert!(!checked.report.findings.is_empty());
    assert_eq!(checked.mended.unwrap().findings, []);
    let fs = embedded(&template, None, &JobOptions::default(), None).unwrap();
    assert!(
        fs.list(path("/"))
            .unwrap()
            .iter()
            .any(|(name, _)| name == "lost+found")
    );
    let lost = fs.list(path("/lost+found")).unwrap();
    let (object, cells) = fs
        .stat(path(&format!("/lost+found/{}", lost[0].0)))
        .unwrap();
    assert_eq!(object.shape().unwrap().cells, 2);
    assert_eq!(cells.values().sum::<u64>(), 40960);
    fs.close().unwrap();
}
