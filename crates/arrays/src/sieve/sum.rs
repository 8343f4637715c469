//! Sums of floats that do not depend on the order of the terms: they are exact until the end.
//!
//! A sum is `high + low + spill`. A term is added to `high`; what that rounds off is added to
//! `low`, and what this rounds off, which is rare, to the spill. The error of a rounded sum of two
//! floats is a float (Knuth, TAOCP 2, 4.2.2), so nothing is lost:
//!
//! ```text
//! 1e16 + 3.1 + 1e-30      high 1.0000000000000004e16    low -0.9    spill 1e-30
//! ```
//!
//! The spill is an integer multiple of the smallest float, 2^-1074, in digits of 32 bits, each in a
//! word of 64 bits with a sign: many terms are added before digits carry (Neal, *Fast exact
//! summation using small and large superaccumulators*, 2015). It takes 560 bytes, and most sums
//! have none.
//!
//! Sums are merged term by term, so that any tree of merges gives one result, which is rounded once
//! to a double. Infinities and what is no number are kept beside it.

use penstock_engine::Result;
use penstock_layout::exact;

use super::numbers::{Reading, put, refusal};

/// The digits of a spill: those of all doubles, and of 2^63 times the largest.
const DIGITS: usize = 70;
const DIGIT_BITS: u32 = 32;

/// The terms that a spill takes before its digits carry: each changes a digit by less than 2^32.
const TERMS_MAX: u32 = 1 << 30;

/// The power of two of a spill's lowest bit.
const LOWEST: i32 = -1074;

/// The bits of a double's fraction.
const FRACTION_BITS: u32 = 52;

/// An exact sum of doubles in digits, the lowest first.
#[derive(Debug, Clone, PartialEq)]
struct Spill {
    digits: [i64; DIGITS],
    /// The terms since the digits carried.
    terms: u32,
}

impl Spill {
    const ZERO: Self = Self {
        digits: [0; DIGITS],
        terms: 0,
    };

    /// Adds a finite term.
    fn add(&mut self, term: f64) {
        if self.terms == TERMS_MAX {
            self.carry();
        }
        self.terms += 1;
        let bits = term.to_bits();
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let exponent = (bits >> FRACTION_BITS & 0x7ff) as u32;
        // A subnormal number has the place of the smallest normal one, without its first bit.
        let (mantissa, place) = match exponent {
            0 => (fraction, 0),
            exponent => (fraction | 1 << FRACTION_BITS, exponent - 1),
        };
        let mut rest = u128::from(mantissa) << (place % DIGIT_BITS);
        let mut digit = (place / DIGIT_BITS) as usize;
        while rest > 0 {
            let part = exact::<i64>(rest & u128::from(u32::MAX));
            self.digits[digit] += if term < 0.0 { -part } else { part };
            rest >>= DIGIT_BITS;
            digit += 1;
        }
    }

    /// Brings all digits but the highest into 0 .. 2^32.
    fn carry(&mut self) {
        let mut carried = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let sum = *digit + carried;
            carried = sum >> DIGIT_BITS;
            *digit = sum - (carried << DIGIT_BITS);
        }
        self.digits[DIGITS - 1] += carried;
        self.terms = 1;
    }

    fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (digit, more) in self.digits.iter_mut().zip(other.digits) {
            *digit += more;
        }
        self.terms = 2;
    }

    /// The sum, rounded to the next double, to one with an even last digit if there are two.
    fn rounded(mut self) -> f64 {
        self.carry();
        let is_negative = self.digits[DIGITS - 1] < 0;
        if is_negative {
            self.digits.iter_mut().for_each(|digit| *digit = -*digit);
            self.carry();
        }
        let Some(highest) = self.digits.iter().rposition(|digit| *digit != 0) else {
            return 0.0;
        };
        let lowest = highest.saturating_sub(2);
        // Three digits or more have 65 bits or more: then what is below them is one bit.
        let mut number = self.digits[lowest..=highest]
            .iter()
            .rev()
            .fold(0u128, |number, digit| {
                number << DIGIT_BITS | u128::from(digit.unsigned_abs())
            });
        if self.digits[..lowest].iter().any(|digit| *digit != 0) {
            number |= 1;
        }
        let rounded = number as f64;
        let power = LOWEST + i32::try_from(lowest).unwrap_or(i32::MAX).saturating_mul(32);
        // In two steps, each by a power that a double has; the result is one, or infinite.
        let (first, second) = (power / 2, power - power / 2);
        let scaled = rounded * 2f64.powi(first) * 2f64.powi(second);
        if is_negative { -scaled } else { scaled }
    }
}

/// An exact sum of doubles.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Sum {
    high: f64,
    low: f64,
    spill: Option<Box<Spill>>,
    /// What is no finite number: the sum of such terms, or 0.
    special: f64,
}

/// A rounded sum, and what it rounds off.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

impl Sum {
    /// Adds a term.
    pub(super) fn add(&mut self, term: f64) {
        let (high, error) = two_sum(self.high, term);
        let (low, rest) = two_sum(self.low, error);
        if rest != 0.0 {
            // What is not finite makes the rest no number.
            if rest.is_nan() {
                return self.add_specially(term);
            }
            self.spill(rest);
        }
        (self.high, self.low) = (high, low);
    }

    /// Adds a term that is not finite, or one that `high` cannot take.
    #[cold]
    fn add_specially(&mut self, term: f64) {
        match term.is_finite() {
            false => self.special += term,
            true => {
                let high = std::mem::take(&mut self.high);
                self.spill(high);
                self.spill(term);
            }
        }
    }

    fn spill(&mut self, term: f64) {
        let spill = self.spill.get_or_insert_with(|| Box::new(Spill::ZERO));
        spill.add(term);
    }

    /// Adds the terms of another sum.
    pub(super) fn merge(&mut self, other: &Self) {
        self.add(other.high);
        self.add(other.low);
        self.special += other.special;
        if let Some(more) = &other.spill {
            match &mut self.spill {
                Some(spill) => spill.merge(more),
                None => self.spill = Some(more.clone()),
            }
        }
    }

    /// The sum, rounded once to a double.
    pub(super) fn rounded(&self) -> f64 {
        if self.special.is_nan() {
            return f64::NAN; // one for all: the others tell of the order of terms
        }
        if self.special != 0.0 {
            return self.special; // it is infinite
        }
        let mut all = match &self.spill {
            None if self.low == 0.0 => return self.high,
            None => return self.high + self.low, // this rounds once
            Some(spill) => (**spill).clone(),
        };
        all.add(self.high);
        all.add(self.low);
        all.rounded()
    }

    /// The bytes that the sum takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self.spill {
            Some(_) => size_of::<Self>() + size_of::<Spill>(),
            None => size_of::<Self>(),
        }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.high.to_le_bytes());
        let kinds = [self.low != 0.0, self.special != 0.0, self.spill.is_some()];
        let kinds = kinds
            .iter()
            .rev()
            .fold(0, |all, is| all << 1 | u64::from(*is));
        put(bytes, kinds);
        if self.low != 0.0 {
            bytes.extend(self.low.to_le_bytes());
        }
        if self.special != 0.0 {
            bytes.extend(self.special.to_le_bytes());
        }
        if let Some(spill) = &self.spill {
            let mut spill = (**spill).clone();
            spill.carry();
            let is_zero = |digit: &i64| *digit == 0;
            let first = spill
                .digits
                .iter()
                .take_while(|digit| is_zero(digit))
                .count();
            let last = spill.digits.iter().rposition(|digit| !is_zero(digit));
            let end = last.map_or(first, |last| last + 1);
            put(bytes, first as u64);
            put(bytes, (end - first) as u64);
            for digit in &spill.digits[first..end] {
                bytes.extend(digit.to_le_bytes());
            }
        }
    }

    /// Reads a sum.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn decode(reading: &mut Reading<'_>) -> Result<Self> {
        let high = f64::from_le_bytes(reading.word()?);
        let kinds = reading.number()?;
        let mut word = |bit: u64| match kinds >> bit & 1 {
            1 => Ok(f64::from_le_bytes(reading.word()?)),
            _ => Ok(0.0),
        };
        let (low, special) = (word(0)?, word(1)?);
        if !high.is_finite() || !low.is_finite() {
            return Err(refusal("a sum is not finite"));
        }
        let spill = match kinds >> 2 {
            0 => None,
            1 => {
                let (first, count) = (reading.count()?, reading.count()?);
                let end = first.checked_add(count).filter(|end| *end <= DIGITS);
                let end = end.ok_or_else(|| refusal("a sum has too many digits"))?;
                let mut spill = Box::new(Spill::ZERO);
                for digit in &mut spill.digits[first..end] {
                    *digit = i64::from_le_bytes(reading.word()?);
                    if digit.unsigned_abs() > 1 << 62 {
                        return Err(refusal("a digit of a sum is too large"));
                    }
                }
                spill.terms = TERMS_MAX; // its digits carry before the next term
                Some(spill)
            }
            _ => return Err(refusal("a sum of an unknown kind")),
        };
        Ok(Self {
            high,
            low,
            spill,
            special,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(terms: &[f64]) -> Sum {
        let mut sum = Sum::default();
        terms.iter().for_each(|term| sum.add(*term));
        sum
    }

    /// Encodes a sum and reads it again.
    fn over(sum: &Sum) -> Sum {
        let mut bytes = Vec::new();
        sum.encode(&mut bytes);
        let mut reading = Reading(&bytes);
        let read = Sum::decode(&mut reading).unwrap();
        assert!(reading.is_at_end());
        read
    }

    #[test]
    fn sums_are_those_of_all_digits() {
        let tiny = f64::from_bits(1);
        for (terms, expected) in [
            (vec![], 0.0),
            (vec![0.1; 10], 1.0), // ten times the double next to 0.1, rounded
            (vec![1e16, 1.0, -1e16], 1.0),
            (vec![1e300, 1.0, -1e300, tiny, -1.0], tiny),
            (vec![f64::MAX, f64::MAX, -f64::MAX], f64::MAX),
            (vec![f64::MAX, f64::MAX], f64::INFINITY),
            (vec![-f64::MAX, -f64::MAX, 1.0], f64::NEG_INFINITY),
            (vec![1.0, 2f64.powi(-53)], 1.0), // a tie: to even
            (vec![1.0, 2f64.powi(-53), tiny], 1.0 + f64::EPSILON),
            (vec![1.0, 2f64.powi(-53), -tiny], 1.0),
            (vec![-1.0, -(2f64.powi(-53)), -tiny], -1.0 - f64::EPSILON),
            (vec![f64::MIN_POSITIVE, -tiny], f64::MIN_POSITIVE - tiny),
            (vec![tiny; 5], f64::from_bits(5)),
            (vec![f64::INFINITY, 1.0, f64::MAX, f64::MAX], f64::INFINITY),
        ] {
            assert_eq!(sum_of(&terms).rounded(), expected, "{terms:?}");
            assert_eq!(over(&sum_of(&terms)).rounded(), expected, "{terms:?}");
            let mut all = Spill::ZERO;
            if terms.iter().all(|term| term.is_finite()) {
                terms.iter().for_each(|term| all.add(*term));
                assert_eq!(all.rounded(), expected, "{terms:?}");
            }
        }
        for terms in [vec![f64::NAN, 1.0], vec![f64::INFINITY, f64::NEG_INFINITY]] {
            assert!(over(&sum_of(&terms)).rounded().is_nan());
        }
    }

    #[test]
    fn the_order_of_terms_and_merges_does_not_matter() {
        let mut state = 88_172_645_463_325_252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for spread in [1, 40, 600, 2000] {
            let mut terms: Vec<f64> = (0..500)
                .map(|_| {
                    let exponent = 1023 - spread / 2 + next() % spread;
                    let bits = next() & ((1 << 63) | ((1 << FRACTION_BITS) - 1));
                    f64::from_bits(bits | exponent.min(2040) << FRACTION_BITS)
                })
                .collect();
            let mut all = Spill::ZERO;
            terms.iter().for_each(|term| all.add(*term));
            let expected = all.rounded();
            for pieces in [1, 3, 7] {
                for place in (1..terms.len()).rev() {
                    terms.swap(place, usize::try_from(next() % (place as u64 + 1)).unwrap());
                }
                let parts: Vec<Sum> = terms.chunks(terms.len() / pieces).map(sum_of).collect();
                let mut merged = Sum::default();
                for part in &parts {
                    merged.merge(&over(part));
                }
                assert_eq!(
                    merged.rounded().to_bits(),
                    expected.to_bits(),
                    "{spread}, {pieces}"
                );
            }
        }
    }

    #[test]
    fn digits_carry_before_they_overflow() {
        let mut spill = Spill::ZERO;
        spill.add(f64::MAX);
        spill.terms = TERMS_MAX - 1;
        spill.digits.iter_mut().for_each(|digit| *digit += 1 << 61);
        let mut other = spill.clone();
        other.carry();
        spill.add(-1.0);
        spill.add(-1.0);
        spill.add(2.0);
        spill.carry();
        other.carry();
        assert_eq!(spill.digits, other.digits);
        assert!(Sum::decode(&mut Reading(&[0; 8])).is_err());
        assert!(Sum::decode(&mut Reading(&[0, 0, 0, 0, 0, 0, 0, 0, 4, 69, 2])).is_err());
    }
}
