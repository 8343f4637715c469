//! Writes arrays: the calls of every rank, and the director.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{
    Decision, Director, Error, Holders, Kind, Operation, RankPart, RankParts, Request, Rest,
    Result, Strategy, Tally, Traffic, independent,
};
use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, LocalPart, RankRegions};
use super::ask::{Ask, TransferAsk};
use super::desk::Desk;
use super::errand::{Direction, Errand, Topic};
use super::session::{CallArguments, Session};
use super::settings::{Background, Method, Outstanding, Report, Settings, SplitOptions, Subject};
use crate::formats::spread::is_template;
use crate::formats::whole_in_bucket;
use crate::{ArraySchema, Keys, Leftover, Pending, Storage, StoredArray, json};

impl Session {
    /// Writes `array` to `path`: each rank writes its `locals`, by `strategy` or the session's.
    ///
    /// # Errors
    /// The same on all ranks: an error in any rank's arguments, or the error of a server. A former
    /// data set at `path` is then as it was.
    ///
    /// # Collective
    /// Over all clients.
    pub fn write(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        strategy: Option<Strategy>,
    ) -> Result<Report> {
        let strategy = strategy.unwrap_or(self.settings().options.strategy);
        let method = Method::by(strategy);
        let asked = self.asked_to_write(path, array, locals, method);
        match asked {
            Ok(asked) => self.transfer(Operation::Write, asked),
            Err(error) => Err(self.refuse(error)),
        }
    }

    fn asked_to_write(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        method: Method,
    ) -> Result<CallArguments> {
        self.check_outstanding(Operation::Write, path, &array)?;
        Ok(CallArguments {
            ask: Ask::Write(TransferAsk {
                path: path.into(),
                strategy: method.strategy,
                background: None,
                array: array.ask(),
            }),
            bytes: array.asked_bytes(),
            direction: Direction::of(WriteErrand::new(path.to_path_buf(), array.clone(), method)),
            given: vec![(array, locals)],
            in_time: false,
        })
    }

    /// Begins a write, as [`Session::write`] does; [`Session::end`] ends it. Until then nobody may
    /// change `locals`, and the session keeps `keeps`, which owns their memory. Several calls may
    /// be under way, on different arrays.
    ///
    /// If `options` do not say, all of the call is in the background with dedicated servers and
    /// with caching, which cannot be split; otherwise the work of the disks is.
    ///
    /// # Errors
    /// The same on all ranks: an error in any rank's arguments. With all in the background
    /// [`Session::end`] gives this error.
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_write(
        &self,
        path: &Path,
        array: ArrayCall,
        locals: Vec<LocalPart>,
        options: SplitOptions,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let subject = Subject::new(Operation::Write, path, &array.schema.name);
        let ask = |method| self.asked_to_write(path, array, locals, method);
        self.begin_split(subject, options, ask, keeps)
    }

    /// Begins a split collective on an array, or refuses. `ask` gives what this rank asks for.
    pub(super) fn begin_split(
        &self,
        subject: Subject,
        options: SplitOptions,
        ask: impl FnOnce(Method) -> Result<CallArguments>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let split = self.check_split(options);
        let (mut asked, background) = split
            .and_then(|(method, background)| Ok((ask(method)?, background)))
            .map_err(|error| self.refuse(error))?;
        asked.ask = asked.ask.with_background(background);
        let in_background = background == Background::All;
        let call = self.begin(subject.operation, asked, in_background, Some(keeps))?;
        let has_failed = match background {
            Background::All => false,
            Background::Disk => !self.driver().is_handed_over(call.id), // the ranks did not agree
            Background::None => !self.driver().is_well(call.id),
        };
        if has_failed {
            self.finish(call.id)?;
        }
        self.remember(&call, subject);
        Ok(call)
    }

    /// The method of a split collective, and its part in the background.
    fn check_split(&self, split: SplitOptions) -> Result<(Method, Background)> {
        let options = &self.settings().options;
        let strategy = split.strategy.unwrap_or(options.strategy);
        let is_caching = matches!(strategy, Strategy::Caching(_));
        let usual = match options.dedicated || self.party().stands || is_caching {
            true => Background::All,
            false => Background::Disk,
        };
        let background = split.background.unwrap_or(usual);
        let cannot = |cause: &str| Error::new(Kind::Unsupported, "splitting a collective", cause);
        if background == Background::Disk && is_caching {
            return Err(cannot(
                "with caching, ranks ask for blocks to the end: use background=\"all\" or \"none\"",
            ));
        }
        if background == Background::All && !self.settings().has_threads {
            return Err(cannot(
                "ranks exchange MPI messages, and MPI allows them to one thread only: initialise it with \
                 MPI_THREAD_MULTIPLE, or use background=\"disk\"",
            ));
        }
        let is_split = background == Background::Disk;
        Ok((Method { strategy, is_split }, background))
    }
}

/// Refuses a write that the strategy cannot do.
///
/// # Errors
/// [`Kind::Schema`] when independent ranks would have to share an object that can only be written
/// whole; [`Kind::Unsupported`] for a part of an array by another strategy than disk-directed, and
/// for elements of no rank that the strategy would not fill.
pub(super) fn check_write(
    strategy: &Strategy,
    array: &ArrayCall,
    holders: &Holders,
    disk: &DiskSchema,
) -> Result<()> {
    let is_disk_directed = matches!(strategy, Strategy::DiskDirected(_));
    let refused = |doing: &str| {
        let cause = format!("by {}: use strategy=\"disk-directed\"", strategy.name());
        Err(Error::new(Kind::Unsupported, doing, cause))
    };
    if array.is_region() && !is_disk_directed {
        return refused("writing a part of an array");
    }
    let writes_all = is_disk_directed || matches!(strategy, Strategy::TwoPhase(_));
    if !array.schema.fill.is_zero() && !keeps_fill(&array.schema.disk) && !writes_all {
        return refused("filling a file that cannot say what was never written");
    }
    if *strategy == Strategy::Independent && !array.schema.disk.writes_parts() {
        return match holders {
            Holders::Schema(memory) => independent::check(memory, disk),
            Holders::Lists { .. } => {
                refused("writing lists to a store whose chunks can only be written whole")
            }
        };
    }
    Ok(())
}

/// Whether the store itself defines the elements that were never written.
fn keeps_fill(disk: &Storage) -> bool {
    match disk {
        Storage::Natural | Storage::Shares { .. } | Storage::Chunks { .. } => true,
        Storage::Hdf5 { .. } => !disk.writes_parts(),
        Storage::RowMajor { .. } | Storage::Parts(..) => false,
    }
}

/// The boxes that ranks name for one array of a call.
pub(super) fn boxes_of(parts: &RankParts, array: usize) -> RankRegions {
    let named = parts
        .iter()
        .filter_map(|RankPart { rank, boxes, .. }| Some((*rank, boxes.get(array)?.clone()?)));
    named.collect()
}

/// The errand of a write.
#[derive(Serialize, Deserialize)]
pub(super) struct WriteErrand {
    path: PathBuf,
    array: ArrayCall,
    method: Method,
}

impl WriteErrand {
    pub(super) fn new(path: PathBuf, array: ArrayCall, method: Method) -> Self {
        Self {
            path,
            array,
            method,
        }
    }
}

impl Errand for WriteErrand {
    fn topic(&self) -> Topic {
        Topic::Write
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    fn written(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn words(&self) -> String {
        let part = if self.array.is_region() {
            "a part of "
        } else {
            ""
        };
        format!("write {part}{}", self.array.schema.name)
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(WriteDirector::new(
            &self.path,
            &self.array,
            desk,
            self.method,
        ))
    }
}

/// Makes a target before servers write it, and puts it in its place when they have.
struct WriteDirector {
    path: PathBuf,
    array: ArrayCall,
    settings: Settings,
    method: Method,
    pending: Option<Pending>,
    /// The leftover of the write, which is dropped when all ranks have heard the verdict.
    committed: Option<Leftover>,
}

impl WriteDirector {
    /// Creates the director of a write of `array` to `path`.
    fn new(path: &Path, array: &ArrayCall, desk: &Arc<Desk>, method: Method) -> Self {
        Self {
            path: path.to_path_buf(),
            array: array.clone(),
            settings: desk.settings.clone(),
            method,
            pending: None,
            committed: None,
        }
    }

    /// The stored array that a write of a part changes, if it exists.
    fn stored(&self) -> Result<Option<StoredArray>> {
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
            let cause = format!(
                "a write of a part cannot change the array's attributes, which are {}",
                json::line(&stored.schema().attributes.clone().into())
            );
            let doing = format!("writing a part of '{}'", self.array.schema.name);
            return Err(Error::new(Kind::Schema, doing, cause).at(&self.path));
        }
        Ok(Some(stored))
    }

    /// Makes the pending write of a new array.
    fn create(&self, strategy: &Strategy, holders: &Holders) -> Result<Pending> {
        let schema = self.array.stored_schema(holders)?;
        if is_template(&self.path) {
            if !matches!(strategy, Strategy::DiskDirected(_)) {
                let cause = "what is spread over servers is disk-directed";
                let error = Error::new(Kind::Unsupported, "writing", cause);
                return Err(error.at(&self.path));
            }
            return Pending::create_spread(&self.path, &schema, self.settings.servers());
        }
        let keys = match self.array.schema.disk.is_natural() {
            true => Keys::Flat,
            false => Keys::Nested,
        };
        Pending::create(&self.path, &schema, keys)
    }

    /// The treatment of elements that no rank holds.
    fn rest(&self, stored: Option<&StoredArray>) -> Rest {
        match stored {
            Some(_) => Rest::Keep,
            None => rest_of_new(&self.array.schema),
        }
    }
}

/// The treatment of elements of a new array that no rank holds.
pub(super) fn rest_of_new(schema: &ArraySchema) -> Rest {
    let element = schema.fill.bytes().to_vec();
    match keeps_fill(&schema.disk) || schema.fill.is_zero() {
        true => Rest::Fill(element),
        false => Rest::FillAll(element),
    }
}

impl Director for WriteDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let boxes = boxes_of(&parts, 0);
        let clients = self.settings.clients;
        let holders = self.array.holders(Operation::Write, boxes, clients)?;
        let stored = self.stored()?;
        let block_bytes = self.settings.options.block_bytes;
        let disk = match &stored {
            Some(stored) => stored.disk_schema(block_bytes),
            None => self.array.stored_schema(&holders)?.disk_schema(block_bytes),
        };
        let disk = whole_in_bucket(&self.path, disk?)?;
        let strategy = self.method.strategy;
        check_write(&strategy, &self.array, &holders, &disk)?;
        let pending = match &stored {
            Some(stored) => Pending::change(&self.path, stored)?,
            None => self.create(&strategy, &holders)?,
        };
        let target = Some(pending.target().clone());
        self.pending = Some(pending);
        let rest = self.rest(stored.as_ref());
        let request =
            self.settings
                .request(Operation::Write, self.method, holders, disk, target)?;
        Ok(Decision::Serve(vec![Request { rest, ..request }]))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        let pending = self.pending.take(); // dropped, it removes what was written
        let moved = outcome?.moved;
        let is_synced = self.settings.options.sync;
        let committed = pending.map(|pending| pending.commit(is_synced));
        self.committed = committed.transpose()?;
        Ok(moved)
    }
}
