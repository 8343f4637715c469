//! Directs calls that write to a repository: each is one draft, and one commit.
//!
//! The director of the call itself works on the draft's paths, and need not know of drafts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_bucket::{Draft, is_in_repository, key_of};
use penstock_engine::encoding::decode;
use penstock_engine::{Decision, Director, Error, Kind, RankParts, Result, Tally, Traffic};

use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::desk::Desk;
use super::errand::{AnyErrand, Direction, Errand, Saying, Topic};
use super::session::Session;

/// The director of an errand on the node of rank 0.
pub(super) fn director(
    mut errand: Box<dyn AnyErrand>,
    desk: &Arc<Desk>,
) -> Box<dyn Director + Send> {
    let written = errand.written();
    if !written.is_some_and(|path| is_in_repository(path)) {
        return errand.director(desk);
    }
    Box::new(DraftDirector {
        errand: Some(errand),
        desk: desk.clone(),
        call: None,
    })
}

struct DraftDirector {
    /// The errand, until the call is prepared.
    errand: Option<Box<dyn AnyErrand>>,
    desk: Arc<Desk>,
    call: Option<DraftCall>,
}

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

/// A call that writes to a draft.
struct DraftCall {
    draft: Draft,
    director: Box<dyn Director + Send>,
    /// What the commit says.
    words: String,
}

impl Director for DraftDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let twice = || Error::new(Kind::Schema, "deciding on a call", "it was decided before");
        let mut errand = self.errand.take().ok_or_else(twice)?;
        let mut words = errand.words();
        let path = errand.written().ok_or_else(twice)?;
        let (draft, of_draft) = Draft::begin(path)?.ok_or_else(twice)?;
        *path = of_draft;
        if let Some(key) = key_of(path).filter(|key| !key.is_empty()) {
            words += &format!(" to {key}");
        }
        let mut director = errand.director(&self.desk);
        let decision = director.prepare(parts)?;
        if matches!(decision, Decision::Tell(_)) {
            draft.commit(&words)?;
            return Ok(decision);
        }
        self.call = Some(DraftCall {
            draft,
            director,
            words,
        });
        Ok(decision)
    }

    /// What the director puts at the end counts more than what forks have of the same objects.
    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        let Some(mut call) = self.call.take() else {
            return outcome.map(|done| done.moved);
        };
        let merged = outcome.and_then(|mut done| {
            call.draft.merge(&std::mem::take(&mut done.changes))?;
            Ok(done)
        });
        let moved = call.director.conclude(merged)?;
        call.draft.commit(&call.words)?;
        Ok(moved)
    }
}
