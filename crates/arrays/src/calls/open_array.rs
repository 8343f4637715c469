//! Arrays that stay open: any rank reads or writes any part at any time, without the others.
//!
//! All ranks open and close an array together. In between, a rank asks the servers that have its
//! part, and nobody else: see [`penstock_engine::files`]. The servers need to be there when a
//! request comes: on nodes of their own, or in a background thread of their rank.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{
    Access, Decision, Director, Error, FileId, FilePart, Kind, Opening, Operation, Order,
    RankBoxes, Request, Rest, Result, Strategy, Tally, Traffic,
};
use penstock_layout::{DiskSchema, Region, Share};
use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, LocalPart};
use super::ask::{Ask, PathBytes};
use super::driver::AloneStart;
use super::list::RankList;
use super::session::{CallArguments, OpenState, Session};
use super::settings::{Report, Settings};
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

/// An open array, as rank 0 describes it to all ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Description {
    name: String,
    shape: Vec<u64>,
    element: ElementType,
    target: Vec<u8>,
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
    pub fn element(&self) -> ElementType {
        self.description.element
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

    /// Checks a rank's part of the array, and its place in memory.
    fn check(&self, operation: Operation, part: &ArrayPart, local: &LocalPart) -> Result<()> {
        let wrong = |cause: String| Err(self.error(operation, Kind::Schema, cause));
        let Description { shape, element, .. } = &self.description;
        self.check_access(operation)?;
        if let ArrayPart::Box(part) = part
            && !(part.dims() == shape.len() && Region::whole(shape).contains(part))
        {
            return wrong(format!(
                "the part {part:?} is not within the shape {shape:?}"
            ));
        }
        if local.element != *element {
            let (given, there) = (local.element, element);
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
        let right = Arc::new(Mutex::new(None));
        let (settings, kept) = (self.settings().clone(), right.clone());
        let (at, of) = (path.to_path_buf(), name.map(str::to_string));
        let (description, disk) = self.decide(ask, move || {
            let stored = groups::open(&at, of.as_deref())?;
            if is_writable {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored.updatable(&at)?);
            }
            let disk = stored.disk_schema(settings.options.block_bytes)?;
            let (target, servers) = settings.opened(stored.target())?;
            let schema = stored.schema();
            let description = Description {
                name: schema.name.clone(),
                shape: schema.shape.clone(),
                element: schema.element,
                target,
                servers,
            };
            Ok::<(Description, DiskSchema), Error>((description, disk))
        })?;
        let mut array = OpenArray {
            file: self.next_file(),
            path: path.to_path_buf(),
            disk: Arc::new(disk),
            description,
            is_writable,
            is_open: true,
        };
        let opening = Opening {
            target: array.description.target.clone(),
            disk: DiskSchema::clone(&array.disk),
            access: match is_writable {
                true => Access::Update,
                false => Access::Read,
            },
            sync: self.settings().options.sync,
            server: 0,
            servers: array.description.servers,
        };
        let file = array.file;
        self.driver().keep_serving(1);
        let opened = self.order(Order::Open { file, opening });
        if let Err(error) = opened {
            self.driver().keep_serving(-1);
            array.is_open = false;
            return Err(error);
        }
        let state = OpenState {
            is_writable,
            right: right.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        self.open_arrays().borrow_mut().insert(file, state);
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
            part: match part {
                ArrayPart::Box(part) => FilePart::Share(Share::of_box(part)),
                ArrayPart::List(list) => FilePart::List(list.holding().clone()),
            },
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
        let director = TogetherDirector {
            file: open.file,
            disk: open.disk.clone(),
            description: open.description.clone(),
            operation,
            array: array.clone(),
            settings: self.settings().clone(),
        };
        let asked = CallArguments {
            ask: Ask::Together(open.file.number, operation, array.ask().memory),
            bytes: array.asked_bytes(),
            given: vec![(array, locals)],
            in_time: false,
            director: Box::new(director),
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
        self.order(Order::Flush(array.file))
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
        let state = self.open_arrays().borrow_mut().remove(&file);
        let Some(_until_closed) = state else {
            return Ok(()); // the session has closed it
        };
        let closed = self.order(Order::Close(file));
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
        let changed = open.iter().filter(|(_, state)| state.is_writable);
        let files: Vec<FileId> = changed.map(|(&file, _)| file).collect();
        drop(open);
        files
            .into_iter()
            .try_for_each(|file| self.order(Order::Flush(file)))
    }

    /// Has all servers carry out an order.
    fn order(&self, order: Order) -> Result<()> {
        let ask = Ask::Order(match &order {
            Order::Open { file, .. } | Order::Flush(file) | Order::Close(file) => file.number,
        });
        self.call(ask, None, Box::new(OrderDirector(order)))
            .map(drop)
    }
}

/// Directs a call of all ranks on an open array.
struct TogetherDirector {
    file: FileId,
    disk: Arc<DiskSchema>,
    description: Description,
    operation: Operation,
    array: ArrayCall,
    settings: Settings,
}

impl Director for TogetherDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let Description {
            target, servers, ..
        } = &self.description;
        let boxes = boxes_of(&boxes, 0);
        let holders = self
            .array
            .holders(self.operation, boxes, self.settings.clients)?;
        Ok(Decision::Serve(vec![Request {
            operation: self.operation,
            strategy: Strategy::default(),
            holders,
            disk: DiskSchema::clone(&self.disk),
            target: target.clone(),
            file: Some(self.file),
            servers: *servers,
            sync: self.settings.options.sync,
            split: None,
            rest: Rest::Keep,
        }]))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        outcome.map(|done| done.moved)
    }
}

/// Directs an order about an open array.
struct OrderDirector(Order);

impl Director for OrderDirector {
    fn prepare(&mut self, _boxes: RankBoxes) -> Result<Decision> {
        Ok(Decision::Order(self.0.clone()))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        outcome.map(|done| done.moved)
    }
}
