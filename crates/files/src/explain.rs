//! What an access to a subfile does, before it is done, and what it takes on a machine.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use penstock_engine::{Machine, Operation, Result};
use penstock_layout::List;
use penstock_predict::access::in_words;
use penstock_predict::{Access, Prediction, ServerAccess, of_file, predict_access};

use crate::client::{Client, OpenSubfile, ServerPart, Site, turn_of};
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
    /// The blocks that it moves.
    pub blocks: u64,
    /// The blocks that have every byte in the access.
    pub whole: u64,
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
    /// The bytes of a block.
    pub block_bytes: u64,
    /// Where the servers are, if that is known.
    pub site: Option<Site>,
}

impl AccessPlan {
    /// All messages: requests, answers, tokens and words.
    pub fn messages(&self) -> usize {
        2 * self.servers.len() + self.tokens + self.words
    }

    /// The plan in words; with a file that describes this machine, the one that is given or else
    /// the one that the environment names, also what the access takes.
    ///
    /// # Errors
    /// As [`of_file::read`].
    pub fn in_words(&self, machine: Option<PathBuf>) -> Result<String> {
        Ok(match self.predicted(machine)? {
            Some(predicted) => format!("{self}\n{}", in_words(&predicted)),
            None => self.to_string(),
        })
    }

    /// What the access takes on a machine; `None` without one, and for servers that stand.
    fn predicted(&self, machine: Option<PathBuf>) -> Result<Option<Prediction>> {
        let (Some(path), Some(site)) = (of_file::named(machine), self.site) else {
            return Ok(None);
        };
        let Some(machine) = of_file::read(&path, site.is_direct)? else {
            return Ok(None); // direct I/O was not measured
        };
        let access = Access {
            operation: self.operation,
            servers: self.servers.iter().map(|one| self.of_server(one)).collect(),
            hosts: site.hosts,
            under_way: 1,
            turns: (self.tokens + usize::from(self.words > 0)) as u64,
            messages: self.messages() as u64,
        };
        predict_access(&machine, &access).map(Some)
    }

    /// What a server does, as the model has it.
    fn of_server(&self, share: &ServerShare) -> ServerAccess {
        let with_bytes = |blocks| (blocks, blocks * self.block_bytes);
        let (all, whole) = (with_bytes(share.blocks), with_bytes(share.whole));
        ServerAccess {
            is_inside: share.is_inside,
            ..ServerAccess::new(self.operation, 1, share.bytes, all, whole)
        }
    }
}

/// The number of blocks in which a list of places of a cell, which ascend, has some, and the number
/// in which it has all.
fn blocks_of(places: &List, block_bytes: u64) -> (u64, u64) {
    let (mut blocks, mut whole) = (0, 0);
    // The last block that was met, and the bytes of it that the list has.
    let (mut last, mut held) = (None, 0);
    for (start, length) in places.iter().filter(|(_, length)| *length > 0) {
        let end = start + length;
        let mut at = start;
        while at < end {
            let block = at / block_bytes;
            if last.replace(block) != Some(block) {
                (blocks, held) = (blocks + 1, 0);
            }
            // All blocks but the first and the last of a run are whole: they need no step each.
            let inner = (end - at) / block_bytes;
            if at % block_bytes == 0 && inner > 0 {
                (blocks, whole) = (blocks + inner - 1, whole + inner);
                at += inner * block_bytes;
                (last, held) = (Some(at / block_bytes - 1), block_bytes);
                continue;
            }
            let stop = end.min((block + 1) * block_bytes);
            held += stop - at;
            whole += u64::from(held == block_bytes);
            at = stop;
        }
    }
    (blocks, whole)
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
        let block_bytes = self.block_bytes();
        let share = |part: &ServerPart| {
            let counts = part.cells.iter();
            let counts = counts.map(|cell| blocks_of(&cell.places, block_bytes));
            let (blocks, whole) = counts.fold((0, 0), |(all, full), (blocks, whole)| {
                (all + blocks, full + whole)
            });
            ServerShare {
                server: part.server,
                cells: part.cells.len(),
                bytes: part.bytes,
                blocks,
                whole,
                is_inside: part.bytes <= self.inside_bytes_max(operation),
            }
        };
        Ok(AccessPlan {
            operation,
            offset,
            bytes,
            servers: parts.iter().map(share).collect(),
            tokens,
            words,
            block_bytes,
            site: self.site(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn blocks_are_those_of_the_bytes() {
        let cases: [&[(u64, u64)]; 7] = [
            &[],
            &[(0, 8)],
            &[(3, 1), (4, 4), (8, 3), (11, 5)],
            &[(1, 30)],
            &[(0, 3), (3, 5), (16, 8), (25, 7)],
            &[(7, 2), (15, 2)],
            &[(0, 4), (4, 4), (8, 40), (48, 1)],
        ];
        for runs in cases {
            let (offsets, lengths): (Vec<u64>, Vec<u64>) = runs.iter().copied().unzip();
            let places = List::runs(&offsets, &lengths).unwrap();
            let mut held: BTreeMap<u64, u64> = BTreeMap::new();
            for &(start, length) in runs {
                for byte in start..start + length {
                    *held.entry(byte / 8).or_default() += 1;
                }
            }
            let whole = held.values().filter(|bytes| **bytes == 8).count() as u64;
            assert_eq!(
                blocks_of(&places, 8),
                (held.len() as u64, whole),
                "{runs:?}"
            );
        }
    }
}
