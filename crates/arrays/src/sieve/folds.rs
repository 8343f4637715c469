//! What the elements of one cell of a reduction come to.
//!
//! A fold takes elements, and merges with folds of other servers; the order does not matter for its
//! result. Sums of floats are exact until the end ([`super::sum`]), and are rounded to a double and
//! then to the type of the result. Sums of integers wrap around, as NumPy's of 64 bits do.
//!
//! | what | of bool, integers | of floats | of complex numbers |
//! |---|---|---|---|
//! | `min`, `max` | [`Extreme`] | [`Extreme`]: not a number if one element is none | refused |
//! | `sum` | [`WholeSum`]: int64, uint64 | [`RealSum`] | [`ComplexSum`] |
//! | `mean` | [`WholeMean`]: float64 | [`RealMean`] | [`ComplexMean`] |
//! | `count` | [`Count`] of elements | [`Count`] of elements that are numbers | likewise |
//! | `histogram` | [`Histogram`] | [`Histogram`] | refused |

use std::cmp::Ordering;
use std::marker::PhantomData;

use penstock_engine::Result;

use super::native::{Native, Real, Whole};
use super::numbers::{Reading, put, refusal};
use super::sum::Sum;

/// A fold of the elements of one cell. `edges` are those of a histogram's bins, empty for others.
pub(super) trait Fold: Clone + Send + 'static {
    type Element: Native;

    fn new(edges: &[f64]) -> Self;

    fn add(&mut self, element: Self::Element, edges: &[f64]);

    fn merge(&mut self, other: &Self);

    fn encode(&self, bytes: &mut Vec<u8>);

    /// Reads a fold.
    ///
    /// # Errors
    /// When there is none.
    fn decode(reading: &mut Reading<'_>, edges: &[f64]) -> Result<Self>;

    /// Adds the bytes of the result.
    fn finish(&self, bytes: &mut Vec<u8>);

    /// The bytes that the fold takes in memory.
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The least or the greatest element. What is no number is one for all, and -0 is less than 0: so
/// the order of elements does not matter.
#[derive(Clone)]
pub(super) struct Extreme<T, const IS_MAX: bool>(Option<T>);

impl<T: Real, const IS_MAX: bool> Fold for Extreme<T, IS_MAX> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(None)
    }

    fn add(&mut self, element: T, _: &[f64]) {
        if element.is_nan() {
            self.0 = Some(T::of_double(f64::NAN));
            return;
        }
        let beyond = match IS_MAX {
            true => Ordering::Greater,
            false => Ordering::Less,
        };
        let is_new = match self.0 {
            None => true,
            Some(known) => !known.is_nan() && element.total_order(known) == beyond,
        };
        if is_new {
            self.0 = Some(element);
        }
    }

    fn merge(&mut self, other: &Self) {
        if let Some(element) = other.0 {
            self.add(element, &[]);
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.0.is_some()));
        if let Some(element) = self.0 {
            element.put(bytes);
        }
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        match reading.word()? {
            [0] => Ok(Self(None)),
            [1] => Ok(Self(Some(T::of_bytes(reading.bytes(size_of::<T>())?)))),
            _ => Err(refusal("there is one element or none")),
        }
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        match self.0 {
            Some(element) => element.put(bytes),
            None => bytes.extend(std::iter::repeat_n(0, size_of::<T>())),
        }
    }
}

/// The sum of integers, in 64 bits.
#[derive(Clone)]
pub(super) struct WholeSum<T>(u64, PhantomData<T>);

impl<T: Whole> Fold for WholeSum<T> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(0, PhantomData)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it wraps around"
    )]
    fn add(&mut self, element: T, _: &[f64]) {
        self.0 = self.0.wrapping_add(element.as_wide() as u64);
    }

    fn merge(&mut self, other: &Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_le_bytes());
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        Ok(Self(u64::from_le_bytes(reading.word()?), PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_ne_bytes());
    }
}

/// A mean; no number if there are no elements.
fn quotient(sum: f64, elements: u64) -> f64 {
    match elements {
        0 => f64::NAN,
        elements => sum / elements as f64,
    }
}

/// The mean of integers: of their exact sum.
#[derive(Clone)]
pub(super) struct WholeMean<T>(i128, u64, PhantomData<T>);

impl<T: Whole> Fold for WholeMean<T> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(0, 0, PhantomData)
    }

    fn add(&mut self, element: T, _: &[f64]) {
        self.0 += element.as_wide();
        self.1 += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
        self.1 = self.1.saturating_add(other.1);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_le_bytes());
        put(bytes, self.1);
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        let sum = i128::from_le_bytes(reading.word()?);
        Ok(Self(sum, reading.number()?, PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        quotient(self.0 as f64, self.1).put(bytes);
    }
}

/// The sum of floats.
#[derive(Clone)]
pub(super) struct RealSum<T>(Sum, PhantomData<T>);

impl<T: Real> Fold for RealSum<T> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(Sum::default(), PhantomData)
    }

    fn add(&mut self, element: T, _: &[f64]) {
        self.0.add(element.as_double());
    }

    fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.0.encode(bytes);
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        Ok(Self(Sum::decode(reading)?, PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        T::of_double(self.0.rounded()).put(bytes);
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The mean of floats: of their exact sum, rounded to a double.
#[derive(Clone)]
pub(super) struct RealMean<T>(Sum, u64, PhantomData<T>);

impl<T: Real> Fold for RealMean<T> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(Sum::default(), 0, PhantomData)
    }

    fn add(&mut self, element: T, _: &[f64]) {
        self.0.add(element.as_double());
        self.1 += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
        self.1 = self.1.saturating_add(other.1);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.0.encode(bytes);
        put(bytes, self.1);
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        let sum = Sum::decode(reading)?;
        Ok(Self(sum, reading.number()?, PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        T::of_double(quotient(self.0.rounded(), self.1)).put(bytes);
    }

    fn bytes(&self) -> usize {
        self.0.bytes() + size_of::<u64>()
    }
}

/// What `F` makes of the real parts, and of the imaginary ones.
#[derive(Clone)]
pub(super) struct OfParts<F>([F; 2]);

/// The sum of complex numbers.
pub(super) type ComplexSum<T> = OfParts<RealSum<T>>;

/// The mean of complex numbers.
pub(super) type ComplexMean<T> = OfParts<RealMean<T>>;

impl<T: Real, F: Fold<Element = T>> Fold for OfParts<F> {
    type Element = [T; 2];

    fn new(edges: &[f64]) -> Self {
        Self([F::new(edges), F::new(edges)])
    }

    fn add(&mut self, element: [T; 2], edges: &[f64]) {
        let parts = self.0.iter_mut().zip(element);
        parts.for_each(|(fold, part)| fold.add(part, edges));
    }

    fn merge(&mut self, other: &Self) {
        let parts = self.0.iter_mut().zip(&other.0);
        parts.for_each(|(fold, other)| fold.merge(other));
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|fold| fold.encode(bytes));
    }

    fn decode(reading: &mut Reading<'_>, edges: &[f64]) -> Result<Self> {
        Ok(Self([
            F::decode(reading, edges)?,
            F::decode(reading, edges)?,
        ]))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|fold| fold.finish(bytes));
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(F::bytes).sum()
    }
}

/// The number of elements that are numbers.
#[derive(Clone)]
pub(super) struct Count<T>(u64, PhantomData<T>);

impl<T: Native> Fold for Count<T> {
    type Element = T;

    fn new(_: &[f64]) -> Self {
        Self(0, PhantomData)
    }

    fn add(&mut self, element: T, _: &[f64]) {
        self.0 += u64::from(!element.is_nan());
    }

    fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.0);
    }

    fn decode(reading: &mut Reading<'_>, _: &[f64]) -> Result<Self> {
        Ok(Self(reading.number()?, PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_ne_bytes());
    }
}

/// The number of elements in each bin. A bin has its lower edge, and the last one its upper edge,
/// too.
#[derive(Clone)]
pub(super) struct Histogram<T>(Box<[u64]>, PhantomData<T>);

impl<T: Real> Fold for Histogram<T> {
    type Element = T;

    fn new(edges: &[f64]) -> Self {
        let bins = edges.len().saturating_sub(1);
        Self(vec![0; bins].into(), PhantomData)
    }

    fn add(&mut self, element: T, edges: &[f64]) {
        let number = element.as_double();
        let edges_below = edges.partition_point(|edge| *edge <= number);
        let bin = match edges.last() {
            // Of equal last edges the element is in the last bin.
            Some(last) if *last == number => edges.len().checked_sub(2),
            _ if edges_below == edges.len() => None, // it is above all, or no number
            _ => edges_below.checked_sub(1),
        };
        if let Some(count) = bin.and_then(|bin| self.0.get_mut(bin)) {
            *count += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        let counts = self.0.iter_mut().zip(&other.0);
        counts.for_each(|(count, more)| *count = count.saturating_add(*more));
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|count| put(bytes, *count));
    }

    fn decode(reading: &mut Reading<'_>, edges: &[f64]) -> Result<Self> {
        let bins = edges.len().saturating_sub(1);
        let counts = (0..bins).map(|_| reading.number());
        Ok(Self(counts.collect::<Result<_>>()?, PhantomData))
    }

    fn finish(&self, bytes: &mut Vec<u8>) {
        self.0
            .iter()
            .for_each(|count| bytes.extend(count.to_ne_bytes()));
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len() * size_of::<u64>()
    }
}
