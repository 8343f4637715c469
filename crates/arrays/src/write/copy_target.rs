//! What a copy writes: one array, or a tree of groups and arrays. It goes on where a killed process
//! has stopped.
//!
//! Beside what is being written, the temporary holds what is needed to know it again and to go on:
//!
//! ```text
//! .run.zarr~.penstock/
//!   data           what will take the target's place
//!   journal.json   what the writer says of it: the same words mean the same copy
//!   done           a line for each slab that is on disk
//!   between-0      a store of its own for array 0, if its copy needs one
//! ```

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Result};
use serde_json::Value;

use super::checks::{check_node, resolve};
use super::pending::{Keys, chunks_in, file_at, in_group, lay_out, parts_at};
use super::place::{Place, SIDECAR};
use crate::formats::Target;
use crate::formats::zarr::{self, consolidated};
use crate::fs::files::{self, make_directory, read_if_there};
use crate::fs::ops;
use crate::fs::temporary::Temporary;
use crate::schema::{ArraySchema, Storage, part_mesh};

/// Files of a temporary: the journal by which it is known again, what is done.
const JOURNAL: &str = "journal.json";
const DONE: &str = "done";

/// What is to be written, and where.
pub(crate) enum Goal<'a> {
    /// An array: in the Zarr group at the path, or a file, or parts there.
    Array(&'a ArraySchema),
    /// A Zarr group or array at the path itself, with all of its nodes, groups before what is in
    /// them.
    Tree(&'a [TreeNode]),
}

/// A node of a tree that is written.
pub(crate) struct TreeNode {
    /// Its path in the tree; empty for the tree's root.
    pub(crate) path: String,
    /// Its metadata.
    pub(crate) json: Value,
    /// Of an array that servers write: its schema.
    pub(crate) schema: Option<ArraySchema>,
    /// Of an array whose chunks stay as they are: the directory in which those are.
    pub(crate) chunks_in: Option<PathBuf>,
}

/// A slab that is done: of which array, in which pass, and its number.
pub(crate) type Slab = (usize, usize, u64);

/// A copy's target, being written. Dropped without [`CopyTarget::commit`], it leaves everything for
/// the next attempt, unless nothing is done yet.
pub(crate) struct CopyTarget {
    temporary: Temporary,
    place: Place,
    /// What servers write to, one an array.
    targets: Vec<Target>,
    done: Vec<Slab>,
}

impl CopyTarget {
    /// Makes everything but the elements under a temporary name, or finds what a killed process has
    /// made of the same, as the journal says.
    ///
    /// # Errors
    /// As [`super::Pending::create`].
    pub(crate) fn create_or_resume(path: &Path, goal: &Goal<'_>, journal: &str) -> Result<Self> {
        let path = resolve(path)?;
        let place = match goal {
            Goal::Tree(_) => {
                check_node(&path)?;
                Place::Directory { path, base: None }
            }
            Goal::Array(schema) => match &schema.disk {
                Storage::Natural | Storage::Chunks { .. } => in_group(path, &schema.name)?,
                Storage::RowMajor { format } => file_at(path, *format)?,
                Storage::Parts(dists, mesh) => {
                    parts_at(path, schema, &part_mesh(dists, mesh), true)?
                }
            },
        };
        let is_same = |directory: &Path| {
            let there = read_if_there(&directory.join(JOURNAL));
            matches!(there, Ok(Some(there)) if there == journal.as_bytes())
        };
        let (beside, _) = place.beside();
        if let Some(temporary) = Temporary::adopt(&beside, &is_same)? {
            let done = read_if_there(&temporary.beside(DONE))?.unwrap_or_default();
            return Ok(Self {
                targets: targets_in(&temporary, goal, true)?,
                done: done_slabs(&String::from_utf8_lossy(&done)),
                temporary,
                place,
            });
        }
        let temporary = place.temporary()?;
        let targets = targets_in(&temporary, goal, false)?;
        sync_tree(&temporary.data())?;
        let sidecar = temporary.beside(SIDECAR);
        if sidecar.exists() {
            files::sync_path(&sidecar)?;
        }
        files::write_synced(&temporary.beside(DONE), &[])?;
        // Last: whoever finds the journal finds all else.
        files::write_synced(&temporary.beside(JOURNAL), journal.as_bytes())?;
        temporary.sync()?;
        Ok(Self {
            temporary,
            place,
            targets,
            done: Vec::new(),
        })
    }

    /// What servers write to, one an array of those that they write.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Slabs that a former attempt has done.
    pub(crate) fn done(&self) -> &[Slab] {
        &self.done
    }

    /// Notes that a slab is done, after every server has synced it. From the first on, what there
    /// is stays for another attempt.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn note_done(&mut self, (array, pass, slab): Slab) -> Result<()> {
        self.temporary.keep();
        let place = self.temporary.beside(DONE);
        let failed = |e: std::io::Error| Error::io(&e, "noting what is done in", &place);
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = ops::create(&options, &place).map_err(failed)?;
        let line = format!("{array} {pass} {slab}\n");
        let end = files::length(&file, &place)?;
        ops::write_all_at(&file, line.as_bytes(), end, &place).map_err(failed)?;
        ops::sync(&file, &place).map_err(failed)
    }

    /// A Zarr array beside what is written, under its name; it goes with the temporary. It may be
    /// there already. Gives its directory, too.
    ///
    /// # Errors
    /// As [`CopyTarget::create_or_resume`].
    pub(crate) fn store_beside(&self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
        let directory = self.temporary.beside(&schema.name);
        let metadata = zarr::array_json(schema)?;
        let file = directory.join("zarr.json");
        if !file.exists() {
            if !directory.exists() {
                make_directory(&directory)?;
            }
            files::write_json(&file, &metadata)?;
            files::sync_paths(&[file, directory.clone()])?;
        }
        let form = chunks_in(directory.clone(), schema, &metadata, None)?;
        Ok((directory, Target::new(form)))
    }

    /// Removes a store beside what is written, which nobody needs any more.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn remove_beside(&self, name: &str) -> Result<()> {
        files::remove_if_there(&self.temporary.beside(name))
    }

    /// Puts all of it in its place, after every server has synced.
    ///
    /// # Errors
    /// What the operating system says, or when something else has come to stand there.
    pub(crate) fn commit(mut self) -> Result<()> {
        let made = self.place.make_rest(&self.temporary)?;
        files::sync_paths(&made)?;
        self.place.install(&self.temporary)?;
        // It is in its place: that old data could not be removed is no failure of the copy.
        let _ = self.temporary.remove();
        Ok(())
    }
}

fn directory_in(data: &Path, path: &str) -> PathBuf {
    match path {
        "" => data.to_path_buf(),
        path => data.join(path),
    }
}

/// Makes all of a goal in its temporary, unless it is there, and says where servers find the
/// arrays.
fn targets_in(temporary: &Temporary, goal: &Goal<'_>, is_there: bool) -> Result<Vec<Target>> {
    let nodes = match goal {
        Goal::Array(schema) => {
            let form = lay_out(temporary, schema, Keys::Nested, None, is_there)?;
            return Ok(vec![Target::new(form)]);
        }
        Goal::Tree(nodes) => nodes,
    };
    let data = temporary.data();
    let mut targets = Vec::new();
    for node in nodes.iter() {
        let directory = directory_in(&data, &node.path);
        if !is_there {
            make_directory(&directory)?;
            files::write_json(&directory.join("zarr.json"), &node.json)?;
            if let Some(chunks) = &node.chunks_in {
                clone_chunks(chunks, &directory)?;
            }
        }
        if let Some(schema) = &node.schema {
            let form = chunks_in(directory, schema, &node.json, None)?;
            targets.push(Target::new(form));
        }
    }
    if !is_there {
        consolidate(&data)?;
    }
    Ok(targets)
}

/// Copies the chunk files of an array as they are.
fn clone_chunks(from: &Path, to: &Path) -> Result<()> {
    for entry in files::entries(from)? {
        let name = entry.file_name();
        let (old, new) = (entry.path(), to.join(&name));
        if name.as_encoded_bytes().starts_with(b".") || name == "zarr.json" {
            continue; // metadata, and what programs keep for themselves
        }
        if old.is_dir() {
            make_directory(&new)?;
            clone_chunks(&old, &new)?;
        } else {
            files::clone(&old, &new)?;
        }
    }
    Ok(())
}

/// Gives the root of a tree, if it is a group, the metadata of all its nodes.
fn consolidate(root: &Path) -> Result<()> {
    let node = zarr::Node::read(root)?;
    let Some(node) = node.filter(|node| node.kind() == zarr::Kind::Group) else {
        return Ok(());
    };
    let whole = consolidated::with(node.json().clone(), consolidated::scan_all(root)?);
    let file = root.join("zarr.json");
    files::remove_if_there(&file)?;
    files::write_json(&file, &whole)
}

/// Syncs what has been made, files and directories.
fn sync_tree(path: &Path) -> Result<()> {
    let mut all = vec![path.to_path_buf()];
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            all.extend(files::entries(&path)?.iter().map(std::fs::DirEntry::path));
        }
    }
    files::sync_paths(&all)
}

/// The slabs that a journal says are done. A line that was cut short says nothing.
fn done_slabs(text: &str) -> Vec<Slab> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let line = |line: &str| {
        let mut numbers = line.split(' ');
        let slab = (
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        );
        numbers.next().is_none().then_some(slab)
    };
    whole.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_short_says_nothing() {
        assert_eq!(done_slabs("0 0 1\n2 1 20\n0 1 2"), [(0, 0, 1), (2, 1, 20)]);
        assert_eq!(done_slabs("0 0 1"), []);
        assert_eq!(done_slabs("x\n0 1\n0 1 2 3\n3 4 5\n"), [(3, 4, 5)]);
    }
}
