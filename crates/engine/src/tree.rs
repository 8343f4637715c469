//! A binary tree of all nodes, along which a call gathers, multicasts and meets.
//!
//! Its root is the node of rank 0. A node sends at most one message to its parent and two to its
//! children in each pass, so that the cost a node does not grow with the number of nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};
use crate::machine::{Machine, NodeId, Step, Tag};
use crate::request::Roles;

/// One collective call's tree, as one node sees it.
pub struct Tree<'a, M: Machine> {
    /// The machine, as this node sees it.
    pub machine: &'a M,
    /// Who plays which part.
    pub roles: &'a Roles,
    /// The call's number, the same on all nodes.
    pub call: u64,
}

impl<M: Machine> Tree<'_, M> {
    /// Merges the values of all nodes, up the tree: `Some` at the root.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn gather<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: T,
        merge: impl Fn(T, T) -> T,
    ) -> Result<Option<T>> {
        let tag = self.tag(step);
        let mut merged = mine;
        for _ in self.children() {
            let message = self.machine.receive(tag).await?;
            merged = merge(merged, decode(&message.body)?);
        }
        match self.parent() {
            Some(parent) => {
                let body = encode(&merged)?;
                self.machine.send(parent, tag, body, None).await?;
                Ok(None)
            }
            None => Ok(Some(merged)),
        }
    }

    /// The root's value to all nodes, down the tree.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn multicast<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: Option<T>,
    ) -> Result<T> {
        let tag = self.tag(step);
        let (body, value) = match mine {
            Some(value) => (encode(&value)?, value),
            None => {
                let body = self.machine.receive(tag).await?.body;
                let value = decode(&body)?;
                (body, value)
            }
        };
        for child in self.children() {
            self.machine.send(child, tag, body.clone(), None).await?;
        }
        Ok(value)
    }

    /// Waits until all nodes have come to barrier `number` of the call.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn barrier(&self, number: u32) -> Result<()> {
        let all = self.gather(Step::Arrived(number), (), |(), ()| ()).await?;
        self.multicast(Step::Go(number), all).await
    }

    fn tag(&self, step: Step) -> Tag {
        Tag {
            call: self.call,
            step,
        }
    }

    /// Node numbers count from the root in the tree.
    fn root(&self) -> NodeId {
        self.roles.clients[0]
    }

    fn place(&self) -> usize {
        (self.machine.me() + self.roles.nodes - self.root()) % self.roles.nodes
    }

    fn parent(&self) -> Option<NodeId> {
        let place = self.place();
        (place > 0).then(|| ((place - 1) / 2 + self.root()) % self.roles.nodes)
    }

    fn children(&self) -> impl Iterator<Item = NodeId> + use<M> {
        let (place, nodes, root) = (self.place(), self.roles.nodes, self.root());
        (2 * place + 1..2 * place + 3)
            .filter(move |&child| child < nodes)
            .map(move |child| (child + root) % nodes)
    }
}

/// A value as a message's body.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::new(Kind::Io, "encoding a message", e))
}

/// A message's body as a value.
///
/// # Errors
/// When it is not one.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|e| Error::new(Kind::Io, "decoding a message", e))
}
