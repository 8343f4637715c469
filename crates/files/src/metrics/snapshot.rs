//! A copy of a server's numbers, as it travels, and the arithmetic of copies.

use std::collections::BTreeMap;

use penstock_engine::NodeId;
use penstock_engine::blocks::CacheCounts;
use penstock_engine::collective::counts::CallCounts;
use serde::{Deserialize, Serialize};

use super::kinds::{DiskKind, RequestKind, WaitKind};
use super::table::Turnover;
use super::{DiskCounts, KindCounts, WaitCounts};
use crate::object::ObjectId;

/// The viewer of numbers: all see the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Viewer {
    /// One who sees the rows of everybody.
    All,
    /// A user, who sees the rows of the user's own clients and files.
    User(u32),
}

impl Viewer {
    /// Whether a viewer sees what is a user's.
    pub(super) fn sees(self, user: u32) -> bool {
        match self {
            Self::All => true,
            Self::User(own) => own == user,
        }
    }
}

/// The row of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Its node.
    pub node: NodeId,
    /// Its user.
    pub user: u32,
    /// What it has asked for.
    pub turnover: Turnover,
}

/// The row of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRow {
    /// Its identity.
    pub id: ObjectId,
    /// The user who owns it.
    pub owner: u32,
    /// The path at which it was attached last, if the server keeps the file's object.
    pub path: Option<String>,
    /// What was done with it.
    pub turnover: Turnover,
}

/// The callers of a server process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorCounts {
    /// The clients that are connected.
    pub clients: u64,
    /// The callers that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The clients that were cut off, by reason.
    pub cut_off: BTreeMap<String, u64>,
}

/// The numbers of a server, or the sum of those of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number of servers, and of those that serve.
    pub servers: u64,
    /// The number of servers that serve.
    pub ready: u64,
    /// The nanoseconds since the process began; of several the most.
    pub age_ns: u64,
    /// The requests, in the order of [`RequestKind::ALL`].
    pub kinds: Vec<KindCounts>,
    /// The waits that have ended, in the order of [`WaitKind::ALL`].
    pub waits: Vec<WaitCounts>,
    /// The disk operations, in the order of [`DiskKind::ALL`].
    pub disks: Vec<DiskCounts>,
    /// What is under way: requests, and parts of them.
    pub tasks: u64,
    /// What waits now, in the order of [`WaitKind::ALL`].
    pub waiting: Vec<u64>,
    /// The cache.
    pub cache: CacheCounts,
    /// The clients that the viewer may see.
    pub clients: Vec<ClientRow>,
    /// The files that the viewer may see.
    pub files: Vec<FileRow>,
    /// All other clients together, if the viewer may see that.
    pub other_clients: Option<Turnover>,
    /// All other files together, likewise.
    pub other_files: Option<Turnover>,
    /// The callers of each server process.
    pub doors: BTreeMap<usize, DoorCounts>,
    /// The calls on arrays that each server process has directed, if it serves arrays.
    pub calls: BTreeMap<usize, CallCounts>,
}

impl Default for Snapshot {
    /// The numbers of no server.
    fn default() -> Self {
        Self {
            servers: 0,
            ready: 0,
            age_ns: 0,
            kinds: vec![KindCounts::default(); RequestKind::ALL.len()],
            waits: vec![WaitCounts::default(); WaitKind::ALL.len()],
            disks: vec![DiskCounts::default(); DiskKind::ALL.len()],
            tasks: 0,
            waiting: vec![0; WaitKind::ALL.len()],
            cache: CacheCounts::default(),
            clients: Vec::new(),
            files: Vec::new(),
            other_clients: None,
            other_files: None,
            doors: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }
}

/// The sum of two turnovers, if there is any.
fn joined(one: Option<Turnover>, other: Option<Turnover>) -> Option<Turnover> {
    match (one, other) {
        (Some(mut sum), Some(other)) => {
            sum += other;
            Some(sum)
        }
        (one, other) => one.or(other),
    }
}

impl Snapshot {
    /// Whether it has as many numbers as it should: a server of another build may say others.
    pub(crate) fn is_whole(&self) -> bool {
        self.kinds.len() == RequestKind::ALL.len()
            && self.waits.len() == WaitKind::ALL.len()
            && self.disks.len() == DiskKind::ALL.len()
            && self.waiting.len() == WaitKind::ALL.len()
    }

    /// Whether it has the rows of everybody.
    pub fn has_all_rows(&self) -> bool {
        self.other_clients.is_some()
    }

    /// The requests of one kind.
    pub fn kind(&self, kind: RequestKind) -> &KindCounts {
        &self.kinds[kind as usize]
    }

    /// The number of requests that have been answered.
    pub fn requests(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.times.count()).sum()
    }

    /// The number of requests that were answered by an error.
    pub fn failed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.failed).sum()
    }

    /// The bytes that clients have read.
    pub fn read_bytes(&self) -> u64 {
        self.kind(RequestKind::Read).bytes + self.kind(RequestKind::ReadAll).bytes
    }

    /// The bytes that clients have written.
    pub fn written_bytes(&self) -> u64 {
        self.kind(RequestKind::Write).bytes + self.kind(RequestKind::WriteAll).bytes
    }

    /// The calls on arrays that all processes have directed, if any of them serves arrays.
    pub fn all_calls(&self) -> Option<CallCounts> {
        let mut processes = self.calls.values();
        let mut all = processes.next()?.clone();
        processes.for_each(|one| all.add(one));
        Some(all)
    }

    /// Adds the numbers of another server.
    pub fn add(&mut self, other: &Self) {
        self.servers += other.servers;
        self.ready += other.ready;
        self.age_ns = self.age_ns.max(other.age_ns);
        for (sum, more) in self.kinds.iter_mut().zip(&other.kinds) {
            sum.times.add_all(&more.times);
            sum.failed += more.failed;
            sum.bytes += more.bytes;
        }
        for (sum, more) in self.waits.iter_mut().zip(&other.waits) {
            (sum.count, sum.ns) = (sum.count + more.count, sum.ns.saturating_add(more.ns));
        }
        for (sum, more) in self.disks.iter_mut().zip(&other.disks) {
            sum.count += more.count;
            sum.failed += more.failed;
            sum.bytes += more.bytes;
            sum.ns = sum.ns.saturating_add(more.ns);
        }
        self.tasks += other.tasks;
        for (sum, more) in self.waiting.iter_mut().zip(&other.waiting) {
            *sum += more;
        }
        let (sum, more) = (&mut self.cache, &other.cache);
        sum.hits += more.hits;
        sum.misses += more.misses;
        sum.fetched += more.fetched;
        sum.evictions += more.evictions;
        sum.bytes += more.bytes;
        sum.changed_bytes += more.changed_bytes;
        sum.bytes_max = sum.bytes_max.saturating_add(more.bytes_max);
        self.add_rows(other);
    }

    fn add_rows(&mut self, other: &Self) {
        let clients = std::mem::take(&mut self.clients).into_iter();
        let mut by_node: BTreeMap<NodeId, ClientRow> = clients.map(|row| (row.node, row)).collect();
        for row in &other.clients {
            match by_node.get_mut(&row.node) {
                Some(sum) => sum.turnover += row.turnover,
                None => drop(by_node.insert(row.node, row.clone())),
            }
        }
        self.clients = by_node.into_values().collect();
        let files = std::mem::take(&mut self.files).into_iter();
        let mut by_id: BTreeMap<ObjectId, FileRow> = files.map(|row| (row.id, row)).collect();
        for row in &other.files {
            match by_id.get_mut(&row.id) {
                Some(sum) => {
                    sum.turnover += row.turnover;
                    if row.path.is_some() {
                        // The server of the object knows it best.
                        (sum.path, sum.owner) = (row.path.clone(), row.owner);
                    }
                }
                None => drop(by_id.insert(row.id, row.clone())),
            }
        }
        self.files = by_id.into_values().collect();
        self.other_clients = joined(self.other_clients, other.other_clients);
        self.other_files = joined(self.other_files, other.other_files);
        let doors = other
            .doors
            .iter()
            .map(|(process, door)| (*process, door.clone()));
        self.doors.extend(doors); // servers of one process have one door
        let calls = other.calls.iter();
        self.calls
            .extend(calls.map(|(process, calls)| (*process, calls.clone())));
    }

    /// What has come since an earlier snapshot of the same server. What is so now stays, as do
    /// callers.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if self.age_ns < before.age_ns {
            return self.clone(); // the server has been started again
        }
        let mut since = self.clone();
        for (now, before) in since.kinds.iter_mut().zip(&before.kinds) {
            now.times = now.times.since(&before.times);
            now.failed = now.failed.saturating_sub(before.failed);
            now.bytes = now.bytes.saturating_sub(before.bytes);
        }
        for (now, before) in since.waits.iter_mut().zip(&before.waits) {
            now.count = now.count.saturating_sub(before.count);
            now.ns = now.ns.saturating_sub(before.ns);
        }
        for (now, before) in since.disks.iter_mut().zip(&before.disks) {
            now.count = now.count.saturating_sub(before.count);
            now.failed = now.failed.saturating_sub(before.failed);
            now.bytes = now.bytes.saturating_sub(before.bytes);
            now.ns = now.ns.saturating_sub(before.ns);
        }
        let (now, former) = (&mut since.cache, &before.cache);
        now.hits = now.hits.saturating_sub(former.hits);
        now.misses = now.misses.saturating_sub(former.misses);
        now.fetched = now.fetched.saturating_sub(former.fetched);
        now.evictions = now.evictions.saturating_sub(former.evictions);
        for row in &mut since.clients {
            let former = before.clients.iter().find(|former| former.node == row.node);
            let former = former.map(|former| former.turnover).unwrap_or_default();
            row.turnover = row.turnover.since(&former);
        }
        for row in &mut since.files {
            let former = before.files.iter().find(|former| former.id == row.id);
            let former = former.map(|former| former.turnover).unwrap_or_default();
            row.turnover = row.turnover.since(&former);
        }
        for (process, now) in &mut since.calls {
            if let Some(before) = before.calls.get(process) {
                *now = now.since(before);
            }
        }
        let rest = |now: Option<Turnover>, before: Option<Turnover>| {
            now.map(|now| now.since(&before.unwrap_or_default()))
        };
        since.other_clients = rest(self.other_clients, before.other_clients);
        since.other_files = rest(self.other_files, before.other_files);
        since
    }
}

#[cfg(test)]
mod tests {
    use penstock_engine::encoding::{decode, encode};

    use super::*;

    fn sample(node: NodeId, reads: u64) -> Snapshot {
        let mut all = Snapshot {
            servers: 1,
            ready: 1,
            age_ns: 1000 * reads,
            ..Snapshot::default()
        };
        let read = &mut all.kinds[RequestKind::Read as usize];
        (0..reads).for_each(|nth| read.times.add(nth * 3000));
        (read.failed, read.bytes) = (1, 4096 * reads);
        all.waits[WaitKind::Token as usize] = WaitCounts { count: 2, ns: 55 };
        all.disks[DiskKind::Write as usize].bytes = u64::MAX >> 4;
        all.cache.hits = reads;
        let turnover = Turnover {
            requests: reads,
            read_bytes: 4096 * reads,
            ..Turnover::default()
        };
        all.clients = vec![ClientRow {
            node,
            user: 1000,
            turnover,
        }];
        all.files = vec![FileRow {
            id: ObjectId(1 << 48 | 5),
            owner: 1000,
            path: (node == 1).then(|| "/a/ü".to_string()),
            turnover,
        }];
        all.other_clients = Some(turnover);
        let door = DoorCounts {
            clients: 3,
            refused: BTreeMap::from([("full".to_string(), 2)]),
            cut_off: BTreeMap::new(),
        };
        all.doors.insert(0, door);
        all
    }

    #[test]
    fn a_snapshot_travels() {
        for snapshot in [
            Snapshot::default(),
            sample(1, 40),
            sample(usize::MAX >> 1, 0),
        ] {
            let body = encode(&snapshot).unwrap();
            let back: Snapshot = decode(&body).unwrap();
            assert!(back.is_whole());
            assert_eq!(back, snapshot);
            // What is cut off or spoiled is an error or another snapshot, and no panic.
            for at in 0..body.len() {
                assert!(decode::<Snapshot>(&body[..at]).is_err());
                let mut spoiled = body.clone();
                spoiled[at] ^= 0x81;
                let _ = decode::<Snapshot>(&spoiled);
            }
        }
        let mut other_build = Snapshot::default();
        other_build.kinds.pop();
        assert!(!other_build.is_whole());
    }

    #[test]
    fn sums_of_servers_have_each_client_file_and_door_once() {
        let mut sum = Snapshot::default();
        sum.add(&sample(2, 10));
        sum.add(&sample(1, 5));
        sum.add(&sample(2, 1));
        assert_eq!(
            (sum.servers, sum.ready, sum.requests(), sum.failed()),
            (3, 3, 16, 3)
        );
        assert_eq!(
            (sum.read_bytes(), sum.written_bytes(), sum.cache.hits),
            (16 * 4096, 0, 16)
        );
        let clients: Vec<_> = sum
            .clients
            .iter()
            .map(|row| (row.node, row.turnover.requests))
            .collect();
        assert_eq!(clients, [(1, 5), (2, 11)]);
        assert_eq!((sum.files.len(), sum.files[0].turnover.requests), (1, 16));
        assert_eq!(sum.files[0].path.as_deref(), Some("/a/ü"));
        assert_eq!(sum.other_clients.unwrap().requests, 16);
        assert_eq!((sum.doors.len(), sum.doors[&0].clients), (1, 3));
    }

    #[test]
    fn differences_are_what_came_since_or_all_after_a_new_start() {
        let (before, now) = (sample(1, 10), sample(1, 14));
        let since = now.since(&before);
        assert_eq!((since.requests(), since.read_bytes()), (4, 4 * 4096));
        assert_eq!((since.failed(), since.cache.hits), (0, 4));
        assert_eq!(since.clients[0].turnover.requests, 4);
        assert_eq!(since.files[0].turnover.read_bytes, 4 * 4096);
        assert_eq!(before.since(&now).requests(), 10);
    }
}
