//! Calling a server.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use penstock_machines::memory::segment::Mapping;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustls::pki_types::ServerName;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::hello::{self, Hello, Welcome, failed};
use crate::lane::{SEGMENT_BYTES, ends};
use crate::peer::Peer;
use crate::stream::{HostStream, RemoteStream, Stream};
use crate::tls::Keys;

/// The longest time that it may take to be let in, or to let somebody in.
pub(crate) const HELLO_MAX: Duration = Duration::from_secs(10);

/// The time after which a peer on another host is asked whether it is there, and after which it is
/// gone if it does not answer.
const SILENCE_MAX: Duration = Duration::from_millis(SILENCE_MAX_MS as u64);
const SILENCE_MAX_MS: u32 = 15_000;

/// Calls a server, and gives what it says and the stream to it.
///
/// # Errors
/// [`Kind::Peer`] when it cannot be reached or closes the connection; its reason if it refuses.
pub(crate) async fn dial(
    address: &Address,
    hello: &Hello,
    keys: Option<&Keys>,
) -> Result<(Welcome, Stream)> {
    let called = async {
        match address {
            Address::Host(path) => {
                let socket = UnixStream::connect(path).await;
                host(socket.map_err(|error| failed(&error))?, hello).await
            }
            Address::Remote(name, port) => {
                let keys = keys.ok_or_else(|| failed(&"there are no keys for other hosts"))?;
                let socket = TcpStream::connect((&**name, *port)).await;
                let socket = socket.map_err(|error| failed(&error))?;
                remote(socket, name, hello, keys).await
            }
        }
    };
    let called = match tokio::time::timeout(HELLO_MAX, called).await {
        Ok(called) => called,
        Err(_) => Err(failed(&format!("no answer in {} s", HELLO_MAX.as_secs()))),
    };
    called.map_err(|mut error| {
        error.doing = format!("{} to {address}", error.doing);
        error
    })
}

async fn host(mut socket: UnixStream, hello: &Hello) -> Result<(Welcome, Stream)> {
    hello::send(&mut socket, hello, true).await?;
    let welcome: Result<Welcome> = hello::receive(&mut socket, false).await?;
    let welcome = welcome?;
    let received = socket.async_io(Interest::READABLE, || {
        receive_file(socket.as_fd()).map_err(std::io::Error::from)
    });
    let file = received.await.map_err(|error| failed(&error))?;
    let file = file.ok_or_else(|| failed(&"no shared memory has come"))?;
    let (writer, reader) = ends(Mapping::sent(file, SEGMENT_BYTES)?, false);
    reader.watch();
    let socket = socket.into_std().map_err(|error| failed(&error))?;
    let stream = Stream::Host(HostStream {
        socket,
        writer,
        reader,
    });
    Ok((welcome, stream))
}

async fn remote(
    socket: TcpStream,
    name: &str,
    hello: &Hello,
    keys: &Keys,
) -> Result<(Welcome, Stream)> {
    set_options(&socket)?;
    let server = ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?;
    let connector = TlsConnector::from(keys.client.clone());
    let connected = connector.connect(server, socket).await;
    let mut stream = connected.map_err(|error| failed(&error))?;
    let certificate = stream.get_ref().1.peer_certificates();
    let certificate = certificate.and_then(|all| all.first());
    let certificate = certificate.ok_or_else(|| failed(&"it shows no certificate"))?;
    let peer = Peer::of_certificate(certificate)?;
    hello::send(&mut stream, hello, true).await?;
    let welcome: Result<Welcome> = hello::receive(&mut stream, false).await?;
    let welcome = welcome?;
    if peer != Peer::Server(welcome.process) {
        let cause = "its certificate is not that of this server";
        return Err(Error::new(Kind::ReadOnly, "connecting", cause));
    }
    let (socket, tls) = stream.into_inner();
    let socket = socket.into_std().map_err(|error| failed(&error))?;
    let stream = Stream::Remote(Box::new(RemoteStream {
        socket,
        tls: tls.into(),
    }));
    Ok((welcome, stream))
}

/// Sends at once what is to go, and notices a host that is gone.
pub(crate) fn set_options(socket: &TcpStream) -> Result<()> {
    use rustix::net::sockopt;
    let set = || {
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, SILENCE_MAX / 3)?;
        sockopt::set_tcp_keepintvl(socket, SILENCE_MAX / 3)?;
        sockopt::set_tcp_keepcnt(socket, 2)?;
        sockopt::set_tcp_user_timeout(socket, SILENCE_MAX_MS)
    };
    set().map_err(|error: rustix::io::Errno| failed(&error))
}

/// Sends a byte that carries a file.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let files = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut carried = SendAncillaryBuffer::new(&mut space);
    carried.push(SendAncillaryMessage::ScmRights(&files));
    let byte = [IoSlice::new(&[0])];
    rustix::net::sendmsg(socket, &byte, &mut carried, SendFlags::NOSIGNAL).map(|_| ())
}

/// Receives a byte, and the file that it carries, if any.
pub(crate) fn receive_file(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut carried = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut byte = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut byte, &mut carried, flags)?;
    let files = carried.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(files.last())
}
