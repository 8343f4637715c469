//! Making a volume.
//!
//! Each server's directory goes through two states before it is a part of a volume, told by the
//! name of its description:
//!
//! ```text
//! volume.json.making   says which files are being made, so that they can be found and removed
//! volume.json.ready    all files are made, and on stable storage
//! volume.json          the server is a part of a volume
//! ```
//!
//! [`create`] brings all servers to the second state before it brings any to the third. So as long
//! as a directory is in one of the first two, the volume was never whole, and nobody can have used
//! it: another `create` removes what is there, and begins again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

use super::description::{
    DESCRIPTION, Description, RECORDS, VERSION, of_server, read_description, server_directory,
};
use super::records::DiskRecords;
use super::system::{self, Lock};
use crate::names::HASH_BITS;

/// The description while files are made, and when all are made.
const MAKING: &str = "volume.json.making";
const READY: &str = "volume.json.ready";

/// The bytes of a block, where nobody says otherwise (section 4.4 of the paper).
pub const BLOCK_BYTES: u64 = 64 << 10;

/// The part of a file system's free space that sparse block files leave for the records: one in
/// this number.
const RECORDS_SHARE: u64 = 64;

/// The most bytes of a sparse block file: half of the largest file of ext4.
const SPARSE_BYTES_MAX: u64 = 8 << 40;

/// The identity of a volume that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// The number of servers.
    pub servers: usize,
    /// The bytes of a block.
    pub block_bytes: u64,
    /// The bytes of each server's blocks, which are allocated; `None` for sparse files with room
    /// for the free space of their file systems, and for all of raw devices.
    pub capacity: Option<u64>,
    /// The bits of a path's hash.
    pub hash_bits: u32,
    /// The number of the user who owns the volume.
    pub owner: u32,
    /// The disks of each server, directories or raw devices, with `{server}` for its number; none
    /// for one block file in the server's directory.
    pub disks: Vec<String>,
}

impl CreateOptions {
    /// Makes the options of a volume of `servers` servers, owned by the user of this process.
    pub fn new(servers: usize) -> Self {
        Self {
            servers,
            block_bytes: BLOCK_BYTES,
            capacity: None,
            hash_bits: HASH_BITS,
            owner: rustix::process::getuid().as_raw(),
            disks: Vec::new(),
        }
    }
}

/// What opens up to a disk: a directory for a block file, or a raw device.
enum Home {
    Directory { name: String, device: u64 },
    Raw { name: String, bytes: u64 },
}

/// The directory of a server whose part is being made, and nobody else's meanwhile.
struct Site {
    directory: PathBuf,
    server: usize,
    homes: Vec<Home>,
    _lock: Lock,
}

/// A new random identity of a volume.
///
/// # Errors
/// When the system gives no random numbers.
pub fn new_identity() -> Result<u64> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(no_random("too few bytes")),
        Err(error) => Err(no_random(error)),
    }
}

fn no_random(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Io, "taking a random number", cause)
}

/// Makes a volume: the directories of all of its servers. What is left of a creation that did not
/// end is removed first.
///
/// Block files without a capacity share the free space of their file system among all servers.
///
/// # Errors
/// [`Kind::Exists`] when there is a volume, or something else; [`Kind::Full`]; [`Kind::Schema`] for
/// impossible options; [`Kind::Missing`] when the directory above, or a disk, is not there;
/// [`Kind::Busy`] when somebody else is making it.
pub fn create(template: &str, options: &CreateOptions) -> Result<()> {
    check(template, options)?;
    make(template, 0..options.servers, (new_identity()?, options))
}

/// Makes the part of one server of a volume: [`create`] for programs whose servers do not see each
/// other's disks. All servers must be given the same identity ([`new_identity`]) and options.
///
/// Block files without a capacity have room for all of the free space, whatever other servers take.
///
/// # Errors
/// As [`create`].
pub fn create_server(
    template: &str,
    server: usize,
    identity: u64,
    options: &CreateOptions,
) -> Result<()> {
    check(template, options)?;
    if server >= options.servers {
        return Err(wrong(
            template,
            format!("server {server} of {}", options.servers),
        ));
    }
    make(template, server..server + 1, (identity, options))
}

/// Makes one more server of a volume, like one that is there: blocks of the same size, in the same
/// volume. `capacity` and `disks` are as those of [`CreateOptions`]. The server gets nothing before
/// the volume is spread over it, too.
///
/// # Errors
/// As [`create`]; [`Kind::Exists`] for a server that the volume has.
pub fn add_server(
    template: &str,
    server: usize,
    like: &Description,
    (capacity, disks): (Option<u64>, Vec<String>),
) -> Result<()> {
    let options = CreateOptions {
        servers: like.servers,
        block_bytes: like.block_bytes,
        capacity,
        hash_bits: like.hash_bits,
        owner: like.owner,
        disks,
    };
    check(template, &options)?;
    if server < like.servers {
        let cause = format!("the volume was made with server {server}");
        let error = Error::new(Kind::Exists, "adding a server", cause);
        return Err(error.at(Path::new(template)));
    }
    make(template, server..server + 1, (like.identity, &options))
}

fn wrong(template: &str, cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "making a volume", cause).at(Path::new(template))
}

/// Checks options as far as that can be done without a look at disks.
fn check(template: &str, options: &CreateOptions) -> Result<()> {
    if template.is_empty() || template.contains('\0') {
        return Err(wrong(template, "it is no path"));
    }
    // One block on each disk is the least.
    let mut disks = options.disks.clone();
    if disks.is_empty() {
        disks.push("blocks-0".to_string());
    }
    let least = describe((0, options), 0, 1, disks);
    least.check().map_err(|cause| wrong(template, cause))
}

fn describe(
    (identity, options): (u64, &CreateOptions),
    server: usize,
    blocks: u64,
    disks: Vec<String>,
) -> Description {
    Description {
        version: VERSION,
        identity,
        servers: options.servers,
        server,
        block_bytes: options.block_bytes,
        blocks,
        hash_bits: options.hash_bits,
        owner: options.owner,
        disks,
    }
}

/// Makes the parts of some servers.
fn make(
    template: &str,
    servers: std::ops::Range<usize>,
    (identity, options): (u64, &CreateOptions),
) -> Result<()> {
    let sites = servers.map(|server| Site::take(template, server, (identity, options)));
    let sites = sites.collect::<Result<Vec<Site>>>()?;
    refuse_whole(&sites)?;
    let made = clear(&sites).and_then(|()| {
        let mut files = BTreeMap::new();
        for home in sites.iter().flat_map(|site| &site.homes) {
            if let Home::Directory { device, .. } = home {
                *files.entry(*device).or_default() += 1;
            }
        }
        let prepare = |site: &Site| site.prepare((identity, options), &files);
        sites.iter().try_for_each(prepare)?;
        sites.iter().try_for_each(Site::conclude)
    });
    if made.is_err() {
        // What cannot be removed now is removed by the next creation.
        let _ = clear(&sites);
    }
    made
}

/// Removes what is left of a volume that was never whole. As long as anything is left, it can be
/// seen that the volume was not.
fn clear(sites: &[Site]) -> Result<()> {
    sites.iter().try_for_each(Site::withdraw)?;
    sites.iter().try_for_each(Site::clear)
}

/// Refuses to make what is there already: a volume whose creation has ended, or something else.
fn refuse_whole(sites: &[Site]) -> Result<()> {
    let is_half = sites.iter().any(Site::is_half);
    for site in sites {
        let exists = |cause: &str| {
            let error = Error::new(Kind::Exists, "making a volume", cause);
            Err(error.at(&site.directory))
        };
        if site.path(DESCRIPTION).exists() {
            if !is_half {
                return exists("there is a volume");
            }
        } else if !site.is_half() && !site.is_empty()? {
            return exists("the directory is not empty");
        }
    }
    Ok(())
}

impl Site {
    /// Makes the directory of a server, unless it is there, and takes it for this process.
    fn take(
        template: &str,
        server: usize,
        (identity, options): (u64, &CreateOptions),
    ) -> Result<Self> {
        let directory = server_directory(template, server);
        let locating = |error| Error::io(&error, "making a volume", &directory);
        let directory = std::path::absolute(&directory).map_err(locating)?;
        system::make_directory(&system::above(&directory))?;
        system::make_directory(&directory)?;
        let opened = File::open(&directory);
        let opened = opened.map_err(|error| Error::io(&error, "opening", &directory))?;
        let lock = Lock::take(opened, &directory)?;
        let disks = options.disks.iter().enumerate();
        let named = disks.map(|(number, disk)| {
            let name = format!("{identity:016x}-server-{server}-blocks-{number}");
            Home::find(&of_server(disk, server), Some(&name))
        });
        let mut homes = named.collect::<Result<Vec<_>>>()?;
        if homes.is_empty() {
            homes.push(Home::find(&directory, None)?);
        }
        Ok(Self {
            directory,
            server,
            homes,
            _lock: lock,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether a creation has begun here, and not ended.
    fn is_half(&self) -> bool {
        self.path(MAKING).exists() || self.path(READY).exists()
    }

    fn is_empty(&self) -> Result<bool> {
        let looking = |error| Error::io(&error, "looking into", &self.directory);
        let mut entries = std::fs::read_dir(&self.directory).map_err(looking)?;
        Ok(entries.next().is_none())
    }

    /// Brings the server back from the third state to the second.
    fn withdraw(&self) -> Result<()> {
        let path = self.path(DESCRIPTION);
        let Ok(file) = File::open(&path) else {
            return Ok(());
        };
        let _used = Lock::take(file, &path)?;
        system::rename(&path, &self.path(READY))
    }

    /// Removes what is left of a server that is no part of a volume.
    fn clear(&self) -> Result<()> {
        for name in [READY, MAKING] {
            let path = self.path(name);
            let Ok(file) = File::open(&path) else {
                continue;
            };
            // Files elsewhere are made after the description that names them is safe: one that
            // makes no sense names none.
            let found = read_description(&file, self.server, &path);
            let disks = found.map(|found| found.disk_paths(&self.directory));
            for disk in disks.unwrap_or_default() {
                if disk.is_file() {
                    system::remove(&disk)?;
                }
            }
            system::remove(&self.path(RECORDS))?;
            system::remove(&path)?;
            system::sync(&self.directory)?;
        }
        Ok(())
    }

    /// Makes all files, and puts them on stable storage. `files` counts the block files on each
    /// device.
    fn prepare(
        &self,
        (identity, options): (u64, &CreateOptions),
        files: &BTreeMap<u64, u64>,
    ) -> Result<()> {
        let mut blocks = u64::MAX;
        for home in &self.homes {
            let bytes = home.bytes(&self.directory, options, files, self.homes.len() as u64)?;
            blocks = blocks.min(bytes / options.block_bytes);
        }
        let homes = self.homes.iter();
        let disks = homes.map(|home| home.name().to_string()).collect();
        let description = describe((identity, options), self.server, blocks, disks);
        let wrong = |cause| {
            let error = Error::new(Kind::Schema, "making a volume", cause);
            error.at(&self.directory)
        };
        description.check().map_err(wrong)?;
        system::write(&self.path(MAKING), &description.to_json()?)?;
        system::sync(&self.directory)?;
        let bytes = blocks * options.block_bytes;
        for home in &self.homes {
            home.make(&self.directory, options.capacity.map(|_| bytes))?;
        }
        DiskRecords::create(&self.path(RECORDS))?;
        system::sync(&self.directory)?;
        system::rename(&self.path(MAKING), &self.path(READY))
    }

    /// Makes the prepared server a part of the volume.
    fn conclude(&self) -> Result<()> {
        system::rename(&self.path(READY), &self.path(DESCRIPTION))
    }
}

impl Home {
    /// Looks at a disk. `file` is the name of its block file; without one, the path is the
    /// directory of the server.
    fn find(path: &Path, file: Option<&str>) -> Result<Self> {
        let looking = |error| Error::io(&error, "looking for a disk", path);
        let path = std::path::absolute(path).map_err(looking)?;
        let found = std::fs::metadata(&path).map_err(looking)?;
        let text = |path: PathBuf| {
            let text = path.into_os_string().into_string();
            let cause = "the path is no text";
            text.map_err(|path| {
                Error::new(Kind::Schema, "looking for a disk", cause).at(Path::new(&path))
            })
        };
        if found.file_type().is_block_device() {
            let bytes = system::device_bytes(&path)?;
            return Ok(Self::Raw {
                name: text(path)?,
                bytes,
            });
        }
        if !found.is_dir() {
            let cause = "a disk is a directory or a raw device";
            return Err(Error::new(Kind::Schema, "looking for a disk", cause).at(&path));
        }
        let name = match file {
            Some(file) => text(path.join(file))?,
            None => "blocks-0".to_string(),
        };
        let device = found.dev();
        Ok(Self::Directory { name, device })
    }

    fn name(&self) -> &str {
        match self {
            Self::Directory { name, .. } | Self::Raw { name, .. } => name,
        }
    }

    /// The bytes that the disk has for blocks, one of `disks` of its server.
    fn bytes(
        &self,
        directory: &Path,
        options: &CreateOptions,
        files: &BTreeMap<u64, u64>,
        disks: u64,
    ) -> Result<u64> {
        let wanted = options.capacity.map(|bytes| bytes / disks);
        let too_small = |bytes: u64, wanted: u64| {
            let cause = format!("it has {bytes} bytes, and {wanted} are wanted");
            Error::new(Kind::Full, "making a volume", cause).at(Path::new(self.name()))
        };
        match self {
            Self::Raw { bytes, .. } => match wanted.unwrap_or(*bytes) {
                wanted if wanted > *bytes => Err(too_small(*bytes, wanted)),
                wanted => Ok(wanted),
            },
            Self::Directory { name, device } => match wanted {
                Some(wanted) => Ok(wanted),
                None => {
                    let free = system::free_bytes(&system::above(&directory.join(name)))?;
                    let sharers = files.get(device).copied().unwrap_or(1).max(1);
                    let share = (free - free / RECORDS_SHARE) / sharers;
                    match share < options.block_bytes {
                        true => Err(too_small(share, options.block_bytes)),
                        false => Ok(share.min(SPARSE_BYTES_MAX)),
                    }
                }
            },
        }
    }

    /// Makes the block file, and allocates it if it is to be. A raw device must be nobody else's.
    fn make(&self, directory: &Path, allocated: Option<u64>) -> Result<()> {
        let path = directory.join(self.name());
        if let Self::Raw { .. } = self {
            return Lock::claim(&path).map(|_| ());
        }
        let file = system::make_file(&path)?;
        if let Some(bytes) = allocated {
            system::allocate(&file, bytes, &path)?;
        }
        let synced = file.sync_all();
        synced.map_err(|error| Error::io(&error, "syncing", &path))?;
        system::sync(&system::above(&path))
    }
}
