//! The contents of memories, messages and disks: real bytes if a run is to show that they arrive
//! where they belong, otherwise only their number.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use penstock_engine::{Error, Kind, Result, Window};
use penstock_layout::{Direction, Piece, Share, StridedCopy, byte_strides, exact};

use crate::time::Time;

/// A client's share, dense and row-major; `None` in a phantom run.
pub type Memory = Option<Rc<RefCell<Vec<u8>>>>;

/// A parcel is elements on their way with a message.
#[derive(Debug)]
pub struct Parcel {
    pub(crate) bytes: u64,
    pub(crate) data: Option<Vec<u8>>,
}

impl Parcel {
    /// Makes a parcel of these bytes.
    pub(crate) fn of(data: Vec<u8>) -> Self {
        Self {
            bytes: data.len() as u64,
            data: Some(data),
        }
    }

    /// The `bytes` bytes from byte `at` on.
    ///
    /// # Errors
    /// When it has fewer.
    pub(crate) fn part(&self, at: u64, bytes: u64) -> Result<&[u8]> {
        let rest = self.data.as_deref().unwrap_or_default();
        let rest = rest.get(exact::<usize>(at)..).unwrap_or_default();
        rest.get(..exact::<usize>(bytes))
            .ok_or_else(|| wrong_size(rest, bytes))
    }

    /// All of its bytes.
    ///
    /// # Errors
    /// When it has another number of them.
    pub(crate) fn whole(&self, bytes: u64) -> Result<&[u8]> {
        let data = self.data.as_deref().unwrap_or_default();
        if data.len() as u64 == bytes {
            return Ok(data);
        }
        Err(wrong_size(data, bytes))
    }
}

fn wrong_size(data: &[u8], expected: u64) -> Error {
    let cause = format!("{} bytes came, not {expected}", data.len());
    Error::new(Kind::Peer, "unpacking a message", cause)
}

/// The buffer space of one node, in bytes.
#[derive(Debug, Default)]
pub(crate) struct BufferSpace {
    now: Cell<u64>,
    max: Cell<u64>,
    made: Cell<usize>,
}

impl BufferSpace {
    /// The bytes of the buffers that there are.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// The most bytes at any time.
    pub(crate) fn max(&self) -> u64 {
        self.max.get()
    }
}

#[derive(Debug)]
pub struct Buffer {
    bytes: u64,
    /// The buffer's number on its node.
    pub(crate) number: usize,
    /// The time when the disk last took the buffer or gave it back.
    pub(crate) since: Cell<Time>,
    data: Option<RefCell<Vec<u8>>>,
    space: Rc<BufferSpace>,
}

impl Buffer {
    /// Makes a buffer in `space`, with bytes if it `is_real`.
    pub(crate) fn new(bytes: u64, is_real: bool, space: &Rc<BufferSpace>, now: Time) -> Self {
        let number = space.made.get();
        space.made.set(number + 1);
        space.now.set(space.now.get() + bytes);
        space.max.set(space.max.get().max(space.now.get()));
        Self {
            bytes,
            number,
            since: Cell::new(now),
            // The filling is nobody's data, and shows where a buffer is taken for data too early.
            data: is_real.then(|| RefCell::new(vec![0xa5; exact::<usize>(bytes)])),
            space: space.clone(),
        }
    }

    /// Fills a part with copies of an element, or with zeros if it is empty.
    pub(crate) fn clear(&self, part: Range<u64>, element: &[u8]) {
        if let Some(data) = &self.data {
            let data = &mut data.borrow_mut()[exact::<usize>(part.start)..exact::<usize>(part.end)];
            match element.len() {
                0 => data.fill(0),
                width => data
                    .chunks_exact_mut(width)
                    .for_each(|one| one.copy_from_slice(element)),
            }
        }
    }

    /// Makes a parcel of a part of the buffer.
    pub(crate) fn cut(&self, part: Range<u64>) -> Parcel {
        let bytes = part.end - part.start;
        let data = self.data.as_ref().map(|data| {
            let part = exact::<usize>(part.start)..exact::<usize>(part.end);
            data.borrow()[part].to_vec()
        });
        Parcel { bytes, data }
    }

    /// Puts a parcel in from byte `offset` on.
    pub(crate) fn paste(&self, parcel: &Parcel, offset: u64) {
        if let (Some(data), Some(parcel)) = (&self.data, &parcel.data) {
            let offset = exact::<usize>(offset);
            data.borrow_mut()[offset..offset + parcel.len()].copy_from_slice(parcel);
        }
    }

    /// Puts bytes in from byte `offset` on.
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        if let Some(data) = &self.data {
            let offset = exact::<usize>(offset);
            data.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Copies a piece between this buffer, in which `window` places it, and `packed`, which holds
    /// it as a parcel does.
    pub(crate) fn copy_packed(
        &self,
        piece: &Piece,
        window: &Window,
        packed: &mut [u8],
        direction: Direction,
    ) {
        if let Some(data) = &self.data {
            let copies = piece.unpacking(window.width, &window.strides, direction);
            let staged = &mut data.borrow_mut()[window.offset..];
            run(copies, packed, staged, direction);
        }
    }

    /// Copies a piece between this buffer and a client's memory.
    pub(crate) fn copy_piece(
        &self,
        (share, memory): &(Share, Memory),
        piece: &Piece,
        window: &Window,
        direction: Direction,
    ) {
        if let (Some(memory), Some(data)) = (memory, &self.data) {
            let staged = &mut data.borrow_mut()[window.offset..];
            let memory = &mut memory.borrow_mut();
            copy(memory, share, piece, window, staged, direction);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.space.now.set(self.space.now.get() - self.bytes);
    }
}

/// Copies a piece between a client's memory and `packed`, which holds it as a parcel does.
pub(crate) fn pack(
    (share, memory): &(Share, Memory),
    piece: &Piece,
    width: usize,
    packed: &mut [u8],
    direction: Direction,
) {
    if let Some(memory) = memory {
        let strides = byte_strides(&share.extents(), width);
        let copies = piece.packing(width, &strides, direction);
        run(copies, &mut memory.borrow_mut(), packed, direction);
    }
}

/// Copies a piece between a share's dense row-major memory and `bytes`, in which `window` places
/// it.
pub(crate) fn copy(
    memory: &mut [u8],
    share: &Share,
    piece: &Piece,
    window: &Window,
    bytes: &mut [u8],
    direction: Direction,
) {
    let strides = byte_strides(&share.extents(), window.width);
    let copies = piece.copies(window.width, &window.strides, &strides, direction);
    run(copies, memory, bytes, direction);
}

/// Runs the copies of a piece from the first place to the second, or back if elements are
/// scattered.
fn run(
    copies: impl Iterator<Item = StridedCopy>,
    memory: &mut [u8],
    buffer: &mut [u8],
    direction: Direction,
) {
    let (source, target) = match direction {
        Direction::Gather => (memory.as_mut_ptr(), buffer.as_mut_ptr()),
        Direction::Scatter => (buffer.as_mut_ptr(), memory.as_mut_ptr()),
    };
    for copy in copies {
        // SAFETY: both slices hold the piece, which the engine has checked if it has come from
        // elsewhere; they are different.
        unsafe { copy.run(source, target) };
    }
}
