//! Reduces arrays: the call of every rank. The director is that of `sifted`.

use std::path::Path;
use std::sync::Arc;

use penstock_engine::{Operation, Result};

use super::array::ArrayCall;
use super::ask::Ask;
use super::errand::Direction;
use super::session::Session;
use super::settings::Report;
use super::sifted::SiftErrand;
use crate::ElementType;
use crate::sieve::{ReduceCatch, Reduction, Work};

/// The result of a reduction, the same on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct ReducedArray {
    /// The shape: of the dimensions that stay, and of a histogram's bins.
    pub shape: Vec<u64>,
    /// The type.
    pub element: ElementType,
    /// The bytes of the elements, row-major, in the machine's byte order.
    pub values: Vec<u8>,
    /// What servers moved: `bytes` are those that they sent to all ranks.
    pub report: Report,
}

impl Session {
    /// Reduces an array at `path` over the dimensions that do not stay. Servers fold the elements,
    /// and all ranks get the result. Disk-directed. The memory schema of the array does not matter.
    ///
    /// The result is the same, to the last bit, for every number of ranks and servers and for every
    /// disk schema: sums of floats are exact until they are rounded, once.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`]; [`penstock_engine::Kind::Schema`] for a region,
    /// dimensions or a field that are not of the array, for edges of bins that do not ascend, and
    /// for the least or greatest of no elements; [`penstock_engine::Kind::Unsupported`] for the
    /// order of complex numbers.
    ///
    /// # Collective
    /// Over all clients.
    pub fn reduce(
        &self,
        path: &Path,
        array: &ArrayCall,
        reduction: Reduction,
    ) -> Result<ReducedArray> {
        self.flush_changed()?;
        if let Err(error) = self.check_outstanding(Operation::Read, path, array) {
            return Err(self.refuse(error));
        }
        let ask = Ask::Reduce {
            path: path.into(),
            array: array.ask(),
            reduction: reduction.clone(),
        };
        let (shape, element) = (&array.schema.shape, &array.schema.element);
        let catch = ReduceCatch::new(&reduction, (shape, element), self.servers());
        let catch = Arc::new(catch.map_err(|error| self.refuse(error))?);
        let work = Work::Reduce(reduction.clone());
        let errand = SiftErrand::new(path.to_path_buf(), array.clone(), work);
        let report = self.sift(ask, array, Direction::of(errand), catch.clone())?;
        Ok(ReducedArray {
            shape: reduction.result_shape(),
            element: catch.element(),
            values: catch.result(),
            report,
        })
    }
}
