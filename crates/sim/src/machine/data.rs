//! What is in memories, messages and on disks: real bytes where a run is to show that they arrive
//! where they belong, otherwise only how many.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use penstock_engine::Window;
use penstock_layout::{Direction, Piece, Share, row_major_strides};

use crate::time::Time;

/// A client's share, dense and row-major; of a phantom run nothing.
pub type Memory = Option<Rc<RefCell<Vec<u8>>>>;

/// Elements on their way with a message.
#[derive(Debug)]
pub struct Parcel {
    pub(crate) bytes: u64,
    pub(crate) data: Option<Vec<u8>>,
}

/// The buffers of one node, in bytes.
#[derive(Debug, Default)]
pub(crate) struct BufferSpace {
    now: Cell<u64>,
    max: Cell<u64>,
    made: Cell<usize>,
}

impl BufferSpace {
    /// The most there ever were.
    pub(crate) fn max(&self) -> u64 {
        self.max.get()
    }
}

/// A staging or cache buffer.
#[derive(Debug)]
pub struct Buffer {
    bytes: u64,
    /// Its number on its node.
    pub(crate) number: usize,
    /// When the disk last took it or gave it back.
    pub(crate) since: Cell<Time>,
    data: Option<RefCell<Vec<u8>>>,
    space: Rc<BufferSpace>,
}

impl Buffer {
    /// A buffer in `space`, with bytes if it `is_real`.
    pub(crate) fn new(bytes: u64, is_real: bool, space: &Rc<BufferSpace>, now: Time) -> Self {
        let number = space.made.get();
        space.made.set(number + 1);
        space.now.set(space.now.get() + bytes);
        space.max.set(space.max.get().max(space.now.get()));
        Self {
            bytes,
            number,
            since: Cell::new(now),
            // Filled with what nobody has written, so that it shows where it is taken for data.
            data: is_real.then(|| RefCell::new(vec![0xa5; bytes as usize])),
            space: space.clone(),
        }
    }

    /// Zeroes the first `bytes`.
    pub(crate) fn clear(&self, bytes: u64) {
        if let Some(data) = &self.data {
            data.borrow_mut()[..bytes as usize].fill(0);
        }
    }

    /// A part of it as a parcel.
    pub(crate) fn cut(&self, part: Range<u64>) -> Parcel {
        let bytes = part.end - part.start;
        let data = self.data.as_ref().map(|data| {
            let part = part.start as usize..part.end as usize;
            data.borrow()[part].to_vec()
        });
        Parcel { bytes, data }
    }

    /// Puts a parcel in from byte `offset` on.
    pub(crate) fn paste(&self, parcel: &Parcel, offset: u64) {
        if let (Some(data), Some(parcel)) = (&self.data, &parcel.data) {
            let offset = offset as usize;
            data.borrow_mut()[offset..offset + parcel.len()].copy_from_slice(parcel);
        }
    }

    /// Puts bytes in from the first on.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        if let Some(data) = &self.data {
            data.borrow_mut()[..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Copies a piece between this buffer and a client's memory.
    pub(crate) fn copy_piece(
        &self,
        memory: &Memory,
        share: &Share,
        piece: &Piece,
        window: &Window,
        direction: Direction,
    ) {
        if let (Some(memory), Some(data)) = (memory, &self.data) {
            let mut data = data.borrow_mut();
            let window_bytes = &mut data[window.offset..];
            copy(
                &mut memory.borrow_mut(),
                share,
                piece,
                window,
                window_bytes,
                direction,
            );
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.space.now.set(self.space.now.get() - self.bytes);
    }
}

/// Copies a piece between a share's dense row-major memory and where `window` places it in `bytes`.
pub(crate) fn copy(
    memory: &mut [u8],
    share: &Share,
    piece: &Piece,
    window: &Window,
    bytes: &mut [u8],
    direction: Direction,
) {
    let strides: Vec<isize> = row_major_strides(&share.extents())
        .into_iter()
        .map(|stride| stride as isize * window.width as isize)
        .collect();
    for copy in piece.copies(window.width, &window.strides, &strides, direction) {
        let (source, target) = match direction {
            Direction::Gather => (memory.as_mut_ptr(), bytes.as_mut_ptr()),
            Direction::Scatter => (bytes.as_mut_ptr(), memory.as_mut_ptr()),
        };
        // SAFETY: the memory holds the share, of which the piece is a part, and the window all of
        // the piece's region; the two slices are different.
        unsafe { copy.run(source, target) };
    }
}
