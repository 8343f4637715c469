//! Reads arrays: the calls of every rank, and the director.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{
    Decision, Director, Operation, RankParts, Request, Result, Strategy, Tally, Traffic,
};

use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, LocalPart, RankRegions};
use super::ask::{Ask, TransferAsk};
use super::desk::Desk;
use super::errand::{Direction, Errand, Topic};
use super::session::{CallArguments, Session};
use super::settings::{Method, Outstanding, Report, Settings, SplitOptions, Subject};
use super::write::boxes_of;
use crate::ArraySchema;
use crate::formats::spread::of_server;
use crate::formats::whole_in_bucket;
use crate::groups::{self, checkpoint_sums};
use crate::read::Witness;

impl Session {
    /// Reads `array` from `path`: each rank reads its part into `locals`, by `strategy` or the
    /// session's.
    ///
    /// # Errors
    /// As [`Session::write`]; `locals` may then hold anything.
    ///
    /// # Collective
    /// Over all clients.
    pub fn read(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        strategy: Option<Strategy>,
    ) -> Result<Report> {
        let strategy = strategy.unwrap_or(self.settings().options.strategy);
        self.flush_changed()?;
        match self.asked_to_read(path, array, locals, Method::by(strategy)) {
            Ok(asked) => self.transfer(Operation::Read, asked),
            Err(error) => Err(self.refuse(error)),
        }
    }

    fn asked_to_read(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        method: Method,
    ) -> Result<CallArguments> {
        self.check_outstanding(Operation::Read, path, &array)?;
        let source = Source {
            path: path.to_path_buf(),
            array: array.clone(),
            is_checkpoint: false,
        };
        Ok(CallArguments {
            ask: Ask::Read(TransferAsk {
                path: path.into(),
                strategy: method.strategy,
                background: None,
                array: array.ask(),
            }),
            bytes: array.asked_bytes(),
            direction: Direction::of(ReadErrand::new(vec![source], method)),
            given: vec![(array, locals)],
            in_time: false,
        })
    }

    /// Begins a read: see [`Session::read`] and [`Session::begin_write`]. Nobody may use `locals`
    /// until the read has ended.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_read(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        options: SplitOptions,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let subject = Subject::new(Operation::Read, path, &array.schema.name);
        self.flush_changed()?;
        let ask = |method| self.asked_to_read(path, array, locals, method);
        self.begin_split(subject, options, ask, keeps)
    }

    /// Opens the schema of an array on disk. Each rank may call it for itself.
    ///
    /// # Errors
    /// When the array is missing or damaged, or when there are several arrays and no `name`.
    pub fn open_schema(path: &Path, name: Option<&str>) -> Result<ArraySchema> {
        groups::open_schema(path, name)
    }
}

/// An array to be read.
#[derive(Serialize, Deserialize)]
pub(super) struct Source {
    /// The path of the array itself, of its group, or of its file.
    pub(super) path: PathBuf,
    /// The array as the ranks see it.
    pub(super) array: ArrayCall,
    /// Whether the group is a checkpoint: then servers compare the elements with its sums.
    pub(super) is_checkpoint: bool,
}

/// The errand of a read.
#[derive(Serialize, Deserialize)]
pub(super) struct ReadErrand {
    sources: Vec<Source>,
    method: Method,
}

impl ReadErrand {
    pub(super) fn new(sources: Vec<Source>, method: Method) -> Self {
        Self { sources, method }
    }
}

impl Errand for ReadErrand {
    fn topic(&self) -> Topic {
        match self.sources.iter().any(|source| source.is_checkpoint) {
            true => Topic::Restart,
            false => Topic::Read,
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let sources = self.sources.iter_mut();
        sources.map(|source| &mut source.path).collect()
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        let settings = &desk.settings;
        Box::new(ReadDirector::new(self.sources, settings, self.method))
    }
}

/// Opens the stored arrays that servers read.
pub(super) struct ReadDirector {
    sources: Vec<Source>,
    settings: Settings,
    method: Method,
    witnesses: Vec<Witness>,
}

impl ReadDirector {
    /// Creates the director of one read of all `sources`.
    pub(super) fn new(sources: Vec<Source>, settings: &Settings, method: Method) -> Self {
        Self {
            sources,
            settings: settings.clone(),
            method,
            witnesses: Vec::new(),
        }
    }

    fn request(&self, source: &Source, boxes: RankRegions, witness: &Witness) -> Result<Request> {
        let Self {
            settings, method, ..
        } = self;
        let Source {
            path,
            array,
            is_checkpoint,
        } = source;
        let holders = array.holders(Operation::Read, boxes, settings.clients)?;
        let stored = array.open_stored(path);
        let stored = stored.or_else(|error| witness.check().and(Err(error)))?;
        let mut target = stored.target().clone();
        let mut disk = stored.disk_schema(settings.options.block_bytes)?;
        if *is_checkpoint {
            // Checksums are of chunks as they were written.
            disk = whole_in_bucket(path, disk)?;
            let known = checkpoint_sums(path, &array.schema.name, disk.objects())?;
            target = match known {
                Some(known) => target.checked_by(known),
                None => target,
            };
        }
        settings.request(Operation::Read, *method, holders, disk, Some(target))
    }
}

impl Director for ReadDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let mut requests = Vec::with_capacity(self.sources.len());
        for (number, source) in std::mem::take(&mut self.sources).iter().enumerate() {
            let path = of_server(&source.path, 0);
            let witness = Witness::of(&path, &source.array.schema.name);
            requests.push(self.request(source, boxes_of(&parts, number), &witness)?);
            self.witnesses.push(witness);
        }
        Ok(Decision::Serve(requests))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        self.witnesses.iter().try_for_each(Witness::check)?;
        outcome.map(|done| done.moved)
    }
}
