//! A volume of parallel files as a file system of Linux, by FUSE.
//!
//! Ordinary programs see each file as one sequence of bytes, in *canonical order*: its BSUs go
//! round-robin to its cells. The name `mesh@1,1,1,8:3` opens subfile 3 of the view 1, 1, 1, 8 of
//! `mesh`.
//!
//! ```text
//! program | kernel: names and attributes for a second, pages of files | event loops | FileSystem
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `lib` | mounting, and the end of a mount |
//! | `face` | the requests of the kernel: what each becomes |
//! | `names` | looking up, making, renaming and removing |
//! | `attributes` | what `stat` shows, and what `chmod`, `truncate` and `touch` change |
//! | `data` | open files: reading, writing, syncing |
//! | `directories` | open directories |
//! | `extended` | extended attributes |
//! | `state` | what the event loops share |
//! | `open` | what is open |
//! | `tree` | the paths of inodes |
//! | `views` | names that open a view |
//! | [`removed`] | what was removed while it was open |
//! | `users` | for whom a request is done |
//! | `errno` | errors as numbers |
//! | [`signals`] | the end of a mount by a signal |
//!
//! The kernel checks permissions on the way to an object, sticky directories and the like, with
//! attributes that are at most as old as [`MountOptions::cached`]; servers check the object and its
//! directory again, for the user of the request. What a mount does with caches is in
//! `docs/mount.md`.

#![warn(missing_docs)]

mod attributes;
mod data;
mod directories;
mod errno;
mod extended;
mod face;
mod names;
mod open;
pub mod removed;
pub mod signals;
mod state;
mod tree;
mod users;
mod views;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use penstock_engine::{Error, Kind, Result};
use penstock_files::job::FileSystem;
use rustix::mount::{UnmountFlags, unmount};

use state::{Mount, REQUEST_BYTES_MAX};

/// The options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Whether nothing can be changed.
    pub is_read_only: bool,
    /// Whether other users than the one who mounts may use it.
    pub is_for_all: bool,
    /// The number of event loops, each a thread.
    pub threads: usize,
    /// The time for which the kernel may take names and attributes as they were.
    pub cached: Duration,
    /// The name of the volume in the table of mounts.
    pub name: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            is_read_only: false,
            is_for_all: false,
            threads: 4,
            cached: Duration::from_secs(1),
            name: "penstock".to_string(),
        }
    }
}

/// A volume that is mounted.
pub struct Mounted {
    session: BackgroundSession,
    place: Place,
}

/// The place of a mount, by which anybody may end it.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    /// The device of the mount.
    device: u64,
}

/// Mounts a volume at a directory.
///
/// # Errors
/// [`Kind::ReadOnly`] without the right to mount; [`Kind::Missing`] when there is no directory, or
/// no FUSE; those of the system.
pub fn mount(fs: Arc<FileSystem>, at: &Path, options: &MountOptions) -> Result<Mounted> {
    let failed = |error: std::io::Error| Error::io(&error, "mounting", at);
    let path = at.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(Error::new(Kind::Schema, "mounting", "it is no directory").at(at));
    }
    if !Path::new("/dev/fuse").exists() {
        let cause = "there is no /dev/fuse: the kernel module fuse is not loaded";
        return Err(Error::new(Kind::Missing, "mounting", cause).at(at));
    }
    let shared = Mount::new(fs, options.cached);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.replace(',', "_")),
        MountOption::Subtype("penstock".to_string()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        match options.is_read_only {
            true => MountOption::RO,
            false => MountOption::RW,
        },
    ];
    config.acl = match options.is_for_all {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config.n_threads = Some(options.threads.max(1));
    let session = Session::new(face::Face(shared), &path, &config);
    let session = session.and_then(Session::spawn).map_err(failed)?;
    let device = path.metadata().map_err(failed)?.dev();
    let place = Place { path, device };
    place.read_far_ahead();
    Ok(Mounted { session, place })
}

impl Mounted {
    /// The place of the mount.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Waits until the mount has ended: somebody has unmounted it, and nobody uses it any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(self) -> Result<()> {
        match self.session.join() {
            // The kernel aborts the connection at the end of a mount. An event loop that was taking
            // a request at this moment sees the abort, the others see that the device has gone.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(()),
            ended => ended.map_err(|error| Error::io(&error, "serving a mount", &self.place.path)),
        }
    }
}

impl Place {
    /// Takes the mount out of the tree of files. Programs that use it may go on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn unmount(&self) -> Result<()> {
        unmount(&self.path, UnmountFlags::DETACH)
            .map_err(|error| Error::io(&error.into(), "unmounting", &self.path))
    }

    fn numbers(&self) -> (u32, u32) {
        let device = self.device;
        (rustix::fs::major(device), rustix::fs::minor(device))
    }

    /// Lets the kernel read as far ahead as one request may be long, where this process may say so.
    fn read_far_ahead(&self) {
        let (major, minor) = self.numbers();
        let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        let _ = std::fs::write(file, (REQUEST_BYTES_MAX >> 10).to_string());
    }
}
