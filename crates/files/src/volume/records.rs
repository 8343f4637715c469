//! The records of a server: what it must know after a crash, as keys and values.
//!
//! A server keeps all of its records in memory, and its record store on disk is read once, when the
//! server starts. Changes go to the store in groups: while one group is being committed, the
//! changes of all others who want to commit wait for the next.
//!
//! ```text
//! commit 1   |== group 1 ==|
//! commit 2       waits     |== group 2: changes of commits 2 and 3 ==|
//! commit 3          waits  |=========================================|
//! ```

use std::cell::{Cell, RefCell};
use std::future::Future;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::signal::Signal;
use penstock_engine::trace::Instrument;
use penstock_engine::{Error, Result, span};
use serde::{Deserialize, Serialize};

use crate::object::ObjectId;
use crate::transaction::TransactionId;

/// A change of a record: its key, and its new value, or nothing if it goes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A record store keeps the records of a server on stable storage.
pub trait RecordStore {
    /// All records, each a key and a value, in any order.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn load(&self) -> impl Future<Output = Result<Vec<(Vec<u8>, Vec<u8>)>>>;

    /// Makes changes, all or none. They are on stable storage when the future ends.
    ///
    /// # Errors
    /// When they are not, or may not be.
    fn commit(&self, changes: Vec<Change>) -> impl Future<Output = Result<()>>;
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Key {
    /// The numbers of objects and transactions that this server will not use again.
    Numbers,
    /// The attributes of an object, by the hash of its path and its number among the objects of
    /// that hash (the uniquifier of section 4.1).
    Object(u64, u16),
    /// An entry of an Xref: its name.
    Entry(ObjectId, String),
    /// The part of a file on this server.
    File(ObjectId),
    /// A cell of a file.
    Cell(ObjectId, u64),
    /// A leaf of a cell's block list.
    Leaf(ObjectId, u64, u64),
    /// What this server does if a transaction is carried out.
    Prepared(TransactionId),
    /// A transaction that is to be carried out, which this server has directed: the servers that
    /// have not said that they have done so.
    Decided(TransactionId),
    /// The space that a user may take.
    Quota(u32),
    /// The rings of the volume, if there is more than one.
    Rings,
    /// The servers that keep slots, if one has moved.
    Keepers,
    /// The placement with which the last cells of a file have gone from here, until no file is in
    /// an older ring.
    MovedAway(ObjectId),
}

/// Makes the change that puts a value into a record.
///
/// # Errors
/// When the value cannot be encoded.
pub(crate) fn put(key: &Key, value: &impl Serialize) -> Result<Change> {
    Ok((encode(key)?, Some(encode(value)?)))
}

/// Makes the change that removes a record.
///
/// # Errors
/// When the key cannot be encoded.
pub(crate) fn remove(key: &Key) -> Result<Change> {
    Ok((encode(key)?, None))
}

/// Reads the key of a record.
///
/// # Errors
/// When it is none.
pub(crate) fn key(bytes: &[u8]) -> Result<Key> {
    decode(bytes)
}

/// The way of a server's changes to its record store.
pub(crate) struct Committer<R> {
    store: R,
    /// The changes that wait for the next group.
    waiting: RefCell<Vec<Change>>,
    /// The number of groups that have begun, and of those that have ended.
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// The first error. Nothing is committed after it.
    failed: RefCell<Option<Error>>,
    changed: Signal,
}

impl<R: RecordStore> Committer<R> {
    pub(crate) fn new(store: R) -> Self {
        Self {
            store,
            waiting: RefCell::default(),
            begun: Cell::new(0),
            ended: Cell::new(0),
            failed: RefCell::default(),
            changed: Signal::default(),
        }
    }

    /// All records.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn load(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.store.load().await
    }

    /// Adds changes to the next group, and gives the number of the group: without changes, that of
    /// the last group so far.
    pub(crate) fn add(&self, changes: impl IntoIterator<Item = Change>) -> u64 {
        let mut waiting = self.waiting.borrow_mut();
        waiting.extend(changes);
        self.changed.tell();
        self.begun.get() + u64::from(!waiting.is_empty())
    }

    /// Waits until a group has been committed.
    ///
    /// # Errors
    /// The store's first error.
    pub(crate) async fn ended(&self, group: u64) -> Result<()> {
        let has_ended = || {
            let failed = self.failed.borrow().clone();
            match failed {
                Some(error) => Some(Err(error)),
                None => (self.ended.get() >= group).then_some(Ok(())),
            }
        };
        self.changed.until(has_ended).await
    }

    /// Makes changes with the next group, and waits for it.
    ///
    /// # Errors
    /// As [`Committer::ended`].
    pub(crate) async fn commit(&self, changes: impl IntoIterator<Item = Change>) -> Result<()> {
        let group = self.add(changes);
        let span = span!("disk", kind = "commit");
        self.ended(group).instrument(span).await
    }

    /// Commits group after group, as long as it is polled.
    pub(crate) async fn run(&self) {
        loop {
            let has_work = || {
                let is_well = self.failed.borrow().is_none();
                (is_well && !self.waiting.borrow().is_empty()).then_some(())
            };
            self.changed.until(has_work).await;
            self.begun.set(self.begun.get() + 1);
            let committed = self.store.commit(self.waiting.take()).await;
            match committed {
                Ok(()) => self.ended.set(self.begun.get()),
                Err(error) => *self.failed.borrow_mut() = Some(error),
            }
            self.changed.tell();
        }
    }
}
