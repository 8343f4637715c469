//! Views of files that are matrices: cells side by side, basic striping units (BSUs) down each
//! cell.
//!
//! Corbett and Feitelson, TOCS 1996, section 3.2. A view deals the BSUs out to subfiles as HPF
//! deals out a matrix, `CYCLIC(vbs)` over `vn` down the cells and `CYCLIC(hbs)` over `hn` across
//! them:
//!
//! ```text
//! cells 0 .. 5, view vbs 2, vn 2, hbs 1, hn 3      subfile 0: the number of each of its BSUs
//!          cell 0   1   2   3   4   5                        cell 0   3
//! BSU 0         0   1   2   0   1   2                   BSU 0     0   2
//!     1         0   1   2   0   1   2                       1     1   3
//!     2         3   4   5   3   4   5
//!     3         3   4   5   3   4   5
//!     4         0   1   2   0   1   2                       4     4   6
//! ```
//!
//! A subfile is a sequence of bytes. An access to a part of it becomes lists of bytes of cells, by
//! arithmetic alone: [`Subfile::access`] for all cells, [`Subfile::in_cell`] for one, which answers
//! who has a byte of that cell. Costs: a few series for each cell that the access touches, however
//! many bytes it has.
//!
//! A view may have more cells than the file, up to a multiple of `hbs * hn`. These *ghost cells*
//! take places in the subfile, and hold nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;
use crate::exact::exact;
use crate::list::List;

/// The highest number of bytes of a cell, and of a subfile.
pub const CELL_BYTES_MAX: u64 = 1 << 62;

/// A view deals the BSUs of a file out to disjoint subfiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "[u64; 4]", into = "[u64; 4]")]
pub struct View {
    vbs: u64,
    vn: u64,
    hbs: u64,
    hn: u64,
}

/// The order of the bytes of a subfile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubfileOrder {
    /// Down the cells within a block of `vbs` by `hbs` BSUs, and across the cells from block to
    /// block.
    #[default]
    Block,
    /// One BSU of each cell of the subfile after the other, row by row.
    Row,
    /// The bytes that [`SubfileOrder::Block`] gives to an access, all of a cell before those of the
    /// next: an order within one access.
    Column,
}

/// A subfile is one part of a file, as a view deals it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subfile {
    view: View,
    order: SubfileOrder,
    /// The cells of the file.
    cells: u64,
    bsu_bytes: u64,
    /// The subfile's column and row among the subfiles.
    column: u64,
    row: u64,
    /// The groups of `hbs * hn` cells; the last one may have ghosts.
    groups: u64,
}

/// The part of one cell in an access: byte `places[i]` of the cell goes with byte `memory[i]` of
/// the access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellAccess {
    /// The number of the cell.
    pub cell: u64,
    /// Bytes of the cell, ascending.
    pub places: List,
    /// Bytes of the access, counted from its first.
    pub memory: List,
}

/// A range of bytes of a subfile, in numbers that no product overflows.
#[derive(Clone, Copy)]
struct Bytes {
    start: u128,
    end: u128,
}

/// The runs of one cell in the sequence of a subfile: run `n` has `length` bytes from byte
/// `first + n * period` on.
#[derive(Clone, Copy)]
struct Runs {
    first: u128,
    length: u128,
    period: u128,
}

/// The turns of [`Runs`] that an access touches, and the part of the first and of the last.
struct Touched {
    turns: std::ops::RangeInclusive<u128>,
    /// Bytes of the first run that are before the access.
    skipped: u128,
    /// Bytes of the last run that are behind the access.
    spared: u128,
}

impl Runs {
    /// The turns that an access touches; `None` if it touches none.
    fn touched(&self, bytes: Bytes) -> Option<Touched> {
        if bytes.start == bytes.end {
            return None;
        }
        let Self {
            first,
            length,
            period,
        } = *self;
        // The first run that ends behind the start, and the last that begins before the end.
        let from = (bytes.start + 1)
            .saturating_sub(first + length)
            .div_ceil(period);
        let to = bytes.end.checked_sub(first + 1)? / period;
        let skipped = bytes.start.saturating_sub(first + from * period);
        let spared = (first + to * period + length).saturating_sub(bytes.end);
        (from <= to).then_some(Touched {
            turns: from..=to,
            skipped,
            spared,
        })
    }
}

impl View {
    /// Makes a view: `vbs` BSUs down and `hbs` cells across make a block; `vn` blocks down and `hn`
    /// across are of different subfiles.
    ///
    /// # Errors
    /// When a number is zero, or `vbs * vn` or `hbs * hn` beyond 2^62.
    pub fn new(vbs: u64, vn: u64, hbs: u64, hn: u64) -> Result<Self, LayoutError> {
        let is_bounded = |one: u64, other: u64| {
            let product = one.checked_mul(other);
            product.is_some_and(|product| (1..=CELL_BYTES_MAX).contains(&product))
        };
        match is_bounded(vbs, vn) && is_bounded(hbs, hn) && is_bounded(vn, hn) {
            true => Ok(Self { vbs, vn, hbs, hn }),
            false => Err(LayoutError::View {
                given: [vbs, vn, hbs, hn],
            }),
        }
    }

    /// The view whose one subfile is the whole file, striped over its cells by one BSU.
    pub fn striped() -> Self {
        Self {
            vbs: 1,
            vn: 1,
            hbs: 1,
            hn: 1,
        }
    }

    /// The numbers `vbs`, `vn`, `hbs` and `hn`.
    pub fn numbers(&self) -> [u64; 4] {
        [self.vbs, self.vn, self.hbs, self.hn]
    }

    /// The number of subfiles.
    pub fn subfiles(&self) -> u64 {
        self.vn * self.hn
    }

    /// The subfile of BSU `bsu` of `cell`.
    pub fn subfile_of(&self, cell: u64, bsu: u64) -> u64 {
        let Self { vbs, vn, hbs, hn } = *self;
        cell % (hbs * hn) / hbs + bsu % (vbs * vn) / vbs * hn
    }
}

impl TryFrom<[u64; 4]> for View {
    type Error = LayoutError;

    fn try_from([vbs, vn, hbs, hn]: [u64; 4]) -> Result<Self, LayoutError> {
        Self::new(vbs, vn, hbs, hn)
    }
}

impl From<View> for [u64; 4] {
    fn from(view: View) -> Self {
        view.numbers()
    }
}

impl Subfile {
    /// Makes subfile `number` of a view of a file of `cells` cells and BSUs of `bsu_bytes` bytes.
    ///
    /// # Errors
    /// When the view has no such subfile, or the file no cells, or a BSU no bytes, or a block of
    /// the view more than [`CELL_BYTES_MAX`] bytes of a cell.
    pub fn new(
        view: View,
        number: u64,
        order: SubfileOrder,
        (cells, bsu_bytes): (u64, u64),
    ) -> Result<Self, LayoutError> {
        let subfiles = view.subfiles();
        if number >= subfiles {
            return Err(LayoutError::Subfile { number, subfiles });
        }
        let run_bytes = bsu_bytes.checked_mul(view.vbs);
        let is_bounded = |number: u64| (1..=CELL_BYTES_MAX).contains(&number);
        if !is_bounded(cells) || !run_bytes.is_some_and(is_bounded) {
            return Err(LayoutError::Cells { cells, bsu_bytes });
        }
        Ok(Self {
            view,
            order,
            cells,
            bsu_bytes,
            column: number % view.hn,
            row: number / view.hn,
            groups: cells.div_ceil(view.hbs * view.hn),
        })
    }

    /// The view, the number of the subfile in it, and the order.
    pub fn opened(&self) -> (View, u64, SubfileOrder) {
        let number = self.column + self.row * self.view.hn;
        (self.view, number, self.order)
    }

    /// The cells of a row of the subfile, ghosts among them.
    fn width(&self) -> u128 {
        u128::from(self.groups) * u128::from(self.view.hbs)
    }

    /// The cells of a row of the subfile that are no ghosts: they take the first places of the row.
    fn cells_in_row(&self) -> u64 {
        let View { hbs, hn, .. } = self.view;
        let full = self.groups - 1;
        let before = full * hbs * hn + self.column * hbs;
        full * hbs + self.cells.saturating_sub(before).min(hbs)
    }

    /// The cell in this place of a row of the subfile.
    fn cell_at(&self, place: u64) -> u64 {
        let View { hbs, hn, .. } = self.view;
        place / hbs * hbs * hn + self.column * hbs + place % hbs
    }

    /// The place of a cell in a row of the subfile, if the subfile has any of the cell.
    fn place_of(&self, cell: u64) -> Option<u64> {
        let View { hbs, hn, .. } = self.view;
        let (group, within) = (cell / (hbs * hn), cell % (hbs * hn));
        let is_here = cell < self.cells && within / hbs == self.column;
        is_here.then(|| group * hbs + within % hbs)
    }

    /// The runs of the cell in this place of a row: a block's BSUs down the cell, or one BSU.
    fn runs(&self, place: u64) -> Runs {
        let length = self.run_bytes();
        Runs {
            first: u128::from(place) * length,
            length,
            period: self.width() * length,
        }
    }

    /// The bytes of a cell that lie together in the subfile's sequence.
    fn run_bytes(&self) -> u128 {
        let bsus = match self.order {
            SubfileOrder::Row => 1,
            SubfileOrder::Block | SubfileOrder::Column => self.view.vbs,
        };
        u128::from(bsus) * u128::from(self.bsu_bytes)
    }

    /// The parts of an access to `bytes` bytes of the subfile from byte `offset` on, one for each
    /// cell that it touches, by ascending cells. Ghost cells have none.
    ///
    /// # Errors
    /// When the access reaches beyond [`CELL_BYTES_MAX`] in the subfile or in a cell.
    pub fn access(&self, offset: u64, bytes: u64) -> Result<Vec<CellAccess>, LayoutError> {
        let range = self.range(offset, bytes)?;
        let mut before = 0;
        let mut parts = Vec::new();
        for place in self.places(range) {
            parts.extend(self.part(place, range, before)?);
            before += self.bytes_before_next(place, range);
        }
        Ok(parts)
    }

    /// The parts of an access to the bytes of a list, of which byte `places[i]` of the subfile goes
    /// with byte `memory[i]` of memory, one for each cell that it touches, by ascending cells.
    /// Ghost cells have none. Costs: those of [`Subfile::access`] for each run.
    ///
    /// # Errors
    /// As [`Subfile::access`]; when the lists have different numbers of bytes.
    pub fn access_lists(
        &self,
        places: &List,
        memory: &List,
    ) -> Result<Vec<CellAccess>, LayoutError> {
        let (file, own) = (places.elements(), memory.elements());
        if file != own {
            return Err(LayoutError::ListCounts { file, memory: own });
        }
        let mut cells: BTreeMap<u64, CellAccess> = BTreeMap::new();
        let mut of_memory = memory.iter();
        let (mut at, mut left) = (0, 0);
        for (mut place, mut bytes) in places.iter() {
            while bytes > 0 {
                if left == 0 {
                    (at, left) = of_memory.next().unwrap_or((0, bytes)); // they are equally many
                }
                let run = bytes.min(left);
                for part in self.access(place, run)? {
                    let cell = cells.entry(part.cell).or_insert_with(|| CellAccess {
                        cell: part.cell,
                        places: List::default(),
                        memory: List::default(),
                    });
                    for (start, length) in part.places.iter() {
                        cell.places.add(start, length, &[])?;
                    }
                    for (start, length) in part.memory.iter() {
                        cell.memory.add(at + start, length, &[])?;
                    }
                }
                (place, bytes) = (place + run, bytes - run);
                (at, left) = (at + run, left - run);
            }
        }
        Ok(cells.into_values().collect())
    }

    /// The part of one cell in an access, as [`Subfile::access`] gives it; `None` if the access
    /// does not touch the cell.
    ///
    /// # Errors
    /// As [`Subfile::access`].
    pub fn in_cell(
        &self,
        cell: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<CellAccess>, LayoutError> {
        let range = self.range(offset, bytes)?;
        let Some(place) = self.place_of(cell) else {
            return Ok(None);
        };
        let places = self.places(range);
        let earlier = places.take_while(|&earlier| earlier < place);
        let before = earlier.map(|earlier| self.bytes_before_next(earlier, range));
        self.part(place, range, before.sum())
    }

    /// One past the last byte of the subfile that a cell of `bytes` bytes has; `None` if it has
    /// none. The order "column" is one within an access: here it counts as "block".
    pub fn end_in(&self, cell: u64, bytes: u64) -> Option<u64> {
        let place = self.place_of(cell)?;
        let View { vbs, vn, .. } = self.view;
        let block_bytes = u128::from(vbs) * u128::from(self.bsu_bytes);
        let (bytes, period) = (u128::from(bytes), block_bytes * u128::from(vn));
        let before = block_bytes * u128::from(self.row);
        let rest = (bytes % period).saturating_sub(before).min(block_bytes);
        let last = (bytes / period * block_bytes + rest).checked_sub(1)?;
        let runs = self.runs(place);
        let end = runs.first + last / runs.length * runs.period + last % runs.length + 1;
        Some(u64::try_from(end).unwrap_or(u64::MAX))
    }

    fn range(&self, offset: u64, bytes: u64) -> Result<Bytes, LayoutError> {
        let end = u128::from(offset) + u128::from(bytes);
        match end <= u128::from(CELL_BYTES_MAX) {
            true => Ok(Bytes {
                start: u128::from(offset),
                end,
            }),
            false => Err(LayoutError::BeyondCell { offset, bytes }),
        }
    }

    /// The places of a row of the subfile that an access touches, ascending, without ghosts.
    fn places(&self, range: Bytes) -> impl Iterator<Item = u64> + use<> {
        let (width, unit) = (self.width(), self.run_bytes());
        let real = u128::from(self.cells_in_row());
        let (first, last) = (range.start / unit, range.end.saturating_sub(1) / unit);
        let is_all = last.saturating_sub(first) + 1 >= width;
        let (low, high) = match (range.start == range.end, is_all) {
            (true, _) => (0..0, 0..0),
            (false, true) => (0..real, 0..0),
            (false, false) if first % width <= last % width => {
                (first % width..last % width + 1, 0..0)
            }
            (false, false) => (0..last % width + 1, first % width..width),
        };
        let places = low.chain(high).take_while(move |&place| place < real);
        places.map(exact::<u64>)
    }

    /// The bytes of the access that come before those of the place after this one, because a
    /// whole cell comes before the next.
    fn bytes_before_next(&self, place: u64, range: Bytes) -> u128 {
        match self.order {
            SubfileOrder::Column => self.bytes_of(place, range),
            SubfileOrder::Block | SubfileOrder::Row => 0,
        }
    }

    /// The bytes that an access has in the place of a row.
    fn bytes_of(&self, place: u64, range: Bytes) -> u128 {
        let runs = self.runs(place);
        runs.touched(range).map_or(0, |touched| {
            let turns = touched.turns.end() - touched.turns.start() + 1;
            turns * runs.length - touched.skipped - touched.spared
        })
    }

    /// The part of the cell in this place of a row. In the order [`SubfileOrder::Column`] `before`
    /// bytes are of earlier places.
    fn part(
        &self,
        place: u64,
        range: Bytes,
        before: u128,
    ) -> Result<Option<CellAccess>, LayoutError> {
        let (cell, runs) = (self.cell_at(place), self.runs(place));
        let Some(touched) = runs.touched(range) else {
            return Ok(None);
        };
        let mut lists = Lists {
            subfile: self,
            places: Vec::new(),
            memory: Vec::new(),
        };
        let (first, last) = (*touched.turns.start(), *touched.turns.end());
        // Run `n` lies in memory from byte `n * step + shift` on, in the numbers of the access.
        let (step, shift) = match self.order {
            SubfileOrder::Column => {
                let skipped = first * runs.length + touched.skipped;
                (runs.length, exact::<i128>(before) - exact::<i128>(skipped))
            }
            SubfileOrder::Block | SubfileOrder::Row => {
                let first = exact::<i128>(runs.first);
                (runs.period, first - exact::<i128>(range.start))
            }
        };
        let at =
            |turn: u128, within: u128| exact::<u128>(exact::<i128>(turn * step + within) + shift);
        if first == last {
            let length = runs.length - touched.skipped - touched.spared;
            lists.add_run(first, touched.skipped, length, at(first, touched.skipped))?;
            return lists.finish(cell).map(Some);
        }
        let mut whole = first..last + 1;
        if touched.skipped > 0 {
            let length = runs.length - touched.skipped;
            lists.add_run(first, touched.skipped, length, at(first, touched.skipped))?;
            whole.start += 1;
        }
        if touched.spared > 0 {
            whole.end -= 1;
        }
        lists.add_turns(whole.clone(), at(whole.start, 0), step)?;
        if touched.spared > 0 {
            lists.add_run(last, 0, runs.length - touched.spared, at(last, 0))?;
        }
        lists.finish(cell).map(Some)
    }
}

/// The two lists of a [`CellAccess`] while they are made.
struct Lists<'a> {
    subfile: &'a Subfile,
    places: Vec<List>,
    memory: Vec<List>,
}

impl Lists<'_> {
    /// The byte of the cell at which a run of the subfile begins, or the highest number.
    fn place(&self, turn: u128) -> u128 {
        let Subfile {
            view,
            row,
            bsu_bytes,
            order,
            ..
        } = self.subfile;
        let (vbs, height) = (u128::from(view.vbs), u128::from(view.vbs * view.vn));
        let top = u128::from(*row) * vbs;
        let bsu = match order {
            SubfileOrder::Row => turn / vbs * height + top + turn % vbs,
            SubfileOrder::Block | SubfileOrder::Column => turn * height + top,
        };
        bsu.saturating_mul(u128::from(*bsu_bytes))
    }

    /// Adds `length` bytes of a run, from its byte `within` on.
    fn add_run(
        &mut self,
        turn: u128,
        within: u128,
        length: u128,
        memory: u128,
    ) -> Result<(), LayoutError> {
        self.add(self.place(turn).saturating_add(within), memory, length, &[])
    }

    /// Adds whole runs, `step` bytes apart in memory.
    fn add_turns(
        &mut self,
        turns: std::ops::Range<u128>,
        memory: u128,
        step: u128,
    ) -> Result<(), LayoutError> {
        let Subfile {
            view,
            bsu_bytes,
            order,
            ..
        } = self.subfile;
        let (vbs, bsu) = (u128::from(view.vbs), u128::from(*bsu_bytes));
        let height = u128::from(view.vbs * view.vn) * bsu;
        if *order != SubfileOrder::Row {
            let count = turns.end.saturating_sub(turns.start);
            let across = (count, height, step);
            return self.add(self.place(turns.start), memory, vbs * bsu, &[across]);
        }
        // Rows of the subfile are next to one another within a band of `vbs` rows.
        let mut turn = turns.start;
        while turn < turns.end {
            let in_band = vbs - turn % vbs;
            let bands = (turns.end - turn) / vbs;
            let rows = match turn % vbs {
                0 if bands > 0 => bands * vbs,
                _ => in_band.min(turns.end - turn),
            };
            let memory = memory + (turn - turns.start) * step;
            let loops = [
                (rows.div_ceil(vbs), height, vbs.saturating_mul(step)),
                (rows.min(vbs), bsu, step),
            ];
            self.add(self.place(turn), memory, bsu, &loops)?;
            turn += rows;
        }
        Ok(())
    }

    /// Adds a run that is repeated in loops: for each the count, and the strides in the cell and in
    /// memory.
    fn add(
        &mut self,
        place: u128,
        memory: u128,
        length: u128,
        loops: &[(u128, u128, u128)],
    ) -> Result<(), LayoutError> {
        if length == 0 || loops.iter().any(|&(count, ..)| count == 0) {
            return Ok(());
        }
        let beyond = || LayoutError::BeyondCell {
            offset: u64::try_from(place).unwrap_or(u64::MAX),
            bytes: u64::try_from(length).unwrap_or(u64::MAX),
        };
        let bounded = |number: u128| {
            let number = u64::try_from(number).ok();
            let number = number.filter(|&number| number <= CELL_BYTES_MAX);
            number.ok_or_else(beyond)
        };
        let end = loops.iter().fold(place, |end, &(count, stride, _)| {
            end.saturating_add((count - 1).saturating_mul(stride))
        });
        bounded(end.saturating_add(length))?;
        let mut strides: (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for &(count, stride, step) in loops.iter().filter(|&&(count, ..)| count > 1) {
            let count = bounded(count)?;
            strides.0.push((count, exact::<i64>(bounded(stride)?)));
            strides.1.push((count, exact::<i64>(bounded(step)?)));
        }
        let length = bounded(length)?;
        let places = List::strided(bounded(place)?, length, &strides.0)?;
        self.places.push(places);
        let memory = List::strided(bounded(memory)?, length, &strides.1)?;
        self.memory.push(memory);
        Ok(())
    }

    fn finish(self, cell: u64) -> Result<CellAccess, LayoutError> {
        Ok(CellAccess {
            cell,
            places: List::concat(self.places)?,
            memory: List::concat(self.memory)?,
        })
    }
}
