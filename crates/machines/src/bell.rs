//! A bell lets a node sleep until it is wanted; any thread or process wakes it.
//!
//! Others put work for a node where the node will look, then ring. The node reads the bell, looks
//! everywhere, and sleeps only if the bell has not rung since it was read. The words of the bell
//! lie in memory that all who ring have mapped, and the kernel's futex does the sleeping: an idle
//! rank costs nothing, and ringing an awake one costs no system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;
use std::time::Duration;

/// A bell is two words in memory: how often it has rung, and how many sleep. All zero is a bell
/// that has not rung. Two threads sleep at one bell if one is about to take over from the other.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU32,
    sleeping: AtomicU32,
}

impl Bell {
    /// The number of rings, modulo 2^32. A node reads it before it looks for work.
    pub fn read(&self) -> u32 {
        self.rung.load(Ordering::SeqCst)
    }

    /// Wakes all who sleep, and keeps awake who is about to.
    pub fn ring(&self) {
        self.ring_by(|| {
            // SAFETY: the futex word is a live, aligned u32; FUTEX_WAKE reads no other argument.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.rung.as_ptr(),
                    libc::FUTEX_WAKE,
                    i32::MAX,
                );
            }
        });
    }

    /// Keeps awake who is about to sleep, and calls `wake` if somebody sleeps.
    pub fn ring_by(&self, wake: impl FnOnce()) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            wake();
        }
    }

    /// Calls `sleep`, unless the bell has rung since `seen` was read.
    pub fn sleep_by(&self, seen: u32, sleep: impl FnOnce()) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if self.read() == seen {
            sleep();
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until the bell rings, unless it has rung since `seen` was read, or until `at_most` is
    /// over.
    pub fn sleep(&self, seen: u32, at_most: Option<Duration>) {
        self.sleep_by(seen, || {
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
        });
    }
}

/// A holder of a bell: the heap, or a segment of shared memory.
pub trait HasBell: Send + Sync {
    fn bell(&self) -> &Bell;

    /// Wakes all who sleep, and keeps awake who is about to.
    fn ring(&self) {
        self.bell().ring();
    }

    /// Sleeps as [`Bell::sleep`] does. A holder whose owner waits for more than the bell, such as
    /// sockets, wakes it for these, too.
    fn sleep(&self, seen: u32, at_most: Option<Duration>) {
        self.bell().sleep(seen, at_most);
    }
}

impl HasBell for Bell {
    fn bell(&self) -> &Bell {
        self
    }
}

/// A waker that wakes a node's futures by ringing its bell.
pub struct BellWaker(pub Arc<dyn HasBell>);

impl Wake for BellWaker {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring();
    }
}
