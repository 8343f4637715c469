/// How far a copy or a verification has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes are to be moved in all.
    All(u64),
    /// So many more have been.
    More(u64),
}
