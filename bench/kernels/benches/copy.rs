//! The speed of the kernels beside memcpy. Run with `cargo bench --manifest-path bench/kernels/Cargo.toml`.
//!
//! Every case moves [`BYTES`], a usual block of a disk, between a rank's memory and a block buffer,
//! with the strides that the case has in practice. `memcpy` moves as many bytes in one piece: the
//! throughput of a case divided by the throughput of `memcpy` is its ratio. A CYCLIC case gathers
//! or scatters the pieces of all ranks of a block, one after the other, and so goes over the block
//! once a rank.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_layout::{Axis, StridedCopy};

/// The bytes moved by one copy: a block that fits the cache of a core, and one that does not.
const BYTES: [usize; 2] = [256 << 10, 16 << 20];

/// A case has elements of `width`; axes of count, source stride and target stride; and the number
/// of ranks, each with a source and a target offset behind the last.
struct Case {
    name: &'static str,
    width: usize,
    axes: Vec<(usize, usize, usize)>,
    ranks: (usize, usize, usize),
}

impl Case {
    fn new(name: &'static str, width: usize, axes: Vec<(usize, usize, usize)>) -> Self {
        Self {
            name,
            width,
            axes,
            ranks: (1, 0, 0),
        }
    }

    /// Gathers all of a block of `n` elements that is CYCLIC(`k`) over `ranks` from their memories.
    fn gather(name: &'static str, n: usize, width: usize, k: usize, ranks: usize) -> Self {
        let dealt = n / k / ranks;
        let axes = vec![(dealt, k * width, k * width * ranks), (k, width, width)];
        Self {
            ranks: (ranks, dealt * k * width, k * width),
            ..Self::new(name, width, axes)
        }
    }

    /// Scatters the block of [`Case::gather`] into the memories.
    fn scatter(name: &'static str, n: usize, width: usize, k: usize, ranks: usize) -> Self {
        let mut case = Self::gather(name, n, width, k, ranks);
        case.axes
            .iter_mut()
            .for_each(|(_, source, target)| std::mem::swap(source, target));
        case.ranks = (case.ranks.0, case.ranks.2, case.ranks.1);
        case
    }

    fn copies(&self) -> Vec<StridedCopy> {
        let copy = |rank: usize| {
            let mut copy = StridedCopy::element(self.width);
            copy.source = (rank * self.ranks.1) as isize;
            copy.target = (rank * self.ranks.2) as isize;
            copy.axes
                .extend(self.axes.iter().map(|&(count, source, target)| Axis {
                    count,
                    source: source as isize,
                    target: target as isize,
                }));
            copy.simplify();
            copy
        };
        (0..self.ranks.0).map(copy).collect()
    }

    /// The bytes from the first to the last, of the source and of the target.
    fn extents(&self) -> (usize, usize) {
        let loops = self.axes.iter().chain([&self.ranks]);
        loops.fold(
            (self.width, self.width),
            |extents, &(count, source, target)| {
                (
                    extents.0 + (count - 1) * source,
                    extents.1 + (count - 1) * target,
                )
            },
        )
    }
}

fn cases(bytes: usize) -> Vec<Case> {
    let n = |width: usize| bytes / width;
    let transpose = |name, width| {
        // The square of elements has no power of two for a side, as few arrays have.
        let m = n(width).isqrt() - n(width).isqrt() % 2 - 2;
        Case::new(
            name,
            width,
            vec![(m, width, m * width), (m, m * width, width)],
        )
    };
    let power = |name, width| {
        let rows = 1 << (n(width).ilog2() / 2);
        let columns = n(width) / rows;
        let axes = vec![
            (columns, width, rows * width),
            (rows, columns * width, width),
        ];
        Case::new(name, width, axes)
    };
    vec![
        Case::new("memcpy", 1, vec![(bytes, 1, 1)]),
        Case::new("rows of 1 KiB", 8, vec![(n(1024), 1536, 1024), (128, 8, 8)]),
        Case::gather("gather CYCLIC f64, 2 ranks", n(8), 8, 1, 2),
        Case::scatter("scatter CYCLIC f64, 2 ranks", n(8), 8, 1, 2),
        Case::gather("gather CYCLIC f64, 16 ranks", n(8), 8, 1, 16),
        Case::scatter("scatter CYCLIC f64, 16 ranks", n(8), 8, 1, 16),
        Case::scatter("scatter CYCLIC f32, 2 ranks", n(4), 4, 1, 2),
        Case::scatter("scatter CYCLIC u8, 2 ranks", n(1), 1, 1, 2),
        Case::gather("gather CYCLIC(4) f64, 2 ranks", n(8), 8, 4, 2),
        Case::scatter("scatter CYCLIC(4) f64, 2 ranks", n(8), 8, 4, 2),
        Case::gather("gather CYCLIC c128, 2 ranks", n(16), 16, 1, 2),
        Case::gather("gather CYCLIC width 3, 2 ranks", n(3), 3, 1, 2),
        Case::gather("gather CYCLIC width 12, 2 ranks", n(12), 12, 1, 2),
        transpose("transpose f64", 8),
        power("transpose f64, 2^n a side", 8),
        transpose("transpose f32", 4),
        transpose("transpose u8", 1),
        transpose("transpose c128", 16),
        transpose("transpose width 3", 3),
        transpose("transpose width 12", 12),
    ]
}

fn kernels(criterion: &mut Criterion) {
    for bytes in BYTES {
        let mut group = criterion.benchmark_group("copy");
        for case in cases(bytes) {
            let (copies, (source, target)) = (case.copies(), case.extents());
            let (source, mut target) = (vec![1u8; source], vec![0u8; target]);
            let moved: usize = copies.iter().map(StridedCopy::bytes).sum();
            group.throughput(Throughput::Bytes(moved as u64));
            group.bench_function(BenchmarkId::new(case.name, bytes >> 10), |bencher| {
                bencher.iter(|| {
                    let (source, target) = (black_box(&source), black_box(&mut target));
                    for copy in &copies {
                        // SAFETY: both buffers have the bytes from the first element of the first
                        // rank to the last of the last; strides are positive.
                        unsafe { copy.run(source.as_ptr(), target.as_mut_ptr()) }
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(15)
        .without_plots();
    targets = kernels
}
criterion_main!(benches);
