//! A write that goes on where a killed process has stopped.
//!
//! Beside what is being written, the temporary holds what is needed to know it again and to go on:
//!
//! ```text
//! .run.zarr~u.penstock/
//!   write.json     where servers write, and what is to become of it
//!   journal.json   what the writer says of it: the same words mean the same write
//!   done           a line for each slab that is on disk
//!   between        a store of its own, if the writer wants one
//! ```

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

use super::file::{self, read_if_there};
use super::pending::{Pending, make_directory, node, write_json};
use super::place::resolve;
use super::temporary::Temporary;
use super::{Files, Target, ZarrFiles, change, zarr};
use crate::schema::ArraySchema;

/// Files of a temporary: what is being written, the journal by which it is known again, what is
/// done.
const WRITE: &str = "write.json";
const JOURNAL: &str = "journal.json";
const DONE: &str = "done";

/// A write that may be that of a former process, and what that has done of it.
pub struct ResumedWrite {
    /// The write.
    pub pending: Pending,
    /// Passes and slabs that are done.
    pub done: Vec<(usize, u64)>,
}

impl Pending {
    /// As [`Pending::create`], but goes on where a killed process has stopped that wrote the same,
    /// as the journal says. Dropped without [`Pending::commit`], it leaves everything for the next
    /// attempt, unless nothing is done yet.
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn create_or_resume(path: &Path, schema: &ArraySchema, journal: &str) -> Result<ResumedWrite> {
        let path = resolve(path)?;
        let is_same = |directory: &Path| {
            let there = read_if_there(&directory.join(JOURNAL));
            matches!(there, Ok(Some(there)) if there == journal.as_bytes())
        };
        if let Some(temporary) = Temporary::adopt(&path, &is_same)? {
            let place = temporary.beside(WRITE);
            let text = read_if_there(&place)?.unwrap_or_default();
            let (target, install) = serde_json::from_slice(&text)
                .map_err(|e| file::damaged(&place, format!("no description of a write: {e}")))?;
            let done = read_if_there(&temporary.beside(DONE))?.unwrap_or_default();
            let pending = Self::new(temporary, target, install);
            let done = done_slabs(&String::from_utf8_lossy(&done));
            return Ok(ResumedWrite { pending, done });
        }
        let mut pending = Self::create(&path, schema)?;
        if let Files::Zarr(files) = &mut pending.target.files {
            files.is_new = false; // for who resumes it is not
        }
        let text = serde_json::to_vec(&(&pending.target, &pending.install))
            .map_err(|e| Error::new(Kind::Io, "describing a write", e))?;
        pending.sync_made()?;
        file::write_synced(&pending.temporary.beside(WRITE), &text)?;
        file::write_synced(&pending.temporary.beside(DONE), &[])?;
        // Last: whoever finds the journal finds all else.
        file::write_synced(&pending.temporary.beside(JOURNAL), journal.as_bytes())?;
        pending.temporary.sync()?;
        let done = Vec::new();
        Ok(ResumedWrite { pending, done })
    }

    /// Notes that a slab is done, after every server has synced it. From the first on, what there
    /// is stays for another attempt.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn note_done(&mut self, pass: usize, slab: u64) -> Result<()> {
        self.temporary.keep();
        let place = self.temporary.beside(DONE);
        let failed = |e: std::io::Error| Error::io(&e, "noting what is done in", &place);
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = change::create(&options, &place).map_err(failed)?;
        let line = format!("{pass} {slab}\n");
        let end = file::length(&file, &place)?;
        change::write_all_at(&file, line.as_bytes(), end, &place).map_err(failed)?;
        change::sync(&file, &place).map_err(failed)
    }

    /// A place for something else beside what is written.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.temporary.beside(name)
    }

    /// A Zarr array beside what is written, under its name; it goes with the temporary. It may be
    /// there already.
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn store_beside(&self, schema: &ArraySchema) -> Result<Target> {
        let directory = self.temporary.beside(&schema.name);
        let metadata = zarr::array_json(schema)?;
        let file = directory.join("zarr.json");
        if !file.exists() {
            if !directory.exists() {
                make_directory(&directory)?;
            }
            write_json(&file, &metadata)?;
            file::sync_paths(&node(&directory))?;
        }
        let form = zarr::Metadata::parse(metadata, &file)?.chunk_form();
        Ok(Target::of(Files::Zarr(ZarrFiles::new(directory, form))))
    }
}

/// The slabs that a journal says are done. A line that was cut short says nothing.
fn done_slabs(text: &str) -> Vec<(usize, u64)> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let line = |line: &str| {
        let (pass, slab) = line.split_once(' ')?;
        Some((pass.parse().ok()?, slab.parse().ok()?))
    };
    whole.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_short_says_nothing() {
        assert_eq!(done_slabs("0 1\n1 20\n1 2"), [(0, 1), (1, 20)]);
        assert_eq!(done_slabs("0 1"), []);
        assert_eq!(done_slabs("x\n0 1 2\n3 4\n"), [(3, 4)]);
    }
}
