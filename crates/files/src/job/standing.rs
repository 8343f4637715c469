//! A volume whose servers stand: they outlive the programs that use them.
//!
//! ```text
//! server processes    each has servers of the volume, listens, and is connected with the others
//! programs            each rank, thread or process is a client of all of them
//! ```

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Either, LocalBoxFuture, join_all, pending, select};
use penstock_engine::collective::counts::CallCounts;
use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Error, Kind, Machine, NodeId, Result, Who};
use penstock_layout::exact;
use penstock_machines::links::Process;
use penstock_machines::mpi::abi::Handle;
use penstock_machines::mpi::api::Api;
use penstock_machines::node::runner::{Interrupt, Looking, Runner};
use penstock_machines::{Node, Opener};
use penstock_net::address::Address;
use penstock_net::dismissals::Dismissal;
use penstock_net::door::{Door, DoorOptions, Guests as Admission, Notice};
use penstock_net::links::Roster;
use penstock_net::peer::Peer;
use penstock_net::shared::Shared;
use penstock_net::tls::Keys;
use penstock_net::{Call, Calling, Greeting, Joined, Visit};

use super::core::Failure;
use super::file_system::{Ending, FileSystem};
use super::nodes::{JobOptions, Seat, Stands, check_same, identity, serve};
pub use super::watch::Calls;
use super::watch::{self, Watching};
use crate::caller::Homes;
use crate::client::{Client, ClientState, HearNotice};
use crate::disk::{self, Description, ServerDisk};
use crate::metrics::DoorCounts;
use crate::object::Identity;
use crate::service::lodge::Guests;

/// What a server process is.
#[derive(Clone)]
pub struct StandOptions {
    /// The path of the volume, in which `{server}` stands for the number of a server.
    pub template: String,
    /// The number of this process.
    pub process: usize,
    /// The process of each server of the volume.
    pub homes: Vec<usize>,
    /// The addresses of each process.
    pub addresses: Vec<Vec<Address>>,
    /// The keys for connections with other hosts.
    pub keys: Option<Keys>,
    /// Who may come.
    pub admission: Admission,
    /// The most clients at a time.
    pub clients_max: usize,
    /// How long a client may take nothing while there is something for it.
    pub patience: Duration,
    /// The cache, and how disks are used.
    pub options: JobOptions,
    /// The opener of the node: [`Seat::opener`], or one that passes on to it what is of the volume.
    pub opener: Arc<dyn Opener>,
    /// The node of each server of arrays, if there are some: [`Stand::serve`] is given who serves
    /// those of this process.
    pub arrays: Vec<NodeId>,
    /// `HOST:PORT` of an endpoint for Prometheus, if there is to be one.
    pub metrics: Option<String>,
    /// The calls on arrays that the process directs, if it serves arrays.
    pub calls: Option<Arc<Calls>>,
}

/// A server process that has opened its volume and its door, and does not serve yet.
pub struct Stand {
    node: Node,
    /// The description of the volume, encoded.
    volume: Vec<u8>,
    standing: Open,
    disks: Vec<ServerDisk>,
    options: JobOptions,
    homes: Homes,
    patience: Duration,
    watching: Watching,
    calls: Option<Arc<Calls>>,
}

/// What stays open as long as the process serves.
struct Open {
    roster: Roster,
    door: Door,
}

/// What a server process can be told while it serves.
#[derive(Clone)]
pub struct Reload {
    process: usize,
    volume: Vec<u8>,
    homes: Homes,
    notice: Shared<Notice>,
}

impl Reload {
    /// Lets the process know of processes that have come, with their servers, and of those that
    /// have gone for good. `homes`, `addresses` and `arrays` are as in [`StandOptions`].
    ///
    /// # Errors
    /// [`Kind::Schema`] when servers that were known have other processes now, or this one is to
    /// have more.
    pub fn reload(
        &self,
        homes: Vec<usize>,
        addresses: Vec<Vec<Address>>,
        arrays: Vec<NodeId>,
    ) -> Result<()> {
        let known = self.homes.count();
        let is_same = homes.starts_with(&self.homes.all());
        let has_more = homes.iter().skip(known).any(|home| *home == self.process);
        if !is_same || has_more {
            let cause = "servers stay where they are while they serve; new ones come behind them, \
                         in other processes";
            return Err(Error::new(
                Kind::Schema,
                "reading a configuration again",
                cause,
            ));
        }
        self.homes.extend(&homes);
        let greeting = Greeting {
            homes,
            volume: self.volume.clone(),
            arrays,
        };
        self.notice.replace(Notice {
            addresses,
            greeting: encode(&greeting)?,
        });
        Ok(())
    }
}

/// Opens the volume and the door of a server process. Clients that come wait until it serves.
///
/// # Errors
/// Those of [`disk::open`]; [`Kind::Busy`] when another process listens at the address, or has the
/// volume open; [`Kind::Schema`] when the numbers do not fit the volume.
pub fn stand(asked: StandOptions) -> Result<Stand> {
    let own = asked.homes.iter().enumerate();
    let own = own.filter(|(_, process)| **process == asked.process);
    let watching = Watching::begin(
        own.clone().map(|(server, _)| server),
        asked.metrics.as_deref(),
        asked.calls.clone(),
    )?;
    let disks = own.map(|(server, _)| disk::open(&asked.template, server));
    let disks: Vec<ServerDisk> = disks.collect::<Result<_>>()?;
    check_same(&disks)?;
    let Some(volume) = disks.first().map(|disk| disk.description.clone()) else {
        let cause = format!("process {} has no server of the volume", asked.process);
        return Err(Error::new(Kind::Schema, "serving a volume", cause));
    };
    if volume.servers > asked.homes.len() {
        let (servers, said) = (volume.servers, asked.homes.len());
        let cause = format!("the volume has {servers} servers, and {said} are to be served");
        return Err(Error::new(Kind::Schema, "serving a volume", cause));
    }
    let homes = Homes::new(asked.homes.clone());
    let told = encode(&volume)?;
    let greeting = Greeting {
        homes: asked.homes,
        volume: told.clone(),
        arrays: asked.arrays,
    };
    let standing = penstock_net::stand(DoorOptions {
        realm: volume.identity,
        process: asked.process,
        addresses: asked.addresses,
        greeting: encode(&greeting)?,
        keys: asked.keys,
        guests: asked.admission,
        clients_max: asked.clients_max,
        patience: asked.patience,
    })?;
    watching.know(standing.roster.clone());
    Ok(Stand {
        node: Node::new(
            asked.process,
            standing.links,
            Process::default(),
            asked.opener,
        ),
        standing: Open {
            roster: standing.roster,
            door: standing.door,
        },
        volume: told,
        disks,
        options: asked.options,
        homes,
        patience: asked.patience,
        watching,
        calls: asked.calls,
    })
}

/// The clients of a server process.
struct Lodgers {
    node: Rc<Node>,
    roster: Roster,
    notice: Shared<Notice>,
    process: usize,
    patience: Duration,
    calls: Option<Arc<Calls>>,
}

impl Guests for Lodgers {
    fn patience(&self) -> Duration {
        self.patience
    }

    fn identity(&self, node: NodeId) -> Option<Identity> {
        match self.roster.peer(node)? {
            Peer::Client(who) => Some(Identity::new(who.user, who.group, who.groups)),
            Peer::Server(_) => None,
        }
    }

    fn expel(&self, node: NodeId, reason: Dismissal, error: Error) {
        self.roster.expel(node, reason);
        self.node.cut_off(node, error);
    }

    fn notice(&self) -> Vec<u8> {
        encode(&self.notice.read()).unwrap_or_default()
    }

    fn process(&self) -> (usize, DoorCounts, Option<CallCounts>) {
        let calls = watch::calls(self.calls.as_ref(), &self.roster);
        (self.process, watch::door(&self.roster), calls)
    }
}

impl Stand {
    /// The means to tell the process of others while it serves.
    pub fn reload(&self) -> Reload {
        Reload {
            process: self.node.me(),
            volume: self.volume.clone(),
            homes: self.homes.clone(),
            notice: self.standing.door.notice().clone(),
        }
    }

    /// Where the endpoint for Prometheus listens, if there is one.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.watching.address()
    }

    /// Serves until `stop` is told, or its sender is dropped, and then saves all. What `beside`
    /// makes of the node and of who is connected goes on meanwhile.
    ///
    /// # Errors
    /// The first error of a server that keeps it from serving.
    pub fn serve(
        self,
        stops: &dyn Fn() -> oneshot::Receiver<()>,
        beside: Box<dyn FnOnce(Rc<Node>, Roster) -> LocalBoxFuture<'static, ()> + '_>,
    ) -> Result<()> {
        let Self {
            node,
            standing,
            disks,
            options,
            homes,
            patience,
            watching,
            calls,
            volume: _,
        } = self;
        let node = Rc::new(node);
        let served = disks.into_iter().map(|disk| {
            let (server, stop) = (disk.description.server, stops());
            let guests = Lodgers {
                node: node.clone(),
                roster: standing.roster.clone(),
                notice: standing.door.notice().clone(),
                process: node.me(),
                patience,
                calls: calls.clone(),
            };
            let meter = watching.meter(server);
            let shape = disk.description.shape(homes.clone());
            let clients: Arc<[NodeId]> = Arc::new([]);
            let node = node.clone();
            async move {
                let stopping = Box::pin(async move { stop.await.unwrap_or(()) });
                let guests: Rc<dyn Guests> = Rc::new(guests);
                let stands = Some(Stands {
                    guests,
                    stopping,
                    meter,
                });
                let cache = (options.cache_bytes, clients);
                let served = serve(&node, disk, shape, cache, stands).await;
                served.map_err(|error| error.by(Who::Server(server)))
            }
        });
        let beside = beside(node.clone(), standing.roster.clone());
        let beside = pin!(beside.then(|()| pending())); // the volume is served without it, too
        let served = node.block_on(select(join_all(served), beside));
        let served: Result<Vec<()>> = match served {
            Either::Left((served, _)) => served.into_iter().collect(),
            Either::Right((never, _)) => never,
        };
        let cause = match &served {
            Ok(_) => "the server has been stopped".to_string(),
            Err(error) => format!("the server has failed: {error}"),
        };
        node.leave(&Error::new(Kind::Peer, "serving a volume", cause));
        served.map(|_| ())
    }
}

/// A client that servers have let in, and the volume.
pub(super) struct Guest {
    pub(super) node: Node,
    pub(super) volume: Description,
    pub(super) homes: Homes,
    pub(super) calling: Arc<Calling>,
}

/// Calls the servers of a volume.
pub(super) fn call(call: &Call) -> Result<Guest> {
    let homes = Homes::new([]);
    let heard = homes.clone();
    let visit = call.visit_and_hear(Arc::new(move |welcome| {
        if let Ok(greeting) = decode::<Greeting>(&welcome.greeting) {
            heard.extend(&greeting.homes);
        }
    }))?;
    let volume = volume_of(&visit)?;
    homes.extend(&visit.greeting.homes);
    let Joined {
        node,
        links,
        calling,
        ..
    } = visit.joined;
    let opener = Seat::opener(&JobOptions::default());
    Ok(Guest {
        node: Node::new(node, links, Process::default(), opener),
        volume,
        homes,
        calling: Arc::new(calling),
    })
}

/// The volume of servers that answer.
fn volume_of(visit: &Visit) -> Result<Description> {
    volume_told(&visit.greeting, visit.realm)
}

/// The volume that the servers of this number tell of.
///
/// # Errors
/// [`Kind::Peer`] when it makes no sense.
pub(crate) fn volume_told(greeting: &Greeting, realm: u64) -> Result<Description> {
    let volume: Description = decode(&greeting.volume)?;
    let is_right = greeting.homes.len() >= volume.servers && volume.identity == realm;
    match is_right && volume.check().is_ok() {
        true => Ok(volume),
        false => {
            let cause = "the server says what cannot be";
            Err(Error::new(Kind::Peer, "connecting", cause))
        }
    }
}

impl Guest {
    fn start(
        self,
        (program, clients): (u64, Arc<[NodeId]>),
        interrupt: Option<Interrupt>,
    ) -> Result<FileSystem> {
        let Self {
            node,
            volume,
            homes,
            calling,
        } = self;
        let (shape, callers) = (volume.shape(homes.clone()), calling.clone());
        let mut state = ClientState::new(shape, identity(), (program, clients), 0);
        state.hear = Some(HearNotice(Arc::new(move |notice| {
            if let Ok(notice) = decode::<Notice>(notice)
                && let Ok(greeting) = decode::<Greeting>(&notice.greeting)
            {
                homes.extend(&greeting.homes);
                callers.call_more(&notice.addresses);
            }
        })));
        let runner = Runner::new(node, |_| Vec::new(), Looking::Always, interrupt)?;
        let failure = Failure::default();
        let ending = Ending::Alone { _calling: calling };
        Ok(FileSystem::new(runner, state, failure, ending))
    }
}

/// Opens a volume whose servers stand, as the one client of a program.
///
/// # Errors
/// As [`penstock_net::join`].
pub fn connect(asked: &Call, interrupt: Option<Interrupt>) -> Result<FileSystem> {
    let guest = call(asked)?;
    let me = guest.node.me();
    let fs = guest.start((disk::new_identity()?, Arc::new([me])), interrupt)?;
    fs.hear()?;
    Ok(fs)
}

/// Opens a volume whose servers stand, in all ranks of `comm`, each a client.
///
/// # Errors
/// The error of the lowest rank that has one, on all ranks.
///
/// # Collective
/// Over `comm`.
pub fn connect_all(
    (api, comm): (Api, Handle),
    asked: Result<Call>,
    interrupt: Option<Interrupt>,
) -> Result<FileSystem> {
    let guest = asked.and_then(|asked| call(&asked));
    let program = disk::new_identity()?;
    let told = match &guest {
        Ok(guest) => [1, guest.node.me() as u64, guest.volume.identity, program],
        Err(_) => [0; 4],
    };
    let all = api.allgather(comm, told)?;
    let missing = all.iter().position(|[is_there, ..]| *is_there == 0);
    let guest = match (guest, missing) {
        (Err(error), _) => return Err(error),
        (Ok(_), Some(rank)) => {
            let cause = "it cannot reach the servers";
            let error = Error::new(Kind::Peer, "opening a volume", cause);
            return Err(error.by(Who::Rank(rank)));
        }
        (Ok(guest), None) => guest,
    };
    if let Some(rank) = all.iter().position(|[.., volume, _]| *volume != all[0][2]) {
        let cause = format!("ranks 0 and {rank} have called different volumes");
        return Err(Error::new(Kind::Mismatch, "opening a volume", cause));
    }
    let clients = all.iter().map(|[_, node, ..]| exact::<usize>(*node));
    let fs = guest.start((all[0][3], clients.collect()), interrupt)?;
    fs.hear()?;
    Ok(fs)
}

/// The description of a volume whose servers stand, as one of them has it, and the number of
/// servers that there are.
///
/// # Errors
/// As [`penstock_net::join`].
pub fn description(asked: &Call) -> Result<(Description, usize)> {
    let visit = asked.visit()?;
    Ok((volume_of(&visit)?, visit.greeting.homes.len()))
}

/// What a look at a server process has found.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The number of the process.
    pub process: usize,
    /// The servers of the volume that the process has.
    pub servers: Vec<usize>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// The reason why it cannot be reached or does not serve, if so.
    pub missing: Option<Error>,
}

/// Looks which server processes of a volume can be reached, and serve.
///
/// # Errors
/// As [`penstock_net::join`].
pub fn look(asked: &Call) -> Result<Vec<Seen>> {
    let visit = asked.visit()?;
    let volume = volume_of(&visit)?;
    let Joined {
        node,
        links,
        welcomes,
        calling: _,
    } = visit.joined;
    let homes = visit.greeting.homes;
    let addresses = welcomes.iter().flatten().next();
    let addresses = addresses.map_or_else(Vec::new, |first| first.addresses.clone());
    let opener = Seat::opener(&JobOptions::default());
    let node = Node::new(node, links, Process::default(), opener);
    let shape = volume.shape(Homes::new(homes.clone()));
    let state = ClientState::new(shape, identity(), (0, Arc::new([])), 0);
    // A process without an address has gone for good.
    let welcomes = welcomes.into_iter().enumerate();
    let seen = welcomes.filter_map(|(process, welcome)| {
        let addresses = addresses.get(process).filter(|all| !all.is_empty())?;
        let servers = homes.iter().enumerate();
        let servers = servers.filter(|(_, home)| **home == process);
        let servers: Vec<usize> = servers.map(|(server, _)| server).collect();
        let missing = match welcome {
            Err(error) => Some(error),
            Ok(_) => {
                let client = Client::new(&node, &state);
                let asked = servers.iter().map(|&server| client.is_ready(server));
                node.block_on(join_all(asked))
                    .into_iter()
                    .find_map(Result::err)
            }
        };
        Some(Seen {
            process,
            servers,
            addresses: addresses.clone(),
            missing,
        })
    });
    Ok(seen.collect())
}
