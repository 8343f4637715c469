//! The binary tree of nodes, along which a call gathers, multicasts and meets.
//!
//! The members are all nodes, the nodes with a client, or the nodes with a server. The root is the
//! node of rank 0. A node sends at most one message to its parent and two to its children in each
//! pass, so that the cost for a node does not grow with the number of nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};
use crate::machine::{Machine, NodeId, Step, Tag};
use crate::roles::Roles;

/// The members of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    /// All nodes are members.
    All,
    /// Nodes with a client are members; others pass by.
    Clients,
    /// The root and the nodes with a server are members; others pass by.
    Servers,
}

/// The tree of one collective call, as one node sees it.
pub struct Tree<'a, M: Machine> {
    /// The machine, as this node sees it.
    pub machine: &'a M,
    /// The roles of all nodes.
    pub roles: &'a Roles,
    /// The call's number, the same on all nodes.
    pub call: u64,
}

impl<M: Machine> Tree<'_, M> {
    /// Merges the values of all members, up the tree. The result is `Some` at the root alone.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn gather<T: Serialize + DeserializeOwned>(
        &self,
        members: Members,
        step: Step,
        mine: T,
        merge: impl Fn(T, T) -> T,
    ) -> Result<Option<T>> {
        let Some(place) = self.place(members) else {
            return Ok(None);
        };
        let tag = self.tag(step);
        let mut merged = mine;
        for _ in self.children(members, place) {
            let message = self.machine.receive(tag).await?;
            merged = merge(merged, decode(&message.body)?);
        }
        match self.parent(members, place) {
            Some(parent) => {
                let body = encode(&merged)?;
                self.machine.send(parent, tag, body, None).await?;
                Ok(None)
            }
            None => Ok(Some(merged)),
        }
    }

    /// Sends the root's value down the tree of the members that `to` names. Only the root gives a
    /// value as `mine`.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn multicast<T: Serialize + DeserializeOwned>(
        &self,
        to: impl Fn(&T) -> Members,
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
        self.pass_on(to(&value), tag, &body).await?;
        Ok(value)
    }

    async fn pass_on(&self, members: Members, tag: Tag, body: &[u8]) -> Result<()> {
        let place = self.place(members).into_iter();
        for child in place.flat_map(|place| self.children(members, place)) {
            self.machine.send(child, tag, body.to_vec(), None).await?;
        }
        Ok(())
    }

    /// Waits until all members have come to barrier `number` of the call. Other nodes pass by.
    ///
    /// # Errors
    /// When a node has left the machine.
    pub async fn barrier(&self, members: Members, number: u32) -> Result<()> {
        let go = self.tag(Step::Go(number));
        if self.place(members).is_none() {
            return Ok(());
        }
        let arrived = Step::Arrived(number);
        if self
            .gather(members, arrived, (), |(), ()| ())
            .await?
            .is_none()
        {
            self.machine.receive(go).await?;
        }
        self.pass_on(members, go, &[]).await
    }

    /// The tag of a message of the call.
    pub(crate) fn tag(&self, step: Step) -> Tag {
        Tag {
            call: self.call,
            step,
        }
    }

    /// The place of this node in the tree, if it is a member: clients by rank, nodes counted from
    /// the root, servers' nodes in the order of [`Roles::serving`].
    pub(crate) fn place(&self, members: Members) -> Option<usize> {
        let (me, Roles { nodes, clients, .. }) = (self.machine.me(), self.roles);
        match members {
            Members::All => Some((me + nodes - clients[0]) % nodes),
            Members::Clients => self.roles.rank(me),
            Members::Servers => self.roles.place_serving(me),
        }
    }

    /// The node at a place in the tree.
    fn node(&self, members: Members, place: usize) -> NodeId {
        let Roles { nodes, clients, .. } = self.roles;
        match members {
            Members::All => (place + clients[0]) % nodes,
            Members::Clients => clients[place],
            Members::Servers => self.roles.serving()[place],
        }
    }

    fn parent(&self, members: Members, place: usize) -> Option<NodeId> {
        (place > 0).then(|| self.node(members, (place - 1) / 2))
    }

    fn children(&self, members: Members, place: usize) -> impl Iterator<Item = NodeId> {
        let places = match members {
            Members::All => self.roles.nodes,
            Members::Clients => self.roles.clients.len(),
            Members::Servers => self.roles.serving().len(),
        };
        (2 * place + 1..2 * place + 3)
            .filter(move |&child| child < places)
            .map(move |child| self.node(members, child))
    }
}

/// Encodes a value as a message's body.
///
/// # Errors
/// When the value cannot be encoded.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::new(Kind::Io, "encoding a message", e))
}

/// Decodes a message's body.
///
/// # Errors
/// When the body does not hold such a value.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|e| Error::new(Kind::Io, "decoding a message", e))
}
