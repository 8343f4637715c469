//! The tree of an expression gets types, and becomes a tree of operations on columns.
//!
//! Both sides of an operation are brought to one type before it: what is done with columns knows no
//! mixed types, but for comparisons of integers, which are exact whatever their types.

use super::column::{Column, Storage};
use super::promotion::{Class, Number, class, promoted};
use super::syntax::{Arithmetic, Comparison, Syntax, Term};
use super::{ExpressionError, Result, Scope, Taken};
use crate::dtype::{ElementType, NumberType, Record};
use NumberType::{Bool, C8, F4, F8, I1, I8, U8};
use penstock_layout::exact;

/// The most operations of an expression.
const OPERATIONS_MAX: usize = 2048;

/// An operation on columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operation {
    /// A number of each element: the one with this number among those that are taken.
    Elements(usize),
    /// The indices of the elements along a dimension.
    Index(usize),
    /// One value for all elements, as a column of one.
    Constant(Column),
    Cast(Storage, Box<Operation>),
    /// Arithmetic of two columns of one storage. The type tells half from single precision.
    Arithmetic(Arithmetic, NumberType, Box<Operation>, Box<Operation>),
    Square(NumberType, Box<Operation>),
    Root(NumberType, Box<Operation>),
    Reciprocal(NumberType, Box<Operation>),
    Negative(Box<Operation>),
    Absolute(Box<Operation>),
    Real(Box<Operation>),
    Imaginary(Box<Operation>),
    IsNan(Box<Operation>),
    Hash(Box<Operation>),
    Compare(Comparison, Box<Operation>, Box<Operation>),
    Not(Box<Operation>),
    And(Vec<Operation>),
    Or(Vec<Operation>),
}

/// A part of an expression: a number of the text, or columns of a type.
#[derive(Debug, Clone)]
enum Part {
    Number(Number),
    Columns(NumberType, Operation),
}

/// Types an expression that must be a condition.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn condition(syntax: &Syntax, scope: &Scope) -> Result<Typed> {
    let mut typer = Typer::new(scope);
    match typer.part(syntax)? {
        Part::Columns(Bool, operation) => Ok(typer.typed(Bool, operation)),
        part => {
            let cause = format!("it is no condition: it gives {}, not bool", words(&part));
            error(syntax.column, cause)
        }
    }
}

/// Types an expression of elements.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn expression(syntax: &Syntax, scope: &Scope) -> Result<Typed> {
    let mut typer = Typer::new(scope);
    match typer.part(syntax)? {
        Part::Columns(number, operation) => Ok(typer.typed(number, operation)),
        Part::Number(_) => error(syntax.column, "it is a number, the same for all elements"),
    }
}

fn words(part: &Part) -> &'static str {
    match part {
        Part::Number(Number::Integer(_)) => "an integer",
        Part::Number(Number::Float(_)) => "a number",
        Part::Columns(of, _) => of.name(),
    }
}

fn error<T>(column: usize, cause: impl Into<String>) -> Result<T> {
    Err(ExpressionError::new(column, cause.into()))
}

/// An expression with its type.
pub(super) struct Typed {
    pub(super) operation: Operation,
    pub(super) number: NumberType,
    pub(super) takes: Vec<Taken>,
}

struct Typer<'a> {
    scope: &'a Scope,
    /// The number of operations made so far.
    made: usize,
    takes: Vec<Taken>,
}

impl<'a> Typer<'a> {
    fn new(scope: &'a Scope) -> Self {
        Self {
            scope,
            made: 0,
            takes: Vec::new(),
        }
    }

    fn typed(self, number: NumberType, operation: Operation) -> Typed {
        Typed {
            operation,
            number,
            takes: self.takes,
        }
    }

    fn part(&mut self, syntax: &Syntax) -> Result<Part> {
        let column = syntax.column;
        self.made += 1;
        if self.made > OPERATIONS_MAX {
            let cause = format!("it has more than {OPERATIONS_MAX} operations");
            return error(column, cause);
        }
        match &syntax.term {
            Term::Integer(number) => Ok(Part::Number(Number::Integer(*number))),
            Term::Float(number) => Ok(Part::Number(Number::Float(*number))),
            Term::Truth(truth) => Ok(truth_of(*truth)),
            Term::Name(_) | Term::Field(..) => match self.place(syntax)? {
                Some((element, start)) => self.taken(column, element, start),
                None => self.index(syntax),
            },
            Term::Negative(of) => negative(column, self.part(of)?),
            Term::Arithmetic(op, left, right) => {
                let (left, right) = (self.part(left)?, self.part(right)?);
                arithmetic(column, *op, left, right)
            }
            Term::Comparison(op, left, right) => {
                let (left, right) = (self.part(left)?, self.part(right)?);
                comparison(column, *op, left, right)
            }
            Term::In(of, list) => self.membership(column, of, list),
            Term::Not(of) => {
                let of = self.truth(of, "not")?;
                Ok(Part::Columns(Bool, Operation::Not(Box::new(of))))
            }
            Term::And(all) => Ok(Part::Columns(
                Bool,
                Operation::And(self.truths(all, "and")?),
            )),
            Term::Or(all) => Ok(Part::Columns(Bool, Operation::Or(self.truths(all, "or")?))),
            Term::Call(name, arguments) => self.call(column, name, arguments),
        }
    }

    /// The number at a place of each element.
    fn taken(&mut self, column: usize, element: &ElementType, start: u64) -> Result<Part> {
        let number = match element {
            ElementType::Record(record) => {
                let cause = format!("it is a record: name one of its fields, {}", record.names());
                return error(column, cause);
            }
            element => element.number().unwrap_or(Bool), // all but records are numbers
        };
        let start = exact::<usize>(start);
        let taken = Taken { number, start };
        let nth = self.takes.iter().position(|one| *one == taken);
        let nth = nth.unwrap_or_else(|| {
            self.takes.push(taken);
            self.takes.len() - 1
        });
        Ok(Part::Columns(number, Operation::Elements(nth)))
    }

    /// What an element has at a name, and the first byte of it; `None` if it is the name of an
    /// index.
    fn place(&self, syntax: &Syntax) -> Result<Option<(&'a ElementType, u64)>> {
        let column = syntax.column;
        match &syntax.term {
            Term::Name(name) => {
                let Scope {
                    name: array,
                    element,
                    ..
                } = self.scope;
                let field = element.record().and_then(|record| record.field(name));
                let is_array = name == array;
                let meanings = [is_array, field.is_some(), self.dim(name).is_some()];
                if name == "value" {
                    return Ok(Some((element, 0)));
                }
                if meanings.into_iter().filter(|is| *is).count() > 1 {
                    let cause = format!(
                        "'{name}' is more than one of the array, a field and a dimension: write \
                         'value' for elements, 'value.{name}' for a field, 'i0' and so on for \
                         indices"
                    );
                    return error(column, cause);
                }
                match field {
                    Some(_) => self.field(column, (element, 0), name).map(Some),
                    None => Ok(is_array.then_some((element, 0))),
                }
            }
            Term::Field(of, name) => match self.place(of)? {
                Some(place) => self.field(column, place, name).map(Some),
                None => error(column, format!("an index has no field '{name}'")),
            },
            _ => error(column, "only elements and their fields have fields"),
        }
    }

    /// A field of what an element has at a place.
    fn field(
        &self,
        column: usize,
        (element, start): (&'a ElementType, u64),
        name: &str,
    ) -> Result<(&'a ElementType, u64)> {
        let Some((field, offset)) = element.record().and_then(|record| record.field(name)) else {
            let there_is = match element.record().map(Record::names) {
                Some(names) => format!("there are {names}"),
                None => format!("it is {element}"),
            };
            return error(column, format!("there is no field '{name}': {there_is}"));
        };
        if !field.shape.is_empty() {
            let cause = format!("the field '{name}' is an array of shape {:?}", field.shape);
            return error(column, cause);
        }
        Ok((&field.element, start + offset))
    }

    /// The dimension of this name.
    fn dim(&self, name: &str) -> Option<usize> {
        let dims = &self.scope.dims;
        let named = dims.iter().position(|dim| dim.as_deref() == Some(name));
        let digits = name.strip_prefix('i');
        let digits = digits.filter(|text| text.chars().all(|c| c.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok());
        named.or(number.filter(|number| *number < dims.len()))
    }

    /// The indices along the dimension of a name.
    fn index(&self, syntax: &Syntax) -> Result<Part> {
        let Term::Name(name) = &syntax.term else {
            return error(syntax.column, "it is no index"); // a field has a place
        };
        if let Some(dim) = self.dim(name) {
            return Ok(Part::Columns(I8, Operation::Index(dim)));
        }
        let Scope {
            name: array,
            element,
            dims,
        } = self.scope;
        let fields = element
            .record()
            .map(|record| format!(", {} for fields", record.names()));
        let digits = name.strip_prefix('i');
        if digits.is_some_and(|text| text.parse::<usize>().is_ok()) {
            let cause = format!(
                "there is no dimension '{name}': the array has {}",
                dims.len()
            );
            return error(syntax.column, cause);
        }
        let indices = match dims.len() {
            0 => String::new(),
            1 => ", 'i0' for the index".to_string(),
            dims => format!(", 'i0' to 'i{}' for indices", dims - 1),
        };
        let names = dims.iter().flatten().map(|dim| format!(", '{dim}'"));
        let cause = format!(
            "'{name}' is not known: there are 'value' or '{array}' for the elements{}{indices}{}",
            fields.unwrap_or_default(),
            names.collect::<String>()
        );
        error(syntax.column, cause)
    }

    fn truth(&mut self, syntax: &Syntax, word: &str) -> Result<Operation> {
        match self.part(syntax)? {
            Part::Columns(Bool, operation) => Ok(operation),
            part => {
                let cause = format!(
                    "'{word}' is for conditions, and this is {}: compare it with something",
                    words(&part)
                );
                error(syntax.column, cause)
            }
        }
    }

    fn truths(&mut self, all: &[Syntax], word: &str) -> Result<Vec<Operation>> {
        all.iter().map(|one| self.truth(one, word)).collect()
    }

    fn membership(&mut self, column: usize, of: &Syntax, list: &[Syntax]) -> Result<Part> {
        let mut any = Vec::with_capacity(list.len());
        self.part(of)?; // also where the list is empty
        for one in list {
            let (left, right) = (self.part(of)?, self.part(one)?);
            match comparison(column, Comparison::Equal, left, right)? {
                Part::Columns(_, operation) => any.push(operation),
                Part::Number(_) => {} // no comparison gives a number
            }
        }
        Ok(Part::Columns(Bool, Operation::Or(any)))
    }

    fn call(&mut self, column: usize, name: &str, arguments: &[Syntax]) -> Result<Part> {
        let wanted = match name {
            "isnan" | "abs" | "real" | "imag" | "hash" => 1,
            "between" => 3,
            _ => {
                let cause = format!(
                    "there is no function '{name}': there are isnan, abs, between, hash, real, \
                     imag"
                );
                return error(column, cause);
            }
        };
        if arguments.len() != wanted {
            let given = arguments.len();
            return error(column, format!("{name} takes {wanted} values, not {given}"));
        }
        if name == "between" {
            let [low, high] = [1, 2].map(|bound| {
                let (of, bound_part) = (self.part(&arguments[0])?, self.part(&arguments[bound])?);
                let op = match bound {
                    1 => Comparison::GreaterOrEqual,
                    _ => Comparison::LessOrEqual,
                };
                match comparison(column, op, of, bound_part)? {
                    Part::Columns(_, operation) => Ok(operation),
                    part => error(column, format!("between gives {}", words(&part))),
                }
            });
            return Ok(Part::Columns(Bool, Operation::And(vec![low?, high?])));
        }
        let of = self.part(&arguments[0])?;
        match name {
            "isnan" => Ok(is_nan(of)),
            "abs" => absolute(column, of),
            "hash" => match of {
                Part::Number(_) => error(column, "hash is of elements or indices"),
                Part::Columns(_, operation) => {
                    Ok(Part::Columns(U8, Operation::Hash(Box::new(operation))))
                }
            },
            "real" => Ok(real(of)),
            _ => Ok(imaginary(of)),
        }
    }
}

fn truth_of(truth: bool) -> Part {
    Part::Columns(Bool, Operation::Constant(Column::Bool(vec![truth])))
}

fn is_nan(of: Part) -> Part {
    match of {
        Part::Number(number) => truth_of(number.as_float().is_nan()),
        Part::Columns(element, operation) => match class(element) {
            Class::Bool | Class::Integer => truth_of(false),
            Class::Float | Class::Complex => {
                Part::Columns(Bool, Operation::IsNan(Box::new(operation)))
            }
        },
    }
}

/// The float type of the parts of a complex type.
fn part_of(complex: NumberType) -> NumberType {
    match complex {
        C8 => F4,
        _ => F8,
    }
}

fn absolute(column: usize, of: Part) -> Result<Part> {
    Ok(match of {
        Part::Number(Number::Integer(number)) => number_of(column, number.checked_abs())?,
        Part::Number(Number::Float(number)) => Part::Number(Number::Float(number.abs())),
        Part::Columns(Bool, operation) => Part::Columns(Bool, operation),
        Part::Columns(element, operation) => {
            let result = match class(element) {
                Class::Complex => part_of(element),
                _ => element,
            };
            Part::Columns(result, Operation::Absolute(Box::new(operation)))
        }
    })
}

fn real(of: Part) -> Part {
    match of {
        Part::Columns(element, operation) if class(element) == Class::Complex => {
            Part::Columns(part_of(element), Operation::Real(Box::new(operation)))
        }
        part => part,
    }
}

fn imaginary(of: Part) -> Part {
    match of {
        Part::Number(Number::Integer(_)) => Part::Number(Number::Integer(0)),
        Part::Number(Number::Float(_)) => Part::Number(Number::Float(0.0)),
        Part::Columns(element, operation) if class(element) == Class::Complex => {
            Part::Columns(part_of(element), Operation::Imaginary(Box::new(operation)))
        }
        Part::Columns(element, _) => {
            let zero = Column::one(element, Number::Integer(0));
            Part::Columns(element, Operation::Constant(zero))
        }
    }
}

fn negative(column: usize, of: Part) -> Result<Part> {
    Ok(match of {
        Part::Number(Number::Integer(number)) => number_of(column, number.checked_neg())?,
        Part::Number(Number::Float(number)) => Part::Number(Number::Float(-number)),
        Part::Columns(Bool, _) => return error(column, "a condition has no negative: write 'not'"),
        Part::Columns(element, operation) => {
            Part::Columns(element, Operation::Negative(Box::new(operation)))
        }
    })
}

/// A number that was made of others, if it has not become too large.
fn number_of(column: usize, number: Option<i128>) -> Result<Part> {
    const HIGHEST: i128 = u64::MAX as i128;
    match number {
        Some(number) if (-HIGHEST..=HIGHEST).contains(&number) => {
            Ok(Part::Number(Number::Integer(number)))
        }
        _ => error(column, "the result is too large: integers have 64 bits"),
    }
}

/// The columns of a part as elements of a type.
fn cast(column: usize, part: Part, to: NumberType) -> Result<Operation> {
    match part {
        Part::Number(number) => {
            let is_integer = matches!(class(to), Class::Integer | Class::Bool);
            if is_integer && !number.fits(to) {
                let cause = match number {
                    Number::Integer(number) => format!("{number} is no {}", to.name()),
                    Number::Float(number) => format!("{number} is no {}", to.name()),
                };
                return error(column, cause);
            }
            Ok(Operation::Constant(Column::one(to, number)))
        }
        Part::Columns(from, operation) => {
            let (from, to) = (Storage::of(from), Storage::of(to));
            Ok(match from == to {
                true => operation,
                false => Operation::Cast(to, Box::new(operation)),
            })
        }
    }
}

/// The types of two parts, if one of them has one.
fn types(left: &Part, right: &Part) -> Option<(NumberType, NumberType)> {
    match (left, right) {
        (Part::Columns(left, _), Part::Columns(right, _)) => Some((*left, *right)),
        (Part::Columns(of, _), Part::Number(number)) => Some((*of, number.beside(*of))),
        (Part::Number(number), Part::Columns(of, _)) => Some((number.beside(*of), *of)),
        (Part::Number(_), Part::Number(_)) => None,
    }
}

fn arithmetic(column: usize, op: Arithmetic, left: Part, right: Part) -> Result<Part> {
    let Some((one, other)) = types(&left, &right) else {
        let (Part::Number(left), Part::Number(right)) = (left, right) else {
            return error(column, "a type is missing"); // two parts without types are numbers
        };
        return numbers(column, op, left, right);
    };
    let common = promoted(one, other);
    let refused = |what: &str| {
        let cause = format!("'{}' is not for {what}", op.sign());
        error(column, cause)
    };
    let of = match (op, class(common)) {
        (Arithmetic::Subtract, Class::Bool) => return refused("conditions"),
        (Arithmetic::Divide, Class::Bool | Class::Integer) => F8,
        (Arithmetic::FloorDivide | Arithmetic::Remainder | Arithmetic::Power, Class::Bool) => I1,
        (Arithmetic::FloorDivide | Arithmetic::Remainder, Class::Complex) => {
            return refused("complex numbers");
        }
        (Arithmetic::Power, Class::Complex) => {
            return refused("complex numbers: multiply them");
        }
        _ => common,
    };
    if let (Arithmetic::Power, Part::Number(exponent)) = (op, &right) {
        let is_integer = class(of) == Class::Integer;
        if is_integer && exponent.as_float() < 0.0 {
            return error(column, "an integer has no negative power: write 1 / x ** n");
        }
        if let Some(power) = simple_power(of, exponent.as_float()) {
            let base = Box::new(cast(column, left, of)?);
            return Ok(Part::Columns(of, power(base)));
        }
    }
    let (left, right) = (cast(column, left, of)?, cast(column, right, of)?);
    let operation = Operation::Arithmetic(op, of, Box::new(left), Box::new(right));
    Ok(Part::Columns(of, operation))
}

type Unary = Box<dyn FnOnce(Box<Operation>) -> Operation>;

/// Powers of floats that NumPy takes by something simpler, which may round differently.
fn simple_power(of: NumberType, exponent: f64) -> Option<Unary> {
    if class(of) != Class::Float {
        return None;
    }
    if exponent == 2.0 {
        Some(Box::new(move |base| Operation::Square(of, base)))
    } else if exponent == 0.5 {
        Some(Box::new(move |base| Operation::Root(of, base)))
    } else if exponent == -1.0 {
        Some(Box::new(move |base| Operation::Reciprocal(of, base)))
    } else if exponent == 1.0 {
        Some(Box::new(|base| *base))
    } else {
        None
    }
}

/// Arithmetic of numbers of the text, as Python does it.
fn numbers(column: usize, op: Arithmetic, left: Number, right: Number) -> Result<Part> {
    let divides = matches!(
        op,
        Arithmetic::Divide | Arithmetic::FloorDivide | Arithmetic::Remainder
    );
    if divides && right.as_float() == 0.0 {
        return error(column, "division by zero");
    }
    if let (Number::Integer(a), Number::Integer(b)) = (left, right) {
        let result = match op {
            Arithmetic::Add => a.checked_add(b),
            Arithmetic::Subtract => a.checked_sub(b),
            Arithmetic::Multiply => a.checked_mul(b),
            Arithmetic::FloorDivide => {
                Some(a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0))
            }
            Arithmetic::Remainder => Some(match a.rem_euclid(b) {
                0 => 0,
                rest if b < 0 => rest + b,
                rest => rest,
            }),
            Arithmetic::Power if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            Arithmetic::Divide | Arithmetic::Power => {
                return Ok(Part::Number(floats(op, a as f64, b as f64)));
            }
        };
        return number_of(column, result);
    }
    Ok(Part::Number(floats(op, left.as_float(), right.as_float())))
}

fn floats(op: Arithmetic, a: f64, b: f64) -> Number {
    Number::Float(match op {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
        Arithmetic::FloorDivide => super::column::floor_divide(a, b),
        Arithmetic::Remainder => super::column::remainder(a, b),
        Arithmetic::Power => a.powf(b),
    })
}

fn comparison(column: usize, op: Comparison, left: Part, right: Part) -> Result<Part> {
    let Some((one, other)) = types(&left, &right) else {
        let (Part::Number(left), Part::Number(right)) = (left, right) else {
            return error(column, "a type is missing"); // two parts without types are numbers
        };
        return Ok(truth_of(match (left, right) {
            (Number::Integer(left), Number::Integer(right)) => op.holds(&left, &right),
            _ => op.holds(&left.as_float(), &right.as_float()),
        }));
    };
    let common = promoted(one, other);
    let is_order = !matches!(op, Comparison::Equal | Comparison::NotEqual);
    if is_order && class(common) == Class::Complex {
        return error(
            column,
            "complex numbers have no order: compare real(..), imag(..) or abs(..)",
        );
    }
    let are_integers = [one, other].iter().all(|of| class(*of) == Class::Integer);
    let is_exact = |part: &Part| match part {
        Part::Number(number) => number.fits(common),
        Part::Columns(..) => class(common) == Class::Integer,
    };
    let (left, right) = match are_integers && !(is_exact(&left) && is_exact(&right)) {
        true => (wide(left), wide(right)),
        false => (cast(column, left, common)?, cast(column, right, common)?),
    };
    let compared = Operation::Compare(op, Box::new(left), Box::new(right));
    Ok(Part::Columns(Bool, compared))
}

/// The columns of integers without any bounds.
fn wide(part: Part) -> Operation {
    match part {
        Part::Number(Number::Integer(number)) => Operation::Constant(Column::Wide(vec![number])),
        Part::Number(Number::Float(number)) => {
            Operation::Constant(Column::one(F8, Number::Float(number)))
        }
        Part::Columns(_, operation) => Operation::Cast(Storage::Wide, Box::new(operation)),
    }
}
