//! Makes the checksums of whole objects as they are written, and compares them as they are read.
//! With the checksums go the bounds of the elements ([`super::bounds`]), for programs that ask.
//!
//! The sum of an object is the CRC-32C (Castagnoli) of its decoded elements, in the machine's byte
//! order, padding included as the fill value: it depends neither on the codec nor on the blocks in
//! which the object was moved. A server makes it from the blocks in its buffers:
//!
//! ```text
//! object   | block 0 | block 1 | padding that nobody writes | block 3 |
//! sum      combine(crc 0, crc 1, crc of fill values, crc 3)
//! ```
//!
//! An object is not compared if a read moves only some of its blocks. Memory: three numbers for
//! each block of the objects under way, two for each finished object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crc32c::{crc32c, crc32c_combine};
use penstock_engine::{Bounds, Digest, Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, exact};
use penstock_machines::Medium;

use super::bounds::of_elements;
use crate::dtype::NumberType;
use crate::fs::files::{damaged, lock, read_if_there};

/// The sums of an array, one an object; `None` for an object that was never written.
pub type Sums = Vec<Option<u32>>;

/// The bytes of a sum in a file.
pub(crate) const SUM_BYTES: u64 = 8;
/// The number that is added to a known sum in a file.
const IS_THERE: u64 = 1 << 32;
/// The number of an object that was not written. An object without any sum has 0.
const IS_ABSENT: u64 = 2 << 32;

/// Encodes sums for a file: 8 bytes each, little-endian, with 2^32 added to known sums.
pub(crate) fn encode(sums: &[Option<u32>]) -> Vec<u8> {
    let number = |sum: &Option<u32>| sum.map_or(IS_ABSENT, |sum| IS_THERE + u64::from(sum));
    sums.iter()
        .flat_map(|sum| number(sum).to_le_bytes())
        .collect()
}

/// Decodes the sums in these bytes of the file at `path`.
///
/// # Errors
/// [`Kind::Damaged`] when the bytes are no sums.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Sums> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let sum = |number: &[u8; 8]| match u64::from_le_bytes(*number) {
        0 | IS_ABSENT => Ok(None),
        number if number >> 32 == 1 => Ok(Some(exact::<u32>(number & u64::from(u32::MAX)))),
        _ => Err(damaged(path, "these are no checksums")),
    };
    match rest {
        [] => numbers.iter().map(sum).collect(),
        _ => Err(damaged(path, "a checksum is cut short")),
    }
}

/// Reads the sums of an array of `objects` objects from a file.
///
/// # Errors
/// [`Kind::Damaged`] when the sums are missing.
pub(crate) fn read(path: &Path, objects: u64) -> Result<Sums> {
    let bytes = read_if_there(path)?.ok_or_else(|| damaged(path, "the checksums are missing"))?;
    let known = decode(&bytes, path)?;
    if known.len() as u64 == objects {
        return Ok(known);
    }
    let cause = format!("{} checksums for {objects} chunks", known.len());
    Err(damaged(path, cause))
}

/// The blocks of an object whose sums are known.
#[derive(Default)]
pub(crate) struct Parts {
    /// The bytes and sum of each block, by offset.
    blocks: BTreeMap<u64, (u64, u32)>,
    elements: u64,
}

impl Parts {
    /// Adds the bytes of the object at `offset`, which hold `elements` elements.
    pub(crate) fn add(&mut self, offset: u64, data: &[u8], elements: u64) {
        let sum = (data.len() as u64, crc32c(data));
        if self.blocks.insert(offset, sum).is_none() {
            self.elements += elements;
        }
    }

    /// The sum of an object of `object_bytes` bytes: gaps between the blocks are filled with
    /// `element`.
    pub(crate) fn sum(&self, object_bytes: u64, element: &[u8]) -> u32 {
        let (mut sum, mut end) = (0, 0);
        let gap = |sum, from: u64, to: u64| {
            crc32c_combine(sum, repeated(element, to - from), exact::<usize>(to - from))
        };
        for (&offset, &(bytes, crc)) in &self.blocks {
            sum = crc32c_combine(gap(sum, end, offset), crc, exact::<usize>(bytes));
            end = offset + bytes;
        }
        gap(sum, end, object_bytes)
    }
}

/// The sum of `bytes` bytes that repeat an element (zeros if the element has no bytes), in time in
/// proportion to the number's digits.
fn repeated(element: &[u8], bytes: u64) -> u32 {
    let element = if element.is_empty() { &[0] } else { element };
    let (mut sum, mut power, mut length) = (0, crc32c(element), element.len());
    let mut left = bytes / element.len() as u64;
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

/// Makes the digests of the objects that are written: their sums, and their bounds if it knows
/// the type of the elements.
pub(crate) struct DigestMedium {
    medium: Arc<dyn Medium>,
    schema: DiskSchema,
    /// The element that fills an object where nothing is written.
    element: Vec<u8>,
    bounded: Option<NumberType>,
    objects: Mutex<BTreeMap<u64, (Parts, Bounds)>>,
}

impl DigestMedium {
    pub(crate) fn new(
        medium: Arc<dyn Medium>,
        schema: &DiskSchema,
        element: Vec<u8>,
        bounded: Option<NumberType>,
    ) -> Self {
        let width = exact::<usize>(schema.width());
        Self {
            medium,
            schema: schema.clone(),
            element: match element.is_empty() {
                true => vec![0; width],
                false => element,
            },
            bounded,
            objects: Mutex::default(),
        }
    }

    /// The bounds of the elements in these bytes; of none if nobody asks for bounds.
    fn bounds(&self, data: &[u8]) -> Bounds {
        let bounds = self.bounded.and_then(|number| of_elements(number, data));
        bounds.unwrap_or(Bounds::NONE)
    }

    fn digest(&self, object: u64, (parts, written): &(Parts, Bounds)) -> Digest {
        let is_whole = parts.elements >= self.schema.object_region(object).elements();
        let bounds = match is_whole {
            true => *written,
            false => written.and(self.bounds(&self.element)),
        };
        Digest {
            object,
            crc32c: parts.sum(self.schema.object_bytes(object), &self.element),
            bounds: self.bounded.map(|_| bounds),
        }
    }
}

impl Medium for DigestMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.medium.write(block, data)?;
        let bounds = self.bounds(data);
        let mut objects = lock(&self.objects);
        let none = || (Parts::default(), Bounds::NONE);
        let (parts, written) = objects.entry(block.object).or_insert_with(none);
        parts.add(block.offset, data, block.region.elements());
        *written = written.and(bounds);
        Ok(())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.medium.read(block, data)
    }

    /// A part that is written by itself could not be summed.
    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, _: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(whole_only("writing"))
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.medium.read_part(block, offset, data)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.medium.finish(sync)
    }

    fn digests(&self) -> Vec<Digest> {
        let objects = lock(&self.objects);
        let digests = objects.iter();
        digests
            .map(|(&object, written)| self.digest(object, written))
            .collect()
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}

/// The error of a medium that moves whole blocks only.
fn whole_only(doing: &str) -> Error {
    let cause = "blocks with checksums are moved whole";
    Error::new(Kind::Unsupported, doing, cause)
}

/// The file of a block, to be named in an error.
type Place = Box<dyn Fn(&Block) -> Option<PathBuf> + Send + Sync>;

/// Compares the objects that are read with their known sums.
pub(crate) struct CheckMedium {
    medium: Arc<dyn Medium>,
    schema: DiskSchema,
    /// What an object's padding holds that lies in no block.
    element: Vec<u8>,
    known: Sums,
    place: Place,
    /// The blocks that have been read of incomplete objects.
    objects: Mutex<BTreeMap<u64, Parts>>,
}

impl CheckMedium {
    /// Creates a medium that compares; `known` are the sums of all objects of `schema`.
    pub(crate) fn new(
        medium: Arc<dyn Medium>,
        schema: &DiskSchema,
        element: Vec<u8>,
        known: Sums,
        place: Place,
    ) -> Self {
        Self {
            medium,
            schema: schema.clone(),
            element,
            known,
            place,
            objects: Mutex::default(),
        }
    }

    /// Adds a block, and compares the sum of its object once all blocks are read.
    fn check(&self, block: &Block, data: &[u8]) -> Result<()> {
        let Some(known) = self
            .known
            .get(exact::<usize>(block.object))
            .copied()
            .flatten()
        else {
            return Ok(());
        };
        let mut objects = lock(&self.objects);
        let parts = objects.entry(block.object).or_default();
        parts.add(block.offset, data, block.region.elements());
        if parts.elements < self.schema.object_region(block.object).elements() {
            return Ok(());
        }
        let sum = parts.sum(self.schema.object_bytes(block.object), &self.element);
        objects.remove(&block.object);
        if sum == known {
            return Ok(());
        }
        let cause = format!("its checksum is {sum:08x}, and {known:08x} when it was written");
        let error = Error::new(Kind::Damaged, "reading", cause);
        Err(match (self.place)(block) {
            Some(path) => error.at(&path),
            None => error,
        })
    }
}

impl Medium for CheckMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.medium.write(block, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.medium.read(block, data)?;
        self.check(block, data)
    }

    /// A part that is read by itself could not be compared.
    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        self.medium.write_part(block, offset, data)
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(whole_only("reading"))
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.medium.finish(sync)
    }

    fn digests(&self) -> Vec<Digest> {
        self.medium.digests()
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_sum_of_what_fills_them() {
        let schema = DiskSchema::chunked(&[9], 2, &[9]).unwrap();
        let schema = schema.split(penstock_layout::Split::Contiguous(6)).unwrap();
        let blocks: Vec<Block> = schema.object_blocks(0).collect();
        for element in [&[][..], &[0, 0], &[7, 9]] {
            for written in 0..8 {
                let mut all: Vec<u8> = Vec::new();
                let mut parts = Parts::default();
                for (nth, block) in blocks.iter().enumerate() {
                    let mut data = vec![nth as u8 + 1; block.bytes as usize];
                    match written >> nth & 1 {
                        1 => parts.add(block.offset, &data, 0),
                        _ => penstock_machines::memory::buffer::fill(&mut data, element),
                    }
                    all.extend(data);
                }
                assert_eq!(parts.sum(18, element), crc32c(&all));
            }
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let sums = vec![Some(0), None, Some(u32::MAX), Some(7)];
        let path = Path::new("sums");
        assert_eq!(decode(&encode(&sums), path).unwrap(), sums);
        assert_eq!(decode(&[0; 8], path).unwrap(), [None]);
        for bytes in [&[1; 8][..], &[0; 9], &[1, 0, 0, 0, 2, 0, 0, 0]] {
            assert_eq!(decode(bytes, path).unwrap_err().kind, Kind::Damaged);
        }
    }
}
