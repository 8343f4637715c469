//! The streams of bytes between two nodes: through shared memory on one host, by TLS between hosts.
//! Neither ever waits.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use penstock_engine::{Error, Kind, Result};
use rustls::Connection as Tls;

use crate::lane::{LaneReader, LaneWriter};

/// The bytes that are read at a time.
const READ_BYTES: usize = 1 << 16;

/// A stream between two nodes.
pub(crate) enum Stream {
    Host(HostStream),
    Remote(Box<RemoteStream>),
}

/// A stream between processes of one host: lanes in shared memory. The socket beside them tells of
/// bytes and of room, and its end is the end of the peer.
pub(crate) struct HostStream {
    pub(crate) socket: UnixStream,
    pub(crate) writer: LaneWriter,
    pub(crate) reader: LaneReader,
}

/// A stream between hosts: TLS on TCP.
pub(crate) struct RemoteStream {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Tls,
}

/// What a read has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Bytes; there may be more.
    Bytes,
    /// Nothing; more may come.
    Nothing,
    /// The end of the stream.
    End,
}

impl Stream {
    /// Reads at most `count` bytes, more than none, to the end of `into`.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>, count: usize) -> Result<Found> {
        let count = count.min(READ_BYTES);
        match self {
            Self::Host(host) => host.read(into, count),
            Self::Remote(remote) => remote.read(into, count),
        }
    }

    /// Writes some of the bytes, and says how many; [`Stream::flush`] sends them. If that is not
    /// all, the socket becomes ready when there is room.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Host(host) => {
                let written = host.writer.write(bytes)?;
                if host.writer.must_tell() {
                    host.tell()?;
                }
                Ok(written)
            }
            Self::Remote(remote) => remote.write(bytes),
        }
    }

    /// Sends what is still in memory of this process. Says whether all is out.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken.
    pub(crate) fn flush(&mut self) -> Result<bool> {
        match self {
            Self::Host(_) => Ok(true),
            Self::Remote(remote) => remote.flush(),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Host(host) => host.socket.as_fd(),
            Self::Remote(remote) => remote.socket.as_fd(),
        }
    }
}

impl HostStream {
    /// Tells the peer to look.
    fn tell(&self) -> Result<()> {
        match (&self.socket).write(&[0]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()), // it has been told often
            Err(error) => Err(broken(error)),
        }
    }

    /// Takes what the peer has told. Returns whether the peer is there still.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the socket is broken.
    pub(crate) fn hear(&mut self) -> Result<bool> {
        let mut told = [0; 256];
        loop {
            match self.socket.read(&mut told) {
                Ok(0) => return Ok(false),
                Ok(count) if count < told.len() => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(broken(error)),
            }
        }
    }

    fn read(&mut self, into: &mut Vec<u8>, count: usize) -> Result<Found> {
        match self.reader.read(into, count)? {
            0 => Ok(Found::Nothing),
            _ => {
                if self.reader.must_tell() {
                    self.tell()?;
                }
                Ok(Found::Bytes)
            }
        }
    }
}

impl RemoteStream {
    fn read(&mut self, into: &mut Vec<u8>, count: usize) -> Result<Found> {
        loop {
            match self.take_plain(into, count)? {
                Found::Nothing => {}
                found => return Ok(found),
            }
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Found::End),
                Ok(_) => {
                    self.tls.process_new_packets().map_err(broken)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Found::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Takes bytes that have been decrypted.
    fn take_plain(&mut self, into: &mut Vec<u8>, count: usize) -> Result<Found> {
        let start = into.len();
        into.resize(start + count, 0);
        let read = self.tls.reader().read(&mut into[start..]);
        into.truncate(start + read.as_ref().map_or(0, |&count| count));
        match read {
            Ok(0) => Ok(Found::End),
            Ok(_) => Ok(Found::Bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Found::Nothing),
            Err(error) => Err(broken(error)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            // The connection takes as much as its buffer holds.
            let count = self.tls.writer().write(&bytes[written..]).map_err(broken)?;
            written += count;
            if count == 0 && !self.flush()? {
                break;
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(true)
    }
}

/// The error of a stream that has broken.
pub(crate) fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Peer, "exchanging messages over a socket", cause)
}
