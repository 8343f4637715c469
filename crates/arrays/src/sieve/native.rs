//! Element types as numbers of the machine.

use std::cmp::Ordering;

use half::f16;

/// An element of an array.
pub(super) trait Native: Copy + Send + 'static {
    /// The element of these bytes, in the machine's byte order: as many as it has.
    fn of_bytes(bytes: &[u8]) -> Self;

    /// Adds the bytes of the element, in the machine's byte order.
    fn put(self, bytes: &mut Vec<u8>);

    /// Whether the element is no number.
    fn is_nan(self) -> bool;
}

/// A real number.
pub(super) trait Real: Native {
    /// The number as a double; integers beyond 2^53 are rounded.
    fn as_double(self) -> f64;

    /// The number next to a double.
    fn of_double(double: f64) -> Self;

    /// The order of all numbers, in which -0 comes before 0.
    fn total_order(self, other: Self) -> Ordering;
}

/// An integer, or a truth as 0 or 1.
pub(super) trait Whole: Native {
    fn as_wide(self) -> i128;
}

macro_rules! native {
    ($($of:ty, $is_nan:expr, $as_double:expr, $of_double:expr, $order:expr;)+) => {
        $(impl Native for $of {
            fn of_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().copied().map_or(Self::default(), Self::from_ne_bytes)
            }

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_ne_bytes());
            }

            fn is_nan(self) -> bool {
                ($is_nan)(self)
            }
        }

        impl Real for $of {
            fn as_double(self) -> f64 {
                ($as_double)(self)
            }

            fn of_double(double: f64) -> Self {
                ($of_double)(double)
            }

            fn total_order(self, other: Self) -> Ordering {
                ($order)(&self, &other)
            }
        })+
    };
}

macro_rules! whole {
    ($($of:ty)+) => {
        native!($($of, |_| false, |x| x as f64, |double| double as $of, Ord::cmp;)+);
        $(impl Whole for $of {
            fn as_wide(self) -> i128 {
                i128::from(self)
            }
        })+
    };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding is what is asked for"
)]
mod rounding {
    use super::{Native, Ordering, Real, Whole, f16};

    whole!(i8 i16 i32 i64 u8 u16 u32 u64);

    native!(
        f16, f16::is_nan, f16::to_f64, f16::from_f64, f16::total_cmp;
        f32, f32::is_nan, f64::from, |double| double as f32, f32::total_cmp;
        f64, f64::is_nan, |x| x, |double| double, f64::total_cmp;
    );
}

/// A complex number: the real and the imaginary part.
impl<T: Real> Native for [T; 2] {
    fn of_bytes(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(size_of::<T>());
        [T::of_bytes(real), T::of_bytes(imaginary)]
    }

    fn put(self, bytes: &mut Vec<u8>) {
        self.into_iter().for_each(|part| part.put(bytes));
    }

    fn is_nan(self) -> bool {
        self.into_iter().any(T::is_nan)
    }
}
