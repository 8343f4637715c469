//! A naive file: cells as vectors, and a view gone through BSU by BSU.

use penstock_layout::SubfileOrder;

/// A file of cells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    bsu_bytes: usize,
    cells: Vec<Vec<u8>>,
    kept: Option<Vec<Vec<u8>>>,
}

/// A change of all cells.
pub enum Change {
    Checkpoint,
    RollBack,
    Resize(usize),
    Truncate(usize),
}

/// A byte of a cell, in a view: the cell, which may be a ghost, and the place in it.
pub type Place = (usize, usize);

impl File {
    pub fn new(cells: usize, bsu_bytes: usize) -> Self {
        Self {
            bsu_bytes,
            cells: vec![Vec::new(); cells],
            kept: None,
        }
    }

    /// The cells.
    pub fn cells(&self) -> &[Vec<u8>] {
        &self.cells
    }

    /// The subfile of BSU `j` of cell `i`, and the BSU's number in the order of the subfile.
    fn bsu(&self, view: [u64; 4], order: SubfileOrder, i: usize, j: usize) -> (usize, usize) {
        let [vbs, vn, hbs, hn] = view.map(|number| number as usize);
        let (width, height) = (hbs * hn, vbs * vn);
        let groups = self.cells.len().div_ceil(width);
        let subfile = i % width / hbs + j % height / vbs * hn;
        let (group, band) = (i / width, j / height);
        let number = match order {
            SubfileOrder::Row => {
                let row = band * vbs + j % vbs;
                row * groups * hbs + group * hbs + i % hbs
            }
            _ => (band * groups + group) * vbs * hbs + i % hbs * vbs + j % vbs,
        };
        (subfile, number)
    }

    /// The bytes of an access, in the order of its memory.
    pub fn places(
        &self,
        view: [u64; 4],
        subfile: u64,
        order: SubfileOrder,
        offset: usize,
        bytes: usize,
    ) -> Vec<Place> {
        let [vbs, vn, hbs, hn] = view.map(|number| number as usize);
        let cells = self.cells.len().div_ceil(hbs * hn) * hbs * hn;
        let end = offset + bytes;
        let rows = (end / self.bsu_bytes + 1) * vbs * vn;
        let mut found = vec![None; bytes];
        for i in 0..cells {
            for j in 0..rows {
                let (owner, number) = self.bsu(view, order, i, j);
                if owner != subfile as usize {
                    continue;
                }
                for within in 0..self.bsu_bytes {
                    let at = number * self.bsu_bytes + within;
                    if (offset..end).contains(&at) {
                        found[at - offset] = Some((i, j * self.bsu_bytes + within));
                    }
                }
            }
        }
        let mut places: Vec<Place> = found.into_iter().map(Option::unwrap).collect();
        if order == SubfileOrder::Column {
            places.sort_unstable();
        }
        places
    }

    /// Writes `fill` to all places, and gives the number of real ones.
    pub fn write(&mut self, places: &[Place], fill: u8) -> u64 {
        let mut moved = 0;
        for &(cell, place) in places {
            if let Some(cell) = self.cells.get_mut(cell) {
                if cell.len() <= place {
                    cell.resize(place + 1, 0);
                }
                cell[place] = fill;
                moved += 1;
            }
        }
        moved
    }

    /// What a read finds; `other` where nothing is moved.
    pub fn read(&self, places: &[Place], other: u8) -> (u64, Vec<u8>) {
        let byte = |&(cell, place): &Place| self.cells.get(cell)?.get(place).copied();
        let found: Vec<Option<u8>> = places.iter().map(byte).collect();
        let moved = found.iter().flatten().count() as u64;
        let data = found.into_iter().map(|byte| byte.unwrap_or(other));
        (moved, data.collect())
    }

    /// Changes all cells; whether that was possible.
    pub fn change(&mut self, change: Change) -> bool {
        match change {
            Change::Checkpoint => self.kept = Some(self.cells.clone()),
            Change::RollBack => match &self.kept {
                Some(kept) => self.cells = kept.clone(),
                None => return false,
            },
            Change::Resize(bytes) => {
                for cell in &mut self.cells {
                    cell.resize(bytes, 0);
                }
            }
            Change::Truncate(bytes) => {
                let (bsu, cells) = (self.bsu_bytes, self.cells.len());
                let mut ends = vec![0; cells];
                (0..bytes).for_each(|at| ends[at / bsu % cells] += 1);
                for (cell, end) in self.cells.iter_mut().zip(ends) {
                    cell.resize(end, 0);
                }
            }
        }
        true
    }
}
