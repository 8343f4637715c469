//! Lists of elements: `penstock_list`.

use std::ffi::c_int;

use penstock_arrays::calls::list::RankList;
use penstock_arrays::of_layout;
use penstock_engine::Result;
use penstock_layout::List as Elements;

use crate::border::{Many, Place, answer, enter, needed, wrong};

/// `penstock_list`.
pub struct List(Elements);

/// The list of a rank for an array of this shape.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] without a list, and when the array lacks some of its elements.
pub fn for_shape(shape: &[u64], list: Option<&List>, places: Option<&List>) -> Result<RankList> {
    let list = needed(list, "the list")?;
    RankList::new(shape, &list.0, places.map(|places| &places.0))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_list_runs(
    count: usize,
    offsets: Many<'_, u64>,
    lengths: Many<'_, u64>,
    mut list: Place<'_, Option<Box<List>>>,
) -> c_int {
    enter(|| {
        list.put(None);
        list.check("the list")?;
        let offsets = offsets.needed(count, "offsets")?;
        let lengths = lengths.needed(count, "lengths")?;
        list.put_handle(List(Elements::runs(offsets, lengths).map_err(of_layout)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_list_strided(
    start: u64,
    length: u64,
    loops: usize,
    counts: Many<'_, u64>,
    strides: Many<'_, i64>,
    mut list: Place<'_, Option<Box<List>>>,
) -> c_int {
    enter(|| {
        list.put(None);
        list.check("the list")?;
        let counts = counts.needed(loops, "counts")?;
        let strides = strides.needed(loops, "strides")?;
        let numbers = counts.iter().chain([&start, &length]);
        for number in numbers {
            i64::try_from(*number).map_err(|_| wrong(format!("{number} is too large")))?;
        }
        let loops: Vec<(u64, i64)> = counts
            .iter()
            .copied()
            .zip(strides.iter().copied())
            .collect();
        list.put_handle(List(
            Elements::strided(start, length, &loops).map_err(of_layout)?,
        ));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_list_elements(list: Option<&List>) -> u64 {
    answer(0, || list.map_or(0, |list| list.0.elements()))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_list_free(list: Option<Box<List>>) {
    answer((), || drop(list));
}
