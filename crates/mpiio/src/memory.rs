//! The memory of an access: instances of a datatype, one behind the other.

use std::ops::Range;
use std::sync::Arc;

use penstock_layout::{List, exact};
use penstock_machines::ClientMemory;

use crate::failure::{Class, Result, wrong};
use crate::flat::Type;
use crate::tree::walk_turns;
use crate::view::{list_of, series_of};

/// Memory is where the data of an access are, or go.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The address that the datatype's places count from; null for `MPI_BOTTOM`.
    address: usize,
    datatype: Arc<Type>,
    count: u64,
    bytes: u64,
}

impl Memory {
    /// The memory of `count` instances.
    ///
    /// # Errors
    /// [`Class::Count`] when the count is below 0 or the data have more bytes than can be counted;
    /// [`Class::Buffer`] when there is no memory.
    pub fn new(address: usize, datatype: Arc<Type>, count: i64) -> Result<Self> {
        let bytes = u64::try_from(count).ok();
        let bytes = bytes.and_then(|count| count.checked_mul(datatype.size()));
        let bytes = bytes
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| {
                wrong(
                    Class::Count,
                    format_args!("an access to {count} instances of a datatype"),
                )
            })?;
        if address == 0 && bytes > 0 && datatype.tree.bounds().start == 0 {
            return Err(wrong(Class::Buffer, "an access to no memory"));
        }
        Ok(Self {
            address,
            datatype,
            count: count as u64,
            bytes,
        })
    }

    /// Packed bytes at an address.
    pub fn packed(address: usize, bytes: u64) -> Self {
        Self {
            address,
            datatype: Arc::new(Type::byte()),
            count: bytes,
            bytes,
        }
    }

    /// The bytes of data.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The instances of the datatype.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The datatype of an instance.
    pub fn datatype(&self) -> &Type {
        &self.datatype
    }

    /// The address at a place.
    fn at(&self, place: i64) -> *mut u8 {
        self.address.wrapping_add_signed(exact::<isize>(place)) as *mut u8
    }

    /// The address of instance `nth`, from which its places count.
    pub fn instance(&self, nth: u64) -> *mut u8 {
        let distance = self.datatype.extent.wrapping_mul(nth as i64);
        self.at(distance)
    }

    /// The address of a part of the data, if it is one run.
    pub fn run(&self, data: &Range<u64>) -> Option<*mut u8> {
        let is_run = self.datatype.is_dense() || self.count == 1 && self.datatype.tree.is_run();
        let first = self.datatype.tree.bounds().start + data.start as i64;
        is_run.then(|| self.at(first))
    }

    /// About how many series a part of the data is.
    pub fn series(&self, data: &Range<u64>) -> u64 {
        series_of(&self.datatype, data.end - data.start)
    }

    /// The lowest place of all data, and one past the highest.
    fn bounds(&self) -> Range<i64> {
        let (one, last) = (
            self.datatype.tree.bounds(),
            self.datatype.extent * self.count.saturating_sub(1) as i64,
        );
        one.start + last.min(0)..one.end + last.max(0)
    }

    /// The places of a part of the data, counted from the lowest place of all on.
    ///
    /// # Errors
    /// When a place lies beyond all numbers.
    pub fn list(&self, data: Range<u64>) -> Result<List> {
        list_of(self.bounds().start, |sink| {
            walk_turns(&self.datatype.tree, (0, self.datatype.extent), data, sink);
        })
    }

    /// The address of the lowest place.
    pub fn base(&self) -> *mut u8 {
        self.at(self.bounds().start)
    }

    /// The bytes from the lowest place to the highest.
    pub fn span(&self) -> u64 {
        let bounds = self.bounds();
        exact::<u64>(bounds.end - bounds.start)
    }

    /// The memory as servers see it, from the lowest place on.
    pub fn exposed(&self) -> ClientMemory {
        ClientMemory {
            base: self.base(),
            extents: vec![self.span()],
            strides: vec![1],
            width: 1,
        }
    }
}
