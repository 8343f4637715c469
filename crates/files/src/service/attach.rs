//! Attaching files.

use penstock_engine::blocks::Intent;
use penstock_engine::{Machine, NodeId, Result};

use super::state::Service;
use crate::messages::{Answer, Ask, Attacher, Usage};
use crate::names::FilePath;
use crate::object::{Identity, Permission};
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
        let _lock = self.locks.claim(path, Intent::Read).await;
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
        let is_cautious = self.attachments.borrow().is_shared(object.id);
        if is_cautious {
            let servers = self.caller.servers();
            for turn in 0..shape.turns(servers) {
                let server = shape.server_at(turn, servers);
                let told = Ask::BeCautious(object.id);
                self.caller.ask(server, who, told).await?;
            }
        }
        Ok(Answer::Attached {
            object,
            key,
            is_cautious,
        })
    }

    /// Who has a file attached.
    pub(super) fn status(&self, path: &FilePath) -> Result<Vec<Attacher>> {
        let id = self.namespace.borrow().find(path)?.id;
        Ok(self.attachments.borrow().of(id).copied().collect())
    }
}
