//! The record store on disk: crashes at every write, and bytes that have changed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use penstock_engine::Kind;
use penstock_files::RecordStore;
use penstock_files::disk::DiskRecords;
use penstock_files::volume::records::Change;
use redb::StorageBackend;

/// The bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

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

#[derive(Debug, Clone)]
enum Operation {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Operation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

#[derive(Debug, Default)]
struct DiskState {
    /// What programs see.
    bytes: Vec<u8>,
    /// What was there at the last sync, and what came after it.
    synced: Vec<u8>,
    pending: Vec<Operation>,
    /// The number of changes and syncs so far, and of the one at which the machine crashes.
    operations: usize,
    crash: Option<usize>,
}

/// A disk in memory, which keeps at a crash what was synced, and any part of what was not.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<DiskState>>);

impl Disk {
    fn with(bytes: Vec<u8>, crash: Option<usize>) -> Self {
        let state = DiskState {
            synced: bytes.clone(),
            bytes,
            crash,
            ..DiskState::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }

    fn operations(&self) -> usize {
        self.0.lock().unwrap().operations
    }

    fn operate(&self, act: impl FnOnce(&mut DiskState)) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.crash.is_some_and(|crash| state.operations >= crash) {
            return Err(io::Error::other("the machine has crashed"));
        }
        state.operations += 1;
        act(&mut state);
        Ok(())
    }

    fn change(&self, operation: Operation) -> io::Result<()> {
        self.operate(|state| {
            operation.apply(&mut state.bytes);
            state.pending.push(operation);
        })
    }

    /// What is on the disk after a crash: of what was not synced, each change came to the disk or
    /// not, or some of its sectors did.
    fn after_crash(&self, seed: u64) -> Vec<u8> {
        let state = self.0.lock().unwrap();
        let mut bytes = state.synced.clone();
        let mut chance = Chance(seed);
        let (all, none) = (seed.is_multiple_of(5), seed % 5 == 1);
        for operation in &state.pending {
            let is_kept = all || (!none && chance.below(3) < 2);
            match operation {
                _ if !is_kept => {}
                Operation::Write(offset, data) if !all && chance.below(3) == 0 => {
                    for (nth, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                        if chance.below(2) == 0 {
                            let offset = offset + nth * SECTOR_BYTES;
                            Operation::Write(offset, sector.to_vec()).apply(&mut bytes);
                        }
                    }
                }
                operation => operation.apply(&mut bytes),
            }
        }
        bytes
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        let offset = offset as usize;
        let found = state.bytes.get(offset..offset + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Operation::Length(length as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(|state| {
            state.synced = state.bytes.clone();
            state.pending.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Operation::Write(offset as usize, data.to_vec()))
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn path() -> &'static Path {
    Path::new("the/records.redb")
}

/// A group of random changes, some of them of one record.
fn changes(chance: &mut Chance) -> Vec<Change> {
    let count = 1 + chance.below(8);
    let change = |_| {
        let key = format!("key {}", chance.below(25)).into_bytes();
        let value = match chance.below(4) {
            0 => None,
            size => {
                let bytes = chance.below(40 * 10_u64.pow(size as u32 - 1));
                Some((0..bytes).map(|_| chance.below(256) as u8).collect())
            }
        };
        (key, value)
    };
    (0..count).map(change).collect()
}

fn apply(changes: &[Change], model: &mut Model) {
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn loaded(store: &DiskRecords) -> penstock_engine::Result<Model> {
    Ok(block_on(store.load())?.into_iter().collect())
}

/// A disk with an empty store.
fn empty() -> Vec<u8> {
    let disk = Disk::default();
    DiskRecords::create_in(disk.clone(), path()).unwrap();
    disk.bytes()
}

/// The groups of a seed, and the records after each number of them.
fn history(seed: u64, groups: usize) -> (Vec<Vec<Change>>, Vec<Model>) {
    let mut chance = Chance(seed);
    let groups: Vec<_> = (0..groups).map(|_| changes(&mut chance)).collect();
    let mut models = vec![Model::new()];
    for group in &groups {
        let mut model = models[models.len() - 1].clone();
        apply(group, &mut model);
        models.push(model);
    }
    (groups, models)
}

/// Commits groups until one fails. Gives the number of those that were acknowledged.
fn commit_all(disk: &Disk, groups: &[Vec<Change>]) -> usize {
    let Ok(store) = DiskRecords::open_in(disk.clone(), path()) else {
        return 0;
    };
    let mut acknowledged = 0;
    for group in groups {
        match block_on(store.commit(group.clone())) {
            Ok(()) => acknowledged += 1,
            Err(error) => {
                assert_eq!(error.path.as_deref(), path().to_str());
                let again = block_on(store.commit(Vec::new()));
                assert_eq!(again, Err(error.clone()), "an error stays");
                assert_eq!(loaded(&store), Err(error));
                break;
            }
        }
    }
    acknowledged
}

/// The last acknowledged commit, or the one under way, and never a mixture, whatever the disk has
/// kept, and also if the machine crashes again while the store is opened.
#[test]
fn a_crash_at_every_write() {
    const GROUPS: usize = 7;
    let new = empty();
    for seed in 0..3 {
        let (groups, models) = history(seed, GROUPS);
        let disk = Disk::with(new.clone(), None);
        assert_eq!(commit_all(&disk, &groups), GROUPS);
        for crash in 0..=disk.operations() {
            let disk = Disk::with(new.clone(), Some(crash));
            let acknowledged = commit_all(&disk, &groups);
            let allowed = &models[acknowledged..=(acknowledged + 1).min(GROUPS)];
            for by in 0..3 {
                let about = format!("seed {seed}, crash {crash}, kept {by}");
                let kept = disk.after_crash(crash as u64 * 3 + by);
                let second = Disk::with(kept, Some(Chance(crash as u64).below(20) as usize));
                drop(DiskRecords::open_in(second.clone(), path()));
                let third = Disk::with(second.after_crash(crash as u64 + by), None);
                let store = DiskRecords::open_in(third.clone(), path());
                let store = store.unwrap_or_else(|error| panic!("{about}: {error}"));
                let found = loaded(&store).unwrap();
                assert!(allowed.contains(&found), "{about}: {acknowledged}");
                // The store goes on.
                let mut model = found;
                apply(&groups[0], &mut model);
                block_on(store.commit(groups[0].clone())).unwrap();
                assert!(loaded(&store).unwrap() == model, "{about}");
                drop(store);
                let store = DiskRecords::open_in(third, path()).unwrap();
                assert!(loaded(&store).unwrap() == model, "{about}");
            }
        }
    }
}

/// A crash while a store is made leaves what cannot be opened, or an empty store.
#[test]
fn a_crash_while_a_store_is_made() {
    let disk = Disk::default();
    DiskRecords::create_in(disk.clone(), path()).unwrap();
    for crash in 0..disk.operations() {
        let disk = Disk::with(Vec::new(), Some(crash));
        // The crash may come when all is done but closing.
        let _ = DiskRecords::create_in(disk.clone(), path());
        for by in 0..4 {
            let kept = Disk::with(disk.after_crash(by), None);
            match DiskRecords::open_in(kept, path()) {
                Ok(store) => assert!(loaded(&store).unwrap().is_empty()),
                Err(error) => assert_eq!(error.kind, Kind::Damaged, "{error}"),
            }
        }
    }
}

/// Opens a file with one changed byte. Gives the records if they are served.
fn read_flipped(bytes: &[u8], at: usize, mask: u8) -> Option<Model> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= mask;
    let store = DiskRecords::open_in(Disk::with(flipped, None), path());
    match store.and_then(|store| loaded(&store)) {
        Ok(found) => Some(found),
        Err(error) => {
            // A byte of the header is the version of the file.
            let is_told = matches!(error.kind, Kind::Damaged | Kind::Unsupported);
            assert!(is_told, "byte {at}: {error}");
            assert_eq!(error.path.as_deref(), path().to_str());
            None
        }
    }
}

/// The bits that are flipped, each by its byte and its mask: all of the header, and some of each
/// page that has any.
fn flips(bytes: &[u8]) -> Vec<(usize, u8)> {
    let header = (0..400).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)));
    let pages = (0..bytes.len()).step_by(4096);
    let used = pages.filter(|&page| bytes[page..].iter().take(4096).any(|&byte| byte != 0));
    let within = used.flat_map(|page| {
        let mut chance = Chance(page as u64);
        (0..40).map(move |bit| (page + chance.below(4096) as usize, 1 << (bit % 8)))
    });
    let flips = header.chain(within);
    flips.filter(|&(at, _)| at < bytes.len()).collect()
}

/// A change of a store that was closed is told, or changes nothing.
#[test]
fn flipped_bytes_are_never_served() {
    let (groups, models) = history(9, 6);
    let disk = Disk::with(empty(), None);
    assert_eq!(commit_all(&disk, &groups), groups.len());
    let bytes = disk.bytes();
    let mut told = 0;
    for (at, mask) in flips(&bytes) {
        match read_flipped(&bytes, at, mask) {
            Some(found) => assert!(found == models[groups.len()], "byte {at}"),
            None => told += 1,
        }
    }
    println!("{told} of {} changes were told", flips(&bytes).len());
    assert!(told > 100);
    for length in [1, 100, 4096, bytes.len() / 2] {
        let disk = Disk::with(bytes[..length].to_vec(), None);
        let error = DiskRecords::open_in(disk, path()).err().unwrap();
        assert_eq!(error.kind, Kind::Damaged, "{error}");
    }
}

/// A change of a store that was not closed may bring back an earlier commit, whole.
#[test]
fn flipped_bytes_after_a_crash_are_never_a_mixture() {
    let (groups, models) = history(10, 6);
    let disk = Disk::with(empty(), None);
    commit_all(&disk, &groups[..5]);
    let before = disk.bytes();
    let whole = Disk::with(before.clone(), None);
    commit_all(&whole, &groups[5..]);
    let crashed = Disk::with(before, Some(whole.operations() * 2 / 3));
    commit_all(&crashed, &groups[5..]);
    let bytes = crashed.after_crash(0);
    for (at, mask) in flips(&bytes) {
        if let Some(found) = read_flipped(&bytes, at, mask) {
            assert!(models.contains(&found), "byte {at}");
        }
    }
}

#[test]
fn a_store_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records.redb");
    let missing = DiskRecords::open(&path).err().unwrap();
    assert_eq!(missing.kind, Kind::Missing);
    DiskRecords::create(&path).unwrap();
    assert_eq!(DiskRecords::create(&path).unwrap_err().kind, Kind::Exists);
    let (groups, models) = history(1, 20);
    let store = DiskRecords::open(&path).unwrap();
    let busy = DiskRecords::open(&path).err().unwrap();
    assert_eq!(busy.kind, Kind::Busy);
    assert_eq!(busy.path.as_deref(), path.to_str());
    // Requests that nobody waits for are served, too, in their order.
    for group in &groups[..19] {
        let mut commit = std::pin::pin!(store.commit(group.clone()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = commit.as_mut().poll(&mut context);
    }
    block_on(store.commit(groups[19].clone())).unwrap();
    assert!(loaded(&store).unwrap() == models[20]);
    drop(store);
    let store = DiskRecords::open(&path).unwrap();
    assert!(loaded(&store).unwrap() == models[20]);
    drop(store);
    std::fs::write(&path, b"").unwrap();
    let damaged = DiskRecords::open(&path).err().unwrap();
    assert_eq!(damaged.kind, Kind::Damaged);
}
