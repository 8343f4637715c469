/// The progress of a copy or a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The number of bytes that are to be moved in all.
    All(u64),
    /// The number of bytes that were moved since the last report.
    More(u64),
}
