//! Aligned text.

use std::fmt;

/// A grid of cells, each column as wide as its widest cell: the first column to the left, the
/// others to the right.
#[derive(Default)]
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Writes MB/s with as many places as say something.
pub(crate) fn rate(mb_s: f64) -> String {
    let places = match mb_s {
        below if below < 10.0 => 2,
        below if below < 1000.0 => 1,
        _ => 0,
    };
    format!("{mb_s:.places$}")
}

/// Writes `1536` as `1.5 KB`, of 2^10 bytes.
pub(crate) fn bytes(count: u64) -> String {
    mean_bytes(count as f64)
}

/// Writes a mean of bytes as [`bytes`] writes a count.
pub(crate) fn mean_bytes(mean: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = mean.trunc();
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = usize::from(value.fract() != 0.0);
    format!("{value:.places$} {}", UNITS[unit])
}

/// Writes the number of trials.
pub(crate) fn trials(count: u64) -> String {
    match count {
        1 => "1 trial".into(),
        _ => format!("mean of {count} trials"),
    }
}

/// Writes the size of a record as "8-byte".
pub(crate) fn record(record_bytes: u64) -> String {
    format!("{record_bytes}-byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut grid = Grid::default();
        grid.row(["", "caching", "ddio"].map(String::from));
        grid.row(["rb", "5.6", "32.8*"].map(String::from));
        assert_eq!(grid.to_string(), "    caching   ddio\nrb      5.6  32.8*\n");
    }

    #[test]
    fn numbers() {
        assert_eq!([0.726, 31.44, 4691.0].map(rate), ["0.73", "31.4", "4691"]);
        assert_eq!(
            [8, 8192, 1536, 10 << 20].map(bytes),
            ["8 B", "8 KB", "1.5 KB", "10 MB"]
        );
    }
}
