//! Timesteps in a file.

use penstock_engine::{Error, Result};
use penstock_hdf5::{Changes, Chunk, ChunkEntry};
use penstock_layout::DiskSchema;

use super::super::group::{SavedArray, Timesteps};
use super::super::metadata::TIMES;
use super::GroupInFile;
use super::growing::GrowingArray;
use crate::formats::hdf5::describe;
use crate::formats::hdf5::mark::Mark;
use crate::formats::placed::Places;
use crate::formats::record::{Record, TIME, row_arrays};
use crate::formats::room::Notes;
use crate::formats::{Form, Target};
use crate::fs::files::{self, damaged};
use crate::fs::ops;
use crate::write::ALIGNMENT;

impl Timesteps for GroupInFile {
    fn check_servers(&self, _: usize) -> Result<()> {
        Ok(()) // one file is not spread
    }

    fn time_chunk(&self) -> u64 {
        self.mark.group.time_chunk
    }

    fn timesteps(&self) -> u64 {
        self.mark.group.timesteps
    }

    fn last_time(&self) -> Result<Option<f64>> {
        let Some(last) = self.timesteps().checked_sub(1) else {
            return Ok(None);
        };
        let number = self.file.opened().number(&self.mark.dataset(TIME), last)?;
        self.number(&number)
            .map(|number| Some(f64::from_ne_bytes(number)))
    }

    fn begin_timestep(
        &mut self,
        arrays: &[(String, u64)],
        block_bytes: u64,
    ) -> Result<Vec<(DiskSchema, Target)>> {
        self.growing.clear();
        self.file
            .make_room(self.file.end().next_multiple_of(ALIGNMENT))?;
        let mut targets = Vec::new();
        for (number, (name, rows)) in arrays.iter().enumerate() {
            let growing = self.growing((name, number), *rows, block_bytes)?;
            let target = Target::new(Form::Placed(growing.location.clone()));
            targets.push((growing.window.clone(), target));
            self.growing.push(growing);
        }
        Ok(targets)
    }

    fn commit_timestep(&mut self, time: f64, arrays: &[SavedArray]) -> Result<()> {
        let (index, record) = (self.timesteps(), &self.mark.group);
        let next = record.grown(arrays.iter().map(|array| (array.name.as_str(), array.rows)));
        let mut numbers = vec![(self.mark.dataset(TIME), time.to_ne_bytes())];
        for (dimension, end) in &next.rows {
            let start = record.rows.get(dimension).copied().unwrap_or(0);
            let counted = row_arrays(dimension).into_iter().zip([start, end - start]);
            numbers.extend(counted.map(|(name, n)| (self.mark.dataset(&name), n.to_ne_bytes())));
        }
        let growing = std::mem::take(&mut self.growing);
        let numbers = self.put_numbers(index, &numbers)?;
        self.change(self.mark.with(next), |file| {
            growing.iter().try_for_each(|array| array.enter(file))?;
            numbers.iter().try_for_each(|(dataset, chunk)| {
                file.resize(dataset, &[index + 1])?;
                file.enter(dataset, chunk)
            })
        })
    }

    fn abandon_timestep(&mut self) -> Result<()> {
        self.growing.clear();
        // The commit may have failed when the timestep was there.
        if let Some(Mark::Group(mark)) = Mark::read(&describe::open(&self.path)?, &self.path)? {
            self.mark = mark;
        }
        Ok(())
    }

    fn drop_timesteps(&mut self, first: u64) -> Result<()> {
        if first >= self.timesteps() {
            return Ok(());
        }
        let opened = self.file.opened();
        let mut next = self.mark.group.clone();
        for (dimension, rows) in &mut next.rows {
            let [start, _] = row_arrays(dimension).map(|name| self.mark.dataset(&name));
            *rows = u64::from_ne_bytes(self.number(&opened.number(&start, first)?)?);
        }
        next.timesteps = first;
        let cuts = self.cuts(&next)?;
        self.file.make_room(self.file.end())?;
        let mark = self.mark.with(next);
        let changes = || {
            // The library would write to a chunk that loses some of its rows, which readers look
            // at. So arrays lose such a chunk, too, and get it back, in what is another file to
            // the library.
            let shorter = self.shorter(&cuts)?;
            let end = files::length(&self.file.file, &self.path)?;
            let mut file = self.file.change_over(&shorter, end)?;
            for cut in &cuts {
                file.resize(&cut.dataset, &cut.shape)?;
                file.enter(&cut.dataset, &cut.kept)?;
            }
            mark.write(&mut file)?;
            file.finish()
        };
        self.file.install(changes, &self.temporary)?;
        self.now(mark)
    }
}

/// An array that becomes shorter.
struct Cut {
    dataset: String,
    /// The extents without the chunks that stay in part.
    whole: Vec<u64>,
    /// The extents afterwards.
    shape: Vec<u64>,
    /// The chunks that stay in part.
    kept: Vec<ChunkEntry>,
}

impl GroupInFile {
    /// The number of a timestep, from its bytes.
    fn number(&self, bytes: &[u8]) -> Result<[u8; 8]> {
        let number = bytes.try_into();
        number.map_err(|_| {
            damaged(
                &self.path,
                "the numbers of its timesteps are of another type",
            )
        })
    }

    /// Writes numbers of the next timestep where they belong, beyond the length that readers know,
    /// or into new chunks behind the end. Gives the new chunks of each dataset.
    fn put_numbers(
        &self,
        index: u64,
        numbers: &[(String, [u8; 8])],
    ) -> Result<Vec<(String, Vec<ChunkEntry>)>> {
        let (file, path, opened) = (&self.file.file, &self.path, self.file.opened());
        let first = index / TIMES * TIMES;
        let put = |(dataset, number): &(String, [u8; 8])| {
            let there = opened.chunks_in(dataset, first..first + TIMES)?.pop();
            let is_new = there.is_none();
            let chunk = there.unwrap_or(Chunk {
                start: vec![first],
                place: files::length(file, path)?,
                bytes: TIMES * 8,
                skipped: 0,
            });
            if is_new {
                ops::set_len(file, chunk.place + chunk.bytes, path)
                    .map_err(|e| Error::io(&e, "making room in", path))?;
            }
            files::write_at(file, number, chunk.place + index % TIMES * 8, path)?;
            let new = is_new.then_some((chunk, None));
            Ok((dataset.clone(), new.into_iter().collect()))
        };
        numbers.iter().map(put).collect()
    }

    fn growing(
        &self,
        (name, number): (&str, usize),
        rows: u64,
        block_bytes: u64,
    ) -> Result<GrowingArray> {
        let (opened, dataset) = (self.file.opened(), self.mark.dataset(name));
        let (mut schema, form) = describe::outline(opened, &self.path, &dataset)?;
        let Form::Placed(mut location) = form else {
            let cause = format!("another program has stored {dataset} in another way");
            return Err(self.refused(&cause));
        };
        let start = self.mark.group.length(name).unwrap_or(0);
        schema.shape[0] = start + rows;
        let disk = schema.disk_schema(block_bytes)?;
        let window = disk.window(start..start + rows);
        let rows_a_chunk = disk.chunk()[0];
        let first = start / rows_a_chunk * rows_a_chunk;
        let mut stored = match first < start && rows > 0 {
            true => opened.chunks_in(&dataset, first..start)?,
            false => Vec::new(),
        };
        stored.iter_mut().for_each(|chunk| chunk.start[0] -= first);
        let known = describe::places_of(&window, &stored, &self.path)?;
        let notes = Notes {
            directory: self.temporary.path().to_path_buf(),
            number,
            are_lasting: false,
        };
        location.places = Places::New(notes.clone(), known);
        Ok(GrowingArray {
            shape: schema.shape,
            dataset,
            window,
            first,
            location,
            notes,
        })
    }

    /// The arrays as they are to be after timesteps are dropped.
    fn cuts(&self, next: &Record) -> Result<Vec<Cut>> {
        let opened = self.file.opened();
        let arrays = next.names().into_iter().map(|name| {
            let dataset = self.mark.dataset(&name);
            let (mut schema, _) = describe::outline(opened, &self.path, &dataset)?;
            let disk = schema.disk_schema(1)?;
            let length = next.length(&name).unwrap_or(0);
            let whole = length / disk.chunk()[0] * disk.chunk()[0];
            let kept = match whole < length {
                true => opened.chunks_in(&dataset, whole..length)?,
                false => Vec::new(),
            };
            let mut shape = |length| {
                schema.shape[0] = length;
                schema.shape.clone()
            };
            Ok(Cut {
                dataset,
                whole: shape(whole),
                shape: shape(length),
                kept: kept.into_iter().map(|chunk| (chunk, None)).collect(),
            })
        });
        arrays.collect()
    }

    /// The changes that take whole chunks from arrays.
    fn shorter(&self, cuts: &[Cut]) -> Result<Changes> {
        let mut file = self.file.change()?;
        let mut cuts = cuts.iter();
        cuts.try_for_each(|cut| file.resize(&cut.dataset, &cut.whole))?;
        file.finish()
    }
}
