//! Groups as Python describes them, and checkpoints.

use std::path::PathBuf;

use numpy::PyUntypedArray;
use penstock_arrays::calls::FoundCheckpoint;
use penstock_arrays::calls::array::{LocalPart, Memory};
use penstock_arrays::calls::save::GroupCall;
use penstock_arrays::groups::{Coordinate, Values};
use penstock_arrays::{ElementType, json};
use penstock_engine::Result;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::local::locals_of;
use crate::spec::{Spec, attributes_of};

/// This rank's parts of each array of a group.
pub type Locals<'py> = Vec<Vec<Bound<'py, PyUntypedArray>>>;

/// A coordinate in Python's terms.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct CoordinateArgument {
    name: String,
    dims: Vec<String>,
    shape: Vec<u64>,
    dtype: String,
    /// The values of a coordinate of elements.
    bytes: Vec<u8>,
    /// The values of a coordinate with the `dtype` "str".
    strings: Vec<String>,
    attributes: String,
}

impl CoordinateArgument {
    fn coordinate(self) -> Result<Coordinate> {
        let values = match self.dtype.as_str() {
            "str" => Values::Strings(self.strings),
            dtype => Values::Elements(ElementType::parse(dtype)?.0, self.bytes),
        };
        Ok(Coordinate {
            name: self.name,
            dimensions: self.dims,
            shape: self.shape,
            values,
            attributes: attributes_of(&self.attributes)?,
        })
    }
}

/// A group's description in Python's terms.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GroupArgument {
    name: String,
    path: PathBuf,
    coordinates: Vec<CoordinateArgument>,
    attributes: String,
    time_attributes: String,
    time_chunk: Option<u64>,
    keep: usize,
    bounds: Vec<String>,
}

/// A group: `penstock.Group` in Rust.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyGroup(GroupCall);

#[pymethods]
impl PyGroup {
    #[new]
    fn new(
        py: Python<'_>,
        arrays: Vec<Bound<'_, Spec>>,
        described: GroupArgument,
    ) -> PyResult<Self> {
        let arrays = arrays.iter().map(|spec| spec.get().call.clone()).collect();
        let make = || {
            let coordinates = described.coordinates.into_iter();
            Ok(Self(GroupCall {
                name: described.name,
                path: described.path,
                arrays,
                coordinates: coordinates
                    .map(CoordinateArgument::coordinate)
                    .collect::<Result<_>>()?,
                attributes: attributes_of(&described.attributes)?,
                time_attributes: attributes_of(&described.time_attributes)?,
                time_chunk: described.time_chunk,
                keep: described.keep,
                bounded: described.bounds.into_iter().collect(),
            }))
        };
        make().map_err(|e| raise(py, &e))
    }
}

impl PyGroup {
    /// The group as a call takes it, with this rank's parts. The parts of an array of rows
    /// determine the number of rows.
    pub fn with_locals(&self, locals: &Locals<'_>) -> Result<(GroupCall, Vec<Vec<LocalPart>>)> {
        let mut group = self.0.clone();
        let locals = locals.iter().map(|locals| locals_of(locals));
        let locals: Vec<Vec<LocalPart>> = locals.collect::<Result<_>>()?;
        for (array, locals) in group.arrays.iter_mut().zip(&locals) {
            if let Memory::Rows { count } = &mut array.memory {
                let rows = locals
                    .first()
                    .and_then(|local| local.memory.extents.first());
                *count = rows.copied().unwrap_or(0);
            }
        }
        Ok((group, locals))
    }
}

/// A complete checkpoint.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyCheckpoint(pub FoundCheckpoint);

#[pymethods]
impl PyCheckpoint {
    /// The program's step.
    #[getter]
    fn step(&self) -> u64 {
        self.0.checkpoint.step
    }

    /// The program's time.
    #[getter]
    fn time(&self) -> Option<f64> {
        self.0.checkpoint.time
    }

    /// The number of timesteps that the group had.
    #[getter]
    fn timesteps(&self) -> u64 {
        self.0.checkpoint.timesteps
    }

    /// The attributes of the checkpoint, as JSON.
    #[getter]
    fn attributes(&self) -> String {
        json::line(&self.0.attributes.clone().into())
    }

    /// The shapes of its arrays, by name.
    #[getter]
    fn shapes(&self) -> Vec<(String, Vec<u64>)> {
        self.0.shapes.clone()
    }
}
