//! What the elements are, and where they belong: found one by one, in the most naive way.

use penstock_engine::Window;
use penstock_layout::{Region, Share};

/// What a buffer holds where nothing was put.
pub const UNTOUCHED: u8 = 0xc3;

/// Element widths, bytes: those that the copies have kernels for, and others.
pub const WIDTHS: [usize; 9] = [1, 2, 3, 4, 5, 7, 8, 16, 24];

/// The indices of a box of these extents, in row-major order.
pub fn indices(extents: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let extents = extents.to_vec();
    (0..extents.iter().product()).map(move |number: u64| {
        let mut rest = number;
        let mut place = vec![0; extents.len()];
        for (i, extent) in place.iter_mut().zip(&extents).rev() {
            (*i, rest) = (rest % extent, rest / extent);
        }
        place
    })
}

/// The strides of a dense row-major array of elements of `width` bytes.
pub fn row_major_strides(extents: &[u64], width: usize) -> Vec<isize> {
    let mut strides =
        column_major_strides(&extents.iter().rev().copied().collect::<Vec<_>>(), width);
    strides.reverse();
    strides
}

/// The strides of a dense column-major array of elements of `width` bytes.
pub fn column_major_strides(extents: &[u64], width: usize) -> Vec<isize> {
    let step = |next: &mut isize, extent: &u64| {
        let stride = *next;
        *next *= *extent as isize;
        Some(stride)
    };
    extents.iter().scan(width as isize, step).collect()
}

/// Bytes that depend on all of these numbers.
pub fn noise(seeds: &[u64], bytes: usize) -> Vec<u8> {
    let mix =
        |state: u64, seed: &u64| (state ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (state >> 29);
    let mut state = seeds.iter().fold(0x2545_f491_4f6c_dd1d, mix) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The element at an index of the array; another for every `salt`.
pub fn element(index: &[u64], width: usize, salt: u64) -> Vec<u8> {
    let mut seeds = index.to_vec();
    seeds.push(salt);
    noise(&seeds, width)
}

/// The array's index of each element of a share, in the order of its memory.
pub fn held(share: &Share) -> Vec<Vec<u64>> {
    if share.elements() == 0 {
        return Vec::new();
    }
    let index = |place: Vec<u64>| {
        let dims = share.dims().iter().zip(place);
        dims.map(|(dim, memory)| dim.index(memory)).collect()
    };
    indices(&share.extents()).map(index).collect()
}

/// The elements of a share, one behind the other.
pub fn values(share: &Share, width: usize, salt: u64) -> Vec<u8> {
    let held = held(share).into_iter();
    held.flat_map(|index| element(&index, width, salt))
        .collect()
}

/// Whether an index lies in a region.
pub fn is_in(region: &Region, index: &[u64]) -> bool {
    (0..index.len()).all(|d| (region.start[d]..region.end(d)).contains(&index[d]))
}

/// Puts into `bytes` what a share has of a region, where a window places it.
pub fn stage(bytes: &mut [u8], share: &Share, region: &Region, window: &Window, salt: u64) {
    for index in held(share).iter().filter(|index| is_in(region, index)) {
        let at = place(region, window, index);
        bytes[at..at + window.width].copy_from_slice(&element(index, window.width, salt));
    }
}

/// Where a window places an element of a region.
pub fn place(region: &Region, window: &Window, index: &[u64]) -> usize {
    let dims = (0..index.len()).map(|d| (index[d] - region.start[d]) as isize * window.strides[d]);
    window.offset + dims.sum::<isize>() as usize
}

/// What a share has of a region, one element behind the other in the order of its memory.
pub fn packed(share: &Share, region: &Region, width: usize, salt: u64) -> Vec<u8> {
    let held = held(share).into_iter();
    let inside = held.filter(|index| is_in(region, index));
    inside
        .flat_map(|index| element(&index, width, salt))
        .collect()
}

/// The elements of a share: `new` salt for those of a region, `old` for the others.
pub fn changed(share: &Share, width: usize, (old, new): (u64, u64), region: &Region) -> Vec<u8> {
    let salt = |index: &[u64]| if is_in(region, index) { new } else { old };
    let held = held(share).into_iter();
    held.flat_map(|index| element(&index, width, salt(&index)))
        .collect()
}

/// Windows for a region of elements of a width, each with the bytes of a buffer that holds it. The
/// first is dense; the next is column-major, behind some elements; the last lies in a larger array,
/// at an odd byte.
pub fn windows(shape: &[u64], width: usize) -> Vec<(Window, usize)> {
    let mut larger: Vec<u64> = shape.iter().map(|extent| extent + 1).collect();
    larger
        .iter_mut()
        .last()
        .into_iter()
        .for_each(|extent| *extent += 2);
    let window = |offset, strides: Vec<isize>, extents: &[u64]| {
        let bytes = offset + extents.iter().product::<u64>() as usize * width;
        let window = Window {
            width,
            offset,
            strides,
        };
        (window, bytes)
    };
    vec![
        window(0, row_major_strides(shape, width), shape),
        window(3 * width, column_major_strides(shape, width), shape),
        window(5, row_major_strides(&larger, width), &larger),
    ]
}

/// The CRC-32C (Castagnoli) of bytes, bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(!0, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn strides_are_those_of_dense_arrays() {
        assert_eq!(row_major_strides(&[2, 3, 4], 2), [24, 8, 2]);
        assert_eq!(column_major_strides(&[2, 3, 4], 2), [2, 4, 12]);
        assert!(row_major_strides(&[], 2).is_empty());
    }
}
