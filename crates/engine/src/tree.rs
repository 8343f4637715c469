//! The tree of the clients of a party, or of its nodes with servers, along which a call gathers,
//! multicasts and meets.
//!
//! The clients stand in the tree by rank; the nodes with servers as in [`Party::serving`]. The tree
//! is binary: a node sends at most one message to its parent and two to its children in each pass,
//! so that the cost for a node does not grow with the number of nodes. Where clients reach servers
//! alone, all of them are children of the node that directs.
//!
//! [`Party::serving`]: crate::party::Party::serving

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::{CallId, Port, Step};
use crate::encoding::{decode, encode};
use crate::error::Result;
use crate::machine::{Machine, NodeId};

/// A tree of nodes in one call, as one of them sees it.
pub(crate) struct Tree<'a, M: Machine> {
    pub(crate) machine: &'a M,
    /// The members, the root first.
    pub(crate) nodes: &'a [NodeId],
    /// The place of this node among the members.
    pub(crate) place: usize,
    /// The most children of a node.
    pub(crate) fan: usize,
    pub(crate) call: CallId,
}

/// The most children of a node of a binary tree.
pub(crate) const BINARY: usize = 2;

impl<M: Machine> Clone for Tree<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Tree<'_, M> {}

impl<M: Machine> Tree<'_, M> {
    /// Merges the values of all members, up the tree. The result is `Some` at the root alone.
    ///
    /// # Errors
    /// When a message has no such value in it, or cannot be sent.
    pub(crate) async fn gather<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: T,
        merge: impl Fn(T, T) -> T,
    ) -> Result<Option<T>> {
        let port = self.call.port(step);
        let mut merged = mine;
        for _ in self.children() {
            let message = self.machine.receive(port).await;
            merged = merge(merged, decode(&message.body)?);
        }
        match self.parent() {
            Some(parent) => {
                let body = encode(&merged)?;
                self.machine.send(parent, port, body, None).await?;
                Ok(None)
            }
            None => Ok(Some(merged)),
        }
    }

    /// Sends a value down the tree. A node that gives none as `mine` receives it: from its parent
    /// or, at the root, from outside of the tree.
    ///
    /// # Errors
    /// When a message has no such value in it, or cannot be sent.
    pub(crate) async fn multicast<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: Option<T>,
    ) -> Result<T> {
        let port = self.call.port(step);
        let (body, value) = match mine {
            Some(value) => (encode(&value)?, value),
            None => {
                let body = self.machine.receive(port).await.body;
                let value = decode(&body)?;
                (body, value)
            }
        };
        self.pass_on(port, &body).await?;
        Ok(value)
    }

    /// Sends a message to this node's children.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub(crate) async fn pass_on(&self, port: Port, body: &[u8]) -> Result<()> {
        for child in self.children() {
            self.machine.send(child, port, body.to_vec(), None).await?;
        }
        Ok(())
    }

    /// Waits until all members have come to barrier `number` of the call.
    ///
    /// # Errors
    /// When a message cannot be sent.
    pub(crate) async fn barrier(&self, number: u32) -> Result<()> {
        let come = self.gather(Step::Arrived(number), (), |(), ()| ()).await?;
        self.multicast(Step::Go(number), come).await
    }

    fn parent(&self) -> Option<NodeId> {
        (self.place > 0).then(|| self.nodes[(self.place - 1) / self.fan])
    }

    fn children(&self) -> impl Iterator<Item = NodeId> {
        let first = (self.fan * self.place + 1).min(self.nodes.len());
        let end = (first + self.fan).min(self.nodes.len());
        self.nodes[first..end].iter().copied()
    }
}
