//! Transposes of square blocks in registers.
//!
//! A block is `L` lines of 16 bytes, of `L = 16 / W` elements of `W` bytes. Interleaving line `i`
//! with line `i + L / 2`, element by element, rotates the bits of (line, column) by one; after
//! `log2 L` rounds lines and columns have changed places:
//!
//! ```text
//! a b c d      a i b j      a e i m
//! e f g h  ->  c k d l  ->  b f j n
//! i j k l      e m f n      c g k o
//! m n o p      g o h p      d h l p
//! ```

use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8,
    _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8,
    _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
};

/// The elements on the side of a block of elements of `bytes`, or `None` if there is no such block.
pub(super) const fn side(bytes: usize) -> Option<usize> {
    match bytes {
        1 | 2 | 4 | 8 => Some(16 / bytes),
        _ => None,
    }
}

/// Transposes `height` by `width` elements of `bytes`, for which [`side`] is some, block by block.
/// Both counts are multiples of the side. Down the height the source is contiguous and the target
/// has lines `target_stride` apart; along the width the target is contiguous and the source has
/// lines `source_stride` apart.
///
/// # Safety
/// All lines must be readable and writable, without overlap.
#[inline(always)]
pub(super) unsafe fn blocks(
    bytes: usize,
    [height, width]: [usize; 2],
    source: *const u8,
    source_stride: isize,
    target: *mut u8,
    target_stride: isize,
) {
    let strides = [source_stride, target_stride];
    // SAFETY: the interleaving belongs to SSE2, a part of x86_64; the caller vouches for the lines.
    unsafe {
        match bytes {
            1 => grid::<16>([height, width], source, target, strides, |a, b| {
                (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b))
            }),
            2 => grid::<8>([height, width], source, target, strides, |a, b| {
                (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b))
            }),
            4 => grid::<4>([height, width], source, target, strides, |a, b| {
                (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b))
            }),
            _ => grid::<2>([height, width], source, target, strides, |a, b| {
                (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b))
            }),
        }
    }
}

/// Transposes blocks of `L` lines of 16 bytes, side by side along the width and then down the
/// height.
///
/// # Safety
/// Like [`blocks`].
#[inline(always)]
unsafe fn grid<const L: usize>(
    [height, width]: [usize; 2],
    source: *const u8,
    target: *mut u8,
    [source_stride, target_stride]: [isize; 2],
    interleave: impl Fn(__m128i, __m128i) -> (__m128i, __m128i) + Copy,
) {
    for i in 0..height / L {
        let mut source = source.wrapping_add(16 * i);
        let mut target = target.wrapping_offset((L * i) as isize * target_stride);
        for _ in 0..width / L {
            // SAFETY: the caller vouches for each block.
            unsafe { block::<L>(source, source_stride, target, target_stride, interleave) };
            source = source.wrapping_offset(L as isize * source_stride);
            target = target.wrapping_add(16);
        }
    }
}

/// Transposes a block of `L` lines, whose elements `interleave` interleaves.
///
/// # Safety
/// Like [`blocks`].
#[inline(always)]
unsafe fn block<const L: usize>(
    source: *const u8,
    source_stride: isize,
    target: *mut u8,
    target_stride: isize,
    interleave: impl Fn(__m128i, __m128i) -> (__m128i, __m128i),
) {
    // SAFETY: the caller vouches for each line; the loads and stores are unaligned.
    unsafe {
        let mut lines = [_mm_setzero_si128(); L];
        for (i, line) in lines.iter_mut().enumerate() {
            *line = _mm_loadu_si128(source.wrapping_offset(i as isize * source_stride).cast());
        }
        for _ in 0..L.ilog2() {
            let before = lines;
            for i in 0..L / 2 {
                (lines[2 * i], lines[2 * i + 1]) = interleave(before[i], before[i + L / 2]);
            }
        }
        for (i, line) in lines.iter().enumerate() {
            _mm_storeu_si128(
                target.wrapping_offset(i as isize * target_stride).cast(),
                *line,
            );
        }
    }
}
