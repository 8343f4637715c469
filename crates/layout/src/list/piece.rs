//! The part of a holding in one block, and its copy between a memory and the block's buffer.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::elements::bounds_of;
use super::overlap::are_disjoint;
use super::series::{Pair, Series, Strand, arrange_all};
use crate::copy::StridedCopy;
use crate::error::LayoutError;
use crate::exact::exact;
use crate::share::Direction;

/// The most elements of a piece in a memory or buffer of fewer elements, as of a list that has one
/// place many times.
const REPEATED_MAX: u64 = 1 << 28;

/// A list piece is the elements that one holding has of one block: where each lies in the block's
/// buffer, and where in the rank's memory, both in elements.
///
/// A piece that comes from elsewhere has no overflow in it, but it may reach anywhere below
/// 2^63 - 1: ask [`ListPiece::is_in`] before it is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListPiece {
    #[serde(deserialize_with = "sound")]
    strands: Vec<Strand>,
}

/// Reads strands and refuses such as overflow.
fn sound<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<Strand>, D::Error> {
    let strands = Vec::<Strand>::deserialize(source)?;
    let is_sound = |strand: &Strand| {
        strand.counted().is_some()
            && strand.is_within(i64::MAX, |pair| pair.stored)
            && strand.is_within(i64::MAX, |pair| pair.memory)
    };
    let mut counts = strands.iter().map(Strand::counted);
    let sum = counts.try_fold(0i64, |sum, count| sum.checked_add(count?));
    if sum.is_none() || !strands.iter().all(is_sound) {
        let series = strands.len();
        return Err(serde::de::Error::custom(LayoutError::ListTooLong {
            series,
        }));
    }
    Ok(strands)
}

impl ListPiece {
    /// Makes the piece of strands whose places on disk are places in the block's buffer.
    pub(super) fn new(strands: Vec<Strand>) -> Self {
        Self {
            strands: arrange_all(strands),
        }
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        let counts = self.strands.iter().map(Strand::elements);
        counts.sum::<i64>().unsigned_abs()
    }

    /// The bytes of the elements, of `width` bytes each; the highest number if no `u64` holds them.
    pub fn bytes(&self, width: u64) -> u64 {
        self.elements().saturating_mul(width)
    }

    /// Whether the piece has no element.
    pub fn is_empty(&self) -> bool {
        self.strands.is_empty()
    }

    /// The number of series and single runs that the piece is kept as.
    pub fn series(&self) -> usize {
        self.strands.len()
    }

    /// The number of runs that the copy of the piece consists of.
    pub fn runs(&self) -> u64 {
        let turns = self
            .strands
            .iter()
            .map(|strand| strand.turns().unsigned_abs());
        turns.fold(0, u64::saturating_add)
    }

    /// The lowest element of the buffer and one past the highest; `None` if the piece is empty.
    pub fn buffer_bounds(&self) -> Option<Range<u64>> {
        bounds_of(
            self.strands
                .iter()
                .map(|strand| strand.bounds(|pair| pair.stored)),
        )
    }

    /// The lowest element of the memory and one past the highest; `None` if the piece is empty.
    pub fn memory_bounds(&self) -> Option<Range<u64>> {
        bounds_of(
            self.strands
                .iter()
                .map(|strand| strand.bounds(|pair| pair.memory)),
        )
    }

    /// The runs, each a place in the buffer, a place in memory, and a length.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.strands.iter().flat_map(|strand| {
            let length = strand.length.unsigned_abs();
            let place = move |pair: Pair| {
                let (stored, memory) = (pair.stored.unsigned_abs(), pair.memory.unsigned_abs());
                (stored, memory, length)
            };
            strand.starts().map(place)
        })
    }

    /// Whether the piece lies in a memory of this number of elements. It may have an element more
    /// than once.
    pub fn is_in_memory(&self, elements: u64) -> bool {
        self.memory_bounds().unwrap_or_default().end <= elements
            && self.elements() <= elements.max(REPEATED_MAX)
    }

    /// Whether the piece lies in a buffer of this number of elements. It may have an element more
    /// than once. Ask before a piece is used that has come from elsewhere.
    pub fn is_in_buffer(&self, elements: u64) -> bool {
        self.buffer_bounds().unwrap_or_default().end <= elements
            && self.elements() <= elements.max(REPEATED_MAX)
    }

    /// Whether the piece lies in a memory and in a buffer of these numbers of elements, and has no
    /// more elements than the larger of them: a piece of a holding that may be read or written
    /// has not. The answer takes time in proportion to the series. Ask before a piece is used that
    /// has come from elsewhere.
    pub fn is_in(&self, memory_elements: u64, buffer_elements: u64) -> bool {
        self.is_in_memory(memory_elements)
            && self.is_in_buffer(buffer_elements)
            && self.elements() <= memory_elements.max(buffer_elements)
    }

    /// Whether no element of the buffer is in two of the pieces, or in one of them twice.
    pub fn are_disjoint<'a>(pieces: impl IntoIterator<Item = &'a ListPiece>) -> bool {
        let strands = pieces.into_iter().flat_map(|piece| &piece.strands);
        are_disjoint(strands.map(|strand| strand.seen(|pair| pair.stored)))
    }

    /// The copies that move the elements, of `width` bytes each, between a buffer and a memory in
    /// which they lie `step` bytes apart.
    pub fn copies(
        &self,
        width: usize,
        step: isize,
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        let strands = self.strands.iter();
        strands.flat_map(move |strand| copies_of(strand.clone(), width, step, direction))
    }

    /// The copies that move the elements between a memory in which they lie `step` bytes apart, and
    /// a parcel that holds them one behind the other.
    pub fn packing(
        &self,
        width: usize,
        step: isize,
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        self.beside_parcel().flat_map(move |(strand, packed)| {
            let half = strand.beside(&packed, |pair, parcel| Pair {
                stored: parcel,
                memory: pair.memory,
            });
            copies_of(half, width, step, direction)
        })
    }

    /// The copies that move the elements between a parcel of [`ListPiece::packing`], in the place
    /// of the memory, and the buffer.
    pub fn unpacking(
        &self,
        width: usize,
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        self.beside_parcel().flat_map(move |(strand, packed)| {
            let half = strand.beside(&packed, |pair, parcel| Pair {
                stored: pair.stored,
                memory: parcel,
            });
            copies_of(half, width, width as isize, direction)
        })
    }

    /// The strands, each with the series of its places in a parcel.
    fn beside_parcel(&self) -> impl Iterator<Item = (&Strand, Series<i64>)> {
        let mut place = 0;
        self.strands.iter().map(move |strand| {
            let mut packed = Series::run(place, strand.length);
            let mut elements = strand.length;
            for inner in strand.loops.iter().rev() {
                packed.repeat(inner.count, elements);
                elements *= inner.count;
            }
            place += elements;
            (strand, packed)
        })
    }

    /// Copies the elements, of `width` bytes each, from `memory` into `buffer`.
    ///
    /// # Panics
    /// If the piece is not in the two: see [`ListPiece::is_in`].
    pub fn gather(&self, width: usize, memory: &[u8], buffer: &mut [u8]) {
        self.assert_in(width, memory.len(), buffer.len());
        // SAFETY: the piece lies in both, and a buffer that is borrowed mutably is not the memory.
        unsafe {
            self.copy(
                width,
                memory.as_ptr(),
                buffer.as_mut_ptr(),
                Direction::Gather,
            )
        }
    }

    /// Copies the elements, of `width` bytes each, from `buffer` into `memory`.
    ///
    /// # Panics
    /// If the piece is not in the two: see [`ListPiece::is_in`].
    pub fn scatter(&self, width: usize, buffer: &[u8], memory: &mut [u8]) {
        self.assert_in(width, memory.len(), buffer.len());
        // SAFETY: the piece lies in both, and a memory that is borrowed mutably is not the buffer.
        unsafe {
            self.copy(
                width,
                buffer.as_ptr(),
                memory.as_mut_ptr(),
                Direction::Scatter,
            )
        }
    }

    fn assert_in(&self, width: usize, memory: usize, buffer: usize) {
        let elements = |bytes: usize| exact::<u64>(bytes / width);
        assert!(
            self.is_in(elements(memory), elements(buffer)),
            "a piece reaches {:?} of {memory} bytes of memory, {:?} of {buffer} bytes of buffer",
            self.memory_bounds(),
            self.buffer_bounds()
        );
    }

    /// Copies the elements from `source` to `target`. Where a piece reaches an element of the
    /// target twice, one of the two values stays.
    ///
    /// # Safety
    /// The memory and the buffer must begin at the two pointers and hold the piece, in the sense of
    /// [`ListPiece::is_in`], as elements of `width` bytes. The source must be readable, the target
    /// writable, and the two must not overlap. Nothing need be aligned.
    unsafe fn copy(&self, width: usize, source: *const u8, target: *mut u8, direction: Direction) {
        for copy in self.copies(width, width as isize, direction) {
            // SAFETY: the caller vouches for all places of all strands.
            unsafe { copy.run(source, target) };
        }
    }
}

/// The copies of one strand. Where turns reach into each other in the target, each run is a copy of
/// its own.
fn copies_of(
    strand: Strand,
    width: usize,
    step: isize,
    direction: Direction,
) -> impl Iterator<Item = StridedCopy> {
    let is_target_nested = match direction {
        _ if strand.loops.is_empty() => true,
        Direction::Gather => strand.seen(|pair| pair.stored).is_nested(),
        Direction::Scatter => strand.seen(|pair| pair.memory).is_nested(),
    };
    let strands = match is_target_nested {
        true => vec![strand],
        false => {
            let starts = strand.starts();
            starts
                .map(|start| Strand::run(start, strand.length))
                .collect()
        }
    };
    strands.into_iter().map(move |strand| {
        let mut copy = strand.copy(width, step, direction);
        copy.simplify();
        copy
    })
}
