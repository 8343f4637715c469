//! Nested strided copies: the kernels that gather and scatter.
//!
//! A [`StridedCopy`] moves elements `{ (i0, i1, ..) | 0 <= i < count }` from
//! `source + i0 * axes[0].source + i1 * axes[1].source + ..` to the like sum of target strides.
//! All offsets and strides are bytes. No two elements have the same target, and no source byte is
//! also a target byte: therefore the order of the loops is free, and [`StridedCopy::simplify`]
//! chooses it.
//!
//! ```text
//! rows 0..3 of a row-major buffer of 5 x 4 f64, gathered into Fortran order of 3 x 4
//!   as asked                  simplified
//!   count 3  32 ->  8         count 4   8 -> 24     tiles of both: the source is contiguous
//!   count 4   8 -> 24         count 3  32 ->  8     along one, the target along the other
//!
//! CYCLIC(4) of f64 over 2, gathered from memory into the buffer
//!   count n  32 -> 64         count n  32 -> 64
//!   count 4   8 ->  8         width 32              one move of 32 bytes
//! ```
//!
//! The innermost two loops are one of four kernels:
//!
//! | inner two axes | kernel |
//! |---|---|
//! | none, or elements of more than 128 bytes | memcpy, once an element |
//! | source or target strided | unrolled loop of fixed-size moves |
//! | source contiguous along one, target along the other | unrolled loop in square tiles |
//! | a long axis outside a very short one | unrolled loop in tiles, along the long one |
//!
//! A *fixed-size move* is one or two loads and stores of 1, 2, 4, .. 64 bytes, unaligned; a width
//! between two powers of two takes two moves that overlap. Nothing is allocated.

use smallvec::SmallVec;

/// An axis is one loop of a [`StridedCopy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// The number of steps.
    pub count: usize,
    /// Bytes from one step to the next in the source; may be negative.
    pub source: isize,
    /// Bytes from one step to the next in the target; may be negative.
    pub target: isize,
}

impl Axis {
    /// Whether `self` around `inner` is one longer axis, on both sides.
    fn continues(&self, inner: &Axis) -> bool {
        let span = |stride: isize| stride.checked_mul(inner.count as isize);
        Some(self.source) == span(inner.source) && Some(self.target) == span(inner.target)
    }
}

/// A strided copy moves elements of `width` bytes in nested loops, `axes[0]` outermost. `source`
/// and `target` are byte offsets of the first element from the base pointers of
/// [`StridedCopy::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StridedCopy {
    /// Bytes that lie together on both sides: an element, and after [`StridedCopy::simplify`] a run
    /// of elements.
    pub width: usize,
    /// The byte offset of the first element in the source.
    pub source: isize,
    /// The byte offset of the first element in the target.
    pub target: isize,
    /// The loops, outermost first.
    pub axes: SmallVec<[Axis; 6]>,
}

impl StridedCopy {
    /// Makes the copy of one element at offset 0 of both sides.
    pub fn element(width: usize) -> Self {
        Self {
            width,
            source: 0,
            target: 0,
            axes: SmallVec::new(),
        }
    }

    /// The bytes that the copy moves.
    pub fn bytes(&self) -> usize {
        self.width * self.axes.iter().map(|axis| axis.count).product::<usize>()
    }

    /// Rewrites the copy into fewer and better loops that move the same bytes: no axis of one,
    /// target strides ascending in memory and descending from axis to axis, axes that continue each
    /// other merged, an innermost axis that is contiguous on both sides made part of the width. If
    /// another axis has a smaller source stride than the innermost, it is put next to the
    /// innermost.
    pub fn simplify(&mut self) {
        if self.axes.iter().any(|axis| axis.count == 0) {
            self.axes = SmallVec::from_slice(&[Axis {
                count: 0,
                source: 0,
                target: 0,
            }]);
            return;
        }
        self.axes.retain(|axis| axis.count > 1);
        for axis in &mut self.axes {
            if axis.target < 0 || (axis.target == 0 && axis.source < 0) {
                let last = axis.count as isize - 1;
                self.source += last * axis.source;
                self.target += last * axis.target;
                axis.source = -axis.source;
                axis.target = -axis.target;
            }
        }
        self.axes.sort_by_key(|axis| {
            std::cmp::Reverse((axis.target.unsigned_abs(), axis.source.unsigned_abs()))
        });
        self.merge();
        while let Some(inner) = self.axes.last() {
            let contiguous = inner.source == inner.target && inner.source == self.width as isize;
            if !contiguous {
                break;
            }
            self.width *= inner.count;
            self.axes.pop();
        }
        self.pair();
    }

    /// Merges neighbouring axes into one if they continue each other.
    fn merge(&mut self) {
        let mut merged: SmallVec<[Axis; 6]> = SmallVec::new();
        for axis in self.axes.iter().rev() {
            match merged.last_mut() {
                Some(inner) if axis.continues(inner) => inner.count *= axis.count,
                _ => merged.push(*axis),
            }
        }
        merged.reverse();
        self.axes = merged;
    }

    /// Moves the axis of the smallest source stride to the place outside the innermost.
    fn pair(&mut self) {
        let Some(inner) = self.axes.len().checked_sub(1).filter(|&inner| inner >= 2) else {
            return;
        };
        let stride = |d: &usize| self.axes[*d].source.unsigned_abs();
        if let Some(best) = (0..inner)
            .min_by_key(stride)
            .filter(|d| stride(d) < stride(&inner))
        {
            self.axes[best..inner].rotate_left(1);
        }
    }

    /// Moves the bytes.
    ///
    /// # Safety
    /// Every byte that the offsets, strides and counts reach must be readable from `source` on, and
    /// writable from `target` on; the two must not overlap, and no byte of the target may be
    /// reached twice. Nothing need be aligned.
    pub unsafe fn run(&self, source: *const u8, target: *mut u8) {
        if self.bytes() == 0 {
            return;
        }
        let (source, target) = (
            source.wrapping_offset(self.source),
            target.wrapping_offset(self.target),
        );
        // SAFETY: the caller vouches for all that the axes reach from here.
        unsafe { kernel::run(self.width, &self.axes, source, target) }
    }
}

impl StridedCopy {
    /// Moves the bytes one by one, in the order of the loops, as a simple program does: the
    /// yardstick of [`StridedCopy::run`] (Dickens and Thakur, section 3.3.1).
    ///
    /// # Safety
    /// Like [`StridedCopy::run`].
    pub unsafe fn run_by_bytes(&self, source: *const u8, target: *mut u8) {
        let (source, target) = (
            source.wrapping_offset(self.source),
            target.wrapping_offset(self.target),
        );
        // SAFETY: the caller vouches for all that the axes reach from here.
        unsafe { bytes_one_by_one(self.width, &self.axes, source, target) }
    }
}

/// # Safety
/// Like [`StridedCopy::run`], from these pointers on.
unsafe fn bytes_one_by_one(width: usize, axes: &[Axis], source: *const u8, target: *mut u8) {
    let Some((axis, inner)) = axes.split_first() else {
        for byte in 0..width {
            // SAFETY: inside the element. Volatile, or the compiler would make a memcpy of it.
            unsafe {
                target
                    .add(byte)
                    .write_volatile(source.add(byte).read_volatile());
            }
        }
        return;
    };
    for nth in 0..axis.count as isize {
        let source = source.wrapping_offset(nth * axis.source);
        let target = target.wrapping_offset(nth * axis.target);
        // SAFETY: the caller vouches for all that the axes reach.
        unsafe { bytes_one_by_one(width, inner, source, target) }
    }
}

mod kernel;

#[cfg(test)]
mod tests;
