//! All possible disk schemas, also such as no constructor makes: column-major chunks, blocks of
//! many objects dealt out. They come from outside, as data, through serde.

use std::iter::once;

use penstock_layout::{Assignment, DiskSchema, Edges, Order, Split};
use serde::de::value::{Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The value of a field.
#[derive(Debug, Clone)]
pub enum Value {
    Number(u64),
    Numbers(Vec<u64>),
    Bool(bool),
    Word(&'static str),
    Variant(&'static str, Box<Value>),
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Number(number) => visitor.visit_u64(number),
            Self::Numbers(numbers) => visitor.visit_seq(SeqDeserializer::new(numbers.into_iter())),
            Self::Bool(bool) => visitor.visit_bool(bool),
            Self::Word(word) => {
                let word: serde::de::value::StrDeserializer<'_, Error> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            Self::Variant(name, value) => {
                let map = MapDeserializer::new(once((name, *value)));
                visitor.visit_enum(MapAccessDeserializer::new(map))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Makes a value of named fields.
pub fn from_fields<T: Deserialize<'static>>(
    fields: Vec<(&'static str, Value)>,
) -> Result<T, Error> {
    T::deserialize(MapDeserializer::new(fields.into_iter()))
}

/// The parts of a disk schema.
#[derive(Debug, Clone)]
pub struct Parts {
    pub shape: Vec<u64>,
    pub width: u64,
    pub chunk: Vec<u64>,
    pub padded: bool,
    pub order: Order,
    pub split: Split,
    pub assignment: Assignment,
}

impl Parts {
    pub fn schema(&self) -> DiskSchema {
        let order = match self.order {
            Order::RowMajor => "RowMajor",
            Order::ColumnMajor => "ColumnMajor",
        };
        let split = match &self.split {
            Split::Whole => Value::Word("Whole"),
            Split::Contiguous(max) => Value::Variant("Contiguous", Box::new(Value::Number(*max))),
            Split::Inner(inner) => Value::Variant("Inner", Box::new(Value::Numbers(inner.clone()))),
        };
        let assignment = match self.assignment {
            Assignment::Objects => "Objects",
            Assignment::Blocks => "Blocks",
        };
        from_fields(vec![
            ("shape", Value::Numbers(self.shape.clone())),
            ("width", Value::Number(self.width)),
            ("chunk", Value::Numbers(self.chunk.clone())),
            ("padded", Value::Bool(self.padded)),
            ("order", Value::Word(order)),
            ("split", split),
            ("assignment", Value::Word(assignment)),
        ])
        .unwrap()
    }
}

/// All schemas of an array of `shape` in chunks of up to `chunk_max` in every dimension: padded or
/// not, in both orders, split in every way, objects and blocks dealt out.
pub fn all_schemas(shape: &[u64], chunk_max: u64) -> Vec<DiskSchema> {
    let width = 3;
    let mut all = Vec::new();
    for chunk in extents(shape.len(), &|_| (1..=chunk_max).collect()) {
        let inner = extents(shape.len(), &|d| {
            (1..=chunk[d]).filter(|part| chunk[d] % part == 0).collect()
        });
        let elements = chunk.iter().product::<u64>();
        let mut splits = vec![Split::Whole];
        splits.extend((1..=elements).map(|max| Split::Contiguous(max * width)));
        splits.extend(inner.into_iter().map(Split::Inner));
        for split in splits {
            for order in [Order::RowMajor, Order::ColumnMajor] {
                for padded in [false, true] {
                    for assignment in [Assignment::Objects, Assignment::Blocks] {
                        let (shape, chunk, split) = (shape.to_vec(), chunk.clone(), split.clone());
                        let parts = Parts {
                            shape,
                            width,
                            chunk,
                            padded,
                            order,
                            split,
                            assignment,
                        };
                        all.push(parts.schema());
                    }
                }
            }
        }
    }
    all
}

/// Schemas of an array of `shape` whose chunks have extents of their own, also beyond the array.
pub fn listed_schemas(shape: &[u64]) -> Vec<DiskSchema> {
    let mut all = vec![Vec::new()];
    for &n in shape {
        let choices = match n {
            0 | 1 => vec![Edges::Regular(2)],
            _ => vec![
                Edges::Listed(vec![1, n - 1]),
                Edges::Listed(vec![n - 1, 3]),
                Edges::Regular(2),
            ],
        };
        let deeper = all.iter().flat_map(|outer: &Vec<Edges>| {
            let choices = choices.iter().cloned();
            choices.map(|edges| [outer.as_slice(), &[edges]].concat())
        });
        all = deeper.collect();
    }
    let of_grid = |edges: &Vec<Edges>| {
        let schema = DiskSchema::rectilinear(shape, 3, edges).unwrap();
        let small = Split::Inner(vec![1; shape.len()]);
        [Split::Whole, Split::Contiguous(6), small].map(|split| {
            let schema = schema.clone();
            schema.split(split).unwrap()
        })
    };
    all.iter().flat_map(of_grid).collect()
}

/// All combinations of the extents that `choices` offers for each dimension.
fn extents(dims: usize, choices: &dyn Fn(usize) -> Vec<u64>) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for d in 0..dims {
        let deeper = all.iter().flat_map(|outer: &Vec<u64>| {
            choices(d)
                .into_iter()
                .map(|n| [outer.as_slice(), &[n]].concat())
        });
        all = deeper.collect();
    }
    all
}
