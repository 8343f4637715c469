//! What an access to a subfile does, before it is done.

use std::fmt;

use penstock_engine::Operation;

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
    /// The parts of the servers that have any, in the order of tokens.
    pub servers: Vec<ServerShare>,
    /// Requests to servers, each of which is answered by one message.
    pub requests: usize,
    /// Messages of the token that gives the access its place on all servers.
    pub tokens: usize,
    /// Messages which say that the access has its place on all servers.
    pub words: usize,
}

impl AccessPlan {
    /// All messages: requests, answers, tokens and words.
    pub fn messages(&self) -> usize {
        2 * self.requests + self.tokens + self.words
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
        let Self {
            requests,
            tokens,
            words,
            ..
        } = self;
        write!(
            f,
            "messages: {requests} requests, {requests} answers, {tokens} of the token, {words} after \
             it: {} in all",
            self.messages()
        )
    }
}
