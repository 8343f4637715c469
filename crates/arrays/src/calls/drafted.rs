//! Directs calls that write to a repository: each is one draft, and one commit.
//!
//! The director of the call itself works on the draft's paths, and need not know of drafts.

use std::path::Path;
use std::sync::Arc;

use penstock_bucket::{Draft, committed, is_in_repository, key_of};
use penstock_engine::{Decision, Director, Error, Kind, RankParts, Result, Tally, Traffic};

use super::cursor::CursorUndo;
use super::desk::Desk;
use super::errand::AnyErrand;

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

/// A call that writes to a draft.
struct DraftCall {
    draft: Draft,
    director: Box<dyn Director + Send>,
    /// What the commit says.
    words: String,
    undo: CursorUndo,
}

impl Director for DraftDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let twice = || Error::new(Kind::Schema, "deciding on a call", "it was decided before");
        let mut errand = self.errand.take().ok_or_else(twice)?;
        let mut words = errand.words();
        let path = errand.written().ok_or_else(twice)?;
        if let Some(key) = key_of(path).filter(|key| !key.is_empty()) {
            words += &format!(" to {key}");
        }
        let (draft, of_draft) = Draft::begin(path)?.ok_or_else(twice)?;
        self.desk.undo_all_but(draft.name());
        let undo = CursorUndo::new(self.desk.cursor(path));
        *path = of_draft;
        let mut director = errand.director(&self.desk);
        match director.prepare(parts) {
            Err(error) => {
                undo.undo();
                Err(in_repository(error))
            }
            Ok(Decision::Tell(answer)) => {
                self.commit(draft, &words, undo)?;
                Ok(Decision::Tell(answer))
            }
            Ok(decision) => {
                self.call = Some(DraftCall {
                    draft,
                    director,
                    words,
                    undo,
                });
                Ok(decision)
            }
        }
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
        match call.director.conclude(merged) {
            Err(error) => {
                call.undo.undo();
                Err(in_repository(error))
            }
            Ok(moved) => {
                self.commit(call.draft, &call.words, call.undo)?;
                Ok(moved)
            }
        }
    }
}

impl DraftDirector {
    /// Commits a draft, or keeps what may have to be undone if more calls write to it.
    fn commit(&self, draft: Draft, words: &str, undo: CursorUndo) -> Result<()> {
        let name = draft.name().to_string();
        match draft.commit(words) {
            Ok(true) => self.desk.forget(&name),
            Ok(false) => self.desk.keep(&name, undo),
            Err(error) => {
                undo.undo();
                self.desk.undo_all_but("");
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The error, at the path that the caller knows.
pub(super) fn in_repository(error: Error) -> Error {
    let path = error.path.as_deref().map(Path::new).map(committed);
    match path {
        Some(path) => error.at(&path),
        None => error,
    }
}
