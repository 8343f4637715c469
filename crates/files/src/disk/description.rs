//! The description of a volume: what a server finds in its `volume.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::encoding::encode;
use penstock_engine::{Access, Error, Kind, Opening, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash3_64;

use super::system;
use crate::caller::Homes;
use crate::names::{HASH_BITS, Names};
use crate::service::{VolumeShape, disk_schema};

/// The version of the layout on disk.
pub const VERSION: u32 = 3;

/// The most servers of a volume: their numbers go into the identities of objects.
pub const SERVERS_MAX: usize = (1 << 16) - 2;

/// The most bytes of a block.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// The most blocks of a server. It keeps a bit of memory for each.
pub const BLOCKS_MAX: u64 = 1 << 36;

/// The most disks of a server.
pub const DISKS_MAX: usize = 1 << 10;

/// The most bytes of a description.
const DESCRIPTION_BYTES_MAX: u64 = 8 << 20;

/// What stands for the number of a server in a path.
const MARK: &str = "{server}";

/// The file of the description.
pub(super) const DESCRIPTION: &str = "volume.json";

/// The file of the records.
pub(super) const RECORDS: &str = "records.redb";

/// The description of a volume, as one of its servers has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The version of the layout on disk: [`VERSION`].
    pub version: u32,
    /// The identity of the volume, a random number.
    pub identity: u64,
    /// The number of servers with which the volume was made.
    pub servers: usize,
    /// The number of this server: others than these have come later.
    pub server: usize,
    /// The bytes of a block.
    pub block_bytes: u64,
    /// The blocks of each disk of this server.
    pub blocks: u64,
    /// The bits of a path's hash.
    pub hash_bits: u32,
    /// The number of the user who owns the volume.
    pub owner: u32,
    /// The block files and raw devices of this server: absolute paths, or names in the server's
    /// directory.
    pub disks: Vec<String>,
}

/// What is looked at before anything else.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
    checksum: Option<String>,
}

/// A description as it is written: with the checksum of all else.
#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    description: &'a Description,
    checksum: String,
}

impl Description {
    /// Reads the content of a `volume.json`. Errors name `path`.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when it is none, its numbers are impossible, or its checksum is wrong;
    /// [`Kind::Unsupported`] for another version.
    pub fn from_json(json: &[u8], path: &Path) -> Result<Self> {
        let doing = "reading the description of a volume";
        let error = |kind, cause: String| Error::new(kind, doing, cause).at(path);
        let not_json = |cause: serde_json::Error| error(Kind::Damaged, cause.to_string());
        let Versioned { version, checksum } = serde_json::from_slice(json).map_err(not_json)?;
        if version != u64::from(VERSION) {
            let cause = format!("it has version {version}, and this Penstock knows {VERSION}");
            return Err(error(Kind::Unsupported, cause));
        }
        let mut content: BTreeMap<String, Value> =
            serde_json::from_slice(json).map_err(not_json)?;
        content.remove("checksum");
        let content = Value::from_iter(content);
        let description: Self = serde_json::from_value(content).map_err(not_json)?;
        let damaged = |cause| error(Kind::Damaged, cause);
        description.check().map_err(damaged)?;
        let (found, right) = (checksum.unwrap_or_default(), description.checksum()?);
        match found == right {
            true => Ok(description),
            false => {
                let cause = format!(
                    "it was changed: its checksum is {found:?}, and its content has {right:?}"
                );
                Err(damaged(cause))
            }
        }
    }

    /// The checksum of the content.
    ///
    /// # Errors
    /// None that are known.
    pub fn checksum(&self) -> Result<String> {
        let content = encode(self)?;
        Ok(format!("{:016x}", XxHash3_64::oneshot(&content)))
    }

    /// The content of the `volume.json`.
    ///
    /// # Errors
    /// None that are known.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let checked = Checked {
            description: self,
            checksum: self.checksum()?,
        };
        let mut json = serde_json::to_vec_pretty(&checked)
            .map_err(|error| Error::new(Kind::Io, "describing a volume", error))?;
        json.push(b'\n');
        Ok(json)
    }

    /// Says what is impossible.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let Self {
            servers,
            server,
            block_bytes,
            blocks,
            hash_bits,
            disks,
            ..
        } = self;
        let within = |what, number: u64, max: u64| match (1..=max).contains(&number) {
            true => Ok(()),
            false => Err(format!("{what}: {number} is not between 1 and {max}")),
        };
        within("servers", *servers as u64, SERVERS_MAX as u64)?;
        within("block_bytes", *block_bytes, BLOCK_BYTES_MAX)?;
        within("hash_bits", u64::from(*hash_bits), u64::from(HASH_BITS))?;
        within("disks", disks.len() as u64, DISKS_MAX as u64)?;
        within("blocks", *blocks, BLOCKS_MAX / disks.len() as u64)?;
        if *server >= SERVERS_MAX {
            return Err(format!("server {server}: {SERVERS_MAX} is the most"));
        }
        // Offsets in files are signed numbers of 64 bits.
        let bytes = blocks.checked_mul(*block_bytes);
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(format!("{blocks} blocks of {block_bytes} bytes"));
        }
        disk_schema(*blocks, *block_bytes).map_err(|error| error.cause)?;
        if let Some(disk) = disks
            .iter()
            .find(|disk| disk.is_empty() || disk.contains('\0'))
        {
            return Err(format!("{disk:?} is no path"));
        }
        if disks.iter().collect::<BTreeSet<_>>().len() < disks.len() {
            return Err("two of its disks are the same".to_string());
        }
        Ok(())
    }

    /// The structure of the volume on nodes of a machine, the node of each server.
    pub fn shape(&self, servers: Homes) -> VolumeShape {
        VolumeShape {
            volume: self.identity,
            servers,
            names: Names {
                servers: self.servers,
                hash_bits: self.hash_bits,
            },
            block_bytes: self.block_bytes,
            owner: self.owner,
        }
    }

    /// The paths of this server's disks, whose directory is `directory`.
    pub fn disk_paths(&self, directory: &Path) -> Vec<PathBuf> {
        let disks = self.disks.iter();
        disks.map(|disk| directory.join(disk)).collect()
    }

    /// The openings of this server's disks, as a [`BlockOpener`](super::BlockOpener) takes them.
    ///
    /// # Errors
    /// When the description makes no sense.
    pub(super) fn openings(&self, directory: &Path) -> Result<Vec<Opening>> {
        let disk = disk_schema(self.blocks, self.block_bytes)?;
        let opening = |path: PathBuf| Opening {
            target: path.into_os_string().into_encoded_bytes(),
            disk: disk.clone(),
            access: Access::Update,
            sync: true,
            server: self.server,
            servers: 1,
        };
        let paths = self.disk_paths(directory);
        Ok(paths.into_iter().map(opening).collect())
    }
}

/// A path with the number of a server put in.
pub(super) fn of_server(template: &str, server: usize) -> PathBuf {
    template.replace(MARK, &server.to_string()).into()
}

/// The directory of a server of a volume.
pub fn server_directory(template: &str, server: usize) -> PathBuf {
    of_server(template, server).join(format!("server-{server}"))
}

/// Reads the description of a server, which may be in use.
///
/// # Errors
/// [`Kind::Missing`] when there is no such volume, or its creation has not ended; those of
/// [`Description::from_json`].
pub fn describe(template: &str, server: usize) -> Result<Description> {
    let path = server_directory(template, server).join(DESCRIPTION);
    let file = File::open(&path).map_err(|error| no_description(&error, &path))?;
    read_description(&file, server, &path)
}

/// The number of servers of a volume: those with which it was made, and those that have come behind
/// them since, as far as their directories can be seen.
///
/// # Errors
/// As [`describe`], of server 0.
pub fn servers(template: &str) -> Result<usize> {
    let first = describe(template, 0)?;
    let is_there = |server: &usize| {
        let other = describe(template, *server);
        other.is_ok_and(|other| other.identity == first.identity)
    };
    let more = (first.servers..SERVERS_MAX).take_while(is_there);
    Ok(first.servers + more.count())
}

/// The error for a description that cannot be opened.
pub(super) fn no_description(error: &std::io::Error, path: &Path) -> Error {
    let opening = Error::io(error, "opening a volume", path);
    match opening.kind {
        Kind::Missing => Error {
            cause: "there is no volume, or its creation has not ended".to_string(),
            ..opening
        },
        _ => opening,
    }
}

/// Reads the description of a server from an open file.
pub(super) fn read_description(file: &File, server: usize, path: &Path) -> Result<Description> {
    let json = system::read(file, DESCRIPTION_BYTES_MAX, path)?;
    let description = Description::from_json(&json, path)?;
    if description.server == server {
        return Ok(description);
    }
    let cause = format!("it is of server {}", description.server);
    Err(Error::new(Kind::Damaged, "reading the description of a volume", cause).at(path))
}
