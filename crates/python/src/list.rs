//! Lists of elements, as Python makes them.

use numpy::PyReadonlyArray1;
use penstock_arrays::calls::list::RankList;
use penstock_arrays::of_layout;
use penstock_engine::Result;
use penstock_layout::List;
use pyo3::prelude::*;

use crate::errors::raise;

/// A list of elements of an array or of a memory.
#[pyclass(frozen, name = "List", module = "penstock._core")]
pub struct PyList {
    pub list: List,
}

#[pymethods]
impl PyList {
    /// Makes the list of runs: `lengths[i]` elements from `offsets[i]` on.
    #[staticmethod]
    fn runs(
        py: Python<'_>,
        offsets: PyReadonlyArray1<'_, u64>,
        lengths: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Self> {
        let list = List::runs(&offsets.as_array().to_vec(), &lengths.as_array().to_vec());
        let list = list.map_err(|e| raise(py, &of_layout(e)))?;
        Ok(Self { list })
    }

    /// Makes the list of a run that is repeated in loops, each a count and a stride.
    #[staticmethod]
    fn strided(py: Python<'_>, start: u64, length: u64, loops: Vec<(u64, i64)>) -> PyResult<Self> {
        let list = List::strided(start, length, &loops);
        let list = list.map_err(|e| raise(py, &of_layout(e)))?;
        Ok(Self { list })
    }

    /// One past the highest element.
    fn extent(&self) -> u64 {
        self.list.bounds().unwrap_or_default().end
    }

    /// The number of elements.
    fn __len__(&self) -> usize {
        penstock_layout::exact(self.list.elements())
    }
}

/// A list and the places of its elements, if they were given.
#[derive(FromPyObject)]
pub struct ListArgument<'py>(PyRef<'py, PyList>, Option<PyRef<'py, PyList>>);

impl ListArgument<'_> {
    /// The list of a rank, for an array of this shape.
    pub fn for_shape(&self, shape: &[u64]) -> Result<RankList> {
        let places = self.1.as_ref().map(|places| &places.list);
        RankList::new(shape, &self.0.list, places)
    }
}
