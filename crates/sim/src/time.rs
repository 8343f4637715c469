//! Virtual time in integer picoseconds.
//!
//! One picosecond divides a 20 ns router cycle exactly and rounds a sector of a 4002 rpm drive
//! (208,229,218.7 ps) to three parts in a thousand million. 64 bits hold 213 days. All arithmetic
//! is checked, in release builds too: virtual time that overflows or runs backwards is a mistake of
//! the program, and panics.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a simulation of more than 213 days is a mistake of its author"
)]

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;
const PS_PER_S: u64 = 1_000_000_000_000;

/// A moment, in picoseconds since the start of the simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in picoseconds; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// The time from `start` up to `end`; empty if they are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The first moment.
    pub start: Time,
    /// The moment after the last.
    pub end: Time,
}

impl Time {
    /// The start of the simulation.
    pub const ZERO: Time = Time(0);
    /// A moment later than all events.
    pub const MAX: Time = Time(u64::MAX);

    /// Makes the moment `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// The picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The seconds since the start, rounded to a float.
    pub fn as_seconds_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// The time from `earlier` to this moment, or zero if this moment is before `earlier`.
    pub fn saturating_since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// Makes a span of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Span {
        Span(ps)
    }

    /// Makes a span of `ns` nanoseconds.
    ///
    /// # Panics
    /// When the span is more than 2^64 picoseconds, as all whole-number constructors do.
    pub const fn from_ns(ns: u64) -> Span {
        Span::scaled(ns, PS_PER_NS)
    }

    /// Makes a span of `us` microseconds.
    pub const fn from_us(us: u64) -> Span {
        Span::scaled(us, PS_PER_US)
    }

    /// Makes a span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Span {
        Span::scaled(ms, PS_PER_MS)
    }

    /// Makes a span of `seconds` seconds.
    pub const fn from_seconds(seconds: u64) -> Span {
        Span::scaled(seconds, PS_PER_S)
    }

    /// Makes a span of `ns` nanoseconds, rounded to the nearest picosecond.
    ///
    /// # Panics
    /// When `ns` is negative, not finite, or more than 2^64 picoseconds, as all constructors from
    /// floats do.
    pub fn from_ns_f64(ns: f64) -> Span {
        Span::rounded(ns * PS_PER_NS as f64)
    }

    /// Makes a span of `us` microseconds, rounded to the nearest picosecond.
    pub fn from_us_f64(us: f64) -> Span {
        Span::rounded(us * PS_PER_US as f64)
    }

    /// Makes a span of `ms` milliseconds, rounded to the nearest picosecond.
    pub fn from_ms_f64(ms: f64) -> Span {
        Span::rounded(ms * PS_PER_MS as f64)
    }

    /// The time of `bytes` at `bytes_per_second`, rounded down.
    ///
    /// # Panics
    /// When the rate is zero, or the time is more than 2^64 picoseconds.
    pub fn of_bytes(bytes: u64, bytes_per_second: u64) -> Span {
        match bytes.checked_mul(PS_PER_S) {
            Some(product) => Span(product / bytes_per_second),
            None => {
                let ps = u128::from(bytes) * u128::from(PS_PER_S) / u128::from(bytes_per_second);
                Span(u64::try_from(ps).expect("a transfer of more than 213 days"))
            }
        }
    }

    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The milliseconds, rounded to a float.
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / PS_PER_MS as f64
    }

    /// The seconds, rounded to a float.
    pub fn as_seconds_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// This span less `other`, or zero.
    pub fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    const fn scaled(count: u64, unit_ps: u64) -> Span {
        match count.checked_mul(unit_ps) {
            Some(ps) => Span(ps),
            None => panic!("a span of more than 213 days"),
        }
    }

    fn rounded(ps: f64) -> Span {
        assert!(ps >= 0.0 && ps < u64::MAX as f64, "not a span: {ps} ps");
        Span(ps.round() as u64)
    }
}

impl Interval {
    /// Makes the interval from `start` to `end`.
    ///
    /// # Panics
    /// When the end is before the start.
    pub fn new(start: Time, end: Time) -> Interval {
        assert!(start <= end, "an interval from {start} back to {end}");
        Interval { start, end }
    }

    /// Makes the interval of length `span` from `start` on.
    pub fn starting(start: Time, span: Span) -> Interval {
        Interval {
            start,
            end: start + span,
        }
    }

    /// Makes the empty interval at `at`.
    pub fn empty(at: Time) -> Interval {
        Interval { start: at, end: at }
    }

    /// The length of the interval.
    pub fn span(self) -> Span {
        self.end - self.start
    }

    /// Whether the interval has no length.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.checked_add(span.0).expect("virtual time is over"))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        Span(
            self.0
                .checked_sub(earlier.0)
                .expect("virtual time runs backwards"),
        )
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(
            self.0
                .checked_add(other.0)
                .expect("a span of more than 213 days"),
        )
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.checked_sub(other.0).expect("a negative span"))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, count: u64) -> Span {
        Span(
            self.0
                .checked_mul(count)
                .expect("a span of more than 213 days"),
        )
    }
}

impl fmt::Display for Time {
    /// Writes milliseconds, with six places unless the format gives a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Display for Span {
    /// Writes milliseconds, with six places unless the format gives a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*} ms", f.precision().unwrap_or(6), self.as_ms_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree() {
        let same = [
            Span::from_ms(2),
            Span::from_us(2_000),
            Span::from_ns(2_000_000),
            Span::from_ms_f64(2.0),
            Span::from_us_f64(2_000.0),
            Span::from_ns_f64(2e6),
        ];
        assert!(same.iter().all(|span| span.as_ps() == 2_000_000_000));
        assert_eq!(Span::from_seconds(1), Span::from_ms(1000));
    }

    #[test]
    fn rates() {
        assert_eq!(Span::of_bytes(8192, 200_000_000), Span::from_ns(40_960));
        assert_eq!(Span::of_bytes(1 << 40, 1 << 40), Span::from_seconds(1));
        assert_eq!(Span::of_bytes(0, 1), Span::ZERO);
    }

    #[test]
    fn shown_in_milliseconds() {
        assert_eq!(Span::from_us(1_500).to_string(), "1.500000 ms");
        assert_eq!(
            format!("{:.1}", Time::ZERO + Span::from_us(1_500)),
            "1.5 ms"
        );
    }

    #[test]
    #[should_panic(expected = "backwards")]
    fn time_does_not_run_backwards() {
        let _ = Time::ZERO - Time::from_ps(1);
    }

    #[test]
    #[should_panic(expected = "over")]
    fn time_does_not_wrap() {
        let _ = Time::MAX + Span::from_ps(1);
    }

    #[test]
    #[should_panic(expected = "not a span")]
    fn a_span_is_a_number() {
        Span::from_ms_f64(f64::NAN);
    }
}
