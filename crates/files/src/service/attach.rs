//! Attaching files.
//!
//! A server serves requests in any order only if the server that keeps the file's object allows
//! that, and as long as that is there: one that is back knows neither who has attached the files
//! that it keeps, nor which of its cells are used so. No program has to attach again.

use futures::future::join_all;
use penstock_engine::blocks::Intent;
use penstock_engine::{Machine, NodeId, Result};

use super::losses::is_loss;
use super::state::Service;
use crate::attached::Attacher;
use crate::messages::{Answer, Ask, Usage};
use crate::names::FilePath;
use crate::object::{FileShape, Identity, Permission};
use crate::volume::records::RecordStore;

/// The nanoseconds by which the time of the last access may be late in records, unless the object
/// was changed since then: an hour.
const ACCESSED_MAX: u64 = 3_600_000_000_000;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Attaches a file for clients of a program. If several programs now share it and one writes,
    /// all of them are cautious from here on (section 4.3).
    pub(super) async fn attach(
        &self,
        who: &Identity,
        path: &FilePath,
        usage: Usage,
        (program, clients): (u64, Vec<NodeId>),
    ) -> Result<Answer> {
        let _lock = self.lock_kept(path, Intent::Read).await?;
        let mut object = self.namespace.borrow().find(path)?.clone();
        let shape = object.shape()?;
        if usage.writes {
            object.allow(who, Permission::Write)?;
        }
        if usage.reads {
            object.allow(who, Permission::Read)?;
            let (now, former) = ((self.clock)(), object.accessed);
            object.accessed = now;
            let change = self.namespace.borrow_mut().put(object.clone())?;
            // Nobody waits for a time to be safe, and it need not be exact after a crash.
            if former <= object.changed || now.saturating_sub(former) > ACCESSED_MAX {
                self.volume.committer.add([change]);
            }
        }
        if let Some(meter) = &self.meter {
            let name = object.path.to_string();
            meter.note_path(object.id, object.owner, &name, self.machine.now());
        }
        let key = {
            let departed = self.departed.borrow();
            let clients = clients
                .into_iter()
                .filter(|node| !departed.contains_key(node));
            let attachers = clients.map(|node| Attacher {
                program,
                node,
                reads: usage.reads,
                writes: usage.writes,
                is_reckless: usage.is_reckless,
            });
            let file = (object.id, object.owner, shape);
            self.attachments.borrow_mut().add(file, attachers)
        };
        let is_shared = || self.attachments.borrow().is_shared(object.id);
        if usage.is_reckless && !is_shared() {
            self.tell_mode(who, shape, &Ask::BeReckless(object.id))
                .await?;
        }
        // Another program may have come meanwhile.
        let is_cautious = is_shared();
        if is_cautious {
            self.tell_mode(who, shape, &Ask::BeCautious(object.id))
                .await?;
        }
        Ok(Answer::Attached {
            object,
            key,
            is_cautious,
        })
    }

    /// Tells all servers of a file in which mode it is used. One that is lost is cautious when it
    /// is back.
    pub(super) async fn tell_mode(
        &self,
        who: &Identity,
        shape: FileShape,
        told_of: &Ask,
    ) -> Result<()> {
        let servers = shape.dealing(&self.rings())?.servers();
        let told = servers.into_iter();
        let told = told.map(|server| self.caller.ask(server, who, told_of.clone()));
        for answer in join_all(told).await {
            match answer {
                Err(error) if !is_loss(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Who has a file attached.
    pub(super) fn status(&self, path: &FilePath) -> Result<Vec<Attacher>> {
        let id = self.namespace.borrow().find(path)?.id;
        Ok(self.attachments.borrow().of(id).copied().collect())
    }
}
