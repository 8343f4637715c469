//! What only the rank that directs a call does: it makes or opens the target, turns the agreed
//! proposal into a request, and shows the result to the world.

use std::path::{Path, PathBuf};

use penstock_engine::{
    Decision, Director, Error, Kind, Moved, Operation, Request, Result, Roles, Split, Strategy,
    independent,
};
use penstock_layout::{Assignment, DiskSchema, MemorySchema, Region};

use crate::call::ArrayCall;
use crate::session::Options;
use crate::store::Witness;
use crate::{Pending, Target};

/// What a session's calls have in common.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How the session was set up.
    pub options: Options,
    clients: usize,
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

    /// The request for a target.
    pub fn request(
        &self,
        operation: Operation,
        by: By,
        memory: MemorySchema,
        disk: DiskSchema,
        target: Vec<u8>,
    ) -> Request {
        let By { strategy, is_split } = by;
        let buffer_bytes_max = self.options.background_bytes;
        let servers = match operation {
            // Linux lets one process at a time write to a file, and others wait for it awake. So
            // one server of each host writes a file that is dealt out, unless the user has said
            // how many. The first servers are of different hosts.
            Operation::Write
                if disk.assignment() == Assignment::Blocks && self.options.servers.is_none() =>
            {
                self.hosts.min(self.servers)
            }
            _ => self.servers,
        };
        Request {
            operation,
            strategy,
            memory,
            disk,
            target,
            servers,
            sync: self.options.sync,
            split: is_split.then_some(Split { buffer_bytes_max }),
        }
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

/// Refuses what the strategy cannot do to the array.
///
/// # Errors
/// [`Kind::Schema`] when ranks would each write for themselves what can only be written whole.
pub fn check_write(
    strategy: &Strategy,
    array: &ArrayCall,
    memory: &MemorySchema,
    disk: &DiskSchema,
) -> Result<()> {
    if *strategy == Strategy::Independent && !array.schema.disk.writes_parts() {
        return independent::check(memory, disk);
    }
    Ok(())
}

fn encode_target(target: Target) -> Result<Vec<u8>> {
    serde_json::to_vec(&target).map_err(|e| Error::new(Kind::Io, "encoding a request's target", e))
}

/// Ends calls that servers have no part in.
pub struct MeetDirector {
    /// What the call comes to.
    pub decision: Decision,
}

impl Director for MeetDirector {
    fn prepare(&mut self, _boxes: Vec<(usize, Region)>) -> Result<Decision> {
        Ok(self.decision.clone())
    }

    fn conclude(&mut self, outcome: Result<Moved>) -> Result<Moved> {
        outcome
    }
}

/// Makes a target before servers write it, and puts it in its place when they have.
pub struct WriteDirector {
    path: PathBuf,
    array: ArrayCall,
    setting: Setting,
    by: By,
    pending: Option<Pending>,
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
        }
    }
}

impl Director for WriteDirector {
    fn prepare(&mut self, boxes: Vec<(usize, Region)>) -> Result<Decision> {
        let memory = self.array.memory_schema(boxes, self.setting.clients)?;
        let disk = self
            .array
            .schema
            .disk_schema(self.setting.options.block_bytes)?;
        check_write(&self.by.strategy, &self.array, &memory, &disk)?;
        let pending = Pending::create(&self.path, &self.array.schema)?;
        let direct = self.setting.options.direct;
        let target = encode_target(pending.target().clone().with_direct(direct))?;
        self.pending = Some(pending);
        Ok(Decision::Serve(self.setting.request(
            Operation::Write,
            self.by,
            memory,
            disk,
            target,
        )))
    }

    fn conclude(&mut self, outcome: Result<Moved>) -> Result<Moved> {
        let pending = self.pending.take();
        match (outcome, pending) {
            (Ok(moved), Some(pending)) => pending.commit().map(|()| moved),
            (outcome, _) => outcome, // dropping what is pending removes it
        }
    }
}

/// Opens what servers are to read, and sees to it that it stayed the same.
pub struct ReadDirector {
    path: PathBuf,
    array: ArrayCall,
    setting: Setting,
    by: By,
    witness: Option<Witness>,
}

impl ReadDirector {
    /// Of a read of `array` from `path`.
    pub fn new(path: &Path, array: ArrayCall, setting: &Setting, by: By) -> Self {
        Self {
            path: path.to_path_buf(),
            array,
            setting: setting.clone(),
            by,
            witness: None,
        }
    }
}

impl Director for ReadDirector {
    fn prepare(&mut self, boxes: Vec<(usize, Region)>) -> Result<Decision> {
        let memory = self.array.memory_schema(boxes, self.setting.clients)?;
        let witness = Witness::of(&self.path, &self.array.schema.name);
        let stored = self.array.open_stored(&self.path);
        let stored = stored.or_else(|error| witness.check().and(Err(error)))?;
        self.witness = Some(witness);
        let disk = stored.disk_schema(self.setting.options.block_bytes)?;
        let direct = self.setting.options.direct;
        let target = encode_target(stored.target().clone().with_direct(direct))?;
        Ok(Decision::Serve(self.setting.request(
            Operation::Read,
            self.by,
            memory,
            disk,
            target,
        )))
    }

    fn conclude(&mut self, outcome: Result<Moved>) -> Result<Moved> {
        self.witness.as_ref().map_or(Ok(()), Witness::check)?;
        outcome
    }
}
