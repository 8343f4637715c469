//! An array as Python describes it.

use penstock_arrays::calls::array::{ArrayCall, Memory};
use penstock_arrays::calls::settings::BLOCK_BYTES;
use penstock_arrays::{ArraySchema, ElementType, Fill, Format, Storage, json, of_layout};
use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::{Dists, Edges, Region};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::errors::raise;
use crate::list::ListArgument;

/// The widths of a halo below and above, in each dimension.
type Halo = Vec<(u64, u64)>;
/// The start of a box, and its extents.
type StartAndShape = (Vec<u64>, Vec<u64>);

/// A memory schema in Python's terms.
#[derive(FromPyObject)]
enum MemoryArgument<'py> {
    /// A distribution: its words, mesh and halo.
    #[pyo3(transparent)]
    Distribution((String, Vec<u64>, Halo)),
    /// Boxes: starts and shapes, halo, and whether a call is about the boxes alone.
    #[pyo3(transparent)]
    Boxes((Vec<StartAndShape>, Halo, bool)),
    /// A list with its places, and whether a call is about the lists alone.
    #[pyo3(transparent)]
    List((ListArgument<'py>, bool)),
}

/// The extents of chunks along a dimension: one for all, or one for each.
#[derive(FromPyObject, IntoPyObject)]
enum EdgesArgument {
    #[pyo3(transparent)]
    Regular(u64),
    #[pyo3(transparent)]
    Listed(Vec<u64>),
}

impl From<EdgesArgument> for Edges {
    fn from(given: EdgesArgument) -> Self {
        match given {
            EdgesArgument::Regular(extent) => Self::Regular(extent),
            EdgesArgument::Listed(extents) => Self::Listed(extents),
        }
    }
}

impl From<&Edges> for EdgesArgument {
    fn from(edges: &Edges) -> Self {
        match edges {
            Edges::Regular(extent) => Self::Regular(*extent),
            Edges::Listed(extents) => Self::Listed(extents.clone()),
        }
    }
}

/// An array as a rank sees it: `penstock.Array` in Rust.
#[pyclass(frozen, module = "penstock._core")]
pub struct Spec {
    pub call: ArrayCall,
}

/// The memory schema of an argument. Without one, each rank brings rows of its own, as many as a
/// call says.
fn memory_of(argument: Option<MemoryArgument<'_>>, shape: &[u64]) -> Result<Memory> {
    match argument {
        None => Ok(Memory::Rows { count: 0 }),
        Some(MemoryArgument::Distribution((dists, mesh, halo))) => {
            let dists: Dists = dists.parse().map_err(of_layout)?;
            Ok(Memory::Distribution { dists, mesh, halo })
        }
        Some(MemoryArgument::List((list, is_region))) => Ok(Memory::List {
            own: list.for_shape(shape)?,
            is_region,
            thinning: None,
        }),
        Some(MemoryArgument::Boxes((boxes, halo, is_region))) => {
            let own = boxes.into_iter().map(|(start, shape)| {
                if start.len() != shape.len() {
                    let cause = format!("start {start:?} and shape {shape:?} differ in length");
                    return Err(Error::new(Kind::Schema, "describing a box", cause));
                }
                Ok(Region { start, shape })
            });
            Ok(Memory::Boxes {
                own: own.collect::<Result<_>>()?,
                halo,
                is_region,
            })
        }
    }
}

/// The disk schema from its words: `("chunks", chunk, subchunks, codec)` and so on.
fn disk_of(words: &Bound<'_, PyAny>) -> PyResult<Storage> {
    let kind: String = words.get_item(0)?.extract()?;
    Ok(match kind.as_str() {
        "natural" => Storage::Natural,
        "chunks" => Storage::Chunks {
            chunk: words
                .get_item(1)?
                .extract::<Vec<EdgesArgument>>()?
                .into_iter()
                .map(EdgesArgument::into)
                .collect(),
            subchunks: words.get_item(2)?.extract()?,
            codec: words.get_item(3)?.extract()?,
        },
        "shares" => Storage::Shares {
            subchunks: words.get_item(1)?.extract()?,
            codec: words.get_item(2)?.extract()?,
        },
        "raw" => Storage::RowMajor {
            format: Format::Raw,
        },
        "npy" => Storage::RowMajor {
            format: Format::Npy,
        },
        "hdf5" => Storage::Hdf5 {
            dataset: words.get_item(1)?.extract()?,
            chunk: words.get_item(2)?.extract()?,
            filters: words.get_item(3)?.extract()?,
            is_netcdf: words.get_item(4)?.extract()?,
        },
        _ => {
            let dists: String = words.get_item(1)?.extract()?;
            let dists: Dists = dists
                .parse()
                .map_err(|e| raise(words.py(), &of_layout(e)))?;
            Storage::Parts(dists, words.get_item(2)?.extract()?)
        }
    })
}

/// Attributes from JSON text.
pub(crate) fn attributes_of(text: &str) -> Result<serde_json::Map<String, serde_json::Value>> {
    let wrong = |cause: String| Error::new(Kind::Schema, "reading attributes", cause);
    match json::parse(text.as_bytes()).map_err(|e| wrong(e.to_string()))? {
        serde_json::Value::Object(attributes) => Ok(attributes),
        other => Err(wrong(format!("{other} is no object"))),
    }
}

#[pymethods]
impl Spec {
    #[new]
    #[pyo3(signature = (name, shape, dtype, memory, disk, dims, attributes, fill))]
    #[expect(clippy::too_many_arguments, reason = "called from one place, by Array")]
    fn new(
        py: Python<'_>,
        name: String,
        shape: Vec<u64>,
        dtype: &str,
        memory: Option<MemoryArgument<'_>>,
        disk: &Bound<'_, PyAny>,
        dims: Option<Vec<String>>,
        attributes: &str,
        fill: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let disk = disk_of(disk)?;
        let make = || {
            let (element, _) = ElementType::parse(dtype)?;
            let mut schema = ArraySchema::new(&name, &shape, element, disk);
            schema.dimension_names = dims;
            schema.attributes = attributes_of(attributes)?;
            if let Some(bytes) = fill {
                schema.fill = Fill::new(&schema.element, &bytes)?;
            }
            Ok(Self {
                call: ArrayCall {
                    schema,
                    memory: memory_of(memory, &shape)?,
                },
            })
        };
        make().map_err(|e| raise(py, &e))
    }

    /// The shapes of the local arrays of `rank`, halo included.
    fn local_shapes(&self, py: Python<'_>, rank: usize) -> PyResult<Vec<Vec<u64>>> {
        self.call.local_shapes(rank).map_err(|e| raise(py, &e))
    }

    /// The elements that `rank` holds in each of its shares, for each dimension: a slice's `(start,
    /// stop, step)`, or a comb's `(first, block, stride, extent)`.
    fn local_slices<'py>(
        &self,
        py: Python<'py>,
        rank: usize,
    ) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let shares = self.call.shares(rank).map_err(|e| raise(py, &e))?;
        let of_share = |share: &penstock_layout::Share| {
            let dims = share.dims().iter().take(self.call.schema.shape.len());
            let slices = dims.map(|dim| match dim.slice() {
                Some(slice) => Ok(slice.into_pyobject(py)?.into_any()),
                None => Ok(dim.comb().into_pyobject(py)?.into_any()),
            });
            slices.collect()
        };
        shares.iter().map(of_share).collect()
    }

    /// This array thinned, as `rank` of `clients` holds `thinned`, an array of the thinned shape.
    fn thinned(
        &self,
        py: Python<'_>,
        every: Vec<u64>,
        thinned: &Bound<'_, Spec>,
        rank: usize,
        clients: usize,
    ) -> PyResult<Self> {
        let call = self
            .call
            .thinned(&every, &thinned.get().call, (rank, clients));
        Ok(Self {
            call: call.map_err(|e| raise(py, &e))?,
        })
    }

    /// Checks the disk schema, and the memory schema against `clients` ranks.
    fn check(&self, py: Python<'_>, clients: usize) -> PyResult<()> {
        let check = || {
            let holders = self.call.holders(Operation::Write, Vec::new(), clients)?;
            let stored = self.call.stored_schema(&holders)?;
            stored.disk_schema(BLOCK_BYTES)?;
            Ok(())
        };
        check().map_err(|e| raise(py, &e))
    }
}

/// A schema as keyword arguments for `penstock.Array`.
pub fn describe<'py>(py: Python<'py>, schema: &ArraySchema) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("name", &schema.name)?;
    described.set_item("shape", &schema.shape)?;
    described.set_item("dtype", schema.element.numpy())?;
    described.set_item("dims", &schema.dimension_names)?;
    described.set_item("fill", schema.fill.bytes())?;
    described.set_item("attributes", json::line(&schema.attributes.clone().into()))?;
    match &schema.disk {
        Storage::Natural => described.set_item("disk", ("natural",))?,
        Storage::Chunks {
            chunk,
            subchunks,
            codec,
        } => {
            let chunk: Vec<EdgesArgument> = chunk.iter().map(EdgesArgument::from).collect();
            described.set_item("disk", ("chunks", chunk, subchunks, codec))?;
        }
        Storage::Shares { subchunks, codec } => {
            described.set_item("disk", ("shares", subchunks, codec))?;
        }
        Storage::RowMajor {
            format: Format::Raw,
        } => described.set_item("disk", ("raw",))?,
        Storage::RowMajor {
            format: Format::Npy,
        } => described.set_item("disk", ("npy",))?,
        Storage::Hdf5 {
            dataset,
            chunk,
            filters,
            is_netcdf,
        } => described.set_item("disk", ("hdf5", dataset, chunk, filters, is_netcdf))?,
        Storage::Parts(dists, mesh) => {
            described.set_item("disk", ("parts", dists.to_string(), mesh))?;
        }
    }
    Ok(described)
}
