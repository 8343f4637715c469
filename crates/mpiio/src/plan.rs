//! Plans: how the ranks of a collective access move their data.
//!
//! Rank 0 hears from each rank which part of the file it touches, and decides for all:
//!
//! | what ranks touch | what happens |
//! |---|---|
//! | nothing | nothing |
//! | parts of the file that do not interleave, or long runs | each rank moves its own, alone |
//! | anything else | servers direct the flow, window after window of the file |
//!
//! Servers pull the pieces of a block from all ranks into a buffer and write it in one call. That
//! pays where the pieces of ranks interleave and are short. A rank whose data lie together in the
//! file needs no server: the way from its memory to the file is one copy shorter.
//!
//! Memory: a rank keeps the series of its part of one window, a server two blocks and the series of
//! all ranks in its blocks. So a window is as long as neither has more series in it than
//! [`SERIES_MAX`].

use serde::{Deserialize, Serialize};

/// The most series, about, that a rank or a server keeps at a time: a hundred bytes each.
pub const SERIES_MAX: u64 = 1 << 15;
/// Runs of a rank that are as long as this on average are moved without servers.
const RUN_BYTES_LONG: u64 = 128 << 10;
/// The bytes of a block, unless a hint says otherwise.
pub const BLOCK_BYTES: u64 = 1 << 20;
/// The smallest block.
pub const BLOCK_BYTES_MIN: u64 = 4096;

/// What a rank touches of a file in one access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    /// The first byte of the file, and one past the last.
    pub start: u64,
    pub end: u64,
    /// The bytes of data.
    pub bytes: u64,
    /// About how many runs of the file they are.
    pub runs: u64,
    /// About how many series they are on both sides, the file's and memory's; the highest number if
    /// they cannot be cut into windows.
    pub pieces: u64,
}

impl Touch {
    /// The part before the end of a file, if there is any.
    pub fn before(&self, file_bytes: u64) -> Option<Self> {
        let end = self.end.min(file_bytes);
        let is_run = self.bytes == self.end - self.start;
        let bytes = match is_run {
            true => end.saturating_sub(self.start),
            false => self.bytes.min(end.saturating_sub(self.start)),
        };
        (self.start < end).then_some(Self {
            end,
            bytes,
            ..*self
        })
    }
}

/// Whether servers take part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Directing {
    /// Where it pays.
    #[default]
    Automatic,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What hints say about collective accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    pub directing: Directing,
    pub block_bytes: u64,
    pub servers: usize,
}

/// How an access goes: the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Plan {
    /// No rank has anything to move.
    Nothing,
    /// Each rank moves its own data alone.
    Alone,
    /// Servers direct the flow.
    Directed(Directed),
}

/// How servers move the data of an access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directed {
    /// The part of the file that ranks touch.
    pub start: u64,
    pub end: u64,
    /// The number of windows.
    pub windows: u64,
    /// The bytes of a block.
    pub block_bytes: u64,
    /// The number of servers.
    pub servers: usize,
    /// The number of the call that moves the second window: the first has the number of its access.
    pub further: u64,
}

impl Directed {
    /// The bytes of the file in a window.
    pub fn window(&self, nth: u64) -> std::ops::Range<u64> {
        let blocks = self.end.div_ceil(self.block_bytes) - self.start / self.block_bytes;
        let each = blocks.div_ceil(self.windows) * self.block_bytes;
        let first = self.start / self.block_bytes * self.block_bytes;
        let start = (first + nth * each).max(self.start);
        start.min(self.end)..(first + (nth + 1) * each).min(self.end)
    }
}

/// Decides how an access goes. `reserve` gives the number of the first of some further calls.
pub fn decide(touches: &[Touch], tuning: &Tuning, reserve: impl FnOnce(u64) -> u64) -> Plan {
    let mut touching: Vec<&Touch> = touches.iter().filter(|touch| touch.bytes > 0).collect();
    if touching.is_empty() {
        return Plan::Nothing;
    }
    touching.sort_by_key(|touch| touch.start);
    let is_alone = match tuning.directing {
        Directing::Never => true,
        Directing::Always => false,
        Directing::Automatic => {
            let is_apart = touching.windows(2).all(|pair| pair[0].end <= pair[1].start);
            let is_long = |touch: &&Touch| touch.bytes / touch.runs.max(1) >= RUN_BYTES_LONG;
            let is_run = |touch: &&Touch| touch.bytes == touch.end - touch.start;
            touching.iter().all(is_long) || is_apart && touching.iter().all(is_run)
        }
    };
    if is_alone {
        return Plan::Alone;
    }
    let start = touching[0].start;
    let end = touching
        .iter()
        .map(|touch| touch.end)
        .max()
        .unwrap_or(start);
    let of_ranks = touching.iter().map(|touch| touch.pieces);
    let of_a_rank = of_ranks.clone().max().unwrap_or(1);
    let of_a_server = of_ranks.fold(0, u64::saturating_add) / tuning.servers as u64;
    let blocks = end.div_ceil(tuning.block_bytes) - start / tuning.block_bytes;
    let windows = match of_a_rank {
        u64::MAX => 1,
        _ => of_a_rank.max(of_a_server).div_ceil(SERIES_MAX),
    };
    let windows = windows.clamp(1, blocks.max(1));
    Plan::Directed(Directed {
        start,
        end,
        windows,
        block_bytes: tuning.block_bytes,
        servers: tuning.servers,
        further: reserve(windows - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(start: u64, end: u64, bytes: u64, runs: u64) -> Touch {
        Touch {
            start,
            end,
            bytes,
            runs,
            pieces: runs,
        }
    }

    fn tuning(directing: Directing) -> Tuning {
        Tuning {
            directing,
            block_bytes: 1000,
            servers: 2,
        }
    }

    #[test]
    fn who_moves_what() {
        let nothing = touch(0, 0, 0, 0);
        let apart = [touch(100, 200, 100, 1), nothing, touch(0, 100, 100, 1)];
        let interleaved = [touch(0, 190, 100, 10), touch(10, 200, 100, 10)];
        let long = [
            touch(0, 8 << 20, 4 << 20, 4),
            touch(1 << 20, 9 << 20, 4 << 20, 4),
        ];
        let automatic = tuning(Directing::Automatic);
        assert_eq!(decide(&[nothing; 2], &automatic, |_| 0), Plan::Nothing);
        assert_eq!(decide(&apart, &automatic, |_| 0), Plan::Alone);
        assert!(matches!(
            decide(&interleaved, &automatic, |_| 0),
            Plan::Directed(_)
        ));
        assert_eq!(decide(&long, &automatic, |_| 0), Plan::Alone);
        assert!(matches!(
            decide(&apart, &tuning(Directing::Always), |_| 0),
            Plan::Directed(_)
        ));
        assert_eq!(
            decide(&interleaved, &tuning(Directing::Never), |_| 0),
            Plan::Alone
        );
    }

    #[test]
    fn windows_hold_all_bytes_once() {
        for (start, end, windows) in [(0, 1, 1), (999, 1001, 2), (1500, 10_200, 4), (0, 5000, 5)] {
            let plan = Directed {
                start,
                end,
                windows,
                block_bytes: 1000,
                servers: 2,
                further: 0,
            };
            let mut next = start;
            for nth in 0..windows {
                let window = plan.window(nth);
                assert!(
                    window.start == next || window.is_empty(),
                    "{plan:?} {window:?}"
                );
                next = window.end.max(next);
            }
            assert_eq!(next, end);
        }
    }

    #[test]
    fn a_rank_has_not_too_many_series_at_a_time() {
        let many = [
            touch(0, 1 << 30, 1 << 24, 10 * SERIES_MAX),
            touch(5, 1 << 30, 9, 1),
        ];
        let mut reserved = 0;
        let plan = decide(&many, &tuning(Directing::Automatic), |calls| {
            reserved = calls;
            77
        });
        let Plan::Directed(plan) = plan else {
            panic!("{plan:?}");
        };
        assert_eq!((plan.windows, reserved, plan.further), (10, 9, 77));
    }
}
