//! The border between the engine and its products: what ranks and servers of real machines ask.
//!
//! The engine is generic over a machine. A product that called it would have the compiler generate
//! it once more; so products call these functions, in which it is generated once for [`Node`]. Each
//! gives a future in a box: that costs one allocation a call, and nothing while elements move.

use std::cell::Cell;
use std::rc::Rc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::collective::{Office, Proposed};
use penstock_engine::{
    Attendance, Call, Catch, Director, Error, FileClient, FileId, FilePart, Machine as _,
    Operation, Party, Result, Verdict,
};
use penstock_layout::{DiskSchema, Holding};

use crate::{ClientMemory, Node};

/// What a rank gives to a collective call, and takes from it.
pub struct CallPart<'a> {
    /// The rank's proposal, or the reason why it cannot make one.
    pub proposal: Proposed,
    /// The rank's memory, for each array and each of its shares.
    pub memories: Vec<Vec<ClientMemory>>,
    /// The rank's list, for each array; one with nothing in it where a schema says who holds what.
    pub lists: Vec<&'a Holding>,
    /// What takes the deliveries of a sifted read.
    pub catch: Option<&'a dyn Catch>,
    /// The director, on the rank that directs.
    pub director: Option<&'a mut dyn Director>,
    /// The errand of servers that stand, encoded, in place of a director.
    pub errand: Option<Vec<u8>>,
    /// It is set when all ranks agree and, in a split collective, only disks are left to work.
    pub handed_over: &'a Cell<bool>,
}

/// Makes the call `sequence` of a party, as the client of `rank`. The memory is exposed for the
/// length of the call.
///
/// # Errors
/// As [`Client::run`].
///
/// # Collective
/// Over all clients of the party.
pub fn call<'a>(
    node: &'a Node,
    attendance: &'a Attendance,
    (rank, sequence): (usize, u64),
    part: CallPart<'a>,
) -> LocalBoxFuture<'a, Result<Verdict>> {
    let calling = async move {
        let call = Call::new(node, attendance, sequence);
        let mut exposed = Vec::new();
        for (array, shares) in part.memories.into_iter().enumerate() {
            let first = call.id.memory(array);
            let names = (0..).map(|share| first.share(share));
            let shares = names.zip(shares);
            exposed.extend(shares.map(|(name, memory)| node.expose(name, memory)));
        }
        let client = Client::new(call, rank, part.handed_over);
        let client = client.with_lists(&part.lists).with_errand(part.errand);
        let client = match part.catch {
            Some(catch) => client.with_catch(catch),
            None => client,
        };
        let verdict = client.run(part.proposal, part.director).await;
        drop(exposed);
        verdict
    };
    calling.boxed_local()
}

/// The servers on a node, for all of its parties.
pub struct NodeServers<'n>(Servers<'n, Node>);

impl<'n> NodeServers<'n> {
    /// The servers of one party, with a cache of `cache_bytes` bytes together.
    pub fn of_party(node: &'n Node, party: Rc<Attendance>, cache_bytes: u64) -> Self {
        Self(Servers::new(node, party, cache_bytes))
    }

    /// Servers that stand, with a cache of `cache_bytes` bytes together.
    pub fn standing(node: &'n Node, office: Rc<dyn Office>, cache_bytes: u64) -> Self {
        Self(Servers::standing(node, office, cache_bytes))
    }

    /// Whether they have files open for requests of single ranks.
    pub fn have_open_files(&self) -> bool {
        self.0.have_open_files()
    }

    /// Serves until the party has closed its session, or for ever.
    pub fn run(&self) -> LocalBoxFuture<'_, ()> {
        self.0.run().boxed_local()
    }
}

/// Hears, for ever, of members of the party that leave.
pub fn listen<'a>(node: &'a Node, attendance: &'a Attendance) -> LocalBoxFuture<'a, ()> {
    attendance.listen(node).boxed_local()
}

/// Brings a party to its servers, as its rank 0.
///
/// # Errors
/// As [`Attendance::join`].
pub fn join<'a>(node: &'a Node, attendance: &'a Attendance) -> LocalBoxFuture<'a, Result<()>> {
    attendance.join(node).boxed_local()
}

/// Takes a party from its servers, as its rank 0.
///
/// # Errors
/// As [`Attendance::part`].
pub fn part<'a>(node: &'a Node, attendance: &'a Attendance) -> LocalBoxFuture<'a, Result<()>> {
    attendance.part(node).boxed_local()
}

/// Asks servers that stand the question `number` of this client.
///
/// # Errors
/// As [`Attendance::ask`].
pub fn ask<'a>(
    node: &'a Node,
    attendance: &'a Attendance,
    number: u32,
    question: Vec<u8>,
) -> LocalBoxFuture<'a, Result<Vec<u8>>> {
    attendance.ask(node, number, question).boxed_local()
}

/// Tells all nodes of a party that this node leaves, and gives up the calls with these numbers.
///
/// A reason that cannot be told is lost; the others hear that the node is gone.
pub fn leave(node: &Node, party: &Party, error: &Error, given_up: &[std::ops::Range<u64>]) {
    let leaving = party.leave(node, error, given_up).boxed_local();
    let _ = node.block_on(leaving);
    node.leave(error);
}

/// A file that the first `servers` servers of a party have open, with blocks of `disk`.
pub struct ServedFile<'a> {
    /// The file.
    pub file: FileId,
    /// The disk schema of its blocks.
    pub disk: &'a DiskSchema,
    /// The number of servers.
    pub servers: usize,
}

/// Moves a rank's part between an open file and its memory. `tickets` counts the rank's requests.
///
/// # Errors
/// As [`FileClient::transfer`].
pub fn transfer<'a>(
    node: &'a Node,
    attendance: &'a Attendance,
    ServedFile {
        file,
        disk,
        servers,
    }: ServedFile<'a>,
    tickets: &'a Cell<u64>,
    (operation, part, memory): (Operation, &'a FilePart, ClientMemory),
) -> LocalBoxFuture<'a, Result<()>> {
    let moving = async move {
        let name = file.memory(tickets.get());
        let exposed = node.expose(name, memory);
        let client = FileClient::new(node, attendance, file, (disk, servers), tickets);
        let moved = client.transfer(operation, part, name).await;
        drop(exposed);
        moved
    };
    moving.boxed_local()
}
