//! Copies from memory to memory, by the kernels by which machines move elements.
//!
//! Elements of 8 bytes, `stride` elements apart in the source, are gathered into a dense target of
//! as many bytes as a block has, or fewer, if the source has no more. Copies go through a source of
//! [`SOURCE_BYTES_MAX`] one after the other: as in a call, a server's buffer is in a processor's
//! caches, and the memory of clients is not.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use penstock_engine::Result;
use penstock_layout::{Axis, StridedCopy, exact};
use penstock_sim::preset::STRIDES;

use crate::sample::{Samples, Watch, repeat, seconds_of};

const ELEMENT_BYTES: usize = 8;
const BLOCK_BYTES: usize = 1 << 20;
const SOURCE_BYTES_MAX: usize = 64 << 20;

/// Seconds for each byte, by stride.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The number of processors.
    pub processors: usize,
    /// One processor copies by itself.
    pub alone: Vec<(u64, Samples)>,
    /// All processors copy at once.
    pub together: Vec<(u64, Samples)>,
    /// Seconds for each byte of a buffer that is zeroed.
    pub zeroing: Samples,
}

/// The memories of one processor.
struct Memories {
    source: Vec<u8>,
    target: Vec<u8>,
    /// The first byte of the source that was not copied lately.
    next: usize,
}

impl Memories {
    fn new() -> Self {
        Self {
            source: vec![1; SOURCE_BYTES_MAX],
            target: vec![0; BLOCK_BYTES],
            next: 0,
        }
    }

    /// Gathers once, and gives the seconds for each byte that was gathered.
    fn gather(&mut self, stride: u64) -> f64 {
        let step = exact::<usize>(stride) * ELEMENT_BYTES;
        let count = (BLOCK_BYTES / ELEMENT_BYTES).min(SOURCE_BYTES_MAX / step);
        let mut copy = StridedCopy::element(ELEMENT_BYTES);
        copy.axes.push(Axis {
            count,
            source: step.cast_signed(),
            target: ELEMENT_BYTES.cast_signed(),
        });
        copy.simplify();
        if self.next + count * step > SOURCE_BYTES_MAX {
            self.next = 0;
        }
        let source = &self.source[self.next..];
        self.next += count * step;
        let seconds = seconds_of(|| {
            // SAFETY: the source has `count` steps, the target `count` elements.
            unsafe { copy.run(source.as_ptr(), self.target.as_mut_ptr()) };
            std::hint::black_box(&self.target);
        });
        seconds / (count * ELEMENT_BYTES) as f64
    }
}

/// The number of processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Measures for about `time`.
///
/// # Errors
/// [`penstock_engine::Kind::Peer`] when stopped.
pub fn measure(time: Duration, watch: &Watch<'_>) -> Result<Memory> {
    let processors = processors();
    let parts = exact::<u32>(STRIDES.len()) * 2 + 1;
    let each = time / parts;
    let mut memories = Memories::new();
    let mut alone = Vec::new();
    for stride in STRIDES {
        let samples = repeat(each, watch, || Ok(memories.gather(stride)))?;
        alone.push((stride, samples));
    }
    let zeroing = repeat(each, watch, || {
        let seconds = seconds_of(|| {
            memories.target.fill(0);
            std::hint::black_box(&memories.target);
        });
        Ok(seconds / BLOCK_BYTES as f64)
    })?;
    drop(memories);
    let mut together = Vec::new();
    for stride in STRIDES {
        watch.check()?;
        together.push((stride, at_once(processors, stride, each)));
    }
    Ok(Memory {
        processors,
        alone,
        together,
        zeroing,
    })
}

/// Copies on all processors at once, for the same time.
fn at_once(processors: usize, stride: u64, time: Duration) -> Samples {
    let start = Barrier::new(processors);
    let copies = |_| {
        let mut memories = Memories::new();
        start.wait();
        let begun = Instant::now();
        let mut seconds = Vec::new();
        while seconds.len() < 5 || begun.elapsed() < time {
            seconds.push(memories.gather(stride));
        }
        seconds
    };
    let copies = &copies;
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors)
            .map(|nth| scope.spawn(move || copies(nth)))
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default());
        ended.flatten().collect::<Vec<f64>>()
    });
    Samples::new(all)
}
