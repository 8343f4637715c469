//! A run of the paper's test programs: processes write a file, write it again, and read it.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_engine::{Operation, Result};
use penstock_files::{Attachment, OpenSubfile};
use penstock_sim::preset::Preset;
use serde::Serialize;

use super::volume::{Process, Volume, open};

/// The bytes of each server's cache (section 4.5).
pub const CACHE_BYTES: u64 = 32 << 20;

/// The part of each server's disk, in blocks, that is there for other than the data of a run: the
/// file's data may be there twice, before a sync and after it.
const SPARE_BLOCKS: u64 = 1024;

/// The ways through the file. There is one cell a server, and its BSU is a fourth of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each process has an equal number of cells, and goes through all of them at once.
    Cells,
    /// The one process goes through cell after cell.
    Sequence,
    /// The one process makes each access in one cell, and the next in the next cell.
    Cyclic,
    /// Accesses are striped across all cells. Each process has every so-many-th of them.
    Striped,
}

/// A case is one setup of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Case {
    pub clients: usize,
    pub servers: usize,
    pub way: Way,
    pub access_bytes: u64,
    /// The bytes of each cell.
    pub cell_bytes: u64,
    /// Whether the time of writing includes a sync.
    pub is_synced: bool,
    /// Whether data to be written travel inside requests, rather than after them.
    pub is_inside: bool,
    /// Whether the file is written a second time.
    pub is_rewritten: bool,
    /// Whether the file is read at the end.
    pub is_read: bool,
}

/// The seconds of a run's parts; 0 for a part that was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    pub first_write: f64,
    pub second_write: f64,
    pub read: f64,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    FirstWrite,
    SecondWrite,
    Read,
}

impl Part {
    /// The name of the part in figures.
    pub fn name(self) -> &'static str {
        match self {
            Part::FirstWrite => "1st write",
            Part::SecondWrite => "2nd write",
            Part::Read => "read",
        }
    }

    /// The seconds of the part.
    pub fn of(self, seconds: &Seconds) -> f64 {
        match self {
            Part::FirstWrite => seconds.first_write,
            Part::SecondWrite => seconds.second_write,
            Part::Read => seconds.read,
        }
    }
}

impl Case {
    /// The bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.cell_bytes * self.servers as u64
    }

    /// The rough cost of simulating the case.
    pub fn weight(&self) -> u64 {
        let parts = match self.way {
            Way::Striped => self.servers as u64,
            _ => 1,
        };
        (self.bytes() / self.access_bytes) * parts + self.bytes() / self.access_bytes.min(1 << 16)
    }

    /// The rate of a part, MB/s of 10^6 bytes.
    pub fn mb_s(&self, seconds: f64) -> f64 {
        self.bytes() as f64 / 1e6 / seconds
    }

    /// The milliseconds of an access of a part, if each process makes one at a time.
    pub fn access_ms(&self, seconds: f64) -> f64 {
        let of_process = self.bytes() / self.clients as u64;
        1e3 * seconds / of_process.div_ceil(self.access_bytes) as f64
    }

    /// Runs the case on the machine of `preset`, but with its own numbers of nodes.
    ///
    /// # Errors
    /// When the machine is impossible.
    pub fn run(&self, preset: &Preset, trial: u64) -> Result<Seconds> {
        let block_bytes = preset.file.block_bytes;
        let volume = Volume {
            preset,
            clients: self.clients,
            servers: self.servers,
            blocks: 2 * self.cell_bytes.div_ceil(block_bytes) + SPARE_BLOCKS,
            cache_bytes: CACHE_BYTES,
            request_bytes_max: match self.is_inside {
                true => u64::MAX,
                false => 0,
            },
            is_real: false,
            seed: trial,
        };
        let seconds = Rc::new(RefCell::new(Seconds::default()));
        let case = *self;
        volume.run(|process| {
            let seconds = seconds.clone();
            async move {
                let measured = case.on(&process).await?;
                if process.rank == 0 {
                    *seconds.borrow_mut() = measured;
                }
                Ok(())
            }
        })?;
        let seconds = *seconds.borrow();
        Ok(seconds)
    }

    async fn on(&self, process: &Process) -> Result<Seconds> {
        let bsu_bytes = (self.access_bytes / 4).max(1);
        let cells = self.servers as u64;
        let file = process.attach("/file", cells, bsu_bytes).await?;
        let subfiles = self.subfiles(process, &file, bsu_bytes)?;
        let mut seconds = Seconds::default();
        let write = self.part(process, &file, &subfiles, Operation::Write);
        seconds.first_write = write.await?;
        if self.is_rewritten {
            let write = self.part(process, &file, &subfiles, Operation::Write);
            seconds.second_write = write.await?;
        }
        if self.is_read {
            let read = self.part(process, &file, &subfiles, Operation::Read);
            seconds.read = read.await?;
        }
        Ok(seconds)
    }

    /// The subfiles of a process.
    fn subfiles(
        &self,
        process: &Process,
        file: &Attachment,
        bsu_bytes: u64,
    ) -> Result<Vec<OpenSubfile>> {
        let clients = self.clients as u64;
        match self.way {
            Way::Cells => {
                let own = self.servers / self.clients;
                let first = own * process.rank;
                let view = [1, 1, 1, self.servers as u64];
                let cells = first..first + own;
                cells.map(|cell| open(file, view, cell)).collect()
            }
            Way::Sequence => {
                let rows = self.cell_bytes.div_ceil(bsu_bytes);
                Ok(vec![open(file, [rows, 1, 1, 1], process.rank)?])
            }
            Way::Cyclic => Ok(vec![open(file, [4, 1, 1, 1], process.rank)?]),
            Way::Striped => Ok(vec![open(file, [1, clients, 1, 1], process.rank)?]),
        }
    }

    /// Measures one part, from a meeting to the next.
    async fn part(
        &self,
        process: &Process,
        file: &Attachment,
        subfiles: &[OpenSubfile],
        operation: Operation,
    ) -> Result<f64> {
        process.meet().await;
        let began = process.met_at.get();
        let bytes = self.bytes() / self.clients as u64 / subfiles.len() as u64;
        let lengths = (bytes, self.access_bytes);
        process.go_through(subfiles, operation, lengths).await?;
        if operation == Operation::Write && self.is_synced {
            process.client().sync(Some(file)).await?;
        }
        process.meet().await;
        let seconds = process.met_at.get() - began;
        if operation == Operation::Write && !self.is_synced {
            process.client().sync(Some(file)).await?; // the next part finds idle disks
        }
        Ok(seconds)
    }
}
