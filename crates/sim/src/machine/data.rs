//! The contents of memories, messages and disks: real bytes if a run is to show that they arrive
//! where they belong, otherwise only their number.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use penstock_engine::{Error, Kind, Result, Window};
use penstock_layout::{Direction, Piece, Region, Share, exact, row_major_strides};

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

    /// Copies a piece between this buffer, in which `window` places it, and `packed`, in which its
    /// box of the client's memory lies dense.
    pub(crate) fn copy_packed(
        &self,
        piece: &Piece,
        window: &Window,
        packed: &mut [u8],
        direction: Direction,
    ) {
        if let Some(data) = &self.data {
            let whole = Share::of_box(&Region::whole(&piece.memory_box().shape));
            let mut data = data.borrow_mut();
            let staged = &mut data[window.offset..];
            copy(packed, &whole, &piece.packed(), window, staged, direction);
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

/// Copies a piece between a client's memory and `packed`, in which its box of the memory lies
/// dense.
pub(crate) fn copy_box(
    (share, memory): &(Share, Memory),
    piece: &Piece,
    width: usize,
    packed: &mut [u8],
    direction: Direction,
) {
    let Some(memory) = memory else { return };
    let (held, taken) = (Region::whole(&share.extents()), piece.memory_box());
    // The memory is taken as an array of its own, with the box as a region.
    let Some(piece) = Share::of_box(&held).intersect(&taken) else {
        return;
    };
    let window = Window {
        width,
        offset: 0,
        strides: byte_strides(&taken.shape, width),
    };
    let whole = Share::of_box(&held);
    copy(
        &mut memory.borrow_mut(),
        &whole,
        &piece,
        &window,
        packed,
        direction,
    );
}

fn byte_strides(shape: &[u64], width: usize) -> Vec<isize> {
    let strides = row_major_strides(shape).into_iter();
    strides
        .map(|stride| exact::<isize>(stride) * width as isize)
        .collect()
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
    for copy in piece.copies(window.width, &window.strides, &strides, direction) {
        let (source, target) = match direction {
            Direction::Gather => (memory.as_mut_ptr(), bytes.as_mut_ptr()),
            Direction::Scatter => (bytes.as_mut_ptr(), memory.as_mut_ptr()),
        };
        // SAFETY: the memory holds the share, and the piece is a part of it; the window holds all
        // of the piece's region; the two slices are different.
        unsafe { copy.run(source, target) };
    }
}
