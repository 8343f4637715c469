//! What one rank holds, as a list of elements of the array and a list of places in its memory.

use std::ops::Range;

use super::cut::{Halves, NO_PERIOD, split};
use super::elements::{List, bounds_of};
use super::overlap::are_disjoint;
use super::pairing::pair;
use super::piece::ListPiece;
use super::pieces::Pieces;
use super::series::{Strand, arrange_all};
use crate::disk::DiskSchema;
use crate::error::LayoutError;

/// A holding is the elements that one rank holds of an array, each with its place in the rank's
/// memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Strands by ascending first element of the file.
    strands: Vec<Strand>,
}

impl Holding {
    /// Makes the holding in which element `i` of `file`, which counts the elements of an array in
    /// row-major order, lies in memory at element `i` of `memory`. Neither need be in order.
    ///
    /// # Errors
    /// When the lists have different numbers of elements.
    pub fn new(file: &List, memory: &List) -> Result<Self, LayoutError> {
        if file.elements() != memory.elements() {
            return Err(LayoutError::ListCounts {
                file: file.elements(),
                memory: memory.elements(),
            });
        }
        Ok(Self {
            strands: arrange_all(pair(file.as_series(), memory.as_series())),
        })
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

    /// Whether the holding has no element.
    pub fn is_empty(&self) -> bool {
        self.strands.is_empty()
    }

    /// The number of series and single runs that the holding is kept as.
    pub fn series(&self) -> usize {
        self.strands.len()
    }

    /// The lowest element of the array and one past the highest; `None` if the holding is empty.
    pub fn file_bounds(&self) -> Option<Range<u64>> {
        bounds_of(
            self.strands
                .iter()
                .map(|strand| strand.bounds(|pair| pair.stored)),
        )
    }

    /// The lowest place in memory and one past the highest; `None` if the holding is empty.
    pub fn memory_bounds(&self) -> Option<Range<u64>> {
        bounds_of(
            self.strands
                .iter()
                .map(|strand| strand.bounds(|pair| pair.memory)),
        )
    }

    /// Whether no element of the array is held twice: what is to be written must be so. The answer
    /// costs as much as [`List::is_disjoint`].
    pub fn is_disjoint_in_file(&self) -> bool {
        are_disjoint(
            self.strands
                .iter()
                .map(|strand| strand.seen(|pair| pair.stored)),
        )
    }

    /// Whether no place in memory is used twice: what is to be read into must be so. The answer
    /// costs as much as [`List::is_disjoint`].
    pub fn is_disjoint_in_memory(&self) -> bool {
        are_disjoint(
            self.strands
                .iter()
                .map(|strand| strand.seen(|pair| pair.memory)),
        )
    }

    /// The part of the holding before element `end` of the array.
    #[must_use]
    pub fn before(self, end: u64) -> Self {
        let Ok(end) = i64::try_from(end) else {
            return self; // no element lies so far
        };
        let mut halves = Halves::default();
        for strand in self.strands {
            split(strand, NO_PERIOD, end, &mut halves);
        }
        Self {
            strands: arrange_all(halves.below),
        }
    }

    /// The pieces of the holding in the blocks of `schema`, in file order. No block is named in
    /// which the holding has no element.
    ///
    /// # Panics
    /// If the holding has elements beyond the array: see [`List::check`].
    pub fn pieces<'a>(&'a self, schema: &'a DiskSchema) -> Pieces<'a> {
        let end = self.file_bounds().map_or(0, |bounds| bounds.end);
        let elements: u64 = schema.shape().iter().product();
        assert!(
            end <= elements,
            "a holding reaches to element {end} of an array of {elements}"
        );
        Pieces::new(&self.strands, schema)
    }
}

impl From<Holding> for ListPiece {
    /// The holding as the piece of one block, which is the whole array.
    fn from(holding: Holding) -> Self {
        Self::new(holding.strands)
    }
}
