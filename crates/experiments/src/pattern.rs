//! The access patterns of the papers: which client holds which records of the file.
//!
//! A pattern is named by its operation (`r`ead or `w`rite) and by the deal of each dimension of the
//! array of records: `n`one, `b`lock or `c`yclic, rows first. `ra` is all of the file for every
//! client. Kotz, PCS-TR94-226, section 5 and table 2; TOCS 1997, table II.
//!
//! ```text
//! 10 MB, 16 clients     8-byte records   8192-byte records   mesh
//! ra rn rb rc           1310720          1280                16 (rn: everything on client 0)
//! r and two letters     1280 x 1024      40 x 32             4 x 4; 1 x 16 or 16 x 1 beside an n
//! ```
//!
//! The matrix has as many columns as the largest power of two that leaves it at least 1.25 times as
//! high as wide, which gives the papers' matrices. Blocks of the file are to be blocks of the array
//! too: rows fill whole blocks or blocks whole rows. If the size of records is no power of two,
//! that can need more columns, and then the matrix is wider.
//!
//! `rbn` is `rb`, as table 2 has it: 40 rows over 16 clients are two and a half rows each.
//!
//! A record that does not divide a block is several elements of the array, side by side, which are
//! dealt out together; so the array keeps its dimensions whatever the size of records.

use std::fmt;
use std::str::FromStr;

use penstock_engine::Operation;
use penstock_layout::{
    DiskSchema, Dist, Distribution, Dists, LayoutError, MemorySchema, Order, Replicated,
};
use serde::{Serialize, Serializer};
use thiserror::Error;

/// The deal of one dimension to the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deal {
    /// The dimension is not dealt out: `n`.
    None,
    /// Each client has one contiguous block: `b`.
    Block,
    /// Clients take records in turn: `c`.
    Cyclic,
}

/// The arrangement of records on the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Each client holds all records.
    All,
    /// Records are a vector, dealt out.
    Vector(Deal),
    /// Records are a matrix, dealt out by rows and columns.
    Matrix(Deal, Deal),
}

/// An access pattern, such as `rb` or `wcn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    operation: Operation,
    arrangement: Arrangement,
}

/// An error of a pattern that does not exist, or does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The papers have no such pattern.
    #[error(
        "'{0}' is not a pattern: use ra, or r or w and then n, b or c for a vector, or two of them \
         for a matrix, as in rb, rcn, wbc"
    )]
    Unknown(String),
    /// Several clients would write the same bytes.
    #[error("'wa' cannot be: every client would write all of the file; only ra reads all of it")]
    WriteAll,
    /// A record or the file has no bytes, or there are no clients.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// Records do not fill the file.
    #[error("a file of {file_bytes} bytes is no whole number of records of {record_bytes} bytes")]
    Records {
        /// The size of the file.
        file_bytes: u64,
        /// The size of a record.
        record_bytes: u64,
    },
    /// Records do not fill a matrix.
    #[error("{records} records do not fill a matrix of {columns} columns, as {pattern} needs")]
    Matrix {
        pattern: Pattern,
        /// The number of records.
        records: u64,
        /// The number of columns that the matrix should have.
        columns: u64,
    },
    /// The array is too large.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl Deal {
    fn letter(self) -> char {
        match self {
            Deal::None => 'n',
            Deal::Block => 'b',
            Deal::Cyclic => 'c',
        }
    }

    fn of_letter(letter: char) -> Option<Deal> {
        [Deal::None, Deal::Block, Deal::Cyclic]
            .into_iter()
            .find(|deal| deal.letter() == letter)
    }

    /// The distribution of `records`, each of `units` elements, over `coordinates`.
    fn dist(self, records: u64, units: u64, coordinates: u64) -> Dist {
        match self {
            Deal::None => Dist::Whole,
            Deal::Block if units == 1 => Dist::Block,
            Deal::Block => Dist::Cyclic(records.div_ceil(coordinates).max(1) * units),
            Deal::Cyclic => Dist::Cyclic(units),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(name: &str) -> Result<Self, PatternError> {
        let unknown = || PatternError::Unknown(name.into());
        let mut letters = name.chars();
        let operation = match letters.next() {
            Some('r') => Operation::Read,
            Some('w') => Operation::Write,
            _ => return Err(unknown()),
        };
        let deal = |letter| Deal::of_letter(letter).ok_or_else(unknown);
        let arrangement = match (letters.next(), letters.next(), letters.next()) {
            (Some('a'), None, _) if operation == Operation::Write => {
                return Err(PatternError::WriteAll);
            }
            (Some('a'), None, _) => Arrangement::All,
            (Some(only), None, _) => Arrangement::Vector(deal(only)?),
            (Some(rows), Some(columns), None) => Arrangement::Matrix(deal(rows)?, deal(columns)?),
            _ => return Err(unknown()),
        };
        Ok(Self {
            operation,
            arrangement,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Read => 'r',
            Operation::Write => 'w',
        };
        let name = match self.arrangement {
            Arrangement::All => format!("{operation}a"),
            Arrangement::Vector(deal) => format!("{operation}{}", deal.letter()),
            Arrangement::Matrix(rows, columns) => {
                format!("{operation}{}{}", rows.letter(), columns.letter())
            }
        };
        f.pad(&name)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Pattern {
    /// The direction of the data.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    pub fn arrangement(&self) -> Arrangement {
        self.arrangement
    }

    /// Whether neighbours in a row belong to different clients, record by record.
    pub fn is_cyclic_inside(&self) -> bool {
        match self.arrangement {
            Arrangement::All => false,
            Arrangement::Vector(deal) | Arrangement::Matrix(_, deal) => deal == Deal::Cyclic,
        }
    }

    /// The number of times that each byte of the file moves.
    pub fn copies(&self, clients: usize) -> u64 {
        match self.arrangement {
            Arrangement::All => clients as u64,
            Arrangement::Vector(_) | Arrangement::Matrix(..) => 1,
        }
    }

    /// The memory and disk schemas of a file of `file_bytes`, in blocks of `block_bytes`.
    ///
    /// # Errors
    /// When the file is no whole number of records, or records do not fill a matrix that the
    /// pattern needs.
    pub fn schemas(
        &self,
        file_bytes: u64,
        block_bytes: u64,
        record_bytes: u64,
        clients: usize,
    ) -> Result<(MemorySchema, DiskSchema), PatternError> {
        let given = [
            ("the size of a block", block_bytes),
            ("the size of a record", record_bytes),
            ("the size of the file", file_bytes),
            ("the number of clients", clients as u64),
        ];
        if let Some((what, _)) = given.into_iter().find(|(_, count)| *count == 0) {
            return Err(PatternError::Zero(what));
        }
        if !file_bytes.is_multiple_of(record_bytes) {
            return Err(PatternError::Records {
                file_bytes,
                record_bytes,
            });
        }
        let records = file_bytes / record_bytes;
        let width = gcd(record_bytes, block_bytes);
        let units = record_bytes / width;
        let arrangement = match self.arrangement {
            Arrangement::Matrix(Deal::Block, Deal::None) => Arrangement::Vector(Deal::Block),
            other => other,
        };
        let (shape, memory) = match arrangement {
            Arrangement::All => {
                let shape = vec![records * units];
                let all = Replicated::new(&shape, clients);
                (shape, all.into())
            }
            Arrangement::Vector(deal) => {
                let mesh = match deal {
                    Deal::None => vec![],
                    Deal::Block | Deal::Cyclic => vec![clients as u64],
                };
                let dists = vec![deal.dist(records, units, clients as u64)];
                let shape = vec![records * units];
                let dealt = Distribution::new(&shape, &Dists(dists), &mesh)?;
                (shape, dealt.into())
            }
            Arrangement::Matrix(row_deal, column_deal) => {
                let columns = self.columns(records, record_bytes, block_bytes)?;
                let rows = records / columns;
                let mesh = mesh(row_deal, column_deal, clients as u64);
                let dists = vec![
                    row_deal.dist(rows, 1, mesh.0),
                    column_deal.dist(columns, units, mesh.1),
                ];
                let extents = [(row_deal, mesh.0), (column_deal, mesh.1)];
                let distributed = extents.iter().filter(|(deal, _)| *deal != Deal::None);
                let extents: Vec<u64> = distributed.map(|(_, extent)| *extent).collect();
                let shape = vec![rows, columns * units];
                let dealt = Distribution::new(&shape, &Dists(dists), &extents)?;
                (shape, dealt.into())
            }
        };
        let disk = DiskSchema::flat(&shape, width, Order::RowMajor, block_bytes)?;
        Ok((memory, disk))
    }

    /// The number of columns of the matrix of `records`.
    fn columns(
        &self,
        records: u64,
        record_bytes: u64,
        block_bytes: u64,
    ) -> Result<u64, PatternError> {
        // The condition is columns * columns * 1.25 <= records, in whole numbers.
        let narrow = |columns: u64| {
            let squared = columns.checked_mul(columns).and_then(|c| c.checked_mul(5));
            squared.is_some_and(|five| five <= records.saturating_mul(4))
        };
        let fills = |columns: u64| {
            let row = columns.saturating_mul(record_bytes);
            row.is_multiple_of(block_bytes) || block_bytes.is_multiple_of(row)
        };
        let powers = || (0..u64::BITS).map(|exponent| 1u64 << exponent);
        let wanted = powers().take_while(|&columns| narrow(columns)).last();
        let wanted = wanted.unwrap_or(1);
        let columns = powers()
            .skip_while(|&columns| columns < wanted)
            .take_while(|&columns| columns <= records)
            .find(|&columns| fills(columns))
            .unwrap_or(wanted);
        if records.is_multiple_of(columns) && fills(columns) {
            Ok(columns)
        } else {
            Err(PatternError::Matrix {
                pattern: *self,
                records,
                columns,
            })
        }
    }
}

/// The clients as a grid: all along the one dimension that is dealt out, or as square as possible,
/// no wider than high.
fn mesh(rows: Deal, columns: Deal, clients: u64) -> (u64, u64) {
    match (rows, columns) {
        (Deal::None, _) => (1, clients),
        (_, Deal::None) => (clients, 1),
        _ => {
            let wide = clients.isqrt();
            let across = (1..=wide).rev().find(|&n| clients.is_multiple_of(n));
            let across = across.unwrap_or(1);
            (clients / across, across)
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
