//! The target of a copy: one array, or a tree of groups and arrays. A copy goes on where a killed
//! process has stopped.
//!
//! Beside the data, the temporary holds the files that another attempt needs:
//!
//! ```text
//! .run.zarr~.penstock/
//!   data           the file or directory that will replace the target
//!   journal.json   the description of the copy: the same words mean the same copy
//!   done           a line for each slab that is on disk
//!   between-0      a store of its own for array 0, if its copy needs one
//! ```

use std::path::{Path, PathBuf};

use penstock_bucket::{Draft, is_url};
use penstock_engine::{Error, Result};

use super::checks::{check_node, resolve};
use super::copy_drafted::DraftedTarget;
use super::copy_objects::ObjectsTarget;
use super::dataset::FilePlace;
use super::goal::Goal;
use super::pending::{Keys, chunks_in, lay_out, place_of};
use super::place::{Place, SIDECAR, Syncing};
use crate::formats::Target;
use crate::formats::zarr::{self, consolidated};
use crate::fs::files::{self, make_directory, read_if_there};
use crate::fs::ops;
use crate::fs::temporary::Temporary;
use crate::schema::ArraySchema;

/// The files of a temporary: the journal that describes the copy, and the list of finished slabs.
const JOURNAL: &str = "journal.json";
const DONE: &str = "done";

/// A slab of a copy: the number of its array, its pass, and its own number.
pub(crate) type Slab = (usize, usize, u64);

/// The target of a copy under way.
pub(crate) enum CopyTarget {
    Files(Box<FilesTarget>),
    Objects(Box<ObjectsTarget>),
    Drafted(Box<DraftedTarget>),
}

impl CopyTarget {
    /// Makes everything but the elements, where nobody sees it, or adopts what a killed process
    /// with the same journal has left.
    ///
    /// # Errors
    /// As [`super::Pending::create`].
    pub(crate) fn create_or_resume(path: &Path, goal: &Goal<'_>, journal: &str) -> Result<Self> {
        if !is_url(path) {
            let target = FilesTarget::create_or_resume(path, goal, journal)?;
            return Ok(Self::Files(Box::new(target)));
        }
        let goal = goal.in_zarr(path)?;
        Ok(match Draft::begin(path)? {
            Some((draft, path)) => Self::Drafted(Box::new(DraftedTarget::new(draft, &path, goal)?)),
            None => Self::Objects(Box::new(ObjectsTarget::new(path, goal)?)),
        })
    }

    /// The targets of servers, one for each array that they write.
    pub(crate) fn targets(&self) -> &[Target] {
        match self {
            Self::Files(target) => &target.targets,
            Self::Objects(target) => &target.targets,
            Self::Drafted(target) => &target.targets,
        }
    }

    /// The slabs that a former attempt has done.
    pub(crate) fn done(&self) -> &[Slab] {
        match self {
            Self::Files(target) => &target.done,
            Self::Objects(_) | Self::Drafted(_) => &[],
        }
    }

    /// Notes that a slab is done, after every server has synced it.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn note_done(&mut self, slab: Slab) -> Result<()> {
        match self {
            Self::Files(target) => target.note_done(slab),
            Self::Objects(_) | Self::Drafted(_) => Ok(()),
        }
    }

    /// Makes the Zarr array `schema` beside the data, unless it is there already, and gives its
    /// directory and target. It is removed with the temporary.
    ///
    /// # Errors
    /// As [`CopyTarget::create_or_resume`].
    pub(crate) fn store_beside(&mut self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
        match self {
            Self::Files(target) => target.store_beside(schema),
            Self::Objects(target) => target.store_beside(schema),
            Self::Drafted(target) => target.store_beside(schema),
        }
    }

    /// Removes a store beside the data that is not needed any more.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn remove_beside(&self, name: &str) -> Result<()> {
        match self {
            Self::Files(target) => files::remove_if_there(&target.temporary.beside(name)),
            Self::Objects(target) => target.remove_beside(name),
            Self::Drafted(_) => Ok(()), // it goes with its draft
        }
    }

    /// Merges what servers have put into forks of a repository, in a pass to the target, or to the
    /// store in between.
    ///
    /// # Errors
    /// The error of the repository.
    pub(crate) fn merge(&self, is_between: bool, changes: &[Vec<u8>]) -> Result<()> {
        match self {
            Self::Files(_) | Self::Objects(_) => Ok(()),
            Self::Drafted(target) => target.merge(is_between, changes),
        }
    }

    /// Puts the whole target in its place, after every server has synced. The commit of a
    /// repository says `words`.
    ///
    /// # Errors
    /// The error of the operating system, or of another file that has appeared at the path.
    pub(crate) fn commit(self, words: &str) -> Result<()> {
        match self {
            Self::Files(target) => target.commit(),
            Self::Objects(target) => target.commit(),
            Self::Drafted(target) => target.commit(words),
        }
    }
}

/// The target of a copy under way on a file system. Dropped without a commit, it leaves everything
/// for the next attempt, unless no slab is done yet.
pub(crate) struct FilesTarget {
    temporary: Temporary,
    place: Place,
    /// The targets of servers, one an array.
    targets: Vec<Target>,
    done: Vec<Slab>,
    /// Whether another attempt may go on here.
    may_go_on: bool,
}

impl FilesTarget {
    /// Makes everything but the elements under a temporary name, or adopts the temporary of a
    /// killed process that has the same journal.
    fn create_or_resume(path: &Path, goal: &Goal<'_>, journal: &str) -> Result<Self> {
        let place = match goal {
            Goal::Tree(_) => {
                let path = resolve(path)?;
                check_node(&path)?;
                Place::Directory { path, base: None }
            }
            Goal::Array(schema) => place_of(path, schema)?,
            Goal::File(goal) => Place::InFile(Box::new(FilePlace::of_copy(path, goal)?)),
        };
        // What is added to a file that is there is behind its end, and others may write there, too.
        let may_go_on = match &place {
            Place::InFile(place) => place.may_go_on(),
            _ => true,
        };
        let is_same = |directory: &Path| {
            let there = read_if_there(&directory.join(JOURNAL));
            matches!(there, Ok(Some(there)) if there == journal.as_bytes())
        };
        let (beside, _) = place.beside();
        if may_go_on && let Some(temporary) = Temporary::adopt(&beside, &is_same)? {
            let done = read_if_there(&temporary.beside(DONE))?.unwrap_or_default();
            return Ok(Self {
                targets: targets_in(&temporary, &place, goal, true)?,
                done: done_slabs(&String::from_utf8_lossy(&done)),
                may_go_on,
                temporary,
                place,
            });
        }
        let temporary = place.temporary()?;
        let targets = targets_in(&temporary, &place, goal, false)?;
        if !may_go_on {
            return Ok(Self {
                temporary,
                place,
                targets,
                done: Vec::new(),
                may_go_on,
            });
        }
        sync_tree(&temporary.data())?;
        let sidecar = temporary.beside(SIDECAR);
        if sidecar.exists() {
            files::sync_path(&sidecar)?;
        }
        files::write_synced(&temporary.beside(DONE), &[])?;
        // The journal is written last: once it exists, all else does.
        files::write_synced(&temporary.beside(JOURNAL), journal.as_bytes())?;
        temporary.sync()?;
        Ok(Self {
            temporary,
            place,
            targets,
            done: Vec::new(),
            may_go_on,
        })
    }

    /// Notes that a slab is done. From the first note on, the temporary stays for another attempt.
    fn note_done(&mut self, (array, pass, slab): Slab) -> Result<()> {
        if !self.may_go_on {
            return Ok(());
        }
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

    fn store_beside(&self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
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

    fn commit(mut self) -> Result<()> {
        let made = self.place.make_rest(&self.temporary)?;
        files::sync_paths(&made)?;
        self.place.install(&self.temporary, Syncing::Each)?;
        // The target is in its place: old data that remain are no failure of the copy.
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

/// Makes all of a goal in its temporary, unless `is_there`, and gives the targets of the arrays.
fn targets_in(
    temporary: &Temporary,
    place: &Place,
    goal: &Goal<'_>,
    is_there: bool,
) -> Result<Vec<Target>> {
    if let Place::InFile(place) = place {
        let forms = place.lay_out(temporary, is_there)?;
        return Ok(forms.into_iter().map(Target::new).collect());
    }
    let nodes = match goal {
        Goal::File(_) => return Ok(Vec::new()), // its place is in a file
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

/// Consolidates the metadata of all nodes in the root of a tree, if the root is a group.
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

/// Syncs all files and directories of a tree.
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

/// The slabs that are done according to the list. A line that was cut short does not count.
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
