//! Columns: the values of an operation for some elements, and what is done with them.
//!
//! A column has as many values as there are elements, or one that stands for all. Integers wrap
//! around, and a division by zero gives zero; floats are as IEEE 754 has them. Half precision is
//! kept as single precision: each result is rounded to half, as NumPy does.

use half::f16;

use super::promotion::Number;
use super::syntax::{Arithmetic, Comparison};
use crate::dtype::NumberType;

/// The values of some elements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Column {
    Bool(Vec<bool>),
    I1(Vec<i8>),
    I2(Vec<i16>),
    I4(Vec<i32>),
    I8(Vec<i64>),
    U1(Vec<u8>),
    U2(Vec<u16>),
    U4(Vec<u32>),
    U8(Vec<u64>),
    /// Single precision, and half.
    F4(Vec<f32>),
    F8(Vec<f64>),
    C8(Vec<[f32; 2]>),
    C16(Vec<[f64; 2]>),
    /// Integers of any type, to be compared.
    Wide(Vec<i128>),
}

/// The type in which a column keeps its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Bool,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    F4,
    F8,
    C8,
    C16,
    Wide,
}

impl Storage {
    pub(super) fn of(element: NumberType) -> Self {
        match element {
            NumberType::Bool => Self::Bool,
            NumberType::I1 => Self::I1,
            NumberType::I2 => Self::I2,
            NumberType::I4 => Self::I4,
            NumberType::I8 => Self::I8,
            NumberType::U1 => Self::U1,
            NumberType::U2 => Self::U2,
            NumberType::U4 => Self::U4,
            NumberType::U8 => Self::U8,
            NumberType::F2 | NumberType::F4 => Self::F4,
            NumberType::F8 => Self::F8,
            NumberType::C8 => Self::C8,
            NumberType::C16 => Self::C16,
        }
    }
}

/// Rounds to half precision.
pub(super) fn halved(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

/// The values of bytes, `N` bytes each.
fn values<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|value| of(*value)).collect()
}

impl Column {
    /// The elements of these bytes, in the machine's byte order.
    pub(crate) fn of_bytes(element: NumberType, bytes: &[u8]) -> Self {
        match element {
            NumberType::Bool => Self::Bool(values(bytes, |[byte]| byte != 0)),
            NumberType::I1 => Self::I1(values(bytes, i8::from_ne_bytes)),
            NumberType::I2 => Self::I2(values(bytes, i16::from_ne_bytes)),
            NumberType::I4 => Self::I4(values(bytes, i32::from_ne_bytes)),
            NumberType::I8 => Self::I8(values(bytes, i64::from_ne_bytes)),
            NumberType::U1 => Self::U1(values(bytes, |[byte]| byte)),
            NumberType::U2 => Self::U2(values(bytes, u16::from_ne_bytes)),
            NumberType::U4 => Self::U4(values(bytes, u32::from_ne_bytes)),
            NumberType::U8 => Self::U8(values(bytes, u64::from_ne_bytes)),
            NumberType::F2 => Self::F4(values(bytes, |of| f16::from_ne_bytes(of).to_f32())),
            NumberType::F4 => Self::F4(values(bytes, f32::from_ne_bytes)),
            NumberType::F8 => Self::F8(values(bytes, f64::from_ne_bytes)),
            NumberType::C8 => Self::C8(values(bytes, |[a, b, c, d, e, f, g, h]| {
                [
                    f32::from_ne_bytes([a, b, c, d]),
                    f32::from_ne_bytes([e, f, g, h]),
                ]
            })),
            NumberType::C16 => {
                let parts: Vec<f64> = values(bytes, f64::from_ne_bytes);
                Self::C16(parts.as_chunks().0.to_vec())
            }
        }
    }

    /// The column of one number, as an element of a type that has it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the type has the number, or rounds it"
    )]
    pub(super) fn one(element: NumberType, number: Number) -> Self {
        let integer = match number {
            Number::Integer(number) => number,
            Number::Float(_) => 0,
        };
        let float = number.as_float();
        match element {
            NumberType::Bool => Self::Bool(vec![float != 0.0]),
            NumberType::I1 => Self::I1(vec![integer as i8]),
            NumberType::I2 => Self::I2(vec![integer as i16]),
            NumberType::I4 => Self::I4(vec![integer as i32]),
            NumberType::I8 => Self::I8(vec![integer as i64]),
            NumberType::U1 => Self::U1(vec![integer as u8]),
            NumberType::U2 => Self::U2(vec![integer as u16]),
            NumberType::U4 => Self::U4(vec![integer as u32]),
            NumberType::U8 => Self::U8(vec![integer as u64]),
            NumberType::F2 => Self::F4(vec![f16::from_f64(float).to_f32()]),
            NumberType::F4 => Self::F4(vec![float as f32]),
            NumberType::F8 => Self::F8(vec![float]),
            NumberType::C8 => Self::C8(vec![[float as f32, 0.0]]),
            NumberType::C16 => Self::C16(vec![[float, 0.0]]),
        }
    }
}

/// Each value of a column of real numbers, converted to `$to`.
macro_rules! converted {
    ($column:expr, $to:ty) => {
        match $column {
            Column::Bool(values) => values.iter().map(|x| u8::from(*x) as $to).collect(),
            Column::I1(values) => values.iter().map(|x| *x as $to).collect(),
            Column::I2(values) => values.iter().map(|x| *x as $to).collect(),
            Column::I4(values) => values.iter().map(|x| *x as $to).collect(),
            Column::I8(values) => values.iter().map(|x| *x as $to).collect(),
            Column::U1(values) => values.iter().map(|x| *x as $to).collect(),
            Column::U2(values) => values.iter().map(|x| *x as $to).collect(),
            Column::U4(values) => values.iter().map(|x| *x as $to).collect(),
            Column::U8(values) => values.iter().map(|x| *x as $to).collect(),
            Column::F4(values) => values.iter().map(|x| *x as $to).collect(),
            Column::F8(values) => values.iter().map(|x| *x as $to).collect(),
            Column::C8(values) => values.iter().map(|x| x[0] as $to).collect(),
            Column::C16(values) => values.iter().map(|x| x[0] as $to).collect(),
            Column::Wide(values) => values.iter().map(|x| *x as $to).collect(),
        }
    };
}

/// Converts a column to a type that has its values, or rounds them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "types are promoted, never narrowed"
)]
pub(super) fn cast(column: &Column, to: Storage) -> Column {
    match to {
        Storage::Bool => column.clone(), // nothing else becomes one
        Storage::I1 => Column::I1(converted!(column, i8)),
        Storage::I2 => Column::I2(converted!(column, i16)),
        Storage::I4 => Column::I4(converted!(column, i32)),
        Storage::I8 => Column::I8(converted!(column, i64)),
        Storage::U1 => Column::U1(converted!(column, u8)),
        Storage::U2 => Column::U2(converted!(column, u16)),
        Storage::U4 => Column::U4(converted!(column, u32)),
        Storage::U8 => Column::U8(converted!(column, u64)),
        Storage::F4 => Column::F4(converted!(column, f32)),
        Storage::F8 => Column::F8(converted!(column, f64)),
        Storage::C8 => match column {
            Column::C8(values) => Column::C8(values.clone()),
            real => {
                let parts: Vec<f32> = converted!(real, f32);
                Column::C8(parts.into_iter().map(|real| [real, 0.0]).collect())
            }
        },
        Storage::C16 => match column {
            Column::C16(values) => Column::C16(values.clone()),
            Column::C8(values) => Column::C16(values.iter().map(|x| x.map(f64::from)).collect()),
            real => {
                let parts: Vec<f64> = converted!(real, f64);
                Column::C16(parts.into_iter().map(|real| [real, 0.0]).collect())
            }
        },
        Storage::Wide => Column::Wide(converted!(column, i128)),
    }
}

impl Column {
    /// The values as integers: they are integers, or truths.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the values have no fractions"
    )]
    pub(crate) fn as_wide(&self) -> Vec<i128> {
        converted!(self, i128)
    }

    /// The values as doubles: they are no complex numbers. Integers beyond 2^53 are rounded.
    pub(crate) fn as_doubles(&self) -> Vec<f64> {
        match self {
            Self::F4(values) => each(values, f64::from),
            Self::F8(values) => values.clone(),
            whole => each(&whole.as_wide(), |x| x as f64),
        }
    }

    /// The number of ascending splitters that are not above each value. All are below a value that
    /// is no number, as NumPy sorts it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a splitter beyond all integers stays beyond them"
    )]
    pub(crate) fn ranges(&self, splitters: &[f64]) -> Vec<usize> {
        match self {
            Self::F4(values) => each(values, |x| range_of(f64::from(x), splitters)),
            Self::F8(values) => each(values, |x| range_of(x, splitters)),
            whole => {
                // An integer is as large as a number if it is as large as the next integer.
                let next: Vec<i128> = each(splitters, |at| at.ceil() as i128);
                let range = |x: i128| next.partition_point(|at| *at <= x);
                each(&whole.as_wide(), range)
            }
        }
    }
}

fn range_of(value: f64, splitters: &[f64]) -> usize {
    splitters.partition_point(|at| *at <= value || value.is_nan())
}

/// What `of` makes of each two values; one value stands for all.
fn paired<T: Copy, R>(left: &[T], right: &[T], of: impl Fn(T, T) -> R) -> Vec<R> {
    match (left, right) {
        (&[left], right) => right.iter().map(|right| of(left, *right)).collect(),
        (left, &[right]) => left.iter().map(|left| of(*left, right)).collect(),
        (left, right) => {
            let pairs = left.iter().zip(right);
            pairs.map(|(left, right)| of(*left, *right)).collect()
        }
    }
}

/// Why columns cannot be computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// An integer to a negative power.
    NegativePower,
    /// Columns of two types, which typing does not make.
    Types,
}

type Computed = Result<Column, Failure>;

/// Whether an integer is below zero; one without a sign never is.
trait BelowZero {
    fn is_below_zero(&self) -> bool;
}

macro_rules! below_zero {
    ($($signed:ty, $unsigned:ty;)+) => {
        $(impl BelowZero for $signed {
            fn is_below_zero(&self) -> bool {
                *self < 0
            }
        }
        impl BelowZero for $unsigned {
            fn is_below_zero(&self) -> bool {
                false
            }
        })+
    };
}

below_zero!(i8, u8; i16, u16; i32, u32; i64, u64;);

/// Arithmetic of integers that wrap around.
macro_rules! integers {
    ($op:expr, $left:expr, $right:expr, $of:ty) => {{
        let (left, right): (&[$of], &[$of]) = ($left, $right);
        match $op {
            Arithmetic::Add => paired(left, right, <$of>::wrapping_add),
            Arithmetic::Subtract => paired(left, right, <$of>::wrapping_sub),
            Arithmetic::Multiply => paired(left, right, <$of>::wrapping_mul),
            // Integers are divided as floats.
            Arithmetic::Divide => return Err(Failure::Types),
            Arithmetic::FloorDivide => paired(left, right, |a, b| {
                if b == 0 {
                    return 0;
                }
                let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
                let is_below = rest != 0 && rest.is_below_zero() != b.is_below_zero();
                quotient.wrapping_sub(<$of>::from(is_below))
            }),
            Arithmetic::Remainder => paired(left, right, |a, b| {
                if b == 0 {
                    return 0;
                }
                let rest = a.wrapping_rem(b);
                match rest != 0 && rest.is_below_zero() != b.is_below_zero() {
                    true => rest.wrapping_add(b),
                    false => rest,
                }
            }),
            Arithmetic::Power => {
                if right.iter().any(BelowZero::is_below_zero) {
                    return Err(Failure::NegativePower);
                }
                paired(left, right, |mut base, mut exponent| {
                    let mut power: $of = 1;
                    while exponent > 0 {
                        if exponent % 2 == 1 {
                            power = power.wrapping_mul(base);
                        }
                        base = base.wrapping_mul(base);
                        exponent /= 2;
                    }
                    power
                })
            }
        }
    }};
}

/// The quotient and the rest of floats, as NumPy has them.
macro_rules! division {
    ($floor_divide:ident, $remainder:ident, $parts:ident, $of:ty) => {
        /// The quotient rounded down, and the rest, of a divisor that is not zero.
        fn $parts(a: $of, b: $of) -> ($of, $of) {
            let mut rest = a % b;
            let mut quotient = (a - rest) / b;
            if rest == 0.0 {
                rest = (0.0 as $of).copysign(b);
            } else if (b < 0.0) != (rest < 0.0) {
                rest += b;
                quotient -= 1.0;
            }
            if quotient == 0.0 {
                return ((0.0 as $of).copysign(a / b), rest);
            }
            let mut floor = quotient.floor();
            if quotient - floor > 0.5 {
                floor += 1.0;
            }
            (floor, rest)
        }

        pub(super) fn $floor_divide(a: $of, b: $of) -> $of {
            match b == 0.0 {
                true => a / b,
                false => $parts(a, b).0,
            }
        }

        pub(super) fn $remainder(a: $of, b: $of) -> $of {
            match b == 0.0 {
                true => a % b,
                false => $parts(a, b).1,
            }
        }
    };
}

division!(floor_divide, remainder, parts_of_division, f64);
division!(
    floor_divide_single,
    remainder_single,
    parts_of_division_single,
    f32
);

macro_rules! complex_numbers {
    ($op:expr, $left:expr, $right:expr, $of:ty) => {{
        let (left, right): (&[[$of; 2]], &[[$of; 2]]) = ($left, $right);
        match $op {
            Arithmetic::Add => paired(left, right, |[a, b], [c, d]| [a + c, b + d]),
            Arithmetic::Subtract => paired(left, right, |[a, b], [c, d]| [a - c, b - d]),
            Arithmetic::Multiply => {
                paired(left, right, |[a, b], [c, d]| [a * c - b * d, a * d + b * c])
            }
            // Smith's way: no square overflows.
            Arithmetic::Divide => paired(left, right, |[a, b], [c, d]| {
                if c == 0.0 && d == 0.0 {
                    return [a / c.abs(), b / c.abs()];
                }
                if c.abs() >= d.abs() {
                    let ratio = d / c;
                    let scale = 1.0 / (c + d * ratio);
                    [(a + b * ratio) * scale, (b - a * ratio) * scale]
                } else {
                    let ratio = c / d;
                    let scale = 1.0 / (d + c * ratio);
                    [(a * ratio + b) * scale, (b * ratio - a) * scale]
                }
            }),
            Arithmetic::FloorDivide | Arithmetic::Remainder | Arithmetic::Power => {
                return Err(Failure::Types);
            }
        }
    }};
}

/// Single precision, or half if the results are rounded to it.
fn single(values: Vec<f32>, element: NumberType) -> Column {
    match element == NumberType::F2 {
        true => Column::F4(values.into_iter().map(halved).collect()),
        false => Column::F4(values),
    }
}

/// Arithmetic of two columns of one type.
///
/// # Errors
/// [`Failure::NegativePower`] for an integer; [`Failure::Types`] for what typing does not make.
pub(super) fn arithmetic(
    op: Arithmetic,
    element: NumberType,
    left: &Column,
    right: &Column,
) -> Computed {
    use Column::{Bool, C8, C16, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8};
    Ok(match (left, right) {
        (Bool(a), Bool(b)) => Bool(match op {
            Arithmetic::Add => paired(a, b, |a, b| a | b),
            Arithmetic::Multiply => paired(a, b, |a, b| a & b),
            _ => return Err(Failure::Types),
        }),
        (I1(a), I1(b)) => I1(integers!(op, a, b, i8)),
        (I2(a), I2(b)) => I2(integers!(op, a, b, i16)),
        (I4(a), I4(b)) => I4(integers!(op, a, b, i32)),
        (I8(a), I8(b)) => I8(integers!(op, a, b, i64)),
        (U1(a), U1(b)) => U1(integers!(op, a, b, u8)),
        (U2(a), U2(b)) => U2(integers!(op, a, b, u16)),
        (U4(a), U4(b)) => U4(integers!(op, a, b, u32)),
        (U8(a), U8(b)) => U8(integers!(op, a, b, u64)),
        (F4(a), F4(b)) => single(
            match op {
                Arithmetic::Add => paired(a, b, |a, b| a + b),
                Arithmetic::Subtract => paired(a, b, |a, b| a - b),
                Arithmetic::Multiply => paired(a, b, |a, b| a * b),
                Arithmetic::Divide => paired(a, b, |a, b| a / b),
                Arithmetic::FloorDivide => paired(a, b, floor_divide_single),
                Arithmetic::Remainder => paired(a, b, remainder_single),
                Arithmetic::Power => paired(a, b, f32::powf),
            },
            element,
        ),
        (F8(a), F8(b)) => F8(match op {
            Arithmetic::Add => paired(a, b, |a, b| a + b),
            Arithmetic::Subtract => paired(a, b, |a, b| a - b),
            Arithmetic::Multiply => paired(a, b, |a, b| a * b),
            Arithmetic::Divide => paired(a, b, |a, b| a / b),
            Arithmetic::FloorDivide => paired(a, b, floor_divide),
            Arithmetic::Remainder => paired(a, b, remainder),
            Arithmetic::Power => paired(a, b, f64::powf),
        }),
        (C8(a), C8(b)) => C8(complex_numbers!(op, a, b, f32)),
        (C16(a), C16(b)) => C16(complex_numbers!(op, a, b, f64)),
        _ => return Err(Failure::Types),
    })
}

/// What `$of` makes of each float.
macro_rules! of_floats {
    ($column:expr, $element:expr, $x:ident => $of:expr) => {
        match $column {
            Column::F4(values) => Ok(single(values.iter().map(|&$x| $of).collect(), $element)),
            Column::F8(values) => Ok(Column::F8(values.iter().map(|&$x| $of).collect())),
            _ => Err(Failure::Types),
        }
    };
}

pub(super) fn square(element: NumberType, of: &Column) -> Computed {
    of_floats!(of, element, x => x * x)
}

pub(super) fn root(element: NumberType, of: &Column) -> Computed {
    of_floats!(of, element, x => x.sqrt())
}

pub(super) fn reciprocal(element: NumberType, of: &Column) -> Computed {
    of_floats!(of, element, x => 1.0 / x)
}

/// What `of` makes of each value.
fn each<T: Copy, R>(values: &[T], of: impl Fn(T) -> R) -> Vec<R> {
    values.iter().map(|value| of(*value)).collect()
}

pub(super) fn negative(of: &Column) -> Computed {
    Ok(match of {
        Column::I1(values) => Column::I1(each(values, i8::wrapping_neg)),
        Column::I2(values) => Column::I2(each(values, i16::wrapping_neg)),
        Column::I4(values) => Column::I4(each(values, i32::wrapping_neg)),
        Column::I8(values) => Column::I8(each(values, i64::wrapping_neg)),
        Column::U1(values) => Column::U1(each(values, u8::wrapping_neg)),
        Column::U2(values) => Column::U2(each(values, u16::wrapping_neg)),
        Column::U4(values) => Column::U4(each(values, u32::wrapping_neg)),
        Column::U8(values) => Column::U8(each(values, u64::wrapping_neg)),
        Column::F4(values) => Column::F4(each(values, |x| -x)),
        Column::F8(values) => Column::F8(each(values, |x| -x)),
        Column::C8(values) => Column::C8(each(values, |x| x.map(|part| -part))),
        Column::C16(values) => Column::C16(each(values, |x| x.map(|part| -part))),
        Column::Bool(_) | Column::Wide(_) => return Err(Failure::Types),
    })
}

pub(super) fn absolute(of: &Column) -> Column {
    match of {
        Column::I1(values) => Column::I1(each(values, i8::wrapping_abs)),
        Column::I2(values) => Column::I2(each(values, i16::wrapping_abs)),
        Column::I4(values) => Column::I4(each(values, i32::wrapping_abs)),
        Column::I8(values) => Column::I8(each(values, i64::wrapping_abs)),
        Column::F4(values) => Column::F4(each(values, f32::abs)),
        Column::F8(values) => Column::F8(each(values, f64::abs)),
        Column::C8(values) => Column::F4(each(values, |[real, imaginary]| real.hypot(imaginary))),
        Column::C16(values) => Column::F8(each(values, |[real, imaginary]| real.hypot(imaginary))),
        unsigned => unsigned.clone(),
    }
}

/// The parts of complex numbers with this number: 0 is the real one.
pub(super) fn part(of: &Column, number: usize) -> Computed {
    match of {
        Column::C8(values) => Ok(Column::F4(each(values, |x| x[number]))),
        Column::C16(values) => Ok(Column::F8(each(values, |x| x[number]))),
        _ => Err(Failure::Types),
    }
}

pub(super) fn is_nan(of: &Column) -> Computed {
    Ok(Column::Bool(match of {
        Column::F4(values) => each(values, f32::is_nan),
        Column::F8(values) => each(values, f64::is_nan),
        Column::C8(values) => each(values, |x| x[0].is_nan() || x[1].is_nan()),
        Column::C16(values) => each(values, |x| x[0].is_nan() || x[1].is_nan()),
        _ => return Err(Failure::Types),
    }))
}

/// A number made of the bits of each value: the same for equal values of one type, whatever the
/// signs of zeros and the bits of what is no number.
pub(super) fn hash(of: &Column) -> Column {
    fn mixed(bits: u64) -> u64 {
        // The end of SplitMix64 (Steele, Lea and Flood 2014).
        let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
    fn float(value: f64) -> u64 {
        let value = if value.is_nan() {
            f64::NAN
        } else {
            value + 0.0
        }; // -0 becomes 0
        mixed(value.to_bits())
    }
    let complex =
        |[real, imaginary]: [f64; 2]| mixed(float(real) ^ float(imaginary).rotate_left(1));
    Column::U8(match of {
        Column::F4(values) => each(values, |x| float(f64::from(x))),
        Column::F8(values) => each(values, float),
        Column::C8(values) => each(values, |x| complex(x.map(f64::from))),
        Column::C16(values) => each(values, complex),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "integers have no more bits"
        )]
        whole => each(&whole.as_wide(), |x| mixed(x as u64)),
    })
}

impl Comparison {
    /// Whether the comparison holds for two values.
    pub(super) fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::GreaterOrEqual => left >= right,
            Self::Greater => left > right,
        }
    }

    fn compared<T: Copy + PartialOrd>(self, left: &[T], right: &[T]) -> Column {
        Column::Bool(match self {
            Self::Less => paired(left, right, |a, b| a < b),
            Self::LessOrEqual => paired(left, right, |a, b| a <= b),
            Self::Equal => paired(left, right, |a, b| a == b),
            Self::NotEqual => paired(left, right, |a, b| a != b),
            Self::GreaterOrEqual => paired(left, right, |a, b| a >= b),
            Self::Greater => paired(left, right, |a, b| a > b),
        })
    }
}

/// Compares two columns of one type.
///
/// # Errors
/// [`Failure::Types`] for columns of two.
pub(super) fn compare(op: Comparison, left: &Column, right: &Column) -> Computed {
    use Column::{Bool, C8, C16, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Wide};
    Ok(match (left, right) {
        (Bool(a), Bool(b)) => op.compared(a, b),
        (I1(a), I1(b)) => op.compared(a, b),
        (I2(a), I2(b)) => op.compared(a, b),
        (I4(a), I4(b)) => op.compared(a, b),
        (I8(a), I8(b)) => op.compared(a, b),
        (U1(a), U1(b)) => op.compared(a, b),
        (U2(a), U2(b)) => op.compared(a, b),
        (U4(a), U4(b)) => op.compared(a, b),
        (U8(a), U8(b)) => op.compared(a, b),
        (F4(a), F4(b)) => op.compared(a, b),
        (F8(a), F8(b)) => op.compared(a, b),
        (C8(a), C8(b)) => op.compared(a, b),
        (C16(a), C16(b)) => op.compared(a, b),
        (Wide(a), Wide(b)) => op.compared(a, b),
        _ => return Err(Failure::Types),
    })
}

/// Joins two columns of truths.
///
/// # Errors
/// [`Failure::Types`] for other columns.
pub(super) fn joined(left: &Column, right: &Column, of: fn(bool, bool) -> bool) -> Computed {
    match (left, right) {
        (Column::Bool(left), Column::Bool(right)) => Ok(Column::Bool(paired(left, right, of))),
        _ => Err(Failure::Types),
    }
}

/// The opposite of truths.
///
/// # Errors
/// [`Failure::Types`] for other columns.
pub(super) fn not(of: &Column) -> Computed {
    match of {
        Column::Bool(values) => Ok(Column::Bool(each(values, |truth| !truth))),
        _ => Err(Failure::Types),
    }
}
