//! The blocks that servers of a node have in memory, and the claims on blocks.
//!
//! Who moves bytes of a block holds a claim on it, and finds the block in the cache or lets it be
//! brought in. A block that must go to make room is written first if it was changed.
//!
//! ```text
//! request   claim block | in the cache? else make room, and load | copy | end the claim
//! ```
//!
//! What a block is, and where its bytes are when they are not in memory, is its [`Home`]'s affair:
//! a block of an array's chunk, or of a cell of a file.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the way into the cache and out of it |
//! | `claims` | who has which block, in which order |
//! | `cache` | the blocks in memory, and the choice of one to drop |

mod cache;
mod claims;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::hash::Hash;
use std::rc::Rc;

use cache::{Cache, Room};
pub use claims::{Claim, Claims, Intent};
use futures::future::join_all;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::{Machine, Work};
use crate::signal::Signal;

/// A home is the place of a block's bytes when they are not in memory.
pub trait Home<M: Machine> {
    /// The bytes of the block.
    fn bytes(&self) -> u64;

    /// Reads the block into a buffer.
    fn load(&self, buffer: &M::Buffer) -> impl Future<Output = Result<()>>;

    /// Writes the block from a buffer. Nobody changes the buffer meanwhile.
    fn store(&self, buffer: &M::Buffer) -> impl Future<Output = Result<()>>;

    /// Takes note that the block could not be written, and is lost. Nobody waited for the write.
    fn fail(&self, error: Error);
}

/// The numbers of a cache since it was made, and of what it has now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounts {
    /// The times that a block was in memory when it was wanted.
    pub hits: u64,
    /// The times that a block had to be brought in. One that is about to be put in whole does not
    /// count.
    pub misses: u64,
    /// The blocks that were read before they were wanted.
    pub fetched: u64,
    /// The blocks that have gone to make room for others.
    pub evictions: u64,
    /// The bytes in memory.
    pub bytes: u64,
    /// The bytes in memory of blocks that were changed since they were written.
    pub changed_bytes: u64,
    /// The bytes that may be in memory.
    pub bytes_max: u64,
}

/// A find says where a block was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Find {
    InMemory,
    AtHome,
    Nowhere,
}

/// A block in memory.
struct Cached<M: Machine, H> {
    home: Rc<H>,
    buffer: Rc<M::Buffer>,
}

/// The blocks in memory: `K` names one, and `H` is its home.
pub struct Blocks<'m, M: Machine, K, H> {
    machine: &'m M,
    claims: Claims<K>,
    cache: RefCell<Cache<K, Cached<M, H>>>,
    /// The blocks that are being written.
    written: RefCell<FxHashSet<K>>,
    /// The signal for futures that wait for room, or for the end of a write.
    room: Signal,
    hits: Cell<u64>,
    misses: Cell<u64>,
    fetched: Cell<u64>,
}

impl<'m, M: Machine, K: Clone + Ord + Hash, H: Home<M>> Blocks<'m, M, K, H> {
    /// Makes an empty cache of at most `cache_bytes` bytes.
    pub fn new(machine: &'m M, cache_bytes: u64) -> Self {
        Self {
            machine,
            claims: Claims::default(),
            cache: RefCell::new(Cache::new(cache_bytes)),
            written: RefCell::default(),
            room: Signal::default(),
            hits: Cell::default(),
            misses: Cell::default(),
            fetched: Cell::default(),
        }
    }

    /// The numbers of the cache.
    pub fn counts(&self) -> CacheCounts {
        let cache = self.cache.borrow();
        CacheCounts {
            hits: self.hits.get(),
            misses: self.misses.get(),
            fetched: self.fetched.get(),
            evictions: cache.evictions(),
            bytes: cache.bytes(),
            changed_bytes: cache.changed_bytes(),
            bytes_max: cache.bytes_max(),
        }
    }

    /// Whether nobody claims a block, and no block is in memory.
    pub fn is_idle(&self) -> bool {
        self.claims.is_empty() && self.cache.borrow().bytes() == 0
    }

    /// Waits for a claim on a block.
    pub async fn claim(&self, name: &K, intent: Intent) -> Claim<'_, K> {
        self.claims.claim(name, intent).await
    }

    /// Ends the use of a block: others may wait for its room.
    pub fn release(&self, claim: Claim<'_, K>) {
        drop(claim);
        self.room.tell();
    }

    /// The buffer of a block that is in memory.
    pub fn cached(&self, name: &K) -> Option<Rc<M::Buffer>> {
        let mut cache = self.cache.borrow_mut();
        cache.get(name).map(|cached| cached.buffer.clone())
    }

    /// Copies a block of `bytes` bytes that is in memory into another buffer. Gives whether it is.
    pub fn copy_cached(&self, name: &K, bytes: u64, buffer: &M::Buffer) -> bool {
        let Some(cached) = self.cached(name) else {
            return false;
        };
        let whole = self.machine.cut(&cached, 0..bytes);
        self.machine.paste(&whole, buffer, 0);
        true
    }

    /// Whether a block is in memory.
    pub fn has(&self, name: &K) -> bool {
        self.cache.borrow().peek(name).is_some()
    }

    /// Claims a block, and finds it in the cache or brings it in. `is_replaced` says that all of
    /// its bytes are about to be put in, so that nobody need load them.
    ///
    /// # Errors
    /// Those of [`Home::load`], and when there is no memory for a buffer.
    pub async fn bring_in(
        &self,
        name: &K,
        home: impl FnOnce() -> Rc<H>,
        intent: Intent,
        is_replaced: bool,
    ) -> Result<(Claim<'_, K>, Rc<M::Buffer>)> {
        let (claim, buffer, find) = self.find(name, home, intent, is_replaced).await?;
        match find {
            Find::InMemory => self.hits.set(self.hits.get() + 1),
            Find::AtHome => self.misses.set(self.misses.get() + 1),
            Find::Nowhere => {}
        }
        Ok((claim, buffer))
    }

    /// Brings a block in that is likely to be wanted soon.
    ///
    /// # Errors
    /// As [`Blocks::bring_in`].
    pub async fn fetch(&self, name: &K, home: impl FnOnce() -> Rc<H>) -> Result<()> {
        let (claim, _, find) = self.find(name, home, Intent::Read, false).await?;
        self.release(claim);
        if find == Find::AtHome {
            self.fetched.set(self.fetched.get() + 1);
        }
        Ok(())
    }

    async fn find(
        &self,
        name: &K,
        home: impl FnOnce() -> Rc<H>,
        intent: Intent,
        is_replaced: bool,
    ) -> Result<(Claim<'_, K>, Rc<M::Buffer>, Find)> {
        self.machine.work(Work::Lookup).await;
        let claim = self.claim(name, intent).await;
        if let Some(buffer) = self.cached(name) {
            return Ok((claim, buffer, Find::InMemory));
        }
        let claim = match intent {
            Intent::Change => claim,
            Intent::Read => {
                drop(claim);
                self.claim(name, Intent::Change).await
            }
        };
        if let Some(buffer) = self.cached(name) {
            return Ok((claim, buffer, Find::InMemory)); // another request has brought it in
        }
        let home = home();
        let room = self.take_room(home.bytes()).await;
        let buffer = Rc::new(self.machine.buffer(home.bytes())?);
        if !is_replaced {
            self.machine.work(Work::Wake).await;
            home.load(&buffer).await?;
        }
        let cached = Cached {
            home,
            buffer: buffer.clone(),
        };
        room.fill(name.clone(), cached);
        let find = match is_replaced {
            true => Find::Nowhere,
            false => Find::AtHome,
        };
        Ok((claim, buffer, find))
    }

    /// Takes room in the cache, for which other blocks go.
    async fn take_room(&self, bytes: u64) -> TakenRoom<'_, 'm, M, K, H> {
        loop {
            let is_claimed = |name: &K| self.claims.is_claimed(name);
            let room = self.cache.borrow_mut().room(bytes, is_claimed);
            match room {
                Room::Taken => {
                    return TakenRoom {
                        blocks: self,
                        bytes,
                    };
                }
                Room::Changed(name) => self.write_back(&name).await,
                Room::None => {
                    let mut has_looked = false;
                    let told = || std::mem::replace(&mut has_looked, true).then_some(());
                    self.room.until(told).await;
                }
            }
        }
    }

    /// Notes that clients have read or written `bytes` bytes of a block.
    pub fn count(&self, name: &K, bytes: u64) {
        self.cache.borrow_mut().count(name, bytes);
    }

    /// Notes that `bytes` bytes of a claimed block have been put in, and gives all since the block
    /// was written. When those are all of its bytes it is to be written (WriteFull: Kotz and Ellis
    /// 1993).
    pub fn change(&self, name: &K, bytes: u64) -> u64 {
        self.cache.borrow_mut().change(name, bytes)
    }

    /// Lets a block be replaced as if clients had had all of it.
    pub fn release_first(&self, name: &K) {
        self.cache.borrow_mut().release(name);
    }

    /// Drops a block, whose bytes are not wanted any more or not to be trusted. Claim it first.
    pub fn discard(&self, name: &K) {
        self.cache.borrow_mut().remove(name);
        self.room.tell();
    }

    /// Drops all blocks that satisfy `is_unwanted`, changed or not.
    pub fn discard_all(&self, is_unwanted: impl Fn(&K) -> bool) {
        let mut cache = self.cache.borrow_mut();
        for name in cache.blocks(is_unwanted) {
            cache.remove(&name);
        }
        drop(cache);
        self.room.tell();
    }

    /// Whether a block in memory was changed since it was written.
    pub fn is_changed(&self, name: &K) -> bool {
        self.cache.borrow().is_changed(name)
    }

    /// The bytes that may be in memory.
    pub fn bytes_max(&self) -> u64 {
        self.cache.borrow().bytes_max()
    }

    /// Whether any block was changed since it was written.
    pub fn has_changes(&self) -> bool {
        self.cache.borrow().has_changes()
    }

    /// Changed blocks, those that would be replaced first at the front: those that must be written
    /// if only `bytes_max` bytes of changed blocks are to remain.
    pub fn surplus(&self, bytes_max: u64) -> Vec<K> {
        self.cache.borrow().surplus(bytes_max)
    }

    /// Writes a block if it was changed.
    pub async fn write_back(&self, name: &K) {
        let claim = self.claim(name, Intent::Read).await;
        let begin = || self.written.borrow_mut().insert(name.clone()).then_some(());
        self.room.until(begin).await;
        let _writing = Writing { blocks: self, name };
        let changed = {
            let cache = self.cache.borrow();
            let cached = cache.peek(name).filter(|_| cache.is_changed(name));
            cached.map(|cached| (cached.home.clone(), cached.buffer.clone()))
        };
        if let Some((home, buffer)) = changed {
            self.machine.work(Work::Wake).await;
            let stored = home.store(&buffer).await;
            let mut cache = self.cache.borrow_mut();
            match stored {
                Ok(()) => cache.clean(name),
                Err(error) => {
                    cache.remove(name);
                    home.fail(error);
                }
            }
        }
        self.release(claim);
    }

    /// Writes all changed blocks that satisfy `is_wanted`, in their order.
    pub async fn write_back_all(&self, is_wanted: impl Fn(&K) -> bool) {
        let changed = {
            let cache = self.cache.borrow();
            cache.blocks(|name| is_wanted(name) && cache.is_changed(name))
        };
        join_all(changed.iter().map(|name| self.write_back(name))).await;
    }
}

/// The write of a block, until it is dropped.
struct Writing<'a, 'm, M: Machine, K: Clone + Ord + Hash, H> {
    blocks: &'a Blocks<'m, M, K, H>,
    name: &'a K,
}

impl<M: Machine, K: Clone + Ord + Hash, H> Drop for Writing<'_, '_, M, K, H> {
    fn drop(&mut self) {
        self.blocks.written.borrow_mut().remove(self.name);
        self.blocks.room.tell();
    }
}

/// Room in the cache that has been taken and is given back if it is not filled.
struct TakenRoom<'a, 'm, M: Machine, K: Clone + Ord + Hash, H> {
    blocks: &'a Blocks<'m, M, K, H>,
    bytes: u64,
}

impl<M: Machine, K: Clone + Ord + Hash, H> TakenRoom<'_, '_, M, K, H> {
    /// Puts a block into the room.
    fn fill(mut self, name: K, cached: Cached<M, H>) {
        let bytes = std::mem::take(&mut self.bytes);
        self.blocks.cache.borrow_mut().insert(name, cached, bytes);
    }
}

impl<M: Machine, K: Clone + Ord + Hash, H> Drop for TakenRoom<'_, '_, M, K, H> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.blocks.cache.borrow_mut().give_back(self.bytes);
            self.blocks.room.tell();
        }
    }
}
