//! The bus between an I/O node and its disks: one transfer at a time, first come, first served.

use crate::time::{Interval, Span, Time};

/// A bus keeps only the moment when it is free again, so transfers are served in the order of
/// calls. Call when the data are ready, not before, and the order is that in which data become
/// ready.
#[derive(Clone, Debug)]
pub struct Bus {
    bytes_per_second: u64,
    free_at: Time,
    busy: Span,
}

impl Bus {
    /// Makes an idle bus.
    ///
    /// # Panics
    /// When the rate is 0.
    pub fn new(bytes_per_second: u64) -> Bus {
        assert!(bytes_per_second > 0, "a bus that carries nothing");
        Bus {
            bytes_per_second,
            free_at: Time::ZERO,
            busy: Span::ZERO,
        }
    }

    /// Reserves the bus for `bytes`, from `ready_at` or from when it is free. Returns the time
    /// taken.
    pub fn transfer(&mut self, ready_at: Time, bytes: u64) -> Interval {
        let span = Span::of_bytes(bytes, self.bytes_per_second);
        let taken = Interval::starting(ready_at.max(self.free_at), span);
        self.free_at = taken.end;
        self.busy += span;
        taken
    }

    /// The end of the last transfer.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// The total time for which the bus has carried data.
    pub fn busy(&self) -> Span {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_queue() {
        let mut bus = Bus::new(1_000_000);
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        assert_eq!(bus.transfer(at(1), 2_000), Interval::new(at(1), at(3)));
        assert_eq!(
            bus.transfer(at(2), 1_000),
            Interval::new(at(3), at(4)),
            "waits"
        );
        assert_eq!(
            bus.transfer(at(9), 1_000),
            Interval::new(at(9), at(10)),
            "was idle"
        );
        assert_eq!(bus.free_at(), at(10));
        assert_eq!(bus.busy(), Span::from_ms(4));
    }
}
