//! Reductions where the data are: servers fold the elements of their blocks, and deliver folds.
//!
//! A reduction keeps some dimensions of a region of an array; their indices name the *cells* of the
//! result. A server has a fold for each cell of the blocks that it has seen, in boxes of cells:
//! blocks with the same part of the kept dimensions share one.
//!
//! ```text
//! array 4 x 6, chunks 2 x 3, over rows     cells 0 1 2 | 3 4 5
//!   0 | 1                                  chunks 0 and 2 fold into the box 0..3,
//!   2 | 3                                  chunks 1 and 3 into the box 3..6
//! ```
//!
//! At the end a server delivers its boxes to all ranks, which merge each when it has come; or when
//! folds take [`FOLDS_BYTES_MAX`], and then it begins anew. Folds are merged in any order: see
//! [`super::folds`]. A rank keeps the folds of all cells, and one box of each server.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use half::f16;
use penstock_engine::{Addressee, Catch, Delivery, Error, Kind, Portion, Result};
use penstock_layout::{Block, Region, exact, row_major_strides};
use penstock_machines::BlockSieve;
use serde::{Deserialize, Serialize};

use super::folds::{
    ComplexMean, ComplexSum, Count, Extreme, Fold, Histogram, RealMean, RealSum, WholeMean,
    WholeSum,
};
use super::native::Native;
use super::numbers::{Reading, put, refusal};
use super::runs::{Runs, indices_of};
use crate::dtype::{ElementType, NumberType};

/// The bytes that the folds of one server take before it delivers them.
const FOLDS_BYTES_MAX: usize = 64 << 20;

/// The most bytes of the result of a histogram: a server may have as many for one block.
const HISTOGRAM_BYTES_MAX: u64 = 1 << 30;

/// The most edges that an error shows.
const EDGES_SHOWN: usize = 8;

/// The most edges of a histogram.
const EDGES_MAX: usize = 1 << 20;

/// What becomes of the elements of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum How {
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The number of elements that are numbers.
    Count,
    /// The number of elements in each bin between these edges, in ascending order.
    Histogram(Vec<f64>),
}

impl How {
    /// The word for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Count => "count",
            Self::Histogram(_) => "histogram",
        }
    }

    /// The kind of the reduction, and what makes it that, in words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Histogram(edges) => {
                let shown = edges.iter().take(EDGES_SHOWN).map(f64::to_string);
                let shown = shown.collect::<Vec<_>>().join(", ");
                let more = if edges.len() > EDGES_SHOWN {
                    ", ..."
                } else {
                    ""
                };
                format!("histogram of {} edges {shown}{more}", edges.len())
            }
            other => other.word().to_string(),
        }
    }

    fn edges(&self) -> &[f64] {
        match self {
            Self::Histogram(edges) => edges,
            _ => &[],
        }
    }
}

/// The number that is reduced of each element.
#[derive(Clone, Copy)]
struct Reduced {
    number: NumberType,
    /// Its first byte in the element.
    start: usize,
    /// The bytes of the element.
    width: usize,
}

/// A reduction of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// What becomes of the elements of a cell.
    pub how: How,
    /// The part of the array that is reduced.
    pub region: Region,
    /// The dimensions that stay, ascending.
    pub kept: Vec<usize>,
    /// The field of records that is reduced; `f.g` is the field `g` of the record in `f`.
    pub field: Option<String>,
}

impl Reduction {
    /// Checks that the reduction is one of an array of this shape and type.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is not, for a field that is none, and for a least or greatest
    /// element of none; [`Kind::Unsupported`] for what complex numbers have not.
    fn check(&self, shape: &[u64], element: &ElementType) -> Result<Reduced> {
        let doing = || format!("reducing an array by {}", self.how.word());
        let wrong = |cause: String| Err(Error::new(Kind::Schema, doing(), cause));
        let reduced = self.reduced(element).or_else(wrong)?;
        let element = reduced.number;
        let Region {
            start,
            shape: extents,
        } = &self.region;
        let dims = shape.len();
        let is_within = start.len() == dims && Region::whole(shape).contains(&self.region);
        if !is_within {
            return wrong(format!(
                "the region {start:?} + {extents:?} is not in {shape:?}"
            ));
        }
        let is_ascending = self.kept.is_sorted_by(|one, next| one < next);
        if !is_ascending || self.kept.iter().any(|dim| *dim >= dims) {
            return wrong(format!("the dimensions {:?} of {dims}", self.kept));
        }
        let is_complex = matches!(element, NumberType::C8 | NumberType::C16);
        match &self.how {
            How::Min | How::Max | How::Histogram(_) if is_complex => {
                let cause = "complex numbers have no order";
                return Err(Error::new(Kind::Unsupported, doing(), cause));
            }
            How::Min | How::Max if self.region.is_empty() && self.cells() > 0 => {
                return wrong("there is no element".to_string());
            }
            How::Histogram(edges) => {
                let is_ascending = edges.is_sorted() && edges.iter().all(|edge| !edge.is_nan());
                if edges.len() < 2 || edges.len() > EDGES_MAX || !is_ascending {
                    let cause = "the edges of bins are two or more numbers in ascending order";
                    return wrong(cause.to_string());
                }
            }
            _ => {}
        }
        let result = self.result_shape().into_iter();
        let mut bytes = result
            .map(Some)
            .chain([Some(self.result_type(element).width())]);
        let bytes = bytes.try_fold(1u64, |all, extent| all.checked_mul(extent?));
        let bytes_max = match self.how {
            How::Histogram(_) => HISTOGRAM_BYTES_MAX,
            _ => i64::MAX.unsigned_abs(),
        };
        match bytes.is_some_and(|bytes| bytes <= bytes_max) {
            true => Ok(reduced),
            false => wrong(format!(
                "the result is too large: more than {bytes_max} bytes"
            )),
        }
    }

    /// What is reduced of each element; or why there is no such thing.
    fn reduced(&self, element: &ElementType) -> std::result::Result<Reduced, String> {
        let (mut of, mut start) = (element, 0);
        for name in self.field.iter().flat_map(|field| field.split('.')) {
            let record = of
                .record()
                .ok_or_else(|| format!("{of} has no field '{name}'"))?;
            let field = record.field(name);
            let (field, offset) = field.ok_or_else(|| {
                format!("there is no field '{name}': there are {}", record.names())
            })?;
            if !field.shape.is_empty() {
                let shape = &field.shape;
                return Err(format!("the field '{name}' is an array of shape {shape:?}"));
            }
            (of, start) = (&field.element, start + offset);
        }
        let number = of.number().ok_or_else(|| match of.record() {
            Some(record) => format!("it is of records: name a field, one of {}", record.names()),
            None => format!("{of} is no number"),
        })?;
        Ok(Reduced {
            number,
            start: exact::<usize>(start),
            width: exact::<usize>(element.width()),
        })
    }

    /// The shape of the cells.
    fn cell_shape(&self) -> Vec<u64> {
        self.kept
            .iter()
            .map(|dim| self.region.shape[*dim])
            .collect()
    }

    fn cells(&self) -> u64 {
        let cells = self.cell_shape().into_iter();
        cells.fold(1, u64::saturating_mul)
    }

    /// The shape of the result: of the cells, and of the bins of a histogram.
    pub fn result_shape(&self) -> Vec<u64> {
        let mut shape = self.cell_shape();
        if let How::Histogram(edges) = &self.how {
            shape.push(edges.len().saturating_sub(1) as u64);
        }
        shape
    }

    /// The type of the result, as NumPy has it.
    pub(crate) fn result_type(&self, element: NumberType) -> NumberType {
        use NumberType::{Bool, F8, I1, I2, I4, I8, U1, U2, U4, U8};
        match (&self.how, element) {
            (How::Count | How::Histogram(_), _) => I8,
            (How::Sum, Bool | I1 | I2 | I4) => I8,
            (How::Sum, U1 | U2 | U4) => U8,
            (How::Mean, Bool | I1 | I2 | I4 | I8 | U1 | U2 | U4 | U8) => F8,
            _ => element,
        }
    }

    /// The cells of a part of the array.
    fn cells_of(&self, part: &Region) -> Region {
        let start = |dim: &usize| part.start[*dim] - self.region.start[*dim];
        Region {
            start: self.kept.iter().map(start).collect(),
            shape: self.kept.iter().map(|dim| part.shape[*dim]).collect(),
        }
    }

    /// The sieve of one server for an array of this shape and type.
    ///
    /// # Errors
    /// As [`Reduction::check`].
    pub(super) fn sieve(self, shape: &[u64], element: &ElementType) -> Result<Box<dyn BlockSieve>> {
        let reduced = self.check(shape, element)?;
        let shape = shape.to_vec();
        Ok(with_fold(
            &self.how.clone(),
            reduced.number,
            SieveMaker {
                reduction: self,
                reduced,
                shape,
            },
        ))
    }
}

/// Something that is done with the folds of a reduction, whatever their type.
trait WithFold {
    type Done;

    fn with<F: Fold>(self) -> Self::Done;
}

/// Does something with the folds for elements of a type.
fn with_fold<W: WithFold>(how: &How, element: NumberType, what: W) -> W::Done {
    macro_rules! for_whole {
        ($of:ty) => {
            match how {
                How::Min => what.with::<Extreme<$of, false>>(),
                How::Max => what.with::<Extreme<$of, true>>(),
                How::Sum => what.with::<WholeSum<$of>>(),
                How::Mean => what.with::<WholeMean<$of>>(),
                How::Count => what.with::<Count<$of>>(),
                How::Histogram(_) => what.with::<Histogram<$of>>(),
            }
        };
    }
    macro_rules! for_real {
        ($of:ty) => {
            match how {
                How::Min => what.with::<Extreme<$of, false>>(),
                How::Max => what.with::<Extreme<$of, true>>(),
                How::Sum => what.with::<RealSum<$of>>(),
                How::Mean => what.with::<RealMean<$of>>(),
                How::Count => what.with::<Count<$of>>(),
                How::Histogram(_) => what.with::<Histogram<$of>>(),
            }
        };
    }
    macro_rules! for_complex {
        ($of:ty) => {
            match how {
                How::Sum => what.with::<ComplexSum<$of>>(),
                How::Mean => what.with::<ComplexMean<$of>>(),
                // The others are refused for complex numbers.
                How::Min | How::Max | How::Count | How::Histogram(_) => {
                    what.with::<Count<[$of; 2]>>()
                }
            }
        };
    }
    match element {
        NumberType::Bool | NumberType::U1 => for_whole!(u8),
        NumberType::I1 => for_whole!(i8),
        NumberType::I2 => for_whole!(i16),
        NumberType::I4 => for_whole!(i32),
        NumberType::I8 => for_whole!(i64),
        NumberType::U2 => for_whole!(u16),
        NumberType::U4 => for_whole!(u32),
        NumberType::U8 => for_whole!(u64),
        NumberType::F2 => for_real!(f16),
        NumberType::F4 => for_real!(f32),
        NumberType::F8 => for_real!(f64),
        NumberType::C8 => for_complex!(f32),
        NumberType::C16 => for_complex!(f64),
    }
}

/// Makes a sieve.
struct SieveMaker {
    reduction: Reduction,
    reduced: Reduced,
    shape: Vec<u64>,
}

impl WithFold for SieveMaker {
    type Done = Box<dyn BlockSieve>;

    fn with<F: Fold>(self) -> Self::Done {
        Box::new(ReduceSieve::<F> {
            reduction: self.reduction,
            reduced: self.reduced,
            shape: self.shape,
            store: RefCell::new(FoldStore {
                boxes: BTreeMap::new(),
                bytes: 0,
            }),
        })
    }
}

/// The cells of a box: its start and its shape.
type CellBox = (Vec<u64>, Vec<u64>);

/// The sieve of a reduction on one server.
struct ReduceSieve<F> {
    reduction: Reduction,
    reduced: Reduced,
    shape: Vec<u64>,
    store: RefCell<FoldStore<F>>,
}

/// The folds that a server keeps.
struct FoldStore<F> {
    boxes: BTreeMap<CellBox, Vec<F>>,
    /// The bytes that they take in memory.
    bytes: usize,
}

impl<F: Fold> BlockSieve for ReduceSieve<F> {
    fn wants(&self, _: &Block) -> bool {
        true
    }

    fn sift(&self, block: &Block, portions: &[Portion], data: &[u8]) -> Result<Vec<Delivery>> {
        let Some(part) = block.region.intersect(&self.reduction.region) else {
            return Ok(Vec::new());
        };
        let cells = self.reduction.cells_of(&part);
        let Reduced { width, start, .. } = self.reduced;
        let own = |element: &[u8]| F::Element::of_bytes(&element[start..]);
        let runs = Runs::new(block, &self.shape, width);
        let runs = match self.reduction.kept.is_empty() {
            true => runs,
            false => runs.in_rows(),
        };
        let edges = self.reduction.how.edges();
        let FoldStore { boxes, bytes: held } = &mut *self.store.borrow_mut();
        let of_cells = (cells.start.clone(), cells.shape.clone());
        let folds = boxes.entry(of_cells).or_default();
        *held = held.saturating_sub(bytes_of(folds));
        folds.resize_with(exact::<usize>(cells.elements()), || F::new(edges));
        let places = Places::new(&self.reduction, &cells, self.shape.len());
        let mut bytes = Vec::new();
        let mut indices = vec![0; self.shape.len()];
        for run in runs.of(portions) {
            bytes.clear();
            run.copy_to(&mut bytes, data, width);
            indices_of(&self.shape, run.first, &mut indices);
            let (first, step) = (places.cell(&indices), places.step());
            let elements = bytes.chunks_exact(width).map(own);
            if step == 0 {
                let fold = &mut folds[first];
                elements.for_each(|element| fold.add(element, edges));
            } else {
                let folds = folds[first..].iter_mut();
                folds
                    .zip(elements)
                    .for_each(|(fold, element)| fold.add(element, edges));
            }
        }
        *held = held.saturating_add(bytes_of(folds));
        let mut deliveries = Vec::new();
        if *held > FOLDS_BYTES_MAX {
            *held = 0;
            while let Some((cells, folds)) = boxes.pop_first() {
                deliveries.push(delivery(&cells, &folds));
            }
        }
        Ok(deliveries)
    }

    fn rest(&self) -> Result<Option<Delivery>> {
        let next = self.store.borrow_mut().boxes.pop_first();
        Ok(next.map(|(cells, folds)| delivery(&cells, &folds)))
    }
}

fn bytes_of<F: Fold>(folds: &[F]) -> usize {
    folds.iter().map(F::bytes).sum()
}

/// A box of folds on its way: its bytes, its start and its shape, and its folds.
fn delivery<F: Fold>((start, shape): &CellBox, folds: &[F]) -> Delivery {
    let mut sized = Vec::new();
    start
        .iter()
        .chain(shape)
        .for_each(|number| put(&mut sized, *number));
    folds.iter().for_each(|fold| fold.encode(&mut sized));
    let mut bytes = Vec::with_capacity(sized.len() + 10);
    put(&mut bytes, sized.len() as u64);
    bytes.extend(sized);
    let to = Addressee::All;
    Delivery { to, bytes }
}

/// The places of cells in a box of cells.
struct Places {
    /// The index of the array at which the box begins, and the cells from one index to the next, in
    /// each dimension; none in those that do not stay.
    steps: Vec<(u64, usize)>,
}

impl Places {
    fn new(reduction: &Reduction, cells: &Region, dims: usize) -> Self {
        let mut steps = vec![(0, 0); dims];
        let strides = row_major_strides(&cells.shape);
        for ((dim, stride), start) in reduction.kept.iter().zip(strides).zip(&cells.start) {
            steps[*dim] = (start + reduction.region.start[*dim], exact::<usize>(stride));
        }
        Self { steps }
    }

    /// The place of the cell of these indices.
    fn cell(&self, indices: &[u64]) -> usize {
        let places = indices.iter().zip(&self.steps);
        let place = |(index, (start, step)): (&u64, &(u64, usize))| match step {
            0 => 0,
            step => exact::<usize>(index - start) * step,
        };
        places.map(place).sum()
    }

    /// The cells from one element of a row to the next: one or none.
    fn step(&self) -> usize {
        self.steps.last().map_or(0, |(_, step)| *step)
    }
}

/// The merging of what servers deliver.
trait Merge: Send {
    /// Merges a box of folds.
    ///
    /// # Errors
    /// [`Kind::Peer`] when it is none of the reduction's.
    fn merge(&mut self, delivered: &[u8]) -> Result<()>;

    /// The bytes of the result, in the machine's byte order.
    fn result(&self) -> Vec<u8>;
}

/// Makes the cells of a result.
struct CellsMaker<'a>(&'a Reduction);

impl WithFold for CellsMaker<'_> {
    type Done = Result<Box<dyn Merge>>;

    fn with<F: Fold>(self) -> Self::Done {
        let reduction = self.0.clone();
        let count = exact::<usize>(reduction.cells());
        let mut folds = Vec::new();
        let taken = folds.try_reserve_exact(count);
        let no_memory = |e| Error::new(Kind::Io, format!("taking memory for {count} cells"), e);
        taken.map_err(no_memory)?;
        folds.resize(count, F::new(reduction.how.edges()));
        Ok(Box::new(Cells { reduction, folds }))
    }
}

/// The cells of a result, row-major.
struct Cells<F> {
    reduction: Reduction,
    folds: Vec<F>,
}

impl<F: Fold> Merge for Cells<F> {
    fn merge(&mut self, delivered: &[u8]) -> Result<()> {
        let (edges, shape) = (self.reduction.how.edges(), self.reduction.cell_shape());
        let mut reading = Reading(delivered);
        let mut numbers = || shape.iter().map(|_| reading.number()).collect();
        let (start, extents): (Result<Vec<u64>>, Result<Vec<u64>>) = (numbers(), numbers());
        let region = Region {
            start: start?,
            shape: extents?,
        };
        if !Region::whole(&shape).contains(&region) {
            return Err(refusal("a box of cells is not in the result"));
        }
        for row in rows_of(&region, &row_major_strides(&shape)) {
            for fold in &mut self.folds[row] {
                fold.merge(&F::decode(&mut reading, edges)?);
            }
        }
        match reading.is_at_end() {
            true => Ok(()),
            false => Err(refusal("there are more folds than cells")),
        }
    }

    fn result(&self) -> Vec<u8> {
        let mut result = Vec::new();
        self.folds.iter().for_each(|fold| fold.finish(&mut result));
        result
    }
}

/// The rows of a box, as cells of the result with these strides.
fn rows_of(region: &Region, strides: &[u64]) -> impl Iterator<Item = Range<usize>> {
    let row = region.shape.last().copied().unwrap_or(1);
    let outer: Vec<u64> = region.shape.iter().rev().skip(1).rev().copied().collect();
    let rows: u64 = match row {
        0 => 0,
        _ => outer.iter().product(),
    };
    let first = region.start.iter().zip(strides);
    let first: u64 = first.map(|(index, stride)| index * stride).sum();
    let strides = strides.to_vec();
    let mut indices = vec![0; outer.len()];
    (0..rows).map(move |number| {
        indices_of(&outer, number, &mut indices);
        let place = indices.iter().zip(&strides);
        let place: u64 = first + place.map(|(index, stride)| index * stride).sum::<u64>();
        exact::<usize>(place)..exact::<usize>(place + row)
    })
}

/// What one rank gets of a reduction.
pub(crate) struct ReduceCatch {
    cells: u64,
    element: ElementType,
    state: Mutex<State>,
}

struct State {
    merging: Box<dyn Merge>,
    /// What each server has delivered of a box that is not whole yet.
    parts: Vec<Vec<u8>>,
}

impl ReduceCatch {
    /// What a rank gets of an array of this shape and type from this number of servers.
    ///
    /// # Errors
    /// As [`Reduction::check`]; [`Kind::Io`] when there is no memory for the result.
    pub(crate) fn new(
        reduction: &Reduction,
        (shape, element): (&[u64], &ElementType),
        servers: usize,
    ) -> Result<Self> {
        let element = reduction.check(shape, element)?.number;
        let state = State {
            merging: with_fold(&reduction.how, element, CellsMaker(reduction))?,
            parts: vec![Vec::new(); servers],
        };
        Ok(Self {
            cells: reduction.cells(),
            element: reduction.result_type(element).element().clone(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The type of the result.
    pub(crate) fn element(&self) -> ElementType {
        self.element.clone()
    }

    /// The bytes of the result, in the machine's byte order.
    pub(crate) fn result(&self) -> Vec<u8> {
        self.state().merging.result()
    }
}

impl Catch for ReduceCatch {
    fn take(&self, server: usize, bytes: &[u8]) -> Result<()> {
        let State { merging, parts } = &mut *self.state();
        let part = parts.get_mut(server);
        let part = part.ok_or_else(|| refusal("there is no such server"))?;
        part.extend_from_slice(bytes);
        let mut reading = Reading(part);
        while let Some(delivered) = reading.sized() {
            merging.merge(delivered)?;
        }
        let left = reading.0.len();
        part.drain(..part.len() - left);
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        match self.state().parts.iter().all(Vec::is_empty) {
            true => Ok(self.cells),
            false => Err(refusal("it ends within a box of cells")),
        }
    }

    fn cut(&self, _records: Range<u64>) -> Result<Vec<u8>> {
        Err(refusal("the result of a reduction is not dealt out"))
    }

    fn keep(&self, _records: &[u8]) -> Result<()> {
        Err(refusal("the result of a reduction is not dealt out"))
    }
}
