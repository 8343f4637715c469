//! A check of a volume on real disks that nobody has open.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::executor::block_on;
use penstock_engine::{Error, Kind, Opening, Result};
use penstock_layout::exact;
use penstock_machines::{Medium, Opener};

use super::check::{check, position};
use super::finding::{Finding, Report};
use super::mend::{BlockCopy, mend};
use super::model::Model;
use super::{Layout, ServerRecords};
use crate::disk::{self, BlockOpener, ServerDisk};
use crate::names::Names;
use crate::volume::records::RecordStore;

/// The options of a check of a volume on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsckOptions {
    /// Whether all blocks are read, and compared with their checksums.
    pub reads_data: bool,
    /// Whether what is found is mended, as far as it can be.
    pub mends: bool,
}

/// What a check of a volume on disk has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What was found.
    pub report: Report,
    /// What a second check has found after the mending, if there was one.
    pub mended: Option<Report>,
}

/// A volume that is open to be checked, and nobody else's meanwhile.
struct OpenVolume {
    layout: Layout,
    disks: Vec<ServerDisk>,
}

/// Checks a volume that nobody has open. `tell` hears how many bytes of all blocks have been
/// read.
///
/// # Errors
/// As [`disk::open`], and those of disks; an error of `tell`.
pub fn fsck_volume(
    template: &str,
    options: &FsckOptions,
    tell: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Checked> {
    let volume = OpenVolume::open(template)?;
    let records = volume.records()?;
    let mut report = check(&volume.layout, &records);
    if options.reads_data {
        volume.read_blocks(&records, &mut report, tell)?;
    }
    if !options.mends || report.findings.is_empty() {
        return Ok(Checked {
            report,
            mended: None,
        });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let mending = mend(&volume.layout, &records, now)?;
    volume.copy(&mending.copies)?;
    // A crash between the commits of two servers leaves what another mending ends.
    for (disk, changes) in volume.disks.iter().zip(mending.changes) {
        if !changes.is_empty() {
            block_on(disk.records.commit(changes))?;
        }
    }
    let records = volume.records()?;
    let mut after = check(&volume.layout, &records);
    if options.reads_data {
        volume.read_blocks(&records, &mut after, tell)?;
    }
    Ok(Checked {
        report,
        mended: Some(after),
    })
}

impl OpenVolume {
    fn open(template: &str) -> Result<Self> {
        let first = disk::describe(template, 0)?;
        let disks = (0..disk::servers(template)?).map(|server| disk::open(template, server));
        let disks = disks.collect::<Result<Vec<ServerDisk>>>()?;
        for ServerDisk { description, .. } in &disks {
            let of = |d: &disk::Description| (d.identity, d.servers, d.block_bytes, d.hash_bits);
            if of(description) != of(&first) {
                let server = description.server;
                let cause = format!("server {server} is of another volume than server 0");
                return Err(Error::new(Kind::Mismatch, "checking a volume", cause));
            }
        }
        let places = disks
            .iter()
            .map(|disk| disk.blocks * disk.openings.len() as u64);
        Ok(Self {
            layout: Layout {
                names: Names {
                    servers: first.servers,
                    hash_bits: first.hash_bits,
                },
                block_bytes: first.block_bytes,
                places: places.collect(),
                owner: first.owner,
            },
            disks,
        })
    }

    fn records(&self) -> Result<Vec<ServerRecords>> {
        let loaded = self.disks.iter().map(|disk| block_on(disk.records.load()));
        loaded.collect()
    }

    /// Reads all blocks, server after server in the order of their places.
    fn read_blocks(
        &self,
        records: &[ServerRecords],
        report: &mut Report,
        tell: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let model = Model::read(&self.layout, records);
        let mut buffer = vec![0; exact::<usize>(self.layout.block_bytes)];
        let all: u64 = (0..self.disks.len())
            .map(|server| model.blocks(server).count() as u64)
            .sum();
        let mut done = 0;
        for (server, disk) in self.disks.iter().enumerate() {
            let media = Media::open(disk)?;
            let places = self.layout.places[server];
            let mut blocks: Vec<_> = model.blocks(server).collect();
            blocks.sort_unstable_by_key(|(_, stored)| stored.place);
            for (key, stored) in blocks {
                done += 1;
                let block_bytes = self.layout.block_bytes;
                tell(done * block_bytes, all * block_bytes)?;
                if stored.place >= places {
                    continue; // that has been found
                }
                let cause = match media.read(stored.place, &mut buffer) {
                    Ok(()) => {
                        let found = crc32c::crc32c(&buffer);
                        report.numbers.read += 1;
                        (found != stored.sum).then(|| {
                            format!(
                                "its checksum is {found:08x}, and should be {:08x}",
                                stored.sum
                            )
                        })
                    }
                    Err(error) => Some(error.to_string()),
                };
                report
                    .findings
                    .extend(cause.map(|cause| Finding::DamagedBlock {
                        block: position(&model, server, key),
                        place: stored.place,
                        cause,
                    }));
            }
        }
        Ok(())
    }

    /// Copies blocks, and puts them on stable storage.
    fn copy(&self, copies: &[BlockCopy]) -> Result<()> {
        let mut buffer = vec![0; exact::<usize>(self.layout.block_bytes)];
        for (server, disk) in self.disks.iter().enumerate() {
            let mut own = copies
                .iter()
                .filter(|copy| copy.server == server)
                .peekable();
            if own.peek().is_none() {
                continue;
            }
            let media = Media::open(disk)?;
            for copy in own {
                media.read(copy.from, &mut buffer)?;
                media.write(copy.to, &buffer)?;
            }
            for (medium, _) in &media.0 {
                medium.finish(true)?;
            }
        }
        Ok(())
    }
}

/// The open disks of a server.
struct Media<'a>(Vec<(Arc<dyn Medium>, &'a Opening)>);

impl<'a> Media<'a> {
    fn open(disk: &'a ServerDisk) -> Result<Self> {
        let opener = BlockOpener::cached();
        let openings = disk.openings.iter();
        let media = openings.map(|opening| Ok((opener.open(opening, false)?, opening)));
        Ok(Self(media.collect::<Result<_>>()?))
    }

    /// The disk of a place, and the block on it.
    fn at(&self, place: u64) -> Result<(&dyn Medium, penstock_layout::Block)> {
        let disks = self.0.len() as u64;
        let (medium, opening) = &self.0[exact::<usize>(place % disks)];
        let block = opening.disk.block_at(0, place / disks);
        let none = || {
            Error::new(
                Kind::Damaged,
                "looking for a block",
                format!("place {place}"),
            )
        };
        Ok((&**medium, block.ok_or_else(none)?))
    }

    fn read(&self, place: u64, buffer: &mut [u8]) -> Result<()> {
        let (medium, block) = self.at(place)?;
        medium.read(&block, buffer)
    }

    fn write(&self, place: u64, buffer: &[u8]) -> Result<()> {
        let (medium, block) = self.at(place)?;
        medium.write(&block, buffer)
    }
}
