//! Open files and views: reading, writing and pointers.

use std::any::Any;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{Error, Kind, Machine, MemoryId, Operation, Result};
use penstock_layout::{SubfileOrder, View};
use penstock_machines::node::runner::Job;
use penstock_machines::{ClientMemory, Node};

use super::core::Core;
use crate::client::{Attachment, Client, ClientState, OpenSubfile, Selection};
use crate::explain::AccessPlan;
use crate::messages::Moved;
use crate::service::pointers::{PointerId, PointerMove, Seek};
use crate::volume::cells::Version;

/// Memory of the program that data are moved from or to, kept as long as they are.
pub struct Memory {
    base: *mut u8,
    bytes: u64,
    _keeps: Option<Box<dyn Any + Send>>,
}

// SAFETY: the memory is not tied to a thread, and the caller of `new` promised that nobody else
// uses it meanwhile.
unsafe impl Send for Memory {}

impl Memory {
    /// Makes memory of `bytes` bytes from `base` on, which `keeps` keeps alive.
    ///
    /// # Safety
    /// The memory must be readable, and writable for a read, until this is dropped, and nobody else
    /// may write it, nor use it during a read.
    pub unsafe fn new(base: *mut u8, bytes: u64, keeps: Option<Box<dyn Any + Send>>) -> Self {
        Self {
            base,
            bytes,
            _keeps: keeps,
        }
    }
}

impl Memory {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// An attached file.
#[derive(Clone)]
pub struct OpenFile {
    core: Arc<Core>,
    file: Attachment,
}

/// An open subfile, with a pointer of its own or one that others share. Clones have one pointer.
#[derive(Clone)]
pub struct OpenView {
    core: Arc<Core>,
    open: OpenSubfile,
    pointer: Arc<Mutex<Pointer>>,
}

enum Pointer {
    Own(u64),
    Shared(PointerId),
}

/// A read or write under way.
pub struct Moving {
    core: Arc<Core>,
    job: Job<Result<Moved>>,
}

/// Numbers exposed memories: no two at one time have one number.
static MEMORIES: AtomicU64 = AtomicU64::new(0);

impl OpenFile {
    pub(super) fn new(core: Arc<Core>, file: Attachment) -> Self {
        Self { core, file }
    }

    /// What is known of the file since it was attached.
    pub fn attachment(&self) -> &Attachment {
        &self.file
    }

    /// Opens a subfile, without any message.
    ///
    /// # Errors
    /// As [`OpenSubfile::new`].
    pub fn open(
        &self,
        view: View,
        number: u64,
        order: SubfileOrder,
        version: Version,
        shared: Option<PointerId>,
    ) -> Result<OpenView> {
        let open = OpenSubfile::new(&self.file, view, number, order, version)?;
        let pointer = shared.map_or(Pointer::Own(0), Pointer::Shared);
        Ok(OpenView {
            core: self.core.clone(),
            open,
            pointer: Arc::new(Mutex::new(pointer)),
        })
    }

    /// Moves parts of the file together with all other clients of the program, each a part of its
    /// own subfile. `part` may be the reason why this client has none.
    ///
    /// # Errors
    /// As [`Client::access_all`].
    ///
    /// # Collective
    /// Over all clients of the program.
    pub fn access_all(
        &self,
        operation: Operation,
        part: Result<(OpenView, Selection, Memory)>,
    ) -> Result<Moved> {
        let file = self.file.clone();
        self.core.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            match part {
                Ok((view, wanted, memory)) => {
                    let (id, exposed) = expose(&node, &state, &memory)?;
                    let moved = client.access_all(Ok(&view.open), &file, operation, wanted, id);
                    let moved = moved.await;
                    drop(exposed);
                    moved
                }
                Err(error) => {
                    let none = MemoryId::NONE;
                    client
                        .access_all(Err(error), &file, operation, (0, 0), none)
                        .await
                }
            }
        })
    }

    /// Puts the file's data on stable storage.
    ///
    /// # Errors
    /// As [`Client::sync`].
    pub fn sync(&self) -> Result<()> {
        let file = self.file.clone();
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).sync(Some(&file)).await
        })
    }

    /// Detaches the file.
    ///
    /// # Errors
    /// As [`Client::detach`].
    pub fn detach(self) -> Result<()> {
        let file = self.file.clone();
        self.core
            .run(move |node, state| async move { Client::new(&*node, &state).detach(&file).await })
    }
}

impl OpenView {
    /// Says what an access would do. Nothing is moved.
    ///
    /// # Errors
    /// As [`Client::explain`].
    pub fn explain(&self, operation: Operation, (offset, bytes): (u64, u64)) -> Result<AccessPlan> {
        let open = self.open.clone();
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).explain(&open, operation, (offset, bytes))
        })
    }

    /// Moves the pointer for an access of `bytes` bytes, and gives where the access begins.
    ///
    /// # Errors
    /// As [`PointerMove::apply`] and [`Client::move_pointer`].
    pub fn advance(&self, seek: Seek, bytes: u64) -> Result<u64> {
        let how = PointerMove { seek, bytes };
        let shared = {
            let mut pointer = self.pointer.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *pointer {
                Pointer::Own(offset) => return how.apply(offset),
                Pointer::Shared(pointer) => *pointer,
            }
        };
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).move_pointer(shared, how).await
        })
    }

    /// Shares the pointer: gives the token that other processes open the subfile with.
    ///
    /// # Errors
    /// As [`Client::share_pointer`].
    pub fn share(&self) -> Result<PointerId> {
        let mut pointer = self.pointer.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = match *pointer {
            Pointer::Shared(shared) => return Ok(shared),
            Pointer::Own(offset) => offset,
        };
        let shared = self.core.run(move |node, state| async move {
            Client::new(&*node, &state).share_pointer(offset).await
        })?;
        *pointer = Pointer::Shared(shared);
        Ok(shared)
    }

    /// Moves bytes between the subfile, from `offset` on, and memory.
    ///
    /// # Errors
    /// As [`Client::access`].
    pub fn access(&self, operation: Operation, offset: u64, memory: Memory) -> Result<Moved> {
        let wanted = (offset, memory.bytes).into();
        self.select(operation, wanted, memory)
    }

    /// Moves any bytes of the subfile from or to any bytes of memory.
    ///
    /// # Errors
    /// As [`Client::access`].
    pub fn select(&self, operation: Operation, wanted: Selection, memory: Memory) -> Result<Moved> {
        let open = self.open.clone();
        self.core.run(move |node, state| async move {
            access(&node, &state, &open, operation, (wanted, memory), None).await
        })
    }

    /// Begins to move bytes. In cautious mode, accesses to these bytes that conflict with this one,
    /// and changes of the whole file, come after it if they begin after this returns.
    ///
    /// # Errors
    /// When this thread is interrupted.
    pub fn begin(&self, operation: Operation, offset: u64, memory: Memory) -> Result<Moving> {
        let (open, state) = (self.open.clone(), self.core.state.clone());
        let placed = Arc::new(AtomicBool::new(!self.open.is_cautious()));
        let is_placed = placed.clone();
        let job = self.core.runner.begin(|node| async move {
            let tell = || placed.store(true, Ordering::Release);
            access(
                &node,
                &state,
                &open,
                operation,
                ((offset, memory.bytes).into(), memory),
                Some(&tell),
            )
            .await
        });
        let moving = Moving {
            core: self.core.clone(),
            job,
        };
        let runner = &self.core.runner;
        let has_place = || is_placed.load(Ordering::Acquire) || runner.is_done(&moving.job);
        runner.wait(|| has_place() || self.core.failure.get().is_some())?;
        Ok(moving)
    }

    /// Lets servers bring a part of the subfile into memory.
    ///
    /// # Errors
    /// As [`Client::prefetch`].
    pub fn prefetch(&self, offset: u64, bytes: u64) -> Result<()> {
        let open = self.open.clone();
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state)
                .prefetch(&open, offset, bytes)
                .await
        })
    }

    /// Lets servers write a part of the subfile to their disks, and drop it before other blocks.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn flush(&self, offset: u64, bytes: u64) -> Result<()> {
        let open = self.open.clone();
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state)
                .flush(&open, offset, bytes)
                .await
        })
    }

    /// Puts the file's data on stable storage.
    ///
    /// # Errors
    /// As [`Client::sync`].
    pub fn sync(&self) -> Result<()> {
        OpenFile::new(self.core.clone(), self.open.file().clone()).sync()
    }
}

impl Moving {
    /// Whether the read or write has ended. Never waits.
    pub fn has_ended(&self) -> bool {
        self.core.runner.has_ended(&self.job)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// As [`Client::access`]; [`Kind::Schema`] when the end has been taken already.
    pub fn end(&self) -> Result<Moved> {
        self.core.end(&self.job)
    }
}

impl Drop for Moving {
    /// Gives up what nobody waits for any more: its memory is the program's again.
    fn drop(&mut self) {
        self.core.runner.give_up(&self.job);
    }
}

/// Exposes memory of the program under a name that no other has at this time.
fn expose(
    node: &Rc<Node>,
    state: &ClientState,
    memory: &Memory,
) -> Result<(MemoryId, <Node as Machine>::Exposure)> {
    if memory.bytes > i64::MAX.unsigned_abs() {
        let cause = format!("{} bytes", memory.bytes);
        return Err(Error::new(Kind::Schema, "using memory", cause));
    }
    let number = MEMORIES.fetch_add(1, Ordering::Relaxed);
    let id = MemoryId::new([state.shape.volume, 1 << 63 | number]);
    let memory = ClientMemory {
        base: memory.base,
        extents: vec![memory.bytes],
        strides: vec![1],
        width: 1,
    };
    Ok((id, node.expose(id, memory)))
}

async fn access(
    node: &Rc<Node>,
    state: &ClientState,
    open: &OpenSubfile,
    operation: Operation,
    (wanted, memory): (Selection, Memory),
    placed: Option<&dyn Fn()>,
) -> Result<Moved> {
    let (id, exposed) = expose(node, state, &memory)?;
    let client = Client::new(&**node, state);
    let moved = client.access(open, operation, wanted, id, placed).await;
    drop(exposed);
    moved
}
