//! Commits what several calls have written to a draft of a repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::encoding::decode;
use penstock_engine::{Director, Result};
use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::desk::Desk;
use super::errand::{Direction, Errand, Saying, Topic};
use super::session::Session;

/// The errand of the commit of a draft that several calls have written.
#[derive(Serialize, Deserialize)]
pub(super) struct CommitErrand {
    path: PathBuf,
}

impl Errand for CommitErrand {
    fn topic(&self) -> Topic {
        Topic::Commit
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    fn written(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn director(self, _desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(Saying::new(|| Ok(())))
    }
}

impl Session {
    /// Commits what calls have written to the repository in which `path` is a place, if it keeps
    /// the commits of calls back.
    ///
    /// # Errors
    /// The same on all ranks: [`Kind::Busy`] when another program has committed meanwhile; the
    /// error of the repository. What was written is then given up.
    ///
    /// # Collective
    /// Over all clients.
    pub fn commit(&self, path: &Path) -> Result<()> {
        let errand = CommitErrand {
            path: path.to_path_buf(),
        };
        let verdict = self.call(Ask::Commit(path.into()), None, Direction::of(errand))?;
        decode(&verdict.answer)
    }
}
