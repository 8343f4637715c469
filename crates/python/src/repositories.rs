//! Repositories of Icechunk, which `penstock._icechunk` opens.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use penstock_bucket::draft::{Repositories, State};
use penstock_engine::Result;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::error_of;

/// The repositories of the module.
pub struct Lent;

impl Lent {
    /// Calls a function of the module.
    fn call<T>(
        doing: &str,
        call: impl for<'py> FnOnce(Bound<'py, PyModule>) -> PyResult<T>,
    ) -> Result<T> {
        Python::attach(|py| {
            let module = py.import(intern!(py, "penstock._icechunk"));
            module.and_then(call).map_err(|e| error_of(py, &e, doing))
        })
    }
}

impl Repositories for Lent {
    fn state(&self, name: &str) -> Result<Arc<dyn State>> {
        Self::call("opening a repository", |module| {
            PyState::of(&module.call_method1("state", (name,))?)
        })
    }

    fn fork(&self, bytes: &[u8]) -> Result<Arc<dyn State>> {
        Self::call("opening a repository", |module| {
            let bytes = PyBytes::new(module.py(), bytes);
            PyState::of(&module.call_method1("fork", (bytes,))?)
        })
    }

    fn begin(&self, name: &str, is_aside: bool) -> Result<String> {
        Self::call("writing to a repository", |module| {
            let draft = module.call_method1("begin", (name, is_aside))?;
            draft.extract()
        })
    }

    fn merge(&self, draft: &str, changes: &[Vec<u8>]) -> Result<()> {
        Self::call("merging what servers have written", |module| {
            let changes = changes.iter();
            let changes: Vec<_> = changes.map(|one| PyBytes::new(module.py(), one)).collect();
            module.call_method1("merge", (draft, changes)).map(drop)
        })
    }

    fn commit(&self, draft: &str, what: &str) -> Result<bool> {
        Self::call("committing", |module| {
            module.call_method1("commit", (draft, what))?.extract()
        })
    }

    fn discard(&self, draft: &str) {
        let discard =
            |module: Bound<'_, PyModule>| module.call_method1("discard", (draft,)).map(drop);
        let _ = Self::call("giving up a draft", discard); // nobody sees it in any case
    }
}

/// A state of a repository, as the module has it.
struct PyState {
    state: Py<PyAny>,
    id: String,
    is_shared: bool,
}

impl fmt::Debug for PyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a state of a repository")
    }
}

impl PyState {
    fn of(state: &Bound<'_, PyAny>) -> PyResult<Arc<dyn State>> {
        Ok(Arc::new(Self {
            id: state.getattr("id")?.extract()?,
            is_shared: state.getattr("is_shared")?.extract()?,
            state: state.clone().unbind(),
        }))
    }

    fn call<T>(
        &self,
        doing: &str,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        Python::attach(|py| call(self.state.bind(py)).map_err(|e| error_of(py, &e, doing)))
    }
}

fn bytes_of(answer: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    Ok(Bytes::copy_from_slice(answer.cast::<PyBytes>()?.as_bytes()))
}

impl State for PyState {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let range = range.map(|range| (range.start, range.end));
        self.call("reading", |state| {
            let answer = state.call_method1("get", (key, range))?;
            match answer.is_none() {
                true => Ok(None),
                false => bytes_of(&answer).map(Some),
            }
        })
    }

    fn length(&self, key: &str) -> Result<Option<u64>> {
        let call = |state: &Bound<'_, PyAny>| state.call_method1("length", (key,))?.extract();
        self.call("looking at", call)
    }

    fn put(&self, key: &str, data: Bytes) -> Result<()> {
        self.call("writing", |state| {
            let data = PyBytes::new(state.py(), &data);
            state.call_method1("put", (key, data)).map(drop)
        })
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.call("removing", |state| {
            state.call_method1("remove", (key,)).map(drop)
        })
    }

    fn remove_below(&self, key: &str) -> Result<()> {
        let call = |state: &Bound<'_, PyAny>| state.call_method1("remove_below", (key,)).map(drop);
        self.call("removing", call)
    }

    fn keys_below(&self, key: &str) -> Result<Vec<String>> {
        let call = |state: &Bound<'_, PyAny>| state.call_method1("keys_below", (key,))?.extract();
        self.call("listing", call)
    }

    fn directories(&self, key: &str) -> Result<Vec<String>> {
        let call = |state: &Bound<'_, PyAny>| state.call_method1("directories", (key,))?.extract();
        self.call("listing", call)
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        self.call("lending", |state| {
            Ok(bytes_of(&state.call_method0("copied")?)?.to_vec())
        })
    }
}
