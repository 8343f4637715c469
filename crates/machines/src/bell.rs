//! A doorbell: how a node sleeps until it is wanted, and is woken from any thread or process.
//!
//! Whoever has something for a node puts it where the node will look, then rings. The node reads
//! the bell, looks everywhere, and sleeps only if the bell has not rung since it was read. The
//! words lie in memory that all who ring have mapped, and the kernel's futex does the sleeping: an
//! idle rank costs nothing, and ringing an awake one costs no system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;
use std::time::Duration;

/// The two words of a doorbell. All zero is a bell that has not rung.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU32,
    sleeping: AtomicU32,
}

impl Bell {
    /// How often it has rung, modulo 2^32. Read it before looking for work.
    pub fn read(&self) -> u32 {
        self.rung.load(Ordering::SeqCst)
    }

    /// Wakes the node if it sleeps, and keeps it awake if it is about to.
    pub fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            // SAFETY: the futex word is a live, aligned u32; FUTEX_WAKE reads no other argument.
            unsafe {
                libc::syscall(libc::SYS_futex, self.rung.as_ptr(), libc::FUTEX_WAKE, 1);
            }
        }
    }

    /// Sleeps until it rings, unless it has rung since `seen` was read, or until `at_most` is over.
    pub fn sleep(&self, seen: u32, at_most: Option<Duration>) {
        self.sleeping.store(1, Ordering::SeqCst);
        if self.read() == seen {
            let timeout = at_most.map(|time| libc::timespec {
                tv_sec: time.as_secs() as libc::time_t,
                tv_nsec: time.subsec_nanos().into(),
            });
            let timeout = timeout
                .as_ref()
                .map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the futex word is a live, aligned u32 and the timeout is null or outlives
            // the call. Any return (woken, changed, interrupted, timed out) means: look again.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.rung.as_ptr(),
                    libc::FUTEX_WAIT,
                    seen,
                    timeout,
                );
            }
        }
        self.sleeping.store(0, Ordering::SeqCst);
    }
}

/// Somewhere that holds a bell: the heap, or a segment of shared memory.
pub trait HasBell: Send + Sync {
    /// The bell.
    fn bell(&self) -> &Bell;
}

impl HasBell for Bell {
    fn bell(&self) -> &Bell {
        self
    }
}

/// Wakes a node's futures by ringing its bell.
pub struct BellWaker(pub Arc<dyn HasBell>);

impl Wake for BellWaker {
    fn wake(self: Arc<Self>) {
        self.0.bell().ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.bell().ring();
    }
}
