//! The loops that move the bytes of a [`super::StridedCopy`].
//!
//! One `match` on the width picks a [`Move`]; all loops are compiled once for each kind of move,
//! so that in the innermost loop the number of bytes is a constant.

use std::ptr::copy_nonoverlapping;

use super::Axis;

#[cfg(target_arch = "x86_64")]
mod transpose;

/// Other processors transpose element by element.
#[cfg(not(target_arch = "x86_64"))]
mod transpose {
    pub(super) const fn side(_bytes: usize) -> Option<usize> {
        None
    }

    pub(super) unsafe fn blocks(
        _: usize,
        _: [usize; 2],
        _: *const u8,
        _: isize,
        _: *mut u8,
        _: isize,
    ) {
    }
}

/// Side of a tile of a transpose in bytes: two cache lines, because the processor fetches pairs.
const TILE_BYTES: usize = 128;

/// The least and the most elements along a tile's side.
const TILE_SIDE: std::ops::RangeInclusive<usize> = 16..=64;

/// The tiles along the side of a group, whose lines lie on few enough pages for the TLB.
const GROUP: usize = 4;

/// The side of a patch, transposed at once without registers: a cache line of 8-byte elements.
const PATCH_SIDE: usize = 8;

/// The count below which an axis is no loop worth having innermost.
const SHORT: usize = 8;

/// The elements of a long axis done before the next of a short one: 256 of 16 bytes stay in L1.
const STRIP: usize = 256;

/// A move copies one element.
trait Move: Copy {
    /// # Safety
    /// The bytes of one element must be readable at `source` and writable at `target`, without
    /// overlap.
    unsafe fn copy(self, source: *const u8, target: *mut u8);

    /// The bytes of an element if the compiler knows them; otherwise 0.
    const BYTES: usize;
}

/// A fixed move copies `N` bytes.
#[derive(Clone, Copy)]
struct Fixed<const N: usize>;

impl<const N: usize> Move for Fixed<N> {
    const BYTES: usize = N;

    #[inline(always)]
    unsafe fn copy(self, source: *const u8, target: *mut u8) {
        // SAFETY: the caller vouches for `N` bytes of both.
        unsafe { copy_nonoverlapping(source, target, N) }
    }
}

/// An overlapping pair copies `N` to `2 * N` bytes: the first `N`, and the last `N`, from `tail`
/// on.
#[derive(Clone, Copy)]
struct OverlappingPair<const N: usize> {
    tail: usize,
}

impl<const N: usize> Move for OverlappingPair<N> {
    const BYTES: usize = 0;

    #[inline(always)]
    unsafe fn copy(self, source: *const u8, target: *mut u8) {
        // SAFETY: the caller vouches for `tail + N` bytes of both, and `tail <= N`.
        unsafe {
            copy_nonoverlapping(source, target, N);
            copy_nonoverlapping(source.add(self.tail), target.add(self.tail), N);
        }
    }
}

/// A long move copies any number of bytes.
#[derive(Clone, Copy)]
struct Long {
    bytes: usize,
}

impl Move for Long {
    const BYTES: usize = 0;

    #[inline(always)]
    unsafe fn copy(self, source: *const u8, target: *mut u8) {
        // SAFETY: the caller vouches for `bytes` of both.
        unsafe { copy_nonoverlapping(source, target, self.bytes) }
    }
}

/// Moves elements of `width` bytes along `axes`.
///
/// # Safety
/// Like [`super::StridedCopy::run`], with the first element at `source` and at `target`.
pub(super) unsafe fn run(width: usize, axes: &[Axis], source: *const u8, target: *mut u8) {
    macro_rules! nest {
        ($element:expr) => {
            // SAFETY: the element has `width` bytes, and the caller vouches for all elements.
            unsafe { nest($element, axes, source, target) }
        };
    }
    match width {
        0 => {}
        1 => nest!(Fixed::<1>),
        2 => nest!(Fixed::<2>),
        3 => nest!(Fixed::<3>),
        4 => nest!(Fixed::<4>),
        5..8 => nest!(OverlappingPair::<4> { tail: width - 4 }),
        8 => nest!(Fixed::<8>),
        12 => nest!(Fixed::<12>),
        9..16 => nest!(OverlappingPair::<8> { tail: width - 8 }),
        16 => nest!(Fixed::<16>),
        24 => nest!(Fixed::<24>),
        17..32 => nest!(OverlappingPair::<16> { tail: width - 16 }),
        32 => nest!(Fixed::<32>),
        33..64 => nest!(OverlappingPair::<32> { tail: width - 32 }),
        64 => nest!(Fixed::<64>),
        65..=128 => nest!(OverlappingPair::<64> { tail: width - 64 }),
        _ => nest!(Long { bytes: width }),
    }
}

/// Runs all loops but the innermost two.
///
/// # Safety
/// Like [`run`], with the size of `element` for the width.
unsafe fn nest<M: Move>(element: M, axes: &[Axis], source: *const u8, target: *mut u8) {
    // SAFETY: each call reaches a part of what the caller vouches for.
    unsafe {
        match axes {
            [] => element.copy(source, target),
            [axis] => line(element, axis, source, target),
            [outer, inner] => plane(element, outer, inner, source, target),
            [axis, deeper @ ..] => {
                for i in 0..axis.count as isize {
                    let source = source.wrapping_offset(i * axis.source);
                    let target = target.wrapping_offset(i * axis.target);
                    nest(element, deeper, source, target);
                }
            }
        }
    }
}

/// Runs the innermost two loops.
///
/// # Safety
/// Like [`nest`].
unsafe fn plane<M: Move>(
    element: M,
    outer: &Axis,
    inner: &Axis,
    source: *const u8,
    target: *mut u8,
) {
    let transposed = outer.source.unsigned_abs() < inner.source.unsigned_abs();
    // SAFETY: every branch reaches the same elements, for which the caller vouches.
    unsafe {
        if inner.count < SHORT && outer.count > inner.count {
            tiles(
                outer,
                inner,
                [STRIP, SHORT],
                source,
                target,
                |outer, inner, source, target| {
                    rows(element, inner, outer, source, target);
                },
            );
        } else if transposed && M::BYTES > 0 {
            let side = (TILE_BYTES / M::BYTES).clamp(*TILE_SIDE.start(), *TILE_SIDE.end());
            let group = [GROUP * side; 2];
            tiles(
                outer,
                inner,
                group,
                source,
                target,
                |outer, inner, source, target| {
                    tiles(
                        outer,
                        inner,
                        [side; 2],
                        source,
                        target,
                        |outer, inner, source, target| {
                            tile(element, outer, inner, source, target);
                        },
                    );
                },
            );
        } else {
            rows(element, outer, inner, source, target);
        }
    }
}

/// Transposes one tile: whole blocks in registers, if there are any, and the rest in patches.
///
/// # Safety
/// Like [`nest`].
unsafe fn tile<M: Move>(
    element: M,
    outer: &Axis,
    inner: &Axis,
    source: *const u8,
    target: *mut u8,
) {
    let contiguous = outer.source == M::BYTES as isize && inner.target == M::BYTES as isize;
    let Some(side) = transpose::side(M::BYTES).filter(|_| contiguous) else {
        let patch = [PATCH_SIDE; 2];
        return tiles(
            outer,
            inner,
            patch,
            source,
            target,
            |outer, inner, source, target| {
                // SAFETY: these are a part of the elements for which the caller vouches.
                unsafe { rows(element, outer, inner, source, target) };
            },
        );
    };
    let (height, width) = (outer.count / side * side, inner.count / side * side);
    let below = Axis {
        count: outer.count - height,
        ..*outer
    };
    let above = Axis {
        count: height,
        ..*outer
    };
    let beside = Axis {
        count: inner.count - width,
        ..*inner
    };
    let (i, j) = (height as isize, width as isize);
    // SAFETY: these are three parts of the elements for which the caller vouches; the first
    // consists of complete blocks, whose lines are contiguous.
    unsafe {
        let size = [height, width];
        transpose::blocks(M::BYTES, size, source, inner.source, target, outer.target);
        let from = source.wrapping_offset(j * inner.source);
        rows(
            element,
            &above,
            &beside,
            from,
            target.wrapping_offset(j * inner.target),
        );
        let from = source.wrapping_offset(i * outer.source);
        rows(
            element,
            &below,
            inner,
            from,
            target.wrapping_offset(i * outer.target),
        );
    }
}

/// Cuts two loops into tiles of at most `height` by `width` and calls `tile` for each.
#[inline(always)]
fn tiles(
    outer: &Axis,
    inner: &Axis,
    [height, width]: [usize; 2],
    source: *const u8,
    target: *mut u8,
    mut tile: impl FnMut(&Axis, &Axis, *const u8, *mut u8),
) {
    for i in (0..outer.count).step_by(height) {
        let rows = Axis {
            count: height.min(outer.count - i),
            ..*outer
        };
        for j in (0..inner.count).step_by(width) {
            let columns = Axis {
                count: width.min(inner.count - j),
                ..*inner
            };
            let offset = |a: isize, b: isize| i as isize * a + j as isize * b;
            tile(
                &rows,
                &columns,
                source.wrapping_offset(offset(outer.source, inner.source)),
                target.wrapping_offset(offset(outer.target, inner.target)),
            );
        }
    }
}

/// Runs a loop of lines.
///
/// # Safety
/// Like [`nest`].
#[inline(always)]
unsafe fn rows<M: Move>(
    element: M,
    outer: &Axis,
    inner: &Axis,
    source: *const u8,
    target: *mut u8,
) {
    for i in 0..outer.count as isize {
        let source = source.wrapping_offset(i * outer.source);
        let target = target.wrapping_offset(i * outer.target);
        // SAFETY: the line is a part of the elements for which the caller vouches.
        unsafe { line(element, inner, source, target) };
    }
}

/// Runs the innermost loop. The compiler knows common strides as constants.
///
/// # Safety
/// Like [`nest`].
#[inline(always)]
unsafe fn line<M: Move>(element: M, axis: &Axis, source: *const u8, target: *mut u8) {
    let Axis {
        count,
        source: from,
        target: to,
    } = *axis;
    let one = M::BYTES as isize;
    // SAFETY: every branch reaches the same elements, for which the caller vouches.
    unsafe {
        if one > 1 && to == one && from == 2 * one {
            // There is no unrolling here: the compiler finds the vector instructions by itself.
            for i in 0..count {
                element.copy(source.add(2 * M::BYTES * i), target.add(M::BYTES * i));
            }
        } else if one > 0 && to == 2 * one && from == one {
            steps(element, count, one, 2 * one, source, target);
        } else if to == one {
            steps(element, count, from, one, source, target);
        } else if from == one {
            steps(element, count, one, to, source, target);
        } else {
            steps(element, count, from, to, source, target);
        }
    }
}

/// Copies `count` elements, `from` apart in the source and `to` apart in the target.
///
/// # Safety
/// Like [`nest`].
#[inline(always)]
unsafe fn steps<M: Move>(
    element: M,
    count: usize,
    from: isize,
    to: isize,
    mut source: *const u8,
    mut target: *mut u8,
) {
    // SAFETY: the caller vouches for each of `count` elements.
    unsafe {
        for _ in 0..count / 4 {
            element.copy(source, target);
            element.copy(source.wrapping_offset(from), target.wrapping_offset(to));
            element.copy(
                source.wrapping_offset(2 * from),
                target.wrapping_offset(2 * to),
            );
            element.copy(
                source.wrapping_offset(3 * from),
                target.wrapping_offset(3 * to),
            );
            source = source.wrapping_offset(4 * from);
            target = target.wrapping_offset(4 * to);
        }
        for _ in 0..count % 4 {
            element.copy(source, target);
            source = source.wrapping_offset(from);
            target = target.wrapping_offset(to);
        }
    }
}
