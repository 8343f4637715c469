//! Devices: who shares a worker, and in which order a device serves blocks.

use crate::cases;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use penstock_arrays::calls::ArrayPart;
use penstock_arrays::calls::array::LocalPart;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::testing::Faults;
use penstock_arrays::{ArraySchema, ElementType, Format, StoredArray, Target};
use penstock_engine::{Access, BlockFile, Machine, Opening, Operation, Result};
use penstock_layout::{Block, DiskSchema, Region};
use penstock_machines::disk::extents::Extents;
use penstock_machines::{BlockSieve, ClientMemory, DeviceId, Medium, Opener, Threads, no_sieve};

/// The bytes of a block of the tests: large, since file systems keep small files in order.
const BLOCK_BYTES: u64 = 1 << 20;
/// The files that are made until one is not in order.
const ATTEMPTS: usize = 6;

/// The number of workers in this process.
fn workers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.flatten().filter_map(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.ok() // the thread may have ended meanwhile
    });
    names.filter(|name| name.starts_with("disk-")).count()
}

/// A store that is written, of elements of a byte.
fn stored(path: &Path, disk: penstock_arrays::Storage) -> Vec<u8> {
    let schema = schema(&[96, 8], ElementType::U1, disk);
    let values = values(&schema, 7);
    write_pending(path, &schema, &values, 1)
        .unwrap()
        .commit(true)
        .unwrap();
    values
}

/// Opens an array and reads all of it, by itself and then in parts.
fn read_open(session: &penstock_arrays::calls::Session, path: &Path, values: &[u8]) {
    let open = session.open_array(path, None, false).unwrap();
    for rows in [0..96, 10..11, 40..96] {
        let mut bytes = vec![0; 8 * rows.clone().count()];
        let local = LocalPart {
            memory: ClientMemory {
                base: bytes.as_mut_ptr(),
                extents: vec![rows.end - rows.start, 8],
                strides: vec![8, 1],
                width: 1,
            },
            element: ElementType::U1,
            is_writable: true,
        };
        let part = ArrayPart::Box(Region::new(&[rows.start, 0], &[rows.end - rows.start, 8]));
        session
            .move_part(&open, Operation::Read, &part, local)
            .unwrap();
        assert!(bytes == values[8 * rows.start as usize..8 * rows.end as usize]);
    }
    std::mem::forget(open); // the session closes it
}

#[test]
fn a_device_of_a_server_has_one_worker_for_all_open_files() {
    in_own_process(
        "devices::a_device_of_a_server_has_one_worker_for_all_open_files",
        a_device_of_a_server_has_one_worker_for_all_open_files_alone,
    );
}

fn a_device_of_a_server_has_one_worker_for_all_open_files_alone() {
    let (here, other) = (place(), disk_place());
    let other = other.filter(|other| {
        let is_other = DeviceId::of(other.path()) != DeviceId::of(here.path());
        if !is_other {
            println!("skipped: one device only, {}", here.path().display());
        }
        is_other
    });
    let disks = [
        chunks(&[4, 6], None, "zstd:1"),
        flat(Format::Raw),
        parts("BLOCK,*", &[3]),
    ];
    for servers in [1, 2] {
        let options = SessionOptions {
            servers: Some(servers),
            ..SessionOptions::default()
        };
        let all_well = cases::on_threads(1, &options, |session| {
            wait_for_no_worker(); // one starts when its device is used
            for (number, disk) in disks.iter().enumerate() {
                let path = here.path().join(format!("{servers}-{number}"));
                read_open(session, &path, &stored(&path, disk.clone()));
                assert_eq!(workers(), servers);
            }
            if let Some(other) = &other {
                for (number, disk) in disks.iter().enumerate() {
                    let path = other.path().join(format!("{servers}-{number}"));
                    read_open(session, &path, &stored(&path, disk.clone()));
                    assert_eq!(workers(), 2 * servers);
                }
            }
        });
        assert!(all_well);
        wait_for_no_worker(); // they end with their node
    }
}

/// Waits until there is no worker: a thread that has been joined is listed for another moment.
fn wait_for_no_worker() {
    let until = Instant::now() + Duration::from_secs(60);
    while workers() > 0 {
        assert!(Instant::now() < until, "there are {} workers", workers());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A flat file whose second half lies before its first on the device.
struct Swapped {
    _place: tempfile::TempDir,
    path: PathBuf,
    schema: ArraySchema,
    disk: DiskSchema,
    values: Vec<u8>,
}

impl Swapped {
    /// Makes the file. `None`, with the reason printed, where the file system does not do so.
    fn new() -> Option<Self> {
        let place = disk_place()?;
        let path = place.path().join("swapped");
        let schema = schema(&[16, BLOCK_BYTES], ElementType::U1, flat(Format::Raw));
        let values = values(&schema, 3);
        write_pending(&path, &schema, &values, 1)
            .unwrap()
            .commit(true)
            .unwrap();
        let half = values.len() / 2;
        let skip = |why| {
            println!("skipped: {why} ({})", path.display());
            None::<Self>
        };
        // The file system places each file anew, where something is free.
        let mut attempts = (0..ATTEMPTS).map(|attempt| {
            let other = place.path().join(format!("other-{attempt}"));
            let file = File::create_new(&other).unwrap();
            file.set_len(values.len() as u64).unwrap();
            for start in [half, 0] {
                let data = &values[start..start + half];
                file.write_all_at(data, start as u64).unwrap();
                file.sync_all().unwrap();
            }
            let extents = Extents::of(&file);
            let positions = [0, half as u64].map(|offset| extents.position(offset));
            (other, positions)
        });
        let swapped = attempts.find(|(_, positions)| match positions {
            [Some(first), Some(second)] => first > second,
            _ => true,
        });
        match swapped {
            None => return skip("the file system puts in order what is written out of order"),
            Some((_, [None, _] | [_, None])) => {
                return skip("the file system does not tell where a file lies");
            }
            Some((other, _)) => std::fs::rename(other, &path).unwrap(),
        }
        Some(Self {
            _place: place,
            disk: schema.disk_schema(BLOCK_BYTES).unwrap(),
            path,
            schema,
            values,
        })
    }

    fn target(&self) -> Target {
        StoredArray::open(&self.path, None)
            .unwrap()
            .target()
            .clone()
    }

    fn blocks(&self) -> Vec<Block> {
        self.disk.blocks(0, 1).collect()
    }

    /// The blocks in the order on the device, as the kernel tells it.
    fn in_order(&self) -> Vec<u64> {
        let extents = Extents::of(&File::open(&self.path).unwrap());
        let mut blocks = self.blocks();
        blocks.sort_by_key(|block| extents.position(block.offset).unwrap());
        blocks.iter().map(|block| block.index).collect()
    }

    /// A medium of each kind through each wrapper.
    fn media(&self, tells: bool, direct: bool) -> Vec<Arc<dyn Medium>> {
        let target = self.target().telling_positions(tells).with_direct(direct);
        let sum = crc32c::crc32c(&self.values);
        let fill = self.schema.fill.element(&ElementType::U1);
        let bare = target.open_read(&self.disk).unwrap();
        let slow = Faults {
            bytes_per_second: Some(1e12),
            ..Faults::default()
        };
        let checked = target.clone().checked_by(vec![Some(sum)]);
        let summed = target.clone().with_sums();
        vec![
            bare.clone(),
            slow.around(bare, &target, &self.disk).unwrap(),
            checked.open_read(&self.disk).unwrap(),
            summed.open_write(&self.disk).unwrap(),
            target
                .clone()
                .leaving_out(fill)
                .open_write(&self.disk)
                .unwrap(),
            target.open_update(&self.disk).unwrap(),
        ]
    }
}

#[test]
fn every_medium_tells_where_the_blocks_of_a_file_lie() {
    let Some(swapped) = Swapped::new() else {
        return;
    };
    let blocks = swapped.blocks();
    let without = [
        swapped.media(false, true),
        swapped.media(true, false), // the page cache reads ahead by offset
    ];
    for medium in without.iter().flatten() {
        assert!(medium.is_in_order());
        assert!(blocks.iter().all(|block| medium.position(block).is_none()));
    }
    for (nth, medium) in swapped.media(true, true).into_iter().enumerate() {
        assert!(!medium.is_in_order(), "medium {nth}");
        let mut sorted = blocks.clone();
        sorted.sort_by_key(|block| medium.position(block).unwrap());
        let sorted: Vec<u64> = sorted.iter().map(|block| block.index).collect();
        assert_eq!(sorted, swapped.in_order(), "medium {nth}");
        assert!(
            sorted[0] >= blocks.len() as u64 / 2,
            "the second half lies first"
        );
    }
}

/// Opens the file at hand, whatever the opening says.
struct OpenSwapped(Target);

impl Opener for OpenSwapped {
    fn device(&self, _: &Opening) -> Result<DeviceId> {
        self.0.device()
    }

    fn open(&self, opening: &Opening, tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let target = self.0.clone().telling_positions(tells_positions);
        target.open_read(&opening.disk)
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

#[test]
fn a_block_file_is_sorted_by_position_where_the_device_turns() {
    in_own_process(
        "devices::a_block_file_is_sorted_by_position_where_the_device_turns",
        a_block_file_is_sorted_by_position_where_the_device_turns_alone,
    );
}

fn a_block_file_is_sorted_by_position_where_the_device_turns_alone() {
    let Some(swapped) = Swapped::new() else {
        return;
    };
    let target = swapped.target().with_direct(true);
    let has_order = target.device().unwrap().has_order();
    let node = Threads::new(1).node(0, Arc::new(OpenSwapped(target)));
    node.block_on(async {
        let opening = Opening {
            target: Vec::new(),
            disk: swapped.disk.clone(),
            access: Access::Read,
            sync: false,
            server: 0,
            servers: 1,
        };
        let file = node.open(opening).await.unwrap();
        let mut blocks = swapped.blocks();
        blocks.sort_by_key(|block| file.position(block));
        let sorted: Vec<u64> = blocks.iter().map(|block| block.index).collect();
        if has_order {
            assert!(!file.is_in_schema_order());
            assert_eq!(sorted, swapped.in_order());
        } else {
            println!("the device does not turn: its blocks stay in the order of the schema");
            assert!(file.is_in_schema_order() && sorted.is_sorted());
        }
        let buffer = node.buffer(BLOCK_BYTES).unwrap();
        for block in &blocks {
            file.read(block, &buffer, 0).await.unwrap();
            let found = buffer.bytes(0..BLOCK_BYTES as usize);
            let start = block.offset as usize;
            assert!(found == &swapped.values[start..start + BLOCK_BYTES as usize]);
        }
    });
}

/// The chunks and parts that are open tell where they lie, and only those.
#[test]
fn objects_are_not_opened_for_the_sake_of_positions() {
    let Some(place) = disk_place() else {
        return;
    };
    for (nth, disk) in [chunks(&[4, 6], None, "none"), parts("BLOCK,*", &[3])]
        .into_iter()
        .enumerate()
    {
        let path = place.path().join(nth.to_string());
        let schema = schema(&[9, 7], ElementType::F8, disk);
        let pending = write_pending(&path, &schema, &values(&schema, 5), 1).unwrap();
        pending.commit(true).unwrap();
        let disk = schema.disk_schema(40).unwrap();
        let target = StoredArray::open(&path, None).unwrap().target().clone();
        let target = target.telling_positions(true).with_direct(true);
        for medium in [target.open_read(&disk), target.open_update(&disk)] {
            let medium = medium.unwrap();
            let blocks: Vec<Block> = disk.blocks(0, 1).collect();
            assert!(medium.is_in_order());
            assert!(blocks.iter().all(|block| medium.position(block).is_none()));
            let mut data = vec![0; blocks[0].bytes as usize];
            medium.read(&blocks[0], &mut data).unwrap();
            let known = blocks
                .iter()
                .filter(|block| medium.position(block).is_some());
            assert!(known.clone().all(|block| block.object == blocks[0].object));
            match known.count() {
                0 => println!("the file system does not tell where files lie"),
                known => assert!(known > 1, "all blocks of the open file are known"),
            }
        }
    }
}
