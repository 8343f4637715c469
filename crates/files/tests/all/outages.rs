//! One server is lost and comes back while clients work, or a link between two servers is cut.
//!
//! Each client has a directory of its own, and knows what its files may hold, byte by byte; all
//! clients use two more files together. At a random event a server crashes, with what its disks had
//! not made safe, or a link between two servers is cut; after a while it is back. Then:
//!
//! - each operation ends within a stated time;
//! - one that fails needs what was lost, and names it; all others go on;
//! - one that fails has been done or not: a change of a file and of names on all servers or on
//!   none, a write on each server for itself;
//! - what a sync has ended well is there, and the first sync after a loss says that there was one;
//! - when all are back, the same clients do everything again;
//! - a check of all records finds nothing.
//!
//! A failure prints its seed: `PENSTOCK_SEED=<seed> cargo test -p penstock-files outages::`
//! runs that one alone, and `PENSTOCK_SEEDS=10000` in its place runs that number of seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;

use futures::future::{Either, select};
use penstock_engine::{Kind, Result, Who};
use penstock_files::{Attachment, FileChange, FileShape, Mode, OpenSubfile, Version};
use penstock_layout::{SubfileOrder, View};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Moment, Outage, Scope};
use penstock_sim::random::Random;

use crate::naive::File;
use crate::seeds;
use crate::simulated::{BOTH, Program, Volume, open, open_in, path};
use crate::unsure::Versions;

/// The steps of a client.
const STEPS: usize = 40;

/// The longest time of an operation.
const TIME_MAX: Span = Span::from_ms(4000);

/// What is lost: a server, or the link between two.
#[derive(Debug, Clone, Copy)]
enum Lost {
    Server(usize),
    Link(usize, usize),
}

impl Lost {
    fn of(outage: &Outage, clients: usize) -> Self {
        match outage.scope {
            Scope::Node(node) => Self::Server(node - clients),
            Scope::Link(one, other) => Self::Link(one - clients, other - clients),
        }
    }

    /// Whether an operation that needs these servers may fail by naming this one.
    fn explains(self, needs: &BTreeSet<usize>, named: usize) -> bool {
        match self {
            Self::Server(server) => needs.contains(&server) && named == server,
            Self::Link(one, other) => {
                needs.contains(&one) && needs.contains(&other) && [one, other].contains(&named)
            }
        }
    }
}

/// A file of a client.
struct Known {
    attached: Attachment,
    versions: Versions,
    /// The servers that have directed changes of the file, which may still be in doubt.
    directors: BTreeSet<usize>,
}

/// A client in its directory.
struct User {
    me: Program,
    home: String,
    lost: Vec<Lost>,
    random: Random,
    fill: u8,
    names: u32,
    directories: BTreeSet<String>,
    files: BTreeMap<String, Known>,
    /// The servers that the last operations on names needed: their transactions may still be in
    /// doubt.
    recent: Vec<usize>,
    may_fail: bool,
}

impl User {
    /// Does an operation that needs some servers.
    async fn timed<T>(
        &self,
        doing: &str,
        needs: impl IntoIterator<Item = usize>,
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let needs: BTreeSet<usize> = needs.into_iter().collect();
        let late = pin!(self.me.node.sleep(TIME_MAX));
        let begun = self.me.node.time();
        let done = match select(pin!(operation), late).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => panic!("{doing} by {} hangs since {begun:?}", self.home),
        };
        if std::env::var("PENSTOCK_TRACE").is_ok() {
            let failed = done.as_ref().err().map(ToString::to_string);
            let (home, ended) = (&self.home, self.me.node.time());
            eprintln!("{begun:?} {ended:?} {home} {doing} needs {needs:?}: {failed:?}");
        }
        if let Err(error) = &done {
            let Some(Who::Server(named)) = error.who else {
                panic!("{doing} by {}: {error:?}", self.home);
            };
            let is_explained = self.lost.iter().any(|lost| lost.explains(&needs, named));
            assert!(
                self.may_fail && error.kind == Kind::Peer && is_explained,
                "{doing} by {} at {:?} needs {needs:?}, lost {:?}: {error}",
                self.home,
                self.me.node.time(),
                self.lost
            );
        }
        done
    }

    fn servers(&self) -> usize {
        self.me.state.shape.servers.count()
    }

    fn server_of(&self, name: &str) -> usize {
        self.me.keeper_of(name)
    }

    fn servers_of(&self, shape: FileShape) -> Vec<usize> {
        let servers = self.servers();
        let turns = 0..servers.min(shape.cells as usize);
        turns.map(|turn| (shape.base + turn) % servers).collect()
    }

    /// The servers from the first to the last of an access.
    fn way(&self, shape: FileShape, cells: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let servers = self.servers();
        let turns = cells.into_iter().map(|cell| cell % servers);
        let turns: BTreeSet<usize> = turns.collect();
        match (turns.first(), turns.last()) {
            (Some(&first), Some(&last)) => (first..=last)
                .map(|turn| (shape.base + turn) % servers)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a server may lose what was not saved.
    fn is_lossy(&self, server: usize) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|lost| matches!(lost, Lost::Server(other) if *other == server))
    }

    /// Notes the servers that an operation on names has needed. What has ended well may be in doubt
    /// as long as a link is cut.
    fn note(&mut self, needs: Vec<usize>) {
        if !self.lost.iter().any(|lost| matches!(lost, Lost::Link(..))) {
            self.recent.clear();
        }
        self.recent.extend(needs);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn fresh(&mut self) -> String {
        let directories: Vec<_> = self.directories.iter().cloned().collect();
        let parent = &directories[self.below(directories.len() as u64) as usize];
        let name = format!("{parent}/n{}", self.names);
        self.names += 1;
        name
    }

    fn some_file(&mut self) -> Option<String> {
        let names: Vec<_> = self.files.keys().cloned().collect();
        let nth = self.below(names.len().max(1) as u64) as usize;
        names.get(nth).cloned()
    }

    fn parent(name: &str) -> &str {
        name.rsplit_once('/').unwrap().0
    }

    /// Tries something until no lost server is in the way.
    async fn until_known<T>(
        &self,
        doing: &str,
        needs: &[usize],
        look: impl AsyncFn() -> Result<T>,
    ) -> T {
        loop {
            let looked = self.timed(doing, needs.iter().copied(), look()).await;
            match looked {
                Ok(found) => return found,
                Err(_) => self.me.node.sleep(Span::from_ms(20)).await,
            }
        }
    }

    /// Whether there is an object, which the entries of its directory must confirm.
    async fn is_there(&self, name: &str, needs: &[usize]) -> bool {
        let mut needs = needs.to_vec();
        needs.extend([self.server_of(name), self.server_of(Self::parent(name))]);
        let found = self.until_known("looking again", &needs, async || {
            let client = self.me.client();
            let found = match client.stat(&path(name)).await {
                Ok(_) => true,
                Err(error) if error.kind == Kind::Missing => false,
                Err(error) => return Err(error),
            };
            let listed = match client.list(&path(Self::parent(name))).await {
                Err(error) if error.kind == Kind::Missing => Vec::new(),
                listed => listed?,
            };
            let own = name.rsplit_once('/').unwrap().1;
            let is_listed = listed.iter().any(|(entry, _)| entry == own);
            Ok((found, is_listed))
        });
        let (found, is_listed) = found.await;
        assert_eq!(found, is_listed, "{name} is half there");
        found
    }

    async fn attach(&mut self, name: &str, cells: u64) {
        let needs = [vec![self.server_of(name)], self.recent.clone()].concat();
        let attached = self
            .until_known("attaching", &needs, async || {
                self.me.client().attach(&path(name), BOTH).await
            })
            .await;
        let servers = self.servers();
        let base = attached.shape.base;
        let is_lossy = (0..cells as usize).map(|cell| self.is_lossy((base + cell) % servers));
        let versions = Versions::new(is_lossy.collect());
        let known = Known {
            attached,
            versions,
            directors: BTreeSet::new(),
        };
        self.files.insert(name.to_string(), known);
    }

    async fn create(&mut self, is_directory: bool) {
        let name = self.fresh();
        let needs = vec![self.server_of(&name), self.server_of(Self::parent(&name))];
        let shape = (1 + self.below(5), 1 + self.below(9));
        let recent = [needs.clone(), self.recent.clone()].concat();
        let made = self.timed("creating", recent.iter().copied(), async {
            let client = self.me.client();
            match is_directory {
                true => client.make_directory(path(&name), 0o755).await,
                false => {
                    let shape = (shape.0, shape.1, None);
                    client.create(path(&name), shape, 0o644).await
                }
            }
        });
        let made = made.await;
        self.note(needs);
        if made.is_err() && !self.is_there(&name, &recent).await {
            return;
        }
        match is_directory {
            true => drop(self.directories.insert(name)),
            false => self.attach(&name, shape.0).await,
        }
    }

    async fn remove(&mut self) {
        let Some(name) = self.some_file() else { return };
        let mut needs = vec![self.server_of(&name), self.server_of(Self::parent(&name))];
        needs.extend(self.servers_of(self.files[&name].attached.shape));
        let directors = needs.clone();
        let recent = [needs.clone(), self.recent.clone(), self.directors(&name)].concat();
        let removed = self
            .timed("removing", recent.iter().copied(), async {
                self.me.client().remove(&path(&name)).await
            })
            .await;
        self.note(needs);
        match removed.is_err() && self.is_there(&name, &recent).await {
            true => {
                // It has not been removed: all of its cells are there.
                let known = self.files.get_mut(&name).unwrap();
                known.directors.extend(&directors);
                self.check_file(&name, "a file that was not removed").await;
            }
            false => drop(self.files.remove(&name)),
        }
    }

    /// Renames a file, or a directory with all below it.
    async fn rename(&mut self) {
        let to = self.fresh();
        let some = self.directories.iter().chain(self.files.keys());
        let some = some.filter(|name| **name != self.home && !to.starts_with(&format!("{name}/")));
        let some: Vec<String> = some.cloned().collect();
        if some.is_empty() {
            return;
        }
        let from = some[self.below(some.len() as u64) as usize].clone();
        let below = format!("{from}/");
        let is_moved = |name: &String| *name == from || name.starts_with(&below);
        let moved = self.directories.iter().chain(self.files.keys());
        let moved: Vec<String> = moved.filter(|name| is_moved(name)).cloned().collect();
        let other = |name: &str| format!("{to}{}", &name[from.len()..]);
        let parents = [Self::parent(&from), Self::parent(&to)];
        let mut needs: Vec<usize> = parents.iter().map(|name| self.server_of(name)).collect();
        for name in &moved {
            needs.extend([self.server_of(name), self.server_of(&other(name))]);
        }
        let recent = [needs.clone(), self.recent.clone()].concat();
        let renamed = self
            .timed("renaming", recent.iter().copied(), async {
                self.me.client().rename(&path(&from), &path(&to)).await
            })
            .await;
        self.note(needs);
        if renamed.is_err() {
            let is_done = self.is_there(&to, &recent).await;
            for name in &moved {
                assert_ne!(self.is_there(name, &recent).await, is_done, "{name}");
                assert_eq!(self.is_there(&other(name), &recent).await, is_done);
            }
            if !is_done {
                return;
            }
        }
        for name in moved {
            let new = other(&name);
            if self.directories.remove(&name) {
                self.directories.insert(new);
            } else if let Some(known) = self.files.remove(&name) {
                self.files.insert(new, known);
            }
        }
    }

    /// The servers that an access to a file may need, beside its own.
    fn directors(&self, name: &str) -> Vec<usize> {
        let known = &self.files[name];
        match known.directors.is_empty() {
            true => Vec::new(),
            false => {
                let directors = known.directors.iter().copied();
                directors
                    .chain(self.servers_of(known.attached.shape))
                    .collect()
            }
        }
    }

    async fn access(&mut self, is_write: bool) {
        let Some(name) = self.some_file() else { return };
        let mut below = |bound| 1 + self.random.below(bound);
        let view = [below(3), below(3), below(3), below(3)];
        let subfile = self.below(view[1] * view[3]);
        let (offset, bytes) = (self.below(60), self.below(60) as usize);
        self.fill = self.fill % 200 + 1;
        let Known {
            attached, versions, ..
        } = &self.files[&name];
        let shape = attached.shape;
        let naive = File::new(shape.cells as usize, shape.bsu_bytes as usize);
        let order = SubfileOrder::Block;
        let places = naive.places(view, subfile, order, offset as usize, bytes);
        let real = places.iter().map(|place| place.0);
        let real = real.filter(|&cell| cell < shape.cells as usize);
        let needs = self
            .way(shape, real)
            .into_iter()
            .chain(self.directors(&name));
        let open = open_in(attached, view, subfile, order);
        if !is_write {
            let doing = format!("reading {name} {places:?}");
            let read = self.timed(&doing, needs, self.me.read(&open, offset, bytes));
            if let Ok((_, data)) = read.await {
                let wrong = versions.refuse(&places, &data, 0xee);
                assert_eq!(wrong, None, "{name} of {} reads wrong", self.home);
            }
            return;
        }
        let data = vec![self.fill; bytes];
        let doing = format!("writing {name} {places:?} {}", self.fill);
        let written = self.timed(&doing, needs, self.me.write(&open, offset, &data));
        let is_done = written.await.is_ok();
        let fill = self.fill;
        let known = self.files.get_mut(&name).unwrap();
        known.versions.write(&places, fill, is_done);
    }

    async fn sync(&mut self) {
        let Some(name) = self.some_file() else { return };
        let attached = &self.files[&name].attached;
        let needs = self.servers_of(attached.shape).into_iter();
        let needs = needs.chain(self.directors(&name));
        let client = self.me.client();
        let synced = self
            .timed("syncing", needs, client.sync(Some(attached)))
            .await;
        let known = self.files.get_mut(&name).unwrap();
        known.versions.sync(synced.is_ok());
    }

    async fn change(&mut self) {
        let Some(name) = self.some_file() else { return };
        let change = match self.below(3) {
            0 => FileChange::Checkpoint,
            1 if self.files[&name].versions.has_kept() => FileChange::RollBack,
            _ => FileChange::Resize(self.below(60)),
        };
        let mut needs = self.servers_of(self.files[&name].attached.shape);
        needs.push(self.server_of(&name));
        let directors = needs.clone();
        let recent = [needs.clone(), self.recent.clone(), self.directors(&name)].concat();
        let changed = self
            .timed(
                &format!("changing {name} {change:?}"),
                recent.iter().copied(),
                async { self.me.client().change(&path(&name), change).await },
            )
            .await;
        self.note(needs);
        let known = self.files.get_mut(&name).unwrap();
        known.directors.extend(&directors);
        let before = known.versions.clone();
        known.versions.change(change);
        if changed.is_err() {
            let found = self.cells_of(&name, &recent).await;
            let after = &self.files[&name].versions;
            let (is_before, is_after) = (before.may_be(&found), after.may_be(&found));
            assert!(
                is_before || is_after,
                "{change:?} of {name} is half done: {found:?} of {before:?}"
            );
            let known = self.files.get_mut(&name).unwrap();
            match (is_before, is_after) {
                (true, true) => known.versions.add(&before),
                (true, false) => known.versions = before,
                _ => {}
            }
        }
    }

    /// The cells of both versions of a file.
    async fn cells_of(&self, name: &str, needs: &[usize]) -> [Option<Vec<Vec<u8>>>; 2] {
        let shape = self.files[name].attached.shape;
        let mut needs = needs.to_vec();
        needs.extend(self.servers_of(shape));
        needs.extend(self.directors(name));
        needs.push(self.server_of(name));
        let own = View::new(1, 1, 1, shape.cells).unwrap();
        self.until_known("reading again", &needs, async || {
            let mut all = [None, None];
            let file = self.me.client().attach(&path(name), BOTH).await?;
            for (nth, version) in [Version::Active, Version::Checkpoint]
                .into_iter()
                .enumerate()
            {
                if version == Version::Checkpoint && file.object.checkpoints == 0 {
                    continue;
                }
                let mut cells = Vec::new();
                for cell in 0..shape.cells {
                    let order = SubfileOrder::Block;
                    let open = OpenSubfile::new(&file, own, cell, order, version)?;
                    let (moved, mut data) = self.me.read(&open, 0, 4000).await?;
                    data.truncate(moved as usize);
                    cells.push(data);
                }
                all[nth] = Some(cells);
            }
            Ok(all)
        })
        .await
    }

    async fn check_file(&self, name: &str, what: &str) {
        let found = self.cells_of(name, &self.recent).await;
        let versions = &self.files[name].versions;
        assert!(
            versions.may_be(&found),
            "{what}: {found:?} of {versions:#?}"
        );
    }

    async fn look(&mut self) {
        let directories: Vec<_> = self.directories.iter().cloned().collect();
        let name = &directories[self.below(directories.len() as u64) as usize];
        let needs = [vec![self.server_of(name)], self.recent.clone()].concat();
        let client = self.me.client();
        let listed = self.timed("listing", needs, client.list(&path(name))).await;
        if let Ok(listed) = listed {
            let all = self.directories.iter().chain(self.files.keys());
            let below = all.filter(|other| Self::parent(other) == *name);
            let below: BTreeSet<&str> = below.map(|one| &one[name.len() + 1..]).collect();
            let listed: BTreeSet<&str> = listed.iter().map(|(name, _)| &name[..]).collect();
            assert_eq!(listed, below, "{name}");
        }
    }

    /// Uses a file that all clients use.
    async fn share(&mut self, file: &Attachment) {
        let (first, count) = (self.below(30), 1 + self.below(50) as usize);
        let naive = File::new(file.shape.cells as usize, file.shape.bsu_bytes as usize);
        let order = SubfileOrder::Block;
        let places = naive.places([1; 4], 0, order, first as usize, count);
        let needs = self.way(file.shape, places.iter().map(|place| place.0));
        let all = open(file, [1; 4], 0);
        match self.below(5) {
            0 => {
                let client = self.me.client();
                let needs = self.servers_of(file.shape);
                let _ = self.timed("syncing", needs, client.sync(Some(file))).await;
            }
            1 | 2 => {
                let read = self.me.read(&all, first, count);
                let _ = self.timed("reading together", needs, read).await;
            }
            _ => {
                let data = vec![self.me.rank as u8 + 1; count];
                let written = self.me.write(&all, first, &data);
                let _ = self.timed("writing together", needs, written).await;
            }
        }
    }

    async fn step(&mut self, shared: &[Attachment; 2]) {
        match self.below(24) {
            0 | 1 => self.create(false).await,
            2 => self.create(true).await,
            3 => self.remove().await,
            4 | 5 => self.rename().await,
            6..=8 => self.sync().await,
            9 | 10 => self.change().await,
            11 => self.look().await,
            12..=15 => self.share(&shared[0]).await,
            16 => self.share(&shared[1]).await,
            17..=19 => self.access(false).await,
            _ => self.access(true).await,
        }
    }

    /// Does everything once more, when all servers are back.
    async fn end(&mut self, shared: &[Attachment; 2]) {
        let client = self.me.client();
        for known in self.files.values_mut() {
            let first = client.sync(Some(&known.attached)).await; // the news of a loss
            assert!(first.is_ok() || self.may_fail, "{first:?}");
            known.versions.sync(first.is_ok());
        }
        for file in shared {
            let first = client.sync(Some(file)).await;
            assert!(first.is_ok() || self.may_fail, "{first:?}");
        }
        let first = client.sync(None).await;
        assert!(first.is_ok() || self.may_fail, "{first:?}");
        self.may_fail = false;
        let all = 0..self.servers();
        self.timed("syncing all", all.clone(), client.sync(None))
            .await
            .unwrap();
        self.timed("asking for space", all, client.space(1))
            .await
            .unwrap();
        let names: Vec<_> = self.files.keys().cloned().collect();
        for name in names {
            self.check_file(&name, "at the end").await;
            let known = self.files.get_mut(&name).unwrap();
            let cells = known.attached.shape.cells;
            let whole = open(&known.attached, [1; 4], 0);
            let bytes = (known.attached.shape.bsu_bytes * cells) as usize;
            self.me.write(&whole, 0, &vec![255; bytes]).await.unwrap();
            client.sync(Some(&known.attached)).await.unwrap();
            let read = self.me.read(&whole, 0, bytes).await.unwrap();
            assert_eq!(read, (bytes as u64, vec![255; bytes]));
            let shape = known.attached.shape;
            let naive = File::new(shape.cells as usize, shape.bsu_bytes as usize);
            let places = naive.places([1; 4], 0, SubfileOrder::Block, 0, bytes);
            known.versions.write(&places, 255, true);
            known.versions.sync(true);
        }
        for _ in 0..12 {
            self.step(shared).await;
        }
    }
}

/// Tries something again as long as a server is lost. It may have been done although it failed.
async fn insist<T>(me: &Program, attempt: impl AsyncFn() -> Result<T>) -> Option<T> {
    loop {
        match attempt().await {
            Ok(done) => return Some(done),
            Err(error) if error.kind == Kind::Exists => return None,
            Err(error) => assert_eq!(error.kind, Kind::Peer, "{error}"),
        }
        me.node.sleep(Span::from_ms(5)).await;
    }
}

async fn run_client(me: Program, seed: u64, lost: Vec<Lost>, clients: usize) {
    let client = me.client();
    if me.rank == 0 {
        for name in ["/tight", "/loose"] {
            let shape = (7, 3, None);
            insist(&me, || client.create(path(name), shape, 0o666)).await;
        }
    }
    let home = format!("/c{}", me.rank);
    insist(&me, || client.make_directory(path(&home), 0o755)).await;
    me.meet(clients).await;
    let loose = Mode {
        is_reckless: true,
        ..BOTH
    };
    let (one, other) = (path("/tight"), path("/loose"));
    let tight = insist(&me, || client.attach(&one, BOTH)).await;
    let loose = insist(&me, || client.attach(&other, loose)).await;
    let shared = [tight.unwrap(), loose.unwrap()];
    me.meet(2 * clients).await;
    let random = Random::of(seed, me.rank as u64 + 1);
    let mut user = User {
        me,
        directories: BTreeSet::from([home.clone()]),
        home,
        lost,
        random,
        fill: 0,
        names: 0,
        files: BTreeMap::new(),
        recent: Vec::new(),
        may_fail: true,
    };
    user.create(false).await;
    for _ in 0..STEPS {
        user.step(&shared).await;
    }
    user.me.meet(3 * clients).await;
    while user.me.node.has_outages() {
        user.me.node.sleep(Span::from_us_f64(100.0)).await;
    }
    user.me.node.sleep(Span::from_ms(2000)).await; // what is in doubt ends
    user.end(&shared).await;
}

fn volume_of(seed: u64) -> Volume {
    let mut random = Random::new(seed);
    let block_bytes = [8, 32, 64][random.below(3) as usize];
    Volume {
        seed,
        clients: 1 + random.below(3) as usize,
        servers: 2 + random.below(4) as usize,
        block_bytes,
        blocks: 3000,
        cache_bytes: block_bytes * random.below(6),
        has_own_nodes: true,
        faults: Faults {
            notice_max: Span::from_us_f64([0.0, 3000.0, 40_000.0][random.below(3) as usize]),
            late_max: Span::from_us_f64([0.0, 500.0][random.below(2) as usize]),
            ..Faults::default()
        },
        ..Volume::default()
    }
}

fn outage_of(random: &mut Random, volume: &Volume, events: u64, is_link: bool) -> Outage {
    let (clients, servers) = (volume.clients, volume.servers as u64);
    let one = random.below(servers) as usize;
    let other = (one + 1 + random.below(servers - 1) as usize) % volume.servers;
    Outage {
        scope: match is_link {
            true => Scope::Link(clients + one, clients + other),
            false => Scope::Node(clients + one),
        },
        at: Moment::Event(1 + events / 10 + random.below(events * 8 / 10)),
        lasts: Span::from_us_f64([500.0, 30_000.0, 600_000.0][random.below(3) as usize]),
    }
}

fn run(volume: &Volume, seed: u64) -> u64 {
    let outages = volume.faults.outages.iter();
    let lost = outages.map(|outage| Lost::of(outage, volume.clients));
    let (lost, clients): (Vec<_>, _) = (lost.collect(), volume.clients);
    if std::env::var("PENSTOCK_TRACE").is_ok() {
        eprintln!("{volume:?}");
    }
    let left = volume.run(move |me| run_client(me, seed, lost.clone(), clients));
    let report = penstock_files::fsck::check(left.layout(), &left.all_records());
    assert_eq!(report.findings, []);
    assert_eq!(report.transactions.len(), 0, "{:?}", report.transactions);
    left.totals().events
}

fn runs(seed: u64, is_link: bool, outages: usize) {
    let mut volume = volume_of(seed);
    let events = run(&volume, seed);
    let mut random = Random::of(seed, 77);
    for _ in 0..3 {
        let one = |_| outage_of(&mut random, &volume, events, is_link);
        let outages = (0..outages).map(one).collect();
        volume.faults.outages = outages;
        run(&volume, seed);
    }
}

#[test]
fn a_server_that_is_lost_comes_back() {
    seeds::for_seeds("a_server_that_is_lost_comes_back", 40, |seed| {
        runs(seed, false, 1);
    });
}

#[test]
fn a_link_that_is_cut_comes_back() {
    seeds::for_seeds("a_link_that_is_cut_comes_back", 40, |seed| {
        runs(seed, true, 1);
    });
}

/// Also several, one after the other or at once.
#[test]
fn servers_that_are_lost_come_back() {
    seeds::for_seeds("servers_that_are_lost_come_back", 20, |seed| {
        runs(seed, false, 3);
    });
}

/// The error of a lost server names it.
#[test]
fn an_outage_explains_what_needs_it() {
    let needs = BTreeSet::from([0, 2]);
    assert!(Lost::Server(2).explains(&needs, 2));
    assert!(!Lost::Server(1).explains(&needs, 1));
    assert!(!Lost::Server(2).explains(&needs, 0));
    assert!(Lost::Link(0, 2).explains(&needs, 0));
    assert!(!Lost::Link(0, 1).explains(&needs, 0));
}
