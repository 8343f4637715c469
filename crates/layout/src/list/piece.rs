//! The part of a holding in one block, and its copy between a memory and the block's buffer.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::elements::bounds_of;
use super::series::{Pair, Series, Strand, arrange_all};
use crate::copy::StridedCopy;
use crate::error::LayoutError;
use crate::exact::exact;
use crate::share::Direction;

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

    /// Whether the piece lies in a memory and in a buffer of these numbers of elements, and has no
    /// more elements than the larger of them: a piece of a holding that may be read or written
    /// has not. The answer takes time in proportion to the series. Ask before a piece is used that
    /// has come from elsewhere.
    pub fn is_in(&self, memory_elements: u64, buffer_elements: u64) -> bool {
        let ends_in = |bounds: Option<Range<u64>>, extent: u64| {
            bounds.is_none_or(|bounds| bounds.end <= extent)
        };
        ends_in(self.memory_bounds(), memory_elements)
            && ends_in(self.buffer_bounds(), buffer_elements)
            && self.elements() <= memory_elements.max(buffer_elements)
    }

    /// Splits the way of the piece in two, through a parcel that holds the piece's elements one
    /// behind the other: a piece between the memory and the parcel (which is its buffer), and one
    /// between the parcel (which is its memory) and the block's buffer.
    pub fn by_parcel(&self) -> (ListPiece, ListPiece) {
        let mut place = 0;
        let mut parts = [Vec::new(), Vec::new()];
        for strand in &self.strands {
            let mut packed = Series::run(place, strand.length);
            let mut elements = strand.length;
            for inner in strand.loops.iter().rev() {
                packed.repeat(inner.count, elements);
                elements *= inner.count;
            }
            place += elements;
            let halves = [
                strand.beside(&packed, |pair, parcel| Pair {
                    stored: parcel,
                    memory: pair.memory,
                }),
                strand.beside(&packed, |pair, parcel| Pair {
                    stored: pair.stored,
                    memory: parcel,
                }),
            ];
            for (part, mut half) in parts.iter_mut().zip(halves) {
                half.merge();
                part.push(half);
            }
        }
        let [memory, buffer] = parts;
        (Self { strands: memory }, Self { strands: buffer })
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

    /// Copies the elements, of `width` bytes each, from `source` to `target`: from the memory to
    /// the buffer if `direction` is [`Direction::Gather`], otherwise from the buffer to the memory.
    /// Where a piece reaches an element of the target twice, one of the two values stays.
    ///
    /// # Safety
    /// The memory and the buffer must begin at the two pointers and hold the piece, in the sense of
    /// [`ListPiece::is_in`], as elements of `width` bytes. The source must be readable, the target
    /// writable, and the two must not overlap. Nothing need be aligned.
    pub unsafe fn copy(
        &self,
        width: usize,
        source: *const u8,
        target: *mut u8,
        direction: Direction,
    ) {
        for strand in &self.strands {
            let copy = strand.copy(width, direction);
            // SAFETY: the caller vouches for all places of all strands.
            unsafe { copy_strand(strand, copy, (source, target), direction) }
        }
    }
}

/// Copies one strand.
///
/// # Safety
/// Both sides must hold all places of the strand, and must not overlap.
unsafe fn copy_strand(
    strand: &Strand,
    copy: StridedCopy,
    (source, target): (*const u8, *mut u8),
    direction: Direction,
) {
    let mut copy = copy;
    let is_target_nested = match direction {
        _ if strand.loops.is_empty() => true,
        Direction::Gather => strand.seen(|pair| pair.stored).is_nested(),
        Direction::Scatter => strand.seen(|pair| pair.memory).is_nested(),
    };
    if is_target_nested {
        copy.simplify();
        // SAFETY: the caller vouches for all places, and no byte of the target is reached twice.
        unsafe { copy.run(source, target) };
        return;
    }
    // Turns may reach into each other, and perhaps overlap: each run is a copy of its own.
    let width = copy.width / exact::<usize>(strand.length);
    for start in strand.starts() {
        let run = Strand::run(start, strand.length);
        // SAFETY: the caller vouches for this run as for all.
        unsafe { run.copy(width, direction).run(source, target) };
    }
}
