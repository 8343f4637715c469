//! FastMeshSort (section 3.3, Figure 5): processes sort a file of records by its columns, its
//! cells, and across them, in turn.
//!
//! ```text
//! for i in 0..n    each process sorts its cell: upwards if bit i of its number is 0, or else down
//!                  each sorts windows of 2^(i+1) records across cells, in a subfile of such rows
//! at the end       each sorts its cell upwards: the cells one after the other are sorted
//! ```
//!
//! The paper calls upwards DOWN: the largest records go to the end. A window is sorted in memory. A
//! cell is sorted by merging: runs of a block are sorted in memory, and merged two by two, from the
//! file to a second one and back. All requests move a block, or the end of a cell; blocks are read
//! ahead, and written while the next are read ("using the asynchronous I/O facility").

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use futures::future::try_join;
use penstock_engine::{Error, Kind, Operation, Result};
use penstock_files::OpenSubfile;
use penstock_layout::exact;
use penstock_sim::Span;
use penstock_sim::preset::Preset;
use serde::Serialize;

use super::run::CACHE_BYTES;
use super::volume::{Process, Volume, open};

/// The processes of Figure 17, and the cells of the file: 2^3.
const ROUNDS: u32 = 3;
const PROCESSES: usize = 1 << ROUNDS;

/// The records of the paper's file: "one million integer records" (section 5.6).
pub const RECORDS: u64 = 1_000_000;
const RECORD_BYTES: u64 = 4;

/// The time to compare and move a record once, in microseconds: some 25 cycles of 62.5 MHz. An
/// estimate.
const STEP_US: f64 = 0.4;

/// A run of the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct SortCase {
    pub servers: usize,
    /// The records of a block.
    pub block_records: u64,
    /// The records of the file, a multiple of 64.
    pub records: u64,
}

impl SortCase {
    /// Sorts a file of random records on the machine of `preset`. Gives the seconds.
    ///
    /// # Errors
    /// When the machine is impossible, or the file is not sorted at the end.
    pub fn run(&self, preset: &Preset, trial: u64) -> Result<f64> {
        let file_bytes = self.records * RECORD_BYTES;
        let volume = Volume {
            preset,
            clients: PROCESSES,
            servers: self.servers,
            blocks: 8 * file_bytes.div_ceil(preset.file.block_bytes) + 1024,
            cache_bytes: CACHE_BYTES,
            request_bytes_max: 0,
            is_real: true,
            seed: trial,
        };
        let (seconds, cells) = (Rc::new(Cell::new(0.0)), Rc::new(RefCell::default()));
        let case = *self;
        volume.run(|process| {
            let (seconds, cells) = (seconds.clone(), cells.clone());
            async move {
                let sorter = Sorter::new(case, process, trial).await?;
                seconds.set(sorter.sort().await?);
                let cell = sorter.read(&sorter.cell, 0, sorter.cell_records()).await?;
                let given = sorter.given();
                let mut cells: std::cell::RefMut<'_, Vec<_>> = cells.borrow_mut();
                cells.push((sorter.process.rank, cell, given));
                Ok(())
            }
        })?;
        check(cells.take())?;
        Ok(seconds.get())
    }
}

/// Fails unless the cells, one after the other, are the given records in order.
fn check(mut cells: Vec<(usize, Vec<u32>, Vec<u32>)>) -> Result<()> {
    cells.sort_unstable();
    let found: Vec<u32> = cells
        .iter()
        .flat_map(|(_, found, _)| found)
        .copied()
        .collect();
    let given = cells.iter().flat_map(|(_, _, given)| given);
    let mut given: Vec<u32> = given.copied().collect();
    given.sort_unstable();
    match found == given {
        true => Ok(()),
        false => {
            let cause = "the file is not sorted";
            Err(Error::new(Kind::Damaged, "sorting a file", cause))
        }
    }
}

/// The order of sorted records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The largest records go to the end.
    Up,
    /// The largest records go to the beginning.
    Down,
}

impl Order {
    fn sort(self, records: &mut [u32]) {
        records.sort_unstable();
        if self == Order::Down {
            records.reverse();
        }
    }

    /// Whether record `one` may stand before `other`.
    fn allows(self, one: u32, other: u32) -> bool {
        match self {
            Order::Up => one <= other,
            Order::Down => one >= other,
        }
    }
}

/// A process of the sort.
struct Sorter {
    case: SortCase,
    process: Process,
    file: penstock_files::Attachment,
    /// The cell of this process in the file, and in the second file.
    cell: OpenSubfile,
    other: OpenSubfile,
    seed: u64,
}

impl Sorter {
    /// Makes the file, and puts random records into it.
    async fn new(case: SortCase, process: Process, seed: u64) -> Result<Self> {
        let (cells, column) = (PROCESSES as u64, [1, 1, 1, PROCESSES as u64]);
        let file = process.attach("/datafile", cells, RECORD_BYTES).await?;
        let second = process.attach("/second", cells, RECORD_BYTES).await?;
        let sorter = Self {
            case,
            cell: open(&file, column, process.rank)?,
            other: open(&second, column, process.rank)?,
            process,
            file,
            seed,
        };
        let given = sorter.given();
        sorter.write(&sorter.cell, 0, &given).await?;
        sorter.process.client().sync(Some(&sorter.file)).await?;
        Ok(sorter)
    }

    /// The records of this process before the sort: a sequence of pseudo-random numbers.
    fn given(&self) -> Vec<u32> {
        let mut state = (self.seed << 8 | self.process.rank as u64) + 1;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            exact::<u32>(state >> 32)
        };
        (0..self.cell_records()).map(next).collect()
    }

    fn cell_records(&self) -> u64 {
        self.case.records / PROCESSES as u64
    }

    /// Sorts the file. Gives the seconds from the meeting before to the meeting after.
    async fn sort(&self) -> Result<f64> {
        self.process.meet().await;
        let began = self.process.met_at.get();
        for round in 0..ROUNDS {
            let order = match self.process.rank >> round & 1 {
                0 => Order::Up,
                _ => Order::Down,
            };
            self.sort_cell(order).await?;
            self.process.meet().await;
            let span = 2 << round;
            let view = [1, span, span, PROCESSES as u64 / span];
            let rows = open(&self.file, view, self.process.rank)?;
            self.sort_windows(&rows, span).await?;
            self.process.meet().await;
        }
        self.sort_cell(Order::Up).await?;
        self.process.meet().await;
        Ok(self.process.met_at.get() - began)
    }

    /// The blocks of a cell: where each begins, and its records.
    fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (all, block) = (self.cell_records(), self.case.block_records);
        let starts = (0..all).step_by(exact::<usize>(block));
        starts.map(move |start| (start, block.min(all - start)))
    }

    /// Sorts each window of a subfile upwards.
    async fn sort_windows(&self, rows: &OpenSubfile, window: u64) -> Result<()> {
        self.sort_blocks((rows, rows), Order::Up, window).await
    }

    /// Sorts each window of each block, from one subfile to another. The next block is read while
    /// one is written.
    async fn sort_blocks(
        &self,
        (from, to): (&OpenSubfile, &OpenSubfile),
        order: Order,
        window: u64,
    ) -> Result<()> {
        let mut blocks = self.blocks();
        let mut block = blocks.next();
        let mut records = match block {
            Some((start, count)) => self.read(from, start, count).await?,
            None => Vec::new(),
        };
        while let Some((start, count)) = block {
            let windows = records.chunks_mut(exact::<usize>(window));
            windows.for_each(|window| order.sort(window));
            let steps = window.min(count).max(2).ilog2();
            self.compute(count, f64::from(steps)).await;
            block = blocks.next();
            let next = async {
                match block {
                    Some((start, count)) => self.read(from, start, count).await,
                    None => Ok(Vec::new()),
                }
            };
            ((), records) = try_join(self.write(to, start, &records), next).await?;
        }
        Ok(())
    }

    /// Sorts this process's cell.
    async fn sort_cell(&self, order: Order) -> Result<()> {
        let all = self.cell_records();
        let passes = all
            .div_ceil(self.case.block_records)
            .next_power_of_two()
            .ilog2();
        // The last pass ends in the file.
        let (mut from, mut to) = match passes.is_multiple_of(2) {
            true => (&self.cell, &self.other),
            false => (&self.other, &self.cell),
        };
        let block = self.case.block_records;
        self.sort_blocks((&self.cell, from), order, block).await?;
        let mut run = self.case.block_records;
        for _ in 0..passes {
            for start in (0..all).step_by(exact::<usize>(2 * run)) {
                let middle = (start + run).min(all);
                let end = (middle + run).min(all);
                self.merge((from, to), [start..middle, middle..end], order)
                    .await?;
            }
            run *= 2;
            (from, to) = (to, from);
        }
        Ok(())
    }

    /// Merges two runs that lie one after the other.
    async fn merge(
        &self,
        (from, to): (&OpenSubfile, &OpenSubfile),
        runs: [Range<u64>; 2],
        order: Order,
    ) -> Result<()> {
        let block = exact::<usize>(self.case.block_records);
        let (mut start, mut merged) = (runs[0].start, Vec::with_capacity(block));
        let mut runs = runs.map(|left| Run {
            left,
            block: Vec::new(),
            at: 0,
            next: Vec::new(),
        });
        loop {
            for run in &mut runs {
                if run.first().is_none() {
                    run.fetch(self, from).await?;
                    (run.block, run.at) = (std::mem::take(&mut run.next), 0);
                }
            }
            let next = match (runs[0].first(), runs[1].first()) {
                (Some(one), Some(other)) => usize::from(!order.allows(one, other)),
                (Some(_), None) => 0,
                (None, Some(_)) => 1,
                (None, None) => break,
            };
            merged.extend(runs[next].first());
            runs[next].at += 1;
            if merged.len() == block {
                self.compute(self.case.block_records, 1.0).await;
                let [one, other] = &mut runs;
                let fetched = try_join(one.fetch(self, from), other.fetch(self, from));
                try_join(self.write(to, start, &merged), fetched).await?;
                start += merged.len() as u64;
                merged.clear();
            }
        }
        self.compute(merged.len() as u64, 1.0).await;
        self.write(to, start, &merged).await
    }

    /// Computes for a number of steps for each record.
    async fn compute(&self, records: u64, steps: f64) {
        let us = records as f64 * steps * STEP_US;
        self.process.node.compute(Span::from_us_f64(us)).await;
    }

    async fn read(&self, open: &OpenSubfile, start: u64, count: u64) -> Result<Vec<u32>> {
        let bytes = exact::<usize>(count * RECORD_BYTES);
        let memory = Rc::new(RefCell::new(vec![0; bytes]));
        let place = (start * RECORD_BYTES, bytes as u64);
        let given = Some(memory.clone());
        self.process
            .access(open, Operation::Read, place, given)
            .await?;
        let bytes = memory.take();
        let (records, _) = bytes.as_chunks::<4>();
        Ok(records
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes))
            .collect())
    }

    async fn write(&self, open: &OpenSubfile, start: u64, records: &[u32]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|record| record.to_le_bytes())
            .collect();
        let place = (start * RECORD_BYTES, bytes.len() as u64);
        let memory = Some(Rc::new(RefCell::new(bytes)));
        self.process
            .access(open, Operation::Write, place, memory)
            .await
    }
}

/// A run of sorted records that is being merged: those on disk, and two blocks of it in memory.
struct Run {
    left: Range<u64>,
    block: Vec<u32>,
    /// The number of records of the block that have been taken.
    at: usize,
    /// The block after it, if that has been read.
    next: Vec<u32>,
}

impl Run {
    /// Reads the next block, if there is one that has not been read.
    async fn fetch(&mut self, sorter: &Sorter, from: &OpenSubfile) -> Result<()> {
        if !self.next.is_empty() || self.left.is_empty() {
            return Ok(());
        }
        let left = self.left.end - self.left.start;
        let count = sorter.case.block_records.min(left);
        self.next = sorter.read(from, self.left.start, count).await?;
        self.left.start += count;
        Ok(())
    }

    fn first(&self) -> Option<u32> {
        self.block.get(self.at).copied()
    }
}
