//! The words with which a connection begins.
//!
//! ```text
//! caller    PENSTOCK | version | length | hello        who calls: a client, or another server
//! server             | version | length | welcome, or the reason for refusing
//! ```
//!
//! Over TLS both have shown their certificates before. Over a Unix socket the kernel says who the
//! caller is, and the welcome is followed by a byte that carries the memory that both will share.
//! Who has not been recognised hears nothing at all: the connection is closed.

use penstock_engine::encoding::{decode, encode};
use penstock_engine::version::Version;
use penstock_engine::{Error, Kind, NodeId, Result};
use penstock_layout::exact;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::address::Address;

const MAGIC: [u8; 8] = *b"PENSTOCK";

/// The bytes of the longest word.
const WORD_BYTES_MAX: u32 = 1 << 20;

/// The lowest node of a client. Servers have the numbers of their processes, which are below.
const CLIENTS: u64 = 1 << 62;

/// The secret of a client, by which all servers know that it is the same one.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    /// Makes a secret that nobody else has.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub(crate) fn new() -> Result<Self> {
        let mut secret = [0; 16];
        let random = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
        match random {
            Ok(count) if count == secret.len() => Ok(Self(secret)),
            _ => {
                let cause = "the system gives no random numbers";
                Err(Error::new(Kind::Io, "making a secret", cause))
            }
        }
    }

    /// The node of the client who has this secret. It does not tell the secret.
    pub(crate) fn node(&self) -> NodeId {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.0);
        let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
        exact::<NodeId>(CLIENTS | u64::from_le_bytes(first) >> 2)
    }
}

/// Who calls.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Caller {
    Client(Secret),
    /// The server process with this number.
    Server(usize),
}

/// The first word of a caller.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) caller: Caller,
    /// The number of the servers that the caller means, if it knows that.
    pub(crate) realm: Option<u64>,
}

/// What a server tells those whom it lets in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The number of these servers, which no others have.
    pub realm: u64,
    /// The number of the server process.
    pub process: usize,
    /// The addresses of all server processes.
    pub addresses: Vec<Vec<Address>>,
    /// The caller's node.
    pub(crate) node: NodeId,
    /// What the servers say to all clients.
    pub greeting: Vec<u8>,
}

/// Sends a word.
///
/// # Errors
/// When the other end does not take it.
pub(crate) async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    word: &T,
    is_first: bool,
) -> Result<()> {
    let word = encode(word)?;
    let mut bytes = Vec::with_capacity(word.len() + 20);
    if is_first {
        bytes.extend(MAGIC);
    }
    bytes.extend(Version::THIS.word().to_le_bytes());
    bytes.extend(exact::<u32>(word.len()).to_le_bytes());
    bytes.extend(word);
    let sent = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| failed(&error))
}

/// Receives a word.
///
/// # Errors
/// [`Kind::Mismatch`] for another version; [`Kind::Peer`] for anything else than a word.
pub(crate) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    is_first: bool,
) -> Result<T> {
    if is_first {
        let mut magic = [0; MAGIC.len()];
        let read = stream.read_exact(&mut magic).await;
        read.map_err(|error| failed(&error))?;
        if magic != MAGIC {
            return Err(failed(&"it does not speak Penstock"));
        }
    }
    let read = async {
        let version = stream.read_u64_le().await?;
        Ok((version, stream.read_u32_le().await?))
    };
    let (version, length) = read.await.map_err(|error: std::io::Error| failed(&error))?;
    let version = Version::of_word(version);
    if version != Version::THIS {
        let cause = format!("it has version {version}, and this is {}", Version::THIS);
        return Err(Error::new(Kind::Mismatch, "connecting", cause));
    }
    if length > WORD_BYTES_MAX {
        return Err(failed(&format!("a word of {length} bytes")));
    }
    let mut word = Vec::new();
    let read = stream.take(u64::from(length)).read_to_end(&mut word).await;
    read.map_err(|error| failed(&error))?;
    if word.len() as u64 != u64::from(length) {
        return Err(failed(&"it has closed the connection"));
    }
    decode(&word)
}

/// The error of a connection that does not come about.
pub(crate) fn failed(cause: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Peer, "connecting", cause)
}
