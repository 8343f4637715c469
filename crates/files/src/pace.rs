//! The pace of a client: how much it has under way at a time.
//!
//! Servers that stand cut off a client that has too much under way. A client waits before it begins
//! an access that would make it too much; an access enters as a whole, so that no server waits for
//! a part of it while others do.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::rights::{REQUEST_BYTES_MAX, REQUESTS_MAX};

#[derive(Default)]
struct Used {
    requests: u64,
    bytes: u64,
    wakers: Vec<Waker>,
}

/// What a client has under way.
#[derive(Clone, Default)]
pub(crate) struct Pace(Arc<Mutex<Used>>);

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.used();
        write!(f, "{} requests of {} bytes", used.requests, used.bytes)
    }
}

/// An access under way.
pub(crate) struct Entered {
    pace: Pace,
    requests: u64,
    bytes: u64,
}

impl Pace {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until an access is not too much, by the number of its requests and the bytes of data
    /// inside them. One that is too much by itself goes alone.
    pub(crate) async fn enter(&self, requests: u64, bytes: u64) -> Entered {
        poll_fn(|context| {
            let mut used = self.used();
            let is_alone = used.requests == 0;
            let fits = used.requests + requests <= REQUESTS_MAX / 2
                && used.bytes + bytes <= REQUEST_BYTES_MAX / 2;
            if is_alone || fits {
                used.requests += requests;
                used.bytes += bytes;
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !used.wakers.iter().any(|other| other.will_wake(waker)) {
                used.wakers.push(waker.clone());
            }
            Poll::Pending
        })
        .await;
        Entered {
            pace: self.clone(),
            requests,
            bytes,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut used = self.pace.used();
        used.requests -= self.requests;
        used.bytes -= self.bytes;
        used.wakers.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn what_is_too_much_waits() {
        let pace = Pace::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut enter = |requests, bytes| {
            let entered = pin!(pace.enter(requests, bytes)).poll(&mut context);
            match entered {
                Poll::Ready(entered) => Some(entered),
                Poll::Pending => None,
            }
        };
        let whole = enter(1, REQUEST_BYTES_MAX).unwrap();
        assert!(enter(1, 0).is_none(), "more bytes than may be under way");
        drop(whole);
        let half = enter(REQUESTS_MAX / 2, 0).unwrap();
        assert!(enter(1, 0).is_none());
        drop(half);
        let (_one, _other) = (
            enter(1, 0).unwrap(),
            enter(REQUESTS_MAX / 2 - 1, 9).unwrap(),
        );
        assert!(enter(1, 0).is_none());
    }
}
