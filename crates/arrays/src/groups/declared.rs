//! The declaration of a group.

use std::collections::BTreeSet;
use std::path::Path;

use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::coordinate::Coordinate;
use crate::formats::bounds;
use crate::formats::record::{self, CHECKPOINTS, Growth, Record, TIME};
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
    /// The names of the arrays for which saves keep the bounds of chunks.
    pub bounded: BTreeSet<String>,
}

impl Declaration {
    /// Checks that this makes a group: its names differ, and none is taken.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |cause: String| Err(Error::new(Kind::Schema, "describing a group", cause));
        if self.arrays.is_empty() {
            return wrong("it has no array".to_string());
        }
        if self.time_chunk == Some(0) {
            return wrong("its chunks are of 0 timesteps".to_string());
        }
        let mut taken: BTreeSet<String> = [TIME, CHECKPOINTS].map(str::to_string).into();
        for array in &self.arrays {
            if let Growth::Rows(dimension) = array.growth() {
                taken.extend(record::row_arrays(&dimension));
            }
        }
        let arrays = self.arrays.iter().map(|array| &array.schema.name);
        let coordinates = self.coordinates.iter().map(|known| &known.name);
        for name in arrays.chain(coordinates) {
            if name.starts_with('.') || !taken.insert(name.clone()) {
                return wrong(format!(
                    "nothing in a group can be named {name:?}: the name is taken, or hidden"
                ));
            }
        }
        self.check_bounded()
    }

    /// Checks that the arrays that are to have bounds are there, and that their elements have an
    /// order.
    fn check_bounded(&self) -> Result<()> {
        for name in &self.bounded {
            let mut arrays = self.arrays.iter();
            let cause = match arrays.find(|array| array.schema.name == *name) {
                Some(array) if bounds::has(&array.schema.element) => continue,
                Some(array) => format!("its elements, {}, have no order", array.schema.element),
                None => "there is no such array".to_string(),
            };
            let doing = format!("keeping bounds of the array {name:?}");
            return Err(Error::new(Kind::Schema, doing, cause));
        }
        Ok(())
    }
}

impl Declaration {
    /// Checks that the arrays of the group at `path` are declared, and stored as declared: `moment`
    /// gives a stored array at one moment, and `is_stored_as` looks at its chunks and codecs.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub(super) fn check_stored(
        &self,
        path: &Path,
        record: &Record,
        moment: &dyn Fn(&str) -> Result<ArraySchema>,
        is_stored_as: &dyn Fn(&ArraySchema, &ArrayDeclaration) -> Result<bool>,
    ) -> Result<()> {
        let refused = |cause: String| {
            let error = Error::new(Kind::Schema, "writing to a group", cause);
            Err(error.at(path))
        };
        let there = record.time_chunk;
        if let Some(asked) = self.time_chunk.filter(|asked| *asked != there) {
            return refused(format!(
                "its chunks are of {there} timesteps, and the call says {asked}"
            ));
        }
        for (name, growth) in &record.arrays {
            let mut arrays = self.arrays.iter();
            let Some(array) = arrays.find(|array| array.schema.name == *name) else {
                let names = self.arrays.iter().map(|array| array.schema.name.as_str());
                let names: Vec<&str> = names.collect();
                return refused(format!(
                    "the group there has the array {name:?}, and this one is of {names:?}"
                ));
            };
            let (stored, asked) = (moment(name)?, &array.schema);
            let own = |shape: &[u64]| shape[usize::from(array.is_ragged)..].to_vec();
            let is_same = array.growth() == *growth
                && own(&stored.shape) == own(&asked.shape)
                && stored.element == asked.element
                && is_stored_as(&stored, array)?;
            if !is_same {
                return refused(format!(
                    "{name:?} there is {} of shape {:?}, stored as {}, and the call says {} of {:?}, {}",
                    stored.element,
                    stored.shape,
                    stored.disk,
                    asked.element,
                    asked.shape,
                    asked.disk
                ));
            }
        }
        Ok(())
    }
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
