//! Arrays that stay open: any rank reads or writes any part at any time, without the others.
//!
//! All ranks open and close an array together. In between, a rank asks the servers that have its
//! part, and nobody else: see [`penstock_engine::files`]. The servers need to be there when a
//! request comes: on nodes of their own, or in a background thread of their rank.

mod explain;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::encoding::decode;
use penstock_engine::{
    Access, Decision, Director, Error, FileId, FilePart, Kind, Opening, Operation, Order,
    RankParts, Request, Rest, Result, Strategy, Tally, Traffic,
};
use penstock_layout::{DiskSchema, Region, Share};
use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, LocalPart};
use super::ask::{Ask, PathBytes};
use super::desk::{Desk, OpenFile};
use super::driver::AloneStart;
use super::errand::{Direction, Errand, Saying, Topic};
use super::list::RankList;
use super::session::{CallArguments, Session};
use super::settings::Report;
use super::write::boxes_of;
use crate::ElementType;
use crate::groups;

/// An array that the servers of a session keep open.
pub struct OpenArray {
    file: FileId,
    path: PathBuf,
    disk: Arc<DiskSchema>,
    description: Description,
    is_writable: bool,
    is_open: bool,
}

/// The part of an open array that one rank reads or writes.
#[derive(Debug, Clone)]
pub enum ArrayPart {
    /// A box.
    Box(Region),
    /// A list, made for the shape of the array.
    List(RankList),
}

/// An open array, as all ranks hear of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Description {
    name: String,
    shape: Vec<u64>,
    element: ElementType,
    servers: usize,
}

impl OpenArray {
    /// The name of the array.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// The extents of the array.
    pub fn shape(&self) -> &[u64] {
        &self.description.shape
    }

    /// The element type.
    pub fn element(&self) -> &ElementType {
        &self.description.element
    }

    fn error(&self, operation: Operation, kind: Kind, cause: impl Into<String>) -> Error {
        let what = match operation {
            Operation::Read => "reading a part of",
            Operation::Write => "writing a part of",
        };
        let doing = format!("{what} '{}'", self.description.name);
        Error::new(kind, doing, cause.into()).at(&self.path)
    }

    /// Checks that the array is open, and that this may be done with it.
    fn check_access(&self, operation: Operation) -> Result<()> {
        if !self.is_open {
            let cause = "the array has been closed";
            return Err(self.error(operation, Kind::Schema, cause));
        }
        if operation == Operation::Write && !self.is_writable {
            let cause = "the array is open to be read: open it with mode \"r+\"";
            return Err(self.error(operation, Kind::ReadOnly, cause));
        }
        Ok(())
    }

    /// Checks what a rank says of the array in a collective call.
    fn check_call(&self, operation: Operation, array: &ArrayCall) -> Result<()> {
        self.check_access(operation)?;
        let (given, there) = (&array.schema, &self.description);
        if given.shape == there.shape && given.element == there.element {
            return Ok(());
        }
        let cause = format!(
            "it is said to be of {} and shape {:?}, and is of {} and {:?}",
            given.element, given.shape, there.element, there.shape
        );
        Err(self.error(operation, Kind::Schema, cause))
    }

    /// Checks a rank's part of the array.
    fn check_part(&self, operation: Operation, part: &ArrayPart) -> Result<()> {
        let shape = &self.description.shape;
        self.check_access(operation)?;
        match part {
            ArrayPart::Box(part)
                if part.dims() != shape.len() || !Region::whole(shape).contains(part) =>
            {
                let cause = format!("the part {part:?} is not within the shape {shape:?}");
                Err(self.error(operation, Kind::Schema, cause))
            }
            ArrayPart::Box(_) => Ok(()),
            ArrayPart::List(list) => list.check_within(shape),
        }
    }

    /// Checks a rank's part of the array, and its place in memory.
    fn check(&self, operation: Operation, part: &ArrayPart, local: &LocalPart) -> Result<()> {
        let wrong = |cause: String| Err(self.error(operation, Kind::Schema, cause));
        let Description { shape, element, .. } = &self.description;
        self.check_part(operation, part)?;
        if local.element != *element {
            let (given, there) = (&local.element, element);
            return wrong(format!(
                "the memory is of {given}, and the array of {there}"
            ));
        }
        let given = &local.memory.extents;
        match part {
            ArrayPart::Box(part) if *given != part.shape => {
                let asked = &part.shape;
                return wrong(format!(
                    "the memory has shape {given:?}, and the part {asked:?}"
                ));
            }
            ArrayPart::Box(_) => {}
            ArrayPart::List(list) => list.check(operation, shape, given)?,
        }
        if operation == Operation::Read && !local.is_writable {
            return wrong("the memory is read-only".to_string());
        }
        Ok(())
    }
}

impl ArrayPart {
    /// The part, as the engine has it.
    fn of_file(&self) -> FilePart {
        match self {
            Self::Box(part) => FilePart::Share(Share::of_box(part)),
            Self::List(list) => FilePart::List(list.holding().clone()),
        }
    }
}

impl Session {
    /// Opens the array at `path`, of a group the array `name`, for requests of single ranks; to be
    /// changed in place with `is_writable`, and nobody else may write it then.
    ///
    /// # Errors
    /// The same on all ranks: when there is no such array, when it cannot be changed in place, or
    /// when another job writes it; [`Kind::Unsupported`] where servers exist only inside calls.
    ///
    /// # Collective
    /// Over all clients.
    pub fn open_array(
        &self,
        path: &Path,
        name: Option<&str>,
        is_writable: bool,
    ) -> Result<OpenArray> {
        if !self.serves_alone() {
            let cause = "servers exist only inside calls here: open the session with \
                         dedicated=True, or initialise MPI with MPI_THREAD_MULTIPLE";
            let error = Error::new(Kind::Unsupported, "opening an array", cause).at(path);
            return Err(self.refuse(error));
        }
        let ask = Ask::Open {
            path: PathBytes::from(path),
            name: name.map(str::to_string),
            is_writable,
        };
        let file = self.next_file();
        let opening = Direction::of(OpenErrand::new(
            file.number,
            path.to_path_buf(),
            name.map(str::to_string),
            is_writable,
        ));
        let answer = self.call(ask, None, opening)?.answer;
        let (description, disk): (Description, DiskSchema) = decode(&answer)?;
        let array = OpenArray {
            file,
            path: path.to_path_buf(),
            disk: Arc::new(disk),
            description,
            is_writable,
            is_open: true,
        };
        self.driver().keep_serving(1);
        if let Err(error) = self.order(file, Change::Open) {
            self.driver().keep_serving(-1);
            return Err(error);
        }
        self.open_arrays().borrow_mut().insert(file, is_writable);
        Ok(array)
    }

    /// Moves the elements of `part` between an open array and this rank's memory. A write is done
    /// when the servers have the elements; [`Session::flush_array`] brings them to the disks.
    ///
    /// # Errors
    /// When the part or the memory does not fit the array; the error of a server. Some of the
    /// elements may have been moved then.
    pub fn move_part(
        &self,
        array: &OpenArray,
        operation: Operation,
        part: &ArrayPart,
        local: LocalPart,
    ) -> Result<()> {
        array.check(operation, part, &local)?;
        self.my_rank()?;
        self.driver().alone(AloneStart {
            file: array.file,
            disk: array.disk.clone(),
            servers: array.description.servers,
            operation,
            part: part.of_file(),
            memory: local.memory,
        })
    }

    /// Moves parts of an open array between its servers and the memories of all ranks, each rank
    /// its `locals`; `array` has the open array's shape, and says what each rank holds. Servers
    /// direct the flow, around their cache; what a write has moved is on the disks when it returns.
    /// Another's request may come between two blocks.
    ///
    /// # Errors
    /// The same on all ranks: an error in any rank's arguments, or the error of a server. Some of
    /// the elements may have been moved then.
    ///
    /// # Collective
    /// Over all clients.
    pub fn move_together(
        &self,
        open: &OpenArray,
        operation: Operation,
        array: ArrayCall,
        locals: Vec<LocalPart>,
    ) -> Result<Report> {
        if let Err(error) = open.check_call(operation, &array) {
            return Err(self.refuse(error));
        }
        let errand = TogetherErrand {
            file: open.file,
            operation,
            array: array.clone(),
        };
        let asked = CallArguments {
            ask: Ask::Together(open.file.number, operation, array.ask().memory),
            bytes: array.asked_bytes(),
            given: vec![(array, locals)],
            in_time: false,
            direction: Direction::of(errand),
        };
        self.transfer(operation, asked)
    }

    /// Brings all that ranks have written to an open array to its disks.
    ///
    /// # Errors
    /// The same on all ranks: the first error of a server since the array was opened.
    ///
    /// # Collective
    /// Over all clients.
    pub fn flush_array(&self, array: &OpenArray) -> Result<()> {
        self.order(array.file, Change::Flush)
    }

    /// Flushes and closes an open array. A second close does nothing.
    ///
    /// # Errors
    /// As [`Session::flush_array`]; the array is closed all the same.
    ///
    /// # Collective
    /// Over all clients.
    pub fn close_array(&self, array: &mut OpenArray) -> Result<()> {
        if !std::mem::replace(&mut array.is_open, false) {
            return Ok(());
        }
        self.close_file(array.file)
    }

    fn close_file(&self, file: FileId) -> Result<()> {
        let was_open = self.open_arrays().borrow_mut().remove(&file);
        if was_open.is_none() {
            return Ok(()); // the session has closed it
        }
        let closed = self.order(file, Change::Close);
        self.desk().open().remove(&file.number);
        self.driver().keep_serving(-1);
        closed
    }

    /// Closes all arrays that are still open when the session ends.
    pub(super) fn close_forgotten(&self) -> Result<()> {
        let open: Vec<FileId> = self.open_arrays().borrow().keys().copied().collect();
        let closed = open.into_iter().map(|file| self.close_file(file));
        closed.fold(Ok(()), Result::and)
    }

    /// Flushes the arrays that are open to be changed: a collective call is about to read, and may
    /// read one of them.
    ///
    /// # Errors
    /// As [`Session::flush_array`].
    ///
    /// # Collective
    /// Over all clients.
    pub(super) fn flush_changed(&self) -> Result<()> {
        let open = self.open_arrays().borrow();
        let changed = open.iter().filter(|(_, is_writable)| **is_writable);
        let files: Vec<FileId> = changed.map(|(&file, _)| file).collect();
        drop(open);
        files
            .into_iter()
            .try_for_each(|file| self.order(file, Change::Flush))
    }

    /// Has all servers carry out an order.
    fn order(&self, file: FileId, change: Change) -> Result<()> {
        let errand = Direction::of(OrderErrand { file, change });
        self.call(Ask::Order(file.number), None, errand).map(drop)
    }
}

/// The errand of the opening of an array: the array is found, and described to all ranks.
#[derive(Serialize, Deserialize)]
pub(super) struct OpenErrand {
    number: u64,
    path: PathBuf,
    name: Option<String>,
    is_writable: bool,
}

impl OpenErrand {
    pub(super) fn new(number: u64, path: PathBuf, name: Option<String>, is_writable: bool) -> Self {
        Self {
            number,
            path,
            name,
            is_writable,
        }
    }
}

impl Errand for OpenErrand {
    fn topic(&self) -> Topic {
        Topic::Open
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        let desk = desk.clone();
        Box::new(Saying::new(move || {
            let stored = groups::open(&self.path, self.name.as_deref())?;
            let right = self.is_writable.then(|| stored.updatable(&self.path));
            let right = right.transpose()?;
            let disk = stored.disk_schema(desk.settings.options.block_bytes)?;
            let (target, servers) = desk.settings.opened(stored.target())?;
            let schema = stored.schema();
            let description = Description {
                name: schema.name.clone(),
                shape: schema.shape.clone(),
                element: schema.element.clone(),
                servers,
            };
            let file = OpenFile {
                target,
                disk: disk.clone(),
                servers,
                is_writable: self.is_writable,
                right,
            };
            desk.open().insert(self.number, file);
            Ok((description, disk))
        }))
    }
}

/// The error of a file that is not open.
fn not_open() -> Error {
    Error::new(Kind::Schema, "using an open array", "it is not open")
}

/// The errand of a call of all ranks on an open array.
#[derive(Serialize, Deserialize)]
pub(super) struct TogetherErrand {
    file: FileId,
    operation: Operation,
    array: ArrayCall,
}

impl Errand for TogetherErrand {
    fn topic(&self) -> Topic {
        Topic::Together
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        let desk = desk.clone();
        Box::new(TogetherDirector { errand: self, desk })
    }
}

/// Directs a call of all ranks on an open array.
struct TogetherDirector {
    errand: TogetherErrand,
    desk: Arc<Desk>,
}

impl Director for TogetherDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let TogetherErrand {
            file,
            operation,
            array,
        } = &self.errand;
        let settings = &self.desk.settings;
        let boxes = boxes_of(&parts, 0);
        let holders = array.holders(*operation, boxes, settings.clients)?;
        let open = self.desk.open();
        let open = open.get(&file.number).ok_or_else(not_open)?;
        Ok(Decision::Serve(vec![Request {
            operation: *operation,
            strategy: Strategy::default(),
            holders,
            disk: open.disk.clone(),
            target: open.target.clone(),
            file: Some(*file),
            servers: open.servers,
            sync: settings.options.sync,
            split: None,
            rest: Rest::Keep,
            sifting: None,
        }]))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        outcome.map(|done| done.moved)
    }
}

/// What becomes of an open array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Change {
    Open,
    Flush,
    Close,
}

/// The errand of an order about an open array.
#[derive(Serialize, Deserialize)]
pub(super) struct OrderErrand {
    file: FileId,
    change: Change,
}

impl Errand for OrderErrand {
    fn topic(&self) -> Topic {
        Topic::Order
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        let desk = desk.clone();
        Box::new(OrderDirector { errand: self, desk })
    }
}

/// Directs an order about an open array.
struct OrderDirector {
    errand: OrderErrand,
    desk: Arc<Desk>,
}

impl Director for OrderDirector {
    fn prepare(&mut self, _parts: RankParts) -> Result<Decision> {
        let OrderErrand { file, change } = self.errand;
        let open = self.desk.open();
        let known = open.get(&file.number).ok_or_else(not_open)?;
        let opening = || Opening {
            target: known.target.clone(),
            disk: known.disk.clone(),
            access: match known.is_writable {
                true => Access::Update,
                false => Access::Read,
            },
            sync: self.desk.settings.options.sync,
            server: 0,
            servers: known.servers,
        };
        Ok(Decision::Order(match change {
            Change::Open => Order::Open {
                file,
                opening: opening(),
            },
            Change::Flush => Order::Flush(file),
            Change::Close => Order::Close(file),
        }))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        let OrderErrand { file, change } = self.errand;
        if change == Change::Close || change == Change::Open && outcome.is_err() {
            self.desk.open().remove(&file.number);
        }
        outcome.map(|done| done.moved)
    }
}
