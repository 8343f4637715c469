//! Traditional caching: clients ask for what they want, servers keep a cache.
//!
//! Kotz, TR94-226, section 4 and Figure 2(a); TOCS 1997, the "simple parallel file system". The
//! servers do not use the collective request: every client makes one call of the file system for
//! each contiguous chunk of the file that it holds, each call asks the servers for one block, or
//! part of a block, at a time, and waits for all answers before the next call.
//!
//! ```text
//! client   ask block 0 | ask block 1 | ...  wait     for each contiguous chunk
//! server   look it up, or read it into the cache; answer; read the next block ahead
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | the loop over chunks and blocks, with few requests outstanding at each disk |
//! | [`server`] | the way of a request: cache, read-ahead, write-behind when a block is full |
//! | `cache` | the blocks in memory, and the choice of one to drop |
//!
//! Memory: of a server, [`Caching::buffers_per_client`] blocks for each client; of a client only
//! the parcels on their way. Messages: two for each part of a block, elements inside.

mod cache;
pub(crate) mod client;
mod messages;
mod server;

use futures::future::{join, join_all};

use crate::error::{Result, Who};
use crate::machine::{Machine, Step};
use crate::outcome::{Outcome, Traffic};
use crate::request::Request;
use crate::tree::{Members, Tree};
use crate::tuning::Caching;
use server::Server;

/// Runs this node's part: its client asks for its share, its servers answer all clients.
pub(crate) async fn transfer<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Caching,
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
    options: &Caching,
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
        let mine = Outcome::of(asked.map(|()| Traffic::default()));
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
