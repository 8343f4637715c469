//! The walk of one rank through the slabs of a copy.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::path::Path;

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::{DiskSchema, Dists, Edges, Region, exact};
use penstock_machines::ClientMemory;

use super::job::{Agenda, Job, Shared, SlabDirector};
use super::plan::Pass;
use crate::calls::array::{ArrayCall, LocalPart, Memory};
use crate::calls::ask::Ask;
use crate::calls::errand::Direction;
use crate::calls::read::{ReadDirector, Source};
use crate::calls::session::{CallArguments, Session};
use crate::calls::settings::Method;
use crate::schema::of_layout;
use crate::write::Slab;
use crate::{ArraySchema, Storage};

/// The slabs of an array, in row-major order; the slabs at the far edges are cut.
///
/// # Errors
/// When the slabs do not fit the array.
pub(super) fn slabs_of(shape: &[u64], slab: &[Edges]) -> Result<impl Iterator<Item = Region>> {
    let grid = DiskSchema::rectilinear(shape, 1, slab).map_err(of_layout)?;
    Ok((0..grid.objects()).map(move |number| grid.object_region(number)))
}

/// The walk of one rank through the slabs of a copy.
pub(super) struct Walk<'a> {
    session: &'a Session,
    agenda: &'a Agenda,
    work: &'a Shared,
    memory: SlabMemory,
}

impl<'a> Walk<'a> {
    pub(super) fn new(session: &'a Session, agenda: &'a Agenda, work: &'a Shared) -> Self {
        Self {
            session,
            agenda,
            work,
            memory: SlabMemory::default(),
        }
    }

    /// Reads a slab and writes it. Gives the number of bytes that were read.
    pub(super) fn copy_slab(&mut self, slab: Slab, region: &Region) -> Result<u64> {
        let (number, pass, index) = slab;
        let job = &self.agenda.jobs[number];
        let way = &job.plan.passes[pass];
        let own = self.own_part(region);
        let (call, local) = self.given(job, pass, &own)?;
        let ask = |operation| Ask::Slab {
            path: job.path.clone(),
            slab,
            operation,
        };
        let reading = self.session.transfer(
            Operation::Read,
            CallArguments {
                ask: ask(Operation::Read),
                bytes: 0,
                given: vec![(call.clone(), vec![local.clone()])],
                in_time: false,
                direction: Direction::Here(Box::new(self.reader(job, pass, way, call.clone()))),
            },
        )?;
        let counts = way.slab.iter().zip(&job.shape);
        let slabs: u64 = counts.map(|(slab, &n)| slab.count(n)).product();
        let director = SlabDirector {
            slab,
            is_last: pass + 1 == job.plan.passes.len() && index + 1 == slabs,
            way: way.clone(),
            array: call.clone(),
            settings: self.session.settings().clone(),
            work: self.work.clone(),
        };
        self.session.transfer(
            Operation::Write,
            CallArguments {
                ask: ask(Operation::Write),
                bytes: 0,
                given: vec![(call, vec![local])],
                in_time: false,
                direction: Direction::Here(Box::new(director)),
            },
        )?;
        Ok(reading.moved.disk_bytes)
    }

    fn reader(&self, job: &Job, pass: usize, way: &Pass, mut array: ArrayCall) -> ReadDirector {
        let (path, name, _) = &job.sources[pass];
        array.schema.name = name.clone();
        let source = Source {
            path: Path::to_path_buf(path),
            array,
            is_checkpoint: false,
        };
        let mut settings = self.session.settings().clone();
        settings.options.block_bytes = way.source_block_bytes;
        ReadDirector::new(vec![source], &settings, Method::disk_directed())
    }

    /// This rank's part of a slab: an even share along the slab's longest dimension.
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

    fn given(&mut self, job: &Job, pass: usize, own: &Region) -> Result<(ArrayCall, LocalPart)> {
        let call = ArrayCall {
            schema: ArraySchema {
                fill: job.fill.clone(),
                ..ArraySchema::new(&job.name, &job.shape, job.element.clone(), Storage::Natural)
            },
            memory: match own.dims() {
                // One element has no parts: the first rank has it.
                0 => Memory::Distribution {
                    dists: Dists(Vec::new()),
                    mesh: Vec::new(),
                    halo: Vec::new(),
                },
                _ => Memory::Boxes {
                    own: vec![own.clone()],
                    halo: Vec::new(),
                    is_region: true,
                },
            },
        };
        let width = job.element.width();
        let base = self.memory.of_at_least(own.elements() * width)?;
        let (.., block) = &job.sources[pass];
        let local = LocalPart {
            memory: ClientMemory {
                base,
                extents: own.shape.clone(),
                strides: strides(own, block, width),
                width: exact::<usize>(width),
            },
            element: job.element.clone(),
            is_writable: true,
        };
        Ok((call, local))
    }
}

/// Strides with which the elements of a source block are a long run: dimensions in which the block
/// is thin come first.
fn strides(own: &Region, block: &[u64], width: u64) -> Vec<isize> {
    let (thin, full): (Vec<usize>, Vec<usize>) =
        (0..own.dims()).partition(|&d| block[d] < own.shape[d]);
    let mut strides = vec![0; own.dims()];
    let mut stride = exact::<isize>(width);
    for d in thin.into_iter().chain(full).rev() {
        strides[d] = stride;
        stride *= exact::<isize>(own.shape[d].max(1));
    }
    strides
}

/// The memory of a rank's part of a slab. It is of huge pages if the system has them: transposing
/// goes from page to page.
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
