//! What the ranks that have a file open share: its shared pointer, and the claims of atomic mode.
//!
//! Both stand on one board of 4 KiB, which one rank at a time changes. Ranks of one host have it in
//! memory that all of them map. On several hosts rank 0 has it in a window, and others get and put
//! it (one-sided communication, which needs no thread and no call of rank 0). No file is made for
//! it.
//!
//! A claim is the right to read or to change some bytes of the file. Claims that conflict are
//! granted in the order of arrival:
//!
//! ```text
//! ticket 7   change 0..100     granted
//! ticket 8   read 50..60       waits for 7
//! ticket 9   read 200..300     granted
//! ticket 10  change 0..400     waits for 7, 8 and 9
//! ```

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use penstock_machines::memory::segment::{Mapping, SegmentName};

use crate::context::Context;
use crate::failure::{Class, Failure, Result};
use crate::mpi::{Mpi, Window};

/// The claims that there may be at a time. A claim that finds no room waits.
const CLAIMS: usize = 124;
/// The bytes of a board.
const BOARD_BYTES: usize = 4096;
/// How long a waiting rank sleeps between two looks, at first and at most.
const SLEEP_MIN: Duration = Duration::from_micros(5);
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// How long a rank waits for the board before it asks whether its holder still lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// What stands on the board.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Board {
    /// The shared pointer, in elementary types.
    pointer: i64,
    /// The last ticket that was given.
    tickets: u64,
    claims: [Claim; CLAIMS],
}

/// A claim on bytes of the file; one of ticket 0 is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    ticket: u64,
    start: u64,
    end: u64,
    /// The process that has the claim, shifted by one, and whether it changes the bytes.
    holder: u64,
}

/// A board in memory of a host.
#[repr(C)]
struct Mapped {
    /// The process that changes the board, or 0.
    holder: AtomicU32,
    board: UnsafeCell<Board>,
}

const _: () = assert!(size_of::<Mapped>() <= BOARD_BYTES);

const NO_CLAIM: Claim = Claim {
    ticket: 0,
    start: 0,
    end: 0,
    holder: 0,
};

impl Claim {
    fn new(ticket: u64, bytes: &Range<u64>, changes: bool) -> Self {
        Self {
            ticket,
            start: bytes.start,
            end: bytes.end,
            holder: u64::from(std::process::id()) << 1 | u64::from(changes),
        }
    }

    fn changes(&self) -> bool {
        self.holder & 1 == 1
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = self.start < other.end && other.start < self.end;
        meet && (self.changes() || other.changes())
    }
}

impl Board {
    const EMPTY: Self = Self {
        pointer: 0,
        tickets: 0,
        claims: [NO_CLAIM; CLAIMS],
    };

    /// Enters a claim, and gives its ticket; nothing if there is no room.
    fn enter(&mut self, bytes: &Range<u64>, changes: bool) -> Option<u64> {
        let room = self.claims.iter_mut().find(|claim| claim.ticket == 0)?;
        self.tickets += 1;
        *room = Claim::new(self.tickets, bytes, changes);
        Some(self.tickets)
    }

    /// Whether a claim waits for none that came before.
    fn is_granted(&self, ticket: u64) -> bool {
        let mine = self.claims.iter().find(|claim| claim.ticket == ticket);
        mine.is_none_or(|mine| {
            let before = self.claims.iter();
            let mut before = before.filter(|claim| claim.ticket != 0 && claim.ticket < ticket);
            !before.any(|claim| claim.conflicts(mine))
        })
    }

    fn leave(&mut self, ticket: u64) {
        for claim in &mut self.claims {
            if claim.ticket == ticket {
                *claim = NO_CLAIM;
            }
        }
    }

    /// Removes the claims of processes of this host that are gone.
    fn bury(&mut self) {
        for claim in &mut self.claims {
            if claim.ticket != 0 && !lives(claim.holder >> 1) {
                *claim = NO_CLAIM;
            }
        }
    }
}

/// Where the board is.
enum Place {
    /// In this process, which has the file alone.
    Own(Mutex<Box<Board>>),
    /// In memory that the processes of the host map.
    Host(Mapping),
    /// With rank 0, in a window. One thread of a process at a time looks into it.
    Window(Mutex<Window>),
}

/// What the ranks that have a file open share.
pub struct Shared {
    mpi: &'static Mpi,
    place: Place,
}

impl Shared {
    /// The board of one rank.
    pub fn of_one(mpi: &'static Mpi) -> Self {
        Self {
            mpi,
            place: Place::Own(Mutex::new(Box::new(Board::EMPTY))),
        }
    }

    /// Makes the board of a host, with its name for the others.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn of_host(mpi: &'static Mpi) -> Result<(Self, SegmentName)> {
        let mapping = Mapping::shared(BOARD_BYTES)?;
        let name = mapping
            .name()
            .ok_or_else(|| Failure::new(Class::Other, "the memory that ranks share has no name"))?;
        Ok((Self::mapped(mpi, mapping), name))
    }

    /// Opens the board that another process of the host has made.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn on_host(mpi: &'static Mpi, name: &SegmentName) -> Result<Self> {
        Ok(Self::mapped(mpi, Mapping::open(name)?))
    }

    fn mapped(mpi: &'static Mpi, mapping: Mapping) -> Self {
        Self {
            mpi,
            place: Place::Host(mapping),
        }
    }

    /// Makes the board of ranks of several hosts.
    ///
    /// # Errors
    /// What MPI answers.
    ///
    /// # Collective
    /// Over the ranks of the context.
    pub fn of_hosts(context: &Context) -> Result<Self> {
        let bytes = if context.rank == 0 { BOARD_BYTES } else { 0 };
        let window = Window::make(context.mpi, context.comm, bytes)?;
        Ok(Self {
            mpi: context.mpi,
            place: Place::Window(Mutex::new(window)),
        })
    }

    /// Frees the board, before the file is closed.
    ///
    /// # Errors
    /// What MPI answers.
    ///
    /// # Collective
    /// Over the ranks that share it, if they are on several hosts.
    pub fn free(&self) -> Result<()> {
        match &self.place {
            Place::Window(window) => {
                let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
                window.free(self.mpi)
            }
            Place::Own(_) | Place::Host(_) => Ok(()),
        }
    }

    /// Whether other threads than the program's may use the board.
    pub fn is_for_all_threads(&self) -> bool {
        !matches!(self.place, Place::Window(_)) || self.mpi.has_threads()
    }

    /// Changes the board, while nobody else does.
    fn update<T>(&self, change: impl FnOnce(&mut Board) -> T) -> Result<T> {
        match &self.place {
            Place::Own(board) => {
                let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(change(&mut board))
            }
            Place::Host(mapping) => update_mapped(mapping, change),
            Place::Window(window) => {
                let window = window.lock().unwrap_or_else(PoisonError::into_inner);
                let mut board = Board::EMPTY;
                // SAFETY: a board is plain memory, which any bytes are.
                let bytes = unsafe {
                    let start = (&raw mut board).cast::<u8>();
                    std::slice::from_raw_parts_mut(start, size_of::<Board>())
                };
                window.lock_alone(self.mpi)?;
                let got = window.get(self.mpi, bytes);
                let changed = got.and_then(|()| {
                    let changed = change(&mut board);
                    // SAFETY: as above.
                    let bytes = unsafe {
                        let start = (&raw const board).cast::<u8>();
                        std::slice::from_raw_parts(start, size_of::<Board>())
                    };
                    window.put(self.mpi, bytes).map(|()| changed)
                });
                window.unlock(self.mpi)?;
                changed
            }
        }
    }

    /// Moves the shared pointer on by some elementary types, and gives where it was.
    ///
    /// # Errors
    /// What MPI answers; when the process that last held the board is gone.
    pub fn advance(&self, by: i64) -> Result<i64> {
        self.update(|board| {
            let before = board.pointer;
            board.pointer = before.saturating_add(by);
            before
        })
    }

    /// Sets the shared pointer.
    ///
    /// # Errors
    /// As [`Shared::advance`].
    pub fn set_pointer(&self, pointer: i64) -> Result<()> {
        self.update(|board| board.pointer = pointer)
    }

    /// Claims bytes of the file, to read or to change them, and waits until that is granted. The
    /// claim ends when it is dropped.
    ///
    /// # Errors
    /// As [`Shared::advance`].
    pub fn claim(&self, bytes: &Range<u64>, changes: bool) -> Result<BytesClaim<'_>> {
        let mut pause = Pause::default();
        let ticket = loop {
            match self.update(|board| board.enter(bytes, changes))? {
                Some(ticket) => break ticket,
                None => pause.sleep(),
            }
        };
        let claim = BytesClaim {
            shared: self,
            ticket,
        };
        while !self.update(|board| board.is_granted(ticket))? {
            pause.sleep();
            if pause.is_long() && matches!(self.place, Place::Host(_)) {
                self.update(Board::bury)?;
            }
        }
        Ok(claim)
    }
}

/// Sleeps longer and longer between looks.
struct Pause {
    sleep: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { sleep: SLEEP_MIN }
    }
}

impl Pause {
    fn sleep(&mut self) {
        std::thread::sleep(self.sleep);
        self.sleep = (self.sleep * 2).min(SLEEP_MAX);
    }

    fn is_long(&self) -> bool {
        self.sleep == SLEEP_MAX
    }
}

/// A claim on bytes of a file, until it is dropped.
pub struct BytesClaim<'a> {
    shared: &'a Shared,
    ticket: u64,
}

impl Drop for BytesClaim<'_> {
    fn drop(&mut self) {
        // A board that cannot be reached any more is told nothing.
        let _ = self.shared.update(|board| board.leave(self.ticket));
    }
}

/// Changes a board in memory of the host, while no other process or thread does.
fn update_mapped<T>(mapping: &Mapping, change: impl FnOnce(&mut Board) -> T) -> Result<T> {
    // SAFETY: the mapping has room for a board, is aligned to a page, and zero at first.
    let mapped = unsafe { &*mapping.base().cast::<Mapped>() };
    let holder = &mapped.holder;
    let me = std::process::id();
    let begun = Instant::now();
    let mut pause = Pause::default();
    let mut looks = 0;
    while let Err(other) = holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        looks += 1;
        if looks < 100 {
            std::hint::spin_loop();
            continue;
        }
        if begun.elapsed() > PATIENCE && !lives(other.into()) {
            let text = format!("process {other}, which has the file open, is gone");
            return Err(Failure::new(Class::Other, text));
        }
        pause.sleep();
    }
    // SAFETY: the board is this thread's until the word is 0 again.
    let board = unsafe { &mut *mapped.board.get() };
    let changed = change(board);
    holder.store(0, Ordering::Release);
    Ok(changed)
}

/// Whether a process of this host lives.
fn lives(process: u64) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_conflict_are_granted_in_order() {
        let mut board = Board::EMPTY;
        let change = board.enter(&(0..100), true).unwrap();
        let inside = board.enter(&(50..60), false).unwrap();
        let apart = board.enter(&(200..300), false).unwrap();
        let all = board.enter(&(0..400), true).unwrap();
        let granted = |board: &Board| [change, inside, apart, all].map(|one| board.is_granted(one));
        assert_eq!(granted(&board), [true, false, true, false]);
        board.leave(change);
        assert_eq!(granted(&board), [true, true, true, false]);
        board.leave(inside);
        board.leave(apart);
        assert!(board.is_granted(all));
    }

    #[test]
    fn a_full_board_has_no_room() {
        let mut board = Board::EMPTY;
        let tickets: Vec<_> = (0..CLAIMS)
            .map(|_| board.enter(&(0..1), false).unwrap())
            .collect();
        assert_eq!(board.enter(&(0..1), false), None);
        board.leave(tickets[7]);
        assert!(board.enter(&(0..1), true).is_some());
    }

    #[test]
    fn threads_change_a_mapped_board_one_after_the_other() {
        let mapping = Mapping::shared(BOARD_BYTES).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        update_mapped(&mapping, |board| board.pointer += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(
            update_mapped(&mapping, |board| board.pointer).unwrap(),
            4000
        );
    }

    #[test]
    fn a_holder_that_is_gone_is_told() {
        let mapping = Mapping::shared(BOARD_BYTES).unwrap();
        let gone = std::process::Command::new("true").spawn().unwrap();
        let process = gone.id();
        drop(gone.wait_with_output());
        update_mapped(&mapping, |_| ()).unwrap();
        // SAFETY: the word is the holder's.
        unsafe { mapping.base().cast::<u32>().write(process) };
        assert_eq!(
            update_mapped(&mapping, |_| ()).unwrap_err().class,
            Class::Other
        );
    }
}
