//! Traditional caching: clients ask for what they want, servers keep a cache.
//!
//! Kotz, TR94-226, section 4 and Figure 2(a); TOCS 1997, the "simple parallel file system". Nothing
//! of the collective request is used but that it is there: every client makes one call of the file
//! system for each contiguous chunk of the file that it holds, each call asks the servers for one
//! block, or part of a block, at a time, and waits for all answers before the next call.
//!
//! ```text
//! client   ask block 0 | ask block 1 | ...  wait     for each contiguous chunk
//! server   look it up, or read it into the cache; answer; read the next block ahead
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | the loop over chunks and blocks, with few requests outstanding at each disk |
//! | [`server`] | what becomes of a request: cache, read-ahead, write-behind when a block is full |
//! | `cache` | which blocks are in memory, and which goes when another is to come |
//!
//! Memory: of a server, [`Options::buffers_per_client`] blocks for each client; of a client nothing
//! but what is on its way. Messages: two for each part of a block, elements inside.

mod cache;
pub(crate) mod client;
mod server;

use futures::future::{join, join_all};
use serde::{Deserialize, Serialize};

use crate::collective::Outcome;
use crate::error::{Error, Result, Who};
use crate::machine::{Machine, Step};
use crate::queue::Order;
use crate::request::{Moved, Request};
use crate::tree::{Members, Tree};
use server::Server;

/// The tuning of caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many requests a client has under way at one disk, at most.
    pub outstanding_max: u32,
    /// Whether a client that has as many under way at one disk goes on to what it wants of others.
    /// Kotz's does not, as Figure 2(a) has it.
    pub looks_ahead: bool,
    /// The most bytes of one call of the file system. A longer contiguous chunk is several calls.
    pub call_bytes_max: u64,
    /// Buffers of a disk's cache, one block each, for each client.
    pub buffers_per_client: u32,
    /// The order of a disk's queue.
    pub queue: Order,
    /// How many blocks, those that follow on the same disk, are read after one that was asked for.
    pub read_ahead_blocks: u32,
}

impl Default for Options {
    /// The article's (TOCS 1997, section 4 and Table I).
    fn default() -> Self {
        Self {
            outstanding_max: 4,
            looks_ahead: true,
            call_bytes_max: u64::MAX,
            buffers_per_client: 8,
            queue: Order::CScanFile,
            read_ahead_blocks: 1,
        }
    }
}

/// From a client to a server: move these bytes of a block. Those to be written come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
struct Ask {
    /// To be given back with the answer.
    ticket: u64,
    /// The block.
    object: u64,
    /// Its number in the object.
    index: u64,
    /// The first byte, counted in the block.
    offset: u64,
    /// How many.
    bytes: u64,
}

/// From a server to a client: the bytes read come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    ticket: u64,
    error: Option<Error>,
}

/// This node's part: its client asks for its share, its servers answer all clients.
pub(crate) async fn transfer<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
) -> Outcome {
    let rank = tree.roles.rank(tree.machine.me());
    let client = async {
        match rank {
            Some(rank) => client::transfer_share(tree, request, options, rank).await,
            None => Ok(()),
        }
    };
    with_servers(tree, request, options, client).await
}

/// Runs `client`, and this node's servers until the clients of all nodes have been answered.
pub(crate) async fn with_servers<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
    client: impl Future<Output = Result<()>>,
) -> Outcome {
    let mine = tree.roles.servers_on(tree.machine.me());
    let mine = mine.filter(|&server| server < request.servers);
    let servers: Vec<_> = mine
        .map(|server| Server::new(tree, request, options, server))
        .collect();
    let asking = async {
        let rank = tree.roles.rank(tree.machine.me());
        let asked = client
            .await
            .map_err(|error| rank.map_or(error.clone(), |rank| error.by(Who::Rank(rank))));
        let mine = Outcome::of(asked.map(|()| Moved::default()));
        let all = tree.gather(Members::Clients, Step::Arrived(LAST), mine, Outcome::merge);
        let ended: Result<Outcome> = match all.await {
            Ok(all) => tree.multicast(|_| Members::All, Step::Go(LAST), all).await,
            Err(error) => Err(error),
        };
        servers.iter().for_each(Server::stop);
        ended.unwrap_or_else(|error| Outcome::of(Err(error)))
    };
    let serving = join_all(servers.iter().map(Server::run));
    let (asked, served) = join(asking, serving).await;
    let served = served.into_iter().map(Outcome::of);
    served.fold(asked, Outcome::merge)
}

/// The barrier at which clients have had all their answers; strategies on top count from 0.
const LAST: u32 = u32::MAX;
