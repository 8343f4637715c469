//! A list of elements: series one behind the other, in an order that has a meaning.

use std::fmt::{Debug, Display};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::overlap::{are_disjoint, are_disjoint_within};
use super::series::{Loop, Series, append};
use crate::error::LayoutError;

/// A list is a sequence of elements, by their offsets in a file's array or in a memory, in an order
/// that has a meaning: the first element of a list in a file goes with the first of one in memory.
///
/// A list that comes from elsewhere has no overflow in it, but it may reach anywhere below
/// 2^63 - 1: ask [`List::check`] before it is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct List {
    #[serde(deserialize_with = "sound")]
    series: Vec<Series<i64>>,
}

/// Reads series and refuses such as overflow.
fn sound<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<Series<i64>>, D::Error> {
    let series = Vec::<Series<i64>>::deserialize(source)?;
    if let Some(wrong) = series.iter().find(|series| !is_sound(series)) {
        return Err(serde::de::Error::custom(reach_error(wrong)));
    }
    let list = List { series };
    let elements = list.checked_elements();
    elements.map_err(serde::de::Error::custom)?;
    Ok(list.series)
}

/// Whether the series has an element, and no number of it overflows.
fn is_sound(series: &Series<i64>) -> bool {
    series.counted().is_some() && series.is_within(i64::MAX, |place| place)
}

fn reach_error(series: &Series<i64>) -> LayoutError {
    let loops = series.loops.iter();
    let loops: Vec<_> = loops.map(|inner| (inner.count, inner.stride)).collect();
    beyond_reach(&series.start, &series.length, &loops)
}

fn beyond_reach(start: &dyn Display, length: &dyn Display, loops: &dyn Debug) -> LayoutError {
    let series =
        format!("runs of {length} elements from {start} on, repeated {loops:?} times and strides,");
    LayoutError::ListReach { series }
}

impl List {
    /// Makes the list of runs: `lengths[i]` elements from `offsets[i]` on. Runs of no elements are
    /// left out, runs that touch become one, and runs at regular distances become a series: in time
    /// in proportion to the runs.
    ///
    /// # Errors
    /// When there is not one length for each offset, or when a run ends, or all runs together have
    /// more elements than, 2^63 - 1.
    pub fn runs(offsets: &[u64], lengths: &[u64]) -> Result<Self, LayoutError> {
        if offsets.len() != lengths.len() {
            return Err(LayoutError::RunCounts {
                offsets: offsets.len(),
                lengths: lengths.len(),
            });
        }
        let mut series = Vec::new();
        for (&offset, &length) in offsets.iter().zip(lengths) {
            if let Some(run) = checked_series(offset, length, &[])? {
                append(&mut series, run);
            }
        }
        Self { series }.checked()
    }

    /// Makes the list of a run of `length` elements from `start` on that is repeated in nested
    /// loops, each a count and a stride in elements, the first outermost. A count of zero makes the
    /// list empty; strides may be negative.
    ///
    /// # Errors
    /// When an element lies below 0 or beyond 2^63 - 1, or when there are more elements.
    pub fn strided(start: u64, length: u64, loops: &[(u64, i64)]) -> Result<Self, LayoutError> {
        let series = checked_series(start, length, loops)?;
        Self {
            series: series.into_iter().collect(),
        }
        .checked()
    }

    /// Makes the list of the elements of `lists`, one list behind the other.
    ///
    /// # Errors
    /// When there are more than 2^63 - 1 elements.
    pub fn concat(lists: impl IntoIterator<Item = List>) -> Result<Self, LayoutError> {
        let mut series = Vec::new();
        for next in lists.into_iter().flat_map(|list| list.series) {
            append(&mut series, next);
        }
        Self { series }.checked()
    }

    /// Adds a run of `length` elements from `start` on, repeated in nested loops as
    /// [`List::strided`] says, behind the elements of the list. The whole list must have no more
    /// than 2^63 - 1 elements: else what asks for their number panics.
    ///
    /// # Errors
    /// As [`List::strided`].
    pub fn add(
        &mut self,
        start: u64,
        length: u64,
        loops: &[(u64, i64)],
    ) -> Result<(), LayoutError> {
        if let Some(series) = checked_series(start, length, loops)? {
            append(&mut self.series, series);
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, LayoutError> {
        self.checked_elements()?;
        Ok(self)
    }

    fn checked_elements(&self) -> Result<i64, LayoutError> {
        let mut counts = self.series.iter().map(Series::counted);
        let sum = counts.try_fold(0i64, |sum, count| sum.checked_add(count?));
        sum.ok_or(LayoutError::ListTooLong {
            series: self.series.len(),
        })
    }

    /// Refuses a list that is not inside an array, or a memory, of `extent` elements.
    ///
    /// # Errors
    /// When an element lies beyond.
    pub fn check(&self, extent: u64) -> Result<(), LayoutError> {
        for series in &self.series {
            let (low, end) = series.bounds(|place| place);
            let (start, end) = (low.unsigned_abs(), end.unsigned_abs());
            if end > extent {
                return Err(LayoutError::ListOutside { start, end, extent });
            }
        }
        Ok(())
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        let counts = self.series.iter().map(Series::elements);
        counts.sum::<i64>().unsigned_abs()
    }

    /// The bytes of the elements, of `width` bytes each; the highest number if no `u64` holds them.
    pub fn bytes(&self, width: u64) -> u64 {
        self.elements().saturating_mul(width)
    }

    /// Whether the list has no element.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The lowest offset and one past the highest; `None` if the list is empty.
    pub fn bounds(&self) -> Option<Range<u64>> {
        bounds_of(
            self.series
                .iter()
                .map(|series| series.bounds(|place| place)),
        )
    }

    /// Whether no element is in the list twice. A list that is to be written must be so.
    ///
    /// The answer takes `O(1)` for one series whose loops do not reach into each other, and
    /// `O(n log n)` for n series whose bounds are apart. Series that interleave are compared by the
    /// common divisors of their strides; where that does not show that they are apart, they are
    /// halved, down to runs if need be.
    pub fn is_disjoint(&self) -> bool {
        are_disjoint(self.series.iter().cloned())
    }

    /// As [`List::is_disjoint`]; nothing if a search of `steps_max` steps does not tell. Take this
    /// for lists that come from elsewhere.
    pub fn is_disjoint_within(&self, steps_max: u64) -> Option<bool> {
        are_disjoint_within(self.series.iter().cloned(), steps_max)
    }

    /// The number of series and single runs that the list is kept as.
    pub fn series(&self) -> usize {
        self.series.len()
    }

    /// The runs in order, each an offset and a length.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.series.iter().flat_map(|series| {
            let length = series.length.unsigned_abs();
            series
                .starts()
                .map(move |start| (start.unsigned_abs(), length))
        })
    }

    /// The series in order.
    pub(super) fn as_series(&self) -> &[Series<i64>] {
        &self.series
    }
}

/// The smallest range around `bounds`; `None` if there are none.
pub(super) fn bounds_of(bounds: impl Iterator<Item = (i64, i64)>) -> Option<Range<u64>> {
    let around = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    around.map(|(low, end)| low.unsigned_abs()..end.unsigned_abs())
}

/// Makes a series of numbers that come from elsewhere; `None` if it has no elements.
fn checked_series(
    start: u64,
    length: u64,
    loops: &[(u64, i64)],
) -> Result<Option<Series<i64>>, LayoutError> {
    if length == 0 || loops.iter().any(|&(count, _)| count == 0) {
        return Ok(None);
    }
    let signed = |number: u64| i64::try_from(number).ok();
    let inner = |&(count, stride): &(u64, i64)| {
        let count = signed(count)?;
        Some(Loop { count, stride })
    };
    let several = loops.iter().filter(|(count, _)| *count > 1);
    let series = || {
        let series = Series {
            start: signed(start)?,
            length: signed(length)?,
            loops: several.map(inner).collect::<Option<_>>()?,
        };
        Some(series).filter(is_sound)
    };
    let Some(mut series) = series() else {
        return Err(beyond_reach(&start, &length, &loops));
    };
    series.merge();
    Ok(Some(series))
}
