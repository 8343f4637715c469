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
use penstock_layout::Holding;

use crate::address::Step;
use crate::call::Call;
use crate::error::Who;
use crate::machine::Machine;
use crate::outcome::{Outcome, Traffic};
use crate::request::Request;
use crate::tree::Tree;
use crate::tuning::Caching;
use server::Server;

/// Runs the part of the client of `rank`: it asks for all that it holds; for its `list`, if ranks
/// have lists.
pub(crate) async fn ask<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    options: &Caching,
    (rank, list): (usize, &Holding),
) -> Outcome {
    let asked = client::transfer_own(call, request, options, (rank, list)).await;
    let asked = asked.map_err(|error| error.by(Who::Rank(rank)));
    Outcome::of(asked.map(|()| Traffic::default()))
}

/// Runs this node's servers until the clients have been answered, which they say by
/// [`Step::Stop`].
pub(crate) async fn serve<M: Machine>(
    call: Call<'_, M>,
    request: &Request,
    options: &Caching,
    tree: Tree<'_, M>,
) -> Outcome {
    let mine = call.party().servers_on(call.machine.me());
    let mine = mine.filter(|&server| server < request.servers);
    let servers: Vec<_> = mine
        .map(|server| Server::new(call, request, options, server))
        .collect();
    let stopping = async {
        let stopped = tree.multicast(Step::Stop, None::<()>).await;
        servers.iter().for_each(Server::stop);
        Outcome::of(stopped.map(|()| Traffic::default()))
    };
    let serving = join_all(servers.iter().map(Server::run));
    let (stopped, served) = join(stopping, serving).await;
    let served = served.into_iter().map(Outcome::of);
    served.fold(stopped, Outcome::merge)
}
