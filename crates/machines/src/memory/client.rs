//! A client's memory, and the copies to and from it.

use penstock_engine::{CopyKind, Error, Kind, Result, Window};
use penstock_layout::{Direction, Piece, Region, Share, exact, row_major_strides};

/// A client's memory says where its share lies. Halos, Fortran order and views of other arrays are
/// all a matter of base and strides.
#[derive(Debug, Clone)]
pub struct ClientMemory {
    /// The address of the share's first element, or null if the share is empty.
    pub base: *mut u8,
    /// The extents of the share.
    pub extents: Vec<u64>,
    /// Bytes from one index to the next, in each dimension; may be negative.
    pub strides: Vec<isize>,
    /// Bytes of one element.
    pub width: usize,
}

// SAFETY: the pointer is to memory that its owner has handed over for the length of a call (see
// `exposures`); it is not tied to a thread.
unsafe impl Send for ClientMemory {}
// SAFETY: as above; concurrent copies touch disjoint elements, since shares and windows are
// disjoint.
unsafe impl Sync for ClientMemory {}

impl ClientMemory {
    /// Checks a piece of elements of `width` bytes that another process has named.
    ///
    /// # Errors
    /// When this memory does not hold the piece.
    pub fn check(&self, piece: &Piece, width: usize) -> Result<()> {
        if width == self.width && piece.is_in(&self.extents) {
            return Ok(());
        }
        let cause = "the client does not hold these elements";
        Err(Error::new(Kind::Peer, "copying a client's memory", cause))
    }

    /// Copies `piece` between this memory and a buffer at `buffer`.
    ///
    /// # Safety
    /// This memory must hold the piece's memory box, the buffer must hold the piece as `window`
    /// places it, and nobody else may access either meanwhile.
    pub unsafe fn copy(
        &self,
        piece: &Piece,
        window: &Window,
        buffer: *mut u8,
        direction: Direction,
        by: CopyKind,
    ) {
        let copies = piece.copies(window.width, &window.strides, &self.strides, direction);
        // SAFETY: the window's offset is inside the buffer by the caller's promise.
        let buffer = unsafe { buffer.add(window.offset) };
        let (source, target) = match direction {
            Direction::Gather => (self.base, buffer),
            Direction::Scatter => (buffer, self.base),
        };
        for copy in copies {
            // SAFETY: the caller's promise, which `Piece::copies` turns into offsets.
            unsafe {
                match by {
                    CopyKind::Kernels => copy.run(source, target),
                    CopyKind::Bytes => copy.run_by_bytes(source, target),
                }
            }
        }
    }

    /// Copies the piece's box between this memory and `packed`, in which the box lies dense and
    /// row-major.
    ///
    /// # Safety
    /// Like [`ClientMemory::copy`]; `packed` must hold the box.
    pub unsafe fn copy_packed(
        &self,
        piece: &Piece,
        width: usize,
        packed: *mut u8,
        direction: Direction,
        by: CopyKind,
    ) {
        let memory_box = piece.memory_box();
        let whole = Share::of_box(&Region::whole(&memory_box.shape));
        let steps = memory_box.start.iter().zip(&self.strides);
        let first: isize = steps
            .map(|(&index, &stride)| exact::<isize>(index) * stride)
            .sum();
        let Some(whole) = whole.intersect(&Region::whole(&memory_box.shape)) else {
            return;
        };
        let window = Window {
            width,
            offset: 0,
            strides: packed_strides(&memory_box.shape, width),
        };
        // SAFETY: the box's first element is inside this memory.
        let base = unsafe { self.base.offset(first) };
        let inner = ClientMemory {
            base,
            ..self.clone()
        };
        // SAFETY: the caller's promise.
        unsafe { inner.copy(&whole, &window, packed, direction, by) };
    }
}

/// Copies `piece` between a staging buffer, in which `window` places it, and `packed`, in which its
/// box of the client's memory lies dense and row-major.
///
/// # Safety
/// The buffer and `packed` must hold the piece, and nobody else may access them meanwhile.
pub unsafe fn copy_unpacked(
    piece: &Piece,
    window: &Window,
    buffer: *mut u8,
    packed: *mut u8,
    direction: Direction,
    by: CopyKind,
) {
    let extents = piece.memory_box().shape;
    let memory = ClientMemory {
        base: packed,
        strides: packed_strides(&extents, window.width),
        extents,
        width: window.width,
    };
    // SAFETY: the caller's promise.
    unsafe { memory.copy(&piece.packed(), window, buffer, direction, by) };
}

fn packed_strides(shape: &[u64], width: usize) -> Vec<isize> {
    row_major_strides(shape)
        .into_iter()
        .map(|stride| exact::<isize>(stride) * width as isize)
        .collect()
}

/// The bytes of a packed piece.
pub fn packed_bytes(piece: &Piece, width: usize) -> usize {
    exact::<usize>(piece.elements()) * width
}
