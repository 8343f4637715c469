//! The door of a server: it lets callers in whom it recognises, and calls the other servers.
//!
//! A thread of its own does this, so that slow or silent callers keep nobody waiting. Who is let in
//! is handed to the links of the server's node.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use penstock_engine::{Error, Kind, NodeId, Result};
use penstock_machines::bell::HasBell;
use penstock_machines::memory::segment::Mapping;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::Hears;
use crate::address::Address;
use crate::background::{self, Background};
use crate::bell::SocketBell;
use crate::connection::Limits;
use crate::dial::{HELLO_MAX, dial, send_file, set_options};
use crate::dismissals::Dismissal;
use crate::hello::{self, Caller, Hello, Welcome, failed};
use crate::lane::{SEGMENT_BYTES, ends};
use crate::links::{Admitted, Roster, Word};
use crate::peer::{Peer, User, user_of_socket};
use crate::shared::Shared;
use crate::stream::{HostStream, RemoteStream, Stream};
use crate::tls::Keys;

/// The callers that are being heard at a time. Others wait in the system's queue.
const CALLERS_MAX: usize = 256;

/// The connections that the system keeps until they are heard.
const BACKLOG: i32 = 4096;

/// How soon another server is called again that could not be reached.
const CALL_AGAIN: Duration = Duration::from_millis(200);

/// The longest packet of a client, and of a server.
const CLIENT_PACKET_BYTES: usize = 16 << 20;
const SERVER_PACKET_BYTES: usize = 1 << 30;

/// What is kept for a client that does not take it, and for a server.
const CLIENT_KEPT_BYTES: usize = 64 << 20;
/// The bytes of messages of a client that may wait for somebody to take them.
const CLIENT_MAIL_BYTES: u64 = 256 << 20;
const SERVER_KEPT_BYTES: usize = 1 << 30;

/// Who may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guests {
    /// Everybody whom the kernel or a certificate names.
    All,
    /// Users with these numbers, or in groups with these; and the user of the server, and root.
    Only {
        /// The users.
        users: Vec<u32>,
        /// The groups.
        groups: Vec<u32>,
    },
}

impl Guests {
    fn may_come(&self, who: &User) -> bool {
        let own = rustix::process::getuid().as_raw();
        match self {
            Self::All => true,
            Self::Only { users, groups } => {
                let is_in = |group: &u32| groups.contains(group);
                who.user == own
                    || who.user == 0
                    || users.contains(&who.user)
                    || is_in(&who.group)
                    || who.groups.iter().any(is_in)
            }
        }
    }
}

/// What a server process is, and whom it lets in.
#[derive(Debug, Clone)]
pub struct DoorOptions {
    /// The number of these servers, which no others have.
    pub realm: u64,
    /// The number of the process.
    pub process: usize,
    /// The addresses of all server processes; this one listens at its own.
    pub addresses: Vec<Vec<Address>>,
    /// What is said to all clients.
    pub greeting: Vec<u8>,
    /// The keys for connections with other hosts.
    pub keys: Option<Keys>,
    /// Who may come.
    pub guests: Guests,
    /// The most clients at a time.
    pub clients_max: usize,
    /// How long a client may take nothing while there is something for it.
    pub patience: Duration,
}

/// What a door says to clients about all server processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The addresses of each process.
    pub addresses: Vec<Vec<Address>>,
    /// What else clients are told.
    pub greeting: Vec<u8>,
}

/// The door of a server, open as long as it is kept.
pub struct Door {
    _background: Background,
    notice: Shared<Notice>,
    sockets: Vec<PathBuf>,
    ports: Vec<u16>,
}

impl Drop for Door {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket); // nobody can use it any more
        }
    }
}

enum Listener {
    Host(UnixListener),
    Remote(TcpListener, TlsAcceptor),
}

/// What all tasks of a door share.
struct Desk {
    options: DoorOptions,
    notice: Shared<Notice>,
    roster: Roster,
    links: Sender<Word>,
    bell: Arc<SocketBell>,
    callers: Arc<Semaphore>,
}

impl Door {
    /// Listens, and calls the servers with lower numbers.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another server listens at the address; [`Kind::Schema`] without keys for
    /// an address of the network.
    pub(crate) fn open(
        options: DoorOptions,
        roster: Roster,
        links: Sender<Word>,
        bell: Arc<SocketBell>,
    ) -> Result<Self> {
        let runtime = background::runtime()?;
        let (mut listeners, mut sockets, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        let own = options.addresses.get(options.process);
        for address in own.into_iter().flatten() {
            let _guard = runtime.enter();
            let listener = listen(address, options.keys.as_ref()).map_err(|error| {
                Error::new(error.kind, format!("listening at {address}"), error.cause)
            })?;
            match (&listener, address) {
                (Listener::Host(_), Address::Host(path)) => sockets.push(path.clone()),
                (Listener::Remote(listener, _), _) => {
                    ports.extend(listener.local_addr().map(|address| address.port()));
                }
                _ => {}
            }
            listeners.push(listener);
        }
        let notice = Shared::new(Notice {
            addresses: options.addresses.clone(),
            greeting: options.greeting.clone(),
        });
        let desk = Arc::new(Desk {
            options,
            notice: notice.clone(),
            roster,
            links,
            bell,
            callers: Arc::new(Semaphore::new(CALLERS_MAX)),
        });
        let begin = move || {
            for listener in listeners {
                tokio::spawn(answer_callers(desk.clone(), listener));
            }
            let line = Arc::new(Line {
                hello: Hello {
                    caller: Caller::Server(desk.options.process),
                    realm: Some(desk.options.realm),
                },
                keys: desk.options.keys.clone(),
                limits: server_limits(desk.options.patience),
                roster: desk.roster.clone(),
                links: desk.links.clone(),
                bell: desk.bell.clone(),
                known: Mutex::new(usize::MAX), // the configuration names all others
                hears: Arc::new(|_| {}),
            });
            let lower = desk.options.addresses.iter().take(desk.options.process);
            for (process, addresses) in lower.enumerate() {
                tokio::spawn(keep_calling(line.clone(), process, addresses.clone()));
            }
        };
        Ok(Self {
            _background: Background::start("penstock-door", runtime, begin)?,
            notice,
            sockets,
            ports,
        })
    }

    /// What it says to clients. It changes when processes come or go.
    pub fn notice(&self) -> &Shared<Notice> {
        &self.notice
    }

    /// The ports at which it listens.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }
}

fn listen(address: &Address, keys: Option<&Keys>) -> Result<Listener> {
    let failed = |error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::AddrInUse => Kind::Busy,
            std::io::ErrorKind::PermissionDenied => Kind::ReadOnly,
            std::io::ErrorKind::NotFound => Kind::Missing,
            _ => Kind::Io,
        };
        Error::new(kind, "listening", error)
    };
    match address {
        Address::Host(path) => {
            remove_stale(path)?;
            let listener = UnixListener::bind(path).map_err(failed)?;
            // Who may come is decided by who is there, not by who may open the socket.
            let everybody = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(path, everybody).map_err(failed)?;
            Ok(Listener::Host(listener))
        }
        Address::Remote(host, port) => {
            let Some(keys) = keys else {
                let cause = "an address of the network needs keys";
                return Err(Error::new(Kind::Schema, "listening", cause));
            };
            let found = std::net::ToSocketAddrs::to_socket_addrs(&(&**host, *port));
            let mut found = found.map_err(failed)?;
            let place = found.next().ok_or_else(|| {
                let cause = "the host has no address";
                Error::new(Kind::Missing, "listening", cause)
            })?;
            let bind = || {
                let socket = match place.is_ipv4() {
                    true => tokio::net::TcpSocket::new_v4()?,
                    false => tokio::net::TcpSocket::new_v6()?,
                };
                socket.set_reuseaddr(true)?;
                socket.bind(place)?;
                socket.listen(BACKLOG as u32)
            };
            let acceptor = TlsAcceptor::from(keys.server.clone());
            Ok(Listener::Remote(bind().map_err(failed)?, acceptor))
        }
    }
}

/// Removes the socket of a server that has been killed. That of a living one stays.
fn remove_stale(path: &Path) -> Result<()> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let cause = "another server listens there";
            Err(Error::new(Kind::Busy, "listening", cause))
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let removed = std::fs::remove_file(path);
            removed.map_err(|error| Error::new(Kind::Io, "removing a socket", error))
        }
        Err(_) => Ok(()), // there is none, or binding will say what is wrong
    }
}

async fn answer_callers(desk: Arc<Desk>, listener: Listener) {
    while let Ok(turn) = desk.callers.clone().acquire_owned().await {
        let desk = desk.clone();
        let accepted = match &listener {
            Listener::Host(listener) => listener.accept().await.map(|(socket, _)| {
                tokio::spawn(async move {
                    desk.hear(desk.hear_host(socket), "this host", turn).await;
                });
            }),
            Listener::Remote(listener, acceptor) => {
                let acceptor = acceptor.clone();
                listener.accept().await.map(|(socket, from)| {
                    tokio::spawn(async move {
                        let heard = desk.hear_remote(socket, acceptor);
                        desk.hear(heard, &from.to_string(), turn).await;
                    });
                })
            }
        };
        if let Err(error) = accepted {
            tracing::error!(%error, "a caller cannot be heard");
            tokio::time::sleep(CALL_AGAIN).await; // too many files are open, most likely
        }
    }
}

impl Desk {
    /// Hears a caller, in time, and logs what comes of it.
    async fn hear(
        &self,
        heard: impl Future<Output = Result<NodeId>>,
        from: &str,
        turn: OwnedSemaphorePermit,
    ) {
        let heard = match tokio::time::timeout(HELLO_MAX, heard).await {
            Ok(heard) => heard.map_err(|error| (Dismissal::of_refusal(&error), error)),
            Err(_) => Err((Dismissal::Silent, failed(&"it does not say who it is"))),
        };
        drop(turn);
        match heard {
            Ok(node) => tracing::info!(from, node, "let in"),
            Err((reason, error)) => {
                self.roster.dismiss(reason);
                tracing::warn!(from, %error, reason = reason.name(), "refused");
            }
        }
    }

    async fn hear_host(&self, mut socket: UnixStream) -> Result<NodeId> {
        let plain = |socket: &UnixStream| -> std::io::Result<std::os::unix::net::UnixStream> {
            Ok(socket.as_fd().try_clone_to_owned()?.into())
        };
        let own = plain(&socket).map_err(|error| failed(&error))?;
        let who = user_of_socket(&own)?;
        drop(own);
        let hello: Hello = match self.may_come(&who) {
            true => hello::receive(&mut socket, true).await?,
            false => return Err(refused(&who)),
        };
        let peer = match hello.caller {
            Caller::Client(_) => Peer::Client(who),
            Caller::Server(number) => {
                let own = rustix::process::getuid().as_raw();
                if who.user != own && who.user != 0 {
                    return Err(refused(&who));
                }
                Peer::Server(number)
            }
        };
        let entry = self.welcome(&mut socket, &hello, peer).await?;
        let segment = Mapping::shared(SEGMENT_BYTES)?;
        if let Some(file) = segment.file() {
            let sent = socket.async_io(Interest::WRITABLE, || {
                send_file(socket.as_fd(), file).map_err(std::io::Error::from)
            });
            sent.await.map_err(|error| failed(&error))?;
        }
        let (writer, reader) = ends(segment, true);
        reader.watch();
        let socket = socket.into_std().map_err(|error| failed(&error))?;
        Ok(entry.admit(Stream::Host(HostStream {
            socket,
            writer,
            reader,
        })))
    }

    async fn hear_remote(&self, socket: TcpStream, acceptor: TlsAcceptor) -> Result<NodeId> {
        set_options(&socket)?;
        let accepted = acceptor.accept(socket).await;
        let mut stream = accepted.map_err(|error| failed(&error))?;
        let certificate = stream.get_ref().1.peer_certificates();
        let certificate = certificate.and_then(|all| all.first());
        let certificate = certificate.ok_or_else(|| failed(&"it shows no certificate"))?;
        let peer = Peer::of_certificate(certificate)?;
        if let Peer::Client(who) = &peer
            && !self.may_come(who)
        {
            return Err(refused(who));
        }
        let hello: Hello = hello::receive(&mut stream, true).await?;
        let is_meant = match (&peer, &hello.caller) {
            (Peer::Client(_), Caller::Client(_)) => true,
            (Peer::Server(one), Caller::Server(other)) => one == other,
            _ => false,
        };
        if !is_meant {
            return Err(failed(&"its certificate is for something else"));
        }
        let entry = self.welcome(&mut stream, &hello, peer).await?;
        let (socket, tls) = stream.into_inner();
        let socket = socket.into_std().map_err(|error| failed(&error))?;
        Ok(entry.admit(Stream::Remote(Box::new(RemoteStream {
            socket,
            tls: tls.into(),
        }))))
    }

    /// Gives a caller its place, and tells it so, or why not. The place is given back if the caller
    /// goes before it has heard, or does not hear in time.
    async fn welcome(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
        hello: &Hello,
        peer: Peer,
    ) -> Result<Entry<'_>> {
        self.replace(&peer).await;
        match self.enter(hello, &peer) {
            Ok(welcome) => {
                let entry = Entry::new(self, welcome.node, peer);
                hello::send(socket, &Ok::<_, Error>(welcome), false).await?;
                Ok(entry)
            }
            Err(error) => {
                hello::send(socket, &Err::<Welcome, _>(&error), false).await?;
                Err(error)
            }
        }
    }

    fn may_come(&self, who: &User) -> bool {
        self.options.guests.may_come(who)
    }

    /// Ends the connection with a server that calls again: it must be noted here that it has ended
    /// before the server hears that there is a new one.
    async fn replace(&self, peer: &Peer) {
        if let Peer::Server(number) = peer
            && self.roster.peer(*number).is_some()
        {
            let _ = self.links.send(Word::Gone(*number));
            self.bell.ring();
            self.roster.absent(*number).await;
        }
    }

    /// Gives a caller its place.
    ///
    /// # Errors
    /// What the caller is told: it means other servers, it is here already, or there are too many.
    fn enter(&self, hello: &Hello, peer: &Peer) -> Result<Welcome> {
        let (options, notice) = (&self.options, self.notice.read());
        let refuse = |kind, cause: String| Err(Error::new(kind, "connecting", cause));
        if hello.realm.is_some_and(|realm| realm != options.realm) {
            return refuse(
                Kind::Mismatch,
                "these are servers of another volume".to_string(),
            );
        }
        let node = match &hello.caller {
            Caller::Client(secret) => {
                if self.roster.clients() >= options.clients_max {
                    let most = options.clients_max;
                    return refuse(Kind::Busy, format!("there are {most} clients already"));
                }
                let node = secret.node();
                if !self.roster.add(node, peer.clone()) {
                    return refuse(Kind::Exists, "this client is connected already".to_string());
                }
                node
            }
            Caller::Server(number) => {
                if *number >= notice.addresses.len() || *number == options.process {
                    return refuse(Kind::Schema, format!("there is no other server {number}"));
                }
                *number
            }
        };
        Ok(Welcome {
            realm: options.realm,
            process: options.process,
            addresses: notice.addresses,
            node,
            greeting: notice.greeting,
        })
    }

    fn limits(&self, peer: &Peer) -> Limits {
        match peer {
            Peer::Client(_) => Limits {
                packet_bytes: CLIENT_PACKET_BYTES,
                kept_bytes: CLIENT_KEPT_BYTES,
                mail_bytes: CLIENT_MAIL_BYTES,
                patience: self.options.patience,
            },
            Peer::Server(_) => server_limits(self.options.patience),
        }
    }

    fn hand_over(&self, node: NodeId, peer: Peer, stream: Stream) {
        let limits = self.limits(&peer);
        let admitted = Admitted {
            node,
            peer,
            stream,
            limits,
        };
        let _ = self.links.send(Word::Admitted(admitted)); // a node that has gone needs nobody
        self.bell.ring();
    }
}

/// The limits of a connection with a server.
pub(crate) fn server_limits(patience: Duration) -> Limits {
    Limits {
        packet_bytes: SERVER_PACKET_BYTES,
        kept_bytes: SERVER_KEPT_BYTES,
        mail_bytes: u64::MAX,
        patience,
    }
}

/// The place of a caller, which goes again if it does not come in.
struct Entry<'a> {
    desk: &'a Desk,
    node: NodeId,
    peer: Option<Peer>,
}

impl<'a> Entry<'a> {
    fn new(desk: &'a Desk, node: NodeId, peer: Peer) -> Self {
        Self {
            desk,
            node,
            peer: Some(peer),
        }
    }

    fn admit(mut self, stream: Stream) -> NodeId {
        if let Some(peer) = self.peer.take() {
            self.desk.hand_over(self.node, peer, stream);
        }
        self.node
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(Peer::Client(_)) = self.peer {
            self.desk.roster.remove(self.node);
        }
    }
}

/// Who calls servers, and what for.
pub(crate) struct Line {
    pub(crate) hello: Hello,
    pub(crate) keys: Option<Keys>,
    pub(crate) limits: Limits,
    pub(crate) roster: Roster,
    pub(crate) links: Sender<Word>,
    pub(crate) bell: Arc<SocketBell>,
    /// The number of server processes that are known.
    pub(crate) known: Mutex<usize>,
    pub(crate) hears: Hears,
}

impl Line {
    /// Takes in what a server says when it is called again.
    fn hear(self: &Arc<Self>, welcome: &Welcome) {
        (self.hears)(welcome);
        self.call_more(&welcome.addresses);
    }

    /// Calls the server processes that have come: `addresses` are those of all.
    pub(crate) fn call_more(self: &Arc<Self>, addresses: &[Vec<Address>]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let more = addresses.iter().enumerate().skip(*known);
        for (process, addresses) in more {
            let calling: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(keep_calling(self.clone(), process, addresses.clone()));
            tokio::spawn(calling);
        }
        *known = addresses.len().max(*known);
    }
}

/// Keeps a connection with a server process: calls it whenever it is not there.
///
/// One without an address has gone for good.
pub(crate) async fn keep_calling(line: Arc<Line>, process: usize, addresses: Vec<Address>) {
    if addresses.is_empty() {
        return;
    }
    let mut told = None;
    loop {
        line.roster.absent(process).await;
        let called = call(&addresses, &line.hello, line.keys.as_ref()).await;
        let called = called.and_then(|(welcome, stream)| match welcome.process == process {
            true => Ok((welcome, stream)),
            false => Err(failed(&format!("server {} answers", welcome.process))),
        });
        match called {
            Ok((welcome, stream)) => {
                line.hear(&welcome);
                let peer = Peer::Server(process);
                line.roster.add(process, peer.clone());
                let admitted = Admitted {
                    node: process,
                    peer,
                    stream,
                    limits: line.limits,
                };
                let _ = line.links.send(Word::Admitted(admitted)); // a node that has gone needs nobody
                line.bell.ring();
                tracing::info!(process, "connected with a server");
                told = None;
            }
            Err(error) => {
                if told.as_ref() != Some(&error) {
                    tracing::warn!(process, %error, "a server cannot be reached");
                    told = Some(error);
                }
                tokio::time::sleep(CALL_AGAIN).await;
            }
        }
    }
}

/// Calls a server at one of its addresses.
///
/// # Errors
/// Those of the last address.
pub(crate) async fn call(
    addresses: &[Address],
    hello: &Hello,
    keys: Option<&Keys>,
) -> Result<(Welcome, Stream)> {
    let mut called = Err(failed(&"the server has no address"));
    for address in addresses {
        called = dial(address, hello, keys).await;
        if called.is_ok() {
            break;
        }
    }
    called
}

fn refused(who: &User) -> Error {
    let cause = format!("user {} may not come", who.user);
    Error::new(Kind::ReadOnly, "connecting", cause)
}
