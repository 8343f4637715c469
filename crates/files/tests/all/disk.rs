//! Volumes on real disks: their layout, and the media of their blocks.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use penstock_engine::{Access, Error, Kind, Opening};
use penstock_files::disk::{
    BlockOpener, CreateOptions, Description, create, create_server, describe, new_identity, open,
};
use penstock_files::{RecordStore, disk_schema};
use penstock_layout::Block;
use penstock_machines::disk::direct::Direct;
use penstock_machines::{Medium, Opener};
use proptest::prelude::*;
use tempfile::TempDir;

/// A sequence of random numbers.
struct Chance(u64);

impl Chance {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A directory on a disk: `/tmp` may be in memory, where there is no direct I/O.
fn place() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a command, and gives what it prints; `None` if it cannot be run here.
fn run(command: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new(command).args(arguments).output().ok()?;
    let printed = String::from_utf8_lossy(&ran.stdout).trim().to_string();
    ran.status.success().then_some(printed)
}

/// A loop device, until this is dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn of(file: &Path) -> Option<Self> {
        let device = run("losetup", &["-f", "--show", file.to_str()?])?;
        Some(Self(device.into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["-d", self.0.to_str().unwrap()]);
    }
}

/// A small file system in memory, until this is dropped.
struct SmallFileSystem(TempDir);

impl SmallFileSystem {
    fn mount(bytes: u64) -> Option<Self> {
        let directory = place();
        let (size, path) = (format!("size={bytes}"), directory.path().to_str()?);
        run("mount", &["-t", "tmpfs", "-o", &size, "none", path])?;
        Some(Self(directory))
    }

    fn free_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(self.0.path()).unwrap();
        found.f_bavail * found.f_frsize
    }

    /// Waits until so many bytes are free: a process that another test has just forked may hold a
    /// file open that was removed.
    fn wait_until_free(&self, bytes: u64) {
        let begun = Instant::now();
        while self.free_bytes() < bytes {
            assert!(begun.elapsed() < Duration::from_secs(60), "files are left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        run("umount", &[self.0.path().to_str().unwrap()]);
    }
}

fn kind<T>(result: Result<T, Error>) -> Kind {
    result.err().expect("an error").kind
}

// --- media -----------------------------------------------------------------------------------

/// Memory that begins `shift` bytes behind an aligned address.
struct Memory(Vec<u8>, usize, usize);

impl Memory {
    fn new(bytes: usize, shift: usize) -> Self {
        let all = vec![0x5a; bytes + shift + 8192];
        let start = all.as_ptr().align_offset(4096) + shift;
        Self(all, start, start + bytes)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.2]
    }
}

/// A disk with what should be on it.
struct Disk {
    opener: BlockOpener,
    opening: Opening,
    medium: Arc<dyn Medium>,
    blocks: Vec<Block>,
    model: Vec<u8>,
    chance: Chance,
}

impl Disk {
    fn open(opener: BlockOpener, path: &Path, (blocks, block_bytes): (u64, u64)) -> Self {
        let disk = disk_schema(blocks, block_bytes).unwrap();
        let opening = Opening {
            target: path.as_os_str().as_encoded_bytes().to_vec(),
            disk: disk.clone(),
            access: Access::Update,
            sync: true,
            server: 0,
            servers: 1,
        };
        assert!(opener.device(&opening).is_ok());
        Self {
            medium: opener.open(&opening, true).unwrap(),
            opener,
            opening,
            blocks: disk.blocks(0, 1).collect(),
            model: vec![0; (blocks * block_bytes) as usize],
            chance: Chance(block_bytes),
        }
    }

    /// Some block and some of its bytes: an offset and a length.
    fn some(&mut self) -> (Block, usize, usize) {
        let nth = self.chance.below(self.blocks.len() as u64) as usize;
        let block = self.blocks[nth].clone();
        let start = self.chance.below(block.bytes);
        let length = 1 + self.chance.below(block.bytes - start);
        (block, start as usize, length as usize)
    }

    fn memory(&mut self, bytes: usize) -> Memory {
        let shift = [0, 0, 1, 512][self.chance.below(4) as usize];
        Memory::new(bytes, shift)
    }

    fn random(&mut self, bytes: usize) -> Memory {
        let mut memory = self.memory(bytes);
        let seed = self.chance.below(u64::MAX);
        let numbers = (0..).map(|nth| (seed.wrapping_mul(nth | 1) >> 32) as u8);
        let places = memory.bytes().iter_mut().zip(numbers);
        places.for_each(|(place, number)| *place = number);
        memory
    }

    fn act(&mut self) {
        let (block, offset, length) = self.some();
        let start = block.offset as usize;
        let (all, part) = (
            start..start + block.bytes as usize,
            start + offset..start + offset + length,
        );
        match self.chance.below(6) {
            0 | 1 => {
                let mut data = self.random(all.len());
                self.medium.write(&block, data.bytes()).unwrap();
                self.model[all].copy_from_slice(data.bytes());
            }
            2 => {
                let mut data = self.random(length);
                self.medium
                    .write_part(&block, offset as u64, data.bytes())
                    .unwrap();
                self.model[part].copy_from_slice(data.bytes());
            }
            3 => {
                let mut data = self.memory(length);
                self.medium
                    .read_part(&block, offset as u64, data.bytes())
                    .unwrap();
                assert!(*data.bytes() == self.model[part]);
            }
            4 => self.medium.finish(self.chance.0.is_multiple_of(2)).unwrap(),
            _ => self.read(&block),
        }
    }

    fn read(&mut self, block: &Block) {
        let start = block.offset as usize;
        let mut data = self.memory(block.bytes as usize);
        self.medium.read(block, data.bytes()).unwrap();
        assert!(*data.bytes() == self.model[start..start + block.bytes as usize]);
    }

    /// Everything is there, when it is opened again, and cannot be changed.
    fn look(&mut self) {
        self.opening.access = Access::Read;
        self.medium = self.opener.open(&self.opening, true).unwrap();
        for block in self.blocks.clone() {
            self.read(&block);
        }
        let block = self.blocks[1].clone();
        let data = vec![1; block.bytes as usize];
        let bytes = Some(block.offset..block.offset + block.bytes);
        let path = String::from_utf8(self.opening.target.clone()).unwrap();
        for written in [
            self.medium.write(&block, &data),
            self.medium.write_part(&block, 0, &data),
        ] {
            let error = written.unwrap_err();
            assert_eq!(
                (error.path, error.bytes),
                (Some(path.clone()), bytes.clone())
            );
        }
        self.read(&block);
        self.medium.finish(true).unwrap();
        assert!(self.medium.moves_parts() && self.medium.digests().is_empty());
    }

    fn test(&mut self) {
        for block in self.blocks.clone() {
            self.read(&block); // zeros, as nothing was written
        }
        (0..300).for_each(|_| self.act());
        self.medium.finish(true).unwrap();
        self.look();
    }
}

/// The openers that the file system of a directory has.
fn openers(directory: &Path) -> Vec<BlockOpener> {
    let path = directory.join("direct");
    let file = std::fs::File::create(&path).unwrap();
    match Direct::open(&file, &path) {
        Ok(_) => vec![BlockOpener::cached(), BlockOpener::direct()],
        Err(error) => {
            println!("skipped: {error}");
            vec![BlockOpener::cached()]
        }
    }
}

const SHAPES: [(u64, u64); 3] = [(20, 8192), (7, 64 << 10), (33, 100)];

#[test]
fn blocks_in_files() {
    let directory = place();
    for (nth, shape) in SHAPES.into_iter().enumerate() {
        for opener in openers(directory.path()) {
            let path = directory.path().join(format!("{nth}-{opener:?}"));
            std::fs::write(&path, b"").unwrap();
            Disk::open(opener, &path, shape).test();
        }
    }
}

#[test]
fn blocks_on_raw_devices() {
    let directory = place();
    for (nth, shape) in SHAPES.into_iter().enumerate() {
        for opener in [BlockOpener::cached(), BlockOpener::direct()] {
            let path = directory.path().join(format!("{nth}-{opener:?}"));
            std::fs::write(&path, vec![0; 1 << 20]).unwrap();
            let Some(device) = LoopDevice::of(&path) else {
                println!("skipped: there are no loop devices here, or they are root's");
                return;
            };
            let mut disk = Disk::open(opener, &device.0, shape);
            let (first, second) = (&disk.blocks[0], &disk.blocks[1]);
            assert!(disk.medium.position(first) < disk.medium.position(second));
            assert!(disk.medium.is_in_order());
            disk.test();
            let mut beyond = disk.blocks[1].clone();
            beyond.offset = 1 << 20;
            disk.opening.access = Access::Update;
            let medium = opener.open(&disk.opening, false).unwrap();
            let error = medium
                .write(&beyond, &vec![1; beyond.bytes as usize])
                .unwrap_err();
            assert_eq!(error.kind, Kind::Full, "{error}");
        }
    }
}

#[test]
fn what_is_no_disk_is_refused() {
    let directory = place();
    let path = directory.path().join("f");
    std::fs::write(&path, b"").unwrap();
    let mut opening = Disk::open(BlockOpener::cached(), &path, (2, 64)).opening;
    opening.target.push(b'?');
    let opened = BlockOpener::cached().open(&opening, false);
    assert_eq!(kind(opened), Kind::Missing);
    opening.target.clear();
    assert_eq!(kind(BlockOpener::cached().device(&opening)), Kind::Missing);
    assert_eq!(
        kind(BlockOpener::cached().open(&opening, false)),
        Kind::Missing
    );
}

// --- volumes ---------------------------------------------------------------------------------

fn template(directory: &Path, rest: &str) -> String {
    format!("{}/{rest}", directory.display())
}

fn options(servers: usize) -> CreateOptions {
    CreateOptions {
        block_bytes: 4096,
        capacity: Some(40 << 10),
        ..CreateOptions::new(servers)
    }
}

#[test]
fn a_volume_is_made_and_opened_once() {
    let directory = place();
    let volume = template(directory.path(), "scratch.vol");
    assert_eq!(kind(open(&volume, 0)), Kind::Missing);
    create(&volume, &options(3)).unwrap();
    assert_eq!(kind(create(&volume, &options(3))), Kind::Exists);
    let first = describe(&volume, 0).unwrap();
    for server in 0..3 {
        let disk = open(&volume, server).unwrap();
        let about = &disk.description;
        assert_eq!(
            (about.identity, about.server, about.servers),
            (first.identity, server, 3)
        );
        assert_eq!(
            (disk.blocks, disk.openings.len(), about.block_bytes),
            (10, 1, 4096)
        );
        assert!(block_on(disk.records.load()).unwrap().is_empty());
        let file = Path::new(&volume).join(format!("server-{server}/blocks-0"));
        let found = file.metadata().unwrap();
        assert!(found.len() == 40 << 10 && found.blocks() * 512 >= 40 << 10);
        let error = open(&volume, server).err().unwrap();
        assert_eq!(error.kind, Kind::Busy);
        assert!(error.path.unwrap().ends_with("volume.json"));
        assert_eq!(
            describe(&volume, server).unwrap(),
            *about,
            "it can be looked at meanwhile"
        );
        let change = (vec![1], Some(vec![server as u8]));
        block_on(disk.records.commit(vec![change])).unwrap();
        drop(disk);
        let disk = open(&volume, server).unwrap();
        let records = block_on(disk.records.load()).unwrap();
        assert_eq!(records, [(vec![1], vec![server as u8])]);
    }
    assert_eq!(kind(open(&volume, 3)), Kind::Missing);
    let two = template(directory.path(), "two.vol");
    create(&two, &options(1)).unwrap();
    assert_ne!(describe(&two, 0).unwrap().identity, first.identity);
}

#[test]
fn servers_have_places_of_their_own() {
    let directory = place();
    for server in 0..2 {
        for disk in ["a", "b"] {
            let path = directory.path().join(format!("nvme{server}/{disk}"));
            std::fs::create_dir_all(path).unwrap();
        }
    }
    let volume = template(directory.path(), "nvme{server}/scratch.vol");
    let disks =
        ["a", "b"].map(|disk| template(directory.path(), &format!("nvme{{server}}/{disk}")));
    let options = CreateOptions {
        disks: disks.to_vec(),
        ..options(2)
    };
    let identity = new_identity().unwrap();
    create_server(&volume, 1, identity, &options).unwrap();
    assert_eq!(kind(open(&volume, 0)), Kind::Missing);
    create_server(&volume, 0, identity, &options).unwrap();
    assert_eq!(
        kind(create_server(&volume, 0, identity, &options)),
        Kind::Exists
    );
    for server in 0..2 {
        let disk = open(&volume, server).unwrap();
        assert_eq!((disk.blocks, disk.openings.len()), (5, 2));
        assert_eq!(disk.description.identity, identity);
        for (opening, name) in disk.openings.iter().zip(["a", "b"]) {
            let path = String::from_utf8(opening.target.clone()).unwrap();
            let there = template(directory.path(), &format!("nvme{server}/{name}/"));
            assert!(path.starts_with(&there), "{path}");
            assert_eq!(Path::new(&path).metadata().unwrap().len(), 5 * 4096);
        }
    }
    let lost = directory.path().join("nvme1/b");
    std::fs::rename(&lost, directory.path().join("gone")).unwrap();
    let error = open(&volume, 1).err().unwrap();
    assert_eq!(error.kind, Kind::Missing);
    assert!(error.path.unwrap().starts_with(lost.to_str().unwrap()));
}

#[test]
fn sparse_files_share_the_free_space() {
    let directory = place();
    let volume = template(directory.path(), "scratch.vol");
    let options = CreateOptions {
        capacity: None,
        ..CreateOptions::new(4)
    };
    create(&volume, &options).unwrap();
    let found = rustix::fs::statvfs(directory.path()).unwrap();
    let bytes = found.f_blocks * found.f_frsize;
    let about = describe(&volume, 2).unwrap();
    assert!(about.blocks > 0 && 4 * about.blocks * about.block_bytes <= bytes);
    let file = Path::new(&volume).join("server-2/blocks-0");
    assert_eq!(file.metadata().unwrap().blocks(), 0);
}

#[test]
fn a_volume_on_raw_devices() {
    let directory = place();
    let file = directory.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::of(&file) else {
        println!("skipped: there are no loop devices here, or they are root's");
        return;
    };
    let path = device.0.to_str().unwrap().to_string();
    let options = CreateOptions {
        capacity: None,
        block_bytes: 64 << 10,
        disks: vec![path.clone()],
        ..CreateOptions::new(1)
    };
    let volume = template(directory.path(), "raw.vol");
    let too_large = CreateOptions {
        capacity: Some(2 << 20),
        ..options.clone()
    };
    assert_eq!(kind(create(&volume, &too_large)), Kind::Full);
    create(&volume, &options).unwrap();
    let disk = open(&volume, 0).unwrap();
    assert_eq!(
        (disk.blocks, disk.openings[0].target.clone()),
        (16, path.into_bytes())
    );
    // Nobody else has the device, but the server's own media do.
    let other = template(directory.path(), "other.vol");
    let error = create(&other, &options).unwrap_err();
    assert_eq!(
        (error.kind, error.path),
        (Kind::Busy, device.0.to_str().map(String::from))
    );
    let shape = (disk.blocks, disk.description.block_bytes);
    Disk::open(BlockOpener::direct(), &device.0, shape).test();
}

#[test]
fn impossible_options_are_refused() {
    let directory = place();
    let volume = template(directory.path(), "scratch.vol");
    let good = options(2);
    let refused = |options: CreateOptions, because: Kind| {
        assert_eq!(kind(create(&volume, &options)), because, "{options:?}");
        assert_eq!(kind(open(&volume, 0)), Kind::Missing);
    };
    let with = |change: fn(&mut CreateOptions)| {
        let mut options = good.clone();
        change(&mut options);
        options
    };
    refused(with(|options| options.servers = 0), Kind::Schema);
    refused(with(|options| options.servers = 1 << 40), Kind::Schema);
    refused(with(|options| options.block_bytes = 0), Kind::Schema);
    refused(with(|options| options.block_bytes = u64::MAX), Kind::Schema);
    refused(with(|options| options.hash_bits = 0), Kind::Schema);
    refused(with(|options| options.hash_bits = 65), Kind::Schema);
    refused(with(|options| options.capacity = Some(4095)), Kind::Schema);
    refused(
        with(|options| options.capacity = Some(u64::MAX)),
        Kind::Schema,
    );
    refused(
        with(|options| options.disks = vec![String::new()]),
        Kind::Schema,
    );
    refused(
        with(|options| options.disks = vec!["/not/there".into()]),
        Kind::Missing,
    );
    refused(
        with(|options| options.disks = vec!["/dev/null".into()]),
        Kind::Schema,
    );
    assert_eq!(kind(create("", &good)), Kind::Schema);
    assert_eq!(
        kind(create(&template(directory.path(), "not/there"), &good)),
        Kind::Missing
    );
    assert_eq!(kind(create_server(&volume, 2, 7, &good)), Kind::Schema);
    create(&volume, &good).unwrap();
}

/// All files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    };
    paths.flat_map(below).collect()
}

/// Server by server, the states in which a creation may end too early.
#[test]
fn a_volume_that_was_never_whole_is_not_opened_and_made_again() {
    for states in [
        ["volume.json.making", ""],
        ["volume.json.ready", ""],
        ["volume.json.ready", "volume.json.making"],
        ["volume.json.ready", "volume.json.ready"],
        ["volume.json", "volume.json.ready"],
        ["volume.json.ready", "volume.json"],
    ] {
        for is_torn in [false, true] {
            let directory = place();
            std::fs::create_dir(directory.path().join("d")).unwrap();
            let volume = template(directory.path(), "scratch.vol");
            let options = CreateOptions {
                disks: vec![template(directory.path(), "d")],
                ..options(2)
            };
            create(&volume, &options).unwrap();
            let former = describe(&volume, 0).unwrap().identity;
            let count = files_below(directory.path()).len();
            for (server, state) in states.into_iter().enumerate() {
                let of_server = Path::new(&volume).join(format!("server-{server}"));
                let path = of_server.join("volume.json");
                if state.is_empty() {
                    let disks = describe(&volume, server).unwrap().disk_paths(&of_server);
                    disks
                        .iter()
                        .for_each(|disk| std::fs::remove_file(disk).unwrap());
                    std::fs::remove_dir_all(&of_server).unwrap();
                    continue;
                }
                if state.ends_with("making") && is_torn {
                    // A crash before the description was safe: no other file is there yet.
                    let disks = describe(&volume, server).unwrap().disk_paths(&of_server);
                    disks
                        .iter()
                        .for_each(|disk| std::fs::remove_file(disk).unwrap());
                    std::fs::remove_file(of_server.join("records.redb")).unwrap();
                    std::fs::write(&path, b"{").unwrap();
                }
                std::fs::rename(&path, of_server.join(state)).unwrap();
            }
            for (server, state) in states.into_iter().enumerate() {
                if state != "volume.json" {
                    assert_eq!(kind(open(&volume, server)), Kind::Missing, "{states:?}");
                }
            }
            create(&volume, &options).unwrap();
            assert_eq!(
                files_below(directory.path()).len(),
                count,
                "nothing is left"
            );
            let identity = describe(&volume, 1).unwrap().identity;
            assert!(
                identity != former && open(&volume, 0).unwrap().description.identity == identity
            );
        }
    }
}

#[test]
fn what_somebody_else_has_is_left_alone() {
    let directory = place();
    let volume = template(directory.path(), "scratch.vol");
    let theirs = directory.path().join("scratch.vol/server-1/theirs");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, b"data").unwrap();
    assert_eq!(kind(create(&volume, &options(2))), Kind::Exists);
    assert_eq!(std::fs::read(&theirs).unwrap(), b"data");
    assert_eq!(kind(open(&volume, 0)), Kind::Missing);
    // A volume is there also where the part of one server is not to be seen.
    std::fs::remove_file(&theirs).unwrap();
    create(&volume, &options(2)).unwrap();
    std::fs::rename(theirs.parent().unwrap(), directory.path().join("unmounted")).unwrap();
    assert_eq!(kind(create(&volume, &options(2))), Kind::Exists);
    drop(open(&volume, 0).unwrap());
}

/// Commits values until the store fails.
fn fill_records(records: &impl RecordStore) -> (u64, Error) {
    let mut count = 0_u64;
    loop {
        let change = (count.to_le_bytes().to_vec(), Some(vec![7; 100_000]));
        match block_on(records.commit(vec![change])) {
            Ok(()) => count += 1,
            Err(error) => return (count, error),
        }
    }
}

#[test]
fn a_full_file_system_is_told() {
    let Some(small) = SmallFileSystem::mount(8 << 20) else {
        println!("skipped: only root may mount a file system");
        return;
    };
    let volume = template(small.0.path(), "full.vol");
    let empty = small.free_bytes();
    let too_large = CreateOptions {
        capacity: Some(5 << 20),
        ..options(2)
    };
    assert_eq!(kind(create(&volume, &too_large)), Kind::Full);
    assert!(files_below(small.0.path()).is_empty(), "nothing is left");
    small.wait_until_free(empty);
    let sparse = CreateOptions {
        capacity: None,
        ..options(1)
    };
    create(&volume, &sparse).unwrap();
    let disk = open(&volume, 0).unwrap();
    let medium = BlockOpener::cached()
        .open(&disk.openings[0], false)
        .unwrap();
    let schema = disk.openings[0].disk.clone();
    let mut blocks = schema.blocks(0, 1);
    // Somebody else takes the space.
    std::fs::write(small.0.path().join("other"), vec![1; 3 << 20]).unwrap();
    let full = loop {
        let block = blocks.next().expect("the file system is not full");
        if let Err(error) = medium.write(&block, &vec![3; 4096]) {
            break (error, block);
        }
    };
    assert_eq!(
        (full.0.kind, full.0.bytes),
        (Kind::Full, Some(full.1.offset..full.1.offset + 4096))
    );
    assert!(full.0.path.unwrap().ends_with("server-0/blocks-0"));
    let (count, error) = fill_records(&disk.records);
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert!(error.path.unwrap().ends_with("records.redb"));
    drop(disk);
    std::fs::remove_file(small.0.path().join("other")).unwrap();
    let disk = open(&volume, 0).unwrap();
    let found = block_on(disk.records.load()).unwrap().len() as u64;
    assert!(found == count || found == count + 1, "{found} of {count}");
}

/// A file that may not grow is as good as a full file system. The limit is a process's, so that
/// this test runs itself once more, in another process.
#[test]
fn a_limit_of_the_size_of_files_is_told() {
    const INSIDE: &str = "PENSTOCK_TEST_LIMITED";
    if let Ok(volume) = std::env::var(INSIDE) {
        let disk = open(&volume, 0).unwrap();
        let medium = BlockOpener::cached()
            .open(&disk.openings[0], false)
            .unwrap();
        let block = disk.openings[0].disk.blocks(0, 1).last().unwrap();
        let error = medium.write(&block, &[3; 4096]).unwrap_err();
        assert_eq!(error.kind, Kind::Full, "{error}");
        let (_, error) = fill_records(&disk.records);
        assert_eq!(error.kind, Kind::Full, "{error}");
        return;
    }
    let directory = place();
    let volume = template(directory.path(), "limited.vol");
    let options = CreateOptions {
        capacity: None,
        ..options(1)
    };
    create(&volume, &options).unwrap();
    // Without the trap, the first write that is too long kills the process.
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact \"$1\" --nocapture";
    let itself = std::env::current_exe().unwrap();
    let ran = Command::new("bash")
        .args(["-c", script])
        .arg(itself)
        .arg("a_limit_of_the_size_of_files_is_told")
        .env(INSIDE, &volume)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

// --- descriptions ----------------------------------------------------------------------------

fn description() -> Description {
    Description {
        version: penstock_files::disk::VERSION,
        identity: 0xfedc_ba98_7654_3210,
        servers: 5,
        server: 3,
        block_bytes: 65536,
        blocks: 1000,
        hash_bits: 48,
        owner: 1000,
        disks: vec!["blocks-0".into(), "/nvme/blocks-1".into()],
    }
}

/// A changed description with a checksum that fits, if it is one at all.
fn with_checksum(value: &serde_json::Value) -> Vec<u8> {
    let mut value = value.clone();
    let mut content = value.clone();
    if let Some(content) = content.as_object_mut() {
        content.remove("checksum");
    }
    if let Ok(description) = serde_json::from_value::<Description>(content) {
        value["checksum"] = description.checksum().unwrap().into();
    }
    serde_json::to_vec(&value).unwrap()
}

fn read(json: &[u8]) -> Result<Description, Error> {
    let read = Description::from_json(json, Path::new("volume.json"));
    if let Err(error) = &read {
        assert!(
            matches!(error.kind, Kind::Damaged | Kind::Unsupported),
            "{error}"
        );
        assert_eq!(error.path.as_deref(), Some("volume.json"));
    }
    if let Ok(found) = &read {
        // Nothing that is taken can overflow later.
        disk_schema(found.blocks, found.block_bytes).unwrap();
        assert!(found.server < 1 << 16 && found.hash_bits <= 48 && !found.disks.is_empty());
        assert!((found.blocks * found.disks.len() as u64) < 1 << 37);
    }
    read
}

#[test]
fn a_description_is_what_it_says_or_refused() {
    let good = description();
    let json = good.to_json().unwrap();
    assert_eq!(read(&json).unwrap(), good);
    let text = String::from_utf8(json).unwrap();
    for (from, to, because) in [
        ("\"version\": 3", "\"version\": 4", Kind::Unsupported),
        (
            "\"version\": 3",
            "\"version\": 4, \"more\": 0",
            Kind::Unsupported,
        ),
        (
            "\"version\": 3",
            "\"version\": 3, \"more\": 0",
            Kind::Damaged,
        ),
        ("\"version\": 3", "\"version\": -1", Kind::Damaged),
        ("\"version\": 3,", "", Kind::Damaged),
        ("\"servers\": 5", "\"servers\": 65535", Kind::Damaged),
        ("\"servers\": 5", "\"servers\": 0", Kind::Damaged),
        (
            "\"servers\": 5",
            "\"servers\": 18446744073709551615",
            Kind::Damaged,
        ),
        (
            "\"block_bytes\": 65536",
            "\"block_bytes\": 0",
            Kind::Damaged,
        ),
        ("\"blocks\": 1000", "\"blocks\": 0", Kind::Damaged),
        (
            "\"blocks\": 1000",
            "\"blocks\": 18446744073709551615",
            Kind::Damaged,
        ),
        ("\"blocks\": 1000", "\"blocks\": 1e3", Kind::Damaged),
        ("\"hash_bits\": 48", "\"hash_bits\": 49", Kind::Damaged),
        ("\"blocks-0\"", "\"\"", Kind::Damaged),
        ("\"blocks-0\"", "\"/nvme/blocks-1\"", Kind::Damaged),
        ("\"blocks-0\"", "7", Kind::Damaged),
    ] {
        let changed = text.replace(from, to);
        assert!(changed != text, "{from}");
        assert_eq!(kind(read(changed.as_bytes())), because, "{to}");
        if let Ok(value) = serde_json::from_str(&changed) {
            assert_eq!(kind(read(&with_checksum(&value))), because, "{to}");
        }
    }
    // What would be possible has a wrong checksum.
    for (from, to) in [
        ("\"block_bytes\": 65536", "\"block_bytes\": 32768"),
        ("\"blocks\": 1000", "\"blocks\": 1001"),
        ("\"owner\": 1000", "\"owner\": 0"),
        ("\"identity\": 1", "\"identity\": 2"),
        ("\"blocks-0\"", "\"blocks-2\""),
        ("\"checksum\": \"", "\"checksum\": \"0"),
        ("\"checksum\"", "\"check\""),
    ] {
        let changed = text.replace(from, to);
        assert!(changed != text, "{from}");
        assert_eq!(kind(read(changed.as_bytes())), Kind::Damaged, "{to}");
    }
    assert_eq!(kind(read(&"[".repeat(1 << 20).into_bytes())), Kind::Damaged);
}

proptest! {
    #[test]
    fn any_bytes_are_a_description_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }

    #[test]
    fn a_changed_description_is_one_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        numbers in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..64_u32), 0..4),
        is_cut in any::<prop::sample::Index>(),
    ) {
        let mut value: serde_json::Value = serde_json::from_slice(&description().to_json().unwrap()).unwrap();
        let keys = ["servers", "server", "block_bytes", "blocks", "hash_bits", "owner", "identity"];
        for (key, number, shift) in numbers {
            value[keys[key.index(keys.len())]] = (number >> shift).into();
        }
        let mut json = with_checksum(&value);
        let _ = read(&json);
        let _ = read(&json[..is_cut.index(json.len())]);
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        let _ = read(&json);
    }
}
