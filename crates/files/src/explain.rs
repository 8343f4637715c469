//! What an access to a subfile does, before it is done.

use std::fmt;
use std::sync::atomic::Ordering;

use penstock_engine::{Machine, Operation, Result};

use crate::client::{Client, OpenSubfile, ServerPart, turn_of};
use crate::messages::Turn;

/// The part of one server in an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerShare {
    /// The server.
    pub server: usize,
    /// The cells that it has parts of.
    pub cells: usize,
    /// The bytes, also those that may turn out to lie behind the ends of their cells.
    pub bytes: u64,
    /// Whether the bytes travel in the messages. If not, the server fetches them from the client's
    /// memory, or puts them there, block by block.
    pub is_inside: bool,
}

/// What an access to a subfile does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPlan {
    /// Whether it reads or writes.
    pub operation: Operation,
    /// The first byte of the subfile.
    pub offset: u64,
    /// The bytes of the subfile.
    pub bytes: u64,
    /// The parts of the servers that have any, in the order of tokens. Each gets a request, and
    /// sends an answer.
    pub servers: Vec<ServerShare>,
    /// Messages of the token that gives the access its place on all servers.
    pub tokens: usize,
    /// Messages which say that the access has its place on all servers.
    pub words: usize,
}

impl AccessPlan {
    /// All messages: requests, answers, tokens and words.
    pub fn messages(&self) -> usize {
        2 * self.servers.len() + self.tokens + self.words
    }
}

impl fmt::Display for AccessPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let moved: u64 = self.servers.iter().map(|one| one.bytes).sum();
        writeln!(
            f,
            "{verb} of {} bytes from byte {} on: {moved} bytes of cells on {} servers",
            self.bytes,
            self.offset,
            self.servers.len()
        )?;
        for one in &self.servers {
            let way = match (one.is_inside, self.operation) {
                (true, Operation::Read) => "in the answer",
                (true, Operation::Write) => "in the request",
                (false, Operation::Read) => "put into this client's memory, block by block",
                (false, Operation::Write) => "fetched from this client's memory, block by block",
            };
            let ServerShare {
                server,
                cells,
                bytes,
                ..
            } = one;
            writeln!(f, "  server {server}: {bytes} bytes, cells: {cells}, {way}")?;
        }
        let (requests, all) = (self.servers.len(), self.messages());
        let Self { tokens, words, .. } = self;
        write!(
            f,
            "messages: {requests} requests, {requests} answers, {tokens} of the token, {words} after \
             it: {all} in all"
        )
    }
}

impl<M: Machine> Client<'_, M> {
    /// Says what an access would do. Nothing is moved.
    ///
    /// # Errors
    /// As [`Client::access`], where no server is needed to find them.
    pub fn explain(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        (offset, bytes): (u64, u64),
    ) -> Result<AccessPlan> {
        self.check(open, operation)?;
        let parts = self.parts(open, &(offset, bytes).into())?;
        let is_cautious = open.file().is_cautious.load(Ordering::Relaxed);
        let (tokens, words) = match turn_of(&parts, is_cautious) {
            Turn::Token(turns) => (turns[turns.len() - 1] - turns[0], turns.len() - 1),
            Turn::Any | Turn::Arrival => (0, 0),
        };
        let share = |part: &ServerPart| ServerShare {
            server: part.server,
            cells: part.cells.len(),
            bytes: part.bytes,
            is_inside: part.bytes <= self.inside_bytes_max(operation),
        };
        Ok(AccessPlan {
            operation,
            offset,
            bytes,
            servers: parts.iter().map(share).collect(),
            tokens,
            words,
        })
    }
}
