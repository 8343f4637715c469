//! A job crashes at each change that it makes to the disk, and the test checks the disk.
//!
//! A program runs on threads, first to its end, then once for every change: it crashes in the
//! middle of that change ([`crash_after`]), as a killed process does, and as a power failure does,
//! which takes unsynced data. Saves that were complete must be there, byte for byte, and saves in
//! progress whole or not at all. The run after a crash crashes, too, somewhere; the run after that
//! does not, and leaves nothing over.
//!
//! A failure prints what replays it: `PENSTOCK_CRASH=<way>:<n> cargo test -p penstock-arrays --test
//! all` with the test's name.

use crate::cases;
use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cases::{Chance, for_owned, on_threads};
use crate::common::{chunks, disk_place, flat, parts, place, read_stored};
use penstock_arrays::calls::array::{ArrayCall, LocalPart, Memory};
use penstock_arrays::calls::copy;
use penstock_arrays::calls::save::{GroupCall, Save};
use penstock_arrays::calls::select::SelectOptions;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::{FoundCheckpoint, Session};
use penstock_arrays::formats::spread::{is_template, of_server};
use penstock_arrays::fs::ops::{self, lose_unsynced, no_crash};
use penstock_arrays::groups::{Catalog, Checkpoint, Coordinate, Values, repair, verify};
use penstock_arrays::sieve::Recipients;
use penstock_arrays::{ArraySchema, ElementType, Fill, Format, Storage, StoredArray};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, Region};
use penstock_machines::{ClientMemory, Medium};

const RANKS: usize = 2;

/// The variables that name the only crash to make, and the part that another process of a test
/// does.
const ONE: &str = "PENSTOCK_CRASH";
const PART: &str = "PENSTOCK_CRASH_PART";
/// The environment variable that says the number of changes from one crash to the next.
const STEP: &str = "PENSTOCK_CRASH_STEP";

static PROCESS: Mutex<()> = Mutex::new(());

fn options() -> SessionOptions {
    SessionOptions {
        servers: Some(2),
        block_bytes: 40,
        ..SessionOptions::default()
    }
}

// -------------------------------------------------------------------------------------------------
// Crashes
// -------------------------------------------------------------------------------------------------

/// [`ops::crash_after`], which concerns the whole process: it must be one of this test alone.
fn crash_after(changes: u64) {
    let is_alone = [PART, common::ALONE].map(|name| std::env::var_os(name).is_some());
    assert!(is_alone.contains(&true), "other tests run in this process");
    ops::crash_after(changes);
}

/// The kind of a crash, which determines the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CrashKind {
    /// The process: nothing.
    Killed,
    /// The machine crashes: unsynced data are lost.
    Power,
}

impl CrashKind {
    fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Power => "power",
        }
    }

    /// Ends the crash, and gives the number of changes.
    fn end(self) -> u64 {
        let changes = no_crash();
        if self == Self::Power {
            lose_unsynced().unwrap();
        }
        changes
    }
}

/// Prints how to replay a case that fails.
struct Replay {
    test: &'static str,
    way: CrashKind,
    number: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            no_crash();
            let Self { test, way, number } = self;
            let way = way.word();
            eprintln!(
                "PENSTOCK_CRASH={way}:{number} cargo test -p penstock-arrays --test all crash::{test}"
            );
        }
    }
}

/// The number of changes from one crash to the next: 1 in `make crash`, which crashes at all of
/// them.
fn step() -> usize {
    match std::env::var(STEP) {
        Ok(step) => step.parse().unwrap(),
        Err(_) if std::env::var(ONE).is_ok() => 1,
        Err(_) => 17,
    }
}

/// Which of how many processes that share the changes this is.
fn share() -> (usize, usize) {
    let part = std::env::var(PART).unwrap();
    let (number, all) = part.split_once('/').unwrap();
    (number.parse().unwrap(), all.parse().unwrap())
}

/// Runs a test in processes of its own, which each do a part of the changes: a crash concerns a
/// whole process, and in this one other tests run.
fn in_all_processes(test: &'static str, body: impl FnOnce()) {
    if std::env::var(PART).is_ok() {
        return body();
    }
    let _others_wait = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let all = match std::env::var(ONE) {
        Ok(_) => 1,
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let start = |number| {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", &format!("crash::{test}"), "--nocapture"]);
        process
            .env(PART, format!("{number}/{all}"))
            .spawn()
            .unwrap()
    };
    let processes: Vec<Child> = (0..all).map(start).collect();
    for mut process in processes {
        assert!(
            process.wait().unwrap().success(),
            "{test} fails in a process"
        );
    }
}

/// Calls `crash(way, n)`, which is to crash at change n, for each n there is: it says whether the
/// program has come to its end before.
fn at_every_change(test: &'static str, mut crash: impl FnMut(CrashKind, u64) -> bool) {
    let one = std::env::var(ONE).ok();
    let (own, all) = share();
    let one = one.map(|one| {
        let (way, number) = one.split_once(':').unwrap();
        (way.to_string(), number.parse::<u64>().unwrap())
    });
    for way in [CrashKind::Killed, CrashKind::Power] {
        let numbers = match &one {
            Some((word, number)) if word == way.word() => *number..number + 1,
            Some(_) => continue,
            None => 0..100_000,
        };
        let crashes = numbers
            .skip(own * step())
            .step_by(all * step())
            .take_while(|&number| {
                let _replay = Replay { test, way, number };
                !crash(way, number)
            });
        println!("{test}, {}: {} crashes", way.word(), crashes.count());
    }
}

// -------------------------------------------------------------------------------------------------
// Values
// -------------------------------------------------------------------------------------------------

/// The bytes of an element of the array that was written with `seed`.
fn element(seed: u64, number: u64, width: u64) -> Vec<u8> {
    let mut chance = Chance(seed.wrapping_mul(1_000_003) + number);
    (0..width).map(|_| chance.below(256) as u8).collect()
}

/// All bytes of the array that was written with `seed`.
fn whole(schema: &ArraySchema, seed: u64) -> Vec<u8> {
    let elements = schema.shape.iter().product::<u64>();
    let each = (0..elements).flat_map(|number| element(seed, number, schema.element.width()));
    each.collect()
}

/// A rank's part of an array, or zeros. If ranks bring rows, the rank's rows begin at element
/// `first`.
fn local(call: &ArrayCall, rank: usize, first: u64, seed: Option<u64>) -> (Vec<u8>, LocalPart) {
    let (mut all, mut locals) = cases::local_arrays(call, rank, false);
    let (mut bytes, local) = (all.remove(0), locals.remove(0));
    if let Some(seed) = seed {
        let width = call.schema.element.width();
        for_owned(call, (rank, 0), &local.memory.extents, |at, number| {
            let at = at * width as usize;
            bytes[at..at + width as usize].copy_from_slice(&element(seed, first + number, width));
        });
    }
    let memory = ClientMemory {
        base: bytes.as_mut_ptr(),
        ..local.memory
    };
    (bytes, LocalPart { memory, ..local })
}

fn rows(schema: ArraySchema) -> ArrayCall {
    let mut dists = vec!["*"; schema.shape.len()];
    dists[0] = "CYCLIC";
    let memory = Memory::Distribution {
        dists: dists.join(",").parse().unwrap(),
        mesh: vec![RANKS as u64],
        halo: vec![(0, 0); schema.shape.len()],
    };
    ArrayCall { schema, memory }
}

/// Opens and reads an array.
fn read(path: &Path, name: Option<&str>) -> Result<(ArraySchema, Vec<u8>)> {
    let stored = StoredArray::open(path, name)?;
    Ok((stored.schema().clone(), read_stored(&stored)?))
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_string).collect()
}

fn copy_tree(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for name in names(from) {
        copy_tree(&from.join(&name), &to.join(&name));
    }
}

// -------------------------------------------------------------------------------------------------
// A group
// -------------------------------------------------------------------------------------------------

/// The contents of a group. Each save has a seed of its own.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    exists: bool,
    /// The seeds of the timesteps, which are also their times.
    timesteps: Vec<u64>,
    checkpoints: Vec<SavedContents>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct SavedContents {
    step: u64,
    seed: u64,
    timesteps: usize,
}

const KEEP: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Timestep,
    /// A checkpoint of this step.
    Checkpoint(u64),
    /// A new session, which restarts from the newest checkpoint, or from the newest of a step.
    Restart(Option<u64>),
}

use Act::{Checkpoint as Save_, Restart, Timestep};

/// A session that keeps the two newest checkpoints, and one that goes on from the newest.
const PROGRAM: [Act; 11] = [
    Restart(None),
    Timestep,
    Save_(0),
    Timestep,
    Save_(1),
    Save_(2),
    Timestep,
    Restart(None),
    Timestep,
    Save_(2),
    Timestep,
];
/// A restart from the older of two checkpoints, and then from the newest, which is still that one.
const BACK: [Act; 9] = [
    Timestep,
    Save_(1),
    Timestep,
    Save_(3),
    Timestep,
    Restart(Some(1)),
    Timestep,
    Restart(None),
    Save_(7),
];
/// All kinds of acts, in a short program.
const SHORT: [Act; 6] = [
    Timestep,
    Save_(1),
    Restart(None),
    Timestep,
    Save_(2),
    Save_(3),
];
/// The program after a crash.
const AFTER: [Act; 3] = [Restart(None), Timestep, Save_(9)];

/// The standing of a session in the group.
#[derive(Clone, Default)]
struct Standing {
    state: State,
    /// The checkpoint from which the session has restarted, without a save since.
    restarted: Option<Option<SavedContents>>,
}

impl Standing {
    /// The states through which an act leads, without the state before: a crash may leave any of
    /// them.
    fn through(&mut self, act: Act, seed: u64) -> Vec<State> {
        let mut states = Vec::new();
        let state = &mut self.state;
        let mut note = |state: &State| states.push(state.clone());
        if let Restart(step) = act {
            let mut newest = state.checkpoints.iter().rev();
            self.restarted = Some(newest.find(|c| step.is_none_or(|s| c.step == s)).copied());
            return states;
        }
        state.exists = true;
        note(state);
        if let Some(from) = self.restarted.take() {
            while from.is_some() && state.checkpoints.last() != from.as_ref() {
                state.checkpoints.pop();
                note(state);
            }
            state.timesteps.truncate(from.map_or(0, |c| c.timesteps));
            note(state);
        }
        if let Save_(step) = act {
            let timesteps = state.timesteps.len();
            state.checkpoints.push(SavedContents {
                step,
                seed,
                timesteps,
            });
            note(state);
            while state.checkpoints.len() > KEEP {
                state.checkpoints.remove(0);
                note(state);
            }
        } else {
            state.timesteps.push(seed);
            note(state);
        }
        states
    }
}

/// The store of a group, and its layout.
#[derive(Debug, Clone)]
struct Store {
    path: PathBuf,
    time_chunk: u64,
    /// Whether the group has particles: an array to which each save brings another number of rows.
    has_rows: bool,
    /// Whether the group is a file of NetCDF-4, or otherwise a Zarr store.
    is_file: bool,
}

const ROWS: &str = "particle";

impl Store {
    /// The names of the arrays, in their order in the group.
    fn names(&self) -> &'static [&'static str] {
        match self.has_rows {
            true => &["u", "v", "p"],
            false => &["u", "v"],
        }
    }

    /// The number of chunks that these timesteps take.
    fn chunks_of(&self, timesteps: usize) -> u64 {
        (timesteps as u64).div_ceil(self.time_chunk)
    }

    /// The schema of an array in the save with this seed.
    fn schema(&self, array: usize, seed: u64) -> ArraySchema {
        let shards = chunks(&[4, 4], Some(&[2, 4]), "zstd:1+crc32c");
        let mut schema = match array {
            0 => ArraySchema::new("u", &[4, 3], ElementType::F8, chunks(&[2, 3], None, "none")),
            1 => ArraySchema::new("v", &[6, 4], ElementType::I4, shards),
            _ => {
                let rows = (0..RANKS).map(|rank| row_count(seed, rank)).sum();
                ArraySchema::new(
                    "p",
                    &[rows, 2],
                    ElementType::I4,
                    chunks(&[3, 2], None, "zstd:1"),
                )
            }
        };
        if array == 2 {
            schema.dimension_names = Some(vec![ROWS.to_string(), "k".to_string()]);
        }
        if self.is_file {
            let (chunk, filters) = match array {
                0 => ([2, 3], "none"),
                1 => ([4, 4], "shuffle+deflate:1+fletcher32"),
                _ => ([3, 2], "zstd:1"),
            };
            schema.disk = Storage::Hdf5 {
                dataset: String::new(),
                chunk: Some(chunk.to_vec()),
                filters: filters.to_string(),
                is_netcdf: true,
            };
        }
        schema
    }

    /// The group of a rank in the save with this seed.
    fn group(&self, seed: u64, rank: usize) -> GroupCall {
        let arrays = (0..self.names().len()).map(|array| {
            let schema = self.schema(array, seed);
            match array {
                2 => ArrayCall {
                    memory: Memory::Rows {
                        count: row_count(seed, rank),
                    },
                    schema: ArraySchema {
                        shape: vec![0, 2],
                        ..schema
                    },
                },
                _ => rows(schema),
            }
        });
        self.of(arrays.collect())
    }

    /// The group in a restart from a checkpoint, which has other numbers of rows.
    fn restarted(&self, found: &FoundCheckpoint) -> GroupCall {
        let arrays = self.names().iter().enumerate().map(|(array, name)| {
            let (_, shape) = found
                .shapes
                .iter()
                .find(|(there, _)| there == name)
                .unwrap();
            rows(ArraySchema {
                shape: shape.clone(),
                ..self.schema(array, 0)
            })
        });
        self.of(arrays.collect())
    }

    fn of(&self, arrays: Vec<ArrayCall>) -> GroupCall {
        let attributes =
            |text: &str| serde_json::Map::from_iter([("about".to_string(), text.into())]);
        let values = (0..4).flat_map(|n| f64::from(n).to_le_bytes()).collect();
        let coordinates = [
            ("x", Values::Elements(ElementType::F8, values)),
            (
                "name",
                Values::Strings(["a", "", "bc", "d"].map(str::to_string).into()),
            ),
        ];
        GroupCall {
            name: "g".to_string(),
            path: self.path.clone(),
            arrays,
            coordinates: coordinates
                .map(|(name, values)| Coordinate {
                    name: name.to_string(),
                    dimensions: vec!["x".to_string()],
                    shape: vec![4],
                    values,
                    attributes: attributes(name),
                })
                .into(),
            attributes: attributes("a group"),
            time_attributes: attributes("days"),
            time_chunk: Some(self.time_chunk),
            keep: KEEP,
            bounded: self.bounded(),
        }
    }

    /// The names of the arrays for which the store keeps bounds: all of integers.
    fn bounded(&self) -> BTreeSet<String> {
        match self.is_file {
            true => BTreeSet::new(),
            false => set(self.names().iter().copied().filter(|name| *name != "u")),
        }
    }
}

/// The number of rows that a rank brings to a save.
fn row_count(seed: u64, rank: usize) -> u64 {
    (seed * 5 + rank as u64 * 3) % 4
}

/// The seed of the values of one array of a save.
fn array_seed(seed: u64, array: usize) -> u64 {
    seed * 10 + array as u64
}

/// A rank's parts of the arrays of a group, and their memory.
fn local_parts(
    group: &GroupCall,
    rank: usize,
    seed: Option<u64>,
) -> (Vec<Vec<u8>>, Vec<Vec<LocalPart>>) {
    let arrays = group.arrays.iter().enumerate().map(|(at, array)| {
        let first = match array.is_ragged() {
            true => {
                (0..rank)
                    .map(|rank| row_count(seed.unwrap_or(0), rank))
                    .sum::<u64>()
                    * 2
            }
            false => 0,
        };
        let (bytes, local) = local(array, rank, first, seed.map(|seed| array_seed(seed, at)));
        (bytes, vec![local])
    });
    arrays.unzip()
}

/// Performs one rank's part of an act.
fn perform(
    session: &Session,
    store: &Store,
    act: Act,
    seed: u64,
    from: Option<SavedContents>,
) -> Result<()> {
    let rank = session.rank().unwrap();
    if let Restart(step) = act {
        let found = session.find_checkpoint(&store.path, step)?;
        assert_eq!(found.is_some(), from.is_some(), "restarting from {step:?}");
        if let (Some(found), Some(from)) = (found, from) {
            let group = store.restarted(&found);
            let (bytes, locals) = local_parts(&group, rank, None);
            session.restart(&found, &group, locals)?;
            let (expected, _) = local_parts(&group, rank, Some(from.seed));
            assert!(bytes == expected, "restarted from other values");
            assert_eq!(found.checkpoint.step, from.step);
            assert_eq!(found.attributes["seed"], from.seed);
        }
        return Ok(());
    }
    let group = store.group(seed, rank);
    let (_bytes, locals) = local_parts(&group, rank, Some(seed));
    let save = match act {
        Save_(step) => Save::Checkpoint {
            step: Some(step),
            time: None,
            attributes: serde_json::Map::from_iter([("seed".to_string(), seed.into())]),
        },
        _ => Save::Timestep(Some(seed as f64)),
    };
    session.save(group, locals, save).map(drop)
}

/// Runs a program until it ends or crashes; seeds begin after `seed`. Gives the states that may
/// then be on disk, the last of them the state of a program that has ended, and whether the program
/// has ended.
fn run(store: &Store, from: &State, program: &[Act], seed: u64) -> (Vec<State>, bool) {
    let mut standing = Standing {
        state: from.clone(),
        restarted: None,
    };
    let mut possible = vec![from.clone()];
    let lives = program
        .iter()
        .enumerate()
        .fold(Vec::<Vec<_>>::new(), |mut lives, act| {
            if matches!(act.1, Restart(_)) || lives.is_empty() {
                lives.push(Vec::new());
            }
            lives.last_mut().unwrap().push(act);
            lives
        });
    for life in lives {
        // A plan lists each act with the states through which it leads, and its restart.
        let mut plan = Vec::new();
        for (at, &act) in life {
            let seed = seed + 1 + at as u64;
            let states = standing.through(act, seed);
            plan.push((act, seed, states, standing.restarted.flatten()));
        }
        let done = Mutex::new(0);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let all_well = on_threads(RANKS, &options(), |session| {
            for (at, (act, seed, _, from)) in plan.iter().enumerate() {
                match perform(session, store, *act, *seed, *from) {
                    Ok(()) => *done.lock().unwrap() = at + 1,
                    Err(error) => {
                        *failure.lock().unwrap() = Some(error);
                        return;
                    }
                }
            }
        });
        assert!(all_well);
        let done = *done.lock().unwrap();
        let before = possible.last().cloned().unwrap();
        let complete = plan[..done].iter().flat_map(|(_, _, states, _)| states);
        let last = complete.last().cloned().unwrap_or(before);
        if let Some(error) = failure.into_inner().unwrap() {
            assert!(error.to_string().contains("as it was told to"), "{error}");
            possible = vec![last];
            possible.extend(plan[done].2.iter().cloned());
            return (possible, false);
        }
        possible = vec![last];
    }
    (possible, true)
}

/// Checks that the disk has one of the possible states, and gives it. An array by itself may be of
/// a `former` state, as long as no save has ended since.
fn look(store: &Store, possible: &[State], former: &[State]) -> State {
    if !of_server(&store.path, 0).exists() {
        let none = possible.iter().find(|state| !state.exists);
        return none.expect("the group is gone").clone();
    }
    let catalog = Catalog::read(&store.path).unwrap().unwrap();
    let found = verify(&store.path, &mut |_| Ok(())).unwrap();
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    assert_eq!(found.timesteps, catalog.timesteps);
    assert_eq!(found.checkpoints as usize, catalog.checkpoints.len());
    let fits = possible
        .iter()
        .find(|state| is_state(store, &catalog, state));
    let fits = fits.unwrap_or_else(|| panic!("{catalog:?} is none of {possible:?}"));
    check_own_metadata(store, &[possible, former].concat());
    check_bounds(store);
    fits.clone()
}

/// Checks that the bounds of chunks rule out no element: a selection has what is there.
fn check_bounds(store: &Store) {
    for name in store.bounded() {
        let schema = penstock_arrays::groups::open(&store.path, Some(&name));
        let schema = schema.unwrap().schema().clone();
        let values = read_saved(&store.path, &name);
        let values: Vec<i32> = values
            .as_chunks()
            .0
            .iter()
            .map(|value| i32::from_ne_bytes(*value))
            .collect();
        let limit = values.get(values.len() / 2).copied().unwrap_or(0);
        let expected = values.iter().filter(|value| **value >= limit);
        let found = AtomicUsize::new(0);
        let is_well = on_threads(RANKS, &options(), |session| {
            let select = SelectOptions {
                condition: format!("{name} >= {limit}"),
                fields: None,
                recipients: Recipients::Holders,
            };
            let own = session.select(&store.path, &rows(schema.clone()), select);
            found.fetch_add(own.unwrap().values.len() / 4, Ordering::Relaxed);
        });
        assert!(is_well);
        assert_eq!(found.into_inner(), expected.count(), "{name}");
    }
}

/// All bytes of an array in the saves with these seeds.
fn of_all(store: &Store, array: usize, seeds: &[u64]) -> Vec<u8> {
    let all = seeds.iter().map(|&seed| {
        let schema = store.schema(array, seed);
        whole(&schema, array_seed(seed, array))
    });
    all.collect::<Vec<_>>().concat()
}

/// The first rows and counts of rows of the saves with these seeds.
fn rows_of(store: &Store, seeds: &[u64]) -> [Vec<u8>; 2] {
    let counts: Vec<u64> = seeds
        .iter()
        .map(|&seed| store.schema(2, seed).shape[0])
        .collect();
    let starts = (0..counts.len()).map(|step| counts[..step].iter().sum::<u64>());
    let bytes = |numbers: Vec<u64>| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    [bytes(starts.collect()), bytes(counts.clone())]
}

/// Opens and reads an array of a group, with the group's length.
fn read_saved(path: &Path, name: &str) -> Vec<u8> {
    read_stored(&penstock_arrays::groups::open(path, Some(name)).unwrap()).unwrap()
}

/// Whether the store has this state, byte for byte, by the record's count of timesteps.
fn is_state(store: &Store, catalog: &Catalog, state: &State) -> bool {
    let steps: Vec<(u64, u64)> = catalog
        .checkpoints
        .iter()
        .map(|c| (c.step, c.timesteps))
        .collect();
    let expected = state
        .checkpoints
        .iter()
        .map(|c| (c.step, c.timesteps as u64));
    if !state.exists
        || catalog.timesteps != state.timesteps.len() as u64
        || steps != expected.collect::<Vec<_>>()
    {
        return false;
    }
    let are_whole = |path: &Path, seeds: &[u64]| {
        let mut arrays = store.names().iter().enumerate();
        arrays.all(|(at, name)| read_saved(path, name) == of_all(store, at, seeds))
    };
    let is_checkpoint =
        |there: &Checkpoint, saved: &SavedContents| are_whole(&there.path, &[saved.seed]);
    let times: Vec<u8> = state
        .timesteps
        .iter()
        .flat_map(|&seed| (seed as f64).to_le_bytes())
        .collect();
    let counts = rows_of(store, &state.timesteps);
    let are_counted = ["particle_start", "particle_count"]
        .iter()
        .zip(&counts)
        .all(|(name, expected)| !store.has_rows || read_saved(&store.path, name) == *expected);
    read_saved(&store.path, "time") == times
        && are_counted
        && are_whole(&store.path, &state.timesteps)
        && catalog
            .checkpoints
            .iter()
            .zip(&state.checkpoints)
            .all(|(there, saved)| is_checkpoint(there, saved))
}

/// Checks that each array's own `zarr.json`, and the group's entry for it, count whole timesteps of
/// some possible state.
fn check_own_metadata(store: &Store, possible: &[State]) {
    if store.is_file {
        return; // all metadata are together
    }
    for (at, name) in store.names().iter().enumerate() {
        let (schema, found) = read(&store.path.join(name), None).unwrap();
        let state = possible
            .iter()
            .find(|state| found == of_all(store, at, &state.timesteps));
        assert!(state.is_some(), "{name} by itself is of no state");
        assert!(schema.dimension_names.is_some());
    }
    let zarr = of_server(&store.path, 0).join("zarr.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(zarr).unwrap()).unwrap();
    let known = &json["consolidated_metadata"]["metadata"];
    let is_of = |state: &State| {
        store.names().iter().enumerate().all(|(at, name)| {
            let rows = match at {
                2 => state
                    .timesteps
                    .iter()
                    .map(|&seed| store.schema(2, seed).shape[0])
                    .sum(),
                _ => state.timesteps.len() as u64,
            };
            known[name]["shape"][0] == rows
        })
    };
    assert!(
        possible.iter().any(is_of),
        "the group's metadata are of no state"
    );
}

/// The names that a write leaves in the directory of a store with this name.
fn names_of(name: &str) -> BTreeSet<String> {
    let parts = |server: &str| format!("{}.parts", name.replace("{server}", server));
    let mut names = set([name.replace("{server}", "0").as_str()]);
    if name.contains("{server}") {
        names.extend([parts("0"), parts("1")]);
    }
    names
}

/// Checks that no other files are there.
fn check_tidy(store: &Store, state: &State) {
    let name = store.path.file_name().unwrap().to_string_lossy();
    if store.is_file {
        let checkpoints = format!("{name}.checkpoints");
        let expected = set([name.as_ref(), checkpoints.as_str()]);
        assert_eq!(names(store.path.parent().unwrap()), expected);
        let there = names(&store.path.with_file_name(checkpoints));
        assert_eq!(there.len(), state.checkpoints.len(), "{there:?}");
        return;
    }
    assert_eq!(names(store.path.parent().unwrap()), names_of(&name));
    let (first, is_spread) = (of_server(&store.path, 0), is_template(&store.path));
    let mut all = set(["zarr.json", "time", "checkpoints", ".penstock", "x", "name"]);
    all.extend(store.names().iter().map(|name| (*name).to_string()));
    if store.has_rows {
        all.extend(set(["particle_start", "particle_count"]));
    }
    assert_eq!(names(&first), all);
    assert_eq!(
        names(&first.join(".penstock")),
        set(["zarr.json", "record"])
    );
    let record = first.join(".penstock/record");
    let mut beside = set(["zarr.json", "group.json", "lock", "sums"]);
    if !state.timesteps.is_empty() || record.join("bounds").exists() {
        beside.extend(set(["bounds"]));
        assert_eq!(names(&record.join("bounds")), store.bounded());
    }
    assert_eq!(names(&record), beside);
    let mut with_sums = set(store.names().iter().copied());
    with_sums.extend(set(["time"]));
    if store.has_rows {
        with_sums.extend(set(["particle_start", "particle_count"]));
    }
    assert_eq!(names(&record.join("sums")), with_sums);
    for (at, name) in store.names().iter().enumerate() {
        if is_spread {
            // A dropped checkpoint leaves the disks with the next save: the last save dropped one
            // from the group, or two if a crash had kept one too many.
            for server in 0..RANKS {
                let parts = PathBuf::from(format!(
                    "{}.parts",
                    of_server(&store.path, server).display()
                ));
                let versions = names(&parts.join(name)).len();
                let kept = state.checkpoints.len() + 1;
                assert!((kept..=kept + 2).contains(&versions), "{versions} versions");
            }
            continue;
        }
        let count = match at {
            2 => {
                let rows = state
                    .timesteps
                    .iter()
                    .map(|&seed| store.schema(2, seed).shape[0]);
                rows.sum::<u64>().div_ceil(3)
            }
            _ => store.chunks_of(state.timesteps.len()),
        };
        let array = first.join(name);
        match array.join("c").exists() {
            true => assert_eq!(names(&array), set(["zarr.json", "c"])),
            false => assert_eq!((names(&array), count), (set(["zarr.json"]), 0)),
        }
        let expected: BTreeSet<String> = (0..count).map(|n| n.to_string()).collect();
        if count > 0 {
            assert_eq!(names(&array.join("c")), expected, "{name}");
        }
    }
    let checkpoints = names(&first.join("checkpoints"));
    assert_eq!(checkpoints.len(), state.checkpoints.len() + 1);
    let timesteps = Catalog::read(&store.path).unwrap().unwrap().timesteps;
    for name in ["u", "v", "time"] {
        let own = StoredArray::open(&first.join(name), None).unwrap();
        assert_eq!(own.schema().shape[0], timesteps, "{name} by itself");
    }
    check_own_metadata(store, std::slice::from_ref(state));
}

fn the_group_at_every_change(test: &'static str, store: &Store, program: &[Act]) {
    let name = &store.path;
    at_every_change(test, |way, number| {
        let directory = place();
        let store = &Store {
            path: directory.path().join(name),
            ..store.clone()
        };
        crash_after(number);
        let (possible, has_ended) = run(store, &State::default(), program, 0);
        way.end();
        let state = look(store, &possible, &[]);
        let complete = !possible[0].checkpoints.is_empty();
        assert!(!complete || !state.checkpoints.is_empty(), "no checkpoint");
        // What follows crashes, too: at any of its changes, which are about 100.
        crash_after(Chance(number * 2 + u64::from(way == CrashKind::Power)).below(100));
        let former = possible;
        let (possible, _) = run(store, &state, &AFTER, 100);
        way.end();
        let state = look(store, &possible, &former);
        let (possible, is_well) = run(store, &state, &AFTER, 200);
        assert!(is_well);
        let state = look(store, &possible, &[]);
        assert_eq!(state, *possible.last().unwrap());
        check_tidy(store, &state);
        has_ended
    });
}

fn store(name: &str, time_chunk: u64, has_rows: bool) -> Store {
    Store {
        path: name.into(),
        time_chunk,
        has_rows,
        is_file: name.ends_with(".nc"),
    }
}

#[test]
fn a_group() {
    in_all_processes("a_group", || {
        the_group_at_every_change("a_group", &store("g", 1, false), &PROGRAM);
    });
}

#[test]
fn a_group_of_which_each_server_has_a_part() {
    let test = "a_group_of_which_each_server_has_a_part";
    in_all_processes(test, || {
        the_group_at_every_change(test, &store("{server}-g", 2, true), &SHORT);
    });
}

#[test]
fn a_group_that_goes_back_to_an_older_checkpoint() {
    let test = "a_group_that_goes_back_to_an_older_checkpoint";
    let store = store("g", 1, false);
    in_all_processes(test, || the_group_at_every_change(test, &store, &BACK));
}

#[test]
fn a_group_of_rows_and_of_chunks_of_several_timesteps() {
    let test = "a_group_of_rows_and_of_chunks_of_several_timesteps";
    let store = store("g", 3, true);
    in_all_processes(test, || the_group_at_every_change(test, &store, &BACK));
}

#[test]
fn a_group_in_a_file() {
    let test = "a_group_in_a_file";
    let store = store("g.nc", 1, false);
    in_all_processes(test, || the_group_at_every_change(test, &store, &PROGRAM));
}

#[test]
fn a_group_in_a_file_of_rows_and_of_chunks_of_several_timesteps() {
    let test = "a_group_in_a_file_of_rows_and_of_chunks_of_several_timesteps";
    let store = store("g.nc", 3, true);
    in_all_processes(test, || the_group_at_every_change(test, &store, &BACK));
}

/// A group that a former version of Penstock has written: three timesteps, and a checkpoint after
/// the second.
fn former_group() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join("data/group-of-version-1.zarr")
}

/// The former group as a program declares it.
fn of_former_group(path: &Path) -> GroupCall {
    let v = chunks(&[4, 4], None, "zstd:1+crc32c");
    GroupCall {
        name: "sim".to_string(),
        path: path.to_path_buf(),
        arrays: vec![
            rows(ArraySchema::new(
                "u",
                &[4, 3],
                ElementType::F8,
                chunks(&[2, 3], None, "none"),
            )),
            rows(ArraySchema::new("v", &[6, 4], ElementType::I4, v)),
        ],
        coordinates: Vec::new(),
        attributes: serde_json::Map::new(),
        time_attributes: serde_json::Map::new(),
        time_chunk: None,
        keep: KEEP,
        bounded: BTreeSet::new(),
    }
}

/// Restarts from the checkpoint, which drops the last timestep, and saves another.
fn save_to_former(path: &Path) -> Result<()> {
    let failure = Mutex::new(Ok(()));
    assert!(on_threads(RANKS, &options(), |session| {
        let group = of_former_group(path);
        let saved = session.find_checkpoint(path, None).and_then(|found| {
            assert_eq!(found.unwrap().checkpoint.timesteps, 2);
            let (_bytes, locals) = local_parts(&group, session.rank().unwrap(), Some(7));
            session.save(group, locals, Save::Timestep(Some(9.0)))
        });
        *failure.lock().unwrap() = saved.map(drop);
    }));
    failure.into_inner().unwrap()
}

/// Checks for two or three of the former timesteps, or two of them and the new one, and for the
/// checkpoint.
fn look_at_former(path: &Path, is_done: bool) {
    let found = verify(path, &mut |_| Ok(())).unwrap();
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    assert_eq!(found.checkpoints, 1);
    let stored = |path: &Path, name: &str| read_saved(path, name);
    let [old, now] =
        [former_group(), path.to_path_buf()].map(|path| ["u", "v"].map(|name| stored(&path, name)));
    let step = [96, 96];
    let added = [(0, 70), (1, 71)]
        .map(|(array, seed)| whole(&of_former_group(path).arrays[array].schema, seed));
    let is_old = (0..2)
        .all(|array| old[array].starts_with(&now[array]) && now[array].len() >= 2 * step[array]);
    let is_new = (0..2).all(|array| {
        now[array][..2 * step[array]] == old[array][..2 * step[array]]
            && now[array][2 * step[array]..] == added[array]
    });
    assert!(
        is_new || (is_old && !is_done),
        "neither what was there nor what was saved"
    );
    let [old, now] = [former_group(), path.to_path_buf()].map(|path| path.join("checkpoints/1"));
    for name in ["u", "v"] {
        assert_eq!(
            stored(&old, name),
            stored(&now, name),
            "the checkpoint's {name}"
        );
    }
}

#[test]
fn a_group_of_the_first_version() {
    let test = "a_group_of_the_first_version";
    in_all_processes(test, || {
        at_every_change(test, |way, number| {
            let directory = place();
            let path = directory.path().join("g");
            copy_tree(&former_group(), &path);
            crash_after(number);
            let saved = save_to_former(&path);
            let has_ended = way.end() <= number;
            look_at_former(&path, saved.is_ok());
            save_to_former(&path).unwrap();
            look_at_former(&path, true);
            assert_eq!(
                names(&path.join(".penstock/record/sums")),
                set(["u", "v", "time"])
            );
            has_ended
        });
    });
}

/// Repairs a group whose metadata another tool has rewritten.
#[test]
fn a_group_that_is_repaired() {
    let test = "a_group_that_is_repaired";
    in_all_processes(test, || {
        at_every_change(test, |way, number| {
            let directory = place();
            let path = directory.path().join("g");
            copy_tree(&former_group(), &path);
            let zarr = path.join("zarr.json");
            std::fs::write(
                &zarr,
                r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#,
            )
            .unwrap();
            assert_eq!(Catalog::read(&path).unwrap_err().kind, Kind::Damaged);
            crash_after(number);
            let repaired = repair(&path);
            let has_ended = way.end() <= number;
            assert!(repaired.is_ok() || !has_ended);
            repair(&path).unwrap();
            let catalog = Catalog::read(&path).unwrap().unwrap();
            assert_eq!((catalog.timesteps, catalog.checkpoints.len()), (3, 1));
            look_at_former(&path, false);
            save_to_former(&path).unwrap();
            look_at_former(&path, true);
            has_ended
        });
    });
}

// -------------------------------------------------------------------------------------------------
// Arrays by themselves
// -------------------------------------------------------------------------------------------------

fn array(shape: &[u64], disk: Storage) -> ArraySchema {
    ArraySchema::new("u", shape, ElementType::F8, disk)
}

/// Writes an array, or a part of it that the two ranks share: rows 1 and 3 to 4.
fn write(path: &Path, schema: &ArraySchema, seed: u64, is_region: bool) -> Result<()> {
    write_by(path, schema, seed, is_region, &options())
}

fn write_by(
    path: &Path,
    schema: &ArraySchema,
    seed: u64,
    is_region: bool,
    options: &SessionOptions,
) -> Result<()> {
    let outcome = Mutex::new(Ok(()));
    let all_well = on_threads(RANKS, options, |session| {
        let rank = session.rank().unwrap();
        let mut call = rows(schema.clone());
        if is_region {
            call.memory = Memory::Boxes {
                own: vec![part(schema, rank)],
                halo: vec![(0, 0); schema.shape.len()],
                is_region,
            };
        }
        let (_bytes, local) = local(&call, rank, 0, Some(seed));
        let written = session.write(path, call, vec![local], None);
        *outcome.lock().unwrap() = written.map(drop);
    });
    assert!(all_well);
    outcome.into_inner().unwrap()
}

/// A rank's part of the array, if only a part is written.
fn part(schema: &ArraySchema, rank: usize) -> Region {
    let (mut start, mut shape) = (vec![0; schema.shape.len()], schema.shape.clone());
    (start[0], shape[0]) = [(1, 1), (3, 2)][rank];
    start[1] = 1;
    shape[1] -= 1;
    Region::new(&start, &shape)
}

/// The array's bytes after a part of the elements of seed `old` was overwritten by those with seed
/// `new`.
fn overwritten(schema: &ArraySchema, old: u64, new: u64) -> Vec<u8> {
    let (mut bytes, fresh) = (whole(schema, old), whole(schema, new));
    let width = schema.element.width() as usize;
    for number in 0..schema.shape.iter().product::<u64>() {
        let place = [number / schema.shape[1], number % schema.shape[1]];
        let is_in = (0..RANKS).any(|rank| {
            let part = part(schema, rank);
            (0..2).all(|d| (part.start[d]..part.start[d] + part.shape[d]).contains(&place[d]))
        });
        if is_in {
            let at = number as usize * width..(number as usize + 1) * width;
            bytes[at.clone()].copy_from_slice(&fresh[at]);
        }
    }
    bytes
}

/// A change from one array to another.
struct Change {
    /// The name of the store.
    name: &'static str,
    old: Option<ArraySchema>,
    new: ArraySchema,
    /// Whether only a part of the array is written.
    is_region: bool,
}

/// The terms of a schema that every form keeps.
fn described(schema: &ArraySchema) -> (Vec<u64>, ElementType) {
    (schema.shape.clone(), schema.element.clone())
}

/// Whether the store of an array has room for others.
fn has_neighbours(schema: &ArraySchema) -> bool {
    matches!(schema.disk, Storage::Chunks { .. } | Storage::Hdf5 { .. })
}

impl Change {
    /// Writes the old array, and neighbours that must not change.
    fn prepare(&self, path: &Path) {
        if let Some(old) = &self.old {
            write(&path.join(self.name), old, 1, false).unwrap();
            if has_neighbours(old) {
                let mut other = old.clone();
                other.name = "w".to_string();
                write(&path.join(self.name), &other, 2, false).unwrap();
            }
        }
    }

    /// Checks that a reader finds the old array or the new, or nothing if there was none.
    fn look(&self, path: &Path, is_done: bool) {
        let path = path.join(self.name);
        let new_bytes = match (&self.old, self.is_region) {
            (Some(_), true) => overwritten(&self.new, 1, 3),
            _ => whole(&self.new, 3),
        };
        let found = match read(&path, Some("u")) {
            Err(error) if error.kind == Kind::Missing && self.old.is_none() => {
                assert!(!is_done, "a complete write is gone");
                return;
            }
            found => found.unwrap(),
        };
        let is_new = described(&found.0) == described(&self.new) && found.1 == new_bytes;
        let is_old = self
            .old
            .as_ref()
            .is_some_and(|old| described(&found.0) == described(old) && found.1 == whole(old, 1));
        assert!(is_new || is_old, "neither the old array nor the new");
        assert!(is_new || !is_done, "a complete write is gone");
        if self.old.as_ref().is_some_and(has_neighbours) {
            let other = read(&path, Some("w")).unwrap();
            assert!(other.1 == whole(&other.0, 2), "another array has changed");
        }
    }

    /// Checks the files after a write that ended well.
    fn check_tidy(&self, path: &Path) {
        let mut own = names_of(self.name);
        if self.new.disk == flat(Format::Raw) {
            own.insert(format!("{}.json", self.name));
        }
        assert_eq!(names(path), own);
        let found = read(&path.join(self.name), Some("u")).unwrap();
        assert!(found.1 == whole(&self.new, 5));
    }

    fn at_every_change(&self, test: &'static str) {
        self.at_every_change_by(test, place, &options());
    }

    fn at_every_change_by(
        &self,
        test: &'static str,
        place: impl Fn() -> tempfile::TempDir,
        options: &SessionOptions,
    ) {
        let template = place();
        self.prepare(template.path());
        at_every_change(test, |way, number| {
            let directory = place();
            let path: PathBuf = directory.path().join("d");
            copy_tree(template.path(), &path);
            crash_after(number);
            let target = path.join(self.name);
            let written = write_by(&target, &self.new, 3, self.is_region, options);
            // After the rename, remains of the write may stay: that is no failure.
            let has_ended = way.end() <= number;
            self.look(&path, written.is_ok());
            write(&path.join(self.name), &self.new, 5, false).unwrap();
            self.check_tidy(&path);
            has_ended
        });
    }
}

#[test]
fn arrays_that_are_replaced() {
    in_all_processes("arrays_that_are_replaced", || {
        let shards = || chunks(&[4, 4], Some(&[2, 2]), "zstd:1+crc32c");
        let plain = || chunks(&[2, 3], None, "none");
        for (old, new) in [
            (None, array(&[5, 4], plain())),
            (Some(array(&[5, 4], plain())), array(&[5, 4], plain())),
            (Some(array(&[5, 4], plain())), array(&[6, 3], shards())),
            (Some(array(&[6, 3], shards())), array(&[5, 4], shards())),
            (None, array(&[5, 4], flat(Format::Raw))),
            (
                Some(array(&[5, 4], flat(Format::Raw))),
                array(&[6, 3], flat(Format::Raw)),
            ),
            (
                Some(array(&[6, 3], flat(Format::Raw))),
                array(&[5, 4], flat(Format::Npy)),
            ),
            (
                Some(array(&[5, 4], flat(Format::Npy))),
                array(&[6, 3], flat(Format::Npy)),
            ),
            (
                Some(array(&[5, 4], flat(Format::Npy))),
                array(&[6, 3], flat(Format::Raw)),
            ),
            (None, array(&[5, 4], parts("BLOCK,*", &[3]))),
            (
                Some(array(&[5, 4], parts("BLOCK,*", &[3]))),
                array(&[6, 3], parts("BLOCK,BLOCK", &[2, 2])),
            ),
        ] {
            let change = Change {
                name: "x",
                old,
                new,
                is_region: false,
            };
            change.at_every_change("arrays_that_are_replaced");
        }
    });
}

/// A dataset that is named as its array.
fn dataset(chunk: Option<&[u64]>, filters: &str, is_netcdf: bool) -> Storage {
    Storage::Hdf5 {
        dataset: String::new(),
        chunk: chunk.map(<[u64]>::to_vec),
        filters: filters.to_string(),
        is_netcdf,
    }
}

#[test]
fn datasets_of_hdf5_files() {
    in_all_processes("datasets_of_hdf5_files", || {
        let packed = || dataset(Some(&[2, 3]), "shuffle+deflate:1+fletcher32", false);
        for (old, new) in [
            (None, dataset(None, "none", false)),
            (None, packed()),
            (None, dataset(Some(&[2, 2]), "none", true)),
            (Some(dataset(None, "none", false)), packed()),
            (Some(packed()), dataset(Some(&[2, 2]), "none", false)),
            (Some(packed()), packed()),
        ] {
            let change = Change {
                name: "x.h5",
                old: old.map(|old| array(&[5, 4], old)),
                new: array(&[5, 4], new),
                is_region: false,
            };
            change.at_every_change("datasets_of_hdf5_files");
        }
    });
}

#[test]
fn arrays_of_which_each_server_has_a_part() {
    let test = "arrays_of_which_each_server_has_a_part";
    in_all_processes(test, || {
        for disk in [chunks(&[2, 3], None, "none"), parts("BLOCK,*", &[3])] {
            for is_region in [false, true] {
                let change = Change {
                    name: "{server}-x",
                    old: Some(array(&[5, 4], disk.clone())),
                    new: array(&[5, 4], disk.clone()),
                    is_region,
                };
                change.at_every_change(test);
            }
        }
    });
}

#[test]
fn parts_of_arrays() {
    in_all_processes("parts_of_arrays", || {
        for disk in [
            chunks(&[2, 3], None, "none"),
            chunks(&[2, 2], None, "zstd:1+crc32c"),
            chunks(&[4, 4], Some(&[2, 2]), "zstd:1+crc32c"),
            flat(Format::Raw),
            flat(Format::Npy),
            parts("BLOCK,*", &[3]),
            dataset(Some(&[2, 3]), "shuffle+deflate:1+fletcher32", false),
            dataset(Some(&[5, 4]), "zstd:1", true),
        ] {
            let change = Change {
                name: match disk {
                    Storage::Hdf5 { .. } => "x.h5",
                    _ => "x",
                },
                old: Some(array(&[5, 4], disk.clone())),
                new: array(&[5, 4], disk),
                is_region: true,
            };
            change.at_every_change("parts_of_arrays");
        }
    });
}

/// For direct I/O, servers make their files first. (Direct writes are not counted as changes. No
/// block here is one: all are smaller than a page.)
#[test]
fn arrays_written_directly() {
    if disk_place().is_none() {
        return;
    }
    in_all_processes("arrays_written_directly", || {
        for disk in [chunks(&[2, 3], None, "none"), parts("BLOCK,*", &[3])] {
            let array = array(&[5, 4], disk);
            let change = |old: Option<&ArraySchema>, is_region| Change {
                name: "x",
                old: old.cloned(),
                new: array.clone(),
                is_region,
            };
            let by = SessionOptions {
                direct: true.into(),
                ..options()
            };
            for change in [change(None, false), change(Some(&array), true)] {
                let place = || disk_place().unwrap();
                change.at_every_change_by("arrays_written_directly", place, &by);
            }
        }
    });
}

// -------------------------------------------------------------------------------------------------
// Arrays that are changed in place
// -------------------------------------------------------------------------------------------------

/// The servers that change an array in place.
const SERVERS: usize = 2;
/// What half of an unsynced write becomes in a power failure.
const LOST: u8 = 0xa5;

/// What may be in a block after a crash: what it held when its server last finished, and all that
/// was written since.
type Possible = BTreeMap<(u64, u64), Vec<Vec<u8>>>;

/// An array that is changed in place.
struct InPlace {
    path: PathBuf,
    disk: DiskSchema,
    possible: Possible,
    /// Whether blocks are overwritten where they are, and may be torn.
    may_tear: bool,
}

impl InPlace {
    fn new(path: &Path, schema: &ArraySchema) -> Self {
        let stored = StoredArray::open(path, None).unwrap();
        let may_tear = match &schema.disk {
            Storage::Chunks {
                subchunks, codec, ..
            } => subchunks.is_none() && codec == "none",
            _ => true,
        };
        let mut new = Self {
            path: path.to_path_buf(),
            disk: stored.disk_schema(40).unwrap(),
            possible: BTreeMap::new(),
            may_tear,
        };
        new.possible = new
            .found()
            .into_iter()
            .map(|(key, data)| (key, vec![data]))
            .collect();
        new
    }

    fn open(&self, server: usize) -> Result<Arc<dyn Medium>> {
        let stored = StoredArray::open(&self.path, None)?;
        let target = stored.target().clone().for_server(server, SERVERS);
        target.open_update(&self.disk)
    }

    /// All blocks, as a reader finds them.
    fn found(&self) -> BTreeMap<(u64, u64), Vec<u8>> {
        let stored = StoredArray::open(&self.path, None).unwrap();
        let medium = stored.target().open_read(&self.disk).unwrap();
        let read = |block: Block| {
            let mut data = vec![0; block.bytes as usize];
            medium.read(&block, &mut data).unwrap();
            ((block.object, block.offset), data)
        };
        self.disk.blocks(0, 1).map(read).collect()
    }

    /// Writes `nth` of three blocks of a server, or all.
    fn write(&mut self, medium: &dyn Medium, server: usize, (nth, seed): (u64, u64)) -> Result<()> {
        let mut chance = Chance(seed);
        for block in self.disk.blocks(server, SERVERS) {
            if (block.object + block.index) % 3 == nth || nth == 3 {
                let data: Vec<u8> = (0..block.bytes).map(|_| chance.below(256) as u8).collect();
                let versions = self
                    .possible
                    .get_mut(&(block.object, block.offset))
                    .unwrap();
                versions.push(data.clone());
                medium.write(&block, &data)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, medium: &dyn Medium, server: usize) -> Result<()> {
        medium.finish(true)?;
        for block in self.disk.blocks(server, SERVERS) {
            let versions = self
                .possible
                .get_mut(&(block.object, block.offset))
                .unwrap();
            versions.drain(..versions.len() - 1);
        }
        Ok(())
    }

    /// Servers write, write again, finish, and write; one opens the array again.
    fn run(&mut self) -> Result<()> {
        let mut media = Vec::new();
        for server in 0..SERVERS {
            media.push(self.open(server)?);
        }
        for (turn, nth) in [0, 1, 1, 3].into_iter().enumerate() {
            for (server, medium) in media.iter().enumerate() {
                let seed = (turn * SERVERS + server) as u64;
                self.write(&**medium, server, (nth, seed))?;
            }
            if turn % 2 == 1 {
                for (server, medium) in media.iter().enumerate() {
                    self.finish(&**medium, server)?;
                }
                media[0] = self.open(0)?;
            }
        }
        Ok(())
    }

    /// Checks that every block is there, old or new.
    fn look(&self, way: CrashKind) {
        for (key, data) in self.found() {
            let versions = &self.possible[&key];
            let is_torn = || {
                let may_lose = way == CrashKind::Power && versions.len() > 1;
                let mut bytes = data.iter().enumerate();
                bytes.all(|(at, &byte)| {
                    (may_lose && byte == LOST) || versions.iter().any(|v| v[at] == byte)
                })
            };
            let is_right = versions.contains(&data) || (self.may_tear && is_torn());
            assert!(is_right, "block {key:?} is none of {}", versions.len());
        }
    }

    /// Changes all blocks after a crash; nothing is left over then.
    fn go_on(&mut self) {
        for server in 0..SERVERS {
            let medium = self.open(server).unwrap();
            self.write(&*medium, server, (3, 77)).unwrap();
            self.finish(&*medium, server).unwrap();
        }
        self.look(CrashKind::Killed);
    }
}

/// Removes a chunk of an array, if it is in chunks: that one has to be made.
fn remove_chunk(directory: &Path) {
    let is_chunk = |name: &&String| name.ends_with("/0/0");
    if let Some(name) = all_names(directory).iter().find(is_chunk) {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
}

fn all_names(directory: &Path) -> BTreeSet<String> {
    let below = common::snapshot(directory);
    below.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn arrays_that_are_changed_in_place() {
    let test = "arrays_that_are_changed_in_place";
    in_all_processes(test, || {
        let filled = Fill::new(&ElementType::F8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        for (name, disk, fill) in [
            ("x", chunks(&[2, 3], None, "none"), Fill::default()),
            ("x", chunks(&[2, 3], None, "none"), filled.clone()),
            ("x", chunks(&[2, 2], None, "zstd:1+crc32c"), filled.clone()),
            (
                "x",
                chunks(&[4, 4], Some(&[2, 2]), "zstd:1+crc32c"),
                filled.clone(),
            ),
            ("x", flat(Format::Raw), Fill::default()),
            ("x", parts("BLOCK,*", &[3]), Fill::default()),
            ("{server}-x", chunks(&[2, 3], None, "none"), filled.clone()),
            (
                "{server}-x",
                chunks(&[2, 2], None, "zstd:1+crc32c"),
                filled.clone(),
            ),
            ("{server}-x", parts("BLOCK,*", &[3]), Fill::default()),
        ] {
            let mut schema = array(&[5, 4], disk);
            schema.fill = fill;
            let template = place();
            write(&template.path().join(name), &schema, 1, false).unwrap();
            remove_chunk(template.path());
            at_every_change(test, |way, number| {
                let directory = place();
                let path = directory.path().join("d");
                copy_tree(template.path(), &path);
                let mut array = InPlace::new(&path.join(name), &schema);
                crash_after(number);
                let ran = array.run();
                let has_ended = way.end() <= number;
                assert!(ran.is_ok() || !has_ended);
                array.look(way);
                if number % 2 == 0 {
                    array.go_on();
                } else {
                    write(&path.join(name), &schema, 5, true).unwrap();
                    array.possible = array
                        .found()
                        .into_iter()
                        .map(|(k, v)| (k, vec![v]))
                        .collect();
                }
                let temporary = |name: &String| name.contains(".penstock");
                assert!(!all_names(directory.path()).iter().any(temporary));
                has_ended
            });
        }
    });
}

/// A copy that crashes goes on where it stopped, and leaves nothing over.
/// Copies the arrays `u` and `v` of a store to `name`, which is new and comes whole, or goes on
/// after a crash.
fn copies_to(test: &'static str, source: &Path, name: &str, options: &copy::Options) {
    at_every_change(test, |way, number| {
        let directory = place();
        let target = directory.path().join(name);
        let copy = || {
            let ended = Mutex::new(Ok(0));
            assert!(on_threads(RANKS, &SessionOptions::default(), |session| {
                let copied = session.copy(source, &target, options, &mut |_| Ok(()));
                *ended.lock().unwrap() = copied.map(|report| report.slabs_found);
            }));
            ended.into_inner().unwrap()
        };
        crash_after(number);
        let copied = copy();
        let has_ended = way.end() <= number;
        let is_there = target.exists();
        assert!(is_there || copied.is_err());
        if !is_there {
            copy().unwrap();
        }
        for name in ["u", "v"] {
            let (schema, found) = read(&target, Some(name)).unwrap();
            assert!(found == whole(&schema, 1), "{name} is not what was copied");
        }
        // After the rename, a crash may leave the former array.
        if !is_there {
            assert_eq!(names(directory.path()), set([name]));
        }
        has_ended
    });
}

/// A store of the arrays `u` and `v`.
fn two_arrays(path: &Path, disks: [Storage; 2]) {
    for (name, disk) in ["u", "v"].into_iter().zip(disks) {
        let schema = ArraySchema::new(name, &[5, 4], ElementType::F8, disk);
        write(path, &schema, 1, false).unwrap();
    }
}

fn copy_options(form: copy::Form) -> copy::Options {
    copy::Options {
        form,
        memory_bytes: 20 << 20,
        ..copy::Options::default()
    }
}

#[test]
fn copies() {
    in_all_processes("copies", || {
        let template = place();
        let path = template.path().join("d");
        two_arrays(
            &path,
            [
                chunks(&[2, 3], None, "none"),
                chunks(&[5, 4], Some(&[5, 1]), "zstd:1+crc32c"),
            ],
        );
        let options = copy_options(copy::Form::Zarr {
            chunks: Some("4,2".parse().unwrap()),
            subchunks: None,
            codec: None,
        });
        copies_to("copies", &path, "copy", &options);
    });
}

#[test]
fn copies_of_and_to_hdf5_files() {
    let test = "copies_of_and_to_hdf5_files";
    in_all_processes(test, || {
        let template = place();
        let file = template.path().join("d.h5");
        let packed = dataset(Some(&[2, 3]), "shuffle+deflate:1", false);
        two_arrays(&file, [packed, dataset(None, "none", false)]);
        for (name, chunks, filters) in [
            ("copy.h5", None, None),
            ("copy.nc", Some("2,2"), Some("deflate:1+fletcher32")),
        ] {
            let chunks = chunks.map(|extents| extents.parse().unwrap());
            let filters = filters.map(str::to_string);
            let form = copy::Form::of(Path::new(name), chunks, None, None, filters);
            copies_to(test, &file, name, &copy_options(form.unwrap()));
        }
    });
}

/// What is added to a file that is there is whole, or nothing of it is there.
#[test]
fn copies_into_an_hdf5_file_that_is_there() {
    let test = "copies_into_an_hdf5_file_that_is_there";
    in_all_processes(test, || {
        let template = place();
        let source = template.path().join("d");
        two_arrays(
            &source,
            [
                chunks(&[2, 3], None, "none"),
                chunks(&[2, 2], None, "zstd:1"),
            ],
        );
        at_every_change(test, |way, number| {
            let directory = place();
            let file = directory.path().join("x.h5");
            let old = array(&[5, 4], dataset(Some(&[2, 3]), "deflate:1", false));
            write(&file, &old, 1, false).unwrap();
            let target = PathBuf::from(format!("{}:/in/it", file.display()));
            let form = copy::Form::of(&target, None, None, None, None).unwrap();
            let options = copy::Options {
                overwrites: false,
                ..copy_options(form)
            };
            let copy = || {
                let ended = Mutex::new(None);
                assert!(on_threads(RANKS, &SessionOptions::default(), |session| {
                    let copied = session.copy(&source, &target, &options, &mut |_| Ok(()));
                    *ended.lock().unwrap() = Some(copied.map(drop));
                }));
                ended.into_inner().unwrap().unwrap()
            };
            crash_after(number);
            let copied = copy();
            let has_ended = way.end() <= number;
            let found = read(&file, Some("u")).unwrap();
            assert!(found.1 == whole(&old, 1), "what was there has changed");
            let is_there = ["u", "v"].map(|name| {
                let found = StoredArray::open_dataset(&file, &format!("/in/it/{name}"));
                let found = found.map(|stored| (stored.schema().clone(), read_stored(&stored)));
                match found {
                    Ok((schema, bytes)) => assert!(bytes.unwrap() == whole(&schema, 1)),
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Missing, "{error}");
                        return false;
                    }
                }
                true
            });
            assert_eq!(is_there[0], is_there[1], "half of a copy is there");
            assert!(is_there[0] || copied.is_err());
            if !is_there[0] {
                copy().unwrap();
                assert_eq!(names(directory.path()), set(["x.h5"]));
            }
            has_ended
        });
    });
}

/// A resumed copy does not copy finished slabs again.
#[test]
fn what_is_to_be_resumed() {
    common::in_own_process("crash::what_is_to_be_resumed", resumes_what_was_not_done);
}

fn resumes_what_was_not_done() {
    let directory = place();
    let path = directory.path().join("d");
    let schema = array(&[64, 64, 512], chunks(&[64, 64, 8], None, "none"));
    let values = common::values(&schema, 3);
    common::write(&path, &schema, &values).unwrap();
    let copy = |target: &Path| {
        let options = copy::Options {
            form: copy::Form::Zarr {
                chunks: Some("8,64,512".parse().unwrap()),
                subchunks: None,
                codec: None,
            },
            memory_bytes: 8 << 20,
            ..copy::Options::default()
        };
        let ended = Mutex::new(None);
        assert!(on_threads(1, &SessionOptions::default(), |session| {
            let copied = session.copy(&path, target, &options, &mut |_| Ok(()));
            *ended.lock().unwrap() = Some(copied);
        }));
        ended.into_inner().unwrap().unwrap()
    };
    crash_after(u64::MAX);
    let whole = copy(&directory.path().join("whole")).unwrap();
    let changes = no_crash();
    assert_eq!(whole.slabs_found, 0);
    assert!(whole.slabs > 2, "{whole:?}");
    let target = directory.path().join("copy");
    crash_after(changes * 2 / 3);
    copy(&target).unwrap_err();
    no_crash();
    lose_unsynced().unwrap();
    let report = copy(&target).unwrap();
    assert!((1..whole.slabs).contains(&report.slabs_found), "{report:?}");
    assert!(read(&target, Some("u")).unwrap().1 == values);
    // The source has changed, so the copy begins anew.
    let again = directory.path().join("again");
    crash_after(changes * 2 / 3);
    copy(&again).unwrap_err();
    no_crash();
    lose_unsynced().unwrap();
    common::write(&path, &schema, &values).unwrap();
    assert_eq!(copy(&again).unwrap().slabs_found, 0);
}
