//! The declaration of a group.

use serde_json::{Map, Value};

use super::coordinate::Coordinate;
use crate::formats::record::Growth;
use crate::schema::ArraySchema;

/// The declaration of a group by a program.
#[derive(Debug, Clone)]
pub struct Declaration {
    pub name: String,
    /// The attributes of the group.
    pub attributes: Map<String, Value>,
    /// The attributes of its times, such as units and calendar.
    pub time_attributes: Map<String, Value>,
    /// The number of timesteps in a chunk; `None` takes it from the stored group, and is 1 for a
    /// new group.
    pub time_chunk: Option<u64>,
    pub arrays: Vec<ArrayDeclaration>,
    /// The static variables.
    pub coordinates: Vec<Coordinate>,
}

/// The declaration of an array of a group.
#[derive(Debug, Clone)]
pub struct ArrayDeclaration {
    /// The schema at one moment, in chunks.
    pub schema: ArraySchema,
    /// Whether the array takes its chunks from a group that is stored already.
    pub is_natural: bool,
    /// Whether the array says its codec: the stored array must have the same.
    pub says_codec: bool,
    /// Whether the first dimension has another extent at each moment.
    pub is_ragged: bool,
}

impl ArrayDeclaration {
    /// The way in which the array grows with a timestep.
    pub(super) fn growth(&self) -> Growth {
        match self.is_ragged {
            true => Growth::Rows(self.schema.names_of_dimensions().swap_remove(0)),
            false => Growth::Time,
        }
    }
}
