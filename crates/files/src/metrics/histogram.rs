//! How long things took.
//!
//! Four buckets from each power of two of nanoseconds to the next: what a histogram says of a time
//! is off by at most a fifth.
//!
//! ```text
//! bucket    0          1             2             3             4             5          105
//! up to     1024 ns    1280 ns       1536 ns       1792 ns       2048 ns       2560 ns    any
//! ```

use penstock_layout::exact;
use serde::{Deserialize, Serialize};

/// The first bucket ends at this power of two, and the last one begins at the other: 1 µs, 69 s.
const FIRST_POWER: u32 = 10;
const LAST_POWER: u32 = 36;
/// The buckets from one power of two to the next, as a power of two.
const PARTS_POWER: u32 = 2;
const PARTS: usize = 1 << PARTS_POWER;
const BUCKETS: usize = 2 + PARTS * (LAST_POWER - FIRST_POWER) as usize;

/// A number of times, each in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Sparse", try_from = "Sparse")]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    sum: u64,
}

/// A histogram as it travels: the buckets that are not empty, ascending, and the sum.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sparse {
    buckets: Vec<(u8, u64)>,
    sum: u64,
}

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        let buckets = (0u8..).zip(histogram.buckets.iter().copied());
        Self {
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
            sum: histogram.sum,
        }
    }
}

impl TryFrom<Sparse> for Histogram {
    type Error = &'static str;

    fn try_from(sparse: Sparse) -> Result<Self, Self::Error> {
        let mut histogram = Self {
            sum: sparse.sum,
            ..Self::default()
        };
        if !sparse.buckets.is_sorted_by(|one, next| one.0 < next.0) {
            return Err("buckets that do not ascend");
        }
        for (bucket, count) in sparse.buckets {
            let bucket = histogram.buckets.get_mut(usize::from(bucket));
            *bucket.ok_or("a bucket that there is not")? = count;
        }
        Ok(histogram)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            sum: 0,
        }
    }
}

/// The bucket of a time.
fn bucket_of(ns: u64) -> usize {
    if ns < 1 << FIRST_POWER {
        return 0;
    }
    let power = u64::BITS - 1 - ns.leading_zeros();
    let part = exact::<usize>((ns >> (power - PARTS_POWER)) & (PARTS as u64 - 1));
    (1 + (power - FIRST_POWER) as usize * PARTS + part).min(BUCKETS - 1)
}

/// The end of a bucket, which is the beginning of the next; nothing for the last.
fn end_of(bucket: usize) -> Option<u64> {
    match bucket.checked_sub(1) {
        None => Some(1 << FIRST_POWER),
        Some(_) if bucket >= BUCKETS - 1 => None,
        Some(nth) => {
            let (power, part) = (nth / PARTS, nth % PARTS);
            Some(((PARTS + part + 1) as u64) << (power + (FIRST_POWER - PARTS_POWER) as usize))
        }
    }
}

impl Histogram {
    /// Adds a time.
    pub(crate) fn add(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.sum = self.sum.saturating_add(ns);
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The nanoseconds of all together.
    pub fn sum_ns(&self) -> u64 {
        self.sum
    }

    /// The time below which this part of all is, in nanoseconds; nothing without any.
    pub fn quantile_ns(&self, part: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = part * count as f64;
        let mut before = 0.0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let behind = before + count as f64;
            if count > 0 && behind >= wanted {
                let start = bucket.checked_sub(1).and_then(end_of).unwrap_or(0) as f64;
                let end = end_of(bucket).map_or(start, |end| end as f64);
                let within = ((wanted - before) / count as f64).clamp(0.0, 1.0);
                return Some(start + within * (end - start));
            }
            before = behind;
        }
        None
    }

    /// The number of times from each power of two to the next: up to where, in nanoseconds, and how
    /// many. Those beyond all are in none.
    pub(crate) fn powers(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = (1 << FIRST_POWER, self.buckets[0]);
        let others = self.buckets[1..BUCKETS - 1]
            .chunks(PARTS)
            .zip(FIRST_POWER + 1..);
        let others = others.map(|(parts, power)| (1 << power, parts.iter().sum()));
        [first].into_iter().chain(others)
    }

    /// What has come since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        let pairs = since.buckets.iter_mut().zip(before.buckets.iter());
        pairs.for_each(|(now, before)| *now = now.saturating_sub(*before));
        since.sum = since.sum.saturating_sub(before.sum);
        since
    }

    /// Adds the times of another.
    pub fn add_all(&mut self, other: &Self) {
        let pairs = self.buckets.iter_mut().zip(other.buckets.iter());
        pairs.for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        self.sum = self.sum.saturating_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use penstock_engine::encoding::{decode, encode};

    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_whose_bounds_are_around_it() {
        for (ns, bucket) in [
            (0, 0),
            (1023, 0),
            (1024, 1),
            (1279, 1),
            (1280, 2),
            (2047, 4),
        ] {
            assert_eq!(bucket_of(ns), bucket, "{ns}");
        }
        for power in FIRST_POWER..64 {
            for ns in [
                1u64 << power,
                (1 << power) + (1 << (power - 1)),
                (1 << power) - 1,
            ] {
                let bucket = bucket_of(ns);
                assert!(end_of(bucket).is_none_or(|end| ns < end), "{ns}");
                let start = bucket.checked_sub(1).and_then(end_of);
                assert!(start.is_none_or(|start| start <= ns), "{ns}");
            }
        }
        let ends: Vec<_> = (0..BUCKETS - 1)
            .map(|bucket| end_of(bucket).unwrap())
            .collect();
        assert!(ends.is_sorted_by(|one, next| one < next));
        assert_eq!((ends[4], *ends.last().unwrap()), (2048, 1 << LAST_POWER));
    }

    #[test]
    fn quantiles_are_off_by_a_fifth_at_most() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        for us in 1..=1000 {
            histogram.add(us * 1000);
        }
        for (part, ns) in [(0.5, 500e3), (0.99, 990e3), (0.1, 100e3)] {
            let found = histogram.quantile_ns(part).unwrap();
            assert!((found / ns - 1.0).abs() < 0.2, "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.sum_ns()), (1000, 500_500_000));
        let mut long = Histogram::default();
        long.add(u64::MAX);
        assert_eq!(long.quantile_ns(0.5), Some((1u64 << LAST_POWER) as f64));
        assert_eq!(long.powers().map(|(_, count)| count).sum::<u64>(), 0);
    }

    #[test]
    fn powers_have_all_times_and_differences_those_that_came_since() {
        let mut histogram = Histogram::default();
        for ns in [0, 1500, 1600, 2047, 2048, 5000] {
            histogram.add(ns);
        }
        let powers: Vec<_> = histogram.powers().take(4).collect();
        assert_eq!(powers, [(1024, 1), (2048, 3), (4096, 1), (8192, 1)]);
        let before = histogram.clone();
        histogram.add(1500);
        let since = histogram.since(&before);
        assert_eq!((since.count(), since.sum_ns()), (1, 1500));
        let mut sum = since.clone();
        sum.add_all(&before);
        assert_eq!(sum, histogram);
    }

    #[test]
    fn a_histogram_travels_and_nonsense_does_not() {
        let mut histogram = Histogram::default();
        (0..40).for_each(|power| histogram.add(3 << power));
        let body = encode(&histogram).unwrap();
        assert_eq!(decode::<Histogram>(&body).unwrap(), histogram);
        let last = u8::try_from(BUCKETS).unwrap();
        for buckets in [vec![(last, 1)], vec![(3, 1), (3, 1)], vec![(3, 1), (2, 1)]] {
            let body = encode(&Sparse { buckets, sum: 0 }).unwrap();
            assert!(decode::<Histogram>(&body).is_err());
        }
    }
}
