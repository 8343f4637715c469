//! Views: which bytes of a file a rank sees, and in which order (MPI 5.0, section 14.3).
//!
//! A view begins at a displacement. From there on the filetype is laid out, one tile behind the
//! other, and the rank sees the bytes that have data in them, as one sequence:
//!
//! ```text
//! displacement 4, filetype of 2 bytes in 6     . . . . a b . . . . c d . . . . e f
//! data of the view                             a b c d e f
//! ```
//!
//! In an *orderly* view the places of data ascend. A view that is only read may have bytes twice,
//! or go back: the standard allows the first, and no harm comes of the second.

use std::ops::Range;
use std::sync::Arc;

use penstock_layout::List;
use penstock_machines::mpi::abi::Handle;

use crate::failure::{Class, Result, wrong};
use crate::flat::Type;
use crate::mpi::Mpi;
use crate::representation::Representation;
use crate::tree::{Series, walk_turns};
use crate::types;

/// A view says which bytes of a file a rank sees.
#[derive(Debug)]
pub struct View {
    /// The byte of the file at which the first tile begins.
    pub displacement: i64,
    /// The elementary type, whose handle the view owns if it is a derived one.
    pub etype: Handle,
    /// The type of a tile, whose handle the view owns if it is a derived one.
    pub filetype: Handle,
    /// How items are written.
    pub representation: Representation,
    /// The bytes of an elementary type in the file.
    pub etype_bytes: u64,
    /// The extent of an elementary type in the file.
    pub etype_extent: i64,
    /// A tile, in the file.
    tile: Arc<Type>,
    is_contiguous: bool,
    is_orderly: bool,
}

impl View {
    /// The view of a new file: all of its bytes.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn of_bytes(mpi: &Mpi) -> Result<Self> {
        let byte = mpi.dialect.constants.byte;
        Self::new(mpi, 0, byte, byte, Representation::Native)
    }

    /// Makes a view. The handles must stay valid as long as it.
    ///
    /// # Errors
    /// When a filetype is not made of elementary types, or reaches back before its beginning.
    pub fn new(
        mpi: &Mpi,
        displacement: i64,
        etype: Handle,
        filetype: Handle,
        representation: Representation,
    ) -> Result<Self> {
        let setting = "setting a view";
        if displacement < 0 {
            let cause = format!("{setting}: the displacement is {displacement}");
            return Err(wrong(Class::Arg, cause));
        }
        let element = types::in_file(mpi, etype, &representation)?;
        let tile = types::in_file(mpi, filetype, &representation)?;
        let (bytes, size) = (element.size(), tile.size());
        if bytes == 0 && size > 0 || bytes > 0 && size % bytes > 0 {
            let cause = format!(
                "{setting}: a filetype of {size} bytes is not made of elementary types of {bytes}"
            );
            return Err(wrong(Class::Arg, cause));
        }
        let bounds = tile.tree.bounds();
        if bounds.start < 0 || size > 0 && tile.extent < 0 {
            let cause = format!("{setting}: the filetype has displacements below 0");
            return Err(wrong(Class::Arg, cause));
        }
        Ok(Self {
            displacement,
            etype,
            filetype,
            representation,
            etype_bytes: bytes,
            etype_extent: element.extent,
            is_contiguous: tile.is_dense(),
            is_orderly: tile.tree.ascends() && bounds.end - bounds.start <= tile.extent,
            tile,
        })
    }

    /// Whether the data of the view lie one behind the other in the file.
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Whether the places of the data ascend: only then can the view be written.
    pub fn is_orderly(&self) -> bool {
        self.is_orderly
    }

    /// Whether the view has no data at all.
    pub fn is_empty(&self) -> bool {
        self.tile.size() == 0
    }

    /// The byte of the data at which an offset, in elementary types, begins.
    ///
    /// # Errors
    /// [`Class::Arg`] when that is below 0 or beyond all numbers.
    pub fn data_at(&self, offset: i64) -> Result<u64> {
        let data = u64::try_from(offset).ok();
        let data = data.and_then(|offset| offset.checked_mul(self.etype_bytes));
        data.filter(|data| i64::try_from(*data).is_ok())
            .ok_or_else(|| wrong(Class::Arg, format_args!("an access at offset {offset}")))
    }

    /// The byte of the file at which a byte of the data lies. Behind the last byte of a tile is the
    /// first of the next.
    pub fn place(&self, data: u64) -> i64 {
        let size = self.tile.size();
        if size == 0 {
            return self.displacement;
        }
        let mut place = 0;
        self.walk(data..data + 1, &mut |series| place = series.start);
        place
    }

    /// The first byte of the file in a part of the data, and one past the last; or some more, if
    /// the view is not orderly.
    pub fn bounds(&self, data: Range<u64>) -> Range<u64> {
        if data.is_empty() || self.is_empty() {
            return 0..0;
        }
        if self.is_orderly {
            return self.place(data.start) as u64..self.place(data.end - 1) as u64 + 1;
        }
        let (size, within) = (self.tile.size(), self.tile.tree.bounds());
        let origin = |turn: u64| self.displacement + turn as i64 * self.tile.extent;
        let (first, last) = (origin(data.start / size), origin((data.end - 1) / size));
        (first + within.start) as u64..(last + within.end) as u64
    }

    /// The end of the part of the data that lies before the end of a file.
    pub fn end_within(&self, data: Range<u64>, file_bytes: u64) -> u64 {
        if self.is_orderly {
            return self.data_before(file_bytes).clamp(data.start, data.end);
        }
        let file_bytes = i64::try_from(file_bytes).unwrap_or(i64::MAX);
        let (mut end, mut is_before) = (data.start, true);
        self.walk(data, &mut |series| {
            series.runs(&mut |start, length| {
                let before = (file_bytes - start).clamp(0, length as i64) as u64;
                if is_before {
                    end += before;
                }
                is_before &= before == length;
            });
        });
        end
    }

    /// Gives `sink` the series of a part of the data.
    pub fn walk(&self, data: Range<u64>, sink: &mut dyn FnMut(Series)) {
        let turns = (self.displacement, self.tile.extent);
        walk_turns(&self.tile.tree, turns, data, sink);
    }

    /// The bytes of the file that a part of the data is.
    ///
    /// # Errors
    /// When a byte lies beyond all numbers.
    pub fn list(&self, data: Range<u64>) -> Result<List> {
        list_of(0, |sink| self.walk(data, sink))
    }

    /// About how many series a part of the data is.
    pub fn series(&self, data: &Range<u64>) -> u64 {
        series_of(&self.tile, data.end - data.start)
    }

    /// About how many runs a part of the data is.
    pub fn runs(&self, data: &Range<u64>) -> u64 {
        let bytes = data.end - data.start;
        match self.is_contiguous {
            true => u64::from(bytes > 0),
            false => share(self.tile.tree.run_count(), bytes, self.tile.size()),
        }
    }

    /// How many bytes of data lie before a byte of the file, if the view is orderly.
    pub fn data_before(&self, place: u64) -> u64 {
        let (tree, extent) = (&self.tile.tree, self.tile.extent);
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        let into = place.saturating_sub(self.displacement);
        let first = tree.bounds().start;
        if into <= first || tree.size() == 0 {
            return 0;
        }
        // The tiles whose first bytes lie before the place: only the last may reach beyond it.
        let begun = match extent {
            0 => 1,
            extent => (into - first - 1) / extent + 1,
        };
        let whole = begun - 1;
        whole as u64 * tree.size() + tree.data_before(into - whole * extent)
    }

    /// The offset, in elementary types, at which the data behind the end of a file begin.
    pub fn offset_of_end(&self, file_bytes: u64) -> i64 {
        match self.etype_bytes {
            0 => 0,
            bytes => self.data_before(file_bytes).div_ceil(bytes) as i64,
        }
    }
}

/// About how many series some bytes of several of a type are.
pub fn series_of(datatype: &Type, bytes: u64) -> u64 {
    match datatype.tree.series() {
        1 => u64::from(bytes > 0), // tiles of one series are a series
        series => share(series, bytes, datatype.size()),
    }
}

/// How many of something some bytes have, if `size` bytes have `all`; one at least if there are
/// any.
fn share(all: u64, bytes: u64, size: u64) -> u64 {
    if size == 0 || bytes == 0 {
        return 0;
    }
    let share = u128::from(all) * u128::from(bytes) / u128::from(size);
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// The list of the series that `walk` gives its sink, `distance` bytes back.
///
/// # Errors
/// When a byte lies below 0 or beyond all numbers.
pub fn list_of(distance: i64, walk: impl FnOnce(&mut dyn FnMut(Series))) -> Result<List> {
    let (mut list, mut added) = (List::default(), Ok(()));
    walk(&mut |series| {
        if added.is_ok() {
            let start = (series.start - distance) as u64; // below 0 it lies beyond all numbers
            added = list.add(start, series.length, &series.loops);
        }
    });
    match added {
        Ok(()) => Ok(list),
        Err(error) => Err(wrong(Class::Arg, error)),
    }
}
