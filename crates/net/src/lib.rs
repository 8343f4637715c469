//! The net machine: servers that stand, one process each, and clients that come and go.
//!
//! ```text
//! client                                            server
//!   dial: who am I        --- TLS, Unix socket ---    door: who is there, may they come?
//!   links                 --- packets ------------    links
//!   node                                              node
//! ```
//!
//! On one host packets go through memory that both processes share, a lane each way, and a socket
//! tells who sleeps. Between hosts they go by TLS. A node looks at all of its connections itself;
//! only calling and answering callers is done by a thread of its own. Nobody is a member before it
//! has been recognised, and what comes over a connection is the word of its peer alone.
//!
//! | module | contents |
//! |---|---|
//! | [`address`] | addresses and URLs |
//! | [`peer`] | who is at the other end |
//! | [`tls`] | keys and certificates |
//! | [`keys`] | making keys |
//! | `hello` | the words with which a connection begins |
//! | `dial` | calling a server |
//! | [`door`] | letting callers in |
//! | `lane` | a pipe of bytes in shared memory |
//! | `stream` | streams of bytes: lanes, TLS |
//! | `connection` | packets over a stream |
//! | [`dismissals`] | why callers were refused, and clients cut off, in numbers |
//! | [`endpoint`] | a small HTTP server for those who watch a process |
//! | `background` | work in a thread of its own |
//! | `bell` | a bell that rings for sockets, too |
//! | [`links`] | the links of a node |
//! | [`shared`] | a value that several threads share |
//! | `visit` | what servers say to a client that comes |

pub mod address;
mod background;
mod bell;
mod connection;
mod dial;
pub mod dismissals;
pub mod door;
pub mod endpoint;
#[cfg(test)]
mod fuzz;
mod hello;
#[cfg(test)]
mod hostile;
pub mod keys;
mod lane;
pub mod links;
pub mod peer;
pub mod shared;
mod stream;
pub mod tls;
mod visit;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use penstock_engine::{Error, NodeId, Result};
use penstock_machines::links::Links;

use address::Address;
use background::Background;
use bell::SocketBell;
use door::{Door, DoorOptions, Line, call, keep_calling, server_limits};
pub use hello::Welcome;
use hello::{Caller, Hello, Secret};
use links::{Admitted, NetLinks, Roster};
use peer::Peer;
use tls::Keys;
use tokio::runtime::{Handle, Runtime};
pub use visit::{Call, Greeting, Visit};

/// A server process that stands: its links, who is connected, and its door.
pub struct Standing {
    /// The links of the node. Node and process have one number.
    pub links: Box<dyn Links>,
    /// Who is connected.
    pub roster: Roster,
    /// The door, open as long as this is kept.
    pub door: Door,
}

/// Opens the door of a server process.
///
/// # Errors
/// [`Kind::Busy`] when another server listens there; [`Kind::Schema`] when keys are missing.
pub fn stand(options: DoorOptions) -> Result<Standing> {
    let (bell, roster) = (Arc::new(SocketBell::new()?), Roster::default());
    let (sender, admitted) = mpsc::channel();
    let me = options.process;
    let links = NetLinks::new(me, bell.clone(), roster.clone(), admitted);
    let door = Door::open(options, roster.clone(), sender, bell)?;
    Ok(Standing {
        links: Box::new(links),
        roster,
        door,
    })
}

/// A number that nobody can guess: who knows it was told.
///
/// # Errors
/// When the system gives no random numbers.
pub fn new_number() -> Result<u64> {
    Ok(Secret::new()?.node() as u64)
}

/// A client that servers have let in.
pub struct Joined {
    /// The node of the client, the same at all servers.
    pub node: NodeId,
    /// Its links.
    pub links: Box<dyn Links>,
    /// What each server process has said, or why it cannot be reached.
    pub welcomes: Vec<Result<Welcome>>,
    /// Calls servers that were not there, or have gone, as long as it is kept.
    pub calling: Calling,
}

/// Calls the servers of a client that are not there, in the background.
pub struct Calling {
    line: Arc<Line>,
    runtime: Handle,
    _background: Background,
}

impl Calling {
    fn begin(runtime: Runtime, line: Line, addresses: Vec<Vec<Address>>) -> Result<Self> {
        let (line, handle) = (Arc::new(line), runtime.handle().clone());
        let own = line.clone();
        let begin = move || {
            for (process, addresses) in addresses.into_iter().enumerate() {
                tokio::spawn(keep_calling(own.clone(), process, addresses));
            }
        };
        Ok(Self {
            line,
            runtime: handle,
            _background: Background::start("penstock-calls", runtime, begin)?,
        })
    }

    /// Calls the server processes, too, that have come: `addresses` are those of all.
    pub fn call_more(&self, addresses: &[Vec<Address>]) {
        let _entered = self.runtime.enter();
        self.line.call_more(addresses);
    }
}

/// Hears what servers say when a client comes back to one of them.
pub type Hears = Arc<dyn Fn(&Welcome) + Send + Sync>;

/// Connects a client with all server processes. `addresses` names at least one that can be reached.
/// It is connected with those, too, that come later, when one of the others has heard of them.
///
/// # Errors
/// [`Kind::Peer`] when none can be reached; the reason of one that refuses; [`Kind::Mismatch`] when
/// servers of different volumes answer.
pub fn join(
    addresses: &[Address],
    keys: Option<&Keys>,
    patience: Duration,
    hears: Hears,
) -> Result<Joined> {
    let runtime = background::runtime()?;
    let secret = Secret::new()?;
    let (sender, admitted) = mpsc::channel();
    let (bell, roster) = (Arc::new(SocketBell::new()?), Roster::default());
    let links = NetLinks::new(secret.node(), bell.clone(), roster.clone(), admitted);
    let limits = server_limits(patience);
    let (welcomes, hello, addresses) = runtime.block_on(async {
        let mut hello = Hello {
            caller: Caller::Client(secret),
            realm: None,
        };
        let (first, stream) = call(addresses, &hello, keys).await?;
        hello.realm = Some(first.realm);
        let addresses = first.addresses.clone();
        let others = addresses.clone().into_iter().enumerate();
        let others = others.filter(|(process, _)| *process != first.process);
        let calls = others.map(|(process, addresses)| {
            let (hello, keys) = (hello.clone(), keys.cloned());
            let called = async move { call(&addresses, &hello, keys.as_ref()).await };
            (process, tokio::spawn(called))
        });
        let calls: Vec<_> = calls.collect();
        let mut all = vec![(first.process, Ok((first, stream)))];
        for (process, called) in calls {
            let called = called.await.map_err(|error| hello::failed(&error));
            all.push((process, called.and_then(|called| called)));
        }
        all.sort_by_key(|(process, _)| *process);
        let mut welcomes = Vec::new();
        for (process, called) in all {
            let checked = called.and_then(|(welcome, stream)| {
                let is_meant = welcome.process == process && welcome.node == secret.node();
                match is_meant {
                    true => Ok((welcome, stream)),
                    false => Err(hello::failed(&"another server answers there")),
                }
            });
            welcomes.push(match checked {
                Ok((welcome, stream)) => {
                    let admitted = Admitted {
                        node: process,
                        peer: Peer::Server(process),
                        stream,
                        limits,
                    };
                    links.begin_with(admitted)?;
                    Ok(welcome)
                }
                Err(error) => {
                    links.begin_without(process, error.clone());
                    Err(error)
                }
            });
        }
        // One that has been started anew may know of more.
        let told = welcomes.iter().flatten().map(|one| &one.addresses);
        let longest = told.max_by_key(|all| all.len()).unwrap_or(&addresses);
        let addresses = longest.clone();
        Ok::<_, Error>((welcomes, hello, addresses))
    })?;
    let line = Line {
        hello,
        keys: keys.cloned(),
        limits,
        roster,
        links: sender,
        bell,
        known: Mutex::new(addresses.len()),
        hears,
    };
    Ok(Joined {
        node: secret.node(),
        links: Box::new(links),
        welcomes,
        calling: Calling::begin(runtime, line, addresses)?,
    })
}
