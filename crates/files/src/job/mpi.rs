//! A volume in an MPI job: every rank is a client, and some ranks have servers.
//!
//! ```text
//! ranks    hello: same build, same arguments? | join | open the disks of own servers
//!          all tell rank 0 | rank 0 tells all: the volume, or the error of the lowest rank
//! ```
//!
//! Server `s` is on host `s % hosts`. Where a volume's path has `{server}` in it, the disks of each
//! server must be seen from that host.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::version::Version;
use penstock_engine::{Error, Kind, Machine, NodeId, Port, Result, Who};
use penstock_layout::exact;
use penstock_machines::Node;
use penstock_machines::mpi::abi::Handle;
use penstock_machines::mpi::api::Api;
use penstock_machines::mpi::{self, Transport};
use penstock_machines::node::runner::Interrupt;
use penstock_net::Call;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::core::hear;
use super::file_system::FileSystem;
use super::nodes::{JobOptions, Seat, check_servers};
use super::standing::connect_all;
use crate::caller::Homes;
use crate::disk::{self, Description, ServerDisk};

/// What all ranks of a job say of the volume.
#[derive(Debug, Clone)]
pub struct JobArguments {
    /// The path of the volume, in which `{server}` stands for the number of a server.
    pub template: String,
    /// The number of servers, if it is to be checked.
    pub servers: Option<usize>,
    /// Whether ranks with servers are no clients.
    pub is_dedicated: bool,
    /// The options of the program.
    pub options: JobOptions,
}

/// What rank 0 tells all ranks: the volume, and the number of the program.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Opened {
    volume: Description,
    program: u64,
}

/// The mailbox of the words with which a job begins.
const OPENING: Port = Port::new([u64::MAX, u64::MAX, 1 << 61]);

/// Opens a volume in all ranks of `comm`: as [`join`], or by a URL that of servers that stand, for
/// which `keys` names the keys.
///
/// # Errors
/// As [`join`] and [`connect_all`]; [`Kind::Mismatch`], on all ranks, when some give a URL and
/// others a path.
///
/// # Collective
/// Over `comm`.
pub fn open(
    (api, comm): (Api, Handle),
    may_use_threads: bool,
    given: Result<JobArguments>,
    keys: Option<&str>,
    interrupt: Option<Interrupt>,
) -> Result<Option<FileSystem>> {
    const NEITHER: u64 = 0;
    const URL: u64 = 1;
    const PATH: u64 = 2;
    let read = given.and_then(|given| Ok((Call::of_url(&given.template, keys)?, given)));
    let mine = match &read {
        Ok((Some(_), _)) => URL,
        Ok((None, _)) => PATH,
        Err(_) => NEITHER,
    };
    let all = api.allgather(comm, [mine])?;
    let first = |kind| all.iter().position(|[other]| *other == kind);
    if let (Some(url), Some(path)) = (first(URL), first(PATH)) {
        let cause = format!("rank {url} gives a URL, rank {path} a path");
        return Err(Error::new(Kind::Mismatch, "opening a volume", cause));
    }
    let (call, given) = match read {
        Ok((call, given)) => (call.map(Ok), Ok(given)),
        Err(error) => (first(URL).map(|_| Err(error.clone())), Err(error)),
    };
    match call {
        Some(call) => connect_all((api, comm), call, interrupt).map(Some),
        None => join(
            (api, comm),
            Transport::Shared,
            may_use_threads,
            given,
            interrupt,
        ),
    }
}

/// Opens a volume in all ranks of `comm`. On a rank that only has servers it returns when the
/// clients have closed the volume, and gives nothing. `given` may be the reason why this rank has
/// no arguments.
///
/// # Errors
/// The same on all ranks: [`Kind::Mismatch`] when versions or arguments differ; those of
/// [`disk::open`]; [`Kind::Schema`] when there are no ranks for the servers.
///
/// # Collective
/// Over `comm`.
pub fn join(
    (api, comm): (Api, Handle),
    transport: Transport,
    may_use_threads: bool,
    given: Result<JobArguments>,
    interrupt: Option<Interrupt>,
) -> Result<Option<FileSystem>> {
    let given = given.and_then(|given| {
        let seen = disk::servers(&given.template).ok();
        check_servers(given.servers, seen)?;
        Ok((seen.or(given.servers).unwrap_or(0), given))
    });
    let (found, given) = match given {
        Ok((found, given)) => (found, Ok(given)),
        Err(error) => (0, Err(error)),
    };
    let digest = given.as_ref().map_or(0, digest_of);
    let told = [
        Version::THIS.word(),
        u64::from(given.is_ok()),
        digest,
        found as u64,
    ];
    let all = api.allgather(comm, told)?;
    let arguments = meet(&all, given)?;
    let servers = all.iter().map(|[.., found]| exact::<usize>(*found));
    let servers = servers.max().unwrap_or(0);
    if servers == 0 {
        // Every rank has the same reason: it sees no volume.
        return Err(disk::describe(&arguments.template, 0)
            .err()
            .unwrap_or_else(|| Error::new(Kind::Missing, "opening a volume", "it has no server")));
    }
    let job = mpi::join(api, comm, transport, Seat::opener(&arguments.options))?;
    let homes = homes_of(&job.hosts, servers, arguments.is_dedicated)?;
    let me = job.node.me();
    let own = homes.iter().enumerate().filter(|(_, home)| **home == me);
    let disks: Result<Vec<ServerDisk>> = own
        .map(|(server, _)| disk::open(&arguments.template, server))
        .collect();
    let (disks, opened) = agree(&job.node, job.hosts.len(), servers, disks)?;
    let is_client = |rank: &usize| !arguments.is_dedicated || !homes.contains(rank);
    let clients: Arc<[NodeId]> = (0..job.hosts.len()).filter(is_client).collect();
    let serves_alone = may_use_threads || !job.node.needs_mpi();
    let seat = Seat {
        node: job.node,
        shape: opened.volume.shape(Homes::new(homes)),
        disks,
        program: opened.program,
        clients,
        nodes: job.hosts.len(),
        hosts: job.hosts.iter().collect::<BTreeSet<_>>().len(),
        serves_alone,
    };
    let fs = seat.start(&arguments.options, interrupt)?;
    if fs.is_client() {
        return Ok(Some(fs));
    }
    fs.serve_alone()?;
    Ok(None)
}

/// A digest of what must be the same on all ranks.
fn digest_of(given: &JobArguments) -> u64 {
    let JobArguments {
        template,
        servers,
        is_dedicated,
        options,
    } = given;
    let said = (
        template,
        servers,
        is_dedicated,
        options.cache_bytes,
        options.is_direct,
    );
    encode(&said).map_or(0, |bytes| XxHash3_64::oneshot(&bytes))
}

/// Checks the hellos of all ranks: version, whether there are arguments, their digest, and the
/// number of servers.
fn meet(all: &[[u64; 4]], given: Result<JobArguments>) -> Result<JobArguments> {
    let versions = all.iter().map(|[version, ..]| Version::of_word(*version));
    Version::check_all(&versions.collect::<Vec<_>>())?;
    if let Some(rank) = all.iter().position(|[_, is_well, ..]| *is_well == 0) {
        let cause = "its arguments do not fit";
        let error = Error::new(Kind::Schema, "opening a volume", cause).by(Who::Rank(rank));
        return Err(given.err().unwrap_or(error));
    }
    let digest = |words: &[u64; 4]| words[2];
    let first = all.first().map(digest);
    if let Some(other) = all.iter().position(|words| Some(digest(words)) != first) {
        let cause = format!("ranks 0 and {other} give different arguments");
        return Err(Error::new(Kind::Mismatch, "opening a volume", cause));
    }
    given
}

/// The rank of each server: servers are dealt out over hosts, and on each over its ranks. Dedicated
/// servers have the last ranks of their hosts to themselves.
fn homes_of(hosts: &[usize], servers: usize, is_dedicated: bool) -> Result<Vec<NodeId>> {
    let mut by_host: Vec<Vec<usize>> = vec![Vec::new(); hosts.len()];
    for (rank, &host) in hosts.iter().enumerate() {
        by_host[host].push(rank);
    }
    by_host.retain(|ranks| !ranks.is_empty());
    let home = |server: usize| {
        let ranks = &by_host[server % by_host.len()];
        let turn = server / by_host.len();
        match is_dedicated {
            true => ranks[ranks.len() - 1 - turn % ranks.len()],
            // Far apart, and on all ranks before one has two.
            false => ranks[turn % ranks.len()],
        }
    };
    let homes: Vec<NodeId> = (0..servers).map(home).collect();
    let clients = (0..hosts.len()).filter(|rank| !is_dedicated || !homes.contains(rank));
    match clients.count() {
        0 => {
            let ranks = hosts.len();
            let cause = format!("{servers} dedicated servers leave no client among {ranks} ranks");
            Err(Error::new(Kind::Schema, "opening a volume", cause))
        }
        _ => Ok(homes),
    }
}

/// Lets all ranks agree on whether all servers have their disks, and tells all what the volume is.
fn agree(
    node: &Node,
    ranks: usize,
    servers: usize,
    disks: Result<Vec<ServerDisk>>,
) -> Result<(Vec<ServerDisk>, Opened)> {
    let me = node.me();
    let mine: Result<Vec<Description>> = match &disks {
        Ok(disks) => Ok(disks.iter().map(|disk| disk.description.clone()).collect()),
        Err(error) => Err(error.clone().by(Who::Rank(me))),
    };
    let opened: Result<Opened> = node.block_on(async {
        if me > 0 {
            node.send(0, OPENING, encode(&mine)?, None).await?;
            // Others may have heard already, and left.
            let told = hear(node, OPENING, |who| who == 0).await?;
            return decode(&told.body)?;
        }
        let mut by_rank = vec![Ok(Vec::new()); ranks];
        by_rank[0] = mine;
        for _ in 1..ranks {
            let told = hear(node, OPENING, |_| true).await?;
            by_rank[told.from] = decode(&told.body)?;
        }
        let opened = by_rank
            .into_iter()
            .collect::<Result<Vec<_>>>()
            .and_then(|all| check_all(servers, all.into_iter().flatten()));
        for rank in 1..ranks {
            node.send(rank, OPENING, encode(&opened)?, None).await?;
        }
        opened
    });
    Ok((disks?, opened?))
}

/// Refuses servers that are not of one volume.
fn check_all(servers: usize, all: impl Iterator<Item = Description>) -> Result<Opened> {
    let mut all: Vec<Description> = all.collect();
    all.sort_by_key(|one| one.server);
    let wrong = |kind, cause: String| Err(Error::new(kind, "opening a volume", cause));
    let Some(volume) = all.first().cloned() else {
        return wrong(Kind::Missing, "it has no server".to_string());
    };
    if servers < volume.servers {
        check_servers(Some(servers), Some(volume.servers))?;
    }
    let is_other = |one: &Description| one.identity != volume.identity;
    if let Some(other) = all.iter().find(|one| is_other(one)) {
        let cause = format!("server {} is of another volume than server 0", other.server);
        return wrong(Kind::Mismatch, cause);
    }
    Ok(Opened {
        volume,
        program: disk::new_identity()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_dealt_out_over_hosts() {
        let homes =
            |hosts: &[usize], servers, is_dedicated| homes_of(hosts, servers, is_dedicated).ok();
        assert_eq!(homes(&[0, 0, 0, 0], 2, false), Some(vec![0, 1]));
        assert_eq!(homes(&[0, 0, 2, 2], 3, false), Some(vec![0, 2, 1]));
        assert_eq!(homes(&[0, 0, 2, 2], 2, true), Some(vec![1, 3]));
        assert_eq!(homes(&[0], 4, false), Some(vec![0; 4]));
        assert_eq!(homes(&[0, 0], 4, true), None);
    }
}
