//! A session: the ranks of a program, and the servers among or beside them, ready for collective
//! calls on arrays.
//!
//! This is where the layers meet. A call checks what this rank was given, exposes its memory, and
//! hands the engine a proposal; the rank that directs it turns the agreed proposal into a request
//! on a store. Whatever is wrong on one rank becomes its proposal, so that all ranks end alike.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::{
    Decision, Director, Error, Kind, Operation, Plan, Proposal, Result, Roles, Strategy, Verdict,
    Who,
};
use penstock_layout::Region;

pub use self::open::Seat;
use self::options::Doing;
pub use self::options::{
    BACKGROUND_BYTES, BLOCK_BYTES, Background, How, Options, Outstanding, Report,
};
use crate::call::{ArrayCall, Local, Memory};
use crate::directors::{
    By, MeetDirector, ReadDirector, Setting, Source, WriteDirector, check_write,
};
use crate::driver::{Driver, Start};
use crate::groups::SharedCursor;
use crate::strategy;
use crate::{ArraySchema, Disk, Stored};

mod groups;
mod open;
mod options;

/// As much of a leaving rank's reason as the others are told.
const LEAVING_CAUSE_CHARS: usize = 2000;

/// One rank's end of a session.
pub struct Session {
    driver: Driver,
    roles: Arc<Roles>,
    rank: Option<usize>,
    setting: Setting,
    /// Split collectives that have not been ended: their numbers, and what they do.
    outstanding: RefCell<BTreeMap<u64, Doing>>,
    /// Where the session stands in each group, on the rank that directs.
    cursors: RefCell<HashMap<PathBuf, SharedCursor>>,
    is_closed: Cell<bool>,
    dedicated: Vec<JoinHandle<()>>,
}

impl Session {
    /// This rank among the clients; `None` on a dedicated server.
    pub fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.roles.clients.len()
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.roles.servers.len()
    }

    /// Writes `array` to `path`, each rank its `local` part, by the session's strategy if none is
    /// given.
    ///
    /// # Errors
    /// The same on all ranks: what is wrong with any rank's arguments (given here as `Err` where
    /// they could not even be made into a call), or what a server met. The old data set at `path`,
    /// if any, is then as it was.
    ///
    /// # Collective
    /// Over all clients.
    pub fn write(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        self.transfer(Operation::Write, path, given, by)
    }

    /// Reads `array` from `path`, each rank its part into `local`, by the session's strategy if none
    /// is given.
    ///
    /// # Errors
    /// As [`Session::write`]; `local` may then hold anything.
    ///
    /// # Collective
    /// Over all clients.
    pub fn read(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        self.transfer(Operation::Read, path, given, by)
    }

    /// Begins a write, as [`Session::write`] does it; [`Session::end`] ends it. Until then nobody may
    /// change `local`, and `keeps`, what owns it, is kept. Several calls may be under way, on different
    /// arrays.
    ///
    /// What is in the background, where `how` does not say: with dedicated servers, and with caching,
    /// which cannot be split, all; otherwise the disks' work.
    ///
    /// # Errors
    /// The same on all ranks: what is wrong with any rank's arguments. With all in the background it is
    /// [`Session::end`] that says so.
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_write(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        self.begin_split(Operation::Write, path, given, how, keeps)
    }

    /// Begins a read, as [`Session::read`] does it: see [`Session::begin_write`]. Until it has ended
    /// nobody may use `local`.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_read(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        self.begin_split(Operation::Read, path, given, how, keeps)
    }

    /// Whether a call has ended, so that [`Session::end`] need not wait. Lets it go on a little; it may
    /// need that on all ranks. Never waits.
    pub fn has_ended(&self, call: &Outstanding) -> bool {
        self.driver.has_ended(call.id)
    }

    /// Waits for the end of a call. Its time counts from its beginning.
    ///
    /// # Errors
    /// As [`Session::write`] and [`Session::read`]; [`Kind::Schema`] when it has been ended already, here
    /// alone.
    ///
    /// # Collective
    /// Over all clients, in any order.
    pub fn end(&self, call: &Outstanding) -> Result<Report> {
        self.outstanding.borrow_mut().remove(&call.id);
        let verdict = self.driver.end(call.id)?;
        Ok(Report {
            bytes: call.bytes,
            seconds: (self.driver.now() - call.begun).as_secs_f64(),
            moved: verdict.moved,
            servers: self.servers(),
        })
    }

    fn transfer(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        let by = By {
            strategy: by.unwrap_or(self.setting.options.strategy),
            is_split: false,
        };
        let call = self.begin(operation, path, given, by, None, None)?;
        self.end(&call)
    }

    fn begin_split(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let checked = how.and_then(|how| self.check_split(how));
        let (given, by, background) = match checked {
            Ok((by, background)) => (given, by, background),
            Err(error) => {
                let by = By {
                    strategy: self.setting.options.strategy,
                    is_split: false,
                };
                (given.and(Err(error)), by, Background::None)
            }
        };
        let doing = given.as_ref().ok().map(|(array, _)| Doing {
            operation,
            path: path.to_path_buf(),
            name: array.schema.name.clone(),
        });
        let call = self.begin(operation, path, given, by, Some(background), Some(keeps))?;
        match background {
            Background::All => {}
            Background::Disk => {
                if !self.driver.is_handed_over(call.id) {
                    self.driver.end(call.id)?; // the ranks did not agree
                }
            }
            Background::None => {
                if !self.driver.is_well(call.id) {
                    self.driver.end(call.id)?;
                }
            }
        }
        if let Some(doing) = doing {
            self.outstanding.borrow_mut().insert(call.id, doing);
        }
        Ok(call)
    }

    /// Waits until all clients are here.
    ///
    /// # Errors
    /// When a rank has left, or calls something else.
    ///
    /// # Collective
    /// Over all clients.
    pub fn barrier(&self) -> Result<()> {
        self.meet("a barrier")
    }

    /// Ends the session; dedicated servers end too. Closing again does nothing. What has been begun is
    /// brought to its end first.
    ///
    /// # Errors
    /// As [`Session::barrier`]; on all ranks when one has begun a call and not ended it. The session is
    /// closed all the same, and the call has done what it was to do, unless it failed.
    ///
    /// # Collective
    /// Over all clients.
    pub fn close(&mut self) -> Result<()> {
        if self.is_closed.get() {
            return Ok(());
        }
        let complaint = self.end_forgotten();
        let closed = self
            .call(
                "the end of the session",
                complaint,
                meet(Decision::Close(None)),
            )
            .and_then(|verdict| verdict.complaint.map_or(Ok(()), Err));
        self.is_closed.set(true);
        for server in self.dedicated.drain(..) {
            // A server's panic has already failed a call.
            let _ = server.join();
        }
        closed
    }

    /// Ends what nobody has ended, and says what that was.
    fn end_forgotten(&self) -> Option<Error> {
        let mut forgotten = None;
        for (id, doing) in self.outstanding.take() {
            let cause = match self.driver.end(id) {
                Ok(_) => format!("{doing} was begun and never ended; it has ended well"),
                Err(error) => format!("{doing} was begun and never ended; it failed: {error}"),
            };
            forgotten.get_or_insert(Error::new(Kind::Schema, "closing a session", cause));
        }
        forgotten
    }

    /// Leaves without closing: the calls of all other ranks fail and name `cause`, instead of
    /// waiting for this one.
    pub fn leave(&mut self, cause: &str) {
        if self.is_closed.replace(true) {
            return;
        }
        // A rank that leaves because another has left passes that one's reason on.
        let error = self.driver.broken().unwrap_or_else(|| {
            let cause: String = cause.chars().take(LEAVING_CAUSE_CHARS).collect();
            let error = Error::new(Kind::Peer, "leaving the session", cause);
            match self.rank {
                Some(rank) => error.by(Who::Rank(rank)),
                None => error,
            }
        });
        self.driver.leave(&error);
        for server in self.dedicated.drain(..) {
            let _ = server.join();
        }
    }

    /// What a write or read of `array` by that strategy would do, in words and numbers. Where each rank names its
    /// own box, the others' are not known here and are left out.
    ///
    /// # Errors
    /// When the schema does not fit, when the strategy cannot do it, or (for a read) when the store is
    /// not there.
    pub fn explain(
        &self,
        path: &Path,
        array: &ArrayCall,
        operation: Operation,
        by: Option<Strategy>,
    ) -> Result<String> {
        let by = By {
            strategy: by.unwrap_or(self.setting.options.strategy),
            is_split: false,
        };
        let memory = array.memory_schema(operation, self.my_boxes(array)?, self.clients())?;
        let block_bytes = self.setting.options.block_bytes;
        let (disk, target) = match operation {
            Operation::Write => {
                let stored = array.stored_schema(&memory);
                (stored.disk_schema(block_bytes)?, None)
            }
            Operation::Read => {
                let stored = array.open_stored(path)?;
                let target = stored.target().clone();
                (stored.disk_schema(block_bytes)?, Some(target))
            }
        };
        if operation == Operation::Write {
            check_write(&by.strategy, array, &memory, &disk)?;
        }
        let request = self.setting.request(operation, by, memory, disk, target)?;
        let mut text = Plan::new(&request, &self.roles).explain(self.roles.nodes);
        if matches!(array.memory, Memory::Box { .. }) && self.clients() > 1 {
            text.push_str(
                "  (of irregular boxes: this rank's only, the others' are not known here)\n",
            );
        }
        Ok(text)
    }

    /// The schema of an array on disk. Each rank may call it for itself.
    ///
    /// # Errors
    /// When it is not there or damaged, or when there are several and none was named.
    pub fn open_schema(path: &Path, name: Option<&str>) -> Result<ArraySchema> {
        Ok(Stored::open(path, name)?.schema().clone())
    }

    fn my_rank(&self) -> Result<usize> {
        let on_server = || {
            Error::new(
                Kind::Schema,
                "a collective call",
                "this rank is a dedicated server",
            )
        };
        self.rank.ok_or_else(on_server)
    }

    fn my_boxes(&self, array: &ArrayCall) -> Result<Vec<(usize, Region)>> {
        let rank = self.my_rank()?;
        Ok(array.own_box().map(|own| (rank, own)).into_iter().collect())
    }

    /// How a split collective is met, and what of it is in the background.
    fn check_split(&self, how: How) -> Result<(By, Background)> {
        let options = &self.setting.options;
        let strategy = how.strategy.unwrap_or(options.strategy);
        let is_caching = matches!(strategy, Strategy::Caching(_));
        let usual = match options.dedicated || is_caching {
            true => Background::All,
            false => Background::Disk,
        };
        let background = how.background.unwrap_or(usual);
        let cannot = |cause: &str| Error::new(Kind::Unsupported, "splitting a collective", cause);
        if background == Background::Disk && is_caching {
            return Err(cannot(
                "with caching, ranks ask for blocks to the end: use background=\"all\" or \"none\"",
            ));
        }
        if background == Background::All && !self.setting.has_threads {
            return Err(cannot(
                "ranks exchange MPI messages, and MPI allows them to one thread only: initialise it with \
                 MPI_THREAD_MULTIPLE, or use background=\"disk\"",
            ));
        }
        let is_split = background == Background::Disk;
        Ok((By { strategy, is_split }, background))
    }

    /// Begins to move an array.
    fn begin(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: By,
        background: Option<Background>,
        keeps: Option<Box<dyn Any + Send>>,
    ) -> Result<Outstanding> {
        let setting = &self.setting;
        let asked = given.and_then(|given| {
            self.check_outstanding(operation, path, &given.0)?;
            let array = &given.0;
            let direct = || -> Box<dyn Director> {
                match operation {
                    Operation::Write => {
                        Box::new(WriteDirector::new(path, array.clone(), setting, by))
                    }
                    Operation::Read => {
                        let source = Source {
                            path: path.to_path_buf(),
                            array: array.clone(),
                            sums: None,
                        };
                        Box::new(ReadDirector::new(vec![source], setting, by))
                    }
                }
            };
            Ok(Asked {
                words: in_words(operation, path, array, by, background),
                bytes: array.asked_bytes(),
                director: self.directs().then(direct),
                given: vec![given],
            })
        });
        let in_background = background == Some(Background::All);
        self.begin_asked(operation, asked, in_background, keeps)
    }

    /// Begins what a rank asks for.
    fn begin_asked(
        &self,
        operation: Operation,
        asked: Result<Asked>,
        in_background: bool,
        keeps: Option<Box<dyn Any + Send>>,
    ) -> Result<Outstanding> {
        let begun = self.driver.now();
        let (rank, clients) = (self.my_rank()?, self.clients());
        let checked = asked.and_then(|mut asked| {
            for (array, local) in &mut asked.given {
                local.check_for(operation, array, rank, clients)?;
            }
            Ok(asked)
        });
        let bytes = checked.as_ref().map_or(0, |asked| asked.bytes);
        let (proposal, memories, director) = match checked {
            Ok(asked) => {
                let proposal = Proposal {
                    words: asked.words,
                    own_boxes: asked
                        .given
                        .iter()
                        .map(|(array, _)| array.own_box())
                        .collect(),
                    complaint: None,
                };
                let memories = asked.given.into_iter().map(|(_, local)| local.memory);
                (Ok(proposal), memories.collect(), asked.director)
            }
            Err(error) => (Err(error), Vec::new(), Some(meet(nothing()))),
        };
        let id = self.start(Start {
            proposal,
            memories,
            director,
            in_background,
            keeps,
        })?;
        Ok(Outstanding { id, bytes, begun })
    }

    /// Refuses what would interfere with a call that is under way.
    fn check_outstanding(
        &self,
        operation: Operation,
        path: &Path,
        array: &ArrayCall,
    ) -> Result<()> {
        let outstanding = self.outstanding.borrow();
        let interferes = |doing: &&Doing| {
            let both_read = (operation, doing.operation) == (Operation::Read, Operation::Read);
            // Two arrays of one group have different names; otherwise the path is the array.
            let is_in_group = matches!(array.schema.disk, Disk::Natural | Disk::Chunks { .. });
            let is_other = is_in_group && doing.name != array.schema.name;
            doing.path == path && !is_other && !both_read
        };
        match outstanding.values().find(interferes) {
            None => Ok(()),
            Some(doing) => {
                let cause = format!("{doing} is under way: end it first");
                Err(Error::new(Kind::Busy, "beginning a call", cause).at(path))
            }
        }
    }

    /// What all calls have in common.
    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Time since some moment before the first call.
    pub(crate) fn now(&self) -> Duration {
        self.driver.now()
    }

    /// A call that moves arrays, from its beginning to its end.
    pub(crate) fn move_all(&self, operation: Operation, asked: Result<Asked>) -> Result<Report> {
        let call = self.begin_asked(operation, asked, false, None)?;
        self.end(&call)
    }

    /// A call in which nothing is moved; what the director has to tell.
    pub(crate) fn meet_with(&self, words: &str, director: Box<dyn Director>) -> Result<String> {
        self.call(words, None, director).map(|verdict| verdict.note)
    }

    fn meet(&self, words: &str) -> Result<()> {
        self.meet_with(words, meet(nothing())).map(drop)
    }

    /// A call in which nothing is moved.
    fn call(
        &self,
        words: &str,
        complaint: Option<Error>,
        director: Box<dyn Director>,
    ) -> Result<Verdict> {
        let proposal = Proposal {
            words: words.to_string(),
            own_boxes: Vec::new(),
            complaint,
        };
        let id = self.start(Start {
            proposal: Ok(proposal),
            memories: Vec::new(),
            director: Some(director),
            in_background: false,
            keeps: None,
        })?;
        self.driver.end(id)
    }

    /// Whether this rank directs calls, also where its own arguments are wrong.
    fn directs(&self) -> bool {
        self.rank == Some(0)
    }

    /// Begins a call. Of directors only that of the rank that directs is kept.
    fn start(&self, mut start: Start) -> Result<u64> {
        if self.is_closed.get() {
            let cause = "the session is closed";
            return Err(Error::new(Kind::Schema, "a collective call", cause));
        }
        self.my_rank()?;
        start.director = start.director.filter(|_| self.directs());
        Ok(self.driver.begin(&self.roles, start))
    }
}

/// What a rank asks for in a call that moves arrays.
pub(crate) struct Asked {
    pub(crate) words: String,
    /// Bytes of the arrays.
    pub(crate) bytes: u64,
    /// This rank's part of each.
    pub(crate) given: Vec<(ArrayCall, Local)>,
    /// On the rank that directs, at least.
    pub(crate) director: Option<Box<dyn Director>>,
}

/// That all are here is enough.
fn nothing() -> Decision {
    Decision::Meet(String::new())
}

fn meet(decision: Decision) -> Box<dyn Director> {
    Box::new(MeetDirector { decision })
}

/// What a call asks for: ranks that say the same ask for the same.
fn in_words(
    operation: Operation,
    path: &Path,
    array: &ArrayCall,
    by: By,
    background: Option<Background>,
) -> String {
    let (what, way) = match operation {
        Operation::Write => ("a write", "to"),
        Operation::Read => ("a read", "from"),
    };
    let mut how = strategy::in_words(&by.strategy);
    if let Some(background) = background {
        how = format!("{how}, in the background: {}", background.word());
    }
    format!("{what} ({how}) {way} {} of {array}", path.display())
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave("it dropped its session without closing it");
    }
}
