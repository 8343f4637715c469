//! The check of standing servers: a process serves a volume of parallel files, and this one is its
//! client, until the servers are told to end.

use std::path::{Path, PathBuf};

use clap::Parser;
use penstock_engine::{Error, Kind, Operation, Result};
use penstock_files::disk::{self, CreateOptions};
use penstock_files::fsck::{FsckOptions, fsck_volume};
use penstock_files::job::{FileSystem, JobOptions, Memory, OpenView, open};
use penstock_files::{FilePath, Mode, Version};
use penstock_layout::{SubfileOrder, View, exact};

use super::outcome::Outcome;
use super::part::{Part, Process};
use super::site::{Scratch, Site, failed};
use super::space::sized;
use crate::arguments::{Command, Penstock};
use crate::failure::Failure;
use crate::serve;

/// The number of the volume's servers.
const SERVERS: usize = 2;
/// The name of the volume.
const VOLUME: &str = "volume";
/// The name of the file that tells the servers where to listen.
const ADDRESS: &str = "address";
/// The most bytes of a socket's path: Linux takes 107.
const SOCKET_BYTES_MAX: usize = 100;
/// The cells of the file, each a subfile of the view in which it is written.
const CELLS: u64 = 4;
/// The bytes of a BSU.
const BSU_BYTES: u64 = 4096;
/// The BSUs of a cell.
const BSUS: u64 = 64;

/// Makes the volume if it is not there, and gives its path.
pub(super) fn volume(directory: &Path) -> std::result::Result<String, Failure> {
    let path = directory.join(VOLUME);
    let no_text = || Failure::input(format!("{}: the path is no text", path.display()));
    let template = path.to_str().ok_or_else(no_text)?.to_string();
    match disk::servers(&template) {
        Ok(_) => {}
        Err(error) if error.kind == Kind::Missing => {
            disk::create(&template, &CreateOptions::new(SERVERS))?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(template)
}

/// Serves the volume until a signal comes, as `penstock serve` does.
pub(super) fn serve(directory: &Path) -> std::result::Result<(), Failure> {
    let (volume, from) = (directory.join(VOLUME), directory.join(ADDRESS));
    let address = std::fs::read_to_string(&from);
    let address = address.map_err(|error| failed("reading", &from, &error))?;
    let words = ["penstock".into(), "serve".into(), volume.into_os_string()];
    let words = words.into_iter().chain(["--listen".into(), address.into()]);
    match Penstock::try_parse_from(words).map(|asked| asked.command) {
        Ok(Command::Serve(asked)) => serve::serve(&asked),
        Ok(_) => Err(Failure::failed("this is no command to serve")),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// The socket of the servers. If the path in the directory is too long, the socket is in a
/// directory of its own, which is removed with this.
struct Socket {
    path: PathBuf,
    _directory: Option<Scratch>,
}

impl Socket {
    fn new(site: &Site) -> std::result::Result<Self, Failure> {
        let path = site.path("socket");
        if path.as_os_str().len() <= SOCKET_BYTES_MAX {
            let _directory = None;
            return Ok(Self { path, _directory });
        }
        let directory = Scratch::below(&std::env::temp_dir())?;
        Ok(Self {
            path: directory.path().join("socket"),
            _directory: Some(directory),
        })
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}

/// Starts servers, writes and reads a file, ends the servers, and checks the volume.
pub(super) fn servers(site: &Site) -> std::result::Result<Outcome, Failure> {
    let template = volume(site.directory())?;
    let socket = Socket::new(site)?;
    let (url, to) = (socket.url(), site.path(ADDRESS));
    std::fs::write(&to, &url).map_err(|error| failed("writing", &to, &error))?;
    let mut server = Part::Server.start(site)?;
    let fs = connect(site, &socket, &mut server)?;
    site.note("writing and reading a parallel file");
    let bytes = write_and_read(&fs)?;
    fs.close()?;
    drop(fs);
    server.end(site)?;
    site.note("checking the volume");
    let options = FsckOptions {
        reads_data: true,
        mends: false,
    };
    let checked = fsck_volume(&template, &options, &mut |_, _| Ok(()))?;
    if let Some(finding) = checked.report.findings.first() {
        return Err(Failure::failed(format!("fsck has found: {finding}")));
    }
    Ok(Outcome::Works(format!(
        "{} through a view, {CELLS} subfiles at once, compared; SIGTERM ended them, fsck found \
         nothing",
        sized(bytes)
    )))
}

/// Opens the volume of a server process that has just been started.
fn connect(
    site: &Site,
    socket: &Socket,
    server: &mut Process,
) -> std::result::Result<FileSystem, Failure> {
    site.wait_for("the socket of the servers", || {
        server.check()?;
        Ok(socket.path.exists().then_some(()))
    })?;
    let (url, interrupt) = (socket.url(), site.interrupt());
    site.wait_for("the servers", || {
        server.check()?;
        let options = JobOptions::default();
        match open(&url, None, None, &options, Some(interrupt.clone())) {
            Ok(fs) => Ok(Some(fs)),
            // They have made their socket, and do not listen yet.
            Err(error) if matches!(error.kind, Kind::Peer | Kind::Missing | Kind::Io) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
}

/// The byte at an offset of the file in canonical order.
fn byte(offset: u64) -> u8 {
    exact::<u8>(offset * 31 % 251)
}

/// The bytes of a subfile, which is a cell: every fourth BSU of the file.
fn subfile(cell: u64) -> Vec<u8> {
    let bsus = (0..BSUS).map(|nth| (nth * CELLS + cell) * BSU_BYTES);
    bsus.flat_map(|begin| (begin..begin + BSU_BYTES).map(byte))
        .collect()
}

/// Writes a file through a view, all subfiles at once, and reads it in canonical order. Gives its
/// bytes.
fn write_and_read(fs: &FileSystem) -> Result<u64> {
    let path = FilePath::new("/mesh")?;
    fs.create(path.clone(), (CELLS, BSU_BYTES, None), 0o644)?;
    let mode = Mode {
        reads: true,
        writes: true,
        is_reckless: false,
    };
    let file = fs.attach(path, mode)?;
    let wrong = |error| Error::new(Kind::Schema, "opening a view", error);
    let cells = View::new(1, 1, 1, CELLS).map_err(wrong)?;
    let open = |view, number| file.open(view, number, SubfileOrder::Block, Version::Active, None);
    let views = (0..CELLS).map(|cell| open(cells, cell));
    let views = views.collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let writers = views.iter().zip(0..).map(|(view, cell)| {
            scope.spawn(move || access(view, Operation::Write, &mut subfile(cell)))
        });
        let writers: Vec<_> = writers.collect();
        let crashed = || Error::new(Kind::Peer, "writing a subfile", "a thread has crashed");
        let joined = |writer: std::thread::ScopedJoinHandle<'_, _>| writer.join();
        let ended = writers.into_iter().map(joined);
        let ended = ended.map(|joined| joined.unwrap_or_else(|_| Err(crashed())));
        ended.collect::<Result<Vec<()>>>()
    })?;
    let bytes = CELLS * BSUS * BSU_BYTES;
    let mut found = vec![0; exact::<usize>(bytes)];
    access(&open(View::striped(), 0)?, Operation::Read, &mut found)?;
    let wrong = (0..bytes)
        .zip(&found)
        .find(|(offset, found)| **found != byte(*offset));
    match wrong {
        None => Ok(bytes),
        Some((offset, found)) => {
            let cause = format!("byte {offset} is {found}, and {} was written", byte(offset));
            Err(Error::new(
                Kind::Damaged,
                "comparing a parallel file",
                cause,
            ))
        }
    }
}

/// Moves all of `data` from or to the beginning of a subfile.
fn access(view: &OpenView, operation: Operation, data: &mut [u8]) -> Result<()> {
    let bytes = data.len() as u64;
    // SAFETY: the data outlive the access, and nobody else uses them.
    let memory = unsafe { Memory::new(data.as_mut_ptr(), bytes, None) };
    let moved = view.access(operation, 0, memory)?.bytes;
    match moved == bytes {
        true => Ok(()),
        false => {
            let cause = format!("{moved} bytes of {bytes} were moved");
            Err(Error::new(Kind::Damaged, "accessing a subfile", cause))
        }
    }
}
