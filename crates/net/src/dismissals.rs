//! Why callers were refused, and clients cut off, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_engine::{Error, Kind};

/// The reason why a caller was refused, or a client was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dismissal {
    /// The user may not come, or nobody has signed for the caller.
    NotAdmitted,
    /// There are as many clients as there may be.
    Full,
    /// The caller is connected already.
    Connected,
    /// The caller means servers of another volume.
    OtherVolume,
    /// The caller has not said in time who it is.
    Silent,
    /// The caller has made no sense, or has gone before it was let in.
    Unrecognised,
    /// The client has sent what makes no sense.
    Nonsense,
    /// The client has sent what is too long.
    Overlong,
    /// The client has left too much that was for it.
    Backlog,
    /// The client has taken nothing for too long.
    Stuck,
    /// The client has too much under way.
    Excess,
    /// The client has asked for bytes of a file that it may not use so.
    Trespass,
    /// The client has sent a part of a request and not the others.
    Incomplete,
}

impl Dismissal {
    /// All reasons: those of the door, and then those for which clients are cut off.
    pub const ALL: [Self; 13] = [
        Self::NotAdmitted,
        Self::Full,
        Self::Connected,
        Self::OtherVolume,
        Self::Silent,
        Self::Unrecognised,
        Self::Nonsense,
        Self::Overlong,
        Self::Backlog,
        Self::Stuck,
        Self::Excess,
        Self::Trespass,
        Self::Incomplete,
    ];

    /// Whether it is of the door: the caller was not let in.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::NotAdmitted
                | Self::Full
                | Self::Connected
                | Self::OtherVolume
                | Self::Silent
                | Self::Unrecognised
        )
    }

    /// The name that people see.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAdmitted => "not_admitted",
            Self::Full => "full",
            Self::Connected => "connected",
            Self::OtherVolume => "other_volume",
            Self::Silent => "silent",
            Self::Unrecognised => "unrecognised",
            Self::Nonsense => "nonsense",
            Self::Overlong => "overlong",
            Self::Backlog => "backlog",
            Self::Stuck => "stuck",
            Self::Excess => "excess",
            Self::Trespass => "trespass",
            Self::Incomplete => "incomplete",
        }
    }

    /// Why the door has not let a caller in.
    pub(crate) fn of_refusal(error: &Error) -> Self {
        match error.kind {
            Kind::ReadOnly => Self::NotAdmitted,
            Kind::Busy => Self::Full,
            Kind::Exists => Self::Connected,
            Kind::Mismatch => Self::OtherVolume,
            _ => Self::Unrecognised,
        }
    }
}

/// The number of dismissals for each reason.
#[derive(Debug, Default)]
pub(crate) struct Dismissals([AtomicU64; Dismissal::ALL.len()]);

impl Dismissals {
    /// Counts one.
    pub(crate) fn note(&self, reason: Dismissal) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number for each reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Dismissal, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Dismissal::ALL.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_a_name_of_its_own() {
        let dismissals = Dismissals::default();
        for (nth, reason) in Dismissal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, nth);
            (0..nth).for_each(|_| dismissals.note(reason));
        }
        let counts: Vec<u64> = dismissals.counts().map(|(_, count)| count).collect();
        assert_eq!(counts, (0..13).collect::<Vec<u64>>());
        let mut names = Dismissal::ALL.map(Dismissal::name);
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next));
        let full = Error::new(Kind::Busy, "connecting", "");
        assert_eq!(Dismissal::of_refusal(&full), Dismissal::Full);
    }
}
