//! Collective calls that move next to nothing: what a call takes beside what the model counts.
//!
//! The caller makes the calls: sessions on arrays stand above the machines that are measured here.

use std::path::Path;
use std::time::Duration;

use penstock_engine::Result;

use crate::files::Scratch;
use crate::sample::{Samples, Watch};

/// The ranks of the larger sessions.
pub const RANKS: usize = 4;
/// The elements of each rank, of 8 bytes.
pub const ELEMENTS: u64 = 8;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKind {
    pub ranks: usize,
    /// Whether the array lies in one flat file, or else in chunks, one for each rank.
    pub is_flat: bool,
    /// Whether writes wait for stable storage.
    pub is_synced: bool,
    pub is_read: bool,
}

/// Writes an array to a path and reads it back, as often as `rounds` says, on threads: of
/// [`ELEMENTS`] elements for each rank. Gives the seconds of each write and of each read, from the
/// last rank's beginning to the last's end.
pub type MakeCalls<'a> = dyn Fn(&Path, CallKind, u32) -> Result<(Vec<f64>, Vec<f64>)> + 'a;

/// The seconds of calls of each kind.
#[derive(Clone, Debug, Default)]
pub struct Calls(pub Vec<(CallKind, Samples)>);

impl Calls {
    /// The seconds of calls of a kind; none if they were not measured.
    pub fn of(&self, kind: CallKind) -> Samples {
        let found = self.0.iter().find(|(other, _)| *other == kind);
        found
            .map(|(_, seconds)| seconds.clone())
            .unwrap_or_default()
    }
}

/// Measures in the scratch directory, if there is one, for about `time`.
///
/// # Errors
/// [`penstock_engine::Kind::Peer`] when stopped.
pub fn measure(
    scratch: Option<&Scratch>,
    time: Duration,
    make: &MakeCalls<'_>,
    watch: &Watch<'_>,
    remarks: &mut Vec<String>,
) -> Result<Calls> {
    let mut calls = Calls::default();
    let Some(scratch) = scratch else {
        return Ok(calls);
    };
    // A round takes some milliseconds, and there are eight sessions.
    let rounds = u32::try_from(time.as_millis() / 8 / 5).unwrap_or(u32::MAX);
    let rounds = rounds.clamp(8, 60);
    for ranks in [1, RANKS] {
        for is_synced in [false, true] {
            for is_flat in [false, true] {
                watch.check()?;
                let kind = |is_read| CallKind {
                    ranks,
                    is_flat,
                    is_synced,
                    is_read,
                };
                let path = scratch
                    .path()
                    .join(format!("calls-{ranks}-{is_synced}-{is_flat}"));
                match make(&path, kind(false), rounds) {
                    Ok((mut writes, mut reads)) => {
                        // The first are slower, and no measure of those that follow.
                        writes.drain(..2.min(writes.len()));
                        reads.drain(..2.min(reads.len()));
                        calls.0.push((kind(false), Samples::new(writes)));
                        calls.0.push((kind(true), Samples::new(reads)));
                    }
                    Err(error) => {
                        watch.check()?;
                        remarks.push(format!("calls of {ranks} ranks were not measured: {error}"));
                    }
                }
            }
        }
    }
    Ok(calls)
}
