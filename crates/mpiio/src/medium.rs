//! The open files of this process as the block files of its servers: a file of bytes, whose blocks
//! lie in it one behind the other from byte 0 on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Digest, Error, Kind, Opening, Result};
use penstock_layout::Block;
use penstock_machines::disk::device::DeviceId;
use penstock_machines::{BlockSieve, Medium, Opener, no_sieve};
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use crate::posix;

/// A file that this process has open.
#[derive(Debug)]
pub struct Open {
    /// The descriptor.
    pub descriptor: OwnedFd,
    /// The path by which it was opened.
    pub path: PathBuf,
    /// The device of its file system.
    pub device: DeviceId,
}

/// The open files of the ranks of one communicator, by the numbers of their parties.
#[derive(Debug, Default)]
pub struct OpenFiles(Mutex<FxHashMap<u64, Arc<Open>>>);

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<u64, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the file of a party.
    pub fn insert(&self, party: u64, file: Arc<Open>) {
        self.lock().insert(party, file);
    }

    /// Forgets the file of a party.
    pub fn remove(&self, party: u64) {
        self.lock().remove(&party);
    }

    fn of(&self, opening: &Opening) -> Result<Arc<Open>> {
        let party: u64 = decode(&opening.target)?;
        self.lock().get(&party).cloned().ok_or_else(|| {
            Error::new(
                Kind::Peer,
                "serving a collective call",
                "the file is not open here",
            )
        })
    }
}

/// The target of a request on the file of a party.
pub fn target(party: u64) -> Result<Vec<u8>> {
    encode(&party)
}

/// The openers of a communicator's nodes share its open files.
pub struct FileOpener(pub Arc<OpenFiles>);

impl Opener for FileOpener {
    fn device(&self, opening: &Opening) -> Result<DeviceId> {
        Ok(self.0.of(opening)?.device)
    }

    fn open(&self, opening: &Opening, _: bool) -> Result<Arc<dyn Medium>> {
        Ok(Arc::new(FileMedium(self.0.of(opening)?)))
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

/// A file as a medium.
struct FileMedium(Arc<Open>);

impl FileMedium {
    fn told(&self, error: Errno, doing: &str, offset: u64, bytes: u64) -> Error {
        let error = std::io::Error::from(error);
        Error::io(&error, doing, &self.0.path).in_bytes(offset..offset + bytes)
    }
}

impl Medium for FileMedium {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.write_part(block, 0, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let place = block.offset + offset;
        let written = posix::write_at(self.0.descriptor.as_fd(), place, data);
        written.map_err(|error| self.told(error, "writing", place, data.len() as u64))
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let place = block.offset + offset;
        let read = posix::read_at(self.0.descriptor.as_fd(), place, data);
        let read = read.map_err(|error| self.told(error, "reading", place, data.len() as u64))?;
        data[read..].fill(0); // behind the end of the file
        Ok(())
    }

    fn finish(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
