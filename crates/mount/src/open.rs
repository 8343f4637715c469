//! What is open.

use penstock_files::Entry;
use penstock_files::job::{OpenFile, OpenView};
use penstock_layout::Subfile;

/// An open file, or an open view of one.
pub(crate) struct OpenData {
    pub(crate) number: u64,
    pub(crate) file: OpenFile,
    pub(crate) view: OpenView,
    pub(crate) subfile: Subfile,
}

/// An open directory.
pub(crate) struct OpenDirectory {
    pub(crate) entries: Vec<(String, Entry)>,
    /// Whether somebody has read from the beginning: who does so again gets what is there then.
    pub(crate) is_read: bool,
}
