//! Direct I/O gives the same files, byte for byte, and leaves nothing of them in the page cache.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use crate::common::*;
use penstock_arrays::{
    ArraySchema, ByteOrder, DirectIo, ElementType, Format, Keys, Pending, Storage, StoredArray,
    StoredElement, Target,
};
use penstock_engine::{Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;

const PAGE: usize = 4096;

/// Memory that begins `shift` bytes after the start of a page.
struct Shifted {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Shifted {
    fn new(bytes: usize, shift: usize) -> Self {
        let memory = vec![0xee; bytes + 2 * PAGE];
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE + shift;
        Self {
            memory,
            start,
            bytes,
        }
    }

    fn of(data: &[u8], shift: usize) -> Self {
        let mut memory = Self::new(data.len(), shift);
        memory.bytes_mut().copy_from_slice(data);
        memory
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize % below
}

/// Whether each page of a file is in the page cache.
fn cached(path: &Path) -> Vec<bool> {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    let mut answer = vec![0_u8; bytes.div_ceil(PAGE)];
    if bytes == 0 {
        return Vec::new();
    }
    // SAFETY: a new mapping of a file of this length, which nobody accesses; `mincore` fills one
    // byte for each page, and the mapping is taken away once.
    unsafe {
        use rustix::mm::{MapFlags, ProtFlags};
        let at = rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        )
        .unwrap();
        assert_eq!(libc::mincore(at, bytes, answer.as_mut_ptr()), 0);
        rustix::mm::munmap(at, bytes).unwrap();
    }
    answer.into_iter().map(|page| page & 1 == 1).collect()
}

/// Removes a file from the page cache.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// The paths of all files below a directory. No file is read.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Writes all blocks directly, dealt out to `servers`, from memory of every alignment.
fn write_direct(
    path: &Path,
    schema: &ArraySchema,
    values: &[u8],
    block_bytes: u64,
    servers: usize,
) {
    let pending = Pending::create(path, schema, Keys::Nested).unwrap();
    let disk = schema.disk_schema(block_bytes).unwrap();
    let target = pending.target().clone().with_direct(true);
    for server in 0..servers {
        let medium = target.open_write(&disk).unwrap();
        for (number, block) in disk.blocks(server, servers).enumerate() {
            let data = gather(&block, values, &schema.shape, schema.element.width());
            let data = Shifted::of(&data, [0, 0, 512, 8, 1][number % 5]);
            medium.write(&block, data.bytes()).unwrap();
        }
        medium.finish(true).unwrap();
    }
    pending.commit(true).unwrap();
}

/// Reads all blocks directly, and as if some were cold, and compares them with `values`.
fn check_direct(path: &Path, values: &[u8], block_bytes: u64) {
    let stored = StoredArray::open(path, None).unwrap();
    for direct in [DirectIo::Always, DirectIo::ColdReads] {
        check_stored(&stored, values, block_bytes, direct);
    }
}

fn check_stored(stored: &StoredArray, values: &[u8], block_bytes: u64, direct: DirectIo) {
    let schema = stored.schema();
    let disk = stored.disk_schema(block_bytes).unwrap();
    let target = stored.target().clone().with_direct(direct);
    let medium = target.open_read(&disk).unwrap();
    for (number, block) in disk.blocks(0, 1).enumerate() {
        let mut data = Shifted::new(block.bytes as usize, [0, 128, 512, 3][number % 4]);
        medium.read(&block, data.bytes_mut()).unwrap();
        if !block.is_padded() {
            let expected = gather(&block, values, &schema.shape, schema.element.width());
            assert!(data.bytes() == expected, "{:?} {block:?}", schema.disk);
        }
    }
    medium.finish(true).unwrap();
}

fn forms() -> Vec<Storage> {
    vec![
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[3]),
        parts("*,BLOCK", &[2]),
        parts("BLOCK,BLOCK", &[2, 3]),
        chunks(&[64, 64], None, "none"),
        chunks(&[100, 70], None, "none"),
        chunks(&[8, 4096], None, "none"),
        chunks(&[64, 32], Some(&[16, 32]), "none"),
        chunks(&[50, 60], None, "zstd:1"),
        chunks(&[64, 32], Some(&[32, 32]), "zstd:1+crc32c"),
    ]
}

#[test]
fn every_form_gives_the_same_files() {
    let Some(disk_place) = disk_place() else {
        return;
    };
    for (at, disk) in forms().into_iter().enumerate() {
        for (shape, element) in [
            ([130, 131], ElementType::F8),
            ([67, 1021], ElementType::I2),
            ([17, 4096], ElementType::C16),
            ([3, 5], ElementType::U1),
        ] {
            let schema = schema(&shape, element.clone(), disk.clone());
            let values = values(&schema, at as u64 + 1);
            let buffered = place();
            write(&buffered.path().join("u"), &schema, &values).unwrap();
            for (block_bytes, servers) in [(10_000, 3), (1 << 20, 1)] {
                let direct = tempfile::tempdir_in(disk_place.path()).unwrap();
                let path = direct.path().join("u");
                write_direct(&path, &schema, &values, block_bytes, servers);
                files(direct.path()).iter().for_each(|path| forget(path));
                check_direct(&path, &values, block_bytes);
                // Direct reads see cached data, even before writeback.
                assert!(snapshot(buffered.path()) == snapshot(direct.path()));
                check_direct(&path, &values, block_bytes + 4096);
                assert!(read(&path).unwrap() == values, "{disk:?} {element}");
            }
        }
    }
}

#[test]
fn files_in_the_other_byte_order_are_swapped() {
    let Some(place) = disk_place() else { return };
    let path = place.path().join("a.npy");
    let schema = schema(&[5000], ElementType::F8, flat(Format::Npy));
    let values = values(&schema, 3);
    let header = penstock_arrays::npy::Header {
        shape: vec![5000],
        element: StoredElement::of(&ElementType::F8, ByteOrder::Big),
        fortran: false,
    };
    let mut file = header.encode();
    file.extend(values.chunks(8).flat_map(|one| one.iter().rev()));
    std::fs::write(&path, file).unwrap();
    check_direct(&path, &values, 10_000);
}

/// A cache that spills writes blocks twice, and reads them back.
#[test]
fn blocks_written_twice_and_read_back() {
    let Some(place) = disk_place() else { return };
    for (at, disk) in forms().into_iter().enumerate() {
        let schema = schema(&[130, 131], ElementType::F8, disk);
        let (values, other) = (values(&schema, 5), values(&schema, 6));
        let path = place.path().join(at.to_string());
        let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
        let disk = schema.disk_schema(10_000).unwrap();
        let target = pending.target().clone().with_direct(true);
        let medium = target.open_write(&disk).unwrap();
        let mut order: Vec<_> = disk.blocks(0, 1).collect();
        order.sort_by_key(|block| (block.object * 31 + block.index * 17 + 5) % 23);
        for (turn, block) in order.iter().enumerate() {
            let of =
                |values: &[u8], shift| Shifted::of(&gather(block, values, &schema.shape, 8), shift);
            let mut back = Shifted::new(block.bytes as usize, [0, 8][turn % 2]);
            medium.read(block, back.bytes_mut()).unwrap();
            assert!(
                back.bytes().iter().all(|byte| *byte == 0),
                "{:?}",
                schema.disk
            );
            medium.write(block, of(&other, 0).bytes()).unwrap();
            medium.read(block, back.bytes_mut()).unwrap();
            assert!(back.bytes() == of(&other, 0).bytes(), "{:?}", schema.disk);
            medium
                .write(block, of(&values, [0, 8, 512][turn % 3]).bytes())
                .unwrap();
        }
        for (turn, block) in order.iter().enumerate() {
            let mut back = Shifted::new(block.bytes as usize, [8, 0][turn % 2]);
            medium.read(block, back.bytes_mut()).unwrap();
            assert!(back.bytes() == gather(block, &values, &schema.shape, 8));
        }
        medium.finish(true).unwrap();
        pending.commit(true).unwrap();
        assert!(read(&path).unwrap() == values, "{:?}", schema.disk);
    }
}

/// The parts of a block, cut anywhere between elements.
fn cut(block: &Block, state: &mut u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < block.bytes {
        let length = [8, 64, 4096, 4104, 16_384, 40_000][random(state, 6)];
        let length = (length + 8 * random(state, 700) as u64).min(block.bytes - start);
        parts.push((start, start + length));
        start += length;
    }
    parts
}

/// Moves the parts of one medium in the medium's own order, and reads some back at once. Gives
/// whether they were right: other threads wait for this one, so it does not panic.
fn move_parts(
    medium: &dyn Medium,
    parts: &[(Block, u64, u64)],
    values: &[u8],
    state: &mut u64,
) -> Result<bool> {
    let mut agree = true;
    for (block, start, end) in parts {
        let at = (block.offset + start) as usize;
        let expected = &values[at..at + (end - start) as usize];
        let data = Shifted::of(expected, 8 * random(state, 512));
        medium.write_part(block, *start, data.bytes())?;
        if random(state, 2) == 0 {
            let mut back = Shifted::new(data.bytes, 8 * random(state, 512));
            medium.read_part(block, *start, back.bytes_mut())?;
            agree &= back.bytes() == expected;
        }
    }
    Ok(agree)
}

#[test]
fn media_that_write_parts_of_one_file_at_once_do_not_disturb_each_other() {
    let Some(place) = disk_place() else { return };
    let whole = [1 << 17];
    for (at, disk) in [
        flat(Format::Raw),
        flat(Format::Npy),
        parts("*", &[]),
        chunks(&whole, None, "none"),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = schema(&whole, ElementType::F8, disk);
        let blocks = schema.disk_schema(300_000).unwrap();
        let path = place.path().join(at.to_string());
        for round in 1..9_u64 {
            let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
            let target = pending.target().clone().with_direct(true);
            let mut state = 0x9e37 * (round + 8 * at as u64) + 1;
            let mut shares: Vec<Vec<(Block, u64, u64)>> = vec![Vec::new(); 4];
            for block in blocks.blocks(0, 1) {
                for (start, end) in cut(&block, &mut state) {
                    shares[random(&mut state, 4)].push((block.clone(), start, end));
                }
            }
            // The whole array is written twice: former values show if a neighbour is undone.
            let (first, last) = (values(&schema, round + 100), values(&schema, round));
            let barrier = Barrier::new(shares.len());
            std::thread::scope(|scope| {
                for (number, mut share) in shares.into_iter().enumerate() {
                    let (target, blocks, barrier) = (&target, &blocks, &barrier);
                    let (first, last) = (&first, &last);
                    let mut state = round * 77 + number as u64 + 1;
                    scope.spawn(move || {
                        let medium = target.open_write(blocks).unwrap();
                        share.sort_by_key(|(_, start, _)| start.wrapping_mul(state) % 1009);
                        let turns = [first, last].map(|values| {
                            barrier.wait();
                            move_parts(&*medium, &share, values, &mut state)
                        });
                        assert!(turns.iter().all(|turn| *turn == Ok(true)), "{turns:?}");
                        medium.finish(true).unwrap();
                    });
                }
            });
            pending.commit(true).unwrap();
            assert!(
                read(&path).unwrap() == last,
                "{:?} round {round}",
                schema.disk
            );
        }
    }
}

/// Whether each page of a file lies wholly in one of its blocks, which begin after a header.
fn wholly_in_blocks(disk: &DiskSchema, header: usize, bytes: usize) -> Vec<bool> {
    let mut pages = vec![false; bytes.div_ceil(PAGE)];
    for block in disk.blocks(0, 1) {
        let start = header + block.offset as usize;
        let end = start + block.bytes as usize;
        let (first, last) = (start.div_ceil(PAGE), end / PAGE);
        pages[first.min(last)..last].fill(true);
    }
    pages
}

#[test]
fn whole_pages_are_not_in_the_cache_and_edges_are() {
    let Some(place) = disk_place() else { return };
    for (name, form, header) in [("raw", Format::Raw, 0), ("npy", Format::Npy, 128)] {
        let schema = schema(&[1 << 19], ElementType::F8, flat(form));
        let values = values(&schema, 1);
        for block_bytes in [1 << 20, 1_000_000, 50_000] {
            let path = place.path().join(name);
            write_direct(&path, &schema, &values, block_bytes, 2);
            let disk = schema.disk_schema(block_bytes).unwrap();
            let whole = wholly_in_blocks(&disk, header, header + values.len());
            assert!(whole.iter().filter(|whole| **whole).count() >= 900);
            for (page, (cached, whole)) in cached(&path).into_iter().zip(&whole).enumerate() {
                assert!(
                    !(cached && *whole),
                    "{name} {block_bytes}: page {page} is cached"
                );
            }
            // A read leaves nothing behind either, once the header has been read.
            let stored = StoredArray::open(&path, None).unwrap();
            forget(&path);
            check_stored(&stored, &values, block_bytes, DirectIo::Always);
            for (page, (cached, whole)) in cached(&path).into_iter().zip(&whole).enumerate() {
                assert!(
                    !(cached && *whole),
                    "{name} {block_bytes}: page {page} is cached"
                );
            }
            // The measure works: an ordinary write leaves all pages in the cache.
            write(&path, &schema, &values).unwrap();
            let there = cached(&path).into_iter().filter(|page| *page).count();
            assert!(there > 900, "{there} pages");
        }
    }
}

#[test]
fn chunks_and_parts_are_not_in_the_cache() {
    let Some(place) = disk_place() else { return };
    for (at, disk) in [
        chunks(&[128, 128], None, "none"),
        parts("BLOCK,*", &[4]),
        parts("BLOCK,BLOCK", &[2, 2]),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = schema(&[512, 512], ElementType::F8, disk);
        let values = values(&schema, 1);
        let path = place.path().join(at.to_string());
        write_direct(&path, &schema, &values, 1 << 16, 1);
        let stored = StoredArray::open(&path, None).unwrap();
        check_stored(&stored, &values, 1 << 16, DirectIo::Always);
        let data = |path: &PathBuf| path.extension().is_none_or(|name| name != "json");
        let data: Vec<PathBuf> = files(&path).into_iter().filter(data).collect();
        assert!(data.len() >= 4);
        for path in data {
            let cached = cached(&path);
            assert!(
                cached.len() >= 32 && !cached.contains(&true),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn where_there_is_no_direct_access_it_is_refused_by_name() {
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("no /dev/shm: not tested");
        return;
    };
    if rustix::fs::statfs(place.path()).unwrap().f_type != libc::TMPFS_MAGIC {
        eprintln!("/dev/shm is not in memory: not tested");
        return;
    }
    for (at, disk) in forms().into_iter().enumerate() {
        let encoded = matches!(&disk, Storage::Chunks { subchunks, codec, .. }
            if subchunks.is_some() || codec != "none");
        let schema = schema(&[130, 131], ElementType::F8, disk);
        let values = values(&schema, 1);
        let path = place.path().join(at.to_string());
        let pending = write_pending(&path, &schema, &values, 1).unwrap();
        let blocks = schema.disk_schema(10_000).unwrap();
        let block = blocks.blocks(0, 1).next().unwrap();
        let data = gather(&block, &values, &schema.shape, 8);
        let target = pending.target().clone().with_direct(true);
        let written = target.open_write(&blocks).and_then(|medium| {
            medium.write(&block, &data)?;
            medium.finish(true)
        });
        pending.commit(true).unwrap();
        let stored = StoredArray::open(&path, None).unwrap();
        let target = stored.target().clone().with_direct(true);
        let blocks = stored.disk_schema(10_000).unwrap();
        let block = blocks.blocks(0, 1).next().unwrap();
        let mut back = vec![0; block.bytes as usize];
        let read = target
            .open_read(&blocks)
            .and_then(|medium| medium.read(&block, &mut back));
        for answer in [written, read] {
            if encoded {
                // Encoded chunks are never moved directly, so the file system need not have direct
                // I/O.
                answer.unwrap();
                continue;
            }
            let error = answer.unwrap_err();
            assert_eq!(error.kind, Kind::Unsupported, "{error}");
            assert!(error.cause.contains("leave `direct` away"), "{error}");
            let of_the_array = Path::new(error.path.as_ref().unwrap()).starts_with(place.path());
            assert!(of_the_array, "{error}");
        }
    }
}

/// Whether the kernel says what the page cache has of a file that the process may write.
fn has_cachestat(path: &Path) -> bool {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let (range, mut found) = ([0_u64, 1 << 20], [0_u64; 5]);
    // SAFETY: the call reads two words, fills five, and keeps neither.
    let answer = unsafe {
        use std::os::fd::AsRawFd;
        libc::syscall(
            451,
            file.as_raw_fd(),
            range.as_ptr(),
            found.as_mut_ptr(),
            0_u32,
        )
    };
    answer == 0
}

/// A place on a disk whose cold reads are known, with a flat file of 4 MiB.
fn cold_place() -> Option<(tempfile::TempDir, PathBuf, Vec<u8>)> {
    let place = disk_place()?;
    let path = place.path().join("u");
    let schema = schema(&[1 << 19], ElementType::F8, flat(Format::Npy));
    let values = values(&schema, 1);
    write(&path, &schema, &values).unwrap();
    let kind = rustix::fs::statfs(&path).unwrap().f_type;
    if !has_cachestat(&path) || ![libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC].contains(&kind) {
        eprintln!("the kernel does not say what is cached here: not tested");
        return None;
    }
    Some((place, path, values))
}

#[test]
fn cold_reads_leave_nothing_in_the_cache_and_others_do() {
    let Some((_place, path, values)) = cold_place() else {
        return;
    };
    let stored = StoredArray::open(&path, None).unwrap();
    for (block_bytes, direct, leaves) in [
        (1 << 20, DirectIo::ColdReads, false),
        (1_000_000, DirectIo::ColdReads, false),
        (8 << 20, DirectIo::ColdReads, false),
        (1 << 20, DirectIo::Never, true),
        (50_000, DirectIo::ColdReads, true),
    ] {
        forget(&path);
        check_stored(&stored, &values, block_bytes, direct);
        let there = cached(&path).into_iter().filter(|page| *page).count();
        // A last block may be too small to go around the cache.
        assert_eq!(
            there > 100,
            leaves,
            "{block_bytes} {direct:?}: {there} pages"
        );
        // A file in the cache stays there.
        std::fs::read(&path).unwrap();
        check_stored(&stored, &values, block_bytes, direct);
        assert!(cached(&path).into_iter().all(|page| page));
    }
}

#[test]
fn a_cold_read_sees_what_others_have_just_written() {
    let Some((_place, path, mut values)) = cold_place() else {
        return;
    };
    let stored = StoredArray::open(&path, None).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for (round, start) in [5_000, 1 << 20, 3_000_000].into_iter().enumerate() {
        forget(&path);
        let written = [round as u8 + 1; 9_000];
        let offset = 128 + start as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &written, offset).unwrap();
        values[start..start + written.len()].copy_from_slice(&written);
        check_stored(&stored, &values, 1 << 20, DirectIo::ColdReads);
        check_stored(&stored, &values, 1 << 20, DirectIo::Always);
    }
}

#[test]
fn a_file_cut_short_is_damaged() {
    let Some(place) = disk_place() else { return };
    let schema = schema(&[100_000], ElementType::F8, flat(Format::Raw));
    let path = place.path().join("u");
    for (bytes, direct) in [799_999, 700_000, 696_320, 1, 0]
        .into_iter()
        .flat_map(|bytes| [(bytes, DirectIo::Always), (bytes, DirectIo::ColdReads)])
    {
        write(&path, &schema, &values(&schema, 1)).unwrap();
        let stored = StoredArray::open(&path, None).unwrap();
        let disk = stored.disk_schema(800_000).unwrap();
        let target = stored.target().clone().with_direct(direct);
        let medium = target.open_read(&disk).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        forget(&path);
        let block = disk.blocks(0, 1).next().unwrap();
        let mut data = Shifted::new(800_000, 0);
        let error = medium.read(&block, data.bytes_mut()).unwrap_err();
        assert_eq!(error.kind, Kind::Damaged, "{bytes}: {error}");
        assert!(error.cause.contains(&format!("{bytes} bytes")), "{error}");
    }
}

#[test]
fn a_full_disk_is_full() {
    let Some(mount) = Ext4::mount(4) else { return };
    for disk in [
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[2]),
        chunks(&[512, 1024], None, "none"),
    ] {
        let schema = schema(&[1024, 1024], ElementType::F8, disk);
        let values = values(&schema, 1);
        let pending = Pending::create(&mount.path().join("u"), &schema, Keys::Nested).unwrap();
        let blocks = schema.disk_schema(1 << 20).unwrap();
        let target = pending.target().clone().with_direct(true);
        let medium = target.open_write(&blocks).unwrap();
        let mut written = blocks.blocks(0, 1).map(|block| {
            let data = gather(&block, &values, &schema.shape, 8);
            medium.write(&block, Shifted::of(&data, 0).bytes())
        });
        let error = written.find_map(|answer| answer.err()).unwrap();
        assert_eq!(error.kind, Kind::Full, "{error}");
        assert!(error.path.is_some() && error.bytes.is_some(), "{error}");
    }
}

#[test]
fn the_flag_travels() {
    let place = place();
    for disk in forms() {
        let schema = schema(&[3, 4], ElementType::I4, disk);
        let pending = Pending::create(&place.path().join("u"), &schema, Keys::Nested).unwrap();
        let target = pending.target().clone().with_direct(true);
        let text = serde_json::to_string(&target).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&text).unwrap(), target);
        assert_ne!(&target, pending.target());
        assert_eq!(&target.with_direct(false), pending.target());
    }
}

/// A small file system of its own, where tests may mount.
struct Ext4(tempfile::TempDir);

impl Ext4 {
    fn mount(megabytes: u64) -> Option<Self> {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (image, at) = (place.path().join("image"), place.path().join("at"));
        let file = File::create(&image).unwrap();
        file.set_len(megabytes << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let run = |program: &str, options: &[&str], paths: &[&Path]| {
            let mut command = std::process::Command::new(program);
            let output = command.args(options).args(paths).output();
            output.is_ok_and(|output| output.status.success())
        };
        let done =
            run("mkfs.ext4", &["-q"], &[&image]) && run("mount", &["-o", "loop"], &[&image, &at]);
        if !done {
            eprintln!("cannot mount a small disk here: not tested");
        }
        done.then_some(Self(place))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("at")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.path())
            .status();
    }
}

/// `cargo test -p penstock-arrays --release --test all direct -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn direct_against_buffered() {
    let Some(place) = disk_place() else { return };
    let bytes: u64 = 512 << 20;
    println!("form, block KiB, way: write s (CPU s), read s (CPU s)");
    for (name, disk) in [
        ("raw", flat(Format::Raw)),
        ("npy", flat(Format::Npy)),
        ("chunks of 4 MiB", chunks(&[1 << 19], None, "none")),
    ] {
        for block_kib in [1024, 4096] {
            for direct in [true, false, true, false] {
                let schema = schema(&[bytes / 8], ElementType::F8, disk.clone());
                let path = place.path().join("u");
                let (write, read) = measure(&path, &schema, block_kib << 10, direct);
                let way = if direct { "direct" } else { "buffered" };
                println!("{name}, {block_kib}, {way}: {write}, {read}");
                let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
            }
        }
    }
}

/// Writes an array with one medium and reads it from the disk, and gives the time of each.
fn measure(path: &Path, schema: &ArraySchema, block_bytes: u64, direct: bool) -> (String, String) {
    let pending = Pending::create(path, schema, Keys::Nested).unwrap();
    let disk = schema.disk_schema(block_bytes).unwrap();
    let mut data = Shifted::of(&vec![7; disk.block_bytes_max() as usize], 0);
    let target = pending.target().clone().with_direct(direct);
    let write = timed(|| {
        let medium = target.open_write(&disk).unwrap();
        for block in disk.blocks(0, 1) {
            medium
                .write(&block, &data.bytes()[..block.bytes as usize])
                .unwrap();
        }
        medium.finish(true).unwrap();
    });
    pending.commit(true).unwrap();
    let paths = if path.is_dir() {
        files(path)
    } else {
        vec![path.to_path_buf()]
    };
    paths.iter().for_each(|path| forget(path));
    let stored = StoredArray::open(path, None).unwrap();
    let disk = stored.disk_schema(block_bytes).unwrap();
    let target = stored.target().clone().with_direct(direct);
    let read = timed(|| {
        let medium = target.open_read(&disk).unwrap();
        for block in disk.blocks(0, 1) {
            medium
                .read(&block, &mut data.bytes_mut()[..block.bytes as usize])
                .unwrap();
        }
    });
    (write, read)
}

/// The wall and processor seconds of `act`, the latter of this process: writeback is the kernel's
/// own.
fn timed(act: impl FnOnce()) -> String {
    let cpu = || cpu_seconds(libc::CLOCK_PROCESS_CPUTIME_ID);
    let (start, cpu_start) = (Instant::now(), cpu());
    act();
    format!(
        "{:.2} ({:.2})",
        start.elapsed().as_secs_f64(),
        cpu() - cpu_start
    )
}
