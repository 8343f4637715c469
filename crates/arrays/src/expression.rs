//! Conditions on the elements of an array, and other expressions of them: a small language, typed,
//! without loops or names of its own. Nothing of a text is ever run as code.
//!
//! ```text
//! condition   = all { "or" all }
//! all         = not { "and" not }
//! not         = "not" not | comparison
//! comparison  = sum [ ("<" | "<=" | "==" | "!=" | ">=" | ">") sum ]
//!             | sum [ "not" ] "in" "[" [ condition { "," condition } ] "]"
//! sum         = product { ("+" | "-") product }
//! product     = factor { ("*" | "/" | "//" | "%") factor }
//! factor      = "-" factor | value [ "**" factor ]
//! value       = number | "inf" | "nan" | "True" | "False" | name { "." field }
//!             | function "(" [ condition { "," condition } ] ")" | "(" condition ")"
//! ```
//!
//! | name | what it stands for |
//! |---|---|
//! | `value`, or the array's name | the element |
//! | `value.f`, or `f` | the field `f` of a record; `f.g` the field of a record in it |
//! | `i0`, `i1` and so on, or the name of a dimension | the element's index along it, an int64 |
//! | `isnan(x)`, `abs(x)`, `real(x)`, `imag(x)` | as in NumPy |
//! | `hash(x)` | a uint64 made of the bits of `x`, the same for equal numbers of one type |
//! | `between(x, a, b)` | `x >= a and x <= b` |
//! | `x in [a, b]` | `x == a or x == b` |
//!
//! Types and results are those of NumPy 2 on arrays: see `promotion`. Integers wrap around, their
//! division by zero with `//` and `%` gives 0, and `/` of them is that of floats; integers are
//! compared exactly, whatever their types; half precision is rounded after each operation. A number
//! of the text takes the type of what it meets, and is refused if that does not have it; numbers
//! among themselves are computed as Python does it. Unlike NumPy, `and`, `or` and `not` take
//! conditions alone, conditions are not subtracted, complex numbers have no order, no floor, no
//! rest and no powers, and a comparison of a comparison is refused.
//!
//! Where NumPy takes vector instructions, a power of floats or a product of complex numbers may
//! differ in the last bit.
//!
//! | file | contents |
//! |---|---|
//! | `syntax` | the text becomes a tree |
//! | `promotion` | the type of what two types make |
//! | `typing` | the tree becomes operations on columns |
//! | `column` | columns of values, and what is done with them |
//! | `outlook` | what may come of elements when only their bounds are known |
//!
//! Costs: a tree of at most some thousand operations, each of which passes once over a column. A
//! caller who takes columns of a few thousand elements keeps them in the processor's caches.

mod column;
mod outlook;
mod promotion;
mod syntax;
#[cfg(test)]
mod tests;
mod typing;

use std::borrow::Cow;
use std::fmt;

use penstock_engine::{Error, Kind};

use crate::dtype::{ElementType, NumberType};
pub(crate) use column::Column;
use column::Failure;
use penstock_layout::exact;
use typing::{Operation, Typed};

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    /// The place in the text, in characters, from 1.
    column: usize,
    cause: String,
}

impl ExpressionError {
    fn new(column: usize, cause: impl Into<String>) -> Self {
        let cause = cause.into();
        Self { column, cause }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.cause)
    }
}

type Result<T> = std::result::Result<T, ExpressionError>;

/// The names in an expression, and the type of the elements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scope {
    /// The name of the array.
    pub(crate) name: String,
    pub(crate) element: ElementType,
    /// The name of each dimension, if it has one.
    pub(crate) dims: Vec<Option<String>>,
}

impl Scope {
    /// The scope of an array with `dims` dimensions, some with names.
    pub(crate) fn new(
        name: &str,
        element: &ElementType,
        names: Option<&[String]>,
        dims: usize,
    ) -> Self {
        let names = names.into_iter().flatten().cloned().map(Some);
        let mut all: Vec<Option<String>> = names.collect();
        all.resize(dims, None);
        Self {
            name: name.to_string(),
            element: element.clone(),
            dims: all,
        }
    }
}

/// An expression of the elements of an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    operation: Operation,
    /// The type of the values.
    number: NumberType,
    /// The numbers that it takes of each element.
    takes: Vec<Taken>,
    /// Whether the expression looks at the index along each dimension.
    looks_at: Vec<bool>,
}

/// A number of each element: the element itself, or one in a field.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Taken {
    number: NumberType,
    /// The first byte in the element.
    start: usize,
}

/// What an expression looks at: some elements of an array, and their indices.
pub(crate) struct Elements<'a> {
    /// The numbers that the expression takes of the elements: [`Expression::columns`].
    pub(crate) values: &'a [Column],
    /// The indices along each dimension; none where the expression does not look at them.
    pub(crate) indices: &'a [Column],
}

impl Expression {
    /// Reads an expression of elements.
    ///
    /// # Errors
    /// [`Kind::Schema`], with the column of what is wrong.
    pub(crate) fn read(text: &str, scope: &Scope) -> penstock_engine::Result<Self> {
        Self::typed(text, scope, typing::expression)
    }

    fn typed(
        text: &str,
        scope: &Scope,
        typed: impl FnOnce(&syntax::Syntax, &Scope) -> Result<Typed>,
    ) -> penstock_engine::Result<Self> {
        let typed = syntax::parse(text).and_then(|syntax| typed(&syntax, scope));
        let Typed {
            operation,
            number,
            takes,
        } = typed.map_err(|error| {
            let doing = format!("reading the expression {:?}", shortened(text));
            Error::new(Kind::Schema, doing, error)
        })?;
        let mut looks_at = vec![false; scope.dims.len()];
        operation.visit(&mut |one| {
            if let Operation::Index(dim) = one {
                looks_at[*dim] = true;
            }
        });
        Ok(Self {
            operation,
            number,
            takes,
            looks_at,
        })
    }

    /// The type of the values.
    pub(crate) fn number(&self) -> NumberType {
        self.number
    }

    /// Whether the expression looks at indices along this dimension.
    pub(crate) fn looks_at(&self, dim: usize) -> bool {
        self.looks_at.get(dim).copied().unwrap_or(false)
    }

    /// The numbers that the expression takes of elements of `width` bytes, in the machine's byte
    /// order.
    pub(crate) fn columns(&self, bytes: &[u8], width: usize) -> Vec<Column> {
        let columns = self.takes.iter().map(|taken| {
            let own = exact::<usize>(taken.number.width());
            if own == width {
                return Column::of_bytes(taken.number, bytes);
            }
            let parts = bytes.chunks_exact(width);
            let parts = parts.map(|element| &element[taken.start..taken.start + own]);
            Column::of_bytes(taken.number, &parts.collect::<Vec<_>>().concat())
        });
        columns.collect()
    }

    /// The values for elements: as many, or one that stands for all.
    ///
    /// # Errors
    /// [`Kind::Schema`] when an integer is taken to a negative power.
    pub(crate) fn values<'a>(
        &'a self,
        elements: &Elements<'a>,
    ) -> penstock_engine::Result<Cow<'a, Column>> {
        self.operation.compute(elements).map_err(|failure| {
            let cause = match failure {
                Failure::NegativePower => "an integer is taken to a negative power",
                Failure::Types => "columns of two types meet",
            };
            Error::new(Kind::Schema, "computing an expression", cause)
        })
    }
}

/// A condition on the elements of an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition(Expression);

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// As [`Expression::read`]; and when it does not give truths.
    pub(crate) fn read(text: &str, scope: &Scope) -> penstock_engine::Result<Self> {
        Expression::typed(text, scope, typing::condition).map(Self)
    }

    /// The condition as an expression.
    pub(crate) fn expression(&self) -> &Expression {
        &self.0
    }

    /// Whether the condition holds for each of `count` elements.
    ///
    /// # Errors
    /// As [`Expression::values`].
    pub(crate) fn holds(
        &self,
        elements: &Elements<'_>,
        count: usize,
    ) -> penstock_engine::Result<Vec<bool>> {
        Ok(match self.0.values(elements)?.into_owned() {
            Column::Bool(truths) if truths.len() == count => truths,
            Column::Bool(truth) if truth.len() == 1 => vec![truth[0]; count],
            _ => vec![false; count], // there are no elements
        })
    }
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    match text.chars().count() > CHARS_MAX {
        true => text.chars().take(CHARS_MAX).chain("...".chars()).collect(),
        false => text.to_string(),
    }
}

impl Operation {
    /// The operations in this one.
    fn inner(&self) -> Vec<&Operation> {
        match self {
            Self::Elements(_) | Self::Index(_) | Self::Constant(_) => Vec::new(),
            Self::Cast(_, of)
            | Self::Square(_, of)
            | Self::Root(_, of)
            | Self::Reciprocal(_, of)
            | Self::Negative(of)
            | Self::Absolute(of)
            | Self::Real(of)
            | Self::Imaginary(of)
            | Self::IsNan(of)
            | Self::Hash(of)
            | Self::Not(of) => vec![of],
            Self::Arithmetic(_, _, left, right) | Self::Compare(_, left, right) => {
                vec![left, right]
            }
            Self::And(all) | Self::Or(all) => all.iter().collect(),
        }
    }

    fn visit(&self, look: &mut impl FnMut(&Operation)) {
        look(self);
        for inner in self.inner() {
            inner.visit(look);
        }
    }

    /// The column of the operation's results; one value may stand for all.
    fn compute<'a>(
        &'a self,
        elements: &Elements<'a>,
    ) -> std::result::Result<Cow<'a, Column>, Failure> {
        let of = |operation: &'a Operation| operation.compute(elements);
        Ok(Cow::Owned(match self {
            Self::Elements(nth) => return Ok(Cow::Borrowed(&elements.values[*nth])),
            Self::Index(dim) => return Ok(Cow::Borrowed(&elements.indices[*dim])),
            Self::Constant(constant) => return Ok(Cow::Borrowed(constant)),
            Self::Cast(to, inner) => column::cast(&*of(inner)?, *to),
            Self::Arithmetic(op, element, left, right) => {
                column::arithmetic(*op, *element, &*of(left)?, &*of(right)?)?
            }
            Self::Square(element, inner) => column::square(*element, &*of(inner)?)?,
            Self::Root(element, inner) => column::root(*element, &*of(inner)?)?,
            Self::Reciprocal(element, inner) => column::reciprocal(*element, &*of(inner)?)?,
            Self::Negative(inner) => column::negative(&*of(inner)?)?,
            Self::Absolute(inner) => column::absolute(&*of(inner)?),
            Self::Real(inner) => column::part(&*of(inner)?, 0)?,
            Self::Imaginary(inner) => column::part(&*of(inner)?, 1)?,
            Self::IsNan(inner) => column::is_nan(&*of(inner)?)?,
            Self::Hash(inner) => column::hash(&*of(inner)?),
            Self::Compare(op, left, right) => column::compare(*op, &*of(left)?, &*of(right)?)?,
            Self::Not(inner) => column::not(&*of(inner)?)?,
            Self::And(all) => joined(all, elements, true, |a, b| a && b)?,
            Self::Or(all) => joined(all, elements, false, |a, b| a || b)?,
        }))
    }
}

/// Joins the truths of several operations.
fn joined(
    all: &[Operation],
    elements: &Elements<'_>,
    of_none: bool,
    join: fn(bool, bool) -> bool,
) -> std::result::Result<Column, Failure> {
    let mut joined = Column::Bool(vec![of_none]);
    for one in all {
        joined = column::joined(&joined, &*one.compute(elements)?, join)?;
    }
    Ok(joined)
}
