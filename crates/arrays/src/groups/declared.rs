//! What a group is to be, as a program declares it.

use serde_json::{Map, Value};

use super::coordinate::Coordinate;
use crate::formats::record::Growth;
use crate::schema::ArraySchema;

/// What a group is to be, as it is declared.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// What the user says about it.
    pub attributes: Map<String, Value>,
    /// What the user says about its times, units and calendar among it.
    pub time_attributes: Map<String, Value>,
    /// How many timesteps are in a chunk; `None` leaves it to a group that is there, and is one in
    /// a new one.
    pub time_chunk: Option<u64>,
    /// Its arrays.
    pub arrays: Vec<ArrayDeclaration>,
    /// Its static variables.
    pub coordinates: Vec<Coordinate>,
}

/// An array of a group, as it is declared.
#[derive(Debug, Clone)]
pub struct ArrayDeclaration {
    /// As it is to be stored at one moment, in chunks.
    pub schema: ArraySchema,
    /// Whether it leaves its chunks to a group that is there already.
    pub is_natural: bool,
    /// Whether its first dimension has another extent at each moment.
    pub is_ragged: bool,
}

impl ArrayDeclaration {
    /// How it grows with a timestep.
    pub(super) fn growth(&self) -> Growth {
        match self.is_ragged {
            true => Growth::Rows(self.schema.names_of_dimensions().swap_remove(0)),
            false => Growth::Time,
        }
    }
}
