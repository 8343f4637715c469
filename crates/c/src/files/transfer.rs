//! Import and export.

use std::ffi::c_int;
use std::path::Path;

use penstock_engine::Result;
use penstock_files::FilePath;
use penstock_files::job::FileSystem;
use penstock_files::transfer::{self, Party, Transferred};

use super::Fs;
use super::names::{base_of, mode_of, path_of};
use super::view::{ViewNumbers, order_of, version_of, view_of};
use super::volume::chosen;
use crate::border::{Options, Place, Text, Versioned, enter, needed};

/// The memory that a client may take, where nobody says otherwise.
const MEMORY_BYTES: u64 = 16 << 20;

/// `penstock_transfer_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TransferOptions<'a> {
    pub size: usize,
    pub view: Option<&'a ViewNumbers>,
    pub subfile: u64,
    pub order: c_int,
    pub of_checkpoint: c_int,
    pub memory_bytes: u64,
    pub cells: u64,
    pub bsu_bytes: u64,
    pub base: i64,
    pub mode: u32,
    pub overwrite: c_int,
}

impl Versioned for TransferOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        view: None,
        subfile: 0,
        order: 0,
        of_checkpoint: 0,
        memory_bytes: 0,
        cells: 0,
        bsu_bytes: 0,
        base: -1,
        mode: 0o644,
        overwrite: 0,
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_transfer_options";
}

/// What a client says of a transfer.
struct Asked<'a> {
    local: &'a Path,
    path: FilePath,
    options: transfer::TransferOptions,
    structure: (Option<u64>, Option<u64>, Option<usize>),
    mode: u16,
    replaces: bool,
}

/// What C gives of a transfer.
struct Told<'a> {
    local: Text<'a>,
    path: Text<'a>,
    options: Options<'a, TransferOptions<'a>>,
    party: Party,
}

impl<'a> Told<'a> {
    fn asked(self) -> Result<Asked<'a>> {
        let options = self.options.read()?;
        let moved = transfer::TransferOptions {
            view: view_of(options.view)?,
            subfile: options.subfile,
            order: order_of(options.order)?,
            version: version_of(options.of_checkpoint),
            memory_bytes: chosen(options.memory_bytes).unwrap_or(MEMORY_BYTES),
            party: self.party,
        };
        Ok(Asked {
            local: self.local.path("the local file")?,
            path: path_of(self.path)?,
            options: moved,
            structure: (
                chosen(options.cells),
                chosen(options.bsu_bytes),
                base_of(options.base)?,
            ),
            mode: mode_of(options.mode)?,
            replaces: options.overwrite != 0,
        })
    }

    /// Moves the bytes, after all clients that take part have agreed to do so.
    fn run(
        self,
        fs: Option<&Fs>,
        mut bytes: Place<'_, u64>,
        act: impl FnOnce(&FileSystem, &Asked<'_>) -> Result<Transferred>,
    ) -> c_int {
        enter(|| {
            let volume = needed(fs, "the file system")?.volume()?;
            let party = self.party;
            let moved = volume.together(
                || self.asked(),
                |fs, asked| {
                    let told = asked.as_ref().map(|_| 0).map_err(Clone::clone);
                    party.agree(fs, told)?;
                    act(fs, &asked?)
                },
            )?;
            bytes.put(moved.moved);
            Ok(())
        })
    }
}

fn import(told: Told<'_>, fs: Option<&Fs>, bytes: Place<'_, u64>) -> c_int {
    told.run(fs, bytes, |fs, asked| {
        let (cells, bsu_bytes, base) = asked.structure;
        let shape = (fs.shape(cells, bsu_bytes, base), asked.mode);
        let (local, path, options) = (asked.local, &asked.path, &asked.options);
        transfer::import(fs, local, path, shape, options, &mut |_, _| Ok(()))
    })
}

fn export(told: Told<'_>, fs: Option<&Fs>, bytes: Place<'_, u64>) -> c_int {
    told.run(fs, bytes, |fs, asked| {
        let local = (asked.local, asked.replaces);
        let (path, options) = (&asked.path, &asked.options);
        transfer::export(fs, path, local, options, &mut |_, _| Ok(()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_import(
    fs: Option<&Fs>,
    local: Text<'_>,
    path: Text<'_>,
    options: Options<'_, TransferOptions<'_>>,
    bytes: Place<'_, u64>,
) -> c_int {
    let party = Party::Alone;
    let told = Told {
        local,
        path,
        options,
        party,
    };
    import(told, fs, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_import_all(
    fs: Option<&Fs>,
    local: Text<'_>,
    path: Text<'_>,
    options: Options<'_, TransferOptions<'_>>,
    bytes: Place<'_, u64>,
) -> c_int {
    let party = Party::All;
    let told = Told {
        local,
        path,
        options,
        party,
    };
    import(told, fs, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_export(
    fs: Option<&Fs>,
    path: Text<'_>,
    local: Text<'_>,
    options: Options<'_, TransferOptions<'_>>,
    bytes: Place<'_, u64>,
) -> c_int {
    let party = Party::Alone;
    let told = Told {
        local,
        path,
        options,
        party,
    };
    export(told, fs, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_export_all(
    fs: Option<&Fs>,
    path: Text<'_>,
    local: Text<'_>,
    options: Options<'_, TransferOptions<'_>>,
    bytes: Place<'_, u64>,
) -> c_int {
    let party = Party::All;
    let told = Told {
        local,
        path,
        options,
        party,
    };
    export(told, fs, bytes)
}
