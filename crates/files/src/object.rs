//! The objects of a volume: files, and cross-reference lists (Xrefs), which stand for directories.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use crate::names::FilePath;

/// The most cells of a file.
pub const CELLS_MAX: u64 = 1 << 20;

/// The bits of an object's mode.
pub const MODE_BITS: u16 = 0o777;

/// The identity of an object, which is never used twice in a volume and does not change with its
/// path: the number of the server that made it, and a number of that server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The identity of the root, which no server has made.
    pub(crate) const ROOT: Self = Self(0);

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

/// The structure of a file, which does not change (section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileShape {
    /// The number of cells.
    pub cells: u64,
    /// The bytes of a basic striping unit.
    pub bsu_bytes: u64,
    /// The server of cell 0. The next cell is on the next server, and after the last comes the
    /// first.
    pub base: usize,
}

impl FileShape {
    /// Refuses a structure that no file can have.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub fn check(&self, servers: usize) -> Result<()> {
        let cause = if !(1..=CELLS_MAX).contains(&self.cells) {
            format!("{} cells: a file has 1 to 2^20", self.cells)
        } else if !(1..=penstock_layout::view::CELL_BYTES_MAX).contains(&self.bsu_bytes) {
            format!("a BSU of {} bytes: it has 1 to 2^62", self.bsu_bytes)
        } else if self.base >= servers {
            format!("base server {} of {servers}", self.base)
        } else {
            return Ok(());
        };
        Err(Error::new(Kind::Schema, "creating a file", cause))
    }

    /// The server of a cell.
    pub fn server_of(&self, cell: u64, servers: usize) -> usize {
        self.server_at(self.turn_of(cell, servers), servers)
    }

    /// The turn of a cell's server, counted from the base.
    pub(crate) fn turn_of(&self, cell: u64, servers: usize) -> usize {
        exact::<usize>(cell % servers as u64)
    }

    /// The server whose turn it is, counted from the base.
    pub(crate) fn server_at(&self, turn: usize, servers: usize) -> usize {
        (self.base + turn) % servers
    }

    /// The number of servers that have cells.
    pub(crate) fn turns(&self, servers: usize) -> usize {
        exact::<usize>((servers as u64).min(self.cells))
    }
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// A file.
    File(FileShape),
    /// A cross-reference list.
    Xref,
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
    /// The permission bits for owner, group and others.
    pub mode: u16,
    /// The time of creation, in nanoseconds since 1970.
    pub created: u64,
    /// The time of the last attach for reading.
    pub accessed: u64,
    /// The time of the last change: an attach for writing, or a change of the attributes.
    pub changed: u64,
    /// The number of checkpoints of the file so far; the last of them can be read.
    pub checkpoints: u64,
}

impl Attributes {
    /// The structure of a file.
    ///
    /// # Errors
    /// [`Kind::Schema`] for an Xref.
    pub fn shape(&self) -> Result<FileShape> {
        match self.kind {
            ObjectKind::File(shape) => Ok(shape),
            ObjectKind::Xref => Err(at_path(
                Kind::Schema,
                "looking for a file",
                &self.path,
                "it is a directory (an Xref)",
            )),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// F1, F2: cells go round-robin from the base, and wrap.
    #[test]
    fn cells_go_round_robin_from_the_base() {
        let shape = FileShape {
            cells: 7,
            bsu_bytes: 1,
            base: 2,
        };
        let servers: Vec<_> = (0..7).map(|cell| shape.server_of(cell, 4)).collect();
        assert_eq!(servers, [2, 3, 0, 1, 2, 3, 0]);
        assert_eq!((shape.turns(4), shape.turns(9)), (4, 7));
        assert!(shape.check(3).is_ok() && shape.check(2).is_err());
        assert!(FileShape { cells: 0, ..shape }.check(3).is_err());
        assert!(
            FileShape {
                bsu_bytes: 0,
                ..shape
            }
            .check(3)
            .is_err()
        );
    }

    /// N5: owner, group and others.
    #[test]
    fn permissions() {
        let object = Attributes {
            id: ObjectId(1),
            kind: ObjectKind::Xref,
            path: FilePath::root(),
            owner: 7,
            group: 20,
            mode: 0o640,
            created: 0,
            accessed: 0,
            changed: 0,
            checkpoints: 0,
        };
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
