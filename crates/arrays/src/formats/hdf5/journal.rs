//! Changes of a file's metadata that a crash does not halve.
//!
//! A file that is there is changed in place: others may have it open, and a copy of it may be
//! large. New elements lie behind the former end of the file, where no reader looks. So do new
//! metadata. Changes of what is there are first written to a journal in the temporary beside the
//! file, and then to the file: first the superblock, with the new end, and then the rest. So the
//! file is the old or the new one for as long as possible, also for programs that know nothing of
//! the journal. Where a process was killed in between, those of Penstock look at the journal: a
//! reader sees the file with the changes over it, and a writer makes them first.
//!
//! ```text
//! .run.h5~.penstock/
//!   journal        the file's length; of each run its place, the new and the old bytes; a sum
//! ```
//!
//! A journal counts while each run of the file is the old or the new one, or the beginning of the
//! new and the end of the old one: otherwise another program has changed the file since. A power
//! failure may leave anything in a run. After one, a journal also counts if the file was last
//! written when the journal was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crc32c::crc32c;
use penstock_engine::{Error, Result};
use penstock_hdf5::Changes;

use crate::fs::files::{self, read_if_there};
use crate::fs::ops;
use crate::fs::temporary::Temporary;

/// The name of the journal in the temporary.
pub(crate) const JOURNAL: &str = "journal";

/// The time in which changes are made that a journal holds.
const MAKING: Duration = Duration::from_secs(10);

/// Changes of a file, with what they replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    /// The run of the machine in which the journal was made.
    boot: u64,
    /// The length of the file afterwards.
    bytes: u64,
    runs: Vec<Run>,
}

/// A run of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    at: u64,
    new: Vec<u8>,
    /// What was there before; less where the file ended.
    old: Vec<u8>,
}

impl Journal {
    /// The changes of a file that had `bytes` bytes before new elements were put behind them.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(changes: Changes, file: &File, bytes: u64, path: &Path) -> Result<Self> {
        let mut runs = Vec::new();
        for (at, new) in changes.writes {
            let there = bytes.saturating_sub(at).min(new.len() as u64);
            let mut old = files::zeros(there)?;
            files::read_at(file, &mut old, at, path)?;
            runs.push(Run { at, new, old });
        }
        // What is behind comes first; then the superblock, which has the first place of all.
        runs.sort_by_key(|run| (!run.old.is_empty(), run.at));
        Ok(Self {
            boot: ops::boot(),
            bytes: changes.bytes,
            runs,
        })
    }

    /// Puts the journal on stable storage, before its changes are made.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn keep(&self, temporary: &Temporary) -> Result<()> {
        // The journal comes by a rename: there is all of it, or nothing.
        let new = temporary.beside("journal.new");
        files::write_synced(&new, &self.encode())?;
        files::rename(&new, &temporary.beside(JOURNAL))?;
        temporary.sync()
    }

    /// Makes the changes, and syncs the file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn make(&self, file: &File, path: &Path) -> Result<()> {
        self.make_behind(file, path)?;
        self.make_within(file, path)
    }

    /// Makes the changes behind the former end, where nobody looks, and syncs the file: elements
    /// that have passed through the library are there before any reader sees them.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn make_behind(&self, file: &File, path: &Path) -> Result<()> {
        if files::length(file, path)? < self.bytes {
            ops::set_len(file, self.bytes, path)
                .map_err(|e| Error::io(&e, "writing the metadata of", path))?;
        }
        self.make_runs(|run| run.old.is_empty(), file, path)
    }

    /// Makes the other changes, and syncs the file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn make_within(&self, file: &File, path: &Path) -> Result<()> {
        self.make_runs(|run| !run.old.is_empty(), file, path)
    }

    fn make_runs(&self, are_meant: fn(&&Run) -> bool, file: &File, path: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "writing the metadata of", path);
        for run in self.runs.iter().filter(are_meant) {
            ops::write_all_at(file, &run.new, run.at, path).map_err(failed)?;
        }
        // What the metadata lead to is there before them, also after a power failure.
        ops::sync(file, path).map_err(failed)
    }

    /// The journal of changes of a file that a killed process has perhaps not all made.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn left(path: &Path) -> Result<Option<Self>> {
        let place = Temporary::path_of(path).map(|temporary| temporary.join(JOURNAL));
        let Some(place) = place.filter(|place| place.exists()) else {
            return Ok(None);
        };
        let Some(journal) = read_if_there(&place)?.and_then(|bytes| Self::decode(&bytes)) else {
            return Ok(None);
        };
        let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
        let was_written_then = || {
            let written = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified());
            let (file, journal) = (written(path), written(&place));
            matches!((file, journal), (Ok(file), Ok(journal)) if file <= journal + MAKING)
        };
        let counts = journal.is_of(&file) || (journal.boot != ops::boot() && was_written_then());
        Ok(counts.then_some(journal))
    }

    /// The changes, as if they were made.
    pub(crate) fn changes(&self) -> Changes {
        let runs = self.runs.iter();
        Changes {
            writes: runs.map(|run| (run.at, run.new.clone())).collect(),
            bytes: self.bytes,
        }
    }

    /// Whether nobody else has changed the file since.
    fn is_of(&self, file: &File) -> bool {
        self.runs.iter().all(|run| {
            let mut there = vec![0; run.old.len()];
            let new = &run.new[..run.old.len()];
            let same = |(a, b): (&[u8], &[u8])| a.iter().zip(b).take_while(|(a, b)| a == b).count();
            file.read_exact_at(&mut there, run.at).is_ok() && {
                let begun = same((&there, new));
                there[begun..] == run.old[begun..]
            }
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.boot, self.bytes].map(u64::to_le_bytes).concat();
        // What is behind the former end is there before the journal.
        let within = self.runs.iter().filter(|run| !run.old.is_empty());
        for Run { at, new, old } in within {
            bytes.extend(
                [*at, new.len() as u64, old.len() as u64]
                    .map(u64::to_le_bytes)
                    .as_flattened(),
            );
            bytes.extend(new);
            bytes.extend(old);
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a journal. One that is damaged was never whole, and none of its changes were made.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c(bytes) != u32::from_le_bytes(*sum) {
            return None;
        }
        let (boot, rest) = bytes.split_first_chunk::<8>()?;
        let (length, mut rest) = rest.split_first_chunk::<8>()?;
        let mut runs = Vec::new();
        while !rest.is_empty() {
            let mut number = || {
                let (number, after) = rest.split_first_chunk::<8>()?;
                rest = after;
                Some(u64::from_le_bytes(*number))
            };
            let (at, new, old) = (number()?, number()?, number()?);
            at.checked_add(new).filter(|&end| end <= i64::MAX as u64)?;
            let (new, after) = rest.split_at_checked(usize::try_from(new).ok()?)?;
            let (old, after) = after.split_at_checked(usize::try_from(old).ok()?)?;
            let is_right = old.len() <= new.len();
            is_right.then(|| {
                runs.push(Run {
                    at,
                    new: new.to_vec(),
                    old: old.to_vec(),
                })
            })?;
            rest = after;
        }
        let bytes = u64::from_le_bytes(*length);
        let boot = u64::from_le_bytes(*boot);
        (bytes <= i64::MAX as u64).then_some(Self { boot, bytes, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let run = |at, new: &[u8], old: &[u8]| Run {
            at,
            new: new.to_vec(),
            old: old.to_vec(),
        };
        Journal {
            boot: 7,
            bytes: 12_345,
            runs: vec![
                run(1 << 40, &[2, 3], &[]),
                run(0, &[1; 48], &[0; 48]),
                run(100, &[7, 8, 9], &[4, 5]),
            ],
        }
    }

    #[test]
    fn a_journal_is_whole_or_none() {
        let whole = journal().encode();
        let mut within = journal();
        within.runs.retain(|run| !run.old.is_empty());
        assert_eq!(Journal::decode(&whole), Some(within));
        for cut in 0..whole.len() {
            assert!(Journal::decode(&whole[..cut]).is_none(), "{cut}");
            let mut wrong = whole.clone();
            wrong[cut] ^= 0x10;
            assert!(Journal::decode(&wrong).is_none(), "{cut}");
        }
        for (at, new, old) in [
            (0, u64::MAX, 0),
            (u64::MAX, 1, 0),
            (0, 0, 1),
            (0, 1 << 50, 0),
        ] {
            let mut bytes = [7, 1, at, new, old].map(u64::to_le_bytes).concat();
            bytes.push(0);
            bytes.extend(crc32c(&bytes).to_le_bytes());
            assert!(Journal::decode(&bytes).is_none(), "{at} {new} {old}");
        }
    }

    #[test]
    fn a_journal_counts_until_others_change_the_file() {
        let file = tempfile::tempfile().unwrap();
        let put = |bytes: &[u8], at| file.write_all_at(bytes, at).unwrap();
        put(&[0; 100], 0);
        put(&[4, 5], 100);
        assert!(journal().is_of(&file));
        put(&[1; 20], 0); // half made
        assert!(journal().is_of(&file));
        put(&[1; 48], 0);
        put(&[7, 8, 9], 100);
        assert!(journal().is_of(&file));
        put(&[6], 101);
        assert!(!journal().is_of(&file));
        file.set_len(50).unwrap();
        assert!(!journal().is_of(&file));
    }
}
