//! The cost of an operation as a line: `T = C + B n` (section 5.2).

use serde::Serialize;

/// A line through measured times, in milliseconds and milliseconds a byte.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The cost whatever the size.
    pub c: f64,
    /// The cost of a byte.
    pub b: f64,
}

impl Fit {
    /// The line with the least squares of its distances from the points: bytes, and milliseconds.
    pub fn of(points: &[(u64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean =
            |value: &dyn Fn(&(u64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (bytes, ms) = (mean(&|point| point.0 as f64), mean(&|point| point.1));
        let along = |point: &(u64, f64)| point.0 as f64 - bytes;
        let b = mean(&|point| along(point) * (point.1 - ms)) / mean(&|point| along(point).powi(2));
        Self {
            c: ms - b * bytes,
            b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_a_far_point_above_it_pushes_its_foot_down() {
        let line = |bytes: u64| (bytes, 0.25 + 0.001 * bytes as f64);
        let fit = Fit::of(&[line(256), line(512), line(1024)]);
        assert!((fit.c - 0.25).abs() < 1e-12 && (fit.b - 0.001).abs() < 1e-15);
        let above = Fit::of(&[line(256), line(512), (1024, 2.0)]);
        assert!(above.c < 0.0 && above.b > 0.001, "{above:?}");
    }
}
