//! A file whose content is not sure: for each byte it has a set of values.

use std::collections::BTreeSet;

use penstock_files::FileChange;

use crate::naive::Place;

/// The values of a byte.
type Values = BTreeSet<u8>;

/// A cell, and the numbers of bytes that it may have.
#[derive(Debug, Clone)]
struct Cell {
    /// What was never written is zero.
    bytes: Vec<Values>,
    ends: BTreeSet<usize>,
}

impl Cell {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ends: BTreeSet::from([0]),
        }
    }

    fn reach(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, Values::from([0]));
        }
    }

    fn write(&mut self, place: usize, value: u8, is_sure: bool) {
        self.reach(place + 1);
        let grown = self.ends.iter().map(|&end| end.max(place + 1));
        let grown: BTreeSet<usize> = grown.collect();
        match is_sure {
            true => {
                self.bytes[place] = Values::from([value]);
                self.ends = grown;
            }
            false => {
                self.bytes[place].insert(value);
                self.ends.extend(grown);
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.reach(other.bytes.len());
        for (place, values) in self.bytes.iter_mut().enumerate() {
            match other.bytes.get(place) {
                Some(more) => values.extend(more),
                None => drop(values.insert(0)),
            }
        }
        self.ends.extend(&other.ends);
    }

    fn has(&self, place: usize, value: u8) -> bool {
        match self.bytes.get(place) {
            Some(values) => values.contains(&value),
            None => value == 0,
        }
    }

    fn may_be(&self, found: &[u8]) -> bool {
        let mut bytes = found.iter().enumerate();
        self.ends.contains(&found.len()) && bytes.all(|(place, &value)| self.has(place, value))
    }
}

/// A file whose cells may have lost what was not saved.
#[derive(Debug, Clone)]
pub struct Versions {
    /// Whether each cell may lose what was not saved.
    is_lossy: Vec<bool>,
    /// The file, if nothing was lost since the last save.
    now: Vec<Cell>,
    /// The file, if something may be lost.
    maybe: Vec<Cell>,
    /// The checkpoint, and whether it may be that there is none.
    kept: Option<(Vec<Cell>, bool)>,
}

impl Versions {
    pub fn new(is_lossy: Vec<bool>) -> Self {
        let cells: Vec<Cell> = is_lossy.iter().map(|_| Cell::new()).collect();
        Self {
            is_lossy,
            now: cells.clone(),
            maybe: cells,
            kept: None,
        }
    }

    /// Whether there is a checkpoint for sure.
    pub fn has_kept(&self) -> bool {
        matches!(self.kept, Some((_, false)))
    }

    pub fn write(&mut self, places: &[Place], value: u8, is_done: bool) {
        for &(cell, place) in places {
            if cell < self.now.len() {
                self.now[cell].write(place, value, is_done);
                self.maybe[cell].write(place, value, false);
            }
        }
    }

    pub fn sync(&mut self, is_done: bool) {
        match is_done {
            true => self.maybe.clone_from(&self.now),
            false => self.now = self.cells(),
        }
    }

    /// What the cells may be.
    fn cells(&self) -> Vec<Cell> {
        let cells = self.now.iter().zip(&self.maybe).zip(&self.is_lossy);
        let cells = cells.map(|((now, maybe), is_lossy)| if *is_lossy { maybe } else { now });
        cells.cloned().collect()
    }

    /// Changes all cells, which saves them.
    pub fn change(&mut self, change: FileChange) {
        let mut cells = self.cells();
        match change {
            FileChange::Checkpoint => self.kept = Some((cells.clone(), false)),
            FileChange::RollBack => {
                if let Some((kept, _)) = &self.kept {
                    cells.clone_from(kept);
                }
            }
            FileChange::Resize(bytes) => {
                let bytes = bytes as usize;
                for cell in &mut cells {
                    // What was cut off, or lies behind an end that it may have had, is zero.
                    for (place, values) in cell.bytes.iter_mut().enumerate() {
                        if cell.ends.iter().any(|&end| end <= place) {
                            values.insert(0);
                        }
                    }
                    cell.bytes.truncate(bytes);
                    cell.ends = BTreeSet::from([bytes]);
                }
            }
            _ => unreachable!("no step of a client"),
        }
        self.now.clone_from(&cells);
        self.maybe = cells;
    }

    /// Takes in what else the file may be.
    pub fn add(&mut self, other: &Self) {
        let both = self.now.iter_mut().zip(&other.now);
        both.for_each(|(cell, other)| cell.add(other));
        let both = self.maybe.iter_mut().zip(&other.maybe);
        both.for_each(|(cell, other)| cell.add(other));
        self.kept = match (self.kept.take(), &other.kept) {
            (Some((mut kept, is_unsure)), Some((other, is_other))) => {
                let both = kept.iter_mut().zip(other);
                both.for_each(|(cell, other)| cell.add(other));
                Some((kept, is_unsure || *is_other))
            }
            (Some((kept, _)), None) => Some((kept, true)),
            (None, Some((kept, _))) => Some((kept.clone(), true)),
            (None, None) => None,
        };
    }

    /// Whether the two versions of the file may be these.
    pub fn may_be(&self, [now, kept]: &[Option<Vec<Vec<u8>>>; 2]) -> bool {
        let all = |cells: &[Cell], found: &[Vec<u8>]| {
            let mut both = cells.iter().zip(found);
            both.all(|(cell, found)| cell.may_be(found))
        };
        let is_now = now.as_ref().is_some_and(|now| all(&self.cells(), now));
        is_now
            && match (&self.kept, kept) {
                (None, None) => true,
                (Some((_, is_unsure)), None) => *is_unsure,
                (None, Some(_)) => false,
                (Some((cells, _)), Some(kept)) => all(cells, kept),
            }
    }

    /// The first place of a read that is wrong; `other` stands where nothing was moved.
    pub fn refuse(&self, places: &[Place], data: &[u8], other: u8) -> Option<(Place, u8)> {
        let cells = self.cells();
        let mut read = places.iter().zip(data);
        let wrong = read.find(|&(&(cell, place), &value)| {
            let Some(cell) = cells.get(cell) else {
                return value != other;
            };
            let is_left = value == other && cell.ends.iter().any(|&end| end <= place);
            let is_moved = cell.ends.iter().any(|&end| end > place) && cell.has(place, value);
            !is_left && !is_moved
        });
        wrong.map(|(place, value)| (*place, *value))
    }
}
