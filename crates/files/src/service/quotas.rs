//! Quotas: the blocks that the files of a user may have on all servers together (section 2).
//!
//! A server has an *allowance* for each limited user: the blocks that it may still give to the
//! user's files. When it is used up, the server asks the *keeper* of the user, who counts the
//! blocks in use and divides what is left:
//!
//! ```text
//! server   Allot ->                                                        <- Done
//! keeper            GiveBack -> all   <- blocks in use   Allow -> server
//! ```
//!
//! A server that has given back has no allowance left until it is allowed one, and the keeper
//! serves one asker at a time: blocks in use and allowances together are never more than the
//! quota. One of the blocks that are allowed is promised to the request that waits, so that others
//! cannot take it back again and again. For a server that is lost, the keeper counts the blocks
//! that it told of last, and what it was allowed since.

use futures::future::join_all;
use penstock_engine::blocks::Intent;
use penstock_engine::{Error, Kind, Machine, Result};

use super::losses::is_loss;
use super::state::Service;
use super::steps::nobody;
use crate::caller::unexpected;
use crate::messages::{Answer, Ask, refusal};
use crate::names::Names;
use crate::object::{Identity, ObjectId};
use crate::transaction::Step;
use crate::volume::BlockName;
use crate::volume::records::{Change, Key, RecordStore, put, remove};

/// The server that divides the quota of a user: of those with which the volume was made, or another
/// one if that has no part any more.
pub(crate) fn keeper(user: u32, names: Names, members: &[usize]) -> usize {
    let chosen = user as usize % names.servers;
    match members.contains(&chosen) {
        true => chosen,
        false => members.first().copied().unwrap_or(0),
    }
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Limits the blocks of a user, or lets the user have any number, on all servers or on none.
    pub(super) async fn limit(
        &self,
        who: &Identity,
        user: u32,
        blocks: Option<u64>,
    ) -> Result<Answer> {
        let _alone = self.divisions.claim(&user, Intent::Change).await;
        self.undisturbed(None, async || {
            let all = self.all();
            let limit = || Step::Limit {
                user,
                blocks,
                all: all.clone(),
            };
            let steps = all.servers.iter().map(|&server| (server, vec![limit()]));
            self.direct(who, steps.collect(), None).await
        })
        .await?;
        Ok(Answer::Done)
    }

    /// Notes the limit of a user in memory, and gives the change of records.
    pub(super) fn set_limit(&self, user: u32, blocks: Option<u64>) -> Result<Change> {
        self.volume.limit(user, blocks.is_some());
        self.bounds.borrow_mut().retain(|(of, _), _| *of != user);
        let mut quotas = self.quotas.borrow_mut();
        match blocks {
            Some(blocks) => {
                quotas.insert(user, blocks);
                put(&Key::Quota(user), &blocks)
            }
            None => {
                quotas.remove(&user);
                remove(&Key::Quota(user))
            }
        }
    }

    /// Reserves a place for a block that is about to be changed.
    ///
    /// # Errors
    /// [`Kind::Full`] when there is no space, or the owner of the file may have no more.
    pub(super) async fn reserve(&self, file: (ObjectId, u32), name: &BlockName) -> Result<()> {
        // What was decided before a crash had its places, and no keeper serves before the end of
        // recovery.
        let mut is_promised = !self.is_ready.get();
        loop {
            if self.volume.reserve(file, name, is_promised)? {
                return Ok(());
            }
            let user = self.volume.owner(file);
            let asked = Ask::Allot(user, self.server);
            let keeper = keeper(user, self.shape.names, &self.members());
            self.caller.ask(keeper, &nobody(), asked).await?;
            is_promised = self.volume.end_promise(user);
        }
    }

    /// Divides what is left of a user's quota anew: as the user's keeper, for a server whose
    /// allowance is used up.
    pub(super) async fn allot(&self, user: u32, server: usize) -> Result<Answer> {
        let members = self.members();
        if !members.contains(&server) {
            return Err(refusal(format!("there is no server {server}")));
        }
        let _alone = self.divisions.claim(&user, Intent::Change).await;
        let Some(limit) = self.quotas.borrow().get(&user).copied() else {
            return Ok(Answer::Done); // all servers know that there is no limit any more
        };
        let asked = members.iter().map(|&server| {
            let asked = Ask::GiveBack(user);
            async move { (server, self.caller.ask(server, &nobody(), asked).await) }
        });
        let mut used = 0;
        for (server, answer) in join_all(asked).await {
            let key = (user, server);
            let bound = self.bounds.borrow().get(&key).copied();
            used += match (answer, bound) {
                (Ok(Answer::Value(blocks)), _) => {
                    self.bounds.borrow_mut().insert(key, blocks);
                    blocks
                }
                // A server that is lost has no more than it had, and was allowed.
                (Err(error), Some(bound)) if is_loss(&error) => bound,
                (Err(error), _) => return Err(error),
                (Ok(_), _) => return Err(unexpected()),
            };
        }
        let free = limit.saturating_sub(used);
        if free == 0 {
            let cause = format!("user {user} may have {limit} blocks, and has {used}");
            return Err(Error::new(Kind::Full, "taking a block of a quota", cause));
        }
        let allowance = free.div_ceil(2 * members.len() as u64);
        *self.bounds.borrow_mut().entry((user, server)).or_default() += allowance;
        self.caller
            .ask(server, &nobody(), Ask::Allow(user, allowance))
            .await
    }
}
