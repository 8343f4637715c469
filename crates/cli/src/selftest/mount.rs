//! The check of FUSE: the volume of the check of servers is mounted by another process, and this
//! one uses it as any program uses files.
//!
//! The mount must not be left behind. Its process unmounts it as soon as its standard input ends,
//! so also if the self-test is killed; if that does not help, the check kills the process, which
//! ends all waits for it, and unmounts the place.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use penstock_engine::Kind;
use penstock_files::job::{JobOptions, open};
use penstock_mount::{MountOptions, mount as mount_at, removed};

use super::outcome::Outcome;
use super::part::{self, Part, Process};
use super::site::{Site, failed};
use super::space::sized;
use super::{mounts, servers};
use crate::failure::Failure;
use crate::output;

/// The name of the directory at which the volume is mounted.
const PLACE: &str = "mounted";
/// What the process says once the volume is mounted.
const MOUNTED: &str = "mounted";
/// The program by which users mount and unmount without being root.
const FUSERMOUNT: &str = "fusermount3";
/// The bytes of a file that is written through the mount.
const BYTES: usize = 1 << 20;

/// Mounts the volume until the standard input ends. Says that it is mounted, or why it cannot be.
pub(super) fn serve(directory: &Path) -> Result<(), Failure> {
    let template = servers::volume(directory)?;
    let fs = Arc::new(open(&template, None, None, &JobOptions::default(), None)?);
    removed::clear(&fs)?;
    let options = MountOptions {
        name: template,
        ..MountOptions::default()
    };
    match mount_at(fs.clone(), &directory.join(PLACE), &options) {
        Ok(mounted) => {
            output::text(&format!("{MOUNTED}\n"))?;
            part::wait_for_parent();
            match mounted.place().unmount() {
                Ok(()) => mounted.wait()?,
                // Only root may: the end of a mount asks fusermount, too.
                Err(_) => drop(mounted),
            }
        }
        Err(error) if matches!(error.kind, Kind::ReadOnly | Kind::Missing) => {
            output::text(&format!("{error}\n"))?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(fs.close()?)
}

/// Mounts the volume, uses it, and unmounts it.
pub(super) fn mount(site: &Site) -> Result<Outcome, Failure> {
    if let Some(reason) = missing() {
        return Ok(lacks(&reason));
    }
    servers::volume(site.directory())?;
    let place = site.path(PLACE);
    std::fs::create_dir(&place).map_err(|error| failed("making", &place, &error))?;
    let mut mount = Mount {
        process: Some(Part::Mount.start(site)?),
        place,
    };
    if let Some(refusal) = mount.refusal(site)? {
        return Ok(lacks(&refusal));
    }
    let place = mount.place.clone();
    site.aside("the mount, which is written and read", move || {
        use_files(&place)
    })?;
    mount.end(site)?;
    Ok(Outcome::Works(format!(
        "a volume was mounted, {} written and compared, and it was unmounted",
        sized(BYTES as u64)
    )))
}

/// What is missing for a mount, as far as can be seen before.
fn missing() -> Option<String> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = opened {
        return Some(format!("/dev/fuse cannot be opened ({error})"));
    }
    let is_root = Path::new("/proc/self")
        .metadata()
        .is_ok_and(|own| own.uid() == 0);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_program = std::env::split_paths(&path).any(|at| at.join(FUSERMOUNT).is_file());
    let cause = format!("{FUSERMOUNT} is not on the PATH, and this is not root");
    (!is_root && !has_program).then_some(cause)
}

fn lacks(reason: &str) -> Outcome {
    Outcome::Lacks(format!(
        "{reason}: `penstock mount` does not work here, all else does; the administrator can load \
         the module fuse and install {FUSERMOUNT}; a container must be given /dev/fuse and the \
         right to mount"
    ))
}

/// Writes a file at the mount, lists it, and reads it.
fn use_files(place: &Path) -> Result<(), Failure> {
    let (path, other) = (place.join("greeting"), place.join("renamed"));
    let bytes: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    std::fs::write(&path, &bytes).map_err(|error| failed("writing", &path, &error))?;
    std::fs::rename(&path, &other).map_err(|error| failed("renaming", &path, &error))?;
    let entries = std::fs::read_dir(place).map_err(|error| failed("listing", place, &error))?;
    let is_listed = entries.flatten().any(|entry| entry.path() == other);
    let found = std::fs::read(&other).map_err(|error| failed("reading", &other, &error))?;
    match is_listed && found == bytes {
        true => Ok(()),
        false => Err(Failure::failed(
            "a file at the mount is not listed, or not what was written",
        )),
    }
}

/// A mount, which is gone when this is dropped.
struct Mount {
    process: Option<Process>,
    place: PathBuf,
}

impl Mount {
    /// Waits until the volume is mounted; the reason if the system refuses that.
    fn refusal(&self, site: &Site) -> Result<Option<String>, Failure> {
        let process = self.process.as_ref();
        let line = process.map_or_else(
            || Err(Failure::failed("nobody mounts the volume")),
            |process| process.line(site, "the mount"),
        )?;
        Ok((line != MOUNTED).then_some(line))
    }

    /// Unmounts the volume, and waits for the end of its servers.
    fn end(&mut self, site: &Site) -> Result<(), Failure> {
        let ended = self.process.as_mut().map(|process| process.end(site));
        match self.is_there() {
            true => Err(Failure::failed("the volume was not unmounted")),
            false => ended.unwrap_or(Ok(())),
        }
    }

    fn is_there(&self) -> bool {
        mounts::below(&self.place).is_some()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that is killed answers no more, and who waits for the mount gets an error.
        drop(self.process.take());
        let ways = [[FUSERMOUNT, "-uz"], ["fusermount", "-uz"], ["umount", "-l"]];
        for [program, option] in ways {
            if !self.is_there() {
                return;
            }
            let mut command = Command::new(program);
            command.arg(option).arg(&self.place).stdin(Stdio::null());
            // The next one may do it.
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}
