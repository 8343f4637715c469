//! The objects of a volume: files, and cross-reference lists (Xrefs), which stand for directories.

use std::collections::BTreeMap;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use crate::names::FilePath;
use crate::placement::{Dealing, Order, Placement, Rings};

/// The most cells of a file.
pub const CELLS_MAX: u64 = 1 << 20;

/// The bits of an object's mode: permissions, and setuid, setgid and sticky.
pub const MODE_BITS: u16 = 0o7777;

/// The bit of an Xref's mode that lets users remove only what they own.
const STICKY: u16 = 0o1000;

/// The most bytes of the target of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The most bytes of the names and values of an object's extended attributes.
pub const EXTENDED_BYTES_MAX: usize = 1 << 16;

/// The identity of an object, which is never used twice in a volume and does not change with its
/// path: the number of the server that made it, and a number of that server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The identity of the root, which no server has made.
    pub const ROOT: Self = Self(0);

    /// The object with this number among those that `server` has made.
    pub(crate) fn new(server: usize, number: u64) -> Self {
        Self((server as u64 + 1) << 48 | number)
    }

    /// The server that has made the object, and the object's number among those of the server;
    /// `None` for the root.
    pub(crate) fn maker(self) -> Option<(usize, u64)> {
        let server = (self.0 >> 48).checked_sub(1)?;
        Some((exact::<usize>(server), self.0 & ((1 << 48) - 1)))
    }
}

/// A user, as the operating system knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The user's number; 0 may do everything.
    pub user: u32,
    /// The number of the user's first group, which new objects get.
    pub group: u32,
    /// The numbers of the user's other groups.
    pub groups: Vec<u32>,
    /// Whether the user owns the volume and may do everything, as a server finds.
    #[serde(skip)]
    pub(crate) may_all: bool,
}

impl Identity {
    /// Makes the identity of a user.
    pub fn new(user: u32, group: u32, groups: Vec<u32>) -> Self {
        Self {
            user,
            group,
            groups,
            may_all: false,
        }
    }

    /// Whether the user may do everything.
    pub(crate) fn may_all(&self) -> bool {
        self.may_all || self.user == 0
    }
}

/// A permission on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// To read a file, or list an Xref.
    Read,
    /// To write a file, or change an Xref.
    Write,
}

/// The structure of a file (section 3.1). Only the placement changes, when the file moves to other
/// servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileShape {
    /// The number of cells.
    pub cells: u64,
    /// The bytes of a basic striping unit.
    pub bsu_bytes: u64,
    /// The server of cell 0, if that is in the file's ring, or the one before it. The next cell is
    /// on the next server, and after the last comes the first.
    pub base: usize,
    /// The servers among which the cells are dealt.
    pub placement: Placement,
}

impl FileShape {
    /// Refuses a structure that no file can have.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub fn check(&self, rings: &Rings) -> Result<()> {
        let cause = if !(1..=CELLS_MAX).contains(&self.cells) {
            format!("{} cells: a file has 1 to 2^20", self.cells)
        } else if !(1..=penstock_layout::view::CELL_BYTES_MAX).contains(&self.bsu_bytes) {
            format!("a BSU of {} bytes: it has 1 to 2^62", self.bsu_bytes)
        } else if !rings.have(self.placement) || self.placement.moved > self.cells {
            "it is on servers that there are not".to_string()
        } else if !rings.have_server(self.base) {
            format!("there is no base server {}", self.base)
        } else {
            return Ok(());
        };
        Err(Error::new(Kind::Schema, "creating a file", cause))
    }

    /// How the cells are dealt to servers.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the file is in a ring that there is not.
    pub fn dealing<'a>(&self, rings: &'a Rings) -> Result<Dealing<'a>> {
        Dealing::new((self.cells, self.base), self.placement, rings)
    }

    /// The servers in the order in which tokens pass them.
    ///
    /// # Errors
    /// As [`FileShape::dealing`].
    pub fn order(&self, rings: &Rings) -> Result<Order> {
        rings.order(self.base, self.placement)
    }

    /// The bytes of a cell that are among the first `bytes` bytes of the file in canonical order:
    /// its BSUs go round-robin to the cells.
    pub fn cell_end(&self, cell: u64, bytes: u64) -> u64 {
        let (bsu, bytes) = (u128::from(self.bsu_bytes.max(1)), u128::from(bytes));
        let stripe = bsu * u128::from(self.cells.max(1));
        let rest = (bytes % stripe).saturating_sub(bsu * u128::from(cell));
        exact::<u64>(bytes / stripe * bsu + rest.min(bsu)) // at most `bytes`
    }

    /// The size of the file in canonical order: one past the last byte of any cell. `cells` has the
    /// cells that are not empty, with their bytes.
    pub fn size(&self, cells: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        let (bsu, all) = (u128::from(self.bsu_bytes.max(1)), u128::from(self.cells));
        let ends = cells.into_iter().filter_map(|(cell, bytes)| {
            let last = u128::from(bytes).checked_sub(1)?;
            let bsus = last / bsu * all + u128::from(cell);
            Some(bsus * bsu + last % bsu + 1)
        });
        u64::try_from(ends.max().unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

/// The kind of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// A file.
    File(FileShape),
    /// A cross-reference list.
    Xref,
    /// A symbolic link, and its target: text that a mount follows, and nobody else.
    Symlink(String),
}

impl ObjectKind {
    /// The kind as entries of Xrefs have it.
    pub fn entry(&self) -> EntryKind {
        match self {
            Self::File(_) => EntryKind::File,
            Self::Xref => EntryKind::Xref,
            Self::Symlink(_) => EntryKind::Symlink,
        }
    }

    /// Refuses what no object can be.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub fn check(&self, rings: &Rings) -> Result<()> {
        match self {
            Self::File(shape) => shape.check(rings),
            Self::Symlink(target)
                if !(1..=TARGET_BYTES_MAX).contains(&target.len()) || target.contains('\0') =>
            {
                let cause = "the target of a symbolic link has 1 to 4095 bytes, and no NUL";
                Err(Error::new(Kind::Schema, "making a symbolic link", cause))
            }
            Self::Xref | Self::Symlink(_) => Ok(()),
        }
    }
}

/// The kind of an object, without its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A file.
    File,
    /// A cross-reference list.
    Xref,
    /// A symbolic link.
    Symlink,
}

/// The attributes of an object (section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The identity of the object.
    pub id: ObjectId,
    /// The kind of the object, and the structure of a file.
    pub kind: ObjectKind,
    /// The full path.
    pub path: FilePath,
    /// The number of the user who owns the object.
    pub owner: u32,
    /// The number of the group.
    pub group: u32,
    /// The permission bits for owner, group and others, and the bits setuid, setgid and sticky.
    pub mode: u16,
    /// The time of creation, in nanoseconds since 1970.
    pub created: u64,
    /// The time of the last attach for reading.
    pub accessed: u64,
    /// The time of the last change of the attributes, of the entries of an Xref, or of all cells at
    /// once. [`Details::changed`] counts writes, too.
    pub changed: u64,
    /// The time of the last change of the contents, as it was at the time `settled`. Servers of
    /// cells know of writes since then: [`Details::modified`] counts them.
    pub modified: u64,
    /// The time at which `modified` was set.
    pub settled: u64,
    /// The number of checkpoints of the file so far; the last of them can be read.
    pub checkpoints: u64,
    /// Extended attributes: names that users give values to.
    pub extended: BTreeMap<String, Vec<u8>>,
}

/// The attributes of an object, and what the servers of its cells know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// The attributes.
    pub object: Attributes,
    /// The number of names that lead to the object: of an Xref its own, `.` in it, and `..` in each
    /// Xref that it lists.
    pub links: u32,
    /// The bytes up to the end of each cell of a file that has any.
    pub cells: BTreeMap<u64, u64>,
    /// The time of the last write to a file, or 0.
    pub written: u64,
}

impl Details {
    /// The size of a file in canonical order, or the bytes of a symbolic link's target.
    pub fn size(&self) -> u64 {
        match &self.object.kind {
            ObjectKind::File(shape) => shape.size(self.cells.iter().map(|(&c, &bytes)| (c, bytes))),
            ObjectKind::Symlink(target) => target.len() as u64,
            ObjectKind::Xref => 0,
        }
    }

    /// The time of the last change of the contents: the last write, unless it was set after that.
    pub fn modified(&self) -> u64 {
        match self.written > self.object.settled {
            true => self.written,
            false => self.object.modified,
        }
    }

    /// The time of the last change of contents or attributes.
    pub fn changed(&self) -> u64 {
        self.object.changed.max(self.written)
    }
}

impl Attributes {
    /// The attributes of a new object, of this owner and group and with this mode.
    pub(crate) fn new(
        id: ObjectId,
        kind: ObjectKind,
        path: FilePath,
        (owner, group, mode): (u32, u32, u16),
        now: u64,
    ) -> Self {
        Self {
            id,
            kind,
            path,
            owner,
            group,
            mode: mode & MODE_BITS,
            created: now,
            accessed: now,
            changed: now,
            modified: now,
            settled: now,
            checkpoints: 0,
            extended: BTreeMap::new(),
        }
    }

    /// The placement, if it is a file.
    pub(crate) fn placement(&self) -> Option<Placement> {
        match self.kind {
            ObjectKind::File(shape) => Some(shape.placement),
            ObjectKind::Xref | ObjectKind::Symlink(_) => None,
        }
    }

    /// The structure of a file.
    ///
    /// # Errors
    /// [`Kind::Schema`] for an Xref or a symbolic link.
    pub fn shape(&self) -> Result<FileShape> {
        let cause = match self.kind {
            ObjectKind::File(shape) => return Ok(shape),
            ObjectKind::Xref => "it is a directory (an Xref)",
            ObjectKind::Symlink(_) => "it is a symbolic link, which only a mount follows",
        };
        Err(at_path(
            Kind::Schema,
            "looking for a file",
            &self.path,
            cause,
        ))
    }

    /// Refuses a user who may not remove an entry for an object of `owner` from this Xref.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`].
    pub(crate) fn allow_removal(&self, who: &Identity, owner: u32) -> Result<()> {
        self.allow(who, Permission::Write)?;
        let is_owner = who.may_all() || [self.owner, owner].contains(&who.user);
        if is_owner || self.mode & STICKY == 0 {
            return Ok(());
        }
        let cause = format!(
            "user {} owns neither the directory, which is sticky, nor the object, which is user \
             {owner}'s",
            who.user
        );
        Err(at_path(
            Kind::ReadOnly,
            "removing an entry of",
            &self.path,
            cause,
        ))
    }

    /// Refuses a user who has not this permission.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`].
    pub fn allow(&self, who: &Identity, permission: Permission) -> Result<()> {
        let bit = match permission {
            Permission::Read => 0o4,
            Permission::Write => 0o2,
        };
        let shift = match who {
            _ if who.user == self.owner => 6,
            _ if who.group == self.group || who.groups.contains(&self.group) => 3,
            _ => 0,
        };
        if who.may_all() || self.mode >> shift & bit != 0 {
            return Ok(());
        }
        let verb = match permission {
            Permission::Read => "reading",
            Permission::Write => "writing",
        };
        let cause = format!(
            "user {} has no permission: the mode is {:o}, the owner {}, the group {}",
            who.user, self.mode, self.owner, self.group
        );
        Err(at_path(Kind::ReadOnly, verb, &self.path, cause))
    }

    /// Refuses a user who does not own the object.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`].
    pub(crate) fn allow_owner(&self, who: &Identity, doing: &str) -> Result<()> {
        if who.may_all() || who.user == self.owner {
            return Ok(());
        }
        let cause = format!("user {} does not own it, but user {}", who.user, self.owner);
        Err(at_path(Kind::ReadOnly, doing, &self.path, cause))
    }
}

/// Makes an error about a path of the volume.
pub(crate) fn at_path(
    kind: Kind,
    doing: &str,
    path: &FilePath,
    cause: impl std::fmt::Display,
) -> Error {
    let mut error = Error::new(kind, doing, cause);
    error.path = Some(path.to_string());
    error
}

/// The error for steps that something has overtaken, so that they are planned again.
pub(crate) fn overtaken(doing: &str, path: &FilePath) -> Error {
    let cause = "others change its names all the time: try again";
    at_path(Kind::Busy, doing, path, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_structures_are_refused() {
        let shape = FileShape {
            cells: 7,
            bsu_bytes: 1,
            base: 2,
            placement: Placement::default(),
        };
        let is_possible = |shape: FileShape, servers| shape.check(&Rings::new(servers)).is_ok();
        assert!(is_possible(shape, 3) && !is_possible(shape, 2));
        assert!(!is_possible(FileShape { cells: 0, ..shape }, 3));
        let bsu_bytes = 0;
        assert!(!is_possible(FileShape { bsu_bytes, ..shape }, 3));
        let placement = Placement::settled(1);
        assert!(!is_possible(FileShape { placement, ..shape }, 3));
    }

    /// The canonical order deals BSUs out to cells in turn, as the striped view does.
    #[test]
    fn the_size_in_canonical_order_is_that_of_the_striped_view() {
        use penstock_layout::{Subfile, SubfileOrder, View};
        for (cells, bsu_bytes) in [(1, 1), (1, 5), (3, 1), (3, 4), (4, 7)] {
            let shape = FileShape {
                cells,
                bsu_bytes,
                base: 0,
                placement: Placement::default(),
            };
            let order = SubfileOrder::Block;
            let whole = Subfile::new(View::striped(), 0, order, (cells, bsu_bytes)).unwrap();
            for size in 0..80 {
                let ends = (0..cells).map(|cell| (cell, shape.cell_end(cell, size)));
                let ends: Vec<_> = ends.collect();
                assert_eq!(ends.iter().map(|(_, end)| end).sum::<u64>(), size);
                assert_eq!(shape.size(ends.iter().copied()), size);
                let by_view = ends
                    .iter()
                    .filter_map(|&(cell, end)| whole.end_in(cell, end));
                assert_eq!(by_view.max().unwrap_or(0), size);
            }
            assert_eq!(shape.size([(cells - 1, 1)]), (cells - 1) * bsu_bytes + 1);
        }
    }

    /// Who may remove what from a sticky directory.
    #[test]
    fn sticky_directories() {
        let (root, xref) = (FilePath::root(), ObjectKind::Xref);
        let sticky = Attributes::new(ObjectId(1), xref, root, (7, 20, 0o1777), 0);
        let may = |user, owner| {
            let who = Identity::new(user, 1, Vec::new());
            sticky.allow_removal(&who, owner).is_ok()
        };
        assert!(may(7, 9) && may(9, 9) && may(0, 9) && !may(8, 9));
    }

    /// N5: owner, group and others.
    #[test]
    fn permissions() {
        let settings = (7, 20, 0o640);
        let object = Attributes::new(ObjectId(1), ObjectKind::Xref, FilePath::root(), settings, 0);
        let who = |user, group, groups: &[u32]| Identity::new(user, group, groups.to_vec());
        let may = |who: Identity, permission| object.allow(&who, permission).is_ok();
        assert!(may(who(7, 1, &[]), Permission::Write));
        assert!(may(who(8, 20, &[]), Permission::Read));
        assert!(may(who(8, 1, &[3, 20]), Permission::Read));
        assert!(!may(who(8, 20, &[]), Permission::Write));
        assert!(!may(who(8, 1, &[]), Permission::Read));
        assert!(may(who(0, 0, &[]), Permission::Write));
        let error = object.allow(&who(8, 1, &[]), Permission::Read).unwrap_err();
        assert_eq!(
            (error.kind, error.path.as_deref()),
            (Kind::ReadOnly, Some("/"))
        );
    }
}
