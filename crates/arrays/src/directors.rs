//! What only the rank that directs a call does: it makes or opens the target, turns the agreed
//! proposal into a request, and shows the result to the world.

use std::path::{Path, PathBuf};

use penstock_engine::{
    Decision, Director, Done, Error, Kind, Moved, Operation, RankBoxes, Request, Result, Roles,
    Split, Strategy, independent,
};
use penstock_layout::{Assignment, DiskSchema, MemorySchema, Region};

use crate::call::ArrayCall;
use crate::session::Options;
use crate::store::spread::{is_template, of_server};
use crate::store::{Witness, sums};
use crate::{Committed, Disk, Keys, Pending, Stored, Target};

/// What a session's calls have in common.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How the session was set up.
    pub options: Options,
    /// Number of clients.
    pub clients: usize,
    servers: usize,
    hosts: usize,
    /// Whether a call may go on in a thread of its own.
    pub has_threads: bool,
}

impl Setting {
    /// Of a session of `roles`, on so many hosts.
    pub fn new(roles: &Roles, hosts: usize, options: Options, has_threads: bool) -> Self {
        let (clients, servers) = (roles.clients.len(), roles.servers.len());
        Self {
            options,
            clients,
            servers,
            hosts,
            has_threads,
        }
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The request for a target, which is moved as the session's options say; without one, for a call that is
    /// only explained.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a target that is to be written by more servers than there are.
    pub fn request(
        &self,
        operation: Operation,
        by: By,
        memory: MemorySchema,
        disk: DiskSchema,
        target: Option<Target>,
    ) -> Result<Request> {
        let By { strategy, is_split } = by;
        let Options {
            background_bytes: buffer_bytes_max,
            sync,
            direct,
            ..
        } = self.options;
        let target = target.map(|target| target.with_direct(direct).with_sync(sync));
        let spread_over = target.as_ref().and_then(Target::spread_over);
        if let (Operation::Write, Some(target)) = (operation, &target) {
            target.check_servers(self.servers)?;
        }
        let servers = match (operation, spread_over) {
            // Each server writes what is on its disk, and reads that if there are as many.
            (_, Some(of)) => of.min(self.servers),
            // Linux lets one process at a time write to a file, and others wait for it awake. So
            // one server of each host writes a file that is dealt out, unless the user has said
            // how many. The first servers are of different hosts.
            (Operation::Write, None)
                if disk.assignment() == Assignment::Blocks && self.options.servers.is_none() =>
            {
                self.hosts.min(self.servers)
            }
            _ => self.servers,
        };
        let target = target.map_or(Ok(Vec::new()), |target| serde_json::to_vec(&target));
        Ok(Request {
            operation,
            strategy,
            memory,
            disk,
            target: target.map_err(|e| Error::new(Kind::Io, "encoding a request's target", e))?,
            servers,
            sync,
            split: is_split.then_some(Split { buffer_bytes_max }),
            keeps_rest: false,
        })
    }
}

/// How a call is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// By what strategy.
    pub strategy: Strategy,
    /// Whether its disks are to work while the clients compute.
    pub is_split: bool,
}

impl By {
    /// By the servers: disk-directed, at once.
    pub fn servers() -> Self {
        Self {
            strategy: Strategy::default(),
            is_split: false,
        }
    }
}

/// Refuses what the strategy cannot do to the array.
///
/// # Errors
/// [`Kind::Schema`] when ranks would each write for themselves what can only be written whole;
/// [`Kind::Unsupported`] for a part of an array by another strategy than disk-directed.
pub fn check_write(
    strategy: &Strategy,
    array: &ArrayCall,
    memory: &MemorySchema,
    disk: &DiskSchema,
) -> Result<()> {
    if array.is_region() && !matches!(strategy, Strategy::DiskDirected(_)) {
        let cause = format!("by {}: use strategy=\"disk-directed\"", strategy.name());
        let doing = "writing a part of an array";
        return Err(Error::new(Kind::Unsupported, doing, cause));
    }
    if *strategy == Strategy::Independent && !array.schema.disk.writes_parts() {
        return independent::check(memory, disk);
    }
    Ok(())
}

/// The boxes that ranks name of one array of a call.
pub fn boxes_of(boxes: &RankBoxes, array: usize) -> Vec<(usize, Region)> {
    let named = boxes.iter().filter_map(|(rank, own)| {
        let own = own.get(array)?.clone()?;
        Some((*rank, own))
    });
    named.collect()
}

/// Ends calls that servers have no part in.
pub struct MeetDirector {
    /// What the call comes to.
    pub decision: Decision,
}

impl Director for MeetDirector {
    fn prepare(&mut self, _boxes: RankBoxes) -> Result<Decision> {
        Ok(self.decision.clone())
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        outcome.map(|done| done.moved)
    }
}

/// Makes a target before servers write it, and puts it in its place when they have.
pub struct WriteDirector {
    path: PathBuf,
    array: ArrayCall,
    setting: Setting,
    by: By,
    pending: Option<Pending>,
    /// Is let go when all ranks have heard the verdict.
    committed: Option<Committed>,
}

impl WriteDirector {
    /// Of a write of `array` to `path`.
    pub fn new(path: &Path, array: ArrayCall, setting: &Setting, by: By) -> Self {
        Self {
            path: path.to_path_buf(),
            array,
            setting: setting.clone(),
            by,
            pending: None,
            committed: None,
        }
    }

    /// What is to be changed, if it is there already.
    fn stored(&self) -> Result<Option<Stored>> {
        if !self.array.is_region() {
            return Ok(None);
        }
        let stored = match self.array.open_stored(&self.path) {
            Ok(stored) => stored,
            Err(error) if error.kind == Kind::Missing => return Ok(None),
            Err(error) => return Err(error),
        };
        let given = &self.array.schema.attributes;
        if !given.is_empty() && *given != stored.schema().attributes {
            let cause = "a write of a part cannot change the array's attributes";
            let doing = format!("writing a part of '{}'", self.array.schema.name);
            return Err(Error::new(Kind::Schema, doing, cause).at(&self.path));
        }
        Ok(Some(stored))
    }
}

impl Director for WriteDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let Setting {
            options, clients, ..
        } = &self.setting;
        let boxes = boxes_of(&boxes, 0);
        let memory = self
            .array
            .memory_schema(Operation::Write, boxes, *clients)?;
        let stored = self.stored()?;
        let schema = self.array.stored_schema(&memory);
        let disk = match &stored {
            Some(stored) => stored.disk_schema(options.block_bytes)?,
            None => schema.disk_schema(options.block_bytes)?,
        };
        check_write(&self.by.strategy, &self.array, &memory, &disk)?;
        let pending = match &stored {
            Some(stored) => Pending::change(&self.path, stored)?,
            None if is_template(&self.path) => {
                if !matches!(self.by.strategy, Strategy::DiskDirected(_)) {
                    let cause = "what is spread over servers is disk-directed";
                    let error = Error::new(Kind::Unsupported, "writing", cause);
                    return Err(error.at(&self.path));
                }
                Pending::begin_spread(&self.path, &schema, self.setting.servers)?
            }
            None => {
                let keys = match self.array.schema.disk {
                    Disk::Natural => Keys::Flat,
                    _ => Keys::Nested,
                };
                Pending::begin(&self.path, &schema, keys)?
            }
        };
        let target = Some(pending.target().clone());
        self.pending = Some(pending);
        let request = self
            .setting
            .request(Operation::Write, self.by, memory, disk, target)?;
        Ok(Decision::Serve(vec![Request {
            keeps_rest: stored.is_some(),
            ..request
        }]))
    }

    fn furnish(&mut self) {
        if let Some(pending) = &mut self.pending {
            let _ = pending.furnish(); // the commit says what came of it
        }
    }

    fn settle(&mut self) {
        if let Some(pending) = &mut self.pending {
            let _ = pending.settle();
        }
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        let pending = self.pending.take(); // dropped, it removes what was written
        let moved = outcome?.moved;
        self.committed = pending.map(Pending::commit).transpose()?;
        Ok(moved)
    }
}

/// An array to be read.
pub struct Source {
    /// The array itself, its group, or its file.
    pub path: PathBuf,
    /// As the ranks see it.
    pub array: ArrayCall,
    /// A file of checksums with which to compare it.
    pub sums: Option<PathBuf>,
}

/// Opens what servers read.
pub struct ReadDirector {
    sources: Vec<Source>,
    setting: Setting,
    by: By,
    witnesses: Vec<Witness>,
}

impl ReadDirector {
    /// Of a read of all sources.
    pub fn new(sources: Vec<Source>, setting: &Setting, by: By) -> Self {
        Self {
            sources,
            setting: setting.clone(),
            by,
            witnesses: Vec::new(),
        }
    }

    fn request(
        &self,
        source: &Source,
        boxes: Vec<(usize, Region)>,
        witness: &Witness,
    ) -> Result<Request> {
        let Setting {
            options, clients, ..
        } = &self.setting;
        let Source { path, array, sums } = source;
        let memory = array.memory_schema(Operation::Read, boxes, *clients)?;
        let stored = array.open_stored(path);
        let stored = stored.or_else(|error| witness.check().and(Err(error)))?;
        let disk = stored.disk_schema(options.block_bytes)?;
        let mut target = stored.target().clone();
        if let Some(sums) = sums {
            target = target.checked_by(sums::of_array(sums, &array.schema.name, disk.objects())?);
        }
        self.setting
            .request(Operation::Read, self.by, memory, disk, Some(target))
    }
}

impl Director for ReadDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let mut requests = Vec::with_capacity(self.sources.len());
        for (number, source) in self.sources.iter().enumerate() {
            let path = of_server(&source.path, 0);
            let witness = Witness::of(&path, &source.array.schema.name);
            requests.push(self.request(source, boxes_of(&boxes, number), &witness)?);
            self.witnesses.push(witness);
        }
        Ok(Decision::Serve(requests))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        self.witnesses.iter().try_for_each(Witness::check)?;
        outcome.map(|done| done.moved)
    }
}
