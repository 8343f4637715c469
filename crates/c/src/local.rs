//! Local arrays: `penstock_memory`.

use std::ffi::{c_int, c_void};

use penstock_arrays::ElementType;
use penstock_arrays::calls::array::LocalPart;
use penstock_arrays::calls::settings::Report as CallReport;
use penstock_engine::Result;
use penstock_layout::exact;
use penstock_machines::ClientMemory;

use crate::array::Array;
use crate::border::{Many, Place, wrong};

/// `penstock_memory`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    pub base: *mut c_void,
    pub shape: Many<'a, u64>,
    pub strides: Many<'a, i64>,
}

impl Memory<'_> {
    /// Contiguous memory of the shape that is expected.
    pub fn contiguous(base: *mut c_void) -> Self {
        Self {
            base,
            shape: Many::NULL,
            strides: Many::NULL,
        }
    }

    /// The memory as a call takes it, of this shape unless it names another.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Schema`] without a base, and when it is larger than a memory.
    pub fn part(&self, shape: &[u64], element: &ElementType) -> Result<LocalPart> {
        let dims = shape.len();
        let extents = self.shape.optional(dims, "the shape of a local array")?;
        let extents = extents.unwrap_or(shape);
        let width: usize = exact(element.width());
        let strides = match self
            .strides
            .optional(dims, "the strides of a local array")?
        {
            Some(strides) => {
                let strides = strides.iter().map(|&stride| isize::try_from(stride));
                strides
                    .collect::<std::result::Result<_, _>>()
                    .map_err(wrong)?
            }
            None => contiguous_strides(extents, width)?,
        };
        if self.base.is_null() && !extents.contains(&0) {
            return Err(wrong(format!(
                "the local array of shape {extents:?} is NULL"
            )));
        }
        Ok(LocalPart {
            memory: ClientMemory {
                base: self.base.cast(),
                extents: extents.to_vec(),
                strides,
                width,
            },
            element: element.clone(),
            is_writable: true,
        })
    }
}

/// The strides of a contiguous local array, bytes.
fn contiguous_strides(extents: &[u64], width: usize) -> Result<Vec<isize>> {
    let too_large = || wrong(format!("no memory has a local array of shape {extents:?}"));
    let mut strides = vec![0; extents.len()];
    let is_empty = extents.contains(&0);
    let mut stride = isize::try_from(width).map_err(wrong)?;
    for (place, &extent) in strides.iter_mut().zip(extents).rev() {
        *place = stride;
        // No step of an empty array is ever made.
        let extent = if is_empty { 1 } else { extent };
        let extent = isize::try_from(extent).map_err(|_| too_large())?;
        stride = stride.checked_mul(extent).ok_or_else(too_large)?;
    }
    Ok(strides)
}

/// The local arrays of a call, as the program gives them.
#[derive(Clone, Copy)]
pub enum Locals<'a> {
    /// One that is contiguous.
    One(*mut c_void),
    /// As many as this, of any strides.
    Several(usize, Many<'a, Memory<'a>>),
}

impl Locals<'_> {
    /// This rank's parts of an array. Those of an array of rows name their shapes.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Schema`] when this rank holds more or fewer, or when one is not
    /// what it should be.
    pub fn parts(self, array: &Array, rank: usize) -> Result<Vec<LocalPart>> {
        let (schema, is_ragged) = (&array.call.schema, array.call.is_ragged());
        let shapes = match is_ragged {
            true => vec![schema.shape.clone()],
            false => array.call.local_shapes(rank)?,
        };
        let one;
        let memories = match self {
            // A rank without a box has no local array, and says so with one that is not looked at.
            Self::One(_) if shapes.is_empty() => &[],
            Self::One(base) => {
                one = [Memory::contiguous(base)];
                &one[..]
            }
            Self::Several(count, memories) => memories.needed(count, "the local arrays")?,
        };
        let (given, held) = (memories.len(), shapes.len());
        if given != held {
            let name = &schema.name;
            let cause =
                format!("this rank has {held} local arrays of '{name}' to bring, not {given}");
            return Err(wrong(cause));
        }
        let parts = memories.iter().zip(&shapes).map(|(memory, shape)| {
            if is_ragged && memory.shape.is_null() {
                let name = &schema.name;
                let cause = format!("'{name}' is of rows: say the shape of the local array");
                return Err(wrong(cause));
            }
            memory.part(shape, &schema.element)
        });
        parts.collect()
    }
}

/// `penstock_report`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Report {
    pub bytes: u64,
    pub seconds: f64,
    pub blocks: u64,
    pub disk_bytes: u64,
    pub transfers: u64,
    pub buffer_bytes: u64,
    pub servers: u64,
}

impl From<CallReport> for Report {
    fn from(report: CallReport) -> Self {
        let CallReport {
            bytes,
            seconds,
            moved,
            servers,
        } = report;
        Self {
            bytes,
            seconds,
            blocks: moved.blocks,
            disk_bytes: moved.disk_bytes,
            transfers: moved.transfers,
            buffer_bytes: moved.buffer_bytes,
            servers: servers as u64,
        }
    }
}

/// Stores the report of a call.
pub fn put_report(mut place: Place<'_, Report>, report: CallReport) {
    place.put(report.into());
}

/// Whether a number of C is true.
pub fn is_true(word: c_int) -> bool {
    word != 0
}
