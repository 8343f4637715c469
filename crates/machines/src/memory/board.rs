//! A board is where the clients of a host post their exposed memory, so that a server in another
//! process can get and put by itself: one system call, and the client sleeps on.
//!
//! The kernel copies between two processes (`process_vm_readv`) if the caller might also debug the
//! other: both are of one user, and neither the administrator nor the container forbids it. It
//! takes stretches of memory one by one, so it is for pieces of few and long stretches; for all
//! other pieces the server asks the client, who has kernels for them.
//!
//! A board lies in shared memory, all zero at first. Only its owner posts. A reader holds on to a
//! notice while it copies, and the owner waits for the reader before it takes its memory back.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_engine::{MemoryId, Window};
use penstock_layout::{Direction, Piece, StridedCopy, exact};

use super::client::ClientMemory;

/// The number of exposures that a board has places for. For others the client is asked.
const NOTICES: usize = 16;
/// The number of dimensions that a notice has places for.
const DIMS: usize = 8;
/// The most stretches of this process's memory in one call: Linux takes no more.
const OWN_MAX: usize = 1024;
/// The most stretches of the other process's memory in one call. Each is looked up page by page.
const THEIR_MAX: usize = 128;
/// The longest time that an owner waits for a reader. A reader that was killed never ends.
const READER_MAX: Duration = Duration::from_secs(5);

/// The notices of one client.
#[repr(C)]
#[derive(Default)]
pub struct Board {
    process: AtomicU32,
    notices: [Notice; NOTICES],
}

/// A notice of an exposed memory.
#[repr(C)]
#[derive(Default)]
struct Notice {
    /// 1 if something is posted, otherwise 0.
    is_posted: AtomicU32,
    /// The name of the memory.
    id: [AtomicU64; 2],
    readers: AtomicU32,
    dims: AtomicU32,
    base: AtomicU64,
    strides: [AtomicI64; DIMS],
}

impl Board {
    /// Claims the board for this process.
    pub fn claim(&self) {
        self.process.store(std::process::id(), Ordering::Release);
    }

    fn post(&self, id: MemoryId, memory: &ClientMemory) -> Option<usize> {
        let is_free = |notice: &Notice| notice.is_posted.load(Ordering::Acquire) == 0;
        let place = self.notices.iter().position(is_free)?;
        let notice = &self.notices[place];
        if memory.strides.len() > DIMS {
            return None;
        }
        for (posted, &stride) in notice.strides.iter().zip(&memory.strides) {
            posted.store(stride as i64, Ordering::Relaxed);
        }
        notice
            .dims
            .store(exact::<u32>(memory.strides.len()), Ordering::Relaxed);
        let base = memory.base.expose_provenance() as u64;
        notice.base.store(base, Ordering::Relaxed);
        for (posted, word) in notice.id.iter().zip(id.words()) {
            posted.store(word, Ordering::Relaxed);
        }
        notice.is_posted.store(1, Ordering::SeqCst);
        Some(place)
    }

    /// Takes a notice down. When this returns nobody looks into the memory any more.
    fn take_down(&self, place: usize) {
        let notice = &self.notices[place];
        notice.is_posted.store(0, Ordering::SeqCst);
        let until = Instant::now() + READER_MAX;
        while notice.readers.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Finds the notice of a memory, which stays valid as long as the reader is held.
    pub fn find(&self, id: MemoryId) -> Option<NoticeReader<'_>> {
        let notice = self.notices.iter().find(|notice| notice.is_of(id))?;
        notice.readers.fetch_add(1, Ordering::SeqCst);
        let found = NoticeReader {
            process: self.process.load(Ordering::Acquire),
            notice,
        };
        // The owner may have taken the notice down in between; it now waits for this reader, or did
        // not see it.
        notice.is_of(id).then_some(found)
    }
}

impl Notice {
    /// Whether the notice is posted, and of this memory.
    fn is_of(&self, id: MemoryId) -> bool {
        let mut words = self.id.iter().zip(id.words());
        self.is_posted.load(Ordering::SeqCst) == 1
            && words.all(|(posted, word)| posted.load(Ordering::SeqCst) == word)
    }
}

/// A reader of a notice, which copies the memory of another process.
pub struct NoticeReader<'a> {
    process: u32,
    notice: &'a Notice,
}

impl Drop for NoticeReader<'_> {
    fn drop(&mut self) {
        self.notice.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A holder of a board.
pub trait HasBoard: Send + Sync {
    fn board(&self) -> &Board;
}

/// A posting is a notice of this process. Dropping the posting takes the notice down.
pub struct Posting {
    board: Arc<dyn HasBoard>,
    place: usize,
}

impl Posting {
    /// Posts a memory that this process exposes, if the board has a place for it.
    pub fn new(board: Arc<dyn HasBoard>, id: MemoryId, memory: &ClientMemory) -> Option<Self> {
        let place = board.board().post(id, memory)?;
        Some(Self { board, place })
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        self.board.board().take_down(self.place);
    }
}

/// The outcome of a copy between two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The copy is done.
    All,
    /// The client must copy this piece, or a part of the memory could not be reached. A second copy
    /// of the piece does no harm.
    NotThis,
    /// The kernel allows no such copies at all.
    Never,
}

impl NoticeReader<'_> {
    /// Copies `piece` between the client's memory and a buffer at `buffer`.
    ///
    /// # Safety
    /// The buffer must hold the piece as `window` places it, and nobody else may access the buffer
    /// meanwhile; nor, if elements are scattered, the client's memory.
    pub unsafe fn copy(
        &self,
        piece: &Piece,
        window: &Window,
        buffer: *mut u8,
        direction: Direction,
    ) -> CopyOutcome {
        let dims = self.notice.dims.load(Ordering::Relaxed) as usize;
        let strides = self.notice.strides.iter().take(dims);
        let strides: Vec<_> = strides
            .map(|s| exact::<isize>(s.load(Ordering::Relaxed)))
            .collect();
        let base = exact::<usize>(self.notice.base.load(Ordering::Relaxed));
        let buffer = buffer.wrapping_add(window.offset);
        let copies = piece.copies(window.width, &window.strides, &strides, direction);
        let mut vectors = Vectors::default();
        let mut copies = copies;
        if !copies.all(|copy| vectors.add(&copy)) {
            return CopyOutcome::NotThis;
        }
        let (theirs, own) = match direction {
            Direction::Gather => (vectors.sources, vectors.targets),
            Direction::Scatter => (vectors.targets, vectors.sources),
        };
        if theirs.len() > THEIR_MAX {
            return CopyOutcome::NotThis;
        }
        let (own, theirs) = (at(buffer.expose_provenance(), &own), at(base, &theirs));
        let bytes: usize = theirs.iter().map(|vector| vector.iov_len).sum();
        let call = match direction {
            Direction::Gather => libc::process_vm_readv,
            Direction::Scatter => libc::process_vm_writev,
        };
        // SAFETY: the own stretches are the piece's in the buffer, by the caller's promise; the
        // kernel checks the stretches of the other process.
        let moved = unsafe {
            call(
                self.process as libc::pid_t,
                own.as_ptr(),
                own.len() as libc::c_ulong,
                theirs.as_ptr(),
                theirs.len() as libc::c_ulong,
                0,
            )
        };
        match usize::try_from(moved) {
            Ok(moved) if moved == bytes => CopyOutcome::All,
            Ok(_) => CopyOutcome::NotThis,
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EFAULT | libc::ENOMEM | libc::EINTR | libc::ESRCH) => {
                    CopyOutcome::NotThis
                }
                _ => CopyOutcome::Never,
            },
        }
    }
}

/// A vector is bytes that lie together, at an offset from a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vector {
    offset: isize,
    bytes: usize,
}

/// Turns vectors into the kernel's form.
fn at(base: usize, vectors: &[Vector]) -> Vec<libc::iovec> {
    let at = |vector: &Vector| libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(base.wrapping_add_signed(vector.offset)),
        iov_len: vector.bytes,
    };
    vectors.iter().map(at).collect()
}

/// The vectors that copies move, on both sides and in one order.
#[derive(Default)]
struct Vectors {
    sources: Vec<Vector>,
    targets: Vec<Vector>,
}

impl Vectors {
    /// Adds the vectors of `copy`; false if that makes too many.
    fn add(&mut self, copy: &StridedCopy) -> bool {
        let counts = copy.axes.iter().map(|axis| axis.count);
        let runs = counts.fold(1, usize::saturating_mul);
        if runs > OWN_MAX - self.sources.len().max(self.targets.len()) {
            return false;
        }
        for run in 0..runs {
            let (mut rest, mut source, mut target) = (run, copy.source, copy.target);
            for axis in copy.axes.iter().rev() {
                let index = (rest % axis.count) as isize;
                rest /= axis.count;
                source += index * axis.source;
                target += index * axis.target;
            }
            add(&mut self.sources, source, copy.width);
            add(&mut self.targets, target, copy.width);
        }
        true
    }
}

/// Adds bytes to the last vector if they continue it, otherwise as a new one.
fn add(vectors: &mut Vec<Vector>, offset: isize, bytes: usize) {
    match vectors.last_mut() {
        Some(last) if last.offset + last.bytes as isize == offset => last.bytes += bytes,
        _ => vectors.push(Vector { offset, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use penstock_engine::CopyKind;
    use penstock_layout::{Distribution, Region, Share, row_major_strides};

    use super::*;

    /// A memory, whose extents a board does not look at.
    fn memory_at(base: *mut u8, strides: Vec<isize>) -> ClientMemory {
        ClientMemory {
            base,
            extents: vec![0; strides.len()],
            strides,
            width: 8,
        }
    }

    fn name(number: u64) -> MemoryId {
        MemoryId::new([number, 1])
    }

    struct LoneBoard(Board);

    impl HasBoard for LoneBoard {
        fn board(&self) -> &Board {
            &self.0
        }
    }

    fn window(shape: &[u64]) -> Window {
        let strides = row_major_strides(shape);
        Window {
            width: 8,
            offset: 16,
            strides: strides.into_iter().map(|s| s as isize * 8).collect(),
        }
    }

    /// A copy from this very process moves the same bytes as the client's own copy.
    #[test]
    fn what_is_reached_is_what_the_client_would_copy() {
        const ELEMENTS: usize = 24 * 20;
        for (dists, region) in [
            ("BLOCK,*", Region::new(&[3, 0], &[9, 20])),
            ("BLOCK,*", Region::new(&[3, 2], &[9, 11])),
            ("CYCLIC(5),BLOCK", Region::new(&[0, 0], &[24, 20])),
            ("CYCLIC,CYCLIC", Region::new(&[1, 1], &[20, 17])),
        ] {
            let mesh: &[u64] = if dists == "BLOCK,*" { &[2] } else { &[2, 3] };
            let dists = dists.parse().unwrap();
            let share = Distribution::new(&[24, 20], &dists, mesh).unwrap().share(0);
            let piece = Piece::from(share.intersect(&region).unwrap());
            for is_reversed in [false, true] {
                let mut held: Vec<u64> = (0..ELEMENTS as u64).collect();
                let extents = share.extents();
                let strides = vec![extents[1] as isize * 8, 8];
                let mut memory = memory_at(held.as_mut_ptr().cast(), strides);
                if is_reversed {
                    let last = (extents[0] as isize - 1) * memory.strides[0];
                    memory.base = memory.base.wrapping_offset(last);
                    memory.strides[0] = -memory.strides[0];
                }
                let board = Board::default();
                board.claim();
                board.post(name(7), &memory).unwrap();
                let found = board.find(name(7)).unwrap();
                let window = window(&region.shape);
                let mut wanted = vec![0u64; ELEMENTS + 2];
                let mut got = wanted.clone();
                let base = wanted.as_mut_ptr().cast();
                // SAFETY: buffers and memory hold more than the region, and are this test's alone.
                let copied = unsafe {
                    memory.copy(&piece, &window, base, Direction::Gather, CopyKind::Kernels);
                    found.copy(&piece, &window, got.as_mut_ptr().cast(), Direction::Gather)
                };
                let before = held.clone();
                match copied {
                    CopyOutcome::All => assert_eq!(got, wanted),
                    CopyOutcome::NotThis => continue, // too many stretches
                    CopyOutcome::Never => {
                        eprintln!("the kernel does not allow it: not tested");
                        return;
                    }
                }
                got.iter_mut().for_each(|element| *element += 1000);
                // SAFETY: as above.
                let copied = unsafe {
                    found.copy(&piece, &window, got.as_mut_ptr().cast(), Direction::Scatter)
                };
                assert_eq!(copied, CopyOutcome::All);
                let changed = before.iter().zip(&held).filter(|(b, h)| **b + 1000 == **h);
                assert_eq!(changed.count() as u64, piece.elements());
                let same = before.iter().zip(&held).filter(|(b, h)| b == h);
                assert_eq!(same.count() as u64, ELEMENTS as u64 - piece.elements());
            }
        }
    }

    #[test]
    fn many_short_stretches_are_for_the_client() {
        let region = Region::new(&[0, 0], &[64, 64]);
        let share = Share::of_box(&region);
        let mut held = vec![0u64; 2 * 64 * 64];
        let memory = memory_at(held.as_mut_ptr().cast(), vec![64 * 16, 16]);
        let board = Board::default();
        board.claim();
        board.post(name(0), &memory).unwrap();
        let piece = Piece::from(share.intersect(&region).unwrap());
        let found = board.find(name(0)).unwrap();
        // SAFETY: nothing is copied.
        let copied =
            unsafe { found.copy(&piece, &window(&[64, 64]), null_mut(), Direction::Gather) };
        assert_eq!(copied, CopyOutcome::NotThis);
    }

    #[test]
    fn memory_that_is_gone_is_for_the_client_to_complain_of() {
        let region = Region::new(&[0], &[64]);
        let board = Board::default();
        board.claim();
        let memory = memory_at(ptr::without_provenance_mut(8), vec![8]);
        board.post(name(0), &memory).unwrap();
        let piece = Piece::from(Share::of_box(&region).intersect(&region).unwrap());
        let mut buffer = [0u64; 66];
        let base = buffer.as_mut_ptr().cast();
        let found = board.find(name(0)).unwrap();
        // SAFETY: the buffer holds the piece, and the kernel checks the rest.
        let copied = unsafe { found.copy(&piece, &window(&[64]), base, Direction::Gather) };
        assert_ne!(copied, CopyOutcome::All);
    }

    #[test]
    fn a_notice_is_there_until_it_is_taken_down() {
        let memory = |dims| memory_at(null_mut(), vec![8; dims]);
        let alone: Arc<dyn HasBoard> = Arc::new(LoneBoard(Board::default()));
        let posted: Vec<_> = (0..NOTICES as u64)
            .map(|number| Posting::new(alone.clone(), name(number), &memory(2)).unwrap())
            .collect();
        assert!(Posting::new(alone.clone(), name(99), &memory(2)).is_none());
        assert!(alone.board().find(name(0)).is_some() && alone.board().find(name(99)).is_none());
        drop(posted);
        assert!(alone.board().find(name(0)).is_none());
        assert!(Posting::new(alone.clone(), name(99), &memory(DIMS + 1)).is_none());
        assert!(Posting::new(alone.clone(), name(99), &memory(DIMS)).is_some());
    }

    /// Taking a notice down waits for its reader.
    #[test]
    fn memory_is_given_back_when_nobody_copies() {
        let alone = Arc::new(LoneBoard(Board::default()));
        let memory = memory_at(null_mut(), Vec::new());
        let posted = Posting::new(alone.clone(), name(3), &memory).unwrap();
        let found = alone.board().find(name(3)).unwrap();
        std::thread::scope(|scope| {
            let taken_down = scope.spawn(move || {
                drop(posted);
                Instant::now()
            });
            while alone.board().find(name(3)).is_some() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            let given_up = Instant::now();
            drop(found);
            assert!(taken_down.join().unwrap() >= given_up);
        });
    }
}
