//! What `stat` shows, and what `chmod`, `chown`, `truncate` and `touch` change.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, Request, TimeOrNow};
use penstock_files::job::FileSystem;
use penstock_files::{
    Details, EntryKind, FileChange, MODE_BITS, NewAttributes, NewTime, ObjectKind,
};
use penstock_layout::view::CELL_BYTES_MAX;

use crate::errno::{self, Answer};
use crate::state::Mount;
use crate::tree::{Node, number_of};
use crate::users;
use crate::views::size_of;

/// The bytes that programs read and write at once, if they ask.
const BUFFER_BYTES: u32 = 128 << 10;

/// The bits setuid and setgid of a mode.
const PRIVILEGES: u16 = 0o6000;

/// What a program wants to change.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
    /// Whether the file is open for this.
    pub(crate) is_open: bool,
}

/// The kind of an object, as the kernel knows it.
pub(crate) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Xref => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
    }
}

fn system_time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// A time of the kernel. Times before 1970 become 1970.
fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            NewTime::At(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        }
    }
}

/// A mode without the bits that a change by others takes away: setuid, and setgid where the group
/// may execute the file.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    match mode & 0o10 {
        0 => mode & !0o4000,
        _ => mode & !PRIVILEGES,
    }
}

impl Mount {
    /// The attributes of an inode, as the kernel wants them.
    pub(crate) fn shown(&self, number: u64, node: &Node, details: &Details) -> FileAttr {
        let object = &details.object;
        let size = match (&object.kind, &node.view) {
            (ObjectKind::File(shape), Some(view)) => {
                let cells = details.cells.iter().map(|(&cell, &bytes)| (cell, bytes));
                view.subfile(shape)
                    .map_or(0, |subfile| size_of(&subfile, cells))
            }
            _ => details.size(),
        };
        let kept: u64 = details.cells.values().sum();
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: kept.min(size).div_ceil(512),
            atime: system_time(object.accessed),
            mtime: system_time(details.modified()),
            ctime: system_time(details.changed()),
            crtime: system_time(object.created),
            kind: file_type(object.kind.entry()),
            perm: object.mode & MODE_BITS,
            nlink: if node.is_removed { 0 } else { details.links },
            uid: object.owner,
            gid: object.group,
            rdev: 0,
            blksize: BUFFER_BYTES,
            flags: 0,
        }
    }

    /// What there is at an inode.
    pub(crate) fn details(&self, number: u64) -> Answer<(Node, Details)> {
        self.at(number, |node| {
            let details = self.fs.details(node.path.clone())?;
            match number_of(details.object.id) == number_of(node.id) {
                true => Ok((node.clone(), details)),
                false => Err(errno::gone(&node.path)), // another has come in its place
            }
        })
    }

    /// The attributes of an inode.
    pub(crate) fn attributes(&self, number: u64) -> Answer<FileAttr> {
        let (node, details) = self.details(number)?;
        self.tree.set_mode(number, details.object.mode);
        Ok(self.shown(number, &node, &details))
    }

    /// Changes attributes, and gives the new ones.
    pub(crate) fn change(&self, request: &Request, number: u64, wish: &Wish) -> Answer<FileAttr> {
        let (node, details) = self.details(number)?;
        if node.view.is_some() {
            return Err(Errno::EPERM); // a view has no attributes of its own
        }
        let fs = self.fs.as_user(users::identity(request));
        let mut new = NewAttributes {
            mode: wish.mode.map(|mode| mode as u16 & MODE_BITS),
            owner: wish.user,
            group: wish.group,
            accessed: wish.accessed.map(new_time),
            modified: wish.modified.map(new_time),
            extended: None,
        };
        let is_file = matches!(details.object.kind, ObjectKind::File(_));
        let (former, left) = (details.object.mode, without_privileges(details.object.mode));
        let is_given = wish.user.or(wish.group).is_some();
        if is_file && is_given && new.mode.is_none() && left != former {
            new.mode = Some(left);
        }
        if let Some(size) = wish.size {
            if !is_file {
                return Err(Errno::EISDIR);
            }
            // An open file may be written, whatever its mode is now.
            let fs = if wish.is_open { &*self.fs } else { &fs };
            self.truncate(fs, number, &details, size)?;
            if request.uid() != 0 {
                self.take_privileges(number)?;
            }
        }
        if new != NewAttributes::default() {
            self.at(number, |node| fs.set(node.path.clone(), new.clone()))?;
        }
        self.attributes(number)
    }

    /// Gives a file another size in canonical order.
    fn truncate(&self, fs: &FileSystem, number: u64, details: &Details, size: u64) -> Answer<()> {
        if size > CELL_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let touch = NewAttributes {
            modified: Some(NewTime::Now),
            ..NewAttributes::default()
        };
        self.at(number, |node| match details.size() == size {
            true => fs.set(node.path.clone(), touch.clone()), // no server of cells has to do anything
            false => fs.change(node.path.clone(), FileChange::Truncate(size)),
        })
    }

    /// Takes privileges away from a file that somebody has written.
    pub(crate) fn take_privileges(&self, number: u64) -> Answer<()> {
        let node = self.tree.get(number)?;
        if node.mode & PRIVILEGES == 0 {
            return Ok(());
        }
        let (_, details) = self.details(number)?;
        let mode = without_privileges(details.object.mode);
        self.tree.set_mode(number, mode);
        let new = NewAttributes {
            mode: Some(mode),
            ..NewAttributes::default()
        };
        self.at(number, |node| self.fs.set(node.path.clone(), new.clone()))
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, number: u64) -> Answer<String> {
        match self.details(number)?.1.object.kind {
            ObjectKind::Symlink(target) => Ok(target),
            ObjectKind::File(_) | ObjectKind::Xref => Err(Errno::EINVAL),
        }
    }

    /// The space of the volume: bytes in all, and free.
    pub(crate) fn space(&self) -> Answer<(u64, u64)> {
        let space = self.fs.space(self.fs.identity().user);
        let space = space.map_err(|error| errno::of(&error))?;
        Ok((space.bytes, space.bytes.saturating_sub(space.used_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_go_as_the_system_takes_them() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
        assert_eq!(without_privileges(0o1644), 0o1644);
    }

    #[test]
    fn times() {
        let early = UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(new_time(TimeOrNow::SpecificTime(early)), NewTime::At(0));
        let late = system_time(1_700_000_000_123_456_789);
        assert_eq!(
            new_time(TimeOrNow::SpecificTime(late)),
            NewTime::At(1_700_000_000_123_456_789)
        );
    }
}
