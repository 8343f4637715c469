//! Copying an array into another arrangement, out of core: server-directed I/O from disk to disk.
//!
//! The array goes through the memories of the ranks slab by slab, as a [`plan`] says: one collective read of a
//! region, one collective write of it. Ranks share a slab evenly. In memory it lies such that the source's
//! blocks are long runs; the servers transpose when they gather the target's.
//!
//! What is written goes under a temporary name until all of it is there. Beside it a journal says what it is
//! and which slabs are done, so that the same command goes on where a killed one has stopped. (Journal and
//! slabs are synced in that order only if the session syncs.)

pub mod plan;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_engine::{
    Decision, Director, Done, Error, Kind, Moved, Operation, RankBoxes, Request, Result,
};
use penstock_layout::{DiskSchema, Dists, Region, row_major_strides};
use penstock_machines::ClientMemory;
use serde::{Deserialize, Serialize};

use self::plan::{Means, Pass, Plan, with_block_bytes};
use crate::call::{ArrayCall, Local, Memory};
use crate::directors::{By, ReadDirector, Setting, Source, boxes_of};
use crate::session::{Asked, Session};
use crate::store::Resumed;
use crate::{ArraySchema, Disk, ElementType, Format, Pending, Progress, Stored, Target};

/// How an array is to be copied. All ranks must give the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which array of the source, where that is a group of several.
    pub array: Option<String>,
    /// What a raw file holds that says nothing of itself.
    pub raw: Option<(Vec<u64>, ElementType)>,
    /// How it is to be stored; `None` as it is, if that is in chunks.
    pub disk: Option<Disk>,
    /// Memory of all ranks together, bytes: their slabs and the servers' buffers.
    pub memory_bytes: u64,
    /// Whether attributes may be lost where the target has no place for them.
    pub drops_attributes: bool,
}

/// What a copy has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Bytes of the array.
    pub bytes: u64,
    /// Wall time on this rank.
    pub seconds: f64,
    /// Bytes read from the source and the store in between, decoded, by this attempt.
    pub read_bytes: u64,
    /// Slabs, of all passes.
    pub slabs: u64,
    /// Slabs that a former attempt had done.
    pub slabs_found: u64,
    /// The way that was taken.
    pub plan: Plan,
}

/// What the director tells all ranks before the first slab.
#[derive(Serialize, Deserialize)]
struct Order {
    schema: ArraySchema,
    /// The array's name where it is read from.
    source_name: String,
    plan: Plan,
    between: PathBuf,
    /// The extents of a source block, a pass.
    blocks: Vec<Vec<u64>>,
    done: BTreeSet<(usize, u64)>,
}

/// The name of the store in between.
const BETWEEN: &str = "between";

/// Held by the rank that directs, from the first call to the last.
struct Work {
    pending: Pending,
    /// The target of each pass.
    targets: Vec<(Target, DiskSchema)>,
}

type Shared<T> = Arc<Mutex<Option<T>>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, Option<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Copies the array at `source` to `target`, which it replaces when all of it is there. `tell` hears, on
    /// each rank, of the bytes of the array that are copied, at first those of a former attempt.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`] and [`Session::write`]; [`Kind::Schema`] when the target's
    /// schema does not fit, or the memory is too little. What is done is kept for another attempt, unless it
    /// fails before the first slab.
    ///
    /// # Collective
    /// Over all clients.
    pub fn copy(
        &self,
        source: &Path,
        target: &Path,
        options: &Options,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Report> {
        let begun = self.now();
        let work: Shared<Work> = Arc::default();
        let director = BeginDirector {
            source: source.to_path_buf(),
            target: target.to_path_buf(),
            options: options.clone(),
            setting: self.setting().clone(),
            work: work.clone(),
        };
        let words = format!(
            "a copy of {} to {}: {options:?}",
            source.display(),
            target.display()
        );
        let note = self.meet_with(&words, Box::new(director))?;
        let order: Order = serde_json::from_str(&note)
            .map_err(|e| Error::new(Kind::Io, "reading what to copy", e))?;
        let walk = Walk {
            session: self,
            order: &order,
            work: &work,
            memory: RefCell::new(SlabMemory::default()),
        };
        let passes = order.plan.passes.len() as u64;
        let bytes = order.schema.bytes();
        tell(Progress::All(bytes * passes));
        let (mut slabs, mut read_bytes) = (0, 0);
        for (number, pass) in order.plan.passes.iter().enumerate() {
            let path = match number {
                0 => source,
                _ => &order.between,
            };
            for (index, slab) in slabs_of(&order.schema.shape, &pass.slab).enumerate() {
                slabs += 1;
                if !order.done.contains(&(number, index as u64)) {
                    read_bytes += walk.copy_slab(number, index as u64, path, &slab)?;
                }
                tell(Progress::More(
                    slab.elements() * order.schema.element.width(),
                ));
            }
        }
        self.meet_with("the end of a copy", Box::new(EndDirector { work }))?;
        Ok(Report {
            bytes,
            seconds: (self.now() - begun).as_secs_f64(),
            read_bytes,
            slabs,
            slabs_found: order.done.len() as u64,
            plan: order.plan,
        })
    }
}

/// The slabs of an array, in order; those at the far edges are cut.
fn slabs_of(shape: &[u64], slab: &[u64]) -> impl Iterator<Item = Region> {
    let counts: Vec<u64> = shape
        .iter()
        .zip(slab)
        .map(|(n, e)| n.div_ceil(*e))
        .collect();
    let (shape, slab) = (shape.to_vec(), slab.to_vec());
    let places = row_major_strides(&counts);
    (0..counts.iter().product()).map(move |index: u64| {
        let start: Vec<u64> = (0..slab.len())
            .map(|d| index / places[d] % counts[d] * slab[d])
            .collect();
        let extents: Vec<u64> = (0..slab.len())
            .map(|d| slab[d].min(shape[d] - start[d]))
            .collect();
        Region::new(&start, &extents)
    })
}

/// One rank's way through the slabs.
struct Walk<'a> {
    session: &'a Session,
    order: &'a Order,
    work: &'a Shared<Work>,
    memory: RefCell<SlabMemory>,
}

impl Walk<'_> {
    /// Reads a slab from `path` and writes it. Gives the bytes that were read.
    fn copy_slab(&self, pass: usize, index: u64, path: &Path, slab: &Region) -> Result<u64> {
        let way = &self.order.plan.passes[pass];
        let own = self.own_part(slab);
        let (call, local) = self.given(pass, &own)?;
        let (source, setting) = (
            self.source(pass, path, call.clone()),
            self.session.setting(),
        );
        let setting = with_blocks(setting, way.source_block_bytes);
        let reading = self.session.move_all(
            Operation::Read,
            Ok(Asked {
                words: format!(
                    "slab {index} of pass {pass} of a copy, from {}",
                    path.display()
                ),
                bytes: 0,
                given: vec![(call.clone(), local.clone())],
                director: Some(Box::new(ReadDirector::new(
                    vec![source],
                    &setting,
                    By::servers(),
                ))),
            }),
        )?;
        let director = SlabDirector {
            pass,
            index,
            way: way.clone(),
            array: call.clone(),
            setting: self.session.setting().clone(),
            work: self.work.clone(),
        };
        self.session.move_all(
            Operation::Write,
            Ok(Asked {
                words: format!("slab {index} of pass {pass} of a copy, to disk"),
                bytes: 0,
                given: vec![(call, local)],
                director: Some(Box::new(director)),
            }),
        )?;
        Ok(reading.moved.disk_bytes)
    }

    fn source(&self, pass: usize, path: &Path, mut array: ArrayCall) -> Source {
        array.schema.name = match pass {
            0 => self.order.source_name.clone(),
            _ => BETWEEN.to_string(),
        };
        Source {
            path: path.to_path_buf(),
            array,
            sums: None,
        }
    }

    /// This rank's part of a slab: an even share of the dimension in which it has most to share out.
    fn own_part(&self, slab: &Region) -> Region {
        let mut own = slab.clone();
        let ranks = self.session.clients() as u64;
        let Some(d) = (0..slab.dims()).max_by_key(|&d| (slab.shape[d], d)) else {
            return own;
        };
        let rank = self.session.rank().unwrap_or(0) as u64;
        let bound = |rank: u64| slab.shape[d] * rank / ranks;
        own.start[d] += bound(rank);
        own.shape[d] = bound(rank + 1) - bound(rank);
        own
    }

    fn given(&self, pass: usize, own: &Region) -> Result<(ArrayCall, Local)> {
        let schema = &self.order.schema;
        let call = ArrayCall {
            schema: ArraySchema {
                disk: Disk::Natural,
                dimension_names: None,
                attributes: serde_json::Map::new(),
                ..schema.clone()
            },
            memory: match own.dims() {
                // One element has no parts: the first rank has it.
                0 => Memory::Distribution {
                    dists: Dists(Vec::new()),
                    mesh: Vec::new(),
                    halo: Vec::new(),
                },
                _ => Memory::Box {
                    own: own.clone(),
                    halo: Vec::new(),
                    is_region: true,
                },
            },
        };
        let width = schema.element.width();
        let bytes = own.elements() * width;
        let mut memory = self.memory.borrow_mut();
        let base = memory.of_at_least(bytes)?;
        let strides = strides(own, &self.order.blocks[pass], width);
        let local = Local {
            memory: ClientMemory { base, strides },
            shape: own.shape.clone(),
            element: schema.element,
            is_writable: true,
        };
        Ok((call, local))
    }
}

/// Strides such that what a block of these extents holds is a long run: dimensions in which it is thin come
/// first.
fn strides(own: &Region, block: &[u64], width: u64) -> Vec<isize> {
    let (thin, full): (Vec<usize>, Vec<usize>) =
        (0..own.dims()).partition(|&d| block[d] < own.shape[d]);
    let mut strides = vec![0; own.dims()];
    let mut stride = width as isize;
    for d in thin.into_iter().chain(full).rev() {
        strides[d] = stride;
        stride *= own.shape[d].max(1) as isize;
    }
    strides
}

fn with_blocks(setting: &Setting, block_bytes: u64) -> Setting {
    let mut setting = setting.clone();
    setting.options.block_bytes = block_bytes;
    setting
}

/// A rank's part of a slab. It is of huge pages where the system has them: transposing goes from page to page.
#[derive(Default)]
struct SlabMemory {
    memory: Option<(*mut u8, Layout)>,
}

const HUGE_PAGE: usize = 2 << 20;

impl SlabMemory {
    fn of_at_least(&mut self, bytes: u64) -> Result<*mut u8> {
        let missing = || {
            let cause = format!("there is no memory for {bytes} bytes");
            Error::new(Kind::Io, "copying", cause)
        };
        let bytes = usize::try_from(bytes.max(1)).map_err(|_| missing())?;
        if let Some((base, layout)) = self.memory
            && layout.size() >= bytes
        {
            return Ok(base);
        }
        *self = Self::default();
        let layout = Layout::from_size_align(bytes, HUGE_PAGE).map_err(|_| missing())?;
        // SAFETY: the layout is not of zero bytes.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(missing());
        }
        // SAFETY: all of the range is of the allocation. Without huge pages it is only slower.
        let _ = unsafe {
            let advice = rustix::mm::Advice::LinuxHugepage;
            rustix::mm::madvise(base.cast(), bytes, advice)
        };
        self.memory = Some((base, layout));
        Ok(base)
    }
}

impl Drop for SlabMemory {
    fn drop(&mut self) {
        if let Some((base, layout)) = self.memory.take() {
            // SAFETY: it was allocated with this layout, and no call that uses it is under way.
            unsafe { dealloc(base, layout) };
        }
    }
}

/// Makes or finds the target, and plans.
struct BeginDirector {
    source: PathBuf,
    target: PathBuf,
    options: Options,
    setting: Setting,
    work: Shared<Work>,
}

impl BeginDirector {
    fn open_source(&self) -> Result<Stored> {
        match &self.options.raw {
            Some((shape, element)) => Stored::open_raw(&self.source, shape, *element),
            None => Stored::open(&self.source, self.options.array.as_deref()),
        }
    }

    /// What is to be stored.
    fn target_schema(&self, source: &ArraySchema) -> Result<ArraySchema> {
        let refused =
            |cause: &str| Err(Error::new(Kind::Schema, "copying", cause).at(&self.target));
        let mut schema = source.clone();
        // Of an array that stands alone the name is that of its directory.
        if let Some(stem) = schema.name.strip_suffix(".zarr") {
            schema.name = stem.to_string();
        }
        if let Some(disk) = &self.options.disk {
            schema.disk = disk.clone();
        }
        match &schema.disk {
            Disk::Chunks { codec, .. } if codec.starts_with(['[', '{']) => {
                return refused(
                    "the source has a codec that Penstock does not write: give another",
                );
            }
            Disk::RowMajor {
                format: Format::Npy,
            } if !schema.attributes.is_empty() => {
                if !self.options.drops_attributes {
                    return refused(
                        "a .npy file has no place for the array's attributes: --drop-attributes leaves \
                         them out",
                    );
                }
                schema.attributes.clear();
            }
            _ => {}
        }
        Ok(schema)
    }

    fn order(&self) -> Result<Order> {
        let stored = self.open_source()?;
        let schema = self.target_schema(stored.schema())?;
        let block_bytes = self.setting.options.block_bytes;
        let (from, to) = (
            stored.disk_schema(block_bytes)?,
            schema.disk_schema(block_bytes)?,
        );
        let servers = self.setting.servers();
        let means = Means {
            memory_bytes: self.options.memory_bytes,
            servers,
        };
        let plan = plan::plan(&from, &to, means)?;
        let stamp = stored.target().stamp()?;
        let journal = serde_json::to_string(&(&self.source, stamp, &schema, &plan))
            .map_err(|e| Error::new(Kind::Io, "describing a copy", e))?;
        let Resumed { pending, done } = Pending::create_or_resume(&self.target, &schema, &journal)?;
        let (mut targets, mut sources) = (Vec::new(), vec![from]);
        let between = pending.beside(BETWEEN);
        if let Some(chunk) = &plan.between {
            let disk = Disk::plain_chunks(chunk.clone());
            let middle = ArraySchema::new(BETWEEN, &schema.shape, schema.element, disk);
            let disk = middle.disk_schema(block_bytes)?;
            targets.push((pending.store_beside(&middle)?, disk.clone()));
            sources.push(disk);
        }
        targets.push((pending.target().clone(), to));
        let blocks = plan.passes.iter().zip(&sources).map(|(pass, source)| {
            let cut = with_block_bytes(source, pass.source_block_bytes);
            let first = cut.block_at(0, 0);
            first.map_or_else(|| vec![1; schema.shape.len()], |block| block.extents)
        });
        let blocks = blocks.collect();
        *lock(&self.work) = Some(Work { pending, targets });
        Ok(Order {
            schema,
            source_name: stored.schema().name.clone(),
            plan,
            between,
            blocks,
            done: done.into_iter().collect(),
        })
    }
}

impl Director for BeginDirector {
    fn prepare(&mut self, _boxes: RankBoxes) -> Result<Decision> {
        let order = serde_json::to_string(&self.order()?)
            .map_err(|e| Error::new(Kind::Io, "describing a copy", e))?;
        Ok(Decision::Meet(order))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        outcome.map(|done| done.moved)
    }
}

/// Writes a slab to where it goes.
struct SlabDirector {
    pass: usize,
    index: u64,
    way: Pass,
    array: ArrayCall,
    setting: Setting,
    work: Shared<Work>,
}

impl Director for SlabDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let boxes = boxes_of(&boxes, 0);
        let clients = self.setting.clients;
        let memory = self.array.memory_schema(Operation::Write, boxes, clients)?;
        let work = lock(&self.work);
        let Some((target, disk)) = work.as_ref().and_then(|work| work.targets.get(self.pass))
        else {
            unreachable!("the director of the first call has made them")
        };
        let disk = with_block_bytes(disk, self.way.target_block_bytes);
        let target = Some(target.clone());
        let request =
            self.setting
                .request(Operation::Write, By::servers(), memory, disk, target)?;
        Ok(Decision::Serve(vec![Request {
            keeps_rest: self.way.cuts_blocks,
            ..request
        }]))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        let done = outcome?;
        if let Some(work) = &mut *lock(&self.work) {
            work.pending.note_done(self.pass, self.index)?;
        }
        Ok(done.moved)
    }
}

/// Puts the target in its place.
struct EndDirector {
    work: Shared<Work>,
}

impl Director for EndDirector {
    fn prepare(&mut self, _boxes: RankBoxes) -> Result<Decision> {
        if let Some(work) = lock(&self.work).take() {
            work.pending.commit()?;
        }
        Ok(Decision::Meet(String::new()))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        outcome.map(|done| done.moved)
    }
}
