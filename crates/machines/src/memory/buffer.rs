//! Staging and send buffers of a node, and its mappings of other nodes' buffers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::{Error, Kind, NodeId, Result};
use serde::{Deserialize, Serialize};

use super::segment::{HUGE_PAGE_BYTES, Mapping, SegmentName};

/// From this size on, buffers are in huge pages, several in one page if they fit, such as a
/// server's two buffers of up to 1 MiB.
const HUGE_BYTES_MIN: usize = HUGE_PAGE_BYTES / 4;
/// Direct I/O wants each buffer to begin at a multiple of the alignment.
const ALIGNMENT: usize = 4096;

/// A buffer name tells other processes which staging buffer is meant, and where its memory is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct BufferName {
    /// The buffer's number among the buffers of its node.
    pub slot: usize,
    /// The number of the node's mapping in which the buffer lies. A change of it makes older names
    /// of the slot stale.
    pub mapping: u64,
    /// The segment of the mapping.
    pub segment: SegmentName,
    /// The byte of the segment at which the buffer begins.
    pub offset: usize,
    pub bytes: usize,
}

/// Staging is the memory of one buffer, a part of a mapping.
pub struct Staging {
    mapping: Arc<Mapping>,
    /// The number of the mapping among all mappings that its node has had.
    number: u64,
    offset: usize,
    bytes: usize,
}

/// A pool keeps the buffers of one node. Buffers that are given back are kept for the next call; a
/// buffer that is too small is replaced.
///
/// A mapping has as many buffers of one size as the pool has already, up to a huge page of them:
/// small buffers, such as the blocks of a cache, take few mappings and descriptors.
#[derive(Default)]
pub struct BufferPool {
    is_shared: bool,
    /// The memory of each slot, if it has any.
    slots: RefCell<Vec<Option<Arc<Staging>>>>,
    /// The slots that were given back; the last of them is taken first.
    free: RefCell<Vec<usize>>,
    /// The number of mappings made so far.
    mappings: Cell<u64>,
}

impl BufferPool {
    /// Makes an empty pool; `is_shared` if other processes must be able to map the buffers.
    pub fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            ..Self::default()
        }
    }

    /// Takes a buffer of at least `bytes`, given back or new.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn take(self: &Rc<Self>, bytes: usize) -> Result<Buffer> {
        let (mut slots, mut free) = (self.slots.borrow_mut(), self.free.borrow_mut());
        let bytes_of = |staging: &Option<Arc<Staging>>| staging.as_ref().map_or(0, |one| one.bytes);
        // A disk or another node may be at the memory still, for a call that has been given up.
        let is_idle = |staging: &Option<Arc<Staging>>| {
            let staging = staging.as_ref();
            staging.is_none_or(|staging| Arc::strong_count(staging) == 1)
        };
        let find = |bytes| {
            let fits = |staging| is_idle(staging) && bytes_of(staging) >= bytes;
            free.iter().rposition(|&slot| fits(&slots[slot]))
        };
        let fitting = find(bytes);
        let slot = match fitting.or_else(|| find(0)) {
            Some(place) => free.remove(place),
            None => {
                slots.push(None);
                slots.len() - 1
            }
        };
        if slots[slot].is_none() || fitting.is_none() {
            slots[slot] = None; // given back before there is new memory
            let made = self.make(bytes, slots.len());
            let mut made = made.inspect_err(|_| free.push(slot))?.into_iter();
            slots[slot] = made.next();
            free.extend((slots.len()..slots.len() + made.len()).rev());
            slots.extend(made.map(Some));
        }
        let Some(staging) = slots[slot].clone() else {
            unreachable!("the slot has just been given memory");
        };
        Ok(Buffer {
            staging,
            slot,
            pool: self.clone(),
        })
    }

    /// Makes memory for a buffer, and for others behind it.
    fn make(&self, bytes: usize, slots: usize) -> Result<Vec<Arc<Staging>>> {
        let each = bytes.next_multiple_of(ALIGNMENT);
        // The whole huge pages of a larger buffer are huge, and the remainder is not.
        let size = match bytes {
            HUGE_BYTES_MIN..HUGE_PAGE_BYTES => HUGE_PAGE_BYTES,
            1..HUGE_BYTES_MIN => each * slots.clamp(1, HUGE_PAGE_BYTES / each),
            _ => each,
        };
        let mapping = Arc::new(match self.is_shared {
            true => Mapping::shared(size)?,
            false => Mapping::private(size)?,
        });
        self.mappings.set(self.mappings.get() + 1);
        let staging = |nth| {
            Arc::new(Staging {
                mapping: mapping.clone(),
                number: self.mappings.get(),
                offset: nth * each,
                bytes: each,
            })
        };
        let count = size.checked_div(each).unwrap_or(1);
        Ok((0..count).map(staging).collect())
    }
}

/// A buffer is a staging buffer in use; dropping it gives it back to its pool.
pub struct Buffer {
    staging: Arc<Staging>,
    slot: usize,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// The buffer's memory, which the worker of a device may hold on to.
    pub fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    pub fn base(&self) -> *mut u8 {
        self.staging.base()
    }

    /// The name by which a client of the same host finds the buffer.
    ///
    /// # Errors
    /// When the buffer is private; buffers of a machine with other processes never are.
    pub fn name(&self) -> Result<BufferName> {
        let private = || Error::new(Kind::Io, "naming a staging buffer", "it is not shared");
        let Staging {
            mapping,
            number,
            offset,
            bytes,
        } = &*self.staging;
        Ok(BufferName {
            slot: self.slot,
            mapping: *number,
            segment: mapping.name().ok_or_else(private)?,
            offset: *offset,
            bytes: *bytes,
        })
    }

    /// A part of the buffer's bytes.
    ///
    /// # Panics
    /// When the part reaches beyond the buffer.
    pub fn bytes(&self, part: Range<usize>) -> &[u8] {
        let size = self.staging.bytes;
        assert!(
            part.start <= part.end && part.end <= size,
            "reading beyond a staging buffer"
        );
        // SAFETY: in bounds, as just checked; the engine reads a buffer only when nothing fills it.
        unsafe { std::slice::from_raw_parts(self.base().add(part.start), part.len()) }
    }

    /// Copies `data` into the buffer, from byte `offset` on.
    ///
    /// # Panics
    /// When the data do not fit.
    pub fn fill(&self, offset: usize, data: &[u8]) {
        let size = self.staging.bytes;
        assert!(
            offset
                .checked_add(data.len())
                .is_some_and(|end| end <= size),
            "writing beyond a staging buffer"
        );
        // SAFETY: in bounds, as just checked; the engine keeps windows of one buffer disjoint.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.base().add(offset), data.len())
        };
    }

    /// Fills the first `bytes` bytes with copies of an element, or with zeros if it is empty.
    pub fn clear(&self, bytes: usize, element: &[u8]) {
        assert!(
            bytes <= self.staging.bytes,
            "clearing beyond a staging buffer"
        );
        // SAFETY: in bounds, as just checked; nobody else uses the buffer before it is filled.
        let data = unsafe { std::slice::from_raw_parts_mut(self.base(), bytes) };
        fill(data, element);
    }
}

/// Fills `data` with copies of an element, or with zeros if it is empty.
pub fn fill(data: &mut [u8], element: &[u8]) {
    match element {
        [] => data.fill(0),
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => data.fill(*first),
        _ => data
            .chunks_exact_mut(element.len())
            .for_each(|one| one.copy_from_slice(element)),
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.free.borrow_mut().push(self.slot);
    }
}

impl Staging {
    pub fn base(&self) -> *mut u8 {
        self.mapping.base().wrapping_add(self.offset)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Mappings of other nodes' buffers in this process, by node and slot.
#[derive(Default)]
pub struct Mappings(HashMap<(NodeId, usize), Arc<Staging>>);

impl Mappings {
    /// Maps the memory of `buffer` of `node`, unless it is mapped already.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn memory(&mut self, node: NodeId, buffer: &BufferName) -> Result<Arc<Staging>> {
        let key = (node, buffer.slot);
        let is_there = |staging: &&Arc<Staging>| staging.number == buffer.mapping;
        if let Some(known) = self.0.get(&key).filter(is_there) {
            return Ok(known.clone());
        }
        // Another known buffer may lie in the mapping.
        let of_node = self.0.iter().filter(|((other, _), _)| *other == node);
        let mapping = match of_node.map(|(_, staging)| staging).find(is_there) {
            Some(neighbour) => neighbour.mapping.clone(),
            None => Arc::new(Mapping::open(&buffer.segment)?),
        };
        let end = buffer.offset.checked_add(buffer.bytes);
        if end.is_none_or(|end| end > mapping.bytes()) {
            let cause = "it ends beyond its segment";
            return Err(Error::new(Kind::Peer, "mapping a server's buffer", cause));
        }
        let staging = Arc::new(Staging {
            mapping,
            number: buffer.mapping,
            offset: buffer.offset,
            bytes: buffer.bytes,
        });
        self.0.insert(key, staging.clone());
        Ok(staging)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(is_shared: bool) -> Rc<BufferPool> {
        Rc::new(BufferPool::new(is_shared))
    }

    #[test]
    fn buffers_do_not_overlap() {
        for is_shared in [false, true] {
            let pool = pool(is_shared);
            let mib = 1 << 20;
            let sizes = [
                0,
                1,
                4096,
                mib,
                mib,
                mib,
                700_001,
                700_001,
                700_001,
                mib + 1,
                5 * mib + 1,
            ];
            let buffers = sizes.map(|bytes| (bytes, pool.take(bytes).unwrap()));
            for (nth, (bytes, buffer)) in buffers.iter().enumerate() {
                assert!(buffer.staging().bytes() >= *bytes);
                assert!(buffer.base().addr().is_multiple_of(ALIGNMENT));
                buffer.fill(0, &vec![nth as u8 + 1; buffer.staging().bytes()]);
            }
            for (nth, (_, buffer)) in buffers.iter().enumerate() {
                let bytes = buffer.bytes(0..buffer.staging().bytes());
                assert!(bytes.iter().all(|&byte| byte == nth as u8 + 1));
            }
        }
    }

    #[test]
    fn two_are_in_a_huge_page() {
        for (bytes, offset) in [
            (1 << 20, 1 << 20),
            (1_000_000, 1_003_520),
            (600_000, 602_112),
        ] {
            let pool = pool(true);
            let (one, other) = (pool.take(bytes).unwrap(), pool.take(bytes).unwrap());
            let (first, second) = (one.name().unwrap(), other.name().unwrap());
            assert_eq!((first.offset, second.offset), (0, offset));
            assert_eq!(first.segment.descriptor, second.segment.descriptor);
            assert!(one.base().addr().is_multiple_of(HUGE_PAGE_BYTES));
            assert_ne!(first.slot, second.slot);
        }
    }

    #[test]
    fn small_buffers_share_mappings() {
        let pool = pool(true);
        let mut taken: Vec<Buffer> = (0..1000).map(|_| pool.take(1 << 16).unwrap()).collect();
        assert!(pool.mappings.get() < 50, "{}", pool.mappings.get());
        let bytes: usize = pool.slots.borrow().len() << 16;
        assert!(bytes < 70 << 20, "{bytes} bytes for 1000 buffers of 64 KiB");
        taken.truncate(1);
        let (mappings, slots) = (pool.mappings.get(), pool.slots.borrow().len());
        taken.extend((0..900).map(|nth| pool.take(nth * 70).unwrap()));
        let found = (pool.mappings.get(), pool.slots.borrow().len());
        assert_eq!(found, (mappings, slots), "those given back are used again");
    }

    /// Another process that knows an old buffer by its slot must see that the buffer is old.
    #[test]
    fn a_larger_buffer_is_of_another_mapping() {
        let pool = pool(true);
        let old = pool.take(100).unwrap().name().unwrap();
        let same = pool.take(99).unwrap().name().unwrap();
        assert_eq!((same.slot, same.mapping), (old.slot, old.mapping));
        let new = pool.take(1 << 20).unwrap().name().unwrap();
        assert_eq!(new.slot, old.slot);
        assert_ne!(new.mapping, old.mapping);
    }

    #[test]
    fn others_see_what_is_in_a_buffer() {
        let pool = pool(true);
        let buffers = [pool.take(1 << 20).unwrap(), pool.take(1 << 20).unwrap()];
        let mut mapped = Mappings::default();
        for (nth, buffer) in buffers.iter().enumerate() {
            buffer.fill(7, &[nth as u8 + 1]);
            let seen = mapped.memory(0, &buffer.name().unwrap()).unwrap();
            assert_eq!(seen.bytes(), buffer.staging().bytes());
            // SAFETY: within the buffer, which nobody else uses.
            assert_eq!(unsafe { *seen.base().add(7) }, nth as u8 + 1);
        }
        let [one, other] = buffers.map(|buffer| mapped.memory(0, &buffer.name().unwrap()));
        assert!(Arc::ptr_eq(&one.unwrap().mapping, &other.unwrap().mapping));
    }
}
