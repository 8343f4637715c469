//! To whom a selection delivers elements.
//!
//! Distribution by value is that of Kotz, TOCS 1997, section 8: records go to clients by what is in
//! them, particles by their cell, say. A server computes the rank of each element that it has read,
//! so elements cross the network once.

use std::ops::Range;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use crate::ArraySchema;
use crate::dtype::NumberType;
use crate::expression::{Column, Elements, Expression, Scope};

/// What an error was in.
const DEALING: &str = "dealing elements out";

/// The ranks to whom a selection delivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Recipients {
    /// Each rank that holds the element, in the memory schema of the array.
    Holders,
    /// All ranks evenly, in the order of the array.
    Evenly,
    /// The rank that a value of the element names.
    ByValue {
        /// The expression of the value: the grammar is at the head of `crate::expression`.
        expression: String,
        /// The lowest value of each rank but the first, ascending; without them the value is an
        /// integer, and the rank is its rest in a division by the number of ranks.
        splitters: Option<Vec<f64>>,
    },
    /// Each rank that has the element's number, in the row-major order of the array, in its range.
    /// Ranges that are not empty begin in the order of the ranks, and end in it.
    Ranges(Vec<Range<u64>>),
}

impl Recipients {
    /// The recipients in words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Holders => "who holds them".to_string(),
            Self::Evenly => "all evenly".to_string(),
            Self::ByValue {
                expression,
                splitters: None,
            } => format!("by {expression}"),
            Self::ByValue {
                expression,
                splitters: Some(splitters),
            } => format!("by {expression}, split at {splitters:?}"),
            Self::Ranges(ranges) => format!("by ranges {ranges:?}"),
        }
    }
}

/// How a server finds the rank to whom it delivers an element.
pub(super) enum Deal {
    /// By the equal part of the array in which it lies.
    Evenly(EqualParts),
    /// By a value.
    ByValue(Key),
    /// By ranges of places.
    Ranges(Ranges),
}

/// Equal parts of an array: part `r` of `p` has `r n / p .. (r + 1) n / p` of `n` elements.
pub(super) struct EqualParts {
    elements: u128,
    parts: u128,
}

/// The ranges of places that ranks have, in their order; none is empty.
pub(super) struct Ranges(Vec<(Range<u64>, usize)>);

/// The value of an element that names its rank.
pub(super) struct Key {
    pub(super) expression: Expression,
    splitters: Option<Vec<f64>>,
    ranks: usize,
}

impl Deal {
    /// The deal of an array of this shape to this number of ranks; `None` if elements go to their
    /// holders.
    ///
    /// # Errors
    /// [`Kind::Schema`] for an expression, splitters or ranges that make no sense, and without
    /// ranks.
    pub(super) fn new(
        recipients: &Recipients,
        (shape, ranks): (&[u64], usize),
        scope: &Scope,
    ) -> Result<Option<Self>> {
        Ok(match recipients {
            Recipients::Holders => None,
            Recipients::Evenly => Some(Self::Evenly(EqualParts::new(shape, ranks)?)),
            Recipients::Ranges(ranges) => Some(Self::Ranges(Ranges::new(ranges)?)),
            Recipients::ByValue {
                expression,
                splitters,
            } => Some(Self::ByValue(Key::new(
                expression, splitters, ranks, scope,
            )?)),
        })
    }
}

impl EqualParts {
    /// The parts of an array of this shape.
    ///
    /// # Errors
    /// [`Kind::Schema`] without parts.
    pub(super) fn new(shape: &[u64], parts: usize) -> Result<Self> {
        Ok(Self {
            elements: shape.iter().map(|extent| u128::from(*extent)).product(),
            parts: some(parts)? as u128,
        })
    }

    /// The part of the element at a place.
    pub(super) fn part_of(&self, place: u64) -> usize {
        // The largest r with r n / p <= place, rounded down.
        let part = ((u128::from(place) + 1) * self.parts - 1) / self.elements.max(1);
        exact::<usize>(part)
    }
}

/// A number of ranks or parts, which may have come from elsewhere.
fn some(number: usize) -> Result<usize> {
    match number {
        0 => Err(Error::new(
            Kind::Schema,
            DEALING,
            "there is nobody to have them",
        )),
        number => Ok(number),
    }
}

impl Ranges {
    fn new(of_ranks: &[Range<u64>]) -> Result<Self> {
        let numbered = of_ranks.iter().cloned().zip(0..);
        let ranges: Vec<(Range<u64>, usize)> =
            numbered.filter(|(range, _)| !range.is_empty()).collect();
        let is_in_order = ranges.is_sorted_by_key(|(range, _)| range.start)
            && ranges.is_sorted_by_key(|(range, _)| range.end);
        match is_in_order {
            true => Ok(Self(ranges)),
            false => Err(Error::new(Kind::Schema, DEALING, "ranges are not in order")),
        }
    }

    /// The ranks that have a place.
    pub(super) fn ranks_of(&self, place: u64) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|(range, _)| range.end <= place);
        let from_there = self.0[first..].iter();
        let having = from_there.take_while(move |(range, _)| range.start <= place);
        having.map(|(_, rank)| *rank)
    }
}

impl Key {
    fn new(text: &str, splitters: &Option<Vec<f64>>, ranks: usize, scope: &Scope) -> Result<Self> {
        use NumberType::{Bool, C8, C16, F2, F4, F8};
        let (expression, ranks) = (Expression::read(text, scope)?, some(ranks)?);
        let wrong = |cause: String| {
            let doing = format!("dealing elements out by {text:?}");
            Err(Error::new(Kind::Schema, doing, cause))
        };
        match (expression.number(), splitters) {
            (C8 | C16, _) => return wrong("complex numbers have no order".to_string()),
            (F2 | F4 | F8, None) => {
                let cause = "it is no integer: give splitters, or an integer such as a cell's \
                             number or hash(..)";
                return wrong(cause.to_string());
            }
            (Bool, Some(_)) => return wrong("a truth has no splitters".to_string()),
            (_, Some(splitters)) => {
                let is_ascending = splitters.is_sorted() && splitters.iter().all(|at| !at.is_nan());
                if !is_ascending || splitters.len() >= ranks {
                    return wrong(format!(
                        "splitters are numbers in ascending order, at most one for each rank but \
                         the first: there are {} for {ranks} ranks",
                        splitters.len()
                    ));
                }
            }
            (_, None) => {}
        }
        Ok(Self {
            expression,
            splitters: splitters.clone(),
            ranks,
        })
    }

    /// The rank of each of `count` elements with these values, or with one that stands for all.
    pub(super) fn ranks(&self, values: &Column, count: usize) -> Vec<usize> {
        let ranks = match &self.splitters {
            None => {
                let all = self.ranks as i128;
                let rest = |value: i128| exact::<usize>(value.rem_euclid(all));
                values.as_wide().into_iter().map(rest).collect()
            }
            Some(splitters) => values.ranges(splitters),
        };
        match ranks[..] {
            [one] => vec![one; count],
            _ => ranks,
        }
    }
}

/// A value of elements whose splitters a sample gives.
pub(crate) struct SampledKey {
    expression: Expression,
    ranks: usize,
}

impl SampledKey {
    /// The value of an expression, by which elements go to `ranks` ranks.
    ///
    /// # Errors
    /// [`Kind::Schema`] for an expression that makes no sense, or has no splitters.
    pub(crate) fn new(text: &str, ranks: usize, scope: &Scope) -> Result<Self> {
        let Key {
            expression, ranks, ..
        } = Key::new(text, &Some(Vec::new()), ranks, scope)?;
        Ok(Self { expression, ranks })
    }

    /// The splitters by which these elements of an array, with their indices, go to all ranks
    /// evenly. What is no number counts as infinity.
    ///
    /// # Errors
    /// As [`Expression::values`].
    pub(crate) fn splitters(
        &self,
        elements: &[u8],
        indices: &[i64],
        schema: &ArraySchema,
    ) -> Result<Vec<f64>> {
        let (width, dims) = (exact::<usize>(schema.element.width()), schema.shape.len());
        let of_dim = |dim: usize| indices.iter().skip(dim).step_by(dims).copied();
        let indices = (0..dims).map(|dim| Column::I8(of_dim(dim).collect()));
        let indices: Vec<Column> = indices.collect();
        let values = self.expression.columns(elements, width);
        let elements = Elements {
            values: &values,
            indices: &indices,
        };
        let values = self.expression.values(&elements)?;
        let mut sorted = values.as_doubles();
        let no_number = sorted.iter_mut().filter(|value| value.is_nan());
        no_number.for_each(|value| *value = f64::INFINITY);
        sorted.sort_unstable_by(f64::total_cmp);
        let of_rank = |rank| sorted.get(rank * sorted.len() / self.ranks).copied();
        Ok((1..self.ranks).filter_map(of_rank).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn scope(element: ElementType) -> Scope {
        Scope {
            name: "u".to_string(),
            element,
            dims: vec![None],
        }
    }

    #[test]
    fn places_are_dealt_to_ranks_in_order() {
        for (elements, ranks) in [(10, 3), (2, 5), (1, 1), (1000, 7), (5, 5)] {
            let of = scope(ElementType::F8);
            let deal = Deal::new(&Recipients::Evenly, (&[elements], ranks), &of);
            let Some(Deal::Evenly(evenly)) = deal.unwrap() else {
                panic!("they are dealt out in another way");
            };
            for place in 0..elements {
                let start = |rank: u64| rank * elements / ranks as u64;
                let rank = evenly.part_of(place) as u64;
                assert!(
                    (start(rank)..start(rank + 1)).contains(&place),
                    "{place} of {elements}"
                );
            }
        }
    }

    #[test]
    fn ranges_may_share_places_and_be_empty() {
        let ranges = [0..5, 0..0, 3..9, 3..9, 9..9, 8..20];
        let ranges = Ranges::new(&ranges).unwrap();
        let ranks = |place| ranges.ranks_of(place).collect::<Vec<_>>();
        assert_eq!(ranks(0), [0]);
        assert_eq!(ranks(4), [0, 2, 3]);
        assert_eq!(ranks(8), [2, 3, 5]);
        assert_eq!(ranks(19), [5]);
        assert_eq!(ranks(20), [0; 0]);
        assert!(Ranges::new(&[2..5, 0..7]).is_err());
        assert!(Ranges::new(&[2..5, 3..4]).is_err());
    }

    #[test]
    fn nobody_gets_nothing() {
        let of = scope(ElementType::I4);
        for recipients in [
            Recipients::Evenly,
            Recipients::ByValue {
                expression: "u".to_string(),
                splitters: None,
            },
        ] {
            assert!(Deal::new(&recipients, (&[7], 0), &of).is_err());
        }
    }

    fn key(text: &str, element: ElementType, splitters: Option<&[f64]>) -> Result<Key> {
        Key::new(text, &splitters.map(<[f64]>::to_vec), 4, &scope(element))
    }

    #[test]
    fn integers_name_ranks_by_their_rest() {
        let key = key("u", ElementType::I8, None).unwrap();
        let values = Column::I8(vec![-5, -4, -1, 0, 3, 4, i64::MAX, i64::MIN]);
        assert_eq!(key.ranks(&values, 8), [3, 0, 3, 0, 3, 0, 3, 0]);
        assert_eq!(key.ranks(&Column::I8(vec![6]), 3), [2, 2, 2]);
    }

    #[test]
    fn splitters_are_the_lowest_values_of_ranks() {
        let splitters = [-1.5, 0.0, 0.0];
        let floats = key("u", ElementType::F8, Some(&splitters)).unwrap();
        let values = [-2.0, -1.5, -0.0, 0.0, 9.0, f64::NAN, f64::NEG_INFINITY];
        let ranks = floats.ranks(&Column::F8(values.to_vec()), values.len());
        assert_eq!(ranks, [0, 1, 3, 3, 3, 3, 0]);
        let large = (1_i64 << 53) + 1;
        let splitters = [
            (1_i64 << 53) as f64,
            ((1_i64 << 53) + 2) as f64,
            f64::INFINITY,
        ];
        let integers = key("u", ElementType::I8, Some(&splitters)).unwrap();
        let values = Column::I8(vec![large - 2, large - 1, large, large + 1]);
        assert_eq!(integers.ranks(&values, 4), [0, 1, 1, 2]);
        let parts = key("u", ElementType::I4, Some(&[-0.5, 0.5])).unwrap();
        assert_eq!(parts.ranks(&Column::I4(vec![-1, 0, 1]), 3), [0, 1, 2]);
    }

    #[test]
    fn a_sample_is_split_evenly() {
        let disk = crate::Storage::plain_chunks(vec![8, 3]);
        let schema = ArraySchema::new("u", &[8, 3], ElementType::F4, disk);
        let names = ["y".to_string(), "x".to_string()];
        let of = Scope::new("u", &ElementType::F4, Some(&names), 2);
        let values = [7.0f32, 1.0, f32::NAN, 3.0, 5.0, 2.0, 6.0, 4.0];
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let indices: Vec<i64> = (0..8).flat_map(|y| [y, y % 3]).collect();
        let splitters = |text: &str, ranks: usize, count: usize| {
            let key = SampledKey::new(text, ranks, &of).unwrap();
            key.splitters(&bytes[..4 * count], &indices[..2 * count], &schema)
                .unwrap()
        };
        assert_eq!(splitters("u", 4, 8), [3.0, 5.0, 7.0]);
        assert_eq!(splitters("y", 2, 8), [4.0]);
        assert_eq!(splitters("y + 10 * x", 3, 6), [11.0, 22.0]);
        assert_eq!(splitters("u", 1, 8), [0.0; 0]);
        assert_eq!(splitters("u", 4, 0), [0.0; 0]);
        assert_eq!(splitters("u", 3, 3)[1], f64::INFINITY);
        assert!(SampledKey::new("u > 1", 3, &of).is_err());
    }

    #[test]
    fn what_names_no_rank_is_refused() {
        let long = [0.0; 4];
        let cases: [(&str, ElementType, Option<&[f64]>, &str); 7] = [
            ("u", ElementType::F8, None, "no integer"),
            ("u", ElementType::C8, None, "no order"),
            ("u > 1", ElementType::F8, Some(&[0.5]), "no splitters"),
            ("u", ElementType::F8, Some(&[1.0, 0.0]), "ascending"),
            ("u", ElementType::F8, Some(&[f64::NAN]), "ascending"),
            ("u", ElementType::F8, Some(&long), "at most one"),
            ("3", ElementType::F8, None, "the same for all"),
        ];
        for (text, element, splitters, words) in cases {
            let refused = key(text, element, splitters).err().unwrap();
            assert!(refused.cause.contains(words), "{text}: {refused}");
        }
    }
}
