//! Looking up, making, renaming and removing.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::PoisonError;

use fuser::{Errno, FileAttr, RenameFlags, Request};
use penstock_engine::{Error, Kind, Result};
use penstock_files::{
    Attributes, Details, FilePath, Identity, NewAttributes, ObjectId, ObjectKind, Replacement,
};

use crate::attributes::mode_of;
use crate::errno::{self, Answer};
use crate::state::Mount;
use crate::tree::Node;
use crate::views::ViewName;
use crate::{extended, removed, users};

/// The bit setgid of a mode: what is made in such a directory gets its group.
const SETGID: u16 = 0o2000;

/// A name that the kernel gives.
fn name_of(name: &OsStr) -> Answer<&str> {
    match name.to_str() {
        Some(name) if name.len() > penstock_files::names::NAME_BYTES_MAX => {
            Err(Errno::ENAMETOOLONG)
        }
        Some(name) => Ok(name),
        None => Err(Errno::EILSEQ), // names of a volume are text
    }
}

/// The path of a name in a directory.
fn below(directory: &FilePath, name: &str) -> Result<FilePath> {
    directory.join(name)
}

/// The kind of a new object.
pub(crate) enum New<'a> {
    Directory,
    File,
    Symlink(&'a Path),
}

impl Mount {
    /// Does something at the path of an inode. Who finds nothing there waits for those who rename,
    /// and tries again if the path is another one after that.
    pub(crate) fn at<T>(&self, number: u64, act: impl Fn(&Node) -> Result<T>) -> Answer<T> {
        self.at_with(number, errno::of, act)
    }

    fn at_with<T>(
        &self,
        number: u64,
        told: impl Fn(&Error) -> Errno,
        act: impl Fn(&Node) -> Result<T>,
    ) -> Answer<T> {
        loop {
            let node = self.tree.get(number)?;
            match act(&node) {
                Err(error) if error.kind == Kind::Missing => {
                    drop(self.renames.read().unwrap_or_else(PoisonError::into_inner));
                    if self.tree.get(number)?.path == node.path {
                        return Err(told(&error));
                    }
                }
                done => return done.map_err(|error| told(&error)),
            }
        }
    }

    /// Notes an object for the kernel.
    pub(crate) fn note(&self, details: &Details, view: Option<ViewName>) -> Answer<FileAttr> {
        let object = &details.object;
        let number = self
            .tree
            .look_up(object.id, &object.path, view, object.mode);
        let node = self.tree.get(number)?;
        Ok(self.shown(number, &node, details))
    }

    /// Looks a name up: that of an object, or one that opens a view.
    pub(crate) fn look_up(&self, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        let name = name_of(name)?;
        let find = |name: &str| {
            self.at(parent, |node| {
                let path = below(&node.path, name)?;
                match removed::is_directory(&path) {
                    true => Err(errno::gone(&path)),
                    false => self.fs.details(path),
                }
            })
        };
        match (find(name), ViewName::read(name)) {
            (Err(Errno::ENOENT), Some((file, view))) => {
                let details = find(file)?;
                let ObjectKind::File(shape) = details.object.kind else {
                    return Err(Errno::ENOENT);
                };
                view.subfile(&shape).ok_or(Errno::ENOENT)?;
                self.note(&details, Some(view))
            }
            (found, _) => self.note(&found?, None),
        }
    }

    /// The user who makes something in a directory, with the group that it gets.
    fn maker(&self, request: &Request, directory: &Attributes) -> Identity {
        let mut who = users::identity(request);
        if directory.mode & SETGID != 0 {
            let own = std::mem::replace(&mut who.group, directory.group);
            who.groups.push(own);
        }
        who
    }

    /// Makes an object, and gives its attributes.
    pub(crate) fn make(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        new: &New<'_>,
        mode: u32,
    ) -> Answer<Details> {
        let name = name_of(name)?;
        if ViewName::read(name).is_some() {
            return Err(Errno::EINVAL); // the name would open a view
        }
        let directory = self.details(parent)?.1.object;
        let fs = self.fs.as_user(self.maker(request, &directory));
        let mode = mode_of(mode);
        let made = self.at(parent, |node| {
            let path = below(&node.path, name)?;
            match new {
                New::Directory => fs.make_directory(path, mode | directory.mode & SETGID),
                New::Symlink(target) => {
                    let target = target.to_str().ok_or_else(|| {
                        let cause = "the target is no text";
                        Error::new(Kind::Unsupported, "making a symbolic link", cause)
                    })?;
                    fs.make_symlink(path, target.to_string())
                }
                New::File => {
                    let (cells, bsu, base) = extended::structure(&directory);
                    fs.create(path, fs.shape(cells, bsu, base), mode)
                }
            }
        })?;
        if matches!(new, New::Directory) {
            self.inherit(&directory, &made.path)?;
        }
        Ok(Details {
            links: if matches!(new, New::Directory) { 2 } else { 1 },
            object: made,
            cells: Default::default(),
            written: 0,
        })
    }

    /// Gives a new directory the structure of new files that its parent has.
    fn inherit(&self, directory: &Attributes, path: &FilePath) -> Answer<()> {
        for (name, value) in extended::structure_of(directory) {
            let new = NewAttributes {
                extended: Some((name.clone(), Some(value.clone()))),
                ..NewAttributes::default()
            };
            let set = self.fs.set(path.clone(), new);
            set.map_err(|error| errno::of(&error))?;
        }
        Ok(())
    }

    /// Removes a file or a symbolic link, or an empty directory.
    pub(crate) fn remove(&self, request: &Request, parent: u64, name: &OsStr) -> Answer<()> {
        let name = name_of(name)?;
        let fs = self.fs.as_user(users::identity(request));
        let found = self.at(parent, |node| self.fs.details(below(&node.path, name)?));
        let object = match found {
            Err(Errno::ENOENT) if ViewName::read(name).is_some() => return Err(Errno::EPERM),
            found => found?.object,
        };
        let is_open = self.tree.begin_removal(object.id);
        let removed = match is_open {
            true => self.hide(&object).map(Some),
            false => {
                let remove = |node: &Node| fs.remove(below(&node.path, name)?);
                let removed = self.at_with(parent, errno::of_removal, remove);
                removed.map(|()| None)
            }
        };
        let kept = removed.as_ref().ok().cloned().flatten();
        self.end_removal(object.id, removed.is_ok(), kept);
        removed.map(drop)
    }

    /// Ends the removal of an object, which goes at once if it was closed meanwhile.
    fn end_removal(&self, id: ObjectId, is_removed: bool, kept: Option<FilePath>) {
        if let Some(path) = self.tree.end_removal(id, is_removed, kept) {
            self.remove_closed(path);
        }
    }

    /// Gives an open file, which its user may remove, the path at which it stays until it is
    /// closed.
    fn hide(&self, object: &Attributes) -> Answer<FilePath> {
        let kept = self.hidden(object.id)?;
        let _renaming = self.renames.write().unwrap_or_else(PoisonError::into_inner);
        let hidden = self.fs.rename(object.path.clone(), kept.clone());
        hidden.map_err(|error| errno::of(&error))?;
        self.tree.rename(&object.path, &kept);
        Ok(kept)
    }

    /// A path for an object that is removed while it is open.
    fn hidden(&self, id: ObjectId) -> Answer<FilePath> {
        let path = removed::path_of(id).and_then(|(directory, path)| {
            match self.fs.make_directory(directory, removed::MODE) {
                Err(error) if error.kind != Kind::Exists => Err(error),
                _ => Ok(path),
            }
        });
        path.map_err(|error| errno::of(&error))
    }

    /// Gives an object another path.
    pub(crate) fn rename(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return Err(Errno::EINVAL); // two objects cannot change places
        }
        let (name, new_name) = (name_of(name)?, name_of(new_name)?);
        if ViewName::read(new_name).is_some() {
            return Err(Errno::EINVAL); // the name would open a view
        }
        let fs = self.fs.as_user(users::identity(request));
        // Only who holds this gives objects other paths: those that are found now stay right.
        let _renaming = self.renames.write().unwrap_or_else(PoisonError::into_inner);
        let too_long = |_| Errno::ENAMETOOLONG;
        let from = below(&self.tree.get(parent)?.path, name).map_err(too_long)?;
        let to = below(&self.tree.get(new_parent)?.path, new_name).map_err(too_long)?;
        if flags.contains(RenameFlags::RENAME_NOREPLACE) {
            let renamed = fs.rename(from.clone(), to.clone());
            renamed.map_err(|error| errno::of(&error))?;
            self.tree.rename(&from, &to);
            return Ok(());
        }
        if from == to {
            return Ok(());
        }
        let old = match self.fs.details(to.clone()) {
            Err(error) if error.kind == Kind::Missing => None,
            found => Some(found.map_err(|error| errno::of(&error))?.object.id),
        };
        let kept = match old {
            Some(old) if self.tree.begin_removal(old) => Some(self.hidden(old)?),
            _ => None,
        };
        // The kernel has asked whether the user may. Only this mount may keep what is open.
        let fs = if kept.is_some() { &*self.fs } else { &fs };
        let replacement = kept
            .clone()
            .map_or(Replacement::Removed, Replacement::Moved);
        let done = fs.replace(from.clone(), to.clone(), replacement);
        if let Some(old) = old {
            let kept = kept.filter(|_| done.is_ok());
            if let Some(kept) = &kept {
                self.tree.rename(&to, kept);
            }
            self.end_removal(old, done.is_ok(), kept);
        }
        done.map_err(|error| errno::of_removal(&error))?;
        self.tree.rename(&from, &to);
        Ok(())
    }
}
