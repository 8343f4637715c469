//! The ask of one rank in a collective call: the array, how it lies in memory, and this rank's
//! part.

use std::path::Path;

use penstock_engine::address::SHARES_MAX;
use penstock_engine::{Error, Holders, Kind, Operation, Result};
use penstock_layout::{
    Boxes, Dist, Distribution, Dists, Edges, LayoutError, List, MemorySchema, Region, Share, exact,
    grid_of_shares,
};
use penstock_machines::ClientMemory;
use serde::{Deserialize, Serialize};

use super::ask::{ArrayAsk, MemoryAsk, Thinning};
use super::list::{RankList, elements_of};
use crate::json::as_text;
use crate::schema::{of_layout, part_extents};
use crate::{ArraySchema, ElementType, Format, Storage, StoredArray, groups, json};

/// The least bytes of a chunk of an array of rows under natural chunking: ranks may bring few rows
/// at a time.
const ROWS_BYTES: u64 = 1 << 20;

/// The layout of an array in the memories of the ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Memory {
    /// A distribution of the array over a mesh of ranks.
    Distribution {
        /// One distribution for each dimension.
        dists: Dists,
        /// One extent for each distributed dimension.
        mesh: Vec<u64>,
        /// The ghost cells below and above the share, in each dimension.
        halo: Vec<(u64, u64)>,
    },
    /// Boxes that each rank names for itself.
    Boxes {
        /// The boxes of this rank: its own, which nobody else hears of.
        #[serde(skip)]
        own: Vec<Region>,
        /// The ghost cells below and above each box, in each dimension.
        halo: Vec<(u64, u64)>,
        /// Whether the call is about the boxes alone: a write keeps all elements outside the boxes,
        /// and in a read boxes may overlap.
        is_region: bool,
    },
    /// A list that each rank names for itself.
    List {
        /// The list of this rank: its own, which nobody else hears of.
        #[serde(skip)]
        own: RankList,
        /// Whether the call is about the lists alone: a write keeps all other elements.
        is_region: bool,
        /// The thinned array whose shares the lists are, if they are that.
        thinning: Option<Thinning>,
    },
    /// Rows: each rank brings as many rows of the first dimension as it has, which follow the rows
    /// of the rank before. The array has as many rows as all ranks bring together.
    Rows {
        /// The number of rows that this rank brings.
        count: u64,
    },
}

/// The boxes of ranks, each with the rank's number.
pub type RankRegions = Vec<(usize, Vec<Region>)>;

/// An array as the ranks of a call see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrayCall {
    /// The name, shape, element type and disk schema.
    #[serde(with = "as_text")]
    pub schema: ArraySchema,
    /// The layout in memory.
    pub memory: Memory,
}

impl ArrayCall {
    /// All in which ranks must agree: all but a rank's own boxes and rows.
    pub(super) fn ask(&self) -> ArrayAsk {
        let schema = self.schema.clone();
        ArrayAsk {
            name: schema.name,
            shape: schema.shape,
            element: schema.element,
            memory: self.memory_ask(),
            disk: schema.disk,
            dimension_names: schema.dimension_names,
            attributes: json::line(&schema.attributes.into()),
            fill: schema.fill,
        }
    }

    /// All of the memory schema in which ranks must agree.
    fn memory_ask(&self) -> MemoryAsk {
        match &self.memory {
            Memory::Distribution { dists, mesh, .. } => {
                MemoryAsk::Distribution(dists.clone(), mesh.clone())
            }
            Memory::Boxes {
                is_region: false, ..
            } => MemoryAsk::Boxes,
            Memory::Boxes {
                is_region: true, ..
            } => MemoryAsk::Regions,
            Memory::List {
                thinning: Some(thinning),
                ..
            } => MemoryAsk::Thinned(thinning.clone()),
            Memory::List { is_region, .. } => MemoryAsk::Lists {
                is_region: *is_region,
            },
            Memory::Rows { .. } => MemoryAsk::Rows,
        }
    }

    /// This array thinned: `rank` of `clients` holds the elements of its shares in `thinned`, an
    /// array of the thinned shape, one share behind the other in a local array of one dimension.
    /// Halos are left out.
    ///
    /// # Errors
    /// [`Kind::Schema`] when `every` has another number of dimensions or a zero, when `thinned` has
    /// another shape, or when its memory schema does not fit; [`Kind::Unsupported`] where ranks
    /// hold lists or rows of it.
    pub fn thinned(
        &self,
        every: &[u64],
        thinned: &ArrayCall,
        (rank, clients): (usize, usize),
    ) -> Result<Self> {
        let doing = || format!("thinning '{}'", self.schema.name);
        let wrong = |cause: String| Error::new(Kind::Schema, doing(), cause);
        let shape = &self.schema.shape;
        if every.len() != shape.len() || every.contains(&0) {
            let cause = format!("every {every:?} of an array of shape {shape:?}");
            return Err(wrong(cause));
        }
        let steps = shape.iter().zip(every);
        let expected: Vec<u64> = steps.map(|(extent, step)| extent.div_ceil(*step)).collect();
        if thinned.schema.shape != expected {
            let given = &thinned.schema.shape;
            let cause = format!("the thinned array has shape {expected:?}, not {given:?}");
            return Err(wrong(cause));
        }
        let memory = thinned.memory_ask().words();
        let shares = match &thinned.memory {
            Memory::Distribution { .. } => {
                thinned.holders(Operation::Read, Vec::new(), clients)?;
                thinned.shares(rank)?
            }
            Memory::Boxes { .. } => thinned.shares(rank)?,
            Memory::List { .. } | Memory::Rows { .. } => {
                let cause = "a thinned array is held by a distribution or in boxes";
                return Err(Error::new(Kind::Unsupported, doing(), cause));
            }
        };
        if shares
            .iter()
            .any(|share| share.elements() > 0 && !share.is_within(&expected))
        {
            return Err(wrong(format!(
                "a box reaches out of the shape {expected:?}"
            )));
        }
        let every = every.to_vec();
        Ok(Self {
            schema: self.schema.clone(),
            memory: Memory::List {
                own: RankList::thinned(shape, &every, &shares)?,
                is_region: true,
                thinning: Some(Thinning { every, memory }),
            },
        })
    }

    /// This array, in which each rank holds the same sample: at most `runs` runs of at most `run`
    /// elements, evenly spread over the array in row-major order.
    ///
    /// # Errors
    /// When the array has more elements than can be counted.
    pub(super) fn sample(&self, runs: u64, run: u64) -> Result<Self> {
        let shape = &self.schema.shape;
        let elements = u128::from(elements_of(shape));
        let start = |nth: u64| exact::<u64>(u128::from(nth) * elements / u128::from(runs));
        let offsets: Vec<u64> = (0..runs).map(start).collect();
        let lengths = (0..runs).map(|nth| (start(nth + 1) - start(nth)).min(run));
        let lengths: Vec<u64> = lengths.collect();
        let list = List::runs(&offsets, &lengths).map_err(of_layout)?;
        Ok(Self {
            schema: self.schema.clone(),
            memory: Memory::List {
                own: RankList::new(shape, &list, None)?,
                is_region: true,
                thinning: None,
            },
        })
    }

    /// The bytes of the whole array.
    pub fn bytes(&self) -> u64 {
        self.schema.bytes()
    }

    /// The schema as it is stored: natural chunking becomes explicit chunks.
    ///
    /// # Errors
    /// When shares are to be chunks and form no grid.
    pub fn stored_schema(&self, holders: &Holders) -> Result<ArraySchema> {
        let mut schema = self.schema.clone();
        let is_ragged = self.is_ragged();
        if is_ragged {
            schema.shape = holders.shape().to_vec();
        }
        if schema.disk == Storage::Natural {
            let mut chunk = natural_chunk(holders, schema.element.width());
            if is_ragged {
                let row: u64 = chunk.iter().skip(1).product::<u64>() * schema.element.width();
                chunk[0] = chunk[0].max(ROWS_BYTES / row.max(1)).max(1);
            }
            schema.disk = Storage::plain_chunks(chunk);
        }
        if let Storage::Chunks { chunk, .. } = &mut schema.disk {
            for (edges, &n) in chunk.iter_mut().zip(&schema.shape) {
                // Any reader knows a regular grid.
                if edges.elements() == Some(n) {
                    *edges = edges.as_regular();
                }
            }
        }
        if let Storage::Shares { subchunks, codec } = schema.disk {
            schema.disk = Storage::Chunks {
                chunk: self.shares_as_chunks(holders)?,
                subchunks,
                codec,
            };
        }
        schema.disk = schema.disk.of_shape(&schema.shape);
        Ok(schema)
    }

    /// The chunks that are the ranks' shares.
    fn shares_as_chunks(&self, holders: &Holders) -> Result<Vec<Edges>> {
        let grid = match holders {
            Holders::Schema(memory) => grid_of_shares(memory).map_err(|e| e.to_string()),
            Holders::Lists { .. } => Err("a list of elements is no chunk".to_string()),
        };
        grid.map_err(|cause| {
            let doing = format!("making chunks of the shares of '{}'", self.schema.name);
            Error::new(Kind::Schema, doing, cause)
        })
    }

    /// Whether the ranks' rows determine the extent of the first dimension.
    pub fn is_ragged(&self) -> bool {
        matches!(self.memory, Memory::Rows { .. })
    }

    /// This rank's boxes, if each rank names its own. Rows are a box that begins at 0, wherever
    /// they lie in the array.
    pub fn own_boxes(&self) -> Option<Vec<Region>> {
        match &self.memory {
            Memory::Distribution { .. } | Memory::List { .. } => None,
            Memory::Boxes { own, .. } => Some(own.clone()),
            Memory::Rows { count } => Some(vec![self.rows(*count)]),
        }
    }

    fn rows(&self, count: u64) -> Region {
        let mut rows = Region::whole(&self.schema.shape);
        if let Some(extent) = rows.shape.first_mut() {
            *extent = count;
        }
        rows
    }

    /// Adds a dimension of one timestep before the array's own dimensions, as a group stores it. An
    /// array of rows stays as it is.
    pub fn in_time(&self) -> Self {
        let mut array = self.clone();
        if array.is_ragged() {
            return array;
        }
        array.schema.shape.insert(0, 1);
        let before = |halo: &mut Vec<(u64, u64)>| {
            if !halo.is_empty() {
                halo.insert(0, (0, 0));
            }
        };
        match &mut array.memory {
            Memory::Distribution { dists, halo, .. } => {
                dists.0.insert(0, Dist::Whole);
                before(halo);
            }
            Memory::Boxes { own, halo, .. } => {
                for region in own {
                    region.start.insert(0, 0);
                    region.shape.insert(0, 1);
                }
                before(halo);
            }
            Memory::List { .. } | Memory::Rows { .. } => {}
        }
        array
    }

    /// The list of this rank, if each rank has one.
    pub fn own_list(&self) -> Option<&RankList> {
        match &self.memory {
            Memory::List { own, .. } => Some(own),
            _ => None,
        }
    }

    /// The bytes that this call moves: of this rank's boxes or list in a call about regions, of its
    /// rows; otherwise of the whole array.
    pub fn asked_bytes(&self) -> u64 {
        match &self.memory {
            Memory::Boxes {
                own,
                is_region: true,
                ..
            } => {
                let elements = own.iter().map(Region::elements);
                let all = elements.fold(0, u64::saturating_add);
                all.saturating_mul(self.schema.element.width())
            }
            Memory::List {
                own,
                is_region: true,
                ..
            } => own.holding().bytes(self.schema.element.width()),
            Memory::Rows { count } => {
                let elements = self.rows(*count).elements();
                elements.saturating_mul(self.schema.element.width())
            }
            _ => self.bytes(),
        }
    }

    /// Whether the call writes or reads only a part of the array.
    pub fn is_region(&self) -> bool {
        matches!(
            self.memory,
            Memory::Boxes {
                is_region: true,
                ..
            } | Memory::List {
                is_region: true,
                ..
            }
        )
    }

    /// The holders of the elements among `clients` ranks; `boxes` are the ranks' boxes, if they
    /// name their own.
    ///
    /// # Errors
    /// When the mesh does not fit the array or has more places than there are ranks, when boxes
    /// reach out of the array, or when boxes of a write overlap.
    pub fn holders(
        &self,
        operation: Operation,
        boxes: RankRegions,
        clients: usize,
    ) -> Result<Holders> {
        let (dists, mesh) = match &self.memory {
            Memory::Distribution { dists, mesh, .. } => (dists, mesh),
            Memory::Boxes { .. } => {
                let may_overlap = self.is_region() && operation == Operation::Read;
                return all_boxes(&self.schema.shape, boxes, clients, may_overlap);
            }
            Memory::List { .. } => {
                return Ok(Holders::Lists {
                    shape: self.schema.shape.clone(),
                    ranks: clients,
                });
            }
            Memory::Rows { .. } => {
                let (shape, boxes) = one_after_the_other(&self.schema.shape, boxes)?;
                return all_boxes(&shape, boxes, clients, false);
            }
        };
        let distribution = Distribution::new(&self.schema.shape, dists, mesh).map_err(of_layout)?;
        if distribution.ranks() > clients {
            let cause = format!(
                "the mesh {mesh:?} has {} places, and the session {clients} ranks",
                distribution.ranks()
            );
            return Err(Error::new(Kind::Schema, "distributing an array", cause));
        }
        Ok(distribution.into())
    }

    /// The shares of `rank`: one of a distribution, or one for each of its boxes.
    ///
    /// # Errors
    /// When the schema does not fit the array, and when ranks have lists.
    pub fn shares(&self, rank: usize) -> Result<Vec<Share>> {
        match &self.memory {
            Memory::Distribution { dists, mesh, .. } => {
                let distribution = Distribution::new(&self.schema.shape, dists, mesh);
                Ok(vec![distribution.map_err(of_layout)?.share(rank)])
            }
            Memory::Boxes { own, .. } => own.iter().map(|own| self.share_of_box(own)).collect(),
            Memory::List { .. } => {
                let cause = "it is a list, and no product of indices";
                Err(Error::new(
                    Kind::Schema,
                    "looking for a rank's share",
                    cause,
                ))
            }
            Memory::Rows { count } => Ok(vec![Share::of_box(&self.rows(*count))]),
        }
    }

    fn share_of_box(&self, own: &Region) -> Result<Share> {
        let dims = self.schema.shape.len();
        match own.dims() == dims {
            true => Ok(Share::of_box(own)),
            false => Err(of_layout(LayoutError::DimCount {
                what: "the box",
                given: own.shape.clone(),
                dims,
            })),
        }
    }

    /// Checks what this rank of `clients` holds, without a memory for it.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is not of the array.
    pub(super) fn check_held(&self, clients: usize) -> Result<()> {
        match &self.memory {
            Memory::Distribution { .. } => {
                self.holders(Operation::Read, Vec::new(), clients).map(drop)
            }
            Memory::List { own, .. } => own.check_within(&self.schema.shape),
            Memory::Boxes { own, .. } => {
                let too_many = own.len() as u64 > SHARES_MAX;
                let cause = format!("this rank names {}, and may have {SHARES_MAX}", own.len());
                match too_many {
                    true => Err(Error::new(Kind::Schema, "describing boxes", cause)),
                    false => Ok(()),
                }
            }
            Memory::Rows { .. } => {
                let cause = "an array of rows is read with its group";
                Err(Error::new(Kind::Unsupported, "sifting an array", cause))
            }
        }
    }

    fn halo(&self) -> &[(u64, u64)] {
        match &self.memory {
            Memory::Distribution { halo, .. } | Memory::Boxes { halo, .. } => halo,
            Memory::List { .. } | Memory::Rows { .. } => &[],
        }
    }

    /// The shapes of the local arrays of `rank`: of each share with the halo around it. An empty
    /// share has no halo.
    ///
    /// # Errors
    /// As [`ArrayCall::shares`].
    pub fn local_shapes(&self, rank: usize) -> Result<Vec<Vec<u64>>> {
        if let Memory::List { own, .. } = &self.memory {
            return Ok(vec![own.local_shape()]);
        }
        let shares = self.shares(rank)?;
        shares.iter().map(|share| self.with_halo(share)).collect()
    }

    fn with_halo(&self, share: &Share) -> Result<Vec<u64>> {
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

    /// Opens the array on disk that this call is to read, and checks that it has the shape and
    /// element type of the call.
    ///
    /// # Errors
    /// When the array is missing, damaged, or of another shape or element type.
    pub fn open_stored(&self, path: &Path) -> Result<StoredArray> {
        let ArraySchema {
            name,
            shape,
            element,
            disk,
            ..
        } = &self.schema;
        let may_be_raw = matches!(
            disk,
            Storage::Natural
                | Storage::RowMajor {
                    format: Format::Raw
                }
        );
        if may_be_raw && !StoredArray::says_what_it_is(path) {
            return StoredArray::open_raw(path, shape, element);
        }
        let stored = match disk {
            Storage::Hdf5 { dataset, .. } if !dataset.is_empty() => {
                StoredArray::open_dataset(path, dataset)?
            }
            _ => groups::open(path, Some(name))?,
        };
        let there = stored.schema();
        if there.shape != *shape || there.element != *element {
            let cause = format!(
                "the array there has shape {:?} and type {}, the call says {shape:?} and {}",
                there.shape, there.element, element
            );
            return Err(Error::new(Kind::Schema, format!("reading '{name}'"), cause).at(path));
        }
        Ok(stored)
    }
}

/// This rank's part of an array, halo included, as the user gives it.
#[derive(Debug, Clone)]
pub struct LocalPart {
    /// The place of the elements: with the halo until that has been checked.
    pub memory: ClientMemory,
    pub element: ElementType,
    /// Whether a read may write to this memory.
    pub is_writable: bool,
}

impl LocalPart {
    /// Adds a dimension of one timestep before the part's own dimensions.
    #[must_use]
    pub fn in_time(mut self) -> Self {
        self.memory.extents.insert(0, 1);
        self.memory.strides.insert(0, 0);
        self
    }

    /// Checks that `locals` are the parts that `rank` must bring, and moves the base of each past
    /// its halo.
    ///
    /// # Errors
    /// When there are too few or too many parts, when one has another shape or element type, or
    /// when a part of a read is not writable.
    pub fn check_all(
        locals: &mut [Self],
        operation: Operation,
        array: &ArrayCall,
        (rank, clients): (usize, usize),
    ) -> Result<()> {
        if let Memory::Distribution { .. } = array.memory {
            array.holders(operation, Vec::new(), clients)?;
        }
        let expected = array.local_shapes(rank)?;
        let (given, held) = (locals.len(), expected.len());
        if held as u64 > SHARES_MAX {
            let cause = format!("this rank names {held} boxes, and may have {SHARES_MAX}");
            return Err(Error::new(Kind::Schema, "describing boxes", cause));
        }
        if given != held {
            let doing = format!("bringing the local parts of '{}'", array.schema.name);
            let cause = format!("there are {given}, and this rank names {held} boxes");
            return Err(Error::new(Kind::Schema, doing, cause));
        }
        let mut pairs = locals.iter_mut().zip(expected);
        pairs.try_for_each(|(local, expected)| local.check_for(operation, array, &expected))
    }

    fn check_for(
        &mut self,
        operation: Operation,
        array: &ArrayCall,
        expected: &[u64],
    ) -> Result<()> {
        let doing = || format!("bringing the local part of '{}'", array.schema.name);
        let wrong = |cause: String| Error::new(Kind::Schema, doing(), cause);
        if let Some(list) = array.own_list() {
            let shape = &array.schema.shape;
            list.check(operation, shape, &self.memory.extents)?;
        } else if self.memory.extents != expected {
            return Err(wrong(format!(
                "its shape is {:?}, and this rank holds {expected:?}{}",
                self.memory.extents,
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
                self.element, array.schema.element
            )));
        }
        if operation == Operation::Read && !self.is_writable {
            return Err(wrong("it is read-only".to_string()));
        }
        let is_empty = self.memory.extents.contains(&0);
        for (d, (below, above)) in array.halo().iter().enumerate() {
            if !is_empty {
                // The base stays inside the array: the halo is part of the shape just checked.
                let past = exact::<isize>(*below) * self.memory.strides[d];
                self.memory.base = self.memory.base.wrapping_offset(past);
            }
            let extent = &mut self.memory.extents[d];
            *extent = extent.saturating_sub(below + above);
        }
        Ok(())
    }
}

/// Places each rank's rows after the rows of the rank before, and gives the shape of all together.
fn one_after_the_other(shape: &[u64], mut boxes: RankRegions) -> Result<(Vec<u64>, RankRegions)> {
    boxes.sort_by_key(|(rank, _)| *rank);
    let mut length: u64 = 0;
    for region in boxes.iter_mut().flat_map(|(_, own)| own) {
        let too_many = || {
            let cause = "the rows of all ranks are more than can be counted";
            Error::new(Kind::Schema, "laying out an array", cause)
        };
        let (Some(start), Some(&rows)) = (region.start.first_mut(), region.shape.first()) else {
            let cause = "an array of rows has at least one dimension";
            return Err(Error::new(Kind::Schema, "laying out an array", cause));
        };
        *start = length;
        length = length.checked_add(rows).ok_or_else(too_many)?;
    }
    let mut shape = shape.to_vec();
    shape[0] = length;
    Ok((shape, boxes))
}

/// The extents of a chunk with which the disk schema is the memory schema (Panda, section 2): the
/// extents of the largest share. A CYCLIC dimension has as many chunks as a BLOCK dimension would
/// have.
///
/// Arrays that are held in lists have chunks of as many whole rows as make up a block.
fn natural_chunk(holders: &Holders, width: u64) -> Vec<u64> {
    let shape = holders.shape();
    match holders {
        Holders::Schema(MemorySchema::Distribution(distribution)) => {
            part_extents(shape, distribution.dists(), distribution.mesh())
        }
        Holders::Schema(MemorySchema::Boxes(boxes)) => {
            let held = boxes.boxes().iter().filter(|own| !own.is_empty());
            held.fold(vec![1; shape.len()], |largest, own| {
                let both = largest.iter().zip(&own.shape);
                both.map(|(one, other)| *one.max(other)).collect()
            })
        }
        Holders::Schema(MemorySchema::Replicated(_)) => shape.iter().map(|&n| n.max(1)).collect(),
        Holders::Lists { .. } => {
            let mut room = (ROWS_BYTES / width.max(1)).max(1);
            let mut chunk = vec![1; shape.len()];
            for (extent, &n) in chunk.iter_mut().zip(shape).rev() {
                *extent = n.clamp(1, room);
                room /= *extent;
            }
            chunk
        }
    }
}

/// The memory schema made of the boxes of all ranks.
pub(super) fn all_boxes(
    shape: &[u64],
    boxes: RankRegions,
    clients: usize,
    may_overlap: bool,
) -> Result<Holders> {
    let mut all = vec![Vec::new(); clients];
    for (rank, own) in boxes {
        if let Some(place) = all.get_mut(rank) {
            *place = own;
        }
    }
    let boxes = Boxes::of_lists(shape, all, may_overlap);
    boxes.map(Holders::from).map_err(of_layout)
}
