//! The type of what two types make, by NumPy's rules (those of version 2).
//!
//! | one | other | together |
//! |---|---|---|
//! | any type | itself, or bool | that type |
//! | signed | unsigned | the smallest signed type that holds both; of `u8`, `f8` |
//! | `i1`, `u1` | float | that float |
//! | `i2`, `u2` | float | that float, at least `f4` |
//! | wider integer | float | `f8` |
//! | complex | real | `c8`, or `c16` if the real number alone would make an `f8` |
//!
//! A number in the text has no type of its own: see [`Number`].

use crate::dtype::NumberType;
use NumberType::{Bool, C8, C16, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8};

/// The kind of a type, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Bool,
    Integer,
    Float,
    Complex,
}

pub(super) fn class(of: NumberType) -> Class {
    match of {
        Bool => Class::Bool,
        I1 | I2 | I4 | I8 | U1 | U2 | U4 | U8 => Class::Integer,
        F2 | F4 | F8 => Class::Float,
        C8 | C16 => Class::Complex,
    }
}

/// A number as the text has it, or made of such numbers alone. With an array's element it takes the
/// element's type: an integer that of any number, another number that of any float. With what has
/// no such type it is an `i8` or an `f8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// The type that the number takes beside one of this type.
    pub(super) fn beside(self, other: NumberType) -> NumberType {
        match (self, class(other)) {
            (Self::Integer(_), Class::Bool) => I8,
            (Self::Float(_), Class::Bool | Class::Integer) => F8,
            _ => other,
        }
    }

    /// The number as a float.
    pub(super) fn as_float(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// Whether an integer type has the number.
    pub(super) fn fits(self, integer: NumberType) -> bool {
        let (Self::Integer(number), Some((low, high))) = (self, bounds(integer)) else {
            return false;
        };
        (low..=high).contains(&number)
    }
}

/// The lowest and the highest number of an integer type.
pub(super) fn bounds(of: NumberType) -> Option<(i128, i128)> {
    let bits = 8 * u32::try_from(of.width()).ok()?;
    match of {
        I1 | I2 | I4 | I8 => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        U1 | U2 | U4 | U8 => Some((0, (1 << bits) - 1)),
        Bool | F2 | F4 | F8 | C8 | C16 => None,
    }
}

/// The type of two types together.
pub(super) fn promoted(one: NumberType, other: NumberType) -> NumberType {
    let (one, other) = match class(one) <= class(other) {
        true => (one, other),
        false => (other, one),
    };
    match (class(one), class(other)) {
        (Class::Bool, _) => other,
        (Class::Integer, Class::Integer) => integers(one, other),
        (Class::Integer, Class::Float) => wider(float_of(one), other),
        (Class::Float, Class::Float) | (Class::Complex, _) => wider(one, other),
        (_, Class::Complex) => match wider(float_of(one), F4) {
            F4 => other,
            _ => C16,
        },
        (Class::Float, Class::Bool | Class::Integer) | (Class::Integer, Class::Bool) => one,
    }
}

fn wider(one: NumberType, other: NumberType) -> NumberType {
    match one.width() >= other.width() {
        true => one,
        false => other,
    }
}

fn is_signed(of: NumberType) -> bool {
    bounds(of).is_some_and(|(low, _)| low < 0)
}

fn integers(one: NumberType, other: NumberType) -> NumberType {
    if is_signed(one) == is_signed(other) {
        return wider(one, other);
    }
    let (signed, unsigned) = match is_signed(one) {
        true => (one, other),
        false => (other, one),
    };
    match unsigned {
        U1 => wider(signed, I2),
        U2 => wider(signed, I4),
        U4 => wider(signed, I8),
        _ => F8,
    }
}

/// The smallest float that NumPy makes of a real type.
fn float_of(of: NumberType) -> NumberType {
    match of {
        Bool | I1 | U1 | F2 => F2,
        I2 | U2 | F4 => F4,
        _ => F8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_together_are_those_of_numpy() {
        for (one, other, both) in [
            (Bool, Bool, Bool),
            (Bool, U4, U4),
            (I1, U1, I2),
            (I4, U1, I4),
            (I2, U4, I8),
            (I1, U8, F8),
            (I8, U8, F8),
            (U2, U8, U8),
            (F2, I1, F2),
            (F2, U2, F4),
            (F2, I4, F8),
            (F4, I2, F4),
            (F4, U4, F8),
            (F4, F8, F8),
            (C8, F2, C8),
            (C8, I2, C8),
            (C8, I4, C16),
            (C8, F8, C16),
            (C16, F4, C16),
            (C8, Bool, C8),
            (C8, C16, C16),
        ] {
            assert_eq!(promoted(one, other), both, "{one:?} and {other:?}");
            assert_eq!(promoted(other, one), both, "{other:?} and {one:?}");
        }
    }

    #[test]
    fn numbers_take_the_type_beside_them() {
        let (three, half) = (Number::Integer(3), Number::Float(0.5));
        assert_eq!((three.beside(U1), half.beside(U1)), (U1, F8));
        assert_eq!((three.beside(Bool), half.beside(Bool)), (I8, F8));
        assert_eq!((three.beside(F2), half.beside(F4)), (F2, F4));
        assert_eq!((three.beside(C8), half.beside(C16)), (C8, C16));
        assert!(Number::Integer(255).fits(U1) && !Number::Integer(256).fits(U1));
        assert!(Number::Integer(i128::from(u64::MAX)).fits(U8));
        assert!(Number::Integer(i128::from(i64::MIN)).fits(I8));
        assert!(!Number::Integer(-1).fits(U8) && !half.fits(I4));
    }
}
