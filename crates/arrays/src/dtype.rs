//! The element types: those that NumPy and Zarr share, and records of them.
//!
//! | here | NumPy | Zarr | bytes | swapped in units of |
//! |---|---|---|---|---|
//! | `bool` | `\|b1` | bool | 1 | 1 |
//! | `i1` .. `i8` | `<i8` | int64 | 1 to 8 | all of it |
//! | `u1` .. `u8` | `<u8` | uint64 | 1 to 8 | all of it |
//! | `f2` `f4` `f8` | `<f8` | float64 | 2 to 8 | all of it |
//! | `c8` `c16` | `<c16` | complex128 | 8, 16 | half: the real and the imaginary part |
//! | `[('x', 'f8'), ('n', 'i4', (3,))]` | the same, with signs | structured | of all fields | each field by itself |
//!
//! In memory a record is packed: its fields follow one another without padding, each in the
//! machine's byte order. So code that moves elements needs to know their width alone. A file may
//! have a record otherwise, with padding or in another byte order: [`StoredElement`] says so, and
//! turns one into the other.
//!
//! ```text
//! memory        | x: 8 bytes            | n: 3 times 4    |     20 bytes
//! a file        | x, reversed           | n: 3 times 4    | padding |   24 bytes
//!               [('x', '>f8'), ('n', '<i4', (3,)), ('', '|V4')]
//! ```

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use crate::literal::{self, Literal, quoted};

/// The most bytes of a record: what metadata claim must not take much memory.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// The most moves that turn a stored element into one of memory: more take longer to plan than to
/// read.
const MOVES_MAX: u64 = 1 << 16;

/// The type of one element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ElementType {
    /// True or false, in a byte.
    Bool,
    /// Signed, 8 bits.
    I1,
    /// Signed, 16 bits.
    I2,
    /// Signed, 32 bits.
    I4,
    /// Signed, 64 bits.
    I8,
    /// Unsigned, 8 bits.
    U1,
    /// Unsigned, 16 bits.
    U2,
    /// Unsigned, 32 bits.
    U4,
    /// Unsigned, 64 bits.
    U8,
    /// Half precision.
    F2,
    /// Single precision.
    F4,
    /// Double precision.
    F8,
    /// Complex, two of single precision.
    C8,
    /// Complex, two of double precision.
    C16,
    /// A record of named fields.
    Record(Arc<Record>),
}

/// The type of an element that is a number, or a truth: all but records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    Bool,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    F2,
    F4,
    F8,
    C8,
    C16,
}

impl NumberType {
    /// The same as the type of an element.
    pub(crate) fn element(self) -> &'static ElementType {
        let row = TABLE.iter().find(|row| row.3 == self);
        &row.unwrap_or(&TABLE[0]).0 // every number has a row
    }

    /// The bytes of a number.
    pub(crate) fn width(self) -> u64 {
        self.element().width()
    }

    /// The name, such as `float64`.
    pub(crate) fn name(self) -> &'static str {
        self.element().row().2
    }
}

/// The fields of a record, which is packed. There is one at least, and each has a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    fields: Vec<Field>,
    width: u64,
    /// The moves that turn a stored record into one of memory, at most.
    moves: u64,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The name, which is not empty.
    pub name: String,
    /// The type of the field, or of each element of it.
    pub element: ElementType,
    /// The extents of a field that is a small array; none for one element.
    pub shape: Vec<u64>,
}

impl Record {
    /// The record with these fields, in this order.
    ///
    /// # Errors
    /// [`Kind::Schema`] without a field, for names that are empty or alike, and for fields that
    /// have no bytes, or more than 16 MiB together.
    pub fn new(fields: Vec<Field>) -> Result<Self> {
        let wrong = |cause: String| Error::new(Kind::Schema, "reading a record", cause);
        let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("two fields have the name {:?}", pair[0])));
        }
        match names.first() {
            None => return Err(wrong("a record without fields".to_string())),
            Some(&"") => return Err(wrong("a field has no name".to_string())),
            Some(_) => {}
        }
        let (mut width, mut moves) = (0_u64, 0_u64);
        for field in &fields {
            let bytes = field.width().filter(|&bytes| bytes > 0);
            let sum = bytes.and_then(|bytes| width.checked_add(bytes));
            width = sum
                .filter(|&width| width <= RECORD_BYTES_MAX)
                .ok_or_else(|| {
                    let shape = &field.shape;
                    let of = format!("{} of shape {shape:?}", field.element);
                    wrong(format!(
                        "the field {:?}, {of}, has no bytes, or too many",
                        field.name
                    ))
                })?;
            moves += match &field.element {
                // There are no more elements than bytes: both numbers are small.
                ElementType::Record(of) => of.moves * field.count(),
                _ => 1,
            };
            if moves > MOVES_MAX {
                return Err(wrong(format!(
                    "a record has more than {MOVES_MAX} numbers apart"
                )));
            }
        }
        Ok(Self {
            fields,
            width,
            moves,
        })
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of this name, and its first byte in the record.
    pub(crate) fn field(&self, name: &str) -> Option<(&Field, u64)> {
        let mut start = 0;
        for field in &self.fields {
            if field.name == name {
                return Some((field, start));
            }
            start += field.element.width() * field.count();
        }
        None
    }

    /// The names of the fields, in words.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self
            .fields
            .iter()
            .map(|f| format!("'{}'", f.name))
            .collect();
        names.join(", ")
    }
}

impl Field {
    /// The number of elements: one, or those of the small array. (A shape from outside may have too
    /// many to count; [`Record::new`] refuses it.)
    pub(crate) fn count(&self) -> u64 {
        self.shape
            .iter()
            .fold(1, |n, &extent| n.saturating_mul(extent))
    }

    /// The bytes of the field; `None` if they cannot be counted.
    fn width(&self) -> Option<u64> {
        self.element.width().checked_mul(self.count())
    }
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

impl ByteOrder {
    /// The machine's byte order.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// The name of the order as Zarr writes it: `little` or `big`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }

    /// The sign of the order as NumPy writes it: `<` or `>`.
    fn sign(self) -> char {
        match self {
            Self::Little => '<',
            Self::Big => '>',
        }
    }
}

/// A type without fields, with NumPy's letter and width, and Zarr's name.
type Row = (ElementType, &'static str, &'static str, NumberType);

/// The types without fields.
static TABLE: [Row; 14] = [
    (ElementType::Bool, "b1", "bool", NumberType::Bool),
    (ElementType::I1, "i1", "int8", NumberType::I1),
    (ElementType::I2, "i2", "int16", NumberType::I2),
    (ElementType::I4, "i4", "int32", NumberType::I4),
    (ElementType::I8, "i8", "int64", NumberType::I8),
    (ElementType::U1, "u1", "uint8", NumberType::U1),
    (ElementType::U2, "u2", "uint16", NumberType::U2),
    (ElementType::U4, "u4", "uint32", NumberType::U4),
    (ElementType::U8, "u8", "uint64", NumberType::U8),
    (ElementType::F2, "f2", "float16", NumberType::F2),
    (ElementType::F4, "f4", "float32", NumberType::F4),
    (ElementType::F8, "f8", "float64", NumberType::F8),
    (ElementType::C8, "c8", "complex64", NumberType::C8),
    (ElementType::C16, "c16", "complex128", NumberType::C16),
];

impl ElementType {
    /// All element types that have no fields.
    pub fn all() -> impl Iterator<Item = ElementType> {
        TABLE.iter().map(|row| row.0.clone())
    }

    /// Reads NumPy's spellings: `f8`, `<f8`, `>i4`, `|b1`, `?`, `float64`, `bool`, and lists of
    /// fields, `[('x', '<f8'), ('n', '<i4', (3,))]`. Without a sign (or with `=` or `|`) the byte
    /// order is the machine's.
    ///
    /// # Errors
    /// [`Kind::Schema`], with the list of element types; for fields in both byte orders, and for
    /// padding between them.
    pub fn parse(text: &str) -> Result<(Self, ByteOrder)> {
        let stored = StoredElement::parse(text)?;
        let element = stored.element.clone();
        let orders = [ByteOrder::NATIVE, ByteOrder::Little, ByteOrder::Big];
        let order = orders.into_iter().find(|&order| {
            let packed = StoredElement::of(&element, order);
            (packed.width, &packed.moves) == (stored.width, &stored.moves)
        });
        let order = order.ok_or_else(|| {
            let cause = match stored.has_padding() {
                true => "its fields do not follow one another without padding",
                false => "its fields are in both byte orders",
            };
            unread(text)(cause.to_string())
        })?;
        Ok((element, order))
    }

    /// The bytes of one element.
    pub fn width(&self) -> u64 {
        match self {
            Self::Bool | Self::I1 | Self::U1 => 1,
            Self::I2 | Self::U2 | Self::F2 => 2,
            Self::I4 | Self::U4 | Self::F4 => 4,
            Self::I8 | Self::U8 | Self::F8 | Self::C8 => 8,
            Self::C16 => 16,
            Self::Record(record) => record.width,
        }
    }

    /// The type of the number, if the element is no record.
    pub(crate) fn number(&self) -> Option<NumberType> {
        match self {
            Self::Record(_) => None,
            _ => Some(self.row().3),
        }
    }

    /// The record, if the element is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(record) => Some(record),
            _ => None,
        }
    }

    /// The number of bytes that are reversed together when the byte order of a number changes.
    fn swap_width(&self) -> usize {
        match self {
            Self::C8 => 4,
            Self::C16 => 8,
            _ => exact::<usize>(self.width()),
        }
    }

    /// Whether elements are the same in both byte orders.
    pub(crate) fn has_no_order(&self) -> bool {
        match self {
            Self::Record(record) => record.fields.iter().all(|f| f.element.has_no_order()),
            _ => self.width() == 1,
        }
    }

    /// NumPy's spelling in the machine's byte order, such as `<f8`.
    pub fn numpy(&self) -> String {
        self.numpy_in(ByteOrder::NATIVE)
    }

    /// NumPy's spelling in the given byte order.
    pub fn numpy_in(&self, order: ByteOrder) -> String {
        self.spelled(&|element| match element.width() {
            1 => "|".to_string(),
            _ => order.sign().to_string(),
        })
    }

    /// NumPy's spelling without a byte order, such as `f8`.
    pub fn word(&self) -> String {
        match self {
            Self::Bool => "bool".to_string(),
            _ => self.spelled(&|_| String::new()),
        }
    }

    /// NumPy's spelling, with the signs of byte orders that `sign` gives.
    fn spelled(&self, sign: &dyn Fn(&Self) -> String) -> String {
        let Self::Record(record) = self else {
            return format!("{}{}", sign(self), self.row().1);
        };
        let fields = record.fields.iter().map(|field| {
            let (name, shape) = (quoted(&field.name), &field.shape);
            let element = match &field.element {
                record @ Self::Record(_) => record.spelled(sign),
                number => format!("'{}'", number.spelled(sign)),
            };
            let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
            match extents.as_slice() {
                [] => format!("({name}, {element})"),
                [extent] => format!("({name}, {element}, ({extent},))"),
                _ => format!("({name}, {element}, ({}))", extents.join(", ")),
            }
        });
        format!("[{}]", fields.collect::<Vec<String>>().join(", "))
    }

    /// Zarr's name, which is also NumPy's long one, such as `float64`; `None` for a record.
    pub(crate) fn name(&self) -> Option<&'static str> {
        match self {
            Self::Record(_) => None,
            _ => Some(self.row().2),
        }
    }

    /// The row of a type without fields.
    fn row(&self) -> &'static Row {
        let row = TABLE.iter().find(|row| row.0 == *self);
        row.unwrap_or(&TABLE[0]) // every type without fields has one
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.word()),
        }
    }
}

impl From<ElementType> for String {
    fn from(element: ElementType) -> Self {
        element.word()
    }
}

impl TryFrom<String> for ElementType {
    type Error = Error;

    fn try_from(word: String) -> Result<Self> {
        Ok(Self::parse(&word)?.0)
    }
}

/// An element as a file has it: its type, the byte order of each number, and the padding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoredElement {
    element: ElementType,
    /// NumPy's spelling.
    text: String,
    /// The bytes of an element in the file.
    width: u64,
    /// The parts of an element, without gaps in memory, in the order of the file.
    moves: Vec<Move>,
}

/// Bytes of a stored element that go to one place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    /// The offset in the stored element.
    stored: usize,
    /// The offset in the element in memory.
    packed: usize,
    bytes: usize,
    /// The number of bytes that are reversed together; 1 where they stay as they are.
    swap_width: usize,
}

impl StoredElement {
    /// The element in this byte order, without padding.
    pub fn of(element: &ElementType, order: ByteOrder) -> Self {
        let parts = Parts::of(element, order);
        Self {
            element: element.clone(),
            text: element.numpy_in(order),
            width: parts.stored,
            moves: parts.moves,
        }
    }

    /// Reads NumPy's spellings, as [`ElementType::parse`] does; fields may be in both byte orders,
    /// and a field without a name, `('', '|V4')`, is padding.
    ///
    /// # Errors
    /// [`Kind::Schema`] for what is no element type.
    pub fn parse(text: &str) -> Result<Self> {
        match text.starts_with('[') {
            false => Self::of_literal(&Literal::Text(text.to_string())),
            true => {
                let fields = literal::parse(text).map_err(|e| unread(text)(format!("it {e}")))?;
                Self::of_literal(&fields)
            }
        }
    }

    /// As [`StoredElement::parse`], of a literal: a string, or a list of fields.
    ///
    /// # Errors
    /// As [`StoredElement::parse`].
    pub(crate) fn of_literal(literal: &Literal) -> Result<Self> {
        if let Literal::Text(text) = literal {
            let (element, order) = number(text).map_err(unread(text))?;
            return Ok(Self::of(&element, order));
        }
        let text = literal.to_string();
        let (element, parts) = described(literal).map_err(unread(&text))?;
        Ok(Self {
            element,
            text,
            width: parts.stored,
            moves: parts.moves,
        })
    }

    /// The literal of Python for NumPy's spelling.
    pub(crate) fn literal(&self) -> String {
        match self.element.record() {
            Some(_) => self.text.clone(),
            None => quoted(&self.text),
        }
    }

    /// The type of the element.
    pub fn element(&self) -> &ElementType {
        &self.element
    }

    /// The bytes of an element in the file.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// Whether the file has other bytes than memory: then they have no place in common.
    pub(crate) fn has_padding(&self) -> bool {
        self.width != self.element.width()
    }

    /// Whether elements are the same in the file and in memory.
    pub(crate) fn is_as_in_memory(&self) -> bool {
        !self.has_padding() && self.moves.iter().all(|part| part.swap_width == 1)
    }

    /// Turns elements of a file without padding into those of memory, or back, in place.
    pub(crate) fn swap(&self, data: &mut [u8]) {
        assert!(
            !self.has_padding(),
            "elements with padding have no place in memory"
        );
        match self.moves.as_slice() {
            _ if self.is_as_in_memory() => {}
            [all] => swap(data, all.swap_width),
            moves => {
                for element in data.chunks_exact_mut(exact::<usize>(self.width)) {
                    for part in moves {
                        swap(&mut element[part.stored..][..part.bytes], part.swap_width);
                    }
                }
            }
        }
    }

    /// Elements of memory as a file has them without padding; they are borrowed if they are the
    /// same.
    pub(crate) fn swapped<'a>(&self, data: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_as_in_memory() {
            return Cow::Borrowed(data);
        }
        let mut data = data.to_vec();
        self.swap(&mut data);
        Cow::Owned(data)
    }

    /// The number of bytes in the file for as many in memory, of whole elements.
    pub(crate) fn stored_bytes(&self, bytes: u64) -> u64 {
        bytes / self.element.width() * self.width
    }

    /// Elements of memory as a file has them; zeros are in the padding.
    pub(crate) fn stored<'a>(&self, data: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.has_padding() {
            return self.swapped(data);
        }
        let width = exact::<usize>(self.width);
        let packed = data.chunks_exact(exact::<usize>(self.element.width()));
        let mut stored = vec![0; packed.len() * width];
        for (element, packed) in stored.chunks_exact_mut(width).zip(packed) {
            for part in &self.moves {
                let place = &mut element[part.stored..][..part.bytes];
                place.copy_from_slice(&packed[part.packed..][..part.bytes]);
                swap(place, part.swap_width);
            }
        }
        Cow::Owned(stored)
    }

    /// Puts elements of a file into memory, as many as there is room for.
    pub(crate) fn pack(&self, stored: &[u8], data: &mut [u8]) {
        let width = exact::<usize>(self.element.width());
        let elements = stored.chunks_exact(exact::<usize>(self.width));
        for (packed, element) in data.chunks_exact_mut(width).zip(elements) {
            for part in &self.moves {
                let place = &mut packed[part.packed..][..part.bytes];
                place.copy_from_slice(&element[part.stored..][..part.bytes]);
                swap(place, part.swap_width);
            }
        }
    }
}

impl From<StoredElement> for String {
    fn from(stored: StoredElement) -> Self {
        stored.text
    }
}

impl TryFrom<String> for StoredElement {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

/// The parts of a stored element.
#[derive(Debug, Clone, Default)]
struct Parts {
    moves: Vec<Move>,
    /// The bytes in the file.
    stored: u64,
    /// The bytes in memory.
    packed: u64,
}

impl Parts {
    /// The parts of an element in one byte order, without padding.
    fn of(element: &ElementType, order: ByteOrder) -> Self {
        let mut parts = Self::default();
        match element {
            ElementType::Record(record) => {
                for field in &record.fields {
                    parts.add(&Self::of(&field.element, order), field.count());
                }
            }
            number => {
                let width = number.width();
                parts = Self {
                    moves: vec![Move {
                        stored: 0,
                        packed: 0,
                        bytes: exact::<usize>(width),
                        swap_width: match order == ByteOrder::NATIVE {
                            true => 1,
                            false => number.swap_width(),
                        },
                    }],
                    stored: width,
                    packed: width,
                };
            }
        }
        parts
    }

    /// Adds a number of like elements behind the others.
    fn add(&mut self, element: &Self, count: u64) {
        // Elements that are one part are one part together, too.
        let together;
        let (element, count) = match element.moves.as_slice() {
            [one] if one.bytes as u64 == element.stored => {
                let bytes = one.bytes * exact::<usize>(count);
                together = Self {
                    moves: vec![Move { bytes, ..*one }],
                    stored: bytes as u64,
                    packed: bytes as u64,
                };
                (&together, 1)
            }
            _ => (element, count),
        };
        for _ in 0..count {
            for part in &element.moves {
                self.join(Move {
                    stored: exact::<usize>(self.stored) + part.stored,
                    packed: exact::<usize>(self.packed) + part.packed,
                    ..*part
                });
            }
            self.stored = self.stored.saturating_add(element.stored);
            self.packed += element.packed;
        }
    }

    /// Notes a move, or makes the last one longer if both are treated alike.
    fn join(&mut self, part: Move) {
        match self.moves.last_mut() {
            Some(last)
                if last.stored + last.bytes == part.stored
                    && last.packed + last.bytes == part.packed
                    && last.swap_width == part.swap_width =>
            {
                last.bytes += part.bytes;
            }
            _ => self.moves.push(part),
        }
    }
}

/// The error of a text that is no dtype.
fn unread(text: &str) -> impl Fn(String) -> Error {
    let doing = format!("reading the dtype {text:?}");
    move |cause| Error::new(Kind::Schema, doing.clone(), cause)
}

/// A type without fields, and its byte order, in NumPy's spelling.
fn number(text: &str) -> std::result::Result<(ElementType, ByteOrder), String> {
    let mut order = ByteOrder::NATIVE;
    let word = match text.as_bytes().first() {
        Some(b'<') => {
            order = ByteOrder::Little;
            &text[1..]
        }
        Some(b'>') => {
            order = ByteOrder::Big;
            &text[1..]
        }
        Some(b'=' | b'|') => &text[1..],
        _ => text,
    };
    let word = if word == "?" { "b1" } else { word };
    let row = TABLE.iter().find(|row| row.1 == word || row.2 == word);
    let Some((element, ..)) = row else {
        let names: Vec<&str> = TABLE.iter().map(|row| row.2).collect();
        let names = names.join(", ");
        return Err(format!(
            "no such element type: there are {names}, and records of them"
        ));
    };
    let has_order = element.width() > 1;
    Ok((
        element.clone(),
        if has_order { order } else { ByteOrder::NATIVE },
    ))
}

/// An element type and its parts in a file, in NumPy's spelling.
fn described(literal: &Literal) -> std::result::Result<(ElementType, Parts), String> {
    if let Literal::Text(text) = literal {
        let (element, order) = number(text)?;
        let parts = Parts::of(&element, order);
        return Ok((element, parts));
    }
    let Literal::List(items) = literal else {
        return Err("a type is a string, or a list of fields".to_string());
    };
    let mut fields = Vec::new();
    let mut places = Vec::new();
    for item in items {
        match padding(item) {
            Some(bytes) => places.push((
                Parts {
                    stored: bytes,
                    ..Parts::default()
                },
                1,
            )),
            None => {
                let (field, parts) = field(item)?;
                places.push((parts, field.count()));
                fields.push(field);
            }
        }
    }
    // What is too large is refused here, before its parts are listed.
    let record = Record::new(fields).map_err(|e| e.cause)?;
    let mut all = Parts::default();
    for (parts, count) in &places {
        all.add(parts, *count);
        // Before the next offset is made of it.
        if all.stored > RECORD_BYTES_MAX {
            return Err(format!("a record has more than {RECORD_BYTES_MAX} bytes"));
        }
    }
    Ok((ElementType::Record(Arc::new(record)), all))
}

/// The bytes of a field that is padding: one without a name, of NumPy's type without a meaning.
fn padding(item: &Literal) -> Option<u64> {
    match item {
        Literal::Tuple(parts) => match parts.as_slice() {
            [name, kind] if name.text() == Some("") => {
                let kind = kind.text()?.trim_start_matches('|');
                kind.strip_prefix('V')?.parse().ok()
            }
            _ => None,
        },
        _ => None,
    }
}

/// A field, and the parts of one element of it.
fn field(item: &Literal) -> std::result::Result<(Field, Parts), String> {
    let wrong = || "a field is a name, a type and perhaps a shape".to_string();
    let Literal::Tuple(parts) = item else {
        return Err(wrong());
    };
    let (name, kind, shape) = match parts.as_slice() {
        [name, kind] => (name, kind, Vec::new()),
        [name, kind, Literal::Number(extent)] => (name, kind, vec![*extent]),
        [name, kind, shape] => (name, kind, shape.numbers().ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    let name = match name {
        Literal::Text(name) => name,
        // A title, and the name.
        Literal::Tuple(names) => match names.as_slice() {
            [_, Literal::Text(name)] => name,
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    let (element, parts) = described(kind).map_err(|e| format!("the field {name:?}: {e}"))?;
    let name = name.clone();
    Ok((
        Field {
            name,
            element,
            shape,
        },
        parts,
    ))
}

/// Reverses each `width` bytes of `data` in place.
fn swap(data: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => swap_fixed::<2>(data),
        4 => swap_fixed::<4>(data),
        8 => swap_fixed::<8>(data),
        _ => data.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// Reverses each `WIDTH` bytes: a constant width lets the compiler make vector shuffles.
fn swap_fixed<const WIDTH: usize>(data: &mut [u8]) {
    for element in data.as_chunks_mut::<WIDTH>().0 {
        element.reverse();
    }
}

#[cfg(test)]
mod tests;
