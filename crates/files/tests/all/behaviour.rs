//! The behaviours that the paper describes, one by one, on a simulated machine.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_engine::{Kind, Operation, Who};
use penstock_files::{FileChange, FilePath, Mode, OpenSubfile, PointerMove, Seek, Version};
use penstock_layout::{SubfileOrder, View};
use penstock_sim::Span;

use crate::simulated::{BOTH, Program, Volume, open, open_in, path};

const OWN: [u64; 4] = [1, 1, 1, 4];
const STRIPED: [u64; 4] = [1, 1, 1, 1];

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 7 % 251) as u8).collect()
}

/// F1 to F5, V2: a file is written through one view and read through others, without any message at
/// open.
#[test]
fn a_file_is_written_and_read_through_views() {
    Volume::default().run(|me| async move {
        let file = me.create("/mesh", 4, 10).await.unwrap();
        let data = numbers(1000);
        let striped = open(&file, STRIPED, 0);
        assert_eq!(me.write(&striped, 0, &data).await.unwrap(), 1000);
        for cell in 0..4 {
            let own = open(&file, OWN, cell);
            let (moved, found) = me.read(&own, 0, 250).await.unwrap();
            let expected: Vec<u8> = data
                .chunks(40)
                .flat_map(|row| row[cell as usize * 10..][..10].to_vec())
                .collect();
            assert_eq!((moved, found), (250, expected));
        }
        let (moved, found) = me.read(&striped, 333, 444).await.unwrap();
        assert_eq!((moved, &found[..]), (444, &data[333..777]));
        let rows = open_in(&file, [2, 1, 1, 1], 0, SubfileOrder::Row);
        assert_eq!(me.read(&rows, 5, 900).await.unwrap().1, data[5..905]);
    });
}

/// V3, V4: ghosts and what is behind the end of a cell are left alone and not counted; holes before
/// the end are zeros and count.
#[test]
fn ghosts_and_holes() {
    Volume::default().run(|me| async move {
        let file = me.create("/short", 3, 4).await.unwrap();
        // Four cells a row, one of them a ghost.
        let view = [1, 1, 2, 2];
        let ghostly = open(&file, view, 1); // cell 2, and a ghost
        let written = me.write(&ghostly, 0, &numbers(32)).await.unwrap();
        assert_eq!(written, 16);
        let (moved, found) = me.read(&ghostly, 0, 32).await.unwrap();
        let expected = |nth: usize| match nth % 8 < 4 {
            true => numbers(32)[nth],
            false => 0xee,
        };
        let expected: Vec<u8> = (0..32).map(expected).collect();
        assert_eq!((moved, found), (16, expected));
        // Far ahead in cell 0.
        let own = open(&file, [1, 1, 1, 3], 0);
        me.write(&own, 1000, b"far").await.unwrap();
        let (moved, found) = me.read(&own, 990, 20).await.unwrap();
        assert_eq!(moved, 13);
        assert_eq!(found[..10], [0; 10]);
        assert_eq!(&found[10..13], b"far");
        assert_eq!(found[13..], [0xee; 7]);
        let bytes = me
            .client()
            .cell_bytes(&file.object, Version::Active)
            .await
            .unwrap();
        assert_eq!(bytes.into_iter().collect::<Vec<_>>(), [(0, 1003), (2, 16)]);
        assert_eq!(me.read(&own, 5000, 9).await.unwrap(), (0, vec![0xee; 9]));
        assert_eq!(me.read(&own, 5, 0).await.unwrap(), (0, vec![]));
    });
}

/// N1, N3, N4, N5: names, directories, renaming, permissions; also with hashes of 4 bits.
#[test]
fn names() {
    for hash_bits in [48, 4] {
        let volume = Volume {
            hash_bits,
            ..Volume::default()
        };
        let left = volume.run(|me| async move {
            let client = me.client();
            let kind = |error: penstock_engine::Error| error.kind;
            client.make_directory(path("/runs"), 0o755).await.unwrap();
            client.make_directory(path("/runs/a"), 0o755).await.unwrap();
            for name in 0..40 {
                let file = me.create(&format!("/runs/a/{name}"), 2, 8).await.unwrap();
                me.write(&open(&file, STRIPED, 0), 0, &[name; 40])
                    .await
                    .unwrap();
            }
            let again = client.make_directory(path("/runs/a"), 0o755).await;
            assert_eq!(again.map_err(kind).unwrap_err(), Kind::Exists);
            let orphan = me.create("/none/b", 1, 1).await;
            assert_eq!(orphan.map_err(kind).unwrap_err(), Kind::Missing);
            let below_file = me.create("/runs/a/1/b", 1, 1).await;
            assert_eq!(below_file.map_err(kind).unwrap_err(), Kind::Schema);
            let full = client.remove(&path("/runs/a")).await;
            assert_eq!(full.map_err(kind).unwrap_err(), Kind::Exists);
            assert_eq!(client.list(&path("/runs/a")).await.unwrap().len(), 40);
            client
                .rename(&path("/runs/a/7"), &path("/runs/seven"))
                .await
                .unwrap();
            client.rename(&path("/runs"), &path("/done")).await.unwrap();
            let gone = client.stat(&path("/runs/a/1")).await;
            assert_eq!(gone.map_err(kind).unwrap_err(), Kind::Missing);
            let onto = client.rename(&path("/done/a/1"), &path("/done/a/2")).await;
            assert_eq!(onto.map_err(kind).unwrap_err(), Kind::Exists);
            let into = client.rename(&path("/done"), &path("/done/a/x")).await;
            assert_eq!(into.map_err(kind).unwrap_err(), Kind::Schema);
            client.remove(&path("/done/a/3")).await.unwrap();
        });
        volume.run_again(left, |me| async move {
            let client = me.client();
            let names = client.list(&path("/done/a")).await.unwrap();
            assert_eq!(names.len(), 38);
            for name in [0, 1, 2, 4, 39] {
                let file = client.attach(&path(&format!("/done/a/{name}")), BOTH).await;
                let read = me
                    .read(&open(&file.unwrap(), STRIPED, 0), 0, 50)
                    .await
                    .unwrap();
                assert_eq!((read.0, &read.1[..40]), (40, &[name; 40][..]));
            }
            let seven = client.attach(&path("/done/seven"), BOTH).await.unwrap();
            let (moved, found) = me.read(&open(&seven, STRIPED, 0), 8, 8).await.unwrap();
            assert_eq!((moved, found), (8, vec![7; 8]));
            client
                .protect(&path("/done/seven"), (Some(0o400), None, None))
                .await
                .unwrap();
            let object = client.stat(&path("/done/seven")).await.unwrap();
            assert_eq!((object.mode, object.owner), (0o400, 1));
        });
    }
}

/// N5: another user.
#[test]
fn permissions_of_other_users() {
    Volume::default().run(|me| async move {
        let file = me.create("/secret", 1, 1).await.unwrap();
        me.client()
            .protect(&path("/secret"), (Some(0o640), None, None))
            .await
            .unwrap();
        let mut other = me;
        other.state.who.user = 7;
        other.state.who.group = 10;
        let only = |reads, writes| Mode {
            reads,
            writes,
            is_reckless: false,
        };
        let client = other.client();
        assert!(
            client
                .attach(&path("/secret"), only(true, false))
                .await
                .is_ok()
        );
        let refused = client
            .attach(&path("/secret"), only(true, true))
            .await
            .unwrap_err();
        assert_eq!(
            (refused.kind, refused.path.as_deref()),
            (Kind::ReadOnly, Some("/secret"))
        );
        let create = client
            .make_directory(path("/mine"), 0o755)
            .await
            .unwrap_err();
        assert_eq!(create.kind, Kind::ReadOnly);
        assert_eq!(
            client.remove(&path("/secret")).await.unwrap_err().kind,
            Kind::ReadOnly
        );
        let protect = client
            .protect(&path("/secret"), (Some(0o777), None, None))
            .await;
        assert_eq!(protect.unwrap_err().kind, Kind::ReadOnly);
        let _ = file;
    });
}

/// S4, S5: a checkpoint, the version it keeps, and rollback; after a restart, too.
#[test]
fn checkpoints() {
    let volume = Volume::default();
    let left = volume.run(|me| async move {
        let file = me.create("/state", 4, 10).await.unwrap();
        let all = open(&file, STRIPED, 0);
        me.write(&all, 0, &[1; 500]).await.unwrap();
        let client = me.client();
        let none = client.change(&path("/state"), FileChange::RollBack).await;
        assert_eq!(none.unwrap_err().kind, Kind::Missing);
        client
            .change(&path("/state"), FileChange::Checkpoint)
            .await
            .unwrap();
        me.write(&all, 100, &[2; 700]).await.unwrap();
        let view = View::striped();
        let kept = OpenSubfile::new(&file, view, 0, SubfileOrder::Block, Version::Checkpoint);
        let kept = kept.unwrap();
        let (moved, found) = me.read(&kept, 0, 800).await.unwrap();
        assert_eq!((moved, &found[..500]), (500, &[1; 500][..]));
        let written = me.write(&kept, 0, &[3]).await.unwrap_err();
        assert_eq!(written.kind, Kind::ReadOnly);
        client.sync(Some(&file)).await.unwrap();
    });
    left.crash();
    volume.run_again(left, |me| async move {
        let client = me.client();
        let file = client.attach(&path("/state"), BOTH).await.unwrap();
        let all = open(&file, STRIPED, 0);
        let (moved, found) = me.read(&all, 0, 900).await.unwrap();
        assert_eq!(
            (moved, &found[..100], &found[100..800]),
            (800, &[1; 100][..], &[2; 700][..])
        );
        client
            .change(&path("/state"), FileChange::RollBack)
            .await
            .unwrap();
        let (moved, found) = me.read(&all, 0, 900).await.unwrap();
        assert_eq!((moved, &found[..500]), (500, &[1; 500][..]));
    });
}

/// N9: all cells are resized; what is cut off is zero when the cells grow again.
#[test]
fn resizing() {
    Volume::default().run(|me| async move {
        let file = me.create("/r", 3, 100).await.unwrap();
        let all = open(&file, STRIPED, 0);
        me.write(&all, 0, &[5; 900]).await.unwrap();
        let client = me.client();
        client
            .change(&path("/r"), FileChange::Resize(130))
            .await
            .unwrap();
        client
            .change(&path("/r"), FileChange::Resize(400))
            .await
            .unwrap();
        let own = open(&file, [1, 1, 1, 3], 2);
        let (moved, found) = me.read(&own, 0, 500).await.unwrap();
        assert_eq!(moved, 400);
        assert_eq!(
            (&found[..130], &found[130..400]),
            (&[5; 130][..], &[0; 270][..])
        );
    });
}

/// A3 to A5: shared pointers, mixed with private ones.
#[test]
fn shared_pointers() {
    let volume = Volume {
        clients: 4,
        ..Volume::default()
    };
    let pointer = Rc::new(Cell::new(None));
    let begins = Rc::new(RefCell::new(Vec::new()));
    let all = begins.clone();
    volume.run(move |me| {
        let (pointer, begins) = (pointer.clone(), begins.clone());
        async move {
            let client = me.client();
            if me.rank == 0 {
                me.create("/log", 4, 8).await.unwrap();
                pointer.set(Some(client.share_pointer(0).await.unwrap()));
            }
            me.meet(4).await;
            let pointer = pointer.get().unwrap();
            let file = client.attach(&path("/log"), BOTH).await.unwrap();
            let all = open(&file, STRIPED, 0);
            for _ in 0..10 {
                let how = PointerMove {
                    seek: Seek::Here,
                    bytes: 24,
                };
                let begin = client.move_pointer(pointer, how).await.unwrap();
                begins.borrow_mut().push(begin);
                me.write(&all, begin, &[me.rank as u8 + 1; 24])
                    .await
                    .unwrap();
            }
            me.meet(8).await;
            let (moved, found) = me.read(&all, 0, 4 * 10 * 24).await.unwrap();
            assert_eq!(moved, 960);
            let counts = (1..=4).map(|rank| found.iter().filter(|&&byte| byte == rank).count());
            assert_eq!(counts.collect::<Vec<_>>(), [240; 4]);
            assert!(
                found
                    .chunks(24)
                    .all(|record| record.iter().all(|byte| *byte == record[0]))
            );
        }
    });
    let mut begins = all.take();
    begins.sort_unstable();
    assert_eq!(begins, (0..40).map(|nth| nth * 24).collect::<Vec<_>>());
}

/// A6: an asynchronous write in cautious mode has its place when the word comes, before its end.
#[test]
fn the_word_comes_before_the_end() {
    Volume::default().run(|me: Program| async move {
        let file = me.create("/async", 3, 64).await.unwrap();
        let all = open(&file, STRIPED, 0);
        for bytes in [10, 3000] {
            let placed = Cell::new(0);
            let memory = Rc::new(RefCell::new(vec![9; bytes]));
            let tell = || placed.set(placed.get() + 1);
            let moved = me
                .access(&all, Operation::Write, 0, &memory, Some(&tell))
                .await;
            assert_eq!((moved.unwrap(), placed.get()), (bytes as u64, 1));
        }
    });
}

/// O4, N2: reckless mode ends when a second program attaches the file, and one of the two writes.
#[test]
fn reckless_programs_become_cautious() {
    Volume::default().run(|mut me| async move {
        me.create("/shared", 3, 16).await.unwrap();
        let reckless = Mode {
            is_reckless: true,
            ..BOTH
        };
        let first = me
            .client()
            .attach(&path("/shared"), reckless)
            .await
            .unwrap();
        let all = open(&first, STRIPED, 0);
        me.write(&all, 0, &[1; 200]).await.unwrap();
        me.state.program = 2;
        let second = me
            .client()
            .attach(&path("/shared"), reckless)
            .await
            .unwrap();
        assert_eq!(me.client().status(&path("/shared")).await.unwrap().len(), 3);
        me.write(&open(&second, STRIPED, 0), 50, &[2; 100])
            .await
            .unwrap();
        me.write(&all, 100, &[3; 100]).await.unwrap();
        let (moved, found) = me.read(&all, 0, 200).await.unwrap();
        let expected = [&[1; 50][..], &[2; 50], &[3; 100]].concat();
        assert_eq!((moved, found), (200, expected));
        me.client().detach(&second).await.unwrap();
        assert_eq!(me.client().status(&path("/shared")).await.unwrap().len(), 2);
    });
}

/// A large access goes straight between memory and blocks; prefetch and flush are asked for.
#[test]
fn large_accesses() {
    let volume = Volume {
        block_bytes: 64 << 10,
        blocks: 400,
        cache_bytes: 256 << 10,
        servers: 2,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let file = me.create("/large", 2, 5000).await.unwrap();
        let all = open(&file, STRIPED, 0);
        let data = numbers(5 << 20);
        me.write(&all, 100, &data).await.unwrap();
        let client = me.client();
        client.flush(&all, 0, 1 << 20).await.unwrap();
        client.prefetch(&all, 0, 300 << 10).await.unwrap();
        let (moved, found) = me.read(&all, 0, (5 << 20) + 200).await.unwrap();
        assert_eq!(moved, (5 << 20) + 100);
        assert_eq!(found[..100], [0; 100]);
        assert!(found[100..][..5 << 20] == data);
        let space = client.space(1).await.unwrap();
        assert_eq!(space.of_user_bytes, 81 * (64 << 10));
        client.remove(&path("/large")).await.unwrap();
        let gone = me.read(&all, 0, 10).await.unwrap_err();
        assert_eq!(gone.kind, Kind::Missing);
        assert_eq!(client.space(1).await.unwrap().used_bytes, 0);
    });
}

/// N6, and a full volume: typed errors, and space comes back.
#[test]
fn a_full_volume_and_a_quota() {
    let volume = Volume {
        blocks: 10,
        servers: 1,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let file = me.create("/big", 1, 64).await.unwrap();
        let all = open(&file, STRIPED, 0);
        me.write(&all, 0, &[1; 9 * 64]).await.unwrap();
        let full = me.write(&all, 9 * 64, &[2; 2 * 64]).await.unwrap_err();
        assert_eq!(full.kind, Kind::Full);
        let client = me.client();
        client
            .change(&path("/big"), FileChange::Resize(64))
            .await
            .unwrap();
        for turn in 0..20 {
            me.write(&all, 0, &[turn; 3 * 64]).await.unwrap();
            client.sync(Some(&file)).await.unwrap();
        }
        client.limit(1, Some(4 * 64)).await.unwrap();
        me.write(&all, 3 * 64, &[4; 64]).await.unwrap();
        let over = me.write(&all, 4 * 64, &[5; 64]).await.unwrap_err();
        assert_eq!(over.kind, Kind::Full);
        me.write(&all, 0, &[6; 4 * 64]).await.unwrap();
        client.limit(1, None).await.unwrap();
        me.write(&all, 4 * 64, &[5; 64]).await.unwrap();
    });
}

/// N6: clients that write to all servers at once get all blocks of the quota together, and none
/// more, wherever they lie; what is freed on one server can be used on another.
#[test]
fn a_quota_holds_for_all_servers_together() {
    for (servers, quota) in [(1, 5), (3, 7), (3, 40), (4, 1), (4, 2), (5, 0)] {
        let volume = Volume {
            servers,
            clients: 3,
            ..Volume::default()
        };
        let written = Rc::new(Cell::new(0));
        let counted = written.clone();
        volume.run(move |me| {
            let written = counted.clone();
            async move {
                let client = me.client();
                if me.rank == 0 {
                    client.limit(1, Some(quota * 64 + 63)).await.unwrap();
                }
                me.meet(3).await;
                // Each client has a file with a cell on each server, and writes a block at a time.
                let name = format!("/f{}", me.rank);
                let file = me.create(&name, servers as u64, 64).await.unwrap();
                for block in 0..4 * servers as u64 {
                    let all = open(&file, STRIPED, 0);
                    match me.write(&all, block * 64, &[1; 64]).await {
                        Ok(_) => written.set(written.get() + 1),
                        Err(error) => assert_eq!(error.kind, Kind::Full, "{error}"),
                    }
                }
                me.meet(6).await;
                let most = quota.min(12 * servers as u64);
                assert_eq!(written.get(), most, "{servers} servers, quota {quota}");
                let space = client.space(1).await.unwrap();
                assert_eq!(space.of_user_bytes, most * 64);
                assert_eq!(space.limit_bytes, Some(quota * 64));
                me.meet(9).await;
                // One client frees all of its blocks, and takes them again in one cell.
                client
                    .change(&path(&name), FileChange::Resize(0))
                    .await
                    .unwrap();
                me.meet(12).await;
                if me.rank == 0 {
                    let cell = open(&file, [1, 1, 1, servers as u64], servers as u64 - 1);
                    let all = vec![2; quota as usize * 64];
                    me.write(&cell, 0, &all).await.unwrap();
                    let over = me.write(&cell, quota * 64, &[3; 1]).await.unwrap_err();
                    assert_eq!(over.kind, Kind::Full);
                    assert!(over.cause.contains(&format!("{quota} blocks")), "{over}");
                    client.limit(1, Some((quota + 2) * 64)).await.unwrap();
                    me.write(&cell, quota * 64, &[3; 128]).await.unwrap();
                    client.limit(1, Some(64)).await.unwrap();
                    me.write(&cell, 0, &all).await.unwrap(); // it has these blocks
                    let over = me
                        .write(&cell, quota * 64 + 128, &[4; 1])
                        .await
                        .unwrap_err();
                    assert_eq!(over.kind, Kind::Full);
                    client.limit(1, None).await.unwrap();
                    me.write(&cell, quota * 64 + 128, &[4; 640]).await.unwrap();
                    assert_eq!(client.space(1).await.unwrap().limit_bytes, None);
                }
            }
        });
    }
}

/// Who has seen that an object is there, or is gone, finds the same in the list of its directory,
/// which another server may keep.
#[test]
fn what_is_seen_is_listed() {
    let volume = Volume {
        clients: 2,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let client = me.client();
        let mut meetings = 0;
        for nth in 0..40 {
            let [old, new] = ["f", "g"].map(|name| format!("{name}{nth}"));
            let [from, to] = [&old, &new].map(|name| path(&format!("/{name}")));
            for (step, seen) in [(0, &old), (1, &new), (2, &old), (3, &new)] {
                let is_there = step < 2;
                meetings += 2;
                if me.rank == 0 {
                    match step {
                        0 => drop(
                            client
                                .create(from.clone(), (1, 1, None), 0o644)
                                .await
                                .unwrap(),
                        ),
                        1 => client.rename(&from, &to).await.unwrap(),
                        2 => {} // it has gone with the renaming
                        _ => client.remove(&to).await.unwrap(),
                    }
                } else {
                    let at = path(&format!("/{seen}"));
                    while client.stat(&at).await.is_ok() != is_there {}
                    let listed = client.list(&FilePath::root()).await.unwrap();
                    let is_listed = listed.iter().any(|(listed, _)| listed == seen);
                    assert_eq!(is_listed, is_there, "{seen}");
                }
                me.meet(meetings).await;
            }
        }
    });
}

/// N3: a directory gets another path while names in it come and go. It moves as a whole, with all
/// names that are in it at that time.
#[test]
fn a_directory_is_renamed_while_names_come_and_go() {
    for seed in 0..20 {
        let volume = Volume {
            seed,
            clients: 4,
            servers: 1 + seed as usize % 4,
            hash_bits: if seed % 3 == 0 { 4 } else { 48 },
            ..Volume::default()
        };
        let expected = Rc::new(RefCell::new(Vec::new()));
        let told = expected.clone();
        let renames = Rc::new(Cell::new(0));
        let counted = renames.clone();
        volume.run(move |me| {
            let (told, renames) = (told.clone(), counted.clone());
            async move {
                let client = me.client();
                let places = ["/here", "/there"];
                if me.rank == 0 {
                    let made = client.make_directory(path(places[0]), 0o755);
                    made.await.unwrap();
                }
                me.meet(4).await;
                for nth in 0..60 {
                    if me.rank == 0 {
                        let [from, to] = match client.stat(&path(places[0])).await {
                            Ok(_) => [places[0], places[1]],
                            Err(_) => [places[1], places[0]],
                        };
                        match client.rename(&path(from), &path(to)).await {
                            Ok(()) => renames.set(renames.get() + 1),
                            Err(error) => assert_eq!(error.kind, Kind::Busy, "{error}"),
                        }
                        continue;
                    }
                    let name = format!("{}-{nth}", me.rank);
                    let mut is_done = false;
                    for at in places.iter().cycle().take(40) {
                        let at = path(&format!("{at}/{name}"));
                        let made = match nth % 4 {
                            0 => client.make_directory(at, 0o755).await,
                            _ => client.create(at, (1, 1, None), 0o644).await,
                        };
                        match made {
                            Ok(_) => is_done = true,
                            Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
                        }
                        if is_done {
                            break;
                        }
                    }
                    if !is_done || nth % 3 > 0 {
                        told.borrow_mut().extend(is_done.then_some(name));
                        continue;
                    }
                    for at in places.iter().cycle() {
                        match client.remove(&path(&format!("{at}/{name}"))).await {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
                        }
                    }
                }
                me.meet(8).await;
                if me.rank == 0 {
                    let mut listed = Vec::new();
                    for at in places {
                        let Ok(entries) = client.list(&path(at)).await else {
                            continue;
                        };
                        for (name, _) in entries {
                            client.stat(&path(&format!("{at}/{name}"))).await.unwrap();
                            listed.push(name);
                        }
                    }
                    told.borrow_mut().sort();
                    listed.sort();
                    assert_eq!(listed, *told.borrow());
                }
            }
        });
        assert!(renames.get() > 0);
        assert!(expected.borrow().len() > 10);
    }
}

/// F4: one request attaches a file for all clients; all of them hear of what is wrong with one.
#[test]
fn clients_attach_a_file_together() {
    let volume = Volume {
        clients: 4,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let client = me.client();
        if me.rank == 0 {
            client
                .create(path("/f"), (4, 8, None), 0o644)
                .await
                .unwrap();
        }
        me.meet(4).await;
        let file = client.attach_all(Ok(path("/f")), BOTH).await.unwrap();
        let own = open(&file, [1, 1, 1, 4], me.rank as u64);
        assert_eq!(me.write(&own, 0, &[me.rank as u8; 8]).await.unwrap(), 8);
        me.meet(8).await;
        let attached = client.status(&path("/f")).await.unwrap();
        let mut nodes: Vec<_> = attached.iter().map(|one| one.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), 4);
        me.meet(12).await;
        client.detach(&file).await.unwrap();
        me.meet(16).await;
        assert!(client.status(&path("/f")).await.unwrap().is_empty());

        let missing = client
            .attach_all(Ok(path("/none")), BOTH)
            .await
            .unwrap_err();
        assert_eq!(missing.kind, Kind::Missing);
        let other = ["/f", "/none"][usize::from(me.rank == 2)];
        let differ = client.attach_all(Ok(path(other)), BOTH).await.unwrap_err();
        assert_eq!(
            (differ.kind, differ.who),
            (Kind::Mismatch, Some(Who::Rank(2)))
        );
        let given = match me.rank {
            3 => FilePath::new("no path"),
            _ => Ok(path("/f")),
        };
        let wrong = client.attach_all(given, BOTH).await.unwrap_err();
        assert_eq!(wrong.who, Some(Who::Rank(3)));
        assert_eq!(client.agree(Ok(me.rank as u64)).await.unwrap(), 6);
    });
}

/// S2: a server that is idle writes changed blocks: who saves after that only waits for the
/// records.
#[test]
fn an_idle_server_writes_changed_blocks() {
    let volume = Volume {
        servers: 1,
        cache_bytes: 64 * 100,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let file = me.create("/f", 1, 64).await.unwrap();
        let all = open(&file, STRIPED, 0);
        let mut times = Vec::new();
        for idle in [0.0, 500_000.0] {
            for block in 0..50 {
                me.write(&all, block * 64, &[7; 32]).await.unwrap(); // never full
            }
            me.node.sleep(Span::from_us_f64(idle)).await;
            let before = me.node.time();
            me.client().sync(Some(&file)).await.unwrap();
            times.push((me.node.time() - before).as_ps());
        }
        assert!(times[1] < times[0] / 4, "{times:?}");
        let (_, found) = me.read(&all, 49 * 64, 32).await.unwrap();
        assert_eq!(found, [7; 32]);
    });
}

/// S2: where hardly any block is clean, changed ones are written before anybody needs their room.
#[test]
fn changed_blocks_go_before_there_is_no_room() {
    let volume = Volume {
        servers: 1,
        cache_bytes: 64 * 16,
        ..Volume::default()
    };
    volume.run(|me| async move {
        let file = me.create("/f", 1, 64).await.unwrap();
        let all = open(&file, STRIPED, 0);
        let write = async |blocks: std::ops::Range<u64>| {
            let before = me.node.time();
            for block in blocks {
                me.write(&all, block * 64, &[7; 32]).await.unwrap();
            }
            (me.node.time() - before).as_ps()
        };
        let few = write(0..14).await;
        write(14..16).await; // now two must go, and do
        me.node.sleep(Span::from_us_f64(60_000.0)).await; // too short to be idle
        let next = write(16..18).await;
        assert!(next < few, "{next} for 2 blocks, {few} for 14");
    });
}

/// A2: an access takes the messages that its plan names, in both modes.
#[test]
fn an_access_takes_the_messages_of_its_plan() {
    for is_reckless in [false, true] {
        for (cells, bytes) in [(1, 200), (2, 16), (5, 8), (5, 24), (5, 400)] {
            for operation in [Operation::Read, Operation::Write] {
                let counted = |accesses: usize| {
                    let volume = Volume {
                        servers: 4,
                        ..Volume::default()
                    };
                    let planned = Rc::new(Cell::new(0));
                    let told = planned.clone();
                    let left = volume.run(move |me| {
                        let told = told.clone();
                        async move {
                            let client = me.client();
                            let shape = (cells, 8, Some(1));
                            client.create(path("/f"), shape, 0o644).await.unwrap();
                            let mode = Mode {
                                is_reckless,
                                ..BOTH
                            };
                            let file = client.attach(&path("/f"), mode).await.unwrap();
                            let all = open(&file, STRIPED, 0);
                            for _ in 0..accesses {
                                let plan = client.explain(&all, operation, (0, bytes)).unwrap();
                                told.set(told.get() + plan.messages());
                                let memory = Rc::new(RefCell::new(vec![1; bytes as usize]));
                                let moved = me.access(&all, operation, 0, &memory, None);
                                moved.await.unwrap();
                            }
                        }
                    });
                    (planned.get() as u64, left.totals().messages)
                };
                let (_, without) = counted(0);
                let (planned, with) = counted(6);
                assert_eq!(planned, with - without, "{cells} cells, {operation:?}");
            }
        }
    }
}

/// N9: a resize needs a place for the last block that it cuts. Where there is none, or the block
/// cannot be read, nothing is changed, and the volume is as good as before.
#[test]
fn a_resize_without_space_changes_nothing() {
    for has_quota in [false, true] {
        let volume = Volume {
            blocks: if has_quota { 100 } else { 8 },
            servers: 2,
            ..Volume::default()
        };
        let left = volume.run(move |me| async move {
            let client = me.client();
            let file = me.create("/f", 2, 64).await.unwrap();
            let all = open(&file, STRIPED, 0);
            let data: Vec<u8> = (0..16 * 64).map(|n| (n % 251) as u8).collect();
            if has_quota {
                client.limit(1, Some(16 * 64)).await.unwrap();
            }
            me.write(&all, 0, &data).await.unwrap();
            client.sync(Some(&file)).await.unwrap();
            if has_quota {
                client
                    .change(&path("/f"), FileChange::Checkpoint)
                    .await
                    .unwrap();
            }
            for bytes in [100, 7 * 64 + 1] {
                let full = client
                    .change(&path("/f"), FileChange::Resize(bytes))
                    .await
                    .unwrap_err();
                assert_eq!(full.kind, Kind::Full);
                assert_eq!(me.read(&all, 0, 2000).await.unwrap().1[..1024], data);
            }
            for bytes in [7 * 64, 6 * 64] {
                client
                    .change(&path("/f"), FileChange::Resize(bytes))
                    .await
                    .unwrap();
            }
            let cut = client.change(&path("/f"), FileChange::Resize(100)).await;
            assert_eq!(cut.is_ok(), !has_quota, "the checkpoint has all blocks");
        });
        left.check();
        volume.run_again(left, |me| async move {
            let client = me.client();
            client.limit(1, None).await.unwrap();
            client
                .change(&path("/f"), FileChange::Resize(70))
                .await
                .unwrap();
        });
    }
}
