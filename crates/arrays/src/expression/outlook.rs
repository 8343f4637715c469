//! What an expression may come to over many elements, when only their bounds and places are known.
//!
//! The tree is computed once, with bounds in the place of columns. A result is never narrower than
//! what the elements come to: rounding keeps the order of numbers, so the bounds of a sum are the
//! rounded sums of bounds. Where types wrap around, and of operations that no case here knows,
//! anything may come out.

use penstock_engine::Bounds;
use penstock_layout::Region;

use super::column::{Column, Storage, halved};
use super::syntax::{Arithmetic, Comparison};
use super::{Condition, Expression, Operation};
use crate::dtype::NumberType;

/// Integers below this are doubles, and so are their sums.
const EXACT: f64 = (1u64 << 52) as f64;

/// What the results of an operation may be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outlook {
    /// Numbers between bounds: of a float type, or integers.
    Numbers {
        bounds: Bounds,
        is_float: bool,
    },
    Truths(Truths),
    Anything,
}

/// The truths that are among results.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Truths {
    has_true: bool,
    has_false: bool,
}

/// The elements that are looked at: those of a region, with bounds if some are known.
struct Known<'a> {
    expression: &'a Expression,
    element: Option<Bounds>,
    region: &'a Region,
}

impl Condition {
    /// Whether the condition looks at elements, so that their bounds may rule it out.
    pub(crate) fn looks_at_elements(&self) -> bool {
        !self.0.takes.is_empty()
    }

    /// Whether the condition may hold for an element of a region, in which elements have these
    /// bounds. If it may not, it holds for none of them.
    pub(crate) fn may_hold(&self, element: Option<Bounds>, region: &Region) -> bool {
        let known = Known {
            expression: &self.0,
            element,
            region,
        };
        known.truths(&self.0.operation).has_true
    }
}

impl Known<'_> {
    fn of(&self, operation: &Operation) -> Outlook {
        match operation {
            Operation::Elements(nth) => self.elements(*nth),
            Operation::Index(dim) => {
                let (start, extent) = (self.region.start[*dim], self.region.shape[*dim]);
                integers(start as f64, (start + extent).saturating_sub(1) as f64)
            }
            Operation::Constant(column) => constant(column),
            Operation::Cast(to, inner) => cast(*to, self.of(inner)),
            Operation::Arithmetic(op, number, left, right) => {
                match (self.of(left), self.of(right)) {
                    (Outlook::Numbers { bounds: a, .. }, Outlook::Numbers { bounds: b, .. }) => {
                        arithmetic(*op, *number, a, b)
                    }
                    _ => Outlook::Anything,
                }
            }
            Operation::Absolute(inner) => absolute(self.of(inner)),
            Operation::IsNan(inner) => match self.of(inner) {
                Outlook::Numbers { bounds, .. } => Outlook::Truths(Truths {
                    has_true: bounds.has_nan,
                    has_false: bounds.low <= bounds.high,
                }),
                _ => Outlook::Anything,
            },
            Operation::Compare(op, left, right) => {
                Outlook::Truths(compared(*op, self.of(left), self.of(right)))
            }
            Operation::Not(inner) => {
                let Truths {
                    has_true,
                    has_false,
                } = self.truths(inner);
                Outlook::Truths(Truths {
                    has_true: has_false,
                    has_false: has_true,
                })
            }
            Operation::And(all) => Outlook::Truths(Truths {
                has_true: all.iter().all(|one| self.truths(one).has_true),
                has_false: all.iter().any(|one| self.truths(one).has_false),
            }),
            Operation::Or(all) => Outlook::Truths(Truths {
                has_true: all.iter().any(|one| self.truths(one).has_true),
                has_false: all.iter().all(|one| self.truths(one).has_false),
            }),
            Operation::Square(..)
            | Operation::Root(..)
            | Operation::Reciprocal(..)
            | Operation::Negative(_)
            | Operation::Real(_)
            | Operation::Imaginary(_)
            | Operation::Hash(_) => Outlook::Anything,
        }
    }

    fn truths(&self, operation: &Operation) -> Truths {
        match self.of(operation) {
            Outlook::Truths(truths) => truths,
            _ => Truths::ANY,
        }
    }

    fn elements(&self, nth: usize) -> Outlook {
        let Some(bounds) = self.element else {
            return Outlook::Anything;
        };
        match self.expression.takes[nth].number {
            NumberType::Bool => Outlook::Truths(Truths {
                has_true: bounds.high > 0.0,
                has_false: bounds.low <= 0.0,
            }),
            NumberType::C8 | NumberType::C16 => Outlook::Anything,
            number => Outlook::Numbers {
                bounds,
                is_float: is_float(number),
            },
        }
    }
}

impl Truths {
    const ANY: Self = Self {
        has_true: true,
        has_false: true,
    };
}

fn is_float(number: NumberType) -> bool {
    matches!(number, NumberType::F2 | NumberType::F4 | NumberType::F8)
}

/// Integers, or doubles next to them.
fn integers(low: f64, high: f64) -> Outlook {
    let out = |number: f64, beyond: f64| match number.abs() < EXACT {
        true => number,
        false => beyond,
    };
    Outlook::Numbers {
        bounds: Bounds {
            low: out(low, low.next_down()),
            high: out(high, high.next_up()),
            has_nan: false,
        },
        is_float: false,
    }
}

fn constant(column: &Column) -> Outlook {
    if let Column::C8(_) | Column::C16(_) = column {
        return Outlook::Anything;
    }
    let [number] = column.as_doubles()[..] else {
        return Outlook::Anything;
    };
    match column {
        Column::Bool(_) => Outlook::Truths(Truths {
            has_true: number != 0.0,
            has_false: number == 0.0,
        }),
        Column::F4(_) | Column::F8(_) => Outlook::Numbers {
            bounds: Bounds::of_one(number),
            is_float: true,
        },
        _ => integers(number, number),
    }
}

/// The least and the greatest integer of a storage.
fn range_of(storage: Storage) -> Option<(f64, f64)> {
    let signed = |bits: i32| Some((-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0));
    let unsigned = |bits: i32| Some((0.0, 2f64.powi(bits) - 1.0));
    match storage {
        Storage::I1 => signed(8),
        Storage::I2 => signed(16),
        Storage::I4 => signed(32),
        Storage::U1 => unsigned(8),
        Storage::U2 => unsigned(16),
        Storage::U4 => unsigned(32),
        Storage::I8 => Some((-(2f64.powi(63)), 2f64.powi(63).next_down())),
        Storage::U8 => Some((0.0, 2f64.powi(64).next_down())),
        Storage::Wide => Some((f64::NEG_INFINITY, f64::INFINITY)),
        Storage::Bool | Storage::F4 | Storage::F8 | Storage::C8 | Storage::C16 => None,
    }
}

fn cast(to: Storage, of: Outlook) -> Outlook {
    let (bounds, is_float) = match of {
        Outlook::Numbers { bounds, is_float } => (bounds, is_float),
        Outlook::Truths(truths) if to != Storage::Bool => (numbers_of(truths), false),
        other => return other,
    };
    match to {
        Storage::F4 => Outlook::Numbers {
            bounds: rounded(NumberType::F4, bounds),
            is_float: true,
        },
        Storage::F8 => Outlook::Numbers {
            bounds,
            is_float: true,
        },
        _ => match range_of(to) {
            Some((least, greatest))
                if !is_float && bounds.low >= least && bounds.high <= greatest =>
            {
                Outlook::Numbers {
                    bounds,
                    is_float: false,
                }
            }
            _ => Outlook::Anything,
        },
    }
}

/// Truths as 0 and 1.
fn numbers_of(truths: Truths) -> Bounds {
    let bounds = |is, number: f64| match is {
        true => Bounds::of_one(number),
        false => Bounds::NONE,
    };
    bounds(truths.has_false, 0.0).and(bounds(truths.has_true, 1.0))
}

/// The bounds of numbers when they are rounded to a float type.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding is what is asked for"
)]
fn rounded(number: NumberType, bounds: Bounds) -> Bounds {
    let round = |of: f64| match number {
        NumberType::F2 => f64::from(halved(of as f32)),
        NumberType::F4 => f64::from(of as f32),
        _ => of,
    };
    Bounds {
        low: round(bounds.low),
        high: round(bounds.high),
        ..bounds
    }
}

fn arithmetic(op: Arithmetic, number: NumberType, a: Bounds, b: Bounds) -> Outlook {
    let each = |of: fn(f64, f64) -> f64| {
        let corners = [
            (a.low, b.low),
            (a.low, b.high),
            (a.high, b.low),
            (a.high, b.high),
        ];
        corners.map(|(a, b)| of(a, b))
    };
    let corners = match op {
        Arithmetic::Add => each(|a, b| a + b),
        Arithmetic::Subtract => each(|a, b| a - b),
        Arithmetic::Multiply => each(|a, b| a * b),
        Arithmetic::Divide if b.low > 0.0 || b.high < 0.0 => each(|a, b| a / b),
        _ => return Outlook::Anything,
    };
    let are_there = a.low <= a.high && b.low <= b.high;
    if !are_there || corners.iter().any(|corner| corner.is_nan()) {
        return Outlook::Anything;
    }
    let none = Bounds::NONE;
    let (low, high) = corners
        .into_iter()
        .fold((none.low, none.high), |(low, high), corner| {
            (low.min(corner), high.max(corner))
        });
    let ends = [a.low, a.high, b.low, b.high];
    if is_float(number) {
        // An infinity and another number may come to no number.
        let has_infinity = ends.iter().any(|end| end.is_infinite());
        let bounds = Bounds {
            low,
            high,
            has_nan: a.has_nan || b.has_nan || has_infinity,
        };
        return Outlook::Numbers {
            bounds: rounded(number, bounds),
            is_float: true,
        };
    }
    let range = Storage::of(number);
    let range = range_of(range);
    let is_exact = ends
        .iter()
        .chain([&low, &high])
        .all(|end| end.abs() < EXACT);
    match range {
        Some((least, greatest)) if is_exact && low >= least && high <= greatest => {
            integers(low, high)
        }
        _ => Outlook::Anything,
    }
}

fn absolute(of: Outlook) -> Outlook {
    /// What no integer type has as a positive number is less than this, or is this.
    const SAFE: f64 = -128.0;
    match of {
        Outlook::Numbers { bounds, is_float } if is_float || bounds.low > SAFE => {
            let ends = [bounds.low.abs(), bounds.high.abs()];
            let is_around_zero = bounds.low <= 0.0 && bounds.high >= 0.0;
            let least = ends[0].min(ends[1]);
            let bounds = Bounds {
                low: if is_around_zero { 0.0 } else { least },
                high: ends[0].max(ends[1]),
                ..bounds
            };
            Outlook::Numbers { bounds, is_float }
        }
        _ => Outlook::Anything,
    }
}

fn compared(op: Comparison, left: Outlook, right: Outlook) -> Truths {
    let bounds = |of: Outlook| match of {
        Outlook::Numbers { bounds, .. } => Some(bounds),
        Outlook::Truths(truths) => Some(numbers_of(truths)),
        Outlook::Anything => None,
    };
    let (Some(a), Some(b)) = (bounds(left), bounds(right)) else {
        return Truths::ANY;
    };
    let has_nan = a.has_nan || b.has_nan;
    let are_one = a.low == a.high && a.low == b.low && b.low == b.high;
    let meet = a.low <= b.high && b.low <= a.high;
    let (is_some, is_other) = match op {
        Comparison::Less => (a.low < b.high, a.high >= b.low),
        Comparison::LessOrEqual => (a.low <= b.high, a.high > b.low),
        Comparison::Equal => (meet, !are_one),
        Comparison::NotEqual => (!are_one || has_nan, meet),
        Comparison::GreaterOrEqual => (a.high >= b.low, a.low < b.high),
        Comparison::Greater => (a.high > b.low, a.low <= b.high),
    };
    Truths {
        has_true: is_some,
        has_false: is_other || has_nan,
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::super::tests::{Chance, scope};
    use super::super::{Elements, Scope};
    use super::*;
    use crate::formats::bounds::of_elements;
    use NumberType::{Bool, C8, F2, F4, F8, I1, I4, I8, U1, U8};

    fn region() -> Region {
        Region::new(&[3, 0, 10], &[2, 3, 4])
    }

    /// The elements of the region with these bytes, and their bounds.
    fn check(text: &str, of: &Scope, number: NumberType, bytes: &[u8]) -> (bool, bool) {
        let condition = Condition::read(text, of).unwrap();
        let region = region();
        let count = bytes.len() / number.width() as usize;
        let mut indices: [Vec<i64>; 3] = Default::default();
        for at in 0..count as u64 {
            for (dim, at) in [at / 12, at / 4 % 3, at % 4].into_iter().enumerate() {
                indices[dim].push((region.start[dim] + at) as i64);
            }
        }
        let values = [Column::of_bytes(number, bytes)];
        let indices = indices.map(Column::I8);
        let elements = Elements {
            values: &values,
            indices: &indices,
        };
        let holds = condition.holds(&elements, count).unwrap().contains(&true);
        (
            holds,
            condition.may_hold(of_elements(number, bytes), &region),
        )
    }

    #[test]
    fn nothing_that_holds_is_ruled_out() {
        let texts = [
            "u > 3",
            "u <= -1 or i0 == 3",
            "u == 0",
            "not u != 0",
            "abs(u) > 100",
            "u + 1 < 2",
            "2 * u - i1 >= 7",
            "u / 4 > 30",
            "u * u > 9",
            "between(u, -3, 3) and x >= 12",
            "u in [1, 2, 100]",
            "isnan(u)",
            "not isnan(u)",
            "u % 3 == 1",
            "u - u == 0",
            "i0 * 2 + x < 17",
            "-u > 100",
            "not (u > 5 or i1 < 1)",
            "(u > 3) == (i1 > 0)",
            "u >= 9007199254740993",
        ];
        let (mut ruled_out, mut held) = (0, 0);
        for number in [U1, I1, I4, I8, U8, F2, F4, F8] {
            let of = scope(number);
            for text in texts {
                if Condition::read(text, &of).is_err() {
                    continue; // no number of the type
                }
                for seed in 0..40 {
                    let mut chance = Chance::new(seed * 71 + 5);
                    let width = number.width() as usize;
                    let bytes: Vec<u8> = match chance.below(3) {
                        // Any bits; equal elements; bytes that are small numbers.
                        0 => chance.bytes(24 * width),
                        1 => chance.bytes(width).repeat(24),
                        _ => {
                            let one = |n: u64| near(number, (n % 16) as f64 - 4.0);
                            (0..24).flat_map(|_| one(chance.below(16))).collect()
                        }
                    };
                    let (holds, may_hold) = check(text, &of, number, &bytes);
                    assert!(!holds || may_hold, "{text} of {number:?}: {bytes:?}");
                    ruled_out += u32::from(!may_hold);
                    held += u32::from(holds);
                }
            }
        }
        assert!(ruled_out > 500 && held > 500, "{ruled_out} and {held}");
    }

    /// The bytes of a small number.
    fn near(number: NumberType, value: f64) -> Vec<u8> {
        match number {
            F2 => f16::from_f64(value).to_ne_bytes().to_vec(),
            F4 => (value as f32).to_ne_bytes().to_vec(),
            F8 => value.to_ne_bytes().to_vec(),
            whole => (value.abs() as u64).to_ne_bytes()[..whole.width() as usize].to_vec(),
        }
    }

    #[test]
    fn what_cannot_hold_is_ruled_out() {
        let within = |low: f64, high: f64, has_nan: bool| Bounds { low, high, has_nan };
        let known = within(1.0, 2.0, false);
        for (text, expected) in [
            ("u > 2", false),
            ("u >= 2", true),
            ("u < 1", false),
            ("u == 3", false),
            ("u != 3", true),
            ("u in [0, 3]", false),
            ("between(u, 3, 4)", false),
            ("isnan(u)", false),
            ("abs(u - 5) < 1", false),
            ("u * 10 > 20", false),
            ("u / 2 > 1", false),
            ("i0 < 3", false),
            ("i0 >= 5", false),
            ("x == 13 and u > 1", true),
            ("u > 5 or x > 13", false),
            ("not u <= 2", false),
            ("u ** 2 > 100", true),
            ("hash(u) % 2 == 0", true),
        ] {
            let condition = Condition::read(text, &scope(F8)).unwrap();
            assert_eq!(
                condition.may_hold(Some(known), &region()),
                expected,
                "{text}"
            );
            let unknown = condition.may_hold(None, &region());
            assert_eq!(unknown, !text.starts_with("i0"), "{text}");
        }
        let condition = Condition::read("not u <= 2", &scope(F8)).unwrap();
        assert!(condition.may_hold(Some(within(1.0, 2.0, true)), &region()));
        let truth = Condition::read("u", &scope(Bool)).unwrap();
        assert!(!truth.may_hold(Some(within(0.0, 0.0, false)), &region()));
        let complex = Condition::read("real(u) > 3", &scope(C8)).unwrap();
        assert!(complex.may_hold(Some(known), &region()));
    }
}
