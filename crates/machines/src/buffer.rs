//! Staging and send buffers of a node, and its mappings of other nodes' buffers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::{Error, Kind, NodeId, Result};

use crate::segment::Mapping;
use crate::wire::BufferName;

/// The memory of one buffer, and its place among those of its node.
pub struct Staging {
    mapping: Mapping,
    slot: usize,
    generation: u64,
}

/// The buffers of one node. Buffers that are given back are kept for the next call; one that is
/// too small is replaced.
#[derive(Default)]
pub struct BufferPool {
    is_shared: bool,
    slots: RefCell<Vec<SlotState>>,
}

#[derive(Default)]
struct SlotState {
    generation: u64,
    free: Option<Arc<Staging>>,
    bytes: usize,
    is_taken: bool,
}

impl BufferPool {
    /// An empty pool; `is_shared` where other processes must be able to map the buffers.
    pub fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            slots: RefCell::default(),
        }
    }

    /// A buffer of at least `bytes`, from those given back or new.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn take(self: &Rc<Self>, bytes: usize) -> Result<Buffer> {
        let mut slots = self.slots.borrow_mut();
        let free = (0..slots.len()).filter(|&slot| !slots[slot].is_taken);
        let slot = match free.min_by_key(|&slot| slots[slot].bytes < bytes) {
            Some(slot) => slot,
            None => {
                slots.push(SlotState::default());
                slots.len() - 1
            }
        };
        let state = &mut slots[slot];
        let staging = match state.free.take() {
            Some(staging) if staging.mapping.bytes() >= bytes => staging,
            too_small => {
                drop(too_small);
                state.bytes = 0;
                state.generation += 1;
                let mapping = if self.is_shared {
                    Mapping::shared(bytes)
                } else {
                    Mapping::private(bytes)
                }?;
                Arc::new(Staging {
                    mapping,
                    slot,
                    generation: state.generation,
                })
            }
        };
        state.bytes = staging.mapping.bytes();
        state.is_taken = true;
        Ok(Buffer {
            staging: Some(staging),
            pool: self.clone(),
        })
    }
}

/// A staging buffer in use; goes back to its pool when dropped.
pub struct Buffer {
    staging: Option<Arc<Staging>>,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// The buffer's memory, which a disk thread may hold on to.
    pub fn staging(&self) -> &Arc<Staging> {
        self.staging
            .as_ref()
            .expect("only dropping takes the memory out")
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.staging().base()
    }

    /// How a client of the same host finds it.
    ///
    /// # Errors
    /// When the buffer is private, which those of a machine with other processes never are.
    pub fn name(&self) -> Result<BufferName> {
        let staging = self.staging();
        let private = || Error::new(Kind::Io, "naming a staging buffer", "it is not shared");
        let segment = staging.mapping.name().ok_or_else(private)?;
        Ok(BufferName {
            slot: staging.slot,
            generation: staging.generation,
            segment,
        })
    }

    /// A part of its bytes.
    ///
    /// # Panics
    /// When it reaches beyond the buffer.
    pub fn bytes(&self, part: Range<usize>) -> &[u8] {
        let size = self.staging().mapping.bytes();
        assert!(
            part.start <= part.end && part.end <= size,
            "reading beyond a staging buffer"
        );
        // SAFETY: in bounds, as just checked; the engine reads a buffer only when nothing fills it.
        unsafe { std::slice::from_raw_parts(self.base().add(part.start), part.len()) }
    }

    /// Copies `data` in, from byte `offset` on.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn fill(&self, offset: usize, data: &[u8]) {
        let size = self.staging().mapping.bytes();
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

    /// Zeroes the first `bytes`.
    pub fn clear(&self, bytes: usize) {
        assert!(
            bytes <= self.staging().mapping.bytes(),
            "clearing beyond a staging buffer"
        );
        // SAFETY: in bounds, as just checked; nobody else uses the buffer before it is filled.
        unsafe { self.base().write_bytes(0, bytes) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            let state = &mut self.pool.slots.borrow_mut()[staging.slot];
            state.is_taken = false;
            state.free = Some(staging);
        }
    }
}

impl Staging {
    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Size.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

/// Other nodes' buffers that this node has mapped.
#[derive(Default)]
pub struct Mapped(HashMap<(NodeId, usize), (u64, Arc<Mapping>)>);

impl Mapped {
    /// The memory of `buffer` of `node`, in this process.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn memory(&mut self, node: NodeId, buffer: &BufferName) -> Result<Arc<Mapping>> {
        let key = (node, buffer.slot);
        let known = self
            .0
            .get(&key)
            .filter(|(generation, _)| *generation == buffer.generation);
        if let Some((_, mapping)) = known {
            return Ok(mapping.clone());
        }
        let mapping = Arc::new(Mapping::open(&buffer.segment)?);
        self.0.insert(key, (buffer.generation, mapping.clone()));
        Ok(mapping)
    }
}
