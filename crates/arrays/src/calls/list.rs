//! The list of one rank: what it holds of an array, element by element.

use std::sync::{Arc, OnceLock};

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::{Holding, List, Share, exact, row_major_strides};

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

    /// Makes the list of a rank's shares in a thinned array: of every so many-th element of an
    /// array of this shape along each dimension. The shares lie in the local array one behind the
    /// other, each row-major.
    ///
    /// # Errors
    /// [`Kind::Schema`] when elements lie beyond the array.
    pub fn thinned(shape: &[u64], every: &[u64], shares: &[Share]) -> Result<Self> {
        let (mut file, mut places, mut elements) = (Vec::new(), Vec::new(), 0);
        for share in shares.iter().filter(|share| share.elements() > 0) {
            for turns in turns_of(shape, every, share) {
                let of = |side: fn(&Turn) -> (u64, u64), first: u64| {
                    let loops = turns.loops.iter().map(|turn| {
                        let (count, stride) = side(turn);
                        (count, exact::<i64>(stride))
                    });
                    List::strided(first, 1, &loops.collect::<Vec<_>>()).map_err(of_layout)
                };
                file.push(of(|turn| (turn.count, turn.in_file), turns.in_file)?);
                let first = elements + turns.in_memory;
                places.push(of(|turn| (turn.count, turn.in_memory), first)?);
            }
            elements += share.elements();
        }
        let file = List::concat(file).map_err(of_layout)?;
        let places = List::concat(places).map_err(of_layout)?;
        file.check(elements_of(shape)).map_err(of_layout)?;
        let holding = Holding::new(&file, &places).map_err(of_layout)?;
        Ok(Self {
            holding: Arc::new(holding),
            elements,
            ..Self::default()
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

    /// Checks that the elements are of an array of this shape.
    ///
    /// # Errors
    /// [`Kind::Schema`] when they are not.
    pub(super) fn check_within(&self, shape: &[u64]) -> Result<()> {
        let end = self.holding.file_bounds().unwrap_or_default().end;
        if end > elements_of(shape) {
            let cause = format!("it reaches to element {end} of an array of shape {shape:?}");
            return Err(Error::new(Kind::Schema, "using a list", cause));
        }
        Ok(())
    }

    /// Checks that the elements of an array of this shape can be written from, or read into, a
    /// local array of these extents.
    ///
    /// # Errors
    /// [`Kind::Overlap`] when an element is written twice, or a place is read into twice;
    /// [`Kind::Schema`] when the array or the local array is of other extents.
    pub fn check(&self, operation: Operation, shape: &[u64], local: &[u64]) -> Result<()> {
        self.check_within(shape)?;
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

/// A loop over elements: how often, and from one to the next in the array and in memory.
#[derive(Clone, Copy)]
struct Turn {
    count: u64,
    in_file: u64,
    in_memory: u64,
}

/// Loops over a part of a share, from these places on.
#[derive(Clone, Default)]
struct Turns {
    in_file: u64,
    in_memory: u64,
    loops: Vec<Turn>,
}

/// The loops over a share of a thinned array: whole blocks of each dimension, and what is left of
/// the last block, in all combinations.
fn turns_of(shape: &[u64], every: &[u64], share: &Share) -> Vec<Turns> {
    let (in_array, in_local) = (
        row_major_strides(shape),
        row_major_strides(&share.extents()),
    );
    let mut all = vec![Turns::default()];
    let dims = share.dims().iter().zip(every).zip(in_array).zip(in_local);
    for (((dim, step), in_array), in_local) in dims {
        let (first, block, stride, extent) = dim.comb();
        let (whole, rest) = (extent / block, extent % block);
        let each = |count, index: u64, place: u64| {
            (count > 0).then_some(Turn {
                count,
                in_file: index.saturating_mul(*step).saturating_mul(in_array),
                in_memory: place.saturating_mul(in_local),
            })
        };
        let inner = each(block, 1, 1);
        let outer = each(whole, if whole > 1 { stride } else { 0 }, block);
        let tail = each(rest, 1, 1);
        let past = if rest > 0 {
            whole.saturating_mul(stride)
        } else {
            0
        };
        let parts = [
            (0, 0, outer.map(|outer| vec![Some(outer), inner])),
            (past, whole * block, tail.map(|tail| vec![Some(tail)])),
        ];
        let mut longer = Vec::new();
        for (index, place, loops) in parts {
            let Some(loops) = loops else { continue };
            longer.extend(all.iter().map(|turns| {
                Turns {
                    in_file: turns.in_file + (first + index) * step * in_array,
                    in_memory: turns.in_memory + place * in_local,
                    loops: turns
                        .loops
                        .iter()
                        .copied()
                        .chain(loops.iter().copied().flatten())
                        .collect(),
                }
            }));
        }
        all = longer;
    }
    for turns in &mut all {
        turns.loops.retain(|turn| turn.count > 1);
    }
    all
}

/// The number of elements of an array.
pub(super) fn elements_of(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n))
}
