//! Making, opening and closing volumes.

use std::ffi::{c_int, c_void};

use penstock_engine::{Error, Kind, Result};
use penstock_files::disk::{CreateOptions, create};
use penstock_files::job::mpi::{self, JobArguments};
use penstock_files::job::{FileSystem, JobOptions, open};
use penstock_net::Call;

use super::{Fs, Volume};
use crate::border::{
    Ended, Many, Options, Place, Text, Versioned, answer, caught, enter, number, wrong,
};
use crate::meet::meet;
use crate::mpi::{Communicator, Given};

/// `penstock_volume_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VolumeOptions<'a> {
    pub size: usize,
    pub servers: u64,
    pub block_bytes: u64,
    pub capacity: u64,
    pub disk_count: usize,
    pub disks: Many<'a, Text<'a>>,
}

impl Versioned for VolumeOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        servers: 0,
        block_bytes: 0,
        capacity: 0,
        disk_count: 0,
        disks: Many::NULL,
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_volume_options";
}

/// `penstock_fs_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FsOptions<'a> {
    pub size: usize,
    pub servers: u64,
    pub dedicated: c_int,
    pub cache_bytes: u64,
    pub direct: c_int,
    pub keys: Text<'a>,
}

impl Versioned for FsOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        servers: 0,
        dedicated: 0,
        cache_bytes: 0,
        direct: 0,
        keys: Text::NULL,
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_fs_options";
}

/// A number, where 0 is the default.
pub(super) fn chosen(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// A number of servers.
pub(super) fn servers_of(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| wrong(format!("{number} servers are too many")))
}

/// The answer to a question that is not left to Penstock.
fn said(answer: c_int, what: &str) -> Result<bool> {
    match answer {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(wrong(format!(
            "{what} is {other}: use PENSTOCK_NO or PENSTOCK_YES"
        ))),
    }
}

/// What a client says of the volume that it opens: the arguments, and the keys for servers that
/// stand.
struct Asked {
    arguments: JobArguments,
    keys: Option<String>,
}

fn asked(path: Text<'_>, options: Options<'_, FsOptions<'_>>) -> Result<Asked> {
    let options = options.read()?;
    let template = path.needed("path")?.to_string();
    let keys = options.keys.optional("keys")?.map(str::to_string);
    let servers = chosen(options.servers).map(servers_of).transpose()?;
    let arguments = JobArguments {
        servers,
        is_dedicated: said(options.dedicated, "dedicated")?,
        options: JobOptions {
            cache_bytes: chosen(options.cache_bytes).unwrap_or(JobOptions::default().cache_bytes),
            is_direct: said(options.direct, "direct")?,
        },
        template,
    };
    // All ranks hear of a URL that makes no sense on one.
    Call::of_url(&arguments.template, keys.as_deref())?;
    Ok(Asked { arguments, keys })
}

/// Opens a volume in all ranks of a communicator.
fn open_all(given: Given, mine: impl FnOnce() -> Result<Asked>) -> Result<Option<FileSystem>> {
    let comm = Communicator::of(given)?;
    let mine = caught(mine).flat();
    let asked = meet(&comm, mine.map(|asked| (0, asked)), "opening a volume")?;
    mpi::open(
        (comm.api, comm.handle),
        comm.may_use_threads,
        Ok(asked.arguments),
        asked.keys.as_deref(),
        None,
    )
}

/// Opens a volume in this process alone.
fn open_alone(asked: &Asked) -> Result<FileSystem> {
    let JobArguments {
        template,
        servers,
        options,
        ..
    } = &asked.arguments;
    open(template, asked.keys.as_deref(), *servers, options, None)
}

fn opened(
    comm: Option<Given>,
    path: Text<'_>,
    options: Options<'_, FsOptions<'_>>,
    mut fs: Place<'_, Option<Box<Fs>>>,
) -> c_int {
    enter(|| {
        let mine = || {
            fs.check("the file system")?;
            asked(path, options)
        };
        let found = match comm {
            Some(given) => open_all(given, mine)?,
            None => Some(open_alone(&mine()?)?),
        };
        fs.put_handle(Fs::new(found));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_volume_create(
    path: Text<'_>,
    options: Options<'_, VolumeOptions<'_>>,
) -> c_int {
    enter(|| {
        let options = options.read()?;
        let disks = options.disks.needed(options.disk_count, "disks")?.iter();
        let disks = disks.map(|disk| disk.needed("a disk").map(str::to_string));
        let new = CreateOptions::new(servers_of(chosen(options.servers).unwrap_or(1))?);
        let new = CreateOptions {
            block_bytes: chosen(options.block_bytes).unwrap_or(new.block_bytes),
            capacity: chosen(options.capacity),
            disks: disks.collect::<Result<_>>()?,
            ..new
        };
        create(path.needed("path")?, &new)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_open(
    comm: *const c_void,
    path: Text<'_>,
    options: Options<'_, FsOptions<'_>>,
    fs: Place<'_, Option<Box<Fs>>>,
) -> c_int {
    let comm = (!comm.is_null()).then_some(Given::Address(comm));
    opened(comm, path, options, fs)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_open_f(
    comm: c_int,
    path: Text<'_>,
    options: Options<'_, FsOptions<'_>>,
    fs: Place<'_, Option<Box<Fs>>>,
) -> c_int {
    opened(Some(Given::Fortran(comm)), path, options, fs)
}

/// What an open volume says; -1 where there is none.
fn about(fs: Option<&Fs>, ask: impl FnOnce(&FileSystem) -> usize) -> i64 {
    let volume = fs.and_then(|fs| fs.0.as_deref());
    answer(-1, || volume.map_or(-1, |volume| number(ask(&volume.fs))))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_rank(fs: Option<&Fs>) -> i64 {
    about(fs, |fs| fs.rank().unwrap_or(usize::MAX))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_clients(fs: Option<&Fs>) -> i64 {
    about(fs, FileSystem::clients)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_servers(fs: Option<&Fs>) -> i64 {
    about(fs, FileSystem::servers)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_block_bytes(fs: Option<&Fs>) -> u64 {
    let volume = fs.and_then(|fs| fs.0.as_deref());
    answer(0, || volume.map_or(0, |volume| volume.fs.block_bytes()))
}

impl Volume {
    /// Closes the volume; a client that panics leaves.
    fn close(&self) -> Result<()> {
        let fs = self.fs()?;
        let closed = caught(|| fs.close());
        self.is_closed
            .store(true, std::sync::atomic::Ordering::Release);
        if let Ended::Panicked(error) = &closed {
            fs.leave(error);
        }
        closed.flat()
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_close(fs: Option<Box<Fs>>) -> c_int {
    enter(|| match fs.map(|fs| fs.0) {
        Some(Some(volume)) => volume.close(),
        Some(None) | None => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_leave(fs: Option<Box<Fs>>, cause: Text<'_>) {
    answer((), || {
        let Some(volume) = fs.and_then(|fs| fs.0) else {
            return;
        };
        let cause = cause.optional("cause").ok().flatten();
        let cause = cause.unwrap_or("the program does not say why");
        volume
            .is_closed
            .store(true, std::sync::atomic::Ordering::Release);
        volume
            .fs
            .leave(&Error::new(Kind::Peer, "leaving a volume", cause));
    });
}
