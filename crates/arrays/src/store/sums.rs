//! Checksums of whole objects, made as they are written and compared as they are read.
//!
//! The sum of an object is the CRC-32C (Castagnoli) of its elements decoded, in the machine's byte order,
//! padding included as zeros: it depends neither on the codec nor on the blocks in which it was moved. A
//! server makes it of the blocks that it has in its buffers anyway:
//!
//! ```text
//! object   | block 0 | block 1 | padding that nobody writes | block 3 |
//! sum      combine(crc 0, crc 1, crc of zeros, crc 3)
//! ```
//!
//! An object of which a read moves only some blocks is not compared. Memory: three numbers a block of the
//! objects under way, two an object that is done.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crc32c::{crc32c, crc32c_combine};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;

use super::Target;
use super::file::{damaged, lock, read_if_there};

/// The sums of some arrays, by name: one an object, `None` where it was never written.
pub type Sums = BTreeMap<String, Vec<Option<u32>>>;

/// Reads the sums that stand in a file.
///
/// # Errors
/// [`Kind::Damaged`] when it is not there or holds something else.
pub fn read(path: &Path) -> Result<Sums> {
    let bytes = read_if_there(path)?.ok_or_else(|| damaged(path, "the checksums are missing"))?;
    serde_json::from_slice(&bytes).map_err(|e| damaged(path, format!("no checksums: {e}")))
}

/// The sums of an array of so many objects that stand in a file.
///
/// # Errors
/// [`Kind::Damaged`] when they are not there.
pub fn of_array(path: &Path, name: &str, objects: u64) -> Result<Vec<Option<u32>>> {
    let known = read(path)?.remove(name).unwrap_or_default();
    if known.len() as u64 == objects {
        return Ok(known);
    }
    let cause = format!(
        "{} checksums for the {objects} chunks of {name:?}",
        known.len()
    );
    Err(damaged(path, cause))
}

/// Blocks of an object, and what is known of their sums.
#[derive(Default)]
struct Parts {
    /// Bytes and sum, by offset.
    blocks: BTreeMap<u64, (u64, u32)>,
    elements: u64,
}

impl Parts {
    fn add(&mut self, block: &Block, data: &[u8]) {
        let sum = (block.bytes, crc32c(data));
        if self.blocks.insert(block.offset, sum).is_none() {
            self.elements += block.region.elements();
        }
    }

    /// The sum of an object of so many bytes, zeros where no block was.
    fn sum(&self, object_bytes: u64) -> u32 {
        let mut sum = 0;
        let mut end = 0;
        for (&offset, &(bytes, crc)) in &self.blocks {
            sum = crc32c_combine(sum, zeros(offset - end), (offset - end) as usize);
            sum = crc32c_combine(sum, crc, bytes as usize);
            end = offset + bytes;
        }
        crc32c_combine(
            sum,
            zeros(object_bytes - end),
            (object_bytes - end) as usize,
        )
    }
}

/// The sum of so many zeros, in time in proportion to the number's digits.
fn zeros(bytes: u64) -> u32 {
    let (mut sum, mut power, mut length, mut left) = (0, crc32c(&[0]), 1_usize, bytes);
    while left > 0 {
        if left % 2 == 1 {
            sum = crc32c_combine(sum, power, length);
        }
        power = crc32c_combine(power, power, length);
        left /= 2;
        length = length.wrapping_mul(2);
    }
    sum
}

/// The sum of an object, read block by block.
///
/// # Errors
/// What reading it met.
pub fn of_object(
    medium: &dyn Medium,
    schema: &DiskSchema,
    object: u64,
    buffer: &mut Vec<u8>,
) -> Result<u32> {
    let mut parts = Parts::default();
    for block in schema.object_blocks(object) {
        buffer.resize(block.bytes as usize, 0);
        medium.read(&block, buffer)?;
        parts.add(&block, buffer);
    }
    Ok(parts.sum(schema.object_bytes(object)))
}

/// Makes the sums of what is written.
pub(super) struct Summing {
    medium: Arc<dyn Medium>,
    schema: DiskSchema,
    objects: Mutex<BTreeMap<u64, Parts>>,
}

impl Summing {
    pub(super) fn new(medium: Arc<dyn Medium>, schema: &DiskSchema) -> Self {
        Self {
            medium,
            schema: schema.clone(),
            objects: Mutex::default(),
        }
    }
}

impl Medium for Summing {
    fn make(&self, objects: &[u64]) -> Result<bool> {
        self.medium.make(objects)
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.medium.write(block, data)?;
        let mut objects = lock(&self.objects);
        objects.entry(block.object).or_default().add(block, data);
        Ok(())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.medium.read(block, data)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.medium.finish(sync)
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        let objects = lock(&self.objects);
        let sums = objects.iter().map(|(&object, parts)| {
            let bytes = self.schema.object_bytes(object);
            (object, parts.sum(bytes))
        });
        sums.collect()
    }
}

/// Compares what is read with the sums that are known of it.
pub(super) struct Checking {
    medium: Arc<dyn Medium>,
    schema: DiskSchema,
    known: Vec<Option<u32>>,
    target: Target,
    /// What has been read of the objects that are not yet complete.
    objects: Mutex<BTreeMap<u64, Parts>>,
}

impl Checking {
    /// `known` are the sums of all objects of `schema`, which are those of `target`.
    pub(super) fn new(
        medium: Arc<dyn Medium>,
        schema: &DiskSchema,
        known: Vec<Option<u32>>,
        target: Target,
    ) -> Self {
        Self {
            medium,
            schema: schema.clone(),
            known,
            target,
            objects: Mutex::default(),
        }
    }

    /// Takes a block into account; of a complete object, whether it is what it was.
    fn check(&self, block: &Block, data: &[u8]) -> Result<()> {
        let Some(known) = self.known.get(block.object as usize).copied().flatten() else {
            return Ok(());
        };
        let mut objects = lock(&self.objects);
        let parts = objects.entry(block.object).or_default();
        parts.add(block, data);
        if parts.elements < self.schema.object_region(block.object).elements() {
            return Ok(());
        }
        let sum = parts.sum(self.schema.object_bytes(block.object));
        objects.remove(&block.object);
        if sum == known {
            return Ok(());
        }
        let cause = format!("its checksum is {sum:08x}, and {known:08x} when it was written");
        let error = Error::new(Kind::Damaged, "reading", cause);
        let place = self.target.place_of(&self.schema, block);
        Err(place.map_or(error.clone(), |(path, _)| error.at(&path)))
    }
}

impl Medium for Checking {
    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.medium.write(block, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.medium.read(block, data)?;
        self.check(block, data)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.medium.finish(sync)
    }
}
