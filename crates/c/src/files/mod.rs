//! Parallel files: volumes, files, views, subfiles; the last part of the header.
//!
//! ```text
//! penstock_fs        Fs       a client of a volume; nothing but its end on a dedicated server
//! penstock_file      File     an attached file
//! penstock_subfile   Subfile  an open subfile, with its pointer
//! penstock_request   Request  a read or write under way
//! ```
//!
//! What is open of a volume shares its [`Volume`], and is refused after that has been closed. A
//! wrong argument of one client in a collective call goes into the call, which then fails on all; a
//! client that panics in one leaves, so that nobody waits for it.
//!
//! | file | contents |
//! |---|---|
//! | `volume` | making, opening and closing volumes |
//! | `names` | names, attributes, space |
//! | `transfer` | import and export |
//! | `attached` | attached files, and collective reads and writes |
//! | `subfile` | subfiles, requests, shared pointers |
//! | `view` | views, orders and memories, as C gives them |

mod attached;
pub mod names;
pub mod subfile;
pub mod transfer;
pub mod view;
pub mod volume;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_engine::{Error, Kind, Result};
use penstock_files::job::FileSystem;

use crate::border::{self, Ended};

/// The header lets any number of threads use these at once.
const _: () = {
    const fn is_for_all_threads<T: Send + Sync>() {}
    is_for_all_threads::<Fs>();
    is_for_all_threads::<attached::File>();
    is_for_all_threads::<subfile::Subfile>();
    is_for_all_threads::<subfile::Request>();
};

/// `penstock_fs`.
pub struct Fs(Option<Arc<Volume>>);

/// A volume that is open.
pub struct Volume {
    fs: FileSystem,
    is_closed: AtomicBool,
}

impl Fs {
    fn new(fs: Option<FileSystem>) -> Self {
        Self(fs.map(|fs| {
            Arc::new(Volume {
                fs,
                is_closed: AtomicBool::new(false),
            })
        }))
    }

    /// The volume.
    ///
    /// # Errors
    /// [`Kind::Schema`] where there were servers alone.
    fn volume(&self) -> Result<&Arc<Volume>> {
        self.0.as_ref().ok_or_else(|| {
            let cause = "this rank has served alone, and the volume is closed";
            Error::new(Kind::Schema, "using a volume", cause)
        })
    }
}

impl Volume {
    /// The client.
    ///
    /// # Errors
    /// [`Kind::Schema`] after it has been closed.
    fn fs(&self) -> Result<&FileSystem> {
        match self.is_closed.load(Ordering::Acquire) {
            true => {
                let cause = "the volume has been closed";
                Err(Error::new(Kind::Schema, "using a volume", cause))
            }
            false => Ok(&self.fs),
        }
    }

    /// Makes a collective call, to which this client brings what `given` says: `call` tells all
    /// clients if that is an error. A client that panics leaves: others fail, and do not wait.
    ///
    /// # Errors
    /// Those of the call.
    fn together<A, T>(
        &self,
        given: impl FnOnce() -> Result<A>,
        call: impl FnOnce(&FileSystem, Result<A>) -> Result<T>,
    ) -> Result<T> {
        let fs = self.fs()?;
        let given = border::caught(given).flat();
        match border::caught(|| call(fs, given)) {
            Ended::Returned(result) => result,
            Ended::Panicked(error) => {
                fs.leave(&error);
                Err(error)
            }
        }
    }
}
