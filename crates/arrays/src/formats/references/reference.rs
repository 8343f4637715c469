//! A reference, and the files that references name.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// What stands for the bytes under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reference {
    /// The bytes themselves.
    Inline(Vec<u8>),
    /// A whole file, by its number.
    File(u32),
    /// The bytes of a file from `at` on.
    Part { file: u32, at: u64, bytes: u64 },
}

impl Reference {
    /// The number of the file that it leads to.
    pub(super) fn file(&self) -> Option<u32> {
        match self {
            Self::Inline(_) => None,
            Self::File(file) | Self::Part { file, .. } => Some(*file),
        }
    }

    /// The same reference to another file, by its number.
    pub(super) fn in_file(self, file: u32) -> Self {
        match self {
            Self::Inline(_) => self,
            Self::File(_) => Self::File(file),
            Self::Part { at, bytes, .. } => Self::Part { file, at, bytes },
        }
    }
}

/// Files by their numbers, as references name them.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNames {
    pub(super) names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl FileNames {
    /// The files of these names, which are numbered already: no other is added.
    pub(super) fn of(names: Vec<String>) -> Self {
        Self {
            names,
            numbers: HashMap::new(),
        }
    }

    /// The number of a file.
    pub(super) fn number(&mut self, name: String) -> std::result::Result<u32, &'static str> {
        if let Some(number) = self.numbers.get(&name) {
            return Ok(*number);
        }
        let number =
            u32::try_from(self.names.len()).map_err(|_| "it names more than 2^32 files")?;
        self.numbers.insert(name.clone(), number);
        self.names.push(name);
        Ok(number)
    }
}
