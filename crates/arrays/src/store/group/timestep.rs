//! Timesteps: written in place, and made visible by one rename.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Result};
use penstock_layout::DiskSchema;

use super::catalog::TIMES;
use super::{Document, Group, private, remove_if_there};
use crate::store::file::{self, damaged, open_if_there, read_if_there};
use crate::store::spread::{SpreadArray, of_server};
use crate::store::sums::Sums;
use crate::store::{Files, Target, ZarrFiles, change};

impl Group {
    /// Where the next timestep of an array goes.
    ///
    /// # Errors
    /// When its metadata make no sense.
    pub fn timestep_target(&self, name: &str) -> Result<Target> {
        let mut target = timestep_files(self.place(), &self.document, name, self.timesteps())?;
        if let Some(of) = target.spread_mut() {
            *of = self.beside(name, of.spread.clone())?;
        }
        Ok(target.with_sums())
    }

    /// The time of the last timestep.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_time(&self) -> Result<Option<f64>> {
        match self.timesteps().checked_sub(1) {
            None => Ok(None),
            Some(last) => time_of(&self.path, last).map(Some),
        }
    }

    /// Takes a timestep, which servers have written and synced, into the group.
    ///
    /// # Errors
    /// What the operating system says. The group is then as it was, or, when the very last steps
    /// fail, a timestep longer.
    pub fn commit_timestep(&mut self, time: f64, sums: &Sums) -> Result<()> {
        let index = self.timesteps();
        let text = serde_json::to_vec(sums).unwrap_or_default();
        let staged = vec![
            self.stage_time(index, time)?,
            self.stage("sums", sums_path(&self.path, index), &text)?,
        ];
        self.publish(index + 1, staged)
    }

    /// Removes what has been written of a timestep that will not be; if it is in the group already, because
    /// only what comes after that has failed, it stays.
    ///
    /// # Errors
    /// What the operating system says. The next write tries again.
    pub fn abandon_timestep(&mut self) -> Result<()> {
        self.document = Document::read(&self.path)?;
        self.remove_leftovers()?;
        self.remove_timesteps_beyond()
    }

    /// Takes all timesteps from `first` on out of the group.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn drop_timesteps(&mut self, first: u64) -> Result<()> {
        if first < self.timesteps() {
            self.publish(first, Vec::new())?;
            self.remove_timesteps_beyond()?;
        }
        Ok(())
    }

    /// Shows another number of timesteps to the world, after what is to be in its place before. Everything that
    /// takes space is written first: on a full disk this fails with nothing shown.
    fn publish(&mut self, timesteps: u64, before: Vec<Staged>) -> Result<()> {
        let next = self.document.with_timesteps(timesteps);
        let text = text_of(next.json());
        let group = [self.stage("group", self.path.join("zarr.json"), &text)?];
        let own = self.stage_own_metadata(&next)?;
        sync(before.iter().chain(&group).chain(&own))?;
        install(&before)?;
        let directories = before.iter().filter_map(|staged| staged.place.parent());
        file::sync_paths(&directories.map(Path::to_path_buf).collect::<Vec<_>>())?;
        install(&group)?;
        file::sync_path(&self.path)?;
        self.document = next;
        install(&own)
    }

    /// Brings the metadata of each array to those of the group.
    pub(super) fn write_own_metadata(&self) -> Result<()> {
        let own = self.stage_own_metadata(&self.document)?;
        sync(&own)?;
        install(&own)
    }

    /// Writes what is to take the place of a file, aside. It is yet to be synced.
    fn stage(&self, name: &str, place: PathBuf, text: &[u8]) -> Result<Staged> {
        let from = private(&self.path).join(format!("new-{name}"));
        remove_if_there(&from)?;
        file::write(&from, text)?;
        Ok(Staged { from, place })
    }

    /// Writes the metadata of each array that has others than `document` says, aside.
    fn stage_own_metadata(&self, document: &Document) -> Result<Vec<Staged>> {
        let names = document.names().iter().map(String::as_str);
        let mut staged = Vec::new();
        for name in names.chain(["time"]) {
            let place = self.path.join(name).join("zarr.json");
            let text = text_of(document.array(name));
            if read_if_there(&place)?.is_some_and(|there| there == text) {
                continue;
            }
            staged.push(self.stage(&format!("own-{name}"), place, &text)?);
        }
        Ok(staged)
    }

    /// Removes chunks and checksums of timesteps that there are not.
    pub(super) fn remove_timesteps_beyond(&self) -> Result<()> {
        for name in &self.declared {
            let directory = self.path.join(name);
            let gone = timesteps_from(self.timesteps(), &directory.join("c"))?;
            if !gone.is_empty() {
                // The array's own metadata no longer speak of them; after a power failure neither.
                file::sync_path(&directory)?;
            }
            gone.iter().try_for_each(|path| remove_if_there(path))?;
        }
        remove_timesteps_from(self.timesteps(), &private(&self.path).join("sums"))
    }

    /// A chunk of the coordinate, with one more time in it.
    fn stage_time(&self, index: u64, time: f64) -> Result<Staged> {
        let path = time_path(&self.path, index);
        let mut times = read_if_there(&path)?.unwrap_or_default();
        times.resize(TIMES as usize * 8, 0);
        let at = (index % TIMES) as usize * 8;
        times[at..at + 8].copy_from_slice(&time.to_ne_bytes());
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            crate::store::pending::make_directory(parent)?;
            file::sync_path(&self.path.join("time"))?;
        }
        self.stage("time", path, &times)
    }
}

/// What a directory holds of timesteps from `first` on.
fn timesteps_from(first: u64, directory: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(Vec::new()); // no chunk has ever been written
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io(&e, "looking into", directory))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let index = name.strip_suffix(".json").unwrap_or(&name).parse::<u64>();
        if index.is_ok_and(|index| index >= first) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Removes what a directory holds of timesteps from `first` on.
///
/// # Errors
/// What the operating system says.
pub fn remove_timesteps_from(first: u64, directory: &Path) -> Result<()> {
    let gone = timesteps_from(first, directory)?;
    gone.iter().try_for_each(|path| remove_if_there(path))
}

/// A file that is to be renamed.
struct Staged {
    from: PathBuf,
    place: PathBuf,
}

fn sync<'a>(staged: impl IntoIterator<Item = &'a Staged>) -> Result<()> {
    let files = staged.into_iter().map(|staged| staged.from.clone());
    file::sync_paths(&files.collect::<Vec<_>>())
}

/// Each is the old or the new one at any moment, also after a crash.
fn install(staged: &[Staged]) -> Result<()> {
    staged.iter().try_for_each(|Staged { from, place }| {
        change::rename(from, place).map_err(|e| Error::io(&e, "renaming into place", place))
    })
}

fn text_of(json: &serde_json::Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(json).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Where the checksums of a timestep stand.
pub(super) fn sums_path(group: &Path, index: u64) -> PathBuf {
    private(group).join("sums").join(format!("{index}.json"))
}

/// How a timestep is cut: its chunks are dealt out to the servers after those of the timesteps before, as those
/// of the whole array are.
pub fn of_timestep(moment: DiskSchema, index: u64) -> DiskSchema {
    let before = moment.objects().saturating_mul(index);
    moment.dealt_after(before)
}

/// The files of one timestep of an array of the group at `path`, which may be one a server.
pub(super) fn timestep_files(
    path: &Path,
    document: &Document,
    name: &str,
    index: u64,
) -> Result<Target> {
    let spread = document.spread(path, name)?;
    let form = document.metadata(name)?.chunk_form();
    Ok(Target::of(Files::Zarr(ZarrFiles {
        lead: vec![index],
        spread: spread.map(|spread| SpreadArray::new(name, spread)),
        ..ZarrFiles::new(of_server(path, 0).join(name), form)
    })))
}

fn time_path(group: &Path, index: u64) -> PathBuf {
    let chunk = (index / TIMES).to_string();
    group.join("time").join("c").join(chunk)
}

/// The time of a timestep.
pub(super) fn time_of(group: &Path, index: u64) -> Result<f64> {
    let path = time_path(group, index);
    let mut bytes = [0; 8];
    let opened = open_if_there(&path)?.ok_or_else(|| damaged(&path, "the times are missing"))?;
    opened
        .read_exact_at(&mut bytes, index % TIMES * 8)
        .map_err(|e| damaged(&path, e))?;
    Ok(f64::from_ne_bytes(bytes))
}
