//! A client's memory, and the copies to and from it.

use penstock_engine::{CopyKind, Error, Kind, Result, Window};
use penstock_layout::{Direction, Piece, StridedCopy};

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
    /// This memory must hold the piece, the buffer must hold the piece as `window`
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
        // SAFETY: the caller's promise, which `Piece::copies` turns into offsets.
        unsafe { run(copies, (self.base, buffer), direction, by) };
    }

    /// Copies `piece` between this memory and `packed`, which holds the piece as a parcel does.
    ///
    /// # Safety
    /// Like [`ClientMemory::copy`]; `packed` must hold the piece.
    pub unsafe fn copy_packed(
        &self,
        piece: &Piece,
        width: usize,
        packed: *mut u8,
        direction: Direction,
        by: CopyKind,
    ) {
        let copies = piece.packing(width, &self.strides, direction);
        // SAFETY: the caller's promise.
        unsafe { run(copies, (self.base, packed), direction, by) };
    }
}

/// Copies `piece` between a staging buffer, in which `window` places it, and `packed`, which holds
/// the piece as a parcel does.
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
    let copies = piece.unpacking(window.width, &window.strides, direction);
    // SAFETY: the caller's promise.
    unsafe { run(copies, (packed, buffer.add(window.offset)), direction, by) };
}

/// Runs copies from the first place to the second, or back if elements are scattered.
///
/// # Safety
/// Both places must hold all that the copies reach, and nobody else may access it meanwhile.
unsafe fn run(
    copies: impl Iterator<Item = StridedCopy>,
    (memory, buffer): (*mut u8, *mut u8),
    direction: Direction,
    by: CopyKind,
) {
    let (source, target) = match direction {
        Direction::Gather => (memory, buffer),
        Direction::Scatter => (buffer, memory),
    };
    for copy in copies {
        // SAFETY: the caller's promise.
        unsafe {
            match by {
                CopyKind::Kernels => copy.run(source, target),
                CopyKind::Bytes => copy.run_by_bytes(source, target),
            }
        }
    }
}
