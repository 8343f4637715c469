//! What one rank brings to a collective call: the array, how it lies in memory, and this rank's part.

use std::fmt;
use std::path::Path;

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::{Boxes, Distribution, Dists, LayoutError, MemorySchema, Region, Share};
use penstock_machines::ClientMemory;

use crate::codec::Codec;
use crate::schema::part_extents;
use crate::{ArraySchema, Disk, ElementType, Format, Stored};

/// How an array lies in the memories of the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// Dealt out over a mesh.
    Distribution {
        /// One distribution a dimension.
        dists: Dists,
        /// One extent a distributed dimension.
        mesh: Vec<u64>,
        /// Ghost cells below and above the share, a dimension.
        halo: Vec<(u64, u64)>,
    },
    /// Each rank names its own box.
    Box {
        /// This rank's.
        own: Region,
        /// Ghost cells below and above the box, a dimension.
        halo: Vec<(u64, u64)>,
        /// Whether the call is about the boxes alone: a write leaves what lies outside of them as it is
        /// stored, and in a read they may overlap.
        is_region: bool,
    },
}

/// An array as the ranks of a call see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayCall {
    /// Name, shape, element type, disk schema.
    pub schema: ArraySchema,
    /// Memory schema.
    pub memory: Memory,
}

impl fmt::Display for ArrayCall {
    /// Everything in which ranks must agree: not a rank's own box.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArraySchema {
            name,
            shape,
            element,
            ..
        } = &self.schema;
        write!(
            f,
            "'{name}', shape {shape:?}, {}, in memory ",
            element.zarr()
        )?;
        match &self.memory {
            Memory::Distribution { dists, mesh, .. } => write!(f, "{dists} over mesh {mesh:?}")?,
            Memory::Box {
                is_region: false, ..
            } => write!(f, "boxes")?,
            Memory::Box {
                is_region: true, ..
            } => write!(f, "regions")?,
        }
        write!(f, ", on disk {:?}", self.schema.disk)?;
        if let Some(names) = &self.schema.dimension_names {
            write!(f, ", dimensions {names:?}")?;
        }
        if !self.schema.attributes.is_empty() {
            write!(
                f,
                ", attributes {}",
                serde_json::Value::from(self.schema.attributes.clone())
            )?;
        }
        Ok(())
    }
}

impl ArrayCall {
    /// Bytes of the whole array.
    pub fn bytes(&self) -> u64 {
        self.schema.bytes()
    }

    /// The schema as it is to be stored: natural chunking becomes the chunks that it comes to.
    pub fn stored_schema(&self, memory: &MemorySchema) -> ArraySchema {
        let mut schema = self.schema.clone();
        if schema.disk == Disk::Natural {
            schema.disk = Disk::Chunks {
                chunk: natural_chunk(memory),
                subchunks: None,
                codec: Codec::default().to_string(),
            };
        }
        schema
    }

    /// This rank's box, where each names its own.
    pub fn own_box(&self) -> Option<Region> {
        match &self.memory {
            Memory::Distribution { .. } => None,
            Memory::Box { own, .. } => Some(own.clone()),
        }
    }

    /// Bytes that the call is about on this rank: where it is about regions, this rank's; otherwise those of
    /// the whole array.
    pub fn asked_bytes(&self) -> u64 {
        match &self.memory {
            Memory::Box {
                own,
                is_region: true,
                ..
            } => own.elements().saturating_mul(self.schema.element.width()),
            _ => self.bytes(),
        }
    }

    /// Whether only a part of the array is written or read.
    pub fn is_region(&self) -> bool {
        matches!(
            self.memory,
            Memory::Box {
                is_region: true,
                ..
            }
        )
    }

    /// Which rank holds what, for `clients` ranks; `boxes` are theirs, where each names its own.
    ///
    /// # Errors
    /// When the mesh does not fit the array or has more places than there are ranks, or when boxes
    /// overlap that may not, or reach out of the array.
    pub fn memory_schema(
        &self,
        operation: Operation,
        boxes: Vec<(usize, Region)>,
        clients: usize,
    ) -> Result<MemorySchema> {
        let Memory::Distribution { dists, mesh, .. } = &self.memory else {
            let may_overlap = self.is_region() && operation == Operation::Read;
            return all_boxes(&self.schema.shape, boxes, clients, may_overlap);
        };
        let distribution = Distribution::new(&self.schema.shape, dists, mesh).map_err(of_layout)?;
        if distribution.ranks() > clients {
            let cause = format!(
                "the mesh {mesh:?} has {} places, and the session {clients} ranks",
                distribution.ranks()
            );
            return Err(Error::new(Kind::Schema, "distributing an array", cause));
        }
        Ok(MemorySchema::Distribution(distribution))
    }

    /// What `rank` holds.
    ///
    /// # Errors
    /// When the schema does not fit the array.
    pub fn share(&self, rank: usize) -> Result<Share> {
        match &self.memory {
            Memory::Distribution { dists, mesh, .. } => {
                let distribution = Distribution::new(&self.schema.shape, dists, mesh);
                Ok(distribution.map_err(of_layout)?.share(rank))
            }
            Memory::Box { own, .. } if own.dims() != self.schema.shape.len() => {
                let given = own.shape.clone();
                let dims = self.schema.shape.len();
                Err(of_layout(LayoutError::DimCount {
                    what: "the box",
                    given,
                    dims,
                }))
            }
            Memory::Box { own, .. } => Ok(Share::of_box(own)),
        }
    }

    fn halo(&self) -> &[(u64, u64)] {
        match &self.memory {
            Memory::Distribution { halo, .. } | Memory::Box { halo, .. } => halo,
        }
    }

    /// The shape of the local array of `rank`: its share and the halo around it. An empty share
    /// has no halo.
    ///
    /// # Errors
    /// As [`ArrayCall::share`].
    pub fn local_shape(&self, rank: usize) -> Result<Vec<u64>> {
        let share = self.share(rank)?;
        let mut shape = share.extents();
        if share.elements() == 0 {
            shape.truncate(self.schema.shape.len());
            return Ok(shape);
        }
        let halo = self.halo();
        if !halo.is_empty() && halo.len() != shape.len() {
            let cause = format!("{} widths for {} dimensions", halo.len(), shape.len());
            return Err(Error::new(Kind::Schema, "adding a halo", cause));
        }
        for (extent, (below, above)) in shape.iter_mut().zip(halo) {
            *extent += below + above;
        }
        Ok(shape)
    }

    /// The array on disk that this call is to read, checked against what the call says of it.
    ///
    /// # Errors
    /// When it is not there, damaged, or of another shape or element type.
    pub fn open_stored(&self, path: &Path) -> Result<Stored> {
        let ArraySchema {
            name,
            shape,
            element,
            disk,
            ..
        } = &self.schema;
        let may_be_raw = matches!(
            disk,
            Disk::Natural
                | Disk::RowMajor {
                    format: Format::Raw
                }
        );
        if may_be_raw && !Stored::says_what_it_is(path) {
            return Stored::open_raw(path, shape, *element);
        }
        let stored = Stored::open(path, Some(name))?;
        let there = stored.schema();
        if there.shape != *shape || there.element != *element {
            let cause = format!(
                "the array there has shape {:?} and type {}, the call says {shape:?} and {}",
                there.shape,
                there.element.zarr(),
                element.zarr()
            );
            return Err(Error::new(Kind::Schema, format!("reading '{name}'"), cause).at(path));
        }
        Ok(stored)
    }
}

/// This rank's part of an array, halo included, as the user gave it.
#[derive(Debug, Clone)]
pub struct Local {
    /// Where its first element is, and its strides.
    pub memory: ClientMemory,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub element: ElementType,
    /// Whether it may be written to.
    pub is_writable: bool,
}

impl Local {
    /// Checks that this is what `rank` must bring, and moves the memory's base past the halo.
    ///
    /// # Errors
    /// When it has another shape or type, or is to be read into and may not be written to.
    pub fn check_for(
        &mut self,
        operation: Operation,
        array: &ArrayCall,
        rank: usize,
        clients: usize,
    ) -> Result<()> {
        let doing = || format!("bringing the local part of '{}'", array.schema.name);
        let wrong = |cause: String| Error::new(Kind::Schema, doing(), cause);
        if let Memory::Distribution { .. } = array.memory {
            array.memory_schema(operation, Vec::new(), clients)?;
        }
        let expected = array.local_shape(rank)?;
        if self.shape != expected {
            return Err(wrong(format!(
                "its shape is {:?}, and this rank holds {expected:?}{}",
                self.shape,
                if array.halo().is_empty() {
                    ""
                } else {
                    " with its halo"
                }
            )));
        }
        if self.element != array.schema.element {
            return Err(wrong(format!(
                "its type is {}, and the array's {}",
                self.element.zarr(),
                array.schema.element.zarr()
            )));
        }
        if operation == Operation::Read && !self.is_writable {
            return Err(wrong("it is read-only".to_string()));
        }
        if !self.shape.contains(&0) {
            let steps = array.halo().iter().zip(&self.memory.strides);
            let past: isize = steps
                .map(|((below, _), stride)| *below as isize * stride)
                .sum();
            // Inside the array: the halo is part of the shape that was just checked.
            self.memory.base = self.memory.base.wrapping_offset(past);
        }
        Ok(())
    }
}

/// The extents of a chunk such that the disk schema is the memory schema (Panda, section 2): the largest
/// share's. What is CYCLIC has as many chunks as if it were BLOCK.
fn natural_chunk(memory: &MemorySchema) -> Vec<u64> {
    let shape = memory.shape();
    match memory {
        MemorySchema::Distribution(distribution) => {
            part_extents(shape, distribution.dists(), distribution.mesh())
        }
        MemorySchema::Boxes(boxes) => {
            let held = boxes.boxes().iter().filter(|own| !own.is_empty());
            held.fold(vec![1; shape.len()], |largest, own| {
                let both = largest.iter().zip(&own.shape);
                both.map(|(one, other)| *one.max(other)).collect()
            })
        }
        MemorySchema::Replicated(_) => shape.iter().map(|&n| n.max(1)).collect(),
    }
}

/// A schema's mistake as an error.
pub fn of_layout(error: LayoutError) -> Error {
    let kind = match error {
        LayoutError::Overlap { .. } => Kind::Overlap,
        _ => Kind::Schema,
    };
    Error::new(kind, "laying out an array", error)
}

/// The boxes of all ranks, those that named none being empty.
fn all_boxes(
    shape: &[u64],
    boxes: Vec<(usize, Region)>,
    clients: usize,
    may_overlap: bool,
) -> Result<MemorySchema> {
    let none = Region::new(&vec![0; shape.len()], &vec![0; shape.len()]);
    let mut all = vec![none; clients];
    for (rank, own) in boxes {
        all[rank] = own;
    }
    let boxes = match may_overlap {
        true => Boxes::overlapping(shape, all),
        false => Boxes::new(shape, all),
    };
    boxes.map(MemorySchema::Boxes).map_err(of_layout)
}
