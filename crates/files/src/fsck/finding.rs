//! What a check can find, and its report.

use std::fmt;

use crate::names::FilePath;
use crate::object::ObjectId;
use crate::transaction::TransactionId;
use crate::volume::cells::Version;

/// The place of a block in a volume: its file, its cell, its number there, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPosition {
    /// The server.
    pub server: usize,
    /// The path of the file, or the number of its object if there is no path.
    pub file: String,
    /// The cell.
    pub cell: u64,
    /// The number of the block in its cell.
    pub block: u64,
    /// The version.
    pub version: Version,
}

impl fmt::Display for BlockPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            file,
            cell,
            block,
            version,
        } = self;
        let of = match version {
            Version::Active => "",
            Version::Checkpoint => " of the checkpoint",
        };
        write!(
            f,
            "{file}: block {block} of cell {cell}{of} on server {server}"
        )
    }
}

/// A finding: two records that do not fit together, or a block that is not what was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the text of each finding says what its fields are"
)]
pub enum Finding {
    UnreadableRecord {
        server: usize,
        key: Vec<u8>,
        cause: String,
    },
    UsedNumber {
        server: usize,
        number: u64,
    },
    UnevenQuota {
        server: usize,
        user: u32,
    },
    UnevenRings {
        server: usize,
    },
    MissingRoot,
    MisplacedObject {
        server: usize,
        path: FilePath,
    },
    DoublePath {
        path: FilePath,
    },
    DoubleIdentity {
        id: ObjectId,
        path: FilePath,
    },
    ImpossibleShape {
        path: FilePath,
        cause: String,
    },
    MissingParent {
        path: FilePath,
    },
    MissingEntry {
        path: FilePath,
    },
    StrayEntry {
        server: usize,
        directory: ObjectId,
        name: String,
    },
    MissingObject {
        path: String,
    },
    WrongEntry {
        path: FilePath,
    },
    OrphanCells {
        server: usize,
        id: ObjectId,
    },
    StrayCells {
        server: usize,
        path: FilePath,
        cell: Option<u64>,
    },
    UnlistedPart {
        server: usize,
        file: String,
        cell: Option<u64>,
    },
    WrongOwner {
        server: usize,
        path: FilePath,
        found: u32,
        owner: u32,
    },
    UnevenCheckpoint {
        server: usize,
        path: FilePath,
        cell: Option<u64>,
    },
    LongCell {
        server: usize,
        file: String,
        cell: u64,
        bytes: u64,
    },
    BlockBehindEnd(BlockPosition),
    PlaceOutside {
        block: BlockPosition,
        place: u64,
    },
    SharedPlace {
        block: BlockPosition,
        place: u64,
        other: Box<BlockPosition>,
    },
    DamagedBlock {
        block: BlockPosition,
        place: u64,
        cause: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_cell = |cell: &Option<u64>| match cell {
            Some(cell) => format!("cell {cell}"),
            None => "the part of it".to_string(),
        };
        match self {
            Self::UnreadableRecord { server, key, cause } => {
                let key: String = key.iter().take(16).map(|b| format!("{b:02x}")).collect();
                write!(
                    f,
                    "server {server}: the record {key} makes no sense: {cause}"
                )
            }
            Self::UsedNumber { server, number } => write!(
                f,
                "server {server} has used the number {number}, and may use it again"
            ),
            Self::UnevenQuota { server, user } => write!(
                f,
                "server {server}: the quota of user {user} is not that on other servers"
            ),
            Self::UnevenRings { server } => write!(
                f,
                "server {server}: it has other rings, or other slots, than the other servers"
            ),
            Self::MissingRoot => f.write_str("/: the root is not there, or is no directory"),
            Self::MisplacedObject { server, path } => write!(
                f,
                "{path}: it is on server {server}, where its hash does not lead to it"
            ),
            Self::DoublePath { path } => write!(f, "{path}: two objects are there"),
            Self::DoubleIdentity { id, path } => {
                write!(f, "{path}: another object has its identity, too, {}", id.0)
            }
            Self::ImpossibleShape { path, cause } => write!(f, "{path}: {cause}"),
            Self::MissingParent { path } => write!(f, "{path}: its directory is not there"),
            Self::MissingEntry { path } => write!(f, "{path}: its directory does not list it"),
            Self::StrayEntry {
                server,
                directory,
                name,
            } => write!(
                f,
                "server {server}: an entry {name:?} of object {}, which is no directory there",
                directory.0
            ),
            Self::MissingObject { path } => write!(f, "{path}: it is listed, and nothing is there"),
            Self::WrongEntry { path } => write!(f, "{path}: it is listed as another object"),
            Self::OrphanCells { server, id } => {
                write!(
                    f,
                    "server {server}: cells of object {}, which is no file",
                    id.0
                )
            }
            Self::StrayCells { server, path, cell } => write!(
                f,
                "{path}: {} is on server {server}, and should not be",
                of_cell(cell)
            ),
            Self::UnlistedPart { server, file, cell } => write!(
                f,
                "{file}: the record of {} on server {server} is not there",
                of_cell(cell)
            ),
            Self::WrongOwner {
                server,
                path,
                found,
                owner,
            } => write!(
                f,
                "{path}: on server {server} it is user {found}'s, and should be user {owner}'s"
            ),
            Self::UnevenCheckpoint { server, path, cell } => write!(
                f,
                "{path}: {} on server {server} does not have the checkpoint that others have",
                of_cell(cell)
            ),
            Self::LongCell {
                server,
                file,
                cell,
                bytes,
            } => write!(
                f,
                "{file}: cell {cell} on server {server} has {bytes} bytes, more than any cell can"
            ),
            Self::BlockBehindEnd(block) => write!(f, "{block} lies behind the end of the cell"),
            Self::PlaceOutside { block, place } => {
                write!(f, "{block} is at place {place}, which is not there")
            }
            Self::SharedPlace {
                block,
                place,
                other,
            } => write!(f, "{block} is at place {place}, and so is {other}"),
            Self::DamagedBlock {
                block,
                place,
                cause,
            } => write!(f, "{block}, at place {place}, is damaged: {cause}"),
        }
    }
}

/// A part of a transaction that a crash has left. The server ends it when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftTransaction {
    /// The transaction.
    pub id: TransactionId,
    /// The server that has the part.
    pub server: usize,
    /// Whether the transaction will be carried out, and not be undone.
    pub is_decided: bool,
}

impl fmt::Display for LeftTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.is_decided {
            true => "will be carried out",
            false => "will be undone",
        };
        let Self { id, server, .. } = self;
        write!(f, "{id} {end} on server {server}")
    }
}

/// The numbers of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Directories, the root among them.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Cells that are not empty.
    pub cells: u64,
    /// Places in use.
    pub blocks: u64,
    /// Places that are free.
    pub free: u64,
    /// Blocks whose bytes were read and compared with their checksums.
    pub read: u64,
}

/// The report of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What does not fit.
    pub findings: Vec<Finding>,
    /// What servers will end when they start, which is no damage.
    pub transactions: Vec<LeftTransaction>,
    /// The numbers of the volume.
    pub numbers: Numbers,
}
