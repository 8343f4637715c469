//! Crashes of a volume at any moment, and clients that are lost at any message.
//!
//! Each client of a simulated job has a directory of its own, in which it makes, writes, saves,
//! checkpoints, renames and removes files, and notes what it has begun and what has ended. Then all
//! nodes are lost at one event, and disks lose what was not safe. When servers start again:
//!
//! - all names are there that had been made, and no others; an operation that was under way has
//!   been done or not, on all servers;
//! - a file has what was saved, or what was written since then; a checkpoint is that of all cells;
//! - a check of all records finds nothing, neither before servers start again nor after that;
//! - when all is removed, no block is in use, and no record is left but the root's.
//!
//! A failure prints its seed: `PENSTOCK_SEED=<seed> cargo test -p penstock-files crashes::`
//! runs that one alone, and `PENSTOCK_SEEDS=100000` in its place runs that number of seeds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::future::join;
use penstock_engine::{Error, Kind};
use penstock_files::{
    Client, EntryKind, FileChange, FilePath, Names, ObjectKind, OpenSubfile, Replacement, Version,
};
use penstock_layout::{SubfileOrder, View};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Loss, Moment, SimNode};
use penstock_sim::random::Random;

use crate::naive::{Change, File, Place};
use crate::seeds;
use crate::simulated::{BOTH, Left, Program, Volume, open_in, path};

const STEPS: usize = 25;

/// What a file may be after a crash.
#[derive(Debug, Clone)]
struct Known {
    cells: u64,
    bsu_bytes: u64,
    /// The file as it was saved last.
    safe: File,
    /// The file as it is.
    now: File,
    /// What was written since the last save: places, and the byte put there.
    since: Vec<(Vec<Place>, u8)>,
    /// The checkpoint.
    kept: Option<File>,
}

/// An object of a client's directory.
#[derive(Debug, Clone)]
enum Object {
    Directory,
    Symlink,
    File(Box<Known>),
}

/// What a client knows of its directory: its objects by their paths, and the operation under way.
#[derive(Debug, Clone, Default)]
struct Journal {
    objects: BTreeMap<String, Object>,
    /// The limit of the client's own user, in blocks.
    quota: Option<u64>,
    under_way: Option<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    MakeDirectory(String),
    /// Make a symbolic link, whose target is its own path.
    MakeSymlink(String),
    Create(String, u64, u64),
    Write {
        file: String,
        view: [u64; 4],
        subfile: u64,
        offset: u64,
        bytes: usize,
        fill: u8,
    },
    Sync(String),
    Change(String, FileChange),
    Remove(String),
    Rename(String, String),
    /// Rename a file or a symbolic link to another, which goes, or gets a third path.
    Replace(String, String, Option<String>),
    /// Limit a user, who has no files.
    Limit(u32, Option<u64>),
    /// Give the volume a ring of these servers.
    AddRing(Vec<usize>),
    /// Let the servers go that have nothing.
    Retire,
    /// Let a file move on to the newest ring.
    MoveOn(String),
    /// Let another server keep a slot.
    MoveSlot(usize, usize),
}

impl Journal {
    fn file(&mut self, name: &str) -> &mut Known {
        match self.objects.get_mut(name) {
            Some(Object::File(known)) => known,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Notes that a step has ended well.
    fn end(&mut self, step: &Step) {
        match step {
            Step::MakeDirectory(name) => {
                self.objects.insert(name.clone(), Object::Directory);
            }
            Step::MakeSymlink(name) => {
                self.objects.insert(name.clone(), Object::Symlink);
            }
            Step::Create(name, cells, bsu_bytes) => {
                let empty = File::new(*cells as usize, *bsu_bytes as usize);
                let known = Known {
                    cells: *cells,
                    bsu_bytes: *bsu_bytes,
                    safe: empty.clone(),
                    now: empty,
                    since: Vec::new(),
                    kept: None,
                };
                self.objects
                    .insert(name.clone(), Object::File(Box::new(known)));
            }
            Step::Write { file, .. } => {
                let (places, fill) = self.written(step);
                let known = self.file(file);
                known.now.write(&places, fill);
                known.since.push((places, fill));
            }
            Step::Sync(file) => {
                let known = self.file(file);
                known.safe = known.now.clone();
                known.since.clear();
            }
            Step::Change(file, change) => {
                let known = self.file(file);
                match change {
                    FileChange::Checkpoint => {
                        known.now.change(Change::Checkpoint);
                        known.kept = Some(known.now.clone());
                    }
                    FileChange::RollBack => assert!(known.now.change(Change::RollBack)),
                    FileChange::Resize(bytes) => {
                        known.now.change(Change::Resize(*bytes as usize));
                    }
                    FileChange::Truncate(bytes) => {
                        known.now.change(Change::Truncate(*bytes as usize));
                    }
                    _ => unreachable!("no step of a client"),
                }
                known.safe = known.now.clone();
                known.since.clear();
            }
            Step::Remove(name) => {
                self.objects.remove(name);
            }
            Step::Limit(_, blocks) => self.quota = *blocks,
            Step::AddRing(_) | Step::Retire | Step::MoveOn(_) | Step::MoveSlot(..) => {}
            Step::Replace(from, to, kept) => {
                let replaced = self.objects.remove(to).unwrap();
                if let Some(kept) = kept {
                    self.objects.insert(kept.clone(), replaced);
                }
                let object = self.objects.remove(from).unwrap();
                self.objects.insert(to.clone(), object);
            }
            Step::Rename(from, to) => {
                let below = format!("{from}/");
                let moved: Vec<String> = self
                    .objects
                    .keys()
                    .filter(|name| *name == from || name.starts_with(&below))
                    .cloned()
                    .collect();
                for name in moved {
                    let object = self.objects.remove(&name).unwrap();
                    self.objects
                        .insert(format!("{to}{}", &name[from.len()..]), object);
                }
            }
        }
    }

    fn written(&mut self, step: &Step) -> (Vec<Place>, u8) {
        let Step::Write {
            file,
            view,
            subfile,
            offset,
            bytes,
            fill,
        } = step
        else {
            unreachable!("it is a write");
        };
        let order = SubfileOrder::Block;
        let known = self.file(file);
        let places = known
            .now
            .places(*view, *subfile, order, *offset as usize, *bytes);
        (places, *fill)
    }

    /// The journals that may be true after a crash: the step under way has ended or not.
    fn possible(&self) -> Vec<Self> {
        let mut before = self.clone();
        let Some(step) = before.under_way.take() else {
            return vec![before];
        };
        match &step {
            Step::Write { file, .. } => {
                let written = before.written(&step);
                before.file(file).since.push(written);
                vec![before]
            }
            Step::Sync(_)
            | Step::AddRing(_)
            | Step::Retire
            | Step::MoveOn(_)
            | Step::MoveSlot(..) => vec![before],
            _ => {
                let mut after = before.clone();
                after.end(&step);
                vec![before, after]
            }
        }
    }
}

/// The user of all clients, who owns the volume.
const OWNER: u32 = 1;

/// The user whose quota a client sets.
fn user_of(home: &str) -> u32 {
    home[2..].parse::<u32>().unwrap() + 100
}

/// Chooses a step that can succeed.
fn choose(
    random: &mut Random,
    journal: &Journal,
    (home, servers, hashes): (&str, usize, Names),
    fill: &mut u8,
) -> Step {
    let names = journal.objects.keys().filter(|name| *name != home);
    let names: Vec<&String> = names.collect();
    let is_file = |name: &&&String| matches!(journal.objects[**name], Object::File(_));
    let files: Vec<&String> = names.iter().filter(is_file).copied().collect();
    let is_directory = |name: &&&String| matches!(journal.objects[**name], Object::Directory);
    let directories = names.iter().filter(is_directory);
    let directories: Vec<&String> = directories.copied().collect();
    let leaves = names.iter().filter(|name| !is_directory(name));
    let leaves: Vec<&String> = leaves.copied().collect();
    let pick = |random: &mut Random, some: &[&String]| {
        some[random.below(some.len() as u64) as usize].clone()
    };
    *fill += 1;
    let fresh = |random: &mut Random| {
        let parent = match random.below(directories.len() as u64 + 1) {
            0 => home.to_string(),
            nth => directories[nth as usize - 1].clone(),
        };
        format!("{parent}/n{fill}")
    };
    match random.below(28) {
        27 => Step::Retire,
        24..=26 => {
            // Of a path that is used; the slots of other paths have nothing in them.
            let name = match names.is_empty() {
                true => home.to_string(),
                false => pick(random, &names),
            };
            let slot = hashes.slot_of(&path(&name));
            Step::MoveSlot(slot, random.below(servers as u64) as usize)
        }
        20 => {
            let some = (0..servers).filter(|_| random.below(2) == 0);
            let mut some: Vec<usize> = some.collect();
            some.push(random.below(servers as u64) as usize);
            Step::AddRing(some)
        }
        21..=23 if !files.is_empty() => Step::MoveOn(pick(random, &files)),
        17 => Step::MakeSymlink(fresh(random)),
        18 | 19 if leaves.len() > 1 => {
            let nth = random.below(leaves.len() as u64) as usize;
            let other = nth + 1 + random.below(leaves.len() as u64 - 1) as usize;
            let to = leaves[other % leaves.len()].clone();
            let kept = (random.below(2) == 0).then(|| fresh(random));
            Step::Replace(leaves[nth].clone(), to, kept)
        }
        16 => {
            let blocks = 1 + random.below(9);
            Step::Limit(user_of(home), (blocks < 7).then_some(blocks))
        }
        0 => Step::MakeDirectory(fresh(random)),
        1 | 2 => Step::Create(fresh(random), 1 + random.below(5), 1 + random.below(9)),
        3 if !names.is_empty() => {
            let (from, to) = (pick(random, &names), fresh(random));
            match to.starts_with(&format!("{from}/")) {
                true => Step::MakeDirectory(to),
                false => Step::Rename(from, to),
            }
        }
        4 if !names.is_empty() => {
            let name = pick(random, &names);
            let below = format!("{name}/");
            match names.iter().any(|other| other.starts_with(&below)) {
                true => Step::MakeDirectory(fresh(random)),
                false => Step::Remove(name),
            }
        }
        5..=7 if !files.is_empty() => Step::Sync(pick(random, &files)),
        8 if !files.is_empty() => Step::Change(pick(random, &files), FileChange::Checkpoint),
        9 if !files.is_empty() => {
            let name = pick(random, &files);
            let has_checkpoint =
                matches!(&journal.objects[&name], Object::File(known) if known.kept.is_some());
            match has_checkpoint && random.below(2) == 0 {
                true => Step::Change(name, FileChange::RollBack),
                false => Step::Change(
                    name,
                    match random.below(2) {
                        0 => FileChange::Resize(random.below(60)),
                        _ => FileChange::Truncate(random.below(120)),
                    },
                ),
            }
        }
        _ if !files.is_empty() => {
            let mut below = |bound| 1 + random.below(bound);
            let view = [below(3), below(3), below(3), below(3)];
            Step::Write {
                file: pick(random, &files),
                view,
                subfile: random.below(view[1] * view[3]),
                offset: random.below(60),
                bytes: random.below(60) as usize,
                fill: *fill,
            }
        }
        _ => Step::Create(fresh(random), 1 + random.below(5), 1 + random.below(9)),
    }
}

async fn run_step(me: &Program, step: &Step) {
    let client = me.client();
    match step {
        Step::MakeDirectory(name) => {
            client.make_directory(path(name), 0o755).await.unwrap();
        }
        Step::MakeSymlink(name) => {
            client.make_symlink(path(name), name.clone()).await.unwrap();
        }
        Step::Replace(from, to, kept) => {
            let replacement = match kept {
                Some(kept) => Replacement::Moved(path(kept)),
                None => Replacement::Removed,
            };
            let (from, to) = (path(from), path(to));
            client.replace(&from, &to, replacement).await.unwrap();
        }
        Step::Create(name, cells, bsu_bytes) => {
            let shape = (*cells, *bsu_bytes, None);
            client.create(path(name), shape, 0o644).await.unwrap();
        }
        Step::Write {
            file,
            view,
            subfile,
            offset,
            bytes,
            fill,
        } => {
            let file = client.attach(&path(file), BOTH).await.unwrap();
            let open = open_in(&file, *view, *subfile, SubfileOrder::Block);
            me.write(&open, *offset, &vec![*fill; *bytes])
                .await
                .unwrap();
            client.detach(&file).await.unwrap();
        }
        Step::Sync(file) => {
            let file = client.attach(&path(file), BOTH).await.unwrap();
            client.sync(Some(&file)).await.unwrap();
            client.detach(&file).await.unwrap();
        }
        Step::Change(file, change) => client.change(&path(file), *change).await.unwrap(),
        Step::Remove(name) => client.remove(&path(name)).await.unwrap(),
        Step::Limit(user, blocks) => {
            let bytes = blocks.map(|blocks| blocks * me.state.shape.block_bytes);
            client.limit(*user, bytes).await.unwrap();
        }
        Step::Rename(from, to) => client.rename(&path(from), &path(to)).await.unwrap(),
        Step::Retire => match client.retire().await {
            Err(error) if error.kind == Kind::Busy => {} // a file is in another ring
            retired => retired.unwrap(),
        },
        Step::AddRing(servers) => match client.add_ring(servers).await {
            Err(error) if error.kind == Kind::Busy => {} // another client makes one
            added => drop(added.unwrap()),
        },
        Step::MoveSlot(slot, to) => {
            // Others may use its names all the time.
            match client.move_slot(*slot, *to).await {
                // The server may have no part of the volume.
                Err(error) if matches!(error.kind, Kind::Busy | Kind::Schema) => {}
                moved => moved.unwrap(),
            }
        }
        Step::MoveOn(name) => drop(client.move_on(&path(name)).await.unwrap()),
    }
}

/// Lets all files move on to the newest ring, again and again until that is over.
async fn keep_moving(client: &Client<'_, SimNode>, is_over: &Cell<bool>) {
    while !is_over.get() {
        let mut waiting = vec![FilePath::root()];
        while let Some(name) = waiting.pop().filter(|_| !is_over.get()) {
            let Ok(entries) = client.list(&name).await else {
                continue; // it has been removed meanwhile
            };
            for (entry, listed) in entries {
                let below = name.join(&entry).unwrap();
                match listed.kind {
                    EntryKind::Xref => waiting.push(below),
                    EntryKind::Symlink => {}
                    EntryKind::File => match client.move_on(&below).await {
                        // Something else may be there meanwhile.
                        Err(Error {
                            kind: Kind::Missing | Kind::Busy | Kind::Schema,
                            ..
                        }) => {}
                        moved => drop(moved.unwrap()),
                    },
                }
            }
        }
    }
}

/// Runs the steps of one client, and perhaps moves files meanwhile.
async fn run_client(me: Program, seed: u64, journal: Rc<RefCell<Journal>>) {
    let client = me.client();
    let is_over = Cell::new(me.rank > 0 || seed.is_multiple_of(2));
    let moving = keep_moving(&client, &is_over);
    let steps = async {
        run_steps(&me, seed, journal).await;
        is_over.set(true);
    };
    join(steps, moving).await;
}

async fn run_steps(me: &Program, seed: u64, journal: Rc<RefCell<Journal>>) {
    let home = format!("/c{}", me.rank);
    let step = Step::MakeDirectory(home.clone());
    let mut random = Random::of(seed, me.rank as u64 + 1);
    let mut fill = 0;
    if me.rank == 0 && seed.is_multiple_of(3) {
        // Who owns all files is limited, though not in need.
        me.client().limit(OWNER, Some(1 << 20)).await.unwrap();
    }
    let mut next = Some(step);
    for _ in 0..STEPS {
        let step = match next.take() {
            Some(step) => step,
            None => {
                let shape = &me.state.shape;
                let place = (&home[..], shape.servers.count(), shape.names);
                choose(&mut random, &journal.borrow(), place, &mut fill)
            }
        };
        journal.borrow_mut().under_way = Some(step.clone());
        run_step(me, &step).await;
        let mut journal = journal.borrow_mut();
        journal.end(&step);
        journal.under_way = None;
    }
}

/// All objects below a directory, by their paths.
async fn walk(client: &Client<'_, SimNode>, home: &str) -> BTreeMap<String, ObjectKind> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![home.to_string()];
    while let Some(name) = waiting.pop() {
        let object = client.stat(&path(&name)).await.unwrap();
        assert_eq!(object.path.as_str(), name);
        let is_xref = object.kind == ObjectKind::Xref;
        found.insert(name.clone(), object.kind);
        if is_xref {
            for (entry, listed) in client.list(&object.path).await.unwrap() {
                let below = object.path.join(&entry).unwrap();
                let object = client.stat(&below).await.unwrap();
                assert_eq!(object.id, listed.id, "{below} is listed as another object");
                assert_eq!(object.kind.entry(), listed.kind);
                waiting.push(below.to_string());
            }
        }
    }
    found
}

/// The cells of a version of a file.
async fn cells_of(
    me: &Program,
    name: &str,
    known: &Known,
    version: Version,
) -> Option<Vec<Vec<u8>>> {
    let file = me.client().attach(&path(name), BOTH).await.unwrap();
    if version == Version::Checkpoint && file.object.checkpoints == 0 {
        return None;
    }
    let own = View::new(1, 1, 1, known.cells).unwrap();
    let mut cells = Vec::new();
    for cell in 0..known.cells {
        let open = OpenSubfile::new(&file, own, cell, SubfileOrder::Block, version).unwrap();
        let (moved, mut data) = me.read(&open, 0, 1000).await.unwrap();
        data.truncate(moved as usize);
        cells.push(data);
    }
    Some(cells)
}

/// Whether a file is one that may be after a crash.
async fn is_possible(me: &Program, name: &str, known: &Known) -> bool {
    let kept = cells_of(me, name, known, Version::Checkpoint).await;
    if kept != known.kept.as_ref().map(|kept| kept.cells().to_vec()) {
        return false;
    }
    let found = cells_of(me, name, known, Version::Active).await.unwrap();
    let safe = known.safe.cells();
    found.iter().enumerate().all(|(cell, found)| {
        let may_be = |place: usize, byte: u8| {
            let saved = safe[cell].get(place).copied().unwrap_or(0);
            let mut since = known.since.iter();
            byte == saved
                || since.any(|(places, fill)| *fill == byte && places.contains(&(cell, place)))
        };
        let ends = known.since.iter().flat_map(|(places, _)| places);
        let ends = ends
            .filter(|place| place.0 == cell)
            .map(|place| place.1 + 1);
        let longest = ends.max().unwrap_or(0).max(safe[cell].len());
        let mut bytes = found.iter().enumerate();
        (safe[cell].len()..=longest).contains(&found.len())
            && bytes.all(|(place, &byte)| may_be(place, byte))
    })
}

/// Finds a journal that explains what there is in a client's directory.
async fn check(me: &Program, home: &str, journal: &Journal) {
    let client = me.client();
    let is_there = client.list(&FilePath::root()).await.unwrap();
    let is_there = is_there.iter().any(|(name, _)| home == format!("/{name}"));
    let found = match is_there {
        true => walk(&client, home).await,
        false => BTreeMap::new(),
    };
    let space = client.space(user_of(home)).await.unwrap();
    let quota = space
        .limit_bytes
        .map(|bytes| bytes / me.state.shape.block_bytes);
    let mut reasons = Vec::new();
    'next: for possible in journal.possible() {
        if !found.keys().eq(possible.objects.keys()) {
            reasons.push(format!("names {:?}", possible.objects.keys()));
            continue;
        }
        if quota != possible.quota {
            reasons.push(format!("quota {:?} and not {quota:?}", possible.quota));
            continue;
        }
        for (name, object) in &possible.objects {
            match (object, &found[name]) {
                (Object::Directory, ObjectKind::Xref) => {}
                (Object::Symlink, ObjectKind::Symlink(target)) => {
                    assert!(target.starts_with(home));
                }
                (Object::File(known), ObjectKind::File(shape)) => {
                    assert_eq!(
                        (shape.cells, shape.bsu_bytes),
                        (known.cells, known.bsu_bytes)
                    );
                    if !is_possible(me, name, known).await {
                        let cells = cells_of(me, name, known, Version::Active).await;
                        let kept = cells_of(me, name, known, Version::Checkpoint).await;
                        reasons.push(format!("{name}: {cells:?} kept {kept:?} of {known:?}"));
                        continue 'next;
                    }
                }
                _ => panic!("{name} is of another kind"),
            }
        }
        return;
    }
    panic!(
        "nothing explains {found:?} after {:?}: {reasons:#?}",
        journal.under_way
    );
}

/// Removes all below a directory, and itself.
async fn remove_all(client: &Client<'_, SimNode>, home: &str) {
    for name in walk(client, home).await.into_keys().rev() {
        client.remove(&path(&name)).await.unwrap();
    }
}

/// Checks all clients' directories, removes everything, and checks that nothing is left.
fn check_all(volume: &Volume, left: Left, journals: &[Rc<RefCell<Journal>>]) {
    left.check(); // transactions under way are no damage
    let journals: Vec<Journal> = journals.iter().map(|one| one.borrow().clone()).collect();
    let volume = Volume {
        clients: 1,
        faults: Faults::default(),
        ..volume.clone()
    };
    let left = volume.run_again(left, move |me| {
        let journals = journals.clone();
        async move {
            let client = me.client();
            for (rank, journal) in journals.iter().enumerate() {
                let home = format!("/c{rank}");
                check(&me, &home, journal).await;
                client.limit(user_of(&home), None).await.unwrap();
            }
            client.limit(OWNER, None).await.unwrap();
            for (name, _) in client.list(&FilePath::root()).await.unwrap() {
                remove_all(&client, &format!("/{name}")).await;
            }
            client.retire().await.unwrap();
            client.sync(None).await.unwrap();
            assert_eq!(client.space(1).await.unwrap().used_bytes, 0);
        }
    });
    left.check();
    let records = left.records();
    // The root, and of each server its numbers, rings and keepers.
    assert!(
        records <= 1 + 3 * volume.servers,
        "{records} records are left"
    );
}

fn volume_of(seed: u64) -> Volume {
    let mut random = Random::new(seed);
    let block_bytes = [8, 32, 64][random.below(3) as usize];
    let servers = 1 + random.below(4) as usize;
    Volume {
        seed,
        clients: 1 + random.below(3) as usize,
        servers,
        later: random.below(servers as u64) as usize,
        block_bytes,
        // Where cells have few blocks, places are used again soon.
        blocks: if block_bytes == 64 { 250 } else { 1000 },
        cache_bytes: block_bytes * random.below(6),
        hash_bits: [48, 3][random.below(2) as usize],
        has_own_nodes: false,
        faults: Faults::default(),
    }
}

fn run(volume: &Volume, seed: u64) -> (Left, Vec<Rc<RefCell<Journal>>>) {
    let journals: Vec<Rc<RefCell<Journal>>> = (0..volume.clients).map(|_| Rc::default()).collect();
    let all = journals.clone();
    let left = volume.run(move |me| {
        let journal = all[me.rank].clone();
        run_client(me, seed, journal)
    });
    (left, journals)
}

#[test]
fn a_crash_at_any_moment_loses_nothing_that_was_safe() {
    seeds::for_seeds(
        "a_crash_at_any_moment_loses_nothing_that_was_safe",
        60,
        |seed| {
            let mut volume = volume_of(seed);
            let (left, journals) = run(&volume, seed);
            let events = left.totals().events;
            left.crash(); // all that programs have waited for is safe
            check_all(&volume, left, &journals);
            let mut random = Random::of(seed, 99);
            for _ in 0..4 {
                let at = Moment::Event(1 + random.below(events));
                let nodes = 0..volume.clients + volume.servers.div_ceil(2);
                volume.faults.losses = nodes.map(|node| Loss { node, at }).collect();
                let (left, journals) = run(&volume, seed);
                left.crash();
                check_all(&volume, left, &journals);
            }
        },
    );
}

#[test]
fn a_client_that_is_lost_leaves_nothing_half_done() {
    seeds::for_seeds(
        "a_client_that_is_lost_leaves_nothing_half_done",
        60,
        |seed| {
            let mut volume = volume_of(seed);
            volume.clients = 2 + seed as usize % 2;
            let (left, _) = run(&volume, seed);
            let messages = left.totals().messages / volume.clients as u64;
            let mut random = Random::of(seed, 98);
            for _ in 0..4 {
                let at = Moment::Message(1 + random.below(messages));
                volume.faults.losses = vec![Loss { node: 1, at }];
                volume.faults.notice_max =
                    Span::from_us_f64([0.0, 3000.0][random.below(2) as usize]);
                let (left, journals) = run(&volume, seed);
                check_all(&volume, left, &journals);
            }
        },
    );
}

/// A server is lost at any message: everybody else hears of it, and nobody waits for it.
#[test]
fn a_server_that_is_lost_ends_all_requests() {
    seeds::for_seeds("a_server_that_is_lost_ends_all_requests", 60, |seed| {
        let mut random = Random::of(seed, 97);
        let mut volume = volume_of(seed);
        volume.clients = 3;
        volume.servers = 2 + seed as usize % 3;
        volume.later = 0;
        let servers = volume.servers.div_ceil(2);
        volume.faults.losses = vec![Loss {
            node: 3 + random.below(servers as u64) as usize,
            at: Moment::Message(10 + random.below(400)),
        }];
        volume.run(move |me| async move {
            let client = me.client();
            let mut random = Random::of(seed, me.rank as u64);
            let used = async {
                if me.rank == 0 {
                    client.create(path("/f"), (5, 4, None), 0o644).await?;
                }
                let file = loop {
                    match client.attach(&path("/f"), BOTH).await {
                        Err(error) if error.kind == Kind::Missing => {}
                        attached => break attached?,
                    }
                };
                let all = open_in(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
                for turn in 0.. {
                    match random.below(8) {
                        0 => client.sync(Some(&file)).await?,
                        1 => client.change(&path("/f"), FileChange::Checkpoint).await?,
                        2 => {
                            let name = format!("/{}-{turn}", me.rank);
                            client.make_directory(path(&name), 0o755).await?;
                            client
                                .rename(&path(&name), &path(&format!("{name}-")))
                                .await?;
                        }
                        3 => client.limit(100 + me.rank as u32, Some(turn)).await?,
                        4 | 5 => drop(me.read(&all, random.below(9), 60).await?),
                        _ => drop(me.write(&all, random.below(9), &[1; 60]).await?),
                    }
                }
                Ok::<(), Error>(())
            };
            let error = used.await.unwrap_err();
            assert_eq!(error.kind, Kind::Peer, "{error}");
        });
    });
}
