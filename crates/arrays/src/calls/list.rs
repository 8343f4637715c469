//! The list of one rank: what it holds of an array, element by element.

use std::sync::{Arc, OnceLock};

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::{Holding, List};

use crate::schema::of_layout;

/// A rank list is the elements that a rank holds of an array, in an order of the rank's own, and
/// their places in the rank's local array, which has one dimension.
#[derive(Debug, Clone, Default)]
pub struct RankList {
    holding: Arc<Holding>,
    /// The elements that the local array has, or has at least if places were given.
    elements: u64,
    has_places: bool,
    is_disjoint_in_file: OnceLock<bool>,
    is_disjoint_in_memory: OnceLock<bool>,
}

impl PartialEq for RankList {
    fn eq(&self, other: &Self) -> bool {
        let key = |list: &Self| (list.elements, list.has_places);
        key(self) == key(other) && self.holding == other.holding
    }
}

impl RankList {
    /// Makes the list of the elements `file` of an array of this shape, counted in row-major order.
    /// They lie in the local array at `places`, or one behind the other without those.
    ///
    /// # Errors
    /// [`Kind::Schema`] when elements lie beyond the array, and when there are not as many places.
    pub fn new(shape: &[u64], file: &List, places: Option<&List>) -> Result<Self> {
        file.check(elements_of(shape)).map_err(of_layout)?;
        let count = file.elements();
        let dense = List::strided(0, count.max(1), &[(count.min(1), 1)]).map_err(of_layout)?;
        let holding = Holding::new(file, places.unwrap_or(&dense)).map_err(of_layout)?;
        let bounds = holding.memory_bounds().unwrap_or_default();
        Ok(Self {
            holding: Arc::new(holding),
            elements: bounds.end,
            has_places: places.is_some(),
            is_disjoint_in_file: OnceLock::new(),
            is_disjoint_in_memory: OnceLock::new(),
        })
    }

    /// The elements, with their places.
    pub fn holding(&self) -> &Arc<Holding> {
        &self.holding
    }

    /// The shape of the local array; the smallest, if places were given.
    pub fn local_shape(&self) -> Vec<u64> {
        vec![self.elements]
    }

    /// Checks that the elements of an array of this shape can be written from, or read into, a
    /// local array of these extents.
    ///
    /// # Errors
    /// [`Kind::Overlap`] when an element is written twice, or a place is read into twice;
    /// [`Kind::Schema`] when the array or the local array is of other extents.
    pub fn check(&self, operation: Operation, shape: &[u64], local: &[u64]) -> Result<()> {
        let end = self.holding.file_bounds().unwrap_or_default().end;
        if end > elements_of(shape) {
            let cause = format!("it reaches to element {end} of an array of shape {shape:?}");
            return Err(Error::new(Kind::Schema, "using a list", cause));
        }
        let fits = match (local, self.has_places) {
            (&[extent], false) => extent == self.elements,
            (&[extent], true) => extent >= self.elements,
            _ => false,
        };
        if !fits {
            let least = if self.has_places { "at least " } else { "" };
            let cause = format!(
                "its shape is {local:?}, and the list needs {least}{} elements in one dimension",
                self.elements
            );
            return Err(Error::new(Kind::Schema, "bringing the local part", cause));
        }
        let holding = &self.holding;
        let (is_disjoint, cause) = match operation {
            Operation::Write => (
                self.is_disjoint_in_file
                    .get_or_init(|| holding.is_disjoint_in_file()),
                "this rank writes an element twice",
            ),
            Operation::Read => (
                self.is_disjoint_in_memory
                    .get_or_init(|| holding.is_disjoint_in_memory()),
                "this rank reads two elements to one place",
            ),
        };
        match is_disjoint {
            true => Ok(()),
            false => Err(Error::new(Kind::Overlap, "using a list", cause)),
        }
    }
}

/// The number of elements of an array.
fn elements_of(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n))
}
