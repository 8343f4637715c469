//! Attached files, and the reads and writes that all clients make together.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_files::job::OpenFile;
use penstock_files::{FileChange, FilePath, Mode, Version};

use super::names::path_of;
use super::view::{ViewNumbers, memory_of, order_of, view_of};
use super::{Fs, Volume};
use crate::border::{Place, Text, answer, enter, needed};

/// `penstock_file`.
pub struct File {
    volume: Arc<Volume>,
    file: OpenFile,
}

impl File {
    /// The volume, for what the file opens.
    pub(super) fn volume(&self) -> Result<&Arc<Volume>> {
        self.volume.fs()?;
        Ok(&self.volume)
    }

    /// The file.
    ///
    /// # Errors
    /// [`Kind::Schema`] after the volume has been closed.
    pub(super) fn file(&self) -> Result<&OpenFile> {
        self.volume.fs()?;
        Ok(&self.file)
    }

    fn change(&self, change: FileChange) -> Result<()> {
        let path = self.file.attachment().object.path.clone();
        self.volume.fs()?.change(path, change)
    }
}

/// The access that C names.
fn mode_of(access: Text<'_>, is_reckless: c_int) -> Result<Mode> {
    let (reads, writes) = match access.needed("access")? {
        "r" => (true, false),
        "w" => (false, true),
        "r+" => (true, true),
        other => {
            let cause = format!("'{other}' is no access: use \"r\", \"w\" or \"r+\"");
            return Err(Error::new(Kind::Schema, "attaching a file", cause));
        }
    };
    Ok(Mode {
        reads,
        writes,
        is_reckless: is_reckless != 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_attach(
    fs: Option<&Fs>,
    path: Text<'_>,
    access: Text<'_>,
    is_reckless: c_int,
    mut file: Place<'_, Option<Box<File>>>,
) -> c_int {
    enter(|| {
        file.check("the file")?;
        let volume = needed(fs, "the file system")?.volume()?;
        let mode = mode_of(access, is_reckless)?;
        let attached = volume.fs()?.attach(path_of(path)?, mode)?;
        file.put_handle(File {
            volume: volume.clone(),
            file: attached,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_attach_all(
    fs: Option<&Fs>,
    path: Text<'_>,
    access: Text<'_>,
    is_reckless: c_int,
    mut file: Place<'_, Option<Box<File>>>,
) -> c_int {
    enter(|| {
        let volume = needed(fs, "the file system")?.volume()?;
        let given = || -> Result<(FilePath, Mode)> {
            file.check("the file")?;
            Ok((path_of(path)?, mode_of(access, is_reckless)?))
        };
        let attached = volume.together(given, |fs, given| {
            let mode = given.as_ref().map(|(_, mode)| *mode).unwrap_or_default();
            fs.attach_all(given.map(|(path, _)| path), mode)
        })?;
        file.put_handle(File {
            volume: volume.clone(),
            file: attached,
        });
        Ok(())
    })
}

/// A number that an attached file has; 0 without one.
fn about(file: Option<&File>, ask: impl FnOnce(&OpenFile) -> u64) -> u64 {
    answer(0, || file.map_or(0, |file| ask(&file.file)))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_cells(file: Option<&File>) -> u64 {
    about(file, |file| file.attachment().shape.cells)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_bsu_bytes(file: Option<&File>) -> u64 {
    about(file, |file| file.attachment().shape.bsu_bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_base(file: Option<&File>) -> u64 {
    about(file, |file| file.attachment().shape.base as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_checkpoint(file: Option<&File>) -> c_int {
    enter(|| needed(file, "the file")?.change(FileChange::Checkpoint))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_rollback(file: Option<&File>) -> c_int {
    enter(|| needed(file, "the file")?.change(FileChange::RollBack))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_sync(file: Option<&File>) -> c_int {
    enter(|| needed(file, "the file")?.file()?.sync())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_detach(file: Option<Box<File>>) -> c_int {
    enter(|| match file {
        Some(file) => file.file()?.clone().detach(),
        None => Ok(()),
    })
}

/// What one client moves in a collective read or write.
struct Share<'a> {
    view: Option<&'a ViewNumbers>,
    subfile: u64,
    order: c_int,
    offset: u64,
    memory: *mut c_void,
    bytes: usize,
}

fn move_all(
    file: Option<&File>,
    operation: Operation,
    share: &Share<'_>,
    mut moved: Place<'_, u64>,
) -> c_int {
    enter(|| {
        let file = needed(file, "the file")?;
        let given = || {
            let memory = memory_of(share.memory, share.bytes)?;
            let (view, order) = (view_of(share.view)?, order_of(share.order)?);
            let opened = file
                .file
                .open(view, share.subfile, order, Version::Active, None)?;
            Ok((opened, (share.offset, share.bytes as u64).into(), memory))
        };
        let done = file
            .volume
            .together(given, |_, given| file.file.access_all(operation, given))?;
        moved.put(done.bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_read_all(
    file: Option<&File>,
    view: Option<&ViewNumbers>,
    subfile: u64,
    order: c_int,
    offset: u64,
    memory: *mut c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    let share = Share {
        view,
        subfile,
        order,
        offset,
        memory,
        bytes,
    };
    move_all(file, Operation::Read, &share, moved)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_file_write_all(
    file: Option<&File>,
    view: Option<&ViewNumbers>,
    subfile: u64,
    order: c_int,
    offset: u64,
    memory: *const c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    let share = Share {
        view,
        subfile,
        order,
        offset,
        memory: memory.cast_mut(),
        bytes,
    };
    move_all(file, Operation::Write, &share, moved)
}
