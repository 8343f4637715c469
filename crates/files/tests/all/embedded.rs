//! A volume in one process, on real files, used by several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_engine::{Kind, Operation, Result};
use penstock_files::disk::{CreateOptions, create};
use penstock_files::job::{FileSystem, JobOptions, Memory, Moving, OpenView, embedded};
use penstock_files::{FileChange, FilePath, Mode, Seek, Version};
use penstock_layout::{SubfileOrder, View};

const BOTH: Mode = Mode {
    reads: true,
    writes: true,
    is_reckless: false,
};

fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

fn volume(servers: usize) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let template = directory.path().join("v.vol").display().to_string();
    let options = CreateOptions {
        capacity: Some(32 << 20),
        ..CreateOptions::new(servers)
    };
    create(&template, &options).unwrap();
    (directory, template)
}

fn mount(template: &str) -> FileSystem {
    embedded(template, None, &JobOptions::default(), None).unwrap()
}

fn view_of(fs: &FileSystem, name: &str, view: [u64; 4], number: u64) -> OpenView {
    let file = fs.attach(path(name), BOTH).unwrap();
    let view = View::try_from(view).unwrap();
    let opened = file.open(view, number, SubfileOrder::Block, Version::Active, None);
    opened.unwrap()
}

fn write(view: &OpenView, offset: u64, data: &[u8]) -> Result<u64> {
    // SAFETY: the data outlive the call, and a write only reads them.
    let memory = unsafe { Memory::new(data.as_ptr().cast_mut(), data.len() as u64, None) };
    Ok(view.access(Operation::Write, offset, memory)?.bytes)
}

fn read(view: &OpenView, offset: u64, bytes: usize) -> Result<(u64, Vec<u8>)> {
    let mut data = vec![0xee; bytes];
    // SAFETY: the data outlive the call, and nobody else uses them.
    let memory = unsafe { Memory::new(data.as_mut_ptr(), bytes as u64, None) };
    let moved = view.access(Operation::Read, offset, memory)?;
    assert_eq!(moved.bytes, moved.reach, "no holes at the end of a cell");
    Ok((moved.bytes, data))
}

fn begin_write(view: &OpenView, offset: u64, data: Vec<u8>) -> Moving {
    let mut data = data.into_boxed_slice();
    let (base, bytes) = (data.as_mut_ptr(), data.len() as u64);
    // SAFETY: the box goes along.
    let memory = unsafe { Memory::new(base, bytes, Some(Box::new(data))) };
    view.begin(Operation::Write, offset, memory).unwrap()
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 % 253) as u8).collect()
}

#[test]
fn what_was_written_is_there_when_the_volume_is_opened_again() {
    let (_directory, template) = volume(4);
    let data = numbers(3_000_000);
    let fs = mount(&template);
    assert_eq!((fs.servers(), fs.block_bytes()), (4, 64 << 10));
    fs.make_directory(path("/runs"), 0o755).unwrap();
    fs.create(path("/runs/mesh"), (8, 4096, None), 0o644)
        .unwrap();
    let all = view_of(&fs, "/runs/mesh", [1, 1, 1, 1], 0);
    assert_eq!(write(&all, 5, &data).unwrap(), data.len() as u64);
    fs.change(path("/runs/mesh"), FileChange::Checkpoint)
        .unwrap();
    assert_eq!(write(&all, 0, &[9; 100]).unwrap(), 100);
    let busy = embedded(&template, None, &JobOptions::default(), None);
    assert_eq!(busy.err().unwrap().kind, Kind::Busy);
    drop(all);
    fs.close().unwrap();

    let fs = mount(&template);
    let (object, cells) = fs.stat(path("/runs/mesh")).unwrap();
    assert_eq!((object.checkpoints, cells.len()), (1, 8));
    assert_eq!(cells.values().sum::<u64>(), data.len() as u64 + 5);
    let all = view_of(&fs, "/runs/mesh", [1, 1, 1, 1], 0);
    let (moved, found) = read(&all, 0, data.len() + 10).unwrap();
    assert_eq!(moved, data.len() as u64 + 5);
    assert!(found[..100] == [9; 100] && found[100..data.len() + 5] == data[95..]);
    fs.change(path("/runs/mesh"), FileChange::RollBack).unwrap();
    let (_, found) = read(&all, 0, 100).unwrap();
    assert!(found[..5] == [0; 5] && found[5..] == data[..95]);
    let names: Vec<String> = fs
        .list(path("/runs"))
        .unwrap()
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert_eq!(names, ["mesh"]);
    fs.close().unwrap();
}

/// A5, A6: threads with views of their own, asynchronous requests, and one shared pointer.
#[test]
fn threads_use_one_file_system() {
    let (_directory, template) = volume(3);
    let fs = mount(&template);
    fs.create(path("/log"), (4, 512, None), 0o644).unwrap();
    let threads = 4;
    let pointer = view_of(&fs, "/log", [1, 1, 1, 1], 0).share().unwrap();
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (fs, total) = (&fs, &total);
            scope.spawn(move || {
                let file = fs.attach(path("/log"), BOTH).unwrap();
                let shared = file
                    .open(
                        View::striped(),
                        0,
                        SubfileOrder::Block,
                        Version::Active,
                        Some(pointer),
                    )
                    .unwrap();
                let mut under_way = Vec::new();
                for _ in 0..50 {
                    let offset = shared.advance(Seek::Here, 1000).unwrap();
                    under_way.push(begin_write(&shared, offset, vec![thread + 1; 1000]));
                }
                for moving in under_way {
                    total.fetch_add(moving.end().unwrap().bytes, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(total.into_inner(), u64::from(threads) * 50_000);
    let all = view_of(&fs, "/log", [1, 1, 1, 1], 0);
    let (moved, found) = read(&all, 0, 200_000).unwrap();
    assert_eq!(moved, 200_000);
    for thread in 1..=threads {
        assert_eq!(found.iter().filter(|&&byte| byte == thread).count(), 50_000);
    }
    assert!(
        found
            .chunks(1000)
            .all(|record| record.iter().all(|byte| *byte == record[0]))
    );
    drop(all);
    fs.close().unwrap();
}

/// A block whose bytes have changed on disk is found, named, and never served.
#[test]
fn a_damaged_block_is_not_served() {
    let (directory, template) = volume(1);
    let fs = mount(&template);
    fs.create(path("/f"), (1, 4096, None), 0o644).unwrap();
    let all = view_of(&fs, "/f", [1, 1, 1, 1], 0);
    write(&all, 0, &numbers(200_000)).unwrap();
    drop(all);
    fs.close().unwrap();
    let blocks = directory.path().join("v.vol/server-0/blocks-0");
    let stored = std::fs::read(&blocks).unwrap();
    let place = stored
        .windows(64)
        .position(|some| some == &numbers(64)[..])
        .unwrap();
    let file = std::fs::File::options().write(true).open(&blocks).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55], place as u64 + 10).unwrap();
    let fs = mount(&template);
    let all = view_of(&fs, "/f", [1, 1, 1, 1], 0);
    let error = read(&all, 0, 100).unwrap_err();
    assert_eq!(error.kind, Kind::Damaged);
    assert!(error.to_string().contains("checksum"), "{error}");
    let (moved, found) = read(&all, 100_000, 1000).unwrap();
    assert!(moved == 1000 && found[..] == numbers(101_000)[100_000..]);
}

#[test]
fn a_volume_that_is_not_there() {
    let options = JobOptions::default();
    let missing = embedded("/nowhere/at/all.vol", None, &options, None)
        .err()
        .unwrap();
    assert_eq!(missing.kind, Kind::Missing);
    let (_directory, template) = volume(2);
    let other = embedded(&template, Some(3), &options, None).err().unwrap();
    assert!(other.kind == Kind::Schema && other.to_string().contains("2 servers"));
    let fs = Arc::new(mount(&template));
    let none = fs.attach(path("/none"), BOTH).err().unwrap();
    assert_eq!(none.kind, Kind::Missing);
}
